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
  __shared__ float s0[512];
  __shared__ float s1[512];
  __shared__ float s2[1024];
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
    const int v33 = (v13 % v4);
    const int v34 = (v13 / v4);
    const int v35 = (v34 % v3);
    const int v36 = (int)((u32)v35 * (u32)(int)32u);
    const int v37 = (int)((u32)v33 << 5u);
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
    const int v38 = (v14 >> 3u);
    const int v39 = (v14 & (int)7u);
    const int v40 = (int)((u32)v38 << 2u);
    const int v41 = (int)((u32)v39 << 2u);
    for (int v42 = (int)0u; v42 < v1; v42 += 16) {
      for (int v43 = v14; v43 < (int)512u; v43 += 64) {
        const int v44 = (v43 & (int)15u);
        const int v45 = (v43 >> 4u);
        const int v46 = (int)((u32)v36 + (u32)v45);
        const int v47 = (int)((u32)v42 + (u32)v44);
        const bool v48 = (v46 < v0);
        const bool v49 = (v47 < v1);
        const bool v50 = (v48 & v49);
        m16 = 0.0f;
        if (v50) {
          const int v51 = (int)((u32)v46 * (u32)v6);
          const int v52 = (int)((u32)v5 + (u32)v51);
          const int v53 = (int)((u32)v52 + (u32)v47);
          const float v54 = b0[v53];
          m16 = v54;
        }
        const float v55 = m16;
        const int v56 = (int)((u32)v44 << 5u);
        const int v57 = (int)((u32)v56 + (u32)v45);
        s0[v57] = v55;
      }
      for (int v58 = v14; v58 < (int)512u; v58 += 64) {
        const int v59 = (v58 >> 5u);
        const int v60 = (v58 & (int)31u);
        const int v61 = (int)((u32)v42 + (u32)v59);
        const int v62 = (int)((u32)v37 + (u32)v60);
        const bool v63 = (v61 < v1);
        const bool v64 = (v62 < v2);
        const bool v65 = (v63 & v64);
        m17 = 0.0f;
        if (v65) {
          const int v66 = (int)((u32)v61 * (u32)v8);
          const int v67 = (int)((u32)v7 + (u32)v66);
          const int v68 = (int)((u32)v67 + (u32)v62);
          const float v69 = b1[v68];
          m17 = v69;
        }
        const float v70 = m17;
        s1[v58] = v70;
      }
      __syncthreads();
      for (int v71 = (int)0u; v71 < (int)16u; v71 += 1) {
        const int v72 = (int)((u32)v71 << 5u);
        const int v73 = (int)((u32)v72 + (u32)v40);
        const float v74 = s0[v73];
        const int v75 = (int)((u32)v73 + (u32)(int)1u);
        const float v76 = s0[v75];
        const int v77 = (int)((u32)v73 + (u32)(int)2u);
        const float v78 = s0[v77];
        const int v79 = (int)((u32)v73 + (u32)(int)3u);
        const float v80 = s0[v79];
        const int v81 = (int)((u32)v72 + (u32)v41);
        const float v82 = s1[v81];
        const int v83 = (int)((u32)v81 + (u32)(int)1u);
        const float v84 = s1[v83];
        const int v85 = (int)((u32)v81 + (u32)(int)2u);
        const float v86 = s1[v85];
        const int v87 = (int)((u32)v81 + (u32)(int)3u);
        const float v88 = s1[v87];
        const float v89 = (v74 * v82);
        const float v90 = m0;
        const float v91 = (v90 + v89);
        m0 = v91;
        const float v92 = (v74 * v84);
        const float v93 = m1;
        const float v94 = (v93 + v92);
        m1 = v94;
        const float v95 = (v74 * v86);
        const float v96 = m2;
        const float v97 = (v96 + v95);
        m2 = v97;
        const float v98 = (v74 * v88);
        const float v99 = m3;
        const float v100 = (v99 + v98);
        m3 = v100;
        const float v101 = (v76 * v82);
        const float v102 = m4;
        const float v103 = (v102 + v101);
        m4 = v103;
        const float v104 = (v76 * v84);
        const float v105 = m5;
        const float v106 = (v105 + v104);
        m5 = v106;
        const float v107 = (v76 * v86);
        const float v108 = m6;
        const float v109 = (v108 + v107);
        m6 = v109;
        const float v110 = (v76 * v88);
        const float v111 = m7;
        const float v112 = (v111 + v110);
        m7 = v112;
        const float v113 = (v78 * v82);
        const float v114 = m8;
        const float v115 = (v114 + v113);
        m8 = v115;
        const float v116 = (v78 * v84);
        const float v117 = m9;
        const float v118 = (v117 + v116);
        m9 = v118;
        const float v119 = (v78 * v86);
        const float v120 = m10;
        const float v121 = (v120 + v119);
        m10 = v121;
        const float v122 = (v78 * v88);
        const float v123 = m11;
        const float v124 = (v123 + v122);
        m11 = v124;
        const float v125 = (v80 * v82);
        const float v126 = m12;
        const float v127 = (v126 + v125);
        m12 = v127;
        const float v128 = (v80 * v84);
        const float v129 = m13;
        const float v130 = (v129 + v128);
        m13 = v130;
        const float v131 = (v80 * v86);
        const float v132 = m14;
        const float v133 = (v132 + v131);
        m14 = v133;
        const float v134 = (v80 * v88);
        const float v135 = m15;
        const float v136 = (v135 + v134);
        m15 = v136;
      }
      __syncthreads();
    }
    const int v137 = (int)((u32)v40 << 5u);
    const int v138 = (int)((u32)v137 + (u32)v41);
    const float v139 = m0;
    s2[v138] = v139;
    const int v140 = (int)((u32)v41 + (u32)(int)1u);
    const int v141 = (int)((u32)v137 + (u32)v140);
    const float v142 = m1;
    s2[v141] = v142;
    const int v143 = (int)((u32)v41 + (u32)(int)2u);
    const int v144 = (int)((u32)v137 + (u32)v143);
    const float v145 = m2;
    s2[v144] = v145;
    const int v146 = (int)((u32)v41 + (u32)(int)3u);
    const int v147 = (int)((u32)v137 + (u32)v146);
    const float v148 = m3;
    s2[v147] = v148;
    const int v149 = (int)((u32)v40 + (u32)(int)1u);
    const int v150 = (int)((u32)v149 << 5u);
    const int v151 = (int)((u32)v150 + (u32)v41);
    const float v152 = m4;
    s2[v151] = v152;
    const int v153 = (int)((u32)v150 + (u32)v140);
    const float v154 = m5;
    s2[v153] = v154;
    const int v155 = (int)((u32)v150 + (u32)v143);
    const float v156 = m6;
    s2[v155] = v156;
    const int v157 = (int)((u32)v150 + (u32)v146);
    const float v158 = m7;
    s2[v157] = v158;
    const int v159 = (int)((u32)v40 + (u32)(int)2u);
    const int v160 = (int)((u32)v159 << 5u);
    const int v161 = (int)((u32)v160 + (u32)v41);
    const float v162 = m8;
    s2[v161] = v162;
    const int v163 = (int)((u32)v160 + (u32)v140);
    const float v164 = m9;
    s2[v163] = v164;
    const int v165 = (int)((u32)v160 + (u32)v143);
    const float v166 = m10;
    s2[v165] = v166;
    const int v167 = (int)((u32)v160 + (u32)v146);
    const float v168 = m11;
    s2[v167] = v168;
    const int v169 = (int)((u32)v40 + (u32)(int)3u);
    const int v170 = (int)((u32)v169 << 5u);
    const int v171 = (int)((u32)v170 + (u32)v41);
    const float v172 = m12;
    s2[v171] = v172;
    const int v173 = (int)((u32)v170 + (u32)v140);
    const float v174 = m13;
    s2[v173] = v174;
    const int v175 = (int)((u32)v170 + (u32)v143);
    const float v176 = m14;
    s2[v175] = v176;
    const int v177 = (int)((u32)v170 + (u32)v146);
    const float v178 = m15;
    s2[v177] = v178;
    __syncthreads();
    for (int v179 = v14; v179 < (int)1024u; v179 += 64) {
      const int v180 = (v179 >> 5u);
      const int v181 = (v179 & (int)31u);
      const int v182 = (int)((u32)v36 + (u32)v180);
      const int v183 = (int)((u32)v37 + (u32)v181);
      const bool v184 = (v182 < v0);
      const bool v185 = (v183 < v2);
      const bool v186 = (v184 & v185);
      if (v186) {
        const float v187 = s2[v179];
        const bool v188 = (v187 > 0.0f);
        const u32 v189 = __float_as_uint(v187);
        const u32 v190 = (v189 & 2147483647u);
        const bool v191 = (v190 > 2139095040u);
        const bool v192 = (v188 | v191);
        const float v193 = (v192 ? v187 : 0.0f);
        const int v194 = (int)((u32)v182 * (u32)v10);
        const int v195 = (int)((u32)v9 + (u32)v194);
        const int v196 = (int)((u32)v195 + (u32)v183);
        b2[v196] = v193;
      }
    }
  }
}
