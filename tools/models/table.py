"""Exports models of many kinds by PyTorch's two exporters and other libraries, runs each with `rlx`, and writes a table.

    pip install torch torchvision transformers diffusers timm onnx onnxruntime onnxscript \
        scikit-learn pandas skl2onnx lightgbm xgboost catboost onnxmltools
    cargo build --release -p rlx
    python tools/models/table.py [--folder FOLDER] [--markdown docs/models.md] [WORD ...]

Weights are random (seeded), configurations small, nothing is downloaded. A model is exported once, by a process of its own, into the folder;
later calls run `rlx` alone. Words select the models that have one of them in name, group, library or exporter. Expected outputs are ONNX Runtime's, or
PyTorch's where ONNX Runtime has no kernel for an op, which the table says.
"""

import argparse
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import traceback
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MODULES = ["detection", "pictures", "vision", "text", "audio", "diffusion", "tabular"]
LIMIT = 240  # seconds for one export, and for one run


def export(model, exporter, folder):
    """Exports in a child process, which has this one's libraries already loaded; an error becomes the folder's `failed.txt`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    child = os.fork()
    if child == 0:
        import signal

        signal.alarm(LIMIT)
        log = os.open(folder / "export.log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        try:
            importlib.import_module("export").make(model, exporter, folder)
        except BaseException as error:
            (folder / "failed.txt").write_text(f"{type(error).__name__}: {error}\n\n{traceback.format_exc()}")
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status:
        (folder / "failed.txt").write_text(f"the exporter's process ended with status {status}")


def failure(text):
    """What an exporter stopped at: the first line of its summary, or its message."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    summary = text.split("## Exception summary")
    message = summary[1].strip().splitlines()[0] if len(summary) > 1 else text.split("\n\n")[0]
    return " ".join(re.sub(r"<class '[\w.]*?(\w+)'>", r"\1", message).split())


def rlx(command, *args):
    """Runs the command; its JSON, or its error's text."""
    try:
        done = subprocess.run([command, *args, "--json"], capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return None, f"more than {LIMIT} s"
    try:
        return json.loads(done.stdout), done.stderr.strip()
    except json.JSONDecodeError:
        return None, (done.stderr or done.stdout).strip() or f"status {done.returncode}"


def check(command, folder):
    """How a model fares: imported, compiled, right, its largest error, the reason where it is not right."""
    path = folder / "model.onnx"
    begin = time.monotonic()
    inputs = ["--inputs", str(folder / "inputs.npz")]
    found, error = rlx(command, "verify", str(path), *inputs, "--expect", str(folder / "expected.npz"))
    seconds = time.monotonic() - begin
    result = {"seconds": round(seconds, 2)}
    if found is None or "error" in found:
        reason = found["error"] if found else error
        reason = reason if isinstance(reason, str) else reason.get("message", str(reason))
        compiled, _ = rlx(command, "inspect", str(path), *inputs)
        imported = bool(compiled) and "error" not in compiled and "why" not in compiled
        return result | {"imported": imported, "compiled": imported, "right": False, "reason": " ".join(reason.split())}
    error = max((relative(o, folder) for o in found["outputs"]), default=0.0)
    return result | {"imported": True, "compiled": True, "right": found["ok"], "error": error, "found": found}


def relative(output, folder):
    """An output's largest error relative to its largest magnitude."""
    import numpy as np

    with np.load(folder / "expected.npz") as arrays:
        want = arrays[output["name"]] if output["name"] in arrays else np.zeros(0)
    # Labels are equal or not.
    want = want.astype(np.float64) if want.dtype.kind not in "US" else np.zeros(0)
    largest = np.abs(want[np.isfinite(want)]).max(initial=0.0)
    error = float(output.get("max_abs", 0))
    return error / largest if largest > 0 else error


def wanted(models, words):
    for model, exporter in models:
        text = f"{model.name} {model.group} {model.source} {exporter}"
        if not words or any(w in text for w in words):
            yield model, exporter


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--folder", type=Path, default=ROOT / "target/models", help="where models are exported")
    parser.add_argument("--rlx", default=str(ROOT / "target/release/rlx"), help="the command")
    parser.add_argument("--markdown", type=Path, help="write the table here")
    parser.add_argument("--export", action="store_true", help="export only")
    parser.add_argument("--again", action="store_true", help="export again what failed to export")
    args = parser.parse_args()
    sys.path.insert(0, str(HERE))
    lines = []
    for name in MODULES:
        lines += [line for model in importlib.import_module(name).MODELS for line in model.lines()]
    rows = []
    for model, exporter in wanted(lines, args.words):
        folder = args.folder / f"{model.name}.{exporter}"
        if not (folder / "about.json").exists() and (args.again or not (folder / "failed.txt").exists()):
            export(model, exporter, folder)
        row = {"name": model.name, "group": model.group, "source": model.source, "exporter": exporter}
        if (folder / "failed.txt").exists():
            rows.append(row | {"failed": failure((folder / "failed.txt").read_text())})
            print(f"{model.name} {exporter}: not exported: {rows[-1]['failed'][:200]}", flush=True)
            continue
        row |= json.loads((folder / "about.json").read_text())
        if args.export:
            print(f"{model.name} {exporter}: {row['nodes']} nodes, {row['reference']}", flush=True)
            continue
        row |= check(args.rlx, folder)
        rows.append(row)
        print(line_of(row), flush=True)
    if args.markdown:
        importlib.import_module("markdown").write(args.markdown, rows)


def line_of(row):
    state = "right" if row["right"] else "WRONG" if row["compiled"] else "not imported"
    return f"{row['name']} {row['exporter']}: {state} {row['seconds']} s {row.get('reason', '')[:300]}"


if __name__ == "__main__":
    main()
