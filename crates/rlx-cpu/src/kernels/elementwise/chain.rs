//! Several ops of floats as one instruction of the tile program: each is applied to what there is so far, in registers.
//!
//! An instruction of its own for each op reads a tile that the one before wrote, which takes longer than a sum or a product does: a batch norm and what
//! bounds it, `max(x·scale + shift, 0)`, is one chain of three links. Every op rounds as it does alone, so no bit depends on what is joined.
//!
//! Links are of f32 or of one 16-bit type. Those of f32 are *wide*: their operand is f32, and their result is not rounded. A batch norm of bf16 reads
//! and writes bf16 and has wide links between, so it is rounded once, as it is stored.
//!
//! A chain is chosen at run time: four vectors go through a link together, so that it is looked at once for all of them.

use std::marker::PhantomData;

use rlx_ir::DType;

use super::affine::AffineOf;
use super::halves::Conversion;
use super::instr::{ARGS, Code, Results, Source};
use super::vectors::{Binary, store_past};
use crate::gemm::Packed;
use crate::isa::{Isa, Kernel};
use crate::kernels::packed_type;
use crate::math::Light;
use crate::simd::{LANES, Simd};

/// Links of a chain: the first operand is what it starts from, and two may be conversions.
const LINKS: usize = ARGS + 1;

/// Vectors that go through a link together: an even number, and the fewest that are read and written two at a time.
const TOGETHER: usize = 4;
const TWO: usize = 2;

/// What a link does.
#[derive(Debug, Clone, Copy)]
enum Does {
    /// An op of what there is and the next operand.
    Binary(Binary),
    /// An op of the next operand and what there is.
    Swapped(Binary),
    /// An op of what there is.
    Light(Light),
    /// Nothing: what there is is rounded behind it.
    Nothing,
}

/// One op.
#[derive(Debug, Clone, Copy)]
struct Link {
    does: Does,
    /// Whether its operand is f32 and its result is not rounded.
    wide: bool,
}

/// The ops of a chain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chain {
    /// The type of what is not f32; f32 if everything is.
    short: DType,
    /// Whether the first operand is f32, and whether the result is.
    wide_ends: [bool; 2],
    links: [Link; LINKS],
    len: usize,
}

impl Chain {
    /// The instruction as a chain, if it is one or can be.
    pub(super) fn of(code: Code) -> Option<Chain> {
        let one = |does, dtype| {
            let wide = dtype == DType::F32;
            Chain { short: dtype, wide_ends: [wide; 2], links: [Link { does, wide }; LINKS], len: 1 }
        };
        Some(match code {
            Code::Chain(chain) => chain,
            Code::Binary(Binary::Pow, _) => return None,
            Code::Binary(op, dtype) => one(Does::Binary(op), dtype),
            Code::Unary(f, dtype) => one(Does::Light(Light::of(f)?), dtype),
            Code::Half(conversion, dtype) => {
                let round = one(Does::Nothing, dtype);
                match conversion {
                    Conversion::Widen => Chain { wide_ends: [false, true], len: 0, ..round },
                    Conversion::Round => Chain { wide_ends: [true, true], ..round },
                    Conversion::Narrow => Chain { wide_ends: [true, false], ..round },
                }
            }
            _ => return None,
        })
    }

    /// This chain and behind it `next`, a chain of one op, whose operand number `at` is this chain's result; `None` if there is no such chain.
    pub(super) fn then(mut self, next: Chain, at: usize) -> Option<Chain> {
        let one_type = self.short == next.short || self.short == DType::F32 || next.short == DType::F32;
        if next.len > 1 || self.wide_ends[1] != next.wide_ends[0] || !one_type {
            return None;
        }
        if self.short == DType::F32 {
            self.short = next.short;
        }
        self.wide_ends[1] = next.wide_ends[1];
        let rounds = |link: &Link| matches!(link.does, Does::Nothing);
        let mut link = next.links[0];
        // What was rounded is not rounded again.
        if next.len == 0 || rounds(&link) && self.links().last().is_some_and(rounds) {
            return Some(self);
        }
        if let Does::Binary(op) = link.does
            && at == 1
        {
            link.does = Does::Swapped(op);
        }
        *self.links.get_mut(self.len)? = link;
        self.len += 1;
        Some(self)
    }

    fn links(&self) -> &[Link] {
        &self.links[..self.len]
    }

    /// The links but for a last one that rounds what is rounded as it is written.
    fn ops(&self) -> &[Link] {
        match self.links() {
            [ops @ .., Link { does: Does::Nothing, .. }] if !self.wide_ends[1] => ops,
            all => all,
        }
    }

    /// The chain as a factor and a summand in f32, if it is one that reads and writes one type.
    pub(super) fn as_affine(&self) -> Option<AffineOf> {
        let ops = self.ops();
        if self.wide_ends != [self.short == DType::F32; 2] || !ops.iter().all(|link| link.wide) {
            return None;
        }
        let does = |i: usize| ops.get(i).map(|link| link.does);
        // Either operand may be first.
        let is =
            |i: usize, op: Binary| matches!(does(i), Some(Does::Binary(f) | Does::Swapped(f)) if f == op);
        let bounds = match does(2) {
            None => None,
            Some(Does::Light(Light::Bounds { lo, hi })) => Some((lo, hi)),
            Some(_) => return None,
        };
        let is_affine = ops.len() <= 3 && is(0, Binary::Mul) && is(1, Binary::Add);
        is_affine.then_some(AffineOf { dtype: self.short, bounds })
    }

    /// Whether it has both f32 and a shorter type.
    fn is_mixed(&self) -> bool {
        let is_wide = |link: &Link| link.wide;
        self.short != DType::F32 && (self.wide_ends.contains(&true) || self.links().iter().any(is_wide))
    }

    /// Nanoseconds for one element, roughly.
    pub(super) fn nanos(&self) -> f64 {
        0.05 + 0.02 * self.len as f64
    }

    /// Computes `n` elements.
    ///
    /// # Safety
    /// As [`Code::run`].
    pub(super) unsafe fn run(&self, isa: Isa, sources: &[Source; ARGS], results: Results) {
        let (out, n, past) = (results.out, results.n, results.go_past());
        packed_type!(self.short, T => match self.is_mixed() {
            false => T::run(isa, Run::<T, false> { chain: self, sources, out, n, past, short: PhantomData }),
            true => T::run(isa, Run::<T, true> { chain: self, sources, out, n, past, short: PhantomData }),
        }, _ => {});
    }
}

struct Run<'a, T, const MIXED: bool> {
    chain: &'a Chain,
    sources: &'a [Source],
    out: *mut u8,
    n: usize,
    /// Whether results of f32 are stored past the caches.
    past: bool,
    short: PhantomData<T>,
}

impl<T: Packed, const MIXED: bool> Kernel for Run<'_, T, MIXED> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let block = TOGETHER * LANES;
        let whole = self.n - self.n % block;
        // SAFETY: `Chain::run` was promised the memory; all vectors are within `n` elements.
        unsafe {
            for i in (0..whole).step_by(block) {
                self.vectors::<S, TOGETHER>(s, i, LANES);
            }
            let mut i = whole;
            // Two vectors of bf16 take little longer than one. (Of other types the code is not worth its room.)
            if const { size_of::<T>() == 2 } && i + TWO * LANES <= self.n {
                self.vectors::<S, TWO>(s, i, LANES);
                i += TWO * LANES;
            }
            while i < self.n {
                self.vectors::<S, 1>(s, i, LANES.min(self.n - i));
                i += LANES;
            }
        }
    }
}

impl<T: Packed, const MIXED: bool> Run<'_, T, MIXED> {
    /// `V` vectors of `n` elements each, from element `i` on; of whole vectors unless it is one.
    ///
    /// # Safety
    /// They must be within what [`Chain::run`] was promised.
    #[inline(always)]
    unsafe fn vectors<S: Simd, const V: usize>(&self, s: S, i: usize, n: usize) {
        // (Loops: a closure would be a function without the instruction set.)
        macro_rules! each {
            ($x:ident, |$k:ident| $e:expr) => {
                for $k in 0..V {
                    $x[$k] = $e;
                }
            };
        }
        let mut operands = self.sources.iter();
        let mut next = || operands.next().copied().unwrap_or(self.sources[0]);
        let links = self.chain.ops();
        let [wide_first, wide_last] = self.chain.wide_ends;
        let mut x = [s.zero(); V];
        // SAFETY: the caller's promise.
        unsafe {
            Self::load(s, next(), wide_first, i, n, &mut x);
            for (l, link) in links.iter().enumerate() {
                let mut y = [s.zero(); V];
                match link.does {
                    Does::Light(_) | Does::Nothing => {}
                    Does::Binary(_) => Self::load(s, next(), link.wide, i, n, &mut y),
                    Does::Swapped(_) => {
                        y = x;
                        Self::load(s, next(), link.wide, i, n, &mut x);
                    }
                }
                match link.does {
                    Does::Nothing => {}
                    Does::Light(f) => f.apply::<S, f32>(s, &mut x),
                    Does::Binary(op) | Does::Swapped(op) => match op {
                        Binary::Add => each!(x, |k| s.add(x[k], y[k])),
                        Binary::Sub => each!(x, |k| s.sub(x[k], y[k])),
                        Binary::Mul => each!(x, |k| s.mul(x[k], y[k])),
                        Binary::Div => each!(x, |k| s.div(x[k], y[k])),
                        Binary::Max => each!(x, |k| s.max(x[k], y[k])),
                        Binary::Min => each!(x, |k| s.min(x[k], y[k])),
                        // No link ([`Chain::of`]).
                        Binary::Pow => {}
                    },
                }
                // A short result is rounded as it is written.
                let exact = MIXED && link.wide || l + 1 == links.len() && !(MIXED && wide_last);
                if !exact {
                    Self::round(s, &mut x);
                }
            }
            self.store(s, wide_last, i, n, x);
        }
    }

    /// # Safety
    /// As [`Run::vectors`].
    #[inline(always)]
    unsafe fn store<S: Simd, const V: usize>(&self, s: S, wide: bool, i: usize, n: usize, x: [S::F; V]) {
        // SAFETY: the caller's promise.
        unsafe {
            if const { V == TOGETHER && (MIXED || size_of::<T>() == 4) } && self.past && wide {
                return store_past(s, self.out.cast::<f32>().add(i), x);
            }
            if MIXED && wide {
                return store_each(s, self.out.cast::<f32>().add(i), n, x);
            }
            let out = self.out.cast::<T>().add(i);
            if const { MIXED || V == 1 } {
                return store_each(s, out, n, x);
            }
            for (k, x) in x.chunks_exact(TWO).enumerate() {
                T::store_two(s, out.add(k * TWO * LANES), [x[0], x[1]]);
            }
        }
    }

    /// # Safety
    /// As [`Run::vectors`], of this operand.
    #[inline(always)]
    unsafe fn load<S: Simd, const V: usize>(
        s: S,
        from: Source,
        wide: bool,
        i: usize,
        n: usize,
        to: &mut [S::F; V],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            if MIXED && wide {
                return load_each(s, from.ptr.cast::<f32>(), from.step, i, n, to);
            }
            let p = from.ptr.cast::<T>();
            if const { MIXED || V == 1 } || from.step == 0 {
                return load_each(s, p, from.step, i, n, to);
            }
            for (k, to) in to.chunks_exact_mut(TWO).enumerate() {
                [to[0], to[1]] = T::load_two(s, p.add(i + k * TWO * LANES));
            }
        }
    }

    /// Rounds to what the type can hold.
    #[inline(always)]
    fn round<S: Simd, const V: usize>(s: S, x: &mut [S::F; V]) {
        if const { V > 1 } {
            for x in x.chunks_exact_mut(TWO) {
                [x[0], x[1]] = T::round_two(s, [x[0], x[1]]);
            }
        } else {
            for x in x {
                *x = T::round(s, *x);
            }
        }
    }
}

/// Reads `V` vectors of `n` elements each, from element `i` on, as they are in memory; or one value in all of them, by a `step` of 0.
///
/// # Safety
/// They must be readable, and whole unless it is one.
#[inline(always)]
pub(super) unsafe fn load_each<S: Simd, T: Packed, const V: usize>(
    s: S,
    p: *const T,
    step: usize,
    i: usize,
    n: usize,
    to: &mut [S::F; V],
) {
    // SAFETY: the caller's promise.
    unsafe {
        if step == 0 {
            *to = [T::splat(s, p); V];
            return;
        }
        for (k, to) in to.iter_mut().enumerate() {
            *to = T::load(s, p.add(i + k * LANES), n);
        }
    }
}

/// Writes them.
///
/// # Safety
/// As [`load_each`], to memory that is writable.
#[inline(always)]
pub(super) unsafe fn store_each<S: Simd, T: Packed, const V: usize>(
    s: S,
    out: *mut T,
    n: usize,
    x: [S::F; V],
) {
    let pairs = x.chunks_exact(TWO);
    let single = pairs.remainder();
    // SAFETY: the caller's promise.
    unsafe {
        for (k, x) in pairs.enumerate() {
            T::store_pair(s, out.add(k * TWO * LANES), [x[0], x[1]]);
        }
        for &x in single {
            T::store(s, out.add((V - 1) * LANES), n, x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::Unary;
    use crate::stores::{LINE, Stores, fence};

    /// (10 − max(x·y, 0)) / x, link by link and at once.
    #[test]
    fn a_chain_is_its_links_one_after_the_other() {
        let links = [
            (Code::Binary(Binary::Mul, DType::F32), 0),
            (Code::Unary(Unary::Relu, DType::F32), 0),
            (Code::Binary(Binary::Sub, DType::F32), 1),
            (Code::Binary(Binary::Div, DType::F32), 0),
        ];
        let chain = links.iter().map(|&(code, at)| (Chain::of(code).unwrap(), at));
        let chain = chain.reduce(|(all, at), (link, of)| (all.then(link, of).unwrap(), at)).unwrap().0;
        assert!(chain.then(chain, 0).is_none());
        let x: Vec<f32> = (0..150).map(|i| (i as f32 - 70.0) * 0.37).collect();
        let y: Vec<f32> = (0..150).map(|i| (i as f32).sin()).collect();
        let source = |v: &[f32], step| Source { ptr: v.as_ptr().cast(), step };
        let (x_at, y_at, ten) = (source(&x, 1), source(&y, 1), source(&[10.0], 0));
        let wanted = |i: usize| (10.0 - (x[i] * y[i]).max(0.0)) / x[i];
        let ways = [Stores::Cached, Stores::NonTemporal];
        for (n, stores) in [1, 16, 64, 70, 150].into_iter().flat_map(|n| ways.map(|stores| (n, stores))) {
            // From the beginning of a line of memory on, which stores past the caches want.
            let mut out = vec![0.0f32; n + LINE];
            let start = out.as_ptr().align_offset(LINE);
            let out = &mut out[start..start + n];
            let results = Results { out: out.as_mut_ptr().cast(), n, stores };
            // SAFETY: all operands have 150 elements or step by 0, and there is room for the results, which are read behind the fence.
            unsafe {
                chain.run(Isa::detect(), &[x_at, y_at, ten, x_at, x_at], results);
            }
            fence();
            let wanted: Vec<f32> = (0..n).map(wanted).collect();
            assert_eq!(out, wanted);
        }
    }

    /// A row of a batch norm, whose result is that of each op rounded to bf16.
    #[test]
    fn a_chain_of_bf16_rounds_after_each_link() {
        use half::bf16;
        let links = [
            Code::Binary(Binary::Mul, DType::BF16),
            Code::Binary(Binary::Add, DType::BF16),
            Code::Unary(Unary::Relu, DType::BF16),
        ];
        let chain = links.map(|code| Chain::of(code).unwrap()).into_iter();
        let chain = chain.reduce(|all, link| all.then(link, 0).unwrap()).unwrap();
        let values = |scale: f32| (0..150).map(|i| bf16::from_f32((i as f32 * scale).sin())).collect();
        let [mut x, scale, shift]: [Vec<bf16>; 3] = [0.7, 1.3, 2.9].map(values);
        // The product of these is denormal.
        x[77] = bf16::from_f32(3e-39);
        let source = |v: &[bf16]| Source { ptr: v.as_ptr().cast(), step: 1 };
        let sources = [source(&x), source(&scale), source(&shift), source(&x), source(&x)];
        let round = |x: f32| bf16::from_f32(x).to_f32();
        let wanted = |i: usize| {
            let product = round(x[i].to_f32() * scale[i].to_f32());
            bf16::from_f32(round(product + shift[i].to_f32()).max(0.0))
        };
        for isa in Isa::available() {
            for n in [1, 16, 32, 47, 64, 96, 112, 150] {
                let mut out = vec![bf16::ZERO; n];
                // SAFETY: all operands have 150 elements, and there is room for the results.
                unsafe { chain.run(isa, &sources, Results::cached(out.as_mut_ptr().cast(), n)) };
                let wanted: Vec<bf16> = (0..n).map(wanted).collect();
                assert_eq!(out, wanted, "{n} on {isa}");
            }
        }
    }

    /// A norm of bf16 that is computed in f32 and rounded once, then a sum of bf16, then one of f32.
    #[test]
    fn a_chain_rounds_where_types_change() {
        use half::bf16;
        let (f32, short) = (DType::F32, DType::BF16);
        let links = [
            (Code::Half(Conversion::Widen, short), 0),
            (Code::Binary(Binary::Mul, f32), 0),
            (Code::Binary(Binary::Sub, f32), 1),
            (Code::Half(Conversion::Round, short), 0),
            (Code::Half(Conversion::Narrow, short), 0),
            (Code::Binary(Binary::Add, short), 0),
            (Code::Half(Conversion::Widen, short), 0),
            (Code::Binary(Binary::Mul, f32), 1),
        ];
        let values = |scale: f32| (0..150).map(move |i| (i as f32 * scale).sin());
        let x: Vec<bf16> = values(0.7).map(bf16::from_f32).collect();
        let (scale, shift, last): (Vec<f32>, Vec<f32>, f32) =
            (values(1.3).collect(), values(2.9).collect(), 0.3);
        let more: Vec<bf16> = values(0.2).map(bf16::from_f32).collect();
        let source = |ptr: *const u8, step| Source { ptr, step };
        let sources = [
            source(x.as_ptr().cast(), 1),
            source(scale.as_ptr().cast(), 1),
            source(shift.as_ptr().cast(), 1),
            source(more.as_ptr().cast(), 1),
            source((&raw const last).cast(), 0),
        ];
        let round = |x: f32| bf16::from_f32(x).to_f32();
        let norm = |i: usize| round(shift[i] - x[i].to_f32() * scale[i]);
        let sum = |i: usize| round(norm(i) + more[i].to_f32());
        let chain = |n: usize| {
            let chain = links[..n].iter().map(|&(code, at)| (Chain::of(code).unwrap(), at));
            chain.reduce(|(all, at), (link, of)| (all.then(link, of).unwrap(), at)).unwrap().0
        };
        for isa in Isa::available() {
            for n in [1, 16, 32, 47, 64, 96, 112, 150] {
                let (mut short, mut long) = (vec![bf16::ZERO; n], vec![0f32; n + LINE]);
                // SAFETY: all operands have 150 elements or step by 0, and there is room for the results.
                unsafe { chain(5).run(isa, &sources, Results::cached(short.as_mut_ptr().cast(), n)) };
                assert!((0..n).all(|i| short[i].to_f32() == norm(i)), "{n} on {isa}");
                // SAFETY: as above.
                unsafe { chain(6).run(isa, &sources, Results::cached(short.as_mut_ptr().cast(), n)) };
                assert!((0..n).all(|i| short[i].to_f32() == sum(i)), "{n} on {isa}");
                // From the beginning of a line of memory on, which stores past the caches want.
                let start = long.as_ptr().align_offset(LINE);
                for stores in [Stores::Cached, Stores::NonTemporal] {
                    let long = &mut long[start..start + n];
                    long.fill(0.0);
                    let results = Results { out: long.as_mut_ptr().cast(), n, stores };
                    // SAFETY: as above; the results are read behind the fence.
                    unsafe { chain(8).run(isa, &sources, results) };
                    fence();
                    assert!((0..n).all(|i| long[i] == last * sum(i)), "{n} on {isa}, {stores:?}");
                }
            }
        }
    }

    #[test]
    fn a_chain_has_one_short_type() {
        let of = |code| Chain::of(code).unwrap();
        let sum = of(Code::Binary(Binary::Add, DType::BF16));
        assert!(sum.then(of(Code::Binary(Binary::Add, DType::F16)), 0).is_none());
        // What is bf16 is no operand of f32 before it is widened.
        let long = of(Code::Binary(Binary::Add, DType::F32));
        assert!(sum.then(long, 0).is_none());
        let widened = sum.then(of(Code::Half(Conversion::Widen, DType::BF16)), 0).unwrap();
        assert!(widened.then(long, 0).is_some());
    }
}
