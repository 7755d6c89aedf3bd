// map.activation
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
[[max_total_threads_per_threadgroup(64)]] kernel void gelu(
    constant int* u [[buffer(0)]],
    device const float* b0 [[buffer(1)]] /* x0 */,
    device float* b1 [[buffer(2)]] /* y0 */,
    uint local [[thread_index_in_threadgroup]],
    uint3 group [[threadgroup_position_in_grid]],
    uint3 groups [[threadgroups_per_grid]]) {
  const int v0 = u[0];
  const int v1 = u[1];
  const int v2 = u[2];
  const int v3 = (int)(group.y * groups.x + group.x);
  const int v4 = (int)local;
  const int v6 = (int)((u32)v3 << 6u);
  const int v7 = (int)((u32)v6 + (u32)v4);
  const bool v8 = (v7 < v2);
  if (v8) {
    const int v46 = (int)((u32)v0 + (u32)v7);
    const float v47 = b0[v46];
    const u32 v48 = as_type<u32>(v47);
    const u32 v49 = (v48 & 2147483647u);
    const bool v50 = (v49 > 2139095040u);
    const float v51 = (v50 ? 0.0f : v47);
    const float v52 = (v51 * 0.5f);
    const float v53 = (v51 * 0.70710677f);
    const float v54 = fabs(v53);
    const float v55 = (v53 * v53);
    const float v56 = ((-1.7285347e-5f) * v54);
    const float v57 = (v56 + 0.0003831972f);
    const float v58 = ((-0.0038839644f) * v54);
    const float v59 = (v58 + 0.024254622f);
    const float v60 = (v57 * v55);
    const float v61 = (v60 + v59);
    const float v62 = (v61 * v54);
    const float v63 = (v62 + (-0.10677788f));
    const float v64 = (v63 * v54);
    const float v65 = (v64 + (-0.6348467f));
    const float v66 = (v65 * v54);
    const float v67 = (v66 + (-0.12871751f));
    const float v68 = (-v54);
    const float v69 = (v67 * v54);
    const float v70 = (v69 + v68);
    const bool v71 = (90.0f < v70);
    const float v72 = (v71 ? 90.0f : v70);
    const bool v73 = (v72 < (-105.0f));
    const float v74 = (v73 ? (-105.0f) : v72);
    const float v75 = (v74 * 1.442695f);
    const float v76 = rint(v75);
    const float v77 = (v76 * 0.69314575f);
    const float v78 = (v74 - v77);
    const float v79 = (v76 * 1.4286068e-6f);
    const float v80 = (v78 - v79);
    const float v81 = (0.0013780594f * v80);
    const float v82 = (v81 + 0.0083731245f);
    const float v83 = (v82 * v80);
    const float v84 = (v83 + 0.041669536f);
    const float v85 = (v84 * v80);
    const float v86 = (v85 + 0.16666472f);
    const float v87 = (v86 * v80);
    const float v88 = (v87 + 0.49999985f);
    const float v89 = (v88 * v80);
    const float v90 = (v89 + 1.0f);
    const float v91 = (v90 * v80);
    const float v92 = (v91 + 1.0f);
    const int v93 = to_int(v76);
    const int v94 = (v93 >> 1u);
    const int v95 = (int)((u32)v94 + (u32)(int)127u);
    const int v96 = (int)((u32)v95 << 23u);
    const float v97 = as_type<float>(v96);
    const float v98 = (v92 * v97);
    const int v99 = (int)((u32)v93 - (u32)v94);
    const int v100 = (int)((u32)v99 + (u32)(int)127u);
    const int v101 = (int)((u32)v100 << 23u);
    const float v102 = as_type<float>(v101);
    const float v103 = (v98 * v102);
    const float v104 = (1.0f - v103);
    const int v105 = as_type<int>(v104);
    const int v106 = (v105 & (int)2147483647u);
    const int v107 = as_type<int>(v53);
    const int v108 = (v107 & (int)2147483648u);
    const int v109 = (v106 | v108);
    const float v110 = as_type<float>(v109);
    const bool v111 = (4.0f < v54);
    const int v112 = (v108 | (int)1065353216u);
    const float v113 = as_type<float>(v112);
    const float v114 = (v111 ? v113 : v110);
    const float v115 = ((-0.0005967617f) * v55);
    const float v116 = (v115 + 0.004991194f);
    const float v117 = (v116 * v55);
    const float v118 = (v117 + (-0.026768135f));
    const float v119 = (v118 * v55);
    const float v120 = (v119 + 0.11281992f);
    const float v121 = (v120 * v55);
    const float v122 = (v121 + (-0.37612534f));
    const float v123 = (v122 * v55);
    const float v124 = (v123 + 0.12837917f);
    const float v125 = (v124 * v53);
    const float v126 = (v125 + v53);
    const bool v127 = (0.9277344f < v54);
    const float v128 = (v127 ? v114 : v126);
    const float v129 = (v52 * v128);
    const float v130 = (v129 + v52);
    const float v131 = (v50 ? v47 : v130);
    const int v132 = (int)((u32)v1 + (u32)v7);
    b1[v132] = v131;
  }
}
