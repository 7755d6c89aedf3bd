//! The contract's section "CompiledGraph", by public names only: on the CPU, and on a backend from outside.

use rlx_contract::is_short_of_integers;
use rlx_ir::op::{Activation, BinaryOp};
use rlx_ir::{DType, Dim, DimBinding, ErrorKind, Graph, Op, Shape, sym};
use rlx_runtime::{CompiledGraph, Device, Session, TensorView};

fn f32s(dims: &[usize]) -> Shape {
    Shape::new(dims, DType::F32)
}

fn compile(d: Device, graph: Graph) -> CompiledGraph {
    rlx_contract::register();
    Session::new(d).compile(graph)
}

/// `y = x + w` over two elements.
fn add() -> Graph {
    let mut g = Graph::new("add");
    let x = g.input("x", f32s(&[2]));
    let w = g.param("w", f32s(&[2]));
    let y = g.binary(BinaryOp::Add, x, w, f32s(&[2]));
    g.set_outputs(vec![y]);
    g
}

fn ready(d: Device) -> CompiledGraph {
    let mut c = compile(d, add());
    c.set_param("w", &[1.0, 2.0]);
    c
}

/// `out = [-x, x·x]` with an open number of rows of width 2.
fn rows(symbol: u32) -> Graph {
    let shape = Shape::from_dims(&[Dim::Dynamic(symbol), Dim::Static(2)], DType::F32);
    let mut g = Graph::new("rows");
    let x = g.input("x", shape.clone());
    let a = g.activation(Activation::Neg, x, shape.clone());
    let b = g.binary(BinaryOp::Mul, x, x, shape);
    g.set_outputs(vec![a, b]);
    g
}

fn ids() -> Graph {
    let mut g = Graph::new("ids");
    let x = g.input("ids", Shape::new(&[2], DType::I64));
    let y = g.binary(BinaryOp::Add, x, x, Shape::new(&[2], DType::I64));
    g.set_outputs(vec![y]);
    g
}

fn text<T>(result: rlx_ir::Result<T>) -> String {
    result.err().expect("an error").to_string()
}

fn floats_at(c: &CompiledGraph, slots: &[(usize, usize)]) -> Vec<Vec<f32>> {
    let base = c.arena_ptr();
    // SAFETY: offsets and counts come from the run just done; nothing ran since.
    let read =
        |&(at, n): &(usize, usize)| unsafe { std::slice::from_raw_parts(base.add(at).cast::<f32>(), n) };
    slots.iter().map(|s| read(s).to_vec()).collect()
}

rlx_contract::on_every_device!(
    matmul_bias_gelu_gives_the_known_numbers_twice,
    nothing_takes_no_time_however_often,
    outputs_come_in_order_and_may_be_inputs_or_parameters,
    infos_are_in_declaration_order,
    faults_name_what_was_wrong_and_the_closest_name,
    panicking_forms_panic_with_the_errors_text needs Unwinding,
    a_missing_error_text_is_never_a_number,
    the_f32_boundary_is_exact_or_an_error,
    unaligned_bytes_are_read_right,
    typed_parameters_take_their_type_or_a_float_that_fits_into_it,
    run_forms_agree,
    rows_of_the_last_run_can_be_read,
    lengths_tell_open_dimensions_or_the_caller_does,
    parameters_are_copy_on_write_between_clones,
    another_thread_may_run_a_clone needs Threads,
    an_active_extent_computes_the_first_rows,
    an_active_extent_in_an_inner_dimension_is_cut_out_and_put_back,
    graphs_without_a_router_say_so,
    an_op_nobody_computes_is_named,
    an_index_out_of_range_is_an_error,
    a_window_over_too_few_dimensions_is_an_error,
    the_greatest_of_nan_is_nan,
    integers_are_exact,
    remainders_of_negative_integers,
);

fn matmul_bias_gelu_gives_the_known_numbers_twice(d: Device) {
    let mut g = Graph::new("ffn");
    let x = g.input("x", f32s(&[2, 4]));
    let w = g.param("w", f32s(&[4, 3]));
    let b = g.param("b", f32s(&[3]));
    let y = g.matmul(x, w, f32s(&[2, 3]));
    let y = g.binary(BinaryOp::Add, y, b, f32s(&[2, 3]));
    let y = g.activation(Activation::Gelu, y, f32s(&[2, 3]));
    g.set_outputs(vec![y]);
    let mut c = compile(d, g);
    // Each column of w picks one element of x.
    c.set_param("w", &[1., 0., 0., 0., 1., 0., 0., 0., 1., 0., 0., 0.]);
    c.set_param("b", &[0.5, -0.5, 0.0]);
    let out = c.run(&[("x", &[1.0, 0.0, 0.0, 9.0, 0.0, 0.0, 0.0, 9.0])]);
    for (got, want) in out[0].iter().zip([1.399, -0.154, 0.0]) {
        assert!((got - want).abs() < 0.01, "{out:?}");
    }
    let zeros = c.run(&[("x", &[0.0; 8])]);
    for (got, want) in zeros[0].iter().zip([0.3457, -0.1543, 0.0]) {
        assert!((got - want).abs() < 0.01, "{zeros:?}");
    }
}

fn outputs_come_in_order_and_may_be_inputs_or_parameters(d: Device) {
    let mut g = Graph::new("same");
    let x = g.input("x", f32s(&[2]));
    let w = g.param("w", f32s(&[1]));
    g.set_outputs(vec![w, x, x]);
    let mut c = compile(d, g);
    c.set_param("w", &[7.0]);
    assert_eq!(c.run(&[("x", &[1.0, 2.0])]), [vec![7.0], vec![1.0, 2.0], vec![1.0, 2.0]]);
}

fn infos_are_in_declaration_order(d: Device) {
    let c = ready(d);
    let names: Vec<_> = c.inputs().iter().map(|i| (i.name.as_str(), i.dtype, i.shape.to_string())).collect();
    assert_eq!(names, [("x", DType::F32, "[2] f32".to_string())]);
    assert_eq!(c.params()[0].name, "w");
    assert_eq!(c.outputs().len(), 1);
    assert_eq!(c.device(), d);
    assert_eq!(c.precision(), rlx_runtime::Precision::F32);
    // Two f32 in an arena that only the CPU's executable says it has.
    assert!(d != Device::Cpu || c.memory().arena_bytes >= 8);
}

fn faults_name_what_was_wrong_and_the_closest_name(d: Device) {
    let mut c = compile(d, add());
    assert!(text(c.try_run(&[("x", &[1.0, 2.0])])).contains("\"w\" was never set"));
    let e = text(c.try_set_param("ww", &[1.0]));
    assert!(e.contains("\"ww\"") && e.contains("did you mean \"w\""), "{e}");
    let e = text(c.try_set_param("w", &[1.0]));
    assert!(e.contains("[2] f32") && e.contains("2 elements, but 1"), "{e}");
    c.set_param("w", &[0.0, 0.0]);
    assert!(text(c.try_run(&[])).contains("input \"x\" was not given"));
    let e = text(c.try_run(&[("X", &[1.0, 2.0])]));
    assert!(e.contains("no input \"X\"") && e.contains("\"x\""), "{e}");
    let e = text(c.try_run(&[("x", &[1.0])]));
    assert!(e.contains("\"x\" is [2] f32: 2 elements, but 1 were given"), "{e}");
    assert!(text(c.try_run(&[("x", &[0.; 2]), ("x", &[0.; 2])])).contains("twice"));
    assert!(text(c.try_run_slots(&[&[0.; 2], &[0.; 2]]).map(<[_]>::to_vec)).contains("takes 1: x"));
    assert!(text(c.try_run_read_outputs(&[("x", &[0.; 2])], Some(&[1]))).contains("no output 1"));
}

fn panicking_forms_panic_with_the_errors_text(d: Device) {
    let caught = std::panic::catch_unwind(|| compile(d, add()).run(&[("x", &[1.0, 2.0])]));
    let message = *caught.unwrap_err().downcast::<String>().unwrap();
    assert_eq!(message, text(compile(d, add()).try_run(&[("x", &[1.0, 2.0])])));
}

fn a_missing_error_text_is_never_a_number(d: Device) {
    // Duplicate names, shapes that do not fit, foreign ids: all found when compiling.
    rlx_contract::register();
    let session = Session::new(d);
    let mut duplicate = add();
    duplicate.input("x", f32s(&[1]));
    assert!(session.try_compile(duplicate).unwrap_err().to_string().contains("\"x\""));
    let mut g = Graph::new("bad");
    let (a, b) = (g.input("a", f32s(&[2, 3])), g.input("b", f32s(&[5, 4])));
    let y = g.matmul(a, b, f32s(&[2, 4]));
    g.set_outputs(vec![y]);
    let e = session.try_compile(g).unwrap_err();
    assert!(e.to_string().contains("[2, 3] f32") && e.to_string().contains("[5, 4] f32"), "{e}");
    assert_eq!(e.kind(), ErrorKind::Shape);
    let mut foreign = Graph::new("foreign");
    foreign.input("x", f32s(&[1]));
    foreign.set_outputs(vec![add().outputs[0]]);
    assert_eq!(session.try_compile(foreign).unwrap_err().kind(), ErrorKind::InvalidGraph);
}

fn the_f32_boundary_is_exact_or_an_error(d: Device) {
    let mut c = compile(d, ids());
    assert_eq!(c.run(&[("ids", &[3.0, -4.0])]), [[6.0, -8.0]]);
    let e = text(c.try_run(&[("ids", &[0.0, 1.5])]));
    assert!(e.contains("\"ids\"") && e.contains("element 1 is 1.5"), "{e}");
    let big = 16_777_217i64;
    let bytes: Vec<u8> = [big - 1, 1].iter().flat_map(|i| i.to_le_bytes()).collect();
    let out = c.run_typed(&[("ids", &bytes, DType::I64)]);
    let want: Vec<u8> = [2 * (big - 1), 2].iter().flat_map(|i| i.to_le_bytes()).collect();
    assert_eq!(out, [(want, DType::I64)]);
    // The first whole number that f32 does not have; where a device has none of 64 bits, it may be too large for it.
    let odd: Vec<u8> = [big, 1].iter().flat_map(|i| i.to_le_bytes()).collect();
    let mut same = Graph::new("same");
    let x = same.input("ids", Shape::new(&[2], DType::I64));
    same.set_outputs(vec![x]);
    let mut c = compile(d, same);
    if is_short_of_integers(d) {
        let e = c.try_run_typed(&[("ids", &odd, DType::I64)]).unwrap_err();
        return assert!(e.kind() == ErrorKind::Value && e.to_string().contains("\"ids\""), "{e}");
    }
    assert_eq!(c.run_typed(&[("ids", &odd, DType::I64)]), [(odd.clone(), DType::I64)]);
    c.commit_no_wait(&[("ids", &[1.0, 2.0])]);
    let e = text(c.try_run_typed(&[("ids", &odd, DType::F32)]));
    assert!(e.contains("[2] i64") && e.contains("f32"), "{e}");
    c.run_typed(&[("ids", &odd, DType::I64)]);
    let e = text(c.try_read_output(0));
    assert!(e.contains("16777217"), "{e}");
}

fn unaligned_bytes_are_read_right(d: Device) {
    let mut c = compile(d, ids());
    let mut bytes = vec![0u8];
    bytes.extend([5i64, 6].iter().flat_map(|i| i.to_le_bytes()));
    let want: Vec<u8> = [10i64, 12].iter().flat_map(|i| i.to_le_bytes()).collect();
    assert_eq!(c.run_typed(&[("ids", &bytes[1..], DType::I64)])[0].0, want);
}

fn typed_parameters_take_their_type_or_a_float_that_fits_into_it(d: Device) {
    let mut c = compile(d, add());
    c.set_param_typed("w", &[1f32, 2.0].map(f32::to_le_bytes).concat(), DType::F32);
    assert_eq!(c.run(&[("x", &[0.0, 0.0])]), [[1.0, 2.0]]);
    // 1.0 and 1.5 in f16.
    c.set_param_typed("w", &[0x00, 0x3c, 0x00, 0x3e], DType::F16);
    assert_eq!(c.run(&[("x", &[0.0, 0.0])]), [[1.0, 1.5]]);
    assert!(text(c.try_set_param_typed("w", &[0; 8], DType::I32)).contains("i32"));
    assert!(text(c.try_set_param_typed("w", &[0; 7], DType::F32)).contains("7 bytes"));
}

fn run_forms_agree(d: Device) {
    let mut c = compile(d, rows(sym::BATCH));
    let x: &[f32] = &[1.0, 2.0, 3.0, 4.0];
    let want = vec![vec![-1.0, -2.0, -3.0, -4.0], vec![1.0, 4.0, 9.0, 16.0]];
    let inputs: &[(&str, &[f32])] = &[("x", x)];
    assert_eq!(c.run(inputs), want);
    assert_eq!(c.run_read_outputs(inputs, None), want);
    assert_eq!(
        c.run_read_outputs(inputs, Some(&[1, 0, 1])),
        [want[1].clone(), want[0].clone(), want[1].clone()]
    );
    let slots = c.run_slots(&[x]).to_vec();
    assert_eq!(floats_at(&c, &slots), want);
    let raw = c.run_raw(inputs);
    // SAFETY: the pointers are valid until the next run.
    let raw: Vec<&[f32]> = raw.iter().map(|&(p, n)| unsafe { std::slice::from_raw_parts(p, n) }).collect();
    assert_eq!(raw, want);
    let (mut a, mut b) = ([0.0; 4], [0.0; 4]);
    c.run_into(inputs, &mut [&mut a, &mut b]);
    assert_eq!([a.to_vec(), b.to_vec()], want[..]);
    assert!(c.try_run_into(inputs, &mut [&mut a]).is_err());
    assert!(text(c.try_run_into(inputs, &mut [&mut a, &mut [0.0; 3]])).contains("4 elements"));
    c.commit_no_wait(inputs);
    c.sync_pending();
    let views: Vec<(Vec<usize>, Vec<f32>)> =
        c.output_views().map(|v| (v.dims.to_vec(), v.to_f32().unwrap())).collect();
    assert_eq!(views, [(vec![2, 2], want[0].clone()), (vec![2, 2], want[1].clone())]);
    let other: &[f32] = &[0.0, 1.0];
    let runs = c.run_pipelined(&[vec![("x", x)], vec![("x", other)]]);
    assert_eq!(runs, [want, vec![vec![-0.0, -1.0], vec![0.0, 1.0]]]);
}

fn rows_of_the_last_run_can_be_read(d: Device) {
    let mut c = compile(d, rows(sym::BATCH));
    assert_eq!(c.read_output_row(0, 0, 2), None);
    c.commit_no_wait(&[("x", &[1.0, 2.0, 3.0, 4.0])]);
    assert_eq!(c.read_output_row(1, 1, 2), Some(vec![9.0, 16.0]));
    assert_eq!(c.read_output_row(0, 0, 4), Some(vec![-1.0, -2.0, -3.0, -4.0]));
    for (out, row, inner) in [(2, 0, 2), (0, 2, 2), (0, usize::MAX, 2), (0, 0, 5)] {
        assert_eq!(c.read_output_row(out, row, inner), None);
    }
}

fn lengths_tell_open_dimensions_or_the_caller_does(d: Device) {
    let shape = Shape::from_dims(&[Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ)], DType::F32);
    let mut g = Graph::new("two");
    let x = g.input("x", shape.clone());
    let y = g.activation(Activation::Abs, x, shape);
    g.set_outputs(vec![y]);
    let mut c = compile(d, g);
    let e = c.try_run(&[("x", &[-1.0; 6])]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Dimension);
    assert!(e.to_string().contains("\"batch\""), "{e}");
    c.set_dims(&DimBinding::batch_seq(2, 3));
    assert_eq!(c.run(&[("x", &[-1.0; 6])]), [[1.0; 6]]);
    assert!(text(c.try_run(&[("x", &[-1.0; 5])])).contains("[2, 3] f32: 6 elements, but 5"));
    c.set_dims(&DimBinding::new());
    let bytes = [-1f32; 6].map(f32::to_le_bytes).concat();
    let view = TensorView { name: "x", dtype: DType::F32, dims: &[3, 2], bytes: &bytes };
    assert_eq!(c.try_run_tensors(&[view]).unwrap()[0].dims(), [3, 2]);
    let flat = TensorView { dims: &[6], ..view };
    assert!(text(c.try_run_tensors(&[flat])).contains("[batch, seq] f32, but was given [6] f32"));
}

fn parameters_are_copy_on_write_between_clones(d: Device) {
    let mut a = ready(d);
    let mut b = a.clone();
    b.set_param("w", &[10.0, 20.0]);
    assert_eq!(a.run(&[("x", &[0.0, 0.0])]), [[1.0, 2.0]]);
    assert_eq!(b.run(&[("x", &[0.0, 0.0])]), [[10.0, 20.0]]);
}

fn another_thread_may_run_a_clone(d: Device) {
    let mut a = ready(d);
    let mut b = a.clone();
    b.set_param("w", &[10.0, 20.0]);
    let moved = std::thread::spawn(move || b.run(&[("x", &[1.0, 1.0])])).join().unwrap();
    assert_eq!(moved, [[11.0, 21.0]]);
    assert_eq!(a.run(&[("x", &[1.0, 1.0])]), [[2.0, 3.0]]);
}

fn an_active_extent_computes_the_first_rows(d: Device) {
    for symbol in [sym::ROWS, sym::SEQ] {
        let mut c = compile(d, rows(symbol));
        c.set_active_extent(Some((1, 3)));
        // What is behind the actual rows is not read: it may be anything.
        let out = c.run(&[("x", &[1.0, 2.0, f32::NAN, 4.0, 5.0, 6.0])]);
        assert_eq!((out[1].len(), &out[1][..2]), (6, &[1.0, 4.0][..]));
        let slots = c.run_slots(&[&[3.0, 2.0, 0.0, 0.0, 0.0, 0.0]]).to_vec();
        assert_eq!(floats_at(&c, &slots)[1][..2], [9.0, 4.0]);
        assert!(c.try_run(&[("x", &[1.0, 2.0])]).is_err(), "the caller's tensors have the upper extent");
        c.set_active_extent(None);
        assert_eq!(c.run(&[("x", &[1.0, 2.0])])[1], [1.0, 4.0]);
        assert!(c.try_set_active_extent(Some((4, 3))).is_err());
    }
    assert!(text(ready(d).try_set_active_extent(Some((1, 2)))).contains("rows"));
}

fn an_active_extent_in_an_inner_dimension_is_cut_out_and_put_back(d: Device) {
    let shape = Shape::from_dims(&[Dim::Static(2), Dim::Dynamic(sym::SEQ)], DType::F32);
    let mut g = Graph::new("inner");
    let x = g.input("x", shape.clone());
    let y = g.activation(Activation::Neg, x, shape);
    g.set_outputs(vec![y]);
    let mut c = compile(d, g);
    c.set_active_extent(Some((2, 3)));
    let out = c.run(&[("x", &[1.0, 2.0, 9.0, 3.0, 4.0, 9.0])]);
    assert_eq!((&out[0][..2], &out[0][3..5]), (&[-1.0, -2.0][..], &[-3.0, -4.0][..]));
}

fn graphs_without_a_router_say_so(d: Device) {
    let mut c = ready(d);
    assert!(!c.enable_moe_topk_capture(4));
    assert_eq!(c.take_moe_topk_capture(), None);
    assert!(c.take_moe_residency_stats().is_none());
    assert!(text(c.try_set_moe_resident_experts(&[true])).contains("no router"));
    assert!(text(c.try_set_moe_resident_experts_per_layer(&[&[true]])).contains("no router"));
}

fn an_op_nobody_computes_is_named(d: Device) {
    rlx_contract::register();
    let mut g = Graph::new("custom");
    let x = g.input("x", f32s(&[2]));
    let op = Op::Custom { name: "mystery".into(), num_inputs: 1, attrs: Default::default() };
    let y = g.add_node(op, vec![x], f32s(&[2]));
    g.set_outputs(vec![y]);
    let e = Session::new(d).try_compile(g).unwrap_err().to_string();
    assert!(e.contains("Custom") && e.contains(d.name()) && e.contains("no kernel"), "{e}");
}

fn an_index_out_of_range_is_an_error(d: Device) {
    let mut g = Graph::new("rows");
    let table = g.param("table", f32s(&[3, 2]));
    let ids = g.input("ids", Shape::new(&[2], DType::I64));
    let y = g.gather(table, ids, 0, f32s(&[2, 2]));
    g.set_outputs(vec![y]);
    let mut c = compile(d, g);
    c.set_param("table", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(c.run(&[("ids", &[2.0, -3.0])]), [[5.0, 6.0, 1.0, 2.0]]);
    for bad in [3.0, -4.0] {
        let e = c.try_run(&[("ids", &[0.0, bad])]).unwrap_err();
        assert!(e.kind() == ErrorKind::Value && e.to_string().contains(&bad.to_string()), "{e}");
    }
    assert_eq!(c.run(&[("ids", &[0.0, 1.0])]), [[1.0, 2.0, 3.0, 4.0]], "it runs on after an error");
}

fn a_window_over_too_few_dimensions_is_an_error(d: Device) {
    rlx_contract::register();
    let mut g = Graph::new("pool");
    let x = g.input("x", f32s(&[1, 4, 4]));
    let op = Op::Pool {
        kind: rlx_ir::op::PoolKind::Max,
        kernel: vec![2, 2],
        strides: vec![2, 2],
        pads: vec![0; 4],
        dilations: vec![1, 1],
        ceil_mode: false,
        count_include_pad: false,
        format: rlx_ir::op::DataFormat::ChannelsFirst,
    };
    let y = g.add_node(op, vec![x], f32s(&[1, 2, 2]));
    g.set_outputs(vec![y]);
    let e = Session::new(d).try_compile(g).unwrap_err();
    assert!(e.kind() == ErrorKind::Shape && e.to_string().contains("[1, 4, 4] f32"), "{e}");
}

fn the_greatest_of_nan_is_nan(d: Device) {
    use rlx_ir::op::ReduceOp;
    for (op, n) in [(ReduceOp::Max, 3), (ReduceOp::Min, 3), (ReduceOp::Max, 40), (ReduceOp::Min, 40)] {
        let mut g = Graph::new("extreme");
        let x = g.input("x", f32s(&[n]));
        let y = g.reduce(x, op, vec![0], false, f32s(&[]));
        g.set_outputs(vec![y]);
        let mut c = compile(d, g);
        let numbers: Vec<f32> = (0..n).map(|i| 1.0 + i as f32).collect();
        let extreme = if op == ReduceOp::Max { n as f32 } else { 1.0 };
        assert_eq!(c.run(&[("x", &numbers)]), [[extreme]]);
        for at in [0, 1, n - 1] {
            let mut x = numbers.clone();
            x[at] = f32::NAN;
            assert!(c.run(&[("x", &x)])[0][0].is_nan(), "{op:?} of {n}, NaN at {at}");
        }
    }
}

fn remainders_of_negative_integers(d: Device) {
    let (x, y) = ([-7i32, 7, -7, 7, -6], [3i32, -3, -3, 3, 3]);
    let bytes = |v: &[i32; 5]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    for (op, want) in [(BinaryOp::Mod, [2, -2, -1, 1, 0]), (BinaryOp::Rem, [-1, 1, -1, 1, 0])] {
        let mut g = Graph::new("remainders");
        let shape = Shape::new(&[5], DType::I32);
        let (a, b) = (g.input("x", shape.clone()), g.input("y", shape.clone()));
        let z = g.binary(op, a, b, shape);
        g.set_outputs(vec![z]);
        let out = compile(d, g).run_typed(&[("x", &bytes(&x), DType::I32), ("y", &bytes(&y), DType::I32)]);
        assert_eq!(out[0].0, bytes(&want), "{op:?}");
    }
}

fn integers_are_exact(d: Device) {
    let mut g = Graph::new("inc");
    let shape = Shape::new(&[1], DType::I32);
    let (x, y) = (g.input("x", shape.clone()), g.input("y", shape.clone()));
    let z = g.binary(BinaryOp::Add, x, y, shape);
    g.set_outputs(vec![z]);
    let mut c = compile(d, g);
    let out = c.run_typed(&[
        ("x", &16_777_217i32.to_le_bytes(), DType::I32),
        ("y", &1i32.to_le_bytes(), DType::I32),
    ]);
    assert_eq!(out[0].0, 16_777_218i32.to_le_bytes());
}

/// Tensors without elements may have any other dimensions: they cost nothing.
fn nothing_takes_no_time_however_often(device: Device) {
    let source = "graph \"nothing\" {
  %0 = Input {name=\"x\"} : [rows, batch, 4] f32
  %1 = Transpose(%0) {perm=[2, 1, 0]} : [4, batch, rows] f32
  %2 = Softmax(%1) {axis=2} : [4, batch, rows] f32
  %3 = Reduce(%2) {op=Sum, axes=[0], keep_dim=false} : [batch, rows] f32
  return %1, %3
}";
    let mut compiled = compile(device, rlx_ir::text::parse(source).unwrap());
    let x: Vec<u8> = (1..=24u8).flat_map(|n| f32::from(n).to_le_bytes()).collect();
    for (rows, batch) in [(3, 2), (1 << 28, 0), (0, 1 << 28), (3, 2)] {
        let bytes = &x[..if rows * batch == 0 { 0 } else { x.len() }];
        let x = TensorView { name: "x", dtype: DType::F32, dims: &[rows, batch, 4], bytes };
        let outputs = compiled.try_run_tensors(&[x]).unwrap();
        assert_eq!((outputs[0].dims(), outputs[1].dims()), (&[4, batch, rows][..], &[batch, rows][..]));
    }
}
