// program attention.f16.64x64.q64.k32.w4.s1.all.zero.x3e000000 for gfx1100 f16 warps 4x1
//   b0 f16 read
//   b1 f16 read
//   b2 f16 read
//   b3 f16 write
//   uniforms 29
//   grid [u0, 64] by 64x64 batch [u3, u4] bands 1
//   g0 b0 base u5 [u0, 64] strides [u6, 1] batch [u8, u9] vector 8
//   g1 b1 base u11 [u1, 64] strides [u12, 1] batch [u14, u15] vector 8
//   g2 b2 base u17 [u1, 64] strides [u18, 1] batch [u20, u21] vector 8
//   g3 b3 base u23 [u0, 64] strides [u24, 1] batch [u26, u27] vector 2
//   t0 f16[64, 64] stages 1 swizzle 3 >> 0
//   t1 f16[32, 64] stages 1 swizzle 3 >> 0
//   t2 f16[32, 64] stages 1 swizzle 3 >> 2
//   f0 sum[16, 32]
//   f1 left[16, 16]
//   f2 right[16, 32]
//   f3 right[16, 32]
//   f4 rows[16, 1]
//   f5 rows[16, 1]
//   f6 rows[16, 1]
//   f7 sum[16, 32]
//   f8 sum[16, 32]
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64; typedef long long i64;
__device__ __forceinline__ float from_half(u16 h) { return (float)__builtin_bit_cast(_Float16, h); }
__device__ __forceinline__ u16 to_half(float f) { return __builtin_bit_cast(u16, (_Float16)f); }
template <class T, class F> __device__ __forceinline__ T saturated(F x, F from, F to, T least, T most) {
  return x != x ? (T)0 : x < from ? least : x >= to ? most : (T)x;
}
#define __float2int_rz(x) saturated<int, float>(x, -2147483648.0f, 2147483648.0f, (int)0x80000000u, 0x7fffffff)
#define __double2int_rz(x) saturated<int, double>(x, -2147483648.0, 2147483648.0, (int)0x80000000u, 0x7fffffff)
#define __float2uint_rz(x) saturated<u32, float>(x, 0.0f, 4294967296.0f, 0u, 0xffffffffu)
#define __double2uint_rz(x) saturated<u32, double>(x, 0.0, 4294967296.0, 0u, 0xffffffffu)
#define __float2ll_rz(x) saturated<i64, float>(x, -9223372036854775808.0f, 9223372036854775808.0f, (i64)0x8000000000000000ull, 0x7fffffffffffffffll)
#define __double2ll_rz(x) saturated<i64, double>(x, -9223372036854775808.0, 9223372036854775808.0, (i64)0x8000000000000000ull, 0x7fffffffffffffffll)
#define __float2ull_rz(x) saturated<u64, float>(x, 0.0f, 18446744073709551616.0f, 0ull, 0xffffffffffffffffull)
#define __double2ull_rz(x) saturated<u64, double>(x, 0.0, 18446744073709551616.0, 0ull, 0xffffffffffffffffull)
__device__ __forceinline__ float from_brain(u16 h) { return __uint_as_float((u32)h << 16); }
__device__ __forceinline__ u16 to_brain(float f) {
  u32 b = __float_as_uint(f);
  return (b & 0x7fffffffu) > 0x7f800000u ? (u16)((b >> 16) | 0x40u) : (u16)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}
#ifndef __align__
#define __align__(n) __attribute__((aligned(n)))
#endif
__device__ __forceinline__ u32 pack_half(float low, float high) {
  return (u32)to_half(low) | (u32)to_half(high) << 16;
}
__device__ __forceinline__ u32 pack_brain(float low, float high) {
  return (u32)to_brain(low) | (u32)to_brain(high) << 16;
}
__device__ __forceinline__ float of_lane(float x, int lane) {
  return __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute(lane * 4, __builtin_bit_cast(int, x)));
}
__device__ __forceinline__ float power_of_2(float x) { return __builtin_amdgcn_exp2f(x); }
__device__ __forceinline__ u32 of_half(u32 x, int lane, int half) {
  const u32 other = __builtin_amdgcn_permlanex16(x, x, 0x76543210u, 0xfedcba98u, false, false);
  return lane >> 4 == half ? x : other;
}
__device__ __forceinline__ void mma(float* c, const u32* a, const u32* b) {
  typedef _Float16 operand __attribute__((ext_vector_type(16)));
  typedef float sums __attribute__((ext_vector_type(8)));
  operand first, second;
  sums s;
  __builtin_memcpy(&first, b, sizeof first);
  __builtin_memcpy(&second, a, sizeof second);
  __builtin_memcpy(&s, c, sizeof s);
  s = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(first, second, s);
  __builtin_memcpy(c, &s, sizeof s);
}
extern "C" __global__ void __launch_bounds__(128) k(const int* __restrict__ u, const u16* __restrict__ b0, const u16* __restrict__ b1, const u16* __restrict__ b2, u16* __restrict__ b3) {
  __shared__ __align__(128) u16 t0[4096];
  __shared__ __align__(128) u16 t1[2048];
  __shared__ __align__(128) u16 t2[2048];
  const int d0 = u[0];
  const int d1 = u[1];
  const int d3 = u[3];
  const int d4 = u[4];
  const int d5 = u[5];
  const int d6 = u[6];
  const int d8 = u[8];
  const int d9 = u[9];
  const int d11 = u[11];
  const int d12 = u[12];
  const int d14 = u[14];
  const int d15 = u[15];
  const int d17 = u[17];
  const int d18 = u[18];
  const int d20 = u[20];
  const int d21 = u[21];
  const int d23 = u[23];
  const int d24 = u[24];
  const int d26 = u[26];
  const int d27 = u[27];
  const int thread = (int)threadIdx.x, lane = thread & 31;
  const int warp_row = (thread >> 5) / 1;
  const u32 rows = ((u32)d0 + 63u) / 64u, cols = ((u32)64 + 63u) / 64u;
  const u32 group = blockIdx.y * gridDim.x + blockIdx.x, plane = group % (rows * cols);
  const u32 band = plane / (1u * cols), within = plane % (1u * cols);
  const u32 height = rows - band * 1u < 1u ? rows - band * 1u : 1u;
  const int group_row = (int)(band * 1u + within % height);
  const int batch = (int)(group / (rows * cols));
  const int n1 = batch % d4;
  const int n0 = (batch / d4) % d3;
  if (((batch / d4) / d3) > 0) return;
  const u16* __restrict__ const g0 = b0 + d5 + (i64)n0 * d8 + (i64)n1 * d9;
  const u16* __restrict__ const g1 = b1 + d11 + (i64)n0 * d14 + (i64)n1 * d15;
  const u16* __restrict__ const g2 = b2 + d17 + (i64)n0 * d20 + (i64)n1 * d21;
  u16* __restrict__ const g3 = b3 + d23 + (i64)n0 * d26 + (i64)n1 * d27;
  float f0[2][8];
  u32 f1[1][8];
  u32 f2[2][8];
  u32 f3[2][8];
  float f4[1];
  float f5[1];
  float f6[1];
  float f7[2][8];
  float f8[2][8];
  u32 x0[2][4];
  u32 x1[2][4];
  {
    u32 x[4][4];
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const int n = thread + i * 128, r = n / 8, q = n % 8;
      const int row = 64 * group_row + r, col = 0 + q * 8;
      {
        const uint4 w0 = row < d0 && col < 64 ? *(const uint4*)(g0 + (i64)row * d6 + col) : uint4{0, 0, 0, 0};
        x[i][0] = w0.x; x[i][1] = w0.y; x[i][2] = w0.z; x[i][3] = w0.w;
      }
    }
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const int n = thread + i * 128, r = n / 8, q = n % 8;
      {
        *(uint4*)(t0 + 0 * 4096 + (r * 8 + (q ^ (r & 7))) * 8) = uint4{x[i][0], x[i][1], x[i][2], x[i][3]};
      }
    }
  }
  #pragma unroll
  for (int i = 0; i < 1; i++) {
    f4[i] = __uint_as_float(0xff7fffffu);
  }
  #pragma unroll
  for (int i = 0; i < 1; i++) {
    f5[i] = __uint_as_float(0x00000000u);
  }
  #pragma unroll
  for (int i = 0; i < 1; i++) {
    f6[i] = __uint_as_float(0x00000000u);
  }
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    f7[i][0] = 0.0f; f7[i][1] = 0.0f; f7[i][2] = 0.0f; f7[i][3] = 0.0f; f7[i][4] = 0.0f; f7[i][5] = 0.0f; f7[i][6] = 0.0f; f7[i][7] = 0.0f;
  }
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    f8[i][0] = 0.0f; f8[i][1] = 0.0f; f8[i][2] = 0.0f; f8[i][3] = 0.0f; f8[i][4] = 0.0f; f8[i][5] = 0.0f; f8[i][6] = 0.0f; f8[i][7] = 0.0f;
  }
  {
    u32 x[2][4];
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int n = thread + i * 128, r = n / 8, q = n % 8;
      const int row = 0 + r, col = 0 + q * 8;
      {
        const uint4 w0 = row < d1 && col < 64 ? *(const uint4*)(g1 + (i64)row * d12 + col) : uint4{0, 0, 0, 0};
        x[i][0] = w0.x; x[i][1] = w0.y; x[i][2] = w0.z; x[i][3] = w0.w;
      }
    }
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int n = thread + i * 128, r = n / 8, q = n % 8;
      {
        *(uint4*)(t1 + 0 * 2048 + (r * 8 + (q ^ (r & 7))) * 8) = uint4{x[i][0], x[i][1], x[i][2], x[i][3]};
      }
    }
  }
  {
    u32 x[2][4];
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int n = thread + i * 128, r = n / 8, q = n % 8;
      const int row = 0 + r, col = 0 + q * 8;
      {
        const uint4 w0 = row < d1 && col < 64 ? *(const uint4*)(g2 + (i64)row * d18 + col) : uint4{0, 0, 0, 0};
        x[i][0] = w0.x; x[i][1] = w0.y; x[i][2] = w0.z; x[i][3] = w0.w;
      }
    }
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int n = thread + i * 128, r = n / 8, q = n % 8;
      {
        *(uint4*)(t2 + 0 * 2048 + (r * 8 + (q ^ (r >> 2 & 7))) * 8) = uint4{x[i][0], x[i][1], x[i][2], x[i][3]};
      }
    }
  }
  __syncthreads();
  #pragma unroll 1
  for (int c0 = 0; c0 < d1 / 32 + (d1 % 32 > 0); c0++) {
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int n = thread + i * 128, r = n / 8, q = n % 8;
      const int row = 32 * c0 + 32 + r, col = 0 + q * 8;
      {
        const uint4 w0 = row < d1 && col < 64 ? *(const uint4*)(g1 + (i64)row * d12 + col) : uint4{0, 0, 0, 0};
        x0[i][0] = w0.x; x0[i][1] = w0.y; x0[i][2] = w0.z; x0[i][3] = w0.w;
      }
    }
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int n = thread + i * 128, r = n / 8, q = n % 8;
      const int row = 32 * c0 + 32 + r, col = 0 + q * 8;
      {
        const uint4 w0 = row < d1 && col < 64 ? *(const uint4*)(g2 + (i64)row * d18 + col) : uint4{0, 0, 0, 0};
        x1[i][0] = w0.x; x1[i][1] = w0.y; x1[i][2] = w0.z; x1[i][3] = w0.w;
      }
    }
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      f0[i][0] = 0.0f; f0[i][1] = 0.0f; f0[i][2] = 0.0f; f0[i][3] = 0.0f; f0[i][4] = 0.0f; f0[i][5] = 0.0f; f0[i][6] = 0.0f; f0[i][7] = 0.0f;
    }
    #pragma unroll
    for (int c1 = 0; c1 < 64 / 16 + (64 % 16 > 0); c1++) {
      {
        const u16* const from = t0 + 0 * 4096;
        const int row = 16 * warp_row + (lane >> 0 & 15) * 1;
        const int col = 16 * c1 + 0;
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          #pragma unroll
          for (int j = 0; j < 1; j++) {
            const int r = row + i * 16, q = col / 8 + j * 2;
            const uint4 w = *(const uint4*)(from + (r * 8 + (q ^ (r & 7))) * 8);
            f1[i * 1 + j][0] = w.x; f1[i * 1 + j][1] = w.y; f1[i * 1 + j][2] = w.z; f1[i * 1 + j][3] = w.w;
          }
        }
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          #pragma unroll
          for (int j = 0; j < 1; j++) {
            const int r = row + i * 16, q = col / 8 + 1 + j * 2;
            const uint4 w = *(const uint4*)(from + (r * 8 + (q ^ (r & 7))) * 8);
            f1[i * 1 + j][4] = w.x; f1[i * 1 + j][5] = w.y; f1[i * 1 + j][6] = w.z; f1[i * 1 + j][7] = w.w;
          }
        }
      }
      {
        const u16* const from = t1 + 0 * 2048;
        const int row = 0 + (lane >> 0 & 15) * 1;
        const int col = 16 * c1 + 0;
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          #pragma unroll
          for (int j = 0; j < 2; j++) {
            const int r = row + j * 16, q = col / 8 + i * 2;
            const uint4 w = *(const uint4*)(from + (r * 8 + (q ^ (r & 7))) * 8);
            f2[i * 2 + j][0] = w.x; f2[i * 2 + j][1] = w.y; f2[i * 2 + j][2] = w.z; f2[i * 2 + j][3] = w.w;
          }
        }
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          #pragma unroll
          for (int j = 0; j < 2; j++) {
            const int r = row + j * 16, q = col / 8 + 1 + i * 2;
            const uint4 w = *(const uint4*)(from + (r * 8 + (q ^ (r & 7))) * 8);
            f2[i * 2 + j][4] = w.x; f2[i * 2 + j][5] = w.y; f2[i * 2 + j][6] = w.z; f2[i * 2 + j][7] = w.w;
          }
        }
      }
      #pragma unroll
      for (int d = 0; d < 1; d++) {
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          #pragma unroll
          for (int j = 0; j < 2; j++) {
            mma(f0[i * 2 + j], f1[i * 1 + d] + 0, f2[d * 2 + j] + 0);
          }
        }
      }
    }
    {
      const int col0 = 32 * c0 + (lane >> 4 & 1) * 1;
      #pragma unroll
      for (int i = 0; i < 1; i++) {
        #pragma unroll
        for (int j = 0; j < 2; j++) {
          {
            float m0 = f0[i * 2 + j][0];
            {
              int m3 = col0 + j * 16 + 0;
                const int v0 = u[1];
                const float v1 = m0;
                const int v2 = m3;
                const float v5 = (v1 * 0.18033688f);
                const bool v6 = (v2 < v0);
                const float v7 = (v6 ? v5 : __uint_as_float(0xff800000u));
                m0 = v7;
            }
            f0[i * 2 + j][0] = m0;
          }
          {
            float m0 = f0[i * 2 + j][1];
            {
              int m3 = col0 + j * 16 + 2;
                const int v0 = u[1];
                const float v1 = m0;
                const int v2 = m3;
                const float v5 = (v1 * 0.18033688f);
                const bool v6 = (v2 < v0);
                const float v7 = (v6 ? v5 : __uint_as_float(0xff800000u));
                m0 = v7;
            }
            f0[i * 2 + j][1] = m0;
          }
          {
            float m0 = f0[i * 2 + j][2];
            {
              int m3 = col0 + j * 16 + 4;
                const int v0 = u[1];
                const float v1 = m0;
                const int v2 = m3;
                const float v5 = (v1 * 0.18033688f);
                const bool v6 = (v2 < v0);
                const float v7 = (v6 ? v5 : __uint_as_float(0xff800000u));
                m0 = v7;
            }
            f0[i * 2 + j][2] = m0;
          }
          {
            float m0 = f0[i * 2 + j][3];
            {
              int m3 = col0 + j * 16 + 6;
                const int v0 = u[1];
                const float v1 = m0;
                const int v2 = m3;
                const float v5 = (v1 * 0.18033688f);
                const bool v6 = (v2 < v0);
                const float v7 = (v6 ? v5 : __uint_as_float(0xff800000u));
                m0 = v7;
            }
            f0[i * 2 + j][3] = m0;
          }
          {
            float m0 = f0[i * 2 + j][4];
            {
              int m3 = col0 + j * 16 + 8;
                const int v0 = u[1];
                const float v1 = m0;
                const int v2 = m3;
                const float v5 = (v1 * 0.18033688f);
                const bool v6 = (v2 < v0);
                const float v7 = (v6 ? v5 : __uint_as_float(0xff800000u));
                m0 = v7;
            }
            f0[i * 2 + j][4] = m0;
          }
          {
            float m0 = f0[i * 2 + j][5];
            {
              int m3 = col0 + j * 16 + 10;
                const int v0 = u[1];
                const float v1 = m0;
                const int v2 = m3;
                const float v5 = (v1 * 0.18033688f);
                const bool v6 = (v2 < v0);
                const float v7 = (v6 ? v5 : __uint_as_float(0xff800000u));
                m0 = v7;
            }
            f0[i * 2 + j][5] = m0;
          }
          {
            float m0 = f0[i * 2 + j][6];
            {
              int m3 = col0 + j * 16 + 12;
                const int v0 = u[1];
                const float v1 = m0;
                const int v2 = m3;
                const float v5 = (v1 * 0.18033688f);
                const bool v6 = (v2 < v0);
                const float v7 = (v6 ? v5 : __uint_as_float(0xff800000u));
                m0 = v7;
            }
            f0[i * 2 + j][6] = m0;
          }
          {
            float m0 = f0[i * 2 + j][7];
            {
              int m3 = col0 + j * 16 + 14;
                const int v0 = u[1];
                const float v1 = m0;
                const int v2 = m3;
                const float v5 = (v1 * 0.18033688f);
                const bool v6 = (v2 < v0);
                const float v7 = (v6 ? v5 : __uint_as_float(0xff800000u));
                m0 = v7;
            }
            f0[i * 2 + j][7] = m0;
          }
        }
      }
    }
    {
      #pragma unroll
      for (int i = 0; i < 1; i++) {
        {
          float m0 = f6[i * 1 + 0];
          float m4 = f4[i * 1 + 0];
          {
              const float v0 = m4;
              m0 = v0;
          }
          f6[i * 1 + 0] = m0;
        }
      }
    }
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      {
        float x = f0[i * 2 + 0][0];
        x = fmaxf(x, f0[i * 2 + 0][1]);
        x = fmaxf(x, f0[i * 2 + 0][2]);
        x = fmaxf(x, f0[i * 2 + 0][3]);
        x = fmaxf(x, f0[i * 2 + 0][4]);
        x = fmaxf(x, f0[i * 2 + 0][5]);
        x = fmaxf(x, f0[i * 2 + 0][6]);
        x = fmaxf(x, f0[i * 2 + 0][7]);
        #pragma unroll
        for (int j = 1; j < 2; j++) {
          x = fmaxf(x, f0[i * 2 + j][0]);
          x = fmaxf(x, f0[i * 2 + j][1]);
          x = fmaxf(x, f0[i * 2 + j][2]);
          x = fmaxf(x, f0[i * 2 + j][3]);
          x = fmaxf(x, f0[i * 2 + j][4]);
          x = fmaxf(x, f0[i * 2 + j][5]);
          x = fmaxf(x, f0[i * 2 + j][6]);
          x = fmaxf(x, f0[i * 2 + j][7]);
        }
        x = fmaxf(x, of_lane(x, lane ^ 16));
        f4[i * 1 + 0] = fmaxf(f4[i * 1 + 0], x);
      }
    }
    {
      #pragma unroll
      for (int i = 0; i < 1; i++) {
        {
          float m0 = f6[i * 1 + 0];
          float m4 = f4[i * 1 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 - v1);
              m0 = v2;
          }
          f6[i * 1 + 0] = m0;
        }
      }
    }
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      f6[i] = power_of_2(f6[i]);
    }
    {
      #pragma unroll
      for (int i = 0; i < 1; i++) {
        #pragma unroll
        for (int j = 0; j < 2; j++) {
          {
            float m0 = f0[i * 2 + j][0];
            float m4 = f4[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 - v1);
                m0 = v2;
            }
            f0[i * 2 + j][0] = m0;
          }
          {
            float m0 = f0[i * 2 + j][1];
            float m4 = f4[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 - v1);
                m0 = v2;
            }
            f0[i * 2 + j][1] = m0;
          }
          {
            float m0 = f0[i * 2 + j][2];
            float m4 = f4[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 - v1);
                m0 = v2;
            }
            f0[i * 2 + j][2] = m0;
          }
          {
            float m0 = f0[i * 2 + j][3];
            float m4 = f4[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 - v1);
                m0 = v2;
            }
            f0[i * 2 + j][3] = m0;
          }
          {
            float m0 = f0[i * 2 + j][4];
            float m4 = f4[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 - v1);
                m0 = v2;
            }
            f0[i * 2 + j][4] = m0;
          }
          {
            float m0 = f0[i * 2 + j][5];
            float m4 = f4[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 - v1);
                m0 = v2;
            }
            f0[i * 2 + j][5] = m0;
          }
          {
            float m0 = f0[i * 2 + j][6];
            float m4 = f4[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 - v1);
                m0 = v2;
            }
            f0[i * 2 + j][6] = m0;
          }
          {
            float m0 = f0[i * 2 + j][7];
            float m4 = f4[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 - v1);
                m0 = v2;
            }
            f0[i * 2 + j][7] = m0;
          }
        }
      }
    }
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      f0[i][0] = power_of_2(f0[i][0]);
      f0[i][1] = power_of_2(f0[i][1]);
      f0[i][2] = power_of_2(f0[i][2]);
      f0[i][3] = power_of_2(f0[i][3]);
      f0[i][4] = power_of_2(f0[i][4]);
      f0[i][5] = power_of_2(f0[i][5]);
      f0[i][6] = power_of_2(f0[i][6]);
      f0[i][7] = power_of_2(f0[i][7]);
    }
    {
      #pragma unroll
      for (int i = 0; i < 1; i++) {
        {
          float m0 = f5[i * 1 + 0];
          float m4 = f6[i * 1 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f5[i * 1 + 0] = m0;
        }
      }
    }
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      {
        float x = f0[i * 2 + 0][0];
        x = x + f0[i * 2 + 0][1];
        x = x + f0[i * 2 + 0][2];
        x = x + f0[i * 2 + 0][3];
        x = x + f0[i * 2 + 0][4];
        x = x + f0[i * 2 + 0][5];
        x = x + f0[i * 2 + 0][6];
        x = x + f0[i * 2 + 0][7];
        #pragma unroll
        for (int j = 1; j < 2; j++) {
          x = x + f0[i * 2 + j][0];
          x = x + f0[i * 2 + j][1];
          x = x + f0[i * 2 + j][2];
          x = x + f0[i * 2 + j][3];
          x = x + f0[i * 2 + j][4];
          x = x + f0[i * 2 + j][5];
          x = x + f0[i * 2 + j][6];
          x = x + f0[i * 2 + j][7];
        }
        x = x + of_lane(x, lane ^ 16);
        f5[i * 1 + 0] = f5[i * 1 + 0] + x;
      }
    }
    {
      #pragma unroll
      for (int i = 0; i < 1; i++) {
        #pragma unroll
        for (int j = 0; j < 2; j++) {
          {
            float m0 = f7[i * 2 + j][0];
            float m4 = f6[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f7[i * 2 + j][0] = m0;
          }
          {
            float m0 = f7[i * 2 + j][1];
            float m4 = f6[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f7[i * 2 + j][1] = m0;
          }
          {
            float m0 = f7[i * 2 + j][2];
            float m4 = f6[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f7[i * 2 + j][2] = m0;
          }
          {
            float m0 = f7[i * 2 + j][3];
            float m4 = f6[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f7[i * 2 + j][3] = m0;
          }
          {
            float m0 = f7[i * 2 + j][4];
            float m4 = f6[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f7[i * 2 + j][4] = m0;
          }
          {
            float m0 = f7[i * 2 + j][5];
            float m4 = f6[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f7[i * 2 + j][5] = m0;
          }
          {
            float m0 = f7[i * 2 + j][6];
            float m4 = f6[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f7[i * 2 + j][6] = m0;
          }
          {
            float m0 = f7[i * 2 + j][7];
            float m4 = f6[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f7[i * 2 + j][7] = m0;
          }
        }
      }
    }
    {
      #pragma unroll
      for (int i = 0; i < 1; i++) {
        #pragma unroll
        for (int j = 0; j < 2; j++) {
          {
            float m0 = f8[i * 2 + j][0];
            float m4 = f6[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f8[i * 2 + j][0] = m0;
          }
          {
            float m0 = f8[i * 2 + j][1];
            float m4 = f6[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f8[i * 2 + j][1] = m0;
          }
          {
            float m0 = f8[i * 2 + j][2];
            float m4 = f6[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f8[i * 2 + j][2] = m0;
          }
          {
            float m0 = f8[i * 2 + j][3];
            float m4 = f6[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f8[i * 2 + j][3] = m0;
          }
          {
            float m0 = f8[i * 2 + j][4];
            float m4 = f6[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f8[i * 2 + j][4] = m0;
          }
          {
            float m0 = f8[i * 2 + j][5];
            float m4 = f6[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f8[i * 2 + j][5] = m0;
          }
          {
            float m0 = f8[i * 2 + j][6];
            float m4 = f6[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f8[i * 2 + j][6] = m0;
          }
          {
            float m0 = f8[i * 2 + j][7];
            float m4 = f6[i * 1 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f8[i * 2 + j][7] = m0;
          }
        }
      }
    }
    #pragma unroll
    for (int c2 = 0; c2 < 32 / 16 + (32 % 16 > 0); c2++) {
      #pragma unroll
      for (int i = 0; i < 1; i++) {
        #pragma unroll
        for (int j = 0; j < 1; j++) {
          const int s = i * 2 + (16 * c2 + j * 16) / 16;
          f1[i * 1 + j][0] = of_half(pack_half(f0[s + 0][0], f0[s + 0][1]), lane, 0);
          f1[i * 1 + j][1] = of_half(pack_half(f0[s + 0][2], f0[s + 0][3]), lane, 0);
          f1[i * 1 + j][2] = of_half(pack_half(f0[s + 0][4], f0[s + 0][5]), lane, 0);
          f1[i * 1 + j][3] = of_half(pack_half(f0[s + 0][6], f0[s + 0][7]), lane, 0);
          f1[i * 1 + j][4] = of_half(pack_half(f0[s + 0][0], f0[s + 0][1]), lane, 1);
          f1[i * 1 + j][5] = of_half(pack_half(f0[s + 0][2], f0[s + 0][3]), lane, 1);
          f1[i * 1 + j][6] = of_half(pack_half(f0[s + 0][4], f0[s + 0][5]), lane, 1);
          f1[i * 1 + j][7] = of_half(pack_half(f0[s + 0][6], f0[s + 0][7]), lane, 1);
        }
      }
      {
        const u16* const from = t2 + 0 * 2048;
        const int first = 16 * c2 + 0;
        const int col = 0 + (lane >> 0 & 15) * 1;
        #pragma unroll
        for (int e = 0; e < 16; e++) {
          const int row = first + (e >> 0 & 7) * 2 + (e >> 3 & 1) * 1;
          #pragma unroll
          for (int i = 0; i < 1; i++) {
            #pragma unroll
            for (int j = 0; j < 2; j++) {
              const int r = row + i * 16, q = col / 8 + j * 2;
              const u32 x = from[(r * 8 + (q ^ (r >> 2 & 7))) * 8 + col % 8];
              f3[i * 2 + j][e / 2] = e % 2 ? f3[i * 2 + j][e / 2] | x << 16 : x;
            }
          }
        }
      }
      #pragma unroll
      for (int d = 0; d < 1; d++) {
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          #pragma unroll
          for (int j = 0; j < 2; j++) {
            mma(f7[i * 2 + j], f1[i * 1 + d] + 0, f3[d * 2 + j] + 0);
          }
        }
      }
      {
        const u16* const from = t2 + 0 * 2048;
        const int first = 16 * c2 + 0;
        const int col = 32 + (lane >> 0 & 15) * 1;
        #pragma unroll
        for (int e = 0; e < 16; e++) {
          const int row = first + (e >> 0 & 7) * 2 + (e >> 3 & 1) * 1;
          #pragma unroll
          for (int i = 0; i < 1; i++) {
            #pragma unroll
            for (int j = 0; j < 2; j++) {
              const int r = row + i * 16, q = col / 8 + j * 2;
              const u32 x = from[(r * 8 + (q ^ (r >> 2 & 7))) * 8 + col % 8];
              f3[i * 2 + j][e / 2] = e % 2 ? f3[i * 2 + j][e / 2] | x << 16 : x;
            }
          }
        }
      }
      #pragma unroll
      for (int d = 0; d < 1; d++) {
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          #pragma unroll
          for (int j = 0; j < 2; j++) {
            mma(f8[i * 2 + j], f1[i * 1 + d] + 0, f3[d * 2 + j] + 0);
          }
        }
      }
    }
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int n = thread + i * 128, r = n / 8, q = n % 8;
      {
        *(uint4*)(t1 + 0 * 2048 + (r * 8 + (q ^ (r & 7))) * 8) = uint4{x0[i][0], x0[i][1], x0[i][2], x0[i][3]};
      }
    }
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int n = thread + i * 128, r = n / 8, q = n % 8;
      {
        *(uint4*)(t2 + 0 * 2048 + (r * 8 + (q ^ (r >> 2 & 7))) * 8) = uint4{x1[i][0], x1[i][1], x1[i][2], x1[i][3]};
      }
    }
    __syncthreads();
  }
  {
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      {
        float m0 = f5[i * 1 + 0];
        {
            const float v0 = m0;
            const bool v3 = (v0 == 0.0f);
            const float v4 = (1.0f / v0);
            const float v5 = (v3 ? 0.0f : v4);
            m0 = v5;
        }
        f5[i * 1 + 0] = m0;
      }
    }
  }
  {
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      #pragma unroll
      for (int j = 0; j < 2; j++) {
        {
          float m0 = f7[i * 2 + j][0];
          float m4 = f5[i * 1 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f7[i * 2 + j][0] = m0;
        }
        {
          float m0 = f7[i * 2 + j][1];
          float m4 = f5[i * 1 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f7[i * 2 + j][1] = m0;
        }
        {
          float m0 = f7[i * 2 + j][2];
          float m4 = f5[i * 1 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f7[i * 2 + j][2] = m0;
        }
        {
          float m0 = f7[i * 2 + j][3];
          float m4 = f5[i * 1 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f7[i * 2 + j][3] = m0;
        }
        {
          float m0 = f7[i * 2 + j][4];
          float m4 = f5[i * 1 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f7[i * 2 + j][4] = m0;
        }
        {
          float m0 = f7[i * 2 + j][5];
          float m4 = f5[i * 1 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f7[i * 2 + j][5] = m0;
        }
        {
          float m0 = f7[i * 2 + j][6];
          float m4 = f5[i * 1 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f7[i * 2 + j][6] = m0;
        }
        {
          float m0 = f7[i * 2 + j][7];
          float m4 = f5[i * 1 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f7[i * 2 + j][7] = m0;
        }
      }
    }
  }
  {
    const int row0 = 16 * warp_row + 64 * group_row + (lane >> 0 & 15) * 1;
    const int col0 = 0 + (lane >> 4 & 1) * 1;
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      #pragma unroll
      for (int j = 0; j < 2; j++) {
        {
          const int row = row0 + i * 16 + 0, col = col0 + j * 16 + 0;
          if (row < d0 && col < 64) {
            float m0 = f7[i * 2 + j][0];
            *(g3 + (i64)row * d24 + col) = to_half(m0);
          }
        }
        {
          const int row = row0 + i * 16 + 0, col = col0 + j * 16 + 2;
          if (row < d0 && col < 64) {
            float m0 = f7[i * 2 + j][1];
            *(g3 + (i64)row * d24 + col) = to_half(m0);
          }
        }
        {
          const int row = row0 + i * 16 + 0, col = col0 + j * 16 + 4;
          if (row < d0 && col < 64) {
            float m0 = f7[i * 2 + j][2];
            *(g3 + (i64)row * d24 + col) = to_half(m0);
          }
        }
        {
          const int row = row0 + i * 16 + 0, col = col0 + j * 16 + 6;
          if (row < d0 && col < 64) {
            float m0 = f7[i * 2 + j][3];
            *(g3 + (i64)row * d24 + col) = to_half(m0);
          }
        }
        {
          const int row = row0 + i * 16 + 0, col = col0 + j * 16 + 8;
          if (row < d0 && col < 64) {
            float m0 = f7[i * 2 + j][4];
            *(g3 + (i64)row * d24 + col) = to_half(m0);
          }
        }
        {
          const int row = row0 + i * 16 + 0, col = col0 + j * 16 + 10;
          if (row < d0 && col < 64) {
            float m0 = f7[i * 2 + j][5];
            *(g3 + (i64)row * d24 + col) = to_half(m0);
          }
        }
        {
          const int row = row0 + i * 16 + 0, col = col0 + j * 16 + 12;
          if (row < d0 && col < 64) {
            float m0 = f7[i * 2 + j][6];
            *(g3 + (i64)row * d24 + col) = to_half(m0);
          }
        }
        {
          const int row = row0 + i * 16 + 0, col = col0 + j * 16 + 14;
          if (row < d0 && col < 64) {
            float m0 = f7[i * 2 + j][7];
            *(g3 + (i64)row * d24 + col) = to_half(m0);
          }
        }
      }
    }
  }
  {
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      #pragma unroll
      for (int j = 0; j < 2; j++) {
        {
          float m0 = f8[i * 2 + j][0];
          float m4 = f5[i * 1 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f8[i * 2 + j][0] = m0;
        }
        {
          float m0 = f8[i * 2 + j][1];
          float m4 = f5[i * 1 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f8[i * 2 + j][1] = m0;
        }
        {
          float m0 = f8[i * 2 + j][2];
          float m4 = f5[i * 1 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f8[i * 2 + j][2] = m0;
        }
        {
          float m0 = f8[i * 2 + j][3];
          float m4 = f5[i * 1 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f8[i * 2 + j][3] = m0;
        }
        {
          float m0 = f8[i * 2 + j][4];
          float m4 = f5[i * 1 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f8[i * 2 + j][4] = m0;
        }
        {
          float m0 = f8[i * 2 + j][5];
          float m4 = f5[i * 1 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f8[i * 2 + j][5] = m0;
        }
        {
          float m0 = f8[i * 2 + j][6];
          float m4 = f5[i * 1 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f8[i * 2 + j][6] = m0;
        }
        {
          float m0 = f8[i * 2 + j][7];
          float m4 = f5[i * 1 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f8[i * 2 + j][7] = m0;
        }
      }
    }
  }
  {
    const int row0 = 16 * warp_row + 64 * group_row + (lane >> 0 & 15) * 1;
    const int col0 = 32 + (lane >> 4 & 1) * 1;
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      #pragma unroll
      for (int j = 0; j < 2; j++) {
        {
          const int row = row0 + i * 16 + 0, col = col0 + j * 16 + 0;
          if (row < d0 && col < 64) {
            float m0 = f8[i * 2 + j][0];
            *(g3 + (i64)row * d24 + col) = to_half(m0);
          }
        }
        {
          const int row = row0 + i * 16 + 0, col = col0 + j * 16 + 2;
          if (row < d0 && col < 64) {
            float m0 = f8[i * 2 + j][1];
            *(g3 + (i64)row * d24 + col) = to_half(m0);
          }
        }
        {
          const int row = row0 + i * 16 + 0, col = col0 + j * 16 + 4;
          if (row < d0 && col < 64) {
            float m0 = f8[i * 2 + j][2];
            *(g3 + (i64)row * d24 + col) = to_half(m0);
          }
        }
        {
          const int row = row0 + i * 16 + 0, col = col0 + j * 16 + 6;
          if (row < d0 && col < 64) {
            float m0 = f8[i * 2 + j][3];
            *(g3 + (i64)row * d24 + col) = to_half(m0);
          }
        }
        {
          const int row = row0 + i * 16 + 0, col = col0 + j * 16 + 8;
          if (row < d0 && col < 64) {
            float m0 = f8[i * 2 + j][4];
            *(g3 + (i64)row * d24 + col) = to_half(m0);
          }
        }
        {
          const int row = row0 + i * 16 + 0, col = col0 + j * 16 + 10;
          if (row < d0 && col < 64) {
            float m0 = f8[i * 2 + j][5];
            *(g3 + (i64)row * d24 + col) = to_half(m0);
          }
        }
        {
          const int row = row0 + i * 16 + 0, col = col0 + j * 16 + 12;
          if (row < d0 && col < 64) {
            float m0 = f8[i * 2 + j][6];
            *(g3 + (i64)row * d24 + col) = to_half(m0);
          }
        }
        {
          const int row = row0 + i * 16 + 0, col = col0 + j * 16 + 14;
          if (row < d0 && col < 64) {
            float m0 = f8[i * 2 + j][7];
            *(g3 + (i64)row * d24 + col) = to_half(m0);
          }
        }
      }
    }
  }
}
