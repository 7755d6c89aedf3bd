//! Methods of traced tensors by name, for callers that have source code instead of types: `#[rlx_model]`
//! records a model with this while the user's crate compiles.

use std::fmt::Display;
use std::panic::Location;

use super::{Operand, TracedTensor, add};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, NodeId};
use crate::ops::BinaryOp;

/// What a method takes at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgKind {
    /// A tensor.
    Tensor,
    /// Several tensors.
    Tensors,
    /// A tensor or a number.
    Operand,
    /// An axis; negative counts from the end.
    Axis,
    /// A count.
    Size,
    /// A number.
    Number,
    /// True or false.
    Flag,
    /// An element type.
    DType,
    /// Several axes.
    Axes,
    /// Dimensions, of which one may be -1.
    Dims,
    /// An order of axes.
    Permutation,
    /// Dimensions, which may be symbolic.
    Extents,
}

impl ArgKind {
    /// What messages call it.
    pub const fn describe(self) -> &'static str {
        match self {
            ArgKind::Tensor => "a tensor",
            ArgKind::Tensors => "a list of tensors",
            ArgKind::Operand => "a tensor or a number",
            ArgKind::Axis => "an axis (an integer)",
            ArgKind::Size => "a count (an integer that is not negative)",
            ArgKind::Number => "a number",
            ArgKind::Flag => "true or false",
            ArgKind::DType => "an element type (DType::F32, …)",
            ArgKind::Axes => "a list of axes",
            ArgKind::Dims => "a list of dimensions (one may be -1)",
            ArgKind::Permutation => "a list of axes",
            ArgKind::Extents => "a list of dimensions",
        }
    }
}

/// An argument of a method.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Arg {
    /// A tensor.
    Tensor(TracedTensor),
    /// Several tensors.
    Tensors(Vec<TracedTensor>),
    /// An integer.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// True or false.
    Flag(bool),
    /// An element type.
    DType(DType),
    /// Integers.
    Ints(Vec<i64>),
    /// Dimensions of which some are symbolic.
    Dims(Vec<Dim>),
}

/// A method of [`TracedTensor`] that gives one tensor.
#[derive(Debug, Clone, Copy)]
pub struct Method {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// Its arguments: name and kind.
    pub args: &'static [(&'static str, ArgKind)],
    pub(super) build: fn(&mut Graph, NodeId, &[Arg]) -> Result<NodeId>,
}

/// The method called `name`.
pub fn method(name: &str) -> Option<&'static Method> {
    super::methods().find(|m| m.name == name)
}

/// Calls method `name` of `x`.
///
/// # Errors
/// No such method, arguments of other kinds, or what the op's shape rule reports.
#[track_caller]
pub fn call(name: &str, x: &TracedTensor, args: &[Arg]) -> Result<TracedTensor> {
    call_at(Location::caller(), name, x, args)
}

/// As [`call`], from the line `at` of a program of whatever language.
///
/// # Errors
/// As [`call`].
pub fn call_at(at: &dyn Display, name: &str, x: &TracedTensor, args: &[Arg]) -> Result<TracedTensor> {
    let Some(method) = method(name) else {
        return Err(Error::new(ErrorKind::Unsupported, format!("a tensor has no method {name:?}")));
    };
    add(&x.graph, at, |g| (method.build)(g, x.id, args)).checked()
}

/// `a op b`; one of them at least must be a tensor.
///
/// # Errors
/// Two numbers, or what the op's shape rule reports.
#[track_caller]
pub fn binary(op: BinaryOp, a: &Arg, b: &Arg) -> Result<TracedTensor> {
    binary_at(Location::caller(), op, a, b)
}

/// As [`binary`], from the line `at` of a program of whatever language.
///
/// # Errors
/// As [`binary`].
pub fn binary_at(at: &dyn Display, op: BinaryOp, a: &Arg, b: &Arg) -> Result<TracedTensor> {
    let operand = |arg: &Arg| Arguments::new(std::slice::from_ref(arg)).operand();
    let (a, b) = (operand(a)?, operand(b)?);
    let ((Operand::Tensor(like), _) | (_, Operand::Tensor(like))) = (&a, &b) else {
        return Err(Error::new(ErrorKind::InvalidGraph, "an operator of two numbers makes no tensor"));
    };
    let (graph, like) = (like.graph.clone(), like.id);
    let build = |g: &mut crate::Graph| {
        let (a, b) = (a.node(g, like)?, b.node(g, like)?);
        crate::GraphExt::try_bin(g, op, a, b)
    };
    add(&graph, at, build).checked()
}

/// `-x`.
///
/// # Errors
/// What the op's shape rule reports.
pub fn negate(x: &TracedTensor) -> Result<TracedTensor> {
    (-x).checked()
}

/// Takes a method's arguments one by one.
pub(super) struct Arguments<'a> {
    args: &'a [Arg],
    taken: usize,
}

impl<'a> Arguments<'a> {
    pub(super) fn new(args: &'a [Arg]) -> Self {
        Arguments { args, taken: 0 }
    }

    fn next<T>(&mut self, kind: ArgKind, f: impl FnOnce(&Arg) -> Option<T>) -> Result<T> {
        let position = self.taken;
        self.taken += 1;
        let shape_mismatch =
            || Error::new(ErrorKind::Value, format!("argument {} must be {}", position + 1, kind.describe()));
        self.args.get(position).and_then(f).ok_or_else(shape_mismatch)
    }

    pub(super) fn end(&self) -> Result<()> {
        if self.taken == self.args.len() {
            return Ok(());
        }
        let message = format!("{} arguments were given, {} are taken", self.args.len(), self.taken);
        Err(Error::new(ErrorKind::Value, message))
    }

    pub(super) fn tensor(&mut self) -> Result<NodeId> {
        self.next(ArgKind::Tensor, |arg| if let Arg::Tensor(t) = arg { Some(t.id) } else { None })
    }

    pub(super) fn tensors(&mut self) -> Result<Vec<NodeId>> {
        self.next(ArgKind::Tensors, |arg| match arg {
            Arg::Tensors(all) => Some(all.iter().map(|t| t.id).collect()),
            _ => None,
        })
    }

    pub(super) fn operand(&mut self) -> Result<Operand> {
        self.next(ArgKind::Operand, |arg| match arg {
            Arg::Tensor(t) => Some(Operand::Tensor(t.clone())),
            Arg::Int(i) => Some(Operand::Number(*i as f64)),
            Arg::Float(x) => Some(Operand::Number(*x)),
            _ => None,
        })
    }

    pub(super) fn axis(&mut self) -> Result<i32> {
        self.next(ArgKind::Axis, |arg| if let Arg::Int(i) = arg { i32::try_from(*i).ok() } else { None })
    }

    pub(super) fn size(&mut self) -> Result<usize> {
        self.next(ArgKind::Size, |arg| if let Arg::Int(i) = arg { usize::try_from(*i).ok() } else { None })
    }

    pub(super) fn eps(&mut self) -> Result<f32> {
        self.next(ArgKind::Number, |arg| match arg {
            Arg::Float(x) => Some(*x as f32),
            Arg::Int(i) => Some(*i as f32),
            _ => None,
        })
    }

    pub(super) fn flag(&mut self) -> Result<bool> {
        self.next(ArgKind::Flag, |arg| if let Arg::Flag(b) = arg { Some(*b) } else { None })
    }

    pub(super) fn dtype(&mut self) -> Result<DType> {
        self.next(ArgKind::DType, |arg| if let Arg::DType(d) = arg { Some(*d) } else { None })
    }

    fn ints<T: TryFrom<i64>>(&mut self, kind: ArgKind) -> Result<Vec<T>> {
        self.next(kind, |arg| match arg {
            Arg::Ints(v) => v.iter().map(|&i| T::try_from(i).ok()).collect(),
            _ => None,
        })
    }

    pub(super) fn axes(&mut self) -> Result<Vec<i32>> {
        self.ints(ArgKind::Axes)
    }

    pub(super) fn dims(&mut self) -> Result<Vec<i64>> {
        self.ints(ArgKind::Dims)
    }

    pub(super) fn perm(&mut self) -> Result<Vec<usize>> {
        self.ints(ArgKind::Permutation)
    }

    pub(super) fn extents(&mut self) -> Result<Vec<Dim>> {
        self.next(ArgKind::Extents, |arg| match arg {
            Arg::Dims(dims) => Some(dims.clone()),
            Arg::Ints(v) => v.iter().map(|&i| usize::try_from(i).ok().map(Dim::Static)).collect(),
            _ => None,
        })
    }
}
