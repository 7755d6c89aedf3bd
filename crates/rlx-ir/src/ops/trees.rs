//! Decision trees and forests: [`Op::TreeEnsemble`].
//!
//! The nodes of all trees are rows of one table. An inner node compares a feature of the row of `x` with its threshold, and what
//! comes out of that, one of four [outcomes](outcome), says which of its two links is followed. A leaf is linked to itself, so a walk of as many
//! steps as the deepest tree has levels ends in leaves, whose weights are summed (or averaged, or compared) over the trees.
//!
//! ```text
//! x [2, 4] f32, thresholds [5], links [5, 3] i32 (feature, yes, no), roots [1] i32, weights [5, 2]
//! %5 = TreeEnsemble(x, thresholds, links, roots, weights) {depth=2, outcomes=3, reduce=Sum} : [2, 2] f32
//! ```
//!
//! Nothing says that the nodes form trees: two nodes may share a child, and one that leads back ends after `depth` steps. The
//! decomposition walks level by level, all rows in all trees at once.

use smallvec::smallvec;

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, NodeId};
use crate::ops::def::{Arity, OpDef, Ranges, dtype_error};
use crate::ops::elementwise::{Takes, same_dtype, static_dims};
use crate::ops::{Activation, BinaryOp, CmpOp, Op, OpKind, Predicate, ReduceOp, attrs};
use crate::shape::{Shape, Shapes, agreed_dim};
use crate::tensor::Value;

#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

/// [`Op::TreeEnsemble`].
pub struct TreeEnsembleDef;

/// The most levels of a tree.
pub const MOST_LEVELS: usize = 1024;

/// The bit that a feature's comparison with a threshold has in a set of outcomes: less, equal, greater, or none of
/// these because one of the two is NaN.
pub fn outcome(feature: f64, threshold: f64) -> u32 {
    match feature.partial_cmp(&threshold) {
        Some(std::cmp::Ordering::Less) => 1,
        Some(std::cmp::Ordering::Equal) => 2,
        Some(std::cmp::Ordering::Greater) => 4,
        None => 8,
    }
}

/// The dimensions that operands must have: rows and features, nodes, trees, results.
fn check(op: &Op, inputs: &[&Shape]) -> Result<Shape> {
    let &[x, thresholds, links, roots, weights] = inputs else {
        return Err(mismatch(inputs, "an operand is missing"));
    };
    attrs!(op => TreeEnsemble { depth, outcomes, reduce });
    Takes::Floats.check(OpKind::TreeEnsemble, x)?;
    same_dtype(OpKind::TreeEnsemble, x, thresholds)?;
    same_dtype(OpKind::TreeEnsemble, x, weights)?;
    for indices in [links, roots] {
        if indices.dtype() != DType::I32 {
            return Err(dtype_error(OpKind::TreeEnsemble, indices, "links and roots of i32"));
        }
    }
    let ranks = [x.rank(), thresholds.rank(), links.rank(), roots.rank(), weights.rank()];
    if ranks != [2, 1, 2, 1, 2] {
        return Err(mismatch(
            inputs,
            "they are [rows, features], [nodes], [nodes, 3 or 4], [trees], [nodes, results]",
        ));
    }
    let columns = if outcomes.is_some() { 3 } else { 4 };
    if links.dim(1) != Dim::Static(columns) {
        return Err(mismatch(
            inputs,
            "links are feature, yes and no, and where the op has no outcomes, those of the node",
        ));
    }
    let nodes = agreed_dim(thresholds.dim(0), links.dim(0)).and_then(|n| agreed_dim(n, weights.dim(0)));
    if nodes.is_none() {
        return Err(mismatch(inputs, "they are of different numbers of nodes"));
    }
    if roots.dim(0).as_static().is_none_or(|trees| trees == 0) {
        return Err(mismatch(inputs, "the number of trees is fixed, and at least 1"));
    }
    if *depth > MOST_LEVELS || outcomes.is_some_and(|set| set > 15) || *reduce == ReduceOp::Prod {
        let message = format!(
            "TreeEnsemble of {depth} levels (at most {MOST_LEVELS}), outcomes {outcomes:?} (at most 15), by {reduce:?} (not Prod)"
        );
        return Err(Error::new(ErrorKind::InvalidGraph, message));
    }
    Ok(x.with_dims(vec![x.dim(0), weights.dim(1)]))
}

fn mismatch(inputs: &[&Shape], why: &str) -> Error {
    let shapes: Vec<String> = inputs.iter().map(ToString::to_string).collect();
    Error::new(ErrorKind::Shape, format!("TreeEnsemble of {}: {why}", shapes.join(", ")))
}

/// The place that `index` means among `count`; a negative one counts from the end, as with `Gather`.
fn place(index: i128, count: usize, of: &str) -> Result<usize> {
    let place = if index < 0 { index + count as i128 } else { index };
    usize::try_from(place).ok().filter(|&p| p < count).ok_or_else(|| {
        Error::new(ErrorKind::Value, format!("{of} {index} of a tree is out of range: there are {count}"))
    })
}

impl OpDef for TreeEnsembleDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(5)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        Ok(smallvec![check(op, inputs)?])
    }

    fn holds_for_all(&self, _: &Op, inputs: &[&Shape], _: Ranges<'_>) -> bool {
        let nodes = [1, 2, 4].map(|i| inputs[i].dims().first());
        nodes.iter().all(|&n| n == nodes[0])
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => TreeEnsemble { depth, outcomes, reduce });
        let dims = static_dims(&results[0])?;
        let (x, thresholds, weights) = (inputs[0].floats()?, inputs[1].floats()?, inputs[4].floats()?);
        let (links, roots) = (inputs[2].ints()?, inputs[3].ints()?);
        let (features, nodes, columns) = (inputs[0].dims[1], inputs[1].dims[0], inputs[2].dims[1]);
        let (rows, width) = (dims[0], dims[1]);
        let leaf = |row: usize, root: i128| {
            let mut at = place(root, nodes, "root")?;
            for _ in 0..*depth {
                let link = &links[at * columns..(at + 1) * columns];
                let value = x[row * features + place(link[0], features, "feature")?];
                let set = outcomes.map_or_else(|| link[3], i128::from);
                let yes = set & i128::from(outcome(value, thresholds[at])) != 0;
                at = place(if yes { link[1] } else { link[2] }, nodes, "node")?;
            }
            Ok(at)
        };
        let mut y = Vec::with_capacity(rows * width);
        for row in 0..rows {
            let leaves = roots.iter().map(|&root| leaf(row, root)).collect::<Result<Vec<_>>>()?;
            y.extend(
                (0..width).map(|j| reduced(*reduce, leaves.iter().map(|&leaf| weights[leaf * width + j]))),
            );
        }
        Ok(vec![Value::float(inputs[0].dtype, &dims, y)])
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], graph: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        Some(Walk::decompose(op, inputs, graph))
    }

    fn flops(&self, op: &Op, inputs: &[&Shape], results: &[Shape]) -> f64 {
        let Op::TreeEnsemble { depth, .. } = op else { return 0.0 };
        let trees = inputs[3].num_elements().unwrap_or(0) as f64;
        let rows = inputs[0].dim(0).as_static().unwrap_or(1) as f64;
        // A comparison and the way to the next node for each level, then the sums.
        trees * (rows * 2.0 * *depth as f64 + results[0].num_elements().unwrap_or(0) as f64)
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        random_forest(g)
    }
}

/// The weights of one result over the trees.
fn reduced(reduce: ReduceOp, weights: impl ExactSizeIterator<Item = f64>) -> f64 {
    let trees = weights.len() as f64;
    let extreme = |a: f64, b: f64, other: bool| if a.is_nan() || !(b.is_nan() || other) { a } else { b };
    match reduce {
        ReduceOp::Max => weights.fold(f64::NEG_INFINITY, |a, b| extreme(a, b, b > a)),
        ReduceOp::Min => weights.fold(f64::INFINITY, |a, b| extreme(a, b, b < a)),
        ReduceOp::Mean => weights.sum::<f64>() / trees,
        _ => weights.sum(),
    }
}

/// The decomposition: what each level reads.
struct Walk<'g> {
    graph: &'g mut Graph,
    x: NodeId,
    thresholds: NodeId,
    /// Feature, yes, no, and the outcomes of nodes that have their own.
    columns: Vec<NodeId>,
    outcomes: Option<u32>,
}

impl Walk<'_> {
    fn decompose(op: &Op, inputs: &[NodeId], graph: &mut Graph) -> Result<Vec<NodeId>> {
        attrs!(op => TreeEnsemble { depth, outcomes, reduce });
        let &[x, thresholds, links, roots, weights] = inputs else {
            return Err(mismatch(&[], "an operand is missing"));
        };
        let (nodes, trees, rows) =
            (graph.shape(links).dim(0), graph.shape(roots).dim(0), graph.shape(x).dim(0));
        let mut columns = Vec::new();
        for column in 0..if outcomes.is_some() { 3 } else { 4 } {
            let starts = vec![0.into(), column.into()];
            let one = Op::Slice { starts, steps: vec![1, 1], to: vec![nodes, Dim::Static(1)] };
            let one = graph.try_add(one, &[links])?;
            columns.push(graph.try_add(Op::Reshape { to: vec![nodes] }, &[one])?);
        }
        let roots = graph.try_add(Op::Reshape { to: vec![Dim::Static(1), trees] }, &[roots])?;
        let mut at = graph.try_add(Op::Expand { to: vec![rows, trees] }, &[roots])?;
        let mut walk = Walk { graph, x, thresholds, columns, outcomes: *outcomes };
        for _ in 0..*depth {
            at = walk.step(at)?;
        }
        let found = graph.try_add(Op::Gather { axis: 0 }, &[weights, at])?;
        let reduce = Op::Reduce { op: *reduce, axes: vec![1], keep_dim: false };
        Ok(vec![graph.try_add(reduce, &[found])?])
    }

    fn gather(&mut self, table: NodeId, at: NodeId) -> Result<NodeId> {
        self.graph.try_add(Op::Gather { axis: 0 }, &[table, at])
    }

    /// The nodes `[rows, trees]` one level further down.
    fn step(&mut self, at: NodeId) -> Result<NodeId> {
        let feature = self.gather(self.columns[0], at)?;
        let value = self.graph.try_add(Op::GatherElements { axis: 1 }, &[self.x, feature])?;
        let threshold = self.gather(self.thresholds, at)?;
        let taken = match self.outcomes.and_then(comparison) {
            Some((op, not)) => {
                let hit = self.graph.try_add(Op::Compare(op), &[value, threshold])?;
                if not { self.graph.try_add(Op::Activation(Activation::Not), &[hit])? } else { hit }
            }
            None => self.looked_up(value, threshold, at)?,
        };
        let (yes, no) = (self.gather(self.columns[1], at)?, self.gather(self.columns[2], at)?);
        self.graph.try_add(Op::Where, &[taken, yes, no])
    }

    /// Whether the outcome is in the set: the element `4·set + outcome` of a table.
    fn looked_up(&mut self, value: NodeId, threshold: NodeId, at: NodeId) -> Result<NodeId> {
        let g = &mut *self.graph;
        // Less is number 0; each of "not less", "not less or equal" and "NaN" adds one.
        let mut terms = Vec::new();
        for op in [CmpOp::Lt, CmpOp::Le] {
            let hit = g.try_add(Op::Compare(op), &[value, threshold])?;
            terms.push(g.try_add(Op::Activation(Activation::Not), &[hit])?);
        }
        let mut nan = Vec::new();
        for x in [value, threshold] {
            nan.push(g.try_add(Op::Predicate(Predicate::IsNan), &[x])?);
        }
        terms.push(g.try_add(Op::Binary(BinaryOp::Or), &nan)?);
        let scalar =
            |g: &mut Graph, n: u32| g.constant(Value::int(DType::I32, &[], vec![n.into()]).to_const());
        let mut place = match self.outcomes {
            Some(set) => scalar(g, 4 * set),
            None => {
                let set = g.try_add(Op::Gather { axis: 0 }, &[self.columns[3], at])?;
                let four = scalar(g, 4);
                g.try_add(Op::Binary(BinaryOp::Mul), &[set, four])?
            }
        };
        for term in terms {
            let term = g.try_add(Op::Cast { to: DType::I32 }, &[term])?;
            place = g.try_add(Op::Binary(BinaryOp::Add), &[place, term])?;
        }
        let table = Value::bools(&[64], (0..64).map(|i| (i / 4) >> (i % 4) & 1 == 1));
        let table = g.constant(table.to_const());
        self.gather(table, place)
    }
}

/// The comparison that is true for exactly these outcomes, or whose opposite is.
fn comparison(outcomes: u32) -> Option<(CmpOp, bool)> {
    let ordered = |set| match set {
        1 => Some(CmpOp::Lt),
        2 => Some(CmpOp::Eq),
        3 => Some(CmpOp::Le),
        4 => Some(CmpOp::Gt),
        6 => Some(CmpOp::Ge),
        _ => None,
    };
    let opposite = || ordered(15 - outcomes).map(|op| (op, true));
    ordered(outcomes).map(|op| (op, false)).or_else(opposite)
}

/// Full trees of random depths, some rows with features that equal thresholds or are NaN.
#[cfg(feature = "testing")]
fn random_forest(g: &mut Gen) -> Case {
    let dtype = g.pick(&[DType::F32, DType::F32, DType::F64, DType::F16, DType::BF16]);
    let (rows, features, trees, width) = (g.size(1..=70), g.size(1..=6), g.size(1..=12), g.size(1..=3));
    let own = g.chance(0.4);
    let (mut links, mut roots, mut depth) = (Vec::new(), Vec::new(), 0);
    for _ in 0..trees {
        let levels = g.size(0..=4);
        depth = depth.max(levels);
        let first = links.len();
        roots.push(first as i128);
        let inner = (1 << levels) - 1;
        for i in 0..2 * inner + 1 {
            let (feature, at) = (g.int(0..=features as i64 - 1).into(), (first + i) as i128);
            let (yes, no) = ((first + 2 * i + 1) as i128, (first + 2 * i + 2) as i128);
            links.push(if i < inner { [feature, yes, no] } else { [0, at, at] });
        }
    }
    let nodes = links.len();
    let columns = if own { 4 } else { 3 };
    let mut flat = Vec::new();
    for link in &links {
        flat.extend(link);
        flat.extend(own.then(|| i128::from(g.int(0..=15))));
    }
    // Halves are exact in every type, so some features equal thresholds.
    let halves = |g: &mut Gen, dims: &[usize], nan: f64| {
        let mut one = || if g.chance(nan) { f64::NAN } else { g.int(-4..=4) as f64 / 2.0 };
        let values = (0..dims.iter().product::<usize>()).map(|_| one()).collect();
        Value::float(dtype, dims, values)
    };
    let op = Op::TreeEnsemble {
        depth,
        outcomes: (!own).then(|| g.int(0..=15) as u32),
        reduce: g.pick(&[ReduceOp::Sum, ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min, ReduceOp::Max]),
    };
    let inputs = vec![
        halves(g, &[rows, features], 0.1),
        halves(g, &[nodes], 0.0),
        Value::int(DType::I32, &[nodes, columns], flat),
        Value::int(DType::I32, &[trees], roots),
        g.value(dtype, &[nodes, width], -1.0..1.0),
    ];
    Case::new(op, inputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::evaluate_op;

    /// `x₀ ≤ 1 ? (x₁ ≤ 0 ? leaf 3 : leaf 4) : leaf 2`, with weights that name the leaf.
    fn forest(outcomes: Option<u32>, x: Vec<f64>) -> Result<Vec<f64>> {
        let links = [[0, 1, 2, 3], [1, 3, 4, 11], [0, 2, 2, 0], [0, 3, 3, 0], [0, 4, 4, 0]];
        let columns = if outcomes.is_some() { 3 } else { 4 };
        let links = links.iter().flat_map(|l: &[i128; 4]| l[..columns].to_vec()).collect();
        let inputs = [
            Value::float(DType::F32, &[x.len() / 2, 2], x),
            Value::float(DType::F32, &[5], vec![1.0, 0.0, 0.0, 0.0, 0.0]),
            Value::int(DType::I32, &[5, columns], links),
            Value::int(DType::I32, &[1], vec![0]),
            Value::float(DType::F32, &[5, 1], vec![0.0, 1.0, 2.0, 3.0, 4.0]),
        ];
        let op = Op::TreeEnsemble { depth: 2, outcomes, reduce: ReduceOp::Sum };
        let inputs: Vec<&Value> = inputs.iter().collect();
        evaluate_op(&op, &inputs, &[]).map(|y| y[0].to_f64())
    }

    #[test]
    fn rows_end_in_their_leaves() {
        let rows = vec![1.0, 0.0, 1.0, 0.5, 1.5, 0.0, f64::NAN, 0.0, 0.0, f64::NAN];
        assert_eq!(forest(Some(3), rows.clone()).unwrap(), [3.0, 4.0, 2.0, 2.0, 4.0]);
        // The second node takes NaN for "yes".
        assert_eq!(forest(None, rows).unwrap(), [3.0, 4.0, 2.0, 2.0, 3.0]);
    }

    #[test]
    fn what_cannot_be_walked_is_an_error() {
        let s = |dims: &[usize], dtype| Shape::new(dims, dtype);
        let (f, i) = (DType::F32, DType::I32);
        let infer = |op: &Op, x: Shape, links: Shape, roots: Shape| {
            TreeEnsembleDef.infer(op, &[&x, &s(&[5], f), &links, &roots, &s(&[5, 2], f)], &[])
        };
        let op = Op::TreeEnsemble { depth: 2, outcomes: Some(3), reduce: ReduceOp::Sum };
        let own = Op::TreeEnsemble { depth: 2, outcomes: None, reduce: ReduceOp::Sum };
        let y = infer(&op, s(&[7, 4], f), s(&[5, 3], i), s(&[1], i)).unwrap();
        assert_eq!(y[..], [s(&[7, 2], f)]);
        assert!(infer(&own, s(&[7, 4], f), s(&[5, 4], i), s(&[1], i)).is_ok());
        for (op, x, links, roots) in [
            (&own, s(&[7, 4], f), s(&[5, 3], i), s(&[1], i)),
            (&op, s(&[7, 4], f), s(&[5, 4], i), s(&[1], i)),
            (&op, s(&[7, 4], DType::F64), s(&[5, 3], i), s(&[1], i)),
            (&op, s(&[7, 4], f), s(&[6, 3], i), s(&[1], i)),
            (&op, s(&[7, 4], f), s(&[5, 3], f), s(&[1], i)),
            (&op, s(&[7, 4], f), s(&[5, 3], i), s(&[0], i)),
        ] {
            assert!(infer(op, x.clone(), links.clone(), roots.clone()).is_err(), "{x} {links} {roots}");
        }
        let deep = Op::TreeEnsemble { depth: MOST_LEVELS + 1, outcomes: Some(3), reduce: ReduceOp::Sum };
        let error = infer(&deep, s(&[7, 4], f), s(&[5, 3], i), s(&[1], i)).unwrap_err();
        assert!(error.to_string().contains("1025 levels (at most 1024)"), "{error}");
    }
}
