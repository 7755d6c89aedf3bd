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
    let v46: i32 = (v0 + v7);
    let v47: f32 = b0[v46];
    let v48: u32 = bitcast<u32>(v47);
    let v49: u32 = (v48 & 2147483647u);
    let v50: bool = (v49 > 2139095040u);
    let v51: f32 = select(v47, 0.0f, v50);
    let v52: f32 = (v51 * 0.5f);
    let v53: f32 = (v51 * 0.70710677f);
    let v54: f32 = abs(v53);
    let v55: f32 = (v53 * v53);
    let v56: f32 = ((-1.7285347e-5f) * v54);
    let v57: f32 = (v56 + 0.0003831972f);
    let v58: f32 = ((-0.0038839644f) * v54);
    let v59: f32 = (v58 + 0.024254622f);
    let v60: f32 = (v57 * v55);
    let v61: f32 = (v60 + v59);
    let v62: f32 = (v61 * v54);
    let v63: f32 = (v62 + (-0.10677788f));
    let v64: f32 = (v63 * v54);
    let v65: f32 = (v64 + (-0.6348467f));
    let v66: f32 = (v65 * v54);
    let v67: f32 = (v66 + (-0.12871751f));
    let v68: f32 = (-v54);
    let v69: f32 = (v67 * v54);
    let v70: f32 = (v69 + v68);
    let v71: bool = (90.0f < v70);
    let v72: f32 = select(v70, 90.0f, v71);
    let v73: bool = (v72 < (-105.0f));
    let v74: f32 = select(v72, (-105.0f), v73);
    let v75: f32 = (v74 * 1.442695f);
    let v76: f32 = round(v75);
    let v77: f32 = (v76 * 0.69314575f);
    let v78: f32 = (v74 - v77);
    let v79: f32 = (v76 * 1.4286068e-6f);
    let v80: f32 = (v78 - v79);
    let v81: f32 = (0.0013780594f * v80);
    let v82: f32 = (v81 + 0.0083731245f);
    let v83: f32 = (v82 * v80);
    let v84: f32 = (v83 + 0.041669536f);
    let v85: f32 = (v84 * v80);
    let v86: f32 = (v85 + 0.16666472f);
    let v87: f32 = (v86 * v80);
    let v88: f32 = (v87 + 0.49999985f);
    let v89: f32 = (v88 * v80);
    let v90: f32 = (v89 + 1.0f);
    let v91: f32 = (v90 * v80);
    let v92: f32 = (v91 + 1.0f);
    let v93: i32 = to_i32(v76);
    let v94: i32 = (v93 >> 1u);
    let v95: i32 = (v94 + 127i);
    let v96: i32 = (v95 << 23u);
    let v97: f32 = bitcast<f32>(v96);
    let v98: f32 = (v92 * v97);
    let v99: i32 = (v93 - v94);
    let v100: i32 = (v99 + 127i);
    let v101: i32 = (v100 << 23u);
    let v102: f32 = bitcast<f32>(v101);
    let v103: f32 = (v98 * v102);
    let v104: f32 = (1.0f - v103);
    let v105: i32 = bitcast<i32>(v104);
    let v106: i32 = (v105 & 2147483647i);
    let v107: i32 = bitcast<i32>(v53);
    let v108: i32 = (v107 & bitcast<i32>(0x80000000u));
    let v109: i32 = (v106 | v108);
    let v110: f32 = bitcast<f32>(v109);
    let v111: bool = (4.0f < v54);
    let v112: i32 = (v108 | 1065353216i);
    let v113: f32 = bitcast<f32>(v112);
    let v114: f32 = select(v110, v113, v111);
    let v115: f32 = ((-0.0005967617f) * v55);
    let v116: f32 = (v115 + 0.004991194f);
    let v117: f32 = (v116 * v55);
    let v118: f32 = (v117 + (-0.026768135f));
    let v119: f32 = (v118 * v55);
    let v120: f32 = (v119 + 0.11281992f);
    let v121: f32 = (v120 * v55);
    let v122: f32 = (v121 + (-0.37612534f));
    let v123: f32 = (v122 * v55);
    let v124: f32 = (v123 + 0.12837917f);
    let v125: f32 = (v124 * v53);
    let v126: f32 = (v125 + v53);
    let v127: bool = (0.9277344f < v54);
    let v128: f32 = select(v126, v114, v127);
    let v129: f32 = (v52 * v128);
    let v130: f32 = (v129 + v52);
    let v131: f32 = select(v130, v47, v50);
    let v132: i32 = (v1 + v7);
    b1[v132] = v131;
  }
}
