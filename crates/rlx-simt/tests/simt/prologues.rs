//! Matmuls on matrix units whose operands are computed as tiles are copied, on the fake driver's GPUs of every architecture: weights in blocks, whose depth
//! is divided among workgroups under fast numerics, and elementwise ops where they pay.

use std::sync::Arc;

use rlx_backend::Backend;
use rlx_backend::testing::disagreement;
use rlx_driver::Device;
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::random_bindings;
use rlx_ir::{DimBinding, Graph, LirModule, OpKind, sym};
use rlx_opt::{CompileOptions, CompilePipeline, Numerics};
use rlx_simt::SimtBackend;

use crate::common::{Fake, fake, second_gpu, set_params};
use crate::written::{blocks, gated};

/// The fake GPUs with matrix units, one of each architecture. (What has none has calls without the runtime, and is left to them.)
const UNITS: [(Device, usize); 5] =
    [(Device::Cuda, 1), (Device::Cuda, 2), (Device::Rocm, 0), (Device::Rocm, 1), (Device::Rocm, 2)];

fn options(numerics: Numerics) -> CompileOptions {
    CompileOptions::default().numerics(numerics)
}

/// A module and the schedules of its steps.
fn module(graph: &Graph, backend: &SimtBackend, numerics: Numerics) -> (Arc<LirModule>, Vec<String>) {
    let target = backend.target(&options(numerics)).unwrap();
    let pipeline = CompilePipeline::new(Arc::clone(&target), options(numerics));
    let lir = pipeline.compile(graph).unwrap_or_else(|e| panic!("{e}\n{graph}")).lir;
    let found = lir.steps.iter().filter_map(|step| target.schedule(step, &lir)).collect();
    (Arc::new(lir), found)
}

fn rows(graph: &Graph, count: usize) -> Bindings {
    random_bindings(graph, &DimBinding::from_pairs(&[(sym::SEQ, count)]), 7)
}

/// Runs a module on these numbers of rows and compares with the oracle; how many tile programs each took.
fn tile_runs(graph: &Graph, backend: &SimtBackend, numerics: Numerics, counts: &[usize]) -> Vec<u64> {
    let (lir, _) = module(graph, backend, numerics);
    let mut exec = backend.compile(lir, &options(numerics)).unwrap_or_else(|e| panic!("{e}\n{graph}"));
    let run = |&count: &usize| {
        let bindings = rows(graph, count);
        set_params(&mut *exec, &bindings).unwrap();
        let before = Fake::get().tile_runs();
        if let Some(why) = disagreement(graph, &bindings, &mut *exec) {
            panic!("{} {count} rows: {why}\n{graph}", backend.name());
        }
        Fake::get().tile_runs() - before
    };
    counts.iter().map(run).collect()
}

fn dequantizes(lir: &LirModule) -> bool {
    let mut kinds = lir.init.iter().map(|step| lir.graph.node(step.node).op.kind());
    kinds.any(|kind| kind == OpKind::Dequantize || kind == OpKind::Region)
}

#[test]
fn weights_in_blocks_stay_what_they_are_and_are_multiplied_by_tiles() {
    let _alone = second_gpu();
    for (device, ordinal) in UNITS {
        let backend = fake(device, ordinal);
        for (dtype, size) in [("u4", 32), ("i8", 16)] {
            let graph = blocks("seq", 72, 96, size, dtype);
            let (lir, found) = module(&graph, &backend, Numerics::Strict);
            assert_eq!(found.len(), 1, "{device} {ordinal}: {found:?}");
            assert!(found[0].starts_with("tiles."), "{device} {ordinal}: {found:?}");
            assert!(!dequantizes(&lir), "{lir}");
            let runs = tile_runs(&graph, &backend, Numerics::Strict, &[1, 40]);
            assert_eq!(runs, [1; 2], "{device} {ordinal}");
        }
    }
}

#[test]
fn small_results_by_blocks_are_divided_under_fast_numerics() {
    let _alone = second_gpu();
    // Blocks of 96 have parts of 576; one block has all of the depth, or several have parts.
    for (dtype, block, k) in [("u4", 32, 1152), ("u4", 96, 1152), ("i8", 1088, 1088)] {
        let graph = blocks("seq", 72, k, block, dtype);
        for (device, ordinal) in UNITS {
            let backend = fake(device, ordinal);
            let (lir, found) = module(&graph, &backend, Numerics::Fast);
            let what = format!("{device} {ordinal} blocks of {block}: {found:?}");
            assert!(found.len() == 1 && found[0].starts_with("tiles."), "{what}");
            assert!(found[0].ends_with(", small results in parts") && !dequantizes(&lir), "{what}");
            assert_eq!(tile_runs(&graph, &backend, Numerics::Fast, &[140, 1, 16, 17, 1]), [1; 5], "{what}");

            let (_, few) = module(&blocks("3", 72, k, block, dtype), &backend, Numerics::Fast);
            assert!(few[0].starts_with("tiles.") && few[0].contains(".parts"), "{few:?}");
            let (_, strict) = module(&graph, &backend, Numerics::Strict);
            assert!(strict[0].starts_with("tiles.") && !strict[0].contains("parts"), "{strict:?}");
        }
    }
}

/// Blocks that no chunk of a tile has whole are dequantised once, for an ordinary matmul.
#[test]
fn blocks_that_tiles_do_not_unpack_are_dequantised_first() {
    let _alone = second_gpu();
    let graph = blocks("seq", 40, 60, 12, "u8");
    let backend = fake(Device::Cuda, 1);
    let (lir, found) = module(&graph, &backend, Numerics::Strict);
    assert!(found.len() == 1 && found[0].starts_with("tiles."), "{found:?}");
    assert!(dequantizes(&lir), "{lir}");
    assert_eq!(tile_runs(&graph, &backend, Numerics::Strict, &[20]), [1]);
}

#[test]
fn what_makes_an_operand_is_part_of_the_matmul_where_it_pays() {
    let _alone = second_gpu();
    for (device, ordinal) in UNITS {
        let backend = fake(device, ordinal);
        for numerics in [Numerics::Strict, Numerics::Fast] {
            let steps = |graph: &Graph| module(graph, &backend, numerics).1;
            // Some rows, whose long sums are divided under fast numerics; and few columns of a tile that is read once.
            let (some, narrow) = (gated("5", 1200, 72), gated("70", 96, 40));
            for graph in [&some, &narrow] {
                let found = steps(graph);
                assert!(found.len() == 1 && found[0].starts_with("tiles."), "{device} {ordinal}: {found:?}");
                assert_eq!(tile_runs(graph, &backend, numerics, &[1]), [1], "{device} {ordinal}");
            }
            assert_eq!(steps(&some)[0].contains(".parts"), numerics == Numerics::Fast);
            // A decoder's row, whose sums workgroups divide.
            let one = gated("1", 1200, 72);
            assert_eq!(steps(&one)[0].starts_with("gemv"), numerics == Numerics::Fast);
            assert_eq!(tile_runs(&one, &backend, numerics, &[1]), [u64::from(numerics == Numerics::Strict)]);
            // Many columns would compute it again and again.
            assert_eq!(steps(&gated("4096", 11_008, 4096)).len(), 2);
            assert_eq!(steps(&gated("seq", 11_008, 4096)).len(), 2);
        }
    }
}
