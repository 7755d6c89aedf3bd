//! Which tile a workgroup has, and several of them one after the other ([`crate::ir::Stmt::Tiles`]).

use std::fmt::Write;

use rlx_ir::Result;

use super::body::Body;
use super::language::size;
use super::{declare_view, is_mapped};
use crate::group::GROUP;
use crate::ir::{Counter, Program, Size, Stmt};

/// Rows and columns of tiles, and the number of the workgroup among all; where those have several, how many of both there are.
pub(super) fn declare_grid(p: &Program, (group, all): (&str, &str), out: &mut String) {
    let g = &p.grid;
    let _ = writeln!(
        out,
        "  const u32 rows = ((u32){} + {}u) / {}u, cols = ((u32){} + {}u) / {}u;",
        size(g.rows),
        g.tile.0 - 1,
        g.tile.0,
        size(g.cols),
        g.tile.1 - 1,
        g.tile.1,
    );
    if p.has_several_tiles() {
        let matrices: String = g.batch.iter().map(|&s| format!(" * (u32){}", size(s))).collect();
        let _ = writeln!(out, "  const u32 group = {group}, groups = {all}, tiles = rows * cols{matrices};");
    }
}

/// Where the tile of this number is: rows and columns of the grid, and which matrix. Coordinates that `body` does not have are left out: compilers
/// warn of them. What is left of the number beyond the batch is not 0 where there is no such tile.
pub(super) fn declare_place(
    p: &Program,
    (tile, before): (&str, &str),
    body: &str,
    out: &mut String,
) -> String {
    let bands = p.grid.bands;
    let group_col = if body.contains("group_col") { ", group_col = (int)(within / height)" } else { "" };
    let _ = write!(
        out,
        "  const u32 {before}plane = {tile} % (rows * cols);
  const u32 band = plane / ({bands}u * cols), within = plane % ({bands}u * cols);
  const u32 height = rows - band * {bands}u < {bands}u ? rows - band * {bands}u : {bands}u;
  const int group_row = (int)(band * {bands}u + within % height){group_col};
"
    );
    if !p.has_several_tiles() || !p.grid.batch.is_empty() || body.contains("batch") {
        let _ = writeln!(out, "  const int batch = (int)({tile} / (rows * cols));");
    }
    let mut rest = "batch".to_string();
    for (i, &s) in p.grid.batch.iter().enumerate().rev() {
        let _ = writeln!(out, "  const int n{i} = {rest} % {};", size(s));
        rest = format!("({rest} / {})", size(s));
    }
    rest
}

impl Body<'_> {
    /// A list for each tile of the workgroup, or of a team of its consumers, whose warps are counted from its first one on.
    pub(super) fn tiles(&mut self, turn: Counter, teams: u32, stmts: &[Stmt]) -> Result<()> {
        let (p, c) = (self.p, turn.0);
        let consumers = !self.is_producer;
        let (mut first, mut step) = (("0".to_owned(), "group".to_owned()), "groups".to_owned());
        if teams > 1 {
            let (lanes, warps) = (p.team_warps() * p.arch.lanes(), p.team_warps());
            self.line(&format!("const u32 team = (u32)thread / {lanes}u;"));
            self.line(&format!("const int team_row = warp_row % {warps};"));
            first = ("team".to_owned(), "group + team * groups".to_owned());
            step = format!("{teams} * groups");
        }
        self.line("#pragma unroll 1");
        let by = teams.max(1);
        self.open(&format!(
            "for (u32 c{c} = {}, tile = {}; tile < tiles; c{c} += {by}, tile += {step}) {{",
            first.0, first.1
        ));
        if teams > 1 {
            self.line("const int warp_row = team_row;");
            self.line(&format!("const int warp_group = warp_row / {};", GROUP / p.arch.lanes()));
        }
        self.turn = Some(turn);
        let (mut places, body) = (String::new(), self.apart(stmts)?);
        self.turn = None;
        declare_place(p, ("tile", ""), &body, &mut places);
        let views = || p.views.iter().enumerate().filter(|(i, _)| consumers && !is_mapped(p, *i));
        views().try_for_each(|(i, view)| declare_view(p, i, view, &mut places))?;
        places.lines().for_each(|line| self.line(line.trim_start()));
        self.text(&body);
        self.close();
        Ok(())
    }

    /// Before a loop of a list for tiles: its iterations, and those of the turns before. Of other lists nothing.
    pub(super) fn begin_ring(&mut self, counter: Counter, (extent, step): (Size, u32)) {
        let Some(turn) = self.turn else { return };
        let (c, n) = (counter.0, size(extent));
        let steps = format!("(u32)({n} / {step} + ({n} % {step} > 0))");
        self.line(&format!(
            "const u32 steps{c} = {n} > 0 ? {steps} : 0, before{c} = c{} * steps{c};",
            turn.0
        ));
    }

    /// Within it: the number by which stages and phases are counted.
    pub(super) fn declare_ring(&mut self, counter: Counter) {
        if self.turn.is_some() {
            self.line(&format!("const u32 r{0} = before{0} + c{0};", counter.0));
        }
    }

    /// What counts stages and phases of an iteration, or of a turn.
    pub(super) fn number(&self, c: Counter) -> String {
        match self.turn {
            Some(turn) if turn != c => format!("r{}", c.0),
            _ => format!("c{}", c.0),
        }
    }
}
