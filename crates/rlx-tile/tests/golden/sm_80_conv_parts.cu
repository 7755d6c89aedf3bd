// program conv.f16.16x64x64.1x2.s4.parts for sm_80 f16 warps 1x2
//   b0 f16 read
//   b1 f16 read
//   b2 f32 write
//   uniforms 24
//   grid [u0, u1] by 16x64 batch [u3] bands 8
//   g0 b0 base u4 [u0, u2/u16] strides [u5, 1] window u17 channels u18 of u19 by u20 taps 3 stride 1 dilation 1 before 1 u21 of u22 by u23 taps 3 stride 1 dilation 1 before 1 batch [u7] vector 8
//   g1 b1 base u8 [u1, u2/u16] strides [u9, 1] batch [u11] vector 8
//   g2 b2 base u12 [u0, u1] strides [u13, 1] batch [u15] vector 2
//   t0 f16[16, 64] stages 4 swizzle 3 >> 0
//   t1 f16[64, 64] stages 4 swizzle 3 >> 0
//   f0 sum[16, 32]
//   f1 left[16, 16]
//   f2 right[16, 32]
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
extern "C" __global__ void __launch_bounds__(64, __CUDA_ARCH__ >= 1200 ? 2 : __CUDA_ARCH__ >= 1000 ? 5 : 0) k(const int* __restrict__ u, const u16* __restrict__ b0, const u16* __restrict__ b1, float* __restrict__ b2) {
  __shared__ __align__(128) u16 t0[4096];
  __shared__ __align__(128) u16 t1[16384];
  const int d0 = u[0];
  const int d1 = u[1];
  const int d2 = u[2];
  const int d3 = u[3];
  const int d4 = u[4];
  const int d5 = u[5];
  const int d7 = u[7];
  const int d8 = u[8];
  const int d9 = u[9];
  const int d11 = u[11];
  const int d12 = u[12];
  const int d13 = u[13];
  const int d15 = u[15];
  const int d16 = u[16];
  const int d17 = u[17];
  const int d18 = u[18];
  const int d19 = u[19];
  const int d20 = u[20];
  const int d21 = u[21];
  const int d22 = u[22];
  const int d23 = u[23];
  const int thread = (int)threadIdx.x, lane = thread & 31;
  const int warp_row = (thread >> 5) / 2, warp_col = (thread >> 5) % 2;
  const u32 rows = ((u32)d0 + 15u) / 16u, cols = ((u32)d1 + 63u) / 64u;
  const u32 group = blockIdx.y * gridDim.x + blockIdx.x, plane = group % (rows * cols);
  const u32 band = plane / (8u * cols), within = plane % (8u * cols);
  const u32 height = rows - band * 8u < 8u ? rows - band * 8u : 8u;
  const int group_row = (int)(band * 8u + within % height), group_col = (int)(within / height);
  const int batch = (int)(group / (rows * cols));
  const int n0 = batch % d3;
  if ((batch / d3) > 0) return;
  const int d2_16 = d2 - n0 * d16 < 0 ? 0 : d2 - n0 * d16 < d16 ? d2 - n0 * d16 : d16;
  const u16* __restrict__ const g0 = b0 + d4 + (i64)n0 * d7;
  const u16* __restrict__ const g1 = b1 + d8 + (i64)n0 * d11;
  float* __restrict__ const g2 = b2 + d12 + (i64)n0 * d15;
  const u32 inverse17 = 0xffffffffu / (u32)(d17 > 0 ? d17 : 1);
  const u32 inverse18 = 0xffffffffu / (u32)(d18 > 0 ? d18 : 1);
  const u32 inverse21 = 0xffffffffu / (u32)(d21 > 0 ? d21 : 1);
  float f0[4][4];
  u32 f1[1][4];
  u32 f2[2][4];
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    f0[i][0] = 0.0f; f0[i][1] = 0.0f; f0[i][2] = 0.0f; f0[i][3] = 0.0f;
  }
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    const int n = thread + i * 64, r = n / 8, q = n % 8;
    const int row = 16 * group_row + r, col = 0 + q * 8;
    int above1 = (int)((u64)(u32)row * inverse21 >> 32), place1 = row - above1 * d21;
    if (place1 >= d21) { above1++; place1 -= d21; }
    const int first1 = place1 * 1 - 1;
    int image = (int)((u64)(u32)above1 * inverse18 >> 32), place0 = above1 - image * d18;
    if (place0 >= d18) { image++; place0 -= d18; }
    const int first0 = place0 * 1 - 1;
    {
      u16* const to = t0 + 0 * 1024 + (r * 8 + (q ^ (r & 7))) * 8;
      int tap0 = (int)((u64)(u32)(col + n0 * d16) * inverse17 >> 32), channel0 = (col + n0 * d16) - tap0 * d17;
      if (channel0 >= d17) { tap0++; channel0 -= d17; }
      const int at0_0 = first0 + (tap0 / 3) * 1;
      const int at0_1 = first1 + (tap0 % 3) * 1;
      {
        const bool inside = row < d0 && col < d2_16 && (u32)at0_0 < (u32)d19 && (u32)at0_1 < (u32)d22;
        copy_async_16(to + 0, inside ? g0 + (i64)image * d5 + (i64)at0_0 * d20 + (i64)at0_1 * d23 + channel0 : g0, inside);
      }
    }
  }
  #pragma unroll
  for (int i = 0; i < 8; i++) {
    const int n = thread + i * 64, r = n / 8, q = n % 8;
    const int row = 64 * group_col + r, col = 0 + q * 8;
    {
      u16* const to = t1 + 0 * 4096 + (r * 8 + (q ^ (r & 7))) * 8;
      {
        const bool inside = row < d1 && col < d2_16;
        copy_async_16(to + 0, inside ? g1 + (i64)row * d9 + col : g1, inside);
      }
    }
  }
  copy_commit();
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    const int n = thread + i * 64, r = n / 8, q = n % 8;
    const int row = 16 * group_row + r, col = 64 + q * 8;
    int above1 = (int)((u64)(u32)row * inverse21 >> 32), place1 = row - above1 * d21;
    if (place1 >= d21) { above1++; place1 -= d21; }
    const int first1 = place1 * 1 - 1;
    int image = (int)((u64)(u32)above1 * inverse18 >> 32), place0 = above1 - image * d18;
    if (place0 >= d18) { image++; place0 -= d18; }
    const int first0 = place0 * 1 - 1;
    {
      u16* const to = t0 + 1 * 1024 + (r * 8 + (q ^ (r & 7))) * 8;
      int tap0 = (int)((u64)(u32)(col + n0 * d16) * inverse17 >> 32), channel0 = (col + n0 * d16) - tap0 * d17;
      if (channel0 >= d17) { tap0++; channel0 -= d17; }
      const int at0_0 = first0 + (tap0 / 3) * 1;
      const int at0_1 = first1 + (tap0 % 3) * 1;
      {
        const bool inside = row < d0 && col < d2_16 && (u32)at0_0 < (u32)d19 && (u32)at0_1 < (u32)d22;
        copy_async_16(to + 0, inside ? g0 + (i64)image * d5 + (i64)at0_0 * d20 + (i64)at0_1 * d23 + channel0 : g0, inside);
      }
    }
  }
  #pragma unroll
  for (int i = 0; i < 8; i++) {
    const int n = thread + i * 64, r = n / 8, q = n % 8;
    const int row = 64 * group_col + r, col = 64 + q * 8;
    {
      u16* const to = t1 + 1 * 4096 + (r * 8 + (q ^ (r & 7))) * 8;
      {
        const bool inside = row < d1 && col < d2_16;
        copy_async_16(to + 0, inside ? g1 + (i64)row * d9 + col : g1, inside);
      }
    }
  }
  copy_commit();
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    const int n = thread + i * 64, r = n / 8, q = n % 8;
    const int row = 16 * group_row + r, col = 128 + q * 8;
    int above1 = (int)((u64)(u32)row * inverse21 >> 32), place1 = row - above1 * d21;
    if (place1 >= d21) { above1++; place1 -= d21; }
    const int first1 = place1 * 1 - 1;
    int image = (int)((u64)(u32)above1 * inverse18 >> 32), place0 = above1 - image * d18;
    if (place0 >= d18) { image++; place0 -= d18; }
    const int first0 = place0 * 1 - 1;
    {
      u16* const to = t0 + 2 * 1024 + (r * 8 + (q ^ (r & 7))) * 8;
      int tap0 = (int)((u64)(u32)(col + n0 * d16) * inverse17 >> 32), channel0 = (col + n0 * d16) - tap0 * d17;
      if (channel0 >= d17) { tap0++; channel0 -= d17; }
      const int at0_0 = first0 + (tap0 / 3) * 1;
      const int at0_1 = first1 + (tap0 % 3) * 1;
      {
        const bool inside = row < d0 && col < d2_16 && (u32)at0_0 < (u32)d19 && (u32)at0_1 < (u32)d22;
        copy_async_16(to + 0, inside ? g0 + (i64)image * d5 + (i64)at0_0 * d20 + (i64)at0_1 * d23 + channel0 : g0, inside);
      }
    }
  }
  #pragma unroll
  for (int i = 0; i < 8; i++) {
    const int n = thread + i * 64, r = n / 8, q = n % 8;
    const int row = 64 * group_col + r, col = 128 + q * 8;
    {
      u16* const to = t1 + 2 * 4096 + (r * 8 + (q ^ (r & 7))) * 8;
      {
        const bool inside = row < d1 && col < d2_16;
        copy_async_16(to + 0, inside ? g1 + (i64)row * d9 + col : g1, inside);
      }
    }
  }
  copy_commit();
  #pragma unroll 1
  for (int c0 = 0; c0 < d2_16 / 64 + (d2_16 % 64 > 0); c0++) {
    copy_wait<2>();
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int n = thread + i * 64, r = n / 8, q = n % 8;
      const int row = 16 * group_row + r, col = 64 * c0 + 192 + q * 8;
      int above1 = (int)((u64)(u32)row * inverse21 >> 32), place1 = row - above1 * d21;
      if (place1 >= d21) { above1++; place1 -= d21; }
      const int first1 = place1 * 1 - 1;
      int image = (int)((u64)(u32)above1 * inverse18 >> 32), place0 = above1 - image * d18;
      if (place0 >= d18) { image++; place0 -= d18; }
      const int first0 = place0 * 1 - 1;
      {
        u16* const to = t0 + (c0 + 3) % 4 * 1024 + (r * 8 + (q ^ (r & 7))) * 8;
        int tap0 = (int)((u64)(u32)(col + n0 * d16) * inverse17 >> 32), channel0 = (col + n0 * d16) - tap0 * d17;
        if (channel0 >= d17) { tap0++; channel0 -= d17; }
        const int at0_0 = first0 + (tap0 / 3) * 1;
        const int at0_1 = first1 + (tap0 % 3) * 1;
        {
          const bool inside = row < d0 && col < d2_16 && (u32)at0_0 < (u32)d19 && (u32)at0_1 < (u32)d22;
          copy_async_16(to + 0, inside ? g0 + (i64)image * d5 + (i64)at0_0 * d20 + (i64)at0_1 * d23 + channel0 : g0, inside);
        }
      }
    }
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      const int n = thread + i * 64, r = n / 8, q = n % 8;
      const int row = 64 * group_col + r, col = 64 * c0 + 192 + q * 8;
      {
        u16* const to = t1 + (c0 + 3) % 4 * 4096 + (r * 8 + (q ^ (r & 7))) * 8;
        {
          const bool inside = row < d1 && col < d2_16;
          copy_async_16(to + 0, inside ? g1 + (i64)row * d9 + col : g1, inside);
        }
      }
    }
    copy_commit();
    #pragma unroll
    for (int c1 = 0; c1 < 64 / 16 + (64 % 16 > 0); c1++) {
      {
        const u16* const from = t0 + c0 % 4 * 1024;
        const int row = 16 * warp_row + (lane & 7) + (lane >> 3 & 1) * 8;
        const int col = 16 * c1 + (lane >> 4 & 1) * 8;
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          #pragma unroll
          for (int j = 0; j < 1; j++) {
            const int r = row + i * 16, q = col / 8 + j * 2;
            load_matrices(f1[i * 1 + j], from + (r * 8 + (q ^ (r & 7))) * 8);
          }
        }
      }
      {
        const u16* const from = t1 + c0 % 4 * 4096;
        const int row = 32 * warp_col + (lane & 7) + (lane >> 4 & 1) * 8;
        const int col = 16 * c1 + (lane >> 3 & 1) * 8;
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          #pragma unroll
          for (int j = 0; j < 2; j++) {
            const int r = row + j * 16, q = col / 8 + i * 2;
            load_matrices(f2[i * 2 + j], from + (r * 8 + (q ^ (r & 7))) * 8);
          }
        }
      }
      #pragma unroll
      for (int d = 0; d < 1; d++) {
        #pragma unroll
        for (int i = 0; i < 1; i++) {
          #pragma unroll
          for (int j = 0; j < 4; j++) {
            mma(f0[i * 4 + j], f1[i * 1 + d] + 0, f2[d * 2 + j / 2] + 0 + j % 2 * 2);
          }
        }
      }
    }
  }
  copy_wait<0>();
  {
    const int row0 = 16 * group_row + 16 * warp_row + (lane >> 2 & 7) * 1;
    const int col0 = 64 * group_col + 32 * warp_col + (lane >> 0 & 3) * 2;
    #pragma unroll
    for (int i = 0; i < 1; i++) {
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
            *(float2*)(g2 + (i64)row * d13 + col) = float2{y[0], y[1]};
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
            *(float2*)(g2 + (i64)row * d13 + col) = float2{y[0], y[1]};
          }
        }
      }
    }
  }
}
