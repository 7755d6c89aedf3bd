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
]  # fmt: skip
