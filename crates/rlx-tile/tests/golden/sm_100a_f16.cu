// program matmul.f16.128x64x64.g2.s4 for sm_100a f16 warps 4x2
//   b0 f16 read
//   b1 f16 read
//   b2 f16 write
//   uniforms 12
//   grid [u0, u1] by 128x64 batch [] bands 8
//   g0 b0 base u3 [u0, u2] strides [u4, 1] batch [] vector 8
//   g1 b1 base u6 [u2, u1] strides [u7, 1] batch [] vector 8
//   g2 b2 base u9 [u0, u1] strides [u10, 1] batch [] vector 2
//   a0 g0 box [128, 64]
//   a1 g1 box [64, 64]
//   s0 blocks 1 of [128, 64] stages 4
//   s1 blocks 1 of [64, 64] stages 4
//   m0 barrier stages 4 arrivals 1
//   m1 barrier stages 4 arrivals 1
//   m2 barrier stages 1 arrivals 1
//   d0 accumulator columns 64
//   f0 sum[16, 32]
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
  return (u64)((shared_address(p) & 0x3ffff) >> 4) | (u64)(leading >> 4) << 16 | (u64)64 << 32 | (u64)1 << 46 | (u64)2 << 61;
}
template <int N> __device__ __forceinline__ void tensor_allocate(u32* to) {
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" :: "r"(shared_address(to)), "n"(N) : "memory");
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
}
template <int N> __device__ __forceinline__ void tensor_free(u32 address) {
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" :: "r"(address), "n"(N) : "memory");
}
__device__ __forceinline__ void tensor_before_sync() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ __forceinline__ void tensor_after_sync() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }
__device__ __forceinline__ void tensor_commit(u64* b) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" :: "r"(shared_address(b)) : "memory");
}
__device__ __forceinline__ void tensor_wait() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void tensor_mma(u32 to, u64 a, u64 b, u32 how, u32 add) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\ntcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;\n}"
    :: "r"(to), "l"(a), "l"(b), "r"(how), "r"(add) : "memory");
}
__device__ __forceinline__ void tensor_load_4(float (*s)[4], u32 address) {
  asm volatile("tcgen05.ld.sync.aligned.16x256b.x4.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, [%16];"
    : "=f"(s[0][0]), "=f"(s[0][1]), "=f"(s[0][2]), "=f"(s[0][3]), "=f"(s[1][0]), "=f"(s[1][1]), "=f"(s[1][2]), "=f"(s[1][3]), "=f"(s[2][0]), "=f"(s[2][1]), "=f"(s[2][2]), "=f"(s[2][3]), "=f"(s[3][0]), "=f"(s[3][1]), "=f"(s[3][2]), "=f"(s[3][3])
    : "r"(address) : "memory");
}
extern "C" __global__ void __launch_bounds__(320) k(const int* __restrict__ u, const __grid_constant__ Map a0, const __grid_constant__ Map a1, const u16* __restrict__ b0, const u16* __restrict__ b1, u16* __restrict__ b2) {
  // 98384 bytes of dynamic workgroup memory.
  // 98304 bytes of bulk copies under way.
  extern __shared__ __align__(1024) u16 dynamic[];
  u16* const s0 = dynamic + 0;
  u16* const s1 = dynamic + 32768;
  u64* const barrier0 = (u64*)(dynamic + 49152);
  u64* const barrier1 = (u64*)(dynamic + 49168);
  u64* const barrier2 = (u64*)(dynamic + 49184);
  u32* const tensor_address = (u32*)(dynamic + 49188);
  const int d0 = u[0];
  const int d1 = u[1];
  const int d2 = u[2];
  const int d9 = u[9];
  const int d10 = u[10];
  const int thread = (int)threadIdx.x, lane = thread & 31;
  const int warp_row = thread >> 5 & 3, warp_col = thread >> 7;
  const u32 rows = ((u32)d0 + 127u) / 128u, cols = ((u32)d1 + 63u) / 64u;
  const u32 group = blockIdx.y * gridDim.x + blockIdx.x, plane = group % (rows * cols);
  const u32 band = plane / (8u * cols), within = plane % (8u * cols);
  const u32 height = rows - band * 8u < 8u ? rows - band * 8u : 8u;
  const int group_row = (int)(band * 8u + within % height), group_col = (int)(within / height);
  const int batch = (int)(group / (rows * cols));
  if (batch > 0) return;
  u16* __restrict__ const g2 = b2 + d9;
  float f0[4][4];
  if (thread == 0) {
    barrier_init(barrier0 + 0, 1);
    barrier_init(barrier0 + 1, 1);
    barrier_init(barrier0 + 2, 1);
    barrier_init(barrier0 + 3, 1);
    barrier_init(barrier1 + 0, 1);
    barrier_init(barrier1 + 1, 1);
    barrier_init(barrier1 + 2, 1);
    barrier_init(barrier1 + 3, 1);
    barrier_init(barrier2 + 0, 1);
    barrier_init_fence();
  }
  if (thread >> 5 == 1) tensor_allocate<64>(tensor_address);
  tensor_before_sync();
  __syncthreads();
  const u32 tensor = *tensor_address;
  if (thread == 256) {
    prefetch_map(&a0);
    prefetch_map(&a1);
    #pragma unroll 1
    for (int c0 = 0; c0 < d2 / 64 + (d2 % 64 > 0); c0++) {
      barrier_wait(barrier1 + c0 % 4, (c0 / 4 & 1) ^ 1);
      barrier_expect(barrier0 + c0 % 4, 24576);
      copy_tensor(s0 + c0 % 4 * 8192, &a0, 64 * c0, 128 * group_row, barrier0 + c0 % 4);
      copy_tensor(s1 + c0 % 4 * 4096, &a1, 64 * group_col, 64 * c0, barrier0 + c0 % 4);
    }
  }
  if (thread == 288) {
    #pragma unroll 1
    for (int c1 = 0; c1 < d2 / 64 + (d2 % 64 > 0); c1++) {
      barrier_wait(barrier0 + c1 % 4, c1 / 4 & 1);
      tensor_after_sync();
      #pragma unroll
      for (int k = 0; k < 4; k++) {
        const u64 a = matrix_rows(s0 + c1 % 4 * 8192 + 0 + k * 16, 16);
        const u64 b = matrix_rows(s1 + c1 % 4 * 4096 + k * 1024, 8192);
        tensor_mma(tensor, a, b, 0x8110010u, c1 > 0 || k > 0);
      }
      tensor_commit(barrier1 + c1 % 4);
    }
    #pragma unroll
    for (int c2 = 0; c2 < 1 / 1 + (1 % 1 > 0); c2++) {
      tensor_commit(barrier2 + c2 % 1);
    }
  }
  if (thread < 256) {
    #pragma unroll
    for (int c3 = 0; c3 < 1 / 1 + (1 % 1 > 0); c3++) {
      barrier_wait(barrier2 + c3 % 1, c3 / 1 & 1);
      tensor_after_sync();
    }
    if (d2 > 0) {
      const u32 address = tensor + ((u32)(warp_row * 32 + 0) << 16) + (u32)(32 * warp_col);
      tensor_load_4(f0 + 0, address + 0);
      tensor_wait();
      mma_done(f0);
    }
    else {
      #pragma unroll
      for (int i = 0; i < 4; i++) {
        f0[i][0] = 0.0f; f0[i][1] = 0.0f; f0[i][2] = 0.0f; f0[i][3] = 0.0f;
      }
    }
    {
      const int row0 = 128 * group_row + 32 * warp_row + (lane >> 2 & 7) * 1;
      const int col0 = 32 * warp_col + 64 * group_col + (lane >> 0 & 3) * 2;
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
    if (d2 > 0) {
      const u32 address = tensor + ((u32)(warp_row * 32 + 16) << 16) + (u32)(32 * warp_col);
      tensor_load_4(f0 + 0, address + 0);
      tensor_wait();
      mma_done(f0);
    }
    else {
      #pragma unroll
      for (int i = 0; i < 4; i++) {
        f0[i][0] = 0.0f; f0[i][1] = 0.0f; f0[i][2] = 0.0f; f0[i][3] = 0.0f;
      }
    }
    {
      const int row0 = 128 * group_row + 32 * warp_row + 16 + (lane >> 2 & 7) * 1;
      const int col0 = 32 * warp_col + 64 * group_col + (lane >> 0 & 3) * 2;
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
  tensor_before_sync();
  __syncthreads();
  tensor_after_sync();
  if (thread >> 5 == 1) tensor_free<64>(tensor);
}
