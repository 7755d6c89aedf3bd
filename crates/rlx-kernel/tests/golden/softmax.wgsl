// rows.softmax
@group(0) @binding(0) var<uniform> u: array<vec4<i32>, 2>;
@group(0) @binding(1) var<storage, read> b0: array<f32>; // x0
@group(0) @binding(2) var<storage, read_write> b1: array<f32>; // y0
var<workgroup> s0: array<f32, 64>;
var<workgroup> s1: array<f32, 128>;
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
    for (var v34: i32 = v8; v34 < v1; v34 += 64) {
      let v35: i32 = (v7 * v3);
      let v36: i32 = (v2 + v35);
      let v37: i32 = (v36 + v34);
      let v38: f32 = b0[v37];
      s1[v34] = v38;
      let v39: f32 = m0;
      let v40: f32 = max(v39, v38);
      let v41: u32 = bitcast<u32>(v39);
      let v42: u32 = (v41 & 2147483647u);
      let v43: bool = (v42 > 2139095040u);
      let v44: u32 = bitcast<u32>(v38);
      let v45: u32 = (v44 & 2147483647u);
      let v46: bool = (v45 > 2139095040u);
      let v47: f32 = select(v40, v38, v46);
      let v48: f32 = select(v47, v39, v43);
      m0 = v48;
    }
    let v49: f32 = m0;
    s0[v8] = v49;
    workgroupBarrier();
    let v50: bool = (v8 < 32i);
    if (v50) {
      let v51: i32 = (v8 + 32i);
      let v52: f32 = s0[v8];
      let v53: f32 = s0[v51];
      let v54: f32 = max(v52, v53);
      let v55: u32 = bitcast<u32>(v52);
      let v56: u32 = (v55 & 2147483647u);
      let v57: bool = (v56 > 2139095040u);
      let v58: u32 = bitcast<u32>(v53);
      let v59: u32 = (v58 & 2147483647u);
      let v60: bool = (v59 > 2139095040u);
      let v61: f32 = select(v54, v53, v60);
      let v62: f32 = select(v61, v52, v57);
      s0[v8] = v62;
    }
    workgroupBarrier();
    let v63: bool = (v8 < 16i);
    if (v63) {
      let v64: i32 = (v8 + 16i);
      let v65: f32 = s0[v8];
      let v66: f32 = s0[v64];
      let v67: f32 = max(v65, v66);
      let v68: u32 = bitcast<u32>(v65);
      let v69: u32 = (v68 & 2147483647u);
      let v70: bool = (v69 > 2139095040u);
      let v71: u32 = bitcast<u32>(v66);
      let v72: u32 = (v71 & 2147483647u);
      let v73: bool = (v72 > 2139095040u);
      let v74: f32 = select(v67, v66, v73);
      let v75: f32 = select(v74, v65, v70);
      s0[v8] = v75;
    }
    workgroupBarrier();
    let v76: bool = (v8 < 8i);
    if (v76) {
      let v77: i32 = (v8 + 8i);
      let v78: f32 = s0[v8];
      let v79: f32 = s0[v77];
      let v80: f32 = max(v78, v79);
      let v81: u32 = bitcast<u32>(v78);
      let v82: u32 = (v81 & 2147483647u);
      let v83: bool = (v82 > 2139095040u);
      let v84: u32 = bitcast<u32>(v79);
      let v85: u32 = (v84 & 2147483647u);
      let v86: bool = (v85 > 2139095040u);
      let v87: f32 = select(v80, v79, v86);
      let v88: f32 = select(v87, v78, v83);
      s0[v8] = v88;
    }
    workgroupBarrier();
    let v89: bool = (v8 < 4i);
    if (v89) {
      let v90: i32 = (v8 + 4i);
      let v91: f32 = s0[v8];
      let v92: f32 = s0[v90];
      let v93: f32 = max(v91, v92);
      let v94: u32 = bitcast<u32>(v91);
      let v95: u32 = (v94 & 2147483647u);
      let v96: bool = (v95 > 2139095040u);
      let v97: u32 = bitcast<u32>(v92);
      let v98: u32 = (v97 & 2147483647u);
      let v99: bool = (v98 > 2139095040u);
      let v100: f32 = select(v93, v92, v99);
      let v101: f32 = select(v100, v91, v96);
      s0[v8] = v101;
    }
    workgroupBarrier();
    let v102: bool = (v8 < 2i);
    if (v102) {
      let v103: i32 = (v8 + 2i);
      let v104: f32 = s0[v8];
      let v105: f32 = s0[v103];
      let v106: f32 = max(v104, v105);
      let v107: u32 = bitcast<u32>(v104);
      let v108: u32 = (v107 & 2147483647u);
      let v109: bool = (v108 > 2139095040u);
      let v110: u32 = bitcast<u32>(v105);
      let v111: u32 = (v110 & 2147483647u);
      let v112: bool = (v111 > 2139095040u);
      let v113: f32 = select(v106, v105, v112);
      let v114: f32 = select(v113, v104, v109);
      s0[v8] = v114;
    }
    workgroupBarrier();
    let v115: bool = (v8 < 1i);
    if (v115) {
      let v116: i32 = (v8 + 1i);
      let v117: f32 = s0[v8];
      let v118: f32 = s0[v116];
      let v119: f32 = max(v117, v118);
      let v120: u32 = bitcast<u32>(v117);
      let v121: u32 = (v120 & 2147483647u);
      let v122: bool = (v121 > 2139095040u);
      let v123: u32 = bitcast<u32>(v118);
      let v124: u32 = (v123 & 2147483647u);
      let v125: bool = (v124 > 2139095040u);
      let v126: f32 = select(v119, v118, v125);
      let v127: f32 = select(v126, v117, v122);
      s0[v8] = v127;
    }
    workgroupBarrier();
    let v128: f32 = s0[0i];
    workgroupBarrier();
    m1 = 0.0f;
    for (var v129: i32 = v8; v129 < v1; v129 += 64) {
      let v130: f32 = s1[v129];
      let v131: f32 = (v130 - v128);
      let v132: u32 = bitcast<u32>(v131);
      let v133: u32 = (v132 & 2147483647u);
      let v134: bool = (v133 > 2139095040u);
      let v135: f32 = select(v131, 0.0f, v134);
      let v136: bool = (90.0f < v135);
      let v137: f32 = select(v135, 90.0f, v136);
      let v138: bool = (v137 < (-105.0f));
      let v139: f32 = select(v137, (-105.0f), v138);
      let v140: f32 = (v139 * 1.442695f);
      let v141: f32 = round(v140);
      let v142: f32 = (v141 * 0.69314575f);
      let v143: f32 = (v139 - v142);
      let v144: f32 = (v141 * 1.4286068e-6f);
      let v145: f32 = (v143 - v144);
      let v146: f32 = (0.0013780594f * v145);
      let v147: f32 = (v146 + 0.0083731245f);
      let v148: f32 = (v147 * v145);
      let v149: f32 = (v148 + 0.041669536f);
      let v150: f32 = (v149 * v145);
      let v151: f32 = (v150 + 0.16666472f);
      let v152: f32 = (v151 * v145);
      let v153: f32 = (v152 + 0.49999985f);
      let v154: f32 = (v153 * v145);
      let v155: f32 = (v154 + 1.0f);
      let v156: f32 = (v155 * v145);
      let v157: f32 = (v156 + 1.0f);
      let v158: i32 = to_i32(v141);
      let v159: i32 = (v158 >> 1u);
      let v160: i32 = (v159 + 127i);
      let v161: i32 = (v160 << 23u);
      let v162: f32 = bitcast<f32>(v161);
      let v163: f32 = (v157 * v162);
      let v164: i32 = (v158 - v159);
      let v165: i32 = (v164 + 127i);
      let v166: i32 = (v165 << 23u);
      let v167: f32 = bitcast<f32>(v166);
      let v168: f32 = (v163 * v167);
      let v169: f32 = select(v168, v131, v134);
      s1[v129] = v169;
      let v170: f32 = m1;
      let v171: f32 = (v170 + v169);
      m1 = v171;
    }
    let v172: f32 = m1;
    s0[v8] = v172;
    workgroupBarrier();
    if (v50) {
      let v173: i32 = (v8 + 32i);
      let v174: f32 = s0[v8];
      let v175: f32 = s0[v173];
      let v176: f32 = (v174 + v175);
      s0[v8] = v176;
    }
    workgroupBarrier();
    if (v63) {
      let v177: i32 = (v8 + 16i);
      let v178: f32 = s0[v8];
      let v179: f32 = s0[v177];
      let v180: f32 = (v178 + v179);
      s0[v8] = v180;
    }
    workgroupBarrier();
    if (v76) {
      let v181: i32 = (v8 + 8i);
      let v182: f32 = s0[v8];
      let v183: f32 = s0[v181];
      let v184: f32 = (v182 + v183);
      s0[v8] = v184;
    }
    workgroupBarrier();
    if (v89) {
      let v185: i32 = (v8 + 4i);
      let v186: f32 = s0[v8];
      let v187: f32 = s0[v185];
      let v188: f32 = (v186 + v187);
      s0[v8] = v188;
    }
    workgroupBarrier();
    if (v102) {
      let v189: i32 = (v8 + 2i);
      let v190: f32 = s0[v8];
      let v191: f32 = s0[v189];
      let v192: f32 = (v190 + v191);
      s0[v8] = v192;
    }
    workgroupBarrier();
    if (v115) {
      let v193: i32 = (v8 + 1i);
      let v194: f32 = s0[v8];
      let v195: f32 = s0[v193];
      let v196: f32 = (v194 + v195);
      s0[v8] = v196;
    }
    workgroupBarrier();
    let v197: f32 = s0[0i];
    workgroupBarrier();
    for (var v198: i32 = v8; v198 < v1; v198 += 64) {
      let v199: f32 = s1[v198];
      let v200: f32 = (v199 / v197);
      let v201: i32 = (v7 * v5);
      let v202: i32 = (v4 + v201);
      let v203: i32 = (v202 + v198);
      b1[v203] = v200;
    }
  }
}
