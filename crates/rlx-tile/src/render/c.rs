//! CUDA C with the matrix instructions, `ldmatrix` and `cp.async` as inline PTX, HIP C with the compiler's builtins, and the Metal Shading Language with
//! its `simdgroup_matrix`. No header is included but those of Metal's standard library, so that NVRTC or hiprtc alone compiles it.
//!
//! Arguments are those of kernels ([`rlx_kernel::render`]): the uniforms, then the buffers; between them the tensor maps that a program of the group level has
//! ([`crate::tensor_map`]). Loops whose size is known are unrolled, so that
//! arrays of registers are registers. The declarations of the program stand before it as comments.

mod beside;
mod body;
mod elements;
mod fragments;
mod groups;
mod instructions;
mod language;
mod lookups;
mod numbers;
mod occupancy;
mod simdgroup;
mod stores;
mod tensor;
mod tiles;
mod windows;

use std::collections::BTreeSet;
use std::fmt::Write;

use rlx_ir::Result;
use rlx_kernel::ir::{Access, Buffer};

use crate::atom::Loading;
use crate::group::tensor::Tensor;
use crate::group::{GROUP, GROUP_WARPS, Group};
use crate::ir::{Fragment, Program, Role, Size, Stmt, ViewDecl};
use body::Body;
use language::{Language, element};

pub(super) use language::size;

pub use instructions::instructions;
pub use numbers::PROLOGUE;

/// The program in CUDA C, HIP C or the Metal Shading Language, as its architecture has it; `entry` is the kernel's name, without C++ mangling.
///
/// # Errors
/// [`rlx_ir::ErrorKind::Internal`] for a program that does not verify, or a scalar body with a function that the language lacks.
pub fn source(program: &Program, entry: &str) -> Result<String> {
    crate::verify::verify(program)?;
    let program = &crate::expand::expand(program);
    crate::verify::verify(program)?;
    let prelude = Language(program.arch.vendor()).prelude();
    let (declared, map) = (crate::text::declared(program), groups::declare_map(program));
    let mut out = format!("{declared}{prelude}{map}{}", instructions(program));
    head(program, entry, &mut out)?;
    let mut body = String::new();
    Body::new(program, &mut body).write()?;
    declarations(program, &body, &mut out)?;
    out.push_str(&body);
    out.push_str("}\n");
    Ok(out)
}

/// The sizes that positions depend on.
pub(super) fn sizes(p: &Program) -> Vec<Size> {
    let mut all = vec![p.grid.rows, p.grid.cols];
    all.extend(&p.grid.batch);
    for (i, v) in p.views.iter().enumerate() {
        if is_mapped(p, i) {
            // Where it repeats, and what windows are divided by; the rest is in its map.
            all.extend(&v.batch);
            all.extend(v.window.iter().flat_map(|window| window.divisors()));
            continue;
        }
        all.extend([v.base, v.rows, v.cols, v.row_stride, v.col_stride]);
        all.extend(&v.batch);
        all.extend(v.heads.map(|heads| heads.stride));
        all.extend(v.window.iter().flat_map(|window| window.sizes()));
        all.extend(v.lookup.iter().flat_map(|lookup| lookup.sizes()));
    }
    extents(&p.body, &mut all);
    all
}

/// Whether a view is read through a map alone.
fn is_mapped(p: &Program, view: usize) -> bool {
    p.maps().iter().any(|map| map.view.0 as usize == view)
}

fn extents(stmts: &[Stmt], all: &mut Vec<Size>) {
    for s in stmts {
        match s {
            Stmt::For { extent, below, body, .. } => {
                all.push(*extent);
                all.extend(below.map(|b| b.offset));
                extents(body, all);
            }
            Stmt::Staggered(s) => {
                all.push(s.extent);
                all.extend(s.below.map(|b| b.offset));
                s.lists().iter().for_each(|list| extents(list, all));
            }
            Stmt::Tiles { body, .. } => extents(body, all),
            Stmt::Roles { producer, multiplier, consumers } => {
                [producer, multiplier, consumers].iter().for_each(|list| extents(list, all));
            }
            Stmt::Group(Group::Tensor(Tensor::Load { depth, .. })) => all.push(*depth),
            _ => {}
        }
    }
}

fn head(p: &Program, entry: &str, out: &mut String) -> Result<()> {
    if Language(p.arch.vendor()).metal() {
        return simdgroup::head(p, entry, out);
    }
    let _ = write!(
        out,
        "extern \"C\" __global__ void __launch_bounds__({}{}) {entry}(const int* __restrict__ u",
        p.workgroup(),
        // The assembler has to know how many registers a launch gives: all that one workgroup may have.
        if p.group.registers.is_some() { ", 1".to_owned() } else { occupancy::workgroups(p) },
    );
    out.push_str(&groups::parameters(p));
    for (i, b) in p.buffers.iter().enumerate() {
        let constant = if b.access == Access::Read { "const " } else { "" };
        // A body reads through the one pointer what is written through the other.
        let restrict = if p.reads_over(Buffer(i as u32)) { "" } else { "__restrict__ " };
        let _ = write!(out, ", {constant}{}* {restrict}b{i}", element(p, i)?);
    }
    out.push_str(") {\n");
    Ok(())
}

/// Workgroup memory, where the workgroup and the lane are, the views of this batch, and registers. Coordinates that the body does not have are left out:
/// compilers warn of them.
fn declarations(p: &Program, body: &str, out: &mut String) -> Result<()> {
    let metal = Language(p.arch.vendor()).metal();
    if metal {
        simdgroup::shared(p, out);
    } else {
        declare_tiles(p, out);
    }
    groups::declare_shared(p, out);
    let sizes = sizes(p);
    // They are read once: behind an instruction that may change memory they would be read again.
    for i in sizes.iter().flat_map(|size| size.uniforms()).collect::<BTreeSet<u32>>() {
        let _ = writeln!(out, "  const int d{i} = u[{i}];");
    }
    out.push_str(&if metal { simdgroup::lane(p) } else { lane(p, body) });
    let (group, groups) = match metal {
        true => ("block.y * blocks.x + block.x", "blocks.y * blocks.x"),
        false => ("blockIdx.y * gridDim.x + blockIdx.x", "gridDim.y * gridDim.x"),
    };
    tiles::declare_grid(p, (group, groups), out);
    let several = p.has_several_tiles();
    if !several {
        let rest = tiles::declare_place(p, ("group", &format!("group = {group}, ")), body, out);
        // The grid may be rounded up.
        let _ = writeln!(out, "  if ({rest} > 0) return;");
    }
    declare_parts(&sizes, out);
    body::declare_firsts(p, out);
    for (i, v) in p.views.iter().enumerate().filter(|(i, _)| !several && !is_mapped(p, *i)) {
        declare_view(p, i, v, out)?;
    }
    lookups::return_without_table(p, out);
    windows::declare_inverses(p, out);
    let Some(atom) = p.atom() else { return Ok(()) };
    for (i, f) in p.fragments.iter().enumerate() {
        let n = f.rows * f.cols;
        let _ = match f.role {
            _ if atom.loading == Loading::Matrix => {
                writeln!(out, "  {}", simdgroup::fragment(p, atom, Fragment(i as u32)))
            }
            Role::Sum => writeln!(out, "  float f{i}[{}][{}];", n / (atom.m * atom.n), atom.sum.elements()),
            Role::Rows => writeln!(out, "  float f{i}[{}];", f.rows / atom.m * atom.sum.rows()),
            _ => writeln!(out, "  u32 f{i}[{}][{}];", n / (atom.block * atom.depth), atom.block_registers()),
        };
    }
    Ok(())
}

/// What this workgroup has of sizes that are divided.
fn declare_parts(sizes: &[Size], out: &mut String) {
    let part = |s: &Size| if let Size::Part { whole, each } = *s { Some((whole, each)) } else { None };
    for (whole, each) in sizes.iter().filter_map(part).collect::<BTreeSet<_>>() {
        let (name, left) = (size(Size::Part { whole, each }), format!("d{whole} - n0 * d{each}"));
        let _ = writeln!(out, "  const int {name} = {left} < 0 ? 0 : {left} < d{each} ? {left} : d{each};");
    }
}

/// Tiles, one behind the other in dynamic workgroup memory where they are too large to be declared.
fn declare_tiles(p: &Program, out: &mut String) {
    let (dynamic, mut at) = (p.dynamic_bytes(), 0);
    if dynamic > 0 && !p.tiles.is_empty() {
        let _ = writeln!(out, "  // {dynamic} bytes of dynamic workgroup memory.");
        out.push_str("  extern __shared__ __align__(128) u16 dynamic[];\n");
    }
    for (i, t) in p.tiles.iter().enumerate() {
        let _ = match dynamic {
            0 => writeln!(out, "  __shared__ __align__(128) u16 t{i}[{}];", t.bytes() / 2),
            _ => writeln!(out, "  u16* const t{i} = dynamic + {};", at / 2),
        };
        at += t.bytes();
    }
}

/// Which lane this is, and which warp of its workgroup.
fn lane(p: &Program, body: &str) -> String {
    let (cols, lanes) = (p.warps.1, p.arch.lanes());
    let bits = lanes.ilog2();
    // The producer has no column.
    let warps = match p.producers() {
        0 if body.contains("warp_col") => {
            format!("warp_row = (thread >> {bits}) / {cols}, warp_col = (thread >> {bits}) % {cols}")
        }
        0 => format!("warp_row = (thread >> {bits}) / {cols}"),
        _ if p.group.accumulators.is_empty() => format!("warp_row = thread >> {bits}"),
        // Warp groups are beside each other: tensor memory gives each of a group's warps its own rows.
        _ => format!(
            "warp_row = thread >> {bits} & {}, warp_col = thread >> {}",
            GROUP_WARPS - 1,
            GROUP.ilog2()
        ),
    };
    format!("  const int thread = (int)threadIdx.x, lane = thread & {};\n  const int {warps};\n", lanes - 1)
}

fn declare_view(p: &Program, i: usize, v: &ViewDecl, out: &mut String) -> Result<()> {
    let (buffer, language) = (v.buffer.index(), Language(p.arch.vendor()));
    let constant = if p.buffers[buffer].access == Access::Read { "const " } else { "" };
    let (space, element) = (language.device(), element(p, buffer)?);
    let restrict = if language.metal() || p.reads_over(v.buffer) { "" } else { "__restrict__ " };
    let _ = write!(out, "  {space}{constant}{element}* {restrict}const g{i} = b{buffer} + ");
    let mut at = size(v.base);
    for (d, &stride) in v.batch.iter().enumerate() {
        let _ = write!(at, " + (i64)n{d} * {}", size(stride));
    }
    out.push_str(&if p.buffers[buffer].dtype.is_packed() { format!("({at}) / 2") } else { at });
    out.push_str(";\n");
    if let Some(lookup) = &v.lookup {
        let (list, mut at) = (lookup.list.index(), size(lookup.base));
        for (d, &stride) in lookup.batch.iter().enumerate() {
            let _ = write!(at, " + (i64)n{d} * {}", size(stride));
        }
        let number = language::element(p, list)?;
        let _ = writeln!(out, "  {space}const {number}* {restrict}const l{i} = b{list} + {at};");
    }
    Ok(())
}
