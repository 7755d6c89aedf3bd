// conv.Conv+Relu
#include <metal_stdlib>
#if __METAL_VERSION__ < 320
#error "this needs the Metal Shading Language 3.2"
#endif
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
using namespace metal;
typedef uchar u8; typedef ushort u16; typedef uint u32; typedef ulong u64; typedef long i64;
inline float from_half(u16 h) { return (float)as_type<half>(h); }
inline u16 to_half(float f) { return as_type<u16>((half)f); }
template <class T> inline T saturated(float x, float from, float to, T least, T most) {
  return (as_type<u32>(x) & 0x7fffffffu) > 0x7f800000u ? (T)0 : x < from ? least : x >= to ? most : (T)x;
}
inline int to_int(float x) { return saturated<int>(x, -2147483648.0f, 2147483648.0f, (int)0x80000000u, 0x7fffffff); }
inline u32 to_uint(float x) { return saturated<u32>(x, 0.0f, 4294967296.0f, 0u, 0xffffffffu); }
inline i64 to_long(float x) { return saturated<i64>(x, -9223372036854775808.0f, 9223372036854775808.0f, (i64)0x8000000000000000ul, 0x7fffffffffffffffl); }
inline u64 to_ulong(float x) { return saturated<u64>(x, 0.0f, 18446744073709551616.0f, 0ul, 0xfffffffffffffffful); }
inline float from_brain(u16 h) { return as_type<float>((u32)h << 16); }
inline u16 to_brain(float f) {
  u32 b = as_type<u32>(f);
  return (b & 0x7fffffffu) > 0x7f800000u ? (u16)((b >> 16) | 0x40u) : (u16)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}
[[max_total_threads_per_threadgroup(64)]] kernel void conv(
    constant int* u [[buffer(0)]],
    device const float* b0 [[buffer(1)]] /* x1 */,
    device const float* b1 [[buffer(2)]] /* x0 */,
    device const float* b2 [[buffer(3)]] /* x2 */,
    device float* b3 [[buffer(4)]] /* y0 */,
    uint local [[thread_index_in_threadgroup]],
    uint3 group [[threadgroup_position_in_grid]],
    uint3 groups [[threadgroups_per_grid]]) {
  threadgroup float s0[1088];
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
  const int v23 = (int)(group.y * groups.x + group.x);
  const int v24 = (int)local;
  const bool v25 = (v23 < v6);
  if (v25) {
    const int v46 = (v23 / v6);
    const int v47 = (int)((u32)v46 * (u32)v6);
    const int v48 = (int)((u32)v23 - (u32)v47);
    const int v49 = (int)((u32)v48 << 5u);
    const int v50 = (v24 >> 3u);
    const int v51 = (v24 & (int)7u);
    const int v52 = (int)((u32)v50 << 2u);
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
    for (int v53 = (int)0u; v53 < v21; v53 += 16) {
      for (int v54 = v24; v54 < (int)512u; v54 += 64) {
        const int v55 = (v54 & (int)15u);
        const int v56 = (v54 >> 4u);
        const int v57 = (int)((u32)v53 + (u32)v55);
        const bool v58 = (v56 < v2);
        const bool v59 = (v57 < v21);
        const bool v60 = (v58 & v59);
        m16 = as_type<float>(0x80000000u);
        if (v60) {
          const int v61 = (v57 / (int)3u);
          const int v62 = (v57 % (int)3u);
          const int v63 = (v61 / (int)3u);
          const int v64 = (v61 % (int)3u);
          const int v65 = (int)((u32)v56 * (u32)v8);
          const int v66 = (int)((u32)v7 + (u32)v65);
          const int v67 = (int)((u32)v63 * (u32)v9);
          const int v68 = (int)((u32)v66 + (u32)v67);
          const int v69 = (int)((u32)v64 * (u32)v10);
          const int v70 = (int)((u32)v68 + (u32)v69);
          const int v71 = (int)((u32)v70 + (u32)v62);
          const float v72 = b0[v71];
          m16 = v72;
        }
        const float v73 = m16;
        const int v74 = (int)((u32)v55 * (u32)(int)34u);
        const int v75 = (int)((u32)v74 + (u32)v56);
        s0[v75] = v73;
      }
      for (int v76 = v24; v76 < (int)512u; v76 += 64) {
        const int v77 = (v76 >> 5u);
        const int v78 = (v76 & (int)31u);
        const int v79 = (int)((u32)v53 + (u32)v77);
        const int v80 = (int)((u32)v49 + (u32)v78);
        const bool v81 = (v79 < v21);
        const bool v82 = (v80 < v22);
        const bool v83 = (v81 & v82);
        m17 = 0.0f;
        if (v83) {
          const int v84 = (v79 / (int)3u);
          const int v85 = (v79 % (int)3u);
          const int v86 = (v84 / (int)3u);
          const int v87 = (v84 % (int)3u);
          const int v88 = (v80 / v5);
          const int v89 = (int)((u32)v88 * (u32)v5);
          const int v90 = (int)((u32)v80 - (u32)v89);
          const int v91 = (int)((u32)v88 + (u32)v87);
          const int v92 = (int)((u32)v91 - (u32)(int)1u);
          const int v93 = (int)((u32)v90 + (u32)v85);
          const int v94 = (int)((u32)v93 - (u32)(int)1u);
          const bool v95 = (v92 >= (int)0u);
          const bool v96 = (v92 < v0);
          const bool v97 = (v95 & v96);
          const bool v98 = (v94 >= (int)0u);
          const bool v99 = (v94 < v1);
          const bool v100 = (v98 & v99);
          const bool v101 = (v97 & v100);
          m18 = 0.0f;
          if (v101) {
            const int v102 = (int)((u32)v86 * (u32)v12);
            const int v103 = (int)((u32)v11 + (u32)v102);
            const int v104 = (int)((u32)v92 * (u32)v13);
            const int v105 = (int)((u32)v103 + (u32)v104);
            const int v106 = (int)((u32)v105 + (u32)v94);
            const float v107 = b1[v106];
            m18 = v107;
          }
          const float v108 = m18;
          m17 = v108;
        }
        const float v109 = m17;
        const int v110 = (int)((u32)v76 + (u32)(int)544u);
        s0[v110] = v109;
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (int v111 = (int)0u; v111 < (int)16u; v111 += 1) {
        const int v112 = (int)((u32)v111 * (u32)(int)34u);
        const int v113 = (int)((u32)v112 + (u32)v52);
        const float v114 = s0[v113];
        const int v115 = (int)((u32)v113 + (u32)(int)1u);
        const float v116 = s0[v115];
        const int v117 = (int)((u32)v113 + (u32)(int)2u);
        const float v118 = s0[v117];
        const int v119 = (int)((u32)v113 + (u32)(int)3u);
        const float v120 = s0[v119];
        const int v121 = (int)((u32)v111 << 5u);
        const int v122 = (int)((u32)v121 + (u32)(int)544u);
        const int v123 = (int)((u32)v122 + (u32)v51);
        const float v124 = s0[v123];
        const int v125 = (int)((u32)v123 + (u32)(int)8u);
        const float v126 = s0[v125];
        const int v127 = (int)((u32)v123 + (u32)(int)16u);
        const float v128 = s0[v127];
        const int v129 = (int)((u32)v123 + (u32)(int)24u);
        const float v130 = s0[v129];
        const float v131 = (v114 * v124);
        const float v132 = m0;
        const float v133 = (v132 + v131);
        m0 = v133;
        const float v134 = (v114 * v126);
        const float v135 = m1;
        const float v136 = (v135 + v134);
        m1 = v136;
        const float v137 = (v114 * v128);
        const float v138 = m2;
        const float v139 = (v138 + v137);
        m2 = v139;
        const float v140 = (v114 * v130);
        const float v141 = m3;
        const float v142 = (v141 + v140);
        m3 = v142;
        const float v143 = (v116 * v124);
        const float v144 = m4;
        const float v145 = (v144 + v143);
        m4 = v145;
        const float v146 = (v116 * v126);
        const float v147 = m5;
        const float v148 = (v147 + v146);
        m5 = v148;
        const float v149 = (v116 * v128);
        const float v150 = m6;
        const float v151 = (v150 + v149);
        m6 = v151;
        const float v152 = (v116 * v130);
        const float v153 = m7;
        const float v154 = (v153 + v152);
        m7 = v154;
        const float v155 = (v118 * v124);
        const float v156 = m8;
        const float v157 = (v156 + v155);
        m8 = v157;
        const float v158 = (v118 * v126);
        const float v159 = m9;
        const float v160 = (v159 + v158);
        m9 = v160;
        const float v161 = (v118 * v128);
        const float v162 = m10;
        const float v163 = (v162 + v161);
        m10 = v163;
        const float v164 = (v118 * v130);
        const float v165 = m11;
        const float v166 = (v165 + v164);
        m11 = v166;
        const float v167 = (v120 * v124);
        const float v168 = m12;
        const float v169 = (v168 + v167);
        m12 = v169;
        const float v170 = (v120 * v126);
        const float v171 = m13;
        const float v172 = (v171 + v170);
        m13 = v172;
        const float v173 = (v120 * v128);
        const float v174 = m14;
        const float v175 = (v174 + v173);
        m14 = v175;
        const float v176 = (v120 * v130);
        const float v177 = m15;
        const float v178 = (v177 + v176);
        m15 = v178;
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    const int v179 = (int)((u32)v52 * (u32)(int)34u);
    const int v180 = (int)((u32)v179 + (u32)v51);
    const float v181 = m0;
    s0[v180] = v181;
    const int v182 = (int)((u32)v51 + (u32)(int)8u);
    const int v183 = (int)((u32)v179 + (u32)v182);
    const float v184 = m1;
    s0[v183] = v184;
    const int v185 = (int)((u32)v51 + (u32)(int)16u);
    const int v186 = (int)((u32)v179 + (u32)v185);
    const float v187 = m2;
    s0[v186] = v187;
    const int v188 = (int)((u32)v51 + (u32)(int)24u);
    const int v189 = (int)((u32)v179 + (u32)v188);
    const float v190 = m3;
    s0[v189] = v190;
    const int v191 = (int)((u32)v52 + (u32)(int)1u);
    const int v192 = (int)((u32)v191 * (u32)(int)34u);
    const int v193 = (int)((u32)v192 + (u32)v51);
    const float v194 = m4;
    s0[v193] = v194;
    const int v195 = (int)((u32)v192 + (u32)v182);
    const float v196 = m5;
    s0[v195] = v196;
    const int v197 = (int)((u32)v192 + (u32)v185);
    const float v198 = m6;
    s0[v197] = v198;
    const int v199 = (int)((u32)v192 + (u32)v188);
    const float v200 = m7;
    s0[v199] = v200;
    const int v201 = (int)((u32)v52 + (u32)(int)2u);
    const int v202 = (int)((u32)v201 * (u32)(int)34u);
    const int v203 = (int)((u32)v202 + (u32)v51);
    const float v204 = m8;
    s0[v203] = v204;
    const int v205 = (int)((u32)v202 + (u32)v182);
    const float v206 = m9;
    s0[v205] = v206;
    const int v207 = (int)((u32)v202 + (u32)v185);
    const float v208 = m10;
    s0[v207] = v208;
    const int v209 = (int)((u32)v202 + (u32)v188);
    const float v210 = m11;
    s0[v209] = v210;
    const int v211 = (int)((u32)v52 + (u32)(int)3u);
    const int v212 = (int)((u32)v211 * (u32)(int)34u);
    const int v213 = (int)((u32)v212 + (u32)v51);
    const float v214 = m12;
    s0[v213] = v214;
    const int v215 = (int)((u32)v212 + (u32)v182);
    const float v216 = m13;
    s0[v215] = v216;
    const int v217 = (int)((u32)v212 + (u32)v185);
    const float v218 = m14;
    s0[v217] = v218;
    const int v219 = (int)((u32)v212 + (u32)v188);
    const float v220 = m15;
    s0[v219] = v220;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int v221 = v24; v221 < (int)1024u; v221 += 64) {
      const int v222 = (v221 >> 5u);
      const int v223 = (v221 & (int)31u);
      const int v224 = (int)((u32)v49 + (u32)v223);
      const bool v225 = (v222 < v2);
      const bool v226 = (v224 < v22);
      const bool v227 = (v225 & v226);
      if (v227) {
        const int v228 = (int)((u32)v222 * (u32)(int)34u);
        const int v229 = (int)((u32)v228 + (u32)v223);
        const float v230 = s0[v229];
        const int v231 = (v224 / v5);
        const int v232 = (int)((u32)v231 * (u32)v5);
        const int v233 = (int)((u32)v224 - (u32)v232);
        const int v234 = (int)((u32)v14 + (u32)v222);
        const float v235 = b2[v234];
        const float v236 = (v230 + v235);
        const bool v237 = (v236 > 0.0f);
        const u32 v238 = as_type<u32>(v236);
        const u32 v239 = (v238 & 2147483647u);
        const bool v240 = (v239 > 2139095040u);
        const bool v241 = (v237 | v240);
        const float v242 = (v241 ? v236 : 0.0f);
        const int v243 = (int)((u32)v222 * (u32)v16);
        const int v244 = (int)((u32)v15 + (u32)v243);
        const int v245 = (int)((u32)v231 * (u32)v17);
        const int v246 = (int)((u32)v244 + (u32)v245);
        const int v247 = (int)((u32)v246 + (u32)v233);
        b3[v247] = v242;
      }
    }
  }
}
