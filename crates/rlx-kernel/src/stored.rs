//! Launches as bytes: what a module's steps became, kept in a file and read from one.
//!
//! Kernels are kept as data and not as text of a device's language. So what is read is held to the rules that every
//! kernel is held to ([`crate::verify`], the device's limits), and rendered as own ones are: no file brings a line of
//! code of its own. What it saves is scheduling, emulation and simplification.
//!
//! Bytes are not trusted. Statements are in a flat list, so that no nesting in a file is a recursion here; counts are
//! limited; every kernel carries its hash, which is made of its text and so notices when numbers mean something else
//! than when they were written; launches must fit the steps they stand for: inputs are read, outputs written, uniforms
//! made of the module's symbols.
//!
//! ```
//! use rlx_ir::{DType, Graph, Shape, op::Activation};
//! use rlx_kernel::{KernelTarget, Launches};
//! use rlx_opt::{CompileOptions, CompilePipeline};
//! let mut graph = Graph::new("relu");
//! let x = graph.input("x", Shape::new(&[4], DType::F32));
//! let y = graph.activation(Activation::Relu, x, Shape::new(&[4], DType::F32));
//! graph.set_outputs(vec![y]);
//! let target = KernelTarget::webgpu("webgpu");
//! let pipeline = CompilePipeline::new(std::sync::Arc::new(target.clone()), CompileOptions::default());
//! let module = pipeline.compile(&graph)?.lir;
//! let launches = Launches::of(&module, &target, &|_| Ok(0))?;
//! let back = Launches::from_bytes(&launches.to_bytes()?, &module, &target)?;
//! assert_eq!(back.kernels[0].0, launches.kernels[0].0);
//! # Ok::<(), rlx_ir::Error>(())
//! ```

mod kernels;
mod operands;

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use rlx_ir::lir::{LirModule, Step};
use rlx_ir::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

pub use kernels::KernelRecord;
pub use operands::{ArgRecord, Extents, ReadExtents, UniformRecord, fits_operand};

use crate::ir::Kernel;
use crate::schedule::{EqualSteps, Launch, StepDesc};
use crate::target::{KernelTarget, compile_desc, unsupported};
use crate::text::KernelHash;

/// Raised whenever the bytes, or what a launch means, change.
const FORMAT: u32 = 4;

/// A step's launches, each with the place of its kernel in [`Launches::kernels`].
pub type StepLaunches = Vec<(usize, Launch)>;

/// A step about which [`Launches::of_some`] asks.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'s> {
    /// The step.
    pub step: &'s Step,
    /// Whether it is of the init program.
    pub init: bool,
    /// How schedules see it, where they do, and its number among the module's distinct steps: the same for all that they see as equal.
    pub seen: Option<(usize, &'s StepDesc)>,
}

/// How a step of a module is done.
#[derive(Debug)]
pub enum By {
    /// By this of its [`step_variants`](crate::step_variants).
    Variant(usize),
    /// By this launch, which is none of these.
    Launch(Launch),
    /// By other means: it has no launches.
    Others,
}

/// The launches of all steps of a module.
#[derive(Debug, Clone)]
pub struct Launches {
    /// The distinct kernels, in order of first use.
    pub kernels: Vec<(KernelHash, Arc<Kernel>)>,
    /// Those of each init step.
    pub init: Vec<StepLaunches>,
    /// Those of each step of the run.
    pub run: Vec<StepLaunches>,
}

fn malformed(what: impl Display) -> Error {
    Error::new(ErrorKind::Malformed, format!("stored kernels: {what}"))
}

/// Kernels as they come, each once.
#[derive(Default)]
struct Distinct {
    kernels: Vec<(KernelHash, Arc<Kernel>)>,
    places: HashMap<KernelHash, usize>,
}

impl Distinct {
    fn launch(&mut self, launch: Launch) -> (usize, Launch) {
        let hash = launch.kernel.hash();
        let next = self.kernels.len();
        let at = *self.places.entry(hash).or_insert(next);
        if at == next {
            self.kernels.push((hash, Arc::clone(&launch.kernel)));
        }
        (at, Launch { kernel: Arc::clone(&self.kernels[at].1), ..launch })
    }
}

/// The launches of a module under way.
struct Making<'m> {
    module: &'m LirModule,
    target: &'m KernelTarget,
    steps: EqualSteps,
    /// Those of a distinct step by a variant.
    made: HashMap<(usize, usize), StepLaunches>,
    distinct: Distinct,
}

impl Making<'_> {
    fn step(
        &mut self,
        step: &Step,
        init: bool,
        how: &mut dyn FnMut(Asked<'_>) -> Result<By>,
    ) -> Result<StepLaunches> {
        let desc = StepDesc::of(step, self.module);
        let seen = desc.map(|desc| self.steps.find(desc));
        let variant = match how(Asked { step, init, seen: seen.as_ref().ok().copied() })? {
            By::Variant(variant) => variant,
            By::Launch(launch) => return Ok(vec![self.distinct.launch(launch)]),
            By::Others => return Ok(Vec::new()),
        };
        let (number, desc) = seen.map_err(unsupported(step, self.module, self.target))?;
        if let Some(made) = self.made.get(&(number, variant)) {
            return Ok(made.clone());
        }
        let launches = compile_desc(desc, (step, self.module), self.target, variant)?;
        let made: StepLaunches = launches.into_iter().map(|launch| self.distinct.launch(launch)).collect();
        self.made.insert((number, variant), made.clone());
        Ok(made)
    }
}

impl Launches {
    /// Compiles every step: those of the run by the variant (of [`step_variants`](crate::step_variants)) that `variant` says.
    ///
    /// # Errors
    /// As [`compile_step`](crate::compile_step), and what `variant` reports.
    pub fn of(
        module: &LirModule,
        target: &KernelTarget,
        variant: &dyn Fn(&Step) -> Result<usize>,
    ) -> Result<Launches> {
        Launches::of_some(module, target, &mut |asked| {
            if asked.init { Ok(By::Variant(0)) } else { variant(asked.step).map(By::Variant) }
        })
    }

    /// As [`Launches::of`]; each step is done as `how` says. Those of the init program come first. Kernels of equal steps are made once.
    ///
    /// # Errors
    /// As [`Launches::of`].
    pub fn of_some(
        module: &LirModule,
        target: &KernelTarget,
        how: &mut dyn FnMut(Asked<'_>) -> Result<By>,
    ) -> Result<Launches> {
        let (steps, made, distinct) = Default::default();
        let mut making = Making { module, target, steps, made, distinct };
        let init = module.init.iter().map(|step| making.step(step, true, how)).collect::<Result<_>>()?;
        let run = module.steps.iter().map(|step| making.step(step, false, how)).collect::<Result<_>>()?;
        Ok(Launches { kernels: making.distinct.kernels, init, run })
    }

    /// The launches as bytes; the same for the same launches.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for kernels beyond what is read back.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let rejected =
            |what: &str| Error::new(ErrorKind::Unsupported, format!("kernels cannot be stored: {what}"));
        let kernels = self.kernels.iter().map(|(_, kernel)| KernelRecord::of(kernel));
        let kernels: Vec<KernelRecord> = kernels.collect();
        for ((hash, _), record) in self.kernels.iter().zip(&kernels) {
            let back = record.kernel().map_err(|e| rejected(e.message()))?;
            if back.hash() != *hash {
                return Err(rejected("one does not come back equal"));
            }
        }
        let mut extents = Extents::default();
        let steps = |steps: &[StepLaunches], extents: &mut Extents| -> Vec<Vec<LaunchRecord>> {
            let step =
                |launches: &StepLaunches| launches.iter().map(|l| LaunchRecord::of(l, extents)).collect();
            steps.iter().map(step).collect()
        };
        let (init, run) = (steps(&self.init, &mut extents), steps(&self.run, &mut extents));
        let record = CodeRecord { format: FORMAT, extents: extents.texts, kernels, init, run };
        postcard::to_allocvec(&record).map_err(|e| rejected(&e.to_string()))
    }

    /// The launches that [`Launches::to_bytes`] made these bytes of, where they fit the module and the device.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] for bytes that are no launches, or not of this module and device.
    pub fn from_bytes(bytes: &[u8], module: &LirModule, target: &KernelTarget) -> Result<Launches> {
        let record = match postcard::take_from_bytes::<CodeRecord>(bytes) {
            Ok((record, [])) if record.format == FORMAT => record,
            Ok((record, [])) => return Err(malformed(format!("format {}, not {FORMAT}", record.format))),
            Ok((_, rest)) => return Err(malformed(format!("{} bytes too many", rest.len()))),
            Err(e) => return Err(malformed(e)),
        };
        let extents = ReadExtents::of(&record.extents, module)?;
        let kernels =
            record.kernels.iter().map(|stored| stored.verified(target)).collect::<Result<Vec<_>>>()?;
        let reader = Reader { extents, kernels: &kernels };
        let (init, run) =
            (reader.steps(&record.init, &module.init)?, reader.steps(&record.run, &module.steps)?);
        Ok(Launches { kernels, init, run })
    }
}

#[derive(Serialize, Deserialize)]
struct CodeRecord {
    format: u32,
    /// Distinct expressions in the text form; launches refer to them by position.
    extents: Vec<String>,
    kernels: Vec<KernelRecord>,
    init: Vec<Vec<LaunchRecord>>,
    run: Vec<Vec<LaunchRecord>>,
}

#[derive(Serialize, Deserialize)]
struct LaunchRecord {
    kernel: u32,
    bindings: Vec<ArgRecord>,
    uniforms: Vec<UniformRecord>,
    groups: u32,
}

impl LaunchRecord {
    fn of((kernel, launch): &(usize, Launch), extents: &mut Extents) -> Self {
        LaunchRecord {
            kernel: *kernel as u32,
            bindings: launch.bindings.iter().map(|&arg| ArgRecord::of(arg)).collect(),
            uniforms: launch.uniforms.iter().map(|u| extents.uniform(u)).collect(),
            groups: extents.add(launch.groups),
        }
    }
}

/// What launches refer to.
struct Reader<'k> {
    extents: ReadExtents,
    kernels: &'k [(KernelHash, Arc<Kernel>)],
}

impl Reader<'_> {
    fn steps(&self, records: &[Vec<LaunchRecord>], steps: &[Step]) -> Result<Vec<StepLaunches>> {
        if records.len() != steps.len() {
            return Err(malformed(format!("{} steps, the module has {}", records.len(), steps.len())));
        }
        let step = |(launches, step): (&Vec<LaunchRecord>, &Step)| {
            launches.iter().map(|launch| self.launch(launch, step)).collect()
        };
        records.iter().zip(steps).map(step).collect()
    }

    fn launch(&self, record: &LaunchRecord, step: &Step) -> Result<(usize, Launch)> {
        let at = record.kernel as usize;
        let Some((_, kernel)) = self.kernels.get(at) else {
            return Err(malformed(format!("kernel {at} of {}", self.kernels.len())));
        };
        let fault = |what: &str| malformed(format!("a launch of {:?}: {what}", kernel.name));
        if record.bindings.len() != kernel.buffers.len() || record.uniforms.len() != kernel.uniforms.len() {
            return Err(fault("as many bindings and uniforms as the kernel has"));
        }
        let bindings = record.bindings.iter().map(|arg| arg.operand(step)).collect::<Result<Vec<_>>>()?;
        for (&arg, buffer) in bindings.iter().zip(&kernel.buffers) {
            fits_operand(buffer, arg, step).map_err(fault)?;
        }
        let uniforms =
            record.uniforms.iter().map(|u| self.extents.uniform(u, step)).collect::<Result<_>>()?;
        let groups = self.extents.get(record.groups)?;
        Ok((at, Launch { kernel: Arc::clone(kernel), bindings, uniforms, groups }))
    }
}

#[cfg(test)]
mod tests;
