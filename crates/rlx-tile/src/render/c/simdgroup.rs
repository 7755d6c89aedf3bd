//! Apple's matrices: fragments are arrays of `simdgroup_matrix`, which a warp loads and stores as wholes.
//!
//! The language does not say which elements of a matrix a lane has, so nothing here depends on it: sums that a scalar body sees, or that are beside
//! an edge, go through workgroup memory, where each warp has room for one matrix.

use std::fmt::Write;

use rlx_ir::{DType, Result};
use rlx_kernel::ir::Access;

use super::body::{Body, index};
use super::fragments::lane_place;
use super::language::element;
use crate::atom::Atom;
use crate::ir::{Fragment, Index, Program, Role, Stage, Tile, View};
use crate::layout::CHUNK;
use crate::scalar::Scalar;

/// The type of operands in the language.
fn operand(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::F16 => "half",
        _ => "bfloat",
    }
}

/// The functions that a program's text calls beside those of the library.
pub fn instructions() -> &'static str {
    "#include <metal_simdgroup_matrix>
inline u32 pack_half(float low, float high) { return (u32)to_half(low) | (u32)to_half(high) << 16; }
inline u32 pack_brain(float low, float high) { return (u32)to_brain(low) | (u32)to_brain(high) << 16; }
"
}

pub fn head(p: &Program, entry: &str, out: &mut String) -> Result<()> {
    let _ = write!(
        out,
        "[[max_total_threads_per_threadgroup({})]] kernel void {entry}(\n    constant int* u [[buffer(0)]]",
        p.workgroup()
    );
    for (i, b) in p.buffers.iter().enumerate() {
        let constant = if b.access == Access::Read { "const " } else { "" };
        let _ = write!(out, ",\n    device {constant}{}* b{i} [[buffer({})]]", element(p, i)?, i + 1);
    }
    out.push_str(
        ",\n    uint warp_index [[simdgroup_index_in_threadgroup]]\
         ,\n    uint lane_index [[thread_index_in_simdgroup]]\
         ,\n    uint local_index [[thread_index_in_threadgroup]]\
         ,\n    uint3 block [[threadgroup_position_in_grid]]\
         ,\n    uint3 blocks [[threadgroups_per_grid]]) {\n",
    );
    Ok(())
}

/// Workgroup memory: tiles in chunks, and a matrix of sums for each warp.
pub fn shared(p: &Program, out: &mut String) {
    for (i, t) in p.tiles.iter().enumerate() {
        let _ = writeln!(out, "  threadgroup uint4 t{i}[{}];", t.bytes() / 16);
    }
    let _ = writeln!(out, "  threadgroup float exchanged[{}];", p.exchange_bytes() / 4);
}

/// The declaration of a fragment.
pub fn fragment(p: &Program, atom: &Atom, f: Fragment) -> String {
    let d = p.fragment(f);
    let (ty, n) = match d.role {
        Role::Sum | Role::Rows => ("float", d.rows * d.cols / (atom.m * atom.n)),
        Role::Left => (operand(p.dtype), d.rows * d.cols / (atom.m * atom.k)),
        Role::Right => (operand(p.dtype), d.rows * d.cols / (atom.k * atom.n)),
    };
    format!("simdgroup_matrix<{ty}, 8, 8> f{}[{n}];", f.0)
}

impl Body<'_> {
    pub(super) fn zero_matrices(&mut self, atom: &Atom, f: Fragment) {
        let d = self.p.fragment(f);
        self.unrolled("i", d.rows * d.cols / (atom.m * atom.n));
        self.line(&format!("f{}[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);", f.0));
        self.close();
    }

    /// Loads an operand matrix by matrix, each 64 neighbours in the tile.
    pub(super) fn load_whole(
        &mut self,
        to: Fragment,
        (tile, stage): (Tile, Stage),
        at: (&Index, &Index),
        depth_rows: bool,
    ) {
        let (d, t) = (*self.p.fragment(to), *self.p.tile(tile));
        let transposed = (d.role == Role::Right) != depth_rows;
        self.open("{");
        self.line(&format!(
            "const int from = {} * {}, row = ({}) / {CHUNK}, col = ({}) / {CHUNK};",
            self.stage(tile, stage),
            t.rows * t.chunks(),
            index(at.0),
            index(at.1)
        ));
        let along = d.cols / CHUNK;
        self.unrolled("i", d.rows / CHUNK);
        self.unrolled("j", along);
        let (below, beside) = if transposed { ("j", "i") } else { ("i", "j") };
        let order = if transposed { ", ulong2(0, 0), true" } else { "" };
        self.line(&format!(
            "simdgroup_load(f{}[i * {along} + j], (threadgroup const {}*)(t{} + from + ((row + {below}) * {} + col + {beside}) * {}), 8{order});",
            to.0,
            operand(t.dtype),
            tile.0,
            t.cols / CHUNK,
            t.matrix_chunks()
        ));
        self.close();
        self.close();
        self.close();
    }

    pub(super) fn mma_matrices(&mut self, sum: Fragment, left: Fragment, right: Fragment) {
        let (s, l) = (*self.p.fragment(sum), *self.p.fragment(left));
        let (rows, cols, depth) = (s.rows / CHUNK, s.cols / CHUNK, l.cols / CHUNK);
        self.unrolled("d", depth);
        self.unrolled("i", rows);
        self.unrolled("j", cols);
        let c = format!("f{}[i * {cols} + j]", sum.0);
        self.line(&format!(
            "simdgroup_multiply_accumulate({c}, f{}[i * {depth} + d], f{}[d * {cols} + j], {c});",
            left.0, right.0
        ));
        self.close();
        self.close();
        self.close();
    }

    /// Stores sums matrix by matrix through the warp's part of workgroup memory, of which each lane takes neighbours in a row.
    pub(super) fn store_matrices(
        &mut self,
        atom: &Atom,
        (to, from): (View, Fragment),
        at: (&Index, &Index),
        map: Option<&Scalar>,
    ) -> Result<()> {
        const BARRIER: &str = "simdgroup_barrier(mem_flags::mem_threadgroup);";
        let d = *self.p.fragment(from);
        let (rows, cols) = (d.rows / atom.m, d.cols / atom.n);
        let neighbours = atom.sum.neighbours();
        let together = self.p.view(to).vector.min(neighbours);
        self.open("{");
        self.line(&format!(
            "const int down = {}, right = {};",
            lane_place(&atom.sum, false),
            lane_place(&atom.sum, true)
        ));
        self.line(&format!("threadgroup float* const matrix = exchanged + warp * {};", atom.m * atom.n));
        self.unrolled("i", rows);
        self.unrolled("j", cols);
        self.line(&format!("simdgroup_store(f{}[i * {cols} + j], matrix, 8);", from.0));
        self.line(BARRIER);
        self.open("{");
        self.line(&format!(
            "const int row = {} + i * {} + down, col = {} + j * {} + right;",
            index(at.0),
            atom.m,
            index(at.1),
            atom.n
        ));
        self.line(&format!("threadgroup const float* const own = matrix + down * {} + right;", atom.n));
        for part in (0..neighbours).step_by(together as usize) {
            self.store_together(to, "own", (0, part, together), map)?;
        }
        self.close();
        // The next matrix may not be there before all lanes have read this one.
        self.line(BARRIER);
        self.close();
        self.close();
        self.close();
        Ok(())
    }
}

/// Which lane this is.
pub fn lane(p: &Program) -> String {
    let columns = p.warps.1;
    format!(
        "  const int local = (int)local_index, lane = (int)lane_index, warp = (int)warp_index;
  const int warp_row = warp / {columns}, warp_col = warp % {columns};
"
    )
}
