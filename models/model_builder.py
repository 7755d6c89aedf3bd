"""A small Llama as ONNX Runtime's model builder writes language models: grouped attention with its caches and rotary
positions inside, weights of 4 bits in blocks, norms with the residual, and an embedding of the same weights as the head.

    python models/model_builder.py        # writes model_builder/*.onnx and its goldens, without export.py's other packages

Goldens are ONNX Runtime's: the prompt, then two tokens from the caches of the step before. In `model_builder_shared` the
caches are buffers of a fixed length, as the generating loop passes them in.
"""

import math
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import weights

HERE = Path(__file__).resolve().parent
CASES = ["model_builder", "model_builder_shared"]
HIDDEN, HEADS, KEY_HEADS, SIZE, INNER, WORDS, LAYERS = 64, 4, 2, 16, 96, 80, 2
POSITIONS, BLOCK, EPSILON, CAPACITY = 64, 32, 1e-5, 24
MS = "com.microsoft"


class Builder:
    """The nodes and weights of one graph."""

    def __init__(self):
        self.nodes, self.fixed = [], {}

    def weight(self, name, array):
        self.fixed[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def node(self, name, op, inputs, outputs=None, domain="", **attributes):
        outputs = outputs or [f"{name}/output_0"]
        self.nodes.append(helper.make_node(op, inputs, outputs, name=name, domain=domain, **attributes))
        return outputs[0]

    def norm(self, name):
        one = weights.values(name, [HIDDEN], round(0.1 * weights.UNIT), weights.UNIT)
        return self.weight(name, one)

    def blocks(self, name, rows, depth):
        """Packed weights, scales and zero points of 4 bits."""
        count = depth // BLOCK
        code = lambda part, shape: np.clip((weights.values(f"{name}.{part}", shape, weights.UNIT, 0) + 1) * 8, 0, 15).astype(np.uint8)
        codes, zeros = code("codes", [rows, count, BLOCK]), code("zeros", [rows, count]) // 4 + 6
        spread = 0.6 / math.sqrt(depth)
        scales = weights.values(f"{name}.scales", [rows * count], round(spread / 4 * weights.UNIT), round(spread / 2 * weights.UNIT))
        zeros = np.pad(zeros, [(0, 0), (0, count % 2)], constant_values=8)
        return [
            self.weight(f"{name}.weight_Q4", codes[:, :, 0::2] | codes[:, :, 1::2] << 4),
            self.weight(f"{name}.weight_scales", scales),
            self.weight(f"{name}.weight_zp", (zeros[:, 0::2] | zeros[:, 1::2] << 4).reshape(-1)),
        ]

    def linear(self, name, x, rows, depth):
        size = {"K": depth, "N": rows, "bits": 4, "block_size": BLOCK}
        return self.node(f"/{name}/MatMul_Q4", "MatMulNBits", [x, *self.blocks(name, rows, depth)], domain=MS, **size)

    def lengths(self):
        """How many keys each row has in all, less one, and how many the longest has."""
        at = "/model/attn_mask_reformat"
        axes, one = self.weight("axes", np.array([1], np.int64)), self.weight("one", np.array([1], np.int64))
        total = self.node(f"{at}/ReduceSum", "ReduceSum", ["attention_mask", axes])
        total = self.node(f"{at}/Sub", "Sub", [total, one])
        lengths = self.node(f"{at}/Cast", "Cast", [total], to=TensorProto.INT32)
        shape = self.node(f"{at}/Shape", "Shape", ["attention_mask"])
        index = self.weight("index", np.array(1, np.int64))
        longest = self.node(f"{at}/Gather", "Gather", [shape, index], axis=0)
        return [lengths, self.node(f"{at}/Cast_1", "Cast", [longest], to=TensorProto.INT32)]

    def attention(self, layer, x, lengths, tables):
        at = f"model.layers.{layer}.self_attn"
        widths = [HEADS * SIZE, KEY_HEADS * SIZE, KEY_HEADS * SIZE]
        if layer % 2:
            # Queries, keys and values of one product.
            qkv = [self.linear(f"{at}.qkv_proj", x, sum(widths), HIDDEN), "", ""]
        else:
            qkv = [self.linear(f"{at}.{part}_proj", x, width, HIDDEN) for part, width in zip("qkv", widths)]
        past = [f"past_key_values.{layer}.{part}" for part in ("key", "value")]
        present = [f"present.{layer}.{part}" for part in ("key", "value")]
        heads = {"num_heads": HEADS, "kv_num_heads": KEY_HEADS, "scale": 1 / math.sqrt(SIZE)}
        name = f"/{at}/GroupQueryAttention"
        y = self.node(
            name, "GroupQueryAttention", [*qkv, *past, *lengths, *tables], [f"{name}/output_0", *present],
            domain=MS, do_rotary=1, rotary_interleaved=0, local_window_size=-1, softcap=0.0, **heads,
        )  # fmt: skip
        return self.linear(f"{at}.o_proj", y, HIDDEN, HEADS * SIZE)

    def mlp(self, layer, x):
        at = f"model.layers.{layer}.mlp"
        gate, up = (self.linear(f"{at}.{part}_proj", x, INNER, HIDDEN) for part in ("gate", "up"))
        act = self.node(f"/{at}/Sigmoid", "Sigmoid", [gate])
        act = self.node(f"/{at}/Mul", "Mul", [gate, act])
        return self.linear(f"{at}.down_proj", self.node(f"/{at}/Mul_1", "Mul", [act, up]), HIDDEN, INNER)

    def graph(self):
        lengths = self.lengths()
        angle = np.arange(POSITIONS)[:, None] / 10000 ** (np.arange(SIZE // 2) / (SIZE // 2))
        tables = [self.weight(f"{f.__name__}_cache", f(angle).astype(np.float32)) for f in (np.cos, np.sin)]
        head = self.blocks("lm_head", WORDS, HIDDEN)
        # The embedding's bytes are the head's.
        rows = numpy_helper.to_array(self.fixed[head[0]]).reshape(WORDS, -1)
        scales = numpy_helper.to_array(self.fixed[head[1]]).reshape(WORDS, -1)
        table = [self.weight("model.embed_tokens.weight_Q4", rows), "input_ids", self.weight("model.embed_tokens.weight_scales", scales)]
        zeros = numpy_helper.to_array(self.fixed[head[2]]).reshape(WORDS, -1)
        table.append(self.weight("model.embed_tokens.weight_zp", zeros))
        x = self.node("/model/embed_tokens/GatherBlockQuantized", "GatherBlockQuantized", table, domain=MS, bits=4, block_size=BLOCK, gather_axis=0, quantize_axis=1)
        name = "/model/layers.0/input_layernorm/LayerNorm"
        y = self.node(name, "SimplifiedLayerNormalization", [x, self.norm("model.layers.0.input_layernorm")], axis=-1, epsilon=EPSILON, stash_type=1)
        for layer in range(LAYERS):
            last = layer + 1 == LAYERS
            following = "model.norm" if last else f"model.layers.{layer + 1}.input_layernorm"
            steps = [
                (lambda y: self.attention(layer, y, lengths, tables), f"model.layers.{layer}.post_attention_layernorm"),
                (lambda y: self.mlp(layer, y), following),
            ]
            for step, norm in steps:
                name = f"/{norm}/SkipLayerNorm"
                outputs = [f"{name}/output_0"] if norm == "model.norm" else [f"{name}/output_0", "", "", f"{name}/output_3"]
                y = self.node(name, "SkipSimplifiedLayerNormalization", [x, step(y), self.norm(norm)], outputs, domain=MS, epsilon=EPSILON)
                x = f"{name}/output_3"
        size = {"K": HIDDEN, "N": WORDS, "bits": 4, "block_size": BLOCK}
        self.node("/lm_head/MatMul_Q4", "MatMulNBits", [y, *head], ["logits"], domain=MS, **size)


def caches(rows):
    return {f"past_key_values.{i}.{part}": ["batch_size", KEY_HEADS, rows, SIZE] for i in range(LAYERS) for part in ("key", "value")}


def build(shared):
    """The model, its inputs and its outputs."""
    builder = Builder()
    builder.graph()
    past, total = ("capacity",) * 2 if shared else ("past_sequence_length", "total_sequence_length")
    inputs = {"input_ids": ["batch_size", "sequence_length"], "attention_mask": ["batch_size", "total_sequence_length"]}
    inputs |= caches(past)
    outputs = {"logits": ["batch_size", "sequence_length", WORDS]}
    outputs |= {name.replace("past_key_values", "present"): shape for name, shape in caches(total).items()}
    info = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.INT64 if name in ("input_ids", "attention_mask") else TensorProto.FLOAT, shape)
    described = [[info(*entry) for entry in values.items()] for values in (inputs, outputs)]
    graph = helper.make_graph(builder.nodes, "main_graph", *described, list(builder.fixed.values()))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="models/model_builder.py"), inputs, outputs


def steps(session, outputs, shared):
    """The prompt and two tokens: what goes in, what comes out, and the dimensions."""
    batch, length = 2, 6
    tokens = np.random.default_rng(3).integers(0, WORDS, (batch, length + 2))
    held = {name: np.zeros([batch, KEY_HEADS, CAPACITY if shared else 0, SIZE], np.float32) for name in caches(0)}
    begin = 0
    for new in (length, 1, 1):
        total = begin + new
        feeds = {"input_ids": tokens[:, begin:total], "attention_mask": np.ones((batch, total), np.int64), **held}
        found = dict(zip(outputs, session.run(list(outputs), feeds)))
        dims = {"batch_size": batch, "sequence_length": new, "total_sequence_length": total}
        dims |= {"capacity": CAPACITY} if shared else {"past_sequence_length": begin}
        yield feeds, found, dims
        held = {name: found[name.replace("past_key_values", "present")] for name in held}
        begin = total


def export(name):
    """Writes the model's files; returns its entry in cases.json."""
    shared = name.endswith("shared")
    model, inputs, outputs = build(shared)
    folder = HERE / "model_builder"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    goldens = []
    for i, (feeds, found, dims) in enumerate(steps(session, outputs, shared)):
        golden = folder / f"golden_{'shared' if shared else 'grown'}_{i}.npz"
        np.savez(golden, **{f"in_{n}": a for n, a in feeds.items()}, **{f"out_{n}": a for n, a in found.items()})
        goldens.append({"file": str(golden.relative_to(HERE)), "dims": dims, "formula_inputs": {}})
        print(f"{name} {dims}: logits up to {np.abs(found['logits']).max():.2f}")
    described = lambda values: [{"name": n, "dtype": "i64" if n in ("input_ids", "attention_mask") else "f32", "shape": s} for n, s in values.items()]
    return {
        "name": name,
        "onnx": f"model_builder/{name}.onnx",
        "weights": None,
        "exporter": "model builder",
        "opset": 21,
        "inputs": described(inputs),
        "outputs": described(outputs),
        "limits": {"sequence_length": 32, "total_sequence_length": 64, "past_sequence_length": 32, "capacity": 64},
        "goldens": goldens,
    }


if __name__ == "__main__":
    import json

    known = weights.cases()
    last = known.pop("minilm")
    known |= {name: export(name) for name in CASES}
    entries = [*known.values(), last]
    rows = ",\n".join("  " + json.dumps(entry) for entry in entries)
    (HERE / "cases.json").write_text(f'{{"cases": [\n{rows}\n]}}\n')
