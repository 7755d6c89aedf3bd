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
mod parts;
mod repeats;

use std::collections::{BTreeSet, HashMap};

use rlx_ir::{Error, ErrorKind, Graph, Result};

use boxes::{Builder, Flat, Source};
pub use boxes::{op_family, op_name};
pub use parts::{Block, BoxKind, Diagram, DiagramBox, Edge, ParamLine};

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
