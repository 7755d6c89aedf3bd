//! An input, parameter or output with its dimensions prepared for a run.

use std::sync::Arc;

use rlx_ir::{DType, Dim, Extent, Shape};

use super::tensor::TensorInfo;

/// What is declared of all inputs, parameters or outputs: a graph and its clones share it.
pub(super) type Infos = Arc<[TensorInfo]>;

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
    infos: Infos,
    at: usize,
    pub(super) dtype: DType,
    /// Empty where all dimensions are fixed.
    forms: Box<[DimForm]>,
    /// First as the caller sees them, then as the device computes them, which is less under an active extent.
    numbers: Box<[usize]>,
    /// Whether the two differ.
    cropped: bool,
}

impl Slot {
    /// One slot for each tensor of the list.
    pub(super) fn all(infos: &Infos, symbols: &[u32]) -> Vec<Slot> {
        (0..infos.len()).map(|at| Slot::new(infos, at, symbols)).collect()
    }

    fn new(infos: &Infos, at: usize, symbols: &[u32]) -> Self {
        let form = |d: &Dim| match *d {
            Dim::Static(n) => DimForm::Fixed(n),
            Dim::Dynamic(s) => match symbols.binary_search(&s) {
                Ok(i) => DimForm::Symbol(i),
                Err(_) => DimForm::Expr(d.extent()),
            },
            _ => DimForm::Expr(d.extent()),
        };
        let shape = &infos[at].shape;
        let fixed: Option<Vec<usize>> = shape.dims().iter().map(|d| d.as_static()).collect();
        let (forms, numbers) = match fixed {
            Some(dims) => (Box::default(), [&dims[..], &dims[..]].concat()),
            None => (shape.dims().iter().map(form).collect(), vec![0; 2 * shape.rank()]),
        };
        Slot {
            infos: Arc::clone(infos),
            at,
            dtype: shape.dtype(),
            forms,
            numbers: numbers.into(),
            cropped: false,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.infos[self.at].name
    }

    /// As declared.
    pub(super) fn shape(&self) -> &Shape {
        &self.infos[self.at].shape
    }

    /// The dimensions as the caller sees them.
    pub(super) fn dims(&self) -> &[usize] {
        &self.numbers[..self.numbers.len() / 2]
    }

    /// The dimensions as the device computes them.
    pub(super) fn run_dims(&self) -> &[usize] {
        &self.numbers[self.numbers.len() / 2..]
    }

    pub(super) fn rank(&self) -> usize {
        self.numbers.len() / 2
    }

    pub(super) fn form(&self, i: usize) -> DimForm {
        self.forms.get(i).copied().unwrap_or_else(|| DimForm::Fixed(self.numbers[i]))
    }

    /// Dimension `i` when the symbols have these values; `None` when one is unknown or makes no sense.
    pub(super) fn dim_at(&self, i: usize, symbols: &[u32], values: &[i64]) -> Option<usize> {
        let known = |v: i64| (v != UNKNOWN).then_some(v);
        match self.form(i) {
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
        if self.forms.is_empty() {
            return true;
        }
        for i in 0..self.forms.len() {
            let (Some(full), Some(run)) = (self.dim_at(i, symbols, full), self.dim_at(i, symbols, run))
            else {
                return false;
            };
            self.set(i, full, run);
        }
        self.cropped = self.dims() != self.run_dims();
        true
    }

    /// Computes the dimensions of a tensor with data-dependent dimensions; `false` if a symbol is unknown.
    /// Such a tensor is returned as the device computed it, without padding to the upper extent.
    pub(super) fn evaluate_found(&mut self, value: &dyn Fn(u32) -> Option<i64>) -> bool {
        for i in 0..self.forms.len() {
            let dim = self.shape().dim(i).eval(value).and_then(|n| usize::try_from(n).ok());
            let Some(dim) = dim else { return false };
            self.set(i, dim, dim);
        }
        self.cropped = false;
        true
    }

    fn set(&mut self, i: usize, full: usize, run: usize) {
        let rank = self.rank();
        (self.numbers[i], self.numbers[rank + i]) = (full, run);
    }

    /// How many elements the caller's tensor has; `None` on overflow.
    pub(super) fn elements(&self) -> Option<usize> {
        self.dims().iter().try_fold(1usize, |n, &d| n.checked_mul(d))
    }

    /// Bytes of the caller's tensor.
    pub(super) fn bytes(&self) -> Option<usize> {
        self.dtype.storage_bytes(self.elements()?)
    }

    /// Bytes of the device's tensor.
    pub(super) fn run_bytes(&self) -> Option<usize> {
        self.dtype.storage_bytes(self.run_dims().iter().try_fold(1usize, |n, &d| n.checked_mul(d))?)
    }

    /// Whether the device's tensor is smaller than the caller's.
    #[inline]
    pub(super) fn cropped(&self) -> bool {
        self.cropped
    }
}
