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
template <class T> inline T shuffle_xor(T x, ushort bits) { return simd_shuffle_xor(x, bits); }
inline u64 shuffle_xor(u64 x, ushort bits) {
  return (u64)simd_shuffle_xor((u32)x, bits) | (u64)simd_shuffle_xor((u32)(x >> 32), bits) << 32;
}
inline i64 shuffle_xor(i64 x, ushort bits) { return (i64)shuffle_xor((u64)x, bits); }
[[max_total_threads_per_threadgroup(64)]] kernel void softmax(
    constant int* u [[buffer(0)]],
    device const float* b0 [[buffer(1)]] /* x0 */,
    device float* b1 [[buffer(2)]] /* y0 */,
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint3 group [[threadgroup_position_in_grid]],
    uint3 groups [[threadgroups_per_grid]]) {
  const uint local = simd * 32u + lane;
  threadgroup float s0[128];
  threadgroup float s1[64];
  threadgroup float s2[64];
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
    for (int v35 = v8; v35 < v1; v35 += 64) {
      const int v36 = (int)((u32)v7 * (u32)v3);
      const int v37 = (int)((u32)v2 + (u32)v36);
      const int v38 = (int)((u32)v37 + (u32)v35);
      const float v39 = b0[v38];
      s0[v35] = v39;
      const float v40 = m0;
      const float v41 = fmax(v40, v39);
      const u32 v42 = as_type<u32>(v40);
      const u32 v43 = (v42 & 2147483647u);
      const bool v44 = (v43 > 2139095040u);
      const u32 v45 = as_type<u32>(v39);
      const u32 v46 = (v45 & 2147483647u);
      const bool v47 = (v46 > 2139095040u);
      const float v48 = (v47 ? v39 : v41);
      const float v49 = (v44 ? v40 : v48);
      m0 = v49;
    }
    const float v50 = m0;
    s1[v8] = v50;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const int v51 = (v8 & (int)31u);
    const float v52 = s1[v51];
    const int v53 = (int)((u32)v51 + (u32)(int)32u);
    const float v54 = s1[v53];
    const float v55 = fmax(v52, v54);
    const u32 v56 = as_type<u32>(v52);
    const u32 v57 = (v56 & 2147483647u);
    const bool v58 = (v57 > 2139095040u);
    const u32 v59 = as_type<u32>(v54);
    const u32 v60 = (v59 & 2147483647u);
    const bool v61 = (v60 > 2139095040u);
    const float v62 = (v61 ? v54 : v55);
    const float v63 = (v58 ? v52 : v62);
    const float v64 = shuffle_xor(v63, 16);
    const int v65 = (v8 & (int)16u);
    const bool v66 = (v65 == (int)0u);
    const float v67 = (v66 ? v63 : v64);
    const float v68 = (v66 ? v64 : v63);
    const float v69 = fmax(v67, v68);
    const u32 v70 = as_type<u32>(v67);
    const u32 v71 = (v70 & 2147483647u);
    const bool v72 = (v71 > 2139095040u);
    const u32 v73 = as_type<u32>(v68);
    const u32 v74 = (v73 & 2147483647u);
    const bool v75 = (v74 > 2139095040u);
    const float v76 = (v75 ? v68 : v69);
    const float v77 = (v72 ? v67 : v76);
    const float v78 = shuffle_xor(v77, 8);
    const int v79 = (v8 & (int)8u);
    const bool v80 = (v79 == (int)0u);
    const float v81 = (v80 ? v77 : v78);
    const float v82 = (v80 ? v78 : v77);
    const float v83 = fmax(v81, v82);
    const u32 v84 = as_type<u32>(v81);
    const u32 v85 = (v84 & 2147483647u);
    const bool v86 = (v85 > 2139095040u);
    const u32 v87 = as_type<u32>(v82);
    const u32 v88 = (v87 & 2147483647u);
    const bool v89 = (v88 > 2139095040u);
    const float v90 = (v89 ? v82 : v83);
    const float v91 = (v86 ? v81 : v90);
    const float v92 = shuffle_xor(v91, 4);
    const int v93 = (v8 & (int)4u);
    const bool v94 = (v93 == (int)0u);
    const float v95 = (v94 ? v91 : v92);
    const float v96 = (v94 ? v92 : v91);
    const float v97 = fmax(v95, v96);
    const u32 v98 = as_type<u32>(v95);
    const u32 v99 = (v98 & 2147483647u);
    const bool v100 = (v99 > 2139095040u);
    const u32 v101 = as_type<u32>(v96);
    const u32 v102 = (v101 & 2147483647u);
    const bool v103 = (v102 > 2139095040u);
    const float v104 = (v103 ? v96 : v97);
    const float v105 = (v100 ? v95 : v104);
    const float v106 = shuffle_xor(v105, 2);
    const int v107 = (v8 & (int)2u);
    const bool v108 = (v107 == (int)0u);
    const float v109 = (v108 ? v105 : v106);
    const float v110 = (v108 ? v106 : v105);
    const float v111 = fmax(v109, v110);
    const u32 v112 = as_type<u32>(v109);
    const u32 v113 = (v112 & 2147483647u);
    const bool v114 = (v113 > 2139095040u);
    const u32 v115 = as_type<u32>(v110);
    const u32 v116 = (v115 & 2147483647u);
    const bool v117 = (v116 > 2139095040u);
    const float v118 = (v117 ? v110 : v111);
    const float v119 = (v114 ? v109 : v118);
    const float v120 = shuffle_xor(v119, 1);
    const int v121 = (v8 & (int)1u);
    const bool v122 = (v121 == (int)0u);
    const float v123 = (v122 ? v119 : v120);
    const float v124 = (v122 ? v120 : v119);
    const float v125 = fmax(v123, v124);
    const u32 v126 = as_type<u32>(v123);
    const u32 v127 = (v126 & 2147483647u);
    const bool v128 = (v127 > 2139095040u);
    const u32 v129 = as_type<u32>(v124);
    const u32 v130 = (v129 & 2147483647u);
    const bool v131 = (v130 > 2139095040u);
    const float v132 = (v131 ? v124 : v125);
    const float v133 = (v128 ? v123 : v132);
    m1 = 0.0f;
    for (int v134 = v8; v134 < v1; v134 += 64) {
      const float v135 = s0[v134];
      const float v136 = (v135 - v133);
      const u32 v137 = as_type<u32>(v136);
      const u32 v138 = (v137 & 2147483647u);
      const bool v139 = (v138 > 2139095040u);
      const float v140 = (v139 ? 0.0f : v136);
      const bool v141 = (90.0f < v140);
      const float v142 = (v141 ? 90.0f : v140);
      const bool v143 = (v142 < (-105.0f));
      const float v144 = (v143 ? (-105.0f) : v142);
      const float v145 = (v144 * 1.442695f);
      const float v146 = rint(v145);
      const float v147 = (v146 * 0.69314575f);
      const float v148 = (v144 - v147);
      const float v149 = (v146 * 1.4286068e-6f);
      const float v150 = (v148 - v149);
      const float v151 = (0.0013780594f * v150);
      const float v152 = (v151 + 0.0083731245f);
      const float v153 = (v152 * v150);
      const float v154 = (v153 + 0.041669536f);
      const float v155 = (v154 * v150);
      const float v156 = (v155 + 0.16666472f);
      const float v157 = (v156 * v150);
      const float v158 = (v157 + 0.49999985f);
      const float v159 = (v158 * v150);
      const float v160 = (v159 + 1.0f);
      const float v161 = (v160 * v150);
      const float v162 = (v161 + 1.0f);
      const int v163 = to_int(v146);
      const int v164 = (v163 >> 1u);
      const int v165 = (int)((u32)v164 + (u32)(int)127u);
      const int v166 = (int)((u32)v165 << 23u);
      const float v167 = as_type<float>(v166);
      const float v168 = (v162 * v167);
      const int v169 = (int)((u32)v163 - (u32)v164);
      const int v170 = (int)((u32)v169 + (u32)(int)127u);
      const int v171 = (int)((u32)v170 << 23u);
      const float v172 = as_type<float>(v171);
      const float v173 = (v168 * v172);
      const float v174 = (v139 ? v136 : v173);
      s0[v134] = v174;
      const float v175 = m1;
      const float v176 = (v175 + v174);
      m1 = v176;
    }
    const float v177 = m1;
    s2[v8] = v177;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float v178 = s2[v51];
    const float v179 = s2[v53];
    const float v180 = (v178 + v179);
    const float v181 = shuffle_xor(v180, 16);
    const float v182 = (v180 + v181);
    const float v183 = shuffle_xor(v182, 8);
    const float v184 = (v182 + v183);
    const float v185 = shuffle_xor(v184, 4);
    const float v186 = (v184 + v185);
    const float v187 = shuffle_xor(v186, 2);
    const float v188 = (v186 + v187);
    const float v189 = shuffle_xor(v188, 1);
    const float v190 = (v188 + v189);
    for (int v191 = v8; v191 < v1; v191 += 64) {
      const float v192 = s0[v191];
      const float v193 = (v192 / v190);
      const int v194 = (int)((u32)v7 * (u32)v5);
      const int v195 = (int)((u32)v4 + (u32)v194);
      const int v196 = (int)((u32)v195 + (u32)v191);
      b1[v196] = v193;
    }
  }
}
