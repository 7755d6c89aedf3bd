//! Sorting and selecting within a workgroup, of pairs of a key and a place. No two pairs are equal, so there is one order of them: by the key and,
//! where keys tie, by the place.
//!
//! Sorting is a bitonic network in workgroup memory: in each of its stages, every invocation compares its own pairs with others that are a power of two
//! away, and keeps one of the two. Invocations side by side read and write pairs side by side, so no two of them meet in a bank.
//!
//! Selecting finds the pair of a rank digit by digit, of two bits each, from the highest on: how many of the pairs that agree in the digits so far have
//! a smaller digit than 1, 2 and 3 says which digit the wanted pair has. The place's digits are behind those of the key. So the number of steps depends
//! on the row's length alone, never on its elements.

use rlx_ir::{DType, op::ReduceOp};

use super::Scheduled;
use super::cx::Cx;
use super::order::{greatest_key, key_type};
use super::reduce::Combine;
use super::scan::in_front;
use crate::build::Builder;
use crate::ir::{BinOp, Const, Inst, Shared, Ty, Value, Var};

/// Invocations of a workgroup that sorts.
pub(super) const LANES: u32 = 256;

/// The most pairs that a workgroup sorts: with 64-bit keys they and the counts take 15 KiB of memory, and every device has 16.
pub(super) const MOST: i64 = 1024;

/// The most keys that an invocation keeps while pairs are selected. It computes those of longer rows again for each digit.
const KEPT: u32 = 32;

/// The most elements of a row whose keys are kept.
pub(super) const LONGEST: usize = (KEPT * LANES) as usize;

/// Banks of workgroup memory.
const BANKS: u32 = 32;

/// Bits of a digit.
const DIGIT: u32 = 2;

/// Digits that are counted, of the invocations' own elements below each.
const COUNTS: u32 = (1 << DIGIT) - 1;

/// From the counts of one digit to those of the next: a little further than there are invocations, so that equal lanes of each are in other banks.
const APART: u32 = LANES + 8;

/// Counts that an invocation adds up before it waits for others.
const JOINED: u32 = 8;

/// How many counts there are after one round, and after two.
const ROUNDS: [u32; 2] = [LANES / JOINED, LANES / JOINED / JOINED];

/// What computes the key of the element at a place.
type Key<'k, 'a> = &'k mut dyn FnMut(&mut Cx<'a>, Value) -> Scheduled<Value>;

/// A key and a place.
type Pair = (Value, Value);

/// What is done with a pair.
type OnPair<'f, 'a> = &'f mut dyn FnMut(&mut Cx<'a>, Pair) -> Scheduled<()>;

/// What [`Source::digits`] asks of a pair, shifted by so many bits.
type Differs<'f> = &'f mut dyn FnMut(&mut Builder, Value, Pair) -> (Value, Option<Value>);

/// How many pairs a workgroup sorts for so many that are wanted: a power of two.
pub(super) fn length(wanted: Option<i64>) -> u32 {
    let wanted = wanted.map_or(MOST, |n| n.min(MOST)).max(i64::from(LANES));
    (wanted as u32).next_power_of_two()
}

/// Pairs in workgroup memory, of which each invocation has some.
pub(super) struct Sorter {
    len: u32,
    lane: Value,
    keys: Shared,
    places: Shared,
    key_type: Ty,
    /// An invocation's own pairs, [`LANES`] apart.
    own: Vec<(Var, Var)>,
}

impl Sorter {
    /// Room for `len` pairs (a multiple of [`LANES`]) whose keys are those of elements of type `ty`.
    pub fn new(b: &mut Builder, ty: Ty, len: u32) -> Sorter {
        let key_type = key_type(ty);
        let lane = b.inst(Inst::LocalId);
        let (keys, places) = (b.shared(key_type, len), b.shared(Ty::I32, len));
        let own = (0..len / LANES).map(|_| (b.declare_var(key_type), b.declare_var(Ty::I32))).collect();
        Sorter { len, lane, keys, places, key_type, own }
    }

    /// What stands behind all elements.
    fn nothing(&self, b: &mut Builder) -> (Value, Value) {
        (greatest_key(b, self.key_type), b.int(i32::MAX))
    }

    /// The number of an invocation's own pair.
    fn number(&self, b: &mut Builder, own: usize) -> Value {
        let away = b.int((own as u32 * LANES) as i32);
        b.add(self.lane, away)
    }

    /// Takes all elements of a row, of which there are `size`.
    pub fn fill<'a>(&self, cx: &mut Cx<'a>, size: Value, key: Key<'_, 'a>) -> Scheduled<()> {
        for (i, &(own, at)) in self.own.iter().enumerate() {
            let (none, nowhere) = self.nothing(&mut cx.b);
            cx.b.set(own, none);
            cx.b.set(at, nowhere);
            let place = self.number(&mut cx.b, i);
            let inside = cx.b.lt(place, size);
            cx.if_then(inside, |cx| {
                let key = key(cx, place)?;
                cx.b.set(own, key);
                cx.b.set(at, place);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Runs `f` on the number and the place of every pair of an invocation.
    pub fn each<'a>(
        &self,
        cx: &mut Cx<'a>,
        mut f: impl FnMut(&mut Cx<'a>, Value, Value) -> Scheduled<()>,
    ) -> Scheduled<()> {
        for (i, &(_, at)) in self.own.iter().enumerate() {
            let (number, place) = (self.number(&mut cx.b, i), cx.b.get(at));
            f(cx, number, place)?;
        }
        Ok(())
    }

    /// Where pair number `number` of those to be sorted is stored: in other banks than those of its neighbours, and than those of pairs that are as far away
    /// as an invocation has pairs of its own.
    fn slot(&self, b: &mut Builder, number: Value) -> Value {
        let own = self.len / LANES;
        if own == 1 {
            return number;
        }
        let (mask, banks, lanes) =
            (b.int(own as i32 - 1), b.int((BANKS / own) as i32), b.int(LANES as i32 - 1));
        let (which, of) = (b.and(number, mask), b.shr(number, own.ilog2()));
        let shifted = b.mul(which, banks);
        let at = b.add(of, shifted);
        let at = b.and(at, lanes);
        let all = b.int(LANES as i32);
        let start = b.mul(which, all);
        b.add(start, at)
    }

    fn store_own(&self, b: &mut Builder) {
        for (i, &(own, at)) in self.own.iter().enumerate() {
            let (number, key, place) = (self.number(b, i), b.get(own), b.get(at));
            b.store_shared(self.keys, number, key);
            b.store_shared(self.places, number, place);
        }
    }

    fn load_own(&self, b: &mut Builder) {
        for (i, &(own, at)) in self.own.iter().enumerate() {
            let number = self.number(b, i);
            let (key, place) = (b.load_shared(self.keys, number), b.load_shared(self.places, number));
            b.set(own, key);
            b.set(at, place);
        }
    }

    /// Fills the memory with what stands behind all elements.
    fn clear(&self, b: &mut Builder) {
        let (none, nowhere) = self.nothing(b);
        for i in 0..self.own.len() {
            let number = self.number(b, i);
            b.store_shared(self.keys, number, none);
            b.store_shared(self.places, number, nowhere);
        }
    }

    /// Sorts the pairs: afterwards, an invocation's own pairs are those of their numbers.
    pub fn sort(&self, b: &mut Builder) {
        let (zero, one) = (b.int(0), b.int(1));
        let end = b.int(self.len.ilog2() as i32 + 1);
        // Runs of 2, 4, 8, … pairs become sorted ones.
        b.for_step(one, end, 1, |b, log| {
            let run = power_of_two(b, log);
            b.for_step(zero, log, 1, |b, stage| {
                let (far, one) = (b.sub(log, stage), b.int(1));
                let far = b.sub(far, one);
                let away = power_of_two(b, far);
                self.stage(b, run, away);
            });
        });
    }

    /// Each pair is compared with the one that is `away` from it, and becomes the one of the two that belongs there.
    fn stage(&self, b: &mut Builder, run: Value, away: Value) {
        self.store_own(b);
        b.barrier();
        for (i, &(own, at)) in self.own.iter().enumerate() {
            let number = self.number(b, i);
            let other = b.xor(number, away);
            let (key, place) = (b.get(own), b.get(at));
            let (other_key, other_place) =
                (b.load_shared(self.keys, other), b.load_shared(self.places, other));
            // Every other run is sorted backwards, so that two of them are one that rises and falls.
            let (is_backwards, is_upper) = (has_bit(b, number, run), has_bit(b, number, away));
            let wants_later = b.xor(is_backwards, is_upper);
            let is_sooner = precedes(b, (other_key, other_place), (key, place));
            let takes = b.xor(is_sooner, wants_later);
            let (key, place) = (b.select(takes, other_key, key), b.select(takes, other_place, place));
            b.set(own, key);
            b.set(at, place);
        }
        b.barrier();
    }

    /// Takes the elements of the ranks `from` to before `to`, in any order; without `from`, those of all ranks before.
    pub fn select<'a>(
        &self,
        cx: &mut Cx<'a>,
        source: &Source,
        (from, to): (Option<Value>, Value),
        key: Key<'_, 'a>,
    ) -> Scheduled<()> {
        let one = cx.b.int(1);
        let rank = cx.b.sub(to, one);
        let last = source.of_rank(cx, rank, key)?;
        let first = match from {
            None => None,
            Some(from) => Some(source.of_rank(cx, from, key)?),
        };
        let is_selected = |b: &mut Builder, pair: (Value, Value)| {
            let beyond = precedes(b, last, pair);
            let within = b.not(beyond);
            let Some(first) = first else { return within };
            let before = precedes(b, pair, first);
            let behind = b.not(before);
            b.and(within, behind)
        };
        let zero = cx.b.int(0);
        let count = cx.b.var(zero);
        source.each(cx, key, &mut |cx, pair| {
            let selected = is_selected(&mut cx.b, pair);
            add_if(&mut cx.b, count, selected);
            Ok(())
        })?;
        let own = cx.b.get(count);
        let sum = Combine::new(ReduceOp::Sum, DType::I32)?;
        let start = in_front(&mut cx.b, sum, source.counts, (source.lane, LANES), own);
        self.clear(&mut cx.b);
        cx.b.barrier();
        let next = cx.b.var(start);
        source.each(cx, key, &mut |cx, pair| {
            let selected = is_selected(&mut cx.b, pair);
            cx.if_then(selected, |cx| {
                let number = cx.b.get(next);
                let to = self.slot(&mut cx.b, number);
                cx.b.store_shared(self.keys, to, pair.0);
                cx.b.store_shared(self.places, to, pair.1);
                let one = cx.b.int(1);
                let behind = cx.b.add(number, one);
                cx.b.set(next, behind);
                Ok(())
            })
        })?;
        cx.b.barrier();
        self.load_own(&mut cx.b);
        cx.b.barrier();
        Ok(())
    }
}

/// `2^log`.
fn power_of_two(b: &mut Builder, log: Value) -> Value {
    let (one, log) = (b.int(1), b.convert(Ty::U32, log));
    b.binary(BinOp::Shl, one, log)
}

fn has_bit(b: &mut Builder, number: Value, bit: Value) -> Value {
    let (bit, zero) = (b.and(number, bit), b.int(0));
    b.ne(bit, zero)
}

/// Whether pair `x` is before pair `y`.
fn precedes(b: &mut Builder, x: (Value, Value), y: (Value, Value)) -> Value {
    let (less, tied, sooner) = (b.lt(x.0, y.0), b.eq(x.0, y.0), b.lt(x.1, y.1));
    let sooner = b.and(tied, sooner);
    b.or(less, sooner)
}

fn add_if(b: &mut Builder, count: Var, condition: Value) {
    let (now, more) = (b.get(count), b.convert(Ty::I32, condition));
    let next = b.add(now, more);
    b.set(count, next);
}

/// The elements of a row that pairs are selected from; each invocation has those that are [`LANES`] apart.
pub(super) struct Source {
    lane: Value,
    size: Value,
    counts: Shared,
    key_type: Ty,
    /// The keys of an invocation's elements; `None` where the row is too long, or its length not known. Behind the row's end is what is behind all elements.
    kept: Option<Vec<Var>>,
    /// Bits that places have.
    place_bits: u32,
}

impl Source {
    /// The elements of a row of `size`, which is `length` where that is known.
    pub fn new<'a>(
        cx: &mut Cx<'a>,
        sorter: &Sorter,
        (size, length): (Value, Option<i64>),
        key: Key<'_, 'a>,
    ) -> Scheduled<Source> {
        let (lane, key_type) = (sorter.lane, sorter.key_type);
        let counts = cx.b.shared(Ty::I32, COUNTS * APART);
        // Powers of two, so that rows of similar lengths share a kernel.
        let own = length.map(|n| (n.max(1).unsigned_abs().div_ceil(u64::from(LANES))).next_power_of_two());
        let most = own.map_or(1 << 31, |own| own * u64::from(LANES));
        let own = own.filter(|&own| own <= u64::from(KEPT));
        let place_bits = most.ilog2().next_multiple_of(DIGIT);
        let mut source = Source { lane, size, counts, key_type, kept: None, place_bits };
        let Some(own) = own else { return Ok(source) };
        let mut kept = Vec::new();
        for i in 0..own as u32 {
            let none = greatest_key(&mut cx.b, key_type);
            let (var, place) = (cx.b.var(none), source.place(&mut cx.b, i));
            let inside = cx.b.lt(place, size);
            cx.if_then(inside, |cx| {
                let key = key(cx, place)?;
                cx.b.set(var, key);
                Ok(())
            })?;
            kept.push(var);
        }
        source.kept = Some(kept);
        Ok(source)
    }

    fn place(&self, b: &mut Builder, own: u32) -> Value {
        let away = b.int((own * LANES) as i32);
        b.add(self.lane, away)
    }

    /// Runs `f` on each of an invocation's pairs. Of kept ones, some may be behind the row's end: those have keys and places behind all others'.
    fn each<'a>(&self, cx: &mut Cx<'a>, key: Key<'_, 'a>, f: OnPair<'_, 'a>) -> Scheduled<()> {
        let Some(kept) = &self.kept else {
            return cx.for_step((self.lane, self.size, LANES as i32), |cx, place| {
                let key = key(cx, place)?;
                f(cx, (key, place))
            });
        };
        for (i, &var) in kept.iter().enumerate() {
            let pair = (cx.b.get(var), self.place(&mut cx.b, i as u32));
            f(cx, pair)?;
        }
        Ok(())
    }

    /// The pair of a rank.
    fn of_rank<'a>(&self, cx: &mut Cx<'a>, rank: Value, key: Key<'_, 'a>) -> Scheduled<(Value, Value)> {
        let left = cx.b.var(rank);
        let (none, nowhere) = (cx.b.constant(Const { ty: self.key_type, bits: 0 }), cx.b.word(0));
        let (found, at) = (cx.b.var(none), cx.b.var(nowhere));
        self.digits(cx, self.key_type.bits(), (found, left), key, &mut |b, shift, (key, _)| {
            let found = b.get(found);
            let differs = b.xor(key, found);
            let differs = b.binary(BinOp::Shr, differs, shift);
            (differs, None)
        })?;
        let of_key = cx.b.get(found);
        self.digits(cx, self.place_bits, (at, left), key, &mut |b, shift, (key, place)| {
            let at = b.get(at);
            let place = b.convert(Ty::U32, place);
            let differs = b.xor(place, at);
            let differs = b.binary(BinOp::Shr, differs, shift);
            (differs, Some(b.eq(key, of_key)))
        })?;
        let at = cx.b.get(at);
        Ok((of_key, cx.b.convert(Ty::I32, at)))
    }

    /// Finds the digits of `found` from the highest of so many bits on, by what `differs` says of a pair: the digit, if what is in front of it agrees with
    /// what was found so far, or else more than any digit; and whether the pair counts at all.
    fn digits<'a>(
        &self,
        cx: &mut Cx<'a>,
        bits: u32,
        (found, left): (Var, Var),
        key: Key<'_, 'a>,
        differs: Differs<'_>,
    ) -> Scheduled<()> {
        let rounds = cx.b.int((bits / DIGIT) as i32);
        cx.for_each(rounds, |cx, round| {
            let (highest, digit) = (cx.b.int((bits - DIGIT) as i32), cx.b.int(DIGIT as i32));
            let behind = cx.b.mul(round, digit);
            let shift = cx.b.sub(highest, behind);
            let shift = cx.b.convert(Ty::U32, shift);
            let zero = cx.b.int(0);
            let counts: Vec<Var> = (0..COUNTS).map(|_| cx.b.var(zero)).collect();
            self.each(cx, key, &mut |cx, pair| {
                let (digit, counts_at_all) = differs(&mut cx.b, shift, pair);
                for (&count, above) in counts.iter().zip(1..) {
                    let above = Const::int(cx.b.ty(digit), above);
                    let above = cx.b.constant(above);
                    let mut below = cx.b.lt(digit, above);
                    if let Some(counts_at_all) = counts_at_all {
                        below = cx.b.and(below, counts_at_all);
                    }
                    add_if(&mut cx.b, count, below);
                }
                Ok(())
            })?;
            let below = self.totals(&mut cx.b, &counts);
            self.next_digit(&mut cx.b, (found, left), &below, shift);
            Ok(())
        })
    }

    /// Appends the digit below which `below` tells how many pairs are, of which some number is left to be passed.
    fn next_digit(&self, b: &mut Builder, (found, left): (Var, Var), below: &[Value], shift: Value) {
        let (rank, now) = (b.get(left), b.get(found));
        let ty = b.ty(now);
        let (mut digit, mut passed) = (b.constant(Const { ty, bits: 0 }), b.int(0));
        for &count in below {
            let is_behind = b.ge(rank, count);
            let one = b.convert(ty, is_behind);
            digit = b.add(digit, one);
            passed = b.select(is_behind, count, passed);
        }
        let digit = b.binary(BinOp::Shl, digit, shift);
        let now = b.or(now, digit);
        b.set(found, now);
        let rank = b.sub(rank, passed);
        b.set(left, rank);
    }

    /// The sums of all invocations' counts, in each of them.
    fn totals(&self, b: &mut Builder, counts: &[Var]) -> Vec<Value> {
        for (&count, i) in counts.iter().zip(0..) {
            let (away, own) = (b.int(i * APART as i32), b.get(count));
            let to = b.add(self.lane, away);
            b.store_shared(self.counts, to, own);
        }
        b.barrier();
        for each in ROUNDS {
            let (width, active) = (b.int(each as i32), b.int((COUNTS * each) as i32));
            let active = b.lt(self.lane, active);
            b.if_then(active, |b| {
                let (which, own) = b.div_rem(self.lane, width);
                let apart = b.int(APART as i32);
                let start = b.mul(which, apart);
                let first = b.add(start, own);
                let sum = self.sum(b, first, each, JOINED);
                b.store_shared(self.counts, first, sum);
            });
            b.barrier();
        }
        let totals = (0..counts.len() as u32).map(|i| {
            let first = b.int((i * APART) as i32);
            self.sum(b, first, 1, ROUNDS[1])
        });
        let totals = totals.collect();
        b.barrier();
        totals
    }

    /// The sum of counts from the first on, each some number further.
    fn sum(&self, b: &mut Builder, first: Value, step: u32, count: u32) -> Value {
        let zero = b.int(0);
        (0..count).fold(zero, |sum, i| {
            let away = b.int((i * step) as i32);
            let at = b.add(first, away);
            let v = b.load_shared(self.counts, at);
            b.add(sum, v)
        })
    }
}
