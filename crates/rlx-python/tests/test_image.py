"""`Model.image`: pictures as inputs."""

import numpy as np
import pytest
import rlx

from conftest import MODELS

SAMPLES = MODELS / "digits" / "samples"


def test_files_bytes_and_arrays_are_the_same_picture(digits):
    file = SAMPLES / "3_a.png"
    x = digits.image(file)
    assert (x.shape, x.dtype) == ((1, 1, 8, 8), np.float32) and 0 <= x.min() and x.max() <= 1
    assert digits(x).argmax() == 3
    np.testing.assert_array_equal(digits.image(file.read_bytes()), x)
    pixels = np.rint(x[0, 0] * 255).astype(np.uint8)
    np.testing.assert_array_equal(digits.image(pixels), x)
    np.testing.assert_array_equal(digits.image(pixels[..., None], "image"), x)


def test_pictures_are_resized_cropped_and_normalised():
    g = rlx.Graph("colours")
    model = g.compile({"y": g.input("x", [1, 3, 4, 4])})
    picture = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)
    x = model.image(picture, resize=4, crop=4, mean=[0.5, 0.5, 0.5], std=0.5)
    assert x.shape == (1, 3, 4, 4) and -1 <= x.min() < 0 < x.max() <= 1
    np.testing.assert_array_equal(model.image(picture, resize=4, crop=4, mean=0.5, std=0.5, colors="bgr"), x[:, ::-1])
    whole = model.image(picture, resize="input", filter="nearest")
    assert {round(float(v) * 255) for v in whole.ravel()} <= set(picture.ravel().tolist())
    assert model.image(picture, resize="letterbox").shape == (1, 3, 4, 4)
    assert model.image(picture, preset="imagenet").shape == (1, 3, 4, 4)


def test_what_does_not_fit_is_an_error(digits):
    with pytest.raises(rlx.ShapeError):
        digits.image(np.zeros((9, 9), np.uint8))
    with pytest.raises(TypeError, match="u8"):
        digits.image(np.zeros((8, 8), np.float32))
    with pytest.raises(TypeError, match="no option"):
        digits.image(np.zeros((8, 8), np.uint8), sise=3)
    with pytest.raises(rlx.Error, match="imagenet"):
        digits.image(np.zeros((8, 8), np.uint8), preset="imagenett")
    with pytest.raises(rlx.InputError):
        digits.image(np.zeros((8, 8), np.uint8), "imag")
    with pytest.raises(rlx.Error):
        digits.image(b"not a picture")
