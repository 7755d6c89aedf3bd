//! Whether a matmul on matrix units computes the ops that make an operand as it copies it, or reads what a step of their own has written.
//!
//! A tile program copies an operand again for each tile of the result's other dimension. What makes an element is computed again each time, of all that it is
//! made of; a step of its own computes it once, and reads and writes it once more. So the ops are computed in the program where there are few such tiles, or
//! where the operand is so small that a launch takes longer than what it spares: a decoder's one row.
//!
//! ```text
//! silu(gate) · up of [m, 11008] f16 before a weight of [11008, 4096]: 32 tiles of columns read it again, 4 bytes of an element instead of 2
//! m = 1      a part of the matmul: 64 narrower tiles read 1.4 MB more, from the cache
//! m = 4096   a step of its own
//! a cast of f32 to f16 before a weight of [768, 64]: one tile reads it, so it is part of the matmul for any number of rows
//! ```

use rlx_ir::ops::linalg::MatMulDims;
use rlx_ir::{DType, Extent, Graph, Node, NodeId, Op, Shape};
use rlx_tile::Arch;
use rlx_tile::schedule::suited_tiling;

/// What a launch takes, in bytes that are read again meanwhile. Not measured.
const LAUNCH_BYTES: f64 = (4 << 20) as f64;

/// Operations that take as long as reading a byte again from the cache of a GPU. Not measured.
const OPERATIONS_PER_BYTE: f64 = 5.0;

/// The most ops between a matmul and what makes its operand.
const MOST: usize = 16;

/// Whether a program of the matmul `anchor` should compute `producer`, which makes an operand of it, or of what does.
pub(crate) fn pays(producer: &Node, anchor: &Node, graph: &Graph, arch: Arch) -> bool {
    let types = producer.inputs.iter().chain([&producer.id]).map(|&id| graph.shape(id).dtype());
    if !producer.op.is_elementwise() || !{ types }.all(is_read) {
        return false;
    }
    let Some(sizes) = Sizes::of(anchor, graph) else { return false };
    let operands: Vec<bool> = (0..2).map(|i| makes(producer.id, anchor.inputs[i], graph, MOST)).collect();
    // Weights in blocks are unpacked, not computed.
    let blocks = anchor.op == Op::MatMulBlocks && operands[1];
    let tiles = [(sizes.n, 1), (sizes.m, 0)].into_iter().zip(operands).filter(|(_, made)| *made);
    let tiling = suited_tiling(arch, (sizes.m, sizes.n));
    let reads = tiles.map(|((across, of), _)| {
        let tile = tiling.map(|t| if of == 1 { t.tile.1 } else { t.tile.0 })?;
        let matrices = sizes.batch? as f64 / own_batch(graph.shape(producer.id), anchor)? as f64;
        Some((across.as_const()? as f64 / f64::from(tile)).ceil() * matrices.max(1.0))
    });
    // What is read by both operands is computed for each.
    let Some(reads) = reads.sum::<Option<f64>>() else { return false };
    !blocks && is_worth(producer, graph, reads)
}

/// Whether views of tile programs have elements of this type.
fn is_read(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// Whether computing a producer so many times takes less than once and writing it.
fn is_worth(producer: &Node, graph: &Graph, reads: f64) -> bool {
    let whole =
        producer.inputs.iter().map(|&id| graph.shape(id)).filter(|s| s.dims() == producer.shape.dims());
    let before = whole.map(|s| s.dtype().size_bytes()).sum::<usize>() as f64;
    let after = producer.shape.dtype().size_bytes() as f64;
    let launch = producer.shape.num_elements().map_or(0.0, |n| LAUNCH_BYTES / n.max(1) as f64);
    reads * (before - after + operations(producer) / OPERATIONS_PER_BYTE) <= before + after + launch
}

/// Operations for an element.
fn operations(node: &Node) -> f64 {
    let one = Shape::scalar(node.shape.dtype());
    node.op.def().flops(&node.op, &vec![&one; node.inputs.len()], std::slice::from_ref(&one))
}

/// Whether elementwise ops lead from a node to another one.
fn makes(from: NodeId, to: NodeId, graph: &Graph, most: usize) -> bool {
    let node = graph.node(to);
    let before = || node.inputs.iter().any(|&input| makes(from, input, graph, most - 1));
    from == to || most > 0 && from < to && node.op.is_elementwise() && before()
}

/// Matrices of an operand of a matmul.
fn own_batch(operand: &Shape, anchor: &Node) -> Option<usize> {
    match anchor.op {
        Op::MatMul => {
            let dims = operand.dims();
            dims[..dims.len().saturating_sub(2)].iter().map(|d| d.as_static()).product()
        }
        _ => Some(1),
    }
}

struct Sizes {
    /// Matmuls that are done; none where that is open.
    batch: Option<usize>,
    m: Extent,
    n: Extent,
}

impl Sizes {
    fn of(anchor: &Node, graph: &Graph) -> Option<Sizes> {
        let result = anchor.shape.dims();
        match anchor.op {
            Op::MatMul => {
                let dims =
                    MatMulDims::of(graph.shape(anchor.inputs[0]), graph.shape(anchor.inputs[1])).ok()?;
                let batch = dims.batch.iter().map(|d| d.as_static()).product();
                Some(Sizes { batch, m: dims.m.extent(), n: dims.n.extent() })
            }
            Op::MatMulBlocks => {
                let (n, rows) = result.split_last()?;
                let m = rows.iter().fold(Extent::Const(1), |m, d| m * d.extent());
                Some(Sizes { batch: Some(1), m, n: n.extent() })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlx_ir::text;

    /// Whether the producers of a matmul of `m` rows by `[k, n]` are part of it: by the name of each.
    fn taken(m: &str, k: usize, n: usize) -> Vec<(String, bool)> {
        let source = format!(
            "graph \"g\" {{ %0 = Input {{name=\"g\"}} : [{m}, {k}] f16 %1 = Input {{name=\"u\"}} : [{m}, {k}] f16 \
             %2 = Input {{name=\"w\"}} : [{k}, {n}] f16 %3 = Activation.Silu(%0) : [{m}, {k}] f16 \
             %4 = Binary.Mul(%3, %1) : [{m}, {k}] f16 %5 = MatMul(%4, %2) : [{m}, {n}] f16 return %5 }}"
        );
        let graph = text::parse(&source).unwrap();
        let anchor = graph.nodes().iter().find(|n| n.op == Op::MatMul).unwrap();
        let producers = graph.nodes().iter().filter(|n| n.op.is_elementwise());
        producers.map(|p| (p.op.kind().name().to_owned(), pays(p, anchor, &graph, Arch::Sm80))).collect()
    }

    #[test]
    fn few_rows_and_few_columns_compute_a_gate_and_many_do_not() {
        let all = |m: &str, k, n| taken(m, k, n).iter().all(|(_, taken)| *taken);
        assert!(all("1", 11_008, 4096) && all("4096", 512, 64), "{:?}", taken("4096", 512, 64));
        assert!(!all("4096", 11_008, 4096) && !all("seq", 11_008, 4096));
    }

    #[test]
    fn what_is_no_float_of_a_view_stays_a_step() {
        let source = "graph \"g\" { %0 = Input {name=\"x\"} : [4, 8] i32 %1 = Input {name=\"w\"} : [8, 4] f16 \
                      %2 = Cast(%0) {to=f16} : [4, 8] f16 %3 = MatMul(%2, %1) : [4, 4] f16 return %3 }";
        let graph = text::parse(source).unwrap();
        let of = |i: usize| &graph.nodes()[i];
        assert!(!pays(of(2), of(3), &graph, Arch::Sm80));
    }
}
