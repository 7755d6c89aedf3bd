//! Rows of every length against f64, on every instruction set.

use super::*;
use crate::isa::Isa;
use crate::testing::{Rng, assert_close};

const ALL: [Reduction; 6] = [
    Reduction::Sum,
    Reduction::Mean,
    Reduction::SumOfSquares,
    Reduction::MeanOfSquares,
    Reduction::Max,
    Reduction::Min,
];

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&v| f64::from(v)).collect()
}

#[test]
fn reductions_are_right_and_have_the_same_bits_everywhere() {
    let mut rng = Rng::new(31);
    for n in (1..80).chain([128, 1000, 4097]) {
        let x = rng.vec(3 * n);
        let rows: Vec<Vec<f64>> = x.chunks(n).map(wide).collect();
        type Reference = fn(&[f64]) -> f64;
        let cases: [(Reduction, Reference); 6] = [
            (Reduction::Sum, |r| r.iter().sum()),
            (Reduction::Mean, |r| r.iter().sum::<f64>() / r.len() as f64),
            (Reduction::SumOfSquares, |r| r.iter().map(|v| v * v).sum()),
            (Reduction::MeanOfSquares, |r| r.iter().map(|v| v * v).sum::<f64>() / r.len() as f64),
            (Reduction::Max, |r| r.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
            (Reduction::Min, |r| r.iter().copied().fold(f64::INFINITY, f64::min)),
        ];
        for (how, exact) in cases {
            let want: Vec<f64> = rows.iter().map(|r| exact(r)).collect();
            let mut bits = Vec::new();
            for isa in Isa::available() {
                let mut out = [0.0; 3];
                reduce(isa, how, &x, n, &mut out);
                assert_close(&out, &want, 1e-4, &format!("{how:?} of {n}"));
                bits.push(out.map(f32::to_bits));
            }
            assert!(bits.windows(2).all(|w| w[0] == w[1]), "{how:?} of {n}");
        }
    }
}

#[test]
fn columns_are_reduced_like_rows_of_the_transpose() {
    let mut rng = Rng::new(33);
    for (lines, columns) in [(1, 1), (3, 7), (49, 96), (130, 64), (300, 81), (1000, 17), (257, 130)] {
        let step = columns + 3;
        let x = rng.vec(lines * step);
        let column = |j: usize| (0..lines).map(|i| f64::from(x[i * step + j])).collect::<Vec<f64>>();
        type Reference = fn(Vec<f64>) -> f64;
        let cases: [(Reduction, Reference); 6] = [
            (Reduction::Sum, |c| c.iter().sum()),
            (Reduction::Mean, |c| c.iter().sum::<f64>() / c.len() as f64),
            (Reduction::SumOfSquares, |c| c.iter().map(|v| v * v).sum()),
            (Reduction::MeanOfSquares, |c| c.iter().map(|v| v * v).sum::<f64>() / c.len() as f64),
            (Reduction::Max, |c| c.into_iter().fold(f64::NEG_INFINITY, f64::max)),
            (Reduction::Min, |c| c.into_iter().fold(f64::INFINITY, f64::min)),
        ];
        for (how, exact) in cases {
            let want: Vec<f64> = (0..columns).map(|j| exact(column(j))).collect();
            for isa in Isa::available() {
                let mut out = vec![7.0; columns];
                let from = Columns { x: x.as_ptr(), step: step as isize, lines, columns };
                // SAFETY: the vectors cover the extents.
                unsafe { reduce_columns(isa, how, from, out.as_mut_ptr()) };
                assert_close(&out, &want, 1e-4, &format!("{how:?} of {lines}×{columns}"));
                let mut holed = x.clone();
                holed[(lines - 1) * step] = f32::NAN;
                let from = Columns { x: holed.as_ptr(), ..from };
                // SAFETY: as above.
                unsafe { reduce_columns(isa, how, from, out.as_mut_ptr()) };
                assert!(out[0].is_nan() && !out[columns - 1].is_nan() || columns == 1, "{how:?}");
            }
        }
    }
}

#[test]
fn columns_of_lines_far_apart_have_the_bits_that_they_have_alone() {
    let mut rng = Rng::new(35);
    for (lines, columns) in [(1, 1030), (3, 1024), (131, 1500), (300, 2051), (258, 1025)] {
        let step = columns as isize;
        let x = rng.vec(lines * columns);
        for how in ALL {
            for isa in Isa::available() {
                let (mut all, mut alone) = (vec![0.0f32; columns], vec![0.0f32; columns]);
                let from = Columns { x: x.as_ptr(), step, lines, columns };
                // SAFETY: the vectors cover the extents.
                unsafe {
                    reduce_columns(isa, how, from, all.as_mut_ptr());
                    for (j, to) in alone.iter_mut().enumerate() {
                        let one = Columns { x: from.x.add(j), columns: 1, ..from };
                        reduce_columns(isa, how, one, to);
                    }
                }
                let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&all), bits(&alone), "{how:?} of {lines}×{columns}, {isa}");
            }
        }
    }
}

/// All stretches one by one, joined, have the bits of the columns as a whole.
fn check_stretches<T: crate::gemm::Packed>(narrow: fn(f32) -> T) {
    let mut rng = Rng::new(36);
    for (lines, columns) in [(32, 5), (49, 96), (130, 64), (511, 20), (513, 130), (700, 1100)] {
        let step = columns + 5;
        let x: Vec<T> = rng.vec(lines * step).into_iter().map(narrow).collect();
        let all = Columns { x: x.as_ptr(), step: step as isize, lines, columns };
        let stretches = all.stretches();
        assert!(stretches >= 4, "{lines} lines are too few stretches for threads to divide");
        for how in ALL {
            for isa in Isa::available() {
                let (mut whole, mut joined) = (vec![T::zero(); columns], vec![T::zero(); columns]);
                let mut partial = vec![0.0f32; stretches * columns];
                // SAFETY: the vectors cover the extents.
                unsafe {
                    reduce_columns(isa, how, all, whole.as_mut_ptr());
                    for (stretch, part) in partial.chunks_exact_mut(columns).enumerate() {
                        super::reduce_stretch(isa, how, all, stretch, part.as_mut_ptr());
                    }
                    let x = partial.as_ptr();
                    let parts = Columns { x, step: columns as isize, lines: stretches, columns };
                    super::join_stretches(isa, how, parts, lines, joined.as_mut_ptr());
                }
                let bits = |v: &[T]| v.iter().map(|x| x.widen().to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&whole), bits(&joined), "{how:?} of {lines}×{columns}, {isa}");
            }
        }
    }
}

#[test]
fn stretches_that_are_joined_have_the_bits_of_the_whole() {
    check_stretches::<f32>(|x| x);
    check_stretches(half::f16::from_f32);
    check_stretches(half::bf16::from_f32);
}

/// Rows and columns of 16-bit floats, which are sums in f32 that are rounded once.
fn check_short<T: crate::gemm::Packed>(narrow: fn(f32) -> T, epsilon: f64) {
    let mut rng = Rng::new(34);
    for (rows, columns) in [(1, 1), (3, 7), (130, 49), (5, 200), (3, 1000)] {
        let step = columns + 3;
        let x: Vec<T> = rng.vec(rows * step).into_iter().map(narrow).collect();
        let at = |i: usize, j: usize| f64::from(x[i * step + j].widen());
        let by_row: Vec<f64> = (0..rows).map(|i| (0..columns).map(|j| at(i, j)).sum()).collect();
        let by_column: Vec<f64> = (0..columns).map(|j| (0..rows).map(|i| at(i, j)).sum()).collect();
        let largest: Vec<f64> =
            (0..rows).map(|i| (0..columns).map(|j| at(i, j)).fold(f64::NEG_INFINITY, f64::max)).collect();
        for isa in Isa::available() {
            let close = |y: T, want: f64| {
                let bound = epsilon * want.abs() + 1e-4;
                assert!((f64::from(y.widen()) - want).abs() <= bound, "{} for {want}", y.widen());
            };
            let all = Rows { x: x.as_ptr(), step: step as isize, rows, columns };
            // Every other element of this is left alone.
            let mut out = vec![narrow(7.0); 2 * rows];
            // SAFETY: the vectors cover the extents.
            unsafe { reduce_rows(isa, Reduction::Sum, all, out.as_mut_ptr(), 2) };
            (0..rows).for_each(|i| close(out[2 * i], by_row[i]));
            assert!((0..rows).all(|i| out[2 * i + 1].widen() == 7.0));
            // SAFETY: as above.
            unsafe { reduce_rows(isa, Reduction::Max, all, out.as_mut_ptr(), 2) };
            (0..rows).for_each(|i| assert_eq!(f64::from(out[2 * i].widen()), largest[i]));
            let mut out = vec![narrow(7.0); columns];
            let all = Columns { x: x.as_ptr(), step: step as isize, lines: rows, columns };
            // SAFETY: as above.
            unsafe { reduce_columns(isa, Reduction::Sum, all, out.as_mut_ptr()) };
            (0..columns).for_each(|j| close(out[j], by_column[j]));
        }
    }
}

#[test]
fn rows_and_columns_of_short_floats_are_rounded_once() {
    check_short(half::bf16::from_f32, 1.0 / 256.0);
    check_short(half::f16::from_f32, 1.0 / 2048.0);
}

/// Sixteen short rows of whole vectors, whose lanes are added up together, and each alone.
fn check_sixteen<T: crate::gemm::Packed>(narrow: fn(f32) -> T) {
    let mut rng = Rng::new(37);
    for columns in [16, 32, 48, 64, 80] {
        let (rows, step) = (2 * 16 + 5, columns + 3);
        let mut x = rng.vec(rows * step);
        (x[3], x[2 * step + 1], x[17 * step]) = (f32::NAN, f32::INFINITY, 1e-40);
        x[4 * step..5 * step].fill(-0.0);
        let x: Vec<T> = x.into_iter().map(narrow).collect();
        for how in ALL {
            for isa in Isa::available() {
                let (mut together, mut alone) = (vec![T::zero(); rows], vec![T::zero(); 2 * rows]);
                let all = Rows { x: x.as_ptr(), step: step as isize, rows, columns };
                // SAFETY: the vectors cover the extents.
                unsafe {
                    reduce_rows(isa, how, all, together.as_mut_ptr(), 1);
                    // Results that are no neighbours are computed one by one.
                    reduce_rows(isa, how, all, alone.as_mut_ptr(), 2);
                }
                let bits = |x: &T| x.widen().to_bits();
                let alone: Vec<u32> = alone.iter().step_by(2).map(bits).collect();
                let together: Vec<u32> = together.iter().map(bits).collect();
                assert_eq!(together, alone, "{how:?} of {columns}, {isa}");
            }
        }
    }
}

#[test]
fn sixteen_short_rows_have_the_bits_of_each_alone() {
    check_sixteen::<f32>(|x| x);
    check_sixteen(half::f16::from_f32);
    check_sixteen(half::bf16::from_f32);
}

#[test]
fn nan_wins_every_reduction_wherever_it_stands() {
    for isa in Isa::available() {
        for at in [0, 5, 15, 16, 33, 36] {
            let mut x = vec![1.0f32; 37];
            x[at] = f32::NAN;
            for how in ALL {
                let mut out = [0.0];
                reduce(isa, how, &x, 37, &mut out);
                assert!(out[0].is_nan(), "{how:?}, NaN at {at}");
            }
        }
    }
}

#[test]
fn softmax_and_its_logarithm_are_right() {
    let mut rng = Rng::new(32);
    for n in (1..40).chain([128, 333]) {
        let x: Vec<f32> = (0..2 * n).map(|_| rng.uniform(-30.0, 30.0)).collect();
        for log in [false, true] {
            let want: Vec<f64> = x
                .chunks(n)
                .flat_map(|row| {
                    let v = wide(row);
                    let max = v.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let sum: f64 = v.iter().map(|t| (t - max).exp()).sum();
                    v.into_iter().map(move |t| if log { t - max - sum.ln() } else { (t - max).exp() / sum })
                })
                .collect();
            for isa in Isa::available() {
                let mut y = x.clone();
                let rows = Softmax { x: y.as_ptr(), y: y.as_mut_ptr(), rows: 2, columns: n, log, held: None };
                // SAFETY: the vectors cover the rows.
                unsafe { softmax(isa, &rows) };
                assert_close(&y, &want, 4e-6, &format!("softmax of {n}, log {log}"));
            }
        }
    }
}

/// Softmax and norm of 16-bit floats, which are those of the widened rows, rounded once.
fn check_short_rows<T: crate::gemm::Packed + PartialEq + std::fmt::Debug>(narrow: fn(f32) -> T) {
    let mut rng = Rng::new(37);
    for (rows, columns) in [(1, 1), (7, 5), (9, 16), (6, 49), (5, 64), (3, 1030)] {
        let x: Vec<T> = (0..rows * columns).map(|_| narrow(rng.uniform(-9.0, 9.0))).collect();
        let x_wide: Vec<f32> = x.iter().map(|x| x.widen()).collect();
        let [gamma, beta] = [(); 2].map(|()| rng.vec(columns));
        let (gamma, beta) = (Some(gamma.as_ptr()), Some(beta.as_ptr()));
        let mut held = vec![0.0f32; Softmax::<T>::held(columns)];
        for isa in Isa::available() {
            // The last one is a norm.
            for (log, softmax_too) in [(false, true), (true, true), (false, false)] {
                let (mut got, mut want) = (x.clone(), x_wide.clone());
                let (x, y) = (got.as_ptr(), got.as_mut_ptr());
                let (long_x, long_y) = (want.as_ptr(), want.as_mut_ptr());
                // SAFETY: the vectors cover the rows.
                unsafe {
                    if softmax_too {
                        let held = Some(held.as_mut_ptr());
                        softmax(isa, &Softmax { x, y, rows, columns, log, held });
                        softmax(isa, &Softmax { x: long_x, y: long_y, rows, columns, log, held: None });
                    } else {
                        let (epsilon, centred) = (1e-5, true);
                        normalize(isa, &Norm { x, y, rows, columns, epsilon, gamma, beta, centred });
                        let (x, y) = (long_x, long_y);
                        normalize(isa, &Norm { x, y, rows, columns, epsilon, gamma, beta, centred });
                    }
                }
                let want: Vec<T> = want.into_iter().map(narrow).collect();
                assert_eq!(got, want, "{rows}×{columns}, {isa}, log {log}, softmax {softmax_too}");
            }
        }
    }
}

#[test]
fn softmax_and_norm_of_short_floats_are_rounded_once() {
    check_short_rows(half::bf16::from_f32);
    check_short_rows(half::f16::from_f32);
}

#[test]
fn softmax_of_nan_or_of_nothing_allowed_is_nan_in_that_row_only() {
    for isa in Isa::available() {
        let mut x = vec![0.5f32; 60];
        x[7] = f32::NAN;
        x[40..].fill(f32::NEG_INFINITY);
        softmax_in_place(isa, &mut x, 20);
        assert!(x[..20].iter().chain(&x[40..]).all(|v| v.is_nan()));
        assert!(x[20..40].iter().all(|v| (v - 0.05).abs() < 1e-7));
        softmax_in_place(isa, &mut [], 0);
    }
}

#[test]
fn norms_are_right_also_far_from_zero() {
    let mut rng = Rng::new(33);
    for n in (1..40).chain([384, 1000]) {
        let (gamma, beta) = (rng.vec(n), rng.vec(n));
        for (offset, centred, affine) in [(0.0, true, true), (1000.0, true, false), (0.0, false, true)] {
            let x: Vec<f32> = rng.vec(2 * n).iter().map(|v| v + offset).collect();
            let eps = 1e-5f32;
            let want: Vec<f64> = x
                .chunks(n)
                .flat_map(|r| {
                    let r = wide(r);
                    let mean = if centred { r.iter().sum::<f64>() / n as f64 } else { 0.0 };
                    let var = r.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
                    let f = 1.0 / (var + f64::from(eps)).sqrt();
                    let (g, b) = (wide(&gamma), wide(&beta));
                    (0..n)
                        .map(|j| {
                            (r[j] - mean) * f * if affine { g[j] } else { 1.0 }
                                + if affine { b[j] } else { 0.0 }
                        })
                        .collect::<Vec<_>>()
                })
                .collect();
            for isa in Isa::available() {
                let mut y = vec![0.0f32; 2 * n];
                let rows = Norm {
                    x: x.as_ptr(),
                    y: y.as_mut_ptr(),
                    rows: 2,
                    columns: n,
                    epsilon: eps,
                    gamma: affine.then_some(gamma.as_ptr()),
                    beta: affine.then_some(beta.as_ptr()),
                    centred,
                };
                // SAFETY: the vectors cover the rows.
                unsafe { normalize(isa, &rows) };
                // Far from zero the input's own rounding of the mean is what is left.
                let tol = if offset == 0.0 { 1e-4 } else { 2e-2 };
                assert_close(&y, &want, tol, &format!("norm of {n}, centred {centred}"));
            }
        }
    }
}

/// The softmax of a row in pieces, times a column of values: what `weigh` and `divide` make of it.
fn in_pieces(isa: Isa, scores: &[f32], values: &[f32], piece: usize, guard: bool) -> f32 {
    let (mut states, mut sums, mut y) = ([RowState::EMPTY], [0.0f32], [7.0f32]);
    for (scores, values) in scores.chunks(piece).zip(values.chunks(piece)) {
        let mut weights = scores.to_vec();
        let piece = Piece {
            scores: weights.as_mut_ptr(),
            stride: weights.len(),
            rows: 1,
            columns: weights.len(),
            seen: weights.len() as isize,
            grows: 0,
            scale: 0.5,
            states: states.as_mut_ptr(),
            sums: sums.as_mut_ptr(),
            width: 1,
        };
        // SAFETY: the arrays are as long as that.
        unsafe { weigh::<f32>(isa, piece) };
        sums[0] += weights.iter().zip(values).map(|(w, v)| w * v).sum::<f32>();
    }
    let (sums, states) = (sums.as_ptr(), states.as_ptr());
    let sums = Sums { sums, width: 1, states, rows: 1, unseen: -1.0, guard, y: y.as_mut_ptr(), stride: 1 };
    // SAFETY: as above.
    unsafe { divide(isa, sums) };
    y[0]
}

#[test]
fn a_softmax_in_pieces_is_that_of_the_row() {
    let mut rng = Rng::new(35);
    for n in [1, 5, 16, 40, 100] {
        let scores: Vec<f32> = (0..n).map(|_| rng.uniform(-40.0, 40.0)).collect();
        let values = rng.vec(n);
        let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f64> = scores.iter().map(|&s| (0.5 * f64::from(s - largest)).exp()).collect();
        let sum: f64 = weights.iter().zip(&values).map(|(w, &v)| w * f64::from(v)).sum();
        let want = sum / weights.iter().sum::<f64>();
        for isa in Isa::available() {
            for piece in [1, 7, 16, 64] {
                assert_close(&[in_pieces(isa, &scores, &values, piece, false)], &[want], 1e-5, "pieces");
                let mut odd = scores.clone();
                for number in [f32::NAN, f32::INFINITY] {
                    odd[n / 2] = number;
                    assert!(in_pieces(isa, &odd, &values, piece, false).is_nan(), "{number}");
                    assert_eq!(in_pieces(isa, &odd, &values, piece, true), 0.0, "{number}");
                }
                let none = vec![f32::NEG_INFINITY; n];
                assert_eq!(in_pieces(isa, &none, &values, piece, true), -1.0);
            }
        }
    }
}
