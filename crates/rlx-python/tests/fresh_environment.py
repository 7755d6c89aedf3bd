"""The wheel in an environment that has nothing but it and NumPy: a script written for ONNX Runtime, with its import changed.

    python fresh_environment.py
"""

import importlib.metadata
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import rlx

here = pathlib.Path(__file__).resolve().parent
digits = here.parents[2] / "models" / "digits"

assert not pathlib.Path(rlx.__file__).is_relative_to(here.parent), f"{rlx.__file__} is not the wheel's"
installed = {d.metadata["Name"].lower() for d in importlib.metadata.distributions()}
assert installed <= {"rlx", "numpy", "pip", "setuptools"}, installed

golden = np.load(digits / "golden.npz")
labels = [str(label) for label in golden["out_probabilities"].argmax(axis=1)]
text = (here / "scripts" / "classify_digits.py").read_text(encoding="utf-8")
changed = text.replace("import onnxruntime as ort", "import rlx as ort")
assert changed != text
with tempfile.TemporaryDirectory() as folder:
    script, images = pathlib.Path(folder, "script.py"), pathlib.Path(folder, "images.npy")
    script.write_text(changed, encoding="utf-8")
    np.save(images, golden["in_image"])
    subprocess.run([sys.executable, script, digits / "digits.onnx", images, *labels], check=True, cwd=folder)
