//! Windows that do not overlap, each as one row.
//!
//! Where the kernel is as large as the stride and nothing is padded, every element of the image is in one window. With the elements of a window
//! behind each other, all of them are the channels of one place, and the convolution is a matmul, which such devices do better than windows. They are in the order of the
//! weights, so neighbours along a row of the image, which is given with its channels first, stay neighbours. Products are added in that order, too.
//!
//! ```text
//! x [N, H·s, W·s, C], w [F, C, s, s]
//! x' = x as [N, H, s, W, s, C] as [N, H, W, C, s, s] as [N, H, W, C·s·s]
//! w' = w as [F, C·s·s, 1, 1]
//! y  = Conv(x', w') : [N, H, W, F]
//! ```

use rlx_ir::{Dim, Graph, Node, NodeId, Op, Result};

use super::{Builder, MOST_AT_ONCE, Narrow, Work, ZERO, now_at_once, pays};
use crate::pipeline::PassContext;

/// A convolution of patches.
pub(super) struct Patches {
    /// The kernel.
    sizes: Vec<usize>,
    /// Along each spatial dimension, how many patches there are.
    places: Vec<Dim>,
    /// The first dimension of the kernel, and with zeros.
    rows: (usize, usize),
    /// Channels of the image, and with zeros.
    channels: (usize, usize),
}

impl Patches {
    /// What `node` becomes, if it is a convolution of patches for which that pays.
    pub(super) fn of(node: &Node, graph: &Graph) -> Option<Patches> {
        let Narrow { strides, pads, dilations, kernel: sizes, channels, image } = Narrow::of(node, graph)?;
        let n = strides.len();
        let places = node.shape.dims()[1..=n].to_vec();
        // What is beside the last patch is cut off.
        let known = |i: usize| {
            let (all, read) = (image.dim(1 + i).extent(), places[i].extent() * sizes[i] as i64);
            all == read || all.as_const().is_some() && read.as_const().is_some()
        };
        let is_patch = sizes == *strides && pads.iter().all(|&p| p == 0) && dilations.iter().all(|&d| d == 1);
        let elements = sizes.iter().product::<usize>();
        if !is_patch || elements < 2 || !(0..n).all(known) {
            return None;
        }
        let now = Work::of(elements, channels, now_at_once(node, graph, channels), 0);
        // Rows, too, may be filled up, which takes fewer zeros where the kernel is large.
        let others = elements / sizes[0];
        let more_rows = (0..MOST_AT_ONCE).map(|i| (sizes[0] + i, channels));
        let more_channels = (channels..=MOST_AT_ONCE).map(|more| (sizes[0], more));
        let depth = |(rows, channels): (usize, usize)| rows * others * channels;
        let whole = |of: &(usize, usize)| depth(*of).is_multiple_of(MOST_AT_ONCE);
        let of = more_rows.chain(more_channels).filter(whole).min_by_key(|&of| depth(of))?;
        let then = Work::of(1, depth(of), MOST_AT_ONCE, depth(of));
        let (rows, channels) = ((sizes[0], of.0), (channels, of.1));
        pays(&then, &now).then_some(Patches { sizes, places, rows, channels })
    }

    /// The convolution that stands for `node`, if the device has all that it takes.
    pub(super) fn convolution(
        &self,
        node: &Node,
        builder: &mut Builder<'_, '_>,
        context: &PassContext<'_>,
    ) -> Result<Option<NodeId>> {
        let mut op = node.op.clone();
        let Op::Conv { strides, .. } = &mut op else { return Ok(None) };
        strides.fill(1);
        let mut inputs = builder.inputs(node);
        inputs[1] = self.weights(inputs[1], builder)?;
        inputs[0] = self.image(inputs[0], builder)?;
        builder.checked(node, op, &inputs, context)
    }

    fn depth(&self) -> Dim {
        Dim::Static(self.sizes[1..].iter().product::<usize>() * self.rows.1 * self.channels.1)
    }

    /// The zeros behind channels, which are this dimension, and behind the kernel's rows, the next one.
    fn zeros(&self, channel: usize) -> [(usize, usize, usize); 2] {
        [(channel, 0, self.channels.1 - self.channels.0), (channel + 1, 0, self.rows.1 - self.rows.0)]
    }

    /// The image with the elements of each patch behind each other, by views and one step.
    fn image(&self, image: NodeId, builder: &mut Builder<'_, '_>) -> Result<NodeId> {
        let dtype = builder.shape(image).dtype();
        let mut x = builder.before_cast(image)?;
        let (n, dims) = (self.sizes.len(), builder.shape(x).dims().to_vec());
        let read = self.places.iter().zip(&self.sizes).map(|(p, &s)| Dim::from(p.extent() * s as i64));
        let to: Vec<Dim> = [dims[0]].into_iter().chain(read).chain([dims[n + 1]]).collect();
        if to != dims {
            x = builder.emit(Op::Slice { starts: vec![ZERO; n + 2], steps: vec![1; n + 2], to }, &[x])?;
        }
        let split = self.places.iter().zip(&self.sizes).flat_map(|(&p, &s)| [p, Dim::Static(s)]);
        let apart = [dims[0]].into_iter().chain(split).chain([dims[n + 1]]).collect();
        x = builder.reshaped(x, apart)?;
        let (places, taps) = ((0..n).map(|i| 1 + 2 * i), (0..n).map(|i| 2 + 2 * i));
        let perm = [0].into_iter().chain(places).chain([1 + 2 * n]).chain(taps).collect();
        x = builder.emit(Op::Transpose { perm }, &[x])?;
        x = builder.padded(x, &self.zeros(1 + n))?;
        x = builder.cast(x, dtype)?;
        let to = [dims[0]].into_iter().chain(self.places.iter().copied()).chain([self.depth()]).collect();
        builder.reshaped(x, to)
    }

    /// The weights `[F, C, k…]` as `[F, C'·k…, 1…]`.
    fn weights(&self, weights: NodeId, builder: &mut Builder<'_, '_>) -> Result<NodeId> {
        let whole = builder.padded(weights, &self.zeros(1))?;
        let filters = builder.shape(whole).dim(0);
        let ones = vec![Dim::Static(1); self.sizes.len()];
        builder.reshaped(whole, [filters, self.depth()].into_iter().chain(ones).collect())
    }
}
