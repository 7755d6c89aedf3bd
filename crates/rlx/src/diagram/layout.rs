//! Layered layout of boxes (after Sugiyama): ranks along the edges, an order within each rank with few crossings,
//! and positions that keep edges straight.
//!
//! Long edges have a waypoint in each rank they cross; edges of the same value share waypoints. The order is found by the
//! barycentre method, sweeping down and up. Positions minimise the squared distance of each cell to its neighbours without
//! overlap, which for one rank is isotonic regression.

use rlx_ir::sort::{sort_by, sort_by_key};

/// An item to position. It extends `left` and `right` of its position.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) height: f64,
    pub(super) end: Option<End>,
}

/// Cells at the border of the diagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Top,
    Bottom,
}

/// An edge. `from_dx` is the offset of its start from the cell's position; `to_dx` that of its end, if fixed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) from_dx: f64,
    pub(super) to_dx: Option<f64>,
    /// Edges with the same value run together.
    pub(super) value: (usize, usize),
}

/// Where everything is.
#[derive(Debug)]
pub(super) struct Placed {
    /// The position of each cell, and its top.
    pub(super) at: Vec<(f64, f64)>,
    /// The path of each link: down from its box, then alternately a curve to the next rank and straight down through it.
    pub(super) routes: Vec<Vec<(f64, f64)>>,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// Between ranks: space for a curve, and below it space for a label, next to which the path is straight.
const RANK_GAP: f64 = 52.0;
const LABEL: f64 = 18.0;
/// Between cells.
const CELL_GAP: f64 = 18.0;
const SWEEPS: usize = 24;

/// Places the cells.
pub(super) fn place(cells: &[Cell], links: &[Link]) -> Placed {
    let rank = ranks(cells, links);
    let mut work = Work::new(cells, links, rank);
    work.sort();
    work.spread();
    work.finish(links, cells.len())
}

/// The longest path from a source; sources are directly above their readers.
fn ranks(cells: &[Cell], links: &[Link]) -> Vec<usize> {
    let floor = usize::from(cells.iter().any(|c| c.end == Some(End::Top)));
    let mut rank: Vec<usize> =
        cells.iter().map(|c| if c.end == Some(End::Top) { 0 } else { floor }).collect();
    // Links go forward, so the longest path bounds the number of rounds; sorted by start, one is usually enough.
    let mut order: Vec<&Link> = links.iter().collect();
    sort_by_key(&mut order, |l| l.from);
    let mut changed = true;
    for _ in 0..=cells.len() {
        if !std::mem::take(&mut changed) {
            break;
        }
        for link in &order {
            if rank[link.to] < rank[link.from] + 1 {
                rank[link.to] = rank[link.from] + 1;
                changed = true;
            }
        }
    }
    for (at, cell) in cells.iter().enumerate() {
        if cell.end.is_none() && !links.iter().any(|l| l.to == at) {
            let below = links.iter().filter(|l| l.from == at).map(|l| rank[l.to]).min();
            rank[at] = below.map_or(rank[at], |r| r - 1);
        }
    }
    let inner = cells.iter().zip(&rank).filter(|(c, _)| c.end != Some(End::Bottom)).map(|(_, &r)| r);
    let last = inner.max().unwrap_or(0) + 1;
    for (cell, rank) in cells.iter().zip(&mut rank) {
        if cell.end == Some(End::Bottom) {
            *rank = last;
        }
    }
    rank
}

/// A piece of an edge between neighbouring ranks.
struct Piece {
    upper: usize,
    lower: usize,
    /// Its start and end, from the positions of the cells.
    dx: [f64; 2],
    weight: f64,
}

struct Work {
    cells: Vec<Cell>,
    /// The cells of each rank, from left to right.
    rows: Vec<Vec<usize>>,
    rank: Vec<usize>,
    pieces: Vec<Piece>,
    /// By cell: its pieces upwards and downwards.
    up: Vec<Vec<usize>>,
    down: Vec<Vec<usize>>,
    /// By link: the waypoints it passes.
    ways: Vec<Vec<usize>>,
    x: Vec<f64>,
}

impl Work {
    fn new(cells: &[Cell], links: &[Link], rank: Vec<usize>) -> Self {
        let mut work = Work {
            cells: cells.to_vec(),
            rows: Vec::new(),
            rank,
            pieces: Vec::new(),
            up: Vec::new(),
            down: Vec::new(),
            ways: Vec::new(),
            x: Vec::new(),
        };
        let mut chains: std::collections::HashMap<(usize, (usize, usize)), Vec<usize>> = Default::default();
        for link in links {
            let chain = chains.entry((link.from, link.value)).or_default();
            let needed = (work.rank[link.to] - work.rank[link.from]).saturating_sub(1);
            while chain.len() < needed {
                let before = chain.last().copied().unwrap_or(link.from);
                let dx = if chain.is_empty() { link.from_dx } else { 0.0 };
                let here = work.waypoint(work.rank[before] + 1);
                work.pieces.push(Piece { upper: before, lower: here, dx: [dx, 0.0], weight: 4.0 });
                chain.push(here);
            }
            let upper = if needed == 0 { link.from } else { chain[needed - 1] };
            let dx = [if needed == 0 { link.from_dx } else { 0.0 }, link.to_dx.unwrap_or(0.0)];
            work.pieces.push(Piece { upper, lower: link.to, dx, weight: 1.0 });
            work.ways.push(chain[..needed].to_vec());
        }
        work.index();
        work
    }

    fn waypoint(&mut self, rank: usize) -> usize {
        self.cells.push(Cell { left: 4.0, right: 4.0, height: 0.0, end: None });
        self.rank.push(rank);
        self.cells.len() - 1
    }

    fn index(&mut self) {
        self.rows = vec![Vec::new(); self.rank.iter().max().map_or(0, |r| r + 1)];
        for (cell, &rank) in self.rank.iter().enumerate() {
            self.rows[rank].push(cell);
        }
        (self.up, self.down) = (vec![Vec::new(); self.cells.len()], vec![Vec::new(); self.cells.len()]);
        for (p, piece) in self.pieces.iter().enumerate() {
            self.up[piece.lower].push(p);
            self.down[piece.upper].push(p);
        }
        self.x = vec![0.0; self.cells.len()];
    }

    /// Orders each rank by the barycentres of its neighbours, down and up, and keeps the order with the fewest crossings.
    fn sort(&mut self) {
        let mut best = (self.crossings(), self.rows.clone());
        for sweep in 0..SWEEPS {
            let down = sweep % 2 == 0;
            let mut place = self.places();
            for step in 1..self.rows.len() {
                let row = if down { step } else { self.rows.len() - 1 - step };
                let centre = |&cell: &usize| {
                    let pieces = if down { &self.up[cell] } else { &self.down[cell] };
                    let other = |&p: &usize| {
                        let piece = &self.pieces[p];
                        place[if down { piece.upper } else { piece.lower }]
                    };
                    match pieces.len() {
                        0 => place[cell],
                        n => pieces.iter().map(other).sum::<f64>() / n as f64,
                    }
                };
                let mut keyed: Vec<(f64, usize)> = self.rows[row].iter().map(|c| (centre(c), *c)).collect();
                sort_by(&mut keyed, |a, b| a.0.total_cmp(&b.0));
                self.rows[row] = keyed.into_iter().map(|(_, c)| c).collect();
                let width = self.rows[row].len() as f64;
                for (i, &cell) in self.rows[row].iter().enumerate() {
                    place[cell] = (i as f64 + 0.5) / width;
                }
            }
            let crossings = self.crossings();
            if crossings < best.0 {
                best = (crossings, self.rows.clone());
            }
        }
        self.rows = best.1;
    }

    /// Each cell's position in its rank, from 0 to 1.
    fn places(&self) -> Vec<f64> {
        let mut place = vec![0.0; self.cells.len()];
        for row in &self.rows {
            let width = row.len() as f64;
            row.iter().enumerate().for_each(|(i, &cell)| place[cell] = (i as f64 + 0.5) / width);
        }
        place
    }

    fn crossings(&self) -> usize {
        let place = self.places();
        let mut sum = 0;
        for row in &self.rows {
            let pieces: Vec<&Piece> =
                row.iter().flat_map(|&c| &self.down[c]).map(|&p| &self.pieces[p]).collect();
            for (i, a) in pieces.iter().enumerate() {
                let crosses = |b: &&&Piece| {
                    let (over, under) = (place[a.upper] - place[b.upper], place[a.lower] - place[b.lower]);
                    over * under < 0.0
                };
                sum += pieces[i + 1..].iter().filter(crosses).count();
            }
        }
        sum
    }

    /// Assigns positions to cells.
    fn spread(&mut self) {
        for row in 0..self.rows.len() {
            self.settle(row, |_| None);
        }
        for sweep in 0..SWEEPS {
            let both = sweep + 6 > SWEEPS;
            for step in 0..self.rows.len() {
                let down = sweep % 2 == 0;
                let row = if down { step } else { self.rows.len() - 1 - step };
                let wish = |cell: usize| {
                    let (mut sum, mut weight) = (0.0, 0.0);
                    for &p in self.up[cell].iter().filter(|_| down || both) {
                        let piece = &self.pieces[p];
                        sum += piece.weight * (self.x[piece.upper] + piece.dx[0] - piece.dx[1]);
                        weight += piece.weight;
                    }
                    for &p in self.down[cell].iter().filter(|_| !down || both) {
                        let piece = &self.pieces[p];
                        sum += piece.weight * (self.x[piece.lower] + piece.dx[1] - piece.dx[0]);
                        weight += piece.weight;
                    }
                    (weight > 0.0).then(|| (sum / weight, weight))
                };
                let wishes: Vec<Option<(f64, f64)>> = self.rows[row].iter().map(|&c| wish(c)).collect();
                self.settle(row, |i| wishes[i]);
            }
        }
    }

    /// Puts a rank's cells as near as may be to where they wish to be (with a weight), without overlaps: the mean of each
    /// run of cells that push each other.
    fn settle(&mut self, row: usize, wish: impl Fn(usize) -> Option<(f64, f64)>) {
        let cells = &self.rows[row];
        // Runs of cells: the weighted sum of wishes, the weight, how many.
        let mut runs: Vec<(f64, f64, usize)> = Vec::new();
        let mut offsets = Vec::with_capacity(cells.len());
        let mut offset = 0.0;
        for (i, &cell) in cells.iter().enumerate() {
            if i > 0 {
                let before = &self.cells[cells[i - 1]];
                offset += before.right + CELL_GAP + self.cells[cell].left;
            }
            offsets.push(offset);
            let (wanted, weight) = wish(i).unwrap_or((self.x[cell].max(offset), 0.1));
            runs.push(((wanted - offset) * weight, weight, 1));
            while let [.., a, b] = runs[..] {
                if a.0 / a.1 <= b.0 / b.1 {
                    break;
                }
                runs.truncate(runs.len() - 2);
                runs.push((a.0 + b.0, a.1 + b.1, a.2 + b.2));
            }
        }
        let mut i = 0;
        for (sum, weight, count) in runs {
            for _ in 0..count {
                self.x[self.rows[row][i]] = sum / weight + offsets[i];
                i += 1;
            }
        }
    }

    fn finish(self, links: &[Link], count: usize) -> Placed {
        let left = self.cells.iter().zip(&self.x).map(|(c, x)| x - c.left).fold(f64::INFINITY, f64::min);
        let left = if left.is_finite() { left } else { 0.0 };
        let x: Vec<f64> = self.x.iter().map(|x| x - left).collect();
        let width = self.cells.iter().zip(&x).map(|(c, x)| x + c.right).fold(0.0, f64::max);
        let mut tops = Vec::with_capacity(self.rows.len());
        let mut y = 0.0;
        for row in &self.rows {
            let height = row.iter().map(|&c| self.cells[c].height).fold(0.0, f64::max);
            tops.push((y, height));
            y += height + RANK_GAP;
        }
        let height = (y - RANK_GAP).max(0.0);
        let at: Vec<(f64, f64)> = (0..count).map(|c| (x[c], tops[self.rank[c]].0)).collect();
        let ends = self.ends(links, &x);
        let route = |(l, link): (usize, &Link)| {
            let start = (x[link.from] + link.from_dx, at[link.from].1 + self.cells[link.from].height);
            let mut route = vec![start];
            // Below a short box in a tall rank the path is straight.
            let (top, tall) = tops[self.rank[link.from]];
            route.push((start.0, top + tall + LABEL));
            for &way in &self.ways[l] {
                let (top, tall) = tops[self.rank[way]];
                route.extend([(x[way], top), (x[way], top + tall)]);
            }
            route.push((ends[l], at[link.to].1));
            route
        };
        let routes = links.iter().enumerate().map(route).collect();
        Placed { at, routes, width, height }
    }

    /// Where each link ends: those without a fixed end are side by side, in the order of their sources.
    fn ends(&self, links: &[Link], x: &[f64]) -> Vec<f64> {
        let mut ends: Vec<f64> = links.iter().map(|l| x[l.to] + l.to_dx.unwrap_or(0.0)).collect();
        let mut free: Vec<usize> = (0..links.len()).filter(|&l| links[l].to_dx.is_none()).collect();
        let comes = |l: usize| self.ways[l].last().map_or(x[links[l].from] + links[l].from_dx, |&w| x[w]);
        sort_by(&mut free, |&a, &b| links[a].to.cmp(&links[b].to).then(comes(a).total_cmp(&comes(b))));
        for group in free.chunk_by(|&a, &b| links[a].to == links[b].to) {
            let cell = &self.cells[links[group[0]].to];
            let room = 1.4 * cell.left.min(cell.right) / group.len() as f64;
            for (i, &l) in group.iter().enumerate() {
                ends[l] += (i as f64 - (group.len() - 1) as f64 / 2.0) * room.min(26.0);
            }
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(width: f64) -> Cell {
        Cell { left: width / 2.0, right: width / 2.0, height: 20.0, end: None }
    }

    fn link(from: usize, to: usize) -> Link {
        Link { from, to, from_dx: 0.0, to_dx: None, value: (from, 0) }
    }

    #[test]
    fn a_chain_is_one_straight_line() {
        let placed = place(&[cell(40.0), cell(90.0), cell(10.0)], &[link(0, 1), link(1, 2)]);
        assert!(placed.at.windows(2).all(|w| (w[0].0 - w[1].0).abs() < 0.01 && w[0].1 + 20.0 < w[1].1));
        assert!((placed.width - 90.0).abs() < 0.01, "{placed:?}");
    }

    #[test]
    fn cells_of_a_rank_do_not_overlap_and_edges_end_at_their_cells() {
        // A fan of seven, joined again, with an edge past all of them.
        let mut cells = vec![cell(50.0)];
        let mut links = Vec::new();
        for i in 1..=7 {
            cells.push(cell(20.0 * i as f64));
            links.extend([link(0, i), link(i, 8)]);
        }
        cells.push(cell(60.0));
        links.push(link(0, 8));
        let placed = place(&cells, &links);
        let mut spans: Vec<(f64, f64)> =
            (1..=7).map(|i| (placed.at[i].0 - cells[i].left, placed.at[i].0 + cells[i].right)).collect();
        sort_by(&mut spans, |a, b| a.0.total_cmp(&b.0));
        assert!(spans.windows(2).all(|w| w[0].1 < w[1].0), "{spans:?}");
        for (link, route) in links.iter().zip(&placed.routes) {
            let (x, y) = route[route.len() - 1];
            let (at, top) = placed.at[link.to];
            assert!((x - at).abs() <= cells[link.to].left && (y - top).abs() < 0.01);
        }
    }

    #[test]
    fn an_order_without_crossings_is_found() {
        // Two chains whose second halves are in reverse order.
        let cells = [cell(30.0); 6];
        let links = [link(0, 3), link(1, 2), link(3, 4), link(2, 5)];
        let placed = place(&cells, &links);
        let side = |a: usize, b: usize| placed.at[a].0 < placed.at[b].0;
        assert_eq!(side(0, 1), side(3, 2));
        assert_eq!(side(0, 1), side(4, 5));
    }
}
