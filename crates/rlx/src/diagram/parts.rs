//! What a diagram is made of: boxes, edges, and blocks that repeat.

use std::ops::Range;

use crate::svg::shortened;
use crate::units;

/// What a box represents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoxKind {
    /// An input of the graph.
    Input,
    /// An output of the graph.
    Output,
    /// A weight that is an output itself; other weights are lines in the boxes that use them.
    Parameter,
    /// Ops that view the same elements differently.
    View,
    /// An op, a composite or a fused region.
    Op,
}

impl BoxKind {
    /// The name that JSON and style classes use.
    pub fn name(self) -> &'static str {
        match self {
            BoxKind::Input => "input",
            BoxKind::Output => "output",
            BoxKind::Parameter => "parameter",
            BoxKind::View => "view",
            BoxKind::Op => "op",
        }
    }
}

/// A fixed operand of a box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamLine {
    /// The parameter's name; of several that are combined beforehand, the largest one's.
    pub name: String,
    /// How many more are combined with it.
    pub more: usize,
    /// Its shape.
    pub shape: String,
    /// Bytes of all of them.
    pub bytes: usize,
    /// Whether it is a parameter, not a constant.
    pub param: bool,
    /// Whether it is transformed once before the first run: folded, transposed, packed.
    pub prepared: bool,
    /// The nodes it represents, as messages name them.
    pub nodes: Vec<String>,
}

impl ParamLine {
    /// The line in diagrams: name, shape, and size if known.
    pub(super) fn label(&self) -> String {
        let more = if self.more > 0 { format!(" and {} more", self.more) } else { String::new() };
        let size = if self.bytes > 0 { format!(" · {}", units::bytes(self.bytes)) } else { String::new() };
        format!("{}{more} {}{size}", shortened(&self.name, 30), short_shape(&self.shape))
    }
}

/// A box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiagramBox {
    /// What it represents.
    pub kind: BoxKind,
    /// The op's name, or that of the input or output.
    pub title: String,
    /// Further details of the op.
    pub detail: Option<String>,
    /// Its fixed operands.
    pub params: Vec<ParamLine>,
    /// The shapes of its results.
    pub results: Vec<String>,
    /// How often it repeats: once, or as often as the blocks around it.
    pub times: usize,
    /// The nodes it represents in all repetitions, as messages name them.
    pub nodes: Vec<String>,
    /// Where the first of them came from.
    pub origin: Option<String>,
}

impl DiagramBox {
    pub(super) fn new(kind: BoxKind, title: String, results: Vec<String>) -> Self {
        let (params, nodes) = (Vec::new(), Vec::new());
        DiagramBox { kind, title, detail: None, params, results, times: 1, nodes, origin: None }
    }
}

/// A value passed from one box to another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// The box that produces it: its position in [`Diagram::boxes`].
    pub from: usize,
    /// The box that reads it.
    pub to: usize,
    /// The index among that box's results.
    pub result: usize,
}

/// A block that repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// How often.
    pub times: usize,
    /// The positions of its boxes in [`Diagram::boxes`].
    pub boxes: Range<usize>,
}

/// A graph as boxes and edges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagram {
    /// The graph's name.
    pub name: String,
    /// The boxes, each after those it reads.
    pub boxes: Vec<DiagramBox>,
    /// The edges, in order.
    pub edges: Vec<Edge>,
    /// The blocks that repeat, outer ones before those inside them.
    pub blocks: Vec<Block>,
    /// How many nodes the graph has.
    pub nodes: usize,
    /// Bytes of all parameters, as far as their sizes are known.
    pub parameter_bytes: usize,
}

/// A shape without the dimensions that are long expressions: `[batch, …, 64] f32`.
pub(super) fn short_shape(shape: &str) -> String {
    const MOST: usize = 14;
    let Some((dims, dtype)) = shape.strip_prefix('[').and_then(|s| s.rsplit_once("] ")) else {
        return shape.to_owned();
    };
    let (mut parts, mut depth) = (vec![String::new()], 0usize);
    for c in dims.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match c {
            ',' if depth == 0 => parts.push(String::new()),
            c => parts.last_mut().into_iter().for_each(|p| p.push(c)),
        }
    }
    let short = |p: &String| if p.trim().chars().count() > MOST { "…" } else { p.trim() }.to_owned();
    format!("[{}] {dtype}", parts.iter().map(short).collect::<Vec<_>>().join(", "))
}
