//! Every instruction set against the portable lanes.

use super::*;
use crate::isa::{Isa, Kernel};
use crate::testing::Rng;

const COUNT: usize = 30;

/// Each operation once; the results as bits.
struct AllOps<'a> {
    a: &'a [f32; LANES],
    b: &'a [f32; LANES],
}

impl Kernel for AllOps<'_> {
    type Output = [[u32; LANES]; COUNT];
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        let (a, b) = (s.from_array(self.a), s.from_array(self.b));
        let small = s.min_raw(s.splat(120.0), s.max_raw(s.splat(-120.0), s.round(b)));
        let (ia, ib) = (s.bits(a), s.bits(b));
        let flag = |m: u16| [u32::from(m); LANES];
        let lanes = |x: S::F| s.to_array(x).map(f32::to_bits);
        [
            lanes(s.add(a, b)),
            lanes(s.sub(a, b)),
            lanes(s.mul(a, b)),
            lanes(s.div(a, b)),
            lanes(s.sqrt(a)),
            lanes(s.min_raw(a, b)),
            lanes(s.max_raw(a, b)),
            lanes(s.select(s.is_nan(s.min(a, b)), s.splat(9.0), s.min(a, b))),
            lanes(s.select(s.is_nan(s.max(a, b)), s.splat(9.0), s.max(a, b))),
            lanes(s.round(a)),
            lanes(s.floor(a)),
            lanes(s.ceil(a)),
            lanes(s.trunc(a)),
            flag(s.mask_bits(s.lt(a, b))),
            flag(s.mask_bits(s.le(a, b))),
            flag(s.mask_bits(s.eq(a, b))),
            flag(s.mask_bits(s.mask_and(s.lt(a, b), s.lt(a, s.zero())))),
            flag(s.mask_bits(s.mask_or(s.lt(a, b), s.is_nan(a)))),
            lanes(s.abs(a)),
            lanes(s.neg(a)),
            lanes(s.copysign(a, b)),
            lanes(s.from_int(s.to_int(small))),
            lanes(s.from_int(s.add_i(ia, ib))),
            lanes(s.from_int(s.sub_i(ia, ib))),
            lanes(s.from_bits(s.or_i(s.and_i(ia, ib), s.xor_i(ia, ib)))),
            lanes(s.from_bits(s.shl_i::<3>(ia))),
            lanes(s.from_int(s.shr_i::<5>(ia))),
            flag(s.mask_bits(s.eq_i(ia, ib))),
            lanes(s.scale2(s.min(s.max(a, s.splat(0.001)), s.splat(1e5)), small)),
            flag((s.sum(s.round(small)) as i32) as u16),
        ]
    }
}

#[test]
fn every_operation_agrees_with_plain_rust() {
    let mut rng = Rng::new(21);
    let special = [0.0, -0.0, 1.5, -2.5, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-42, 3e38];
    for round in 0..200 {
        let mut pick = |_| match rng.below(3) {
            0 => special[rng.below(special.len())],
            1 => rng.uniform(-5.0, 5.0),
            _ => rng.uniform(-1e6, 1e6),
        };
        let a: [f32; LANES] = std::array::from_fn(&mut pick);
        let b: [f32; LANES] = std::array::from_fn(&mut pick);
        // Integer conversion and scaling take finite numbers only.
        let b = b.map(|x| if x.is_nan() && round % 2 == 0 { 1.0 } else { x });
        let want = Isa::try_new(crate::isa::IsaKind::Portable).unwrap().run(AllOps { a: &a, b: &b });
        for isa in Isa::available() {
            let got = isa.run(AllOps { a: &a, b: &b });
            for (op, (g, w)) in got.iter().zip(&want).enumerate() {
                for i in 0..LANES {
                    let (x, y) = (f32::from_bits(g[i]), f32::from_bits(w[i]));
                    let nan = x.is_nan() && y.is_nan();
                    // The integer value of NaN is not defined.
                    let undefined = matches!(op, 21 | 28 | 29) && b.iter().any(|v| v.is_nan());
                    // Nor is which of the two zeros the lesser is.
                    let undefined = undefined || (matches!(op, 7 | 8) && x == 0.0 && y == 0.0);
                    assert!(g[i] == w[i] || nan || undefined, "op {op} lane {i}: {x} {y} {:?}", isa.kind());
                }
            }
        }
    }
}

struct Tails<'a> {
    src: &'a [f32],
    dst: &'a mut [f32],
}

impl Kernel for Tails<'_> {
    type Output = (f32, f32, f32);
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        let n = self.src.len();
        assert!(n <= LANES && self.dst.len() == n);
        // SAFETY: both slices have n elements.
        unsafe {
            let x = s.load_n(self.src.as_ptr(), n);
            s.store_n(self.dst.as_mut_ptr(), n, x);
            (s.sum(x), s.reduce_max(x), s.reduce_min(x))
        }
    }
}

#[test]
fn masked_access_and_reductions_agree_in_every_bit() {
    let mut rng = Rng::new(22);
    for n in 0..=LANES {
        // Slices of exactly n elements on the heap: reading past the end is caught by checkers.
        let src: Box<[f32]> = rng.vec(n).into();
        let mut results = Vec::new();
        for isa in Isa::available() {
            let mut dst = vec![9.0f32; n];
            results.push(isa.run(Tails { src: &src, dst: &mut dst }));
            assert_eq!(dst, &src[..]);
        }
        assert!(results.windows(2).all(|w| w[0] == w[1]), "{results:?}");
    }
}
