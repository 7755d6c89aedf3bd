//! Functions of one and two floats in vectors: of f32, and of 16-bit floats, which are widened as they are read and rounded as
//! they are written.

use rlx_ir::DType;

use super::chain::Chain;
use super::instr::{ARGS, Code, Results, Source};
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
pub(super) unsafe fn unary(isa: Isa, f: Unary, dtype: DType, x: *const u8, results: Results) {
    let Results { out, n, .. } = results;
    if dtype != DType::F32
        && let Some(chain) = Chain::of(Code::Unary(f, dtype))
    {
        // Widened in registers, as other functions are by way of memory.
        // SAFETY: the caller's promise.
        return unsafe { chain.run(isa, &[Source { ptr: x, step: 1 }; ARGS], results) };
    }
    // SAFETY: the caller's promise.
    unsafe {
        packed_type!(dtype, T => math::apply_past(isa, f, x.cast::<T>(), out.cast::<T>(), n, results.go_past()), _ => {})
    }
}

/// `out[i] = op(a[i], b[i])` of f32 or 16-bit floats; other types are left alone.
///
/// # Safety
/// The sources must be readable for `n` elements of the type (1 where they step by 0) and `out` writable for `n`; `out` may be a
/// source, but must not overlap one otherwise.
pub(super) unsafe fn binary(isa: Isa, op: Binary, dtype: DType, [a, b]: [Source; 2], results: Results) {
    let (n, past) = (results.n, results.go_past());
    packed_type!(dtype, T => {
        let out = results.out.cast::<T>();
        match op {
            Binary::Pow => T::run(isa, Pow { a, b, out, n }),
            _ => T::run(isa, Pair { op, a, b, out, n, past }),
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
    /// Whether results of f32 are stored past the caches.
    past: bool,
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
        let Pair { op, out, n, past, .. } = self;
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
                        if const { size_of::<T>() == 4 } && past {
                            store_past(s, out.cast(), [x[0][0], x[0][1], x[1][0], x[1][1]]);
                        } else {
                            T::store_two(s, out, x[0]);
                            T::store_two(s, out.add(TWO), x[1]);
                        }
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

/// Stores vectors past the caches.
///
/// # Safety
/// `out` must be writable for them, at the beginning of a line of memory. Nothing may read them before [`fence`](crate::stores::fence).
#[inline(always)]
pub(super) unsafe fn store_past<S: Simd, const V: usize>(s: S, out: *mut f32, x: [S::F; V]) {
    for (k, x) in x.into_iter().enumerate() {
        // SAFETY: the caller's promise; a vector is a line.
        unsafe { s.store_non_temporal(out.add(k * LANES), x) };
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
    use crate::stores::{LINE, Stores, fence};

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
            for (n, stores) in [1, 16, 47, 64, 96, 150, 200].into_iter().flat_map(each_way) {
                // From the beginning of a line of memory on, which stores past the caches want.
                let mut out = vec![T::zero(); n + LINE];
                let start = out.as_ptr().align_offset(LINE);
                let out = &mut out[start..start + n];
                let (x, y) = (source(&a, a_step), source(&b, b_step));
                // SAFETY: operands have 200 elements, and there is room for the results, which are read behind the fence.
                unsafe {
                    binary(isa, op, dtype, [x, y], Results { out: out.as_mut_ptr().cast(), n, stores });
                }
                fence();
                for (i, got) in out.iter().enumerate() {
                    let wanted = number(expected(op, a[i * a_step].widen(), b[i * b_step].widen()));
                    assert_eq!(got.widen(), wanted.widen(), "{op:?}, element {i} of {n} on {isa}");
                }
            }
        }
    }

    fn each_way(n: usize) -> [(usize, Stores); 2] {
        [Stores::Cached, Stores::NonTemporal].map(|stores| (n, stores))
    }

    #[test]
    fn functions_are_stored_past_the_caches() {
        let x: Vec<f32> = (0..150).map(|i| (i as f32 - 70.0) * 0.13).collect();
        let functions = [Unary::Relu, Unary::Function(math::Function::Exp)];
        for (f, isa) in
            functions.into_iter().flat_map(|f| Isa::available().into_iter().map(move |isa| (f, isa)))
        {
            for n in [1, 16, 47, 64, 150] {
                let results = [Stores::Cached, Stores::NonTemporal].map(|stores| {
                    let mut out = vec![0f32; n + LINE];
                    let start = out.as_ptr().align_offset(LINE);
                    let p = out[start..].as_mut_ptr().cast();
                    // SAFETY: there are 150 operands and room for the results, which are read behind the fence.
                    unsafe { unary(isa, f, DType::F32, x.as_ptr().cast(), Results { out: p, n, stores }) };
                    fence();
                    out.rotate_left(start);
                    out
                });
                assert_eq!(results[0], results[1], "{n} on {isa}");
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
