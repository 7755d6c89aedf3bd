//! Softmax, log-softmax, layer norm and RMS norm of contiguous rows of f32. Other element types and axes are
//! left to decomposition.

use rlx_ir::shape::normalize_axis;
use rlx_ir::{DType, Dim, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel};
use crate::program::layout::At;
use crate::rows::{self, Norm, Softmax};

/// What is computed for each row.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Softmax { log: bool },
    Norm { centred: bool, eps: f32 },
}

/// The kind and the first dimension of a row.
fn kind_of(op: &Op, rank: usize) -> Option<(Kind, usize)> {
    let (kind, axis) = match *op {
        Op::Softmax { axis } => (Kind::Softmax { log: false }, axis),
        Op::LogSoftmax { axis } => (Kind::Softmax { log: true }, axis),
        Op::LayerNorm { axis, eps } => (Kind::Norm { centred: true, eps }, axis),
        Op::RmsNorm { axis, eps } => (Kind::Norm { centred: false, eps }, axis),
        _ => return None,
    };
    Some((kind, normalize_axis(axis.into(), rank).ok()?))
}

/// Whether the rows are contiguous and of f32.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let x = graph.shape(node.inputs[0]);
    let Some((kind, axis)) = kind_of(&node.op, x.rank()) else {
        return Claim::No("it is none of softmax, layer norm, RMS norm".into());
    };
    if x.dtype() != DType::F32 {
        return Claim::No(format!("there is no kernel for rows of {}", x.dtype()));
    }
    match kind {
        Kind::Softmax { .. } if x.dims()[axis + 1..].iter().any(|&d| d != Dim::Static(1)) => {
            Claim::No(format!("axis {axis} is not the innermost"))
        }
        Kind::Norm { .. } if node.inputs[1..].iter().any(|&p| graph.shape(p).dims() != &x.dims()[axis..]) => {
            Claim::No("scale and shift are not as large as a row".into())
        }
        _ => Claim::Native,
    }
}

/// The kernel of a softmax or norm.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let node = cx.node();
    let Some((kind, axis)) = kind_of(&node.op, node.shape.rank()) else {
        return Err(no_kernel(&node.op, "it works on no rows"));
    };
    Ok(Box::new(Rows {
        kind,
        axis,
        x: At::NOWHERE,
        y: At::NOWHERE,
        gamma: None,
        beta: None,
        rows: 0,
        columns: 0,
        worth: false,
    }))
}

/// A bound step over rows.
#[derive(Debug, Clone)]
struct Rows {
    kind: Kind,
    axis: usize,
    x: At,
    y: At,
    gamma: Option<At>,
    beta: Option<At>,
    rows: usize,
    columns: usize,
    worth: bool,
}

impl StepKernel for Rows {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, y) = (&cx.inputs[0], &cx.outputs[0]);
        if !x.layout.is_dense() || !y.layout.is_dense() || x.dims() != y.dims() {
            return Err(mismatch(format!("rows of {:?} to {:?}", x.dims(), y.dims())));
        }
        let count = |d: &[usize]| d.iter().product::<usize>();
        (self.rows, self.columns) = (count(&x.dims()[..self.axis]), count(&x.dims()[self.axis..]));
        for p in &cx.inputs[1..] {
            if p.layout.elements() != self.columns || !p.layout.is_dense() {
                return Err(mismatch(format!("scale or shift {:?} for rows of {}", p.dims(), self.columns)));
            }
        }
        (self.x, self.y) = (x.at, y.at);
        (self.gamma, self.beta) = (cx.inputs.get(1).map(|b| b.at), cx.inputs.get(2).map(|b| b.at));
        let nanos = (self.rows * self.columns) as f64
            * if matches!(self.kind, Kind::Softmax { .. }) { 0.35 } else { 0.15 };
        self.worth = nanos > WORTH_NANOS;
        Ok(Needs::time(nanos))
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        if self.columns == 0 {
            return Ok(());
        }
        let (x, y, isa, n) = (cx.shared::<f32>(self.x), cx.shared::<f32>(self.y), cx.isa, self.columns);
        let gamma = self.gamma.map(|at| cx.shared::<f32>(at));
        let beta = self.beta.map(|at| cx.shared::<f32>(at));
        cx.parallel(self.worth, self.rows, &|range, _| {
            let (x, y) = (x.get().wrapping_add(range.start * n), y.get().wrapping_add(range.start * n));
            // SAFETY: all operands are dense and were sized when bound; rows are disjoint.
            unsafe {
                match self.kind {
                    Kind::Softmax { log } => {
                        let rows = range.len();
                        rows::softmax(isa, &Softmax { x, y, rows, columns: n, scale: 1.0, mask: None, log });
                    }
                    Kind::Norm { centred, eps } => rows::normalize(
                        isa,
                        &Norm {
                            x,
                            residual: None,
                            sum: None,
                            y,
                            rows: range.len(),
                            columns: n,
                            epsilon: eps,
                            gamma: gamma.map(|p| p.get().cast_const()),
                            beta: beta.map(|p| p.get().cast_const()),
                            centred,
                        },
                    ),
                }
            }
        });
        Ok(())
    }
}
