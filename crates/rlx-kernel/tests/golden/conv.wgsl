// conv.Conv+Relu
@group(0) @binding(0) var<uniform> u: array<vec4<i32>, 6>;
@group(0) @binding(1) var<storage, read> b0: array<f32>; // x1
@group(0) @binding(2) var<storage, read> b1: array<f32>; // x0
@group(0) @binding(3) var<storage, read> b2: array<f32>; // x2
@group(0) @binding(4) var<storage, read_write> b3: array<f32>; // y0
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
  var m18: f32;
  let v0: i32 = u[0][0];
  let v1: i32 = u[0][1];
  let v2: i32 = u[1][0];
  let v3: i32 = u[1][1];
  let v4: i32 = u[1][2];
  let v5: i32 = u[1][3];
  let v6: i32 = u[2][0];
  let v7: i32 = u[2][1];
  let v8: i32 = u[2][2];
  let v9: i32 = u[2][3];
  let v10: i32 = u[3][0];
  let v11: i32 = u[3][1];
  let v12: i32 = u[3][3];
  let v13: i32 = u[4][0];
  let v14: i32 = u[4][1];
  let v15: i32 = u[4][2];
  let v16: i32 = u[5][0];
  let v17: i32 = u[5][1];
  let v20: i32 = (v3 * 3i);
  let v21: i32 = (v20 * 3i);
  let v22: i32 = (v4 * v5);
  let v23: i32 = i32(group.y * groups.x + group.x);
  let v24: i32 = i32(local);
  let v25: bool = (v23 < v6);
  if (v25) {
    let v46: i32 = (v23 / v6);
    let v47: i32 = (v46 * v6);
    let v48: i32 = (v23 - v47);
    let v49: i32 = (v48 << 5u);
    let v50: i32 = (v24 >> 3u);
    let v51: i32 = (v24 & 7i);
    let v52: i32 = (v50 << 2u);
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
    for (var v53: i32 = 0i; v53 < v21; v53 += 16) {
      for (var v54: i32 = v24; v54 < 512i; v54 += 64) {
        let v55: i32 = (v54 & 15i);
        let v56: i32 = (v54 >> 4u);
        let v57: i32 = (v53 + v55);
        let v58: bool = (v56 < v2);
        let v59: bool = (v57 < v21);
        let v60: bool = (v58 & v59);
        m16 = f32_bits(0x80000000u);
        if (v60) {
          let v61: i32 = (v57 / 3i);
          let v62: i32 = (v57 % 3i);
          let v63: i32 = (v61 / 3i);
          let v64: i32 = (v61 % 3i);
          let v65: i32 = (v56 * v8);
          let v66: i32 = (v7 + v65);
          let v67: i32 = (v63 * v9);
          let v68: i32 = (v66 + v67);
          let v69: i32 = (v64 * v10);
          let v70: i32 = (v68 + v69);
          let v71: i32 = (v70 + v62);
          let v72: f32 = b0[v71];
          m16 = v72;
        }
        let v73: f32 = m16;
        let v74: i32 = (v55 * 34i);
        let v75: i32 = (v74 + v56);
        s0[v75] = v73;
      }
      for (var v76: i32 = v24; v76 < 512i; v76 += 64) {
        let v77: i32 = (v76 >> 5u);
        let v78: i32 = (v76 & 31i);
        let v79: i32 = (v53 + v77);
        let v80: i32 = (v49 + v78);
        let v81: bool = (v79 < v21);
        let v82: bool = (v80 < v22);
        let v83: bool = (v81 & v82);
        m17 = 0.0f;
        if (v83) {
          let v84: i32 = (v79 / 3i);
          let v85: i32 = (v79 % 3i);
          let v86: i32 = (v84 / 3i);
          let v87: i32 = (v84 % 3i);
          let v88: i32 = (v80 / v5);
          let v89: i32 = (v88 * v5);
          let v90: i32 = (v80 - v89);
          let v91: i32 = (v88 + v87);
          let v92: i32 = (v91 - 1i);
          let v93: i32 = (v90 + v85);
          let v94: i32 = (v93 - 1i);
          let v95: bool = (v92 >= 0i);
          let v96: bool = (v92 < v0);
          let v97: bool = (v95 & v96);
          let v98: bool = (v94 >= 0i);
          let v99: bool = (v94 < v1);
          let v100: bool = (v98 & v99);
          let v101: bool = (v97 & v100);
          m18 = 0.0f;
          if (v101) {
            let v102: i32 = (v86 * v12);
            let v103: i32 = (v11 + v102);
            let v104: i32 = (v92 * v13);
            let v105: i32 = (v103 + v104);
            let v106: i32 = (v105 + v94);
            let v107: f32 = b1[v106];
            m18 = v107;
          }
          let v108: f32 = m18;
          m17 = v108;
        }
        let v109: f32 = m17;
        let v110: i32 = (v76 + 544i);
        s0[v110] = v109;
      }
      workgroupBarrier();
      for (var v111: i32 = 0i; v111 < 16i; v111 += 1) {
        let v112: i32 = (v111 * 34i);
        let v113: i32 = (v112 + v52);
        let v114: f32 = s0[v113];
        let v115: i32 = (v113 + 1i);
        let v116: f32 = s0[v115];
        let v117: i32 = (v113 + 2i);
        let v118: f32 = s0[v117];
        let v119: i32 = (v113 + 3i);
        let v120: f32 = s0[v119];
        let v121: i32 = (v111 << 5u);
        let v122: i32 = (v121 + 544i);
        let v123: i32 = (v122 + v51);
        let v124: f32 = s0[v123];
        let v125: i32 = (v123 + 8i);
        let v126: f32 = s0[v125];
        let v127: i32 = (v123 + 16i);
        let v128: f32 = s0[v127];
        let v129: i32 = (v123 + 24i);
        let v130: f32 = s0[v129];
        let v131: f32 = (v114 * v124);
        let v132: f32 = m0;
        let v133: f32 = (v132 + v131);
        m0 = v133;
        let v134: f32 = (v114 * v126);
        let v135: f32 = m1;
        let v136: f32 = (v135 + v134);
        m1 = v136;
        let v137: f32 = (v114 * v128);
        let v138: f32 = m2;
        let v139: f32 = (v138 + v137);
        m2 = v139;
        let v140: f32 = (v114 * v130);
        let v141: f32 = m3;
        let v142: f32 = (v141 + v140);
        m3 = v142;
        let v143: f32 = (v116 * v124);
        let v144: f32 = m4;
        let v145: f32 = (v144 + v143);
        m4 = v145;
        let v146: f32 = (v116 * v126);
        let v147: f32 = m5;
        let v148: f32 = (v147 + v146);
        m5 = v148;
        let v149: f32 = (v116 * v128);
        let v150: f32 = m6;
        let v151: f32 = (v150 + v149);
        m6 = v151;
        let v152: f32 = (v116 * v130);
        let v153: f32 = m7;
        let v154: f32 = (v153 + v152);
        m7 = v154;
        let v155: f32 = (v118 * v124);
        let v156: f32 = m8;
        let v157: f32 = (v156 + v155);
        m8 = v157;
        let v158: f32 = (v118 * v126);
        let v159: f32 = m9;
        let v160: f32 = (v159 + v158);
        m9 = v160;
        let v161: f32 = (v118 * v128);
        let v162: f32 = m10;
        let v163: f32 = (v162 + v161);
        m10 = v163;
        let v164: f32 = (v118 * v130);
        let v165: f32 = m11;
        let v166: f32 = (v165 + v164);
        m11 = v166;
        let v167: f32 = (v120 * v124);
        let v168: f32 = m12;
        let v169: f32 = (v168 + v167);
        m12 = v169;
        let v170: f32 = (v120 * v126);
        let v171: f32 = m13;
        let v172: f32 = (v171 + v170);
        m13 = v172;
        let v173: f32 = (v120 * v128);
        let v174: f32 = m14;
        let v175: f32 = (v174 + v173);
        m14 = v175;
        let v176: f32 = (v120 * v130);
        let v177: f32 = m15;
        let v178: f32 = (v177 + v176);
        m15 = v178;
      }
      workgroupBarrier();
    }
    let v179: i32 = (v52 * 34i);
    let v180: i32 = (v179 + v51);
    let v181: f32 = m0;
    s0[v180] = v181;
    let v182: i32 = (v51 + 8i);
    let v183: i32 = (v179 + v182);
    let v184: f32 = m1;
    s0[v183] = v184;
    let v185: i32 = (v51 + 16i);
    let v186: i32 = (v179 + v185);
    let v187: f32 = m2;
    s0[v186] = v187;
    let v188: i32 = (v51 + 24i);
    let v189: i32 = (v179 + v188);
    let v190: f32 = m3;
    s0[v189] = v190;
    let v191: i32 = (v52 + 1i);
    let v192: i32 = (v191 * 34i);
    let v193: i32 = (v192 + v51);
    let v194: f32 = m4;
    s0[v193] = v194;
    let v195: i32 = (v192 + v182);
    let v196: f32 = m5;
    s0[v195] = v196;
    let v197: i32 = (v192 + v185);
    let v198: f32 = m6;
    s0[v197] = v198;
    let v199: i32 = (v192 + v188);
    let v200: f32 = m7;
    s0[v199] = v200;
    let v201: i32 = (v52 + 2i);
    let v202: i32 = (v201 * 34i);
    let v203: i32 = (v202 + v51);
    let v204: f32 = m8;
    s0[v203] = v204;
    let v205: i32 = (v202 + v182);
    let v206: f32 = m9;
    s0[v205] = v206;
    let v207: i32 = (v202 + v185);
    let v208: f32 = m10;
    s0[v207] = v208;
    let v209: i32 = (v202 + v188);
    let v210: f32 = m11;
    s0[v209] = v210;
    let v211: i32 = (v52 + 3i);
    let v212: i32 = (v211 * 34i);
    let v213: i32 = (v212 + v51);
    let v214: f32 = m12;
    s0[v213] = v214;
    let v215: i32 = (v212 + v182);
    let v216: f32 = m13;
    s0[v215] = v216;
    let v217: i32 = (v212 + v185);
    let v218: f32 = m14;
    s0[v217] = v218;
    let v219: i32 = (v212 + v188);
    let v220: f32 = m15;
    s0[v219] = v220;
    workgroupBarrier();
    for (var v221: i32 = v24; v221 < 1024i; v221 += 64) {
      let v222: i32 = (v221 >> 5u);
      let v223: i32 = (v221 & 31i);
      let v224: i32 = (v49 + v223);
      let v225: bool = (v222 < v2);
      let v226: bool = (v224 < v22);
      let v227: bool = (v225 & v226);
      if (v227) {
        let v228: i32 = (v222 * 34i);
        let v229: i32 = (v228 + v223);
        let v230: f32 = s0[v229];
        let v231: i32 = (v224 / v5);
        let v232: i32 = (v231 * v5);
        let v233: i32 = (v224 - v232);
        let v234: i32 = (v14 + v222);
        let v235: f32 = b2[v234];
        let v236: f32 = (v230 + v235);
        let v237: bool = (v236 > 0.0f);
        let v238: u32 = bitcast<u32>(v236);
        let v239: u32 = (v238 & 2147483647u);
        let v240: bool = (v239 > 2139095040u);
        let v241: bool = (v237 | v240);
        let v242: f32 = select(0.0f, v236, v241);
        let v243: i32 = (v222 * v16);
        let v244: i32 = (v15 + v243);
        let v245: i32 = (v231 * v17);
        let v246: i32 = (v244 + v245);
        let v247: i32 = (v246 + v233);
        b3[v247] = v242;
      }
    }
  }
}
