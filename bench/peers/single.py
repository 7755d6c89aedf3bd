"""Models of one op, described by their name.

`gemm_MxKxN` is a matmul of M × K by a constant matrix. `conv_CxHxW_N_kRxS[_sSTEP][_gGROUPS][_dDILATION][_bBATCH]` is a convolution with
N filters, a border of half the window and a bias.
"""

import re

import numpy as np
import onnx
from onnx import helper, numpy_helper

GEMM = re.compile(r"gemm_(\d+)x(\d+)x(\d+)$")
CONV = re.compile(r"conv_(\d+)x(\d+)x(\d+)_(\d+)_k(\d+)x(\d+)(?:_s(\d+))?(?:_g(\d+))?(?:_d(\d+))?(?:_b(\d+))?$")


def one_op(name, folder):
    """The model of one op that the name describes, or nothing."""
    random = np.random.default_rng(7)

    def weights(key, *shape):
        return numpy_helper.from_array(random.standard_normal(shape, np.float32), key)

    if found := GEMM.match(name):
        m, k, n = map(int, found.groups())
        node, x, constants = helper.make_node("MatMul", ["x", "w"], ["y"]), [m, k], [weights("w", k, n)]
    elif found := CONV.match(name):
        c, h, w, n, r, s, stride, groups, dilation, batch = (int(number or 1) for number in found.groups())
        border = [(r - 1) * dilation // 2, (s - 1) * dilation // 2] * 2
        node = helper.make_node(
            "Conv", ["x", "w", "b"], ["y"], strides=[stride] * 2, group=groups, dilations=[dilation] * 2, pads=border
        )
        x, constants = [batch, c, h, w], [weights("w", n, c // groups, r, s), weights("b", n)]
    else:
        return None
    path = folder / f"{name}.onnx"
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x)
    graph = helper.make_graph([node], "op", [given], [helper.make_empty_tensor_value_info("y")], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path
