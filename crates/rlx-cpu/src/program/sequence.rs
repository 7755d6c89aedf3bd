//! Steps bound to numbers, and the walk over them that a run is.

use std::ops::Range;

use rlx_backend::StepProfile;
use rlx_backend::executor::{Run, Step};
use rlx_backend::extents::Values;
use rlx_ir::clock::Instant;
use rlx_ir::progress::{Progress, Stage};
use rlx_ir::{ErrorKind, NodeId, Result};

use super::device::{Cpu, Queue};
use super::kernel::{Joined, Kernel, Operands};
use super::ranges::{Touched, check_ranges};
use super::scratch::ScratchSizes;
use super::together::Together;
use crate::gemm::PANEL;
use crate::kernels::bands::{Bands, MOST_PARTS};
use crate::kernels::{BindCx, Needs, RunCx, StepKernel, Upcoming, WORTH_NANOS};
use crate::pool::{Run as Helpers, Wake};

/// How many steps away a step is looked for whose weights another one prefetches, where few steps were bound.
const NEAR: usize = 64;

/// Runs longer than this wake parked helpers.
const WAKE_NANOS: f64 = 150_000.0;

/// Weights and values of a program that are this few bytes together stay in the second-level cache from run to run (256 KB
/// is the smallest of the processors that we know).
const CACHED: usize = 256 << 10;

/// A step bound to numbers.
struct BoundStep {
    kernel: Box<dyn StepKernel>,
    node: NodeId,
    updates_input: bool,
    /// Whether there is nothing to compute.
    idle: bool,
    needs: Needs,
    /// What it touches, inputs first: in debug builds, to be checked, and of steps that may be computed in bands.
    touched: Vec<Touched>,
    /// Whether what it writes is the next step's alone, and what it reads the step's before.
    joined: Joined,
    /// How it and the steps behind it are computed in bands, if they are.
    bands: Option<Box<Bands>>,
}

/// The steps of a program, bound to the same dimensions.
pub(crate) struct Sequence {
    steps: Vec<BoundStep>,
    /// The number of the shared scratch's place.
    scratch: u32,
    /// The operands of the step that is being bound.
    operands: Operands,
    /// The steps that were bound since it was sealed.
    unsealed: Vec<usize>,
    /// What each thread needs for itself, and the threads of one step share.
    thread_stride: usize,
    shared: usize,
    nanos: f64,
    /// The longest step that it has had.
    longest: f64,
    /// Bytes of packed weights that its steps read.
    weights: usize,
}

impl Sequence {
    /// Kernels for these steps: those of `like`, bound as they are there, or such that are not bound yet.
    pub(super) fn new<'s>(
        queue: &Queue,
        steps: impl Iterator<Item = &'s Step<Kernel>>,
        like: Option<&Sequence>,
    ) -> Sequence {
        let one = |(at, step): (usize, &Step<Kernel>)| {
            let like = like.and_then(|like| like.steps.get(at));
            let mut kernel = like.map_or(&step.kernel.prototype, |like| &like.kernel).boxed();
            if kernel.experts().is_some()
                && let Some(experts) = queue.routers.experts_of(step.node)
            {
                kernel.share_experts(experts);
            }
            BoundStep {
                kernel,
                node: step.node,
                updates_input: step.updates_input,
                idle: like.is_some_and(|like| like.idle),
                needs: like.map_or_else(Needs::default, |like| like.needs),
                touched: like.map_or_else(Vec::new, |like| like.touched.clone()),
                joined: step.kernel.joined,
                bands: like.and_then(|like| like.bands.clone()),
            }
        };
        Sequence {
            steps: steps.enumerate().map(one).collect(),
            scratch: queue.scratch_place,
            operands: Operands::default(),
            unsealed: Vec::new(),
            thread_stride: like.map_or(0, |like| like.thread_stride),
            shared: like.map_or(0, |like| like.shared),
            nanos: like.map_or(0.0, |like| like.nanos),
            longest: like.map_or(0.0, |like| like.longest),
            weights: like.map_or(0, |like| like.weights),
        }
    }

    pub(super) fn bind(&mut self, at: usize, step: &Kernel, values: &Values<'_>) -> Result<()> {
        let bound = &mut self.steps[at];
        step.operands(values, &mut self.operands)?;
        let Operands { inputs, outputs, formats } = &self.operands;
        if cfg!(debug_assertions) || bound.joined != Joined::default() {
            let plain = inputs.iter().zip(formats).filter(|(_, format)| format.is_none()).map(|(o, _)| o);
            bound.touched.clear();
            bound.touched.extend(plain.chain(outputs.iter()).map(Touched::of));
        }
        self.unsealed.push(at);
        self.nanos -= bound.needs.nanos;
        (bound.idle, bound.needs) = (step.is_idle(outputs), Needs::default());
        if bound.idle {
            return Ok(());
        }
        let cx = BindCx { inputs, outputs, formats, values: *values, scratch: self.scratch };
        bound.needs = bound.kernel.bind(&cx)?;
        self.nanos += bound.needs.nanos;
        self.longest = self.longest.max(bound.needs.nanos);
        Ok(())
    }

    /// Adds up what the steps need, and tells each matmul which packed weights the next one reads. Where few of many steps were
    /// bound, because a step counted, only those are looked at, and their neighbours.
    pub(super) fn seal(&mut self) {
        let mut bound = std::mem::take(&mut self.unsealed);
        if bound.len() < self.steps.len() / (2 * NEAR) {
            bound.iter().for_each(|&at| self.seal_one(at));
        } else {
            self.seal_all();
        }
        let mut sealed = 0;
        for &at in &bound {
            if at >= sealed {
                sealed = self.seal_bands(at);
            }
        }
        bound.clear();
        self.unsealed = bound;
    }

    fn seal_one(&mut self, at: usize) {
        let needs = self.steps[at].needs;
        self.thread_stride = self.thread_stride.max(needs.thread_scratch.next_multiple_of(128));
        self.shared = self.shared.max(needs.shared_scratch);
        let busy = |step: &&BoundStep| !step.idle;
        let mut next = self.steps[at + 1..].iter().take(NEAR).filter(busy).find_map(|s| s.kernel.weights());
        for (i, step) in self.steps[..=at].iter_mut().enumerate().rev().take(NEAR).filter(|(_, s)| !s.idle) {
            step.kernel.set_next(next);
            let weights = step.kernel.weights();
            if i < at && weights.is_some() {
                break;
            }
            next = weights.or(next);
        }
    }

    fn seal_all(&mut self) {
        let (mut thread, mut next): (usize, Upcoming) = (0, None);
        (self.shared, self.nanos, self.longest, self.weights) = (0, 0.0, 0.0, 0);
        for step in &self.steps {
            thread = thread.max(step.needs.thread_scratch);
            self.shared = self.shared.max(step.needs.shared_scratch);
            self.nanos += step.needs.nanos;
            self.longest = self.longest.max(step.needs.nanos);
        }
        self.thread_stride = thread.next_multiple_of(128);
        for step in self.steps.iter_mut().rev().filter(|step| !step.idle) {
            step.kernel.set_next(next);
            let weights = step.kernel.weights();
            self.weights += weights.map_or(0, |(_, depth, panels)| depth * panels * PANEL * 4);
            next = weights.or(next);
        }
    }

    /// Sees which of the joined steps around this one are computed in bands; gives the first step behind them.
    fn seal_bands(&mut self, at: usize) -> usize {
        let joined = |i: usize| self.steps[i].joined.to_next;
        let mut start = at;
        while start > 0 && joined(start - 1) {
            start -= 1;
        }
        let end = 1 + (at..self.steps.len()).find(|&i| !joined(i)).unwrap_or(at);
        let mut next = start;
        while next < end {
            let busy = self.steps[next..end].iter().take_while(|step| !step.idle && !step.updates_input);
            let forms: Vec<_> = busy.map_while(|step| step.kernel.lines()).take(MOST_PARTS).collect();
            let bands = Bands::of(&forms);
            let steps = bands.as_ref().map_or(1, Bands::len);
            self.steps[next..next + steps].iter_mut().for_each(|step| step.bands = None);
            if let Some(bands) = &bands {
                self.thread_stride = self.thread_stride.max(bands.scratch.next_multiple_of(128));
            }
            self.steps[next].bands = bands.map(Box::new);
            next += steps;
        }
        end
    }

    /// The scratch that its steps use on this many threads, besides `plan`'s.
    pub(super) fn scratch_sizes(&self, plan: ScratchSizes, threads: usize) -> ScratchSizes {
        ScratchSizes { threads: self.thread_stride * threads, shared: self.shared, ..plan }
    }
}

/// Runs a part of a sequence; gives what the last step that counts found.
pub(super) fn run(cpu: &Cpu, queue: &mut Queue, run: Run<'_, Cpu>) -> Result<()> {
    let Run { program, sequence, steps, places, stage, progress, found, busy_with, times, .. } = run;
    queue.fit(&sequence.scratch_sizes(queue.scratch_sizes, cpu.threads.pool().threads()), places)?;
    let mut pool = if sequence.longest <= WORTH_NANOS {
        Helpers::alone()
    } else {
        let wake = if sequence.nanos > WAKE_NANOS { Wake::Yes } else { Wake::IfFrequent };
        cpu.threads.pool().enter(wake)
    };
    let mut cx = RunCx {
        bases: places,
        shared_scratch: queue.scratch.shared.as_mut_ptr(),
        thread_scratch: queue.scratch.threads.as_mut_ptr(),
        thread_stride: sequence.thread_stride,
        isa: cpu.isa,
        cached: sequence.weights + queue.arena.len() + queue.scratch_sizes.arena <= CACHED,
        pool: &mut pool,
        found: None,
        progress,
    };
    let go_on = |i: usize, node: NodeId| match stage {
        Some(stage) => may_go_on(progress, stage, i, program, node),
        None => Ok(()),
    };
    let located = |step: &BoundStep| {
        let node = step.node;
        move |e| program.locate(node, e)
    };
    let (part, mut times): (Range<usize>, _) = (steps, times);
    let mut i = part.start;
    while i < part.end {
        let step = &sequence.steps[i];
        if step.idle {
            i += 1;
            continue;
        }
        let together = step.bands.as_ref().and_then(|bands| {
            let steps = sequence.steps[i..part.end].get(..bands.len())?;
            Together::of(bands, steps.iter().map(|step| (&*step.kernel, &step.touched[..])), &cx)
        });
        let steps = together.as_ref().map_or(1, Together::len);
        for (i, step) in (i..).zip(&sequence.steps[i..i + steps]) {
            go_on(i, step.node)?;
            if cfg!(debug_assertions) {
                check_ranges(cx.bases, &step.touched).map_err(located(step))?;
            }
        }
        *busy_with = Some(step.node);
        let start = times.is_some().then(Instant::now);
        if step.updates_input {
            // SAFETY: as below.
            unsafe { step.kernel.journal(&cx, &mut queue.journal) }.map_err(located(step))?;
        }
        cx.pool.rebalance();
        let shares = match &together {
            // SAFETY: as below; the steps hand their values to each other alone.
            Some(together) => Some(unsafe { together.run(&mut cx, times.is_some()) }),
            None => {
                // SAFETY: every base is set and covers its buffer: the bytes of inputs were counted when they were
                // loaded, those of parameters when they were set or bound, views were checked when bound, in a
                // module that was verified; steps run one after the other.
                unsafe { step.kernel.run(&mut cx) }.map_err(located(step))?;
                None
            }
        };
        if let (Some(times), Some(start)) = (&mut times, start) {
            add_times(times, i, start, shares.as_ref().map_or(&[1.0], |shares| &shares[..steps]));
        }
        i += steps;
    }
    found.extend(cx.found);
    Ok(())
}

/// Adds the time of steps from `first` on, that took these shares of it.
fn add_times((times, run): &mut (&mut [StepProfile], Instant), first: usize, start: Instant, shares: &[f64]) {
    let (mut from, all) = (start - *run, start.elapsed());
    for (times, share) in times[first..].iter_mut().zip(shares) {
        let took = all.mul_f64(*share);
        times.add(from, took);
        from += took;
    }
}

/// Reports a step, and asks whether to go on.
#[inline]
fn may_go_on(
    progress: &Progress,
    stage: Stage,
    step: usize,
    program: &super::Program,
    node: NodeId,
) -> Result<()> {
    let going = progress.step(stage, step, program.steps.len(), || program.op_name(node));
    going.map_err(|e| if e.kind() == ErrorKind::Panic { program.locate(node, e) } else { e })
}
