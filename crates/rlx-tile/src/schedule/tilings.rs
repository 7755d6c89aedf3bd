//! How matmuls and convolutions are divided among workgroups and warps.

use rlx_ir::DType;
use serde::{Deserialize, Serialize};

use crate::atom::{Arch, Atom, Vendor};
use crate::group::{GROUP_ROWS, GROUP_WARPS};

/// How a matmul is divided. All tilings of an architecture give the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tiling {
    /// Rows, columns and depth of a workgroup's tile.
    pub tile: (u32, u32, u32),
    /// Rows and columns of warps.
    pub warps: (u32, u32),
    /// Stages of the copies.
    pub stages: u32,
    /// See [`Grid::bands`](crate::ir::Grid::bands).
    pub bands: u32,
    /// It is one of the group level ([`crate::group`]): warps are those of the consumers, four of which are a warp group.
    pub groups: bool,
    /// On the group level: teams of the warp groups that take turns at the tiles of a workgroup, which has several ([`Stmt::Tiles`](crate::ir::Stmt::Tiles)); 0 where
    /// it has one tile.
    pub teams: u32,
}

impl Tiling {
    /// A name such as `128x128x32.2x2.s3`, on the group level `128x256x64.g2.s4`, and `128x128x64.g2.s6.t2` where two teams take turns.
    pub fn name(&self) -> String {
        let ((m, n, k), (r, c)) = (self.tile, self.warps);
        match self.groups {
            true => {
                let teams = if self.teams > 0 { format!(".t{}", self.teams) } else { String::new() };
                format!("{m}x{n}x{k}.g{}.s{}{teams}", r * c / GROUP_WARPS, self.stages)
            }
            false => format!("{m}x{n}x{k}.{r}x{c}.s{}", self.stages),
        }
    }

    /// The same with twice the lanes beside each other, of warps: where elements are copied one by one, each lane has half of them in registers.
    #[must_use]
    pub fn with_twice_the_lanes(self) -> Tiling {
        Tiling { warps: (self.warps.0, 2 * self.warps.1), ..self }
    }

    /// Whether its tile is no larger than a result of so many rows and columns, which are rounded up to the 16 of a matrix instruction. On the group level
    /// there must be work for a GPU's multiprocessors, too, unless there is no smaller tile, and few rows are for tiles of 16.
    pub fn suits(&self, rows: i64, cols: i64) -> bool {
        let (tm, tn, _) = self.tile;
        let least = if self.groups { GROUP_ROWS } else { 16 };
        let holds = |size: i64, tile: u32| {
            i64::from(tile) <= size.saturating_add(i64::from(least) - 1) / i64::from(least) * i64::from(least)
        };
        if !(holds(rows, tm) && holds(cols, tn)) {
            return false;
        }
        !self.groups || rows >= FEW && (self.fills(rows, cols, 1) || (tm, tn) == (GROUP_ROWS, GROUP_ROWS))
    }

    /// Whether so many results of this size are enough tiles to keep a GPU busy.
    pub(super) fn fills(&self, rows: i64, cols: i64, matrices: i64) -> bool {
        let along = |size: i64, tile: u32| size / i64::from(tile) + i64::from(size % i64::from(tile) > 0);
        let tiles = along(rows, self.tile.0).saturating_mul(along(cols, self.tile.1));
        tiles.saturating_mul(matrices) >= WAVE
    }
}

/// Workgroups that keep a GPU busy: an H100 has 114 to 132 multiprocessors, and each runs one or two. Of 128 × 4096 × 4096 tiles of
/// 64 × 64 make 222 TFLOP/s there, tiles of 128 × 128 only 117.
pub(super) const WAVE: i64 = 112;

/// From so many rows on the group level multiplies: of 16 × 4096 × 4096 its 64 rows make 29 TFLOP/s on an H100, the 16 of sm_80 make 15.
const FEW: i64 = 16;

/// Tilings of an architecture, for large results first.
pub fn tilings(arch: Arch) -> Vec<Tiling> {
    let stages = |ahead: u32| if arch.copies_async() { ahead } else { 2 };
    let of =
        |tile, warps, ahead| Tiling { tile, warps, stages: stages(ahead), bands: 8, groups: false, teams: 0 };
    // Where copies wait in registers, four warps of 32 lanes would have too few of them.
    let large = if arch.copies_async() || arch.lanes() == 64 { (2, 2) } else { (2, 4) };
    let least = Atom::of(arch, DType::F16).map_or(16, |atom| atom.depth.max(16));
    if arch.vendor() == Vendor::Apple {
        // Two stages of f32 and the sums of each warp in 32 KiB; at most 32 sums a lane.
        return vec![
            of((128, 64, 16), (4, 2), 2),
            of((64, 128, 16), (2, 4), 2),
            of((64, 64, 16), (2, 2), 2),
            of((32, 64, 32), (1, 2), 2),
            of((64, 32, 32), (2, 1), 2),
            of((16, 64, 32), (1, 2), 2),
            of((32, 32, least), (1, 1), 2),
        ];
    }
    vec![
        of((128, 128, 32), large, 3),
        of((128, 64, 32), (2, 2), 4),
        of((64, 64, 32), (2, 2), 4),
        of((64, 128, 32), (2, 2), 3),
        of((32, 64, 64), (1, 2), 4),
        of((16, 64, 64), (1, 2), 4),
        of((32, 32, least), (1, 1), 2),
    ]
}

/// The same for operands that are computed as they are copied: more lanes where each would hold many elements on the way, so that no register is spilled.
pub fn computed_tilings(arch: Arch) -> Vec<Tiling> {
    let mut all = tilings(arch);
    if arch.lanes() == 32 && arch.vendor() != Vendor::Apple {
        for tiling in &mut all {
            tiling.warps = match tiling.tile {
                // AMD's copies of the other operand take registers, too.
                (128, 128, _) if arch.vendor() == Vendor::Amd => (4, 4),
                (16, 64, _) if arch.vendor() == Vendor::Amd => (1, 4),
                (128, 128, _) => (2, 4),
                (32, 64, _) => (2, 2),
                (32, 32, _) => (1, 2),
                _ => tiling.warps,
            };
        }
    }
    all
}

/// Tilings whose tiles take more workgroup memory than a kernel may declare, where an architecture's may have more: fewer reads of global memory for
/// large results, but fewer workgroups at once. They are for tuning, none is taken unmeasured.
pub fn large_tilings(arch: Arch) -> Vec<Tiling> {
    let of = |tile, warps| Tiling { tile, warps, stages: 3, bands: 8, groups: false, teams: 0 };
    match arch {
        Arch::Sm80 => {
            vec![of((128, 256, 32), (2, 4)), of((256, 128, 32), (4, 2)), of((128, 128, 64), (2, 2))]
        }
        _ => Vec::new(),
    }
}
