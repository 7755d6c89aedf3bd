// matmul.MatMul+Relu
@group(0) @binding(0) var<uniform> u: array<vec4<i32>, 3>;
@group(0) @binding(1) var<storage, read> b0: array<f32>; // x0
@group(0) @binding(2) var<storage, read> b1: array<f32>; // x1
@group(0) @binding(3) var<storage, read_write> b2: array<f32>; // y0
var<workgroup> s0: array<f32, 512>;
var<workgroup> s1: array<f32, 512>;
var<workgroup> s2: array<f32, 1024>;
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
    let v33: i32 = (v13 % v4);
    let v34: i32 = (v13 / v4);
    let v35: i32 = (v34 % v3);
    let v36: i32 = (v35 * 32i);
    let v37: i32 = (v33 << 5u);
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
    let v38: i32 = (v14 >> 3u);
    let v39: i32 = (v14 & 7i);
    let v40: i32 = (v38 << 2u);
    let v41: i32 = (v39 << 2u);
    for (var v42: i32 = 0i; v42 < v1; v42 += 16) {
      for (var v43: i32 = v14; v43 < 512i; v43 += 64) {
        let v44: i32 = (v43 & 15i);
        let v45: i32 = (v43 >> 4u);
        let v46: i32 = (v36 + v45);
        let v47: i32 = (v42 + v44);
        let v48: bool = (v46 < v0);
        let v49: bool = (v47 < v1);
        let v50: bool = (v48 & v49);
        m16 = 0.0f;
        if (v50) {
          let v51: i32 = (v46 * v6);
          let v52: i32 = (v5 + v51);
          let v53: i32 = (v52 + v47);
          let v54: f32 = b0[v53];
          m16 = v54;
        }
        let v55: f32 = m16;
        let v56: i32 = (v44 << 5u);
        let v57: i32 = (v56 + v45);
        s0[v57] = v55;
      }
      for (var v58: i32 = v14; v58 < 512i; v58 += 64) {
        let v59: i32 = (v58 >> 5u);
        let v60: i32 = (v58 & 31i);
        let v61: i32 = (v42 + v59);
        let v62: i32 = (v37 + v60);
        let v63: bool = (v61 < v1);
        let v64: bool = (v62 < v2);
        let v65: bool = (v63 & v64);
        m17 = 0.0f;
        if (v65) {
          let v66: i32 = (v61 * v8);
          let v67: i32 = (v7 + v66);
          let v68: i32 = (v67 + v62);
          let v69: f32 = b1[v68];
          m17 = v69;
        }
        let v70: f32 = m17;
        s1[v58] = v70;
      }
      workgroupBarrier();
      for (var v71: i32 = 0i; v71 < 16i; v71 += 1) {
        let v72: i32 = (v71 << 5u);
        let v73: i32 = (v72 + v40);
        let v74: f32 = s0[v73];
        let v75: i32 = (v73 + 1i);
        let v76: f32 = s0[v75];
        let v77: i32 = (v73 + 2i);
        let v78: f32 = s0[v77];
        let v79: i32 = (v73 + 3i);
        let v80: f32 = s0[v79];
        let v81: i32 = (v72 + v41);
        let v82: f32 = s1[v81];
        let v83: i32 = (v81 + 1i);
        let v84: f32 = s1[v83];
        let v85: i32 = (v81 + 2i);
        let v86: f32 = s1[v85];
        let v87: i32 = (v81 + 3i);
        let v88: f32 = s1[v87];
        let v89: f32 = (v74 * v82);
        let v90: f32 = m0;
        let v91: f32 = (v90 + v89);
        m0 = v91;
        let v92: f32 = (v74 * v84);
        let v93: f32 = m1;
        let v94: f32 = (v93 + v92);
        m1 = v94;
        let v95: f32 = (v74 * v86);
        let v96: f32 = m2;
        let v97: f32 = (v96 + v95);
        m2 = v97;
        let v98: f32 = (v74 * v88);
        let v99: f32 = m3;
        let v100: f32 = (v99 + v98);
        m3 = v100;
        let v101: f32 = (v76 * v82);
        let v102: f32 = m4;
        let v103: f32 = (v102 + v101);
        m4 = v103;
        let v104: f32 = (v76 * v84);
        let v105: f32 = m5;
        let v106: f32 = (v105 + v104);
        m5 = v106;
        let v107: f32 = (v76 * v86);
        let v108: f32 = m6;
        let v109: f32 = (v108 + v107);
        m6 = v109;
        let v110: f32 = (v76 * v88);
        let v111: f32 = m7;
        let v112: f32 = (v111 + v110);
        m7 = v112;
        let v113: f32 = (v78 * v82);
        let v114: f32 = m8;
        let v115: f32 = (v114 + v113);
        m8 = v115;
        let v116: f32 = (v78 * v84);
        let v117: f32 = m9;
        let v118: f32 = (v117 + v116);
        m9 = v118;
        let v119: f32 = (v78 * v86);
        let v120: f32 = m10;
        let v121: f32 = (v120 + v119);
        m10 = v121;
        let v122: f32 = (v78 * v88);
        let v123: f32 = m11;
        let v124: f32 = (v123 + v122);
        m11 = v124;
        let v125: f32 = (v80 * v82);
        let v126: f32 = m12;
        let v127: f32 = (v126 + v125);
        m12 = v127;
        let v128: f32 = (v80 * v84);
        let v129: f32 = m13;
        let v130: f32 = (v129 + v128);
        m13 = v130;
        let v131: f32 = (v80 * v86);
        let v132: f32 = m14;
        let v133: f32 = (v132 + v131);
        m14 = v133;
        let v134: f32 = (v80 * v88);
        let v135: f32 = m15;
        let v136: f32 = (v135 + v134);
        m15 = v136;
      }
      workgroupBarrier();
    }
    let v137: i32 = (v40 << 5u);
    let v138: i32 = (v137 + v41);
    let v139: f32 = m0;
    s2[v138] = v139;
    let v140: i32 = (v41 + 1i);
    let v141: i32 = (v137 + v140);
    let v142: f32 = m1;
    s2[v141] = v142;
    let v143: i32 = (v41 + 2i);
    let v144: i32 = (v137 + v143);
    let v145: f32 = m2;
    s2[v144] = v145;
    let v146: i32 = (v41 + 3i);
    let v147: i32 = (v137 + v146);
    let v148: f32 = m3;
    s2[v147] = v148;
    let v149: i32 = (v40 + 1i);
    let v150: i32 = (v149 << 5u);
    let v151: i32 = (v150 + v41);
    let v152: f32 = m4;
    s2[v151] = v152;
    let v153: i32 = (v150 + v140);
    let v154: f32 = m5;
    s2[v153] = v154;
    let v155: i32 = (v150 + v143);
    let v156: f32 = m6;
    s2[v155] = v156;
    let v157: i32 = (v150 + v146);
    let v158: f32 = m7;
    s2[v157] = v158;
    let v159: i32 = (v40 + 2i);
    let v160: i32 = (v159 << 5u);
    let v161: i32 = (v160 + v41);
    let v162: f32 = m8;
    s2[v161] = v162;
    let v163: i32 = (v160 + v140);
    let v164: f32 = m9;
    s2[v163] = v164;
    let v165: i32 = (v160 + v143);
    let v166: f32 = m10;
    s2[v165] = v166;
    let v167: i32 = (v160 + v146);
    let v168: f32 = m11;
    s2[v167] = v168;
    let v169: i32 = (v40 + 3i);
    let v170: i32 = (v169 << 5u);
    let v171: i32 = (v170 + v41);
    let v172: f32 = m12;
    s2[v171] = v172;
    let v173: i32 = (v170 + v140);
    let v174: f32 = m13;
    s2[v173] = v174;
    let v175: i32 = (v170 + v143);
    let v176: f32 = m14;
    s2[v175] = v176;
    let v177: i32 = (v170 + v146);
    let v178: f32 = m15;
    s2[v177] = v178;
    workgroupBarrier();
    for (var v179: i32 = v14; v179 < 1024i; v179 += 64) {
      let v180: i32 = (v179 >> 5u);
      let v181: i32 = (v179 & 31i);
      let v182: i32 = (v36 + v180);
      let v183: i32 = (v37 + v181);
      let v184: bool = (v182 < v0);
      let v185: bool = (v183 < v2);
      let v186: bool = (v184 & v185);
      if (v186) {
        let v187: f32 = s2[v179];
        let v188: bool = (v187 > 0.0f);
        let v189: u32 = bitcast<u32>(v187);
        let v190: u32 = (v189 & 2147483647u);
        let v191: bool = (v190 > 2139095040u);
        let v192: bool = (v188 | v191);
        let v193: f32 = select(0.0f, v187, v192);
        let v194: i32 = (v182 * v10);
        let v195: i32 = (v9 + v194);
        let v196: i32 = (v195 + v183);
        b2[v196] = v193;
      }
    }
  }
}
