// map.gather
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
[[max_total_threads_per_threadgroup(64)]] kernel void gather(
    constant int* u [[buffer(0)]],
    device const i64* b0 [[buffer(1)]] /* x1 */,
    device const float* b1 [[buffer(2)]] /* x0 */,
    device float* b2 [[buffer(3)]] /* y0 */,
    device atomic_uint* fault [[buffer(4)]],
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
  const int v7 = u[7];
  const int v8 = (int)((u32)v0 * (u32)v1);
  const int v9 = (int)(group.y * groups.x + group.x);
  const int v10 = (int)local;
  const int v12 = (int)((u32)v9 << 6u);
  const int v13 = (int)((u32)v12 + (u32)v10);
  const bool v14 = (v13 < v8);
  if (v14) {
    const int v19 = (v13 / v1);
    const int v20 = (int)((u32)v19 * (u32)v1);
    const int v21 = (int)((u32)v13 - (u32)v20);
    const int v22 = (int)((u32)v2 + (u32)v19);
    const i64 v23 = b0[v22];
    const i64 v24 = (i64)v3;
    const i64 v25 = (i64)((u64)v23 + (u64)v24);
    const bool v26 = (v23 < (i64)0ul);
    const i64 v27 = (v26 ? v25 : v23);
    const bool v28 = (v27 >= (i64)0ul);
    const bool v29 = (v27 < v24);
    const bool v30 = (v28 & v29);
    const bool v31 = (!v30);
    if (v31) {
      const bool v32 = (v23 < (i64)18446744071562067968ul);
      const bool v33 = ((i64)2147483647ul < v23);
      const i64 v34 = (v32 ? (i64)18446744071562067968ul : v23);
      const i64 v35 = (v33 ? (i64)2147483647ul : v34);
      const int v36 = (int)v35;
      if (atomic_fetch_add_explicit(&fault[0], 1u, memory_order_relaxed) == 0u) { atomic_store_explicit(&fault[1], (u32)u[8], memory_order_relaxed); atomic_store_explicit(&fault[2], 0u, memory_order_relaxed); atomic_store_explicit(&fault[3], (u32)v36, memory_order_relaxed); }
    }
    const int v37 = (int)v27;
    const int v38 = (v30 ? v37 : (int)0u);
    const int v39 = (int)((u32)v38 * (u32)v5);
    const int v40 = (int)((u32)v4 + (u32)v39);
    const int v41 = (int)((u32)v40 + (u32)v21);
    const float v42 = b1[v41];
    const int v43 = (int)((u32)v19 * (u32)v7);
    const int v44 = (int)((u32)v6 + (u32)v43);
    const int v45 = (int)((u32)v44 + (u32)v21);
    b2[v45] = v42;
  }
}
