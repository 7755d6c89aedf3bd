// conv.Conv+Relu
@group(0) @binding(0) var<uniform> u: array<vec4<i32>, 7>;
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
  let v12: i32 = u[3][2];
  let v13: i32 = u[3][3];
  let v14: i32 = u[4][1];
  let v15: i32 = u[4][2];
  let v16: i32 = u[4][3];
  let v17: i32 = u[5][0];
  let v18: i32 = u[5][2];
  let v19: i32 = u[5][3];
  let v21: i32 = (v3 * v4);
  let v22: i32 = (v21 * v5);
  let v23: i32 = (v6 * v7);
  let v24: i32 = i32(group.y * groups.x + group.x);
  let v25: i32 = i32(local);
  let v26: bool = (v24 < v8);
  if (v26) {
    let v48: i32 = (v24 % v8);
    let v49: i32 = (v48 << 5u);
    let v50: i32 = (v25 >> 3u);
    let v51: i32 = (v25 & 7i);
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
    for (var v53: i32 = 0i; v53 < v22; v53 += 16) {
      for (var v54: i32 = v25; v54 < 512i; v54 += 64) {
        let v55: i32 = (v54 & 15i);
        let v56: i32 = (v54 >> 4u);
        let v57: i32 = (v53 + v55);
        let v58: bool = (v56 < v2);
        let v59: bool = (v57 < v22);
        let v60: bool = (v58 & v59);
        m16 = f32_bits(0x80000000u);
        if (v60) {
          let v61: i32 = (v57 % v5);
          let v62: i32 = (v57 / v5);
          let v63: i32 = (v62 % v4);
          let v64: i32 = (v62 / v4);
          let v65: i32 = (v56 * v10);
          let v66: i32 = (v9 + v65);
          let v67: i32 = (v64 * v11);
          let v68: i32 = (v66 + v67);
          let v69: i32 = (v63 * v12);
          let v70: i32 = (v68 + v69);
          let v71: i32 = (v70 + v61);
          let v72: f32 = b0[v71];
          m16 = v72;
        }
        let v73: f32 = m16;
        let v74: i32 = (v55 * 34i);
        let v75: i32 = (v74 + v56);
        s0[v75] = v73;
      }
      for (var v76: i32 = v25; v76 < 512i; v76 += 64) {
        let v77: i32 = (v76 >> 5u);
        let v78: i32 = (v76 & 31i);
        let v79: i32 = (v53 + v77);
        let v80: i32 = (v49 + v78);
        let v81: bool = (v79 < v22);
        let v82: bool = (v80 < v23);
        let v83: bool = (v81 & v82);
        m17 = 0.0f;
        if (v83) {
          let v84: i32 = (v79 % v5);
          let v85: i32 = (v79 / v5);
          let v86: i32 = (v85 % v4);
          let v87: i32 = (v85 / v4);
          let v88: i32 = (v80 % v7);
          let v89: i32 = (v80 / v7);
          let v90: i32 = (v89 + v86);
          let v91: i32 = (v90 - 1i);
          let v92: i32 = (v88 + v84);
          let v93: i32 = (v92 - 1i);
          let v94: bool = (v91 >= 0i);
          let v95: bool = (v91 < v0);
          let v96: bool = (v94 & v95);
          let v97: bool = (v93 >= 0i);
          let v98: bool = (v93 < v1);
          let v99: bool = (v97 & v98);
          let v100: bool = (v96 & v99);
          m18 = 0.0f;
          if (v100) {
            let v101: i32 = (v87 * v14);
            let v102: i32 = (v13 + v101);
            let v103: i32 = (v91 * v15);
            let v104: i32 = (v102 + v103);
            let v105: i32 = (v104 + v93);
            let v106: f32 = b1[v105];
            m18 = v106;
          }
          let v107: f32 = m18;
          m17 = v107;
        }
        let v108: f32 = m17;
        let v109: i32 = (v76 + 544i);
        s0[v109] = v108;
      }
      workgroupBarrier();
      for (var v110: i32 = 0i; v110 < 16i; v110 += 1) {
        let v111: i32 = (v110 * 34i);
        let v112: i32 = (v111 + v52);
        let v113: f32 = s0[v112];
        let v114: i32 = (v112 + 1i);
        let v115: f32 = s0[v114];
        let v116: i32 = (v112 + 2i);
        let v117: f32 = s0[v116];
        let v118: i32 = (v112 + 3i);
        let v119: f32 = s0[v118];
        let v120: i32 = (v110 << 5u);
        let v121: i32 = (v120 + 544i);
        let v122: i32 = (v121 + v51);
        let v123: f32 = s0[v122];
        let v124: i32 = (v122 + 8i);
        let v125: f32 = s0[v124];
        let v126: i32 = (v122 + 16i);
        let v127: f32 = s0[v126];
        let v128: i32 = (v122 + 24i);
        let v129: f32 = s0[v128];
        let v130: f32 = (v113 * v123);
        let v131: f32 = m0;
        let v132: f32 = (v131 + v130);
        m0 = v132;
        let v133: f32 = (v113 * v125);
        let v134: f32 = m1;
        let v135: f32 = (v134 + v133);
        m1 = v135;
        let v136: f32 = (v113 * v127);
        let v137: f32 = m2;
        let v138: f32 = (v137 + v136);
        m2 = v138;
        let v139: f32 = (v113 * v129);
        let v140: f32 = m3;
        let v141: f32 = (v140 + v139);
        m3 = v141;
        let v142: f32 = (v115 * v123);
        let v143: f32 = m4;
        let v144: f32 = (v143 + v142);
        m4 = v144;
        let v145: f32 = (v115 * v125);
        let v146: f32 = m5;
        let v147: f32 = (v146 + v145);
        m5 = v147;
        let v148: f32 = (v115 * v127);
        let v149: f32 = m6;
        let v150: f32 = (v149 + v148);
        m6 = v150;
        let v151: f32 = (v115 * v129);
        let v152: f32 = m7;
        let v153: f32 = (v152 + v151);
        m7 = v153;
        let v154: f32 = (v117 * v123);
        let v155: f32 = m8;
        let v156: f32 = (v155 + v154);
        m8 = v156;
        let v157: f32 = (v117 * v125);
        let v158: f32 = m9;
        let v159: f32 = (v158 + v157);
        m9 = v159;
        let v160: f32 = (v117 * v127);
        let v161: f32 = m10;
        let v162: f32 = (v161 + v160);
        m10 = v162;
        let v163: f32 = (v117 * v129);
        let v164: f32 = m11;
        let v165: f32 = (v164 + v163);
        m11 = v165;
        let v166: f32 = (v119 * v123);
        let v167: f32 = m12;
        let v168: f32 = (v167 + v166);
        m12 = v168;
        let v169: f32 = (v119 * v125);
        let v170: f32 = m13;
        let v171: f32 = (v170 + v169);
        m13 = v171;
        let v172: f32 = (v119 * v127);
        let v173: f32 = m14;
        let v174: f32 = (v173 + v172);
        m14 = v174;
        let v175: f32 = (v119 * v129);
        let v176: f32 = m15;
        let v177: f32 = (v176 + v175);
        m15 = v177;
      }
      workgroupBarrier();
    }
    let v178: i32 = (v52 * 34i);
    let v179: i32 = (v178 + v51);
    let v180: f32 = m0;
    s0[v179] = v180;
    let v181: i32 = (v51 + 8i);
    let v182: i32 = (v178 + v181);
    let v183: f32 = m1;
    s0[v182] = v183;
    let v184: i32 = (v51 + 16i);
    let v185: i32 = (v178 + v184);
    let v186: f32 = m2;
    s0[v185] = v186;
    let v187: i32 = (v51 + 24i);
    let v188: i32 = (v178 + v187);
    let v189: f32 = m3;
    s0[v188] = v189;
    let v190: i32 = (v52 + 1i);
    let v191: i32 = (v190 * 34i);
    let v192: i32 = (v191 + v51);
    let v193: f32 = m4;
    s0[v192] = v193;
    let v194: i32 = (v191 + v181);
    let v195: f32 = m5;
    s0[v194] = v195;
    let v196: i32 = (v191 + v184);
    let v197: f32 = m6;
    s0[v196] = v197;
    let v198: i32 = (v191 + v187);
    let v199: f32 = m7;
    s0[v198] = v199;
    let v200: i32 = (v52 + 2i);
    let v201: i32 = (v200 * 34i);
    let v202: i32 = (v201 + v51);
    let v203: f32 = m8;
    s0[v202] = v203;
    let v204: i32 = (v201 + v181);
    let v205: f32 = m9;
    s0[v204] = v205;
    let v206: i32 = (v201 + v184);
    let v207: f32 = m10;
    s0[v206] = v207;
    let v208: i32 = (v201 + v187);
    let v209: f32 = m11;
    s0[v208] = v209;
    let v210: i32 = (v52 + 3i);
    let v211: i32 = (v210 * 34i);
    let v212: i32 = (v211 + v51);
    let v213: f32 = m12;
    s0[v212] = v213;
    let v214: i32 = (v211 + v181);
    let v215: f32 = m13;
    s0[v214] = v215;
    let v216: i32 = (v211 + v184);
    let v217: f32 = m14;
    s0[v216] = v217;
    let v218: i32 = (v211 + v187);
    let v219: f32 = m15;
    s0[v218] = v219;
    workgroupBarrier();
    for (var v220: i32 = v25; v220 < 1024i; v220 += 64) {
      let v221: i32 = (v220 >> 5u);
      let v222: i32 = (v220 & 31i);
      let v223: i32 = (v49 + v222);
      let v224: bool = (v221 < v2);
      let v225: bool = (v223 < v23);
      let v226: bool = (v224 & v225);
      if (v226) {
        let v227: i32 = (v221 * 34i);
        let v228: i32 = (v227 + v222);
        let v229: f32 = s0[v228];
        let v230: i32 = (v223 % v7);
        let v231: i32 = (v223 / v7);
        let v232: i32 = (v16 + v221);
        let v233: f32 = b2[v232];
        let v234: f32 = (v229 + v233);
        let v235: bool = (v234 > 0.0f);
        let v236: u32 = bitcast<u32>(v234);
        let v237: u32 = (v236 & 2147483647u);
        let v238: bool = (v237 > 2139095040u);
        let v239: bool = (v235 | v238);
        let v240: f32 = select(0.0f, v234, v239);
        let v241: i32 = (v221 * v18);
        let v242: i32 = (v17 + v241);
        let v243: i32 = (v231 * v19);
        let v244: i32 = (v242 + v243);
        let v245: i32 = (v244 + v230);
        b3[v245] = v240;
      }
    }
  }
}
