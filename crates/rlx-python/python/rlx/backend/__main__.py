"""Runs all test cases of the installed ``onnx`` package: ``python -m rlx.backend [PATTERN] [--exceptions FILE]``.

The cases are ONNX's own, and so is their runner; the last lines count them by category: node cases, ``simple``, ``pytorch-converted``,
``pytorch-operator``, and ``light`` (networks that are in the package without their weights). What RLX cannot import or compile is counted as
unsupported. With a list of exceptions (`crates/rlx-onnx/tests/node_suite/expected.txt`), exactly the cases of the list must fail.
"""

import argparse
import collections
import os
import pathlib
import re
import sys
import tempfile
import unittest
import warnings

import onnx.backend.test

import rlx
import rlx.backend

#: ONNX's names of the categories, and the folders' names.
CATEGORIES = {
    "OnnxBackendNodeModelTest": "node",
    "OnnxBackendSimpleModelTest": "simple",
    "OnnxBackendPyTorchConvertedModelTest": "pytorch-converted",
    "OnnxBackendPyTorchOperatorModelTest": "pytorch-operator",
    "OnnxBackendRealModelTest": "light",
}
OUTCOMES = ("passed", "failed", "unsupported", "skipped")


def exceptions(path):
    """The cases of a list that fail on the CPU, or by this runner alone."""
    lines = (line.split() for line in path.read_text().splitlines() if line and not line.startswith("#"))
    names = (words[0].split("@") for words in lines if words[0].startswith("test_"))
    return {name for name, *on in names if on in ([], ["cpu"], ["onnx-runner"])}


def outcome_of(method):
    """What becomes of a case, and why."""
    result = unittest.TestResult()
    errors = []
    result.addError = lambda _, e: errors.append(e[1])
    result.addFailure = lambda _, e: errors.append(e[1])
    method.run(result)
    if any("Not compatible" in reason for _, reason in result.skipped):
        return "unsupported", "it cannot be compiled"
    if result.skipped:
        return "skipped", result.skipped[0][1]
    if not errors:
        return "passed", ""
    why = next((line for line in str(errors[0]).splitlines() if line.strip()), type(errors[0]).__name__)
    unsupported = isinstance(errors[0], (rlx.UnsupportedError, rlx.NeedsInputValueError))
    return "unsupported" if unsupported else "failed", why


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m rlx.backend", description=__doc__.split("\n")[0])
    parser.add_argument("pattern", nargs="?", default="", help="only cases whose name matches")
    parser.add_argument("--exceptions", type=pathlib.Path, metavar="FILE", help="exactly the cases of this list fail")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    listed = exceptions(args.exceptions) if args.exceptions else set()
    # The runner writes the inputs that it makes there.
    os.environ.setdefault("ONNX_HOME", tempfile.mkdtemp(prefix="onnx-home-"))
    tests = onnx.backend.test.BackendTest(rlx.backend, __name__)
    counts, wrong = collections.defaultdict(collections.Counter), 0
    for name, case in sorted(tests.test_cases.items()):
        category = CATEGORIES.get(name, name)
        for method in unittest.TestLoader().loadTestsFromTestCase(case):
            label = method.id().rsplit(".", 1)[-1]
            if not label.endswith("_cpu") or not re.search(args.pattern, label):
                continue
            outcome, why = outcome_of(method)
            expected = label.removesuffix("_cpu") in listed
            counts[category][outcome] += 1
            counts[category]["listed"] += expected
            if expected and outcome == "passed":
                print(f"passed {label}, which is listed as failing")
            elif expected or outcome in ("passed", "skipped") or (outcome == "unsupported" and not args.exceptions):
                continue
            else:
                print(f"{outcome} {label}: {why}")
            wrong += 1
    for category in CATEGORIES.values():
        if counts[category]:
            print(f"{category}: " + " ".join(f"{outcome}={counts[category][outcome]}" for outcome in (*OUTCOMES, "listed")))
    total = sum(counts.values(), collections.Counter())
    print(" ".join(f"{outcome}={total[outcome]}" for outcome in OUTCOMES))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
