//! Calls with progress: cancelled at any event, they leave nothing half done, and the next call gives the correct
//! result.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Folder, bits, compile, convolutional, weights_of};
use rlx_ir::oracle::Bindings;
use rlx_ir::progress::Stage;
use rlx_ir::{DType, Graph, Result, Shape};
use rlx_runtime::{
    Artefact, Cancel, CompileOptions, CompiledGraph, Device, Error, ErrorKind, NewArtefact, Progress,
    Session, TensorView,
};

fn session() -> Session {
    Session::try_new(Device::Cpu).unwrap()
}

/// What a call reports, in order.
fn events(call: impl FnOnce(&Progress)) -> Vec<(Stage, usize, usize, String)> {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&heard);
    let progress = Progress::none()
        .reporting(move |e| to.lock().unwrap().push((e.stage, e.done, e.total, e.text.to_owned())));
    call(&progress);
    drop(progress);
    Arc::try_unwrap(heard).unwrap().into_inner().unwrap()
}

/// Cancels when it hears of the event of this number; the one after it is not reached.
fn stopping_at(number: usize) -> Progress {
    let (cancel, count) = (Cancel::new(), AtomicUsize::new(0));
    Progress::from(&cancel.clone()).reporting(move |_| {
        if count.fetch_add(1, Ordering::Relaxed) == number {
            cancel.cancel();
        }
    })
}

/// Calls with cancels at every event in turn until one call is done before its cancel; gives how many were stopped.
fn stopped_everywhere(mut call: impl FnMut(&Progress) -> Result<()>, mut after: impl FnMut(usize)) -> usize {
    for number in 0..10_000 {
        match call(&stopping_at(number)) {
            Ok(()) => return number,
            Err(e) => assert_eq!(e.kind(), ErrorKind::Cancelled, "{e}"),
        }
        after(number);
    }
    panic!("the call is stopped for ever");
}

/// One run by name, watched.
fn run(compiled: &mut CompiledGraph, bindings: &Bindings, progress: &Progress) -> Result<()> {
    let inputs: Vec<_> = compiled
        .inputs()
        .iter()
        .map(|i| (i.name.clone(), bindings.input(&i.name).unwrap().to_const()))
        .collect();
    let view = |(name, data): &'_ (String, rlx_ir::ConstData)| (name.clone(), data.clone());
    let owned: Vec<_> = inputs.iter().map(view).collect();
    let views: Vec<TensorView<'_>> = owned
        .iter()
        .map(|(name, data)| TensorView { name, dtype: data.dtype(), dims: data.dims(), bytes: data.bytes() })
        .collect();
    compiled.try_run_tensors_with_progress(&views, progress).map(|_| ())
}

#[test]
fn every_pass_and_every_step_is_reported() {
    let (graph, bindings) = convolutional();
    let weights = weights_of(&graph, &bindings);
    let options = CompileOptions::default();
    let heard = events(|p| {
        let mut compiled = session().try_compile_with_progress(graph.clone(), &options, p).unwrap();
        compiled.try_set_weights_with_progress(&weights, p).unwrap();
        run(&mut compiled, &bindings, p).unwrap();
    });
    for (stage, text) in [(Stage::Compile, "fuse-regions"), (Stage::Prepare, "w1"), (Stage::Run, "Softmax")] {
        assert!(heard.iter().any(|(s, _, _, t)| *s == stage && t == text), "{stage:?} {text}: {heard:?}");
    }
    let totals = |stage| heard.iter().filter(move |e| e.0 == stage).map(|e| (e.1, e.2));
    assert!(totals(Stage::Run).enumerate().all(|(i, (done, total))| done == i && total > 1));
    assert!(heard.iter().all(|&(_, done, total, _)| done <= total));
}

#[test]
fn compiling_stops_before_any_pass_and_compiles_the_next_time() {
    let (graph, bindings) = convolutional();
    let weights = weights_of(&graph, &bindings);
    let options = CompileOptions::default();
    let compile_once = |p: &Progress| {
        session().try_compile_with_progress(graph.clone(), &options, p).map(|_| ()).map_err(Error::from)
    };
    assert!(stopped_everywhere(compile_once, |_| ()) >= 11);
    let mut compiled = compile(&session(), &graph, &weights);
    bits(&mut compiled, &bindings);
}

#[test]
fn a_run_stopped_anywhere_leaves_an_executable_that_gives_the_same_bits() {
    let (graph, bindings) = convolutional();
    let weights = weights_of(&graph, &bindings);
    let want = bits(&mut compile(&session(), &graph, &weights), &bindings);
    // Weights of its own, so that the init program runs here and not in the executable above.
    let fresh = weights_of(&graph, &bindings);
    let compiled = compile(&session(), &graph, &fresh);
    let steps = compiled.lir().steps.len();
    assert!(steps > 2);
    let compiled = Mutex::new(compiled);
    // The first round stops it while weights are prepared; once they are, the second one in the run.
    for round in ["preparing", "running"] {
        let stopped = stopped_everywhere(
            |p| run(&mut compiled.lock().unwrap(), &bindings, p),
            |_| assert!(compiled.lock().unwrap().try_read_output(0).is_err(), "a stopped run has no outputs"),
        );
        // A cancel at the last event of a run comes too late.
        assert!(stopped >= steps - 1, "{stopped} events {round}, {steps} steps");
    }
    assert_eq!(bits(&mut compiled.lock().unwrap(), &bindings), want);
    // Weights that were set after a stop count.
    let mut compiled = compiled.into_inner().unwrap();
    let other: Vec<f32> = (0..24).map(|i| i as f32).collect();
    compiled.try_set_param("b2", &other).unwrap();
    assert!(run(&mut compiled, &bindings, &stopping_at(0)).is_err());
    let changed = bits(&mut compiled, &bindings);
    assert!(changed != want);
    compiled.try_set_weight("b2", fresh.get("b2").unwrap()).unwrap();
    assert_eq!(bits(&mut compiled, &bindings), want);
}

#[test]
fn a_stopped_run_leaves_fed_handles_unchanged() {
    let shape = Shape::new(&[2], DType::F32);
    let mut g = Graph::new("walk");
    let x = g.input("x", shape.clone());
    // Softmax stands alone: more than one step.
    let y = g.softmax(x, 0, shape.clone());
    let y = g.softmax(y, 0, shape);
    g.set_outputs(vec![y]);
    let mut fed = session().compile(g.clone());
    assert!(fed.bind_handle("x", &[0.0, 1.0]) && fed.set_gpu_handle_feed("x", 0));
    let none: &[(&str, &[f32])] = &[];
    fed.try_run(none).unwrap();
    let before = fed.read_handle("x");
    for number in 0..fed.lir().steps.len() - 1 {
        let e = fed.try_run_with_progress(none, &stopping_at(number)).unwrap_err();
        assert_eq!((e.kind(), fed.read_handle("x")), (ErrorKind::Cancelled, before.clone()));
    }
    fed.try_run(none).unwrap();
    let mut plain = session().compile(g);
    assert_eq!(fed.read_handle("x").unwrap(), plain.run(&[("x", &before.unwrap())])[0]);
}

#[test]
fn saving_stopped_anywhere_leaves_no_file_and_loading_can_be_stopped_too() {
    let (graph, bindings) = convolutional();
    let weights = weights_of(&graph, &bindings);
    let folder = Folder::new("stopped");
    let path = folder.path().join("model.rlx");
    let left = || std::fs::read_dir(folder.path()).unwrap().count();
    let mut compiled = compile(&session(), &graph, &weights);
    let save = |p: &Progress| {
        let new = NewArtefact { source: Some(&graph), ..NewArtefact::new("model", &weights) };
        session().save_with_progress(&path, &mut compiled, new, p)
    };
    assert!(stopped_everywhere(save, |number| assert_eq!(left(), 0, "after event {number}")) >= 10);
    assert_eq!(left(), 1);
    let artefact = Artefact::open(&path).unwrap();
    let check = |p: &Progress| artefact.verify_with_progress(p);
    assert!(stopped_everywhere(check, |_| ()) >= 2);
    let load = |p: &Progress| session().load_with_progress(&artefact, p).map(|_| ());
    assert!(stopped_everywhere(load, |_| ()) >= 2);
    let want = bits(&mut compile(&session(), &graph, &weights), &bindings);
    assert_eq!(bits(&mut session().load(&artefact).unwrap(), &bindings), want);
    // A file that is there already stays what it was.
    let (mut compiled, old) = (compile(&session(), &graph, &weights), std::fs::read(&path).unwrap());
    let new = NewArtefact::new("another", &weights);
    assert!(session().save_with_progress(&path, &mut compiled, new, &stopping_at(3)).is_err());
    assert!(std::fs::read(&path).unwrap() == old && left() == 1);
}

#[test]
fn a_deadline_that_passed_stops_before_the_first_step_and_says_so() {
    let (graph, _) = convolutional();
    let progress = Progress::from(&Cancel::new().with_deadline(Duration::from_millis(1)));
    std::thread::sleep(Duration::from_millis(2));
    let e = session().try_compile_with_progress(graph, &CompileOptions::default(), &progress).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Cancelled);
    // The passes, and lowering.
    let parts = rlx_opt::pipeline::PASSES.len() + 1;
    let said = format!("cancelled: the deadline of 1ms passed while compiling (0 of {parts} done)");
    assert_eq!(e.to_string(), said);
}

#[test]
fn another_thread_stops_a_run() {
    let n = 512;
    let shape = Shape::new(&[n, n], DType::F32);
    let mut g = Graph::new("long");
    let x = g.input("x", shape.clone());
    let mut y = x;
    for _ in 0..400 {
        y = g.matmul(y, x, shape.clone());
    }
    g.set_outputs(vec![y]);
    let mut long = session().compile(g);
    let values = vec![0.001; n * n];
    let cancel = Cancel::new();
    let stop = cancel.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            stop.cancel();
        });
        let e = long.try_run_with_progress(&[("x", &values)], &Progress::from(&cancel)).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Cancelled, "{e}");
        assert!(e.to_string().starts_with("cancelled: stopped while running ("), "{e}");
    });
}
