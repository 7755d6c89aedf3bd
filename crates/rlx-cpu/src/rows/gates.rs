//! The gates of a recurrent layer: what a step does to one row behind the products.

use crate::isa::{Isa, Kernel};
use crate::math::{Unary, apply_within};
use crate::simd::{LANES, Simd};

/// Which cell, and how far its step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gates {
    /// `h = f(gates)`.
    Plain,
    /// The gates z and r are opened; `candidate = r ⊙ h`.
    Reset,
    /// The product of that with the weights of the candidate, which holds the input too, makes the next state.
    Mixed,
    /// z, r, n of the product alone, without the input: `n = g(xₙ + r ⊙ (n + b))`.
    Linear,
    /// i, o, f, c.
    Lstm,
}

/// One row of a step. Pointers that the cell does not use are null.
#[derive(Debug, Clone, Copy)]
pub struct GateRow {
    /// What is done.
    pub gates: Gates,
    /// The functions of the gates, of the candidate and of the cell.
    pub functions: [Unary; 3],
    /// The largest magnitude of a gate before its function.
    pub clip: Option<f32>,
    /// Whether the forget gate is one less the input gate.
    pub coupled: bool,
    /// Elements of the state.
    pub n: usize,
    /// The sums of the gates; overwritten.
    pub sums: *mut f32,
    /// The row of the input, for [`Gates::Linear`].
    pub x: *const f32,
    /// The candidate's bias, for [`Gates::Linear`].
    pub bias: *const f32,
    /// The candidate of [`Gates::Reset`] and [`Gates::Mixed`].
    pub candidate: *mut f32,
    /// Weights by which i, o, f see the cell.
    pub peepholes: Option<*const f32>,
    /// The state; replaced.
    pub h: *mut f32,
    /// The cell; replaced.
    pub c: *mut f32,
}

/// Computes a row.
///
/// # Safety
/// Each pointer that the cell uses must cover its part of the row: `sums` and `x` all gates, `peepholes` 3·n, the
/// others n elements; none overlaps another.
pub unsafe fn gate_row(isa: Isa, row: &GateRow) {
    isa.run(*row);
}

/// `out = a · b + c`, where any may be `out`.
#[inline(always)]
unsafe fn mul_add<S: Simd>(s: S, a: *const f32, b: *const f32, c: *const f32, out: *mut f32, n: usize) {
    let mut i = 0;
    while i < n {
        let l = (n - i).min(LANES);
        // SAFETY: the caller's promise; i + l ≤ n.
        unsafe {
            let (a, b) = (s.load_upto(a.add(i), l), s.load_upto(b.add(i), l));
            s.store_upto(out.add(i), l, s.mul_add(a, b, s.load_upto(c.add(i), l)));
        }
        i += l;
    }
}

/// `out = a · b`.
#[inline(always)]
unsafe fn mul<S: Simd>(s: S, a: *const f32, b: *const f32, out: *mut f32, n: usize) {
    let mut i = 0;
    while i < n {
        let l = (n - i).min(LANES);
        // SAFETY: the caller's promise; i + l ≤ n.
        unsafe { s.store_upto(out.add(i), l, s.mul(s.load_upto(a.add(i), l), s.load_upto(b.add(i), l))) };
        i += l;
    }
}

/// `out = a + b`.
#[inline(always)]
unsafe fn add<S: Simd>(s: S, a: *const f32, b: *const f32, out: *mut f32, n: usize) {
    let mut i = 0;
    while i < n {
        let l = (n - i).min(LANES);
        // SAFETY: the caller's promise; i + l ≤ n.
        unsafe { s.store_upto(out.add(i), l, s.add(s.load_upto(a.add(i), l), s.load_upto(b.add(i), l))) };
        i += l;
    }
}

/// `out = 1 − a`.
#[inline(always)]
unsafe fn rest<S: Simd>(s: S, a: *const f32, out: *mut f32, n: usize) {
    let mut i = 0;
    while i < n {
        let l = (n - i).min(LANES);
        // SAFETY: the caller's promise; i + l ≤ n.
        unsafe { s.store_upto(out.add(i), l, s.sub(s.splat(1.0), s.load_upto(a.add(i), l))) };
        i += l;
    }
}

impl GateRow {
    /// Gate number `k`.
    #[inline(always)]
    fn gate(&self, k: usize) -> *mut f32 {
        self.sums.wrapping_add(k * self.n)
    }

    /// Clips `count` elements and applies function `f` to them.
    #[inline(always)]
    unsafe fn open<S: Simd>(&self, s: S, f: usize, at: *mut f32, count: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(most) = self.clip {
                apply_within(s, Unary::Clip { lo: -most, hi: most }, at, at, count);
            }
            apply_within(s, self.functions[f], at, at, count);
        }
    }

    /// `h = (1 − z) ⊙ n + z ⊙ h`.
    #[inline(always)]
    unsafe fn mix<S: Simd>(&self, s: S, z: *const f32, n: *const f32) {
        let mut i = 0;
        while i < self.n {
            let l = (self.n - i).min(LANES);
            // SAFETY: the caller's promise; i + l ≤ n.
            unsafe {
                let (z, n) = (s.load_upto(z.add(i), l), s.load_upto(n.add(i), l));
                let fresh = s.mul(s.sub(s.splat(1.0), z), n);
                let h = s.mul_add(z, s.load_upto(self.h.add(i), l), fresh);
                s.store_upto(self.h.add(i), l, h);
            }
            i += l;
        }
    }

    #[inline(always)]
    unsafe fn linear<S: Simd>(&self, s: S) {
        let n = self.n;
        let (z, r, candidate) = (self.gate(0), self.gate(1), self.gate(2));
        // SAFETY: the caller's promise.
        unsafe {
            add(s, z, self.x, z, 2 * n);
            self.open(s, 0, z, 2 * n);
            add(s, candidate, self.bias, candidate, n);
            mul_add(s, r, candidate, self.x.add(2 * n), candidate, n);
            self.open(s, 1, candidate, n);
            self.mix(s, z, candidate);
        }
    }

    #[inline(always)]
    unsafe fn lstm<S: Simd>(&self, s: S) {
        let n = self.n;
        let (i, o, f, new) = (self.gate(0), self.gate(1), self.gate(2), self.gate(3));
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(p) = self.peepholes {
                mul_add(s, p, self.c, i, i, n);
                mul_add(s, p.add(2 * n), self.c, f, f, n);
            }
            self.open(s, 0, i, n);
            if self.coupled {
                rest(s, i, f, n);
            } else {
                self.open(s, 0, f, n);
            }
            self.open(s, 1, new, n);
            mul(s, i, new, new, n);
            mul_add(s, f, self.c, new, self.c, n);
            if let Some(p) = self.peepholes {
                mul_add(s, p.add(n), self.c, o, o, n);
            }
            self.open(s, 0, o, n);
            apply_within(s, self.functions[2], self.c, self.h, n);
            mul(s, o, self.h, self.h, n);
        }
    }
}

impl Kernel for GateRow {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = self.n;
        // SAFETY: `gate_row` was promised the row.
        unsafe {
            match self.gates {
                Gates::Plain => {
                    self.open(s, 0, self.sums, n);
                    std::ptr::copy_nonoverlapping(self.sums, self.h, n);
                }
                Gates::Reset => {
                    self.open(s, 0, self.sums, 2 * n);
                    mul(s, self.gate(1), self.h, self.candidate, n);
                }
                Gates::Mixed => {
                    self.open(s, 1, self.candidate, n);
                    self.mix(s, self.sums, self.candidate);
                }
                Gates::Linear => self.linear(s),
                Gates::Lstm => self.lstm(s),
            }
        }
    }
}
