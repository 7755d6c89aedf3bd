//! Merging matmuls: what shares its rows and is read in place, and nothing else.

use crate::common::{check, check_unchanged, check_with, parse, strict};
use rlx_ir::{Graph, Node, OpKind};
use rlx_opt::passes::merge_matmuls;
use rlx_opt::pipeline::PassContext;
use rlx_opt::{Claim, CompileOptions, Target};

const QKV: &str = r#"graph "g" {
  %0 = Input {name="x"} : [2, 3, 4] f32
  %1 = Param {name="wq"} : [4, 4] f32
  %2 = MatMul(%0, %1) : [2, 3, 4] f32
  %3 = Param {name="bq"} : [4] f32
  %4 = Binary.Add(%2, %3) : [2, 3, 4] f32
  %5 = Param {name="wk"} : [4, 4] f32
  %6 = MatMul(%0, %5) : [2, 3, 4] f32
  %7 = Param {name="wv"} : [4, 8] f32
  %8 = MatMul(%0, %7) : [2, 3, 8] f32
  %9 = Param {name="bv"} : [1, 8] f32
  %10 = Binary.Add(%9, %8) : [2, 3, 8] f32
  %11 = Attention(%4, %6, %10) {num_heads=2, head_dim=2, mask=None, window=none, scale=none, unseen=Zero} : [2, 3, 8] f32
  return %11
}"#;

const MERGED: &str = r#"graph "g" {
  %0 = Input {name="x"} : [2, 3, 4] f32
  %1 = Param {name="wq"} : [4, 4] f32
  %2 = Param {name="wk"} : [4, 4] f32
  %3 = Param {name="wv"} : [4, 8] f32
  %4 = Param {name="bq"} : [4] f32
  %5 = Param {name="bv"} : [1, 8] f32
  %6 = Concat(%1, %2, %3) {axis=1} : [4, 16] f32
  %7 = MatMul(%0, %6) : [2, 3, 16] f32
  %8 = Constant {data=dense([] f32, -0.0)} : [] f32
  %9 = Expand(%8) {to=[4]} : [4] f32
  %10 = Reshape(%5) {to=[8]} : [8] f32
  %11 = Concat(%4, %9, %10) {axis=0} : [16] f32
  %12 = Binary.Add(%7, %11) : [2, 3, 16] f32
  %13 = Slice(%12) {starts=[0, 0, 0], steps=[1, 1, 1], to=[2, 3, 4]} : [2, 3, 4] f32
  %14 = Slice(%12) {starts=[0, 0, 4], steps=[1, 1, 1], to=[2, 3, 4]} : [2, 3, 4] f32
  %15 = Slice(%12) {starts=[0, 0, 8], steps=[1, 1, 1], to=[2, 3, 8]} : [2, 3, 8] f32
  %16 = Attention(%13, %14, %15) {num_heads=2, head_dim=2, mask=None, window=none, scale=none, unseen=Zero} : [2, 3, 8] f32
  return %16
}"#;

#[test]
fn query_key_and_value_are_one_matmul_with_and_without_biases() {
    check(merge_matmuls::run, QKV, MERGED);
    check_with(merge_matmuls::run, QKV, MERGED, &strict());
}

#[test]
fn what_is_moved_before_it_is_read_joins_too() {
    check(
        merge_matmuls::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [batch, 3, 4] f32
          %1 = Param {name="a"} : [4, 4] f32
          %2 = Param {name="b"} : [4, 2] f32
          %3 = MatMul(%0, %1) : [batch, 3, 4] f32
          %4 = MatMul(%0, %2) : [batch, 3, 2] f32
          %5 = Reshape(%3) {to=[batch, 3, 2, 2]} : [batch, 3, 2, 2] f32
          %6 = Transpose(%5) {perm=[0, 2, 1, 3]} : [batch, 2, 3, 2] f32
          %7 = Reduce(%6) {op=Sum, axes=[3], keep_dim=false} : [batch, 2, 3] f32
          %8 = Reduce(%4) {op=Sum, axes=[2], keep_dim=true} : [batch, 3, 1] f32
          %9 = MatMul(%7, %8) : [batch, 2, 1] f32
          return %9
        }"#,
        r#"graph "g" {
          %0 = Input {name="x"} : [batch, 3, 4] f32
          %1 = Param {name="a"} : [4, 4] f32
          %2 = Param {name="b"} : [4, 2] f32
          %3 = Concat(%1, %2) {axis=1} : [4, 6] f32
          %4 = MatMul(%0, %3) : [batch, 3, 6] f32
          %5 = Slice(%4) {starts=[0, 0, 0], steps=[1, 1, 1], to=[batch, 3, 4]} : [batch, 3, 4] f32
          %6 = Slice(%4) {starts=[0, 0, 4], steps=[1, 1, 1], to=[batch, 3, 2]} : [batch, 3, 2] f32
          %7 = Reshape(%5) {to=[batch, 3, 2, 2]} : [batch, 3, 2, 2] f32
          %8 = Transpose(%7) {perm=[0, 2, 1, 3]} : [batch, 2, 3, 2] f32
          %9 = Reduce(%8) {op=Sum, axes=[3], keep_dim=false} : [batch, 2, 3] f32
          %10 = Reduce(%6) {op=Sum, axes=[2], keep_dim=true} : [batch, 3, 1] f32
          %11 = MatMul(%9, %10) : [batch, 2, 1] f32
          return %11
        }"#,
    );
}

/// Two matmuls of `x`, and what is done with them.
fn two(weights: &str, rest: &str) -> String {
    format!(
        r#"graph "g" {{
          %0 = Input {{name="x"}} : [2, 4] f32
          %1 = Param {{name="a"}} : [4, 3] f32
          %2 = {weights} : [4, 3] f32
          %3 = MatMul(%0, %1) : [2, 3] f32
          %4 = MatMul(%0, %2) : [2, 3] f32
          {rest}
        }}"#
    )
}

#[test]
fn what_gains_nothing_stays() {
    let fixed = r#"Param {name="b"}"#;
    let sum = |of: usize, id: usize| {
        format!("%{id} = Reduce(%{of}) {{op=Sum, axes=[1], keep_dim=false}} : [2] f32\n")
    };
    // Elementwise ops belong to the epilogues of their matmuls.
    let gate = "%5 = Activation.Silu(%3) : [2, 3] f32\n%6 = Binary.Mul(%5, %4) : [2, 3] f32\nreturn %6";
    check_same(&two(fixed, gate));
    // An output has memory of its own.
    check_same(&two(fixed, &format!("{}return %4, %5", sum(3, 5))));
    // What is needed at other times would be in memory from the first to the last.
    check_same(&two(fixed, &format!("{}{}return %5, %6", sum(3, 5), sum(4, 6))));
    // Weights that change with every run cannot be joined before it.
    let together = "%7 = Binary.Add(%5, %6) : [2] f32\nreturn %7";
    check_same(&two(r#"Input {name="b"}"#, &format!("{}{}{together}", sum(3, 5), sum(4, 6))));
    // Weights that are used elsewhere would be there twice.
    let elsewhere = "%7 = Binary.Add(%5, %6) : [2] f32
        %8 = Reduce(%2) {op=Sum, axes=[1], keep_dim=false} : [4] f32\nreturn %7, %8";
    check_same(&two(fixed, &format!("{}{}{elsewhere}", sum(3, 5), sum(4, 6))));
}

fn check_same(text: &str) {
    check_unchanged(merge_matmuls::run, &parse(text).to_string());
}

#[test]
fn integer_matmuls_stay() {
    check_unchanged(
        merge_matmuls::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 4] u8
          %1 = Param {name="a"} : [4, 3] i8
          %2 = Param {name="b"} : [4, 3] i8
          %3 = Constant {data=dense([] u8, 3)} : [] u8
          %4 = Constant {data=dense([] i8, 1)} : [] i8
          %5 = MatMulInteger(%0, %1, %3, %4) : [2, 3] i32
          %6 = MatMulInteger(%0, %2, %3, %4) : [2, 3] i32
          %7 = Reduce(%5) {op=Sum, axes=[1], keep_dim=false} : [2] i32
          %8 = Reduce(%6) {op=Sum, axes=[1], keep_dim=false} : [2] i32
          return %7, %8
        }"#,
    );
}

/// A device whose matmuls are a library's, and that reads no views.
struct Library;

impl Target for Library {
    fn name(&self) -> &str {
        "library"
    }
    fn claim(&self, _: &Node, _: &Graph) -> Claim {
        Claim::Native
    }
    fn fuses(&self, _: Option<&Node>, _: &Node, _: &Graph) -> bool {
        false
    }
    fn reads_view(&self, op: &rlx_ir::Op, _: usize, _: &rlx_ir::lir::View) -> bool {
        op.kind() == OpKind::Attention
    }
    fn writes_view(&self, _: &rlx_ir::Op, _: &rlx_ir::lir::View) -> bool {
        false
    }
    fn columns_are_independent(&self, _: &Node) -> bool {
        false
    }
    fn pack_format(&self, _: &Node, _: usize, _: &Graph) -> Option<rlx_ir::op::PackFormat> {
        None
    }
}

fn matmuls_for_library(text: &str, options: &CompileOptions) -> usize {
    let after =
        merge_matmuls::run(&parse(text), &PassContext { target: &Library, options, is_body: false }).unwrap();
    crate::common::count(&after, OpKind::MatMul)
}

#[test]
fn a_device_decides_what_it_reads_and_promises() {
    // A library's columns may depend on each other in the last bit.
    assert_eq!(matmuls_for_library(QKV, &CompileOptions::default()), 1);
    assert_eq!(matmuls_for_library(QKV, &strict()), 3);
    // What this device cannot read in place would be copied.
    let rest = "%5 = Reduce(%3) {op=Sum, axes=[1], keep_dim=false} : [2] f32
        %6 = Reduce(%4) {op=Sum, axes=[1], keep_dim=false} : [2] f32
        %7 = Binary.Add(%5, %6) : [2] f32\nreturn %7";
    let text = two(r#"Param {name="b"}"#, rest);
    assert_eq!(matmuls_for_library(&text, &CompileOptions::default()), 2);
}

#[test]
fn a_merged_matmul_is_named_by_all_of_its_nodes() {
    let mut graph = parse(QKV);
    let matmuls: Vec<_> =
        { graph.nodes().iter() }.filter(|n| n.op.kind() == OpKind::MatMul).map(|n| n.id).collect();
    for (id, name) in matmuls.into_iter().zip(["query", "key", "value"]) {
        graph.set_name(id, name);
    }
    graph.names_to_origins();
    let after = crate::common::apply(merge_matmuls::run, &graph);
    let matmul = after.nodes().iter().find(|n| n.op.kind() == OpKind::MatMul).unwrap();
    let label = after.label(matmul.id);
    assert!(["query", "key", "value"].iter().all(|name| label.contains(name)), "{label}");
}
