// program matmul.bf16.64x64x64.g1.s6 for sm_90a bf16 warps 4x1
//   b0 bf16 read
//   b1 bf16 read
//   b2 bf16 write
//   uniforms 12
//   grid [u0, u1] by 64x64 batch [] bands 8
//   g0 b0 base u3 [u0, u2] strides [u4, 1] batch [] vector 8
//   g1 b1 base u6 [u2, u1] strides [u7, 1] batch [] vector 8
//   g2 b2 base u9 [u0, u1] strides [u10, 1] batch [] vector 2
//   a0 g0 box [64, 64]
//   a1 g1 box [64, 64]
//   s0 blocks 1 of [64, 64] stages 6
//   s1 blocks 1 of [64, 64] stages 6
//   m0 barrier stages 6 arrivals 1
//   m1 barrier stages 6 arrivals 4
//   f0 sum[16, 64]
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
struct __align__(64) Map { u64 words[16]; };
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
__device__ __forceinline__ u32 shared_address(const void* p) {
  return (u32)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void barrier_init(u64* b, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared_address(b)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void barrier_expect(u64* b, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(shared_address(b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u64* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(shared_address(b)) : "memory");
}
__device__ __forceinline__ void barrier_wait(u64* b, u32 parity) {
  u32 ended;
  do {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
      : "=r"(ended) : "r"(shared_address(b)), "r"(parity) : "memory");
  } while (!ended);
}
__device__ __forceinline__ void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void mma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }
template <int N> __device__ __forceinline__ void mma_done(float (&s)[N][4]) {
#pragma unroll
  for (int i = 0; i < N; i++) {
    asm volatile("" : "+f"(s[i][0]), "+f"(s[i][1]), "+f"(s[i][2]), "+f"(s[i][3]) :: "memory");
  }
}
__device__ __forceinline__ void copy_tensor(u16* to, const Map* map, int i0, int i1, u64* b) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
    :: "r"(shared_address(to)), "l"(map), "r"(shared_address(b)), "r"(i0), "r"(i1) : "memory");
}
__device__ __forceinline__ void prefetch_map(const Map* map) { asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory"); }
__device__ __forceinline__ u64 matrix_rows(const u16* p, u32 leading) {
  return (u64)((shared_address(p) & 0x3ffff) >> 4) | (u64)(leading >> 4) << 16 | (u64)64 << 32 | (u64)1 << 62;
}
__device__ __forceinline__ void mma_group_64_rows(float (&s)[8][4], u64 a, u64 b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 1;"
    : "+f"(s[0][0]), "+f"(s[0][1]), "+f"(s[0][2]), "+f"(s[0][3]), "+f"(s[1][0]), "+f"(s[1][1]), "+f"(s[1][2]), "+f"(s[1][3]), "+f"(s[2][0]), "+f"(s[2][1]), "+f"(s[2][2]), "+f"(s[2][3]), "+f"(s[3][0]), "+f"(s[3][1]), "+f"(s[3][2]), "+f"(s[3][3]), "+f"(s[4][0]), "+f"(s[4][1]), "+f"(s[4][2]), "+f"(s[4][3]), "+f"(s[5][0]), "+f"(s[5][1]), "+f"(s[5][2]), "+f"(s[5][3]), "+f"(s[6][0]), "+f"(s[6][1]), "+f"(s[6][2]), "+f"(s[6][3]), "+f"(s[7][0]), "+f"(s[7][1]), "+f"(s[7][2]), "+f"(s[7][3])
    : "l"(a), "l"(b) : "memory");
}
extern "C" __global__ void __launch_bounds__(160) k(const int* __restrict__ u, const __grid_constant__ Map a0, const __grid_constant__ Map a1, const u16* __restrict__ b0, const u16* __restrict__ b1, u16* __restrict__ b2) {
  // 98400 bytes of dynamic workgroup memory.
  // 98304 bytes of bulk copies under way.
  extern __shared__ __align__(1024) u16 dynamic[];
  u16* const s0 = dynamic + 0;
  u16* const s1 = dynamic + 24576;
  u64* const barrier0 = (u64*)(dynamic + 49152);
  u64* const barrier1 = (u64*)(dynamic + 49176);
  const int d0 = u[0];
  const int d1 = u[1];
  const int d2 = u[2];
  const int d9 = u[9];
  const int d10 = u[10];
  const int thread = (int)threadIdx.x, lane = thread & 31;
  const int warp_row = thread >> 5;
  const u32 rows = ((u32)d0 + 63u) / 64u, cols = ((u32)d1 + 63u) / 64u;
  const u32 group = blockIdx.y * gridDim.x + blockIdx.x, plane = group % (rows * cols);
  const u32 band = plane / (8u * cols), within = plane % (8u * cols);
  const u32 height = rows - band * 8u < 8u ? rows - band * 8u : 8u;
  const int group_row = (int)(band * 8u + within % height), group_col = (int)(within / height);
  const int batch = (int)(group / (rows * cols));
  if (batch > 0) return;
  u16* __restrict__ const g2 = b2 + d9;
  float f0[8][4];
  if (thread == 0) {
    barrier_init(barrier0 + 0, 1);
    barrier_init(barrier0 + 1, 1);
    barrier_init(barrier0 + 2, 1);
    barrier_init(barrier0 + 3, 1);
    barrier_init(barrier0 + 4, 1);
    barrier_init(barrier0 + 5, 1);
    barrier_init(barrier1 + 0, 4);
    barrier_init(barrier1 + 1, 4);
    barrier_init(barrier1 + 2, 4);
    barrier_init(barrier1 + 3, 4);
    barrier_init(barrier1 + 4, 4);
    barrier_init(barrier1 + 5, 4);
    barrier_init_fence();
  }
  __syncthreads();
  if (thread == 128) {
    prefetch_map(&a0);
    prefetch_map(&a1);
    #pragma unroll 1
    for (int c0 = 0; c0 < d2 / 64 + (d2 % 64 > 0); c0++) {
      barrier_wait(barrier1 + c0 % 6, (c0 / 6 & 1) ^ 1);
      barrier_expect(barrier0 + c0 % 6, 16384);
      copy_tensor(s0 + c0 % 6 * 4096, &a0, 64 * c0, 64 * group_row, barrier0 + c0 % 6);
      copy_tensor(s1 + c0 % 6 * 4096, &a1, 64 * group_col, 64 * c0, barrier0 + c0 % 6);
    }
  }
  if (warp_row < 4) {
    const int warp_group = thread / 128;
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      f0[i][0] = 0.0f; f0[i][1] = 0.0f; f0[i][2] = 0.0f; f0[i][3] = 0.0f;
    }
    #pragma unroll 1
    for (int c1 = 0; c1 < d2 / 64 + (d2 % 64 > 0); c1++) {
      barrier_wait(barrier0 + c1 % 6, c1 / 6 & 1);
      mma_fence();
      #pragma unroll
      for (int k = 0; k < 4; k++) {
        const u64 a = matrix_rows(s0 + c1 % 6 * 4096 + (0 + warp_group * 64) * 64 + k * 16, 16);
        const u64 b = matrix_rows(s1 + c1 % 6 * 4096 + k * 1024, 8192);
        mma_group_64_rows(f0, a, b);
      }
      mma_commit();
      mma_wait<1>();
      if (lane == 0 && c1 >= 1) barrier_arrive(barrier1 + (c1 - 1) % 6);
    }
    mma_wait<0>();
    mma_done(f0);
    {
      const int row0 = 64 * group_row + 16 * warp_row + (lane >> 2 & 7) * 1;
      const int col0 = 64 * group_col + (lane >> 0 & 3) * 2;
      #pragma unroll
      for (int i = 0; i < 1; i++) {
        #pragma unroll
        for (int j = 0; j < 8; j++) {
          {
            const int row = row0 + i * 16 + 0, col = col0 + j * 8 + 0;
            if (row < d0 && col < d1) {
              float y[2];
              {
                float m0 = f0[i * 8 + j][0];
                y[0] = m0;
              }
              {
                float m0 = f0[i * 8 + j][1];
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
                float m0 = f0[i * 8 + j][2];
                y[0] = m0;
              }
              {
                float m0 = f0[i * 8 + j][3];
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
