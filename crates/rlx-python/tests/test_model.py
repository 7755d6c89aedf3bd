"""`rlx.load` and `Model`."""

import copy
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import rlx


def test_a_model_runs_on_arrays_by_name_by_position_and_by_keyword(digits, image):
    found = digits.run({"image": image})
    assert list(found) == ["probabilities"]
    p = found["probabilities"]
    assert (p.shape, p.dtype, p.flags.writeable) == ((1, 10), np.float32, True)
    assert abs(p.sum() - 1) < 1e-5
    for again in (digits.run([image])["probabilities"], digits(image), digits(image=image)):
        np.testing.assert_array_equal(again, p)


def test_the_cpu_may_help_a_device(digits, digits_path, image):
    helped = rlx.load(digits_path, cpu_fallback=True)
    assert np.array_equal(helped(image=image)[0], digits(image=image)[0])


def test_what_a_model_says_about_itself(digits, digits_path):
    assert (digits.name, digits.device, digits.precision, digits.threads) == ("digits", "cpu", "f32", 2)
    assert digits.path == digits_path
    (spec,) = digits.inputs
    assert (spec.name, spec.dtype, spec.shape) == ("image", "f32", ("batch", 1, 8, 8))
    assert digits.outputs[0].shape == ("batch", 10)
    assert digits.metadata["producer_name"] == "pytorch" and digits.metadata["opsets"][""] >= 11
    assert repr(digits) == '<rlx.Model "digits" on cpu>'


def test_a_model_is_read_from_bytes_and_text_paths(digits, digits_path, image):
    want = digits(image)
    for source in (str(digits_path), digits_path.read_bytes()):
        np.testing.assert_array_equal(rlx.load(source)(image), want)
    with pytest.raises(TypeError, match="a path or the bytes"):
        rlx.load(3)


def test_every_layout_of_an_array_gives_the_same(digits, image):
    want = digits(image)
    big = np.zeros((1, 1, 16, 16), np.float32)
    big[..., ::2, ::2] = image
    for other in (
        np.asfortranarray(image),
        big[..., ::2, ::2],
        image.astype(">f4"),
        image.tolist(),
        memoryview(image),
        np.lib.stride_tricks.as_strided(np.frombuffer(b"x" + image.tobytes(), np.uint8)[1:].view(np.float32), (1, 1, 8, 8), (256, 256, 32, 4)),
    ):
        np.testing.assert_array_equal(digits(other), want)


def test_outputs_can_be_chosen_shared_and_written_into(digits, image):
    want = digits(image)
    assert list(digits.run([image], ["probabilities"])) == ["probabilities"]
    shared = digits.run([image], copy=False)["probabilities"]
    assert not shared.flags.writeable and not shared.flags.owndata
    other = digits(image * 0)  # another run does not touch the memory of the first
    np.testing.assert_array_equal(shared, want)
    assert not np.array_equal(other, want)
    out = np.empty((1, 10), np.float32)
    assert digits.run([image], out={"probabilities": out})["probabilities"] is out
    np.testing.assert_array_equal(out, want)
    for wrong in (np.empty((2, 10), np.float32), np.empty((1, 10), np.float64), np.empty((10, 1), np.float32).T[:, ::-1]):
        with pytest.raises(ValueError, match="out for output"):
            digits.run([image], out={"probabilities": wrong})
    with pytest.raises(rlx.InputError, match="did you mean"):
        digits.run([image], ["probabilitys"])


def test_inputs_that_do_not_fit_are_named(digits, image):
    with pytest.raises(rlx.InputError, match='dimension 3 must be 8, not 7'):
        digits.run({"image": image[..., :7]})
    with pytest.raises(rlx.InputError, match="image"):
        digits.run({})
    with pytest.raises(rlx.InputError, match='did you mean "image"'):
        digits.run({"imag": image})
    with pytest.raises(TypeError) as caught:
        digits.run({"image": image.astype(np.float64)})
    assert isinstance(caught.value, rlx.DTypeError) and "give f32 elements" in caught.value.hint
    with pytest.raises(TypeError, match="no tensor"):
        digits.run({"image": np.array(["a"], object)})
    with pytest.raises(ValueError):
        digits.run([image, image])


def test_errors_carry_what_is_known(digits_path):
    with pytest.raises(rlx.FileError) as missing:
        rlx.load("no-such-file.onnx")
    caught = missing
    assert isinstance(caught.value, OSError) and isinstance(caught.value, rlx.Error)
    with pytest.raises(rlx.MalformedError):
        rlx.load(b"not a model")
    with pytest.raises(rlx.DeviceUnavailableError, match="tpu"):
        rlx.load(digits_path, device="tpu")
    with pytest.raises(rlx.ConfigError):
        rlx.load(b"", device="toaster")
    with pytest.raises(rlx.ConfigError, match='did you mean "device"'):
        rlx.Model.open(b"", {"devise": "cpu"})
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is rlx.FileError and str(again) == str(caught.value)


def test_options_are_honoured(digits_path, image):
    fixed = rlx.load(digits_path, dims={"batch": 1}, numerics="strict", precision="bf16")
    assert fixed.inputs[0].shape == (1, 1, 8, 8) and fixed.precision == "bf16"
    np.testing.assert_allclose(fixed(image), rlx.load(digits_path)(image), atol=0.05)
    with pytest.raises(rlx.DimensionError, match='did you mean "batch"'):
        rlx.load(digits_path, dims={"bach": 1})
    with pytest.raises(ValueError, match="numerics"):
        rlx.load(digits_path, numerics="sloppy")


def test_threads_run_one_model_at_once(digits):
    images = np.random.default_rng(2).uniform(0, 1, (32, 1, 1, 8, 8)).astype(np.float32)
    want = [digits(x) for x in images]
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(digits, images))
    for a, b in zip(got, want):
        np.testing.assert_array_equal(a, b)


def slow_model():
    """Many matmuls, one after the other."""
    g = rlx.Graph("slow")
    w = g.param("w", np.eye(SIZE, dtype=np.float32))
    x = y = g.input("x", [SIZE, SIZE])
    for _ in range(200):
        y = (y @ w).tanh() + x
    return g.compile([y], threads=1)


SIZE = 256
ONES = np.ones((SIZE, SIZE), np.float32)


def test_the_gil_is_released_while_a_model_runs():
    model, x = slow_model(), ONES
    model.run([x])
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.perf_counter()
    model.run([x])
    end = time.perf_counter()
    done.set()
    thread.join()
    during = [t for t in ticks if start < t < end]
    assert len(during) > 10, (len(during), end - start)


def test_progress_timeout_and_cancel(digits_path, image):
    heard = []
    model = rlx.load(digits_path, progress=lambda *event: heard.append(event))
    model.run([image], progress=lambda *event: heard.append(event))
    assert {"reading", "importing", "compiling", "running"} <= {stage for stage, *_ in heard}
    assert all(isinstance(text, str) and done <= max(total, done) for _, done, total, text in heard)

    def stop(stage, *rest):
        if stage == "running":
            raise KeyError("stop here")

    with pytest.raises(KeyError, match="stop here"):
        model.run([image], progress=stop)
    assert model(image).shape == (1, 10)

    cancel = rlx.Cancel()
    cancel.cancel()
    with pytest.raises(rlx.Cancelled):
        model.run([image], cancel=cancel)
    with pytest.raises(rlx.Cancelled, match="deadline"):
        slow_model().run([ONES], timeout=0.01)
    with pytest.raises(ValueError, match="timeout"):
        model.run([image], timeout=-1)


def test_cancel_from_another_thread_stops_a_run():
    model, x, cancel = slow_model(), ONES, rlx.Cancel()
    model.prepare()
    timer = threading.Timer(0.05, cancel.cancel)
    timer.start()
    with pytest.raises(rlx.Cancelled):
        for _ in range(1000):
            model.run([x], cancel=cancel)
    timer.join()


@pytest.mark.skipif(os.name == "nt", reason="signals are sent as on Unix")
def test_ctrl_c_stops_a_run():
    script = textwrap.dedent("""
        import signal, sys, time, numpy as np
        sys.path.insert(0, {tests!r})
        from test_model import ONES as x, slow_model
        # A shell starts what runs in its background with the signal ignored, and Python leaves it so.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        model = slow_model()
        model.run([x])
        print("ready", flush=True)
        start = time.perf_counter()
        try:
            while True:
                model.run([x])
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """).format(tests=os.path.dirname(__file__))
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline().strip() == "ready"
    time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert "interrupted" in out and child.returncode == 0


def test_models_are_pickled_by_path_and_options(digits_path, digits, image):
    fixed = rlx.load(digits_path, dims={"batch": 1})
    for again in (pickle.loads(pickle.dumps(fixed)), copy.copy(fixed)):
        assert again.inputs[0].shape == (1, 1, 8, 8)
        np.testing.assert_array_equal(again(image), fixed(image))
    with pytest.raises(TypeError, match="save it first"):
        pickle.dumps(rlx.load(digits_path.read_bytes()))


def test_compiled_files_give_the_same_bits(tmp_path, digits, digits_path, image):
    want, file = digits(image), tmp_path / "digits.rlx"
    rlx.compile(digits_path, file)
    loaded = rlx.load(file)
    np.testing.assert_array_equal(loaded(image), want)
    assert loaded.metadata is None and loaded.outputs[0].name == "probabilities"
    assert rlx.verify(loaded, {"image": image})
    with pytest.raises(rlx.ConfigError, match="decided"):
        rlx.load(file, numerics="strict")


def test_verify_bench_and_inspect(digits, digits_path, image):
    found = rlx.verify(digits)
    assert found and found.values > 3 and found.first_divergence is None and found.outputs["probabilities"]["ok"]
    tight = rlx.verify(digits, {"image": image}, rtol=0, atol=0)
    assert not tight and tight.first_divergence["op"]
    times = rlx.bench(digits, runs=7, warmup=1)
    assert len(times.times_ms) == 7 and 0 < times.min_ms <= times.median_ms <= times.p95_ms
    assert times.precision == "f32" and times.weight_bytes > 0
    facts = rlx.inspect(digits_path, dims={"batch": 1})
    assert facts["ops"]["Conv"] >= 1 and facts["flops"] > 1000 and facts["unsupported"] == []
    assert facts["metadata"]["producer_name"] == "pytorch" and "Conv" in facts["graph"] or "conv" in facts["graph"]
    with pytest.raises(TypeError, match="options already"):
        rlx.bench(digits, device="cpu")


def test_devices_say_why_they_cannot_be_used():
    found = rlx.devices()
    assert found["cpu"] is None and "tpu" in found["tpu"]
