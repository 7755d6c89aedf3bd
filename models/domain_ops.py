"""One small model for each op of the domains com.microsoft and ai.onnx.ml, with what ONNX Runtime gives for it.

    python models/domain_ops.py        # writes crates/rlx-onnx/tests/domain_ops/NAME.onnx and .npz
"""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

FOLDER = Path(__file__).resolve().parent.parent / "crates/rlx-onnx/tests/domain_ops"
MS, ML = "com.microsoft", "ai.onnx.ml"
RANDOM = np.random.default_rng(5)


def floats(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def u8(*shape):
    return RANDOM.integers(0, 256, shape).astype(np.uint8)


def i8(*shape):
    return RANDOM.integers(-128, 128, shape).astype(np.int8)


def f(x):
    return np.array(x, np.float32)


ZX, ZY, ZW = np.uint8(120), np.uint8(131), np.int8(3)
QX = [u8(2, 3, 4, 4), f(0.02), ZX]  # a quantised picture
QA, QB = [u8(2, 5), f(0.02), ZX], [u8(2, 5), f(0.015), ZY]

# name, domain, op, inputs, attributes, outputs
CASES = [
    ("qlinear_add", MS, "QLinearAdd", [*QA, *QB, f(0.03), ZY], {}, 1),
    ("qlinear_add_broadcast", MS, "QLinearAdd", [*QA, u8(5), f(0.015), ZY, f(0.03), ZY], {}, 1),
    ("qlinear_mul", MS, "QLinearMul", [*QA, *QB, f(0.04), ZX], {}, 1),
    ("qlinear_sigmoid", MS, "QLinearSigmoid", [*QA, f(1 / 256), np.uint8(0)], {}, 1),
    ("qlinear_leaky_relu", MS, "QLinearLeakyRelu", [*QA, f(0.02), ZX], {"alpha": 0.2}, 1),
    ("qlinear_softmax", MS, "QLinearSoftmax", [*QA, f(1 / 256), np.uint8(0)], {"axis": -1, "opset": 13}, 1),
    ("qlinear_concat", MS, "QLinearConcat", [f(0.03), ZY, *QA, *QB], {"axis": 1}, 1),
    ("qlinear_global_average_pool", MS, "QLinearGlobalAveragePool", [*QX, f(0.02), ZY], {"channels_last": 0}, 1),
    ("qlinear_average_pool", MS, "QLinearAveragePool", [*QX, f(0.02), ZX], {"kernel_shape": [2, 2], "strides": [2, 2]}, 1),
    ("qgemm", MS, "QGemm", [u8(3, 5), f(0.02), ZX, i8(4, 5), f([0.01, 0.02, 0.03, 0.04]), np.zeros(4, np.int8), np.arange(-2, 2, dtype=np.int32) * 50, f(0.5), ZY], {"transB": 1}, 1),
    ("qgemm_float", MS, "QGemm", [u8(3, 5), f(0.02), ZX, i8(5, 4), f(0.02), ZW, np.arange(4, dtype=np.int32)], {"alpha": 0.5}, 1),
    ("dynamic_quantize_matmul", MS, "DynamicQuantizeMatMul", [floats(3, 6), i8(6, 4), f(0.02), ZW, floats(4)], {}, 1),
    ("dynamic_quantize_matmul_columns", MS, "DynamicQuantizeMatMul", [floats(2, 3, 6), i8(6, 4), f([0.01, 0.02, 0.03, 0.04]), i8(4)], {}, 1),
    ("matmul_integer_to_float", MS, "MatMulIntegerToFloat", [u8(3, 6), i8(6, 4), f(0.02), f([0.01, 0.02, 0.03, 0.04]), ZX, i8(4), floats(4)], {}, 1),
    ("fused_matmul", MS, "FusedMatMul", [floats(2, 4, 3), floats(2, 5, 4)], {"transA": 1, "transB": 1, "alpha": 0.25}, 1),
    ("gelu", MS, "Gelu", [floats(2, 7)], {}, 1),
    ("bias_gelu", MS, "BiasGelu", [floats(2, 7), floats(7)], {}, 1),
    ("fast_gelu", MS, "FastGelu", [floats(2, 7), floats(7)], {}, 1),
    ("quick_gelu", MS, "QuickGelu", [floats(2, 7)], {"alpha": 1.5}, 1),
    ("skip_layer_norm", MS, "SkipLayerNormalization", [floats(2, 3, 8), floats(2, 3, 8), floats(8), floats(8), floats(8)], {"epsilon": 1e-5}, 4),
    ("skip_rms_norm", MS, "SkipSimplifiedLayerNormalization", [floats(2, 3, 8), floats(2, 3, 8), floats(8)], {"epsilon": 1e-5}, 4),
    ("rms_norm", "", "SimplifiedLayerNormalization", [floats(2, 3, 8), floats(8)], {"epsilon": 1e-5, "axis": -1}, 1),
    ("fused_conv", MS, "FusedConv", [floats(1, 2, 5, 5), floats(3, 2, 3, 3), floats(3)], {"activation": "LeakyRelu", "activation_params": [0.1], "pads": [1, 1, 1, 1]}, 1),
    ("fused_gemm", MS, "FusedGemm", [floats(3, 4), floats(5, 4), floats(5)], {"activation": "Relu", "transB": 1}, 1),
    ("scaler", ML, "Scaler", [floats(4, 3)], {"offset": [0.5, 1.0, -1.0], "scale": [2.0, 0.5, 1.0]}, 1),
    ("normalizer_max", ML, "Normalizer", [np.abs(floats(4, 3))], {"norm": "MAX"}, 1),
    ("normalizer_l1", ML, "Normalizer", [floats(4, 3)], {"norm": "L1"}, 1),
    ("normalizer_l2", ML, "Normalizer", [floats(4, 3)], {"norm": "L2"}, 1),
    ("binarizer", ML, "Binarizer", [floats(4, 3)], {"threshold": 0.25}, 1),
    ("imputer", ML, "Imputer", [np.where(np.arange(12).reshape(4, 3) % 5 == 0, np.nan, floats(4, 3)).astype(np.float32)], {"imputed_value_floats": [7.0, 8.0, 9.0], "replaced_value_float": float("nan")}, 1),
    ("imputer_int", ML, "Imputer", [np.arange(6, dtype=np.int64).reshape(2, 3) % 4], {"imputed_value_int64s": [77], "replaced_value_int64": 0}, 1),
    ("array_feature_extractor", ML, "ArrayFeatureExtractor", [floats(4, 5), np.array([[3, 0]], np.int64)], {}, 1),
    ("feature_vectorizer", ML, "FeatureVectorizer", [floats(4, 2), floats(4, 3)], {"inputdimensions": [2, 3]}, 1),
    ("label_encoder", ML, "LabelEncoder", [np.array([[4, 2], [9, 4]], np.int64)], {"keys_int64s": [2, 4, 6], "values_floats": [0.5, 1.5, 2.5], "default_float": -3.0}, 1),
    ("label_encoder_nan", ML, "LabelEncoder", [f([1.0, np.nan, 3.0])], {"keys_floats": [1.0, float("nan")], "values_int64s": [10, 20], "default_int64": 5}, 1),
    ("one_hot_encoder", ML, "OneHotEncoder", [np.array([[1, 3], [5, 2]], np.int64)], {"cats_int64s": [1, 2, 3], "zeros": 1}, 1),
    ("linear_regressor", ML, "LinearRegressor", [floats(4, 3)], {"coefficients": [1.0, 2.0, 3.0, -1.0, 0.5, 0.25], "intercepts": [0.5, -0.5], "targets": 2}, 1),
    ("linear_classifier", ML, "LinearClassifier", [floats(5, 2)], {"coefficients": [1.0, 2.0, 3.0, -1.0, 0.5, 0.25], "intercepts": [0.5, -0.5, 0.0], "classlabels_ints": [4, 7, 9], "post_transform": "SOFTMAX"}, 2),
    *(
        (f"svm_{kind.lower()}", ML, "SVMRegressor", [floats(4, 2)], {"kernel_type": kind, "kernel_params": [0.5, 0.25, 3.0], "coefficients": [1.0, -2.0, 0.5], "support_vectors": [1.0, 0.5, -1.0, 0.25, 0.0, 2.0], "n_supports": 3, "rho": [0.75]}, 1)
        for kind in ("LINEAR", "POLY", "RBF", "SIGMOID")
    ),
]  # fmt: skip


def tree(name, modes, missing):
    """Two trees; after its root the second one's nodes come in another order."""
    attributes = {
        "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1],
        "nodes_nodeids": [0, 1, 2, 3, 4, 0, 2, 1],
        "nodes_featureids": [0, 0, 1, 0, 0, 2, 0, 0],
        "nodes_modes": [modes[0], "LEAF", modes[1], "LEAF", "LEAF", modes[2], "LEAF", "LEAF"],
        "nodes_values": [0.1, 0.0, -0.2, 0.0, 0.0, 0.3, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 3, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [2, 0, 4, 0, 0, 2, 0, 0],
        "nodes_missing_value_tracks_true": missing,
        "n_targets": 2,
        # Every leaf has a weight for every target: ONNX Runtime adds no base value to a target that a row finds none for.
        "target_treeids": [0, 0, 0, 0, 0, 0, 1, 1, 1, 1],
        "target_nodeids": [1, 1, 3, 3, 4, 4, 1, 1, 2, 2],
        "target_ids": [0, 1, 0, 1, 0, 1, 0, 1, 0, 1],
        "target_weights": [1.0, 0.0, 0.0, 2.0, 3.0, 4.0, 5.0, 0.0, 0.0, 6.0],
        "base_values": [0.5, -0.5],
    }
    x = floats(9, 3)
    x[2, 0] = x[4, 1] = x[5, 2] = np.nan
    x[6, 0] = np.float32(0.1)
    return (name, ML, "TreeEnsembleRegressor", [x], attributes, 1)


CASES += [
    tree("trees_leq", ["BRANCH_LEQ"] * 3, [0] * 8),
    tree("trees_missing", ["BRANCH_LEQ"] * 3, [1, 0, 0, 0, 0, 1, 0, 0]),
    tree("trees_mixed", ["BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"], [0] * 8),
]


def binary(name, weights, **more):
    """A tree whose leaves vote for one of two classes only."""
    (_, _, _, inputs, attributes, _) = tree(name, ["BRANCH_LEQ"] * 3, [0] * 8)
    kept = {k: v for k, v in attributes.items() if k.startswith("nodes_")}
    kept |= {"class_treeids": [0, 0, 0, 0, 1, 1], "class_nodeids": [1, 3, 4, 4, 1, 2]}
    kept |= {"class_ids": [0] * 6, "class_weights": weights, "classlabels_int64s": [3, 8]}
    return (name, ML, "TreeEnsembleClassifier", inputs, kept | more, 2)


CASES += [
    binary("trees_binary_shares", [0.1, 0.2, 0.4, 0.1, 0.3, 0.25]),
    binary("trees_binary_signed", [0.1, -0.2, 0.4, -0.5, 0.3, -0.25], post_transform="LOGISTIC"),
]


def write(name, domain, op, arrays, attributes, outputs):
    # The first operand is an input, the others are the model's own.
    names = [f"i{i}" for i in range(len(arrays))]
    wanted = ["y", "m", "v", "s"][:outputs] if outputs != 4 else ["y", "", "", "s"]
    node = helper.make_node(op, names, wanted, domain=domain, **attributes)
    kinds = [helper.np_dtype_to_tensor_dtype(a.dtype) for a in arrays]
    first = op == "QLinearConcat" and 2 or 0
    inputs = [helper.make_tensor_value_info(names[first], kinds[first], arrays[first].shape)]
    fixed = [onnx.numpy_helper.from_array(np.asarray(a), n) for a, n in zip(arrays, names) if n != names[first]]
    results = [onnx.ValueInfoProto(name=w) for w in wanted if w]
    graph = helper.make_graph([node], name, inputs, results, fixed)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1), helper.make_opsetid(ML, 4)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run(None, {names[first]: arrays[first]})
    (FOLDER / f"{name}.onnx").write_bytes(model.SerializeToString())
    outs = {f"out_{w}": a for w, a in zip([w for w in wanted if w], found)}
    np.savez(FOLDER / f"{name}.npz", **{f"in_{names[first]}": arrays[first]}, **outs)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for case in CASES:
        try:
            write(*case)
        except Exception as e:
            print(case[0], str(e)[:300])
    print(len(list(FOLDER.glob("*.onnx"))), "cases")
