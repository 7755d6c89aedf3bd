// map.compare
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
struct Uniforms { int of[8]; __device__ __forceinline__ int operator[](int i) const { return of[i]; } };
extern "C" __global__ void __launch_bounds__(64) int64_less(const Uniforms u,
    const i64* __restrict__ b0 /* x0 */,
    const i64* __restrict__ b1 /* x1 */,
    u8* __restrict__ b2 /* y0 */) {
  const int v0 = u[0];
  const int v1 = u[1];
  const int v2 = u[2];
  const int v3 = u[3];
  const int v4 = (int)(blockIdx.y * gridDim.x + blockIdx.x);
  const int v5 = (int)threadIdx.x;
  const int v7 = (int)((u32)v4 << 6u);
  const int v8 = (int)((u32)v7 + (u32)v5);
  const bool v9 = (v8 < v3);
  if (v9) {
    const int v10 = (int)((u32)v0 + (u32)v8);
    const i64 v11 = b0[v10];
    const int v12 = (int)((u32)v1 + (u32)v8);
    const i64 v13 = b1[v12];
    const bool v14 = (v11 < v13);
    const int v15 = (int)((u32)v2 + (u32)v8);
    b2[v15] = v14;
  }
}
