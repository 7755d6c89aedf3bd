//! Slices: every n-th element along each dimension, forwards or backwards.

use smallvec::smallvec;

use crate::dim::{Dim, Extent, SymRange};
use crate::error::{Error, ErrorKind, Result};
use crate::ops::def::{Arity, OpDef, Ranges};
use crate::ops::{Op, attrs};
use crate::oracle::{strided_offsets, strides};
use crate::shape::{Shape, Shapes};
use crate::tensor::Value;

#[cfg(feature = "testing")]
use crate::{
    ops::OpKind,
    testing::{Case, Gen},
};

/// Ends from here on mean "to the end" whatever a symbolic dimension turns out to be.
const FAR: i64 = i32::MAX as i64;

/// Where Python's `[start:end:step]` of a dimension starts, and how many elements it has.
///
/// Negative `start` and `end` count from the end of the dimension, and what is outside is clamped.
/// Symbols stay symbols; `range` says what is known of them, so that `[:-1]` of a dimension of at least
/// 1 is just `n - 1`. Starts and ends beyond ±(2³¹ − 1) mean the ends of a symbolic dimension, as in the
/// files that exporters write.
///
/// ```
/// use rlx_ir::{Dim, Extent, SymRange, ops::movement::resolve_slice, sym};
/// let at_least_one = |_: u32| SymRange::new(1, i64::MAX);
/// let seq = Dim::Dynamic(sym::SEQ);
/// let (start, len) = resolve_slice(seq, Extent::Const(1), Extent::Const(i64::MAX), 1, &at_least_one).unwrap();
/// assert_eq!((start, len.to_string()), (Extent::Const(1), "-1 + seq".to_string()));
/// ```
///
/// # Errors
/// [`ErrorKind::Shape`] for a step of 0.
pub fn resolve_slice(
    dim: Dim,
    start: Extent,
    end: Extent,
    step: i64,
    range: &dyn Fn(u32) -> SymRange,
) -> Result<(Extent, Dim)> {
    if step == 0 {
        return Err(Error::new(ErrorKind::Shape, "a slice cannot have a step of 0"));
    }
    let size = dim.extent();
    let (first, last) = if step > 0 { (Extent::Const(0), size) } else { (Extent::Const(-1), size - 1) };
    let place = |e: Extent| match e {
        Extent::Const(c) if c >= FAR && !dim.is_static() => last,
        Extent::Const(c) if c <= -FAR && !dim.is_static() => first,
        e => from_the_front(e, size, range),
    };
    let (start, end) = (place(start), place(end));
    let (low, high) = if step > 0 { (start, end) } else { (end, start) };
    // Where the lower end is above `last`, or the upper one below `first`, there is nothing between them anyway. So one
    // bound for each is enough, and slices of slices stay short.
    let high = high.min_within(last, range);
    let span = above(high, low, first, range);
    let start = start.max_within(first, range).min_within(last, range);
    // Longer strides than any tensor are all the same; this one leaves room to add a length.
    let stride = step.saturating_abs().min(i64::MAX / 2);
    let len = span.max_within(0, range).ceil_div(stride);
    // An empty slice may start anywhere; 0 is a place every dimension has.
    let start = if len == Extent::Const(0) { Extent::Const(0) } else { start };
    Ok((start, Dim::from(len)))
}

/// `high - max(low, first)`, written so that what both have in common is gone.
fn above(high: Extent, low: Extent, first: Extent, range: &dyn Fn(u32) -> SymRange) -> Extent {
    (high - low).min_within(high - first, range)
}

/// `e`, counted from the end of `size` elements when it is negative.
fn from_the_front(e: Extent, size: Extent, range: &dyn Fn(u32) -> SymRange) -> Extent {
    let bounds = e.range(range);
    if bounds.min >= 0 {
        e
    } else if bounds.max < 0 {
        e + size
    } else {
        // min(1, max(0, -e)) is 1 where e is negative and 0 elsewhere.
        e + size * (-e).max_within(0, range).min_within(1, range)
    }
}

/// [`Op::Slice`].
pub struct SliceDef;

impl OpDef for SliceDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Slice { starts, steps, to });
        let x = inputs[0];
        let reject = |why: String| Err(Error::new(ErrorKind::Shape, format!("cannot slice {x}: {why}")));
        if [starts.len(), steps.len(), to.len()] != [x.rank(); 3] {
            return reject("starts, steps and dimensions must be one for each dimension".to_string());
        }
        for (axis, ((&start, &step), &to)) in starts.iter().zip(steps).zip(to).enumerate() {
            if step == 0 {
                return reject(format!("step 0 in dimension {axis}"));
            }
            // What is symbolic here is checked when it has its value.
            let (Extent::Const(start), Some(n), Some(size)) =
                (start, to.as_static(), x.dim(axis).as_static())
            else {
                continue;
            };
            let last = i128::from(start) + (n as i128 - 1) * i128::from(step);
            let inside = |place: i128| (0..size as i128).contains(&place);
            if n > 0 && !(inside(start.into()) && inside(last)) {
                return reject(format!("{n} elements from {start} by {step} leave dimension {axis}"));
            }
        }
        Ok(smallvec![x.with_dims(to.clone())])
    }

    fn holds_for_all(&self, op: &Op, inputs: &[&Shape], range: Ranges<'_>) -> bool {
        let Op::Slice { starts, steps, to } = op else { return false };
        let never_negative = |e: Extent| e.range(range).min >= 0;
        let axes = starts.iter().zip(steps).zip(to).zip(inputs[0].dims());
        { axes }.all(|(((&start, &step), &n), &size)| {
            let last = start + (n.extent() - 1) * step;
            let (low, high) = if step > 0 { (start, last) } else { (last, start) };
            // An empty slice reads nothing, wherever it starts.
            n == Dim::Static(0) || (never_negative(low) && never_negative(size.extent() - 1 - high))
        })
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Slice { starts, steps });
        let (x, dims) = (inputs[0], results[0].static_dims().unwrap_or_default());
        if dims.contains(&0) {
            return Ok(vec![x.pick(&dims, &[])]);
        }
        let own = strides(&x.dims);
        let start = own.iter().zip(starts).map(|(s, e)| s * e.as_const().unwrap_or(0)).sum();
        // One element takes no step, and its step may be anything.
        let stride = |axis: usize| if dims[axis] == 1 { 0 } else { own[axis] * steps[axis] };
        let strides: Vec<i64> = (0..dims.len()).map(stride).collect();
        Ok(vec![x.pick(&dims, &strided_offsets(&dims, start, &strides))])
    }

    fn flops(&self, _: &Op, _: &[&Shape], _: &[Shape]) -> f64 {
        0.0
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = g.dims(0..=4, 1..=7);
        let (mut starts, mut steps, mut to) = (Vec::new(), Vec::new(), Vec::new());
        for &d in &dims {
            let step = g.pick(&[1, 1, 1, 2, 3, -1, -2]);
            let (start, end) = (g.int(-9..=9), g.int(-9..=9));
            let (start, end) = (Extent::Const(start), Extent::Const(end));
            let resolved = resolve_slice(Dim::Static(d), start, end, step, &|_| SymRange::DIM);
            let (start, len) = resolved.unwrap_or((Extent::Const(0), Dim::Static(0)));
            // Most slices are not empty.
            let whole = len == Dim::Static(0) && g.chance(0.9);
            starts.push(if whole { Extent::Const(0) } else { start });
            steps.push(if whole { 1 } else { step });
            to.push(if whole { Dim::Static(d) } else { len });
        }
        let dtype = g.dtype_where(|_| true);
        Case::new(Op::Slice { starts, steps, to }, vec![g.value(dtype, &dims, -2.0..2.0)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dim::{DimBinding, sym};

    fn python(n: i64, start: i64, end: i64, step: i64) -> Vec<i64> {
        // The rule of Python's slice.indices(), written out.
        let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
        let place = |i: i64| (if i < 0 { i + n } else { i }).clamp(low, high);
        let (mut at, end, mut found) = (place(start), place(end), Vec::new());
        while (step > 0 && at < end) || (step < 0 && at > end) {
            found.push(at);
            at += step;
        }
        found
    }

    #[test]
    fn clamping_is_pythons_for_numbers_and_for_symbols() {
        let n = Dim::Dynamic(sym::SEQ);
        for size in 1..5i64 {
            for (start, end, step) in (-6..7)
                .flat_map(|s| (-6..7).flat_map(move |e| [-3, -2, -1, 1, 2, 3].map(move |step| (s, e, step))))
            {
                let want = python(size, start, end, step);
                let binding = DimBinding::from_pairs(&[(sym::SEQ, size as usize)]);
                for dim in [Dim::Static(size as usize), n] {
                    let (s, e) = (Extent::Const(start), Extent::Const(end));
                    let (from, len) = resolve_slice(dim, s, e, step, &|_| SymRange::DIM).unwrap();
                    let (from, len) = (from.bind(&binding), len.bind(&binding));
                    let what = format!("[{start}:{end}:{step}] of {size} as {dim}");
                    assert_eq!(len, Dim::Static(want.len()), "{what}");
                    assert!(want.is_empty() || from == Extent::Const(want[0]), "{what}: from {from}");
                }
            }
        }
    }

    #[test]
    fn a_start_of_unknown_sign_counts_from_either_end() {
        let past = Extent::sym(sym::PAST_SEQ);
        let any = |s: u32| if s == sym::PAST_SEQ { SymRange::new(-8, 8) } else { SymRange::DIM };
        let end = Extent::Const(i64::MAX);
        let (from, len) = resolve_slice(Dim::Static(8), past - 4, end, 1, &any).unwrap();
        for (value, want) in [(0, 4), (3, 7), (4, 0), (6, 2)] {
            let binding = DimBinding::from_pairs(&[(sym::PAST_SEQ, value)]);
            assert_eq!(from.bind(&binding), Extent::Const(want), "{value}");
            assert_eq!(len.bind(&binding), Dim::Static(8 - want as usize), "{value}");
        }
    }

    #[test]
    fn far_ends_and_known_ranges_leave_plain_expressions() {
        let (seq, n) = (Dim::Dynamic(sym::SEQ), Extent::sym(sym::SEQ));
        let some = |_: u32| SymRange::new(1, i64::MAX);
        let go = |start: i64, end: i64, step: i64| {
            resolve_slice(seq, Extent::Const(start), Extent::Const(end), step, &some).unwrap()
        };
        assert_eq!(go(0, i64::MAX, 1), (Extent::Const(0), seq));
        assert_eq!(go(0, i64::from(i32::MAX), 1), (Extent::Const(0), seq));
        assert_eq!(go(0, -1, 1), (Extent::Const(0), Dim::from(n - 1)));
        assert_eq!(go(0, 1, 1), (Extent::Const(0), Dim::Static(1)));
        assert_eq!(go(-1, i64::MAX, 1), (n - 1, Dim::Static(1)));
        assert_eq!(go(-1, i64::MIN, -1), (n - 1, seq));
        assert_eq!(go(0, i64::MAX, 2).1.to_string(), "floordiv(1 + seq, 2)");
    }

    #[test]
    fn slices_of_slices_stay_short() {
        for (start, end) in [(1, i64::MAX), (1, 256), (0, -1), (-3, i64::MAX)] {
            let (mut dim, mut size) = (Dim::Dynamic(sym::SEQ), 400i64);
            for _ in 0..40 {
                let (s, e) = (Extent::Const(start), Extent::Const(end));
                (_, dim) = resolve_slice(dim, s, e, 1, &|_| SymRange::DIM).unwrap();
                size = python(size, start, end.min(1 << 40), 1).len() as i64;
            }
            assert!(dim.to_string().len() < 60, "[{start}:{end}] forty times: {dim}");
            assert_eq!(dim.extent().eval(&|_| Some(400)), Some(size), "[{start}:{end}] forty times: {dim}");
        }
    }

    #[test]
    fn extreme_steps_do_not_overflow() {
        let go = |n: usize, start: i64, end: i64, step: i64| {
            let (s, e) = (Extent::Const(start), Extent::Const(end));
            resolve_slice(Dim::Static(n), s, e, step, &|_| SymRange::DIM).unwrap()
        };
        assert_eq!(go(5, 0, i64::MAX, i64::MAX), (Extent::Const(0), Dim::Static(1)));
        assert_eq!(go(5, i64::MAX, i64::MIN, i64::MIN), (Extent::Const(4), Dim::Static(1)));
        assert_eq!(go(0, 0, i64::MAX, 1), (Extent::Const(0), Dim::Static(0)));
        let op =
            Op::Slice { starts: vec![Extent::Const(4)], steps: vec![i64::MIN], to: vec![Dim::Static(1)] };
        let x = Value::int(crate::DType::I32, &[5], vec![0, 1, 2, 3, 4]);
        let out = crate::oracle::evaluate_op(&op, &[&x], &[]).unwrap();
        assert_eq!(out[0].ints().unwrap(), [4]);
    }

    #[test]
    fn a_symbolic_slice_is_evaluated_and_read_back() {
        let n = Dim::Dynamic(sym::SEQ);
        let mut graph = crate::Graph::new("slice");
        let x = graph.input("x", Shape::from_dims(&[n], crate::DType::I64));
        let (end, back) = (Extent::Const(i64::MIN), Extent::Const(-2));
        let (start, len) = resolve_slice(n, back, end, -2, &|_| SymRange::DIM).unwrap();
        let y =
            graph.try_add(Op::Slice { starts: vec![start], steps: vec![-2], to: vec![len] }, &[x]).unwrap();
        graph.set_outputs(vec![y]);
        assert_eq!(crate::text::parse(&graph.to_string()).unwrap(), graph);
        for size in 0..6i64 {
            let mut bindings = crate::oracle::Bindings::default();
            let values = (0..size).map(i128::from).collect();
            bindings.set_input("x", Value::int(crate::DType::I64, &[size as usize], values));
            let got = crate::oracle::evaluate(&graph, &bindings).unwrap();
            let want: Vec<i128> = python(size, -2, i64::MIN / 2, -2).into_iter().map(i128::from).collect();
            assert_eq!(got[0].ints().unwrap(), want, "{size}");
        }
    }

    #[test]
    fn a_slice_that_leaves_the_tensor_is_rejected() {
        let x = Shape::new(&[5], crate::DType::F32);
        let reject = |start: i64, step: i64, n: usize| {
            let op = Op::Slice { starts: vec![Extent::Const(start)], steps: vec![step], to: vec![n.into()] };
            SliceDef.infer(&op, &[&x], &[]).is_err()
        };
        assert!(
            reject(0, 1, 6) && reject(-1, 1, 2) && reject(4, -1, 6) && reject(0, 0, 1) && reject(5, 1, 1)
        );
        assert!(!reject(4, -1, 5) && !reject(9, 1, 0));
    }
}
