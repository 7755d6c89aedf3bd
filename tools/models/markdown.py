"""The table as a document."""

import datetime
import importlib.metadata
import textwrap

LIBRARIES = ["torch", "torchvision", "transformers", "diffusers", "timm", "onnx", "onnxruntime", "onnxscript", "scikit-learn", "skl2onnx", "lightgbm", "xgboost", "catboost", "onnxmltools"]
HEAD = """\
# Models

Made by `python tools/models/table.py --markdown docs/models.md` on {day}; do not edit.

Models of small configurations with seeded random weights, written by PyTorch's two exporters (TorchScript and dynamo) and by the exporters of other libraries,
run by `rlx verify MODEL --inputs inputs.npz --expect expected.npz` on the CPU. What is expected are ONNX Runtime's outputs, or PyTorch's where ONNX Runtime
has no kernel for an op (marked †). *Nodes* counts those of the file with bodies and functions. *Error* is the largest of all outputs, relative to the output's largest
magnitude; a model is right where `rlx verify` accepts every element at its default tolerance, and integers, labels and shapes are equal. *Seconds* are those of the whole
command: reading, importing, compiling, running, comparing. None of these models is among those of `models/`.

{summary}

Versions: {versions}.
"""


def write(path, rows):
    done = [row for row in rows if "failed" not in row]
    right = sum(row["right"] for row in done)
    names = {row["name"] for row in done}
    fell = len(rows) - len(done)
    summary = (
        f"**{right} of {len(done)} files are right**: {len(names)} models; {sum(r['imported'] for r in done)} files are imported, "
        f"{sum(r['compiled'] for r in done)} compiled."
    )
    if fell:
        summary += f" {fell} more could not be exported; the last section has the exporters' reasons."
    versions = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    text = HEAD.format(day=datetime.date.today().isoformat(), summary=wrap(summary), versions=wrap(versions))
    text += "\n## Files\n\n" + by_group(done)
    wrong = [row for row in done if not row["right"]]
    if wrong:
        text += "\n## What is not right\n\n" + "".join(f"- `{r['name']}`, {r['exporter']}: {reason(r)}\n" for r in wrong)
    if fell:
        text += "\n## What could not be exported\n\nThe exporter's error, or ONNX Runtime's where the file that was written contradicts itself.\n\n"
        text += "".join(f"- `{r['name']}`, {r['exporter']}: {shorten(r['failed'])}\n" for r in rows if "failed" in r)
    path.write_text(text)


def version(name):
    try:
        return importlib.metadata.version(name).split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return "–"


def wrap(text):
    return "\n".join(textwrap.wrap(text, 158, break_long_words=False, break_on_hyphens=False))


def by_group(rows):
    head = ("model", "kind", "library", "exporter", "opset", "nodes", "imported", "compiled", "right", "error", "seconds")
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    yes = lambda flag: "yes" if flag else "**no**"
    for row in rows:
        mark = "" if row["reference"] == "ONNX Runtime" else " †"
        cells = (
            row["name"] + mark, row["group"], row["source"], row["exporter"], row["opset"], row["nodes"], yes(row["imported"]),
            yes(row["compiled"]), yes(row["right"]), error(row), f"{row['seconds']:.1f}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def error(row):
    if "error" not in row:
        return "–"
    return "0" if row["error"] == 0 else f"{row['error']:.1e}"


def reason(row):
    if "reason" in row:
        return shorten(row["reason"])
    bad = [o for o in row["found"]["outputs"] if not o["ok"]]
    return shorten("; ".join(f"output {o['name']} differs by {o['max_abs']}" for o in bad))


def shorten(text):
    return textwrap.shorten(" ".join(text.split()), 300, placeholder=" …").replace("|", "\\|")
