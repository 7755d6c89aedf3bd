// map.gather
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64; typedef long long i64;
__device__ __forceinline__ float from_half(u16 h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
__device__ __forceinline__ u16 to_half(float f) { u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
__device__ __forceinline__ float from_brain(u16 h) { return __uint_as_float((u32)h << 16); }
__device__ __forceinline__ u16 to_brain(float f) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  u16 h; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h;
#endif
  u32 b = __float_as_uint(f);
  return (b & 0x7fffffffu) > 0x7f800000u ? (u16)((b >> 16) | 0x40u) : (u16)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}
struct Uniforms { int of[4]; __device__ __forceinline__ int operator[](int i) const { return of[i]; } };
extern "C" __global__ void __launch_bounds__(64) gather(const Uniforms u,
    const i64* __restrict__ b0 /* x1 */,
    const float* __restrict__ b1 /* x0 */,
    float* __restrict__ b2 /* y0 */,
    u32* __restrict__ fault) {
  const int v0 = u[0];
  const int v1 = u[1];
  const int v2 = u[2];
  const int v5 = (int)(blockIdx.y * gridDim.x + blockIdx.x);
  const int v6 = (int)threadIdx.x;
  const int v8 = (int)((u32)v5 << 6u);
  const int v9 = (int)((u32)v8 + (u32)v6);
  const bool v10 = (v9 < (int)30u);
  if (v10) {
    const int v16 = (v9 / (int)6u);
    const int v17 = (int)((u32)v16 * (u32)(int)6u);
    const int v18 = (v9 % (int)6u);
    const int v19 = (int)((u32)v0 + (u32)v16);
    const i64 v20 = b0[v19];
    const i64 v21 = (i64)((u64)v20 + (u64)(i64)10ull);
    const bool v22 = (v20 < (i64)0ull);
    const i64 v23 = (v22 ? v21 : v20);
    const bool v24 = (v23 >= (i64)0ull);
    const bool v25 = (v23 < (i64)10ull);
    const bool v26 = (v24 & v25);
    const bool v27 = (!v26);
    if (v27) {
      const bool v28 = (v20 < (i64)18446744071562067968ull);
      const bool v29 = ((i64)2147483647ull < v20);
      const i64 v30 = (v28 ? (i64)18446744071562067968ull : v20);
      const i64 v31 = (v29 ? (i64)2147483647ull : v30);
      const int v32 = (int)v31;
      if (atomicAdd(&fault[0], 1u) == 0u) { fault[1] = (u32)u[3]; fault[2] = 0u; fault[3] = (u32)v32; }
    }
    const int v33 = (int)v23;
    const int v34 = (v26 ? v33 : (int)0u);
    const int v35 = (int)((u32)v34 * (u32)(int)6u);
    const int v36 = (int)((u32)v1 + (u32)v35);
    const int v37 = (int)((u32)v36 + (u32)v18);
    const float v38 = b1[v37];
    const int v39 = (int)((u32)v2 + (u32)v17);
    const int v40 = (int)((u32)v39 + (u32)v18);
    b2[v40] = v38;
  }
}
