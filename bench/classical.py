"""Time models of scikit-learn beside ONNX Runtime and scikit-learn itself, in one interleaved run.

    python bench/classical.py --threads 1,2
    python bench/classical.py forest svc --rows 1000 --markdown target/classical.md

The models are fitted here, on made-up data of 20 features, and written by skl2onnx: forests, boosted trees, support vector machines,
nearest neighbours, a linear model. RLX and ONNX Runtime run the file with as many threads as asked for; scikit-learn predicts by its own
default, one thread for most. A ratio is the other's time over RLX's: above 1, RLX is faster. Minima of all rounds are compared. How
the rounds alternate, and what is installed first, is described in bench/peers.
"""

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import environment  # noqa: E402  (from bench/peers, see above)

if __name__ == "__main__":
    environment.use()

import machine  # noqa: E402  (the environment has what these import)
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from models import Job  # noqa: E402
from peer import KINDS, Failed, Peer, difference  # noqa: E402
from skl2onnx import to_onnx  # noqa: E402
from sklearn.datasets import make_classification  # noqa: E402
from sklearn.ensemble import (  # noqa: E402
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.neighbors import KNeighborsClassifier  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.svm import SVC, SVR  # noqa: E402

FEATURES, FITTED = 20, 2000
OPSETS = {"": 17, "ai.onnx.ml": 3, "com.microsoft": 1}
MODELS = {
    "forest of 100": RandomForestClassifier(100, random_state=0),
    "forest of 100, regression": RandomForestRegressor(100, max_depth=8, random_state=0),
    "boosting, 200 of depth 3": GradientBoostingRegressor(n_estimators=200, random_state=0),
    "svc": make_pipeline(StandardScaler(), SVC()),
    "svr": make_pipeline(StandardScaler(), SVR()),
    "5 nearest neighbours": KNeighborsClassifier(),
    "logistic": make_pipeline(StandardScaler(), LogisticRegression()),
}


def fitted(net):
    """Fits the model; the rows that it was fitted to."""
    x, y = make_classification(FITTED, FEATURES, n_informative=10, n_classes=3, random_state=0)
    x = x.astype(np.float32)
    net.fit(x, y)
    return x


def written(name, net, x, path):
    """Writes the model as ONNX, with tensors of probabilities instead of maps."""
    options = {}
    last = net.steps[-1][1] if hasattr(net, "steps") else net
    if hasattr(last, "classes_"):
        options["zipmap"] = False
    if isinstance(last, KNeighborsClassifier):
        options["optim"] = "cdist"
    model = to_onnx(net, x[:1], options={id(last): options} if options else None, target_opset=OPSETS)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    model.graph.name = name
    onnx.save(model, path)


class ScikitLearn:
    """scikit-learn in this process, timed as the others are."""

    def __init__(self, net, x):
        self.x = x
        self.run = net.predict_proba if hasattr(net, "predict_proba") else net.predict
        self.min_ms = float("inf")

    def round(self, seconds):
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            self.run(self.x)
            self.min_ms = min(self.min_ms, (time.perf_counter() - start) * 1e3)


def measure(name, net, rows, threads, args):
    model, inputs = args.folder / "classical.onnx", args.folder / "classical.npz"
    x = fitted(net)
    written(name, net, x, model)
    x = np.resize(x, (rows, FEATURES))
    np.savez(inputs, X=x)
    job = Job(name, model, {"batch": rows}, inputs)
    kinds = {kind.name: kind for kind in KINDS}
    rlx = Peer(kinds["rlx"], job, threads, "f32")
    try:
        peer = Peer(kinds["onnxruntime"], job, threads, "f32")
    except Failed:
        rlx.close()
        raise
    try:
        differs = difference(rlx.outputs(args.folder), peer.outputs(args.folder))
        own = ScikitLearn(net, x)
        for _ in range(args.rounds):
            for side in (rlx, peer, own):
                time.sleep(0.02)  # let the other's threads stop spinning
                side.round(args.seconds)
    finally:
        rlx.close()
        peer.close()
    ours, theirs = rlx.figures()["min_ms"], peer.figures()["min_ms"]
    return {
        "model": name, "rows": rows, "threads": threads, "differs": differs, "rlx_ms": ours, "onnxruntime_ms": theirs,
        "sklearn_ms": own.min_ms, "of_onnxruntime": theirs / ours, "of_sklearn": own.min_ms / ours,
    }  # fmt: skip


HEAD = "| model | rows | threads | RLX | ONNX Runtime | scikit-learn | ONNX Runtime / RLX | scikit-learn / RLX | differs |"


def line(r):
    times = " | ".join(f"{r[side]:.4g}" for side in ("rlx_ms", "onnxruntime_ms", "sklearn_ms"))
    ratios = " | ".join(f"{r[side]:.2f}" for side in ("of_onnxruntime", "of_sklearn"))
    return f"| {r['model']} | {r['rows']:,} | {r['threads']} | {times} | {ratios} | {r['differs']:.0e} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="*", help="measure the models whose names contain one of these words")
    parser.add_argument("--rows", default="1,1000", help="rows of a run, as 1,1000 (default)")
    parser.add_argument("--threads", default="1", help="one or more counts, as 1,2 (default 1)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds for each side (default 3)")
    parser.add_argument("--seconds", type=float, default=0.2, help="length of a round (default 0.2)")
    parser.add_argument("--folder", type=Path, default=environment.FOLDER / "classical", help="for models and inputs")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    results = []
    print(HEAD)
    for name, net in MODELS.items():
        if args.only and not any(word in name for word in args.only):
            continue
        for rows in map(int, args.rows.split(",")):
            for threads in map(int, args.threads.split(",")):
                try:
                    results.append(measure(name, net, rows, threads, args))
                    print(line(results[-1]), flush=True)
                except Failed as why:
                    print(f"{name}, {rows} rows: not compared: {why}", flush=True)
    if args.markdown:
        rule = "|---" * (HEAD.count("|") - 1) + "|"
        args.markdown.write_text("\n".join([HEAD, rule, *map(line, results)]) + "\n")
    if args.json:
        args.json.write_text(json.dumps({"machine": machine.described(), "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
