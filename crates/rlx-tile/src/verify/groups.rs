//! The group level: its declarations, and what each role may do.

use std::collections::BTreeMap;

use rlx_kernel::ir::Access;

use super::{Checked, Rule, Verifier, fault, must};
use crate::atom::Arch;
use crate::group::{Barrier, DEPTH, GROUP_ROWS, GROUP_WARPS, Group, PanelTile, Panels, WARP_ROWS};
use crate::ir::{Counter, Role, Size, Stmt};
use crate::layout::CHUNK;

/// What barriers count in one iteration: arrivals, bytes that are expected, bytes that are copied.
type Counted = BTreeMap<Barrier, (u32, u64, u64)>;

impl Verifier<'_> {
    pub(super) fn group_declarations(&self) -> Checked {
        let (p, g) = (self.p, &self.p.group);
        let roles = p.producers() > 0;
        must(roles || *g == Default::default(), "group", || {
            Rule::Declaration("panels, their tiles and barriers are for programs with roles".to_owned())
        })?;
        if !roles {
            return Ok(());
        }
        must(p.arch == Arch::Sm90a && p.body.len() == 1 && p.tiles.is_empty(), "roles", || {
            Rule::Declaration("roles need sm_90a and are all that a program has".to_owned())
        })?;
        let (rows, cols) = p.warps;
        must(rows % GROUP_WARPS == 0 && cols == 1 && rows <= 28, "roles", || {
            Rule::Declaration("consumers are one column of at most 7 warp groups".to_owned())
        })?;
        g.panels.iter().enumerate().try_for_each(|(i, panels)| {
            let at = format!("p{i}");
            [panels.base, panels.depth].iter().chain(&panels.batch).try_for_each(|&s| self.size(&at, s))?;
            let buffer = p.buffers.get(panels.buffer.index());
            must(buffer.is_some_and(|b| b.dtype == p.dtype && b.access == Access::Read), &at, || {
                Rule::Declaration(format!("panels are in a buffer of {} that is read", p.dtype))
            })?;
            must(panels.batch.len() == p.grid.batch.len(), &at, || {
                Rule::Declaration("panels have a stride for each dimension of the grid's batch".to_owned())
            })
        })?;
        g.tiles.iter().enumerate().try_for_each(|(i, t)| {
            let rows = t.rows.is_multiple_of(CHUNK) && (CHUNK..=256).contains(&t.rows);
            let depth = t.depth.is_multiple_of(DEPTH) && (DEPTH..=1024).contains(&t.depth);
            must(rows && depth && (1..=8).contains(&t.stages), &format!("s{i}"), || {
                Rule::Declaration(format!(
                    "such a tile has 8 to 256 rows, a depth of multiples of {DEPTH} to 1024, 1 to 8 stages"
                ))
            })
        })?;
        g.barriers.iter().enumerate().try_for_each(|(i, b)| {
            must((1..=8).contains(&b.stages) && (1..=1024).contains(&b.arrivals), &format!("m{i}"), || {
                Rule::Declaration("a barrier has 1 to 8 stages and 1 to 1024 arrivals".to_owned())
            })
        })
    }

    pub(super) fn roles(&mut self, producer: &[Stmt], consumers: &[Stmt]) -> Checked {
        must(self.counters.is_empty(), "roles", || Rule::Transfer("roles in a loop".to_owned()))?;
        let mut counted = Counted::new();
        self.role_block(producer, true, &mut counted)?;
        self.role_block(consumers, false, &mut counted)?;
        for (barrier, (arrivals, expected, copied)) in counted {
            let (at, want) = (format!("m{}", barrier.0), self.p.group.barriers[barrier.0 as usize].arrivals);
            must(arrivals == want, &at, || {
                Rule::Transfer(format!("{arrivals} arrivals in an iteration; the barrier counts {want}"))
            })?;
            must(expected == copied, &at, || {
                Rule::Transfer(format!("{expected} bytes are expected, {copied} are copied"))
            })?;
        }
        Ok(())
    }

    fn role_block(&mut self, stmts: &[Stmt], producer: bool, counted: &mut Counted) -> Checked {
        for s in stmts {
            match s {
                Stmt::For { counter, extent, below: None, step, body } => {
                    self.size(&format!("loop c{}", counter.0), *extent)?;
                    self.enter(*counter, *extent, *step)?;
                    self.role_block(body, producer, counted)?;
                    self.counters.remove(counter);
                }
                Stmt::Group(g) => {
                    let copies = matches!(g, Group::WaitEmpty(..) | Group::Expect(..) | Group::Copy { .. });
                    must(copies == producer, &g.to_string(), || {
                        Rule::Transfer("a statement of the other role".to_owned())
                    })?;
                    self.group(g, counted)?;
                }
                Stmt::Zero(_) | Stmt::Store { .. } if !producer => self.stmt(s)?,
                _ => {
                    let what = "roles copy in bulk, multiply in groups, wait, and store".to_owned();
                    return fault("roles", Rule::Transfer(what));
                }
            }
        }
        Ok(())
    }

    fn group(&self, g: &Group, counted: &mut Counted) -> Checked {
        let at = &g.to_string();
        match g {
            Group::WaitFull(b, c) | Group::WaitEmpty(b, c) => self.barrier(at, *b, *c).map(|_| ()),
            Group::Expect(b, c, bytes) => {
                self.barrier(at, *b, *c)?;
                must(*bytes < 1 << 20, at, || Rule::Transfer("more bytes than a barrier counts".to_owned()))?;
                let counted = counted.entry(*b).or_default();
                (counted.0, counted.1) = (counted.0 + 1, counted.1 + u64::from(*bytes));
                Ok(())
            }
            Group::Arrive(b, c) => {
                self.barrier(at, *b, *c)?;
                counted.entry(*b).or_default().0 += self.p.warps.0;
                Ok(())
            }
            Group::Copy { from, panel, to, barrier, counter } => {
                let stages = self.barrier(at, *barrier, *counter)?;
                let Panels(from) = *from;
                let Some(panels) = self.p.group.panels.get(from as usize) else {
                    return fault(at, Rule::Unknown(format!("p{from}")));
                };
                let (rows, depth, bytes) = self.panel_tile(at, *to, stages)?;
                must(rows == panels.rows && self.steps(*counter) == Some((panels.depth, depth)), at, || {
                    Rule::Operand("a tile that is not a step of the panel".to_owned())
                })?;
                self.position(at, panel, false, 1)?;
                counted.entry(*barrier).or_default().2 += u64::from(bytes);
                Ok(())
            }
            Group::Mma { sum, left, row, right, counter } => {
                self.role(at, *sum, Role::Sum)?;
                let stages = self.p.group.tiles.get(left.0 as usize).map_or(0, |t| t.stages);
                let known = self.counters.contains_key(counter);
                must(known, at, || Rule::Unknown(format!("c{}", counter.0)))?;
                let (l, r) = (self.panel_tile(at, *left, stages)?, self.panel_tile(at, *right, stages)?);
                let f = self.p.fragment(*sum);
                must(f.rows == WARP_ROWS && f.cols == r.0 && l.1 == r.1 && row % 8 == 0, at, || {
                    Rule::Operand("tiles whose product is not the sums of a warp group".to_owned())
                })?;
                let end = u64::from(*row) + u64::from(self.p.warps.0 / GROUP_WARPS * GROUP_ROWS);
                must(end <= u64::from(l.0), at, || Rule::Outside(end, l.0))
            }
            Group::WaitMma(n) => {
                must(*n < 8, at, || Rule::Transfer("at most 7 groups may be under way".to_owned()))
            }
            Group::Fence | Group::Commit => Ok(()),
        }
    }

    /// The stages of a barrier.
    fn barrier(&self, at: &str, b: Barrier, counter: Counter) -> Result<u32, (String, Rule)> {
        let unknown = |what: String| (at.to_owned(), Rule::Unknown(what));
        let decl = self.p.group.barriers.get(b.0 as usize);
        let decl = decl.ok_or_else(|| unknown(format!("m{}", b.0)))?;
        if !self.counters.contains_key(&counter) {
            return Err(unknown(format!("c{}", counter.0)));
        }
        Ok(decl.stages)
    }

    /// Rows, depth and bytes of a stage of a tile with so many stages.
    fn panel_tile(&self, at: &str, t: PanelTile, stages: u32) -> Result<(u32, u32, u32), (String, Rule)> {
        let tile = self.p.group.tiles.get(t.0 as usize);
        let tile = tile.ok_or_else(|| (at.to_owned(), Rule::Unknown(format!("s{}", t.0))))?;
        match tile.stages == stages {
            true => Ok((tile.rows, tile.depth, tile.stage_bytes())),
            false => Err((at.to_owned(), Rule::Pipeline("tiles and barriers of other stages".to_owned()))),
        }
    }

    /// The extent and step of a loop around.
    fn steps(&self, counter: Counter) -> Option<(Size, u32)> {
        fn find(stmts: &[Stmt], wanted: Counter) -> Option<(Size, u32)> {
            stmts.iter().find_map(|s| match s {
                Stmt::For { counter, extent, step, .. } if *counter == wanted => Some((*extent, *step)),
                Stmt::For { body, .. } => find(body, wanted),
                Stmt::Roles { producer, consumers } => {
                    find(producer, wanted).or_else(|| find(consumers, wanted))
                }
                _ => None,
            })
        }
        find(&self.p.body, counter)
    }
}
