"""Models of scikit-learn, written by skl2onnx; what they must give is scikit-learn's own predictions.

    pip install scikit-learn skl2onnx

Fitted here on data that scikit-learn brings, so that nothing is downloaded. Probabilities are one tensor: maps
(`zipmap`) are no tensors.
"""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from skl2onnx import to_onnx
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes, load_wine
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, OneHotEncoder, StandardScaler
from sklearn.svm import SVR

HERE = Path(__file__).resolve().parent
ROWS = 12  # of the goldens
OPSETS = {"": 17, "ai.onnx.ml": 3}


def wine():
    x, y = load_wine(return_X_y=True)
    return x.astype(np.float32), y


def diabetes():
    x, y = load_diabetes(return_X_y=True)
    return x.astype(np.float32), y


def mixed():
    """Wine with gaps in its first columns, and two columns of categories."""
    x, y = wine()
    gaps = x[:, :3].copy()
    gaps[::7, 0] = gaps[3::11, 2] = np.nan
    categories = np.stack([x[:, 3] // 5, x[:, 4] // 20], 1)
    return np.concatenate([gaps, categories], 1).astype(np.float32), (y > 0).astype(np.int64)


def columns():
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    parts = [("numbers", numbers, [0, 1, 2]), ("categories", OneHotEncoder(), [3, 4])]
    return make_pipeline(ColumnTransformer(parts), LogisticRegression())


CASES = {
    "classical_logistic": (lambda: make_pipeline(StandardScaler(), LogisticRegression()), wine),
    "classical_columns": (columns, mixed),
    "classical_forest": (lambda: RandomForestClassifier(10, max_depth=5, random_state=0), wine),
    "classical_boosting": (lambda: GradientBoostingRegressor(n_estimators=20, random_state=0), diabetes),
    "classical_svr": (lambda: make_pipeline(Normalizer(), SVR(C=100.0)), lambda: (wine()[0][:60], wine()[0][:60, 0])),
}


def name_batch(model):
    """The exporter leaves the number of rows without a name."""
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"


def described(values):
    kinds = {onnx.TensorProto.FLOAT: "f32", onnx.TensorProto.INT64: "i64"}
    shapes = [[d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in values]
    return [
        {"name": v.name, "dtype": kinds[v.type.tensor_type.elem_type], "shape": shape}
        for v, shape in zip(values, shapes)
    ]


def export(name):
    """Fits one model and writes its files; returns its entry in cases.json."""
    make, data = CASES[name]
    x, y = data()
    net = make().fit(x, y)
    options = {"zipmap": False} if hasattr(net, "classes_") else None
    model = to_onnx(net, x[:1], options=options, target_opset=OPSETS)
    name_batch(model)
    model.graph.name = name
    rows = x[:: len(x) // ROWS][:ROWS]
    wanted = [net.predict(rows)]
    if hasattr(net, "classes_"):
        wanted = [wanted[0].astype(np.int64), net.predict_proba(rows).astype(np.float32)]
    else:
        wanted = [wanted[0].astype(np.float32)[:, None]]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run(None, {"X": rows})
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape and np.abs(a - b).max() <= 1e-4 * max(1.0, np.abs(b).max()), name
    onnx.checker.check_model(model)
    folder = HERE / "classical"
    folder.mkdir(exist_ok=True)
    onnx.save(model, folder / f"{name}.onnx")
    golden = folder / f"golden_{name.removeprefix('classical_')}.npz"
    outputs = {f"out_{o.name}": array for o, array in zip(model.graph.output, wanted)}
    np.savez(golden, in_X=rows, **outputs)
    print(f"{name}: {len(model.SerializeToString())} bytes")
    return {
        "name": name,
        "onnx": f"classical/{name}.onnx",
        "weights": None,
        "exporter": "skl2onnx",
        "opset": OPSETS[""],
        "inputs": described(model.graph.input),
        "outputs": described(model.graph.output),
        "limits": {},
        "goldens": [{"file": str(golden.relative_to(HERE)), "dims": {"batch": ROWS}, "formula_inputs": {}}],
    }
