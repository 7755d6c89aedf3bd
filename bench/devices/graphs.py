"""The ONNX files that are timed: matmuls, attentions, and decoders of Llama's shape with random weights."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Opset and file version that have the ops of decoders: Attention, RotaryEmbedding, RMSNormalization.
OPSET, IR = 23, 10
# Elements of the block of random numbers that large weights repeat.
BLOCK = 1 << 22
# Where tables of angles end.
POSITIONS = 4096
TYPES = {"f32": (TensorProto.FLOAT, np.float32), "f16": (TensorProto.FLOAT16, np.float16)}


def save_products(path, products):
    """One model of independent matmuls; node i is `product<i>.`."""
    random = np.random.default_rng(1)
    nodes, inputs, outputs, weights = [], [], [], []
    for i, p in enumerate(products):
        weight = random.standard_normal((p.depth, p.columns), dtype=np.float32) / np.float32(np.sqrt(p.depth))
        weights.append(numpy_helper.from_array(weight, f"w{i}"))
        inputs.append(helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, [p.rows, p.depth]))
        outputs.append(helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [p.rows, p.columns]))
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"y{i}"], name=f"product{i}."))
    graph = helper.make_graph(nodes, "products", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    data = path.with_suffix(".data")
    data.unlink(missing_ok=True)  # what is saved to a file that is there comes behind what it holds
    onnx.save(model, path, save_as_external_data=True, location=data.name)


def save_attentions(path, attentions):
    """One model of independent attentions, of which node i is `attention<i>.`; a sum behind each keeps results off the host."""
    nodes, inputs, outputs = [], [], []
    axes = numpy_helper.from_array(np.array([1, 2, 3], dtype=np.int64), "axes")
    for i, a in enumerate(attentions):
        for name, rows in (("q", a.queries), ("k", a.keys), ("v", a.keys)):
            dims = [a.batch, a.heads, rows, a.size]
            inputs.append(helper.make_tensor_value_info(f"{name}{i}", TensorProto.FLOAT, dims))
        of, causal = [f"q{i}", f"k{i}", f"v{i}"], int(a.causal)
        nodes.append(helper.make_node("Attention", of, [f"a{i}"], name=f"attention{i}.", is_causal=causal))
        nodes.append(helper.make_node("ReduceMax", [f"a{i}", "axes"], [f"y{i}"], name=f"max{i}", keepdims=0))
        outputs.append(helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [a.batch]))
    graph = helper.make_graph(nodes, "attentions", inputs, outputs, [axes])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR), path)


class Weights:
    """Initialisers in a file of their own, which graphs of the same weights share. Large ones repeat a block of random numbers."""

    def __init__(self, path, dtype):
        self.path, (self.kind, self.dtype) = path, TYPES[dtype]
        self.block = np.random.default_rng(2).standard_normal(BLOCK, dtype=np.float32)
        self.made, self.at = [], 0
        # A file that is there was made by another stage of the same decoder, from the same calls.
        self.file = None if path.is_file() else path.with_suffix(".part").open("wb")

    def add(self, name, shape, scale, shift=0.0):
        count = int(np.prod(shape))
        tensor = TensorProto(name=name, data_type=self.kind, dims=shape, data_location=TensorProto.EXTERNAL)
        length = count * np.dtype(self.dtype).itemsize
        for key, value in (("location", self.path.name), ("offset", self.at), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        if self.file:
            block = (self.block[: min(count, BLOCK)] * np.float32(scale) + np.float32(shift)).astype(self.dtype)
            for begin in range(0, count, BLOCK):
                self.file.write(block[: count - begin].data)
        self.at += length
        self.made.append(tensor)
        return name

    def close(self):
        if self.file:
            self.file.close()
            self.path.with_suffix(".part").rename(self.path)


def angles(size):
    """Cosines and sines of `RotaryEmbedding`, of half a head."""
    frequencies = 1.0 / 10000 ** (np.arange(0, size, 2) / size)
    turned = np.outer(np.arange(POSITIONS), frequencies)
    return np.cos(turned), np.sin(turned)


class Builder:
    """A decoder's nodes, one after the other."""

    def __init__(self, decoder, path, dtype, short_caches):
        self.of, (self.kind, self.dtype) = decoder, TYPES[dtype]
        self.cache_kind = TensorProto.BFLOAT16 if short_caches else self.kind
        self.weights = Weights(path.with_name(f"{decoder.weights}.{dtype}.data"), dtype)
        self.nodes, self.small, self.inputs, self.outputs = [], [], [], []

    def node(self, op, inputs, name, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def constant(self, name, values, dtype=np.int64):
        self.small.append(numpy_helper.from_array(np.asarray(values).astype(dtype), name))
        return name

    def matmul(self, x, name, rows, columns):
        return self.node("MatMul", [x, self.weights.add(f"{name}.w", [rows, columns], rows**-0.5)], name)

    def norm(self, x, name):
        scale = self.weights.add(f"{name}.scale", [self.of.hidden], 0.05, 1.0)
        return self.node("RMSNormalization", [x, scale], name, axis=-1, epsilon=1e-5)

    def heads(self, x, name, count):
        """`[batch, length, count·size]` as `[batch, count, length, size]`."""
        dims = self.constant(f"{name}.dims", [self.of.batch, self.of.length, count, self.of.size])
        return self.node("Transpose", [self.node("Reshape", [x, dims], f"{name}.split")], name, perm=[0, 2, 1, 3])

    def cached(self, x, name):
        """Behind the rows of an input that grows."""
        d = self.of
        for to, rows, side in ((self.inputs, "past", "past"), (self.outputs, "past + 1", "present")):
            dims = [d.batch, d.key_heads, rows, d.size]
            to.append(helper.make_tensor_value_info(f"{side}.{name}", self.cache_kind, dims))
        if self.cache_kind == self.kind:
            return self.node("Concat", [f"past.{name}", x], f"present.{name}", axis=2)
        x = self.node("Cast", [x], f"{name}.short", to=self.cache_kind)
        x = self.node("Concat", [f"past.{name}", x], f"present.{name}", axis=2)
        return self.node("Cast", [x], f"{name}.long", to=self.kind)

    def attention(self, x, at):
        d, keys = self.of, self.of.key_heads
        made = {}
        for name, count in (("q", d.heads), ("k", keys), ("v", keys)):
            wide = self.matmul(x, f"{at}.{name}", d.hidden, count * d.size)
            made[name] = self.heads(wide, f"{at}.{name}.heads", count)
        for name in ("q", "k"):
            made[name] = self.node("RotaryEmbedding", [made[name], "cos", "sin", "position"], f"{at}.{name}.turned")
        if d.past:
            made |= {name: self.cached(made[name], f"{at}.{name}") for name in ("k", "v")}
        y = self.node("Attention", list(made.values()), f"{at}.attention", is_causal=int(not d.past))
        y = self.node("Transpose", [y], f"{at}.rows", perm=[0, 2, 1, 3])
        dims = self.constant(f"{at}.rows.dims", [d.batch, d.length, d.hidden])
        return self.matmul(self.node("Reshape", [y, dims], f"{at}.joined"), f"{at}.o", d.hidden, d.hidden)

    def gated(self, x, at):
        d = self.of
        gate, up = (self.matmul(x, f"{at}.{name}", d.hidden, d.inner) for name in ("gate", "up"))
        gate = self.node("Mul", [gate, self.node("Sigmoid", [gate], f"{at}.sigmoid")], f"{at}.silu")
        return self.matmul(self.node("Mul", [gate, up], f"{at}.gated"), f"{at}.down", d.inner, d.hidden)

    def build(self):
        d = self.of
        for name in ("ids", "position"):
            self.inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, [d.batch, d.length]))
        for name, table in zip(("cos", "sin"), angles(d.size)):
            self.constant(name, table, self.dtype)
        x = self.node("Gather", [self.weights.add("embedding", [d.vocabulary, d.hidden], 0.1), "ids"], "embedded")
        for layer in range(d.layers):
            for part, make in (("mix", self.attention), ("mlp", self.gated)):
                at = f"layer{layer}.{part}"
                x = self.node("Add", [x, make(self.norm(x, f"{at}.norm"), at)], f"{at}.sum")
        last = self.node("Gather", [x, self.constant("last", d.length - 1)], "last_row", axis=1)
        logits = self.matmul(self.norm(last, "norm"), "logits", d.hidden, d.vocabulary)
        self.outputs.insert(0, helper.make_tensor_value_info(logits, self.kind, [d.batch, d.vocabulary]))
        self.weights.close()


def save_decoder(path, decoder, dtype="f32", short_caches=False):
    """The graph of one of a decoder's stages, and its weights if they are not there. Short caches are of bf16, as a run in bf16 keeps them."""
    b = Builder(decoder, path, dtype, short_caches)
    b.build()
    graph = helper.make_graph(b.nodes, "decoder", b.inputs, b.outputs, [*b.small, *b.weights.made])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR), path)
