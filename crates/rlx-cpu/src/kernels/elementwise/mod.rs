//! Elementwise ops and regions of them, as a tile program.
//!
//! The region's iteration space is the shape of its result; operands are broadcast onto it, and dimensions
//! that all operands step through alike become one. If what is innermost then is long, a tile is a piece of
//! one row: operands are read where they are, or are one value. If it is short, a tile runs across rows, and
//! what is not contiguous is gathered into a slot. Short rows that an operand repeats (a gate for each channel) are joined to a row of
//! their own: a tile is some of them, and the operand's slot holds it as many times. An operand that is read through a transposed view
//! is transposed on the way, a panel of the tiles of sixteen rows at a time.

mod affine;
mod chain;
mod functions;
pub(crate) mod halves;
pub(crate) mod instr;
mod loops;
mod number;
mod panels;
mod plain;
pub(crate) mod program;
pub(crate) mod quantised;
mod short_rows;
mod strided;
mod tables;
mod tiles;
mod vectors;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use rlx_ir::{DType, Graph, Node, Op, OpKind, Result};
use rlx_opt::Claim;

use self::affine::Affine;
use self::instr::{ARGS, Results, Source};
use self::panels::{PANEL, PANEL_TILE};
use self::program::{InputKind, Instr, TILE, TileProgram};
use self::short_rows::ShortRows;
use self::tables::{BYTES, ENTRIES, WORTH_TABLES};
use super::{
    BindCx, CloneKernel, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound,
};
use crate::isa::{Isa, Kernel};
use crate::layout::{At, Bound, Layout};
use crate::memory::Place;
use crate::simd::Simd;
use crate::stores::Stores;

pub(crate) use strided::{gather, gather_any, scatter, sized};

/// How many bytes ahead rows are prefetched that are apart in memory, of an operand of at least so many bytes.
const AHEAD: [usize; 2] = [4 << 10, 1 << 20];

/// Whether there is code for a node.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let inputs: Vec<DType> = node.inputs.iter().map(|&id| graph.shape(id).dtype()).collect();
    match program::main_of(&node.op, &inputs, node.shape.dtype()) {
        Ok(_) => Claim::Native,
        Err(why) => Claim::No(why),
    }
}

/// The kernel of a step of one op.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let op = &cx.module.graph.node(cx.step.node).op;
    let inputs: Vec<DType> = cx.step.inputs.iter().map(|o| o.dtype).collect();
    let program = cx.programs.of_op(op, inputs, cx.step.outputs[0].dtype);
    Ok(Box::new(Unbound(program.map_err(|why| no_kernel(op, &why))?)))
}

/// A step before it is bound: there may be very many.
struct Unbound(Arc<TileProgram>);

impl CloneKernel for Unbound {
    fn boxed(&self) -> Box<dyn StepKernel> {
        Box::new(Elementwise::new(Arc::clone(&self.0)))
    }
}

impl StepKernel for Unbound {
    fn bind(&mut self, _: &BindCx<'_>) -> Result<Needs> {
        Err(unbound())
    }

    unsafe fn run(&self, _: &mut RunCx<'_, '_>) -> Result<()> {
        Err(unbound())
    }
}

/// The programs of single ops in a module: steps that compute the same share one.
#[derive(Default)]
pub(crate) struct Programs {
    /// By the op, the types that it reads and the type that it writes.
    known: HashMap<(OpKind, String, Vec<DType>, DType), Arc<TileProgram>>,
}

impl Programs {
    fn of_op(
        &mut self,
        op: &Op,
        inputs: Vec<DType>,
        result: DType,
    ) -> std::result::Result<Arc<TileProgram>, String> {
        match self.known.entry((op.kind(), rlx_ir::text::attrs_key(op), inputs, result)) {
            Entry::Occupied(known) => Ok(Arc::clone(known.get())),
            Entry::Vacant(new) => {
                let made = program::of_node(op, &new.key().2, result)?;
                Ok(Arc::clone(new.insert(Arc::new(made))))
            }
        }
    }
}

/// How an operand is read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Where it is.
    Direct,
    /// One value for the whole tile.
    Uniform,
    /// By way of a slot.
    Strided,
    /// By way of a slot with so many elements again and again, which serves all tiles of a row.
    Repeated(usize),
    /// By way of a panel: neighbours in memory are below each other in the iteration space.
    Transposed,
}

/// An operand on the iteration space.
#[derive(Debug, Clone, Copy)]
struct Walk {
    at: At,
    size: usize,
    layout: Layout,
    mode: Mode,
    /// Of an output: whether its instruction may write it to memory at once, because no later one reads an input there.
    early: bool,
    /// Of an input: whether its rows are prefetched, because no processor foresees what is read next.
    apart: bool,
}

impl Walk {
    fn new(at: At, size: usize) -> Walk {
        Walk { at, size, layout: Layout::SCALAR, mode: Mode::Direct, early: true, apart: false }
    }
}

/// A bound tile program: a step of its own, or what follows an anchor.
#[derive(Debug, Clone)]
pub(crate) struct Elementwise {
    /// Without tables, and as it is run.
    given: Arc<TileProgram>,
    program: Arc<TileProgram>,
    inputs: Vec<Walk>,
    outputs: Vec<Walk>,
    layouts: Vec<Layout>,
    /// The iteration space: rows of `inner` elements.
    rows: usize,
    inner: usize,
    /// Elements of a tile, and how many tiles a row (or all) is split into.
    tile: usize,
    pieces: usize,
    by_row: bool,
    /// Neighbouring rows that are walked in blocks of [`PANEL`], where an operand has panels; else 0.
    height: usize,
    /// How results are stored where they are not read before all are there.
    stores: Stores,
    /// Whether tiles are run by `plain`.
    plain: bool,
    /// The whole of it, where it is a factor and a summand for each column.
    affine: Option<Affine>,
    /// The same, where it is an op of two operands over short rows.
    short_rows: Option<ShortRows>,
    worth: bool,
}

impl Elementwise {
    pub(crate) fn new(program: Arc<TileProgram>) -> Elementwise {
        Elementwise {
            given: Arc::clone(&program),
            program,
            inputs: Vec::new(),
            outputs: Vec::new(),
            layouts: Vec::new(),
            rows: 0,
            inner: 0,
            tile: TILE,
            pieces: 0,
            by_row: true,
            height: 0,
            stores: Stores::Cached,
            plain: false,
            affine: None,
            short_rows: None,
            worth: false,
        }
    }

    /// Binds to operands; `anchor` is where the anchor's result is. An output may have the place and the view of an input.
    pub(crate) fn bind_with(
        &mut self,
        inputs: &[Bound],
        outputs: &[Bound],
        anchor: Option<&Bound>,
    ) -> Result<Needs> {
        let dims = outputs.first().map_or(&[][..], |o| o.dims());
        let elements: usize = dims.iter().product();
        let tabled = self.given.tabled.as_ref().filter(|_| elements >= WORTH_TABLES);
        self.program = Arc::clone(tabled.unwrap_or(&self.given));
        self.layouts.clear();
        self.inputs.clear();
        self.outputs.clear();
        for (bound, out) in outputs.iter().zip(&self.program.outputs) {
            if bound.dims() != dims {
                return Err(mismatch(format!("the results of a region are {dims:?} and {:?}", bound.dims())));
            }
            self.layouts.push(bound.layout);
            self.outputs.push(Walk::new(bound.at, out.size));
        }
        for input in &self.program.inputs {
            let bound = match (input.kind, anchor) {
                (InputKind::Step(i), _) => &inputs[i],
                (InputKind::Anchor, Some(anchor)) => anchor,
                (InputKind::Anchor, None) => return Err(mismatch("a region without its anchor")),
            };
            let layout = bound
                .layout
                .broadcast_to(dims)
                .ok_or_else(|| mismatch(format!("cannot broadcast {:?} to {dims:?}", bound.dims())))?;
            self.layouts.push(layout);
            let size = input.dtype.size_bytes();
            self.inputs.push(Walk::new(bound.at, size));
            for (walk, out) in self.outputs.iter_mut().zip(&self.program.outputs) {
                walk.early &= walk.at != bound.at || out.made_at.is_some_and(|at| at >= input.last_use);
            }
        }
        self.shape(elements);
        self.stores = self.stores_of(elements);
        self.plain = self.is_plain();
        self.affine = Affine::of(self);
        self.short_rows = ShortRows::of(self);
        let nanos = self.program.nanos * (self.rows * self.inner) as f64;
        self.worth = nanos > WORTH_NANOS;
        Ok(Needs { thread_scratch: self.scratch_bytes(), shared_scratch: 0, nanos })
    }

    fn table_bytes(&self) -> usize {
        (self.program.values * size_of::<Source>()).next_multiple_of(64)
    }

    fn slot_bytes(&self) -> usize {
        self.program.widest * self.tile.max(TILE)
    }

    fn slots_bytes(&self) -> usize {
        (self.program.slots + self.program.inputs.len()) * self.slot_bytes()
    }

    /// Of one operand: the elements of a tile in each of [`PANEL`] rows.
    fn panel_bytes(&self) -> usize {
        if self.height > 0 { PANEL * PANEL_TILE * size_of::<u64>() } else { 0 }
    }

    fn scratch_bytes(&self) -> usize {
        let panels = self.program.inputs.len() * self.panel_bytes();
        self.table_bytes() + self.slots_bytes() + panels + self.program.tables.len() * ENTRIES
    }

    /// How many tiles there are.
    pub(crate) fn tiles(&self) -> usize {
        if self.by_row { self.rows * self.pieces } else { self.pieces }
    }

    /// Computes all tiles.
    ///
    /// # Safety
    /// As [`StepKernel::run`].
    pub(crate) unsafe fn run_all(&self, cx: &mut RunCx<'_, '_>) {
        if let Some(affine) = &self.affine {
            // SAFETY: the caller's promise.
            return unsafe { affine.run(cx, self.worth) };
        }
        if let Some(rows) = &self.short_rows {
            // SAFETY: the caller's promise.
            return unsafe { rows.run(self, cx) };
        }
        let bases = Bases(cx.bases);
        let isa = cx.isa;
        cx.parallel_stores(self.worth, self.stores, self.tiles(), &|range, scratch| {
            // SAFETY: the caller's promise; each tile writes elements of its own, scratch is this thread's.
            unsafe { self.run_tiles(isa, bases, scratch, range) }
        });
    }

    unsafe fn run_tiles(&self, isa: Isa, bases: Bases<'_>, scratch: *mut u8, range: std::ops::Range<usize>) {
        if self.plain {
            // SAFETY: the caller's promise.
            return unsafe { self.run_plain(isa, bases, range) };
        }
        let program = &*self.program;
        let table = scratch.cast::<Source>();
        let slots = scratch.wrapping_add(self.table_bytes());
        // SAFETY: `scratch_bytes` covers the table and all slots.
        unsafe {
            for (i, c) in program.constants.iter().enumerate() {
                *table.add(program.inputs.len() + i) = Source { ptr: c.as_ptr().cast(), step: 0 };
            }
            let panels = slots.wrapping_add(self.slots_bytes());
            if !program.tables.is_empty() {
                let entries = panels.wrapping_add(program.inputs.len() * self.panel_bytes());
                self.fill_tables(isa, bases, table, slots, entries);
            }
            for unit in range.clone() {
                let (row, start, n) = if self.height > 0 {
                    let place = self.in_panels(unit);
                    let n = self.tile.min(self.inner - place.start);
                    if place.of_panel == 0 || unit == range.start {
                        // Rows of other threads are left alone: they may be written meanwhile.
                        let rows = place.left.min(range.end - unit);
                        self.load_panels(isa, bases, panels, &place, (rows, n));
                    }
                    self.point_to_panels(table, panels, place.of_panel);
                    (place.row, place.start, n)
                } else if self.by_row {
                    let (row, start) = (unit / self.pieces, unit % self.pieces * self.tile);
                    self.prefetch(isa, bases, row);
                    (row, start, self.tile.min(self.inner - start))
                } else {
                    let start = unit * self.tile;
                    (0, start, self.tile.min(self.rows * self.inner - start))
                };
                let first = start == 0 || unit == range.start;
                self.load_inputs(bases, table, slots, (row, start, n), first);
                self.compute(isa, bases, table, slots, (row, start, n));
            }
        }
    }

    /// Prefetches what is read some rows behind `row` of operands whose rows are apart.
    #[inline]
    fn prefetch(&self, isa: Isa, bases: Bases<'_>, row: usize) {
        for walk in self.inputs.iter().filter(|walk| walk.apart) {
            let bytes = self.inner * walk.size;
            let row = row + (AHEAD[0] / bytes).max(1);
            if row < self.rows {
                isa.run(Prefetch { at: self.place(bases, walk, row, 0), bytes });
            }
        }
    }

    /// Where a directly accessed tile of `walk` begins.
    fn place(&self, bases: Bases<'_>, walk: &Walk, row: usize, start: usize) -> *mut u8 {
        let offset = if self.by_row {
            let rank = walk.layout.rank();
            let inner = walk.layout.strides()[rank - 1];
            walk.layout.outer_at(row) + start as isize * inner
        } else if walk.mode == Mode::Direct {
            start as isize
        } else {
            0
        };
        bases.at(walk.at).wrapping_offset(offset * walk.size as isize)
    }

    /// Makes the inputs of a tile sources; `first` says whether it is this thread's first of its row.
    ///
    /// # Safety
    /// As [`StepKernel::run`]; the table has an entry and the slots one for each input.
    unsafe fn load_inputs(
        &self,
        bases: Bases<'_>,
        table: *mut Source,
        slots: *mut u8,
        (row, start, n): (usize, usize, usize),
        first: bool,
    ) {
        let slot = |i: usize| slots.wrapping_add((self.program.slots + i) * self.slot_bytes());
        for (i, walk) in self.inputs.iter().enumerate() {
            let at = self.place(bases, walk, row, start);
            let source = match walk.mode {
                Mode::Transposed => continue,
                Mode::Direct => Source { ptr: at, step: 1 },
                Mode::Uniform => Source { ptr: at, step: 0 },
                Mode::Repeated(period) => {
                    let slot = slot(i);
                    // No later tile of the row is longer.
                    for done in (0..if first { n } else { 0 }).step_by(period) {
                        // SAFETY: the view is within its buffer (checked when bound), the slot holds a tile.
                        unsafe {
                            strided::gather_run(
                                at,
                                1,
                                walk.size,
                                period,
                                slot.wrapping_add(done * walk.size),
                            );
                        }
                    }
                    Source { ptr: slot, step: 1 }
                }
                Mode::Strided => {
                    let slot = slot(i);
                    // SAFETY: the view is within its buffer (checked when bound), the slot holds a tile.
                    unsafe {
                        if self.by_row {
                            let stride = walk.layout.strides()[walk.layout.rank() - 1];
                            strided::gather_run(at, stride, walk.size, n, slot);
                        } else {
                            gather(at, &walk.layout, walk.size, start, n, slot);
                        }
                    }
                    Source { ptr: slot, step: 1 }
                }
            };
            // SAFETY: the table has an entry for each input.
            unsafe { *table.add(i) = source };
        }
    }

    /// Computes `n` elements of an instruction: at `to`, if there is such a place, else in its slot. What is one value for the whole tile stays so.
    ///
    /// # Safety
    /// Its operands must be in the table, with `n` elements, and `to` be writable for as many; slots hold a tile each.
    unsafe fn run_instr(
        &self,
        isa: Isa,
        instr: &Instr,
        table: *mut Source,
        slots: *mut u8,
        (to, n): (Option<*mut u8>, usize),
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut args = instr.args.map(|a| *table.add(usize::from(a)));
            let step = args[..usize::from(instr.arity)].iter().map(|a| a.step).max().unwrap_or(1);
            let slot = || slots.wrapping_add(usize::from(instr.slot) * self.slot_bytes());
            let n = if step == 0 { 1 } else { n };
            let results = match to.filter(|_| step == 1) {
                Some(out) => Results { out, n, stores: self.stores },
                None => Results::cached(slot(), n),
            };
            let out = results.out;
            // One value for the whole tile must outlive a result that is written over it.
            let mut saved = [0u64; ARGS];
            for (arg, saved) in args.iter_mut().zip(&mut saved) {
                if step == 1 && arg.step == 0 && std::ptr::eq(arg.ptr, out) {
                    *saved = arg.ptr.cast::<u64>().read_unaligned();
                    arg.ptr = std::ptr::from_mut(saved).cast::<u8>().cast_const();
                }
            }
            instr.code.run(isa, &args, results);
            *table.add(usize::from(instr.out)) = Source { ptr: out, step };
        }
    }

    /// Computes the program's tables, one behind the other at `entries`, and makes them operands.
    ///
    /// # Safety
    /// As [`run_instr`](Elementwise::run_instr); the constants must be in the table of operands, and `entries` have room for all tables.
    unsafe fn fill_tables(
        &self,
        isa: Isa,
        bases: Bases<'_>,
        table: *mut Source,
        slots: *mut u8,
        entries: *mut u8,
    ) {
        let program = &*self.program;
        // SAFETY: the caller's promise; a table reads constants, inputs of one element, and all bytes.
        unsafe {
            for (i, walk) in self.inputs.iter().enumerate().filter(|(i, _)| program.inputs[*i].single) {
                *table.add(i) = Source { ptr: self.place(bases, walk, 0, 0), step: 0 };
            }
            for (i, of) in program.tables.iter().enumerate() {
                let to = entries.wrapping_add(i * ENTRIES);
                *table.add(usize::from(of.from)) = Source { ptr: BYTES.as_ptr(), step: 1 };
                for instr in &of.instrs {
                    self.run_instr(
                        isa,
                        instr,
                        table,
                        slots,
                        ((instr.out == of.result).then_some(to), ENTRIES),
                    );
                }
                *table.add(usize::from(of.value)) = Source { ptr: to, step: 0 };
            }
        }
    }

    /// Computes a tile: all instructions, and what of their results is not in its place yet.
    ///
    /// # Safety
    /// As [`StepKernel::run`]; the table must have the tile's inputs, constants and tables.
    unsafe fn compute(
        &self,
        isa: Isa,
        bases: Bases<'_>,
        table: *mut Source,
        slots: *mut u8,
        (row, start, n): (usize, usize, usize),
    ) {
        let program = &*self.program;
        // SAFETY: values are defined before they are used; slots hold a tile each.
        unsafe {
            for instr in &program.instrs {
                // A result of the program goes where it belongs at once.
                let direct = |i: &usize| self.outputs[*i].mode == Mode::Direct && self.outputs[*i].early;
                let result = program.outputs.iter().position(|o| o.value == instr.out).filter(direct);
                let to = result.map(|i| self.place(bases, &self.outputs[i], row, start));
                self.run_instr(isa, instr, table, slots, (to, n));
            }
            for (out, walk) in program.outputs.iter().zip(&self.outputs) {
                let value = *table.add(usize::from(out.value));
                let to = self.place(bases, walk, row, start);
                if walk.mode == Mode::Direct && value.ptr == to.cast_const() && value.step == 1 {
                    continue;
                }
                if self.by_row {
                    let stride = walk.layout.strides()[walk.layout.rank() - 1];
                    strided::scatter_run(value, to, stride, walk.size, n);
                } else if walk.mode == Mode::Direct {
                    strided::scatter_run(value, to, 1, walk.size, n);
                } else {
                    scatter(value, bases.at(walk.at), &walk.layout, walk.size, start, n);
                }
            }
        }
    }
}

impl StepKernel for Elementwise {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        self.bind_with(cx.inputs, cx.outputs, None)
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.run_all(cx) };
        Ok(())
    }
}

/// Prefetches neighbours into the first-level cache.
struct Prefetch {
    at: *const u8,
    bytes: usize,
}

impl Kernel for Prefetch {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        (0..self.bytes).step_by(64).for_each(|i| s.prefetch_l1(self.at.wrapping_add(i).cast()));
    }
}

/// The bases, to hand to threads.
#[derive(Clone, Copy)]
struct Bases<'a>(&'a [Place]);

impl Bases<'_> {
    fn at(self, at: At) -> *mut u8 {
        self.0[at.buffer as usize].address().wrapping_add(at.offset)
    }
}
