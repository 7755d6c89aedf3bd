//! CUDA C with the matrix instructions, `ldmatrix` and `cp.async` as inline PTX, and HIP C with the compiler's builtins. No header is included, so
//! that NVRTC or hiprtc alone compiles it.
//!
//! Arguments are those of kernels ([`rlx_kernel::render`]): the uniforms, then the buffers. Loops whose size is known are unrolled, so that
//! arrays of registers are registers.

mod body;
mod fragments;
mod instructions;

use std::collections::BTreeSet;
use std::fmt::Write;

use rlx_ir::{Error, ErrorKind, Result};
use rlx_kernel::ir::Access;
use rlx_kernel::render::{cuda_element, cuda_prelude, hip_prelude};

use crate::atom::{BLOCK, Vendor};
use crate::ir::{Program, Role, Size, Stmt, ViewDecl};
use body::Body;

pub use instructions::instructions;

/// The program in CUDA C or HIP C, as its architecture has it; `entry` is the kernel's name, without C++ mangling.
///
/// # Errors
/// [`ErrorKind::Internal`] for a program that does not verify.
pub fn source(program: &Program, entry: &str) -> Result<String> {
    crate::verify::verify(program)?;
    let program = &crate::expand::expand(program);
    crate::verify::verify(program)?;
    let name: String =
        program.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let prelude = match program.arch.vendor() {
        Vendor::Nvidia => cuda_prelude(),
        Vendor::Amd => hip_prelude(),
    };
    let mut out = format!("// {name}\n{prelude}{}", instructions(program));
    head(program, entry, &mut out)?;
    declarations(program, &mut out);
    Body::new(program, &mut out).write()?;
    out.push_str("}\n");
    Ok(out)
}

fn internal(what: String) -> Error {
    Error::new(ErrorKind::Internal, what)
}

/// A size in the text.
fn size(s: Size) -> String {
    match s {
        Size::Const(n) => n.to_string(),
        Size::Uniform(i) => format!("d{i}"),
    }
}

/// The uniforms that positions depend on. They are read once: behind an instruction that may change memory they would be read again.
fn sizes(p: &Program) -> BTreeSet<u32> {
    let mut all = vec![p.grid.rows, p.grid.cols];
    all.extend(&p.grid.batch);
    for v in &p.views {
        all.extend([v.base, v.rows, v.cols, v.row_stride, v.col_stride]);
        all.extend(&v.batch);
    }
    extents(&p.body, &mut all);
    let uniform = |s: &Size| if let Size::Uniform(i) = s { Some(*i) } else { None };
    all.iter().filter_map(uniform).collect()
}

fn extents(stmts: &[Stmt], all: &mut Vec<Size>) {
    for s in stmts {
        if let Stmt::For { extent, body, .. } = s {
            all.push(*extent);
            extents(body, all);
        }
    }
}

fn element(p: &Program, buffer: usize) -> Result<&'static str> {
    let dtype = p.buffers[buffer].dtype;
    cuda_element(dtype)
        .ok_or_else(|| internal(format!("program {:?}: CUDA C has no buffer of {dtype}", p.name)))
}

fn head(p: &Program, entry: &str, out: &mut String) -> Result<()> {
    let _ = write!(
        out,
        "extern \"C\" __global__ void __launch_bounds__({}) {entry}(const int* __restrict__ u",
        p.workgroup()
    );
    for (i, b) in p.buffers.iter().enumerate() {
        let constant = if b.access == Access::Read { "const " } else { "" };
        let _ = write!(out, ", {constant}{}* __restrict__ b{i}", element(p, i)?);
    }
    out.push_str(") {\n");
    Ok(())
}

/// Workgroup memory, where the workgroup and the lane are, the views of this batch, and registers.
fn declarations(p: &Program, out: &mut String) {
    for (i, t) in p.tiles.iter().enumerate() {
        let _ = writeln!(out, "  __shared__ __align__(128) u16 t{i}[{}];", t.bytes() / 2);
    }
    for i in sizes(p) {
        let _ = writeln!(out, "  const int d{i} = u[{i}];");
    }
    let (g, cols, lanes) = (&p.grid, p.warps.1, p.arch.lanes());
    let bits = lanes.ilog2();
    let _ = write!(
        out,
        "  const int thread = (int)threadIdx.x, lane = thread & {};
  const int warp_row = (thread >> {bits}) / {cols}, warp_col = (thread >> {bits}) % {cols};
  const u32 rows = ((u32){} + {}u) / {}u, cols = ((u32){} + {}u) / {}u;
  const u32 group = blockIdx.y * gridDim.x + blockIdx.x, plane = group % (rows * cols);
  const u32 band = plane / ({bands}u * cols), within = plane % ({bands}u * cols);
  const u32 height = rows - band * {bands}u < {bands}u ? rows - band * {bands}u : {bands}u;
  const int group_row = (int)(band * {bands}u + within % height), group_col = (int)(within / height);
  const int batch = (int)(group / (rows * cols));
",
        lanes - 1,
        size(g.rows),
        g.tile.0 - 1,
        g.tile.0,
        size(g.cols),
        g.tile.1 - 1,
        g.tile.1,
        bands = g.bands,
    );
    let mut rest = "batch".to_string();
    for (i, &s) in g.batch.iter().enumerate().rev() {
        let _ = writeln!(out, "  const int n{i} = {rest} % {};", size(s));
        rest = format!("({rest} / {})", size(s));
    }
    // The grid may be rounded up.
    let _ = writeln!(out, "  if ({rest} > 0) return;");
    for (i, v) in p.views.iter().enumerate() {
        declare_view(p, i, v, out);
    }
    let Some(atom) = p.atom() else { return };
    for (i, f) in p.fragments.iter().enumerate() {
        let n = f.rows * f.cols;
        let _ = match f.role {
            Role::Sum => writeln!(out, "  float f{i}[{}][{}];", n / (atom.m * atom.n), atom.sum.elements()),
            _ => writeln!(out, "  u32 f{i}[{}][{}];", n / (BLOCK * atom.depth), atom.block_registers()),
        };
    }
}

fn declare_view(p: &Program, i: usize, v: &ViewDecl, out: &mut String) {
    let buffer = v.buffer.index();
    let constant = if p.buffers[buffer].access == Access::Read { "const " } else { "" };
    let element = cuda_element(p.buffers[buffer].dtype).unwrap_or("u16");
    let _ = write!(out, "  {constant}{element}* __restrict__ const g{i} = b{buffer} + {}", size(v.base));
    for (d, &stride) in v.batch.iter().enumerate() {
        let _ = write!(out, " + (i64)n{d} * {}", size(stride));
    }
    out.push_str(";\n");
}
