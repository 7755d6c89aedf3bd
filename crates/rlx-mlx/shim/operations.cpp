#include "operations.h"

#include <cstring>
#include <limits>

namespace rlx {

namespace fast = mlx::core::fast;

int Attributes::number(size_t i) const {
  int64_t n = word(i);
  if (n < std::numeric_limits<int>::min() || n > std::numeric_limits<int>::max()) {
    throw Invalid{"an attribute of " + std::to_string(n) + " exceeds 32 bits"};
  }
  return static_cast<int>(n);
}

float Attributes::real(size_t i) const {
  int64_t bits = word(i);
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return static_cast<float>(value);
}

mx::Dtype Attributes::dtype(size_t i) const {
  return dtype_of(word(i));
}

std::vector<int> Attributes::numbers(size_t from, size_t to) const {
  std::vector<int> list;
  for (size_t i = from; i < to; i++) {
    list.push_back(number(i));
  }
  return list;
}

mx::Shape Attributes::shape(size_t from, size_t to) const {
  auto list = numbers(from, to);
  return mx::Shape(list.begin(), list.end());
}

mx::Dtype dtype_of(int64_t code) {
  static const mx::Dtype types[] = {
      mx::bool_, mx::uint8,   mx::uint16,   mx::uint32,  mx::uint64, mx::int8, mx::int16,
      mx::int32, mx::int64,   mx::float16,  mx::bfloat16, mx::float32, mx::float64};
  if (code < 0 || code >= static_cast<int64_t>(std::size(types))) {
    throw Invalid{"there is no element type " + std::to_string(code)};
  }
  return types[code];
}

namespace {

// Attributes: element type, rank, dimensions, number of bytes, and the row-major bytes, eight to a word.
mx::array constant(const Attributes& a) {
  mx::Dtype dtype = a.dtype(0);
  int rank = a.number(1);
  if (rank < 0 || static_cast<size_t>(rank) > a.size()) {
    throw Invalid{"a constant's rank"};
  }
  mx::Shape shape = a.shape(2, 2 + rank);
  size_t size = dtype.size();
  for (int d : shape) {
    if (d < 0 || __builtin_mul_overflow(size, static_cast<size_t>(d), &size)) {
      throw Invalid{"a constant's dimensions"};
    }
  }
  size_t first = 3 + static_cast<size_t>(rank), bytes = static_cast<size_t>(a.word(2 + rank));
  if (bytes != size || a.size() != first + size / 8 + (size % 8 != 0)) {
    throw Invalid{"another number of bytes than a constant's dimensions take"};
  }
  auto memory = mx::allocator::malloc(size);
  if (size > 0) {
    std::memcpy(memory.buffer().raw_ptr(), a.words().data() + first, size);
  }
  return mx::array(std::move(memory), shape, dtype);
}

mx::array slice(const mx::array& x, const Attributes& a) {
  size_t rank = x.ndim();
  if (a.size() != 3 * rank) {
    throw Invalid{"a slice has three attributes for each dimension"};
  }
  return mx::slice(x, a.shape(0, rank), a.shape(rank, 2 * rank), a.shape(2 * rank, 3 * rank));
}

mx::array pad(const Arrays& x, const Attributes& a) {
  size_t rank = x[0].ndim();
  if (a.size() != 2 * rank) {
    throw Invalid{"a pad has two attributes for each dimension"};
  }
  std::vector<int> axes;
  for (size_t i = 0; i < rank; i++) {
    axes.push_back(static_cast<int>(i));
  }
  return mx::pad(x[0], axes, a.shape(0, rank), a.shape(rank, 2 * rank), x[1]);
}

// Attributes: the window's dimensions, then strides in elements of the row-major array. What the windows can reach is checked,
// since MLX does not.
mx::array windows(const mx::array& x, const Attributes& a) {
  if (a.size() % 2 != 0) {
    throw Invalid{"windows have a size and a stride for each dimension"};
  }
  size_t rank = a.size() / 2;
  mx::Strides strides;
  int64_t last = 0;
  bool empty = false;
  for (size_t i = 0; i < rank; i++) {
    int size = a.number(i);
    int64_t stride = a.word(rank + i);
    if (size < 0 || stride < 0 || stride > std::numeric_limits<int>::max()) {
      throw Invalid{"windows with a negative size or stride"};
    }
    empty |= size == 0;
    int64_t reach;
    if (__builtin_mul_overflow(static_cast<int64_t>(size - 1), stride, &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      throw Invalid{"windows reach beyond all memory"};
    }
    strides.push_back(stride);
  }
  if (!empty && last >= static_cast<int64_t>(x.size())) {
    throw Invalid{"windows reach beyond the array"};
  }
  return mx::as_strided(x, a.shape(0, rank), strides, 0);
}

// Attributes: spatial dimensions, groups, then strides, pads before, pads behind, dilations of kernel and input, and whether the
// kernel is flipped.
mx::array conv(const Arrays& x, const Attributes& a) {
  int n = a.number(0);
  if (n < 1 || n > 3 || a.size() != static_cast<size_t>(3 + 5 * n)) {
    throw Invalid{"a convolution's attributes"};
  }
  auto list = [&](int i) { return a.numbers(2 + i * n, 2 + (i + 1) * n); };
  bool flip = a.flag(a.size() - 1);
  return mx::conv_general(x[0], x[1], list(0), list(1), list(2), list(3), list(4), a.number(1), flip);
}

// Attributes: scale, and whether queries see the keys up to their own alone; the fourth operand is an additive mask.
mx::array attention(const Arrays& x, const Attributes& a) {
  if (x.size() < 3 || x.size() > 4) {
    throw Invalid{"attention takes queries, keys, values and a mask"};
  }
  std::optional<mx::array> mask;
  if (x.size() == 4) {
    mask = x[3];
  }
  std::string mode = a.flag(1) ? "causal" : mask ? "array" : "";
  return fast::scaled_dot_product_attention(x[0], x[1], x[2], a.real(0), mode, mask);
}

mx::array layer_norm(const Arrays& x, const Attributes& a) {
  std::optional<mx::array> weight, bias;
  if (x.size() > 1) {
    weight = x[1];
  }
  if (x.size() > 2) {
    bias = x[2];
  }
  return fast::layer_norm(x[0], weight, bias, a.real(0));
}

#define UNARY(name) \
  { #name, 1, [](const Arrays& x, const Attributes&) { return mx::name(x[0]); } }
#define BINARY(name) \
  { #name, 2, [](const Arrays& x, const Attributes&) { return mx::name(x[0], x[1]); } }
// Axes, behind whether they stay as dimensions of 1.
#define REDUCTION(name) \
  { #name, 1, [](const Arrays& x, const Attributes& a) { return mx::name(x[0], a.numbers(1), a.flag(0)); } }
// Axis, from its end, and with the element's own value.
#define RUNNING(name) \
  { \
    #name, 1, [](const Arrays& x, const Attributes& a) { \
      return mx::name(x[0], a.number(0), a.flag(1), a.flag(2)); \
    } \
  }
// Array, indices, updates; axis 0.
#define SCATTER(name) \
  { #name, 3, [](const Arrays& x, const Attributes&) { return mx::name(x[0], x[1], x[2], 0); } }

} // namespace

const std::vector<Operation>& operations() {
  using A = const Attributes&;
  using X = const Arrays&;
  static const std::vector<Operation> all = {
      UNARY(abs), UNARY(negative), UNARY(sign), UNARY(exp), UNARY(expm1), UNARY(log), UNARY(log1p), UNARY(sqrt),
      UNARY(rsqrt), UNARY(reciprocal), UNARY(square), UNARY(sin), UNARY(cos), UNARY(tan), UNARY(arcsin),
      UNARY(arccos), UNARY(arctan), UNARY(sinh), UNARY(cosh), UNARY(tanh), UNARY(arcsinh), UNARY(arccosh),
      UNARY(arctanh), UNARY(floor), UNARY(ceil), UNARY(round), UNARY(erf), UNARY(erfinv), UNARY(sigmoid),
      UNARY(logical_not), UNARY(bitwise_invert), UNARY(isnan), UNARY(isinf), UNARY(isposinf), UNARY(isneginf),

      BINARY(add), BINARY(subtract), BINARY(multiply), BINARY(divide), BINARY(floor_divide), BINARY(remainder),
      BINARY(maximum), BINARY(minimum), BINARY(power), BINARY(arctan2), BINARY(equal),
      BINARY(not_equal), BINARY(less), BINARY(less_equal), BINARY(greater), BINARY(greater_equal),
      BINARY(logical_and), BINARY(logical_or), BINARY(bitwise_and), BINARY(bitwise_or), BINARY(bitwise_xor),
      BINARY(left_shift), BINARY(right_shift), BINARY(matmul),

      REDUCTION(sum), REDUCTION(prod), REDUCTION(max), REDUCTION(min), REDUCTION(all), REDUCTION(any),
      RUNNING(cumsum), RUNNING(cumprod), RUNNING(cummax),
      RUNNING(cummin), SCATTER(scatter_add), SCATTER(scatter_prod), SCATTER(scatter_max),

      {"constant", 0, [](X, A a) { return constant(a); }},
      {"arange", 0, [](X, A a) { return mx::arange(0.0, static_cast<double>(a.number(1)), 1.0, a.dtype(0)); }},
      {"where", 3, [](X x, A) { return mx::where(x[0], x[1], x[2]); }},
      {"astype", 1, [](X x, A a) { return mx::astype(x[0], a.dtype(0)); }},
      {"view", 1, [](X x, A a) { return mx::view(x[0], a.dtype(0)); }},
      {"contiguous", 1, [](X x, A) { return mx::contiguous(x[0]); }},
      {"reshape", 1, [](X x, A a) { return mx::reshape(x[0], a.shape()); }},
      {"transpose", 1, [](X x, A a) { return mx::transpose(x[0], a.numbers()); }},
      {"broadcast_to", 1, [](X x, A a) { return mx::broadcast_to(x[0], a.shape()); }},
      {"slice", 1, [](X x, A a) { return slice(x[0], a); }},
      {"pad", 2, [](X x, A a) { return pad(x, a); }},
      {"windows", 1, [](X x, A a) { return windows(x[0], a); }},
      {"concatenate", -1, [](X x, A a) { return mx::concatenate(x, a.number(0)); }},
      // Indices are within the array and not negative: programs see to that.
      {"take", 2, [](X x, A a) { return mx::take(x[0], x[1], a.number(0)); }},
      {"take_along_axis", 2, [](X x, A a) { return mx::take_along_axis(x[0], x[1], a.number(0)); }},
      // Array, update, and where along the axis it begins, a vector of one.
      {"slice_update", 3, [](X x, A a) { return mx::slice_update(x[0], x[1], x[2], {a.number(0)}); }},
      {"argsort", 1, [](X x, A a) { return mx::argsort(x[0], a.number(0)); }},
      {"softmax", 1, [](X x, A a) { return mx::softmax(x[0], a.number(0), /* precise= */ true); }},
      {"conv", 2, [](X x, A a) { return conv(x, a); }},
      {"attention", -1, [](X x, A a) { return attention(x, a); }},
      {"layer_norm", -1, [](X x, A a) { return layer_norm(x, a); }},
      {"rms_norm", 2, [](X x, A a) { return fast::rms_norm(x[0], x[1], a.real(0)); }},
      // Group size and bits; rows, packed weights, scales and biases.
      {"quantized_matmul",
       4,
       [](X x, A a) {
         return mx::quantized_matmul(x[0], x[1], x[2], x[3], /* transpose= */ true, a.number(0), a.number(1));
       }},
  };
  return all;
}

} // namespace rlx
