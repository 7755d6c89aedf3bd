// What hiprtc gives every program before its text, as far as generated kernels use it, so that clang compiles them without AMD's headers and
// libraries. What AMD's device library computes stays a call.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(n) __attribute__((amdgpu_flat_work_group_size(1, n)))

struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };

// `threadIdx.x` and so on are read where they are named.
struct Place {
  struct X { __device__ __forceinline__ operator unsigned() const { return __builtin_amdgcn_workitem_id_x(); } } x;
};
struct Group {
  struct X { __device__ __forceinline__ operator unsigned() const { return __builtin_amdgcn_workgroup_id_x(); } } x;
  struct Y { __device__ __forceinline__ operator unsigned() const { return __builtin_amdgcn_workgroup_id_y(); } } y;
};
struct Groups {
  struct X {
    __device__ __forceinline__ operator unsigned() const {
      return __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x();
    }
  } x;
};
#define threadIdx (Place{})
#define blockIdx (Group{})
#define gridDim (Groups{})

__device__ __forceinline__ void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
__device__ __forceinline__ unsigned __float_as_uint(float f) { return __builtin_bit_cast(unsigned, f); }
__device__ __forceinline__ float __uint_as_float(unsigned u) { return __builtin_bit_cast(float, u); }
__device__ __forceinline__ int __float_as_int(float f) { return __builtin_bit_cast(int, f); }
__device__ __forceinline__ double __longlong_as_double(long long u) { return __builtin_bit_cast(double, u); }
__device__ __forceinline__ long long __double_as_longlong(double f) { return __builtin_bit_cast(long long, f); }
__device__ __forceinline__ int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }

__device__ __forceinline__ unsigned atomicAdd(unsigned* p, unsigned v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
__device__ __forceinline__ unsigned atomicOr(unsigned* p, unsigned v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); }
__device__ __forceinline__ unsigned atomicAnd(unsigned* p, unsigned v) { return __atomic_fetch_and(p, v, __ATOMIC_RELAXED); }

#define RLX_BUILTIN(name) \
  __device__ __forceinline__ float name##f(float x) { return __builtin_##name##f(x); } \
  __device__ __forceinline__ double name(double x) { return __builtin_##name(x); }
RLX_BUILTIN(fabs) RLX_BUILTIN(floor) RLX_BUILTIN(ceil) RLX_BUILTIN(trunc) RLX_BUILTIN(rint) RLX_BUILTIN(sqrt)
__device__ __forceinline__ float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
__device__ __forceinline__ double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
__device__ __forceinline__ float fminf(float x, float y) { return __builtin_fminf(x, y); }
__device__ __forceinline__ double fmin(double x, double y) { return __builtin_fmin(x, y); }
__device__ __forceinline__ float fmaxf(float x, float y) { return __builtin_fmaxf(x, y); }
__device__ __forceinline__ double fmax(double x, double y) { return __builtin_fmax(x, y); }

#define RLX_CALL(name) extern "C" __device__ float name##f(float); extern "C" __device__ double name(double);
RLX_CALL(exp) RLX_CALL(expm1) RLX_CALL(log) RLX_CALL(log1p) RLX_CALL(cbrt) RLX_CALL(sin) RLX_CALL(cos) RLX_CALL(tan) RLX_CALL(asin)
RLX_CALL(acos) RLX_CALL(atan) RLX_CALL(sinh) RLX_CALL(cosh) RLX_CALL(tanh) RLX_CALL(asinh) RLX_CALL(acosh) RLX_CALL(atanh) RLX_CALL(erf)
RLX_CALL(erfinv) RLX_CALL(tgamma) RLX_CALL(lgamma)
#define RLX_CALL2(name) extern "C" __device__ float name##f(float, float); extern "C" __device__ double name(double, double);
RLX_CALL2(pow) RLX_CALL2(fmod) RLX_CALL2(atan2)
