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
        self.eval_by(&|s| symbols.iter().position(|&x| x == s).and_then(|i| dims.get(i).copied()), out)
    }

    /// Evaluates every expression by the values that `value` gives.
    ///
    /// # Errors
    /// [`ErrorKind::Dimension`] when it does not know a symbol.
    pub fn eval_by(&self, value: &dyn Fn(u32) -> Option<i64>, out: &mut Vec<i64>) -> Result<()> {
        out.clear();
        self.exprs.iter().try_for_each(|&e| {
            out.push(number(e, value)?);
            Ok(())
        })
    }

    /// Evaluates some expressions again.
    ///
    /// # Errors
    /// As [`ExtentTable::eval_by`].
    pub fn eval_again(
        &self,
        slots: &[u32],
        value: &dyn Fn(u32) -> Option<i64>,
        out: &mut [i64],
    ) -> Result<()> {
        for &slot in slots {
            let at = slot as usize;
            if let (Some(&e), Some(to)) = (self.exprs.get(at), out.get_mut(at)) {
                *to = number(e, value)?;
            }
        }
        Ok(())
    }

    /// The places of the expressions that mention a symbol.
    pub fn mentioning(&self, symbol: u32) -> Vec<u32> {
        let mentions = |e: &Extent| e.symbols().contains(&symbol);
        (0..).zip(&self.exprs).filter(|(_, e)| mentions(e)).map(|(slot, _)| slot).collect()
    }
}

/// The value of an expression.
fn number(e: Extent, value: &dyn Fn(u32) -> Option<i64>) -> Result<i64> {
    e.eval(value).ok_or_else(|| {
        let open = e.symbols().into_iter().find(|&s| value(s).is_none());
        let name = open.map_or_else(String::new, sym::name);
        Error::new(ErrorKind::Dimension, format!("{e} needs a value for {name}"))
    })
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
