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
fn main(@builtin(local_invocation_index) local: u32, @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
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
    for (var v16: i32 = v7; v16 < v1; v16 += 64) {
      let v17: i32 = (v6 * v3);
      let v18: i32 = (v2 + v17);
      let v19: i32 = (v18 + v16);
      let v20: f32 = b0[v19];
      let v21: f32 = m0;
      let v22: f32 = (v21 + v20);
      m0 = v22;
    }
    let v23: f32 = m0;
    s0[v7] = v23;
    workgroupBarrier();
    let v24: bool = (v7 < 32i);
    if (v24) {
      let v25: i32 = (v7 + 32i);
      let v26: f32 = s0[v7];
      let v27: f32 = s0[v25];
      let v28: f32 = (v26 + v27);
      s0[v7] = v28;
    }
    workgroupBarrier();
    let v29: bool = (v7 < 16i);
    if (v29) {
      let v30: i32 = (v7 + 16i);
      let v31: f32 = s0[v7];
      let v32: f32 = s0[v30];
      let v33: f32 = (v31 + v32);
      s0[v7] = v33;
    }
    workgroupBarrier();
    let v34: bool = (v7 < 8i);
    if (v34) {
      let v35: i32 = (v7 + 8i);
      let v36: f32 = s0[v7];
      let v37: f32 = s0[v35];
      let v38: f32 = (v36 + v37);
      s0[v7] = v38;
    }
    workgroupBarrier();
    let v39: bool = (v7 < 4i);
    if (v39) {
      let v40: i32 = (v7 + 4i);
      let v41: f32 = s0[v7];
      let v42: f32 = s0[v40];
      let v43: f32 = (v41 + v42);
      s0[v7] = v43;
    }
    workgroupBarrier();
    let v44: bool = (v7 < 2i);
    if (v44) {
      let v45: i32 = (v7 + 2i);
      let v46: f32 = s0[v7];
      let v47: f32 = s0[v45];
      let v48: f32 = (v46 + v47);
      s0[v7] = v48;
    }
    workgroupBarrier();
    let v49: bool = (v7 < 1i);
    if (v49) {
      let v50: i32 = (v7 + 1i);
      let v51: f32 = s0[v7];
      let v52: f32 = s0[v50];
      let v53: f32 = (v51 + v52);
      s0[v7] = v53;
    }
    workgroupBarrier();
    let v54: f32 = s0[0i];
    workgroupBarrier();
    if (v49) {
      let v55: i32 = (v4 + v6);
      b1[v55] = v54;
    }
  }
}
