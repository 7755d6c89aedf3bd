//! What kernel tests share: seeded numbers and comparison against f64.

/// A small generator (xorshift*), so that tests are the same everywhere.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number of `0..n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }

    /// Uniform in [lo, hi).
    pub(crate) fn uniform(&mut self, lo: f32, hi: f32) -> f32 {
        lo + (hi - lo) * ((self.next() >> 40) as f32 / (1u64 << 24) as f32)
    }

    pub(crate) fn vec(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.uniform(-1.0, 1.0)).collect()
    }
}

/// The error of `got` in units in the last place of the f32 nearest to `want`.
pub(crate) fn ulp(got: f32, want: f64) -> f64 {
    let w = want as f32;
    if got.is_nan() && want.is_nan() || got == w {
        return 0.0;
    }
    if !got.is_finite() || !w.is_finite() {
        return f64::INFINITY;
    }
    let step = if w.abs() < f32::MIN_POSITIVE {
        f64::from(f32::from_bits(1))
    } else {
        f64::from(f32::from_bits(w.abs().to_bits() + 1)) - f64::from(w.abs())
    };
    (f64::from(got) - want).abs() / step
}

/// Asserts |got − want| ≤ tol · (1 + |want|) everywhere, NaN where wanted.
#[track_caller]
pub(crate) fn assert_close(got: &[f32], want: &[f64], tol: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}: length");
    for (i, (&g, &w)) in got.iter().zip(want).enumerate() {
        let ok = (g.is_nan() && w.is_nan())
            || f64::from(g) == w
            || (f64::from(g) - w).abs() <= tol * (1.0 + w.abs());
        assert!(ok, "{what}: element {i} is {g}, expected {w}");
    }
}
