//! ONNX ops on known integers (see [`Known`]): shape computations, folded while importing.
//!
//! Every rule returns `None` when it is not certain of the result (an unknown operand, a comparison that depends on
//! the dimensions' values, an overflow); the node is then imported like any other.

use super::attrs::Attrs;
use super::known::{Known, broadcast_dims, equal, less, range};
use crate::tensor;
use rlx_ir::{DType, Extent, Shape};
use std::rc::Rc;

/// One operand, as seen by a rule.
pub(crate) struct Operand {
    pub shape: Shape,
    pub known: Option<Rc<Known>>,
}

/// One node: its attributes and operands (`None` where an optional input is left out).
pub(crate) struct Folding<'a> {
    pub attrs: Attrs<'a>,
    pub operands: Vec<Option<Operand>>,
    pub outputs: usize,
}

/// The results of a node of the default domain, when they are known.
pub(crate) fn fold(op: &str, node: &Folding<'_>) -> Option<Vec<Known>> {
    let one = |known: Option<Known>| known.map(|k| vec![k]);
    match op {
        "Shape" => one(node.shape_of()),
        "Size" => one(Known::new(DType::I64, vec![], vec![node.operand(0)?.shape.elements()])),
        "Identity" => one(Some(node.known(0)?.clone())),
        "Cast" => one(node.cast()),
        "Unsqueeze" => one(node.unsqueeze()),
        "Squeeze" => one(node.squeeze()),
        "Reshape" => one(node.reshape()),
        "Concat" => one(node.concat()),
        "Gather" => one(node.gather()),
        "Slice" => one(node.slice()),
        "Split" => node.split(),
        "Expand" => one(node.expand()),
        "Where" => one(node.select()),
        "ConstantOfShape" => one(node.constant_of_shape()),
        "Range" => one(node.range()),
        "Neg" => one(node.unary(|a| Some(-a))),
        "Not" => one(node.unary(|a| a.as_const().map(|c| Extent::Const(1 - c)))),
        "ReduceProd" => one(node.reduce(|a, b| Some(a * b))),
        "ReduceSum" => one(node.reduce(|a, b| Some(a + b))),
        "ReduceMax" => one(node.reduce(|a, b| Some(a.max(b)))),
        "ReduceMin" => one(node.reduce(|a, b| Some(a.min(b)))),
        "Max" => one(node.variadic(|a, b| Some(a.max(b)))),
        "Min" => one(node.variadic(|a, b| Some(a.min(b)))),
        "Add" => one(node.binary(|a, b| Some(a + b))),
        "Sub" => one(node.binary(|a, b| Some(a - b))),
        "Mul" => one(node.binary(|a, b| Some(a * b))),
        "Div" => one(node.binary(divide)),
        "Mod" if !node.attrs.flag("fmod", false).ok()? => one(node.binary(modulo)),
        "Equal" => one(node.compare(equal)),
        "Less" => one(node.compare(less)),
        "Greater" => one(node.compare(|a, b| less(b, a))),
        "LessOrEqual" => one(node.compare(|a, b| less(b, a).map(|l| !l))),
        "GreaterOrEqual" => one(node.compare(|a, b| less(a, b).map(|l| !l))),
        "And" => one(node.binary(|a, b| Some(a.min(b)))),
        "Or" => one(node.binary(|a, b| Some(a.max(b)))),
        _ => None,
    }
}

/// ONNX divides integers towards zero, an [`Extent`] towards minus infinity; they agree unless the numerator is
/// negative. A symbolic numerator is a size or an index, which a model that runs at all keeps from being negative.
fn divide(a: Extent, b: Extent) -> Option<Extent> {
    match (a.as_const(), b.as_const()) {
        (Some(a), Some(b)) => a.checked_div(b).map(Extent::Const),
        (None, Some(b)) if b <= 0 => None,
        _ if range(b).max <= 0 || range(a).max < 0 => None,
        _ => Some(a.floor_div(b)),
    }
}

fn modulo(a: Extent, b: Extent) -> Option<Extent> {
    let positive = b.as_const().is_none_or(|b| b > 0) && range(b).max > 0;
    positive.then(|| a.modulo(b))
}

impl Folding<'_> {
    fn operand(&self, i: usize) -> Option<&Operand> {
        self.operands.get(i)?.as_ref()
    }

    fn known(&self, i: usize) -> Option<&Known> {
        self.operand(i)?.known.as_deref()
    }

    fn numbers(&self, i: usize) -> Option<Vec<i64>> {
        self.known(i)?.numbers()
    }

    /// Numbers that became an input at some opset: from the input, else from the attribute; `Some(None)` when neither is given.
    fn numbers_or_attr(&self, i: usize, name: &str) -> Option<Option<Vec<i64>>> {
        match self.operand(i) {
            Some(_) => Some(Some(self.numbers(i)?)),
            None => Some(self.attrs.ints(name).ok()?.map(<[i64]>::to_vec)),
        }
    }

    fn shape_of(&self) -> Option<Known> {
        let shape = &self.operand(0)?.shape;
        let rank = shape.rank() as i64;
        let clamp = |v: i64| (if v < 0 { v.saturating_add(rank) } else { v }).clamp(0, rank) as usize;
        let (start, end) = (self.attrs.int("start", 0).ok()?, self.attrs.int("end", rank).ok()?);
        let (start, end) = (clamp(start), clamp(end));
        Known::vector(shape.dims().get(start..end.max(start))?.iter().map(|d| d.extent()).collect())
    }

    fn cast(&self) -> Option<Known> {
        let (a, to) =
            (self.known(0)?, tensor::dtype(i32::try_from(self.attrs.int("to", 0).ok()?).ok()?).ok()?);
        if to == DType::Bool {
            let truth = |&v: &Extent| equal(v, Extent::Const(0)).map(|zero| Extent::Const(i64::from(!zero)));
            return Known::new(to, a.dims.clone(), a.values.iter().map(truth).collect::<Option<_>>()?);
        }
        Known::new(to, a.dims.clone(), a.values.clone())
    }

    fn unsqueeze(&self) -> Option<Known> {
        let (a, axes) = (self.known(0)?, self.numbers_or_attr(1, "axes")??);
        let rank = a.dims.len() + axes.len();
        let axes = axes_in(&axes, rank)?;
        let mut rest = a.dims.iter();
        let dims = (0..rank).map(|i| if axes.contains(&i) { Some(1) } else { rest.next().copied() });
        a.with_dims(dims.collect::<Option<_>>()?)
    }

    fn squeeze(&self) -> Option<Known> {
        let a = self.known(0)?;
        let drop = match self.numbers_or_attr(1, "axes")? {
            Some(axes) => axes_in(&axes, a.dims.len())?,
            None => (0..a.dims.len()).filter(|&i| a.dims[i] == 1).collect(),
        };
        if drop.iter().any(|&i| a.dims[i] != 1) {
            return None;
        }
        a.with_dims((0..a.dims.len()).filter(|i| !drop.contains(i)).map(|i| a.dims[i]).collect())
    }

    fn reshape(&self) -> Option<Known> {
        let (a, target) = (self.known(0)?, self.numbers(1)?);
        let keep_zero = self.attrs.flag("allowzero", false).ok()?;
        let mut dims = Vec::new();
        let mut open = None;
        for (i, &t) in target.iter().enumerate() {
            dims.push(match t {
                -1 if open.is_none() => {
                    open = Some(i);
                    1
                }
                0 if !keep_zero => *a.dims.get(i)?,
                _ => usize::try_from(t).ok()?,
            });
        }
        if let Some(i) = open {
            let others = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
            dims[i] = a.values.len().checked_div(others)?;
        }
        a.with_dims(dims)
    }

    fn concat(&self) -> Option<Known> {
        let parts = (0..self.operands.len()).map(|i| self.known(i)).collect::<Option<Vec<_>>>()?;
        let first = parts.first()?;
        // Shapes are vectors; anything wider is left to the graph.
        if parts.iter().any(|p| p.dims.len() != 1 || p.dtype != first.dtype) {
            return None;
        }
        let values: Vec<Extent> = parts.iter().flat_map(|p| p.values.iter().copied()).collect();
        Known::new(first.dtype, vec![values.len()], values)
    }

    fn gather(&self) -> Option<Known> {
        let (a, index) = (self.known(0)?, self.known(1)?);
        if a.dims.len() != 1 {
            return None;
        }
        let count = a.values.len() as i64;
        let position = |i: i64| usize::try_from(if i < 0 { i.checked_add(count)? } else { i }).ok();
        let at = index.numbers()?.into_iter().map(position).collect::<Option<Vec<_>>>()?;
        a.pick(index.dims.clone(), at)
    }

    fn slice(&self) -> Option<Known> {
        let a = self.known(0)?;
        let one = |i: usize, name: &str| match self.numbers_or_attr(i, name)? {
            Some(v) if v.len() == 1 => Some(Some(v[0])),
            Some(_) => None,
            None => Some(None),
        };
        let (start, end) = (one(1, "starts")??, one(2, "ends")??);
        let (axis, step) = (one(3, "axes")?.unwrap_or(0), one(4, "steps")?.unwrap_or(1));
        if a.dims.len() != 1 || !matches!(axis, 0 | -1) {
            return None;
        }
        let at = slice_positions(start, end, step, a.values.len())?;
        a.pick(vec![at.len()], at)
    }

    fn split(&self) -> Option<Vec<Known>> {
        let a = self.known(0)?;
        if a.dims.len() != 1 || self.outputs == 0 {
            return None;
        }
        let parts = match self.numbers_or_attr(1, "split")? {
            Some(parts) => parts.into_iter().map(|p| usize::try_from(p).ok()).collect::<Option<Vec<_>>>()?,
            None if a.values.len() % self.outputs == 0 => vec![a.values.len() / self.outputs; self.outputs],
            None => return None,
        };
        if parts.len() != self.outputs || parts.iter().sum::<usize>() != a.values.len() {
            return None;
        }
        let mut start = 0;
        let piece = |&n: &usize| {
            start += n;
            a.pick(vec![n], start - n..start)
        };
        parts.iter().map(piece).collect()
    }

    fn expand(&self) -> Option<Known> {
        let (a, target) = (self.known(0)?, self.numbers(1)?);
        let target = target.into_iter().map(|t| usize::try_from(t).ok()).collect::<Option<Vec<_>>>()?;
        a.broadcast_to(&broadcast_dims(&a.dims, &target)?)
    }

    fn select(&self) -> Option<Known> {
        let (c, a, b) = (self.known(0)?, self.known(1)?, self.known(2)?);
        let dims = broadcast_dims(&broadcast_dims(&c.dims, &a.dims)?, &b.dims)?;
        let (c, a, b) = (c.broadcast_to(&dims)?, a.broadcast_to(&dims)?, b.broadcast_to(&dims)?);
        let choose = |i: usize| match c.values[i].as_const() {
            Some(0) => Some(b.values[i]),
            Some(_) => Some(a.values[i]),
            None => (a.values[i] == b.values[i]).then_some(a.values[i]),
        };
        Known::new(a.dtype, dims, (0..c.values.len()).map(choose).collect::<Option<_>>()?)
    }

    fn constant_of_shape(&self) -> Option<Known> {
        let dims =
            self.numbers(0)?.into_iter().map(|d| usize::try_from(d).ok()).collect::<Option<Vec<_>>>()?;
        let value = self.attrs.tensor("value").ok()??;
        // Values inside the file only: shape computations do not use external data.
        let value = tensor::RawTensor::read(value, &crate::external::ExternalFiles::new(None)).ok()?;
        let value = Known::from_const(&value.to_const().ok()?)?;
        let [v] = value.values[..] else { return None };
        let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
        (count <= super::known::MOST_ELEMENTS).then(|| Known::new(value.dtype, dims, vec![v; count]))?
    }

    fn range(&self) -> Option<Known> {
        let scalar =
            |i: usize| (self.known(i)?.values.len() == 1).then(|| self.known(i)?.values[0].as_const())?;
        let (start, limit, delta) = (scalar(0)?, scalar(1)?, scalar(2)?);
        if delta == 0 {
            return None;
        }
        let span = if delta > 0 { limit.checked_sub(start)? } else { start.checked_sub(limit)? };
        let count = if span <= 0 { 0 } else { (span - 1) / delta.checked_abs()? + 1 };
        if count > super::known::MOST_ELEMENTS as i64 {
            return None;
        }
        let values = (0..count).map(|i| Some(Extent::Const(start.checked_add(i.checked_mul(delta)?)?)));
        Known::new(self.known(0)?.dtype, vec![count as usize], values.collect::<Option<_>>()?)
    }

    fn unary(&self, f: impl Fn(Extent) -> Option<Extent>) -> Option<Known> {
        let a = self.known(0)?;
        Known::new(a.dtype, a.dims.clone(), a.values.iter().map(|&v| f(v)).collect::<Option<_>>()?)
    }

    fn binary(&self, f: impl Fn(Extent, Extent) -> Option<Extent>) -> Option<Known> {
        let (a, b) = (self.known(0)?, self.known(1)?);
        zip(a, b, a.dtype, f)
    }

    fn compare(&self, f: impl Fn(Extent, Extent) -> Option<bool>) -> Option<Known> {
        let (a, b) = (self.known(0)?, self.known(1)?);
        zip(a, b, DType::Bool, |x, y| f(x, y).map(|truth| Extent::Const(i64::from(truth))))
    }

    fn variadic(&self, f: impl Fn(Extent, Extent) -> Option<Extent>) -> Option<Known> {
        let mut result = self.known(0)?.clone();
        for i in 1..self.operands.len() {
            result = zip(&result, self.known(i)?, result.dtype, &f)?;
        }
        Some(result)
    }

    /// Reduction of a whole tensor (all a shape's elements), with or without the kept dimensions.
    fn reduce(&self, f: impl Fn(Extent, Extent) -> Option<Extent>) -> Option<Known> {
        let a = self.known(0)?;
        let axes = self.numbers_or_attr(1, "axes")?.filter(|axes| !axes.is_empty());
        if axes.is_none() && self.attrs.flag("noop_with_empty_axes", false).ok()? {
            return Some(a.clone());
        }
        let whole =
            axes.is_none_or(|axes| axes_in(&axes, a.dims.len()).is_some_and(|x| x.len() == a.dims.len()));
        let (&first, rest) = a.values.split_first()?;
        if !whole {
            return None;
        }
        let value = rest.iter().try_fold(first, |n, &v| f(n, v))?;
        let kept = if self.attrs.flag("keepdims", true).ok()? { vec![1; a.dims.len()] } else { vec![] };
        Known::new(a.dtype, kept, vec![value])
    }
}

fn zip(a: &Known, b: &Known, dtype: DType, f: impl Fn(Extent, Extent) -> Option<Extent>) -> Option<Known> {
    let dims = broadcast_dims(&a.dims, &b.dims)?;
    let (a, b) = (a.broadcast_to(&dims)?, b.broadcast_to(&dims)?);
    let values = a.values.iter().zip(&b.values).map(|(&x, &y)| f(x, y)).collect::<Option<_>>()?;
    Known::new(dtype, dims, values)
}

/// Distinct axes, counted from either end.
fn axes_in(axes: &[i64], rank: usize) -> Option<Vec<usize>> {
    let found =
        axes.iter().map(|&a| rlx_ir::shape::normalize_axis(a, rank).ok()).collect::<Option<Vec<_>>>()?;
    let distinct: std::collections::BTreeSet<_> = found.iter().collect();
    (distinct.len() == found.len()).then_some(found)
}

/// The positions a slice of one axis takes, by ONNX's clamping rule.
pub(crate) fn slice_positions(start: i64, end: i64, step: i64, len: usize) -> Option<Vec<usize>> {
    let n = i64::try_from(len).ok()?;
    let from_end = |v: i64| if v < 0 { v.saturating_add(n) } else { v };
    let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
    let start = from_end(start).clamp(if step > 0 { 0 } else { -1 }, high.max(low));
    let end = from_end(end).clamp(low, high.max(low));
    let mut positions = Vec::new();
    let mut at = start;
    while (step > 0 && at < end) || (step < 0 && at > end) {
        positions.push(usize::try_from(at).ok()?);
        at = at.checked_add(step)?;
    }
    (step != 0).then_some(positions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::AttributeProto;
    use rlx_ir::sym;

    fn run(op: &str, attrs: &[AttributeProto], operands: Vec<Known>) -> Option<Known> {
        let operand =
            |k: Known| Some(Operand { shape: Shape::new(&k.dims, k.dtype), known: Some(Rc::new(k)) });
        let operands = operands.into_iter().map(operand).collect();
        fold(op, &Folding { attrs: Attrs(attrs), operands, outputs: 1 }).and_then(|mut k| k.pop())
    }

    fn ints(values: &[i64]) -> Known {
        Known::vector(values.iter().map(|&v| Extent::Const(v)).collect()).unwrap()
    }

    #[test]
    fn the_usual_reshape_target_stays_symbolic() {
        let (b, s) = (Extent::sym(sym::BATCH), Extent::sym(sym::SEQ));
        let shape = Known::vector(vec![b, s, Extent::Const(768)]).unwrap();
        let lead = run("Slice", &[], vec![shape.clone(), ints(&[0]), ints(&[2])]).unwrap();
        let width = run("Gather", &[], vec![shape, ints(&[-1])]).unwrap();
        let head = run("Div", &[], vec![width, ints(&[12])]).unwrap();
        let target = run("Concat", &[], vec![lead, ints(&[12]), head]).unwrap();
        assert_eq!(target.values, [b, s, Extent::Const(12), Extent::Const(64)]);
        let elements = run("ReduceProd", &[], vec![target]).unwrap();
        assert_eq!(elements.values, [b * s * 768]);
    }

    #[test]
    fn expand_targets_with_minus_one_are_decided() {
        let s = Extent::sym(sym::SEQ);
        let shape = Known::vector(vec![s, Extent::Const(4)]).unwrap();
        let open = run("Equal", &[], vec![shape.clone(), ints(&[-1])]).unwrap();
        assert_eq!(run("Where", &[], vec![open, ints(&[1, 1]), shape.clone()]).unwrap(), shape);
        assert_eq!(run("Equal", &[], vec![shape, ints(&[1])]), None);
    }

    #[test]
    fn division_and_remainder_follow_onnx_for_numbers() {
        assert_eq!(run("Div", &[], vec![ints(&[-7, 7]), ints(&[2])]).unwrap(), ints(&[-3, 3]));
        assert_eq!(run("Mod", &[], vec![ints(&[-7, 7]), ints(&[3])]).unwrap(), ints(&[2, 1]));
        assert_eq!(run("Div", &[], vec![ints(&[1]), ints(&[0])]), None);
    }

    #[test]
    fn slices_clamp() {
        assert_eq!(slice_positions(0, i64::MAX, 2, 5), Some(vec![0, 2, 4]));
        assert_eq!(slice_positions(-1, i64::MIN, -2, 5), Some(vec![4, 2, 0]));
        assert_eq!(slice_positions(20, 3, -1, 5), Some(vec![4]));
        assert_eq!(slice_positions(3, 1, 1, 5), Some(vec![]));
        assert_eq!(slice_positions(0, 1, 0, 5), None);
        assert_eq!(slice_positions(0, 1, 1, 0), Some(vec![]));
    }

    #[test]
    fn ranges_are_listed_while_small() {
        let scalar = |v: i64| Known::new(DType::I64, vec![], vec![Extent::Const(v)]).unwrap();
        let range = |a, b, c| run("Range", &[], vec![scalar(a), scalar(b), scalar(c)]);
        assert_eq!(range(1, 6, 2).unwrap(), ints(&[1, 3, 5]));
        assert_eq!(range(3, 0, -2).unwrap(), ints(&[3, 1]));
        assert_eq!(range(0, i64::MAX, 1), None);
        assert_eq!(range(i64::MIN, i64::MAX, 1), None);
        assert_eq!(range(0, 1, 0), None);
    }
}
