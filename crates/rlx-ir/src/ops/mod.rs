//! The op table: every op of the language is one line here and one definition in its family's file.
//!
//! From a line `Softmax { axis: i32 } => nn::SoftmaxDef` the `ops!` macro (`derive.rs`) derives the [`Op`] variant, its
//! [`OpKind`], its printing and parsing, hashing, binding of symbolic attributes, and its place in
//! [`OPS`]; everything else about the op comes from the [`OpDef`] that is behind the arrow. To add an
//! op: write its `OpDef` in the family's file (see [`def`]) and add its line.

pub mod attr;
pub mod bit_cast;
pub mod control;
pub mod data;
pub mod def;
mod derive;
pub mod det;
pub mod distances;
pub mod elementwise;
pub mod grouped;
pub mod index;
pub mod linalg;
pub mod movement;
pub mod nn;
mod pack_format;
pub mod parts;
pub mod reduce;
pub mod structural;
pub mod top_k;
pub mod trees;
pub mod types;
pub mod unique;

use std::sync::Arc;

pub use attr::{Attr, AttrInfo};
pub use def::{Arity, Cost, OpDef};
pub(crate) use derive::attrs;
use derive::{field_pattern, ops};
pub use elementwise::functions::Activation;
pub use pack_format::PackFormat;
pub use types::*;

use crate::dim::{Dim, DimBinding, Extent};
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::ConstData;
use crate::text::{Lexer, TextWriter};

ops! {
    /// A tensor the caller gives at every run.
    Input {
        /// The name the caller uses.
        name: String,
    } => structural::InputDef;
    /// A tensor the caller sets once: a weight. It may change between runs.
    Param {
        /// The name the caller uses.
        name: String,
    } => structural::ParamDef;
    /// A tensor fixed in the graph.
    Constant {
        /// The tensor.
        data: Arc<ConstData>,
    } => structural::ConstantDef;
    /// Result `index` of a node with several results (result 0 is the node itself).
    Result {
        /// Which result.
        index: usize,
    } => structural::ResultDef;
    /// An op from outside, known by name; its shape is the declared one.
    Custom {
        /// The registered name.
        name: String,
        /// How many inputs it takes.
        num_inputs: usize,
        /// Its attributes.
        attrs: CustomAttrs,
    } => structural::CustomDef;
    /// Nodes fused into one step: the inputs become the body's inputs in order, the results are the
    /// body's outputs.
    Region {
        /// What the region computes; isolated from the graph around it.
        body: Arc<Body>,
    } => structural::RegionDef;
    /// The same tensor in the memory format a device wants; numerically the identity.
    Pack {
        /// The memory format.
        format: PackFormat,
    } => structural::PackDef;

    /// One of two graphs, chosen by a bool: what the chosen one gives. The inputs are the condition, what `then` takes,
    /// and what `otherwise` takes; both give tensors of the same types and ranks, and of the same shapes unless there is a
    /// symbol for what differs.
    If {
        /// What is computed where the condition holds; isolated from the graph around it.
        then: Arc<Body>,
        /// What is computed where it does not.
        otherwise: Arc<Body>,
        /// The symbol for what differs in shape, which the op binds.
        count: Option<Dim>,
        /// Whether that symbol is 1 where the condition holds and else 0, so that any number of known dimensions may differ, by
        /// expressions over it. Otherwise it is the only dimension that differs, and may be one that a branch finds out.
        chosen: bool,
    } => control::IfDef;
    /// A graph that runs as long as its condition holds, at most `limit` times. Inputs: limit (i64), condition (bool),
    /// carried values, scanned tensors, captured ones. The body takes the number of the iteration, the condition, the
    /// carried values, the next slice of each scanned tensor along its first dimension, and the captured tensors; it gives
    /// the next condition, the carried values, and values that are stacked. Results: the carried values as they are in the
    /// end, then the stacks.
    Loop {
        /// What runs; isolated from the graph around it.
        body: Arc<Body>,
        /// How often it runs at most, as far as that bounds the stacks.
        trips: Dim,
        /// The symbol that stands for how often it ran, which the op binds; without it that is `trips` if anything is
        /// stacked.
        count: Option<Dim>,
        /// How many values are carried from one time to the next.
        carried: usize,
        /// How many tensors are scanned.
        scanned: usize,
    } => control::LoopDef;

    /// A function of each element; the element type stays.
    Activation(Activation) => elementwise::ActivationDef;
    /// A function of two elements, broadcast as NumPy does; both of one element type, which stays.
    Binary(BinaryOp) => elementwise::BinaryDef;
    /// A comparison of two elements, broadcast as NumPy does; gives bool.
    Compare(CmpOp) => elementwise::CompareDef;
    /// `condition ? a : b` for each element, all three broadcast.
    Where => elementwise::WhereDef;
    /// A question about each float; gives bool.
    Predicate(Predicate) => elementwise::PredicateDef;
    /// Conversion to another element type: floats round to nearest even, float to integer truncates
    /// (saturating), integers wrap, anything to bool is `≠ 0`.
    Cast {
        /// The new element type.
        to: DType,
    } => elementwise::CastDef;

    /// The same bits as another element type of the same width.
    BitCast {
        /// The new element type.
        to: DType,
    } => bit_cast::BitCastDef;

    /// Matrix multiplication with NumPy's rules: 1-D operands are vectors, leading dimensions broadcast.
    MatMul => linalg::MatMulDef;
    /// The general product of two tensors: sums over paired dimensions, runs along paired batch
    /// dimensions. The result has the batch dimensions, then the left's others, then the right's.
    DotGeneral {
        /// The left's dimensions to sum over.
        lhs_contract: Vec<usize>,
        /// The right's dimensions to sum over, paired with the left's.
        rhs_contract: Vec<usize>,
        /// The left's batch dimensions.
        lhs_batch: Vec<usize>,
        /// The right's batch dimensions, paired with the left's.
        rhs_batch: Vec<usize>,
    } => linalg::DotGeneralDef;
    /// The determinants of the square matrices in the last two dimensions.
    Det => det::DetDef;
    /// Rows `[…, k]`, each times the one of the matrices `[experts, k, n]` that its index `[…]` (i32 or i64,
    /// as for `Gather`) chooses: the experts of a mixture. Rows broadcast to the indices.
    GroupedMatMul => grouped::GroupedMatMulDef;
    /// The squared Euclidean distances `[n, m]` between rows `[n, k]` and columns `[k, m]`: a matmul with `(a − b)²` for `a · b`.
    SquaredDistances => distances::SquaredDistancesDef;
    /// The weights of the leaves `[rows, results]` that decision trees lead to: rows `x` `[rows, features]`, thresholds `[nodes]`, links
    /// `[nodes, 3]` of i32 (the feature that a node compares, and the next node for yes and for no; a leaf is linked to itself), roots
    /// `[trees]`, weights `[nodes, results]`. Features, thresholds and weights are floats of one type; negative indices count from the end.
    TreeEnsemble {
        /// Levels of the deepest tree: how many links are followed.
        depth: usize,
        /// Which outcomes of the comparison of feature and threshold are a yes: the sum of 1 for less, 2 for equal, 4 for greater, 8 for
        /// NaN. Where none are given, `links` have a fourth column with those of each node.
        outcomes: Option<u32>,
        /// How the trees' weights combine: any but `Prod`.
        reduce: ReduceOp,
    } => trees::TreeEnsembleDef;

    /// The same elements in the same order with other dimensions.
    Reshape {
        /// The new dimensions.
        to: Vec<Dim>,
    } => movement::ReshapeDef;
    /// Dimensions reordered: result dimension `i` is input dimension `perm[i]`.
    Transpose {
        /// The permutation.
        perm: Vec<usize>,
    } => movement::TransposeDef;
    /// Broadcast to larger dimensions by NumPy's rule.
    Expand {
        /// The result's dimensions.
        to: Vec<Dim>,
    } => movement::ExpandDef;
    /// Every `step`-th element along each dimension: element `i` of the result is element
    /// `start + i·step` of the input. All dimensions are given and nothing counts from the end;
    /// [`movement::resolve_slice`] makes such a slice from Python's.
    Slice {
        /// Where each dimension starts.
        starts: Vec<Extent>,
        /// The distance between neighbours in each dimension; negative runs backwards, never 0.
        steps: Vec<i64>,
        /// The result's dimensions.
        to: Vec<Dim>,
    } => movement::SliceDef;
    /// The tensor with a border. The second input, if any, is the scalar that a constant border holds.
    Pad {
        /// How many elements come before each dimension; not negative.
        before: Vec<Extent>,
        /// How many elements come after each dimension; not negative.
        after: Vec<Extent>,
        /// What the border holds.
        mode: PadMode,
    } => movement::PadDef;
    /// The inputs one behind another along `axis`; their other dimensions are equal.
    Concat {
        /// The dimension that grows.
        axis: usize,
    } => movement::ConcatDef;
    /// The tensor repeated as a whole along each dimension.
    Tile {
        /// How often, for each dimension.
        repeats: Vec<Dim>,
    } => movement::TileDef;

    /// Whole slices of a table: the slice at `index` of `axis` for each index. Indices are i32 or i64;
    /// a negative one counts from the end, and one out of range is an error.
    Gather {
        /// The table's dimension that the indices take the place of.
        axis: usize,
    } => index::GatherDef;
    /// One element for each index: the element of `x` at the index's own position, with the index in the
    /// place of `axis`. Indices as for `Gather`.
    GatherElements {
        /// The dimension the indices mean.
        axis: usize,
    } => index::GatherElementsDef;
    /// A slice for each row of indices: the last dimension of the indices addresses the dimensions of `x`
    /// behind the batch dimensions. Indices as for `Gather`.
    GatherNd {
        /// How many leading dimensions `x` and the indices share.
        batch_dims: usize,
    } => index::GatherNdDef;
    /// `x` with updates put in: each update goes to its own position with its index in the place of
    /// `axis`. Inputs `x`, indices, updates (shaped as the indices). Indices as for `Gather`.
    ScatterElements {
        /// The dimension the indices mean.
        axis: usize,
        /// How an update joins with what is there.
        reduction: ScatterOp,
    } => index::ScatterElementsDef;
    /// `x` with updated slices: each row of the indices' last dimension addresses the slice that the
    /// update at the row's position goes to. Inputs `x`, indices, updates. Indices as for `Gather`.
    ScatterNd {
        /// How an update joins with what is there.
        reduction: ScatterOp,
    } => index::ScatterNdDef;
    /// `x` with a range of one axis replaced, such as the next rows of a cache. Inputs `x`, an update of the same other
    /// dimensions, and where it begins: an i32 or i64 for all, or one for each element of dimension 0. A negative start
    /// counts from the end; an update that leaves `x` is an error of the run.
    UpdateSlice {
        /// The dimension whose range is replaced.
        axis: usize,
    } => index::UpdateSliceDef;
    /// Counts from 0 along one axis.
    Iota {
        /// The dimensions.
        to: Vec<Dim>,
        /// The axis to count along.
        axis: usize,
        /// The element type.
        dtype: DType,
    } => index::IotaDef;
    /// The triangle of the matrices in the last two dimensions on or above (below) a diagonal; 0
    /// elsewhere.
    Trilu {
        /// Whether the part above the diagonal stays, not that below.
        upper: bool,
        /// How far the diagonal is above the main one; below when negative.
        k: Extent,
    } => index::TriluDef;
    /// For each index a row of `depth` elements along a new axis: `values[1]` at the index,
    /// `values[0]` elsewhere and everywhere for an index out of range; a negative one counts from the
    /// end.
    OneHot {
        /// The length of the new dimension.
        depth: Dim,
        /// Where the new dimension is in the result.
        axis: usize,
    } => index::OneHotDef;

    /// Where the elements that are not zero are: a column of indices for each, in row-major order, `[rank, count]`
    /// as i64.
    NonZero {
        /// The symbol that stands for their number, which the op binds.
        count: Dim,
    } => data::NonZeroDef;
    /// The boxes that stay when of those that overlap only the one with the best score does: boxes `[batch, boxes, 4]`
    /// (two opposite corners `y, x`), scores `[batch, classes, boxes]`; rows (batch, class, box) as i64, `[count, 3]`.
    /// Equal scores count in the order of the boxes; NaN is no score.
    NonMaxSuppression {
        /// The symbol that stands for the number of boxes that stay, which the op binds.
        count: Dim,
        /// How many boxes of a class may stay.
        most: u64,
        /// Two boxes overlap when they share more than this part of what either covers.
        overlap: f32,
        /// Boxes with this score or less are left out.
        score: Option<f32>,
        /// Whether boxes are centre and size: `x, y, width, height`.
        centre: bool,
    } => data::NonMaxSuppressionDef;
    /// Counts from 0 up to a number that is data, the one element of an i64 input: `0, 1, …`, as many as it says, `[count]` as
    /// i64. So a dimension can be computed from data.
    CountUp {
        /// The symbol that stands for the number, which the op binds.
        count: Dim,
        /// What the number is at most; a larger or a negative one is an error of the run.
        most: Dim,
    } => data::CountUpDef;
    /// The distinct rows of a matrix. Results, all of i64: where each is first `[count]`, which of them each row is `[rows]`,
    /// and how often each occurs `[count]`. All NaN are equal, and greater than any number.
    Unique {
        /// The symbol that stands for the number of distinct rows, which the op binds.
        count: Dim,
        /// Whether they come in ascending order, by the first elements that differ; else by where they are first.
        sorted: bool,
    } => unique::UniqueDef;

    /// One number for all elements along some axes.
    Reduce {
        /// How the elements combine.
        op: ReduceOp,
        /// The axes, ascending; none changes nothing.
        axes: Vec<usize>,
        /// Whether the axes stay as dimensions of 1.
        keep_dim: bool,
    } => reduce::ReduceDef;
    /// Running sums, products, maxima or minima along an axis.
    Cumulative {
        /// How the elements combine; not the mean.
        op: ReduceOp,
        /// The axis.
        axis: usize,
        /// Whether an element's own value is left out, so that the first result is that of no elements.
        exclusive: bool,
        /// Whether the last element is the first.
        reverse: bool,
    } => reduce::CumulativeDef;
    /// Where the largest or smallest element along an axis is, as i64. NaN is more extreme than any number.
    ArgReduce {
        /// Which element.
        op: ArgOp,
        /// The axis.
        axis: usize,
        /// Whether the axis stays as a dimension of 1.
        keep_dim: bool,
        /// Whether the last of equal elements counts, not the first.
        last: bool,
    } => top_k::ArgReduceDef;
    /// The `k` largest or smallest elements along an axis, and (as result 1) where they are, as i64. Of
    /// equal elements the first comes first; NaN is greater than any number.
    TopK {
        /// How many.
        k: Dim,
        /// The axis.
        axis: usize,
        /// Whether the largest are wanted, not the smallest.
        largest: bool,
        /// Whether they must come in order; without it any order is right.
        sorted: bool,
    } => top_k::TopKDef;

    /// Convolution over 1 to 3 spatial dimensions: `x`, `w` (`[O, I/groups, k…]` in both formats) and an
    /// optional bias `[O]`. Outside of the input is 0.
    Conv {
        /// The step of the window along each spatial dimension.
        strides: Vec<usize>,
        /// The padding before each spatial dimension, then that after each.
        pads: Vec<usize>,
        /// The distance between neighbouring taps of the kernel.
        dilations: Vec<usize>,
        /// Into how many independent groups the channels are split.
        groups: usize,
        /// Where the channels of `x` and of the result are.
        format: DataFormat,
    } => nn::conv::ConvDef;
    /// The transpose (gradient by the input) of a convolution: `x` `[N, I, …]`, `w` `[I, O/groups, k…]`
    /// and an optional bias `[O]`. The size is `(n-1)·stride + (k-1)·dilation + 1 + output_padding - pads`.
    ConvTranspose {
        /// The distance in the result between neighbouring input elements.
        strides: Vec<usize>,
        /// What is cut off before each spatial dimension of the result, then after each.
        pads: Vec<usize>,
        /// The distance between neighbouring taps of the kernel.
        dilations: Vec<usize>,
        /// What is added behind each spatial dimension of the result.
        output_padding: Vec<usize>,
        /// Into how many independent groups the channels are split.
        groups: usize,
    } => nn::conv::ConvTransposeDef;
    /// The largest or mean element of a window sliding over 1 to 3 spatial dimensions.
    Pool {
        /// How the window's elements combine.
        kind: PoolKind,
        /// The window's size.
        kernel: Vec<usize>,
        /// The step of the window along each spatial dimension.
        strides: Vec<usize>,
        /// The padding before each spatial dimension, then that after each; it is never the largest.
        pads: Vec<usize>,
        /// The distance between neighbouring taps of the window.
        dilations: Vec<usize>,
        /// Whether a last window may reach beyond the padding.
        ceil_mode: bool,
        /// Whether padding counts in the divisor of the mean.
        count_include_pad: bool,
        /// Where the channels are.
        format: DataFormat,
    } => nn::pool::PoolDef;
    /// Regions of images read at points between the pixels: images `[N, C, H, W]`, regions `x₁, y₁, x₂, y₂` `[R, 4]`, and the number
    /// of each one's image `[R]`; `[R, C, height, width]`.
    RoiAlign {
        /// Bins of a region along its height.
        height: usize,
        /// Bins of a region along its width.
        width: usize,
        /// Points of a bin along each dimension; 0: about one for each pixel.
        samples: usize,
        /// What the regions' coordinates are multiplied by to be pixels.
        scale: f32,
        /// Whether the first pixel's centre is at 0.5; else it is at 0, and regions are at least one pixel large.
        half_pixel: bool,
        /// Whether the largest weighted pixel of a bin's points is wanted, not the points' mean.
        max: bool,
    } => nn::roi::RoiAlignDef;
    /// The largest pixel of each bin of regions: images `[N, C, H, W]`, regions (number of the image, `x₁, y₁, x₂, y₂`) `[R, 5]`;
    /// `[R, C, height, width]`.
    RoiMaxPool {
        /// Bins of a region along its height.
        height: usize,
        /// Bins of a region along its width.
        width: usize,
        /// What the regions' coordinates are multiplied by to be pixels.
        scale: f32,
    } => nn::roi::RoiMaxPoolDef;
    /// Images read at positions between their elements: `x` `[N, C, …]`, then for each of its spatial dimensions the positions along it, in
    /// elements from 0 on, `[N, P…]` as f32 or f64; `[N, C, P…]`. Of integers and bools the nearest only.
    GridSample {
        /// How a value between elements is computed.
        mode: SampleMode,
        /// What is outside of the image.
        outside: Outside,
    } => nn::grid_sample::GridSampleDef;
    /// One direction of a recurrent layer: `x` `[steps, batch, gates·hidden]` already multiplied by the input
    /// weights, recurrent weights, then the operands of [`nn::recurrent::Operands`]. Results: every step's state
    /// `[steps, batch, hidden]`, the last state and, of an LSTM, the last cell.
    Recurrent {
        /// What a step computes.
        cell: RecurrentCell,
        /// The function of the gates, then those of the candidate and the cell.
        functions: Vec<GateFunction>,
        /// The largest magnitude of a gate before its function.
        clip: Option<f32>,
        /// Of an LSTM: whether the forget gate is one less the input gate.
        coupled: bool,
        /// Whether the last step is the first.
        reverse: bool,
        /// Of an LSTM: whether the gates see the cell.
        peepholes: bool,
        /// Whether the rows have lengths of their own; beyond its length a row's states are 0.
        lengths: bool,
    } => nn::recurrent::RecurrentDef;
    /// `exp(x) / Σ exp(x)` along one axis.
    Softmax {
        /// The axis; from the end when negative.
        axis: i32,
    } => nn::softmax::SoftmaxDef;
    /// `x − ln Σ exp(x)` along one axis.
    LogSoftmax {
        /// The axis; from the end when negative.
        axis: i32,
    } => nn::softmax::LogSoftmaxDef;
    /// `(x − mean) / √(variance + eps) · gamma + beta` with the statistics of dimensions `axis..`.
    LayerNorm {
        /// The first normalised dimension; from the end when negative.
        axis: i32,
        /// Added to the variance.
        eps: f32,
    } => nn::norm::LayerNormDef;
    /// `x / √(mean(x²) + eps) · gamma` with the mean over dimensions `axis..`.
    RmsNorm {
        /// The first normalised dimension; from the end when negative.
        axis: i32,
        /// Added to the mean square.
        eps: f32,
    } => nn::norm::RmsNormDef;
    /// As layer norm over groups of channels and all that follows them; gamma and beta for each channel.
    GroupNorm {
        /// Into how many groups the channels (dimension 1) are split.
        groups: usize,
        /// Added to the variance.
        eps: f32,
    } => nn::norm::GroupNormDef;
    /// `(x − mean) / √(variance + eps) · gamma + beta`, all four given for each channel (dimension 1).
    BatchNorm {
        /// Added to the variance.
        eps: f32,
    } => nn::norm::BatchNormDef;
    /// `softmax(scale·q·kᵀ + mask)·v` for each head; heads of k and v may be shared by several of q.
    Attention {
        /// How many heads the queries have.
        num_heads: usize,
        /// The size of a query's or key's head.
        head_dim: usize,
        /// What may be seen.
        mask: MaskKind,
        /// Of a causal mask: how many keys a query sees at most, the last ones up to its own position.
        window: Option<usize>,
        /// The factor of the scores; `1 / √head_dim` when none is given.
        scale: Option<f32>,
        /// What a query gets that may see nothing.
        unseen: Unseen,
    } => nn::attention::AttentionDef;
    /// Rotary embedding: pairs of each head's first elements turned by the angle of their position.
    Rope {
        /// The size of a head.
        head_dim: usize,
        /// How many elements of each head are turned.
        n_rot: usize,
        /// Whether pairs are neighbours; else they are half of `n_rot` apart.
        interleaved: bool,
    } => nn::rope::RopeDef;
    /// The exact product of two matrices of i8 or u8 as i32: `Σ (a − a_zero)·(b − b_zero)`, shapes as for `MatMul`. Inputs
    /// `a`, `b`, `a_zero` (one) and `b_zero` (one, or one for each column).
    MatMulInteger => nn::integer::MatMulIntegerDef;
    /// Rows by the transpose of a matrix that is quantised in blocks: `x · Wᵀ`, `W = (w − zero) · scale`. Inputs `x` `[…, k]`; `w`
    /// `[n, blocks, size]`, integers of at most 8 bits, of which the first `k` of each row count; `scale` and, if any, `zero`,
    /// floats `[blocks, n]`.
    MatMulBlocks => nn::blocks::MatMulBlocksDef;
    /// As `MatMulBlocks`, with `x` quantised dynamically: to 8 bits, with a scale for each block of a row that is as long as the weights' blocks.
    DynamicMatMulBlocks => nn::blocks::MatMulBlocksDef;
    /// The exact convolution of i8 or u8 as i32. Inputs `x`, `w` (as for `Conv`), `x_zero` (one) and `w_zero` (one, or one for
    /// each output channel); outside of the input is `x_zero`.
    ConvInteger {
        /// The step of the window along each spatial dimension.
        strides: Vec<usize>,
        /// The padding before each spatial dimension, then that after each.
        pads: Vec<usize>,
        /// The distance between neighbouring taps of the kernel.
        dilations: Vec<usize>,
        /// Into how many independent groups the channels are split.
        groups: usize,
        /// Where the channels of `x` and of the result are.
        format: DataFormat,
    } => nn::integer::ConvIntegerDef;
    /// `saturate(round(x / scale) + zero_point)`: floats to small integers.
    Quantize {
        /// The dimension each index of which has its own scale; none: one for the whole tensor.
        axis: Option<usize>,
        /// The integer type.
        to: DType,
    } => nn::quant::QuantizeDef;
    /// `(x − zero_point) · scale`: small integers to floats.
    Dequantize {
        /// The dimension each index of which has its own scale; none: one for the whole tensor.
        axis: Option<usize>,
        /// The float type.
        to: DType,
    } => nn::quant::DequantizeDef;
}

impl Op {
    /// The op's definition.
    pub fn def(&self) -> &'static dyn OpDef {
        self.kind().def()
    }

    /// Whether an expression in the attributes is not a number.
    pub fn is_symbolic(&self) -> bool {
        let mut symbolic = false;
        self.each_extent(&mut |e| symbolic |= e.as_const().is_none());
        symbolic
    }

    /// The graphs inside the op.
    pub fn bodies(&self) -> Vec<&Arc<Body>> {
        match self {
            Op::Region { body } | Op::Loop { body, .. } => vec![body],
            Op::If { then, otherwise, .. } => vec![then, otherwise],
            _ => Vec::new(),
        }
    }

    /// The graphs inside the op, to change what is no part of what they compute.
    pub(crate) fn bodies_mut(&mut self) -> Vec<&mut Arc<Body>> {
        match self {
            Op::Region { body } | Op::Loop { body, .. } => vec![body],
            Op::If { then, otherwise, .. } => vec![then, otherwise],
            _ => Vec::new(),
        }
    }

    /// Whether the op computes each result element from the elements at the same (broadcast) position
    /// of its inputs and nothing else.
    pub fn is_elementwise(&self) -> bool {
        self.def().is_elementwise()
    }

    /// Whether every element of the result comes from those at its own place: elementwise ops, and quantisation by one scale
    /// and its opposite, whose parameters are no operands to broadcast.
    pub fn is_pointwise(&self) -> bool {
        self.is_elementwise()
            || matches!(self, Op::Quantize { axis: None, .. } | Op::Dequantize { axis: None, .. })
    }
}

impl OpKind {
    /// The op's definition.
    pub fn def(self) -> &'static dyn OpDef {
        OPS[self as usize]
    }

    /// The op called `name` in the text form.
    pub fn from_name(name: &str) -> Option<OpKind> {
        OpKind::ALL.iter().copied().find(|k| k.name() == name)
    }
}

impl std::fmt::Display for OpKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
