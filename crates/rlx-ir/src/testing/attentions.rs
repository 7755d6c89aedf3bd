//! Random attentions of given sizes: of a few elements for the op itself, of as many as a device's programs have for those.

use super::{Case, Gen};
use crate::dtype::DType;
use crate::ops::{MaskKind, Op};
use crate::tensor::Elements;

/// The sizes of an attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionShape {
    /// Items.
    pub batch: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Heads of queries for each of those.
    pub groups: usize,
    /// Queries of a head.
    pub queries: usize,
    /// Keys of a head.
    pub keys: usize,
    /// Elements of a query and of a key.
    pub head_dim: usize,
    /// Elements of a value.
    pub value_dim: usize,
}

/// A random attention of these sizes: heads beside or above each other, any mask, repeated or not, which forbids some keys and now and then all of a query's,
/// any scale, anything for queries that see nothing.
pub fn random_attention(g: &mut Gen, dtype: DType, s: &AttentionShape) -> Case {
    let num_heads = s.kv_heads * s.groups;
    let operand = |g: &mut Gen, heads: usize, seq: usize, size: usize| {
        let beside = g.chance(0.5);
        let dims = if beside { vec![s.batch, seq, heads * size] } else { vec![s.batch, heads, seq, size] };
        g.value(dtype, &dims, -1.0..1.0)
    };
    let mut inputs = vec![
        operand(g, num_heads, s.queries, s.head_dim),
        operand(g, s.kv_heads, s.keys, s.head_dim),
        operand(g, s.kv_heads, s.keys, s.value_dim),
    ];
    let mask: MaskKind = g.variant();
    if mask == MaskKind::Custom {
        let full = [s.batch, num_heads, s.queries, s.keys];
        let mut dims: Vec<usize> = full.iter().map(|&d| if g.chance(0.3) { 1 } else { d }).collect();
        let drop = g.size(0..=2);
        dims.drain(..drop);
        let of = if g.chance(0.5) { DType::Bool } else { dtype };
        let mut values = g.value(of, &dims, -2.0..2.0);
        if let Elements::Float(v) = &mut values.elements {
            let forbidden = g.pick(&[0.0, 0.3, 0.8]);
            v.iter_mut().filter(|_| g.chance(forbidden)).for_each(|x| *x = f64::NEG_INFINITY);
        }
        inputs.push(values);
    }
    let scale = g.chance(0.3).then_some(0.25);
    let unseen = g.variant();
    Case::new(Op::Attention { num_heads, head_dim: s.head_dim, mask, scale, unseen }, inputs)
}
