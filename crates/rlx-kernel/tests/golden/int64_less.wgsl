// map.compare
@group(0) @binding(0) var<uniform> u: array<vec4<i32>, 2>;
@group(0) @binding(1) var<storage, read> b0: array<u32>; // x0
@group(0) @binding(2) var<storage, read> b1: array<u32>; // x1
@group(0) @binding(3) var<storage, read_write> b2: array<atomic<u32>>; // y0
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
  let v4: i32 = i32(group.y * groups.x + group.x);
  let v5: i32 = i32(local);
  let v7: i32 = (v4 << 6u);
  let v8: i32 = (v7 + v5);
  let v9: bool = (v8 < v3);
  if (v9) {
    let v16: i32 = (v0 + v8);
    let v17: i32 = (v16 << 1u);
    let v18: i32 = (v17 + 1i);
    let v19: u32 = b0[v17];
    let v20: u32 = b0[v18];
    let v21: i32 = (v1 + v8);
    let v22: i32 = (v21 << 1u);
    let v23: i32 = (v22 + 1i);
    let v24: u32 = b1[v22];
    let v25: u32 = b1[v23];
    let v26: i32 = bitcast<i32>(v20);
    let v27: i32 = bitcast<i32>(v25);
    let v28: bool = (v26 < v27);
    let v29: bool = (v20 == v25);
    let v30: bool = (v19 < v24);
    let v31: bool = (v29 & v30);
    let v32: bool = (v28 | v31);
    let v33: i32 = (v2 + v8);
    let v34: u32 = u32(v32);
    let v35: u32 = (v34 & 255u);
    let v36: i32 = (v33 >> 2u);
    let v37: i32 = (v33 & 3i);
    let v38: u32 = bitcast<u32>(v37);
    let v39: u32 = (v38 << 3u);
    let v40: u32 = (v35 << v39);
    let v41: u32 = (255u << v39);
    atomicAnd(&b2[v36], ~(v41)); atomicOr(&b2[v36], v40);
  }
}
