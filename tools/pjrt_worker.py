"""Compiles and runs StableHLO by XLA on the CPU, for the PJRT plugin of the tests (`tests/fake-pjrt`), over standard input and output.

    compile BYTES BYTES\n OPTIONS TEXT → NUMBER; the options are a CompileOptionsProto
    run NUMBER COUNT\n tensors         → COUNT\n tensors
    a tensor: TYPE BYTES DIM DIM …\n its row-major bytes; types by their numbers in pjrt_c_api.h

An error is a line `no MESSAGE`.
"""

import os
import sys

channel = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)

import jax  # noqa: E402
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)
from jaxlib import xla_client as xc  # noqa: E402

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
device = jax.devices("cpu")[0]
programs = []


def tensor():
    number, size, *dims = (int(word) for word in source.readline().split())
    return np.frombuffer(source.read(size), DTYPES[number]).reshape(dims)


def answer(command):
    if command[0] == "compile":
        options = xc.CompileOptions.ParseFromString(source.read(int(command[1])))
        # Donation is the plugin's affair.
        text = source.read(int(command[2])).decode().replace("tf.aliasing_output", "rlx.aliasing_output")
        programs.append(device.client.compile_and_load(text, xc.DeviceList((device,)), options))
        return [f"{len(programs) - 1}\n".encode()]
    given = [jax.device_put(tensor(), device) for _ in range(int(command[2]))]
    found = programs[int(command[1])].execute_sharded(given).disassemble_into_single_device_arrays()
    parts = [f"{len(found)}\n".encode()]
    for one in found:
        value = np.asarray(one[0])
        data = np.ascontiguousarray(value).tobytes()
        dims = " ".join(str(n) for n in value.shape)
        parts += [f"{NUMBERS[value.dtype]} {len(data)} {dims}\n".encode(), data]
    return parts


for line in iter(source.readline, b""):
    try:
        parts = answer(line.decode().split())
    except Exception as error:  # What XLA says of the program.
        parts = [("no " + " ".join(str(error).split())[:800] + "\n").encode()]
    channel.write(b"".join(parts))
    channel.flush()
