//! What a run takes, before it is run: a module's steps as [`Work`], and the trait that prices them.
//!
//! [`works`] describes each step of a compiled module by what decides its time: the dimensions of a matmul, the
//! arithmetic of a convolution, the bytes that pass through. A [`BackendCostModel`] knows what that costs on one
//! device. The models that `rlx-runtime` uses are measured on the machine; a backend may bring its own
//! ([`crate::Backend::cost_model`]).
//!
//! ```
//! use rlx_backend::cost::{BackendCostModel, Work, WorkKind};
//! /// A device without parallelism: one operation each nanosecond.
//! struct Slow;
//! impl BackendCostModel for Slow {
//!     fn name(&self) -> &str {
//!         "slow"
//!     }
//!     fn step_ns(&self, work: &Work) -> f64 {
//!         work.flops
//!     }
//!     fn run_ns(&self, _: f64) -> f64 {
//!         0.0
//!     }
//! }
//! let matmul = WorkKind::MatMul { batch: 1.0, m: 2.0, n: 3.0, k: 4.0 };
//! assert_eq!(Slow.step_ns(&Work { flops: 48.0, ..Work::of(matmul) }), 48.0);
//! ```

use std::sync::Arc;

use rlx_ir::lir::{BufferKind, Operand, Step, StepKind};
use rlx_ir::op::Activation;
use rlx_ir::{Graph, LirModule, Node, Op, Shape, ops};
use rlx_opt::Target;

/// What kind of work a step is: which measurement its time follows from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WorkKind {
    /// `batch` matmuls of an `m × k` with a `k × n` matrix.
    MatMul {
        /// How many.
        batch: f64,
        /// Rows of the left.
        m: f64,
        /// Columns of the right.
        n: f64,
        /// The common dimension.
        k: f64,
    },
    /// A convolution, seen as a matmul: `m` positions, `n` channels of the result, `k` values under the window.
    Window {
        /// Positions of the result.
        m: f64,
        /// Channels of the result.
        n: f64,
        /// Values under the window: channels of a group times positions of the window.
        k: f64,
    },
    /// A window that slides over each channel alone: depthwise convolution, pooling.
    SlidingWindow,
    /// Attention over this many queries.
    Attention {
        /// How many keys each query sees.
        keys: f64,
    },
    /// Softmax over rows.
    Softmax,
    /// A norm over rows.
    Norm,
    /// One pass: elementwise work, reductions, copies, gathers.
    Pass,
}

/// What one step takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// What kind of work it is.
    pub kind: WorkKind,
    /// Arithmetic operations of matmuls, convolutions, norms, reductions, …; 0 where all is elementwise.
    pub flops: f64,
    /// Elementwise operations of an instruction or few, counted for each element.
    pub cheap: f64,
    /// Elementwise operations with an exponential or the like, counted for each element.
    pub costly: f64,
    /// Bytes that are read and written, each operand once.
    pub bytes: f64,
    /// Of these, bytes of parameters, constants, and what is made of them alone.
    pub held: f64,
    /// Bytes that one whole run touches: what is between two uses of a parameter.
    pub resident: f64,
}

impl Work {
    /// Work of this kind that takes nothing yet.
    pub fn of(kind: WorkKind) -> Self {
        Work { kind, flops: 0.0, cheap: 0.0, costly: 0.0, bytes: 0.0, held: 0.0, resident: 0.0 }
    }
}

/// The prices of one device.
pub trait BackendCostModel: Send + Sync {
    /// The device's name, as reports use it.
    fn name(&self) -> &str;

    /// Nanoseconds that a step takes, its dispatch included.
    fn step_ns(&self, work: &Work) -> f64;

    /// Nanoseconds that a run takes besides its steps, where inputs and outputs are `bytes` together.
    fn run_ns(&self, bytes: f64) -> f64;

    /// The device as the compiler sees it, so that a graph can be priced as it will be compiled. `None`: graphs are
    /// priced node by node.
    fn target(&self) -> Option<Arc<dyn Target>> {
        None
    }
}

/// The work of a module's steps, whose dimensions must be fixed.
pub fn works(lir: &LirModule) -> Vec<Work> {
    let mut works: Vec<Work> = lir.steps.iter().map(|step| work_of_step(step, lir)).collect();
    let resident =
        lir.plan.as_ref().map_or(0, |p| p.arena_bytes) as f64 + works.iter().map(|w| w.held).sum::<f64>();
    works.iter_mut().for_each(|w| w.resident = resident);
    works
}

/// The work of a graph's nodes, each as a step of its own.
pub fn works_of_graph(graph: &Graph) -> Vec<Work> {
    let computes = |n: &&Node| {
        !matches!(n.op, Op::Input { .. } | Op::Param { .. } | Op::Constant { .. } | Op::Result { .. })
    };
    let work = |node: &Node| Work {
        bytes: node.inputs.iter().map(|&i| size(graph.shape(i))).sum::<f64>()
            + node.results().iter().map(size).sum::<f64>(),
        held: node
            .inputs
            .iter()
            .filter(|&&i| is_held(&graph.node(i).op))
            .map(|&i| size(graph.shape(i)))
            .sum(),
        ..arithmetic(node, graph)
    };
    let mut works: Vec<Work> = graph.nodes().iter().filter(computes).map(work).collect();
    let resident = works.iter().map(|w| w.bytes).sum();
    works.iter_mut().for_each(|w| w.resident = resident);
    works
}

/// Bytes of a module's inputs and outputs.
pub fn border_bytes(lir: &LirModule) -> f64 {
    lir.inputs.iter().chain(&lir.outputs).map(|slot| size(&slot.shape)).sum()
}

fn is_held(op: &Op) -> bool {
    matches!(op, Op::Param { .. } | Op::Constant { .. })
}

fn size(shape: &Shape) -> f64 {
    shape.size_bytes().unwrap_or(0) as f64
}

fn work_of_step(step: &Step, lir: &LirModule) -> Work {
    let work = match &step.kind {
        StepKind::Copy => Work::of(WorkKind::Pass),
        StepKind::Op(_) => arithmetic(lir.graph.node(step.node), &lir.graph),
    };
    let written: f64 = step.outputs.iter().map(|o| operand_bytes(o, lir)).sum();
    let read = |(i, o): (usize, &Operand)| match &step.kind {
        // Of a table, what is looked up is read.
        StepKind::Op(Op::Gather { .. } | Op::GatherElements { .. } | Op::GatherNd { .. }) if i == 0 => {
            operand_bytes(o, lir).min(written)
        }
        _ => operand_bytes(o, lir),
    };
    let held = |(_, o): &(usize, &Operand)| !matches!(kind(lir, o), BufferKind::Input(_) | BufferKind::Arena);
    let inputs = || step.inputs.iter().enumerate();
    Work {
        bytes: inputs().map(read).sum::<f64>() + written,
        held: inputs().filter(held).map(read).sum(),
        ..work
    }
}

fn kind<'a>(lir: &'a LirModule, operand: &Operand) -> &'a BufferKind {
    &lir.buffers[operand.buffer.index()].kind
}

/// What an operand touches: never more than its buffer holds, however often a view shows it.
fn operand_bytes(operand: &Operand, lir: &LirModule) -> f64 {
    let shown = operand.view.elements().as_const().unwrap_or(0);
    let held = lir.buffers[operand.buffer.index()].elements.as_const().unwrap_or(shown);
    let elements = usize::try_from(shown.min(held)).unwrap_or(0);
    operand.dtype.storage_bytes(elements).unwrap_or(0) as f64
}

/// The arithmetic of a node; of a region, all that is in it, of the kind of its anchors.
fn arithmetic(node: &Node, graph: &Graph) -> Work {
    let Op::Region { body } = &node.op else { return of_op(node, graph) };
    let mut total = Work::of(WorkKind::Pass);
    // The anchor's own: what is computed in front of it counts, too, but does not say what kind of step it is.
    let mut anchor = 0.0;
    for inner in body.graph.nodes() {
        let work = of_op(inner, &body.graph);
        if let Some(both) = side_by_side(total.kind, work.kind) {
            total.kind = both;
        } else if work.kind != WorkKind::Pass && (total.kind == WorkKind::Pass || work.flops > anchor) {
            (total.kind, anchor) = (work.kind, work.flops);
        }
        total.flops += work.flops;
        total.cheap += work.cheap;
        total.costly += work.costly;
    }
    total
}

/// Two matmuls of rows of the same extents, as one of all their columns: a gate and what it multiplies.
fn side_by_side(a: WorkKind, b: WorkKind) -> Option<WorkKind> {
    let (WorkKind::MatMul { batch, m, n, k }, WorkKind::MatMul { batch: c, m: p, n: q, k: r }) = (a, b)
    else {
        return None;
    };
    ([batch, m, k] == [c, p, r]).then_some(WorkKind::MatMul { batch, m, n: n + q, k })
}

fn of_op(node: &Node, graph: &Graph) -> Work {
    if is_held(&node.op) || matches!(node.op, Op::Input { .. } | Op::Result { .. }) {
        return Work::of(WorkKind::Pass);
    }
    let shapes: Vec<&Shape> = node.inputs.iter().map(|&i| graph.shape(i)).collect();
    let elements = node.results().iter().filter_map(Shape::num_elements).sum::<usize>() as f64;
    if node.op.is_elementwise() {
        let work = Work::of(WorkKind::Pass);
        return match is_costly(&node.op) {
            true => Work { costly: elements, ..work },
            false => Work { cheap: elements, ..work },
        };
    }
    let flops = ops::def::cost(&node.op, &shapes, node.results()).flops;
    // Gates are functions of each element of the matmuls; rounding to integers and lookups are
    // done one by one.
    let costly = match &node.op {
        Op::Recurrent { .. } => shapes[0].num_elements().unwrap_or(0) as f64,
        Op::Quantize { .. } | Op::GatherElements { .. } | Op::GatherNd { .. } => elements,
        Op::Gather { .. } => shapes[1].num_elements().unwrap_or(0) as f64,
        _ => 0.0,
    };
    Work { flops, costly, ..Work::of(kind_of(&node.op, &shapes, node.results(), flops)) }
}

fn kind_of(op: &Op, shapes: &[&Shape], results: &[Shape], flops: f64) -> WorkKind {
    let dim = |s: &Shape, from_end: usize| {
        let d = s.rank().checked_sub(from_end).and_then(|i| s.dims()[i].as_static());
        d.unwrap_or(1).max(1) as f64
    };
    let elements = results.iter().filter_map(Shape::num_elements).sum::<usize>().max(1) as f64;
    match op {
        // Bytes multiply about as fast as floats do.
        Op::MatMul | Op::MatMulInteger => {
            let (k, n) = (dim(shapes[0], 1), if shapes[1].rank() > 1 { dim(shapes[1], 1) } else { 1.0 });
            // A right side without batch dimensions is one matmul with more rows.
            let m = if shapes[1].rank() > 2 { dim(shapes[0], 2) } else { elements / n };
            WorkKind::MatMul { batch: (elements / (m * n)).max(1.0), m, n, k }
        }
        Op::MatMulBlocks | Op::DynamicMatMulBlocks => {
            let n = dim(&results[0], 1);
            WorkKind::MatMul { batch: 1.0, m: elements / n, n, k: dim(shapes[0], 1) }
        }
        Op::DotGeneral { .. } => {
            let k = (flops / (2.0 * elements)).max(1.0);
            let n = dim(&results[0], 1);
            WorkKind::MatMul { batch: 1.0, m: elements / n, n, k }
        }
        Op::Conv { .. } | Op::ConvTranspose { .. } | Op::ConvInteger { .. } => {
            let w = shapes[1];
            let k = (flops / (2.0 * elements)).max(1.0);
            let n = w.dims().first().and_then(|d| d.as_static()).unwrap_or(1).max(1) as f64;
            let depthwise = matches!(op, Op::Conv { groups, .. } | Op::ConvInteger { groups, .. } if *groups > 1)
                && dim(w, w.rank() - 1) == 1.0;
            if depthwise { WorkKind::SlidingWindow } else { WorkKind::Window { m: elements / n, n, k } }
        }
        // A matmul of all rows at each step.
        Op::Recurrent { .. } => {
            let (steps, rows) = (dim(shapes[0], 3), dim(shapes[0], 2));
            WorkKind::MatMul { batch: steps, m: rows, n: dim(shapes[1], 1), k: dim(shapes[1], 2) }
        }
        Op::Pool { .. } => WorkKind::SlidingWindow,
        Op::Attention { .. } => {
            let keys = dim(shapes[1], 2);
            WorkKind::Attention { keys }
        }
        Op::Softmax { .. } | Op::LogSoftmax { .. } => WorkKind::Softmax,
        Op::LayerNorm { .. } | Op::RmsNorm { .. } | Op::GroupNorm { .. } | Op::BatchNorm { .. } => {
            WorkKind::Norm
        }
        _ => WorkKind::Pass,
    }
}

/// Whether an elementwise op is more than a few instructions.
fn is_costly(op: &Op) -> bool {
    use Activation as A;
    match op {
        Op::Activation(a) => !matches!(
            a,
            A::Relu
                | A::Neg
                | A::Abs
                | A::Sqrt
                | A::Rsqrt
                | A::Recip
                | A::Round
                | A::Floor
                | A::Ceil
                | A::Trunc
                | A::Sign
        ),
        Op::Binary(b) => matches!(b, rlx_ir::op::BinaryOp::Pow),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlx_ir::{DType, GraphExt};

    fn f32s(dims: &[usize]) -> Shape {
        Shape::new(dims, DType::F32)
    }

    #[test]
    fn a_product_is_described_by_its_dimensions() {
        let mut g = Graph::new("products");
        let x = g.input("x", f32s(&[2, 8, 16]));
        let w = g.param("w", f32s(&[16, 32]));
        let y = g.mm(x, w);
        let t = g.input("t", f32s(&[2, 32, 4]));
        let z = g.mm(y, t);
        g.set_outputs(vec![z]);
        let works = works_of_graph(&g);
        assert_eq!(works[0].kind, WorkKind::MatMul { batch: 1.0, m: 16.0, n: 32.0, k: 16.0 });
        assert_eq!(works[1].kind, WorkKind::MatMul { batch: 2.0, m: 8.0, n: 4.0, k: 32.0 });
        assert_eq!((works[0].flops, works[0].held), (16384.0, 2048.0));
        assert_eq!(works[1].held, 0.0);
    }

    #[test]
    fn bytes_and_recurrent_steps_are_products() {
        let mut g = Graph::new("products");
        let bytes = |dims: &[usize]| Shape::new(dims, DType::U8);
        let (a, b) = (g.input("a", bytes(&[8, 16])), g.input("b", bytes(&[16, 32])));
        let zeros = [g.input("a_zero", bytes(&[])), g.input("b_zero", bytes(&[]))];
        let y = g.try_add(Op::MatMulInteger, &[a, b, zeros[0], zeros[1]]).unwrap();
        g.set_outputs(vec![y]);
        assert_eq!(works_of_graph(&g)[0].kind, WorkKind::MatMul { batch: 1.0, m: 8.0, n: 32.0, k: 16.0 });
        let shapes = [f32s(&[5, 2, 12]), f32s(&[3, 12])];
        let lstm = Op::Recurrent {
            cell: rlx_ir::op::RecurrentCell::Lstm,
            functions: Vec::new(),
            clip: None,
            coupled: false,
            reverse: false,
            peepholes: false,
            lengths: false,
        };
        let kind = kind_of(&lstm, &[&shapes[0], &shapes[1]], &[f32s(&[5, 2, 3])], 0.0);
        assert_eq!(kind, WorkKind::MatMul { batch: 5.0, m: 2.0, n: 12.0, k: 3.0 });
    }

    #[test]
    fn a_region_has_the_arithmetic_of_all_that_is_in_it() {
        // A norm, two matmuls of its rows, and their product.
        let mut body = Graph::new("gated");
        let x = body.input("x", f32s(&[4, 16]));
        let scale = body.input("scale", f32s(&[16]));
        let (w, v) = (body.input("w", f32s(&[16, 32])), body.input("v", f32s(&[16, 32])));
        let normed = body.try_add(Op::RmsNorm { axis: -1, eps: 1e-5 }, &[x, scale]).unwrap();
        let (gate, up) = (body.mm(normed, w), body.mm(normed, v));
        let gate = body.silu(gate);
        let y = body.mul(gate, up);
        body.set_outputs(vec![y]);
        let norm = works_of_graph(&body)[0].flops;
        let mut g = Graph::new("step");
        let inputs = [("x", [4, 16].as_slice()), ("scale", &[16]), ("w", &[16, 32]), ("v", &[16, 32])];
        let inputs = inputs.map(|(name, dims)| g.input(name, f32s(dims)));
        let region =
            g.try_add(Op::Region { body: Arc::new(rlx_ir::op::Body { graph: body }) }, &inputs).unwrap();
        g.set_outputs(vec![region]);
        let work = works_of_graph(&g)[0];
        assert_eq!(work.kind, WorkKind::MatMul { batch: 1.0, m: 4.0, n: 64.0, k: 16.0 });
        assert_eq!((work.flops, work.cheap), (norm + 2.0 * 4.0 * 16.0 * 64.0, 128.0));
    }

    #[test]
    fn elementwise_work_is_counted_by_what_it_takes() {
        let mut g = Graph::new("maps");
        let x = g.input("x", f32s(&[10]));
        let y = g.relu(x);
        let z = g.gelu(y);
        let s = g.sm(z, -1);
        g.set_outputs(vec![s]);
        let works = works_of_graph(&g);
        assert_eq!((works[0].cheap, works[0].costly), (10.0, 0.0));
        assert_eq!((works[1].cheap, works[1].costly), (0.0, 10.0));
        assert_eq!((works[2].kind, works[2].flops), (WorkKind::Softmax, 50.0));
        assert!(works.iter().all(|w| w.bytes == 80.0 && w.resident == 240.0));
    }
}
