//! `RunRequest`, the one form of a run that all others are made of: inputs of every kind, the outputs that are wanted, handles that are
//! fed once, deadlines, and runs that are not waited for.

use std::time::Duration;

use rlx_ir::op::{Activation, BinaryOp};
use rlx_ir::{ConstData, DType, Dim, ErrorKind, Graph, Shape, sym};
use rlx_runtime::{Cancel, CompiledGraph, Device, Progress, RunRequest, Session, TensorView};

rlx_contract::on_every_device!(
    inputs_of_every_kind_are_one_request,
    only_the_outputs_that_are_wanted_are_given,
    what_was_not_wanted_can_be_read_until_the_next_run,
    a_handle_is_fed_by_one_run,
    deadlines_and_cancels_stop_a_run,
    a_run_that_is_not_waited_for_is_waited_for_by_its_outputs,
    a_part_of_the_rows_is_put_back_when_it_is_read,
    what_is_wrong_is_said_before_anything_runs,
);

fn f32s(dims: &[usize]) -> Shape {
    Shape::new(dims, DType::F32)
}

fn compile(d: Device, graph: Graph) -> CompiledGraph {
    rlx_contract::register();
    Session::new(d).compile(graph)
}

/// `[x + x, relu(x), exp(y)]`
fn three(d: Device) -> CompiledGraph {
    let mut g = Graph::new("three");
    let (x, y) = (g.input("x", f32s(&[2])), g.input("y", f32s(&[1])));
    let double = g.binary(BinaryOp::Add, x, x, f32s(&[2]));
    let relu = g.activation(Activation::Relu, x, f32s(&[2]));
    let exp = g.activation(Activation::Exp, y, f32s(&[1]));
    g.set_outputs(vec![double, relu, exp]);
    compile(d, g)
}

fn inputs_of_every_kind_are_one_request(d: Device) {
    let mut c = three(d);
    let want = [vec![-2.0, 6.0], vec![0.0, 3.0], vec![1.0]];
    let (x, y) = ([-1.0f32, 3.0], [0.0f32]);
    let named: &[(&str, &[f32])] = &[("y", &y), ("x", &x)];
    assert_eq!(c.execute(RunRequest::from(named)).unwrap().to_f32().unwrap(), want);
    let in_order: &[&[f32]] = &[&x, &y];
    assert_eq!(c.execute(RunRequest::from(in_order)).unwrap().to_f32().unwrap(), want);
    let bytes = x.map(f32::to_ne_bytes);
    let typed: &[(&str, &[u8], DType)] = &[("x", bytes.as_flattened(), DType::F32)];
    let mixed = RunRequest::from(typed).input("y", &y);
    assert_eq!(c.execute(&mixed).unwrap().to_f32().unwrap(), want);
    let tensor = ConstData::from_f32(&[1], &y).unwrap();
    let view = TensorView::of("any name", &[2], &x).unwrap();
    let tensors = RunRequest::new().input("x", view).input("y", &tensor);
    assert_eq!(c.execute(&tensors).unwrap().to_f32().unwrap(), want);
    assert_eq!(c.execute(tensors).unwrap().to_tensors().unwrap()[0].dims(), [2]);
    let wrong = TensorView::of("x", &[1, 2], &x).unwrap();
    let e = c.execute(RunRequest::new().input("x", wrong).input("y", &y)).unwrap_err();
    assert!(e.to_string().contains("[2] f32"), "{e}");
}

fn only_the_outputs_that_are_wanted_are_given(d: Device) {
    let mut c = three(d);
    let name = c.outputs()[2].name.clone();
    let inputs = RunRequest::new().input("x", &[1.0, 2.0]).input("y", &[0.0]);
    let outputs = c.execute(inputs.clone().output(&name).output(0)).unwrap();
    assert_eq!((outputs.len(), outputs.is_empty()), (2, false));
    assert_eq!(outputs.to_f32().unwrap(), [vec![1.0], vec![2.0, 4.0]]);
    assert_eq!(outputs.get(&name).unwrap().as_f32().unwrap(), [1.0]);
    assert_eq!(outputs.get(1).unwrap().as_f32().unwrap(), [2.0, 4.0]);
    assert!(outputs.get(2).unwrap_err().to_string().contains("the run was for 2"));
    let all: Vec<_> = c.execute(&inputs).unwrap().iter().map(|view| view.unwrap().dims.to_vec()).collect();
    assert_eq!(all, [[2], [2], [1]]);
    let again = c.execute(inputs.clone().outputs(&[1, 1])).unwrap();
    assert_eq!(again.to_bytes().unwrap(), vec![(again.get(0).unwrap().bytes.to_vec(), DType::F32); 2]);
    assert!(c.execute(inputs.outputs(&[])).unwrap().is_empty());
}

fn what_was_not_wanted_can_be_read_until_the_next_run(d: Device) {
    let mut c = three(d);
    c.execute(RunRequest::new().input("x", &[1.0, 2.0]).input("y", &[0.0]).output(1)).unwrap();
    assert_eq!(c.read_output_row(0, 1, 1), Some(vec![4.0]));
    assert_eq!(c.try_read_output(2).unwrap(), [1.0]);
    assert_eq!(c.output_views().map(|view| view.to_f32().unwrap()[0]).collect::<Vec<_>>(), [2.0, 1.0, 1.0]);
    let outputs = c.run_read_outputs(&[("x", &[3.0, 4.0]), ("y", &[0.0])], Some(&[1]));
    assert_eq!((outputs, c.try_read_output(0).unwrap()), (vec![vec![3.0, 4.0]], vec![6.0, 8.0]));
}

/// `x + x`, with a handle.
fn doubling(d: Device) -> CompiledGraph {
    let mut g = Graph::new("double");
    let x = g.input("x", f32s(&[2]));
    let y = g.binary(BinaryOp::Add, x, x, f32s(&[2]));
    g.set_outputs(vec![y]);
    let mut c = compile(d, g);
    assert!(c.bind_handle("x", &[1.0, -1.0]));
    c
}

fn a_handle_is_fed_by_one_run(d: Device) {
    let mut c = doubling(d);
    let name = c.outputs()[0].name.clone();
    for _ in 0..3 {
        c.execute(RunRequest::new().feed("x", &name).outputs(&[])).unwrap();
    }
    assert_eq!(c.execute(RunRequest::new()).unwrap().to_f32().unwrap(), [[16.0, -16.0]]);
    assert_eq!(c.read_handle("x"), Some(vec![8.0, -8.0]), "only the runs that said so fed it");
}

fn deadlines_and_cancels_stop_a_run(d: Device) {
    let mut c = doubling(d);
    let e = c.execute(RunRequest::new().feed("x", 0).deadline(Duration::ZERO)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Cancelled);
    assert!(e.to_string().contains("the deadline of 0ns passed"), "{e}");
    let cancel = Cancel::new();
    let progress = Progress::from(&cancel);
    let request = RunRequest::new().progress(&progress).deadline(Duration::from_secs(3600));
    assert_eq!(c.execute(&request).unwrap().to_f32().unwrap(), [[2.0, -2.0]], "nothing was fed");
    cancel.cancel();
    assert_eq!(c.execute(&request).unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(
        c.execute(RunRequest::new().no_wait().progress(&progress)).unwrap_err().kind(),
        ErrorKind::Cancelled
    );
}

fn a_run_that_is_not_waited_for_is_waited_for_by_its_outputs(d: Device) {
    let mut c = doubling(d);
    for _ in 0..5 {
        c.execute(RunRequest::new().feed("x", 0).no_wait()).unwrap();
    }
    let outputs = c.execute(RunRequest::new().no_wait()).unwrap();
    assert_eq!(outputs.get(0).unwrap().as_f32().unwrap(), [64.0, -64.0]);
    c.sync_pending();
}

fn a_part_of_the_rows_is_put_back_when_it_is_read(d: Device) {
    let mut g = Graph::new("rows");
    let shape = Shape::from_dims(&[Dim::Dynamic(sym::ROWS), Dim::Static(2)], DType::F32);
    let x = g.input("x", shape.clone());
    let relu = g.activation(Activation::Relu, x, shape.clone());
    let double = g.binary(BinaryOp::Add, x, x, shape);
    g.set_outputs(vec![relu, double]);
    let mut c = compile(d, g);
    for (rows, last) in [(2, 4.0), (1, 2.0)] {
        c.set_active_extent(Some((rows, 3)));
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let outputs = c.execute(RunRequest::new().input("x", &x).output(0)).unwrap();
        let view = outputs.get(0).unwrap();
        assert_eq!(view.dims, [3, 2]);
        assert_eq!(view.as_f32().unwrap()[2 * rows - 1], last);
        assert_eq!(c.try_read_output(1).unwrap()[..2 * rows], [2.0, 4.0, 6.0, 8.0][..2 * rows]);
    }
}

fn what_is_wrong_is_said_before_anything_runs(d: Device) {
    let mut c = doubling(d);
    c.execute(RunRequest::new()).unwrap();
    let name = c.outputs()[0].name.clone();
    for (request, words) in [
        (RunRequest::new().output(1), "there is no output 1: the graph has 1"),
        (RunRequest::new().output("nothing"), "there is no output \"nothing\""),
        (RunRequest::new().feed("y", 0), "there is no input \"y\""),
        (RunRequest::new().feed("x", "nothing"), "there is no output \"nothing\""),
    ] {
        let e = c.execute(request).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Binding);
        assert!(e.to_string().contains(words), "{e}");
        assert_eq!(c.try_read_output(0).unwrap(), [2.0, -2.0], "the outputs of the last run are still there");
    }
    assert!(c.execute(RunRequest::new().output("nothing")).unwrap_err().to_string().contains(&name));
    let mut bare = three(d);
    let e = bare.execute(RunRequest::new().feed("x", 0)).unwrap_err();
    assert!(e.to_string().contains("input \"x\" has no handle"), "{e}");
}
