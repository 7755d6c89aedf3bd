import pathlib

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODELS = ROOT / "models"


@pytest.fixture
def digits_path():
    return MODELS / "digits" / "digits.onnx"


@pytest.fixture
def digits(digits_path):
    import rlx

    return rlx.load(digits_path, threads=2)


@pytest.fixture
def image():
    return np.random.default_rng(1).uniform(0, 1, (1, 1, 8, 8)).astype(np.float32)
