//! How long a matmul or a convolution is likely to take by a tiling: which of many a tuner measures. The model is coarse, and nothing of it was measured; it
//! chooses what is measured, never what is taken.

use super::launch::StepLaunch;
use super::tilings::{Tiling, WAVE};
use crate::atom::Arch;

/// Multiply-adds in the time of copying an element from the second-level cache: sm_90a and sm_100a multiply twice as much in that time as others.
const COPY: u64 = 32;

impl StepLaunch {
    /// The time, relative to other tilings of the same step, on a device of so many compute units: the rounds of tiles, in which each unit has one, times what is
    /// multiplied or copied for a tile, whichever takes longer. Rows and columns beyond the result count as well. `None` where sizes are open, or a workgroup has
    /// several tiles ([`StepLaunch::on_units`]).
    pub fn predicted(&self, units: Option<u32>) -> Option<u64> {
        let tiles = u64::try_from(self.groups.as_const()?).ok()?;
        Some(rounds_of(self.program.arch, &self.tiling, tiles, units))
    }
}

/// What so many tiles take; `arch` is the architecture of the program, so programs of warps on a device of the group level are of sm_80.
fn rounds_of(arch: Arch, tiling: &Tiling, tiles: u64, units: Option<u32>) -> u64 {
    let (rows, cols) = (u64::from(tiling.tile.0), u64::from(tiling.tile.1));
    let units = units.map_or(WAVE.unsigned_abs(), u64::from).max(1);
    // In the time of a copy, instructions of warps multiply half as much as those of groups do.
    let groups = matches!(arch, Arch::Sm90a | Arch::Sm100a);
    let multiplied = if groups { rows * cols } else { 2 * rows * cols };
    let copied = 2 * COPY * (rows + cols);
    tiles.div_ceil(units).saturating_mul(multiplied.max(copied))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{group_tilings, tilings};

    /// The tiles of the tilings of the group level, and of warps, by predicted time, of a result of this size on 132 units.
    fn sorted(rows: u64, cols: u64) -> Vec<(u32, u32)> {
        let warps = tilings(Arch::Sm80).into_iter().map(|tiling| (Arch::Sm80, tiling));
        let groups = group_tilings().into_iter().map(|tiling| (Arch::Sm90a, tiling));
        let mut all: Vec<_> = groups.chain(warps).collect();
        let time = |(arch, tiling): &(Arch, Tiling)| {
            let tiles = rows.div_ceil(u64::from(tiling.tile.0)) * cols.div_ceil(u64::from(tiling.tile.1));
            rounds_of(*arch, tiling, tiles, Some(132))
        };
        all.sort_by_key(time);
        all.iter().map(|(_, tiling)| (tiling.tile.0, tiling.tile.1)).collect()
    }

    #[test]
    fn large_results_are_for_large_tiles_and_few_rows_for_low_ones() {
        let large = sorted(4096, 4096);
        assert_eq!(large[0], (128, 256));
        assert_eq!(large[large.len() - 2..], [(32, 32), (16, 64)]);
        let few = sorted(16, 4096);
        assert_eq!(few[0], (32, 32), "{few:?}");
        let of = |tile| few.iter().position(|&t| t == tile).unwrap();
        assert!(of((16, 64)) < of((64, 64)) && of((64, 64)) < of((128, 256)), "{few:?}");
    }

    #[test]
    fn a_last_round_of_few_tiles_counts_as_a_whole_one() {
        let tiling = tilings(Arch::Sm80)[0];
        let time = |tiles| rounds_of(Arch::Sm80, &tiling, tiles, Some(100));
        assert_eq!((time(100), time(200)), (time(1), 2 * time(100)));
        assert_eq!(time(101), time(200));
    }
}
