//! Matmuls by blocks of quantised weights: found where they are imported, left alone where they are something else.

use crate::common::{check, check_with, count, parse, strict};
use rlx_ir::OpKind;
use rlx_opt::passes::multiply_blocks;
use rlx_opt::{CompileOptions, Numerics};

/// Weights `[3, 40]` in two blocks of 32, of which the last is cut.
const BEFORE: &str = r#"graph "g" {
  %0 = Input {name="x"} : [batch, 2, 40] f32
  %1 = Param {name="w"} : [6, 32] u4
  %2 = Param {name="scale"} : [6] f32
  %3 = Param {name="zero"} : [6] u4
  %4 = Dequantize(%1, %2, %3) {axis=0, to=f32} : [6, 32] f32
  %5 = Reshape(%4) {to=[3, 64]} : [3, 64] f32
  %6 = Slice(%5) {starts=[0, 0], steps=[1, 1], to=[3, 40]} : [3, 40] f32
  %7 = Transpose(%6) {perm=[1, 0]} : [40, 3] f32
  %8 = MatMul(%0, %7) : [batch, 2, 3] f32
  return %8
}"#;

const AFTER: &str = r#"graph "g" {
  %0 = Input {name="x"} : [batch, 2, 40] f32
  %1 = Param {name="w"} : [6, 32] u4
  %2 = Param {name="scale"} : [6] f32
  %3 = Param {name="zero"} : [6] u4
  %4 = Reshape(%1) {to=[3, 2, 32]} : [3, 2, 32] u4
  %5 = Reshape(%2) {to=[3, 2]} : [3, 2] f32
  %6 = Transpose(%5) {perm=[1, 0]} : [2, 3] f32
  %7 = Cast(%3) {to=f32} : [6] f32
  %8 = Reshape(%7) {to=[3, 2]} : [3, 2] f32
  %9 = Transpose(%8) {perm=[1, 0]} : [2, 3] f32
  %10 = MatMulBlocks(%0, %4, %6, %9) : [batch, 2, 3] f32
  return %10
}"#;

#[test]
fn a_matmul_by_dequantised_blocks_takes_them_as_they_are() {
    check(multiply_blocks::run, BEFORE, AFTER);
    check_with(multiply_blocks::run, BEFORE, AFTER, &strict());
}

#[test]
fn other_dequantised_weights_stay() {
    let unchanged = |text: &str| {
        let after = crate::common::apply(multiply_blocks::run, &parse(text));
        assert_eq!(count(&after, OpKind::MatMulBlocks), 0, "{after}");
    };
    // Weights that a run gives are not packed once for all runs.
    unchanged(&BEFORE.replace(r#"Param {name="w"}"#, r#"Input {name="w"}"#));
    // Other columns than the first.
    unchanged(&BEFORE.replace("starts=[0, 0]", "starts=[0, 8]"));
    // Blocks that go over several columns.
    let crossing = r#"graph "g" {
      %0 = Input {name="x"} : [2, 16] f32
      %1 = Param {name="w"} : [3, 32] u8
      %2 = Param {name="scale"} : [3] f32
      %3 = Dequantize(%1, %2) {axis=0, to=f32} : [3, 32] f32
      %4 = Reshape(%3) {to=[6, 16]} : [6, 16] f32
      %5 = Transpose(%4) {perm=[1, 0]} : [16, 6] f32
      %6 = MatMul(%0, %5) : [2, 6] f32
      return %6
    }"#;
    unchanged(crossing);
}

#[test]
fn so_does_one_of_half_precision() {
    let in_f16 = |text: &str| text.replace("f32", "f16");
    check(multiply_blocks::run, &in_f16(BEFORE), &in_f16(AFTER));
}

/// A precision of 16 bits casts the weights that were dequantised to f32. Rounding once is another number now and then.
#[test]
fn casts_of_dequantised_blocks_are_skipped_under_fast_numerics_alone() {
    let before = BEFORE
        .replace("[batch, 2, 40] f32", "[batch, 2, 40] f16")
        .replace("%8 = MatMul(%0, %7) : [batch, 2, 3] f32", "%8 = Cast(%7) {to=f16} : [40, 3] f16")
        .replace("return %8", "%9 = MatMul(%0, %8) : [batch, 2, 3] f16\n  return %9");
    let blocks = |options| {
        let after = crate::common::apply_with(multiply_blocks::run, &parse(&before), &options);
        count(&after, OpKind::MatMulBlocks)
    };
    let fast = CompileOptions { numerics: Numerics::Fast, ..CompileOptions::default() };
    assert_eq!((blocks(fast), blocks(strict())), (1, 0));
}
