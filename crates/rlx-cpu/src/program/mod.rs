//! The executable form of a module: steps with chosen kernels, and what stays the same between runs.
//!
//! A [`Program`] is immutable and shared by clones. An executable ([`exec`]) binds it to dimensions, owns the
//! arena, and runs the list. The init program ([`init`]) makes what depends on parameters alone.

mod data_dependent;
pub(crate) mod exec;
mod handles;
pub(crate) mod init;
pub(crate) mod journal;
pub(crate) mod layout;
mod moe;
pub(crate) mod params;
mod profile;
pub(crate) mod scratch;
pub(crate) mod tuned;

use std::sync::Arc;

use rlx_backend::tuning::Tuning;
use rlx_ir::lir::{BufferKind, IoSlot, MemoryPlan, Step, StepKind};
use rlx_ir::{Error, ErrorKind, LirModule, NodeId, Result, memory, sym};
use rlx_opt::PoolSpec;

pub(crate) use rlx_backend::{checks, extents};

use self::checks::ShapeRules;
use self::data_dependent::Stage;
use self::extents::{Ex, ExtentTable, SlotSizes, Values};
use self::init::InitPlan;
use self::layout::{Bound, SymOperand};
use crate::alloc::Buffer;
use crate::gemm::TileSizes;
use crate::isa::Isa;
use crate::kernels::{self, CompileCx, StepKernel};
use crate::pool::Pool;

/// A step with its kernel, not yet bound.
pub(crate) struct ProgramStep {
    /// Copied by every executable, which binds its copy.
    pub(crate) prototype: Box<dyn StepKernel>,
    pub(crate) inputs: Vec<SymOperand>,
    pub(crate) outputs: Vec<SymOperand>,
    pub(crate) packed: Vec<bool>,
    /// Operands (inputs, then outputs) that must not overlap and depend on symbols.
    apart: Vec<(usize, usize)>,
    pub(crate) node: NodeId,
    /// Whether it replaces elements of an input that the caller gave.
    pub(crate) updates_input: bool,
    /// Whether it has something to do even where no output has an element: it counts, or packs.
    always: bool,
}

impl ProgramStep {
    /// Whether there is nothing to compute for these outputs, whatever the other dimensions multiply to.
    pub(crate) fn is_idle(&self, outputs: &[Bound]) -> bool {
        !self.always && outputs.iter().all(|out| out.layout.elements() == 0)
    }

    /// The operands for these values, into lists whose room is reused.
    pub(crate) fn operands(
        &self,
        values: &Values<'_>,
        inputs: &mut Vec<Bound>,
        outputs: &mut Vec<Bound>,
    ) -> Result<()> {
        inputs.clear();
        outputs.clear();
        for operand in &self.inputs {
            inputs.push(operand.bind(values)?);
        }
        for operand in &self.outputs {
            outputs.push(operand.bind(values)?);
        }
        let operand = |at: usize| inputs.get(at).unwrap_or_else(|| &outputs[at - inputs.len()]);
        match self.apart.iter().find(|&&(a, b)| !operand(a).is_apart_from(operand(b))) {
            None => Ok(()),
            Some(_) => Err(Error::new(ErrorKind::Dimension, "these dimensions make views overlap")
                .with_hint("dimensions that the model declares equal differ")),
        }
    }
}

/// Which threads a program runs on.
#[derive(Debug, Clone)]
pub(crate) enum Threads {
    /// The process's pool.
    Global(&'static Pool),
    /// One of its own.
    Own(Arc<Pool>),
}

impl Threads {
    pub(crate) fn pool(&self) -> &Pool {
        match self {
            Threads::Global(pool) => pool,
            Threads::Own(pool) => pool,
        }
    }
}

/// A module with a kernel for every step.
pub(crate) struct Program {
    pub(crate) lir: Arc<LirModule>,
    pub(crate) table: ExtentTable,
    pub(crate) steps: Vec<ProgramStep>,
    pub(crate) init: InitPlan,
    pub(crate) rules: ShapeRules,
    /// Where steps find dimensions out.
    stages: Vec<Stage>,
    /// How many elements each output has.
    output_elements: Vec<Ex>,
    /// The input whose memory each output takes.
    pub(crate) donated: Vec<Option<usize>>,
    /// How many elements each input and each parameter must have.
    pub(crate) given: [SlotSizes; 2],
    /// Copies of constants that do not be aligned, by buffer.
    pub(crate) constants: Vec<Option<Buffer>>,
    pub(crate) isa: Isa,
    pub(crate) threads: Threads,
    /// How memory is planned. Where outputs are apart, executables use scratch by turns with those of other programs.
    pub(crate) pool: PoolSpec,
}

impl Program {
    /// Chooses a kernel for every step of a module that was verified.
    pub(crate) fn new(
        lir: Arc<LirModule>,
        isa: Isa,
        threads: Threads,
        pool: PoolSpec,
        tuning: &Tuning,
    ) -> Result<Program> {
        check_pools(&lir)?;
        let mut table = ExtentTable::default();
        let mut compile = |step| program_step(step, &lir, &mut table, isa, &threads);
        let init = lir.init.iter().map(&mut compile).collect::<Result<Vec<_>>>()?;
        let mut steps = lir.steps.iter().map(compile).collect::<Result<Vec<_>>>()?;
        if !tuning.is_empty() {
            for (compiled, step) in steps.iter_mut().zip(&lir.steps) {
                let key = tuned::tuning_key(&lir, step, isa, &threads);
                let tile_sizes =
                    key.map_or(TileSizes::DEFAULT, |key| tuned::tile_sizes(isa, tuning.variant(&key)));
                compiled.prototype.set_tile_sizes(tile_sizes);
            }
        }
        let rules = ShapeRules::new(&lir);
        let output_elements =
            lir.outputs.iter().map(|slot| table.add(slot.operand.view.elements())).collect();
        let donated = (0..lir.outputs.len()).map(|output| lir.donated(output)).collect();
        let given = [&lir.inputs, &lir.params].map(|slots| SlotSizes::new(slots, &lir, &mut table));
        let stages = data_dependent::of(&lir, &table)?;
        let init = InitPlan::new(&lir, init, &format!("cpu {isa}"));
        let constants = aligned_constants(&lir)?;
        Ok(Program {
            table,
            steps,
            init,
            rules,
            stages,
            output_elements,
            donated,
            given,
            constants,
            lir,
            isa,
            threads,
            pool,
        })
    }

    /// An error of a step, with where it happened.
    pub(crate) fn place(&self, node: NodeId, error: Error) -> Error {
        self.lir.graph.locate(node, error).with_device("cpu")
    }

    /// What anyone who watches a run is told of a step.
    pub(crate) fn op_name(&self, node: NodeId) -> &'static str {
        self.lir.graph.node(node).op.kind().name()
    }
}

/// The arena is one pool, or the outputs' and one of the rest.
fn check_pools(lir: &LirModule) -> Result<()> {
    let Some(plan) = &lir.plan else { return Ok(()) };
    let apart = |slot: &IoSlot| plan.pool_of[slot.operand.buffer.index()] != 0;
    if plan.pools.len() > 2 || lir.outputs.iter().any(apart) {
        let message = "the memory plan has pools that are not the CPU's";
        return Err(Error::new(ErrorKind::InvalidGraph, message).with_device("cpu"));
    }
    Ok(())
}

fn program_step(
    step: &Step,
    lir: &LirModule,
    table: &mut ExtentTable,
    isa: Isa,
    threads: &Threads,
) -> Result<ProgramStep> {
    let located = |e: Error| lir.graph.locate(step.node, e);
    let mut operands = |list: &[rlx_ir::lir::Operand]| {
        // As many as there are: collecting results would make room for four.
        let mut operands = Vec::with_capacity(list.len());
        for operand in list {
            operands.push(SymOperand::new(operand, &lir.buffers[operand.buffer.index()], table)?);
        }
        Ok(operands)
    };
    let (inputs, outputs) =
        (operands(&step.inputs).map_err(located)?, operands(&step.outputs).map_err(located)?);
    let prototype = kernels::compile(&mut CompileCx { step, module: lir, table, isa, threads });
    let prototype = prototype.map_err(located)?;
    let packed: Vec<bool> = inputs.iter().map(|o| o.packed).collect();
    let knows = |i: usize| matches!(&step.kind, StepKind::Op(op) if kernels::pack::reads_packed(op, i));
    if let Some(i) = (0..packed.len()).find(|&i| packed[i] && !knows(i)) {
        let message = format!("input {i} is in a packed format, which this step does not read");
        return Err(located(Error::new(ErrorKind::Unsupported, message)));
    }
    // Those of numbers alone were verified.
    let open = |at: usize| step.operand(at).is_some_and(|o| o.view.is_symbolic());
    let apart = step.shared_buffers().filter(|&(a, b)| open(a) || open(b)).collect();
    let counts = matches!(&step.kind, StepKind::Op(op) if op.def().counted(op).is_some());
    let always = counts || outputs.iter().any(|out| out.packed);
    let is_input =
        |o: &rlx_ir::lir::Operand| matches!(lir.buffers[o.buffer.index()].kind, BufferKind::Input(_));
    let updates_input = step.outputs.iter().any(is_input);
    Ok(ProgramStep { prototype, inputs, outputs, packed, apart, node: step.node, updates_input, always })
}

/// Kernels read constants in place, so they must be aligned to their elements.
fn aligned_constants(lir: &LirModule) -> Result<Vec<Option<Buffer>>> {
    let mut copies = Vec::with_capacity(lir.buffers.len());
    for buffer in &lir.buffers {
        copies.push(match &buffer.kind {
            BufferKind::Constant(data) if !is_aligned(data.bytes(), buffer.dtype.size_bytes()) => {
                Some(copy_of(data.bytes())?)
            }
            _ => None,
        });
    }
    Ok(copies)
}

/// Whether bytes can be read as elements of this size where they are.
pub(crate) fn is_aligned(bytes: &[u8], size: usize) -> bool {
    (bytes.as_ptr() as usize).is_multiple_of(size)
}

/// An aligned copy of bytes.
pub(crate) fn copy_of(bytes: &[u8]) -> Result<Buffer> {
    let mut copy = allocate(bytes.len(), "an aligned copy")?;
    copy.as_mut_slice().copy_from_slice(bytes);
    Ok(copy)
}

/// The error of a plan for which there is no memory.
pub(crate) fn plan_too_large(program: &Program, plan: &MemoryPlan, e: &Error) -> Error {
    let gigabytes = |bytes: usize| format!("{:.1} GB", bytes as f64 / 1e9);
    let lir = &program.lir;
    let bound = |&s: &u32| plan.bounds.get(s).map(|n| format!("{} up to {n}", sym::name(s)));
    let bounds: Vec<String> = lir.symbols.iter().filter_map(bound).collect();
    let bounds =
        if bounds.is_empty() { String::new() } else { format!(", planned for {}", bounds.join(", ")) };
    let (need, least) = (gigabytes(plan.arena_bytes), gigabytes(plan.largest_live_set));
    let message = format!("the values of one run need {need} ({least} at one step{bounds}): {}", e.message());
    Error::new(ErrorKind::OutOfMemory, message).with_device("cpu").with_hint(
        "give smaller dimensions, such as a smaller batch, or run the parts of the batch one by one",
    )
}

/// Zeroed memory; `what` is what it is for.
pub(crate) fn allocate(bytes: usize, what: &str) -> Result<Buffer> {
    allocate_aligned(bytes, 1, what)
}

/// As [`allocate`], at a multiple of `align` (a power of two) at least.
pub(crate) fn allocate_aligned(bytes: usize, align: usize, what: &str) -> Result<Buffer> {
    Buffer::zeroed_aligned(bytes, align)
        .map_err(|e| memory::failed(bytes, what).with_source(e).with_device("cpu"))
}
