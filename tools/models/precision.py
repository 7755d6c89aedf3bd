"""What short floats do to models: outputs under each precision and policy beside those of f32, also of the model quantised to 8 bits.

    # with the packages that `table.py` lists
    cargo build --release -p rlx
    python tools/models/precision.py shufflenet_v2_x0_5 swinv2 [--folder FOLDER]

Models are those of `table.py`, exported as there, by the first exporter that a word finds; ONNX Runtime's quantiser makes the QDQ one, calibrated on
sixteen random inputs. An error is relative to the largest magnitude of the output in f32; *top-1* is how many of the 64 random inputs keep their
class, and *at stake* the largest difference in f32 between the two best classes of those that do not, relative in the same way.
"""

import argparse
import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
from table import HERE, MODULES, ROOT, export, wanted

POLICIES = [
    ("--precision", "f16"), ("--precision", "bf16"), ("--policy", "auto-mixed-conservative"), ("--policy", "auto-mixed"),
    ("--policy", "auto-mixed-bf16"),
]  # fmt: skip
INPUTS, CALIBRATION = 64, 16


def inputs_of(folder, seed):
    """Random numbers in the shapes of the model's own inputs."""
    random = np.random.default_rng(seed)
    with np.load(folder / "inputs.npz") as arrays:
        return {name: random.standard_normal(arrays[name].shape).astype(arrays[name].dtype) for name in arrays.files}


def quantised(folder):
    """The model in 8 bits, as a file beside it."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Random(CalibrationDataReader):
        def __init__(self):
            self.left = iter([inputs_of(folder, 1000 + i) for i in range(CALIBRATION)])

        def get_next(self):
            return next(self.left, None)

    made, prepared = folder / "quantised.onnx", folder / "prepared.onnx"
    quant_pre_process(str(folder / "model.onnx"), str(prepared), skip_symbolic_shape=True)
    quantize_static(
        str(prepared), str(made), Random(), quant_format=QuantFormat.QDQ, per_channel=True,
        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
    )  # fmt: skip
    prepared.unlink()
    return made


def outputs(command, model, folder, how):
    """The first output for all inputs, one row for each."""
    rows = []
    for seed in range(INPUTS):
        given, found = folder / "given.npz", folder / "found.npz"
        np.savez(given, **inputs_of(folder, seed))
        subprocess.run([command, "run", model, "--inputs", given, "--outputs", found, *how], check=True, capture_output=True)
        with np.load(found) as arrays:
            rows.append(arrays[arrays.files[0]].astype(np.float64).reshape(-1))
    return np.stack(rows)


def by_pytorch(model, folder, dtype):
    """The same by PyTorch, with weights and values in the type."""
    import random

    import torch
    from export import SEED

    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    net = model.make().net.eval().to(dtype)
    rows = []
    for seed in range(INPUTS):
        given = [torch.from_numpy(a) for a in inputs_of(folder, seed).values()]
        with torch.no_grad():
            found = net(*(a.to(dtype) if a.is_floating_point() else a for a in given))
        rows.append((found[0] if isinstance(found, tuple) else found).double().numpy().reshape(-1))
    return np.stack(rows)


def line(name, how, want, got):
    largest = np.abs(want).max()
    error = np.abs(got - want).max() / largest
    best, second = np.sort(want, 1)[:, -1], np.sort(want, 1)[:, -2]
    differ = want.argmax(1) != got.argmax(1)
    at_stake = f"{((best - second)[differ] / largest).max():.1e}" if differ.any() else "–"
    spread = f"{len(set(got.argmax(1)))} and {len(set(want.argmax(1)))}"
    wrong = int((~np.isfinite(got)).sum())
    return f"| {name} | {how} | {wrong} | {error:.1e} | {(~differ).sum()} of {INPUTS} | {at_stake} | {spread} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="+", metavar="WORD")
    parser.add_argument("--folder", type=Path, default=ROOT / "target/models", help="where models are exported")
    parser.add_argument("--rlx", default=str(ROOT / "target/release/rlx"), help="the command")
    args = parser.parse_args()
    sys.path.insert(0, str(HERE))
    known = [line for name in MODULES for model in importlib.import_module(name).MODELS for line in model.lines()]
    print("| model | policy | not finite | error | top-1 | at stake | classes, and in f32 |\n|---|---|---|---|---|---|---|")
    for word in args.words:
        model, exporter = next(iter(wanted(known, [word])))
        folder = args.folder / f"{model.name}.{exporter}"
        if not (folder / "about.json").exists():
            export(model, exporter, folder)
        plain = outputs(args.rlx, folder / "model.onnx", folder, [])
        import torch

        for name, dtype in [("f16", torch.float16), ("bf16", torch.bfloat16)]:
            print(line(model.name, f"{name} by PyTorch", plain, by_pytorch(model, folder, dtype)), flush=True)
        for title, file in [(model.name, folder / "model.onnx"), (f"{model.name}, int8", quantised(folder))]:
            want = outputs(args.rlx, file, folder, [])
            if file.stem == "quantised":
                print(line(title, "f32, beside the model that is not quantised", plain, want), flush=True)
            for how in POLICIES:
                print(line(title, how[1], want, outputs(args.rlx, file, folder, how)), flush=True)


if __name__ == "__main__":
    main()
