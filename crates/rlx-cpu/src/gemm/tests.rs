//! Matmuls against f64, on every instruction set this processor has.

use super::panels::WIDEST;
use super::*;
use crate::isa::IsaKind;
use crate::math::{Function, Unary};
use crate::pool::{Pool, Wake};
use crate::simd::LANES;
use crate::testing::{Rng, assert_close};
use half::{bf16, f16};

/// A matmul with strides: `a` at (i, k) is `a[i·lda + k]`, `b` at (k, j) is `b[k·rs + j·cs]`.
struct Case {
    m: usize,
    n: usize,
    k: usize,
    lda: usize,
    ldc: usize,
    a: Vec<f32>,
    b: Vec<f32>,
    transposed: bool,
}

impl Case {
    fn new(rng: &mut Rng, m: usize, n: usize, k: usize) -> Case {
        let (lda, ldc) = (k + rng.below(5), n + rng.below(5));
        let (a, b) = (rng.vec(m * lda), rng.vec(k * n));
        Case { m, n, k, lda, ldc, a, b, transposed: rng.below(2) == 1 }
    }

    fn b_at(&self, p: usize, j: usize) -> f32 {
        if self.transposed { self.b[j * self.k + p] } else { self.b[p * self.n + j] }
    }

    fn product(&self, i: usize, j: usize) -> f64 {
        (0..self.k).map(|p| f64::from(self.a[i * self.lda + p]) * f64::from(self.b_at(p, j))).sum()
    }

    fn packed(&self) -> Vec<f32> {
        // NaN shows what packing leaves unwritten.
        let mut out = vec![f32::NAN; packed_len(self.k, self.n).unwrap()];
        let (rs, cs) = if self.transposed { (1, self.k as isize) } else { (self.n as isize, 1) };
        // SAFETY: the vectors cover the extents.
        unsafe { pack(self.b.as_ptr(), rs, cs, self.k, self.n, out.as_mut_ptr(), 0..panels(self.n)) };
        out
    }

    fn rows(&self) -> Strided {
        Strided { ptr: self.a.as_ptr(), row_stride: self.lda as isize }
    }

    /// Runs with the tasks split into `parts` ranges, every second one backwards; returns C, whose gaps must keep 7.
    fn run(&self, isa: Isa, packed: &[f32], epilogue: Epilogue, parts: usize) -> Vec<f32> {
        self.run_tiled(isa, packed, epilogue, TileSizes::DEFAULT, parts)
    }

    /// As [`Case::run`], with these tile sizes.
    fn run_tiled(
        &self,
        isa: Isa,
        packed: &[f32],
        epilogue: Epilogue,
        tile_sizes: TileSizes,
        parts: usize,
    ) -> Vec<f32> {
        let mut c = vec![7.0f32; self.m * self.ldc];
        let g = Gemm {
            m: self.m,
            n: self.n,
            k: self.k,
            rows: self.rows(),
            b: packed.as_ptr(),
            c: c.as_mut_ptr(),
            c_stride: self.ldc,
            epilogue,
            tile_sizes,
            ahead: Ahead::Next(Next { b: packed.as_ptr(), depth: self.k, panels: panels(self.n) }),
            wide: None,
        };
        let tasks = g.tasks(isa);
        for part in 0..parts {
            let range = part * tasks / parts..(part + 1) * tasks / parts;
            // SAFETY: the vectors cover the extents.
            unsafe { if part % 2 == 1 { g.run_backward(isa, range) } else { g.run(isa, range) } };
        }
        for row in c.chunks(self.ldc) {
            assert!(row[self.n..].iter().all(|&x| x == 7.0), "wrote past the columns");
        }
        c.chunks(self.ldc).flat_map(|r| r[..self.n].to_vec()).collect()
    }

    fn want(&self, f: impl Fn(f64, usize, usize) -> f64) -> Vec<f64> {
        (0..self.m * self.n)
            .map(|x| f(self.product(x / self.n, x % self.n), x / self.n, x % self.n))
            .collect()
    }
}

#[test]
fn every_height_width_and_depth_is_right_and_tile_sizes_do_not_change_bits() {
    let mut rng = Rng::new(1);
    let shapes = (1..=20).flat_map(|m| [(m, 48, 5), (m, 17, 33), (m, 100, 8), (m, 64, 21), (m, 150, 6)]);
    let more =
        [(37, 1, 1), (1, 200, 64), (64, 144, 31), (23, 47, 3), (50, 49, 100), (3, 33, 200), (9, 96, 0)];
    for (m, n, k) in shapes.chain(more) {
        let case = Case::new(&mut rng, m, n, k);
        let packed = case.packed();
        let want = case.want(|x, _, _| x);
        for isa in Isa::available() {
            let c = case.run(isa, &packed, Epilogue::NONE, 1);
            assert_close(&c, &want, 1e-5, &format!("{m}x{n}x{k} {isa:?}"));
            for parts in [2, 3, 7] {
                assert_eq!(c, case.run(isa, &packed, Epilogue::NONE, parts), "{parts} parts of {m}x{n}x{k}");
            }
        }
    }
}

#[test]
fn deep_and_tall_products_are_blocked_without_changing_a_bit() {
    let mut rng = Rng::new(2);
    for (m, n, k) in [(11, 50, 9001), (300, 60, 2500)] {
        let case = Case::new(&mut rng, m, n, k);
        let packed = case.packed();
        let want = case.want(|x, _, _| x);
        for isa in Isa::available() {
            let c = case.run(isa, &packed, Epilogue::NONE, 2);
            assert_close(&c, &want, 2e-4, &format!("{m}x{n}x{k} {isa:?}"));
            // One ascending chain per element, in the same arithmetic.
            if isa.kind() == IsaKind::Avx512 {
                let chain = (0..k).fold(0.0f32, |s, p| case.a[p].mul_add(case.b_at(p, 0), s));
                assert_eq!(c[0].to_bits(), chain.to_bits());
            }
        }
    }
}

#[test]
fn the_epilogue_does_what_it_says() {
    let mut rng = Rng::new(3);
    let case = Case::new(&mut rng, 13, 75, 20);
    let (m, n) = (case.m, case.n);
    let packed = case.packed();
    let (col, row, other) = (rng.vec(n), rng.vec(m), rng.vec(m * (n + 3)));
    let at = |i: usize, j: usize| f64::from(other[i * (n + 3) + j]);
    let combine = |op, after| Some(Combine { ptr: other.as_ptr(), row_stride: n + 3, op, after });
    for isa in Isa::available() {
        let e =
            Epilogue { alpha: 0.5, combine: combine(BinaryOp::Add, false), ..Epilogue::bias(col.as_ptr()) };
        let want = case.want(|x, i, j| 0.5 * x + f64::from(col[j]) + at(i, j));
        assert_close(&case.run(isa, &packed, e, 2), &want, 1e-5, "scaled, bias, residual");

        let e = Epilogue { combine: combine(BinaryOp::Mul, false), ..Epilogue::NONE }.with(Unary::Relu);
        let want = case.want(|x, i, j| (x * at(i, j)).max(0.0));
        assert_close(&case.run(isa, &packed, e, 3), &want, 1e-5, "product, relu");

        let e = Epilogue { bias: Bias::PerRow(row.as_ptr()), ..Epilogue::NONE }
            .with(Unary::Function(Function::Silu));
        let e = Epilogue { combine: combine(BinaryOp::Mul, true), ..e };
        let silu = |x: f64| x / (1.0 + (-x).exp());
        let want = case.want(|x, i, j| silu(x + f64::from(row[i])) * at(i, j));
        assert_close(&case.run(isa, &packed, e, 1), &want, 1e-5, "row bias, silu, gate");

        let e = Epilogue::NONE.with(Unary::Clip { lo: -0.5, hi: 0.25 });
        let want = case.want(|x, _, _| x.clamp(-0.5, 0.25));
        assert_close(&case.run(isa, &packed, e, 1), &want, 1e-5, "clip");
    }
}

#[test]
fn a_residual_may_be_the_result_itself() {
    let mut rng = Rng::new(4);
    let case = Case::new(&mut rng, 10, 50, 6000);
    let (packed, start) = (case.packed(), rng.vec(10 * 50));
    let want = case.want(|x, i, j| x + f64::from(start[i * 50 + j]));
    for isa in Isa::available() {
        let mut c = start.clone();
        let ptr = c.as_mut_ptr();
        let combine = Some(Combine { ptr, row_stride: 50, op: BinaryOp::Add, after: false });
        let epilogue = Epilogue { combine, ..Epilogue::NONE };
        let (m, n, k) = (case.m, case.n, case.k);
        let b = packed.as_ptr();
        let g = Gemm {
            m,
            n,
            k,
            rows: case.rows(),
            b,
            c: ptr,
            c_stride: 50,
            epilogue,
            tile_sizes: TileSizes::DEFAULT,
            ahead: Ahead::Panels,
            wide: None,
        };
        // SAFETY: the vectors cover the extents.
        unsafe { g.run(isa, 0..g.tasks(isa)) };
        assert_close(&c, &want, 1e-4, "accumulated in place");
    }
}

#[test]
fn every_cut_gives_the_same_bits() {
    let mut rng = Rng::new(11);
    for (m, n, k) in [(1, 48, 9), (23, 100, 70), (600, 49, 700), (31, 60, 6000), (70, 112, 90)] {
        let case = Case::new(&mut rng, m, n, k);
        let (packed, row) = (case.packed(), rng.vec(n));
        let epilogue = Epilogue::bias(row.as_ptr()).with(Unary::Function(Function::Gelu));
        for isa in Isa::available() {
            let expected = case.run(isa, &packed, epilogue, 1);
            let ways = TileSizes::variants(isa);
            assert!(ways.len() > 2, "{isa}");
            for (name, tile_sizes) in ways {
                let found = case.run_tiled(isa, &packed, epilogue, tile_sizes, 3);
                let same = found.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "{isa} {name} {m}×{n}×{k}");
            }
        }
    }
}

#[test]
fn nan_stays_in_its_row_and_one_or_two_threads_give_the_same_bits() {
    let mut rng = Rng::new(5);
    let mut case = Case::new(&mut rng, 70, 130, 40);
    case.a[3 * case.lda + 7] = f32::NAN;
    let packed = case.packed();
    let pool = Pool::new(2).unwrap();
    for isa in Isa::available() {
        let one = case.run(isa, &packed, Epilogue::NONE, 1);
        for (i, row) in one.chunks(case.n).enumerate() {
            assert!(row.iter().all(|x| x.is_nan() == (i == 3)), "row {i}");
        }
        let mut two = vec![0.0f32; case.m * case.n];
        let g = Gemm {
            m: case.m,
            n: case.n,
            k: case.k,
            rows: case.rows(),
            b: packed.as_ptr(),
            c: two.as_mut_ptr(),
            c_stride: case.n,
            epilogue: Epilogue::NONE,
            tile_sizes: TileSizes::DEFAULT,
            ahead: Ahead::Panels,
            wide: None,
        };
        // SAFETY: the vectors cover the extents, and tasks are disjoint.
        pool.enter(Wake::Yes).parallel_for(g.tasks(isa), &|range| unsafe { g.run(isa, range) });
        let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&one), bits(&two));
    }
}

#[test]
fn tilings_cover_everything_once() {
    let mut rng = Rng::new(6);
    for _ in 0..300 {
        let (m, n, depth) = (1 + rng.below(3000), 1 + rng.below(500), 1 + rng.below(3000));
        let variants = TileSizes::variants(Isa::detect());
        for (rows, (_, tile_sizes)) in
            [2, 6, 9].into_iter().flat_map(|r| variants.iter().map(move |v| (r, v)))
        {
            let t = Tiling::new(m, n, depth, rows, *tile_sizes);
            let mut seen = vec![0u8; t.tasks()];
            for task in 0..t.tasks() {
                let (panel, tile) = t.place(task);
                seen[tile * t.panels + panel] += 1;
            }
            assert!(seen.iter().all(|&s| s == 1));
            assert!(t.stretches(0..0).next().is_none());
            let start = rng.below(t.tasks());
            let range = start..start + rng.below(t.tasks() - start + 1);
            let stretches =
                t.stretches(range.clone()).flat_map(|(panel, tiles)| tiles.map(move |i| (panel, i)));
            assert!(stretches.eq(range.map(|task| t.place(task))));
            assert_eq!(t.tile_rows(0, m).start, 0);
            assert_eq!(t.tile_rows(t.tiles - 1, m).end, m);
            for i in 1..t.tiles {
                assert_eq!(t.tile_rows(i - 1, m).end, t.tile_rows(i, m).start);
                assert!((1..=rows).contains(&t.tile_rows(i, m).len()));
            }
        }
    }
}

#[test]
fn tiles_of_a_row_have_all_of_its_columns_and_the_widest_has_a_last_vector() {
    for n in 1..400 {
        for (widest, most) in [(false, PANEL), (true, WIDEST)] {
            let panels = tiles_across(n, widest);
            let tiling = Tiling { panels, ..Tiling::new(5, n, 7, 9, TileSizes::DEFAULT) };
            let mut end = 0;
            for panel in 0..panels {
                let columns = tiling.columns(panel, n);
                assert_eq!(columns.start, end, "{n}");
                assert!((1..=most).contains(&columns.len()), "{n}: {columns:?}");
                assert!(!widest || n <= PANEL || columns.len() > LANES, "{n}: {columns:?}");
                end = columns.end;
            }
            assert_eq!(end, n);
        }
    }
}

#[test]
fn the_blocks_of_a_depth_cover_it_once() {
    for (taps, groups) in
        [(1, 0), (1, 1), (1, 2048), (1, 2049), (1, 9001), (9, 1), (9, 600), (9, 5000), (27, 100)]
    {
        for most in [1, 7, 2048, usize::MAX] {
            let mut next = 0;
            let blocks: Vec<_> = kernel::parts(taps, groups, most).collect();
            for (i, part) in blocks.iter().enumerate() {
                assert_eq!(part.taps.start * groups + part.k.start, next, "{taps} taps of {groups}, {most}");
                assert_eq!((part.first, part.last), (i == 0, i + 1 == blocks.len()));
                assert!(taps == 1 || part.k == (0..groups));
                // One tap is the finest split of several.
                assert!(part.depth() <= most.max(if taps == 1 { 1 } else { groups }));
                next += part.depth();
            }
            assert_eq!(next, taps * groups, "{taps} taps of {groups}, {most}");
        }
    }
}

/// One generic matmul of 3×4 by 4×5 with a transposed left side, through i128 or f64.
fn generic_case<T: Element>(make: impl Fn(i64) -> T) -> Vec<T> {
    let a: Vec<T> = (0..12).map(|i| make(i * 37 % 19 - 7)).collect();
    let b: Vec<T> = (0..20).map(|i| make(i * 53 % 23 - 11)).collect();
    let mut c = vec![make(0); 15];
    let lhs = StridedMatrix { ptr: a.as_ptr(), row_stride: 1, col_stride: 3 };
    let rhs = StridedMatrix { ptr: b.as_ptr(), row_stride: 5, col_stride: 1 };
    // SAFETY: the vectors cover the extents.
    unsafe {
        generic_gemm(0..1, 5, 4, lhs, rhs, c.as_mut_ptr(), 5);
        generic_gemm(1..3, 5, 4, lhs, rhs, c.as_mut_ptr(), 5);
    }
    c
}

fn generic_want() -> Vec<i64> {
    let a = |i: i64, k: i64| (k * 3 + i) * 37 % 19 - 7;
    let b = |k: i64, j: i64| (k * 5 + j) * 53 % 23 - 11;
    (0..15).map(|x| (0..4).map(|k| a(x / 5, k) * b(k, x % 5)).sum()).collect()
}

#[test]
fn other_element_types_multiply_exactly_where_they_can() {
    let want = generic_want();
    assert_eq!(generic_case(|x| x), want);
    assert_eq!(generic_case(|x| x as f64), want.iter().map(|&x| x as f64).collect::<Vec<_>>());
    assert_eq!(generic_case(|x| x as u8), want.iter().map(|&x| x as u8).collect::<Vec<_>>());
    assert_eq!(generic_case(|x| x as i8), want.iter().map(|&x| x as i8).collect::<Vec<_>>());
    assert_eq!(generic_case(|x| x as u16), want.iter().map(|&x| x as u16).collect::<Vec<_>>());
    assert_eq!(generic_case(|x| x as u64), want.iter().map(|&x| x as u64).collect::<Vec<_>>());
    let halves = generic_case(|x| f16::from_f64(x as f64));
    assert_eq!(halves, want.iter().map(|&x| f16::from_f64(x as f64)).collect::<Vec<_>>());
    let brains = generic_case(|x| bf16::from_f64(x as f64));
    assert_eq!(brains, want.iter().map(|&x| bf16::from_f64(x as f64)).collect::<Vec<_>>());
}

#[test]
fn absurd_sizes_do_not_wrap() {
    assert_eq!(packed_len(usize::MAX / 2, 100), None);
    assert_eq!(packed_len(10, usize::MAX), None);
    assert_eq!(packed_len(3, 49), Some(288));
}

#[test]
fn the_columns_of_panels_as_rows_give_the_transposed_result_to_the_bit() {
    let mut rng = Rng::new(9);
    for (m, n, k) in [(1, 1, 1), (13, 50, 7), (100, 48, 30), (47, 101, 65), (9, 200, 2100)] {
        let case = Case::new(&mut rng, m, n, k);
        let (packed, bias) = (case.packed(), rng.vec(n));
        let mut turned = vec![f32::NAN; packed_len(k, m).unwrap()];
        // SAFETY: the vectors cover the extents.
        unsafe { pack(case.a.as_ptr(), 1, case.lda as isize, k, m, turned.as_mut_ptr(), 0..panels(m)) };
        for isa in Isa::available() {
            let want = case.run(isa, &packed, Epilogue::bias(bias.as_ptr()).with(Unary::Relu), 1);
            let mut c = vec![f32::NAN; n * m];
            let g = Gemm {
                m: n,
                n: m,
                k,
                rows: PackedColumns { panels: packed.as_ptr(), depth: k, first: 0 },
                b: turned.as_ptr(),
                c: c.as_mut_ptr(),
                c_stride: m,
                epilogue: Epilogue { bias: Bias::PerRow(bias.as_ptr()), ..Epilogue::NONE }.with(Unary::Relu),
                tile_sizes: TileSizes::DEFAULT,
                ahead: Ahead::Nothing,
                wide: None,
            };
            // SAFETY: as above.
            unsafe { g.run(isa, 0..g.tasks(isa)) };
            for (i, x) in want.iter().enumerate() {
                assert_eq!(x.to_bits(), c[i % n * m + i / n].to_bits(), "{m}x{n}x{k} {i} {isa:?}");
            }
        }
    }
}
