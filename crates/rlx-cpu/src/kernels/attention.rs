//! Attention: for each head and block of queries, scores, softmax and the weighted sum of the values.
//!
//! A task packs the keys and values of its head into its thread's scratch and multiplies on the packed kernel, some keys after the
//! other, so that all it works on stays in the cache ([`streaming`]). A few queries, as of a decoder with a cache, read keys and values
//! where they are ([`direct`]). What a gather before it would pick from a table it finds there itself ([`gathered`]). Heads are found
//! through strides, so `[B, S, H·D]` and `[B, H, S, D]` are the same to it. A query that may see nothing gives 0.
//!
//! Scores are f32. 16-bit floats are widened as they are read; bf16 is multiplied as it is where the processor has its products and there
//! are many queries, and weights are rounded to bf16 there.

mod direct;
mod gathered;
mod heads;
mod mask;
mod streaming;

use std::ops::Range;

use half::bf16;
use rlx_ir::op::{MaskKind, Unseen};
use rlx_ir::{DType, Error, Graph, Node, Op, Result};
use rlx_opt::Claim;

use self::gathered::{Operand, Rows, Slices, Source};
pub(crate) use self::gathered::{Reads, fuses, reads};
use self::heads::Heads;
use self::mask::{AddMask, MaskRow, apply_mask};
use self::streaming::{BLOCK, TOGETHER};
use super::elementwise::halves::{Conversion, convert, widen_strided};
use super::matmul::is_packed;
use super::{BindCx, CompileCx, Needs, RunCx, Shared, StepKernel, WORTH_NANOS, mismatch, no_kernel};
use crate::gemm::Strided;
use crate::isa::Isa;
use crate::layout::{At, Layout};
use crate::rows::{self, Softmax};

/// Whether operands are of f32, f16 or bf16.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let other = node.inputs[..3].iter().map(|&id| graph.shape(id).dtype()).find(|&d| !is_packed(d));
    match other {
        None => Claim::Native,
        Some(dtype) => Claim::No(format!("there is no attention kernel for {dtype}")),
    }
}

/// The kernel of an attention.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let mask = (cx.step.inputs.len() > 3).then_some(3);
    let reads = Reads { query: 0, keys: Source::Input(1), values: Source::Input(2), mask };
    let op = cx.node().op.clone();
    kernel(cx, &op, reads)
}

/// The kernel of the attention `op` that reads these inputs of the step.
pub(super) fn kernel(cx: &mut CompileCx<'_>, op: &Op, reads: Reads) -> Result<Box<dyn StepKernel>> {
    let &Op::Attention { num_heads: heads, head_dim, mask: kind, window, scale, unseen } = op else {
        return Err(no_kernel(op, "it is no attention"));
    };
    let Reads { query, keys, values, mask } = reads;
    let bool_mask = mask.is_some_and(|mask| cx.step.inputs[mask].dtype == DType::Bool);
    let scale = scale.unwrap_or((1.0 / (head_dim as f64).sqrt()) as f32);
    let dtype = cx.step.inputs[query].dtype;
    let tables = [keys, values].map(|source| match source {
        Source::Input(input) => Operand::Input(input),
        Source::Table(table) => Operand::Table(table.compile(cx)),
    });
    let bound = None;
    Ok(Box::new(Attention {
        query,
        tables,
        mask,
        dtype,
        multiplies_bf16: cx.isa.multiplies_bf16(),
        heads,
        head_dim,
        kind,
        window,
        bool_mask,
        scale,
        unseen,
        bound,
    }))
}

/// The numbers of a bound attention.
#[derive(Debug, Clone, Copy)]
struct Bindings {
    q: Heads,
    k: Heads,
    v: Heads,
    y: Heads,
    /// Where keys and values are that a gather would have put there.
    slices: [Option<Slices>; 2],
    mask: Option<(At, Layout)>,
    /// Elements of scratch for packed keys, packed values, scores, what 16-bit operands are widened into (queries, keys or values, the
    /// mask's row), sums, and what is known of their rows.
    parts: [usize; 8],
    /// The type of products.
    multiplied: DType,
    /// Whether keys and values are read where they are.
    direct: bool,
    worth: bool,
}

impl Bindings {
    /// Where the parts of scratch are.
    fn scratch(&self, scratch: *mut f32) -> [*mut f32; 8] {
        std::array::from_fn(|part| scratch.wrapping_add(self.parts[..part].iter().sum()))
    }

    /// Calls `each` with heads that share their keys, in turn, and their item of the batch.
    fn sharing(&self, heads: Range<usize>, mut each: impl FnMut(usize, Range<usize>)) {
        let [_, all, queries, _] = self.q.dims;
        let sharing = all / self.k.dims[1];
        let most = direct::together(queries, sharing) / queries.max(1);
        let mut next = heads.start;
        while next < heads.end {
            let (b, h) = (next / all, next % all);
            let count = (sharing - h % sharing).min(heads.end - next).min(most.max(1));
            each(b, h..h + count);
            next += count;
        }
    }
}

/// A bound attention.
#[derive(Debug, Clone)]
struct Attention {
    /// Which of the step's inputs has the queries.
    query: usize,
    /// Keys and values.
    tables: [Operand; 2],
    /// Which of the step's inputs is the mask.
    mask: Option<usize>,
    dtype: DType,
    /// Whether the processor multiplies bf16 as it is.
    multiplies_bf16: bool,
    heads: usize,
    head_dim: usize,
    kind: MaskKind,
    /// How many keys a query sees at most, the last ones up to its own place.
    window: Option<usize>,
    bool_mask: bool,
    scale: f32,
    unseen: Unseen,
    bound: Option<Bindings>,
}

impl StepKernel for Attention {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let q = Heads::of(&cx.inputs[self.query], None, Some(self.head_dim))?;
        let (k, k_slices) = self.tables[0].bind(cx, 0)?;
        let places = k_slices.map_or(0, |slices| slices.end());
        let (v, v_slices) = self.tables[1].bind(cx, places)?;
        let places = v_slices.map_or(places, |slices| slices.end());
        let k = Heads::of(&k, None, Some(self.head_dim))?;
        let v = Heads::of(&v, Some(k.dims[1]), None)?;
        let slices = [k_slices, v_slices];
        let whole =
            |(slices, heads): (&Option<Slices>, &Heads)| slices.is_none_or(|s| s.have_whole_rows(heads));
        let y = Heads::of(&cx.outputs[0], Some(self.heads), None)?;
        let ([b, h, sq, d], [kb, kh, sk, kd], [vb, vh, vk, dv]) = (q.dims, k.dims, v.dims);
        let fits = kb == b && vb == b && kd == d && vh == kh && vk == sk && h == self.heads;
        let fits = fits
            && kh != 0
            && h % kh == 0
            && y.dims == [b, h, sq, dv]
            && (q.strides[3] == 1 || d == 1)
            && (y.strides[3] == 1 || dv == 1)
            && slices.iter().zip([&k, &v]).all(whole);
        if !fits {
            return Err(mismatch(format!("attention over {:?}, {:?}, {:?}", q.dims, k.dims, v.dims)));
        }
        let mask = match self.mask.map(|mask| &cx.inputs[mask]) {
            Some(m) => {
                let dims = [b, h, sq, sk];
                let layout = m.layout.broadcast_to(&dims);
                Some((
                    m.at,
                    layout.ok_or_else(|| mismatch(format!("a mask {:?} for scores {dims:?}", m.dims())))?,
                ))
            }
            None => None,
        };
        let whole_vectors = |n: usize| n.checked_next_multiple_of(16).ok_or_else(too_large);
        let direct = sq <= direct::FEW && (k.strides[3] == 1 || d == 1) && (v.strides[3] == 1 || dv == 1);
        let as_it_is = self.dtype == DType::BF16 && self.multiplies_bf16 && !direct;
        let multiplied = if as_it_is { DType::BF16 } else { DType::F32 };
        let wide = |n: usize| if self.dtype == multiplied { Ok(0) } else { whole_vectors(n) };
        let block = if direct { direct::together(sq, h / kh) } else { sq.min(BLOCK) };
        let scores = match direct {
            true => block.checked_mul(sk),
            false => block.min(TOGETHER).checked_mul(streaming::keys_at_once(sk)),
        };
        let sizes = if direct { [Some(0); 2] } else { streaming::packed_sizes(multiplied, d, sk, dv) };
        let rows = |n: usize| if direct { Ok(0) } else { block.checked_mul(n).ok_or_else(too_large) };
        let lines = [d, dv].map(|n| sk.saturating_mul(n));
        let parts = [
            sizes[0].ok_or_else(too_large)?,
            sizes[1].ok_or_else(too_large)?,
            whole_vectors(scores.ok_or_else(too_large)?)?,
            wide(block.checked_mul(d.max(dv)).ok_or_else(too_large)?)?,
            // Direct, keys and values are there at one time.
            whole_vectors(self.lines(lines, &slices, direct, multiplied))?,
            whole_vectors(sk)?,
            whole_vectors(rows(dv)?)?,
            whole_vectors(rows(2)?)?,
        ];
        let elements = parts.iter().try_fold(0usize, |all, &part| all.checked_add(part));
        let thread_scratch = elements.and_then(|n| n.checked_mul(size_of::<f32>())).ok_or_else(too_large)?;
        let seen = self.window.map_or(sk, |window| sk.min(window));
        let nanos = (b * h * sq) as f64 * seen as f64 * ((d + dv) as f64 / 30.0 + 0.35);
        let worth = nanos > WORTH_NANOS;
        self.bound = Some(Bindings { q, k, v, y, slices, mask, parts, multiplied, direct, worth });
        let shared_scratch = places * size_of::<u64>();
        Ok(Needs { thread_scratch, shared_scratch, nanos })
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(s) = &self.bound else { return Err(mismatch("a step that was not bound")) };
        let [b, h, sq, _] = s.q.dims;
        let blocks = sq.div_ceil(BLOCK);
        let base = |x: &Heads| cx.shared::<u8>(x.at);
        let places = Shared::new(cx.shared_scratch.cast::<u64>());
        for slices in s.slices.iter().flatten() {
            // SAFETY: the indices are the caller's promise; binding asked for room for the places.
            unsafe { slices.find(cx, places.get())? };
        }
        let (q, k, v, y) = (base(&s.q), base(&s.k), base(&s.v), base(&s.y));
        let run = Run { isa: cx.isa, q, k, v, y, mask: s.mask.map(|(at, _)| cx.shared(at)), places };
        cx.parallel(s.worth, b * h * blocks, &|range, scratch| {
            let mut packed = None;
            if s.direct {
                // SAFETY: views are within their buffers, scratch has room for the parts, and each call writes rows of its own; the heads
                // are those of one item that share their keys, as many as scratch has room for.
                return s.sharing(range, |b, heads| unsafe {
                    self.few(s, &run, scratch.cast(), (b, heads), &mut packed)
                });
            }
            for unit in range {
                let (head, block) = (unit / blocks, unit % blocks);
                let place = (head / h, head % h, block);
                // SAFETY: views are within their buffers, scratch has room for the parts, and each task
                // writes rows of its own.
                unsafe {
                    match s.multiplied {
                        DType::BF16 => self.block::<bf16>(s, &run, scratch.cast(), place, &mut packed),
                        _ => self.block::<f32>(s, &run, scratch.cast(), place, &mut packed),
                    }
                }
            }
        });
        Ok(())
    }
}

#[cold]
fn too_large() -> Error {
    mismatch("an attention that is too large")
}

/// Where the operands of a run are.
struct Run {
    isa: Isa,
    q: Shared<u8>,
    /// The keys, or the table with them.
    k: Shared<u8>,
    v: Shared<u8>,
    y: Shared<u8>,
    mask: Option<Shared<u8>>,
    /// Of the slices of tables.
    places: Shared<u64>,
}

/// Keys and values that a thread has in its scratch, packed or widened.
struct InScratch {
    /// The item of the batch and its head of keys.
    head: (usize, usize),
    /// The first so many rows.
    rows: usize,
}

impl InScratch {
    fn holds(&self, head: (usize, usize), rows: usize) -> bool {
        self.head == head && self.rows >= rows
    }
}

impl Attention {
    /// Elements of scratch for keys and values of a head, so many elements each, that are not of the type of products, or slices of a table
    /// that are packed. Those that are not packed are there at one time, `both` of them.
    fn lines(
        &self,
        elements: [usize; 2],
        slices: &[Option<Slices>; 2],
        both: bool,
        multiplied: DType,
    ) -> usize {
        let moved = |slices: &Option<Slices>| self.dtype != multiplied || (slices.is_some() && !both);
        let [k, v] = [0, 1].map(|i| if moved(&slices[i]) { elements[i] } else { 0 });
        // Values have their place behind the keys.
        if both && v > 0 { elements[0].saturating_add(v) } else { k.max(v) }
    }

    /// Rows of f32: where they are, or widened into `wide`.
    ///
    /// # Safety
    /// The rows must be readable, their elements neighbours, and `wide` writable for them unless they are f32.
    unsafe fn rows(
        &self,
        isa: Isa,
        from: *const u8,
        row_stride: isize,
        [rows, columns]: [usize; 2],
        wide: *mut f32,
    ) -> Strided {
        if self.dtype == DType::F32 {
            return Strided { ptr: from.cast(), row_stride };
        }
        for row in 0..rows {
            let source = from.wrapping_offset(row as isize * row_stride * self.dtype.size_bytes() as isize);
            let to = wide.wrapping_add(row * columns);
            // SAFETY: the caller's promise.
            unsafe { convert(isa, Conversion::Widen, self.dtype, source, to.cast(), columns) }
        }
        Strided { ptr: wide, row_stride: columns as isize }
    }

    /// Table and places of the keys (`of` 0) or values (1) of a head, and where in what would be gathered its first row is, and the next.
    fn sliced(
        &self,
        s: &Bindings,
        run: &Run,
        of: usize,
        (b, kv): (usize, usize),
    ) -> ([*const u8; 2], (usize, usize)) {
        let (heads, base) = if of == 0 { (&s.k, run.k) } else { (&s.v, run.v) };
        let at = (heads.head(b, kv) as usize, heads.strides[2] as usize);
        ([base.get().cast_const(), run.places.get().cast_const().cast()], at)
    }

    /// The first `rows` keys (`of` 0) or values (1) of a head, as f32: where they are, or in `to`, where there must be room for them.
    /// With `held` they are in `to` already.
    ///
    /// # Safety
    /// As [`Attention::few`]; the rows must be contiguous.
    #[allow(clippy::too_many_arguments)]
    unsafe fn head<'s>(
        &self,
        s: &'s Bindings,
        run: &Run,
        of: usize,
        head: (usize, usize),
        rows: usize,
        to: *mut f32,
        held: bool,
    ) -> Rows<'s> {
        let (heads, base) = if of == 0 { (&s.k, run.k) } else { (&s.v, run.v) };
        let columns = heads.dims[3];
        // Rows without elements are in no slice.
        if held || columns == 0 {
            return Rows::Strided(Strided { ptr: to, row_stride: columns as isize });
        }
        // SAFETY: the caller's promise.
        unsafe {
            match &s.slices[of] {
                Some(slices) => {
                    let (operands, at) = self.sliced(s, run, of, head);
                    if self.dtype == DType::F32 {
                        return Rows::Sliced(slices, operands, at);
                    }
                    slices.copy(run.isa, operands, at, [rows, columns], to);
                    Rows::Strided(Strided { ptr: to, row_stride: columns as isize })
                }
                None => {
                    let first = heads.head(head.0, head.1) * self.dtype.size_bytes() as isize;
                    let from = base.get().wrapping_offset(first);
                    Rows::Strided(self.rows(run.isa, from, heads.strides[2], [rows, columns], to))
                }
            }
        }
    }

    /// Where a row of a head's queries or results is.
    fn row_of(&self, p: Shared<u8>, of: &Heads, (b, h, row): (usize, usize, usize)) -> *mut u8 {
        let place = of.head(b, h) + row as isize * of.strides[2];
        p.get().wrapping_offset(place * self.dtype.size_bytes() as isize)
    }

    /// The keys that a query may see, before any mask of its own: some of the first ones, or with a window the last of these.
    fn visible(&self, s: &Bindings, query: usize) -> Range<usize> {
        let (sq, sk) = (s.q.dims[2], s.k.dims[2]);
        match self.kind {
            MaskKind::Causal => {
                let end = (query + 1 + sk).saturating_sub(sq).min(sk);
                self.window.map_or(0, |window| end.saturating_sub(window))..end
            }
            _ => 0..sk,
        }
    }

    /// The weight of a key that is not seen by a query that sees `visible` keys.
    fn nothing(&self, visible: usize) -> f32 {
        if self.unseen == Unseen::Nan && visible == 0 { f32::NAN } else { 0.0 }
    }

    /// Where the keys are that a query sees.
    ///
    /// # Safety
    /// The mask must be readable.
    unsafe fn seen(
        &self,
        s: &Bindings,
        mask: Option<Shared<u8>>,
        place: (usize, usize, usize),
    ) -> Range<usize> {
        let visible = self.visible(s, place.2);
        match self.mask_row(s, mask, place) {
            // SAFETY: the caller's promise: the mask broadcasts onto all scores.
            Some(row) => unsafe { row.seen(visible.end) },
            None => visible,
        }
    }

    /// The mask of one query.
    fn mask_row(
        &self,
        s: &Bindings,
        mask: Option<Shared<u8>>,
        (b, h, query): (usize, usize, usize),
    ) -> Option<MaskRow> {
        let (Some(mask), Some((_, layout)), MaskKind::Custom) = (mask, &s.mask, self.kind) else {
            return None;
        };
        let stride = layout.strides();
        let at = b as isize * stride[0] + h as isize * stride[1] + query as isize * stride[2];
        let dtype = if self.bool_mask { DType::Bool } else { self.dtype };
        let first = mask.get().wrapping_offset(at * dtype.size_bytes() as isize).cast_const();
        Some(MaskRow { first, stride: stride[3], dtype })
    }

    /// Scales the scores of one query for the keys from `start` on, and masks them. `wide` has room for a row of the mask.
    ///
    /// # Safety
    /// The mask must be readable, and `wide` writable for as many scores.
    #[allow(clippy::too_many_arguments)]
    unsafe fn mask(
        &self,
        s: &Bindings,
        run: &Run,
        row: &mut [f32],
        wide: *mut f32,
        place: (usize, usize, usize),
        start: usize,
        scale: f32,
    ) {
        let mask = self.mask_row(s, run.mask, place);
        if scale != 1.0 && (mask.is_none() || self.bool_mask) {
            row.iter_mut().for_each(|x| *x *= scale);
        }
        let Some(mask) = mask else { return };
        let size = mask.dtype.size_bytes() as isize;
        let from = mask.first.wrapping_offset(start as isize * mask.stride * size);
        // SAFETY: the caller's promise: the mask broadcasts onto all scores.
        unsafe {
            if self.bool_mask {
                return apply_mask(row, from, mask.stride);
            }
            let direct = self.dtype == DType::F32 && mask.stride == 1;
            if !direct {
                widen_strided(run.isa, self.dtype, from, mask.stride, wide, row.len());
            }
            let mask = if direct { from.cast::<f32>() } else { wide.cast_const() };
            run.isa.run(AddMask { row, scale, mask });
        }
    }

    /// Turns the scores of one query into weights, in these columns.
    ///
    /// # Safety
    /// The scores must be writable in these columns, `wide` for as many, and the mask readable.
    unsafe fn weigh(
        &self,
        s: &Bindings,
        run: &Run,
        scores: *mut f32,
        wide: *mut f32,
        place: (usize, usize, usize),
        columns: Range<usize>,
    ) {
        // SAFETY: the caller's promise: a row of scores, and a mask that broadcasts onto all of them.
        unsafe {
            let isa = run.isa;
            let row = std::slice::from_raw_parts_mut(scores.wrapping_add(columns.start), columns.len());
            self.mask(s, run, row, wide, place, columns.start, 1.0);
            if row.is_empty() {
                return;
            }
            // One pointer for both: a second borrow of the row would end the first.
            let (columns, y) = (row.len(), row.as_mut_ptr());
            let x = y.cast_const();
            let largest = rows::softmax(isa, &Softmax { x, y, rows: 1, columns, log: false, held: None });
            // A weight is NaN where all of the row's are.
            let zero = match self.unseen {
                Unseen::Zero => largest == f32::NEG_INFINITY,
                Unseen::Guard => (*y).is_nan(),
                _ => false,
            };
            if zero {
                std::slice::from_raw_parts_mut(y, columns).fill(0.0);
            }
        }
    }
}
