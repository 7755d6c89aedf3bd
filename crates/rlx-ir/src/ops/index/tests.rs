use crate::dim::{Dim, DimBinding, Extent, sym};
use crate::oracle::{Bindings, evaluate, evaluate_op};
use crate::{DType, ErrorKind, Graph, Op, Shape, Value, op::ScatterOp};

fn ints(dims: &[usize], values: &[i128]) -> Value {
    Value::int(DType::I64, dims, values.to_vec())
}

fn run(op: Op, inputs: &[&Value]) -> crate::Result<Vec<i128>> {
    Ok(evaluate_op(&op, inputs, &[])?[0].ints()?.to_vec())
}

#[test]
fn negative_indices_count_from_the_end_and_others_are_checked() {
    let table = ints(&[3, 2], &[0, 1, 10, 11, 20, 21]);
    let got = run(Op::Gather { axis: 0 }, &[&table, &ints(&[3], &[-1, 0, -3])]).unwrap();
    assert_eq!(got, [20, 21, 0, 1, 0, 1]);
    for index in [3, -4, i128::from(i64::MIN)] {
        let e = run(Op::Gather { axis: 0 }, &[&table, &ints(&[1], &[index])]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Value, "{e}");
    }
    let floats = Value::float(DType::F32, &[1], vec![0.0]);
    assert_eq!(run(Op::Gather { axis: 0 }, &[&table, &floats]).unwrap_err().kind(), ErrorKind::DType);
}

#[test]
fn an_empty_table_is_fine_until_it_is_asked() {
    let (table, none) = (ints(&[0, 2], &[]), ints(&[0], &[]));
    assert_eq!(run(Op::Gather { axis: 0 }, &[&table, &none]).unwrap(), []);
    assert!(run(Op::Gather { axis: 0 }, &[&table, &ints(&[1], &[0])]).is_err());
}

#[test]
fn gathers_of_elements_and_of_slices() {
    let x = ints(&[2, 2], &[1, 2, 3, 4]);
    let got = run(Op::GatherElements { axis: 1 }, &[&x, &ints(&[2, 2], &[0, 0, 1, -2])]).unwrap();
    assert_eq!(got, [1, 1, 4, 3]);
    let x = ints(&[2, 2, 2], &[0, 1, 2, 3, 4, 5, 6, 7]);
    let got = run(Op::GatherNd { batch_dims: 1 }, &[&x, &ints(&[2, 1], &[1, 0])]).unwrap();
    assert_eq!(got, [2, 3, 4, 5]);
    let got = run(Op::GatherNd { batch_dims: 0 }, &[&x, &ints(&[1, 3], &[1, -1, 0])]).unwrap();
    assert_eq!(got, [6]);
}

#[test]
fn of_several_updates_the_last_is_set_and_all_are_added() {
    let (x, indices, updates) = (ints(&[3], &[1, 2, 3]), ints(&[3], &[1, 1, -1]), ints(&[3], &[5, 7, 9]));
    let go = |reduction| run(Op::ScatterElements { axis: 0, reduction }, &[&x, &indices, &updates]).unwrap();
    assert_eq!(go(ScatterOp::Set), [1, 7, 9]);
    assert_eq!(go(ScatterOp::Add), [1, 14, 12]);
    assert_eq!(go(ScatterOp::Mul), [1, 70, 27]);
    assert_eq!(go(ScatterOp::Max), [1, 7, 9]);
    assert_eq!(go(ScatterOp::Min), [1, 2, 3]);
    let rows = ints(&[3, 1], &[1, 1, -1]);
    assert_eq!(
        run(Op::ScatterNd { reduction: ScatterOp::Add }, &[&x, &rows, &updates]).unwrap(),
        [1, 14, 12]
    );
}

#[test]
fn a_triangle_far_off_the_matrix_is_all_or_nothing() {
    let x = ints(&[2, 2], &[1, 2, 3, 4]);
    for (k, want) in [(i64::MIN, [1, 2, 3, 4]), (i64::MAX, [0; 4]), (1, [0, 2, 0, 0]), (0, [1, 2, 0, 4])] {
        let op = Op::Trilu { upper: true, k: Extent::Const(k) };
        assert_eq!(run(op.clone(), &[&x]).unwrap(), want, "{k}");
        let mut graph = Graph::new("trilu");
        let id = graph.input("x", x.shape());
        let y = op.def().decompose(&op, &[id], &mut graph).unwrap().unwrap();
        graph.set_outputs(y);
        let mut bindings = Bindings::default();
        bindings.set_input("x", x.clone());
        assert_eq!(evaluate(&graph, &bindings).unwrap()[0].ints().unwrap(), want, "{k}");
    }
}

#[test]
fn symbolic_triangles_and_one_hot_rows_decompose() {
    let past = Extent::sym(sym::PAST_SEQ);
    let (rows, columns) = (Dim::Dynamic(sym::SEQ), Dim::from(Extent::sym(sym::SEQ) + past));
    let mut graph = Graph::new("mask");
    let x = graph.input("x", Shape::from_dims(&[rows, columns], DType::I64));
    let p = graph.input("p", Shape::from_dims(&[Dim::Dynamic(sym::PAST_SEQ)], DType::I64));
    let values = graph.constant(Value::bools(&[2], [false, true]).to_const());
    let lower = graph.try_add(Op::Trilu { upper: false, k: past - 1 }, &[x]).unwrap();
    let hot = graph.try_add(Op::OneHot { depth: columns, axis: 0 }, &[p, values]).unwrap();
    graph.set_outputs(vec![lower, hot]);
    assert_eq!(crate::text::parse(&graph.to_string()).unwrap(), graph);
    let simple = crate::decompose::decompose_all(&graph, |_| true).unwrap().unwrap();
    crate::verify_ok(&simple).unwrap();
    for (seq, past) in [(1, 1), (2, 3), (4, 2)] {
        let n = seq * (seq + past);
        let mut bindings = Bindings::default();
        bindings.set_input("x", ints(&[seq, seq + past], &(1..=n as i128).collect::<Vec<_>>()));
        bindings.set_input("p", ints(&[past], &(0..past as i128).map(|i| i - 1).collect::<Vec<_>>()));
        let want = evaluate(&graph, &bindings).unwrap();
        assert_eq!(evaluate(&simple, &bindings).unwrap(), want, "{seq} {past}");
        let bound = graph.bind(&DimBinding::from_pairs(&[(sym::SEQ, seq), (sym::PAST_SEQ, past)]));
        assert_eq!(evaluate(&bound, &bindings).unwrap(), want);
    }
}
