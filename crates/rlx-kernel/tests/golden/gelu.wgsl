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
    let v42: i32 = (v0 + v7);
    let v43: f32 = b0[v42];
    let v44: f32 = (v43 * 0.70710677f);
    let v45: f32 = abs(v44);
    let v46: f32 = (v45 * v45);
    let v47: f32 = ((-0.00075757573f) * v46);
    let v48: f32 = (v47 + 0.0046296297f);
    let v49: f32 = (v48 * v46);
    let v50: f32 = (v49 + (-0.023809524f));
    let v51: f32 = (v50 * v46);
    let v52: f32 = (v51 + 0.1f);
    let v53: f32 = (v52 * v46);
    let v54: f32 = (v53 + (-0.33333334f));
    let v55: f32 = (v54 * v46);
    let v56: f32 = (v55 + 1.0f);
    let v57: f32 = (v56 * v45);
    let v58: f32 = (v57 * 1.1283792f);
    let v59: f32 = (v45 * 0.3275911f);
    let v60: f32 = (v59 + 1.0f);
    let v61: f32 = (1.0f / v60);
    let v62: f32 = (1.0614054f * v61);
    let v63: f32 = (v62 + (-1.4531521f));
    let v64: f32 = (v63 * v61);
    let v65: f32 = (v64 + 1.4214138f);
    let v66: f32 = (v65 * v61);
    let v67: f32 = (v66 + (-0.28449672f));
    let v68: f32 = (v67 * v61);
    let v69: f32 = (v68 + 0.2548296f);
    let v70: f32 = (v69 * v61);
    let v71: f32 = (v70 + 0.0f);
    let v72: f32 = (-v46);
    let v73: u32 = bitcast<u32>(v72);
    let v74: u32 = (v73 & 2147483647u);
    let v75: bool = (v74 > 2139095040u);
    let v76: f32 = select(v72, 0.0f, v75);
    let v77: f32 = max(v76, (-104.0f));
    let v78: f32 = min(v77, 89.0f);
    let v79: f32 = (v78 * 1.442695f);
    let v80: f32 = round(v79);
    let v81: f32 = (v80 * (-0.6933594f));
    let v82: f32 = (v81 + v78);
    let v83: f32 = (v80 * 0.00021219444f);
    let v84: f32 = (v83 + v82);
    let v85: f32 = (0.00019875691f * v84);
    let v86: f32 = (v85 + 0.0013981999f);
    let v87: f32 = (v86 * v84);
    let v88: f32 = (v87 + 0.008333452f);
    let v89: f32 = (v88 * v84);
    let v90: f32 = (v89 + 0.041665796f);
    let v91: f32 = (v90 * v84);
    let v92: f32 = (v91 + 0.16666666f);
    let v93: f32 = (v92 * v84);
    let v94: f32 = (v93 + 0.5f);
    let v95: f32 = (v84 * v84);
    let v96: f32 = (v94 * v95);
    let v97: f32 = (v96 + v84);
    let v98: f32 = (v97 + 1.0f);
    let v99: i32 = to_i32(v80);
    let v100: i32 = (v99 >> 1u);
    let v101: i32 = (v99 - v100);
    let v102: i32 = (v100 + 127i);
    let v103: i32 = (v102 << 23u);
    let v104: f32 = bitcast<f32>(v103);
    let v105: f32 = (v98 * v104);
    let v106: i32 = (v101 + 127i);
    let v107: i32 = (v106 << 23u);
    let v108: f32 = bitcast<f32>(v107);
    let v109: f32 = (v105 * v108);
    let v110: f32 = select(v109, v72, v75);
    let v111: f32 = (v71 * v110);
    let v112: f32 = (1.0f - v111);
    let v113: bool = (v45 < 0.5f);
    let v114: bool = (v45 > 4.0f);
    let v115: f32 = select(v112, v58, v113);
    let v116: f32 = select(v115, 1.0f, v114);
    let v117: u32 = bitcast<u32>(v116);
    let v118: u32 = bitcast<u32>(v44);
    let v119: u32 = (v118 & 2147483648u);
    let v120: u32 = (v117 ^ v119);
    let v121: f32 = bitcast<f32>(v120);
    let v122: f32 = (v43 * 0.5f);
    let v123: f32 = (1.0f + v121);
    let v124: f32 = (v122 * v123);
    let v125: i32 = (v1 + v7);
    b1[v125] = v124;
  }
}
