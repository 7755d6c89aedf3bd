// matmul.MatMul+Relu
@group(0) @binding(0) var<uniform> u: array<vec4<i32>, 3>;
@group(0) @binding(1) var<storage, read> b0: array<f32>; // x0
@group(0) @binding(2) var<storage, read> b1: array<f32>; // x1
@group(0) @binding(3) var<storage, read_write> b2: array<f32>; // y0
var<workgroup> s0: array<f32, 1024>;
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
    let v34: i32 = (v13 % v4);
    let v35: i32 = (v13 / v4);
    let v36: i32 = (v35 % v3);
    let v37: i32 = (v36 * 32i);
    let v38: i32 = (v34 << 5u);
    let v39: i32 = (v14 >> 3u);
    let v40: i32 = (v14 & 7i);
    let v41: i32 = (v39 << 2u);
    let v42: i32 = (v40 << 2u);
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
    for (var v43: i32 = 0i; v43 < v1; v43 += 16) {
      for (var v44: i32 = v14; v44 < 512i; v44 += 64) {
        let v45: i32 = (v44 & 15i);
        let v46: i32 = (v44 >> 4u);
        let v47: i32 = (v37 + v46);
        let v48: i32 = (v43 + v45);
        let v49: bool = (v47 < v0);
        let v50: bool = (v48 < v1);
        let v51: bool = (v49 & v50);
        m16 = f32_bits(0x80000000u);
        if (v51) {
          let v52: i32 = (v47 * v6);
          let v53: i32 = (v5 + v52);
          let v54: i32 = (v53 + v48);
          let v55: f32 = b0[v54];
          m16 = v55;
        }
        let v56: f32 = m16;
        let v57: i32 = (v45 << 5u);
        let v58: i32 = (v57 + v46);
        s0[v58] = v56;
      }
      for (var v59: i32 = v14; v59 < 512i; v59 += 64) {
        let v60: i32 = (v59 >> 5u);
        let v61: i32 = (v59 & 31i);
        let v62: i32 = (v43 + v60);
        let v63: i32 = (v38 + v61);
        let v64: bool = (v62 < v1);
        let v65: bool = (v63 < v2);
        let v66: bool = (v64 & v65);
        m17 = 0.0f;
        if (v66) {
          let v67: i32 = (v62 * v8);
          let v68: i32 = (v7 + v67);
          let v69: i32 = (v68 + v63);
          let v70: f32 = b1[v69];
          m17 = v70;
        }
        let v71: f32 = m17;
        let v72: i32 = (v59 + 512i);
        s0[v72] = v71;
      }
      workgroupBarrier();
      for (var v73: i32 = 0i; v73 < 16i; v73 += 1) {
        let v74: i32 = (v73 << 5u);
        let v75: i32 = (v74 + v41);
        let v76: f32 = s0[v75];
        let v77: i32 = (v75 + 1i);
        let v78: f32 = s0[v77];
        let v79: i32 = (v75 + 2i);
        let v80: f32 = s0[v79];
        let v81: i32 = (v75 + 3i);
        let v82: f32 = s0[v81];
        let v83: i32 = (v74 + 512i);
        let v84: i32 = (v83 + v42);
        let v85: f32 = s0[v84];
        let v86: i32 = (v84 + 1i);
        let v87: f32 = s0[v86];
        let v88: i32 = (v84 + 2i);
        let v89: f32 = s0[v88];
        let v90: i32 = (v84 + 3i);
        let v91: f32 = s0[v90];
        let v92: f32 = (v76 * v85);
        let v93: f32 = m0;
        let v94: f32 = (v93 + v92);
        m0 = v94;
        let v95: f32 = (v76 * v87);
        let v96: f32 = m1;
        let v97: f32 = (v96 + v95);
        m1 = v97;
        let v98: f32 = (v76 * v89);
        let v99: f32 = m2;
        let v100: f32 = (v99 + v98);
        m2 = v100;
        let v101: f32 = (v76 * v91);
        let v102: f32 = m3;
        let v103: f32 = (v102 + v101);
        m3 = v103;
        let v104: f32 = (v78 * v85);
        let v105: f32 = m4;
        let v106: f32 = (v105 + v104);
        m4 = v106;
        let v107: f32 = (v78 * v87);
        let v108: f32 = m5;
        let v109: f32 = (v108 + v107);
        m5 = v109;
        let v110: f32 = (v78 * v89);
        let v111: f32 = m6;
        let v112: f32 = (v111 + v110);
        m6 = v112;
        let v113: f32 = (v78 * v91);
        let v114: f32 = m7;
        let v115: f32 = (v114 + v113);
        m7 = v115;
        let v116: f32 = (v80 * v85);
        let v117: f32 = m8;
        let v118: f32 = (v117 + v116);
        m8 = v118;
        let v119: f32 = (v80 * v87);
        let v120: f32 = m9;
        let v121: f32 = (v120 + v119);
        m9 = v121;
        let v122: f32 = (v80 * v89);
        let v123: f32 = m10;
        let v124: f32 = (v123 + v122);
        m10 = v124;
        let v125: f32 = (v80 * v91);
        let v126: f32 = m11;
        let v127: f32 = (v126 + v125);
        m11 = v127;
        let v128: f32 = (v82 * v85);
        let v129: f32 = m12;
        let v130: f32 = (v129 + v128);
        m12 = v130;
        let v131: f32 = (v82 * v87);
        let v132: f32 = m13;
        let v133: f32 = (v132 + v131);
        m13 = v133;
        let v134: f32 = (v82 * v89);
        let v135: f32 = m14;
        let v136: f32 = (v135 + v134);
        m14 = v136;
        let v137: f32 = (v82 * v91);
        let v138: f32 = m15;
        let v139: f32 = (v138 + v137);
        m15 = v139;
      }
      workgroupBarrier();
    }
    let v140: i32 = (v41 << 5u);
    let v141: i32 = (v140 + v42);
    let v142: f32 = m0;
    s0[v141] = v142;
    let v143: i32 = (v42 + 1i);
    let v144: i32 = (v140 + v143);
    let v145: f32 = m1;
    s0[v144] = v145;
    let v146: i32 = (v42 + 2i);
    let v147: i32 = (v140 + v146);
    let v148: f32 = m2;
    s0[v147] = v148;
    let v149: i32 = (v42 + 3i);
    let v150: i32 = (v140 + v149);
    let v151: f32 = m3;
    s0[v150] = v151;
    let v152: i32 = (v41 + 1i);
    let v153: i32 = (v152 << 5u);
    let v154: i32 = (v153 + v42);
    let v155: f32 = m4;
    s0[v154] = v155;
    let v156: i32 = (v153 + v143);
    let v157: f32 = m5;
    s0[v156] = v157;
    let v158: i32 = (v153 + v146);
    let v159: f32 = m6;
    s0[v158] = v159;
    let v160: i32 = (v153 + v149);
    let v161: f32 = m7;
    s0[v160] = v161;
    let v162: i32 = (v41 + 2i);
    let v163: i32 = (v162 << 5u);
    let v164: i32 = (v163 + v42);
    let v165: f32 = m8;
    s0[v164] = v165;
    let v166: i32 = (v163 + v143);
    let v167: f32 = m9;
    s0[v166] = v167;
    let v168: i32 = (v163 + v146);
    let v169: f32 = m10;
    s0[v168] = v169;
    let v170: i32 = (v163 + v149);
    let v171: f32 = m11;
    s0[v170] = v171;
    let v172: i32 = (v41 + 3i);
    let v173: i32 = (v172 << 5u);
    let v174: i32 = (v173 + v42);
    let v175: f32 = m12;
    s0[v174] = v175;
    let v176: i32 = (v173 + v143);
    let v177: f32 = m13;
    s0[v176] = v177;
    let v178: i32 = (v173 + v146);
    let v179: f32 = m14;
    s0[v178] = v179;
    let v180: i32 = (v173 + v149);
    let v181: f32 = m15;
    s0[v180] = v181;
    workgroupBarrier();
    for (var v182: i32 = v14; v182 < 1024i; v182 += 64) {
      let v183: i32 = (v182 >> 5u);
      let v184: i32 = (v182 & 31i);
      let v185: i32 = (v37 + v183);
      let v186: i32 = (v38 + v184);
      let v187: bool = (v185 < v0);
      let v188: bool = (v186 < v2);
      let v189: bool = (v187 & v188);
      if (v189) {
        let v190: f32 = s0[v182];
        let v191: bool = (v190 > 0.0f);
        let v192: u32 = bitcast<u32>(v190);
        let v193: u32 = (v192 & 2147483647u);
        let v194: bool = (v193 > 2139095040u);
        let v195: bool = (v191 | v194);
        let v196: f32 = select(0.0f, v190, v195);
        let v197: i32 = (v185 * v10);
        let v198: i32 = (v9 + v197);
        let v199: i32 = (v198 + v186);
        b2[v199] = v196;
      }
    }
  }
}
