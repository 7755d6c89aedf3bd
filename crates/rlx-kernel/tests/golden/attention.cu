// attention.16.16x16
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
struct Uniforms { int of[20]; __device__ __forceinline__ int operator[](int i) const { return of[i]; } };
extern "C" __global__ void __launch_bounds__(64) attention(const Uniforms u,
    const float* __restrict__ b0 /* x0 */,
    const float* __restrict__ b1 /* x1 */,
    const float* __restrict__ b2 /* x2 */,
    float* __restrict__ b3 /* y0 */) {
  __shared__ float s0[272];
  __shared__ float s1[544];
  __shared__ float s2[640];
  __shared__ float s3[128];
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
  const int v16 = (int)(blockIdx.y * gridDim.x + blockIdx.x);
  const int v17 = (int)threadIdx.x;
  const int v20 = (int)((u32)v1 + (u32)(int)15u);
  const int v22 = (v20 >> 4u);
  const int v23 = (int)((u32)v0 * (u32)v22);
  const bool v24 = (v16 < v23);
  if (v24) {
    const int v51 = (v16 / v22);
    const int v52 = (int)((u32)v51 * (u32)v22);
    const int v53 = (int)((u32)v16 - (u32)v52);
    const int v54 = (v51 / v0);
    const int v55 = (int)((u32)v54 * (u32)v0);
    const int v56 = (int)((u32)v51 - (u32)v55);
    const int v57 = (int)((u32)v53 << 4u);
    const int v58 = (v17 >> 3u);
    const int v59 = (v17 & (int)7u);
    for (int v60 = v17; v60 < (int)512u; v60 += 64) {
      const int v61 = (v60 >> 5u);
      const int v62 = (v60 & (int)31u);
      const bool v63 = (v62 < (int)16u);
      if (v63) {
        const int v64 = (int)((u32)v57 + (u32)v61);
        const bool v65 = (v64 < v1);
        const bool v66 = (v65 & v63);
        m0 = 0.0f;
        if (v66) {
          const int v67 = (int)((u32)v56 * (u32)v4);
          const int v68 = (int)((u32)v3 + (u32)v67);
          const int v69 = (int)((u32)v64 * (u32)v5);
          const int v70 = (int)((u32)v68 + (u32)v69);
          const int v71 = (int)((u32)v70 + (u32)v62);
          const float v72 = b0[v71];
          m0 = v72;
        }
        const float v73 = m0;
        const int v74 = (int)((u32)v61 * (u32)(int)17u);
        const int v75 = (int)((u32)v74 + (u32)v62);
        s0[v75] = v73;
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
    const int v76 = (int)((u32)v2 - (u32)v1);
    const int v77 = (int)((u32)v57 + (u32)(int)16u);
    const int v78 = (v77 < v1 ? v77 : v1);
    const int v79 = (int)((u32)v78 + (u32)v76);
    for (int v80 = (int)0u; v80 < v79; v80 += 32) {
      for (int v81 = v17; v81 < (int)1024u; v81 += 64) {
        const int v82 = (v81 >> 5u);
        const int v83 = (v81 & (int)31u);
        const bool v84 = (v83 < (int)16u);
        if (v84) {
          const int v85 = (int)((u32)v80 + (u32)v82);
          const bool v86 = (v85 < v2);
          const bool v87 = (v86 & v84);
          m9 = 0.0f;
          if (v87) {
            const int v88 = (int)((u32)v56 * (u32)v7);
            const int v89 = (int)((u32)v6 + (u32)v88);
            const int v90 = (int)((u32)v85 * (u32)v8);
            const int v91 = (int)((u32)v89 + (u32)v90);
            const int v92 = (int)((u32)v91 + (u32)v83);
            const float v93 = b1[v92];
            m9 = v93;
          }
          const float v94 = m9;
          const int v95 = (int)((u32)v82 * (u32)(int)17u);
          const int v96 = (int)((u32)v95 + (u32)v83);
          s1[v96] = v94;
        }
      }
      __syncthreads();
      m10 = 0.0f;
      m11 = 0.0f;
      m12 = 0.0f;
      m13 = 0.0f;
      m14 = 0.0f;
      m15 = 0.0f;
      m16 = 0.0f;
      m17 = 0.0f;
      const int v97 = (int)((u32)v58 * (u32)(int)17u);
      const int v98 = (int)((u32)v59 * (u32)(int)17u);
      for (int v99 = (int)0u; v99 < (int)16u; v99 += 1) {
        const int v100 = (int)((u32)v97 + (u32)v99);
        const int v101 = (int)((u32)v100 + (u32)(int)136u);
        const float v102 = s0[v100];
        const float v103 = s0[v101];
        const int v104 = (int)((u32)v98 + (u32)v99);
        const int v105 = (int)((u32)v104 + (u32)(int)136u);
        const int v106 = (int)((u32)v104 + (u32)(int)272u);
        const int v107 = (int)((u32)v104 + (u32)(int)408u);
        const float v108 = s1[v104];
        const float v109 = s1[v105];
        const float v110 = s1[v106];
        const float v111 = s1[v107];
        const float v112 = m10;
        const float v113 = fmaf(v102, v108, v112);
        m10 = v113;
        const float v114 = m11;
        const float v115 = fmaf(v102, v109, v114);
        m11 = v115;
        const float v116 = m12;
        const float v117 = fmaf(v102, v110, v116);
        m12 = v117;
        const float v118 = m13;
        const float v119 = fmaf(v102, v111, v118);
        m13 = v119;
        const float v120 = m14;
        const float v121 = fmaf(v103, v108, v120);
        m14 = v121;
        const float v122 = m15;
        const float v123 = fmaf(v103, v109, v122);
        m15 = v123;
        const float v124 = m16;
        const float v125 = fmaf(v103, v110, v124);
        m16 = v125;
        const float v126 = m17;
        const float v127 = fmaf(v103, v111, v126);
        m17 = v127;
      }
      const float v128 = m10;
      const int v129 = (int)((u32)v58 * (u32)(int)40u);
      const int v130 = (int)((u32)v129 + (u32)v59);
      const float v131 = (v128 * 0.25f);
      s2[v130] = v131;
      const float v132 = m11;
      const int v133 = (int)((u32)v130 + (u32)(int)8u);
      const float v134 = (v132 * 0.25f);
      s2[v133] = v134;
      const float v135 = m12;
      const int v136 = (int)((u32)v130 + (u32)(int)16u);
      const float v137 = (v135 * 0.25f);
      s2[v136] = v137;
      const float v138 = m13;
      const int v139 = (int)((u32)v130 + (u32)(int)24u);
      const float v140 = (v138 * 0.25f);
      s2[v139] = v140;
      const float v141 = m14;
      const int v142 = (int)((u32)v58 + (u32)(int)8u);
      const int v143 = (int)((u32)v142 * (u32)(int)40u);
      const int v144 = (int)((u32)v143 + (u32)v59);
      const float v145 = (v141 * 0.25f);
      s2[v144] = v145;
      const float v146 = m15;
      const int v147 = (int)((u32)v144 + (u32)(int)8u);
      const float v148 = (v146 * 0.25f);
      s2[v147] = v148;
      const float v149 = m16;
      const int v150 = (int)((u32)v144 + (u32)(int)16u);
      const float v151 = (v149 * 0.25f);
      s2[v150] = v151;
      const float v152 = m17;
      const int v153 = (int)((u32)v144 + (u32)(int)24u);
      const float v154 = (v152 * 0.25f);
      s2[v153] = v154;
      for (int v155 = (int)0u; v155 < (int)2u; v155 += 1) {
        const int v156 = (int)((u32)v155 << 3u);
        const int v157 = (int)((u32)v58 + (u32)v156);
        const int v158 = (int)((u32)v57 + (u32)v157);
        m18 = (-3.4028234663852886e38f);
        for (int v159 = (int)0u; v159 < (int)4u; v159 += 1) {
          const int v160 = (int)((u32)v159 << 3u);
          const int v161 = (int)((u32)v59 + (u32)v160);
          const int v162 = (int)((u32)v80 + (u32)v161);
          const int v163 = (int)((u32)v157 * (u32)(int)40u);
          const int v164 = (int)((u32)v163 + (u32)v59);
          const int v165 = (int)((u32)v164 + (u32)v160);
          const float v166 = s2[v165];
          const bool v167 = (v162 < v2);
          const float v168 = (v167 ? v166 : __uint_as_float(0xff800000u));
          const int v169 = (int)((u32)v158 + (u32)v76);
          const bool v170 = (v162 <= v169);
          const float v171 = (v170 ? v168 : __uint_as_float(0xff800000u));
          s2[v165] = v171;
          const float v172 = m18;
          const bool v173 = (v171 > v172);
          const float v174 = (v173 ? v171 : v172);
          m18 = v174;
        }
        const float v175 = m18;
        const int v176 = (int)((u32)v157 << 3u);
        const int v177 = (int)((u32)v176 + (u32)v59);
        s3[v177] = v175;
      }
      __syncthreads();
      for (int v178 = v17; v178 < (int)1024u; v178 += 64) {
        const int v179 = (v178 >> 5u);
        const int v180 = (v178 & (int)31u);
        const bool v181 = (v180 < (int)16u);
        if (v181) {
          const int v182 = (int)((u32)v80 + (u32)v179);
          const bool v183 = (v182 < v2);
          const bool v184 = (v183 & v181);
          m19 = 0.0f;
          if (v184) {
            const int v185 = (int)((u32)v56 * (u32)v10);
            const int v186 = (int)((u32)v9 + (u32)v185);
            const int v187 = (int)((u32)v182 * (u32)v11);
            const int v188 = (int)((u32)v186 + (u32)v187);
            const int v189 = (int)((u32)v188 + (u32)v180);
            const float v190 = b2[v189];
            m19 = v190;
          }
          const float v191 = m19;
          const int v192 = (int)((u32)v179 << 4u);
          const int v193 = (int)((u32)v192 + (u32)v180);
          s1[v193] = v191;
        }
      }
      const float v194 = m1;
      const int v195 = (int)((u32)v58 << 3u);
      const float v196 = s3[v195];
      const bool v197 = (v196 > v194);
      const float v198 = (v197 ? v196 : v194);
      const int v199 = (int)((u32)v195 + (u32)(int)1u);
      const float v200 = s3[v199];
      const bool v201 = (v200 > v198);
      const float v202 = (v201 ? v200 : v198);
      const int v203 = (int)((u32)v195 + (u32)(int)2u);
      const float v204 = s3[v203];
      const bool v205 = (v204 > v202);
      const float v206 = (v205 ? v204 : v202);
      const int v207 = (int)((u32)v195 + (u32)(int)3u);
      const float v208 = s3[v207];
      const bool v209 = (v208 > v206);
      const float v210 = (v209 ? v208 : v206);
      const int v211 = (int)((u32)v195 + (u32)(int)4u);
      const float v212 = s3[v211];
      const bool v213 = (v212 > v210);
      const float v214 = (v213 ? v212 : v210);
      const int v215 = (int)((u32)v195 + (u32)(int)5u);
      const float v216 = s3[v215];
      const bool v217 = (v216 > v214);
      const float v218 = (v217 ? v216 : v214);
      const int v219 = (int)((u32)v195 + (u32)(int)6u);
      const float v220 = s3[v219];
      const bool v221 = (v220 > v218);
      const float v222 = (v221 ? v220 : v218);
      const int v223 = (int)((u32)v195 + (u32)(int)7u);
      const float v224 = s3[v223];
      const bool v225 = (v224 > v222);
      const float v226 = (v225 ? v224 : v222);
      const float v227 = (v194 - v226);
      const float v228 = expf(v227);
      m1 = v226;
      const float v229 = m5;
      const float v230 = (v229 * v228);
      m5 = v230;
      const float v231 = m6;
      const float v232 = (v231 * v228);
      m6 = v232;
      const float v233 = m3;
      const float v234 = (v233 * v228);
      m3 = v234;
      for (int v235 = (int)0u; v235 < (int)4u; v235 += 1) {
        const int v236 = (int)((u32)v235 << 3u);
        const int v237 = (int)((u32)v130 + (u32)v236);
        const float v238 = s2[v237];
        const float v239 = (v238 - v226);
        const float v240 = expf(v239);
        s2[v237] = v240;
        const float v241 = m3;
        const float v242 = (v241 + v240);
        m3 = v242;
      }
      const float v243 = m2;
      const int v244 = (int)((u32)v142 << 3u);
      const float v245 = s3[v244];
      const bool v246 = (v245 > v243);
      const float v247 = (v246 ? v245 : v243);
      const int v248 = (int)((u32)v244 + (u32)(int)1u);
      const float v249 = s3[v248];
      const bool v250 = (v249 > v247);
      const float v251 = (v250 ? v249 : v247);
      const int v252 = (int)((u32)v244 + (u32)(int)2u);
      const float v253 = s3[v252];
      const bool v254 = (v253 > v251);
      const float v255 = (v254 ? v253 : v251);
      const int v256 = (int)((u32)v244 + (u32)(int)3u);
      const float v257 = s3[v256];
      const bool v258 = (v257 > v255);
      const float v259 = (v258 ? v257 : v255);
      const int v260 = (int)((u32)v244 + (u32)(int)4u);
      const float v261 = s3[v260];
      const bool v262 = (v261 > v259);
      const float v263 = (v262 ? v261 : v259);
      const int v264 = (int)((u32)v244 + (u32)(int)5u);
      const float v265 = s3[v264];
      const bool v266 = (v265 > v263);
      const float v267 = (v266 ? v265 : v263);
      const int v268 = (int)((u32)v244 + (u32)(int)6u);
      const float v269 = s3[v268];
      const bool v270 = (v269 > v267);
      const float v271 = (v270 ? v269 : v267);
      const int v272 = (int)((u32)v244 + (u32)(int)7u);
      const float v273 = s3[v272];
      const bool v274 = (v273 > v271);
      const float v275 = (v274 ? v273 : v271);
      const float v276 = (v243 - v275);
      const float v277 = expf(v276);
      m2 = v275;
      const float v278 = m7;
      const float v279 = (v278 * v277);
      m7 = v279;
      const float v280 = m8;
      const float v281 = (v280 * v277);
      m8 = v281;
      const float v282 = m4;
      const float v283 = (v282 * v277);
      m4 = v283;
      for (int v284 = (int)0u; v284 < (int)4u; v284 += 1) {
        const int v285 = (int)((u32)v284 << 3u);
        const int v286 = (int)((u32)v144 + (u32)v285);
        const float v287 = s2[v286];
        const float v288 = (v287 - v275);
        const float v289 = expf(v288);
        s2[v286] = v289;
        const float v290 = m4;
        const float v291 = (v290 + v289);
        m4 = v291;
      }
      __syncthreads();
      for (int v292 = (int)0u; v292 < (int)32u; v292 += 1) {
        const int v293 = (int)((u32)v129 + (u32)v292);
        const int v294 = (int)((u32)v293 + (u32)(int)320u);
        const float v295 = s2[v293];
        const float v296 = s2[v294];
        const int v297 = (int)((u32)v292 << 4u);
        const int v298 = (int)((u32)v297 + (u32)v59);
        const int v299 = (int)((u32)v298 + (u32)(int)8u);
        const float v300 = s1[v298];
        const float v301 = s1[v299];
        const float v302 = m5;
        const float v303 = fmaf(v295, v300, v302);
        m5 = v303;
        const float v304 = m6;
        const float v305 = fmaf(v295, v301, v304);
        m6 = v305;
        const float v306 = m7;
        const float v307 = fmaf(v296, v300, v306);
        m7 = v307;
        const float v308 = m8;
        const float v309 = fmaf(v296, v301, v308);
        m8 = v309;
      }
      __syncthreads();
    }
    const float v310 = m3;
    const int v311 = (int)((u32)v58 << 3u);
    const int v312 = (int)((u32)v311 + (u32)v59);
    s3[v312] = v310;
    const float v313 = m4;
    const int v314 = (int)((u32)v58 + (u32)(int)8u);
    const int v315 = (int)((u32)v314 << 3u);
    const int v316 = (int)((u32)v315 + (u32)v59);
    s3[v316] = v313;
    __syncthreads();
    const float v317 = s3[v311];
    const float v318 = (0.0f + v317);
    const int v319 = (int)((u32)v311 + (u32)(int)1u);
    const float v320 = s3[v319];
    const float v321 = (v318 + v320);
    const int v322 = (int)((u32)v311 + (u32)(int)2u);
    const float v323 = s3[v322];
    const float v324 = (v321 + v323);
    const int v325 = (int)((u32)v311 + (u32)(int)3u);
    const float v326 = s3[v325];
    const float v327 = (v324 + v326);
    const int v328 = (int)((u32)v311 + (u32)(int)4u);
    const float v329 = s3[v328];
    const float v330 = (v327 + v329);
    const int v331 = (int)((u32)v311 + (u32)(int)5u);
    const float v332 = s3[v331];
    const float v333 = (v330 + v332);
    const int v334 = (int)((u32)v311 + (u32)(int)6u);
    const float v335 = s3[v334];
    const float v336 = (v333 + v335);
    const int v337 = (int)((u32)v311 + (u32)(int)7u);
    const float v338 = s3[v337];
    const float v339 = (v336 + v338);
    const float v340 = (1.0f / v339);
    const bool v341 = (v339 == 0.0f);
    const float v342 = (v341 ? 0.0f : v340);
    const int v343 = (int)((u32)v57 + (u32)v58);
    const bool v344 = (v343 < v1);
    const int v345 = (int)((u32)v59 + (u32)(int)8u);
    if (v344) {
      const float v346 = m5;
      const float v347 = (v346 * v342);
      const int v348 = (int)((u32)v56 * (u32)v13);
      const int v349 = (int)((u32)v12 + (u32)v348);
      const int v350 = (int)((u32)v343 * (u32)v14);
      const int v351 = (int)((u32)v349 + (u32)v350);
      const int v352 = (int)((u32)v351 + (u32)v59);
      b3[v352] = v347;
      const float v353 = m6;
      const float v354 = (v353 * v342);
      const int v355 = (int)((u32)v351 + (u32)v345);
      b3[v355] = v354;
    }
    const float v356 = s3[v315];
    const float v357 = (0.0f + v356);
    const int v358 = (int)((u32)v315 + (u32)(int)1u);
    const float v359 = s3[v358];
    const float v360 = (v357 + v359);
    const int v361 = (int)((u32)v315 + (u32)(int)2u);
    const float v362 = s3[v361];
    const float v363 = (v360 + v362);
    const int v364 = (int)((u32)v315 + (u32)(int)3u);
    const float v365 = s3[v364];
    const float v366 = (v363 + v365);
    const int v367 = (int)((u32)v315 + (u32)(int)4u);
    const float v368 = s3[v367];
    const float v369 = (v366 + v368);
    const int v370 = (int)((u32)v315 + (u32)(int)5u);
    const float v371 = s3[v370];
    const float v372 = (v369 + v371);
    const int v373 = (int)((u32)v315 + (u32)(int)6u);
    const float v374 = s3[v373];
    const float v375 = (v372 + v374);
    const int v376 = (int)((u32)v315 + (u32)(int)7u);
    const float v377 = s3[v376];
    const float v378 = (v375 + v377);
    const float v379 = (1.0f / v378);
    const bool v380 = (v378 == 0.0f);
    const float v381 = (v380 ? 0.0f : v379);
    const int v382 = (int)((u32)v57 + (u32)v314);
    const bool v383 = (v382 < v1);
    if (v383) {
      const float v384 = m7;
      const float v385 = (v384 * v381);
      const int v386 = (int)((u32)v56 * (u32)v13);
      const int v387 = (int)((u32)v12 + (u32)v386);
      const int v388 = (int)((u32)v382 * (u32)v14);
      const int v389 = (int)((u32)v387 + (u32)v388);
      const int v390 = (int)((u32)v389 + (u32)v59);
      b3[v390] = v385;
      const float v391 = m8;
      const float v392 = (v391 * v381);
      const int v393 = (int)((u32)v389 + (u32)v345);
      b3[v393] = v392;
    }
  }
}
