//! The contract of `rlx_ir`'s graph and its builders, by its public names.

use rlx_ir::op::{Activation, BinaryOp, CmpOp, MaskKind, ReduceOp};
use rlx_ir::oracle::{Bindings, evaluate};
use rlx_ir::{
    ConstData, DType, Dim, Graph, GraphExt, Node, NodeId, Op, OpKind, Shape, Value, VerifyError, verify,
};

fn f32s(dims: &[usize]) -> Shape {
    Shape::new(dims, DType::F32)
}

#[test]
fn every_builder_of_the_contract_makes_a_valid_node() {
    let mut g = Graph::new("all");
    let x = g.input("x", f32s(&[2, 3, 8]));
    let w = g.param("w", f32s(&[8, 8]));
    let y = g.matmul(x, w, f32s(&[2, 3, 8]));
    let y = g.binary(BinaryOp::Add, y, x, f32s(&[2, 3, 8]));
    let y = g.activation(Activation::Gelu, y, f32s(&[2, 3, 8]));
    let gamma = g.param("gamma", f32s(&[8]));
    let beta = g.param("beta", f32s(&[8]));
    let y = g.layer_norm(y, gamma, beta, -1, 1e-5, f32s(&[2, 3, 8]));
    let mask = g.input("mask", f32s(&[2, 1, 3, 3]));
    let y = g.attention(y, y, y, mask, 2, 4, f32s(&[2, 3, 8]));
    let y = g.attention(y, y, y, None::<NodeId>, 2, 4, f32s(&[2, 3, 8]));
    let y = g.softmax(y, -1, f32s(&[2, 3, 8]));
    let sum = g.reduce(y, ReduceOp::Sum, vec![1], true, f32s(&[2, 1, 8]));
    let both = g.concat(vec![y, sum], 1, f32s(&[2, 4, 8]));
    let flat = g.reshape(both, vec![0, -1], f32s(&[2, 32]));
    let ids = g.input("ids", Shape::new(&[5], DType::I64));
    let rows = g.gather(flat, ids, 1, f32s(&[2, 5]));
    let image = g.input("image", f32s(&[1, 3, 8, 8]));
    let kernel = g.param("kernel", f32s(&[4, 3, 3, 3]));
    let conv = g.conv2d(image, kernel, [3, 3], [2, 2], [1, 1], [1, 1], 1);
    let other = g.add_node(Op::Cast { to: DType::F64 }, vec![rows], Shape::new(&[2, 5], DType::F64));
    g.set_outputs(vec![rows, conv, other, x, w]);
    assert_eq!(verify(&g), [], "{g}");
    assert_eq!(g.shape(conv), &f32s(&[1, 4, 4, 4]));
    assert_eq!((g.name.as_str(), g.outputs.len(), g.is_empty()), ("all", 5, false));
    assert_eq!(g.nodes().len(), g.len());
    let node: &Node = g.node(rows);
    assert_eq!((node.id, node.op.kind(), node.inputs.len(), &node.name), (rows, OpKind::Gather, 2, &None));
    assert_eq!(node.shape, f32s(&[2, 5]));
    // The text form reads back to an equal graph.
    assert_eq!(rlx_ir::text::parse(&g.to_string()).unwrap(), g);
    assert_eq!(g.clone(), g);
}

#[test]
fn a_wrong_shape_is_reported_with_node_shapes_and_rule() {
    let mut g = Graph::new("wrong");
    let x = g.input("x", f32s(&[2, 4]));
    let w = g.param("w", f32s(&[4, 3]));
    let y = g.matmul(x, w, f32s(&[2, 4]));
    g.set_outputs(vec![y]);
    let faults: Vec<VerifyError> = verify(&g);
    assert_eq!(faults.len(), 1);
    assert_eq!(faults[0].node, Some(y));
    let text = faults[0].to_string();
    assert!(
        text.contains("%2 MatMul") && text.contains("[2, 4] f32") && text.contains("[2, 3] f32"),
        "{text}"
    );
}

#[test]
fn foreign_ids_and_duplicate_names_are_errors() {
    let mut other = Graph::new("other");
    let foreign = other.input("x", f32s(&[2]));
    let mut g = Graph::new("g");
    g.input("x", f32s(&[2]));
    let y = g.activation(Activation::Relu, foreign, f32s(&[2]));
    g.set_outputs(vec![y]);
    assert!(verify(&g)[0].to_string().contains("another graph"));
    assert!(g.try_relu(foreign).is_err());

    let mut g = Graph::new("g");
    g.input("x", f32s(&[2]));
    g.input("x", f32s(&[2]));
    assert!(verify(&g)[0].to_string().contains("\"x\""));
}

#[test]
fn builders_keep_faults_until_the_graph_is_verified() {
    let mut g = Graph::new("g");
    let x = g.input("x", f32s(&[2, 3]));
    let faulty = g.sum(x, &[7], false);
    let built_on_it = g.relu(faulty);
    let also = g.add(built_on_it, x);
    let conv = g.conv2d(x, x, [3, 3], [1, 1], [0, 0], [1, 1], 1);
    g.set_outputs(vec![also, conv]);
    let faults = verify(&g);
    assert_eq!(faults.len(), 2, "one for each mistake: {faults:?}");
    assert!(faults[0].to_string().contains("axis 7"), "{}", faults[0]);
    assert!(faults[1].to_string().contains("conv2d"), "{}", faults[1]);
    assert!(g.try_sum(x, &[7], false).is_err());
    // A faulty graph survives printing and reading, too.
    assert_eq!(verify(&rlx_ir::text::parse(&g.to_string()).unwrap()), faults);
}

#[test]
fn short_forms_infer_shapes() {
    let mut g = Graph::new("short");
    let x = g.input("x", f32s(&[2, 6]));
    let two = g.constant(ConstData::from_f32(&[], &[2.0]).unwrap());
    let half = g.scalar(0.5, DType::F32);
    let chain = [
        g.add(x, two),
        g.sub(x, two),
        g.mul(x, half),
        g.div(x, two),
        g.maximum(x, half),
        g.minimum(x, half),
        g.pow(x, two),
        g.relu(x),
        g.gelu(x),
        g.gelu_approx(x),
        g.silu(x),
        g.sigmoid(x),
        g.tanh(x),
        g.exp(x),
        g.ln(x),
        g.sqrt(x),
        g.rsqrt(x),
        g.neg(x),
        g.abs(x),
        g.sin(x),
        g.cos(x),
        g.sm(x, -1),
        g.log_sm(x, 0),
    ];
    assert!(chain.iter().all(|&id| g.shape(id) == &f32s(&[2, 6])));
    let gamma = g.param("gamma", f32s(&[6]));
    let normed = [g.rms_norm(x, gamma, 1e-5), g.layer_norm_(x, gamma, gamma, -1, 1e-5)];
    assert!(normed.iter().all(|&id| g.shape(id) == &f32s(&[2, 6])));
    let shapes = |g: &Graph, id: NodeId| g.shape(id).to_string();
    let less = g.compare(CmpOp::Lt, x, half);
    assert_eq!(shapes(&g, less), "[2, 6] bool");
    let chosen = g.where_(less, x, half);
    assert_eq!(shapes(&g, chosen), "[2, 6] f32");
    let cast = g.cast(x, DType::F16);
    assert_eq!(shapes(&g, cast), "[2, 6] f16");
    let (sum, mean) = (g.sum(x, &[-1], false), g.mean(x, &[], true));
    assert_eq!((shapes(&g, sum), shapes(&g, mean)), ("[2] f32".to_string(), "[1, 1] f32".to_string()));
    let reshaped = g.reshape_(x, &[3, -1]);
    let turned = g.transpose_(reshaped, &[1, 0]);
    assert_eq!(shapes(&g, turned), "[4, 3] f32");
    let product = g.mm(reshaped, turned);
    assert_eq!(shapes(&g, product), "[3, 3] f32");
    let piece = g.narrow_(x, 1, 2, 3);
    let joined = g.concat_(&[piece, x], -1);
    assert_eq!(shapes(&g, joined), "[2, 9] f32");
    let ids = g.input("ids", Shape::new(&[4], DType::I64));
    let rows = g.gather_(x, ids, 0);
    assert_eq!(shapes(&g, rows), "[4, 6] f32");
    let grown = g.expand_(two, &[Dim::Static(2), Dim::Static(1)]);
    assert_eq!(shapes(&g, grown), "[2, 1] f32");
    let q = g.input("q", f32s(&[1, 5, 8]));
    let table = g.input("table", f32s(&[5, 2]));
    let turned = g.rope(q, table, table, 4, 4);
    let attended = g.attention_(turned, q, q, None, 2, 4, MaskKind::Causal);
    assert_eq!(shapes(&g, attended), "[1, 5, 8] f32");
    assert_eq!(verify(&g), []);
}

#[test]
fn the_activations_are_the_named_functions() {
    let mut g = Graph::new("gelu");
    let x = g.input("x", f32s(&[3]));
    let (exact, tanh) = (g.gelu(x), g.gelu_approx(x));
    g.set_outputs(vec![exact, tanh]);
    let mut bindings = Bindings::default();
    bindings.set_input("x", Value::float(DType::F32, &[3], vec![1.5, -0.5, 0.0]));
    let y = evaluate(&g, &bindings).unwrap();
    for (got, want) in y[0].to_f64().iter().zip([1.39979, -0.15427, 0.0]) {
        assert!((got - want).abs() < 1e-5, "{got} {want}");
    }
    let differ = y[0].to_f64().iter().zip(y[1].to_f64()).any(|(a, b)| (a - b).abs() > 1e-6);
    assert!(differ, "the tanh form is an approximation");
}
