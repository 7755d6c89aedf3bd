//! WGSL with wgpu's cooperative matrices, for Vulkan.
//!
//! Binding 0 is the uniforms and the buffers follow, as in kernels ([`rlx_kernel::render`]). A buffer is an array of as many elements as all its views access at
//! once, so that one access of the language is one of the machine's. Scalar bodies are functions, since buffers and uniforms are in their scope.
//!
//! Which lane has which element of a matrix is the device's own. So warps are subgroups by their number only where matrices are loaded, multiplied and
//! written to workgroup memory; behind a barrier, sums are stored by invocations in the order of their numbers. A workgroup of `n` warps has to be `n` subgroups:
//! the device's subgroups all have the lanes of [`Arch::lanes`](crate::Arch::lanes).

mod body;
mod memory;
mod stores;

use std::collections::BTreeSet;
use std::fmt::Write;

use rlx_ir::{DType, Error, ErrorKind, Result};
use rlx_kernel::ir::{Access, Buffer};
use rlx_kernel::render::{wgsl_body, wgsl_prelude};

use super::c::{size, sizes};
use crate::ir::{Fragment, Program, Role, Size, Stmt};
use crate::scalar::Scalar;
use body::Body;

/// Eight neighbours of 16 bits, which are accessed at once.
const CHUNK_TYPE: &str = "struct Chunk { low: vec4<f16>, high: vec4<f16> }\n";

/// The program in WGSL; `entry` is its entry point.
///
/// # Errors
/// [`ErrorKind::Internal`] for a program that does not verify, or for what the language lacks.
pub fn source(program: &Program, entry: &str) -> Result<String> {
    crate::verify::verify(program)?;
    let program = &crate::expand::expand(program);
    crate::verify::verify(program)?;
    let bodies = bodies(&program.body);
    let mut out = crate::text::declared(program);
    out.push_str("enable f16;\nenable wgpu_cooperative_matrix;\n");
    out.push_str(CHUNK_TYPE);
    bindings(program, &bodies, &mut out)?;
    shared(program, &mut out);
    out.push_str(&wgsl_prelude());
    for (i, scalar) in bodies.iter().enumerate() {
        function(i, scalar, &mut out)?;
    }
    let _ = write!(
        out,
        "@compute @workgroup_size({})
fn {entry}(@builtin(local_invocation_index) local: u32, @builtin(subgroup_id) subgroup: u32,
    @builtin(workgroup_id) block: vec3<u32>, @builtin(num_workgroups) blocks: vec3<u32>) {{
",
        program.workgroup()
    );
    declarations(program, &mut out);
    Body::new(program, &bodies, &mut out).write()?;
    out.push_str("}\n");
    Ok(out)
}

/// What no verified program of the architecture leads to.
fn lacks(p: &Program, what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Internal, format!("program {:?}: WGSL has no {what}", p.name))
}

/// The distinct bodies of copies and stores.
fn bodies(stmts: &[Stmt]) -> Vec<&Scalar> {
    let mut all = Vec::new();
    collect(stmts, &mut all);
    all
}

fn collect<'s>(stmts: &'s [Stmt], all: &mut Vec<&'s Scalar>) {
    for s in stmts {
        let map = match s {
            Stmt::Copy(c) | Stmt::Put(_, c) => &c.map,
            Stmt::Store { map, .. } => map,
            Stmt::For { body, .. } => {
                collect(body, all);
                continue;
            }
            _ => continue,
        };
        if let Some(scalar) = map.as_ref().filter(|scalar| !all.contains(scalar)) {
            all.push(scalar);
        }
    }
}

/// A scalar body as a function: of the element, its batch, row and column, and the numbers beside it.
fn function(number: usize, scalar: &Scalar, out: &mut String) -> Result<()> {
    let beside: String = (4..scalar.given()).map(|i| format!(", m{i}: f32")).collect();
    let _ = writeln!(out, "fn body{number}(x: f32, m1: i32, m2: i32, m3: i32{beside}) -> f32 {{");
    let _ = writeln!(out, "  var m0 = x;\n{}  return m0;\n}}", wgsl_body(scalar.kernel(), scalar.given())?);
    Ok(())
}

/// How many elements of a buffer are one of its array: as many as all views access at once, where no body reads single ones.
fn together(p: &Program, bodies: &[&Scalar], buffer: usize) -> u32 {
    let of = p.views.iter().filter(|view| view.buffer.index() == buffer).map(|view| view.vector);
    let single = bodies.iter().any(|scalar| scalar.reads(Buffer(buffer as u32)));
    if single { 1 } else { of.min().unwrap_or(1) }
}

/// The type of the elements of a buffer's array, of which each is so many of the buffer's.
fn array_element(p: &Program, buffer: usize, together: u32) -> Result<String> {
    let dtype = p.buffers[buffer].dtype;
    let of = match dtype {
        DType::F16 => "f16",
        DType::F32 => "f32",
        DType::I32 if together == 1 => "i32",
        DType::U32 if together == 1 => "u32",
        other => return Err(lacks(p, format!("buffer of {other}"))),
    };
    Ok(match together {
        1 => of.to_owned(),
        2 | 4 => format!("vec{together}<{of}>"),
        _ => "Chunk".to_owned(),
    })
}

fn bindings(p: &Program, bodies: &[&Scalar], out: &mut String) -> Result<()> {
    let slots = (p.uniforms.len() + 1).div_ceil(4);
    let _ = writeln!(out, "@group(0) @binding(0) var<uniform> u: array<vec4<i32>, {slots}>;");
    for (i, b) in p.buffers.iter().enumerate() {
        let access = if b.access == Access::Read { "read" } else { "read_write" };
        let element = array_element(p, i, together(p, bodies, i))?;
        let binding = i + 1;
        let _ = writeln!(out, "@group(0) @binding({binding}) var<storage, {access}> b{i}: array<{element}>;");
    }
    Ok(())
}

/// Workgroup memory: tiles in halves of chunks, and a matrix of sums for each warp.
fn shared(p: &Program, out: &mut String) {
    for (i, t) in p.tiles.iter().enumerate() {
        let _ = writeln!(out, "var<workgroup> t{i}: array<vec4<f16>, {}>;", t.bytes() / 8);
    }
    let _ = writeln!(out, "var<workgroup> exchanged: array<vec4<f32>, {}>;", p.exchange_bytes() / 16);
}

/// What a fragment's matrix is called.
fn matrix(f: Fragment, row: u32, col: u32) -> String {
    format!("f{}_{row}_{col}", f.0)
}

/// Sizes, where the workgroup and the invocation are, the views of this batch, and sums.
fn declarations(p: &Program, out: &mut String) {
    let sizes = sizes(p);
    declare_place(p, &sizes, out);
    let part = |s: &Size| if let Size::Part { whole, each } = *s { Some((whole, each)) } else { None };
    for (whole, each) in sizes.iter().filter_map(part).collect::<BTreeSet<_>>() {
        let name = size(Size::Part { whole, each });
        let _ = writeln!(out, "  let {name} = clamp(d{whole} - n0 * d{each}, 0i, d{each});");
    }
    for (i, v) in p.views.iter().enumerate() {
        let along = v.batch.iter().enumerate();
        let along: String = along.map(|(d, &stride)| format!(" + n{d} * {}", size(stride))).collect();
        let _ = writeln!(out, "  let g{i} = {}{along};", size(v.base));
    }
    for (i, f) in p.fragments.iter().enumerate().filter(|(_, f)| f.role == Role::Sum) {
        let of = p.atom().map_or((16, 16), |atom| (atom.m, atom.n));
        for (row, col) in places((f.rows / of.0, f.cols / of.1)) {
            let name = matrix(Fragment(i as u32), row, col);
            let _ = writeln!(out, "  var {name}: coop_mat16x16<f32, C>;");
        }
    }
}

/// Sizes, and which tile of which matrices it is.
fn declare_place(p: &Program, sizes: &[Size], out: &mut String) {
    for i in sizes.iter().flat_map(|size| size.uniforms()).collect::<BTreeSet<u32>>() {
        let _ = writeln!(out, "  let d{i} = u[{}][{}];", i / 4, i % 4);
    }
    let (g, cols, bits) = (&p.grid, p.warps.1, p.arch.lanes().ilog2());
    let _ = write!(
        out,
        "  let thread = i32(local);
  let warp_row = i32(subgroup / {cols}u);
  let warp_col = i32(subgroup % {cols}u);
  let own_row = i32((local >> {bits}u) / {cols}u);
  let own_col = i32((local >> {bits}u) % {cols}u);
  let rows = (u32({}) + {}u) / {}u;
  let cols = (u32({}) + {}u) / {}u;
  let group = block.y * blocks.x + block.x;
  let plane = group % (rows * cols);
  let band = plane / ({bands}u * cols);
  let within = plane % ({bands}u * cols);
  let height = min(rows - band * {bands}u, {bands}u);
  let group_row = i32(band * {bands}u + within % height);
  let group_col = i32(within / height);
  let batch = i32(group / (rows * cols));
",
        size(g.rows),
        g.tile.0 - 1,
        g.tile.0,
        size(g.cols),
        g.tile.1 - 1,
        g.tile.1,
        bands = g.bands,
    );
    let mut rest = "batch".to_owned();
    for (i, &s) in g.batch.iter().enumerate().rev() {
        let _ = writeln!(out, "  let n{i} = {rest} % {};", size(s));
        rest = format!("({rest} / {})", size(s));
    }
    // The grid may be rounded up.
    let _ = writeln!(out, "  if ({rest} > 0i) {{ return; }}");
}

/// Rows and columns of so many matrices.
fn places((rows, cols): (u32, u32)) -> impl Iterator<Item = (u32, u32)> {
    (0..rows).flat_map(move |row| (0..cols).map(move |col| (row, col)))
}
