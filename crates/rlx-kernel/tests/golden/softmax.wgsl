// rows.softmax
@group(0) @binding(0) var<uniform> u: array<vec4<i32>, 2>;
@group(0) @binding(1) var<storage, read> b0: array<f32>; // x0
@group(0) @binding(2) var<storage, read_write> b1: array<f32>; // y0
var<workgroup> s0: array<f32, 128>;
var<workgroup> s1: array<f32, 64>;
var<workgroup> s2: array<f32, 64>;
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
fn main(@builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) lane: u32, @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let local = subgroup * 32u + lane;
  var m0: f32;
  var m1: f32;
  let v0: i32 = u[0][0];
  let v1: i32 = u[0][1];
  let v2: i32 = u[0][2];
  let v3: i32 = u[0][3];
  let v4: i32 = u[1][0];
  let v5: i32 = u[1][1];
  let v7: i32 = i32(group.y * groups.x + group.x);
  let v8: i32 = i32(local);
  let v9: bool = (v7 < v0);
  if (v9) {
    m0 = f32_bits(0xff800000u);
    for (var v35: i32 = v8; v35 < v1; v35 += 64) {
      let v36: i32 = (v7 * v3);
      let v37: i32 = (v2 + v36);
      let v38: i32 = (v37 + v35);
      let v39: f32 = b0[v38];
      s0[v35] = v39;
      let v40: f32 = m0;
      let v41: f32 = max(v40, v39);
      let v42: u32 = bitcast<u32>(v40);
      let v43: u32 = (v42 & 2147483647u);
      let v44: bool = (v43 > 2139095040u);
      let v45: u32 = bitcast<u32>(v39);
      let v46: u32 = (v45 & 2147483647u);
      let v47: bool = (v46 > 2139095040u);
      let v48: f32 = select(v41, v39, v47);
      let v49: f32 = select(v48, v40, v44);
      m0 = v49;
    }
    let v50: f32 = m0;
    s1[v8] = v50;
    workgroupBarrier();
    let v51: i32 = (v8 & 31i);
    let v52: f32 = s1[v51];
    let v53: i32 = (v51 + 32i);
    let v54: f32 = s1[v53];
    let v55: f32 = max(v52, v54);
    let v56: u32 = bitcast<u32>(v52);
    let v57: u32 = (v56 & 2147483647u);
    let v58: bool = (v57 > 2139095040u);
    let v59: u32 = bitcast<u32>(v54);
    let v60: u32 = (v59 & 2147483647u);
    let v61: bool = (v60 > 2139095040u);
    let v62: f32 = select(v55, v54, v61);
    let v63: f32 = select(v62, v52, v58);
    let v64: f32 = subgroupShuffleXor(v63, 16u);
    let v65: i32 = (v8 & 16i);
    let v66: bool = (v65 == 0i);
    let v67: f32 = select(v64, v63, v66);
    let v68: f32 = select(v63, v64, v66);
    let v69: f32 = max(v67, v68);
    let v70: u32 = bitcast<u32>(v67);
    let v71: u32 = (v70 & 2147483647u);
    let v72: bool = (v71 > 2139095040u);
    let v73: u32 = bitcast<u32>(v68);
    let v74: u32 = (v73 & 2147483647u);
    let v75: bool = (v74 > 2139095040u);
    let v76: f32 = select(v69, v68, v75);
    let v77: f32 = select(v76, v67, v72);
    let v78: f32 = subgroupShuffleXor(v77, 8u);
    let v79: i32 = (v8 & 8i);
    let v80: bool = (v79 == 0i);
    let v81: f32 = select(v78, v77, v80);
    let v82: f32 = select(v77, v78, v80);
    let v83: f32 = max(v81, v82);
    let v84: u32 = bitcast<u32>(v81);
    let v85: u32 = (v84 & 2147483647u);
    let v86: bool = (v85 > 2139095040u);
    let v87: u32 = bitcast<u32>(v82);
    let v88: u32 = (v87 & 2147483647u);
    let v89: bool = (v88 > 2139095040u);
    let v90: f32 = select(v83, v82, v89);
    let v91: f32 = select(v90, v81, v86);
    let v92: f32 = subgroupShuffleXor(v91, 4u);
    let v93: i32 = (v8 & 4i);
    let v94: bool = (v93 == 0i);
    let v95: f32 = select(v92, v91, v94);
    let v96: f32 = select(v91, v92, v94);
    let v97: f32 = max(v95, v96);
    let v98: u32 = bitcast<u32>(v95);
    let v99: u32 = (v98 & 2147483647u);
    let v100: bool = (v99 > 2139095040u);
    let v101: u32 = bitcast<u32>(v96);
    let v102: u32 = (v101 & 2147483647u);
    let v103: bool = (v102 > 2139095040u);
    let v104: f32 = select(v97, v96, v103);
    let v105: f32 = select(v104, v95, v100);
    let v106: f32 = subgroupShuffleXor(v105, 2u);
    let v107: i32 = (v8 & 2i);
    let v108: bool = (v107 == 0i);
    let v109: f32 = select(v106, v105, v108);
    let v110: f32 = select(v105, v106, v108);
    let v111: f32 = max(v109, v110);
    let v112: u32 = bitcast<u32>(v109);
    let v113: u32 = (v112 & 2147483647u);
    let v114: bool = (v113 > 2139095040u);
    let v115: u32 = bitcast<u32>(v110);
    let v116: u32 = (v115 & 2147483647u);
    let v117: bool = (v116 > 2139095040u);
    let v118: f32 = select(v111, v110, v117);
    let v119: f32 = select(v118, v109, v114);
    let v120: f32 = subgroupShuffleXor(v119, 1u);
    let v121: i32 = (v8 & 1i);
    let v122: bool = (v121 == 0i);
    let v123: f32 = select(v120, v119, v122);
    let v124: f32 = select(v119, v120, v122);
    let v125: f32 = max(v123, v124);
    let v126: u32 = bitcast<u32>(v123);
    let v127: u32 = (v126 & 2147483647u);
    let v128: bool = (v127 > 2139095040u);
    let v129: u32 = bitcast<u32>(v124);
    let v130: u32 = (v129 & 2147483647u);
    let v131: bool = (v130 > 2139095040u);
    let v132: f32 = select(v125, v124, v131);
    let v133: f32 = select(v132, v123, v128);
    m1 = 0.0f;
    for (var v134: i32 = v8; v134 < v1; v134 += 64) {
      let v135: f32 = s0[v134];
      let v136: f32 = (v135 - v133);
      let v137: u32 = bitcast<u32>(v136);
      let v138: u32 = (v137 & 2147483647u);
      let v139: bool = (v138 > 2139095040u);
      let v140: f32 = select(v136, 0.0f, v139);
      let v141: bool = (90.0f < v140);
      let v142: f32 = select(v140, 90.0f, v141);
      let v143: bool = (v142 < (-105.0f));
      let v144: f32 = select(v142, (-105.0f), v143);
      let v145: f32 = (v144 * 1.442695f);
      let v146: f32 = round(v145);
      let v147: f32 = (v146 * 0.69314575f);
      let v148: f32 = (v144 - v147);
      let v149: f32 = (v146 * 1.4286068e-6f);
      let v150: f32 = (v148 - v149);
      let v151: f32 = (0.0013780594f * v150);
      let v152: f32 = (v151 + 0.0083731245f);
      let v153: f32 = (v152 * v150);
      let v154: f32 = (v153 + 0.041669536f);
      let v155: f32 = (v154 * v150);
      let v156: f32 = (v155 + 0.16666472f);
      let v157: f32 = (v156 * v150);
      let v158: f32 = (v157 + 0.49999985f);
      let v159: f32 = (v158 * v150);
      let v160: f32 = (v159 + 1.0f);
      let v161: f32 = (v160 * v150);
      let v162: f32 = (v161 + 1.0f);
      let v163: i32 = to_i32(v146);
      let v164: i32 = (v163 >> 1u);
      let v165: i32 = (v164 + 127i);
      let v166: i32 = (v165 << 23u);
      let v167: f32 = bitcast<f32>(v166);
      let v168: f32 = (v162 * v167);
      let v169: i32 = (v163 - v164);
      let v170: i32 = (v169 + 127i);
      let v171: i32 = (v170 << 23u);
      let v172: f32 = bitcast<f32>(v171);
      let v173: f32 = (v168 * v172);
      let v174: f32 = select(v173, v136, v139);
      s0[v134] = v174;
      let v175: f32 = m1;
      let v176: f32 = (v175 + v174);
      m1 = v176;
    }
    let v177: f32 = m1;
    s2[v8] = v177;
    workgroupBarrier();
    let v178: f32 = s2[v51];
    let v179: f32 = s2[v53];
    let v180: f32 = (v178 + v179);
    let v181: f32 = subgroupShuffleXor(v180, 16u);
    let v182: f32 = (v180 + v181);
    let v183: f32 = subgroupShuffleXor(v182, 8u);
    let v184: f32 = (v182 + v183);
    let v185: f32 = subgroupShuffleXor(v184, 4u);
    let v186: f32 = (v184 + v185);
    let v187: f32 = subgroupShuffleXor(v186, 2u);
    let v188: f32 = (v186 + v187);
    let v189: f32 = subgroupShuffleXor(v188, 1u);
    let v190: f32 = (v188 + v189);
    for (var v191: i32 = v8; v191 < v1; v191 += 64) {
      let v192: f32 = s0[v191];
      let v193: f32 = (v192 / v190);
      let v194: i32 = (v7 * v5);
      let v195: i32 = (v4 + v194);
      let v196: i32 = (v195 + v191);
      b1[v196] = v193;
    }
  }
}
