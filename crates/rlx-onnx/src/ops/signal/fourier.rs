//! Discrete Fourier transforms of any length, as graphs of matmuls.
//!
//! A length that is a product `a·b` is transformed by Cooley and Tukey's steps: transforms of length `a`, factors of their own for
//! each element, transforms of length `b`. Short transforms are products with a fixed matrix, so a length of 1,024 is two
//! products with matrices of 32×32: what matrix kernels do best, on every device (Bailey 1990, "FFTs in external or hierarchical
//! memory"). A long prime length becomes a convolution by Bluestein's identity, whose transforms have a power of two as length. A
//! length that is known at run time only is one product with a matrix that is computed then.
//!
//! All angles are reduced as whole numbers before a sine is taken, so they are as exact for long signals as for short ones.

use super::Cx;
use rlx_ir::op::{Activation as A, BinaryOp as B, PadMode};
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op, Shape, Value};

/// Transforms of up to this length are one product.
const SHORT: usize = 32;

/// Transforms of a length that has no factors are one product up to this length.
const LONGEST_PRIME: usize = 211;

/// Longer signals are left alone.
const LONGEST: usize = 1 << 22;

/// Real and imaginary parts, transformed along their last dimension. Without imaginary part it is 0.
#[derive(Clone, Copy)]
pub(super) struct Complex {
    pub re: NodeId,
    pub im: Option<NodeId>,
}

impl Complex {
    /// The parts of a tensor whose last dimension holds them.
    pub fn of(cx: Cx, x: NodeId) -> Result<Complex, Error> {
        let shape = cx.shape_of(x);
        let last = shape.rank() - 1;
        if !shape.dtype().is_float() {
            return Err(cx.malformed(format!("a signal {shape}")));
        }
        let mut part = |i: i64| {
            let one = cx.slice_axis(x, last, Extent::Const(i), Extent::Const(1))?;
            cx.reshape(one, shape.dims()[..last].to_vec())
        };
        match shape.dim(last).as_static() {
            Some(1) => Ok(Complex { re: part(0)?, im: None }),
            Some(2) => Ok(Complex { re: part(0)?, im: Some(part(1)?) }),
            _ => Err(cx.malformed(format!("the last dimension of {shape} has neither one nor two parts"))),
        }
    }

    /// The opposite of [`Complex::of`].
    pub fn joined(self, cx: Cx, both: bool) -> Result<NodeId, Error> {
        let axis = cx.shape_of(self.re).rank();
        let re = cx.unsqueeze(self.re, &[axis])?;
        if !both {
            return Ok(re);
        }
        let im = self.imaginary(cx)?;
        let im = cx.unsqueeze(im, &[axis])?;
        cx.add(Op::Concat { axis }, &[re, im])
    }

    fn imaginary(self, cx: Cx) -> Result<NodeId, Error> {
        match self.im {
            Some(im) => Ok(im),
            None => {
                let shape = self.shape(cx);
                let zero = cx.scalar(shape.dtype(), 0.0);
                cx.expand(zero, shape.dims().to_vec())
            }
        }
    }

    fn shape(self, cx: Cx) -> Shape {
        cx.shape_of(self.re)
    }

    fn map(self, cx: Cx, f: impl Fn(Cx, NodeId) -> Result<NodeId, Error>) -> Result<Complex, Error> {
        Ok(Complex { re: f(cx, self.re)?, im: self.im.map(|im| f(cx, im)).transpose()? })
    }

    /// With dimension `axis` as the last one.
    pub fn with_last(self, cx: Cx, axis: usize) -> Result<Complex, Error> {
        let mut perm: Vec<usize> = (0..self.shape(cx).rank()).collect();
        perm.remove(axis);
        perm.push(axis);
        self.map(cx, |cx, x| cx.transpose(x, &perm))
    }

    /// With the last dimension as dimension `axis`.
    pub fn with_last_at(self, cx: Cx, axis: usize) -> Result<Complex, Error> {
        let mut perm: Vec<usize> = (0..self.shape(cx).rank()).collect();
        let last = perm.pop().unwrap_or(0);
        perm.insert(axis, last);
        self.map(cx, |cx, x| cx.transpose(x, &perm))
    }

    /// The first elements.
    pub fn first(self, cx: Cx, count: Extent) -> Result<Complex, Error> {
        let last = self.shape(cx).rank() - 1;
        self.map(cx, |cx, x| cx.slice_axis(x, last, Extent::Const(0), count))
    }

    fn swapped(self, cx: Cx) -> Result<Complex, Error> {
        Ok(Complex { re: self.imaginary(cx)?, im: Some(self.re) })
    }

    /// The bins of a whole spectrum of a real signal from its first half: bin `k` is the conjugate of bin `length − k`.
    pub fn mirrored(self, cx: Cx, length: Extent) -> Result<Complex, Error> {
        let shape = self.shape(cx);
        let last = shape.rank() - 1;
        let count = (length - 1).floor_div(2);
        let (mut starts, mut steps) = (vec![Extent::Const(0); last + 1], vec![1; last + 1]);
        (starts[last], steps[last]) = (count, -1);
        let mut to = shape.dims().to_vec();
        to[last] = Dim::from(count);
        let back = Op::Slice { starts, steps, to };
        let mut joined = |x: NodeId, negative: bool| {
            let tail = cx.add(back.clone(), &[x])?;
            let tail = if negative { cx.activation(A::Neg, tail)? } else { tail };
            cx.add(Op::Concat { axis: last }, &[x, tail])
        };
        let re = joined(self.re, false)?;
        let im = self.im.map(|im| joined(im, true)).transpose()?;
        Ok(Complex { re, im })
    }

    /// `Σ x·e^(−2πi·jk/length)`
    pub fn forward(self, cx: Cx, length: Extent) -> Result<Complex, Error> {
        match length.as_const() {
            Some(n) => match usize::try_from(n) {
                Ok(n @ 1..=LONGEST) => forward(cx, self, n),
                _ => Err(cx.unsupported(format!("a transform of length {n}"))),
            },
            None => by_matrix_at_run_time(cx, self, length),
        }
    }

    /// `Σ x·e^(2πi·jk/length) / length`: with the parts exchanged before and after, the forward transform.
    pub fn inverse(self, cx: Cx, length: Extent) -> Result<Complex, Error> {
        let found = self.swapped(cx)?.forward(cx, length)?.swapped(cx)?;
        let dtype = self.shape(cx).dtype();
        let divisor = cx.extent(length)?;
        let divisor = cx.cast(divisor, dtype)?;
        found.map(cx, |cx, x| cx.binary(B::Div, x, divisor))
    }

    /// Element by element, times a constant of the last dimensions.
    fn times(self, cx: Cx, factor: [NodeId; 2]) -> Result<Complex, Error> {
        let [c, s] = factor;
        let (rc, rs) = (cx.binary(B::Mul, self.re, c)?, cx.binary(B::Mul, self.re, s)?);
        let Some(im) = self.im else { return Ok(Complex { re: rc, im: Some(rs) }) };
        let (ic, is) = (cx.binary(B::Mul, im, c)?, cx.binary(B::Mul, im, s)?);
        Ok(Complex { re: cx.binary(B::Sub, rc, is)?, im: Some(cx.binary(B::Add, rs, ic)?) })
    }

    /// The last dimension, times complex matrices.
    fn product(self, cx: Cx, matrix: [NodeId; 2]) -> Result<Complex, Error> {
        let [c, s] = matrix;
        let (rc, rs) = (cx.add(Op::MatMul, &[self.re, c])?, cx.add(Op::MatMul, &[self.re, s])?);
        let Some(im) = self.im else { return Ok(Complex { re: rc, im: Some(rs) }) };
        let (ic, is) = (cx.add(Op::MatMul, &[im, c])?, cx.add(Op::MatMul, &[im, s])?);
        Ok(Complex { re: cx.binary(B::Sub, rc, is)?, im: Some(cx.binary(B::Add, rs, ic)?) })
    }
}

/// Cosine and sine of `−2π·turns/length`, of a tensor of whole numbers.
fn roots(cx: Cx, dims: &[usize], length: usize, turns: impl Fn(usize) -> usize) -> Result<[Value; 2], Error> {
    let count: usize = dims.iter().product();
    cx.importer.spend(count.saturating_mul(2))?;
    let angle = |i: usize| -std::f64::consts::TAU * (turns(i) % length) as f64 / length as f64;
    let part = |f: fn(f64) -> f64| Value::float(DType::F64, dims, (0..count).map(|i| f(angle(i))).collect());
    Ok([part(f64::cos), part(f64::sin)])
}

/// Such numbers as constants of a type.
fn constants(cx: Cx, values: [Value; 2], dtype: DType) -> [NodeId; 2] {
    values.map(|v| cx.constant(Value { dtype, ..v }))
}

fn forward(cx: Cx, x: Complex, n: usize) -> Result<Complex, Error> {
    let dtype = x.shape(cx).dtype();
    match factor(n) {
        _ if n == 1 => Ok(Complex { re: x.re, im: Some(x.imaginary(cx)?) }),
        Some(a) if n > SHORT => in_steps(cx, x, a, n / a),
        _ if n <= LONGEST_PRIME => {
            let matrix = roots(cx, &[n, n], n, |i| (i / n) * (i % n))?;
            let matrix = constants(cx, matrix, dtype);
            x.product(cx, matrix)
        }
        _ => as_convolution(cx, x, n),
    }
}

/// The divisor of `n` that is nearest to its root, if it has any.
fn factor(n: usize) -> Option<usize> {
    (2..=n.isqrt()).rev().find(|&d| n.is_multiple_of(d))
}

/// The transform of length `a·b`: of `x[j·b + i]` along `j`, factors, and along `i`.
fn in_steps(cx: Cx, x: Complex, a: usize, b: usize) -> Result<Complex, Error> {
    let shape = x.shape(cx);
    let front = &shape.dims()[..shape.rank() - 1];
    let rank = front.len();
    let with = |last: &[usize]| {
        front.iter().copied().chain(last.iter().map(|&d| Dim::Static(d))).collect::<Vec<_>>()
    };
    let perm: Vec<usize> = (0..rank).chain([rank + 1, rank]).collect();
    let apart = x.map(cx, |cx, x| {
        let x = cx.reshape(x, with(&[a, b]))?;
        cx.transpose(x, &perm)
    })?;
    let first = forward(cx, apart, a)?;
    let turned = roots(cx, &[b, a], a * b, |i| (i / a) * (i % a))?;
    let turned = constants(cx, turned, shape.dtype());
    let first = first.times(cx, turned)?;
    let first = first.map(cx, |cx, x| cx.transpose(x, &perm))?;
    let second = forward(cx, first, b)?;
    second.map(cx, |cx, x| {
        let x = cx.transpose(x, &perm)?;
        cx.reshape(x, with(&[a * b]))
    })
}

/// Bluestein's identity: `jk = (j² + k² − (k − j)²) / 2`, so the transform is a convolution with `e^(πi·j²/n)` between two products
/// with its conjugate.
fn as_convolution(cx: Cx, x: Complex, n: usize) -> Result<Complex, Error> {
    let shape = x.shape(cx);
    let (last, m) = (shape.rank() - 1, (2 * n - 1).next_power_of_two());
    // Squares are reduced by the period of e^(πi·j²/n), which is 2n.
    let square = |j: usize| (j as u128 * j as u128 % (2 * n as u128)) as usize;
    let chirp = roots(cx, &[n], 2 * n, square)?;
    let chirp = constants(cx, chirp, shape.dtype());
    let falling = x.times(cx, chirp)?;
    let fill = |cx: Cx, x: NodeId| {
        let zero = vec![Extent::Const(0); last + 1];
        let mut after = zero.clone();
        after[last] = Extent::Const((m - n) as i64);
        cx.pad(&[x], zero, after, PadMode::Constant)
    };
    let falling = falling.map(cx, fill)?;
    let spectrum = forward(cx, falling, m)?;
    let kernel = rising(cx, n, m)?;
    let kernel = constants(cx, kernel, shape.dtype());
    let product = spectrum.times(cx, kernel)?;
    let y = product.inverse(cx, Extent::Const(m as i64))?.first(cx, Extent::Const(n as i64))?;
    y.times(cx, chirp)
}

/// The transform of `e^(πi·j²/n)` for `j` from `1 − n` to `n − 1`, wrapped around at `m`.
fn rising(cx: Cx, n: usize, m: usize) -> Result<[Value; 2], Error> {
    cx.importer.spend(m.saturating_mul(4))?;
    let (mut re, mut im) = (vec![0.0; m], vec![0.0; m]);
    for j in 0..n {
        let turns = (j as u128 * j as u128 % (2 * n as u128)) as f64;
        let angle = std::f64::consts::PI * turns / n as f64;
        for place in [j, (m - j) % m] {
            (re[place], im[place]) = (angle.cos(), angle.sin());
        }
    }
    power_of_two(&mut re, &mut im);
    Ok([re, im].map(|part| Value::float(DType::F64, &[m], part)))
}

/// The transform of a constant whose length is a power of two, in place.
fn power_of_two(re: &mut [f64], im: &mut [f64]) {
    let m = re.len();
    let bits = m.trailing_zeros();
    for i in 0..m {
        let j = if bits == 0 { 0 } else { i.reverse_bits() >> (usize::BITS - bits) };
        if i < j {
            re.swap(i, j);
            im.swap(i, j);
        }
    }
    let mut half = 1;
    while half < m {
        for start in (0..m).step_by(2 * half) {
            for k in 0..half {
                let (s, c) = (-std::f64::consts::PI * k as f64 / half as f64).sin_cos();
                let (a, b) = (start + k, start + k + half);
                let (tr, ti) = (re[b] * c - im[b] * s, re[b] * s + im[b] * c);
                (re[b], im[b]) = (re[a] - tr, im[a] - ti);
                (re[a], im[a]) = (re[a] + tr, im[a] + ti);
            }
        }
        half *= 2;
    }
}

/// One product with a matrix that is computed when the length is known.
fn by_matrix_at_run_time(cx: Cx, x: Complex, length: Extent) -> Result<Complex, Error> {
    let (dtype, dim, one) = (x.shape(cx).dtype(), Dim::from(length), Dim::Static(1));
    let row = cx.add(Op::Iota { to: vec![dim, one], axis: 0, dtype: DType::I64 }, &[])?;
    let column = cx.add(Op::Iota { to: vec![one, dim], axis: 1, dtype: DType::I64 }, &[])?;
    let size = cx.extent(length)?;
    let turns = cx.binary(B::Mul, row, column)?;
    let turns = cx.binary(B::Rem, turns, size)?;
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let (turns, size) = (cx.cast(turns, wide)?, cx.cast(size, wide)?);
    let part = cx.binary(B::Div, turns, size)?;
    let angle = cx.with_scalar(B::Mul, part, -std::f64::consts::TAU)?;
    let (c, s) = (cx.activation(A::Cos, angle)?, cx.activation(A::Sin, angle)?);
    let matrix = [cx.cast(c, dtype)?, cx.cast(s, dtype)?];
    x.product(cx, matrix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_is_transformed_as_by_the_definition() {
        let (mut re, mut im): (Vec<f64>, Vec<f64>) =
            ((0..8).map(|i| (i * i % 5) as f64).collect(), vec![0.5; 8]);
        let (x, y) = (re.clone(), im.clone());
        power_of_two(&mut re, &mut im);
        for k in 0..8 {
            let (mut a, mut b) = (0.0, 0.0);
            for j in 0..8 {
                let (s, c) = (-std::f64::consts::TAU * (j * k) as f64 / 8.0).sin_cos();
                a += x[j] * c - y[j] * s;
                b += x[j] * s + y[j] * c;
            }
            assert!((a - re[k]).abs() < 1e-12 && (b - im[k]).abs() < 1e-12, "{k}");
        }
    }

    #[test]
    fn lengths_are_divided_near_their_root() {
        assert_eq!(
            (factor(1024), factor(400), factor(97), factor(6), factor(2)),
            (Some(32), Some(20), None, Some(2), None)
        );
    }
}
