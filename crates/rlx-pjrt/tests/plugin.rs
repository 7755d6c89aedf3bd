//! The client on a plugin that checks every call, and has programs run by `jaxlib`: `RLX_TEST_PJRT_PYTHON` names an interpreter that
//! has it. Without one, programs cannot be compiled, and what is before that is tested alone.

use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use libloading::Library;
use rlx_backend::Backend;
use rlx_backend::testing::{self, compile, disagreement, set_params};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{random_donating_graph, random_graph, random_symbolic_graph};
use rlx_ir::{DType, DimBinding, ErrorKind, Graph, GraphExt, Op, Shape, Value};
use rlx_onnx::{ImportOptions, OnnxFile, import};
use rlx_pjrt::PjrtBackend;
use rlx_testdata::models::model;

fn file() -> PathBuf {
    let program = std::env::current_exe().expect("a test knows its program");
    let built = program.with_file_name("librlx_fake_pjrt.so");
    assert!(built.exists(), "cargo builds {} with these tests", built.display());
    built
}

/// The plugin for one test at a time: failures are counted by call.
fn plugin() -> (PjrtBackend, Fake, MutexGuard<'static, ()>) {
    static TAKEN: Mutex<()> = Mutex::new(());
    static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
        // SAFETY: our own library; it runs nothing at loading.
        unsafe { Library::new(file()) }.expect("the plugin loads")
    });
    let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    (PjrtBackend::new().with_plugin(file()), Fake(&LIBRARY), taken)
}

/// The plugin's own functions.
struct Fake(&'static Library);

impl Fake {
    fn fail(&self, after: u64, code: i32) {
        // SAFETY: the library declares it so.
        let fail =
            unsafe { self.0.get::<extern "C" fn(u64, i32)>(b"rlx_fake_pjrt_fail") }.expect("a function");
        fail(after, code);
    }

    fn number(&self, name: &[u8]) -> u64 {
        // SAFETY: the library declares it so.
        let number = unsafe { self.0.get::<extern "C" fn() -> u64>(name) }.expect("a function");
        number()
    }
}

fn has_worker() -> bool {
    let named = std::env::var_os("RLX_TEST_PJRT_PYTHON").is_some();
    if !named {
        println!("@skip 1 RLX_TEST_PJRT_PYTHON names no interpreter with jaxlib: run suite pjrt");
    }
    named
}

fn everything() -> bool {
    std::env::var("RLX_TEST_ALL").is_ok_and(|v| v == "1")
}

#[test]
fn the_device_is_opened_and_says_what_it_is() {
    let (backend, fake, _taken) = plugin();
    let before = fake.number(b"rlx_fake_pjrt_left");
    assert!(backend.machine().unwrap().starts_with("fake XLA on the CPU"), "{}", backend.machine().unwrap());
    if std::env::var_os("RLX_TEST_PJRT_PYTHON").is_none() {
        let e = backend.probe().unwrap_err();
        assert!(e.kind() == ErrorKind::Unsupported && e.message().contains("RLX_TEST_PJRT_PYTHON"), "{e}");
    } else {
        backend.probe().unwrap();
    }
    assert_eq!(fake.number(b"rlx_fake_pjrt_left"), before);
}

#[test]
fn random_graphs_agree_with_the_oracle() {
    if !has_worker() {
        return;
    }
    let (backend, fake, _taken) = plugin();
    let before = fake.number(b"rlx_fake_pjrt_left");
    for seed in 0..if everything() { 90 } else { 15 } {
        let (graph, many) = if seed % 3 == 0 {
            random_symbolic_graph(seed, 8)
        } else {
            let make = if seed % 3 == 1 { random_donating_graph } else { random_graph };
            let (graph, bindings) = make(seed, 8);
            (graph, vec![bindings])
        };
        let mut exec = match compile(&graph, &backend) {
            Ok(exec) => exec,
            Err(e) if e.kind() == ErrorKind::Unsupported => continue,
            Err(e) => panic!("seed {seed}: {e}\n{graph}"),
        };
        for bindings in &many {
            set_params(&mut *exec, bindings).unwrap();
            for _ in 0..2 {
                if let Some(what) = disagreement(&graph, bindings, &mut *exec) {
                    panic!("seed {seed}: {what}\n{graph}");
                }
            }
        }
    }
    assert_eq!(fake.number(b"rlx_fake_pjrt_left"), before, "everything is freed");
}

/// A cache of four rows that each run extends.
fn cache() -> (Graph, Bindings) {
    let mut g = Graph::new("cache");
    let cache = g.input("cache", Shape::new(&[4, 2], DType::F32));
    let (row, at) =
        (g.input("row", Shape::new(&[1, 2], DType::F32)), g.input("at", Shape::new(&[], DType::I64)));
    let next = g.try_add(Op::UpdateSlice { axis: 0 }, &[cache, row, at]).unwrap();
    let twice = g.add(row, row);
    g.set_outputs(vec![next, twice]);
    g.donate("cache", 0).unwrap();
    let mut bindings = Bindings::default();
    bindings.set_input("cache", Value::float(DType::F32, &[4, 2], vec![0.0; 8]));
    bindings.set_input("row", Value::float(DType::F32, &[1, 2], vec![1.0, 2.0]));
    bindings.set_input("at", Value::int(DType::I64, &[], vec![2]));
    (g, bindings)
}

#[test]
fn an_index_out_of_range_is_an_error_that_names_the_node() {
    if !has_worker() {
        return;
    }
    let (backend, _, _taken) = plugin();
    let (graph, mut bindings) = cache();
    let mut exec = compile(&graph, &backend).unwrap();
    assert_eq!(disagreement(&graph, &bindings, &mut *exec), None);
    bindings.set_input("at", Value::int(DType::I64, &[], vec![9]));
    let e = testing::run(&mut *exec, &bindings).unwrap_err();
    assert!(e.kind() == ErrorKind::Value && e.message().contains("index 9"), "{e}");
    assert!(e.node().is_some_and(|node| node.contains("UpdateSlice")), "{e}");
}

#[test]
fn each_call_failing_in_turn_is_a_typed_error_and_nothing_stays() {
    if !has_worker() {
        return;
    }
    let (backend, fake, _taken) = plugin();
    let (graph, bindings) = cache();
    let run = || -> rlx_ir::Result<()> {
        let mut exec = compile(&graph, &backend)?;
        testing::run(&mut *exec, &bindings)?;
        Ok(())
    };
    run().unwrap();
    let before_all = fake.number(b"rlx_fake_pjrt_left");
    let before = fake.number(b"rlx_fake_pjrt_calls");
    run().unwrap();
    let calls = fake.number(b"rlx_fake_pjrt_calls") - before;
    assert!(calls > 10, "{calls}");
    let mut failed = 0;
    for (at, code) in (0..calls).flat_map(|at| [(at, 13), (at, 8)]) {
        fake.fail(at, code);
        if let Err(e) = run() {
            let kind = if code == 8 { ErrorKind::OutOfMemory } else { ErrorKind::Device };
            assert_eq!((e.kind(), e.device()), (kind, Some("TPU")), "call {at}: {e}");
            failed += 1;
        }
        fake.fail(0, 0);
        run().unwrap_or_else(|e| panic!("after call {at}: {e}"));
    }
    // What only frees or keeps something may fail unseen: about half of the calls, each of which fails twice.
    assert!(2 * failed >= calls, "{failed} of {calls}");
    // A thing whose freeing failed is the plugin's own; nothing else stays.
    let left = fake.number(b"rlx_fake_pjrt_left") - before_all;
    assert!(left <= 2 * calls - failed, "{left} of {calls} calls, of which {failed} failed");
}

#[test]
fn a_lost_device_is_opened_again() {
    if !has_worker() {
        return;
    }
    let (backend, fake, _taken) = plugin();
    let (graph, bindings) = cache();
    let mut exec = compile(&graph, &backend).unwrap();
    fake.fail(0, 14);
    assert_eq!(testing::run(&mut *exec, &bindings).unwrap_err().kind(), ErrorKind::Device);
    let e = testing::run(&mut *exec, &bindings).unwrap_err();
    assert!(e.message().contains("lost"), "{e}");
    let mut exec = compile(&graph, &backend).unwrap();
    assert_eq!(disagreement(&graph, &bindings, &mut *exec), None);
}

#[test]
fn inputs_and_parameters_of_another_size_are_rejected() {
    if !has_worker() {
        return;
    }
    let (backend, _, _taken) = plugin();
    testing::rejects_inputs_of_another_size(&backend);
    testing::rejects_parameters_of_another_size(&backend);
}

/// The test models against what PyTorch gave, with open dimensions: each golden is a program of its own.
#[test]
fn models() {
    if !has_worker() {
        return;
    }
    let (backend, _, _taken) = plugin();
    let names: &[&str] = if everything() {
        &["digits", "mlp", "bert_dynamic", "gpt2_dynamic", "resnet18"]
    } else {
        &["digits", "mlp"]
    };
    for name in names {
        let model = model(name);
        let Some(path) = model.graph_file() else { continue };
        let imported = import(&OnnxFile::open(&path).unwrap(), &ImportOptions::default()).unwrap();
        let weights = |name: &str| imported.weights.get(name).cloned();
        let mut exec = testing::compile_model(&imported.graph, weights, &backend, DimBinding::new());
        for golden in model.goldens.iter().take(3) {
            let (inputs, expected) = golden.read();
            let worst = testing::golden(&mut *exec, &inputs, &expected, &imported.outputs, &golden.binding());
            let worst = worst.unwrap_or_else(|e| panic!("{name} {}: {e}", golden.name));
            println!("{name} {}: error {worst:.1e}", golden.name);
            testing::golden_holds("tpu", name, &golden.name);
        }
    }
}
