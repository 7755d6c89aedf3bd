//! A device of whole graphs as the executor uses it: see [`DeviceApi`].

use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use rlx_ir::lir::{BufferKind, MemoryPlan, Step as LirStep, StepKind};
use rlx_ir::{Dim, DimBinding, Error, ErrorKind, Extent, Graph, LirModule, Op, Result, Shape, Weight};
use rlx_opt::PoolSpec;

use super::GraphDevice;
use super::slot::Slot;
use crate::DeviceApi;
use crate::executor::{BINDINGS, Program, Run, Step};
use crate::extents::{Ex, ExtentTable, Values};
use crate::prepared::Prepared;
use crate::uploads::Uploads;

/// What executables of one opened device share: the copies of weights, and what was made of them.
pub struct Shared<G: GraphDevice> {
    uploads: Uploads<Memory<G>>,
    prepared: Prepared<Memory<G>>,
}

impl<G: GraphDevice> Default for Shared<G> {
    fn default() -> Self {
        Shared { uploads: Uploads::default(), prepared: Prepared::new() }
    }
}

/// Memory is a slot that places share.
type Memory<G> = Arc<Slot<G>>;

/// The device of a program.
pub(super) struct Whole<G> {
    pub(super) device: Arc<G>,
}

impl<G> Whole<G> {
    pub(super) fn new(device: Arc<G>) -> Self {
        Whole { device }
    }
}

/// A graph, and its programs for the last dimensions; shared by clones.
pub(super) struct Kernel<G: GraphDevice> {
    graph: Graph,
    /// The symbols it mentions, and their values' places in the table.
    symbols: Vec<(u32, Ex)>,
    /// The buffers it reads and writes.
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    /// The symbols that its nodes bind, in their order.
    counted: Vec<u32>,
    /// By input: whether an output takes its memory.
    donated: Vec<bool>,
    /// By input: whether it is a weight.
    fixed: Vec<bool>,
    #[allow(clippy::type_complexity, reason = "a list of programs by dimensions")]
    programs: Mutex<VecDeque<(Vec<i64>, Arc<Compiled<G>>)>>,
}

/// A program, and what it takes and gives.
pub(super) struct Compiled<G: GraphDevice> {
    program: G::Program,
    inputs: Vec<Shape>,
    outputs: Vec<Shape>,
}

impl<G: GraphDevice> Kernel<G> {
    /// The kernel of one of the two steps.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] for another step.
    pub(super) fn new(step: &LirStep, lir: &LirModule, table: &mut ExtentTable) -> Result<Self> {
        let StepKind::Op(Op::Region { body }) = &step.kind else {
            return Err(Error::new(ErrorKind::Internal, "a step that is no whole graph"));
        };
        let graph = body.graph.clone();
        let mentioned: std::collections::BTreeSet<u32> =
            graph.nodes().iter().flat_map(|node| node.symbols()).collect();
        let symbols = lir.symbols.iter().filter(|symbol| mentioned.contains(symbol));
        let donated: Vec<bool> =
            super::inputs(&graph).map(|(name, _)| graph.donated_to(name).is_some()).collect();
        let buffers = |operands: &[rlx_ir::lir::Operand]| operands.iter().map(|o| o.buffer.index()).collect();
        Ok(Kernel {
            symbols: symbols.map(|&s| (s, table.add(Extent::sym(s)))).collect(),
            inputs: buffers(&step.inputs),
            outputs: buffers(&step.outputs),
            counted: graph.data_symbols().iter().map(|data| data.symbol).collect(),
            donated,
            fixed: step.inputs.iter().map(|o| is_weight(&lir.buffers[o.buffer.index()].kind)).collect(),
            programs: Mutex::default(),
            graph,
        })
    }

    /// Compiles the graph now if it mentions no symbols, so that what is wrong is known when the module is compiled.
    pub(super) fn compile_fixed(&self, device: &G) -> Result<()> {
        if self.symbols.is_empty() { self.program(device, &Values(&[])).map(drop) } else { Ok(()) }
    }

    /// The program for the present values.
    fn program(&self, device: &G, values: &Values<'_>) -> Result<Arc<Compiled<G>>> {
        let dims: Vec<i64> = self.symbols.iter().map(|&(_, ex)| values.get(ex)).collect();
        let known = |programs: &VecDeque<(Vec<i64>, Arc<Compiled<G>>)>| {
            programs.iter().find(|(of, _)| *of == dims).map(|(_, program)| Arc::clone(program))
        };
        if let Some(program) = known(&self.programs.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(program);
        }
        let compiled = Arc::new(self.compile(device, values).map_err(|e| self.name(e))?);
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        programs.truncate(BINDINGS - 1);
        programs.push_front((dims, Arc::clone(&compiled)));
        Ok(compiled)
    }

    fn compile(&self, device: &G, values: &Values<'_>) -> Result<Compiled<G>> {
        let mut binding = DimBinding::new();
        for &(symbol, ex) in &self.symbols {
            binding.set(symbol, values.size(ex)?);
        }
        let graph = self.graph.try_bind(&binding)?;
        // What nodes count the run finds out.
        let counted = |dim: &Dim| dim.extent().symbols().iter().any(|s| self.counted.contains(s));
        let is_open = |shape: &Shape| shape.dims().iter().any(|dim| !dim.is_static() && !counted(dim));
        let open = |node: &&rlx_ir::Node| node.results().iter().any(is_open);
        if let Some(node) = graph.nodes().iter().find(open) {
            let message = format!("{} has a dimension that is no number", node.shape);
            return Err(graph.locate(node.id, Error::new(ErrorKind::Unsupported, message)));
        }
        tracing::debug!(graph = %graph.name, nodes = graph.len(), ?binding, "compiles a whole graph");
        Ok(Compiled {
            program: device.compile_for(&graph, &self.fixed)?,
            inputs: super::inputs(&graph).map(|(_, shape)| shape.clone()).collect(),
            outputs: graph.outputs.iter().map(|&id| graph.shape(id).clone()).collect(),
        })
    }

    /// What a run that was started found, by symbol.
    fn found(
        &self,
        device: &G,
        program: &Compiled<G>,
        pending: &G::Pending,
        found: &mut Vec<usize>,
    ) -> Result<DimBinding> {
        let mut sizes = DimBinding::new();
        if self.counted.is_empty() {
            return Ok(sizes);
        }
        found.extend(device.found(&program.program, pending).map_err(|e| self.name(e))?);
        self.counted.iter().zip(&*found).for_each(|(&symbol, &size)| _ = sizes.set(symbol, size));
        Ok(sizes)
    }

    /// An error of the whole graph: of none of its nodes, unless it says so.
    fn name(&self, error: Error) -> Error {
        error.with_node(format!("graph {:?}", self.graph.name))
    }
}

/// Whether memory holds a weight: as it was given, or as the init step left it.
fn is_weight(kind: &BufferKind) -> bool {
    matches!(kind, BufferKind::Param(_) | BufferKind::Prepared)
}

/// A run's steps: for each the kernel, and its program for the numbers that it is bound to.
pub(super) struct Sequence<G: GraphDevice> {
    kernels: Vec<Arc<Kernel<G>>>,
    bound: Vec<Option<Arc<Compiled<G>>>>,
}

/// What one executable has of the device.
pub(super) struct Queue<G: GraphDevice> {
    flights: Vec<Flight<G>>,
    /// Those under way, the oldest first.
    under_way: RefCell<VecDeque<usize>>,
    /// The last one that is complete.
    current: Cell<usize>,
    /// Whether the present run was given to the device.
    started: Cell<bool>,
}

/// A run under way or complete.
struct Flight<G: GraphDevice> {
    /// By output, where the executable has it from here: the tensor, and its bytes once somebody asked.
    #[allow(clippy::type_complexity, reason = "a tensor and its bytes")]
    outputs: Vec<Option<(Arc<G::Tensor>, OnceCell<Vec<u8>>)>>,
    #[allow(clippy::type_complexity, reason = "a program and its run")]
    pending: RefCell<Option<(Arc<Compiled<G>>, G::Pending)>>,
}

impl<G: GraphDevice> Queue<G> {
    fn new() -> Self {
        let flight = |_| Flight { outputs: Vec::new(), pending: RefCell::new(None) };
        Queue {
            flights: (0..G::IN_FLIGHT.max(1)).map(flight).collect(),
            under_way: RefCell::default(),
            current: Cell::new(0),
            started: Cell::new(false),
        }
    }
}

impl<G: GraphDevice> DeviceApi for Whole<G> {
    type Kernel = Arc<Kernel<G>>;
    type Memory = Memory<G>;
    type Place = Option<Memory<G>>;
    type Sequence = Sequence<G>;
    type Queue = Queue<G>;

    const IN_FLIGHT: usize = G::IN_FLIGHT;
    const INIT_BATCH: usize = usize::MAX;

    fn name(&self) -> &str {
        self.device.name()
    }

    fn alive(&self) -> Result<()> {
        self.device.alive()
    }

    fn pools(&self) -> PoolSpec {
        PoolSpec::default()
    }

    fn allocate(&self, bytes: usize, _: &str) -> Result<Memory<G>> {
        Ok(Slot::empty(bytes))
    }

    fn size(memory: &Memory<G>) -> usize {
        memory.size()
    }

    fn place(memory: &Memory<G>) -> Option<Memory<G>> {
        Some(Arc::clone(memory))
    }

    fn host(_: &Memory<G>) -> Option<&[u8]> {
        None
    }

    fn upload(&self, to: &mut Memory<G>, bytes: &[u8]) -> Result<()> {
        to.write(bytes)
    }

    fn download<'m>(&self, from: &'m Memory<G>, bytes: usize) -> Result<Cow<'m, [u8]>> {
        from.read(&self.device, bytes).map(Cow::Owned)
    }

    fn duplicate(&self, from: &Memory<G>, _: usize, _: &str) -> Result<Memory<G>> {
        Ok(from.duplicate())
    }

    fn load(&self, weight: &Arc<Weight>, name: &str) -> Result<Arc<Memory<G>>> {
        let load = |weight: &Arc<Weight>| Ok(Slot::of(self.device.load(weight)?, weight.shape()));
        let loaded = self.device.shared().uploads.get(weight, load);
        loaded.map_err(|e| e.with_node(format!("parameter {name:?}")))
    }

    fn constant(&self, _: usize) -> Option<Self::Place> {
        None
    }

    fn prepared(&self) -> &Prepared<Memory<G>> {
        &self.device.shared().prepared
    }

    fn queue(&self, _: &Program<Self>, _: Option<&Queue<G>>) -> Result<Queue<G>> {
        Ok(Queue::new())
    }

    fn sequence<'s>(
        &self,
        _: &Queue<G>,
        steps: impl Iterator<Item = &'s Step<Arc<Kernel<G>>>> + Clone,
        like: Option<&Sequence<G>>,
    ) -> Result<Sequence<G>> {
        let kernels: Vec<Arc<Kernel<G>>> = steps.map(|step| Arc::clone(&step.kernel)).collect();
        let bound = like.map_or_else(|| vec![None; kernels.len()], |like| like.bound.clone());
        Ok(Sequence { kernels, bound })
    }

    fn bind(
        &self,
        sequence: &mut Sequence<G>,
        at: usize,
        step: &Step<Arc<Kernel<G>>>,
        values: &Values<'_>,
    ) -> Result<()> {
        sequence.bound[at] = Some(step.kernel.program(&self.device, values)?);
        Ok(())
    }

    fn use_plan(
        &self,
        _: &mut Queue<G>,
        lir: &LirModule,
        plan: &MemoryPlan,
        places: &mut [Self::Place],
    ) -> Result<()> {
        for range in &lir.live_ranges {
            let buffer = &lir.buffers[range.buffer.index()];
            let bytes = rlx_opt::plan::buffer_bytes(buffer.elements, buffer.dtype, &plan.bounds)?;
            places[range.buffer.index()] = Some(Slot::empty(bytes));
        }
        Ok(())
    }

    fn begin(&self, queue: &mut Queue<G>) -> Result<()> {
        queue.started.set(false);
        Ok(())
    }

    fn submit(&self, queue: &mut Queue<G>, run: Run<'_, Self>) -> Result<()> {
        if let Some(stage) = run.stage {
            run.progress.step(stage, 0, 1, || "")?;
        }
        for at in run.steps {
            let kernel = &run.sequence.kernels[at];
            let program = run.sequence.bound[at].as_ref();
            let program =
                program.ok_or_else(|| Error::new(ErrorKind::Internal, "a graph that was not compiled"))?;
            let started = self.start(queue, kernel, program, run.places);
            let (tensors, pending) = started.map_err(|e| kernel.name(e).with_device(self.name()))?;
            let tensors: Vec<Arc<G::Tensor>> = tensors.into_iter().map(Arc::new).collect();
            let sizes = kernel.found(&self.device, program, &pending, run.found)?;
            // Of memory that a run updates, or that feeds a handle, the slot is the only owner: the next run may take it.
            for (tensor, (&buffer, shape)) in tensors.iter().zip(kernel.outputs.iter().zip(&program.outputs))
            {
                if let Some(place) = &run.places[buffer] {
                    place.put(Arc::clone(tensor), shape.bind(&sizes));
                }
            }
            if run.stage.is_none() {
                self.device.finish(&program.program, pending).map_err(|e| kernel.name(e))?;
                continue;
            }
            let stays = |i: usize| run.outputs.get(i).is_some_and(|output| output.stays);
            let outputs = tensors.into_iter().enumerate();
            let outputs = outputs.map(|(i, t)| (!stays(i)).then(|| (t, OnceCell::new()))).collect();
            queue.fly(Flight { outputs, pending: RefCell::new(Some((Arc::clone(program), pending))) })?;
        }
        Ok(())
    }

    fn complete(&self, _: &Program<Self>, queue: &Queue<G>) -> Result<()> {
        let Some(oldest) = queue.under_way.borrow_mut().pop_front() else { return Ok(()) };
        queue.current.set(oldest);
        let pending = queue.flights[oldest].pending.borrow_mut().take();
        let Some((program, pending)) = pending else { return Ok(()) };
        self.device.finish(&program.program, pending).map_err(|e| e.with_device(self.name()))
    }

    fn roll_back(&self, queue: &mut Queue<G>) -> bool {
        // A fault is known when the whole run is done.
        !queue.started.get()
    }

    fn output<'q>(&self, queue: &'q Queue<G>, index: usize, _: usize, bytes: usize) -> Result<&'q [u8]> {
        let flight = &queue.flights[queue.current.get()];
        let missing = || Error::new(ErrorKind::Internal, format!("output {index} did not come back"));
        let (tensor, known) = flight.outputs.get(index).and_then(Option::as_ref).ok_or_else(missing)?;
        if known.get().is_none() {
            let fetched = self.device.download(tensor).map_err(|e| e.with_device(self.name()))?;
            _ = known.set(fetched);
        }
        known.get().and_then(|known| known.get(..bytes)).ok_or_else(missing)
    }

    fn arena<'q>(&self, _: &'q Queue<G>) -> Option<&'q [u8]> {
        None
    }

    fn wait(&self) -> Result<()> {
        self.device.wait()
    }
}

impl<G: GraphDevice> Whole<G> {
    /// Gives a run to the device.
    fn start(
        &self,
        queue: &Queue<G>,
        kernel: &Kernel<G>,
        program: &Compiled<G>,
        places: &[Option<Memory<G>>],
    ) -> Result<(Vec<G::Tensor>, G::Pending)> {
        let mut arguments = Vec::with_capacity(kernel.inputs.len());
        // What is taken comes last, so that no error before it loses anything.
        for take in [false, true] {
            for (i, (&buffer, shape)) in kernel.inputs.iter().zip(&program.inputs).enumerate() {
                if kernel.donated[i] != take {
                    continue;
                }
                let place = places[buffer].as_ref();
                let place =
                    place.ok_or_else(|| Error::new(ErrorKind::Internal, "an input without a place"))?;
                if take {
                    queue.started.set(true);
                }
                arguments.push((i, place.argument(&self.device, shape, take)?));
            }
        }
        arguments.sort_by_key(|&(i, _)| i);
        queue.started.set(true);
        let arguments = arguments.into_iter().map(|(_, argument)| argument).collect();
        let (tensors, pending) = self.device.start(&program.program, arguments)?;
        if tensors.len() != kernel.outputs.len() {
            let message = format!("{} outputs came back of {}", tensors.len(), kernel.outputs.len());
            return Err(Error::new(ErrorKind::Device, message));
        }
        Ok((tensors, pending))
    }
}

impl<G: GraphDevice> Queue<G> {
    /// A run is under way.
    fn fly(&mut self, flight: Flight<G>) -> Result<()> {
        let under_way = self.under_way.get_mut();
        let free = (0..self.flights.len()).find(|at| !under_way.contains(at));
        let free = free.ok_or_else(|| Error::new(ErrorKind::Internal, "too many runs are under way"))?;
        self.flights[free] = flight;
        under_way.push_back(free);
        Ok(())
    }
}
