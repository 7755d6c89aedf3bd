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
    const int v31 = (int)((u32)v0 + (u32)v7);
    const float v32 = b0[v31];
    const u32 v33 = as_type<u32>(v32);
    const u32 v34 = (v33 & 2147483647u);
    const bool v35 = (v34 > 2139095040u);
    const float v36 = (v35 ? 0.0f : v32);
    const float v37 = (-v36);
    const bool v38 = (11.5f < v36);
    const float v39 = (v38 ? 11.5f : v36);
    const bool v40 = (v39 < v37);
    const float v41 = (v40 ? v37 : v39);
    const bool v42 = (11.5f < v41);
    const float v43 = (v42 ? 11.5f : v41);
    const float v44 = ((-1.5586756e-6f) * v43);
    const float v45 = (v44 + 2.551993e-5f);
    const float v46 = (v45 * v43);
    const float v47 = (v46 + (-0.00012831582f));
    const float v48 = (v47 * v43);
    const float v49 = (v48 + (-0.00025549173f));
    const float v50 = (v49 * v43);
    const float v51 = (v50 + 0.007189243f);
    const float v52 = (v51 * v43);
    const float v53 = (v52 + (-0.052563056f));
    const float v54 = (v53 * v43);
    const float v55 = (v54 + (-0.45919257f));
    const float v56 = (v55 * v43);
    const float v57 = (v56 + (-1.1511064f));
    const float v58 = (v57 * v43);
    const float v59 = rint(v58);
    const float v60 = (v58 - v59);
    const float v61 = (7.676681e-5f * v60);
    const float v62 = (v61 + 0.0006699437f);
    const float v63 = (v62 * v60);
    const float v64 = (v63 + 0.004809219f);
    const float v65 = (v64 * v60);
    const float v66 = (v65 + 0.027751662f);
    const float v67 = (v66 * v60);
    const float v68 = (v67 + 0.12011324f);
    const float v69 = (v68 * v60);
    const float v70 = (v69 + 0.3465736f);
    const float v71 = (v70 * v60);
    const float v72 = (v71 + 0.5f);
    const int v73 = to_int(v59);
    const int v74 = (v73 >> 1u);
    const int v75 = (int)((u32)v74 + (u32)(int)127u);
    const int v76 = (int)((u32)v75 << 23u);
    const float v77 = as_type<float>(v76);
    const float v78 = (v72 * v77);
    const int v79 = (int)((u32)v73 - (u32)v74);
    const int v80 = (int)((u32)v79 + (u32)(int)127u);
    const int v81 = (int)((u32)v80 << 23u);
    const float v82 = as_type<float>(v81);
    const float v83 = (v78 * v82);
    const bool v84 = (v36 < 0.0f);
    const float v85 = (v84 ? 0.0f : v36);
    const float v86 = (v41 * v83);
    const float v87 = (v85 - v86);
    const float v88 = (v35 ? v32 : v87);
    const int v89 = (int)((u32)v1 + (u32)v7);
    b1[v89] = v88;
  }
}
