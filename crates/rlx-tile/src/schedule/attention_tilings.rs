//! How attentions are divided among workgroups and warps.

use crate::atom::Arch;
use crate::group::GROUP_WARPS;

/// How an attention is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionTiling {
    /// Rows of a workgroup.
    pub queries: u32,
    /// Keys of a step.
    pub keys: u32,
    /// Warps below each other, of other queries, and beside each other, of other columns of the result.
    pub warps: (u32, u32),
    /// Stages of the copies.
    pub stages: u32,
    /// It is one of the group level ([`crate::group`]): warps are those of the consumers, four of which are a warp group.
    pub groups: bool,
}

impl AttentionTiling {
    /// A name such as `q64.k64.w4.s2`, `q64.k16.w4x2.s1` with warps beside each other, or on the group level `q128.k64.g2.s2`.
    pub fn name(&self) -> String {
        let (rows, cols) = self.warps;
        if self.groups {
            return format!("q{}.k{}.g{}.s{}", self.queries, self.keys, rows / GROUP_WARPS, self.stages);
        }
        let beside = if cols > 1 { format!("x{cols}") } else { String::new() };
        format!("q{}.k{}.w{rows}{beside}.s{}", self.queries, self.keys, self.stages)
    }
}

/// Tilings of an architecture for heads of so many elements (of keys or values, what is more), for many queries first. All give the same bits: they have as
/// many keys. None needs more registers than a lane has, unless elements are accessed one by one (for some of 16 rows on sm_80, NVRTC spills up to 20 bytes);
/// none was measured on hardware.
pub fn attention_tilings(arch: Arch, head: u32) -> Vec<AttentionTiling> {
    let stages = if arch.copies_async() { 2 } else { 1 };
    let of =
        |queries, keys, below| AttentionTiling { queries, keys, warps: (below, 1), stages, groups: false };
    let beside = |queries, keys, warps| AttentionTiling { queries, keys, warps, stages, groups: false };
    match (arch, head) {
        (Arch::Gfx90a, ..=64) => vec![of(128, 64, 8), of(64, 64, 4), of(16, 64, 1)],
        (Arch::Gfx90a, 65..=128) => vec![of(128, 32, 8), of(64, 32, 4), beside(16, 32, (1, 2))],
        (Arch::Gfx90a, _) => vec![of(64, 32, 4), beside(16, 32, (1, 4))],
        (Arch::Gfx1100 | Arch::Gfx1200, ..=64) => vec![of(64, 32, 4), of(32, 32, 2), beside(16, 32, (1, 4))],
        (Arch::Gfx1100 | Arch::Gfx1200, 65..=128) => {
            vec![of(128, 16, 8), of(64, 16, 4), beside(16, 16, (1, 4))]
        }
        (Arch::Sm80 | Arch::Sm90a | Arch::Sm100a, ..=64) => {
            vec![of(128, 64, 8), of(64, 64, 4), of(16, 64, 1)]
        }
        (Arch::Sm80 | Arch::Sm90a | Arch::Sm100a, 65..=128) => {
            vec![of(128, 64, 8), of(64, 64, 4), beside(16, 64, (1, 8))]
        }
        (Arch::Sm80 | Arch::Sm90a | Arch::Sm100a, _) => vec![of(64, 32, 4), beside(16, 32, (1, 4))],
        (Arch::Sm75, ..=64) => vec![of(64, 32, 4), of(16, 32, 1)],
        (Arch::Sm75, 65..=128) => vec![of(64, 32, 4), beside(16, 32, (1, 4))],
        // Half of the registers would hold the result of whole rows, and copies that wait in registers have no room beside it.
        (Arch::Gfx1100 | Arch::Gfx1200 | Arch::Sm75, _) => {
            vec![beside(64, 16, (4, 2)), beside(16, 16, (1, 4))]
        }
        // Nobody knows which sums a lane has.
        (Arch::Apple7 | Arch::Coop16, _) => Vec::new(),
    }
}
