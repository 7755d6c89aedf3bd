//! Matmuls of few rows on the fake driver's GPUs: under fast numerics alone by kernels that divide their sums, right with what is behind them, in one dispatch, the
//! same bits of a row whatever the others are, and by other means where a run has more rows.

use std::sync::Arc;

use rlx_backend::Backend;
use rlx_backend::testing::{disagreement, run};
use rlx_driver::Device;
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{Gen, random_bindings};
use rlx_ir::{DType, DimBinding, Graph, Value, sym, text};

use crate::common::{Fake, everything, fake, second_gpu, set_params};
use crate::parts::{MODELS, calls_of_first_run, check, fast, module, strict};

/// A layer of `k` inputs and `n` outputs: a weight that may be stored transposed, a bias, an activation, a residual.
fn layer(rows: &str, dtype: DType, [k, n]: [usize; 2], transposed: bool) -> Graph {
    let weight = if transposed {
        format!(
            "%1 = Param {{name=\"w\"}} : [{n}, {k}] {dtype} %2 = Transpose(%1) {{perm=[1, 0]}} : [{k}, {n}] {dtype}"
        )
    } else {
        format!("%1 = Param {{name=\"v\"}} : [1] {dtype} %2 = Param {{name=\"w\"}} : [{k}, {n}] {dtype}")
    };
    let text = format!(
        "graph \"g\" {{ %0 = Input {{name=\"x\"}} : [{rows}, {k}] {dtype} {weight} \
         %3 = Param {{name=\"b\"}} : [{n}] {dtype} %4 = Input {{name=\"y\"}} : [{rows}, {n}] {dtype} \
         %5 = MatMul(%0, %2) : [{rows}, {n}] {dtype} %6 = Binary.Add(%5, %3) : [{rows}, {n}] {dtype} \
         %7 = Activation.Silu(%6) : [{rows}, {n}] {dtype} %8 = Binary.Add(%7, %4) : [{rows}, {n}] {dtype} return %8 }}"
    );
    text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn rows(graph: &Graph, count: usize) -> Bindings {
    random_bindings(graph, &DimBinding::from_pairs(&[(sym::SEQ, count)]), 7)
}

const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// Fake GPUs of all architectures with matrix units; of f32, those have kernels.
fn models() -> impl Iterator<Item = (Device, usize)> {
    [(Device::Cuda, 0), (Device::Rocm, 4)].into_iter().chain(MODELS)
}

#[test]
fn few_rows_are_one_dispatch_under_fast_numerics_alone() {
    let _alone = second_gpu();
    for (i, (device, ordinal)) in models().enumerate() {
        let (backend, dtype) = (fake(device, ordinal), TYPES[i % 3]);
        let graph = layer("3", dtype, [328, 72], i % 2 == 0);
        let (lir, whole) = module(&graph, &backend, &strict());
        assert!(whole.len() == 1 && !whole[0].contains("gemv"), "{whole:?}");
        let mut exec = backend.compile(Arc::clone(&lir), &strict()).unwrap();
        let bindings = rows(&graph, 3);
        check(&graph, &bindings, &mut *exec, "strict");

        let (lir, divided) = module(&graph, &backend, &fast());
        assert!(divided.len() == 1 && divided[0].starts_with("gemv3x"), "{divided:?}");
        let told = |options| backend.target(&options).unwrap().matmul_instructions(dtype).unwrap_or_default();
        assert!(told(fast()).contains("few rows") && !told(strict()).contains("few rows"));
        let mut exec = backend.compile(Arc::clone(&lir), &fast()).unwrap();
        let before = Fake::get().tile_runs();
        check(&graph, &bindings, &mut *exec, "fast");
        assert_eq!(Fake::get().tile_runs(), before, "no tile program");
        let mut clone = exec.try_clone().unwrap();
        check(&graph, &bindings, &mut *clone, "a clone");
        assert_eq!(exec.lir().buffers.len(), lir.buffers.len(), "no scratch memory");
    }
}

/// The first rows of every result.
fn first_rows(results: &[Vec<u8>], count: usize, of: usize) -> Vec<Vec<u8>> {
    results.iter().map(|bytes| bytes[..bytes.len() / of * count].to_vec()).collect()
}

/// As many values for fewer rows: the first ones.
fn fewer(bindings: &Bindings, count: usize) -> Bindings {
    let mut fewer = bindings.clone();
    for name in ["x", "y"] {
        let value = bindings.input(name).unwrap();
        let bytes = value.encode();
        let mut dims = value.dims.to_vec();
        let row = bytes.len() / dims[0];
        dims[0] = count;
        fewer.set_input(name, Value::decode(value.dtype, &dims, &bytes[..row * count]));
    }
    fewer
}

#[test]
fn the_rows_of_a_run_decide_and_those_of_few_have_the_same_bits() {
    let _alone = second_gpu();
    for (i, (device, ordinal)) in models().enumerate() {
        for dtype in [DType::F32, TYPES[1 + i % 2]] {
            let backend = fake(device, ordinal);
            let graph = layer("seq", dtype, [264, 40], i % 2 == 1);
            let (lir, divided) = module(&graph, &backend, &fast());
            assert!(divided.len() == 1 && divided[0].contains("few rows by gemv1x"), "{divided:?}");
            let (lir_strict, _) = module(&graph, &backend, &strict());
            let mut exec = backend.compile(Arc::clone(&lir), &fast()).unwrap();
            let mut whole = backend.compile(lir_strict, &strict()).unwrap();
            let four = rows(&graph, 4);
            let mut of_four = None;
            for count in [4, 1, 7, 2, 3, 50, 1] {
                let what = format!("{device} {ordinal} {dtype}: {count}");
                let few = count <= 4;
                let bindings = if few { fewer(&four, count) } else { rows(&graph, count) };
                check(&graph, &bindings, &mut *exec, &what);
                let got = run(&mut *exec, &bindings).unwrap();
                if few {
                    let all = of_four.get_or_insert_with(|| got.clone());
                    assert!(got == first_rows(all, count, 4), "{what}: other bits beside other rows");
                } else {
                    set_params(&mut *whole, &bindings).unwrap();
                    assert!(
                        got == run(&mut *whole, &bindings).unwrap(),
                        "{what}: many rows have their usual bits"
                    );
                }
            }
            let calls = [1, 50].map(|count| calls_of_first_run(&lir, &rows(&graph, count), &backend));
            // A tile program may need more than its dispatch.
            assert!(calls[0] <= calls[1], "one dispatch");
        }
    }
}

#[test]
fn random_layers_of_few_rows_agree_with_the_oracle() {
    let _alone = second_gpu();
    for (device, ordinal) in models() {
        let backend = fake(device, ordinal);
        for seed in 0..if everything() { 60 } else { 8 } {
            let mut g = Gen::new(seed + 1000 * ordinal as u64);
            let size = |g: &mut Gen, most: usize| {
                if g.chance(0.5) { 8 * g.size(1..=most / 8) } else { g.size(1..=most) }
            };
            let sizes = [128 + size(&mut g, 600), size(&mut g, 140)];
            let dtype = TYPES[g.size(0..=2)];
            let count = g.size(1..=4);
            let open = g.chance(0.3);
            let graph =
                layer(&if open { "seq".into() } else { count.to_string() }, dtype, sizes, g.chance(0.5));
            let (lir, divided) = module(&graph, &backend, &fast());
            assert!(divided[0].contains("gemv"), "{divided:?}");
            let mut exec = backend.compile(lir, &fast()).unwrap();
            check(&graph, &rows(&graph, count), &mut *exec, &format!("{device} {ordinal} seed {seed}"));
        }
    }
}

/// A residual that no one reads later is written over.
#[test]
fn a_matmul_of_few_rows_may_write_over_its_residual() {
    let _alone = second_gpu();
    for (dtype, (device, ordinal)) in TYPES.into_iter().zip(models()) {
        let text = format!(
            "graph \"g\" {{ %0 = Input {{name=\"x\"}} : [2, 300] {dtype} %1 = Param {{name=\"v\"}} : [300, 72] {dtype} \
             %2 = Param {{name=\"w\"}} : [300, 72] {dtype} %3 = MatMul(%0, %1) : [2, 72] {dtype} \
             %4 = Activation.Relu(%3) : [2, 72] {dtype} %5 = MatMul(%0, %2) : [2, 72] {dtype} \
             %6 = Binary.Add(%5, %4) : [2, 72] {dtype} return %6 }}"
        );
        let (graph, backend) = (text::parse(&text).unwrap(), fake(device, ordinal));
        let (lir, divided) = module(&graph, &backend, &fast());
        assert!(divided.len() == 2 && divided.iter().all(|name| name.starts_with("gemv")), "{divided:?}");
        assert_eq!(lir.steps[1].in_place().count(), 1, "{lir}");
        let mut exec = backend.compile(lir, &fast()).unwrap();
        let bindings = rows(&graph, 2);
        check(&graph, &bindings, &mut *exec, &format!("{device} {ordinal}"));
        assert_eq!(disagreement(&graph, &bindings, &mut *exec), None);
    }
}
