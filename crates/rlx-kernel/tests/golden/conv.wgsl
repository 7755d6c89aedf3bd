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
    let v60: i32 = (v23 << 5u);
    let v61: i32 = (v24 >> 3u);
    let v62: i32 = (v24 & 7i);
    let v63: i32 = (v61 << 2u);
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
    for (var v64: i32 = 0i; v64 < v21; v64 += 16) {
      for (var v65: i32 = v24; v65 < 512i; v65 += 64) {
        let v66: i32 = (v65 & 15i);
        let v67: i32 = (v65 >> 4u);
        let v68: i32 = (v64 + v66);
        let v69: bool = (v67 < v2);
        let v70: bool = (v68 < v21);
        let v71: bool = (v69 & v70);
        m16 = f32_bits(0x80000000u);
        if (v71) {
          let v72: i32 = (v68 / 3i);
          let v73: i32 = (v68 % 3i);
          let v74: i32 = (v72 / 3i);
          let v75: i32 = (v72 % 3i);
          let v76: i32 = (v67 * v8);
          let v77: i32 = (v7 + v76);
          let v78: i32 = (v74 * v9);
          let v79: i32 = (v77 + v78);
          let v80: i32 = (v75 * v10);
          let v81: i32 = (v79 + v80);
          let v82: i32 = (v81 + v73);
          let v83: f32 = b0[v82];
          m16 = v83;
        }
        let v84: f32 = m16;
        let v85: i32 = (v66 * 34i);
        let v86: i32 = (v85 + v67);
        s0[v86] = v84;
      }
      for (var v87: i32 = v24; v87 < 512i; v87 += 64) {
        let v88: i32 = (v87 >> 5u);
        let v89: i32 = (v87 & 31i);
        let v90: i32 = (v64 + v88);
        let v91: i32 = (v60 + v89);
        let v92: bool = (v90 < v21);
        let v93: bool = (v91 < v22);
        let v94: bool = (v92 & v93);
        m17 = 0.0f;
        if (v94) {
          let v95: i32 = (v90 / 3i);
          let v96: i32 = (v90 % 3i);
          let v97: i32 = (v95 / 3i);
          let v98: i32 = (v95 % 3i);
          let v99: i32 = (v91 / v5);
          let v100: i32 = (v99 * v5);
          let v101: i32 = (v91 - v100);
          let v102: i32 = (v99 + v98);
          let v103: i32 = (v102 - 1i);
          let v104: i32 = (v101 + v96);
          let v105: i32 = (v104 - 1i);
          let v106: bool = (v103 >= 0i);
          let v107: bool = (v103 < v0);
          let v108: bool = (v106 & v107);
          let v109: bool = (v105 >= 0i);
          let v110: bool = (v105 < v1);
          let v111: bool = (v109 & v110);
          let v112: bool = (v108 & v111);
          m18 = 0.0f;
          if (v112) {
            let v113: i32 = (v97 * v12);
            let v114: i32 = (v11 + v113);
            let v115: i32 = (v103 * v13);
            let v116: i32 = (v114 + v115);
            let v117: i32 = (v116 + v105);
            let v118: f32 = b1[v117];
            m18 = v118;
          }
          let v119: f32 = m18;
          m17 = v119;
        }
        let v120: f32 = m17;
        let v121: i32 = (v87 + 544i);
        s0[v121] = v120;
      }
      workgroupBarrier();
      for (var v122: i32 = 0i; v122 < 16i; v122 += 1) {
        let v123: i32 = (v122 * 34i);
        let v124: i32 = (v123 + v63);
        let v125: f32 = s0[v124];
        let v126: i32 = (v124 + 1i);
        let v127: f32 = s0[v126];
        let v128: i32 = (v124 + 2i);
        let v129: f32 = s0[v128];
        let v130: i32 = (v124 + 3i);
        let v131: f32 = s0[v130];
        let v132: i32 = (v122 << 5u);
        let v133: i32 = (v132 + 544i);
        let v134: i32 = (v133 + v62);
        let v135: f32 = s0[v134];
        let v136: i32 = (v134 + 8i);
        let v137: f32 = s0[v136];
        let v138: i32 = (v134 + 16i);
        let v139: f32 = s0[v138];
        let v140: i32 = (v134 + 24i);
        let v141: f32 = s0[v140];
        let v142: f32 = m0;
        let v143: f32 = (v125 * v135);
        let v144: f32 = (v142 + v143);
        m0 = v144;
        let v145: f32 = m1;
        let v146: f32 = (v125 * v137);
        let v147: f32 = (v145 + v146);
        m1 = v147;
        let v148: f32 = m2;
        let v149: f32 = (v125 * v139);
        let v150: f32 = (v148 + v149);
        m2 = v150;
        let v151: f32 = m3;
        let v152: f32 = (v125 * v141);
        let v153: f32 = (v151 + v152);
        m3 = v153;
        let v154: f32 = m4;
        let v155: f32 = (v127 * v135);
        let v156: f32 = (v154 + v155);
        m4 = v156;
        let v157: f32 = m5;
        let v158: f32 = (v127 * v137);
        let v159: f32 = (v157 + v158);
        m5 = v159;
        let v160: f32 = m6;
        let v161: f32 = (v127 * v139);
        let v162: f32 = (v160 + v161);
        m6 = v162;
        let v163: f32 = m7;
        let v164: f32 = (v127 * v141);
        let v165: f32 = (v163 + v164);
        m7 = v165;
        let v166: f32 = m8;
        let v167: f32 = (v129 * v135);
        let v168: f32 = (v166 + v167);
        m8 = v168;
        let v169: f32 = m9;
        let v170: f32 = (v129 * v137);
        let v171: f32 = (v169 + v170);
        m9 = v171;
        let v172: f32 = m10;
        let v173: f32 = (v129 * v139);
        let v174: f32 = (v172 + v173);
        m10 = v174;
        let v175: f32 = m11;
        let v176: f32 = (v129 * v141);
        let v177: f32 = (v175 + v176);
        m11 = v177;
        let v178: f32 = m12;
        let v179: f32 = (v131 * v135);
        let v180: f32 = (v178 + v179);
        m12 = v180;
        let v181: f32 = m13;
        let v182: f32 = (v131 * v137);
        let v183: f32 = (v181 + v182);
        m13 = v183;
        let v184: f32 = m14;
        let v185: f32 = (v131 * v139);
        let v186: f32 = (v184 + v185);
        m14 = v186;
        let v187: f32 = m15;
        let v188: f32 = (v131 * v141);
        let v189: f32 = (v187 + v188);
        m15 = v189;
      }
      workgroupBarrier();
    }
    let v190: i32 = (v61 * 136i);
    let v191: i32 = (v190 + v62);
    let v192: f32 = m0;
    s0[v191] = v192;
    let v193: i32 = (v191 + 8i);
    let v194: f32 = m1;
    s0[v193] = v194;
    let v195: i32 = (v191 + 16i);
    let v196: f32 = m2;
    s0[v195] = v196;
    let v197: i32 = (v191 + 24i);
    let v198: f32 = m3;
    s0[v197] = v198;
    let v199: i32 = (v191 + 32i);
    let v200: f32 = m4;
    s0[v199] = v200;
    let v201: i32 = (v191 + 40i);
    let v202: f32 = m5;
    s0[v201] = v202;
    let v203: i32 = (v191 + 48i);
    let v204: f32 = m6;
    s0[v203] = v204;
    let v205: i32 = (v191 + 56i);
    let v206: f32 = m7;
    s0[v205] = v206;
    let v207: i32 = (v191 + 64i);
    let v208: f32 = m8;
    s0[v207] = v208;
    let v209: i32 = (v191 + 72i);
    let v210: f32 = m9;
    s0[v209] = v210;
    let v211: i32 = (v191 + 80i);
    let v212: f32 = m10;
    s0[v211] = v212;
    let v213: i32 = (v191 + 88i);
    let v214: f32 = m11;
    s0[v213] = v214;
    let v215: i32 = (v191 + 96i);
    let v216: f32 = m12;
    s0[v215] = v216;
    let v217: i32 = (v191 + 104i);
    let v218: f32 = m13;
    s0[v217] = v218;
    let v219: i32 = (v191 + 112i);
    let v220: f32 = m14;
    s0[v219] = v220;
    let v221: i32 = (v191 + 120i);
    let v222: f32 = m15;
    s0[v221] = v222;
    workgroupBarrier();
    for (var v223: i32 = v24; v223 < 1024i; v223 += 64) {
      let v224: i32 = (v223 >> 5u);
      let v225: i32 = (v223 & 31i);
      let v226: i32 = (v60 + v225);
      let v227: bool = (v224 < v2);
      let v228: bool = (v226 < v22);
      let v229: bool = (v227 & v228);
      if (v229) {
        let v230: i32 = (v223 >> 7u);
        let v231: i32 = (v230 << 3u);
        let v232: i32 = (v223 + v231);
        let v233: f32 = s0[v232];
        let v234: i32 = (v226 / v5);
        let v235: i32 = (v234 * v5);
        let v236: i32 = (v226 - v235);
        let v237: i32 = (v14 + v224);
        let v238: f32 = b2[v237];
        let v239: f32 = (v233 + v238);
        let v240: bool = (v239 > 0.0f);
        let v241: u32 = bitcast<u32>(v239);
        let v242: u32 = (v241 & 2147483647u);
        let v243: bool = (v242 > 2139095040u);
        let v244: bool = (v240 | v243);
        let v245: f32 = select(0.0f, v239, v244);
        let v246: i32 = (v224 * v16);
        let v247: i32 = (v15 + v246);
        let v248: i32 = (v234 * v17);
        let v249: i32 = (v247 + v248);
        let v250: i32 = (v249 + v236);
        b3[v250] = v245;
      }
    }
  }
}
