"""Runs all test cases of the installed ``onnx`` package: ``python -m rlx.backend [PATTERN]``.

The cases are ONNX's own, and so is their runner; the last line counts them. What RLX cannot import or compile is counted as unsupported.
"""

import collections
import re
import sys
import unittest
import warnings

import onnx.backend.test

import rlx
import rlx.backend


def main() -> int:
    warnings.simplefilter("ignore")
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    tests = onnx.backend.test.BackendTest(rlx.backend, __name__)
    counts = collections.Counter()
    for name, case in sorted(tests.test_cases.items()):
        if "Real" in name:  # needs models from the network
            continue
        for method in unittest.TestLoader().loadTestsFromTestCase(case):
            label = method.id().rsplit(".", 1)[-1]
            if not label.endswith("_cpu") or not re.search(pattern, label):
                continue
            result = unittest.TestResult()
            errors = []
            result.addError = lambda _, e: errors.append(e[1])
            result.addFailure = lambda _, e: errors.append(e[1])
            method.run(result)
            if any("Not compatible" in reason for _, reason in result.skipped):
                outcome = "unsupported"
            elif result.skipped:
                outcome = "skipped"
            elif not errors:
                outcome = "passed"
            elif isinstance(errors[0], (rlx.UnsupportedError, rlx.NeedsInputValueError)):
                outcome = "unsupported"
            else:
                outcome = "failed"
                print(f"failed {label}: {str(errors[0]).splitlines()[0] if str(errors[0]) else type(errors[0]).__name__}")
            counts[outcome] += 1
    print(" ".join(f"{outcome}={counts[outcome]}" for outcome in ("passed", "failed", "unsupported", "skipped")))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
