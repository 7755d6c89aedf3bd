//! The transforms of Winograd's algorithm, as Cook and Toom make them of points: of the weights (exact, then rounded once), of
//! the input and of the output, one line of a tile at a time.
//!
//! The algorithm of α points (one of them ∞) interpolates the product of two polynomials. `F(2, 3)` has 0, ±1, ∞;
//! `F(4, 3)` has 0, ±⅝, ±1½, ∞ instead of the usual 0, ±1, ±2, ∞: all numbers of its input transform are exact in f32, and errors
//! are smaller (Barabasz, Anderson, Soodhalter, Gregg: *Error Analysis and Improving the Accuracy
//! of Winograd Convolution for Deep Neural Networks*, 2020, chooses points by that).

use super::PANEL;
use crate::simd::Simd;

/// The two points of `F(4, 3)` beside 0 and ∞, each with both signs, and their powers.
const P: f32 = 0.625;
const Q: f32 = 1.5;
const PP: f32 = P * P;
const QQ: f32 = Q * Q;

/// The transform of the input on a line of α elements: `Bᵀ·d`.
#[inline(always)]
pub(super) fn input_line<S: Simd, const A: usize>(s: S, d: &[S::F; A]) -> [S::F; A] {
    let mut out = [s.zero(); A];
    if const { A == 4 } {
        out[0] = s.sub(d[0], d[2]);
        out[1] = s.add(d[1], d[2]);
        out[2] = s.sub(d[2], d[1]);
        out[3] = s.sub(d[3], d[1]);
        return out;
    }
    let (both, sum) = (s.splat(PP * QQ), s.splat(-(PP + QQ)));
    let (p, q, neg_p, neg_q) = (s.splat(P), s.splat(Q), s.splat(-P), s.splat(-Q));
    let (neg_pp, neg_qq) = (s.splat(-PP), s.splat(-QQ));
    let even = [s.mul_add(neg_qq, d[2], d[4]), s.mul_add(neg_pp, d[2], d[4])];
    let odd = [s.mul_add(neg_qq, d[1], d[3]), s.mul_add(neg_pp, d[1], d[3])];
    out[0] = s.mul_add(both, d[0], s.mul_add(sum, d[2], d[4]));
    out[1] = s.mul_add(p, odd[0], even[0]);
    out[2] = s.mul_add(neg_p, odd[0], even[0]);
    out[3] = s.mul_add(q, odd[1], even[1]);
    out[4] = s.mul_add(neg_q, odd[1], even[1]);
    out[5] = s.mul_add(both, d[1], s.mul_add(sum, d[3], d[5]));
    out
}

/// The transform of the output on a line of α elements, `Aᵀ·m`: its first α − 2 results.
#[inline(always)]
pub(super) fn output_line<S: Simd, const A: usize>(s: S, m: &[S::F; A]) -> [S::F; 4] {
    let mut out = [s.zero(); 4];
    if const { A == 4 } {
        out[0] = s.add(s.add(m[0], m[1]), m[2]);
        out[1] = s.add(s.sub(m[1], m[2]), m[3]);
        return out;
    }
    let (sum_p, difference_p) = (s.add(m[1], m[2]), s.sub(m[1], m[2]));
    let (sum_q, difference_q) = (s.add(m[3], m[4]), s.sub(m[3], m[4]));
    out[0] = s.add(m[0], s.add(sum_p, sum_q));
    out[1] = weighted(s, [P, Q], [difference_p, difference_q]);
    out[2] = weighted(s, [PP, QQ], [sum_p, sum_q]);
    out[3] = s.add(weighted(s, [P * PP, Q * QQ], [difference_p, difference_q]), m[5]);
    out
}

#[inline(always)]
fn weighted<S: Simd>(s: S, by: [f32; 2], of: [S::F; 2]) -> S::F {
    s.mul_add(s.splat(by[0]), of[0], s.mul(s.splat(by[1]), of[1]))
}

/// The transform of the weights, `G`: a line of three for each point. With one point, which windows of one line have, it takes that line.
pub(super) fn weights_matrix<const A: usize>() -> [[f64; 3]; A] {
    if A == 1 {
        return [[1.0, 0.0, 0.0]; A];
    }
    let points: &[f64] =
        if A == 4 { &[0.0, 1.0, -1.0] } else { &[0.0, P as f64, -P as f64, Q as f64, -Q as f64] };
    let mut matrix = [[0.0, 0.0, 1.0]; A];
    for (i, (line, &p)) in matrix.iter_mut().zip(points).enumerate() {
        let others = points.iter().enumerate().filter(|&(k, _)| k != i);
        // `F(2, 3)`: the polynomial of the point 0 is taken with the other sign, in the input and here.
        let sign = if A == 4 && i == 0 { -1.0 } else { 1.0 };
        let by = sign / others.map(|(_, q)| p - q).product::<f64>();
        *line = [by, by * p, by * p * p];
    }
    matrix
}

/// The transform of windows of 3 × 3 weights to lines of α, `G·g·Gᵀ`, of a panel of filters.
#[inline(always)]
pub(super) fn weights<const L: usize, const A: usize>(
    (vertical, horizontal): (&[[f64; 3]; L], &[[f64; 3]; A]),
    window: &[[[f64; PANEL]; 3]; 3],
) -> [[[f64; PANEL]; A]; L] {
    let mut lines = [[[0.0; PANEL]; 3]; L];
    for (line, by) in lines.iter_mut().zip(vertical) {
        for (x, to) in line.iter_mut().enumerate() {
            for (column, to) in to.iter_mut().enumerate() {
                *to = by[0] * window[0][x][column]
                    + by[1] * window[1][x][column]
                    + by[2] * window[2][x][column];
            }
        }
    }
    let mut out = [[[0.0; PANEL]; A]; L];
    for (out, line) in out.iter_mut().zip(&lines) {
        for (to, by) in out.iter_mut().zip(horizontal) {
            for (column, to) in to.iter_mut().enumerate() {
                *to = by[0] * line[0][column] + by[1] * line[1][column] + by[2] * line[2][column];
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use rlx_math::Lanes;

    use super::*;
    use crate::simd::{LANES, Portable};
    use crate::testing::Rng;

    /// On one line: the sums of three weights over four or two neighbours.
    fn one_line<const A: usize>() {
        let (s, mut rng, matrix) = (Portable, Rng::new(7), weights_matrix::<A>());
        for _ in 0..20 {
            let (d, g) = (rng.vec(A * LANES), rng.vec(3));
            let lines: [_; A] =
                std::array::from_fn(|i| s.from_array(d[i * LANES..][..LANES].try_into().unwrap()));
            let v = input_line::<_, A>(s, &lines);
            let m: [_; A] = std::array::from_fn(|i| {
                let u: f64 = (0..3).map(|t| matrix[i][t] * f64::from(g[t])).sum();
                s.mul(v[i], s.splat(u as f32))
            });
            let y = output_line::<_, A>(s, &m);
            for (o, y) in y.iter().enumerate().take(A - 2) {
                for (lane, &got) in s.to_array(*y).iter().enumerate() {
                    let want: f64 =
                        (0..3).map(|t| f64::from(g[t]) * f64::from(d[(o + t) * LANES + lane])).sum();
                    assert!(
                        (f64::from(got) - want).abs() < 2e-6,
                        "F({}, 3), output {o}: {got}, {want}",
                        A - 2
                    );
                }
            }
        }
    }

    #[test]
    fn a_line_is_the_sum_of_its_window() {
        one_line::<4>();
        one_line::<6>();
    }
}
