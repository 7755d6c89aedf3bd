//! Matmuls, alone or with the region they anchor.
//!
//! f32, f16 and bf16 run on the packed kernel: weights are packed once by the init program, any other right-hand
//! side into scratch during the step (one batch per task where there are many). Other element types take the
//! plain matmul. Vectors are matrices of one row or column. Batches that share their right-hand side are one matmul, for which short ones that
//! do not lie behind each other (the lines of a window of an image) are copied first.

use rlx_ir::op::PackFormat;
use rlx_ir::{DType, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::epilogue::Tail;
use super::producer::Producer;
use super::region::Anchored;
use super::{
    BindCx, CompileCx, Needs, RunCx, Shared, StepKernel, Upcoming, WORTH_NANOS, mismatch, packed_type,
};
use crate::blas::Provider;
use crate::formats;
use crate::gemm::{self, Gemm, Packed, Strided, StridedMatrix, TileSizes};
use crate::isa::Isa;
use crate::layout::{At, Bound, Layout, collapse};

/// Multiply-adds of f32 in a nanosecond, roughly.
const F32_PER_NANO: f64 = 40.0;

/// Batches at least this many are one task each.
const MANY_BATCHES: usize = 4;

/// Rows of a batch from which on batches that share their right-hand side are matmuls of their own, if they do not lie behind each other.
const MANY_ROWS: usize = 64;

/// Whether there is a matmul of these element types.
pub(crate) fn claim(node: &Node, _: &Graph) -> Claim {
    let dtype = node.shape.dtype();
    let known = dtype.is_int() || matches!(dtype, DType::F32 | DType::F64 | DType::F16 | DType::BF16);
    if known { Claim::Native } else { Claim::No(format!("there is no product of {dtype} matrices")) }
}

/// Whether matmuls of this type run on the packed kernel.
pub(crate) fn is_packed(dtype: DType) -> bool {
    packed_type!(dtype, T => size_of::<T>() > 0, _ => false)
}

/// Bytes of a packed `k`×`n` matrix of this type.
pub(crate) fn packed_bytes(dtype: DType, k: usize, n: usize) -> Option<usize> {
    let words = packed_type!(dtype, T => gemm::packed_words::<T>(k, n), _ => None);
    words.and_then(|n| n.checked_mul(4))
}

/// The format a matmul wants its input in when that is known before the run.
pub(crate) fn pack_format(node: &Node, input: usize, graph: &Graph) -> Option<PackFormat> {
    let shape = graph.shape(*node.inputs.get(input)?);
    let fits = input == 1 && shape.rank() == 2 && is_packed(shape.dtype()) && !by_blas(node);
    fits.then_some(formats::MATMUL_RHS)
}

/// Whether this build has a BLAS compute the matmul, which then takes its operands as they are and nothing fused.
pub(crate) fn by_blas(node: &Node) -> bool {
    matches!(node.op, Op::MatMul) && node.shape.dtype() == DType::F32 && Provider::chosen().is_some()
}

/// The kernel of a matmul of its own.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let own = MatMul::new(cx.step.outputs[0].dtype, vec![0, 1], Tail::NONE);
    #[cfg(feature = "blas")]
    if own.dtype == DType::F32 {
        return Ok(match super::blas_matmul::BlasMatMul::try_new(own)? {
            Ok(kernel) => Box::new(kernel),
            Err(own) => Box::new(own),
        });
    }
    Ok(Box::new(own))
}

/// The kernel of a matmul with the region behind it.
pub(crate) fn anchored(dtype: DType, mut region: Anchored) -> Box<dyn StepKernel> {
    let producer = region.producer.take();
    Box::new(MatMul { producer, ..MatMul::new(dtype, region.inputs.clone(), Tail::of(region)) })
}

/// A bound matmul.
#[derive(Debug, Clone)]
pub(super) struct MatMul {
    dtype: DType,
    /// Which of the step's inputs the operands are.
    inputs: Vec<usize>,
    /// What is done to the rows first.
    producer: Option<Producer>,
    tail: Tail,
    /// Made when it is first bound.
    shape: Option<Box<Shape>>,
    tile_sizes: TileSizes,
    next: Upcoming,
}

/// The numbers of a matmul: batches of `m`×`k` · `k`×`n`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) m: usize,
    pub(super) k: usize,
    pub(super) n: usize,
    pub(super) a: At,
    pub(super) b: At,
    pub(super) c: At,
    /// Strides of rows and columns.
    pub(super) a_strides: [isize; 2],
    pub(super) b_strides: [isize; 2],
    pub(super) c_stride: usize,
    pub(super) batch: [Layout; 3],
    pub(super) packed: bool,
    pub(super) worth: bool,
    /// Bytes of scratch for one packed right-hand side.
    pub(super) pack_bytes: usize,
}

impl MatMul {
    fn new(dtype: DType, inputs: Vec<usize>, tail: Tail) -> MatMul {
        MatMul {
            dtype,
            inputs,
            producer: None,
            tail,
            shape: None,
            tile_sizes: TileSizes::DEFAULT,
            next: None,
        }
    }
}

/// An operand's last two dimensions and the ones before them; a vector becomes a matrix.
fn split(l: &Layout, vector_is_row: bool) -> (Layout, [usize; 2], [isize; 2]) {
    let rank = l.rank();
    match (rank, vector_is_row) {
        (1, true) => (Layout::SCALAR, [1, l.dims()[0]], [0, l.strides()[0]]),
        (1, false) => (Layout::SCALAR, [l.dims()[0], 1], [l.strides()[0], 0]),
        _ => (
            l.range(0, rank - 2),
            [l.dims()[rank - 2], l.dims()[rank - 1]],
            [l.strides()[rank - 2], l.strides()[rank - 1]],
        ),
    }
}

impl Shape {
    /// Of a matmul that was never bound.
    const NONE: Shape = Shape {
        m: 0,
        k: 0,
        n: 0,
        a: At::NOWHERE,
        b: At::NOWHERE,
        c: At::NOWHERE,
        a_strides: [0; 2],
        b_strides: [0; 2],
        c_stride: 0,
        batch: [Layout::SCALAR; 3],
        packed: false,
        worth: false,
        pack_bytes: 0,
    };

    pub(super) fn of(a: &Bound, b: &Bound, c: &Bound, packed: bool) -> Result<Shape> {
        let (a_vector, b_vector) = (a.layout.rank() == 1, b.layout.rank() == 1);
        let (a_batch, [m, k], a_strides) = split(&a.layout, true);
        let (b_batch, [b_k, n], b_strides) = split(&b.layout, false);
        let vectors = usize::from(a_vector) + usize::from(b_vector);
        let c_rank = c.layout.rank();
        let batch_rank = (c_rank + vectors).checked_sub(2).ok_or_else(|| mismatch("a product of no rank"))?;
        let c_batch = c.layout.range(0, batch_rank);
        let c_tail = &c.layout.strides()[batch_rank..];
        let c_stride = if a_vector { n as isize } else { c_tail[0] };
        let shape_mismatch = || mismatch(format!("cannot multiply {:?} by {:?}", a.dims(), b.dims()));
        if k != b_k {
            return Err(shape_mismatch());
        }
        let dims = c_batch.dims();
        let mut batch = [
            c_batch,
            a_batch.broadcast_to(dims).ok_or_else(shape_mismatch)?,
            b_batch.broadcast_to(dims).ok_or_else(shape_mismatch)?,
        ];
        collapse(&mut batch);
        let mut shape = Shape {
            m,
            k,
            n,
            a: a.at,
            b: b.at,
            c: c.at,
            a_strides,
            b_strides,
            c_stride: usize::try_from(c_stride).map_err(|_| shape_mismatch())?,
            batch,
            packed,
            worth: false,
            pack_bytes: 0,
        };
        shape.join_batch_with_rows();
        Ok(shape)
    }

    /// One right-hand side for all batches: their rows are one matrix where strides allow.
    fn join_batch_with_rows(&mut self) {
        while self.batch[0].rank() > 0 && self.batch[2].strides().iter().all(|&s| s == 0) {
            let last = self.batch[0].rank() - 1;
            let count = self.batch[0].dims()[last];
            let (c, a) = (self.batch[0].strides()[last], self.batch[1].strides()[last]);
            let joins =
                c == self.c_stride as isize * self.m as isize && a == self.a_strides[0] * self.m as isize;
            if self.m == 1 {
                (self.c_stride, self.a_strides[0]) = (usize::try_from(c).unwrap_or(0), a);
                if c < 0 {
                    return;
                }
            } else if !joins {
                return;
            }
            self.m *= count;
            self.batch.iter_mut().for_each(|l| *l = l.range(0, last));
        }
    }

    /// Whether short batches share packed weights and have their results behind each other: then they are copied, to read weights once.
    fn copies_rows(&self) -> bool {
        let mut next = (self.c_stride * self.m) as isize;
        let results = self.batch[0].dims().iter().zip(self.batch[0].strides()).rev();
        let behind_each_other = results.into_iter().all(|(&count, &stride)| {
            let fits = stride == next;
            next = next.wrapping_mul(count as isize);
            fits
        });
        self.packed && self.m < MANY_ROWS && self.batches() > 1 && behind_each_other
    }

    /// Where a batch of the result and of the two operands begins.
    #[inline]
    pub(super) fn batch_at(&self, batch: usize) -> [isize; 3] {
        let [c, a, b] = &self.batch;
        [c.at(batch), a.at(batch), b.at(batch)]
    }

    pub(super) fn batches(&self) -> usize {
        self.batch[0].elements()
    }
}

impl StepKernel for MatMul {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let vectors = self.inputs.iter().any(|&i| cx.inputs[i].layout.rank() == 1);
        let (product, mut needs) = self.tail.bind(cx, self.dtype, &|_| !vectors)?;
        let (a, b) = (&cx.inputs[self.inputs[0]], &cx.inputs[self.inputs[1]]);
        let packed = cx.is_packed(self.inputs[1], formats::MATMUL_RHS)?;
        let s = self.shape.get_or_insert_with(|| Box::new(Shape::NONE));
        **s = Shape::of(a, b, &product, packed)?;
        let work = s.m as f64 * s.n as f64 * s.k as f64 * s.batches() as f64;
        let rate = if is_packed(self.dtype) { F32_PER_NANO } else { 1.0 };
        let nanos = work / rate;
        s.worth = nanos > WORTH_NANOS;
        needs.nanos += nanos;
        if is_packed(self.dtype) && !packed {
            s.pack_bytes = packed_bytes(self.dtype, s.k, s.n).ok_or_else(|| {
                mismatch(format!("a right-hand side of {}×{} is too large to pack", s.k, s.n))
            })?;
            if s.batches() >= MANY_BATCHES {
                needs.thread_scratch = needs.thread_scratch.max(s.pack_bytes);
            } else {
                needs.shared_scratch += s.pack_bytes;
            }
        }
        if let Some(producer) = &mut self.producer {
            producer.bind(cx, s, &mut needs)?;
        } else if s.copies_rows() {
            let rows = s.batches() * s.m;
            let bytes = rows.checked_mul(s.k).and_then(|n| n.checked_mul(self.dtype.size_bytes()));
            needs.shared_scratch += bytes.ok_or_else(|| mismatch("a matmul that is too large"))?;
        }
        Ok(needs)
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            packed_type!(self.dtype, T => self.run_packed::<T>(cx), _ => self.run_generic(cx));
            self.tail.finish(cx);
        }
        Ok(())
    }

    fn weights(&self) -> Upcoming {
        let s = self.shape();
        let depth = packed_type!(self.dtype, T => gemm::groups::<T>(s.k), _ => s.k);
        s.packed.then_some((s.b, depth, gemm::panels(s.n)))
    }

    fn set_next(&mut self, next: Upcoming) {
        self.next = next;
    }

    fn set_tile_sizes(&mut self, tile_sizes: TileSizes) {
        self.tile_sizes = tile_sizes;
    }
}

impl MatMul {
    /// What it was bound to.
    pub(super) fn shape(&self) -> &Shape {
        self.shape.as_deref().unwrap_or(&Shape::NONE)
    }

    /// The matmul of one batch, with B already packed at `b`.
    fn gemm<T: Packed>(&self, cx: &RunCx<'_, '_>, batch: usize, b: *const f32) -> Gemm<Strided<T>> {
        let s = self.shape();
        let [c_at, a_at, _] = s.batch_at(batch);
        let mut epilogue = self.tail.epilogue::<T>(cx);
        if let Some(combine) = &mut epilogue.combine {
            combine.ptr = combine.ptr.wrapping_add(batch * s.m * combine.row_stride);
        }
        Gemm {
            m: s.m,
            n: s.n,
            k: s.k,
            rows: Strided { ptr: cx.ptr::<T>(s.a).wrapping_offset(a_at), row_stride: s.a_strides[0] },
            b,
            c: cx.ptr::<T>(s.c).wrapping_offset(c_at),
            c_stride: s.c_stride,
            epilogue,
            tile_sizes: self.tile_sizes,
            ahead: cx.ahead(None),
            wide: None,
        }
    }

    unsafe fn run_packed<T: Packed>(&self, cx: &mut RunCx<'_, '_>) {
        let s = self.shape();
        let isa = cx.isa;
        // SAFETY: the caller's promise, for every matmul below.
        unsafe {
            if let Some(producer) = &self.producer {
                let ahead = cx.ahead(self.next);
                for batch in 0..s.batches() {
                    let g = Gemm { ahead, ..self.gemm::<T>(cx, batch, cx.ptr(s.b)) };
                    producer.for_parts(cx, &g, |cx, part| run_gemm(cx, isa, s.worth, part));
                }
            } else if s.copies_rows() {
                self.run_copying::<T>(cx, isa);
            } else if s.packed {
                let ahead = cx.ahead(self.next);
                for batch in 0..s.batches() {
                    let g = Gemm { ahead, ..self.gemm::<T>(cx, batch, cx.ptr(s.b)) };
                    run_gemm(cx, isa, s.worth, &g);
                }
            } else if s.batches() >= MANY_BATCHES {
                self.run_batches::<T>(cx, isa);
            } else {
                for batch in 0..s.batches() {
                    self.run_packing::<T>(cx, isa, batch);
                }
            }
        }
    }

    /// Copies the rows of all batches, then multiplies them at once.
    ///
    /// # Safety
    /// As [`StepKernel::run`]; the operands must be of `T`, and [`Shape::copies_rows`] be so.
    unsafe fn run_copying<T: Packed>(&self, cx: &mut RunCx<'_, '_>, isa: Isa) {
        let s = self.shape();
        let copy = Shared::new(cx.shared_scratch.wrapping_add(self.tail.scratch_bytes()).cast::<T>());
        let from = cx.shared::<T>(s.a);
        cx.parallel(s.worth, s.batches(), &|range, _| {
            for batch in range {
                let first = from.get().wrapping_offset(s.batch_at(batch)[1]);
                for row in 0..s.m {
                    let source = first.wrapping_offset(row as isize * s.a_strides[0]);
                    let to = copy.get().wrapping_add((batch * s.m + row) * s.k);
                    // SAFETY: the view is within its buffer, its rows are contiguous, and shared scratch has room for all of them.
                    unsafe { std::ptr::copy_nonoverlapping(source, to, s.k) };
                }
            }
        });
        let rows = Strided { ptr: copy.get().cast_const(), row_stride: s.k as isize };
        let first = self.gemm::<T>(cx, 0, cx.ptr(s.b));
        let all = Gemm { m: s.m * s.batches(), rows, ahead: cx.ahead(self.next), ..first };
        // SAFETY: the caller's promise; results of all batches lie behind each other.
        unsafe { run_gemm(cx, isa, s.worth, &all) };
    }

    /// One task for each batch: packs into the thread's scratch, then multiplies.
    unsafe fn run_batches<T: Packed>(&self, cx: &mut RunCx<'_, '_>, isa: Isa) {
        let s = self.shape();
        let b = cx.shared::<T>(s.b);
        let first = self.gemm::<T>(cx, 0, std::ptr::null());
        let (a0, c0) = (first.rows.ptr.wrapping_offset(-s.batch[1].at(0)), first.c);
        let shared = BatchPlan { gemm: first, a: a0, c: c0 };
        cx.parallel(s.worth, s.batches(), &|range, scratch| {
            let plan = &shared;
            for batch in range {
                let [c_at, a_at, b_at] = s.batch_at(batch);
                let packed = scratch.cast::<f32>();
                let mut g = plan.gemm;
                g.rows.ptr = plan.a.wrapping_offset(a_at);
                g.c = plan.c.wrapping_offset(c_at);
                g.b = packed;
                if let Some(combine) = &mut g.epilogue.combine {
                    combine.ptr = combine.ptr.wrapping_add(batch * s.m * combine.row_stride);
                }
                // SAFETY: scratch holds one packed right-hand side; batches write disjoint results.
                unsafe {
                    let from = b.get().wrapping_offset(b_at);
                    gemm::pack(from, s.b_strides[0], s.b_strides[1], s.k, s.n, packed, 0..gemm::panels(s.n));
                    g.run(isa, 0..g.tasks(isa));
                }
            }
        });
    }

    /// All threads pack one right-hand side, then multiply by it.
    unsafe fn run_packing<T: Packed>(&self, cx: &mut RunCx<'_, '_>, isa: Isa, batch: usize) {
        let s = self.shape();
        // The matmul itself may be in front.
        let offset = self.tail.scratch_bytes();
        let packed = Shared::new(cx.shared_scratch.wrapping_add(offset).cast::<f32>());
        let from = Shared::new(cx.ptr::<T>(s.b).wrapping_offset(s.batch[2].at(batch)));
        cx.parallel(s.worth, gemm::panels(s.n), &|range, _| {
            // SAFETY: shared scratch holds the packed right-hand side; each panel is written once.
            unsafe { gemm::pack(from.get(), s.b_strides[0], s.b_strides[1], s.k, s.n, packed.get(), range) }
        });
        let g = self.gemm::<T>(cx, batch, packed.get());
        // SAFETY: the caller's promise.
        unsafe { run_gemm(cx, isa, s.worth, &g) };
    }

    unsafe fn run_generic(&self, cx: &mut RunCx<'_, '_>) {
        // SAFETY: the caller's promise; the types are those of the operands.
        unsafe {
            match self.dtype {
                DType::F64 => self.generic::<f64>(cx),
                // Integers wrap around: signed and unsigned matmuls are the same bits.
                DType::I8 | DType::U8 => self.generic::<u8>(cx),
                DType::I16 | DType::U16 => self.generic::<u16>(cx),
                DType::I32 | DType::U32 => self.generic::<u32>(cx),
                _ => self.generic::<u64>(cx),
            }
        }
    }

    unsafe fn generic<T: gemm::Element>(&self, cx: &mut RunCx<'_, '_>) {
        let s = self.shape();
        let (a, b, c) = (cx.shared::<T>(s.a), cx.shared::<T>(s.b), cx.shared::<T>(s.c));
        if s.m == 0 {
            return;
        }
        cx.parallel(s.worth, s.batches() * s.m, &|range, _| {
            for unit in range {
                let (batch, row) = (unit / s.m, unit % s.m);
                let [c_at, a_at, b_at] = s.batch_at(batch);
                let [a_rows, a_columns] = s.a_strides;
                let [b_rows, b_columns] = s.b_strides;
                let a = StridedMatrix {
                    ptr: a.get().wrapping_offset(a_at).cast_const(),
                    row_stride: a_rows,
                    col_stride: a_columns,
                };
                let b = StridedMatrix {
                    ptr: b.get().wrapping_offset(b_at).cast_const(),
                    row_stride: b_rows,
                    col_stride: b_columns,
                };
                // SAFETY: the caller's promise; each row is written once.
                unsafe {
                    let c = c.get().wrapping_offset(c_at);
                    gemm::generic_gemm(row..row + 1, s.n, s.k, a, b, c, s.c_stride);
                }
            }
        });
    }
}

/// What the tasks of a batched matmul share.
struct BatchPlan<T: Packed> {
    gemm: Gemm<Strided<T>>,
    a: *const T,
    c: *mut T,
}

// SAFETY: addresses alone; the tasks that use them write disjoint results.
unsafe impl<T: Packed> Sync for BatchPlan<T> {}

/// Runs a matmul on all threads.
///
/// # Safety
/// As [`Gemm::run`].
pub(crate) unsafe fn run_gemm<R: gemm::Rows<Element: Packed>>(
    cx: &mut RunCx<'_, '_>,
    isa: Isa,
    worth: bool,
    g: &Gemm<R>,
) {
    cx.parallel(worth, g.tasks(isa), &|range, _| {
        // SAFETY: the caller's promise; ranges do not overlap.
        unsafe { g.run(isa, range) }
    });
}
