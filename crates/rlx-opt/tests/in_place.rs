//! Results that are written over operands: where lowering does it, and what the verifier of modules rejects.

use std::sync::Arc;

use rlx_ir::lir::{BufferId, LirModule, View};
use rlx_ir::op::PackFormat;
use rlx_ir::{ErrorKind, Graph, Node, Op, text};
use rlx_opt::{Claim, CompileOptions, CompilePipeline, Target, verify_lir::verify_lir};

/// A device that computes every op by itself, and elementwise ones in place if it says so.
struct Device {
    in_place: bool,
}

impl Target for Device {
    fn name(&self) -> &str {
        "device"
    }

    fn claim(&self, _: &Node, _: &Graph) -> Claim {
        Claim::Native
    }

    fn fuses(&self, _: Option<&Node>, _: &Node, _: &Graph) -> bool {
        false
    }

    fn reads_view(&self, _: &Op, _: usize, _: &View) -> bool {
        true
    }

    fn writes_view(&self, _: &Op, _: &View) -> bool {
        true
    }

    fn writes_in_place(&self, node: &Node, _: usize, _: &Graph) -> bool {
        self.in_place && node.op.is_elementwise()
    }

    fn pack_format(&self, _: &Node, _: usize, _: &Graph) -> Option<PackFormat> {
        None
    }
}

fn compile(graph: &str, in_place: bool) -> LirModule {
    let graph = text::parse(graph).unwrap();
    let pipeline = CompilePipeline::new(Arc::new(Device { in_place }), CompileOptions::default());
    pipeline.compile(&graph).unwrap().lir
}

/// How many steps write in place, and how many buffers the arena has.
fn counts(lir: &LirModule) -> (usize, usize) {
    let in_place = lir.steps.iter().filter(|s| s.in_place().next().is_some()).count();
    (in_place, lir.live_ranges.len())
}

const RESIDUAL: &str = r#"graph "residual" {
  %0 = Input {name="x"} : [4, 8] f32
  %1 = Param {name="w"} : [8, 8] f32
  %2 = Activation.Exp(%0) : [4, 8] f32
  %3 = MatMul(%2, %1) : [4, 8] f32
  %4 = Binary.Add(%3, %2) : [4, 8] f32
  %5 = Activation.Tanh(%4) : [4, 8] f32
  return %5
}"#;

#[test]
fn a_residual_stream_stays_where_it_is() {
    let lir = compile(RESIDUAL, true);
    assert_eq!(counts(&lir), (2, 2), "{lir}");
    assert_eq!(lir.plan().unwrap().arena_bytes, 2 * 4 * 8 * 4);
    assert!(lir.live_ranges.iter().all(|r| r.buffer.index() < lir.buffers.len()));
    // A device that does not say that it can, is not asked to.
    assert_eq!(counts(&compile(RESIDUAL, false)), (0, 4));
}

#[test]
fn what_is_read_later_is_not_written_over() {
    // %1 is read again, and is an output.
    let lir = compile(
        r#"graph "g" {
          %0 = Input {name="x"} : [8] f32
          %1 = Activation.Exp(%0) : [8] f32
          %2 = Activation.Tanh(%1) : [8] f32
          %3 = Binary.Mul(%2, %1) : [8] f32
          return %3, %1
        }"#,
        true,
    );
    assert_eq!(counts(&lir), (1, 2), "{lir}");
}

#[test]
fn views_of_another_order_or_size_have_memory_of_their_own() {
    // A transposed operand, a broadcast one, another element type.
    let lir = compile(
        r#"graph "g" {
          %0 = Input {name="x"} : [4, 4] f32
          %1 = Activation.Exp(%0) : [4, 4] f32
          %2 = Transpose(%1) {perm=[1, 0]} : [4, 4] f32
          %3 = Softmax(%2) {axis=1} : [4, 4] f32
          %4 = Reduce(%3) {op=Sum, axes=[1], keep_dim=true} : [4, 1] f32
          %5 = Binary.Add(%4, %0) : [4, 4] f32
          %6 = Cast(%5) {to=i32} : [4, 4] i32
          return %6
        }"#,
        true,
    );
    assert_eq!(counts(&lir).0, 0, "{lir}");
}

#[test]
fn an_operand_that_is_used_twice_is_written_over_once() {
    let lir = compile(
        r#"graph "g" {
          %0 = Input {name="x"} : [8] f32
          %1 = Activation.Exp(%0) : [8] f32
          %2 = Binary.Mul(%1, %1) : [8] f32
          return %2
        }"#,
        true,
    );
    assert_eq!(counts(&lir), (1, 1), "{lir}");
}

fn rejected(lir: &LirModule, device: &Device) -> String {
    let e = verify_lir(lir, device).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidGraph);
    e.to_string()
}

#[test]
fn the_verifier_knows_what_a_device_can_write_in_place() {
    let lir = compile(RESIDUAL, true);
    verify_lir(&lir, &Device { in_place: true }).unwrap();
    let message = rejected(&lir, &Device { in_place: false });
    assert!(message.contains("writes over its input") && message.contains("device"), "{message}");
}

#[test]
fn the_verifier_rejects_reading_what_was_written_over() {
    // Without in-place writing, then with %2 made to write over %1, which %3 reads afterwards.
    let mut lir = compile(
        r#"graph "g" {
          %0 = Input {name="x"} : [8] f32
          %1 = Activation.Exp(%0) : [8] f32
          %2 = Activation.Tanh(%1) : [8] f32
          %3 = Binary.Sub(%2, %1) : [8] f32
          return %3
        }"#,
        false,
    );
    let over = lir.steps[1].inputs[0].buffer;
    let own = lir.steps[1].outputs[0].buffer;
    let swap = |b: &mut BufferId| *b = if *b == own { over } else { *b };
    for step in &mut lir.steps {
        step.inputs.iter_mut().chain(&mut step.outputs).for_each(|o| swap(&mut o.buffer));
    }
    lir.live_ranges.retain(|r| r.buffer != own);
    lir.plan = None;
    let message = rejected(&lir, &Device { in_place: true });
    assert!(message.contains("was written over it"), "{message}");
}

#[test]
fn the_verifier_counts_live_ranges_itself() {
    let lir = compile(RESIDUAL, true);
    for range in 0..lir.live_ranges.len() {
        let mut short = lir.clone();
        short.live_ranges[range].last = short.live_ranges[range].first;
        let message = rejected(&short, &Device { in_place: true });
        assert!(message.contains("live ranges"), "{message}");
    }
}
