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
    let v46: i32 = (v23 << 5u);
    let v47: i32 = (v24 >> 3u);
    let v48: i32 = (v24 & 7i);
    let v49: i32 = (v47 << 2u);
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
    for (var v50: i32 = 0i; v50 < v21; v50 += 16) {
      for (var v51: i32 = v24; v51 < 512i; v51 += 64) {
        let v52: i32 = (v51 & 15i);
        let v53: i32 = (v51 >> 4u);
        let v54: i32 = (v50 + v52);
        let v55: bool = (v53 < v2);
        let v56: bool = (v54 < v21);
        let v57: bool = (v55 & v56);
        m16 = f32_bits(0x80000000u);
        if (v57) {
          let v58: i32 = (v54 / 3i);
          let v59: i32 = (v54 % 3i);
          let v60: i32 = (v58 / 3i);
          let v61: i32 = (v58 % 3i);
          let v62: i32 = (v53 * v8);
          let v63: i32 = (v7 + v62);
          let v64: i32 = (v60 * v9);
          let v65: i32 = (v63 + v64);
          let v66: i32 = (v61 * v10);
          let v67: i32 = (v65 + v66);
          let v68: i32 = (v67 + v59);
          let v69: f32 = b0[v68];
          m16 = v69;
        }
        let v70: f32 = m16;
        let v71: i32 = (v52 * 34i);
        let v72: i32 = (v71 + v53);
        s0[v72] = v70;
      }
      for (var v73: i32 = v24; v73 < 512i; v73 += 64) {
        let v74: i32 = (v73 >> 5u);
        let v75: i32 = (v73 & 31i);
        let v76: i32 = (v50 + v74);
        let v77: i32 = (v46 + v75);
        let v78: bool = (v76 < v21);
        let v79: bool = (v77 < v22);
        let v80: bool = (v78 & v79);
        m17 = 0.0f;
        if (v80) {
          let v81: i32 = (v76 / 3i);
          let v82: i32 = (v76 % 3i);
          let v83: i32 = (v81 / 3i);
          let v84: i32 = (v81 % 3i);
          let v85: i32 = (v77 / v5);
          let v86: i32 = (v85 * v5);
          let v87: i32 = (v77 - v86);
          let v88: i32 = (v85 + v84);
          let v89: i32 = (v88 - 1i);
          let v90: i32 = (v87 + v82);
          let v91: i32 = (v90 - 1i);
          let v92: bool = (v89 >= 0i);
          let v93: bool = (v89 < v0);
          let v94: bool = (v92 & v93);
          let v95: bool = (v91 >= 0i);
          let v96: bool = (v91 < v1);
          let v97: bool = (v95 & v96);
          let v98: bool = (v94 & v97);
          m18 = 0.0f;
          if (v98) {
            let v99: i32 = (v83 * v12);
            let v100: i32 = (v11 + v99);
            let v101: i32 = (v89 * v13);
            let v102: i32 = (v100 + v101);
            let v103: i32 = (v102 + v91);
            let v104: f32 = b1[v103];
            m18 = v104;
          }
          let v105: f32 = m18;
          m17 = v105;
        }
        let v106: f32 = m17;
        let v107: i32 = (v73 + 544i);
        s0[v107] = v106;
      }
      workgroupBarrier();
      for (var v108: i32 = 0i; v108 < 16i; v108 += 1) {
        let v109: i32 = (v108 * 34i);
        let v110: i32 = (v109 + v49);
        let v111: f32 = s0[v110];
        let v112: i32 = (v110 + 1i);
        let v113: f32 = s0[v112];
        let v114: i32 = (v110 + 2i);
        let v115: f32 = s0[v114];
        let v116: i32 = (v110 + 3i);
        let v117: f32 = s0[v116];
        let v118: i32 = (v108 << 5u);
        let v119: i32 = (v118 + 544i);
        let v120: i32 = (v119 + v48);
        let v121: f32 = s0[v120];
        let v122: i32 = (v120 + 8i);
        let v123: f32 = s0[v122];
        let v124: i32 = (v120 + 16i);
        let v125: f32 = s0[v124];
        let v126: i32 = (v120 + 24i);
        let v127: f32 = s0[v126];
        let v128: f32 = (v111 * v121);
        let v129: f32 = m0;
        let v130: f32 = (v129 + v128);
        m0 = v130;
        let v131: f32 = (v111 * v123);
        let v132: f32 = m1;
        let v133: f32 = (v132 + v131);
        m1 = v133;
        let v134: f32 = (v111 * v125);
        let v135: f32 = m2;
        let v136: f32 = (v135 + v134);
        m2 = v136;
        let v137: f32 = (v111 * v127);
        let v138: f32 = m3;
        let v139: f32 = (v138 + v137);
        m3 = v139;
        let v140: f32 = (v113 * v121);
        let v141: f32 = m4;
        let v142: f32 = (v141 + v140);
        m4 = v142;
        let v143: f32 = (v113 * v123);
        let v144: f32 = m5;
        let v145: f32 = (v144 + v143);
        m5 = v145;
        let v146: f32 = (v113 * v125);
        let v147: f32 = m6;
        let v148: f32 = (v147 + v146);
        m6 = v148;
        let v149: f32 = (v113 * v127);
        let v150: f32 = m7;
        let v151: f32 = (v150 + v149);
        m7 = v151;
        let v152: f32 = (v115 * v121);
        let v153: f32 = m8;
        let v154: f32 = (v153 + v152);
        m8 = v154;
        let v155: f32 = (v115 * v123);
        let v156: f32 = m9;
        let v157: f32 = (v156 + v155);
        m9 = v157;
        let v158: f32 = (v115 * v125);
        let v159: f32 = m10;
        let v160: f32 = (v159 + v158);
        m10 = v160;
        let v161: f32 = (v115 * v127);
        let v162: f32 = m11;
        let v163: f32 = (v162 + v161);
        m11 = v163;
        let v164: f32 = (v117 * v121);
        let v165: f32 = m12;
        let v166: f32 = (v165 + v164);
        m12 = v166;
        let v167: f32 = (v117 * v123);
        let v168: f32 = m13;
        let v169: f32 = (v168 + v167);
        m13 = v169;
        let v170: f32 = (v117 * v125);
        let v171: f32 = m14;
        let v172: f32 = (v171 + v170);
        m14 = v172;
        let v173: f32 = (v117 * v127);
        let v174: f32 = m15;
        let v175: f32 = (v174 + v173);
        m15 = v175;
      }
      workgroupBarrier();
    }
    let v176: i32 = (v49 * 34i);
    let v177: i32 = (v176 + v48);
    let v178: f32 = m0;
    s0[v177] = v178;
    let v179: i32 = (v48 + 8i);
    let v180: i32 = (v176 + v179);
    let v181: f32 = m1;
    s0[v180] = v181;
    let v182: i32 = (v48 + 16i);
    let v183: i32 = (v176 + v182);
    let v184: f32 = m2;
    s0[v183] = v184;
    let v185: i32 = (v48 + 24i);
    let v186: i32 = (v176 + v185);
    let v187: f32 = m3;
    s0[v186] = v187;
    let v188: i32 = (v49 + 1i);
    let v189: i32 = (v188 * 34i);
    let v190: i32 = (v189 + v48);
    let v191: f32 = m4;
    s0[v190] = v191;
    let v192: i32 = (v189 + v179);
    let v193: f32 = m5;
    s0[v192] = v193;
    let v194: i32 = (v189 + v182);
    let v195: f32 = m6;
    s0[v194] = v195;
    let v196: i32 = (v189 + v185);
    let v197: f32 = m7;
    s0[v196] = v197;
    let v198: i32 = (v49 + 2i);
    let v199: i32 = (v198 * 34i);
    let v200: i32 = (v199 + v48);
    let v201: f32 = m8;
    s0[v200] = v201;
    let v202: i32 = (v199 + v179);
    let v203: f32 = m9;
    s0[v202] = v203;
    let v204: i32 = (v199 + v182);
    let v205: f32 = m10;
    s0[v204] = v205;
    let v206: i32 = (v199 + v185);
    let v207: f32 = m11;
    s0[v206] = v207;
    let v208: i32 = (v49 + 3i);
    let v209: i32 = (v208 * 34i);
    let v210: i32 = (v209 + v48);
    let v211: f32 = m12;
    s0[v210] = v211;
    let v212: i32 = (v209 + v179);
    let v213: f32 = m13;
    s0[v212] = v213;
    let v214: i32 = (v209 + v182);
    let v215: f32 = m14;
    s0[v214] = v215;
    let v216: i32 = (v209 + v185);
    let v217: f32 = m15;
    s0[v216] = v217;
    workgroupBarrier();
    for (var v218: i32 = v24; v218 < 1024i; v218 += 64) {
      let v219: i32 = (v218 >> 5u);
      let v220: i32 = (v218 & 31i);
      let v221: i32 = (v46 + v220);
      let v222: bool = (v219 < v2);
      let v223: bool = (v221 < v22);
      let v224: bool = (v222 & v223);
      if (v224) {
        let v225: i32 = (v219 * 34i);
        let v226: i32 = (v225 + v220);
        let v227: f32 = s0[v226];
        let v228: i32 = (v221 / v5);
        let v229: i32 = (v228 * v5);
        let v230: i32 = (v221 - v229);
        let v231: i32 = (v14 + v219);
        let v232: f32 = b2[v231];
        let v233: f32 = (v227 + v232);
        let v234: bool = (v233 > 0.0f);
        let v235: u32 = bitcast<u32>(v233);
        let v236: u32 = (v235 & 2147483647u);
        let v237: bool = (v236 > 2139095040u);
        let v238: bool = (v234 | v237);
        let v239: f32 = select(0.0f, v233, v238);
        let v240: i32 = (v219 * v16);
        let v241: i32 = (v15 + v240);
        let v242: i32 = (v228 * v17);
        let v243: i32 = (v241 + v242);
        let v244: i32 = (v243 + v230);
        b3[v244] = v239;
      }
    }
  }
}
