//! Steps of compiled modules whose operands are computed as tiles are copied: random matmuls by weights in blocks, and of elementwise ops, through the compiler
//! and its fusion, on the interpreter, against the oracle.

mod common;

use std::sync::Arc;

use common::compiled::{ARCHS, Compiled, dtypes};
use common::prologue_graphs::{random_blocks, random_producers, values};
use rlx_ir::lir::View;
use rlx_ir::op::PackFormat;
use rlx_ir::oracle;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, Graph, Node, Op, Value};
use rlx_kernel::KernelTarget;
use rlx_kernel::interp::Executable;
use rlx_opt::{Claim, CompileOptions, CompilePipeline, PoolSpec, Target};
use rlx_tile::schedule::computed_tilings;

/// Random graphs of each kind for each architecture.
const CASES: u64 = 120;

/// A device that takes all elementwise ops into the matmuls that read them.
struct Fuses(KernelTarget);

impl Target for Fuses {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn claim(&self, node: &Node, graph: &Graph) -> Claim {
        self.0.claim(node, graph)
    }

    fn pool_spec(&self) -> PoolSpec {
        self.0.pool_spec()
    }

    fn fuses(&self, anchor: Option<&Node>, op: &Node, graph: &Graph) -> bool {
        self.0.fuses(anchor, op, graph)
    }

    fn fuses_producer(&self, producer: &Node, anchor: &Node, _: &Graph) -> bool {
        producer.op.is_elementwise() && matches!(anchor.op, Op::MatMul | Op::MatMulBlocks)
    }

    fn reads_view(&self, op: &Op, input: usize, view: &View) -> bool {
        self.0.reads_view(op, input, view)
    }

    fn writes_view(&self, op: &Op, view: &View) -> bool {
        self.0.writes_view(op, view)
    }

    fn pack_format(&self, node: &Node, input: usize, graph: &Graph) -> Option<PackFormat> {
        self.0.pack_format(node, input, graph)
    }
}

/// A graph for a device that fuses, and how many steps it has.
fn compiled(graph: Graph, seed: u64) -> (Compiled, usize) {
    let target = KernelTarget::full("tiles");
    let values = values(&graph, &mut Gen::new(seed));
    oracle::bind_dims(&graph, &values).unwrap();
    let pipeline = CompilePipeline::new(Arc::new(Fuses(target.clone())), CompileOptions::default());
    let module = Arc::new(pipeline.compile(&graph).unwrap_or_else(|e| panic!("{e}\n{graph}")).lir);
    let steps = module.steps.len();
    (Compiled { graph, values, executable: Executable::new(module, &target).unwrap() }, steps)
}

/// Runs random graphs; of a hundred, so many at least are one program, and so compute their operands in it.
fn random_graphs(of: fn(&mut Gen, DType) -> Graph, whole: u64) {
    for arch in ARCHS {
        let mut count = 0;
        for seed in 0..CASES {
            let mut g = Gen::new(seed);
            let dtype = g.pick(dtypes(arch));
            let (compiled, steps) = compiled(of(&mut g, dtype), seed);
            let (results, tiled, refused) = compiled.run_by_tiles(arch, None);
            compiled.check_to(&results, arch, |_| dtype);
            assert_eq!(tiled, 1, "{} seed {seed}: {refused:?}\n{}", arch.name(), compiled.graph);
            count += u64::from(steps == 1);
        }
        assert!(100 * count >= whole * CASES, "{}: {count} of {CASES}", arch.name());
    }
}

#[test]
fn random_matmuls_by_blocks_agree_with_the_oracle() {
    random_graphs(random_blocks, 75);
}

#[test]
fn random_matmuls_of_computed_operands_agree_with_the_oracle() {
    random_graphs(random_producers, 50);
}

#[test]
fn all_tilings_of_an_architecture_give_the_same_bits() {
    for (arch, of) in ARCHS.into_iter().zip([random_blocks, random_producers].into_iter().cycle()) {
        for seed in 0..2 {
            let (compiled, _) = compiled(of(&mut Gen::new(seed), DType::F16), seed);
            let (want, ..) = compiled.run_by_tiles(arch, None);
            for tiling in computed_tilings(arch) {
                let (got, tiled, refused) = compiled.run_by_tiles(arch, Some(&tiling));
                assert_eq!(tiled, 1, "{} {}: {refused:?}", arch.name(), tiling.name());
                let bits = |values: &[Value]| values.iter().map(Value::encode).collect::<Vec<_>>();
                assert_eq!(bits(&got), bits(&want), "{} {}", arch.name(), tiling.name());
            }
        }
    }
}
