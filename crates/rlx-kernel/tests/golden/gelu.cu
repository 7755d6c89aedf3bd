// map.activation
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
extern "C" __global__ void __launch_bounds__(64) gelu(const Uniforms u,
    const float* __restrict__ b0 /* x0 */,
    float* __restrict__ b1 /* y0 */) {
  const int v0 = u[0];
  const int v1 = u[1];
  const int v2 = u[2];
  const int v3 = (int)(blockIdx.y * gridDim.x + blockIdx.x);
  const int v4 = (int)threadIdx.x;
  const int v6 = (int)((u32)v3 << 6u);
  const int v7 = (int)((u32)v6 + (u32)v4);
  const bool v8 = (v7 < v2);
  if (v8) {
    const int v14 = (int)((u32)v0 + (u32)v7);
    const float v15 = b0[v14];
    const u32 v16 = __float_as_uint(v15);
    const u32 v17 = (v16 & 2147483647u);
    const bool v18 = (v17 > 2139095040u);
    const float v19 = (v18 ? 0.0f : v15);
    const float v20 = (v19 * 0.70710677f);
    const float v21 = erff(v20);
    const float v22 = (v19 * 0.5f);
    const float v23 = (v22 * v21);
    const float v24 = (v23 + v22);
    const float v25 = (v18 ? v15 : v24);
    const int v26 = (int)((u32)v1 + (u32)v7);
    b1[v26] = v25;
  }
}
