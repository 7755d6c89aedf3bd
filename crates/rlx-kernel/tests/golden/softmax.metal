// rows.softmax
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
[[max_total_threads_per_threadgroup(64)]] kernel void softmax(
    constant int* u [[buffer(0)]],
    device const float* b0 [[buffer(1)]] /* x0 */,
    device float* b1 [[buffer(2)]] /* y0 */,
    uint local [[thread_index_in_threadgroup]],
    uint3 group [[threadgroup_position_in_grid]],
    uint3 groups [[threadgroups_per_grid]]) {
  threadgroup float s0[64];
  threadgroup float s1[128];
  float m0;
  float m1;
  const int v0 = u[0];
  const int v1 = u[1];
  const int v2 = u[2];
  const int v3 = u[3];
  const int v4 = u[4];
  const int v5 = u[5];
  const int v7 = (int)(group.y * groups.x + group.x);
  const int v8 = (int)local;
  const bool v9 = (v7 < v0);
  if (v9) {
    m0 = as_type<float>(0xff800000u);
    for (int v34 = v8; v34 < v1; v34 += 64) {
      const int v35 = (int)((u32)v7 * (u32)v3);
      const int v36 = (int)((u32)v2 + (u32)v35);
      const int v37 = (int)((u32)v36 + (u32)v34);
      const float v38 = b0[v37];
      s1[v34] = v38;
      const float v39 = m0;
      const float v40 = fmax(v39, v38);
      const u32 v41 = as_type<u32>(v39);
      const u32 v42 = (v41 & 2147483647u);
      const bool v43 = (v42 > 2139095040u);
      const u32 v44 = as_type<u32>(v38);
      const u32 v45 = (v44 & 2147483647u);
      const bool v46 = (v45 > 2139095040u);
      const float v47 = (v46 ? v38 : v40);
      const float v48 = (v43 ? v39 : v47);
      m0 = v48;
    }
    const float v49 = m0;
    s0[v8] = v49;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const bool v50 = (v8 < (int)32u);
    if (v50) {
      const int v51 = (int)((u32)v8 + (u32)(int)32u);
      const float v52 = s0[v8];
      const float v53 = s0[v51];
      const float v54 = fmax(v52, v53);
      const u32 v55 = as_type<u32>(v52);
      const u32 v56 = (v55 & 2147483647u);
      const bool v57 = (v56 > 2139095040u);
      const u32 v58 = as_type<u32>(v53);
      const u32 v59 = (v58 & 2147483647u);
      const bool v60 = (v59 > 2139095040u);
      const float v61 = (v60 ? v53 : v54);
      const float v62 = (v57 ? v52 : v61);
      s0[v8] = v62;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const bool v63 = (v8 < (int)16u);
    if (v63) {
      const int v64 = (int)((u32)v8 + (u32)(int)16u);
      const float v65 = s0[v8];
      const float v66 = s0[v64];
      const float v67 = fmax(v65, v66);
      const u32 v68 = as_type<u32>(v65);
      const u32 v69 = (v68 & 2147483647u);
      const bool v70 = (v69 > 2139095040u);
      const u32 v71 = as_type<u32>(v66);
      const u32 v72 = (v71 & 2147483647u);
      const bool v73 = (v72 > 2139095040u);
      const float v74 = (v73 ? v66 : v67);
      const float v75 = (v70 ? v65 : v74);
      s0[v8] = v75;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const bool v76 = (v8 < (int)8u);
    if (v76) {
      const int v77 = (int)((u32)v8 + (u32)(int)8u);
      const float v78 = s0[v8];
      const float v79 = s0[v77];
      const float v80 = fmax(v78, v79);
      const u32 v81 = as_type<u32>(v78);
      const u32 v82 = (v81 & 2147483647u);
      const bool v83 = (v82 > 2139095040u);
      const u32 v84 = as_type<u32>(v79);
      const u32 v85 = (v84 & 2147483647u);
      const bool v86 = (v85 > 2139095040u);
      const float v87 = (v86 ? v79 : v80);
      const float v88 = (v83 ? v78 : v87);
      s0[v8] = v88;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const bool v89 = (v8 < (int)4u);
    if (v89) {
      const int v90 = (int)((u32)v8 + (u32)(int)4u);
      const float v91 = s0[v8];
      const float v92 = s0[v90];
      const float v93 = fmax(v91, v92);
      const u32 v94 = as_type<u32>(v91);
      const u32 v95 = (v94 & 2147483647u);
      const bool v96 = (v95 > 2139095040u);
      const u32 v97 = as_type<u32>(v92);
      const u32 v98 = (v97 & 2147483647u);
      const bool v99 = (v98 > 2139095040u);
      const float v100 = (v99 ? v92 : v93);
      const float v101 = (v96 ? v91 : v100);
      s0[v8] = v101;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const bool v102 = (v8 < (int)2u);
    if (v102) {
      const int v103 = (int)((u32)v8 + (u32)(int)2u);
      const float v104 = s0[v8];
      const float v105 = s0[v103];
      const float v106 = fmax(v104, v105);
      const u32 v107 = as_type<u32>(v104);
      const u32 v108 = (v107 & 2147483647u);
      const bool v109 = (v108 > 2139095040u);
      const u32 v110 = as_type<u32>(v105);
      const u32 v111 = (v110 & 2147483647u);
      const bool v112 = (v111 > 2139095040u);
      const float v113 = (v112 ? v105 : v106);
      const float v114 = (v109 ? v104 : v113);
      s0[v8] = v114;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const bool v115 = (v8 < (int)1u);
    if (v115) {
      const int v116 = (int)((u32)v8 + (u32)(int)1u);
      const float v117 = s0[v8];
      const float v118 = s0[v116];
      const float v119 = fmax(v117, v118);
      const u32 v120 = as_type<u32>(v117);
      const u32 v121 = (v120 & 2147483647u);
      const bool v122 = (v121 > 2139095040u);
      const u32 v123 = as_type<u32>(v118);
      const u32 v124 = (v123 & 2147483647u);
      const bool v125 = (v124 > 2139095040u);
      const float v126 = (v125 ? v118 : v119);
      const float v127 = (v122 ? v117 : v126);
      s0[v8] = v127;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float v128 = s0[(int)0u];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    m1 = 0.0f;
    for (int v129 = v8; v129 < v1; v129 += 64) {
      const float v130 = s1[v129];
      const float v131 = (v130 - v128);
      const u32 v132 = as_type<u32>(v131);
      const u32 v133 = (v132 & 2147483647u);
      const bool v134 = (v133 > 2139095040u);
      const float v135 = (v134 ? 0.0f : v131);
      const bool v136 = (90.0f < v135);
      const float v137 = (v136 ? 90.0f : v135);
      const bool v138 = (v137 < (-105.0f));
      const float v139 = (v138 ? (-105.0f) : v137);
      const float v140 = (v139 * 1.442695f);
      const float v141 = rint(v140);
      const float v142 = (v141 * 0.69314575f);
      const float v143 = (v139 - v142);
      const float v144 = (v141 * 1.4286068e-6f);
      const float v145 = (v143 - v144);
      const float v146 = (0.0013780594f * v145);
      const float v147 = (v146 + 0.0083731245f);
      const float v148 = (v147 * v145);
      const float v149 = (v148 + 0.041669536f);
      const float v150 = (v149 * v145);
      const float v151 = (v150 + 0.16666472f);
      const float v152 = (v151 * v145);
      const float v153 = (v152 + 0.49999985f);
      const float v154 = (v153 * v145);
      const float v155 = (v154 + 1.0f);
      const float v156 = (v155 * v145);
      const float v157 = (v156 + 1.0f);
      const int v158 = to_int(v141);
      const int v159 = (v158 >> 1u);
      const int v160 = (int)((u32)v159 + (u32)(int)127u);
      const int v161 = (int)((u32)v160 << 23u);
      const float v162 = as_type<float>(v161);
      const float v163 = (v157 * v162);
      const int v164 = (int)((u32)v158 - (u32)v159);
      const int v165 = (int)((u32)v164 + (u32)(int)127u);
      const int v166 = (int)((u32)v165 << 23u);
      const float v167 = as_type<float>(v166);
      const float v168 = (v163 * v167);
      const float v169 = (v134 ? v131 : v168);
      s1[v129] = v169;
      const float v170 = m1;
      const float v171 = (v170 + v169);
      m1 = v171;
    }
    const float v172 = m1;
    s0[v8] = v172;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (v50) {
      const int v173 = (int)((u32)v8 + (u32)(int)32u);
      const float v174 = s0[v8];
      const float v175 = s0[v173];
      const float v176 = (v174 + v175);
      s0[v8] = v176;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (v63) {
      const int v177 = (int)((u32)v8 + (u32)(int)16u);
      const float v178 = s0[v8];
      const float v179 = s0[v177];
      const float v180 = (v178 + v179);
      s0[v8] = v180;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (v76) {
      const int v181 = (int)((u32)v8 + (u32)(int)8u);
      const float v182 = s0[v8];
      const float v183 = s0[v181];
      const float v184 = (v182 + v183);
      s0[v8] = v184;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (v89) {
      const int v185 = (int)((u32)v8 + (u32)(int)4u);
      const float v186 = s0[v8];
      const float v187 = s0[v185];
      const float v188 = (v186 + v187);
      s0[v8] = v188;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (v102) {
      const int v189 = (int)((u32)v8 + (u32)(int)2u);
      const float v190 = s0[v8];
      const float v191 = s0[v189];
      const float v192 = (v190 + v191);
      s0[v8] = v192;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (v115) {
      const int v193 = (int)((u32)v8 + (u32)(int)1u);
      const float v194 = s0[v8];
      const float v195 = s0[v193];
      const float v196 = (v194 + v195);
      s0[v8] = v196;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float v197 = s0[(int)0u];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int v198 = v8; v198 < v1; v198 += 64) {
      const float v199 = s1[v198];
      const float v200 = (v199 / v197);
      const int v201 = (int)((u32)v7 * (u32)v5);
      const int v202 = (int)((u32)v4 + (u32)v201);
      const int v203 = (int)((u32)v202 + (u32)v198);
      b1[v203] = v200;
    }
  }
}
