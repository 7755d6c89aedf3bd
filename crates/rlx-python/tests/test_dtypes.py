"""Element types: in by every route, out as NumPy's own."""

import numpy as np
import pytest
import rlx

PLAIN = ["f16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool"]
EXTENDED = ["bf16", "f8e4m3fn", "f8e5m2", "i4", "u4", "i2", "u2"]


def identity(dtype, shape=("n",)):
    g = rlx.Graph("identity")
    return g.compile({"y": g.input("x", list(shape), dtype)})


@pytest.mark.parametrize("dtype", PLAIN)
def test_numpy_types_go_through_unchanged(dtype):
    values = np.array([0, 1, 1, 0, 3, 100]).astype(rlx.numpy_dtype(dtype))
    y = identity(dtype)(values)
    assert y.dtype == values.dtype
    np.testing.assert_array_equal(y, values)


@pytest.mark.parametrize("dtype", EXTENDED)
def test_types_of_ml_dtypes_go_through_unchanged(dtype):
    pytest.importorskip("ml_dtypes")
    values = np.array([0, 1, 3, 2, 5]).astype(rlx.numpy_dtype(dtype))
    if dtype[0] == "i":  # negative ones too
        values = (np.array([0, 1, 3, 2, 1]) - 2).astype(values.dtype)
    y = identity(dtype)(values)
    assert y.dtype == values.dtype
    np.testing.assert_array_equal(y.astype(np.float32), values.astype(np.float32))


def test_zero_sizes_and_scalars():
    assert identity("f32")(np.empty(0, np.float32)).shape == (0,)
    y = identity("f32", ())(np.float32(2.5))
    assert y.shape == () and y == 2.5
    assert identity("f32", ())(2.5) == 2.5


class Exported:
    """An array of a library that has DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack_tensors_are_read_where_they_are(digits, image):
    want = digits(image)
    np.testing.assert_array_equal(digits(Exported(image)), want)
    if tuple(map(int, np.__version__.split(".")[:2])) >= (2, 1):  # older ones export no read-only memory
        fixed = image.copy()
        fixed.flags.writeable = False
        np.testing.assert_array_equal(digits(Exported(fixed)), want)
    # One that is not contiguous is copied by NumPy first.
    strided = np.zeros((1, 1, 8, 16), np.float32)[..., ::2]
    strided[...] = image
    np.testing.assert_array_equal(digits(Exported(strided)), want)
    for dtype in ("f64", "i64", "u8", "f16"):
        values = np.array([1, 2, 3]).astype(rlx.numpy_dtype(dtype))
        np.testing.assert_array_equal(identity(dtype)(Exported(values)), values)


def test_torch_tensors_in_and_out(digits, image):
    torch = pytest.importorskip("torch")
    want = digits(image)
    np.testing.assert_array_equal(digits(torch.from_numpy(image)), want)
    np.testing.assert_array_equal(digits(torch.from_numpy(image).requires_grad_()), want)
    back = torch.from_dlpack(digits.run([image])["probabilities"])
    np.testing.assert_array_equal(back.numpy(), want)
    bf16 = identity("bf16")(torch.tensor([1.5, -2.0], dtype=torch.bfloat16))
    assert bf16.astype(np.float32).tolist() == [1.5, -2.0]
