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
    let v51: i32 = (v13 / v4);
    let v52: i32 = (v51 * v4);
    let v53: i32 = (v13 - v52);
    let v54: i32 = (v51 / v3);
    let v55: i32 = (v54 * v3);
    let v56: i32 = (v51 - v55);
    let v57: i32 = (v56 * 32i);
    let v58: i32 = (v53 << 5u);
    let v59: i32 = (v14 >> 3u);
    let v60: i32 = (v14 & 7i);
    let v61: i32 = (v59 << 2u);
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
    for (var v62: i32 = 0i; v62 < v1; v62 += 16) {
      for (var v63: i32 = v14; v63 < 512i; v63 += 64) {
        let v64: i32 = (v63 & 15i);
        let v65: i32 = (v63 >> 4u);
        let v66: i32 = (v57 + v65);
        let v67: i32 = (v62 + v64);
        let v68: bool = (v66 < v0);
        let v69: bool = (v67 < v1);
        let v70: bool = (v68 & v69);
        m16 = f32_bits(0x80000000u);
        if (v70) {
          let v71: i32 = (v66 * v6);
          let v72: i32 = (v5 + v71);
          let v73: i32 = (v72 + v67);
          let v74: f32 = b0[v73];
          m16 = v74;
        }
        let v75: f32 = m16;
        let v76: i32 = (v64 * 34i);
        let v77: i32 = (v76 + v65);
        s0[v77] = v75;
      }
      for (var v78: i32 = v14; v78 < 512i; v78 += 64) {
        let v79: i32 = (v78 >> 5u);
        let v80: i32 = (v78 & 31i);
        let v81: i32 = (v62 + v79);
        let v82: i32 = (v58 + v80);
        let v83: bool = (v81 < v1);
        let v84: bool = (v82 < v2);
        let v85: bool = (v83 & v84);
        m17 = 0.0f;
        if (v85) {
          let v86: i32 = (v81 * v8);
          let v87: i32 = (v7 + v86);
          let v88: i32 = (v87 + v82);
          let v89: f32 = b1[v88];
          m17 = v89;
        }
        let v90: f32 = m17;
        let v91: i32 = (v78 + 544i);
        s0[v91] = v90;
      }
      workgroupBarrier();
      for (var v92: i32 = 0i; v92 < 16i; v92 += 1) {
        let v93: i32 = (v92 * 34i);
        let v94: i32 = (v93 + v61);
        let v95: f32 = s0[v94];
        let v96: i32 = (v94 + 1i);
        let v97: f32 = s0[v96];
        let v98: i32 = (v94 + 2i);
        let v99: f32 = s0[v98];
        let v100: i32 = (v94 + 3i);
        let v101: f32 = s0[v100];
        let v102: i32 = (v92 << 5u);
        let v103: i32 = (v102 + 544i);
        let v104: i32 = (v103 + v60);
        let v105: f32 = s0[v104];
        let v106: i32 = (v104 + 8i);
        let v107: f32 = s0[v106];
        let v108: i32 = (v104 + 16i);
        let v109: f32 = s0[v108];
        let v110: i32 = (v104 + 24i);
        let v111: f32 = s0[v110];
        let v112: f32 = m0;
        let v113: f32 = (v95 * v105);
        let v114: f32 = (v112 + v113);
        m0 = v114;
        let v115: f32 = m1;
        let v116: f32 = (v95 * v107);
        let v117: f32 = (v115 + v116);
        m1 = v117;
        let v118: f32 = m2;
        let v119: f32 = (v95 * v109);
        let v120: f32 = (v118 + v119);
        m2 = v120;
        let v121: f32 = m3;
        let v122: f32 = (v95 * v111);
        let v123: f32 = (v121 + v122);
        m3 = v123;
        let v124: f32 = m4;
        let v125: f32 = (v97 * v105);
        let v126: f32 = (v124 + v125);
        m4 = v126;
        let v127: f32 = m5;
        let v128: f32 = (v97 * v107);
        let v129: f32 = (v127 + v128);
        m5 = v129;
        let v130: f32 = m6;
        let v131: f32 = (v97 * v109);
        let v132: f32 = (v130 + v131);
        m6 = v132;
        let v133: f32 = m7;
        let v134: f32 = (v97 * v111);
        let v135: f32 = (v133 + v134);
        m7 = v135;
        let v136: f32 = m8;
        let v137: f32 = (v99 * v105);
        let v138: f32 = (v136 + v137);
        m8 = v138;
        let v139: f32 = m9;
        let v140: f32 = (v99 * v107);
        let v141: f32 = (v139 + v140);
        m9 = v141;
        let v142: f32 = m10;
        let v143: f32 = (v99 * v109);
        let v144: f32 = (v142 + v143);
        m10 = v144;
        let v145: f32 = m11;
        let v146: f32 = (v99 * v111);
        let v147: f32 = (v145 + v146);
        m11 = v147;
        let v148: f32 = m12;
        let v149: f32 = (v101 * v105);
        let v150: f32 = (v148 + v149);
        m12 = v150;
        let v151: f32 = m13;
        let v152: f32 = (v101 * v107);
        let v153: f32 = (v151 + v152);
        m13 = v153;
        let v154: f32 = m14;
        let v155: f32 = (v101 * v109);
        let v156: f32 = (v154 + v155);
        m14 = v156;
        let v157: f32 = m15;
        let v158: f32 = (v101 * v111);
        let v159: f32 = (v157 + v158);
        m15 = v159;
      }
      workgroupBarrier();
    }
    let v160: i32 = (v59 * 136i);
    let v161: i32 = (v160 + v60);
    let v162: f32 = m0;
    s0[v161] = v162;
    let v163: i32 = (v161 + 8i);
    let v164: f32 = m1;
    s0[v163] = v164;
    let v165: i32 = (v161 + 16i);
    let v166: f32 = m2;
    s0[v165] = v166;
    let v167: i32 = (v161 + 24i);
    let v168: f32 = m3;
    s0[v167] = v168;
    let v169: i32 = (v161 + 32i);
    let v170: f32 = m4;
    s0[v169] = v170;
    let v171: i32 = (v161 + 40i);
    let v172: f32 = m5;
    s0[v171] = v172;
    let v173: i32 = (v161 + 48i);
    let v174: f32 = m6;
    s0[v173] = v174;
    let v175: i32 = (v161 + 56i);
    let v176: f32 = m7;
    s0[v175] = v176;
    let v177: i32 = (v161 + 64i);
    let v178: f32 = m8;
    s0[v177] = v178;
    let v179: i32 = (v161 + 72i);
    let v180: f32 = m9;
    s0[v179] = v180;
    let v181: i32 = (v161 + 80i);
    let v182: f32 = m10;
    s0[v181] = v182;
    let v183: i32 = (v161 + 88i);
    let v184: f32 = m11;
    s0[v183] = v184;
    let v185: i32 = (v161 + 96i);
    let v186: f32 = m12;
    s0[v185] = v186;
    let v187: i32 = (v161 + 104i);
    let v188: f32 = m13;
    s0[v187] = v188;
    let v189: i32 = (v161 + 112i);
    let v190: f32 = m14;
    s0[v189] = v190;
    let v191: i32 = (v161 + 120i);
    let v192: f32 = m15;
    s0[v191] = v192;
    workgroupBarrier();
    for (var v193: i32 = v14; v193 < 1024i; v193 += 64) {
      let v194: i32 = (v193 >> 5u);
      let v195: i32 = (v193 & 31i);
      let v196: i32 = (v57 + v194);
      let v197: i32 = (v58 + v195);
      let v198: bool = (v196 < v0);
      let v199: bool = (v197 < v2);
      let v200: bool = (v198 & v199);
      if (v200) {
        let v201: i32 = (v193 >> 7u);
        let v202: i32 = (v201 << 3u);
        let v203: i32 = (v193 + v202);
        let v204: f32 = s0[v203];
        let v205: bool = (v204 > 0.0f);
        let v206: u32 = bitcast<u32>(v204);
        let v207: u32 = (v206 & 2147483647u);
        let v208: bool = (v207 > 2139095040u);
        let v209: bool = (v205 | v208);
        let v210: f32 = select(0.0f, v204, v209);
        let v211: i32 = (v196 * v10);
        let v212: i32 = (v9 + v211);
        let v213: i32 = (v212 + v197);
        b2[v213] = v210;
      }
    }
  }
}
