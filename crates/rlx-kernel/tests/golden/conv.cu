// conv.Conv+Relu
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
extern "C" __global__ void __launch_bounds__(64) conv(const int* __restrict__ u,
    const float* __restrict__ b0 /* x1 */,
    const float* __restrict__ b1 /* x0 */,
    const float* __restrict__ b2 /* x2 */,
    float* __restrict__ b3 /* y0 */) {
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
  float m18;
  const int v0 = u[0];
  const int v1 = u[1];
  const int v2 = u[4];
  const int v3 = u[5];
  const int v4 = u[6];
  const int v5 = u[7];
  const int v6 = u[8];
  const int v7 = u[9];
  const int v8 = u[10];
  const int v9 = u[11];
  const int v10 = u[12];
  const int v11 = u[13];
  const int v12 = u[15];
  const int v13 = u[16];
  const int v14 = u[17];
  const int v15 = u[18];
  const int v16 = u[20];
  const int v17 = u[21];
  const int v20 = (int)((u32)v3 * (u32)(int)3u);
  const int v21 = (int)((u32)v20 * (u32)(int)3u);
  const int v22 = (int)((u32)v4 * (u32)v5);
  const int v23 = (int)(blockIdx.y * gridDim.x + blockIdx.x);
  const int v24 = (int)threadIdx.x;
  const bool v25 = (v23 < v6);
  if (v25) {
    const int v46 = (int)((u32)v23 << 5u);
    const int v47 = (v24 >> 3u);
    const int v48 = (v24 & (int)7u);
    const int v49 = (int)((u32)v47 << 2u);
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
    for (int v50 = (int)0u; v50 < v21; v50 += 16) {
      for (int v51 = v24; v51 < (int)512u; v51 += 64) {
        const int v52 = (v51 & (int)15u);
        const int v53 = (v51 >> 4u);
        const int v54 = (int)((u32)v50 + (u32)v52);
        const bool v55 = (v53 < v2);
        const bool v56 = (v54 < v21);
        const bool v57 = (v55 & v56);
        m16 = __uint_as_float(0x80000000u);
        if (v57) {
          const int v58 = (v54 / (int)3u);
          const int v59 = (v54 % (int)3u);
          const int v60 = (v58 / (int)3u);
          const int v61 = (v58 % (int)3u);
          const int v62 = (int)((u32)v53 * (u32)v8);
          const int v63 = (int)((u32)v7 + (u32)v62);
          const int v64 = (int)((u32)v60 * (u32)v9);
          const int v65 = (int)((u32)v63 + (u32)v64);
          const int v66 = (int)((u32)v61 * (u32)v10);
          const int v67 = (int)((u32)v65 + (u32)v66);
          const int v68 = (int)((u32)v67 + (u32)v59);
          const float v69 = b0[v68];
          m16 = v69;
        }
        const float v70 = m16;
        const int v71 = (int)((u32)v52 * (u32)(int)34u);
        const int v72 = (int)((u32)v71 + (u32)v53);
        s0[v72] = v70;
      }
      for (int v73 = v24; v73 < (int)512u; v73 += 64) {
        const int v74 = (v73 >> 5u);
        const int v75 = (v73 & (int)31u);
        const int v76 = (int)((u32)v50 + (u32)v74);
        const int v77 = (int)((u32)v46 + (u32)v75);
        const bool v78 = (v76 < v21);
        const bool v79 = (v77 < v22);
        const bool v80 = (v78 & v79);
        m17 = 0.0f;
        if (v80) {
          const int v81 = (v76 / (int)3u);
          const int v82 = (v76 % (int)3u);
          const int v83 = (v81 / (int)3u);
          const int v84 = (v81 % (int)3u);
          const int v85 = (v77 / v5);
          const int v86 = (int)((u32)v85 * (u32)v5);
          const int v87 = (int)((u32)v77 - (u32)v86);
          const int v88 = (int)((u32)v85 + (u32)v84);
          const int v89 = (int)((u32)v88 - (u32)(int)1u);
          const int v90 = (int)((u32)v87 + (u32)v82);
          const int v91 = (int)((u32)v90 - (u32)(int)1u);
          const bool v92 = (v89 >= (int)0u);
          const bool v93 = (v89 < v0);
          const bool v94 = (v92 & v93);
          const bool v95 = (v91 >= (int)0u);
          const bool v96 = (v91 < v1);
          const bool v97 = (v95 & v96);
          const bool v98 = (v94 & v97);
          m18 = 0.0f;
          if (v98) {
            const int v99 = (int)((u32)v83 * (u32)v12);
            const int v100 = (int)((u32)v11 + (u32)v99);
            const int v101 = (int)((u32)v89 * (u32)v13);
            const int v102 = (int)((u32)v100 + (u32)v101);
            const int v103 = (int)((u32)v102 + (u32)v91);
            const float v104 = b1[v103];
            m18 = v104;
          }
          const float v105 = m18;
          m17 = v105;
        }
        const float v106 = m17;
        const int v107 = (int)((u32)v73 + (u32)(int)544u);
        s0[v107] = v106;
      }
      __syncthreads();
      for (int v108 = (int)0u; v108 < (int)16u; v108 += 1) {
        const int v109 = (int)((u32)v108 * (u32)(int)34u);
        const int v110 = (int)((u32)v109 + (u32)v49);
        const float v111 = s0[v110];
        const int v112 = (int)((u32)v110 + (u32)(int)1u);
        const float v113 = s0[v112];
        const int v114 = (int)((u32)v110 + (u32)(int)2u);
        const float v115 = s0[v114];
        const int v116 = (int)((u32)v110 + (u32)(int)3u);
        const float v117 = s0[v116];
        const int v118 = (int)((u32)v108 << 5u);
        const int v119 = (int)((u32)v118 + (u32)(int)544u);
        const int v120 = (int)((u32)v119 + (u32)v48);
        const float v121 = s0[v120];
        const int v122 = (int)((u32)v120 + (u32)(int)8u);
        const float v123 = s0[v122];
        const int v124 = (int)((u32)v120 + (u32)(int)16u);
        const float v125 = s0[v124];
        const int v126 = (int)((u32)v120 + (u32)(int)24u);
        const float v127 = s0[v126];
        const float v128 = (v111 * v121);
        const float v129 = m0;
        const float v130 = (v129 + v128);
        m0 = v130;
        const float v131 = (v111 * v123);
        const float v132 = m1;
        const float v133 = (v132 + v131);
        m1 = v133;
        const float v134 = (v111 * v125);
        const float v135 = m2;
        const float v136 = (v135 + v134);
        m2 = v136;
        const float v137 = (v111 * v127);
        const float v138 = m3;
        const float v139 = (v138 + v137);
        m3 = v139;
        const float v140 = (v113 * v121);
        const float v141 = m4;
        const float v142 = (v141 + v140);
        m4 = v142;
        const float v143 = (v113 * v123);
        const float v144 = m5;
        const float v145 = (v144 + v143);
        m5 = v145;
        const float v146 = (v113 * v125);
        const float v147 = m6;
        const float v148 = (v147 + v146);
        m6 = v148;
        const float v149 = (v113 * v127);
        const float v150 = m7;
        const float v151 = (v150 + v149);
        m7 = v151;
        const float v152 = (v115 * v121);
        const float v153 = m8;
        const float v154 = (v153 + v152);
        m8 = v154;
        const float v155 = (v115 * v123);
        const float v156 = m9;
        const float v157 = (v156 + v155);
        m9 = v157;
        const float v158 = (v115 * v125);
        const float v159 = m10;
        const float v160 = (v159 + v158);
        m10 = v160;
        const float v161 = (v115 * v127);
        const float v162 = m11;
        const float v163 = (v162 + v161);
        m11 = v163;
        const float v164 = (v117 * v121);
        const float v165 = m12;
        const float v166 = (v165 + v164);
        m12 = v166;
        const float v167 = (v117 * v123);
        const float v168 = m13;
        const float v169 = (v168 + v167);
        m13 = v169;
        const float v170 = (v117 * v125);
        const float v171 = m14;
        const float v172 = (v171 + v170);
        m14 = v172;
        const float v173 = (v117 * v127);
        const float v174 = m15;
        const float v175 = (v174 + v173);
        m15 = v175;
      }
      __syncthreads();
    }
    const int v176 = (int)((u32)v49 * (u32)(int)34u);
    const int v177 = (int)((u32)v176 + (u32)v48);
    const float v178 = m0;
    s0[v177] = v178;
    const int v179 = (int)((u32)v48 + (u32)(int)8u);
    const int v180 = (int)((u32)v176 + (u32)v179);
    const float v181 = m1;
    s0[v180] = v181;
    const int v182 = (int)((u32)v48 + (u32)(int)16u);
    const int v183 = (int)((u32)v176 + (u32)v182);
    const float v184 = m2;
    s0[v183] = v184;
    const int v185 = (int)((u32)v48 + (u32)(int)24u);
    const int v186 = (int)((u32)v176 + (u32)v185);
    const float v187 = m3;
    s0[v186] = v187;
    const int v188 = (int)((u32)v49 + (u32)(int)1u);
    const int v189 = (int)((u32)v188 * (u32)(int)34u);
    const int v190 = (int)((u32)v189 + (u32)v48);
    const float v191 = m4;
    s0[v190] = v191;
    const int v192 = (int)((u32)v189 + (u32)v179);
    const float v193 = m5;
    s0[v192] = v193;
    const int v194 = (int)((u32)v189 + (u32)v182);
    const float v195 = m6;
    s0[v194] = v195;
    const int v196 = (int)((u32)v189 + (u32)v185);
    const float v197 = m7;
    s0[v196] = v197;
    const int v198 = (int)((u32)v49 + (u32)(int)2u);
    const int v199 = (int)((u32)v198 * (u32)(int)34u);
    const int v200 = (int)((u32)v199 + (u32)v48);
    const float v201 = m8;
    s0[v200] = v201;
    const int v202 = (int)((u32)v199 + (u32)v179);
    const float v203 = m9;
    s0[v202] = v203;
    const int v204 = (int)((u32)v199 + (u32)v182);
    const float v205 = m10;
    s0[v204] = v205;
    const int v206 = (int)((u32)v199 + (u32)v185);
    const float v207 = m11;
    s0[v206] = v207;
    const int v208 = (int)((u32)v49 + (u32)(int)3u);
    const int v209 = (int)((u32)v208 * (u32)(int)34u);
    const int v210 = (int)((u32)v209 + (u32)v48);
    const float v211 = m12;
    s0[v210] = v211;
    const int v212 = (int)((u32)v209 + (u32)v179);
    const float v213 = m13;
    s0[v212] = v213;
    const int v214 = (int)((u32)v209 + (u32)v182);
    const float v215 = m14;
    s0[v214] = v215;
    const int v216 = (int)((u32)v209 + (u32)v185);
    const float v217 = m15;
    s0[v216] = v217;
    __syncthreads();
    for (int v218 = v24; v218 < (int)1024u; v218 += 64) {
      const int v219 = (v218 >> 5u);
      const int v220 = (v218 & (int)31u);
      const int v221 = (int)((u32)v46 + (u32)v220);
      const bool v222 = (v219 < v2);
      const bool v223 = (v221 < v22);
      const bool v224 = (v222 & v223);
      if (v224) {
        const int v225 = (int)((u32)v219 * (u32)(int)34u);
        const int v226 = (int)((u32)v225 + (u32)v220);
        const float v227 = s0[v226];
        const int v228 = (v221 / v5);
        const int v229 = (int)((u32)v228 * (u32)v5);
        const int v230 = (int)((u32)v221 - (u32)v229);
        const int v231 = (int)((u32)v14 + (u32)v219);
        const float v232 = b2[v231];
        const float v233 = (v227 + v232);
        const bool v234 = (v233 > 0.0f);
        const u32 v235 = __float_as_uint(v233);
        const u32 v236 = (v235 & 2147483647u);
        const bool v237 = (v236 > 2139095040u);
        const bool v238 = (v234 | v237);
        const float v239 = (v238 ? v233 : 0.0f);
        const int v240 = (int)((u32)v219 * (u32)v16);
        const int v241 = (int)((u32)v15 + (u32)v240);
        const int v242 = (int)((u32)v228 * (u32)v17);
        const int v243 = (int)((u32)v241 + (u32)v242);
        const int v244 = (int)((u32)v243 + (u32)v230);
        b3[v244] = v239;
      }
    }
  }
}
