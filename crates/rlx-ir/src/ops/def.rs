//! What an op's definition states: the [`OpDef`] trait.
//!
//! A definition is a unit struct in its family's file. It gives arity, shape rule, reference semantics
//! and, where the op is a composite, its decomposition; with feature `testing` also a generator of random
//! valid cases. The reference semantics are the oracle: slow, obvious, in `f64` or exact integers, and
//! shared with no backend.

use crate::dim::{Dim, Extent, SymRange, check_extents};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, NodeId};
use crate::ops::{Op, OpKind};
use crate::progress::Progress;
use crate::shape::{Shape, Shapes};
use crate::tensor::Value;

#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

/// How many inputs an op takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arity {
    /// Exactly this many.
    Exact(usize),
    /// From the first to the second, both included.
    Between(usize, usize),
    /// This many or more.
    AtLeast(usize),
}

impl Arity {
    /// Whether `n` inputs fit.
    pub fn accepts(self, n: usize) -> bool {
        match self {
            Arity::Exact(want) => n == want,
            Arity::Between(low, high) => (low..=high).contains(&n),
            Arity::AtLeast(low) => n >= low,
        }
    }
}

impl std::fmt::Display for Arity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Arity::Exact(n) => write!(f, "{n}"),
            Arity::Between(low, high) => write!(f, "{low} to {high}"),
            Arity::AtLeast(low) => write!(f, "at least {low}"),
        }
    }
}

/// What computing a node takes, as expressions over its symbols evaluated at a binding.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Arithmetic operations; a multiply-add counts as two.
    pub flops: f64,
    /// Bytes read and written when nothing is fused or cached.
    pub bytes: f64,
}

/// The values that each symbol can take.
pub type Ranges<'a> = &'a dyn Fn(u32) -> SymRange;

/// Everything the system knows about one op.
pub trait OpDef: Sync {
    /// How many inputs the op takes.
    fn arity(&self, op: &Op) -> Arity;

    /// The shapes of the results from the shapes of the inputs (arity already checked).
    ///
    /// `declared` is what the node says of itself; only ops whose shape cannot be inferred (inputs,
    /// parameters, custom ops) may use it.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] or [`ErrorKind::DType`], naming the shapes and the rule.
    fn infer(&self, op: &Op, inputs: &[&Shape], declared: &[Shape]) -> Result<Shapes>;

    /// Whether [`OpDef::infer`], which accepted these shapes and gave what the node declares, does so for every value
    /// that their symbols can take. Where dimensions are expressions that may or may not be equal, `infer` accepts what
    /// could fit; only those rules have to be evaluated again when the symbols have values.
    ///
    /// `false` is always correct. `true` must be a proof: kernels rely on it. `range` gives the values of a symbol.
    fn holds_for_all(&self, op: &Op, inputs: &[&Shape], range: Ranges<'_>) -> bool {
        let _ = (op, inputs, range);
        false
    }

    /// The results, computed the obvious way: `f64` or exact integers. The caller rounds them to the
    /// declared element type. `results` are the fixed shapes that `infer` gave.
    ///
    /// # Errors
    /// [`ErrorKind::Value`] for values the op forbids, such as an index out of range.
    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>>;

    /// As [`OpDef::reference`]. An op with bodies asks between their nodes whether to go on, a convolution between its results.
    ///
    /// # Errors
    /// As [`OpDef::reference`]; [`ErrorKind::Cancelled`].
    fn reference_with_progress(
        &self,
        op: &Op,
        inputs: &[&Value],
        results: &[Shape],
        progress: &Progress,
    ) -> Result<Vec<Value>> {
        let _ = progress;
        self.reference(op, inputs, results)
    }

    /// About how many steps [`OpDef::reference`] takes: the arithmetic, and what is read and written.
    fn work(&self, op: &Op, inputs: &[&Shape], results: &[Shape]) -> f64 {
        let elements = |s: &Shape| s.num_elements().map_or(f64::INFINITY, |n| n as f64);
        let moved: f64 = inputs.iter().map(|s| elements(s)).chain(results.iter().map(elements)).sum();
        moved + self.flops(op, inputs, results)
    }

    /// For a composite: builds the same results from simpler ops in `graph` and gives their ids, one
    /// for each result. `None` for a primitive.
    ///
    /// # Errors
    /// Whatever the builders report.
    fn decompose(&self, op: &Op, inputs: &[NodeId], graph: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        let _ = (op, inputs, graph);
        None
    }

    /// For an op that finds out a dimension of its result when it runs: its attribute that stands for it, a symbol
    /// that the op binds (or its value, where that is known).
    fn counted(&self, op: &Op) -> Option<Dim> {
        let _ = op;
        None
    }

    /// The dimension that an op with [`OpDef::counted`] finds for these operands.
    ///
    /// # Errors
    /// As [`OpDef::reference`].
    fn count(&self, op: &Op, inputs: &[&Value], progress: &Progress) -> Result<usize> {
        let _ = (inputs, progress);
        Err(Error::new(ErrorKind::Internal, format!("{} counts nothing", op.kind())))
    }

    /// What that dimension is at most, from the shapes of the inputs.
    fn bound(&self, op: &Op, inputs: &[&Shape]) -> Extent {
        let _ = (op, inputs);
        Extent::Const(i64::MAX)
    }

    /// The input that the result is, with some elements replaced. Where nothing reads that input later, a device may replace
    /// them in its memory and move nothing else.
    fn updates(&self) -> Option<usize> {
        None
    }

    /// Whether each result element depends only on the input elements at its own position.
    fn is_elementwise(&self) -> bool {
        false
    }

    /// Arithmetic operations for fixed shapes; the default counts one per result element.
    fn flops(&self, op: &Op, inputs: &[&Shape], results: &[Shape]) -> f64 {
        let _ = (op, inputs);
        results.iter().map(|s| s.num_elements().unwrap_or(0) as f64).sum()
    }

    /// A random valid case: the op, inputs and their values, such that the result does not hinge on
    /// ties or on the last bit.
    #[cfg(feature = "testing")]
    fn generate(&self, kind: OpKind, gen_: &mut Gen) -> Case;
}

/// Arithmetic and memory traffic of one node with fixed shapes.
pub fn cost(op: &Op, inputs: &[&Shape], results: &[Shape]) -> Cost {
    let bytes = |s: &Shape| s.size_bytes().unwrap_or(0) as f64;
    let moved: f64 = inputs.iter().map(|s| bytes(s)).sum::<f64>() + results.iter().map(bytes).sum::<f64>();
    Cost { flops: op.def().flops(op, inputs, results), bytes: moved }
}

/// The shapes of a node's results: arity, then the op's rule. No result is larger than any memory, and every expression
/// has its own value.
///
/// # Errors
/// What [`OpDef::infer`] reports, or [`ErrorKind::InvalidGraph`] for a wrong number of inputs.
pub fn infer(op: &Op, inputs: &[&Shape], declared: &[Shape]) -> Result<Shapes> {
    let arity = op.def().arity(op);
    if !arity.accepts(inputs.len()) {
        return Err(Error::new(
            ErrorKind::InvalidGraph,
            format!("{} takes {arity} inputs, not {}", op.kind(), inputs.len()),
        ));
    }
    let results = op.def().infer(op, inputs, declared)?;
    results.iter().chain(declared).try_for_each(Shape::check_size)?;
    let mut checked = Ok(());
    op.each_extent(&mut |e| {
        if e.is_too_large() && checked.is_ok() {
            checked = check_extents([e]);
        }
    });
    checked?;
    Ok(results)
}

/// A definition was called with an op of another kind: a broken table.
pub(crate) fn wrong_definition(name: &str, op: &Op) -> Error {
    Error::new(ErrorKind::Internal, format!("the definition of {name} was asked about {}", op.kind()))
}

/// An op was given an element type it does not take.
pub(crate) fn dtype_error(kind: OpKind, shape: &Shape, takes: &str) -> Error {
    Error::new(ErrorKind::DType, format!("{kind} takes {takes}, not {shape}"))
}
