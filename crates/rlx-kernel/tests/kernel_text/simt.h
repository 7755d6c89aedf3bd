// CUDA C and HIP C as C++ on the processor: what a kernel's text needs to be compiled unchanged.
//
// The functions of f32 are those of f64, rounded, as the interpreter computes them.
#include "run.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define threadIdx simt::invocation
#define blockIdx simt::group
#define gridDim simt::grid

namespace simt {
// The conversions of half precision are instructions in the text for NVIDIA's compiler; both name their operands `h` and `f`.
static inline void convert(float& f, unsigned short& h, const char* code) {
  _Float16 x;
  if (!strncmp(code, "\"cvt.f32.f16", 12)) { memcpy(&x, &h, 2); f = (float)x; return; }
  x = (_Float16)f;
  memcpy(&h, &x, 2);
}

template <class T, class F> static inline T saturated(F x, F from, F to, T least, T most) {
  return x != x ? (T)0 : x < from ? least : x >= to ? most : (T)x;
}

// The inverse of erf: a start, and steps of Newton's method that are exact where they end.
static inline double erfinv(double x) {
  if (!(x > -1.0 && x < 1.0)) return x == 1.0 ? INFINITY : x == -1.0 ? -INFINITY : NAN;
  double l = std::log((1.0 - x) * (1.0 + x)), t = 4.3307467508 + l / 2;
  double y = std::copysign(std::sqrt(std::sqrt(t * t - l / 0.147) - t), x);
  for (int i = 0; i < 6; i++) {
    double error = x < 0 ? std::erfc(-y) - (1.0 + x) : (1.0 - x) - std::erfc(y);
    if (std::fabs(x) < 0.5) error = std::erf(y) - x;
    y -= error * 0.886226925452758013649 * std::exp(y * y);
  }
  return y;
}
}  // namespace simt

#define asm(...) simt::convert(f, h, #__VA_ARGS__)

static inline void __syncthreads() { simt::barrier(); }
template <class T> static inline T __shfl_xor_sync(unsigned, T x, int bits) { return simt::value_of(x, simt::current ^ bits); }
// The lane's number is within a wave, which has 32 here.
#define __builtin_amdgcn_ds_bpermute(place, x) simt::value_of(x, simt::current / 32 * 32 + (place) / 4)
static inline unsigned __float_as_uint(float f) { unsigned u; memcpy(&u, &f, 4); return u; }
static inline float __uint_as_float(unsigned u) { float f; memcpy(&f, &u, 4); return f; }
static inline int __float_as_int(float f) { return (int)__float_as_uint(f); }
static inline double __longlong_as_double(long long u) { double f; memcpy(&f, &u, 8); return f; }
static inline long long __double_as_longlong(double f) { long long u; memcpy(&u, &f, 8); return u; }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }

// The text for AMD's compiler defines these itself.
#ifdef RLX_CUDA
static inline int __float2int_rz(float x) { return simt::saturated<int, float>(x, -2147483648.0f, 2147483648.0f, INT32_MIN, INT32_MAX); }
static inline int __double2int_rz(double x) { return simt::saturated<int, double>(x, -2147483648.0, 2147483648.0, INT32_MIN, INT32_MAX); }
static inline unsigned __float2uint_rz(float x) { return simt::saturated<unsigned, float>(x, 0.0f, 4294967296.0f, 0u, UINT32_MAX); }
static inline unsigned __double2uint_rz(double x) { return simt::saturated<unsigned, double>(x, 0.0, 4294967296.0, 0u, UINT32_MAX); }
static inline long long __float2ll_rz(float x) { return simt::saturated<long long, float>(x, -9223372036854775808.0f, 9223372036854775808.0f, INT64_MIN, INT64_MAX); }
static inline long long __double2ll_rz(double x) { return simt::saturated<long long, double>(x, -9223372036854775808.0, 9223372036854775808.0, INT64_MIN, INT64_MAX); }
static inline unsigned long long __float2ull_rz(float x) { return simt::saturated<unsigned long long, float>(x, 0.0f, 18446744073709551616.0f, 0ull, UINT64_MAX); }
static inline unsigned long long __double2ull_rz(double x) { return simt::saturated<unsigned long long, double>(x, 0.0, 18446744073709551616.0, 0ull, UINT64_MAX); }
#endif

template <class T, class V> static inline T atomicAdd(T* p, V v) { T old = *p; *p = old + (T)v; return old; }
template <class T, class V> static inline T atomicOr(T* p, V v) { T old = *p; *p = old | (T)v; return old; }
template <class T, class V> static inline T atomicAnd(T* p, V v) { T old = *p; *p = old & (T)v; return old; }

#define RLX_FUNCTION(name) static inline float rlx_##name##f(float x) { return (float)std::name((double)x); }
RLX_FUNCTION(exp) RLX_FUNCTION(expm1) RLX_FUNCTION(log) RLX_FUNCTION(log1p) RLX_FUNCTION(cbrt) RLX_FUNCTION(sin) RLX_FUNCTION(cos)
RLX_FUNCTION(tan) RLX_FUNCTION(asin) RLX_FUNCTION(acos) RLX_FUNCTION(atan) RLX_FUNCTION(sinh) RLX_FUNCTION(cosh) RLX_FUNCTION(tanh)
RLX_FUNCTION(asinh) RLX_FUNCTION(acosh) RLX_FUNCTION(atanh) RLX_FUNCTION(erf) RLX_FUNCTION(tgamma) RLX_FUNCTION(lgamma)
static inline float rlx_erfinvf(float x) { return (float)simt::erfinv((double)x); }
#define expf rlx_expf
#define expm1f rlx_expm1f
#define logf rlx_logf
#define log1pf rlx_log1pf
#define cbrtf rlx_cbrtf
#define sinf rlx_sinf
#define cosf rlx_cosf
#define tanf rlx_tanf
#define asinf rlx_asinf
#define acosf rlx_acosf
#define atanf rlx_atanf
#define sinhf rlx_sinhf
#define coshf rlx_coshf
#define tanhf rlx_tanhf
#define asinhf rlx_asinhf
#define acoshf rlx_acoshf
#define atanhf rlx_atanhf
#define erff rlx_erff
#define tgammaf rlx_tgammaf
#define lgammaf rlx_lgammaf
#define erfinvf rlx_erfinvf
#define erfinv simt::erfinv
