// map.gather
@group(0) @binding(0) var<uniform> u: array<vec4<i32>, 3>;
@group(0) @binding(1) var<storage, read> b0: array<u32>; // x1
@group(0) @binding(2) var<storage, read> b1: array<f32>; // x0
@group(0) @binding(3) var<storage, read_write> b2: array<f32>; // y0
@group(0) @binding(4) var<storage, read_write> fault: array<atomic<u32>, 4>;
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
  let v5: i32 = u[1][1];
  let v6: i32 = u[1][2];
  let v7: i32 = u[1][3];
  let v8: i32 = (v0 * v1);
  let v9: i32 = i32(group.y * groups.x + group.x);
  let v10: i32 = i32(local);
  let v12: i32 = (v9 << 6u);
  let v13: i32 = (v12 + v10);
  let v14: bool = (v13 < v8);
  if (v14) {
    let v21: i32 = (v13 % v1);
    let v22: i32 = (v13 / v1);
    let v23: i32 = (v2 + v22);
    let v24: i32 = (v23 << 1u);
    let v25: i32 = (v24 + 1i);
    let v26: u32 = b0[v24];
    let v27: u32 = b0[v25];
    let v28: i32 = (v3 >> 31u);
    let v29: u32 = bitcast<u32>(v3);
    let v30: u32 = bitcast<u32>(v28);
    let v31: u32 = (v26 + v29);
    let v32: bool = (v31 < v26);
    let v33: u32 = u32(v32);
    let v34: u32 = (v27 + v30);
    let v35: u32 = (v34 + v33);
    let v36: i32 = bitcast<i32>(v27);
    let v37: bool = (v36 < 0i);
    let v38: bool = (v27 == 0u);
    let v39: bool = (v26 < 0u);
    let v40: bool = (v38 & v39);
    let v41: bool = (v37 | v40);
    let v42: u32 = select(v26, v31, v41);
    let v43: u32 = select(v27, v35, v41);
    let v44: i32 = bitcast<i32>(v43);
    let v45: bool = (v44 < 0i);
    let v46: bool = (v43 == 0u);
    let v47: bool = (v42 < 0u);
    let v48: bool = (v46 & v47);
    let v49: bool = (v45 | v48);
    let v50: bool = (!v49);
    let v51: i32 = bitcast<i32>(v30);
    let v52: bool = (v44 < v51);
    let v53: bool = (v43 == v30);
    let v54: bool = (v42 < v29);
    let v55: bool = (v53 & v54);
    let v56: bool = (v52 | v55);
    let v57: bool = (v50 & v56);
    let v58: bool = (!v57);
    let v59: i32 = bitcast<i32>(v26);
    if (v58) {
      if (atomicAdd(&fault[0], 1u) == 0u) { atomicStore(&fault[1], u32(u[2][0])); atomicStore(&fault[2], 0u); atomicStore(&fault[3], bitcast<u32>(v59)); }
    }
    let v60: i32 = bitcast<i32>(v42);
    m0 = 0.0f;
    if (v57) {
      let v61: i32 = (v60 * v5);
      let v62: i32 = (v4 + v61);
      let v63: i32 = (v62 + v21);
      let v64: f32 = b1[v63];
      m0 = v64;
    }
    let v65: f32 = m0;
    let v66: i32 = (v22 * v7);
    let v67: i32 = (v6 + v66);
    let v68: i32 = (v67 + v21);
    b2[v68] = v65;
  }
}
