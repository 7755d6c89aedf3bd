//! An input, parameter or output with its dimensions prepared for a run.

use rlx_ir::lir::IoSlot;
use rlx_ir::{DType, Dim, Extent, Shape};

/// The value of a symbol that is not known (yet).
pub(super) const UNKNOWN: i64 = -1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DimForm {
    Fixed(usize),
    /// Position among the module's symbols.
    Symbol(usize),
    Expr(Extent),
}

/// An input or output, and its dimensions in the current run.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    pub(super) forms: Vec<DimForm>,
    /// As the caller sees them.
    pub(super) dims: Vec<usize>,
    /// As the device computes them: less than `dims` under an active extent.
    pub(super) run_dims: Vec<usize>,
}

impl Slot {
    pub(super) fn new(slot: &IoSlot, symbols: &[u32]) -> Self {
        let form = |d: &Dim| match *d {
            Dim::Static(n) => DimForm::Fixed(n),
            Dim::Dynamic(s) => match symbols.binary_search(&s) {
                Ok(i) => DimForm::Symbol(i),
                Err(_) => DimForm::Expr(d.extent()),
            },
            _ => DimForm::Expr(d.extent()),
        };
        let rank = slot.shape.rank();
        Slot {
            name: slot.name.clone(),
            dtype: slot.shape.dtype(),
            shape: slot.shape.clone(),
            forms: slot.shape.dims().iter().map(form).collect(),
            dims: vec![0; rank],
            run_dims: vec![0; rank],
        }
    }

    /// Dimension `i` when the symbols have these values; `None` when one is unknown or makes no sense.
    pub(super) fn dim_at(&self, i: usize, symbols: &[u32], values: &[i64]) -> Option<usize> {
        let known = |v: i64| (v != UNKNOWN).then_some(v);
        match self.forms[i] {
            DimForm::Fixed(n) => Some(n),
            DimForm::Symbol(s) => usize::try_from(known(values[s])?).ok(),
            DimForm::Expr(e) => {
                let value = |s: u32| known(values[symbols.binary_search(&s).ok()?]);
                usize::try_from(e.eval(&value)?).ok()
            }
        }
    }

    /// Works out `dims` and `run_dims`; `false` when a symbol is unknown.
    pub(super) fn evaluate(&mut self, symbols: &[u32], full: &[i64], run: &[i64]) -> bool {
        for i in 0..self.forms.len() {
            let (Some(full), Some(run)) = (self.dim_at(i, symbols, full), self.dim_at(i, symbols, run))
            else {
                return false;
            };
            (self.dims[i], self.run_dims[i]) = (full, run);
        }
        true
    }

    /// Computes the dimensions of a tensor with data-dependent dimensions; `false` if a symbol is unknown.
    /// Such a tensor is returned as the device computed it, without padding to the upper extent.
    pub(super) fn evaluate_found(&mut self, value: &dyn Fn(u32) -> Option<i64>) -> bool {
        for i in 0..self.forms.len() {
            let dim = self.shape.dim(i).eval(value).and_then(|n| usize::try_from(n).ok());
            let Some(dim) = dim else { return false };
            (self.dims[i], self.run_dims[i]) = (dim, dim);
        }
        true
    }

    /// How many elements the caller's tensor has; `None` on overflow.
    pub(super) fn elements(&self) -> Option<usize> {
        self.dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
    }

    /// Bytes of the caller's tensor.
    pub(super) fn bytes(&self) -> Option<usize> {
        self.dtype.storage_bytes(self.elements()?)
    }

    /// Bytes of the device's tensor.
    pub(super) fn run_bytes(&self) -> Option<usize> {
        self.dtype.storage_bytes(self.run_dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?)
    }

    /// Whether the device's tensor is smaller than the caller's.
    pub(super) fn cropped(&self) -> bool {
        self.dims != self.run_dims
    }
}
