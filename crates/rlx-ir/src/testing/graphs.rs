//! Random graphs: the ops chained at random, together with what exporters write for composites.
//!
//! Values are kept within a few units, so that rounding differences stay small; nothing hinges on a comparison
//! of computed values. A smaller `size` gives a prefix of the same graph, which is how a failing seed is shrunk.

mod decoders;
mod layers;
mod primitives;
mod projections;

use super::Gen;
use crate::dim::{Dim, DimBinding, sym};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, GraphExt, NodeId};
use crate::ops::{Activation, Op};
use crate::oracle::Bindings;
use crate::shape::Shape;
use crate::tensor::Value;

pub use decoders::{lengthened, random_decoder};

/// A random graph of about `size` steps with fixed dimensions, and values for it.
pub fn random_graph(seed: u64, size: usize) -> (Graph, Bindings) {
    let mut g = Gen::new(seed);
    let dims = DimBinding::batch_seq(g.size(1..=3), g.size(1..=5));
    let (graph, _) = Builder::new(g, &dims, false).graph(STEPS, size);
    let bindings = random_bindings(&graph, &DimBinding::new(), seed);
    (graph, bindings)
}

/// A random graph of the steps that matmuls are fused and merged with: norms and quantisation before matmuls, several matmuls of
/// the same rows, gates, attention to what is gathered; with values for it.
pub fn random_projection_graph(seed: u64, size: usize) -> (Graph, Bindings) {
    let mut g = Gen::new(seed ^ 0x9407);
    let dims = DimBinding::batch_seq(g.size(1..=3), g.size(1..=9));
    let (graph, _) = Builder::new(g, &dims, false).graph(PROJECTIONS, size);
    let bindings = random_bindings(&graph, &DimBinding::new(), seed);
    (graph, bindings)
}

/// A random graph that replaces parts of some inputs, donates those inputs to the results, and sometimes reads the old value
/// once more; with values for it.
pub fn random_donating_graph(seed: u64, size: usize) -> (Graph, Bindings) {
    let (mut graph, _) = random_graph(seed, size);
    let mut g = Gen::new(seed ^ 0xD0_4A7E);
    let candidates: Vec<NodeId> = graph
        .inputs()
        .filter(|n| n.shape.dtype() == DType::F32 && n.shape.rank() > 0)
        .map(|n| n.id)
        .collect();
    let mut outputs = graph.outputs.clone();
    let mut donated = Vec::new();
    for (i, &x) in candidates.iter().enumerate().take(3) {
        let Ok((next, more)) = replaced(&mut g, &mut graph, x, i) else { continue };
        let Op::Input { name } = &graph.node(x).op else { continue };
        donated.push((name.clone(), outputs.len()));
        outputs.push(next);
        outputs.extend(more);
    }
    graph.set_outputs(outputs);
    for (input, output) in donated {
        if let Err(e) = graph.donate(&input, output) {
            graph.keep_fault(e);
        }
    }
    let mut bindings = random_bindings(&graph, &DimBinding::new(), seed);
    // Starts that every dimension has.
    let starts = graph.inputs().filter(|n| n.shape.dtype() == DType::I64 && n.shape.rank() == 0);
    for node in starts {
        if let Op::Input { name } = &node.op {
            bindings.set_input(name.clone(), Value::int(DType::I64, &[], vec![-i128::from(g.chance(0.5))]));
        }
    }
    (graph, bindings)
}

/// `x` with a part replaced, once or twice, and what else is computed of it.
fn replaced(g: &mut Gen, graph: &mut Graph, x: NodeId, number: usize) -> Result<(NodeId, Vec<NodeId>)> {
    let shape = graph.shape(x).clone();
    let axis = g.size(0..=shape.rank() - 1);
    let mut next = x;
    for round in 0..g.size(1..=2) {
        let mut part = shape.dims().to_vec();
        part[axis] = Dim::Static(1);
        let update = graph.input(format!("update{number}.{round}"), shape.with_dims(part));
        let at = graph.input(format!("at{number}.{round}"), Shape::scalar(DType::I64));
        next = graph.try_add(Op::UpdateSlice { axis }, &[next, update, at])?;
    }
    let mut more = Vec::new();
    // Of the new value, or of the old one, which then must not be gone.
    for source in [next, x] {
        if g.chance(0.4) {
            more.push(graph.try_add(Op::Activation(Activation::Abs), &[source])?);
        }
    }
    Ok((next, more))
}

/// A random graph whose batch and sequence are symbols, and values for it at several sizes of them.
pub fn random_symbolic_graph(seed: u64, size: usize) -> (Graph, Vec<Bindings>) {
    let graph = symbolic_graph(&mut Gen::new(seed), size);
    let sizes = [(1, 1), (2, 3), (3, 4)];
    let bindings = sizes.map(|(b, s)| random_bindings(&graph, &DimBinding::batch_seq(b, s), seed));
    (graph, bindings.to_vec())
}

/// The graph of [`random_symbolic_graph`] by the choices of `g`.
pub fn symbolic_graph(g: &mut Gen, size: usize) -> Graph {
    let own = std::mem::replace(g, Gen::new(0));
    let (graph, own) = Builder::new(own, &DimBinding::new(), true).graph(STEPS, size);
    *g = own;
    graph
}

/// Random values for every input and parameter of `graph`, whose symbols are `dims`.
pub fn random_bindings(graph: &Graph, dims: &DimBinding, seed: u64) -> Bindings {
    let (mut g, mut bindings) = (Gen::new(seed ^ 0x5EED), Bindings::default());
    for node in graph.nodes() {
        let shape = node.shape.bind(dims);
        let Some(fixed) = shape.static_dims() else { continue };
        let value = g.value(shape.dtype(), &fixed, -1.0..1.0);
        match &node.op {
            Op::Input { name } => _ = bindings.set_input(name.clone(), value),
            // Scales and variances are positive.
            Op::Param { name } if name.starts_with("pos") => {
                _ = bindings.set_param(name.clone(), g.value(shape.dtype(), &fixed, 0.5..1.5));
            }
            Op::Param { name } if name.starts_with("small") => {
                _ = bindings.set_param(name.clone(), g.value(shape.dtype(), &fixed, -0.25..0.25));
            }
            Op::Param { name } if shape.dtype().is_int() => {
                _ = bindings.set_param(name.clone(), g.value(shape.dtype(), &fixed, 0.0..15.0));
            }
            Op::Param { name } => _ = bindings.set_param(name.clone(), value),
            _ => {}
        }
    }
    bindings
}

/// The width of the sequences' rows, and the channels of the images.
const WIDTH: usize = 8;

struct Builder {
    g: Gen,
    graph: Graph,
    batch: Dim,
    seq: Dim,
    /// What later steps may use.
    values: Vec<NodeId>,
}

type Step = fn(&mut Builder, NodeId) -> Result<NodeId>;

/// The kinds of steps; those that stand twice are taken more often.
const STEPS: &[Step] = &[
    Builder::unary,
    Builder::unary,
    Builder::binary,
    Builder::binary,
    Builder::binary,
    Builder::with_scalar,
    Builder::with_scalar,
    Builder::with_param,
    Builder::where_masked,
    Builder::cast_there_and_back,
    Builder::transpose,
    Builder::transpose,
    Builder::reshape,
    Builder::reshape,
    Builder::unsqueeze_expand,
    Builder::slice,
    Builder::concat,
    Builder::pad,
    Builder::reduce,
    Builder::softmax,
    Builder::norm,
    Builder::written_out_norm,
    Builder::written_out_gelu,
    Builder::linear,
    Builder::linear,
    Builder::product,
    Builder::gather,
    Builder::attention,
    Builder::written_out_attention,
    Builder::convolution,
    Builder::convolution,
    Builder::pool,
];

/// The kinds of steps of [`random_projection_graph`].
const PROJECTIONS: &[Step] = &[
    Builder::projected_attention,
    Builder::projected_attention,
    Builder::paged_attention,
    Builder::paged_attention,
    Builder::gated_linear,
    Builder::gated_linear,
    Builder::normed_linear,
    Builder::normed_linear,
    Builder::normed_linear,
    Builder::several_linears,
    Builder::dequantized_linear,
    Builder::quantized_linear,
    Builder::quantized_linear,
    Builder::norm,
    Builder::linear,
    Builder::binary,
    Builder::unary,
    Builder::transpose,
    Builder::softmax,
];

impl Builder {
    fn new(g: Gen, dims: &DimBinding, symbolic: bool) -> Self {
        let dim = |s: u32| if symbolic { Dim::Dynamic(s) } else { Dim::Static(dims.get(s).unwrap_or(1)) };
        let (batch, seq) = (dim(sym::BATCH), dim(sym::SEQ));
        let mut b = Builder { g, graph: Graph::new("random"), batch, seq, values: Vec::new() };
        let width = Dim::Static(WIDTH);
        for (name, dims) in [
            ("x", vec![batch, seq, width]),
            ("y", vec![batch, seq, width]),
            ("image", vec![batch, width, Dim::Static(6), Dim::Static(5)]),
        ] {
            let id = b.graph.input(name, Shape::from_dims(&dims, DType::F32));
            b.values.push(id);
        }
        b
    }

    /// The graph, and the generator as it is left.
    fn graph(mut self, steps: &[Step], size: usize) -> (Graph, Gen) {
        let given = self.values.len();
        for _ in 0..size {
            // The newest values are taken more often, so that graphs become deep.
            let from = if self.g.chance(0.6) { self.values.len().saturating_sub(3) } else { 0 };
            let x = self.values[self.g.size(from..=self.values.len() - 1)];
            let step = self.g.pick(steps);
            if let Ok(id) = step(&mut self, x) {
                self.values.push(id);
            }
        }
        let used: Vec<NodeId> = self.graph.nodes().iter().flat_map(|n| n.inputs.clone()).collect();
        let made = &self.values[given..];
        let mut outputs: Vec<NodeId> = made.iter().copied().filter(|id| !used.contains(id)).collect();
        outputs.extend(made.get(made.len() / 2));
        outputs.dedup();
        if outputs.is_empty() {
            outputs.push(self.values[0]);
        }
        self.graph.set_outputs(outputs);
        (self.graph, self.g)
    }

    fn dims(&self, id: NodeId) -> Vec<Dim> {
        self.graph.shape(id).dims().to_vec()
    }

    fn rank(&self, id: NodeId) -> usize {
        self.graph.shape(id).rank()
    }

    /// The width of the rows; steps that need it are not for rows of symbolic width.
    fn last(&self, id: NodeId) -> Result<usize> {
        let fixed = self.dims(id).last().and_then(|d| d.as_static());
        fixed.ok_or_else(|| Error::new(ErrorKind::Dimension, "the last dimension is a symbol"))
    }

    fn param(&mut self, prefix: &str, dims: &[usize]) -> NodeId {
        let name = format!("{prefix}{}", self.graph.len());
        self.graph.param(name, Shape::new(dims, DType::F32))
    }

    fn number(&mut self, value: f64) -> Result<NodeId> {
        self.graph.try_scalar(value, DType::F32)
    }

    /// Back within ±1.
    fn tamed(&mut self, x: NodeId) -> Result<NodeId> {
        self.graph.try_tanh(x)
    }

    fn any(&mut self) -> NodeId {
        self.values[self.g.size(0..=self.values.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_graphs_are_valid_and_have_tame_results() {
        for seed in 0..40 {
            let (graph, bindings) = random_graph(seed, 25);
            crate::verify_ok(&graph).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{graph}"));
            for value in crate::oracle::evaluate(&graph, &bindings).unwrap() {
                let tame = value.to_f64().iter().all(|x| x.abs() < 1e6);
                assert!(tame, "seed {seed}: {graph}");
            }
        }
    }

    #[test]
    fn one_symbolic_graph_runs_at_every_size() {
        for seed in 0..20 {
            let (graph, all) = random_symbolic_graph(seed, 20);
            for bindings in all {
                crate::oracle::evaluate(&graph, &bindings)
                    .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{graph}"));
            }
        }
    }
}
