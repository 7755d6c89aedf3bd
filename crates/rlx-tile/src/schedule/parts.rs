//! What few workgroups would do for long, divided among many: how many parts, and how long each is.
//!
//! A decoder multiplies one row by large weights, and looks up one query among many keys; the last convolutions of an image net have 49 places, and sum over
//! thousands of taps and channels. Such a step has few tiles of a result, each a long sum, so that most of a GPU would have nothing to do. It is divided
//! along the sum then: a workgroup sums over a part, into scratch memory, and a second dispatch joins the parts of each result in their order.
//!
//! What is counted are tiles of the smallest tiling, 16 rows by 64 columns: a larger tile is the work, and the scratch memory, of so many of those. So a unit is
//! given four workgroups of 16 rows, or one of 64, and how many parts there are does not depend on the tiling.
//!
//! ```
//! use rlx_ir::Extent;
//! use rlx_tile::schedule::{Division, Parts};
//! // One row by a weight of [4096, 4096]: 64 tiles, 7 workgroups for each of them on a GPU of 108 units.
//! let parts = Parts::of(Extent::Const(4096), Extent::Const(64), 108, Division::for_units(Some(108)).least_depth);
//! assert_eq!((parts.count.as_const(), parts.each.as_const()), (Some(7), Some(640)));
//! ```

use rlx_ir::Extent;

/// Workgroups of the smallest tiles that each compute unit of a device should have: they are small, and several run on a unit at the same time. Not
/// measured.
const GROUPS_OF_UNIT: i64 = 4;

/// The compute units of a device that does not say how many it has: as many as middling ones have.
const UNKNOWN_UNITS: u32 = 80;

/// The least depth of a part of a matmul. Sums of a part are written and read as f32, from the caches of a GPU: ResNet-50's 3 × 3 convolutions of one image take an H100
/// less time the more parts there are (0.95 ms for the net with 512, 0.68 with 128, 0.62 with 64).
const LEAST_DEPTH: i64 = 64;

/// The fewest keys of a part of an attention.
const LEAST_KEYS: i64 = 256;

/// Parts are multiples of this, and so of what every tiling sums over in a step: all tilings give the same bits.
pub(super) const MULTIPLE: i64 = 64;

/// Rows of the smallest tile.
pub(super) const FEW_ROWS: u32 = 16;

/// The most rows of an attention that is divided: queries of all heads that share keys, which are many where all heads do.
pub(super) const FEW_QUERIES: u32 = 64;

/// What decides how many parts there are, besides sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Division {
    /// The device's compute units.
    pub units: u32,
    /// The least depth of a part of a matmul.
    pub least_depth: i64,
    /// The fewest keys of a part of an attention.
    pub least_keys: i64,
}

impl Division {
    /// For a device of so many compute units, where it says how many.
    pub fn for_units(units: Option<u32>) -> Division {
        let units = units.filter(|&units| units > 0).unwrap_or(UNKNOWN_UNITS);
        Division { units, least_depth: LEAST_DEPTH, least_keys: LEAST_KEYS }
    }
}

/// How something is divided into parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// How many there are, at least one. None is empty, unless there is nothing to divide.
    pub count: Extent,
    /// How much each is but for the last, which may be less.
    pub each: Extent,
    /// The most parts of all groups together where there are several for each: what memory for them follows from, however open the sizes are.
    pub most: i64,
}

impl Parts {
    /// Divides `whole` for each of `groups` workgroups, so that a device of so many compute units has enough of them, into parts of at least `least`.
    /// All of it follows from these numbers; those of a run may be open.
    pub fn of(whole: Extent, groups: Extent, units: u32, least: i64) -> Parts {
        Parts::in_multiples(whole, groups, (units, least), MULTIPLE)
    }

    /// The same in parts that are multiples of a number, itself a multiple of what every tiling sums over in a step.
    pub(super) fn in_multiples(
        whole: Extent,
        groups: Extent,
        (units, least): (u32, i64),
        multiple: i64,
    ) -> Parts {
        let wanted = i64::from(units) * GROUPS_OF_UNIT;
        let count = Extent::Const(wanted).ceil_div(groups.max(1)).min(whole.floor_div(least).max(1));
        let each = (whole.ceil_div(count).ceil_div(multiple) * multiple).max(multiple);
        Parts { count: whole.ceil_div(each).max(1), each, most: 2 * wanted }
    }
}

#[cfg(test)]
mod tests {
    use rlx_ir::sym;
    use rlx_ir::testing::Gen;

    use super::*;

    fn numbers(whole: i64, groups: i64, units: u32, least: i64) -> (i64, i64) {
        let parts = Parts::of(Extent::Const(whole), Extent::Const(groups), units, least);
        (parts.count.as_const().unwrap(), parts.each.as_const().unwrap())
    }

    #[test]
    fn few_workgroups_have_many_parts_and_many_have_one() {
        let of = |whole, groups| numbers(whole, groups, 108, 512);
        assert_eq!(of(4096, 1), (8, 512));
        assert_eq!(of(4096, 64), (7, 640));
        assert_eq!(of(11008, 64), (7, 1600));
        assert_eq!(of(4096, 432), (1, 4096));
        assert_eq!(of(4096, 100_000), (1, 4096));
        // What is short is not divided, and nothing is one empty part.
        assert_eq!(of(1023, 1), (1, 1024));
        assert_eq!(of(0, 1), (1, 64));
        assert_eq!(of(4096, 0), (8, 512));
        // The last layers of ResNet-50: 49 places by 512 filters, and 196 by 256, of windows of 3×3.
        assert_eq!(of(9 * 512, 4 * 8), (9, 512));
        assert_eq!(of(9 * 256, 13 * 4), (4, 576));
    }

    #[test]
    fn parts_are_multiples_of_blocks() {
        let of = |whole, multiple| {
            let parts = Parts::in_multiples(Extent::Const(whole), Extent::Const(64), (108, 512), multiple);
            (parts.count.as_const().unwrap(), parts.each.as_const().unwrap())
        };
        assert_eq!(of(4096, 64), (7, 640));
        assert_eq!(of(4096, 256), (6, 768));
        assert_eq!(of(4096, 1024), (4, 1024));
        assert_eq!(of(1152, 192), (2, 576));
        // A block that is longer than a part would be.
        assert_eq!(of(4096, 4096), (1, 4096));
    }

    #[test]
    fn parts_cover_all_and_none_is_empty_or_too_short() {
        let mut g = Gen::new(1);
        for _ in 0..5000 {
            let (whole, groups) = (g.int(1..=200_000), g.int(1..=2000));
            let (units, least) = (g.int(1..=300) as u32, g.pick(&[LEAST_DEPTH, LEAST_KEYS]));
            let parts = Parts::of(Extent::Const(whole), Extent::Const(groups), units, least);
            let (count, each) = numbers(whole, groups, units, least);
            assert!((count - 1) * each < whole && whole <= count * each, "{whole} in {count} of {each}");
            assert!(each % MULTIPLE == 0 && (count == 1 || each >= least), "{whole} in {count} of {each}");
            let few = count == 1 || count * groups <= parts.most;
            assert!(few, "{count} parts of {groups} groups on {units} units");
        }
    }

    #[test]
    fn open_sizes_give_the_numbers_of_known_ones() {
        let (whole, groups) = (Extent::sym(sym::PAST_SEQ), Extent::sym(sym::BATCH) * 8);
        let parts = Parts::of(whole, groups, 132, LEAST_KEYS);
        for (past, batch) in [(0, 1), (1, 1), (300, 1), (4096, 1), (4096, 7), (131_072, 1), (131_072, 64)] {
            let value = |s: u32| Some(if s == sym::BATCH { batch } else { past });
            let found = (parts.count.eval(&value), parts.each.eval(&value));
            let (count, each) = numbers(past, 8 * batch, 132, LEAST_KEYS);
            assert_eq!(found, (Some(count), Some(each)), "{past} keys, {batch} items");
        }
    }
}
