//! Steps bound to numbers and memory: uniforms on the device, and what the device keeps for each set of memory.

use std::sync::Arc;

use rlx_backend::executor::Step;
use rlx_ir::Result;
use rlx_kernel::KernelTarget;

use crate::api::{Back, Bindings, GpuApi, Submission, Times, Usage, placed};
use crate::device::Kernel;
use crate::dispatch::{Bound, BoundLimits};
use crate::memory::Buffer;

/// Links are kept for this many sets of memory: buffers of handles that outputs feed change places with every run.
const LINKS: usize = 2;

/// What the device keeps of the steps on one set of memory.
struct Link<G: GpuApi> {
    places: Vec<G::Range>,
    of: G::Link,
}

/// Steps bound to the same dimensions.
pub(crate) struct Sequence<G: GpuApi> {
    /// The last set of memory first. They are dropped before the uniforms that they refer to.
    links: Vec<Link<G>>,
    pub(crate) bound: Bound<Arc<G::Code>>,
    /// Where the uniforms of each dispatch are, but of those that are given them by value.
    uniforms: Vec<Option<G::Range>>,
    /// The uniforms of all dispatches, where any has them in memory.
    memory: Option<Buffer<G>>,
}

impl<G: GpuApi> Sequence<G> {
    /// Room for these steps; with the numbers of `like`, where it is given.
    ///
    /// # Errors
    /// More uniforms than the device takes, or memory that cannot be had.
    pub(crate) fn new<'s>(
        gpu: &G,
        target: &KernelTarget,
        steps: impl Iterator<Item = &'s Step<Arc<Kernel<G>>>>,
        like: Option<&Sequence<G>>,
    ) -> Result<Self> {
        let of = gpu.limits();
        let limits = BoundLimits {
            align: of.uniform_align,
            most_bytes: of.most_uniforms,
            max_groups: target.limits.max_groups,
            max_elements: target.pool.max_elements,
        };
        let bound = Bound::new(steps, limits, like.map(|like| &like.bound));
        let bound = bound.map_err(|e| e.with_device(gpu.name()))?;
        let by_value: Vec<bool> = bound.dispatches().map(G::by_value).collect();
        let memory = match by_value.contains(&false) {
            true => Some(Buffer::new(gpu, bound.bytes.len(), Usage::Uniforms, "extents")?),
            false => None,
        };
        let place = |(&(at, n), by_value): (&(u64, u64), bool)| match &memory {
            Some(memory) if !by_value => Some(memory.part(at as usize, n as usize)),
            _ => None,
        };
        let uniforms = bound.places.iter().zip(by_value).map(place).collect();
        Ok(Sequence { links: Vec::new(), bound, uniforms, memory })
    }

    /// Copies the numbers to the device, before anything submitted later, where they are not given with dispatches.
    ///
    /// # Errors
    /// A fault of the device.
    pub(crate) fn upload(&mut self, gpu: &G) -> Result<()> {
        if self.bound.changed {
            self.links.iter_mut().for_each(|link| G::renumber(&mut link.of));
            if let Some(memory) = &self.memory {
                memory.write(gpu, 0, &self.bound.bytes)?;
            }
            self.bound.changed = false;
        }
        Ok(())
    }

    /// Lets go of memory that it was bound to.
    pub(crate) fn unlink(&mut self) {
        self.links.clear();
    }

    /// Submits the dispatches, and the copies of what comes back.
    ///
    /// # Errors
    /// A buffer without memory, or a fault of the device.
    pub(crate) fn submit(
        &mut self,
        gpu: &G,
        name: &str,
        places: &[Option<G::Range>],
        faults: &G::Range,
        back: Option<Back<'_, G>>,
        times: Option<Times<'_, G>>,
    ) -> Result<()> {
        let Sequence { links, bound, uniforms, .. } = self;
        let same = |link: &Link<G>| {
            let now = bound.used.iter().map(|&b| places[b].as_ref());
            link.places.iter().map(Some).eq(now)
        };
        let bindings = Bindings { bound, faults, uniforms, places };
        if let Some(at) = links.iter().position(same) {
            links[..=at].rotate_right(1);
        } else {
            let used = bound.used.iter().map(|&b| placed(gpu, places, b).cloned());
            let link = Link { places: used.collect::<Result<_>>()?, of: gpu.link(&bindings)? };
            links.truncate(LINKS - 1);
            links.insert(0, link);
        }
        gpu.submit(&mut links[0].of, Submission { name, bindings, back, times })
    }
}
