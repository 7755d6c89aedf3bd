// reduce.reduce
@group(0) @binding(0) var<uniform> u: array<vec4<i32>, 2>;
@group(0) @binding(1) var<storage, read> b0: array<f32>; // x0
@group(0) @binding(2) var<storage, read_write> b1: array<f32>; // y0
var<workgroup> s0: array<f32, 64>;
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
@compute @workgroup_size(64)
fn main(@builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) lane: u32, @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let local = subgroup * 32u + lane;
  var m0: f32;
  let v0: i32 = u[0][0];
  let v1: i32 = u[0][1];
  let v2: i32 = u[0][2];
  let v3: i32 = u[0][3];
  let v4: i32 = u[1][0];
  let v6: i32 = i32(group.y * groups.x + group.x);
  let v7: i32 = i32(local);
  let v8: bool = (v6 < v0);
  if (v8) {
    m0 = 0.0f;
    for (var v12: i32 = v7; v12 < v1; v12 += 64) {
      let v13: i32 = (v6 * v3);
      let v14: i32 = (v2 + v13);
      let v15: i32 = (v14 + v12);
      let v16: f32 = b0[v15];
      let v17: f32 = m0;
      let v18: f32 = (v17 + v16);
      m0 = v18;
    }
    let v19: f32 = m0;
    s0[v7] = v19;
    workgroupBarrier();
    let v20: i32 = (v7 & 31i);
    let v21: f32 = s0[v20];
    let v22: i32 = (v20 + 32i);
    let v23: f32 = s0[v22];
    let v24: f32 = (v21 + v23);
    let v25: f32 = subgroupShuffleXor(v24, 16u);
    let v26: f32 = (v24 + v25);
    let v27: f32 = subgroupShuffleXor(v26, 8u);
    let v28: f32 = (v26 + v27);
    let v29: f32 = subgroupShuffleXor(v28, 4u);
    let v30: f32 = (v28 + v29);
    let v31: f32 = subgroupShuffleXor(v30, 2u);
    let v32: f32 = (v30 + v31);
    let v33: f32 = subgroupShuffleXor(v32, 1u);
    let v34: f32 = (v32 + v33);
    let v35: bool = (v7 < 1i);
    if (v35) {
      let v36: i32 = (v4 + v6);
      b1[v36] = v34;
    }
  }
}
