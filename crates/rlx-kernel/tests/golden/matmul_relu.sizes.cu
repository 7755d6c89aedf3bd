// matmul.MatMul+Relu
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
extern "C" __global__ void __launch_bounds__(64) matmul_relu(const Uniforms u,
    const float* __restrict__ b0 /* x0 */,
    const float* __restrict__ b1 /* x1 */,
    float* __restrict__ b2 /* y0 */) {
  __shared__ float s0[1088];
  float m0;
  float m1;
  float m2;
  float m3;
  float m4;
  float m5;
  float m6;
  float m7;
  float m8;
  float m9;
  float m10;
  float m11;
  float m12;
  float m13;
  float m14;
  float m15;
  float m16;
  float m17;
  const int v0 = u[0];
  const int v1 = u[1];
  const int v2 = u[2];
  const int v8 = (int)(blockIdx.y * gridDim.x + blockIdx.x);
  const int v9 = (int)threadIdx.x;
  const int v44 = (v8 >> 1u);
  const int v45 = (v8 & (int)1u);
  const int v46 = (int)((u32)v44 << 5u);
  const int v47 = (int)((u32)v45 << 5u);
  const int v48 = (v9 >> 3u);
  const int v49 = (v9 & (int)7u);
  const int v50 = (int)((u32)v48 << 2u);
  m0 = 0.0f;
  m1 = 0.0f;
  m2 = 0.0f;
  m3 = 0.0f;
  m4 = 0.0f;
  m5 = 0.0f;
  m6 = 0.0f;
  m7 = 0.0f;
  m8 = 0.0f;
  m9 = 0.0f;
  m10 = 0.0f;
  m11 = 0.0f;
  m12 = 0.0f;
  m13 = 0.0f;
  m14 = 0.0f;
  m15 = 0.0f;
  for (int v51 = (int)0u; v51 < (int)50u; v51 += 16) {
    for (int v52 = v9; v52 < (int)512u; v52 += 64) {
      const int v53 = (v52 & (int)15u);
      const int v54 = (v52 >> 4u);
      const int v55 = (int)((u32)v46 + (u32)v54);
      const int v56 = (int)((u32)v51 + (u32)v53);
      const bool v57 = (v55 < (int)40u);
      const bool v58 = (v56 < (int)50u);
      const bool v59 = (v57 & v58);
      m16 = __uint_as_float(0x80000000u);
      if (v59) {
        const int v60 = (int)((u32)v55 * (u32)(int)50u);
        const int v61 = (int)((u32)v0 + (u32)v60);
        const int v62 = (int)((u32)v61 + (u32)v56);
        const float v63 = b0[v62];
        m16 = v63;
      }
      const float v64 = m16;
      const int v65 = (int)((u32)v53 * (u32)(int)34u);
      const int v66 = (int)((u32)v65 + (u32)v54);
      s0[v66] = v64;
    }
    for (int v67 = v9; v67 < (int)512u; v67 += 64) {
      const int v68 = (v67 >> 5u);
      const int v69 = (v67 & (int)31u);
      const int v70 = (int)((u32)v51 + (u32)v68);
      const int v71 = (int)((u32)v47 + (u32)v69);
      const bool v72 = (v70 < (int)50u);
      const bool v73 = (v71 < (int)60u);
      const bool v74 = (v72 & v73);
      m17 = 0.0f;
      if (v74) {
        const int v75 = (int)((u32)v70 * (u32)(int)60u);
        const int v76 = (int)((u32)v1 + (u32)v75);
        const int v77 = (int)((u32)v76 + (u32)v71);
        const float v78 = b1[v77];
        m17 = v78;
      }
      const float v79 = m17;
      const int v80 = (int)((u32)v67 + (u32)(int)544u);
      s0[v80] = v79;
    }
    __syncthreads();
    for (int v81 = (int)0u; v81 < (int)16u; v81 += 1) {
      const int v82 = (int)((u32)v81 * (u32)(int)34u);
      const int v83 = (int)((u32)v82 + (u32)v50);
      const float v84 = s0[v83];
      const int v85 = (int)((u32)v83 + (u32)(int)1u);
      const float v86 = s0[v85];
      const int v87 = (int)((u32)v83 + (u32)(int)2u);
      const float v88 = s0[v87];
      const int v89 = (int)((u32)v83 + (u32)(int)3u);
      const float v90 = s0[v89];
      const int v91 = (int)((u32)v81 << 5u);
      const int v92 = (int)((u32)v91 + (u32)(int)544u);
      const int v93 = (int)((u32)v92 + (u32)v49);
      const float v94 = s0[v93];
      const int v95 = (int)((u32)v93 + (u32)(int)8u);
      const float v96 = s0[v95];
      const int v97 = (int)((u32)v93 + (u32)(int)16u);
      const float v98 = s0[v97];
      const int v99 = (int)((u32)v93 + (u32)(int)24u);
      const float v100 = s0[v99];
      const float v101 = m0;
      const float v102 = fmaf(v84, v94, v101);
      m0 = v102;
      const float v103 = m1;
      const float v104 = fmaf(v84, v96, v103);
      m1 = v104;
      const float v105 = m2;
      const float v106 = fmaf(v84, v98, v105);
      m2 = v106;
      const float v107 = m3;
      const float v108 = fmaf(v84, v100, v107);
      m3 = v108;
      const float v109 = m4;
      const float v110 = fmaf(v86, v94, v109);
      m4 = v110;
      const float v111 = m5;
      const float v112 = fmaf(v86, v96, v111);
      m5 = v112;
      const float v113 = m6;
      const float v114 = fmaf(v86, v98, v113);
      m6 = v114;
      const float v115 = m7;
      const float v116 = fmaf(v86, v100, v115);
      m7 = v116;
      const float v117 = m8;
      const float v118 = fmaf(v88, v94, v117);
      m8 = v118;
      const float v119 = m9;
      const float v120 = fmaf(v88, v96, v119);
      m9 = v120;
      const float v121 = m10;
      const float v122 = fmaf(v88, v98, v121);
      m10 = v122;
      const float v123 = m11;
      const float v124 = fmaf(v88, v100, v123);
      m11 = v124;
      const float v125 = m12;
      const float v126 = fmaf(v90, v94, v125);
      m12 = v126;
      const float v127 = m13;
      const float v128 = fmaf(v90, v96, v127);
      m13 = v128;
      const float v129 = m14;
      const float v130 = fmaf(v90, v98, v129);
      m14 = v130;
      const float v131 = m15;
      const float v132 = fmaf(v90, v100, v131);
      m15 = v132;
    }
    __syncthreads();
  }
  const int v133 = (int)((u32)v48 * (u32)(int)136u);
  const int v134 = (int)((u32)v133 + (u32)v49);
  const float v135 = m0;
  s0[v134] = v135;
  const int v136 = (int)((u32)v134 + (u32)(int)8u);
  const float v137 = m1;
  s0[v136] = v137;
  const int v138 = (int)((u32)v134 + (u32)(int)16u);
  const float v139 = m2;
  s0[v138] = v139;
  const int v140 = (int)((u32)v134 + (u32)(int)24u);
  const float v141 = m3;
  s0[v140] = v141;
  const int v142 = (int)((u32)v134 + (u32)(int)32u);
  const float v143 = m4;
  s0[v142] = v143;
  const int v144 = (int)((u32)v134 + (u32)(int)40u);
  const float v145 = m5;
  s0[v144] = v145;
  const int v146 = (int)((u32)v134 + (u32)(int)48u);
  const float v147 = m6;
  s0[v146] = v147;
  const int v148 = (int)((u32)v134 + (u32)(int)56u);
  const float v149 = m7;
  s0[v148] = v149;
  const int v150 = (int)((u32)v134 + (u32)(int)64u);
  const float v151 = m8;
  s0[v150] = v151;
  const int v152 = (int)((u32)v134 + (u32)(int)72u);
  const float v153 = m9;
  s0[v152] = v153;
  const int v154 = (int)((u32)v134 + (u32)(int)80u);
  const float v155 = m10;
  s0[v154] = v155;
  const int v156 = (int)((u32)v134 + (u32)(int)88u);
  const float v157 = m11;
  s0[v156] = v157;
  const int v158 = (int)((u32)v134 + (u32)(int)96u);
  const float v159 = m12;
  s0[v158] = v159;
  const int v160 = (int)((u32)v134 + (u32)(int)104u);
  const float v161 = m13;
  s0[v160] = v161;
  const int v162 = (int)((u32)v134 + (u32)(int)112u);
  const float v163 = m14;
  s0[v162] = v163;
  const int v164 = (int)((u32)v134 + (u32)(int)120u);
  const float v165 = m15;
  s0[v164] = v165;
  __syncthreads();
  for (int v166 = v9; v166 < (int)1024u; v166 += 64) {
    const int v167 = (v166 >> 5u);
    const int v168 = (v166 & (int)31u);
    const int v169 = (int)((u32)v46 + (u32)v167);
    const int v170 = (int)((u32)v47 + (u32)v168);
    const bool v171 = (v169 < (int)40u);
    const bool v172 = (v170 < (int)60u);
    const bool v173 = (v171 & v172);
    if (v173) {
      const int v174 = (v166 >> 7u);
      const int v175 = (int)((u32)v174 << 3u);
      const int v176 = (int)((u32)v166 + (u32)v175);
      const float v177 = s0[v176];
      const bool v178 = (v177 > 0.0f);
      const u32 v179 = __float_as_uint(v177);
      const u32 v180 = (v179 & 2147483647u);
      const bool v181 = (v180 > 2139095040u);
      const bool v182 = (v178 | v181);
      const float v183 = (v182 ? v177 : 0.0f);
      const int v184 = (int)((u32)v169 * (u32)(int)60u);
      const int v185 = (int)((u32)v2 + (u32)v184);
      const int v186 = (int)((u32)v185 + (u32)v170);
      b2[v186] = v183;
    }
  }
}
