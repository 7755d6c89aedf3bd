//! Attention to pages of tables on the fake driver's GPUs: tile programs look up the pages, kernels do where there is no program, and no copy of keys and values is made.

use rlx_backend::testing::{disagreement, run};
use rlx_backend::{Backend, ExecutableGraph};
use rlx_driver::Device;
use rlx_ir::testing::{AttentionShape, Gen, random_paged_attention};
use rlx_ir::{DType, ErrorKind, Graph, LirModule, Op, OpKind, Value};
use rlx_opt::{CompileOptions, CompilePipeline, FusionOptions};
use rlx_simt::SimtBackend;

use crate::common::{everything, fake, second_gpu};

/// The fake GPUs with matrix units, and whether they multiply bf16.
const MODELS: [(Device, usize, bool); 5] = [
    (Device::Cuda, 0, true),
    (Device::Cuda, 2, false),
    (Device::Rocm, 0, true),
    (Device::Rocm, 1, true),
    (Device::Rocm, 2, true),
];

fn module(graph: &Graph, backend: &SimtBackend, producers: bool) -> LirModule {
    let fusion = FusionOptions { producers, ..FusionOptions::default() };
    let options = CompileOptions::default().fusion_opts(fusion);
    let pipeline = CompilePipeline::new(backend.target(&options).unwrap(), options);
    pipeline.compile(graph).unwrap_or_else(|e| panic!("{e}\n{graph}")).lir
}

fn compiled(lir: LirModule, backend: &SimtBackend) -> Box<dyn ExecutableGraph> {
    let text = lir.to_string();
    backend.compile(lir.into(), &CompileOptions::default()).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Gathers within the regions of attentions or matmuls, and those that write what they pick.
fn gathers(lir: &LirModule) -> [usize; 2] {
    let mut found = [0; 2];
    for step in &lir.steps {
        match &lir.graph.node(step.node).op {
            Op::Region { body } => {
                let count = |is: fn(&Op) -> bool| body.graph.nodes().iter().filter(|n| is(&n.op)).count();
                let all = count(|op| op.kind() == OpKind::Gather);
                let read = count(|op| matches!(op, Op::Attention { .. } | Op::MatMul)) > 0;
                found[usize::from(!read)] += all;
            }
            op => found[1] += usize::from(op.kind() == OpKind::Gather),
        }
    }
    found
}

fn random_case(g: &mut Gen) -> (AttentionShape, usize) {
    let head = |g: &mut Gen| if g.chance(0.5) { 8 * g.size(1..=8) } else { g.size(1..=20) };
    let shape = AttentionShape {
        kv_heads: g.size(1..=2),
        groups: g.size(1..=2),
        head_dim: head(g),
        value_dim: head(g),
        batch: g.size(1..=2),
        queries: g.size(1..=20),
        keys: g.size(1..=40),
    };
    (shape, g.pick(&[1, 3, 8, 16]))
}

#[test]
fn random_attentions_read_pages_where_they_are() {
    let _alone = second_gpu();
    let (mut read, mut written) = (0, 0);
    for (device, ordinal, brain) in MODELS {
        let backend = fake(device, ordinal);
        for seed in 0..if everything() { 60 } else { 12 } {
            let mut g = Gen::new(seed + 1000 * ordinal as u64);
            let dtype = if brain { g.pick(&[DType::F16, DType::BF16]) } else { DType::F16 };
            let (shape, page) = random_case(&mut g);
            let (graph, bindings) = random_paged_attention(&mut g, dtype, &shape, page);
            let lir = module(&graph, &backend, true);
            let [within, apart] = gathers(&lir);
            (read, written) = (read + within, written + apart);
            let mut exec = compiled(lir, &backend);
            for round in 0..3 {
                if let Some(why) = disagreement(&graph, &bindings, &mut *exec) {
                    panic!("{device} {ordinal} seed {seed} run {round}: {why}\n{graph}\n{}", exec.lir());
                }
            }
        }
    }
    // What pages have the rows of a head together is no view of rows that are in one page each.
    assert!(read > 3 * written && written > 0, "{read} read, {written} written");
}

/// A decoder's step over many keys is divided, and then, too, no copy is made.
#[test]
fn a_step_over_many_keys_has_fewer_steps_and_less_memory() {
    let _alone = second_gpu();
    let shape = AttentionShape {
        batch: 2,
        kv_heads: 2,
        groups: 4,
        queries: 1,
        keys: 1100,
        head_dim: 64,
        value_dim: 64,
    };
    for dtype in [DType::F16, DType::F32] {
        let backend = fake(Device::Cuda, 0);
        // Rows of a page have the heads beside each other.
        let cases = (0..40).map(|seed| random_paged_attention(&mut Gen::new(seed), dtype, &shape, 16));
        let mut checked = 0;
        for (graph, bindings) in cases {
            let [together, apart] = [true, false].map(|producers| module(&graph, &backend, producers));
            if gathers(&together)[1] > 0 || checked == 2 {
                continue;
            }
            checked += 1;
            let gathered = gathers(&apart)[1];
            assert!(gathered > 0);
            assert!(together.steps.len() + gathered <= apart.steps.len());
            let bytes = |lir: &LirModule| lir.plan.as_ref().unwrap().arena_bytes;
            assert!(bytes(&together) < bytes(&apart), "{} {}", bytes(&together), bytes(&apart));
            let mut exec = compiled(together, &backend);
            if let Some(why) = disagreement(&graph, &bindings, &mut *exec) {
                panic!("{why}\n{graph}\n{}", exec.lir());
            }
        }
        assert_eq!(checked, 2);
    }
}

#[test]
fn a_page_that_is_not_there_is_an_error() {
    let _alone = second_gpu();
    let shape = AttentionShape {
        batch: 1,
        kv_heads: 1,
        groups: 2,
        queries: 1,
        keys: 48,
        head_dim: 16,
        value_dim: 16,
    };
    for (device, ordinal, _) in MODELS {
        let backend = fake(device, ordinal);
        let found = (0..40).find_map(|seed| {
            let case = random_paged_attention(&mut Gen::new(seed), DType::F16, &shape, 16);
            let lir = module(&case.0, &backend, true);
            (gathers(&lir)[1] == 0).then_some((case, lir))
        });
        let ((graph, mut bindings), lir) = found.unwrap();
        let list = graph.inputs().find(|n| matches!(&n.op, Op::Input { name } if name == "pages")).unwrap();
        let mut exec = compiled(lir, &backend);
        for bad in [9_999, -9_999] {
            bindings.set_input("pages", Value::int(list.shape.dtype(), &[1, 3], vec![0, 0, bad]));
            let error = run(&mut *exec, &bindings).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Value, "{error}");
            assert!(error.to_string().contains(&bad.to_string()), "{error}");
        }
        bindings.set_input("pages", Value::int(list.shape.dtype(), &[1, 3], vec![0, 0, -1]));
        assert_eq!(disagreement(&graph, &bindings, &mut *exec), None, "the next run");
    }
}
