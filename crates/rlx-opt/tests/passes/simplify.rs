//! Local rewrites: each rule where it applies, and where it must not.

use crate::common::{apply, apply_with, check, check_unchanged, check_with, count, parse, strict};
use rlx_ir::OpKind;
use rlx_opt::passes::{fold_constants, simplify};

#[test]
fn constants_are_computed_and_scalars_are_not_blown_up() {
    check(
        fold_constants::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [2] f32
          %1 = Constant {data=dense([2] f32, 1.0, 2.0)} : [2] f32
          %2 = Activation.Neg(%1) : [2] f32
          %3 = Binary.Add(%2, %1) : [2] f32
          %4 = Binary.Mul(%0, %3) : [2] f32
          return %4
        }"#,
        r#"graph "g" {
          %0 = Input {name="x"} : [2] f32
          %1 = Constant {data=dense([2] f32, 0.0, 0.0)} : [2] f32
          %2 = Binary.Mul(%0, %1) : [2] f32
          return %2
        }"#,
    );
    check_unchanged(
        fold_constants::run,
        r#"graph "g" {
          %0 = Constant {data=dense([] f32, 1.0)} : [] f32
          %1 = Expand(%0) {to=[1000, 1000]} : [1000, 1000] f32
          return %1
        }"#,
    );
}

#[test]
fn neutral_operands_go() {
    check_with(
        simplify::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 3] f32
          %1 = Constant {data=dense([] f32, 1.0)} : [] f32
          %2 = Constant {data=dense([3] f32, 0.0, 0.0, 0.0)} : [3] f32
          %3 = Binary.Mul(%1, %0) : [2, 3] f32
          %4 = Binary.Div(%3, %1) : [2, 3] f32
          %5 = Binary.Sub(%4, %2) : [2, 3] f32
          %6 = Activation.Neg(%5) : [2, 3] f32
          %7 = Activation.Neg(%6) : [2, 3] f32
          %8 = Activation.Exp(%7) : [2, 3] f32
          return %8
        }"#,
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 3] f32
          %1 = Activation.Exp(%0) : [2, 3] f32
          return %1
        }"#,
        &strict(),
    );
}

#[test]
fn what_may_change_a_bit_stays_under_strict_numerics() {
    let text = r#"graph "g" {
          %0 = Input {name="x"} : [2, 3] f32
          %1 = Constant {data=dense([] f32, 3.0)} : [] f32
          %2 = Constant {data=dense([] f32, 0.0)} : [] f32
          %3 = Binary.Div(%0, %1) : [2, 3] f32
          %4 = Binary.Mul(%3, %2) : [2, 3] f32
          return %4
        }"#;
    check_with(simplify::run, text, text, &strict());
    let fast = apply(simplify::run, &parse(text)).to_string();
    assert!(!fast.contains("Div") && fast.contains("Mul"), "by 1/3 and by 0 gathered: {fast}");
}

#[test]
fn powers_and_roots_become_cheaper() {
    check(
        simplify::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [4] f32
          %1 = Constant {data=dense([] f32, 2.0)} : [] f32
          %2 = Binary.Pow(%0, %1) : [4] f32
          %3 = Activation.Exp(%2) : [4] f32
          %4 = Activation.Sqrt(%3) : [4] f32
          %5 = Activation.Recip(%4) : [4] f32
          return %5
        }"#,
        r#"graph "g" {
          %0 = Input {name="x"} : [4] f32
          %1 = Binary.Mul(%0, %0) : [4] f32
          %2 = Activation.Exp(%1) : [4] f32
          %3 = Activation.Rsqrt(%2) : [4] f32
          return %3
        }"#,
    );
}

#[test]
fn casts_that_lose_nothing_are_skipped_and_others_stay() {
    check(
        simplify::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [4] f16
          %1 = Cast(%0) {to=f32} : [4] f32
          %2 = Cast(%1) {to=f64} : [4] f64
          return %2
        }"#,
        r#"graph "g" {
          %0 = Input {name="x"} : [4] f16
          %1 = Cast(%0) {to=f64} : [4] f64
          return %1
        }"#,
    );
    check_unchanged(
        simplify::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [4] i32
          %1 = Cast(%0) {to=f32} : [4] f32
          %2 = Cast(%1) {to=f64} : [4] f64
          return %2
        }"#,
    );
}

#[test]
fn transposes_sink_until_they_cancel() {
    check(
        simplify::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [batch, 3, 4] f32
          %1 = Param {name="b"} : [4] f32
          %2 = Transpose(%0) {perm=[0, 2, 1]} : [batch, 4, 3] f32
          %3 = Activation.Relu(%2) : [batch, 4, 3] f32
          %4 = Reshape(%1) {to=[4, 1]} : [4, 1] f32
          %5 = Binary.Add(%3, %4) : [batch, 4, 3] f32
          %6 = Transpose(%5) {perm=[0, 2, 1]} : [batch, 3, 4] f32
          return %6
        }"#,
        r#"graph "g" {
          %0 = Input {name="x"} : [batch, 3, 4] f32
          %1 = Param {name="b"} : [4] f32
          %2 = Activation.Relu(%0) : [batch, 3, 4] f32
          %3 = Reshape(%1) {to=[1, 1, 4]} : [1, 1, 4] f32
          %4 = Binary.Add(%2, %3) : [batch, 3, 4] f32
          return %4
        }"#,
    );
}

#[test]
fn keys_transposed_by_way_of_a_merged_batch() {
    // As PyTorch's dynamo exporter writes kᵀ: merge batch and heads, swap, split again.
    check(
        simplify::run,
        r#"graph "g" {
          %0 = Input {name="k"} : [batch, seq, 64] f32
          %1 = Reshape(%0) {to=[batch, seq, 2, 32]} : [batch, seq, 2, 32] f32
          %2 = Transpose(%1) {perm=[0, 2, 1, 3]} : [batch, 2, seq, 32] f32
          %3 = Reshape(%2) {to=[2*batch, seq, 32]} : [2*batch, seq, 32] f32
          %4 = Transpose(%3) {perm=[0, 2, 1]} : [2*batch, 32, seq] f32
          %5 = Reshape(%4) {to=[batch, 2, 32, seq]} : [batch, 2, 32, seq] f32
          return %5
        }"#,
        r#"graph "g" {
          %0 = Input {name="k"} : [batch, seq, 64] f32
          %1 = Reshape(%0) {to=[batch, seq, 2, 32]} : [batch, seq, 2, 32] f32
          %2 = Transpose(%1) {perm=[0, 2, 3, 1]} : [batch, 2, 32, seq] f32
          return %2
        }"#,
    );
}

#[test]
fn reshapes_around_a_linear_layer_go() {
    // GPT-2's Conv1D: flatten the rows, multiply, add, bring them back.
    check(
        simplify::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [batch, seq, 8] f32
          %1 = Param {name="w"} : [8, 6] f32
          %2 = Param {name="b"} : [6] f32
          %3 = Reshape(%0) {to=[batch*seq, 8]} : [batch*seq, 8] f32
          %4 = MatMul(%3, %1) : [batch*seq, 6] f32
          %5 = Binary.Add(%2, %4) : [batch*seq, 6] f32
          %6 = Reshape(%5) {to=[batch, seq, 6]} : [batch, seq, 6] f32
          return %6
        }"#,
        r#"graph "g" {
          %0 = Input {name="x"} : [batch, seq, 8] f32
          %1 = Param {name="w"} : [8, 6] f32
          %2 = Param {name="b"} : [6] f32
          %3 = MatMul(%0, %1) : [batch, seq, 6] f32
          %4 = Binary.Add(%3, %2) : [batch, seq, 6] f32
          return %4
        }"#,
    );
}

#[test]
fn slices_of_a_concatenation_find_their_part() {
    check(
        simplify::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [2, seq] f32
          %1 = Input {name="y"} : [2, 5] f32
          %2 = Concat(%0, %1) {axis=1} : [2, 5 + seq] f32
          %3 = Slice(%2) {starts=[0, seq], steps=[1, 1], to=[2, 5]} : [2, 5] f32
          %4 = Slice(%3) {starts=[0, 1], steps=[1, 2], to=[2, 2]} : [2, 2] f32
          return %4
        }"#,
        r#"graph "g" {
          %0 = Input {name="x"} : [2, seq] f32
          %1 = Input {name="y"} : [2, 5] f32
          %2 = Slice(%1) {starts=[0, 1], steps=[1, 2], to=[2, 2]} : [2, 2] f32
          return %2
        }"#,
    );
}

#[test]
fn broadcasts_in_front_of_elementwise_ops_go_unless_they_make_the_shape() {
    check(
        simplify::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 3] f32
          %1 = Input {name="y"} : [3] f32
          %2 = Expand(%1) {to=[2, 3]} : [2, 3] f32
          %3 = Binary.Mul(%0, %2) : [2, 3] f32
          return %3
        }"#,
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 3] f32
          %1 = Input {name="y"} : [3] f32
          %2 = Binary.Mul(%0, %1) : [2, 3] f32
          return %2
        }"#,
    );
    let kept = apply(
        simplify::run,
        &parse(
            r#"graph "g" {
              %0 = Input {name="y"} : [3] f32
              %1 = Expand(%0) {to=[2, 3]} : [2, 3] f32
              %2 = Binary.Mul(%1, %1) : [2, 3] f32
              return %2
            }"#,
        ),
    );
    assert_eq!(count(&kept, OpKind::Expand), 1, "{kept}");
}

#[test]
fn a_transposed_operand_beside_one_that_is_not_stays() {
    check_unchanged(
        simplify::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 3] f32
          %1 = Input {name="y"} : [3, 2] f32
          %2 = Transpose(%0) {perm=[1, 0]} : [3, 2] f32
          %3 = Binary.Add(%2, %1) : [3, 2] f32
          return %3
        }"#,
    );
}

#[test]
fn an_operand_of_dimensions_that_stay_in_place_is_not_moved() {
    check(
        simplify::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 3, 4] f32
          %1 = Input {name="b"} : [4] f32
          %2 = Transpose(%0) {perm=[1, 0, 2]} : [3, 2, 4] f32
          %3 = Binary.Add(%2, %1) : [3, 2, 4] f32
          return %3
        }"#,
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 3, 4] f32
          %1 = Input {name="b"} : [4] f32
          %2 = Binary.Add(%0, %1) : [2, 3, 4] f32
          %3 = Transpose(%2) {perm=[1, 0, 2]} : [3, 2, 4] f32
          return %3
        }"#,
    );
}

#[test]
fn dimensions_of_one_that_come_and_go_around_a_transpose_are_not_made() {
    // As torch's attention takes query, key and value apart.
    check(
        simplify::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [5, batch, 12] f32
          %1 = Reshape(%0) {to=[1, 5, batch, 3, 4]} : [1, 5, batch, 3, 4] f32
          %2 = Transpose(%1) {perm=[3, 1, 2, 0, 4]} : [3, 5, batch, 1, 4] f32
          %3 = Reshape(%2) {to=[3, 5, batch, 4]} : [3, 5, batch, 4] f32
          return %3
        }"#,
        r#"graph "g" {
          %0 = Input {name="x"} : [5, batch, 12] f32
          %1 = Reshape(%0) {to=[5, batch, 3, 4]} : [5, batch, 3, 4] f32
          %2 = Transpose(%1) {perm=[2, 0, 1, 3]} : [3, 5, batch, 4] f32
          return %2
        }"#,
    );
    // One that the value has, and one that is wanted, stay.
    check_unchanged(
        simplify::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [5, 1, 6] f32
          %1 = Reshape(%0) {to=[5, 2, 3]} : [5, 2, 3] f32
          %2 = Transpose(%1) {perm=[1, 0, 2]} : [2, 5, 3] f32
          %3 = Reshape(%2) {to=[2, 1, 15]} : [2, 1, 15] f32
          return %3
        }"#,
    );
}

#[test]
fn neighbours_that_are_exchanged_and_merged_are_shuffled_where_they_are() {
    // As a net whose channels are last shuffles them, where its file has them first.
    check(
        simplify::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [batch, 5, 7, 2, 3] f32
          %1 = Transpose(%0) {perm=[0, 4, 3, 1, 2]} : [batch, 3, 2, 5, 7] f32
          %2 = Reshape(%1) {to=[batch, 6, 5, 7]} : [batch, 6, 5, 7] f32
          return %2
        }"#,
        r#"graph "g" {
          %0 = Input {name="x"} : [batch, 5, 7, 2, 3] f32
          %1 = Transpose(%0) {perm=[0, 1, 2, 4, 3]} : [batch, 5, 7, 3, 2] f32
          %2 = Reshape(%1) {to=[batch, 5, 7, 6]} : [batch, 5, 7, 6] f32
          %3 = Transpose(%2) {perm=[0, 3, 1, 2]} : [batch, 6, 5, 7] f32
          return %3
        }"#,
    );
    // Nothing but the shuffle; what is merged was apart; neighbours in their order, which move as one.
    for (perm, merged) in [
        ("[0, 2, 1, 3, 4]", "[batch, 35, 2, 3]"),
        ("[0, 1, 3, 2, 4]", "[batch, 10, 7, 3]"),
        ("[0, 3, 4, 1, 2]", "[batch, 6, 5, 7]"),
    ] {
        let sizes = ["batch", "5", "7", "2", "3"];
        let places = perm.trim_matches(['[', ']']).split(", ");
        let moved: Vec<&str> = places.map(|p| sizes[p.parse::<usize>().unwrap()]).collect();
        let moved = moved.join(", ");
        check_unchanged(
            simplify::run,
            &format!(
                r#"graph "g" {{
          %0 = Input {{name="x"}} : [batch, 5, 7, 2, 3] f32
          %1 = Transpose(%0) {{perm={perm}}} : [{moved}] f32
          %2 = Reshape(%1) {{to={merged}}} : {merged} f32
          return %2
        }}"#
            ),
        );
    }
}

#[test]
fn packed_elements_are_moved_in_whole_bytes() {
    check_unchanged(
        simplify::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [3, 4] u4
          %1 = Cast(%0) {to=u8} : [3, 4] u8
          %2 = Transpose(%1) {perm=[1, 0]} : [4, 3] u8
          %3 = Cast(%2) {to=u4} : [4, 3] u4
          return %3
        }"#,
    );
}

#[test]
fn gathers_of_places_in_a_row_are_slices_where_they_are_in_range() {
    let text = |range: &str| {
        format!(
            r#"graph "g" {{
              {range}
              %0 = Input {{name="x"}} : [2, seq, 3] f32
              %1 = Constant {{data=dense([] i64, 0)}} : [] i64
              %2 = Gather(%0, %1) {{axis=1}} : [2, 3] f32
              %3 = Constant {{data=dense([2] i64, 0, -1)}} : [2] i64
              %4 = Gather(%2, %3) {{axis=1}} : [2, 2] f32
              return %4
            }}"#
        )
    };
    let open = apply(simplify::run, &parse(&text("")));
    assert_eq!(count(&open, OpKind::Gather), 1, "seq may be 0: {open}");
    let after = apply(simplify::run, &parse(&text("range seq 1..=8")));
    assert_eq!(count(&after, OpKind::Gather), 0, "{after}");
    crate::common::assert_same_results(&open, &after, &rlx_ir::DimBinding::batch_seq(2, 3));
}

#[test]
fn padding_in_front_of_a_convolution_becomes_its_own() {
    const CONV: &str = "strides=[1, 1], pads=[0, 0, 0, 0], dilations=[1, 1], groups=1, format=ChannelsFirst";
    let padded = |value: &str| {
        crate::common::short(&format!(
            "x: [1, 2, 4, 4] f32
            w: param [3, 2, 3, 3] f32
            p = Pad(x, {value}) {{before=[0, 0, 1, 1], after=[0, 0, 2, 1], mode=Constant}}
            y = Conv(p, w) {{{CONV}}}
            return y"
        ))
    };
    let before = padded("0");
    let after = apply(simplify::run, &before);
    assert_eq!(count(&after, OpKind::Pad), 0, "{after}");
    crate::common::assert_same_results(&before, &after, &rlx_ir::DimBinding::new());
    assert_eq!(count(&apply(simplify::run, &padded("1")), OpKind::Pad), 1, "a border of ones stays");
}

#[test]
fn a_division_stays_one_where_its_last_bit_decides_a_step() {
    let scale = |last: &str| {
        let before = crate::common::short(&format!(
            "x: [2, 3] f32
            high = Reduce(x) {{op=Max, axes=[0, 1], keep_dim=false}}
            scale = Binary.Div(high, 255)
            {last}"
        ));
        let after = apply(simplify::run, &before);
        crate::common::assert_same_results(&before, &after, &rlx_ir::DimBinding::new());
        after.to_string().contains("Binary.Div(")
    };
    assert!(scale("y = Quantize(x, scale) {axis=none, to=i8}\nreturn y"), "DynamicQuantizeLinear");
    assert!(scale("f = Activation.Floor(scale)\nreturn f"));
    let rows = "r = Binary.Mul(x, scale)\nw: param [4, 1, 3] i8\ns: param [1, 4] f32";
    assert!(scale(&format!("{rows}\ny = DynamicMatMulBlocks(r, w, s)\nreturn y")), "rows are rounded");
    assert!(!scale(&format!("{rows}\ny = MatMulBlocks(r, w, s)\nreturn y")), "rows are not");
    assert!(!scale("return scale"), "an output may differ in its last bit");
    assert!(
        !scale("e = Activation.Exp(scale)\nf = Activation.Floor(e)\nreturn f"),
        "as the exponential does"
    );
}

#[test]
fn bytes_that_are_dequantised_and_quantised_alike_are_what_they_were() {
    let graph = |scale: &str, zero: &str| {
        format!(
            r#"graph "g" {{
              %0 = Input {{name="x"}} : [2, 3] i8
              %1 = Constant {{data=dense([] f32, 0.5)}} : [] f32
              %2 = Constant {{data=dense([] i8, -5)}} : [] i8
              %3 = Constant {{data=dense([] f32, {scale})}} : [] f32
              %4 = Constant {{data=dense([] i8, {zero})}} : [] i8
              %5 = Dequantize(%0, %1, %2) {{axis=none, to=f32}} : [2, 3] f32
              %6 = Quantize(%5, %3, %4) {{axis=none, to=i8}} : [2, 3] i8
              return %6
            }}"#
        )
    };
    check_with(
        simplify::run,
        &graph("0.5", "-5"),
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 3] i8
          return %0
        }"#,
        &strict(),
    );
    for (scale, zero) in [("0.25", "-5"), ("0.5", "-4")] {
        let after = apply_with(simplify::run, &parse(&graph(scale, zero)), &strict());
        assert_eq!(count(&after, OpKind::Quantize), 1, "{after}");
    }
}

#[test]
fn a_sum_with_what_is_moved_keeps_the_shape_of_what_is_computed() {
    let after = apply(
        simplify::run,
        &parse(
            r#"graph "g" {
              %0 = Input {name="x"} : [2, 3, 4] f32
              %1 = Input {name="y"} : [6, 4] f32
              %2 = Input {name="w"} : [4, 4] f32
              %3 = Transpose(%0) {perm=[1, 0, 2]} : [3, 2, 4] f32
              %4 = Reshape(%3) {to=[1, 6, 4]} : [1, 6, 4] f32
              %5 = MatMul(%1, %2) : [6, 4] f32
              %6 = Reshape(%5) {to=[1, 6, 4]} : [1, 6, 4] f32
              %7 = Binary.Add(%4, %6) : [1, 6, 4] f32
              return %7
            }"#,
        ),
    );
    let sum = after.nodes().iter().find(|n| n.op.kind() == OpKind::Binary).unwrap();
    assert_eq!(after.node(sum.inputs[1]).op.kind(), OpKind::MatMul, "{after}");
}
