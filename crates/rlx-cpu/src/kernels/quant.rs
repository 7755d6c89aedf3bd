//! Quantisation to small integers and back.
//!
//! `saturate(round(x / scale) + zero)` with rounding to nearest even, and NaN as 0; `(q − zero) · scale`. A
//! quotient is rounded to f32 (f64 for f64) before it is rounded to an integer: that decides ties.

use rlx_ir::{DType, Error, ErrorKind, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::scalar::{Number, float, is_float};
use super::{BindCx, CompileCx, Needs, RunCx, Shared, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::isa::{Isa, Kernel};
use crate::layout::At;
use crate::math::{Dequantiser, Quantiser};
use crate::simd::{LANES, Simd};

/// Elements of a piece, when one scale serves many.
const PIECE: usize = 2048;

/// Nanoseconds for one element, roughly.
pub(crate) const NANOS: f64 = 0.7;

/// Floats with arithmetic, and integers of whole bytes.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let inputs: Vec<DType> = node.inputs.iter().map(|&id| graph.shape(id).dtype()).collect();
    let [x, scale, ..] = inputs[..] else { return Claim::No("it needs a scale".into()) };
    let (real, whole) = match node.op {
        Op::Quantize { .. } => (x, node.shape.dtype()),
        _ => (node.shape.dtype(), x),
    };
    let known = matches!(whole, DType::I8 | DType::U8 | DType::I16 | DType::U16 | DType::I32);
    if known && is_float(real) && is_float(scale) {
        return Claim::Native;
    }
    Claim::No(format!("there is no quantisation between {real} and {whole} by {scale}"))
}

/// Whether a quantisation or its opposite may be computed in a region: f32 and bytes by one scale.
pub(crate) fn fuses(node: &Node, graph: &Graph) -> bool {
    let dtype = |i: usize| node.inputs.get(i).map(|&id| graph.shape(id).dtype());
    let (real, whole) = match node.op {
        Op::Quantize { axis: None, .. } => (dtype(0), Some(node.shape.dtype())),
        Op::Dequantize { axis: None, .. } => (Some(node.shape.dtype()), dtype(0)),
        _ => return false,
    };
    [real, dtype(1)] == [Some(DType::F32); 2] && matches!(whole, Some(DType::I8 | DType::U8))
}

/// The kernel of a quantisation.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let (axis, quantize) = match cx.node().op {
        Op::Quantize { axis, .. } => (axis, true),
        Op::Dequantize { axis, .. } => (axis, false),
        ref op => return Err(no_kernel(op, "it is no quantisation")),
    };
    let (from, to) = (cx.step.inputs[0].dtype, cx.step.outputs[0].dtype);
    let scale = cx.step.inputs[1].dtype;
    Ok(Box::new(Quant { axis, quantize, from, to, scale, plan: None }))
}

#[derive(Debug, Clone, Copy)]
struct Quant {
    axis: Option<usize>,
    quantize: bool,
    from: DType,
    to: DType,
    scale: DType,
    plan: Option<Plan>,
}

/// A bound quantisation; all operands are dense.
#[derive(Debug, Clone, Copy)]
struct Plan {
    x: At,
    scale: At,
    zero: Option<At>,
    out: At,
    elements: usize,
    /// How many elements in a row have one scale, and how many scales there are.
    run: usize,
    params: usize,
    worth: bool,
}

impl StepKernel for Quant {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, out) = (&cx.inputs[0], &cx.outputs[0]);
        let elements = x.layout.elements();
        let (run, params) = match self.axis {
            None => (elements, 1),
            Some(axis) if axis < x.layout.rank() => {
                (x.layout.range(axis + 1, x.layout.rank()).elements(), x.dims()[axis])
            }
            Some(axis) => return Err(mismatch(format!("{:?} has no axis {axis}", x.dims()))),
        };
        if x.dims() != out.dims() || cx.inputs[1..].iter().any(|p| p.layout.elements() != params) {
            return Err(mismatch(format!("{params} scales of {:?}", x.dims())));
        }
        let nanos = elements as f64 * NANOS;
        self.plan = Some(Plan {
            x: x.at,
            scale: cx.inputs[1].at,
            zero: cx.inputs.get(2).map(|z| z.at),
            out: out.at,
            elements,
            run,
            params,
            worth: nanos > WORTH_NANOS,
        });
        Ok(Needs::time(nanos))
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = &self.plan else { return Err(unbound()) };
        let whole = if self.quantize { self.to } else { self.from };
        // SAFETY: the caller's promise; the types are those of the operands.
        unsafe {
            match whole {
                DType::I8 => self.convert::<i8>(cx, plan),
                DType::U8 => self.convert::<u8>(cx, plan),
                DType::I16 => self.convert::<i16>(cx, plan),
                DType::U16 => self.convert::<u16>(cx, plan),
                DType::I32 => self.convert::<i32>(cx, plan),
                other => {
                    return Err(Error::new(ErrorKind::Internal, format!("{other} is no quantised type")));
                }
            }
        }
        Ok(())
    }
}

/// An integer type that floats are quantised to.
trait Whole: Copy + Send + Sync + 'static {
    const LOWEST: i32;
    const HIGHEST: i32;
    fn to_i64(self) -> i64;
    /// The lowest bits.
    fn from_i32(x: i32) -> Self;
}

macro_rules! whole {
    ($($t:ty)*) => {$(
        impl Whole for $t {
            const LOWEST: i32 = <$t>::MIN as i32;
            const HIGHEST: i32 = <$t>::MAX as i32;
            fn to_i64(self) -> i64 { i64::from(self) }
            fn from_i32(x: i32) -> $t { x as $t }
        }
    )*};
}
whole!(i8 u8 i16 u16 i32);

/// Scale and zero point.
#[derive(Debug, Clone, Copy)]
struct Param {
    scale: f64,
    zero: i64,
}

impl Quant {
    unsafe fn convert<Q: Whole>(&self, cx: &mut RunCx<'_, '_>, plan: &Plan) {
        let real = if self.quantize { self.from } else { self.to };
        // SAFETY: the caller's promise.
        unsafe { float!(real, R => self.convert_between::<R, Q>(cx, plan)) }
    }

    unsafe fn convert_between<R: Real, Q: Whole>(&self, cx: &mut RunCx<'_, '_>, plan: &Plan) {
        let (p, isa, scale_type) = (*plan, cx.isa, self.scale);
        let (x, out, scale) = (cx.shared::<u8>(p.x), cx.shared::<u8>(p.out), cx.shared::<u8>(p.scale));
        let zero: Option<Shared<Q>> = p.zero.map(|at| cx.shared(at));
        let param = |i: usize| {
            // SAFETY: the caller's promise; there are `params` scales and zero points.
            unsafe {
                let scale = float!(scale_type, S => Real::to_f64(*scale.get().cast::<S>().add(i)));
                Param { scale, zero: zero.map_or(0, |z| (*z.get().add(i)).to_i64()) }
            }
        };
        let quantize = self.quantize;
        cx.parallel(p.worth, p.elements.div_ceil(PIECE), &|range, _| {
            let (mut at, end) = (range.start * PIECE, (range.end * PIECE).min(p.elements));
            while at < end {
                let n = (p.run - at % p.run).min(end - at);
                let param = param(at / p.run % p.params);
                // SAFETY: the caller's promise; ranges are disjoint.
                unsafe {
                    if quantize {
                        R::quantize::<Q>(
                            isa,
                            x.get().cast::<R>().add(at),
                            out.get().cast::<Q>().add(at),
                            n,
                            param,
                        );
                    } else {
                        let (x, out) = (x.get().cast::<Q>().add(at), out.get().cast::<R>().add(at));
                        R::dequantize::<Q>(isa, x, out, n, param);
                    }
                }
                at += n;
            }
        });
    }
}

/// A float type that is quantised.
trait Real: Number {
    fn to_f64(self) -> f64;
    fn from_f64(x: f64) -> Self;
    /// `x / scale`, rounded as the type's arithmetic rounds it.
    fn quotient(self, scale: f64) -> f64;

    /// Quantises `n` elements.
    ///
    /// # Safety
    /// `x` must be readable and `out` writable for `n` elements.
    #[inline]
    unsafe fn quantize<Q: Whole>(_isa: Isa, x: *const Self, out: *mut Q, n: usize, p: Param) {
        for i in 0..n {
            // SAFETY: the caller's promise.
            unsafe {
                *out.add(i) = saturated((*x.add(i)).quotient(p.scale).round_ties_even() + p.zero as f64)
            };
        }
    }

    /// The opposite.
    ///
    /// # Safety
    /// `x` must be readable and `out` writable for `n` elements.
    #[inline]
    unsafe fn dequantize<Q: Whole>(_isa: Isa, x: *const Q, out: *mut Self, n: usize, p: Param) {
        // SAFETY: the caller's promise.
        unsafe { dequantize_each(x, out, n, p) }
    }
}

/// The nearest element of the type; NaN is 0.
#[inline(always)]
fn saturated<Q: Whole>(x: f64) -> Q {
    let x = if x.is_nan() { 0.0 } else { x };
    Q::from_i32(x.clamp(f64::from(Q::LOWEST), f64::from(Q::HIGHEST)) as i32)
}

impl Real for f64 {
    fn to_f64(self) -> f64 {
        self
    }
    fn from_f64(x: f64) -> f64 {
        x
    }
    fn quotient(self, scale: f64) -> f64 {
        self / scale
    }
}

macro_rules! narrow_reals {
    ($($t:ty)*) => {$(
        impl Real for $t {
            fn to_f64(self) -> f64 { <$t>::to_f64(self) }
            fn from_f64(x: f64) -> $t { <$t>::from_f64(x) }
            fn quotient(self, scale: f64) -> f64 { f64::from((<$t>::to_f64(self) / scale) as f32) }
        }
    )*};
}
narrow_reals!(half::f16 half::bf16);

impl Real for f32 {
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    fn from_f64(x: f64) -> f32 {
        x as f32
    }
    fn quotient(self, scale: f64) -> f64 {
        f64::from((f64::from(self) / scale) as f32)
    }

    #[inline]
    unsafe fn quantize<Q: Whole>(isa: Isa, x: *const f32, out: *mut Q, n: usize, p: Param) {
        let scale = p.scale as f32;
        // Short runs are not worth a vector, and a finer scale needs its own division.
        if n < LANES || f64::from(scale) != p.scale {
            for i in 0..n {
                // SAFETY: the caller's promise.
                unsafe {
                    *out.add(i) = saturated((*x.add(i)).quotient(p.scale).round_ties_even() + p.zero as f64)
                };
            }
            return;
        }
        let by = Quantiser::new(scale, p.zero as f32, Q::LOWEST as f32, Q::HIGHEST as f32);
        isa.run(Quantize32 { x, out, n, by });
    }

    #[inline]
    unsafe fn dequantize<Q: Whole>(isa: Isa, x: *const Q, out: *mut f32, n: usize, p: Param) {
        let (scale, signed) = (p.scale as f32, Q::LOWEST < 0);
        // A difference of bytes times an f32 is the same number in f64 before it is rounded.
        if size_of::<Q>() == 1 && n >= LANES && f64::from(scale) == p.scale {
            let by = Dequantiser { scale, zero: p.zero as i32, signed };
            return isa.run(Dequantize32 { x: x.cast(), out, n, by });
        }
        // SAFETY: the caller's promise.
        unsafe { dequantize_each(x, out, n, p) }
    }
}

/// The floats of bytes.
struct Dequantize32 {
    x: *const u8,
    out: *mut f32,
    n: usize,
    by: Dequantiser,
}

impl Kernel for Dequantize32 {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for i in (0..self.n).step_by(LANES) {
            let n = (self.n - i).min(LANES);
            let x = self.x.wrapping_add(i);
            // SAFETY: `Real::dequantize` was promised the memory; i + n ≤ self.n.
            unsafe {
                let q = if self.by.signed { s.load_bytes::<true>(x, n) } else { s.load_bytes::<false>(x, n) };
                s.store_upto(self.out.wrapping_add(i), n, self.by.vector(s, q));
            }
        }
    }
}

/// Quantises `n` elements to bytes.
///
/// # Safety
/// `x` must be readable and `out` writable for `n` elements.
pub(crate) unsafe fn to_bytes(isa: Isa, x: *const f32, out: *mut u8, n: usize, by: Quantiser) {
    isa.run(Quantize32 { x, out, n, by });
}

struct Quantize32<Q> {
    x: *const f32,
    out: *mut Q,
    n: usize,
    by: Quantiser,
}

impl<Q: Whole> Kernel for Quantize32<Q> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if const { size_of::<Q>() == 1 } {
            // SAFETY: `Real::quantize` was promised the memory.
            return unsafe { self.by.bytes(s, self.x, self.out.cast(), self.n) };
        }
        let mut i = 0;
        while i < self.n {
            let n = (self.n - i).min(LANES);
            // SAFETY: `Real::quantize` was promised the memory; i + n ≤ self.n.
            unsafe {
                let y = self.by.vector(s, s.load_upto(self.x.add(i), n));
                match size_of::<Q>() {
                    2 => s.store_u16(self.out.add(i).cast(), n, y),
                    _ => s.store_upto(self.out.add(i).cast(), n, s.from_bits(y)),
                }
            }
            i += n;
        }
    }
}

/// # Safety
/// `x` must be readable and `out` writable for `n` elements.
#[inline]
unsafe fn dequantize_each<R: Real, Q: Whole>(x: *const Q, out: *mut R, n: usize, p: Param) {
    for i in 0..n {
        // SAFETY: the caller's promise.
        unsafe { *out.add(i) = R::from_f64(((*x.add(i)).to_i64() - p.zero) as f64 * p.scale) };
    }
}
