//! Elements read as another type of the same width.

use smallvec::smallvec;

use crate::dtype::DTypeClass;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::def::{Arity, OpDef, Ranges};
use crate::ops::elementwise::static_dims;
use crate::ops::{Op, attrs};
use crate::shape::{Shape, Shapes};
use crate::tensor::{ConstData, Value};

#[cfg(feature = "testing")]
use crate::{
    ops::OpKind,
    testing::{Case, Gen},
};

/// [`Op::BitCast`].
pub struct BitCastDef;

impl OpDef for BitCastDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => BitCast { to });
        let from = inputs[0].dtype();
        // Two patterns of bits are truth values, so nothing else can be read as one.
        let fits = from.bits() == to.bits() && (to.class() != DTypeClass::Bool || from == *to);
        if !fits {
            return Err(Error::new(ErrorKind::DType, format!("the bits of {} as {to}", inputs[0])));
        }
        Ok(smallvec![inputs[0].with_dtype(*to)])
    }

    fn holds_for_all(&self, _: &Op, _: &[&Shape], _: Ranges<'_>) -> bool {
        true
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => BitCast { to });
        Ok(vec![ConstData::new(*to, &static_dims(&results[0])?, inputs[0].encode())?.value()])
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let from = g.dtype_where(|d| d.bits() >= 8);
        let to = g.dtype_where(|d| d.bits() == from.bits() && (d.class() != DTypeClass::Bool || d == from));
        let dims = g.dims(0..=3, 0..=5);
        Case::new(Op::BitCast { to }, vec![g.value(from, &dims, 0.0..4.0)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::oracle::evaluate_op;

    #[test]
    fn bits_by_hand() {
        let x = Value::float(DType::F32, &[2], vec![1.0, -2.0]);
        let y = evaluate_op(&Op::BitCast { to: DType::I32 }, &[&x], &[]).unwrap();
        assert_eq!(y[0].ints().unwrap(), [0x3F80_0000, i128::from(0xC000_0000u32 as i32)]);
        assert!(evaluate_op(&Op::BitCast { to: DType::I64 }, &[&x], &[]).is_err());
    }
}
