// reduce.reduce
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
extern "C" __global__ void __launch_bounds__(64) row_sum(const Uniforms u,
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
    for (int v24 = v7; v24 < v1; v24 += 64) {
      const int v25 = (int)((u32)v6 * (u32)v3);
      const int v26 = (int)((u32)v2 + (u32)v25);
      const int v27 = (int)((u32)v26 + (u32)v24);
      const float v28 = b0[v27];
      const float v29 = m0;
      const float v30 = (v29 + v28);
      m0 = v30;
    }
    const float v31 = m0;
    s0[v7] = v31;
    __syncthreads();
    const bool v32 = (v7 < (int)8u);
    if (v32) {
      const float v33 = s0[v7];
      const int v34 = (int)((u32)v7 + (u32)(int)8u);
      const float v35 = s0[v34];
      const int v36 = (int)((u32)v7 + (u32)(int)16u);
      const float v37 = s0[v36];
      const int v38 = (int)((u32)v7 + (u32)(int)24u);
      const float v39 = s0[v38];
      const int v40 = (int)((u32)v7 + (u32)(int)32u);
      const float v41 = s0[v40];
      const int v42 = (int)((u32)v7 + (u32)(int)40u);
      const float v43 = s0[v42];
      const int v44 = (int)((u32)v7 + (u32)(int)48u);
      const float v45 = s0[v44];
      const int v46 = (int)((u32)v7 + (u32)(int)56u);
      const float v47 = s0[v46];
      const float v48 = (v33 + v41);
      const float v49 = (v35 + v43);
      const float v50 = (v37 + v45);
      const float v51 = (v39 + v47);
      const float v52 = (v48 + v50);
      const float v53 = (v49 + v51);
      const float v54 = (v52 + v53);
      s0[v7] = v54;
    }
    __syncthreads();
    const bool v55 = (v7 < (int)1u);
    if (v55) {
      const float v56 = s0[v7];
      const int v57 = (int)((u32)v7 + (u32)(int)1u);
      const float v58 = s0[v57];
      const int v59 = (int)((u32)v7 + (u32)(int)2u);
      const float v60 = s0[v59];
      const int v61 = (int)((u32)v7 + (u32)(int)3u);
      const float v62 = s0[v61];
      const int v63 = (int)((u32)v7 + (u32)(int)4u);
      const float v64 = s0[v63];
      const int v65 = (int)((u32)v7 + (u32)(int)5u);
      const float v66 = s0[v65];
      const int v67 = (int)((u32)v7 + (u32)(int)6u);
      const float v68 = s0[v67];
      const int v69 = (int)((u32)v7 + (u32)(int)7u);
      const float v70 = s0[v69];
      const float v71 = (v56 + v64);
      const float v72 = (v58 + v66);
      const float v73 = (v60 + v68);
      const float v74 = (v62 + v70);
      const float v75 = (v71 + v73);
      const float v76 = (v72 + v74);
      const float v77 = (v75 + v76);
      s0[v7] = v77;
    }
    __syncthreads();
    const float v78 = s0[(int)0u];
    __syncthreads();
    if (v55) {
      const int v79 = (int)((u32)v4 + (u32)v6);
      b1[v79] = v78;
    }
  }
}
