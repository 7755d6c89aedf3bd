//! The contract's section "Session and options", by public names only.

use std::collections::HashMap;

use rlx_contract::{ABSENT, DEVICE, on_every_device};
use rlx_ir::op::{Activation, BinaryOp, ReduceOp};
use rlx_ir::{
    ConstData, DType, Dim, DimBinding, ErrorKind, Graph, GraphExt, GraphModule, HirModule, Op, Shape, sym,
};
use rlx_runtime::{
    CompileOptions, Device, KernelDispatchPolicy, Numerics, Precision, PrecisionPolicy, Session, TensorView,
};

fn negate(dims: &[Dim]) -> Graph {
    let shape = Shape::from_dims(dims, DType::F32);
    let mut g = Graph::new("negate");
    let x = g.input("x", shape.clone());
    let y = g.activation(Activation::Neg, x, shape);
    g.set_outputs(vec![y]);
    g
}

#[test]
fn a_session_says_what_it_is() {
    rlx_contract::register();
    let s = Session::new_with_precision(DEVICE, Precision::BF16).with_policy(PrecisionPolicy::AutoMixedBf16);
    assert_eq!((s.device(), s.precision()), (DEVICE, Precision::BF16));
    assert_eq!(s.policy(), Some(&PrecisionPolicy::AutoMixedBf16));
    assert_eq!(Session::new(DEVICE).precision(), Precision::F32);
    assert_eq!(Session::new(DEVICE).policy(), None);
    assert!(
        Session::try_new(DEVICE).is_ok() && Session::try_new_with_precision(DEVICE, Precision::F16).is_ok()
    );
}

#[test]
fn a_device_without_a_backend_names_feature_and_register_backend() {
    let e = Session::try_new(ABSENT).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::DeviceUnavailable);
    for part in ["ANE", "\"ane\"", "register_backend", "no backend"] {
        assert!(e.to_string().contains(part), "{e}");
    }
    let caught = std::panic::catch_unwind(|| Session::new(ABSENT)).unwrap_err();
    assert_eq!(*caught.downcast::<String>().unwrap(), e.to_string());
}

#[test]
fn every_way_to_compile_gives_the_same_graph() {
    rlx_contract::register();
    let s = Session::new(DEVICE);
    let graph = || negate(&[Dim::Static(2)]);
    let options = CompileOptions::new();
    let mut all = [
        s.compile(graph()),
        s.compile_graph(graph()),
        s.compile_with(graph(), &options),
        s.try_compile(graph()).unwrap(),
        s.try_compile_with(graph(), &options).unwrap(),
    ];
    for c in &mut all {
        assert_eq!(c.run(&[("x", &[1.0, -2.0])]), [[-1.0, 2.0]]);
    }
}

#[test]
fn options_have_fields_and_builders() {
    let options = CompileOptions::new()
        .precision(Precision::F16)
        .policy(PrecisionPolicy::AutoMixed)
        .with_dce(false)
        .with_constant_folding(false)
        .with_verbose(false)
        .fusion_opts(Default::default())
        .arena_alignment(128)
        .assert_fusion_clean(false)
        .supported_ops([rlx_ir::OpKind::Activation].into())
        .dim_binding(DimBinding::batch_seq(1, 2))
        .param_bindings(HashMap::new())
        .kernel_dispatch(KernelDispatchPolicy::PreferNative)
        .numerics(Numerics::Strict);
    assert_eq!((options.precision, options.arena_alignment), (Precision::F16, 128));
    assert_eq!(options.numerics, Numerics::Strict);
    assert_eq!(CompileOptions::default().arena_alignment, 64);
    assert_eq!(CompileOptions::default().numerics, Numerics::Fast);
    let _ = format!("{:?}", options.clone());
}

#[test]
fn a_binding_fixes_dimensions_and_unused_symbols_are_ignored() {
    rlx_contract::register();
    let options =
        CompileOptions::new().dim_binding(DimBinding::from_pairs(&[(sym::BATCH, 3), (sym::PAST_SEQ, 9)]));
    let c = Session::new(DEVICE).compile_with(negate(&[Dim::Dynamic(sym::BATCH)]), &options);
    assert_eq!(c.inputs()[0].shape, Shape::new(&[3], DType::F32));
}

#[test]
fn bound_parameters_need_not_be_set() {
    rlx_contract::register();
    let mut g = Graph::new("add");
    let shape = Shape::new(&[2], DType::F32);
    let (x, w) = (g.input("x", shape.clone()), g.param("w", shape.clone()));
    let y = g.binary(BinaryOp::Add, x, w, shape);
    g.set_outputs(vec![y]);
    let value = ConstData::from_f32(&[2], &[1.0, 2.0]).unwrap();
    let options = CompileOptions::new().param_bindings([("w".to_string(), value)].into());
    let mut c = Session::new(DEVICE).compile_with(g, &options);
    assert_eq!(c.run(&[("x", &[1.0, 1.0])]), [[2.0, 3.0]]);
}

#[test]
fn options_that_make_no_sense_are_errors() {
    rlx_contract::register();
    let options = CompileOptions::new().arena_alignment(48);
    let e = Session::new(DEVICE).try_compile_with(negate(&[Dim::Static(1)]), &options).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Config);
    assert!(e.to_string().contains("48"));
}

#[test]
fn ops_outside_of_supported_ops_are_errors() {
    rlx_contract::register();
    let options = CompileOptions::new().supported_ops([rlx_ir::OpKind::MatMul].into());
    let e = Session::new(DEVICE).try_compile_with(negate(&[Dim::Static(1)]), &options).unwrap_err();
    assert!(e.to_string().contains("supported_ops"), "{e}");
}

#[test]
fn blocks_and_modules_of_every_stage_compile() {
    rlx_contract::register();
    let s = Session::new(DEVICE);
    let hir = || {
        let mut m = HirModule::new("linear");
        let x = m.input("x", Shape::new(&[1, 2], DType::F32));
        let w = m.param("w", Shape::new(&[2, 2], DType::F32));
        let y = m.linear(x, w, None, Some(Activation::Relu), Shape::new(&[1, 2], DType::F32));
        m.set_outputs(vec![y]);
        m
    };
    let graph = hir().lower_to_mir().unwrap().into_graph();
    let lir = rlx_runtime::stages::pipeline_for(DEVICE, &CompileOptions::new()).compile(&graph).unwrap().lir;
    let compiled = [
        s.compile_hir(hir()),
        s.compile_hir_with(hir(), &CompileOptions::new()),
        s.compile_module(GraphModule::from_hir(hir())),
        s.compile_module(GraphModule::from_graph(graph)),
        s.compile_module_with(GraphModule::from_lir(lir), &CompileOptions::new()),
    ];
    for c in compiled {
        let mut c = c.unwrap();
        c.set_param("w", &[1.0, -1.0, 2.0, 1.0]);
        assert_eq!(c.run(&[("x", &[1.0, 1.0])]), [[3.0, 0.0]]);
    }
}

#[test]
fn blocks_that_do_not_fit_or_compile_are_lower_errors() {
    rlx_contract::register();
    let mut m = HirModule::new("bad");
    let x = m.input("x", Shape::new(&[1, 3], DType::F32));
    let w = m.param("w", Shape::new(&[2, 2], DType::F32));
    let y = m.linear(x, w, None, None, Shape::new(&[1, 2], DType::F32));
    m.set_outputs(vec![y]);
    let e = Session::new(DEVICE).compile_hir(m).unwrap_err();
    assert!(e.to_string().contains("[1, 3] f32"), "{e}");
    let mut m = HirModule::new("custom");
    let x = m.input("x", Shape::new(&[1], DType::F32));
    let op = rlx_ir::Op::Custom { name: "mystery".into(), num_inputs: 1, attrs: Default::default() };
    let y = m.mir(op, vec![x], Shape::new(&[1], DType::F32));
    m.set_outputs(vec![y]);
    let e = Session::new(DEVICE).compile_hir(m).unwrap_err();
    assert!(matches!(e, rlx_ir::LowerError::Compile(_)), "{e}");
}

/// `sin(x)·w` with the sine in f64, which not every device has.
fn with_a_double() -> Graph {
    let f = |d: &[usize], dtype| Shape::new(d, dtype);
    let mut g = Graph::new("double");
    let (x, w) = (g.input("x", f(&[2, 3], DType::F32)), g.param("w", f(&[3, 2], DType::F32)));
    let y = g.cast(x, DType::F64);
    let y = g.activation(Activation::Sin, y, f(&[2, 3], DType::F64));
    let y = g.cast(y, DType::F32);
    let y = g.matmul(y, w, f(&[2, 2], DType::F32));
    g.set_outputs(vec![y]);
    g
}

fn what_a_device_lacks_is_an_error_or_the_cpus(device: Device) {
    rlx_contract::register();
    let session = Session::new(device);
    let lacks = match session.try_compile(with_a_double()) {
        Ok(_) => false,
        Err(e) => {
            let e = rlx_runtime::Error::from(e);
            assert_eq!(e.kind(), ErrorKind::Unsupported, "{e}");
            assert!(e.node().is_some() && e.to_string().contains("f64"), "{e}");
            assert!(e.hint().is_some_and(|hint| hint.contains("try_with_cpu_fallback")), "{e}");
            true
        }
    };
    let session = session.try_with_cpu_fallback().unwrap();
    let run = |session: &Session| {
        let mut compiled = session.compile(with_a_double());
        compiled.set_param("w", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let outputs = compiled.run(&[("x", &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6])]).remove(0);
        let plan = session.split_plan(&compiled.lir().graph, &CompileOptions::new()).unwrap();
        (outputs, plan.map_or(1, |plan| plan.parts.len()))
    };
    let ((found, parts), (want, _)) = (run(&session), run(&Session::new(Device::Cpu)));
    assert!(found.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-5), "{found:?} {want:?}");
    assert_eq!(parts > 1, lacks);
}

/// The rows of `x` whose sum is not 0, multiplied by `w`; and a sine of the first that many numbers.
fn with_a_count() -> Graph {
    let found = Dim::Dynamic(sym::named("contract.rows_found"));
    let mut g = Graph::new("counted");
    let x = g.input("x", Shape::from_dims(&[Dim::Dynamic(sym::BATCH), Dim::Static(3)], DType::F32));
    let w = g.param("w", Shape::new(&[3, 2], DType::F32));
    let add = |g: &mut Graph, op, inputs: &[_]| g.try_add(op, inputs).unwrap();
    let sums = add(&mut g, Op::Reduce { op: ReduceOp::Sum, axes: vec![1], keep_dim: false }, &[x]);
    let rows = add(&mut g, Op::NonZero { count: found }, &[sums]);
    let rows = add(&mut g, Op::Reshape { to: vec![found] }, &[rows]);
    let kept = add(&mut g, Op::Gather { axis: 0 }, &[x, rows]);
    let y = add(&mut g, Op::MatMul, &[kept, w]);
    let y = add(&mut g, Op::Activation(Activation::Exp), &[y]);
    let numbers = add(&mut g, Op::Iota { to: vec![found], axis: 0, dtype: DType::F32 }, &[]);
    let sines = add(&mut g, Op::Activation(Activation::Sin), &[numbers]);
    g.set_outputs(vec![y, rows, sines]);
    g
}

/// What a run finds out is a size of the parts behind the one that found it.
fn what_a_run_finds_may_be_in_a_graph_that_is_divided(device: Device) {
    rlx_contract::register();
    let on = |session: &Session| {
        let mut compiled = session.compile(with_a_count());
        compiled.set_param("w", &[0.5, -0.25, 1.0, 0.75, -1.0, 0.125]);
        compiled
    };
    let mut here = on(&Session::new(device).try_with_cpu_fallback().unwrap());
    let mut there = on(&Session::new(Device::Cpu));
    // All, some, none; another number with the same rows; more rows; none at all.
    for (rows, zeros) in [(4, 0), (4, 2), (4, 4), (4, 1), (9, 3), (0, 0), (4, 2)] {
        let number = |i: usize| if i / 3 < zeros { 0.0 } else { (i * 7 % 11) as f32 / 16.0 + 0.125 };
        let bytes: Vec<u8> = (0..3 * rows).flat_map(|i| number(i).to_le_bytes()).collect();
        let x = TensorView { name: "x", dtype: DType::F32, dims: &[rows, 3], bytes: &bytes };
        let (found, want) = (here.try_run_tensors(&[x]).unwrap(), there.try_run_tensors(&[x]).unwrap());
        let dims: Vec<&[usize]> = found.iter().map(|output| output.dims()).collect();
        assert_eq!(dims, [&[rows - zeros, 2][..], &[rows - zeros], &[rows - zeros]]);
        assert_eq!(found[1].bytes(), want[1].bytes());
        for output in [0, 2] {
            let (found, want) = (found[output].as_f32().unwrap(), want[output].as_f32().unwrap());
            let near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-5 * b.abs().max(1.0);
            assert!(found.iter().zip(want.iter()).all(near), "{rows} {zeros}: {found:?} {want:?}");
        }
    }
}

on_every_device!(
    what_a_device_lacks_is_an_error_or_the_cpus,
    what_a_run_finds_may_be_in_a_graph_that_is_divided
);
