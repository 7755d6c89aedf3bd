//! Matmuls of 16-bit floats against f64, with tolerances that follow from how they round.

use half::{bf16, f16};

use super::*;
use crate::math::{self, Function, Unary};
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

/// Every instruction set with and without its extensions, and with bf16 products even where they are slower.
fn sets() -> Vec<Isa> {
    let mut all = Isa::available();
    all.extend(Isa::available().into_iter().map(Isa::without_extensions));
    all.extend(Isa::available().into_iter().map(Isa::with_bf16_products).filter(|isa| isa.has_bf16()));
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
        let function = Unary::Function(Function::Silu);
        let got = case.run(isa, &packed, Epilogue { combine: after, ..Epilogue::NONE }.with(function), 1);
        let mut single = plain;
        let p = single.as_mut_ptr();
        // SAFETY: the vector is as long as that.
        unsafe { math::apply(isa, function, p.cast_const(), p, single.len()) };
        for (x, (got, single)) in got.iter().zip(&single).enumerate() {
            assert_eq!(got.widen(), round(single.widen() * other[x].widen()), "element {x} on {isa:?}");
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

/// The results of a matmul, or its sums, added to what was there.
fn results<T: Half>(g: Gemm<AnyRows<T>>, isa: Isa, wide: bool) -> Vec<u32> {
    let (mut c, mut sums) = (vec![T::zero(); g.m * g.n], vec![0.25f32; g.m * g.n]);
    let to = Wide { sums: sums.as_mut_ptr(), stride: g.n, add: true };
    let g = Gemm { c: c.as_mut_ptr(), c_stride: g.n, wide: wide.then_some(to), ..g };
    // SAFETY: the caller's operands; results have room.
    unsafe { g.run(isa, 0..g.tasks(isa)) };
    if wide { bits(&sums) } else { bits(&c) }
}

/// Rows have the same results alone, where they are widened in registers, and among others, where they are widened before.
fn check_rows<T: Half>(g: Gemm<AnyRows<T>>, what: &str) {
    for isa in sets() {
        for wide in [false, true] {
            let mut alone = Vec::new();
            for row in 0..g.m {
                let mut one = g;
                (one.m, one.rows) = (1, g.rows.skip(row));
                alone.extend(results(one, isa, wide));
            }
            assert_eq!(results(g, isa, wide), alone, "{what} {isa:?} {wide}");
        }
    }
}

fn rows_have_the_same_bits_alone_and_among_others<T: Half>(seed: u64) {
    let mut rng = Rng::new(seed);
    // Shallow ones, whose panels are widened together; odd depths; several parts of the depth; more tiles than have room for their sums.
    for (m, n, k) in
        [(6, 200, 15), (40, 150, 16), (13, 47, 201), (23, 100, 128), (300, 17, 130), (7, 48, 1), (8, 20, 0)]
    {
        let case = Case::<T>::new(&mut rng, m, n, k);
        let packed = case.packed();
        let rows = AnyRows::Matrix(Strided { ptr: case.a.as_ptr(), row_stride: k as isize });
        check_rows(gemm(m, n, k, rows, &packed), &format!("{m} x {n} x {k}"));
    }
    // Convolutions of padded lines, of gaps, and of more channels than are widened at a time.
    for (c, oc, dilation) in [(3, 50, 1), (16, 40, 2), (70, 100, 1), (131, 20, 5)] {
        let (size, span) = ([1, 5, 7], 2 * dilation + 1);
        let out = [1, 5 + 2 * dilation + 1 - span, 7 + 2 * dilation + 1 - span];
        let mut random = |len: usize| rng.vec(len).into_iter().map(T::from).collect::<Vec<T>>();
        let (x, w, zeros) = (random(35 * c), random(9 * c * oc), vec![T::zero(); c]);
        let words = packed_words::<T>(c, oc).unwrap();
        let mut packed = vec![f32::NAN; 9 * words];
        for panel in 0..panels(oc) {
            for tap in 0..9 {
                let (from, width) =
                    (w[(tap * c) * oc + panel * PANEL..].as_ptr(), PANEL.min(oc - panel * PANEL));
                let to = packed[(panel * 9 + tap) * groups::<T>(c) * PANEL..].as_mut_ptr();
                // SAFETY: the vectors cover the extents.
                unsafe { pack_panel(from, oc as isize, 1, c, width, to) };
            }
        }
        let rows = AnyRows::Windows(ConvRows {
            input: x.as_ptr(),
            zeros: zeros.as_ptr(),
            size,
            strides: [35 * c, 7 * c, c],
            volume_stride: 35 * c,
            out,
            kernel: [1, 3, 3],
            stride: [1; 3],
            dilation: [1, dilation, dilation],
            pad: [0, dilation, dilation],
            first: 0,
        });
        check_rows(gemm(out[1] * out[2], oc, c, rows, &packed), &format!("{c} channels, {dilation} apart"));
    }
}

/// A matmul that writes nowhere yet.
fn gemm<T: Half>(m: usize, n: usize, k: usize, rows: AnyRows<T>, packed: &[f32]) -> Gemm<AnyRows<T>> {
    let (c, epilogue, tile_sizes) = (std::ptr::null_mut(), Epilogue::NONE, TileSizes::DEFAULT);
    Gemm {
        m,
        n,
        k,
        rows,
        b: packed.as_ptr(),
        c,
        c_stride: n,
        epilogue,
        tile_sizes,
        ahead: Ahead::Panels,
        wide: None,
    }
}

#[test]
fn rows_of_short_types_have_the_same_bits_alone_and_among_others() {
    rows_have_the_same_bits_alone_and_among_others::<bf16>(15);
    rows_have_the_same_bits_alone_and_among_others::<f16>(16);
}
