"""Small models of the domain com.microsoft with several operands, forms and outputs.

    python models/microsoft_ops.py        # writes crates/rlx-onnx/tests/domain_ops/NAME.onnx and .npz

Results are ONNX Runtime's. Ops that it builds for GPUs only have what NumPy gives by their definition.
"""

import math
import sys

import numpy as np
import onnx
import onnxruntime
from domain_ops import FOLDER, MS, f, floats, i8, u8
from onnx import TensorProto, helper

RANDOM = np.random.default_rng(11)


def i32(*values):
    return np.array(values, np.int32)


def i64(*values):
    return np.array(values, np.int64)


def ids(*shape, end):
    return RANDOM.integers(0, end, shape)


def tables(positions, half):
    """Cosines and sines of rotary positions."""
    angle = np.arange(positions)[:, None] / 10 ** (np.arange(half) / half)
    return [f(np.cos(angle)), f(np.sin(angle))]


def packed(values, bits):
    """Integers packed into bytes along the last dimension, low bits first; the last byte is filled with zeros."""
    count = 8 // bits
    short = -values.shape[-1] % count
    values = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, short)]).astype(np.uint8)
    values = values.reshape(*values.shape[:-1], -1, count)
    return np.bitwise_or.reduce(values << (np.arange(count, dtype=np.uint8) * bits), axis=-1).astype(np.uint8)


def blocks(n, k, size, bits, zeros=False):
    """Weights, scales and zero points of a MatMulNBits."""
    count = -(-k // size)
    q = RANDOM.integers(0, 2**bits, (n, count, size))
    scales = f(RANDOM.uniform(0.01, 0.1, n * count))
    z = packed(RANDOM.integers(0, 2**bits, (n, count)), bits).reshape(-1) if zeros else None
    return [packed(q, bits), scales, z]


CASES = []


def case(name, op, operands, attributes=None, outputs=1, inputs=(0,), reference=None, domain=MS):
    """`outputs` is a number or the names of the outputs, "" for one that is left out."""
    names = [f"y{i}" for i in range(outputs)] if isinstance(outputs, int) else list(outputs)
    CASES.append((name, domain, op, operands, attributes or {}, names, inputs, reference))


# Weights in blocks


def nbits(name, n, k, size, bits, zeros=None, g_idx=False, bias=False, batch=(3,), **more):
    w, scales, z = blocks(n, k, size, bits, zeros == "packed")
    if zeros == "float":
        z = f(RANDOM.uniform(0, 2**bits, scales.shape[0]))
    groups = RANDOM.permutation(np.arange(k) // size).astype(np.int32) if g_idx else None
    operands = [floats(*batch, k), w, scales, z, groups, floats(n) if bias else None]
    attributes = {"N": n, "K": k, "block_size": size, "bits": bits, "accuracy_level": 1, **more}
    case(name, "MatMulNBits", operands, attributes)


nbits("matmul_4bits", 8, 64, 32, 4)
nbits("matmul_4bits_zeros", 8, 96, 32, 4, "packed", batch=(2, 3))
nbits("matmul_4bits_short", 5, 40, 16, 4, "packed", bias=True)
nbits("matmul_4bits_float_zeros", 4, 64, 16, 4, "float")
nbits("matmul_4bits_groups", 4, 64, 16, 4, g_idx=True)
nbits("matmul_4bits_large", 96, 128, 32, 4, "packed")
nbits("matmul_8bits", 8, 64, 32, 8)
nbits("matmul_8bits_zeros", 6, 64, 16, 8, "packed", bias=True)
nbits("matmul_2bits", 8, 64, 16, 2, "packed")

for kind in (0, 1):
    codes = RANDOM.integers(0, 16, 8 * 64)
    data = ((codes[0::2] << 4) | codes[1::2]).astype(np.uint8)
    case(f"matmul_bnb4_{kind}", "MatMulBnb4", [floats(3, 64), data, f(RANDOM.uniform(0.1, 1, 8 * 64 // 16))], {"K": 64, "N": 8, "block_size": 16, "quant_type": kind})

ROWS = {"gather_axis": 0, "quantize_axis": 1, "block_size": 16}
case("gather_blocks_4bits", "GatherBlockQuantized", [packed(ids(6, 48, end=16), 4), i64([2, 0], [5, 3]), f(RANDOM.uniform(0.1, 1, (6, 3)))], ROWS | {"bits": 4}, inputs=(1,))
case("gather_blocks_4bits_zeros", "GatherBlockQuantized", [packed(ids(6, 48, end=16), 4), i64(2, 0, 5), f(RANDOM.uniform(0.1, 1, (6, 3))), packed(ids(6, 3, end=16), 4)], ROWS | {"bits": 4}, inputs=(1,))
case("gather_blocks_8bits", "GatherBlockQuantized", [u8(6, 32), i32(2, 0, 5), f(RANDOM.uniform(0.1, 1, (6, 2))), u8(6, 2)], ROWS | {"bits": 8}, inputs=(1,))


def nibbles(values, kind):
    """A tensor of 4-bit integers."""
    return helper.make_tensor("w", kind, values.shape, packed(values.reshape(-1) & 15, 4).tobytes(), raw=True)


case("gather_blocks_int4", "GatherBlockQuantized", [nibbles(ids(6, 32, end=16), TensorProto.INT4), i64([2], [4]), f(RANDOM.uniform(0.1, 1, (6, 2)))], ROWS, inputs=(1,))
case("gather_blocks_uint4_columns", "GatherBlockQuantized", [nibbles(ids(3, 40, end=16), TensorProto.UINT4), i64(39, 2, 17), f(RANDOM.uniform(0.1, 1, (3, 3))), nibbles(ids(3, 3, end=16), TensorProto.UINT4)], {"gather_axis": 1, "quantize_axis": 1, "block_size": 16}, inputs=(1,))
case("gather_blocks_uint4_across", "GatherBlockQuantized", [nibbles(ids(32, 6, end=16), TensorProto.UINT4), i64(1, 5), f(RANDOM.uniform(0.1, 1, (2, 6)))], {"gather_axis": 1, "quantize_axis": 0, "block_size": 16}, inputs=(1,))

# Attention

ALL = {"num_heads": 2, "kv_num_heads": 1}
CACHE = ["y", "present_key", "present_value"]


def grouped(name, batch, length, past, lengths, heads=(4, 2), size=16, packed_qkv=False, rotary=None, capacity=None, extra=(), outputs=CACHE, **attributes):
    q, kv = heads
    total = max(lengths)
    if packed_qkv:
        operands = [floats(batch, length, (q + 2 * kv) * size), None, None]
    else:
        operands = [floats(batch, length, q * size), floats(batch, length, kv * size), floats(batch, length, kv * size)]
    rows = past if capacity is None else capacity
    cache = [floats(batch, kv, rows, size), floats(batch, kv, rows, size)]
    for b, n in enumerate(lengths):
        for c in cache:
            c[b, :, max(n - length, 0) :] = 0
    operands += [*cache, i32(*[n - 1 for n in lengths]), np.array(total, np.int32)]
    operands += tables(32, rotary) if rotary else [None, None]
    operands += extra
    attributes = {"num_heads": q, "kv_num_heads": kv, **attributes}
    if rotary:
        attributes["do_rotary"] = 1
    given = tuple(i for i in (0, 1, 2, 3, 4, 5) if operands[i] is not None)
    case(name, "GroupQueryAttention", operands, attributes, outputs, given)


grouped("gqa_prefill", 2, 5, 0, [5, 5])
grouped("gqa_prefill_padded_rotary", 2, 5, 0, [5, 5], rotary=8)
grouped("gqa_decode", 2, 1, 6, [7, 7])
grouped("gqa_decode_ragged", 2, 1, 6, [7, 4], rotary=8)
grouped("gqa_decode_buffer", 1, 1, 6, [7], rotary=8, capacity=12)
grouped("gqa_decode_buffer_ragged", 2, 1, 6, [7, 3], rotary=8, capacity=12)
grouped("gqa_packed_rotary", 1, 4, 0, [4], packed_qkv=True, rotary=8)
grouped("gqa_packed_interleaved", 1, 1, 3, [4], packed_qkv=True, rotary=8, rotary_interleaved=1)
grouped("gqa_partly_rotary", 1, 3, 0, [3], rotary=8, size=32)
grouped("gqa_chunk", 1, 3, 4, [7], rotary=8)
grouped("gqa_window_prefill", 1, 7, 0, [7], local_window_size=3)
grouped("gqa_window_decode", 1, 1, 8, [9], local_window_size=4)
grouped("gqa_softcap", 1, 4, 2, [6], softcap=5.0)
grouped("gqa_scale", 1, 4, 0, [4], scale=0.3)
grouped("gqa_smooth", 1, 4, 2, [6], smooth_softmax=1)
grouped("gqa_sink", 1, 4, 2, [6], extra=[None, None, floats(4)])
grouped("gqa_bias", 2, 1, 4, [5, 5], extra=[None, floats(1, 4, 1, 5)])
grouped("gqa_bias_softcap", 1, 1, 4, [5], extra=[None, floats(1, 4, 1, 5)], softcap=3.0)
grouped("gqa_positions", 1, 3, 0, [3], rotary=8, extra=[i64([0, 1, 2])])
grouped("gqa_scores", 1, 3, 2, [5], outputs=[*CACHE, "qk"], qk_output=1)
grouped("gqa_weights", 1, 3, 2, [5], outputs=[*CACHE, "qk"], qk_output=2)
grouped("gqa_whole", 1, 3, 0, [3], causal=0)

QKV = [floats(2, 4, 16), floats(2, 6, 16), floats(2, 6, 16)]
HEADS = {"num_heads": 4}


def multi(name, operands, attributes=None, outputs=1, inputs=(0, 1, 2), op="MultiHeadAttention", reference=None):
    case(name, op, operands, HEADS | (attributes or {}), outputs, inputs, reference)


multi("mha_cross", QKV)
multi("mha_bias", [*QKV, floats(48)])
multi("mha_values_wider", [QKV[0], QKV[1], floats(2, 6, 24), floats(56)])
multi("mha_lengths", [*QKV, None, i32(3, 6)])
multi("mha_mask", [*QKV, floats(48), ids(2, 6, end=2).astype(np.int32)])
multi("mha_mask_of_queries", [*QKV, None, ids(2, 4, 6, end=2).astype(np.int32)])
multi("mha_nothing_seen", [*QKV, None, np.zeros((2, 6), np.int32)], {"mask_filter_value": -50.0})
multi("mha_added", [*QKV, None, None, floats(2, 1, 4, 6)], {"scale": 0.4})
multi("mha_added_mask", [*QKV, None, ids(2, 6, end=2).astype(np.int32), floats(1, 4, 4, 6)])
multi("mha_causal", [QKV[0], floats(2, 4, 16), floats(2, 4, 16)], {"unidirectional": 1})
multi("mha_keys_apart", [QKV[0], floats(2, 4, 6, 4), floats(2, 4, 6, 4)])
multi("mha_present", QKV, None, CACHE)
PAST = [floats(2, 4, 3, 4), floats(2, 4, 3, 4)]
NEW = [floats(2, 2, 16), floats(2, 2, 16), floats(2, 2, 16)]
multi("mha_past", [*NEW, floats(48), None, None, *PAST], {"unidirectional": 1}, CACHE, (0, 1, 2, 6, 7))
multi("mha_past_mask", [*NEW, None, ids(2, 5, end=2).astype(np.int32), None, *PAST], None, CACHE, (0, 1, 2, 6, 7))
multi("mha_scores", [*QKV, None, None, None], None, ["y", "", "", "qk"])
ONE = [floats(2, 1, 16), floats(2, 1, 16), floats(2, 1, 16)]
BUFFER = [floats(2, 4, 8, 4), floats(2, 4, 8, 4)]
SHARED = {"past_present_share_buffer": 1}
multi("mha_decoder", [*ONE, None, None, *BUFFER, i32(5)], SHARED, CACHE, (0, 1, 2, 5, 6, 7), "DecoderMaskedMultiHeadAttention")
multi("mha_decoder_masked", [*ONE, ids(2, 6, end=2).astype(np.int32), None, *BUFFER, i32(5), None, None, floats(48)], SHARED, CACHE, (0, 1, 2, 5, 6, 7), "DecoderMaskedMultiHeadAttention")
multi("mha_decoder_cross", [ONE[0], floats(2, 4, 6, 4), floats(2, 4, 6, 4), ids(2, 6, end=2).astype(np.int32)], {"output_qk": 1}, ["y", "", "", "qk"], (0, 1, 2), "DecoderMaskedMultiHeadAttention")


def attend(q, k, v, heads, seen=None, added=0.0):
    """Softmax attention of `[batch, length, heads·size]`."""
    apart = [x.astype(np.float64).reshape(*x.shape[:2], heads, -1).swapaxes(1, 2) for x in (q, k, v)]
    scores = apart[0] @ apart[1].swapaxes(2, 3) / math.sqrt(apart[0].shape[-1]) + added
    if seen is not None:
        scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    y = weights / weights.sum(-1, keepdims=True) @ apart[2]
    return f(y.swapaxes(1, 2).reshape(*q.shape[:2], -1))


LONG = [floats(2, 5, 4, 3, 4), floats(2, 3, 16), floats(2, 5, 4, 2, 4)]
flat = lambda x, i: x[:, :, :, i].reshape(2, 5, 16)
multi("mha_all_in_one", [LONG[0]], inputs=(0,), reference=lambda x: [attend(flat(x, 0), flat(x, 1), flat(x, 2), 4)])
multi("mha_keys_with_values", [LONG[1], LONG[2]], inputs=(0, 1), reference=lambda q, x: [attend(q, flat(x, 0), flat(x, 1), 4)])

FUSED = [floats(2, 4, 12), floats(12, 48), floats(48)]


def fused(name, rest, attributes=None, outputs=1, inputs=(0,), operands=FUSED):
    case(name, "Attention", [*operands, *rest], {"num_heads": 4} | (attributes or {}), outputs, inputs)


fused("attention", [])
fused("attention_lengths", [i32(2, 4)])
fused("attention_ends_and_starts", [i32(4, 3, 1, 0)])
fused("attention_mask", [ids(2, 4, end=2).astype(np.int32)])
fused("attention_mask_of_queries", [ids(2, 4, 4, end=2).astype(np.int32)], {"mask_filter_value": -20.0})
fused("attention_causal", [], {"unidirectional": 1, "scale": 0.3})
fused("attention_causal_mask", [ids(2, 4, end=2).astype(np.int32)], {"unidirectional": 1})
fused("attention_added", [None, None, floats(1, 4, 4, 4)])
fused("attention_past", [None, floats(2, 2, 4, 3, 4)], {"unidirectional": 1}, ["y", "present"], (0, 4))
fused("attention_past_mask", [ids(2, 7, end=2).astype(np.int32), floats(2, 2, 4, 3, 4)], None, ["y", "present"], (0, 4))
fused("attention_widths", [], {"qkv_hidden_sizes": [16, 16, 8]}, operands=[FUSED[0], floats(12, 40), floats(40)])
case("attention_quantized", "QAttention", [u8(2, 4, 12), i8(12, 48), floats(48), f(0.02), f(0.03), i32(3, 4), np.uint8(120), np.int8(2)], {"num_heads": 4})
case("attention_quantized_columns", "QAttention", [u8(2, 4, 12), i8(12, 48), floats(48), f(0.02), f(RANDOM.uniform(0.01, 0.03, 48)), None, np.uint8(120), i8(48), floats(2, 2, 4, 3, 4)], {"num_heads": 4, "unidirectional": 1}, ["y", "present"], (0, 8))

LENGTHS, STARTS = [3, 1, 4], i32(0, 3, 4, 8)
PLACE = np.array([(b, i) for b, n in enumerate(LENGTHS) for i in range(n)])


def packed_attention(q, k, v, added=None):
    same = PLACE[:, None, 0] == PLACE[None, :, 0]
    if added is None:
        added = np.zeros((1, 1, 4, 4))
    sequence = PLACE[:, 0] if added.shape[0] > 1 else 0 * PLACE[:, 0]
    bias = added[sequence[:, None], :, PLACE[:, None, 1], PLACE[None, :, 1]].transpose(2, 0, 1)
    return attend(q[None], k[None], v[None], 2, same, bias)[0]


def packed_fused(x, w, b, _offsets, _starts, *added):
    q, k, v = np.split(x @ w + b, 3, 1)
    return [packed_attention(q, k, v, *added)]


def packed_multi(q, k, v, bias, _offsets, _starts, *added):
    q, k, v = (x + b for x, b in zip((q, k, v), np.split(bias, 3)))
    return [packed_attention(q, k, v, *added)]


OFFSETS = np.arange(12, dtype=np.int32).reshape(3, 4)
TOKENS = [floats(8, 6), floats(6, 24), floats(24)]
case("packed_attention", "PackedAttention", [*TOKENS, OFFSETS, STARTS], {"num_heads": 2}, inputs=(0, 4), reference=packed_fused)
case("packed_attention_added", "PackedAttention", [*TOKENS, OFFSETS, STARTS, floats(3, 2, 4, 4)], {"num_heads": 2}, inputs=(0, 4), reference=packed_fused)
case("packed_mha", "PackedMultiHeadAttention", [floats(8, 8), floats(8, 8), floats(8, 8), floats(24), OFFSETS, STARTS, floats(1, 2, 4, 4)], {"num_heads": 2}, inputs=(0, 1, 2, 5), reference=packed_multi)


def block_mask(layouts):
    rows = np.concatenate([np.zeros((len(layouts), 1), np.int64), np.cumsum(layouts.sum(2), 1)], 1)
    columns = np.full((len(layouts), int(layouts.sum((1, 2)).max())), -1)
    for i, layout in enumerate(layouts):
        found = np.nonzero(layout)[1]
        columns[i, : len(found)] = found
    return [rows.astype(np.int32), columns.astype(np.int32)]


LAYOUTS = np.tril(np.stack([np.eye(3), np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1]])])).astype(np.int64)


def sparse(name, length, total, rotary=None):
    cache = [floats(1, 2, 48, 16), floats(1, 2, 48, 16)]
    for c in cache:
        c[:, :, total - length :] = 0
    operands = [floats(1, length, 64), floats(1, length, 32), floats(1, length, 32), *cache, *block_mask(LAYOUTS), np.array(total, np.int32).reshape(1), i32(total)]
    operands += tables(48, rotary) if rotary else []
    case(name, "SparseAttention", operands, {"num_heads": 4, "kv_num_heads": 2, "sparse_block_size": 16, "do_rotary": int(bool(rotary))}, CACHE, (0, 1, 2, 3, 4, 8))


sparse("sparse_attention", 36, 36)
sparse("sparse_attention_decode", 1, 40, 8)

case("rotary", "RotaryEmbedding", [floats(2, 3, 16), i64([0, 1, 2], [4, 5, 6]), *tables(8, 4)], inputs=(0, 1))
case("rotary_heads", "RotaryEmbedding", [floats(2, 3, 16), i64(3), *tables(8, 2)], {"num_heads": 2, "rotary_embedding_dim": 4, "interleaved": 1}, inputs=(0, 1))
case("rotary_apart", "RotaryEmbedding", [floats(2, 2, 3, 8), i64(2), *tables(8, 4)], inputs=(0, 1))

# Norms

EMBED = [ids(2, 4, end=9).astype(np.int32), ids(2, 4, end=2).astype(np.int32), floats(9, 8), floats(6, 8), floats(2, 8), floats(8), floats(8)]
case("embed_layer_norm", "EmbedLayerNormalization", [*EMBED, np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)], {"epsilon": 1e-5}, ["y", "mask", "sum"], (0, 1, 7))
case("embed_layer_norm_plain", "EmbedLayerNormalization", [EMBED[0], None, EMBED[2], EMBED[3], None, EMBED[5], EMBED[6]], {}, ["y", "mask"])
case("embed_layer_norm_positions", "EmbedLayerNormalization", [EMBED[0], None, EMBED[2], EMBED[3], None, EMBED[5], EMBED[6], None, ids(2, 4, end=6).astype(np.int32)], {}, 2, (0, 8))
SCALES, ZEROS = [f(0.02), f(0.01), f(0.03), f(0.02), f(0.01)], [np.uint8(n) for n in (120, 130, 128, 3, 110)]
case("quantized_embed_layer_norm", "QEmbedLayerNormalization", [*EMBED[:2], u8(9, 8), u8(6, 8), u8(2, 8), u8(8), u8(8), np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32), *SCALES, *ZEROS], {"epsilon": 1e-5}, 2, (0, 1, 7))


def statistics(x, skip, gamma, beta, bias):
    s = x.astype(np.float64) + skip + bias
    mean, inverse = s.mean(-1, keepdims=True), 1 / np.sqrt(s.var(-1, keepdims=True) + 1e-5)
    return [f((s - mean) * inverse * gamma + beta), f(mean), f(inverse), f(s)]


case("skip_layer_norm_all", "SkipLayerNormalization", [floats(2, 3, 8), floats(2, 3, 8), floats(8), floats(8), floats(8)], {"epsilon": 1e-5}, 4, (0, 1), statistics)
case("skip_layer_norm_shared", "SkipLayerNormalization", [floats(2, 3, 8), floats(3, 8), floats(8), floats(8)], {"epsilon": 1e-5}, ["y", "", "", "s"], (0, 1))
case("skip_rms_norm_bias", "SkipSimplifiedLayerNormalization", [floats(2, 3, 8), floats(2, 3, 8), floats(8), floats(8)], {"epsilon": 1e-5}, ["y", "", "", "s"], (0, 1))


def groups(x, gamma, beta, count, silu):
    n, c = x.shape[0], x.shape[-1]
    g = x.astype(np.float64).reshape(n, -1, count, c // count)
    g = (g - g.mean((1, 3), keepdims=True)) / np.sqrt(g.var((1, 3), keepdims=True) + 1e-5)
    y = g.reshape(x.shape) * gamma + beta
    return f(y / (1 + np.exp(-y)) if silu else y)


def skip_groups(x, gamma, beta, skip, bias):
    s = x + skip.reshape(2, 1, 1, 8) + bias
    return [groups(s, gamma, beta, 4, False), s]


case("group_norm", "GroupNorm", [floats(2, 3, 3, 8), floats(8), floats(8)], {"groups": 4, "activation": 1, "epsilon": 1e-5}, reference=lambda x, g, b: [groups(x, g, b, 4, True)])
case("group_norm_channels_first", "GroupNorm", [floats(2, 8, 3, 3), floats(8), floats(8)], {"groups": 2, "activation": 0, "epsilon": 1e-5, "channels_last": 0}, reference=lambda x, g, b: [groups(x.transpose(0, 2, 3, 1), g, b, 2, False).transpose(0, 3, 1, 2)])
case("skip_group_norm", "SkipGroupNorm", [floats(2, 3, 3, 8), floats(8), floats(8), floats(2, 8), floats(8)], {"groups": 4, "activation": 0, "epsilon": 1e-5}, 2, (0, 3), skip_groups)

# Activations, convolutions, products

ERF = np.vectorize(math.erf)
gelu = lambda x: x * 0.5 * (1 + ERF(x / math.sqrt(2)))
fast_gelu = lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
case("bias_split_gelu", "BiasSplitGelu", [floats(2, 3, 16), floats(16)], reference=lambda x, b: [f((x + b)[..., :8] * gelu((x + b)[..., 8:]))])
case("bias_add", "BiasAdd", [floats(2, 3, 8), floats(8), floats(2, 3, 8)], inputs=(0, 2), reference=lambda x, b, s: [x + b + s])
case("bias_dropout", "BiasDropout", [floats(2, 3, 8), floats(8), floats(2, 3, 8), f(0.5)], outputs=2, inputs=(0, 2), reference=lambda x, b, s, _: [x + b + s, np.ones(x.shape, bool)])
softmax = lambda x: np.exp(x - x.max(-1, keepdims=True)) / np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)
case("bias_softmax", "BiasSoftmax", [floats(2, 3, 4, 5), floats(2, 1, 1, 5)], {"axis": 3, "is_inner_broadcast": 1}, inputs=(0, 1), reference=lambda x, b: [softmax(x + b)])
case("gemm_fast_gelu", "GemmFastGelu", [floats(2, 3, 8), floats(8, 4), floats(4)], reference=lambda x, w, b: [f(fast_gelu(x.astype(np.float64) @ w + b))])
case("transpose_matmul", "TransposeMatMul", [floats(2, 4, 3), floats(2, 5, 4)], {"transA": 1, "transB": 1})
case("fused_matmul_batches", "FusedMatMul", [floats(4, 2, 3), floats(3, 2, 5)], {"transBatchA": 1, "transBatchB": 1}, inputs=(0, 1))
case("fused_matmul_activation", "FusedMatMulActivation", [floats(3, 4), floats(4, 5)], {"activation": "LeakyRelu", "activation_alpha": 0.2}, reference=lambda a, b: [np.where(a @ b < 0, f(0.2) * (a @ b), a @ b)])
for name, op, given in (("clip", "Clip", [-0.5, 1.0]), ("hard_sigmoid", "HardSigmoid", [0.3, 0.4]), ("tanh", "Tanh", [])):
    case(f"fused_conv_{name}", "FusedConv", [floats(1, 2, 5, 5), floats(3, 2, 3, 3), floats(3)], {"activation": op} | ({"activation_params": given} if given else {}))


def nhwc(x, w, b, z=None):
    """ONNX Runtime's own convolution with channels first."""
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1, 0, 1, 0], strides=[2, 1])
    y = np.moveaxis(execute(node, {"x": np.ascontiguousarray(np.moveaxis(x, 3, 1)), "w": w, "b": b}, ["y"])[0], 1, 3)
    return [np.maximum(y + z, 0) if z is not None else y]


WINDOW = {"pads": [1, 0, 1, 0], "strides": [2, 1]}
case("nhwc_conv", "NhwcConv", [floats(1, 5, 6, 2), floats(3, 2, 3, 3), floats(3)], WINDOW, reference=nhwc)
case("nhwc_fused_conv", "NhwcFusedConv", [floats(1, 5, 6, 2), floats(3, 2, 3, 3), floats(3), floats(1, 3, 4, 3)], WINDOW | {"activation": "Relu"}, inputs=(0, 3), reference=nhwc)
case("nhwc_max_pool", "NhwcMaxPool", [u8(2, 5, 6, 3)], {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [0, 1, 0, 1]})
case("nhwc_max_pool_same", "NhwcMaxPool", [i8(1, 5, 6, 2)], {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"})
case("conv_transpose_dynamic_pads", "ConvTransposeWithDynamicPads", [floats(1, 2, 4, 4), floats(2, 3, 3, 3), i64(1, 0, 1, 1), floats(3)], {"strides": [2, 2], "output_padding": [1, 0]})

# Integers

PICTURE = [u8(2, 4, 5, 3), f(0.02), np.uint8(120)]
case("qlinear_conv_last", "QLinearConv", [*PICTURE, i8(4, 3, 3, 3), f([0.01, 0.02, 0.015, 0.03]), np.zeros(4, np.int8), f(0.5), np.uint8(131), i32(100, -50, 0, 20)], {"channels_last": 1, "pads": [1, 1, 1, 1], "strides": [2, 1]})
case("qlinear_conv", "QLinearConv", [u8(2, 3, 4, 5), f(0.02), np.uint8(120), u8(4, 3, 3, 3), f(0.01), np.uint8(128), f(0.5), np.uint8(131)], {"channels_last": 0})
case("qlinear_average_pool_last", "QLinearAveragePool", [*PICTURE, f(0.02), np.uint8(120)], {"channels_last": 1, "kernel_shape": [2, 2]})
case("qlinear_global_average_pool_last", "QLinearGlobalAveragePool", [*PICTURE, f(0.02), np.uint8(131)], {"channels_last": 1})
case("qlinear_where", "QLinearWhere", [ids(2, 5, end=2).astype(bool), u8(2, 5), f(0.02), np.uint8(120), u8(2, 5), f(0.03), np.uint8(100), f(0.025), np.uint8(110)], inputs=(0, 1, 4))
quantize = lambda x, scale, zero: np.clip(np.round(x / scale) + zero, 0, 255).astype(np.uint8)
case("qlinear_reduce_mean", "QLinearReduceMean", [u8(2, 3, 4), f(0.02), np.uint8(120), f(0.013), np.uint8(117)], {"axes": [1], "keepdims": 0}, reference=lambda x, s, z, ys, yz: [quantize(f(s * (x.astype(np.float32) - z)).mean(1), ys, yz)])
case("reduce_sum_integer", "ReduceSumInteger", [i8(2, 3, 4)], {"axes": [2, 1], "keepdims": 1}, reference=lambda x: [x.astype(np.int32).sum((1, 2), keepdims=True).astype(np.int32)])
case("mul_integer", "MulInteger", [u8(2, 3), np.uint8(120), u8(3), np.uint8(7)], inputs=(0, 2), reference=lambda a, za, b, zb: [(a.astype(np.int32) - za) * (b.astype(np.int32) - zb)])

LSTM = [floats(5, 3, 6), i8(2, 6, 16), i8(2, 4, 16), floats(2, 32) * f(0.1), None, floats(2, 3, 4), floats(2, 3, 4), None]
case("quantized_lstm", "DynamicQuantizeLSTM", [LSTM[0], LSTM[1][:1], LSTM[2][:1], LSTM[3][:1], *[None] * 4, f([0.01]), np.array([3], np.int8), f([0.008]), np.array([-2], np.int8)], {"hidden_size": 4}, 3)
case("quantized_lstm_both", "DynamicQuantizeLSTM", [*LSTM, f(RANDOM.uniform(0.005, 0.01, (2, 16))), np.zeros((2, 16), np.int8), f([0.008, 0.007]), np.array([-2, 1], np.int8)], {"hidden_size": 4, "direction": "bidirectional"}, 3, (0, 5, 6))

# Experts

EXPERTS = [floats(5, 8), floats(5, 4), floats(4, 6, 8), floats(4, 6), floats(4, 8, 6), floats(4, 8)]
case("moe", "MoE", EXPERTS, {"k": 2, "activation_type": "gelu", "normalize_routing_weights": 1}, inputs=(0, 1))
case("moe_first", "MoE", [floats(2, 3, 8), floats(6, 4), EXPERTS[2], None, EXPERTS[4]], {"k": 1, "activation_type": "silu"}, inputs=(0, 1))
case("moe_swiglu", "MoE", [*EXPERTS[:2], floats(4, 12, 8), floats(4, 12), *EXPERTS[4:]], {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 2.0}, inputs=(0, 1))
QUANTIZED = [floats(5, 32), floats(5, 4), packed(ids(4, 32, 32, end=16), 4), f(RANDOM.uniform(0.01, 0.1, (4, 32))), floats(4, 32), packed(ids(4, 32, 32, end=16), 4), f(RANDOM.uniform(0.01, 0.1, (4, 32))), floats(4, 32)]
case("qmoe", "QMoE", QUANTIZED, {"k": 2, "activation_type": "silu", "expert_weight_bits": 4, "normalize_routing_weights": 1}, inputs=(0, 1))
case("qmoe_whole", "QMoE", QUANTIZED, {"k": 2, "activation_type": "relu", "expert_weight_bits": 4, "normalize_routing_weights": 0}, inputs=(0, 1))
case("qmoe_blocks", "QMoE", [*QUANTIZED[:3], f(RANDOM.uniform(0.01, 0.1, (4, 32, 2))), None, QUANTIZED[5], f(RANDOM.uniform(0.01, 0.1, (4, 32, 2))), None, None, None, None, u8(4, 32, 1), u8(4, 32, 1)], {"k": 1, "activation_type": "relu", "expert_weight_bits": 4, "normalize_routing_weights": 1, "block_size": 16, "accuracy_level": 1}, inputs=(0, 1))
case("qmoe_bytes", "QMoE", [*QUANTIZED[:2], u8(4, 64, 32), QUANTIZED[3].repeat(2, 1), None, u8(4, 32, 32), QUANTIZED[6], None], {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "expert_weight_bits": 8, "normalize_routing_weights": 1}, inputs=(0, 1))

# Tensors

case("cdist", "CDist", [floats(3, 4), floats(5, 4)], {"metric": "euclidean"}, inputs=(0, 1))
case("cdist_squares", "CDist", [floats(3, 4).astype(np.float64), floats(5, 4).astype(np.float64)], {"metric": "sqeuclidean"}, inputs=(0, 1))
case("inverse", "Inverse", [floats(2, 5, 5)])
case("inverse_pivots", "Inverse", [f([[0, 2, 1], [1, 0, 3], [4, 1, 0]])])
as_complex = lambda x: x[..., 0] + 1j * x[..., 1]
as_pairs = lambda x: f(np.stack([x.real, x.imag], -1))
case("complex_mul", "ComplexMul", [floats(2, 3, 2), floats(2, 3, 2)], inputs=(0, 1), reference=lambda a, b: [as_pairs(as_complex(a) * as_complex(b))])
case("complex_mul_conj", "ComplexMulConj", [floats(2, 3, 2), floats(2, 3, 2)], inputs=(0, 1), reference=lambda a, b: [as_pairs(as_complex(a) * np.conj(as_complex(b)))])
case("rfft", "Rfft", [floats(2, 3, 10)], {"signal_ndim": 1, "onesided": 1, "normalized": 0}, reference=lambda x: [as_pairs(np.fft.rfft(x))])
case("irfft", "Irfft", [floats(2, 3, 6, 2)], {"signal_ndim": 1, "onesided": 1, "normalized": 0}, reference=lambda x: [f(np.fft.irfft(as_complex(x)))])
case("expand_dims", "ExpandDims", [floats(2, 3), np.array(-2, np.int32)])
case("gather_nd", "GatherND", [floats(2, 3, 4), i64([0, 2], [1, 1])], inputs=(0, 1))
case("trilu", "Trilu", [floats(2, 3, 4), np.array(-1, np.int64)], {"upper": 0})
case("pad", "Pad", [floats(2, 3), i64([1, 0, 0, 2]), f(0.5)])
case("pad_reflect", "Pad", [floats(2, 3), i64(0, 1, 0, 2)], {"mode": "reflect"})
case("range", "Range", [np.array(2, np.int64), np.array(9, np.int64), np.array(3, np.int64)], inputs=())
case("range_of_ones", "Range", [np.array(2, np.int32), np.array(6, np.int32)], inputs=())
case("torch_embedding", "TorchEmbedding", [floats(6, 3), i64([2, 5], [0, 1])], inputs=(1,), reference=lambda w, i: [w[i]])
case("unfold", "UnfoldTensor", [floats(2, 7, 3)], {"dim": 1, "size": 3, "step": 2})
case("murmur_32", "MurmurHash3", [ids(2, 5, end=2**31).astype(np.int32)], {"seed": 42})
case("murmur_64", "MurmurHash3", [(ids(2, 5, end=2**62) - 2**61).astype(np.int64)], {"positive": 0})
case("ngram_repeat_block", "NGramRepeatBlock", [i64([1, 2, 3, 1, 2], [4, 4, 4, 4, 4]), floats(2, 6)], {"ngram_size": 3}, inputs=(0, 1))

case("unique", "Unique", [f([2, 1, 1, 3, 4, 3])], {}, 3)
case("grid_sample", "GridSample", [floats(2, 3, 4, 5), f(RANDOM.uniform(-1.2, 1.2, (2, 3, 4, 2)))], {"mode": "bicubic", "padding_mode": "border"}, inputs=(0, 1))
case("grid_sample_reflection", "GridSample", [floats(1, 2, 4, 5), f(RANDOM.uniform(-1.5, 1.5, (1, 3, 4, 2)))], {"padding_mode": "reflection", "align_corners": 1}, inputs=(0, 1))

# Regions and words

BOXES = f([[0.1, 0.2, 0.9, 0.7], [-0.2, 0.0, 1.0, 1.3], [0.5, 0.6, 0.2, 0.1]])
case("crop_and_resize", "CropAndResize", [floats(2, 3, 5, 6), BOXES, i32(1, 0, 1), i32(3, 4)], {"extrapolation_value": 0.25}, inputs=(0, 1))
case("crop_and_resize_nearest", "CropAndResize", [floats(2, 3, 5, 6), BOXES, i32(0, 1, 1), i32(1, 3)], {"mode": "nearest"}, inputs=(0, 1))
case("word_conv_embedding", "WordConvEmbedding", [np.array([[3, 1, 4, 1, 0], [5, 0, 0, 0, 0], [2, 6, 5, 3, 5]], np.int32), floats(4, 1, 3, 2), floats(4), floats(7, 2)])

# Tokens


def remove_padding(x, counts):
    kept = np.arange(x.shape[1]) < counts[:, None]
    order = np.concatenate([np.nonzero(kept.ravel())[0], np.nonzero(~kept.ravel())[0]])
    starts = np.concatenate([[0], np.cumsum(counts)])
    return [x[kept], order.reshape(kept.shape).astype(np.int32), starts.astype(np.int32), i32(counts.max())]


def restore_padding(x, order):
    y = np.zeros((order.size, x.shape[1]), np.float32)
    y[order.ravel()[: len(x)]] = x
    return [y.reshape(*order.shape, -1)]


PADDED = floats(3, 4, 5)
case("remove_padding", "RemovePadding", [PADDED, i32(2, 4, 1)], {}, 4, (0, 1), remove_padding)
case("restore_padding", "RestorePadding", [floats(7, 5), remove_padding(PADDED, i32(2, 4, 1))[1]], inputs=(0, 1), reference=restore_padding)


def t5_bias(both, far):
    def reference(table, queries, keys):
        heads, buckets = table.shape[1], table.shape[0]
        table = table.reshape(heads, buckets)
        ahead = np.arange(keys[0])[None] - np.arange(queries[0])[:, None]
        bucket = np.zeros(ahead.shape, np.int64)
        if both:
            buckets //= 2
            bucket += (ahead > 0) * buckets
            ahead = np.abs(ahead)
        else:
            ahead = np.maximum(-ahead, 0)
        near = buckets // 2
        shared = near + (np.log(np.maximum(ahead, 1).astype(np.float32) / near) / f(math.log(far / near)) * (buckets - near)).astype(np.int64)
        bucket += np.where(ahead < near, ahead, np.minimum(shared, buckets - 1))
        return [table[:, bucket][None]]

    return reference


for both, buckets, far in ((1, 16, 32), (0, 8, 20)):
    case(f"relative_position_bias_{both}", "RelativePositionBias", [floats(buckets, 2), i64(40), i64(40)], {"max_distance": far, "is_bidirectional": both}, reference=t5_bias(both, far))


def gated_bias(q, qb, rel, w, b, eco):
    q = (q + qb).reshape(2, 5, 2, 4).transpose(0, 2, 1, 3)
    gates = 1 / (1 + np.exp(-(q @ w + b).reshape(2, 2, 5, 2, 4).sum(-1)))
    u, r = gates[..., :1], gates[..., 1:]
    return [f((u * (r * eco - 1) + 2) * rel)]


case("gated_relative_position_bias", "GatedRelativePositionBias", [floats(2, 5, 8), floats(8), floats(1, 2, 5, 5), floats(4, 8), floats(8), floats(1, 2, 1, 1)], {"num_heads": 2}, inputs=(0, 2), reference=gated_bias)


# Caches that are one buffer for all steps. ONNX Runtime has these on GPUs only: what it gives on the CPU where the past has the used rows alone.


def by_plain_attention(at):
    """`at` are the attributes of the Attention that each text has with its own past."""

    def reference(x, w, b, mask, past, added, used, _beams=None, other=None):
        used, batch = int(used[0]), len(x)
        seen = past[:, :, :, :used].copy()
        if other is not None:
            for text in range(batch):
                element, beam = divmod(text, other.shape[1])
                for place in range(used):
                    seen[:, text, :, place] = past[:, element * other.shape[1] + other[element, beam, place], :, place]
        node = helper.make_node("Attention", ["x", "w", "b", "" if mask is None else "mask", "past"], ["y", "present"], domain=MS, **at)
        feeds = {"x": x, "w": w, "b": b, "mask": mask, "past": seen}
        y, present = execute(node, {n: a for n, a in feeds.items() if a is not None}, ["y", "present"])
        whole = past.copy()
        whole[:, :, :, used : used + x.shape[1]] = present[:, :, :, used:]
        if added is not None:
            # Not together with a past.
            k, v = (half.swapaxes(1, 2).reshape(batch, -1, 16) for half in present)
            y = attend((x @ w + b)[:, :, :16], k, v, at["num_heads"], added=added)
        return [y, whole]

    return reference


def one_buffer(name, length, used, mask=None, added=None, other=None, op="Attention", **at):
    at = {"num_heads": 4} | at
    operands = [floats(2, length, 12), FUSED[1], FUSED[2], mask, floats(2, 2, 4, 8, 4), added, i32(used)]
    operands += [] if other is None else [i32(other.shape[1]), other]
    case(name, op, operands, at | SHARED, ["y", "present"], (0, 4, 6, 8), by_plain_attention(at))

# Rows quantised to 8 bits beside weights in blocks

nbits("matmul_4bits_int8", 50, 96, 32, 4, "packed", batch=(2, 3), accuracy_level=4)
nbits("matmul_4bits_int8_short", 7, 40, 16, 4, bias=True, batch=(9,), accuracy_level=4)
nbits("matmul_8bits_int8", 8, 64, 16, 8, accuracy_level=4)
# Floats and groups are multiplied by rows as they are.
nbits("matmul_4bits_int8_float_zeros", 8, 64, 16, 4, "float", accuracy_level=4)
nbits("matmul_4bits_int8_groups", 8, 64, 16, 4, g_idx=True, accuracy_level=4)


one_buffer("attention_buffer", 1, 5)
one_buffer("attention_buffer_empty", 3, 0, unidirectional=1)
one_buffer("attention_buffer_causal", 3, 5, ids(2, 8, end=2).astype(np.int32), unidirectional=1, scale=0.3)
one_buffer("attention_buffer_masked", 2, 4, ids(2, 6, end=2).astype(np.int32))
one_buffer("attention_buffer_added", 2, 4, None, floats(1, 4, 2, 6))
# Two texts of one element, and one text of each of two elements.
SELF = "DecoderMaskedSelfAttention"
one_buffer("self_attention_decoder", 1, 6, ids(2, 7, end=2).astype(np.int32), op=SELF)
one_buffer("self_attention_decoder_beams", 1, 6, other=ids(1, 2, 8, end=2).astype(np.int32), op=SELF)
one_buffer("self_attention_decoder_one_beam", 1, 3, other=np.zeros((2, 1, 8), np.int32), op=SELF)
BEAMS = [i32(2), ids(1, 2, 8, end=2).astype(np.int32)]
multi("mha_decoder_beams", [*ONE, None, None, *BUFFER, i32(5), *BEAMS], SHARED, CACHE, (0, 1, 2, 5, 6, 7, 9), "DecoderMaskedMultiHeadAttention")
multi("mha_decoder_beams_masked", [*ONE, ids(2, 6, end=2).astype(np.int32), floats(1, 4, 1, 6), *BUFFER, i32(5), *BEAMS, floats(48)], SHARED, CACHE, (0, 1, 2, 5, 6, 7, 9), "DecoderMaskedMultiHeadAttention")


def model_of(node, operands, names, inputs, outputs):
    kind = lambda a: a.data_type if isinstance(a, onnx.TensorProto) else helper.np_dtype_to_tensor_dtype(a.dtype)
    given, fixed = [], []
    for i, (array, name) in enumerate(zip(operands, names)):
        if array is None:
            continue
        if i in inputs:
            given.append(helper.make_tensor_value_info(name, kind(array), array.shape))
        elif isinstance(array, onnx.TensorProto):
            array.name = name
            fixed.append(array)
        else:
            fixed.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    # The type of scores is their own.
    typed = lambda w: helper.make_tensor_value_info(w, TensorProto.FLOAT, None)
    results = [typed(w) if w == "qk" else onnx.ValueInfoProto(name=w) for w in outputs if w]
    graph = helper.make_graph([node], node.op_type, given, results, fixed)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run(model, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1  # the states of a quantised LSTM are quantised by each thread on its own
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    if model.graph.node[0].op_type != "SparseAttention":
        return session.run(None, feeds)
    # It takes caches that are input and output in one.
    binding = session.io_binding()
    held = {name: array.copy() for name, array in feeds.items()}
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in held.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y")
    binding.bind_ortvalue_output("present_key", values["i3"])
    binding.bind_ortvalue_output("present_value", values["i4"])
    session.run_with_iobinding(binding)
    return [binding.get_outputs()[0].numpy(), held["i3"], held["i4"]]


def execute(node, feeds, outputs):
    model = model_of(node, list(feeds.values()), list(feeds), range(len(feeds)), outputs)
    return run(model, feeds)


def write(name, domain, op, operands, attributes, outputs, inputs, reference):
    while operands and operands[-1] is None:
        operands = operands[:-1]
    names = ["" if a is None else f"i{i}" for i, a in enumerate(operands)]
    node = helper.make_node(op, names, outputs, domain=domain, **attributes)
    model = model_of(node, operands, names, inputs, outputs)
    feeds = {names[i]: operands[i] for i in inputs if i < len(operands) and operands[i] is not None}
    if reference:
        found = reference(*operands)
    else:
        found = run(model, feeds)
    (FOLDER / f"{name}.onnx").write_bytes(model.SerializeToString())
    results = {f"out_{w}": a for w, a in zip([w for w in outputs if w], found)}
    np.savez(FOLDER / f"{name}.npz", **{f"in_{n}": a for n, a in feeds.items()}, **results)


if __name__ == "__main__":
    for one in CASES:
        if len(sys.argv) > 1 and one[0] not in sys.argv[1:]:
            continue
        try:
            write(*one)
        except Exception as e:
            print(one[0], str(e)[:300])
    print(len(CASES), "cases")
