//! Graphs as diagrams: boxes and edges, with repeated blocks drawn once.
//!
//! A [`Diagram`] has one box for each op, fused region or recognised composite,
//! weights as lines in the boxes that use them, shapes on the edges, and a frame with `× 12` around a block that
//! repeats twelve times. It is drawn as SVG ([`Diagram::svg`]) and as Graphviz's DOT ([`Diagram::dot`]).
//!
//! ```
//! use rlx::diagram::Diagram;
//! use rlx::prelude::*;
//! let mut graph = Graph::new("tower");
//! let mut x = graph.input("x", Shape::new(&[1, 8], DType::F32));
//! for layer in 0..3 {
//!     let w = graph.param(format!("w{layer}"), Shape::new(&[8, 8], DType::F32));
//!     x = graph.mm(x, w);
//!     x = graph.relu(x);
//! }
//! graph.set_outputs(vec![x]);
//! let diagram = Diagram::of(&graph, &["y".to_string()]);
//! assert_eq!((diagram.boxes.len(), diagram.blocks[0].times), (4, 3));
//! assert!(diagram.svg()?.contains("× 3") && diagram.dot().starts_with("digraph"));
//! # Ok::<(), rlx::prelude::Error>(())
//! ```
//!
//! The steps: `boxes` folds fixed operands and chains of views, `order` puts equal blocks one after
//! another, `repeats` finds them, `layout` assigns ranks, orders and positions, `draw` and `dot` write the output.

mod boxes;
mod dot;
mod draw;
mod layout;
mod order;
mod repeats;

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use rlx_ir::{Error, ErrorKind, Graph, Result};

use boxes::{Builder, Flat, Source};
pub use boxes::{op_family, op_name};

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
    fn label(&self) -> String {
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
    fn new(kind: BoxKind, title: String, results: Vec<String>) -> Self {
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

/// Diagrams of more boxes are rejected: they are unreadable, and their layout takes minutes.
const MOST_DRAWN: usize = 1500;

impl Diagram {
    /// The diagram of `graph`, whose outputs are called `outputs` (those without a name are numbered).
    pub fn of(graph: &Graph, outputs: &[String]) -> Self {
        let flat = order::in_blocks(Builder::new(graph, outputs).build());
        let repeats = repeats::find(&flat);
        let mut stand_in = repeats::stand_ins(flat.boxes.len(), &repeats);
        join_borders(&flat, &mut stand_in);
        // The positions of the boxes that are drawn.
        let mut place = vec![0; stand_in.len()];
        let mut drawn = 0;
        for (b, &by) in stand_in.iter().enumerate() {
            place[b] = drawn;
            drawn += usize::from(by == b);
        }
        let blocks = repeats
            .iter()
            .filter(|r| stand_in[r.start] == r.start)
            .map(|r| Block { times: r.times, boxes: place[r.start]..place[r.start + r.period] });
        let mut edges = BTreeSet::new();
        for (b, sources) in flat.inputs.iter().enumerate().filter(|&(b, _)| stand_in[b] == b) {
            for source in sources {
                let from = place[stand_in[source.from]];
                edges.insert(Edge { from, to: place[b], result: source.result });
            }
        }
        Diagram {
            name: graph.name.clone(),
            edges: edges.into_iter().collect(),
            blocks: blocks.collect(),
            nodes: graph.len(),
            parameter_bytes: flat.parameter_bytes,
            boxes: joined(flat, &stand_in),
        }
    }

    /// The diagram as SVG.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for more boxes than a diagram can show.
    pub fn svg(&self) -> Result<String> {
        if self.boxes.len() > MOST_DRAWN {
            let message =
                format!("{} boxes are more than the {MOST_DRAWN} a diagram can show", self.boxes.len());
            return Err(Error::new(ErrorKind::Unsupported, message).with_hint("use --format dot or json"));
        }
        Ok(draw::svg(self))
    }

    /// The diagram in Graphviz's language.
    pub fn dot(&self) -> String {
        dot::dot(self)
    }
}

/// A shape without the dimensions that are long expressions: `[batch, …, 64] f32`.
fn short_shape(shape: &str) -> String {
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

/// Separate inputs of each repetition are grouped, and so are outputs.
fn join_borders(flat: &Flat, stand_in: &mut [usize]) {
    for b in 0..flat.boxes.len() {
        for (this, that) in flat.inputs[b].iter().zip(&flat.inputs[stand_in[b]]) {
            if flat.boxes[this.from].kind == BoxKind::Input && flat.boxes[b].kind != BoxKind::Output {
                stand_in[this.from] = that.from;
            }
        }
    }
    let mut first = HashMap::new();
    for b in (0..flat.boxes.len()).filter(|&b| flat.boxes[b].kind == BoxKind::Output) {
        let Source { from, result } = flat.inputs[b][0];
        stand_in[b] = *first.entry((stand_in[from], result)).or_insert(b);
    }
}

/// The boxes that are drawn, each with all nodes that it represents.
fn joined(flat: Flat, stand_in: &[usize]) -> Vec<DiagramBox> {
    let mut boxes: Vec<Option<DiagramBox>> = flat.boxes.into_iter().map(Some).collect();
    for b in 0..boxes.len() {
        if stand_in[b] == b {
            continue;
        }
        let (Some(other), Some(first)) = (boxes[b].take(), boxes[stand_in[b]].as_mut()) else { continue };
        first.times += 1;
        first.nodes.extend(other.nodes);
        for (line, more) in first.params.iter_mut().zip(other.params) {
            line.nodes.extend(more.nodes);
        }
        if matches!(first.kind, BoxKind::Input | BoxKind::Output) {
            let start = first.title.split(" … ").next().unwrap_or_default().to_owned();
            first.title = format!("{start} … {}", other.title);
        }
    }
    boxes.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests;
