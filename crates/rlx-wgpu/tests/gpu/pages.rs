//! Attention to keys and values in pages of a table: the pages are read where they are, so that no copy of them is dispatched or takes memory.

use std::sync::Arc;

use rlx_backend::testing::{compile, disagreement};
use rlx_backend::{Backend, ExecutableGraph};
use rlx_ir::lir::StepKind;
use rlx_ir::testing::{AttentionShape, Gen, random_paged_attention};
use rlx_ir::{DType, ErrorKind, Op, OpKind, Value};
use rlx_opt::{CompileOptions, CompilePipeline, FusionOptions};

use crate::common::{devices, main_device, run};

/// A decoder's step: two items, one query for each of six heads, of which three share keys; 48 keys in pages of 16.
const STEP: AttentionShape =
    AttentionShape { batch: 2, kv_heads: 2, groups: 3, queries: 1, keys: 48, head_dim: 16, value_dim: 16 };

/// How many steps write what they pick, and bytes of planned memory.
fn apart(exec: &dyn ExecutableGraph) -> (usize, usize) {
    let picks = |kind: &StepKind| match kind {
        StepKind::Op(Op::Region { body }) => {
            let has = |is: fn(&Op) -> bool| body.graph.nodes().iter().any(|n| is(&n.op));
            has(|op| op.kind() == OpKind::Gather) && !has(|op| *op == Op::MatMul)
        }
        StepKind::Op(op) => op.kind() == OpKind::Gather,
        StepKind::Copy => false,
    };
    let lir = exec.lir();
    let bytes = lir.plan.as_ref().map_or(0, |plan| plan.arena_bytes);
    (lir.steps.iter().filter(|step| picks(&step.kind)).count(), bytes)
}

#[test]
fn pages_are_read_where_they_are() {
    for backend in devices() {
        for seed in 0..6 {
            let mut g = Gen::new(seed);
            let dtype = if seed % 2 == 0 { DType::F32 } else { DType::F16 };
            let (graph, bindings) = random_paged_attention(&mut g, dtype, &STEP, 16);
            let found = [true, false].map(|producers| {
                let fusion = FusionOptions { producers, ..FusionOptions::default() };
                let options = CompileOptions::default().fusion_opts(fusion);
                let pipeline = CompilePipeline::new(backend.target(&options).unwrap(), options.clone());
                let lir = pipeline.compile(&graph).unwrap().lir;
                let mut exec = backend.compile(Arc::new(lir), &options).unwrap();
                if let Some(what) = disagreement(&graph, &bindings, &mut *exec) {
                    panic!("{what}\n{graph}\n{}", exec.lir());
                }
                (apart(&*exec), exec.lir().steps.len())
            });
            let [((none, bytes), steps), ((gathers, more_bytes), more_steps)] = found;
            assert!(none == 0 && gathers > 0, "{none} {gathers}");
            assert!(steps + gathers <= more_steps, "{steps} of {more_steps} steps, {gathers} gathers");
            assert!(bytes < more_bytes, "{bytes} of {more_bytes} bytes");
        }
    }
}

#[test]
fn a_page_that_is_not_there_is_an_error() {
    let Some(backend) = main_device() else { return };
    let (graph, mut bindings) = random_paged_attention(&mut Gen::new(4), DType::F32, &STEP, 16);
    let list = graph.inputs().find(|n| matches!(&n.op, Op::Input { name } if name == "pages")).unwrap();
    let dtype = list.shape.dtype();
    let mut exec = compile(&graph, &backend).unwrap();
    for bad in [9_999, -9_999] {
        bindings.set_input("pages", Value::int(dtype, &[2, 3], vec![0, 0, bad, 0, 0, 0]));
        let error = run(&mut *exec, &bindings).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Value, "{error}");
        assert!(error.to_string().contains(&bad.to_string()), "{error}");
    }
}
