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
  __shared__ float s0[1024];
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
    const int v34 = (v13 % v4);
    const int v35 = (v13 / v4);
    const int v36 = (v35 % v3);
    const int v37 = (int)((u32)v36 * (u32)(int)32u);
    const int v38 = (int)((u32)v34 << 5u);
    const int v39 = (v14 >> 3u);
    const int v40 = (v14 & (int)7u);
    const int v41 = (int)((u32)v39 << 2u);
    const int v42 = (int)((u32)v40 << 2u);
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
    for (int v43 = (int)0u; v43 < v1; v43 += 16) {
      for (int v44 = v14; v44 < (int)512u; v44 += 64) {
        const int v45 = (v44 & (int)15u);
        const int v46 = (v44 >> 4u);
        const int v47 = (int)((u32)v37 + (u32)v46);
        const int v48 = (int)((u32)v43 + (u32)v45);
        const bool v49 = (v47 < v0);
        const bool v50 = (v48 < v1);
        const bool v51 = (v49 & v50);
        m16 = __uint_as_float(0x80000000u);
        if (v51) {
          const int v52 = (int)((u32)v47 * (u32)v6);
          const int v53 = (int)((u32)v5 + (u32)v52);
          const int v54 = (int)((u32)v53 + (u32)v48);
          const float v55 = b0[v54];
          m16 = v55;
        }
        const float v56 = m16;
        const int v57 = (int)((u32)v45 << 5u);
        const int v58 = (int)((u32)v57 + (u32)v46);
        s0[v58] = v56;
      }
      for (int v59 = v14; v59 < (int)512u; v59 += 64) {
        const int v60 = (v59 >> 5u);
        const int v61 = (v59 & (int)31u);
        const int v62 = (int)((u32)v43 + (u32)v60);
        const int v63 = (int)((u32)v38 + (u32)v61);
        const bool v64 = (v62 < v1);
        const bool v65 = (v63 < v2);
        const bool v66 = (v64 & v65);
        m17 = 0.0f;
        if (v66) {
          const int v67 = (int)((u32)v62 * (u32)v8);
          const int v68 = (int)((u32)v7 + (u32)v67);
          const int v69 = (int)((u32)v68 + (u32)v63);
          const float v70 = b1[v69];
          m17 = v70;
        }
        const float v71 = m17;
        const int v72 = (int)((u32)v59 + (u32)(int)512u);
        s0[v72] = v71;
      }
      __syncthreads();
      for (int v73 = (int)0u; v73 < (int)16u; v73 += 1) {
        const int v74 = (int)((u32)v73 << 5u);
        const int v75 = (int)((u32)v74 + (u32)v41);
        const float v76 = s0[v75];
        const int v77 = (int)((u32)v75 + (u32)(int)1u);
        const float v78 = s0[v77];
        const int v79 = (int)((u32)v75 + (u32)(int)2u);
        const float v80 = s0[v79];
        const int v81 = (int)((u32)v75 + (u32)(int)3u);
        const float v82 = s0[v81];
        const int v83 = (int)((u32)v74 + (u32)(int)512u);
        const int v84 = (int)((u32)v83 + (u32)v42);
        const float v85 = s0[v84];
        const int v86 = (int)((u32)v84 + (u32)(int)1u);
        const float v87 = s0[v86];
        const int v88 = (int)((u32)v84 + (u32)(int)2u);
        const float v89 = s0[v88];
        const int v90 = (int)((u32)v84 + (u32)(int)3u);
        const float v91 = s0[v90];
        const float v92 = (v76 * v85);
        const float v93 = m0;
        const float v94 = (v93 + v92);
        m0 = v94;
        const float v95 = (v76 * v87);
        const float v96 = m1;
        const float v97 = (v96 + v95);
        m1 = v97;
        const float v98 = (v76 * v89);
        const float v99 = m2;
        const float v100 = (v99 + v98);
        m2 = v100;
        const float v101 = (v76 * v91);
        const float v102 = m3;
        const float v103 = (v102 + v101);
        m3 = v103;
        const float v104 = (v78 * v85);
        const float v105 = m4;
        const float v106 = (v105 + v104);
        m4 = v106;
        const float v107 = (v78 * v87);
        const float v108 = m5;
        const float v109 = (v108 + v107);
        m5 = v109;
        const float v110 = (v78 * v89);
        const float v111 = m6;
        const float v112 = (v111 + v110);
        m6 = v112;
        const float v113 = (v78 * v91);
        const float v114 = m7;
        const float v115 = (v114 + v113);
        m7 = v115;
        const float v116 = (v80 * v85);
        const float v117 = m8;
        const float v118 = (v117 + v116);
        m8 = v118;
        const float v119 = (v80 * v87);
        const float v120 = m9;
        const float v121 = (v120 + v119);
        m9 = v121;
        const float v122 = (v80 * v89);
        const float v123 = m10;
        const float v124 = (v123 + v122);
        m10 = v124;
        const float v125 = (v80 * v91);
        const float v126 = m11;
        const float v127 = (v126 + v125);
        m11 = v127;
        const float v128 = (v82 * v85);
        const float v129 = m12;
        const float v130 = (v129 + v128);
        m12 = v130;
        const float v131 = (v82 * v87);
        const float v132 = m13;
        const float v133 = (v132 + v131);
        m13 = v133;
        const float v134 = (v82 * v89);
        const float v135 = m14;
        const float v136 = (v135 + v134);
        m14 = v136;
        const float v137 = (v82 * v91);
        const float v138 = m15;
        const float v139 = (v138 + v137);
        m15 = v139;
      }
      __syncthreads();
    }
    const int v140 = (int)((u32)v41 << 5u);
    const int v141 = (int)((u32)v140 + (u32)v42);
    const float v142 = m0;
    s0[v141] = v142;
    const int v143 = (int)((u32)v42 + (u32)(int)1u);
    const int v144 = (int)((u32)v140 + (u32)v143);
    const float v145 = m1;
    s0[v144] = v145;
    const int v146 = (int)((u32)v42 + (u32)(int)2u);
    const int v147 = (int)((u32)v140 + (u32)v146);
    const float v148 = m2;
    s0[v147] = v148;
    const int v149 = (int)((u32)v42 + (u32)(int)3u);
    const int v150 = (int)((u32)v140 + (u32)v149);
    const float v151 = m3;
    s0[v150] = v151;
    const int v152 = (int)((u32)v41 + (u32)(int)1u);
    const int v153 = (int)((u32)v152 << 5u);
    const int v154 = (int)((u32)v153 + (u32)v42);
    const float v155 = m4;
    s0[v154] = v155;
    const int v156 = (int)((u32)v153 + (u32)v143);
    const float v157 = m5;
    s0[v156] = v157;
    const int v158 = (int)((u32)v153 + (u32)v146);
    const float v159 = m6;
    s0[v158] = v159;
    const int v160 = (int)((u32)v153 + (u32)v149);
    const float v161 = m7;
    s0[v160] = v161;
    const int v162 = (int)((u32)v41 + (u32)(int)2u);
    const int v163 = (int)((u32)v162 << 5u);
    const int v164 = (int)((u32)v163 + (u32)v42);
    const float v165 = m8;
    s0[v164] = v165;
    const int v166 = (int)((u32)v163 + (u32)v143);
    const float v167 = m9;
    s0[v166] = v167;
    const int v168 = (int)((u32)v163 + (u32)v146);
    const float v169 = m10;
    s0[v168] = v169;
    const int v170 = (int)((u32)v163 + (u32)v149);
    const float v171 = m11;
    s0[v170] = v171;
    const int v172 = (int)((u32)v41 + (u32)(int)3u);
    const int v173 = (int)((u32)v172 << 5u);
    const int v174 = (int)((u32)v173 + (u32)v42);
    const float v175 = m12;
    s0[v174] = v175;
    const int v176 = (int)((u32)v173 + (u32)v143);
    const float v177 = m13;
    s0[v176] = v177;
    const int v178 = (int)((u32)v173 + (u32)v146);
    const float v179 = m14;
    s0[v178] = v179;
    const int v180 = (int)((u32)v173 + (u32)v149);
    const float v181 = m15;
    s0[v180] = v181;
    __syncthreads();
    for (int v182 = v14; v182 < (int)1024u; v182 += 64) {
      const int v183 = (v182 >> 5u);
      const int v184 = (v182 & (int)31u);
      const int v185 = (int)((u32)v37 + (u32)v183);
      const int v186 = (int)((u32)v38 + (u32)v184);
      const bool v187 = (v185 < v0);
      const bool v188 = (v186 < v2);
      const bool v189 = (v187 & v188);
      if (v189) {
        const float v190 = s0[v182];
        const bool v191 = (v190 > 0.0f);
        const u32 v192 = __float_as_uint(v190);
        const u32 v193 = (v192 & 2147483647u);
        const bool v194 = (v193 > 2139095040u);
        const bool v195 = (v191 | v194);
        const float v196 = (v195 ? v190 : 0.0f);
        const int v197 = (int)((u32)v185 * (u32)v10);
        const int v198 = (int)((u32)v9 + (u32)v197);
        const int v199 = (int)((u32)v198 + (u32)v186);
        b2[v199] = v196;
      }
    }
  }
}
