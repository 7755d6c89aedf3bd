//! The methods of traced tensors: one table, from which come the methods themselves and the list by which
//! `#[rlx_model]` finds and checks them at compile time.

use std::borrow::Borrow;
use std::panic::Location;

use super::dynamic::{Arg, ArgKind, Arguments, Method};
use super::{Operand, TracedTensor};
use crate::dim::{Dim, Extent};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, GraphExt, NodeId};
use crate::ops::elementwise::functions::function_table;
use crate::ops::{Activation, CmpOp, DataFormat, MaskKind, Op, PoolKind, ReduceOp};

/// The Rust type of a method's argument of this kind.
macro_rules! param {
    (tensor) => { impl Borrow<TracedTensor> };
    (tensors) => { impl IntoIterator<Item = impl Borrow<TracedTensor>> };
    (operand) => { impl Into<Operand> };
    (axis) => { i32 };
    (size) => { usize };
    (eps) => { f32 };
    (flag) => { bool };
    (dtype) => { DType };
    (axes) => { impl AsRef<[i32]> };
    (dims) => { impl AsRef<[i64]> };
    (perm) => { impl AsRef<[usize]> };
    (extents) => { impl AsRef<[Dim]> };
}

/// What the body of a method works on.
macro_rules! raw {
    (tensor, $arg:ident) => {
        $arg.borrow().id()
    };
    (tensors, $arg:ident) => {
        $arg.into_iter().map(|t| t.borrow().id()).collect::<Vec<NodeId>>()
    };
    (operand, $arg:ident) => {
        Into::<Operand>::into($arg)
    };
    (axes, $arg:ident) => {
        $arg.as_ref().to_vec()
    };
    (dims, $arg:ident) => {
        $arg.as_ref().to_vec()
    };
    (perm, $arg:ident) => {
        $arg.as_ref().to_vec()
    };
    (extents, $arg:ident) => {
        $arg.as_ref().to_vec()
    };
    ($simple:ident, $arg:ident) => {
        $arg
    };
}

macro_rules! kind {
    (tensor) => {
        ArgKind::Tensor
    };
    (tensors) => {
        ArgKind::Tensors
    };
    (operand) => {
        ArgKind::Operand
    };
    (axis) => {
        ArgKind::Axis
    };
    (size) => {
        ArgKind::Size
    };
    (eps) => {
        ArgKind::Number
    };
    (flag) => {
        ArgKind::Flag
    };
    (dtype) => {
        ArgKind::DType
    };
    (axes) => {
        ArgKind::Axes
    };
    (dims) => {
        ArgKind::Dims
    };
    (perm) => {
        ArgKind::Permutation
    };
    (extents) => {
        ArgKind::Extents
    };
}

macro_rules! methods {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident ( $($arg:ident : $kind:ident),* ) => |$g:ident, $x:ident| $body:expr;
    )*) => {
        /// The methods of a traced tensor. Each adds one or a few nodes; a fault is kept in the graph with the
        /// line of the call.
        impl TracedTensor {
            $(
                $(#[doc = $doc])*
                #[track_caller]
                pub fn $name(&self, $($arg: param!($kind)),*) -> TracedTensor {
                    let at = Location::caller();
                    $(let $arg = raw!($kind, $arg);)*
                    self.then(at, |$g, $x| $body)
                }
            )*
        }

        const METHODS: &[Method] = &[$(
            Method {
                name: stringify!($name),
                doc: concat!($($doc),*),
                args: &[$((stringify!($arg), kind!($kind))),*],
                build: |$g: &mut Graph, $x: NodeId, args: &[Arg]| -> Result<NodeId> {
                    #[allow(unused_mut)] // a method without arguments takes none
                    let mut taken = Arguments::new(args);
                    $(let $arg = taken.$kind()?;)*
                    taken.end()?;
                    $body
                },
            },
        )*];
    };
}

/// The methods of the functions of one element.
macro_rules! function_methods {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident.$method:ident of $takes:ident = $reference:expr, $range:expr $(, $delicate:ident)?;
    )*) => {
        /// The functions of one element, each its own method.
        impl TracedTensor {
            $(
                $(#[doc = $doc])*
                #[track_caller]
                pub fn $method(&self) -> TracedTensor {
                    self.then(Location::caller(), |g, x| g.try_act(Activation::$name, x))
                }
            )*
        }

        const FUNCTIONS: &[Method] = &[$(
            Method {
                name: stringify!($method),
                doc: concat!($($doc),*),
                args: &[],
                build: |g: &mut Graph, x: NodeId, args: &[Arg]| -> Result<NodeId> {
                    Arguments::new(args).end()?;
                    g.try_act(Activation::$name, x)
                },
            },
        )*];
    };
}
function_table!(function_methods);

/// Every method of [`TracedTensor`] that gives one tensor.
pub fn methods() -> impl Iterator<Item = &'static Method> {
    METHODS.iter().chain(FUNCTIONS)
}

methods! {
    /// The matmul.
    matmul(other: tensor) => |g, x| g.try_mm(x, other);
    /// `x · w + b`: a layer of weights `[in, out]` and bias `[out]`.
    linear(w: tensor, b: tensor) => |g, x| {
        let product = g.try_mm(x, w)?;
        g.try_add_(product, b)
    };
    /// Each row times the one of the matrices `[experts, k, n]` that its index chooses.
    grouped_matmul(matrices: tensor, chosen: tensor) =>
        |g, x| g.try_emit(Op::GroupedMatMul, &[x, matrices, chosen]);
    /// The greater of each two elements.
    maximum(other: operand) => |g, x| { let y = other.node(g, x)?; g.try_maximum(x, y) };
    /// The lesser of each two elements.
    minimum(other: operand) => |g, x| { let y = other.node(g, x)?; g.try_minimum(x, y) };
    /// To the power of `exponent`.
    pow(exponent: operand) => |g, x| { let y = exponent.node(g, x)?; g.try_pow(x, y) };
    /// Whether elements are equal.
    equal(other: operand) => |g, x| compare(g, CmpOp::Eq, x, other);
    /// Whether elements differ.
    not_equal(other: operand) => |g, x| compare(g, CmpOp::Ne, x, other);
    /// Whether elements are less.
    less(other: operand) => |g, x| compare(g, CmpOp::Lt, x, other);
    /// Whether elements are less or equal.
    less_equal(other: operand) => |g, x| compare(g, CmpOp::Le, x, other);
    /// Whether elements are greater.
    greater(other: operand) => |g, x| compare(g, CmpOp::Gt, x, other);
    /// Whether elements are greater or equal.
    greater_equal(other: operand) => |g, x| compare(g, CmpOp::Ge, x, other);
    /// Where this (bool) tensor is true the element of `a`, else that of `b`.
    where_(a: tensor, b: operand) => |g, x| { let b = b.node(g, a)?; g.try_where(x, a, b) };

    /// Another element type.
    cast(to: dtype) => |g, x| g.try_cast(x, to);

    /// The sum over `axes` (none: over all).
    sum(axes: axes, keep_dim: flag) => |g, x| g.try_reduce(x, ReduceOp::Sum, &axes, keep_dim);
    /// The mean over `axes` (none: over all).
    mean(axes: axes, keep_dim: flag) => |g, x| g.try_reduce(x, ReduceOp::Mean, &axes, keep_dim);
    /// The largest over `axes` (none: over all).
    max(axes: axes, keep_dim: flag) => |g, x| g.try_reduce(x, ReduceOp::Max, &axes, keep_dim);
    /// The smallest over `axes` (none: over all).
    min(axes: axes, keep_dim: flag) => |g, x| g.try_reduce(x, ReduceOp::Min, &axes, keep_dim);

    /// The same elements with other dimensions; one may be -1 (what is left), 0 copies the tensor's own.
    reshape(to: dims) => |g, x| g.try_reshape(x, &to);
    /// The same elements with these dimensions, which may be symbolic.
    reshape_to(to: extents) => |g, x| g.try_reshape_to(x, &to);
    /// Broadcast to larger dimensions, which may be symbolic.
    expand(to: extents) => |g, x| g.try_expand(x, &to);
    /// Dimensions reordered: result dimension `i` is this tensor's dimension `perm[i]`.
    transpose(perm: perm) => |g, x| g.try_transpose(x, &perm);
    /// Two dimensions exchanged.
    swap_dims(a: axis, b: axis) => |g, x| {
        let shape = g.try_shape(x)?;
        let (a, b) = (shape.axis(a.into())?, shape.axis(b.into())?);
        let mut perm: Vec<usize> = (0..shape.rank()).collect();
        perm.swap(a, b);
        g.try_transpose(x, &perm)
    };
    /// Without dimension `axis`, which must be 1.
    squeeze(axis: axis) => |g, x| squeeze(g, x, axis);
    /// With a dimension of 1 at `axis` of the result.
    unsqueeze(axis: axis) => |g, x| unsqueeze(g, x, axis);
    /// `len` elements along `axis`, from `start` on.
    narrow(axis: axis, start: size, len: size) => |g, x| g.try_narrow(x, axis, start, len);
    /// This tensor and then the others, along `axis`.
    concat(others: tensors, axis: axis) => |g, x| {
        let mut all = vec![x];
        all.extend(others);
        g.try_concat(&all, axis)
    };
    /// The slices of this tensor (along `axis`) that `indices` name.
    gather(indices: tensor, axis: axis) => |g, x| g.try_gather(x, indices, axis);

    /// Softmax along `axis`.
    softmax(axis: axis) => |g, x| g.try_sm(x, axis);
    /// The logarithm of softmax along `axis`.
    log_softmax(axis: axis) => |g, x| g.try_log_sm(x, axis);
    /// Layer norm over the last dimension.
    layer_norm(gamma: tensor, beta: tensor, eps: eps) => |g, x| g.try_layer_norm(x, gamma, beta, -1, eps);
    /// Root-mean-square norm over the last dimension.
    rms_norm(gamma: tensor, eps: eps) => |g, x| g.try_rms_norm(x, gamma, eps);
    /// Rotary embedding of the first `n_rot` elements of each head, in halves.
    rope(cos: tensor, sin: tensor, head_dim: size, n_rot: size) =>
        |g, x| g.try_rope(x, cos, sin, head_dim, n_rot);
    /// Attention of these queries to keys and values, without a mask.
    attention(k: tensor, v: tensor, num_heads: size, head_dim: size) =>
        |g, x| g.try_attention(x, k, v, None, num_heads, head_dim, MaskKind::None);
    /// Attention of these queries to the keys up to their own position.
    causal_attention(k: tensor, v: tensor, num_heads: size, head_dim: size) =>
        |g, x| g.try_attention(x, k, v, None, num_heads, head_dim, MaskKind::Causal);
    /// Attention with a mask: additive when it is a float, allowed where true when it is a bool.
    masked_attention(k: tensor, v: tensor, mask: tensor, num_heads: size, head_dim: size) =>
        |g, x| g.try_attention(x, k, v, Some(mask), num_heads, head_dim, MaskKind::Custom);
    /// Convolution of images `[N, C, H, W]` with weights `[O, C, k, k]`.
    conv2d(w: tensor, stride: size, padding: size) => |g, x| {
        let op = Op::Conv {
            strides: vec![stride; 2], pads: vec![padding; 4], dilations: vec![1; 2], groups: 1,
            format: DataFormat::ChannelsFirst,
        };
        g.try_emit(op, &[x, w])
    };
    /// The largest of each window of an image `[N, C, H, W]`.
    max_pool2d(kernel: size, stride: size) => |g, x| g.try_emit(pool(PoolKind::Max, kernel, stride), &[x]);
    /// The mean of each window of an image `[N, C, H, W]`.
    avg_pool2d(kernel: size, stride: size) => |g, x| g.try_emit(pool(PoolKind::Average, kernel, stride), &[x]);
}

fn compare(g: &mut Graph, op: CmpOp, x: NodeId, other: Operand) -> Result<NodeId> {
    let y = other.node(g, x)?;
    g.try_compare(op, x, y)
}

fn squeeze(g: &mut Graph, x: NodeId, axis: i32) -> Result<NodeId> {
    let shape = g.try_shape(x)?;
    let axis = shape.axis(axis.into())?;
    let mut dims = shape.dims().to_vec();
    if dims.remove(axis) != Dim::Static(1) {
        let message = format!("squeeze of {shape}: dimension {axis} is not 1");
        return Err(Error::new(ErrorKind::Shape, message));
    }
    g.try_reshape_to(x, &dims)
}

fn unsqueeze(g: &mut Graph, x: NodeId, axis: i32) -> Result<NodeId> {
    let shape = g.try_shape(x)?;
    let axis = crate::shape::normalize_axis(axis.into(), shape.rank() + 1)
        .map_err(|_| Error::new(ErrorKind::Shape, format!("unsqueeze of {shape} has no axis {axis}")))?;
    let mut dims = shape.dims().to_vec();
    dims.insert(axis, Dim::from(Extent::Const(1)));
    g.try_reshape_to(x, &dims)
}

fn pool(kind: PoolKind, kernel: usize, stride: usize) -> Op {
    Op::Pool {
        kind,
        kernel: vec![kernel; 2],
        strides: vec![stride; 2],
        pads: vec![0; 4],
        dilations: vec![1; 2],
        ceil_mode: false,
        count_include_pad: false,
        format: DataFormat::ChannelsFirst,
    }
}
