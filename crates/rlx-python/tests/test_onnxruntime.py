"""A script written for ONNX Runtime runs after one change, and the interface does what its users rely on."""

import pathlib
import pickle
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
import rlx
import rlx.onnxruntime as ort

from conftest import MODELS

SCRIPT = pathlib.Path(__file__).parent / "scripts" / "classify_digits.py"


def sample_images():
    """The sample images of the model, as its inputs, and what PyTorch sees in them."""
    golden = np.load(MODELS / "digits" / "golden.npz")
    return golden["in_image"], [str(c) for c in golden["out_probabilities"].argmax(axis=1)]


@pytest.mark.parametrize("changed", ["import rlx as ort", "import rlx.onnxruntime as ort"])
def test_a_script_for_onnx_runtime_runs_with_one_changed_import(changed, tmp_path, digits_path):
    text = SCRIPT.read_text(encoding="utf-8")
    assert text.count("import onnxruntime as ort") == 1
    script, images = tmp_path / "script.py", tmp_path / "images.npy"
    script.write_text(text.replace("import onnxruntime as ort", changed), encoding="utf-8")
    batch, labels = sample_images()
    np.save(images, batch)
    done = subprocess.run(
        [sys.executable, script, str(digits_path), str(images), *labels], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "running pytorch on CPUExecutionProvider" in done.stdout


@pytest.fixture
def session(digits_path):
    return ort.InferenceSession(str(digits_path), providers=["CPUExecutionProvider"])


def test_inputs_outputs_and_metadata(session):
    (given,), (result,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.type, given.shape) == ("image", "tensor(float)", ["batch", 1, 8, 8])
    assert (result.name, result.type, result.shape) == ("probabilities", "tensor(float)", ["batch", 10])
    meta = session.get_modelmeta()
    assert meta.producer_name == "pytorch" and isinstance(meta.custom_metadata_map, dict)
    assert session.get_overridable_initializers() == []


def test_providers_are_devices(digits_path, session):
    assert "CPUExecutionProvider" in ort.get_available_providers()
    assert set(ort.get_available_providers()) <= set(ort.get_all_providers())
    assert session.get_providers() == ["CPUExecutionProvider"]
    with pytest.warns(UserWarning, match="TPUExecutionProvider is not available"):
        fallen = ort.InferenceSession(str(digits_path), providers=["TPUExecutionProvider", ("CPUExecutionProvider", {})])
    assert fallen.get_providers() == ["CPUExecutionProvider"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ort.InferenceSession(digits_path.read_bytes(), providers=["CPUExecutionProvider"])


def test_session_options_reach_the_compiler(digits_path, image):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    options.add_free_dimension_override_by_name("batch", 1)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("rlx.precision", "bf16")
    session = ort.InferenceSession(str(digits_path), options)
    assert session.get_inputs()[0].shape == [1, 1, 8, 8]
    assert session._model.options == {"device": "cpu", "threads": 2, "numerics": "strict", "dims": {"batch": 1}, "precision": "bf16"}
    assert session.run(None, {"image": image})[0].shape == (1, 10)


def test_what_cannot_be_honoured_is_an_error(digits_path):
    options = ort.SessionOptions()
    options.enable_profiling = True
    with pytest.raises(rlx.UnsupportedError):
        ort.InferenceSession(str(digits_path), options)
    with pytest.raises(rlx.UnsupportedError):
        ort.SessionOptions().register_custom_ops_library("ops.so")
    with pytest.raises(rlx.UnsupportedError):
        ort.OrtValue.ortvalue_from_numpy(np.zeros(1), "cuda")
    with pytest.raises(TypeError):
        ort.InferenceSession(str(digits_path), no_such_argument=1)


def test_wrong_feeds_are_value_errors(session, image):
    with pytest.raises(ValueError, match="image"):
        session.run(None, {})
    with pytest.raises(ValueError, match="nothing"):
        session.run(["nothing"], {"image": image})


def test_io_binding_writes_into_the_callers_memory(session, image):
    (want,) = session.run(None, {"image": image})
    binding = session.io_binding()
    binding.bind_input("image", "cpu", 0, np.float32, image.shape, image.ctypes.data)
    out = np.empty((1, 10), np.float32)
    binding.bind_output("probabilities", "cpu", 0, np.float32, out.shape, out.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(out, want)
    binding.clear_binding_outputs()
    binding.bind_output("probabilities")
    binding.bind_ortvalue_input("image", ort.OrtValue.ortvalue_from_numpy(image))
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], want)
    assert binding.get_outputs()[0].shape() == [1, 10]


def test_ort_values(session, image):
    value = ort.OrtValue.ortvalue_from_numpy(image)
    (found,) = session.run_with_ort_values(["probabilities"], {"image": value})
    np.testing.assert_array_equal(found.numpy(), session.run(None, {"image": image})[0])
    assert (found.data_type(), found.element_type(), found.device_name()) == ("tensor(float)", 1, "cpu")
    np.testing.assert_array_equal(np.from_dlpack(found), found.numpy())
    value.update_inplace(image * 0)
    assert value.numpy().sum() == 0
    with pytest.raises(ValueError):
        value.update_inplace(np.zeros(3, np.float32))


def test_terminate_stops_a_run(session, image):
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(rlx.Cancelled):
        session.run(None, {"image": image}, options)
    options.terminate = False
    assert session.run(None, {"image": image}, options)[0].shape == (1, 10)


def test_run_async_and_pickling(session, image):
    (want,) = session.run(None, {"image": image})
    done, heard = threading.Event(), []

    def callback(outputs, data, error):
        heard.append((outputs, data, error))
        done.set()

    session.run_async(None, {"image": image}, callback, "data")
    assert done.wait(30) and heard[0][1:] == ("data", "")
    np.testing.assert_array_equal(heard[0][0][0], want)
    again = pickle.loads(pickle.dumps(session))
    np.testing.assert_array_equal(again.run(None, {"image": image})[0], want)
