//! Compiled modules with damage that a file's hashes do not show: what an attacker writes, or a bug.

use std::sync::Arc;

use super::Gen;
use crate::dim::{Extent, SymRange};
use crate::dtype::DType;
use crate::lir::{BufferId, BufferKind, LirModule, Operand, Step, StepKind, View};
use crate::op::PackFormat;

/// Numbers at which sizes, offsets and strides overflow: alone, as bytes, multiplied or added.
const EDGES: [i64; 16] = [
    0,
    1,
    -1,
    2,
    -7,
    1 << 31,
    1 << 32,
    (1 << 59) - 1,
    1 << 60,
    (1 << 61) + 4,
    1 << 62,
    (1 << 62) + 1024,
    8719555307571303797,
    i64::MAX - 1,
    i64::MAX,
    i64::MIN,
];

/// `module` with one to three things changed that a device must not believe: extents, offsets, strides, element counts,
/// types, formats, ids, the order of steps, the memory plan.
///
/// Live ranges and symbols are left as they are: who needs a module that agrees with itself derives them again.
///
/// ```
/// use rlx_ir::testing::{Gen, damaged_module};
/// # use rlx_ir::{Graph, lir::LirModule};
/// let module = LirModule {
/// #     name: String::new(), graph: Graph::new("g"), rules: Graph::new("rules"), symbols: vec![], buffers: vec![], init: vec![], steps: vec![],
/// #     live_ranges: vec![], inputs: vec![], params: vec![], outputs: vec![],
///     plan: Some(Default::default()),
///     // …
/// };
/// assert_ne!(damaged_module(&module, &mut Gen::new(1)), module);
/// ```
pub fn damaged_module(module: &LirModule, g: &mut Gen) -> LirModule {
    let mut damaged = module.clone();
    let (wanted, mut changes) = (g.size(1..=3), 0);
    // Some changes change nothing; a module of nothing has a plan at least.
    for _ in 0..1000 {
        let before = damaged.clone();
        change(&mut damaged, g);
        changes += usize::from(damaged != before);
        if changes == wanted && damaged != *module {
            break;
        }
    }
    damaged
}

fn change(module: &mut LirModule, g: &mut Gen) {
    match g.size(0..=11) {
        0..=3 => {
            let extents = known_extents(module);
            if let Some(operand) = some_operand(module, g) {
                change_view(Arc::make_mut(&mut operand.view), &extents, g);
            }
        }
        4 => change_buffer(module, g),
        5 => {
            let buffers = module.buffers.len();
            if let Some(operand) = some_operand(module, g) {
                operand.buffer = BufferId(g.size(0..=buffers) as u32);
            }
        }
        6 => {
            if let Some(operand) = some_operand(module, g) {
                operand.dtype = g.pick(DType::ALL);
            }
        }
        7 => change_steps(module, g),
        8 => forge_copy(module, g),
        9 | 10 => change_plan(module, g),
        _ => {
            if let Some(&symbol) = module.symbols.first() {
                let range = SymRange::new(g.pick(&EDGES), g.pick(&EDGES));
                module.graph.set_symbol_range(symbol, range);
            }
        }
    }
}

/// The extents that occur, to be used in other places.
fn known_extents(module: &LirModule) -> Vec<Extent> {
    let operands = module.steps.iter().flat_map(|s| s.inputs.iter().chain(&s.outputs));
    let views = operands.map(|o| &o.view);
    views.flat_map(|v| v.dims.iter().chain(&*v.strides).copied()).take(100).collect()
}

/// A number, or an expression, that something else may be.
fn some_extent(old: Extent, known: &[Extent], g: &mut Gen) -> Extent {
    let edge = g.pick(&EDGES);
    let other = if known.is_empty() { old } else { g.pick(known) };
    match g.size(0..=8) {
        0..=2 => Extent::Const(edge),
        3 => other,
        4 => old + g.pick(&[-1, 1, edge]),
        5 => old * g.pick(&[-1, 2, edge]),
        6 => old * other + other,
        7 => old.floor_div(other + g.pick(&[-3, -1, edge])),
        _ => (other - edge).modulo(old - g.pick(&[1, 3])),
    }
}

fn change_view(view: &mut View, known: &[Extent], g: &mut Gen) {
    let (dims, strides) = (Arc::make_mut(&mut view.dims), Arc::make_mut(&mut view.strides));
    match g.size(0..=5) {
        0 => view.offset = some_extent(view.offset, known, g),
        // What multiplies to a small number, or adds up to one, when it wraps around.
        1 => dims.iter_mut().chain(strides).for_each(|e| *e = some_extent(*e, known, g)),
        2 if !dims.is_empty() => view.dims = dims[..dims.len() - 1].into(),
        rest => {
            let list = if rest % 2 == 0 { dims } else { strides };
            if !list.is_empty() {
                let at = g.size(0..=list.len() - 1);
                list[at] = some_extent(list[at], known, g);
            }
        }
    }
}

/// Any operand: of a step, or of a value at the border.
fn some_operand<'m>(module: &'m mut LirModule, g: &mut Gen) -> Option<&'m mut Operand> {
    let steps = module.init.iter_mut().chain(&mut module.steps);
    let slots = module.inputs.iter_mut().chain(&mut module.params).chain(&mut module.outputs);
    let operands = steps.flat_map(|s| s.inputs.iter_mut().chain(&mut s.outputs));
    let mut all: Vec<&mut Operand> = operands.chain(slots.map(|s| &mut s.operand)).collect();
    if all.is_empty() {
        return None;
    }
    let at = g.size(0..=all.len() - 1);
    Some(all.swap_remove(at))
}

fn change_buffer(module: &mut LirModule, g: &mut Gen) {
    let known = known_extents(module);
    let kinds = [BufferKind::Arena, BufferKind::Prepared, BufferKind::Input(0), BufferKind::Param(0)];
    let kind = kinds[g.size(0..=3)].clone();
    let count = module.buffers.len();
    if count == 0 {
        return;
    }
    let mut formats: Vec<PackFormat> = module.buffers.iter().filter_map(|buffer| buffer.format).collect();
    formats.push(PackFormat::new("Unknown"));
    let buffer = &mut module.buffers[g.size(0..=count - 1)];
    match g.size(0..=5) {
        0 => buffer.kind = kind,
        1 => buffer.dtype = g.pick(DType::ALL),
        2 => buffer.format = if g.chance(0.5) { None } else { Some(g.pick(&formats)) },
        _ => buffer.elements = some_extent(buffer.elements, &known, g),
    }
}

fn change_steps(module: &mut LirModule, g: &mut Gen) {
    let init = g.chance(0.3) && !module.init.is_empty();
    let nodes = module.graph.len();
    let steps = if init { &mut module.init } else { &mut module.steps };
    if steps.is_empty() {
        return;
    }
    let (at, other) = (g.size(0..=steps.len() - 1), g.size(0..=steps.len() - 1));
    match g.size(0..=5) {
        0 => steps.swap(at, other),
        1 => drop(steps.remove(at)),
        2 => steps[at].node = module.graph.nodes()[g.size(0..=nodes - 1)].id,
        3 => drop(steps[at].inputs.pop()),
        4 => steps[at].kind = StepKind::Copy,
        _ => {
            let from = steps[other].clone();
            steps[at] = Step { node: from.node, kind: from.kind, ..steps[at].clone() };
        }
    }
}

/// A copy whose dimensions multiply to a small number, and whose places add up to one, when they wrap around.
fn forge_copy(module: &mut LirModule, g: &mut Gen) {
    let Some(last) = module.steps.last() else { return };
    let (Some(to), node) = (last.outputs.first().cloned(), last.node) else { return };
    let from = module.inputs.first().map_or(to.clone(), |slot| slot.operand.clone());
    let rank = g.size(1..=8);
    let list = |g: &mut Gen| (0..rank).map(|_| Extent::Const(g.pick(&EDGES))).collect::<Arc<[Extent]>>();
    let dims = list(g);
    let view = |g: &mut Gen| {
        Arc::new(View { offset: Extent::Const(g.pick(&EDGES)), dims: dims.clone(), strides: list(g) })
    };
    let (read, written) = (view(g), view(g));
    let (inputs, outputs) = (vec![Operand { view: read, ..from }], vec![Operand { view: written, ..to }]);
    module.steps.push(Step { kind: StepKind::Copy, inputs, outputs, node });
}

fn change_plan(module: &mut LirModule, g: &mut Gen) {
    let sizes = [0, 1, 63, 64, 1 << 20, 1 << 40, usize::MAX / 2 + 1, usize::MAX - 63, usize::MAX];
    let Some(plan) = &mut module.plan else { return };
    let size = g.pick(&sizes);
    let at = |len: usize, g: &mut Gen| if len == 0 { None } else { Some(g.size(0..=len - 1)) };
    match g.size(0..=7) {
        0 => plan.arena_bytes = size,
        1 => plan.pools.push(size),
        2 => plan.alignment = size,
        3 => plan.largest_live_set = size,
        4 => {
            if let Some(at) = at(plan.pools.len(), g) {
                (plan.arena_bytes, plan.pools[at]) =
                    (plan.arena_bytes.wrapping_sub(plan.pools[at]).wrapping_add(size), size);
            }
        }
        5 => {
            if let Some(at) = at(plan.pool_of.len(), g) {
                plan.pool_of[at] = g.pick(&[0, 1, 2, u32::MAX]);
            }
        }
        6 => {
            if let Some(&symbol) = module.symbols.first() {
                plan.bounds.set(symbol, size);
            }
        }
        _ => {
            if let Some(at) = at(plan.offsets.len(), g) {
                plan.offsets[at] = if g.chance(0.2) { None } else { Some(size) };
            }
        }
    }
}

/// Bytes of a file with a change in a random place, of four kinds in turn: cut off, with another bit, with another number, with a byte too many.
pub fn damaged_bytes(bytes: &[u8], round: usize, g: &mut Gen) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    let place = g.size(0..=bytes.len() - 1);
    match round % 4 {
        0 => changed.truncate(place),
        1 => changed[place] ^= 1 << g.size(0..=7),
        2 => changed[place] = changed[place].wrapping_add(1),
        _ => changed.insert(place, g.size(0..=255) as u8),
    }
    changed
}
