// rows.softmax
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64; typedef long long i64;
__device__ __forceinline__ float from_half(u16 h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
__device__ __forceinline__ u16 to_half(float f) { u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
__device__ __forceinline__ float from_brain(u16 h) { return __uint_as_float((u32)h << 16); }
__device__ __forceinline__ u16 to_brain(float f) {
  u32 b = __float_as_uint(f);
  return (b & 0x7fffffffu) > 0x7f800000u ? (u16)((b >> 16) | 0x40u) : (u16)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}
extern "C" __global__ void __launch_bounds__(64) softmax(const int* __restrict__ u,
    const float* __restrict__ b0 /* x0 */,
    float* __restrict__ b1 /* y0 */) {
  __shared__ float s0[64];
  __shared__ float s1[128];
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
    for (int v20 = v8; v20 < v1; v20 += 64) {
      const int v21 = (int)((u32)v7 * (u32)v3);
      const int v22 = (int)((u32)v2 + (u32)v21);
      const int v23 = (int)((u32)v22 + (u32)v20);
      const float v24 = b0[v23];
      s1[v20] = v24;
      const float v25 = m0;
      const float v26 = fmaxf(v25, v24);
      const u32 v27 = __float_as_uint(v25);
      const u32 v28 = (v27 & 2147483647u);
      const bool v29 = (v28 > 2139095040u);
      const u32 v30 = __float_as_uint(v24);
      const u32 v31 = (v30 & 2147483647u);
      const bool v32 = (v31 > 2139095040u);
      const float v33 = (v32 ? v24 : v26);
      const float v34 = (v29 ? v25 : v33);
      m0 = v34;
    }
    const float v35 = m0;
    s0[v8] = v35;
    __syncthreads();
    const bool v36 = (v8 < (int)32u);
    if (v36) {
      const int v37 = (int)((u32)v8 + (u32)(int)32u);
      const float v38 = s0[v8];
      const float v39 = s0[v37];
      const float v40 = fmaxf(v38, v39);
      const u32 v41 = __float_as_uint(v38);
      const u32 v42 = (v41 & 2147483647u);
      const bool v43 = (v42 > 2139095040u);
      const u32 v44 = __float_as_uint(v39);
      const u32 v45 = (v44 & 2147483647u);
      const bool v46 = (v45 > 2139095040u);
      const float v47 = (v46 ? v39 : v40);
      const float v48 = (v43 ? v38 : v47);
      s0[v8] = v48;
    }
    __syncthreads();
    const bool v49 = (v8 < (int)16u);
    if (v49) {
      const int v50 = (int)((u32)v8 + (u32)(int)16u);
      const float v51 = s0[v8];
      const float v52 = s0[v50];
      const float v53 = fmaxf(v51, v52);
      const u32 v54 = __float_as_uint(v51);
      const u32 v55 = (v54 & 2147483647u);
      const bool v56 = (v55 > 2139095040u);
      const u32 v57 = __float_as_uint(v52);
      const u32 v58 = (v57 & 2147483647u);
      const bool v59 = (v58 > 2139095040u);
      const float v60 = (v59 ? v52 : v53);
      const float v61 = (v56 ? v51 : v60);
      s0[v8] = v61;
    }
    __syncthreads();
    const bool v62 = (v8 < (int)8u);
    if (v62) {
      const int v63 = (int)((u32)v8 + (u32)(int)8u);
      const float v64 = s0[v8];
      const float v65 = s0[v63];
      const float v66 = fmaxf(v64, v65);
      const u32 v67 = __float_as_uint(v64);
      const u32 v68 = (v67 & 2147483647u);
      const bool v69 = (v68 > 2139095040u);
      const u32 v70 = __float_as_uint(v65);
      const u32 v71 = (v70 & 2147483647u);
      const bool v72 = (v71 > 2139095040u);
      const float v73 = (v72 ? v65 : v66);
      const float v74 = (v69 ? v64 : v73);
      s0[v8] = v74;
    }
    __syncthreads();
    const bool v75 = (v8 < (int)4u);
    if (v75) {
      const int v76 = (int)((u32)v8 + (u32)(int)4u);
      const float v77 = s0[v8];
      const float v78 = s0[v76];
      const float v79 = fmaxf(v77, v78);
      const u32 v80 = __float_as_uint(v77);
      const u32 v81 = (v80 & 2147483647u);
      const bool v82 = (v81 > 2139095040u);
      const u32 v83 = __float_as_uint(v78);
      const u32 v84 = (v83 & 2147483647u);
      const bool v85 = (v84 > 2139095040u);
      const float v86 = (v85 ? v78 : v79);
      const float v87 = (v82 ? v77 : v86);
      s0[v8] = v87;
    }
    __syncthreads();
    const bool v88 = (v8 < (int)2u);
    if (v88) {
      const int v89 = (int)((u32)v8 + (u32)(int)2u);
      const float v90 = s0[v8];
      const float v91 = s0[v89];
      const float v92 = fmaxf(v90, v91);
      const u32 v93 = __float_as_uint(v90);
      const u32 v94 = (v93 & 2147483647u);
      const bool v95 = (v94 > 2139095040u);
      const u32 v96 = __float_as_uint(v91);
      const u32 v97 = (v96 & 2147483647u);
      const bool v98 = (v97 > 2139095040u);
      const float v99 = (v98 ? v91 : v92);
      const float v100 = (v95 ? v90 : v99);
      s0[v8] = v100;
    }
    __syncthreads();
    const bool v101 = (v8 < (int)1u);
    if (v101) {
      const int v102 = (int)((u32)v8 + (u32)(int)1u);
      const float v103 = s0[v8];
      const float v104 = s0[v102];
      const float v105 = fmaxf(v103, v104);
      const u32 v106 = __float_as_uint(v103);
      const u32 v107 = (v106 & 2147483647u);
      const bool v108 = (v107 > 2139095040u);
      const u32 v109 = __float_as_uint(v104);
      const u32 v110 = (v109 & 2147483647u);
      const bool v111 = (v110 > 2139095040u);
      const float v112 = (v111 ? v104 : v105);
      const float v113 = (v108 ? v103 : v112);
      s0[v8] = v113;
    }
    __syncthreads();
    const float v114 = s0[(int)0u];
    __syncthreads();
    m1 = 0.0f;
    for (int v115 = v8; v115 < v1; v115 += 64) {
      const float v116 = s1[v115];
      const float v117 = (v116 - v114);
      const float v118 = expf(v117);
      s1[v115] = v118;
      const float v119 = m1;
      const float v120 = (v119 + v118);
      m1 = v120;
    }
    const float v121 = m1;
    s0[v8] = v121;
    __syncthreads();
    if (v36) {
      const int v122 = (int)((u32)v8 + (u32)(int)32u);
      const float v123 = s0[v8];
      const float v124 = s0[v122];
      const float v125 = (v123 + v124);
      s0[v8] = v125;
    }
    __syncthreads();
    if (v49) {
      const int v126 = (int)((u32)v8 + (u32)(int)16u);
      const float v127 = s0[v8];
      const float v128 = s0[v126];
      const float v129 = (v127 + v128);
      s0[v8] = v129;
    }
    __syncthreads();
    if (v62) {
      const int v130 = (int)((u32)v8 + (u32)(int)8u);
      const float v131 = s0[v8];
      const float v132 = s0[v130];
      const float v133 = (v131 + v132);
      s0[v8] = v133;
    }
    __syncthreads();
    if (v75) {
      const int v134 = (int)((u32)v8 + (u32)(int)4u);
      const float v135 = s0[v8];
      const float v136 = s0[v134];
      const float v137 = (v135 + v136);
      s0[v8] = v137;
    }
    __syncthreads();
    if (v88) {
      const int v138 = (int)((u32)v8 + (u32)(int)2u);
      const float v139 = s0[v8];
      const float v140 = s0[v138];
      const float v141 = (v139 + v140);
      s0[v8] = v141;
    }
    __syncthreads();
    if (v101) {
      const int v142 = (int)((u32)v8 + (u32)(int)1u);
      const float v143 = s0[v8];
      const float v144 = s0[v142];
      const float v145 = (v143 + v144);
      s0[v8] = v145;
    }
    __syncthreads();
    const float v146 = s0[(int)0u];
    __syncthreads();
    for (int v147 = v8; v147 < v1; v147 += 64) {
      const float v148 = s1[v147];
      const float v149 = (v148 / v146);
      const int v150 = (int)((u32)v7 * (u32)v5);
      const int v151 = (int)((u32)v4 + (u32)v150);
      const int v152 = (int)((u32)v151 + (u32)v147);
      b1[v152] = v149;
    }
  }
}
