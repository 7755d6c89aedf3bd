//! The contract's section "CompiledGraph", its handles: values that stay with the executable, stand in for inputs and
//! are refreshed by outputs.

use rlx_contract::is_short_of_integers;
use rlx_ir::op::{Activation, BinaryOp};
use rlx_ir::{DType, Dim, ErrorKind, Extent, Graph, Shape, sym};
use rlx_runtime::{CompiledGraph, Device, Session};

rlx_contract::on_every_device!(
    a_handle_stands_in_for_its_input_and_a_feed_refreshes_it,
    two_states_feed_each_other,
    slots_of_an_only_output_are_where_it_is,
    one_output_may_feed_several_handles,
    a_state_may_grow_with_every_run,
    outputs_that_feed_can_be_read_in_every_way,
    an_explicit_input_wins_and_the_feed_goes_on,
    a_run_that_fails_leaves_the_value,
    clones_go_their_own_ways,
    feeds_under_an_active_extent_keep_the_upper_extent,
    integers_stay_exact,
    feeds_that_do_not_fit_are_rejected,
);

fn f32s(dims: &[usize]) -> Shape {
    Shape::new(dims, DType::F32)
}

fn compile(d: Device, graph: Graph) -> CompiledGraph {
    rlx_contract::register();
    Session::new(d).compile(graph)
}

fn text<T>(result: rlx_ir::Result<T>) -> String {
    result.err().expect("an error").to_string()
}

/// What [`CompiledGraph::run_slots`] gives where every input has a handle.
fn run_slots(c: &mut CompiledGraph) -> Vec<Vec<f32>> {
    let slots = c.run_slots(&[]).to_vec();
    let base = c.arena_ptr();
    // SAFETY: offsets and counts come from the run just done; nothing ran since.
    let read =
        |&(at, n): &(usize, usize)| unsafe { std::slice::from_raw_parts(base.add(at).cast::<f32>(), n) };
    slots.iter().map(|s| read(s).to_vec()).collect()
}

/// `y = x + w` over two elements, `w = [1, 2]`.
fn counter(d: Device) -> CompiledGraph {
    let mut g = Graph::new("add");
    let x = g.input("x", f32s(&[2]));
    let w = g.param("w", f32s(&[2]));
    let y = g.binary(BinaryOp::Add, x, w, f32s(&[2]));
    g.set_outputs(vec![y]);
    let mut c = compile(d, g);
    c.set_param("w", &[1.0, 2.0]);
    c
}

/// A handle's memory is not the arena; the slot is in it all the same, and not a copy.
fn slots_of_an_only_output_are_where_it_is(d: Device) {
    let mut c = counter(d);
    c.bind_handle("x", &[0.0, 0.0]);
    c.set_gpu_handle_feed("x", 0);
    for run in 1..4 {
        let run = run as f32;
        assert_eq!(run_slots(&mut c), [[run, 2.0 * run]]);
        let (at, n) = c.run_slots(&[&[run, 2.0 * run]])[0];
        let slot = c.arena_ptr().wrapping_add(at);
        let output = c.output_views().next().expect("an output").bytes;
        assert_eq!((slot, 4 * n), (output.as_ptr(), output.len()));
        c.bind_handle("x", &[run, 2.0 * run]);
    }
}

/// `out = [b + 1, a · 2]` of the inputs `a` and `b`.
fn pair(d: Device) -> CompiledGraph {
    let mut g = Graph::new("pair");
    let (a, b) = (g.input("a", f32s(&[3])), g.input("b", f32s(&[3])));
    let one = g.param("one", f32s(&[1]));
    let x = g.binary(BinaryOp::Add, b, one, f32s(&[3]));
    let y = g.binary(BinaryOp::Add, a, a, f32s(&[3]));
    g.set_outputs(vec![x, y]);
    let mut c = compile(d, g);
    c.set_param("one", &[1.0]);
    c
}

fn a_handle_stands_in_for_its_input_and_a_feed_refreshes_it(d: Device) {
    let mut c = counter(d);
    assert!(!c.bind_handle("no one", &[1.0]));
    assert_eq!(c.read_handle("x"), None);
    assert!(!c.has_gpu_handle("x") && !c.set_gpu_handle_feed("x", 0));
    assert_eq!(c.run_feed_gpu_handle(&[], "x", 0), None);
    assert!(c.bind_gpu_handle("x", &[0.0, 0.0]));
    assert!(c.has_gpu_handle("x"));
    assert_eq!(c.run(&[]), [[1.0, 2.0]]);
    assert_eq!(c.read_handle("x"), Some(vec![0.0, 0.0]));
    assert_eq!(c.run_feed_gpu_handle(&[], "x", 0), Some(vec![1.0, 2.0]));
    assert_eq!(c.run(&[]), [[2.0, 4.0]]);
    assert!(c.set_gpu_handle_feed("x", 0));
    for n in 2..7u8 {
        let n = f32::from(n);
        assert_eq!(c.run(&[]), [[n, 2.0 * n]]);
        assert_eq!(c.read_gpu_handle("x"), Some(vec![n, 2.0 * n]));
    }
    assert!(c.bind_handle("x", &[0.0, 0.0]), "a new value keeps the feed");
    c.run(&[]);
    assert_eq!(c.run(&[]), [[2.0, 4.0]]);
}

fn two_states_feed_each_other(d: Device) {
    let mut c = pair(d);
    let (mut a, mut b) = (vec![1.0, 2.0, 3.0], vec![0.5, -1.0, 0.0]);
    c.bind_handle("a", &a);
    c.bind_handle("b", &b);
    assert!(c.set_gpu_handle_feed("a", 0) && c.set_gpu_handle_feed("b", 1));
    for _ in 0..5 {
        c.commit_no_wait(&[]);
        (a, b) = (b.iter().map(|v| v + 1.0).collect(), a.iter().map(|v| v + v).collect());
    }
    c.sync_pending();
    assert_eq!((c.read_handle("a"), c.read_handle("b")), (Some(a), Some(b)));
}

fn one_output_may_feed_several_handles(d: Device) {
    let mut c = pair(d);
    c.bind_handle("a", &[1.0, 2.0, 3.0]);
    c.bind_handle("b", &[0.0; 3]);
    assert!(c.set_gpu_handle_feed("a", 1) && c.set_gpu_handle_feed("b", 1));
    for _ in 0..4 {
        c.run(&[]);
        assert_eq!(c.read_handle("a"), c.read_handle("b"));
    }
    assert_eq!(c.run(&[]), [[17.0, 33.0, 49.0], [32.0, 64.0, 96.0]]);
}

fn a_state_may_grow_with_every_run(d: Device) {
    let seq = Dim::Dynamic(sym::SEQ);
    let longer = Dim::from(seq.extent() + Extent::Const(1));
    let of = |rows: Dim| Shape::from_dims(&[rows, Dim::Static(2)], DType::F32);
    let mut g = Graph::new("cache");
    let (past, new) = (g.input("past", of(seq)), g.input("new", f32s(&[1, 2])));
    let all = g.concat(vec![past, new], 0, of(longer));
    let sum = g.reduce(all, rlx_ir::op::ReduceOp::Sum, vec![0], false, f32s(&[2]));
    g.set_outputs(vec![all, sum]);
    let mut c = compile(d, g);
    c.bind_handle("past", &[1.0, 1.0]);
    assert!(c.set_gpu_handle_feed("past", 0));
    let mut want = vec![1.0, 1.0];
    for n in 2..12u8 {
        let row = [f32::from(n), -f32::from(n)];
        want.extend(row);
        let sum = c.run_read_outputs(&[("new", &row)], Some(&[1]));
        let column = |i: usize| want.iter().skip(i).step_by(2).sum::<f32>();
        assert_eq!(sum, [[column(0), column(1)]], "{n} rows");
        assert_eq!(c.read_handle("past").as_ref(), Some(&want));
    }
}

fn outputs_that_feed_can_be_read_in_every_way(d: Device) {
    let mut c = pair(d);
    c.bind_handle("a", &[1.0, 2.0, 3.0]);
    c.set_gpu_handle_feed("a", 1);
    let b: &[f32] = &[0.0, 1.0, 2.0];
    let first = vec![1.0, 2.0, 3.0];
    assert_eq!(c.run(&[("b", b)]), [first.clone(), vec![2.0, 4.0, 6.0]]);
    assert_eq!(c.run_read_outputs(&[("b", b)], Some(&[1])), [[4.0, 8.0, 12.0]]);
    assert_eq!(c.read_output_row(1, 1, 1), Some(vec![8.0]));
    assert_eq!(c.read_output_row(0, 0, 3), Some(first.clone()));
    // A new value changes what the next run takes, not what the last one gave.
    c.bind_handle("a", &[0.25, 0.5, 1.0]);
    assert_eq!(c.read_output_row(1, 0, 3), Some(vec![4.0, 8.0, 12.0]));
    // SAFETY: pointers, offsets and counts come from the run just done; nothing ran since.
    let read = |at: *const f32, n| unsafe { std::slice::from_raw_parts(at, n) }.to_vec();
    let raw = c.run_raw(&[("b", b)]);
    assert_eq!(read(raw[1].0, raw[1].1), [0.5, 1.0, 2.0]);
    assert_eq!(read(raw[0].0, raw[0].1), first);
    c.set_gpu_handle_feed("b", 0);
    c.bind_handle("b", b);
    assert_eq!(run_slots(&mut c), [first, vec![1.0, 2.0, 4.0]]);
    let (mut x, mut y) = ([0.0; 3], [0.0; 3]);
    c.run_into(&[], &mut [&mut x, &mut y]);
    assert_eq!(y, [2.0, 4.0, 8.0]);
    let views: Vec<_> = c.output_views().map(|v| v.to_f32().unwrap()).collect();
    assert_eq!(views, [x, y]);
}

fn an_explicit_input_wins_and_the_feed_goes_on(d: Device) {
    let mut c = counter(d);
    c.bind_handle("x", &[0.0, 0.0]);
    assert_eq!(c.run(&[("x", &[5.0, 5.0])]), [[6.0, 7.0]]);
    assert_eq!(c.read_handle("x"), Some(vec![0.0, 0.0]));
    c.set_gpu_handle_feed("x", 0);
    assert_eq!(c.run(&[("x", &[5.0, 5.0])]), [[6.0, 7.0]]);
    assert_eq!(c.run(&[]), [[7.0, 9.0]]);
    assert_eq!(c.run(&[("x", &[1.0, 1.0])]), [[2.0, 3.0]]);
    assert_eq!(c.run(&[]), [[3.0, 5.0]]);
}

fn a_run_that_fails_leaves_the_value(d: Device) {
    let ids = Shape::new(&[1], DType::I64);
    let mut g = Graph::new("walk");
    let table = g.param("table", f32s(&[3]));
    let (at, step) = (g.input("at", ids.clone()), g.input("step", ids.clone()));
    let value = g.gather(table, at, 0, f32s(&[1]));
    let next = g.binary(BinaryOp::Add, at, step, ids);
    g.set_outputs(vec![value, next]);
    let mut c = compile(d, g);
    c.set_param("table", &[10.0, 20.0, 30.0]);
    c.bind_handle("at", &[0.0]);
    c.set_gpu_handle_feed("at", 1);
    for want in [10.0, 20.0, 30.0] {
        assert_eq!(c.run(&[("step", &[1.0])])[0], [want]);
    }
    for _ in 0..2 {
        let e = c.try_run(&[("step", &[1.0])]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Value, "{e}");
        assert_eq!(c.read_handle("at"), Some(vec![3.0]));
    }
    c.bind_handle("at", &[2.0]);
    assert_eq!(c.run(&[("step", &[-1.0])])[0], [30.0]);
    assert_eq!(c.run(&[("step", &[-1.0])])[0], [20.0]);
}

fn clones_go_their_own_ways(d: Device) {
    let mut c = counter(d);
    c.bind_handle("x", &[0.0, 0.0]);
    c.set_gpu_handle_feed("x", 0);
    c.run(&[]);
    let mut fork = c.clone();
    fork.set_param("w", &[10.0, 10.0]);
    for _ in 0..3 {
        c.run(&[]);
        fork.run(&[]);
    }
    assert_eq!(c.read_handle("x"), Some(vec![4.0, 8.0]));
    assert_eq!(fork.read_handle("x"), Some(vec![31.0, 32.0]));
    drop(c);
    assert_eq!(fork.run(&[]), [[41.0, 42.0]]);
}

fn feeds_under_an_active_extent_keep_the_upper_extent(d: Device) {
    for dims in [[Dim::Dynamic(sym::SEQ), Dim::Static(2)], [Dim::Static(2), Dim::Dynamic(sym::SEQ)]] {
        let shape = Shape::from_dims(&dims, DType::F32);
        let mut g = Graph::new("rows");
        let x = g.input("x", shape.clone());
        let y = g.activation(Activation::Neg, x, shape);
        g.set_outputs(vec![y]);
        let mut c = compile(d, g);
        let x = [1.0, 2.0, 3.0, 4.0];
        c.bind_handle("x", &x);
        c.set_active_extent(Some((1, 2)));
        assert_eq!(c.run(&[])[0][0], -1.0);
        c.set_gpu_handle_feed("x", 0);
        for sign in [-1.0, 1.0, -1.0] {
            let out = c.run(&[]);
            assert_eq!((out[0].len(), out[0][0]), (4, sign));
        }
        assert_eq!(c.read_handle("x").map(|x| (x.len(), x[0])), Some((4, -1.0)));
        c.set_active_extent(None);
        c.bind_handle("x", &x);
        c.run(&[]);
        assert_eq!(c.read_handle("x"), Some(vec![-1.0, -2.0, -3.0, -4.0]));
        c.run(&[]);
        assert_eq!(c.read_handle("x"), Some(x.to_vec()));
    }
}

fn integers_stay_exact(d: Device) {
    let ids = Shape::new(&[1], DType::I64);
    let mut g = Graph::new("double");
    let x = g.input("x", ids.clone());
    let y = g.binary(BinaryOp::Add, x, x, ids.clone());
    g.set_outputs(vec![y]);
    let mut c = compile(d, g);
    assert!(text(c.try_bind_handle("x", &[0.5])).contains("element 0 is 0.5"));
    c.bind_handle("x", &[3.0]);
    c.set_gpu_handle_feed("x", 0);
    if is_short_of_integers(d) {
        let e = c.try_run_typed(&[("x", &(1i64 << 40).to_le_bytes(), DType::I64)]).unwrap_err();
        assert!(
            e.kind() == ErrorKind::Value
                && e.to_string().contains("\"x\"")
                && e.to_string().contains("32-bit"),
            "{e}"
        );
        return assert_eq!(c.run_typed(&[]), [(6i64.to_le_bytes().to_vec(), DType::I64)]);
    }
    for _ in 0..40 {
        c.commit_no_wait(&[]);
    }
    assert_eq!(c.run_typed(&[]), [((3i64 << 41).to_le_bytes().to_vec(), DType::I64)]);
    c.run_typed(&[("x", &((1i64 << 40) + 1).to_le_bytes(), DType::I64)]);
    assert!(text(c.try_read_handle("x")).contains(&((1i64 << 41) + 2).to_string()));
}

fn feeds_that_do_not_fit_are_rejected(d: Device) {
    let mut g = Graph::new("casts");
    let x = g.input("x", f32s(&[2]));
    let long = g.input("long", f32s(&[4]));
    let y = g.add_node(rlx_ir::Op::Cast { to: DType::I32 }, vec![x], Shape::new(&[2], DType::I32));
    let z = g.activation(Activation::Neg, long, f32s(&[4]));
    g.set_outputs(vec![y, z]);
    let mut c = compile(d, g);
    assert!(text(c.try_bind_handle("x", &[1.0])).contains("[2] f32"));
    c.bind_handle("x", &[1.0, 2.0]);
    for (output, reason) in [(0, "[2] i32"), (1, "[4] f32"), (9, "no output 9")] {
        let e = text(c.try_set_gpu_handle_feed("x", output));
        assert!(e.contains(reason), "{e}");
        assert!(text(c.try_run_feed_gpu_handle(&[], "x", output)).contains(reason));
    }
}
