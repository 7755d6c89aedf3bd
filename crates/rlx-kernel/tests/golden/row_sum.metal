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
    for (int v16 = v7; v16 < v1; v16 += 64) {
      const int v17 = (int)((u32)v6 * (u32)v3);
      const int v18 = (int)((u32)v2 + (u32)v17);
      const int v19 = (int)((u32)v18 + (u32)v16);
      const float v20 = b0[v19];
      const float v21 = m0;
      const float v22 = (v21 + v20);
      m0 = v22;
    }
    const float v23 = m0;
    s0[v7] = v23;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const bool v24 = (v7 < (int)32u);
    if (v24) {
      const int v25 = (int)((u32)v7 + (u32)(int)32u);
      const float v26 = s0[v7];
      const float v27 = s0[v25];
      const float v28 = (v26 + v27);
      s0[v7] = v28;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const bool v29 = (v7 < (int)16u);
    if (v29) {
      const int v30 = (int)((u32)v7 + (u32)(int)16u);
      const float v31 = s0[v7];
      const float v32 = s0[v30];
      const float v33 = (v31 + v32);
      s0[v7] = v33;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const bool v34 = (v7 < (int)8u);
    if (v34) {
      const int v35 = (int)((u32)v7 + (u32)(int)8u);
      const float v36 = s0[v7];
      const float v37 = s0[v35];
      const float v38 = (v36 + v37);
      s0[v7] = v38;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const bool v39 = (v7 < (int)4u);
    if (v39) {
      const int v40 = (int)((u32)v7 + (u32)(int)4u);
      const float v41 = s0[v7];
      const float v42 = s0[v40];
      const float v43 = (v41 + v42);
      s0[v7] = v43;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const bool v44 = (v7 < (int)2u);
    if (v44) {
      const int v45 = (int)((u32)v7 + (u32)(int)2u);
      const float v46 = s0[v7];
      const float v47 = s0[v45];
      const float v48 = (v46 + v47);
      s0[v7] = v48;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const bool v49 = (v7 < (int)1u);
    if (v49) {
      const int v50 = (int)((u32)v7 + (u32)(int)1u);
      const float v51 = s0[v7];
      const float v52 = s0[v50];
      const float v53 = (v51 + v52);
      s0[v7] = v53;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float v54 = s0[(int)0u];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (v49) {
      const int v55 = (int)((u32)v4 + (u32)v6);
      b1[v55] = v54;
    }
  }
}
