// program matmul.f32.64x64x16.2x2.s2 for apple7 f32 warps 2x2
//   b0 f16 read
//   b1 f32 read
//   b2 f32 write
//   uniforms 20
//   grid [u0, u1] by 64x64 batch [u3, u4] bands 8
//   g0 b0 base u5 [u0, u2] strides [u6, 1] batch [u8, u9] vector 8
//   g1 b1 base u10 [u2, u1] strides [u11, 1] batch [u13, u14] vector 4
//   g2 b2 base u15 [u0, u1] strides [u16, 1] batch [u18, u19] vector 2
//   t0 f32[64, 16] stages 2 matrices
//   t1 f32[16, 64] stages 2 matrices
//   f0 sum[32, 32]
//   f1 left[32, 8]
//   f2 right[8, 32]
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
#include <metal_simdgroup_matrix>
inline u32 pack_half(float low, float high) { return (u32)to_half(low) | (u32)to_half(high) << 16; }
inline u32 pack_brain(float low, float high) { return (u32)to_brain(low) | (u32)to_brain(high) << 16; }
[[max_total_threads_per_threadgroup(128)]] kernel void k(
    constant int* u [[buffer(0)]],
    device const u16* b0 [[buffer(1)]],
    device const float* b1 [[buffer(2)]],
    device float* b2 [[buffer(3)]],
    uint warp_index [[simdgroup_index_in_threadgroup]],
    uint lane_index [[thread_index_in_simdgroup]],
    uint local_index [[thread_index_in_threadgroup]],
    uint3 block [[threadgroup_position_in_grid]],
    uint3 blocks [[threadgroups_per_grid]]) {
  threadgroup uint4 t0[512];
  threadgroup uint4 t1[512];
  threadgroup float exchanged[256];
  const int d0 = u[0];
  const int d1 = u[1];
  const int d2 = u[2];
  const int d3 = u[3];
  const int d4 = u[4];
  const int d5 = u[5];
  const int d6 = u[6];
  const int d8 = u[8];
  const int d9 = u[9];
  const int d10 = u[10];
  const int d11 = u[11];
  const int d13 = u[13];
  const int d14 = u[14];
  const int d15 = u[15];
  const int d16 = u[16];
  const int d18 = u[18];
  const int d19 = u[19];
  const int local = (int)local_index, lane = (int)lane_index, warp = (int)warp_index;
  const int warp_row = warp / 2, warp_col = warp % 2;
  const u32 rows = ((u32)d0 + 63u) / 64u, cols = ((u32)d1 + 63u) / 64u;
  const u32 group = block.y * blocks.x + block.x, plane = group % (rows * cols);
  const u32 band = plane / (8u * cols), within = plane % (8u * cols);
  const u32 height = rows - band * 8u < 8u ? rows - band * 8u : 8u;
  const int group_row = (int)(band * 8u + within % height), group_col = (int)(within / height);
  const int batch = (int)(group / (rows * cols));
  const int n1 = batch % d4;
  const int n0 = (batch / d4) % d3;
  if (((batch / d4) / d3) > 0) return;
  device const u16* const g0 = b0 + d5 + (i64)n0 * d8 + (i64)n1 * d9;
  device const float* const g1 = b1 + d10 + (i64)n0 * d13 + (i64)n1 * d14;
  device float* const g2 = b2 + d15 + (i64)n0 * d18 + (i64)n1 * d19;
  simdgroup_matrix<float, 8, 8> f0[16];
  simdgroup_matrix<float, 8, 8> f1[4];
  simdgroup_matrix<float, 8, 8> f2[4];
  u32 x0[2][2];
  u32 x1[2][4];
  #pragma unroll
  for (int i = 0; i < 16; i++) {
    f0[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }
  {
    u32 x[2][2];
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int n = local + i * 128, r = n / 32 * 8 + n % 16 / 2, q = n / 16 % 2 * 2 + n % 2;
      const int row = 64 * group_row + r, col = 0 + q * 4;
      {
        const uint2 w0 = row < d0 && col < d2 ? *(device const uint2*)(g0 + (i64)row * d6 + col) : uint2(0, 0);
        x[i][0] = w0.x; x[i][1] = w0.y;
      }
    }
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int n = local + i * 128, r = n / 32 * 8 + n % 16 / 2, q = n / 16 % 2 * 2 + n % 2;
      const int row = 64 * group_row + r, col = 0 + q * 4;
      {
        float y[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (row < d0 && col < d2) {
          #pragma unroll
          for (int e = 0; e < 4; e++) {
            float m0 = from_half((u16)(x[i][e / 2] >> 16 * (e % 2)));
            y[e] = m0;
          }
        }
        const u32 z[4] = {as_type<u32>(y[0]), as_type<u32>(y[1]), as_type<u32>(y[2]), as_type<u32>(y[3])};
        t0[0 * 256 + n] = uint4(z[0], z[1], z[2], z[3]);
      }
    }
  }
  {
    u32 x[2][4];
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int n = local + i * 128, r = n / 128 * 8 + n % 16 / 2, q = n / 16 % 8 * 2 + n % 2;
      const int row = 0 + r, col = 64 * group_col + q * 4;
      {
        const uint4 w0 = row < d2 && col < d1 ? *(device const uint4*)(g1 + (i64)row * d11 + col) : uint4(0, 0, 0, 0);
        x[i][0] = w0.x; x[i][1] = w0.y; x[i][2] = w0.z; x[i][3] = w0.w;
      }
    }
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int n = local + i * 128, r = n / 128 * 8 + n % 16 / 2, q = n / 16 % 8 * 2 + n % 2;
      {
        t1[0 * 256 + n] = uint4(x[i][0], x[i][1], x[i][2], x[i][3]);
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  #pragma unroll 1
  for (int c0 = 0; c0 < d2 / 16 + (d2 % 16 > 0); c0++) {
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int n = local + i * 128, r = n / 32 * 8 + n % 16 / 2, q = n / 16 % 2 * 2 + n % 2;
      const int row = 64 * group_row + r, col = 16 * c0 + 16 + q * 4;
      {
        const uint2 w0 = row < d0 && col < d2 ? *(device const uint2*)(g0 + (i64)row * d6 + col) : uint2(0, 0);
        x0[i][0] = w0.x; x0[i][1] = w0.y;
      }
    }
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int n = local + i * 128, r = n / 128 * 8 + n % 16 / 2, q = n / 16 % 8 * 2 + n % 2;
      const int row = 16 * c0 + 16 + r, col = 64 * group_col + q * 4;
      {
        const uint4 w0 = row < d2 && col < d1 ? *(device const uint4*)(g1 + (i64)row * d11 + col) : uint4(0, 0, 0, 0);
        x1[i][0] = w0.x; x1[i][1] = w0.y; x1[i][2] = w0.z; x1[i][3] = w0.w;
      }
    }
    #pragma unroll
    for (int c1 = 0; c1 < 16 / 8 + (16 % 8 > 0); c1++) {
      {
        const int from = c0 % 2 * 256, row = (32 * warp_row) / 8, col = (8 * c1) / 8;
        #pragma unroll
        for (int i = 0; i < 4; i++) {
          #pragma unroll
          for (int j = 0; j < 1; j++) {
            simdgroup_load(f1[i * 1 + j], (threadgroup const float*)(t0 + from + ((row + i) * 2 + col + j) * 16), 8);
          }
        }
      }
      {
        const int from = c0 % 2 * 256, row = (8 * c1) / 8, col = (32 * warp_col) / 8;
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          #pragma unroll
          for (int j = 0; j < 4; j++) {
            simdgroup_load(f2[i * 4 + j], (threadgroup const float*)(t1 + from + ((row + i) * 8 + col + j) * 16), 8);
          }
        }
      }
      #pragma unroll
      for (int d = 0; d < 1; d++) {
        #pragma unroll
        for (int i = 0; i < 4; i++) {
          #pragma unroll
          for (int j = 0; j < 4; j++) {
            simdgroup_multiply_accumulate(f0[i * 4 + j], f1[i * 1 + d], f2[d * 4 + j], f0[i * 4 + j]);
          }
        }
      }
    }
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int n = local + i * 128, r = n / 32 * 8 + n % 16 / 2, q = n / 16 % 2 * 2 + n % 2;
      const int row = 64 * group_row + r, col = 16 * c0 + 16 + q * 4;
      {
        float y[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (row < d0 && col < d2) {
          #pragma unroll
          for (int e = 0; e < 4; e++) {
            float m0 = from_half((u16)(x0[i][e / 2] >> 16 * (e % 2)));
            y[e] = m0;
          }
        }
        const u32 z[4] = {as_type<u32>(y[0]), as_type<u32>(y[1]), as_type<u32>(y[2]), as_type<u32>(y[3])};
        t0[(c0 + 1) % 2 * 256 + n] = uint4(z[0], z[1], z[2], z[3]);
      }
    }
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int n = local + i * 128, r = n / 128 * 8 + n % 16 / 2, q = n / 16 % 8 * 2 + n % 2;
      {
        t1[(c0 + 1) % 2 * 256 + n] = uint4(x1[i][0], x1[i][1], x1[i][2], x1[i][3]);
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  {
    const int down = (lane >> 1 & 3) * 1 + (lane >> 4 & 1) * 4, right = (lane >> 0 & 1) * 2 + (lane >> 3 & 1) * 4;
    threadgroup float* const matrix = exchanged + warp * 64;
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        simdgroup_store(f0[i * 4 + j], matrix, 8);
        simdgroup_barrier(mem_flags::mem_threadgroup);
        {
          const int row = 64 * group_row + 32 * warp_row + i * 8 + down, col = 64 * group_col + 32 * warp_col + j * 8 + right;
          threadgroup const float* const own = matrix + down * 8 + right;
          if (row < d0 && col < d1) {
            float y[2];
            {
              float m0 = own[0];
              y[0] = m0;
            }
            {
              float m0 = own[1];
              y[1] = m0;
            }
            *(device float2*)(g2 + (i64)row * d16 + col) = float2(y[0], y[1]);
          }
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
      }
    }
  }
}
