"""Time RLX beside ONNX Runtime, OpenVINO, tract and rten in one interleaved run.

    python bench/peers mlp bert_dynamic:batch=1,seq=128 resnet50:batch=1,height=224,width=224 --threads 1,2
    python bench/peers path/to/model.onnx:batch=1 --precision f32,bf16 --rounds 10 --json target/peers.json
    python bench/peers @bench/models.txt --threads 1,2 --markdown target/models.md --chart target/models.svg

It needs Python 3.10 with pip, and Rust: the peers are installed and built into target/peers. A model is a name from models/cases.json or
nets.py, an op by its sizes (gemm_128x384x1536, conv_64x56x56_128_k3x3_s2) or a file; `+qdq`, `+qop`, `+int8`, `+w4`, `+w8`, `+w4a8` or `+w8a8` behind it
quantises it first, `:NAME=N,...` are the sizes of its dynamic dimensions, and `@FILE` stands for the models listed there, one to a line.

Each peer is a process that has the model loaded. They take turns, round by round, and the first round's first becomes the next one's last,
since a machine's speed drifts; minimum and median over all rounds are compared. All get the same inputs, sizes and threads, and their
outputs are compared with ONNX Runtime's. A ratio is the best peer's time over RLX's: above 1, RLX is faster.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import environment

if __name__ == "__main__":
    environment.use()

import chart  # noqa: E402  (the environment has what these import)
import machine  # noqa: E402
import report  # noqa: E402
from models import parse_model  # noqa: E402
from peer import KINDS, WRONG, Failed, Peer, Worker, difference  # noqa: E402

# Seconds between two turns, in which the threads of the one before stop spinning.
PAUSE = 0.05


def arguments():
    parser = argparse.ArgumentParser(
        prog="bench/peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        fromfile_prefix_chars="@",
    )  # fmt: skip
    names = [kind.name for kind in KINDS]
    parser.add_argument("models", nargs="+", metavar="MODEL", help="NAME_OR_FILE[+FORMAT][:DIM=N,...] or @FILE")
    parser.add_argument("--threads", default="1", help="one or more counts, as 1,2 (default 1)")
    parser.add_argument("--precision", default="f32", help="f32, bf16 or both, as f32,bf16 (default f32)")
    usual, others = (",".join(kind.name for kind in KINDS[1:] if kind.usual == is_usual) for is_usual in (True, False))
    parser.add_argument("--peers", default=usual, help=f"which to compare with (default {usual}; also: {others})")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (default 5)")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a turn (default 0.5)")
    parser.add_argument("--folder", type=Path, default=environment.FOLDER / "models", help="for models and inputs")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--markdown", type=Path, help="write the tables to this file")
    parser.add_argument("--chart", type=Path, help="write a chart of the ratios (SVG) to this file")
    parser.convert_arg_line_to_args = lambda line: [] if line.startswith("#") else line.split()
    args = parser.parse_args()
    args.peers = ["rlx", *(name for name in args.peers.split(",") if name)]
    for name in args.peers:
        if name not in names:
            parser.error(f"no peer `{name}`: {', '.join(names[1:])}")
    args.precision = args.precision.split(",")
    for precision in args.precision:
        if precision not in ("f32", "bf16"):
            parser.error(f"no precision `{precision}`: f32 or bf16")
    args.threads = [int(n) for n in args.threads.split(",")]
    return args


def cost(job):
    """Arithmetic and weights of one run, as RLX counts them."""
    sizes = [f"{name}={size}" for name, size in job.dims.items()]
    worker = Worker([environment.WORKERS / "cost", job.model, job.inputs, "1", "f32", *sizes], 1)
    try:
        return worker.answer()
    finally:
        worker.close()


def opened(job, threads, precision, args):
    """All peers that can load the model, and why the others cannot."""
    peers, failed = [], {}
    for kind in KINDS:
        if kind.name not in args.peers:
            continue
        try:
            peers.append(Peer(kind, job, threads, precision))
        except Failed as why:
            failed[kind.name] = str(why)
    return peers, failed


def each(peers, failed, act, first=0):
    """What `act` gives for each peer, beginning with one of them. Who fails is out, and `failed` says why."""
    made = {}
    for peer in peers[first:] + peers[:first]:
        try:
            made[peer.name] = act(peer)
        except Failed as why:
            failed[peer.name] = str(why)
            peers.remove(peer)
            peer.close()
    return made


def differences(peers, failed, folder):
    """Of each peer's outputs from those of the first that is not RLX, else from RLX's."""
    made = each(peers, failed, lambda peer: peer.outputs(folder))
    reference = next((made[name] for name in made if name != "rlx"), made.get("rlx"))
    return each(peers, failed, lambda peer: difference(made[peer.name], reference))


def turn(peer, seconds):
    time.sleep(PAUSE)
    peer.round(seconds)


def compare(job, threads, precision, args):
    """All rounds of one model by so many threads."""
    # From the second peer on, files come from the system's cache: let them for the first, too.
    for file in job.model.parent.glob(f"{job.model.stem}.onnx*"):
        file.read_bytes()
    spent = cost(job)
    peers, failed = opened(job, threads, precision, args)
    limits = machine.Machine(threads)
    try:
        for number in range(args.rounds):
            first = number % max(len(peers), 1)
            each(peers, failed, lambda peer: turn(peer, args.seconds), first)
            limits.round(args.seconds)
        differs = differences(peers, failed, args.folder)
    finally:
        for worker in (*peers, limits):
            worker.close()
    figures = {peer.name: peer.figures() | {"differs": differs[peer.name]} for peer in peers}
    row = {
        "model": job.label, "dims": job.dims, "threads": threads, "precision": precision, **spent,
        "limits": limits.best, "peers": figures, "failed": failed,
    }  # fmt: skip
    return row | report.derived(row, WRONG)


def main():
    args = arguments()
    args.folder.mkdir(parents=True, exist_ok=True)
    described, rows, bad = machine.described(), [], False
    print(report.heading(described))
    for text in args.models:
        job = parse_model(text, args.folder)
        for precision in args.precision:
            for threads in args.threads:
                try:
                    row = compare(job, threads, precision, args)
                except Failed as why:
                    print(f"{job.label}: {why}", flush=True)
                    bad = True
                    continue
                rows.append(row)
                bad |= "rlx" not in row["peers"] or row["peers"]["rlx"]["differs"] > WRONG
                print(report.lines(row), flush=True)
    print(report.summary(rows))
    for path, write in ((args.json, as_json), (args.markdown, report.markdown), (args.chart, chart.svg)):
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(write(described, rows))
    # RLX has to run every model, and right.
    sys.exit(bad)


def as_json(described, rows):
    return json.dumps({"machine": described, "results": rows}, indent=1) + "\n"


if __name__ == "__main__":
    main()
