//! What kernels ask of a GPU's memory, counted as they are interpreted.
//!
//! A GPU runs the invocations of a workgroup in warps of 32, and its memory serves what a warp asks for at once. How well it does depends on
//! the addresses alone, so it is known without a GPU:
//!
//! - **Buffers** are read and written in sectors of 32 bytes. A warp that reads 32 neighbouring `f32` takes 4 sectors; one that reads a
//!   column of a matrix takes 32.
//! - **Workgroup memory** has 32 banks of 4 bytes, each of which serves one word at a time. A warp whose addresses are in the same bank
//!   but not in the same word waits for as many passes (a *bank conflict*). Elements of 8 bytes are served half a warp at a time,
//!   16 bytes a quarter of one.
//! - **Divisions** of integers by what is no constant take some twenty instructions each.
//! - **Exchanges** of values within a warp are instructions as accesses to workgroup memory are, and need no barrier.
//! - **Atomics** on one word, **barriers** and the longest chain of loop iterations of an invocation (*serial steps*) are time in which
//!   the rest of the device may have nothing to do.
//!
//! The counters make no claim about time: caches, occupancy and the compiler are not in them. They are exact where all workgroups are run;
//! of a [`Sample`] the workgroups in the middle stand for those between them.

use std::fmt;
use std::ops::AddAssign;

use crate::ir::{Inst, Kernel, Shared, SharedDecl, Stmt, Value};

/// Invocations of a warp.
pub const WARP: usize = 32;
/// Banks of workgroup memory, each one word wide.
pub const BANKS: u64 = 32;
/// Bytes of a bank's word.
pub const WORD_BYTES: u64 = 4;
/// Bytes that buffers are read and written in.
pub const SECTOR_BYTES: u64 = 32;

/// What kernels did. Of several dispatches it is the sum, but for `ways` and `serial`: their maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Workgroups.
    pub groups: u64,
    /// Accesses of a warp to buffers.
    pub accesses: u64,
    /// Sectors of buffers that these touch, each counted once for an access.
    pub sectors: u64,
    /// Accesses of a warp (of half a warp, for 8-byte elements) to workgroup memory.
    pub shared: u64,
    /// Passes that these take beyond the first.
    pub conflicts: u64,
    /// The most passes of one access; 1 where there is no conflict, 0 where no workgroup memory is used.
    pub ways: u64,
    /// Atomic operations on words of buffers: two for each change of some bits of a word.
    pub atomics: u64,
    /// Barriers, counted once for a workgroup.
    pub barriers: u64,
    /// The longest chain of loop iterations of one invocation.
    pub serial: u64,
    /// Divisions of integers by what is no constant, and remainders, that a warp does.
    pub divisions: u64,
    /// Exchanges of values between the invocations of a warp.
    pub exchanges: u64,
}

impl Counters {
    /// The counters that may not grow, by name: everything but `groups`, since a kernel may be
    /// better for having more of them.
    pub fn costs(&self) -> [(&'static str, u64); 10] {
        [
            ("accesses", self.accesses),
            ("sectors", self.sectors),
            ("shared", self.shared),
            ("conflicts", self.conflicts),
            ("ways", self.ways),
            ("atomics", self.atomics),
            ("barriers", self.barriers),
            ("serial", self.serial),
            ("divisions", self.divisions),
            ("exchanges", self.exchanges),
        ]
    }

    /// An access of a warp to the bits `(first, count)` of a buffer, a pair for each active lane.
    pub fn buffer_access(&mut self, bits: impl Iterator<Item = (u64, u64)>) {
        let sector = |bit: u64| bit / (8 * SECTOR_BYTES);
        let mut sectors: Vec<u64> =
            bits.flat_map(|(first, count)| sector(first)..=sector(first + count - 1)).collect();
        sectors.sort_unstable();
        sectors.dedup();
        self.accesses += 1;
        self.sectors += sectors.len() as u64;
    }

    /// An access to words of workgroup memory by as many lanes as are served at once.
    pub fn shared_access(&mut self, words: impl Iterator<Item = u64>) {
        let mut used: Vec<u64> = words.collect();
        used.sort_unstable();
        used.dedup();
        let mut passes = [0u64; BANKS as usize];
        used.iter().for_each(|word| passes[(word % BANKS) as usize] += 1);
        let most = passes.into_iter().max().unwrap_or(1);
        self.shared += 1;
        self.conflicts += most - 1;
        self.ways = self.ways.max(most);
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.groups += other.groups;
        self.accesses += other.accesses;
        self.sectors += other.sectors;
        self.shared += other.shared;
        self.conflicts += other.conflicts;
        self.ways = self.ways.max(other.ways);
        self.atomics += other.atomics;
        self.barriers += other.barriers;
        self.serial = self.serial.max(other.serial);
        self.divisions += other.divisions;
        self.exchanges += other.exchanges;
    }
}

impl fmt::Display for Counters {
    /// `groups 2, accesses 40, …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "groups {}", self.groups)?;
        self.costs().iter().try_for_each(|(name, n)| write!(f, ", {name} {n}"))
    }
}

/// Which workgroups of a dispatch are run: at most so many, evenly spread, the first and the last among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample(pub i64);

impl Sample {
    /// All of them.
    pub const ALL: Sample = Sample(i64::MAX);

    /// The numbers of the workgroups to run, of `groups`.
    pub(super) fn of(self, groups: i64) -> impl Iterator<Item = i64> {
        let n = groups.min(self.0).max(0);
        let last = i128::from(groups - 1);
        (0..n).map(move |i| (i128::from(i) * last / i128::from((n - 1).max(1))) as i64)
    }
}

/// The counters of `groups` workgroups of which those that a [`Sample`] has were run: the first and the last are themselves, the others
/// stand for all between.
fn whole(groups: u64, run: &[Counters]) -> Counters {
    let sum = |parts: &[Counters]| {
        let mut sum = Counters::default();
        parts.iter().for_each(|&part| sum += part);
        sum
    };
    let (outer, inner) = match run {
        [_] => (Counters::default(), sum(run)),
        [first, last] => (*last, *first),
        [first, inner @ .., last] => (sum(&[*first, *last]), sum(inner)),
        [] => return Counters::default(),
    };
    let (of, to) = (inner.groups.max(1), groups - outer.groups);
    let all = |n: u64| (u128::from(n) * u128::from(to) / u128::from(of)) as u64;
    let mut total = Counters {
        groups: all(inner.groups),
        accesses: all(inner.accesses),
        sectors: all(inner.sectors),
        shared: all(inner.shared),
        conflicts: all(inner.conflicts),
        ways: inner.ways,
        atomics: all(inner.atomics),
        barriers: all(inner.barriers),
        serial: inner.serial,
        divisions: all(inner.divisions),
        exchanges: all(inner.exchanges),
    };
    total += outer;
    total
}

/// Counters of a dispatch under way.
pub(super) struct Counting {
    /// Those of the present workgroup.
    pub counters: Counters,
    /// Those of the workgroups that are done.
    done: Vec<Counters>,
    /// Loop iterations of each invocation of the present workgroup.
    serial: Vec<u64>,
    /// Where each array of workgroup memory begins, and the words of its elements.
    arrays: Vec<(u64, u64)>,
    /// Which values are constants.
    constants: Vec<bool>,
}

impl Counting {
    pub fn new(kernel: &Kernel) -> Self {
        let mut end = 0;
        let mut array = |decl: &SharedDecl| {
            let (start, words) = (end, if decl.ty.bits() == 64 { 2 } else { 1 });
            end += u64::from(decl.len) * words;
            (start, words)
        };
        let arrays = kernel.shared.iter().map(&mut array).collect();
        let mut constants = vec![false; kernel.values.len()];
        kernel.for_each_stmt(&mut |s| {
            if let Stmt::Let(v, Inst::Const(_)) = s {
                constants[v.index()] = true;
            }
        });
        let (counters, done) = (Counters::default(), Vec::new());
        Counting { counters, done, serial: vec![0; kernel.workgroup as usize], arrays, constants }
    }

    /// The active invocations divide integers by `divisor`.
    pub fn divide(&mut self, divisor: Value, active: &[bool]) {
        if !self.constants[divisor.index()] {
            self.counters.divisions += active.chunks(WARP).filter(|warp| warp.contains(&true)).count() as u64;
        }
    }

    /// The active invocations exchange a value.
    pub fn exchange(&mut self, active: &[bool]) {
        self.counters.exchanges += active.chunks(WARP).filter(|warp| warp.contains(&true)).count() as u64;
    }

    /// A workgroup begins.
    pub fn begin(&mut self) {
        self.counters = Counters { groups: 1, ..Counters::default() };
        self.serial.fill(0);
    }

    /// A workgroup has ended.
    pub fn end(&mut self) {
        self.counters.serial = self.serial.iter().max().copied().unwrap_or(0);
        self.done.push(self.counters);
    }

    /// The counters of a dispatch of so many workgroups.
    pub fn total(&self, groups: i64) -> Counters {
        whole(u64::try_from(groups).unwrap_or(0), &self.done)
    }

    /// The active invocations begin an iteration of a loop.
    pub fn iterate(&mut self, active: &[bool]) {
        self.serial.iter_mut().zip(active).for_each(|(n, &a)| *n += u64::from(a));
    }

    /// Every invocation accesses the bits `(first, count)` of a buffer; `None` where it is not active.
    pub fn buffer(&mut self, bits: &[Option<(u64, u64)>]) {
        for warp in bits.chunks(WARP).filter(|warp| warp.iter().any(Option::is_some)) {
            self.counters.buffer_access(warp.iter().flatten().copied());
        }
    }

    /// Every invocation accesses element `index` of workgroup memory; `None` where it is not active.
    pub fn shared(&mut self, shared: Shared, indices: &[Option<u64>]) {
        let (start, words) = self.arrays[shared.index()];
        let at_once = WARP / words as usize;
        for lanes in indices.chunks(at_once).filter(|lanes| lanes.iter().any(Option::is_some)) {
            let used = lanes.iter().flatten().flat_map(|&i| (0..words).map(move |w| start + i * words + w));
            self.counters.shared_access(used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Ty;

    fn counting(ty: Ty) -> Counting {
        let mut builder = crate::build::Builder::new("test", 32);
        builder.shared(ty, 4096);
        Counting::new(&builder.finish())
    }

    fn shared(ty: Ty, at: impl Fn(u64) -> Option<u64>) -> Counters {
        let mut counting = counting(ty);
        counting.shared(Shared(0), &(0..32).map(at).collect::<Vec<_>>());
        counting.counters
    }

    #[test]
    fn banks_serve_one_word_at_a_time() {
        assert_eq!(shared(Ty::F32, Some).ways, 1);
        assert_eq!(shared(Ty::F32, |_| Some(7)).ways, 1, "one word goes to all");
        assert_eq!(shared(Ty::F32, |l| Some(2 * l)).ways, 2);
        assert_eq!(shared(Ty::F32, |l| Some(32 * l)).ways, 32);
        assert_eq!(shared(Ty::F32, |l| Some(33 * l)).ways, 1);
        let few = shared(Ty::F32, |l| (l < 3).then_some(32 * l));
        assert_eq!((few.shared, few.conflicts, few.ways), (1, 2, 3));
        let wide = shared(Ty::F64, Some);
        assert_eq!((wide.shared, wide.conflicts), (2, 0), "half a warp at a time");
        assert_eq!(shared(Ty::F64, |l| Some(16 * l)).ways, 16);
    }

    #[test]
    fn sectors_are_counted_once_for_an_access() {
        let sectors = |bits: u64, at: &dyn Fn(u64) -> u64| {
            let mut counting = counting(Ty::F32);
            counting.buffer(&(0..32).map(|l| Some((at(l) * bits, bits))).collect::<Vec<_>>());
            counting.counters.sectors
        };
        assert_eq!(sectors(32, &|l| l), 4);
        assert_eq!(sectors(32, &|l| l + 1), 5);
        assert_eq!(sectors(16, &|l| l), 2);
        assert_eq!(sectors(32, &|_| 3), 1);
        assert_eq!(sectors(32, &|l| l * 100), 32);
    }

    #[test]
    fn workgroups_in_the_middle_stand_for_those_between() {
        let one = |sectors: u64, serial: u64| Counters { groups: 1, sectors, serial, ..Counters::default() };
        assert_eq!(
            whole(10, &[one(8, 1), one(4, 2), one(6, 2), one(1, 1)]),
            Counters { groups: 10, ..one(49, 2) }
        );
        assert_eq!(whole(10, &[one(8, 1), one(1, 1)]), Counters { groups: 10, ..one(73, 1) });
        assert_eq!(whole(10, &[one(8, 1)]), Counters { groups: 10, ..one(80, 1) });
        assert_eq!(whole(0, &[]), Counters::default());
    }

    #[test]
    fn a_sample_has_the_first_and_the_last() {
        let of = |most: i64, groups: i64| Sample(most).of(groups).collect::<Vec<_>>();
        assert_eq!(of(3, 10), [0, 4, 9]);
        assert_eq!(of(3, 2), [0, 1]);
        assert_eq!(of(1, 5), [0]);
        assert_eq!(of(4, 0), [0; 0]);
        assert_eq!(Sample::ALL.of(5).count(), 5);
    }
}
