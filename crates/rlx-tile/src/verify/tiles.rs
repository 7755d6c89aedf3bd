//! Several tiles in a workgroup ([`Stmt::Tiles`]): stages and phases that go on from turn to turn, and who has a turn.

use std::collections::BTreeMap;

use super::{Checked, Rule, Verifier, fault, must};
use crate::group::{Barrier, GROUP_WARPS, Group};
use crate::ir::{Counter, Size, Stmt};

/// What barriers count in lists for tiles: the iterations of loops, all of the same number, or turns.
type Rings = BTreeMap<Barrier, Option<(Size, u32)>>;

/// The list that a role has for each tile, with the number of the turn and of teams; none where the role has one tile.
fn of_role(stmts: &[Stmt]) -> Option<(Counter, u32, &[Stmt])> {
    match stmts {
        [Stmt::Tiles { turn, teams, body }] => Some((*turn, *teams, body)),
        _ => None,
    }
}

/// What each role does, the producer first, with what counts its turns.
type Lists<'s> = [(&'s [Stmt], Option<Counter>); 2];

fn wrong<T>(what: &str) -> Result<T, (String, Rule)> {
    Err(("tiles".to_owned(), Rule::Pipeline(what.to_owned())))
}

impl Verifier<'_> {
    /// What each role does for a tile, where both have several of them. The numbers of turns are entered.
    pub(super) fn lists_for_tiles<'s>(
        &mut self,
        producer: &'s [Stmt],
        consumers: &'s [Stmt],
    ) -> Result<Lists<'s>, (String, Rule)> {
        let (p, c) = match (of_role(producer), of_role(consumers)) {
            (None, None) => return Ok([(producer, None), (consumers, None)]),
            (Some(p), Some(c)) => (p, c),
            _ => return wrong("one role has several tiles, the other one"),
        };
        let whole = (1..=2).contains(&c.1) && self.p.warps.0.is_multiple_of(c.1 * GROUP_WARPS);
        must(p.1 == 1 && whole && p.0 != c.0, "tiles", || {
            Rule::Pipeline("there are one or two teams of as many warp groups, and one producer".to_owned())
        })?;
        self.used.extend([p.0, c.0]);
        self.rings(p, c)?;
        Ok([(p.2, Some(p.0)), (c.2, Some(c.0))])
    }

    /// Stages and phases of both roles are counted alike, and every stage is given back before the tile is stored.
    fn rings(&self, p: (Counter, u32, &[Stmt]), c: (Counter, u32, &[Stmt])) -> Checked {
        let mut rings = Rings::new();
        for (turn, _, body) in [p, c] {
            body.iter().try_for_each(|s| ring(s, turn, &mut rings))?;
        }
        given_back(c.2)?;
        self.turns(c)?;
        must(turns_in(p.2, p.0).next().is_none(), "tiles", || {
            Rule::Pipeline("the producer has every turn, and waits for none".to_owned())
        })
    }

    /// Teams wait for their turn before all else, and end it behind the last step: once each.
    fn turns(&self, (turn, teams, body): (Counter, u32, &[Stmt])) -> Checked {
        let all: Vec<_> = turns_in(body, turn).collect();
        if teams == 1 {
            return match all[..] {
                [] => Ok(()),
                _ => wrong("one team has every turn"),
            };
        }
        let loops = || body.iter().enumerate().filter(|(_, s)| matches!(s, Stmt::For { .. }));
        let (first, last) = (loops().next().map(|at| at.0), loops().next_back().map(|at| at.0));
        let (&[(wait, Group::WaitTurn(b, _)), (end, Group::Arrive(ended, _, 0))], Some(first), Some(last)) =
            (&all[..], first, last)
        else {
            return wrong("each team waits for its turn once, and ends it once");
        };
        let decl = self.p.group.barriers.get(b.0 as usize);
        let fits = decl.is_some_and(|d| d.stages == teams && d.arrivals == self.p.team_warps());
        match b == ended && fits && wait < first && last < end {
            true => Ok(()),
            false => wrong(
                "a turn begins before the first step and ends behind the last, by a barrier of a stage for each team",
            ),
        }
    }
}

/// The statements of a list that are about turns, and where.
fn turns_in(body: &[Stmt], turn: Counter) -> impl Iterator<Item = (usize, &Group)> {
    body.iter().enumerate().filter_map(move |(at, s)| match s {
        Stmt::Group(g @ (Group::WaitTurn(_, c) | Group::Arrive(_, c, _))) if *c == turn => Some((at, g)),
        _ => None,
    })
}

/// Loops of a list for tiles have as many iterations for each, and are not nested. What counts them is counted alike everywhere.
fn ring(s: &Stmt, turn: Counter, rings: &mut Rings) -> Checked {
    let mut enter = |b: Barrier, of: Option<(Size, u32)>| match *rings.entry(b).or_insert(of) == of {
        true => Ok(()),
        false => fault(&format!("m{}", b.0), Rule::Pipeline("loops of other lengths".to_owned())),
    };
    match s {
        Stmt::For { counter, extent, below, step, body } => {
            let alike = below.is_none() && !matches!(extent, Size::Part { .. });
            must(alike, &format!("loop c{}", counter.0), || {
                Rule::Pipeline("a loop that is not as long for all tiles".to_owned())
            })?;
            for s in body {
                let (b, c) = match s {
                    Stmt::For { .. } | Stmt::Staggered(_) => return wrong("loops within loops"),
                    Stmt::Group(Group::WaitTurn(..) | Group::ArriveLast(..)) => {
                        return wrong("a turn in a loop");
                    }
                    Stmt::Group(
                        Group::WaitFull(b, c)
                        | Group::WaitEmpty(b, c)
                        | Group::Expect(b, c, _)
                        | Group::Arrive(b, c, _)
                        | Group::Copy { barrier: b, counter: c, .. },
                    ) => (*b, *c),
                    _ => continue,
                };
                must(c == *counter, &format!("m{}", b.0), || {
                    Rule::Pipeline("a step is counted by its own loop".to_owned())
                })?;
                enter(b, Some((*extent, *step)))?;
            }
            Ok(())
        }
        Stmt::Staggered(_) => wrong("iterations that overlap"),
        Stmt::Group(Group::ArriveLast(..)) => Ok(()),
        Stmt::Group(Group::WaitTurn(b, c) | Group::Arrive(b, c, _)) if *c == turn => enter(*b, None),
        Stmt::Group(g) => match g {
            Group::WaitFull(..) | Group::WaitEmpty(..) | Group::Expect(..) | Group::Copy { .. } => {
                wrong("copies, and waits for them, that belong to no step")
            }
            Group::Arrive(..) | Group::WaitTurn(..) => wrong("turns that are counted by something else"),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// What is given back a step later is given back behind the loop, too.
fn given_back(body: &[Stmt]) -> Checked {
    let mut owed: Vec<(Barrier, Counter)> = Vec::new();
    for s in body {
        match s {
            Stmt::For { body, .. } => {
                for s in body {
                    match s {
                        Stmt::Group(Group::Arrive(b, c, 1)) => owed.push((*b, *c)),
                        Stmt::Group(Group::Arrive(_, _, 2..)) => {
                            return wrong("a stage that is given back too late");
                        }
                        _ => {}
                    }
                }
            }
            Stmt::Group(Group::ArriveLast(b, c)) => match owed.iter().position(|of| of == &(*b, *c)) {
                Some(at) => drop(owed.remove(at)),
                None => return wrong("a last stage that is given back twice, or by no loop before"),
            },
            _ => {}
        }
    }
    match owed[..] {
        [] => Ok(()),
        _ => wrong("the last stage of a tile is not given back"),
    }
}
