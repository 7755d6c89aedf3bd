// conv.Conv+Relu
@group(0) @binding(0) var<uniform> u: array<vec4<i32>, 7>;
@group(0) @binding(1) var<storage, read> b0: array<f32>; // x1
@group(0) @binding(2) var<storage, read> b1: array<f32>; // x0
@group(0) @binding(3) var<storage, read> b2: array<f32>; // x2
@group(0) @binding(4) var<storage, read_write> b3: array<f32>; // y0
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
    let v44: i32 = (v24 % v8);
    let v45: i32 = (v44 << 5u);
    let v46: i32 = (v25 >> 3u);
    let v47: i32 = (v25 & 7i);
    let v48: i32 = (v46 << 2u);
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
    for (var v50: i32 = 0i; v50 < v22; v50 += 16) {
      for (var v51: i32 = v25; v51 < 512i; v51 += 64) {
        let v52: i32 = (v51 & 15i);
        let v53: i32 = (v51 >> 4u);
        let v54: i32 = (v50 + v52);
        let v55: bool = (v53 < v2);
        let v56: bool = (v54 < v22);
        let v57: bool = (v55 & v56);
        m16 = f32_bits(0x80000000u);
        if (v57) {
          let v58: i32 = (v54 % v5);
          let v59: i32 = (v54 / v5);
          let v60: i32 = (v59 % v4);
          let v61: i32 = (v59 / v4);
          let v62: i32 = (v53 * v10);
          let v63: i32 = (v9 + v62);
          let v64: i32 = (v61 * v11);
          let v65: i32 = (v63 + v64);
          let v66: i32 = (v60 * v12);
          let v67: i32 = (v65 + v66);
          let v68: i32 = (v67 + v58);
          let v69: f32 = b0[v68];
          m16 = v69;
        }
        let v70: f32 = m16;
        let v71: i32 = (v52 << 5u);
        let v72: i32 = (v71 + v53);
        s0[v72] = v70;
      }
      for (var v73: i32 = v25; v73 < 512i; v73 += 64) {
        let v74: i32 = (v73 >> 5u);
        let v75: i32 = (v73 & 31i);
        let v76: i32 = (v50 + v74);
        let v77: i32 = (v45 + v75);
        let v78: bool = (v76 < v22);
        let v79: bool = (v77 < v23);
        let v80: bool = (v78 & v79);
        m17 = 0.0f;
        if (v80) {
          let v81: i32 = (v76 % v5);
          let v82: i32 = (v76 / v5);
          let v83: i32 = (v82 % v4);
          let v84: i32 = (v82 / v4);
          let v85: i32 = (v77 % v7);
          let v86: i32 = (v77 / v7);
          let v87: i32 = (v86 + v83);
          let v88: i32 = (v87 - 1i);
          let v89: i32 = (v85 + v81);
          let v90: i32 = (v89 - 1i);
          let v91: bool = (v88 >= 0i);
          let v92: bool = (v88 < v0);
          let v93: bool = (v91 & v92);
          let v94: bool = (v90 >= 0i);
          let v95: bool = (v90 < v1);
          let v96: bool = (v94 & v95);
          let v97: bool = (v93 & v96);
          m18 = 0.0f;
          if (v97) {
            let v98: i32 = (v84 * v14);
            let v99: i32 = (v13 + v98);
            let v100: i32 = (v88 * v15);
            let v101: i32 = (v99 + v100);
            let v102: i32 = (v101 + v90);
            let v103: f32 = b1[v102];
            m18 = v103;
          }
          let v104: f32 = m18;
          m17 = v104;
        }
        let v105: f32 = m17;
        let v106: i32 = (v73 + 512i);
        s0[v106] = v105;
      }
      workgroupBarrier();
      for (var v107: i32 = 0i; v107 < 16i; v107 += 1) {
        let v108: i32 = (v107 << 5u);
        let v109: i32 = (v108 + v48);
        let v110: f32 = s0[v109];
        let v111: i32 = (v109 + 1i);
        let v112: f32 = s0[v111];
        let v113: i32 = (v109 + 2i);
        let v114: f32 = s0[v113];
        let v115: i32 = (v109 + 3i);
        let v116: f32 = s0[v115];
        let v117: i32 = (v108 + 512i);
        let v118: i32 = (v117 + v49);
        let v119: f32 = s0[v118];
        let v120: i32 = (v118 + 1i);
        let v121: f32 = s0[v120];
        let v122: i32 = (v118 + 2i);
        let v123: f32 = s0[v122];
        let v124: i32 = (v118 + 3i);
        let v125: f32 = s0[v124];
        let v126: f32 = (v110 * v119);
        let v127: f32 = m0;
        let v128: f32 = (v127 + v126);
        m0 = v128;
        let v129: f32 = (v110 * v121);
        let v130: f32 = m1;
        let v131: f32 = (v130 + v129);
        m1 = v131;
        let v132: f32 = (v110 * v123);
        let v133: f32 = m2;
        let v134: f32 = (v133 + v132);
        m2 = v134;
        let v135: f32 = (v110 * v125);
        let v136: f32 = m3;
        let v137: f32 = (v136 + v135);
        m3 = v137;
        let v138: f32 = (v112 * v119);
        let v139: f32 = m4;
        let v140: f32 = (v139 + v138);
        m4 = v140;
        let v141: f32 = (v112 * v121);
        let v142: f32 = m5;
        let v143: f32 = (v142 + v141);
        m5 = v143;
        let v144: f32 = (v112 * v123);
        let v145: f32 = m6;
        let v146: f32 = (v145 + v144);
        m6 = v146;
        let v147: f32 = (v112 * v125);
        let v148: f32 = m7;
        let v149: f32 = (v148 + v147);
        m7 = v149;
        let v150: f32 = (v114 * v119);
        let v151: f32 = m8;
        let v152: f32 = (v151 + v150);
        m8 = v152;
        let v153: f32 = (v114 * v121);
        let v154: f32 = m9;
        let v155: f32 = (v154 + v153);
        m9 = v155;
        let v156: f32 = (v114 * v123);
        let v157: f32 = m10;
        let v158: f32 = (v157 + v156);
        m10 = v158;
        let v159: f32 = (v114 * v125);
        let v160: f32 = m11;
        let v161: f32 = (v160 + v159);
        m11 = v161;
        let v162: f32 = (v116 * v119);
        let v163: f32 = m12;
        let v164: f32 = (v163 + v162);
        m12 = v164;
        let v165: f32 = (v116 * v121);
        let v166: f32 = m13;
        let v167: f32 = (v166 + v165);
        m13 = v167;
        let v168: f32 = (v116 * v123);
        let v169: f32 = m14;
        let v170: f32 = (v169 + v168);
        m14 = v170;
        let v171: f32 = (v116 * v125);
        let v172: f32 = m15;
        let v173: f32 = (v172 + v171);
        m15 = v173;
      }
      workgroupBarrier();
    }
    let v174: i32 = (v48 << 5u);
    let v175: i32 = (v174 + v49);
    let v176: f32 = m0;
    s0[v175] = v176;
    let v177: i32 = (v49 + 1i);
    let v178: i32 = (v174 + v177);
    let v179: f32 = m1;
    s0[v178] = v179;
    let v180: i32 = (v49 + 2i);
    let v181: i32 = (v174 + v180);
    let v182: f32 = m2;
    s0[v181] = v182;
    let v183: i32 = (v49 + 3i);
    let v184: i32 = (v174 + v183);
    let v185: f32 = m3;
    s0[v184] = v185;
    let v186: i32 = (v48 + 1i);
    let v187: i32 = (v186 << 5u);
    let v188: i32 = (v187 + v49);
    let v189: f32 = m4;
    s0[v188] = v189;
    let v190: i32 = (v187 + v177);
    let v191: f32 = m5;
    s0[v190] = v191;
    let v192: i32 = (v187 + v180);
    let v193: f32 = m6;
    s0[v192] = v193;
    let v194: i32 = (v187 + v183);
    let v195: f32 = m7;
    s0[v194] = v195;
    let v196: i32 = (v48 + 2i);
    let v197: i32 = (v196 << 5u);
    let v198: i32 = (v197 + v49);
    let v199: f32 = m8;
    s0[v198] = v199;
    let v200: i32 = (v197 + v177);
    let v201: f32 = m9;
    s0[v200] = v201;
    let v202: i32 = (v197 + v180);
    let v203: f32 = m10;
    s0[v202] = v203;
    let v204: i32 = (v197 + v183);
    let v205: f32 = m11;
    s0[v204] = v205;
    let v206: i32 = (v48 + 3i);
    let v207: i32 = (v206 << 5u);
    let v208: i32 = (v207 + v49);
    let v209: f32 = m12;
    s0[v208] = v209;
    let v210: i32 = (v207 + v177);
    let v211: f32 = m13;
    s0[v210] = v211;
    let v212: i32 = (v207 + v180);
    let v213: f32 = m14;
    s0[v212] = v213;
    let v214: i32 = (v207 + v183);
    let v215: f32 = m15;
    s0[v214] = v215;
    workgroupBarrier();
    for (var v216: i32 = v25; v216 < 1024i; v216 += 64) {
      let v217: i32 = (v216 >> 5u);
      let v218: i32 = (v216 & 31i);
      let v219: i32 = (v45 + v218);
      let v220: bool = (v217 < v2);
      let v221: bool = (v219 < v23);
      let v222: bool = (v220 & v221);
      if (v222) {
        let v223: f32 = s0[v216];
        let v224: i32 = (v219 % v7);
        let v225: i32 = (v219 / v7);
        let v226: i32 = (v16 + v217);
        let v227: f32 = b2[v226];
        let v228: f32 = (v223 + v227);
        let v229: bool = (v228 > 0.0f);
        let v230: u32 = bitcast<u32>(v228);
        let v231: u32 = (v230 & 2147483647u);
        let v232: bool = (v231 > 2139095040u);
        let v233: bool = (v229 | v232);
        let v234: f32 = select(0.0f, v228, v233);
        let v235: i32 = (v217 * v18);
        let v236: i32 = (v17 + v235);
        let v237: i32 = (v225 * v19);
        let v238: i32 = (v236 + v237);
        let v239: i32 = (v238 + v224);
        b3[v239] = v234;
      }
    }
  }
}
