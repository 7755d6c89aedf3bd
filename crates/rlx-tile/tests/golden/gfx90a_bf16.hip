// program matmul.bf16.64x64x32.2x2.s2 for gfx90a bf16 warps 2x2
//   b0 bf16 read
//   b1 bf16 read
//   b2 bf16 write
//   uniforms 12
//   grid [u0, u1] by 64x64 batch [] bands 8
//   g0 b0 base u3 [u0, u2] strides [u4, 1] batch [] vector 8
//   g1 b1 base u6 [u2, u1] strides [u7, 1] batch [] vector 8
//   g2 b2 base u9 [u0, u1] strides [u10, 1] batch [] vector 4
//   t0 bf16[64, 32] stages 2 swizzle 2 >> 1
//   t1 bf16[32, 64] stages 2 swizzle 3 >> 2
//   f0 sum[32, 32]
//   f1 left[32, 32]
//   f2 right[32, 32]
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
__device__ __forceinline__ void mma(float* c, const u32* a, const u32* b) {
  typedef short operand __attribute__((ext_vector_type(4)));
  typedef float sums __attribute__((ext_vector_type(4)));
  operand first, second;
  sums s;
  __builtin_memcpy(&first, b, sizeof first);
  __builtin_memcpy(&second, a, sizeof second);
  __builtin_memcpy(&s, c, sizeof s);
  s = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(first, second, s, 0, 0, 0);
  __builtin_memcpy(c, &s, sizeof s);
}
extern "C" __global__ void __launch_bounds__(256) k(const int* __restrict__ u, const u16* __restrict__ b0, const u16* __restrict__ b1, u16* __restrict__ b2) {
  __shared__ __align__(128) u16 t0[4096];
  __shared__ __align__(128) u16 t1[4096];
  const int d0 = u[0];
  const int d1 = u[1];
  const int d2 = u[2];
  const int d3 = u[3];
  const int d4 = u[4];
  const int d6 = u[6];
  const int d7 = u[7];
  const int d9 = u[9];
  const int d10 = u[10];
  const int thread = (int)threadIdx.x, lane = thread & 63;
  const int warp_row = (thread >> 6) / 2, warp_col = (thread >> 6) % 2;
  const u32 rows = ((u32)d0 + 63u) / 64u, cols = ((u32)d1 + 63u) / 64u;
  const u32 group = blockIdx.y * gridDim.x + blockIdx.x, plane = group % (rows * cols);
  const u32 band = plane / (8u * cols), within = plane % (8u * cols);
  const u32 height = rows - band * 8u < 8u ? rows - band * 8u : 8u;
  const int group_row = (int)(band * 8u + within % height), group_col = (int)(within / height);
  const int batch = (int)(group / (rows * cols));
  if (batch > 0) return;
  const u16* __restrict__ const g0 = b0 + d3;
  const u16* __restrict__ const g1 = b1 + d6;
  u16* __restrict__ const g2 = b2 + d9;
  float f0[4][4];
  u32 f1[2][4];
  u32 f2[2][4];
  u32 x0[1][4];
  u32 x1[1][4];
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    f0[i][0] = 0.0f; f0[i][1] = 0.0f; f0[i][2] = 0.0f; f0[i][3] = 0.0f;
  }
  {
    u32 x[1][4];
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      const int n = thread + i * 256, r = n / 4, q = n % 4;
      const int row = 64 * group_row + r, col = 0 + q * 8;
      {
        const uint4 w0 = row < d0 && col < d2 ? *(const uint4*)(g0 + (i64)row * d4 + col) : uint4{0, 0, 0, 0};
        x[i][0] = w0.x; x[i][1] = w0.y; x[i][2] = w0.z; x[i][3] = w0.w;
      }
    }
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      const int n = thread + i * 256, r = n / 4, q = n % 4;
      {
        *(uint4*)(t0 + 0 * 2048 + (r * 4 + (q ^ (r >> 1 & 3))) * 8) = uint4{x[i][0], x[i][1], x[i][2], x[i][3]};
      }
    }
  }
  {
    u32 x[1][4];
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      const int n = thread + i * 256, r = n / 8, q = n % 8;
      const int row = 0 + r, col = 64 * group_col + q * 8;
      {
        const uint4 w0 = row < d2 && col < d1 ? *(const uint4*)(g1 + (i64)row * d7 + col) : uint4{0, 0, 0, 0};
        x[i][0] = w0.x; x[i][1] = w0.y; x[i][2] = w0.z; x[i][3] = w0.w;
      }
    }
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      const int n = thread + i * 256, r = n / 8, q = n % 8;
      {
        *(uint4*)(t1 + 0 * 2048 + (r * 8 + (q ^ (r >> 2 & 7))) * 8) = uint4{x[i][0], x[i][1], x[i][2], x[i][3]};
      }
    }
  }
  __syncthreads();
  #pragma unroll 1
  for (int c0 = 0; c0 < d2 / 32 + (d2 % 32 > 0); c0++) {
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      const int n = thread + i * 256, r = n / 4, q = n % 4;
      const int row = 64 * group_row + r, col = 32 * c0 + 32 + q * 8;
      {
        const uint4 w0 = row < d0 && col < d2 ? *(const uint4*)(g0 + (i64)row * d4 + col) : uint4{0, 0, 0, 0};
        x0[i][0] = w0.x; x0[i][1] = w0.y; x0[i][2] = w0.z; x0[i][3] = w0.w;
      }
    }
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      const int n = thread + i * 256, r = n / 8, q = n % 8;
      const int row = 32 * c0 + 32 + r, col = 64 * group_col + q * 8;
      {
        const uint4 w0 = row < d2 && col < d1 ? *(const uint4*)(g1 + (i64)row * d7 + col) : uint4{0, 0, 0, 0};
        x1[i][0] = w0.x; x1[i][1] = w0.y; x1[i][2] = w0.z; x1[i][3] = w0.w;
      }
    }
    #pragma unroll
    for (int c1 = 0; c1 < 32 / 32 + (32 % 32 > 0); c1++) {
      {
        const u16* const from = t0 + c0 % 2 * 2048;
        const int row = 32 * warp_row + (lane >> 0 & 15) * 1;
        const int col = 32 * c1 + (lane >> 4 & 3) * 8;
        #pragma unroll
        for (int i = 0; i < 2; i++) {
          #pragma unroll
          for (int j = 0; j < 1; j++) {
            const int r = row + i * 16, q = col / 8 + j * 4;
            const uint4 w = *(const uint4*)(from + (r * 4 + (q ^ (r >> 1 & 3))) * 8);
            f1[i * 1 + j][0] = w.x; f1[i * 1 + j][1] = w.y; f1[i * 1 + j][2] = w.z; f1[i * 1 + j][3] = w.w;
          }
        }
      }
      {
        const u16* const from = t1 + c0 % 2 * 2048;
        const int first = 32 * c1 + (lane >> 4 & 3) * 8;
        const int col = 32 * warp_col + (lane >> 0 & 15) * 1;
        #pragma unroll
        for (int e = 0; e < 8; e++) {
          const int row = first + e;
          #pragma unroll
          for (int i = 0; i < 1; i++) {
            #pragma unroll
            for (int j = 0; j < 2; j++) {
              const int r = row + i * 32, q = col / 8 + j * 2;
              const u32 x = from[(r * 8 + (q ^ (r >> 2 & 7))) * 8 + col % 8];
              f2[i * 2 + j][e / 2] = e % 2 ? f2[i * 2 + j][e / 2] | x << 16 : x;
            }
          }
        }
      }
      #pragma unroll
      for (int d = 0; d < 1; d++) {
        #pragma unroll
        for (int i = 0; i < 2; i++) {
          #pragma unroll
          for (int j = 0; j < 2; j++) {
            mma(f0[i * 2 + j], f1[i * 1 + d] + 0, f2[d * 2 + j] + 0);
          }
        }
        #pragma unroll
        for (int i = 0; i < 2; i++) {
          #pragma unroll
          for (int j = 0; j < 2; j++) {
            mma(f0[i * 2 + j], f1[i * 1 + d] + 2, f2[d * 2 + j] + 2);
          }
        }
      }
    }
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      const int n = thread + i * 256, r = n / 4, q = n % 4;
      {
        *(uint4*)(t0 + (c0 + 1) % 2 * 2048 + (r * 4 + (q ^ (r >> 1 & 3))) * 8) = uint4{x0[i][0], x0[i][1], x0[i][2], x0[i][3]};
      }
    }
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      const int n = thread + i * 256, r = n / 8, q = n % 8;
      {
        *(uint4*)(t1 + (c0 + 1) % 2 * 2048 + (r * 8 + (q ^ (r >> 2 & 7))) * 8) = uint4{x1[i][0], x1[i][1], x1[i][2], x1[i][3]};
      }
    }
    __syncthreads();
  }
  {
    const int row0 = 64 * group_row + 32 * warp_row + (lane >> 0 & 15) * 1;
    const int col0 = 64 * group_col + 32 * warp_col + (lane >> 4 & 3) * 4;
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      #pragma unroll
      for (int j = 0; j < 2; j++) {
        {
          const int row = row0 + i * 16 + 0, col = col0 + j * 16 + 0;
          if (row < d0 && col < d1) {
            float y[4];
            {
              float m0 = f0[i * 2 + j][0];
              y[0] = m0;
            }
            {
              float m0 = f0[i * 2 + j][1];
              y[1] = m0;
            }
            {
              float m0 = f0[i * 2 + j][2];
              y[2] = m0;
            }
            {
              float m0 = f0[i * 2 + j][3];
              y[3] = m0;
            }
            *(uint2*)(g2 + (i64)row * d10 + col) = uint2{pack_brain(y[0], y[1]), pack_brain(y[2], y[3])};
          }
        }
      }
    }
  }
}
