//! The contract of `rlx_ir`'s HIR, stages and model variants, by its public names.

use rlx_ir::op::{Activation, MaskKind};
use rlx_ir::oracle::{Bindings, evaluate};
use rlx_ir::{
    CompilationMode, DType, Graph, GraphExt, GraphModule, GraphStage, HirModule, HirMut, HirNodeId,
    KernelDispatchPolicy, MirModule, ModelComponent, ModelPhase, ModelVariant, Op, OpKind, Shape, Value, hir,
    sym, verify,
};

fn f32s(dims: &[usize]) -> Shape {
    Shape::new(dims, DType::F32)
}

fn floats(dims: &[usize], f: impl Fn(usize) -> f64) -> Value {
    Value::float(DType::F32, dims, (0..dims.iter().product()).map(f).collect()).rounded()
}

#[test]
fn a_linear_block_computes_what_it_says() {
    let mut m = HirModule::new("linear");
    let x = m.input("x", f32s(&[1, 2, 3]));
    let (w, b) = (m.param("w", f32s(&[3, 2])), m.param("b", f32s(&[2])));
    let y = m.linear(x, w, Some(b), Some(Activation::Relu), f32s(&[1, 2, 2]));
    m.set_outputs(vec![y]);
    let mir: MirModule = m.lower_to_mir().unwrap();
    assert_eq!(verify(mir.graph()), []);
    let mut values = Bindings::default();
    values.set_input("x", floats(&[1, 2, 3], |i| i as f64 - 2.0));
    values.set_param("w", floats(&[3, 2], |i| i as f64));
    values.set_param("b", floats(&[2], |i| 10.0 * i as f64));
    // Rows [-2, -1, 0] and [1, 2, 3] times [[0, 1], [2, 3], [4, 5]], plus [0, 10], not below 0.
    assert_eq!(evaluate(mir.graph(), &values).unwrap()[0].to_f64(), [0.0, 5.0, 16.0, 32.0]);
}

#[test]
fn every_block_lowers() {
    let mut m = HirModule::new("blocks");
    let x = m.input("x", f32s(&[1, 5, 8]));
    let square = m.param("square", f32s(&[8, 8]));
    let (gamma, beta) = (m.param("gamma", f32s(&[8])), m.param("beta", f32s(&[8])));
    let table = m.param("table", f32s(&[5, 2]));
    let mask = m.input("mask", f32s(&[5, 5]));
    let like_x = || f32s(&[1, 5, 8]);
    let normed = m.rms_norm(x, gamma, beta, 1e-5, like_x());
    let turned = m.rope(normed, table, table, 4, 4, like_x());
    let free = m.attention(turned, turned, normed, None, 2, 4, MaskKind::Causal, like_x());
    let masked = m.attention(turned, turned, free, Some(mask), 2, 4, MaskKind::Custom, like_x());
    let both = m.residual_rms_norm(masked, x, gamma, None::<HirNodeId>, 1e-5, like_x());
    let fed = m.swiglu_ffn(both, square, square, square, like_x());
    let packed = m.param("packed", Shape::new(&[8, 6], DType::I8));
    let (scale, zero) = (m.param("scale", f32s(&[6])), m.param("zero", Shape::new(&[6], DType::I8)));
    let y = m.dequant_matmul(fed, packed, scale, Some(zero), Some(1), f32s(&[1, 5, 6]));
    let y = m.mir(Op::Activation(Activation::Tanh), vec![y], f32s(&[1, 5, 6]));
    m.set_outputs(vec![y]);
    let graph = m.lower_to_mir().unwrap().into_graph();
    let has = |kind| graph.nodes().iter().any(|n| n.op.kind() == kind);
    for kind in [OpKind::RmsNorm, OpKind::Rope, OpKind::Attention, OpKind::MatMul, OpKind::Dequantize] {
        assert!(has(kind), "{kind}\n{graph}");
    }
    assert_eq!(graph.shape(graph.outputs[0]), &f32s(&[1, 5, 6]));
}

#[test]
fn short_forms_work_inside_a_module() {
    let mut module = HirModule::new("short");
    let mut m = HirMut::new(&mut module);
    let x = m.input("x", f32s(&[2, 4]));
    let w = m.param("w", f32s(&[4, 3]));
    let y = m.mm(x, w);
    let y = m.silu(y);
    let y = m.sm(y, -1);
    let y = m.sum(y, &[1], false);
    module.set_outputs(vec![y]);
    let graph = module.lower_to_mir().unwrap().into_graph();
    assert_eq!(graph.shape(graph.outputs[0]), &f32s(&[2]));

    let mut m = HirMut::new(&mut module);
    assert!(m.try_mm(x, x).is_err());
    let wrong = m.mm(x, x);
    let wrong = m.relu(wrong);
    module.set_outputs(vec![wrong]);
    let error: hir::LowerError = module.lower_to_mir().unwrap_err();
    assert!(error.to_string().contains("cannot multiply [2, 4] f32 by [2, 4] f32"), "{error}");
    let _: &dyn std::error::Error = &error;
}

#[test]
fn modules_know_their_stage() {
    let mut m = HirModule::new("m");
    let x: HirNodeId = m.input("x", f32s(&[2]));
    m.set_outputs(vec![x]);
    let module = GraphModule::from_hir(m);
    assert_eq!(module.stage(), GraphStage::Hir);
    assert!(module.inspect().contains("hir \"m\""));
    let module = module.lower().unwrap();
    assert_eq!(module.stage(), GraphStage::Mir);
    assert!(module.inspect().starts_with("graph \"m\""));
    let graph: Graph = module.into_graph().unwrap();
    assert_eq!(graph.outputs.len(), 1);
    assert_eq!(GraphModule::from_graph(graph).stage(), GraphStage::Mir);
    assert_ne!(GraphStage::Mir, GraphStage::Lir);
}

#[test]
fn variants_bind_sizes_and_give_keys() {
    let decode = ModelVariant::decode(2, 7, 1);
    let binding = decode.dim_binding();
    assert_eq!(
        (binding.get(sym::BATCH), binding.get(sym::SEQ), binding.get(sym::PAST_SEQ)),
        (Some(2), Some(1), Some(7))
    );
    assert_eq!(decode.phase(), ModelPhase::Decode);
    let keys = [
        ModelVariant::prefill(1, 8).cache_key(),
        ModelVariant::encoder(1, 8).cache_key(),
        decode.cache_key(),
    ];
    assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
    let component = ModelComponent::new(decode)
        .with_kernel_dispatch(KernelDispatchPolicy::ForceCommon)
        .with_compilation_mode(CompilationMode::Aot)
        .with_quant("q4_k")
        .with_name("decoder");
    assert_eq!(component.dim_binding(), binding);
    assert_ne!(component.cache_key(), ModelComponent::new(decode).cache_key());
    assert_eq!(component.cache_key(), component.clone().cache_key());
}
