//! `+ - * /` and unary `-` of traced tensors, among themselves and with numbers.

use std::ops::{Add, Div, Mul, Neg, Sub};
use std::panic::Location;

use super::TracedTensor;
use crate::error::Result;
use crate::graph::{Graph, GraphExt, NodeId};
use crate::ops::BinaryOp;

/// What is on the other side of an operator: a tensor, or a number, which takes the tensor's element type.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Operand {
    /// Another tensor.
    Tensor(TracedTensor),
    /// A number.
    Number(f64),
}

impl Operand {
    /// The operand as a node; a number becomes a constant of the element type of `like`.
    pub(super) fn node(self, g: &mut Graph, like: NodeId) -> Result<NodeId> {
        match self {
            Operand::Tensor(tensor) => Ok(tensor.id),
            Operand::Number(value) => {
                let dtype = g.try_shape(like)?.dtype();
                g.try_scalar(value, dtype)
            }
        }
    }
}

impl From<TracedTensor> for Operand {
    fn from(tensor: TracedTensor) -> Self {
        Operand::Tensor(tensor)
    }
}

impl From<&TracedTensor> for Operand {
    fn from(tensor: &TracedTensor) -> Self {
        Operand::Tensor(tensor.clone())
    }
}

macro_rules! numbers {
    ($($ty:ty),*) => {$(
        impl From<$ty> for Operand {
            fn from(value: $ty) -> Self {
                Operand::Number(value.into())
            }
        }
    )*};
}
numbers!(f64, f32, i32, u32, i16, u16, i8, u8);

/// `tensor op other`.
fn right(at: &Location<'_>, op: BinaryOp, a: &TracedTensor, b: Operand) -> TracedTensor {
    a.then(at, |g, a| {
        let b = b.node(g, a)?;
        g.try_bin(op, a, b)
    })
}

/// `number op tensor`.
fn left(at: &Location<'_>, op: BinaryOp, a: f64, b: &TracedTensor) -> TracedTensor {
    b.then(at, |g, b| {
        let a = Operand::Number(a).node(g, b)?;
        g.try_bin(op, a, b)
    })
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident;)*) => {$(
        impl<T: Into<Operand>> $trait<T> for TracedTensor {
            type Output = TracedTensor;

            #[track_caller]
            fn $method(self, other: T) -> TracedTensor {
                right(Location::caller(), BinaryOp::$op, &self, other.into())
            }
        }

        impl<T: Into<Operand>> $trait<T> for &TracedTensor {
            type Output = TracedTensor;

            #[track_caller]
            fn $method(self, other: T) -> TracedTensor {
                right(Location::caller(), BinaryOp::$op, self, other.into())
            }
        }

        operators!(left $trait $method $op f64 f32 i32);
    )*};
    (left $trait:ident $method:ident $op:ident $($number:ty)*) => {$(
        impl $trait<TracedTensor> for $number {
            type Output = TracedTensor;

            #[track_caller]
            fn $method(self, other: TracedTensor) -> TracedTensor {
                left(Location::caller(), BinaryOp::$op, self.into(), &other)
            }
        }

        impl $trait<&TracedTensor> for $number {
            type Output = TracedTensor;

            #[track_caller]
            fn $method(self, other: &TracedTensor) -> TracedTensor {
                left(Location::caller(), BinaryOp::$op, self.into(), other)
            }
        }
    )*};
}

operators! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div Div;
}

impl Neg for TracedTensor {
    type Output = TracedTensor;

    #[track_caller]
    fn neg(self) -> TracedTensor {
        self.then(Location::caller(), |g, x| g.try_neg(x))
    }
}

impl Neg for &TracedTensor {
    type Output = TracedTensor;

    #[track_caller]
    fn neg(self) -> TracedTensor {
        self.then(Location::caller(), |g, x| g.try_neg(x))
    }
}
