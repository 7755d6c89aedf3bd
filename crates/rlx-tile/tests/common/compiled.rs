//! Graphs that are compiled for a device with every type, and values for them: their steps run on the interpreters, or by what a test puts in their place.

use std::ops::Range;
use std::sync::Arc;

use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{Gen, difference, tolerance};
use rlx_ir::{Graph, Op, Value};
use rlx_kernel::KernelTarget;
use rlx_kernel::interp::Executable;
use rlx_opt::{CompileOptions, CompilePipeline};
use rlx_tile::Arch;

/// A graph that compiles for a device with every type, and values for it.
pub struct Compiled {
    pub graph: Graph,
    pub values: Bindings,
    pub executable: Executable,
}

impl Compiled {
    /// With random inputs of this range.
    pub fn new(graph: Graph, seed: u64, range: Range<f64>) -> Compiled {
        let (mut values, mut g) = (Bindings::default(), Gen::new(seed));
        for node in graph.inputs() {
            let dims = node.shape.static_dims().unwrap();
            let Op::Input { name } = &node.op else { unreachable!("inputs are inputs") };
            values.set_input(name.clone(), g.value(node.shape.dtype(), &dims, range.clone()));
        }
        oracle::bind_dims(&graph, &values).unwrap();
        Compiled::of(graph, values, CompileOptions::default())
    }

    pub fn of(graph: Graph, values: Bindings, options: CompileOptions) -> Compiled {
        let target = KernelTarget::full("tiles");
        let pipeline = CompilePipeline::new(Arc::new(target.clone()), options);
        let module = Arc::new(pipeline.compile(&graph).unwrap_or_else(|e| panic!("{e}\n{graph}")).lir);
        Compiled { graph, values, executable: Executable::new(module, &target).unwrap() }
    }

    /// Holds results to the oracle's.
    pub fn check(&self, results: &[Value], arch: Arch) {
        let want = oracle::evaluate(&self.graph, &self.values).unwrap();
        for (want, got) in want.iter().zip(results) {
            if let Some(what) = difference(want, got, tolerance(want.dtype)) {
                panic!("{}: {what}\n{}", arch.name(), self.graph);
            }
        }
    }
}
