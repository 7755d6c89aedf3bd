// matmul.MatMul+Relu
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64; typedef long long i64;
__device__ __forceinline__ float from_half(u16 h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
__device__ __forceinline__ u16 to_half(float f) { u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
__device__ __forceinline__ float from_brain(u16 h) { return __uint_as_float((u32)h << 16); }
__device__ __forceinline__ u16 to_brain(float f) {
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
    const int v38 = (v13 % v4);
    const int v39 = (v13 / v4);
    const int v40 = (v39 % v3);
    const int v41 = (int)((u32)v40 * (u32)(int)32u);
    const int v42 = (int)((u32)v38 << 5u);
    const int v43 = (v14 >> 3u);
    const int v44 = (v14 & (int)7u);
    const int v45 = (int)((u32)v43 << 2u);
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
    for (int v46 = (int)0u; v46 < v1; v46 += 16) {
      for (int v47 = v14; v47 < (int)512u; v47 += 64) {
        const int v48 = (v47 & (int)15u);
        const int v49 = (v47 >> 4u);
        const int v50 = (int)((u32)v41 + (u32)v49);
        const int v51 = (int)((u32)v46 + (u32)v48);
        const bool v52 = (v50 < v0);
        const bool v53 = (v51 < v1);
        const bool v54 = (v52 & v53);
        m16 = __uint_as_float(0x80000000u);
        if (v54) {
          const int v55 = (int)((u32)v50 * (u32)v6);
          const int v56 = (int)((u32)v5 + (u32)v55);
          const int v57 = (int)((u32)v56 + (u32)v51);
          const float v58 = b0[v57];
          m16 = v58;
        }
        const float v59 = m16;
        const int v60 = (int)((u32)v48 * (u32)(int)34u);
        const int v61 = (int)((u32)v60 + (u32)v49);
        s0[v61] = v59;
      }
      for (int v62 = v14; v62 < (int)512u; v62 += 64) {
        const int v63 = (v62 >> 5u);
        const int v64 = (v62 & (int)31u);
        const int v65 = (int)((u32)v46 + (u32)v63);
        const int v66 = (int)((u32)v42 + (u32)v64);
        const bool v67 = (v65 < v1);
        const bool v68 = (v66 < v2);
        const bool v69 = (v67 & v68);
        m17 = 0.0f;
        if (v69) {
          const int v70 = (int)((u32)v65 * (u32)v8);
          const int v71 = (int)((u32)v7 + (u32)v70);
          const int v72 = (int)((u32)v71 + (u32)v66);
          const float v73 = b1[v72];
          m17 = v73;
        }
        const float v74 = m17;
        const int v75 = (int)((u32)v62 + (u32)(int)544u);
        s0[v75] = v74;
      }
      __syncthreads();
      for (int v76 = (int)0u; v76 < (int)16u; v76 += 1) {
        const int v77 = (int)((u32)v76 * (u32)(int)34u);
        const int v78 = (int)((u32)v77 + (u32)v45);
        const float v79 = s0[v78];
        const int v80 = (int)((u32)v78 + (u32)(int)1u);
        const float v81 = s0[v80];
        const int v82 = (int)((u32)v78 + (u32)(int)2u);
        const float v83 = s0[v82];
        const int v84 = (int)((u32)v78 + (u32)(int)3u);
        const float v85 = s0[v84];
        const int v86 = (int)((u32)v76 << 5u);
        const int v87 = (int)((u32)v86 + (u32)(int)544u);
        const int v88 = (int)((u32)v87 + (u32)v44);
        const float v89 = s0[v88];
        const int v90 = (int)((u32)v88 + (u32)(int)8u);
        const float v91 = s0[v90];
        const int v92 = (int)((u32)v88 + (u32)(int)16u);
        const float v93 = s0[v92];
        const int v94 = (int)((u32)v88 + (u32)(int)24u);
        const float v95 = s0[v94];
        const float v96 = (v79 * v89);
        const float v97 = m0;
        const float v98 = (v97 + v96);
        m0 = v98;
        const float v99 = (v79 * v91);
        const float v100 = m1;
        const float v101 = (v100 + v99);
        m1 = v101;
        const float v102 = (v79 * v93);
        const float v103 = m2;
        const float v104 = (v103 + v102);
        m2 = v104;
        const float v105 = (v79 * v95);
        const float v106 = m3;
        const float v107 = (v106 + v105);
        m3 = v107;
        const float v108 = (v81 * v89);
        const float v109 = m4;
        const float v110 = (v109 + v108);
        m4 = v110;
        const float v111 = (v81 * v91);
        const float v112 = m5;
        const float v113 = (v112 + v111);
        m5 = v113;
        const float v114 = (v81 * v93);
        const float v115 = m6;
        const float v116 = (v115 + v114);
        m6 = v116;
        const float v117 = (v81 * v95);
        const float v118 = m7;
        const float v119 = (v118 + v117);
        m7 = v119;
        const float v120 = (v83 * v89);
        const float v121 = m8;
        const float v122 = (v121 + v120);
        m8 = v122;
        const float v123 = (v83 * v91);
        const float v124 = m9;
        const float v125 = (v124 + v123);
        m9 = v125;
        const float v126 = (v83 * v93);
        const float v127 = m10;
        const float v128 = (v127 + v126);
        m10 = v128;
        const float v129 = (v83 * v95);
        const float v130 = m11;
        const float v131 = (v130 + v129);
        m11 = v131;
        const float v132 = (v85 * v89);
        const float v133 = m12;
        const float v134 = (v133 + v132);
        m12 = v134;
        const float v135 = (v85 * v91);
        const float v136 = m13;
        const float v137 = (v136 + v135);
        m13 = v137;
        const float v138 = (v85 * v93);
        const float v139 = m14;
        const float v140 = (v139 + v138);
        m14 = v140;
        const float v141 = (v85 * v95);
        const float v142 = m15;
        const float v143 = (v142 + v141);
        m15 = v143;
      }
      __syncthreads();
    }
    const int v144 = (int)((u32)v45 * (u32)(int)34u);
    const int v145 = (int)((u32)v144 + (u32)v44);
    const float v146 = m0;
    s0[v145] = v146;
    const int v147 = (int)((u32)v44 + (u32)(int)8u);
    const int v148 = (int)((u32)v144 + (u32)v147);
    const float v149 = m1;
    s0[v148] = v149;
    const int v150 = (int)((u32)v44 + (u32)(int)16u);
    const int v151 = (int)((u32)v144 + (u32)v150);
    const float v152 = m2;
    s0[v151] = v152;
    const int v153 = (int)((u32)v44 + (u32)(int)24u);
    const int v154 = (int)((u32)v144 + (u32)v153);
    const float v155 = m3;
    s0[v154] = v155;
    const int v156 = (int)((u32)v45 + (u32)(int)1u);
    const int v157 = (int)((u32)v156 * (u32)(int)34u);
    const int v158 = (int)((u32)v157 + (u32)v44);
    const float v159 = m4;
    s0[v158] = v159;
    const int v160 = (int)((u32)v157 + (u32)v147);
    const float v161 = m5;
    s0[v160] = v161;
    const int v162 = (int)((u32)v157 + (u32)v150);
    const float v163 = m6;
    s0[v162] = v163;
    const int v164 = (int)((u32)v157 + (u32)v153);
    const float v165 = m7;
    s0[v164] = v165;
    const int v166 = (int)((u32)v45 + (u32)(int)2u);
    const int v167 = (int)((u32)v166 * (u32)(int)34u);
    const int v168 = (int)((u32)v167 + (u32)v44);
    const float v169 = m8;
    s0[v168] = v169;
    const int v170 = (int)((u32)v167 + (u32)v147);
    const float v171 = m9;
    s0[v170] = v171;
    const int v172 = (int)((u32)v167 + (u32)v150);
    const float v173 = m10;
    s0[v172] = v173;
    const int v174 = (int)((u32)v167 + (u32)v153);
    const float v175 = m11;
    s0[v174] = v175;
    const int v176 = (int)((u32)v45 + (u32)(int)3u);
    const int v177 = (int)((u32)v176 * (u32)(int)34u);
    const int v178 = (int)((u32)v177 + (u32)v44);
    const float v179 = m12;
    s0[v178] = v179;
    const int v180 = (int)((u32)v177 + (u32)v147);
    const float v181 = m13;
    s0[v180] = v181;
    const int v182 = (int)((u32)v177 + (u32)v150);
    const float v183 = m14;
    s0[v182] = v183;
    const int v184 = (int)((u32)v177 + (u32)v153);
    const float v185 = m15;
    s0[v184] = v185;
    __syncthreads();
    for (int v186 = v14; v186 < (int)1024u; v186 += 64) {
      const int v187 = (v186 >> 5u);
      const int v188 = (v186 & (int)31u);
      const int v189 = (int)((u32)v41 + (u32)v187);
      const int v190 = (int)((u32)v42 + (u32)v188);
      const bool v191 = (v189 < v0);
      const bool v192 = (v190 < v2);
      const bool v193 = (v191 & v192);
      if (v193) {
        const int v194 = (int)((u32)v187 * (u32)(int)34u);
        const int v195 = (int)((u32)v194 + (u32)v188);
        const float v196 = s0[v195];
        const bool v197 = (v196 > 0.0f);
        const u32 v198 = __float_as_uint(v196);
        const u32 v199 = (v198 & 2147483647u);
        const bool v200 = (v199 > 2139095040u);
        const bool v201 = (v197 | v200);
        const float v202 = (v201 ? v196 : 0.0f);
        const int v203 = (int)((u32)v189 * (u32)v10);
        const int v204 = (int)((u32)v9 + (u32)v203);
        const int v205 = (int)((u32)v204 + (u32)v190);
        b2[v205] = v202;
      }
    }
  }
}
