"""The single ops that `ops.py` times: each an ONNX model of one node over tensors of about as many MB of f32 as wanted."""

import numpy as np
import onnx
from onnx import helper, numpy_helper

RANDOM = np.random.default_rng(7)
F16, F32, U8, I8, I32, I64 = np.float16, np.float32, np.uint8, np.int8, np.int32, np.int64
BOOL = np.bool_


class Op:
    """A node, its inputs by name, and what is constant among them.

    Names begin with the place of the operand (`0_x`, `1_c0`), by which inputs and constants are put in order.
    """

    def __init__(self, name, node, inputs, constants=None, outputs=1, opset=21, **attributes):
        self.name, self.node, self.inputs, self.opset = name, node, inputs, opset
        self.constants, self.outputs, self.attributes = constants or {}, outputs, attributes

    def model(self, path):
        operands = sorted([*self.inputs, *self.constants], key=lambda n: int(n.split("_")[0]))
        names = []
        for operand in operands:
            place, name = operand.split("_", 1)
            names += [""] * (int(place) - len(names)) + [name]  # operands that are left out
        results = [f"y{i}" for i in range(self.outputs)]
        node = helper.make_node(self.node, names, results, **self.attributes)
        graph = helper.make_graph(
            [node], "op",
            [helper.make_tensor_value_info(n.split("_", 1)[1], helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
             for n, a in self.inputs.items()],
            [helper.make_empty_tensor_value_info(r) for r in results],
            [numpy_helper.from_array(a, n.split("_", 1)[1]) for n, a in self.constants.items()],
        )  # fmt: skip
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        made = onnx.shape_inference.infer_shapes(made, data_prop=True)
        onnx.save(made, path)


def data(shape, dtype=F32):
    if np.issubdtype(dtype, np.floating):
        return RANDOM.standard_normal(shape).astype(dtype)
    if dtype == BOOL:
        return RANDOM.integers(0, 2, shape).astype(BOOL)
    return RANDOM.integers(0, 100, shape).astype(dtype)


def i64(*values):
    return np.array(values, I64)


def number(value, dtype=F32):
    return np.array(value, dtype)


def taps(*shape):
    """Weights whose sums stay small."""
    return data(shape) / F32(np.prod(shape[1:]) ** 0.5)


def one(name, node, x, *constants, outputs=1, **attributes):
    """An op on one tensor, with constants behind it."""
    fixed = {f"{i + 1}_c{i}": c for i, c in enumerate(constants) if c is not None}
    return Op(name, node, {"0_x": x}, fixed, outputs, **attributes)


def two(name, node, x, y, **attributes):
    """An op on two tensors."""
    return Op(name, node, {"0_x": x, "1_y": y}, **attributes)


class Sizes:
    """The shapes that the ops share, for about `mb` MB of f32."""

    def __init__(self, mb):
        self.n = n = int(mb * 2**18)  # elements
        self.side = side = int(n**0.5) // 16 * 16
        self.image = image = max(int((n / 64) ** 0.5) // 8 * 8, 8)
        self.square = data((side, side))
        self.planes = data((1, 64, image, image))
        self.thin = data((n // 256, 256))


def movement(s):
    n, side, image, square, planes = s.n, s.side, s.image, s.square, s.planes
    yield one("transpose 10", "Transpose", square, perm=[1, 0])
    yield one("transpose 0213", "Transpose", data((1, n // 768, 12, 64)), perm=[0, 2, 1, 3])
    yield one("transpose NCHW to NHWC", "Transpose", planes, perm=[0, 2, 3, 1])
    yield one("transpose NHWC to NCHW", "Transpose", data((1, image, image, 64)), perm=[0, 3, 1, 2])
    yield one("transpose 3 channels last to first", "Transpose", data((1, n // 768, 256, 3)), perm=[0, 3, 1, 2])
    yield one("transpose 10 u8", "Transpose", data((2 * side, 2 * side), U8), perm=[1, 0])
    yield one("slice every other", "Slice", square, i64(0), i64(side), i64(1), i64(2))
    yield one("slice rows", "Slice", square, i64(side // 8), i64(side * 7 // 8), i64(1), i64(1))
    yield one("slice backwards", "Slice", square, i64(-1), i64(-(2**31)), i64(1), i64(-1))
    yield one("concat last axis", "Concat", square, data((side, side)), axis=1)
    yield one("concat axis 0", "Concat", square, data((side, side)), axis=0)
    yield one("split last axis", "Split", square, outputs=4, axis=1, num_outputs=4)
    yield one("expand rows", "Expand", data((side, 1, 64)), i64(side, max(side // 64, 1), 64))
    yield one("expand columns", "Expand", data((side, 1)), i64(side, side))
    yield one("pad images", "Pad", planes, i64(0, 0, 1, 1, 0, 0, 1, 1))
    yield one("pad images, reflected", "Pad", planes, i64(0, 0, 1, 1, 0, 0, 1, 1), mode="reflect")
    yield one("tile last axis", "Tile", data((side, side // 4)), i64(1, 4))
    yield one("tile axis 0", "Tile", data((side // 4, side)), i64(4, 1))
    yield one("depth to space", "DepthToSpace", planes, blocksize=2)
    yield one("space to depth", "SpaceToDepth", planes, blocksize=2)
    yield one("lower triangle", "Trilu", square, upper=0)
    lengths = RANDOM.integers(1, 256, n // 256 // 64).astype(I64)
    rows = data((256, n // 256 // 64, 64))
    yield one("reverse sequence", "ReverseSequence", rows, lengths, time_axis=0, batch_axis=1)
    yield one("cast f32 to f16", "Cast", square, to=onnx.TensorProto.FLOAT16)
    yield one("cast f16 to f32", "Cast", data((side, side), F16), to=onnx.TensorProto.FLOAT)
    yield one("cast f32 to i64", "Cast", square, to=onnx.TensorProto.INT64)
    yield one("cast u8 to f32", "Cast", data((side, side), U8), to=onnx.TensorProto.FLOAT)


def elementwise(s):
    side, square, planes = s.side, s.square, s.planes
    other, positive = data((side, side)), np.abs(square) + F32(0.1)
    yield two("add", "Add", square, other)
    yield one("add a row", "Add", square, data((side,)))
    yield one("add a column", "Add", square, data((side, 1)))
    yield one("multiply by channels", "Mul", planes, data((1, 64, 1, 1)))
    yield two("divide", "Div", square, positive)
    yield two("power", "Pow", positive, other)
    yield one("square root", "Sqrt", positive)
    for name in ("Exp", "Tanh", "Sigmoid", "Erf", "Relu", "LeakyRelu", "HardSwish", "Softplus", "Sin", "Floor"):
        yield one(name.lower(), name, square)
    yield one("log", "Log", positive)
    yield one("gelu", "Gelu", square)
    yield one("clip", "Clip", square, number(-0.5), number(0.5))
    yield two("equal", "Equal", data((side, side), I32), data((side, side), I32))
    yield two("less", "Less", square, other)
    yield two("and", "And", data((2 * side, 2 * side), BOOL), data((2 * side, 2 * side), BOOL))
    yield two("add i64", "Add", data((side, side // 2), I64), data((side, side // 2), I64))
    yield Op("where", "Where", {"0_c": data((side, side), BOOL), "1_x": square, "2_y": other})
    yield one("quantize to u8", "QuantizeLinear", square, number(0.02), number(128, U8))
    yield one("dequantize u8", "DequantizeLinear", data((side, side), U8), number(0.02), number(128, U8))
    yield one("dynamic quantize", "DynamicQuantizeLinear", square, outputs=3)


def along_an_axis(s):
    side, square, planes, thin = s.side, s.square, s.planes, s.thin
    for axis in (0, 1):
        yield one(f"cumsum axis {axis}", "CumSum", square, number(axis, I64))
        yield one(f"argmax axis {axis}", "ArgMax", square, axis=axis, keepdims=0)
        yield one(f"reduce sum axis {axis}", "ReduceSum", square, i64(axis), keepdims=0)
        yield one(f"reduce max axis {axis}", "ReduceMax", square, i64(axis), keepdims=0)
        yield one(f"softmax axis {axis}", "Softmax", square, axis=axis)
    yield one("argmax middle axis", "ArgMax", planes, axis=1, keepdims=0)
    yield one("argmax axis 0 u8", "ArgMax", data((2 * side, 2 * side), U8), axis=0, keepdims=0)
    yield one("reduce mean images", "ReduceMean", planes, i64(2, 3), keepdims=0)
    yield one("reduce mean channels", "ReduceMean", planes, i64(1), keepdims=1)
    yield one("reduce sum of all", "ReduceSum", square, keepdims=0)
    yield one("reduce product", "ReduceProd", square, i64(1), keepdims=0)
    yield one("reduce L2", "ReduceL2", square, i64(1), keepdims=0)
    yield one("reduce log sum exp", "ReduceLogSumExp", square, i64(1), keepdims=0)
    yield one("softmax channels", "Softmax", planes, axis=1)
    yield one("softmax of rows of 256", "Softmax", thin, axis=-1)
    yield one("softmax of rows of 3", "Softmax", data((s.n // 3, 3)), axis=-1)
    yield one("log softmax axis 1", "LogSoftmax", square, axis=1)
    yield one("hardmax axis 1", "Hardmax", square, axis=1)
    yield one("lp normalization", "LpNormalization", thin, axis=-1)


def index(s):
    n, side, square, thin = s.n, s.side, s.square, s.thin
    for axis in (0, 1):
        half = RANDOM.integers(0, side, side // 2).astype(I64)
        yield Op(f"gather axis {axis}", "Gather", {"0_x": square, "1_i": half}, axis=axis)
    rows = RANDOM.permutation(len(thin)).astype(I64)
    yield one("gather rows of 256", "Gather", thin, RANDOM.integers(0, len(thin), len(thin)).astype(I64))
    yield Op("gather nd rows of 256", "GatherND", {"0_x": thin, "1_i": rows[:, None]})
    positions = RANDOM.integers(0, side, (side, side)).astype(I64)
    yield Op("gather elements", "GatherElements", {"0_x": square, "1_i": positions}, axis=1)
    yield Op("scatter nd rows of 256", "ScatterND", {"0_x": thin, "1_i": rows[: len(rows) // 2, None], "2_u": thin[: len(rows) // 2]})
    distinct = np.argsort(RANDOM.random((side, side // 2)), axis=1).astype(I64)
    updates = {"0_x": square, "1_i": distinct, "2_u": data((side, side // 2))}
    yield Op("scatter elements", "ScatterElements", updates, axis=1)
    yield Op("scatter elements, added", "ScatterElements", updates, axis=1, reduction="add")
    yield Op("compress rows", "Compress", {"0_x": thin, "1_c": data((len(thin),), BOOL)}, axis=0)
    yield one("non-zero", "NonZero", data((side, side), BOOL))
    yield one("unique", "Unique", data((n // 16,), I64), sorted=1)
    yield one("top 5 of 256", "TopK", thin, i64(5), outputs=2, axis=-1)
    yield one("top 50 of a row", "TopK", data((max(n // 2**15, 1), 2**15)), i64(50), outputs=2, axis=-1)
    yield one("top 5, axis 0", "TopK", square, i64(5), outputs=2, axis=0)
    yield one("sort rows of 256", "TopK", thin, i64(256), outputs=2, axis=-1)
    classes = RANDOM.integers(0, 1000, n // 1000).astype(I64)
    off_on = np.array([0, 1], F32)
    for axis in (-1, 0):
        fixed = {"1_depth": number(1000, I64), "2_values": off_on}
        yield Op(f"one-hot axis {axis}", "OneHot", {"0_i": classes}, fixed, axis=axis)


def norms(s):
    thin, planes = s.thin, s.planes
    ones, zeros = np.ones(256, F32), np.zeros(256, F32)
    channels = np.abs(data((64,))) + F32(0.5)
    yield one("layer norm", "LayerNormalization", thin, ones, zeros, axis=-1)
    yield one("rms norm", "RMSNormalization", thin, ones, axis=-1, opset=23)
    yield one("instance norm", "InstanceNormalization", planes, channels, channels)
    yield one("group norm", "GroupNormalization", planes, channels, channels, num_groups=8)
    yield one("batch norm", "BatchNormalization", planes, *[channels] * 4)
    yield one("mean variance norm", "MeanVarianceNormalization", planes, axes=[0, 2, 3])
    yield one("LRN", "LRN", planes, size=5)


def images(s):
    image, planes = s.image, s.planes
    small, none = data((1, 64, image // 2, image // 2)), None
    doubled, halved = np.array([1, 1, 2, 2], F32), np.array([1, 1, 0.5, 0.5], F32)
    floor = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    yield one("resize nearest ×2", "Resize", small, none, doubled, mode="nearest", **floor)
    yield one("resize linear ×2", "Resize", small, none, doubled, mode="linear")
    yield one("resize cubic ×2", "Resize", small, none, doubled, mode="cubic")
    yield one("resize linear ×½", "Resize", planes, none, halved, mode="linear")
    grid = RANDOM.uniform(-1, 1, (1, image, image, 2)).astype(F32)
    yield Op("grid sample", "GridSample", {"0_x": planes, "1_g": grid}, mode="linear", opset=20)
    boxes = RANDOM.uniform(0, image / 2, (64, 4)).astype(F32)
    boxes[:, 2:] += boxes[:, :2]
    yield Op("roi align", "RoiAlign", {"0_x": planes, "1_b": boxes}, {"2_i": np.zeros(64, I64)}, output_height=7, output_width=7, sampling_ratio=2)
    yield one("max pool 2", "MaxPool", planes, kernel_shape=[2, 2], strides=[2, 2])
    yield one("max pool 3 by 2", "MaxPool", planes, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    yield one("average pool 3", "AveragePool", planes, kernel_shape=[3, 3], pads=[1] * 4)
    yield one("global average pool", "GlobalAveragePool", planes)
    yield one("global max pool", "GlobalMaxPool", planes)


def convolutions(s):
    image, planes = s.image, s.planes
    yield one("depthwise conv 3×3", "Conv", planes, taps(64, 1, 3, 3), kernel_shape=[3, 3], pads=[1] * 4, group=64)
    yield one("conv 1×1", "Conv", planes, taps(64, 64, 1, 1), kernel_shape=[1, 1])
    yield one("conv 1D", "Conv", data((1, 64, s.n // 64)), taps(64, 64, 3), kernel_shape=[3], pads=[1, 1])
    quarter = data((1, 64, image // 4, image // 4))
    for k in (2, 4):
        how = {"kernel_shape": [k, k], "strides": [2, 2], "pads": [k // 2 - 1] * 4}
        yield one(f"transposed conv {k}×{k} by 2", "ConvTranspose", quarter, taps(64, 32, k, k), **how)
    how["group"] = 64
    yield one("depthwise transposed conv 4×4 by 2", "ConvTranspose", quarter, taps(64, 1, 4, 4), **how)
    line = data((1, 64, s.n // 256))
    yield one("transposed conv 1D by 2", "ConvTranspose", line, taps(64, 32, 4), kernel_shape=[4], strides=[2], pads=[1, 1])


FAMILIES = [movement, elementwise, along_an_axis, index, norms, images, convolutions]


def ops(mb):
    """The table: each op on about `mb` MB of f32."""
    sizes = Sizes(mb)
    for family in FAMILIES:
        yield from family(sizes)
