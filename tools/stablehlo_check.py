"""StableHLO cases verified and executed by jaxlib.

Each file of a folder (written by the tests of rlx-pjrt) has inputs, what the oracle gives for them, and a module's text. The text is parsed and
verified, then run by XLA on the CPU and, with --interpreter, by StableHLO's reference interpreter, and compared.

    python tools/stablehlo_check.py FOLDER [--interpreter]

A worker process does the work, because the interpreter ends the process where it meets something it does not know; the case it
was at has then failed. Prints a line `@counts passed=N failed=N`, and one for each case that failed.
"""

import ast
import os
import subprocess
import sys

NAMES = {
    "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64", "bool": "bool", "c64": "complex64",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32",
    "u64": "uint64", "f8e4m3fn": "float8_e4m3fn", "f8e4m3fnuz": "float8_e4m3fnuz", "f8e5m2": "float8_e5m2",
    "f8e5m2fnuz": "float8_e5m2fnuz", "f8e8m0": "float8_e8m0fnu", "i4": "int4", "u4": "uint4",
}


def array(np, dtypes, dtype, dims, data):
    """The array of some bytes; of packed elements two are in a byte."""
    raw = np.frombuffer(bytes.fromhex(data), np.uint8)
    if dtype in ("i4", "u4"):
        count = int(np.prod(dims))
        halves = np.stack([raw & 15, raw >> 4], -1).reshape(-1)[:count].astype(np.int8)
        if dtype == "i4":
            halves = np.where(halves > 7, halves - 16, halves)
        return halves.astype(dtypes(NAMES[dtype])).reshape(dims)
    return raw.view(dtypes(NAMES[dtype])).reshape(dims)


def read(np, dtypes, path):
    inputs, outputs, faults = [], [], False
    with open(path) as file:
        for line in file:
            kind, _, rest = line.rstrip("\n").partition(" ")
            if kind == "text":
                return inputs, outputs, faults, file.read()
            if kind == "faults":
                faults = rest == "1"
                continue
            limit = 0.0
            if kind == "output":
                limit, _, rest = rest.partition(" ")
            dtype, _, rest = rest.partition(" ")
            dims, _, data = rest.rpartition(" ")
            value = array(np, dtypes, dtype, ast.literal_eval(dims), data)
            (inputs if kind == "input" else outputs).append((value, float(limit)))
    raise ValueError("no text")


def differs(np, want, got, limit):
    if want.shape != got.shape:
        return f"shape {got.shape} where {want.shape} is right"
    if want.dtype.kind in "biu" or "int4" in str(want.dtype):
        bad = want != got
    else:
        kind = np.complex128 if want.dtype.kind == "c" else np.float64
        a, b = want.astype(kind), got.astype(kind)
        finite = np.abs(a)[np.isfinite(a)]
        largest = max(1.0, finite.max()) if finite.size else 1.0
        with np.errstate(all="ignore"):
            near = np.abs(a - b) <= limit * largest + limit * np.abs(a)
        bad = ~((a == b) | near | (np.isnan(a) & np.isnan(b)))
    if not bad.any():
        return None
    at = tuple(int(i[0]) for i in np.nonzero(bad)) if bad.ndim else ()
    return f"{int(bad.sum())} of {bad.size} differ, at {at}: {got[at]} where {want[at]} is right"


def worker(interpreter):
    import ml_dtypes
    import numpy as np

    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    from jaxlib import xla_client as xc
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import stablehlo

    def dtypes(name):
        return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)

    device = jax.devices("cpu")[0]
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    stablehlo.register_dialect(context)
    context.load_all_available_dialects()
    options = xc.CompileOptions()

    def xla(text, inputs):
        program = device.client.compile_and_load(text, xc.DeviceList((device,)), options)
        given = [jax.device_put(value, device) for value, _ in inputs]
        found = program.execute_sharded(given).disassemble_into_single_device_arrays()
        return [np.asarray(one[0]) for one in found]

    def check(path):
        inputs, outputs, faults, text = read(np, dtypes, path)
        with context, ir.Location.unknown():
            module = ir.Module.parse(text)
            module.operation.verify()
        runs = [("xla", lambda: xla(text, inputs))]
        if interpreter:

            def attribute(value):
                # Integers with a sign are those of StableHLO without one.
                signless = value.dtype.kind != "u"
                return ir.DenseElementsAttr.get(np.array(value, order="C"), signless=signless)

            def reference():
                with context:
                    given = [attribute(value) for value, _ in inputs]
                    return [np.array(one) for one in stablehlo.eval_module(module, given)]

            runs.append(("interpreter", reference))
        for name, run in runs:
            found = run()
            if faults and int(found.pop()[0]) != 0:
                return f"{name}: an index is said to be out of range"
            for i, ((want, limit), got) in enumerate(zip(outputs, found, strict=True)):
                what = differs(np, want, got, limit)
                if what:
                    return f"{name}: output {i}: {what}"
        return None

    for line in sys.stdin:
        try:
            what = check(line.strip())
        except Exception as error:  # What jaxlib says of the text.
            what = " ".join(str(error).split())[:600]
        print("ok" if what is None else f"no {what}", flush=True)


def main(folder, interpreter):
    paths = sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".case"))
    command = [sys.executable, __file__, "--worker"] + (["--interpreter"] if interpreter else [])
    passed, failed, process = 0, 0, None
    for path in paths:
        if process is None:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        process.stdin.write(path + "\n")
        process.stdin.flush()
        answer = process.stdout.readline().strip()
        if answer == "ok":
            passed += 1
            continue
        if not answer:
            process.wait()
            process, answer = None, "no the process ended"
        failed += 1
        print(f"{os.path.basename(path)}: {answer[3:]}")
    print(f"@counts passed={passed} failed={failed}")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    if "--worker" in sys.argv:
        worker("--interpreter" in sys.argv)
    else:
        folders = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
        sys.exit(main(folders[0], "--interpreter" in sys.argv))
