"""The models that are timed: by name from `models/cases.json`, whose weights are made on the spot, or from `nets.py`, or files of ONNX.

`NAME_OR_FILE[+FORMAT][:DIM=N,...]`: `+qdq`, `+qop`, `+int8`, `+w4`, `+w8`, `+w4a8` or `+w8a8` quantises it (`quantised.py`), and sizes are given to its
dynamic dimensions. Inputs are made here, so that all peers get the same.
"""

import ast
import operator
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import nets
import numpy as np
import single
from environment import ROOT

sys.path.insert(0, str(ROOT / "models"))

import weights  # noqa: E402  (from models/, see above)


@dataclass
class Job:
    """A model file, the sizes of its dynamic dimensions, and the inputs that all peers get."""

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
        model = made(case, folder)
    elif name in nets.NETS:
        dims = {"batch": 1} | dims
        model = nets.exported(name, folder)
    elif Path(name).is_file():
        model = Path(name)
    elif (model := single.one_op(name, folder)) is None:
        sys.exit(f"no model `{name}`: neither a file nor one of {', '.join([*known, *nets.NETS])}, nor one op (bench/README.md)")
    size = ",".join(f"{key}={value}" for key, value in dims.items())
    if how:
        import quantised

        if how not in quantised.FORMATS:
            sys.exit(f"`{text}`: a model is quantised by +{', +'.join(quantised.FORMATS)}")
        model = quantised.quantised(model, how, make_inputs(model, dims), folder)
    inputs = folder / f"{model.stem}.{size or 'static'}.npz"
    np.savez(inputs, **make_inputs(model, dims))
    return Job(f"{model.stem} {size}".strip(), model, dims, inputs)


def made(case, folder):
    """The model of a case, which is made when it is not there or the one kept here is newer. Its weights get a file with an ending that
    all peers read: rten takes no other."""
    import onnx

    kept = [ROOT / "models" / case[part] for part in ("onnx", "weights") if case[part]]
    model = folder / kept[0].name
    data = model.with_suffix(".onnx_data")
    if model.is_file() and all(model.stat().st_mtime >= file.stat().st_mtime for file in kept):
        return model
    data.unlink(missing_ok=True)  # what is saved to a file that is there comes behind what it holds
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        whole = onnx.load(weights.materialise(case, scratch))
    onnx.save(whole, model, save_as_external_data=True, location=data.name)
    return model


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
