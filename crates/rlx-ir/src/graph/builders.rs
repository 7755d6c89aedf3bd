//! The builders of the contract: they take the shape the caller expects.
//!
//! Nothing is checked here; [`crate::verify`] compares the declared shape with the op's rule. The forms that
//! infer the shape are in [`crate::GraphExt`].

use std::sync::Arc;

use crate::dim::Dim;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, GraphExt, NodeId};
use crate::ops::{self, Activation, BinaryOp, DataFormat, MaskKind, Op, ReduceOp, Unseen};
use crate::shape::Shape;
use crate::tensor::ConstData;

impl Graph {
    /// A tensor the caller gives at every run.
    pub fn input(&mut self, name: impl Into<String>, shape: Shape) -> NodeId {
        self.add_node(Op::Input { name: name.into() }, vec![], shape)
    }

    /// A tensor the caller sets once.
    pub fn param(&mut self, name: impl Into<String>, shape: Shape) -> NodeId {
        self.add_node(Op::Param { name: name.into() }, vec![], shape)
    }

    /// A tensor fixed in the graph.
    pub fn constant(&mut self, data: ConstData) -> NodeId {
        let shape = data.shape();
        self.add_node(Op::Constant { data: Arc::new(data) }, vec![], shape)
    }

    /// A function of two elements, broadcast as NumPy does.
    pub fn binary(&mut self, op: BinaryOp, a: NodeId, b: NodeId, shape: Shape) -> NodeId {
        self.add_node(Op::Binary(op), vec![a, b], shape)
    }

    /// A function of each element.
    pub fn activation(&mut self, op: Activation, x: NodeId, shape: Shape) -> NodeId {
        self.add_node(Op::Activation(op), vec![x], shape)
    }

    /// The matmul.
    pub fn matmul(&mut self, a: NodeId, b: NodeId, shape: Shape) -> NodeId {
        self.add_node(Op::MatMul, vec![a, b], shape)
    }

    /// The same elements with other dimensions; one entry of `to` may be -1 (what is left), and 0
    /// stands for the input's own dimension.
    pub fn reshape(&mut self, x: NodeId, to: Vec<i64>, shape: Shape) -> NodeId {
        let from = self.nodes.get(x.index()).map(|n| n.shape.clone());
        // A target that makes no sense keeps the declared dimensions: `verify` then reports the mismatch.
        let dims = match from.map(|from| ops::movement::resolve_reshape(&from, &to, false)) {
            Some(Ok(dims)) => dims,
            _ => to.iter().map(|&d| Dim::Static(usize::try_from(d).unwrap_or(0))).collect(),
        };
        self.add_node(Op::Reshape { to: dims }, vec![x], shape)
    }

    /// The reduction over `axes`, which are kept as dimensions of 1 or dropped.
    pub fn reduce(
        &mut self,
        x: NodeId,
        op: ReduceOp,
        axes: Vec<usize>,
        keep_dim: bool,
        shape: Shape,
    ) -> NodeId {
        self.add_node(Op::Reduce { op, axes, keep_dim }, vec![x], shape)
    }

    /// Softmax along `axis`, which counts from the end when negative.
    pub fn softmax(&mut self, x: NodeId, axis: i32, shape: Shape) -> NodeId {
        self.add_node(Op::Softmax { axis }, vec![x], shape)
    }

    /// The rows of `table` along `axis` that `indices` name.
    pub fn gather(&mut self, table: NodeId, indices: NodeId, axis: usize, shape: Shape) -> NodeId {
        self.add_node(Op::Gather { axis }, vec![table, indices], shape)
    }

    /// The inputs one after the other along `axis`.
    pub fn concat(&mut self, inputs: Vec<NodeId>, axis: usize, shape: Shape) -> NodeId {
        self.add_node(Op::Concat { axis }, inputs, shape)
    }

    /// Layer norm over the dimensions from `axis` on.
    pub fn layer_norm(
        &mut self,
        x: NodeId,
        gamma: NodeId,
        beta: NodeId,
        axis: i32,
        eps: f32,
        shape: Shape,
    ) -> NodeId {
        self.add_node(Op::LayerNorm { axis, eps }, vec![x, gamma, beta], shape)
    }

    /// Attention with a mask (additive when it is a float, allowed-where-true when it is a bool), or
    /// `None::<NodeId>` for no mask. [`Op::Attention`] has the other forms.
    #[allow(clippy::too_many_arguments)] // the contract's signature
    pub fn attention(
        &mut self,
        q: NodeId,
        k: NodeId,
        v: NodeId,
        mask: impl Into<Option<NodeId>>,
        num_heads: usize,
        head_dim: usize,
        shape: Shape,
    ) -> NodeId {
        let (mut inputs, mask) = (vec![q, k, v], mask.into());
        inputs.extend(mask);
        let mask = if mask.is_some() { MaskKind::Custom } else { MaskKind::None };
        let op = Op::Attention { num_heads, head_dim, mask, window: None, scale: None, unseen: Unseen::Zero };
        self.add_node(op, inputs, shape)
    }

    /// Convolution of an image `[N, C, H, W]` with weights `[O, C/groups, kernel…]`; `padding` goes on both
    /// sides. The shape is inferred; a fault is kept in the graph.
    ///
    /// ```
    /// use rlx_ir::{DType, Graph, Shape};
    /// let mut g = Graph::new("conv");
    /// let x = g.input("x", Shape::new(&[1, 3, 8, 8], DType::F32));
    /// let w = g.param("w", Shape::new(&[16, 3, 3, 3], DType::F32));
    /// let y = g.conv2d(x, w, [3, 3], [2, 2], [1, 1], [1, 1], 1);
    /// assert_eq!(g.shape(y), &Shape::new(&[1, 16, 4, 4], DType::F32));
    /// ```
    #[allow(clippy::too_many_arguments)] // the contract's signature
    pub fn conv2d(
        &mut self,
        x: NodeId,
        w: NodeId,
        kernel: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        groups: usize,
    ) -> NodeId {
        match self.try_conv2d(x, w, kernel, stride, padding, dilation, groups) {
            Ok(id) => id,
            Err(error) => self.keep_fault(error),
        }
    }

    /// As [`Graph::conv2d`].
    ///
    /// # Errors
    /// What the shape rule reports, or weights with another kernel.
    #[allow(clippy::too_many_arguments)] // the contract's signature
    pub fn try_conv2d(
        &mut self,
        x: NodeId,
        w: NodeId,
        kernel: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        groups: usize,
    ) -> Result<NodeId> {
        let weights = self.try_shape(w)?;
        if weights.rank() != 4 || weights.dims()[2..] != kernel.map(Dim::Static) {
            let message = format!("conv2d with kernel {kernel:?} and weights {weights}");
            return Err(
                Error::new(ErrorKind::Shape, message).with_hint("the weights are [O, C/groups, kernel…]")
            );
        }
        let pads = vec![padding[0], padding[1], padding[0], padding[1]];
        let (strides, dilations) = (stride.to_vec(), dilation.to_vec());
        self.try_add(
            Op::Conv { strides, pads, dilations, groups, format: DataFormat::ChannelsFirst },
            &[x, w],
        )
    }
}
