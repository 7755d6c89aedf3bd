"""The machine that figures belong to: what it is, and what it reaches."""

import platform
import time
from importlib.metadata import version
from pathlib import Path

from environment import HERE, WORKERS
from peer import Worker

RATES = ("f32_gflops", "bf16_gflops", "int8_gops", "read_gb_s")


class Machine(Worker):
    """Multiply-adds and reading, as fast as so many threads can; measured in the same rounds as the peers."""

    def __init__(self, threads):
        super().__init__([WORKERS / "machine", str(threads)], threads)
        self.best = {}
        self.answer()

    def round(self, seconds):
        for rate, value in self.ask(f"go {seconds}").items():
            if value is not None:
                self.best[rate] = max(self.best.get(rate, 0.0), value)


def described():
    """Name and number of the processors, versions of the peers, the day."""
    cpu, info = platform.processor(), Path("/proc/cpuinfo")
    if info.exists():
        names = [r.split(":", 1)[1].strip() for r in info.read_text().splitlines() if r.startswith("model name")]
        cpu = f"{len(names)} x {names[0]}" if names else cpu
    return {
        "date": time.strftime("%Y-%m-%d"), "cpu": cpu, "system": platform.system(), "shared_cores": shared_cores(),
        "versions": {name: version(name) for name in ("onnxruntime", "openvino")} | of_crates("tract-onnx", "rten"),
    }  # fmt: skip


def shared_cores():
    """Whether two logical processors share a core, so that two threads need not be twice as fast as one; None if unknown."""
    lists = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/thread_siblings_list")
    siblings = {path.read_text().strip() for path in lists}
    return any("," in s or "-" in s for s in siblings) if siblings else None


def of_crates(*names):
    """Versions in the workers' lock file, where a package's version is the line behind its name."""
    lines = (HERE / "workers/Cargo.lock").read_text().splitlines()
    named = {name: lines.index(f'name = "{name}"') for name in names}
    return {name: lines[at + 1].split('"')[1] for name, at in named.items()}
