"""Classical models with their libraries' defaults: scikit-learn, LightGBM, XGBoost, CatBoost."""

import tempfile
from pathlib import Path

import numpy as np
import onnx

from case import File, Model

ROWS, COLUMNS = 160, 6
ASKED = 12  # rows that both programs run


def data(classes=3):
    """Rows and classes that depend on them."""
    random = np.random.default_rng(11)
    x = random.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    score = np.stack([x @ random.normal(size=COLUMNS) for _ in range(classes)], 1)
    return x, score.argmax(1), (score[:, 0] + 0.1 * random.normal(size=ROWS)).astype(np.float32)


def scikit(name, build, target="class", labels=None, **options):
    """A line of the table: an estimator of scikit-learn, fitted here, by skl2onnx with its defaults."""

    def make():
        from skl2onnx import to_onnx

        x, classes, numbers = data()
        y = {"class": np.array(labels)[classes] if labels else classes, "number": numbers, "none": None}[target]
        model = build().fit(x) if y is None else build().fit(x, y)
        return File(to_onnx(model, x[:1], target_opset=options.pop("opset", 21), **options), {"X": x[:ASKED]})

    return Model(name, "classical", "scikit-learn", make, ("skl2onnx",))


def columns():
    """Columns of text and numbers, each with an encoder of its own, and a classifier."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
    import pandas

    x, classes, _ = data()
    towns = np.array(["Oslo", "Lima", "Kyoto"])[(x[:, 0] > 0).astype(int) + (x[:, 1] > 0)]
    sizes = np.array(["small", "large"])[(x[:, 2] > 0).astype(int)]
    table = pandas.DataFrame({"age": x[:, 3], "income": x[:, 4], "town": towns, "size": sizes})
    table.loc[::7, "age"] = np.nan
    parts = [
        ("n", make_pipeline(SimpleImputer(), StandardScaler()), ["age", "income"]),
        ("t", OneHotEncoder(handle_unknown="ignore"), ["town"]), ("s", OrdinalEncoder(), ["size"]),
    ]  # fmt: skip
    model = make_pipeline(ColumnTransformer(parts), LogisticRegression()).fit(table, np.array(["no", "yes", "perhaps"])[classes])
    types = [(c, StringTensorType([None, 1]) if table[c].dtype == object or str(table[c].dtype).startswith("str") else FloatTensorType([None, 1])) for c in table]
    inputs = {c: table[[c]][:ASKED].to_numpy() for c in table}
    inputs = {c: a.astype(str).astype(object) if c in ("town", "size") else a.astype(np.float32) for c, a in inputs.items()}
    return File(convert_sklearn(model, initial_types=types, target_opset=21), inputs)


def lightgbm(kind):
    def make():
        import lightgbm
        from onnxmltools import convert_lightgbm
        from onnxmltools.convert.common.data_types import FloatTensorType

        x, classes, numbers = data()
        model = getattr(lightgbm, kind)(n_estimators=12, verbose=-1).fit(x, classes if "Class" in kind else numbers)
        return File(convert_lightgbm(model, initial_types=[("X", FloatTensorType([None, COLUMNS]))], target_opset=15), {"X": x[:ASKED]})

    return make


def xgboost(kind):
    def make():
        import xgboost
        from onnxmltools import convert_xgboost
        from onnxmltools.convert.common.data_types import FloatTensorType

        x, classes, numbers = data()
        model = getattr(xgboost, kind)(n_estimators=12).fit(x, classes if "Class" in kind else numbers)
        return File(convert_xgboost(model, initial_types=[("X", FloatTensorType([None, COLUMNS]))], target_opset=15), {"X": x[:ASKED]})

    return make


def catboost(kind, classes=3):
    def make():
        import catboost

        x, y, numbers = data(classes)
        model = getattr(catboost, kind)(iterations=12, verbose=False, allow_writing_files=False).fit(x, y if "Class" in kind else numbers)
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "model.onnx")
            model.save_model(path, format="onnx")
            return File(onnx.load(path), {"features": x[:ASKED]})

    return make


def estimators():
    from sklearn import cluster, decomposition, discriminant_analysis, ensemble, gaussian_process, linear_model, naive_bayes
    from sklearn import neighbors, neural_network, pipeline, preprocessing, svm, tree

    yield scikit("logistic_zipmap", linear_model.LogisticRegression)
    yield scikit("logistic_string_labels", linear_model.LogisticRegression, labels=["red", "green", "blue"])
    yield scikit("forest_zipmap", lambda: ensemble.RandomForestClassifier(n_estimators=10))
    yield scikit("extra_trees", lambda: ensemble.ExtraTreesRegressor(n_estimators=10), "number")
    yield scikit("decision_tree", tree.DecisionTreeClassifier)
    yield scikit("svc", svm.SVC)
    yield scikit("svc_linear", lambda: svm.SVC(kernel="linear"))
    yield scikit("linear_svc", svm.LinearSVC)
    yield scikit("nu_svc_poly", lambda: svm.NuSVC(kernel="poly", nu=0.1))
    yield scikit("one_class_svm", svm.OneClassSVM, "none")
    yield scikit("k_neighbors_classifier", neighbors.KNeighborsClassifier)
    yield scikit("k_neighbors_regressor", lambda: neighbors.KNeighborsRegressor(weights="distance"), "number")
    yield scikit("naive_bayes", naive_bayes.GaussianNB)
    yield scikit("mlp_classifier", lambda: neural_network.MLPClassifier(max_iter=50))
    yield scikit("ada_boost", lambda: ensemble.AdaBoostClassifier(n_estimators=8))
    yield scikit("bagging", lambda: ensemble.BaggingClassifier(n_estimators=5))
    yield scikit("voting", lambda: ensemble.VotingClassifier([("l", linear_model.LogisticRegression()), ("t", tree.DecisionTreeClassifier())], voting="soft", flatten_transform=False))
    yield scikit("isolation_forest", lambda: ensemble.IsolationForest(n_estimators=10), "none", opset={"": 21, "ai.onnx.ml": 3})
    yield scikit("gaussian_process", gaussian_process.GaussianProcessRegressor, "number")
    yield scikit("k_means", lambda: cluster.KMeans(3), "none")
    yield scikit("discriminant_analysis", discriminant_analysis.LinearDiscriminantAnalysis)
    yield scikit("scaler_pca_ridge", lambda: pipeline.make_pipeline(preprocessing.StandardScaler(), decomposition.PCA(3), linear_model.Ridge()), "number")
    yield scikit("bins_polynomial", lambda: pipeline.make_pipeline(preprocessing.KBinsDiscretizer(4, encode="onehot-dense"), linear_model.LogisticRegression()))
    yield scikit("polynomial_lasso", lambda: pipeline.make_pipeline(preprocessing.PolynomialFeatures(2), linear_model.Lasso(0.01)), "number")


MODELS = [
    *estimators(),
    Model("text_and_number_columns", "classical", "scikit-learn", columns, ("skl2onnx",)),
    *(Model(f"lightgbm_{n}", "classical", "LightGBM", lightgbm(k), ("onnxmltools",)) for n, k in (("classifier", "LGBMClassifier"), ("regressor", "LGBMRegressor"))),
    *(Model(f"xgboost_{n}", "classical", "XGBoost", xgboost(k), ("onnxmltools",)) for n, k in (("classifier", "XGBClassifier"), ("regressor", "XGBRegressor"))),
    Model("catboost_classifier", "classical", "CatBoost", catboost("CatBoostClassifier"), ("CatBoost",)),
    Model("catboost_binary", "classical", "CatBoost", catboost("CatBoostClassifier", 2), ("CatBoost",)),
    Model("catboost_regressor", "classical", "CatBoost", catboost("CatBoostRegressor"), ("CatBoost",)),
]
