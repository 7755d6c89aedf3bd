// program matmul.bf16.128x128x32.2x2.s3 for sm_80 bf16 warps 2x2
//   b0 bf16 read
//   b1 bf16 read
//   b2 bf16 write
//   b3 f32 read
//   uniforms 12
//   grid [u0, u1] by 128x128 batch [] bands 8
//   g0 b0 base u3 [u0, u2] strides [u4, 1] batch [] vector 8
//   g1 b1 base u6 [u2, u1] strides [u7, 1] batch [] vector 8
//   g2 b2 base u9 [u0, u1] strides [u10, 1] batch [] vector 2
//   t0 bf16[128, 32] stages 3 swizzle 2 >> 1
//   t1 bf16[32, 128] stages 3 swizzle 3 >> 0
//   f0 sum[64, 64]
//   f1 left[64, 16]
//   f2 right[16, 64]
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
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
extern "C" __global__ void __launch_bounds__(128, __CUDA_ARCH__ >= 1200 ? 2 : 0) k(const int* __restrict__ u, const u16* __restrict__ b0, const u16* __restrict__ b1, u16* __restrict__ b2, const float* __restrict__ b3) {
  __shared__ __align__(128) u16 t0[12288];
  __shared__ __align__(128) u16 t1[12288];
  const int d0 = u[0];
  const int d1 = u[1];
  const int d2 = u[2];
  const int d3 = u[3];
  const int d4 = u[4];
  const int d6 = u[6];
  const int d7 = u[7];
  const int d9 = u[9];
  const int d10 = u[10];
  const int thread = (int)threadIdx.x, lane = thread & 31;
  const int warp_row = (thread >> 5) / 2, warp_col = (thread >> 5) % 2;
  const u32 rows = ((u32)d0 + 127u) / 128u, cols = ((u32)d1 + 127u) / 128u;
  const u32 group = blockIdx.y * gridDim.x + blockIdx.x, plane = group % (rows * cols);
  const u32 band = plane / (8u * cols), within = plane % (8u * cols);
  const u32 height = rows - band * 8u < 8u ? rows - band * 8u : 8u;
  const int group_row = (int)(band * 8u + within % height), group_col = (int)(within / height);
  const int batch = (int)(group / (rows * cols));
  if (batch > 0) return;
  const u16* __restrict__ const g0 = b0 + d3;
  const u16* __restrict__ const g1 = b1 + d6;
  u16* __restrict__ const g2 = b2 + d9;
  float f0[32][4];
  u32 f1[4][4];
  u32 f2[4][4];
  #pragma unroll
  for (int i = 0; i < 32; i++) {
    f0[i][0] = 0.0f; f0[i][1] = 0.0f; f0[i][2] = 0.0f; f0[i][3] = 0.0f;
  }
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    const int n = thread + i * 128, r = n / 4, q = n % 4;
    const int row = 128 * group_row + r, col = 0 + q * 8;
    {
      u16* const to = t0 + 0 * 4096 + (r * 4 + (q ^ (r >> 1 & 3))) * 8;
      {
        const bool inside = row < d0 && col < d2;
        copy_async_16(to + 0, inside ? g0 + (i64)row * d4 + col : g0, inside);
      }
    }
  }
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    const int n = thread + i * 128, r = n / 16, q = n % 16;
    const int row = 0 + r, col = 128 * group_col + q * 8;
    {
      u16* const to = t1 + 0 * 4096 + (r * 16 + (q ^ (r & 7))) * 8;
      {
        const bool inside = row < d2 && col < d1;
        copy_async_16(to + 0, inside ? g1 + (i64)row * d7 + col : g1, inside);
      }
    }
  }
  copy_commit();
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    const int n = thread + i * 128, r = n / 4, q = n % 4;
    const int row = 128 * group_row + r, col = 32 + q * 8;
    {
      u16* const to = t0 + 1 * 4096 + (r * 4 + (q ^ (r >> 1 & 3))) * 8;
      {
        const bool inside = row < d0 && col < d2;
        copy_async_16(to + 0, inside ? g0 + (i64)row * d4 + col : g0, inside);
      }
    }
  }
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    const int n = thread + i * 128, r = n / 16, q = n % 16;
    const int row = 32 + r, col = 128 * group_col + q * 8;
    {
      u16* const to = t1 + 1 * 4096 + (r * 16 + (q ^ (r & 7))) * 8;
      {
        const bool inside = row < d2 && col < d1;
        copy_async_16(to + 0, inside ? g1 + (i64)row * d7 + col : g1, inside);
      }
    }
  }
  copy_commit();
  #pragma unroll 1
  for (int c0 = 0; c0 < d2 / 32 + (d2 % 32 > 0); c0++) {
    copy_wait<1>();
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const int n = thread + i * 128, r = n / 4, q = n % 4;
      const int row = 128 * group_row + r, col = 32 * c0 + 64 + q * 8;
      {
        u16* const to = t0 + (c0 + 2) % 3 * 4096 + (r * 4 + (q ^ (r >> 1 & 3))) * 8;
        {
          const bool inside = row < d0 && col < d2;
          copy_async_16(to + 0, inside ? g0 + (i64)row * d4 + col : g0, inside);
        }
      }
    }
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const int n = thread + i * 128, r = n / 16, q = n % 16;
      const int row = 32 * c0 + 64 + r, col = 128 * group_col + q * 8;
      {
        u16* const to = t1 + (c0 + 2) % 3 * 4096 + (r * 16 + (q ^ (r & 7))) * 8;
        {
          const bool inside = row < d2 && col < d1;
          copy_async_16(to + 0, inside ? g1 + (i64)row * d7 + col : g1, inside);
        }
      }
    }
    copy_commit();
    #pragma unroll
    for (int c1 = 0; c1 < 32 / 16 + (32 % 16 > 0); c1++) {
      {
        const u16* const from = t0 + c0 % 3 * 4096;
        const int row = 64 * warp_row + (lane & 7) + (lane >> 3 & 1) * 8;
        const int col = 16 * c1 + (lane >> 4 & 1) * 8;
        #pragma unroll
        for (int i = 0; i < 4; i++) {
          #pragma unroll
          for (int j = 0; j < 1; j++) {
            const int r = row + i * 16, q = col / 8 + j * 2;
            load_matrices(f1[i * 1 + j], from + (r * 4 + (q ^ (r >> 1 & 3))) * 8);
          }
        }
      }
      {
        const u16* const from = t1 + c0 % 3 * 4096;
        const int row = 16 * c1 + (lane & 7) + (lane >> 3 & 1) * 8;
        const int col = 64 * warp_col + (lane >> 4 & 1) * 8;
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          #pragma unroll
          for (int j = 0; j < 4; j++) {
            const int r = row + i * 16, q = col / 8 + j * 2;
            load_matrices_trans(f2[i * 4 + j], from + (r * 16 + (q ^ (r & 7))) * 8);
          }
        }
      }
      #pragma unroll
      for (int d = 0; d < 1; d++) {
        #pragma unroll
        for (int i = 0; i < 4; i++) {
          #pragma unroll
          for (int j = 0; j < 8; j++) {
            mma(f0[i * 8 + j], f1[i * 1 + d] + 0, f2[d * 4 + j / 2] + 0 + j % 2 * 2);
          }
        }
      }
    }
  }
  copy_wait<0>();
  {
    const int row0 = 128 * group_row + 64 * warp_row + (lane >> 2 & 7) * 1;
    const int col0 = 128 * group_col + 64 * warp_col + (lane >> 0 & 3) * 2;
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      #pragma unroll
      for (int part = 0; part < 2; part++) {
        float made[4][4];
        #pragma unroll
        for (int j = 0; j < 4; j++) {
          {
            const int row = row0 + i * 16 + 0 < d0 ? row0 + i * 16 + 0 : d0 - 1, col = col0 + (part * 4 + j) * 8 + 0 < d1 ? col0 + (part * 4 + j) * 8 + 0 : d1 - 1;
            {
              float m0 = f0[i * 8 + part * 4 + j][0];
              {
                int m3 = col + 0;
                  const float v0 = m0;
                  const int v1 = m3;
                  const float v2 = b3[v1];
                  const float v3 = (v0 + v2);
                  const float v5 = (v3 * 0.70710677f);
                  const float v6 = erff(v5);
                  const float v9 = (v6 + 1.0f);
                  const float v10 = (v3 * 0.5f);
                  const float v11 = (v10 * v9);
                  m0 = v11;
              }
              made[j][0] = m0;
            }
          }
          {
            const int row = row0 + i * 16 + 0 < d0 ? row0 + i * 16 + 0 : d0 - 1, col = col0 + (part * 4 + j) * 8 + 1 < d1 ? col0 + (part * 4 + j) * 8 + 1 : d1 - 1;
            {
              float m0 = f0[i * 8 + part * 4 + j][1];
              {
                int m3 = col + 0;
                  const float v0 = m0;
                  const int v1 = m3;
                  const float v2 = b3[v1];
                  const float v3 = (v0 + v2);
                  const float v5 = (v3 * 0.70710677f);
                  const float v6 = erff(v5);
                  const float v9 = (v6 + 1.0f);
                  const float v10 = (v3 * 0.5f);
                  const float v11 = (v10 * v9);
                  m0 = v11;
              }
              made[j][1] = m0;
            }
          }
          {
            const int row = row0 + i * 16 + 8 < d0 ? row0 + i * 16 + 8 : d0 - 1, col = col0 + (part * 4 + j) * 8 + 0 < d1 ? col0 + (part * 4 + j) * 8 + 0 : d1 - 1;
            {
              float m0 = f0[i * 8 + part * 4 + j][2];
              {
                int m3 = col + 0;
                  const float v0 = m0;
                  const int v1 = m3;
                  const float v2 = b3[v1];
                  const float v3 = (v0 + v2);
                  const float v5 = (v3 * 0.70710677f);
                  const float v6 = erff(v5);
                  const float v9 = (v6 + 1.0f);
                  const float v10 = (v3 * 0.5f);
                  const float v11 = (v10 * v9);
                  m0 = v11;
              }
              made[j][2] = m0;
            }
          }
          {
            const int row = row0 + i * 16 + 8 < d0 ? row0 + i * 16 + 8 : d0 - 1, col = col0 + (part * 4 + j) * 8 + 1 < d1 ? col0 + (part * 4 + j) * 8 + 1 : d1 - 1;
            {
              float m0 = f0[i * 8 + part * 4 + j][3];
              {
                int m3 = col + 0;
                  const float v0 = m0;
                  const int v1 = m3;
                  const float v2 = b3[v1];
                  const float v3 = (v0 + v2);
                  const float v5 = (v3 * 0.70710677f);
                  const float v6 = erff(v5);
                  const float v9 = (v6 + 1.0f);
                  const float v10 = (v3 * 0.5f);
                  const float v11 = (v10 * v9);
                  m0 = v11;
              }
              made[j][3] = m0;
            }
          }
        }
        #pragma unroll
        for (int j = part * 4; j < part * 4 + 4; j++) {
          {
            const int row = row0 + i * 16 + 0, col = col0 + j * 8 + 0;
            if (row < d0 && col < d1) {
              float y[2];
              {
                float m0 = made[j - part * 4][0];
                y[0] = m0;
              }
              {
                float m0 = made[j - part * 4][1];
                y[1] = m0;
              }
              *(u32*)(g2 + (i64)row * d10 + col) = pack_brain(y[0], y[1]);
            }
          }
          {
            const int row = row0 + i * 16 + 8, col = col0 + j * 8 + 0;
            if (row < d0 && col < d1) {
              float y[2];
              {
                float m0 = made[j - part * 4][2];
                y[0] = m0;
              }
              {
                float m0 = made[j - part * 4][3];
                y[1] = m0;
              }
              *(u32*)(g2 + (i64)row * d10 + col) = pack_brain(y[0], y[1]);
            }
          }
        }
      }
    }
  }
}
