//! Variants of a step on the devices: every one gives the same bits, and the one that a tuning names is taken.

use std::sync::Arc;

use rlx_backend::tuning::{Tuning, TuningKey};
use rlx_backend::{Backend, CompileCache};
use rlx_ir::op::{Activation, BinaryOp, DataFormat};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, Graph, LirModule, Op, Shape};
use rlx_opt::{CompileOptions, CompilePipeline};
use rlx_wgpu::WgpuBackend;

use crate::common::{self, devices};

/// `Relu(op(x, w))`, where `w` is a parameter.
pub fn step(op: Op, x: &[usize], w: &[usize]) -> (Graph, Bindings) {
    let (mut g, mut values, mut gen_) = (Graph::new("step"), Bindings::default(), Gen::new(1));
    let (input, param) = (g.input("x", Shape::new(x, DType::F32)), g.param("w", Shape::new(w, DType::F32)));
    values.set_input("x", gen_.value(DType::F32, x, -1.0..1.0));
    values.set_param("w", gen_.value(DType::F32, w, -1.0..1.0));
    let y = g.try_add(op, &[input, param]).unwrap();
    let shape = g.shape(y).clone();
    let y = g.activation(Activation::Relu, y, shape);
    g.set_outputs(vec![y]);
    (g, values)
}

pub fn module(graph: &Graph, backend: &WgpuBackend) -> Arc<LirModule> {
    let options = CompileOptions::default();
    let pipeline = CompilePipeline::new(backend.target(&options).unwrap(), options);
    Arc::new(pipeline.compile(graph).unwrap().lir)
}

/// The keys of a module's steps.
pub fn keys(backend: &WgpuBackend, lir: &LirModule) -> Vec<TuningKey> {
    lir.steps
        .iter()
        .filter_map(|step| backend.tuning_key(lir, step, &CompileOptions::default()).unwrap())
        .collect()
}

/// The module compiled so that its only key is done in variant `variant`, and run.
pub fn outputs(
    backend: &WgpuBackend,
    lir: &Arc<LirModule>,
    values: &Bindings,
    tuning: Tuning,
) -> Vec<Vec<u8>> {
    let kept = CompileCache { tuning, ..CompileCache::default() };
    let mut exec = backend.compile_cached(Arc::clone(lir), &CompileOptions::default(), &kept).unwrap();
    common::set_params(&mut *exec, values).unwrap();
    common::run(&mut *exec, values).unwrap()
}

#[test]
fn every_way_gives_the_same_bits() {
    let conv = Op::Conv {
        strides: vec![1, 2],
        pads: vec![1; 4],
        dilations: vec![1, 1],
        groups: 2,
        format: DataFormat::ChannelsFirst,
    };
    for backend in devices() {
        for (op, x, w) in [
            (Op::MatMul, &[70, 45][..], &[45, 100][..]),
            (Op::MatMul, &[1, 64], &[64, 50]),
            (Op::MatMul, &[1, 32], &[32, 528]),
            (Op::MatMul, &[5, 33], &[33, 72]),
            (conv.clone(), &[1, 10, 13, 22], &[40, 5, 3, 3]),
            (Op::Binary(BinaryOp::Add), &[201, 99], &[99]),
        ] {
            let (graph, values) = step(op, x, w);
            common::check(&graph, &values, &backend).unwrap();
            let lir = module(&graph, &backend);
            let key = keys(&backend, &lir).pop().expect("it has several variants");
            let before = backend.kernel_count().unwrap();
            let first = outputs(&backend, &lir, &values, Tuning::default());
            for variant in 1..key.variants.len() {
                let mut tuning = Tuning::default();
                tuning.choose(&key, variant);
                let other = outputs(&backend, &lir, &values, tuning);
                assert!(other == first, "{}: {} of {key:?}", backend.name(), key.variants[variant]);
            }
            assert!(backend.kernel_count().unwrap() > before, "other variants are other kernels");
        }
    }
}

#[test]
fn a_site_is_one_line_that_does_not_depend_on_the_device_or_the_names() {
    let Some(backend) = common::main_device() else { return };
    let what = |name: &str, x: &[usize]| {
        let mut g = Graph::new(name);
        let (a, b) =
            (g.input(name, Shape::new(x, DType::F32)), g.input("w", Shape::new(&[40, 24], DType::F32)));
        let y = g.try_add(Op::MatMul, &[a, b]).unwrap();
        g.set_outputs(vec![y]);
        let key = keys(&backend, &module(&g, &backend)).remove(0);
        assert!(key.variants.len() > 1 && key.variants.iter().all(|w| !w.contains(' ')), "{key:?}");
        key.what
    };
    let key = what("a", &[30, 40]);
    assert_eq!(key, what("b", &[30, 40]));
    assert_ne!(key, what("a", &[31, 40]));
    assert!(key.contains("MatMul") && key.contains("f32[30, 40]") && !key.contains('\n'), "{key}");
}

#[test]
fn what_has_one_variant_is_not_tuned() {
    let Some(backend) = common::main_device() else { return };
    let mut g = Graph::new("dense");
    let x = g.input("x", Shape::new(&[1], DType::F32));
    let y = g.try_add(Op::Activation(Activation::Relu), &[x]).unwrap();
    g.set_outputs(vec![y]);
    assert_eq!(keys(&backend, &module(&g, &backend)), []);
}
