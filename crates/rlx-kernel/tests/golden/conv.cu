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
struct Uniforms { int of[24]; __device__ __forceinline__ int operator[](int i) const { return of[i]; } };
extern "C" __global__ void __launch_bounds__(64) conv(const Uniforms u,
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
    const int v60 = (int)((u32)v23 << 5u);
    const int v61 = (v24 >> 3u);
    const int v62 = (v24 & (int)7u);
    const int v63 = (int)((u32)v61 << 2u);
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
    for (int v64 = (int)0u; v64 < v21; v64 += 16) {
      for (int v65 = v24; v65 < (int)512u; v65 += 64) {
        const int v66 = (v65 & (int)15u);
        const int v67 = (v65 >> 4u);
        const int v68 = (int)((u32)v64 + (u32)v66);
        const bool v69 = (v67 < v2);
        const bool v70 = (v68 < v21);
        const bool v71 = (v69 & v70);
        m16 = __uint_as_float(0x80000000u);
        if (v71) {
          const int v72 = (v68 / (int)3u);
          const int v73 = (v68 % (int)3u);
          const int v74 = (v72 / (int)3u);
          const int v75 = (v72 % (int)3u);
          const int v76 = (int)((u32)v67 * (u32)v8);
          const int v77 = (int)((u32)v7 + (u32)v76);
          const int v78 = (int)((u32)v74 * (u32)v9);
          const int v79 = (int)((u32)v77 + (u32)v78);
          const int v80 = (int)((u32)v75 * (u32)v10);
          const int v81 = (int)((u32)v79 + (u32)v80);
          const int v82 = (int)((u32)v81 + (u32)v73);
          const float v83 = b0[v82];
          m16 = v83;
        }
        const float v84 = m16;
        const int v85 = (int)((u32)v66 * (u32)(int)34u);
        const int v86 = (int)((u32)v85 + (u32)v67);
        s0[v86] = v84;
      }
      for (int v87 = v24; v87 < (int)512u; v87 += 64) {
        const int v88 = (v87 >> 5u);
        const int v89 = (v87 & (int)31u);
        const int v90 = (int)((u32)v64 + (u32)v88);
        const int v91 = (int)((u32)v60 + (u32)v89);
        const bool v92 = (v90 < v21);
        const bool v93 = (v91 < v22);
        const bool v94 = (v92 & v93);
        m17 = 0.0f;
        if (v94) {
          const int v95 = (v90 / (int)3u);
          const int v96 = (v90 % (int)3u);
          const int v97 = (v95 / (int)3u);
          const int v98 = (v95 % (int)3u);
          const int v99 = (v91 / v5);
          const int v100 = (int)((u32)v99 * (u32)v5);
          const int v101 = (int)((u32)v91 - (u32)v100);
          const int v102 = (int)((u32)v99 + (u32)v98);
          const int v103 = (int)((u32)v102 - (u32)(int)1u);
          const int v104 = (int)((u32)v101 + (u32)v96);
          const int v105 = (int)((u32)v104 - (u32)(int)1u);
          const bool v106 = (v103 >= (int)0u);
          const bool v107 = (v103 < v0);
          const bool v108 = (v106 & v107);
          const bool v109 = (v105 >= (int)0u);
          const bool v110 = (v105 < v1);
          const bool v111 = (v109 & v110);
          const bool v112 = (v108 & v111);
          m18 = 0.0f;
          if (v112) {
            const int v113 = (int)((u32)v97 * (u32)v12);
            const int v114 = (int)((u32)v11 + (u32)v113);
            const int v115 = (int)((u32)v103 * (u32)v13);
            const int v116 = (int)((u32)v114 + (u32)v115);
            const int v117 = (int)((u32)v116 + (u32)v105);
            const float v118 = b1[v117];
            m18 = v118;
          }
          const float v119 = m18;
          m17 = v119;
        }
        const float v120 = m17;
        const int v121 = (int)((u32)v87 + (u32)(int)544u);
        s0[v121] = v120;
      }
      __syncthreads();
      for (int v122 = (int)0u; v122 < (int)16u; v122 += 1) {
        const int v123 = (int)((u32)v122 * (u32)(int)34u);
        const int v124 = (int)((u32)v123 + (u32)v63);
        const float v125 = s0[v124];
        const int v126 = (int)((u32)v124 + (u32)(int)1u);
        const float v127 = s0[v126];
        const int v128 = (int)((u32)v124 + (u32)(int)2u);
        const float v129 = s0[v128];
        const int v130 = (int)((u32)v124 + (u32)(int)3u);
        const float v131 = s0[v130];
        const int v132 = (int)((u32)v122 << 5u);
        const int v133 = (int)((u32)v132 + (u32)(int)544u);
        const int v134 = (int)((u32)v133 + (u32)v62);
        const float v135 = s0[v134];
        const int v136 = (int)((u32)v134 + (u32)(int)8u);
        const float v137 = s0[v136];
        const int v138 = (int)((u32)v134 + (u32)(int)16u);
        const float v139 = s0[v138];
        const int v140 = (int)((u32)v134 + (u32)(int)24u);
        const float v141 = s0[v140];
        const float v142 = m0;
        const float v143 = fmaf(v125, v135, v142);
        m0 = v143;
        const float v144 = m1;
        const float v145 = fmaf(v125, v137, v144);
        m1 = v145;
        const float v146 = m2;
        const float v147 = fmaf(v125, v139, v146);
        m2 = v147;
        const float v148 = m3;
        const float v149 = fmaf(v125, v141, v148);
        m3 = v149;
        const float v150 = m4;
        const float v151 = fmaf(v127, v135, v150);
        m4 = v151;
        const float v152 = m5;
        const float v153 = fmaf(v127, v137, v152);
        m5 = v153;
        const float v154 = m6;
        const float v155 = fmaf(v127, v139, v154);
        m6 = v155;
        const float v156 = m7;
        const float v157 = fmaf(v127, v141, v156);
        m7 = v157;
        const float v158 = m8;
        const float v159 = fmaf(v129, v135, v158);
        m8 = v159;
        const float v160 = m9;
        const float v161 = fmaf(v129, v137, v160);
        m9 = v161;
        const float v162 = m10;
        const float v163 = fmaf(v129, v139, v162);
        m10 = v163;
        const float v164 = m11;
        const float v165 = fmaf(v129, v141, v164);
        m11 = v165;
        const float v166 = m12;
        const float v167 = fmaf(v131, v135, v166);
        m12 = v167;
        const float v168 = m13;
        const float v169 = fmaf(v131, v137, v168);
        m13 = v169;
        const float v170 = m14;
        const float v171 = fmaf(v131, v139, v170);
        m14 = v171;
        const float v172 = m15;
        const float v173 = fmaf(v131, v141, v172);
        m15 = v173;
      }
      __syncthreads();
    }
    const int v174 = (int)((u32)v61 * (u32)(int)136u);
    const int v175 = (int)((u32)v174 + (u32)v62);
    const float v176 = m0;
    s0[v175] = v176;
    const int v177 = (int)((u32)v175 + (u32)(int)8u);
    const float v178 = m1;
    s0[v177] = v178;
    const int v179 = (int)((u32)v175 + (u32)(int)16u);
    const float v180 = m2;
    s0[v179] = v180;
    const int v181 = (int)((u32)v175 + (u32)(int)24u);
    const float v182 = m3;
    s0[v181] = v182;
    const int v183 = (int)((u32)v175 + (u32)(int)32u);
    const float v184 = m4;
    s0[v183] = v184;
    const int v185 = (int)((u32)v175 + (u32)(int)40u);
    const float v186 = m5;
    s0[v185] = v186;
    const int v187 = (int)((u32)v175 + (u32)(int)48u);
    const float v188 = m6;
    s0[v187] = v188;
    const int v189 = (int)((u32)v175 + (u32)(int)56u);
    const float v190 = m7;
    s0[v189] = v190;
    const int v191 = (int)((u32)v175 + (u32)(int)64u);
    const float v192 = m8;
    s0[v191] = v192;
    const int v193 = (int)((u32)v175 + (u32)(int)72u);
    const float v194 = m9;
    s0[v193] = v194;
    const int v195 = (int)((u32)v175 + (u32)(int)80u);
    const float v196 = m10;
    s0[v195] = v196;
    const int v197 = (int)((u32)v175 + (u32)(int)88u);
    const float v198 = m11;
    s0[v197] = v198;
    const int v199 = (int)((u32)v175 + (u32)(int)96u);
    const float v200 = m12;
    s0[v199] = v200;
    const int v201 = (int)((u32)v175 + (u32)(int)104u);
    const float v202 = m13;
    s0[v201] = v202;
    const int v203 = (int)((u32)v175 + (u32)(int)112u);
    const float v204 = m14;
    s0[v203] = v204;
    const int v205 = (int)((u32)v175 + (u32)(int)120u);
    const float v206 = m15;
    s0[v205] = v206;
    __syncthreads();
    for (int v207 = v24; v207 < (int)1024u; v207 += 64) {
      const int v208 = (v207 >> 5u);
      const int v209 = (v207 & (int)31u);
      const int v210 = (int)((u32)v60 + (u32)v209);
      const bool v211 = (v208 < v2);
      const bool v212 = (v210 < v22);
      const bool v213 = (v211 & v212);
      if (v213) {
        const int v214 = (v207 >> 7u);
        const int v215 = (int)((u32)v214 << 3u);
        const int v216 = (int)((u32)v207 + (u32)v215);
        const float v217 = s0[v216];
        const int v218 = (v210 / v5);
        const int v219 = (int)((u32)v218 * (u32)v5);
        const int v220 = (int)((u32)v210 - (u32)v219);
        const int v221 = (int)((u32)v14 + (u32)v208);
        const float v222 = b2[v221];
        const float v223 = (v217 + v222);
        const bool v224 = (v223 > 0.0f);
        const u32 v225 = __float_as_uint(v223);
        const u32 v226 = (v225 & 2147483647u);
        const bool v227 = (v226 > 2139095040u);
        const bool v228 = (v224 | v227);
        const float v229 = (v228 ? v223 : 0.0f);
        const int v230 = (int)((u32)v208 * (u32)v16);
        const int v231 = (int)((u32)v15 + (u32)v230);
        const int v232 = (int)((u32)v218 * (u32)v17);
        const int v233 = (int)((u32)v231 + (u32)v232);
        const int v234 = (int)((u32)v233 + (u32)v220);
        b3[v234] = v229;
      }
    }
  }
}
