//! Extents at run time: every expression of a module evaluated once per binding of its symbols.
//!
//! Steps refer to a slot of the table instead of an expression, so that binding new dimensions walks one
//! flat list and then only reads numbers.

use std::collections::HashMap;

use rlx_ir::lir::{Buffer, Operand};
use rlx_ir::{Error, ErrorKind, Extent, Result, sym};

/// A number that is known, or a slot of the [`ExtentTable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ex {
    /// A number.
    Const(i64),
    /// What slot `.0` holds.
    Slot(u32),
}

/// The distinct symbolic expressions of a module.
#[derive(Debug, Default)]
pub struct ExtentTable {
    exprs: Vec<Extent>,
    ids: HashMap<Extent, u32>,
}

impl ExtentTable {
    /// The place of `e`.
    pub fn add(&mut self, e: Extent) -> Ex {
        if let Some(c) = e.as_const() {
            return Ex::Const(c);
        }
        let next = self.exprs.len() as u32;
        let id = *self.ids.entry(e).or_insert(next);
        if id == next {
            self.exprs.push(e);
        }
        Ex::Slot(id)
    }

    /// Evaluates every expression for `dims`, the values of `symbols` (as many).
    ///
    /// # Errors
    /// [`ErrorKind::Dimension`] when an expression has a symbol that is not among `symbols`.
    pub fn eval(&self, symbols: &[u32], dims: &[i64], out: &mut Vec<i64>) -> Result<()> {
        out.clear();
        let value = |s: u32| symbols.iter().position(|&x| x == s).and_then(|i| dims.get(i).copied());
        for e in &self.exprs {
            match e.eval(&value) {
                Some(v) => out.push(v),
                None => {
                    let open = e.symbols().into_iter().find(|&s| value(s).is_none());
                    let name = open.map_or_else(String::new, sym::name);
                    let message = format!("{e} needs a value for {name}");
                    return Err(Error::new(ErrorKind::Dimension, message));
                }
            }
        }
        Ok(())
    }
}

/// The evaluated table.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a>(pub &'a [i64]);

impl Values<'_> {
    /// The number that `e` stands for.
    pub fn get(&self, e: Ex) -> i64 {
        match e {
            Ex::Const(c) => c,
            Ex::Slot(i) => self.0[i as usize],
        }
    }

    /// The number as a size.
    ///
    /// # Errors
    /// [`ErrorKind::Dimension`] when it is negative or too large.
    pub fn size(&self, e: Ex) -> Result<usize> {
        let n = self.get(e);
        // i64::MAX is what saturated arithmetic gives.
        usize::try_from(n).ok().filter(|_| n < i64::MAX).ok_or_else(|| {
            Error::new(ErrorKind::Dimension, format!("these dimensions make an extent of {n}"))
        })
    }
}

/// A view whose extents are entries of a table: what must hold of it before a step may use it.
#[derive(Debug, Clone)]
pub struct ViewCheck {
    offset: Ex,
    dims: Vec<Ex>,
    strides: Vec<Ex>,
    elements: Ex,
}

impl ViewCheck {
    /// The check of an operand that looks into `buffer`.
    pub fn new(operand: &Operand, buffer: &Buffer, table: &mut ExtentTable) -> Self {
        let view = &operand.view;
        ViewCheck {
            offset: table.add(view.offset),
            dims: view.dims.iter().map(|&d| table.add(d)).collect(),
            strides: view.strides.iter().map(|&s| table.add(s)).collect(),
            elements: table.add(buffer.elements),
        }
    }

    /// Whether the view stays within its buffer at these values.
    ///
    /// # Errors
    /// [`ErrorKind::Dimension`] when it does not, or an extent has no sensible value.
    pub fn holds(&self, values: &Values<'_>) -> Result<()> {
        let start = i128::from(values.get(self.offset));
        let (mut low, mut high, mut empty) = (start, start, false);
        for (&d, &s) in self.dims.iter().zip(&self.strides) {
            let dim = values.size(d)?;
            empty |= dim == 0;
            let reach = (dim as i128 - 1) * i128::from(values.get(s));
            if reach < 0 { low += reach } else { high += reach }
        }
        let elements = values.size(self.elements)?;
        // An empty view touches nothing, whatever its strides say.
        if empty || (low >= 0 && high < elements as i128) {
            return Ok(());
        }
        let message =
            format!("these dimensions make a view of elements {low} to {high} of a buffer of {elements}");
        Err(Error::new(ErrorKind::Dimension, message)
            .with_hint("dimensions that the model declares equal differ"))
    }
}
