//! A step of LIR as a tile program: a matmul or a convolution with what is around it in its region ([`step_sums`](super::step_sums)), or an attention
//! ([`step_attention`]).
//!
//! On sm_90a a matmul or an attention is a program of the group level where tensor copies can take its operands ([`matmul_groups`](super::matmul_groups()),
//! [`attention_groups`](super::attention_groups())); all others, and those of few rows, are those of sm_80.

use rlx_kernel::schedule::{Scheduled, StepDesc, Unscheduled};

use super::launch::StepLaunch;
use super::step_attention;
use super::step_sums::StepSums;
use super::tilings::Tiling;
use crate::atom::Arch;

/// The dispatch of a step around a matmul or a convolution of f16 or bf16, or of an attention of these, divided as `tiling` says, or else as suits its sizes.
///
/// # Errors
/// Why there is none.
pub fn step(arch: Arch, step: &StepDesc, tiling: Option<&Tiling>) -> Scheduled<StepLaunch> {
    let chosen = |all: Vec<Tiling>| {
        let tiling = tiling.copied().or_else(|| all.first().copied());
        tiling.ok_or_else(|| Unscheduled("no tilings".to_owned()))
    };
    if let Some(attention) = step_attention::parts(step) {
        let attention = attention?;
        let tiling = chosen(attention.tilings(arch)?)?;
        return attention.launch(arch, &tiling);
    }
    let sums = StepSums::of(arch.of_warps(), step)?;
    sums.launch(arch, &chosen(sums.tilings(arch, (sums.m, sums.n)))?)
}

/// The tilings of a step, the one that suits its sizes first. All give the same bits. Where the device's compute units are known, those by which each of them has
/// several tiles are among the last ([`turn_tilings`](super::turn_tilings)), and the first is that of fewer or smaller rounds of tiles, where there is such a one.
///
/// # Errors
/// Why it has none.
pub fn step_tilings(arch: Arch, step: &StepDesc, units: Option<u32>) -> Scheduled<Vec<Tiling>> {
    if let Some(attention) = step_attention::parts(step) {
        return attention?.tilings(arch);
    }
    let sums = StepSums::of(arch.of_warps(), step)?;
    Ok(sums.tilings_on(arch, units))
}
