//! Schedules: how a step of LIR becomes kernels.
//!
//! One module for each family, each a function from a [`StepDesc`] to [`Launch`]es or the reason why it has
//! none. What a device claims is what [`schedule`] does not reject.
//!
//! | family | what runs | index space |
//! |---|---|---|
//! | [`map`] | elementwise ops, casts, movement by index maps | one invocation for each result element, or for some neighbours |
//! | [`reduce`] | reductions over rows or everything, also to a place (`arg_reduce`) | one workgroup (or, short rows, invocation) for each row, or for some columns |
//! | [`scan`] | running reductions | one workgroup (or, short rows, invocation) for each row |
//! | [`rows`] | softmax, norms of rows | one workgroup for each row |
//! | `attention` | attention of many queries | one workgroup for some queries of a head |
//! | [`matmul`] | matmuls | a [`gemm`]: tiles, in one of several variants |
//! | [`matmul_blocks`] | matmuls by weights of 4 and 8 bits in blocks | a [`gemm`] that dequantises what it loads |
//! | [`conv_pool`] | convolution, pooling | an index map into a [`gemm`]; pooling one invocation per element |
//! | [`index`] | gather | one invocation for each result element, or for some neighbours |
//! | `top_k` | the first elements of rows | one workgroup (or, short rows, invocation) for each row, or for some ranks of it |
//! | [`scatter`] | scatter, updated slices: a copy, then the updates | one invocation for each row that updates may share |
//!
//! What is before the op in a region (its *prologue*) is computed where its operands are loaded, what
//! stands after it (its *epilogue*) where the result is stored.
//!
//! Where a step can be done by several variants that give the same bits ([`mod@variant`]), [`schedule`] is told which. Matmuls of few rows have kernels of
//! other bits besides ([`few_rows`](fn@few_rows)).

mod arg_reduce;
mod attention;
mod body;
mod collapsed;
mod conv_parts;
pub mod conv_pool;
pub(crate) mod cx;
pub mod elementwise;
mod equal;
mod few_rows;
mod gathered;
pub mod gemm;
pub mod index;
mod joined;
mod long_rows;
pub mod map;
pub mod matmul;
pub mod matmul_blocks;
mod matmul_operand;
mod matmul_parts;
mod neighbours;
mod order;
pub(crate) mod packed;
mod pool;
pub mod reduce;
mod row_slices;
pub mod rows;
mod run;
pub mod scan;
pub mod scatter;
mod scatter_many;
mod small_floats;
mod sorting;
mod top_k;
pub mod variant;

use std::sync::Arc;

use rlx_ir::lir::{LirModule, Operand, Step, StepKind};
use rlx_ir::{DType, Dim, Extent, Graph, Node, NodeId, Op, Shape};

pub(crate) use body::may_be_written_over;
pub use conv_parts::{ConvAxis, ConvParts, convolution, stride_of_rows};
pub use cx::Arg;
pub use equal::EqualSteps;
pub use few_rows::{FewRows, divides_sums_of, few_rows};
pub use gathered::{Gathered, LIST_WORKGROUP, list_check};
pub use joined::Joined;
pub use long_rows::too_long;
pub use matmul_operand::{MatMulOperand, MatMulRead};
pub use matmul_parts::{Epilogue, MatMulParts};
pub use variant::{Variant, variants};

use self::collapsed::Collapsed;
use crate::ir::Kernel;

/// Why there is no kernel for a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unscheduled(pub String);

impl std::fmt::Display for Unscheduled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What schedules give.
pub type Scheduled<T> = Result<T, Unscheduled>;

/// Rejects.
pub fn reject<T>(why: impl Into<String>) -> Scheduled<T> {
    Err(Unscheduled(why.into()))
}

/// A step as schedules see it: a body graph whose inputs are the operands in order. Buffers are numbered in the order of operands, whatever numbers a module has.
#[derive(Debug, Clone, PartialEq)]
pub struct StepDesc {
    /// A name for people.
    pub name: String,
    /// What is computed.
    pub graph: Graph,
    /// Where the body's inputs are.
    pub inputs: Vec<Operand>,
    /// Where the body's outputs go.
    pub outputs: Vec<Operand>,
    /// Whether elements only move, so that they are loaded and stored as raw bits.
    pub raw: bool,
}

impl StepDesc {
    /// A step of a module.
    pub fn of(step: &Step, module: &LirModule) -> Scheduled<StepDesc> {
        let node = module.graph.node(step.node);
        let seen = |o: &Operand| packed::seen(o, module.buffers[o.buffer.index()].format);
        let mut inputs = step.inputs.iter().map(seen).collect::<Scheduled<Vec<Operand>>>()?;
        let mut outputs = step.outputs.iter().map(seen).collect::<Scheduled<Vec<Operand>>>()?;
        equal::number_buffers(inputs.iter_mut().chain(&mut outputs));
        match &step.kind {
            StepKind::Copy => Self::copy(inputs, outputs),
            StepKind::Op(Op::Region { body }) => {
                let name = body.graph.name.clone();
                Ok(StepDesc { name, graph: body.graph.clone(), inputs, outputs, raw: false })
            }
            StepKind::Op(op) => Self::single(op, node.results(), inputs, outputs),
        }
    }

    /// A node of a graph with dense operands: what a claim asks about.
    pub fn of_node(node: &Node, graph: &Graph) -> Scheduled<StepDesc> {
        let mut buffers = 0;
        let mut dense = |shape: &Shape| {
            buffers += 1;
            let view = rlx_ir::lir::View::dense(shape.dims());
            Operand { buffer: rlx_ir::lir::BufferId(buffers), view: view.into(), dtype: shape.dtype() }
        };
        let inputs = node.inputs.iter().map(|&id| dense(graph.shape(id))).collect();
        let outputs = node.results().iter().map(&mut dense).collect();
        match &node.op {
            Op::Region { body } => {
                let name = body.graph.name.clone();
                Ok(StepDesc { name, graph: body.graph.clone(), inputs, outputs, raw: false })
            }
            op => Self::single(op, node.results(), inputs, outputs),
        }
    }

    fn copy(inputs: Vec<Operand>, outputs: Vec<Operand>) -> Scheduled<StepDesc> {
        let mut graph = Graph::new("copy");
        let Some(input) = inputs.first() else { return reject("a copy of nothing") };
        let x = graph.input("x0", shape_of(input));
        graph.set_outputs(vec![x]);
        Ok(StepDesc { name: "copy".into(), graph, inputs, outputs, raw: true })
    }

    fn single(
        op: &Op,
        results: &[Shape],
        inputs: Vec<Operand>,
        outputs: Vec<Operand>,
    ) -> Scheduled<StepDesc> {
        if let Op::Pack { format } = op {
            return match (inputs.first(), *format == packed::CHANNELS_LAST) {
                (Some(input), true) if input.view.dims.len() >= 3 => Self::copy(inputs, outputs),
                _ => reject(format!("packing as {format}")),
            };
        }
        let mut graph = Graph::new(op.kind().name());
        let ids: Vec<NodeId> =
            inputs.iter().enumerate().map(|(i, x)| graph.input(format!("x{i}"), shape_of(x))).collect();
        let node = graph.push_node(Node::new(op.clone(), ids, results.to_vec()));
        let all: Result<Vec<NodeId>, _> = (0..results.len()).map(|i| graph.result(node, i)).collect();
        graph.set_outputs(all.map_err(|e| Unscheduled(e.to_string()))?);
        let name = op.kind().name().to_lowercase();
        let raw = matches!(op, Op::Pad { .. } | Op::Tile { .. }) && inputs.len() == 1;
        Ok(StepDesc { name, graph, inputs, outputs, raw })
    }

    /// Whether its result is written over an operand that is `multiplied`, or one that is not read at the same places and in the same type.
    pub(crate) fn is_written_over_others(&self, multiplied: &[Arg]) -> bool {
        let over = |(i, input): (usize, &Operand)| {
            self.outputs.iter().any(|output| {
                input.buffer == output.buffer
                    && (multiplied.contains(&Arg::Input(i))
                        || !input.is_same_as(output)
                        || input.dtype != output.dtype)
            })
        };
        self.inputs.iter().enumerate().any(over)
    }

    /// An operand of the step.
    pub(crate) fn operand(&self, arg: Arg) -> &Operand {
        match arg {
            Arg::Input(i) => &self.inputs[i],
            Arg::Output(i) => &self.outputs[i],
        }
    }

    /// The type elements of `dtype` are loaded and stored as.
    pub(crate) fn stored(&self, dtype: DType) -> DType {
        if !self.raw {
            return dtype;
        }
        match dtype.bits() {
            2 => DType::U2,
            4 => DType::U4,
            8 => DType::U8,
            16 => DType::U16,
            32 => DType::U32,
            _ => DType::U64,
        }
    }
}

fn shape_of(operand: &Operand) -> Shape {
    let dims: Vec<Dim> = operand.view.dims.iter().map(|&e| Dim::from(e)).collect();
    Shape::from_dims(&dims, operand.dtype)
}

/// The value of a uniform, as an expression over the run's dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UniformArg {
    /// A number.
    Extent(Extent),
    /// Where the operand's element 0 is in its binding, counted in elements of its type: `offset` (from
    /// the start of its buffer) plus where the buffer starts within the range that is bound.
    Base {
        /// Which operand.
        operand: Arg,
        /// The view's offset.
        offset: Extent,
    },
}

/// One dispatch: a kernel, what it is bound to, its uniforms, and how many workgroups it takes.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The kernel.
    pub kernel: Arc<Kernel>,
    /// The operand of each of the kernel's buffers.
    pub bindings: Vec<Arg>,
    /// The value of each of the kernel's uniforms.
    pub uniforms: Vec<UniformArg>,
    /// How many workgroups. See [`crate::grid`] for devices that limit each dimension.
    pub groups: Extent,
}

/// The op of a step that decides its schedule; none where every op is computed element by element.
fn anchor_of(step: &StepDesc) -> Scheduled<Option<&Node>> {
    // An input asked about by itself is no computation: its body would have one operand too many.
    if step.graph.inputs().count() != step.inputs.len() || step.graph.outputs.len() != step.outputs.len() {
        return reject("its operands are not those of its body");
    }
    let mut anchors = step.graph.nodes().iter().filter(|n| is_anchor(&n.op));
    let anchor = anchors.next();
    match anchors.next() {
        Some(second) => reject(format!("a region with two anchors, one of them {}", second.op.kind())),
        None => Ok(anchor),
    }
}

/// Makes the kernels of a step by one of its [`variants`], in order, for a device whose subgroups are of that size, if all are of one.
///
/// # Errors
/// Why no schedule takes it.
pub fn schedule(step: &StepDesc, variant: Variant, subgroup: Option<u32>) -> Scheduled<Vec<Launch>> {
    let Some(anchor) = anchor_of(step)? else {
        let Variant::Map(spread) = variant else {
            return reject(format!("{variant} is no variant to go by elements"));
        };
        return map::schedule(step, spread);
    };
    match (&anchor.op, variant) {
        (Op::MatMul, Variant::Gemm(gemm, _)) => matmul::schedule(step, anchor, gemm),
        (Op::MatMulBlocks, Variant::Gemm(gemm, _)) => matmul_blocks::schedule(step, anchor, gemm),
        (Op::Conv { .. }, Variant::Gemm(gemm, _)) => conv_pool::conv(step, anchor, gemm),
        (Op::ConvTranspose { .. }, Variant::Gemm(gemm, _)) => conv_pool::conv_transpose(step, anchor, gemm),
        (Op::Pool { .. }, Variant::Map(spread)) => pool::schedule(step, anchor, spread),
        (Op::Reduce { .. }, _) => reduce::schedule(step, anchor, subgroup),
        (Op::Softmax { .. } | Op::LogSoftmax { .. } | Op::LayerNorm { .. } | Op::RmsNorm { .. }, _) => {
            let lanes = if let Variant::Rows(lanes) = variant { lanes } else { rows::FEW };
            rows::schedule(step, anchor, lanes, subgroup)
        }
        (Op::Attention { .. }, Variant::Attention(tile)) => attention::schedule(step, anchor, tile),
        (Op::Cumulative { .. }, _) => scan::schedule(step, anchor),
        (Op::ArgReduce { .. }, _) => arg_reduce::schedule(step, anchor, subgroup),
        (Op::TopK { .. }, _) => top_k::schedule(step, anchor),
        (Op::ScatterElements { .. } | Op::ScatterNd { .. } | Op::UpdateSlice { .. }, _) => {
            scatter::schedule(step, anchor)
        }
        (op, _) => reject(format!("there is no schedule for {}", op.kind())),
    }
}

/// Whether all sizes of a step are numbers, and constants in place of uniforms may make its kernels faster: where they go through elements in memory's own
/// order, nothing is divided and nothing repeated.
pub(crate) fn may_have_constant_sizes(step: &StepDesc) -> bool {
    let operands = || step.inputs.iter().chain(&step.outputs);
    operands().all(|o| !o.view.is_symbolic()) && Collapsed::of(step).is_none_or(|space| space.dims.len() > 1)
}

/// Whether an op needs a schedule of its own, instead of being computed element by element.
fn is_anchor(op: &Op) -> bool {
    !op.is_elementwise() && !body::is_index_map(op) && !matches!(op, Op::Input { .. } | Op::Result { .. })
}

/// Whether elementwise ops may be computed on each element of what `op` gives, before it is stored.
pub fn takes_epilogue(op: &Op) -> bool {
    let anchors = matches!(
        op,
        Op::MatMul
            | Op::MatMulBlocks
            | Op::Conv { .. }
            | Op::ConvTranspose { .. }
            | Op::Pool { .. }
            | Op::Reduce { .. }
            | Op::ArgReduce { .. }
            | Op::Softmax { .. }
            | Op::LogSoftmax { .. }
            | Op::LayerNorm { .. }
            | Op::RmsNorm { .. }
            | Op::Cumulative { .. }
    );
    anchors || !is_anchor(op)
}

/// How a kernel reads the operands of an op that has a schedule of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// The first operand once, all invocations together; others again for each row.
    Rows,
    /// Both operands again for each tile of the results.
    Tiles,
    /// In ways that a value has to be in memory for.
    Memory,
}

/// How the kernel of `op` reads its operands.
pub fn reads(op: &Op) -> Reads {
    match op {
        Op::Reduce { .. } | Op::ArgReduce { .. } => Reads::Rows,
        Op::Softmax { .. } | Op::LogSoftmax { .. } => Reads::Rows,
        Op::LayerNorm { .. } | Op::RmsNorm { .. } => Reads::Rows,
        Op::MatMul | Op::MatMulBlocks | Op::Conv { .. } | Op::ConvTranspose { .. } => Reads::Tiles,
        _ => Reads::Memory,
    }
}
