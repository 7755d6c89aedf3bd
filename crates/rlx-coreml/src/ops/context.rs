//! What translations share: the node being translated, and the operations that many of them need.

use rlx_ir::DType;

use crate::mil::{Builder, Mil, Tensor, Type};
use crate::ranges::Range;

/// The most dimensions of a tensor.
pub const MAX_RANK: usize = 5;

/// The dimensions that a value of these dimensions is held with.
pub fn held(dims: &[usize]) -> Vec<usize> {
    match dims.len() {
        0 => vec![1],
        1..=MAX_RANK => dims.to_vec(),
        _ => vec![dims.iter().product()],
    }
}

/// A value of the graph: its type and dimensions there.
#[derive(Debug, Clone)]
pub struct Declared {
    /// The element type.
    pub dtype: DType,
    /// The dimensions.
    pub dims: Vec<usize>,
}

/// A node that is being translated.
pub struct Ctx<'a> {
    /// Where operations are written.
    pub b: &'a mut Builder,
    /// The operands as they are held.
    pub ins: Vec<Tensor>,
    /// The operands in the graph.
    pub given: Vec<Declared>,
    /// The results in the graph.
    pub results: Vec<Declared>,
    /// The values that integers may have, operands first, then the results.
    pub ranges: Vec<Range>,
}

impl Ctx<'_> {
    /// The first result's dimensions in the graph.
    pub fn out(&self) -> &[usize] {
        &self.results[0].dims
    }

    /// How the first result is held: its type and dimensions.
    pub fn held_out(&self) -> Mil<(Type, Vec<usize>)> {
        let out = &self.results[0];
        Ok((holding(out.dtype)?, held(&out.dims)))
    }

    /// An operand.
    pub fn x(&self, index: usize) -> Tensor {
        self.ins[index].clone()
    }

    /// An operation on values of one type that broadcast to `dims`.
    pub fn binary(&mut self, op: &str, x: &Tensor, y: &Tensor, ty: Type, dims: &[usize]) -> Tensor {
        self.b.op(op, &[("x", x.into()), ("y", y.into())], ty, dims)
    }

    /// An operation on a value and a number, which give what the value's dimensions are.
    pub fn with_number(&mut self, op: &str, x: &Tensor, number: f32) -> Tensor {
        let y = self.b.number(x.ty, number);
        self.binary(op, x, &y, x.ty, &x.dims)
    }

    /// A comparison with a number.
    pub fn compare_number(&mut self, op: &str, x: &Tensor, number: f32) -> Tensor {
        let y = self.b.number(x.ty, number);
        self.binary(op, x, &y, Type::Bool, &x.dims)
    }

    /// A function of one value.
    pub fn unary(&mut self, op: &str, x: &Tensor) -> Tensor {
        self.b.op(op, &[("x", x.into())], x.ty, &x.dims)
    }

    /// `condition ? a : b`, all of the same dimensions, or the operands single numbers.
    pub fn select(&mut self, condition: &Tensor, a: &Tensor, b: &Tensor) -> Tensor {
        // The result's dimensions are those of the two values alone.
        let a = if a.dims == condition.dims { a.clone() } else { expanded(self.b, a, &condition.dims) };
        let b = if b.dims == condition.dims { b.clone() } else { expanded(self.b, b, &condition.dims) };
        let inputs = [("cond", condition.into()), ("a", (&a).into()), ("b", (&b).into())];
        self.b.op("select", &inputs, a.ty, &condition.dims)
    }

    /// Whether every result of integers is sure to fit its type and `int32`.
    ///
    /// # Errors
    /// The reason why not.
    pub fn fits(&self) -> Mil<()> {
        for (at, result) in self.results.iter().enumerate() {
            // What wraps around at 32 bits in the graph does so in MIL.
            if result.dtype.is_int()
                && result.dtype != DType::I32
                && !self.ranges[self.given.len() + at].fits(result.dtype)
            {
                return Err(format!(
                    "Core ML computes with 32-bit integers, and results of {} may not fit",
                    result.dtype
                ));
            }
        }
        Ok(())
    }
}

/// The type that holds elements of `dtype`.
///
/// # Errors
/// Names the type.
pub fn holding(dtype: DType) -> Mil<Type> {
    Type::holding(dtype).ok_or_else(|| format!("Core ML does not compute with {dtype}"))
}

/// The same value with other dimensions, as many elements.
pub fn reshaped(b: &mut Builder, x: &Tensor, dims: &[usize]) -> Tensor {
    if x.dims == dims {
        return x.clone();
    }
    let shape = b.ints(dims);
    b.op("reshape", &[("x", x.into()), ("shape", (&shape).into())], x.ty, dims)
}

/// The value as another type.
pub fn cast(b: &mut Builder, x: &Tensor, ty: Type) -> Tensor {
    if x.ty == ty {
        return x.clone();
    }
    let dtype = b.text(ty.name());
    b.op("cast", &[("x", x.into()), ("dtype", (&dtype).into())], ty, &x.dims)
}

/// The value broadcast to `dims` by NumPy's rule; both have at most five dimensions.
pub fn expanded(b: &mut Builder, x: &Tensor, dims: &[usize]) -> Tensor {
    if x.dims == dims {
        return x.clone();
    }
    let padded = [vec![1; dims.len().saturating_sub(x.dims.len())], x.dims.clone()].concat();
    let x = reshaped(b, x, &padded);
    let reps: Vec<usize> = dims.iter().zip(&padded).map(|(&d, &p)| if p == d { 1 } else { d }).collect();
    if reps.iter().all(|&r| r == 1) {
        return x;
    }
    let reps = b.ints(&reps);
    b.op("tile", &[("x", (&x).into()), ("reps", (&reps).into())], x.ty, dims)
}
