// What a warp does together, on the processor: `ldmatrix`, `mma` and `cp.async`, MFMA and WMMA, for text whose lanes are fibers of `simt.h`. The layouts
// are written out from the formulas of the PTX ISA and of AMD's documents. RLX_NUMBER makes a number of 16 bits, RLX_DEPTH is the depth of an instruction,
// RLX_LANES how many lanes a warp has, RLX_EXCHANGED whether an instruction is given the right operand first, and one of RLX_MMA, RLX_MFMA, RLX_WMMA11, RLX_WMMA12 is the instruction.
struct uint4 { u32 x, y, z, w; };
struct uint2 { u32 x, y; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };

// What each lane of the workgroup shows the others.
static const void* shown[1024][2];
static void show(const void* a, const void* b) {
  shown[simt::current][0] = a;
  shown[simt::current][1] = b;
  simt::barrier();
}
static int lane_of_warp() { return simt::current % RLX_LANES; }
static const void* const* lane_at(int lane) { return shown[simt::current - lane_of_warp() + lane]; }

static u16 half_word(u32 word, int i) { return (u16)(word >> 16 * (i & 1)); }

#ifdef RLX_MMA
// Some compilers evaluate what a program says to that for Blackwell, which this is not. Nor does the processor have the conversions of sm_80.
#define __CUDA_ARCH__ 0
// Lane 8 i + r has the address of row r of matrix i; lane l gets two elements of row l / 4 of each.
static void load_matrices(u32* r, const u16* p) {
  show(p, nullptr);
  int l = lane_of_warp(), col = l % 4 * 2;
  for (int i = 0; i < 4; i++) {
    const u16* row = (const u16*)lane_at(8 * i + l / 4)[0];
    r[i] = (u32)row[col] | (u32)row[col + 1] << 16;
  }
  simt::barrier();
}
static void load_matrices_trans(u32* r, const u16* p) {
  show(p, nullptr);
  int l = lane_of_warp(), row = l % 4 * 2;
  for (int i = 0; i < 4; i++) {
    u32 low = ((const u16*)lane_at(8 * i + row)[0])[l / 4], high = ((const u16*)lane_at(8 * i + row + 1)[0])[l / 4];
    r[i] = low | high << 16;
  }
  simt::barrier();
}

// Element (row, k) of A, and (k, col) of B.
static double left(int row, int k) {
  const u32* a = (const u32*)lane_at(row % 8 * 4 + k % 8 / 2)[0];
  return (double)RLX_NUMBER(half_word(a[(row >= 8) + 2 * (k >= 8)], k));
}
static double right(int k, int col) {
  const u32* b = (const u32*)lane_at(col * 4 + k % 8 / 2)[1];
  return (double)RLX_NUMBER(half_word(b[k >= 8], k));
}
static void mma(float* c, const u32* a, const u32* b) {
  show(a, b);
  int l = lane_of_warp();
  for (int i = 0; i < 4; i++) {
    int row = l / 4 + (i < 2 ? 0 : 8), col = l % 4 * 2 + (i & 1);
    double sum = -0.0;
    for (int k = 0; k < RLX_DEPTH; k++) sum += left(row, k) * right(k, col);
    c[i] = (float)((double)c[i] + sum);
  }
  simt::barrier();
}

#else
#if defined(RLX_MFMA)
// A: i = lane mod 16, k = 4 (lane / 16) + e. D: i = 4 (lane / 16) + e, j = lane mod 16.
static int lane_with(int i, int k) { return i + k / 4 * 16; }
static int element_with(int k) { return k % 4; }
static const int SUMS = 4;
static int row_of(int lane, int e) { return 4 * (lane / 16) + e; }
#elif defined(RLX_WMMA11)
// A: i = lane mod 16, k = e; the upper half of the warp repeats the lower. D: i = 2 e + lane / 16, j = lane mod 16.
static int lane_with(int i, int k) { return i; }
static int element_with(int k) { return k; }
static const int SUMS = 8;
static int row_of(int lane, int e) { return 2 * e + lane / 16; }
#else
// A: i = lane mod 16, k = 8 (lane / 16) + e. D: i = 8 (lane / 16) + e, j = lane mod 16.
static int lane_with(int i, int k) { return i + k / 8 * 16; }
static int element_with(int k) { return k % 8; }
static const int SUMS = 8;
static int row_of(int lane, int e) { return 8 * (lane / 16) + e; }
#endif
// Element k of row `i` of the first operand (0), or of column `i` of the second (1).
static double operand(int which, int i, int k) {
  const u32* words = (const u32*)lane_at(lane_with(i, k))[which];
  return (double)RLX_NUMBER(half_word(words[element_with(k) / 2], element_with(k)));
}
static void matrix_instruction(float* d, const u32* first, const u32* second) {
  show(first, second);
  int l = lane_of_warp();
  for (int e = 0; e < SUMS; e++) {
    double sum = -0.0;
    for (int k = 0; k < RLX_DEPTH; k++) sum += operand(0, row_of(l, e), k) * operand(1, l % 16, k);
    d[e] = (float)((double)d[e] + sum);
  }
  simt::barrier();
}
// Where the right operand is given first, the sums are those of the transposed result.
static void mma(float* c, const u32* a, const u32* b) {
#ifdef RLX_WMMA11
  // What both halves have is the same.
  show(a, b);
  int other = lane_of_warp() ^ 16;
  bool same = !memcmp(lane_at(other)[0], a, 32) && !memcmp(lane_at(other)[1], b, 32);
  simt::barrier();
  if (!same) c[0] = __builtin_nanf("");
#endif
  if (RLX_EXCHANGED) matrix_instruction(c, b, a); else matrix_instruction(c, a, b);
}
#endif

static u32 pack_half(float low, float high) { return (u32)to_half(low) | (u32)to_half(high) << 16; }
static u32 pack_brain(float low, float high) { return (u32)to_brain(low) | (u32)to_brain(high) << 16; }

// What the lane at the same place of a half of the warp has.
static u32 of_half(u32 x, int lane, int half) {
  show(&x, nullptr);
  u32 y = *(const u32*)lane_at(lane % 16 + 16 * half)[0];
  simt::barrier();
  return y;
}

static void prefetch(const void*) {}

// Of four lanes, each gets the words of its own number of all of them.
static void exchange(u32 (&w)[4], int lane) {
  show(w, nullptr);
  u32 all[4];
  for (int i = 0; i < 4; i++) all[i] = ((const u32*)lane_at(lane / 4 * 4 + i)[0])[lane % 4];
  simt::barrier();
  memcpy(w, all, sizeof all);
}

// What another lane has, and powers of 2, those below the normal numbers 0.
static float of_lane(float x, int lane) {
  show(&x, nullptr);
  float y = *(const float*)lane_at(lane)[0];
  simt::barrier();
  return y;
}
static float power_of_2(float x) {
  float y = (float)exp2((double)x);
  return y < 1.17549435e-38f ? 0.0f : y;
}

// Asynchronous copies are done as late as they may be: when a lane waits for them.
struct Copying { u16* to; const void* from; int bytes; bool inside; };
static std::vector<std::vector<Copying>> copying[1024];
static void copy_async(u16* to, const void* from, bool inside, int bytes) {
  auto& groups = copying[simt::current];
  if (groups.empty()) groups.push_back({});
  groups.back().push_back({to, from, bytes, inside});
}
static void copy_async_16(u16* to, const void* from, bool inside) { copy_async(to, from, inside, 16); }
static void copy_async_8(u16* to, const void* from, bool inside) { copy_async(to, from, inside, 8); }
static void copy_async_4(u16* to, const void* from, bool inside) { copy_async(to, from, inside, 4); }
static void copy_commit() {
  auto& groups = copying[simt::current];
  if (groups.empty()) groups.push_back({});
  groups.push_back({});
}
template <int N> static void copy_wait() {
  auto& groups = copying[simt::current];
  while ((int)groups.size() - 1 > N) {
    for (const Copying& c : groups.front()) {
      if (c.inside) memcpy(c.to, c.from, c.bytes); else memset(c.to, 0, c.bytes);
    }
    groups.erase(groups.begin());
  }
}
#undef RLX_NUMBER
#undef RLX_DEPTH
#undef RLX_LANES
#undef RLX_EXCHANGED
#undef RLX_MMA
#undef RLX_MFMA
#undef RLX_WMMA11
#undef RLX_WMMA12
