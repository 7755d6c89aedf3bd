//! Softmax, log-softmax, layer norm and RMS norm of contiguous rows of f32, or of 16-bit floats, which are widened
//! as they are read and rounded once at the end; softmax and log-softmax of f32 along another axis than the innermost, where that
//! is of columns side by side. Other element types and axes are left to decomposition.

use rlx_ir::shape::normalize_axis;
use rlx_ir::{DType, Dim, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::elementwise::halves::{Conversion, convert};
use super::matmul::is_packed;
use super::{
    BindCx, CompileCx, Needs, RunCx, Shared, StepKernel, WORTH_NANOS, mismatch, no_kernel, packed_type,
};
use crate::gemm::Packed;
use crate::isa::Isa;
use crate::layout::{At, Bound};
use crate::rows::{self, Norm, Softmax, SoftmaxColumns};
use crate::simd::LANES;

/// Fewer columns than this are not computed side by side.
const FEW: usize = 8;

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

/// Whether the rows are contiguous and of f32, f16 or bf16, or a softmax's columns are of f32 and not few.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let x = graph.shape(node.inputs[0]);
    let Some((kind, axis)) = kind_of(&node.op, x.rank()) else {
        return Claim::No("it is none of softmax, layer norm, RMS norm".into());
    };
    if !is_packed(x.dtype()) {
        return Claim::No(format!("there is no kernel for rows of {}", x.dtype()));
    }
    match kind {
        Kind::Softmax { .. } if x.dims()[axis + 1..].iter().any(|&d| d != Dim::Static(1)) => {
            let columns: Option<usize> = x.dims()[axis + 1..].iter().map(|d| d.as_static()).product();
            match columns {
                Some(few) if few < FEW => Claim::No(format!("axis {axis} has {few} columns")),
                _ if x.dtype() != DType::F32 => {
                    Claim::No(format!("there is no kernel for columns of {}", x.dtype()))
                }
                _ => Claim::Native,
            }
        }
        Kind::Norm { .. } if node.inputs[1..].iter().any(|&p| graph.shape(p).dims() != &x.dims()[axis..]) => {
            Claim::No("scale and shift are not as large as a row".into())
        }
        _ => Claim::Native,
    }
}

/// What a layer norm or RMS norm of the last dimension computes, for a matmul that computes its rows itself.
pub(crate) fn of_last_dim(node: &Node, graph: &Graph) -> Option<RowOp> {
    let shape = &node.shape;
    let (kind, axis) = kind_of(&node.op, shape.rank())?;
    let last = matches!(kind, Kind::Norm { .. }) && axis + 1 == shape.rank();
    let columns = shape.dims().last()?.as_static()?;
    (last && claim(node, graph).is_native()).then_some(RowOp { kind, dtype: shape.dtype(), columns })
}

/// The kernel of a softmax or norm.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let node = cx.node();
    let Some((kind, axis)) = kind_of(&node.op, node.shape.rank()) else {
        return Err(no_kernel(&node.op, "it works on no rows"));
    };
    Ok(Box::new(Rows {
        op: RowOp { kind, dtype: node.shape.dtype(), columns: 0 },
        axis,
        x: At::NOWHERE,
        y: At::NOWHERE,
        gamma: None,
        beta: None,
        rows: 0,
        inner: 1,
        worth: false,
    }))
}

/// A bound step over rows.
#[derive(Debug, Clone)]
struct Rows {
    op: RowOp,
    axis: usize,
    x: At,
    y: At,
    gamma: Option<At>,
    beta: Option<At>,
    rows: usize,
    /// Columns side by side, of a softmax that is not along rows.
    inner: usize,
    worth: bool,
}

/// What is done to each row, and the rows' type and width.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowOp {
    kind: Kind,
    dtype: DType,
    columns: usize,
}

impl StepKernel for Rows {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, y) = (&cx.inputs[0], &cx.outputs[0]);
        if !x.layout.is_dense() || !y.layout.is_dense() || x.dims() != y.dims() {
            return Err(mismatch(format!("rows of {:?} to {:?}", x.dims(), y.dims())));
        }
        let count = |d: &[usize]| d.iter().product::<usize>();
        (self.rows, self.op.columns) = (count(&x.dims()[..self.axis]), count(&x.dims()[self.axis..]));
        if matches!(self.op.kind, Kind::Softmax { .. }) {
            self.inner = count(&x.dims()[self.axis + 1..]);
        }
        for p in &cx.inputs[1..] {
            self.op.check_vector(p)?;
        }
        (self.x, self.y) = (x.at, y.at);
        (self.gamma, self.beta) = (cx.inputs.get(1).map(|b| b.at), cx.inputs.get(2).map(|b| b.at));
        let needs = self.op.needs(self.rows);
        self.worth = needs.nanos > WORTH_NANOS;
        Ok(needs)
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        if let (Kind::Softmax { log }, true) = (self.op.kind, self.inner > 1) {
            // SAFETY: all operands are dense and were sized when bound; such columns are claimed of f32 alone.
            unsafe { self.columns(cx, log) };
            return Ok(());
        }
        let (x, y) = (cx.ptr(self.x), cx.ptr(self.y));
        // SAFETY: all operands are dense and were sized when bound.
        unsafe { self.op.run(cx, self.worth, x, y, [self.gamma, self.beta], self.rows) };
        Ok(())
    }
}

impl Rows {
    /// Softmax of columns side by side.
    ///
    /// # Safety
    /// As [`StepKernel::run`]; the operands must be of f32.
    unsafe fn columns(&self, cx: &mut RunCx<'_, '_>, log: bool) {
        let inner = self.inner;
        let lines = self.op.columns / inner;
        let (x, y, isa) = (cx.shared::<f32>(self.x), cx.shared::<f32>(self.y), cx.isa);
        let most = cx.share(self.worth, self.rows, inner, SoftmaxColumns::together(inner), LANES);
        let blocks = inner.div_ceil(most);
        cx.parallel(self.worth, self.rows * blocks, &|range, _| {
            for unit in range {
                let first = unit % blocks * most;
                let at = unit / blocks * lines * inner + first;
                let (x, y) = (x.get().wrapping_add(at).cast_const(), y.get().wrapping_add(at));
                let columns = most.min(inner - first);
                let columns = SoftmaxColumns { x, y, step: inner, lines, columns, log };
                // SAFETY: the caller's promise; columns are disjoint.
                unsafe { rows::softmax_columns(isa, &columns) };
            }
        });
    }
}

impl RowOp {
    /// Whether `vector` can be the scale or shift of each row.
    pub(crate) fn check_vector(&self, vector: &Bound) -> Result<()> {
        if vector.layout.elements() == self.columns && vector.layout.is_dense() {
            return Ok(());
        }
        Err(mismatch(format!("scale or shift {:?} for rows of {}", vector.dims(), self.columns)))
    }

    /// Elements of a row.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// Bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.columns * self.dtype.size_bytes()
    }

    /// The scratch and time that `rows` rows take.
    pub(crate) fn needs(&self, rows: usize) -> Needs {
        let nanos = (rows * self.columns) as f64
            * if matches!(self.kind, Kind::Softmax { .. }) { 0.35 } else { 0.15 };
        // Exponentials of some rows, or the scale and the shift of each, as f32.
        let elements = match self.kind {
            _ if self.dtype == DType::F32 => 0,
            Kind::Softmax { .. } => Softmax::<f32>::held(self.columns),
            Kind::Norm { .. } => 2 * self.columns,
        };
        let wide = elements * size_of::<f32>();
        Needs { thread_scratch: wide, ..Needs::time(nanos) }
    }

    /// Computes `rows` rows on all threads, if that is `worth` a fork.
    ///
    /// # Safety
    /// `x` must be readable and `y` writable for the rows, scale and shift readable for one; `y` may be `x`.
    pub(crate) unsafe fn run(
        &self,
        cx: &mut RunCx<'_, '_>,
        worth: bool,
        x: *mut u8,
        y: *mut u8,
        vectors: [Option<At>; 2],
        rows: usize,
    ) {
        if self.columns == 0 {
            return;
        }
        let (isa, n, size) = (cx.isa, self.columns, self.dtype.size_bytes());
        let (x, y) = (Shared::new(x), Shared::new(y));
        let vectors = vectors.map(|at| at.map(|at| cx.shared::<u8>(at)));
        cx.parallel(worth, rows, &|range, scratch| {
            let at = range.start * n * size;
            let (x, y) = (x.get().wrapping_add(at), y.get().wrapping_add(at));
            let vectors = vectors.map(|v| v.map(|v| v.get().cast_const()));
            // SAFETY: the caller's promise; rows are disjoint, scratch is this thread's.
            unsafe {
                packed_type!(self.dtype, T => {
                    self.rows::<T>(isa, x.cast(), y.cast(), vectors, range.len(), scratch.cast());
                }, _ => {});
            }
        });
    }

    /// Rows of one type.
    ///
    /// # Safety
    /// `x` must be readable and `y` writable for the rows, scale and shift readable for one, and there must be the scratch that
    /// [`RowOp::needs`] asks for.
    unsafe fn rows<T: Packed>(
        &self,
        isa: Isa,
        x: *const T,
        y: *mut T,
        vectors: [Option<*const u8>; 2],
        rows: usize,
        wide: *mut f32,
    ) {
        let (columns, widens) = (self.columns, self.dtype != DType::F32);
        // SAFETY: the caller's promise.
        unsafe {
            match self.kind {
                Kind::Softmax { log } => {
                    let held = widens.then_some(wide);
                    rows::softmax_rows(isa, &Softmax { x, y, rows, columns, log, held });
                }
                Kind::Norm { centred, eps: epsilon } => {
                    let mut widened = vectors.map(|v| v.map(|v| v.cast::<f32>()));
                    for (i, vector) in widened.iter_mut().enumerate().filter(|_| widens) {
                        if let Some(from) = vector {
                            let to = wide.wrapping_add(i * columns);
                            convert(isa, Conversion::Widen, self.dtype, from.cast(), to.cast(), columns);
                            *from = to;
                        }
                    }
                    let [gamma, beta] = widened;
                    let norm = Norm { x, y, rows, columns, epsilon, gamma, beta, centred };
                    rows::normalize(isa, &norm);
                }
            }
        }
    }
}
