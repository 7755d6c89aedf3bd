//! Powers.

use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};

/// xʸ, correctly rounded but for rare ties, with the special values of IEEE 754 `pow`.
///
/// Each lane is computed in f64; exponents that all equal a small constant take a short way.
#[inline(always)]
pub fn pow<S: Simd>(s: S, x: S::F, y: S::F) -> S::F {
    let all = s.to_array(y);
    let uniform = s.mask_bits(s.eq(y, s.splat(all[0]))) == u16::MAX;
    if uniform {
        match all[0] {
            1.0 => return x,
            2.0 => return s.mul(x, x),
            -1.0 => return s.div(s.splat(1.0), x),
            _ => {}
        }
    }
    let mut lanes = s.to_array(x);
    scalar(&mut lanes, &all);
    s.from_array(&lanes)
}

#[inline(never)]
fn scalar(x: &mut [f32; LANES], y: &[f32; LANES]) {
    for (x, &y) in x.iter_mut().zip(y) {
        *x = f64::from(*x).powf(f64::from(y)) as f32;
    }
}

struct Pow<'a> {
    x: &'a mut [f32],
    y: &'a [f32],
}

impl Kernel for Pow<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut ys = self.y.chunks(LANES);
        for x in self.x.chunks_mut(LANES) {
            let Some(y) = ys.next() else { return };
            let n = x.len().min(y.len());
            // SAFETY: both chunks have at least `n` elements.
            unsafe {
                let r = pow(s, s.load_upto(x.as_ptr(), n), s.load_upto(y.as_ptr(), n));
                s.store_upto(x.as_mut_ptr(), n, r);
            }
        }
    }
}

/// `x[i] = x[i]^y[i]` over the shorter of the two.
pub fn pow_slices(isa: Isa, x: &mut [f32], y: &[f32]) {
    isa.run(Pow { x, y });
}
