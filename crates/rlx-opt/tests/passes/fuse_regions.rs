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
fn two_reductions_of_a_value_are_one_region_that_stands_before_all_that_reads_them() {
    let before = parse(
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 4] f32
          %1 = Reduce(%0) {op=Max, axes=[0, 1], keep_dim=false} : [] f32
          %2 = Reduce(%1) {op=Max, axes=[], keep_dim=false} : [] f32
          %3 = Reduce(%0) {op=Min, axes=[0, 1], keep_dim=false} : [] f32
          %4 = Reduce(%0) {op=Min, axes=[1], keep_dim=false} : [2] f32
          return %2, %3, %4
        }"#,
    );
    let after = apply(fuse_regions::run, &before);
    let kinds: Vec<OpKind> = after.nodes().iter().map(|n| n.op.kind()).collect();
    let region = after.nodes().iter().find(|n| n.op.kind() == OpKind::Region).unwrap();
    assert_eq!(region.results().len(), 2, "{after}");
    assert_eq!(kinds.iter().filter(|&&kind| kind == OpKind::Reduce).count(), 2, "{after}");
    assert_same_results(&before, &after, &DimBinding::new());
}

#[test]
fn movement_between_squares_and_their_sum_is_put_in_front_of_them() {
    check(
        fuse_regions::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [batch, 6, 2, 4] f32
          %1 = Binary.Mul(%0, %0) : [batch, 6, 2, 4] f32
          %2 = Transpose(%1) {perm=[0, 2, 1, 3]} : [batch, 2, 6, 4] f32
          %3 = Reshape(%2) {to=[batch, 2, 3, 2, 4]} : [batch, 2, 3, 2, 4] f32
          %4 = Reduce(%3) {op=Sum, axes=[4], keep_dim=false} : [batch, 2, 3, 2] f32
          return %4
        }"#,
        r#"graph "g" {
          %0 = Input {name="x"} : [batch, 6, 2, 4] f32
          %1 = Transpose(%0) {perm=[0, 2, 1, 3]} : [batch, 2, 6, 4] f32
          %2 = Reshape(%1) {to=[batch, 2, 3, 2, 4]} : [batch, 2, 3, 2, 4] f32
          %3 = Region(%2) {body=graph "Mul+Reduce" {
            %0 = Input {name="i0"} : [batch, 2, 3, 2, 4] f32
            %1 = Binary.Mul(%0, %0) : [batch, 2, 3, 2, 4] f32
            %2 = Reduce(%1) {op=Sum, axes=[4], keep_dim=false} : [batch, 2, 3, 2] f32
            return %2
          }} : [batch, 2, 3, 2] f32
          return %3
        }"#,
    );
}

#[test]
fn movement_stays_where_the_device_takes_nothing_in_or_something_else_reads_it() {
    check_unchanged(
        fuse_regions::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [6, 4] f32
          %1 = Activation.Exp(%0) : [6, 4] f32
          %2 = Transpose(%1) {perm=[1, 0]} : [4, 6] f32
          %3 = Reduce(%2) {op=Sum, axes=[0], keep_dim=false} : [6] f32
          %4 = Binary.Mul(%0, %0) : [6, 4] f32
          %5 = Transpose(%4) {perm=[1, 0]} : [4, 6] f32
          %6 = Reduce(%5) {op=Sum, axes=[0], keep_dim=false} : [6] f32
          return %3, %5, %6
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

#[test]
fn a_norm_becomes_part_of_the_matmul_that_reads_it() {
    check(
        fuse_regions::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [batch, 4] f32
          %1 = Param {name="gamma"} : [4] f32
          %2 = Param {name="w"} : [4, 3] f32
          %3 = RmsNorm(%0, %1) {axis=-1, eps=1e-5} : [batch, 4] f32
          %4 = MatMul(%3, %2) : [batch, 3] f32
          return %4
        }"#,
        r#"graph "g" {
          %0 = Input {name="x"} : [batch, 4] f32
          %1 = Param {name="gamma"} : [4] f32
          %2 = Param {name="w"} : [4, 3] f32
          %3 = Region(%0, %1, %2) {body=graph "RmsNorm+MatMul" {
            %0 = Input {name="i0"} : [batch, 4] f32
            %1 = Input {name="i1"} : [4] f32
            %2 = Input {name="i2"} : [4, 3] f32
            %3 = RmsNorm(%0, %1) {axis=-1, eps=1e-5} : [batch, 4] f32
            %4 = MatMul(%3, %2) : [batch, 3] f32
            return %4
          }} : [batch, 3] f32
          return %3
        }"#,
    );
}

#[test]
fn a_quantisation_becomes_part_of_the_matmul_of_integers_that_reads_it() {
    check(
        fuse_regions::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [batch, 4] f32
          %1 = Param {name="scale"} : [] f32
          %2 = Param {name="zero"} : [] u8
          %3 = Param {name="w"} : [4, 3] i8
          %4 = Param {name="wz"} : [] i8
          %5 = Quantize(%0, %1, %2) {axis=none, to=u8} : [batch, 4] u8
          %6 = MatMulInteger(%5, %3, %2, %4) : [batch, 3] i32
          return %6
        }"#,
        r#"graph "g" {
          %0 = Input {name="x"} : [batch, 4] f32
          %1 = Param {name="scale"} : [] f32
          %2 = Param {name="zero"} : [] u8
          %3 = Param {name="w"} : [4, 3] i8
          %4 = Param {name="wz"} : [] i8
          %5 = Region(%0, %1, %2, %3, %4) {body=graph "Quantize+MatMulInteger" {
            %0 = Input {name="i0"} : [batch, 4] f32
            %1 = Input {name="i1"} : [] f32
            %2 = Input {name="i2"} : [] u8
            %3 = Input {name="i3"} : [4, 3] i8
            %4 = Input {name="i4"} : [] i8
            %5 = Quantize(%0, %1, %2) {axis=none, to=u8} : [batch, 4] u8
            %6 = MatMulInteger(%5, %3, %2, %4) : [batch, 3] i32
            return %6
          }} : [batch, 3] i32
          return %5
        }"#,
    );
}

#[test]
fn floats_are_quantised_by_one_matmul_and_where_nothing_before_writes_bytes() {
    let text = |x: &str, readers: usize, kept: bool| {
        let mut text = format!(
            r#"graph "g" {{
              %0 = Input {{name="x"}} : [2, 4] f32
              %1 = Param {{name="scale"}} : [] f32
              %2 = Param {{name="zero"}} : [] u8
              %3 = Param {{name="w"}} : [4, 3] i8
              %4 = Param {{name="wz"}} : [] i8
              %5 = Activation.Abs(%0) : [2, 4] f32
              %6 = Quantize({x}, %1, %2) {{axis=none, to=u8}} : [2, 4] u8
"#
        );
        let mut results = Vec::new();
        for at in 7..7 + readers {
            text.push_str(&format!("%{at} = MatMulInteger(%6, %3, %2, %4) : [2, 3] i32\n"));
            results.push(format!("%{at}"));
        }
        results.extend(kept.then(|| "%6".to_owned()));
        text + &format!("return {}\n}}", results.join(", "))
    };
    let (given, computed) = ("%0", "%5");
    // Alone it is a step of its own, or one with the function before it, which then writes bytes.
    for (x, readers, kept, alone) in
        [(given, 1, false, 0), (given, 2, false, 1), (given, 1, true, 1), (computed, 1, false, 1)]
    {
        let before = parse(&text(x, readers, kept));
        let after = apply(fuse_regions::run, &before);
        let inside = |n: &rlx_ir::Node| match &n.op {
            Op::Region { body } => crate::common::count(&body.graph, OpKind::MatMulInteger) > 0,
            _ => false,
        };
        let fused = after.nodes().iter().filter(|n| inside(n)).count();
        assert_eq!(fused, 1 - alone, "{x}, {readers} readers, kept: {kept}\n{after}");
        assert_same_results(&before, &after, &DimBinding::new());
    }
}

/// `readers` matmuls of a layer norm, the first with a function behind it; the norm is a result, too, if it is `kept`.
fn normed(readers: usize, kept: bool) -> String {
    let mut text = r#"graph "g" {
      %0 = Input {name="x"} : [2, 4] f32
      %1 = Param {name="gamma"} : [4] f32
      %2 = Param {name="w"} : [4, 3] f32
      %3 = LayerNorm(%0, %1) {axis=-1, eps=1e-5} : [2, 4] f32
"#
    .to_owned();
    let mut results = vec!["%5".to_owned()];
    text.push_str("      %4 = MatMul(%3, %2) : [2, 3] f32\n      %5 = Activation.Relu(%4) : [2, 3] f32\n");
    for reader in 1..readers {
        let at = 4 + 2 * reader;
        text.push_str(&format!("      %{at} = Param {{name=\"w{reader}\"}} : [4, 3] f32\n"));
        text.push_str(&format!("      %{} = MatMul(%3, %{at}) : [2, 3] f32\n", at + 1));
        results.push(format!("%{}", at + 1));
    }
    results.extend(kept.then(|| "%3".to_owned()));
    text + &format!("      return {}\n}}", results.join(", "))
}

#[test]
fn a_norm_is_computed_by_each_of_its_readers_if_that_pays() {
    for (readers, kept, alone) in [(1, false, 0), (2, false, 0), (3, false, 1), (1, true, 1), (2, true, 1)] {
        let before = parse(&normed(readers, kept));
        let after = apply(fuse_regions::run, &before);
        let norms = crate::common::count(&after, OpKind::LayerNorm);
        assert_eq!(norms, alone, "{readers} readers, kept: {kept}\n{after}");
        let regions = crate::common::count(&after, OpKind::Region);
        assert_eq!(regions, if alone == 0 { readers } else { 1 }, "{after}");
        assert_same_results(&before, &after, &DimBinding::new());
    }
}

#[test]
fn matmuls_of_one_norm_whose_results_are_multiplied_are_one_region() {
    let gated = |between: &str| {
        parse(&format!(
            r#"graph "g" {{
              %0 = Input {{name="x"}} : [2, 4] f32
              %1 = Param {{name="gamma"}} : [4] f32
              %2 = Param {{name="w"}} : [4, 3] f32
              %3 = Param {{name="v"}} : [4, 3] f32
              %4 = Param {{name="b"}} : [3] f32
              %5 = RmsNorm(%0, %1) {{axis=-1, eps=1e-5}} : [2, 4] f32
              %6 = MatMul(%5, %2) : [2, 3] f32
              %7 = Activation.Silu(%6) : [2, 3] f32
              %8 = MatMul(%5, %3) : [2, 3] f32
              %9 = Binary.Add(%8, %4) : [2, 3] f32
              {between}
            }}"#
        ))
    };
    let before = gated("%10 = Binary.Mul(%7, %9) : [2, 3] f32\nreturn %10");
    let after = apply(fuse_regions::run, &before);
    assert_eq!(crate::common::count(&after, OpKind::Region), 1, "{after}");
    assert_eq!(after.nodes().len(), 6, "{after}");
    assert_same_results(&before, &after, &DimBinding::new());
    // A half that something else reads, too, is a step; and so is a sum.
    for between in [
        "%10 = Binary.Mul(%7, %9) : [2, 3] f32\nreturn %10, %9",
        "%10 = Binary.Mul(%7, %9) : [2, 3] f32\nreturn %10, %7",
        "%10 = Binary.Add(%7, %9) : [2, 3] f32\nreturn %10",
    ] {
        let before = gated(between);
        let after = apply(fuse_regions::run, &before);
        assert_eq!(crate::common::count(&after, OpKind::Region), 2, "{after}");
        assert_same_results(&before, &after, &DimBinding::new());
    }
}

#[test]
fn interpolation_between_what_two_gathers_pick_is_one_region() {
    check(
        fuse_regions::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 3, seq] f32
          %1 = Param {name="first"} : [5] i64
          %2 = Param {name="second"} : [5] i64
          %3 = Param {name="step"} : [1, 5, 1] f32
          %4 = Gather(%0, %1) {axis=1} : [2, 5, seq] f32
          %5 = Gather(%0, %2) {axis=1} : [2, 5, seq] f32
          %6 = Binary.Sub(%5, %4) : [2, 5, seq] f32
          %7 = Binary.Mul(%3, %6) : [2, 5, seq] f32
          %8 = Binary.Add(%4, %7) : [2, 5, seq] f32
          %9 = Activation.Relu(%8) : [2, 5, seq] f32
          return %9
        }"#,
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 3, seq] f32
          %1 = Param {name="first"} : [5] i64
          %2 = Param {name="second"} : [5] i64
          %3 = Param {name="step"} : [1, 5, 1] f32
          %4 = Region(%0, %1, %2, %3) {body=graph "Gather+Gather+Sub+Mul+Add" {
            %0 = Input {name="i0"} : [2, 3, seq] f32
            %1 = Input {name="i1"} : [5] i64
            %2 = Input {name="i2"} : [5] i64
            %3 = Input {name="i3"} : [1, 5, 1] f32
            %4 = Gather(%0, %1) {axis=1} : [2, 5, seq] f32
            %5 = Gather(%0, %2) {axis=1} : [2, 5, seq] f32
            %6 = Binary.Sub(%5, %4) : [2, 5, seq] f32
            %7 = Binary.Mul(%3, %6) : [2, 5, seq] f32
            %8 = Binary.Add(%4, %7) : [2, 5, seq] f32
            return %8
          }} : [2, 5, seq] f32
          %5 = Activation.Relu(%4) : [2, 5, seq] f32
          return %5
        }"#,
    );
    // What else reads a slice has to be in memory.
    let before = parse(
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 3, 4] f32
          %1 = Param {name="first"} : [5] i64
          %2 = Param {name="second"} : [5] i64
          %3 = Param {name="step"} : [1, 5, 1] f32
          %4 = Gather(%0, %1) {axis=1} : [2, 5, 4] f32
          %5 = Gather(%0, %2) {axis=1} : [2, 5, 4] f32
          %6 = Binary.Sub(%5, %4) : [2, 5, 4] f32
          %7 = Binary.Mul(%6, %3) : [2, 5, 4] f32
          %8 = Binary.Add(%4, %7) : [2, 5, 4] f32
          return %8, %5
        }"#,
    );
    let after = apply(fuse_regions::run, &before);
    assert!(matches!(after.node(after.outputs[1]).op, Op::Gather { .. }), "{after}");
}

/// As where an image is resized: one region, unless something else reads what is between.
#[test]
fn interpolation_along_the_next_axis_belongs_to_it() {
    let image = |results: &str| {
        parse(&format!(
            r#"graph "g" {{
              %0 = Input {{name="x"}} : [2, 3, 4] f32
              %1 = Param {{name="lines"}} : [5] i64
              %2 = Param {{name="next lines"}} : [5] i64
              %3 = Param {{name="between lines"}} : [1, 5, 1] f32
              %4 = Param {{name="columns"}} : [7] i64
              %5 = Param {{name="next columns"}} : [7] i64
              %6 = Param {{name="between columns"}} : [1, 1, 7] f32
              %7 = Gather(%0, %1) {{axis=1}} : [2, 5, 4] f32
              %8 = Gather(%0, %2) {{axis=1}} : [2, 5, 4] f32
              %9 = Binary.Sub(%8, %7) : [2, 5, 4] f32
              %10 = Binary.Mul(%9, %3) : [2, 5, 4] f32
              %11 = Binary.Add(%7, %10) : [2, 5, 4] f32
              %12 = Gather(%11, %4) {{axis=2}} : [2, 5, 7] f32
              %13 = Gather(%11, %5) {{axis=2}} : [2, 5, 7] f32
              %14 = Binary.Sub(%13, %12) : [2, 5, 7] f32
              %15 = Binary.Mul(%14, %6) : [2, 5, 7] f32
              %16 = Binary.Add(%12, %15) : [2, 5, 7] f32
              return {results}
            }}"#
        ))
    };
    for (results, regions) in [("%16", 1), ("%16, %11", 2)] {
        let before = image(results);
        let after = apply(fuse_regions::run, &before);
        assert_eq!(crate::common::count(&after, OpKind::Region), regions, "{after}");
        assert_same_results(&before, &after, &DimBinding::new());
    }
}
