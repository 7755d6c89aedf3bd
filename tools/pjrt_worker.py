"""Compiles and runs StableHLO by XLA on the CPU, for the PJRT plugin of the tests (`tests/fake-pjrt`), over standard input and output.
With RLX_TEST_PJRT_ENGINE=interpreter, StableHLO's reference interpreter runs it instead.

    compile BYTES BYTES\n OPTIONS TEXT → NUMBER; the options are a CompileOptionsProto
    run NUMBER COUNT\n tensors         → COUNT\n tensors
    a tensor: TYPE BYTES DIM DIM …\n its row-major bytes; types by their numbers in pjrt_c_api.h

An error is a line `no MESSAGE`.
"""

import os
import pickle
import sys

channel = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402

TYPES = {
    1: "bool", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "uint8", 7: "uint16", 8: "uint32", 9: "uint64",
    10: "float16", 11: "float32", 12: "float64", 13: "bfloat16", 14: "complex64", 16: "float8_e5m2",
    17: "float8_e4m3fn", 19: "float8_e5m2fnuz", 20: "float8_e4m3fnuz", 21: "int4", 22: "uint4",
    28: "float8_e8m0fnu",
}
DTYPES = {
    number: np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)
    for number, name in TYPES.items()
}
NUMBERS = {dtype: number for number, dtype in DTYPES.items()}
source = sys.stdin.buffer
programs = []


class Xla:
    """Programs by XLA's client of the CPU."""

    def __init__(self):
        import jax

        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_enable_x64", True)
        from jaxlib import xla_client

        self.jax, self.client = jax, xla_client
        self.device = jax.devices("cpu")[0]

    def compile(self, options, text):
        options = self.client.CompileOptions.ParseFromString(options)
        return self.device.client.compile_and_load(text, self.client.DeviceList((self.device,)), options)

    def run(self, program, inputs):
        given = [self.jax.device_put(value, self.device) for value in inputs]
        found = program.execute_sharded(given).disassemble_into_single_device_arrays()
        return [np.asarray(one[0]) for one in found]


class Interpreter:
    """Programs by StableHLO's reference interpreter, each run in a process of its own: the interpreter ends it where it meets what it does not know."""

    def __init__(self):
        from jaxlib.mlir import ir
        from jaxlib.mlir._mlir_libs import _jax_mlir_ext
        from jaxlib.mlir.dialects import stablehlo

        registry = ir.DialectRegistry()
        _jax_mlir_ext.register_dialects(registry)
        self.ir, self.stablehlo, self.context = ir, stablehlo, ir.Context()
        self.context.append_dialect_registry(registry)
        stablehlo.register_dialect(self.context)
        self.context.load_all_available_dialects()

    def compile(self, _, text):
        with self.context, self.ir.Location.unknown():
            module = self.ir.Module.parse(text)
            module.operation.verify()
        return module

    def attribute(self, value):
        # Integers with a sign are those of StableHLO without one.
        return self.ir.DenseElementsAttr.get(value, signless=value.dtype.kind != "u")

    def evaluate(self, module, inputs):
        with self.context:
            given = [self.attribute(np.array(value, order="C")) for value in inputs]
            return [np.array(one) for one in self.stablehlo.eval_module(module, given)]

    def run(self, module, inputs):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            try:
                found = self.evaluate(module, inputs)
            except BaseException as error:
                found = error
            with os.fdopen(write, "wb") as pipe:
                pickle.dump(found, pipe)
            os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            written = pipe.read()
        os.waitpid(child, 0)
        found = pickle.loads(written) if written else RuntimeError("the reference interpreter ended")
        if isinstance(found, BaseException):
            raise found
        return found


engine = Interpreter() if os.environ.get("RLX_TEST_PJRT_ENGINE") == "interpreter" else Xla()


def tensor():
    number, size, *dims = (int(word) for word in source.readline().split())
    return np.frombuffer(source.read(size), DTYPES[number]).reshape(dims)


def answer(command):
    if command[0] == "compile":
        options = source.read(int(command[1]))
        # Donation is the plugin's affair.
        text = source.read(int(command[2])).decode().replace("tf.aliasing_output", "rlx.aliasing_output")
        programs.append(engine.compile(options, text))
        return [f"{len(programs) - 1}\n".encode()]
    given = [tensor() for _ in range(int(command[2]))]
    found = engine.run(programs[int(command[1])], given)
    parts = [f"{len(found)}\n".encode()]
    for value in found:
        data = np.ascontiguousarray(value).tobytes()
        dims = " ".join(str(n) for n in value.shape)
        parts += [f"{NUMBERS[value.dtype]} {len(data)} {dims}\n".encode(), data]
    return parts


for line in iter(source.readline, b""):
    try:
        parts = answer(line.decode().split())
    except Exception as error:  # What the engine says of the program.
        parts = [("no " + " ".join(str(error).split())[:800] + "\n").encode()]
    channel.write(b"".join(parts))
    channel.flush()
