use super::parts::short_shape;
use super::*;
use rlx_ir::{DType, GraphExt, NodeId, Shape};

fn f32s(dims: &[usize]) -> Shape {
    Shape::new(dims, DType::F32)
}

/// A residual block of two matmuls, with a mask shared by all blocks.
fn block(g: &mut Graph, x: NodeId, mask: NodeId, layer: usize) -> NodeId {
    let up = g.param(format!("up{layer}"), f32s(&[8, 16]));
    let down = g.param(format!("down{layer}"), f32s(&[16, 8]));
    let y = g.mm(x, up);
    let y = g.gelu(y);
    let y = g.mm(y, down);
    let y = g.mul(y, mask);
    g.add(x, y)
}

fn tower(layers: usize) -> Graph {
    let mut g = Graph::new("tower");
    let mut x = g.input("x", f32s(&[4, 8]));
    let m = g.input("m", f32s(&[4, 8]));
    let mut mask = None;
    for layer in 0..layers {
        // The mask is made within the first layer, as exporters do it.
        let mask = *mask.get_or_insert_with(|| g.sigmoid(m));
        x = block(&mut g, x, mask, layer);
    }
    let y = g.relu(x);
    g.set_outputs(vec![y]);
    g
}

fn titles(diagram: &Diagram) -> Vec<&str> {
    diagram.boxes.iter().map(|b| b.title.as_str()).collect()
}

#[test]
fn equal_layers_are_drawn_once_whatever_they_share() {
    let graph = tower(12);
    let diagram = Diagram::of(&graph, &["y".to_owned()]);
    assert_eq!(
        titles(&diagram),
        ["x", "m", "Sigmoid", "MatMul", "Gelu", "MatMul", "Mul", "Add", "Relu", "y"]
    );
    assert_eq!(diagram.blocks, [Block { times: 12, boxes: 3..8 }]);
    assert!(diagram.boxes[3..8].iter().all(|b| b.times == 12 && b.nodes.len() == 12));
    let up = &diagram.boxes[3].params[0];
    assert_eq!(
        (up.name.as_str(), up.shape.as_str(), up.bytes, up.nodes.len()),
        ("up0", "[8, 16] f32", 512, 12)
    );
    // Into the block: x twice and the mask; out of it: what its last box gives.
    let ends: Vec<(usize, usize)> = diagram.edges.iter().map(|e| (e.from, e.to)).collect();
    assert_eq!(ends, [(0, 3), (0, 7), (1, 2), (2, 6), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8), (8, 9)]);
    assert_eq!(diagram.parameter_bytes, 12 * 1024);
}

#[test]
fn a_layer_that_differs_is_drawn_apart() {
    let mut g = tower(5);
    let before = g.outputs[0];
    let w = g.param("w", f32s(&[8, 8]));
    let y = g.mm(before, w);
    let y = g.gelu(y);
    g.set_outputs(vec![y]);
    let diagram = Diagram::of(&g, &[]);
    assert_eq!(diagram.blocks.len(), 1);
    assert_eq!(diagram.blocks[0].times, 5);
    assert_eq!(titles(&diagram)[8..], ["Relu", "MatMul", "Gelu", "output0"]);
}

#[test]
fn what_is_read_from_within_keeps_a_block_apart() {
    // The third layer's result is an operand of the head: four layers then are not one block of four.
    let mut g = Graph::new("skip");
    let (mut x, m) = (g.input("x", f32s(&[4, 8])), g.input("m", f32s(&[4, 8])));
    let mut kept = x;
    for layer in 0..4 {
        x = block(&mut g, x, m, layer);
        if layer == 1 {
            kept = x;
        }
    }
    let y = g.sub(x, kept);
    g.set_outputs(vec![y]);
    let diagram = Diagram::of(&g, &[]);
    let times: Vec<usize> = diagram.blocks.iter().map(|b| b.times).collect();
    assert_eq!(times, [2, 2]);
}

#[test]
fn blocks_with_inputs_and_outputs_of_their_own_are_one_block() {
    let mut g = Graph::new("cache");
    let mut x = g.input("x", f32s(&[1, 8]));
    let past: Vec<NodeId> = (0..6).map(|l| g.input(format!("past.{l}"), f32s(&[3, 8]))).collect();
    let mut outputs = vec![x];
    for (layer, &past) in past.iter().enumerate() {
        let w = g.param(format!("w{layer}"), f32s(&[8, 8]));
        let y = g.mm(x, w);
        let present = g.concat_(&[past, y], 0);
        outputs.push(present);
        let mean = g.mean(present, &[0], true);
        x = g.add(x, mean);
    }
    outputs[0] = x;
    g.set_outputs(outputs);
    let names: Vec<String> =
        std::iter::once("y".to_owned()).chain((0..6).map(|l| format!("present.{l}"))).collect();
    let diagram = Diagram::of(&g, &names);
    assert_eq!((diagram.blocks.len(), diagram.blocks[0].times), (1, 6));
    let titles = titles(&diagram);
    assert!(titles.contains(&"past.0 … past.5") && titles.contains(&"present.0 … present.5"), "{titles:?}");
    let past = &diagram.boxes[titles.iter().position(|t| t.starts_with("past")).unwrap()];
    assert_eq!((past.times, past.nodes.len()), (6, 6));
}

#[test]
fn views_in_a_row_are_one_box_and_prepared_weights_are_said_to_be() {
    let mut g = Graph::new("views");
    let x = g.input("x", f32s(&[2, 3, 4]));
    let w = g.param("w", f32s(&[5, 4]));
    let flipped = g.transpose_(w, &[1, 0]);
    let y = g.mm(x, flipped);
    let y = g.transpose_(y, &[1, 0, 2]);
    let y = g.reshape_(y, &[3, 10]);
    g.set_outputs(vec![y]);
    let diagram = Diagram::of(&g, &[]);
    assert_eq!(titles(&diagram), ["x", "MatMul", "Transpose · Reshape", "output0"]);
    let w = &diagram.boxes[1].params[0];
    assert!(w.prepared && w.name == "w" && w.shape == "[5, 4] f32");
    assert_eq!(diagram.boxes[2].nodes.len(), 2);
}

#[test]
fn a_weight_that_is_an_output_is_a_box() {
    let mut g = Graph::new("fixed");
    let w = g.param("w", f32s(&[2]));
    g.set_outputs(vec![w, w]);
    let diagram = Diagram::of(&g, &["a".to_owned(), "b".to_owned()]);
    assert_eq!(diagram.boxes[0].kind, BoxKind::Parameter);
    assert_eq!(titles(&diagram), ["w", "a … b"]);
    diagram.svg().unwrap();
}

#[test]
fn the_text_for_graphviz_is_this() {
    let mut g = Graph::new("a \"small\" one");
    let mut x = g.input("x", f32s(&[1, 4]));
    for layer in 0..3 {
        let w = g.param(format!("w{layer}"), f32s(&[4, 4]));
        x = g.mm(x, w);
        x = g.relu(x);
    }
    g.set_outputs(vec![x]);
    let expected = r##"digraph "a \"small\" one" {
  node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=11];
  edge [fontname="monospace", fontsize=9];
    n0 [label="x", fillcolor="#dbeafe", tooltip="%0 Input \"x\""];
  subgraph cluster_0 {
    label="× 3";
    style="rounded,dashed";
    n1 [label="MatMul\nw0 [4, 4] f32 · 64 B", fillcolor="#f3f4f6", tooltip="%2 MatMul\n%5 MatMul\n%8 MatMul"];
    n2 [label="Relu", fillcolor="#f3f4f6", tooltip="%3 Activation\n%6 Activation\n%9 Activation"];
  }
    n3 [label="output0", fillcolor="#dcfce7", tooltip=""];
  n0 -> n1 [label="[1, 4] f32"];
  n1 -> n2 [label="[1, 4] f32"];
  n2 -> n3 [label="[1, 4] f32"];
}
"##;
    assert_eq!(Diagram::of(&g, &[]).dot(), expected);
}

#[test]
fn an_empty_graph_and_a_huge_one_do_not_panic() {
    assert!(Diagram::of(&Graph::new("empty"), &[]).svg().unwrap().contains("empty"));
    let mut g = Graph::new("huge");
    let mut x = g.input("x", f32s(&[4]));
    let z = g.input("z", f32s(&[4]));
    for _ in 0..1600 {
        // Each result is larger than the one before, so that nothing repeats.
        x = g.concat_(&[x, z], 0);
    }
    g.set_outputs(vec![x]);
    let error = Diagram::of(&g, &[]).svg().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn long_dimensions_are_left_out_of_labels() {
    assert_eq!(short_shape("[2, 3] f32"), "[2, 3] f32");
    assert_eq!(short_shape("[] i64"), "[] i64");
    assert_eq!(
        short_shape("[batch, floor(1 + height, 2), max(1, n), 64] f32"),
        "[batch, …, max(1, n), 64] f32"
    );
}
