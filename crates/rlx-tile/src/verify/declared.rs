//! Declarations: sizes, views, tiles, fragments.

use rlx_ir::DType;
use rlx_kernel::ir::Access;

use super::{Checked, Rule, Verifier, fault, must};
use crate::atom::{Atom, Loading};
use crate::ir::{Role, TileDecl, ViewDecl};
use crate::layout::{CHUNK, Swizzle};

/// Registers of fragments that a lane may have; the others of its 255 or 256 hold positions and addresses.
const REGISTERS: u32 = 224;

/// Lanes of a workgroup.
const MOST_LANES: u32 = 1024;

/// Whether copies unpack integers of this type.
pub(crate) fn is_unpacked(dtype: DType) -> bool {
    matches!(dtype, DType::U4 | DType::I4 | DType::U8 | DType::I8)
}

impl Verifier<'_> {
    pub(super) fn declarations(&self) -> Checked {
        let p = self.p;
        let Some(atom) = p.atom() else { return fault("head", Rule::NoInstruction) };
        let warps = p.warps.0.saturating_mul(p.warps.1);
        let most = MOST_LANES / p.arch.lanes() - p.producers();
        must((1..=most).contains(&warps), "head", || Rule::Warps(warps))?;
        let atomic = p.buffers.iter().any(|b| b.access == Access::Atomic);
        must(!atomic, "head", || Rule::Access("tile programs have no atomic buffers".to_string()))?;
        let g = &p.grid;
        self.size("grid", g.rows)?;
        self.size("grid", g.cols)?;
        g.batch.iter().try_for_each(|&s| self.size("grid", s))?;
        let sized = [g.tile.0, g.tile.1, g.bands].iter().all(|n| (1..=1024).contains(n));
        must(sized && g.batch.len() <= 8, "grid", || {
            Rule::Declaration(
                "tiles and bands are 1 to 1024, and a batch has at most 8 dimensions".to_string(),
            )
        })?;
        p.views.iter().enumerate().try_for_each(|(i, v)| self.declared_view(&format!("g{i}"), v))?;
        self.declared_table()?;
        p.tiles.iter().enumerate().try_for_each(|(i, t)| self.declared_tile(&format!("t{i}"), t))?;
        self.group_declarations()?;
        let limit = p.arch.shared_bytes();
        let bytes = p.shared_bytes();
        must(bytes <= u64::from(limit), "workgroup memory", || Rule::SharedMemory(bytes, limit))?;
        let mut registers = 0u64;
        for (i, f) in p.fragments.iter().enumerate() {
            let of = match f.role {
                // One column, which is the only multiple of 1 that they may have.
                Role::Rows => (atom.block, 1),
                Role::Left => (atom.block, atom.depth),
                Role::Right => (atom.depth, atom.block),
                Role::Sum => (atom.block, atom.block),
            };
            let whole = |size: u32, of: u32| size > 0 && size.is_multiple_of(of) && size <= 256;
            let column = f.role != Role::Rows || f.cols == 1 && atom.loading != Loading::Matrix;
            must(whole(f.rows, of.0) && whole(f.cols, of.1) && column, &format!("f{i}"), || {
                Rule::Declaration(format!(
                    "such a fragment has multiples of {} rows and {} columns, at most 256; rows have one",
                    of.0, of.1
                ))
            })?;
            registers += u64::from(f.rows / of.0 * (f.cols / of.1))
                * u64::from(match f.role {
                    Role::Sum => atom.block * atom.block / p.arch.lanes(),
                    Role::Rows => atom.block / atom.m * atom.sum.rows(),
                    _ => atom.block_registers(),
                });
        }
        must(registers <= u64::from(REGISTERS), "fragments", || Rule::Registers(registers, REGISTERS))
    }

    fn declared_view(&self, at: &str, v: &ViewDecl) -> Checked {
        let Some(buffer) = self.p.buffers.get(v.buffer.index()) else {
            return fault(at, Rule::Unknown(format!("b{}", v.buffer.0)));
        };
        for size in [v.base, v.row_stride, v.col_stride].iter().chain(&v.batch) {
            self.size(at, *size)?;
        }
        for size in [v.rows, v.cols] {
            self.extent(at, size)?;
        }
        let float = matches!(buffer.dtype, DType::F32 | DType::F16 | DType::BF16);
        // Integers are unpacked a chunk at a time, and never stored.
        let integer = is_unpacked(buffer.dtype) && buffer.access == Access::Read && v.vector == CHUNK;
        must(float || integer, at, || {
            Rule::Declaration(format!(
                "views have elements of f32, f16 or bf16, or 8 integers of 4 or 8 bits at once, not {}",
                buffer.dtype
            ))
        })?;
        let together = v.vector as usize * buffer.dtype.bits();
        must(matches!(v.vector, 1 | 2 | 4 | 8) && together <= 128, at, || {
            Rule::Declaration(format!("{} elements of {} at once", v.vector, buffer.dtype))
        })?;
        must(v.vector == 1 || v.col_stride == crate::ir::Size::Const(1), at, || {
            Rule::Declaration("columns that are accessed together have a stride of 1".to_string())
        })?;
        if let Some(heads) = v.heads {
            self.size(at, heads.stride)?;
            must((1..=1024).contains(&heads.count), at, || {
                Rule::Declaration(format!("a view of {} matrices", heads.count))
            })?;
        }
        self.declared_window(at, v)?;
        self.declared_lookup(at, v)?;
        must(v.batch.len() == self.p.grid.batch.len(), at, || {
            Rule::Declaration("a view has a stride for each dimension of the grid's batch".to_string())
        })
    }

    fn declared_tile(&self, at: &str, t: &TileDecl) -> Checked {
        must(t.dtype == self.p.dtype, at, || {
            Rule::Declaration(format!("a tile of {} in a program of {}", t.dtype, self.p.dtype))
        })?;
        let cols = t.cols.is_power_of_two() && (CHUNK..=1024).contains(&t.cols);
        must(cols && (1..=1024).contains(&t.rows) && (1..=8).contains(&t.stages), at, || {
            Rule::Declaration(
                "a tile has 1 to 1024 rows, 8 to 1024 columns (a power of two), 1 to 8 stages".to_string(),
            )
        })?;
        let atom = self.p.atom();
        must(t.matrices == atom.is_some_and(Atom::is_in_matrices), at, || {
            Rule::Declaration(
                "tiles are stored in matrices where those are loaded whole, and only there".to_string(),
            )
        })?;
        let rows = atom.is_some_and(|atom| atom.loading == Loading::Matrix) && !t.matrices;
        must(t.pad == atom.map_or(0, Atom::pad) && !(rows && t.swizzle != Swizzle::NONE), at, || {
            Rule::Declaration("rows of which matrices are loaded have a pad and no swizzle".to_string())
        })?;
        must(!t.matrices || t.rows.is_multiple_of(CHUNK) && t.swizzle == Swizzle::NONE, at, || {
            Rule::Declaration("a tile in matrices has multiples of 8 rows and no swizzle".to_string())
        })?;
        must(t.swizzle.bits <= 5 && 1 << t.swizzle.bits <= t.chunks() && t.swizzle.shift < 16, at, || {
            Rule::Declaration("a swizzle that leaves its row".to_string())
        })
    }
}
