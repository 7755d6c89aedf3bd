//! How long compiling takes by graph size: `cargo run --release -p rlx-opt --example compile_time [NODES]`.
//!
//! The graph is a chain of transformer-like blocks with everything written out as exporters do.

use std::sync::Arc;
use std::time::Instant;

use rlx_ir::lir::View;
use rlx_ir::op::{Activation, PackFormat};
use rlx_ir::{DType, Graph, GraphExt, Node, NodeId, Op, Shape};
use rlx_opt::{Claim, CompileOptions, CompilePipeline, Target};

/// A device with every kernel.
struct Anything;

impl Target for Anything {
    fn name(&self) -> &str {
        "anything"
    }

    fn claim(&self, _: &Node, _: &Graph) -> Claim {
        Claim::Native
    }

    fn fuses(&self, _: Option<&Node>, _: &Node, _: &Graph) -> bool {
        true
    }

    fn reads_view(&self, _: &Op, _: usize, _: &View) -> bool {
        true
    }

    fn writes_view(&self, _: &Op, _: &View) -> bool {
        true
    }

    fn pack_format(&self, node: &Node, input: usize, _: &Graph) -> Option<PackFormat> {
        (node.op == Op::MatMul && input == 1).then_some(PackFormat::new("Panels"))
    }
}

/// Layer norm, a linear layer, GELU, a linear layer and a residual, all written out: about 30 nodes.
fn block(g: &mut Graph, x: NodeId) -> NodeId {
    let number = |g: &mut Graph, v: f64| g.scalar(v, DType::F32);
    let name = format!("w{}", g.len());
    let param = |g: &mut Graph, part: &str, dims: &[usize]| {
        g.param(format!("{name}{part}"), Shape::new(dims, DType::F32))
    };
    let mean = g.mean(x, &[-1], true);
    let d = g.sub(x, mean);
    let two = number(g, 2.0);
    let square = g.pow(d, two);
    let variance = g.mean(square, &[-1], true);
    let eps = number(g, 1e-5);
    let variance = g.add(variance, eps);
    let root = g.sqrt(variance);
    let y = g.div(d, root);
    let (gamma, beta) = (param(g, "gamma", &[16]), param(g, "beta", &[16]));
    let y = g.mul(y, gamma);
    let y = g.add(y, beta);
    let (up, bias) = (param(g, "up", &[16, 32]), param(g, "bias", &[32]));
    let y = g.mm(y, up);
    let y = g.add(bias, y);
    let (root, one, half) = (number(g, std::f64::consts::SQRT_2), number(g, 1.0), number(g, 0.5));
    let erf = g.div(y, root);
    let erf = g.act(Activation::Erf, erf);
    let erf = g.add(erf, one);
    let y = g.mul(y, erf);
    let y = g.mul(y, half);
    let down = param(g, "down", &[32, 16]);
    let y = g.mm(y, down);
    g.add(x, y)
}

fn main() {
    let nodes = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let mut g = Graph::new("deep");
    let mut x = g.input("x", Shape::new(&[8, 16], DType::F32));
    while g.len() < nodes {
        x = block(&mut g, x);
    }
    g.set_outputs(vec![x]);
    let pipeline = CompilePipeline::new(Arc::new(Anything), CompileOptions::default());
    let start = Instant::now();
    let result = match pipeline.compile(&g) {
        Ok(result) => result,
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(1);
        }
    };
    let total = start.elapsed();
    for pass in &result.passes {
        println!("{:<24} {:>8} -> {:>8} nodes {:>10.1?}", pass.name, pass.nodes.0, pass.nodes.1, pass.time);
    }
    println!("{} nodes to {} steps in {total:.2?}", g.len(), result.lir.steps.len());
}
