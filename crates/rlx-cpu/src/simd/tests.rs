//! Every instruction set against the portable lanes.

use super::*;
use crate::isa::{Isa, Kernel};
use crate::testing::Rng;

const COUNT: usize = 39;

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
            lanes(s.from_bits(s.sub_bytes(ia, ib))),
            lanes(s.from_bits(s.or_i(s.and_i(ia, ib), s.xor_i(ia, ib)))),
            lanes(s.from_bits(s.shl_i::<3>(ia))),
            lanes(s.from_int(s.shr_i::<5>(ia))),
            flag(s.mask_bits(s.eq_i(ia, ib))),
            lanes(s.scale2(s.min(s.max(a, s.splat(0.001)), s.splat(1e5)), small)),
            flag((s.sum(s.round(small)) as i32) as u16),
            lanes(s.zip(a, b).0),
            lanes(s.zip(a, b).1),
            lanes(s.unzip(a, b).0),
            lanes(s.unzip(a, b).1),
            lanes(s.permute(a, s.add_i(s.and_i(s.iota(), s.splat_i(!3)), s.splat_i(2)))),
            lanes(s.permute(a, s.xor_i(s.iota(), s.splat_i(5)))),
            lanes(s.permute(a, s.or_i(s.xor_i(s.iota(), s.splat_i(3)), s.splat_i(0x350)))),
            lanes(s.reverse(a)),
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

/// All 65,536 numbers of a 16-bit type there and back, and the nearest of some f32.
struct Halves<'a> {
    values: &'a [f32],
    out: &'a mut Vec<(u32, u32, u32, u32)>,
}

impl Kernel for Halves<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for chunk in self.values.chunks(LANES) {
            let n = chunk.len();
            let mut shorts = [[0u16; LANES]; 2];
            let mut wide = [[0f32; LANES]; 2];
            // SAFETY: the slices and arrays have n ≤ 16 elements.
            unsafe {
                let x = s.load_n(chunk.as_ptr(), n);
                s.store_u16(shorts[0].as_mut_ptr(), n, s.narrow_f16(x));
                s.store_u16(shorts[1].as_mut_ptr(), n, s.narrow_bf16(x));
                s.store(wide[0].as_mut_ptr(), s.widen_f16(s.load_u16(shorts[0].as_ptr(), n)));
                s.store(wide[1].as_mut_ptr(), s.widen_bf16(s.load_u16(shorts[1].as_ptr(), n)));
            }
            for i in 0..n {
                let (f, b) = (u32::from(shorts[0][i]), u32::from(shorts[1][i]));
                self.out.push((f, wide[0][i].to_bits(), b, wide[1][i].to_bits()));
            }
        }
    }
}

/// Numbers rounded to bf16 by what a kernel for bf16 rounds with, and by the instructions that every set has.
struct Rounded<'a> {
    values: &'a [f32],
    /// Stored, rounded in registers, rounded and spread over the lanes; each with what it should be.
    out: &'a mut Vec<[(u32, u32); 3]>,
}

impl Kernel for Rounded<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for chunk in self.values.chunks(LANES) {
            let n = chunk.len();
            let (mut shorts, mut want) = ([0u16; LANES], [0u16; LANES]);
            // SAFETY: the slices and arrays have n ≤ 16 elements.
            let x = unsafe {
                let x = s.load_n(chunk.as_ptr(), n);
                s.store_bf16::<true>(shorts.as_mut_ptr(), n, x);
                s.store_u16(want.as_mut_ptr(), n, s.narrow_bf16(x));
                x
            };
            let rounded = s.to_array(s.round_bf16::<true>(x));
            for i in 0..n {
                let wide = u32::from(want[i]) << 16;
                let spread = s.to_array(s.splat_bf16(want[i]))[LANES - 1].to_bits();
                let stored = (shorts[i].into(), want[i].into());
                self.out.push([stored, (rounded[i].to_bits(), wide), (spread, wide)]);
            }
        }
    }
}

#[test]
fn bf16_is_rounded_to_the_same_bits_with_its_instructions_and_without() {
    for isa in Isa::available() {
        let (mut out, values) = (Vec::new(), numbers());
        isa.run_bf16(Rounded { values: &values, out: &mut out });
        assert_eq!(out.len(), values.len());
        for (x, all) in values.iter().zip(out) {
            assert!(all.iter().all(|(got, want)| got == want), "{x:e} on {isa}: {all:x?}");
        }
    }
}

/// 32 numbers at a time rounded in registers and stored as bf16.
struct InTwos<'a> {
    values: &'a [f32],
    out: &'a mut Vec<(u32, u16)>,
}

impl Kernel for InTwos<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        const TWO: usize = 2 * LANES;
        // The number of an element is exact in bf16: lanes of these say in which order they are.
        let mut numbers = [0u16; TWO];
        for (i, number) in numbers.iter_mut().enumerate() {
            *number = half::bf16::from_f32(i as f32).to_bits();
        }
        // SAFETY: the array has 32 elements.
        let [a, b] = unsafe { s.load_two_bf16(numbers.as_ptr()) };
        let order = [s.to_array(a), s.to_array(b)];
        for chunk in self.values.chunks_exact(TWO) {
            let mut lanes = [[0.0; LANES]; 2];
            for (lane, number) in lanes.as_flattened_mut().iter_mut().zip(order.as_flattened()) {
                *lane = chunk[*number as usize];
            }
            let x = [s.from_array(&lanes[0]), s.from_array(&lanes[1])];
            let [a, b] = s.round_two_bf16(x);
            let rounded = [s.to_array(a), s.to_array(b)];
            let mut in_order = [0; TWO];
            for (lane, number) in rounded.as_flattened().iter().zip(order.as_flattened()) {
                in_order[*number as usize] = lane.to_bits();
            }
            let mut stored = [0u16; TWO];
            // SAFETY: as above.
            unsafe { s.store_two_bf16(stored.as_mut_ptr(), x) };
            // As they are in memory: the first vector in front.
            let mut pair = [0u16; TWO];
            let x = [0, LANES].map(|at| s.from_array(&std::array::from_fn(|i| chunk[at + i])));
            // SAFETY: as above.
            unsafe { s.store_pair_bf16(pair.as_mut_ptr(), x) };
            assert_eq!(pair, stored);
            self.out.extend(in_order.into_iter().zip(stored));
        }
    }
}

#[test]
fn bf16_is_rounded_to_the_same_bits_in_twos() {
    let mut values = numbers();
    // Denormal numbers and others side by side, too: where some are, the instruction rounds none of them.
    values.extend((0..64).map(|i| if i % 7 == 0 { 1e-40 * i as f32 } else { 0.3 * i as f32 }));
    values.truncate(values.len() / 32 * 32);
    for isa in Isa::available() {
        let mut out = Vec::new();
        isa.run_bf16(InTwos { values: &values, out: &mut out });
        assert_eq!(out.len(), values.len());
        for (x, (rounded, stored)) in values.iter().zip(out) {
            let want = half::bf16::from_f32(*x);
            assert_eq!((rounded, stored), (want.to_f32().to_bits(), want.to_bits()), "{x:e} on {isa}");
        }
    }
}

/// Every 16-bit float, what is next to the middle between two, and some others.
fn numbers() -> Vec<f32> {
    use half::{bf16, f16};
    let mut rng = Rng::new(23);
    let mut values: Vec<f32> = (0..=u16::MAX).map(|b| f16::from_bits(b).to_f32()).collect();
    values.extend((0..=u16::MAX).map(|b| bf16::from_bits(b).to_f32()));
    // Ties between neighbours, and just beside them.
    let ties = values.clone().into_iter().flat_map(|x| {
        let bits = x.to_bits();
        [0x1000u32, 0x0fff, 0x1001, 0x8000, 0x7fff, 0x8001].map(|d| f32::from_bits(bits.wrapping_add(d)))
    });
    values.extend(ties.collect::<Vec<_>>());
    values.extend((0..20_000).map(|_| f32::from_bits(rng.next() as u32)));
    values.extend([65519.9, 65520.0, 65504.0, -65520.0, f32::MAX, f32::INFINITY, 2f32.powi(-25), 3e-8]);
    values
}

#[test]
fn sixteen_bit_floats_convert_like_the_half_crate() {
    use half::{bf16, f16};
    let values = numbers();
    for isa in Isa::available() {
        let mut out = Vec::new();
        isa.run(Halves { values: &values, out: &mut out });
        assert_eq!(out.len(), values.len());
        for (&x, &(f, f_wide, b, b_wide)) in values.iter().zip(&out) {
            let (want_f, want_b) = (f16::from_f32(x), bf16::from_f32(x));
            let what = format!("{x:e} ({:#x}) on {:?}", x.to_bits(), isa.kind());
            if x.is_nan() {
                assert!(f16::from_bits(f as u16).is_nan() && bf16::from_bits(b as u16).is_nan(), "{what}");
                assert!(f32::from_bits(f_wide).is_nan() && f32::from_bits(b_wide).is_nan(), "{what}");
                continue;
            }
            assert_eq!(f, u32::from(want_f.to_bits()), "f16 of {what}");
            assert_eq!(f_wide, want_f.to_f32().to_bits(), "f32 of the f16 of {what}");
            assert_eq!(b, u32::from(want_b.to_bits()), "bf16 of {what}");
            assert_eq!(b_wide, want_b.to_f32().to_bits(), "f32 of the bf16 of {what}");
        }
    }
}

/// The words of the first bytes of four places.
struct Words<'a>([&'a [u8]; 4], usize);

impl Kernel for Words<'_> {
    type Output = [u32; LANES];
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> [u32; LANES] {
        // SAFETY: each place has as many bytes.
        let words = unsafe { s.load_words(self.0.map(|bytes| bytes[..self.1].as_ptr()), self.1) };
        s.to_array(s.from_bits(words)).map(f32::to_bits)
    }
}

#[test]
fn words_hold_one_byte_of_each_place() {
    let bytes: Vec<u8> = (0..64).map(|i| (i * 37 + 11) as u8).collect();
    for n in 0..=LANES {
        // Places end where their memory does.
        let places = [0, 1, 2, 3].map(|i| bytes[16 * i..16 * i + n].to_vec());
        let want: [u32; LANES] = std::array::from_fn(|lane| match lane < n {
            true => u32::from_le_bytes([0, 1, 2, 3].map(|i| places[i][lane])),
            false => 0,
        });
        for isa in Isa::available() {
            let got = isa.run(Words(places.each_ref().map(Vec::as_slice), n));
            assert_eq!(got, want, "{n} {isa}");
        }
    }
}

/// The upper halves of two vectors as bytes, and a byte behind each sixteen.
struct UpperHalves<'a>([&'a [u32; LANES]; 2], [i16; 2]);

impl Kernel for UpperHalves<'_> {
    type Output = [[u8; LANES + 1]; 2];
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        let mut out = [[0xa5; LANES + 1]; 2];
        let x = [s.from_array(&self.0[0].map(f32::from_bits)), s.from_array(&self.0[1].map(f32::from_bits))];
        let to = [out[0].as_mut_ptr(), out[1].as_mut_ptr()];
        // SAFETY: there is room for sixteen bytes at both.
        unsafe { s.store_upper_halves(to, [s.bits(x[0]), s.bits(x[1])], self.1) };
        out
    }
}

#[test]
fn upper_halves_within_bounds_are_written_as_bytes_to_both_places() {
    let mut rng = Rng::new(83);
    for round in 0..400 {
        // Far from the bounds, and next to them.
        let mut word = || {
            let upper = if round % 2 == 0 {
                rng.below(1 << 16) as u16
            } else {
                (rng.below(512) as u16).wrapping_sub(256)
            };
            u32::from(upper) << 16 | rng.below(1 << 16) as u32
        };
        let both: [[u32; LANES]; 2] = std::array::from_fn(|_| std::array::from_fn(|_| word()));
        let [low, high] = [[0, 255], [-128, 127], [3, 3], [-7, 100]][round % 4];
        let want = both.map(|words| words.map(|word| ((word >> 16) as i16).clamp(low, high) as u8));
        for isa in Isa::available() {
            let got = isa.run(UpperHalves([&both[0], &both[1]], [low, high]));
            for (got, want) in got.iter().zip(&want) {
                assert_eq!((&got[..LANES], got[LANES]), (&want[..], 0xa5), "{isa}");
            }
        }
    }
}

/// Four vectors in the order of quarters, and their upper halves as bytes in the order of their lanes before.
struct Quads<'a>(&'a [[u32; LANES]; 4], [i16; 2]);

impl Kernel for Quads<'_> {
    type Output = ([[u32; LANES]; 4], [u8; 4 * LANES + 1]);
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        let mut x = [s.zero(); 4];
        for (x, words) in x.iter_mut().zip(self.0) {
            *x = s.from_array(&words.map(f32::from_bits));
        }
        let quarters = s.quarters(x);
        let (mut ordered, mut bits) = ([[0; LANES]; 4], [s.splat_i(0); 4]);
        for v in 0..4 {
            ordered[v] = s.to_array(quarters[v]).map(f32::to_bits);
            bits[v] = s.bits(quarters[v]);
        }
        let mut bytes = [0xa5; 4 * LANES + 1];
        // SAFETY: there is room for 64 bytes.
        unsafe { s.store_quad(bytes.as_mut_ptr(), bits, self.1) };
        (ordered, bytes)
    }
}

#[test]
fn four_vectors_are_ordered_by_quarters_and_written_as_bytes() {
    let mut rng = Rng::new(85);
    for round in 0..200 {
        // Far from the bounds, and next to them.
        let spread = if round % 2 == 0 { 1 << 16 } else { 512 };
        let mut word = || {
            let upper = (rng.below(spread) as u16).wrapping_sub(spread as u16 / 2);
            u32::from(upper) << 16 | rng.below(1 << 16) as u32
        };
        let x: [[u32; LANES]; 4] = std::array::from_fn(|_| std::array::from_fn(|_| word()));
        let [low, high] = [[0, 255], [-128, 127], [3, 3], [-7, 100], [0, 90]][round % 5];
        let want = x.map(|words| words.map(|word| ((word >> 16) as i16).clamp(low, high) as u8));
        let order: [[u32; LANES]; 4] =
            std::array::from_fn(|v| std::array::from_fn(|lane| x[lane / 4][v * 4 + lane % 4]));
        for isa in Isa::available() {
            let (ordered, bytes) = isa.run(Quads(&x, [low, high]));
            assert_eq!(ordered, order, "{isa}");
            assert_eq!((&bytes[..4 * LANES], bytes[4 * LANES]), (want.as_flattened(), 0xa5), "{isa}");
        }
    }
}

/// The words of 64 bytes of four places, back in the order of their bytes.
struct QuadWords<'a>([&'a [u8; 4 * LANES]; 4]);

impl Kernel for QuadWords<'_> {
    type Output = [[u32; LANES]; 4];
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        // SAFETY: each place has 64 bytes.
        let words = unsafe { s.load_quad(self.0.map(|bytes| bytes.as_ptr())) };
        let mut x = [s.zero(); 4];
        for v in 0..4 {
            x[v] = s.from_bits(words[v]);
        }
        let mut out = [[0; LANES]; 4];
        for (out, x) in out.iter_mut().zip(s.quarters(x)) {
            *out = s.to_array(x).map(f32::to_bits);
        }
        out
    }
}

#[test]
fn words_of_64_bytes_hold_one_of_each_place() {
    let places: [Box<[u8; 4 * LANES]>; 4] =
        std::array::from_fn(|i| Box::new(std::array::from_fn(|j| (i * 71 + j * 37 + 11) as u8)));
    let want: [[u32; LANES]; 4] = std::array::from_fn(|v| {
        std::array::from_fn(|lane| u32::from_le_bytes([0, 1, 2, 3].map(|i| places[i][v * LANES + lane])))
    });
    for isa in Isa::available() {
        assert_eq!(isa.run(QuadWords(places.each_ref().map(|place| &**place))), want, "{isa}");
    }
}

struct LowerHalf([[f32; LANES]; 2], u16);

impl Kernel for LowerHalf {
    type Output = bool;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> bool {
        let x = [s.bits(s.from_array(&self.0[0])), s.bits(s.from_array(&self.0[1]))];
        s.any_lower_half_below(x, s.splat_i(i32::from(self.1)))
    }
}

#[test]
fn a_lower_half_below_the_limit_is_found_in_any_lane() {
    let mut rng = Rng::new(84);
    for lane in 0..2 * LANES {
        let limit = 1 + rng.below(32_000) as u16;
        let mut word = |lower: usize| f32::from_bits((rng.below(1 << 16) << 16 | lower) as u32);
        for (other, below) in [(0xffff, false), (usize::from(limit), false), (usize::from(limit) - 1, true)] {
            let mut both = [[0.0; LANES]; 2];
            both.as_flattened_mut().fill_with(|| word(usize::from(limit)));
            both.as_flattened_mut()[lane] = word(other);
            for isa in Isa::available() {
                assert_eq!(isa.run(LowerHalf(both, limit)), below, "{isa}, lane {lane}: {other} and {limit}");
            }
        }
    }
}

struct Picks<'a> {
    from: &'a [f32],
    places: &'a [u32; LANES],
}

impl Kernel for Picks<'_> {
    type Output = [[f32; LANES]; 3];
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        assert!(self.places.iter().all(|&i| (i as usize) + 1 < self.from.len()));
        // SAFETY: there is an element at each place and behind it.
        unsafe {
            let p = self.from.as_ptr();
            let (first, second) = s.pick_pairs(p, self.places.as_ptr());
            [s.pick(p, self.places.as_ptr()), first, second].map(|x| s.to_array(x))
        }
    }
}

#[test]
fn elements_and_pairs_are_picked_from_anywhere() {
    let mut rng = Rng::new(24);
    // As long as the last pair reaches: reading past the end is caught by checkers.
    let from: Box<[f32]> = rng.vec(50).into();
    for _ in 0..50 {
        let places: [u32; LANES] = std::array::from_fn(|_| rng.below(49) as u32);
        let want = [0, 0, 1].map(|behind| places.map(|i| from[i as usize + behind]));
        for isa in Isa::available() {
            assert_eq!(isa.run(Picks { from: &from, places: &places }), want, "{:?}", isa.kind());
        }
    }
}
