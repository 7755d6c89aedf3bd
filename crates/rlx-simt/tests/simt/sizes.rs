//! Kernels with constant sizes, on the fake driver's GPUs: taken where a tuning says so, with the bits of those that have them as uniforms, stored with what
//! was made, and of no use to a step of other sizes.

use std::sync::Arc;

use rlx_backend::testing::run;
use rlx_backend::tuning::{Tuning, TuningKey};
use rlx_backend::{Backend, CompileCache};
use rlx_driver::Device;
use rlx_ir::op::BinaryOp;
use rlx_ir::testing::random_bindings;
use rlx_ir::{DType, DimBinding, Graph, LirModule, Op, Shape};
use rlx_simt::SimtBackend;

use crate::blas::parsed;
use crate::common::{everything, fake, second_gpu};
use crate::parts::{check, strict};
use crate::tiles::module;

const SIZES: &str = ".sizes";

/// A product, what is moved and added, and rows along the first axis: on GPUs without matrix units all by kernels.
fn graphs(rows: usize) -> Vec<Graph> {
    let product = parsed(&format!(
        "%0 = Input {{name=\"x\"}} : [{rows}, 24] f32 %1 = Param {{name=\"w\"}} : [24, 17] f32 \
         %2 = MatMul(%0, %1) : [{rows}, 17] f32 return %2"
    ));
    let mut moved = Graph::new("moved");
    let x = moved.input("x", Shape::new(&[3, rows, 70], DType::F16));
    let y = moved.try_add(Op::Transpose { perm: vec![1, 2, 0] }, &[x]).unwrap();
    let z = moved.input("z", Shape::new(&[3], DType::F16));
    let z = moved.try_add(Op::Binary(BinaryOp::Add), &[y, z]).unwrap();
    moved.set_outputs(vec![z]);
    let mut columns = Graph::new("columns");
    let x = columns.input("x", Shape::new(&[rows, 90], DType::F32));
    let y = columns.try_add(Op::Softmax { axis: 0 }, &[x]).unwrap();
    columns.set_outputs(vec![y]);
    vec![product, moved, columns]
}

fn key(lir: &LirModule, backend: &SimtBackend) -> TuningKey {
    let mut keys = lir.steps.iter().filter_map(|step| backend.tuning_key(lir, step, &strict()).unwrap());
    keys.next_back().expect("a step with several variants")
}

/// By what a tuning says, and what else is found.
fn results(
    (graph, lir): (&Graph, &Arc<LirModule>),
    backend: &SimtBackend,
    cache: &CompileCache,
    what: &str,
) -> (Vec<Vec<u8>>, Vec<rlx_backend::CodePart>) {
    let bindings = random_bindings(graph, &DimBinding::new(), 3);
    let mut exec = backend.compile_cached(Arc::clone(lir), &strict(), cache).unwrap();
    check(graph, &bindings, &mut *exec, what);
    (run(&mut *exec, &bindings).unwrap(), exec.code().unwrap())
}

#[test]
fn sizes_are_constants_where_tuned() {
    let _alone = second_gpu();
    for device in [Device::Cuda, Device::Rocm] {
        let backend = fake(device, 3);
        let some = if everything() || device == Device::Cuda { 3 } else { 1 };
        for (at, graph) in graphs(40).iter().enumerate().take(some) {
            let lir = module(graph, &backend, &strict());
            let key = key(&lir, &backend);
            let sizes =
                key.variants.iter().position(|name| name.ends_with(SIZES)).expect("one with constant sizes");
            assert!(
                sizes > 0 && (0..key.variants.len()).all(|variant| key.has_usual_bits(variant)),
                "{key:?}"
            );
            let (usual, usual_code) =
                results((graph, &lir), &backend, &CompileCache::default(), &key.variants[0]);
            let mut tuning = Tuning::default();
            tuning.choose(&key, sizes);
            // What is stored of a tuning names it.
            let tuning = Tuning::parse(&tuning.to_string()).unwrap();
            assert_eq!(tuning.variant(&key), sizes);
            let tuned = CompileCache { tuning: tuning.clone(), ..CompileCache::default() };
            let (found, code) = results((graph, &lir), &backend, &tuned, &key.variants[sizes]);
            assert!(found == usual, "{}", key.variants[sizes]);
            assert_ne!(code, usual_code, "another kernel");
            let stored = CompileCache { code: code.clone(), tuning };
            let (found, again) = results((graph, &lir), &backend, &stored, "what was stored");
            assert!(found == usual && again == code);
            if at > 0 && !everything() {
                continue;
            }
            // Of other sizes it is another step, for which nothing was chosen, and whose module the stored kernels are not of.
            let other = &graphs(41)[at];
            let lir = module(other, &backend, &strict());
            let (_, usual_code) = results((other, &lir), &backend, &CompileCache::default(), "other sizes");
            for cache in [tuned, stored] {
                let (_, code) = results((other, &lir), &backend, &cache, "what was tuned for other sizes");
                assert_eq!(code, usual_code);
            }
        }
    }
}
