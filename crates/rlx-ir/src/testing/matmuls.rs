//! Random matmuls with what stands before and behind them in models.

use super::Gen;
use crate::dtype::DType;
use crate::graph::Graph;
use crate::text;

pub(super) fn dims(dims: &[usize]) -> String {
    let all: Vec<String> = dims.iter().map(usize::to_string).collect();
    format!("[{}]", all.join(", "))
}

/// Lines of a graph, each a node.
#[derive(Default)]
pub(super) struct Lines {
    pub(super) text: String,
    count: usize,
}

impl Lines {
    pub(super) fn push(&mut self, what: &str, shape: &[usize], dtype: DType) -> usize {
        self.text += &format!("  %{} = {what} : {} {dtype}\n", self.count, dims(shape));
        self.count += 1;
        self.count - 1
    }

    pub(super) fn input(&mut self, shape: &[usize], dtype: DType) -> usize {
        self.push(&format!("Input {{name=\"x{}\"}}", self.count), shape, dtype)
    }

    pub(super) fn param(&mut self, shape: &[usize], dtype: DType) -> usize {
        self.push(&format!("Param {{name=\"w{}\"}}", self.count), shape, dtype)
    }

    /// An operand of these dimensions, at times a transposed input.
    fn operand(&mut self, g: &mut Gen, shape: &[usize], dtype: DType) -> usize {
        let rank = shape.len();
        if g.chance(0.5) {
            return self.input(shape, dtype);
        }
        let (mut perm, mut from): (Vec<usize>, _) = ((0..rank).collect(), shape.to_vec());
        perm.swap(rank - 2, rank - 1);
        from.swap(rank - 2, rank - 1);
        let x = self.input(&from, dtype);
        self.push(&format!("Transpose(%{x}) {{perm={}}}", dims(&perm)), shape, dtype)
    }
}

/// A random matmul of `dtype` with some of: a batch, of which an operand may have a part, transposed operands, scale, bias, activation,
/// residual, cast.
///
/// # Panics
/// Never: the text is of this function.
#[allow(clippy::expect_used, reason = "a text that does not parse is a mistake here")]
pub fn random_matmul(g: &mut Gen, dtype: DType) -> Graph {
    let batch: Vec<usize> = (0..g.size(0..=2)).map(|_| g.size(1..=3)).collect();
    let size =
        |g: &mut Gen, most: usize| if g.chance(0.5) { g.size(1..=most) } else { 8 * g.size(1..=most / 8) };
    let (m, n, k) = (size(g, 80), size(g, 80), size(g, 72));
    let part = |g: &mut Gen| {
        let from = if g.chance(0.3) { g.size(0..=batch.len()) } else { 0 };
        let repeated = |(i, &d): (usize, &usize)| if i == 0 && from == 0 && g.chance(0.2) { 1 } else { d };
        batch[from..].iter().enumerate().map(repeated).collect::<Vec<usize>>()
    };
    let mut lines = Lines::default();
    let (left, right) = (part(g), part(g));
    // Each dimension of the batch is whole in one operand at least.
    let left = if right == batch { left } else { batch.clone() };
    let a = lines.operand(g, &[&left[..], &[m, k]].concat(), dtype);
    let b = lines.operand(g, &[&right[..], &[k, n]].concat(), dtype);
    let shape = [&batch[..], &[m, n]].concat();
    let mut at = lines.push(&format!("MatMul(%{a}, %{b})"), &shape, dtype);
    if g.chance(0.5) {
        let bias = lines.input(&[n], dtype);
        at = lines.push(&format!("Binary.Add(%{at}, %{bias})"), &shape, dtype);
    }
    if g.chance(0.5) {
        let f = g.pick(&["Relu", "Tanh", "Sigmoid"]);
        at = lines.push(&format!("Activation.{f}(%{at})"), &shape, dtype);
    }
    if g.chance(0.5) {
        let residual = lines.input(&shape, dtype);
        at = lines.push(&format!("Binary.Add(%{residual}, %{at})"), &shape, dtype);
    }
    if g.chance(0.3) {
        at = lines.push(&format!("Cast(%{at}) {{to=f32}}"), &shape, DType::F32);
    }
    let text = format!("graph \"random\" {{\n{}  return %{at}\n}}", lines.text);
    text::parse(&text).expect("a graph of one matmul")
}
