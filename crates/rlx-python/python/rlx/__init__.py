"""RLX: a machine-learning compiler and runtime.

It runs ONNX models with the same results, up to rounding, on every device it supports::

    import rlx

    model = rlx.load("model.onnx")
    outputs = model.run({"image": image})

`load` and `Model` run models, `compile` writes them to files that load at once, `verify` compares a device with an exact
reference, `bench` measures, `inspect` describes. `Graph` records models written in Python. Scripts written for ONNX Runtime run
after one change: ``import rlx as ort`` (or ``import rlx.onnxruntime as ort``).
"""

import os as _os
from dataclasses import dataclass as _dataclass
from typing import Any, Dict, List, Mapping, Optional

import numpy as _np

from . import errors
from ._native import Cancel, Graph, Model, Tensor, TensorSpec
from ._native import devices as _devices
from ._native import version as _version
from .errors import *  # noqa: F403
from .errors import __all__ as _error_names

__version__ = _version()


def _load(path, options):
    return Model.open(path, options)


def load(
    model,
    *,
    device: Optional[str] = None,
    precision: str = "f32",
    policy: Optional[str] = None,
    numerics: str = "fast",
    threads: Optional[int] = None,
    dims: Optional[Mapping[str, int]] = None,
    tune: Optional[str] = None,
    cpu_fallback: bool = False,
    cache: bool = False,
    progress=None,
    timeout: Optional[float] = None,
    cancel: Optional[Cancel] = None,
) -> Model:
    """Opens a model; it is imported and compiled at the first run, or by ``prepare()``.

    Args:
        model: The path of an ONNX file or of a compiled model (``.rlx``), or the bytes of an ONNX file.
        device: ``"cpu"``, ``"vulkan"``, ``"opengl"``, …; by default what ``RLX_DEVICE`` says, else the CPU. `devices` lists them.
        precision: The arithmetic: ``"f32"``, ``"f16"`` or ``"bf16"``.
        policy: Chooses the type by op instead: ``"always-f32"``, ``"always-f16"``, ``"auto-mixed-conservative"``,
            ``"auto-mixed"``, ``"auto-mixed-bf16"``.
        numerics: ``"strict"`` allows no optimisation that changes a bit.
        threads: How many threads the CPU uses; all by default.
        dims: Sizes for named dynamic dimensions, as in ``{"batch": 1}``.
        tune: Whether steps run the variant that was measured as fastest: ``"off"``, ``"cached"`` or ``"measure"``.
        cpu_fallback: Let the CPU run the ops that the device cannot. Without it, such a model is an error.
        cache: Keep the compiled model in the user's cache, and load it from there next time.
        progress: Called as ``progress(stage, done, total, text)``.
        timeout: Seconds after which `Cancelled` is raised.
        cancel: A `Cancel`, which stops the call from another thread.

    Raises:
        FileError, MalformedError: The file cannot be read, or is no model.
        DeviceUnavailableError: The device is not there. There is no silent fallback to another one.
    """
    options = {
        "device": device,
        "precision": precision,
        "policy": policy,
        "numerics": numerics,
        "threads": threads,
        "dims": dict(dims) if dims else None,
        "tune": tune,
        "cpu_fallback": cpu_fallback,
        "cache": cache,
    }
    options = {name: value for name, value in options.items() if value is not None}
    return Model.open(model, options, progress=progress, timeout=timeout, cancel=cancel)


def _model(model, options) -> Model:
    if isinstance(model, Model):
        if options:
            raise TypeError(f"a loaded model has its options already: {', '.join(options)}")
        return model
    return load(model, **options)


def devices() -> Dict[str, Optional[str]]:
    """Every device by name: ``None`` where it can be used here, else why not."""
    return _devices()


def compile(model, output, *, slim: bool = False, inputs=None, progress=None, timeout=None, cancel=None, **options) -> None:
    """Compiles a model to a file that `load` opens without importing or compiling it again.

    The file is valid for this kind of machine, device and version of RLX, and is rejected elsewhere.

    Args:
        model: A path, the bytes of an ONNX file, or a `Model`.
        output: The file to write (``.rlx``).
        slim: Leave out what only `verify` needs.
        inputs: Arrays by name, where values of inputs decide shapes.
        **options: As of `load`.
    """
    _model(model, options).save(
        output, slim=slim, inputs=inputs, progress=progress, timeout=timeout, cancel=cancel
    )


def random_inputs(model: Model, dims: Optional[Mapping[str, int]] = None, seed: int = 0) -> Dict[str, _np.ndarray]:
    """Made-up inputs: floats in -1..1, integers 0 or 1. Dynamic dimensions that ``dims`` does not name are 1 for a batch.

    Raises:
        DimensionError: Another dynamic dimension has no size in ``dims``.
    """
    rng = _np.random.default_rng(seed)
    sizes = dict(dims or {})
    made = {}
    for spec in model.inputs:
        shape = []
        for dim in spec.shape:
            if isinstance(dim, str):
                if dim not in sizes and dim.lower() in ("batch", "batch_size", "n", "bs"):
                    sizes[dim] = 1
                if dim not in sizes:
                    raise errors.DimensionError(
                        f'input "{spec.name}" is {spec!r}: give dims={{"{dim}": SIZE}} for random values',
                        hint=f'dims={{"{dim}": SIZE}}',
                    )
                dim = sizes[dim]
            shape.append(dim)
        dtype = numpy_dtype(spec.dtype)
        if spec.dtype[0] in "fb" and spec.dtype != "bool":
            made[spec.name] = rng.uniform(-1, 1, shape).astype(dtype)
        else:
            made[spec.name] = rng.integers(0, 2, shape).astype(dtype)
    return made


_NUMPY = {
    "f16": "float16", "f32": "float32", "f64": "float64", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "bool": "bool", "c64": "complex64",
}  # fmt: skip
_ML_DTYPES = {
    "bf16": "bfloat16", "f8e4m3fn": "float8_e4m3fn", "f8e4m3fnuz": "float8_e4m3fnuz", "f8e5m2": "float8_e5m2",
    "f8e5m2fnuz": "float8_e5m2fnuz", "f8e8m0": "float8_e8m0fnu", "i2": "int2", "u2": "uint2", "i4": "int4", "u4": "uint4", "f4e2m1": "float4_e2m1fn",
}  # fmt: skip


def numpy_dtype(name: str) -> _np.dtype:
    """NumPy's type for an element type of RLX: ``numpy_dtype("bf16")``. Some need the package ``ml_dtypes``."""
    if name in _NUMPY:
        return _np.dtype(_NUMPY[name])
    if name in _ML_DTYPES:
        try:
            import ml_dtypes
        except ImportError:
            raise TypeError(f"NumPy has {name} only with the package ml_dtypes: pip install ml_dtypes") from None
        return _np.dtype(getattr(ml_dtypes, _ML_DTYPES[name]))
    raise TypeError(f"NumPy has no type for {name!r}")


@_dataclass
class Verification:
    """What `verify` found. It is true where the model is right."""

    ok: bool
    """Whether every value compared is within the tolerance."""
    max_abs: float
    max_rel: float
    max_ulp: float
    mean_ulp: float
    overflowed: int
    outputs: Dict[str, Dict[str, Any]]
    """The difference of each output."""
    values: int
    """How many inner values were compared."""
    first_divergence: Optional[Dict[str, Any]]
    """The first node that diverges: ``node``, ``op``, ``origin``, and the difference."""
    first_overflow: Optional[Dict[str, Any]]
    rtol: float
    atol: float
    floor: float

    def __bool__(self) -> bool:
        return self.ok


def verify(
    model, inputs=None, *, against: Optional[str] = None, rtol=None, atol=None, floor: float = 0.0, dims=None, progress=None, timeout=None,
    cancel=None, **options,
) -> Verification:  # fmt: skip
    """Compares the device with the oracle, an exact reference interpreter, on every value of the graph that remains after fusion.

    Args:
        model: A path, the bytes of an ONNX file, or a `Model`.
        inputs: Arrays by name; random ones by default.
        against: A device to trust instead of the oracle.
        rtol, atol: The error allowed relative to each element, and to the largest of its tensor; by default, by element type.
        floor: An error that is allowed everywhere.
        dims: Sizes of dynamic dimensions for random inputs.
        **options: As of `load`.
    """
    model = _model(model, options)
    given = random_inputs(model, dims) if inputs is None else inputs
    found = model.verify(
        given, against=against, rtol=rtol, atol=atol, floor=floor, progress=progress, timeout=timeout, cancel=cancel
    )
    return Verification(**found)


@_dataclass
class Benchmark:
    """What `bench` measured; times are in milliseconds."""

    min_ms: float
    median_ms: float
    p95_ms: float
    first_run_ms: float
    """The first run, with importing and compiling where that was not done before."""
    times_ms: List[float]
    precision: str
    """The precision that was used."""
    weight_bytes: int
    arena_bytes: int


def bench(model, inputs=None, *, runs: int = 50, warmup: int = 5, dims=None, timeout=None, cancel=None, **options) -> Benchmark:
    """Measures how long runs take, without the conversion of arrays.

    Args:
        model: A path, the bytes of an ONNX file, or a `Model`.
        inputs: Arrays by name; random ones by default.
        runs, warmup: How many runs are timed, and how many are made before.
        dims: Sizes of dynamic dimensions for random inputs.
        **options: As of `load`.
    """
    if runs < 1 or warmup < 0:
        raise ValueError("runs must be at least 1, and warmup at least 0")
    model = _model(model, options)
    given = random_inputs(model, dims) if inputs is None else inputs
    found = model.time(given, runs, warmup, timeout=timeout, cancel=cancel)
    times = sorted(1e3 * t for t in found.pop("times"))
    return Benchmark(
        min_ms=times[0],
        median_ms=times[len(times) // 2],
        p95_ms=times[min(len(times) - 1, -(-len(times) * 95 // 100) - 1)],
        first_run_ms=1e3 * found.pop("first"),
        times_ms=times,
        **found,
    )


def inspect(model, inputs=None, *, progress=None, timeout=None, cancel=None, **options) -> Dict[str, Any]:
    """What a model consists of, as a dict: ``inputs``, ``outputs``, ``ops`` with their counts, ``flops``, ``parameters``, ``dispatch``
    (how the device computes each op), ``unsupported``, ``metadata``, and the ``graph`` in text form.

    Args:
        model: A path, the bytes of an ONNX file, or a `Model`.
        inputs: Arrays by name, where values of inputs decide shapes.
        **options: As of `load`.
    """
    model = _model(model, options)
    found = model.inspect(inputs, progress=progress, timeout=timeout, cancel=cancel)
    found["metadata"] = model.metadata
    return found


def trace(function, **inputs) -> "Graph":
    """Records a Python function as a model: its arguments are tensors like the arrays (or ``(shape, dtype)`` pairs) given by name.

    Returns a function of the options of `load` that compiles it::

        import numpy as np
        model = rlx.trace(lambda x: (x * 2).relu(), x=(["batch", 2], "f32"))(device="cpu")
        y = model(np.float32([[1, -1]]))
    """
    graph = Graph(getattr(function, "__name__", "traced").strip("<>") or "traced")
    tensors = {}
    for name, like in inputs.items():
        if isinstance(like, tuple) and len(like) == 2 and isinstance(like[1], str):
            shape, dtype = like
        else:
            array = _np.asarray(like)
            names = {**{v: k for k, v in _NUMPY.items()}, **{v: k for k, v in _ML_DTYPES.items()}}
            shape, dtype = array.shape, names[array.dtype.name]
        tensors[name] = graph.input(name, list(shape), dtype)
    outputs = function(**tensors)

    def compiled(**options) -> Model:
        return graph.compile(outputs, **options)

    return compiled


from . import onnxruntime  # noqa: E402
from .onnxruntime import *  # noqa: E402, F403
from .onnxruntime import __all__ as _onnxruntime_names  # noqa: E402

__all__ = [
    "Benchmark", "Cancel", "Graph", "Model", "Tensor", "TensorSpec", "Verification", "bench", "compile", "devices", "errors",
    "inspect", "load", "numpy_dtype", "onnxruntime", "random_inputs", "trace", "verify",
]  # fmt: skip
__all__ += _error_names + _onnxruntime_names
