"""Time single ops beside ONNX Runtime and beside a copy of as many bytes, in one interleaved run.

    python bench/ops.py --threads 1,2
    python bench/ops.py cumsum transpose --sizes 16 --markdown target/ops.md

Every op of `ops_table.py` is an ONNX model of one node, over tensors of about `--sizes` MB. *Copy* is how fast the bytes that the op must read and
write could be copied (memcpy over as many, by as many threads, timed in the same rounds), as a share of what the op took: 1 is
a copy's speed. *Peer* is ONNX Runtime's time over RLX's: above 1, RLX is faster. Minima of all rounds are compared. How the rounds
alternate, and what is installed first, is described in bench/peers.

NumPy asks for huge pages for its large arrays, which are ONNX Runtime's operands here; so does RLX's worker for its inputs, and the C library is told to do so
for what ONNX Runtime allocates itself.
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
from models import Job  # noqa: E402
from ops_table import ops  # noqa: E402
from peer import KINDS, Failed, Peer, difference  # noqa: E402


class Copy:
    """memcpy over as many bytes as an op reads and writes, on several threads."""

    def __init__(self, moved, threads, seconds):
        # A copy reads as many as it writes.
        words = max(moved // 2 // 4 // threads, 1)
        self.pairs = [(np.zeros(words, np.float32), np.ones(words, np.float32)) for _ in range(threads)]
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
