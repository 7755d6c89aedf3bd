// program matmul.f16.64x64x32.2x2.s2 for coop16 f16 warps 2x2
//   b0 f16 read
//   b1 f16 read
//   b2 f16 write
//   uniforms 12
//   grid [u0, u1] by 64x64 batch [] bands 8
//   g0 b0 base u3 [u0, u2] strides [u4, 1] batch [] vector 8
//   g1 b1 base u6 [u1, u2] strides [u7, 1] batch [] vector 8
//   g2 b2 base u9 [u0, u1] strides [u10, 1] batch [] vector 8
//   t0 f16[64, 32] stages 2 pad 1
//   t1 f16[64, 32] stages 2 pad 1
//   f0 sum[32, 32]
//   f1 left[32, 16]
//   f2 right[16, 32]
enable f16;
enable wgpu_cooperative_matrix;
struct Chunk { low: vec4<f16>, high: vec4<f16> }
@group(0) @binding(0) var<uniform> u: array<vec4<i32>, 4>;
@group(0) @binding(1) var<storage, read> b0: array<Chunk>;
@group(0) @binding(2) var<storage, read> b1: array<Chunk>;
@group(0) @binding(3) var<storage, read_write> b2: array<Chunk>;
var<workgroup> t0: array<vec4<f16>, 1280>;
var<workgroup> t1: array<vec4<f16>, 1280>;
var<workgroup> exchanged: array<vec4<f32>, 256>;
var<private> zero: u32 = 0u;
fn f32_bits(bits: u32) -> f32 { return bitcast<f32>(bits | zero); }
fn to_i32(x: f32) -> i32 {
  if ((bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u) { return 0; }
  if (x >= 2147483648.0f) { return 2147483647; }
  if (x <= -2147483648.0f) { return bitcast<i32>(0x80000000u); }
  return i32(x);
}
fn to_u32(x: f32) -> u32 {
  if (!(x > 0.0f)) { return 0u; }
  if (x >= 4294967296.0f) { return 0xffffffffu; }
  return u32(x);
}
fn round_f16(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  let sign = bits & 0x80000000u;
  let size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) { return x; }
  if (size >= 0x477ff000u) { return bitcast<f32>(sign | 0x7f800000u | zero); }
  if (size >= 0x38800000u) { return bitcast<f32>(sign | ((size + 0xfffu + ((size >> 13u) & 1u)) & 0xffffe000u)); }
  let shift = min(126u - (size >> 23u), 25u);
  let digits = (size & 0x7fffffu) | 0x800000u;
  let whole = digits >> shift;
  let rest = digits & ((1u << shift) - 1u);
  let half = 1u << (shift - 1u);
  let up = u32(rest > half || (rest == half && (whole & 1u) == 1u));
  return bitcast<f32>(sign | bitcast<u32>(f32(whole + up) * 5.9604644775390625e-8f));
}
fn round_bf16(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) { return x; }
  return bitcast<f32>((bits + 0x7fffu + ((bits >> 16u) & 1u)) & 0xffff0000u);
}
@compute @workgroup_size(128)
fn k(@builtin(local_invocation_index) local: u32, @builtin(subgroup_id) subgroup: u32,
    @builtin(workgroup_id) block: vec3<u32>, @builtin(num_workgroups) blocks: vec3<u32>) {
  let d0 = u[0][0];
  let d1 = u[0][1];
  let d2 = u[0][2];
  let d3 = u[0][3];
  let d4 = u[1][0];
  let d6 = u[1][2];
  let d7 = u[1][3];
  let d9 = u[2][1];
  let d10 = u[2][2];
  let thread = i32(local);
  let warp_row = i32(subgroup / 2u);
  let warp_col = i32(subgroup % 2u);
  let own_row = i32((local >> 5u) / 2u);
  let own_col = i32((local >> 5u) % 2u);
  let rows = (u32(d0) + 63u) / 64u;
  let cols = (u32(d1) + 63u) / 64u;
  let group = block.y * blocks.x + block.x;
  let plane = group % (rows * cols);
  let band = plane / (8u * cols);
  let within = plane % (8u * cols);
  let height = min(rows - band * 8u, 8u);
  let group_row = i32(band * 8u + within % height);
  let group_col = i32(within / height);
  let batch = i32(group / (rows * cols));
  if (batch > 0i) { return; }
  let g0 = d3;
  let g1 = d6;
  let g2 = d9;
  var f0_0_0: coop_mat16x16<f32, C>;
  var f0_0_1: coop_mat16x16<f32, C>;
  var f0_1_0: coop_mat16x16<f32, C>;
  var f0_1_1: coop_mat16x16<f32, C>;
  var x0_0l: vec4<f16>;
  var x0_0h: vec4<f16>;
  var x0_1l: vec4<f16>;
  var x0_1h: vec4<f16>;
  var x1_0l: vec4<f16>;
  var x1_0h: vec4<f16>;
  var x1_1l: vec4<f16>;
  var x1_1h: vec4<f16>;
  f0_0_0 = coop_mat16x16<f32, C>();
  f0_0_1 = coop_mat16x16<f32, C>();
  f0_1_0 = coop_mat16x16<f32, C>();
  f0_1_1 = coop_mat16x16<f32, C>();
  {
    var x_0l: vec4<f16>;
    var x_0h: vec4<f16>;
    var x_1l: vec4<f16>;
    var x_1h: vec4<f16>;
    {
      let n = thread + 0i;
      let l = n >> 2u;
      let r = (l & ~7i) | ((l << 2u) & 7i) | ((l & 7i) >> 1u);
      let q = n & 3i;
      let row = (64i * group_row) + r;
      let col = (0i) + q * 8i;
      {
        x_0l = vec4<f16>();
        x_0h = vec4<f16>();
        if (row < d0 && col < d2) {
          let at = u32(g0 + row * d4 + col) >> 3u;
          let w0 = b0[at + 0u];
          x_0l = w0.low;
          x_0h = w0.high;
        }
      }
    }
    {
      let n = thread + 128i;
      let l = n >> 2u;
      let r = (l & ~7i) | ((l << 2u) & 7i) | ((l & 7i) >> 1u);
      let q = n & 3i;
      let row = (64i * group_row) + r;
      let col = (0i) + q * 8i;
      {
        x_1l = vec4<f16>();
        x_1h = vec4<f16>();
        if (row < d0 && col < d2) {
          let at = u32(g0 + row * d4 + col) >> 3u;
          let w0 = b0[at + 0u];
          x_1l = w0.low;
          x_1h = w0.high;
        }
      }
    }
    {
      let n = thread + 0i;
      let l = n >> 2u;
      let r = (l & ~7i) | ((l << 2u) & 7i) | ((l & 7i) >> 1u);
      let q = n & 3i;
      let row = (64i * group_row) + r;
      let col = (0i) + q * 8i;
      {
        let to = ((0i * 64i + r) * 5i + q) * 2i;
        t0[to] = x_0l;
        t0[to + 1i] = x_0h;
      }
    }
    {
      let n = thread + 128i;
      let l = n >> 2u;
      let r = (l & ~7i) | ((l << 2u) & 7i) | ((l & 7i) >> 1u);
      let q = n & 3i;
      let row = (64i * group_row) + r;
      let col = (0i) + q * 8i;
      {
        let to = ((0i * 64i + r) * 5i + q) * 2i;
        t0[to] = x_1l;
        t0[to + 1i] = x_1h;
      }
    }
  }
  {
    var x_0l: vec4<f16>;
    var x_0h: vec4<f16>;
    var x_1l: vec4<f16>;
    var x_1h: vec4<f16>;
    {
      let n = thread + 0i;
      let l = n >> 2u;
      let r = (l & ~7i) | ((l << 2u) & 7i) | ((l & 7i) >> 1u);
      let q = n & 3i;
      let row = (64i * group_col) + r;
      let col = (0i) + q * 8i;
      {
        x_0l = vec4<f16>();
        x_0h = vec4<f16>();
        if (row < d1 && col < d2) {
          let at = u32(g1 + row * d7 + col) >> 3u;
          let w0 = b1[at + 0u];
          x_0l = w0.low;
          x_0h = w0.high;
        }
      }
    }
    {
      let n = thread + 128i;
      let l = n >> 2u;
      let r = (l & ~7i) | ((l << 2u) & 7i) | ((l & 7i) >> 1u);
      let q = n & 3i;
      let row = (64i * group_col) + r;
      let col = (0i) + q * 8i;
      {
        x_1l = vec4<f16>();
        x_1h = vec4<f16>();
        if (row < d1 && col < d2) {
          let at = u32(g1 + row * d7 + col) >> 3u;
          let w0 = b1[at + 0u];
          x_1l = w0.low;
          x_1h = w0.high;
        }
      }
    }
    {
      let n = thread + 0i;
      let l = n >> 2u;
      let r = (l & ~7i) | ((l << 2u) & 7i) | ((l & 7i) >> 1u);
      let q = n & 3i;
      let row = (64i * group_col) + r;
      let col = (0i) + q * 8i;
      {
        let to = ((0i * 64i + r) * 5i + q) * 2i;
        t1[to] = x_0l;
        t1[to + 1i] = x_0h;
      }
    }
    {
      let n = thread + 128i;
      let l = n >> 2u;
      let r = (l & ~7i) | ((l << 2u) & 7i) | ((l & 7i) >> 1u);
      let q = n & 3i;
      let row = (64i * group_col) + r;
      let col = (0i) + q * 8i;
      {
        let to = ((0i * 64i + r) * 5i + q) * 2i;
        t1[to] = x_1l;
        t1[to + 1i] = x_1h;
      }
    }
  }
  workgroupBarrier();
  let e0 = d2 / 32i + i32(d2 % 32i > 0i);
  for (var c0 = 0i; c0 < e0; c0 += 1i) {
    {
      let n = thread + 0i;
      let l = n >> 2u;
      let r = (l & ~7i) | ((l << 2u) & 7i) | ((l & 7i) >> 1u);
      let q = n & 3i;
      let row = (64i * group_row) + r;
      let col = (32i * c0 + 32i) + q * 8i;
      {
        x0_0l = vec4<f16>();
        x0_0h = vec4<f16>();
        if (row < d0 && col < d2) {
          let at = u32(g0 + row * d4 + col) >> 3u;
          let w0 = b0[at + 0u];
          x0_0l = w0.low;
          x0_0h = w0.high;
        }
      }
    }
    {
      let n = thread + 128i;
      let l = n >> 2u;
      let r = (l & ~7i) | ((l << 2u) & 7i) | ((l & 7i) >> 1u);
      let q = n & 3i;
      let row = (64i * group_row) + r;
      let col = (32i * c0 + 32i) + q * 8i;
      {
        x0_1l = vec4<f16>();
        x0_1h = vec4<f16>();
        if (row < d0 && col < d2) {
          let at = u32(g0 + row * d4 + col) >> 3u;
          let w0 = b0[at + 0u];
          x0_1l = w0.low;
          x0_1h = w0.high;
        }
      }
    }
    {
      let n = thread + 0i;
      let l = n >> 2u;
      let r = (l & ~7i) | ((l << 2u) & 7i) | ((l & 7i) >> 1u);
      let q = n & 3i;
      let row = (64i * group_col) + r;
      let col = (32i * c0 + 32i) + q * 8i;
      {
        x1_0l = vec4<f16>();
        x1_0h = vec4<f16>();
        if (row < d1 && col < d2) {
          let at = u32(g1 + row * d7 + col) >> 3u;
          let w0 = b1[at + 0u];
          x1_0l = w0.low;
          x1_0h = w0.high;
        }
      }
    }
    {
      let n = thread + 128i;
      let l = n >> 2u;
      let r = (l & ~7i) | ((l << 2u) & 7i) | ((l & 7i) >> 1u);
      let q = n & 3i;
      let row = (64i * group_col) + r;
      let col = (32i * c0 + 32i) + q * 8i;
      {
        x1_1l = vec4<f16>();
        x1_1h = vec4<f16>();
        if (row < d1 && col < d2) {
          let at = u32(g1 + row * d7 + col) >> 3u;
          let w0 = b1[at + 0u];
          x1_1l = w0.low;
          x1_1h = w0.high;
        }
      }
    }
    {
      let c1 = 0i;
      let f1_0_0 = coopLoadT<coop_mat16x16<f16, A>>(&t0[(i32((u32(c0) + 0u) % 2u) * 64i + (32i * warp_row) + 0i) * 10i + ((16i * c1) + 0i) / 4i], 10u);
      let f1_1_0 = coopLoadT<coop_mat16x16<f16, A>>(&t0[(i32((u32(c0) + 0u) % 2u) * 64i + (32i * warp_row) + 16i) * 10i + ((16i * c1) + 0i) / 4i], 10u);
      let f2_0_0 = coopLoad<coop_mat16x16<f16, B>>(&t1[(i32((u32(c0) + 0u) % 2u) * 64i + (32i * warp_col) + 0i) * 10i + ((16i * c1) + 0i) / 4i], 10u);
      let f2_0_1 = coopLoad<coop_mat16x16<f16, B>>(&t1[(i32((u32(c0) + 0u) % 2u) * 64i + (32i * warp_col) + 16i) * 10i + ((16i * c1) + 0i) / 4i], 10u);
      f0_0_0 = coopMultiplyAdd(f1_0_0, f2_0_0, f0_0_0);
      f0_0_1 = coopMultiplyAdd(f1_0_0, f2_0_1, f0_0_1);
      f0_1_0 = coopMultiplyAdd(f1_1_0, f2_0_0, f0_1_0);
      f0_1_1 = coopMultiplyAdd(f1_1_0, f2_0_1, f0_1_1);
    }
    {
      let c1 = 1i;
      let f1_0_0 = coopLoadT<coop_mat16x16<f16, A>>(&t0[(i32((u32(c0) + 0u) % 2u) * 64i + (32i * warp_row) + 0i) * 10i + ((16i * c1) + 0i) / 4i], 10u);
      let f1_1_0 = coopLoadT<coop_mat16x16<f16, A>>(&t0[(i32((u32(c0) + 0u) % 2u) * 64i + (32i * warp_row) + 16i) * 10i + ((16i * c1) + 0i) / 4i], 10u);
      let f2_0_0 = coopLoad<coop_mat16x16<f16, B>>(&t1[(i32((u32(c0) + 0u) % 2u) * 64i + (32i * warp_col) + 0i) * 10i + ((16i * c1) + 0i) / 4i], 10u);
      let f2_0_1 = coopLoad<coop_mat16x16<f16, B>>(&t1[(i32((u32(c0) + 0u) % 2u) * 64i + (32i * warp_col) + 16i) * 10i + ((16i * c1) + 0i) / 4i], 10u);
      f0_0_0 = coopMultiplyAdd(f1_0_0, f2_0_0, f0_0_0);
      f0_0_1 = coopMultiplyAdd(f1_0_0, f2_0_1, f0_0_1);
      f0_1_0 = coopMultiplyAdd(f1_1_0, f2_0_0, f0_1_0);
      f0_1_1 = coopMultiplyAdd(f1_1_0, f2_0_1, f0_1_1);
    }
    {
      let n = thread + 0i;
      let l = n >> 2u;
      let r = (l & ~7i) | ((l << 2u) & 7i) | ((l & 7i) >> 1u);
      let q = n & 3i;
      let row = (64i * group_row) + r;
      let col = (32i * c0 + 32i) + q * 8i;
      {
        let to = ((i32((u32(c0) + 1u) % 2u) * 64i + r) * 5i + q) * 2i;
        t0[to] = x0_0l;
        t0[to + 1i] = x0_0h;
      }
    }
    {
      let n = thread + 128i;
      let l = n >> 2u;
      let r = (l & ~7i) | ((l << 2u) & 7i) | ((l & 7i) >> 1u);
      let q = n & 3i;
      let row = (64i * group_row) + r;
      let col = (32i * c0 + 32i) + q * 8i;
      {
        let to = ((i32((u32(c0) + 1u) % 2u) * 64i + r) * 5i + q) * 2i;
        t0[to] = x0_1l;
        t0[to + 1i] = x0_1h;
      }
    }
    {
      let n = thread + 0i;
      let l = n >> 2u;
      let r = (l & ~7i) | ((l << 2u) & 7i) | ((l & 7i) >> 1u);
      let q = n & 3i;
      let row = (64i * group_col) + r;
      let col = (32i * c0 + 32i) + q * 8i;
      {
        let to = ((i32((u32(c0) + 1u) % 2u) * 64i + r) * 5i + q) * 2i;
        t1[to] = x1_0l;
        t1[to + 1i] = x1_0h;
      }
    }
    {
      let n = thread + 128i;
      let l = n >> 2u;
      let r = (l & ~7i) | ((l << 2u) & 7i) | ((l & 7i) >> 1u);
      let q = n & 3i;
      let row = (64i * group_col) + r;
      let col = (32i * c0 + 32i) + q * 8i;
      {
        let to = ((i32((u32(c0) + 1u) % 2u) * 64i + r) * 5i + q) * 2i;
        t1[to] = x1_1l;
        t1[to + 1i] = x1_1h;
      }
    }
    workgroupBarrier();
  }
  for (var k = 0i; k < 4i; k += 1i) {
    workgroupBarrier();
    switch (k) {
      case 0i: { coopStoreT(f0_0_0, &exchanged[subgroup * 64u], 4u); }
      case 1i: { coopStoreT(f0_0_1, &exchanged[subgroup * 64u], 4u); }
      case 2i: { coopStoreT(f0_1_0, &exchanged[subgroup * 64u], 4u); }
      case 3i: { coopStoreT(f0_1_1, &exchanged[subgroup * 64u], 4u); }
      default: {}
    }
    workgroupBarrier();
    let down = (thread >> 1u) & 15i;
    let right = (thread & 1i) * 8i;
    let row = (64i * group_row + 32i * own_row) + k / 2i * 16i + down;
    let col = (64i * group_col + 32i * own_col) + k % 2i * 16i + right;
    let own = (thread >> 5u) * 64i + down * 4i + right / 4i;
    let xl = exchanged[own];
    let xh = exchanged[own + 1i];
    if (row < d0 && col < d1) {
      let y0 = xl.x;
      let y1 = xl.y;
      let y2 = xl.z;
      let y3 = xl.w;
      let y4 = xh.x;
      let y5 = xh.y;
      let y6 = xh.z;
      let y7 = xh.w;
      let at = u32(g2 + row * d10 + col) >> 3u;
      b2[at + 0u] = Chunk(vec4<f16>(f16(round_f16(y0)), f16(round_f16(y1)), f16(round_f16(y2)), f16(round_f16(y3))), vec4<f16>(f16(round_f16(y4)), f16(round_f16(y5)), f16(round_f16(y6)), f16(round_f16(y7))));
    }
  }
}
