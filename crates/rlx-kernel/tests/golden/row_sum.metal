// reduce.reduce
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
[[max_total_threads_per_threadgroup(64)]] kernel void row_sum(
    constant int* u [[buffer(0)]],
    device const float* b0 [[buffer(1)]] /* x0 */,
    device float* b1 [[buffer(2)]] /* y0 */,
    uint local [[thread_index_in_threadgroup]],
    uint3 group [[threadgroup_position_in_grid]],
    uint3 groups [[threadgroups_per_grid]]) {
  threadgroup float s0[64];
  float m0;
  const int v0 = u[0];
  const int v1 = u[1];
  const int v2 = u[2];
  const int v3 = u[3];
  const int v4 = u[4];
  const int v6 = (int)(group.y * groups.x + group.x);
  const int v7 = (int)local;
  const bool v8 = (v6 < v0);
  if (v8) {
    m0 = 0.0f;
    for (int v24 = v7; v24 < v1; v24 += 64) {
      const int v25 = (int)((u32)v6 * (u32)v3);
      const int v26 = (int)((u32)v2 + (u32)v25);
      const int v27 = (int)((u32)v26 + (u32)v24);
      const float v28 = b0[v27];
      const float v29 = m0;
      const float v30 = (v29 + v28);
      m0 = v30;
    }
    const float v31 = m0;
    s0[v7] = v31;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const bool v32 = (v7 < (int)8u);
    if (v32) {
      const float v33 = s0[v7];
      const int v34 = (int)((u32)v7 + (u32)(int)8u);
      const float v35 = s0[v34];
      const int v36 = (int)((u32)v7 + (u32)(int)16u);
      const float v37 = s0[v36];
      const int v38 = (int)((u32)v7 + (u32)(int)24u);
      const float v39 = s0[v38];
      const int v40 = (int)((u32)v7 + (u32)(int)32u);
      const float v41 = s0[v40];
      const int v42 = (int)((u32)v7 + (u32)(int)40u);
      const float v43 = s0[v42];
      const int v44 = (int)((u32)v7 + (u32)(int)48u);
      const float v45 = s0[v44];
      const int v46 = (int)((u32)v7 + (u32)(int)56u);
      const float v47 = s0[v46];
      const float v48 = (v33 + v41);
      const float v49 = (v35 + v43);
      const float v50 = (v37 + v45);
      const float v51 = (v39 + v47);
      const float v52 = (v48 + v50);
      const float v53 = (v49 + v51);
      const float v54 = (v52 + v53);
      s0[v7] = v54;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const bool v55 = (v7 < (int)1u);
    if (v55) {
      const float v56 = s0[v7];
      const int v57 = (int)((u32)v7 + (u32)(int)1u);
      const float v58 = s0[v57];
      const int v59 = (int)((u32)v7 + (u32)(int)2u);
      const float v60 = s0[v59];
      const int v61 = (int)((u32)v7 + (u32)(int)3u);
      const float v62 = s0[v61];
      const int v63 = (int)((u32)v7 + (u32)(int)4u);
      const float v64 = s0[v63];
      const int v65 = (int)((u32)v7 + (u32)(int)5u);
      const float v66 = s0[v65];
      const int v67 = (int)((u32)v7 + (u32)(int)6u);
      const float v68 = s0[v67];
      const int v69 = (int)((u32)v7 + (u32)(int)7u);
      const float v70 = s0[v69];
      const float v71 = (v56 + v64);
      const float v72 = (v58 + v66);
      const float v73 = (v60 + v68);
      const float v74 = (v62 + v70);
      const float v75 = (v71 + v73);
      const float v76 = (v72 + v74);
      const float v77 = (v75 + v76);
      s0[v7] = v77;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float v78 = s0[(int)0u];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (v55) {
      const int v79 = (int)((u32)v4 + (u32)v6);
      b1[v79] = v78;
    }
  }
}
