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
    for (int v42 = v8; v42 < v1; v42 += 64) {
      const int v43 = (int)((u32)v7 * (u32)v3);
      const int v44 = (int)((u32)v2 + (u32)v43);
      const int v45 = (int)((u32)v44 + (u32)v42);
      const float v46 = b0[v45];
      s1[v42] = v46;
      const float v47 = m0;
      const float v48 = fmax(v47, v46);
      const u32 v49 = as_type<u32>(v47);
      const u32 v50 = (v49 & 2147483647u);
      const bool v51 = (v50 > 2139095040u);
      const u32 v52 = as_type<u32>(v46);
      const u32 v53 = (v52 & 2147483647u);
      const bool v54 = (v53 > 2139095040u);
      const float v55 = (v54 ? v46 : v48);
      const float v56 = (v51 ? v47 : v55);
      m0 = v56;
    }
    const float v57 = m0;
    s0[v8] = v57;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const bool v58 = (v8 < (int)8u);
    if (v58) {
      const float v59 = s0[v8];
      const int v60 = (int)((u32)v8 + (u32)(int)8u);
      const float v61 = s0[v60];
      const int v62 = (int)((u32)v8 + (u32)(int)16u);
      const float v63 = s0[v62];
      const int v64 = (int)((u32)v8 + (u32)(int)24u);
      const float v65 = s0[v64];
      const int v66 = (int)((u32)v8 + (u32)(int)32u);
      const float v67 = s0[v66];
      const int v68 = (int)((u32)v8 + (u32)(int)40u);
      const float v69 = s0[v68];
      const int v70 = (int)((u32)v8 + (u32)(int)48u);
      const float v71 = s0[v70];
      const int v72 = (int)((u32)v8 + (u32)(int)56u);
      const float v73 = s0[v72];
      const float v74 = fmax(v59, v67);
      const u32 v75 = as_type<u32>(v59);
      const u32 v76 = (v75 & 2147483647u);
      const bool v77 = (v76 > 2139095040u);
      const u32 v78 = as_type<u32>(v67);
      const u32 v79 = (v78 & 2147483647u);
      const bool v80 = (v79 > 2139095040u);
      const float v81 = (v80 ? v67 : v74);
      const float v82 = (v77 ? v59 : v81);
      const float v83 = fmax(v61, v69);
      const u32 v84 = as_type<u32>(v61);
      const u32 v85 = (v84 & 2147483647u);
      const bool v86 = (v85 > 2139095040u);
      const u32 v87 = as_type<u32>(v69);
      const u32 v88 = (v87 & 2147483647u);
      const bool v89 = (v88 > 2139095040u);
      const float v90 = (v89 ? v69 : v83);
      const float v91 = (v86 ? v61 : v90);
      const float v92 = fmax(v63, v71);
      const u32 v93 = as_type<u32>(v63);
      const u32 v94 = (v93 & 2147483647u);
      const bool v95 = (v94 > 2139095040u);
      const u32 v96 = as_type<u32>(v71);
      const u32 v97 = (v96 & 2147483647u);
      const bool v98 = (v97 > 2139095040u);
      const float v99 = (v98 ? v71 : v92);
      const float v100 = (v95 ? v63 : v99);
      const float v101 = fmax(v65, v73);
      const u32 v102 = as_type<u32>(v65);
      const u32 v103 = (v102 & 2147483647u);
      const bool v104 = (v103 > 2139095040u);
      const u32 v105 = as_type<u32>(v73);
      const u32 v106 = (v105 & 2147483647u);
      const bool v107 = (v106 > 2139095040u);
      const float v108 = (v107 ? v73 : v101);
      const float v109 = (v104 ? v65 : v108);
      const float v110 = fmax(v82, v100);
      const u32 v111 = as_type<u32>(v82);
      const u32 v112 = (v111 & 2147483647u);
      const bool v113 = (v112 > 2139095040u);
      const u32 v114 = as_type<u32>(v100);
      const u32 v115 = (v114 & 2147483647u);
      const bool v116 = (v115 > 2139095040u);
      const float v117 = (v116 ? v100 : v110);
      const float v118 = (v113 ? v82 : v117);
      const float v119 = fmax(v91, v109);
      const u32 v120 = as_type<u32>(v91);
      const u32 v121 = (v120 & 2147483647u);
      const bool v122 = (v121 > 2139095040u);
      const u32 v123 = as_type<u32>(v109);
      const u32 v124 = (v123 & 2147483647u);
      const bool v125 = (v124 > 2139095040u);
      const float v126 = (v125 ? v109 : v119);
      const float v127 = (v122 ? v91 : v126);
      const float v128 = fmax(v118, v127);
      const u32 v129 = as_type<u32>(v118);
      const u32 v130 = (v129 & 2147483647u);
      const bool v131 = (v130 > 2139095040u);
      const u32 v132 = as_type<u32>(v127);
      const u32 v133 = (v132 & 2147483647u);
      const bool v134 = (v133 > 2139095040u);
      const float v135 = (v134 ? v127 : v128);
      const float v136 = (v131 ? v118 : v135);
      s0[v8] = v136;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const bool v137 = (v8 < (int)1u);
    if (v137) {
      const float v138 = s0[v8];
      const int v139 = (int)((u32)v8 + (u32)(int)1u);
      const float v140 = s0[v139];
      const int v141 = (int)((u32)v8 + (u32)(int)2u);
      const float v142 = s0[v141];
      const int v143 = (int)((u32)v8 + (u32)(int)3u);
      const float v144 = s0[v143];
      const int v145 = (int)((u32)v8 + (u32)(int)4u);
      const float v146 = s0[v145];
      const int v147 = (int)((u32)v8 + (u32)(int)5u);
      const float v148 = s0[v147];
      const int v149 = (int)((u32)v8 + (u32)(int)6u);
      const float v150 = s0[v149];
      const int v151 = (int)((u32)v8 + (u32)(int)7u);
      const float v152 = s0[v151];
      const float v153 = fmax(v138, v146);
      const u32 v154 = as_type<u32>(v138);
      const u32 v155 = (v154 & 2147483647u);
      const bool v156 = (v155 > 2139095040u);
      const u32 v157 = as_type<u32>(v146);
      const u32 v158 = (v157 & 2147483647u);
      const bool v159 = (v158 > 2139095040u);
      const float v160 = (v159 ? v146 : v153);
      const float v161 = (v156 ? v138 : v160);
      const float v162 = fmax(v140, v148);
      const u32 v163 = as_type<u32>(v140);
      const u32 v164 = (v163 & 2147483647u);
      const bool v165 = (v164 > 2139095040u);
      const u32 v166 = as_type<u32>(v148);
      const u32 v167 = (v166 & 2147483647u);
      const bool v168 = (v167 > 2139095040u);
      const float v169 = (v168 ? v148 : v162);
      const float v170 = (v165 ? v140 : v169);
      const float v171 = fmax(v142, v150);
      const u32 v172 = as_type<u32>(v142);
      const u32 v173 = (v172 & 2147483647u);
      const bool v174 = (v173 > 2139095040u);
      const u32 v175 = as_type<u32>(v150);
      const u32 v176 = (v175 & 2147483647u);
      const bool v177 = (v176 > 2139095040u);
      const float v178 = (v177 ? v150 : v171);
      const float v179 = (v174 ? v142 : v178);
      const float v180 = fmax(v144, v152);
      const u32 v181 = as_type<u32>(v144);
      const u32 v182 = (v181 & 2147483647u);
      const bool v183 = (v182 > 2139095040u);
      const u32 v184 = as_type<u32>(v152);
      const u32 v185 = (v184 & 2147483647u);
      const bool v186 = (v185 > 2139095040u);
      const float v187 = (v186 ? v152 : v180);
      const float v188 = (v183 ? v144 : v187);
      const float v189 = fmax(v161, v179);
      const u32 v190 = as_type<u32>(v161);
      const u32 v191 = (v190 & 2147483647u);
      const bool v192 = (v191 > 2139095040u);
      const u32 v193 = as_type<u32>(v179);
      const u32 v194 = (v193 & 2147483647u);
      const bool v195 = (v194 > 2139095040u);
      const float v196 = (v195 ? v179 : v189);
      const float v197 = (v192 ? v161 : v196);
      const float v198 = fmax(v170, v188);
      const u32 v199 = as_type<u32>(v170);
      const u32 v200 = (v199 & 2147483647u);
      const bool v201 = (v200 > 2139095040u);
      const u32 v202 = as_type<u32>(v188);
      const u32 v203 = (v202 & 2147483647u);
      const bool v204 = (v203 > 2139095040u);
      const float v205 = (v204 ? v188 : v198);
      const float v206 = (v201 ? v170 : v205);
      const float v207 = fmax(v197, v206);
      const u32 v208 = as_type<u32>(v197);
      const u32 v209 = (v208 & 2147483647u);
      const bool v210 = (v209 > 2139095040u);
      const u32 v211 = as_type<u32>(v206);
      const u32 v212 = (v211 & 2147483647u);
      const bool v213 = (v212 > 2139095040u);
      const float v214 = (v213 ? v206 : v207);
      const float v215 = (v210 ? v197 : v214);
      s0[v8] = v215;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float v216 = s0[(int)0u];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    m1 = 0.0f;
    for (int v217 = v8; v217 < v1; v217 += 64) {
      const float v218 = s1[v217];
      const float v219 = (v218 - v216);
      const u32 v220 = as_type<u32>(v219);
      const u32 v221 = (v220 & 2147483647u);
      const bool v222 = (v221 > 2139095040u);
      const float v223 = (v222 ? 0.0f : v219);
      const bool v224 = (90.0f < v223);
      const float v225 = (v224 ? 90.0f : v223);
      const bool v226 = (v225 < (-105.0f));
      const float v227 = (v226 ? (-105.0f) : v225);
      const float v228 = (v227 * 1.442695f);
      const float v229 = rint(v228);
      const float v230 = (v229 * 0.69314575f);
      const float v231 = (v227 - v230);
      const float v232 = (v229 * 1.4286068e-6f);
      const float v233 = (v231 - v232);
      const float v234 = (0.0013780594f * v233);
      const float v235 = (v234 + 0.0083731245f);
      const float v236 = (v235 * v233);
      const float v237 = (v236 + 0.041669536f);
      const float v238 = (v237 * v233);
      const float v239 = (v238 + 0.16666472f);
      const float v240 = (v239 * v233);
      const float v241 = (v240 + 0.49999985f);
      const float v242 = (v241 * v233);
      const float v243 = (v242 + 1.0f);
      const float v244 = (v243 * v233);
      const float v245 = (v244 + 1.0f);
      const int v246 = to_int(v229);
      const int v247 = (v246 >> 1u);
      const int v248 = (int)((u32)v247 + (u32)(int)127u);
      const int v249 = (int)((u32)v248 << 23u);
      const float v250 = as_type<float>(v249);
      const float v251 = (v245 * v250);
      const int v252 = (int)((u32)v246 - (u32)v247);
      const int v253 = (int)((u32)v252 + (u32)(int)127u);
      const int v254 = (int)((u32)v253 << 23u);
      const float v255 = as_type<float>(v254);
      const float v256 = (v251 * v255);
      const float v257 = (v222 ? v219 : v256);
      s1[v217] = v257;
      const float v258 = m1;
      const float v259 = (v258 + v257);
      m1 = v259;
    }
    const float v260 = m1;
    s0[v8] = v260;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (v58) {
      const float v261 = s0[v8];
      const int v262 = (int)((u32)v8 + (u32)(int)8u);
      const float v263 = s0[v262];
      const int v264 = (int)((u32)v8 + (u32)(int)16u);
      const float v265 = s0[v264];
      const int v266 = (int)((u32)v8 + (u32)(int)24u);
      const float v267 = s0[v266];
      const int v268 = (int)((u32)v8 + (u32)(int)32u);
      const float v269 = s0[v268];
      const int v270 = (int)((u32)v8 + (u32)(int)40u);
      const float v271 = s0[v270];
      const int v272 = (int)((u32)v8 + (u32)(int)48u);
      const float v273 = s0[v272];
      const int v274 = (int)((u32)v8 + (u32)(int)56u);
      const float v275 = s0[v274];
      const float v276 = (v261 + v269);
      const float v277 = (v263 + v271);
      const float v278 = (v265 + v273);
      const float v279 = (v267 + v275);
      const float v280 = (v276 + v278);
      const float v281 = (v277 + v279);
      const float v282 = (v280 + v281);
      s0[v8] = v282;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (v137) {
      const float v283 = s0[v8];
      const int v284 = (int)((u32)v8 + (u32)(int)1u);
      const float v285 = s0[v284];
      const int v286 = (int)((u32)v8 + (u32)(int)2u);
      const float v287 = s0[v286];
      const int v288 = (int)((u32)v8 + (u32)(int)3u);
      const float v289 = s0[v288];
      const int v290 = (int)((u32)v8 + (u32)(int)4u);
      const float v291 = s0[v290];
      const int v292 = (int)((u32)v8 + (u32)(int)5u);
      const float v293 = s0[v292];
      const int v294 = (int)((u32)v8 + (u32)(int)6u);
      const float v295 = s0[v294];
      const int v296 = (int)((u32)v8 + (u32)(int)7u);
      const float v297 = s0[v296];
      const float v298 = (v283 + v291);
      const float v299 = (v285 + v293);
      const float v300 = (v287 + v295);
      const float v301 = (v289 + v297);
      const float v302 = (v298 + v300);
      const float v303 = (v299 + v301);
      const float v304 = (v302 + v303);
      s0[v8] = v304;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float v305 = s0[(int)0u];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int v306 = v8; v306 < v1; v306 += 64) {
      const float v307 = s1[v306];
      const float v308 = (v307 / v305);
      const int v309 = (int)((u32)v7 * (u32)v5);
      const int v310 = (int)((u32)v4 + (u32)v309);
      const int v311 = (int)((u32)v310 + (u32)v306);
      b1[v311] = v308;
    }
  }
}
