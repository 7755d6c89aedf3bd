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

/// A graph's only output on named inputs and parameters.
fn computed(m: &HirModule, inputs: &[(&str, Value)], params: &[(&str, Value)]) -> Vec<f64> {
    let graph = m.lower_to_mir().unwrap().into_graph();
    let mut values = Bindings::default();
    for (name, value) in inputs {
        values.set_input(*name, value.clone());
    }
    for (name, value) in params {
        values.set_param(*name, value.clone());
    }
    evaluate(&graph, &values).unwrap()[0].to_f64()
}

#[track_caller]
fn close(found: &[f64], want: &[f64]) {
    assert_eq!(found.len(), want.len());
    for (i, (f, w)) in found.iter().zip(want).enumerate() {
        assert!((f - w).abs() <= 1e-5 * w.abs().max(1.0), "element {i}: {f} instead of {w}");
    }
}

#[test]
fn a_feed_forward_block_gates_by_silu() {
    let mut m = HirModule::new("swiglu");
    let x = m.input("x", f32s(&[1, 2]));
    let [up, gate] = ["up", "gate"].map(|name| m.param(name, f32s(&[2, 2])));
    let down = m.param("down", f32s(&[2, 1]));
    let y = m.swiglu_ffn(x, up, gate, down, f32s(&[1, 1]));
    m.set_outputs(vec![y]);
    let params = [
        // x·up = [3, 4], x·gate = [1, -2] for x = [1, 2].
        ("up", Value::float(DType::F32, &[2, 2], vec![1.0, 0.0, 1.0, 2.0])),
        ("gate", Value::float(DType::F32, &[2, 2], vec![1.0, -2.0, 0.0, 0.0])),
        ("down", Value::float(DType::F32, &[2, 1], vec![1.0, 10.0])),
    ];
    let silu = |v: f64| v / (1.0 + (-v).exp());
    let found = computed(&m, &[("x", Value::float(DType::F32, &[1, 2], vec![1.0, 2.0]))], &params);
    close(&found, &[silu(1.0) * 3.0 + 10.0 * silu(-2.0) * 4.0]);
}

#[test]
fn norms_divide_by_the_root_mean_square() {
    let build = |residual: bool, with_beta: bool| {
        let mut m = HirModule::new("norm");
        let (x, r) = (m.input("x", f32s(&[1, 2])), m.input("r", f32s(&[1, 2])));
        let (gamma, beta) = (m.param("gamma", f32s(&[2])), m.param("beta", f32s(&[2])));
        let beta = with_beta.then_some(beta);
        let y = match residual {
            true => m.residual_rms_norm(x, r, gamma, beta, 0.5, f32s(&[1, 2])),
            false => m.rms_norm(x, gamma, beta, 0.5, f32s(&[1, 2])),
        };
        m.set_outputs(vec![y]);
        let two = |a, b| Value::float(DType::F32, &[2], vec![a, b]);
        let row = |a, b| Value::float(DType::F32, &[1, 2], vec![a, b]);
        computed(
            &m,
            &[("x", row(3.0, 4.0)), ("r", row(1.0, -1.0))],
            &[("gamma", two(2.0, 1.0)), ("beta", two(10.0, 20.0))],
        )
    };
    // The mean square of [3, 4] and of the sum [4, 3] is 12.5; the epsilon of 0.5 makes it 13.
    let root = 13f64.sqrt();
    close(&build(false, false), &[6.0 / root, 4.0 / root]);
    close(&build(false, true), &[6.0 / root + 10.0, 4.0 / root + 20.0]);
    close(&build(true, false), &[8.0 / root, 3.0 / root]);
    close(&build(true, true), &[8.0 / root + 10.0, 3.0 / root + 20.0]);
}

#[test]
fn rope_turns_the_halves_of_each_head() {
    let mut m = HirModule::new("rope");
    let x = m.input("x", f32s(&[1, 1, 6]));
    let tables = ["cos", "sin"].map(|name| m.param(name, f32s(&[1, 1])));
    // Two heads of three, of which the first two elements turn.
    let y = m.rope(x, tables[0], tables[1], 3, 2, f32s(&[1, 1, 6]));
    m.set_outputs(vec![y]);
    let x = Value::float(DType::F32, &[1, 1, 6], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let table = |v| Value::float(DType::F32, &[1, 1], vec![v]).rounded();
    let found = computed(&m, &[("x", x)], &[("cos", table(0.6)), ("sin", table(0.8))]);
    let turned = |a: f64, b: f64| [0.6 * a - 0.8 * b, 0.6 * b + 0.8 * a];
    let ([a, b], [c, d]) = (turned(1.0, 2.0), turned(4.0, 5.0));
    close(&found, &[a, b, 3.0, c, d, 6.0]);
}

#[test]
fn attention_mixes_by_softmax_and_its_mask() {
    let attend = |kind: MaskKind| {
        let mut m = HirModule::new("attention");
        let [q, k, v] = ["q", "k", "v"].map(|name| m.input(name, f32s(&[1, 2, 1])));
        let mask = matches!(kind, MaskKind::Custom).then(|| m.input("mask", f32s(&[2, 2])));
        let y = m.attention(q, k, v, mask, 1, 1, kind, f32s(&[1, 2, 1]));
        m.set_outputs(vec![y]);
        let row = |a, b| Value::float(DType::F32, &[1, 2, 1], vec![a, b]);
        let mut inputs = vec![("q", row(1.0, 2.0)), ("k", row(0.0, 1.0)), ("v", row(10.0, 20.0))];
        if mask.is_some() {
            inputs.push(("mask", Value::float(DType::F32, &[2, 2], vec![0.0, -1e9, -1e9, 0.0])));
        }
        computed(&m, &inputs, &[])
    };
    let mixed = |q: f64| (10.0 + 20.0 * q.exp()) / (1.0 + q.exp());
    close(&attend(MaskKind::None), &[mixed(1.0), mixed(2.0)]);
    close(&attend(MaskKind::Causal), &[10.0, mixed(2.0)]);
    close(&attend(MaskKind::Custom), &[10.0, 20.0]);
}

#[test]
fn a_dequantised_product_scales_each_column() {
    let mut m = HirModule::new("dequant");
    let x = m.input("x", f32s(&[1, 2]));
    let w = m.param("w", Shape::new(&[2, 2], DType::I8));
    let (scale, zero) = (m.param("scale", f32s(&[2])), m.param("zero", Shape::new(&[2], DType::I8)));
    let y = m.dequant_matmul(x, w, scale, Some(zero), Some(1), f32s(&[1, 2]));
    m.set_outputs(vec![y]);
    let params = [
        ("w", Value::int(DType::I8, &[2, 2], vec![3, 4, 5, 6])),
        ("scale", Value::float(DType::F32, &[2], vec![0.5, 2.0])),
        ("zero", Value::int(DType::I8, &[2], vec![1, -1])),
    ];
    let x = Value::float(DType::F32, &[1, 2], vec![1.0, 10.0]);
    // Columns (3-1, 5-1)·0.5 and (4+1, 6+1)·2.
    close(&computed(&m, &[("x", x)], &params), &[1.0 + 20.0, 10.0 + 140.0]);
}

#[test]
fn lower_errors_carry_what_the_compiler_and_the_device_say() {
    use rlx_ir::ErrorKind;
    use rlx_runtime::{Device, Session};
    let module = |op: Op| {
        let mut m = HirModule::new("m");
        let x = m.input("x", f32s(&[2]));
        let y = m.mir(op, vec![x], f32s(&[2]));
        m.set_outputs(vec![y]);
        m
    };
    let session = Session::new(Device::Cpu);
    let custom = Op::Custom { name: "unheard-of".into(), num_inputs: 1, attrs: Default::default() };
    let error: hir::LowerError = session.compile_hir(module(custom)).unwrap_err();
    assert!(matches!(error, hir::LowerError::Compile(_)), "{error}");
    assert_eq!(error.error().kind(), ErrorKind::Unsupported);
    assert!(std::error::Error::source(&error).is_some());
    let shape_mismatch = module(Op::Transpose { perm: vec![1, 0] });
    let error = session.compile_hir(shape_mismatch).unwrap_err();
    assert!(matches!(error, hir::LowerError::Lower(_)) && error.to_string().contains("%1"), "{error}");
}

#[test]
fn a_compiled_module_is_the_last_stage_and_has_a_manifest() {
    use rlx_ir::{BindingManifest, Dim, DimBinding, LirModule};
    use rlx_runtime::{CompileOptions, Device, stages::pipeline_for};
    let seq = |n| Shape::from_dims(&[Dim::Dynamic(sym::SEQ), Dim::Static(n)], DType::F32);
    let mut m = HirModule::new("two");
    let (x, skip) = (m.input("x", seq(3)), m.input("skip", seq(2)));
    let (w, b) = (m.param("w", f32s(&[3, 2])), m.param("b", f32s(&[2])));
    let y = m.linear(x, w, Some(b), None, seq(2));
    let z = m.mir(Op::Binary(rlx_ir::op::BinaryOp::Mul), vec![y, skip], seq(2));
    m.set_outputs(vec![z, y]);
    let pipeline = pipeline_for(Device::Cpu, &CompileOptions::new());
    let module = GraphModule::from_hir(m).lower().unwrap();
    // From the graph on, the compiler lowers, and says so.
    assert!(module.clone().lower().unwrap_err().to_string().contains("CompilePipeline"));
    let template = pipeline.compile(&module.into_graph().unwrap()).unwrap();

    let manifest = BindingManifest::from_lir(&template.lir);
    let names =
        |entries: &[rlx_ir::IoBindingEntry]| entries.iter().map(|e| e.name.clone()).collect::<Vec<_>>();
    assert_eq!((manifest.graph_name.as_str(), manifest.arena_size), ("two", None));
    assert_eq!(
        (names(&manifest.inputs), names(&manifest.params)),
        (vec!["x".into(), "skip".into()], vec!["w".to_string(), "b".into()])
    );
    for entry in manifest.inputs.iter().chain(&manifest.outputs) {
        assert_eq!((entry.elem_count, entry.byte_size, entry.arena_offset), (None, None, None), "{entry:?}");
    }
    assert_eq!((manifest.params[0].elem_count, manifest.params[0].byte_size), (Some(6), Some(24)));

    let bound: LirModule = template.specialize(&pipeline, &DimBinding::from_pairs(&[(sym::SEQ, 5)])).lir;
    let manifest = BindingManifest::from_lir(&bound);
    assert_eq!((manifest.inputs[0].shape.clone(), manifest.inputs[0].dtype), (f32s(&[5, 3]), DType::F32));
    let mut places: Vec<(usize, usize)> =
        manifest.outputs.iter().map(|e| (e.arena_offset.unwrap(), e.byte_size.unwrap())).collect();
    places.sort_unstable();
    assert!(places[0].0 + places[0].1 <= places[1].0, "outputs overlap: {places:?}");
    assert!(places[1].0 + places[1].1 <= manifest.arena_size.unwrap());
    assert!(places.iter().all(|(at, _)| at.is_multiple_of(manifest.alignment)));

    let module = GraphModule::from_lir(bound);
    assert_eq!(module.stage(), GraphStage::Lir);
    assert!(module.inspect().starts_with("lir \"two\""));
    assert!(module.clone().lower().unwrap_err().to_string().contains("last stage"));
    assert_eq!(module.into_graph().unwrap().outputs.len(), 2);
}
