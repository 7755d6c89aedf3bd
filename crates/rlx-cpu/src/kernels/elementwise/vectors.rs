//! Functions of one and two floats in vectors: of f32, and of 16-bit floats, which are widened as they are read and rounded as
//! they are written.

use rlx_ir::DType;

use super::chain::Chain;
use super::instr::{ARGS, Code, Source};
use crate::gemm::Packed;
use crate::isa::{Isa, Kernel};
use crate::kernels::packed_type;
use crate::math::{self, Unary};
use crate::simd::{LANES, Simd};

/// Functions of two floats that have vector code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    Pow,
}

/// Runs a loop, `each!(|x, y| z)`, with the instruction that an op is. Which one is asked once.
macro_rules! with_instruction {
    ($s:ident, $op:expr, $each:ident) => {
        match $op {
            Binary::Add => $each!(|x, y| $s.add(x, y)),
            Binary::Sub => $each!(|x, y| $s.sub(x, y)),
            Binary::Mul => $each!(|x, y| $s.mul(x, y)),
            Binary::Div => $each!(|x, y| $s.div(x, y)),
            Binary::Max => $each!(|x, y| $s.max(x, y)),
            Binary::Min => $each!(|x, y| $s.min(x, y)),
            // Not an instruction: who has a loop asks for it before.
            Binary::Pow => {}
        }
    };
}
pub(super) use with_instruction;

/// `out[i] = f(x[i])` of f32 or 16-bit floats; other types are left alone.
///
/// # Safety
/// `x` must be readable and `out` writable for `n` elements of the type; they may be the same, but must not overlap otherwise.
pub(super) unsafe fn unary(isa: Isa, f: Unary, dtype: DType, x: *const u8, out: *mut u8, n: usize) {
    if dtype != DType::F32
        && let Some(chain) = Chain::of(Code::Unary(f, dtype))
    {
        // Widened in registers, as other functions are by way of memory.
        // SAFETY: the caller's promise.
        return unsafe { chain.run(isa, &[Source { ptr: x, step: 1 }; ARGS], out, n) };
    }
    // SAFETY: the caller's promise.
    unsafe { packed_type!(dtype, T => math::apply(isa, f, x.cast::<T>(), out.cast::<T>(), n), _ => {}) }
}

/// `out[i] = op(a[i], b[i])` of f32 or 16-bit floats; other types are left alone.
///
/// # Safety
/// The sources must be readable for `n` elements of the type (1 where they step by 0) and `out` writable for `n`; `out` may be a
/// source, but must not overlap one otherwise.
pub(super) unsafe fn binary(
    isa: Isa,
    op: Binary,
    dtype: DType,
    a: Source,
    b: Source,
    out: *mut u8,
    n: usize,
) {
    packed_type!(dtype, T => {
        let out = out.cast::<T>();
        match op {
            Binary::Pow => T::run(isa, Pow { a, b, out, n }),
            _ => T::run(isa, Pair { op, a, b, out, n }),
        }
    }, _ => {});
}

/// An op that is an instruction.
///
/// Nothing is chosen within its loop. While a processor waits for memory it looks a few hundred instructions ahead, so the fewer a cache line takes, the more
/// lines are on their way.
struct Pair<T> {
    op: Binary,
    a: Source,
    b: Source,
    out: *mut T,
    n: usize,
}

/// Elements that are computed together: four vectors. (On a Zen 5 loops over two take up to 1.4 times as long where operands come from memory, by where their
/// instructions happen to be; those over one or four do not.)
const BLOCK: usize = 2 * TWO;

/// Two vectors, which of bf16 take little longer than one.
const TWO: usize = 2 * LANES;

impl<T: Packed> Kernel for Pair<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Pair { op, out, n, .. } = self;
        let mut repeated = [Repeated([T::zero(); BLOCK]), Repeated([T::zero(); BLOCK])];
        let [first, second] = &mut repeated;
        // SAFETY: `binary` was promised the memory.
        let [(a, a_step), (b, b_step)] = unsafe { [first.of(self.a), second.of(self.b)] };
        // (Loops: a closure would be a function without the instruction set.)
        macro_rules! each {
            (|$x:ident, $y:ident| $e:expr) => {{
                let (whole, mut i) = (n - n % BLOCK, 0);
                // One value is read where it is repeated, for a block.
                // SAFETY: `binary` was promised the memory, of which i + n ≤ self.n elements are used.
                unsafe {
                    while i < whole {
                        let (a, b, out) = (a.add(i * a_step), b.add(i * b_step), out.add(i));
                        let mut x = [T::load_two(s, a), T::load_two(s, a.add(TWO))];
                        let y = [T::load_two(s, b), T::load_two(s, b.add(TWO))];
                        for k in 0..4 {
                            let ($x, $y) = (x[k / 2][k % 2], y[k / 2][k % 2]);
                            x[k / 2][k % 2] = $e;
                        }
                        T::store_two(s, out, x[0]);
                        T::store_two(s, out.add(TWO), x[1]);
                        i += BLOCK;
                    }
                    while i < n {
                        let n = (n - i).min(LANES);
                        let ($x, $y) = (T::load(s, a.add(i * a_step), n), T::load(s, b.add(i * b_step), n));
                        T::store(s, out.add(i), n, $e);
                        i += n;
                    }
                }
            }};
        }
        with_instruction!(s, op, each);
    }
}

/// A block of one value.
#[repr(align(64))]
struct Repeated<T>([T; BLOCK]);

impl<T: Packed> Repeated<T> {
    /// Where a source is read and by how much to step: one value is read where it is repeated.
    ///
    /// # Safety
    /// The source must be readable.
    #[inline(always)]
    unsafe fn of(&mut self, from: Source) -> (*const T, usize) {
        let p = from.ptr.cast::<T>();
        if from.step == 0 {
            // SAFETY: the caller's promise.
            self.0 = [unsafe { *p }; BLOCK];
            return (self.0.as_ptr(), 0);
        }
        (p, 1)
    }
}

struct Pow<T> {
    a: Source,
    b: Source,
    out: *mut T,
    n: usize,
}

impl<T: Packed> Kernel for Pow<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Source { ptr: a, step: a_step } = self.a;
        let Source { ptr: b, step: b_step } = self.b;
        let (a, b) = (a.cast::<T>(), b.cast::<T>());
        let mut i = 0;
        while i < self.n {
            let n = (self.n - i).min(LANES);
            // SAFETY: `binary` was promised the memory; i + n ≤ self.n.
            unsafe {
                let x = if a_step == 0 { T::splat(s, a) } else { T::load(s, a.add(i), n) };
                let y = if b_step == 0 { T::splat(s, b) } else { T::load(s, b.add(i), n) };
                T::store(s, self.out.add(i), n, math::pow(s, x, y));
            }
            i += n;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(op: Binary, x: f32, y: f32) -> f32 {
        match op {
            Binary::Add => x + y,
            Binary::Sub => x - y,
            Binary::Mul => x * y,
            Binary::Div => x / y,
            Binary::Max => x.max(y),
            Binary::Min => x.min(y),
            Binary::Pow => x.powf(y),
        }
    }

    /// With operands of one value on either side and on both, of whole blocks, single vectors and parts of one.
    fn check<T: Packed>(dtype: DType, number: fn(f32) -> T) {
        let a: Vec<T> = (0..200).map(|i| number((i as f32 * 0.7).sin() + 1.5)).collect();
        let b: Vec<T> = (0..200).map(|i| number((i as f32 * 1.3).cos() - 1.5)).collect();
        let ops = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Max, Binary::Min];
        let steps = [(1, 1), (0, 1), (1, 0), (0, 0)];
        for (op, (a_step, b_step), isa) in ops
            .into_iter()
            .flat_map(|op| steps.map(|steps| (op, steps)))
            .flat_map(|(op, steps)| Isa::available().into_iter().map(move |isa| (op, steps, isa)))
        {
            let source = |v: &[T], step| Source { ptr: v.as_ptr().cast(), step };
            for n in [1, 16, 47, 64, 96, 150, 200] {
                let mut out = vec![T::zero(); n];
                let (x, y) = (source(&a, a_step), source(&b, b_step));
                // SAFETY: operands have 200 elements, and there is room for the results.
                unsafe { binary(isa, op, dtype, x, y, out.as_mut_ptr().cast(), n) };
                for (i, got) in out.iter().enumerate() {
                    let wanted = number(expected(op, a[i * a_step].widen(), b[i * b_step].widen()));
                    assert_eq!(got.widen(), wanted.widen(), "{op:?}, element {i} of {n} on {isa}");
                }
            }
        }
    }

    #[test]
    fn pairs_are_rounded_once() {
        check(DType::F32, |x| x);
        check(DType::F16, half::f16::from_f32);
        check(DType::BF16, half::bf16::from_f32);
    }
}
