// rows.softmax
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
template <class T> __device__ __forceinline__ T shuffle_xor(T x, int bits) { return __shfl_xor_sync(0xffffffffu, x, bits); }
struct Uniforms { int of[8]; __device__ __forceinline__ int operator[](int i) const { return of[i]; } };
extern "C" __global__ void __launch_bounds__(64) softmax(const Uniforms u,
    const float* __restrict__ b0 /* x0 */,
    float* __restrict__ b1 /* y0 */) {
  __shared__ float s0[128];
  __shared__ float s1[64];
  __shared__ float s2[64];
  float m0;
  float m1;
  const int v0 = u[0];
  const int v1 = u[1];
  const int v2 = u[2];
  const int v3 = u[3];
  const int v4 = u[4];
  const int v5 = u[5];
  const int v7 = (int)(blockIdx.y * gridDim.x + blockIdx.x);
  const int v8 = (int)threadIdx.x;
  const bool v9 = (v7 < v0);
  if (v9) {
    m0 = __uint_as_float(0xff800000u);
    for (int v21 = v8; v21 < v1; v21 += 64) {
      const int v22 = (int)((u32)v7 * (u32)v3);
      const int v23 = (int)((u32)v2 + (u32)v22);
      const int v24 = (int)((u32)v23 + (u32)v21);
      const float v25 = b0[v24];
      s0[v21] = v25;
      const float v26 = m0;
      const float v27 = fmaxf(v26, v25);
      const u32 v28 = __float_as_uint(v26);
      const u32 v29 = (v28 & 2147483647u);
      const bool v30 = (v29 > 2139095040u);
      const u32 v31 = __float_as_uint(v25);
      const u32 v32 = (v31 & 2147483647u);
      const bool v33 = (v32 > 2139095040u);
      const float v34 = (v33 ? v25 : v27);
      const float v35 = (v30 ? v26 : v34);
      m0 = v35;
    }
    const float v36 = m0;
    s1[v8] = v36;
    __syncthreads();
    const int v37 = (v8 & (int)31u);
    const float v38 = s1[v37];
    const int v39 = (int)((u32)v37 + (u32)(int)32u);
    const float v40 = s1[v39];
    const float v41 = fmaxf(v38, v40);
    const u32 v42 = __float_as_uint(v38);
    const u32 v43 = (v42 & 2147483647u);
    const bool v44 = (v43 > 2139095040u);
    const u32 v45 = __float_as_uint(v40);
    const u32 v46 = (v45 & 2147483647u);
    const bool v47 = (v46 > 2139095040u);
    const float v48 = (v47 ? v40 : v41);
    const float v49 = (v44 ? v38 : v48);
    const float v50 = shuffle_xor(v49, 16);
    const int v51 = (v8 & (int)16u);
    const bool v52 = (v51 == (int)0u);
    const float v53 = (v52 ? v49 : v50);
    const float v54 = (v52 ? v50 : v49);
    const float v55 = fmaxf(v53, v54);
    const u32 v56 = __float_as_uint(v53);
    const u32 v57 = (v56 & 2147483647u);
    const bool v58 = (v57 > 2139095040u);
    const u32 v59 = __float_as_uint(v54);
    const u32 v60 = (v59 & 2147483647u);
    const bool v61 = (v60 > 2139095040u);
    const float v62 = (v61 ? v54 : v55);
    const float v63 = (v58 ? v53 : v62);
    const float v64 = shuffle_xor(v63, 8);
    const int v65 = (v8 & (int)8u);
    const bool v66 = (v65 == (int)0u);
    const float v67 = (v66 ? v63 : v64);
    const float v68 = (v66 ? v64 : v63);
    const float v69 = fmaxf(v67, v68);
    const u32 v70 = __float_as_uint(v67);
    const u32 v71 = (v70 & 2147483647u);
    const bool v72 = (v71 > 2139095040u);
    const u32 v73 = __float_as_uint(v68);
    const u32 v74 = (v73 & 2147483647u);
    const bool v75 = (v74 > 2139095040u);
    const float v76 = (v75 ? v68 : v69);
    const float v77 = (v72 ? v67 : v76);
    const float v78 = shuffle_xor(v77, 4);
    const int v79 = (v8 & (int)4u);
    const bool v80 = (v79 == (int)0u);
    const float v81 = (v80 ? v77 : v78);
    const float v82 = (v80 ? v78 : v77);
    const float v83 = fmaxf(v81, v82);
    const u32 v84 = __float_as_uint(v81);
    const u32 v85 = (v84 & 2147483647u);
    const bool v86 = (v85 > 2139095040u);
    const u32 v87 = __float_as_uint(v82);
    const u32 v88 = (v87 & 2147483647u);
    const bool v89 = (v88 > 2139095040u);
    const float v90 = (v89 ? v82 : v83);
    const float v91 = (v86 ? v81 : v90);
    const float v92 = shuffle_xor(v91, 2);
    const int v93 = (v8 & (int)2u);
    const bool v94 = (v93 == (int)0u);
    const float v95 = (v94 ? v91 : v92);
    const float v96 = (v94 ? v92 : v91);
    const float v97 = fmaxf(v95, v96);
    const u32 v98 = __float_as_uint(v95);
    const u32 v99 = (v98 & 2147483647u);
    const bool v100 = (v99 > 2139095040u);
    const u32 v101 = __float_as_uint(v96);
    const u32 v102 = (v101 & 2147483647u);
    const bool v103 = (v102 > 2139095040u);
    const float v104 = (v103 ? v96 : v97);
    const float v105 = (v100 ? v95 : v104);
    const float v106 = shuffle_xor(v105, 1);
    const int v107 = (v8 & (int)1u);
    const bool v108 = (v107 == (int)0u);
    const float v109 = (v108 ? v105 : v106);
    const float v110 = (v108 ? v106 : v105);
    const float v111 = fmaxf(v109, v110);
    const u32 v112 = __float_as_uint(v109);
    const u32 v113 = (v112 & 2147483647u);
    const bool v114 = (v113 > 2139095040u);
    const u32 v115 = __float_as_uint(v110);
    const u32 v116 = (v115 & 2147483647u);
    const bool v117 = (v116 > 2139095040u);
    const float v118 = (v117 ? v110 : v111);
    const float v119 = (v114 ? v109 : v118);
    m1 = 0.0f;
    for (int v120 = v8; v120 < v1; v120 += 64) {
      const float v121 = s0[v120];
      const float v122 = (v121 - v119);
      const float v123 = expf(v122);
      s0[v120] = v123;
      const float v124 = m1;
      const float v125 = (v124 + v123);
      m1 = v125;
    }
    const float v126 = m1;
    s2[v8] = v126;
    __syncthreads();
    const float v127 = s2[v37];
    const float v128 = s2[v39];
    const float v129 = (v127 + v128);
    const float v130 = shuffle_xor(v129, 16);
    const float v131 = (v129 + v130);
    const float v132 = shuffle_xor(v131, 8);
    const float v133 = (v131 + v132);
    const float v134 = shuffle_xor(v133, 4);
    const float v135 = (v133 + v134);
    const float v136 = shuffle_xor(v135, 2);
    const float v137 = (v135 + v136);
    const float v138 = shuffle_xor(v137, 1);
    const float v139 = (v137 + v138);
    for (int v140 = v8; v140 < v1; v140 += 64) {
      const float v141 = s0[v140];
      const float v142 = (v141 / v139);
      const int v143 = (int)((u32)v7 * (u32)v5);
      const int v144 = (int)((u32)v4 + (u32)v143);
      const int v145 = (int)((u32)v144 + (u32)v140);
      b1[v145] = v142;
    }
  }
}
