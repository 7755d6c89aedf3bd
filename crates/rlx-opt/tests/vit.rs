//! The steps of an encoder layer of ViT, whose attention wants the sequence first and gets query, key and value as one product.

#[path = "passes/common.rs"]
mod common;

use std::sync::Arc;

use common::Anything;
use rlx_ir::lir::{LirModule, Step, StepKind};
use rlx_ir::{Op, OpKind, sym};
use rlx_onnx::{ImportOptions, OnnxFile, import};
use rlx_opt::{CompileOptions, CompilePipeline, Precision};
use rlx_testdata::models::model;

/// What a layer is: norm and query, key and value; attention; its projection and the residual; norm, matmul and GELU; matmul and
/// residual.
const STEPS_OF_LAYER: usize = 5;

/// How many the reduced model has.
const LAYERS: usize = 2;

fn compiled(name: &str, precision: Precision, batch: Option<usize>) -> LirModule {
    let path = model(name).graph_file().expect("its weights are made by formula");
    let imported = import(&OnnxFile::open(&path).unwrap(), &ImportOptions::default()).unwrap();
    let mut options = CompileOptions::default().precision(precision);
    if let Some(batch) = batch {
        options.dim_binding.set(sym::BATCH, batch);
    }
    let pipeline =
        CompilePipeline::new(Arc::new(Anything { channels_last: true, ..Anything::default() }), options);
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

/// The steps between the first norm and the last one.
fn layers(lir: &LirModule) -> &[Step] {
    let is_attention = |step: &&Step| anchor(&step.kind) == Some(OpKind::Attention);
    assert_eq!(lir.steps.iter().filter(is_attention).count(), LAYERS, "{lir}");
    let first = lir.steps.iter().position(|step| is_attention(&step)).unwrap();
    &lir.steps[first - 1..first - 1 + LAYERS * STEPS_OF_LAYER]
}

fn check_layers(name: &str, precision: Precision, batch: Option<usize>) {
    let lir = compiled(name, precision, batch);
    for step in layers(&lir) {
        let found = anchor(&step.kind);
        let context = || format!("{found:?} in {name}, {precision}, {batch:?}: {lir}");
        assert!(matches!(found, Some(OpKind::MatMul | OpKind::Attention)), "{}", context());
        // Query, key and value are columns of one product; all else is read as it was written.
        let dense = step.inputs.iter().all(|operand| operand.view.is_dense());
        assert!(dense || found == Some(OpKind::Attention), "{}", context());
        let mut operands = step.inputs.iter().chain(&step.outputs);
        assert!(operands.all(|operand| operand.dtype == precision.dtype()), "{}", context());
    }
    // Behind the layers there is a norm alone, and the head.
    let behind = layers(&lir).as_ptr_range().end;
    let rest = lir.steps.iter().skip_while(|step| !std::ptr::eq(*step, behind)).count();
    assert_eq!(rest, 2, "{name}, {precision}, {batch:?}: {lir}");
}

#[test]
fn an_encoder_layer_has_no_casts_no_copies_and_no_transposed_rows() {
    for name in ["vit_reduced", "vit_reduced_dynamo"] {
        for precision in [Precision::F32, Precision::F16, Precision::BF16] {
            for batch in [None, Some(1), Some(4)] {
                check_layers(name, precision, batch);
            }
        }
    }
}
