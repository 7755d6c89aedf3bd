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

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use rlx_ir::lir::{LirModule, Step};
use rlx_ir::text::Lexer;
use rlx_ir::{DType, Error, ErrorKind, Extent, Result};
use serde::{Deserialize, Serialize};

use crate::ir::{Access, Buffer, BufferDecl, Inst, Kernel, Shared, SharedDecl, Stmt, Ty, Value, Var};
use crate::schedule::{Arg, Launch, UniformArg};
use crate::target::{KernelTarget, compile_step};
use crate::text::KernelHash;
use crate::verify;

/// Raised whenever the bytes, or what a launch means, change.
const FORMAT: u32 = 2;

/// How deep statements may nest.
const MOST_DEPTH: usize = 64;
/// The most statements of a kernel, and the most of its variables: the verifier's time is bounded by both.
const MOST_STATEMENTS: usize = 1 << 18;
const MOST_VARS: usize = 1 << 12;
/// The longest name of a kernel.
const MOST_NAME: usize = 256;

/// A step's launches, each with the place of its kernel in [`Launches::kernels`].
pub type StepLaunches = Vec<(usize, Launch)>;

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

impl Launches {
    /// Compiles every step: those of the run by the variant (of [`step_variants`](crate::step_variants)) that `variant` says.
    ///
    /// # Errors
    /// As [`compile_step`], and what `variant` reports.
    pub fn of(
        module: &LirModule,
        target: &KernelTarget,
        variant: &dyn Fn(&Step) -> Result<usize>,
    ) -> Result<Launches> {
        Launches::of_some(module, target, &mut |step, init| {
            if init { Ok(By::Variant(0)) } else { variant(step).map(By::Variant) }
        })
    }

    /// As [`Launches::of`]; each step is done as `how` says. The flag says whether it is an init step; those come first.
    ///
    /// # Errors
    /// As [`Launches::of`].
    pub fn of_some(
        module: &LirModule,
        target: &KernelTarget,
        how: &mut dyn FnMut(&Step, bool) -> Result<By>,
    ) -> Result<Launches> {
        let mut distinct = Distinct::default();
        let mut compile = |steps: &[Step], init: bool| -> Result<Vec<StepLaunches>> {
            let mut compiled = Vec::with_capacity(steps.len());
            for step in steps {
                let launches = match how(step, init)? {
                    By::Variant(variant) => compile_step(step, module, target, variant)?,
                    By::Launch(launch) => vec![launch],
                    By::Others => Vec::new(),
                };
                compiled.push(launches.into_iter().map(|launch| distinct.launch(launch)).collect());
            }
            Ok(compiled)
        };
        let (init, run) = (compile(&module.init, true)?, compile(&module.steps, false)?);
        Ok(Launches { kernels: distinct.kernels, init, run })
    }

    /// The launches as bytes; the same for the same launches.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for kernels beyond what is read back.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let rejected =
            |what: &str| Error::new(ErrorKind::Unsupported, format!("kernels cannot be stored: {what}"));
        let kernels = self.kernels.iter().map(|(hash, kernel)| KernelRecord::of(*hash, kernel));
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
        let extents = record.extents.iter().map(|text| extent(text, module)).collect::<Result<Vec<_>>>()?;
        let mut kernels = Vec::with_capacity(record.kernels.len());
        for stored in &record.kernels {
            let kernel = stored.kernel()?;
            verify::verify(&kernel).map_err(|e| malformed(e.message()))?;
            target.fits(&kernel).map_err(malformed)?;
            if kernel.hash().0 != stored.hash {
                return Err(malformed(format!("kernel {:?} is not what its hash says", kernel.name)));
            }
            kernels.push((KernelHash(stored.hash), Arc::new(kernel)));
        }
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

#[derive(Serialize, Deserialize, Clone, Copy)]
enum ArgRecord {
    Input(u32),
    Output(u32),
}

#[derive(Serialize, Deserialize)]
enum UniformRecord {
    Extent(u32),
    Base(ArgRecord, u32),
}

/// A kernel without the names that only people read, but for its own.
#[derive(Serialize, Deserialize)]
struct KernelRecord {
    hash: [u8; 32],
    name: String,
    buffers: Vec<(String, Access)>,
    uniforms: u32,
    shared: Vec<SharedDecl>,
    vars: Vec<Ty>,
    values: Vec<Ty>,
    workgroup: u32,
    body: Vec<Line>,
}

/// A statement, or where a list of statements begins or ends.
#[derive(Serialize, Deserialize)]
enum Line {
    Let(Value, Inst),
    LoadWide(Vec<Value>, Buffer, Value),
    Set(Var, Value),
    Store(Buffer, Value, Value),
    StoreShared(Shared, Value, Value),
    MergeBits(Buffer, Value, Value, Value),
    If(Value),
    Else,
    For { counter: Value, from: Value, to: Value, step: i32 },
    End,
    Barrier,
    Fail(u32, Value),
    StoreWide(Buffer, Value, Vec<Value>),
}

/// Enters extents in the list as they come.
#[derive(Default)]
struct Extents {
    texts: Vec<String>,
    places: HashMap<Extent, u32>,
}

impl Extents {
    fn add(&mut self, e: Extent) -> u32 {
        let next = self.texts.len() as u32;
        let at = *self.places.entry(e).or_insert(next);
        if at == next {
            self.texts.push(e.to_string());
        }
        at
    }
}

/// The expression, whose symbols must be the module's.
fn extent(text: &str, module: &LirModule) -> Result<Extent> {
    let extent = Lexer::whole_extent(text).map_err(|e| malformed(e.message()))?;
    match extent.symbols().into_iter().all(|s| module.symbols.contains(&s)) {
        true => Ok(extent),
        false => Err(malformed(format!("{text} has a symbol that the module does not have"))),
    }
}

impl ArgRecord {
    fn of(arg: Arg) -> Self {
        match arg {
            Arg::Input(i) => ArgRecord::Input(i as u32),
            Arg::Output(i) => ArgRecord::Output(i as u32),
        }
    }
}

impl LaunchRecord {
    fn of((kernel, launch): &(usize, Launch), extents: &mut Extents) -> Self {
        let uniform = |u: &UniformArg| match *u {
            UniformArg::Extent(e) => UniformRecord::Extent(extents.add(e)),
            UniformArg::Base { operand, offset } => {
                UniformRecord::Base(ArgRecord::of(operand), extents.add(offset))
            }
        };
        LaunchRecord {
            kernel: *kernel as u32,
            bindings: launch.bindings.iter().map(|&arg| ArgRecord::of(arg)).collect(),
            uniforms: launch.uniforms.iter().map(uniform).collect(),
            groups: extents.add(launch.groups),
        }
    }
}

/// What launches refer to.
struct Reader<'k> {
    extents: Vec<Extent>,
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
        let bindings = record.bindings.iter().map(|&arg| operand(arg, step)).collect::<Result<Vec<_>>>()?;
        for (&arg, buffer) in bindings.iter().zip(&kernel.buffers) {
            let (own, reads) = match arg {
                Arg::Input(i) => (step.inputs[i].dtype, true),
                Arg::Output(i) => (step.outputs[i].dtype, false),
            };
            // What a device has no elements of is in words.
            if buffer.dtype.bits() != own.bits() && buffer.dtype != DType::U32 {
                return Err(fault("a buffer of other elements than its operand"));
            }
            // An input may be shared with whatever else runs: it is never written.
            if reads != (buffer.access == Access::Read) {
                return Err(fault("inputs are read, outputs written"));
            }
        }
        let uniform = |u: &UniformRecord| {
            Ok(match *u {
                UniformRecord::Extent(e) => UniformArg::Extent(self.extent(e)?),
                UniformRecord::Base(arg, e) => {
                    UniformArg::Base { operand: operand(arg, step)?, offset: self.extent(e)? }
                }
            })
        };
        let uniforms = record.uniforms.iter().map(uniform).collect::<Result<_>>()?;
        let groups = self.extent(record.groups)?;
        Ok((at, Launch { kernel: Arc::clone(kernel), bindings, uniforms, groups }))
    }

    fn extent(&self, at: u32) -> Result<Extent> {
        let found = self.extents.get(at as usize).copied();
        found.ok_or_else(|| malformed(format!("extent {at} of {}", self.extents.len())))
    }
}

/// The operand, which the step must have.
fn operand(record: ArgRecord, step: &Step) -> Result<Arg> {
    let (arg, at, count) = match record {
        ArgRecord::Input(i) => (Arg::Input(i as usize), i, step.inputs.len()),
        ArgRecord::Output(i) => (Arg::Output(i as usize), i, step.outputs.len()),
    };
    if (at as usize) < count { Ok(arg) } else { Err(malformed(format!("operand {at} of {count}"))) }
}

impl KernelRecord {
    fn of(hash: KernelHash, kernel: &Kernel) -> Self {
        // Every field is named, so that a new one cannot be forgotten.
        let Kernel { name, buffers, uniforms, shared, vars, values, workgroup, body } = kernel;
        let mut lines = Vec::new();
        write(body, &mut lines);
        KernelRecord {
            hash: hash.0,
            name: name.chars().filter(|c| is_plain(*c)).take(MOST_NAME).collect(),
            buffers: buffers.iter().map(|b| (b.dtype.name().to_owned(), b.access)).collect(),
            uniforms: uniforms.len() as u32,
            shared: shared.clone(),
            vars: vars.clone(),
            values: values.clone(),
            workgroup: *workgroup,
            body: lines,
        }
    }

    /// The kernel, not yet verified.
    fn kernel(&self) -> Result<Kernel> {
        let fault = |what: &str| malformed(format!("kernel {:?}: {what}", self.name));
        // A name is in a comment of the rendered text: it must not end the line.
        if self.name.chars().count() > MOST_NAME || !self.name.chars().all(is_plain) {
            return Err(malformed("a kernel's name is none"));
        }
        let counts = [self.body.len(), self.values.len(), self.uniforms as usize, self.shared.len()];
        if counts.iter().any(|&n| n > MOST_STATEMENTS) || self.vars.len() > MOST_VARS {
            return Err(fault("it is too large"));
        }
        let buffer = |(i, (dtype, access)): (usize, &(String, Access))| {
            let dtype = dtype.parse().map_err(|_| fault("a buffer of an unknown type"))?;
            Ok(BufferDecl { name: format!("b{i}"), dtype, access: *access })
        };
        Ok(Kernel {
            name: self.name.clone(),
            buffers: self.buffers.iter().enumerate().map(buffer).collect::<Result<_>>()?,
            uniforms: (0..self.uniforms).map(|i| format!("u{i}")).collect(),
            shared: self.shared.clone(),
            vars: self.vars.clone(),
            values: self.values.clone(),
            workgroup: self.workgroup,
            body: read(&self.body).ok_or_else(|| fault("statements that do not nest"))?,
        })
    }
}

/// Whether a character may be in a name.
fn is_plain(c: char) -> bool {
    c.is_ascii_graphic() || c == ' '
}

/// Writes statements as lines.
fn write(stmts: &[Stmt], lines: &mut Vec<Line>) {
    for stmt in stmts {
        let line = match stmt {
            Stmt::Let(v, inst) => Line::Let(*v, *inst),
            Stmt::LoadWide { values, buffer, index } => Line::LoadWide(values.clone(), *buffer, *index),
            Stmt::Set(var, v) => Line::Set(*var, *v),
            Stmt::Store { buffer, index, value } => Line::Store(*buffer, *index, *value),
            Stmt::StoreWide { buffer, index, values } => Line::StoreWide(*buffer, *index, values.clone()),
            Stmt::StoreShared { shared, index, value } => Line::StoreShared(*shared, *index, *value),
            Stmt::MergeBits { buffer, index, mask, bits } => Line::MergeBits(*buffer, *index, *mask, *bits),
            Stmt::Barrier => Line::Barrier,
            Stmt::Fail { code, value } => Line::Fail(*code, *value),
            Stmt::If { cond, then, otherwise } => {
                lines.push(Line::If(*cond));
                write(then, lines);
                if !otherwise.is_empty() {
                    lines.push(Line::Else);
                    write(otherwise, lines);
                }
                Line::End
            }
            Stmt::For { counter, from, to, step, body } => {
                lines.push(Line::For { counter: *counter, from: *from, to: *to, step: *step });
                write(body, lines);
                Line::End
            }
        };
        lines.push(line);
    }
}

/// A list that is not yet at its end.
enum Open {
    Then(Value),
    Otherwise(Value, Vec<Stmt>),
    For { counter: Value, from: Value, to: Value, step: i32 },
}

/// The statements that lines stand for; `None` where they do not nest, or too deep.
fn read(lines: &[Line]) -> Option<Vec<Stmt>> {
    // Each open list, with the statements before it.
    let mut outer: Vec<(Open, Vec<Stmt>)> = Vec::new();
    let mut stmts = Vec::new();
    for line in lines {
        let stmt = match *line {
            Line::Let(v, inst) => Stmt::Let(v, inst),
            Line::LoadWide(ref values, buffer, index) => {
                Stmt::LoadWide { values: values.clone(), buffer, index }
            }
            Line::Set(var, v) => Stmt::Set(var, v),
            Line::Store(buffer, index, value) => Stmt::Store { buffer, index, value },
            Line::StoreWide(buffer, index, ref values) => {
                Stmt::StoreWide { buffer, index, values: values.clone() }
            }
            Line::StoreShared(shared, index, value) => Stmt::StoreShared { shared, index, value },
            Line::MergeBits(buffer, index, mask, bits) => Stmt::MergeBits { buffer, index, mask, bits },
            Line::Barrier => Stmt::Barrier,
            Line::Fail(code, value) => Stmt::Fail { code, value },
            Line::If(cond) => {
                outer.push((Open::Then(cond), std::mem::take(&mut stmts)));
                continue;
            }
            Line::For { counter, from, to, step } => {
                outer.push((Open::For { counter, from, to, step }, std::mem::take(&mut stmts)));
                continue;
            }
            Line::Else => {
                let (Open::Then(cond), before) = outer.pop()? else { return None };
                outer.push((Open::Otherwise(cond, std::mem::take(&mut stmts)), before));
                continue;
            }
            Line::End => {
                let (open, before) = outer.pop()?;
                let body = std::mem::replace(&mut stmts, before);
                match open {
                    Open::Then(cond) => Stmt::If { cond, then: body, otherwise: Vec::new() },
                    Open::Otherwise(cond, then) => Stmt::If { cond, then, otherwise: body },
                    Open::For { counter, from, to, step } => Stmt::For { counter, from, to, step, body },
                }
            }
        };
        if outer.len() > MOST_DEPTH {
            return None;
        }
        stmts.push(stmt);
    }
    outer.is_empty().then_some(stmts)
}

#[cfg(test)]
mod tests;
