"""Computes why the node cases that are listed as wrong-expectation are, from their definitions, in f64.

    python evidence.py FOLDER [LIST]

FOLDER has the cases (`model.onnx`, `test_data_set_0`); LIST is `expected.txt` unless given. For every listed case, a line says what the
definition gives and what the case has; the exit code is 1 if a case agrees with its definition after all, or is listed without one here.
"""

import math
import pathlib
import sys

import numpy as np
import onnx
from onnx import numpy_helper

RTOL, ATOL = 1e-3, 1e-7


def read(folder):
    """The first node, its attributes, and the arrays of inputs and outputs by their names in the model."""
    model = onnx.load(folder / "model.onnx")

    def arrays(what, infos):
        paths = [folder / "test_data_set_0" / f"{what}_{i}.pb" for i in range(len(infos))]
        return {v.name: numpy_helper.to_array(onnx.TensorProto.FromString(p.read_bytes())) for v, p in zip(infos, paths)}

    node = model.graph.node[0]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return node, attributes, arrays("input", model.graph.input), arrays("output", model.graph.output)


def far(want, exact):
    """Where a case is beyond the suite's tolerance of what the definition gives."""
    want, exact = np.asarray(want, np.float64), np.asarray(exact, np.float64)
    near = (np.abs(exact - want) <= ATOL + RTOL * np.abs(want)) | (np.isnan(want) & np.isnan(exact)) | (want == exact)
    return np.flatnonzero(~near)


def qlinear_matmul(node, _, given, made):
    """y = saturate(round(a·b·a_scale·b_scale / y_scale) + y_zero_point)"""
    a, sa, za, b, sb, zb, sy, zy = (np.asarray(given[name], np.float64) for name in node.input)
    y = np.round((a - za) @ (b - zb) * sa * sb / sy) + zy
    (want,) = made.values()
    info = np.iinfo(want.dtype)
    yield want, np.clip(y, info.min, info.max), f"{y.flat[far(want, np.clip(y, info.min, info.max))[0]]:.0f} before it saturates"


def adam(node, attributes, given, made):
    """Adam with the default epsilon of 1e-6."""
    rate, step = (np.asarray(given[name], np.float64) for name in node.input[:2])
    arrays = [np.asarray(given[name], np.float64) for name in node.input[2:]]
    xs, gs, vs, hs = (arrays[i * len(arrays) // 4 : (i + 1) * len(arrays) // 4] for i in range(4))
    alpha, beta = attributes.get("alpha", 0.9), attributes.get("beta", 0.999)
    epsilon, norm = attributes.get("epsilon", 1e-6), attributes.get("norm_coefficient", 0.0)
    if step > 0:
        rate = rate * math.sqrt(1 - beta**step) / (1 - alpha**step)
    for i, (x, g, v, h) in enumerate(zip(xs, gs, vs, hs)):
        g = norm * x + g
        v, h = alpha * v + (1 - alpha) * g, beta * h + (1 - beta) * g * g
        yield made[node.output[i]], x - rate * v / (np.sqrt(h) + epsilon), f"epsilon = {epsilon:g}"


def inverse_dft(node, attributes, given, made):
    """The discrete Fourier transform and its inverse, in f64."""
    x = np.asarray(given[node.input[0]], np.float64)
    (want,) = made.values()
    axis = attributes.get("axis", 1) if len(node.input) < 3 else int(given[node.input[2]])
    y = np.fft.ifft(x[..., 0] + 1j * x[..., 1], axis=axis)
    yield want, np.stack([y.real, y.imag], axis=-1), "rounding errors of f32 beyond the absolute tolerance"


def attention(node, attributes, given, made):
    """The soft cap before the bias, and what `qk_matmul_output_mode` shows: 0 QK, 1 after the soft cap, 2 after the bias, 3 the weights."""
    operand = {i: np.asarray(given[name], np.float64) for i, name in enumerate(node.input) if name and given[name].dtype != bool}
    q, k, v = (operand[i] for i in range(3))
    if q.ndim == 3:
        heads = [attributes["q_num_heads"], attributes["kv_num_heads"], attributes["kv_num_heads"]]
        q, k, v = (x.reshape(*x.shape[:2], n, -1).swapaxes(1, 2) for x, n in zip([q, k, v], heads))
    past = operand[4].shape[2] if 4 in operand else 0
    if past:
        k, v = np.concatenate([operand[4], k], axis=2), np.concatenate([operand[5], v], axis=2)
    k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
    scores = q @ k.swapaxes(-1, -2) * attributes.get("scale", 1 / math.sqrt(q.shape[-1]))
    cap = attributes.get("softcap", 0.0)
    capped = np.tanh(scores / cap) * cap if cap else scores
    bias = np.zeros(scores.shape[-2:])
    if len(node.input) > 3 and node.input[3]:
        mask = given[node.input[3]]
        bias = np.where(mask, 0.0, -np.inf) if mask.dtype == bool else np.asarray(mask, np.float64)
    if attributes.get("is_causal"):
        row, column = np.indices(scores.shape[-2:])
        bias = bias + np.where(column <= row + past, 0.0, -np.inf)
    shown = [scores, capped, capped + bias]
    mode = attributes.get("qk_matmul_output_mode", 0)
    want = made[node.output[3]]
    other = next((m for m, s in enumerate(shown) if s.shape == want.shape and not far(want, s).size), None)
    old = np.broadcast_to(bias, scores.shape) + scores
    said = f"which is mode {other}" if other is not None else ""
    if cap and not far(want, np.tanh(old / cap) * cap).size:
        said = "which is capped after the bias"
    yield want, shown[mode], f"mode {mode}, {said}"


def half_attention(node, _, given, made):
    """Causal attention node by node as the body is written, each result rounded to f16 from f64."""
    half = lambda x: np.asarray(x, np.float64).astype(np.float16).astype(np.float64)  # noqa: E731
    q, k, v = (np.asarray(x, np.float64) for x in list(given.values())[:3])
    (want,) = made.values()

    def through(rounded):
        root = rounded(math.sqrt(np.float32(1 / math.sqrt(q.shape[-1]))))
        scores = rounded(rounded(q * root) @ rounded(k * root).swapaxes(-1, -2))
        row, column = np.indices(scores.shape[-2:])
        scores = np.where(column <= row, scores, -np.inf)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        return rounded(rounded(e / e.sum(-1, keepdims=True)) @ v)

    exact, y = through(lambda x: x), through(half)
    at = next(iter(far(want, y)), 0)
    errors = [abs(float(x.flat[at]) - exact.flat[at]) for x in (np.asarray(want, np.float64), y)]
    yield want, y, f"exactly {exact.flat[at]:.6f}; the case is {errors[0]:.1e} from that, the definition {errors[1]:.1e}"


def l2_normalization(node, attributes, given, made):
    """Elements without length are 0."""
    x = np.asarray(given[node.input[0]], np.float64)
    length = np.sqrt((x * x).sum(attributes.get("axis", -1), keepdims=True))
    (want,) = made.values()
    yield want, np.divide(x, length, out=np.zeros_like(x), where=length != 0), "0 where the length is 0"


def decode_jpeg(data):
    """A baseline JPEG file by ITU-T T.81 in f64, its chroma upsampled between the centres of pixels as `ImageDecoder` says."""
    zigzag = sorted(range(64), key=lambda i: (i // 8 + i % 8, i % 8 if (i // 8 + i % 8) % 2 == 0 else i // 8))
    tables, quant, at = {}, {}, 2
    while True:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        body = data[at + 4 : at + 2 + length]
        at += 2 + length
        if marker == 0xDB:
            while body:
                quant[body[0]] = np.frombuffer(body[1:65], np.uint8).astype(float)
                body = body[65:]
        elif marker == 0xC4:
            while body:
                counts, symbols, code, table = body[1:17], body[17:], 0, {}
                for bits, n in enumerate(counts, 1):
                    for _ in range(n):
                        table[bits, code] = symbols[0]
                        symbols, code = symbols[1:], code + 1
                    code *= 2
                tables[body[0]], body = table, symbols
        elif marker == 0xC0:
            height, width = int.from_bytes(body[1:3], "big"), int.from_bytes(body[3:5], "big")
            parts = [(body[6 + 3 * i], body[7 + 3 * i] >> 4, body[7 + 3 * i] & 15, body[8 + 3 * i]) for i in range(body[5])]
        elif marker == 0xDA:
            chosen = {body[1 + 2 * i]: body[2 + 2 * i] for i in range(body[0])}
            break
    bits = iter("".join(f"{b:08b}" for b in data[at:].split(b"\xff\xd9")[0].replace(b"\xff\x00", b"\xff")))

    def take(n):
        return int("0" + "".join(next(bits) for _ in range(n)), 2)

    def symbol(table):
        code, n = 0, 0
        while (n, code) not in table:
            code, n = 2 * code + take(1), n + 1
        return table[n, code]

    def signed(n):
        value = take(n)
        return value if n == 0 or value >> (n - 1) else value - (1 << n) + 1

    most = [max(p[i] for p in parts) for i in (1, 2)]
    basis = np.array([[np.cos((2 * x + 1) * u * np.pi / 16) * (np.sqrt(0.125) if u == 0 else 0.5) for x in range(8)] for u in range(8)])
    across, down = -(-width // (8 * most[0])), -(-height // (8 * most[1]))
    planes = {p[0]: np.zeros((down * 8 * p[2], across * 8 * p[1])) for p in parts}
    before = dict.fromkeys(planes, 0)
    for my in range(down):
        for mx in range(across):
            for name, h, v, q in parts:
                for by in range(v):
                    for bx in range(h):
                        block = np.zeros(64)
                        before[name] += signed(symbol(tables[chosen[name] >> 4]))
                        block[0], k = before[name], 1
                        while k < 64:
                            run = symbol(tables[16 + (chosen[name] & 15)])
                            if run == 0:
                                break
                            k += run >> 4
                            if run & 15:
                                block[zigzag[k]] = signed(run & 15)
                            k += 1
                        scale = np.zeros(64)
                        scale[zigzag] = quant[q]
                        y, x = (my * v + by) * 8, (mx * h + bx) * 8
                        planes[name][y : y + 8, x : x + 8] = np.clip(basis.T @ (block * scale).reshape(8, 8) @ basis + 128, 0, 255)

    def up(plane, axis):
        edge = np.concatenate([plane.take([0], axis), plane, plane.take([-1], axis)], axis)
        n = plane.shape[axis]
        low, mid, high = (edge.take(range(i, i + n), axis) for i in range(3))
        return np.stack([(low + 3 * mid) / 4, (3 * mid + high) / 4], axis + 1).reshape([2 * s if i == axis else s for i, s in enumerate(plane.shape)])

    whole = []
    for name, h, v, _ in parts:
        plane = planes[name][: -(-height * v // most[1]), : -(-width * h // most[0])]
        plane = up(plane, 1) if h < most[0] else plane
        plane = up(plane, 0) if v < most[1] else plane
        whole.append(plane[:height, :width])
    y, cb, cr = whole[0], whole[1] - 128, whole[2] - 128
    return np.clip(np.round(np.stack([y + 1.402 * cr, y - 0.344136 * cb - 0.714136 * cr, y + 1.772 * cb], axis=-1)), 0, 255)


def image(node, attributes, given, made):
    """The pixels of a JPEG file, rounded once."""
    (data,), (want,) = given.values(), made.values()
    y = decode_jpeg(data.tobytes())
    if attributes["pixel_format"] == b"BGR":
        y = y[..., ::-1]
    if attributes["pixel_format"] == b"Grayscale":
        y = np.round(y @ np.array([[0.299], [0.587], [0.114]]))
    off = np.abs(y - want)
    yield want, y, f"{(off > 0).sum()} bytes are off by 1 to {off.max():.0f}, the errors of a decoder in fixed point"


DEFINITIONS = {
    "test_qlinearmatmul": qlinear_matmul,
    "test_adam": adam,
    "test_dft_inverse": inverse_dft,
    "test_attention_4d_causal_fp16": half_attention,
    "test_attention": attention,
    "test_l2normalization": l2_normalization,
    "test_image_decoder_decode_jpeg": image,
}


def main():
    folder = pathlib.Path(sys.argv[1])
    listed = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else pathlib.Path(__file__).with_name("expected.txt")
    lines = [line.split() for line in listed.read_text().splitlines() if line and not line.startswith("#")]
    unfounded = 0
    np.seterr(all="ignore")
    for name in (words[0].split("@")[0] for words in lines if words[1] == "wrong-expectation"):
        definition = next((f for prefix, f in DEFINITIONS.items() if name.startswith(prefix)), None)
        # The body of a function is checked by the node that it was expanded from.
        source = folder / name.removesuffix("_expanded")
        found = [(want, exact, why, far(want, exact)) for want, exact, why in (definition(*read(source)) if definition else [])]
        wrong = [entry for entry in found if entry[3].size]
        if not wrong:
            unfounded += 1
            print(f"{name}: no evidence")
        for want, exact, why, at in wrong[:1]:
            has, gives = np.asarray(want, np.float64).flat[at[0]], np.asarray(exact).flat[at[0]]
            print(f"{name}: {at.size} of {exact.size} differ; element {at[0]} is {gives:.6g}, the case has {has:.6g} ({why})")
    return 1 if unfounded else 0


if __name__ == "__main__":
    sys.exit(main())
