//! Variants of other bits, on the fake driver's GPUs: which there are, under which numerics, and that those of one class give the same bits, and those of another are
//! about as near to the oracle.

use std::collections::BTreeMap;
use std::sync::Arc;

use rlx_backend::testing::run;
use rlx_backend::tuning::{Tuning, TuningKey};
use rlx_backend::{Backend, CompileCache};
use rlx_driver::Device;
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::Gen;
use rlx_ir::{DType, Graph, LirModule, Value};
use rlx_opt::CompileOptions;
use rlx_simt::SimtBackend;

use crate::blas::parsed;
use crate::common::{Fake, everything, fake, fake_with_blas, second_gpu, set_params};
use crate::parts::{MODELS, check, fast, module, strict};
use crate::written::layer;

/// What a variant of another class may be off, times the error of the usual one.
const MOST: f64 = 2.0;

/// The step's results by each of its variants, by class; the usual class has no name.
type ByClass = BTreeMap<Option<String>, Vec<Vec<Vec<u8>>>>;

/// By these variants, of which there is one of each class at least.
fn by_class(
    lir: &Arc<LirModule>,
    (key, variants): (&TuningKey, &[usize]),
    (backend, options): (&SimtBackend, &CompileOptions),
    (graph, bindings): (&Graph, &Bindings),
) -> ByClass {
    let mut found = ByClass::new();
    for &variant in variants {
        let mut tuning = Tuning::default();
        tuning.choose(key, variant);
        let class = tuning.other_classes().next().map(|(_, class)| class.name().to_owned());
        assert_eq!(class.is_none(), key.has_usual_bits(variant), "{key:?}");
        let cache = CompileCache { tuning, ..CompileCache::default() };
        let mut exec = backend.compile_cached(Arc::clone(lir), options, &cache).unwrap();
        check(graph, bindings, &mut *exec, &key.variants[variant]);
        found.entry(class).or_default().push(run(&mut *exec, bindings).unwrap());
    }
    for (class, results) in &found {
        assert!(results.iter().all(|of| *of == results[0]), "{class:?} of {key:?}");
    }
    found
}

/// The largest distance from the exact results, where sums are not rounded to the type of the result; at least what rounding to that gives.
fn error(exact: &[f64], bytes: &[u8], dtype: DType) -> f64 {
    let found = Value::decode(dtype, &[exact.len()], bytes).to_f64();
    let largest = exact.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    let off = exact.iter().zip(found).fold(0.0, |most: f64, (a, b)| most.max((a - b).abs()));
    off.max(largest * (-if dtype == DType::F16 { 11.0 } else { 24.0f64 }).exp2())
}

fn inputs(graph: &Graph) -> Bindings {
    rlx_ir::testing::random_bindings(graph, &rlx_ir::DimBinding::new(), 7)
}

#[test]
fn a_divided_sum_may_have_other_numbers_of_parts_under_fast_numerics() {
    let _alone = second_gpu();
    let graph = layer("5", 1200, 72);
    let bindings = inputs(&graph);
    for (device, ordinal) in MODELS {
        let backend = fake(device, ordinal);
        let (lir, schedules) = module(&graph, &backend, &fast());
        let key = |options| backend.tuning_key(&lir, &lir.steps[0], &options).unwrap().expect("several");
        let (of_fast, of_strict) = (key(fast()), key(strict()));
        assert!(
            (0..of_strict.variants.len()).all(|variant| of_strict.has_usual_bits(variant)),
            "{of_strict:?}"
        );
        // What was chosen by one is not taken by the other.
        assert_ne!(of_fast.what, of_strict.what);
        let variants: Vec<usize> = (0..of_fast.variants.len()).collect();
        let all = by_class(&lir, (&of_fast, &variants), (&backend, &fast()), (&graph, &bindings));
        let parts = |name: &str| name.rsplit_once(".parts").and_then(|(_, n)| n.parse::<u32>().ok());
        let usual = parts(&schedules[0]).expect("it is divided");
        let others: Vec<Option<u32>> = all.keys().flatten().map(|name| parts(name)).collect();
        assert!(others.contains(&None) && others.iter().flatten().any(|&n| n < usual), "{of_fast:?}");
        assert!(all[&None].len() > 1 && !others.contains(&Some(usual)), "{of_fast:?}");
    }
}

/// No class has more than twice the error of another, on sums that are not rounded to 16 bits at the end.
#[test]
fn classes_are_about_as_near_to_the_oracle() {
    let _alone = second_gpu();
    let mut compared = 0;
    for (device, ordinal) in MODELS {
        let backend = fake(device, ordinal);
        for seed in 0..if everything() { 40 } else { 1 } {
            let mut g = Gen::new(seed + 100 * ordinal as u64);
            let (m, k, n) = (g.size(5..=16), 8 * g.size(60..=200), g.size(16..=90));
            let graph = parsed(&format!(
                "%0 = Input {{name=\"x\"}} : [{m}, {k}] f16 %1 = Param {{name=\"w\"}} : [{k}, {n}] f16 \
                 %2 = MatMul(%0, %1) : [{m}, {n}] f16 return %2"
            ));
            let bindings = inputs(&graph);
            let (lir, _) = module(&graph, &backend, &fast());
            let Some(key) = backend.tuning_key(&lir, &lir.steps[0], &fast()).unwrap() else { continue };
            let others = (1..key.variants.len()).filter(|&variant| !key.has_usual_bits(variant));
            let one_of_each: Vec<usize> = [0].into_iter().chain(others).collect();
            let all = by_class(&lir, (&key, &one_of_each), (&backend, &fast()), (&graph, &bindings));
            let exact = oracle::evaluate(&graph, &bindings).unwrap()[0].to_f64();
            let of = |class: &Option<String>| error(&exact, &all[class][0][0], DType::F16);
            for class in all.keys().filter(|class| class.is_some()) {
                let (usual, other) = (of(&None), of(class));
                assert!(other <= MOST * usual, "{class:?} {other:e}, usual {usual:e}: {m} x {k} x {n}");
                compared += 1;
            }
        }
    }
    assert!(compared >= MODELS.len(), "{compared} classes");
}

/// Where the vendor's library does a matmul, or a kernel for few rows, the device's own programs are variants of another class, and chosen ones do the step.
#[test]
fn own_programs_may_do_what_the_library_does() {
    let _alone = second_gpu();
    for device in [Device::Cuda, Device::Rocm] {
        for dtype in ["f16", "f32"] {
            let backend = fake_with_blas(device, 0);
            let graph = parsed(&format!(
                "%0 = Input {{name=\"x\"}} : [24, 48] {dtype} %1 = Param {{name=\"w\"}} : [48, 40] {dtype} \
                 %2 = MatMul(%0, %1) : [24, 40] {dtype} return %2"
            ));
            let bindings = inputs(&graph);
            let (lir, _) = module(&graph, &backend, &fast());
            let key = backend.tuning_key(&lir, &lir.steps[0], &fast()).unwrap().expect("several");
            assert!(!key.variants[0].contains('@') && key.variants[0].contains("BLAS"), "{key:?}");
            assert!(key.variants.len() > 1 && !key.has_usual_bits(1), "{key:?}");
            let strict = backend.tuning_key(&lir, &lir.steps[0], &strict()).unwrap();
            assert!(strict.is_none_or(|key| !key.variants[0].contains("BLAS")));
            let calls = |variant: usize| {
                let mut tuning = Tuning::default();
                tuning.choose(&key, variant);
                let cache = CompileCache { tuning, ..CompileCache::default() };
                let mut exec = backend.compile_cached(Arc::clone(&lir), &fast(), &cache).unwrap();
                let code = exec.code().unwrap();
                let before = Fake::get().blas_calls();
                check(&graph, &bindings, &mut *exec, &key.variants[variant]);
                let own = Fake::get().blas_calls() - before;
                // What was chosen is in what an executable leaves.
                let cache = CompileCache { code, ..CompileCache::default() };
                let mut again = backend.compile_cached(Arc::clone(&lir), &fast(), &cache).unwrap();
                set_params(&mut *again, &bindings).unwrap();
                assert!(run(&mut *again, &bindings).unwrap() == run(&mut *exec, &bindings).unwrap());
                own
            };
            assert!(calls(0) > 0);
            let others = if everything() { 1..key.variants.len() } else { 1..2 };
            others.for_each(|variant| assert_eq!(calls(variant), 0, "{key:?}"));
        }
    }
}
