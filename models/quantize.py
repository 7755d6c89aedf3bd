"""Quantised models, made by ONNX Runtime's quantiser from small nets of this folder.

    python models/export.py digits_qdq …        # or any other name of CASES

Three nets: digits (convolutions, weights inside the file), the MLP, and a narrow BERT. Static quantisation is calibrated
on inputs of the formula (digits: its samples); weights are int8, for the whole tensor or for each channel; activations are
uint8 (digits) or int8 (MLP). `QDQ` puts QuantizeLinear and DequantizeLinear around float ops, `QOperator` writes ops on
integers, `dynamic` measures each activation's range while it runs.

Goldens are ONNX Runtime's outputs. `GOLDEN_steps.npz` has what it gave for every tensor that the graph rounds to integers on
its way: a float that falls next to the middle between two integers may be rounded either way, so that two right
implementations differ there by one step, and nowhere by more.
"""

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import (
    CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static,
)  # fmt: skip
from onnxruntime.quantization.shape_inference import quant_pre_process

import weights

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "quantized"

# name -> (net, format, per channel)
CASES = {
    "digits_qdq": ("digits", "QDQ", False),
    "digits_qdq_channel": ("digits", "QDQ", True),
    "digits_qop": ("digits", "QOperator", False),
    "digits_qop_channel": ("digits", "QOperator", True),
    "mlp_qdq_channel": ("mlp", "QDQ", True),
    "mlp_qop": ("mlp", "QOperator", False),
    "mlp_dynamic": ("mlp", "dynamic", False),
    "mlp_dynamic_channel": ("mlp", "dynamic", True),
    "bert_dynamic_int8": ("bert", "dynamic", False),
    "bert_dynamic_int8_channel": ("bert", "dynamic", True),
}
VOCABULARY, POSITIONS = 120, 32


class Inputs(CalibrationDataReader):
    """The calibration's inputs, one after another."""

    def __init__(self, feeds):
        self.feeds = iter(feeds)

    def get_next(self):
        return next(self.feeds, None)


def narrow_bert():
    """BERT of two layers, width 64, with the formula's weights."""
    import torch
    from transformers import BertConfig, BertModel

    import nets

    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=128, max_position_embeddings=POSITIONS, attn_implementation="eager",
    )  # fmt: skip
    return nets.Bert(nets.fill(BertModel(config, add_pooling_layer=False)), True).eval(), torch


def bert_feeds(batch, length):
    import nets

    names = ["input_ids", "attention_mask", "token_type_ids"]
    return dict(zip(names, (t.numpy() for t in nets.tokens(batch, length, VOCABULARY))))


def write_bert(path):
    net, torch = narrow_bert()
    feeds = bert_feeds(2, 9)
    dynamic = {name: {0: "batch", 1: "seq"} for name in [*feeds, "last_hidden_state"]}
    torch.onnx.export(
        net, tuple(map(torch.from_numpy, feeds.values())), path, dynamo=False, opset_version=17,
        input_names=list(feeds), output_names=["last_hidden_state"], dynamic_axes=dynamic,
    )  # fmt: skip


def formula(name, shape):
    return weights.values(name, shape, 3 * weights.UNIT // 2, 0)


def source(net, scratch):
    """The float model's file, feeds to calibrate with, and for each golden its dimensions and feeds."""
    if net == "bert":
        path = Path(scratch) / "bert.onnx"
        write_bert(path)
        runs = [({"batch": b, "seq": s}, bert_feeds(b, s)) for b, s in ((2, 9), (1, 32))]
        return path, [], runs
    if net == "mlp":
        path = Path(scratch) / "whole.onnx"
        onnx.save(onnx.load(weights.materialise(weights.cases()["mlp"], scratch)), path)
        feeds = [{"x": formula(f"calibration {i}", [4, 64])} for i in range(8)]
        return path, feeds, [({"batch": n}, {"x": formula(f"golden mlp {n}", [n, 64])}) for n in (1, 5)]
    pictures = np.load(HERE / "digits" / "golden.npz")["in_image"]
    feeds = [{"image": pictures[i : i + 1]} for i in range(len(pictures))]
    return HERE / "digits" / "digits.onnx", feeds, [({"batch": 4}, {"image": pictures[:4]})]


def quantized(net, how, per_channel, path, feeds, to):
    if how == "dynamic":
        quantize_dynamic(path, to, per_channel=per_channel, weight_type=QuantType.QInt8)
        return
    prepared = to.with_suffix(".prepared.onnx")
    quant_pre_process(str(path), str(prepared), skip_symbolic_shape=True)
    kind = QuantType.QUInt8 if net == "digits" else QuantType.QInt8
    quantize_static(
        str(prepared), str(to), Inputs(feeds), quant_format=QuantFormat[how], per_channel=per_channel,
        activation_type=kind, weight_type=QuantType.QInt8,
    )  # fmt: skip


def requantized(graph):
    """What is rounded to integers while the graph runs, in order."""
    ops = {"QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul"}
    fixed = {t.name for t in graph.initializer}
    rounds = [n for n in graph.node if n.op_type in ops or (n.domain == "com.microsoft" and n.op_type[0] == "Q")]
    return [n.output[0] for n in rounds if n.input[0] not in fixed]


def with_outputs(model, names):
    """The model with these tensors among its outputs."""
    more = onnx.ModelProto()
    more.CopyFrom(model)
    more.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return more.SerializeToString()


def described(values):
    kinds = {onnx.TensorProto.FLOAT: "f32", onnx.TensorProto.INT64: "i64"}
    shape = lambda v: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]
    return [{"name": v.name, "dtype": kinds[v.type.tensor_type.elem_type], "shape": shape(v)} for v in values]


def export(name):
    """Quantises one net and writes its files; returns its entry in cases.json."""
    net, how, per_channel = CASES[name]
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        path, feeds, runs = source(net, scratch)
        made = Path(scratch) / "quantized.onnx"
        quantized(net, how, per_channel, path, feeds, made)
        model = onnx.load(made)
    from export import tidy  # not at the top: export.py imports this module

    tidy(model)
    del model.graph.value_info[:]
    model.graph.name = name
    onnx.save(model, FOLDER / f"{name}.onnx")
    steps = requantized(model.graph)
    # Every op as it stands: nothing fused, so that each tensor is there to be compared.
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    cpu = {"providers": ["CPUExecutionProvider"]}
    session = onnxruntime.InferenceSession(with_outputs(model, steps), options, **cpu)
    default = onnxruntime.InferenceSession(model.SerializeToString(), **cpu)
    outputs = [o.name for o in model.graph.output]
    goldens, size = [], (FOLDER / f"{name}.onnx").stat().st_size
    for dims, given in runs:
        found = dict(zip([*outputs, *steps], session.run([*outputs, *steps], given)))
        fused = dict(zip(outputs, default.run(None, given)))
        off = max(float(np.abs(found[o] - fused[o]).max()) for o in outputs)
        print(f"{name} {dims}: {size} bytes, fused differs by {off:.1e} of {np.abs(found[outputs[0]]).max():.2g}")
        stem = f"golden_{name}_{'_'.join(f'{d[0]}{n}' for d, n in dims.items())}"
        np.savez(FOLDER / f"{stem}.npz", **{f"in_{k}": v for k, v in given.items()}, **{f"out_{o}": found[o] for o in outputs})
        np.savez(FOLDER / f"{stem}_steps.npz", **{f"out_{s}": found[s] for s in steps})
        goldens.append({"file": f"quantized/{stem}.npz", "dims": dims, "formula_inputs": {}})
    return {
        "name": name,
        "onnx": f"quantized/{name}.onnx",
        "weights": None,
        "exporter": f"ONNX Runtime's quantiser, {how}",
        "opset": next(o.version for o in model.opset_import if not o.domain),
        "inputs": described(model.graph.input),
        "outputs": described(model.graph.output),
        "limits": {"seq": POSITIONS} if net == "bert" else {},
        # What was rounded apart on the way shows in the result: up to a step of 8 bits, of the largest magnitude.
        **({"step": round(2 / 255, 6)} if how == "dynamic" else {}),
        "goldens": goldens,
    }
