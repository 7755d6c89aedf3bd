//! The steps of an encoder layer of ViT, whose attention wants the sequence first and gets query, key and value as one product.

#[path = "passes/common.rs"]
mod common;

use std::sync::Arc;

use common::Anything;
use rlx_ir::lir::{LirModule, Operand, StepKind};
use rlx_ir::{Op, OpKind};
use rlx_onnx::{ImportOptions, OnnxFile, import};
use rlx_opt::{CompileOptions, CompilePipeline, Precision};
use rlx_testdata::models::model;

/// What a layer is: norm and query, key and value; attention; its projection and the residual; norm, matmul and GELU; matmul and
/// residual.
const STEPS_OF_LAYER: usize = 5;

fn compiled(name: &str, precision: Precision) -> LirModule {
    let path = model(name).graph_file().expect("its weights are made by formula");
    let imported = import(&OnnxFile::open(&path).unwrap(), &ImportOptions::default()).unwrap();
    let options = CompileOptions::default().precision(precision);
    let pipeline = CompilePipeline::new(Arc::new(Anything { channels_last: true }), options);
    pipeline.compile(&imported.graph).unwrap().lir
}

/// The op of a step, in its region if it is one, that a step is named by.
fn anchor(kind: &StepKind) -> Option<OpKind> {
    let StepKind::Op(op) = kind else { return None };
    let anchors = [OpKind::MatMul, OpKind::Attention, OpKind::Conv];
    match op {
        Op::Region { body } => {
            let kinds = body.graph.nodes().iter().map(|n| n.op.kind());
            kinds.into_iter().find(|kind| anchors.contains(kind)).or(Some(OpKind::Region))
        }
        op => Some(op.kind()),
    }
}

#[test]
fn an_encoder_layer_has_no_casts_no_copies_and_no_transposed_rows() {
    for name in ["vit_reduced", "vit_reduced_dynamo"] {
        for precision in [Precision::F32, Precision::F16, Precision::BF16] {
            let lir = compiled(name, precision);
            let attentions: Vec<usize> = (0..lir.steps.len())
                .filter(|&i| anchor(&lir.steps[i].kind) == Some(OpKind::Attention))
                .collect();
            assert_eq!(attentions.len(), 2, "{lir}");
            assert_eq!(attentions[1] - attentions[0], STEPS_OF_LAYER, "{lir}");
            let layers = &lir.steps[attentions[0] - 1..attentions[1] + STEPS_OF_LAYER - 1];
            for step in layers {
                let found = anchor(&step.kind);
                assert!(
                    matches!(found, Some(OpKind::MatMul | OpKind::Attention)),
                    "{found:?} in {name}: {lir}"
                );
                // Query, key and value are columns of one product; all else is read as it was written.
                let is_dense = |operand: &Operand| operand.view.is_dense();
                let attention = found == Some(OpKind::Attention);
                assert!(attention || step.inputs.iter().all(is_dense), "{precision}: {lir}");
                let short = |operand: &Operand| operand.dtype == precision.dtype();
                assert!(step.inputs.iter().chain(&step.outputs).all(short), "{precision}: {lir}");
            }
        }
    }
}
