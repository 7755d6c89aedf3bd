// rows.softmax
@group(0) @binding(0) var<uniform> u: array<vec4<i32>, 2>;
@group(0) @binding(1) var<storage, read> b0: array<f32>; // x0
@group(0) @binding(2) var<storage, read_write> b1: array<f32>; // y0
var<workgroup> s0: array<f32, 64>;
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
  let v0: i32 = u[0][0];
  let v1: i32 = u[0][1];
  let v2: i32 = u[0][2];
  let v3: i32 = u[0][3];
  let v4: i32 = u[1][0];
  let v5: i32 = u[1][1];
  let v7: i32 = i32(group.y * groups.x + group.x);
  let v8: i32 = i32(local);
  let v9: bool = (v7 < v0);
  if (v9) {
    m0 = f32_bits(0xff800000u);
    for (var v35: i32 = v8; v35 < v1; v35 += 64) {
      let v36: i32 = (v7 * v3);
      let v37: i32 = (v2 + v36);
      let v38: i32 = (v37 + v35);
      let v39: f32 = b0[v38];
      let v40: f32 = m0;
      let v41: f32 = max(v40, v39);
      let v42: u32 = bitcast<u32>(v40);
      let v43: u32 = (v42 & 2147483647u);
      let v44: bool = (v43 > 2139095040u);
      let v45: u32 = bitcast<u32>(v39);
      let v46: u32 = (v45 & 2147483647u);
      let v47: bool = (v46 > 2139095040u);
      let v48: f32 = select(v41, v39, v47);
      let v49: f32 = select(v48, v40, v44);
      m0 = v49;
    }
    let v50: f32 = m0;
    s0[v8] = v50;
    workgroupBarrier();
    let v51: bool = (v8 < 32i);
    if (v51) {
      let v52: i32 = (v8 + 32i);
      let v53: f32 = s0[v8];
      let v54: f32 = s0[v52];
      let v55: f32 = max(v53, v54);
      let v56: u32 = bitcast<u32>(v53);
      let v57: u32 = (v56 & 2147483647u);
      let v58: bool = (v57 > 2139095040u);
      let v59: u32 = bitcast<u32>(v54);
      let v60: u32 = (v59 & 2147483647u);
      let v61: bool = (v60 > 2139095040u);
      let v62: f32 = select(v55, v54, v61);
      let v63: f32 = select(v62, v53, v58);
      s0[v8] = v63;
    }
    workgroupBarrier();
    let v64: bool = (v8 < 16i);
    if (v64) {
      let v65: i32 = (v8 + 16i);
      let v66: f32 = s0[v8];
      let v67: f32 = s0[v65];
      let v68: f32 = max(v66, v67);
      let v69: u32 = bitcast<u32>(v66);
      let v70: u32 = (v69 & 2147483647u);
      let v71: bool = (v70 > 2139095040u);
      let v72: u32 = bitcast<u32>(v67);
      let v73: u32 = (v72 & 2147483647u);
      let v74: bool = (v73 > 2139095040u);
      let v75: f32 = select(v68, v67, v74);
      let v76: f32 = select(v75, v66, v71);
      s0[v8] = v76;
    }
    workgroupBarrier();
    let v77: bool = (v8 < 8i);
    if (v77) {
      let v78: i32 = (v8 + 8i);
      let v79: f32 = s0[v8];
      let v80: f32 = s0[v78];
      let v81: f32 = max(v79, v80);
      let v82: u32 = bitcast<u32>(v79);
      let v83: u32 = (v82 & 2147483647u);
      let v84: bool = (v83 > 2139095040u);
      let v85: u32 = bitcast<u32>(v80);
      let v86: u32 = (v85 & 2147483647u);
      let v87: bool = (v86 > 2139095040u);
      let v88: f32 = select(v81, v80, v87);
      let v89: f32 = select(v88, v79, v84);
      s0[v8] = v89;
    }
    workgroupBarrier();
    let v90: bool = (v8 < 4i);
    if (v90) {
      let v91: i32 = (v8 + 4i);
      let v92: f32 = s0[v8];
      let v93: f32 = s0[v91];
      let v94: f32 = max(v92, v93);
      let v95: u32 = bitcast<u32>(v92);
      let v96: u32 = (v95 & 2147483647u);
      let v97: bool = (v96 > 2139095040u);
      let v98: u32 = bitcast<u32>(v93);
      let v99: u32 = (v98 & 2147483647u);
      let v100: bool = (v99 > 2139095040u);
      let v101: f32 = select(v94, v93, v100);
      let v102: f32 = select(v101, v92, v97);
      s0[v8] = v102;
    }
    workgroupBarrier();
    let v103: bool = (v8 < 2i);
    if (v103) {
      let v104: i32 = (v8 + 2i);
      let v105: f32 = s0[v8];
      let v106: f32 = s0[v104];
      let v107: f32 = max(v105, v106);
      let v108: u32 = bitcast<u32>(v105);
      let v109: u32 = (v108 & 2147483647u);
      let v110: bool = (v109 > 2139095040u);
      let v111: u32 = bitcast<u32>(v106);
      let v112: u32 = (v111 & 2147483647u);
      let v113: bool = (v112 > 2139095040u);
      let v114: f32 = select(v107, v106, v113);
      let v115: f32 = select(v114, v105, v110);
      s0[v8] = v115;
    }
    workgroupBarrier();
    let v116: bool = (v8 < 1i);
    if (v116) {
      let v117: i32 = (v8 + 1i);
      let v118: f32 = s0[v8];
      let v119: f32 = s0[v117];
      let v120: f32 = max(v118, v119);
      let v121: u32 = bitcast<u32>(v118);
      let v122: u32 = (v121 & 2147483647u);
      let v123: bool = (v122 > 2139095040u);
      let v124: u32 = bitcast<u32>(v119);
      let v125: u32 = (v124 & 2147483647u);
      let v126: bool = (v125 > 2139095040u);
      let v127: f32 = select(v120, v119, v126);
      let v128: f32 = select(v127, v118, v123);
      s0[v8] = v128;
    }
    workgroupBarrier();
    let v129: f32 = s0[0i];
    workgroupBarrier();
    m1 = 0.0f;
    for (var v130: i32 = v8; v130 < v1; v130 += 64) {
      let v131: i32 = (v7 * v3);
      let v132: i32 = (v2 + v131);
      let v133: i32 = (v132 + v130);
      let v134: f32 = b0[v133];
      let v135: f32 = (v134 - v129);
      let v136: u32 = bitcast<u32>(v135);
      let v137: u32 = (v136 & 2147483647u);
      let v138: bool = (v137 > 2139095040u);
      let v139: f32 = select(v135, 0.0f, v138);
      let v140: f32 = max(v139, (-104.0f));
      let v141: f32 = min(v140, 89.0f);
      let v142: f32 = (v141 * 1.442695f);
      let v143: f32 = round(v142);
      let v144: f32 = (v143 * (-0.6933594f));
      let v145: f32 = (v144 + v141);
      let v146: f32 = (v143 * 0.00021219444f);
      let v147: f32 = (v146 + v145);
      let v148: f32 = (0.00019875691f * v147);
      let v149: f32 = (v148 + 0.0013981999f);
      let v150: f32 = (v149 * v147);
      let v151: f32 = (v150 + 0.008333452f);
      let v152: f32 = (v151 * v147);
      let v153: f32 = (v152 + 0.041665796f);
      let v154: f32 = (v153 * v147);
      let v155: f32 = (v154 + 0.16666666f);
      let v156: f32 = (v155 * v147);
      let v157: f32 = (v156 + 0.5f);
      let v158: f32 = (v147 * v147);
      let v159: f32 = (v157 * v158);
      let v160: f32 = (v159 + v147);
      let v161: f32 = (v160 + 1.0f);
      let v162: i32 = to_i32(v143);
      let v163: i32 = (v162 >> 1u);
      let v164: i32 = (v162 - v163);
      let v165: i32 = (v163 + 127i);
      let v166: i32 = (v165 << 23u);
      let v167: f32 = bitcast<f32>(v166);
      let v168: f32 = (v161 * v167);
      let v169: i32 = (v164 + 127i);
      let v170: i32 = (v169 << 23u);
      let v171: f32 = bitcast<f32>(v170);
      let v172: f32 = (v168 * v171);
      let v173: f32 = select(v172, v135, v138);
      let v174: f32 = m1;
      let v175: f32 = (v174 + v173);
      m1 = v175;
    }
    let v176: f32 = m1;
    s0[v8] = v176;
    workgroupBarrier();
    if (v51) {
      let v177: i32 = (v8 + 32i);
      let v178: f32 = s0[v8];
      let v179: f32 = s0[v177];
      let v180: f32 = (v178 + v179);
      s0[v8] = v180;
    }
    workgroupBarrier();
    if (v64) {
      let v181: i32 = (v8 + 16i);
      let v182: f32 = s0[v8];
      let v183: f32 = s0[v181];
      let v184: f32 = (v182 + v183);
      s0[v8] = v184;
    }
    workgroupBarrier();
    if (v77) {
      let v185: i32 = (v8 + 8i);
      let v186: f32 = s0[v8];
      let v187: f32 = s0[v185];
      let v188: f32 = (v186 + v187);
      s0[v8] = v188;
    }
    workgroupBarrier();
    if (v90) {
      let v189: i32 = (v8 + 4i);
      let v190: f32 = s0[v8];
      let v191: f32 = s0[v189];
      let v192: f32 = (v190 + v191);
      s0[v8] = v192;
    }
    workgroupBarrier();
    if (v103) {
      let v193: i32 = (v8 + 2i);
      let v194: f32 = s0[v8];
      let v195: f32 = s0[v193];
      let v196: f32 = (v194 + v195);
      s0[v8] = v196;
    }
    workgroupBarrier();
    if (v116) {
      let v197: i32 = (v8 + 1i);
      let v198: f32 = s0[v8];
      let v199: f32 = s0[v197];
      let v200: f32 = (v198 + v199);
      s0[v8] = v200;
    }
    workgroupBarrier();
    let v201: f32 = s0[0i];
    workgroupBarrier();
    for (var v202: i32 = v8; v202 < v1; v202 += 64) {
      let v203: i32 = (v7 * v3);
      let v204: i32 = (v2 + v203);
      let v205: i32 = (v204 + v202);
      let v206: f32 = b0[v205];
      let v207: f32 = (v206 - v129);
      let v208: u32 = bitcast<u32>(v207);
      let v209: u32 = (v208 & 2147483647u);
      let v210: bool = (v209 > 2139095040u);
      let v211: f32 = select(v207, 0.0f, v210);
      let v212: f32 = max(v211, (-104.0f));
      let v213: f32 = min(v212, 89.0f);
      let v214: f32 = (v213 * 1.442695f);
      let v215: f32 = round(v214);
      let v216: f32 = (v215 * (-0.6933594f));
      let v217: f32 = (v216 + v213);
      let v218: f32 = (v215 * 0.00021219444f);
      let v219: f32 = (v218 + v217);
      let v220: f32 = (0.00019875691f * v219);
      let v221: f32 = (v220 + 0.0013981999f);
      let v222: f32 = (v221 * v219);
      let v223: f32 = (v222 + 0.008333452f);
      let v224: f32 = (v223 * v219);
      let v225: f32 = (v224 + 0.041665796f);
      let v226: f32 = (v225 * v219);
      let v227: f32 = (v226 + 0.16666666f);
      let v228: f32 = (v227 * v219);
      let v229: f32 = (v228 + 0.5f);
      let v230: f32 = (v219 * v219);
      let v231: f32 = (v229 * v230);
      let v232: f32 = (v231 + v219);
      let v233: f32 = (v232 + 1.0f);
      let v234: i32 = to_i32(v215);
      let v235: i32 = (v234 >> 1u);
      let v236: i32 = (v234 - v235);
      let v237: i32 = (v235 + 127i);
      let v238: i32 = (v237 << 23u);
      let v239: f32 = bitcast<f32>(v238);
      let v240: f32 = (v233 * v239);
      let v241: i32 = (v236 + 127i);
      let v242: i32 = (v241 << 23u);
      let v243: f32 = bitcast<f32>(v242);
      let v244: f32 = (v240 * v243);
      let v245: f32 = select(v244, v207, v210);
      let v246: f32 = (v245 / v201);
      let v247: i32 = (v7 * v5);
      let v248: i32 = (v4 + v247);
      let v249: i32 = (v248 + v202);
      b1[v249] = v246;
    }
  }
}
