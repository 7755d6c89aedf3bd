//! Several ops of floats as one instruction of the tile program: each is applied to what there is so far, in registers.
//!
//! An instruction of its own for each op reads a tile that the one before wrote, which takes longer than a sum or a product does: a batch norm and what
//! bounds it, `max((x − mean)·scale + shift, 0)`, is one chain of four links. Every op rounds as it does alone, so no bit depends on what is joined.
//!
//! A chain is chosen at run time: four vectors go through a link together, so that it is looked at once for all of them.

use rlx_ir::DType;

use super::instr::{ARGS, Code, Source};
use super::vectors::Binary;
use crate::gemm::Packed;
use crate::isa::{Isa, Kernel};
use crate::kernels::packed_type;
use crate::math::Light;
use crate::simd::{LANES, Simd};

/// Ops of a chain: the first operand is what it starts from.
const LINKS: usize = ARGS - 1;

/// Vectors that go through a link together: an even number, and the fewest that are read and written two at a time.
const TOGETHER: usize = 4;
const TWO: usize = 2;

/// One op.
#[derive(Debug, Clone, Copy)]
pub(super) enum Link {
    /// Of what there is and the next operand.
    Binary(Binary),
    /// Of the next operand and what there is.
    Swapped(Binary),
    /// Of what there is.
    Light(Light),
}

/// The ops of a chain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chain {
    dtype: DType,
    links: [Link; LINKS],
    len: usize,
}

impl Chain {
    /// The instruction as a chain, if it is one or can be.
    pub(super) fn of(code: Code) -> Option<Chain> {
        let (link, dtype) = match code {
            Code::Chain(chain) => return Some(chain),
            Code::Binary(Binary::Pow, _) => return None,
            Code::Binary(op, dtype) => (Link::Binary(op), dtype),
            Code::Unary(f, dtype) => (Link::Light(Light::of(f)?), dtype),
            _ => return None,
        };
        Some(Chain { dtype, links: [link; LINKS], len: 1 })
    }

    /// This chain and behind it `next`, a chain of one op, whose operand number `at` is this chain's result; `None` if that is too long.
    pub(super) fn then(mut self, next: Chain, at: usize) -> Option<Chain> {
        let link = match next.links[0] {
            Link::Binary(op) if at == 1 => Link::Swapped(op),
            link => link,
        };
        if next.len != 1 || next.dtype != self.dtype || self.len == LINKS {
            return None;
        }
        self.links[self.len] = link;
        self.len += 1;
        Some(self)
    }

    fn links(&self) -> &[Link] {
        &self.links[..self.len]
    }

    /// Nanoseconds for one element, roughly.
    pub(super) fn nanos(&self) -> f64 {
        0.05 + 0.02 * self.len as f64
    }

    /// Computes `n` elements.
    ///
    /// # Safety
    /// As [`Code::run`].
    pub(super) unsafe fn run(&self, isa: Isa, sources: &[Source; ARGS], out: *mut u8, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { run(isa, self.links(), self.dtype, sources, out, n) }
    }
}

/// Computes `n` elements of f32 or 16-bit floats; other types are left alone.
///
/// # Safety
/// As [`Code::run`].
pub(super) unsafe fn run(isa: Isa, links: &[Link], dtype: DType, sources: &[Source], out: *mut u8, n: usize) {
    packed_type!(dtype, T => T::run(isa, Run { links, sources, out: out.cast::<T>(), n }), _ => {});
}

struct Run<'a, T> {
    links: &'a [Link],
    sources: &'a [Source],
    out: *mut T,
    n: usize,
}

impl<T: Packed> Kernel for Run<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let block = TOGETHER * LANES;
        let whole = self.n - self.n % block;
        // SAFETY: `run` was promised the memory; all vectors are within `n` elements.
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

impl<T: Packed> Run<'_, T> {
    /// `V` vectors of `n` elements each, from element `i` on; of whole vectors unless it is one.
    ///
    /// # Safety
    /// They must be within what [`run`] was promised.
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
        let mut x = [s.zero(); V];
        // SAFETY: the caller's promise.
        unsafe {
            Self::load(s, next(), i, n, &mut x);
            for (l, link) in self.links.iter().enumerate() {
                let mut y = [s.zero(); V];
                match *link {
                    Link::Light(_) => {}
                    Link::Binary(_) => Self::load(s, next(), i, n, &mut y),
                    Link::Swapped(_) => {
                        y = x;
                        Self::load(s, next(), i, n, &mut x);
                    }
                }
                match *link {
                    Link::Light(f) => f.apply::<S, f32>(s, &mut x),
                    Link::Binary(op) | Link::Swapped(op) => match op {
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
                // The last result is rounded as it is written.
                if l + 1 < self.links.len() {
                    Self::round(s, &mut x);
                }
            }
            if const { V > 1 } {
                for (k, x) in x.chunks_exact(TWO).enumerate() {
                    T::store_two(s, self.out.add(i + k * TWO * LANES), [x[0], x[1]]);
                }
            } else {
                for (k, x) in x.into_iter().enumerate() {
                    T::store(s, self.out.add(i + k * LANES), n, x);
                }
            }
        }
    }

    /// # Safety
    /// As [`Run::vectors`], of this operand.
    #[inline(always)]
    unsafe fn load<S: Simd, const V: usize>(s: S, from: Source, i: usize, n: usize, to: &mut [S::F; V]) {
        let p = from.ptr.cast::<T>();
        // SAFETY: the caller's promise.
        unsafe {
            if from.step == 0 {
                *to = [T::splat(s, p); V];
                return;
            }
            if const { V > 1 } {
                for (k, to) in to.chunks_exact_mut(TWO).enumerate() {
                    [to[0], to[1]] = T::load_two(s, p.add(i + k * TWO * LANES));
                }
            } else {
                for (k, to) in to.iter_mut().enumerate() {
                    *to = T::load(s, p.add(i + k * LANES), n);
                }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::Unary;

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
        for n in [1, 16, 64, 70, 150] {
            let mut out = vec![0.0f32; n];
            // SAFETY: all operands have 150 elements or step by 0, and there is room for the results.
            unsafe { chain.run(Isa::detect(), &[x_at, y_at, ten, x_at, x_at], out.as_mut_ptr().cast(), n) };
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
                unsafe { chain.run(isa, &sources, out.as_mut_ptr().cast(), n) };
                let wanted: Vec<bf16> = (0..n).map(wanted).collect();
                assert_eq!(out, wanted, "{n} on {isa}");
            }
        }
    }
}
