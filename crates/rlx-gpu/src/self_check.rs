//! A device computes a small case of each class of kernels before it is used for the class: drivers and compilers have faults that show in some kernels and not in others, and
//! not every device was there when those kernels were written.
//!
//! A class is tried when something of it is first claimed or compiled, once for each opened device. What is right is noted in the user's cache folder by
//! device, driver and compiler, and by the kernels that were tried, so that later processes need not try it. What is wrong is put aside ([`Classes`]): a warning says
//! so, and the device does without it. Nothing is concluded from a trial that could not be made (memory that was not to be had, a device that was lost).
//!
//! The cases (`cases.rs`) have small integers, or weights that are one or nothing, so that what comes out is known without rounding, and results that differ from
//! lane to lane.
//!
//! ```text
//! claim, compile ──classes of the node──▶ tried ──▶ noted? ──▶ compiled, run, compared ──▶ right: noted    wrong: put aside
//! ```

mod cases;

use std::fmt;
use std::sync::Arc;

use rlx_backend::pipelines::Kept;
use rlx_backend::tuning::Tuning;
use rlx_ir::lir::LirModule;
use rlx_ir::{Error, ErrorKind, Result, Weight, text};
use rlx_kernel::{KernelHash, KernelTarget, Launches};
use rlx_opt::{CompileOptions, CompilePipeline};
use rlx_tile::Arch;
use rlx_tile::schedule::Division;

use crate::api::GpuApi;
use crate::backend::executable_of;
use crate::classes::{self, Class, Classes, Family, SelfCheck, Tried};
use crate::few_rows::Fast;
use crate::making::scheduled;
use crate::own::Own;
use crate::signal::locked;
use crate::target::GpuTarget;
use crate::tiles::{MatrixUnits, TileLaunches, is_attention};
use crate::variants::{self, Means};
use crate::which::Lowered;
use cases::Case;

/// What a trial found.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// The device is right.
    Right,
    /// It has no kernels of the class.
    Nothing,
    /// Why it is put aside.
    Wrong(String),
    /// No more than that it could not be tried.
    Unknown,
}

impl Found {
    /// What follows where nothing does a case. A device that has no such kernels, or under limits that the case does not fit, says so of models, too. All else
    /// is a fault of what makes kernels of the case, and would be one of what makes them of models.
    fn of_not_made(error: &Error) -> Found {
        match error.kind() {
            ErrorKind::Unsupported | ErrorKind::OutOfMemory => Found::Nothing,
            _ => Found::Wrong(format!("they are not made: {error}")),
        }
    }
}

/// How often a case is compiled and run where the driver rejects it.
const ATTEMPTS: usize = 2;

/// The classes of kernels that exchange values within subgroups.
const WITH_EXCHANGES: [Class; 3] = [Class::Reduce, Class::ArgReduce, Class::Rows];

/// A device, as its kernels are made, to be tried.
pub(crate) struct OnDevice<G: GpuApi> {
    pub gpu: Arc<G>,
    pub kernels: KernelTarget,
    pub units: Option<MatrixUnits>,
}

impl<G: GpuApi> fmt::Debug for OnDevice<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnDevice").field("device", &self.gpu.name()).finish_non_exhaustive()
    }
}

impl<G: GpuApi> SelfCheck for OnDevice<G> {
    fn tried(&self, classes: &[Class]) -> Classes {
        // Held meanwhile: of two threads that want a class, one waits for what the other one finds.
        let mut tried = locked(&self.gpu.shared().tried);
        for &class in classes {
            // Those in front of it may have changed what there is to try.
            if tried.done.has(class) {
                continue;
            }
            let mut found = self.find(class, tried.aside, &mut tried.ran);
            if let Found::Wrong(why) = &found
                && self.is_right_without_exchanges(class, &mut tried)
            {
                self.warn(Class::Exchanges, why);
                found = Found::Right;
            }
            match found {
                Found::Right | Found::Nothing => tried.done.insert(class),
                Found::Unknown => {}
                Found::Wrong(why) => {
                    tried.done.insert(class);
                    tried.aside.insert(class);
                    self.warn(class, &why);
                }
            }
        }
        tried.aside
    }

    fn is_known(&self, class: Class) -> bool {
        locked(&self.gpu.shared().tried).done.has(class)
    }
}

/// What does a case.
struct Made {
    target: KernelTarget,
    lir: Arc<LirModule>,
    launches: Launches,
    tiles: TileLaunches,
}

impl<G: GpuApi> OnDevice<G> {
    fn warn(&self, class: Class, why: &str) {
        let (device, machine) = (self.gpu.name(), self.gpu.machine());
        tracing::warn!(%device, %machine, %class, %why, "a class of kernels is put aside: the device does without it");
    }

    /// Whether a class that is wrong is right by kernels without exchanges within subgroups: those are put aside then, and what they were in is to be tried again.
    fn is_right_without_exchanges(&self, class: Class, tried: &mut Tried) -> bool {
        if !WITH_EXCHANGES.contains(&class)
            || classes::without(&self.kernels, tried.aside).limits.subgroup.is_none()
        {
            return false;
        }
        let mut aside = tried.aside;
        aside.insert(Class::Exchanges);
        let is_right = matches!(self.find(class, aside, &mut tried.ran), Found::Right);
        if is_right {
            tried.aside = aside;
            tried.done = tried.done.except(&WITH_EXCHANGES);
        }
        is_right
    }

    /// Tries the device for a class, by kernels without what is put aside.
    fn find(&self, class: Class, aside: Classes, ran: &mut usize) -> Found {
        let Some(case) = cases::of(class) else { return Found::Nothing };
        let made = match self.made(class, &case, aside) {
            Ok(Some(made)) => made,
            Ok(None) => return Found::Nothing,
            Err(e) => return Found::of_not_made(&e),
        };
        let (kept, key) = (self.kept(), note(class, &made));
        if kept.as_ref().is_some_and(|kept| kept.load(&key).is_some()) {
            return Found::Right;
        }
        let mut found = Found::Unknown;
        for _ in 0..ATTEMPTS {
            *ran += 1;
            found = match self.run(&case, &made) {
                Ok(got) => match case.fault(&got) {
                    None => Found::Right,
                    Some(why) => Found::Wrong(why),
                },
                // Of no memory nothing follows, nor of a device that is gone.
                Err(e) if e.kind() != ErrorKind::Device || self.gpu.shared().health.lost().is_some() => {
                    Found::Unknown
                }
                Err(e) => Found::Wrong(format!("the driver does not run them: {e}")),
            };
            if !matches!(&found, Found::Wrong(_)) {
                break;
            }
        }
        if let (Found::Right, Some(kept)) = (&found, kept) {
            kept.keep(&key, b"right");
        }
        found
    }

    /// Where it is noted what is right. Lower limits may choose other kernels, and are for tests above all.
    fn kept(&self) -> Option<Kept> {
        let own = self.gpu.shared().limits == Lowered::default();
        own.then(|| Kept::of("checked", &[self.gpu.name(), &self.gpu.machine()])).flatten()
    }

    /// What does the case of a class; nothing where that is none of the class.
    fn made(&self, class: Class, case: &Case, aside: Classes) -> Result<Option<Made>> {
        // Matmuls through workgroup memory are what is tried, whatever was found.
        let kernels = classes::without(&self.kernels, aside.except(&[Class::Tiled]));
        let (units, fast) = self.means(class);
        if matches!(class, Class::Tiles { .. }) && units.is_none() {
            return Ok(None);
        }
        let own = Own { matrix_units: units, fast, library: None, check: None };
        let means = GpuTarget::new(kernels.clone(), units, own.fast.clone(), None);
        let target = means.kernels.clone();
        let graph = text::parse(&case.graph)?;
        let lir = CompilePipeline::new(Arc::new(means), CompileOptions::default()).compile(&graph)?.lir;
        let tuning = match class {
            // A program of the group level, however small its result is.
            Class::Tiles { groups: true, .. } => {
                let own_level = units.map(|units| format!("tiles.{}.", units.arch.name()));
                tuning(&lir, (&kernels, &own), &own_level.unwrap_or_default())?
            }
            // A kernel with workgroup memory, also on a processor, which has others where nothing was measured.
            Class::Tiled => tuning(&lir, (&target, &own), "tile")?,
            _ => Tuning::default(),
        };
        let (launches, tiles) = scheduled(&lir, &target, &tuning, &own)?;
        let made = Made { target, lir: Arc::new(lir), launches, tiles };
        Ok(made.is_of(class, units).then_some(made))
    }

    /// The means by which a case is compiled: those of the class alone.
    fn means(&self, class: Class) -> (Option<MatrixUnits>, Fast) {
        let Class::Tiles { family, groups, .. } = class else {
            return (None, Fast { few_rows: class == Class::FewRows, ..Fast::default() });
        };
        let units = self.units.map(|units| {
            let arch = if groups { units.arch } else { units.arch.of_warps() };
            MatrixUnits { arch, aside: Classes::default(), ..units }
        });
        let in_parts = matches!(family, Family::Parts | Family::KeysInParts);
        let division = units.filter(|_| in_parts).map(|units| Division::for_units(units.compute_units));
        (units, Fast { division, few_rows: false })
    }

    /// What the device makes of a case.
    fn run(&self, case: &Case, made: &Made) -> Result<Vec<u8>> {
        let Made { target, lir, launches, tiles } = made;
        let parts = (launches.clone(), tiles.clone());
        let mut exec = executable_of(Arc::clone(&self.gpu), target.clone(), Arc::clone(lir), parts)?;
        let bytes = |name: &str| case.values.iter().find(|(of, _)| *of == name).map(|(_, value)| value);
        for (i, slot) in lir.params.iter().enumerate() {
            if let Some(value) = bytes(&slot.name) {
                exec.set_param(i, Arc::new(Weight::owned(value.dtype, &value.dims, value.encode())?))?;
            }
        }
        let inputs: Vec<Vec<u8>> =
            lir.inputs.iter().filter_map(|slot| bytes(&slot.name)).map(|value| value.encode()).collect();
        exec.run(&&inputs[..], &[])?;
        Ok(exec.output(0)?.to_vec())
    }
}

/// Takes for each step the first variant whose name begins so.
fn tuning(lir: &LirModule, (target, own): (&KernelTarget, &Own), name: &str) -> Result<Tuning> {
    let mut tuning = Tuning::default();
    for step in &lir.steps {
        let offers = Means { target, own }.offers(step, lir)?;
        let Some(key) = variants::key(step, lir, &offers) else { continue };
        if let Some(variant) = key.variants.iter().position(|of| of.starts_with(name)) {
            tuning.choose(&key, variant);
        }
    }
    Ok(tuning)
}

impl Made {
    /// Whether it is of the class: a device may have nothing of it.
    fn is_of(&self, class: Class, units: Option<MatrixUnits>) -> bool {
        let archs: Vec<Arch> = self.tiles.programs.iter().map(|(_, program)| program.arch).collect();
        let shares = || self.launches.kernels.iter().any(|(_, kernel)| kernel.works_together());
        match class {
            Class::Tiles { family, .. } => {
                // Parts are joined, and rows in groups are looked up in lists, by kernels beside the programs.
                let has_joins = matches!(family, Family::Parts | Family::KeysInParts | Family::Grouped);
                units.is_some_and(|units| archs.contains(&units.arch))
                    && (!has_joins || !self.tiles.joins.is_empty())
            }
            Class::FewRows => self.launches.kernels.iter().any(|(_, kernel)| kernel.shared_bytes() > 0),
            Class::Attention => self.lir.graph.nodes().iter().any(|n| is_attention(&n.op)),
            _ => archs.is_empty() && shares(),
        }
    }
}

/// What is noted where a class was right: it, and the kernels by which it was tried.
fn note(class: Class, made: &Made) -> String {
    let Made { launches, tiles, .. } = made;
    let (kernels, joins) = (launches.kernels.iter(), tiles.joins.iter());
    let hashes =
        kernels.chain(joins).map(|(hash, _)| hash).chain(tiles.programs.iter().map(|(hash, _)| hash));
    let mut all = KernelHash([0; 32]);
    for hash in hashes {
        all.0.iter_mut().zip(hash.0).for_each(|(all, byte)| *all = all.rotate_left(1) ^ byte);
    }
    format!("{}-{all}", class.key())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_device_says_of_models_too_is_no_fault_of_a_class() {
        let kernels = KernelTarget::full("test");
        let compiled = |graph: &str, kernels: &KernelTarget| {
            let target = Arc::new(GpuTarget::new(kernels.clone(), None, Fast::default(), None));
            let graph = text::parse(graph)?;
            CompilePipeline::new(target, CompileOptions::default()).compile(&graph).map(|_| ())
        };
        let Some(case) = cases::of(Class::Reduce) else { panic!("there is one") };
        compiled(&case.graph, &kernels).unwrap();
        // Kernels of one buffer, and buffers of one byte.
        let (mut few, mut small) = (kernels.clone(), kernels.clone());
        few.limits.max_bindings = 1;
        small.pool.max_buffer_bytes = 1;
        for limited in [few, small] {
            let error = compiled(&case.graph, &limited).unwrap_err();
            assert_eq!(Found::of_not_made(&error), Found::Nothing, "{error}");
        }
        let damaged = compiled(&case.graph.replacen("[", "[0x, ", 1), &kernels).unwrap_err();
        let broken = Error::new(ErrorKind::Internal, "a kernel breaks a rule");
        for error in [damaged, broken] {
            let found = Found::of_not_made(&error);
            assert!(matches!(&found, Found::Wrong(why) if why.contains(&error.to_string())), "{found:?}");
        }
    }
}
