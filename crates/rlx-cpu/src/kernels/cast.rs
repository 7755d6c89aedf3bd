//! Casts between packed elements, several of which share a byte, and whole bytes.
//!
//! The compiler does everything else in whole bytes (`rlx_ir::decompose`), so these are the only kernels of packed elements.
//! Packed tensors are dense; the other side may be a view. Tasks are tiles of whole bytes, so that no two threads write one.
//! All other casts are elementwise.

use rlx_ir::{DType, Graph, Node, Result};
use rlx_opt::Claim;

use super::elementwise::{self, gather, scatter};
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, unbound};
use crate::kernels::elementwise::instr::Source;
use crate::math::small_floats::{self, SmallFloat};
use crate::program::layout::{At, Layout};

/// Elements of a tile: whole bytes of packed elements.
const TILE: usize = 256;

/// Between a packed type and the whole bytes that hold it, and from floats that must be rounded once.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let (from, to) = (graph.shape(node.inputs[0]).dtype(), node.shape.dtype());
    if !from.is_packed() && !to.is_packed() {
        return elementwise::claim(node, graph);
    }
    let rounds = to == DType::F4E2M1 && matches!(from, DType::F32 | DType::F64);
    if from.in_whole_bytes() == to || from == to.in_whole_bytes() || rounds {
        Claim::Native
    } else {
        Claim::No(format!("there is no kernel from {from} to {to}"))
    }
}

/// The kernel of a cast.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let (from, to) = (cx.step.inputs[0].dtype, cx.step.outputs[0].dtype);
    if from.is_packed() || to.is_packed() {
        Ok(Box::new(PackedCast { from, to, plan: None }))
    } else {
        elementwise::compile(cx)
    }
}

#[derive(Debug, Clone, Copy)]
struct PackedCast {
    from: DType,
    to: DType,
    plan: Option<Plan>,
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    from: At,
    to: At,
    /// Of the side that is not packed.
    layout: Layout,
    elements: usize,
    worth: bool,
}

impl StepKernel for PackedCast {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (from, to) = (&cx.inputs[0], &cx.outputs[0]);
        if from.dims() != to.dims() {
            return Err(mismatch(format!("a cast of {:?} to {:?}", from.dims(), to.dims())));
        }
        let layout = if self.from.is_packed() { to.layout } else { from.layout };
        let elements = layout.elements();
        let nanos = elements as f64;
        let worth = nanos > WORTH_NANOS;
        self.plan = Some(Plan { from: from.at, to: to.at, layout, elements, worth });
        Ok(Needs::time(nanos))
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = self.plan else { return Err(unbound()) };
        let (from, to, this) = (cx.shared::<u8>(plan.from), cx.shared::<u8>(plan.to), *self);
        cx.parallel(plan.worth, plan.elements.div_ceil(TILE), &|range, _| {
            for tile in range {
                let start = tile * TILE;
                let n = TILE.min(plan.elements - start);
                // SAFETY: the caller's promise; views were checked when bound, and tiles are whole bytes of their own.
                unsafe {
                    if this.from.is_packed() {
                        this.unpack(from.get(), to.get(), &plan.layout, start, n);
                    } else {
                        this.pack(from.get(), to.get(), &plan.layout, start, n);
                    }
                }
            }
        });
        Ok(())
    }
}

impl PackedCast {
    /// # Safety
    /// `from` must be packed elements, and `to` writable through the layout, for `start..start + n`.
    unsafe fn unpack(&self, from: *const u8, to: *mut u8, layout: &Layout, start: usize, n: usize) {
        let (bits, per_byte, from_type) = (self.from.bits(), 8 / self.from.bits(), self.from);
        let mut tile = [0u8; TILE];
        for (i, out) in tile[..n].iter_mut().enumerate() {
            let at = start + i;
            // SAFETY: the caller's promise.
            let byte = unsafe { *from.add(at / per_byte) };
            let high = byte << (8 - bits * (at % per_byte + 1));
            *out = match from_type {
                DType::I2 | DType::I4 => ((high as i8) >> (8 - bits)) as u8,
                DType::F4E2M1 => SmallFloat::E4M3FN.encode(SmallFloat::E2M1.decode(high >> (8 - bits))),
                _ => high >> (8 - bits),
            };
        }
        // SAFETY: the caller's promise.
        unsafe { scatter(Source { ptr: tile.as_ptr(), step: 1 }, to, layout, 1, start, n) };
    }

    /// # Safety
    /// `from` must be readable through the layout, and `to` be packed elements, for `start..start + n`.
    unsafe fn pack(&self, from: *const u8, to: *mut u8, layout: &Layout, start: usize, n: usize) {
        let (bits, per_byte, size) = (self.to.bits(), 8 / self.to.bits(), self.from.size_bytes());
        // As words, for alignment; at most 8 bytes an element.
        let mut words = [0u64; TILE];
        let tile = words.as_mut_ptr().cast::<u8>();
        // SAFETY: the caller's promise; the tile holds as many of the largest elements.
        unsafe { gather(from, layout, size, start, n, tile) };
        let code = |i: usize| {
            // SAFETY: the tile has n elements of the type.
            unsafe {
                match self.from {
                    DType::F32 => SmallFloat::E2M1.encode(*tile.cast::<f32>().add(i)),
                    DType::F64 => SmallFloat::E2M1.encode(small_floats::to_odd(*tile.cast::<f64>().add(i))),
                    DType::F8E4M3FN => SmallFloat::E2M1.encode(SmallFloat::E4M3FN.decode(*tile.add(i))),
                    _ => *tile.add(i),
                }
            }
        };
        let mask = 0xFFu8 >> (8 - bits);
        for first in (0..n).step_by(per_byte) {
            let last = (first + per_byte).min(n);
            let byte = (first..last).fold(0u8, |byte, i| byte | (code(i) & mask) << (bits * (i - first)));
            // SAFETY: the caller's promise; tiles start at whole bytes.
            unsafe { *to.add((start + first) / per_byte) = byte };
        }
    }
}
