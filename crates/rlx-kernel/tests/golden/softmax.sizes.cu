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
struct Uniforms { int of[4]; __device__ __forceinline__ int operator[](int i) const { return of[i]; } };
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
  const int v5 = (int)(blockIdx.y * gridDim.x + blockIdx.x);
  const int v6 = (int)threadIdx.x;
  m0 = __uint_as_float(0xff800000u);
  for (int v17 = v6; v17 < (int)100u; v17 += 64) {
    const int v18 = (int)((u32)v5 * (u32)(int)100u);
    const int v19 = (int)((u32)v0 + (u32)v18);
    const int v20 = (int)((u32)v19 + (u32)v17);
    const float v21 = b0[v20];
    s0[v17] = v21;
    const float v22 = m0;
    const float v23 = fmaxf(v22, v21);
    const u32 v24 = __float_as_uint(v22);
    const u32 v25 = (v24 & 2147483647u);
    const bool v26 = (v25 > 2139095040u);
    const u32 v27 = __float_as_uint(v21);
    const u32 v28 = (v27 & 2147483647u);
    const bool v29 = (v28 > 2139095040u);
    const float v30 = (v29 ? v21 : v23);
    const float v31 = (v26 ? v22 : v30);
    m0 = v31;
  }
  const float v32 = m0;
  s1[v6] = v32;
  __syncthreads();
  const int v33 = (v6 & (int)31u);
  const float v34 = s1[v33];
  const int v35 = (int)((u32)v33 + (u32)(int)32u);
  const float v36 = s1[v35];
  const float v37 = fmaxf(v34, v36);
  const u32 v38 = __float_as_uint(v34);
  const u32 v39 = (v38 & 2147483647u);
  const bool v40 = (v39 > 2139095040u);
  const u32 v41 = __float_as_uint(v36);
  const u32 v42 = (v41 & 2147483647u);
  const bool v43 = (v42 > 2139095040u);
  const float v44 = (v43 ? v36 : v37);
  const float v45 = (v40 ? v34 : v44);
  const float v46 = shuffle_xor(v45, 16);
  const int v47 = (v6 & (int)16u);
  const bool v48 = (v47 == (int)0u);
  const float v49 = (v48 ? v45 : v46);
  const float v50 = (v48 ? v46 : v45);
  const float v51 = fmaxf(v49, v50);
  const u32 v52 = __float_as_uint(v49);
  const u32 v53 = (v52 & 2147483647u);
  const bool v54 = (v53 > 2139095040u);
  const u32 v55 = __float_as_uint(v50);
  const u32 v56 = (v55 & 2147483647u);
  const bool v57 = (v56 > 2139095040u);
  const float v58 = (v57 ? v50 : v51);
  const float v59 = (v54 ? v49 : v58);
  const float v60 = shuffle_xor(v59, 8);
  const int v61 = (v6 & (int)8u);
  const bool v62 = (v61 == (int)0u);
  const float v63 = (v62 ? v59 : v60);
  const float v64 = (v62 ? v60 : v59);
  const float v65 = fmaxf(v63, v64);
  const u32 v66 = __float_as_uint(v63);
  const u32 v67 = (v66 & 2147483647u);
  const bool v68 = (v67 > 2139095040u);
  const u32 v69 = __float_as_uint(v64);
  const u32 v70 = (v69 & 2147483647u);
  const bool v71 = (v70 > 2139095040u);
  const float v72 = (v71 ? v64 : v65);
  const float v73 = (v68 ? v63 : v72);
  const float v74 = shuffle_xor(v73, 4);
  const int v75 = (v6 & (int)4u);
  const bool v76 = (v75 == (int)0u);
  const float v77 = (v76 ? v73 : v74);
  const float v78 = (v76 ? v74 : v73);
  const float v79 = fmaxf(v77, v78);
  const u32 v80 = __float_as_uint(v77);
  const u32 v81 = (v80 & 2147483647u);
  const bool v82 = (v81 > 2139095040u);
  const u32 v83 = __float_as_uint(v78);
  const u32 v84 = (v83 & 2147483647u);
  const bool v85 = (v84 > 2139095040u);
  const float v86 = (v85 ? v78 : v79);
  const float v87 = (v82 ? v77 : v86);
  const float v88 = shuffle_xor(v87, 2);
  const int v89 = (v6 & (int)2u);
  const bool v90 = (v89 == (int)0u);
  const float v91 = (v90 ? v87 : v88);
  const float v92 = (v90 ? v88 : v87);
  const float v93 = fmaxf(v91, v92);
  const u32 v94 = __float_as_uint(v91);
  const u32 v95 = (v94 & 2147483647u);
  const bool v96 = (v95 > 2139095040u);
  const u32 v97 = __float_as_uint(v92);
  const u32 v98 = (v97 & 2147483647u);
  const bool v99 = (v98 > 2139095040u);
  const float v100 = (v99 ? v92 : v93);
  const float v101 = (v96 ? v91 : v100);
  const float v102 = shuffle_xor(v101, 1);
  const int v103 = (v6 & (int)1u);
  const bool v104 = (v103 == (int)0u);
  const float v105 = (v104 ? v101 : v102);
  const float v106 = (v104 ? v102 : v101);
  const float v107 = fmaxf(v105, v106);
  const u32 v108 = __float_as_uint(v105);
  const u32 v109 = (v108 & 2147483647u);
  const bool v110 = (v109 > 2139095040u);
  const u32 v111 = __float_as_uint(v106);
  const u32 v112 = (v111 & 2147483647u);
  const bool v113 = (v112 > 2139095040u);
  const float v114 = (v113 ? v106 : v107);
  const float v115 = (v110 ? v105 : v114);
  m1 = 0.0f;
  for (int v116 = v6; v116 < (int)100u; v116 += 64) {
    const float v117 = s0[v116];
    const float v118 = (v117 - v115);
    const float v119 = expf(v118);
    s0[v116] = v119;
    const float v120 = m1;
    const float v121 = (v120 + v119);
    m1 = v121;
  }
  const float v122 = m1;
  s2[v6] = v122;
  __syncthreads();
  const float v123 = s2[v33];
  const float v124 = s2[v35];
  const float v125 = (v123 + v124);
  const float v126 = shuffle_xor(v125, 16);
  const float v127 = (v125 + v126);
  const float v128 = shuffle_xor(v127, 8);
  const float v129 = (v127 + v128);
  const float v130 = shuffle_xor(v129, 4);
  const float v131 = (v129 + v130);
  const float v132 = shuffle_xor(v131, 2);
  const float v133 = (v131 + v132);
  const float v134 = shuffle_xor(v133, 1);
  const float v135 = (v133 + v134);
  for (int v136 = v6; v136 < (int)100u; v136 += 64) {
    const float v137 = s0[v136];
    const float v138 = (v137 / v135);
    const int v139 = (int)((u32)v5 * (u32)(int)100u);
    const int v140 = (int)((u32)v1 + (u32)v139);
    const int v141 = (int)((u32)v140 + (u32)v136);
    b1[v141] = v138;
  }
}
