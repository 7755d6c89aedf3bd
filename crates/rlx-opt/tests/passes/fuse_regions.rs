//! Fusion: anchors with what follows them, elementwise groups, and what must stay apart.

use crate::common::{apply, assert_same_results, check, check_unchanged, parse};
use rlx_ir::{DimBinding, Op, OpKind};
use rlx_opt::passes::fuse_regions;

#[test]
fn a_matrix_product_takes_what_follows_it() {
    check(
        fuse_regions::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [batch, 4] f32
          %1 = Param {name="w"} : [4, 3] f32
          %2 = Param {name="b"} : [3] f32
          %3 = MatMul(%0, %1) : [batch, 3] f32
          %4 = Binary.Add(%3, %2) : [batch, 3] f32
          %5 = Constant {data=dense([] f32, 0.5)} : [] f32
          %6 = Binary.Mul(%4, %5) : [batch, 3] f32
          %7 = Activation.Relu(%6) : [batch, 3] f32
          return %7
        }"#,
        r#"graph "g" {
          %0 = Input {name="x"} : [batch, 4] f32
          %1 = Param {name="w"} : [4, 3] f32
          %2 = Param {name="b"} : [3] f32
          %3 = Region(%0, %1, %2) {body=graph "MatMul+Add+Mul+Relu" {
            %0 = Input {name="i0"} : [batch, 4] f32
            %1 = Input {name="i1"} : [4, 3] f32
            %2 = Input {name="i2"} : [3] f32
            %3 = Constant {data=dense([] f32, 0.5)} : [] f32
            %4 = MatMul(%0, %1) : [batch, 3] f32
            %5 = Binary.Add(%4, %2) : [batch, 3] f32
            %6 = Binary.Mul(%5, %3) : [batch, 3] f32
            %7 = Activation.Relu(%6) : [batch, 3] f32
            return %7
          }} : [batch, 3] f32
          return %3
        }"#,
    );
}

#[test]
fn a_value_used_later_becomes_a_second_result() {
    let before = parse(
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 4] f32
          %1 = Param {name="w"} : [4, 4] f32
          %2 = MatMul(%0, %1) : [2, 4] f32
          %3 = Activation.Tanh(%2) : [2, 4] f32
          %4 = Binary.Mul(%3, %2) : [2, 4] f32
          %5 = MatMul(%3, %1) : [2, 4] f32
          return %4, %5
        }"#,
    );
    let after = apply(fuse_regions::run, &before);
    let region = after.nodes().iter().find(|n| n.op.kind() == OpKind::Region).unwrap();
    assert_eq!(region.results().len(), 2, "{after}");
    assert_same_results(&before, &after, &DimBinding::new());
}

#[test]
fn no_path_may_leave_a_region_and_come_back() {
    // The sum needs the second matmul, which needs the first: both cannot be one region.
    let before = parse(
        r#"graph "g" {
          %0 = Input {name="x"} : [4, 4] f32
          %1 = MatMul(%0, %0) : [4, 4] f32
          %2 = Activation.Relu(%1) : [4, 4] f32
          %3 = MatMul(%2, %0) : [4, 4] f32
          %4 = Binary.Add(%2, %3) : [4, 4] f32
          return %4
        }"#,
    );
    let after = apply(fuse_regions::run, &before);
    assert_eq!(crate::common::count(&after, OpKind::Region), 2, "{after}");
    assert_same_results(&before, &after, &DimBinding::new());
}

#[test]
fn elementwise_ops_without_an_anchor_form_groups_of_one_shape() {
    let before = parse(
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 3] f32
          %1 = Input {name="y"} : [3] f32
          %2 = Activation.Exp(%1) : [3] f32
          %3 = Activation.Neg(%0) : [2, 3] f32
          %4 = Activation.Sigmoid(%0) : [2, 3] f32
          %5 = Binary.Add(%3, %4) : [2, 3] f32
          %6 = Binary.Mul(%5, %2) : [2, 3] f32
          return %6
        }"#,
    );
    let after = apply(fuse_regions::run, &before);
    let region = after.nodes().iter().find(|n| n.op.kind() == OpKind::Region).unwrap();
    let Op::Region { body } = &region.op else { panic!("a region") };
    assert_eq!(body.graph.name, "Neg+Sigmoid+Add+Mul");
    assert_eq!(crate::common::count(&after, OpKind::Activation), 1, "the smaller one stays: {after}");
    assert_same_results(&before, &after, &DimBinding::new());
}

#[test]
fn what_is_known_before_a_run_is_not_fused_with_what_is_not() {
    check_unchanged(
        fuse_regions::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 3] f32
          %1 = Param {name="w"} : [2, 3] f32
          %2 = Activation.Exp(%1) : [2, 3] f32
          %3 = Binary.Add(%0, %2) : [2, 3] f32
          return %3
        }"#,
    );
}
