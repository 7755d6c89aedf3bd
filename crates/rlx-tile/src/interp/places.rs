//! Where roles are: which statement is next, of which iteration, and of which tile where a workgroup has several.

use std::collections::BTreeMap;

use super::fragments::Warp;
use crate::group::Barrier;
use crate::ir::{Counter, Stmt};

/// How often lists are run.
struct Repeat {
    /// The number of the iteration.
    counter: Counter,
    /// That of the iteration before.
    behind: Option<Counter>,
    /// What the counter stays below.
    end: u32,
    /// How far it goes each time.
    by: u32,
}

/// Lists of statements in a loop: of its first iteration, of its last one, and of the others.
struct Frame<'p> {
    lists: [&'p [Stmt]; 3],
    next: usize,
    repeat: Option<Repeat>,
}

impl<'p> Frame<'p> {
    /// The list of the present iteration.
    fn list(&self, counters: &BTreeMap<Counter, u32>) -> &'p [Stmt] {
        let Some(Repeat { counter, end, .. }) = self.repeat else { return self.lists[0] };
        match counters.get(&counter).copied().unwrap_or(0) {
            0 => self.lists[0],
            i if i + 1 == end => self.lists[2],
            _ => self.lists[1],
        }
    }
}

/// Where a role is, or one of the teams of consumers.
pub(super) struct Place<'p> {
    frames: Vec<Frame<'p>>,
    pub(super) counters: BTreeMap<Counter, u32>,
    /// The barrier and stage that it waits for.
    pub(super) waits: Option<(Barrier, u32)>,
    /// The number of the team; none of the producer.
    pub(super) team: Option<usize>,
    /// What counts turns.
    turn: Option<Counter>,
    /// Iterations of loops, each for every tile.
    steps: BTreeMap<Counter, u32>,
    /// Its warps.
    pub(super) warps: Vec<Warp>,
}

impl<'p> Place<'p> {
    pub(super) fn new(stmts: &'p [Stmt], team: Option<usize>, warps: Vec<Warp>) -> Self {
        let frames = vec![Frame { lists: [stmts; 3], next: 0, repeat: None }];
        let (counters, steps) = (BTreeMap::new(), BTreeMap::new());
        Place { frames, counters, waits: None, team, turn: None, steps, warps }
    }

    /// The next statement that is no loop.
    pub(super) fn next(&mut self, extent: &dyn Fn(&Stmt) -> u32) -> Option<&'p Stmt> {
        loop {
            let frame = self.frames.last_mut()?;
            let stmts = frame.list(&self.counters);
            match stmts.get(frame.next) {
                Some(s @ Stmt::For { counter, body, .. }) => {
                    frame.next += 1;
                    let end = extent(s);
                    self.steps.insert(*counter, end);
                    self.enter([body; 3], 0, Repeat { counter: *counter, behind: None, end, by: 1 });
                }
                Some(s @ Stmt::Staggered(of)) => {
                    frame.next += 1;
                    let n = extent(s);
                    // The second half of the last iteration is one more.
                    let end = if n > 0 { n + 1 } else { 0 };
                    let repeat = Repeat { counter: of.counter, behind: Some(of.behind), end, by: 1 };
                    self.enter(of.lists(), 0, repeat);
                }
                Some(s @ Stmt::Tiles { turn, teams, body }) => {
                    frame.next += 1;
                    let (first, end) = (self.team.unwrap_or(0) as u32, extent(s));
                    self.turn = Some(*turn);
                    self.enter([body; 3], first, Repeat { counter: *turn, behind: None, end, by: *teams });
                }
                Some(s) => {
                    frame.next += 1;
                    return Some(s);
                }
                None => {
                    let again = frame.repeat.as_ref().and_then(|repeat| {
                        let i = self.counters.get_mut(&repeat.counter)?;
                        let before = *i;
                        *i += repeat.by;
                        let again = (*i < repeat.end).then_some(());
                        self.counters.extend(repeat.behind.map(|behind| (behind, before)));
                        again
                    });
                    match again {
                        Some(()) => frame.next = 0,
                        None => drop(self.frames.pop()),
                    }
                }
            }
        }
    }

    /// Runs lists, from this iteration on.
    fn enter(&mut self, lists: [&'p [Stmt]; 3], first: u32, repeat: Repeat) {
        if first < repeat.end {
            self.counters.insert(repeat.counter, first);
            self.frames.push(Frame { lists, next: 0, repeat: Some(repeat) });
        }
    }

    /// Runs the last statement again.
    pub(super) fn back(&mut self) {
        if let Some(frame) = self.frames.last_mut() {
            frame.next -= 1;
        }
    }

    pub(super) fn done(&self) -> bool {
        self.frames.is_empty()
    }

    /// The number of the turn, where the workgroup has several tiles.
    pub(super) fn turn(&self) -> Option<u32> {
        self.turn.map(|turn| self.count(turn))
    }

    fn count(&self, c: Counter) -> u32 {
        self.counters.get(&c).copied().unwrap_or(0)
    }

    /// The number by which stages and phases are counted: iterations of all turns before are, too.
    pub(super) fn number(&self, c: Counter) -> u32 {
        match self.turn {
            Some(turn) if c != turn => self.before(c) + self.count(c),
            _ => self.count(c),
        }
    }

    fn before(&self, c: Counter) -> u32 {
        self.turn().unwrap_or(0) * self.steps.get(&c).copied().unwrap_or(0)
    }

    /// The same of the iteration `behind` before, where the present tile, or turn, has one.
    pub(super) fn number_behind(&self, c: Counter, behind: u32) -> Option<u32> {
        let own = self.count(c).checked_sub(behind)?;
        Some(if self.turn == Some(c) { own } else { self.before(c) + own })
    }

    /// The same of the last iteration of a loop that is over.
    pub(super) fn last_number(&self, c: Counter) -> Option<u32> {
        let last = self.steps.get(&c)?.checked_sub(1)?;
        Some(self.before(c) + last)
    }
}
