//! Recurrent layers: at each step one matmul of all rows' states with the packed recurrent weights, then the gates
//! row by row.
//!
//! A step's matmul is split into tasks as any matmul is, and each row of gates is one task: bits do not depend on
//! the threads. The input was multiplied before, for all steps at once; its rows are added as the matmul is
//! written. Of 16-bit floats, states, sums and gates are f32, states are rounded for the matmul, and sums begin with the input's rows. Large weights are read forwards and backwards in turns, so that a step begins with what the last one left in the cache.

use rlx_ir::op::{GateFunction, PackFormat, RecurrentCell};
use rlx_ir::ops::nn::recurrent::Operands;
use rlx_ir::{DType, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::elementwise::halves::{Conversion, convert, widen_strided};
use super::matmul::{is_packed, packed_bytes};
use super::{
    BindCx, CompileCx, Needs, RunCx, Shared, StepKernel, WORTH_NANOS, mismatch, no_kernel, packed_type,
    unbound,
};
use crate::alloc::ALIGN;
use crate::formats;
use crate::gemm::{self, Ahead, BinaryOp, Combine, Epilogue, Gemm, Packed, Strided, TileSizes, Wide};
use crate::isa::Isa;
use crate::layout::{At, Bound};
use crate::math::{Function, Unary};
use crate::rows::{GateRow, Gates, gate_row};

/// Multiply-adds of f32 in a nanosecond, roughly.
const F32_PER_NANO: f64 = 40.0;
/// Elements of weights that are read forwards and backwards in turns: fewer stay in any second-level cache.
const LARGE: usize = 1 << 17;
/// Nanoseconds for one element of a gate, roughly.
const NANOS_PER_GATE: f64 = 0.6;

/// Layers of f32, f16 and bf16; others decompose.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let known = node.inputs.first().is_some_and(|&x| is_packed(graph.shape(x).dtype()));
    let Op::Recurrent { functions, .. } = &node.op else { return Claim::No("it is not recurrent".into()) };
    match functions.iter().find(|&&f| unary(f).is_none()) {
        _ if !known => Claim::No(format!("there is no recurrent layer of {}", node.shape.dtype())),
        Some(f) => Claim::No(format!("there is no gate function {f:?}")),
        None => Claim::Native,
    }
}

/// The weights are wanted in panels.
pub(crate) fn pack_format(node: &Node, input: usize, graph: &Graph) -> Option<PackFormat> {
    let packs = reads_packed(&node.op, input) && claim(node, graph).is_native();
    packs.then_some(formats::MATMUL_RHS)
}

/// Whether an input of `op` is weights.
pub(crate) fn reads_packed(op: &Op, input: usize) -> bool {
    match op {
        Op::Recurrent { cell, .. } => input == 1 || (*cell == RecurrentCell::Gru && input == 2),
        _ => false,
    }
}

fn unary(f: GateFunction) -> Option<Unary> {
    Some(match f {
        GateFunction::Sigmoid => Unary::Function(Function::Sigmoid),
        GateFunction::Tanh => Unary::Function(Function::Tanh),
        GateFunction::Relu => Unary::Relu,
        GateFunction::Softplus => Unary::Function(Function::Softplus),
        GateFunction::LeakyRelu { alpha } => Unary::LeakyRelu { alpha },
        GateFunction::HardSigmoid { alpha, beta } => Unary::HardSigmoid { alpha, beta },
        _ => return None,
    })
}

/// The kernel of a recurrent layer.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let op = &cx.node().op;
    let Op::Recurrent { cell, functions, clip, coupled, reverse, peepholes, lengths } = op else {
        return Err(no_kernel(op, "it is not recurrent"));
    };
    let mut all = [Unary::Function(Function::Tanh); 3];
    for (to, &f) in all.iter_mut().zip(functions) {
        *to = unary(f).ok_or_else(|| no_kernel(op, "it has a gate function without code"))?;
    }
    Ok(Box::new(Recurrent {
        dtype: cx.step.inputs[0].dtype,
        cell: *cell,
        functions: all,
        clip: *clip,
        coupled: *coupled,
        reverse: *reverse,
        operands: Operands::new(*cell, *peepholes, *lengths),
        plan: None,
    }))
}

#[derive(Debug, Clone)]
struct Recurrent {
    dtype: DType,
    cell: RecurrentCell,
    functions: [Unary; 3],
    clip: Option<f32>,
    coupled: bool,
    reverse: bool,
    operands: Operands,
    plan: Option<Plan>,
}

/// A matrix that states are multiplied by.
#[derive(Debug, Clone, Copy)]
struct Weights {
    at: At,
    strides: [isize; 2],
    columns: usize,
    packed: bool,
    /// Where it is packed in the scratch if it is not.
    scratch: usize,
}

/// The numbers of a bound layer.
#[derive(Debug, Clone, Copy)]
struct Plan {
    steps: usize,
    batch: usize,
    hidden: usize,
    x: At,
    /// From one step, and from one row, to the next.
    x_strides: [isize; 2],
    weights: Weights,
    candidate: Option<Weights>,
    bias: Option<At>,
    peepholes: Option<At>,
    lengths: Option<At>,
    first: [Option<Bound>; 2],
    y: At,
    last: [Option<At>; 2],
    /// Byte offsets of gates, state, cell and candidate in the scratch.
    scratch: [usize; 4],
    /// Of 16-bit floats: those of states as they are multiplied, and of the bias, peepholes and a step's input as f32.
    short: [usize; 4],
    worth_threads: bool,
    worth_gates: bool,
}

/// Gives out scratch.
#[derive(Default)]
struct Room(usize);

impl Room {
    fn take(&mut self, bytes: usize) -> usize {
        let at = self.0;
        self.0 = (at + bytes).next_multiple_of(ALIGN);
        at
    }
}

impl Recurrent {
    fn weights(&self, cx: &BindCx<'_>, input: usize, want: [usize; 2], room: &mut Room) -> Result<Weights> {
        let bound = &cx.inputs[input];
        let (&[rows, columns], &[a, b]) = (bound.layout.dims(), bound.layout.strides()) else {
            return Err(mismatch("recurrent weights are a matrix"));
        };
        if [rows, columns] != want {
            return Err(mismatch(format!("weights {:?} where {want:?} are wanted", bound.dims())));
        }
        let bytes = packed_bytes(self.dtype, rows, columns)
            .ok_or_else(|| mismatch(format!("weights of {rows}×{columns} are too large to pack")))?;
        let packed = cx.is_packed(input, formats::MATMUL_RHS)?;
        let scratch = if packed { 0 } else { room.take(bytes) };
        Ok(Weights { at: bound.at, strides: [a, b], columns, packed, scratch })
    }

    fn plan(&self, cx: &BindCx<'_>) -> Result<(Plan, Needs)> {
        let (at, x) = (&self.operands, &cx.inputs[0]);
        let shape_mismatch = || mismatch(format!("a recurrent layer of {:?}", x.dims()));
        let (&[steps, batch, wide], &[by_step, by_row, _]) = (x.layout.dims(), x.layout.strides()) else {
            return Err(shape_mismatch());
        };
        let first = &cx.inputs[at.h];
        let hidden = *first.dims().last().ok_or_else(shape_mismatch)?;
        let state = [batch, hidden];
        let states = [Some(at.h), at.c].map(|i| i.map(|i| cx.inputs[i]));
        if wide != hidden * self.cell.gates() || states.iter().flatten().any(|s| s.dims() != state) {
            return Err(shape_mismatch());
        }
        let mut room = Room::default();
        let columns = hidden * self.cell.gates_of_state();
        let weights = self.weights(cx, 1, [hidden, columns], &mut room)?;
        let candidate = match at.candidate_weights {
            Some(i) => Some(self.weights(cx, i, [hidden; 2], &mut room)?),
            None => None,
        };
        let vector = |i: Option<usize>, n: usize| match i.map(|i| &cx.inputs[i]) {
            Some(v) if v.dims() != [n] || !v.layout.is_dense() => Err(shape_mismatch()),
            v => Ok(v.map(|v| v.at)),
        };
        let rows = batch * hidden * 4;
        let scratch = [
            room.take(rows * self.cell.gates_of_state()),
            room.take(rows),
            room.take(if at.c.is_some() { rows } else { 0 }),
            room.take(if candidate.is_some() { rows } else { 0 }),
        ];
        let linear = self.cell == RecurrentCell::GruLinear;
        let short = match self.dtype {
            DType::F32 => [0; 4],
            _ => [
                room.take(batch * hidden * self.dtype.size_bytes()),
                room.take(if at.candidate_bias.is_some() { hidden * 4 } else { 0 }),
                room.take(if at.peepholes.is_some() { 3 * hidden * 4 } else { 0 }),
                room.take(if linear { batch * wide * 4 } else { 0 }),
            ],
        };
        let product = (batch * hidden * weights.columns) as f64 / F32_PER_NANO;
        let gates = (batch * wide) as f64 * NANOS_PER_GATE;
        let plan = Plan {
            steps,
            batch,
            hidden,
            x: x.at,
            x_strides: [by_step, by_row],
            weights,
            candidate,
            bias: vector(at.candidate_bias, hidden)?,
            peepholes: vector(at.peepholes, 3 * hidden)?,
            lengths: vector(at.lengths, batch)?,
            first: states,
            y: cx.outputs[0].at,
            last: [cx.outputs.get(1), cx.outputs.get(2)].map(|o| o.map(|o| o.at)),
            scratch,
            short,
            worth_threads: product > WORTH_NANOS,
            worth_gates: gates > WORTH_NANOS && batch > 1,
        };
        let nanos = (product + gates) * steps as f64;
        Ok((plan, Needs { thread_scratch: 0, shared_scratch: room.0, nanos }))
    }
}

impl StepKernel for Recurrent {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (plan, needs) = self.plan(cx)?;
        self.plan = Some(plan);
        Ok(needs)
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = &self.plan else { return Err(unbound()) };
        if plan.batch * plan.hidden == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise; the type is that of the operands.
        packed_type!(self.dtype, T => unsafe { self.run_as::<T>(cx, plan) }, _ => return Err(unbound()));
        Ok(())
    }
}

/// The packed matrix, packed now if it was not before.
///
/// # Safety
/// As [`StepKernel::run`], for weights of `T`.
unsafe fn pack<T: Packed>(cx: &mut RunCx<'_, '_>, plan: &Plan, weights: &Weights) -> Shared<f32> {
    if weights.packed {
        return cx.shared(weights.at);
    }
    let (from, to) = (cx.shared::<T>(weights.at), scratch(cx, weights.scratch));
    let ([a, b], k, n) = (weights.strides, plan.hidden, weights.columns);
    cx.parallel(plan.worth_threads, gemm::panels(n), &|range, _| {
        // SAFETY: the caller's promise; each panel is written once.
        unsafe { gemm::pack(from.get().cast_const(), a, b, k, n, to.get(), range) }
    });
    to
}

/// Writes `n` numbers as `dtype`.
///
/// # Safety
/// `from` must be readable and `to` writable for them, and they must be apart.
unsafe fn write(isa: Isa, dtype: DType, from: *const f32, to: *mut u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            DType::F32 => std::ptr::copy_nonoverlapping(from, to.cast(), n),
            _ => convert(isa, Conversion::Narrow, dtype, from.cast(), to, n),
        }
    }
}

fn scratch(cx: &RunCx<'_, '_>, offset: usize) -> Shared<f32> {
    Shared::new(cx.shared_scratch.wrapping_add(offset).cast())
}

impl Recurrent {
    /// Runs the layer.
    ///
    /// # Safety
    /// As [`StepKernel::run`]; `T` is the type of the operands.
    unsafe fn run_as<T: Packed>(&self, cx: &mut RunCx<'_, '_>, plan: &Plan) {
        // SAFETY: the caller's promise; scratch was asked for when bound.
        unsafe {
            let weights = pack::<T>(cx, plan, &plan.weights);
            let candidate = plan.candidate.map(|w| pack::<T>(cx, plan, &w));
            for (at, k, n) in [(plan.bias, 1, plan.hidden), (plan.peepholes, 2, 3 * plan.hidden)] {
                if let (Some(at), true) = (at, self.dtype != DType::F32) {
                    let to = scratch(cx, plan.short[k]).get();
                    widen_strided(cx.isa, self.dtype, cx.ptr::<u8>(at), 1, to, n);
                }
            }
            self.states::<T>(cx, plan, true);
            for i in 0..plan.steps {
                let t = if self.reverse { plan.steps - 1 - i } else { i };
                self.step::<T>(cx, plan, t, weights, candidate, i % 2 == 1);
            }
            self.states::<T>(cx, plan, false);
        }
    }

    /// Copies the first states into the scratch, or the last ones out of it.
    ///
    /// # Safety
    /// As [`Recurrent::run_as`].
    unsafe fn states<T: Packed>(&self, cx: &RunCx<'_, '_>, plan: &Plan, first: bool) {
        let elements = plan.batch * plan.hidden;
        for k in 0..2 {
            let own = scratch(cx, plan.scratch[1 + k]).get();
            let (from, to) = (plan.first[k], plan.last[k]);
            // SAFETY: the caller's promise; results are dense.
            unsafe {
                match (from, to) {
                    (Some(from), _) if first => {
                        let ptr = cx.ptr::<T>(from.at);
                        (0..elements)
                            .for_each(|i| *own.add(i) = (*ptr.wrapping_offset(from.layout.at(i))).widen());
                    }
                    (_, Some(to)) if !first => write(cx.isa, self.dtype, own, cx.ptr(to), elements),
                    _ => {}
                }
            }
        }
    }

    /// All rows of one step, whose weights may be read `backward`.
    ///
    /// # Safety
    /// As [`Recurrent::run_as`]; `t` is a step of the layer.
    unsafe fn step<T: Packed>(
        &self,
        cx: &mut RunCx<'_, '_>,
        plan: &Plan,
        t: usize,
        weights: Shared<f32>,
        candidate: Option<Shared<f32>>,
        backward: bool,
    ) {
        let x = cx.ptr::<T>(plan.x).wrapping_offset(t as isize * plan.x_strides[0]);
        let [sums, h, _, reset] = plan.scratch.map(|offset| scratch(cx, offset));
        let gates = match self.cell {
            RecurrentCell::Rnn => Gates::Plain,
            RecurrentCell::Gru => Gates::Reset,
            RecurrentCell::GruLinear => Gates::Linear,
            _ => Gates::Lstm,
        };
        // The matmul of a linear GRU stays apart from the input until it was reset.
        let added = (gates != Gates::Linear).then_some(x);
        // SAFETY: the caller's promise, here and below.
        unsafe {
            self.product::<T>(cx, plan, [h, weights, sums], plan.weights.columns, added, backward);
            self.rows::<T>(cx, plan, t, x, gates);
            if let (Some(weights), Some(_)) = (candidate, plan.candidate) {
                // The reset state is read while its matmul is written, so the matmul goes to a gate that is
                // no longer needed: that of the reset itself.
                let columns = plan.hidden;
                let to = Shared::new(sums.get().wrapping_add(columns));
                let x = x.wrapping_add(2 * columns);
                self.product::<T>(cx, plan, [reset, weights, to], columns, Some(x), backward);
                self.rows::<T>(cx, plan, t, x, Gates::Mixed);
            }
        }
    }

    /// `to = from · weights + x`; rows of `to` are as far apart as those of the gates.
    ///
    /// # Safety
    /// As [`Recurrent::run_as`], for the operands, which must not overlap.
    unsafe fn product<T: Packed>(
        &self,
        cx: &mut RunCx<'_, '_>,
        plan: &Plan,
        [from, weights, to]: [Shared<f32>; 3],
        columns: usize,
        x: Option<*mut T>,
        backward: bool,
    ) {
        let (row_stride, to_stride, k) =
            (plan.x_strides[1].unsigned_abs(), plan.weights.columns, plan.hidden);
        let (mut rows, mut wide, mut epilogue) = (from.get().cast::<T>(), None, Epilogue::NONE);
        if const { T::GROUP == 1 } {
            // Elements of a word are f32.
            epilogue.combine =
                x.map(|x| Combine { ptr: x.cast_const(), row_stride, op: BinaryOp::Add, after: false });
        } else {
            rows = scratch(cx, plan.short[0]).get().cast();
            wide = Some(Wide { sums: to.get(), stride: to_stride, add: x.is_some() });
            // SAFETY: the caller's promise; the scratch has room for all states.
            unsafe {
                write(cx.isa, self.dtype, from.get().cast_const(), rows.cast(), plan.batch * k);
                if let Some(x) = x {
                    for row in 0..plan.batch {
                        let x = x.wrapping_add(row * row_stride).cast::<u8>().cast_const();
                        let to = to.get().wrapping_add(row * to_stride);
                        widen_strided(cx.isa, self.dtype, x, 1, to, columns);
                    }
                }
            }
        }
        let g = Gemm {
            m: plan.batch,
            n: columns,
            k,
            rows: Strided { ptr: rows.cast_const(), row_stride: k as isize },
            b: weights.get().cast_const(),
            c: to.get().cast::<T>(),
            c_stride: to_stride,
            epilogue,
            tile_sizes: TileSizes::DEFAULT,
            ahead: Ahead::Panels,
            wide,
        };
        let (isa, backward) = (cx.isa, backward && g.k * g.n > LARGE);
        cx.parallel(plan.worth_threads, g.tasks(isa), &|range, _| {
            // SAFETY: the caller's promise; states, gates and weights do not overlap, nor do ranges.
            unsafe { if backward { g.run_backward(isa, range) } else { g.run(isa, range) } }
        });
    }

    /// The gates of all rows that still run.
    ///
    /// # Safety
    /// As [`Recurrent::run_as`]; the sums must be there.
    unsafe fn rows<T: Packed>(&self, cx: &mut RunCx<'_, '_>, plan: &Plan, t: usize, x: *mut T, gates: Gates) {
        let (isa, n, dtype) = (cx.isa, plan.hidden, self.dtype);
        let [sums, h, c, reset] = plan.scratch.map(|offset| scratch(cx, offset));
        let (x, y) = (Shared::new(x), Shared::new(cx.ptr::<T>(plan.y).wrapping_add(t * plan.batch * n)));
        let is_wide = const { T::GROUP == 1 };
        let vector = |at: Option<At>, k: usize| {
            at.map(|at| if is_wide { cx.shared::<f32>(at) } else { scratch(cx, plan.short[k]) })
        };
        let (bias, peepholes, inputs) =
            (vector(plan.bias, 1), vector(plan.peepholes, 2), scratch(cx, plan.short[3]));
        let lengths = plan.lengths.map(|at| cx.shared::<i32>(at));
        cx.parallel(plan.worth_gates, plan.batch, &|range, _| {
            for row in range {
                let y = y.get().wrapping_add(row * n);
                let state = |of: Shared<f32>| of.get().wrapping_add(row * n);
                let sums = sums.get().wrapping_add(row * plan.weights.columns);
                // SAFETY: the caller's promise; rows are disjoint.
                unsafe {
                    if lengths.is_some_and(|l| t as i64 >= i64::from(*l.get().add(row))) {
                        std::ptr::write_bytes(y, 0, n);
                        continue;
                    }
                    let mut x = x.get().wrapping_offset(row as isize * plan.x_strides[1]).cast::<f32>();
                    if gates == Gates::Linear && !is_wide {
                        let to = inputs.get().wrapping_add(row * 3 * n);
                        widen_strided(isa, dtype, x.cast::<u8>().cast_const(), 1, to, 3 * n);
                        x = to;
                    }
                    gate_row(
                        isa,
                        &GateRow {
                            gates,
                            functions: self.functions,
                            clip: self.clip,
                            coupled: self.coupled,
                            n,
                            sums,
                            x,
                            bias: bias.map_or(std::ptr::null(), |b| b.get().cast_const()),
                            // The matmul of the reset state is in the place of the reset gate.
                            candidate: if gates == Gates::Reset {
                                state(reset)
                            } else {
                                sums.wrapping_add(n)
                            },
                            peepholes: peepholes.map(|p| p.get().cast_const()),
                            h: state(h),
                            c: state(c),
                        },
                    );
                    // A state that was reset is none of the layer's.
                    if gates != Gates::Reset {
                        write(isa, dtype, state(h).cast_const(), y.cast(), n);
                    }
                }
            }
        });
    }
}
