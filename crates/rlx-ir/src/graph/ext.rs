//! Short forms of the builders, which infer the shape.
//!
//! ```
//! use rlx_ir::{DType, Graph, GraphExt, Shape, verify};
//! let mut g = Graph::new("ffn");
//! let x = g.input("x", Shape::new(&[2, 4], DType::F32));
//! let (w, b) = (g.param("w", Shape::new(&[4, 3], DType::F32)), g.param("b", Shape::new(&[3], DType::F32)));
//! let y = g.mm(x, w);
//! let y = g.add(y, b);
//! let y = g.gelu(y);
//! g.set_outputs(vec![y]);
//! assert_eq!(g.shape(y).to_string(), "[2, 3] f32");
//!
//! // What does not fit is kept, and reported when the graph is verified; the `try_` twin reports at once.
//! assert!(g.try_mm(x, x).is_err());
//! let wrong = g.mm(x, x);
//! let wrong = g.relu(wrong);
//! g.set_outputs(vec![wrong]);
//! assert_eq!(verify(&g).len(), 1);
//! assert!(verify(&g)[0].to_string().contains("cannot multiply [2, 4] f32 by [2, 4] f32"));
//! ```

use std::sync::Arc;

use crate::dim::{Dim, Extent};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, NodeId, fault};
use crate::ops::movement::resolve_reshape;
use crate::ops::{Activation, BinaryOp, CmpOp, MaskKind, Op, ReduceOp, Unseen};
use crate::shape::Shape;
use crate::sort::sort;
use crate::tensor::{ConstData, Value};

/// Declares short forms: from `name / try_name (args) => |g| expression` come the form that keeps a fault
/// in the graph and its twin that reports it.
macro_rules! short_forms {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident / $try_name:ident ( $($arg:ident : $ty:ty),* $(,)? ) => |$g:ident| $body:expr;
    )*) => {$(
        $(#[doc = $doc])*
        #[allow(clippy::too_many_arguments)] // attention has as many as it has
        fn $name(&mut self, $($arg: $ty),*) -> Self::Id {
            match self.$try_name($($arg),*) {
                Ok(id) => id,
                Err(error) => self.keep_fault(error),
            }
        }

        #[doc = concat!("As [`GraphExt::", stringify!($name), "`].")]
        ///
        /// # Errors
        /// An unknown id, or what the op's shape rule reports.
        #[allow(clippy::too_many_arguments)]
        fn $try_name(&mut self, $($arg: $ty),*) -> Result<Self::Id> {
            let $g = self;
            $body
        }
    )*};
}

/// Shape-inferring builders; one implementation for [`Graph`] and [`crate::HirMut`].
///
/// A name that the contract's builders (which take a shape) also have ends in `_`. Axes of type `i32` count
/// from the end when negative. Every form has a `try_` twin: the form itself never fails, it keeps the
/// fault in the graph, where [`crate::verify()`] finds it.
pub trait GraphExt {
    /// What names a node.
    type Id: Copy + PartialEq + std::fmt::Debug;

    /// Adds a node of `op`, its shape inferred.
    ///
    /// # Errors
    /// An unknown id, or what the op's shape rule reports.
    fn try_emit(&mut self, op: Op, inputs: &[Self::Id]) -> Result<Self::Id>;

    /// The shape of a node's first result.
    ///
    /// # Errors
    /// An unknown id, or the fault the node stands for.
    fn try_shape(&self, id: Self::Id) -> Result<&Shape>;

    /// Keeps `error` for the verifier; gives the node that stands for it.
    fn keep_fault(&mut self, error: Error) -> Self::Id;

    /// Adds a node of `op`, its shape inferred; a fault is kept in the graph.
    fn emit(&mut self, op: Op, inputs: &[Self::Id]) -> Self::Id {
        match self.try_emit(op, inputs) {
            Ok(id) => id,
            Err(error) => self.keep_fault(error),
        }
    }

    short_forms! {
        /// The matmul.
        mm / try_mm(a: Self::Id, b: Self::Id) => |g| g.try_emit(Op::MatMul, &[a, b]);

        /// A function of two elements, broadcast as NumPy does.
        bin / try_bin(op: BinaryOp, a: Self::Id, b: Self::Id) => |g| g.try_emit(Op::Binary(op), &[a, b]);
        /// `a + b`.
        add / try_add_(a: Self::Id, b: Self::Id) => |g| g.try_bin(BinaryOp::Add, a, b);
        /// `a - b`.
        sub / try_sub(a: Self::Id, b: Self::Id) => |g| g.try_bin(BinaryOp::Sub, a, b);
        /// `a · b`, each element.
        mul / try_mul(a: Self::Id, b: Self::Id) => |g| g.try_bin(BinaryOp::Mul, a, b);
        /// `a / b`, each element.
        div / try_div(a: Self::Id, b: Self::Id) => |g| g.try_bin(BinaryOp::Div, a, b);
        /// The greater of each two elements.
        maximum / try_maximum(a: Self::Id, b: Self::Id) => |g| g.try_bin(BinaryOp::Max, a, b);
        /// The lesser of each two elements.
        minimum / try_minimum(a: Self::Id, b: Self::Id) => |g| g.try_bin(BinaryOp::Min, a, b);
        /// `aᵇ`, each element.
        pow / try_pow(a: Self::Id, b: Self::Id) => |g| g.try_bin(BinaryOp::Pow, a, b);
        /// A comparison, broadcast as NumPy does; gives bool.
        compare / try_compare(op: CmpOp, a: Self::Id, b: Self::Id) => |g| g.try_emit(Op::Compare(op), &[a, b]);
        /// `condition ? a : b` for each element.
        where_ / try_where(condition: Self::Id, a: Self::Id, b: Self::Id) =>
            |g| g.try_emit(Op::Where, &[condition, a, b]);

        /// A function of each element.
        act / try_act(f: Activation, x: Self::Id) => |g| g.try_emit(Op::Activation(f), &[x]);
        /// `max(x, 0)`.
        relu / try_relu(x: Self::Id) => |g| g.try_act(Activation::Relu, x);
        /// `x·Φ(x)`, exact.
        gelu / try_gelu(x: Self::Id) => |g| g.try_act(Activation::Gelu, x);
        /// `x·Φ(x)` by the tanh approximation.
        gelu_approx / try_gelu_approx(x: Self::Id) => |g| g.try_act(Activation::GeluApprox, x);
        /// `x·sigmoid(x)`.
        silu / try_silu(x: Self::Id) => |g| g.try_act(Activation::Silu, x);
        /// `1 / (1 + e⁻ˣ)`.
        sigmoid / try_sigmoid(x: Self::Id) => |g| g.try_act(Activation::Sigmoid, x);
        /// Hyperbolic tangent.
        tanh / try_tanh(x: Self::Id) => |g| g.try_act(Activation::Tanh, x);
        /// `eˣ`.
        exp / try_exp(x: Self::Id) => |g| g.try_act(Activation::Exp, x);
        /// Natural logarithm.
        ln / try_ln(x: Self::Id) => |g| g.try_act(Activation::Log, x);
        /// Square root.
        sqrt / try_sqrt(x: Self::Id) => |g| g.try_act(Activation::Sqrt, x);
        /// `1 / √x`.
        rsqrt / try_rsqrt(x: Self::Id) => |g| g.try_act(Activation::Rsqrt, x);
        /// `-x`.
        neg / try_neg(x: Self::Id) => |g| g.try_act(Activation::Neg, x);
        /// `|x|`.
        abs / try_abs(x: Self::Id) => |g| g.try_act(Activation::Abs, x);
        /// Sine.
        sin / try_sin(x: Self::Id) => |g| g.try_act(Activation::Sin, x);
        /// Cosine.
        cos / try_cos(x: Self::Id) => |g| g.try_act(Activation::Cos, x);
        /// Another element type.
        cast / try_cast(x: Self::Id, to: DType) =>
            |g| if g.try_shape(x)?.dtype() == to { Ok(x) } else { g.try_emit(Op::Cast { to }, &[x]) };

        /// The reduction over `axes` (none: over all).
        reduce_ / try_reduce(x: Self::Id, op: ReduceOp, axes: &[i32], keep_dim: bool) => |g| {
            let axes = reduced_axes(g.try_shape(x)?, axes)?;
            g.try_emit(Op::Reduce { op, axes, keep_dim }, &[x])
        };
        /// The sum over `axes` (none: over all).
        sum / try_sum(x: Self::Id, axes: &[i32], keep_dim: bool) =>
            |g| g.try_reduce(x, ReduceOp::Sum, axes, keep_dim);
        /// The mean over `axes` (none: over all).
        mean / try_mean(x: Self::Id, axes: &[i32], keep_dim: bool) =>
            |g| g.try_reduce(x, ReduceOp::Mean, axes, keep_dim);

        /// The same elements with other dimensions; one may be -1 (what is left), 0 copies the input's.
        reshape_ / try_reshape(x: Self::Id, to: &[i64]) => |g| {
            let to = resolve_reshape(g.try_shape(x)?, to, false)?;
            g.try_emit(Op::Reshape { to }, &[x])
        };
        /// The same elements with these dimensions, which may be symbolic.
        reshape_to / try_reshape_to(x: Self::Id, to: &[Dim]) => |g| g.try_emit(Op::Reshape { to: to.to_vec() }, &[x]);
        /// Dimensions reordered: result dimension `i` is input dimension `perm[i]`.
        transpose_ / try_transpose(x: Self::Id, perm: &[usize]) =>
            |g| g.try_emit(Op::Transpose { perm: perm.to_vec() }, &[x]);
        /// Broadcast to larger dimensions.
        expand_ / try_expand(x: Self::Id, to: &[Dim]) => |g| g.try_emit(Op::Expand { to: to.to_vec() }, &[x]);
        /// `len` elements along `axis`, from `start` on.
        narrow_ / try_narrow(x: Self::Id, axis: i32, start: usize, len: usize) => |g| {
            let op = narrow(g.try_shape(x)?, axis, start, len)?;
            g.try_emit(op, &[x])
        };
        /// The inputs one after the other along `axis`.
        concat_ / try_concat(xs: &[Self::Id], axis: i32) => |g| {
            let Some(&first) = xs.first() else {
                return Err(Error::new(ErrorKind::InvalidGraph, "concat_ of nothing"));
            };
            let axis = g.try_shape(first)?.axis(axis.into())?;
            g.try_emit(Op::Concat { axis }, xs)
        };
        /// The rows of `table` (along `axis`) that `indices` name.
        gather_ / try_gather(table: Self::Id, indices: Self::Id, axis: i32) => |g| {
            let axis = g.try_shape(table)?.axis(axis.into())?;
            g.try_emit(Op::Gather { axis }, &[table, indices])
        };

        /// Softmax along `axis`.
        sm / try_sm(x: Self::Id, axis: i32) => |g| g.try_emit(Op::Softmax { axis }, &[x]);
        /// The logarithm of softmax along `axis`.
        log_sm / try_log_sm(x: Self::Id, axis: i32) => |g| g.try_emit(Op::LogSoftmax { axis }, &[x]);
        /// Layer norm over `axis` and what follows it.
        layer_norm_ / try_layer_norm(x: Self::Id, gamma: Self::Id, beta: Self::Id, axis: i32, eps: f32) =>
            |g| g.try_emit(Op::LayerNorm { axis, eps }, &[x, gamma, beta]);
        /// Root-mean-square norm over the last dimension.
        rms_norm / try_rms_norm(x: Self::Id, gamma: Self::Id, eps: f32) =>
            |g| g.try_emit(Op::RmsNorm { axis: -1, eps }, &[x, gamma]);
        /// Rotary embedding of the first `n_rot` elements of each head, in halves.
        rope / try_rope(x: Self::Id, cos: Self::Id, sin: Self::Id, head_dim: usize, n_rot: usize) =>
            |g| g.try_emit(Op::Rope { head_dim, n_rot, interleaved: false }, &[x, cos, sin]);
        /// Attention with the default scale; `mask` belongs to [`MaskKind::Custom`].
        attention_ / try_attention(
            q: Self::Id, k: Self::Id, v: Self::Id, mask: Option<Self::Id>,
            num_heads: usize, head_dim: usize, kind: MaskKind,
        ) => |g| {
            let mut inputs = vec![q, k, v];
            inputs.extend(mask);
            let (mask, unseen) = (kind, Unseen::Zero);
            g.try_emit(Op::Attention { num_heads, head_dim, mask, window: None, scale: None, unseen }, &inputs)
        };

        /// A tensor fixed in the graph.
        constant / try_constant(data: ConstData) => |g| g.try_emit(Op::Constant { data: Arc::new(data) }, &[]);
        /// A fixed tensor of one element and no dimensions, `value` converted to `dtype`.
        scalar / try_scalar(value: f64, dtype: DType) => |g| g.try_constant(scalar_data(value, dtype)?);
    }
}

/// One element of `dtype`.
fn scalar_data(value: f64, dtype: DType) -> Result<ConstData> {
    let exact = match dtype {
        _ if dtype.is_float() => Value::float(dtype, &[], vec![value]),
        DType::C64 => return Err(Error::new(ErrorKind::DType, "scalar of a complex type")),
        _ if value.fract() == 0.0 => Value::int(dtype, &[], vec![value as i128]),
        _ => return Err(Error::new(ErrorKind::DType, format!("{value} is no {dtype}"))),
    };
    Ok(exact.rounded().to_const())
}

/// `axes` counted from the front, sorted, without repetition; all of them when none is named.
fn reduced_axes(shape: &Shape, axes: &[i32]) -> Result<Vec<usize>> {
    if axes.is_empty() {
        return Ok((0..shape.rank()).collect());
    }
    let mut axes: Vec<usize> = axes.iter().map(|&a| shape.axis(a.into())).collect::<Result<_>>()?;
    sort(&mut axes);
    axes.dedup();
    Ok(axes)
}

/// The slice that takes `len` elements along one axis.
fn narrow(shape: &Shape, axis: i32, start: usize, len: usize) -> Result<Op> {
    let axis = shape.axis(axis.into())?;
    let (mut starts, mut to) = (vec![Extent::Const(0); shape.rank()], shape.dims().to_vec());
    if let Some(n) = to[axis].as_static()
        && start.checked_add(len).is_none_or(|end| end > n)
    {
        let message = format!("narrow_ of {shape}: {len} elements from {start} on exceed axis {axis}");
        return Err(Error::new(ErrorKind::Shape, message));
    }
    starts[axis] = Dim::Static(start).extent();
    to[axis] = Dim::Static(len);
    Ok(Op::Slice { starts, steps: vec![1; shape.rank()], to })
}

impl GraphExt for Graph {
    type Id = NodeId;

    fn try_emit(&mut self, op: Op, inputs: &[NodeId]) -> Result<NodeId> {
        self.try_add(op, inputs)
    }

    fn try_shape(&self, id: NodeId) -> Result<&Shape> {
        self.value_shape(id)
    }

    fn keep_fault(&mut self, error: Error) -> NodeId {
        let (op, shape) = fault::node(&error);
        // What is built on a fault is that fault.
        match self.nodes().iter().find(|n| n.op == op) {
            Some(same) => same.id,
            None => self.add_node(op, vec![], shape),
        }
    }
}
