//! One operation with its operands, which must be taken all.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::{Data, Res, Tensor, Ty};

/// A value in a program, and whether it is a constant of it.
#[derive(Debug, Clone)]
pub struct Bound {
    pub tensor: Rc<Tensor>,
    pub constant: bool,
}

/// The operands by name.
pub struct Call {
    pub inputs: BTreeMap<String, Vec<Bound>>,
    taken: RefCell<Vec<String>>,
}

impl Call {
    pub fn new(inputs: BTreeMap<String, Vec<Bound>>) -> Call {
        Call { inputs, taken: RefCell::default() }
    }

    fn find(&self, name: &str) -> Option<&[Bound]> {
        self.taken.borrow_mut().push(name.to_string());
        self.inputs.get(name).map(Vec::as_slice)
    }

    fn one(&self, name: &str) -> Res<Option<&Bound>> {
        match self.find(name) {
            None => Ok(None),
            Some([bound]) => Ok(Some(bound)),
            Some(many) => Err(format!("{} values for {name:?}", many.len())),
        }
    }

    /// A value.
    pub fn any(&self, name: &str) -> Res<Rc<Tensor>> {
        self.one(name)?.map(|b| Rc::clone(&b.tensor)).ok_or_else(|| format!("{name:?} is missing"))
    }

    /// A value of one of these types.
    pub fn of(&self, name: &str, types: &[Ty]) -> Res<Rc<Tensor>> {
        let tensor = self.any(name)?;
        if types.contains(&tensor.ty) { Ok(tensor) } else { Err(format!("{name:?} is {:?}", tensor.ty)) }
    }

    /// Floats.
    pub fn float(&self, name: &str) -> Res<Rc<Tensor>> {
        self.of(name, &[Ty::F32, Ty::F16])
    }

    /// A constant, if it is given.
    pub fn maybe_constant(&self, name: &str) -> Res<Option<Rc<Tensor>>> {
        match self.one(name)? {
            Some(bound) if !bound.constant => Err(format!("{name:?} is no constant")),
            other => Ok(other.map(|b| Rc::clone(&b.tensor))),
        }
    }

    /// A value, if it is given.
    pub fn maybe(&self, name: &str) -> Res<Option<Rc<Tensor>>> {
        Ok(self.one(name)?.map(|b| Rc::clone(&b.tensor)))
    }

    /// A constant.
    pub fn constant(&self, name: &str) -> Res<Rc<Tensor>> {
        self.maybe_constant(name)?.ok_or_else(|| format!("{name:?} is missing"))
    }

    /// A list of constant integers, of this many if it says.
    pub fn ints(&self, name: &str, count: Option<usize>) -> Res<Vec<usize>> {
        let tensor = self.constant(name)?;
        let right = tensor.ty == Ty::I32 && tensor.dims.len() == 1;
        if !right || count.is_some_and(|n| n != tensor.len()) {
            return Err(format!("{name:?} is {:?} {:?}", tensor.ty, tensor.dims));
        }
        let natural = |&v: &i32| usize::try_from(v).map_err(|_| format!("{v} in {name:?}"));
        tensor.as_ints()?.iter().map(natural).collect()
    }

    /// A constant of no dimensions.
    fn scalar(&self, name: &str, types: &[Ty]) -> Res<Rc<Tensor>> {
        let tensor = self.constant(name)?;
        if !tensor.dims.is_empty() || !types.contains(&tensor.ty) {
            return Err(format!("{name:?} is {:?} {:?}", tensor.ty, tensor.dims));
        }
        Ok(tensor)
    }

    /// A constant integer.
    pub fn int(&self, name: &str) -> Res<i32> {
        Ok(self.scalar(name, &[Ty::I32])?.as_ints()?[0])
    }

    /// A constant axis of so many.
    pub fn axis(&self, name: &str, rank: usize) -> Res<usize> {
        let axis = self.int(name)?;
        let counted = if axis < 0 { axis + rank as i32 } else { axis };
        usize::try_from(counted).ok().filter(|&a| a < rank).ok_or_else(|| format!("axis {axis} of {rank}"))
    }

    /// A constant truth value.
    pub fn flag(&self, name: &str) -> Res<bool> {
        Ok(self.scalar(name, &[Ty::Bool])?.as_bools()?[0])
    }

    /// A constant float.
    pub fn number(&self, name: &str) -> Res<f32> {
        Ok(self.scalar(name, &[Ty::F32, Ty::F16])?.as_floats()?[0])
    }

    /// A constant text, one of these.
    pub fn mode(&self, name: &str, known: &[&str]) -> Res<String> {
        match &self.scalar(name, &[Ty::Text])?.data {
            Data::Text(text) if known.contains(&text.as_str()) => Ok(text.clone()),
            other => Err(format!("{name:?} is {other:?}")),
        }
    }

    /// A list of values.
    pub fn many(&self, name: &str) -> Res<Vec<Rc<Tensor>>> {
        let found = self.find(name).ok_or_else(|| format!("{name:?} is missing"))?;
        Ok(found.iter().map(|b| Rc::clone(&b.tensor)).collect())
    }

    /// Whether every operand was taken.
    pub fn all_taken(&self) -> Res<()> {
        let taken = self.taken.borrow();
        match self.inputs.keys().find(|name| !taken.contains(name)) {
            Some(name) => Err(format!("it has no operand {name:?}")),
            None => Ok(()),
        }
    }
}
