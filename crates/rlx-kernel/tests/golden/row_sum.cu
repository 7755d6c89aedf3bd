// reduce.reduce
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64; typedef long long i64;
__device__ __forceinline__ float from_half(u16 h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
__device__ __forceinline__ u16 to_half(float f) { u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
__device__ __forceinline__ float from_brain(u16 h) { return __uint_as_float((u32)h << 16); }
__device__ __forceinline__ u16 to_brain(float f) {
  u32 b = __float_as_uint(f);
  return (b & 0x7fffffffu) > 0x7f800000u ? (u16)((b >> 16) | 0x40u) : (u16)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}
extern "C" __global__ void __launch_bounds__(64) row_sum(const int* __restrict__ u,
    const float* __restrict__ b0 /* x0 */,
    float* __restrict__ b1 /* y0 */) {
  __shared__ float s0[64];
  float m0;
  const int v0 = u[0];
  const int v1 = u[1];
  const int v2 = u[2];
  const int v3 = u[3];
  const int v4 = u[4];
  const int v6 = (int)(blockIdx.y * gridDim.x + blockIdx.x);
  const int v7 = (int)threadIdx.x;
  const bool v8 = (v6 < v0);
  if (v8) {
    m0 = 0.0f;
    for (int v16 = v7; v16 < v1; v16 += 64) {
      const int v17 = (int)((u32)v6 * (u32)v3);
      const int v18 = (int)((u32)v2 + (u32)v17);
      const int v19 = (int)((u32)v18 + (u32)v16);
      const float v20 = b0[v19];
      const float v21 = m0;
      const float v22 = (v21 + v20);
      m0 = v22;
    }
    const float v23 = m0;
    s0[v7] = v23;
    __syncthreads();
    const bool v24 = (v7 < (int)32u);
    if (v24) {
      const int v25 = (int)((u32)v7 + (u32)(int)32u);
      const float v26 = s0[v7];
      const float v27 = s0[v25];
      const float v28 = (v26 + v27);
      s0[v7] = v28;
    }
    __syncthreads();
    const bool v29 = (v7 < (int)16u);
    if (v29) {
      const int v30 = (int)((u32)v7 + (u32)(int)16u);
      const float v31 = s0[v7];
      const float v32 = s0[v30];
      const float v33 = (v31 + v32);
      s0[v7] = v33;
    }
    __syncthreads();
    const bool v34 = (v7 < (int)8u);
    if (v34) {
      const int v35 = (int)((u32)v7 + (u32)(int)8u);
      const float v36 = s0[v7];
      const float v37 = s0[v35];
      const float v38 = (v36 + v37);
      s0[v7] = v38;
    }
    __syncthreads();
    const bool v39 = (v7 < (int)4u);
    if (v39) {
      const int v40 = (int)((u32)v7 + (u32)(int)4u);
      const float v41 = s0[v7];
      const float v42 = s0[v40];
      const float v43 = (v41 + v42);
      s0[v7] = v43;
    }
    __syncthreads();
    const bool v44 = (v7 < (int)2u);
    if (v44) {
      const int v45 = (int)((u32)v7 + (u32)(int)2u);
      const float v46 = s0[v7];
      const float v47 = s0[v45];
      const float v48 = (v46 + v47);
      s0[v7] = v48;
    }
    __syncthreads();
    const bool v49 = (v7 < (int)1u);
    if (v49) {
      const int v50 = (int)((u32)v7 + (u32)(int)1u);
      const float v51 = s0[v7];
      const float v52 = s0[v50];
      const float v53 = (v51 + v52);
      s0[v7] = v53;
    }
    __syncthreads();
    const float v54 = s0[(int)0u];
    __syncthreads();
    if (v49) {
      const int v55 = (int)((u32)v4 + (u32)v6);
      b1[v55] = v54;
    }
  }
}
