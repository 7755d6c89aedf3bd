//! Quantisation by one scale and its opposite, between f32 and bytes, as instructions of the tile program.

use rlx_ir::DType;

use super::instr::Source;
use crate::isa::Kernel;
use crate::math::{Dequantiser, Quantiser};
use crate::simd::{LANES, Simd};

/// The range of an integer type of one byte.
pub(crate) fn byte_range(dtype: DType) -> Option<(f32, f32)> {
    match dtype {
        DType::I8 => Some((-128.0, 127.0)),
        DType::U8 => Some((0.0, 255.0)),
        _ => None,
    }
}

/// A byte of this type as a number.
#[inline(always)]
pub(crate) fn number(byte: u8, dtype: DType) -> i32 {
    if dtype == DType::I8 { i32::from(byte as i8) } else { i32::from(byte) }
}

/// Quantises a tile: x, scale and, if there is one, zero point (a byte of the same type).
pub(super) struct Quantise {
    pub(super) to: DType,
    pub(super) sources: [Source; 3],
    pub(super) zero: bool,
    pub(super) out: *mut u8,
    pub(super) n: usize,
}

impl Kernel for Quantise {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [x, scale, zero] = self.sources;
        let (low, high) = byte_range(self.to).unwrap_or((0.0, 0.0));
        // SAFETY: `Code::run` was promised the memory; i < n.
        unsafe {
            let quantiser = |i: usize| {
                let zero = if self.zero { number(*zero.ptr.add(i * zero.step), self.to) as f32 } else { 0.0 };
                Quantiser::new(*scale.ptr.cast::<f32>().add(i * scale.step), zero, low, high)
            };
            let x_at = x.ptr.cast::<f32>();
            if scale.step == 0 && (!self.zero || zero.step == 0) && x.step == 1 {
                quantiser(0).bytes(s, x_at, self.out, self.n);
            } else {
                for i in 0..self.n {
                    *self.out.add(i) = quantiser(i).one(*x_at.add(i * x.step)) as u8;
                }
            }
        }
    }
}

/// The floats of a tile of bytes: q, scale and, if there is one, zero point (a byte of the same type).
pub(super) struct Dequantise {
    pub(super) from: DType,
    pub(super) sources: [Source; 3],
    pub(super) zero: bool,
    pub(super) out: *mut f32,
    pub(super) n: usize,
}

impl Kernel for Dequantise {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if self.from == DType::I8 { self.bytes::<S, true>(s) } else { self.bytes::<S, false>(s) }
    }
}

impl Dequantise {
    #[inline(always)]
    fn bytes<S: Simd, const SIGNED: bool>(self, s: S) {
        let [x, scale, zero] = self.sources;
        // SAFETY: `Code::run` was promised the memory; i + n ≤ self.n.
        unsafe {
            let scale_at = |i: usize| *scale.ptr.cast::<f32>().add(i * scale.step);
            let zero_at =
                |i: usize| if self.zero { number(*zero.ptr.add(i * zero.step), self.from) } else { 0 };
            if scale.step == 0 && (!self.zero || zero.step == 0) && x.step == 1 {
                let by = Dequantiser { scale: scale_at(0), zero: zero_at(0), signed: SIGNED };
                for i in (0..self.n).step_by(LANES) {
                    let n = (self.n - i).min(LANES);
                    s.store_upto(self.out.add(i), n, by.vector(s, s.load_bytes::<SIGNED>(x.ptr.add(i), n)));
                }
            } else {
                for i in 0..self.n {
                    let q = number(*x.ptr.add(i * x.step), self.from);
                    *self.out.add(i) = (q - zero_at(i)) as f32 * scale_at(i);
                }
            }
        }
    }
}
