"""Time single ops beside ONNX Runtime and beside a copy of as many bytes, in one interleaved run.

    python bench/ops.py --threads 1,2
    python bench/ops.py cumsum transpose --sizes 16 --markdown target/ops.md

Every op is an ONNX model of one node, over tensors of about `--sizes` MB. *Copy* is how fast the bytes that the op must read and
write could be copied (memcpy over as many, by as many threads, timed in the same rounds), as a share of what the op took: 1 is
a copy's speed. *Peer* is ONNX Runtime's time over RLX's: above 1, RLX is faster. Minima of all rounds are compared. How the rounds
alternate, and what is installed first, is described in bench/peers.

NumPy asks for huge pages for its large arrays, which are ONNX Runtime's operands here; so the C library is told to do so for RLX.
"""

import argparse
import json
import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import environment  # noqa: E402  (from bench/peers, see above)

if __name__ == "__main__":
    environment.use()

import machine  # noqa: E402  (the environment has what these import)
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from models import Job  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402
from peer import KINDS, Failed, Peer, difference  # noqa: E402

RANDOM = np.random.default_rng(7)
F32, U8 = np.float32, np.uint8


class Op:
    """A node, its inputs by name, and what is constant among them."""

    def __init__(self, name, node, inputs, constants=None, outputs=1, **attributes):
        self.name, self.node, self.inputs = name, node, inputs
        self.constants, self.outputs, self.attributes = constants or {}, outputs, attributes

    def model(self, path):
        names = [*self.inputs, *self.constants]
        names.sort(key=lambda n: n.split("_")[0])
        names = [n.split("_", 1)[1] for n in names]
        results = [f"y{i}" for i in range(self.outputs)]
        node = helper.make_node(self.node, names, results, **self.attributes)
        graph = helper.make_graph(
            [node], "op",
            [helper.make_tensor_value_info(n.split("_", 1)[1], onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
             for n, a in self.inputs.items()],
            [helper.make_empty_tensor_value_info(r) for r in results],
            [numpy_helper.from_array(a, n.split("_", 1)[1]) for n, a in self.constants.items()],
        )  # fmt: skip
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        made = onnx.shape_inference.infer_shapes(made, data_prop=True)
        onnx.save(made, path)


def data(shape, dtype=F32):
    if np.issubdtype(dtype, np.floating):
        return RANDOM.standard_normal(shape).astype(dtype)
    return RANDOM.integers(0, 100, shape).astype(dtype)


def one(name, node, x, *constants, outputs=1, **attributes):
    """An op on one tensor, with constants behind it."""
    fixed = {f"{i + 1}_c{i}": c for i, c in enumerate(constants)}
    return Op(name, node, {"0_x": x}, fixed, outputs, **attributes)


def ops(mb):
    """The table: each op on about `mb` MB of f32."""
    n = int(mb * 2**18)  # elements
    side = int(n**0.5) // 16 * 16
    image = max(int((n / 64) ** 0.5) // 8 * 8, 8)  # of 64 channels
    i64 = lambda *v: np.array(v, np.int64)  # noqa: E731
    square, planes = data((side, side)), data((1, 64, image, image))
    heads = data((1, n // 768, 12, 64))
    thin = data((n // 256, 256))
    yield one("transpose 10", "Transpose", square, perm=[1, 0])
    yield one("transpose 0213", "Transpose", heads, perm=[0, 2, 1, 3])
    yield one("transpose NCHW to NHWC", "Transpose", planes, perm=[0, 2, 3, 1])
    yield one("transpose NHWC to NCHW", "Transpose", data((1, image, image, 64)), perm=[0, 3, 1, 2])
    yield one("transpose 3 channels last to first", "Transpose", data((1, n // 768, 256, 3)), perm=[0, 3, 1, 2])
    yield one("transpose 10 u8", "Transpose", data((2 * side, 2 * side), U8), perm=[1, 0])
    yield one("slice every other", "Slice", square, i64(0), i64(side), i64(1), i64(2))
    yield one("slice rows", "Slice", square, i64(side // 8), i64(side * 7 // 8), i64(1), i64(1))
    yield one("concat last axis", "Concat", square, data((side, side)), axis=1)
    yield one("expand rows", "Expand", data((side, 1, 64)), i64(side, max(side // 64, 1), 64))
    yield one("pad images", "Pad", planes, i64(0, 0, 1, 1, 0, 0, 1, 1))
    yield one("tile last axis", "Tile", data((side, side // 4)), i64(1, 4))
    for axis in (0, 1):
        yield one(f"cumsum axis {axis}", "CumSum", square, np.array(axis, np.int64))
        yield one(f"argmax axis {axis}", "ArgMax", square, axis=axis, keepdims=0)
        yield one(f"reduce sum axis {axis}", "ReduceSum", square, i64(axis), keepdims=0)
        yield one(f"reduce max axis {axis}", "ReduceMax", square, i64(axis), keepdims=0)
        yield one(f"softmax axis {axis}", "Softmax", square, axis=axis)
        half = RANDOM.integers(0, side, side // 2).astype(np.int64)
        yield Op(f"gather axis {axis}", "Gather", {"0_x": square, "1_i": half}, axis=axis)
    yield one("argmax middle axis", "ArgMax", planes, axis=1, keepdims=0)
    yield one("argmax axis 0 u8", "ArgMax", data((2 * side, 2 * side), U8), axis=0, keepdims=0)
    yield one("reduce mean images", "ReduceMean", planes, i64(2, 3), keepdims=0)
    yield one("gather rows of 256", "Gather", thin, RANDOM.integers(0, len(thin), len(thin)).astype(np.int64))
    positions = RANDOM.integers(0, side, (side, side)).astype(np.int64)
    yield Op("gather elements", "GatherElements", {"0_x": square, "1_i": positions}, axis=1)
    yield one("top 5 of 256", "TopK", thin, i64(5), outputs=2, axis=-1)
    yield one("top 50 of a row", "TopK", data((max(n // 2**15, 1), 2**15)), i64(50), outputs=2, axis=-1)
    yield one("top 5, axis 0", "TopK", square, i64(5), outputs=2, axis=0)
    classes = RANDOM.integers(0, 1000, n // 1000).astype(np.int64)
    off_on = np.array([0, 1], F32)
    for axis in (-1, 0):
        fixed = {"1_depth": np.array(1000, np.int64), "2_values": off_on}
        yield Op(f"one-hot axis {axis}", "OneHot", {"0_i": classes}, fixed, axis=axis)
    small = data((1, 64, image // 2, image // 2))
    doubled, none = np.array([1, 1, 2, 2], F32), np.array([], F32)
    for mode in ("nearest", "linear"):
        how = {} if mode == "linear" else {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        yield one(f"resize {mode} ×2", "Resize", small, none, doubled, mode=mode, **how)
    yield one("layer norm", "LayerNormalization", thin, np.ones(256, F32), np.zeros(256, F32), axis=-1)
    yield one("LRN", "LRN", planes, size=5)
    yield one("max pool 2", "MaxPool", planes, kernel_shape=[2, 2], strides=[2, 2])
    taps = lambda *shape: data(shape) / np.float32(np.prod(shape[1:]) ** 0.5)  # noqa: E731
    yield one("depthwise conv 3×3", "Conv", planes, taps(64, 1, 3, 3), kernel_shape=[3, 3], pads=[1] * 4, group=64)
    quarter = data((1, 64, image // 4, image // 4))
    for k in (2, 4):
        how = {"kernel_shape": [k, k], "strides": [2, 2], "pads": [k // 2 - 1] * 4}
        yield one(f"transposed conv {k}×{k} by 2", "ConvTranspose", quarter, taps(64, 32, k, k), **how)
    how["group"] = 64
    yield one("depthwise transposed conv 4×4 by 2", "ConvTranspose", quarter, taps(64, 1, 4, 4), **how)


class Copy:
    """memcpy over as many bytes as an op reads and writes, on several threads."""

    def __init__(self, moved, threads, seconds):
        # A copy reads as many as it writes.
        words = max(moved // 2 // 4 // threads, 1)
        self.pairs = [(np.zeros(words, F32), np.ones(words, F32)) for _ in range(threads)]
        self.seconds = seconds

    def round(self):
        best, end = float("inf"), time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            best = min(best, self.once())
        return best

    def once(self):
        if len(self.pairs) == 1:
            start = time.perf_counter()
            np.copyto(*self.pairs[0])
            return time.perf_counter() - start
        barrier, taken = threading.Barrier(len(self.pairs)), []

        def part(pair):
            barrier.wait()
            start = time.perf_counter()
            np.copyto(*pair)
            taken.append(time.perf_counter() - start)

        threads = [threading.Thread(target=part, args=(pair,)) for pair in self.pairs]
        [t.start() for t in threads]
        [t.join() for t in threads]
        return max(taken)


def measure(op, mb, threads, args):
    folder = args.folder
    model, inputs = folder / "op.onnx", folder / "op.npz"
    op.model(model)
    np.savez(inputs, **{n.split("_", 1)[1]: a for n, a in op.inputs.items()})
    job = Job(op.name, model, {}, inputs)
    kinds = {kind.name: kind for kind in KINDS}
    rlx = Peer(kinds["rlx"], job, threads, "f32")
    try:
        peer = Peer(kinds["onnxruntime"], job, threads, "f32")
    except Failed:
        rlx.close()
        raise
    try:
        results = peer.outputs(folder)
        differs = difference(rlx.outputs(folder), results)
        moved = sum(a.nbytes for a in op.inputs.values()) + sum(r.nbytes for r in results)
        copy, copied = Copy(moved, threads, args.seconds / 4), []
        for _ in range(args.rounds):
            copied.append(copy.round() * 1e3)
            for side in (rlx, peer):
                time.sleep(0.02)  # let the other's threads stop spinning
                side.round(args.seconds)
    finally:
        rlx.close()
        peer.close()
    ours, theirs, copied = rlx.figures()["min_ms"], peer.figures()["min_ms"], min(copied)
    return {
        "op": op.name, "mb": mb, "threads": threads, "moved_bytes": moved, "differs": differs,
        "rlx_ms": ours, "peer_ms": theirs, "copy_ms": copied, "of_copy": copied / ours, "of_peer": theirs / ours,
    }  # fmt: skip


def line(r):
    return (
        f"{r['op']:36} {r['mb']:4g} {r['threads']:3} {r['rlx_ms']:9.4g} {r['peer_ms']:9.4g} {r['copy_ms']:9.4g} "
        f"{r['of_copy']:6.2f} {r['of_peer']:6.2f} {r['differs']:8.1e}"
    )


def markdown(rows):
    """A line for each op and size: milliseconds, and both ratios, for each number of threads."""
    threads = sorted({r["threads"] for r in rows})
    heads = " | ".join(f"{n} thread{'s' * (n > 1)}: RLX | of a copy | of ONNX Runtime" for n in threads)
    lines = [f"| op | MB | {heads} |", "|---" * (2 + 3 * len(threads)) + "|"]
    for op, mb in dict.fromkeys((r["op"], r["mb"]) for r in rows):
        mine = {r["threads"]: r for r in rows if (r["op"], r["mb"]) == (op, mb)}
        cells = []
        for n in threads:
            r = mine.get(n)
            cells += [f"{r['rlx_ms']:.3g}", f"{r['of_copy']:.2f}", f"{r['of_peer']:.2f}"] if r else ["–"] * 3
        lines.append(f"| {op} | {mb:g} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="*", help="measure the ops whose names contain one of these words")
    parser.add_argument("--sizes", default="1,16", help="MB of f32, as 1,16,64 (default 1,16)")
    parser.add_argument("--threads", default="1", help="one or more counts, as 1,2 (default 1)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds for each side (default 3)")
    parser.add_argument("--seconds", type=float, default=0.2, help="length of a round (default 0.2)")
    parser.add_argument("--folder", type=Path, default=environment.FOLDER / "ops", help="for models and inputs")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--markdown", type=Path, help="write a table to this file")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
    rows = []
    print(f"{'op':36} {'MB':>4} {'thr':>3} {'rlx ms':>9} {'ORT ms':>9} {'copy ms':>9} {'copy':>6} {'peer':>6} differs")
    for mb in map(float, args.sizes.split(",")):
        for op in ops(mb):
            if args.only and not any(word in op.name for word in args.only):
                continue
            for threads in map(int, args.threads.split(",")):
                try:
                    rows.append(measure(op, mb, threads, args))
                    print(line(rows[-1]), flush=True)
                except Failed as why:
                    print(f"{op.name:36} {mb:4g} {threads:3} not compared: {why}", flush=True)
    if args.markdown:
        args.markdown.write_text(markdown(rows))
    if args.json:
        args.json.write_text(json.dumps({"machine": machine.described(), "results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
