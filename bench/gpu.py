"""Times RLX on an NVIDIA GPU beside PyTorch (eager and compiled), Triton and ONNX Runtime: one interleaved run, in bf16, with the goals beside.

    cargo build --release --manifest-path bench/peers/workers/Cargo.toml --target-dir target/peers/workers --features cuda --bin device
    python bench/gpu.py --seconds 480 --markdown target/gpu.md --json target/gpu.json
    python bench/gpu.py --rows products,exact          # some of the groups
    python bench/gpu.py --device cpu                   # tiny sizes on the CPU: shows that the program works, no speed

It needs NumPy and onnx, and installs nothing: a peer that is not there is named as absent, with the reason. Each peer has a process (for models one each), which
compiles first; then they take turns, round by round, beginning with another one each time. Inputs are on the device before anything is timed; RLX is timed with
inputs that are copied from the host in each run, too. `RLX, own` is RLX without a vendor's library (`--numerics strict`).

Matmuls and attentions are single kernels: of peers the shortest of ten in a row, of RLX the shortest step of a model, with its launch. What the machine reaches, a copy and f32
multiply-adds alone, is measured in the same rounds as what is compared with it. Decoders have random weights; of 7 B so many layers as `--layers` says. ONNX Runtime runs models in
f16. `--peak` is the program that compares matmuls through Vulkan with shaders of arithmetic alone (`cargo build --release -p rlx-wgpu --example bench_peak`).

Files are written again after each group, so that what was measured is kept if time runs out.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench/devices"))

import groups  # noqa: E402  (from bench/devices, see above)
import report  # noqa: E402
import rows  # noqa: E402
from timers import Failed  # noqa: E402

# Seconds of a turn of a model, and of a kernel.
TURN, KERNEL = 0.2, 0.01
# Seconds that are kept for each group behind, rather than spent on another round.
KEPT = 30
PEAK_GROUP = "vulkan"
KEYS = ("products", "attention", "exact", "rows", "models", "llama", PEAK_GROUP)


class Clock:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return self.end - time.monotonic()


def closed(timer):
    """Ends a process, at work or not."""
    timer.process.kill()
    timer.close()


def ready(timers, found, clock):
    """Those that are ready; the others are absent."""
    able = []
    for timer in timers:
        try:
            timer.ready(clock.left())
        except Failed as why:
            drop(timer, found, str(why))
            continue
        for column, of in timer.absent.items():
            found.absent.setdefault(column, {}).update(of)
        able.append(timer)
    return able


def drop(timer, found, why):
    for column in timer.columns:
        found.miss(column, timer.rows, why)
    closed(timer)


def rounds(timers, found, args, clock, kept):
    """Turns, until there were enough or time is short; the first round is whole."""
    spent = 0.0
    for number in range(args.rounds):
        if number and clock.left() - kept < 1.2 * spent:
            break
        start, first = time.monotonic(), number % max(len(timers), 1)
        for timer in timers[first:] + timers[:first]:
            if timer.process.poll() is None:
                try:
                    found.add(timer.turn(KERNEL if found.group.kernels else TURN))
                except Failed as why:
                    drop(timer, found, str(why))
        spent = time.monotonic() - start
        found.rounds = number + 1


def missed(found, why):
    """A group of which nothing could be timed."""
    for column in found.group.columns:
        found.miss(column, [row.title for row in found.group.rows], why)
    return found


def measured(group, limits, args, clock, kept):
    """All of one group."""
    found, started = report.Found(group), []
    if clock.left() < 1:
        return missed(found, "no time was left")
    try:
        started.extend(group.open(found, args))
    except Exception as why:  # a full disk, say: what the other groups measure is kept
        for timer in started:
            closed(timer)
        return missed(found, f"{type(why).__name__}: {why}")
    able = ready(started, found, clock)
    shared = [limits] if group.limits and limits else []
    try:
        rounds([*able, *shared], found, args, clock, kept)
        found.about = {name: version for timer in [*able, *shared] for name, version in timer.about.items()}
    finally:
        for timer in able:
            closed(timer)
    return found


def vulkan(args, clock):
    """The table of `bench_peak`, a program that measures both sides itself."""
    goals = f"goal {report.VULKAN:.2f} of a shader of matrix products alone, f32 {report.EXACT:.2f} of multiply-adds alone"
    lines = [f"## Matmuls through Vulkan ({goals})", ""]
    if args.peak is None:
        return [*lines, "- absent: `--peak` names no program", ""]
    try:
        done = subprocess.run([args.peak], capture_output=True, text=True, timeout=max(clock.left(), 1))
    except (OSError, subprocess.TimeoutExpired) as why:
        return [*lines, f"- absent: {why}", ""]
    if done.returncode:
        return [*lines, f"- absent: {done.stderr.strip() or done.stdout.strip()}", ""]
    return [*lines, *done.stdout.splitlines(), ""]


def described(args, founds):
    about = {name: version for found in founds for name, version in getattr(found, "about", {}).items()}
    peers = ", ".join(f"{name} {version}" for name, version in about.items())
    if args.device == "cpu":
        return f"On the CPU, tiny sizes: this shows that the program works, and no speed. {peers}."
    smi = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        card = subprocess.run(smi, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        card = "a GPU that nvidia-smi does not describe"
    return f"{card}; {peers}. {time.strftime('%Y-%m-%d', time.gmtime())}."


def written(args, founds, tail):
    lines = [described(args, founds), ""]
    for found in founds:
        lines += found.group.lines(found)
    text = "\n".join([*lines, *tail])
    if args.markdown:
        args.markdown.parent.mkdir(parents=True, exist_ok=True)
        args.markdown.write_text(text + "\n")
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(as_json(args, founds, tail), indent=1, ensure_ascii=False) + "\n")
    return text


def as_json(args, founds, tail):
    made = []
    for found in founds:
        times = {}
        for (row, column), ms in found.times.items():
            times.setdefault(row, {})[column] = ms
        reached = report.reach(found, found.group.goals)
        of = {"group": found.group.key, "rounds": getattr(found, "rounds", 0), "ms": times, "goals": reached}
        made.append({**of, "decoding": report.decoding(found), "limits_ms": found.limits, "absent": found.absent})
    return {"machine": described(args, founds), "device": args.device, "groups": made, "vulkan": tail}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    worker = ROOT / "target/peers/workers/release/device"
    parser.add_argument("--worker", type=Path, default=worker, help="RLX's process, built as above")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: all by tiny sizes")
    parser.add_argument("--rows", default=",".join(KEYS), help=f"which groups (default {','.join(KEYS)})")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each peer, if there is time (default 5)")
    parser.add_argument("--seconds", type=float, default=480, help="how long it may take in all (default 480)")
    parser.add_argument("--layers", type=int, default=rows.SEVEN.layers, help="of the decoder of 7 B's shape")
    parser.add_argument("--peak", type=Path, help="the program bench_peak, for Vulkan")
    parser.add_argument("--folder", type=Path, help="where models are made (target/gpu, target/gpu-tiny)")
    parser.add_argument("--markdown", type=Path, help="write the tables to this file")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    args = parser.parse_args()
    args.rows = [key for key in args.rows.split(",") if key]
    for key in args.rows:
        if key not in KEYS:
            parser.error(f"no group `{key}`: {', '.join(KEYS)}")
    if not args.worker.is_file():
        parser.error(f"no program {args.worker}: it is built as `python bench/gpu.py --help` says")
    args.folder = args.folder or ROOT / ("target/gpu" if args.device == "cuda" else "target/gpu-tiny")
    return args


def main():
    args = arguments()
    clock = Clock(args.seconds)
    args.folder.mkdir(parents=True, exist_ok=True)
    sizes = rows.full(args.layers) if args.device == "cuda" else rows.tiny()
    limits, chain_operations = groups.open_limits(args, sizes)
    chosen = [group for group in groups.made(sizes, chain_operations, args.device == "cuda") if group.key in args.rows]
    founds, tail = [], []
    try:
        missing = groups.opened_limits(limits, clock)
        for i, group in enumerate(chosen):
            found = measured(group, None if missing else limits, args, clock, KEPT * (len(chosen) - 1 - i))
            if missing and group.limits:
                found.miss("copy, multiply-adds", [row.title for row in group.rows], missing)
            elif group.limits:
                found.absent.update(limits.absent)
            founds.append(found)
            written(args, founds, tail)
            print("\n".join(group.lines(found)), flush=True)
    finally:
        closed(limits)
    if PEAK_GROUP in args.rows:
        tail = vulkan(args, clock)
        print("\n".join(tail), flush=True)
    written(args, founds, tail)


if __name__ == "__main__":
    main()
