//! A compiled module on the interpreter.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rlx_ir::lir::{Buffer, BufferKind, LirModule, Operand, Step};
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::{DType, DimBinding, Error, ErrorKind, Extent, Node, Op, Result, Value};

use super::{Binding, Counters, Fault, Pools, Sample, count, dispatch, run};
use crate::KernelHash;
use crate::schedule::{Arg, Launch, Scheduled, StepDesc, UniformArg};
use crate::target::{KernelTarget, compile_step, step_variants};

/// Buffers start at multiples of this within their pools, and one element further inside of the range that
/// is bound: as on a device whose bindings must be aligned.
const SKEW_ELEMENTS: i64 = 8;

/// A module whose steps are kernels, run by the interpreter.
#[derive(Debug, Clone)]
pub struct Executable {
    lir: Arc<LirModule>,
    init: Vec<(Step, Vec<Launch>)>,
    steps: Vec<(Step, Vec<Launch>)>,
}

impl Executable {
    /// Compiles every step of `lir` for `target`.
    ///
    /// # Errors
    /// What [`compile_step`] reports.
    pub fn new(lir: Arc<LirModule>, target: &KernelTarget) -> Result<Self> {
        Self::choosing(lir, target, |_| 0)
    }

    /// Compiles every step of `lir` for `target`, each by the variant that `choose` picks from the names of
    /// its [`step_variants`].
    ///
    /// # Errors
    /// What [`compile_step`] reports.
    pub fn choosing(
        lir: Arc<LirModule>,
        target: &KernelTarget,
        choose: impl Fn(&[String]) -> usize,
    ) -> Result<Self> {
        Self::by(Arc::clone(&lir), |step| {
            let variant = choose(&step_variants(step, &lir, target)?);
            compile_step(step, &lir, target, variant)
        })
    }

    /// A module whose steps have these launches.
    ///
    /// # Errors
    /// What `launches` reports.
    pub fn by(lir: Arc<LirModule>, launches: impl Fn(&Step) -> Result<Vec<Launch>>) -> Result<Self> {
        let compile = |steps: &[Step]| -> Result<Vec<_>> {
            let step = |s: &Step| Ok((s.clone(), launches(s)?));
            steps.iter().map(step).collect()
        };
        let (init, steps) = (compile(&lir.init)?, compile(&lir.steps)?);
        Ok(Executable { lir, init, steps })
    }

    /// The launches of the run's steps, in order.
    pub fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.init.iter().chain(&self.steps).flat_map(|(_, launches)| launches)
    }

    /// Runs the module, init steps included, on the named values; gives the outputs.
    ///
    /// # Errors
    /// A missing value, a fault a kernel reported ([`ErrorKind::Value`]), or a check of the interpreter.
    pub fn run(&self, values: &Bindings) -> Result<Vec<Value>> {
        self.run_with(values, &mut |_| Ok(false))
    }

    /// As [`Executable::run`]; steps for which `other` gives `true` it has done by other means.
    ///
    /// # Errors
    /// As [`Executable::run`], and what `other` reports.
    pub fn run_with(
        &self,
        values: &Bindings,
        other: &mut dyn FnMut(&mut StepRun<'_, '_>) -> Result<bool>,
    ) -> Result<Vec<Value>> {
        let nodes: Vec<&Node> = self
            .lir
            .graph
            .nodes()
            .iter()
            .filter(|n| matches!(n.op, Op::Input { .. } | Op::Param { .. }))
            .collect();
        let find = |n: &Node| match &n.op {
            Op::Input { name } => values.input(name),
            Op::Param { name } => values.param(name),
            _ => None,
        };
        let given = nodes.iter().filter_map(|n| find(n).map(|v| (*n, v.dims.as_slice())));
        let dims = oracle::bind_shapes(given)?;
        let mut memory =
            Memory { lir: &self.lir, dims, pools: Pools::default(), skew: SKEW_ELEMENTS, at: HashMap::new() };
        memory
            .fill(&|i| find_slot(&self.lir.inputs[i].name, values.input(&self.lir.inputs[i].name)), &|i| {
                find_slot(&self.lir.params[i].name, values.param(&self.lir.params[i].name))
            })?;
        for (step, launches) in self.init.iter().chain(&self.steps) {
            let done = other(&mut StepRun { step, memory: &mut memory });
            if done.map_err(|e| self.lir.graph.locate(step.node, e))? {
                continue;
            }
            for launch in launches {
                memory.launch(step, launch).map_err(|e| self.lir.graph.locate(step.node, e))?;
            }
        }
        self.lir.outputs.iter().map(|slot| memory.read(&slot.operand, slot.shape.dtype())).collect()
    }
}

impl Executable {
    /// Runs the workgroups of `sample` of every kernel of the module (init steps among them) once, by itself, in memory that
    /// `fill` filled with elements of a type, but for constants. For comparing interpreter and rendered text.
    ///
    /// # Errors
    /// A dimension without value, or a check of the interpreter.
    pub fn record(
        &self,
        dims: &DimBinding,
        sample: Sample,
        fill: &mut dyn FnMut(DType, &mut [u8]),
        each: &mut dyn FnMut(Recorded),
    ) -> Result<()> {
        let skew = SKEW_ELEMENTS;
        let memory =
            Memory { lir: &self.lir, dims: dims.clone(), pools: Pools::default(), skew, at: HashMap::new() };
        let mut known = HashSet::new();
        for (step, launches) in self.init.iter().chain(&self.steps) {
            for launch in launches.iter().filter(|launch| known.insert(launch.kernel.hash())) {
                let recorded = memory.record(step, launch, sample, fill);
                each(recorded.map_err(|e| self.lir.graph.locate(step.node, e))?);
            }
        }
        Ok(())
    }

    /// Counts what each dispatch of a run (init steps are not among them) asks of a GPU's memory, at these
    /// dimensions. No value is computed: each dispatch finds zeros in what it reads, but for constants.
    ///
    /// # Errors
    /// A dimension without value, or a check of the interpreter.
    pub fn count(&self, dims: &DimBinding, sample: Sample) -> Result<Vec<Counted>> {
        // Devices bind buffers where a sector begins.
        let memory = Memory {
            lir: &self.lir,
            dims: dims.clone(),
            pools: Pools::default(),
            skew: 0,
            at: HashMap::new(),
        };
        let mut known: HashMap<(KernelHash, Vec<i32>, i64), Counters> = HashMap::new();
        let mut all = Vec::new();
        for (step, launches) in &self.steps {
            for launch in launches {
                let counted = memory.count(step, launch, sample, &mut known);
                all.push(counted.map_err(|e| self.lir.graph.locate(step.node, e))?);
            }
        }
        Ok(all)
    }
}

fn operand(step: &Step, arg: Arg) -> &Operand {
    match arg {
        Arg::Input(i) => &step.inputs[i],
        Arg::Output(i) => &step.outputs[i],
    }
}

fn find_slot(name: &str, value: Option<&Value>) -> Result<Vec<u8>> {
    let missing = || Error::new(ErrorKind::Binding, format!("{name:?} was not given"));
    value.map(|v| v.encode()).ok_or_else(missing)
}

/// A dispatch by itself: what it was given, and what it made of that. See [`Executable::record`].
#[derive(Debug, Clone)]
pub struct Recorded {
    /// The kernel.
    pub kernel: Arc<crate::Kernel>,
    /// The workgroups that were run, by number.
    pub groups: Vec<i64>,
    /// The values of its uniforms.
    pub uniforms: Vec<i32>,
    /// Which memory each of its buffers is.
    pub bindings: Vec<usize>,
    /// All memory before.
    pub before: Vec<Vec<u8>>,
    /// All memory after.
    pub after: Vec<Vec<u8>>,
    /// The fault it reported.
    pub fault: Option<Fault>,
}

/// What a kernel of a module asks of a GPU's memory: see [`Executable::count`].
#[derive(Debug, Clone)]
pub struct Counted {
    /// The kernel.
    pub kernel: Arc<crate::Kernel>,
    /// What its workgroups do.
    pub counters: Counters,
}

/// A step of a run under way, and the memory of its module: see [`Executable::run_with`].
pub struct StepRun<'r, 'm> {
    step: &'r Step,
    memory: &'r mut Memory<'m>,
}

impl StepRun<'_, '_> {
    /// The step as schedules see it.
    ///
    /// # Errors
    /// Why they do not.
    pub fn desc(&self) -> Scheduled<StepDesc> {
        StepDesc::of(self.step, self.memory.lir)
    }

    /// A number of the run.
    ///
    /// # Errors
    /// A dimension without value.
    pub fn number(&self, e: Extent) -> Result<i64> {
        self.memory.number(e)
    }

    /// The values of uniforms.
    ///
    /// # Errors
    /// A dimension without value, or more than 32 bits hold.
    pub fn uniforms(&self, uniforms: &[UniformArg]) -> Result<Vec<i32>> {
        self.memory.uniforms(uniforms)
    }

    /// Where operands are.
    pub fn bindings(&self, args: &[Arg]) -> Vec<Binding> {
        args.iter().map(|&arg| self.memory.at[&operand(self.step, arg).buffer.0]).collect()
    }

    /// The memory.
    pub fn pools(&mut self) -> &mut Pools {
        &mut self.memory.pools
    }
}

struct Memory<'a> {
    lir: &'a LirModule,
    dims: DimBinding,
    pools: Pools,
    /// How many elements behind the start of what is bound a buffer starts.
    skew: i64,
    /// The range of each buffer, by its number.
    at: HashMap<u32, Binding>,
}

impl Memory<'_> {
    fn number(&self, e: Extent) -> Result<i64> {
        let value = |s: u32| self.dims.get(s).and_then(|v| i64::try_from(v).ok());
        e.eval(&value).ok_or_else(|| Error::new(ErrorKind::Dimension, format!("{e} has no value")))
    }

    /// Where a buffer starts within its pool, and how many bytes it has.
    fn sizes(&self, buffer: &Buffer) -> Result<(usize, usize)> {
        let elements = self.number(buffer.elements)?;
        let bytes = usize::try_from(elements).ok().and_then(|n| buffer.dtype.storage_bytes(n));
        let bytes = bytes.ok_or_else(|| Error::new(ErrorKind::OutOfMemory, "a buffer is too large"))?;
        Ok((buffer.dtype.storage_bytes(self.skew as usize).unwrap_or(0), bytes))
    }

    /// Lays every buffer out, each in a pool of its own, and fills those whose contents are given.
    fn fill(
        &mut self,
        input: &dyn Fn(usize) -> Result<Vec<u8>>,
        param: &dyn Fn(usize) -> Result<Vec<u8>>,
    ) -> Result<()> {
        for (i, buffer) in self.lir.buffers.iter().enumerate() {
            let (skew, bytes) = self.sizes(buffer)?;
            let given = match &buffer.kind {
                BufferKind::Input(k) => Some(input(*k)?),
                BufferKind::Param(k) => Some(param(*k)?),
                BufferKind::Constant(data) => Some(data.bytes().to_vec()),
                _ => None,
            };
            // What nothing wrote is no zero.
            let mut pool = vec![0xA5; (skew + bytes).next_multiple_of(4)];
            if let Some(given) = given {
                pool[skew..skew + bytes].copy_from_slice(&given[..bytes]);
            }
            self.at.insert(i as u32, Binding { pool: i, offset: 0, len: pool.len() });
            self.pools.0.push(pool);
        }
        Ok(())
    }

    /// The values of uniforms.
    fn uniforms(&self, of: &[UniformArg]) -> Result<Vec<i32>> {
        let mut uniforms = Vec::with_capacity(of.len());
        for u in of {
            let v = match u {
                UniformArg::Extent(e) => self.number(*e)?,
                UniformArg::Base { offset, .. } => self.skew + self.number(*offset)?,
            };
            let v = i32::try_from(v);
            uniforms.push(v.map_err(|_| Error::new(ErrorKind::OutOfMemory, "a size exceeds 32 bits"))?);
        }
        Ok(uniforms)
    }

    /// As [`Executable::count`], for one dispatch; equal dispatches are counted once.
    fn count(
        &self,
        step: &Step,
        launch: &Launch,
        sample: Sample,
        known: &mut HashMap<(KernelHash, Vec<i32>, i64), Counters>,
    ) -> Result<Counted> {
        let (kernel, uniforms, groups) =
            (Arc::clone(&launch.kernel), self.uniforms(&launch.uniforms)?, self.number(launch.groups)?);
        let key = (kernel.hash(), uniforms, groups);
        if let Some(&counters) = known.get(&key) {
            return Ok(Counted { kernel, counters });
        }
        let (mut pools, bindings) = self.isolated(step, launch, &mut |_, _| {})?;
        let counters = count(&kernel, groups, &key.1, &bindings, &mut pools, sample)?;
        known.insert(key, counters);
        Ok(Counted { kernel, counters })
    }

    /// As [`Executable::record`], for one dispatch.
    fn record(
        &self,
        step: &Step,
        launch: &Launch,
        sample: Sample,
        fill: &mut dyn FnMut(DType, &mut [u8]),
    ) -> Result<Recorded> {
        let (kernel, uniforms) = (Arc::clone(&launch.kernel), self.uniforms(&launch.uniforms)?);
        let groups: Vec<i64> = sample.of(self.number(launch.groups)?).collect();
        let (mut pools, bindings) = self.isolated(step, launch, fill)?;
        let before = pools.0.clone();
        let fault = run(&kernel, &groups, &uniforms, &bindings, &mut pools)?;
        let bindings = bindings.iter().map(|binding| binding.pool).collect();
        Ok(Recorded { kernel, groups, uniforms, bindings, before, after: pools.0, fault })
    }

    /// Memory for one dispatch alone, as `fill` leaves it, but for constants; and where in it each binding is.
    fn isolated(
        &self,
        step: &Step,
        launch: &Launch,
        fill: &mut dyn FnMut(DType, &mut [u8]),
    ) -> Result<(Pools, Vec<Binding>)> {
        let (mut pools, mut bindings, mut known) = (Pools::default(), Vec::new(), HashMap::new());
        for &arg in &launch.bindings {
            let id = operand(step, arg).buffer;
            if let Some(&binding) = known.get(&id) {
                bindings.push(binding);
                continue;
            }
            let buffer = &self.lir.buffers[id.index()];
            let (skew, bytes) = self.sizes(buffer)?;
            let mut pool = vec![0; (skew + bytes).next_multiple_of(4)];
            match &buffer.kind {
                BufferKind::Constant(data) => {
                    pool[skew..skew + bytes].copy_from_slice(&data.bytes()[..bytes]);
                }
                _ => fill(buffer.dtype, &mut pool[skew..skew + bytes]),
            }
            let binding = Binding { pool: pools.0.len(), offset: 0, len: pool.len() };
            known.insert(id, binding);
            bindings.push(binding);
            pools.0.push(pool);
        }
        Ok((pools, bindings))
    }

    fn launch(&mut self, step: &Step, launch: &Launch) -> Result<()> {
        let uniforms = self.uniforms(&launch.uniforms)?;
        let bindings: Vec<Binding> =
            launch.bindings.iter().map(|&arg| self.at[&operand(step, arg).buffer.0]).collect();
        let groups = self.number(launch.groups)?;
        match dispatch(&launch.kernel, groups, &uniforms, &bindings, &mut self.pools)? {
            None => Ok(()),
            Some(fault) => {
                let message = format!("index {} is out of range on axis {}", fault.value, fault.code);
                Err(Error::new(ErrorKind::Value, message))
            }
        }
    }

    fn read(&self, operand: &Operand, dtype: rlx_ir::DType) -> Result<Value> {
        let dims: Vec<usize> = (operand.view.dims.iter())
            .map(|&d| self.number(d).map(|n| usize::try_from(n).unwrap_or(0)))
            .collect::<Result<_>>()?;
        let skew = dtype.storage_bytes(SKEW_ELEMENTS as usize).unwrap_or(0);
        let bytes = dtype.storage_bytes(dims.iter().product()).unwrap_or(0);
        let pool = &self.pools.0[operand.buffer.index()];
        Ok(Value::decode(dtype, &dims, &pool[skew..skew + bytes]))
    }
}
