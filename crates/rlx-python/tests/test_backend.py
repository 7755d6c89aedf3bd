"""The backend of the ``onnx`` package: its own runner, on its own cases."""

import subprocess
import sys

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import rlx  # noqa: E402
import rlx.backend  # noqa: E402


def test_a_model_and_a_node_run(digits_path, digits, image):
    model = onnx.load(digits_path)
    prepared = rlx.backend.prepare(model, "CPU")
    (found,) = prepared.run([image])
    np.testing.assert_array_equal(found, digits(image))
    node = onnx.helper.make_node("Add", ["a", "b"], ["c"])
    (c,) = rlx.backend.run_node(node, [np.float32([1, 2]), np.float32([3])])
    np.testing.assert_array_equal(c, [4, 5])
    assert rlx.backend.is_compatible(model) and rlx.backend.supports_device("CPU:0")
    assert not rlx.backend.supports_device("TPU")


def test_onnx_runner_passes_its_cases_and_fails_none():
    """A part of the node cases, by ONNX's runner. `python -m rlx.backend` runs all."""
    done = subprocess.run(
        [sys.executable, "-m", "rlx.backend", "^test_(add|conv|softmax|reduce_sum|gather|relu|gemm|matmul|resize|cast_FLOAT)"],
        capture_output=True,
        text=True,
    )
    counts = dict(word.split("=") for word in done.stdout.splitlines()[-1].split())
    assert done.returncode == 0 and int(counts["failed"]) == 0, done.stdout + done.stderr
    assert int(counts["passed"]) >= 90, counts
