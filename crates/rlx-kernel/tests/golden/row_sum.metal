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
template <class T> inline T shuffle_xor(T x, ushort bits) { return simd_shuffle_xor(x, bits); }
inline u64 shuffle_xor(u64 x, ushort bits) {
  return (u64)simd_shuffle_xor((u32)x, bits) | (u64)simd_shuffle_xor((u32)(x >> 32), bits) << 32;
}
inline i64 shuffle_xor(i64 x, ushort bits) { return (i64)shuffle_xor((u64)x, bits); }
[[max_total_threads_per_threadgroup(64)]] kernel void row_sum(
    constant int* u [[buffer(0)]],
    device const float* b0 [[buffer(1)]] /* x0 */,
    device float* b1 [[buffer(2)]] /* y0 */,
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint3 group [[threadgroup_position_in_grid]],
    uint3 groups [[threadgroups_per_grid]]) {
  const uint local = simd * 32u + lane;
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
    for (int v12 = v7; v12 < v1; v12 += 64) {
      const int v13 = (int)((u32)v6 * (u32)v3);
      const int v14 = (int)((u32)v2 + (u32)v13);
      const int v15 = (int)((u32)v14 + (u32)v12);
      const float v16 = b0[v15];
      const float v17 = m0;
      const float v18 = (v17 + v16);
      m0 = v18;
    }
    const float v19 = m0;
    s0[v7] = v19;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const int v20 = (v7 & (int)31u);
    const float v21 = s0[v20];
    const int v22 = (int)((u32)v20 + (u32)(int)32u);
    const float v23 = s0[v22];
    const float v24 = (v21 + v23);
    const float v25 = shuffle_xor(v24, 16);
    const float v26 = (v24 + v25);
    const float v27 = shuffle_xor(v26, 8);
    const float v28 = (v26 + v27);
    const float v29 = shuffle_xor(v28, 4);
    const float v30 = (v28 + v29);
    const float v31 = shuffle_xor(v30, 2);
    const float v32 = (v30 + v31);
    const float v33 = shuffle_xor(v32, 1);
    const float v34 = (v32 + v33);
    const bool v35 = (v7 < (int)1u);
    if (v35) {
      const int v36 = (int)((u32)v4 + (u32)v6);
      b1[v36] = v34;
    }
  }
}
