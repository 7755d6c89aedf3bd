//! Donated inputs on the CPU: an output takes the memory of an input, and the run replaces what changes there.

use std::sync::Arc;

use rlx_backend::{Backend, ExecutableGraph, InputSource};
use rlx_cpu::CpuBackend;
use rlx_ir::lir::BufferKind;
use rlx_ir::progress::{Cancel, Progress};
use rlx_ir::{ErrorKind, text};
use rlx_opt::{CompileOptions, CompilePipeline};

const ROWS: usize = 8;

/// A cache of 8 rows of 2, of which one is replaced and one read. What follows in `more` is computed besides.
fn graph(more: &str, outputs: &str) -> String {
    format!(
        r#"graph "append" {{
          donate "cache" to 0
          %0 = Input {{name="cache"}} : [8, 2] f32
          %1 = Input {{name="row"}} : [1, 2] f32
          %2 = Input {{name="at"}} : [] i64
          %3 = UpdateSlice(%0, %1, %2) {{axis=0}} : [8, 2] f32
          {more}
          return {outputs}
        }}"#
    )
}

fn compile(graph: &str) -> Box<dyn ExecutableGraph> {
    let (backend, options) = (CpuBackend::new().with_threads(1).unwrap(), CompileOptions::default());
    let pipeline = CompilePipeline::new(backend.target(&options).unwrap(), options.clone());
    let lir = pipeline.compile(&text::parse(graph).unwrap()).unwrap().lir;
    backend.compile(Arc::new(lir), &options).unwrap()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// What a run is given: the cache by its handle if it is `None`, then the other inputs.
struct Given {
    cache: Option<Vec<u8>>,
    others: Vec<Vec<u8>>,
}

impl Given {
    fn row(at: i64, value: f32) -> Given {
        Given { cache: None, others: vec![floats(&[value, -value]), at.to_le_bytes().to_vec()] }
    }
}

impl InputSource for Given {
    fn bytes(&self, i: usize) -> &[u8] {
        match (i, &self.cache) {
            (0, Some(cache)) => cache,
            (0, None) => &[],
            (i, _) => &self.others[i - 1],
        }
    }

    fn handle(&self, i: usize) -> Option<usize> {
        (i == 0 && self.cache.is_none()).then_some(ROWS * 2 * 4)
    }
}

fn start() -> Vec<f32> {
    (0..ROWS * 2).map(|i| i as f32).collect()
}

fn set(exec: &mut dyn ExecutableGraph) {
    exec.handles_mut().unwrap().set(0, &floats(&start())).unwrap();
}

fn cache(exec: &dyn ExecutableGraph) -> Vec<u8> {
    exec.handles().unwrap().read(0).unwrap()
}

/// Whether output 0 takes the cache's memory.
fn takes(exec: &dyn ExecutableGraph) -> bool {
    let lir = exec.lir();
    matches!(lir.buffers[lir.outputs[0].operand.buffer.index()].kind, BufferKind::Input(0))
}

#[test]
fn a_row_is_replaced_where_it_is() {
    let mut exec = compile(&graph("", "%3"));
    assert!(takes(&*exec), "{}", exec.lir());
    assert_eq!(exec.lir().plan().unwrap().arena_bytes, 0);
    set(&mut *exec);
    let (mut want, mut addresses) = (start(), Vec::new());
    for (run, at) in [0i64, 7, 3, -1].into_iter().enumerate() {
        let value = run as f32 + 100.0;
        exec.run(&Given::row(at, value), &[]).unwrap();
        let row = at.rem_euclid(ROWS as i64) as usize * 2;
        want[row..row + 2].copy_from_slice(&[value, -value]);
        assert_eq!(exec.output(0).unwrap(), floats(&want));
        assert_eq!(cache(&*exec), floats(&want));
        addresses.push(exec.output(0).unwrap().as_ptr());
    }
    assert!(addresses.iter().all(|a| *a == addresses[0]), "the cache moved");
}

#[test]
fn what_reads_the_old_value_later_costs_a_copy_that_the_listing_shows() {
    let mut exec =
        compile(&graph("%4 = Reduce(%0) {op=Sum, axes=[0, 1], keep_dim=false} : [] f32", "%3, %4"));
    assert!(!takes(&*exec) && exec.lir().to_string().contains("copies input.0"), "{}", exec.lir());
    set(&mut *exec);
    exec.run(&Given::row(2, 9.0), &[]).unwrap();
    let sum: f32 = start().iter().sum();
    assert_eq!(exec.output(1).unwrap(), floats(&[sum]));
    let mut want = start();
    want[4..6].copy_from_slice(&[9.0, -9.0]);
    assert_eq!(exec.output(0).unwrap(), floats(&want));
}

#[test]
fn what_the_caller_gave_stays_as_it_was() {
    let mut exec = compile(&graph("", "%3"));
    let mut given = Given::row(1, 5.0);
    given.cache = Some(floats(&start()));
    exec.run(&given, &[]).unwrap();
    let mut want = start();
    want[2..4].copy_from_slice(&[5.0, -5.0]);
    assert_eq!(exec.output(0).unwrap(), floats(&want));
    assert_eq!(given.cache, Some(floats(&start())));
    // A handle that is fed takes the output of such a run, too.
    set(&mut *exec);
    exec.handles_mut().unwrap().feed(0, Some(0)).unwrap();
    given.cache = Some(floats(&[7.0; ROWS * 2]));
    exec.run(&given, &[]).unwrap();
    assert_eq!(cache(&*exec)[..8], floats(&[7.0, 7.0]));
}

#[test]
fn clones_have_a_value_of_their_own() {
    let mut exec = compile(&graph("", "%3"));
    set(&mut *exec);
    let mut clone = exec.try_clone().unwrap();
    clone.run(&Given::row(0, 50.0), &[]).unwrap();
    assert_eq!(cache(&*exec), floats(&start()));
    exec.run(&Given::row(1, 60.0), &[]).unwrap();
    assert_eq!(cache(&*clone)[..16], floats(&[50.0, -50.0, 2.0, 3.0]));
    assert_eq!(cache(&*exec)[..16], floats(&[0.0, 1.0, 60.0, -60.0]));
}

/// A step behind the update that reports an error.
const PICK: &str = r#"%4 = Input {name="pick"} : [1] i64
          %5 = Gather(%3, %4) {axis=0} : [1, 2] f32"#;

#[test]
fn a_run_that_fails_leaves_the_value_as_it_was() {
    let mut exec = compile(&graph(PICK, "%3, %5"));
    assert!(takes(&*exec), "{}", exec.lir());
    set(&mut *exec);
    let mut given = Given::row(4, 1.5);
    given.others.push(99i64.to_le_bytes().to_vec());
    assert_eq!(exec.run(&given, &[]).unwrap_err().kind(), ErrorKind::Value);
    assert_eq!(cache(&*exec), floats(&start()));
    given.others[2] = 4i64.to_le_bytes().to_vec();
    exec.run(&given, &[]).unwrap();
    assert_eq!(exec.output(1).unwrap(), floats(&[1.5, -1.5]));
    // An update that leaves the cache replaces nothing.
    let mut outside = Given::row(8, 1.0);
    outside.others.push(0i64.to_le_bytes().to_vec());
    let before = cache(&*exec);
    assert_eq!(exec.run(&outside, &[]).unwrap_err().kind(), ErrorKind::Value);
    assert_eq!(cache(&*exec), before);
}

#[test]
fn a_run_that_is_stopped_leaves_the_value_as_it_was() {
    let mut exec = compile(&graph(PICK, "%3, %5"));
    let steps = exec.lir().steps.len();
    assert!(steps > 1);
    // Cancelled while a step is announced, so stopped before the next one.
    for last in 0..steps - 1 {
        set(&mut *exec);
        let mut given = Given::row(4, 1.5);
        given.others.push(4i64.to_le_bytes().to_vec());
        let cancel = Cancel::new();
        let announced = cancel.clone();
        let progress = Progress::from(&cancel).reporting(move |event| {
            if event.done == last {
                announced.cancel();
            }
        });
        let e = exec.run_with_progress(&given, &[], &progress).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Cancelled);
        assert_eq!(cache(&*exec), floats(&start()), "stopped behind step {last}");
    }
}

#[test]
fn scatters_update_in_place_and_are_put_back() {
    for (op, index) in [
        ("ScatterNd(%0, %2, %1) {reduction=Add}", "[3, 1]"),
        ("ScatterElements(%0, %2, %1) {axis=0, reduction=Add}", "[3, 2]"),
    ] {
        let graph = format!(
            r#"graph "scatter" {{
              donate "cache" to 0
              %0 = Input {{name="cache"}} : [8, 2] f32
              %1 = Input {{name="rows"}} : [3, 2] f32
              %2 = Input {{name="at"}} : {index} i64
              %3 = {op} : [8, 2] f32
              return %3
            }}"#
        );
        let mut exec = compile(&graph);
        assert!(takes(&*exec), "{}", exec.lir());
        set(&mut *exec);
        let columns = if index == "[3, 1]" { 1 } else { 2 };
        let at =
            |rows: [i64; 3]| rows.iter().flat_map(|r| vec![*r; columns]).flat_map(i64::to_le_bytes).collect();
        let rows = floats(&[1.0, 1.0, 10.0, 10.0, 100.0, 100.0]);
        // Twice the same row, and then one that is not there.
        exec.run(&Given { cache: None, others: vec![rows.clone(), at([2, 2, 0])] }, &[]).unwrap();
        let mut want = start();
        (want[0], want[1], want[4], want[5]) = (100.0, 101.0, 15.0, 16.0);
        assert_eq!(cache(&*exec), floats(&want));
        let failed = exec.run(&Given { cache: None, others: vec![rows, at([1, 5, 8])] }, &[]);
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Value);
        assert_eq!(cache(&*exec), floats(&want));
    }
}

#[test]
fn an_output_that_takes_an_inputs_memory_feeds_no_other_handle() {
    let mut exec = compile(&graph(
        r#"%4 = Input {name="other"} : [8, 2] f32
          %5 = Activation.Exp(%4) : [8, 2] f32"#,
        "%3, %5",
    ));
    exec.handles_mut().unwrap().set(3, &floats(&start())).unwrap();
    let e = exec.handles_mut().unwrap().feed(3, Some(0)).unwrap_err();
    assert!(e.to_string().contains("takes the memory of \"cache\""), "{e}");
}
