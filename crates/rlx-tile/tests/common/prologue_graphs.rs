//! Random graphs of a matmul whose operands are computed of others: weights in blocks, and elementwise ops.

use rlx_ir::oracle::Bindings;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, Graph, Op, Value, text};

/// Lines of a graph, each a node.
#[derive(Default)]
struct Lines {
    text: String,
    count: usize,
    /// No input is transposed.
    as_stored: bool,
}

/// A node, with its dimensions and its type.
type Node = (usize, Vec<usize>, DType);

impl Lines {
    fn push(&mut self, what: &str, dims: &[usize], dtype: DType) -> Node {
        self.text += &format!("  %{} = {what} : {dims:?} {dtype}\n", self.count);
        self.count += 1;
        (self.count - 1, dims.to_vec(), dtype)
    }

    fn input(&mut self, name: &str, dims: &[usize], dtype: DType) -> Node {
        self.push(&format!("Input {{name=\"{name}{}\"}}", self.count), dims, dtype)
    }

    /// An input, at times the transpose of one.
    fn operand(&mut self, g: &mut Gen, name: &str, dims: &[usize], dtype: DType) -> Node {
        let rank = dims.len();
        if rank < 2 || self.as_stored || g.chance(0.6) {
            return self.input(name, dims, dtype);
        }
        let (mut perm, mut from): (Vec<usize>, _) = ((0..rank).collect(), dims.to_vec());
        perm.swap(rank - 2, rank - 1);
        from.swap(rank - 2, rank - 1);
        let x = self.input(name, &from, dtype);
        self.push(&format!("Transpose(%{}) {{perm={perm:?}}}", x.0), dims, dtype)
    }

    fn cast(&mut self, x: &Node, to: DType) -> Node {
        self.push(&format!("Cast(%{}) {{to={to}}}", x.0), &x.1, to)
    }

    /// An operand that is computed by elementwise ops of one to three tensors, of which some are broadcast.
    fn computed(&mut self, g: &mut Gen, dims: &[usize], dtype: DType) -> Node {
        let cols = dims[dims.len() - 1];
        let float = g.pick(&[dtype, dtype, DType::F32]);
        let mut x = self.operand(g, "x", dims, float);
        for _ in 0..g.size(1..=3) {
            x = match g.int(0..=5) {
                0 | 1 => {
                    let f = g.pick(&["Silu", "Relu", "Tanh", "Neg"]);
                    self.push(&format!("Activation.{f}(%{})", x.0), dims, x.2)
                }
                kind => {
                    let other = match kind {
                        2 => vec![cols],
                        3 => [&dims[..dims.len() - 1], &[1]].concat(),
                        _ => dims.to_vec(),
                    };
                    let y = self.operand(g, "y", &other, x.2);
                    let f = g.pick(&["Mul", "Add", "Sub"]);
                    self.push(&format!("Binary.{f}(%{}, %{})", x.0, y.0), dims, x.2)
                }
            };
        }
        if x.2 == dtype { x } else { self.cast(&x, dtype) }
    }

    /// What often follows a matmul.
    fn behind(&mut self, g: &mut Gen, mut x: Node) -> Node {
        let (dims, dtype) = (x.1.clone(), x.2);
        if g.chance(0.4) {
            let bias = self.input("b", &dims[dims.len() - 1..], dtype);
            x = self.push(&format!("Binary.Add(%{}, %{})", x.0, bias.0), &dims, dtype);
        }
        if g.chance(0.3) {
            x = self.push(&format!("Activation.Relu(%{})", x.0), &dims, dtype);
        }
        if g.chance(0.4) {
            let residual = self.input("r", &dims, dtype);
            x = self.push(&format!("Binary.Add(%{}, %{})", residual.0, x.0), &dims, dtype);
        }
        if g.chance(0.2) { self.cast(&x, DType::F32) } else { x }
    }

    fn graph(self, result: &Node) -> Graph {
        let text = format!("graph \"random\" {{\n{}  return %{}\n}}", self.text, result.0);
        text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }
}

/// A size up to this, half of them multiples of 8.
fn size(g: &mut Gen, most: usize) -> usize {
    if g.chance(0.5) { g.size(1..=most) } else { 8 * g.size(1..=most / 8) }
}

/// Rows by weights of 4 or 8 bits in blocks, with scales of the rows' type or f32 and, more often than not, zero points; the rows are now and then computed.
pub fn random_blocks(g: &mut Gen, dtype: DType) -> Graph {
    let mut lines = Lines::default();
    let block = g.pick(&[8, 16, 32, 32, 64, 128]);
    let (blocks, n) = (g.size(1..=(160 / block).max(2)), size(g, 90));
    // The last block may be longer than what is left of the depth.
    let k = blocks * block - 8 * g.size(0..=block / 8 - 1);
    let mut rows = if g.chance(0.5) { vec![size(g, 80)] } else { vec![g.size(1..=3), size(g, 40)] };
    rows.push(k);
    // Rows of several dimensions are one dimension in memory.
    lines.as_stored = rows.len() > 2;
    let x = match g.chance(0.3) {
        true => lines.computed(g, &rows, dtype),
        false => lines.input("x", &rows, dtype),
    };
    lines.as_stored = false;
    let to = g.pick(&[DType::U4, DType::I4, DType::U8, DType::I8]);
    let w = lines.input("w", &[n, blocks, block], to);
    let float = g.pick(&[dtype, DType::F32]);
    let scale = lines.operand(g, "scale", &[blocks, n], float);
    let zero = if g.chance(0.6) {
        let zero = lines.operand(g, "zero", &[blocks, n], dtype);
        format!(", %{}", zero.0)
    } else {
        String::new()
    };
    *rows.last_mut().unwrap() = n;
    let y = lines.push(&format!("MatMulBlocks(%{}, %{}, %{}{zero})", x.0, w.0, scale.0), &rows, dtype);
    let y = lines.behind(g, y);
    lines.graph(&y)
}

/// A matmul of which one operand or both are computed by elementwise ops.
pub fn random_producers(g: &mut Gen, dtype: DType) -> Graph {
    let mut lines = Lines::default();
    let batch: Vec<usize> = (0..g.size(0..=1)).map(|_| g.size(1..=3)).collect();
    let (m, n, k) = (size(g, 80), size(g, 80), size(g, 72));
    let side = g.int(0..=2);
    let mut operand = |g: &mut Gen, of: i64, dims: Vec<usize>| match side == of {
        true => lines.operand(g, "x", &dims, dtype),
        false => lines.computed(g, &dims, dtype),
    };
    let a = operand(g, 0, [&batch[..], &[m, k]].concat());
    // Weights are often the same for all of the batch.
    let own = if g.chance(0.5) { &batch[..] } else { &[] };
    let b = operand(g, 1, [own, &[k, n]].concat());
    let dims = [&batch[..], &[m, n]].concat();
    let y = lines.push(&format!("MatMul(%{}, %{})", a.0, b.0), &dims, dtype);
    let y = lines.behind(g, y);
    lines.graph(&y)
}

/// Values for a graph: integers of all their range, small scales, whole zero points.
pub fn values(graph: &Graph, g: &mut Gen) -> Bindings {
    let mut values = Bindings::default();
    for node in graph.inputs() {
        let Op::Input { name } = &node.op else { unreachable!("inputs are inputs") };
        let (dims, dtype) = (node.shape.static_dims().unwrap(), node.shape.dtype());
        let range = match dtype.int_range() {
            Some((least, most)) => least as f64..most as f64 + 1.0,
            None if name.starts_with("scale") => {
                let scales = (0..dims.iter().product()).map(|_| g.int(7..=90) as f64 / 3000.0).collect();
                values.set_input(name.clone(), Value::float(dtype, &dims, scales).rounded());
                continue;
            }
            None if name.starts_with("zero") => 0.0..9.0,
            None => -1.0..1.0,
        };
        let value = g.value(dtype, &dims, range);
        values.set_input(name.clone(), value);
    }
    values
}
