//! The group level: a producer, the consumers and, where there is one, the multiplier in turns, and what runs on its own beside them.
//!
//! Each role runs until it waits, and each team of consumers where there are several. The producer runs as far ahead as barriers let it, and the bytes of a copy arrive only when nobody can go on without
//! them. A chunk knows the phase of a barrier that says that its bytes are there, and the multiplications that read it: reading it without a wait for
//! that phase is found, and so is a copy to where a multiplication may still read.

use std::collections::HashMap;

use super::Group as Workgroup;
use super::fragments::Warp;
use super::places::Place;
use super::shared::{self, Chunk, Step};
use super::tensor::{Commit, Sums};
use crate::group::{Barrier, Group, GroupTile, ROW};
use crate::ir::{Counter, Fragment, Heads, Index, Stmt, View};
use crate::layout::{CHUNK, CHUNK_BYTES};
use crate::tensor_map::{BoundMap, Map};

/// A barrier of one stage.
#[derive(Default)]
pub(super) struct Phases {
    /// Phases that have ended.
    ended: u64,
    /// Arrivals of each.
    arrivals: i64,
    /// Arrivals that the present one still needs.
    missing: i64,
    /// Bytes that it still expects.
    bytes: i64,
    /// Of the team that last arrived, how often it had arrived anywhere.
    pub(super) arriving: Option<(usize, u64)>,
    /// The same when the last phase ended.
    arrived: Option<(usize, u64)>,
}

/// A chunk of workgroup memory.
#[derive(Clone, Copy, Default)]
struct Cell {
    data: Chunk,
    /// The barrier, its stage, and how many phases have ended when the bytes are there.
    filled: Option<(Barrier, u32, u64)>,
    pending: bool,
    /// The team that read it last, and the group of multiplications; they are numbered from 1.
    reader: Option<(usize, u64)>,
}

/// A copy under way: what counts its bytes, the first chunk, what arrives.
struct Flight {
    barrier: (Barrier, u32),
    first: usize,
    data: Vec<Chunk>,
}

/// What a team of consumers knows, and what is known of it.
#[derive(Default)]
pub(super) struct Team {
    /// Phases that it has waited for.
    seen: HashMap<(Barrier, u32), u64>,
    /// Its arrivals so far, and those that the producer knows of.
    pub(super) arrived: u64,
    known: u64,
    /// Groups of multiplications that were committed, and for each that is done the arrivals before.
    pub(super) committed: u64,
    pub(super) done: Vec<u64>,
    /// The group that last used each fragment, and whether it was set since the last fence.
    sums: HashMap<Fragment, u64>,
    unfenced: HashMap<Fragment, bool>,
    /// Arrivals of the multiplier's that it knows of, and whether it waited since its last fence for tensor memory.
    pub(super) heard: u64,
    pub(super) waited: bool,
}

/// Workgroup memory of the group level, and who knows what of it.
pub(super) struct Shared {
    cells: Vec<Cell>,
    /// The first chunk of each tile.
    first: Vec<usize>,
    barriers: HashMap<(Barrier, u32), Phases>,
    flights: Vec<Flight>,
    /// Arrivals that multiplications under way will make.
    pub(super) commits: Vec<Commit>,
    /// Sums in tensor memory.
    pub(super) sums: Vec<Sums>,
    /// The teams of consumers, and the multiplier behind them.
    pub(super) teams: Vec<Team>,
    /// The team that runs, or ran before the producer.
    pub(super) present: usize,
}

impl Workgroup<'_> {
    pub(super) fn roles(&mut self, [producer, multiplier, consumers]: [&[Stmt]; 3]) -> Step {
        let p = self.p;
        let mut shared = Shared::new(p);
        let mut places = vec![Place::new(producer, None, Vec::new())];
        let teams = p.teams() as usize;
        places.push(Place::new(multiplier, Some(teams), Vec::new()));
        places.extend((0..teams).map(|team| {
            let warps = (0..p.team_warps()).map(|n| Warp::new(p, n % p.warps.0, n / p.warps.0)).collect();
            Place::new(consumers, Some(team), warps)
        }));
        loop {
            let mut moved = false;
            for place in &mut places {
                std::mem::swap(&mut self.warps, &mut place.warps);
                moved |= self.role(place, &mut shared)?;
                std::mem::swap(&mut self.warps, &mut place.warps);
            }
            if places.iter().all(Place::done) {
                break;
            }
            if moved {
                continue;
            }
            let awaited: Vec<_> = places.iter().filter_map(|p| p.waits).collect();
            let mut delivered = false;
            for at in awaited {
                delivered |= shared.deliver(at)?;
            }
            if !delivered {
                let waits = places.iter().filter_map(|p| p.waits);
                let at: Vec<String> = waits.map(|(b, stage)| format!("m{}[{stage}]", b.0)).collect();
                return Err(format!(
                    "a deadlock: nothing ends the phases of {} that are awaited",
                    at.join(" and ")
                ));
            }
        }
        shared.freed()?;
        match shared.flights.first() {
            Some(f) => Err(format!("a copy that m{} counts is under way at the end", f.barrier.0.0)),
            None => Ok(()),
        }
    }

    /// Runs a role until it waits or ends; whether it did anything.
    fn role(&mut self, place: &mut Place, shared: &mut Shared) -> Step<bool> {
        let mut moved = false;
        place.waits = None;
        shared.present = place.team.unwrap_or(shared.present);
        while let Some(s) = place.next(&|s| self.steps(s)) {
            self.counters.clone_from(&place.counters);
            place.turn().iter().for_each(|&turn| self.take_turn(turn));
            match s {
                Stmt::Group(g) => {
                    if let Some(at) = self.group(g, place, shared)? {
                        place.waits = Some(at);
                        place.back();
                        break;
                    }
                }
                Stmt::Prefetch { .. } => {}
                Stmt::For { .. } | Stmt::Staggered(_) | Stmt::Tiles { .. } | Stmt::Roles { .. } => {
                    return Err("a statement that roles do not have".to_owned());
                }
                _ => {
                    shared.team().registers_of(s)?;
                    self.stmt(s)?;
                }
            }
            moved = true;
        }
        Ok(moved)
    }

    /// How often a loop is run; of tiles, how many the workgroup has.
    fn steps(&self, s: &Stmt) -> u32 {
        let (extent, below, step) = match s {
            Stmt::For { extent, below, step, .. } => (*extent, *below, *step),
            Stmt::Staggered(s) => (s.extent, s.below, s.step),
            Stmt::Tiles { .. } => return self.turns(),
            _ => return 0,
        };
        u32::try_from(self.extent(extent, below)).unwrap_or(0).div_ceil(step)
    }

    /// Runs a statement, or says what it waits for.
    fn group(&mut self, g: &Group, place: &Place, s: &mut Shared) -> Step<Option<(Barrier, u32)>> {
        let p = self.p;
        let at = |b: Barrier, c: Counter| {
            let (n, stages) = (place.number(c), p.group.barriers[b.0 as usize].stages);
            ((b, n % stages), u64::from(n / stages))
        };
        match g {
            Group::WaitFull(b, c) => {
                let (at, phase) = at(*b, *c);
                if !s.ended(at, phase + 1)? {
                    return Ok(Some(at));
                }
                s.sees(at, phase + 1);
                (self.count.serial, self.count.barriers) = (self.count.serial + 1, self.count.barriers + 1);
            }
            Group::WaitEmpty(b, c) => {
                let (at, phase) = at(*b, *c);
                if !s.ended(at, phase)? {
                    return Ok(Some(at));
                }
                s.learn(at);
            }
            Group::Expect(b, c, bytes) => s.arrive(at(*b, *c).0, 1, i64::from(*bytes))?,
            Group::Arrive(b, c, behind) => {
                // Before there was such an iteration nobody arrives.
                let Some(n) = place.number_behind(*c, *behind) else { return Ok(None) };
                self.arrive(*b, n, s)?;
            }
            Group::ArriveLast(b, c) => {
                let Some(n) = place.last_number(*c) else { return Ok(None) };
                self.arrive(*b, n, s)?;
            }
            Group::WaitTurn(b, c) => {
                let Some(n) = place.number_behind(*c, 1) else { return Ok(None) };
                let stages = p.group.barriers[b.0 as usize].stages;
                let at = (*b, n % stages);
                if !s.ended(at, u64::from(n / stages) + 1)? {
                    return Ok(Some(at));
                }
                self.count.barriers += 1;
            }
            Group::Copy { from, row, col, to, block, barrier, counter } => {
                let ((barrier, stage), _) = at(*barrier, *counter);
                self.copy_tensor(*from, (row, col), (*to, stage, *block), (barrier, stage), s)?;
            }
            Group::Tensor(tensor) => self.tensor(tensor, place, s)?,
            Group::Fence => s.team().unfenced.clear(),
            Group::Mma { sum, left, row, right, depth_rows, counter } => {
                let iteration = place.number(*counter);
                self.mma_group(*sum, (*left, *row), (*right, *depth_rows), iteration, s)?;
            }
            Group::MmaLeft { sum, left, right, counter } => {
                let iteration = place.number(*counter);
                self.mma_left(*sum, *left, *right, iteration, s)?;
            }
            Group::Commit => s.team().committed += 1,
            Group::WaitMma(n) => {
                let team = s.team();
                let done = team.committed.saturating_sub(u64::from(*n)) as usize;
                let arrived = team.arrived;
                team.done.resize(team.done.len().max(done), arrived);
            }
        }
        Ok(None)
    }

    /// All warps of a team arrive at a barrier of this number.
    fn arrive(&self, b: Barrier, number: u32, s: &mut Shared) -> Step {
        let at = (b, number % self.p.group.barriers[b.0 as usize].stages);
        let team = s.team();
        team.arrived += 1;
        let arrived = team.arrived;
        s.phases(at).arriving = Some((s.present, arrived));
        s.arrive(at, i64::from(self.p.team_warps()), 0)
    }

    /// Begins to copy a box.
    fn copy_tensor(
        &mut self,
        from: Map,
        (row, col): (&Index, &Index),
        (to, stage, block): (GroupTile, u32, u32),
        at: (Barrier, u32),
        s: &mut Shared,
    ) -> Step {
        let p = self.p;
        let (map, tile) = (&p.group.maps[from.0 as usize], p.group.tiles[to.0 as usize]);
        let bound = map.bound(p, self.uniforms).map_err(|e| e.message().to_owned())?;
        let corner = (self.position(row, (0, 0)), self.position(col, (0, 0)));
        let mut data = Vec::with_capacity((map.rows * ROW / CHUNK) as usize);
        let mut accesses = Vec::new();
        for row in 0..map.rows {
            // Chunks of a row in the order that they are stored in.
            let first = tile.chunk_at(0, 0, row, 0) & (ROW / CHUNK - 1);
            for place in 0..ROW / CHUNK {
                let chunk = place ^ first;
                let at = (corner.0 + i64::from(row), corner.1 + i64::from(chunk * CHUNK));
                let (chunk, access) = match bound.window[..] {
                    [] => self.chunk_of(&bound, p.view(map.view).heads, at)?,
                    _ => self.chunk_of_window(map.view, at)?,
                };
                data.push(chunk);
                accesses.extend(access);
            }
        }
        if !accesses.is_empty() {
            self.count.buffer_access(accesses.into_iter());
        }
        let first = s.at(to, tile.chunk_at(stage, block, 0, 0));
        let all: Vec<Option<usize>> = (first..first + data.len()).map(Some).collect();
        shared::count(&mut self.count, &all);
        s.begin(at, first, data)
    }

    /// The elements of a mapped matrix of this batch from a row and column on, with the bits of memory that are read; those beyond it are 0.
    fn chunk_of(
        &mut self,
        map: &BoundMap,
        heads: Option<Heads>,
        (row, col): (i64, i64),
    ) -> Step<(Chunk, Option<(u64, u64)>)> {
        let mut indices = match heads {
            None => vec![row],
            Some(Heads { count, .. }) => vec![row % i64::from(count), row / i64::from(count)],
        };
        // An index of a dimension along which the view repeats is 0.
        let batch = self.batch.1.iter().rev().zip(&map.sizes[1 + indices.len()..]);
        indices.extend(batch.map(|(&i, &size)| if size == 1 { 0 } else { i }));
        let inside = |i: i64, size: u64| u64::try_from(i).is_ok_and(|i| i < size);
        let mut data: Chunk = [0; CHUNK as usize];
        if !indices.iter().zip(&map.sizes[1..]).all(|(&i, &size)| inside(i, size)) {
            return Ok((data, None));
        }
        let bytes = map.dtype.size_bytes() as u64;
        let apart = indices.iter().zip(&map.strides).map(|(&i, &stride)| i * (stride / bytes) as i64);
        let first = map.base + apart.sum::<i64>();
        let read = (0..i64::from(CHUNK)).filter(|i| inside(col + i, map.sizes[0])).count() as i64;
        for i in 0..read {
            let index = self.checked(map.buffer, first + col + i)?;
            let bits = self.pools.load(&self.bindings[map.buffer], index, map.dtype);
            data[i as usize] = super::global::rounded(map.dtype, f32::from_bits(bits as u32));
        }
        let bits = 8 * bytes;
        Ok((data, (read > 0).then_some(((first + col) as u64 * bits, read as u64 * bits))))
    }

    /// The same of a view of windows.
    fn chunk_of_window(&mut self, from: View, (row, col): (i64, i64)) -> Step<(Chunk, Option<(u64, u64)>)> {
        let view = self.p.view(from);
        let (buffer, dtype, mut data) = (view.buffer.index(), self.p.view_dtype(from), [0; CHUNK as usize]);
        if row >= self.value(view.rows) || col >= self.value(view.cols) {
            return Ok((data, None));
        }
        let Some(first) = self.read_element(from, row, col)? else { return Ok((data, None)) };
        for (i, element) in (0..).zip(&mut data) {
            let index = self.checked(buffer, first + i)?;
            let bits = self.pools.load(&self.bindings[buffer], index, dtype);
            *element = super::global::rounded(dtype, f32::from_bits(bits as u32));
        }
        let bits = dtype.bits() as u64;
        Ok((data, Some((first as u64 * bits, u64::from(CHUNK) * bits))))
    }
}

impl Shared {
    fn new(p: &crate::ir::Program) -> Self {
        let (mut first, mut n) = (Vec::new(), 0);
        for t in &p.group.tiles {
            first.push(n);
            n += (t.stage_bytes() / CHUNK_BYTES * t.stages) as usize;
        }
        let mut barriers = HashMap::new();
        for (i, b) in p.group.barriers.iter().enumerate() {
            for stage in 0..b.stages {
                let arrivals = i64::from(b.arrivals);
                let phases = Phases { arrivals, missing: arrivals, ..Phases::default() };
                barriers.insert((Barrier(i as u32), stage), phases);
            }
        }
        Shared {
            cells: vec![Cell::default(); n],
            first,
            barriers,
            flights: Vec::new(),
            commits: Vec::new(),
            sums: p.group.accumulators.iter().map(|d| Sums::new(d.cols)).collect(),
            teams: (0..=p.teams()).map(|_| Team::default()).collect(),
            present: 0,
        }
    }

    /// The team that runs.
    pub(super) fn team(&mut self) -> &mut Team {
        &mut self.teams[self.present]
    }

    /// The team that runs has waited until so many phases of a barrier have ended.
    fn sees(&mut self, at: (Barrier, u32), phases: u64) {
        let multiplied = self.phases(at).arrived.filter(|(team, _)| *team + 1 == self.teams.len());
        let team = self.team();
        team.seen.insert(at, phases);
        team.waited = true;
        team.heard = team.heard.max(multiplied.map_or(0, |(_, arrived)| arrived));
    }

    /// The producer knows what was before the arrivals of a phase that has ended.
    fn learn(&mut self, at: (Barrier, u32)) {
        if let Some((team, arrived)) = self.phases(at).arrived {
            self.teams[team].known = self.teams[team].known.max(arrived);
        }
    }

    pub(super) fn at(&self, tile: GroupTile, chunk: u32) -> usize {
        self.first[tile.0 as usize] + chunk as usize
    }

    pub(super) fn phases(&mut self, at: (Barrier, u32)) -> &mut Phases {
        self.barriers.entry(at).or_default()
    }

    /// Whether so many phases have ended. A device compares one bit of their number, so all but the last of them have.
    fn ended(&mut self, at: (Barrier, u32), phases: u64) -> Step<bool> {
        let ended = self.phases(at).ended;
        let which = format!("m{}[{}]", at.0.0, at.1);
        match ended > phases {
            true => Err(format!("{which} is a phase further than the one awaited")),
            false if ended + 1 < phases => {
                Err(format!("{which} is a phase behind the one before that awaited"))
            }
            false => Ok(ended == phases),
        }
    }

    pub(super) fn arrive(&mut self, at: (Barrier, u32), arrivals: i64, bytes: i64) -> Step {
        let phases = self.phases(at);
        (phases.missing, phases.bytes) = (phases.missing - arrivals, phases.bytes + bytes);
        if phases.missing < 0 {
            return Err(format!("m{}[{}] counts fewer arrivals in a phase", at.0.0, at.1));
        }
        self.end_phase(at);
        Ok(())
    }

    fn end_phase(&mut self, at: (Barrier, u32)) {
        let phases = self.phases(at);
        if phases.missing == 0 && phases.bytes == 0 {
            (phases.ended, phases.arrived) = (phases.ended + 1, phases.arriving);
            phases.missing = phases.arrivals;
        }
    }

    fn begin(&mut self, at: (Barrier, u32), first: usize, data: Vec<Chunk>) -> Step {
        let phase = self.phases(at).ended + 1;
        for i in first..first + data.len() {
            let cell = self.cells[i];
            // Done before arrivals that the producer knows of.
            let read = cell.reader.is_some_and(|(team, group)| {
                let team = &self.teams[team];
                team.done.get(group as usize - 1).is_none_or(|&arrived| arrived >= team.known)
            });
            if cell.pending || read {
                let who = if read { "a multiplication may still read" } else { "another copy writes" };
                return Err(format!("a tensor copy to chunk {i}, which {who}"));
            }
            self.cells[i] = Cell { filled: Some((at.0, at.1, phase)), pending: true, reader: None, ..cell };
        }
        self.flights.push(Flight { barrier: at, first, data });
        Ok(())
    }

    /// The bytes of the copies that a barrier counts arrive, and what multiplications have said they will; whether there is anything.
    fn deliver(&mut self, at: (Barrier, u32)) -> Step<bool> {
        if self.deliver_commit(at)? {
            return Ok(true);
        }
        let (arriving, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.flights).into_iter().partition(|f| f.barrier == at);
        self.flights = rest;
        for flight in &arriving {
            for (cell, data) in self.cells[flight.first..].iter_mut().zip(&flight.data) {
                (cell.data, cell.pending) = (*data, false);
            }
            self.phases(at).bytes -= flight.data.len() as i64 * i64::from(CHUNK_BYTES);
        }
        self.end_phase(at);
        Ok(!arriving.is_empty())
    }

    /// Reads chunks, 8 at a time.
    pub(super) fn read(
        &mut self,
        chunks: Vec<usize>,
        count: &mut rlx_kernel::interp::Counters,
    ) -> Step<Vec<Chunk>> {
        shared::count(count, &chunks.iter().copied().map(Some).collect::<Vec<_>>());
        let mut data = Vec::with_capacity(chunks.len());
        let (number, team) = (self.present, &self.teams[self.present]);
        for at in chunks {
            let cell = &mut self.cells[at];
            let Some((barrier, stage, phase)) = cell.filled else {
                return Err(format!("chunk {at} is multiplied before it is written"));
            };
            if cell.pending {
                return Err(format!("chunk {at} is multiplied, whose copy is under way"));
            }
            if team.seen.get(&(barrier, stage)).is_none_or(|&seen| seen < phase) {
                return Err(format!("chunk {at} is multiplied without a wait for m{}[{stage}]", barrier.0));
            }
            cell.reader = Some((number, team.committed + 1));
            data.push(cell.data);
        }
        Ok(data)
    }
}

impl Team {
    /// A matrix instruction of the open group uses a fragment.
    pub(super) fn uses(&mut self, f: Fragment) {
        self.sums.insert(f, self.committed + 1);
    }

    /// Whether no matrix instruction that uses a fragment is under way.
    fn settled(&self, f: Fragment) -> Step {
        match self.sums.get(&f) {
            Some(&group) if group > self.done.len() as u64 => {
                Err(format!("f{} is used while a matrix instruction is under way", f.0))
            }
            _ => Ok(()),
        }
    }

    /// Whether a fence is behind what set a fragment.
    pub(super) fn fenced(&self, f: Fragment) -> Step {
        match self.unfenced.get(&f) {
            Some(true) => Err(format!("f{} was set, and no fence is before its matrix instruction", f.0)),
            _ => Ok(()),
        }
    }

    /// The fragments that a statement reads and the one that it sets.
    fn registers_of(&mut self, s: &Stmt) -> Step {
        let (read, set) = match s {
            Stmt::Zero(f) | Stmt::Fill(f, _) | Stmt::Exp2(f) | Stmt::Each { of: f, .. } => (None, Some(*f)),
            Stmt::Reduce { to, from, .. } | Stmt::Convert { to, from, .. } => (Some(*from), Some(*to)),
            Stmt::Store { from, .. } => (Some(*from), None),
            _ => return Err("a statement that roles do not have".to_owned()),
        };
        read.into_iter().chain(set).try_for_each(|f| self.settled(f))?;
        self.unfenced.extend(set.map(|f| (f, true)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arch;
    use crate::schedule::{Matmul, group_tilings, matmul};

    /// One bit of their number says of two phases that are to come that they have ended.
    #[test]
    fn a_wait_for_a_phase_behind_the_next_one_is_found() {
        let p = matmul(Arch::Sm90a, &Matmul::new(rlx_ir::DType::F16), &group_tilings()[0]).unwrap();
        let (mut s, at) = (Shared::new(&p), (Barrier(0), 0));
        assert_eq!((s.ended(at, 0), s.ended(at, 1)), (Ok(true), Ok(false)));
        assert!(s.ended(at, 2).unwrap_err().contains("behind"));
        s.arrive(at, 1, 0).unwrap();
        assert_eq!((s.ended(at, 1), s.ended(at, 2)), (Ok(true), Ok(false)));
        assert!(s.ended(at, 0).unwrap_err().contains("further"));
    }
}
