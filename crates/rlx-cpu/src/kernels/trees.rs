//! Decision trees and forests.
//!
//! A walk waits for its own loads: a node, its feature, the next node. So eight walks are taken together, and a step of all of
//! them is a few instructions without a branch. A task is a block of rows. Walks are in the order of the trees, those of one tree next to each
//! other, so that a block's rows find its nodes in the cache; where the block is a row or two, it is trees that are walked
//! together. Weights are added in the order of the trees, in f64, whatever the block.

use std::ops::Range;

use rlx_ir::op::ReduceOp;
use rlx_ir::{DType, Error, ErrorKind, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::indices::Misses;
use super::scalar::Number;
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::layout::At;

/// f32 and f64. Shorter floats would be other comparisons than those that a tree was trained with: no precision makes it short.
pub(crate) fn claim(node: &Node, _: &Graph) -> Claim {
    match node.shape.dtype() {
        DType::F32 | DType::F64 => Claim::Native,
        dtype => Claim::No(format!("there is no kernel for trees of {dtype}")),
    }
}

/// The kernel.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    match cx.node().op {
        Op::TreeEnsemble { depth, outcomes, reduce } => {
            Ok(Box::new(Trees { depth, outcomes, reduce, dtype: cx.step.inputs[0].dtype, plan: None }))
        }
        ref op => Err(no_kernel(op, "it has no trees")),
    }
}

/// Rows of a task.
const BLOCK: usize = 32;
/// Walks that are taken together.
const TOGETHER: usize = 8;

#[derive(Debug, Clone, Copy)]
struct Trees {
    depth: usize,
    outcomes: Option<u32>,
    reduce: ReduceOp,
    dtype: DType,
    plan: Option<Plan>,
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    /// Of `x`, thresholds, links, roots and weights.
    operands: [At; 5],
    out: At,
    sizes: Sizes,
    worth: bool,
}

#[derive(Debug, Clone, Copy)]
struct Sizes {
    rows: usize,
    features: usize,
    nodes: usize,
    trees: usize,
    results: usize,
}

impl StepKernel for Trees {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let dims = |i: usize| cx.inputs[i].dims();
        let out = &cx.outputs[0];
        let (&[rows, features], &[nodes], &[linked, columns], &[trees], &[weighed, results]) =
            (dims(0), dims(1), dims(2), dims(3), dims(4))
        else {
            return Err(mismatch("trees of operands of other ranks"));
        };
        let dense = cx.inputs.iter().all(|i| i.layout.is_dense());
        let wanted = if self.outcomes.is_some() { 3 } else { 4 };
        if [linked, weighed] != [nodes; 2] || columns != wanted || out.dims() != [rows, results] || !dense {
            let all = (dims(0), dims(1), dims(2), dims(4), out.dims());
            return Err(mismatch(format!("trees of {all:?}")));
        }
        let scratch = results.checked_mul(BLOCK * size_of::<f64>());
        let scratch = scratch.ok_or_else(|| mismatch(format!("{results} results are too many")))?;
        let nanos = (rows * trees) as f64 * (self.depth + results) as f64;
        self.plan = Some(Plan {
            operands: std::array::from_fn(|i| cx.inputs[i].at),
            out: out.at,
            sizes: Sizes { rows, features, nodes, trees, results },
            worth: nanos > WORTH_NANOS,
        });
        Ok(Needs { thread_scratch: scratch, shared_scratch: 0, nanos })
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        // SAFETY: the caller's promise; the types are those of the operands.
        unsafe {
            match self.dtype {
                DType::F64 => self.run_as::<f64>(cx),
                _ => self.run_as::<f32>(cx),
            }
        }
    }
}

impl Trees {
    /// # Safety
    /// As [`StepKernel::run`], with operands of `T`.
    unsafe fn run_as<T: Float>(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        // SAFETY: the caller's promise; links have a column for the node's outcomes where the op has none.
        unsafe {
            match self.outcomes {
                Some(3) => self.run_by::<T, 3>(LessOrEqual, cx),
                Some(1) => self.run_by::<T, 3>(Less, cx),
                Some(set) => self.run_by::<T, 3>(OneOf(set), cx),
                None => self.run_by::<T, 4>(Own, cx),
            }
        }
    }

    /// # Safety
    /// As [`StepKernel::run`], with operands of `T` and links of `C` columns.
    unsafe fn run_by<T: Float, const C: usize>(
        &self,
        question: impl Question<C>,
        cx: &mut RunCx<'_, '_>,
    ) -> Result<()> {
        let Some(Plan { operands: [x, thresholds, links, roots, weights], out, sizes, worth }) = self.plan
        else {
            return Err(unbound());
        };
        // SAFETY: the caller's promise: the operands are dense, as large as was bound, and nothing writes them meanwhile.
        let forest = unsafe {
            Forest {
                x: slice(cx.ptr(x), sizes.rows * sizes.features),
                thresholds: slice::<T>(cx.ptr(thresholds), sizes.nodes),
                links: slice::<[i32; C]>(cx.ptr(links), sizes.nodes),
                roots: slice(cx.ptr(roots), sizes.trees),
                weights: slice(cx.ptr(weights), sizes.nodes * sizes.results),
                sizes,
                depth: self.depth,
                reduce: self.reduce,
            }
        };
        let (to, misses) = (cx.shared::<T>(out), Misses::none());
        cx.parallel(worth, sizes.rows.div_ceil(BLOCK), &|tasks, scratch| {
            for task in tasks {
                let rows = task * BLOCK..sizes.rows.min((task + 1) * BLOCK);
                let count = rows.len() * sizes.results;
                // SAFETY: the scratch has room for a block's results, which are those of no other block.
                let (scores, to) = unsafe {
                    let to = to.get().wrapping_add(rows.start * sizes.results);
                    (slice_mut(scratch.cast::<f64>(), count), slice_mut(to, count))
                };
                scores.fill(0.0);
                if let Some(walk) = forest.block(question, rows, scores) {
                    return misses.note(walk);
                }
                forest.finish(scores, to);
            }
        });
        let Some(walk) = misses.first() else { return Ok(()) };
        forest.leaf(question, walk / sizes.trees, walk % sizes.trees).map(|_| ())
    }
}

/// # Safety
/// There must be `n` values, which nothing writes while the slice is used.
unsafe fn slice<'a, T>(at: *mut T, n: usize) -> &'a [T] {
    // SAFETY: the caller's promise.
    if n == 0 { &[] } else { unsafe { std::slice::from_raw_parts(at.cast_const(), n) } }
}

/// # Safety
/// There must be room for `n` values, which nothing else uses while the slice is used. They are written before they are read.
unsafe fn slice_mut<'a, T>(at: *mut T, n: usize) -> &'a mut [T] {
    // SAFETY: the caller's promise.
    if n == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(at, n) } }
}

/// What features are.
trait Float: Number<Wide = f64> + PartialOrd {}
impl Float for f32 {}
impl Float for f64 {}

/// Whether the answer of a node is yes. Links have `C` columns.
trait Question<const C: usize>: Copy + Sync {
    fn yes<T: PartialOrd>(self, feature: T, threshold: T, link: &[i32; C]) -> bool;
}

#[derive(Clone, Copy)]
struct LessOrEqual;
#[derive(Clone, Copy)]
struct Less;
/// Whether the outcome is in this set.
#[derive(Clone, Copy)]
struct OneOf(u32);
/// Whether the outcome is in the node's own set.
#[derive(Clone, Copy)]
struct Own;

impl Question<3> for LessOrEqual {
    #[inline(always)]
    fn yes<T: PartialOrd>(self, feature: T, threshold: T, _: &[i32; 3]) -> bool {
        feature <= threshold
    }
}

impl Question<3> for Less {
    #[inline(always)]
    fn yes<T: PartialOrd>(self, feature: T, threshold: T, _: &[i32; 3]) -> bool {
        feature < threshold
    }
}

impl Question<3> for OneOf {
    #[inline(always)]
    fn yes<T: PartialOrd>(self, feature: T, threshold: T, _: &[i32; 3]) -> bool {
        is_one_of(self.0, feature, threshold)
    }
}

impl Question<4> for Own {
    #[inline(always)]
    fn yes<T: PartialOrd>(self, feature: T, threshold: T, link: &[i32; 4]) -> bool {
        is_one_of(link[3] as u32, feature, threshold)
    }
}

#[inline(always)]
fn is_one_of<T: PartialOrd>(set: u32, feature: T, threshold: T) -> bool {
    let (less, equal, greater) = (feature < threshold, feature == threshold, feature > threshold);
    // The outcomes' numbers are 0 to 3, the last of them if either is NaN.
    let number = 3 - 3 * u32::from(less) - 2 * u32::from(equal) - u32::from(greater);
    set >> number & 1 == 1
}

struct Forest<'a, T, const C: usize> {
    x: &'a [T],
    thresholds: &'a [T],
    links: &'a [[i32; C]],
    roots: &'a [i32],
    weights: &'a [T],
    sizes: Sizes,
    depth: usize,
    reduce: ReduceOp,
}

/// A row and a tree, and the node that has been reached.
#[derive(Clone, Copy, Default)]
struct Walk {
    row: usize,
    tree: usize,
    node: usize,
}

impl<T: Float, const C: usize> Forest<'_, T, C> {
    /// Combines the leaves' weights of some rows into `scores`, which are 0; the number of the first walk (`row · trees + tree`)
    /// in which an index is out of range, if there is one.
    fn block(&self, question: impl Question<C>, rows: Range<usize>, scores: &mut [f64]) -> Option<usize> {
        let mut missed: Option<usize> = None;
        let mut next = Walk { row: rows.start, tree: 0, node: 0 };
        while next.tree < self.sizes.trees {
            let mut walks = [next; TOGETHER];
            let mut n = 0;
            // Where fewer are left, the first one is walked several times.
            while n < TOGETHER && next.tree < self.sizes.trees {
                walks[n] = next;
                n += 1;
                next.row += 1;
                if next.row == rows.end {
                    (next.row, next.tree) = (rows.start, next.tree + 1);
                }
            }
            if !self.walk(question, &mut walks) {
                for walk in &mut walks[..n] {
                    match self.leaf(question, walk.row, walk.tree) {
                        Ok(leaf) => walk.node = leaf,
                        Err(_) => {
                            let number = walk.row * self.sizes.trees + walk.tree;
                            missed = Some(missed.map_or(number, |first| first.min(number)));
                        }
                    }
                }
            }
            if missed.is_none() {
                walks[..n].iter().for_each(|walk| self.combine(walk, rows.start, scores));
            }
        }
        missed
    }

    /// Walks to the leaves; whether all indices were in range without counting from the end.
    #[inline(always)]
    fn walk(&self, question: impl Question<C>, walks: &mut [Walk; TOGETHER]) -> bool {
        let (features, nodes) = (self.sizes.features, self.links.len());
        let mut first = [0; TOGETHER];
        for (walk, first) in walks.iter_mut().zip(&mut first) {
            walk.node = self.roots[walk.tree] as usize;
            *first = walk.row * features;
            // What is read below.
            assert!(*first + features <= self.x.len() && self.thresholds.len() == nodes);
            if walk.node >= nodes {
                return false;
            }
        }
        for _ in 0..self.depth {
            let mut moved = false;
            for (walk, first) in walks.iter_mut().zip(first) {
                // SAFETY: nodes were compared with their number, which is that of links and thresholds.
                let (link, threshold) = unsafe {
                    (self.links.get_unchecked(walk.node), *self.thresholds.get_unchecked(walk.node))
                };
                let feature = link[0] as usize;
                if feature >= features {
                    return false;
                }
                // SAFETY: the row has `features` features.
                let value = unsafe { *self.x.get_unchecked(first + feature) };
                let yes = question.yes(value, threshold, link);
                // Not by a branch, which nothing could predict.
                let next = link[2 - usize::from(yes)] as usize;
                if next >= nodes {
                    return false;
                }
                moved |= next != walk.node;
                walk.node = next;
            }
            if !moved {
                break;
            }
        }
        true
    }

    /// As [`Forest::walk`] for one walk, with indices that count from the end.
    #[cold]
    fn leaf(&self, question: impl Question<C>, row: usize, tree: usize) -> Result<usize> {
        let (features, nodes) = (self.sizes.features, self.links.len());
        let mut node = counted(self.roots[tree], nodes, "root")?;
        for _ in 0..self.depth {
            let link = &self.links[node];
            let value = self.x[row * features + counted(link[0], features, "feature")?];
            let yes = question.yes(value, self.thresholds[node], link);
            node = counted(if yes { link[1] } else { link[2] }, nodes, "node")?;
        }
        Ok(node)
    }

    /// Adds a leaf's weights, or takes the extremes.
    #[inline(always)]
    fn combine(&self, walk: &Walk, first_row: usize, scores: &mut [f64]) {
        let results = self.sizes.results;
        let weights = &self.weights[walk.node * results..][..results];
        let scores = &mut scores[(walk.row - first_row) * results..][..results];
        for (score, weight) in scores.iter_mut().zip(weights) {
            let weight = weight.widen();
            *score = match self.reduce {
                ReduceOp::Max if walk.tree > 0 => T::max(*score, weight),
                ReduceOp::Min if walk.tree > 0 => T::min(*score, weight),
                ReduceOp::Max | ReduceOp::Min => weight,
                _ => *score + weight,
            };
        }
    }

    /// Rounds a block's results.
    fn finish(&self, scores: &[f64], to: &mut [T]) {
        let trees = self.sizes.trees as f64;
        for (to, &score) in to.iter_mut().zip(scores) {
            *to = T::narrow(if self.reduce == ReduceOp::Mean { score / trees } else { score });
        }
    }
}

/// The place that an index means, which may count from the end.
fn counted(index: i32, count: usize, of: &str) -> Result<usize> {
    super::indices::place(i64::from(index), count).ok_or_else(|| {
        let message = format!("{of} {index} of a tree is out of range: there are {count}");
        Error::new(ErrorKind::Value, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_one_of_four() {
        let all = |a: f32, b: f32| [1, 2, 4, 8].map(|set| is_one_of(set, a, b));
        assert_eq!(all(1.0, 2.0), [true, false, false, false]);
        assert_eq!(all(-0.0, 0.0), [false, true, false, false]);
        assert_eq!(all(2.0, 1.0), [false, false, true, false]);
        assert_eq!(all(f32::NAN, 1.0), [false, false, false, true]);
        assert_eq!(all(1.0, f32::NAN), [false, false, false, true]);
    }

    /// Two trees of one node each for 11 rows: as many walks as two and a rest.
    fn forest<'a>(links: &'a [[i32; 3]], roots: &'a [i32], x: &'a [f32]) -> Forest<'a, f32, 3> {
        let sizes = Sizes { rows: 11, features: 1, nodes: 3, trees: roots.len(), results: 1 };
        let (thresholds, weights) = (&[5.0, 0.0, 0.0], &[0.0, 1.0, 10.0]);
        Forest { x, thresholds, links, roots, weights, sizes, depth: 1, reduce: ReduceOp::Sum }
    }

    #[test]
    fn rows_of_a_block_are_walked_together() {
        let x: Vec<f32> = (0..11).map(|i| i as f32).collect();
        let links = [[0, 1, 2], [0, 1, 1], [0, 2, 2]];
        let mut scores = [0.0; 11];
        assert_eq!(forest(&links, &[0, 0], &x).block(LessOrEqual, 0..11, &mut scores), None);
        assert_eq!(scores, [2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 20.0, 20.0, 20.0, 20.0, 20.0]);
        // The same by indices that count from the end.
        let (links, mut others) = ([[-1, -2, -1], [0, 1, 1], [0, 2, 2]], [0.0; 11]);
        assert_eq!(forest(&links, &[-3, -3], &x).block(LessOrEqual, 0..11, &mut others), None);
        assert_eq!(others, scores);
    }

    #[test]
    fn the_first_walk_that_leaves_the_table_is_found() {
        let x: Vec<f32> = (0..11).map(|i| i as f32).collect();
        let (links, mut scores) = ([[0, 1, 3], [0, 1, 1], [0, 2, 2]], [0.0; 11]);
        let forest = forest(&links, &[1, 0], &x);
        let missed = forest.block(LessOrEqual, 0..11, &mut scores);
        assert_eq!(missed, Some(6 * 2 + 1), "row 6, tree 1");
        let error = forest.leaf(LessOrEqual, 6, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Value);
        assert!(error.to_string().contains("node 3 of a tree is out of range: there are 3"), "{error}");
    }
}
