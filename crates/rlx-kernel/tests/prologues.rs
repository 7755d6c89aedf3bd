//! What is before an op, computed where its kernel loads the operand.

mod common;

use std::sync::Arc;

use common::{agree, native, shorts, try_module, words};
use rlx_ir::oracle::{Bindings, bind_dims};
use rlx_ir::testing::Gen;
use rlx_ir::{DimBinding, Graph, Op, OpKind, text};
use rlx_kernel::KernelTarget;
use rlx_kernel::interp::{Counters, Executable, Sample};

/// A device without workgroup memory of its own.
fn processor() -> KernelTarget {
    KernelTarget { is_processor: true, ..words() }
}

/// The kinds of ops in each step of the graph, those of regions joined.
fn steps(graph: &Graph, target: &KernelTarget) -> Vec<String> {
    let module = try_module(graph, target).unwrap();
    let node = |step: &rlx_ir::lir::Step| module.graph.node(step.node).clone();
    let name = |op: &Op| match op {
        Op::Region { body } => body.graph.name.clone(),
        op => op.kind().name().to_owned(),
    };
    module.steps.iter().map(|step| name(&node(step).op)).collect()
}

/// Values for every input and parameter, whose dimensions the text fixes.
fn values(graph: &Graph) -> Bindings {
    let (mut bindings, mut g) = (Bindings::default(), Gen::new(11));
    for node in graph.inputs().chain(graph.params()) {
        let dims = node.shape.static_dims().unwrap();
        let range = if node.shape.dtype().is_float() { 0.25..1.0 } else { 0.0..9.0 };
        let value = g.value(node.shape.dtype(), &dims, range);
        match &node.op {
            Op::Param { name } => _ = bindings.set_param(name.clone(), value),
            Op::Input { name } => _ = bindings.set_input(name.clone(), value),
            op => panic!("{}", op.kind()),
        }
    }
    bind_dims(graph, &bindings).unwrap();
    bindings
}

/// Checks the steps of a graph on each device, and its results.
fn check(graph: &str, devices: &[KernelTarget], want: &[&str]) {
    let graph = text::parse(graph).unwrap_or_else(|e| panic!("{e}\n{graph}"));
    let bindings = values(&graph);
    for device in devices {
        assert_eq!(steps(&graph, device), want, "{}\n{graph}", device.name);
        agree(&graph, &bindings, device);
    }
}

#[test]
fn rows_are_computed_as_they_are_read() {
    for (dtype, rows) in [("f32", 3), ("f16", 3), ("f32", 700)] {
        // Longer than what one invocation reads, and than there is room for in workgroup memory.
        let (x, y) = (format!("[2, {}] {dtype}", rows * 7), format!("[2] {dtype}"));
        let graph = format!(
            r#"graph "squares" {{
              %0 = Input {{name="x"}} : {x}
              %1 = Input {{name="mean"}} : [2, 1] {dtype}
              %2 = Binary.Sub(%0, %1) : {x}
              %3 = Binary.Mul(%2, %2) : {x}
              %4 = Reduce(%3) {{op=Mean, axes=[1], keep_dim=false}} : {y}
              %5 = Softmax(%2) {{axis=-1}} : {x}
              return %4, %5
            }}"#
        );
        // The difference has two readers, but only one of them is the square.
        check(&graph, &[native(), words(), shorts(), processor()], &["Binary", "Mul+Reduce", "Softmax"]);
        let alone = graph.replace("Softmax(%2)", "Softmax(%0)");
        check(&alone, &[native(), words(), shorts(), processor()], &["Sub+Mul+Reduce", "Softmax"]);
    }
}

#[test]
fn norms_and_softmax_compute_what_is_before_them() {
    for op in ["Softmax(%3) {axis=-1}", "LogSoftmax(%3) {axis=-1}", "RmsNorm(%3, %2) {axis=-1, eps=0.1}"] {
        let graph = format!(
            r#"graph "rows" {{
              %0 = Input {{name="x"}} : [3, 40] f32
              %1 = Input {{name="y"}} : [3, 40] f32
              %2 = Param {{name="gamma"}} : [40] f32
              %3 = Binary.Add(%0, %1) : [3, 40] f32
              %4 = {op} : [3, 40] f32
              return %4
            }}"#
        );
        let name = op.split('(').next().unwrap();
        check(&graph, &[native(), words(), shorts(), processor()], &[&format!("Add+{name}")]);
    }
}

#[test]
fn matmuls_and_convolutions_load_bytes() {
    let matmul = r#"graph "bytes" {
      %0 = Input {name="x"} : [37, 20] u8
      %1 = Param {name="w"} : [20, 33] f32
      %2 = Param {name="zero"} : [] f32
      %3 = Param {name="scale"} : [] f32
      %4 = Cast(%0) {to=f32} : [37, 20] f32
      %5 = Binary.Sub(%4, %2) : [37, 20] f32
      %6 = Binary.Mul(%5, %3) : [37, 20] f32
      %7 = MatMul(%6, %1) : [37, 33] f32
      %8 = Activation.Relu(%7) : [37, 33] f32
      return %8
    }"#;
    check(matmul, &[native(), words(), shorts()], &["Cast+Sub+Mul+MatMul+Relu"]);
    check(matmul, &[processor()], &["Cast+Sub+Mul", "MatMul+Relu"]);
    let conv = r#"graph "bytes" {
      %0 = Input {name="x"} : [2, 3, 9, 8] u8
      %1 = Param {name="w"} : [4, 3, 3, 3] f32
      %2 = Param {name="zero"} : [] f32
      %3 = Cast(%0) {to=f32} : [2, 3, 9, 8] f32
      %4 = Binary.Sub(%3, %2) : [2, 3, 9, 8] f32
      %5 = Conv(%4, %1) {strides=[1, 2], pads=[1, 1, 1, 1], dilations=[1, 1], groups=1, format=ChannelsFirst} : [2, 4, 9, 4] f32
      return %5
    }"#;
    // What is beyond the border is 0, not what is before the convolution made of 0.
    check(conv, &[native(), words(), shorts()], &["Cast+Sub+Conv"]);
}

#[test]
fn what_costs_more_than_it_spares_stays_a_step() {
    let of_two = r#"graph "gate" {
      %0 = Input {name="x"} : [37, 20] f32
      %1 = Input {name="y"} : [37, 20] f32
      %2 = Param {name="w"} : [20, 33] f32
      %3 = Binary.Mul(%0, %1) : [37, 20] f32
      %4 = MatMul(%3, %2) : [37, 33] f32
      return %4
    }"#;
    check(of_two, &[native(), words()], &["Binary", "MatMul"]);
    let exponential = of_two.replace("Binary.Mul(%0, %1)", "Activation.Exp(%0)");
    check(&exponential, &[native(), words()], &["Activation", "MatMul"]);
    // Read by the steps after it, too.
    let used =
        of_two.replace("Binary.Mul(%0, %1)", "Activation.Relu(%0)").replace("return %4", "return %3, %4");
    check(&used, &[native(), words()], &["Activation", "MatMul"]);
}

/// Scores of `queries` queries for each of three heads, with keys in pages of a table.
fn paged(queries: usize) -> String {
    format!(
        r#"graph "pages" {{
          %0 = Input {{name="q"}} : [2, 3, {queries}, 8] f32
          %1 = Input {{name="pages"}} : [10, 4, 3, 8] f32
          %2 = Input {{name="table"}} : [2, 5] i64
          %3 = Gather(%1, %2) {{axis=0}} : [2, 5, 4, 3, 8] f32
          %4 = Reshape(%3) {{to=[2, 20, 3, 8]}} : [2, 20, 3, 8] f32
          %5 = Transpose(%4) {{perm=[0, 2, 3, 1]}} : [2, 3, 8, 20] f32
          %6 = MatMul(%0, %5) : [2, 3, {queries}, 20] f32
          return %6
        }}"#
    )
}

#[test]
fn gathers_are_computed_where_few_queries_read_them() {
    let all = [native(), words(), shorts(), processor()];
    let together = ["Gather+Transpose+Reshape+MatMul"];
    check(&paged(1), &all, &together);
    check(&paged(8), &all, &together);
    // Rows that share a load are one of them.
    check(&paged(40), &all, &together);
    check(&paged(600), &all[1..2], &["Gather", "MatMul"]);
    let cast = paged(2)
        .replace("[10, 4, 3, 8] f32", "[10, 4, 3, 8] f16")
        .replace("[2, 5, 4, 3, 8] f32", "[2, 5, 4, 3, 8] f16");
    let cast = cast.replace("%6 = MatMul", "%7 = MatMul").replace("%5 = ", "%6 = ").replace("%4 = ", "%5 = ");
    let cast = cast
        .replace("Transpose(%4)", "Transpose(%5)")
        .replace("(%0, %5)", "(%0, %6)")
        .replace("return %6", "return %7");
    let cast = cast.replace(
        "%5 = Reshape(%3)",
        "%4 = Cast(%3) {to=f32} : [2, 5, 4, 3, 8] f32\n          %5 = Reshape(%4)",
    );
    check(&cast, &all, &["Gather+Cast+Transpose+Reshape+MatMul"]);
    // Items that share keys read them several times, many of them too often.
    let shared = |items: usize| {
        let shared = paged(1).replace("[2, 3, 1,", &format!("[{items}, 3, 1,")).replace("[2, 5]", "[5]");
        let shared = shared.replace("[2, 5, 4, 3, 8]", "[5, 4, 3, 8]").replace("[2, 20, 3, 8]", "[20, 3, 8]");
        shared.replace("perm=[0, 2, 3, 1]", "perm=[1, 2, 0]").replace("[2, 3, 8, 20]", "[3, 8, 20]")
    };
    check(&shared(2), &all, &together);
    check(&shared(9), &all, &["Gather", "MatMul"]);
}

#[test]
fn a_gather_in_its_reader_moves_fewer_bytes() {
    let graph = text::parse(&paged(1)).unwrap();
    let counted = |producers: bool| {
        let fusion = rlx_opt::FusionOptions { producers, ..rlx_opt::FusionOptions::default() };
        let options = rlx_opt::CompileOptions::default().fusion_opts(fusion);
        let module = rlx_opt::CompilePipeline::new(Arc::new(words()), options).compile(&graph).unwrap().lir;
        let executable = Executable::new(Arc::new(module), &words()).unwrap();
        let mut sum = Counters::default();
        executable.count(&DimBinding::new(), Sample(3)).unwrap().iter().for_each(|c| sum += c.counters);
        sum
    };
    let (together, apart) = (counted(true), counted(false));
    assert!(together.accesses < apart.accesses, "{together} {apart}");
    assert!(2 * together.sectors < apart.sectors, "{together} {apart}");
}

#[test]
fn options_turn_it_off() {
    let graph = text::parse(
        r#"graph "squares" {
          %0 = Input {name="x"} : [4, 6] f32
          %1 = Binary.Mul(%0, %0) : [4, 6] f32
          %2 = Reduce(%1) {op=Sum, axes=[1], keep_dim=false} : [4] f32
          return %2
        }"#,
    );
    let options = rlx_opt::CompileOptions::default();
    let fusion = rlx_opt::FusionOptions { producers: false, ..rlx_opt::FusionOptions::default() };
    let pipeline = rlx_opt::CompilePipeline::new(Arc::new(native()), options.fusion_opts(fusion));
    let module = pipeline.compile(&graph.unwrap()).unwrap().lir;
    let kinds: Vec<OpKind> = module.steps.iter().map(|s| module.graph.node(s.node).op.kind()).collect();
    assert_eq!(kinds, [OpKind::Binary, OpKind::Reduce]);
}
