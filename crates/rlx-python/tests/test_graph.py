"""`rlx.Graph`: graphs recorded from array code."""

import numpy as np
import pytest
import rlx


def test_operators_and_methods_compute_what_numpy_does():
    g = rlx.Graph("layers")
    rng = np.random.default_rng(0)
    w, b = rng.normal(size=(4, 3)).astype(np.float32), np.float32([0.5, -0.5, 0])
    x = g.input("x", ["batch", 4])
    hidden = (x @ g.param("w", w) + b).relu()
    model = g.compile({"sum": hidden.sum([1]), "mixed": 2 - hidden / 4 + -hidden * 3, "mean": hidden.mean(0, keep_dim=True)})
    data = rng.normal(size=(5, 4)).astype(np.float32)
    want = np.maximum(data @ w + b, 0)
    found = model.run({"x": data})
    np.testing.assert_allclose(found["sum"], want.sum(1), rtol=1e-5)
    np.testing.assert_allclose(found["mixed"], 2 - want / 4 - want * 3, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["mean"], want.mean(0, keepdims=True), rtol=1e-5)


def test_arrays_on_either_side():
    g = rlx.Graph("sides")
    x = g.input("x", [2, 2])
    a = np.float32([[1, 2], [3, 4]])
    model = g.compile([a + x, a @ x, x @ a, a * x, x < a])
    assert [t.name for t in model.outputs] == [f"output_{i}" for i in range(5)]
    v = np.float32([[1, 0], [5, 1]])
    for got, want in zip(model(v), (a + v, a @ v, v @ a, a * v, v < a)):
        np.testing.assert_array_equal(got, want)


def test_tensors_know_their_shapes():
    g = rlx.Graph("shapes")
    x = g.input("x", ["batch", 4])
    assert (x.shape, x.dtype, x.ndim) == (("batch", 4), "f32", 2)
    assert x.reshape([-1, 2, 2]).shape[1:] == (2, 2)
    assert x.cast("f16").dtype == "f16"
    assert "softmax" in dir(x) and "over" in x.sum.__doc__


def test_faults_name_the_line_of_python():
    g = rlx.Graph("faults")
    x = g.input("x", [2, 3])
    with pytest.raises(rlx.ShapeError) as caught:
        x @ x
    assert caught.value.origin.split(":")[-2].endswith("test_graph.py")
    with pytest.raises(AttributeError, match='did you mean "softmax"'):
        x.softmx()
    with pytest.raises(TypeError, match="misses its argument"):
        x.reshape()
    with pytest.raises(TypeError, match="unexpected argument"):
        x.relu(axis=1)
    with pytest.raises(TypeError, match="where_"):
        bool(x < 0)
    other = rlx.Graph("other").input("x", [2, 3])
    with pytest.raises(ValueError, match="different graphs"):
        x + other
    with pytest.raises(rlx.InvalidGraphError):
        g.compile([other])


def test_functions_are_traced():
    model = rlx.trace(lambda x, y: (x + y).tanh(), x=(["n"], "f32"), y=np.zeros(3, np.float32))()
    np.testing.assert_allclose(model(np.float32([1, 2, 3]), np.float32([0, 0, 1])), np.tanh([1, 2, 4]), rtol=1e-5)


def test_recorded_graphs_are_saved_and_verified(tmp_path):
    g = rlx.Graph("saved")
    model = g.compile({"y": g.input("x", ["batch", 2]) @ g.param("w", np.float32([[1, 2], [3, 4]]))})
    assert rlx.verify(model)
    model.save(tmp_path / "saved.rlx")
    x = np.float32([[1, 1]])
    np.testing.assert_array_equal(rlx.load(tmp_path / "saved.rlx")(x), model(x))
    assert "matmul" in g.text({"y": g.input("z", [2, 2]) @ np.eye(2, dtype=np.float32)}).lower()
