//! Extents at run time: every expression of a module evaluated once per binding of its symbols.
//!
//! Steps refer to a slot of the table instead of an expression, so that binding new dimensions walks one
//! flat list and then only reads numbers.

use std::collections::HashMap;

use rlx_ir::{Error, ErrorKind, Extent, Result, sym};

/// A number that is known, or a slot of the [`ExtentTable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ex {
    /// A number.
    Const(i64),
    /// What slot `.0` holds.
    Slot(u32),
}

/// The distinct symbolic expressions of a module.
#[derive(Debug, Default)]
pub(crate) struct ExtentTable {
    exprs: Vec<Extent>,
    ids: HashMap<Extent, u32>,
}

impl ExtentTable {
    /// The place of `e`.
    pub(crate) fn add(&mut self, e: Extent) -> Ex {
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

    /// Evaluates every expression for `dims`, the values of `symbols`.
    pub(crate) fn eval(&self, symbols: &[u32], dims: &[i64], out: &mut Vec<i64>) -> Result<()> {
        out.clear();
        let value = |s: u32| symbols.iter().position(|&x| x == s).map(|i| dims[i]);
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
pub(crate) struct Values<'a>(pub(crate) &'a [i64]);

impl Values<'_> {
    /// The number that `e` stands for.
    pub(crate) fn get(&self, e: Ex) -> i64 {
        match e {
            Ex::Const(c) => c,
            Ex::Slot(i) => self.0[i as usize],
        }
    }

    /// The number as a size.
    pub(crate) fn size(&self, e: Ex) -> Result<usize> {
        let n = self.get(e);
        // i64::MAX is what saturated arithmetic gives.
        usize::try_from(n).ok().filter(|_| n < i64::MAX).ok_or_else(|| {
            Error::new(ErrorKind::Dimension, format!("these dimensions make an extent of {n}"))
        })
    }
}
