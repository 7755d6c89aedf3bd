"""The processes that are timed, and the turns that they take."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "peers"))

from peer import Failed, Worker  # noqa: E402  (from bench/peers, see above)

# Runs of a model whose steps are timed.
STEP_RUNS = 10


class Timer(Worker):
    """A peer that starts at once; `ready` waits until it is, and `turn` times all that it has."""

    def __init__(self, columns, rows, command):
        self.columns, self.rows = columns, rows
        self.about, self.absent = {}, {}
        super().__init__([str(part) for part in command], os.cpu_count())

    def ready(self, patience):
        self.patience = max(patience, 1)
        answer = self.answer()
        self.about, self.absent = answer.get("about", {}), answer.get("absent", {})

    def turn(self, seconds):
        raise NotImplementedError


class Python(Timer):
    """A peer of `worker.py`."""

    def __init__(self, columns, rows, **job):
        super().__init__(columns, rows, [sys.executable, HERE / "worker.py", json.dumps(job)])

    def turn(self, seconds):
        return self.ask(f"turn {seconds}")["times"]


class Rlx(Timer):
    """RLX's worker (`bench/peers/workers/src/bin/device.rs`) on a model."""

    def __init__(self, columns, rows, args, model, precision="bf16", numerics="fast", caches=(0, 0), dims=None):
        sizes = [f"{name}={size}" for name, size in (dims or {}).items()]
        command = [args.worker, model, args.device, precision, numerics, *caches, *sizes]
        super().__init__(columns, rows, command)


class RlxModel(Rlx):
    """A whole model: with its inputs on the device, and copied there in each run."""

    def turn(self, seconds):
        times = []
        for column, request in zip(self.columns, ("go", "host")):
            times.append([self.rows[0], column, self.ask(f"{request} {seconds}")["median_ms"]])
        return times


class RlxSteps(Rlx):
    """The steps of a model of independent parts, which are called `NAME<row>.`. A part is all steps that are called so first, but those that bring
    operands to another type: peers get theirs in it."""

    def __init__(self, *of, name, **more):
        super().__init__(*of, **more)
        self.name = name

    def turn(self, seconds):
        steps = self.ask(f"steps {STEP_RUNS}")["steps"]
        times = []
        for i, row in enumerate(self.rows):
            of = [us for step, kind, us in steps if self.belongs(i, step, kind)]
            if not of:
                raise Failed(f"no step is called {self.name}{i}.")
            times.append([row, self.columns[0], sum(of) / 1e3])
        return times

    def belongs(self, row, step, kind):
        return step.startswith(f"{self.name}{row}.") and kind not in ("Elementwise", "Reduce")


def row_job(row, args, **more):
    """A job for `worker.py` about one row."""
    return {"device": args.device, "kind": type(row).__name__, "row": asdict(row), **more}
