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
    let v24: i32 = (v13 / v1);
    let v25: i32 = (v24 * v1);
    let v26: i32 = (v13 - v25);
    let v27: i32 = (v2 + v24);
    let v28: i32 = (v27 << 1u);
    let v29: i32 = (v28 + 1i);
    let v30: u32 = b0[v28];
    let v31: u32 = b0[v29];
    let v32: i32 = (v3 >> 31u);
    let v33: u32 = bitcast<u32>(v3);
    let v34: u32 = bitcast<u32>(v32);
    let v35: u32 = (v30 + v33);
    let v36: bool = (v35 < v30);
    let v37: u32 = u32(v36);
    let v38: u32 = (v31 + v34);
    let v39: u32 = (v38 + v37);
    let v40: i32 = bitcast<i32>(v31);
    let v41: bool = (v40 < 0i);
    let v42: bool = (v31 == 0u);
    let v43: bool = (v30 < 0u);
    let v44: bool = (v42 & v43);
    let v45: bool = (v41 | v44);
    let v46: u32 = select(v30, v35, v45);
    let v47: u32 = select(v31, v39, v45);
    let v48: i32 = bitcast<i32>(v47);
    let v49: bool = (v48 < 0i);
    let v50: bool = (v47 == 0u);
    let v51: bool = (v46 < 0u);
    let v52: bool = (v50 & v51);
    let v53: bool = (v49 | v52);
    let v54: bool = (!v53);
    let v55: i32 = bitcast<i32>(v34);
    let v56: bool = (v48 < v55);
    let v57: bool = (v47 == v34);
    let v58: bool = (v46 < v33);
    let v59: bool = (v57 & v58);
    let v60: bool = (v56 | v59);
    let v61: bool = (v54 & v60);
    let v62: bool = (!v61);
    if (v62) {
      let v63: bool = (v40 < (-1i));
      let v64: bool = (v31 == 4294967295u);
      let v65: bool = (v30 < 2147483648u);
      let v66: bool = (v64 & v65);
      let v67: bool = (v63 | v66);
      let v68: bool = (0i < v40);
      let v69: bool = (0u == v31);
      let v70: bool = (2147483647u < v30);
      let v71: bool = (v69 & v70);
      let v72: bool = (v68 | v71);
      let v73: u32 = select(v30, 2147483648u, v67);
      let v74: u32 = select(v73, 2147483647u, v72);
      let v75: i32 = bitcast<i32>(v74);
      if (atomicAdd(&fault[0], 1u) == 0u) { atomicStore(&fault[1], u32(u[2][0])); atomicStore(&fault[2], 0u); atomicStore(&fault[3], bitcast<u32>(v75)); }
    }
    let v76: i32 = bitcast<i32>(v46);
    let v77: i32 = select(0i, v76, v61);
    let v78: i32 = (v77 * v5);
    let v79: i32 = (v4 + v78);
    let v80: i32 = (v79 + v26);
    let v81: f32 = b1[v80];
    let v82: i32 = (v24 * v7);
    let v83: i32 = (v6 + v82);
    let v84: i32 = (v83 + v26);
    b2[v84] = v81;
  }
}
