// program attention.bf16.128x128.q128.k64.w8.s2.causal.zero.x3db504f3 for sm_80 bf16 warps 8x1
//   b0 bf16 read
//   b1 bf16 read
//   b2 bf16 read
//   b3 bf16 write
//   uniforms 29
//   grid [u0, 128] by 128x128 batch [u3, u4] bands 1
//   g0 b0 base u5 [u0, 128] strides [u6, 1] batch [u8, u9] vector 8
//   g1 b1 base u11 [u1, 128] strides [u12, 1] batch [u14, u15] vector 8
//   g2 b2 base u17 [u1, 128] strides [u18, 1] batch [u20, u21] vector 8
//   g3 b3 base u23 [u0, 128] strides [u24, 1] batch [u26, u27] vector 2
//   t0 bf16[128, 128] stages 1 swizzle 3 >> 0
//   t1 bf16[64, 128] stages 2 swizzle 3 >> 0
//   t2 bf16[64, 128] stages 2 swizzle 3 >> 0
//   f0 sum[16, 64]
//   f1 left[16, 16]
//   f2 right[16, 64]
//   f3 right[16, 64]
//   f4 rows[16, 1]
//   f5 rows[16, 1]
//   f6 rows[16, 1]
//   f7 sum[16, 64]
//   f8 sum[16, 64]
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
__device__ __forceinline__ float of_lane(float x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
__device__ __forceinline__ float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
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
extern "C" __global__ void __launch_bounds__(256, __CUDA_ARCH__ >= 1200 ? 1 : 0) k(const int* __restrict__ u, const u16* __restrict__ b0, const u16* __restrict__ b1, const u16* __restrict__ b2, u16* __restrict__ b3) {
  // 98304 bytes of dynamic workgroup memory.
  extern __shared__ __align__(128) u16 dynamic[];
  u16* const t0 = dynamic + 0;
  u16* const t1 = dynamic + 16384;
  u16* const t2 = dynamic + 32768;
  const int d0 = u[0];
  const int d1 = u[1];
  const int d2 = u[2];
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
  const u32 rows = ((u32)d0 + 127u) / 128u, cols = ((u32)128 + 127u) / 128u;
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
  float f0[8][4];
  u32 f1[1][4];
  u32 f2[4][4];
  u32 f3[4][4];
  float f4[2];
  float f5[2];
  float f6[2];
  float f7[8][4];
  float f8[8][4];
  {
    u32 x[8][4];
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      const int n = thread + i * 256, r = n / 16, q = n % 16;
      const int row = 128 * group_row + r, col = 0 + q * 8;
      {
        const uint4 w0 = row < d0 && col < 128 ? *(const uint4*)(g0 + (i64)row * d6 + col) : uint4{0, 0, 0, 0};
        x[i][0] = w0.x; x[i][1] = w0.y; x[i][2] = w0.z; x[i][3] = w0.w;
      }
    }
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      const int n = thread + i * 256, r = n / 16, q = n % 16;
      {
        *(uint4*)(t0 + 0 * 16384 + (r * 16 + (q ^ (r & 7))) * 8) = uint4{x[i][0], x[i][1], x[i][2], x[i][3]};
      }
    }
  }
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    f4[i] = __uint_as_float(0xff7fffffu);
  }
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    f5[i] = __uint_as_float(0x00000000u);
  }
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    f6[i] = __uint_as_float(0x00000000u);
  }
  #pragma unroll
  for (int i = 0; i < 8; i++) {
    f7[i][0] = 0.0f; f7[i][1] = 0.0f; f7[i][2] = 0.0f; f7[i][3] = 0.0f;
  }
  #pragma unroll
  for (int i = 0; i < 8; i++) {
    f8[i][0] = 0.0f; f8[i][1] = 0.0f; f8[i][2] = 0.0f; f8[i][3] = 0.0f;
  }
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    const int n = thread + i * 256, r = n / 16, q = n % 16;
    const int row = 0 + r, col = 0 + q * 8;
    {
      u16* const to = t1 + 0 * 8192 + (r * 16 + (q ^ (r & 7))) * 8;
      {
        const bool inside = row < d1 && col < 128;
        copy_async_16(to + 0, inside ? g1 + (i64)row * d12 + col : g1, inside);
      }
    }
  }
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    const int n = thread + i * 256, r = n / 16, q = n % 16;
    const int row = 0 + r, col = 0 + q * 8;
    {
      u16* const to = t2 + 0 * 8192 + (r * 16 + (q ^ (r & 7))) * 8;
      {
        const bool inside = row < d1 && col < 128;
        copy_async_16(to + 0, inside ? g2 + (i64)row * d18 + col : g2, inside);
      }
    }
  }
  copy_commit();
  const int e0 = d1 < 128 * (group_row + 1) + d2 ? d1 : 128 * (group_row + 1) + d2;
  #pragma unroll 1
  for (int c0 = 0; c0 < e0 / 64 + (e0 % 64 > 0); c0++) {
    copy_wait<0>();
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const int n = thread + i * 256, r = n / 16, q = n % 16;
      const int row = 64 * c0 + 64 + r, col = 0 + q * 8;
      {
        u16* const to = t1 + (c0 + 1) % 2 * 8192 + (r * 16 + (q ^ (r & 7))) * 8;
        {
          const bool inside = row < d1 && col < 128;
          copy_async_16(to + 0, inside ? g1 + (i64)row * d12 + col : g1, inside);
        }
      }
    }
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const int n = thread + i * 256, r = n / 16, q = n % 16;
      const int row = 64 * c0 + 64 + r, col = 0 + q * 8;
      {
        u16* const to = t2 + (c0 + 1) % 2 * 8192 + (r * 16 + (q ^ (r & 7))) * 8;
        {
          const bool inside = row < d1 && col < 128;
          copy_async_16(to + 0, inside ? g2 + (i64)row * d18 + col : g2, inside);
        }
      }
    }
    copy_commit();
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      f0[i][0] = 0.0f; f0[i][1] = 0.0f; f0[i][2] = 0.0f; f0[i][3] = 0.0f;
    }
    #pragma unroll
    for (int c1 = 0; c1 < 128 / 16 + (128 % 16 > 0); c1++) {
      {
        const u16* const from = t0 + 0 * 16384;
        const int row = 16 * warp_row + (lane & 7) + (lane >> 3 & 1) * 8;
        const int col = 16 * c1 + (lane >> 4 & 1) * 8;
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          #pragma unroll
          for (int j = 0; j < 1; j++) {
            const int r = row + i * 16, q = col / 8 + j * 2;
            load_matrices(f1[i * 1 + j], from + (r * 16 + (q ^ (r & 7))) * 8);
          }
        }
      }
      {
        const u16* const from = t1 + c0 % 2 * 8192;
        const int row = 0 + (lane & 7) + (lane >> 4 & 1) * 8;
        const int col = 16 * c1 + (lane >> 3 & 1) * 8;
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          #pragma unroll
          for (int j = 0; j < 4; j++) {
            const int r = row + j * 16, q = col / 8 + i * 2;
            load_matrices(f2[i * 4 + j], from + (r * 16 + (q ^ (r & 7))) * 8);
          }
        }
      }
      #pragma unroll
      for (int d = 0; d < 1; d++) {
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          #pragma unroll
          for (int j = 0; j < 8; j++) {
            mma(f0[i * 8 + j], f1[i * 1 + d] + 0, f2[d * 4 + j / 2] + 0 + j % 2 * 2);
          }
        }
      }
    }
    {
      const int row0 = 16 * warp_row + 128 * group_row + (lane >> 2 & 7) * 1;
      const int col0 = 64 * c0 + (lane >> 0 & 3) * 2;
      #pragma unroll
      for (int i = 0; i < 1; i++) {
        #pragma unroll
        for (int j = 0; j < 8; j++) {
          {
            float m0 = f0[i * 8 + j][0];
            {
              int m2 = row0 + i * 16 + 0;
              int m3 = col0 + j * 8 + 0;
                const int v0 = u[1];
                const int v1 = u[2];
                const float v2 = m0;
                const int v3 = m2;
                const int v4 = m3;
                const float v7 = (v2 * 0.12751743f);
                const bool v8 = (v4 < v0);
                const int v9 = (int)((u32)v3 + (u32)v1);
                const bool v10 = (v4 <= v9);
                const float v11 = (v8 ? v7 : __uint_as_float(0xff800000u));
                const float v12 = (v10 ? v11 : __uint_as_float(0xff800000u));
                m0 = v12;
            }
            f0[i * 8 + j][0] = m0;
          }
          {
            float m0 = f0[i * 8 + j][1];
            {
              int m2 = row0 + i * 16 + 0;
              int m3 = col0 + j * 8 + 1;
                const int v0 = u[1];
                const int v1 = u[2];
                const float v2 = m0;
                const int v3 = m2;
                const int v4 = m3;
                const float v7 = (v2 * 0.12751743f);
                const bool v8 = (v4 < v0);
                const int v9 = (int)((u32)v3 + (u32)v1);
                const bool v10 = (v4 <= v9);
                const float v11 = (v8 ? v7 : __uint_as_float(0xff800000u));
                const float v12 = (v10 ? v11 : __uint_as_float(0xff800000u));
                m0 = v12;
            }
            f0[i * 8 + j][1] = m0;
          }
          {
            float m0 = f0[i * 8 + j][2];
            {
              int m2 = row0 + i * 16 + 8;
              int m3 = col0 + j * 8 + 0;
                const int v0 = u[1];
                const int v1 = u[2];
                const float v2 = m0;
                const int v3 = m2;
                const int v4 = m3;
                const float v7 = (v2 * 0.12751743f);
                const bool v8 = (v4 < v0);
                const int v9 = (int)((u32)v3 + (u32)v1);
                const bool v10 = (v4 <= v9);
                const float v11 = (v8 ? v7 : __uint_as_float(0xff800000u));
                const float v12 = (v10 ? v11 : __uint_as_float(0xff800000u));
                m0 = v12;
            }
            f0[i * 8 + j][2] = m0;
          }
          {
            float m0 = f0[i * 8 + j][3];
            {
              int m2 = row0 + i * 16 + 8;
              int m3 = col0 + j * 8 + 1;
                const int v0 = u[1];
                const int v1 = u[2];
                const float v2 = m0;
                const int v3 = m2;
                const int v4 = m3;
                const float v7 = (v2 * 0.12751743f);
                const bool v8 = (v4 < v0);
                const int v9 = (int)((u32)v3 + (u32)v1);
                const bool v10 = (v4 <= v9);
                const float v11 = (v8 ? v7 : __uint_as_float(0xff800000u));
                const float v12 = (v10 ? v11 : __uint_as_float(0xff800000u));
                m0 = v12;
            }
            f0[i * 8 + j][3] = m0;
          }
        }
      }
    }
    {
      #pragma unroll
      for (int i = 0; i < 1; i++) {
        {
          float m0 = f6[i * 2 + 0];
          float m4 = f4[i * 2 + 0];
          {
              const float v0 = m4;
              m0 = v0;
          }
          f6[i * 2 + 0] = m0;
        }
        {
          float m0 = f6[i * 2 + 1];
          float m4 = f4[i * 2 + 1];
          {
              const float v0 = m4;
              m0 = v0;
          }
          f6[i * 2 + 1] = m0;
        }
      }
    }
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      {
        float x = f0[i * 8 + 0][0];
        x = fmaxf(x, f0[i * 8 + 0][1]);
        #pragma unroll
        for (int j = 1; j < 8; j++) {
          x = fmaxf(x, f0[i * 8 + j][0]);
          x = fmaxf(x, f0[i * 8 + j][1]);
        }
        x = fmaxf(x, of_lane(x, lane ^ 1));
        x = fmaxf(x, of_lane(x, lane ^ 2));
        f4[i * 2 + 0] = fmaxf(f4[i * 2 + 0], x);
      }
      {
        float x = f0[i * 8 + 0][2];
        x = fmaxf(x, f0[i * 8 + 0][3]);
        #pragma unroll
        for (int j = 1; j < 8; j++) {
          x = fmaxf(x, f0[i * 8 + j][2]);
          x = fmaxf(x, f0[i * 8 + j][3]);
        }
        x = fmaxf(x, of_lane(x, lane ^ 1));
        x = fmaxf(x, of_lane(x, lane ^ 2));
        f4[i * 2 + 1] = fmaxf(f4[i * 2 + 1], x);
      }
    }
    {
      #pragma unroll
      for (int i = 0; i < 1; i++) {
        {
          float m0 = f6[i * 2 + 0];
          float m4 = f4[i * 2 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 - v1);
              m0 = v2;
          }
          f6[i * 2 + 0] = m0;
        }
        {
          float m0 = f6[i * 2 + 1];
          float m4 = f4[i * 2 + 1];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 - v1);
              m0 = v2;
          }
          f6[i * 2 + 1] = m0;
        }
      }
    }
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      f6[i] = power_of_2(f6[i]);
    }
    {
      #pragma unroll
      for (int i = 0; i < 1; i++) {
        #pragma unroll
        for (int j = 0; j < 8; j++) {
          {
            float m0 = f0[i * 8 + j][0];
            float m4 = f4[i * 2 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 - v1);
                m0 = v2;
            }
            f0[i * 8 + j][0] = m0;
          }
          {
            float m0 = f0[i * 8 + j][1];
            float m4 = f4[i * 2 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 - v1);
                m0 = v2;
            }
            f0[i * 8 + j][1] = m0;
          }
          {
            float m0 = f0[i * 8 + j][2];
            float m4 = f4[i * 2 + 1];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 - v1);
                m0 = v2;
            }
            f0[i * 8 + j][2] = m0;
          }
          {
            float m0 = f0[i * 8 + j][3];
            float m4 = f4[i * 2 + 1];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 - v1);
                m0 = v2;
            }
            f0[i * 8 + j][3] = m0;
          }
        }
      }
    }
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      f0[i][0] = power_of_2(f0[i][0]);
      f0[i][1] = power_of_2(f0[i][1]);
      f0[i][2] = power_of_2(f0[i][2]);
      f0[i][3] = power_of_2(f0[i][3]);
    }
    {
      #pragma unroll
      for (int i = 0; i < 1; i++) {
        {
          float m0 = f5[i * 2 + 0];
          float m4 = f6[i * 2 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f5[i * 2 + 0] = m0;
        }
        {
          float m0 = f5[i * 2 + 1];
          float m4 = f6[i * 2 + 1];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f5[i * 2 + 1] = m0;
        }
      }
    }
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      {
        float x = f0[i * 8 + 0][0];
        x = x + f0[i * 8 + 0][1];
        #pragma unroll
        for (int j = 1; j < 8; j++) {
          x = x + f0[i * 8 + j][0];
          x = x + f0[i * 8 + j][1];
        }
        x = x + of_lane(x, lane ^ 1);
        x = x + of_lane(x, lane ^ 2);
        f5[i * 2 + 0] = f5[i * 2 + 0] + x;
      }
      {
        float x = f0[i * 8 + 0][2];
        x = x + f0[i * 8 + 0][3];
        #pragma unroll
        for (int j = 1; j < 8; j++) {
          x = x + f0[i * 8 + j][2];
          x = x + f0[i * 8 + j][3];
        }
        x = x + of_lane(x, lane ^ 1);
        x = x + of_lane(x, lane ^ 2);
        f5[i * 2 + 1] = f5[i * 2 + 1] + x;
      }
    }
    {
      #pragma unroll
      for (int i = 0; i < 1; i++) {
        #pragma unroll
        for (int j = 0; j < 8; j++) {
          {
            float m0 = f7[i * 8 + j][0];
            float m4 = f6[i * 2 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f7[i * 8 + j][0] = m0;
          }
          {
            float m0 = f7[i * 8 + j][1];
            float m4 = f6[i * 2 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f7[i * 8 + j][1] = m0;
          }
          {
            float m0 = f7[i * 8 + j][2];
            float m4 = f6[i * 2 + 1];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f7[i * 8 + j][2] = m0;
          }
          {
            float m0 = f7[i * 8 + j][3];
            float m4 = f6[i * 2 + 1];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f7[i * 8 + j][3] = m0;
          }
        }
      }
    }
    {
      #pragma unroll
      for (int i = 0; i < 1; i++) {
        #pragma unroll
        for (int j = 0; j < 8; j++) {
          {
            float m0 = f8[i * 8 + j][0];
            float m4 = f6[i * 2 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f8[i * 8 + j][0] = m0;
          }
          {
            float m0 = f8[i * 8 + j][1];
            float m4 = f6[i * 2 + 0];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f8[i * 8 + j][1] = m0;
          }
          {
            float m0 = f8[i * 8 + j][2];
            float m4 = f6[i * 2 + 1];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f8[i * 8 + j][2] = m0;
          }
          {
            float m0 = f8[i * 8 + j][3];
            float m4 = f6[i * 2 + 1];
            {
                const float v0 = m0;
                const float v1 = m4;
                const float v2 = (v0 * v1);
                m0 = v2;
            }
            f8[i * 8 + j][3] = m0;
          }
        }
      }
    }
    #pragma unroll
    for (int c2 = 0; c2 < 64 / 16 + (64 % 16 > 0); c2++) {
      #pragma unroll
      for (int i = 0; i < 1; i++) {
        #pragma unroll
        for (int j = 0; j < 1; j++) {
          const int s = i * 8 + (16 * c2 + j * 16) / 8;
          f1[i * 1 + j][0] = pack_brain(f0[s + 0][0], f0[s + 0][1]);
          f1[i * 1 + j][1] = pack_brain(f0[s + 0][2], f0[s + 0][3]);
          f1[i * 1 + j][2] = pack_brain(f0[s + 1][0], f0[s + 1][1]);
          f1[i * 1 + j][3] = pack_brain(f0[s + 1][2], f0[s + 1][3]);
        }
      }
      {
        const u16* const from = t2 + c0 % 2 * 8192;
        const int row = 16 * c2 + (lane & 7) + (lane >> 3 & 1) * 8;
        const int col = 0 + (lane >> 4 & 1) * 8;
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          #pragma unroll
          for (int j = 0; j < 4; j++) {
            const int r = row + i * 16, q = col / 8 + j * 2;
            load_matrices_trans(f3[i * 4 + j], from + (r * 16 + (q ^ (r & 7))) * 8);
          }
        }
      }
      #pragma unroll
      for (int d = 0; d < 1; d++) {
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          #pragma unroll
          for (int j = 0; j < 8; j++) {
            mma(f7[i * 8 + j], f1[i * 1 + d] + 0, f3[d * 4 + j / 2] + 0 + j % 2 * 2);
          }
        }
      }
      {
        const u16* const from = t2 + c0 % 2 * 8192;
        const int row = 16 * c2 + (lane & 7) + (lane >> 3 & 1) * 8;
        const int col = 64 + (lane >> 4 & 1) * 8;
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          #pragma unroll
          for (int j = 0; j < 4; j++) {
            const int r = row + i * 16, q = col / 8 + j * 2;
            load_matrices_trans(f3[i * 4 + j], from + (r * 16 + (q ^ (r & 7))) * 8);
          }
        }
      }
      #pragma unroll
      for (int d = 0; d < 1; d++) {
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          #pragma unroll
          for (int j = 0; j < 8; j++) {
            mma(f8[i * 8 + j], f1[i * 1 + d] + 0, f3[d * 4 + j / 2] + 0 + j % 2 * 2);
          }
        }
      }
    }
  }
  copy_wait<0>();
  {
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      {
        float m0 = f5[i * 2 + 0];
        {
            const float v0 = m0;
            const bool v3 = (v0 == 0.0f);
            const float v4 = (1.0f / v0);
            const float v5 = (v3 ? 0.0f : v4);
            m0 = v5;
        }
        f5[i * 2 + 0] = m0;
      }
      {
        float m0 = f5[i * 2 + 1];
        {
            const float v0 = m0;
            const bool v3 = (v0 == 0.0f);
            const float v4 = (1.0f / v0);
            const float v5 = (v3 ? 0.0f : v4);
            m0 = v5;
        }
        f5[i * 2 + 1] = m0;
      }
    }
  }
  {
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      #pragma unroll
      for (int j = 0; j < 8; j++) {
        {
          float m0 = f7[i * 8 + j][0];
          float m4 = f5[i * 2 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f7[i * 8 + j][0] = m0;
        }
        {
          float m0 = f7[i * 8 + j][1];
          float m4 = f5[i * 2 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f7[i * 8 + j][1] = m0;
        }
        {
          float m0 = f7[i * 8 + j][2];
          float m4 = f5[i * 2 + 1];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f7[i * 8 + j][2] = m0;
        }
        {
          float m0 = f7[i * 8 + j][3];
          float m4 = f5[i * 2 + 1];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f7[i * 8 + j][3] = m0;
        }
      }
    }
  }
  {
    const int row0 = 16 * warp_row + 128 * group_row + (lane >> 2 & 7) * 1;
    const int col0 = 0 + (lane >> 0 & 3) * 2;
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      #pragma unroll
      for (int j = 0; j < 8; j++) {
        {
          const int row = row0 + i * 16 + 0, col = col0 + j * 8 + 0;
          if (row < d0 && col < 128) {
            float y[2];
            {
              float m0 = f7[i * 8 + j][0];
              y[0] = m0;
            }
            {
              float m0 = f7[i * 8 + j][1];
              y[1] = m0;
            }
            *(u32*)(g3 + (i64)row * d24 + col) = pack_brain(y[0], y[1]);
          }
        }
        {
          const int row = row0 + i * 16 + 8, col = col0 + j * 8 + 0;
          if (row < d0 && col < 128) {
            float y[2];
            {
              float m0 = f7[i * 8 + j][2];
              y[0] = m0;
            }
            {
              float m0 = f7[i * 8 + j][3];
              y[1] = m0;
            }
            *(u32*)(g3 + (i64)row * d24 + col) = pack_brain(y[0], y[1]);
          }
        }
      }
    }
  }
  {
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      #pragma unroll
      for (int j = 0; j < 8; j++) {
        {
          float m0 = f8[i * 8 + j][0];
          float m4 = f5[i * 2 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f8[i * 8 + j][0] = m0;
        }
        {
          float m0 = f8[i * 8 + j][1];
          float m4 = f5[i * 2 + 0];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f8[i * 8 + j][1] = m0;
        }
        {
          float m0 = f8[i * 8 + j][2];
          float m4 = f5[i * 2 + 1];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f8[i * 8 + j][2] = m0;
        }
        {
          float m0 = f8[i * 8 + j][3];
          float m4 = f5[i * 2 + 1];
          {
              const float v0 = m0;
              const float v1 = m4;
              const float v2 = (v0 * v1);
              m0 = v2;
          }
          f8[i * 8 + j][3] = m0;
        }
      }
    }
  }
  {
    const int row0 = 16 * warp_row + 128 * group_row + (lane >> 2 & 7) * 1;
    const int col0 = 64 + (lane >> 0 & 3) * 2;
    #pragma unroll
    for (int i = 0; i < 1; i++) {
      #pragma unroll
      for (int j = 0; j < 8; j++) {
        {
          const int row = row0 + i * 16 + 0, col = col0 + j * 8 + 0;
          if (row < d0 && col < 128) {
            float y[2];
            {
              float m0 = f8[i * 8 + j][0];
              y[0] = m0;
            }
            {
              float m0 = f8[i * 8 + j][1];
              y[1] = m0;
            }
            *(u32*)(g3 + (i64)row * d24 + col) = pack_brain(y[0], y[1]);
          }
        }
        {
          const int row = row0 + i * 16 + 8, col = col0 + j * 8 + 0;
          if (row < d0 && col < 128) {
            float y[2];
            {
              float m0 = f8[i * 8 + j][2];
              y[0] = m0;
            }
            {
              float m0 = f8[i * 8 + j][3];
              y[1] = m0;
            }
            *(u32*)(g3 + (i64)row * d24 + col) = pack_brain(y[0], y[1]);
          }
        }
      }
    }
  }
}
