//! Reductions of contiguous rows: of f32, and of 16-bit floats, which are widened as they are
//! read and rounded once at the end.

use crate::gemm::Packed;
use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd, before_line};

/// How a row becomes one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// Σ x; zero of nothing.
    Sum,
    /// Σ x / n; NaN of nothing.
    Mean,
    /// Σ x², each square rounded to the element type as if it were stored; zero of nothing.
    SumOfSquares,
    /// Σ x² / n, likewise; NaN of nothing.
    MeanOfSquares,
    /// The largest; −∞ of nothing, NaN if any is NaN.
    Max,
    /// The smallest; ∞ of nothing, NaN if any is NaN.
    Min,
}

impl Reduction {
    /// The result of nothing, but for means.
    pub(super) fn start(self) -> f32 {
        match self {
            Reduction::Max => f32::NEG_INFINITY,
            Reduction::Min => f32::INFINITY,
            _ => 0.0,
        }
    }

    /// The reduction of a part of the elements.
    pub(crate) fn of_parts(self) -> Reduction {
        match self {
            Reduction::Mean => Reduction::Sum,
            Reduction::MeanOfSquares => Reduction::SumOfSquares,
            whole => whole,
        }
    }

    /// The reduction that joins what [`Reduction::of_parts`] gave to the result of the whole.
    pub(crate) fn of_partial(self) -> Reduction {
        match self {
            Reduction::SumOfSquares => Reduction::Sum,
            Reduction::MeanOfSquares => Reduction::Mean,
            whole => whole,
        }
    }

    /// Whether the result is divided by the number of elements.
    pub(crate) fn is_mean(self) -> bool {
        matches!(self, Reduction::Mean | Reduction::MeanOfSquares)
    }
}

/// What is summed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Term {
    /// x.
    Value,
    /// (x − centre)².
    Square,
    /// x², rounded to the element type.
    OwnSquare,
}

/// Partial sums taken in turn, so that additions do not wait for each other.
const CHAINS: usize = 4;

/// Σ x, Σ (x − centre)² or Σ x², in the fixed order of this module.
///
/// # Safety
/// `p` must be readable for `n` elements.
#[inline(always)]
pub(crate) unsafe fn sum_of<S: Simd, T: Packed>(s: S, p: *const T, n: usize, term: Term, centre: f32) -> f32 {
    let c = s.splat(centre);
    let mut acc = [s.zero(); CHAINS];
    let mut i = 0;
    // SAFETY: the caller's promise; i + lanes ≤ n.
    unsafe {
        while i + CHAINS * LANES <= n {
            let x = loaded::<S, T, CHAINS>(s, p.add(i), term);
            for (a, x) in acc.iter_mut().zip(x) {
                *a = accumulate(s, *a, x, c, term);
            }
            i += CHAINS * LANES;
        }
        for a in &mut acc {
            let lanes = (n - i).min(LANES);
            if lanes == 0 {
                break;
            }
            let x = T::load(s, p.add(i), lanes);
            // Lanes past the end must add nothing, also where the centre is not zero.
            let x = match term {
                Term::Square if lanes < LANES => fill(s, x, lanes, centre),
                Term::OwnSquare => T::round(s, s.mul(x, x)),
                _ => x,
            };
            *a = accumulate(s, *a, x, c, term);
            i += lanes;
        }
    }
    s.sum(joined(s, acc))
}

/// The sum of partial sums.
#[inline(always)]
fn joined<S: Simd>(s: S, acc: [S::F; CHAINS]) -> S::F {
    s.add(s.add(acc[0], acc[2]), s.add(acc[1], acc[3]))
}

/// The sum of the lanes of each vector, with the bits of [`Simd::sum`]: lanes eight apart are added, of two vectors at once, then lanes four
/// apart, of four vectors, and so on.
#[inline(always)]
fn sums_of_lanes<S: Simd>(s: S, mut x: [S::F; LANES]) -> S::F {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            let (low, high) = s.zip(x[i], x[i + half]);
            x[i] = s.add(low, high);
        }
        half /= 2;
    }
    x[0]
}

/// The first `V ≤` [`CHAINS`] vectors of a row, or their squares where those are the terms.
///
/// # Safety
/// `p` must be readable for so many vectors.
#[inline(always)]
unsafe fn loaded<S: Simd, T: Packed, const V: usize>(s: S, p: *const T, term: Term) -> [S::F; CHAINS] {
    let mut x = [s.zero(); CHAINS];
    for (v, x) in x[..V].iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *x = unsafe { T::load(s, p.add(v * LANES), LANES) };
    }
    if term == Term::OwnSquare {
        // Two are rounded together in less time than one after the other.
        for v in (0..V).step_by(2) {
            let [a, b] = [x[v], x[v + 1]];
            [x[v], x[v + 1]] = T::round_two(s, [s.mul(a, a), s.mul(b, b)]);
        }
    }
    x
}

#[inline(always)]
fn accumulate<S: Simd>(s: S, acc: S::F, x: S::F, centre: S::F, term: Term) -> S::F {
    match term {
        Term::Value | Term::OwnSquare => s.add(acc, x),
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
pub(crate) unsafe fn max_of<S: Simd, T: Packed>(s: S, p: *const T, n: usize) -> f32 {
    // SAFETY: the caller's promise.
    s.reduce_max(unsafe { extreme(s, p, n, f32::NEG_INFINITY, true) })
}

#[inline(always)]
unsafe fn extreme<S: Simd, T: Packed>(s: S, p: *const T, n: usize, start: f32, largest: bool) -> S::F {
    let mut acc = [s.splat(start); CHAINS];
    let mut i = 0;
    // SAFETY: the caller's promise; i + lanes ≤ n.
    unsafe {
        while i + CHAINS * LANES <= n {
            for (v, a) in acc.iter_mut().enumerate() {
                *a = more(s, largest, T::load(s, p.add(i + v * LANES), LANES), *a);
            }
            i += CHAINS * LANES;
        }
        while i < n {
            let lanes = (n - i).min(LANES);
            let mut x = T::load(s, p.add(i), lanes);
            if lanes < LANES {
                x = fill(s, x, lanes, start);
            }
            acc[0] = more(s, largest, x, acc[0]);
            i += lanes;
        }
    }
    more(s, largest, more(s, largest, acc[0], acc[2]), more(s, largest, acc[1], acc[3]))
}

/// Multiplies a row by a factor.
///
/// # Safety
/// `n` elements must be readable and writable.
#[inline(always)]
pub(super) unsafe fn scale_row<S: Simd>(s: S, x: *mut f32, n: usize, factor: S::F) {
    let whole = n - n % LANES;
    // SAFETY: the caller's promise.
    unsafe {
        for i in (0..whole).step_by(LANES) {
            s.store(x.add(i), s.mul(s.load(x.add(i)), factor));
        }
        if whole < n {
            let x = x.add(whole);
            s.store_upto(x, n - whole, s.mul(s.load_n(x, n - whole), factor));
        }
    }
}

/// The smallest and the largest of a row, in one pass: ∞ and −∞ of nothing, twice NaN if any is NaN.
///
/// # Safety
/// `p` must be readable for `n` elements.
pub unsafe fn extremes(isa: Isa, p: *const f32, n: usize) -> [f32; 2] {
    isa.run(Extremes { p, n })
}

struct Extremes {
    p: *const f32,
    n: usize,
}

impl Kernel for Extremes {
    type Output = [f32; 2];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> [f32; 2] {
        let Extremes { p, n } = self;
        let mut low = [s.splat(f32::INFINITY); CHAINS];
        let mut high = [s.splat(f32::NEG_INFINITY); CHAINS];
        let (mut i, lead) = (0, before_line(p, n));
        // SAFETY: `extremes` was promised the row; i + lanes ≤ n.
        unsafe {
            while i < n {
                let whole = i >= lead && i + CHAINS * LANES <= n;
                if !whole {
                    let lanes = if i < lead { lead } else { (n - i).min(LANES) };
                    let x = s.load_upto(p.add(i), lanes);
                    if s.mask_bits(s.is_nan(fill(s, x, lanes, 0.0))) != 0 {
                        return [f32::NAN; 2];
                    }
                    low[0] = s.min_raw(fill(s, x, lanes, f32::INFINITY), low[0]);
                    high[0] = s.max_raw(fill(s, x, lanes, f32::NEG_INFINITY), high[0]);
                    i += lanes;
                    continue;
                }
                let mut nan = false;
                for v in 0..CHAINS {
                    let x = s.load(p.add(i + v * LANES));
                    low[v] = s.min_raw(x, low[v]);
                    high[v] = s.max_raw(x, high[v]);
                    nan |= s.mask_bits(s.is_nan(x)) != 0;
                }
                if nan {
                    return [f32::NAN; 2];
                }
                i += CHAINS * LANES;
            }
        }
        let low = s.min_raw(s.min_raw(low[0], low[2]), s.min_raw(low[1], low[3]));
        let high = s.max_raw(s.max_raw(high[0], high[2]), s.max_raw(high[1], high[3]));
        [s.reduce_min(low), s.reduce_max(high)]
    }
}

/// The greater or the lesser of two.
#[inline(always)]
fn more<S: Simd>(s: S, largest: bool, x: S::F, acc: S::F) -> S::F {
    if largest { s.max(x, acc) } else { s.min(x, acc) }
}

/// Replaces the lanes from `n` on by `value`.
#[inline(always)]
pub(crate) fn fill<S: Simd>(s: S, x: S::F, n: usize, value: f32) -> S::F {
    const INDEX: [f32; LANES] = [0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.];
    s.select(s.lt(s.from_array(&INDEX), s.splat(n as f32)), x, s.splat(value))
}

/// Contiguous rows that are `step` elements apart.
#[derive(Debug, Clone, Copy)]
pub struct Rows<T = f32> {
    /// The first element.
    pub x: *const T,
    /// Elements from one row to the next.
    pub step: isize,
    /// Rows.
    pub rows: usize,
    /// Elements of a row.
    pub columns: usize,
}

/// Reduces each row to one element; those of `out` are `out_step` apart.
///
/// # Safety
/// Every element of the rows must be readable, and `out` writable for as many as there are rows.
pub unsafe fn reduce_rows<T: Packed>(isa: Isa, how: Reduction, rows: Rows<T>, out: *mut T, out_step: isize) {
    T::run(isa, ReduceRows { rows, how, out, out_step });
}

struct ReduceRows<T> {
    rows: Rows<T>,
    how: Reduction,
    out: *mut T,
    out_step: isize,
}

impl<T: Packed> Kernel for ReduceRows<T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = self.rows.columns;
        let divisor = n as f32;
        let (mut p, mut out) = (self.rows.x, self.out);
        // SAFETY: `reduce_rows` was promised the rows and the results.
        let done = unsafe { self.by_sixteen(s) };
        (p, out) = (p.wrapping_offset(done as isize * self.rows.step), out.wrapping_add(done));
        for _ in done..self.rows.rows {
            // SAFETY: `reduce_rows` was promised the rows, and an element of `out` for each.
            unsafe {
                let y = match self.how {
                    Reduction::Sum => sum_of(s, p, n, Term::Value, 0.0),
                    Reduction::Mean => sum_of(s, p, n, Term::Value, 0.0) / divisor,
                    Reduction::SumOfSquares => sum_of(s, p, n, Term::OwnSquare, 0.0),
                    Reduction::MeanOfSquares => sum_of(s, p, n, Term::OwnSquare, 0.0) / divisor,
                    Reduction::Max => s.reduce_max(extreme(s, p, n, f32::NEG_INFINITY, true)),
                    Reduction::Min => s.reduce_min(extreme(s, p, n, f32::INFINITY, false)),
                };
                T::store(s, out, 1, s.splat(y));
            }
            (p, out) = (p.wrapping_offset(self.rows.step), out.wrapping_offset(self.out_step));
        }
    }
}

impl<T: Packed> ReduceRows<T> {
    /// The sums or means of sixteen rows of `V` vectors from `p` on.
    ///
    /// # Safety
    /// As [`reduce_rows`], of so many rows, whose results are neighbours.
    #[inline(always)]
    unsafe fn sixteen<S: Simd, const V: usize>(&self, s: S, p: *const T, out: *mut T) {
        let squares = self.how.of_parts() == Reduction::SumOfSquares;
        let mut lanes = [s.zero(); LANES];
        for (i, lanes) in lanes.iter_mut().enumerate() {
            let p = p.wrapping_offset(i as isize * self.rows.step);
            let term = if squares { Term::OwnSquare } else { Term::Value };
            // SAFETY: the caller's promise.
            let mut acc = unsafe { loaded::<S, T, V>(s, p, term) };
            for acc in &mut acc[..V] {
                *acc = s.add(s.zero(), *acc);
            }
            *lanes = joined(s, acc);
        }
        let sums = sums_of_lanes(s, lanes);
        // SAFETY: the caller's promise.
        unsafe { T::store(s, out, LANES, finished(s, self.how, sums, self.rows.columns)) };
    }

    /// As many rows as there are sixteen of, if they are short and whole vectors; gives their number.
    ///
    /// # Safety
    /// As [`reduce_rows`].
    #[inline(always)]
    unsafe fn by_sixteen<S: Simd>(&self, s: S) -> usize {
        let Rows { x, step, rows, columns } = self.rows;
        let sums = self.how.of_partial().of_parts() == Reduction::Sum;
        if !sums || self.out_step != 1 || !columns.is_multiple_of(LANES) || columns > CHAINS * LANES {
            return 0;
        }
        let whole = rows / LANES * LANES;
        for first in (0..whole).step_by(LANES) {
            let (p, out) = (x.wrapping_offset(first as isize * step), self.out.wrapping_add(first));
            // SAFETY: the caller's promise.
            unsafe {
                match columns / LANES {
                    1 => self.sixteen::<S, 1>(s, p, out),
                    2 => self.sixteen::<S, 2>(s, p, out),
                    3 => self.sixteen::<S, 3>(s, p, out),
                    _ => self.sixteen::<S, 4>(s, p, out),
                }
            }
        }
        whole
    }
}

/// Reduces each row of `columns` elements of `x` to one element of `out`.
///
/// # Panics
/// If `x` is shorter than `out.len() · columns`.
pub fn reduce<T: Packed>(isa: Isa, how: Reduction, x: &[T], columns: usize, out: &mut [T]) {
    let x = &x[..out.len() * columns];
    let rows = Rows { x: x.as_ptr(), step: columns as isize, rows: out.len(), columns };
    // SAFETY: both slices are as long as that.
    unsafe { reduce_rows(isa, how, rows, out.as_mut_ptr(), 1) }
}

/// The result of `count` elements, whose partial results are joined.
#[inline(always)]
pub(super) fn finished<S: Simd>(s: S, how: Reduction, total: S::F, count: usize) -> S::F {
    if how.is_mean() { s.div(total, s.splat(count as f32)) } else { total }
}
