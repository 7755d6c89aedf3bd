"""The peers, and what each of them does on a model: a process that lives as long as the comparison (`workers/src/lib.rs` has the protocol)."""

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from environment import HERE, WORKERS

# Seconds that loading, a round or saving may take.
PATIENCE = 600
# Outputs that differ by more than this share of their largest magnitude are wrong, and their time does not count.
WRONG = 0.1


class Failed(Exception):
    """A peer cannot run the model; the message says why."""


@dataclass(frozen=True)
class Kind:
    """A runtime: how its worker is started, the precisions it offers, and whether it takes part unless others are asked for. One that has no
    bf16 takes part in f32."""

    name: str
    title: str
    command: tuple
    precisions: tuple = ("f32",)
    usual: bool = True


def of_python(worker, *options):
    return sys.executable, HERE / "workers" / worker, *options


KINDS = [
    Kind("rlx", "RLX", (WORKERS / "rlx",), ("f32", "bf16")),
    Kind("onnxruntime", "ONNX Runtime", of_python("onnxruntime_worker.py")),
    Kind("openvino", "OpenVINO", of_python("openvino_worker.py"), ("f32", "bf16")),
    # Without quantising f32 activations to 8 bits beside weights of 4 and 8 bits, as it does of itself.
    Kind(
        "openvino-exact", "OpenVINO, f32 activations", of_python("openvino_worker.py", "--f32-activations"), usual=False
    ),
    Kind("tract", "tract", (WORKERS / "tract",)),
    Kind("rten", "rten", (WORKERS / "rten",)),
]


class Worker:
    """A process that answers lines with lines of JSON."""

    patience = PATIENCE

    def __init__(self, command, threads):
        # Some peers take their number of threads from the environment only.
        env = {name: str(threads) for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "RTEN_NUM_THREADS")}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, env=os.environ | env, **pipes)
        self.words = []
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()

    def listen(self):
        """Keeps the last lines of what the process writes to its standard error; somebody has to read it, else it waits."""
        for line in self.process.stderr:
            self.words = [*self.words, line.strip()][-20:]

    def answer(self):
        timer = threading.Timer(self.patience, self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        if line:
            return json.loads(line)
        self.process.wait()
        self.listener.join(1)
        if self.process.returncode == -9:
            raise Failed(f"killed, or no answer within {self.patience:.0f} s")
        raise Failed(next((w for w in reversed(self.words) if w), f"ended with {self.process.returncode}"))

    def ask(self, request):
        try:
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and the answer says how
        return self.answer()

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # it has ended
        self.process.wait()


class Peer(Worker):
    """A runtime with a model loaded, after its first run."""

    def __init__(self, kind, job, threads, precision):
        self.name, self.title = kind.name, kind.title
        self.precision = precision if precision in kind.precisions else "f32"
        sizes = [f"{name}={size}" for name, size in job.dims.items()]
        start = time.perf_counter()
        super().__init__([*kind.command, job.model, job.inputs, str(threads), self.precision, *sizes], threads)
        try:
            ready = self.answer()
        except Failed:
            self.close()
            raise
        self.start = {"start_ms": (time.perf_counter() - start) * 1e3, **ready}
        self.rounds = []

    def round(self, seconds):
        self.rounds.append(self.ask(f"go {seconds}"))
        self.peak = self.peak_bytes()

    def peak_bytes(self):
        """The most memory that the process had so far, where the system says it."""
        try:
            lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        except OSError:
            return None
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)

    def outputs(self, folder):
        """By position."""
        path = folder / f"outputs.{self.name}.npz"
        self.ask(f"save {path}")
        arrays = np.load(path)
        return [arrays[str(i)] for i in range(len(arrays.files))]

    def figures(self):
        times = {
            "min_ms": min(r["min_ms"] for r in self.rounds),
            "median_ms": float(np.median([r["median_ms"] for r in self.rounds])),
        }
        return times | self.start | {"precision": self.precision, "peak_bytes": self.peak, "rounds": self.rounds}


def difference(ours, theirs):
    """The largest absolute difference of any output, over the largest magnitude of that output."""
    if len(ours) != len(theirs):
        raise Failed(f"{len(ours)} outputs instead of {len(theirs)}")
    worst = 0.0
    for place, (a, b) in enumerate(zip(ours, theirs)):
        if a.shape != b.shape:
            raise Failed(f"output {place} is {list(a.shape)} instead of {list(b.shape)}")
        if not b.size:
            continue
        if not np.issubdtype(b.dtype, np.number):
            worst = max(worst, float((a != b).any()))
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        worst = max(worst, float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)))
    return worst
