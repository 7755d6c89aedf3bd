// conv.Conv+Relu
@group(0) @binding(0) var<uniform> u: array<vec4<i32>, 7>;
@group(0) @binding(1) var<storage, read> b0: array<f32>; // x1
@group(0) @binding(2) var<storage, read> b1: array<f32>; // x0
@group(0) @binding(3) var<storage, read> b2: array<f32>; // x2
@group(0) @binding(4) var<storage, read_write> b3: array<f32>; // y0
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
    let v43: i32 = (v24 % v8);
    let v44: i32 = (v43 << 5u);
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
    let v45: i32 = (v25 >> 3u);
    let v46: i32 = (v25 & 7i);
    let v47: i32 = (v45 << 2u);
    let v48: i32 = (v46 << 2u);
    for (var v49: i32 = 0i; v49 < v22; v49 += 16) {
      for (var v50: i32 = v25; v50 < 512i; v50 += 64) {
        let v51: i32 = (v50 & 15i);
        let v52: i32 = (v50 >> 4u);
        let v53: i32 = (v49 + v51);
        let v54: bool = (v52 < v2);
        let v55: bool = (v53 < v22);
        let v56: bool = (v54 & v55);
        m16 = 0.0f;
        if (v56) {
          let v57: i32 = (v53 % v5);
          let v58: i32 = (v53 / v5);
          let v59: i32 = (v58 % v4);
          let v60: i32 = (v58 / v4);
          let v61: i32 = (v52 * v10);
          let v62: i32 = (v9 + v61);
          let v63: i32 = (v60 * v11);
          let v64: i32 = (v62 + v63);
          let v65: i32 = (v59 * v12);
          let v66: i32 = (v64 + v65);
          let v67: i32 = (v66 + v57);
          let v68: f32 = b0[v67];
          m16 = v68;
        }
        let v69: f32 = m16;
        let v70: i32 = (v51 << 5u);
        let v71: i32 = (v70 + v52);
        s0[v71] = v69;
      }
      for (var v72: i32 = v25; v72 < 512i; v72 += 64) {
        let v73: i32 = (v72 >> 5u);
        let v74: i32 = (v72 & 31i);
        let v75: i32 = (v49 + v73);
        let v76: i32 = (v44 + v74);
        let v77: bool = (v75 < v22);
        let v78: bool = (v76 < v23);
        let v79: bool = (v77 & v78);
        m17 = 0.0f;
        if (v79) {
          let v80: i32 = (v75 % v5);
          let v81: i32 = (v75 / v5);
          let v82: i32 = (v81 % v4);
          let v83: i32 = (v81 / v4);
          let v84: i32 = (v76 % v7);
          let v85: i32 = (v76 / v7);
          let v86: i32 = (v85 + v82);
          let v87: i32 = (v86 - 1i);
          let v88: i32 = (v84 + v80);
          let v89: i32 = (v88 - 1i);
          let v90: bool = (v87 >= 0i);
          let v91: bool = (v87 < v0);
          let v92: bool = (v90 & v91);
          let v93: bool = (v89 >= 0i);
          let v94: bool = (v89 < v1);
          let v95: bool = (v93 & v94);
          let v96: bool = (v92 & v95);
          m18 = 0.0f;
          if (v96) {
            let v97: i32 = (v83 * v14);
            let v98: i32 = (v13 + v97);
            let v99: i32 = (v87 * v15);
            let v100: i32 = (v98 + v99);
            let v101: i32 = (v100 + v89);
            let v102: f32 = b1[v101];
            m18 = v102;
          }
          let v103: f32 = m18;
          m17 = v103;
        }
        let v104: f32 = m17;
        s1[v72] = v104;
      }
      workgroupBarrier();
      for (var v105: i32 = 0i; v105 < 16i; v105 += 1) {
        let v106: i32 = (v105 << 5u);
        let v107: i32 = (v106 + v47);
        let v108: f32 = s0[v107];
        let v109: i32 = (v107 + 1i);
        let v110: f32 = s0[v109];
        let v111: i32 = (v107 + 2i);
        let v112: f32 = s0[v111];
        let v113: i32 = (v107 + 3i);
        let v114: f32 = s0[v113];
        let v115: i32 = (v106 + v48);
        let v116: f32 = s1[v115];
        let v117: i32 = (v115 + 1i);
        let v118: f32 = s1[v117];
        let v119: i32 = (v115 + 2i);
        let v120: f32 = s1[v119];
        let v121: i32 = (v115 + 3i);
        let v122: f32 = s1[v121];
        let v123: f32 = (v108 * v116);
        let v124: f32 = m0;
        let v125: f32 = (v124 + v123);
        m0 = v125;
        let v126: f32 = (v108 * v118);
        let v127: f32 = m1;
        let v128: f32 = (v127 + v126);
        m1 = v128;
        let v129: f32 = (v108 * v120);
        let v130: f32 = m2;
        let v131: f32 = (v130 + v129);
        m2 = v131;
        let v132: f32 = (v108 * v122);
        let v133: f32 = m3;
        let v134: f32 = (v133 + v132);
        m3 = v134;
        let v135: f32 = (v110 * v116);
        let v136: f32 = m4;
        let v137: f32 = (v136 + v135);
        m4 = v137;
        let v138: f32 = (v110 * v118);
        let v139: f32 = m5;
        let v140: f32 = (v139 + v138);
        m5 = v140;
        let v141: f32 = (v110 * v120);
        let v142: f32 = m6;
        let v143: f32 = (v142 + v141);
        m6 = v143;
        let v144: f32 = (v110 * v122);
        let v145: f32 = m7;
        let v146: f32 = (v145 + v144);
        m7 = v146;
        let v147: f32 = (v112 * v116);
        let v148: f32 = m8;
        let v149: f32 = (v148 + v147);
        m8 = v149;
        let v150: f32 = (v112 * v118);
        let v151: f32 = m9;
        let v152: f32 = (v151 + v150);
        m9 = v152;
        let v153: f32 = (v112 * v120);
        let v154: f32 = m10;
        let v155: f32 = (v154 + v153);
        m10 = v155;
        let v156: f32 = (v112 * v122);
        let v157: f32 = m11;
        let v158: f32 = (v157 + v156);
        m11 = v158;
        let v159: f32 = (v114 * v116);
        let v160: f32 = m12;
        let v161: f32 = (v160 + v159);
        m12 = v161;
        let v162: f32 = (v114 * v118);
        let v163: f32 = m13;
        let v164: f32 = (v163 + v162);
        m13 = v164;
        let v165: f32 = (v114 * v120);
        let v166: f32 = m14;
        let v167: f32 = (v166 + v165);
        m14 = v167;
        let v168: f32 = (v114 * v122);
        let v169: f32 = m15;
        let v170: f32 = (v169 + v168);
        m15 = v170;
      }
      workgroupBarrier();
    }
    let v171: i32 = (v47 << 5u);
    let v172: i32 = (v171 + v48);
    let v173: f32 = m0;
    s2[v172] = v173;
    let v174: i32 = (v48 + 1i);
    let v175: i32 = (v171 + v174);
    let v176: f32 = m1;
    s2[v175] = v176;
    let v177: i32 = (v48 + 2i);
    let v178: i32 = (v171 + v177);
    let v179: f32 = m2;
    s2[v178] = v179;
    let v180: i32 = (v48 + 3i);
    let v181: i32 = (v171 + v180);
    let v182: f32 = m3;
    s2[v181] = v182;
    let v183: i32 = (v47 + 1i);
    let v184: i32 = (v183 << 5u);
    let v185: i32 = (v184 + v48);
    let v186: f32 = m4;
    s2[v185] = v186;
    let v187: i32 = (v184 + v174);
    let v188: f32 = m5;
    s2[v187] = v188;
    let v189: i32 = (v184 + v177);
    let v190: f32 = m6;
    s2[v189] = v190;
    let v191: i32 = (v184 + v180);
    let v192: f32 = m7;
    s2[v191] = v192;
    let v193: i32 = (v47 + 2i);
    let v194: i32 = (v193 << 5u);
    let v195: i32 = (v194 + v48);
    let v196: f32 = m8;
    s2[v195] = v196;
    let v197: i32 = (v194 + v174);
    let v198: f32 = m9;
    s2[v197] = v198;
    let v199: i32 = (v194 + v177);
    let v200: f32 = m10;
    s2[v199] = v200;
    let v201: i32 = (v194 + v180);
    let v202: f32 = m11;
    s2[v201] = v202;
    let v203: i32 = (v47 + 3i);
    let v204: i32 = (v203 << 5u);
    let v205: i32 = (v204 + v48);
    let v206: f32 = m12;
    s2[v205] = v206;
    let v207: i32 = (v204 + v174);
    let v208: f32 = m13;
    s2[v207] = v208;
    let v209: i32 = (v204 + v177);
    let v210: f32 = m14;
    s2[v209] = v210;
    let v211: i32 = (v204 + v180);
    let v212: f32 = m15;
    s2[v211] = v212;
    workgroupBarrier();
    for (var v213: i32 = v25; v213 < 1024i; v213 += 64) {
      let v214: i32 = (v213 >> 5u);
      let v215: i32 = (v213 & 31i);
      let v216: i32 = (v44 + v215);
      let v217: bool = (v214 < v2);
      let v218: bool = (v216 < v23);
      let v219: bool = (v217 & v218);
      if (v219) {
        let v220: f32 = s2[v213];
        let v221: i32 = (v216 % v7);
        let v222: i32 = (v216 / v7);
        let v223: i32 = (v16 + v214);
        let v224: f32 = b2[v223];
        let v225: f32 = (v220 + v224);
        let v226: bool = (v225 > 0.0f);
        let v227: u32 = bitcast<u32>(v225);
        let v228: u32 = (v227 & 2147483647u);
        let v229: bool = (v228 > 2139095040u);
        let v230: bool = (v226 | v229);
        let v231: f32 = select(0.0f, v225, v230);
        let v232: i32 = (v214 * v18);
        let v233: i32 = (v17 + v232);
        let v234: i32 = (v222 * v19);
        let v235: i32 = (v233 + v234);
        let v236: i32 = (v235 + v221);
        b3[v236] = v231;
      }
    }
  }
}
