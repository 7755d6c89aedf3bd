//! Printing graphs.

use std::fmt;

use crate::dim::scoped;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, Node};
use crate::ops::{Attr, Op};
use crate::shape::Shape;
use crate::tensor::{ConstData, Elements, Value};
use crate::text::Lexer;

/// Elements a constant may have to be printed inline.
const INLINE_ELEMENTS: usize = 16;

/// Collects the text of a graph.
#[derive(Debug, Default)]
pub struct TextWriter {
    out: String,
    indent: usize,
    /// Node and origin names are for people; the stable hash leaves them out.
    without_names: bool,
    /// Whether a comment behind each node says what it comes from.
    with_origins: bool,
}

impl TextWriter {
    /// A writer for the stable hash: no node names.
    pub(crate) fn for_hash() -> Self {
        TextWriter { without_names: true, ..Self::default() }
    }

    /// Adds `text` as it is.
    pub fn push(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Adds what `value` prints as.
    pub fn display(&mut self, value: impl fmt::Display) {
        use fmt::Write;
        // Writing to a string does not fail.
        let _ = write!(self.out, "{value}");
    }

    /// Adds ` {name=value` or `, name=value`.
    pub fn attr<T: Attr>(&mut self, first: &mut bool, name: &str, value: &T) {
        self.push(if *first { " {" } else { ", " });
        *first = false;
        self.push(name);
        self.push("=");
        value.write(self);
    }

    /// Closes what [`TextWriter::attr`] opened.
    pub fn end_attrs(&mut self, first: bool) {
        if !first {
            self.push("}");
        }
    }

    fn line(&mut self) {
        self.out.push('\n');
        for _ in 0..self.indent {
            self.out.push_str("  ");
        }
    }

    /// Adds a graph inside an attribute.
    pub fn nested(&mut self, graph: &Graph) {
        self.indent += 1;
        self.graph(graph);
        self.indent -= 1;
    }

    /// Adds a graph.
    pub fn graph(&mut self, graph: &Graph) {
        self.push("graph ");
        graph.name.write(self);
        self.push(" {");
        self.indent += 1;
        for (&symbol, range) in graph.symbol_ranges() {
            self.line();
            let name = crate::dim::sym::quoted_name(symbol);
            self.push(&format!("range {name} {}..={}", range.min, range.max));
        }
        for (output, input) in graph.donations() {
            self.line();
            self.push("donate ");
            input.write(self);
            self.push(&format!(" to {output}"));
        }
        for node in graph.nodes() {
            self.line();
            self.node(node);
            if self.with_origins {
                self.origin(graph, node);
            }
        }
        self.line();
        self.push("return");
        for (i, id) in graph.outputs.iter().enumerate() {
            self.push(if i == 0 { " " } else { ", " });
            self.display(id);
        }
        self.indent -= 1;
        self.line();
        self.push("}");
    }

    /// Adds one node, without a line break.
    pub fn node(&mut self, node: &Node) {
        self.display(format_args!("{} = {}", node.id, node.op.kind()));
        let tuple_like = node.op.has_leading_value();
        if tuple_like {
            node.op.write_attrs(self);
        }
        if !node.inputs.is_empty() {
            self.push("(");
            for (i, id) in node.inputs.iter().enumerate() {
                self.push(if i == 0 { "" } else { ", " });
                self.display(id);
            }
            self.push(")");
        }
        if !tuple_like {
            node.op.write_attrs(self);
        }
        if let (Some(name), false) = (&node.name, self.without_names) {
            self.display(format_args!(" {name:?}"));
        }
        self.push(" : ");
        match node.results() {
            [one] => self.shape(one),
            many => {
                self.push("(");
                for (i, shape) in many.iter().enumerate() {
                    self.push(if i == 0 { "" } else { ", " });
                    self.shape(shape);
                }
                self.push(")");
            }
        }
    }

    /// Adds what a node comes from, as a comment.
    fn origin(&mut self, graph: &Graph, node: &Node) {
        if matches!(node.op, Op::Input { .. } | Op::Param { .. } | Op::Constant { .. }) {
            return;
        }
        if let Some(origin) = graph.origins().describe(node.origin) {
            self.push(&format!("  // {}", origin.replace(char::is_control, " ")));
        }
    }

    fn shape(&mut self, shape: &Shape) {
        self.display(shape);
    }

    /// The text so far.
    pub fn finish(self) -> String {
        self.out
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut w = TextWriter::default();
        scoped(|| w.graph(self));
        w.push("\n");
        f.write_str(&w.finish())
    }
}

/// The text form with a comment behind each node: the names of the model's nodes that it comes from.
///
/// ```
/// use rlx_ir::{DType, Graph, GraphExt, Shape, text};
/// let mut graph = Graph::new("g");
/// let x = graph.input("x", Shape::new(&[2], DType::F32));
/// let y = graph.relu(x);
/// let origin = graph.origins_mut().source("/layer.0/Relu");
/// graph.set_origin(y, origin);
/// graph.set_outputs(vec![y]);
/// let text = text::with_origins(&graph);
/// assert!(text.contains("%1 = Activation.Relu(%0) : [2] f32  // /layer.0/Relu"));
/// assert_eq!(text::parse(&text).unwrap(), graph);
/// ```
pub fn with_origins(graph: &Graph) -> String {
    let mut w = TextWriter { with_origins: true, ..TextWriter::default() };
    scoped(|| w.graph(graph));
    w.push("\n");
    w.finish()
}

/// The name of a constant that is too long to stand inline.
fn blob_hash(data: &ConstData) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(data.shape().to_string().as_bytes());
    hasher.update(data.bytes());
    hasher.finalize().to_hex()[..32].to_string()
}

impl Attr for ConstData {
    /// `dense([2] f32, 1.0, 2.0)`, or `dense([64] f32, @blob(hash))`.
    fn write(&self, w: &mut TextWriter) {
        w.push("dense(");
        w.push(&self.shape().to_string());
        if self.num_elements() > INLINE_ELEMENTS {
            w.push(&format!(", @blob({})", blob_hash(self)));
        } else {
            match self.value().elements {
                // NaN payloads would be lost as numbers; their bytes stand instead.
                Elements::Float(v) if v.iter().any(|x| x.is_nan()) => {
                    w.push(", bytes");
                    self.bytes().iter().for_each(|b| w.push(&format!(" {b}")));
                }
                Elements::Float(v) => v.iter().for_each(|x| w.push(&format!(", {x:?}"))),
                Elements::Int(v) => v.iter().for_each(|x| w.push(&format!(", {x}"))),
            }
        }
        w.push(")");
    }

    fn parse(lexer: &mut Lexer<'_>) -> Result<Self> {
        lexer.expect_word("dense")?;
        lexer.expect("(")?;
        let shape = lexer.shape()?;
        let dims = shape.static_dims().ok_or_else(|| lexer.error("a constant has fixed dimensions"))?;
        let data = constant_elements(lexer, &shape, &dims)?;
        lexer.expect(")")?;
        if data.shape() != shape {
            return Err(lexer.error(&format!("a blob of {} where {shape} is declared", data.shape())));
        }
        Ok(data)
    }
}

fn constant_elements(lexer: &mut Lexer<'_>, shape: &Shape, dims: &[usize]) -> Result<ConstData> {
    let (mut floats, mut ints) = (Vec::new(), Vec::new());
    while lexer.eat(",") {
        if lexer.eat("@") {
            return lexer.blob();
        }
        if lexer.eat_word("bytes") {
            let mut bytes = Vec::new();
            while !lexer.at(")") {
                let byte = lexer.integer()?;
                bytes.push(u8::try_from(byte).map_err(|_| lexer.error("a byte is 0 to 255"))?);
            }
            return ConstData::new(shape.dtype(), dims, bytes);
        }
        if shape.dtype().is_int() || shape.dtype() == crate::DType::Bool {
            ints.push(lexer.integer()?);
        } else {
            let word = lexer.number_word()?;
            floats.push(word.parse().map_err(|_| lexer.error(&format!("\"{word}\" is not a number")))?);
        }
    }
    let parts = if shape.dtype() == crate::DType::C64 { 2 } else { 1 };
    let found = floats.len() / parts + ints.len();
    if shape.num_elements() != Some(found) {
        return Err(Error::new(ErrorKind::Parse, format!("{found} elements do not make {shape}")));
    }
    let value = if floats.is_empty() && !ints.is_empty() || shape.dtype().is_int() {
        Value::int(shape.dtype(), dims, ints)
    } else {
        Value::float(shape.dtype(), dims, floats)
    };
    Ok(value.rounded().to_const())
}

/// The constants of `graph` that do not stand inline, by the hash the text form names them with.
pub fn blobs(graph: &Graph) -> std::collections::HashMap<String, ConstData> {
    let mut found = std::collections::HashMap::new();
    for node in graph.nodes() {
        match &node.op {
            crate::ops::Op::Constant { data } if data.num_elements() > INLINE_ELEMENTS => {
                found.insert(blob_hash(data), (**data).clone());
            }
            op => op.bodies().into_iter().for_each(|body| found.extend(blobs(&body.graph))),
        }
    }
    found
}

/// The op's attributes as text; equal for two ops of a kind exactly when they are equal.
pub fn attrs_key(op: &crate::ops::Op) -> String {
    let mut text = String::new();
    write_attrs_key(op, &mut text);
    text
}

/// As [`attrs_key`], in place of what `text` has: for many ops, one after the other.
pub fn write_attrs_key(op: &crate::ops::Op, text: &mut String) {
    text.clear();
    let mut w = TextWriter { out: std::mem::take(text), ..TextWriter::for_hash() };
    op.write_attrs(&mut w);
    *text = w.finish();
}
