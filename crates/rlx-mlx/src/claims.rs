//! What MLX computes, by op, element type and attribute. What is not claimed is decomposed, or the dispatch report says why it cannot be.

use rlx_ir::op::{MaskKind, ReduceOp, ScatterOp, Unseen};
use rlx_ir::{DType, Dim, Graph, Node, Op, Shape};
use rlx_opt::Claim;

use crate::emit::{group_of, has_activation, integer_terms_fit};

/// The most products of a matmul of integers: they are all there at one time.
const MOST_PRODUCTS: usize = 1 << 22;

/// What differs between MLX's devices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Abilities {
    /// Whether it computes on a GPU: without doubles, and with updates of one place in any order.
    pub(crate) gpu: bool,
}

impl Abilities {
    /// Whether MLX has elements of this type.
    pub(crate) fn has(self, dtype: DType) -> bool {
        match dtype {
            DType::F32 | DType::F16 | DType::BF16 | DType::Bool => true,
            DType::F64 => !self.gpu,
            _ => dtype.is_int() && !dtype.is_packed(),
        }
    }
}

/// The types that MLX's kernels for layers take.
fn is_layer_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

fn no(why: impl Into<String>) -> Claim {
    Claim::No(why.into())
}

fn when(holds: bool, why: &str) -> Claim {
    if holds { Claim::Native } else { no(why) }
}

/// Whether MLX computes `node`.
pub(crate) fn claim(node: &Node, graph: &Graph, can: Abilities) -> Claim {
    let inputs: Vec<&Shape> = node.inputs.iter().map(|&id| graph.shape(id)).collect();
    let results: &[Shape] = node.results();
    let packed = |shape: &Shape| shape.dtype().is_packed() && shape.dtype().is_int();
    // Packed integers are turned into whole bytes and back; products take them as they are.
    let takes_packed = |at: usize| match node.op {
        Op::Cast { .. } => true,
        Op::MatMulBlocks => at == 1,
        _ => false,
    };
    let given =
        inputs.iter().enumerate().find(|(i, s)| !(can.has(s.dtype()) || packed(s) && takes_packed(*i)));
    let made = results.iter().find(|s| !(can.has(s.dtype()) || packed(s) && takes_packed(0)));
    if let Some(shape) = given.map(|(_, s)| *s).or(made) {
        return no(format!("MLX has no elements of {} here", shape.dtype()));
    }
    let dtype = inputs.first().map_or(node.shape.dtype(), |s| s.dtype());
    match &node.op {
        Op::Activation(f) => when(has_activation(*f, dtype), &format!("MLX has no {f:?} of {dtype}")),
        Op::Binary(_)
        | Op::Compare(_)
        | Op::Where
        | Op::Predicate(_)
        | Op::Cast { .. }
        | Op::BitCast { .. }
        | Op::Pad { .. }
        | Op::Iota { .. }
        | Op::Reduce { .. }
        | Op::ArgReduce { .. }
        | Op::Pool { .. }
        | Op::Gather { .. }
        | Op::GatherElements { .. }
        | Op::GatherNd { .. }
        | Op::UpdateSlice { .. }
        | Op::MatMulInteger => Claim::Native,
        Op::Cumulative { op, .. } => when(*op != ReduceOp::Mean, "there is no running mean"),
        Op::TopK { .. } => {
            when(!can.gpu || dtype.bits() < 64, "elements of 64 bits are not sorted in a fixed order")
        }
        Op::ScatterElements { reduction, .. } | Op::ScatterNd { reduction }
            if reduction.joins_in_f32(dtype) =>
        {
            no("its updates are joined in f32")
        }
        Op::ScatterElements { reduction, .. } | Op::ScatterNd { reduction } => {
            when(!can.gpu || scatters_on_gpu(*reduction, dtype), "updates of one place come in any order")
        }
        Op::MatMul => matmul(inputs[0], inputs[1], dtype),
        Op::Softmax { .. } => when(is_layer_float(dtype), "MLX's softmax is of f32, f16 or bf16"),
        Op::LayerNorm { axis, .. } | Op::RmsNorm { axis, .. } => norm(*axis, &inputs, dtype),
        Op::Attention { window: Some(_), .. } => no("MLX has no windows of keys"),
        Op::Attention { mask, unseen, .. } => attention(*mask, *unseen, &inputs, dtype),
        Op::MatMulBlocks => blocks(&inputs, dtype),
        Op::Conv { .. } | Op::ConvTranspose { .. } => {
            when(is_layer_float(dtype), "MLX's convolutions are of f32, f16 or bf16")
        }
        Op::ConvInteger { groups, .. } => {
            let dims: Option<Vec<usize>> = inputs[1].static_dims();
            let exact =
                dims.is_some_and(|d| integer_terms_fit(d[1], d[2..].iter().product::<usize>(), *groups));
            when(exact, "its sums have more terms than f32 adds exactly")
        }
        Op::If { count, .. } | Op::Loop { count, .. } => {
            when(count.is_none(), "how large its result is is known in the run only")
        }
        op => no(format!("MLX has no {}", op.kind())),
    }
}

/// Scatters whose result does not hang on the order in which a GPU writes.
fn scatters_on_gpu(reduction: ScatterOp, dtype: DType) -> bool {
    match reduction {
        ScatterOp::Set => true,
        ScatterOp::Add | ScatterOp::Mul => dtype.is_int() && dtype.bits() <= 32,
        // By keys, which u32 has only in 64 bits.
        ScatterOp::Max | ScatterOp::Min => dtype.bits() <= 32 && dtype != DType::U32,
        _ => false,
    }
}

fn matmul(a: &Shape, c: &Shape, dtype: DType) -> Claim {
    if dtype.is_float() {
        return Claim::Native;
    }
    let products = || {
        let (a, c) = (a.num_elements()?, c.static_dims()?);
        let columns = if c.len() > 1 { c[c.len() - 1] } else { 1 };
        let batch: usize = c.iter().rev().skip(2).product();
        a.checked_mul(columns)?.checked_mul(batch)
    };
    when(products().is_some_and(|n| n <= MOST_PRODUCTS), "MLX multiplies matrices of floats")
}

/// Factors and terms of a row's own dimensions.
fn norm(axis: i32, inputs: &[&Shape], dtype: DType) -> Claim {
    let rank = inputs[0].rank() as i64;
    let first = if axis < 0 { i64::from(axis) + rank } else { i64::from(axis) };
    let row = usize::try_from(first).ok().and_then(|first| inputs[0].dims().get(first..));
    let fits = row.is_some_and(|row| inputs[1..].iter().all(|s| s.dims() == row));
    when(
        is_layer_float(dtype) && fits,
        "MLX's norms are of f32, f16 or bf16, with factors for each element of a row",
    )
}

fn attention(mask: MaskKind, unseen: Unseen, inputs: &[&Shape], dtype: DType) -> Claim {
    if !is_layer_float(dtype) {
        return no("MLX's attention is of f32, f16 or bf16");
    }
    let seq = |s: &Shape| s.dim(s.rank() - 2);
    match mask {
        MaskKind::None => match seq(inputs[1]) {
            Dim::Static(0) => no("there are no keys"),
            _ => Claim::Native,
        },
        // With fewer keys than queries, the first queries see nothing.
        MaskKind::Causal => match (seq(inputs[0]), seq(inputs[1])) {
            (q, k) if q == k => Claim::Native,
            (Dim::Static(q), Dim::Static(k)) if q <= k => Claim::Native,
            _ => no("the first queries may see nothing"),
        },
        MaskKind::Custom => when(unseen != Unseen::Guard, "weights that are no numbers are not looked for"),
        other => no(format!("MLX has no mask {other:?}")),
    }
}

fn blocks(inputs: &[&Shape], dtype: DType) -> Claim {
    let w = inputs[1];
    let grouped = w.rank() == 3 && w.dim(2).as_static().is_some_and(|size| group_of(size).is_some());
    let bits = matches!(w.dtype(), DType::U4 | DType::I4 | DType::U8 | DType::I8);
    when(
        is_layer_float(dtype) && grouped && bits,
        "MLX's weights have 4 or 8 bits in blocks of a multiple of 32",
    )
}
