//! Control flow: steps that run programs of their own.
//!
//! A body is compiled by the same pipeline as the graph around it. It reads its inputs where the outer program has them;
//! what it gives is copied to the step's results, which is also where a loop's values wait for the next time. The step lends
//! it the threads of the outer run.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use rlx_backend::InputSource;
use rlx_backend::extents::Ex;
use rlx_ir::op::Body;
use rlx_ir::ops::control::differing_dim;
use rlx_ir::progress::{Progress, Stage};
use rlx_ir::{Error, ErrorKind, Extent, Graph, GraphHash, LirModule, Node, Op, Result, graph_hash};
use rlx_opt::{Claim, CompileOptions, CompilePipeline};

use super::{
    BindCx, BodyExecutable, BodyProgram, CompileCx, Needs, RunCx, Shared, StepKernel, mismatch, no_kernel,
    unbound,
};
use crate::isa::Isa;
use crate::layout::Bound;
use crate::target::CpuTarget;

/// A body's cost is not known before it runs; this keeps the pool awake.
const NANOS: f64 = 10_000.0;

fn lowered(body: &Graph, isa: Isa) -> Result<LirModule> {
    let mut pipeline = CompilePipeline::new(Arc::new(CpuTarget::new(isa)), CompileOptions::default());
    pipeline.of_bodies = true;
    Ok(pipeline.compile(body)?.lir)
}

/// Why bodies cannot be run, by their hash. Compiling a body asks for those in it: without this, bodies within bodies
/// would take time that grows with the power of their depth.
static REJECTIONS: LazyLock<Mutex<HashMap<GraphHash, Option<String>>>> = LazyLock::new(Mutex::default);

/// How many are remembered before all are forgotten.
const MOST_REJECTIONS: usize = 1024;

fn rejection(body: &Graph) -> Option<String> {
    if body.params().next().is_some() {
        return Some("a body has parameters of its own".into());
    }
    let hash = graph_hash(body);
    let known = || REJECTIONS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(rejection) = known().get(&hash) {
        return rejection.clone();
    }
    let rejection = lowered(body, Isa::detect()).err().map(|e| format!("a body cannot be compiled: {e}"));
    if asks_outside(body) {
        return rejection;
    }
    let mut known = known();
    if known.len() >= MOST_REJECTIONS {
        known.clear();
    }
    known.insert(hash, rejection.clone());
    rejection
}

/// Whether there are ops whose kernels may still be registered.
fn asks_outside(body: &Graph) -> bool {
    let custom =
        |op: &Op| matches!(op, Op::Custom { .. }) || op.bodies().iter().any(|b| asks_outside(&b.graph));
    body.nodes().iter().any(|node| custom(&node.op))
}

/// What the bodies compile to, the CPU runs.
pub(crate) fn claim(node: &Node, _: &Graph) -> Claim {
    match node.op.bodies().into_iter().find_map(|body| rejection(&body.graph)) {
        Some(why) => Claim::No(why),
        None => Claim::Native,
    }
}

/// The kernel of a choice or a loop.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    match cx.node().op.clone() {
        Op::If { then, otherwise, count, chosen } => {
            let inputs = 1 + then.graph.inputs().count();
            let found = match count {
                None => Found::Nothing,
                Some(_) if chosen => Found::Choice,
                Some(_) => differing_dim(&then, &otherwise)?.map_or(Found::Choice, Found::Dim),
            };
            let elements = match found {
                Found::Choice => [elements_of(&then, cx), elements_of(&otherwise, cx)],
                _ => [Vec::new(), Vec::new()],
            };
            let branches = [Nested::new(&then, cx)?, Nested::new(&otherwise, cx)?];
            let outputs = cx.step.outputs.iter();
            let room = outputs.map(|o| cx.module.buffers[o.buffer.index()].elements).collect::<Vec<_>>();
            let room = room.into_iter().map(|elements| cx.extent(elements)).collect();
            Ok(Box::new(If {
                branches,
                first: [1, inputs],
                found,
                elements,
                room,
                bytes: Default::default(),
                operands: Operands::default(),
            }))
        }
        Op::Loop { body, count, carried, scanned, .. } => Ok(Box::new(Loop {
            body: Nested::new(&body, cx)?,
            counts: count.is_some(),
            carried,
            scanned,
            operands: Operands::default(),
        })),
        op => Err(no_kernel(&op, "it is no control flow")),
    }
}

/// The bytes of a body's inputs, in order.
type Places = Vec<(Shared<u8>, usize)>;

/// A body's program, with an executable from the first run on.
struct Nested {
    program: Arc<dyn BodyProgram>,
    /// What the body's symbols are in the outer program.
    symbols: Vec<Ex>,
    state: Mutex<State>,
}

/// What a body runs with.
#[derive(Default)]
struct State {
    exec: Option<Box<dyn BodyExecutable>>,
    dims: Vec<i64>,
    places: Places,
}

impl Clone for Nested {
    /// The same program, bound alike; an executable of its own.
    fn clone(&self) -> Nested {
        let dims = self.lock().dims.clone();
        Nested {
            program: Arc::clone(&self.program),
            symbols: self.symbols.clone(),
            state: Mutex::new(State { dims, ..State::default() }),
        }
    }
}

/// The places of a body's inputs, each of which covers its bytes while the body runs.
struct Inputs<'a>(&'a [(Shared<u8>, usize)]);

impl InputSource for Inputs<'_> {
    fn bytes(&self, index: usize) -> &[u8] {
        let (place, bytes) = self.0[index];
        // SAFETY: `Nested::run` was promised that each place covers its bytes while the body runs.
        unsafe { std::slice::from_raw_parts(place.get(), bytes) }
    }
}

impl Nested {
    fn new(body: &Body, cx: &mut CompileCx<'_>) -> Result<Nested> {
        let lir = lowered(&body.graph, cx.isa)?;
        let symbols = lir.symbols.iter().map(|&s| cx.extent(Extent::sym(s))).collect();
        Ok(Nested { program: (cx.body)(lir)?, symbols, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bind(&mut self, cx: &BindCx<'_>) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.dims.clear();
        state.dims.extend(self.symbols.iter().map(|&s| cx.values.get(s)));
    }

    /// Runs the body on what `places` puts in its list, with the threads of the run around it, and hands its executable to `then`.
    ///
    /// # Safety
    /// Each place must cover its bytes, which nothing writes meanwhile.
    unsafe fn run<T>(
        &self,
        cx: &mut RunCx<'_, '_>,
        places: impl FnOnce(&RunCx<'_, '_>, &mut Places),
        progress: &Progress,
        then: impl FnOnce(&RunCx<'_, '_>, &dyn BodyExecutable) -> Result<T>,
    ) -> Result<T> {
        let mut state = self.lock();
        let State { exec, dims, places: list } = &mut *state;
        list.clear();
        places(cx, list);
        if list.len() != self.program.inputs() {
            return Err(Error::new(ErrorKind::Internal, "a body was given other inputs than it has"));
        }
        let exec = match exec {
            Some(exec) => exec,
            None => exec.insert(Arc::clone(&self.program).executable()?),
        };
        cx.pool.lend(|| exec.run_with_progress(&Inputs(list), dims, progress))?;
        then(cx, &**exec)
    }
}

/// The step's operands as they were bound.
#[derive(Debug, Clone, Default)]
struct Operands {
    inputs: Vec<Bound>,
    outputs: Vec<Bound>,
}

/// Bytes of a dense tensor.
fn size(of: &Bound) -> usize {
    of.layout.elements() * of.dtype.size_bytes()
}

impl Operands {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<()> {
        if let Some(odd) = cx.inputs.iter().chain(cx.outputs).find(|o| !o.layout.is_dense()) {
            return Err(mismatch(format!("control flow on a strided {:?}", odd.dims())));
        }
        self.inputs.clear();
        self.inputs.extend_from_slice(cx.inputs);
        self.outputs.clear();
        self.outputs.extend_from_slice(cx.outputs);
        Ok(())
    }

    fn place(cx: &RunCx<'_, '_>, of: &Bound) -> (Shared<u8>, usize) {
        (cx.shared(of.at), size(of))
    }
}

/// Copies a body's output `from` into `bytes` bytes at `to`.
///
/// # Safety
/// `bytes` bytes must be writable at `to`, and no part of the executable's memory.
unsafe fn copy(exec: &dyn BodyExecutable, from: usize, to: *mut u8, bytes: usize) -> Result<()> {
    let value = exec.output(from)?;
    if value.len() != bytes {
        let message = format!("a body gave {} bytes where its graph says {bytes}", value.len());
        return Err(Error::new(ErrorKind::Dimension, message));
    }
    // SAFETY: the output has `bytes` bytes, as compared above; the caller promises as many at `to`, apart from it.
    unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), to, bytes) };
    Ok(())
}

/// How many elements each output of a branch has.
fn elements_of(branch: &Body, cx: &mut CompileCx<'_>) -> Vec<Ex> {
    let graph = &branch.graph;
    graph.outputs.iter().map(|&id| cx.extent(graph.shape(id).elements())).collect()
}

/// What a choice binds a symbol to.
#[derive(Debug, Clone, Copy)]
enum Found {
    /// It binds none: both branches give the same shapes.
    Nothing,
    /// Which branch was taken.
    Choice,
    /// A dimension of a result.
    Dim((usize, usize)),
}

#[derive(Clone)]
struct If {
    branches: [Nested; 2],
    /// The first input of each.
    first: [usize; 2],
    found: Found,
    /// Elements of each branch's outputs, where the branches' shapes are known and differ.
    elements: [Vec<Ex>; 2],
    /// The same as bytes.
    bytes: [Vec<usize>; 2],
    /// Elements of the buffers that the outputs are in.
    room: Vec<Ex>,
    operands: Operands,
}

impl StepKernel for If {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        self.operands.bind(cx)?;
        self.branches.iter_mut().for_each(|b| b.bind(cx));
        for (bytes, elements) in self.bytes.iter_mut().zip(&self.elements) {
            bytes.clear();
            for ((&elements, &room), out) in elements.iter().zip(&self.room).zip(cx.outputs) {
                let size_of =
                    |e: Ex| usize::try_from(cx.values.get(e)).ok()?.checked_mul(out.dtype.size_bytes());
                let (size, room) = (size_of(elements), size_of(room));
                let fits = size.zip(room).filter(|(size, room)| out.at.offset.saturating_add(*size) <= *room);
                let (size, _) = fits.ok_or_else(|| mismatch("a branch's result has no room"))?;
                bytes.push(size);
            }
        }
        Ok(Needs::time(NANOS))
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(condition) = self.operands.inputs.first() else { return Err(unbound()) };
        // SAFETY: the caller's promise, here and below.
        let holds = unsafe { *cx.ptr::<u8>(condition.at) } != 0;
        let (own, end) = if holds { (0, self.first[1]) } else { (1, self.operands.inputs.len()) };
        let inputs = &self.operands.inputs[self.first[own]..end];
        let places = |cx: &RunCx<'_, '_>, list: &mut Places| {
            list.extend(inputs.iter().map(|b| Operands::place(cx, b)))
        };
        let progress = cx.progress.silent();
        // Results whose shape the branch decides have room for the larger one. What a branch finds out is no more than that; what
        // is known of it is exact.
        let own_bytes = &self.bytes[own];
        // SAFETY: as above; operands cover their views, and results are apart from inputs.
        let dim = unsafe {
            self.branches[own].run(cx, places, &progress, |cx, exec| {
                for (i, out) in self.operands.outputs.iter().enumerate() {
                    let bytes = match self.found {
                        Found::Nothing => size(out),
                        Found::Choice => own_bytes.get(i).copied().unwrap_or(0),
                        Found::Dim(_) => exec.output(i)?.len().min(size(out)),
                    };
                    copy(exec, i, cx.ptr(out.at), bytes)?;
                }
                match self.found {
                    Found::Dim((result, axis)) => exec.output_dim(result, axis).map(Some),
                    _ => Ok(None),
                }
            })?
        };
        cx.found = match self.found {
            Found::Nothing => cx.found,
            Found::Choice => Some(usize::from(holds)),
            Found::Dim(_) => dim,
        };
        Ok(())
    }
}

#[derive(Clone)]
struct Loop {
    body: Nested,
    /// Whether the number of times is a dimension that the step finds.
    counts: bool,
    carried: usize,
    scanned: usize,
    operands: Operands,
}

/// A slice along the first dimension.
fn slice(cx: &RunCx<'_, '_>, of: &Bound, i: usize) -> (Shared<u8>, usize) {
    let bytes = size(of) / of.dims().first().copied().unwrap_or(1).max(1);
    (Shared::new(cx.ptr::<u8>(of.at).wrapping_add(i * bytes)), bytes)
}

impl StepKernel for Loop {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        self.operands.bind(cx)?;
        self.body.bind(cx);
        Ok(Needs::time(NANOS))
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let (inputs, outputs) = (&self.operands.inputs[..], &self.operands.outputs[..]);
        let [limit, condition, rest @ ..] = inputs else { return Err(unbound()) };
        let (state, rest) = rest.split_at(self.carried.min(rest.len()));
        let (scanned, captured) = rest.split_at(self.scanned.min(rest.len()));
        let (kept, stacks) = outputs.split_at(self.carried.min(outputs.len()));
        // SAFETY: the caller's promise; results are apart from inputs.
        let (limit, mut goes_on) = unsafe {
            for (from, to) in state.iter().zip(kept) {
                std::ptr::copy_nonoverlapping(cx.ptr::<u8>(from.at), cx.ptr::<u8>(to.at), size(to));
            }
            (*cx.ptr::<i64>(limit.at), *cx.ptr::<u8>(condition.at))
        };
        // What there is room or there are slices for.
        let most = stacks.iter().chain(scanned).map(|s| s.dims().first().copied().unwrap_or(0)).min();
        let progress = cx.progress.silent();
        let mut ran = 0usize;
        while goes_on != 0 && i64::try_from(ran).is_ok_and(|ran| ran < limit) {
            cx.progress.check(Stage::Run)?;
            if most.is_some_and(|most| ran >= most) {
                let message = format!("the loop runs more often than the {ran} times there is room for");
                return Err(Error::new(ErrorKind::Value, message));
            }
            let (iteration, before) = (ran as i64, goes_on);
            let places = |cx: &RunCx<'_, '_>, list: &mut Places| {
                let own = |x: *const u8, bytes| (Shared::new(x.cast_mut()), bytes);
                list.push(own((&raw const iteration).cast(), 8));
                list.push(own(&raw const before, 1));
                list.extend(kept.iter().map(|b| Operands::place(cx, b)));
                list.extend(scanned.iter().map(|b| slice(cx, b, ran)));
                list.extend(captured.iter().map(|b| Operands::place(cx, b)));
            };
            // SAFETY: as above; the body's outputs are copied when it has read its inputs.
            goes_on = unsafe {
                self.body.run(cx, places, &progress, |cx, exec| {
                    for (k, out) in kept.iter().enumerate() {
                        copy(exec, 1 + k, cx.ptr(out.at), size(out))?;
                    }
                    for (k, out) in stacks.iter().enumerate() {
                        let (to, bytes) = slice(cx, out, ran);
                        copy(exec, 1 + self.carried + k, to.get(), bytes)?;
                    }
                    Ok(exec.output(0)?.first().copied().unwrap_or(0))
                })?
            };
            ran += 1;
        }
        if self.counts {
            cx.found = Some(ran);
        } else if let Some(stack) = stacks.first().filter(|s| s.dims().first() != Some(&ran)) {
            return Err(Error::new(
                ErrorKind::Value,
                format!("the loop ran {ran} times for {:?}", stack.dims()),
            ));
        }
        Ok(())
    }
}
