//! Elementwise ops as a list of instructions over values of a tile.
//!
//! ```text
//! Add(%0, %1); Activation.Tanh     →     v2 = add v0 v1        (slot 0)
//!                                        v3 = tanh v2          (slot 0 again: v2 is not needed any more)
//! ```
//!
//! Values are the program's inputs, its constants, and the results of instructions. Results live in slots of
//! one tile each; a slot is reused as soon as its value is dead. Shorter floats are computed in f32 and
//! rounded after every op, as the graph language asks: most ops of 16-bit floats by one instruction that reads and writes
//! them, others by instructions that widen, compute, and round.

use std::sync::Arc;

use rlx_ir::{ConstData, DType, Dim, Graph, Node, NodeId, Op};

use super::chain::Chain;
use super::functions::Functions;
use super::halves::Conversion;
use super::instr::{self, ARGS, Code};
use super::tables::{self, Table};
use crate::math::Unary;

/// Elements of a tile.
pub(crate) const TILE: usize = 512;

/// The number of a value.
pub(crate) type ValueId = u16;

/// One function applied to a tile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Instr {
    pub(crate) code: Code,
    pub(crate) args: [ValueId; ARGS],
    pub(crate) arity: u8,
    pub(crate) out: ValueId,
    pub(crate) slot: u16,
}

impl Instr {
    /// The values it reads.
    pub(super) fn args(&self) -> &[ValueId] {
        &self.args[..usize::from(self.arity)]
    }

    /// This instruction and `next`, whose operand number `at` is its result, as one, if there is one.
    fn then(&self, next: &Instr, at: usize) -> Option<Instr> {
        let code = Code::Chain(Chain::of(self.code)?.then(Chain::of(next.code)?, at)?);
        let mut both = Instr { code, out: next.out, ..*self };
        for (_, &arg) in next.args().iter().enumerate().filter(|&(i, _)| i != at) {
            *both.args.get_mut(usize::from(both.arity))? = arg;
            both.arity += 1;
        }
        Some(both)
    }
}

/// Where an input of the program comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputKind {
    /// Input number `.0` of the step.
    Step(usize),
    /// The result of the region's anchor.
    Anchor,
}

/// An input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input {
    pub(crate) kind: InputKind,
    pub(crate) dtype: DType,
    /// Whether it is a single element, whatever the sizes are.
    pub(crate) single: bool,
    /// The last instruction that reads it.
    pub(crate) last_use: usize,
}

/// A result of the program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) value: ValueId,
    pub(crate) size: usize,
    /// The instruction that makes it; `None` for what no instruction makes.
    pub(crate) made_at: Option<usize>,
}

/// The instructions; see the [module](self).
#[derive(Debug)]
pub(crate) struct TileProgram {
    pub(crate) inputs: Box<[Input]>,
    /// Values `inputs.len()..` are these.
    pub(crate) constants: Box<[[u64; 1]]>,
    pub(crate) instrs: Box<[Instr]>,
    /// What is looked up; the entries are computed before the first tile.
    pub(crate) tables: Box<[Table]>,
    /// The same program with tables, where it has any.
    pub(crate) tabled: Option<Arc<TileProgram>>,
    pub(crate) outputs: Box<[Output]>,
    /// Slots of results; each input may need one more to be gathered in.
    pub(crate) slots: usize,
    /// Bytes of the widest element.
    pub(crate) widest: usize,
    /// Values in all.
    pub(crate) values: usize,
    /// Nanoseconds for one element, roughly.
    pub(crate) nanos: f64,
}

/// A value while the program is built.
#[derive(Debug, Clone, Copy)]
struct Typed {
    id: ValueId,
    /// The element type of the graph.
    dtype: DType,
    /// Whether it is held in its register form.
    widened: bool,
}

/// A program while it is built.
#[derive(Default)]
struct Builder {
    inputs: Vec<Input>,
    constants: Vec<(ConstData, ValueId)>,
    instrs: Vec<Instr>,
    /// Bytes of each value's elements.
    sizes: Vec<usize>,
}

impl Builder {
    fn value(&mut self, size: usize) -> Result<ValueId, String> {
        self.sizes.push(size);
        ValueId::try_from(self.sizes.len() - 1).map_err(|_| "too many values in one region".to_string())
    }

    fn emit(&mut self, code: Code, args: &[ValueId], dtype: DType) -> Result<ValueId, String> {
        let out = self.value(dtype.size_bytes())?;
        let mut list = [args[0]; ARGS];
        list[..args.len()].copy_from_slice(args);
        self.instrs.push(Instr { code, args: list, arity: args.len() as u8, out, slot: 0 });
        Ok(out)
    }

    /// The value in its register.
    fn register(&mut self, v: Typed) -> Result<ValueId, String> {
        match instr::widen(v.dtype) {
            Some(code) if !v.widened => self.emit(code, &[v.id], DType::F32),
            _ => Ok(v.id),
        }
    }

    /// The value as it is in memory.
    fn memory(&mut self, v: Typed) -> Result<ValueId, String> {
        match instr::narrow(v.dtype) {
            Some(code) if v.widened => self.emit(code, &[v.id], v.dtype),
            _ => Ok(v.id),
        }
    }

    fn op(&mut self, op: &Op, args: &[Typed], result: DType) -> Result<Typed, String> {
        let main = main_of(op, &args.iter().map(|a| a.dtype).collect::<Vec<_>>(), result)?;
        if let Main::OfBytes(code) = main {
            let args: Vec<ValueId> = args.iter().map(|a| a.id).collect();
            return Ok(Typed { id: self.emit(code, &args, result)?, dtype: result, widened: true });
        }
        if let Main::OfRegisters(code) = main
            && let Some(code) = code.of_halves(result)
            && args.iter().all(|a| a.dtype == result || a.dtype == DType::Bool)
        {
            let args: Vec<ValueId> = args.iter().map(|&a| self.memory(a)).collect::<Result<_, _>>()?;
            return Ok(Typed { id: self.emit(code, &args, result)?, dtype: result, widened: false });
        }
        let registers: Vec<ValueId> = args.iter().map(|&a| self.register(a)).collect::<Result<_, _>>()?;
        let Main::OfRegisters(code) = main else {
            return self.rounded(registers[0], result, args[0].dtype != result);
        };
        let id = self.emit(code, &registers, instr::register(result))?;
        // Choices and conversions to bool or integers are exact.
        self.rounded(id, result, !matches!(op, Op::Where))
    }

    /// The value rounded to what `dtype` can hold.
    fn rounded(&mut self, id: ValueId, dtype: DType, inexact: bool) -> Result<Typed, String> {
        let id = match instr::round_to(dtype) {
            Some(code) if inexact => self.emit(code, &[id], DType::F32)?,
            _ => id,
        };
        Ok(Typed { id, dtype, widened: true })
    }

    /// A function of a float.
    fn function(&mut self, f: Unary, x: Typed) -> Result<Typed, String> {
        let id = self.memory(x)?;
        Ok(Typed { id: self.emit(Code::Unary(f, x.dtype), &[id], x.dtype)?, dtype: x.dtype, widened: false })
    }

    /// The only result as it is in memory. What was rounded last need not be: storing it rounds.
    fn only_result(&mut self, v: Typed) -> Result<ValueId, String> {
        let rounded = |i: &Instr| i.out == v.id && matches!(i.code, Code::Half(Conversion::Round, _));
        match self.instrs.last() {
            Some(last) if v.widened && rounded(last) => {
                let id = last.args[0];
                self.instrs.pop();
                self.memory(Typed { id, ..v })
            }
            _ => self.memory(v),
        }
    }

    fn finish(mut self, outputs: &[Typed]) -> Result<TileProgram, String> {
        let mut results = Vec::new();
        for &v in outputs {
            let id = if outputs.len() == 1 { self.only_result(v)? } else { self.memory(v)? };
            results.push((id, v.dtype.size_bytes()));
        }
        self.join_chains(&results);
        let tabled = self.tabled(&results).map(Arc::new);
        let instrs = std::mem::take(&mut self.instrs);
        Ok(TileProgram { tabled, ..self.program(instrs, Vec::new(), &results) })
    }

    /// The same with tables, if there are any.
    fn tabled(&self, results: &[(ValueId, usize)]) -> Option<TileProgram> {
        let inputs = || self.inputs.iter().zip(0..);
        let constants = self.constants.iter().map(|(_, id)| *id);
        let single: Vec<ValueId> =
            inputs().filter(|(i, _)| i.single).map(|(_, id)| id).chain(constants).collect();
        let is_byte = |i: &Input| !i.single && matches!(i.dtype, DType::I8 | DType::U8);
        let bytes: Vec<ValueId> = inputs().filter(|(i, _)| is_byte(i)).map(|(_, id)| id).collect();
        let results_of: Vec<ValueId> = results.iter().map(|(id, _)| *id).collect();
        let values = tables::Values { single: &single, bytes: &bytes, results: &results_of };
        let (instrs, tables) =
            tables::find(&self.instrs, &values, ValueId::try_from(self.sizes.len()).ok()?)?;
        let mut sizes = self.sizes.clone();
        sizes.extend(tables.iter().map(|_| 1));
        let with = Builder {
            inputs: self.inputs.clone(),
            constants: self.constants.clone(),
            instrs: Vec::new(),
            sizes,
        };
        Some(with.program(instrs, tables, results))
    }

    /// The program of these instructions.
    fn program(
        self,
        mut instrs: Vec<Instr>,
        mut tables: Vec<Table>,
        results: &[(ValueId, usize)],
    ) -> TileProgram {
        let Builder { mut inputs, constants, sizes, .. } = self;
        let last_use = last_uses(&instrs, results.iter().map(|(id, _)| *id), sizes.len());
        let mut slots = assign_slots(&mut instrs, &last_use, &sizes);
        // Tables are made before the first tile, in the same slots.
        for table in &mut tables {
            let last_use = last_uses(&table.instrs, [table.result].into_iter(), sizes.len());
            slots = slots.max(assign_slots(&mut table.instrs, &last_use, &sizes));
        }
        inputs.iter_mut().zip(&last_use).for_each(|(input, &at)| input.last_use = at);
        let made_at = |id: ValueId| instrs.iter().position(|i| i.out == id);
        let output = |&(value, size)| Output { value, size, made_at: made_at(value) };
        let outputs = results.iter().map(output).collect();
        let traffic = 0.05 * (inputs.len() + results.len()) as f64;
        let nanos = traffic + instrs.iter().map(|i| i.code.nanos()).sum::<f64>();
        TileProgram {
            values: sizes.len(),
            constants: constants.iter().map(|(c, _)| [scalar_bits(c)]).collect(),
            inputs: inputs.into(),
            instrs: instrs.into(),
            tables: tables.into(),
            tabled: None,
            outputs,
            slots,
            widest: sizes.iter().copied().max().unwrap_or(1),
            nanos,
        }
    }

    /// Makes one instruction of those whose results only the next one reads, where a [`Chain`] has both.
    fn join_chains(&mut self, results: &[(ValueId, usize)]) {
        let mut uses = vec![0; self.sizes.len()];
        let read = self.instrs.iter().flat_map(|i| i.args());
        read.chain(results.iter().map(|(id, _)| id)).for_each(|&id| uses[usize::from(id)] += 1);
        let mut joined: Vec<Instr> = Vec::with_capacity(self.instrs.len());
        for next in self.instrs.drain(..) {
            let both = next.args().iter().enumerate().find_map(|(at, &arg)| {
                let first = joined.iter().position(|i| i.out == arg && uses[usize::from(arg)] == 1)?;
                Some((first, joined[first].then(&next, at)?))
            });
            if let Some((first, _)) = both {
                joined.remove(first);
            }
            joined.push(both.map_or(next, |(_, both)| both));
        }
        self.instrs = joined;
    }
}

/// For each of so many values, the last instruction that reads it; results live to the end.
fn last_uses(instrs: &[Instr], results: impl Iterator<Item = ValueId>, values: usize) -> Vec<usize> {
    let mut last = vec![0; values];
    for (at, i) in instrs.iter().enumerate() {
        i.args().iter().for_each(|&a| last[usize::from(a)] = at);
    }
    results.for_each(|id| last[usize::from(id)] = usize::MAX);
    last
}

/// Gives every result a slot, reusing those of dead values; how many slots there are. `sizes`: bytes of each value's elements.
fn assign_slots(instrs: &mut [Instr], last_use: &[usize], sizes: &[usize]) -> usize {
    let mut slot_of: Vec<Option<u16>> = vec![None; sizes.len()];
    let (mut free, mut count): (Vec<u16>, u16) = (Vec::new(), 0);
    for (at, instr) in instrs.iter_mut().enumerate() {
        let size = sizes[usize::from(instr.out)];
        let mut freed: Vec<(u16, usize)> = Vec::new();
        for &a in instr.args() {
            if last_use[usize::from(a)] == at
                && let Some(slot) = slot_of[usize::from(a)].take()
            {
                freed.push((slot, sizes[usize::from(a)]));
            }
        }
        // A function may write over an operand whose elements are as wide as its result's.
        let own = freed.iter().position(|&(_, s)| s == size);
        let slot = match own {
            Some(i) => freed.swap_remove(i).0,
            None => free.pop().unwrap_or_else(|| {
                count += 1;
                count - 1
            }),
        };
        free.extend(freed.into_iter().map(|(slot, _)| slot));
        slot_of[usize::from(instr.out)] = Some(slot);
        instr.slot = slot;
    }
    usize::from(count)
}

/// The bits of a constant of one element.
fn scalar_bits(c: &ConstData) -> u64 {
    let mut bits = [0u8; 8];
    let bytes = c.bytes();
    let n = bytes.len().min(8);
    bits[..n].copy_from_slice(&bytes[..n]);
    u64::from_le_bytes(bits)
}

/// The one instruction that an op is, beside those that widen its operands and round its result.
pub(crate) enum Main {
    /// It reads its operands as they are in memory.
    OfBytes(Code),
    /// It reads them in their registers.
    OfRegisters(Code),
    /// There is none: the register holds the result already.
    Nothing,
}

/// The main instruction of an op: all that may fail about the program of one op.
pub(crate) fn main_of(op: &Op, args: &[DType], result: DType) -> Result<Main, String> {
    match op {
        Op::Quantize { .. } => return Ok(Main::OfBytes(Code::Quantise(result, args.len() == 3))),
        Op::Dequantize { .. } => return Ok(Main::OfBytes(Code::Dequantise(args[0], args.len() == 3))),
        _ => {}
    }
    if let Some(dtype) = args.iter().chain([&result]).find(|&&dtype| !instr::has_register(dtype)) {
        return Err(format!("elementwise kernels do not compute in {dtype}"));
    }
    let reg = instr::register(args[0]);
    let code = match op {
        Op::Activation(f) => instr::activation(*f, reg),
        Op::Binary(f) => instr::binary(*f, reg),
        Op::Compare(f) => instr::compare(*f, reg),
        Op::Predicate(f) => instr::predicate(*f, reg),
        Op::Where => Some(Code::Select(instr::register(result))),
        Op::Cast { .. } => {
            let code = instr::double_to_short(args[0], result)
                .or_else(|| instr::convert(reg, instr::register(result)));
            return Ok(code.map_or(Main::Nothing, Main::OfRegisters));
        }
        _ => None,
    };
    code.map(Main::OfRegisters)
        .ok_or_else(|| format!("there is no elementwise code for {op:?} of {}", args[0]))
}

/// The program of a single op.
pub(crate) fn of_node(op: &Op, inputs: &[DType], result: DType) -> Result<TileProgram, String> {
    let mut b = Builder::default();
    let mut args = Vec::with_capacity(inputs.len());
    for (i, &dtype) in inputs.iter().enumerate() {
        let id = b.value(dtype.size_bytes())?;
        b.inputs.push(Input { kind: InputKind::Step(i), dtype, single: false, last_use: 0 });
        args.push(Typed { id, dtype, widened: false });
    }
    let out = b.op(op, &args, result)?;
    b.finish(&[out])
}

/// Whether a body's constant can be an immediate.
fn is_immediate(node: &Node) -> bool {
    matches!(&node.op, Op::Constant { data } if data.num_elements() == 1)
}

/// The program of a region's elementwise nodes behind `anchor`, if it has one.
pub(crate) fn of_body(body: &Graph, anchor: Option<NodeId>) -> Result<TileProgram, String> {
    let mut b = Builder::default();
    // What makes the anchor's rows is no part of it.
    let producer = anchor.and_then(|anchor| body.node(anchor).inputs.first().copied());
    let pointwise = |n: &&Node| n.op.is_pointwise() && Some(n.id) != producer;
    let mut values: Vec<Option<Typed>> = vec![None; body.len()];
    let mut next_input = 0;
    // Inputs first: their values are numbered by position.
    let wanted = used_by_elementwise(body, anchor, pointwise);
    for node in body.nodes() {
        let kind = match &node.op {
            Op::Input { .. } => {
                next_input += 1;
                InputKind::Step(next_input - 1)
            }
            _ if anchor == Some(node.id) => InputKind::Anchor,
            _ => continue,
        };
        if !wanted[node.id.index()] {
            continue;
        }
        let dtype = node.shape.dtype();
        let id = b.value(dtype.size_bytes())?;
        let single = node.shape.dims().iter().all(|&d| d == Dim::Static(1));
        b.inputs.push(Input { kind, dtype, single, last_use: 0 });
        values[node.id.index()] = Some(Typed { id, dtype, widened: false });
    }
    for node in body.nodes().iter().filter(|n| matches!(n.op, Op::Constant { .. }) && wanted[n.id.index()]) {
        let Op::Constant { data } = &node.op else { continue };
        if !is_immediate(node) {
            return Err(format!("a region's constants are single elements, not {}", node.shape));
        }
        let dtype = data.dtype();
        let id = b.value(dtype.size_bytes())?;
        b.constants.push((data.as_ref().clone(), id));
        values[node.id.index()] = Some(Typed { id, dtype, widened: false });
    }
    let functions = Functions::find(body, pointwise);
    for node in body.nodes().iter().filter(pointwise).filter(|n| !functions.has_within(n.id)) {
        if let Some((x, f)) = functions.of(node.id)
            && let Some(x) = values[x.index()]
        {
            values[node.id.index()] = Some(b.function(f, x)?);
            continue;
        }
        let args: Option<Vec<Typed>> = node.inputs.iter().map(|id| values[id.index()]).collect();
        let args = args.ok_or("a region's ops use each other in a way that no kernel has")?;
        values[node.id.index()] = Some(b.op(&node.op, &args, node.shape.dtype())?);
    }
    let outputs: Option<Vec<Typed>> = body.outputs.iter().map(|id| values[id.index()]).collect();
    b.finish(&outputs.ok_or("a region's output is none of its elementwise values")?)
}

/// Which nodes an elementwise node or an output uses.
fn used_by_elementwise(
    body: &Graph,
    anchor: Option<NodeId>,
    pointwise: impl Fn(&&Node) -> bool,
) -> Vec<bool> {
    let mut used = vec![false; body.len()];
    for node in body.nodes().iter().filter(pointwise) {
        node.inputs.iter().for_each(|id| used[id.index()] = true);
    }
    body.outputs.iter().for_each(|id| used[id.index()] = true);
    if let Some(anchor) = anchor {
        used[anchor.index()] = true;
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlx_ir::Shape;
    use rlx_ir::op::{Activation, BinaryOp};

    /// A normalisation by channels and a rectifier: the scale and the shift are read by steps of 0, and nothing is written between the three.
    #[test]
    fn ops_that_are_each_applied_to_the_one_before_are_one_instruction() {
        let mut g = Graph::new("norm");
        let x = g.input("x", Shape::new(&[2, 8, 5], DType::F32));
        let [scale, shift] = ["scale", "shift"].map(|name| g.input(name, Shape::new(&[8, 1], DType::F32)));
        let y = g.try_add(Op::Binary(BinaryOp::Mul), &[x, scale]).unwrap();
        let y = g.try_add(Op::Binary(BinaryOp::Add), &[y, shift]).unwrap();
        let last = g.try_add(Op::Activation(Activation::Relu), &[y]).unwrap();
        g.set_outputs(vec![last]);
        let program = of_body(&g, None).unwrap();
        assert!(matches!(&program.instrs[..], [Instr { code: Code::Chain(_), arity: 3, .. }]), "{program:?}");
        // What is a result itself is written, so the chain begins behind it.
        g.set_outputs(vec![last, y]);
        assert_eq!(of_body(&g, None).unwrap().instrs.len(), 2);
    }
}
