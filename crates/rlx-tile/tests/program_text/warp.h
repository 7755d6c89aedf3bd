// What a warp does together, on the processor: `ldmatrix`, `mma` and `cp.async` for text whose lanes are fibers of `simt.h`. The layouts are written
// out from the formulas of the PTX ISA. RLX_NUMBER makes a number of 16 bits, RLX_DEPTH is the depth of an instruction.
struct uint4 { u32 x, y, z, w; };
struct uint2 { u32 x, y; };
struct float2 { float x, y; };

// What each lane of the workgroup shows the others.
static const void* shown[1024][2];
static void show(const void* a, const void* b) {
  shown[simt::current][0] = a;
  shown[simt::current][1] = b;
  simt::barrier();
}
static int lane_of_warp() { return simt::current % 32; }
static const void* const* lane_at(int lane) { return shown[simt::current - lane_of_warp() + lane]; }

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

static u16 half_word(u32 word, int i) { return (u16)(word >> 16 * (i & 1)); }
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

static u32 pack_half(float low, float high) { return (u32)to_half(low) | (u32)to_half(high) << 16; }
static u32 pack_brain(float low, float high) { return (u32)to_brain(low) | (u32)to_brain(high) << 16; }

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
