// attention.16.16x16
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
[[max_total_threads_per_threadgroup(64)]] kernel void attention(
    constant int* u [[buffer(0)]],
    device const float* b0 [[buffer(1)]] /* x0 */,
    device const float* b1 [[buffer(2)]] /* x1 */,
    device const float* b2 [[buffer(3)]] /* x2 */,
    device float* b3 [[buffer(4)]] /* y0 */,
    uint local [[thread_index_in_threadgroup]],
    uint3 group [[threadgroup_position_in_grid]],
    uint3 groups [[threadgroups_per_grid]]) {
  threadgroup float s0[272];
  threadgroup float s1[544];
  threadgroup float s2[640];
  threadgroup float s3[128];
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
  float m19;
  const int v0 = u[0];
  const int v1 = u[1];
  const int v2 = u[2];
  const int v3 = u[3];
  const int v4 = u[5];
  const int v5 = u[6];
  const int v6 = u[7];
  const int v7 = u[9];
  const int v8 = u[10];
  const int v9 = u[11];
  const int v10 = u[13];
  const int v11 = u[14];
  const int v12 = u[15];
  const int v13 = u[17];
  const int v14 = u[18];
  const int v16 = (int)(group.y * groups.x + group.x);
  const int v17 = (int)local;
  const int v20 = (int)((u32)v1 + (u32)(int)15u);
  const int v22 = (v20 >> 4u);
  const int v23 = (int)((u32)v0 * (u32)v22);
  const bool v24 = (v16 < v23);
  if (v24) {
    const int v66 = (v16 / v22);
    const int v67 = (int)((u32)v66 * (u32)v22);
    const int v68 = (int)((u32)v16 - (u32)v67);
    const int v69 = (v66 / v0);
    const int v70 = (int)((u32)v69 * (u32)v0);
    const int v71 = (int)((u32)v66 - (u32)v70);
    const int v72 = (int)((u32)v68 << 4u);
    const int v73 = (v17 >> 3u);
    const int v74 = (v17 & (int)7u);
    for (int v75 = v17; v75 < (int)512u; v75 += 64) {
      const int v76 = (v75 >> 5u);
      const int v77 = (v75 & (int)31u);
      const bool v78 = (v77 < (int)16u);
      if (v78) {
        const int v79 = (int)((u32)v72 + (u32)v76);
        const bool v80 = (v79 < v1);
        const bool v81 = (v80 & v78);
        m0 = 0.0f;
        if (v81) {
          const int v82 = (int)((u32)v71 * (u32)v4);
          const int v83 = (int)((u32)v3 + (u32)v82);
          const int v84 = (int)((u32)v79 * (u32)v5);
          const int v85 = (int)((u32)v83 + (u32)v84);
          const int v86 = (int)((u32)v85 + (u32)v77);
          const float v87 = b0[v86];
          m0 = v87;
        }
        const float v88 = m0;
        const int v89 = (int)((u32)v76 * (u32)(int)17u);
        const int v90 = (int)((u32)v89 + (u32)v77);
        s0[v90] = v88;
      }
    }
    m1 = (-3.4028234663852886e38f);
    m2 = (-3.4028234663852886e38f);
    m3 = 0.0f;
    m4 = 0.0f;
    m5 = 0.0f;
    m6 = 0.0f;
    m7 = 0.0f;
    m8 = 0.0f;
    const int v91 = (int)((u32)v2 - (u32)v1);
    const int v92 = (int)((u32)v72 + (u32)(int)16u);
    const int v93 = (v92 < v1 ? v92 : v1);
    const int v94 = (int)((u32)v93 + (u32)v91);
    for (int v95 = (int)0u; v95 < v94; v95 += 32) {
      for (int v96 = v17; v96 < (int)1024u; v96 += 64) {
        const int v97 = (v96 >> 5u);
        const int v98 = (v96 & (int)31u);
        const bool v99 = (v98 < (int)16u);
        if (v99) {
          const int v100 = (int)((u32)v95 + (u32)v97);
          const bool v101 = (v100 < v2);
          const bool v102 = (v101 & v99);
          m9 = 0.0f;
          if (v102) {
            const int v103 = (int)((u32)v71 * (u32)v7);
            const int v104 = (int)((u32)v6 + (u32)v103);
            const int v105 = (int)((u32)v100 * (u32)v8);
            const int v106 = (int)((u32)v104 + (u32)v105);
            const int v107 = (int)((u32)v106 + (u32)v98);
            const float v108 = b1[v107];
            m9 = v108;
          }
          const float v109 = m9;
          const int v110 = (int)((u32)v97 * (u32)(int)17u);
          const int v111 = (int)((u32)v110 + (u32)v98);
          s1[v111] = v109;
        }
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      m10 = 0.0f;
      m11 = 0.0f;
      m12 = 0.0f;
      m13 = 0.0f;
      m14 = 0.0f;
      m15 = 0.0f;
      m16 = 0.0f;
      m17 = 0.0f;
      const int v112 = (int)((u32)v73 * (u32)(int)17u);
      const int v113 = (int)((u32)v74 * (u32)(int)17u);
      for (int v114 = (int)0u; v114 < (int)16u; v114 += 1) {
        const int v115 = (int)((u32)v112 + (u32)v114);
        const int v116 = (int)((u32)v115 + (u32)(int)136u);
        const float v117 = s0[v115];
        const float v118 = s0[v116];
        const int v119 = (int)((u32)v113 + (u32)v114);
        const int v120 = (int)((u32)v119 + (u32)(int)136u);
        const int v121 = (int)((u32)v119 + (u32)(int)272u);
        const int v122 = (int)((u32)v119 + (u32)(int)408u);
        const float v123 = s1[v119];
        const float v124 = s1[v120];
        const float v125 = s1[v121];
        const float v126 = s1[v122];
        const float v127 = m10;
        const float v128 = fma(v117, v123, v127);
        m10 = v128;
        const float v129 = m11;
        const float v130 = fma(v117, v124, v129);
        m11 = v130;
        const float v131 = m12;
        const float v132 = fma(v117, v125, v131);
        m12 = v132;
        const float v133 = m13;
        const float v134 = fma(v117, v126, v133);
        m13 = v134;
        const float v135 = m14;
        const float v136 = fma(v118, v123, v135);
        m14 = v136;
        const float v137 = m15;
        const float v138 = fma(v118, v124, v137);
        m15 = v138;
        const float v139 = m16;
        const float v140 = fma(v118, v125, v139);
        m16 = v140;
        const float v141 = m17;
        const float v142 = fma(v118, v126, v141);
        m17 = v142;
      }
      const float v143 = m10;
      const int v144 = (int)((u32)v73 * (u32)(int)40u);
      const int v145 = (int)((u32)v144 + (u32)v74);
      const float v146 = (v143 * 0.25f);
      s2[v145] = v146;
      const float v147 = m11;
      const int v148 = (int)((u32)v145 + (u32)(int)8u);
      const float v149 = (v147 * 0.25f);
      s2[v148] = v149;
      const float v150 = m12;
      const int v151 = (int)((u32)v145 + (u32)(int)16u);
      const float v152 = (v150 * 0.25f);
      s2[v151] = v152;
      const float v153 = m13;
      const int v154 = (int)((u32)v145 + (u32)(int)24u);
      const float v155 = (v153 * 0.25f);
      s2[v154] = v155;
      const float v156 = m14;
      const int v157 = (int)((u32)v73 + (u32)(int)8u);
      const int v158 = (int)((u32)v157 * (u32)(int)40u);
      const int v159 = (int)((u32)v158 + (u32)v74);
      const float v160 = (v156 * 0.25f);
      s2[v159] = v160;
      const float v161 = m15;
      const int v162 = (int)((u32)v159 + (u32)(int)8u);
      const float v163 = (v161 * 0.25f);
      s2[v162] = v163;
      const float v164 = m16;
      const int v165 = (int)((u32)v159 + (u32)(int)16u);
      const float v166 = (v164 * 0.25f);
      s2[v165] = v166;
      const float v167 = m17;
      const int v168 = (int)((u32)v159 + (u32)(int)24u);
      const float v169 = (v167 * 0.25f);
      s2[v168] = v169;
      for (int v170 = (int)0u; v170 < (int)2u; v170 += 1) {
        const int v171 = (int)((u32)v170 << 3u);
        const int v172 = (int)((u32)v73 + (u32)v171);
        const int v173 = (int)((u32)v72 + (u32)v172);
        m18 = (-3.4028234663852886e38f);
        for (int v174 = (int)0u; v174 < (int)4u; v174 += 1) {
          const int v175 = (int)((u32)v174 << 3u);
          const int v176 = (int)((u32)v74 + (u32)v175);
          const int v177 = (int)((u32)v95 + (u32)v176);
          const int v178 = (int)((u32)v172 * (u32)(int)40u);
          const int v179 = (int)((u32)v178 + (u32)v74);
          const int v180 = (int)((u32)v179 + (u32)v175);
          const float v181 = s2[v180];
          const bool v182 = (v177 < v2);
          const float v183 = (v182 ? v181 : as_type<float>(0xff800000u));
          const int v184 = (int)((u32)v173 + (u32)v91);
          const bool v185 = (v177 <= v184);
          const float v186 = (v185 ? v183 : as_type<float>(0xff800000u));
          s2[v180] = v186;
          const float v187 = m18;
          const bool v188 = (v186 > v187);
          const float v189 = (v188 ? v186 : v187);
          m18 = v189;
        }
        const float v190 = m18;
        const int v191 = (int)((u32)v172 << 3u);
        const int v192 = (int)((u32)v191 + (u32)v74);
        s3[v192] = v190;
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (int v193 = v17; v193 < (int)1024u; v193 += 64) {
        const int v194 = (v193 >> 5u);
        const int v195 = (v193 & (int)31u);
        const bool v196 = (v195 < (int)16u);
        if (v196) {
          const int v197 = (int)((u32)v95 + (u32)v194);
          const bool v198 = (v197 < v2);
          const bool v199 = (v198 & v196);
          m19 = 0.0f;
          if (v199) {
            const int v200 = (int)((u32)v71 * (u32)v10);
            const int v201 = (int)((u32)v9 + (u32)v200);
            const int v202 = (int)((u32)v197 * (u32)v11);
            const int v203 = (int)((u32)v201 + (u32)v202);
            const int v204 = (int)((u32)v203 + (u32)v195);
            const float v205 = b2[v204];
            m19 = v205;
          }
          const float v206 = m19;
          const int v207 = (int)((u32)v194 << 4u);
          const int v208 = (int)((u32)v207 + (u32)v195);
          s1[v208] = v206;
        }
      }
      const float v209 = m1;
      const int v210 = (int)((u32)v73 << 3u);
      const float v211 = s3[v210];
      const bool v212 = (v211 > v209);
      const float v213 = (v212 ? v211 : v209);
      const int v214 = (int)((u32)v210 + (u32)(int)1u);
      const float v215 = s3[v214];
      const bool v216 = (v215 > v213);
      const float v217 = (v216 ? v215 : v213);
      const int v218 = (int)((u32)v210 + (u32)(int)2u);
      const float v219 = s3[v218];
      const bool v220 = (v219 > v217);
      const float v221 = (v220 ? v219 : v217);
      const int v222 = (int)((u32)v210 + (u32)(int)3u);
      const float v223 = s3[v222];
      const bool v224 = (v223 > v221);
      const float v225 = (v224 ? v223 : v221);
      const int v226 = (int)((u32)v210 + (u32)(int)4u);
      const float v227 = s3[v226];
      const bool v228 = (v227 > v225);
      const float v229 = (v228 ? v227 : v225);
      const int v230 = (int)((u32)v210 + (u32)(int)5u);
      const float v231 = s3[v230];
      const bool v232 = (v231 > v229);
      const float v233 = (v232 ? v231 : v229);
      const int v234 = (int)((u32)v210 + (u32)(int)6u);
      const float v235 = s3[v234];
      const bool v236 = (v235 > v233);
      const float v237 = (v236 ? v235 : v233);
      const int v238 = (int)((u32)v210 + (u32)(int)7u);
      const float v239 = s3[v238];
      const bool v240 = (v239 > v237);
      const float v241 = (v240 ? v239 : v237);
      const float v242 = (v209 - v241);
      const u32 v243 = as_type<u32>(v242);
      const u32 v244 = (v243 & 2147483647u);
      const bool v245 = (v244 > 2139095040u);
      const float v246 = (v245 ? 0.0f : v242);
      const bool v247 = (90.0f < v246);
      const float v248 = (v247 ? 90.0f : v246);
      const bool v249 = (v248 < (-105.0f));
      const float v250 = (v249 ? (-105.0f) : v248);
      const float v251 = (v250 * 1.442695f);
      const float v252 = rint(v251);
      const float v253 = (v252 * 0.69314575f);
      const float v254 = (v250 - v253);
      const float v255 = (v252 * 1.4286068e-6f);
      const float v256 = (v254 - v255);
      const float v257 = (0.0013780594f * v256);
      const float v258 = (v257 + 0.0083731245f);
      const float v259 = (v258 * v256);
      const float v260 = (v259 + 0.041669536f);
      const float v261 = (v260 * v256);
      const float v262 = (v261 + 0.16666472f);
      const float v263 = (v262 * v256);
      const float v264 = (v263 + 0.49999985f);
      const float v265 = (v264 * v256);
      const float v266 = (v265 + 1.0f);
      const float v267 = (v266 * v256);
      const float v268 = (v267 + 1.0f);
      const int v269 = to_int(v252);
      const int v270 = (v269 >> 1u);
      const int v271 = (int)((u32)v270 + (u32)(int)127u);
      const int v272 = (int)((u32)v271 << 23u);
      const float v273 = as_type<float>(v272);
      const float v274 = (v268 * v273);
      const int v275 = (int)((u32)v269 - (u32)v270);
      const int v276 = (int)((u32)v275 + (u32)(int)127u);
      const int v277 = (int)((u32)v276 << 23u);
      const float v278 = as_type<float>(v277);
      const float v279 = (v274 * v278);
      const float v280 = (v245 ? v242 : v279);
      m1 = v241;
      const float v281 = m5;
      const float v282 = (v281 * v280);
      m5 = v282;
      const float v283 = m6;
      const float v284 = (v283 * v280);
      m6 = v284;
      const float v285 = m3;
      const float v286 = (v285 * v280);
      m3 = v286;
      for (int v287 = (int)0u; v287 < (int)4u; v287 += 1) {
        const int v288 = (int)((u32)v287 << 3u);
        const int v289 = (int)((u32)v145 + (u32)v288);
        const float v290 = s2[v289];
        const float v291 = (v290 - v241);
        const u32 v292 = as_type<u32>(v291);
        const u32 v293 = (v292 & 2147483647u);
        const bool v294 = (v293 > 2139095040u);
        const float v295 = (v294 ? 0.0f : v291);
        const bool v296 = (90.0f < v295);
        const float v297 = (v296 ? 90.0f : v295);
        const bool v298 = (v297 < (-105.0f));
        const float v299 = (v298 ? (-105.0f) : v297);
        const float v300 = (v299 * 1.442695f);
        const float v301 = rint(v300);
        const float v302 = (v301 * 0.69314575f);
        const float v303 = (v299 - v302);
        const float v304 = (v301 * 1.4286068e-6f);
        const float v305 = (v303 - v304);
        const float v306 = (0.0013780594f * v305);
        const float v307 = (v306 + 0.0083731245f);
        const float v308 = (v307 * v305);
        const float v309 = (v308 + 0.041669536f);
        const float v310 = (v309 * v305);
        const float v311 = (v310 + 0.16666472f);
        const float v312 = (v311 * v305);
        const float v313 = (v312 + 0.49999985f);
        const float v314 = (v313 * v305);
        const float v315 = (v314 + 1.0f);
        const float v316 = (v315 * v305);
        const float v317 = (v316 + 1.0f);
        const int v318 = to_int(v301);
        const int v319 = (v318 >> 1u);
        const int v320 = (int)((u32)v319 + (u32)(int)127u);
        const int v321 = (int)((u32)v320 << 23u);
        const float v322 = as_type<float>(v321);
        const float v323 = (v317 * v322);
        const int v324 = (int)((u32)v318 - (u32)v319);
        const int v325 = (int)((u32)v324 + (u32)(int)127u);
        const int v326 = (int)((u32)v325 << 23u);
        const float v327 = as_type<float>(v326);
        const float v328 = (v323 * v327);
        const float v329 = (v294 ? v291 : v328);
        s2[v289] = v329;
        const float v330 = m3;
        const float v331 = (v330 + v329);
        m3 = v331;
      }
      const float v332 = m2;
      const int v333 = (int)((u32)v157 << 3u);
      const float v334 = s3[v333];
      const bool v335 = (v334 > v332);
      const float v336 = (v335 ? v334 : v332);
      const int v337 = (int)((u32)v333 + (u32)(int)1u);
      const float v338 = s3[v337];
      const bool v339 = (v338 > v336);
      const float v340 = (v339 ? v338 : v336);
      const int v341 = (int)((u32)v333 + (u32)(int)2u);
      const float v342 = s3[v341];
      const bool v343 = (v342 > v340);
      const float v344 = (v343 ? v342 : v340);
      const int v345 = (int)((u32)v333 + (u32)(int)3u);
      const float v346 = s3[v345];
      const bool v347 = (v346 > v344);
      const float v348 = (v347 ? v346 : v344);
      const int v349 = (int)((u32)v333 + (u32)(int)4u);
      const float v350 = s3[v349];
      const bool v351 = (v350 > v348);
      const float v352 = (v351 ? v350 : v348);
      const int v353 = (int)((u32)v333 + (u32)(int)5u);
      const float v354 = s3[v353];
      const bool v355 = (v354 > v352);
      const float v356 = (v355 ? v354 : v352);
      const int v357 = (int)((u32)v333 + (u32)(int)6u);
      const float v358 = s3[v357];
      const bool v359 = (v358 > v356);
      const float v360 = (v359 ? v358 : v356);
      const int v361 = (int)((u32)v333 + (u32)(int)7u);
      const float v362 = s3[v361];
      const bool v363 = (v362 > v360);
      const float v364 = (v363 ? v362 : v360);
      const float v365 = (v332 - v364);
      const u32 v366 = as_type<u32>(v365);
      const u32 v367 = (v366 & 2147483647u);
      const bool v368 = (v367 > 2139095040u);
      const float v369 = (v368 ? 0.0f : v365);
      const bool v370 = (90.0f < v369);
      const float v371 = (v370 ? 90.0f : v369);
      const bool v372 = (v371 < (-105.0f));
      const float v373 = (v372 ? (-105.0f) : v371);
      const float v374 = (v373 * 1.442695f);
      const float v375 = rint(v374);
      const float v376 = (v375 * 0.69314575f);
      const float v377 = (v373 - v376);
      const float v378 = (v375 * 1.4286068e-6f);
      const float v379 = (v377 - v378);
      const float v380 = (0.0013780594f * v379);
      const float v381 = (v380 + 0.0083731245f);
      const float v382 = (v381 * v379);
      const float v383 = (v382 + 0.041669536f);
      const float v384 = (v383 * v379);
      const float v385 = (v384 + 0.16666472f);
      const float v386 = (v385 * v379);
      const float v387 = (v386 + 0.49999985f);
      const float v388 = (v387 * v379);
      const float v389 = (v388 + 1.0f);
      const float v390 = (v389 * v379);
      const float v391 = (v390 + 1.0f);
      const int v392 = to_int(v375);
      const int v393 = (v392 >> 1u);
      const int v394 = (int)((u32)v393 + (u32)(int)127u);
      const int v395 = (int)((u32)v394 << 23u);
      const float v396 = as_type<float>(v395);
      const float v397 = (v391 * v396);
      const int v398 = (int)((u32)v392 - (u32)v393);
      const int v399 = (int)((u32)v398 + (u32)(int)127u);
      const int v400 = (int)((u32)v399 << 23u);
      const float v401 = as_type<float>(v400);
      const float v402 = (v397 * v401);
      const float v403 = (v368 ? v365 : v402);
      m2 = v364;
      const float v404 = m7;
      const float v405 = (v404 * v403);
      m7 = v405;
      const float v406 = m8;
      const float v407 = (v406 * v403);
      m8 = v407;
      const float v408 = m4;
      const float v409 = (v408 * v403);
      m4 = v409;
      for (int v410 = (int)0u; v410 < (int)4u; v410 += 1) {
        const int v411 = (int)((u32)v410 << 3u);
        const int v412 = (int)((u32)v159 + (u32)v411);
        const float v413 = s2[v412];
        const float v414 = (v413 - v364);
        const u32 v415 = as_type<u32>(v414);
        const u32 v416 = (v415 & 2147483647u);
        const bool v417 = (v416 > 2139095040u);
        const float v418 = (v417 ? 0.0f : v414);
        const bool v419 = (90.0f < v418);
        const float v420 = (v419 ? 90.0f : v418);
        const bool v421 = (v420 < (-105.0f));
        const float v422 = (v421 ? (-105.0f) : v420);
        const float v423 = (v422 * 1.442695f);
        const float v424 = rint(v423);
        const float v425 = (v424 * 0.69314575f);
        const float v426 = (v422 - v425);
        const float v427 = (v424 * 1.4286068e-6f);
        const float v428 = (v426 - v427);
        const float v429 = (0.0013780594f * v428);
        const float v430 = (v429 + 0.0083731245f);
        const float v431 = (v430 * v428);
        const float v432 = (v431 + 0.041669536f);
        const float v433 = (v432 * v428);
        const float v434 = (v433 + 0.16666472f);
        const float v435 = (v434 * v428);
        const float v436 = (v435 + 0.49999985f);
        const float v437 = (v436 * v428);
        const float v438 = (v437 + 1.0f);
        const float v439 = (v438 * v428);
        const float v440 = (v439 + 1.0f);
        const int v441 = to_int(v424);
        const int v442 = (v441 >> 1u);
        const int v443 = (int)((u32)v442 + (u32)(int)127u);
        const int v444 = (int)((u32)v443 << 23u);
        const float v445 = as_type<float>(v444);
        const float v446 = (v440 * v445);
        const int v447 = (int)((u32)v441 - (u32)v442);
        const int v448 = (int)((u32)v447 + (u32)(int)127u);
        const int v449 = (int)((u32)v448 << 23u);
        const float v450 = as_type<float>(v449);
        const float v451 = (v446 * v450);
        const float v452 = (v417 ? v414 : v451);
        s2[v412] = v452;
        const float v453 = m4;
        const float v454 = (v453 + v452);
        m4 = v454;
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (int v455 = (int)0u; v455 < (int)32u; v455 += 1) {
        const int v456 = (int)((u32)v144 + (u32)v455);
        const int v457 = (int)((u32)v456 + (u32)(int)320u);
        const float v458 = s2[v456];
        const float v459 = s2[v457];
        const int v460 = (int)((u32)v455 << 4u);
        const int v461 = (int)((u32)v460 + (u32)v74);
        const int v462 = (int)((u32)v461 + (u32)(int)8u);
        const float v463 = s1[v461];
        const float v464 = s1[v462];
        const float v465 = m5;
        const float v466 = fma(v458, v463, v465);
        m5 = v466;
        const float v467 = m6;
        const float v468 = fma(v458, v464, v467);
        m6 = v468;
        const float v469 = m7;
        const float v470 = fma(v459, v463, v469);
        m7 = v470;
        const float v471 = m8;
        const float v472 = fma(v459, v464, v471);
        m8 = v472;
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    const float v473 = m3;
    const int v474 = (int)((u32)v73 << 3u);
    const int v475 = (int)((u32)v474 + (u32)v74);
    s3[v475] = v473;
    const float v476 = m4;
    const int v477 = (int)((u32)v73 + (u32)(int)8u);
    const int v478 = (int)((u32)v477 << 3u);
    const int v479 = (int)((u32)v478 + (u32)v74);
    s3[v479] = v476;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float v480 = s3[v474];
    const float v481 = (0.0f + v480);
    const int v482 = (int)((u32)v474 + (u32)(int)1u);
    const float v483 = s3[v482];
    const float v484 = (v481 + v483);
    const int v485 = (int)((u32)v474 + (u32)(int)2u);
    const float v486 = s3[v485];
    const float v487 = (v484 + v486);
    const int v488 = (int)((u32)v474 + (u32)(int)3u);
    const float v489 = s3[v488];
    const float v490 = (v487 + v489);
    const int v491 = (int)((u32)v474 + (u32)(int)4u);
    const float v492 = s3[v491];
    const float v493 = (v490 + v492);
    const int v494 = (int)((u32)v474 + (u32)(int)5u);
    const float v495 = s3[v494];
    const float v496 = (v493 + v495);
    const int v497 = (int)((u32)v474 + (u32)(int)6u);
    const float v498 = s3[v497];
    const float v499 = (v496 + v498);
    const int v500 = (int)((u32)v474 + (u32)(int)7u);
    const float v501 = s3[v500];
    const float v502 = (v499 + v501);
    const float v503 = (1.0f / v502);
    const bool v504 = (v502 == 0.0f);
    const float v505 = (v504 ? 0.0f : v503);
    const int v506 = (int)((u32)v72 + (u32)v73);
    const bool v507 = (v506 < v1);
    const int v508 = (int)((u32)v74 + (u32)(int)8u);
    if (v507) {
      const float v509 = m5;
      const float v510 = (v509 * v505);
      const int v511 = (int)((u32)v71 * (u32)v13);
      const int v512 = (int)((u32)v12 + (u32)v511);
      const int v513 = (int)((u32)v506 * (u32)v14);
      const int v514 = (int)((u32)v512 + (u32)v513);
      const int v515 = (int)((u32)v514 + (u32)v74);
      b3[v515] = v510;
      const float v516 = m6;
      const float v517 = (v516 * v505);
      const int v518 = (int)((u32)v514 + (u32)v508);
      b3[v518] = v517;
    }
    const float v519 = s3[v478];
    const float v520 = (0.0f + v519);
    const int v521 = (int)((u32)v478 + (u32)(int)1u);
    const float v522 = s3[v521];
    const float v523 = (v520 + v522);
    const int v524 = (int)((u32)v478 + (u32)(int)2u);
    const float v525 = s3[v524];
    const float v526 = (v523 + v525);
    const int v527 = (int)((u32)v478 + (u32)(int)3u);
    const float v528 = s3[v527];
    const float v529 = (v526 + v528);
    const int v530 = (int)((u32)v478 + (u32)(int)4u);
    const float v531 = s3[v530];
    const float v532 = (v529 + v531);
    const int v533 = (int)((u32)v478 + (u32)(int)5u);
    const float v534 = s3[v533];
    const float v535 = (v532 + v534);
    const int v536 = (int)((u32)v478 + (u32)(int)6u);
    const float v537 = s3[v536];
    const float v538 = (v535 + v537);
    const int v539 = (int)((u32)v478 + (u32)(int)7u);
    const float v540 = s3[v539];
    const float v541 = (v538 + v540);
    const float v542 = (1.0f / v541);
    const bool v543 = (v541 == 0.0f);
    const float v544 = (v543 ? 0.0f : v542);
    const int v545 = (int)((u32)v72 + (u32)v477);
    const bool v546 = (v545 < v1);
    if (v546) {
      const float v547 = m7;
      const float v548 = (v547 * v544);
      const int v549 = (int)((u32)v71 * (u32)v13);
      const int v550 = (int)((u32)v12 + (u32)v549);
      const int v551 = (int)((u32)v545 * (u32)v14);
      const int v552 = (int)((u32)v550 + (u32)v551);
      const int v553 = (int)((u32)v552 + (u32)v74);
      b3[v553] = v548;
      const float v554 = m8;
      const float v555 = (v554 * v544);
      const int v556 = (int)((u32)v552 + (u32)v508);
      b3[v556] = v555;
    }
  }
}
