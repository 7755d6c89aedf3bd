"""Time `rlx bench` beside ONNX Runtime in one interleaved run, and print the ratios.

    pip install numpy onnx onnxruntime
    cargo build --release -p rlx
    python bench/compare.py mlp bert_dynamic:batch=1,seq=128 minilm:batch=1,seq=16 --threads 1,2
    python bench/compare.py path/to/model.onnx:batch=1 --rounds 10 --json target/compare.json
    python bench/compare.py @bench/models.txt --threads 1,2 --rounds 3 --seconds 0.5 --markdown target/zoo.md

A model is a name from models/cases.json or a file; `+qdq`, `+qop` or `+int8` behind it quantises it (quantised.py), and
`@FILE` stands for the models listed there, one to a line. Rounds alternate between the two, and so does
who goes first, since a machine's speed drifts; minimum and median over all rounds are compared. A ratio
below 1 means that rlx is faster. Both get the same inputs and threads, and their outputs are compared.

ONNX Runtime is called from Python with bound inputs and outputs, which adds about a microsecond to each
of its runs: do not read much into ratios of models that take less than some ten microseconds.

`--cpu` is for a machine that others use, and for one thread: the mean processor time of a round's runs (for rlx without what a process takes
that runs the model once) stands in for the shortest run where it is less.
"""

import argparse
import ast
import json
import operator
import platform
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
WORKER = Path(__file__).resolve().with_name("ort_worker.py")
sys.path.insert(0, str(ROOT / "models"))

import weights  # noqa: E402  (from models/, see above)


class Failed(Exception):
    """One side cannot run the model; the message says why."""


@dataclass
class Job:
    """A model file, the sizes of its dynamic dimensions, and the inputs both sides get."""

    label: str
    model: Path
    dims: dict
    inputs: Path


def parse_model(text, folder):
    """`NAME_OR_FILE[:DIM=N,...]` to a Job; a name's weights are made and its inputs written."""
    name, _, rest = text.partition(":")
    pairs = [pair.partition("=") for pair in rest.split(",") if pair]
    if not all(size.isdigit() for _, _, size in pairs):
        sys.exit(f"`{text}`: sizes are written as {name}:NAME=N,...")
    dims = {dim: int(size) for dim, _, size in pairs}
    name, _, how = name.partition("+")
    known = weights.cases()
    if name in known:
        case = known[name]
        symbols = {d for i in case["inputs"] for d in i["shape"] if isinstance(d, str)}
        dims = {d: n for d, n in case["goldens"][0]["dims"].items() if d in symbols} | dims
        model = made_before(case, folder) or weights.materialise(case, folder)
    elif Path(name).is_file():
        model = Path(name)
    else:
        sys.exit(f"no model `{name}`: neither a file nor one of {', '.join(known)}")
    size = ",".join(f"{key}={value}" for key, value in dims.items())
    if how:
        import quantised

        if how not in quantised.FORMATS:
            sys.exit(f"`{text}`: a model is quantised by +{', +'.join(quantised.FORMATS)}")
        model = quantised.quantised(model, how, make_inputs(model, dims), folder)
    inputs = folder / f"{model.stem}.{size or 'static'}.npz"
    np.savez(inputs, **make_inputs(model, dims))
    return Job(f"{model.stem} {size}".strip(), model, dims, inputs)


def made_before(case, folder):
    """The model, if it lies in `folder` already, as old as the one kept here at most and with all its weights."""
    graph, kept = folder / Path(case["onnx"]).name, ROOT / "models" / case["onnx"]
    if not graph.is_file() or graph.read_bytes() != kept.read_bytes():
        return None
    if case["weights"] is None:
        return graph
    plan = json.loads((ROOT / "models" / case["weights"]).read_text())
    data = folder / plan["file"]
    return graph if data.is_file() and data.stat().st_size == plan["bytes"] else None


OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}


def size_of(text, dims):
    """The size that a dimension's name stands for: a sum or product of names and numbers, as exporters write it."""

    def value(node):
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            sides = value(node.left), value(node.right)
            return None if None in sides else OPERATORS[type(node.op)](*sides)
        if isinstance(node, ast.Name):
            return dims.get(node.id)
        return node.value if isinstance(node, ast.Constant) else None

    if text in dims:
        return dims[text]
    try:
        return value(ast.parse(text, mode="eval").body)
    except SyntaxError:
        return None


def make_inputs(model, dims):
    """Normal floats and integers that are all 1: a valid token id, mask and type."""
    import onnx

    graph = onnx.load(model, load_external_data=False).graph
    initialisers = {i.name for i in graph.initializer}  # old files list them as inputs too
    random = np.random.default_rng(0)
    made = {}
    for value in graph.input:
        if value.name in initialisers:
            continue
        tensor = value.type.tensor_type
        shape = [size_of(d.dim_param, dims) if d.dim_param else d.dim_value for d in tensor.shape.dim]
        if None in shape:
            free = ", ".join(d.dim_param for d, n in zip(tensor.shape.dim, shape) if n is None)
            sys.exit(f"{model}: input `{value.name}` needs sizes for {free}, as {model}:NAME=N,...")
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if np.issubdtype(dtype, np.floating):
            made[value.name] = random.standard_normal(shape).astype(dtype)
        else:
            made[value.name] = np.ones(shape, dtype)
    return made


class OnnxRuntime:
    """One session in a process of its own, asked for a round at a time."""

    name = "onnxruntime"

    def __init__(self, job, threads, seconds):
        command = [sys.executable, WORKER, job.model, job.inputs, str(threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.seconds = seconds

    def ask(self, request):
        self.process.stdin.write(request + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise Failed("ONNX Runtime's process ended; its message is above")
        return json.loads(answer)

    def round(self):
        return self.ask(f"go {self.seconds}")

    def outputs(self, path):
        self.ask(f"save {path}")

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def children_seconds():
    """Processor time of the processes that were started and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Rlx:
    """A fresh `rlx bench` for every round, of as many runs as fill the time."""

    name = "rlx"

    def __init__(self, job, threads, binary, seconds, cpu):
        self.seconds, self.runs, self.cpu = seconds, 0, cpu
        dims = [part for d, n in job.dims.items() for part in ("--dim", f"{d}={n}")]
        self.binary = binary
        self.rest = [job.model, "--inputs", job.inputs, "--threads", str(threads), *dims]

    def call(self, verb, *more):
        done = subprocess.run([self.binary, verb, *self.rest, *more], capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"rlx {verb} failed ({done.returncode}): {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def bench(self, runs):
        return json.loads(self.call("bench", "--json", "--runs", str(runs), "--warmup", "3"))

    def round(self):
        if not self.runs:
            start = children_seconds()
            once = max(self.bench(3)["min_ms"], 1e-4)
            # Processor time is a difference, of which starting should be the smaller part.
            least = 1.5e3 * (children_seconds() - start) if self.cpu else 0.0
            self.runs = min(max(5, int(max(self.seconds * 1e3, least) / once)), 200_000)
        start = children_seconds()
        figures = self.bench(self.runs)
        middle = children_seconds()
        if self.cpu:
            self.bench(1)
            extra = (middle - start) - (children_seconds() - middle)
            sure = extra > (middle - start) / 2
            figures["cpu_ms"] = extra * 1e3 / max(self.runs - 1, 1) if sure else None
        return figures

    def outputs(self, path):
        self.call("run", "--outputs", path)

    def close(self):
        pass


def largest_difference(peers, folder):
    """Largest absolute difference of any output, over the largest magnitude of that output."""
    results = []
    for peer in peers:
        path = folder / f"outputs.{peer.name}.npz"
        peer.outputs(path)
        results.append(dict(np.load(path)))
    ours, theirs = results
    if ours.keys() != theirs.keys():
        raise Failed(f"outputs differ in name: {sorted(ours)} and {sorted(theirs)}")
    worst = 0.0
    for name, theirs in theirs.items():
        ours_here = ours[name]
        if ours_here.shape != theirs.shape:
            raise Failed(f"{name} is {list(ours_here.shape)}, of ONNX Runtime {list(theirs.shape)}")
        if not theirs.size:
            continue
        if not np.issubdtype(theirs.dtype, np.number):
            worst = max(worst, float((ours_here != theirs).any()))
            continue
        largest = max(float(np.abs(theirs).max()), 1e-30)
        worst = max(worst, float(np.abs(ours_here.astype(np.float64) - theirs).max()) / largest)
    return worst


def compare(job, threads, args):
    """All rounds of one model at one thread count."""
    peers = [Rlx(job, threads, args.rlx, args.seconds, args.cpu), OnnxRuntime(job, threads, args.seconds)]
    rounds = {peer.name: [] for peer in peers}
    try:
        difference = largest_difference(peers, args.folder)
        for number in range(args.rounds):
            for peer in peers if number % 2 == 0 else reversed(peers):
                time.sleep(0.05)  # let the other's threads stop spinning
                rounds[peer.name].append(peer.round())
    finally:
        for peer in peers:
            peer.close()
    sure = args.cpu and all(r["cpu_ms"] is not None for results in rounds.values() for r in results)
    timed = ("min_ms", "cpu_ms") if sure else ("min_ms",)
    summary = {
        name: {
            "min_ms": min(r[time] for r in results for time in timed),
            "median_ms": statistics.median(r["median_ms"] for r in results),
        }
        for name, results in rounds.items()
    }
    ours, theirs = (summary[peer.name] for peer in peers)
    return {
        "model": job.label, "dims": job.dims, "threads": threads, **summary,
        "ratio_min": ours["min_ms"] / theirs["min_ms"],
        "ratio_median": ours["median_ms"] / theirs["median_ms"],
        "difference": difference, "rounds": rounds,
    }  # fmt: skip


HEADER = (
    f"{'model':34} {'thr':>3} {'rlx min':>9} {'median':>9} {'ORT min':>9} {'median':>9} "
    f"{'ratio min':>10} {'median':>7} {'differs':>8}"
)


def line(row):
    ours, theirs = row["rlx"], row["onnxruntime"]
    return (
        f"{row['model']:34} {row['threads']:3} {ours['min_ms']:9.4g} {ours['median_ms']:9.4g} "
        f"{theirs['min_ms']:9.4g} {theirs['median_ms']:9.4g} {row['ratio_min']:10.2f} "
        f"{row['ratio_median']:7.2f} {row['difference']:8.1e}"
    )


def markdown(rows):
    """One line for each model, as docs/performance.md shows them: both sides' minima and their ratio by threads."""
    threads = sorted({row["threads"] for row in rows})
    heads = [f"{n} thread{'s' * (n > 1)}: RLX | ONNX Runtime | ratio" for n in threads]
    lines = [f"| model | sizes | {' | '.join(heads)} | differs |", "|---" * (3 + 3 * len(threads)) + "|"]
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = {row["threads"]: row for row in rows if row["model"] == model}
        cells, differs = [], 0.0
        for n in threads:
            if n in mine:
                row = mine[n]
                differs = max(differs, row["difference"])
                cells += [f"{row[side]['min_ms']:.4g}" for side in ("rlx", "onnxruntime")]
                cells.append(f"{row['ratio_min']:.2f}")
            else:
                cells += ["–"] * 3
        name, _, sizes = model.partition(" ")
        sizes = sizes.replace("=", " ").replace(",", ", ") or "fixed"
        lines.append(f"| {name} | {sizes} | {' | '.join(cells)} | {differs:.0e} |")
    return "\n".join(lines) + "\n"


def machine():
    """What the figures belong to."""
    import onnxruntime

    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [r.split(":", 1)[1].strip() for r in info.read_text().splitlines() if r.startswith("model name")]
        cpu = f"{len(names)} x {names[0]}" if names else cpu
    return {
        "date": time.strftime("%Y-%m-%d"), "cpu": cpu, "system": platform.system(),
        "onnxruntime": onnxruntime.__version__,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, fromfile_prefix_chars="@"
    )
    parser.convert_arg_line_to_args = lambda line: line.split("#")[0].split()
    parser.add_argument("models", nargs="+", metavar="MODEL[:DIM=N,...]")
    parser.add_argument("--threads", default="1", help="one or more counts, as 1,2 (default 1)")
    parser.add_argument("--rounds", type=int, default=8, help="rounds for each side (default 8)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a round (default 1)")
    parser.add_argument("--cpu", action="store_true", help="take processor time into account; for one thread")
    parser.add_argument("--rlx", default=str(ROOT / "target/release/rlx"), help="the command to time")
    parser.add_argument("--folder", type=Path, default=ROOT / "target/compare", help="for models and inputs")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--markdown", type=Path, help="write a table of minima to this file")
    args = parser.parse_args()
    if args.cpu and args.threads != "1":
        parser.error("processor time is compared for one thread")
    if not Path(args.rlx).is_file():
        parser.error(f"no command at {args.rlx}: build it (cargo build --release -p rlx) or give --rlx")
    args.folder.mkdir(parents=True, exist_ok=True)

    rows = []
    print(f"milliseconds; {machine()['cpu']}, ONNX Runtime {machine()['onnxruntime']}\n{HEADER}")
    for text in args.models:
        job = parse_model(text, args.folder)
        for threads in map(int, args.threads.split(",")):
            try:
                rows.append(compare(job, threads, args))
                print(line(rows[-1]), flush=True)
            except Failed as why:
                print(f"{job.label:34} {threads:3} not compared: {why}", flush=True)
    if args.markdown:
        args.markdown.write_text(markdown(rows))
    if args.json:
        args.json.write_text(json.dumps({"machine": machine(), "results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
