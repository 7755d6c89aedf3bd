"""Models of classical machine learning, and single ops on strings and maps, with what ONNX Runtime gives for them.

    python models/classical_models.py        # writes crates/rlx-onnx/tests/classical/NAME.onnx and .npz

What scikit-learn's own converter writes by default: string labels, ZipMap and all. NPZ files have no strings, so `outs_y` is
their UTF-8 text joined by line feeds and `outd_y` their dimensions; `keys_y` or `keyss_y` are the keys of a map.
"""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

FOLDER = Path(__file__).resolve().parent.parent / "crates/rlx-onnx/tests/classical"
ML = "ai.onnx.ml"
RANDOM = np.random.default_rng(11)


def text(strings):
    return np.frombuffer("\n".join(strings).encode(), np.uint8)


def store(arrays, prefix, name, value):
    if isinstance(value, list):
        keys = list(value[0])
        arrays[f"{prefix}_{name}"] = np.array([[row[k] for k in keys] for row in value], np.float32)
        named = isinstance(keys[0], str)
        arrays[f"keyss_{name}" if named else f"keys_{name}"] = text(keys) if named else np.array(keys, np.int64)
    elif value.dtype.kind in "OU":
        arrays[f"{prefix}s_{name}"] = text([str(s) for s in value.ravel()])
        arrays[f"{prefix}d_{name}"] = np.array(value.shape, np.int64)
    else:
        arrays[f"{prefix}_{name}"] = value


def save(name, model, inputs):
    session = onnxruntime.InferenceSession(model.SerializeToString())
    outputs = session.run(None, inputs)
    arrays = {}
    for key, value in inputs.items():
        store(arrays, "in", key, value)
    for output, value in zip(session.get_outputs(), outputs):
        store(arrays, "out", output.name, value)
    model.doc_string, model.producer_version = "", ""
    onnx.save(model, FOLDER / f"{name}.onnx")
    np.savez_compressed(FOLDER / f"{name}.npz", **arrays)
    print(name, [o.name for o in session.get_outputs()])


def op(name, kind, x, outputs, domain=ML, opset=None, **attributes):
    node = helper.make_node(kind, ["x"], [f"y{i}" for i in range(outputs)], domain=domain, **attributes)
    elem = TensorProto.STRING if x.dtype.kind in "OU" else helper.np_dtype_to_tensor_dtype(x.dtype)
    inputs = [helper.make_tensor_value_info("x", elem, list(x.shape))]
    graph = helper.make_graph([node], name, inputs, [onnx.ValueInfoProto(name=o) for o in node.output])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, opset or 3)]
    save(name, helper.make_model(graph, opset_imports=opsets, ir_version=9), {"x": x})


def ops():
    floats = lambda *shape: RANDOM.normal(size=shape).astype(np.float32)
    colours = np.array([["red", "green"], ["none of them", "blue"]])
    names = ["red", "green", "blue"]
    op("label_encoder_strings", "LabelEncoder", colours, 1, keys_strings=names, values_int64s=[7, 8, 9], default_int64=-5)
    op("label_encoder_to_strings", "LabelEncoder", np.array([[3, 1], [2, 9]]), 1, keys_int64s=[1, 2, 3], values_strings=["a", "b", "a"], default_string="?")
    op("label_encoder_between_strings", "LabelEncoder", colours, 1, keys_strings=names, values_strings=["r", "g", "b"])
    op("label_encoder_classes", "LabelEncoder", colours, 1, opset=1, classes_strings=names)
    op("label_encoder_of_places", "LabelEncoder", np.array([0, 2, 1, 5]), 1, opset=1, classes_strings=names)
    op("category_mapper", "CategoryMapper", colours, 1, cats_strings=names, cats_int64s=[4, 5, 6])
    op("category_mapper_to_strings", "CategoryMapper", np.array([[4, 0], [6, 5]]), 1, cats_strings=names, cats_int64s=[4, 5, 6])
    op("one_hot_strings", "OneHotEncoder", colours, 1, cats_strings=names, zeros=1)
    two = {"coefficients": [0.5, -0.4, 1.0], "intercepts": [0.1]}
    for transform in ["NONE", "LOGISTIC"]:
        op(f"linear_single_{transform.lower()}", "LinearClassifier", floats(5, 3), 2, classlabels_strings=["no", "yes"], post_transform=transform, **two)
    op("linear_strings", "LinearClassifier", floats(6, 2), 2, classlabels_strings=names, coefficients=[1.0, 2.0, 3.0, -1.0, 0.5, 0.25], intercepts=[0.5, -0.5, 0.0], post_transform="SOFTMAX_ZERO")
    vectors = {"support_vectors": [1.0, 0.5, -1.0, 0.25, 0.0, 2.0], "kernel_type": "RBF", "kernel_params": [0.5, 0.0, 3.0]}
    pair = {"coefficients": [1.0, -2.0, 0.5], "vectors_per_class": [1, 2], "rho": [0.25], **vectors}
    three = {"coefficients": [1.0, -2.0, 0.5, -1.0, 0.3, 0.7], "vectors_per_class": [1, 1, 1], "rho": [0.25, -0.1, 0.3], **vectors}
    for transform in ["NONE", "LOGISTIC", "SOFTMAX"]:
        op(f"svc_two_{transform.lower()}", "SVMClassifier", floats(6, 2), 2, classlabels_ints=[3, 7], post_transform=transform, **pair)
    op("svc_two_probabilities", "SVMClassifier", floats(6, 2), 2, classlabels_strings=["no", "yes"], prob_a=[-1.2], prob_b=[0.1], **pair)
    op("svc_three", "SVMClassifier", floats(9, 2), 2, classlabels_ints=[3, 7, 9], **three)
    op("svc_three_probabilities", "SVMClassifier", floats(9, 2), 2, classlabels_ints=[3, 7, 9], prob_a=[-1.2, -0.8, -1.0], prob_b=[0.1, 0.2, -0.1], **three)
    words = np.array([["the", "red", "fox", "the"], ["red", "fox", "other", "red"]])
    grams = {"pool_strings": ["the", "red", "fox", "the", "red", "red", "fox"], "ngram_counts": [0, 3], "ngram_indexes": [2, 0, 1, 4, 3], "weights": [0.5, 1.0, 2.0, 3.0, 4.0]}
    for mode in ["TF", "IDF", "TFIDF"]:
        op(f"tf_idf_{mode.lower()}", "TfIdfVectorizer", words, 1, domain="", mode=mode, min_gram_length=1, max_gram_length=2, max_skip_count=1, **grams)


def pipelines():
    x, y = load_iris(return_X_y=True)
    x = x.astype(np.float32)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    two = y < 2
    probe = x[::17]
    target = {"": 18, ML: 3}
    models = {
        "random_forest": (RandomForestClassifier(6, max_depth=4, random_state=0), y),
        "random_forest_strings": (RandomForestClassifier(4, max_depth=3, random_state=1), names),
        "decision_tree": (DecisionTreeClassifier(max_depth=4, random_state=0), names),
        "gradient_boosting": (GradientBoostingClassifier(n_estimators=3, max_depth=2, random_state=0), y),
        "logistic_regression": (LogisticRegression(max_iter=500), names),
        "scaled_logistic_regression": (make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)), y),
        "svc": (SVC(), y),
        "svc_strings": (make_pipeline(StandardScaler(), SVC(kernel="poly")), names),
        "k_neighbours": (KNeighborsClassifier(3), y),
        "k_neighbours_strings": (KNeighborsClassifier(3), names),
    }
    for name, (model, labels) in models.items():
        small = 5 if name.startswith("k_") else 1
        save(name, to_onnx(model.fit(x[::small], labels[::small]), x[:1], target_opset=target), {"X": probe})
    binary = LogisticRegression().fit(x[two], y[two])
    save("logistic_regression_two", to_onnx(binary, x[:1], target_opset=target), {"X": probe})
    colours = np.array(["red", "green", "blue"])[(x[:, 0] * 10).astype(int) % 3].reshape(-1, 1).astype(object)
    table = np.concatenate([x[:, :2].astype(object), colours], axis=1)
    columns = ColumnTransformer([("n", StandardScaler(), [0, 1]), ("c", OneHotEncoder(handle_unknown="ignore"), [2])])
    mixed = make_pipeline(columns, LogisticRegression(max_iter=500)).fit(table, names)
    types = [("n", FloatTensorType([None, 2])), ("c", StringTensorType([None, 1]))]
    unknown = colours[::17].copy()
    unknown[3] = "mauve"
    save("table_of_numbers_and_strings", to_onnx(mixed, initial_types=types, target_opset=target), {"n": probe[:, :2], "c": unknown})


FOLDER.mkdir(exist_ok=True)
ops()
pipelines()
