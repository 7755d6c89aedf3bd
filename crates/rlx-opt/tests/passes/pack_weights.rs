//! Packing: fixed operands only.

use crate::common::{check, check_unchanged};
use rlx_opt::passes::pack_weights;

#[test]
fn a_weight_is_packed_once_for_all_its_uses() {
    check(
        pack_weights::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 4] f32
          %1 = Param {name="w"} : [4, 4] f32
          %2 = MatMul(%0, %1) : [2, 4] f32
          %3 = MatMul(%2, %1) : [2, 4] f32
          return %3
        }"#,
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 4] f32
          %1 = Param {name="w"} : [4, 4] f32
          %2 = Pack(%1) {format=Panels} : [4, 4] f32
          %3 = MatMul(%0, %2) : [2, 4] f32
          %4 = MatMul(%3, %2) : [2, 4] f32
          return %4
        }"#,
    );
}

#[test]
fn an_operand_that_changes_with_every_run_is_not_packed() {
    check_unchanged(
        pack_weights::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [4, 4] f32
          %1 = Param {name="w"} : [4, 4] f32
          %2 = MatMul(%1, %0) : [4, 4] f32
          return %2
        }"#,
    );
}
