//! Matmuls of 16-bit floats against f64, with tolerances that follow from how they round.

use half::{bf16, f16};

use super::*;
use crate::math::{Function, Unary};
use crate::testing::Rng;

/// What a 16-bit float loses: half a unit in its last place, relative.
trait Half: Packed {
    const UNIT: f64;
    fn from(x: f32) -> Self;
}

impl Half for bf16 {
    const UNIT: f64 = 1.0 / 256.0;
    fn from(x: f32) -> bf16 {
        bf16::from_f32(x)
    }
}

impl Half for f16 {
    const UNIT: f64 = 1.0 / 2048.0;
    fn from(x: f32) -> f16 {
        f16::from_f32(x)
    }
}

/// Every instruction set with and without its extensions.
fn sets() -> Vec<Isa> {
    let mut all = Isa::available();
    all.extend(Isa::available().into_iter().map(Isa::without_extensions));
    all.dedup();
    all
}

struct Case<T> {
    m: usize,
    n: usize,
    k: usize,
    a: Vec<T>,
    b: Vec<T>,
    transposed: bool,
}

impl<T: Half> Case<T> {
    fn new(rng: &mut Rng, m: usize, n: usize, k: usize) -> Case<T> {
        let mut random = |len: usize| rng.vec(len).into_iter().map(T::from).collect::<Vec<T>>();
        let (a, b) = (random(m * k), random(k * n));
        Case { m, n, k, a, b, transposed: rng.below(2) == 1 }
    }

    fn b_at(&self, p: usize, j: usize) -> T {
        if self.transposed { self.b[j * self.k + p] } else { self.b[p * self.n + j] }
    }

    /// The exact result for the rounded operands, and the sum of the magnitudes of its terms.
    fn product(&self, i: usize, j: usize) -> (f64, f64) {
        (0..self.k).fold((0.0, 0.0), |(sum, size), p| {
            let term = f64::from(self.a[i * self.k + p].widen()) * f64::from(self.b_at(p, j).widen());
            (sum + term, size + term.abs())
        })
    }

    fn packed(&self) -> Vec<f32> {
        let mut out = vec![f32::NAN; packed_words::<T>(self.k, self.n).unwrap()];
        let (rs, cs) = if self.transposed { (1, self.k as isize) } else { (self.n as isize, 1) };
        // SAFETY: the vectors cover the extents.
        unsafe { pack(self.b.as_ptr(), rs, cs, self.k, self.n, out.as_mut_ptr(), 0..panels(self.n)) };
        out
    }

    fn run(&self, isa: Isa, packed: &[f32], epilogue: Epilogue<T>, parts: usize) -> Vec<T> {
        let (stride, seven) = (self.n + 3, T::from(7.0));
        let mut c = vec![seven; self.m * stride];
        let g = Gemm {
            m: self.m,
            n: self.n,
            k: self.k,
            rows: Strided { ptr: self.a.as_ptr(), row_stride: self.k as isize },
            b: packed.as_ptr(),
            c: c.as_mut_ptr(),
            c_stride: stride,
            epilogue,
            tile_sizes: TileSizes::DEFAULT,
            ahead: Ahead::Panels,
            wide: None,
        };
        let tasks = g.tasks(isa);
        for part in 0..parts {
            // SAFETY: the vectors cover the extents.
            unsafe { g.run(isa, part * tasks / parts..(part + 1) * tasks / parts) };
        }
        for row in c.chunks(stride) {
            assert!(row[self.n..].iter().all(|x| x.widen() == seven.widen()), "wrote past the columns");
        }
        c.chunks(stride).flat_map(|r| r[..self.n].to_vec()).collect()
    }
}

fn bits<O: Packed>(v: &[O]) -> Vec<u32> {
    v.iter().map(|x| x.widen().to_bits()).collect()
}

fn products_are_right<T: Half>(seed: u64) {
    let mut rng = Rng::new(seed);
    let shapes = (1..=19).flat_map(|m| [(m, 48, 5), (m, 17, 34), (m, 100, 7)]);
    let more =
        [(37, 1, 1), (1, 200, 65), (64, 144, 31), (23, 47, 3), (3, 33, 201), (9, 96, 0), (11, 50, 9001)];
    for (m, n, k) in shapes.chain(more) {
        let case = Case::<T>::new(&mut rng, m, n, k);
        let packed = case.packed();
        for isa in sets() {
            let what = format!("{m}x{n}x{k} {isa:?}");
            let short = case.run(isa, &packed, Epilogue::NONE, 1);
            for x in 0..m * n {
                let (want, size) = case.product(x / n, x % n);
                // Sums in f32: each of k additions loses at most half a unit of what it has.
                let chain = f64::from(f32::EPSILON) * size * (k as f64).max(1.0);
                // And the result is rounded once.
                let rounded = chain + T::UNIT * want.abs();
                assert!((f64::from(short[x].widen()) - want).abs() <= rounded, "{what}: {want}");
            }
            for parts in [2, 3, 7] {
                let in_parts = case.run(isa, &packed, Epilogue::NONE, parts);
                assert_eq!(bits(&short), bits(&in_parts), "{parts} parts of {what}");
            }
        }
    }
}

#[test]
fn bf16_products_are_right_and_tile_sizes_do_not_change_bits() {
    products_are_right::<bf16>(11);
}

#[test]
fn f16_products_are_right_and_tile_sizes_do_not_change_bits() {
    products_are_right::<f16>(12);
}

/// The epilogue must give the very numbers that the matmul followed by single ops gives.
fn epilogues_round_like_single_ops<T: Half>(seed: u64) {
    let mut rng = Rng::new(seed);
    let case = Case::<T>::new(&mut rng, 13, 75, 21);
    let (m, n) = (case.m, case.n);
    let packed = case.packed();
    let col: Vec<T> = rng.vec(n).into_iter().map(T::from).collect();
    let other: Vec<T> = rng.vec(m * n).into_iter().map(T::from).collect();
    let round = |x: f32| T::from(x).widen();
    for isa in sets() {
        let plain = case.run(isa, &packed, Epilogue::NONE, 1);
        let combine = Some(Combine { ptr: other.as_ptr(), row_stride: n, op: BinaryOp::Add, after: false });
        let e = Epilogue { alpha: 0.5, combine, ..Epilogue::bias(col.as_ptr()) }.with(Unary::Relu);
        let got = case.run(isa, &packed, e, 2);
        for (x, (got, plain)) in got.iter().zip(&plain).enumerate() {
            let biased = round(round(plain.widen() * 0.5) + col[x % n].widen());
            let want = round(biased + other[x].widen()).max(0.0);
            assert_eq!(got.widen(), want, "element {x} on {isa:?}");
        }
        let after = Some(Combine { ptr: other.as_ptr(), row_stride: n, op: BinaryOp::Mul, after: true });
        let e = Epilogue { combine: after, ..Epilogue::NONE }.with(Unary::Function(Function::Silu));
        let got = case.run(isa, &packed, e, 1);
        for (x, (got, plain)) in got.iter().zip(&plain).enumerate() {
            let p = plain.widen();
            let want = round(p / (1.0 + (-p).exp())) * other[x].widen();
            let off = (got.widen() - want).abs();
            assert!(f64::from(off) <= 2.0 * T::UNIT * f64::from(want.abs()) + 1e-7, "{x}: {off}");
        }
    }
}

#[test]
fn epilogues_of_short_types_round_like_single_ops() {
    epilogues_round_like_single_ops::<bf16>(13);
    epilogues_round_like_single_ops::<f16>(14);
}

#[test]
fn too_large_products_of_f16_become_infinite_and_nan_stays_in_its_row() {
    let (m, n, k) = (5, 50, 4);
    let mut a = vec![f16::from_f32(200.0); m * k];
    a[2 * k] = f16::NAN;
    let case = Case { m, n, k, a, b: vec![f16::from_f32(200.0); k * n], transposed: false };
    let packed = case.packed();
    for isa in sets() {
        let out = case.run(isa, &packed, Epilogue::NONE, 1);
        for (x, v) in out.iter().enumerate() {
            assert!(if x / n == 2 { v.is_nan() } else { *v == f16::INFINITY }, "{x}: {v}");
        }
    }
}
