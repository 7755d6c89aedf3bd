// Metal's matrices of a warp on the processor, for text whose lanes are fibers of `run.h`: as much as tile programs use.
//
// The language does not say which elements a lane has, and no text may depend on it: here lane l has elements l and l + 32, as no device has them.
#pragma once
#include <metal_stdlib>

namespace metal {
// Vectors may stand for what is in memory, whatever that is.
#define RLX_VECTOR struct __attribute__((may_alias))
RLX_VECTOR ushort2 { ushort x, y; };
RLX_VECTOR uint2 { uint x, y; uint2(uint x, uint y) : x(x), y(y) {} };
RLX_VECTOR uint4 { uint x, y, z, w; uint4() = default; uint4(uint x, uint y, uint z, uint w) : x(x), y(y), z(z), w(w) {} };
RLX_VECTOR float2 { float x, y; float2(float x, float y) : x(x), y(y) {} };
RLX_VECTOR ulong2 { ulong x, y; ulong2(ulong x, ulong y) : x(x), y(y) {} };
struct bfloat { ushort bits; };

static inline double rlx_number(float x) { return x; }
static inline double rlx_number(half x) { return (double)x; }
static inline double rlx_number(bfloat x) { return as_type<float>((uint)x.bits << 16); }

template <class T, int Cols, int Rows> struct simdgroup_matrix {
  static_assert(Cols == 8 && Rows == 8, "there are matrices of 8 x 8 only");
  T rlx_own[2];
};

// All lanes of a warp name the same address in the same call, whichever of them gets there first.
static std::vector<const void*> rlx_calls[32];
static size_t rlx_made[1024];
static void rlx_same(const void* p) {
  auto& calls = rlx_calls[simt::current / 32];
  size_t n = rlx_made[simt::current]++;
  if (n == calls.size()) calls.push_back(p);
  if (calls[n] != p) { fprintf(stderr, "lanes of a warp name different matrices\n"); exit(4); }
}

template <class T, int C, int R> static simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T x) { return {{x, x}}; }

template <class T> static void simdgroup_load(simdgroup_matrix<T, 8, 8>& d, const T* p, ulong row, ulong2 origin = {0, 0}, bool transposed = false) {
  rlx_same(p);
  for (int e = 0; e < 2; e++) {
    int at = simt::current % 32 + 32 * e, r = at / 8, c = at % 8;
    d.rlx_own[e] = transposed ? p[(origin.x + c) * row + origin.y + r] : p[(origin.y + r) * row + origin.x + c];
  }
}
// Nobody waits: who reads what other lanes store does.
template <class T> static void simdgroup_store(const simdgroup_matrix<T, 8, 8>& a, T* p, ulong row) {
  rlx_same(p);
  for (int e = 0; e < 2; e++) {
    int at = simt::current % 32 + 32 * e;
    p[at / 8 * row + at % 8] = a.rlx_own[e];
  }
}
static inline void simdgroup_barrier(mem_flags) { simt::barrier(); }

static const void* rlx_shown[1024][2];
template <class T> static double rlx_element(int which, int row, int col) {
  int at = row * 8 + col;
  return rlx_number(((const T*)rlx_shown[simt::current / 32 * 32 + at % 32][which])[at / 32]);
}
template <class T> static void simdgroup_multiply_accumulate(
    simdgroup_matrix<float, 8, 8>& d, const simdgroup_matrix<T, 8, 8>& a, const simdgroup_matrix<T, 8, 8>& b, const simdgroup_matrix<float, 8, 8>& c) {
  rlx_shown[simt::current][0] = a.rlx_own;
  rlx_shown[simt::current][1] = b.rlx_own;
  simt::barrier();
  simdgroup_matrix<float, 8, 8> made;
  for (int e = 0; e < 2; e++) {
    int at = simt::current % 32 + 32 * e;
    double sum = -0.0;
    for (int k = 0; k < 8; k++) sum += rlx_element<T>(0, at / 8, k) * rlx_element<T>(1, k, at % 8);
    made.rlx_own[e] = (float)((double)c.rlx_own[e] + sum);
  }
  simt::barrier();
  d = made;
}
}  // namespace metal
