//! Einstein summation: `bij,bjk->bik`.
//!
//! Operands are joined from left to right: labels that are not used later are summed as soon as possible, so each
//! join is one general dot product, or a matmul where it is of matrices. A repeated label in one operand takes the diagonal.

use super::{Entry, nodes};
use crate::import::NodeCx;
use rlx_ir::op::{CmpOp, ReduceOp};
use rlx_ir::{DType, Dim, Error, NodeId, Op};
use std::collections::HashMap;

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(super) const OPS: &[Entry] = &[nodes("Einsum", einsum)];

/// Stands for the dimensions of an ellipsis, counted from the right.
const ELLIPSIS: u32 = 1 << 24;

/// A tensor with a label for each dimension.
struct Labelled {
    node: NodeId,
    labels: Vec<u32>,
}

fn einsum(cx: Cx) -> Nodes {
    let equation: String = cx.attrs.text("equation", "")?.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (equation.as_str(), None),
    };
    let terms: Vec<&str> = left.split(',').collect();
    if terms.len() != cx.operands() {
        return Err(cx.malformed(format!("equation \"{equation}\" for {} operands", cx.operands())));
    }
    let mut operands = Vec::with_capacity(terms.len());
    for (i, term) in terms.iter().enumerate() {
        let labels = labels(cx, term, cx.rank(i)?)?;
        let node = cx.x(i)?;
        operands.push(diagonals(cx, Labelled { node, labels })?);
    }
    let wide = operands
        .iter()
        .flat_map(|o| &o.labels)
        .filter(|&&l| l >= ELLIPSIS)
        .max()
        .map_or(0, |l| l - ELLIPSIS + 1);
    let output = match right {
        Some(right) => {
            labels(cx, right, wide as usize + right.chars().filter(|c| c.is_alphabetic()).count())?
        }
        None => implicit_output(&operands, wide),
    };
    widen_ellipses(cx, &mut operands)?;
    let mut operands = operands.into_iter();
    let mut joined = operands.next().ok_or_else(|| cx.malformed("no operands"))?;
    let rest: Vec<Labelled> = operands.collect();
    for (i, next) in rest.iter().enumerate() {
        let later =
            |label: &u32| output.contains(label) || rest[i + 1..].iter().any(|o| o.labels.contains(label));
        joined = join(cx, joined, next, &later)?;
    }
    finish(cx, joined, &output).map(|node| vec![node])
}

/// One label per dimension of a term such as `b...ij`.
fn labels(cx: &NodeCx<'_, '_>, term: &str, rank: usize) -> Result<Vec<u32>, Error> {
    let letters = term.chars().filter(|c| c.is_alphabetic()).count();
    let dots = term.contains("...");
    let plain = term.replacen("...", "\u{0}", 1);
    let hidden = rank.checked_sub(letters).filter(|&h| dots || h == 0);
    let hidden = hidden.ok_or_else(|| cx.malformed(format!("term \"{term}\" for {rank} dimensions")))?;
    let mut labels = Vec::with_capacity(rank);
    for c in plain.chars() {
        match c {
            '\u{0}' => labels.extend((0..hidden as u32).rev().map(|i| ELLIPSIS + i)),
            c if c.is_alphabetic() => labels.push(c as u32),
            c => return Err(cx.malformed(format!("'{c}' in term \"{term}\""))),
        }
    }
    Ok(labels)
}

/// Without `->`: the ellipsis, then the labels that occur once, in order.
fn implicit_output(operands: &[Labelled], wide: u32) -> Vec<u32> {
    let mut counts = std::collections::BTreeMap::new();
    operands.iter().flat_map(|o| &o.labels).for_each(|&l| *counts.entry(l).or_insert(0) += 1);
    let once = counts.into_iter().filter(|&(l, n)| n == 1 && l < ELLIPSIS).map(|(l, _)| l);
    (0..wide).rev().map(|i| ELLIPSIS + i).chain(once).collect()
}

/// A label twice in one operand: everything off the diagonal becomes 0, and one of the two dimensions is summed away.
fn diagonals(cx: Cx, mut x: Labelled) -> Result<Labelled, Error> {
    while let Some((i, j)) = repeated(&x.labels) {
        let shape = cx.shape_of(x.node);
        let count = |cx: Cx, axis: usize| {
            let mut to = vec![Dim::Static(1); shape.rank()];
            to[axis] = shape.dim(axis);
            cx.add(Op::Iota { to, axis, dtype: DType::I64 }, &[])
        };
        let (row, column) = (count(cx, i)?, count(cx, j)?);
        let on = cx.compare(CmpOp::Eq, row, column)?;
        let zero = cx.scalar(shape.dtype(), 0.0);
        let kept = cx.select(on, x.node, zero)?;
        x.node = cx.reduce(kept, ReduceOp::Sum, &[j], false)?;
        x.labels.remove(j);
    }
    Ok(x)
}

fn repeated(labels: &[u32]) -> Option<(usize, usize)> {
    let find = |(j, l): (usize, &u32)| labels[..j].iter().position(|x| x == l).map(|i| (i, j));
    labels.iter().enumerate().find_map(find)
}

/// Dimensions under an ellipsis broadcast; those of 1 are widened to what the others have.
fn widen_ellipses(cx: Cx, operands: &mut [Labelled]) -> Result<(), Error> {
    let mut dims: HashMap<u32, Dim> = HashMap::new();
    for x in operands.iter() {
        for (&label, &dim) in x.labels.iter().zip(cx.shape_of(x.node).dims()) {
            let slot = dims.entry(label).or_insert(dim);
            if *slot == Dim::Static(1) {
                *slot = dim;
            }
        }
    }
    for x in operands {
        let to: Vec<Dim> = x.labels.iter().map(|l| dims[l]).collect();
        let own = cx.shape_of(x.node).dims().to_vec();
        let narrow = |i: usize| x.labels[i] >= ELLIPSIS && own[i] == Dim::Static(1);
        let to: Vec<Dim> = (0..to.len()).map(|i| if narrow(i) { to[i] } else { own[i] }).collect();
        x.node = cx.expand(x.node, to)?;
    }
    Ok(())
}

/// Sums the dimensions whose labels nothing needs.
fn sum_out(cx: Cx, x: Labelled, needed: &dyn Fn(&u32) -> bool) -> Result<Labelled, Error> {
    let axes: Vec<usize> = (0..x.labels.len()).filter(|&i| !needed(&x.labels[i])).collect();
    let node = cx.reduce(x.node, ReduceOp::Sum, &axes, false)?;
    Ok(Labelled { node, labels: x.labels.into_iter().filter(|l| needed(l)).collect() })
}

/// Joins two operands: common labels needed later are batch dimensions, other common ones are contracted.
fn join(cx: Cx, a: Labelled, b: &Labelled, later: &dyn Fn(&u32) -> bool) -> Result<Labelled, Error> {
    let in_b = b.labels.clone();
    let a = sum_out(cx, a, &|l| later(l) || in_b.contains(l))?;
    let in_a = a.labels.clone();
    let b = Labelled { node: b.node, labels: b.labels.clone() };
    let b = sum_out(cx, b, &|l| later(l) || in_a.contains(l))?;
    let common: Vec<u32> = a.labels.iter().copied().filter(|l| b.labels.contains(l)).collect();
    let (batch, contract): (Vec<u32>, Vec<u32>) = common.into_iter().partition(|l| later(l));
    let node = match matmul(cx, &a, &b, (&batch, &contract))? {
        Some(node) => node,
        None => cx.add(contraction(&a, &b, (&batch, &contract)), &[a.node, b.node])?,
    };
    let free = |x: &Labelled| -> Vec<u32> {
        x.labels.iter().copied().filter(|l| !batch.contains(l) && !contract.contains(l)).collect()
    };
    let labels = [batch.clone(), free(&a), free(&b)].concat();
    Ok(Labelled { node, labels })
}

/// The sum over some labels of products of what is equal in others.
fn contraction(a: &Labelled, b: &Labelled, (batch, contract): (&[u32], &[u32])) -> Op {
    let places = |x: &Labelled, which: &[u32]| -> Vec<usize> {
        which.iter().filter_map(|l| x.labels.iter().position(|m| m == l)).collect()
    };
    Op::DotGeneral {
        lhs_contract: places(a, contract),
        rhs_contract: places(b, contract),
        lhs_batch: places(a, batch),
        rhs_batch: places(b, batch),
    }
}

/// The same as a matmul, which the compiler's passes look for, where it is one: of matrices, with all that is in front of them in batches.
///
/// `bhid,bhjd->bhij` is `x · yᵀ`.
fn matmul(
    cx: Cx,
    a: &Labelled,
    b: &Labelled,
    (batch, contract): (&[u32], &[u32]),
) -> Result<Option<NodeId>, Error> {
    let &[sum] = contract else { return Ok(None) };
    let n = batch.len();
    let matrices = |x: &Labelled| x.labels.len() == n + 2 && x.labels[..n] == *batch;
    let dims = |x: &Labelled| cx.shape_of(x.node).dims()[..n].to_vec();
    // Dimensions with one label are equal, but MatMul is to see it.
    if !matrices(a) || !matrices(b) || dims(a) != dims(b) {
        return Ok(None);
    }
    let mut swapped: Vec<usize> = (0..n + 2).collect();
    swapped.swap(n, n + 1);
    let x = if a.labels[n] == sum { cx.transpose(a.node, &swapped)? } else { a.node };
    let y = if b.labels[n] == sum { b.node } else { cx.transpose(b.node, &swapped)? };
    cx.add(Op::MatMul, &[x, y]).map(Some)
}

/// Sums what is left over and puts the dimensions into the output's order.
fn finish(cx: Cx, x: Labelled, output: &[u32]) -> Result<NodeId, Error> {
    let x = sum_out(cx, x, &|l| output.contains(l))?;
    let place = |l: &u32| x.labels.iter().position(|m| m == l);
    let perm: Option<Vec<usize>> = output.iter().map(place).collect();
    let perm = perm.filter(|p| p.len() == x.labels.len());
    let perm = perm.ok_or_else(|| cx.malformed("an output label that no operand has, or one twice"))?;
    cx.transpose(x.node, &perm)
}
