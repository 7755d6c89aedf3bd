//! A step of LIR as a tile program: a matmul or a convolution with what is around it in its region ([`step_sums`](super::step_sums)), or an attention
//! ([`step_attention`]), or rows times the matrices of their groups ([`step_grouped`]).
//!
//! On sm_90a a matmul or an attention is a program of the group level where tensor copies can take its operands ([`matmul_groups`](super::matmul_groups()),
//! [`attention_groups`](super::attention_groups())); all others, and those of few rows, are those of sm_80.

use rlx_kernel::schedule::{Scheduled, StepDesc, Unscheduled};

use super::launch::StepLaunch;
use super::step_attention::{self, Undivided};
use super::step_grouped::{self, StepGrouped};
use super::step_sums::{StepSums, Whole};
use super::tilings::Tiling;
use crate::atom::Arch;

/// A step around a matmul or a convolution of f16 or bf16, or of an attention or of rows in groups of these: what all of its programs have in common, whatever tiling each is by.
pub struct StepPrograms<'s> {
    arch: Arch,
    of: Of<'s>,
}

enum Of<'s> {
    Sums(Box<(StepSums<'s>, Whole)>),
    Attention(Box<Undivided<'s>>),
    Grouped(Box<StepGrouped>),
}

impl<'s> StepPrograms<'s> {
    /// Those of a step.
    ///
    /// # Errors
    /// Why there are none.
    pub fn of(arch: Arch, step: &'s StepDesc) -> Scheduled<StepPrograms<'s>> {
        if let Some(attention) = step_attention::parts(step) {
            return Ok(StepPrograms { arch, of: Of::Attention(Box::new(attention?.undivided()?)) });
        }
        if let Some(grouped) = step_grouped::parts(arch, step) {
            return Ok(StepPrograms { arch, of: Of::Grouped(Box::new(grouped?)) });
        }
        let sums = StepSums::of(arch.of_warps(), step)?;
        let whole = sums.whole(arch)?;
        Ok(StepPrograms { arch, of: Of::Sums(Box::new((sums, whole))) })
    }

    /// The tilings, the one that suits the step's sizes first. All give the same bits. Where the device's compute units are known, those by which each of them
    /// has several tiles are among the last ([`turn_tilings`](super::turn_tilings)), and the first is that of fewer or smaller rounds of tiles, where there is such
    /// a one.
    ///
    /// # Errors
    /// Why there are none.
    pub fn tilings(&self, units: Option<u32>) -> Scheduled<Vec<Tiling>> {
        match &self.of {
            Of::Sums(of) => Ok(of.0.tilings_on(self.arch, units)),
            Of::Attention(attention) => attention.tilings(self.arch),
            Of::Grouped(grouped) => Ok(grouped.tilings(self.arch.of_warps())),
        }
    }

    /// The dispatch that does all of the step, divided as `tiling` says.
    ///
    /// # Errors
    /// What no program can do.
    pub fn launch(&self, tiling: &Tiling) -> Scheduled<StepLaunch> {
        match &self.of {
            Of::Sums(of) => of.0.launch(self.arch, &of.1, tiling),
            Of::Attention(attention) => attention.launch(self.arch, tiling),
            Of::Grouped(grouped) => grouped.launch(self.arch.of_warps(), tiling),
        }
    }
}

/// The dispatch of a step by one of its [`StepPrograms`], divided as `tiling` says, or else as suits its sizes.
///
/// # Errors
/// Why there is none.
pub fn step(arch: Arch, step: &StepDesc, tiling: Option<&Tiling>) -> Scheduled<StepLaunch> {
    let programs = StepPrograms::of(arch, step)?;
    match tiling {
        Some(tiling) => programs.launch(tiling),
        None => {
            let tilings = programs.tilings(None)?;
            programs.launch(tilings.first().ok_or_else(|| Unscheduled("no tilings".to_owned()))?)
        }
    }
}

/// The tilings of a step: see [`StepPrograms::tilings`].
///
/// # Errors
/// Why it has none.
pub fn step_tilings(arch: Arch, step: &StepDesc, units: Option<u32>) -> Scheduled<Vec<Tiling>> {
    StepPrograms::of(arch, step)?.tilings(units)
}
