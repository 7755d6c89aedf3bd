"""The extension module behind `rlx`; the names are documented in the package."""

from os import PathLike
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

_Inputs = Union[Mapping[str, Any], Sequence[Any]]
_Progress = Callable[[str, int, int, str], Any]
_Operand = Union["Tensor", int, float, ArrayLike]

class Cancel:
    def __init__(self) -> None: ...
    def cancel(self) -> None: ...
    @property
    def cancelled(self) -> bool: ...

class TensorSpec:
    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> Tuple[Union[int, str], ...]: ...

class Model:
    @staticmethod
    def open(
        source: Union[str, PathLike[str], bytes],
        options: Dict[str, Any],
        progress: Optional[_Progress] = None,
        timeout: Optional[float] = None,
        cancel: Optional[Cancel] = None,
    ) -> Model: ...
    @property
    def name(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def precision(self) -> str: ...
    @property
    def threads(self) -> Optional[int]: ...
    @property
    def inputs(self) -> List[TensorSpec]: ...
    @property
    def outputs(self) -> List[TensorSpec]: ...
    @property
    def path(self) -> Optional[Union[str, PathLike[str]]]: ...
    @property
    def options(self) -> Dict[str, Any]: ...
    @property
    def metadata(self) -> Optional[Dict[str, Any]]: ...
    def run(
        self,
        inputs: Optional[_Inputs] = None,
        outputs: Optional[Sequence[str]] = None,
        *,
        copy: bool = True,
        out: Optional[Dict[str, NDArray[Any]]] = None,
        progress: Optional[_Progress] = None,
        timeout: Optional[float] = None,
        cancel: Optional[Cancel] = None,
    ) -> Dict[str, NDArray[Any]]: ...
    def __call__(self, *args: Any, **named: Any) -> Union[NDArray[Any], Tuple[NDArray[Any], ...]]: ...
    def prepare(
        self,
        inputs: Optional[_Inputs] = None,
        *,
        progress: Optional[_Progress] = None,
        timeout: Optional[float] = None,
        cancel: Optional[Cancel] = None,
    ) -> None: ...
    def save(
        self,
        path: Union[str, PathLike[str]],
        *,
        slim: bool = False,
        inputs: Optional[_Inputs] = None,
        progress: Optional[_Progress] = None,
        timeout: Optional[float] = None,
        cancel: Optional[Cancel] = None,
    ) -> None: ...
    def verify(
        self,
        inputs: _Inputs,
        *,
        against: Optional[str] = None,
        rtol: Optional[float] = None,
        atol: Optional[float] = None,
        floor: float = 0.0,
        progress: Optional[_Progress] = None,
        timeout: Optional[float] = None,
        cancel: Optional[Cancel] = None,
    ) -> Dict[str, Any]: ...
    def time(
        self,
        inputs: _Inputs,
        runs: int,
        warmup: int,
        *,
        timeout: Optional[float] = None,
        cancel: Optional[Cancel] = None,
    ) -> Dict[str, Any]: ...
    def inspect(
        self,
        inputs: Optional[_Inputs] = None,
        *,
        progress: Optional[_Progress] = None,
        timeout: Optional[float] = None,
        cancel: Optional[Cancel] = None,
    ) -> Dict[str, Any]: ...

    def image(
        self,
        source: Union[str, PathLike[str], bytes, NDArray[np.uint8]],
        input: Optional[str] = None,
        *,
        preset: Optional[str] = None,
        resize: Union[int, Tuple[int, int], Tuple[str, int, int], str, None] = None,
        filter: Optional[str] = None,
        crop: Union[int, Tuple[int, int], None] = None,
        scale: Optional[float] = None,
        mean: Union[float, Sequence[float], None] = None,
        std: Union[float, Sequence[float], None] = None,
        colors: Optional[str] = None,
        layout: Optional[str] = None,
    ) -> NDArray[Any]: ...

class Graph:
    def __init__(self, name: str = "graph") -> None: ...
    def input(self, name: str, shape: Sequence[Union[int, str]], dtype: str = "f32") -> Tensor: ...
    def param(self, name: str, value: ArrayLike) -> Tensor: ...
    def constant(self, value: ArrayLike, dtype: Optional[str] = None) -> Tensor: ...
    def compile(self, outputs: Union[Tensor, Mapping[str, Tensor], Iterable[Tensor]], **options: Any) -> Model: ...
    def text(self, outputs: Union[Tensor, Mapping[str, Tensor], Iterable[Tensor]]) -> str: ...

class Tensor:
    @property
    def shape(self) -> Tuple[Union[int, str], ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def ndim(self) -> int: ...
    def __add__(self, other: _Operand) -> Tensor: ...
    def __radd__(self, other: _Operand) -> Tensor: ...
    def __sub__(self, other: _Operand) -> Tensor: ...
    def __rsub__(self, other: _Operand) -> Tensor: ...
    def __mul__(self, other: _Operand) -> Tensor: ...
    def __rmul__(self, other: _Operand) -> Tensor: ...
    def __truediv__(self, other: _Operand) -> Tensor: ...
    def __rtruediv__(self, other: _Operand) -> Tensor: ...
    def __pow__(self, other: _Operand) -> Tensor: ...
    def __matmul__(self, other: Union[Tensor, ArrayLike]) -> Tensor: ...
    def __rmatmul__(self, other: Union[Tensor, ArrayLike]) -> Tensor: ...
    def __neg__(self) -> Tensor: ...
    def __lt__(self, other: _Operand) -> Tensor: ...
    def __le__(self, other: _Operand) -> Tensor: ...
    def __gt__(self, other: _Operand) -> Tensor: ...
    def __ge__(self, other: _Operand) -> Tensor: ...
    # methods: made by tools/stubs.py, do not edit
    def matmul(self, other: Union["Tensor", ArrayLike]) -> Tensor:
        """The matmul."""
    def linear(self, w: Union["Tensor", ArrayLike], b: Union["Tensor", ArrayLike]) -> Tensor:
        """`x · w + b`: a layer of weights `[in, out]` and bias `[out]`."""
    def grouped_matmul(self, matrices: Union["Tensor", ArrayLike], chosen: Union["Tensor", ArrayLike]) -> Tensor:
        """Each row times the one of the matrices `[experts, k, n]` that its index chooses."""
    def maximum(self, other: _Operand) -> Tensor:
        """The greater of each two elements."""
    def minimum(self, other: _Operand) -> Tensor:
        """The lesser of each two elements."""
    def pow(self, exponent: _Operand) -> Tensor:
        """To the power of `exponent`."""
    def equal(self, other: _Operand) -> Tensor:
        """Whether elements are equal."""
    def not_equal(self, other: _Operand) -> Tensor:
        """Whether elements differ."""
    def less(self, other: _Operand) -> Tensor:
        """Whether elements are less."""
    def less_equal(self, other: _Operand) -> Tensor:
        """Whether elements are less or equal."""
    def greater(self, other: _Operand) -> Tensor:
        """Whether elements are greater."""
    def greater_equal(self, other: _Operand) -> Tensor:
        """Whether elements are greater or equal."""
    def where_(self, a: Union["Tensor", ArrayLike], b: _Operand) -> Tensor:
        """Where this (bool) tensor is true the element of `a`, else that of `b`."""
    def cast(self, to: str) -> Tensor:
        """Another element type."""
    def sum(self, axes: Union[int, Sequence[int]] = (), keep_dim: bool = False) -> Tensor:
        """The sum over `axes` (none: over all)."""
    def mean(self, axes: Union[int, Sequence[int]] = (), keep_dim: bool = False) -> Tensor:
        """The mean over `axes` (none: over all)."""
    def max(self, axes: Union[int, Sequence[int]] = (), keep_dim: bool = False) -> Tensor:
        """The largest over `axes` (none: over all)."""
    def min(self, axes: Union[int, Sequence[int]] = (), keep_dim: bool = False) -> Tensor:
        """The smallest over `axes` (none: over all)."""
    def reshape(self, to: Sequence[int]) -> Tensor:
        """The same elements with other dimensions; one may be -1 (what is left), 0 copies the tensor's own."""
    def reshape_to(self, to: Sequence[Union[int, str]]) -> Tensor:
        """The same elements with these dimensions, which may be symbolic."""
    def expand(self, to: Sequence[Union[int, str]]) -> Tensor:
        """Broadcast to larger dimensions, which may be symbolic."""
    def transpose(self, perm: Union[int, Sequence[int]] = ()) -> Tensor:
        """Dimensions reordered: result dimension `i` is this tensor's dimension `perm[i]`."""
    def swap_dims(self, a: int = -1, b: int = -1) -> Tensor:
        """Two dimensions exchanged."""
    def squeeze(self, axis: int = -1) -> Tensor:
        """Without dimension `axis`, which must be 1."""
    def unsqueeze(self, axis: int = -1) -> Tensor:
        """With a dimension of 1 at `axis` of the result."""
    def narrow(self, axis: int, start: int, len: int) -> Tensor:
        """`len` elements along `axis`, from `start` on."""
    def concat(self, others: Sequence[Tensor], axis: int = -1) -> Tensor:
        """This tensor and then the others, along `axis`."""
    def gather(self, indices: Union["Tensor", ArrayLike], axis: int = -1) -> Tensor:
        """The slices of this tensor (along `axis`) that `indices` name."""
    def softmax(self, axis: int = -1) -> Tensor:
        """Softmax along `axis`."""
    def log_softmax(self, axis: int = -1) -> Tensor:
        """The logarithm of softmax along `axis`."""
    def layer_norm(self, gamma: Union["Tensor", ArrayLike], beta: Union["Tensor", ArrayLike], eps: float) -> Tensor:
        """Layer norm over the last dimension."""
    def rms_norm(self, gamma: Union["Tensor", ArrayLike], eps: float) -> Tensor:
        """Root-mean-square norm over the last dimension."""
    def rope(self, cos: Union["Tensor", ArrayLike], sin: Union["Tensor", ArrayLike], head_dim: int, n_rot: int) -> Tensor:
        """Rotary embedding of the first `n_rot` elements of each head, in halves."""
    def attention(self, k: Union["Tensor", ArrayLike], v: Union["Tensor", ArrayLike], num_heads: int, head_dim: int) -> Tensor:
        """Attention of these queries to keys and values, without a mask."""
    def causal_attention(self, k: Union["Tensor", ArrayLike], v: Union["Tensor", ArrayLike], num_heads: int, head_dim: int) -> Tensor:
        """Attention of these queries to the keys up to their own position."""
    def masked_attention(self, k: Union["Tensor", ArrayLike], v: Union["Tensor", ArrayLike], mask: Union["Tensor", ArrayLike], num_heads: int, head_dim: int) -> Tensor:
        """Attention with a mask: additive when it is a float, allowed where true when it is a bool."""
    def conv2d(self, w: Union["Tensor", ArrayLike], stride: int, padding: int) -> Tensor:
        """Convolution of images `[N, C, H, W]` with weights `[O, C, k, k]`."""
    def max_pool2d(self, kernel: int, stride: int) -> Tensor:
        """The largest of each window of an image `[N, C, H, W]`."""
    def avg_pool2d(self, kernel: int, stride: int) -> Tensor:
        """The mean of each window of an image `[N, C, H, W]`."""
    def gelu(self) -> Tensor:
        """`x·Φ(x)` with the exact normal distribution (erf)."""
    def gelu_approx(self) -> Tensor:
        """`x·Φ(x)` by the tanh approximation."""
    def silu(self) -> Tensor:
        """`x·sigmoid(x)`."""
    def relu(self) -> Tensor:
        """`max(x, 0)`."""
    def sigmoid(self) -> Tensor:
        """`1 / (1 + e⁻ˣ)`."""
    def tanh(self) -> Tensor:
        """Hyperbolic tangent."""
    def exp(self) -> Tensor:
        """`eˣ`."""
    def ln(self) -> Tensor:
        """Natural logarithm."""
    def sqrt(self) -> Tensor:
        """Square root."""
    def rsqrt(self) -> Tensor:
        """`1 / √x`."""
    def neg(self) -> Tensor:
        """`-x`."""
    def abs(self) -> Tensor:
        """`|x|`."""
    def sin(self) -> Tensor:
        """Sine."""
    def cos(self) -> Tensor:
        """Cosine."""
    def tan(self) -> Tensor:
        """Tangent."""
    def atan(self) -> Tensor:
        """Arc tangent."""
    def round(self) -> Tensor:
        """To the nearest integer, ties to even."""
    def floor(self) -> Tensor:
        """To the integer below."""
    def ceil(self) -> Tensor:
        """To the integer above."""
    def trunc(self) -> Tensor:
        """To the integer towards zero."""
    def sign(self) -> Tensor:
        """`-1`, `0` or `1`; NaN stays."""
    def recip(self) -> Tensor:
        """`1 / x`."""
    def erf(self) -> Tensor:
        """The error function."""
    def asin(self) -> Tensor:
        """Arc sine."""
    def acos(self) -> Tensor:
        """Arc cosine."""
    def sinh(self) -> Tensor:
        """Hyperbolic sine."""
    def cosh(self) -> Tensor:
        """Hyperbolic cosine."""
    def asinh(self) -> Tensor:
        """Inverse hyperbolic sine."""
    def acosh(self) -> Tensor:
        """Inverse hyperbolic cosine."""
    def atanh(self) -> Tensor:
        """Inverse hyperbolic tangent."""
    def softplus(self) -> Tensor:
        """`ln(1 + eˣ)`."""
    def softsign(self) -> Tensor:
        """`x / (1 + |x|)`."""
    def mish(self) -> Tensor:
        """`x·tanh(ln(1 + eˣ))`."""
    def hard_swish(self) -> Tensor:
        """`x·max(0, min(1, x/6 + 1/2))`."""
    def expm1(self) -> Tensor:
        """`eˣ − 1`, also where `eˣ` is next to 1."""
    def log1p(self) -> Tensor:
        """`ln(1 + x)`, also where `1 + x` is next to 1; −∞ at −1, NaN below."""
    def cbrt(self) -> Tensor:
        """The cube root, also of negative numbers."""
    def erfinv(self) -> Tensor:
        """The inverse of the error function; ±∞ at ±1, NaN beyond."""
    def gamma(self) -> Tensor:
        """The gamma function; ±∞ at ±0, NaN at negative integers."""
    def lgamma(self) -> Tensor:
        """The logarithm of the magnitude of the gamma function; +∞ at 0 and at negative integers."""
    def digamma(self) -> Tensor:
        """The derivative of the logarithm of the gamma function; ∓∞ at ±0, NaN at negative integers."""
    def not_(self) -> Tensor:
        """Logical not, of bools."""
    def bit_not(self) -> Tensor:
        """Every bit inverted, of integers."""
    # end of methods

def devices() -> Dict[str, Optional[str]]: ...
def version() -> str: ...
def method_table() -> List[Tuple[str, List[Tuple[str, str]], str]]: ...
