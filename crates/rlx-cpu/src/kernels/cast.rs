//! Casts to and from packed elements, several of which share a byte.
//!
//! The compiler does everything else in whole bytes (`rlx_ir::decompose`), so these are the only kernels of packed elements.
//! Packed tensors are dense; the other side may be a view. Tasks are tiles of whole bytes, so that no two threads write one.
//! All other casts are elementwise.

use half::{bf16, f16};
use rlx_ir::{DType, Graph, Node, Result};
use rlx_opt::Claim;

use super::elementwise::{self, gather, scatter};
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, unbound};
use crate::kernels::elementwise::instr::Source;
use crate::layout::{At, Layout};
use crate::math::small_floats::{self, SmallFloat};

/// Elements of a tile: whole bytes of packed elements.
const TILE: usize = 256;

/// A tile of elements of at most 8 bytes.
type Tile = [u64; TILE];

/// Every cast of what the graph language casts.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let (from, to) = (graph.shape(node.inputs[0]).dtype(), node.shape.dtype());
    if from.is_packed() || to.is_packed() { Claim::Native } else { elementwise::claim(node, graph) }
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
    source: Layout,
    target: Layout,
    elements: usize,
    worth: bool,
}

impl StepKernel for PackedCast {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (from, to) = (&cx.inputs[0], &cx.outputs[0]);
        if from.dims() != to.dims() {
            return Err(mismatch(format!("a cast of {:?} to {:?}", from.dims(), to.dims())));
        }
        let elements = to.layout.elements();
        let nanos = 2.0 * elements as f64;
        let worth = nanos > WORTH_NANOS;
        let (source, target) = (from.layout, to.layout);
        self.plan = Some(Plan { from: from.at, to: to.at, source, target, elements, worth });
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
                unsafe { this.tile(from.get(), to.get(), &plan, start, n) };
            }
        });
        Ok(())
    }
}

impl PackedCast {
    /// # Safety
    /// `from` must be readable and `to` writable, through their layouts, for the elements `start..start + n`.
    unsafe fn tile(&self, from: *const u8, to: *mut u8, plan: &Plan, start: usize, n: usize) {
        let (mut source, mut target): (Tile, Tile) = ([0; TILE], [0; TILE]);
        let size = self.from.size_bytes();
        if self.from.is_packed() {
            let (bits, per_byte) = (self.from.bits(), 8 / self.from.bits());
            let codes: &mut [u8] = bytemuck::cast_slice_mut(&mut source);
            for (i, code) in codes[..n].iter_mut().enumerate() {
                let (at, shift) = ((start + i) / per_byte, bits * ((start + i) % per_byte));
                // SAFETY: the caller's promise; packed elements are dense.
                *code = unsafe { *from.add(at) } >> shift & (0xFF >> (8 - bits));
            }
        } else {
            // SAFETY: the caller's promise; a tile holds as many of the largest elements.
            unsafe { gather(from, &plan.source, size, start, n, source.as_mut_ptr().cast()) };
        }
        for i in 0..n {
            store(load(&source, i, self.from), &mut target, i, self.to);
        }
        if !self.to.is_packed() {
            let from = Source { ptr: target.as_ptr().cast(), step: 1 };
            // SAFETY: the caller's promise.
            unsafe { scatter(from, to, &plan.target, self.to.size_bytes(), start, n) };
            return;
        }
        let (bits, per_byte) = (self.to.bits(), 8 / self.to.bits());
        let codes: &[u8] = bytemuck::cast_slice(&target);
        for (at, codes) in codes[..n].chunks(per_byte).enumerate() {
            let byte = codes.iter().rev().fold(0u8, |byte, code| byte << bits | code & (0xFF >> (8 - bits)));
            // SAFETY: the caller's promise; packed elements are dense, and tiles start at whole bytes.
            unsafe { *to.add(start / per_byte + at) = byte };
        }
    }
}

/// An element as a number: exact.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Number {
    /// The lowest 64 bits of an integer.
    Int(i64),
    Float(f64),
}

/// Element `i` of a tile; packed elements have a byte each.
fn load(tile: &Tile, i: usize, dtype: DType) -> Number {
    macro_rules! element {
        ($t:ty) => {
            bytemuck::cast_slice::<u64, $t>(tile)[i]
        };
    }
    match dtype {
        DType::F64 => Number::Float(element!(f64)),
        DType::F32 => Number::Float(element!(f32).into()),
        DType::F16 => Number::Float(f16::from_bits(element!(u16)).into()),
        DType::BF16 => Number::Float(bf16::from_bits(element!(u16)).into()),
        DType::F8E8M0 => Number::Float(small_floats::power_of_two(element!(u8)).into()),
        DType::I64 => Number::Int(element!(i64)),
        // Its lowest bits, and no sign: what is beyond i64 is beyond every packed float.
        DType::U64 => {
            Number::Int(element!(u64).min(i64::MAX as u64) as i64 & !0xFF | i64::from(element!(u64) as u8))
        }
        DType::I32 => Number::Int(element!(i32).into()),
        DType::U32 => Number::Int(element!(u32).into()),
        DType::I16 => Number::Int(element!(i16).into()),
        DType::U16 => Number::Int(element!(u16).into()),
        DType::I8 => Number::Int(element!(i8).into()),
        DType::I4 => Number::Int(((element!(u8) << 4) as i8 >> 4).into()),
        DType::I2 => Number::Int(((element!(u8) << 6) as i8 >> 6).into()),
        _ => match small_floats::format(dtype) {
            Some(format) => Number::Float(format.decode(element!(u8)).into()),
            None => Number::Int(element!(u8).into()),
        },
    }
}

/// Writes a number as element `i` of a tile: floats rounded to nearest, into integers saturated; integers wrap around.
fn store(x: Number, tile: &mut Tile, i: usize, dtype: DType) {
    macro_rules! element {
        ($t:ty, $x:expr) => {
            bytemuck::cast_slice_mut::<u64, $t>(tile)[i] = $x
        };
    }
    let float = match x {
        Number::Int(x) => x as f64,
        Number::Float(x) => x,
    };
    let whole = match x {
        Number::Int(x) => x,
        Number::Float(x) => {
            let (min, max) = dtype.int_range().unwrap_or((0, 0));
            (x as i64).clamp(min.max(i64::MIN.into()) as i64, max.min(i64::MAX.into()) as i64)
        }
    };
    let odd = small_floats::to_odd(float);
    match dtype {
        DType::F64 => element!(f64, float),
        DType::F32 => element!(f32, float as f32),
        DType::F16 => element!(u16, f16::from_f32(odd).to_bits()),
        DType::BF16 => element!(u16, bf16::from_f32(odd).to_bits()),
        DType::F8E8M0 => element!(u8, small_floats::nearest_power_of_two(odd)),
        DType::I64 | DType::U64 => element!(i64, whole),
        DType::I32 | DType::U32 => element!(i32, whole as i32),
        DType::I16 | DType::U16 => element!(i16, whole as i16),
        DType::Bool => element!(u8, u8::from(float != 0.0)),
        _ => match small_floats::format(dtype) {
            Some(format) => element!(u8, SmallFloat::encode(format, odd)),
            None => element!(u8, whole as u8),
        },
    }
}
