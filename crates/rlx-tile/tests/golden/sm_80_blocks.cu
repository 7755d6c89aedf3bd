// program matmul.f16.64x64x32.2x2.s2 for sm_80 f16 warps 2x2
//   b0 f16 read
//   b1 u4 read
//   b2 f16 write
//   b3 f32 read
//   b4 f16 read
//   uniforms 18
//   grid [u0, u1] by 64x64 batch [] bands 8
//   g0 b0 base u3 [u0, u2] strides [u4, 1] batch [] vector 8
//   g1 b1 base u6 [u1, u2] strides [u7, 1] batch [] vector 8
//   g2 b2 base u9 [u0, u1] strides [u10, 1] batch [] vector 2
//   g3 b3 base u12 [u1, u2] strides [u13, u14] batch [] vector 1
//   g4 b4 base u15 [u1, u2] strides [u16, u17] batch [] vector 1
//   t0 f16[64, 32] stages 2 swizzle 2 >> 1
//   t1 f16[64, 32] stages 2 swizzle 2 >> 1
//   f0 sum[32, 32]
//   f1 left[32, 16]
//   f2 right[16, 32]
//   t1 from g1 with g3 by 32, g4 by 32
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64; typedef long long i64;
__device__ __forceinline__ float from_half(u16 h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
__device__ __forceinline__ u16 to_half(float f) { u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
__device__ __forceinline__ float from_brain(u16 h) { return __uint_as_float((u32)h << 16); }
__device__ __forceinline__ u16 to_brain(float f) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  u16 h; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h;
#endif
  u32 b = __float_as_uint(f);
  return (b & 0x7fffffffu) > 0x7f800000u ? (u16)((b >> 16) | 0x40u) : (u16)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}
__device__ __forceinline__ u32 shared_address(const void* p) {
  return (u32)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void load_matrices(u32* r, const u16* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)) : "memory");
}
__device__ __forceinline__ void load_matrices_trans(u32* r, const u16* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)) : "memory");
}
__device__ __forceinline__ u32 pack_half(float low, float high) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ u32 pack_brain(float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ void copy_async_16(u16* to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(shared_address(to)), "l"(from), "r"(inside ? 16 : 0) : "memory");
}
__device__ __forceinline__ void copy_async_8(u16* to, const void* from, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" :: "r"(shared_address(to)), "l"(from), "r"(inside ? 8 : 0) : "memory");
}
__device__ __forceinline__ void copy_async_4(u16* to, const void* from, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" :: "r"(shared_address(to)), "l"(from), "r"(inside ? 4 : 0) : "memory");
}
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void copy_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
__device__ __forceinline__ void mma(float* c, const u32* a, const u32* b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
extern "C" __global__ void __launch_bounds__(128, __CUDA_ARCH__ >= 1200 ? 5 : __CUDA_ARCH__ >= 1000 ? 6 : 0) k(const int* __restrict__ u, const u16* __restrict__ b0, const u8* __restrict__ b1, u16* __restrict__ b2, const float* __restrict__ b3, const u16* __restrict__ b4) {
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
  const int d12 = u[12];
  const int d13 = u[13];
  const int d14 = u[14];
  const int d15 = u[15];
  const int d16 = u[16];
  const int d17 = u[17];
  const int thread = (int)threadIdx.x, lane = thread & 31;
  const int warp_row = (thread >> 5) / 2, warp_col = (thread >> 5) % 2;
  const u32 rows = ((u32)d0 + 63u) / 64u, cols = ((u32)d1 + 63u) / 64u;
  const u32 group = blockIdx.y * gridDim.x + blockIdx.x, plane = group % (rows * cols);
  const u32 band = plane / (8u * cols), within = plane % (8u * cols);
  const u32 height = rows - band * 8u < 8u ? rows - band * 8u : 8u;
  const int group_row = (int)(band * 8u + within % height), group_col = (int)(within / height);
  const int batch = (int)(group / (rows * cols));
  if (batch > 0) return;
  const u16* __restrict__ const g0 = b0 + d3;
  const u8* __restrict__ const g1 = b1 + (d6) / 2;
  u16* __restrict__ const g2 = b2 + d9;
  const float* __restrict__ const g3 = b3 + d12;
  const u16* __restrict__ const g4 = b4 + d15;
  float f0[8][4];
  u32 f1[2][4];
  u32 f2[2][4];
  u32 x1[2][1];
  u32 x1_0[2][1];
  u32 x1_1[2][1];
  #pragma unroll
  for (int i = 0; i < 8; i++) {
    f0[i][0] = 0.0f; f0[i][1] = 0.0f; f0[i][2] = 0.0f; f0[i][3] = 0.0f;
  }
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    const int n = thread + i * 128, r = n / 4, q = n % 4;
    const int row = 64 * group_row + r, col = 0 + q * 8;
    {
      u16* const to = t0 + 0 * 2048 + (r * 4 + (q ^ (r >> 1 & 3))) * 8;
      {
        const bool inside = row < d0 && col < d2;
        copy_async_16(to + 0, inside ? g0 + (i64)row * d4 + col : g0, inside);
      }
    }
  }
  {
    u32 x[2][1];
    u32 x_0[2][1];
    u32 x_1[2][1];
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int n = thread + i * 128, r = n / 4, q = n % 4;
      const int row = 64 * group_col + r, col = 0 + q * 8;
      {
        x[i][0] = row < d1 && col < d2 ? *(const u32*)(g1 + ((i64)row * d7 + col) / 2) : 0u;
        {
          x_0[i][0] = row < d1 && col < d2 ? __float_as_uint(*(g3 + (i64)row * d13 + (i64)((u32)col / 32u) * d14)) : 0u;
        }
        {
          x_1[i][0] = row < d1 && col < d2 ? (u32)*(g4 + (i64)row * d16 + (i64)((u32)col / 32u) * d17) : 0u;
        }
      }
    }
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int n = thread + i * 128, r = n / 4, q = n % 4;
      const int row = 64 * group_col + r, col = 0 + q * 8;
      {
        float y[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
        if (row < d1 && col < d2) {
          #pragma unroll
          for (int e = 0; e < 8; e++) {
            float m4 = __uint_as_float(x_0[i][0]);
            float m5 = from_half((u16)(x_1[i][0 / 2] >> 16 * (0 % 2)));
            // the body of t1
            float m0 = __uint_as_float((1258291200u | (x[i][e / 8] >> 4 * (e % 8) & 15u))) - 8388608.0f;
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = m5;
                const float v3 = (v0 - v2);
                const float v4 = (v3 * v1);
                m0 = v4;
            }
            y[e] = m0;
          }
        }
        const u32 z[4] = {pack_half(y[0], y[1]), pack_half(y[2], y[3]), pack_half(y[4], y[5]), pack_half(y[6], y[7])};
        *(uint4*)(t1 + 0 * 2048 + (r * 4 + (q ^ (r >> 1 & 3))) * 8) = uint4{z[0], z[1], z[2], z[3]};
      }
    }
  }
  copy_commit();
  copy_wait<0>();
  __syncthreads();
  #pragma unroll 1
  for (int c0 = 0; c0 < d2 / 32 + (d2 % 32 > 0); c0++) {
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int n = thread + i * 128, r = n / 4, q = n % 4;
      const int row = 64 * group_row + r, col = 32 * c0 + 32 + q * 8;
      {
        u16* const to = t0 + (c0 + 1) % 2 * 2048 + (r * 4 + (q ^ (r >> 1 & 3))) * 8;
        {
          const bool inside = row < d0 && col < d2;
          copy_async_16(to + 0, inside ? g0 + (i64)row * d4 + col : g0, inside);
        }
      }
    }
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int n = thread + i * 128, r = n / 4, q = n % 4;
      const int row = 64 * group_col + r, col = 32 * c0 + 32 + q * 8;
      {
        x1[i][0] = row < d1 && col < d2 ? *(const u32*)(g1 + ((i64)row * d7 + col) / 2) : 0u;
        {
          x1_0[i][0] = row < d1 && col < d2 ? __float_as_uint(*(g3 + (i64)row * d13 + (i64)((u32)col / 32u) * d14)) : 0u;
        }
        {
          x1_1[i][0] = row < d1 && col < d2 ? (u32)*(g4 + (i64)row * d16 + (i64)((u32)col / 32u) * d17) : 0u;
        }
      }
    }
    copy_commit();
    #pragma unroll
    for (int c1 = 0; c1 < 32 / 16 + (32 % 16 > 0); c1++) {
      {
        const u16* const from = t0 + c0 % 2 * 2048;
        const int row = 32 * warp_row + (lane & 7) + (lane >> 3 & 1) * 8;
        const int col = 16 * c1 + (lane >> 4 & 1) * 8;
        #pragma unroll
        for (int i = 0; i < 2; i++) {
          #pragma unroll
          for (int j = 0; j < 1; j++) {
            const int r = row + i * 16, q = col / 8 + j * 2;
            load_matrices(f1[i * 1 + j], from + (r * 4 + (q ^ (r >> 1 & 3))) * 8);
          }
        }
      }
      {
        const u16* const from = t1 + c0 % 2 * 2048;
        const int row = 32 * warp_col + (lane & 7) + (lane >> 4 & 1) * 8;
        const int col = 16 * c1 + (lane >> 3 & 1) * 8;
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          #pragma unroll
          for (int j = 0; j < 2; j++) {
            const int r = row + j * 16, q = col / 8 + i * 2;
            load_matrices(f2[i * 2 + j], from + (r * 4 + (q ^ (r >> 1 & 3))) * 8);
          }
        }
      }
      #pragma unroll
      for (int d = 0; d < 1; d++) {
        #pragma unroll
        for (int i = 0; i < 2; i++) {
          #pragma unroll
          for (int j = 0; j < 4; j++) {
            mma(f0[i * 4 + j], f1[i * 1 + d] + 0, f2[d * 2 + j / 2] + 0 + j % 2 * 2);
          }
        }
      }
    }
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int n = thread + i * 128, r = n / 4, q = n % 4;
      const int row = 64 * group_col + r, col = 32 * c0 + 32 + q * 8;
      {
        float y[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
        if (row < d1 && col < d2) {
          #pragma unroll
          for (int e = 0; e < 8; e++) {
            float m4 = __uint_as_float(x1_0[i][0]);
            float m5 = from_half((u16)(x1_1[i][0 / 2] >> 16 * (0 % 2)));
            // the body of t1
            float m0 = __uint_as_float((1258291200u | (x1[i][e / 8] >> 4 * (e % 8) & 15u))) - 8388608.0f;
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = m5;
                const float v3 = (v0 - v2);
                const float v4 = (v3 * v1);
                m0 = v4;
            }
            y[e] = m0;
          }
        }
        const u32 z[4] = {pack_half(y[0], y[1]), pack_half(y[2], y[3]), pack_half(y[4], y[5]), pack_half(y[6], y[7])};
        *(uint4*)(t1 + (c0 + 1) % 2 * 2048 + (r * 4 + (q ^ (r >> 1 & 3))) * 8) = uint4{z[0], z[1], z[2], z[3]};
      }
    }
    copy_wait<0>();
    __syncthreads();
  }
  {
    const int row0 = 64 * group_row + 32 * warp_row + (lane >> 2 & 7) * 1;
    const int col0 = 64 * group_col + 32 * warp_col + (lane >> 0 & 3) * 2;
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        {
          const int row = row0 + i * 16 + 0, col = col0 + j * 8 + 0;
          if (row < d0 && col < d1) {
            float y[2];
            {
              float m0 = f0[i * 4 + j][0];
              y[0] = m0;
            }
            {
              float m0 = f0[i * 4 + j][1];
              y[1] = m0;
            }
            *(u32*)(g2 + (i64)row * d10 + col) = pack_half(y[0], y[1]);
          }
        }
        {
          const int row = row0 + i * 16 + 8, col = col0 + j * 8 + 0;
          if (row < d0 && col < d1) {
            float y[2];
            {
              float m0 = f0[i * 4 + j][2];
              y[0] = m0;
            }
            {
              float m0 = f0[i * 4 + j][3];
              y[1] = m0;
            }
            *(u32*)(g2 + (i64)row * d10 + col) = pack_half(y[0], y[1]);
          }
        }
      }
    }
  }
}
