//! Lowering: views instead of movement steps, placement of concatenations, the init program, the plan.

use std::sync::Arc;

use rlx_ir::lir::{BufferKind, StepKind, View};
use rlx_ir::op::PackFormat;
use rlx_ir::{DimBinding, ErrorKind, Graph, Node, Op, text};
use rlx_opt::pipeline::PassContext;
use rlx_opt::{Claim, CompileOptions, CompilePipeline, CompileResult, Target, lower};

/// A device that claims every op and reads and writes any view.
struct Anything;

impl Target for Anything {
    fn name(&self) -> &str {
        "anything"
    }

    fn claim(&self, _: &Node, _: &Graph) -> Claim {
        Claim::Native
    }

    fn fuses(&self, _: Option<&Node>, _: &Node, _: &Graph) -> bool {
        false
    }

    fn reads_view(&self, op: &Op, _: usize, _: &View) -> bool {
        !matches!(op, Op::Activation(_))
    }

    fn writes_view(&self, _: &Op, _: &View) -> bool {
        true
    }

    fn pack_format(&self, _: &Node, _: usize, _: &Graph) -> Option<PackFormat> {
        None
    }
}

/// The same, whose matmuls transpose their results, and whose softmax reads no views.
struct Transposing;

impl Target for Transposing {
    fn name(&self) -> &str {
        "transposing"
    }

    fn claim(&self, node: &Node, graph: &Graph) -> Claim {
        Anything.claim(node, graph)
    }

    fn fuses(&self, _: Option<&Node>, _: &Node, _: &Graph) -> bool {
        false
    }

    fn reads_view(&self, op: &Op, input: usize, view: &View) -> bool {
        !matches!(op, Op::Softmax { .. }) && Anything.reads_view(op, input, view)
    }

    fn writes_view(&self, op: &Op, view: &View) -> bool {
        Anything.writes_view(op, view)
    }

    fn transposes(&self, op: &Op, _: &View) -> bool {
        matches!(op, Op::MatMul)
    }

    fn pack_format(&self, _: &Node, _: usize, _: &Graph) -> Option<PackFormat> {
        None
    }
}

#[test]
fn a_step_writes_what_is_wanted_transposed_where_it_does_so_for_less_than_a_copy() {
    let compiled = |behind: &str| {
        let graph = format!(
            r#"graph "g" {{
              %0 = Input {{name="x"}} : [2, 4] f32
              %1 = Param {{name="w"}} : [4, 3] f32
              %2 = MatMul(%0, %1) : [2, 3] f32
              {behind}
            }}"#
        );
        let graph = text::parse(&graph).unwrap();
        let pipeline = CompilePipeline::new(Arc::new(Transposing), CompileOptions::default());
        pipeline.compile(&graph).unwrap().lir
    };
    let view = |behind: &str| {
        let lir = compiled(behind);
        let copies = lir.steps.iter().filter(|step| matches!(step.kind, StepKind::Copy)).count();
        (lir.steps[0].outputs[0].view.to_string(), copies)
    };
    let turned = || ("[2, 3; strides 1, 2; at 0]".to_owned(), 0);
    let kept = |copies| ("[2, 3]".to_owned(), copies);
    let transpose = "%3 = Transpose(%2) {perm=[1, 0]} : [3, 2] f32\n";
    // As a result, in front of what reads no views, and through a reshape.
    assert_eq!(view(&format!("{transpose} return %3")), turned());
    assert_eq!(view(&format!("{transpose} %4 = Softmax(%3) {{axis=1}} : [3, 2] f32\n return %4")), turned());
    let flat = "%4 = Reshape(%3) {to=[6]} : [6] f32\n";
    assert_eq!(view(&format!("{transpose} {flat} return %4")), turned());
    // What reads any view needs nothing; what is used otherwise, too, stays as it is.
    let square = "%4 = Transpose(%3) {perm=[1, 0]} : [2, 3] f32\n";
    assert_eq!(view(&format!("{transpose} %4 = MatMul(%2, %3) : [2, 2] f32\n return %4")), kept(0));
    assert_eq!(view(&format!("{transpose} {square} return %4")), kept(0));
    assert_eq!(view(&format!("{transpose} return %2, %3")), kept(1));
}

fn compile(graph: &str) -> CompileResult {
    let graph = text::parse(graph).unwrap();
    CompilePipeline::new(Arc::new(Anything), CompileOptions::default()).compile(&graph).unwrap()
}

#[test]
fn a_transposed_weight_is_a_view_and_fixed_work_is_done_once() {
    let lir = compile(
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 4] f32
          %1 = Param {name="w"} : [3, 4] f32
          %2 = Activation.Neg(%1) : [3, 4] f32
          %3 = Transpose(%2) {perm=[1, 0]} : [4, 3] f32
          %4 = MatMul(%0, %3) : [2, 3] f32
          return %4
        }"#,
    )
    .lir;
    assert_eq!((lir.init.len(), lir.steps.len()), (1, 1), "{lir}");
    let weight = &lir.steps[0].inputs[1];
    assert_eq!(weight.view.to_string(), "[4, 3; strides 1, 4; at 0]");
    assert_eq!(lir.buffers[weight.buffer.index()].kind, BufferKind::Prepared);
    assert_eq!(lir.plan().unwrap().arena_bytes, 64);
}

#[test]
fn producers_write_into_the_concatenation() {
    let lir = compile(
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 4] f32
          %1 = Activation.Exp(%0) : [2, 4] f32
          %2 = Activation.Neg(%0) : [2, 4] f32
          %3 = Concat(%1, %2, %0) {axis=1} : [2, 12] f32
          return %3
        }"#,
    )
    .lir;
    let kinds: Vec<bool> = lir.steps.iter().map(|s| s.kind == StepKind::Copy).collect();
    assert_eq!(kinds, [false, false, true], "{lir}");
    assert_eq!(lir.steps[1].outputs[0].view.to_string(), "[2, 4; strides 12, 1; at 4]");
}

#[test]
fn unreadable_views_are_copied_once_and_outputs_are_dense() {
    let graph = text::parse(
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 4] f32
          %1 = Transpose(%0) {perm=[1, 0]} : [4, 2] f32
          %2 = Activation.Exp(%1) : [4, 2] f32
          %3 = Activation.Neg(%1) : [4, 2] f32
          return %2, %3, %1, %0
        }"#,
    );
    // Without the passes, which would move the transpose.
    let context = PassContext { target: &Anything, options: &CompileOptions::default(), is_body: false };
    let lir = {
        let graph = graph.unwrap();
        lower::to_lir(&graph, &lower::SourceRules::new(&graph), &context)
    }
    .unwrap();
    let copies = lir.steps.iter().filter(|s| s.kind == StepKind::Copy).count();
    assert_eq!(copies, 2, "{lir}");
    for slot in &lir.outputs {
        assert!(slot.operand.view.is_dense());
        assert_eq!(lir.buffers[slot.operand.buffer.index()].kind, BufferKind::Arena);
    }
}

#[test]
fn open_symbols_are_planned_when_bounded_and_specialised_later() {
    let graph = |range: &str| {
        format!(
            r#"graph "g" {{
              {range}
              %0 = Input {{name="x"}} : [batch, 4] f32
              %1 = Activation.Exp(%0) : [batch, 4] f32
              return %1
            }}"#
        )
    };
    let open = compile(&graph(""));
    assert!(open.lir.plan().unwrap_err().to_string().contains("batch"));
    assert_eq!(compile(&graph("range batch 1..=8")).lir.plan().unwrap().arena_bytes, 128);
    let pipeline = CompilePipeline::new(Arc::new(Anything), CompileOptions::default());
    let fixed = open.specialize(&pipeline, &DimBinding::batch_seq(4, 1));
    assert!(fixed.lir.symbols.is_empty());
    assert_eq!(fixed.lir.plan().unwrap().arena_bytes, 64);
}

#[test]
fn buffers_share_memory_when_their_lives_do_not_meet() {
    let lir = compile(
        r#"graph "g" {
          %0 = Input {name="x"} : [64] f32
          %1 = Activation.Exp(%0) : [64] f32
          %2 = Activation.Neg(%1) : [64] f32
          %3 = Activation.Exp(%2) : [64] f32
          %4 = Activation.Neg(%3) : [64] f32
          return %4
        }"#,
    )
    .lir;
    let plan = lir.plan().unwrap();
    assert_eq!((plan.arena_bytes, plan.largest_live_set), (512, 512), "{lir}");
}

#[test]
fn values_that_make_a_dimension_negative_are_an_error_that_names_it() {
    let graph = text::parse(
        r#"graph "tail" {
          %0 = Input {name="x"} : [seq] f32
          %1 = Slice(%0) {starts=[4], steps=[1], to=[-4 + seq]} : [-4 + seq] f32
          return %1
        }"#,
    )
    .unwrap();
    let dims = |n| DimBinding::batch_seq(1, n);
    let open = CompilePipeline::new(Arc::new(Anything), CompileOptions::default());
    let fixed = |n| CompilePipeline::new(Arc::new(Anything), CompileOptions::default().dim_binding(dims(n)));
    let template = open.compile(&graph).unwrap();
    assert!(open.try_specialize(&template, &dims(6)).is_ok() && fixed(6).compile(&graph).is_ok());
    let errors =
        [open.try_specialize(&template, &dims(3)).unwrap_err(), fixed(3).compile(&graph).unwrap_err()];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Dimension);
        let text = error.to_string();
        assert!(
            text.contains("-4 + seq") && text.contains("would be -1") && text.contains("Slice"),
            "{text}"
        );
    }
}
