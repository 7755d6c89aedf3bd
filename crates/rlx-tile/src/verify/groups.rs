//! The group level: its declarations, and what each role may do.

use std::collections::BTreeMap;

use rlx_kernel::ir::Access;

use super::{Checked, Rule, Verifier, fault, must};
use crate::atom::Arch;
use crate::group::tensor::Tensor;
use crate::group::{
    Barrier, GROUP_ROWS, GROUP_WARPS, Group, GroupTile, GroupTileDecl, ROW, Staggered, WARP_ROWS,
};
use crate::ir::{Counter, Index, Role, Size, Stmt};
use crate::layout::CHUNK;
use crate::tensor_map::{MOST_DIMS, Map, MapDecl};

/// What barriers count in one iteration: arrivals, bytes that are expected, bytes that are copied.
pub(super) type Counted = BTreeMap<Barrier, (u32, u64, u64)>;

/// The roles of a workgroup.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Producer,
    Multiplier,
    Consumers,
}

impl Who {
    /// Whether the role has such a statement.
    fn does(self, g: &Group, arch: Arch) -> bool {
        let tensors = arch == Arch::Sm100a;
        match g {
            Group::WaitEmpty(..) | Group::Expect(..) | Group::Copy { .. } => self == Who::Producer,
            Group::Tensor(Tensor::Mma { .. } | Tensor::Commit(..)) => self == Who::Multiplier,
            Group::WaitFull(..) | Group::Tensor(Tensor::Fence) if tensors => self != Who::Producer,
            Group::Tensor(Tensor::Load { .. }) if tensors => self == Who::Consumers,
            Group::Tensor(_) => false,
            _ => !tensors && self == Who::Consumers,
        }
    }
}

impl Verifier<'_> {
    pub(super) fn group_declarations(&self) -> Checked {
        let (p, g) = (self.p, &self.p.group);
        let roles = p.producers() > 0;
        must(roles || *g == Default::default(), "group", || {
            Rule::Declaration("maps, their tiles and barriers are for programs with roles".to_owned())
        })?;
        if !roles {
            return Ok(());
        }
        must(p.arch.has_groups() && p.body.len() == 1 && p.tiles.is_empty(), "roles", || {
            Rule::Declaration("roles need sm_90a or sm_100a and are all that a program has".to_owned())
        })?;
        let (rows, cols) = p.warps;
        match p.arch {
            Arch::Sm100a => self.tensor_declarations()?,
            _ => must(rows % GROUP_WARPS == 0 && cols == 1 && rows <= 28, "roles", || {
                Rule::Declaration("consumers are one column of at most 7 warp groups".to_owned())
            })?,
        }
        must(p.arch == Arch::Sm100a || g.accumulators.is_empty(), "accumulators", || {
            Rule::Declaration("tensor memory is sm_100a's".to_owned())
        })?;
        must(g.registers.is_none_or(|registers| registers.fit(rows)), "registers", || {
            Rule::Declaration(
                "a producer has 24 registers or more, and consumers what it leaves, by 8".to_owned(),
            )
        })?;
        g.maps.iter().enumerate().try_for_each(|(i, map)| self.declared_map(&format!("a{i}"), map))?;
        g.tiles.iter().enumerate().try_for_each(|(i, t)| {
            let rows = t.rows.is_multiple_of(CHUNK) && (CHUNK..=256).contains(&t.rows);
            must(rows && (1..=4).contains(&t.blocks) && (1..=8).contains(&t.stages), &format!("s{i}"), || {
                Rule::Declaration(
                    "such a tile has 1 to 4 blocks of 8 to 256 rows, and 1 to 8 stages".to_owned(),
                )
            })
        })?;
        g.barriers.iter().enumerate().try_for_each(|(i, b)| {
            must((1..=8).contains(&b.stages) && (1..=1024).contains(&b.arrivals), &format!("m{i}"), || {
                Rule::Declaration("a barrier has 1 to 8 stages and 1 to 1024 arrivals".to_owned())
            })
        })
    }

    /// A map of a view of which tensor copies can copy boxes.
    fn declared_map(&self, at: &str, map: &MapDecl) -> Checked {
        let p = self.p;
        self.known_view(at, map.view)?;
        let view = p.view(map.view);
        let buffer = &p.buffers[view.buffer.index()];
        must(buffer.dtype == p.dtype && p.dtype.bits() == 16 && buffer.access == Access::Read, at, || {
            Rule::Declaration(format!("what is mapped is in a buffer of {} that is read", p.dtype))
        })?;
        let windows = view.window.as_ref().is_none_or(|window| {
            let rank = view.batch.len();
            rank == 0 && (1..=MOST_DIMS - 2).contains(&window.axes.len())
        });
        // A box has all of a row's matrices.
        let heads = view.heads.map_or(1, |heads| heads.count.max(1));
        let plain = windows && view.lookup.is_none() && (heads == 1 || view.window.is_none());
        must(plain && view.vector == CHUNK && map.rows.is_multiple_of(heads), at, || {
            Rule::Declaration(format!(
                "what is mapped are rows, of as many matrices as a box has rows of, or windows without a batch, accessed {CHUNK} elements at once"
            ))
        })?;
        [view.rows, view.cols].iter().try_for_each(|&size| self.size(at, size))?;
        let rows = map.rows.is_multiple_of(CHUNK) && (CHUNK..=256).contains(&map.rows);
        let dims = 2 + usize::from(view.heads.is_some()) + view.batch.len();
        must(rows && map.cols == ROW && dims <= MOST_DIMS, at, || {
            Rule::Declaration(format!(
                "a box has 8 to 256 rows of {ROW} elements, and a map at most {MOST_DIMS} dimensions"
            ))
        })
    }

    pub(super) fn roles(&mut self, [producer, multiplier, consumers]: [&[Stmt]; 3]) -> Checked {
        must(self.counters.is_empty(), "roles", || Rule::Transfer("roles in a loop".to_owned()))?;
        must(multiplier.is_empty() != (self.p.arch == Arch::Sm100a), "roles", || {
            Rule::Transfer("a lane multiplies alone on sm_100a, and only there".to_owned())
        })?;
        let mut counted = Counted::new();
        let [of_producer, of_consumers] = self.lists_for_tiles(producer, consumers)?;
        let several = of_producer.1.is_some();
        must(!several || multiplier.is_empty(), "tiles", || {
            Rule::Pipeline("several tiles of a workgroup are for consumers that multiply".to_owned())
        })?;
        let lists = [
            (of_producer, Who::Producer),
            ((multiplier, None), Who::Multiplier),
            (of_consumers, Who::Consumers),
        ];
        for ((list, turn), who) in lists {
            self.counters.extend(turn.map(|turn| (turn, None)));
            self.role_block(list, who, &mut counted)?;
            turn.iter().for_each(|turn| {
                self.counters.remove(turn);
            });
        }
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

    fn role_block(&mut self, stmts: &[Stmt], who: Who, counted: &mut Counted) -> Checked {
        let consumes = who == Who::Consumers;
        for s in stmts {
            match s {
                Stmt::For { counter, extent, below, step, body } => {
                    let at = format!("loop c{}", counter.0);
                    self.size(&at, *extent)?;
                    self.below(&at, *extent, *below)?;
                    must(below.is_none_or(|below| below.window.is_none()), &at, || {
                        Rule::Position("a loop of a role begins at its first step".to_owned())
                    })?;
                    self.enter(*counter, *extent, *step)?;
                    self.role_block(body, who, counted)?;
                    self.counters.remove(counter);
                }
                Stmt::Staggered(s) => self.staggered(s, who, counted)?,
                Stmt::Group(g) => {
                    must(who.does(g, self.p.arch), &g.to_string(), || {
                        Rule::Transfer("a statement of the other role".to_owned())
                    })?;
                    self.group(g, counted)?;
                }
                Stmt::Zero(_) | Stmt::Store { .. } | Stmt::Prefetch { .. } if consumes => self.stmt(s)?,
                Stmt::Fill(..) | Stmt::Each { .. } | Stmt::Exp2(_) if consumes => self.stmt(s)?,
                Stmt::Reduce { .. } | Stmt::Convert { .. } if consumes => self.stmt(s)?,
                _ => {
                    let what =
                        "roles copy boxes, multiply in groups, wait, compute on sums, and store".to_owned();
                    return fault("roles", Rule::Transfer(what));
                }
            }
        }
        Ok(())
    }

    /// What is counted in an iteration is what the list of two halves has; the others together must have as much.
    fn staggered(&mut self, s: &Staggered, who: Who, counted: &mut Counted) -> Checked {
        let at = format!("staggered c{}", s.counter.0);
        self.size(&at, s.extent)?;
        self.below(&at, s.extent, s.below)?;
        let open = !matches!(s.extent, Size::Const(_)) && s.below.is_none_or(|below| below.window.is_none());
        must(open, &at, || {
            Rule::Position("such a loop is of no known size, and begins at its first step".to_owned())
        })?;
        let (mut halves, mut both) = (Counted::new(), Counted::new());
        self.enter(s.counter, s.extent, s.step)?;
        self.role_block(&s.first, who, &mut halves)?;
        self.enter(s.behind, s.extent, s.step)?;
        self.role_block(&s.body, who, &mut both)?;
        self.counters.remove(&s.counter);
        self.role_block(&s.last, who, &mut halves)?;
        self.counters.remove(&s.behind);
        must(halves == both, &at, || {
            Rule::Transfer(
                "the first and the last half of an iteration count other things than two of them".to_owned(),
            )
        })?;
        for (barrier, (arrivals, expected, copied)) in both {
            let all = counted.entry(barrier).or_default();
            *all = (all.0 + arrivals, all.1 + expected, all.2 + copied);
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
            Group::Arrive(b, c, behind) => {
                let stages = self.barrier(at, *b, *c)?;
                must(*behind < stages, at, || {
                    Rule::Pipeline("an arrival for a stage that is used again before it".to_owned())
                })?;
                counted.entry(*b).or_default().0 += self.p.team_warps();
                Ok(())
            }
            // What they count is what other statements do. They are of lists for tiles, where it is looked at.
            Group::ArriveLast(b, c) | Group::WaitTurn(b, c) => {
                must(self.p.has_several_tiles() && self.used.contains(c), at, || {
                    Rule::Transfer("turns of a workgroup that has one tile".to_owned())
                })?;
                let known = (b.0 as usize) < self.p.group.barriers.len();
                must(known, at, || Rule::Unknown(format!("m{}", b.0)))
            }
            Group::Copy { from, row, col, to, block, barrier, counter } => {
                let stages = self.barrier(at, *barrier, *counter)?;
                let (tile, bytes) = self.copied((at, *from), (row, col), (*to, *block), stages)?;
                must(tile, at, || Rule::Operand("a box that is no block of the tile".to_owned()))?;
                counted.entry(*barrier).or_default().2 += u64::from(bytes);
                Ok(())
            }
            Group::Mma { sum, left, row, right, depth_rows, counter } => {
                self.role(at, *sum, Role::Sum)?;
                self.known_counter(at, *counter)?;
                // What is multiplied in every iteration has one stage.
                let stages_of = |t: &GroupTile| self.p.group.tiles.get(t.0 as usize).map_or(0, |t| t.stages);
                let stages = if stages_of(left) == 1 { 1 } else { stages_of(right) };
                let (l, r) =
                    (self.group_tile(at, *left, stages)?, self.group_tile(at, *right, stages_of(right))?);
                let f = self.p.fragment(*sum);
                let right = has_columns(&r, *depth_rows, f.cols);
                must(f.rows == WARP_ROWS && l.blocks == 1 && right && row % 8 == 0, at, || {
                    Rule::Operand("tiles whose product is not the sums of a warp group".to_owned())
                })?;
                let end = u64::from(*row) + u64::from(self.p.team_warps() / GROUP_WARPS * GROUP_ROWS);
                must(end <= u64::from(l.rows), at, || Rule::Outside(end, l.rows))
            }
            Group::MmaLeft { sum, left, right, counter } => {
                self.role(at, *sum, Role::Sum)?;
                self.role(at, *left, Role::Left)?;
                self.known_counter(at, *counter)?;
                let stages = self.p.group.tiles.get(right.0 as usize).map_or(0, |t| t.stages);
                let r = self.group_tile(at, *right, stages)?;
                let (s, l) = (self.p.fragment(*sum), self.p.fragment(*left));
                let rows = s.rows == WARP_ROWS && l.rows == WARP_ROWS;
                must(rows && l.cols == r.rows && s.cols == r.blocks * ROW, at, || {
                    Rule::Operand("operands whose product is not the sums of a warp group".to_owned())
                })
            }
            Group::WaitMma(n) => {
                must(*n < 8, at, || Rule::Transfer("at most 7 groups may be under way".to_owned()))
            }
            Group::Fence | Group::Commit => Ok(()),
            Group::Tensor(tensor) => self.tensor(at, tensor, counted),
        }
    }

    pub(super) fn known_counter(&self, at: &str, counter: Counter) -> Checked {
        must(self.counters.contains_key(&counter), at, || Rule::Unknown(format!("c{}", counter.0)))
    }

    /// The stages of a barrier.
    pub(super) fn barrier(&self, at: &str, b: Barrier, counter: Counter) -> Result<u32, (String, Rule)> {
        let unknown = |what: String| (at.to_owned(), Rule::Unknown(what));
        let decl = self.p.group.barriers.get(b.0 as usize);
        let decl = decl.ok_or_else(|| unknown(format!("m{}", b.0)))?;
        if !self.counters.contains_key(&counter) {
            return Err(unknown(format!("c{}", counter.0)));
        }
        Ok(decl.stages)
    }

    /// Whether a map's box is a block of a tile, and its bytes.
    fn copied(
        &self,
        (at, Map(from)): (&str, Map),
        (row, col): (&Index, &Index),
        (to, block): (GroupTile, u32),
        stages: u32,
    ) -> Result<(bool, u32), (String, Rule)> {
        let map = self.p.group.maps.get(from as usize);
        let map = map.ok_or_else(|| (at.to_owned(), Rule::Unknown(format!("a{from}"))))?;
        let tile = self.group_tile(at, to, stages)?;
        let heads = self.p.view(map.view).heads.map_or(1, |heads| heads.count);
        self.position(at, row, false, heads)?;
        // Chunks of a box are those of its view.
        self.position(at, col, false, CHUNK)?;
        Ok((map.rows == tile.rows && block < tile.blocks, tile.block_bytes()))
    }

    /// A tile with so many stages.
    pub(super) fn group_tile(
        &self,
        at: &str,
        t: GroupTile,
        stages: u32,
    ) -> Result<GroupTileDecl, (String, Rule)> {
        let tile = self.p.group.tiles.get(t.0 as usize);
        let tile = tile.ok_or_else(|| (at.to_owned(), Rule::Unknown(format!("s{}", t.0))))?;
        match tile.stages == stages {
            true => Ok(*tile),
            false => Err((at.to_owned(), Rule::Pipeline("tiles and barriers of other stages".to_owned()))),
        }
    }
}

/// Whether a right operand, as deep as a row of the left one, has so many columns.
pub(super) fn has_columns(right: &GroupTileDecl, depth_rows: bool, cols: u32) -> bool {
    match depth_rows {
        true => right.rows == ROW && cols == right.blocks * ROW,
        false => right.blocks == 1 && cols == right.rows,
    }
}
