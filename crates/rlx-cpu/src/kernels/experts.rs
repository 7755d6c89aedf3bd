//! Grouped matmuls: each row times the matrix of the expert it chose.
//!
//! Rows are sorted by expert, then one matmul runs for each expert that was chosen. Each element is the same
//! chain of multiply-adds wherever the expert's matrix is and anyone else who chose it, so neither residency nor the
//! other rows change a bit.
//!
//! **Residency.** A resident expert has its matrix in memory of the executable (f32: packed), made once and shared
//! by clones. Any other is read from where its weights lie, every time it is chosen. Weights that the run itself
//! computes are on the device as they are. The counters count what ran.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rlx_backend::moe::MoeResidencyStats;
use rlx_ir::lir::BufferKind;
use rlx_ir::{DType, Error, ErrorKind, Graph, Node, Result, memory};
use rlx_opt::Claim;

use super::indices::{Indices, Misses};
use super::matmul::run_gemm;
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, unbound};
use crate::alloc::Buffer;
use crate::gemm::{self, Ahead, Epilogue, Gemm, Strided, StridedMatrix, TileSizes};
use crate::layout::{At, Layout};
use crate::memory::allocate;

/// Multiply-adds of f32 in a nanosecond, roughly.
const F32_PER_NANO: f64 = 40.0;

/// Whether there is a grouped matmul of this node's types.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let dtype = node.shape.dtype();
    if !(dtype.is_int() || matches!(dtype, DType::F32 | DType::F64 | DType::F16 | DType::BF16)) {
        return Claim::No(format!("there is no product of {dtype} matrices"));
    }
    match node.inputs.get(1).map(|&w| graph.shape(w).dims()) {
        Some([experts, ..]) if experts.is_static() => Claim::Native,
        _ => Claim::No("the number of experts is open".into()),
    }
}

/// The kernel of a grouped matmul.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let weights = &cx.module.buffers[cx.step.inputs[1].buffer.index()];
    let kept = !matches!(weights.kind, BufferKind::Arena | BufferKind::Input(_));
    let dtype = cx.step.outputs[0].dtype;
    Ok(Box::new(Grouped { dtype, kept, shape: None, state: Shared::default() }))
}

/// What a grouped matmul keeps between runs; its executable and the kernels of all bindings use it.
#[derive(Debug, Default)]
pub(crate) struct Shared(Arc<Mutex<State>>);

/// What a grouped matmul keeps between runs.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Which experts are resident; `None`: all.
    pub(crate) resident: Option<Vec<bool>>,
    /// The resident experts' matrices, by expert.
    matrices: Vec<Option<Arc<Buffer>>>,
    /// Whether `matrices` are those of the present weights and mask.
    ready: bool,
    /// The experts, rows and columns of those matrices.
    made_for: [usize; 3],
    /// Whether choices are kept, and those of the last run.
    pub(crate) capture: bool,
    pub(crate) captured: Option<Vec<u32>>,
    pub(crate) stats: MoeResidencyStats,
    /// The rows, sorted by expert; expert `e` has those from `starts[e]` to `starts[e + 1]`.
    order: Vec<u32>,
    starts: Vec<usize>,
}

impl Clone for Shared {
    /// Shares the matrices and the mask; counts and choices are each one's own.
    fn clone(&self) -> Self {
        let state = self.lock();
        Shared(Arc::new(Mutex::new(State {
            resident: state.resident.clone(),
            matrices: state.matrices.clone(),
            ready: state.ready,
            capture: state.capture,
            made_for: state.made_for,
            ..State::default()
        })))
    }
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same state, not a copy.
    fn same(&self) -> Shared {
        Shared(Arc::clone(&self.0))
    }
}

impl State {
    /// The weights changed: resident matrices must be made again.
    pub(crate) fn forget(&mut self) {
        self.matrices.clear();
        self.ready = false;
    }

    /// Puts a mask in; matrices that are no longer resident are let go at once.
    pub(crate) fn set_resident(&mut self, mask: Option<Vec<bool>>) {
        if self.resident != mask {
            self.resident = mask;
            for e in 0..self.matrices.len() {
                if !self.is_resident(e) {
                    self.matrices[e] = None;
                }
            }
            self.ready = false;
        }
    }

    fn is_resident(&self, expert: usize) -> bool {
        self.resident.as_ref().is_none_or(|mask| mask.get(expert) == Some(&true))
    }

    /// Bytes of the resident matrices.
    pub(crate) fn bytes(&self) -> usize {
        self.matrices.iter().flatten().map(|m| m.len()).sum()
    }

    /// Sorts `rows` choices of `experts` experts.
    ///
    /// # Safety
    /// The choices must be readable.
    unsafe fn sort(&mut self, choices: &Indices, rows: usize, experts: usize) -> Result<()> {
        self.starts.clear();
        self.starts.resize(experts + 1, 0);
        if self.order.len() < rows {
            memory::ensure_elements(rows, 4, || format!("the order of {rows} rows"))?;
        }
        self.order.resize(rows, 0);
        let misses = Misses::none();
        // SAFETY: the caller's promise, here and below.
        let place = |row: usize| unsafe { choices.place(row, experts) };
        for row in 0..rows {
            match place(row) {
                Some(e) => self.starts[e + 1] += 1,
                None => misses.note(row),
            }
        }
        // SAFETY: as above.
        unsafe { misses.check(choices, |_| (0, experts))? };
        (0..experts).for_each(|e| self.starts[e + 1] += self.starts[e]);
        let mut chosen = self.capture.then(|| self.captured.take().unwrap_or_default());
        chosen.iter_mut().for_each(Vec::clear);
        for row in 0..rows {
            let Some(e) = place(row) else { continue };
            // `starts[e]` serves as the next free place, and is put back below.
            self.order[self.starts[e]] = row as u32;
            self.starts[e] += 1;
            if let Some(chosen) = &mut chosen {
                chosen.push(e as u32);
            }
        }
        self.starts.rotate_right(1);
        self.starts[0] = 0;
        if chosen.is_some() {
            self.captured = chosen;
        }
        Ok(())
    }

    /// Which of the sorted rows chose an expert.
    fn rows(&self, expert: usize) -> Range<usize> {
        self.starts[expert]..self.starts[expert + 1]
    }

    fn count(&mut self, on_device: bool, rows: usize) {
        let stats = &mut self.stats;
        let (calls, tokens) = if on_device {
            (&mut stats.gpu_expert_calls, &mut stats.gpu_tokens)
        } else {
            (&mut stats.cpu_expert_calls, &mut stats.cpu_tokens)
        };
        *calls += 1;
        *tokens += rows as u64;
    }
}

#[derive(Debug, Clone)]
struct Grouped {
    dtype: DType,
    /// Whether the weights stay the same from run to run, so that resident copies can be kept.
    kept: bool,
    shape: Option<Shape>,
    state: Shared,
}

/// The numbers of a grouped matmul.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shape {
    experts: usize,
    k: usize,
    n: usize,
    rows: usize,
    x: At,
    /// Where each row of `x` lies.
    x_rows: Layout,
    w: At,
    /// Strides of experts, rows and columns.
    w_strides: [isize; 3],
    choices: At,
    choice_type: DType,
    out: At,
    worth: bool,
}

impl Shape {
    /// Where an expert's matrix is, in elements from the first one.
    fn matrix(&self, expert: usize) -> isize {
        expert as isize * self.w_strides[0]
    }
}

/// Bytes, rounded up to a whole vector.
fn aligned(elements: usize) -> usize {
    (elements * 4).next_multiple_of(crate::alloc::ALIGN)
}

impl StepKernel for Grouped {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let [x, w, choices] = cx.inputs else { return Err(mismatch("a grouped product has three operands")) };
        let &[experts, k, n] = w.dims() else { return Err(mismatch("the matrices are not [experts, k, n]")) };
        let shape_mismatch =
            || mismatch(format!("{:?} by {:?} chosen by {:?}", x.dims(), w.dims(), choices.dims()));
        let lead = x.layout.rank().checked_sub(1).ok_or_else(shape_mismatch)?;
        if x.dims()[lead] != k {
            return Err(shape_mismatch());
        }
        let x_rows = x.layout.range(0, lead).broadcast_to(choices.dims()).ok_or_else(shape_mismatch)?;
        let rows = choices.layout.elements();
        u32::try_from(rows).map_err(|_| mismatch(format!("{rows} rows are too many")))?;
        let s = w.layout.strides();
        let rate = if self.dtype == DType::F32 { F32_PER_NANO } else { 1.0 };
        let nanos = rows as f64 * k as f64 * n as f64 / rate;
        let shape = Shape {
            experts,
            k,
            n,
            rows,
            x: x.at,
            x_rows,
            w: w.at,
            w_strides: [s[0], s[1], s[2]],
            choices: choices.at,
            choice_type: choices.dtype,
            out: cx.outputs[0].at,
            worth: nanos > WORTH_NANOS,
        };
        self.shape = Some(shape);
        let mut needs = Needs::time(nanos + rows as f64);
        if self.dtype == DType::F32 {
            let packed = gemm::packed_len(k, n).ok_or_else(shape_mismatch)?;
            needs.shared_scratch = aligned(rows * k) + aligned(rows * n) + aligned(packed);
        }
        Ok(needs)
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(s) = &self.shape else { return Err(unbound()) };
        if s.k == 0 {
            // Matrices without elements are not looked for, whether the choices are in range or not.
            let bytes = s.rows * s.n * self.dtype.size_bytes();
            // SAFETY: the result is dense.
            unsafe { std::ptr::write_bytes(cx.ptr::<u8>(s.out), 0, bytes) };
            return Ok(());
        }
        let mut state = self.state.lock();
        let choices = Indices::new(cx.ptr(s.choices), s.choice_type);
        // SAFETY: the caller's promise; the types are those of the operands.
        unsafe {
            state.sort(&choices, s.rows, s.experts)?;
            match self.dtype {
                DType::F32 => self.run_f32(cx, s, &mut state),
                DType::F64 => self.generic::<f64>(cx, s, &mut state),
                DType::F16 => self.generic::<half::f16>(cx, s, &mut state),
                DType::BF16 => self.generic::<half::bf16>(cx, s, &mut state),
                // Integers wrap around: signed and unsigned matmuls are the same bits.
                DType::I8 | DType::U8 => self.generic::<u8>(cx, s, &mut state),
                DType::I16 | DType::U16 => self.generic::<u16>(cx, s, &mut state),
                DType::I32 | DType::U32 => self.generic::<u32>(cx, s, &mut state),
                DType::I64 | DType::U64 => self.generic::<u64>(cx, s, &mut state),
                other => {
                    let message = format!("a grouped product of {other}");
                    Err(Error::new(ErrorKind::Internal, message))
                }
            }
        }
    }

    fn experts(&self) -> Option<&Shared> {
        Some(&self.state)
    }

    fn share_experts(&mut self, of: &Shared) {
        self.state = of.same();
    }
}

impl Grouped {
    /// Makes the matrices of resident experts that are not there yet: `make` fills one of `bytes`.
    fn prepare(
        &self,
        s: &Shape,
        state: &mut State,
        bytes: usize,
        mut make: impl FnMut(usize, *mut u8),
    ) -> Result<()> {
        let made_for = [s.experts, s.k, s.n];
        if state.made_for != made_for {
            state.forget();
            state.made_for = made_for;
        }
        if state.ready || !self.kept {
            return Ok(());
        }
        state.matrices.resize(s.experts, None);
        for e in 0..s.experts {
            if state.matrices[e].is_none() && state.is_resident(e) {
                let mut memory = allocate(bytes, "an expert's packed weights")?;
                make(e, memory.as_mut_ptr());
                state.matrices[e] = Some(Arc::new(memory));
            }
        }
        state.ready = true;
        Ok(())
    }

    /// Counts the experts that were chosen.
    fn count(&self, s: &Shape, state: &mut State) {
        for e in 0..s.experts {
            let rows = state.rows(e).len();
            if rows > 0 {
                let on_device = !self.kept || state.is_resident(e);
                state.count(on_device, rows);
            }
        }
    }

    unsafe fn run_f32(&self, cx: &mut RunCx<'_, '_>, s: &Shape, state: &mut State) -> Result<()> {
        let w = super::Shared::new(cx.ptr::<f32>(s.w));
        let packed_len = gemm::packed_len(s.k, s.n).unwrap_or(0);
        let all_panels = 0..gemm::panels(s.n);
        let pack = |e: usize, to: *mut f32, panels| {
            let from = w.get().wrapping_offset(s.matrix(e));
            // SAFETY: the matrix is an operand's, and `to` holds a packed one.
            unsafe { gemm::pack(from, s.w_strides[1], s.w_strides[2], s.k, s.n, to, panels) };
        };
        self.prepare(s, state, packed_len * 4, |e, to| pack(e, to.cast(), all_panels.clone()))?;
        self.count(s, state);
        let a = super::Shared::new(cx.shared_scratch.cast::<f32>());
        let c = super::Shared::new(cx.shared_scratch.wrapping_add(aligned(s.rows * s.k)).cast::<f32>());
        let b_at = aligned(s.rows * s.k) + aligned(s.rows * s.n);
        let streamed = super::Shared::new(cx.shared_scratch.wrapping_add(b_at).cast::<f32>());
        let (x, out, order) = (cx.shared::<f32>(s.x), cx.shared::<f32>(s.out), &state.order);
        cx.parallel(s.worth, s.rows, &|range, _| {
            for i in range {
                let from = x.get().wrapping_offset(s.x_rows.at(order[i] as usize));
                // SAFETY: the row is one of the operand's, scratch has room for all rows, each is written once.
                unsafe { std::ptr::copy_nonoverlapping(from, a.get().add(i * s.k), s.k) };
            }
        });
        for e in (0..s.experts).filter(|&e| !state.rows(e).is_empty()) {
            let rows = state.rows(e);
            let worth = rows.len() as f64 * s.k as f64 * s.n as f64 / F32_PER_NANO > WORTH_NANOS;
            let b = match state.matrices.get(e).and_then(Option::as_ref) {
                Some(matrix) => matrix.as_ptr().cast::<f32>(),
                None => {
                    cx.parallel(s.worth, gemm::panels(s.n), &|range, _| pack(e, streamed.get(), range));
                    streamed.get().cast_const()
                }
            };
            let g = Gemm {
                m: rows.len(),
                n: s.n,
                k: s.k,
                rows: Strided { ptr: a.get().wrapping_add(rows.start * s.k), row_stride: s.k as isize },
                b,
                c: c.get().wrapping_add(rows.start * s.n),
                c_stride: s.n,
                epilogue: Epilogue::NONE,
                tile_sizes: TileSizes::DEFAULT,
                ahead: Ahead::Panels,
                wide: None,
            };
            // SAFETY: the rows are in scratch, which nothing else uses; the matrix is packed.
            unsafe { run_gemm(cx, cx.isa, worth, &g) };
        }
        cx.parallel(s.worth, s.rows, &|range, _| {
            for i in range {
                let to = out.get().wrapping_add(order[i] as usize * s.n);
                // SAFETY: the result is dense, and each of its rows is written once.
                unsafe { std::ptr::copy_nonoverlapping(c.get().add(i * s.n), to, s.n) };
            }
        });
        Ok(())
    }

    unsafe fn generic<T: gemm::Element>(
        &self,
        cx: &mut RunCx<'_, '_>,
        s: &Shape,
        state: &mut State,
    ) -> Result<()> {
        let w = super::Shared::new(cx.ptr::<T>(s.w));
        let [_, row_stride, col_stride] = s.w_strides;
        self.prepare(s, state, s.k * s.n * size_of::<T>(), |e, to| {
            let from = w.get().wrapping_offset(s.matrix(e));
            for i in 0..s.k {
                for j in 0..s.n {
                    let at = i as isize * row_stride + j as isize * col_stride;
                    // SAFETY: the element is the operand's, and `to` holds a whole matrix.
                    unsafe { *to.cast::<T>().add(i * s.n + j) = *from.wrapping_offset(at) };
                }
            }
        })?;
        self.count(s, state);
        let (x, out, order) = (cx.shared::<T>(s.x), cx.shared::<T>(s.out), &state.order);
        for e in (0..s.experts).filter(|&e| !state.rows(e).is_empty()) {
            let rows = state.rows(e);
            let (ptr, row_stride, col_stride) = match state.matrices.get(e).and_then(Option::as_ref) {
                Some(matrix) => (matrix.as_ptr().cast::<T>(), s.n as isize, 1),
                None => (w.get().wrapping_offset(s.matrix(e)).cast_const(), row_stride, col_stride),
            };
            let b = super::Shared::new(ptr.cast_mut());
            cx.parallel(s.worth, rows.len(), &|range, _| {
                for i in range {
                    let row = order[rows.start + i] as usize;
                    let a = x.get().wrapping_offset(s.x_rows.at(row)).cast_const();
                    let a = StridedMatrix { ptr: a, row_stride: 0, col_stride: 1 };
                    let b = StridedMatrix { ptr: b.get().cast_const(), row_stride, col_stride };
                    // SAFETY: the caller's promise; each row of the dense result is written once.
                    unsafe { gemm::generic_gemm(0..1, s.n, s.k, a, b, out.get().add(row * s.n), s.n) };
                }
            });
        }
        Ok(())
    }
}
