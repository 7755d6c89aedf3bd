//! The lists that rows in groups are looked up in ([`super::grouped`]), made of the group that each row has chosen: an ordinary kernel of one workgroup.
//!
//! Rows are counted by group, then each group has as many tiles as its rows take, one group behind the other, and each row a place in its group's tiles. An
//! invocation has one group and every so many-th row, and what the workgroup shares are counts, so nothing is changed by two, and lists are the same in every run:
//!
//! ```text
//! chosen  2 0 2 2 0      tiles of two rows      groups  0      2      2      -
//!                                               result  1 4    0 2    3 -    - -
//! ```

use rlx_ir::DType;
use rlx_kernel::build::Builder;
use rlx_kernel::ir::{Access, Buffer, Kernel, Shared, Ty, Value};

use super::grouped::{ABSENT, LIST};

/// Invocations of the workgroup.
const WORKGROUP: u32 = 256;

/// The most groups: each invocation counts four of so many.
pub(super) const MOST_GROUPS: u32 = 4 * WORKGROUP;

/// What lists are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lists {
    /// The type of choices: i32 or i64. Those below 0 count groups from the end, and what is out of range counts as the nearest group.
    pub chosen: DType,
    /// How many groups, 1 to 1024.
    pub groups: u32,
    /// Rows of a tile.
    pub tile: u32,
    /// Dimensions of the choices where left rows are repeated along some of them: they have a list of their own. 0 where the left operand has the rows of the
    /// result.
    pub dims: usize,
}

/// The sizes of one dispatch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListSizes {
    /// How many rows choose.
    pub rows: i32,
    /// The first choice.
    pub base: i32,
    /// How many tiles there may be.
    pub tiles: i32,
    /// Of each dimension how many there are, and from one to the next how many left rows.
    pub dims: Vec<[i32; 2]>,
}

impl Lists {
    /// The values of the kernel's uniforms.
    pub fn uniform_values(&self, sizes: &ListSizes) -> Vec<i32> {
        [sizes.rows, sizes.base, sizes.tiles]
            .into_iter()
            .chain(sizes.dims.iter().copied().flatten())
            .collect()
    }

    /// Groups that are counted side by side.
    fn abreast(&self) -> u32 {
        self.groups.next_power_of_two().min(WORKGROUP)
    }
}

/// The kernel that makes lists: bound to the choices, and to memory for the group of each tile, the result's row of each row of a tile, and then the left row, where it
/// is another. It is dispatched as one workgroup.
pub fn grouped_lists(what: &Lists) -> Kernel {
    let mut b =
        Builder::new(format!("lists{}.{}.{}x{}", what.dims, what.chosen, what.groups, what.tile), WORKGROUP);
    let chosen = b.buffer("chosen", what.chosen, Access::Read);
    let lists = b.buffer("lists", LIST, Access::Write);
    let [rows, base, tiles] = ["rows", "base", "tiles"].map(|name| b.uniform(name, 0, i32::MAX));
    let dims = (0..what.dims)
        .map(|i| [format!("size{i}"), format!("stride{i}")].map(|name| b.uniform(name, 0, i32::MAX)))
        .collect();
    let abreast = what.abreast();
    let blocks = what.groups.div_ceil(abreast);
    let lane = b.inst(rlx_kernel::ir::Inst::LocalId);
    let side = b.int(abreast as i32);
    let (share, place) = (b.div(lane, side), b.rem(lane, side));
    let (counts, of_groups) = (b.shared(Ty::I32, blocks * WORKGROUP), b.shared(Ty::I32, what.groups));
    let w = Writer { what: *what, chosen, lists, rows, base, tiles, dims, counts, of_groups, share, place };
    (0..blocks).for_each(|block| w.count(&mut b, block));
    b.barrier();
    (0..blocks).for_each(|block| w.divide(&mut b, block));
    b.barrier();
    (0..blocks).for_each(|block| w.fill(&mut b, block));
    w.fill_rest(&mut b, lane);
    b.finish()
}

/// What statements are about.
struct Writer {
    what: Lists,
    chosen: Buffer,
    lists: Buffer,
    rows: Value,
    base: Value,
    tiles: Value,
    dims: Vec<[Value; 2]>,
    /// How many of an invocation's rows are of its group, by invocation.
    counts: Shared,
    /// How many tiles each group has.
    of_groups: Shared,
    /// Which of the invocations of a group this is, and the group's number among those abreast.
    share: Value,
    place: Value,
}

impl Writer {
    fn shares(&self) -> u32 {
        WORKGROUP / self.what.abreast()
    }

    /// Runs `f` with the invocation's group of this block, where there is one.
    fn of_group(&self, b: &mut Builder, block: u32, f: impl FnOnce(&mut Builder, Value)) {
        let first = b.int((block * self.what.abreast()) as i32);
        let (group, all) = (b.add(self.place, first), b.int(self.what.groups as i32));
        let inside = b.lt(group, all);
        b.if_then(inside, |b| f(b, group));
    }

    /// Runs `f` with every one of the invocation's rows that has chosen the group.
    fn each_row(&self, b: &mut Builder, group: Value, f: impl FnOnce(&mut Builder, Value)) {
        b.for_step(self.share, self.rows, self.shares() as i32, |b, row| {
            let at = b.add(self.base, row);
            let number = b.load(self.chosen, at);
            let ty = b.ty(number);
            let (zero, count) = (b.number(ty, 0.0), b.number(ty, f64::from(self.what.groups)));
            let last = b.number(ty, f64::from(self.what.groups - 1));
            let from_end = b.add(number, count);
            let below = b.lt(number, zero);
            let number = b.select(below, from_end, number);
            // A kernel of its own reports what is out of range.
            let number = b.max(number, zero);
            let number = b.min(number, last);
            let number = b.convert(Ty::I32, number);
            let own = b.eq(number, group);
            b.if_then(own, |b| f(b, row));
        });
    }

    fn count(&self, b: &mut Builder, block: u32) {
        self.of_group(b, block, |b, group| {
            let (zero, one) = (b.int(0), b.int(1));
            let count = b.var(zero);
            self.each_row(b, group, |b, _| {
                let so_far = b.get(count);
                let next = b.add(so_far, one);
                b.set(count, next);
            });
            let (at, count) = (self.count_at(b, block, self.share), b.get(count));
            b.store_shared(self.counts, at, count);
        });
    }

    /// Where the count of the group's share is.
    fn count_at(&self, b: &mut Builder, block: u32, share: Value) -> Value {
        let (first, abreast) = (b.int((block * WORKGROUP) as i32), b.int(self.what.abreast() as i32));
        let at = b.mul(share, abreast);
        let at = b.add(at, self.place);
        b.add(first, at)
    }

    /// How many rows the shares before this one have of the group, and how many all have.
    fn counted(&self, b: &mut Builder, block: u32) -> (Value, Value) {
        let zero = b.int(0);
        let (before, all) = (b.var(zero), b.var(zero));
        let shares = b.int(self.shares() as i32);
        b.for_each(shares, |b, share| {
            let at = self.count_at(b, block, share);
            let count = b.load_shared(self.counts, at);
            let (so_far, earlier) = (b.get(all), b.lt(share, self.share));
            let next = b.add(so_far, count);
            b.set(all, next);
            let (so_far, more) = (b.get(before), b.select(earlier, count, zero));
            let next = b.add(so_far, more);
            b.set(before, next);
        });
        (b.get(before), b.get(all))
    }

    /// Gives each group as many tiles as its rows take.
    fn divide(&self, b: &mut Builder, block: u32) {
        self.of_group(b, block, |b, group| {
            let zero = b.int(0);
            let first = b.eq(self.share, zero);
            b.if_then(first, |b| {
                let (_, count) = self.counted(b, block);
                let (less, tile) = (b.int(self.what.tile as i32 - 1), b.int(self.what.tile as i32));
                let up = b.add(count, less);
                let tiles = b.div(up, tile);
                b.store_shared(self.of_groups, group, tiles);
            });
        });
    }

    /// How many tiles the groups before this one have, and how many all have.
    fn tiles_before(&self, b: &mut Builder, group: Value) -> (Value, Value) {
        let zero = b.int(0);
        let (before, all) = (b.var(zero), b.var(zero));
        let groups = b.int(self.what.groups as i32);
        b.for_each(groups, |b, other| {
            let tiles = b.load_shared(self.of_groups, other);
            let (so_far, earlier) = (b.get(all), b.lt(other, group));
            let next = b.add(so_far, tiles);
            b.set(all, next);
            let (so_far, more) = (b.get(before), b.select(earlier, tiles, zero));
            let next = b.add(so_far, more);
            b.set(before, next);
        });
        (b.get(before), b.get(all))
    }

    /// Writes what is of the invocation's group: its tiles, and its rows and those that are not there.
    fn fill(&self, b: &mut Builder, block: u32) {
        self.of_group(b, block, |b, group| {
            let (before, count) = self.counted(b, block);
            let (first_tile, _) = self.tiles_before(b, group);
            let (tile, shares) = (b.int(self.what.tile as i32), self.shares() as i32);
            let tiles = b.load_shared(self.of_groups, group);
            b.for_step(self.share, tiles, shares, |b, i| {
                let at = b.add(first_tile, i);
                b.store(self.lists, at, group);
            });
            let first = b.mul(first_tile, tile);
            let own = b.add(first, before);
            let slot = b.var(own);
            self.each_row(b, group, |b, row| {
                let (at, one) = (b.get(slot), b.int(1));
                let left = self.left_row(b, row);
                self.store(b, at, row, left);
                let next = b.add(at, one);
                b.set(slot, next);
            });
            let (absent, room) = (b.int(ABSENT), b.mul(tiles, tile));
            let from = b.add(count, self.share);
            b.for_step(from, room, shares, |b, i| {
                let at = b.add(first, i);
                self.store(b, at, absent, absent);
            });
        });
    }

    /// Writes the tiles behind all groups, which have nothing.
    fn fill_rest(&self, b: &mut Builder, lane: Value) {
        let none = b.int(0);
        let (_, all) = self.tiles_before(b, none);
        let (absent, tile) = (b.int(ABSENT), b.int(self.what.tile as i32));
        let from = b.add(all, lane);
        b.for_step(from, self.tiles, WORKGROUP as i32, |b, i| b.store(self.lists, i, absent));
        let (used, room) = (b.mul(all, tile), b.mul(self.tiles, tile));
        let from = b.add(used, lane);
        b.for_step(from, room, WORKGROUP as i32, |b, at| self.store(b, at, absent, absent));
    }

    /// The left row that a row of the result is of.
    fn left_row(&self, b: &mut Builder, row: Value) -> Value {
        let (mut rest, mut left) = (row, b.int(0));
        for &[size, stride] in self.dims.iter().rev() {
            let (outer, i) = b.div_rem(rest, size);
            let along = b.mul(i, stride);
            left = b.add(left, along);
            rest = outer;
        }
        left
    }

    /// Says what a row of a tile is: the result's row, and the left operand's.
    fn store(&self, b: &mut Builder, at: Value, row: Value, left: Value) {
        let tile = b.int(self.what.tile as i32);
        let at = b.add(self.tiles, at);
        b.store(self.lists, at, row);
        if self.what.dims > 0 {
            let room = b.mul(self.tiles, tile);
            let at = b.add(at, room);
            b.store(self.lists, at, left);
        }
    }
}
