//! The memory planner under a device's limits: several pools, exclusive use, and what does not fit.

use std::sync::Arc;

use rlx_ir::lir::{BufferKind, LirModule, View};
use rlx_ir::op::PackFormat;
use rlx_ir::testing::random_graph;
use rlx_ir::{DType, Dim, DimBinding, ErrorKind, Graph, GraphExt, Node, Op, Shape, sym, text};
use rlx_opt::plan::{buffer_bytes, plan_memory};
use rlx_opt::{Claim, CompileOptions, CompilePipeline, PoolSpec, Target};

/// A device that claims and fuses everything, with these limits.
struct Limited(PoolSpec);

impl Target for Limited {
    fn name(&self) -> &str {
        "limited"
    }

    fn claim(&self, _: &Node, _: &Graph) -> Claim {
        Claim::Native
    }

    fn pool_spec(&self) -> PoolSpec {
        self.0
    }

    fn fuses(&self, _: Option<&Node>, op: &Node, _: &Graph) -> bool {
        op.op.is_elementwise()
    }

    fn reads_view(&self, _: &Op, _: usize, _: &View) -> bool {
        true
    }

    fn writes_view(&self, _: &Op, _: &View) -> bool {
        true
    }

    fn pack_format(&self, _: &Node, _: usize, _: &Graph) -> Option<PackFormat> {
        None
    }
}

fn compile(graph: &Graph, spec: PoolSpec) -> LirModule {
    let pipeline = CompilePipeline::new(Arc::new(Limited(spec)), CompileOptions::default());
    pipeline.compile(graph).unwrap_or_else(|e| panic!("{e}\n{graph}")).lir
}

fn exclusive() -> PoolSpec {
    PoolSpec { exclusive_usage: true, ..PoolSpec::default() }
}

/// What must hold of every plan.
fn check(lir: &LirModule, spec: PoolSpec) {
    let plan = lir.plan().unwrap();
    assert_eq!(plan.arena_bytes, plan.pools.iter().sum::<usize>());
    assert!(plan.arena_bytes >= plan.largest_live_set);
    assert!(plan.pools.iter().all(|&bytes| bytes <= spec.max_bytes));
    let size = |b: usize| {
        let buffer = &lir.buffers[b];
        buffer_bytes(buffer.elements, buffer.dtype, &DimBinding::new()).unwrap()
    };
    for (i, a) in lir.live_ranges.iter().enumerate() {
        let (ab, at) = (a.buffer.index(), plan.offsets[a.buffer.index()].unwrap());
        assert!(at + size(ab) <= plan.pools[plan.pool_of[ab] as usize]);
        for b in &lir.live_ranges[..i] {
            let bb = b.buffer.index();
            let meet = a.first <= b.last && b.first <= a.last && plan.pool_of[ab] == plan.pool_of[bb];
            let other = plan.offsets[bb].unwrap();
            assert!(!meet || at + size(ab) <= other || other + size(bb) <= at, "{lir}");
        }
    }
    let arena = |b: &rlx_ir::lir::BufferId| lir.buffers[b.index()].kind == BufferKind::Arena;
    for step in lir.steps.iter().filter(|_| spec.exclusive_usage) {
        for output in step.outputs.iter().map(|o| o.buffer).filter(arena) {
            for input in step.inputs.iter().map(|o| o.buffer).filter(arena) {
                assert_ne!(plan.pool_of[input.index()], plan.pool_of[output.index()], "{lir}");
            }
        }
    }
}

#[test]
fn no_step_reads_and_writes_one_pool_and_live_values_stand_apart() {
    let mut most = 0;
    for seed in 0..150 {
        let (graph, _) = random_graph(seed, 16);
        for spec in [PoolSpec::default(), exclusive(), PoolSpec { max_bytes: 32768, ..exclusive() }] {
            let lir = compile(&graph, spec);
            check(&lir, spec);
            most = most.max(lir.plan().unwrap().pools.len());
            assert!(spec.exclusive_usage || lir.plan().unwrap().pools.len() == 1);
        }
    }
    assert!(most >= 3, "the graphs are too simple: {most} pools");
}

#[test]
fn outputs_can_have_a_pool_to_themselves() {
    let spec = PoolSpec { outputs_apart: true, ..PoolSpec::default() };
    for seed in 0..80 {
        let (graph, _) = random_graph(seed, 16);
        let lir = compile(&graph, spec);
        check(&lir, spec);
        let plan = lir.plan().unwrap();
        for range in &lir.live_ranges {
            let is_output = lir.outputs.iter().any(|slot| slot.operand.buffer == range.buffer);
            assert_eq!(plan.pool_of[range.buffer.index()] == 0, is_output, "{lir}");
        }
        assert!(plan.pools.len() <= 2);
        // What is in the first pool is where the manifest says.
        let first = lir.outputs.iter().map(|slot| plan.arena_offset(slot.operand.buffer).unwrap());
        assert!(first.into_iter().all(|at| at < plan.pools[0].max(1)), "{lir}");
    }
}

#[test]
fn a_chain_takes_two_pools() {
    let graph = text::parse(
        r#"graph "g" {
          %0 = Input {name="x"} : [8, 8] f32
          %1 = MatMul(%0, %0) : [8, 8] f32
          %2 = MatMul(%1, %0) : [8, 8] f32
          %3 = MatMul(%2, %0) : [8, 8] f32
          %4 = MatMul(%3, %0) : [8, 8] f32
          return %4
        }"#,
    )
    .unwrap();
    let lir = compile(&graph, exclusive());
    assert_eq!(lir.plan().unwrap().pools, [256, 256], "{lir}");
}

/// A module from outside may have such a step: where one buffer is not read and written at once, it is the module that is wrong.
#[test]
fn a_step_that_reads_what_it_writes_is_rejected_where_the_device_forbids_it() {
    let graph = text::parse(
        r#"graph "g" {
          %0 = Input {name="x"} : [8, 8] f32
          %1 = MatMul(%0, %0) : [8, 8] f32
          %2 = MatMul(%1, %0) : [8, 8] f32
          return %2
        }"#,
    )
    .unwrap();
    let mut lir = compile(&graph, exclusive());
    // Not in place: it reads the elements in another order than it writes them.
    lir.steps[1].outputs[0].buffer = lir.steps[0].outputs[0].buffer;
    let read = Arc::make_mut(&mut lir.steps[1].inputs[0].view);
    read.strides = read.strides.iter().rev().copied().collect();
    let error = plan_memory(&lir, &DimBinding::new(), exclusive()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidGraph, "{error}");
    assert!(error.message().contains("reads the buffer it writes"), "{error}");
    assert!(plan_memory(&lir, &DimBinding::new(), PoolSpec::default()).is_ok());
}

#[test]
fn a_full_pool_leads_to_another_and_a_value_above_the_limits_is_out_of_memory() {
    let graph = text::parse(
        r#"graph "g" {
          %0 = Input {name="x"} : [16, 16] f32
          %1 = MatMul(%0, %0) : [16, 16] f32
          %2 = MatMul(%1, %0) : [16, 16] f32
          return %1, %2
        }"#,
    )
    .unwrap();
    let lir = compile(&graph, PoolSpec::default());
    assert_eq!(lir.plan().unwrap().pools, [2048]);
    let small = PoolSpec { max_bytes: 1500, ..PoolSpec::default() };
    assert_eq!(compile(&graph, small).plan().unwrap().pools, [1024, 1024]);
    for spec in [
        PoolSpec { max_bytes: 1000, ..PoolSpec::default() },
        PoolSpec { max_buffer_bytes: 1000, ..PoolSpec::default() },
    ] {
        let error = plan_memory(&lir, &DimBinding::new(), spec).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.to_string().contains("1024 bytes") && error.node().is_some(), "{error}");
    }
    let plan = |max_elements| {
        plan_memory(&lir, &DimBinding::new(), PoolSpec { max_elements, ..PoolSpec::default() })
    };
    assert!(plan(256).is_ok());
    let error = plan(255).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("256 elements") && error.node().is_some(), "{error}");
}

#[test]
fn regions_bind_no_more_than_the_device_allows() {
    let text: String = (0..12).map(|i| format!("  %{i} = Input {{name=\"x{i}\"}} : [4] f32\n")).collect();
    let sums: String = (0..11)
        .map(|i| {
            let left = if i == 0 { 0 } else { 11 + i };
            format!("  %{} = Binary.Add(%{left}, %{}) : [4] f32\n", 12 + i, i + 1)
        })
        .collect();
    let graph = text::parse(&format!("graph \"sum\" {{\n{text}{sums}  return %22\n}}")).unwrap();
    assert_eq!(compile(&graph, PoolSpec::default()).steps.len(), 1);
    let lir = compile(&graph, PoolSpec { max_bindings: 6, ..PoolSpec::default() });
    assert!(lir.steps.len() > 1);
    for step in &lir.steps {
        assert!(step.inputs.len() + step.outputs.len() <= 6, "{lir}");
    }
}

#[test]
fn a_size_that_shrinks_as_its_symbol_grows_is_planned_for_its_largest() {
    let graph = text::parse(
        r#"graph "rest" {
  range seq 1..=128
  %0 = Input {name="x"} : [128] f32
  %1 = Input {name="seen"} : [seq] f32
  %2 = Slice(%0) {starts=[seq], steps=[1], to=[128 - seq]} : [128 - seq] f32
  %3 = Reduce(%1) {op=Sum, axes=[0], keep_dim=true} : [1] f32
  %4 = Binary.Add(%2, %3) : [128 - seq] f32
  return %4
}
"#,
    )
    .unwrap();
    let lir = compile(&graph, PoolSpec::default());
    let plan = lir.plan().unwrap();
    assert!(plan.pools[0] >= 128 * 4 + 64, "{lir}");
}

#[test]
fn very_many_values_alive_at_once_are_placed_in_one_walk() {
    // Outputs stay alive to the end; what each is made of does not.
    let mut graph = Graph::new("outputs");
    let mut outputs = Vec::new();
    for i in 0..1500 {
        let x = graph.input(format!("x{i}"), Shape::new(&[1 + i % 37], DType::F32));
        let once = graph.sm(x, -1);
        outputs.push(graph.sm(once, -1));
    }
    graph.set_outputs(outputs);
    let apart = PoolSpec { outputs_apart: true, ..PoolSpec::default() };
    for spec in [PoolSpec::default(), exclusive(), apart, PoolSpec { max_bytes: 32768, ..exclusive() }] {
        let lir = compile(&graph, spec);
        check(&lir, spec);
        let plan = lir.plan().unwrap();
        assert!(plan.arena_bytes < plan.largest_live_set + plan.largest_live_set / 20, "{:?}", plan.pools);
    }
}

#[test]
fn a_long_concatenation_is_lowered_in_proportion_to_its_operands() {
    let mut graph = Graph::new("joined");
    let rows = Dim::Dynamic(sym::BATCH);
    let x = graph.input("x", Shape::from_dims(&[rows, Dim::Static(2)], DType::F32));
    let y = graph.concat_(&vec![x; 3000], 0);
    graph.set_outputs(vec![y]);
    let lir = compile(&graph, PoolSpec::default());
    assert_eq!(lir.steps.len(), 3000);
    for (i, step) in lir.steps.iter().enumerate() {
        assert_eq!(step.outputs[0].view.offset, rows.extent() * 2 * i as i64);
    }
}
