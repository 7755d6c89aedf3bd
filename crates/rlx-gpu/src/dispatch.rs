//! From launches to a run: what every device that dispatches generated kernels keeps of a module's steps.
//!
//! A device compiles each kernel to a code object of its own type `C`. [`prepare`] makes a step's [`Dispatches`] of them,
//! [`Bound`] puts the numbers of a run's dimensions into a list of steps (uniforms, workgroups), [`ConstantLayout`] says where
//! constants lie, and [`fault`] reads what a kernel reported. What is left to a device is memory, the binding of buffers, and
//! submission.
//!
//! ```text
//! Launches ──prepare──▶ Dispatches (one for each step) ──Bound::bind──▶ uniforms and grids ──device──▶ commands
//! ```

use std::ops::Range;
use std::sync::Arc;

use rlx_backend::executor::Step;
use rlx_backend::extents::{Ex, ExtentTable, Values, ViewCheck};
use rlx_ir::lir::{BufferKind, LirModule, Step as LirStep};
use rlx_ir::{Error, ErrorKind, Extent, NodeId, Result};
use rlx_kernel::render::{self, Parameters};
use rlx_kernel::stored::{Launches, StepLaunches};
use rlx_kernel::{Arg, FewRows, Kernel, KernelTarget, UniformArg, grid};
use rlx_tile::Program;
use rlx_tile::schedule::{Bound as Operand, Tiling};

use crate::blas::{MatMul, StepMatMul};
use crate::few_rows;
use crate::tiles::{self, StepParts, StepTiles, TileLaunches};

/// One dispatch.
#[derive(Debug)]
pub struct Dispatch<C> {
    /// What the device compiled of the kernel.
    pub code: C,
    /// Invocations of a workgroup.
    pub workgroup: u32,
    /// Bytes of workgroup memory that the launch gives, besides what the code declares.
    pub dynamic_bytes: u32,
    /// The module's buffer behind each of the kernel's.
    pub buffers: Vec<usize>,
    /// Its uniforms.
    pub uniforms: Vec<Ex>,
    /// How many workgroups.
    pub groups: Ex,
    /// Whether it is bound to the fault record.
    pub can_fail: bool,
    /// Whether its code in CUDA C or HIP C has the uniforms as a parameter by value ([`Parameters::by_value`]). Tile programs have them in memory.
    pub by_value: bool,
    /// The program whose tensor maps it is given ([`Bindings::maps`](crate::Bindings::maps)), where it has any.
    pub mapped: Option<Arc<Program>>,
    /// What a fault of it is reported as: its place among the dispatches of its list.
    pub number: u32,
}

impl<C> Dispatch<C> {
    /// Bytes of its uniforms.
    pub fn uniform_bytes(&self) -> u64 {
        render::uniform_bytes(&vec![0; self.uniforms.len()], 0).len() as u64
    }

    /// Its uniforms for these values.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] for a size above 32 bits.
    pub fn uniform_values(&self, values: &Values<'_>) -> Result<Vec<u8>> {
        let number = |&e: &Ex| {
            let n = values.get(e);
            i32::try_from(n).map_err(|_| {
                Error::new(ErrorKind::OutOfMemory, format!("a size of {n}: kernels count with 32 bits"))
            })
        };
        let numbers = self.uniforms.iter().map(number).collect::<Result<Vec<i32>>>()?;
        Ok(render::uniform_bytes(&numbers, self.number))
    }
}

/// The dispatches of a step.
#[derive(Debug)]
pub struct Dispatches<C> {
    /// In order.
    pub list: Vec<Dispatch<C>>,
    views: Vec<ViewCheck>,
    /// The elements of the buffers it writes.
    outputs: Vec<Ex>,
    /// Where `list` has tile programs, or kernels for few rows, which of them do the step.
    choice: Option<Choice>,
    /// What a BLAS may do in place of `list`.
    pub(crate) matmul: Option<StepMatMul>,
}

/// What a run chooses its dispatches by, which are listed in this order.
#[derive(Debug)]
struct Choice {
    /// The step's usual kernels, all of them, where nothing else does it.
    kernels: usize,
    /// Tilings of which each does all of the step, and the rows and columns of the result.
    whole: Option<(Vec<Tiling>, (Ex, Ex))>,
    /// Dispatches of each of them: its program, and before it what makes its lists.
    of_whole: usize,
    /// Rows, the most that it is for, and the number of parts, of each two dispatches that may do the step in parts.
    parts: Vec<(Ex, Option<u32>, Ex)>,
    /// Rows, and the most that it is for, of each kernel for few rows.
    few: Vec<(Ex, i64)>,
    /// Whether what does all of the step and what does it in parts do some rows each.
    in_waves: bool,
    /// Dispatches from this number on are those of every run.
    always: usize,
}

impl Choice {
    fn new(kernels: usize, tiles: &StepTiles, table: &mut ExtentTable) -> Choice {
        let whole = tiles.whole.first().map(|(_, first)| {
            let tilings = tiles.whole.iter().map(|(_, launch)| launch.tiling).collect();
            (tilings, (table.add(first.size.0), table.add(first.size.1)))
        });
        let parts = tiles
            .parts
            .iter()
            .map(|StepParts { launch: of, .. }| (table.add(of.rows), of.most_rows, table.add(of.count)));
        let parts = parts.collect();
        let few = tiles.few.iter().map(|(_, of)| (table.add(of.rows), of.most_rows)).collect();
        let of_whole = 1 + usize::from(tiles.lists.is_some());
        let always = kernels + of_whole * tiles.whole.len() + 2 * tiles.parts.len() + tiles.few.len();
        Choice { kernels, whole, of_whole, parts, few, in_waves: tiles.in_waves, always }
    }

    /// The dispatches of which those of every run are no part that do the step for these values.
    fn of(&self, values: &Values<'_>) -> Range<usize> {
        let whole = self.whole.as_ref().map_or(0, |(tilings, _)| self.of_whole * tilings.len());
        let (first_part, first_few) = (self.kernels + whole, self.kernels + whole + 2 * self.parts.len());
        if let Some(at) = self.few.iter().position(|&(rows, most)| few_rows::takes(values.get(rows), most)) {
            return first_few + at..first_few + at + 1;
        }
        if self.in_waves {
            return self.kernels..first_few;
        }
        let takes = |&(rows, most, count): &_| tiles::takes_parts(values.get(rows), most, values.get(count));
        let in_parts = self.parts.iter().position(takes);
        match (&self.whole, in_parts) {
            (Some((tilings, (rows, cols))), None) => {
                let chosen = tiles::choose(tilings, values.get(*rows), values.get(*cols));
                let first = self.kernels + self.of_whole * chosen;
                first..first + self.of_whole
            }
            (None, None) if self.parts.is_empty() => 0..self.kernels,
            (_, at) => {
                let first = first_part + 2 * at.unwrap_or(0);
                first..first + 2
            }
        }
    }
}

impl<C> Dispatches<C> {
    /// Whether there is nothing to compute for these values, whatever the dimensions of an empty result multiply to.
    fn is_idle(&self, values: &Values<'_>) -> bool {
        self.outputs.iter().all(|&elements| values.get(elements) == 0)
    }
}

/// What a dispatch is made of.
struct Made<'l, C> {
    code: C,
    /// Invocations of a workgroup.
    workgroup: u32,
    dynamic_bytes: u32,
    can_fail: bool,
    by_value: bool,
    mapped: Option<Arc<Program>>,
    buffers: Vec<usize>,
    uniforms: &'l [UniformArg],
    groups: Extent,
}

/// The dispatches of a step by the launches of its kernels, its tile programs, or its kernels for few rows, of which a run does some. `codes` are those of the module; `number` counts the dispatches
/// of a list.
pub fn prepare<C: Clone>(
    step: &LirStep,
    lir: &LirModule,
    (launches, tiles): (&StepLaunches, Option<&StepTiles>),
    codes: &Codes<C>,
    number: &mut u32,
    table: &mut ExtentTable,
) -> Dispatches<C> {
    let tiles = tiles.filter(|tiles| !tiles.is_empty());
    let made = made(step, (launches, tiles), codes);
    // What is bound starts where the module's buffer does, so a base is the view's own offset.
    let uniform = |u: &UniformArg| match *u {
        UniformArg::Extent(e) | UniformArg::Base { offset: e, .. } => e,
    };
    let mut list = Vec::with_capacity(made.len());
    for Made { code, workgroup, dynamic_bytes, can_fail, by_value, mapped, buffers, uniforms, groups } in made
    {
        list.push(Dispatch {
            code,
            workgroup,
            dynamic_bytes,
            buffers,
            uniforms: uniforms.iter().map(|u| table.add(uniform(u))).collect(),
            groups: table.add(groups),
            can_fail,
            by_value,
            mapped,
            number: *number,
        });
        *number += 1;
    }
    let operands = step.inputs.iter().chain(&step.outputs);
    let views = operands.map(|o| ViewCheck::new(o, &lir.buffers[o.buffer.index()], table)).collect();
    let elements = step.outputs.iter().map(|o| table.add(lir.buffers[o.buffer.index()].elements));
    let outputs = elements.collect();
    let choice = tiles.map(|tiles| Choice::new(launches.len(), tiles, table));
    Dispatches { list, views, outputs, choice, matmul: None }
}

impl<'l, C> Made<'l, C> {
    fn of_kernel(
        code: C,
        kernel: &Kernel,
        buffers: Vec<usize>,
        uniforms: &'l [UniformArg],
        groups: Extent,
    ) -> Self {
        let (workgroup, can_fail) = (kernel.workgroup, kernel.can_fail());
        let by_value = Parameters::of(kernel).by_value();
        Made {
            code,
            workgroup,
            dynamic_bytes: 0,
            can_fail,
            by_value,
            mapped: None,
            buffers,
            uniforms,
            groups,
        }
    }

    fn of_program(
        code: C,
        program: &Arc<Program>,
        buffers: Vec<usize>,
        uniforms: &'l [UniformArg],
        groups: Extent,
    ) -> Self {
        let dynamic_bytes = u32::try_from(program.dynamic_bytes()).unwrap_or(u32::MAX);
        let workgroup = program.workgroup();
        let mapped = (!program.maps().is_empty()).then(|| Arc::clone(program));
        let [can_fail, by_value] = [false; 2];
        Made { code, workgroup, dynamic_bytes, can_fail, by_value, mapped, buffers, uniforms, groups }
    }
}

/// The dispatches of a step: kernels, tile programs that do all of it, what does it in parts, and kernels for few rows; then those of every run.
fn made<'l, C: Clone>(
    step: &LirStep,
    (launches, tiles): (&'l StepLaunches, Option<&'l StepTiles>),
    codes: &Codes<C>,
) -> Vec<Made<'l, C>> {
    let buffer = |arg: &Arg| match *arg {
        Arg::Input(i) => step.inputs[i].buffer.index(),
        Arg::Output(i) => step.outputs[i].buffer.index(),
    };
    let mut made = Vec::new();
    for (at, of) in launches {
        let buffers = of.bindings.iter().map(buffer).collect();
        made.push(Made::of_kernel(codes.kernels[*at].clone(), &of.kernel, buffers, &of.uniforms, of.groups));
    }
    let lists = tiles.and_then(|tiles| tiles.lists.as_ref());
    for (i, (at, of)) in tiles.map_or(&[][..], |tiles| &tiles.whole).iter().enumerate() {
        let bound = |bound: &Operand| match bound {
            Operand::Operand(arg) => buffer(arg),
            Operand::Scratch => codes.first_scratch + lists.map_or(0, |lists| lists.scratch),
        };
        if let Some((at, of)) = lists.and_then(|lists| lists.kernels.get(i)) {
            let (code, buffers) = (codes.joins[*at].clone(), of.bindings.iter().map(bound).collect());
            made.push(Made::of_kernel(code, &of.code, buffers, &of.uniforms, of.groups));
        }
        let buffers = of.bindings.iter().map(bound).collect();
        made.push(Made::of_program(codes.tiles[*at].clone(), &of.program, buffers, &of.uniforms, of.groups));
    }
    for StepParts { program, join, launch, scratch } in tiles.map_or(&[][..], |tiles| &tiles.parts) {
        let bound = |bound: &Operand| match bound {
            Operand::Operand(arg) => buffer(arg),
            Operand::Scratch => codes.first_scratch + scratch,
        };
        let (of, code) = (&launch.parts, codes.tiles[*program].clone());
        let buffers = of.bindings.iter().map(bound).collect();
        made.push(Made::of_program(code, &of.code, buffers, &of.uniforms, of.groups));
        let (of, code) = (&launch.join, codes.joins[*join].clone());
        let buffers = of.bindings.iter().map(bound).collect();
        made.push(Made::of_kernel(code, &of.code, buffers, &of.uniforms, of.groups));
    }
    for (at, FewRows { launch: of, .. }) in tiles.map_or(&[][..], |tiles| &tiles.few) {
        let buffers = of.bindings.iter().map(buffer).collect();
        made.push(Made::of_kernel(codes.joins[*at].clone(), &of.kernel, buffers, &of.uniforms, of.groups));
    }
    for (at, of) in tiles.map_or(&[][..], |tiles| &tiles.checks) {
        let operand = |bound: &Operand| match bound {
            Operand::Operand(arg) => buffer(arg),
            Operand::Scratch => codes.first_scratch,
        };
        let buffers = of.bindings.iter().map(operand).collect();
        made.push(Made::of_kernel(codes.joins[*at].clone(), &of.code, buffers, &of.uniforms, of.groups));
    }
    made
}

/// What a device compiled of a module.
#[derive(Debug)]
pub struct Codes<C> {
    /// Of its kernels, in order.
    pub kernels: Vec<C>,
    /// Of its tile programs.
    pub tiles: Vec<C>,
    /// Of the kernels that join parts, make or check lists or are for few rows.
    pub joins: Vec<C>,
    /// The buffer that is the first scratch memory.
    pub first_scratch: usize,
}

/// The error of number `rejected` of a module's kernels and, behind them, tile programs and what joins parts, with the first step that it is for.
pub fn rejected(
    (launches, tiles): (&Launches, &TileLaunches),
    lir: &LirModule,
    rejected: usize,
    error: Error,
    device: &str,
) -> Error {
    let steps = lir.init.iter().zip(&launches.init).chain(lir.steps.iter().zip(&launches.run));
    let has = |(_, launches): &(&LirStep, &StepLaunches)| launches.iter().any(|&(at, _)| at == rejected);
    let by_kernels = { steps }.find(has).map(|(step, _)| step);
    let by_tiles = || {
        let program = rejected.checked_sub(launches.kernels.len())?;
        let (init, at) = match program.checked_sub(tiles.programs.len()) {
            Some(join) => tiles.step_of_join(join)?,
            None => tiles.step_of(program)?,
        };
        Some(if init { &lir.init[at] } else { &lir.steps[at] })
    };
    match by_kernels.or_else(by_tiles) {
        Some(step) => lir.graph.locate(step.node, error).with_device(device),
        None => error,
    }
}

/// How many workgroups in two dimensions; `None` for none.
pub type Grid = Option<(u32, u32)>;

/// What a device allows of uniforms and workgroups.
#[derive(Debug, Clone, Copy)]
pub struct BoundLimits {
    /// Alignment of the uniforms of a dispatch, in bytes.
    pub align: u64,
    /// The most bytes of uniforms of a dispatch.
    pub most_bytes: u64,
    /// The most workgroups along one dimension.
    pub max_groups: u32,
    /// The most elements of a buffer.
    pub max_elements: usize,
}

/// Steps bound to the same dimensions: the uniforms of all their dispatches, one behind the other, and their workgroups.
#[derive(Debug)]
pub struct Bound<C> {
    steps: Vec<Arc<Dispatches<C>>>,
    /// The first dispatch of each step.
    first: Vec<usize>,
    limits: BoundLimits,
    /// The matmul of each step that a BLAS may do; `None` where there is nothing to do, too.
    pub matmuls: Vec<Option<MatMul>>,
    /// The workgroups of each dispatch; `None` where there is nothing to do.
    pub grids: Vec<Grid>,
    /// The uniforms of all dispatches, as they are to be on the device.
    pub bytes: Vec<u8>,
    /// Where each dispatch's uniforms are in them, and how many bytes.
    pub places: Vec<(u64, u64)>,
    /// Whether `bytes` changed since somebody set this to `false`.
    pub changed: bool,
    /// The buffers that dispatches use.
    pub used: Vec<usize>,
    /// The dispatches that can fail, with their nodes.
    pub can_fail: Arc<Vec<(u32, NodeId)>>,
}

impl<C> Bound<C> {
    /// Room for these steps; with the numbers of `like`, where it is given.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for more uniforms than the device takes.
    pub fn new<'s>(
        steps: impl Iterator<Item = &'s Step<Arc<Dispatches<C>>>>,
        limits: BoundLimits,
        like: Option<&Bound<C>>,
    ) -> Result<Self>
    where
        C: 's,
    {
        let (mut list, mut first, mut places, mut end) = (Vec::new(), Vec::new(), Vec::new(), 0u64);
        let (mut used, mut can_fail) = (Vec::new(), Vec::new());
        for step in steps {
            first.push(places.len());
            for dispatch in &step.kernel.list {
                let bytes = dispatch.uniform_bytes();
                if bytes > limits.most_bytes {
                    let message = format!("{bytes} bytes of extents, the device takes {}", limits.most_bytes);
                    return Err(Error::new(ErrorKind::Unsupported, message));
                }
                places.push((end, bytes));
                end = (end + bytes).next_multiple_of(limits.align);
                used.extend_from_slice(&dispatch.buffers);
                can_fail.extend(dispatch.can_fail.then_some((dispatch.number, step.node)));
            }
            list.push(Arc::clone(&step.kernel));
        }
        rlx_ir::sort::sort(&mut used);
        used.dedup();
        Ok(Bound {
            matmuls: like.map_or_else(|| vec![None; list.len()], |like| like.matmuls.clone()),
            steps: list,
            first,
            limits,
            grids: like.map_or_else(|| vec![None; places.len()], |like| like.grids.clone()),
            bytes: like.map_or_else(|| vec![0; end.max(4) as usize], |like| like.bytes.clone()),
            places,
            changed: true,
            used,
            can_fail: like.map_or_else(|| Arc::new(can_fail), |like| Arc::clone(&like.can_fail)),
        })
    }

    /// Puts numbers into a step.
    ///
    /// # Errors
    /// Views that leave their buffers, buffers or sizes above what kernels count to, or more workgroups than the device dispatches.
    pub fn bind(&mut self, at: usize, values: &Values<'_>) -> Result<()> {
        let step = &self.steps[at];
        for view in &step.views {
            view.holds(values)?;
            let elements = values.get(view.elements());
            if usize::try_from(elements).is_ok_and(|n| n > self.limits.max_elements) {
                let most = self.limits.max_elements;
                let message = format!("a value of {elements} elements, the device counts to {most}");
                return Err(Error::new(ErrorKind::OutOfMemory, message));
            }
        }
        let idle = step.is_idle(values);
        let matmul = step.matmul.as_ref().filter(|_| !idle);
        self.matmuls[at] = matmul.and_then(|matmul| matmul.bind(values));
        let chosen = step.choice.as_ref().map(|choice| choice.of(values));
        for (i, (dispatch, at)) in step.list.iter().zip(self.first[at]..).enumerate() {
            self.grids[at] = None;
            let always = step.choice.as_ref().is_none_or(|choice| i >= choice.always);
            if idle || !always && chosen.as_ref().is_some_and(|chosen| !chosen.contains(&i)) {
                continue;
            }
            let (start, size) = self.places[at];
            let numbers = dispatch.uniform_values(values)?;
            self.bytes[start as usize..(start + size) as usize].copy_from_slice(&numbers);
            let groups = values.get(dispatch.groups).max(0);
            let grid = grid(groups, self.limits.max_groups).ok_or_else(|| {
                let message = format!("{groups} workgroups, more than the device dispatches");
                Error::new(ErrorKind::OutOfMemory, message)
            })?;
            self.grids[at] = (groups > 0).then_some(grid);
        }
        self.changed = true;
        Ok(())
    }

    /// The numbers of the dispatches of each step.
    pub fn steps(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let ends = self.first.iter().skip(1).copied().chain([self.places.len()]);
        self.first.iter().zip(ends).map(|(&first, end)| first..end)
    }

    /// Which steps have dispatches with workgroups.
    pub fn busy(&self) -> Vec<bool> {
        self.steps().map(|dispatches| self.grids[dispatches].iter().any(Option::is_some)).collect()
    }

    /// All dispatches, in order.
    pub fn dispatches(&self) -> impl Iterator<Item = &Dispatch<C>> {
        self.steps.iter().flat_map(|step| &step.list)
    }
}

/// A constant on the device: which pool, where in it, how many bytes.
pub type ConstantPlace = (usize, u64, u64);

/// Where a module's constants lie: one after the other in as few pools as the device allows.
#[derive(Debug)]
pub struct ConstantLayout {
    /// The bytes of each pool.
    pub pools: Vec<u64>,
    /// The place of each buffer of the module that is a constant.
    pub places: Vec<Option<ConstantPlace>>,
}

impl ConstantLayout {
    /// The layout within the limits of the target's pools; every size is a multiple of four bytes.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] for a constant that the device cannot bind.
    pub fn new(lir: &LirModule, target: &KernelTarget) -> Result<Self> {
        let (align, most) = (target.pool.align as u64, target.pool.max_buffer_bytes as u64);
        let (mut pools, mut places): (Vec<u64>, Vec<Option<ConstantPlace>>) = (Vec::new(), Vec::new());
        for buffer in &lir.buffers {
            let BufferKind::Constant(data) = &buffer.kind else {
                places.push(None);
                continue;
            };
            let bytes = (data.bytes().len() as u64).max(1).next_multiple_of(4);
            if bytes > most {
                let message = format!("a constant of {bytes} bytes, the device binds at most {most}");
                return Err(Error::new(ErrorKind::OutOfMemory, message).with_device(target.name.clone()));
            }
            let fits = pools.last().is_some_and(|&end| end + bytes <= target.pool.max_bytes as u64);
            if !fits {
                pools.push(0);
            }
            let pool = pools.len() - 1;
            places.push(Some((pool, pools[pool], bytes)));
            pools[pool] = (pools[pool] + bytes).next_multiple_of(align);
        }
        Ok(ConstantLayout { pools, places })
    }

    /// The constants' bytes, with their places.
    pub fn bytes<'l>(&'l self, lir: &'l LirModule) -> impl Iterator<Item = (ConstantPlace, &'l [u8])> {
        lir.buffers.iter().zip(&self.places).filter_map(|(buffer, place)| match (&buffer.kind, place) {
            (BufferKind::Constant(data), Some(place)) => Some((*place, &data.bytes()[..])),
            _ => None,
        })
    }
}

/// Bytes of the fault record.
pub const FAULT_BYTES: usize = 4 * render::FAULT_WORDS;

/// What a fault record (see [`rlx_kernel::render`]) says, if it says anything: the node, where it is known among the dispatches that can
/// fail.
pub fn fault(record: &[u8], can_fail: &[(u32, NodeId)]) -> Option<(Option<NodeId>, Error)> {
    let word = |i: usize| {
        let bytes = record.get(4 * i..4 * i + 4).and_then(|b| b.try_into().ok());
        bytes.map_or(0, u32::from_le_bytes)
    };
    if word(0) == 0 {
        return None;
    }
    // What a 64-bit index is reported as when it does not fit the record.
    let beyond = match word(3) as i32 {
        i32::MAX => " or more",
        i32::MIN => " or less",
        _ => "",
    };
    let message = format!("index {}{beyond} is out of range on axis {}", word(3) as i32, word(2));
    let node = can_fail.iter().find(|(number, _)| *number == word(1)).map(|&(_, node)| node);
    Some((node, Error::new(ErrorKind::Value, message)))
}
