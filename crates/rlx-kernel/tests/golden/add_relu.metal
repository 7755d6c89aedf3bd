// map.Add+Relu
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
[[max_total_threads_per_threadgroup(64)]] kernel void add_relu(
    constant int* u [[buffer(0)]],
    device const float* b0 [[buffer(1)]] /* x0 */,
    device const float* b1 [[buffer(2)]] /* x1 */,
    device float* b2 [[buffer(3)]] /* y0 */,
    uint local [[thread_index_in_threadgroup]],
    uint3 group [[threadgroup_position_in_grid]],
    uint3 groups [[threadgroups_per_grid]]) {
  const int v0 = u[0];
  const int v1 = u[1];
  const int v2 = u[2];
  const int v3 = u[3];
  const int v4 = u[4];
  const int v5 = u[5];
  const int v6 = u[6];
  const int v7 = (int)((u32)v5 * (u32)v6);
  const int v8 = (int)(group.y * groups.x + group.x);
  const int v9 = (int)local;
  const int v11 = (int)((u32)v8 << 6u);
  const int v12 = (int)((u32)v11 + (u32)v9);
  const bool v13 = (v12 < v7);
  if (v13) {
    const int v17 = (v12 / v6);
    const int v18 = (int)((u32)v17 * (u32)v6);
    const int v19 = (int)((u32)v12 - (u32)v18);
    const int v20 = (int)((u32)v17 * (u32)v1);
    const int v21 = (int)((u32)v0 + (u32)v20);
    const int v22 = (int)((u32)v21 + (u32)v19);
    const float v23 = b0[v22];
    const int v24 = (int)((u32)v2 + (u32)v19);
    const float v25 = b1[v24];
    const float v26 = (v23 + v25);
    const bool v27 = (v26 > 0.0f);
    const u32 v28 = as_type<u32>(v26);
    const u32 v29 = (v28 & 2147483647u);
    const bool v30 = (v29 > 2139095040u);
    const bool v31 = (v27 | v30);
    const float v32 = (v31 ? v26 : 0.0f);
    const int v33 = (int)((u32)v17 * (u32)v4);
    const int v34 = (int)((u32)v3 + (u32)v33);
    const int v35 = (int)((u32)v34 + (u32)v19);
    b2[v35] = v32;
  }
}
