//! Matmuls by the vendor's library, on the fake one: right in every layout, under `Fast` alone, one kernel less where there is no
//! algorithm, and every fault of a call typed.

use std::path::PathBuf;
use std::sync::Arc;

use rlx_backend::testing::{disagreement, run};
use rlx_backend::{Backend, ExecutableGraph};
use rlx_driver::Device;
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::random_bindings;
use rlx_ir::{DType, DimBinding, ErrorKind, Graph, sym, text};
use rlx_opt::{CompileOptions, CompilePipeline, Numerics};
use rlx_simt::{Options, SimtBackend};
use rlx_testdata::fake_driver::{DRIVERS, link};

use crate::common::{DEVICES, Fake, fake_folder, fake_with_blas, second_gpu, set_params, with_memory};

/// The fake GPUs with the library.
pub fn fakes() -> impl Iterator<Item = SimtBackend> {
    DEVICES.into_iter().map(|device| fake_with_blas(device, 0))
}

pub fn parsed(body: &str) -> Graph {
    text::parse(&format!("graph \"g\" {{ {body} }}")).unwrap_or_else(|e| panic!("{e}\n{body}"))
}

pub fn compiled(
    graph: &Graph,
    backend: &SimtBackend,
    numerics: Numerics,
) -> rlx_ir::Result<Box<dyn ExecutableGraph>> {
    let options = CompileOptions::default().numerics(numerics);
    let lir = CompilePipeline::new(backend.target(&options)?, options.clone()).compile(graph)?.lir;
    backend.compile(Arc::new(lir), &options)
}

/// Runs three times, the second and third as a graph; says how many calls of the library that took.
pub fn agrees(graph: &Graph, bindings: &Bindings, backend: &SimtBackend, numerics: Numerics) -> u64 {
    let before = Fake::get().blas_calls();
    let mut exec = compiled(graph, backend, numerics).unwrap_or_else(|e| panic!("{e}\n{graph}"));
    set_params(&mut *exec, bindings).unwrap();
    for round in 0..3 {
        if let Some(why) = disagreement(graph, bindings, &mut *exec) {
            panic!("{} run {round}: {why}\n{graph}", backend.name());
        }
    }
    drop(exec);
    Fake::get().blas_calls() - before
}

/// Matmuls of many layouts, and whether the library does them.
const LAYOUTS: [(&str, &str, bool); 12] = [
    (
        "rows by rows",
        r#"%0 = Input {name="x"} : [24, 48] T
           %1 = Param {name="w"} : [48, 40] T
           %2 = MatMul(%0, %1) : [24, 40] T return %2"#,
        true,
    ),
    (
        "both operands transposed",
        r#"%0 = Input {name="x"} : [48, 24] T
           %1 = Param {name="w"} : [40, 48] T
           %2 = Transpose(%0) {perm=[1, 0]} : [24, 48] T
           %3 = Transpose(%1) {perm=[1, 0]} : [48, 40] T
           %4 = MatMul(%2, %3) : [24, 40] T return %4"#,
        true,
    ),
    (
        "a batch that becomes rows",
        r#"%0 = Input {name="x"} : [2, 3, 8, 48] T
           %1 = Param {name="w"} : [48, 40] T
           %2 = MatMul(%0, %1) : [2, 3, 8, 40] T return %2"#,
        true,
    ),
    (
        "a batch with one stride",
        r#"%0 = Input {name="x"} : [2, 3, 24, 48] T
           %1 = Input {name="y"} : [2, 3, 48, 40] T
           %2 = MatMul(%0, %1) : [2, 3, 24, 40] T return %2"#,
        true,
    ),
    (
        "one left matrix for all",
        r#"%0 = Input {name="x"} : [24, 48] T
           %1 = Input {name="y"} : [3, 48, 40] T
           %2 = MatMul(%0, %1) : [3, 24, 40] T return %2"#,
        true,
    ),
    (
        "heads inside of rows: one call for each item",
        r#"%0 = Input {name="x"} : [2, 24, 3, 32] T
           %1 = Input {name="y"} : [2, 24, 3, 32] T
           %2 = Transpose(%0) {perm=[0, 2, 1, 3]} : [2, 3, 24, 32] T
           %3 = Transpose(%1) {perm=[0, 2, 3, 1]} : [2, 3, 32, 24] T
           %4 = MatMul(%2, %3) : [2, 3, 24, 24] T return %4"#,
        true,
    ),
    (
        "a slice of the columns",
        r#"%0 = Input {name="x"} : [24, 96] T
           %1 = Param {name="w"} : [48, 40] T
           %2 = Slice(%0) {starts=[0, 48], steps=[1, 1], to=[24, 48]} : [24, 48] T
           %3 = MatMul(%2, %1) : [24, 40] T return %3"#,
        true,
    ),
    (
        "one row of each of many",
        r#"%0 = Input {name="x"} : [24, 1, 48] T
           %1 = Param {name="w"} : [48, 40] T
           %2 = MatMul(%0, %1) : [24, 1, 40] T return %2"#,
        true,
    ),
    (
        "one row by a matrix of its own",
        r#"%0 = Input {name="x"} : [24, 1, 48] T
           %1 = Input {name="y"} : [24, 48, 40] T
           %2 = MatMul(%0, %1) : [24, 1, 40] T return %2"#,
        false,
    ),
    (
        "little depth",
        r#"%0 = Input {name="x"} : [24, 8] T
           %1 = Param {name="w"} : [8, 40] T
           %2 = MatMul(%0, %1) : [24, 40] T return %2"#,
        false,
    ),
    (
        "few rows",
        r#"%0 = Input {name="x"} : [2, 48] T
           %1 = Param {name="w"} : [48, 40] T
           %2 = MatMul(%0, %1) : [2, 40] T return %2"#,
        false,
    ),
    (
        "a vector",
        r#"%0 = Input {name="x"} : [48] T
           %1 = Param {name="w"} : [48, 40] T
           %2 = MatMul(%0, %1) : [40] T return %2"#,
        false,
    ),
];

#[test]
fn every_layout_is_right_and_what_pays_goes_to_the_library() {
    for backend in fakes() {
        for (name, body, pays) in LAYOUTS {
            for dtype in ["f32", "f16", "bf16"] {
                let graph = parsed(&body.replace("] T", &format!("] {dtype}")));
                let bindings = random_bindings(&graph, &DimBinding::new(), 1);
                let calls = agrees(&graph, &bindings, &backend, Numerics::Fast);
                assert_eq!(calls > 0, pays, "{} {name} {dtype}: {calls} calls", backend.name());
            }
        }
    }
}

/// A matmul of open rows, a bias and a ReLU.
fn layer() -> Graph {
    parsed(
        r#"%0 = Input {name="x"} : [seq, 48] f32
           %1 = Param {name="w"} : [48, 40] f32
           %2 = Param {name="b"} : [40] f32
           %3 = MatMul(%0, %1) : [seq, 40] f32
           %4 = Binary.Add(%3, %2) : [seq, 40] f32
           %5 = Activation.Relu(%4) : [seq, 40] f32
           return %5"#,
    )
}

fn rows(of: &Graph, count: usize) -> Bindings {
    random_bindings(of, &DimBinding::from_pairs(&[(sym::SEQ, count)]), count as u64)
}

#[test]
fn exact_numerics_never_touch_the_library() {
    let graph = layer();
    for backend in fakes() {
        let fast = compiled(&graph, &backend, Numerics::Fast).unwrap();
        let bindings = rows(&graph, 24);
        assert_eq!(agrees(&graph, &bindings, &backend, Numerics::Strict), 0);
        assert!(agrees(&graph, &bindings, &backend, Numerics::Fast) > 0);
        // The module of the one is right under the other.
        let strict_of_fast =
            backend.compile(Arc::clone(fast.lir()), &CompileOptions::default().numerics(Numerics::Strict));
        let before = Fake::get().blas_calls();
        let mut exec = strict_of_fast.unwrap();
        set_params(&mut *exec, &bindings).unwrap();
        assert_eq!(disagreement(&graph, &bindings, &mut *exec), None);
        assert_eq!(Fake::get().blas_calls(), before);
    }
}

#[test]
fn descriptors_are_made_once_for_a_binding() {
    let graph = layer();
    for backend in fakes() {
        let mut exec = compiled(&graph, &backend, Numerics::Fast).unwrap();
        set_params(&mut *exec, &rows(&graph, 24)).unwrap();
        let mut calls = |count: usize| {
            let before = Fake::get().blas_calls();
            run(&mut *exec, &rows(&graph, count)).unwrap();
            Fake::get().blas_calls() - before
        };
        let first = calls(24);
        // The second run is recorded, later ones are the recording.
        assert!(first > 8, "{first}");
        assert_eq!([calls(24), calls(24), calls(24)], [1, 0, 0]);
        assert!(calls(56) > 8 && calls(56) == 1 && calls(56) == 0);
        // No rows: nothing to do, and nothing to describe; at most, what there was is destroyed.
        assert!(calls(0) <= 4);
    }
}

#[test]
fn where_there_is_no_algorithm_the_own_kernel_does_it() {
    let graph = parsed(
        r#"%0 = Input {name="x"} : [24, 33] f16
           %1 = Param {name="w"} : [33, 40] f16
           %2 = MatMul(%0, %1) : [24, 40] f16 return %2"#,
    );
    for backend in fakes() {
        let strict = compiled(&graph, &backend, Numerics::Strict).unwrap();
        let fast = compiled(&graph, &backend, Numerics::Fast).unwrap();
        let bindings = random_bindings(&graph, &DimBinding::new(), 3);
        assert!(agrees(&graph, &bindings, &backend, Numerics::Fast) > 0, "it was asked");
        let bits = [strict, fast].map(|mut exec| {
            set_params(&mut *exec, &bindings).unwrap();
            run(&mut *exec, &bindings).unwrap()
        });
        assert_eq!(bits[0], bits[1]);
    }
}

/// A folder with the fake driver and compiler alone.
fn without_library() -> PathBuf {
    let folder = fake_folder().with_file_name(format!("no-blas-{}", std::process::id()));
    let built = fake_folder().join(DRIVERS[0]).canonicalize().unwrap();
    link(&built, &folder, DRIVERS).unwrap();
    folder
}

#[test]
fn a_missing_library_is_told_and_own_kernels_go_on() {
    let folder = without_library();
    for (device, file) in
        [(Device::Cuda, "cuBLASLt (libcublasLt.so.13)"), (Device::Rocm, "hipBLASLt (libhipblaslt.so.1)")]
    {
        let options = Options { folders: vec![folder.clone()], ordinal: 0, blas: true };
        let backend = SimtBackend::new(device).with_options(options);
        let told = |backend: &SimtBackend, numerics| {
            let target = backend.target(&CompileOptions::default().numerics(numerics)).unwrap();
            target.matmul_instructions(DType::F32)
        };
        let library = fake_with_blas(device, 0);
        let name = file.split(' ').next().unwrap();
        assert_eq!(told(&library, Numerics::Fast).as_deref(), Some(name));
        assert_eq!(told(&library, Numerics::Strict), None);
        let said = told(&backend, Numerics::Fast).unwrap();
        if said == name {
            println!("@skip 1 the machine has {name}");
            continue;
        }
        assert!(said.starts_with("own kernels") && said.ends_with(&format!(": {file} is missing")), "{said}");
        let graph = layer();
        assert_eq!(agrees(&graph, &rows(&graph, 24), &backend, Numerics::Fast), 0);
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_limit_on_memory_limits_the_workspace() {
    let graph = layer();
    for backend in fakes() {
        let limited = with_memory(&backend, 1 << 20);
        assert!(agrees(&graph, &rows(&graph, 24), &limited, Numerics::Fast) > 0);
        // An eighth of it is the workspace's.
        let used = limited.memory_in_use().unwrap();
        assert!((1 << 17..1 << 20).contains(&used), "{used}");
    }
}

/// Compiles, runs three times (the second and third as a graph) and reads the output.
fn work(graph: &Graph, bindings: &Bindings, backend: &SimtBackend) -> rlx_ir::Result<Vec<Vec<u8>>> {
    let mut exec = compiled(graph, backend, Numerics::Fast)?;
    set_params(&mut *exec, bindings)?;
    run(&mut *exec, bindings)?;
    run(&mut *exec, bindings)?;
    run(&mut *exec, bindings)
}

/// Each call fails in turn with `code`; what is done after it is right.
fn each_call_fails(backend: &SimtBackend, code: i32) {
    let (fake, graph) = (Fake::get(), layer());
    let bindings = rows(&graph, 24);
    let work = || work(&graph, &bindings, backend);
    let want = work().unwrap();
    let before = fake.calls();
    assert_eq!(work().unwrap(), want);
    let (calls, mut of_library) = (fake.calls() - before, 0);
    for call in 1..=calls {
        fake.fail(call, code);
        match work() {
            // What frees has no one to report to.
            Ok(found) => assert_eq!(found, want, "call {call}"),
            Err(e) => {
                let named = e.to_string();
                let by_library = named.contains("blasLt");
                // Codes mean something else to the library, and to each vendor's.
                let memory = match (by_library, backend.name()) {
                    (false, _) => code == 2,
                    (true, "cuda") => code == 3,
                    (true, _) => code == 2,
                };
                let kind = if memory { ErrorKind::OutOfMemory } else { ErrorKind::Device };
                assert_eq!((e.kind(), e.device().is_some()), (kind, true), "call {call}: {e}");
                assert!(named.contains("cu") || named.contains("hip"), "call {call}: {e}");
                of_library += u32::from(by_library);
            }
        }
        fake.fail(0, 0);
        assert_eq!(work().unwrap(), want, "after call {call}");
    }
    // Descriptors, attributes, the preference, the heuristic, the matmul itself and its recording.
    assert!(of_library >= 9, "{of_library} faults of the library were reported, of {calls} calls");
}

#[test]
fn each_call_fails_in_turn() {
    for backend in fakes() {
        for code in [2, 3] {
            each_call_fails(&backend, code);
        }
    }
}

#[test]
fn a_device_lost_at_each_call_is_opened_again() {
    let _alone = second_gpu();
    for device in DEVICES {
        each_call_fails(&fake_with_blas(device, 1), 700);
    }
}
