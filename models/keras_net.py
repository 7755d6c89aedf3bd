"""A convolutional net of Keras 3, written by its own ONNX export; what it must give is Keras' own prediction.

    pip install keras           # on PyTorch, which it uses as its backend here

Keras keeps channels last, PyTorch first: the graph is full of transposes, which a compiler should cancel.
"""

import os
from pathlib import Path

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import onnx
import onnxruntime
from keras import layers

import weights

HERE = Path(__file__).resolve().parent
OPSET = 18
SIZE = 24
CASES = ["keras_cnn"]


def net():
    image = keras.Input((SIZE, SIZE, 3), name="image")
    x = layers.Conv2D(16, 3, padding="same", use_bias=False)(image)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.MaxPooling2D()(x)
    shortcut = x
    x = layers.DepthwiseConv2D(3, padding="same")(x)
    x = layers.Conv2D(16, 1, activation="relu")(x)
    x = layers.Add()([x, shortcut])
    x = layers.Conv2D(32, 3, strides=2, padding="valid", activation="relu")(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(image, layers.Dense(10, activation="softmax")(x))


def fill(model):
    """The formula's values for every weight, by its path."""
    for variable in model.weights:
        shape = list(variable.shape)
        last = variable.path.rsplit("/", 1)[-1]
        if last == "kernel":
            scale, shift = 1.5 * np.sqrt(3 / np.prod(shape[:-1])), 0.0
        else:
            scale, shift = {"gamma": (0.1, 1.0), "moving_variance": (0.5, 1.0)}.get(last, (0.1, 0.0))
        made = weights.values(variable.path, shape, round(scale * weights.UNIT), round(shift * weights.UNIT))
        variable.assign(made)


def export(name):
    """Writes the model's files; returns its entry in cases.json."""
    keras.utils.set_random_seed(0)
    model = net()
    fill(model)
    folder = HERE / "keras_cnn"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.onnx"
    model.predict(np.zeros((1, SIZE, SIZE, 3), np.float32), verbose=0)
    model.export(str(path), format="onnx", opset_version=OPSET, verbose=False)
    graph = onnx.load(path)
    from export import tidy  # not at the top: export.py imports this module

    tidy(graph)
    (image,), (result,) = graph.graph.input, graph.graph.output
    batch = image.type.tensor_type.shape.dim[0].dim_param
    assert batch, "the batch is dynamic"
    rename = {"scale": 3 * weights.UNIT // 2, "shift": 0}
    x = weights.values("golden keras", [3, SIZE, SIZE, 3], **rename)
    wanted = model.predict(x, verbose=0)
    for value in (image, result):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    del graph.graph.value_info[:]
    onnx.checker.check_model(graph, full_check=True)
    onnx.save(graph, path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {image.name: x})
    assert np.abs(found - wanted).max() <= 1e-5, np.abs(found - wanted).max()
    golden = folder / "golden.npz"
    np.savez(golden, **{f"in_{image.name}": x, f"out_{result.name}": wanted})
    print(f"{name}: {path.stat().st_size} bytes, probabilities up to {wanted.max():.2f}")
    return {
        "name": name,
        "onnx": f"keras_cnn/{name}.onnx",
        "weights": None,
        "exporter": "Keras",
        "opset": OPSET,
        "inputs": [{"name": image.name, "dtype": "f32", "shape": ["batch", SIZE, SIZE, 3]}],
        "outputs": [{"name": result.name, "dtype": "f32", "shape": ["batch", 10]}],
        "limits": {},
        "goldens": [{"file": str(golden.relative_to(HERE)), "dims": {"batch": 3}, "formula_inputs": {}}],
    }
