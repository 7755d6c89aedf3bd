"""The interface of ONNX Runtime's Python package, on RLX: ``import rlx.onnxruntime as ort``, or ``import rlx as ort``.

Scripts that load and run models work unchanged. Providers are RLX's devices: ``CPUExecutionProvider`` is the CPU,
``VulkanExecutionProvider`` Vulkan, and so on; `get_available_providers` lists those that can be used here. As in ONNX Runtime, a
provider that is not available is passed over with a warning. What RLX cannot honour is an error, never ignored in silence; options
that only choose how ONNX Runtime itself works (execution mode, arenas, log levels) are kept and have no effect.
"""

import enum
import os
import warnings
from typing import Any, Dict, List, Optional, Sequence

import numpy as np

from .. import _native, errors

__all__ = [
    "ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "IOBinding", "InferenceSession", "ModelMetadata", "NodeArg",
    "OrtDevice", "OrtValue", "RunOptions", "SessionOptions", "disable_telemetry_events", "enable_telemetry_events",
    "get_all_providers", "get_available_providers", "get_build_info", "get_device", "get_version_string",
    "set_default_logger_severity", "set_default_logger_verbosity", "set_seed",
]  # fmt: skip

__version__ = _native.version()

# Each device's provider, best first.
_PROVIDERS = {
    "TPUExecutionProvider": "tpu",
    "CUDAExecutionProvider": "cuda",
    "ROCMExecutionProvider": "rocm",
    "MLXExecutionProvider": "mlx",
    "MetalExecutionProvider": "metal",
    "CoreMLExecutionProvider": "ane",
    "GpuExecutionProvider": "gpu",
    "VulkanExecutionProvider": "vulkan",
    "DmlExecutionProvider": "directx",
    "OpenGLExecutionProvider": "opengl",
    "WebGpuExecutionProvider": "webgpu",
    "CPUExecutionProvider": "cpu",
}
_OF_DEVICE = {device: provider for provider, device in _PROVIDERS.items()}

_TYPES = {
    "f32": "tensor(float)", "f64": "tensor(double)", "f16": "tensor(float16)", "bf16": "tensor(bfloat16)",
    "i8": "tensor(int8)", "i16": "tensor(int16)", "i32": "tensor(int32)", "i64": "tensor(int64)",
    "u8": "tensor(uint8)", "u16": "tensor(uint16)", "u32": "tensor(uint32)", "u64": "tensor(uint64)",
    "bool": "tensor(bool)", "c64": "tensor(complex64)", "i4": "tensor(int4)", "u4": "tensor(uint4)",
    "f8e4m3fn": "tensor(float8e4m3fn)", "f8e4m3fnuz": "tensor(float8e4m3fnuz)", "f8e5m2": "tensor(float8e5m2)",
    "f8e5m2fnuz": "tensor(float8e5m2fnuz)", "f4e2m1": "tensor(float4e2m1)",
    "f8e8m0": "tensor(float8e8m0)", "i2": "tensor(int2)", "u2": "tensor(uint2)",
}  # fmt: skip


class GraphOptimizationLevel(enum.IntEnum):
    """How much a graph is optimised. RLX optimises always, within rounding; only ``ORT_DISABLE_ALL`` asks for strict numerics."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Of ONNX Runtime's executors; has no effect."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """Of ONNX Runtime's executors; has no effect."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class SessionOptions:
    """How a session is made.

    ``intra_op_num_threads`` is the number of threads of the CPU, ``add_free_dimension_override_by_name`` fixes a dynamic dimension,
    ``graph_optimization_level`` may be ``ORT_DISABLE_ALL`` for strict numerics. The config entries ``rlx.precision``, ``rlx.policy``,
    ``rlx.tune`` and ``rlx.cache`` are options of `rlx.load`.
    """

    def __init__(self):
        self.intra_op_num_threads = 0
        self.inter_op_num_threads = 0
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.execution_order = ExecutionOrder.DEFAULT
        self.enable_cpu_mem_arena = True
        self.enable_mem_pattern = True
        self.enable_mem_reuse = True
        self.enable_profiling = False
        self.profile_file_prefix = "rlx_profile_"
        self.optimized_model_filepath = ""
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.use_deterministic_compute = False
        self._dims: Dict[str, int] = {}
        self._entries: Dict[str, str] = {}

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fixes a named dimension."""
        self._dims[name] = int(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Raises: RLX does not read denotations."""
        raise errors.UnsupportedError(
            "RLX does not read denotations of dimensions", hint="use add_free_dimension_override_by_name"
        )

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry; those that begin with ``rlx.`` are options of `rlx.load`."""
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """An entry that was added."""
        return self._entries[key]

    def add_initializer(self, name, value) -> None:
        """Raises: weights are those of the file."""
        raise errors.UnsupportedError("RLX takes weights from the model file, not from the session options")

    def register_custom_ops_library(self, path) -> None:
        """Raises: libraries of custom ops for ONNX Runtime cannot be loaded."""
        raise errors.UnsupportedError("custom op libraries of ONNX Runtime cannot be loaded")

    def _load(self) -> Dict[str, Any]:
        options: Dict[str, Any] = {}
        if self.intra_op_num_threads:
            options["threads"] = int(self.intra_op_num_threads)
        if self.graph_optimization_level == GraphOptimizationLevel.ORT_DISABLE_ALL:
            options["numerics"] = "strict"
        if self._dims:
            options["dims"] = dict(self._dims)
        for key, value in self._entries.items():
            if key.startswith("rlx."):
                name = key[len("rlx.") :]
                options[name] = value in ("1", "true", True) if name in ("cache", "cpu_fallback") else value
        return options


class RunOptions:
    """Of one run. Setting ``terminate`` stops the runs that were given these options, also from another thread."""

    def __init__(self):
        self._cancel = _native.Cancel()
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.training_mode = False
        self.only_execute_path_to_fetches = False
        self._entries: Dict[str, str] = {}

    @property
    def terminate(self) -> bool:
        return self._cancel.cancelled

    @terminate.setter
    def terminate(self, value: bool) -> None:
        if value:
            self._cancel.cancel()
        elif self._cancel.cancelled:
            self._cancel = _native.Cancel()

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry; it has no effect."""
        self._entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """An entry that was added."""
        return self._entries[key]


class NodeArg:
    """An input or output: ``name``, ``type`` as in ``"tensor(float)"``, and ``shape``, whose dynamic dimensions are strings."""

    def __init__(self, spec: _native.TensorSpec):
        self._spec = spec

    @property
    def name(self) -> str:
        return self._spec.name

    @property
    def type(self) -> str:
        return _TYPES[self._spec.dtype]

    @property
    def shape(self) -> List[Any]:
        # Dimensions without a name of their own are called `input.0` by RLX; ONNX Runtime has no name for them.
        own = f"{self._spec.name}."
        unnamed = lambda d: isinstance(d, str) and d.startswith(own) and d[len(own) :].isdigit()  # noqa: E731
        return [None if unnamed(d) else d for d in self._spec.shape]

    def __repr__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape})"


class ModelMetadata:
    """What the file says about itself."""

    def __init__(self, found: Optional[Dict[str, Any]], name: str):
        found = found or {}
        self.producer_name = found.get("producer_name", "")
        self.graph_name = found.get("graph_name", name)
        self.domain = found.get("domain", "")
        self.description = found.get("description", "")
        self.graph_description = found.get("graph_description", "")
        self.version = found.get("model_version", 0)
        self.custom_metadata_map = dict(found.get("properties", {}))


class OrtDevice:
    """A device: its type and number."""

    def __init__(self, kind: str = "cpu", number: int = 0):
        self._kind, self._number = kind, number

    @staticmethod
    def make(kind: str, number: int = 0) -> "OrtDevice":
        return OrtDevice(kind, number)

    @staticmethod
    def cpu() -> str:
        return "cpu"

    def device_type(self) -> str:
        return self._kind

    def device_id(self) -> int:
        return self._number


class OrtValue:
    """A tensor in the host's memory. RLX copies to devices by itself."""

    def __init__(self, array):
        self._array = array

    @staticmethod
    def ortvalue_from_numpy(array, device_type: str = "cpu", device_id: int = 0) -> "OrtValue":
        """Of an array, which is not copied if it is contiguous."""
        _host(device_type)
        return OrtValue(np.ascontiguousarray(array))

    @staticmethod
    def ortvalue_from_shape_and_type(shape, element_type=np.float32, device_type: str = "cpu", device_id: int = 0) -> "OrtValue":
        """An uninitialised tensor."""
        _host(device_type)
        return OrtValue(np.empty(tuple(shape), dtype=element_type))

    @staticmethod
    def from_dlpack(tensor, is_bool_tensor: bool = False) -> "OrtValue":
        """Of a tensor of another library, which is not copied."""
        array = np.from_dlpack(tensor)
        return OrtValue(array.view(np.bool_) if is_bool_tensor and array.dtype == np.uint8 else array)

    def numpy(self) -> np.ndarray:
        """The array; it is not copied."""
        return self._array

    def update_inplace(self, array) -> None:
        """Copies other values in."""
        if np.shape(array) != self._array.shape:
            raise ValueError(f"the value has shape {self._array.shape}, not {np.shape(array)}")
        np.copyto(self._array, array, casting="no")

    def shape(self) -> List[int]:
        return list(self._array.shape)

    def element_type(self) -> int:
        """The number of ``onnx.TensorProto``'s element type."""
        numbers = {"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
                   "float64": 11, "uint32": 12, "uint64": 13, "complex64": 14, "bfloat16": 16}  # fmt: skip
        return numbers[self._array.dtype.name]

    def data_type(self) -> str:
        names = {"float32": "float", "float64": "double"}
        return f"tensor({names.get(self._array.dtype.name, self._array.dtype.name)})"

    def data_ptr(self) -> int:
        return self._array.ctypes.data

    def device_name(self) -> str:
        return "cpu"

    def is_tensor(self) -> bool:
        return True

    def is_sparse_tensor(self) -> bool:
        return False

    def is_tensor_sequence(self) -> bool:
        return False

    def has_value(self) -> bool:
        return True

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def to_dlpack(self):
        return self.__dlpack__()


def _host(device: str) -> None:
    if str(device).split(":")[0].lower() != "cpu":
        raise errors.UnsupportedError(
            f"values are bound in the host's memory, not on {device}", hint='use device_type="cpu"; RLX copies to the device'
        )


def _array(value):
    return value._array if isinstance(value, OrtValue) else value


class IOBinding:
    """The inputs and outputs of runs, bound once: outputs are written into the caller's memory."""

    def __init__(self, session: "InferenceSession"):
        self._session = session
        self._inputs: Dict[str, Any] = {}
        self._outputs: Dict[str, Any] = {}
        self._values: List[OrtValue] = []

    def bind_cpu_input(self, name: str, array) -> None:
        self._inputs[name] = np.ascontiguousarray(array)

    def bind_ortvalue_input(self, name: str, value: OrtValue) -> None:
        self._inputs[name] = value._array

    def bind_input(self, name: str, device_type: str, device_id: int, element_type, shape: Sequence[int], buffer_ptr: int) -> None:
        """Binds memory by its address, which must stay valid until it is bound no more."""
        _host(device_type)
        self._inputs[name] = _at(buffer_ptr, shape, element_type)

    def bind_output(self, name: str, device_type: str = "cpu", device_id: int = 0, element_type=None, shape=None, buffer_ptr=None) -> None:
        """Binds memory by its address; without one, each run makes a new array."""
        _host(device_type)
        self._outputs[name] = None if buffer_ptr is None else _at(buffer_ptr, shape, element_type)

    def bind_ortvalue_output(self, name: str, value: OrtValue) -> None:
        self._outputs[name] = value._array

    def get_outputs(self) -> List[OrtValue]:
        """The outputs of the last run, in the order in which they were bound."""
        return list(self._values)

    def get_outputs_as_ortvaluevector(self) -> List[OrtValue]:
        return list(self._values)

    def copy_outputs_to_cpu(self) -> List[np.ndarray]:
        return [value.numpy() for value in self._values]

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        self._outputs.clear()
        self._values = []

    def synchronize_inputs(self) -> None:
        """Runs wait for their inputs by themselves."""

    def synchronize_outputs(self) -> None:
        """Runs are done when they return."""

    def _run(self, options) -> None:
        out = {name: array for name, array in self._outputs.items() if array is not None}
        names = list(self._outputs) or None
        found = self._session._execute(names, self._inputs, options, out=out or None)
        self._values = [OrtValue(array) for array in found.values()]


def _at(address: int, shape, element_type) -> np.ndarray:
    import ctypes

    dtype = np.dtype(element_type)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(memory, dtype=dtype).reshape(shape)


class InferenceSession:
    """A model that runs: ``InferenceSession("model.onnx").run(None, {"x": x})``.

    Args:
        path_or_bytes: The path of an ONNX file or of a compiled model, or the bytes of an ONNX file.
        sess_options: `SessionOptions`.
        providers: Names, or pairs of a name and its options; the first that is available is used, by default the best one there is
            for ``CPUExecutionProvider`` alone: the CPU.
    """

    def __init__(self, path_or_bytes, sess_options: Optional[SessionOptions] = None, providers=None, provider_options=None, **kwargs):
        self._options = sess_options or SessionOptions()
        if self._options.enable_profiling:
            raise errors.UnsupportedError("profiles are written by `rlx bench --trace`", hint="leave enable_profiling off")
        if self._options.optimized_model_filepath:
            raise errors.UnsupportedError(
                "RLX does not write optimised ONNX files", hint="rlx.compile writes a compiled model that loads at once"
            )
        disabled = kwargs.pop("disabled_optimizers", None)
        if disabled:
            raise errors.UnsupportedError("optimisers of ONNX Runtime cannot be disabled one by one")
        if kwargs:
            raise TypeError(f"unknown arguments: {', '.join(kwargs)}")
        self._source = path_or_bytes if isinstance(path_or_bytes, (bytes, bytearray)) else os.fspath(path_or_bytes)
        if isinstance(self._source, bytearray):
            self._source = bytes(self._source)
        self._open(providers, provider_options)

    def _open(self, providers, provider_options) -> None:
        provider, self._provider_options = _choose(providers, provider_options)
        self._providers = [provider] + (["CPUExecutionProvider"] if provider != "CPUExecutionProvider" else [])
        options = {"device": _PROVIDERS[provider], **self._options._load()}
        self._model = _native.Model.open(self._source, options)
        # Like ONNX Runtime, a session reports what it cannot run when it is made.
        try:
            self._model.prepare()
        except errors.NeedsInputValueError:
            pass

    def _execute(self, names, inputs, options, out=None) -> Dict[str, np.ndarray]:
        cancel = options._cancel if options is not None else None
        inputs = {name: _array(value) for name, value in inputs.items()}
        return self._model.run(inputs, list(names) if names else None, out=out, cancel=cancel)

    def run(self, output_names, input_feed, run_options: Optional[RunOptions] = None) -> List[np.ndarray]:
        """Runs on arrays by name; returns the outputs named, or all of them."""
        return list(self._execute(output_names, input_feed, run_options).values())

    def run_with_ort_values(self, output_names, input_dict_ort_values, run_options=None) -> List[OrtValue]:
        """As `run`, on `OrtValue`."""
        return [OrtValue(array) for array in self._execute(output_names, input_dict_ort_values, run_options).values()]

    def run_with_ortvaluevector(self, *args) -> None:
        """Raises: bind values by name instead."""
        raise errors.UnsupportedError("vectors of values cannot be run", hint="use io_binding()")

    def run_with_iobinding(self, iobinding: IOBinding, run_options=None) -> None:
        """Runs on what is bound."""
        iobinding._run(run_options)

    def run_async(self, output_names, input_feed, callback, user_data, run_options=None) -> None:
        """Runs on another thread, then calls ``callback(outputs, user_data, error)``."""
        import threading

        def work():
            try:
                outputs, error = self.run(output_names, input_feed, run_options), ""
            except Exception as e:
                outputs, error = [], str(e)
            callback(outputs, user_data, error)

        threading.Thread(target=work, name="rlx run_async").start()

    def io_binding(self) -> IOBinding:
        """Inputs and outputs of runs, bound once."""
        return IOBinding(self)

    def get_inputs(self) -> List[NodeArg]:
        return [NodeArg(spec) for spec in self._model.inputs]

    def get_outputs(self) -> List[NodeArg]:
        return [NodeArg(spec) for spec in self._model.outputs]

    def get_overridable_initializers(self) -> List[NodeArg]:
        """None: weights are constants."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        return ModelMetadata(self._model.metadata, self._model.name)

    def get_providers(self) -> List[str]:
        """The provider of the device that is used; the CPU always follows, as in ONNX Runtime."""
        return list(self._providers)

    def get_provider_options(self) -> Dict[str, Dict[str, str]]:
        return {name: dict(self._provider_options.get(name, {})) for name in self._providers}

    def set_providers(self, providers=None, provider_options=None) -> None:
        """Opens the model again for other providers."""
        self._open(providers, provider_options)

    def get_session_options(self) -> SessionOptions:
        return self._options

    def disable_fallback(self) -> None:
        """RLX never falls back to another device while it runs."""

    def enable_fallback(self) -> None:
        """Has no effect: RLX never falls back to another device while it runs."""

    def end_profiling(self) -> str:
        """Raises: nothing was profiled."""
        raise errors.UnsupportedError("profiles are written by `rlx bench --trace`")

    def __reduce__(self):
        if isinstance(self._source, bytes):
            return (InferenceSession, (self._source, None, self._providers))
        return (InferenceSession, (os.path.abspath(self._source), None, self._providers))


def _choose(providers, provider_options):
    """The first provider that is available, and the options by provider."""
    providers = ["CPUExecutionProvider"] if not providers else list(providers)
    options: Dict[str, Dict[str, str]] = {}
    names = []
    for i, provider in enumerate(providers):
        name, given = provider if isinstance(provider, (tuple, list)) else (provider, {})
        if provider_options and i < len(provider_options):
            given = provider_options[i]
        names.append(name)
        options[name] = dict(given)
    available = get_available_providers()
    reasons = _native.devices()
    for name in names:
        if name in available:
            return name, options
        reason = reasons.get(_PROVIDERS.get(name, ""), "RLX has no such provider")
        warnings.warn(f"{name} is not available: {reason}. Available providers: {', '.join(available)}", stacklevel=4)
    return "CPUExecutionProvider", options


def get_available_providers() -> List[str]:
    """The providers of the devices that can be used here, best first."""
    found = _native.devices()
    return [name for name, device in _PROVIDERS.items() if found.get(device, "") is None]


def get_all_providers() -> List[str]:
    """The providers of all devices that RLX has a name for."""
    return list(_PROVIDERS)


def get_device() -> str:
    """The kind of the best device that can be used here."""
    best = _PROVIDERS[get_available_providers()[0]]
    return "CPU" if best == "cpu" else "GPU"


def get_version_string() -> str:
    return __version__


def get_build_info() -> str:
    return f"RLX {__version__}"


def set_default_logger_severity(level: int) -> None:
    """Has no effect: RLX logs nothing by itself."""


def set_default_logger_verbosity(level: int) -> None:
    """Has no effect: RLX logs nothing by itself."""


def set_seed(seed: int) -> None:
    """Has no effect: random ops take their seeds from the model."""


def enable_telemetry_events() -> None:
    """Has no effect: RLX has no telemetry."""


def disable_telemetry_events() -> None:
    """Has no effect: RLX has no telemetry."""
