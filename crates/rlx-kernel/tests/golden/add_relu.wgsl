// map.Add+Relu
@group(0) @binding(0) var<uniform> u: array<vec4<i32>, 2>;
@group(0) @binding(1) var<storage, read> b0: array<f32>; // x0
@group(0) @binding(2) var<storage, read> b1: array<f32>; // x1
@group(0) @binding(3) var<storage, read_write> b2: array<f32>; // y0
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
fn main(@builtin(local_invocation_index) local: u32, @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let v0: i32 = u[0][0];
  let v1: i32 = u[0][1];
  let v2: i32 = u[0][2];
  let v3: i32 = u[0][3];
  let v4: i32 = u[1][0];
  let v5: i32 = u[1][1];
  let v6: i32 = u[1][2];
  let v7: i32 = (v5 * v6);
  let v8: i32 = i32(group.y * groups.x + group.x);
  let v9: i32 = i32(local);
  let v11: i32 = (v8 << 6u);
  let v12: i32 = (v11 + v9);
  let v13: bool = (v12 < v7);
  if (v13) {
    let v17: i32 = (v12 / v6);
    let v18: i32 = (v17 * v6);
    let v19: i32 = (v12 - v18);
    let v20: i32 = (v17 * v1);
    let v21: i32 = (v0 + v20);
    let v22: i32 = (v21 + v19);
    let v23: f32 = b0[v22];
    let v24: i32 = (v2 + v19);
    let v25: f32 = b1[v24];
    let v26: f32 = (v23 + v25);
    let v27: bool = (v26 > 0.0f);
    let v28: u32 = bitcast<u32>(v26);
    let v29: u32 = (v28 & 2147483647u);
    let v30: bool = (v29 > 2139095040u);
    let v31: bool = (v27 | v30);
    let v32: f32 = select(0.0f, v26, v31);
    let v33: i32 = (v17 * v4);
    let v34: i32 = (v3 + v33);
    let v35: i32 = (v34 + v19);
    b2[v35] = v32;
  }
}
