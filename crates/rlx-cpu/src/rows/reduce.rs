//! Reductions of contiguous rows.

use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};

/// How a row becomes one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// Σ x; zero of nothing.
    Sum,
    /// Σ x / n; NaN of nothing.
    Mean,
    /// Σ x².
    SumOfSquares,
    /// The largest; −∞ of nothing, NaN if any is NaN.
    Max,
    /// The smallest; ∞ of nothing, NaN if any is NaN.
    Min,
}

/// What is summed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Term {
    /// x.
    Value,
    /// (x − centre)².
    Square,
}

/// Partial sums taken in turn, so that additions do not wait for each other.
const CHAINS: usize = 4;

/// Σ x or Σ (x − centre)², in the fixed order of this module.
///
/// # Safety
/// `p` must be readable for `n` elements.
#[inline(always)]
pub(crate) unsafe fn sum_of<S: Simd>(s: S, p: *const f32, n: usize, term: Term, centre: f32) -> f32 {
    let c = s.splat(centre);
    let mut acc = [s.zero(); CHAINS];
    let mut i = 0;
    // SAFETY: the caller's promise; i + lanes ≤ n.
    unsafe {
        while i + CHAINS * LANES <= n {
            for (v, a) in acc.iter_mut().enumerate() {
                *a = accumulate(s, *a, s.load(p.add(i + v * LANES)), c, term);
            }
            i += CHAINS * LANES;
        }
        for a in &mut acc {
            let lanes = (n - i).min(LANES);
            if lanes == 0 {
                break;
            }
            let x = s.load_upto(p.add(i), lanes);
            // Lanes past the end must add nothing, also where the centre is not zero.
            let kept = if lanes == LANES || term == Term::Value { x } else { fill(s, x, lanes, centre) };
            *a = accumulate(s, *a, kept, c, term);
            i += lanes;
        }
    }
    s.sum(s.add(s.add(acc[0], acc[2]), s.add(acc[1], acc[3])))
}

#[inline(always)]
fn accumulate<S: Simd>(s: S, acc: S::F, x: S::F, centre: S::F, term: Term) -> S::F {
    match term {
        Term::Value => s.add(acc, x),
        Term::Square => {
            let d = s.sub(x, centre);
            s.mul_add(d, d, acc)
        }
    }
}

/// The largest of a row; −∞ of nothing, NaN if any is NaN.
///
/// # Safety
/// `p` must be readable for `n` elements.
#[inline(always)]
pub(crate) unsafe fn max_of<S: Simd>(s: S, p: *const f32, n: usize) -> f32 {
    // SAFETY: the caller's promise.
    s.reduce_max(unsafe { extreme(s, p, n, f32::NEG_INFINITY, true) })
}

#[inline(always)]
unsafe fn extreme<S: Simd>(s: S, p: *const f32, n: usize, start: f32, largest: bool) -> S::F {
    let mut acc = s.splat(start);
    let mut i = 0;
    while i < n {
        let lanes = (n - i).min(LANES);
        // SAFETY: the caller's promise; i + lanes ≤ n.
        let mut x = unsafe { s.load_upto(p.add(i), lanes) };
        if lanes < LANES {
            x = fill(s, x, lanes, start);
        }
        acc = if largest { s.max(x, acc) } else { s.min(x, acc) };
        i += lanes;
    }
    acc
}

/// Replaces the lanes from `n` on by `value`.
#[inline(always)]
pub(crate) fn fill<S: Simd>(s: S, x: S::F, n: usize, value: f32) -> S::F {
    const INDEX: [f32; LANES] = [0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.];
    s.select(s.lt(s.from_array(&INDEX), s.splat(n as f32)), x, s.splat(value))
}

struct Reduce<'a> {
    x: &'a [f32],
    columns: usize,
    out: &'a mut [f32],
    how: Reduction,
}

impl Kernel for Reduce<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = self.columns;
        for (r, out) in self.out.iter_mut().enumerate() {
            let row = &self.x[r * n..(r + 1) * n];
            let p = row.as_ptr();
            // SAFETY: the row has n elements.
            *out = unsafe {
                match self.how {
                    Reduction::Sum => sum_of(s, p, n, Term::Value, 0.0),
                    Reduction::Mean => sum_of(s, p, n, Term::Value, 0.0) / n as f32,
                    Reduction::SumOfSquares => sum_of(s, p, n, Term::Square, 0.0),
                    Reduction::Max => s.reduce_max(extreme(s, p, n, f32::NEG_INFINITY, true)),
                    Reduction::Min => s.reduce_min(extreme(s, p, n, f32::INFINITY, false)),
                }
            };
        }
    }
}

/// Reduces each row of `columns` elements of `x` to one element of `out`.
///
/// # Panics
/// If `x` is shorter than `out.len() · columns`.
pub fn reduce(isa: Isa, how: Reduction, x: &[f32], columns: usize, out: &mut [f32]) {
    isa.run(Reduce { x, columns, out, how });
}
