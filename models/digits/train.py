"""Train the handwritten-digit classifier and re-make every file beside this script.

    pip install numpy scikit-learn torch onnx onnxruntime pillow
    python models/digits/train.py

Writes `digits.onnx`, `labels.txt`, `samples/*.png`, `samples/expected.json`, `golden.npz`, and
prints the test accuracy. One thread and fixed seeds: the same package versions on the same kind
of processor give the same bytes.
"""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

HERE = Path(__file__).resolve().parent
SEED = 0
EPOCHS = 60
BATCH = 64


def load():
    """The 1,797 pictures as bytes 0..255, their digits, and the split into training and test."""
    digits = load_digits()
    # The source has 17 grey levels, 0..16. Rounding them to bytes first means that a PNG holds
    # exactly what the network was trained on.
    pictures = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    return train_test_split(
        pictures, digits.target, test_size=0.25, stratify=digits.target, random_state=SEED
    )


def as_input(pictures):
    """Bytes [n, 8, 8] to the network's input [n, 1, 8, 8]: value / 255."""
    return torch.from_numpy(pictures[:, None].astype(np.float32) / np.float32(255))


def network():
    """Three convolutions and one linear layer: about 19,000 weights."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Dropout(0.3),
        nn.Linear(32 * 4 * 4, 10),
    )  # fmt: skip


def shifted(x):
    """Move every picture by -1, 0 or +1 pixel in each direction (random, zero-filled)."""
    padded = nn.functional.pad(x, (1, 1, 1, 1))
    offsets = torch.randint(0, 3, (len(x), 2)).tolist()
    return torch.stack([p[:, i : i + 8, j : j + 8] for p, (i, j) in zip(padded, offsets)])


def train(net, x, y):
    """Adam for a fixed number of epochs: the test pictures take no part, not even in stopping."""
    optimiser = torch.optim.Adam(net.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS)
    net.train()
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(x)).split(BATCH):
            loss = nn.functional.cross_entropy(net(shifted(x[chosen])), y[chosen])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()
    net.eval()


def export(classifier, path):
    """Write the ONNX file: weights inside, any batch size, a note on how to scale pictures."""
    torch.onnx.export(
        classifier, (torch.zeros(2, 1, 8, 8),), path, dynamo=False, opset_version=17,
        input_names=["image"], output_names=["probabilities"],
        dynamic_axes={"image": {0: "batch"}, "probabilities": {0: "batch"}},
    )  # fmt: skip
    model = onnx.load(path)
    onnx.helper.set_model_props(model, {"rlx.image.scale": "1/255"})
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def save_samples(pictures, digits, probabilities):
    """The first test picture of each digit, chosen before looking at what the network says."""
    folder = HERE / "samples"
    folder.mkdir(exist_ok=True)
    expected = {}
    chosen = [int(np.flatnonzero(digits == d)[0]) for d in range(10)]
    for digit, i in enumerate(chosen):
        name = f"{digit}_a.png"
        Image.fromarray(pictures[i]).save(folder / name, optimize=True)
        assert (np.array(Image.open(folder / name)) == pictures[i]).all()
        expected[name] = str(digit)
    (folder / "expected.json").write_text(json.dumps(expected, indent=2) + "\n")
    np.savez(
        HERE / "golden.npz",
        in_image=as_input(pictures[chosen]).numpy(),
        out_probabilities=probabilities[chosen],
    )
    wrong = [d for d, i in enumerate(chosen) if probabilities[i].argmax() != d]
    print(f"samples the network gets wrong: {wrong or 'none'}")


def main():
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    train_pictures, test_pictures, train_digits, test_digits = load()

    net = network()
    train(net, as_input(train_pictures), torch.from_numpy(train_digits))
    classifier = nn.Sequential(net, nn.Softmax(dim=1)).eval()
    with torch.no_grad():
        probabilities = classifier(as_input(test_pictures)).numpy()
    right = int((probabilities.argmax(1) == test_digits).sum())
    print(f"test accuracy: {right} of {len(test_digits)} = {100 * right / len(test_digits):.2f} %")

    path = HERE / "digits.onnx"
    export(classifier, path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (again,) = session.run(None, {"image": as_input(test_pictures).numpy()})
    print(f"{path.stat().st_size} bytes; ONNX Runtime differs by {abs(again - probabilities).max():.1e}")

    (HERE / "labels.txt").write_text("".join(f"{d}\n" for d in range(10)))
    save_samples(test_pictures, test_digits, probabilities)


if __name__ == "__main__":
    main()
