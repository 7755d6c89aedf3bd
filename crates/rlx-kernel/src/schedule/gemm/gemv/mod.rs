//! Matmuls of few rows whose sums are divided among the invocations of a workgroup.
//!
//! Such a matmul is as fast as its right matrix is read. One invocation for each result reads it by single elements, in as long a chain as the matrix is
//! deep; here a workgroup has a few columns and all of the depth, and each of its invocations a part of both, of which it reads 16 bytes at a time, several
//! times before it multiplies the first. Then the parts are added through workgroup memory, in an order that is always the same, and what is behind the
//! matmul is done with the results. So one dispatch without scratch memory reads the matrix once, and many workgroups at once do even where columns are few.
//!
//! ```text
//! Along::Columns, two lanes along the columns     Along::Depth, two columns for a lane, eight lanes along the depth
//!   w[k, n..]: lane 0 | lane 1                      w[n, k..]: lane 0 | lane 1 | … | lane 7 | lane 0 | …
//!              lane 2 | lane 3                                 the same lanes
//!              …                                    w[n + 2, k..]: lane 8 | lane 9 | …
//! ```
//!
//! **The sum is another one** than that of the variants: each invocation has a chain in order of its own `k`; of those that are 32 numbers apart the chains are added in
//! order, and then these 32 (or as many as have the same column). How it is divided follows from the matrix alone, the right one, and not from the number of
//! rows, so a row has the same bits whatever the others are.

mod joined;
mod loads;

use std::fmt;

use rlx_ir::Extent;

use self::joined::Joined;
use self::loads::Loads;
use super::{Gemm, Neighbours, Operands, Sums, Tile, Tiling};
use crate::ir::Ty;
use crate::schedule::cx::Cx;
use crate::schedule::{Launch, Scheduled, divides_sums_of, reject};

/// Invocations of a workgroup; more, where devices have them, if there are few workgroups.
const LANES: i32 = 256;
/// See [`LANES`].
const MOST_LANES: i32 = 512;
/// Chains that are added last: those of so many neighbouring invocations.
const LAST: i32 = 32;
/// Bytes that an invocation reads at once, where the matrix allows it.
const BYTES: i64 = 16;
/// Bytes of a row that a workgroup reads, at least: what memory is read in.
const LEAST_BYTES: i64 = 32;
/// Bytes of a row that a workgroup reads, at most.
const MOST_BYTES: i64 = 128;
/// Accesses to the right matrix that an invocation has under way.
const UNDER_WAY: i32 = 8;
/// Steps of the sum that an invocation with neighbouring columns takes at once: those of which it reads the left matrix by one access.
const STEPS: i32 = 4;
/// Columns that an invocation has, at most, where it reads along the depth.
const MOST_COLUMNS: i32 = 4;
/// Workgroups that are enough to fill a large GPU.
const MANY: i64 = 128;
/// Sums of an invocation that are in workgroup memory together.
const TOGETHER: i32 = 8;
/// Rows, at most.
pub(in crate::schedule) const MOST_ROWS: i64 = 4;
/// The depth from which on it is worth dividing.
const DEEP: i64 = 128;
/// What an open depth is taken for: that of attention's weights and values. It is odd, as an open one may be.
const OPEN_DEPTH: i64 = 1023;

/// Which neighbours an invocation reads together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Along {
    Columns,
    Depth,
}

/// What a workgroup may have on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Invocations.
    pub lanes: u32,
    /// Bytes of memory.
    pub shared_bytes: usize,
}

/// How a workgroup divides its columns and the depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gemv {
    /// Rows of the result that a workgroup makes.
    rows: i32,
    along: Along,
    /// Elements of the right matrix that are read by one access.
    width: i32,
    /// Neighbouring steps of the sum that an invocation takes at once.
    steps: i32,
    /// Columns of an invocation.
    own: i32,
    /// Invocations along the columns.
    across: i32,
    /// Invocations along the depth.
    deep: i32,
}

impl Gemv {
    /// How a matmul of few rows is divided, for workgroups of `rows` rows, where it is worth it. Such `neighbours` of the right matrix are read together; workgroups
    /// are as large as there is `room`.
    ///
    /// # Errors
    /// Why it is not divided.
    pub(in crate::schedule) fn of(
        p: &Gemm,
        neighbours: Neighbours,
        rows: i64,
        room: Room,
    ) -> Scheduled<Gemv> {
        if !divides_sums_of(p.dtype) {
            return reject(format!("a sum of {}", p.dtype));
        }
        let &[depth] = &p.k[..] else { return reject("a sum along several dimensions") };
        let depth = match depth {
            Extent::Const(depth @ DEEP..) => depth,
            Extent::Const(depth) => return reject(format!("a sum of {depth}")),
            _ => OPEN_DEPTH,
        };
        let (Some(columns), Some(batch)) =
            (super::elements(&p.n).as_const(), super::elements(&p.batch).as_const())
        else {
            return reject("columns, or matrices, whose number is not known");
        };
        let element = p.dtype.bits() as i64 / 8;
        let gemv = Gemv {
            rows: rows as i32,
            along: Along::Columns,
            width: 1,
            steps: 1,
            own: 1,
            across: 1,
            deep: LANES,
        };
        let sizes = [batch, depth, columns];
        Ok(match neighbours {
            Neighbours::Columns(most) => {
                let gemv = gemv.along_columns((most as i64).min(BYTES / element), element, sizes);
                let more = gemv.of_more_lanes();
                if more.suits(sizes) && more.fits(room) { more } else { gemv }
            }
            Neighbours::Depth(most) => gemv.along_depth((most as i64).min(BYTES / element), sizes),
        })
    }

    /// As few lanes along the columns as make enough workgroups, and have something to do.
    fn along_columns(self, width: i64, element: i64, [batch, depth, columns]: [i64; 3]) -> Gemv {
        let steps = if depth % i64::from(STEPS) == 0 { STEPS } else { 1 };
        let lanes = |bytes: i64| (bytes / (width * element)).clamp(1, i64::from(LAST)) as i32;
        let mut across = lanes(MOST_BYTES);
        let groups = |across: i32| {
            batch * (columns + width * i64::from(across) - 1).div_euclid(width * i64::from(across))
        };
        let busy = |across: i32| i64::from(LANES / across * steps) <= depth;
        while across > lanes(LEAST_BYTES) && groups(across) < MANY && busy(across / 2) {
            across /= 2;
        }
        let width = width as i32;
        Gemv { along: Along::Columns, width, steps, own: width, across, deep: LANES / across, ..self }
    }

    /// The same for workgroups of more invocations along the depth.
    fn of_more_lanes(self) -> Gemv {
        Gemv { deep: MOST_LANES / self.across, ..self }
    }

    /// Whether workgroups are few, and all of their invocations have something to do.
    fn suits(self, [batch, depth, columns]: [i64; 3]) -> bool {
        let tile = i64::from(self.own * self.across);
        batch * (columns + tile - 1).div_euclid(tile) < MANY && i64::from(self.deep * self.steps) <= depth
    }

    fn fits(self, room: Room) -> bool {
        let bytes = 4 * self.shared_len() as usize;
        self.workgroup() <= room.lanes && bytes <= room.shared_bytes
    }

    /// Lanes along the depth that have two accesses at least; fewer columns for each, and then more lanes, until there are enough workgroups.
    fn along_depth(self, width: i64, [batch, depth, columns]: [i64; 3]) -> Gemv {
        let (mut deep, mut own) = (LAST, MOST_COLUMNS);
        while deep < LANES && i64::from(4 * deep) * width <= depth {
            deep *= 2;
        }
        let groups = |deep: i32, own: i32| batch * columns / i64::from(LANES / deep * own);
        while own > 1 && groups(deep, own) < MANY {
            own /= 2;
        }
        while deep < LANES && groups(deep, own) < MANY && i64::from(2 * deep) * width <= depth {
            deep *= 2;
        }
        let width = width as i32;
        Gemv { along: Along::Depth, width, steps: width, own, across: LANES / deep, deep, ..self }
    }

    /// Invocations of a workgroup.
    const fn lanes(self) -> i32 {
        self.across * self.deep
    }

    /// Invocations of a workgroup.
    pub const fn workgroup(self) -> u32 {
        self.lanes() as u32
    }

    /// How many elements of the right matrix are read together.
    pub(in crate::schedule) fn width(self) -> usize {
        self.width as usize
    }

    /// How many elements of the left matrix are taken at once.
    pub(in crate::schedule) fn steps(self) -> usize {
        self.steps as usize
    }

    /// How many blocks, each of some steps of the sum, an invocation reads before it multiplies the first one: so many that [`UNDER_WAY`] accesses to the right matrix are under
    /// way, or fewer where rows take most registers. It changes no bit.
    fn blocks(self) -> i32 {
        let of_block = if self.along == Along::Columns { self.steps } else { self.own };
        (2 * UNDER_WAY / (of_block + self.rows)).clamp(2, (UNDER_WAY / of_block).max(2))
    }

    fn tile(self) -> Tile {
        Tile::new(self.rows, self.own * self.across, self.rows, self.own)
    }

    /// Neighbouring invocations between which sums of one column are added: all, or those of one column.
    fn block(self) -> i32 {
        match self.along {
            Along::Columns => self.lanes(),
            Along::Depth => self.deep,
        }
    }

    /// How many of [`LAST`] neighbouring invocations have other columns.
    fn interleaved(self) -> i32 {
        match self.along {
            Along::Columns => self.across,
            Along::Depth => 1,
        }
    }

    /// Rows whose sums are in workgroup memory together.
    fn rows_together(self) -> i32 {
        (TOGETHER / self.own).clamp(1, self.rows)
    }

    /// Where sums that are added last are in workgroup memory: so far from those of one column to those of the next, which no two lanes find in one bank.
    fn pitch(self) -> i32 {
        LAST + self.interleaved()
    }

    /// Of those, how many columns and rows there are together.
    fn kept(self) -> i32 {
        self.rows_together() * self.own * self.lanes() / self.block()
    }

    /// Whether sums go into workgroup memory where those are that are added last.
    fn is_last_alone(self) -> bool {
        self.block() == LAST
    }

    /// Elements of workgroup memory: sums of all invocations, those that are added last, results that wait for others.
    fn memory(self) -> [i32; 3] {
        let together = self.rows_together();
        let all = if self.is_last_alone() { 0 } else { together * self.own * self.lanes() };
        let results = if together < self.rows { self.rows * self.own * self.across } else { 0 };
        [all, self.kept() * self.pitch(), results]
    }

    /// Elements of workgroup memory.
    pub(super) fn shared_len(self) -> u32 {
        self.memory().iter().sum::<i32>() as u32
    }
}

impl fmt::Display for Gemv {
    /// `gemv1x8.k128.columns4`: rows and columns of a workgroup, invocations along the depth, what is read by one access.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let along = if self.along == Along::Columns { "columns" } else { "depth" };
        let columns = self.own * self.across;
        write!(f, "gemv{}x{columns}.k{}.{along}{}", self.rows, self.deep, self.width)
    }
}

pub(super) fn launch(cx: Cx<'_>, p: &Gemm, gemv: Gemv, operands: Operands<'_>) -> Scheduled<Launch> {
    let Operands { a, b, wide, finish, .. } = operands;
    let (wide_a, wide_b) = wide.map_or((None, None), |wide| (wide.a, Some(wide.b)));
    let mut loads = Loads { gemv, a, b, wide_a, wide_b };
    Tiling::launch(cx, p, gemv.tile(), |cx, tiling, place| {
        let sums = Sums::new(cx, p, gemv.tile());
        loads.sum(cx, tiling, place, &sums)?;
        let memory = gemv.memory().map(|len| (len > 0).then(|| cx.b.shared(Ty::F32, len as u32)));
        Joined { gemv, tiling, place, memory }.finish(cx, &sums, finish)
    })
}
