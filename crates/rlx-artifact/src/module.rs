//! A compiled module as bytes: the graph in its text form, everything else as a table of numbers.
//!
//! The text form is derived from the op table for every op, so a new op needs no code here. It writes symbols by name and
//! expressions in full, so interned ids never leave the process. Steps, buffers and the memory plan are
//! `serde` records in postcard, which refer to extents by index into one list. Everything derivable (shapes
//! of inputs, live ranges, the order of symbols) is not stored but computed again.
//!
//! The writer reads its output back and compares; the reader checks every index. [`rlx_opt::verify_lir`] checks whether the
//! module is valid for a device.

use std::collections::HashMap;
use std::sync::Arc;

use rlx_ir::dim::scoped;
use rlx_ir::lir::{
    Buffer, BufferId, BufferKind, IoSlot, LirModule, MemoryPlan, Operand, Step, StepKind, View,
};
use rlx_ir::op::PackFormat;
use rlx_ir::text::{self, Lexer};
use rlx_ir::{ConstData, DType, DimBinding, Error, ErrorKind, Extent, Graph, Op, Result, Shape, sym};
use rlx_opt::lower::{live_ranges, used_symbols};
use serde::{Deserialize, Serialize};

use crate::layout::malformed;
use crate::origins::OriginsRecord;

/// Constants too long for the text form, by the hash it names them with.
pub(crate) type Blobs = HashMap<String, ConstData>;

#[derive(Serialize, Deserialize)]
struct ModuleRecord {
    name: String,
    graph: String,
    rules: String,
    /// Of the nodes of both.
    origins: [OriginsRecord; 2],
    /// Distinct extents; the others refer to them by position.
    extents: Vec<String>,
    buffers: Vec<BufferRecord>,
    init: Vec<StepRecord>,
    steps: Vec<StepRecord>,
    inputs: Vec<SlotRecord>,
    params: Vec<SlotRecord>,
    outputs: Vec<SlotRecord>,
    plan: Option<PlanRecord>,
}

#[derive(Serialize, Deserialize)]
struct BufferRecord {
    kind: KindRecord,
    dtype: String,
    elements: u32,
    format: Option<String>,
}

#[derive(Serialize, Deserialize)]
enum KindRecord {
    Input(u32),
    Param(u32),
    /// The constant node of the graph.
    Constant(u32),
    Prepared,
    Arena,
}

#[derive(Serialize, Deserialize)]
struct OperandRecord {
    buffer: u32,
    offset: u32,
    dims: Vec<u32>,
    strides: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
struct StepRecord {
    /// Whether it computes its node's op; else it copies.
    computes: bool,
    node: u32,
    inputs: Vec<OperandRecord>,
    outputs: Vec<OperandRecord>,
}

#[derive(Serialize, Deserialize)]
struct SlotRecord {
    name: String,
    operand: OperandRecord,
}

#[derive(Serialize, Deserialize)]
struct PlanRecord {
    bounds: Vec<(String, u64)>,
    pools: Vec<u64>,
    /// Pool and offset of each buffer in the arena.
    places: Vec<Option<(u32, u64)>>,
    alignment: u64,
    largest_live_set: u64,
}

/// A module as bytes, and the constants that are too long for its text.
#[derive(Debug, Clone)]
pub struct EncodedModule {
    pub(crate) bytes: Vec<u8>,
    pub(crate) blobs: Blobs,
}

impl EncodedModule {
    /// Encodes `lir`, and checks that it comes back equal.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a module that does not come back equal: one not made by the compiler.
    pub fn of(lir: &LirModule) -> Result<Self> {
        scoped(|| {
            let record = Writer::default().module(lir)?;
            let bytes = crate::write_record(&record)?;
            let mut blobs = text::blobs(&lir.graph);
            blobs.extend(text::blobs(&lir.rules));
            let back = decode(&bytes, &blobs)?;
            if back != *lir {
                return Err(unfaithful("it does not come back equal"));
            }
            Ok(EncodedModule { bytes, blobs })
        })
    }

    /// Its bytes, to damage them: the file's hashes will be right nevertheless.
    #[cfg(feature = "testing")]
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

fn unfaithful(why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("this module cannot be stored: {why}"))
}

/// The module that [`EncodedModule::of`] made these bytes of.
///
/// # Errors
/// [`ErrorKind::Malformed`] for bytes that are no module.
pub(crate) fn decode(bytes: &[u8], blobs: &Blobs) -> Result<LirModule> {
    scoped(|| {
        let mut record: ModuleRecord = crate::read_record(bytes, "the module")?;
        let mut graph = text::parse_with_blobs(&record.graph, blobs)?;
        let extents =
            record.extents.iter().map(|text| Lexer::whole_extent(text)).collect::<Result<Vec<_>>>()?;
        let mut rules = text::parse_with_blobs(&record.rules, blobs)?;
        let [of_graph, of_rules] = std::mem::take(&mut record.origins);
        of_graph.restore(&mut graph)?;
        of_rules.restore(&mut rules)?;
        Reader { graph, rules, extents, buffers: Vec::new() }.module(record)
    })
}

/// Enters extents in the list as they come.
#[derive(Default)]
struct Writer {
    extents: Vec<String>,
    places: HashMap<Extent, u32>,
}

impl Writer {
    fn module(mut self, lir: &LirModule) -> Result<ModuleRecord> {
        // Every field is named, so that a new one cannot be forgotten; symbols and live ranges are derived.
        let LirModule {
            name,
            graph,
            rules,
            symbols: _,
            buffers,
            init,
            steps,
            live_ranges: _,
            inputs,
            params,
            outputs,
            plan,
        } = lir;
        let constants = constants(graph);
        let buffers =
            buffers.iter().map(|b| self.buffer(b, graph, &constants)).collect::<Result<Vec<_>>>()?;
        let (init, steps) = (self.steps(init, graph)?, self.steps(steps, graph)?);
        let (inputs, params, outputs) = (self.slots(inputs), self.slots(params), self.slots(outputs));
        Ok(ModuleRecord {
            name: name.clone(),
            graph: graph.to_string(),
            rules: rules.to_string(),
            origins: [graph, rules].map(OriginsRecord::of),
            buffers,
            init,
            steps,
            inputs,
            params,
            outputs,
            plan: plan.as_ref().map(plan_record),
            extents: self.extents,
        })
    }

    fn extent(&mut self, e: Extent) -> u32 {
        let next = self.extents.len() as u32;
        let at = *self.places.entry(e).or_insert(next);
        if at == next {
            self.extents.push(e.to_string());
        }
        at
    }

    fn buffer(
        &mut self,
        buffer: &Buffer,
        graph: &Graph,
        constants: &HashMap<*const ConstData, u32>,
    ) -> Result<BufferRecord> {
        let Buffer { kind, dtype, elements, format } = buffer;
        Ok(BufferRecord {
            kind: match kind {
                BufferKind::Input(i) => KindRecord::Input(*i as u32),
                BufferKind::Param(i) => KindRecord::Param(*i as u32),
                BufferKind::Constant(data) => KindRecord::Constant(constant(data, graph, constants)?),
                BufferKind::Prepared => KindRecord::Prepared,
                BufferKind::Arena => KindRecord::Arena,
            },
            dtype: dtype.name().to_owned(),
            elements: self.extent(*elements),
            format: format.map(|f| f.name().to_owned()),
        })
    }

    fn operand(&mut self, operand: &Operand) -> OperandRecord {
        let Operand { buffer, view, dtype: _ } = operand;
        let View { offset, dims, strides } = &**view;
        OperandRecord {
            buffer: buffer.0,
            offset: self.extent(*offset),
            dims: dims.iter().map(|&e| self.extent(e)).collect(),
            strides: strides.iter().map(|&e| self.extent(e)).collect(),
        }
    }

    fn steps(&mut self, steps: &[Step], graph: &Graph) -> Result<Vec<StepRecord>> {
        let record = |step: &Step| {
            let node = graph.nodes().get(step.node.index());
            let computes = match &step.kind {
                StepKind::Copy => false,
                StepKind::Op(op) if node.is_some_and(|n| n.op == *op) => true,
                StepKind::Op(op) => {
                    return Err(unfaithful(&format!("the {} of a step differs from its node's", op.kind())));
                }
            };
            Ok(StepRecord {
                computes,
                node: step.node.index() as u32,
                inputs: step.inputs.iter().map(|o| self.operand(o)).collect(),
                outputs: step.outputs.iter().map(|o| self.operand(o)).collect(),
            })
        };
        steps.iter().map(record).collect()
    }

    fn slots(&mut self, slots: &[IoSlot]) -> Vec<SlotRecord> {
        let record = |s: &IoSlot| SlotRecord { name: s.name.clone(), operand: self.operand(&s.operand) };
        slots.iter().map(record).collect()
    }
}

/// The constant nodes, by the address of their data.
fn constants(graph: &Graph) -> HashMap<*const ConstData, u32> {
    let mut found = HashMap::new();
    for node in graph.nodes() {
        if let Op::Constant { data } = &node.op {
            found.insert(Arc::as_ptr(data), node.id.index() as u32);
        }
    }
    found
}

/// The node of the graph that holds `data`.
fn constant(data: &Arc<ConstData>, graph: &Graph, constants: &HashMap<*const ConstData, u32>) -> Result<u32> {
    let same = |n: &&rlx_ir::Node| matches!(&n.op, Op::Constant { data: other } if other == data);
    let by_value = || graph.nodes().iter().find(same).map(|n| n.id.index() as u32);
    let found = constants.get(&Arc::as_ptr(data)).copied().or_else(by_value);
    found.ok_or_else(|| unfaithful("a constant differs from its graph's"))
}

fn plan_record(plan: &MemoryPlan) -> PlanRecord {
    let MemoryPlan { bounds, arena_bytes: _, pools, pool_of, offsets, alignment, largest_live_set } = plan;
    PlanRecord {
        bounds: bounds.iter().map(|(s, v)| (sym::name(s), v as u64)).collect(),
        pools: pools.iter().map(|&b| b as u64).collect(),
        places: pool_of.iter().zip(offsets).map(|(&pool, at)| at.map(|at| (pool, at as u64))).collect(),
        alignment: *alignment as u64,
        largest_live_set: *largest_live_set as u64,
    }
}

struct Reader {
    graph: Graph,
    rules: Graph,
    extents: Vec<Extent>,
    buffers: Vec<Buffer>,
}

fn size(n: u64) -> Result<usize> {
    usize::try_from(n).map_err(|_| malformed(format!("a size of {n} bytes")))
}

impl Reader {
    fn module(mut self, record: ModuleRecord) -> Result<LirModule> {
        self.buffers = record.buffers.into_iter().map(|b| self.buffer(b)).collect::<Result<Vec<_>>>()?;
        let (init, steps) = (self.steps(record.init)?, self.steps(record.steps)?);
        let shapes = |nodes: &mut dyn Iterator<Item = &rlx_ir::Node>| {
            nodes.map(|n| n.shape.clone()).collect::<Vec<Shape>>()
        };
        let input_shapes = shapes(&mut self.graph.inputs());
        let param_shapes = shapes(&mut self.graph.params());
        let output_shapes: Vec<Shape> =
            self.graph.outputs.iter().map(|&id| self.graph.shape(id).clone()).collect();
        let inputs = self.slots(record.inputs, input_shapes)?;
        let params = self.slots(record.params, param_shapes)?;
        let outputs = self.slots(record.outputs, output_shapes)?;
        let plan = record.plan.map(|p| read_plan(p, self.buffers.len())).transpose()?;
        let module = LirModule {
            name: record.name,
            symbols: used_symbols(&inputs, &self.buffers, &steps, &self.rules),
            live_ranges: live_ranges(&self.buffers, &steps, &outputs),
            graph: self.graph,
            rules: self.rules,
            buffers: self.buffers,
            init,
            steps,
            inputs,
            params,
            outputs,
            plan,
        };
        Ok(module.hold_extents())
    }

    fn extent(&self, at: u32) -> Result<Extent> {
        let found = self.extents.get(at as usize).copied();
        found.ok_or_else(|| malformed(format!("extent {at} of {}", self.extents.len())))
    }

    fn extents(&self, list: &[u32]) -> Result<Vec<Extent>> {
        list.iter().map(|&at| self.extent(at)).collect()
    }

    fn buffer(&self, record: BufferRecord) -> Result<Buffer> {
        let kind = match record.kind {
            KindRecord::Input(i) => BufferKind::Input(i as usize),
            KindRecord::Param(i) => BufferKind::Param(i as usize),
            KindRecord::Constant(node) => match self.graph.nodes().get(node as usize).map(|n| &n.op) {
                Some(Op::Constant { data }) => BufferKind::Constant(Arc::clone(data)),
                _ => return Err(malformed(format!("node {node} is not a constant"))),
            },
            KindRecord::Prepared => BufferKind::Prepared,
            KindRecord::Arena => BufferKind::Arena,
        };
        let dtype: DType = record.dtype.parse()?;
        let format = record.format.map(|name| PackFormat::from_name(&name)).transpose()?;
        Ok(Buffer { kind, dtype, elements: self.extent(record.elements)?, format })
    }

    fn operand(&self, record: &OperandRecord) -> Result<Operand> {
        let buffer = self.buffers.get(record.buffer as usize);
        let buffer =
            buffer.ok_or_else(|| malformed(format!("buffer {} of {}", record.buffer, self.buffers.len())))?;
        Ok(Operand {
            buffer: BufferId(record.buffer),
            view: Arc::new(View {
                offset: self.extent(record.offset)?,
                dims: self.extents(&record.dims)?.into(),
                strides: self.extents(&record.strides)?.into(),
            }),
            dtype: buffer.dtype,
        })
    }

    fn operands(&self, records: &[OperandRecord]) -> Result<Vec<Operand>> {
        records.iter().map(|o| self.operand(o)).collect()
    }

    fn steps(&self, records: Vec<StepRecord>) -> Result<Vec<Step>> {
        let step = |record: StepRecord| {
            let node = self.graph.nodes().get(record.node as usize);
            let node =
                node.ok_or_else(|| malformed(format!("node {} of {}", record.node, self.graph.len())))?;
            Ok(Step {
                kind: if record.computes { StepKind::Op(node.op.clone()) } else { StepKind::Copy },
                inputs: self.operands(&record.inputs)?,
                outputs: self.operands(&record.outputs)?,
                node: node.id,
            })
        };
        records.into_iter().map(step).collect()
    }

    fn slots(&self, records: Vec<SlotRecord>, shapes: Vec<Shape>) -> Result<Vec<IoSlot>> {
        if records.len() != shapes.len() {
            return Err(malformed(format!("{} slots for {} nodes", records.len(), shapes.len())));
        }
        let slot = |(record, shape): (SlotRecord, Shape)| {
            Ok(IoSlot { name: record.name, shape, operand: self.operand(&record.operand)? })
        };
        records.into_iter().zip(shapes).map(slot).collect()
    }
}

fn read_plan(record: PlanRecord, buffers: usize) -> Result<MemoryPlan> {
    if record.places.len() != buffers {
        return Err(malformed(format!("a plan of {} buffers for {buffers}", record.places.len())));
    }
    let pools = record.pools.iter().map(|&b| size(b)).collect::<Result<Vec<_>>>()?;
    let arena_bytes = pools.iter().try_fold(0usize, |sum, &b| sum.checked_add(b));
    let mut bounds = DimBinding::new();
    for (name, value) in record.bounds {
        bounds.set(sym::named(&name), size(value)?);
    }
    let offset = |place: &Option<(u32, u64)>| place.map(|(_, at)| size(at)).transpose();
    Ok(MemoryPlan {
        bounds,
        arena_bytes: arena_bytes.ok_or_else(|| malformed("an arena larger than memory"))?,
        pools,
        pool_of: record.places.iter().map(|place| place.map_or(0, |(pool, _)| pool)).collect(),
        offsets: record.places.iter().map(offset).collect::<Result<Vec<_>>>()?,
        alignment: size(record.alignment)?,
        largest_live_set: size(record.largest_live_set)?,
    })
}
