//! A diagram as SVG.
//!
//! Each level (the whole diagram, and the inside of each block that repeats) is laid out by itself. A block is one
//! large box in the level around it; edges that cross its frame pass through ports at its top and bottom.

use std::fmt::Write;

use super::layout::{Cell, End, Link, place};
use super::parts::{BoxKind, Diagram, DiagramBox, short_shape};
use crate::svg::{document, escape, short, shortened, small_width, text, title_width};
use crate::units;

const STYLE: &str = "\
.b{stroke-width:1.2;fill:#f6f8fa;stroke:#8c959f}\
.input{fill:#ddf4ff;stroke:#0969da}.output{fill:#dafbe1;stroke:#1a7f37}.parameter{fill:#fff8c5;stroke:#9a6700}\
.view{fill:#ffffff;stroke:#afb8c1;stroke-dasharray:3 2}\
.block{fill:#0969da;fill-opacity:.04;stroke:#0969da;stroke-dasharray:6 4}\
.e{fill:none;stroke:#6e7781;stroke-width:1.2}.a{fill:#6e7781}\
.p{fill:#7d4e00}.x{fill:#0969da}\
@dark\
.b{fill:#161b22;stroke:#6e7681}.input{fill:#0c2d4d;stroke:#4493f8}.output{fill:#0f2d17;stroke:#3fb950}\
.parameter{fill:#3b2e0a;stroke:#d29922}.view{fill:#0d1117;stroke:#6e7681}.block{stroke:#4493f8}\
.e{stroke:#8b949e}.a{fill:#8b949e}.p{fill:#e3b341}.x{fill:#4493f8}";

/// Lines of weights that a box shows.
const MOST_LINES: usize = 4;
const LINE: f64 = 15.0;
const MARGIN: f64 = 20.0;
/// Below the top of a block's frame.
const HEAD: f64 = 6.0;

/// The diagram.
pub(super) fn svg(diagram: &Diagram) -> String {
    let scene = Level::new(diagram, 0..diagram.boxes.len(), None).draw();
    let drawn = diagram.boxes.len();
    let sizes = match diagram.parameter_bytes {
        0 => String::new(),
        n => format!(", {} of parameters", units::bytes(n)),
    };
    let caption = format!("{} nodes in {drawn} boxes{sizes}", diagram.nodes);
    let top = MARGIN + 48.0;
    let legend = legend(MARGIN, top + scene.height + 34.0);
    let width = scene.width.max(title_width(&diagram.name)).max(small_width(&caption)).max(430.0);
    let mut body = String::from(
        "<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
         orient=\"auto\"><path class=\"a\" d=\"M0 0 8 4 0 8z\"/></marker></defs>\n",
    );
    body += &format!("<title>{}</title>\n", escape(&diagram.name));
    body += &text(MARGIN, MARGIN + 14.0, "t", &diagram.name);
    body += &text(MARGIN, MARGIN + 31.0, "q", &caption);
    let left = MARGIN + ((width - scene.width) / 2.0).max(0.0);
    body += &format!("<g transform=\"translate({} {})\">\n{}</g>\n", short(left), short(top), scene.body);
    body += &legend;
    document(width + 2.0 * MARGIN, top + scene.height + 34.0 + 24.0, STYLE, &body)
}

/// What the colours mean.
fn legend(x: f64, y: f64) -> String {
    let mut out = String::new();
    let mut x = x;
    for (class, name) in [("input", "input"), ("output", "output"), ("", "computed"), ("view", "only a view")]
    {
        let (left, top) = (short(x), short(y - 9.0));
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "<rect class=\"b {class}\" x=\"{left}\" y=\"{top}\" width=\"14\" height=\"10\" rx=\"3\"/>"
        );
        out += &text(x + 19.0, y, "q", name);
        x += 19.0 + small_width(name) + 14.0;
    }
    out + &text(x, y, "s p", "■ parameter")
}

/// A drawn level; coordinates from its own corner.
struct Scene {
    width: f64,
    height: f64,
    body: String,
    /// Where values come in and go out: the value, and how far from the left.
    ins: Vec<((usize, usize), f64)>,
    outs: Vec<((usize, usize), f64)>,
}

/// What is at a level.
enum Item {
    Box(usize),
    Block(usize, Scene),
}

struct Level<'a> {
    diagram: &'a Diagram,
    range: std::ops::Range<usize>,
    items: Vec<Item>,
    /// By box of the range: its item.
    item_of: Vec<usize>,
    framed: bool,
}

impl<'a> Level<'a> {
    fn new(diagram: &'a Diagram, range: std::ops::Range<usize>, own: Option<usize>) -> Self {
        let (mut items, mut item_of) = (Vec::new(), Vec::new());
        let mut at = range.start;
        while at < range.end {
            // Outer blocks come first, and blocks within a level are behind their own.
            let inner = own.map_or(0, |own| own + 1);
            let blocks = diagram.blocks.iter().enumerate().skip(inner);
            let starts =
                |(_, block): &(usize, &super::Block)| block.boxes.start == at && block.boxes.end <= range.end;
            let child =
                blocks.filter(starts).max_by_key(|(b, block)| (block.boxes.end, std::cmp::Reverse(*b)));
            let end = match child {
                Some((b, block)) => {
                    items.push(Item::Block(b, Level::new(diagram, block.boxes.clone(), Some(b)).draw()));
                    block.boxes.end
                }
                None => {
                    items.push(Item::Box(at));
                    at + 1
                }
            };
            item_of.extend((at..end).map(|_| items.len() - 1));
            at = end;
        }
        Level { diagram, range, items, item_of, framed: own.is_some() }
    }

    fn item(&self, at: usize) -> Option<usize> {
        self.range.contains(&at).then(|| self.item_of[at - self.range.start])
    }

    fn draw(self) -> Scene {
        let mut cells: Vec<Cell> = self.items.iter().map(|item| self.cell(item)).collect();
        let (mut ins, mut outs) = (Vec::new(), Vec::new());
        let mut links: Vec<Link> = Vec::new();
        for edge in &self.diagram.edges {
            let value = (edge.from, edge.result);
            let (from, to) = (self.item(edge.from), self.item(edge.to));
            if (from.is_none() && to.is_none()) || from == to {
                continue;
            }
            let from = from.unwrap_or_else(|| port(&mut cells, &mut ins, value, End::Top));
            let to = to.unwrap_or_else(|| port(&mut cells, &mut outs, value, End::Bottom));
            if links.iter().any(|l| (l.from, l.to, l.value) == (from, to, value)) {
                continue;
            }
            let port_of = |item: usize, ins: bool| match self.items.get(item) {
                Some(Item::Block(_, scene)) => {
                    let ports = if ins { &scene.ins } else { &scene.outs };
                    ports.iter().find(|(v, _)| *v == value).map(|(_, x)| x - scene.width / 2.0)
                }
                Some(Item::Box(_)) => None,
                None => Some(0.0),
            };
            links.push(Link {
                from,
                to,
                from_dx: port_of(from, false).unwrap_or(0.0),
                to_dx: port_of(to, true),
                value,
            });
        }
        let placed = place(&cells, &links);
        let mut body = String::new();
        for (link, route) in links.iter().zip(&placed.routes) {
            let ends_in_box = matches!(self.items.get(link.to), Some(Item::Box(_)));
            body += &path(route, ends_in_box);
        }
        for (item, &(x, y)) in self.items.iter().zip(&placed.at) {
            match item {
                Item::Box(at) => body += &draw_box(&self.diagram.boxes[*at], x, y, self.is_read(*at)),
                Item::Block(b, scene) => body += &frame(scene, self.diagram.blocks[*b].times, x, y),
            }
        }
        let where_is = |ports: Vec<((usize, usize), usize)>| {
            ports.into_iter().map(|(value, cell)| (value, placed.at[cell].0 + MARGIN)).collect()
        };
        let margin = if self.framed { 2.0 * MARGIN } else { 0.0 };
        let (ins, outs) = if self.framed { (where_is(ins), where_is(outs)) } else { Default::default() };
        Scene { width: placed.width + margin, height: placed.height, body, ins, outs }
    }

    fn is_read(&self, at: usize) -> bool {
        self.diagram.edges.iter().any(|e| e.from == at)
    }

    fn cell(&self, item: &Item) -> Cell {
        match item {
            Item::Block(_, scene) => {
                let half = scene.width / 2.0;
                Cell { left: half, right: half, height: scene.height, end: None }
            }
            Item::Box(at) => {
                let drawn = &self.diagram.boxes[*at];
                let (width, height) = size(drawn);
                let label = if self.is_read(*at) { 6.0 + small_width(&result_label(drawn)) } else { 0.0 };
                Cell { left: width / 2.0, right: (width / 2.0).max(label), height, end: None }
            }
        }
    }
}

/// The port of a value, made where there is none.
fn port(
    cells: &mut Vec<Cell>,
    ports: &mut Vec<((usize, usize), usize)>,
    value: (usize, usize),
    end: End,
) -> usize {
    if let Some(&(_, cell)) = ports.iter().find(|(v, _)| *v == value) {
        return cell;
    }
    let height = if end == End::Top { HEAD } else { 0.0 };
    cells.push(Cell { left: 4.0, right: 4.0, height, end: Some(end) });
    ports.push((value, cells.len() - 1));
    cells.len() - 1
}

fn result_label(drawn: &DiagramBox) -> String {
    drawn.results.iter().map(|r| short_shape(r)).collect::<Vec<_>>().join(" | ")
}

/// The lines below the title, with their classes.
fn lines(drawn: &DiagramBox) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some(detail) = &drawn.detail {
        lines.push(("q", detail.clone()));
    }
    if drawn.kind == BoxKind::Output {
        lines.push(("s", result_label(drawn)));
    }
    for param in drawn.params.iter().take(MOST_LINES) {
        let (class, mark) = if param.param { ("s p", "■ ") } else { ("q", "") };
        lines.push((class, format!("{mark}{}", param.label())));
    }
    if drawn.params.len() > MOST_LINES {
        lines.push(("q", format!("and {} more", drawn.params.len() - MOST_LINES)));
    }
    lines
}

fn title(drawn: &DiagramBox) -> String {
    let border = matches!(drawn.kind, BoxKind::Input | BoxKind::Output);
    let title = shortened(&drawn.title, 48);
    if border && drawn.times > 1 { format!("{title} (× {})", drawn.times) } else { title }
}

fn size(drawn: &DiagramBox) -> (f64, f64) {
    let lines = lines(drawn);
    let widest = lines.iter().map(|(_, l)| small_width(l)).fold(title_width(&title(drawn)), f64::max);
    (widest + 22.0, 26.0 + LINE * lines.len() as f64 + if lines.is_empty() { 0.0 } else { 3.0 })
}

fn draw_box(drawn: &DiagramBox, x: f64, y: f64, read: bool) -> String {
    let (width, height) = size(drawn);
    let round = if matches!(drawn.kind, BoxKind::Input | BoxKind::Output) { 13.0 } else { 5.0 };
    let (class, left) = (drawn.kind.name(), x - width / 2.0);
    let mut out = format!("<g><title>{}</title>", escape(&tooltip(drawn)));
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "<rect class=\"b {class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{round}\"/>",
        short(left),
        short(y),
        short(width),
        short(height)
    );
    out += &text(left + 11.0, y + 18.0, "t", &title(drawn));
    for (i, (class, line)) in lines(drawn).iter().enumerate() {
        out += &text(left + 11.0, y + 34.0 + LINE * i as f64, class, line);
    }
    if read {
        out += &text(x + 6.0, y + height + 14.0, "q", &result_label(drawn));
    }
    out + "</g>\n"
}

/// What pointing at a box tells: its nodes and weights, and where they came from.
fn tooltip(drawn: &DiagramBox) -> String {
    let mut told = drawn.nodes.clone();
    told.extend(drawn.results.iter().filter(|r| short_shape(r) != **r).cloned());
    told.extend(drawn.params.iter().flat_map(|p| p.nodes.iter().cloned()));
    told.extend(drawn.origin.iter().map(|o| format!("from {o}")));
    told.join("\n")
}

fn frame(scene: &Scene, times: usize, x: f64, y: f64) -> String {
    let left = x - scene.width / 2.0;
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "<rect class=\"b block\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"10\"/>",
        short(left),
        short(y),
        short(scene.width),
        short(scene.height)
    );
    // On the frame, and over what passes there.
    let label = format!("× {times}");
    let width = title_width(&label) + 12.0;
    let _ = writeln!(
        out,
        "<rect class=\"bg\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"18\" rx=\"4\"/>",
        short(left + 12.0),
        short(y - 9.0),
        short(width)
    );
    out += &text(left + 18.0, y + 5.0, "t x", &label);
    out += &format!("<g transform=\"translate({} {})\">\n", short(left + MARGIN), short(y));
    out += &scene.body;
    out + "</g>\n"
}

/// A path from box to box: straight within ranks, curved between them.
fn path(route: &[(f64, f64)], arrow: bool) -> String {
    let mut d = format!("M{} {}", short(route[0].0), short(route[0].1));
    for (i, step) in route.windows(2).enumerate() {
        let [(x0, y0), (x1, y1)] = [step[0], step[1]];
        if i % 2 == 0 {
            if y1 > y0 {
                d += &format!("V{}", short(y1));
            }
            continue;
        }
        let [x0, middle, x1, y1] = [x0, (y0 + y1) / 2.0, x1, y1].map(short);
        d += &format!("C{x0} {middle} {x1} {middle} {x1} {y1}");
    }
    let marker = if arrow { " marker-end=\"url(#arrow)\"" } else { "" };
    format!("<path class=\"e\" d=\"{d}\"{marker}/>\n")
}
