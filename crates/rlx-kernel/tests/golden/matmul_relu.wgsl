// matmul.MatMul+Relu
@group(0) @binding(0) var<uniform> u: array<vec4<i32>, 3>;
@group(0) @binding(1) var<storage, read> b0: array<f32>; // x0
@group(0) @binding(2) var<storage, read> b1: array<f32>; // x1
@group(0) @binding(3) var<storage, read_write> b2: array<f32>; // y0
var<workgroup> s0: array<f32, 1088>;
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
  var m2: f32;
  var m3: f32;
  var m4: f32;
  var m5: f32;
  var m6: f32;
  var m7: f32;
  var m8: f32;
  var m9: f32;
  var m10: f32;
  var m11: f32;
  var m12: f32;
  var m13: f32;
  var m14: f32;
  var m15: f32;
  var m16: f32;
  var m17: f32;
  let v0: i32 = u[0][0];
  let v1: i32 = u[0][1];
  let v2: i32 = u[0][2];
  let v3: i32 = u[0][3];
  let v4: i32 = u[1][0];
  let v5: i32 = u[1][1];
  let v6: i32 = u[1][2];
  let v7: i32 = u[1][3];
  let v8: i32 = u[2][0];
  let v9: i32 = u[2][1];
  let v10: i32 = u[2][2];
  let v12: i32 = (v3 * v4);
  let v13: i32 = i32(group.y * groups.x + group.x);
  let v14: i32 = i32(local);
  let v15: bool = (v13 < v12);
  if (v15) {
    let v38: i32 = (v13 / v4);
    let v39: i32 = (v38 * v4);
    let v40: i32 = (v13 - v39);
    let v41: i32 = (v38 / v3);
    let v42: i32 = (v41 * v3);
    let v43: i32 = (v38 - v42);
    let v44: i32 = (v43 * 32i);
    let v45: i32 = (v40 << 5u);
    let v46: i32 = (v14 >> 3u);
    let v47: i32 = (v14 & 7i);
    let v48: i32 = (v46 << 2u);
    m0 = 0.0f;
    m1 = 0.0f;
    m2 = 0.0f;
    m3 = 0.0f;
    m4 = 0.0f;
    m5 = 0.0f;
    m6 = 0.0f;
    m7 = 0.0f;
    m8 = 0.0f;
    m9 = 0.0f;
    m10 = 0.0f;
    m11 = 0.0f;
    m12 = 0.0f;
    m13 = 0.0f;
    m14 = 0.0f;
    m15 = 0.0f;
    for (var v49: i32 = 0i; v49 < v1; v49 += 16) {
      for (var v50: i32 = v14; v50 < 512i; v50 += 64) {
        let v51: i32 = (v50 & 15i);
        let v52: i32 = (v50 >> 4u);
        let v53: i32 = (v44 + v52);
        let v54: i32 = (v49 + v51);
        let v55: bool = (v53 < v0);
        let v56: bool = (v54 < v1);
        let v57: bool = (v55 & v56);
        m16 = f32_bits(0x80000000u);
        if (v57) {
          let v58: i32 = (v53 * v6);
          let v59: i32 = (v5 + v58);
          let v60: i32 = (v59 + v54);
          let v61: f32 = b0[v60];
          m16 = v61;
        }
        let v62: f32 = m16;
        let v63: i32 = (v51 * 34i);
        let v64: i32 = (v63 + v52);
        s0[v64] = v62;
      }
      for (var v65: i32 = v14; v65 < 512i; v65 += 64) {
        let v66: i32 = (v65 >> 5u);
        let v67: i32 = (v65 & 31i);
        let v68: i32 = (v49 + v66);
        let v69: i32 = (v45 + v67);
        let v70: bool = (v68 < v1);
        let v71: bool = (v69 < v2);
        let v72: bool = (v70 & v71);
        m17 = 0.0f;
        if (v72) {
          let v73: i32 = (v68 * v8);
          let v74: i32 = (v7 + v73);
          let v75: i32 = (v74 + v69);
          let v76: f32 = b1[v75];
          m17 = v76;
        }
        let v77: f32 = m17;
        let v78: i32 = (v65 + 544i);
        s0[v78] = v77;
      }
      workgroupBarrier();
      for (var v79: i32 = 0i; v79 < 16i; v79 += 1) {
        let v80: i32 = (v79 * 34i);
        let v81: i32 = (v80 + v48);
        let v82: f32 = s0[v81];
        let v83: i32 = (v81 + 1i);
        let v84: f32 = s0[v83];
        let v85: i32 = (v81 + 2i);
        let v86: f32 = s0[v85];
        let v87: i32 = (v81 + 3i);
        let v88: f32 = s0[v87];
        let v89: i32 = (v79 << 5u);
        let v90: i32 = (v89 + 544i);
        let v91: i32 = (v90 + v47);
        let v92: f32 = s0[v91];
        let v93: i32 = (v91 + 8i);
        let v94: f32 = s0[v93];
        let v95: i32 = (v91 + 16i);
        let v96: f32 = s0[v95];
        let v97: i32 = (v91 + 24i);
        let v98: f32 = s0[v97];
        let v99: f32 = (v82 * v92);
        let v100: f32 = m0;
        let v101: f32 = (v100 + v99);
        m0 = v101;
        let v102: f32 = (v82 * v94);
        let v103: f32 = m1;
        let v104: f32 = (v103 + v102);
        m1 = v104;
        let v105: f32 = (v82 * v96);
        let v106: f32 = m2;
        let v107: f32 = (v106 + v105);
        m2 = v107;
        let v108: f32 = (v82 * v98);
        let v109: f32 = m3;
        let v110: f32 = (v109 + v108);
        m3 = v110;
        let v111: f32 = (v84 * v92);
        let v112: f32 = m4;
        let v113: f32 = (v112 + v111);
        m4 = v113;
        let v114: f32 = (v84 * v94);
        let v115: f32 = m5;
        let v116: f32 = (v115 + v114);
        m5 = v116;
        let v117: f32 = (v84 * v96);
        let v118: f32 = m6;
        let v119: f32 = (v118 + v117);
        m6 = v119;
        let v120: f32 = (v84 * v98);
        let v121: f32 = m7;
        let v122: f32 = (v121 + v120);
        m7 = v122;
        let v123: f32 = (v86 * v92);
        let v124: f32 = m8;
        let v125: f32 = (v124 + v123);
        m8 = v125;
        let v126: f32 = (v86 * v94);
        let v127: f32 = m9;
        let v128: f32 = (v127 + v126);
        m9 = v128;
        let v129: f32 = (v86 * v96);
        let v130: f32 = m10;
        let v131: f32 = (v130 + v129);
        m10 = v131;
        let v132: f32 = (v86 * v98);
        let v133: f32 = m11;
        let v134: f32 = (v133 + v132);
        m11 = v134;
        let v135: f32 = (v88 * v92);
        let v136: f32 = m12;
        let v137: f32 = (v136 + v135);
        m12 = v137;
        let v138: f32 = (v88 * v94);
        let v139: f32 = m13;
        let v140: f32 = (v139 + v138);
        m13 = v140;
        let v141: f32 = (v88 * v96);
        let v142: f32 = m14;
        let v143: f32 = (v142 + v141);
        m14 = v143;
        let v144: f32 = (v88 * v98);
        let v145: f32 = m15;
        let v146: f32 = (v145 + v144);
        m15 = v146;
      }
      workgroupBarrier();
    }
    let v147: i32 = (v48 * 34i);
    let v148: i32 = (v147 + v47);
    let v149: f32 = m0;
    s0[v148] = v149;
    let v150: i32 = (v47 + 8i);
    let v151: i32 = (v147 + v150);
    let v152: f32 = m1;
    s0[v151] = v152;
    let v153: i32 = (v47 + 16i);
    let v154: i32 = (v147 + v153);
    let v155: f32 = m2;
    s0[v154] = v155;
    let v156: i32 = (v47 + 24i);
    let v157: i32 = (v147 + v156);
    let v158: f32 = m3;
    s0[v157] = v158;
    let v159: i32 = (v48 + 1i);
    let v160: i32 = (v159 * 34i);
    let v161: i32 = (v160 + v47);
    let v162: f32 = m4;
    s0[v161] = v162;
    let v163: i32 = (v160 + v150);
    let v164: f32 = m5;
    s0[v163] = v164;
    let v165: i32 = (v160 + v153);
    let v166: f32 = m6;
    s0[v165] = v166;
    let v167: i32 = (v160 + v156);
    let v168: f32 = m7;
    s0[v167] = v168;
    let v169: i32 = (v48 + 2i);
    let v170: i32 = (v169 * 34i);
    let v171: i32 = (v170 + v47);
    let v172: f32 = m8;
    s0[v171] = v172;
    let v173: i32 = (v170 + v150);
    let v174: f32 = m9;
    s0[v173] = v174;
    let v175: i32 = (v170 + v153);
    let v176: f32 = m10;
    s0[v175] = v176;
    let v177: i32 = (v170 + v156);
    let v178: f32 = m11;
    s0[v177] = v178;
    let v179: i32 = (v48 + 3i);
    let v180: i32 = (v179 * 34i);
    let v181: i32 = (v180 + v47);
    let v182: f32 = m12;
    s0[v181] = v182;
    let v183: i32 = (v180 + v150);
    let v184: f32 = m13;
    s0[v183] = v184;
    let v185: i32 = (v180 + v153);
    let v186: f32 = m14;
    s0[v185] = v186;
    let v187: i32 = (v180 + v156);
    let v188: f32 = m15;
    s0[v187] = v188;
    workgroupBarrier();
    for (var v189: i32 = v14; v189 < 1024i; v189 += 64) {
      let v190: i32 = (v189 >> 5u);
      let v191: i32 = (v189 & 31i);
      let v192: i32 = (v44 + v190);
      let v193: i32 = (v45 + v191);
      let v194: bool = (v192 < v0);
      let v195: bool = (v193 < v2);
      let v196: bool = (v194 & v195);
      if (v196) {
        let v197: i32 = (v190 * 34i);
        let v198: i32 = (v197 + v191);
        let v199: f32 = s0[v198];
        let v200: bool = (v199 > 0.0f);
        let v201: u32 = bitcast<u32>(v199);
        let v202: u32 = (v201 & 2147483647u);
        let v203: bool = (v202 > 2139095040u);
        let v204: bool = (v200 | v203);
        let v205: f32 = select(0.0f, v199, v204);
        let v206: i32 = (v192 * v10);
        let v207: i32 = (v9 + v206);
        let v208: i32 = (v207 + v193);
        b2[v208] = v205;
      }
    }
  }
}
