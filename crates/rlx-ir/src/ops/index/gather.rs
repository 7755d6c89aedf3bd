//! Gathers: elements and slices at positions that are data.

use smallvec::smallvec;

use super::{
    addressed_dims, check_axis, check_indices, check_within, element_places, resolve_index, slice_places,
};
use crate::error::{Error, ErrorKind, Result};
use crate::ops::def::{Arity, OpDef, Ranges};
use crate::ops::{Op, OpKind, attrs};
use crate::oracle::around;
use crate::shape::{Shape, Shapes, agreed_dim};
use crate::tensor::Value;

#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

/// [`Op::Gather`].
pub struct GatherDef;

impl OpDef for GatherDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(2)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Gather { axis });
        let (table, indices) = (inputs[0], inputs[1]);
        check_axis(OpKind::Gather, *axis, table)?;
        check_indices(OpKind::Gather, indices)?;
        let mut dims = table.dims().to_vec();
        dims.splice(*axis..=*axis, indices.dims().iter().copied());
        Ok(smallvec![table.with_dims(dims)])
    }

    fn holds_for_all(&self, _: &Op, _: &[&Shape], _: Ranges<'_>) -> bool {
        true
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Gather { axis });
        let (table, dims) = (inputs[0], results[0].static_dims().unwrap_or_default());
        let (outer, size, inner) = around(&table.dims, *axis);
        let places: Vec<usize> =
            inputs[1].ints()?.iter().map(|&i| resolve_index(i, size)).collect::<Result<_>>()?;
        let mut from = Vec::with_capacity(outer * places.len() * inner);
        for block in 0..outer {
            for place in &places {
                let start = (block * size + place) * inner;
                from.extend(start..start + inner);
            }
        }
        Ok(vec![table.pick(&dims, &from)])
    }

    fn flops(&self, _: &Op, _: &[&Shape], _: &[Shape]) -> f64 {
        0.0
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = g.dims(1..=4, 1..=5);
        let axis = g.size(0..=dims.len() - 1);
        let index_dims = g.dims(0..=2, 1..=4);
        let dtype = g.dtype_where(|_| true);
        let table = g.value(dtype, &dims, -2.0..2.0);
        Case::new(Op::Gather { axis }, vec![table, g.indices(&index_dims, dims[axis])])
    }
}

/// [`Op::GatherElements`].
pub struct GatherElementsDef;

impl OpDef for GatherElementsDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(2)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => GatherElements { axis });
        check_within(OpKind::GatherElements, *axis, inputs[0], inputs[1])?;
        Ok(smallvec![inputs[1].with_dtype(inputs[0].dtype())])
    }

    fn reference(&self, op: &Op, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => GatherElements { axis });
        let (x, indices) = (inputs[0], inputs[1]);
        Ok(vec![x.pick(&indices.dims, &element_places(&x.dims, *axis, indices)?)])
    }

    fn flops(&self, _: &Op, _: &[&Shape], _: &[Shape]) -> f64 {
        0.0
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = g.dims(1..=4, 1..=5);
        let axis = g.size(0..=dims.len() - 1);
        let mut index_dims: Vec<usize> = dims.iter().map(|&d| g.size(1..=d)).collect();
        index_dims[axis] = g.size(1..=6);
        let dtype = g.dtype_where(|_| true);
        let x = g.value(dtype, &dims, -2.0..2.0);
        Case::new(Op::GatherElements { axis }, vec![x, g.indices(&index_dims, dims[axis])])
    }
}

/// [`Op::GatherNd`].
pub struct GatherNdDef;

impl OpDef for GatherNdDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(2)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => GatherNd { batch_dims });
        let (x, indices) = (inputs[0], inputs[1]);
        let count = addressed_dims(OpKind::GatherNd, x, indices, *batch_dims)?;
        let mut dims = indices.dims()[..indices.rank() - 1].to_vec();
        for (i, slot) in dims.iter_mut().enumerate().take(*batch_dims) {
            *slot = agreed_dim(*slot, x.dim(i)).ok_or_else(|| {
                let message = format!("GatherNd of {x} by indices {indices}: batch dimension {i} differs");
                Error::new(ErrorKind::Shape, message)
            })?;
        }
        dims.extend_from_slice(&x.dims()[batch_dims + count..]);
        Ok(smallvec![x.with_dims(dims)])
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => GatherNd { batch_dims });
        let (x, dims) = (inputs[0], results[0].static_dims().unwrap_or_default());
        let (places, len) = slice_places(&x.dims, inputs[1], *batch_dims)?;
        let from: Vec<usize> = places.into_iter().flat_map(|p| p..p + len).collect();
        Ok(vec![x.pick(&dims, &from)])
    }

    fn flops(&self, _: &Op, _: &[&Shape], _: &[Shape]) -> f64 {
        0.0
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = g.dims(1..=4, 1..=4);
        let batch_dims = g.size(0..=dims.len() - 1);
        let count = g.size(1..=dims.len() - batch_dims);
        let mut index_dims = dims[..batch_dims].to_vec();
        index_dims.extend(g.dims(0..=2, 1..=3));
        index_dims.push(count);
        let dtype = g.dtype_where(|_| true);
        let x = g.value(dtype, &dims, -2.0..2.0);
        let rows: usize = index_dims[..index_dims.len() - 1].iter().product();
        let index = (0..rows * count).map(|i| {
            let size = dims[batch_dims + i % count] as i64;
            i128::from(g.int(-size..=size - 1))
        });
        let indices = Value::int(crate::DType::I64, &index_dims, index.collect());
        Case::new(Op::GatherNd { batch_dims }, vec![x, indices])
    }
}
