// reduce.reduce
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
  let v0: i32 = u[0][0];
  let v1: i32 = u[0][1];
  let v2: i32 = u[0][2];
  let v3: i32 = u[0][3];
  let v4: i32 = u[1][0];
  let v6: i32 = i32(group.y * groups.x + group.x);
  let v7: i32 = i32(local);
  let v8: bool = (v6 < v0);
  if (v8) {
    m0 = 0.0f;
    for (var v24: i32 = v7; v24 < v1; v24 += 64) {
      let v25: i32 = (v6 * v3);
      let v26: i32 = (v2 + v25);
      let v27: i32 = (v26 + v24);
      let v28: f32 = b0[v27];
      let v29: f32 = m0;
      let v30: f32 = (v29 + v28);
      m0 = v30;
    }
    let v31: f32 = m0;
    s0[v7] = v31;
    workgroupBarrier();
    let v32: bool = (v7 < 8i);
    if (v32) {
      let v33: f32 = s0[v7];
      let v34: i32 = (v7 + 8i);
      let v35: f32 = s0[v34];
      let v36: i32 = (v7 + 16i);
      let v37: f32 = s0[v36];
      let v38: i32 = (v7 + 24i);
      let v39: f32 = s0[v38];
      let v40: i32 = (v7 + 32i);
      let v41: f32 = s0[v40];
      let v42: i32 = (v7 + 40i);
      let v43: f32 = s0[v42];
      let v44: i32 = (v7 + 48i);
      let v45: f32 = s0[v44];
      let v46: i32 = (v7 + 56i);
      let v47: f32 = s0[v46];
      let v48: f32 = (v33 + v41);
      let v49: f32 = (v35 + v43);
      let v50: f32 = (v37 + v45);
      let v51: f32 = (v39 + v47);
      let v52: f32 = (v48 + v50);
      let v53: f32 = (v49 + v51);
      let v54: f32 = (v52 + v53);
      s0[v7] = v54;
    }
    workgroupBarrier();
    let v55: bool = (v7 < 1i);
    if (v55) {
      let v56: f32 = s0[v7];
      let v57: i32 = (v7 + 1i);
      let v58: f32 = s0[v57];
      let v59: i32 = (v7 + 2i);
      let v60: f32 = s0[v59];
      let v61: i32 = (v7 + 3i);
      let v62: f32 = s0[v61];
      let v63: i32 = (v7 + 4i);
      let v64: f32 = s0[v63];
      let v65: i32 = (v7 + 5i);
      let v66: f32 = s0[v65];
      let v67: i32 = (v7 + 6i);
      let v68: f32 = s0[v67];
      let v69: i32 = (v7 + 7i);
      let v70: f32 = s0[v69];
      let v71: f32 = (v56 + v64);
      let v72: f32 = (v58 + v66);
      let v73: f32 = (v60 + v68);
      let v74: f32 = (v62 + v70);
      let v75: f32 = (v71 + v73);
      let v76: f32 = (v72 + v74);
      let v77: f32 = (v75 + v76);
      s0[v7] = v77;
    }
    workgroupBarrier();
    let v78: f32 = s0[0i];
    workgroupBarrier();
    if (v55) {
      let v79: i32 = (v4 + v6);
      b1[v79] = v78;
    }
  }
}
