//! Two matmuls of the same rows whose results are multiplied, as one step: `f(x·W + b) · (x·V + c)`, the gate and the other half
//! of a gated feed-forward layer.
//!
//! A thread computes a panel of the first matmul, stores it with its function, and at once the same panel of the second one, whose
//! epilogue multiplies it by what is stored. So the first result is in memory for as long as a panel takes, in the place of
//! the product, and there is one meeting of all threads instead of two. Each element has the bits that the steps apart give it.

use rlx_ir::op::BinaryOp;
use rlx_ir::{DType, Graph, Node, Op, Result};

use super::epilogue::Places;
use super::matmul::{Shape, by_blas, is_packed};
use super::producer::Producer;
use super::region::{EpilogueSpec, epilogue_until};
use super::{BindCx, Needs, RunCx, StepKernel, Upcoming, WORTH_NANOS, mismatch, packed_type, unbound};
use crate::formats;
use crate::gemm::{self, Ahead, BinaryOp as Joint, Combine, Gemm, Packed, Strided, TileSizes};

/// Multiply-adds of f32 in a nanosecond, roughly.
const F32_PER_NANO: f64 = 40.0;

/// A region of two matmuls.
#[derive(Debug, Clone)]
pub(crate) struct Paired {
    dtype: DType,
    /// Which of the region's inputs has the rows.
    rows: usize,
    /// Which has the weights of each.
    weights: [usize; 2],
    /// What is done to the result of each before they are multiplied; nothing but a factor and a bias for the second.
    epilogues: [EpilogueSpec; 2],
    producer: Option<Producer>,
}

/// Whether `matmul` may be one of two.
pub(crate) fn fuses(matmul: &Node, graph: &Graph) -> bool {
    let packed = |&id: &rlx_ir::NodeId| matches!(graph.node(id).op, Op::Pack { .. });
    matmul.op == Op::MatMul
        && is_packed(matmul.shape.dtype())
        && !by_blas(matmul)
        && matmul.inputs.get(1).is_some_and(packed)
}

/// Whether a region is of this kind.
pub(crate) fn is_pair(body: &Graph) -> bool {
    body.nodes().iter().filter(|n| n.op == Op::MatMul).count() == 2
}

/// A region's body as two matmuls.
pub(crate) fn of(body: &Graph, producer: Option<Producer>) -> std::result::Result<Paired, String> {
    let why = || "two matmuls are one region where their results are multiplied alone".to_owned();
    let mut matmuls: Vec<&Node> = body.nodes().iter().filter(|n| n.op == Op::MatMul).collect();
    let &[result] = body.outputs.as_slice() else { return Err(why()) };
    let joint = body.node(result);
    let (Op::Binary(BinaryOp::Mul), &[a, b]) = (&joint.op, joint.inputs.as_slice()) else {
        return Err(why());
    };
    let mut found = Vec::new();
    for matmul in &matmuls {
        let ends = |id| id == a || id == b;
        found.push(epilogue_until(body, matmul, ends).ok_or_else(why)?);
    }
    let plain = |(spec, _): &(EpilogueSpec, _)| spec.activation.is_none() && spec.combine.is_none();
    // The product takes the place of the first result, so nothing may come between the second one and it.
    if !found.get(1).is_some_and(plain) {
        matmuls.reverse();
        found.reverse();
    }
    let (&[first, second], &[(gate, from), (up, other)]) = (matmuls.as_slice(), found.as_slice()) else {
        return Err(why());
    };
    let [x, w] = [0, 1].map(|i| body.shape(first.inputs[i]));
    let fits = from != other
        && gate.combine.is_none()
        && plain(&(up, other))
        && first.inputs[0] == second.inputs[0]
        && first.shape == second.shape
        && first.shape == joint.shape
        && x.rank() >= 2
        && w.rank() == 2
        && body.shape(second.inputs[1]) == w
        && is_packed(first.shape.dtype())
        && !by_blas(first);
    if !fits {
        return Err(why());
    }
    let number = |id| body.inputs().position(|n| n.id == id).ok_or_else(why);
    let rows = match &producer {
        Some(producer) => producer.rows(),
        None => number(first.inputs[0])?,
    };
    let weights = [number(first.inputs[1])?, number(second.inputs[1])?];
    Ok(Paired { dtype: first.shape.dtype(), rows, weights, epilogues: [gate, up], producer })
}

/// The kernel of such a region.
pub(crate) fn kernel(pair: Paired) -> Box<dyn StepKernel> {
    Box::new(MatMulPair { pair, bound: None, tile_sizes: TileSizes::DEFAULT, next: None })
}

/// A bound pair.
#[derive(Debug, Clone)]
struct MatMulPair {
    pair: Paired,
    bound: Option<([Shape; 2], [Places; 2])>,
    tile_sizes: TileSizes,
    next: Upcoming,
}

impl StepKernel for MatMulPair {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (pair, out) = (&mut self.pair, &cx.outputs[0]);
        let shape = |i: usize| {
            let packed = cx.is_packed(i, formats::MATMUL_RHS)?;
            Shape::of(&cx.inputs[pair.rows], &cx.inputs[i], out, packed)
        };
        let mut shapes = [shape(pair.weights[0])?, shape(pair.weights[1])?];
        let places = pair.epilogues.map(|spec| Places::of(&spec, cx));
        let ([Some(first), Some(second)], true) = (places, shapes.iter().all(|s| s.packed)) else {
            return Err(mismatch("two matmuls of one region take packed weights and vectors as biases"));
        };
        let work = shapes[0].m as f64 * shapes[0].n as f64 * shapes[0].k as f64 * shapes[0].batches() as f64;
        let mut needs = Needs::time(2.0 * work / F32_PER_NANO);
        shapes.iter_mut().for_each(|s| s.worth = needs.nanos > WORTH_NANOS);
        if let Some(producer) = &mut pair.producer {
            producer.bind(cx, &shapes[0], &mut needs)?;
        }
        self.bound = Some((shapes, [first, second]));
        Ok(needs)
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        if self.bound.is_none() {
            return Err(unbound());
        }
        // SAFETY: the caller's promise.
        unsafe { packed_type!(self.pair.dtype, T => self.run_packed::<T>(cx), _ => ()) };
        Ok(())
    }

    fn weights(&self) -> Upcoming {
        let (shapes, _) = self.bound.as_ref()?;
        let s = &shapes[0];
        let depth = packed_type!(self.pair.dtype, T => gemm::groups::<T>(s.k), _ => s.k);
        Some((s.b, depth, gemm::panels(s.n)))
    }

    fn set_next(&mut self, next: Upcoming) {
        self.next = next;
    }

    fn set_tile_sizes(&mut self, tile_sizes: TileSizes) {
        self.tile_sizes = tile_sizes;
    }
}

impl MatMulPair {
    /// One of the matmuls of a batch.
    fn gemm<T: Packed>(
        &self,
        cx: &RunCx<'_, '_>,
        s: &Shape,
        places: &Places,
        batch: usize,
    ) -> Gemm<Strided<T>> {
        let [c_at, a_at, _] = s.batch_at(batch);
        Gemm {
            m: s.m,
            n: s.n,
            k: s.k,
            rows: Strided { ptr: cx.ptr::<T>(s.a).wrapping_offset(a_at), row_stride: s.a_strides[0] },
            b: cx.ptr(s.b),
            c: cx.ptr::<T>(s.c).wrapping_offset(c_at),
            c_stride: s.c_stride,
            epilogue: places.epilogue(cx),
            tile_sizes: self.tile_sizes,
            ahead: cx.ahead(None),
            wide: None,
        }
    }

    /// # Safety
    /// As [`StepKernel::run`].
    unsafe fn run_packed<T: Packed>(&self, cx: &mut RunCx<'_, '_>) {
        let Some((shapes, places)) = &self.bound else { return };
        let worth = shapes[0].worth;
        let ahead = cx.ahead(self.next);
        for batch in 0..shapes[0].batches() {
            let first = self.gemm::<T>(cx, &shapes[0], &places[0], batch);
            let second = Gemm { ahead, ..self.gemm::<T>(cx, &shapes[1], &places[1], batch) };
            match &self.pair.producer {
                // SAFETY: the caller's promise; the step asked for scratch when it was bound.
                Some(producer) => unsafe {
                    producer.for_parts(cx, &first, |cx, part| multiply(cx, part, &second, worth));
                },
                // SAFETY: the caller's promise.
                None => unsafe { multiply(cx, &first, &second, worth) },
            }
        }
    }
}

/// Runs the matmul `first`, and `second` with its rows and its place: what comes next is the second's, or the first's if it has a next.
///
/// # Safety
/// As [`Gemm::run`], for both.
unsafe fn multiply<T: Packed>(
    cx: &mut RunCx<'_, '_>,
    first: &Gemm<Strided<T>>,
    second: &Gemm<Strided<T>>,
    worth: bool,
) {
    let (isa, mut then) = (cx.isa, *second);
    (then.m, then.rows, then.c) = (first.m, first.rows, first.c);
    let (ptr, row_stride) = (first.c.cast_const(), first.c_stride);
    then.epilogue.combine = Some(Combine { ptr, row_stride, op: Joint::Mul, after: false });
    if let Ahead::Next(_) = first.ahead {
        then.ahead = first.ahead;
    }
    let (first, then) = (*first, then);
    cx.parallel(worth, first.tasks(isa), &|range, _| {
        // SAFETY: the caller's promise; ranges do not overlap, and a task reads what it wrote itself.
        unsafe { first.run_with(&then, isa, range) }
    });
}
