//! Pooling: the largest or the mean element of a window that slides over the spatial dimensions.
//!
//! [`Op::Pool`] (ONNX `MaxPool` and `AveragePool`): `y[n, c, p] = ⊕_t x[n, c, p·stride + t·dilation − pad]`
//! over the taps `t` that fall into the input. With `ceil_mode` a last window may reach beyond the padding.
//!
//! The mean divides by the number of taps that fall into the input or, with `count_include_pad`, into the
//! padded input (taps beyond the padding, which `ceil_mode` allows, never count). A window that is in the
//! padding alone gives the smallest value of the type as largest, and 0 as mean.

use smallvec::smallvec;

use super::window::{WindowAxis, at_least_one, place, results_have_elements, slides};
use crate::dim::{Dim, Extent};
use crate::dtype::{DType, DTypeClass};
use crate::error::{Error, ErrorKind, Result};
use crate::ops::def::{Arity, OpDef, Ranges, dtype_error};
use crate::ops::{DataFormat, Op, OpKind, PoolKind, attrs};
use crate::oracle::for_each_index;
use crate::shape::{Shape, Shapes};
use crate::tensor::{Elements, Value};

#[cfg(feature = "testing")]
use super::window::RandomWindow;
#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

fn accepts(kind: PoolKind, dtype: DType) -> bool {
    match kind {
        PoolKind::Max => !matches!(dtype.class(), DTypeClass::Bool | DTypeClass::Complex),
        PoolKind::Average => dtype.is_float(),
    }
}

/// [`Op::Pool`].
pub struct PoolDef;

impl OpDef for PoolDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Pool { kind, kernel, strides, pads, dilations, ceil_mode, format });
        let x = inputs[0];
        if !accepts(*kind, x.dtype()) {
            return Err(dtype_error(
                OpKind::Pool,
                x,
                if *kind == PoolKind::Max { "numbers" } else { "floats" },
            ));
        }
        if x.rank() < 3 || kernel.len() != x.rank() - 2 || kernel.contains(&0) {
            let message =
                format!("Pool of {x} with kernel {kernel:?}: one size ≥ 1 for each spatial dimension");
            return Err(Error::new(ErrorKind::Shape, message));
        }
        let slides = slides(OpKind::Pool, kernel.len(), strides, pads, dilations)?;
        let first = format.first_spatial_axis();
        let mut out = Vec::with_capacity(kernel.len());
        for (i, slide) in slides.iter().enumerate() {
            let n = x.dim(first + i).extent();
            let k = Extent::Const(i64::try_from(kernel[i]).unwrap_or(i64::MAX));
            let windows = if *ceil_mode { slide.windows_ceil(n, k) } else { slide.windows(n, k) };
            let shape_mismatch = || format!("kernel {kernel:?} does not fit into {x} with pads {pads:?}");
            out.push(Dim::from(at_least_one(OpKind::Pool, windows, shape_mismatch)?));
        }
        Ok(smallvec![x.with_dims(format.arrange(x.dim(0), x.dim(format.channel_axis(x.rank())), &out))])
    }

    fn holds_for_all(&self, op: &Op, inputs: &[&Shape], range: Ranges<'_>) -> bool {
        results_have_elements(self, op, inputs, range)
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Pool { kind, kernel, strides, pads, dilations, count_include_pad, format });
        let x = inputs[0];
        let dims = results[0].static_dims().unwrap_or_default();
        let slides = slides(OpKind::Pool, kernel.len(), strides, pads, dilations)?;
        let window = |index: &[usize]| taps(index, x, kernel, &slides, *format);
        Ok(vec![match &x.elements {
            Elements::Int(v) => {
                let least = x.dtype.int_range().map_or(0, |(least, _)| least);
                let mut out = Vec::new();
                for_each_index(&dims, |i| {
                    out.push(window(i).from.iter().map(|&at| v[at]).max().unwrap_or(least))
                });
                Value::int(x.dtype, &dims, out)
            }
            Elements::Float(v) => {
                let mut out = Vec::new();
                for_each_index(&dims, |i| {
                    let taps = window(i);
                    let values = taps.from.iter().map(|&at| v[at]);
                    out.push(match kind {
                        PoolKind::Max => values.fold(f64::NEG_INFINITY, max_or_nan),
                        PoolKind::Average => {
                            let count = if *count_include_pad { taps.padded } else { taps.from.len() };
                            values.sum::<f64>() / count.max(1) as f64
                        }
                    });
                });
                Value::float(x.dtype, &dims, out)
            }
        }])
    }

    fn flops(&self, op: &Op, _: &[&Shape], results: &[Shape]) -> f64 {
        let Op::Pool { kernel, .. } = op else { return 0.0 };
        let taps: f64 = kernel.iter().map(|&k| k as f64).product();
        taps * results[0].num_elements().unwrap_or(0) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let spatial = g.pick(&[1, 2, 2, 2, 3]);
        let RandomWindow { strides, mut pads, dilations, kernel, input } = RandomWindow::new(g, spatial);
        // Pads of at most half the window, so that no window is in the padding alone.
        for i in 0..2 * spatial {
            pads[i] = pads[i].min(kernel[i % spatial] / 2);
        }
        let input: Vec<usize> = (0..spatial).map(|i| input[i] + (kernel[i] - 1) * dilations[i]).collect();
        let kind: PoolKind = g.variant();
        let format: DataFormat = g.variant();
        let dtype = g.dtype_where(|d| accepts(kind, d));
        let x = format.arrange(g.size(1..=2), g.size(1..=3), &input);
        let (ceil_mode, count_include_pad) = (g.chance(0.5), g.chance(0.5));
        let op = Op::Pool { kind, kernel, strides, pads, dilations, ceil_mode, count_include_pad, format };
        Case::new(op, vec![g.value(dtype, &x, -3.0..3.0)])
    }
}

fn max_or_nan(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// The elements under one window.
struct Taps {
    /// Where they are in the input.
    from: Vec<usize>,
    /// How many taps are in the padded input.
    padded: usize,
}

fn taps(index: &[usize], x: &Value, kernel: &[usize], slides: &[WindowAxis], format: DataFormat) -> Taps {
    let (first, channel) = (format.first_spatial_axis(), index[format.channel_axis(index.len())]);
    let along = |d: usize| slides[d].taps(index[first + d], kernel[d], x.dims[first + d]);
    let (positions, padded): (Vec<Vec<usize>>, Vec<usize>) = (0..kernel.len()).map(along).unzip();
    let mut from = Vec::new();
    for_each_index(&positions.iter().map(Vec::len).collect::<Vec<_>>(), |tap| {
        let at: Vec<usize> = tap.iter().zip(&positions).map(|(&t, list)| list[t]).collect();
        from.push(place(&format.arrange(index[0], channel, &at), &x.dims));
    });
    Taps { from, padded: padded.into_iter().fold(1, usize::saturating_mul) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::evaluate_op;

    fn pool(kind: PoolKind, ceil_mode: bool, count_include_pad: bool) -> Op {
        Op::Pool {
            kind,
            kernel: vec![3],
            strides: vec![2],
            pads: vec![1, 1],
            dilations: vec![1],
            ceil_mode,
            count_include_pad,
            format: DataFormat::ChannelsFirst,
        }
    }

    fn run(op: &Op, x: &[f64]) -> Vec<f64> {
        let x = Value::float(DType::F32, &[1, 1, x.len()], x.to_vec());
        evaluate_op(op, &[&x], &[]).unwrap()[0].to_f64()
    }

    #[test]
    fn windows_by_hand() {
        let x = [6.0, 3.0, 9.0, 12.0];
        assert_eq!(run(&pool(PoolKind::Max, false, false), &x), [6.0, 12.0]);
        assert_eq!(run(&pool(PoolKind::Average, false, false), &x), [4.5, 8.0]);
        assert_eq!(run(&pool(PoolKind::Average, false, true), &x), [3.0, 8.0]);
        // A third window covers 12, one element of padding, and one beyond it that never counts.
        assert_eq!(run(&pool(PoolKind::Average, true, true), &x), [3.0, 8.0, 6.0]);
        assert_eq!(run(&pool(PoolKind::Average, true, false), &x), [4.5, 8.0, 12.0]);
    }

    #[test]
    fn the_greatest_of_integers_and_of_nan() {
        let x = Value::int(DType::I8, &[1, 1, 3], vec![-5, -7, -9]);
        let y = evaluate_op(&pool(PoolKind::Max, false, false), &[&x], &[]).unwrap();
        assert_eq!(y[0].to_f64(), [-5.0, -7.0]);
        assert!(run(&pool(PoolKind::Max, false, false), &[f64::NAN, 1.0, 2.0])[0].is_nan());
        assert!(PoolDef.infer(&pool(PoolKind::Average, false, false), &[&x.shape()], &[]).is_err());
    }
}
