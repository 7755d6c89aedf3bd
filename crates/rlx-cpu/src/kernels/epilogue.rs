//! What follows an anchor: an epilogue applied while elements are written, or a tile program behind it.

use rlx_ir::{DType, Result};

use super::elementwise::Elementwise;
use super::region::{Anchored, EpilogueSpec};
use super::requantise::{self, ByteSpec};
use super::{BindCx, Needs, RunCx};
use crate::gemm::{Bias, ByteEpilogue, Combine, Epilogue};
use crate::layout::{At, Bound, Layout};

/// The elementwise part of an anchored region; nothing for an op of its own.
#[derive(Debug, Clone)]
pub(crate) struct Tail(Option<Box<Behind>>);

/// What is behind an anchor, and what that is bound to.
#[derive(Debug, Clone)]
struct Behind {
    region: Anchored,
    program: Elementwise,
    /// What the epilogue reads, when it does it all.
    bound: Option<Places>,
    /// What the epilogue of an integer anchor reads, when it does it all.
    bytes: Option<requantise::Places>,
    /// Bytes of shared scratch that the anchor's result takes.
    scratch: usize,
}

/// An epilogue's operands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    spec: EpilogueSpec,
    bias: Option<At>,
    combine: Option<(At, usize)>,
}

impl Tail {
    /// Nothing follows.
    pub(crate) const NONE: Tail = Tail(None);

    /// What follows the anchor of `region`.
    pub(crate) fn of(region: Anchored) -> Tail {
        let program = Elementwise::new(region.program.clone());
        Tail(Some(Box::new(Behind { region, program, bound: None, bytes: None, scratch: 0 })))
    }

    /// Binds, and says where the anchor's result goes. `accepts`: whether the anchor can apply this epilogue
    /// to its output, the last dimension being the columns.
    pub(crate) fn bind(
        &mut self,
        cx: &BindCx<'_>,
        dtype: DType,
        accepts: &dyn Fn(&EpilogueSpec) -> bool,
    ) -> Result<(Bound, Needs)> {
        let out = cx.outputs[0];
        let Some(behind) = &mut self.0 else { return Ok((out, Needs::default())) };
        (behind.bound, behind.bytes, behind.scratch) = (None, None, 0);
        if let Some(spec) = behind.region.epilogue.filter(accepts) {
            behind.bound = Places::of(&spec, cx);
            if behind.bound.is_some() {
                return Ok((out, Needs::default()));
            }
        }
        let mut result = out;
        // The anchor's result may not go where the program still reads an operand.
        let over_operand = cx.inputs.iter().any(|input| input.at == out.at);
        if out.dtype != dtype || behind.region.keeps_anchor || over_operand || !out.layout.is_dense() {
            behind.scratch = (out.layout.elements() * dtype.size_bytes()).next_multiple_of(64);
            let at = At { buffer: cx.scratch, offset: 0 };
            result = Bound { at, dtype, layout: Layout::dense(out.dims()) };
        }
        let mut needs = behind.program.bind_with(cx.inputs, cx.outputs, Some(&result))?;
        needs.shared_scratch = behind.scratch;
        Ok((result, needs))
    }

    /// Binds behind an anchor whose results are exact sums of bytes, and says where they go. `accepts`: whether it can apply
    /// this epilogue to its output.
    pub(crate) fn bind_bytes(
        &mut self,
        cx: &BindCx<'_>,
        accepts: &dyn Fn(&ByteSpec) -> bool,
    ) -> Result<(Bound, Needs)> {
        if let Some(behind) = &mut self.0
            && let Some(spec) = behind.region.bytes.filter(accepts)
            && let Some(places) = requantise::Places::of(&spec, cx)
        {
            (behind.bound, behind.bytes, behind.scratch) = (None, Some(places), 0);
            return Ok((cx.outputs[0], Needs::default()));
        }
        self.bind(cx, DType::I32, &|_| false)
    }

    /// What the integer anchor's kernel does with its sums.
    ///
    /// # Safety
    /// The operands must be there.
    pub(crate) unsafe fn byte_epilogue(&self, cx: &RunCx<'_, '_>) -> Option<ByteEpilogue> {
        // SAFETY: the caller's promise.
        self.0.as_ref()?.bytes.as_ref().map(|places| unsafe { places.epilogue(cx) })
    }

    /// Bytes of shared scratch that are taken from its start.
    pub(crate) fn scratch_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |behind| behind.scratch)
    }

    /// Whether the anchor's kernel does it all while it writes an element, if there is anything to do.
    pub(crate) fn is_epilogue(&self) -> bool {
        self.0.as_ref().is_none_or(|behind| behind.bound.is_some())
    }

    /// Whether the anchor's kernel adds a bias and applies a function at most.
    pub(crate) fn is_simple(&self) -> bool {
        let bound = self.0.as_ref().and_then(|behind| behind.bound.as_ref());
        bound.is_none_or(|places| places.combine.is_none() && places.spec.alpha == 1.0)
    }

    /// The epilogue for the anchor's kernel.
    pub(crate) fn epilogue<T>(&self, cx: &RunCx<'_, '_>) -> Epilogue<T> {
        self.0.as_ref().and_then(|behind| behind.bound).map_or(Epilogue::NONE, |bound| bound.epilogue(cx))
    }

    /// Runs the tile program, if the epilogue did not do everything.
    ///
    /// # Safety
    /// As [`super::StepKernel::run`], after the anchor's result was written.
    pub(crate) unsafe fn finish(&self, cx: &mut RunCx<'_, '_>) {
        if let Some(behind) = &self.0
            && behind.bound.is_none()
            && behind.bytes.is_none()
        {
            // SAFETY: the caller's promise.
            unsafe { behind.program.run_all(cx) };
        }
    }
}

impl Places {
    /// Those of `spec`; `None` when their layout is not what it reads.
    pub(crate) fn of(spec: &EpilogueSpec, cx: &BindCx<'_>) -> Option<Places> {
        let out = cx.outputs[0].layout;
        let rank = out.rank();
        let n = *out.dims().last()?;
        let mut bound = Places { spec: *spec, bias: None, combine: None };
        if let Some(i) = spec.bias {
            let l = cx.inputs[i].layout;
            let (&stride, &dim) = (l.strides().last()?, l.dims().last()?);
            if dim != n || (stride != 1 && n != 1) || l.elements() != n {
                return None;
            }
            bound.bias = Some(cx.inputs[i].at);
        }
        if let Some((i, _, _)) = spec.combine {
            let l = cx.inputs[i].layout;
            if l.dims() != out.dims() || (*l.strides().last()? != 1 && n != 1) {
                return None;
            }
            let (_, stride) = l.range(0, rank - 1).flat()?;
            // The output's rows are walked as one matrix too.
            out.range(0, rank - 1).flat()?;
            bound.combine = Some((cx.inputs[i].at, usize::try_from(stride).ok()?));
        }
        Some(bound)
    }

    /// The epilogue that reads them.
    pub(crate) fn epilogue<T>(&self, cx: &RunCx<'_, '_>) -> Epilogue<T> {
        Epilogue {
            alpha: self.spec.alpha,
            bias: self.bias.map_or(Bias::None, |at| Bias::PerColumn(cx.ptr(at))),
            combine: self.combine.zip(self.spec.combine).map(|((at, row_stride), (_, op, after))| Combine {
                ptr: cx.ptr::<T>(at),
                row_stride,
                op,
                after,
            }),
            activation: self.spec.activation,
        }
    }
}
