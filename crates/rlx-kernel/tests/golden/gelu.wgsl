// map.activation
@group(0) @binding(0) var<uniform> u: array<vec4<i32>, 1>;
@group(0) @binding(1) var<storage, read> b0: array<f32>; // x0
@group(0) @binding(2) var<storage, read_write> b1: array<f32>; // y0
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
  let v3: i32 = i32(group.y * groups.x + group.x);
  let v4: i32 = i32(local);
  let v6: i32 = (v3 << 6u);
  let v7: i32 = (v6 + v4);
  let v8: bool = (v7 < v2);
  if (v8) {
    let v31: i32 = (v0 + v7);
    let v32: f32 = b0[v31];
    let v33: u32 = bitcast<u32>(v32);
    let v34: u32 = (v33 & 2147483647u);
    let v35: bool = (v34 > 2139095040u);
    let v36: f32 = select(v32, 0.0f, v35);
    let v37: f32 = (-v36);
    let v38: bool = (11.5f < v36);
    let v39: f32 = select(v36, 11.5f, v38);
    let v40: bool = (v39 < v37);
    let v41: f32 = select(v39, v37, v40);
    let v42: bool = (11.5f < v41);
    let v43: f32 = select(v41, 11.5f, v42);
    let v44: f32 = ((-1.5586756e-6f) * v43);
    let v45: f32 = (v44 + 2.551993e-5f);
    let v46: f32 = (v45 * v43);
    let v47: f32 = (v46 + (-0.00012831582f));
    let v48: f32 = (v47 * v43);
    let v49: f32 = (v48 + (-0.00025549173f));
    let v50: f32 = (v49 * v43);
    let v51: f32 = (v50 + 0.007189243f);
    let v52: f32 = (v51 * v43);
    let v53: f32 = (v52 + (-0.052563056f));
    let v54: f32 = (v53 * v43);
    let v55: f32 = (v54 + (-0.45919257f));
    let v56: f32 = (v55 * v43);
    let v57: f32 = (v56 + (-1.1511064f));
    let v58: f32 = (v57 * v43);
    let v59: f32 = round(v58);
    let v60: f32 = (v58 - v59);
    let v61: f32 = (7.676681e-5f * v60);
    let v62: f32 = (v61 + 0.0006699437f);
    let v63: f32 = (v62 * v60);
    let v64: f32 = (v63 + 0.004809219f);
    let v65: f32 = (v64 * v60);
    let v66: f32 = (v65 + 0.027751662f);
    let v67: f32 = (v66 * v60);
    let v68: f32 = (v67 + 0.12011324f);
    let v69: f32 = (v68 * v60);
    let v70: f32 = (v69 + 0.3465736f);
    let v71: f32 = (v70 * v60);
    let v72: f32 = (v71 + 0.5f);
    let v73: i32 = to_i32(v59);
    let v74: i32 = (v73 >> 1u);
    let v75: i32 = (v74 + 127i);
    let v76: i32 = (v75 << 23u);
    let v77: f32 = bitcast<f32>(v76);
    let v78: f32 = (v72 * v77);
    let v79: i32 = (v73 - v74);
    let v80: i32 = (v79 + 127i);
    let v81: i32 = (v80 << 23u);
    let v82: f32 = bitcast<f32>(v81);
    let v83: f32 = (v78 * v82);
    let v84: bool = (v36 < 0.0f);
    let v85: f32 = select(v36, 0.0f, v84);
    let v86: f32 = (v41 * v83);
    let v87: f32 = (v85 - v86);
    let v88: f32 = select(v87, v32, v35);
    let v89: i32 = (v1 + v7);
    b1[v89] = v88;
  }
}
