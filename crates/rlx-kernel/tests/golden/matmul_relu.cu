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
extern "C" __global__ void __launch_bounds__(64) matmul_relu(const int* __restrict__ u,
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
    const int v38 = (v13 / v4);
    const int v39 = (int)((u32)v38 * (u32)v4);
    const int v40 = (int)((u32)v13 - (u32)v39);
    const int v41 = (v38 / v3);
    const int v42 = (int)((u32)v41 * (u32)v3);
    const int v43 = (int)((u32)v38 - (u32)v42);
    const int v44 = (int)((u32)v43 * (u32)(int)32u);
    const int v45 = (int)((u32)v40 << 5u);
    const int v46 = (v14 >> 3u);
    const int v47 = (v14 & (int)7u);
    const int v48 = (int)((u32)v46 << 2u);
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
    for (int v49 = (int)0u; v49 < v1; v49 += 16) {
      for (int v50 = v14; v50 < (int)512u; v50 += 64) {
        const int v51 = (v50 & (int)15u);
        const int v52 = (v50 >> 4u);
        const int v53 = (int)((u32)v44 + (u32)v52);
        const int v54 = (int)((u32)v49 + (u32)v51);
        const bool v55 = (v53 < v0);
        const bool v56 = (v54 < v1);
        const bool v57 = (v55 & v56);
        m16 = __uint_as_float(0x80000000u);
        if (v57) {
          const int v58 = (int)((u32)v53 * (u32)v6);
          const int v59 = (int)((u32)v5 + (u32)v58);
          const int v60 = (int)((u32)v59 + (u32)v54);
          const float v61 = b0[v60];
          m16 = v61;
        }
        const float v62 = m16;
        const int v63 = (int)((u32)v51 * (u32)(int)34u);
        const int v64 = (int)((u32)v63 + (u32)v52);
        s0[v64] = v62;
      }
      for (int v65 = v14; v65 < (int)512u; v65 += 64) {
        const int v66 = (v65 >> 5u);
        const int v67 = (v65 & (int)31u);
        const int v68 = (int)((u32)v49 + (u32)v66);
        const int v69 = (int)((u32)v45 + (u32)v67);
        const bool v70 = (v68 < v1);
        const bool v71 = (v69 < v2);
        const bool v72 = (v70 & v71);
        m17 = 0.0f;
        if (v72) {
          const int v73 = (int)((u32)v68 * (u32)v8);
          const int v74 = (int)((u32)v7 + (u32)v73);
          const int v75 = (int)((u32)v74 + (u32)v69);
          const float v76 = b1[v75];
          m17 = v76;
        }
        const float v77 = m17;
        const int v78 = (int)((u32)v65 + (u32)(int)544u);
        s0[v78] = v77;
      }
      __syncthreads();
      for (int v79 = (int)0u; v79 < (int)16u; v79 += 1) {
        const int v80 = (int)((u32)v79 * (u32)(int)34u);
        const int v81 = (int)((u32)v80 + (u32)v48);
        const float v82 = s0[v81];
        const int v83 = (int)((u32)v81 + (u32)(int)1u);
        const float v84 = s0[v83];
        const int v85 = (int)((u32)v81 + (u32)(int)2u);
        const float v86 = s0[v85];
        const int v87 = (int)((u32)v81 + (u32)(int)3u);
        const float v88 = s0[v87];
        const int v89 = (int)((u32)v79 << 5u);
        const int v90 = (int)((u32)v89 + (u32)(int)544u);
        const int v91 = (int)((u32)v90 + (u32)v47);
        const float v92 = s0[v91];
        const int v93 = (int)((u32)v91 + (u32)(int)8u);
        const float v94 = s0[v93];
        const int v95 = (int)((u32)v91 + (u32)(int)16u);
        const float v96 = s0[v95];
        const int v97 = (int)((u32)v91 + (u32)(int)24u);
        const float v98 = s0[v97];
        const float v99 = (v82 * v92);
        const float v100 = m0;
        const float v101 = (v100 + v99);
        m0 = v101;
        const float v102 = (v82 * v94);
        const float v103 = m1;
        const float v104 = (v103 + v102);
        m1 = v104;
        const float v105 = (v82 * v96);
        const float v106 = m2;
        const float v107 = (v106 + v105);
        m2 = v107;
        const float v108 = (v82 * v98);
        const float v109 = m3;
        const float v110 = (v109 + v108);
        m3 = v110;
        const float v111 = (v84 * v92);
        const float v112 = m4;
        const float v113 = (v112 + v111);
        m4 = v113;
        const float v114 = (v84 * v94);
        const float v115 = m5;
        const float v116 = (v115 + v114);
        m5 = v116;
        const float v117 = (v84 * v96);
        const float v118 = m6;
        const float v119 = (v118 + v117);
        m6 = v119;
        const float v120 = (v84 * v98);
        const float v121 = m7;
        const float v122 = (v121 + v120);
        m7 = v122;
        const float v123 = (v86 * v92);
        const float v124 = m8;
        const float v125 = (v124 + v123);
        m8 = v125;
        const float v126 = (v86 * v94);
        const float v127 = m9;
        const float v128 = (v127 + v126);
        m9 = v128;
        const float v129 = (v86 * v96);
        const float v130 = m10;
        const float v131 = (v130 + v129);
        m10 = v131;
        const float v132 = (v86 * v98);
        const float v133 = m11;
        const float v134 = (v133 + v132);
        m11 = v134;
        const float v135 = (v88 * v92);
        const float v136 = m12;
        const float v137 = (v136 + v135);
        m12 = v137;
        const float v138 = (v88 * v94);
        const float v139 = m13;
        const float v140 = (v139 + v138);
        m13 = v140;
        const float v141 = (v88 * v96);
        const float v142 = m14;
        const float v143 = (v142 + v141);
        m14 = v143;
        const float v144 = (v88 * v98);
        const float v145 = m15;
        const float v146 = (v145 + v144);
        m15 = v146;
      }
      __syncthreads();
    }
    const int v147 = (int)((u32)v48 * (u32)(int)34u);
    const int v148 = (int)((u32)v147 + (u32)v47);
    const float v149 = m0;
    s0[v148] = v149;
    const int v150 = (int)((u32)v47 + (u32)(int)8u);
    const int v151 = (int)((u32)v147 + (u32)v150);
    const float v152 = m1;
    s0[v151] = v152;
    const int v153 = (int)((u32)v47 + (u32)(int)16u);
    const int v154 = (int)((u32)v147 + (u32)v153);
    const float v155 = m2;
    s0[v154] = v155;
    const int v156 = (int)((u32)v47 + (u32)(int)24u);
    const int v157 = (int)((u32)v147 + (u32)v156);
    const float v158 = m3;
    s0[v157] = v158;
    const int v159 = (int)((u32)v48 + (u32)(int)1u);
    const int v160 = (int)((u32)v159 * (u32)(int)34u);
    const int v161 = (int)((u32)v160 + (u32)v47);
    const float v162 = m4;
    s0[v161] = v162;
    const int v163 = (int)((u32)v160 + (u32)v150);
    const float v164 = m5;
    s0[v163] = v164;
    const int v165 = (int)((u32)v160 + (u32)v153);
    const float v166 = m6;
    s0[v165] = v166;
    const int v167 = (int)((u32)v160 + (u32)v156);
    const float v168 = m7;
    s0[v167] = v168;
    const int v169 = (int)((u32)v48 + (u32)(int)2u);
    const int v170 = (int)((u32)v169 * (u32)(int)34u);
    const int v171 = (int)((u32)v170 + (u32)v47);
    const float v172 = m8;
    s0[v171] = v172;
    const int v173 = (int)((u32)v170 + (u32)v150);
    const float v174 = m9;
    s0[v173] = v174;
    const int v175 = (int)((u32)v170 + (u32)v153);
    const float v176 = m10;
    s0[v175] = v176;
    const int v177 = (int)((u32)v170 + (u32)v156);
    const float v178 = m11;
    s0[v177] = v178;
    const int v179 = (int)((u32)v48 + (u32)(int)3u);
    const int v180 = (int)((u32)v179 * (u32)(int)34u);
    const int v181 = (int)((u32)v180 + (u32)v47);
    const float v182 = m12;
    s0[v181] = v182;
    const int v183 = (int)((u32)v180 + (u32)v150);
    const float v184 = m13;
    s0[v183] = v184;
    const int v185 = (int)((u32)v180 + (u32)v153);
    const float v186 = m14;
    s0[v185] = v186;
    const int v187 = (int)((u32)v180 + (u32)v156);
    const float v188 = m15;
    s0[v187] = v188;
    __syncthreads();
    for (int v189 = v14; v189 < (int)1024u; v189 += 64) {
      const int v190 = (v189 >> 5u);
      const int v191 = (v189 & (int)31u);
      const int v192 = (int)((u32)v44 + (u32)v190);
      const int v193 = (int)((u32)v45 + (u32)v191);
      const bool v194 = (v192 < v0);
      const bool v195 = (v193 < v2);
      const bool v196 = (v194 & v195);
      if (v196) {
        const int v197 = (int)((u32)v190 * (u32)(int)34u);
        const int v198 = (int)((u32)v197 + (u32)v191);
        const float v199 = s0[v198];
        const bool v200 = (v199 > 0.0f);
        const u32 v201 = __float_as_uint(v199);
        const u32 v202 = (v201 & 2147483647u);
        const bool v203 = (v202 > 2139095040u);
        const bool v204 = (v200 | v203);
        const float v205 = (v204 ? v199 : 0.0f);
        const int v206 = (int)((u32)v192 * (u32)v10);
        const int v207 = (int)((u32)v9 + (u32)v206);
        const int v208 = (int)((u32)v207 + (u32)v193);
        b2[v208] = v205;
      }
    }
  }
}
