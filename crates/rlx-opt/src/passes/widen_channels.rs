//! Gives images of few channels more of them, where convolutions are multiplied on matrix units, or an only channel, where they are by pairs.
//!
//! Such a device copies neighbouring channels of 16 bits together, up to 8 at once. An image of three channels is copied element by
//! element, which takes far longer than its products. Matches: a convolution with its channels last, of at most four channels and one
//! group, by fixed weights, that the device multiplies so ([`crate::Target::multiplies_windows`]). Makes: a convolution of more channels. With
//! stride `s` along the last spatial dimension, `s` neighbours along it become the channels of one place, so that the stride is 1 and the
//! kernel has `⌈k/s⌉` taps; zeros fill up the channels of each neighbour until `s` times as many are a multiple of 4 or 8. Patches, windows
//! that do not overlap, become rows of a matmul (`patches.rs`). The weights are arranged alike, by the init program. The image is padded
//! before it is cast, so that one step reads it as it was given and writes it as the convolution reads it.
//!
//! Legal under [`Numerics::Fast`] because the same products are added, but for zeros between them, which matrix instructions add in other
//! groups, and those of patches in another order. Most of those are zero times zero; where the kernel is no multiple of the stride, elements just beside
//! a window are multiplied by zero, too, which makes NaN of an infinite one, as it does in Winograd's algorithm. Whether it pays is estimated
//! from shapes (`Work`). It runs when all else is in its place, since movement would sink below the padding again.
//!
//! ```text
//! %2 = Cast(%0) {to=bf16} : [1, 3, 224, 224] bf16
//! %3 = Transpose(%2) {perm=[0, 2, 3, 1]} : [1, 224, 224, 3] bf16
//! %4 = Conv(%3, %1) {strides=[2, 2], pads=[3, 3, 3, 3], …} : [1, 112, 112, 64] bf16
//! →
//! %2 = Pad(%1) {before=[0, 0, 0, 1], after=[0, 1, 0, 0]} : [64, 4, 7, 8] bf16
//! %3 = Reshape(%2) : [64, 4, 7, 4, 2] bf16
//! %4 = Transpose(%3) {perm=[0, 4, 1, 2, 3]} : [64, 2, 4, 7, 4] bf16
//! %5 = Reshape(%4) : [64, 8, 7, 4] bf16
//! %6 = Transpose(%0) {perm=[0, 2, 3, 1]} : [1, 224, 224, 3] f32
//! %7 = Pad(%6) {after=[0, 0, 0, 1]} : [1, 224, 224, 4] f32
//! %8 = Cast(%7) {to=bf16} : [1, 224, 224, 4] bf16
//! %9 = Reshape(%8) : [1, 224, 112, 8] bf16
//! %10 = Conv(%9, %5) {strides=[2, 1], pads=[3, 2, 3, 1], …} : [1, 112, 112, 64] bf16
//! ```

mod patches;

use rlx_ir::op::{DataFormat, PadMode};
use rlx_ir::{DType, Dim, Extent, Graph, Node, NodeId, Op, Result, Shape};

use crate::facts;
use crate::options::Numerics;
use crate::passes::legalize::{needs_no_kernel, no_movement, runs_natively};
use crate::pipeline::PassContext;
use crate::rewrite::Rewriter;

use patches::Patches;

/// Images of more channels are left as they are.
const MOST_CHANNELS: usize = 4;

/// How many channels of 16 bits are copied at once, at most.
const MOST_AT_ONCE: usize = 8;

/// Windows with larger numbers than this are left as they are.
const MOST_OF_WINDOW: usize = 1 << 12;

const ZERO: Extent = Extent::Const(0);

/// Runs the pass.
///
/// # Errors
/// [`rlx_ir::ErrorKind::Internal`] when a rewritten node is rejected.
pub fn run(graph: &Graph, context: &PassContext<'_>) -> Result<Graph> {
    let fixed = facts::fixed_nodes(graph);
    let narrow = |node: &Node| {
        node.inputs.get(1).is_some_and(|w| fixed[w.index()])
            && (Patches::of(node, graph).is_some() || Widened::of(node, graph).is_some())
            && context.target.multiplies_windows(node, graph)
    };
    if context.options.numerics == Numerics::Strict || !graph.nodes().iter().any(narrow) {
        return Ok(graph.clone());
    }
    let mut r = Rewriter::new(graph);
    for node in graph.nodes() {
        let wide = if narrow(node) { wide(node, &mut r, context)? } else { None };
        match wide {
            Some(id) => r.replace(node.id, id),
            None => _ = r.keep(node)?,
        }
    }
    Ok(r.finish(true))
}

/// What stands for a convolution of few channels, if the device has it.
fn wide(node: &Node, r: &mut Rewriter<'_>, context: &PassContext<'_>) -> Result<Option<NodeId>> {
    let graph = r.old();
    if let Some(patches) = Patches::of(node, graph) {
        let mut builder = Builder { r, made: Vec::new() };
        if let Some(id) = patches.convolution(node, &mut builder, context)? {
            return Ok(Some(id));
        }
    }
    let Some(wide) = Widened::of(node, graph) else { return Ok(None) };
    wide.convolution(node, &mut Builder { r, made: Vec::new() }, context)
}

/// What a convolution costs for one place of its result, as far as channels matter, in multiples of an element of depth.
struct Work {
    /// Groups of neighbouring channels of a window, each copied at once.
    copies: usize,
    /// Elements of a window.
    depth: usize,
    /// Elements of the image that a step of its own moves.
    moved: usize,
}

impl Work {
    /// Of so many taps, each of so many channels.
    fn of(taps: usize, channels: usize, at_once: usize, moved: usize) -> Work {
        Work { copies: taps * channels / at_once, depth: taps * channels, moved }
    }

    /// A copy takes as long as multiplying 16 elements of depth, and moving an element of the image as long as 4: ResNet's first layer on
    /// an H200, 310 µs for 59 million copies, and what its memory and its matrix units do at best.
    fn time(&self) -> usize {
        16 * self.copies + self.depth + 4 * self.moved
    }
}

/// How many channels are copied at once where each place has so many, one behind another.
fn at_once(channels: usize) -> usize {
    [MOST_AT_ONCE, 4, 2].into_iter().find(|n| channels.is_multiple_of(*n)).unwrap_or(1)
}

/// A convolution of one group, of few channels of 16 bits.
struct Narrow<'g> {
    strides: &'g [usize],
    pads: &'g [usize],
    dilations: &'g [usize],
    kernel: Vec<usize>,
    channels: usize,
    image: &'g Shape,
}

impl<'g> Narrow<'g> {
    fn of(node: &'g Node, graph: &'g Graph) -> Option<Narrow<'g>> {
        let Op::Conv { strides, pads, dilations, groups: 1, format: DataFormat::ChannelsLast } = &node.op
        else {
            return None;
        };
        let [image, weights] = [graph.shape(node.inputs[0]), graph.shape(node.inputs[1])];
        let kernel: Vec<usize> = weights.dims()[2..].iter().map(|d| d.as_static()).collect::<Option<_>>()?;
        let channels = image.dim(strides.len() + 1).as_static()?;
        let few = (1..=MOST_CHANNELS).contains(&channels) && image.dtype().bits() == 16;
        let small = [pads, dilations, strides, &kernel].into_iter().flatten().all(|&n| n <= MOST_OF_WINDOW);
        let known = strides.iter().chain(&kernel).all(|&n| n > 0);
        (few && small && known).then_some(Narrow { strides, pads, dilations, kernel, channels, image })
    }
}

/// Whether the image of a convolution has its channels elsewhere in memory than last.
fn has_channels_apart(node: &Node, graph: &Graph) -> bool {
    matches!(graph.node(node.inputs[0]).op, Op::Transpose { .. })
}

/// How many channels of the image of `node` are copied at once as it is.
fn now_at_once(node: &Node, graph: &Graph, channels: usize) -> usize {
    if has_channels_apart(node, graph) { 1 } else { at_once(channels) }
}

/// Whether it takes a quarter less time at least, since it is an estimate.
fn pays(then: &Work, now: &Work) -> bool {
    4 * then.time() <= 3 * now.time()
}

/// A convolution with more channels, in columns: places along the last spatial dimension.
struct Widened {
    /// How many columns become one place.
    stride: usize,
    /// Channels of the image, and with zeros.
    channels: (usize, usize),
    along: Along,
}

/// What becomes of the columns.
struct Along {
    /// Columns of the image that are read at all, where not all are.
    read: Option<Extent>,
    /// Columns of zeros at both ends of the image.
    image: (usize, usize),
    /// Columns of zeros at both ends of the kernel.
    kernel: (usize, usize),
    /// Places of the image.
    places: Extent,
    /// Taps of the kernel.
    taps: usize,
    /// Places that the convolution pads at both ends.
    pads: (usize, usize),
}

impl Along {
    /// For `kernel` taps over an image of so many columns, with pads, that gives so many places.
    fn of(
        (kernel, stride, dilation): (usize, usize, usize),
        (before, columns, places): (usize, Extent, Extent),
    ) -> Option<Along> {
        let s = i64::try_from(stride).ok()?;
        let taps = kernel.div_ceil(stride);
        // Windows begin at a place if zeros are in front of the kernel, or, where that makes it longer, of the image.
        let beyond = before % stride;
        let shift = (stride - beyond) % stride;
        let (left, front) = if (kernel + shift).div_ceil(stride) == taps { (0, shift) } else { (beyond, 0) };
        let pad = (before + front - left) / stride;
        let all = (columns + left as i64).ceil_div(s);
        let reach = (taps - 1) * dilation;
        // What windows reach beyond the places of the image; less than nothing, where they do not reach its end.
        let beyond = (places + reach as i64 - pad as i64 - all).as_const()?;
        if beyond < 0 && columns.as_const().is_none() {
            return None;
        }
        let used = all + beyond.min(0);
        let right = (used * s - left as i64 - columns).as_const()?;
        let read = (right < 0).then(|| columns + right);
        let nothing = |of: Extent| of.as_const().is_some_and(|n| n < 1);
        if nothing(used) || read.is_some_and(nothing) {
            return None;
        }
        Some(Along {
            read,
            image: (left, usize::try_from(right.max(0)).ok()?),
            kernel: (front, taps * stride - front - kernel),
            places: used,
            taps,
            pads: (pad, usize::try_from(beyond.max(0)).ok()?),
        })
    }
}

impl Widened {
    /// What `node` becomes, if it is a convolution for which that pays.
    fn of(node: &Node, graph: &Graph) -> Option<Widened> {
        let Narrow { strides, pads, dilations, kernel, channels, image } = Narrow::of(node, graph)?;
        let n = strides.len();
        let last = n.checked_sub(1)?;
        let (stride, dilation) = (strides[last], dilations[last]);
        if stride > 1 && dilation != 1 {
            return None;
        }
        let columns = image.dim(n).extent();
        let of_kernel = (kernel[last], stride, dilation);
        let along = Along::of(of_kernel, (pads[last], columns, node.shape.dim(n).extent()))?;
        let other_taps = kernel[..last].iter().product::<usize>();
        let as_it_is = now_at_once(node, graph, channels);
        let now = Work::of(other_taps * kernel[last], channels, as_it_is, 0);
        let is_dense = !has_channels_apart(node, graph);
        let then = |more: usize| {
            let in_place = is_dense && more == channels && along.image == (0, 0) && along.read.is_none();
            let of_place = strides.iter().product::<usize>() * more;
            let wide = stride * more;
            Work::of(other_taps * along.taps, wide, at_once(wide), if in_place { 0 } else { of_place })
        };
        let whole = |more: &usize| (stride * more).is_multiple_of(4) && stride * more > channels;
        let more = (channels..=MOST_AT_ONCE).filter(whole).min_by_key(|&more| then(more).time())?;
        pays(&then(more), &now).then_some(Widened { stride, channels: (channels, more), along })
    }

    /// The convolution that stands for `node`, if the device has all that it takes.
    fn convolution(
        &self,
        node: &Node,
        builder: &mut Builder<'_, '_>,
        context: &PassContext<'_>,
    ) -> Result<Option<NodeId>> {
        let mut op = node.op.clone();
        let Op::Conv { strides, pads, .. } = &mut op else { return Ok(None) };
        let n = strides.len();
        strides[n - 1] = 1;
        (pads[n - 1], pads[2 * n - 1]) = self.along.pads;
        let mut inputs = builder.inputs(node);
        inputs[1] = self.weights(inputs[1], builder)?;
        inputs[0] = self.image(inputs[0], builder)?;
        builder.checked(node, op, &inputs, context)
    }

    /// The image `[N, …, columns, C]` as `[N, …, places, stride·C']`.
    fn image(&self, image: NodeId, builder: &mut Builder<'_, '_>) -> Result<NodeId> {
        let dtype = builder.shape(image).dtype();
        let mut x = builder.before_cast(image)?;
        let mut to = builder.shape(x).dims().to_vec();
        let rank = to.len();
        let (column, channel) = (rank - 2, rank - 1);
        if let Some(read) = self.along.read {
            to[column] = Dim::from(read);
            let slice = Op::Slice { starts: vec![ZERO; rank], steps: vec![1; rank], to: to.clone() };
            x = builder.emit(slice, &[x])?;
        }
        let (left, right) = self.along.image;
        x = builder.padded(x, &[(column, left, right), (channel, 0, self.channels.1 - self.channels.0)])?;
        x = builder.cast(x, dtype)?;
        to[column] = Dim::from(self.along.places);
        to[channel] = Dim::Static(self.stride * self.channels.1);
        builder.reshaped(x, to)
    }

    /// The weights `[F, C, …, k]` as `[F, stride·C', …, taps]`.
    fn weights(&self, weights: NodeId, builder: &mut Builder<'_, '_>) -> Result<NodeId> {
        let rank = builder.shape(weights).rank();
        let (front, behind) = self.along.kernel;
        let more = self.channels.1 - self.channels.0;
        let whole = builder.padded(weights, &[(1, 0, more), (rank - 1, front, behind)])?;
        if self.stride == 1 {
            return Ok(whole);
        }
        let mut to = builder.shape(whole).dims().to_vec();
        to[rank - 1] = Dim::Static(self.along.taps);
        let apart = to.iter().copied().chain([Dim::Static(self.stride)]).collect();
        let apart = builder.reshaped(whole, apart)?;
        // Which of the neighbours it is comes before the channels.
        let perm = [0, rank].into_iter().chain(1..rank).collect();
        let ordered = builder.emit(Op::Transpose { perm }, &[apart])?;
        to[1] = Dim::Static(self.stride * self.channels.1);
        builder.reshaped(ordered, to)
    }
}

/// Builds nodes, and knows which.
struct Builder<'r, 'g> {
    r: &'r mut Rewriter<'g>,
    made: Vec<NodeId>,
}

impl Builder<'_, '_> {
    /// What stands for the inputs of an old node.
    fn inputs(&self, node: &Node) -> Vec<NodeId> {
        node.inputs.iter().map(|&id| self.r.new_id(id)).collect()
    }

    fn shape(&self, id: NodeId) -> &Shape {
        self.r.shape(id)
    }

    /// `op`, if it can stand for `node`, and the device has it and all that was made for it.
    fn checked(
        &mut self,
        node: &Node,
        op: Op,
        inputs: &[NodeId],
        context: &PassContext<'_>,
    ) -> Result<Option<NodeId>> {
        let conv = self.emit(op, inputs)?;
        let graph = self.r.new_graph();
        let is_had = |&id: &NodeId| match needs_no_kernel(&graph.node(id).op) {
            true => no_movement(graph.node(id), context.target).is_none(),
            false => runs_natively(graph.node(id), graph, context),
        };
        let fits = *graph.shape(conv) == node.shape
            && self.made.iter().all(is_had)
            && context.target.multiplies_windows(graph.node(conv), graph);
        Ok(fits.then_some(conv))
    }

    /// What is cast to the image, with its channels where the image has them: padding and casting it is one step. The image itself, if it
    /// is no cast, or one of a value that is computed element by element, which is one step with its cast.
    fn before_cast(&mut self, image: NodeId) -> Result<NodeId> {
        let cast = |id: NodeId, graph: &Graph| match graph.node(id) {
            Node { op: Op::Cast { .. }, inputs, .. } => {
                Some(inputs[0]).filter(|&x| !graph.node(x).op.is_pointwise())
            }
            _ => None,
        };
        let graph = self.r.new_graph();
        if let Some(x) = cast(image, graph) {
            return Ok(x);
        }
        let Node { op: op @ Op::Transpose { .. }, inputs, .. } = graph.node(image) else { return Ok(image) };
        match cast(inputs[0], graph) {
            Some(x) => self.emit(op.clone(), &[x]),
            None => Ok(image),
        }
    }

    /// `x` as elements of this type: behind padding, for which that is no step of its own.
    fn cast(&mut self, x: NodeId, to: DType) -> Result<NodeId> {
        if self.shape(x).dtype() == to { Ok(x) } else { self.emit(Op::Cast { to }, &[x]) }
    }

    /// `x` with zeros before and behind some of its dimensions: `(dimension, before, behind)`.
    fn padded(&mut self, x: NodeId, around: &[(usize, usize, usize)]) -> Result<NodeId> {
        if around.iter().all(|of| (of.1, of.2) == (0, 0)) {
            return Ok(x);
        }
        let rank = self.r.shape(x).rank();
        let (mut before, mut after) = (vec![ZERO; rank], vec![ZERO; rank]);
        for &(axis, front, behind) in around {
            (before[axis], after[axis]) = (Extent::Const(front as i64), Extent::Const(behind as i64));
        }
        self.emit(Op::Pad { before, after, mode: PadMode::Constant }, &[x])
    }

    /// `x` with other dimensions.
    fn reshaped(&mut self, x: NodeId, to: Vec<Dim>) -> Result<NodeId> {
        match self.r.shape(x).dims() == to {
            true => Ok(x),
            false => self.emit(Op::Reshape { to }, &[x]),
        }
    }

    fn emit(&mut self, op: Op, inputs: &[NodeId]) -> Result<NodeId> {
        let id = self.r.emit(op, inputs)?;
        self.made.push(id);
        Ok(id)
    }
}
