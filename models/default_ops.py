"""Small models of ops of the default domain and of shapes that data decides, with what ONNX Runtime gives for them.

    python models/default_ops.py       # writes crates/rlx-onnx/tests/default_ops/NAME.onnx and .npz

The node cases of the onnx package cover each op; these cover combinations of attributes and what models do with shapes.
"""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from onnx import helper

FOLDER = Path(__file__).resolve().parent.parent / "crates/rlx-onnx/tests/default_ops"
RANDOM = np.random.default_rng(7)


def floats(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def uniform(low, high, *shape):
    return RANDOM.uniform(low, high, shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


def regions(count, size):
    corner = uniform(-1, size * 0.7, count, 2)
    return np.concatenate([corner, corner + uniform(0.3, size * 0.6, count, 2)], 1)


def one(op, opset, inputs, attributes=None, outputs=1, fixed=()):
    """A model of one node; operands whose numbers are in `fixed` are initialisers."""
    names = [f"i{i}" if a is not None else "" for i, a in enumerate(inputs)]
    wanted = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, wanted, **(attributes or {}))
    given = {n: a for i, (n, a) in enumerate(zip(names, inputs)) if a is not None and i not in fixed}
    kept = [onnx.numpy_helper.from_array(a, n) for i, (n, a) in enumerate(zip(names, inputs)) if i in fixed]
    kind = lambda a: helper.np_dtype_to_tensor_dtype(a.dtype)
    infos = [helper.make_tensor_value_info(n, kind(a), a.shape) for n, a in given.items()]
    graph = helper.make_graph([node], op, infos, [onnx.ValueInfoProto(name=w) for w in wanted], kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), given


def text(source, opset=17, **inputs):
    """A model in ONNX's text form."""
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": {opset}]>\n{source}'), inputs


def cases():
    image = floats(2, 3, 5, 6)
    for mode in ["linear", "nearest", "cubic"]:
        for padding in ["zeros", "border", "reflection"]:
            for align in [0, 1]:
                grid = uniform(-1.6, 1.6, 2, 4, 3, 2)
                attributes = {"mode": mode, "padding_mode": padding, "align_corners": align}
                yield f"grid_sample_{mode}_{padding}_{align}", one("GridSample", 20, [image, grid], attributes)
    yield "grid_sample_volume", one("GridSample", 20, [floats(1, 2, 3, 4, 5), uniform(-1.2, 1.2, 1, 2, 2, 3, 3)])
    yield "affine_grid", one("AffineGrid", 20, [floats(2, 2, 3), ints(2, 1, 4, 5)], {"align_corners": 1}, fixed=[1])
    yield "affine_grid_volume", one("AffineGrid", 20, [floats(1, 3, 4), ints(1, 1, 2, 3, 4)], fixed=[1])
    x, weights = floats(2, 4, 6, 5), floats(4, 2, 3, 2)
    attributes = {"group": 2, "offset_group": 2, "pads": [1, 0, 1, 1], "strides": [2, 1], "dilations": [1, 2]}
    operands = [x, weights, floats(2, 24, 3, 4), floats(4), uniform(0, 1, 2, 12, 3, 4)]
    yield "deform_conv", one("DeformConv", 19, operands, attributes)
    for mode, moved in [("half_pixel", "avg"), ("output_half_pixel", "avg"), ("half_pixel", "max")]:
        attributes = {"coordinate_transformation_mode": mode, "mode": moved, "output_height": 3, "output_width": 2}
        attributes |= {"spatial_scale": 0.5, "sampling_ratio": 2 if moved == "max" else 0}
        operands = [floats(2, 3, 8, 9), regions(5, 16), ints(0, 1, 1, 0, 1)]
        yield f"roi_align_{mode}_{moved}", one("RoiAlign", 16, operands, attributes)
    boxes = np.concatenate([np.array([[0], [1], [1]], np.float32), regions(3, 12)], 1)
    yield "max_roi_pool", one("MaxRoiPool", 17, [floats(2, 3, 8, 9), boxes], {"pooled_shape": [3, 2], "spatial_scale": 0.7})
    pool = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    for extra in [{}, {"dilations": [1, 2]}, {"ceil_mode": 1}, {"storage_order": 1}]:
        name = "_".join(["max_pool_indices", *extra])
        yield name, one("MaxPool", 12, [floats(2, 3, 6, 5)], pool | extra, 2)
    yield "max_pool_indices_line", one("MaxPool", 12, [floats(2, 2, 9)], {"kernel_shape": [3], "strides": [3]}, 2)
    blocks = [floats(2, 12, 6), ints(5, 6), ints(2, 3)]
    attributes = {"pads": [0, 1, 1, 0], "strides": [2, 2], "dilations": [2, 1]}
    yield "col2im", one("Col2Im", 18, blocks, attributes, fixed=[1, 2])
    yield "det", one("Det", 17, [floats(2, 3, 5, 5)])
    letters = RANDOM.integers(0, 4, (3, 6)).astype(np.int64)
    yield "unique", one("Unique", 17, [letters], {}, 4)
    yield "unique_unsorted_rows", one("Unique", 17, [letters[:, :2] // 2], {"axis": 0, "sorted": 0}, 4)
    yield "unique_columns", one("Unique", 17, [np.float32(letters // 2)], {"axis": 1}, 4)
    for length in [7, 16, 60, 97, 400, 509]:
        yield f"dft_{length}", one("DFT", 17, [floats(2, length, 2)])
    yield "dft_real_onesided", one("DFT", 17, [floats(2, 48, 1)], {"onesided": 1})
    yield "dft_inverse", one("DFT", 17, [floats(2, 3, 20, 2)], {"inverse": 1, "axis": 2})
    yield "dft_length", one("DFT", 17, [floats(2, 10, 1), ints(16)[0]], {"onesided": 1}, fixed=[1])
    window = np.hanning(25).astype(np.float32)
    yield "stft", one("STFT", 17, [floats(2, 100, 1), ints(10)[0], window], fixed=[1, 2])
    mel = [ints(10)[0], ints(64)[0], ints(8000)[0], np.float32(20), np.float32(3800)]
    yield "mel_weight_matrix", one("MelWeightMatrix", 17, mel, fixed=range(5))
    yield "tile_rank5", one("Tile", 17, [floats(2, 3, 1, 4, 2), ints(1, 2, 3, 2, 2)], fixed=[1])
    yield "expand_rank9", one("Expand", 17, [floats(1, 1, 1, 1, 1, 1, 1, 1, 2), ints(*[2] * 9)], fixed=[1])
    for attributes in [{"mode": "cubic"}, {"mode": "cubic", "coordinate_transformation_mode": "align_corners"}, {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5}]:
        name = "resize_open_" + "_".join(k for k in attributes)
        listed = ", ".join(f'{k}: {"string" if isinstance(v, str) else "int" if isinstance(v, int) else "float"} = ' + (f'"{v}"' if isinstance(v, str) else str(v)) for k, v in attributes.items())
        source = f'g (float[1,2,4,5] x, float[1,2,height,width] like) => (float[] y) {{ s = Shape(like)\n y = Resize<{listed}>(x, "", "", s) }}'
        yield name, text(source, x=floats(1, 2, 4, 5), like=floats(1, 2, 7, 3))
    yield from data_decides()
    yield from loops_of_found_sizes()


def loops_of_found_sizes():
    """What detectors of masks and keypoints, and relative positions, come down to."""
    paste = """g (float[n,5] masks, float[n,2] edges) => (float[k,16] y)
    <float low = {0}, float high = {15}, bool truth = {1}, int64 first = {0}, int64 one = {1}, int64 last = {15}, int64[1] axis = {0},
     int64[1] ones = {1}, int64[3] line = {1, 1, 5}, int64[1] flat = {-1}, int64[2] none = {0, 16}> {
        raised = Max(edges, low)
        clipped = Min(raised, high)
        whole = Cast<to: int = 7>(clipped)
        shape = Shape<start: int = 0, end: int = 1>(masks)
        count = Squeeze(shape)
        begin = ConstantOfShape(none)
        y = Loop(count, truth, begin) <body: graph = b (int64 i, bool goes_on, float[r,16] rows) => (bool again, float[s,16] more) {
            edge = Gather<axis: int = 0>(whole, i)
            left = Gather<axis: int = 0>(edge, first)
            right = Gather<axis: int = 0>(edge, one)
            apart = Sub(right, left)
            width = Add(apart, one)
            widths = Unsqueeze(width, axis)
            mask = Gather<axis: int = 0>(masks, i)
            lines = Reshape(mask, line)
            sizes = Concat<axis: int = 0>(ones, ones, widths)
            wide = Resize<mode: string = "linear">(lines, "", "", sizes)
            row = Reshape(wide, flat)
            lefts = Unsqueeze(left, axis)
            before = ConstantOfShape(lefts)
            free = Sub(last, right)
            frees = Unsqueeze(free, axis)
            after = ConstantOfShape(frees)
            whole_row = Concat<axis: int = 0>(before, row, after)
            next = Unsqueeze(whole_row, axis)
            more = Concat<axis: int = 0>(rows, next)
            again = Identity(truth)
        }>
    }"""
    yield "loop_pastes_rows", text(paste, masks=floats(3, 5), edges=np.array([[2.5, 9.1], [-3, 20], [7, 7.9]], np.float32))
    positions = """g (float[seq] x) => (int64[m] y) <int64 one = {1}, int64 two = {2}> {
        shape = Shape(x)
        length = Squeeze(shape)
        negative = Neg(length)
        start = Mul(negative, two)
        end = Mul(length, two)
        y = Range(start, end, one)
    }"""
    yield "range_from_a_negative_size", text(positions, x=floats(5))
    window = np.hanning(25).astype(np.float32)
    yield "stft_of_a_matrix", one("STFT", 17, [floats(2, 100), ints(10)[0], window], fixed=[1, 2])


def data_decides():
    scores = np.array([0.1, 0.9, 0.6, 0.2, 0.7, 0.3], np.float32)
    branches = """g (float[6] x) => (float[k] y) <float half = {0.5}> {
        m = ReduceMax<keepdims: int = 0>(x)
        c = Less(m, half)
        y = If(c) <then_branch: graph = a () => (float[6] t) { t = Identity(x) },
                   else_branch: graph = b () => (float[12] u) { u = Concat<axis: int = 0>(x, x) }>
    }"""
    yield "if_two_shapes", text(branches, x=scores)
    yield "if_two_shapes_then", text(branches, x=scores / 4)
    several = """g (float[6] x) => (float[k] y, float[n] z, float[n] w) <float half = {0.5}, int64[1] two = {2}, int64[1] zero = {0}> {
        m = ReduceMax<keepdims: int = 0>(x)
        c = Less(m, half)
        y, z = If(c) <then_branch: graph = a () => (float[6] t, float[2] s) { t = Identity(x)  s = Slice(x, zero, two) },
                      else_branch: graph = b () => (float[12] u, float[6] v) { u = Concat<axis: int = 0>(x, x)  v = Neg(x) }>
        w = Add(z, z)
    }"""
    yield "if_several_shapes", text(several, x=scores)
    yield "if_several_shapes_then", text(several, x=scores / 4)
    found = """g (float[6] x) => (int64[k] y, int64[n] z) <float half = {0.5}, int64[1] axis0 = {0}> {
        b = Greater(x, half)
        m = ReduceMax<keepdims: int = 0>(x)
        c = Less(m, half)
        y = If(c) <then_branch: graph = a () => (int64[0] e) { e = Constant<value: tensor = int64[0] {}>() },
                   else_branch: graph = b () => (int64[k] s) { nz = NonZero(b)  s = Squeeze(nz, axis0) }>
        z = Add(y, y)
    }"""
    yield "if_empty_or_found", text(found, x=scores)
    yield "if_empty_or_found_then", text(found, x=scores / 4)
    nms = """g (float[6,4] boxes, float[6] scores) => (int64[n] y, float[n,4] z)
        <float half = {0.5}, int64[1] axis0 = {0}, int64[2] axis01 = {0, 1}, int64 zero = {0}, int64[1] many = {10}, float[1] iou = {0.5}, int64 two = {2}> {
        b = Greater(scores, half)
        nz = NonZero(b)
        at = Squeeze(nz, axis0)
        kept = Gather(boxes, at)
        keptscores = Gather(scores, at)
        sh = Shape(kept)
        size = ReduceProd<keepdims: int = 0>(sh)
        c = Equal(size, zero)
        y = If(c) <then_branch: graph = a () => (int64[0] e) { e = Constant<value: tensor = int64[0] {}>() },
                   else_branch: graph = b () => (int64[n] k) {
                       b3 = Unsqueeze(kept, axis0)
                       s3 = Unsqueeze(keptscores, axis01)
                       sel = NonMaxSuppression(b3, s3, many, iou)
                       k = Gather<axis: int = 1>(sel, two) }>
        z = Gather(kept, y)
    }"""
    places = np.array([[0, 0, 2, 2], [0, 0, 2, 2.1], [3, 3, 5, 5], [3, 3, 5, 5.2], [8, 8, 9, 9], [6, 0, 7, 1]], np.float32)
    confident = np.array([0.9, 0.8, 0.7, 0.6, 0.1, 0.55], np.float32)
    yield "if_count_of_nms", text(nms, boxes=places, scores=confident)
    yield "if_count_of_nms_none", text(nms, boxes=places, scores=confident / 4)
    past = """g (float[2,5] x) => (float[] y) <int64[1] z = {0}, int64[1] big = {9223372036854775807}, int64[1] ax = {1}, float[1,1] one = {1.0}> {
        a = Slice(x, z, big, ax)
        sh = Shape(x)
        e = Expand(one, sh)
        y = Mul(a, e)
    }"""
    yield "slice_past_end_expand", text(past, x=floats(2, 5))
    sliced = """g (float[2,n] x) => (float[] y, float[] z, float[] w)
        <float half = {0.5}, int64[1] zero = {0}, int64[1] ax = {1}, int64[1] back = {-1}, int64[1] far = {-99}> {
        b = Greater(x, half)
        i = Cast<to: int = 7>(b)
        k = ReduceSum<keepdims: int = 0>(i)
        end = Unsqueeze(k, zero)
        y = Slice(x, zero, end, ax)
        less = Neg(end)
        z = Slice(x, less, end, ax)
        w = Slice(x, end, far, ax, back)
    }"""
    yield "slice_by_data", text(sliced, x=np.stack([scores, scores[::-1]]))
    counted = """g (float[6] x) => (int64[] y, float[] z, float[] t)
        <float half = {0.5}, int64 zero = {0}, int64 one = {1}, int64[1] axis0 = {0}, int64[1] two = {2}> {
        b = Greater(x, half)
        i = Cast<to: int = 7>(b)
        k = ReduceSum<keepdims: int = 0>(i)
        y = Range(zero, k, one)
        n = Unsqueeze(k, axis0)
        shape = Concat<axis: int = 0>(n, two)
        e = Expand(half, shape)
        z = Add(e, e)
        t = Tile(x, n)
    }"""
    yield "range_expand_tile_by_data", text(counted, x=scores)
    resized = """g (float[1,1,2,3] x, float[6] s) => (float[] y) <float half = {0.5}, int64[1] axis0 = {0}, int64[3] front = {1, 1, 4}> {
        b = Greater(s, half)
        i = Cast<to: int = 7>(b)
        k = ReduceSum<keepdims: int = 1>(i)
        sizes = Concat<axis: int = 0>(front, k)
        y = Resize<mode: string = "linear">(x, "", "", sizes)
    }"""
    yield "resize_by_data", text(resized, x=floats(1, 1, 2, 3), s=np.append(scores[:5], [0.8]).astype(np.float32))
    loop = """g (float[n] x, float[2,3] first) => (float[] y, float[] last) <bool true = {1}, float half = {0.5}, int64[1] axis0 = {0}> {
        b = Greater(x, half)
        places = NonZero(b)
        shape = Shape(places)
        one = Constant<value_int: int = 1>()
        times = Gather(shape, one)
        y, last = Loop(times, true, first, half) <body: graph = body (int64 i, bool c, float[m,3] acc, float h) => (bool d, float[] more, float g) {
            d = Identity(c)
            g = Add(h, h)
            f = Cast<to: int = 1>(i)
            three = Constant<value: tensor = float[1,3] {1.0, 2.0, 3.0}>()
            row = Mul(three, g)
            row2 = Add(row, f)
            more = Concat<axis: int = 0>(acc, row2)
        }>
    }"""
    yield "loop_that_appends", text(loop, x=scores, first=floats(2, 3))


def write(name, model, given):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run(None, given)
    if name.startswith("dft_") and name[4:].isdigit():
        # ONNX Runtime's transforms of such lengths are off by up to 1e-4 of the largest bin; NumPy's are exact in f64.
        x = given["i0"].astype(np.float64)
        exact = np.fft.fft(x[..., 0] + 1j * x[..., 1], axis=1)
        found = [np.stack([exact.real, exact.imag], -1).astype(np.float32)]
    (FOLDER / f"{name}.onnx").write_bytes(model.SerializeToString())
    outs = {f"out_{o.name}": a for o, a in zip(model.graph.output, found)}
    np.savez(FOLDER / f"{name}.npz", **{f"in_{n}": a for n, a in given.items()}, **outs)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, (model, given) in cases():
        try:
            write(name, model, given)
        except Exception as e:
            print(name, str(e)[:300])
    print(len(list(FOLDER.glob("*.onnx"))), "cases")
