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
struct Uniforms { int of[12]; __device__ __forceinline__ int operator[](int i) const { return of[i]; } };
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
  const int v3 = u[3];
  const int v4 = u[4];
  const int v5 = u[5];
  const int v6 = u[6];
  const int v7 = u[7];
  const int v8 = u[8];
  const int v9 = u[9];
  const int v10 = u[10];
  const int v12 = (int)((u32)v3 * (u32)v4);
  const int v13 = (int)(blockIdx.y * gridDim.x + blockIdx.x);
  const int v14 = (int)threadIdx.x;
  const bool v15 = (v13 < v12);
  if (v15) {
    const int v51 = (v13 / v4);
    const int v52 = (int)((u32)v51 * (u32)v4);
    const int v53 = (int)((u32)v13 - (u32)v52);
    const int v54 = (v51 / v3);
    const int v55 = (int)((u32)v54 * (u32)v3);
    const int v56 = (int)((u32)v51 - (u32)v55);
    const int v57 = (int)((u32)v56 * (u32)(int)32u);
    const int v58 = (int)((u32)v53 << 5u);
    const int v59 = (v14 >> 3u);
    const int v60 = (v14 & (int)7u);
    const int v61 = (int)((u32)v59 << 2u);
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
    for (int v62 = (int)0u; v62 < v1; v62 += 16) {
      for (int v63 = v14; v63 < (int)512u; v63 += 64) {
        const int v64 = (v63 & (int)15u);
        const int v65 = (v63 >> 4u);
        const int v66 = (int)((u32)v57 + (u32)v65);
        const int v67 = (int)((u32)v62 + (u32)v64);
        const bool v68 = (v66 < v0);
        const bool v69 = (v67 < v1);
        const bool v70 = (v68 & v69);
        m16 = __uint_as_float(0x80000000u);
        if (v70) {
          const int v71 = (int)((u32)v66 * (u32)v6);
          const int v72 = (int)((u32)v5 + (u32)v71);
          const int v73 = (int)((u32)v72 + (u32)v67);
          const float v74 = b0[v73];
          m16 = v74;
        }
        const float v75 = m16;
        const int v76 = (int)((u32)v64 * (u32)(int)34u);
        const int v77 = (int)((u32)v76 + (u32)v65);
        s0[v77] = v75;
      }
      for (int v78 = v14; v78 < (int)512u; v78 += 64) {
        const int v79 = (v78 >> 5u);
        const int v80 = (v78 & (int)31u);
        const int v81 = (int)((u32)v62 + (u32)v79);
        const int v82 = (int)((u32)v58 + (u32)v80);
        const bool v83 = (v81 < v1);
        const bool v84 = (v82 < v2);
        const bool v85 = (v83 & v84);
        m17 = 0.0f;
        if (v85) {
          const int v86 = (int)((u32)v81 * (u32)v8);
          const int v87 = (int)((u32)v7 + (u32)v86);
          const int v88 = (int)((u32)v87 + (u32)v82);
          const float v89 = b1[v88];
          m17 = v89;
        }
        const float v90 = m17;
        const int v91 = (int)((u32)v78 + (u32)(int)544u);
        s0[v91] = v90;
      }
      __syncthreads();
      for (int v92 = (int)0u; v92 < (int)16u; v92 += 1) {
        const int v93 = (int)((u32)v92 * (u32)(int)34u);
        const int v94 = (int)((u32)v93 + (u32)v61);
        const float v95 = s0[v94];
        const int v96 = (int)((u32)v94 + (u32)(int)1u);
        const float v97 = s0[v96];
        const int v98 = (int)((u32)v94 + (u32)(int)2u);
        const float v99 = s0[v98];
        const int v100 = (int)((u32)v94 + (u32)(int)3u);
        const float v101 = s0[v100];
        const int v102 = (int)((u32)v92 << 5u);
        const int v103 = (int)((u32)v102 + (u32)(int)544u);
        const int v104 = (int)((u32)v103 + (u32)v60);
        const float v105 = s0[v104];
        const int v106 = (int)((u32)v104 + (u32)(int)8u);
        const float v107 = s0[v106];
        const int v108 = (int)((u32)v104 + (u32)(int)16u);
        const float v109 = s0[v108];
        const int v110 = (int)((u32)v104 + (u32)(int)24u);
        const float v111 = s0[v110];
        const float v112 = m0;
        const float v113 = fmaf(v95, v105, v112);
        m0 = v113;
        const float v114 = m1;
        const float v115 = fmaf(v95, v107, v114);
        m1 = v115;
        const float v116 = m2;
        const float v117 = fmaf(v95, v109, v116);
        m2 = v117;
        const float v118 = m3;
        const float v119 = fmaf(v95, v111, v118);
        m3 = v119;
        const float v120 = m4;
        const float v121 = fmaf(v97, v105, v120);
        m4 = v121;
        const float v122 = m5;
        const float v123 = fmaf(v97, v107, v122);
        m5 = v123;
        const float v124 = m6;
        const float v125 = fmaf(v97, v109, v124);
        m6 = v125;
        const float v126 = m7;
        const float v127 = fmaf(v97, v111, v126);
        m7 = v127;
        const float v128 = m8;
        const float v129 = fmaf(v99, v105, v128);
        m8 = v129;
        const float v130 = m9;
        const float v131 = fmaf(v99, v107, v130);
        m9 = v131;
        const float v132 = m10;
        const float v133 = fmaf(v99, v109, v132);
        m10 = v133;
        const float v134 = m11;
        const float v135 = fmaf(v99, v111, v134);
        m11 = v135;
        const float v136 = m12;
        const float v137 = fmaf(v101, v105, v136);
        m12 = v137;
        const float v138 = m13;
        const float v139 = fmaf(v101, v107, v138);
        m13 = v139;
        const float v140 = m14;
        const float v141 = fmaf(v101, v109, v140);
        m14 = v141;
        const float v142 = m15;
        const float v143 = fmaf(v101, v111, v142);
        m15 = v143;
      }
      __syncthreads();
    }
    const int v144 = (int)((u32)v59 * (u32)(int)136u);
    const int v145 = (int)((u32)v144 + (u32)v60);
    const float v146 = m0;
    s0[v145] = v146;
    const int v147 = (int)((u32)v145 + (u32)(int)8u);
    const float v148 = m1;
    s0[v147] = v148;
    const int v149 = (int)((u32)v145 + (u32)(int)16u);
    const float v150 = m2;
    s0[v149] = v150;
    const int v151 = (int)((u32)v145 + (u32)(int)24u);
    const float v152 = m3;
    s0[v151] = v152;
    const int v153 = (int)((u32)v145 + (u32)(int)32u);
    const float v154 = m4;
    s0[v153] = v154;
    const int v155 = (int)((u32)v145 + (u32)(int)40u);
    const float v156 = m5;
    s0[v155] = v156;
    const int v157 = (int)((u32)v145 + (u32)(int)48u);
    const float v158 = m6;
    s0[v157] = v158;
    const int v159 = (int)((u32)v145 + (u32)(int)56u);
    const float v160 = m7;
    s0[v159] = v160;
    const int v161 = (int)((u32)v145 + (u32)(int)64u);
    const float v162 = m8;
    s0[v161] = v162;
    const int v163 = (int)((u32)v145 + (u32)(int)72u);
    const float v164 = m9;
    s0[v163] = v164;
    const int v165 = (int)((u32)v145 + (u32)(int)80u);
    const float v166 = m10;
    s0[v165] = v166;
    const int v167 = (int)((u32)v145 + (u32)(int)88u);
    const float v168 = m11;
    s0[v167] = v168;
    const int v169 = (int)((u32)v145 + (u32)(int)96u);
    const float v170 = m12;
    s0[v169] = v170;
    const int v171 = (int)((u32)v145 + (u32)(int)104u);
    const float v172 = m13;
    s0[v171] = v172;
    const int v173 = (int)((u32)v145 + (u32)(int)112u);
    const float v174 = m14;
    s0[v173] = v174;
    const int v175 = (int)((u32)v145 + (u32)(int)120u);
    const float v176 = m15;
    s0[v175] = v176;
    __syncthreads();
    for (int v177 = v14; v177 < (int)1024u; v177 += 64) {
      const int v178 = (v177 >> 5u);
      const int v179 = (v177 & (int)31u);
      const int v180 = (int)((u32)v57 + (u32)v178);
      const int v181 = (int)((u32)v58 + (u32)v179);
      const bool v182 = (v180 < v0);
      const bool v183 = (v181 < v2);
      const bool v184 = (v182 & v183);
      if (v184) {
        const int v185 = (v177 >> 7u);
        const int v186 = (int)((u32)v185 << 3u);
        const int v187 = (int)((u32)v177 + (u32)v186);
        const float v188 = s0[v187];
        const bool v189 = (v188 > 0.0f);
        const u32 v190 = __float_as_uint(v188);
        const u32 v191 = (v190 & 2147483647u);
        const bool v192 = (v191 > 2139095040u);
        const bool v193 = (v189 | v192);
        const float v194 = (v193 ? v188 : 0.0f);
        const int v195 = (int)((u32)v180 * (u32)v10);
        const int v196 = (int)((u32)v9 + (u32)v195);
        const int v197 = (int)((u32)v196 + (u32)v181);
        b2[v197] = v194;
      }
    }
  }
}
