"""The cases of nets_flow.py."""

import nets_flow
from case import Case, by_formula

PICTURE = {"x": ["batch", 3, 32, 32]}
FOUND = {"boxes": ["kept", 4], "scores": ["kept"], "labels": ["kept"], "images": ["kept"]}

CASES = [
    Case(
        "detector", "detector", nets_flow.detector, "TorchScript", 17, PICTURE, FOUND,
        [{"batch": 1}, {"batch": 2}, {"batch": 5}], by_formula(PICTURE["x"]),
    ),
    Case(
        "settle", "settle", nets_flow.settle, "TorchScript", 17, {"x": ["batch", 16]}, {"y": ["batch", 8]},
        [{"batch": 1}, {"batch": 2}, {"batch": 5}, {"batch": 4}], by_formula(["batch", 16]),
    ),
]  # fmt: skip
