//! The CPU as the executor uses it: see [`DeviceApi`].

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use rlx_backend::DeviceApi;
use rlx_backend::executor::{Run, Step};
use rlx_backend::extents::Values;
use rlx_backend::moe::MixtureOfExperts;
use rlx_backend::prepared::Prepared;
use rlx_ir::lir::{BufferKind, MemoryPlan};
use rlx_ir::{Error, ErrorKind, LirModule, Result, Weight};
use rlx_opt::PoolSpec;

use super::Program;
use super::kernel::Kernel;
use super::moe::Routers;
use super::scratch::{Scratch, ScratchSizes, SharedScratch};
use super::sequence::{self, Sequence};
use super::threads::Threads;
use crate::alloc::Buffer;
use crate::isa::Isa;
use crate::journal::Journal;
use crate::memory::{self, Memory, Place, allocate, allocate_aligned, copy_of, is_aligned};
use crate::pool::Wake;

/// The processor, with the constants of a module.
pub(crate) struct Cpu {
    pub(crate) isa: Isa,
    pub(crate) threads: Threads,
    /// How memory is planned. Where outputs are apart, executables share scratch with those of other programs.
    pool: PoolSpec,
    lir: Arc<LirModule>,
    /// Copies of constants that would not be aligned, by buffer.
    constants: HashMap<usize, Buffer>,
}

impl Cpu {
    pub(crate) fn new(lir: &Arc<LirModule>, isa: Isa, threads: Threads, pool: PoolSpec) -> Result<Cpu> {
        // Kernels read constants in place, so they must be aligned to their elements.
        let constant = |(at, buffer): (usize, &rlx_ir::lir::Buffer)| match &buffer.kind {
            BufferKind::Constant(data) if !is_aligned(data.bytes(), buffer.dtype.size_bytes()) => {
                Some(copy_of(data.bytes()).map(|copy| (at, copy)))
            }
            _ => None,
        };
        let constants = lir.buffers.iter().enumerate().filter_map(constant).collect::<Result<_>>()?;
        Ok(Cpu { isa, threads, pool, lir: Arc::clone(lir), constants })
    }
}

/// What an executable has of the processor.
pub(crate) struct Queue {
    /// Pool 0 of the plan: all of the arena, or the outputs alone.
    pub(super) arena: Buffer,
    /// The plan's other pool, and what kernels need besides.
    pub(super) scratch: Scratch,
    /// How much of it the plan needs.
    pub(super) scratch_sizes: ScratchSizes,
    /// The buffers in it, with their offsets.
    lent: Vec<(usize, usize)>,
    /// Where it was when their places were set.
    pointed: *const u8,
    /// The number of the shared scratch's place.
    pub(super) scratch_place: u32,
    /// The scratch shared with other executables; it is here during a run alone then.
    shared_scratch: Option<Arc<SharedScratch>>,
    /// What the present run replaced in inputs that it updates in place.
    pub(super) journal: Journal,
    /// The grouped matmuls by what chooses their experts.
    pub(super) routers: Routers,
}

// SAFETY: `pointed` is compared, never used.
unsafe impl Send for Queue {}

impl Queue {
    /// Sees that the scratch at hand has room, and points the places at it.
    pub(super) fn fit(&mut self, sizes: &ScratchSizes, places: &mut [Place]) -> Result<()> {
        self.scratch.fit(sizes)?;
        if let Some(last) = places.last_mut() {
            *last = Place::of(&self.scratch.shared);
        }
        let start = Place::of(&self.scratch.arena);
        if self.pointed != start.address().cast_const() {
            for &(buffer, offset) in &self.lent {
                places[buffer] = start.behind(offset);
            }
            self.pointed = start.address();
        }
        Ok(())
    }
}

impl DeviceApi for Cpu {
    type Kernel = Kernel;
    type Memory = Memory;
    type Place = Place;
    type Sequence = Sequence;
    type Queue = Queue;

    fn name(&self) -> &str {
        "cpu"
    }

    fn times_steps(&self) -> bool {
        true
    }

    fn pools(&self) -> PoolSpec {
        self.pool
    }

    fn allocate(&self, bytes: usize, what: &str) -> Result<Memory> {
        allocate(bytes, what).map(Memory::Own)
    }

    fn size(memory: &Memory) -> usize {
        memory.len()
    }

    fn place(memory: &Memory) -> Place {
        memory.place()
    }

    fn host(memory: &Memory) -> Option<&[u8]> {
        Some(memory.as_slice())
    }

    fn upload(&self, to: &mut Memory, bytes: &[u8]) -> Result<()> {
        match to {
            Memory::Own(buffer) => buffer.as_mut_slice()[..bytes.len()].copy_from_slice(bytes),
            Memory::Weight(..) => return Err(Error::new(ErrorKind::Internal, "a weight is only read")),
        }
        Ok(())
    }

    /// By all threads: fresh pages are cleared as they are written, which takes as long as copying.
    fn upload_all(&self, all: &[&[u8]], what: &str) -> Result<Vec<Memory>> {
        let made: Vec<OnceLock<Result<Memory>>> = all.iter().map(|_| OnceLock::new()).collect();
        self.threads.pool().enter(Wake::Yes).parallel_for(all.len(), &|range| {
            for i in range {
                // Each is made once.
                let _ = made[i].set(self.uploaded(all[i], what));
            }
        });
        let lost = || Err(Error::new(ErrorKind::Internal, "a copy of prepared weights was left out"));
        made.into_iter().map(|memory| memory.into_inner().unwrap_or_else(lost)).collect()
    }

    fn download<'m>(&self, from: &'m Memory, bytes: usize) -> Result<Cow<'m, [u8]>> {
        Ok(Cow::Borrowed(&from.as_slice()[..bytes]))
    }

    fn duplicate(&self, from: &Memory, bytes: usize, what: &str) -> Result<Memory> {
        let mut copy = allocate(bytes, what)?;
        copy.as_mut_slice().copy_from_slice(&from.as_slice()[..bytes]);
        Ok(Memory::Own(copy))
    }

    fn load(&self, weight: &Arc<Weight>, _: &str) -> Result<Arc<Memory>> {
        memory::load(weight)
    }

    #[inline]
    fn borrow(&self, bytes: &[u8], size: usize) -> Option<Place> {
        is_aligned(bytes, size).then(|| Place::new(bytes.as_ptr().cast_mut(), bytes.len()))
    }

    fn constant(&self, buffer: usize) -> Option<Place> {
        let BufferKind::Constant(data) = &self.lir.buffers[buffer].kind else { return None };
        let bytes = self.constants.get(&buffer).map_or(&data.bytes()[..], Buffer::as_slice);
        Some(Place::new(bytes.as_ptr().cast_mut(), bytes.len()))
    }

    fn prepared(&self) -> &Prepared<Memory> {
        &memory::PREPARED
    }

    fn packed_bytes(&self, kernel: &Kernel, output: usize, values: &Values<'_>) -> Result<Option<usize>> {
        let operand = &kernel.outputs()[output];
        let buffer = &self.lir.buffers[operand.buffer as usize];
        let Some(format) = buffer.format else { return Ok(None) };
        let bound = operand.bind(values)?;
        crate::kernels::pack::packed_bytes(format, buffer.dtype, bound.dims()).map(Some)
    }

    fn queue(&self, program: &Program, like: Option<&Queue>) -> Result<Queue> {
        // Clones are for running at the same time.
        let is_shared = like.is_none() && self.pool.outputs_apart;
        Ok(Queue {
            arena: allocate(0, "an arena")?,
            scratch: Scratch::empty()?,
            scratch_sizes: ScratchSizes::default(),
            lent: Vec::new(),
            pointed: std::ptr::null(),
            scratch_place: program.lir.buffers.len() as u32,
            shared_scratch: is_shared.then(SharedScratch::join),
            journal: Journal::default(),
            routers: like.map_or_else(|| Routers::of(&program.lir), |like| like.routers.clone()),
        })
    }

    fn sequence<'s>(
        &self,
        queue: &Queue,
        steps: impl Iterator<Item = &'s Step<Kernel>> + Clone,
        like: Option<&Sequence>,
    ) -> Result<Sequence> {
        Ok(Sequence::new(queue, steps, like))
    }

    fn bind(
        &self,
        sequence: &mut Sequence,
        at: usize,
        step: &Step<Kernel>,
        values: &Values<'_>,
    ) -> Result<()> {
        sequence.bind(at, &step.kernel, values)
    }

    fn seal(&self, _: &mut Queue, sequence: &mut Sequence) -> Result<()> {
        sequence.seal();
        Ok(())
    }

    fn use_plan(
        &self,
        queue: &mut Queue,
        _: &LirModule,
        plan: &MemoryPlan,
        places: &mut [Place],
    ) -> Result<()> {
        // Without limits there are at most two pools: the outputs apart, and the rest.
        let [own, rest @ ..] = &plan.pools[..] else { return Ok(()) };
        if *own > queue.arena.len() {
            queue.arena = allocate_aligned(*own, plan.alignment, "the arena")?;
        }
        queue.scratch_sizes =
            ScratchSizes { arena: rest.iter().sum(), align: plan.alignment, ..ScratchSizes::default() };
        queue.pointed = std::ptr::null();
        queue.lent.clear();
        let start = Place::of(&queue.arena);
        for (buffer, (offset, pool)) in plan.offsets.iter().zip(&plan.pool_of).enumerate() {
            match (*offset, pool) {
                (Some(offset), 0) => places[buffer] = start.behind(offset),
                (Some(offset), _) => queue.lent.push((buffer, offset)),
                (None, _) => {}
            }
        }
        Ok(())
    }

    fn begin(&self, queue: &mut Queue) -> Result<()> {
        queue.journal.clear();
        if let Some(shared) = &queue.shared_scratch {
            queue.scratch = shared.take()?;
        }
        Ok(())
    }

    fn end(&self, queue: &mut Queue) {
        if let Some(shared) = &queue.shared_scratch
            && let Ok(none) = Scratch::empty()
        {
            shared.give(std::mem::replace(&mut queue.scratch, none));
        }
    }

    #[inline]
    fn submit(&self, queue: &mut Queue, run: Run<'_, Cpu>) -> Result<()> {
        sequence::run(self, queue, run)
    }

    fn roll_back(&self, queue: &mut Queue) -> bool {
        // SAFETY: what was saved is in handles and copies of inputs, which nothing replaced since, and no kernel runs.
        unsafe { queue.journal.restore() };
        true
    }

    fn output<'q>(&self, queue: &'q Queue, _: usize, offset: usize, bytes: usize) -> Result<&'q [u8]> {
        let end = offset.checked_add(bytes);
        let found = end.and_then(|end| queue.arena.as_slice().get(offset..end));
        found.ok_or_else(|| Error::new(ErrorKind::Internal, "an output leaves the arena"))
    }

    fn arena<'q>(&self, queue: &'q Queue) -> Option<&'q [u8]> {
        Some(queue.arena.as_slice())
    }

    fn forget_weights(&self, queue: &mut Queue) {
        queue.routers.forget();
    }

    fn weight_bytes(&self, queue: &Queue) -> usize {
        queue.routers.bytes()
    }

    fn moe(queue: &mut Queue) -> Option<&mut dyn MixtureOfExperts> {
        if queue.routers.is_empty() { None } else { Some(&mut queue.routers) }
    }
}
