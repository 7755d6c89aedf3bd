//! The CPU as the compiler sees it.

use rlx_ir::lir::View;
use rlx_ir::op::{DataFormat, PackFormat};
use rlx_ir::{DType, Extent, Graph, Node, Op, SymRange};
use rlx_opt::facts::{self, Users};
use rlx_opt::{Claim, Gain, Target};

use crate::formats;
use crate::isa::Isa;
use crate::kernels::{
    self, attention, conv, extremes, gather_pair, integer, matmul, matmul_blocks, matmul_pair, producer,
    quant, recurrent, region, squares,
};
use crate::layout::MAX_RANK;
use crate::window::groups::FEW;

/// Answers the compiler's questions about CPU kernels; see [`Target`].
#[derive(Debug, Clone, Copy)]
pub struct CpuTarget {
    isa: Isa,
}

impl CpuTarget {
    /// The CPU with this instruction set.
    pub fn new(isa: Isa) -> CpuTarget {
        CpuTarget { isa }
    }
}

/// Whether neighbours along the last dimension are neighbours in memory.
fn last_is_contiguous(view: &View) -> bool {
    let one = Extent::Const(1);
    match (view.dims.last(), view.strides.last()) {
        (Some(&dim), Some(&stride)) => stride == one || dim == one,
        _ => true,
    }
}

/// Whether one stride steps through all dimensions but the last.
fn rows_are_flat(view: &View) -> bool {
    let rank = view.dims.len();
    (1..rank.saturating_sub(1)).all(|i| view.strides[i - 1] == view.strides[i] * view.dims[i])
}

/// Whether the pixels of a channel of `[n, …, channels]` follow each other, as in NCHW.
fn channels_are_planes(view: &View) -> bool {
    let rank = view.dims.len();
    let (one, forwards) = (Extent::Const(1), |&s: &Extent| s.range(&|_| SymRange::DIM).min >= 0);
    rank >= 3
        && view.strides[rank - 2] == one
        && (2..rank - 1).all(|i| view.strides[i - 1] == view.strides[i] * view.dims[i])
        && forwards(&view.strides[0])
        && forwards(&view.strides[rank - 1])
}

/// Whether the rows of each step of `[steps, rows, …]` are in their order (or are one row).
fn rows_run_forwards(view: &View) -> bool {
    let row = view.strides.get(1).copied().unwrap_or(Extent::Const(0));
    row.range(&|_| SymRange::DIM).min >= 0
}

/// Whether an image may have so few channels that its convolution does not run as a matmul.
fn has_few_channels(view: &View) -> bool {
    matches!(view.dims.last(), Some(&Extent::Const(channels)) if channels <= FEW as i64)
}

fn reads(op: &Op, input: usize, view: &View) -> bool {
    match op {
        Op::MatMul | Op::MatMulInteger if input == 0 => last_is_contiguous(view),
        Op::MatMulInteger => input == 1,
        Op::Conv { format: DataFormat::ChannelsLast, .. } if input == 0 && channels_are_planes(view) => true,
        Op::Pool { format: DataFormat::ChannelsLast, .. } => channels_are_planes(view),
        Op::Conv { format: DataFormat::ChannelsLast, groups, .. }
        | Op::ConvInteger { format: DataFormat::ChannelsLast, groups, .. } => match input {
            // Kernels for few channels, of a group or of all, read dense images (or planes).
            0 if *groups > 1 || has_few_channels(view) => false,
            0 => last_is_contiguous(view) && view.strides.iter().all(|&s| !matches!(s, Extent::Const(..0))),
            1 => true,
            _ => false,
        },
        Op::Pack { format } if formats::is_blocks(*format) => false,
        Op::MatMul | Op::Pack { .. } | Op::Reduce { .. } => true,
        Op::GroupedMatMul => input == 1,
        Op::Recurrent { .. } if input == 0 => last_is_contiguous(view) && rows_run_forwards(view),
        // Weights are packed and states copied, however they are; vectors are read in place.
        Op::Recurrent { .. } => view.dims.len() == 2,
        Op::Attention { .. } => input != 0 || last_is_contiguous(view),
        Op::Rope { .. } if input == 0 => last_is_contiguous(view),
        Op::GatherElements { .. } => input == 0,
        Op::ArgReduce { .. } | Op::TopK { .. } | Op::Cumulative { .. } | Op::ConvTranspose { .. } => true,
        _ => op.is_elementwise(),
    }
}

impl Target for CpuTarget {
    fn name(&self) -> &str {
        "cpu"
    }

    fn claim(&self, node: &Node, graph: &Graph) -> Claim {
        kernels::claim(node, graph)
    }

    fn max_rank(&self) -> usize {
        MAX_RANK
    }

    fn moves(&self, dtype: DType) -> bool {
        !dtype.is_packed()
    }

    fn fuses(&self, anchor: Option<&Node>, op: &Node, graph: &Graph) -> bool {
        let fits = match anchor {
            None => true,
            Some(a) => {
                region::can_anchor(a.op.kind())
                    && !matmul::by_blas(a)
                    && (!matches!(a.op, Op::Conv { .. }) || conv::anchors(a, graph))
                    && a.shape.dims() == op.shape.dims()
                    && kernels::claim(a, graph).is_native()
                    // Sums of bytes are written as soon as they are bytes again.
                    && !(a.shape.dtype() == DType::I32 && matches!(op.op, Op::Dequantize { .. }))
            }
        };
        // Regions compute in whole bytes.
        let packed = |id: &rlx_ir::NodeId| graph.shape(*id).dtype().is_packed();
        let known = if op.op.is_elementwise() {
            let whole = !op.shape.dtype().is_packed() && !op.inputs.iter().any(packed);
            whole && kernels::claim(op, graph).is_native()
        } else {
            quant::fuses(op, graph)
        };
        fits && known
    }

    /// An only channel, where pairs of channels are multiplied, half of which would be zeros; and what becomes of it.
    fn multiplies_windows(&self, conv: &Node, graph: &Graph) -> bool {
        let Op::Conv { strides, groups: 1, format: DataFormat::ChannelsLast, .. } = &conv.op else {
            return false;
        };
        let image = graph.shape(conv.inputs[0]);
        let pairs = image.dtype() == DType::BF16 && self.isa.multiplies_bf16();
        let channels = image.dims().last().and_then(|d| d.as_static());
        pairs
            && match (channels, strides.last()) {
                (Some(1), Some(&stride)) => stride > 1,
                (Some(channels), Some(1)) => channels.is_multiple_of(2),
                _ => false,
            }
    }

    fn fuses_producer(&self, producer: &Node, anchor: &Node, graph: &Graph) -> bool {
        producer::fuses(producer, anchor, graph)
            || attention::fuses(producer, anchor)
            || gather_pair::fuses(producer, anchor, graph)
            || squares::fuses(producer, anchor)
    }

    fn fuses_residual(&self, anchor: &Node, graph: &Graph) -> bool {
        match anchor.op {
            Op::MatMulInteger => kernels::claim(anchor, graph).is_native(),
            Op::ConvInteger { .. } => conv::integer::is_product(anchor, graph),
            _ => false,
        }
    }

    fn interpolates(&self, sum: &Node) -> bool {
        sum.shape.dtype() == DType::F32
    }

    fn reduces_together(&self, a: &Node, b: &Node) -> bool {
        extremes::fuses(a, b)
    }

    fn fuses_pair(&self, anchor: &Node, other: &Node, graph: &Graph) -> bool {
        matmul_pair::fuses(anchor, graph) && matmul_pair::fuses(other, graph)
    }

    fn reads_view(&self, op: &Op, input: usize, view: &View) -> bool {
        let Op::Region { body } = op else { return reads(op, input, view) };
        // Elementwise ops read any view; anchors and producers as they do alone; a pair's epilogues vectors.
        let vectors = matmul_pair::is_pair(&body.graph);
        region::readers(&body.graph, input).all(|(reader, own)| reads(&reader.op, own, view))
            && (!vectors || last_is_contiguous(view))
    }

    fn writes_view(&self, op: &Op, view: &View) -> bool {
        match op {
            Op::MatMul | Op::MatMulInteger | Op::Attention { .. } | Op::Rope { .. } => {
                last_is_contiguous(view)
            }
            Op::ConvInteger { groups: 2.., .. } => false,
            Op::Conv { groups: 2.., format: DataFormat::ChannelsLast, .. }
            | Op::Pool { format: DataFormat::ChannelsLast, .. } => channels_are_planes(view),
            Op::Conv { format: DataFormat::ChannelsLast, .. } => {
                last_is_contiguous(view) && rows_are_flat(view) || channels_are_planes(view)
            }
            Op::ConvInteger { format: DataFormat::ChannelsLast, .. } => {
                last_is_contiguous(view) && rows_are_flat(view)
            }
            Op::Reduce { .. } => true,
            Op::Region { body } => match region::anchor_of(&body.graph) {
                Some(anchor) => self.writes_view(&anchor.op, view),
                None => true,
            },
            Op::TopK { .. } | Op::Cumulative { .. } | Op::ConvTranspose { .. } => true,
            _ => op.is_elementwise(),
        }
    }

    fn transposes(&self, op: &Op, view: &View) -> bool {
        match op {
            Op::Conv { format: DataFormat::ChannelsLast, .. }
            | Op::Pool { format: DataFormat::ChannelsLast, .. } => channels_are_planes(view),
            Op::Region { body } => {
                region::anchor_of(&body.graph).is_some_and(|anchor| self.transposes(&anchor.op, view))
            }
            _ => false,
        }
    }

    fn writes_in_place(&self, node: &Node, input: usize, graph: &Graph) -> bool {
        match &node.op {
            Op::Region { body } => region::writes_in_place(&body.graph, input),
            Op::Softmax { .. }
            | Op::LogSoftmax { .. }
            | Op::LayerNorm { .. }
            | Op::RmsNorm { .. }
            | Op::GroupNorm { .. }
            | Op::Trilu { .. } => input == 0,
            op if op.def().updates().is_some() => op.def().updates() == Some(input),
            op => op.is_elementwise() && kernels::claim(node, graph).is_native(),
        }
    }

    fn columns_are_independent(&self, matmul: &Node) -> bool {
        !matmul::by_blas(matmul)
    }

    fn pack_format(&self, node: &Node, input: usize, graph: &Graph) -> Option<PackFormat> {
        match &node.op {
            Op::MatMul => matmul::pack_format(node, input, graph),
            Op::MatMulInteger => integer::pack_format(node, input, graph),
            Op::MatMulBlocks | Op::DynamicMatMulBlocks => matmul_blocks::pack_format(node, input, graph),
            Op::Conv { .. } => conv::pack_format(node, input, graph),
            Op::Recurrent { .. } => recurrent::pack_format(node, input, graph),
            Op::ConvInteger { .. } => conv::integer::pack_format(node, input, graph),
            Op::Region { body } => {
                let (reader, own) = region::readers(&body.graph, input).next()?;
                self.pack_format(reader, own, &body.graph)
            }
            _ => None,
        }
    }

    fn fast_pack_format(
        &self,
        node: &Node,
        input: usize,
        graph: &Graph,
        users: &Users,
    ) -> Option<PackFormat> {
        match &node.op {
            Op::Conv { .. } => conv::winograd::pack_format(self.isa, (node, input), graph, users)
                .or_else(|| self.pack_format(node, input, graph)),
            Op::MatMulBlocks => matmul_blocks::fast_pack_format(self.isa, node, input, graph),
            Op::Region { body } => {
                let (reader, own) = region::readers(&body.graph, input).next()?;
                self.fast_pack_format(reader, own, &body.graph, &facts::users(&body.graph))
            }
            _ => self.pack_format(node, input, graph),
        }
    }

    fn matmul_instructions(&self, dtype: DType) -> Option<String> {
        Some(self.isa.matmul_instructions(dtype).to_owned())
    }

    fn gain(&self, node: &Node, graph: &Graph, short: DType) -> Gain {
        crate::gain::gain(self.isa, node, graph, short)
    }

    fn prefers_channels_last(&self, _: DType) -> bool {
        true
    }
}
