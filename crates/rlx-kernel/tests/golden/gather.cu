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
struct Uniforms { int of[12]; __device__ __forceinline__ int operator[](int i) const { return of[i]; } };
extern "C" __global__ void __launch_bounds__(64) gather(const Uniforms u,
    const i64* __restrict__ b0 /* x1 */,
    const float* __restrict__ b1 /* x0 */,
    float* __restrict__ b2 /* y0 */,
    u32* __restrict__ fault) {
  const int v0 = u[0];
  const int v1 = u[1];
  const int v2 = u[2];
  const int v3 = u[3];
  const int v4 = u[4];
  const int v5 = u[5];
  const int v6 = u[6];
  const int v7 = u[7];
  const int v8 = (int)((u32)v0 * (u32)v1);
  const int v9 = (int)(blockIdx.y * gridDim.x + blockIdx.x);
  const int v10 = (int)threadIdx.x;
  const int v12 = (int)((u32)v9 << 6u);
  const int v13 = (int)((u32)v12 + (u32)v10);
  const bool v14 = (v13 < v8);
  if (v14) {
    const int v19 = (v13 / v1);
    const int v20 = (int)((u32)v19 * (u32)v1);
    const int v21 = (int)((u32)v13 - (u32)v20);
    const int v22 = (int)((u32)v2 + (u32)v19);
    const i64 v23 = b0[v22];
    const i64 v24 = (i64)v3;
    const i64 v25 = (i64)((u64)v23 + (u64)v24);
    const bool v26 = (v23 < (i64)0ull);
    const i64 v27 = (v26 ? v25 : v23);
    const bool v28 = (v27 >= (i64)0ull);
    const bool v29 = (v27 < v24);
    const bool v30 = (v28 & v29);
    const bool v31 = (!v30);
    if (v31) {
      const bool v32 = (v23 < (i64)18446744071562067968ull);
      const bool v33 = ((i64)2147483647ull < v23);
      const i64 v34 = (v32 ? (i64)18446744071562067968ull : v23);
      const i64 v35 = (v33 ? (i64)2147483647ull : v34);
      const int v36 = (int)v35;
      if (atomicAdd(&fault[0], 1u) == 0u) { fault[1] = (u32)u[8]; fault[2] = 0u; fault[3] = (u32)v36; }
    }
    const int v37 = (int)v27;
    const int v38 = (v30 ? v37 : (int)0u);
    const int v39 = (int)((u32)v38 * (u32)v5);
    const int v40 = (int)((u32)v4 + (u32)v39);
    const int v41 = (int)((u32)v40 + (u32)v21);
    const float v42 = b1[v41];
    const int v43 = (int)((u32)v19 * (u32)v7);
    const int v44 = (int)((u32)v6 + (u32)v43);
    const int v45 = (int)((u32)v44 + (u32)v21);
    b2[v45] = v42;
  }
}
