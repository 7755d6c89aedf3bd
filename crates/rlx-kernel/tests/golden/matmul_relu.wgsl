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
    let v38: i32 = (v13 % v4);
    let v39: i32 = (v13 / v4);
    let v40: i32 = (v39 % v3);
    let v41: i32 = (v40 * 32i);
    let v42: i32 = (v38 << 5u);
    let v43: i32 = (v14 >> 3u);
    let v44: i32 = (v14 & 7i);
    let v45: i32 = (v43 << 2u);
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
    for (var v46: i32 = 0i; v46 < v1; v46 += 16) {
      for (var v47: i32 = v14; v47 < 512i; v47 += 64) {
        let v48: i32 = (v47 & 15i);
        let v49: i32 = (v47 >> 4u);
        let v50: i32 = (v41 + v49);
        let v51: i32 = (v46 + v48);
        let v52: bool = (v50 < v0);
        let v53: bool = (v51 < v1);
        let v54: bool = (v52 & v53);
        m16 = f32_bits(0x80000000u);
        if (v54) {
          let v55: i32 = (v50 * v6);
          let v56: i32 = (v5 + v55);
          let v57: i32 = (v56 + v51);
          let v58: f32 = b0[v57];
          m16 = v58;
        }
        let v59: f32 = m16;
        let v60: i32 = (v48 * 34i);
        let v61: i32 = (v60 + v49);
        s0[v61] = v59;
      }
      for (var v62: i32 = v14; v62 < 512i; v62 += 64) {
        let v63: i32 = (v62 >> 5u);
        let v64: i32 = (v62 & 31i);
        let v65: i32 = (v46 + v63);
        let v66: i32 = (v42 + v64);
        let v67: bool = (v65 < v1);
        let v68: bool = (v66 < v2);
        let v69: bool = (v67 & v68);
        m17 = 0.0f;
        if (v69) {
          let v70: i32 = (v65 * v8);
          let v71: i32 = (v7 + v70);
          let v72: i32 = (v71 + v66);
          let v73: f32 = b1[v72];
          m17 = v73;
        }
        let v74: f32 = m17;
        let v75: i32 = (v62 + 544i);
        s0[v75] = v74;
      }
      workgroupBarrier();
      for (var v76: i32 = 0i; v76 < 16i; v76 += 1) {
        let v77: i32 = (v76 * 34i);
        let v78: i32 = (v77 + v45);
        let v79: f32 = s0[v78];
        let v80: i32 = (v78 + 1i);
        let v81: f32 = s0[v80];
        let v82: i32 = (v78 + 2i);
        let v83: f32 = s0[v82];
        let v84: i32 = (v78 + 3i);
        let v85: f32 = s0[v84];
        let v86: i32 = (v76 << 5u);
        let v87: i32 = (v86 + 544i);
        let v88: i32 = (v87 + v44);
        let v89: f32 = s0[v88];
        let v90: i32 = (v88 + 8i);
        let v91: f32 = s0[v90];
        let v92: i32 = (v88 + 16i);
        let v93: f32 = s0[v92];
        let v94: i32 = (v88 + 24i);
        let v95: f32 = s0[v94];
        let v96: f32 = (v79 * v89);
        let v97: f32 = m0;
        let v98: f32 = (v97 + v96);
        m0 = v98;
        let v99: f32 = (v79 * v91);
        let v100: f32 = m1;
        let v101: f32 = (v100 + v99);
        m1 = v101;
        let v102: f32 = (v79 * v93);
        let v103: f32 = m2;
        let v104: f32 = (v103 + v102);
        m2 = v104;
        let v105: f32 = (v79 * v95);
        let v106: f32 = m3;
        let v107: f32 = (v106 + v105);
        m3 = v107;
        let v108: f32 = (v81 * v89);
        let v109: f32 = m4;
        let v110: f32 = (v109 + v108);
        m4 = v110;
        let v111: f32 = (v81 * v91);
        let v112: f32 = m5;
        let v113: f32 = (v112 + v111);
        m5 = v113;
        let v114: f32 = (v81 * v93);
        let v115: f32 = m6;
        let v116: f32 = (v115 + v114);
        m6 = v116;
        let v117: f32 = (v81 * v95);
        let v118: f32 = m7;
        let v119: f32 = (v118 + v117);
        m7 = v119;
        let v120: f32 = (v83 * v89);
        let v121: f32 = m8;
        let v122: f32 = (v121 + v120);
        m8 = v122;
        let v123: f32 = (v83 * v91);
        let v124: f32 = m9;
        let v125: f32 = (v124 + v123);
        m9 = v125;
        let v126: f32 = (v83 * v93);
        let v127: f32 = m10;
        let v128: f32 = (v127 + v126);
        m10 = v128;
        let v129: f32 = (v83 * v95);
        let v130: f32 = m11;
        let v131: f32 = (v130 + v129);
        m11 = v131;
        let v132: f32 = (v85 * v89);
        let v133: f32 = m12;
        let v134: f32 = (v133 + v132);
        m12 = v134;
        let v135: f32 = (v85 * v91);
        let v136: f32 = m13;
        let v137: f32 = (v136 + v135);
        m13 = v137;
        let v138: f32 = (v85 * v93);
        let v139: f32 = m14;
        let v140: f32 = (v139 + v138);
        m14 = v140;
        let v141: f32 = (v85 * v95);
        let v142: f32 = m15;
        let v143: f32 = (v142 + v141);
        m15 = v143;
      }
      workgroupBarrier();
    }
    let v144: i32 = (v45 * 34i);
    let v145: i32 = (v144 + v44);
    let v146: f32 = m0;
    s0[v145] = v146;
    let v147: i32 = (v44 + 8i);
    let v148: i32 = (v144 + v147);
    let v149: f32 = m1;
    s0[v148] = v149;
    let v150: i32 = (v44 + 16i);
    let v151: i32 = (v144 + v150);
    let v152: f32 = m2;
    s0[v151] = v152;
    let v153: i32 = (v44 + 24i);
    let v154: i32 = (v144 + v153);
    let v155: f32 = m3;
    s0[v154] = v155;
    let v156: i32 = (v45 + 1i);
    let v157: i32 = (v156 * 34i);
    let v158: i32 = (v157 + v44);
    let v159: f32 = m4;
    s0[v158] = v159;
    let v160: i32 = (v157 + v147);
    let v161: f32 = m5;
    s0[v160] = v161;
    let v162: i32 = (v157 + v150);
    let v163: f32 = m6;
    s0[v162] = v163;
    let v164: i32 = (v157 + v153);
    let v165: f32 = m7;
    s0[v164] = v165;
    let v166: i32 = (v45 + 2i);
    let v167: i32 = (v166 * 34i);
    let v168: i32 = (v167 + v44);
    let v169: f32 = m8;
    s0[v168] = v169;
    let v170: i32 = (v167 + v147);
    let v171: f32 = m9;
    s0[v170] = v171;
    let v172: i32 = (v167 + v150);
    let v173: f32 = m10;
    s0[v172] = v173;
    let v174: i32 = (v167 + v153);
    let v175: f32 = m11;
    s0[v174] = v175;
    let v176: i32 = (v45 + 3i);
    let v177: i32 = (v176 * 34i);
    let v178: i32 = (v177 + v44);
    let v179: f32 = m12;
    s0[v178] = v179;
    let v180: i32 = (v177 + v147);
    let v181: f32 = m13;
    s0[v180] = v181;
    let v182: i32 = (v177 + v150);
    let v183: f32 = m14;
    s0[v182] = v183;
    let v184: i32 = (v177 + v153);
    let v185: f32 = m15;
    s0[v184] = v185;
    workgroupBarrier();
    for (var v186: i32 = v14; v186 < 1024i; v186 += 64) {
      let v187: i32 = (v186 >> 5u);
      let v188: i32 = (v186 & 31i);
      let v189: i32 = (v41 + v187);
      let v190: i32 = (v42 + v188);
      let v191: bool = (v189 < v0);
      let v192: bool = (v190 < v2);
      let v193: bool = (v191 & v192);
      if (v193) {
        let v194: i32 = (v187 * 34i);
        let v195: i32 = (v194 + v188);
        let v196: f32 = s0[v195];
        let v197: bool = (v196 > 0.0f);
        let v198: u32 = bitcast<u32>(v196);
        let v199: u32 = (v198 & 2147483647u);
        let v200: bool = (v199 > 2139095040u);
        let v201: bool = (v197 | v200);
        let v202: f32 = select(0.0f, v196, v201);
        let v203: i32 = (v189 * v10);
        let v204: i32 = (v9 + v203);
        let v205: i32 = (v204 + v190);
        b2[v205] = v202;
      }
    }
  }
}
