//! Group norm of f32, in one pass over groups: each is read while it is in the cache. Other element types are left to decomposition, and so
//! is one group alone, which would be one thread's.

use rlx_ir::{DType, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel};
use crate::layout::At;
use crate::rows;

/// Several groups of f32.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let dtype = graph.shape(node.inputs[0]).dtype();
    match node.op {
        _ if dtype != DType::F32 => Claim::No(format!("there is no kernel for groups of {dtype}")),
        Op::GroupNorm { groups, .. } if groups > 1 => Claim::Native,
        _ => Claim::No("it has one group".into()),
    }
}

/// The kernel.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    match cx.node().op {
        Op::GroupNorm { groups, eps } => Ok(Box::new(Groups { groups, epsilon: eps, ..Groups::EMPTY })),
        ref op => Err(no_kernel(op, "it is no group norm")),
    }
}

/// A bound group norm.
#[derive(Debug, Clone, Copy)]
struct Groups {
    groups: usize,
    epsilon: f32,
    x: At,
    gamma: At,
    beta: At,
    y: At,
    images: usize,
    channels: usize,
    inner: usize,
    worth: bool,
}

impl Groups {
    const EMPTY: Groups = Groups {
        groups: 0,
        epsilon: 0.0,
        x: At::NOWHERE,
        gamma: At::NOWHERE,
        beta: At::NOWHERE,
        y: At::NOWHERE,
        images: 0,
        channels: 0,
        inner: 0,
        worth: false,
    };
}

impl StepKernel for Groups {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, y) = (&cx.inputs[0], &cx.outputs[0]);
        let &[images, channels, ref inner @ ..] = x.dims() else {
            return Err(mismatch(format!("the channels of {:?}", x.dims())));
        };
        let dense = cx.inputs.iter().chain(cx.outputs).all(|o| o.layout.is_dense());
        let fits = cx.inputs[1..].iter().all(|v| v.dims() == [channels]);
        if !dense || !fits || x.dims() != y.dims() || channels % self.groups != 0 {
            return Err(mismatch(format!("{} groups of {:?} as {:?}", self.groups, x.dims(), y.dims())));
        }
        (self.x, self.gamma, self.beta, self.y) = (x.at, cx.inputs[1].at, cx.inputs[2].at, y.at);
        (self.images, self.channels) = (images, channels / self.groups);
        self.inner = inner.iter().product();
        let nanos = x.layout.elements() as f64 * 0.2;
        self.worth = nanos > WORTH_NANOS;
        Ok(Needs::time(nanos))
    }

    // SAFETY: the promise is that of [`StepKernel::run`].
    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let k = *self;
        let row = k.channels * k.inner;
        if row == 0 {
            return Ok(());
        }
        let (x, y) = (cx.shared::<f32>(k.x), cx.shared::<f32>(k.y));
        let (gamma, beta) = (cx.shared::<f32>(k.gamma), cx.shared::<f32>(k.beta));
        let isa = cx.isa;
        cx.parallel(k.worth, k.images * k.groups, &|range, _| {
            let rows = rows::GroupNorm {
                x: x.get().wrapping_add(range.start * row),
                y: y.get().wrapping_add(range.start * row),
                first: range.start,
                rows: range.len(),
                groups: k.groups,
                channels: k.channels,
                inner: k.inner,
                epsilon: k.epsilon,
                gamma: gamma.get(),
                beta: beta.get(),
            };
            // SAFETY: all operands are dense and were sized when bound; rows are disjoint.
            unsafe { rows::normalize_groups(isa, &rows) };
        });
        Ok(())
    }
}
