//! Graphs that tests on the fake driver and tests on the machine's own GPUs both run.
#![allow(dead_code, reason = "each of the two takes some of it")]

use rlx_ir::testing::Gen;
use rlx_ir::{Graph, text};

/// Behind the node before (`@`): a bias.
pub const BIAS: &str = "Binary.Add(@, %2)";
/// The GELU that libraries for matmuls have.
pub const GELU: &str = "Activation.GeluApprox(@)";

pub fn parsed(body: &str) -> Graph {
    text::parse(&format!("graph \"g\" {{ {body} }}")).unwrap_or_else(|e| panic!("{e}\n{body}"))
}

/// `relu(x·Wᵀ + b)` as importers write it, by weights of this type in blocks of `size`.
pub fn blocks(rows: &str, n: usize, k: usize, size: usize, dtype: &str) -> Graph {
    let count = n * k / size;
    parsed(&format!(
        "%0 = Input {{name=\"x\"}} : [{rows}, {k}] f16 %1 = Param {{name=\"w\"}} : [{count}, {size}] {dtype} \
         %2 = Param {{name=\"small\"}} : [{count}] f16 %3 = Param {{name=\"zero\"}} : [{count}] {dtype} \
         %4 = Dequantize(%1, %2, %3) {{axis=0, to=f16}} : [{count}, {size}] f16 \
         %5 = Reshape(%4) {{to=[{n}, {k}]}} : [{n}, {k}] f16 \
         %6 = Transpose(%5) {{perm=[1, 0]}} : [{k}, {n}] f16 %7 = MatMul(%0, %6) : [{rows}, {n}] f16 \
         %8 = Param {{name=\"b\"}} : [{n}] f16 %9 = Binary.Add(%7, %8) : [{rows}, {n}] f16 \
         %10 = Activation.Relu(%9) : [{rows}, {n}] f16 return %10"
    ))
}

/// `(silu(gate) · up) · w`.
pub fn gated(rows: &str, k: usize, n: usize) -> Graph {
    parsed(&format!(
        "%0 = Input {{name=\"g\"}} : [{rows}, {k}] f16 %1 = Input {{name=\"u\"}} : [{rows}, {k}] f16 \
         %2 = Param {{name=\"w\"}} : [{k}, {n}] f16 %3 = Activation.Silu(%0) : [{rows}, {k}] f16 \
         %4 = Binary.Mul(%3, %1) : [{rows}, {k}] f16 %5 = MatMul(%4, %2) : [{rows}, {n}] f16 return %5"
    ))
}

/// A layer of `k` inputs and `n` outputs: a weight, a bias, an activation, a residual.
pub fn layer(rows: &str, k: usize, n: usize) -> Graph {
    parsed(&format!(
        "%0 = Input {{name=\"x\"}} : [{rows}, {k}] f16 %1 = Param {{name=\"w\"}} : [{k}, {n}] f16 \
         %2 = Param {{name=\"b\"}} : [{n}] f16 %3 = Input {{name=\"y\"}} : [{rows}, {n}] f16 \
         %4 = MatMul(%0, %1) : [{rows}, {n}] f16 %5 = Binary.Add(%4, %2) : [{rows}, {n}] f16 \
         %6 = Activation.Silu(%5) : [{rows}, {n}] f16 %7 = Binary.Add(%6, %3) : [{rows}, {n}] f16 return %7"
    ))
}

/// A graph: `nodes` in front, then `ops`, each of the one before it, with results of this type.
pub fn chain(nodes: &[String], ops: &[&str], result: &str) -> (Vec<String>, usize) {
    let mut lines = nodes.to_vec();
    for op in ops {
        let last = lines.len() - 1;
        lines.push(format!("%{} = {} : {result}", last + 1, op.replace('@', &format!("%{last}"))));
    }
    let last = lines.len() - 1;
    (lines, last)
}

/// A matmul of random extents, batch and type with an epilogue of the library's. What is added may be some rows and columns of a larger tensor, and the result a part of wider rows.
pub fn random_epilogue(g: &mut Gen) -> Graph {
    let dtype = g.pick(&["f32", "f16", "bf16"]);
    let batch = g.pick(&["", "2, ", "3, 1, ", "2, 3, "]);
    let rank = batch.matches(',').count() + 1;
    let [m, n] = [0, 1].map(|_| g.size(16..=40));
    let k = 2 * g.size(16..=24);
    let own = if g.chance(0.5) { batch } else { "" };
    let result = format!("[{batch}{m}, {n}] {dtype}");
    let [above, before] = if g.chance(0.4) { [g.size(0..=2), 8 * g.size(0..=1)] } else { [0, 0] };
    let (zeros, ones) = ("0, ".repeat(rank - 1), vec!["1"; rank + 1].join(", "));
    let nodes = [
        format!(r#"%0 = Input {{name="x"}} : [{batch}{m}, {k}] {dtype}"#),
        format!(r#"%1 = Param {{name="w"}} : [{own}{k}, {n}] {dtype}"#),
        format!(r#"%2 = Param {{name="b"}} : [{n}] {dtype}"#),
        format!(r#"%3 = Input {{name="r"}} : [{batch}{}, {}] {dtype}"#, m + above, n + before),
        format!(
            "%4 = Slice(%3) {{starts=[{zeros}{above}, {before}], steps=[{ones}], to=[{batch}{m}, {n}]}} : {result}"
        ),
        format!("%5 = MatMul(%0, %1) : {result}"),
    ];
    const RESIDUAL: &str = "Binary.Add(%4, @)";
    let sums = if g.chance(0.5) { [BIAS, RESIDUAL] } else { [RESIDUAL, BIAS] };
    let mut ops: Vec<&str> = sums.into_iter().filter(|_| g.chance(0.6)).collect();
    if g.chance(0.6) {
        ops.push(GELU);
    }
    let (mut lines, mut last) = chain(&nodes, &ops, &result);
    if g.chance(0.3) {
        last += 1;
        let whole = format!("Concat(%{}, %4) {{axis={rank}}} : [{batch}{m}, {}] {dtype}", last - 1, 2 * n);
        lines.push(format!("%{last} = {whole}"));
    }
    parsed(&format!("{} return %{last}", lines.join("\n")))
}
