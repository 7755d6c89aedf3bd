#!/usr/bin/env python3
"""ONNX's own node cases on RLX, ONNX Runtime, tract and ONNX's reference evaluator, side by side.

    pip install numpy onnx onnxruntime tract
    python tools/conformance.py --markdown docs/conformance.md

runs the 1,653 cases that the wheel of onnx 1.20.0 contains (`cargo xtask data` fetches them) and the cases that the
installed `onnx` generates, and writes a table. RLX is run by its own test, `crates/rlx-onnx/tests/node_suite.rs`, on the
oracle and on the CPU; the others here, each in a process of its own, since a case may end the process.

A case passes when every output has the expected type and shape and equal values: floats within 1e-3 relative and 1e-7
absolute, as ONNX's own backend test has it, bfloat16 within two units in the last place (2^-6), as that test has it since onnx 1.23,
everything else exactly. A runtime gets one try with its default options. `--write-cases FOLDER` only writes the cases that the installed
`onnx` generates.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RTOL, ATOL, BFLOAT16 = 1e-3, 1e-7, 2**-6
LISTS = ROOT / "crates/rlx-onnx/tests/node_suite"
# Seconds for one case.
PATIENCE = 60
PEERS = ["ONNX Runtime", "tract", "reference evaluator"]
DOMAINS = ["ai.onnx", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"]


def value_of(path, type_proto):
    """What a `.pb` file of a case holds, as numpy arrays, lists and None."""
    import onnx
    from onnx import numpy_helper

    data = path.read_bytes()
    kind = type_proto.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    if kind == "map_type":
        return numpy_helper.to_dict(onnx.MapProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def numbered(folder, what):
    files = folder.glob(f"{what}_*.pb")
    return sorted(files, key=lambda path: int(path.stem.rsplit("_", 1)[1]))


def misfit(got, want):
    """Why `got` is not `want`; None where it is."""
    import numpy as np

    if want is None or got is None:
        return None if want is None and got is None else f"{type(got).__name__} for {type(want).__name__}"
    if isinstance(want, list):
        if len(got) != len(want):
            return f"{len(got)} elements for {len(want)}"
        return next((why for why in map(misfit, got, want) if why), None)
    if isinstance(want, dict):
        return None if got == want else "another map"
    got, want = np.asarray(got), np.asarray(want)
    if want.dtype.kind in "OSU":
        equal = got.shape == want.shape and [str(v) for v in got.flat] == [str(v) for v in want.flat]
        return None if equal else "other strings"
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)} for {want.dtype}{list(want.shape)}"
    if want.dtype.kind in "iub":
        return None if np.array_equal(got, want) else "other values"
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    rtol = BFLOAT16 if want.dtype.name == "bfloat16" else RTOL
    close = np.allclose(got.astype(wide), want.astype(wide), rtol=rtol, atol=ATOL, equal_nan=True)
    return None if close else "other values"


def by_onnxruntime(path, model):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, inputs)


def by_tract(path, model):
    import tract

    runnable = tract.onnx().load(str(path)).into_model().into_runnable()
    return lambda inputs: [value.to_numpy() for value in runnable.run(list(inputs.values()))]


def by_reference(path, model):
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(model)
    return lambda inputs: evaluator.run(None, inputs)


RUNNERS = dict(zip(PEERS, [by_onnxruntime, by_tract, by_reference]))


def run_case(runner, folder):
    """None where the case passes, else why it does not."""
    import onnx

    model = onnx.load(folder / "model.onnx")
    prepared = RUNNERS[runner](folder / "model.onnx", model)
    for data in sorted(folder.glob("test_data_set_*")):
        pairs = zip(model.graph.input, numbered(data, "input"))
        inputs = {info.name: value_of(path, info.type) for info, path in pairs}
        want = [value_of(path, info.type) for info, path in zip(model.graph.output, numbered(data, "output"))]
        got = prepared(inputs)
        if len(got) != len(want):
            return f"{len(got)} outputs for {len(want)}"
        for wrong in filter(None, map(misfit, got, want)):
            return wrong
    return None


def worker(runner):
    """Answers a line of JSON for each folder on standard input."""
    answers = os.fdopen(os.dup(1), "w")
    # What runtimes print is not an answer.
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            why = run_case(runner, pathlib.Path(line.strip()))
        except BaseException as e:  # panics of foreign code included
            why = (str(e).strip().splitlines() or [type(e).__name__])[0][:200]
        answers.write(json.dumps(why) + "\n")
        answers.flush()


class Worker:
    """A process that runs cases, and is started again where one ends it."""

    def __init__(self, runner):
        self.runner, self.process = runner, None

    def start(self):
        command = [sys.executable, __file__, "--worker", self.runner]
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null, text=True)

    def run(self, folder):
        import select

        if self.process is None:
            self.start()
        self.process.stdin.write(f"{folder}\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        line = self.process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        self.process.kill()
        self.process.wait()
        self.process = None
        return "the process ended" if ready else f"longer than {PATIENCE} s"


def domain_of(folder):
    import onnx

    domains = {n.domain for n in onnx.load(folder / "model.onnx").graph.node}
    return next((d for d in reversed(DOMAINS) if d in domains), DOMAINS[0])


def by_rlx(folder, listed):
    """RLX's own test over a folder: for each device, the cases that do not pass, and why. The list has the tolerance of bfloat16."""
    command = "cargo test --quiet -p rlx-onnx --test node_suite -- --nocapture --test-threads 1".split()
    environment = {**os.environ, "RLX_NODE_FOLDER": str(folder), "RLX_NODE_LIST": str(listed)}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    found = {"oracle": {}, "cpu": {}}
    for line in run.stdout.splitlines():
        # The test harness may print a dot in front of the first line.
        if match := re.match(r"\.?(oracle|cpu) (test_\w+): (.*)", line):
            found[match[1]][match[2]] = match[3]
    for device in found:
        if not re.search(rf"\b{device}: \d+ of \d+ cases pass", run.stdout):
            raise SystemExit(f"RLX's test did not run to its end:\n{run.stdout}\n{run.stderr}")
    return found


def exceptions(path):
    """Cases that RLX lists as impossible, with the reason: random values, or a wrong expectation."""
    listed = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, reason = line.partition(" ")
            listed[name.split("@")[0]] = reason.strip().replace("wrong-expectation", "wrong expectation:")
    return listed


def bytes_of(value, info):
    """A value of a generated case as the files of a case have it."""
    from onnx import ModelProto, TensorProto, numpy_helper

    if isinstance(value, (ModelProto, TensorProto)):
        return value.SerializeToString()
    write = {
        "map_type": numpy_helper.from_dict,
        "sequence_type": numpy_helper.from_list,
        "optional_type": numpy_helper.from_optional,
        "tensor_type": numpy_helper.from_array,
    }[info.type.WhichOneof("value")]
    return write(value, info.name).SerializeToString()


def generated(folder):
    """The cases of the installed `onnx`, written to a folder."""
    from onnx.backend.test.case.node import collect_testcases

    for case in collect_testcases():
        own = folder / case.name
        own.mkdir(parents=True)
        (own / "model.onnx").write_bytes(case.model.SerializeToString())
        for number, (inputs, outputs) in enumerate(case.data_sets):
            data = own / f"test_data_set_{number}"
            data.mkdir()
            graph = case.model.graph
            for what, values, infos in [("input", inputs, graph.input), ("output", outputs, graph.output)]:
                for i, (value, info) in enumerate(zip(values, infos)):
                    (data / f"{what}_{i}.pb").write_bytes(bytes_of(value, info))
    return folder


def measure(folder, listed):
    """For each runtime, the cases that do not pass."""
    folders = sorted(path for path in folder.iterdir() if (path / "model.onnx").is_file())
    failed = {}
    for peer in PEERS:
        one, failed[peer] = Worker(peer), {}
        for i, case in enumerate(folders):
            print(f"\r{peer}: {i + 1} of {len(folders)} ", end="", file=sys.stderr, flush=True)
            if why := one.run(case):
                failed[peer][case.name] = why
        print(file=sys.stderr)
    own = by_rlx(folder, listed)
    failed["RLX oracle"], failed["RLX CPU"] = own["oracle"], own["cpu"]
    return {case.name: domain_of(case) for case in folders}, failed


def table(domains, failed):
    columns = ["RLX CPU", "RLX oracle", *PEERS]
    lines = ["| domain | cases | " + " | ".join(columns) + " |", "|---|--:|" + "--:|" * len(columns)]
    for domain in [*DOMAINS, None]:
        cases = [name for name, of in domains.items() if domain in (None, of)]
        if cases:
            counts = [sum(name not in failed[column] for name in cases) for column in columns]
            title = f"`{domain}`" if domain else "**all**"
            lines.append(f"| {title} | {len(cases)} | " + " | ".join(map(str, counts)) + " |")
    return lines


def page(results):
    from importlib.metadata import version

    packages = ", ".join(f"{name} {version(name)}" for name in ["onnxruntime", "tract", "onnx"])
    lines = [
        "# Conformance",
        "",
        "ONNX's own node cases on RLX, ONNX Runtime, tract and ONNX's reference evaluator. Made by",
        "`python tools/conformance.py --markdown docs/conformance.md`, which says when a case passes. Wrong expectations are",
        "shown to be wrong, from the definitions, by `crates/rlx-onnx/tests/node_suite/evidence.py`.",
        "",
        f"{datetime.date.today()}, {platform.machine()} {platform.system()}; {packages}.",
    ]
    for title, path, domains, failed in results:
        lines += ["", f"## {title}", "", *table(domains, failed)]
        listed = exceptions(path)
        lines += ["", "What RLX does not pass:", "", "| case | why | which others pass it |", "|---|---|---|"]
        for name, why in sorted({**failed["RLX oracle"], **failed["RLX CPU"]}.items()):
            why = listed.get(name, why).replace("|", "\\|")
            alone = " (on the oracle)" if name not in failed["RLX CPU"] else ""
            others = ", ".join(peer for peer in PEERS if name not in failed[peer]) or "none"
            lines.append(f"| `{name}`{alone} | {why[:160]} | {others} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", metavar="RUNTIME", help=argparse.SUPPRESS)
    parser.add_argument("--markdown", metavar="FILE", help="write the page there instead of printing it")
    parser.add_argument("--json", metavar="FILE", help="write every case that does not pass there")
    parser.add_argument("--pinned-only", action="store_true", help="leave out the cases that the installed onnx generates")
    parser.add_argument("--write-cases", metavar="FOLDER", help="only write the cases that the installed onnx generates there")
    args = parser.parse_args()
    if args.worker:
        return worker(args.worker)
    if args.write_cases:
        return generated(pathlib.Path(args.write_cases))
    cache = os.environ.get("RLX_CACHE_DIR") or pathlib.Path.home() / ".cache/rlx"
    pinned = pathlib.Path(cache) / "test-data/onnx-1.20.0/onnx/backend/test/data/node"
    if not pinned.is_dir():
        raise SystemExit(f"{pinned} is not there; `cargo xtask data` fetches it")
    folders = [("onnx 1.20.0", pinned, LISTS / "expected.txt")]
    if not args.pinned_only:
        from importlib.metadata import version

        folder = pathlib.Path(tempfile.mkdtemp(prefix="onnx-cases-"))
        generated(folder)
        folders.append((f"onnx {version('onnx')} (generated)", folder, LISTS / "newest.txt"))
    results = [(title, listed, *measure(folder, listed)) for title, folder, listed in folders]
    if args.json:
        found = {title: failed for title, _, _, failed in results}
        pathlib.Path(args.json).write_text(json.dumps(found, indent=1, sort_keys=True))
    if args.markdown:
        pathlib.Path(args.markdown).write_text(page(results))
    else:
        print(page(results))


if __name__ == "__main__":
    main()
