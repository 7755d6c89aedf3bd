"""Small decoders that GreedySearch, Sampling and BeamSearch of com.microsoft continue texts with.

    python models/generation_ops.py [NAME …]   # writes crates/rlx-onnx/tests/domain_ops/NAME.onnx and .npz, and tests/drawn/

Results are ONNX Runtime's. Where all texts of a greedy search have ended, it stops and leaves the rest of its output as it was allocated: in
each case at least one text comes to its end by max_length, or the prompt does.
"""

import sys

import numpy as np
import onnx
from domain_ops import FOLDER, MS
from microsoft_ops import i32, run
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, HEADS, SIZE, PLACES = 13, 2, 4, 16
HIDDEN = HEADS * SIZE
EOS, PAD = 1, 0
CASES = []


def f(x):
    return np.asarray(x, np.float32)


class Net:
    """A graph under construction."""

    def __init__(self):
        self.nodes, self.weights = [], []

    def add(self, op, inputs, outputs=1, domain="", **attributes):
        names = [f"{op.lower()}_{len(self.nodes)}_{i}" for i in range(outputs)] if isinstance(outputs, int) else outputs
        self.nodes.append(helper.make_node(op, inputs, names, f"{op}_{len(self.nodes)}", domain=domain, **attributes))
        return names[0] if len(names) == 1 else names

    def weight(self, name, array):
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def number(self, *values):
        return self.weight(f"number_{len(self.weights)}", np.array(values if len(values) > 1 else values[0] if values else [], np.int64))

    def list(self, *values):
        return self.weight(f"list_{len(self.weights)}", np.array(values, np.int64))


def heads_apart(net, x):
    x = net.add("Reshape", [x, net.list(0, 0, HEADS, SIZE)])
    return net.add("Transpose", [x], perm=[0, 2, 1, 3])


def plain_attention(net, x, layer, mask):
    """Attention in standard ops: q, k and v, the cache in front, a causal mask and the one of padding."""
    qkv = net.add("MatMul", [x, f"qkv_{layer}"])
    q, k, v = (heads_apart(net, part) for part in net.add("Split", [qkv], 3, axis=-1, num_outputs=3))
    for i, part in enumerate((k, v)):
        before = net.add("Gather", [f"past_{layer}", net.number(i)], axis=0)
        joined = net.add("Concat", [before, part], axis=2)
        k, v = (joined, v) if i == 0 else (k, joined)
    both = [net.add("Unsqueeze", [part, net.list(0)]) for part in (k, v)]
    net.add("Concat", both, [f"present_{layer}"], axis=0)
    scores = net.add("MatMul", [q, net.add("Transpose", [k], perm=[0, 1, 3, 2])])
    length = lambda t: net.add("Squeeze", [net.add("Shape", [t], start=2, end=3), net.list(0)])
    rows, columns = length(q), length(k)
    column = net.add("Range", [net.number(0), columns, net.number(1)])
    row = net.add("Range", [net.add("Sub", [columns, rows]), columns, net.number(1)])
    causal = net.add("LessOrEqual", [column, net.add("Unsqueeze", [row, net.list(1)])])
    own = net.add("Unsqueeze", [net.add("Cast", [mask], to=TensorProto.BOOL), net.list(1, 2)])
    seen = net.add("And", [own, causal])
    scores = net.add("Where", [seen, scores, net.weight(f"low_{layer}", f(-1e4))])
    y = net.add("MatMul", [net.add("Softmax", [scores], axis=-1), v])
    y = net.add("Reshape", [net.add("Transpose", [y], perm=[0, 2, 1, 3]), net.list(0, 0, HIDDEN)])
    return net.add("MatMul", [y, f"out_{layer}"])


def fused_attention(net, x, layer, mask):
    """ONNX Runtime's own Attention, as its optimiser writes it."""
    bias = net.weight(f"bias_{layer}", np.zeros(3 * HIDDEN, np.float32))
    y = net.add("Attention", [x, f"qkv_{layer}", bias, mask, f"past_{layer}"], [f"attended_{layer}", f"present_{layer}"], MS, num_heads=HEADS, unidirectional=1)
    return net.add("MatMul", [y[0], f"out_{layer}"])


def buffer_attention(net, x, layer, mask):
    """The same with one buffer for past and present."""
    bias = net.weight(f"bias_{layer}", np.zeros(3 * HIDDEN, np.float32))
    given = [x, f"qkv_{layer}", bias, mask, f"past_{layer}", "", "past_sequence_length"]
    y = net.add("Attention", given, [f"attended_{layer}", f"present_{layer}"], MS, num_heads=HEADS, unidirectional=1, past_present_share_buffer=1)
    return net.add("MatMul", [y[0], f"out_{layer}"])


def beam_attention(net, x, layer, mask):
    """The same for one token, in a beam search that does not move the caches of texts."""
    bias = net.weight(f"bias_{layer}", np.zeros(3 * HIDDEN, np.float32))
    given = [x, f"qkv_{layer}", bias, mask, f"past_{layer}", "", "past_sequence_length", "beam_width", "cache_indirection"]
    y = net.add("DecoderMaskedSelfAttention", given, [f"attended_{layer}", f"present_{layer}"], MS, num_heads=HEADS, past_present_share_buffer=1)
    return net.add("MatMul", [y[0], f"out_{layer}"])


# What a decoder with these takes behind its caches.
BUFFER = ["past_sequence_length"]
BEAMS = [*BUFFER, "beam_width", "cache_indirection"]
EXTRA = {buffer_attention: BUFFER, beam_attention: BEAMS}


def extra_inputs(names):
    return [helper.make_tensor_value_info(n, TensorProto.INT32, ["batch", "beams", "most"] if n == BEAMS[2] else [1]) for n in names]


def attended(net, q, k, v, mask=None):
    """Softmax attention of heads, and the heads behind each other again."""
    scores = net.add("MatMul", [q, net.add("Transpose", [k], perm=[0, 1, 3, 2])])
    if mask:
        own = net.add("Unsqueeze", [net.add("Cast", [mask], to=TensorProto.BOOL), net.list(1, 2)])
        scores = net.add("Where", [own, scores, net.weight(f"low_{len(net.weights)}", f(-1e4))])
    y = net.add("MatMul", [net.add("Softmax", [scores], axis=-1), v])
    return net.add("Reshape", [net.add("Transpose", [y], perm=[0, 2, 1, 3]), net.list(0, 0, HIDDEN)])


def continued(net, ids, place, layers, past, cross, extra=()):
    """One step of a decoder that looks at an encoder's states: scores, and longer caches, or those of `extra` inputs."""
    x = net.add("Add", [net.add("Gather", ["tokens", ids]), net.add("Gather", ["places", place])])
    for layer in range(layers):
        parts = net.add("Split", [net.add("MatMul", [x, f"qkv_{layer}"])], 3, axis=-1, num_outputs=3)
        presents = [f"present_key_self_{layer}", f"present_value_self_{layer}"]
        if extra:
            given = [*parts, "", "", *past(layer), *extra]
            y = net.add("DecoderMaskedMultiHeadAttention", given, [f"attended_{layer}", *presents], MS, num_heads=HEADS, scale=1.0, past_present_share_buffer=1)[0]
        else:
            q, k, v = (heads_apart(net, part) for part in parts)
            for name, before, part in zip(presents, past(layer), (k, v)):
                net.add("Concat", [before, part], [name], axis=2) if before else net.add("Identity", [part], [name])
            y = attended(net, q, *presents)
        x = net.add("Add", [x, net.add("MatMul", [y, f"out_{layer}"])])
        q = heads_apart(net, net.add("MatMul", [x, f"cross_{layer}"]))
        x = net.add("Add", [x, net.add("MatMul", [attended(net, q, *cross(layer), "encoder_attention_mask"), f"out_{layer}"])])
    net.add("Add", [net.add("MatMul", [x, "vocabulary"]), "bias"], ["logits"])


def text_to_text(layers, states, extra=()):
    """The encoder, which also begins the texts, and the decoder. `states` says whether the decoder is given the encoder's, `extra` what
    else it takes if its caches are buffers."""
    value = helper.make_tensor_value_info
    cache = lambda name, length: value(name, TensorProto.FLOAT, ["batch", HEADS, length, SIZE])
    names = lambda kind, where: [f"{kind}_{part}_{where}_{layer}" for layer in range(layers) for part in ("key", "value")]
    net = Net()
    length = net.add("Squeeze", [net.add("Shape", ["encoder_input_ids"], start=1, end=2), net.list(0)])
    place = net.add("Range", [net.number(0), length, net.number(1)])
    x = net.add("Add", [net.add("Gather", ["tokens", "encoder_input_ids"]), net.add("Gather", ["places", place])])
    net.add("Tanh", [net.add("MatMul", [x, "encode"])], ["encoder_hidden_states"])
    for layer in range(layers):
        both = net.add("Split", [net.add("MatMul", ["encoder_hidden_states", f"keys_{layer}"])], 2, axis=-1, num_outputs=2)
        for part, name in zip(both, names("present", "cross")[2 * layer :]):
            net.add("Identity", [heads_apart(net, part)], [name])
    cross = lambda kind: lambda layer: [f"{kind}_key_cross_{layer}", f"{kind}_value_cross_{layer}"]
    continued(net, "decoder_input_ids", net.list(0), layers, lambda _: (None, None), cross("present"))
    given = [value(n, TensorProto.INT32, ["batch", s]) for n, s in (("encoder_input_ids", "length"), ("encoder_attention_mask", "length"), ("decoder_input_ids", 1))]
    hidden = value("encoder_hidden_states", TensorProto.FLOAT, ["batch", "length", HIDDEN])
    logits = value("logits", TensorProto.FLOAT, ["batch", 1, VOCABULARY])
    caches = [cache(n, 1) for n in names("present", "self")] + [cache(n, "length") for n in names("present", "cross")]
    encoder = helper.make_graph(net.nodes, "encoder", given, [logits, hidden, *caches], net.weights)
    net = Net()
    place = net.add("Cast", [BUFFER[0]], to=TensorProto.INT64) if extra else net.add("Shape", ["past_key_self_0"], start=2, end=3)
    continued(net, "input_ids", place, layers, lambda i: (f"past_key_self_{i}", f"past_value_self_{i}"), cross("past"), extra)
    given = [value("input_ids", TensorProto.INT32, ["batch", 1]), value("encoder_attention_mask", TensorProto.INT32, ["batch", "length"])]
    given += [hidden] * states + [cache(n, "past") for n in names("past", "self")] + [cache(n, "length") for n in names("past", "cross")] + extra_inputs(extra)
    results = [logits] + [cache(n, "total") for n in names("present", "self")]
    return encoder, helper.make_graph(net.nodes, "decoder", given, results, net.weights)


def weights(layers, seed, ends, encoder=False):
    """Weights of a decoder, and of an encoder; `ends` is added to the scores of the token that ends a text."""
    random = np.random.default_rng(seed)
    all = {"tokens": random.normal(size=(VOCABULARY, HIDDEN)), "places": random.normal(size=(PLACES, HIDDEN)) * 0.7, "vocabulary": random.normal(size=(HIDDEN, VOCABULARY)) * 0.8}
    for layer in range(layers):
        all[f"qkv_{layer}"] = random.normal(size=(HIDDEN, 3 * HIDDEN)) * 0.7
        all[f"out_{layer}"] = random.normal(size=(HIDDEN, HIDDEN)) * 0.7
    for layer in range(layers if encoder else 0):
        all[f"keys_{layer}"] = random.normal(size=(HIDDEN, 2 * HIDDEN)) * 0.9
        all[f"cross_{layer}"] = random.normal(size=(HIDDEN, HIDDEN)) * 0.9
        all["encode"] = random.normal(size=(HIDDEN, HIDDEN))
    bias = np.zeros(VOCABULARY)
    bias[EOS] = ends
    return {**all, "bias": bias}


def decoder(layers, attention, name="decoder"):
    """input_ids, position_ids, attention_mask, past_0, … → logits, present_0, …"""
    net = Net()
    x = net.add("Add", [net.add("Gather", ["tokens", "input_ids"]), net.add("Gather", ["places", "position_ids"])])
    for layer in range(layers):
        x = net.add("Add", [x, attention(net, x, layer, "attention_mask")])
    net.add("Add", [net.add("MatMul", [x, "vocabulary"]), "bias"], ["logits"])
    value = helper.make_tensor_value_info
    given = [value(n, TensorProto.INT32, ["batch", "length"]) for n in ("input_ids", "position_ids")]
    given.append(value("attention_mask", TensorProto.INT32, ["batch", "total"]))
    given += [value(f"past_{i}", TensorProto.FLOAT, [2, "batch", HEADS, "past", SIZE]) for i in range(layers)]
    given += extra_inputs(EXTRA.get(attention, []))
    results = [value("logits", TensorProto.FLOAT, ["batch", "length", VOCABULARY])]
    results += [value(f"present_{i}", TensorProto.FLOAT, [2, "batch", HEADS, "total", SIZE]) for i in range(layers)]
    return helper.make_graph(net.nodes, name, given, results, net.weights)


def drawn():
    """A Sampling, and how often it gives each token behind one prompt, by the definition. ONNX Runtime draws other tokens, as often."""
    ids, seed, ends, temperature, share = np.array([[6, 2, 8, 5]], np.int32), 4, -40.0, 6.0, 0.9
    graph = decoder(1, plain_attention)
    graph.initializer.extend(numpy_helper.from_array(f(a), n) for n, a in weights(1, seed, ends).items())
    feeds = {"input_ids": ids, "position_ids": i32([0, 1, 2, 3]), "attention_mask": np.ones_like(ids), "past_0": f(np.zeros((2, 1, HEADS, 0, SIZE)))}
    scores = run(model_of(graph), feeds)[0][0, -1].astype(np.float64) / temperature
    probabilities = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    order = np.argsort(probabilities)
    probabilities[order[np.cumsum(probabilities[order]) <= 1 - share]] = 0
    probabilities /= probabilities.sum()
    outer = [numpy_helper.from_array(i32(5), "max_length"), numpy_helper.from_array(i32(7), "seed")]
    names = ["input_ids", "max_length", *[""] * 6, "seed"]
    attributes = {"eos_token_id": EOS, "pad_token_id": PAD, "temperature": temperature, "top_p": share, "min_tokens_to_keep": 1}
    node = helper.make_node("Sampling", names, ["sequences"], "search", domain=MS, decoder=graph, **attributes)
    given = helper.make_tensor_value_info("input_ids", TensorProto.INT32, ["batch", 4])
    model = model_of(helper.make_graph([node], "Sampling", [given], [onnx.ValueInfoProto(name="sequences")], outer))
    rows = 4096
    found = run(model, {"input_ids": np.repeat(ids, rows, 0)})[0][:, 4]
    counts = np.bincount(found, minlength=VOCABULARY)
    spread = np.sqrt(rows * probabilities * (1 - probabilities))
    assert (np.abs(counts - rows * probabilities) <= 5 * spread).all(), (counts, rows * probabilities)
    print("drawn", (rows * probabilities).round(1), counts)
    folder = FOLDER.parent / "drawn"
    folder.mkdir(exist_ok=True)
    (folder / "sampling.onnx").write_bytes(model.SerializeToString())
    np.savez(folder / "sampling.npz", in_input_ids=ids, out_probabilities=f(probabilities))


def model_of(graph):
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)], ir_version=10)


def case(name, op, ids, longest, operands=(), outputs=("sequences",), layers=1, attention=plain_attention, seed=0, ends=0.0, inside=False, first=None, dims=None, encoder=False, **attributes):
    """`operands` are those behind max_length; arrays of shape () or (1,) are fixed, as the others are."""
    CASES.append((name, op, ids, longest, operands, outputs, layers, attention, seed, ends, inside, first, dims, encoder, attributes))


def model_for(op, ids, longest, operands, outputs, layers, attention, seed, ends, inside, first, dims, encoder, attributes):
    extra = encoder if isinstance(encoder, list) else []
    coder, graph = text_to_text(layers, encoder == "states", extra) if encoder else (None, decoder(layers, attention))
    own = [numpy_helper.from_array(f(a), n) for n, a in weights(layers, seed, ends, encoder).items()]
    outer = [numpy_helper.from_array(i32(longest), "max_length")]
    (graph.initializer if inside else outer).extend(own)
    names = ["input_ids", "max_length"]
    for i, array in enumerate(operands):
        names.append("" if array is None else f"i{i + 2}")
        if array is not None:
            outer.append(numpy_helper.from_array(np.asarray(array), names[-1]))
    graphs = {"decoder": graph, "model_type": int(bool(encoder))} | ({"encoder": coder} if coder else {})
    if first:
        graphs["init_decoder"] = decoder(layers, first, "init_decoder")
    node = helper.make_node(op, names, outputs, "search", domain=MS, **{"eos_token_id": EOS, "pad_token_id": PAD}, **graphs, **attributes)
    results = [onnx.ValueInfoProto(name=n) for n in outputs if n]
    given = helper.make_tensor_value_info("input_ids", TensorProto.INT32, dims or ids.shape)
    return model_of(helper.make_graph([node], op, [given], results, outer))


def write(name, op, ids, longest, operands, outputs, layers, attention, seed, ends, inside, first, dims, encoder, attributes):
    ids = np.asarray(ids, np.int32)
    case_of = lambda *about: model_for(op, ids, longest, operands, outputs, layers, about[0], seed, ends, inside, about[1], dims, about[2], attributes)
    model = case_of(attention, first, encoder)
    # Decoders with buffers are for GPUs there: on the CPU it gives the results of those whose caches grow.
    grows = lambda attention: fused_attention if attention in EXTRA else attention
    growing = case_of(grows(attention), grows(first), "plain" if isinstance(encoder, list) else encoder)
    found = run(growing, {"input_ids": ids})
    (FOLDER / f"{name}.onnx").write_bytes(model.SerializeToString())
    np.savez(FOLDER / f"{name}.npz", in_input_ids=ids, **{f"out_{n}": a for n, a in zip([n for n in outputs if n], found)})
    print(name, *(a.tolist() if a.ndim < 4 else a.shape for a in found), sep="\n  ")


ONE = [[5, 7, 3]]
# Padded in front.
TWO = [[PAD, PAD, 4, 9], [6, 2, 8, 5]]


def mask(*out):
    """All tokens but these."""
    kept = np.ones(VOCABULARY, np.int32)
    kept[list(out)] = 0
    return kept


GREEDY = "GreedySearch"
case("greedy", GREEDY, ONE, 9)
case("greedy_padded", GREEDY, TWO, 10, seed=1, inside=True)
case("greedy_attention", GREEDY, TWO, 10, layers=2, attention=fused_attention, seed=2)
case("greedy_open", GREEDY, TWO, 12, seed=3, dims=["batch", "length"])
case("greedy_one_token", GREEDY, ONE, 4)
case("greedy_ends", GREEDY, TWO, 9, seed=4, ends=1.5)
case("greedy_first_decoder", GREEDY, TWO, 9, seed=5, first=fused_attention)
case("greedy_repetition", GREEDY, TWO, 12, [None, f([1.7])], seed=6, ends=-40.0)
case("greedy_ngrams", GREEDY, ONE, 12, seed=7, ends=-40.0, no_repeat_ngram_size=2)
case("greedy_ngrams_of_one", GREEDY, ONE, 9, seed=7, ends=-40.0, no_repeat_ngram_size=1)
case("greedy_masks", GREEDY, TWO, 9, [i32(8), None, mask(3, 7), np.stack([mask(2, 4, 6), mask(11, 12)]), np.array([[0, 0, 1, 1], [0, 1, 1, 1]], np.int32)], seed=8, ends=2.0)

DRAWN = "Sampling"
case("sampling_best", DRAWN, TWO, 9, [None] * 6 + [i32(3)], seed=9, ends=-40.0, top_p=0.01, min_tokens_to_keep=1, temperature=0.7)
# ONNX Runtime takes the penalties of all tokens from the first one's score: here that is the only token with a penalty.
PRESENT = np.zeros((2, VOCABULARY), np.int32)
PRESENT[0, 0] = 1
case("sampling_custom", DRAWN, TWO, 9, [None] * 5 + [PRESENT, i32(3)], seed=10, ends=-40.0, top_p=0.01, custom=1, presence_penalty=9.5)

BEAM = "BeamSearch"
ALL = ("sequences", "sequences_scores", "scores")
# ONNX Runtime asks for the least length and the power of lengths, too.
case("beam", BEAM, ONE, 8, [i32(0), i32(3), i32(3), f([1.0]), f([1.0])], ALL, seed=11, ends=-40.0)
case("beam_one", BEAM, ONE, 8, [i32(0), i32(1), i32(1), f([1.0])], seed=11)
case("beam_batch", BEAM, TWO, 10, [i32(0), i32(4), i32(2), f([1.0])], ALL[:2], seed=12, layers=2, attention=fused_attention)
case("beam_ends", BEAM, TWO, 11, [i32(0), i32(3), i32(3), f([0.6])], ALL[:2], seed=39, ends=5.0)
case("beam_ends_all", BEAM, TWO, 11, [i32(0), i32(3), i32(3), f([0.6])], ALL[:2], seed=45, ends=9.0)
case("beam_stops_early", BEAM, TWO, 11, [i32(0), i32(3), i32(2), f([2.0])], ALL[:2], seed=33, ends=5.0, early_stopping=1)
case("beam_open", BEAM, TWO, 9, [i32(0), i32(2), i32(2), f([1.0])], ALL[:2], seed=14, ends=1.0, dims=["batch", "length"])
case("beam_masks", BEAM, TWO, 10, [i32(8), i32(3), i32(1), f([1.0]), f([1.4]), mask(3, 7), np.stack([mask(2, 4, 6), mask(11, 12)]), np.array([[0, 0, 1, 1], [0, 1, 1, 1]], np.int32)], ALL[:2], seed=15, ends=1.0, no_repeat_ngram_size=3)

# Decoders behind encoders, as those of T5 and BART.
case("beam_of_encoder", BEAM, TWO, 8, [i32(0), i32(3), i32(3), f([1.0]), f([1.0])], ALL, seed=61, encoder="states", decoder_start_token_id=PAD, ends=-40.0)
case("beam_of_encoder_ends", BEAM, TWO, 9, [i32(0), i32(3), i32(2), f([0.7])], ALL[:2], seed=62, ends=5.0, layers=2, encoder="plain", decoder_start_token_id=2)
case("beam_of_encoder_masked", BEAM, TWO, 9, [i32(5), i32(2), i32(1), f([1.0]), f([1.3]), mask(3), None, np.array([[0, 1, 1, 1], [1, 1, 1, 0]], np.int32)], ALL[:2], seed=63, ends=4.0, encoder="plain", decoder_start_token_id=2, no_repeat_ngram_size=2, dims=["batch", "length"])

# Decoders whose caches are buffers.
case("greedy_buffer", GREEDY, TWO, 10, layers=2, attention=buffer_attention, seed=2, ends=-40.0)
case("greedy_buffer_first_decoder", GREEDY, TWO, 10, attention=beam_attention, first=buffer_attention, seed=5, ends=-40.0, dims=["batch", "length"])
case("beam_buffer", BEAM, TWO, 10, [i32(0), i32(4), i32(2), f([1.0])], ALL[:2], seed=12, layers=2, attention=buffer_attention)
case("beam_buffer_indirect", BEAM, TWO, 10, [i32(0), i32(4), i32(4), f([1.0])], ALL[:2], seed=12, layers=2, attention=beam_attention, first=buffer_attention)
case("beam_buffer_indirect_ends", BEAM, TWO, 11, [i32(0), i32(3), i32(3), f([0.6])], ALL[:2], seed=39, ends=5.0, attention=beam_attention, first=fused_attention, dims=["batch", "length"])
case("beam_of_encoder_buffer", BEAM, TWO, 9, [i32(0), i32(3), i32(2), f([0.7])], ALL[:2], seed=62, ends=5.0, layers=2, encoder=BEAMS, decoder_start_token_id=2)
case("beam_of_encoder_buffer_moved", BEAM, TWO, 8, [i32(0), i32(3), i32(3), f([1.0]), f([1.0])], ALL, seed=61, encoder=BUFFER, decoder_start_token_id=PAD, ends=-40.0)

if __name__ == "__main__":
    for one in CASES:
        if len(sys.argv) > 1 and one[0] not in sys.argv[1:]:
            continue
        write(*one)
    if len(sys.argv) == 1 or "drawn" in sys.argv[1:]:
        drawn()
    print(len(CASES), "cases")
