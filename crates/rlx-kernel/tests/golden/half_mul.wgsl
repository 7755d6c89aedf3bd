// map.binary
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
    let v30: i32 = (v0 + v8);
    let v31: i32 = (v30 >> 1u);
    let v32: i32 = (v30 & 1i);
    let v33: u32 = bitcast<u32>(v32);
    let v34: u32 = (v33 << 4u);
    let v35: u32 = b0[v31];
    let v36: u32 = (v35 >> v34);
    let v37: u32 = (v36 & 65535u);
    let v38: u32 = (v37 & 32767u);
    let v39: u32 = (v37 & 32768u);
    let v40: u32 = (v39 << 16u);
    let v41: u32 = (v38 << 13u);
    let v42: u32 = (v41 + 939524096u);
    let v43: u32 = (v42 + 939524096u);
    let v44: bool = (v38 >= 31744u);
    let v45: u32 = select(v42, v43, v44);
    let v46: f32 = f32(v38);
    let v47: f32 = (v46 * 5.9604645e-8f);
    let v48: u32 = bitcast<u32>(v47);
    let v49: bool = (v38 < 1024u);
    let v50: u32 = select(v45, v48, v49);
    let v51: u32 = (v50 | v40);
    let v52: f32 = bitcast<f32>(v51);
    let v53: i32 = (v1 + v8);
    let v54: i32 = (v53 >> 1u);
    let v55: i32 = (v53 & 1i);
    let v56: u32 = bitcast<u32>(v55);
    let v57: u32 = (v56 << 4u);
    let v58: u32 = b1[v54];
    let v59: u32 = (v58 >> v57);
    let v60: u32 = (v59 & 65535u);
    let v61: u32 = (v60 & 32767u);
    let v62: u32 = (v60 & 32768u);
    let v63: u32 = (v62 << 16u);
    let v64: u32 = (v61 << 13u);
    let v65: u32 = (v64 + 939524096u);
    let v66: u32 = (v65 + 939524096u);
    let v67: bool = (v61 >= 31744u);
    let v68: u32 = select(v65, v66, v67);
    let v69: f32 = f32(v61);
    let v70: f32 = (v69 * 5.9604645e-8f);
    let v71: u32 = bitcast<u32>(v70);
    let v72: bool = (v61 < 1024u);
    let v73: u32 = select(v68, v71, v72);
    let v74: u32 = (v73 | v63);
    let v75: f32 = bitcast<f32>(v74);
    let v76: f32 = (v52 * v75);
    let v77: u32 = bitcast<u32>(v76);
    let v78: u32 = (v77 & 2147483647u);
    let v79: u32 = (v77 >> 16u);
    let v80: u32 = (v79 & 32768u);
    let v81: u32 = (v78 >> 13u);
    let v82: u32 = (v81 & 1u);
    let v83: u32 = (v78 + 4095u);
    let v84: u32 = (v83 + v82);
    let v85: u32 = (v84 - 939524096u);
    let v86: u32 = (v85 >> 13u);
    let v87: f32 = bitcast<f32>(v78);
    let v88: f32 = (v87 + 0.5f);
    let v89: u32 = bitcast<u32>(v88);
    let v90: u32 = (v89 - 1056964608u);
    let v91: bool = (v78 < 947912704u);
    let v92: u32 = select(v86, v90, v91);
    let v93: bool = (v78 >= 1199570944u);
    let v94: u32 = select(v92, 31744u, v93);
    let v95: bool = (v78 > 2139095040u);
    let v96: u32 = select(v94, 32256u, v95);
    let v97: u32 = (v96 | v80);
    let v98: u32 = (v97 & 32767u);
    let v99: u32 = (v97 & 32768u);
    let v100: u32 = (v99 << 16u);
    let v101: u32 = (v98 << 13u);
    let v102: u32 = (v101 + 939524096u);
    let v103: u32 = (v102 + 939524096u);
    let v104: bool = (v98 >= 31744u);
    let v105: u32 = select(v102, v103, v104);
    let v106: f32 = f32(v98);
    let v107: f32 = (v106 * 5.9604645e-8f);
    let v108: u32 = bitcast<u32>(v107);
    let v109: bool = (v98 < 1024u);
    let v110: u32 = select(v105, v108, v109);
    let v111: u32 = (v110 | v100);
    let v112: f32 = bitcast<f32>(v111);
    let v113: i32 = (v2 + v8);
    let v114: u32 = bitcast<u32>(v112);
    let v115: u32 = (v114 & 2147483647u);
    let v116: u32 = (v114 >> 16u);
    let v117: u32 = (v116 & 32768u);
    let v118: u32 = (v115 >> 13u);
    let v119: u32 = (v118 & 1u);
    let v120: u32 = (v115 + 4095u);
    let v121: u32 = (v120 + v119);
    let v122: u32 = (v121 - 939524096u);
    let v123: u32 = (v122 >> 13u);
    let v124: f32 = bitcast<f32>(v115);
    let v125: f32 = (v124 + 0.5f);
    let v126: u32 = bitcast<u32>(v125);
    let v127: u32 = (v126 - 1056964608u);
    let v128: bool = (v115 < 947912704u);
    let v129: u32 = select(v123, v127, v128);
    let v130: bool = (v115 >= 1199570944u);
    let v131: u32 = select(v129, 31744u, v130);
    let v132: bool = (v115 > 2139095040u);
    let v133: u32 = select(v131, 32256u, v132);
    let v134: u32 = (v133 | v117);
    let v135: u32 = (v134 & 65535u);
    let v136: i32 = (v113 >> 1u);
    let v137: i32 = (v113 & 1i);
    let v138: u32 = bitcast<u32>(v137);
    let v139: u32 = (v138 << 4u);
    let v140: u32 = (v135 << v139);
    let v141: u32 = (65535u << v139);
    atomicAnd(&b2[v136], ~(v141)); atomicOr(&b2[v136], v140);
  }
}
