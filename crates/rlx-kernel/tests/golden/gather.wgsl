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
    let v21: i32 = (v13 / v1);
    let v22: i32 = (v21 * v1);
    let v23: i32 = (v13 - v22);
    let v24: i32 = (v2 + v21);
    let v25: i32 = (v24 << 1u);
    let v26: i32 = (v25 + 1i);
    let v27: u32 = b0[v25];
    let v28: u32 = b0[v26];
    let v29: i32 = (v3 >> 31u);
    let v30: u32 = bitcast<u32>(v3);
    let v31: u32 = bitcast<u32>(v29);
    let v32: u32 = (v27 + v30);
    let v33: bool = (v32 < v27);
    let v34: u32 = u32(v33);
    let v35: u32 = (v28 + v31);
    let v36: u32 = (v35 + v34);
    let v37: i32 = bitcast<i32>(v28);
    let v38: bool = (v37 < 0i);
    let v39: bool = (v28 == 0u);
    let v40: bool = (v27 < 0u);
    let v41: bool = (v39 & v40);
    let v42: bool = (v38 | v41);
    let v43: u32 = select(v27, v32, v42);
    let v44: u32 = select(v28, v36, v42);
    let v45: i32 = bitcast<i32>(v44);
    let v46: bool = (v45 < 0i);
    let v47: bool = (v44 == 0u);
    let v48: bool = (v43 < 0u);
    let v49: bool = (v47 & v48);
    let v50: bool = (v46 | v49);
    let v51: bool = (!v50);
    let v52: i32 = bitcast<i32>(v31);
    let v53: bool = (v45 < v52);
    let v54: bool = (v44 == v31);
    let v55: bool = (v43 < v30);
    let v56: bool = (v54 & v55);
    let v57: bool = (v53 | v56);
    let v58: bool = (v51 & v57);
    let v59: bool = (!v58);
    let v60: i32 = bitcast<i32>(v27);
    if (v59) {
      if (atomicAdd(&fault[0], 1u) == 0u) { atomicStore(&fault[1], u32(u[2][0])); atomicStore(&fault[2], 0u); atomicStore(&fault[3], bitcast<u32>(v60)); }
    }
    let v61: i32 = bitcast<i32>(v43);
    m0 = 0.0f;
    if (v58) {
      let v62: i32 = (v61 * v5);
      let v63: i32 = (v4 + v62);
      let v64: i32 = (v63 + v23);
      let v65: f32 = b1[v64];
      m0 = v65;
    }
    let v66: f32 = m0;
    let v67: i32 = (v21 * v7);
    let v68: i32 = (v6 + v67);
    let v69: i32 = (v68 + v23);
    b2[v69] = v66;
  }
}
