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
struct Uniforms { int of[8]; __device__ __forceinline__ int operator[](int i) const { return of[i]; } };
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
  const int v2 = u[2];
  const int v3 = u[3];
  const int v13 = (int)(blockIdx.y * gridDim.x + blockIdx.x);
  const int v14 = (int)threadIdx.x;
  const int v45 = (int)((u32)v13 << 5u);
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
  for (int v49 = (int)0u; v49 < (int)72u; v49 += 16) {
    for (int v50 = v14; v50 < (int)512u; v50 += 64) {
      const int v51 = (v50 & (int)15u);
      const int v52 = (v50 >> 4u);
      const int v53 = (int)((u32)v49 + (u32)v51);
      const bool v54 = (v52 < (int)16u);
      const bool v55 = (v53 < (int)72u);
      const bool v56 = (v54 & v55);
      m16 = __uint_as_float(0x80000000u);
      if (v56) {
        const int v57 = (v53 / (int)3u);
        const int v58 = (v53 % (int)3u);
        const int v59 = (v57 / (int)3u);
        const int v60 = (v57 % (int)3u);
        const int v61 = (int)((u32)v52 * (u32)(int)72u);
        const int v62 = (int)((u32)v0 + (u32)v61);
        const int v63 = (int)((u32)v59 * (u32)(int)9u);
        const int v64 = (int)((u32)v62 + (u32)v63);
        const int v65 = (int)((u32)v60 * (u32)(int)3u);
        const int v66 = (int)((u32)v64 + (u32)v65);
        const int v67 = (int)((u32)v66 + (u32)v58);
        const float v68 = b0[v67];
        m16 = v68;
      }
      const float v69 = m16;
      const int v70 = (int)((u32)v51 * (u32)(int)34u);
      const int v71 = (int)((u32)v70 + (u32)v52);
      s0[v71] = v69;
    }
    for (int v72 = v14; v72 < (int)512u; v72 += 64) {
      const int v73 = (v72 >> 5u);
      const int v74 = (v72 & (int)31u);
      const int v75 = (int)((u32)v49 + (u32)v73);
      const int v76 = (int)((u32)v45 + (u32)v74);
      const bool v77 = (v75 < (int)72u);
      const bool v78 = (v76 < (int)100u);
      const bool v79 = (v77 & v78);
      m17 = 0.0f;
      if (v79) {
        const int v80 = (v75 / (int)3u);
        const int v81 = (v75 % (int)3u);
        const int v82 = (v80 / (int)3u);
        const int v83 = (v80 % (int)3u);
        const int v84 = (v76 / (int)10u);
        const int v85 = (v76 % (int)10u);
        const int v86 = (int)((u32)v84 + (u32)v83);
        const int v87 = (int)((u32)v86 - (u32)(int)1u);
        const int v88 = (int)((u32)v85 + (u32)v81);
        const int v89 = (int)((u32)v88 - (u32)(int)1u);
        const bool v90 = (v87 >= (int)0u);
        const bool v91 = (v87 < (int)10u);
        const bool v92 = (v90 & v91);
        const bool v93 = (v89 >= (int)0u);
        const bool v94 = (v89 < (int)10u);
        const bool v95 = (v93 & v94);
        const bool v96 = (v92 & v95);
        m18 = 0.0f;
        if (v96) {
          const int v97 = (int)((u32)v82 * (u32)(int)100u);
          const int v98 = (int)((u32)v1 + (u32)v97);
          const int v99 = (int)((u32)v87 * (u32)(int)10u);
          const int v100 = (int)((u32)v98 + (u32)v99);
          const int v101 = (int)((u32)v100 + (u32)v89);
          const float v102 = b1[v101];
          m18 = v102;
        }
        const float v103 = m18;
        m17 = v103;
      }
      const float v104 = m17;
      const int v105 = (int)((u32)v72 + (u32)(int)544u);
      s0[v105] = v104;
    }
    __syncthreads();
    for (int v106 = (int)0u; v106 < (int)16u; v106 += 1) {
      const int v107 = (int)((u32)v106 * (u32)(int)34u);
      const int v108 = (int)((u32)v107 + (u32)v48);
      const float v109 = s0[v108];
      const int v110 = (int)((u32)v108 + (u32)(int)1u);
      const float v111 = s0[v110];
      const int v112 = (int)((u32)v108 + (u32)(int)2u);
      const float v113 = s0[v112];
      const int v114 = (int)((u32)v108 + (u32)(int)3u);
      const float v115 = s0[v114];
      const int v116 = (int)((u32)v106 << 5u);
      const int v117 = (int)((u32)v116 + (u32)(int)544u);
      const int v118 = (int)((u32)v117 + (u32)v47);
      const float v119 = s0[v118];
      const int v120 = (int)((u32)v118 + (u32)(int)8u);
      const float v121 = s0[v120];
      const int v122 = (int)((u32)v118 + (u32)(int)16u);
      const float v123 = s0[v122];
      const int v124 = (int)((u32)v118 + (u32)(int)24u);
      const float v125 = s0[v124];
      const float v126 = m0;
      const float v127 = fmaf(v109, v119, v126);
      m0 = v127;
      const float v128 = m1;
      const float v129 = fmaf(v109, v121, v128);
      m1 = v129;
      const float v130 = m2;
      const float v131 = fmaf(v109, v123, v130);
      m2 = v131;
      const float v132 = m3;
      const float v133 = fmaf(v109, v125, v132);
      m3 = v133;
      const float v134 = m4;
      const float v135 = fmaf(v111, v119, v134);
      m4 = v135;
      const float v136 = m5;
      const float v137 = fmaf(v111, v121, v136);
      m5 = v137;
      const float v138 = m6;
      const float v139 = fmaf(v111, v123, v138);
      m6 = v139;
      const float v140 = m7;
      const float v141 = fmaf(v111, v125, v140);
      m7 = v141;
      const float v142 = m8;
      const float v143 = fmaf(v113, v119, v142);
      m8 = v143;
      const float v144 = m9;
      const float v145 = fmaf(v113, v121, v144);
      m9 = v145;
      const float v146 = m10;
      const float v147 = fmaf(v113, v123, v146);
      m10 = v147;
      const float v148 = m11;
      const float v149 = fmaf(v113, v125, v148);
      m11 = v149;
      const float v150 = m12;
      const float v151 = fmaf(v115, v119, v150);
      m12 = v151;
      const float v152 = m13;
      const float v153 = fmaf(v115, v121, v152);
      m13 = v153;
      const float v154 = m14;
      const float v155 = fmaf(v115, v123, v154);
      m14 = v155;
      const float v156 = m15;
      const float v157 = fmaf(v115, v125, v156);
      m15 = v157;
    }
    __syncthreads();
  }
  const int v158 = (int)((u32)v46 * (u32)(int)136u);
  const int v159 = (int)((u32)v158 + (u32)v47);
  const float v160 = m0;
  s0[v159] = v160;
  const int v161 = (int)((u32)v159 + (u32)(int)8u);
  const float v162 = m1;
  s0[v161] = v162;
  const int v163 = (int)((u32)v159 + (u32)(int)16u);
  const float v164 = m2;
  s0[v163] = v164;
  const int v165 = (int)((u32)v159 + (u32)(int)24u);
  const float v166 = m3;
  s0[v165] = v166;
  const int v167 = (int)((u32)v159 + (u32)(int)32u);
  const float v168 = m4;
  s0[v167] = v168;
  const int v169 = (int)((u32)v159 + (u32)(int)40u);
  const float v170 = m5;
  s0[v169] = v170;
  const int v171 = (int)((u32)v159 + (u32)(int)48u);
  const float v172 = m6;
  s0[v171] = v172;
  const int v173 = (int)((u32)v159 + (u32)(int)56u);
  const float v174 = m7;
  s0[v173] = v174;
  const int v175 = (int)((u32)v159 + (u32)(int)64u);
  const float v176 = m8;
  s0[v175] = v176;
  const int v177 = (int)((u32)v159 + (u32)(int)72u);
  const float v178 = m9;
  s0[v177] = v178;
  const int v179 = (int)((u32)v159 + (u32)(int)80u);
  const float v180 = m10;
  s0[v179] = v180;
  const int v181 = (int)((u32)v159 + (u32)(int)88u);
  const float v182 = m11;
  s0[v181] = v182;
  const int v183 = (int)((u32)v159 + (u32)(int)96u);
  const float v184 = m12;
  s0[v183] = v184;
  const int v185 = (int)((u32)v159 + (u32)(int)104u);
  const float v186 = m13;
  s0[v185] = v186;
  const int v187 = (int)((u32)v159 + (u32)(int)112u);
  const float v188 = m14;
  s0[v187] = v188;
  const int v189 = (int)((u32)v159 + (u32)(int)120u);
  const float v190 = m15;
  s0[v189] = v190;
  __syncthreads();
  for (int v191 = v14; v191 < (int)1024u; v191 += 64) {
    const int v192 = (v191 >> 5u);
    const int v193 = (v191 & (int)31u);
    const int v194 = (int)((u32)v45 + (u32)v193);
    const bool v195 = (v192 < (int)16u);
    const bool v196 = (v194 < (int)100u);
    const bool v197 = (v195 & v196);
    if (v197) {
      const int v198 = (v191 >> 7u);
      const int v199 = (int)((u32)v198 << 3u);
      const int v200 = (int)((u32)v191 + (u32)v199);
      const float v201 = s0[v200];
      const int v202 = (v194 / (int)10u);
      const int v203 = (int)((u32)v202 * (u32)(int)10u);
      const int v204 = (v194 % (int)10u);
      const int v205 = (int)((u32)v2 + (u32)v192);
      const float v206 = b2[v205];
      const float v207 = (v201 + v206);
      const bool v208 = (v207 > 0.0f);
      const u32 v209 = __float_as_uint(v207);
      const u32 v210 = (v209 & 2147483647u);
      const bool v211 = (v210 > 2139095040u);
      const bool v212 = (v208 | v211);
      const float v213 = (v212 ? v207 : 0.0f);
      const int v214 = (int)((u32)v192 * (u32)(int)100u);
      const int v215 = (int)((u32)v3 + (u32)v214);
      const int v216 = (int)((u32)v215 + (u32)v203);
      const int v217 = (int)((u32)v216 + (u32)v204);
      b3[v217] = v213;
    }
  }
}
