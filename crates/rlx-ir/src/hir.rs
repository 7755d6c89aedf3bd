//! HIR: a model as blocks (linear, attention, feed-forward, …) between plain ops.
//!
//! A [`HirModule`] is a list of blocks with the shapes the caller expects. [`HirModule::lower_to_mir`] turns
//! each block into ops of the graph language, infers every shape, and reports what does not fit by block;
//! the ops remember the block they came from as their origin. Inside a module, [`HirMut`] offers the
//! shape-inferring short forms of [`crate::GraphExt`].
//!
//! ```
//! use rlx_ir::{DType, HirModule, Shape, op::Activation};
//! let mut m = HirModule::new("ffn");
//! let x = m.input("x", Shape::new(&[1, 8, 4], DType::F32));
//! let w = m.param("w", Shape::new(&[4, 2], DType::F32));
//! let b = m.param("b", Shape::new(&[2], DType::F32));
//! let y = m.linear(x, w, Some(b), Some(Activation::Gelu), Shape::new(&[1, 8, 2], DType::F32));
//! m.set_outputs(vec![y]);
//! let mir = m.lower_to_mir().unwrap();
//! assert_eq!(mir.graph().len(), 6); // x, w, b, MatMul, Add, Gelu
//! ```

mod lower;
mod short;

pub use short::HirMut;

use std::fmt;

use crate::error::{Error, Result};
use crate::graph::{NodeId, fault, new_tag};
use crate::ops::{Activation, MaskKind, Op};
use crate::shape::Shape;
use crate::stages::MirModule;

/// The id of a block of a [`HirModule`]: its position in [`HirModule::nodes`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HirNodeId(NodeId);

impl HirNodeId {
    /// The position in [`HirModule::nodes`].
    pub fn index(self) -> usize {
        self.0.index()
    }
}

impl fmt::Display for HirNodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for HirNodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a block computes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Block {
    /// One op of the graph language.
    Mir(Op),
    /// `activation(x·w + bias)`; inputs `x, w [, bias]`.
    Linear {
        /// Applied last.
        activation: Option<Activation>,
    },
    /// [`Op::Attention`]; inputs `q, k, v [, mask]`.
    Attention {
        /// Heads of the queries.
        num_heads: usize,
        /// The size of a head.
        head_dim: usize,
        /// What may be seen.
        mask: MaskKind,
    },
    /// `(silu(x·gate) ⊙ (x·up))·down`; inputs `x, up, gate, down`.
    SwigluFfn,
    /// Root-mean-square norm over the last dimension, then a shift; inputs `x, gamma [, beta]`.
    RmsNorm {
        /// Added to the mean square.
        eps: f32,
    },
    /// The root-mean-square norm of `x + residual`; inputs `x, residual, gamma [, beta]`.
    ResidualRmsNorm {
        /// Added to the mean square.
        eps: f32,
    },
    /// [`Op::Rope`] in halves; inputs `x, cos, sin`.
    Rope {
        /// The size of a head.
        head_dim: usize,
        /// How many elements of each head are turned.
        n_rot: usize,
    },
    /// `x·dequantize(w)`; inputs `x, w, scale [, zero_point]`.
    DequantMatMul {
        /// The dimension of `w` each index of which has its own scale.
        axis: Option<usize>,
    },
}

impl Block {
    /// What messages and listings call it.
    pub fn name(&self) -> &'static str {
        match self {
            Block::Mir(op) => op.kind().name(),
            Block::Linear { .. } => "linear",
            Block::Attention { .. } => "attention",
            Block::SwigluFfn => "swiglu_ffn",
            Block::RmsNorm { .. } => "rms_norm",
            Block::ResidualRmsNorm { .. } => "residual_rms_norm",
            Block::Rope { .. } => "rope",
            Block::DequantMatMul { .. } => "dequant_matmul",
        }
    }
}

/// A block with its inputs and the shapes the caller expects.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct HirNode {
    /// The block's id.
    pub id: HirNodeId,
    /// What it computes.
    pub block: Block,
    /// What it computes it from.
    pub inputs: Vec<HirNodeId>,
    /// The shapes of its results; blocks other than [`Block::Mir`] have one.
    pub results: Vec<Shape>,
}

impl HirNode {
    /// `%3 linear`: the block as messages and origins call it.
    pub fn describe(&self) -> String {
        match &self.block {
            Block::Mir(Op::Input { name } | Op::Param { name }) => {
                format!("{} {} {name:?}", self.id, self.block.name())
            }
            _ => format!("{} {}", self.id, self.block.name()),
        }
    }
}

/// Why a module could not be lowered or compiled.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LowerError {
    /// A block or op does not fit; the error names it.
    #[error("cannot lower to a graph: {0}")]
    Lower(#[source] Error),
    /// The graph was made, but the compiler or the backend rejected it.
    #[error("cannot compile: {0}")]
    Compile(#[source] Error),
}

impl LowerError {
    /// The error underneath.
    pub fn error(&self) -> &Error {
        match self {
            LowerError::Lower(e) | LowerError::Compile(e) => e,
        }
    }
}

impl From<LowerError> for Error {
    fn from(e: LowerError) -> Error {
        match e {
            LowerError::Lower(e) | LowerError::Compile(e) => e,
        }
    }
}

/// A model as blocks, each after the blocks it uses.
#[derive(Debug, Clone)]
pub struct HirModule {
    /// A name for people.
    pub name: String,
    /// What a run gives back, in order.
    pub outputs: Vec<HirNodeId>,
    nodes: Vec<HirNode>,
    /// Outputs that may take the memory of an input, with that input's name.
    donations: Vec<(String, usize)>,
    tag: u32,
}

impl PartialEq for HirModule {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.outputs, &self.donations) == (&other.name, &other.outputs, &other.donations)
            && self.nodes == other.nodes
    }
}

impl HirModule {
    /// A module without blocks.
    pub fn new(name: impl Into<String>) -> Self {
        let (outputs, nodes, donations) = (Vec::new(), Vec::new(), Vec::new());
        HirModule { name: name.into(), outputs, nodes, donations, tag: new_tag() }
    }

    /// The blocks, each after the blocks it uses.
    pub fn nodes(&self) -> &[HirNode] {
        &self.nodes
    }

    /// The block with this id.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidGraph`] when it is unknown or belongs to another module.
    pub fn try_node(&self, id: HirNodeId) -> Result<&HirNode> {
        id.0.check(self.nodes.len(), self.tag, &self.name)?;
        Ok(&self.nodes[id.index()])
    }

    /// How many blocks there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Sets what a run gives back.
    pub fn set_outputs(&mut self, outputs: Vec<HirNodeId>) {
        self.outputs = outputs;
    }

    /// States that output number `output` may take the memory of the input of that name, as [`crate::Graph::donate`] does.
    /// Checked when the module is lowered.
    ///
    /// ```
    /// use rlx_ir::{DType, HirModule, Op, Shape};
    /// let mut m = HirModule::new("append");
    /// let cache = m.input("cache", Shape::new(&[1024, 64], DType::F32));
    /// let row = m.input("row", Shape::new(&[1, 64], DType::F32));
    /// let at = m.input("at", Shape::new(&[], DType::I64));
    /// let next = m.mir(Op::UpdateSlice { axis: 0 }, vec![cache, row, at], Shape::new(&[1024, 64], DType::F32));
    /// m.set_outputs(vec![next]);
    /// m.donate("cache", 0);
    /// assert_eq!(m.lower_to_mir()?.graph().donated_to("cache"), Some(0));
    /// # Ok::<(), rlx_ir::hir::LowerError>(())
    /// ```
    pub fn donate(&mut self, input: impl Into<String>, output: usize) {
        self.donations.push((input.into(), output));
    }

    /// The module as ops of the graph language, every shape inferred and compared with the declared one.
    ///
    /// # Errors
    /// [`LowerError::Lower`] naming the first block that does not fit.
    pub fn lower_to_mir(&self) -> Result<MirModule, LowerError> {
        lower::lower(self).map(MirModule::from_graph).map_err(LowerError::Lower)
    }

    fn push(&mut self, block: Block, inputs: Vec<HirNodeId>, results: Vec<Shape>) -> HirNodeId {
        let id = HirNodeId(NodeId::new(self.nodes.len(), self.tag));
        self.nodes.push(HirNode { id, block, inputs, results });
        id
    }

    /// The shape of a block's first result, for others to use: not that of a kept fault.
    fn value_shape(&self, id: HirNodeId) -> Result<&Shape> {
        let node = self.try_node(id)?;
        if let Block::Mir(op) = &node.block
            && let Some(error) = fault::error(op)
        {
            return Err(error);
        }
        Ok(&node.results[0])
    }
}

/// The builders: they take the shape the caller expects; nothing is checked before lowering.
impl HirModule {
    /// A tensor the caller gives at every run.
    pub fn input(&mut self, name: impl Into<String>, shape: Shape) -> HirNodeId {
        self.mir(Op::Input { name: name.into() }, vec![], shape)
    }

    /// A tensor the caller sets once.
    pub fn param(&mut self, name: impl Into<String>, shape: Shape) -> HirNodeId {
        self.mir(Op::Param { name: name.into() }, vec![], shape)
    }

    /// One op of the graph language.
    pub fn mir(&mut self, op: Op, inputs: Vec<HirNodeId>, shape: Shape) -> HirNodeId {
        self.push(Block::Mir(op), inputs, vec![shape])
    }

    /// `activation(x·w + bias)`.
    pub fn linear(
        &mut self,
        x: HirNodeId,
        w: HirNodeId,
        bias: Option<HirNodeId>,
        activation: Option<Activation>,
        shape: Shape,
    ) -> HirNodeId {
        self.push(Block::Linear { activation }, with_optional([x, w], bias), vec![shape])
    }

    /// Attention; `mask` belongs to [`MaskKind::Custom`].
    #[allow(clippy::too_many_arguments)] // the contract's signature
    pub fn attention(
        &mut self,
        q: HirNodeId,
        k: HirNodeId,
        v: HirNodeId,
        mask: Option<HirNodeId>,
        num_heads: usize,
        head_dim: usize,
        kind: MaskKind,
        shape: Shape,
    ) -> HirNodeId {
        let block = Block::Attention { num_heads, head_dim, mask: kind };
        self.push(block, with_optional([q, k, v], mask), vec![shape])
    }

    /// `(silu(x·gate) ⊙ (x·up))·down` (Shazeer 2020).
    pub fn swiglu_ffn(
        &mut self,
        x: HirNodeId,
        up: HirNodeId,
        gate: HirNodeId,
        down: HirNodeId,
        shape: Shape,
    ) -> HirNodeId {
        self.push(Block::SwigluFfn, vec![x, up, gate, down], vec![shape])
    }

    /// Root-mean-square norm over the last dimension; `beta` (an id or `None`) is added.
    pub fn rms_norm(
        &mut self,
        x: HirNodeId,
        gamma: HirNodeId,
        beta: impl Into<Option<HirNodeId>>,
        eps: f32,
        shape: Shape,
    ) -> HirNodeId {
        self.push(Block::RmsNorm { eps }, with_optional([x, gamma], beta.into()), vec![shape])
    }

    /// The root-mean-square norm of `x + residual`. Where the sum itself is needed too, add the two again:
    /// the compiler computes it once.
    pub fn residual_rms_norm(
        &mut self,
        x: HirNodeId,
        residual: HirNodeId,
        gamma: HirNodeId,
        beta: impl Into<Option<HirNodeId>>,
        eps: f32,
        shape: Shape,
    ) -> HirNodeId {
        let inputs = with_optional([x, residual, gamma], beta.into());
        self.push(Block::ResidualRmsNorm { eps }, inputs, vec![shape])
    }

    /// Rotary embedding of the first `n_rot` elements of each head, in halves.
    pub fn rope(
        &mut self,
        x: HirNodeId,
        cos: HirNodeId,
        sin: HirNodeId,
        head_dim: usize,
        n_rot: usize,
        shape: Shape,
    ) -> HirNodeId {
        self.push(Block::Rope { head_dim, n_rot }, vec![x, cos, sin], vec![shape])
    }

    /// `x·dequantize(w, scale, zero_point)`: one scale for all of `w`, or one for each index along `axis`.
    pub fn dequant_matmul(
        &mut self,
        x: HirNodeId,
        w: HirNodeId,
        scale: HirNodeId,
        zero_point: Option<HirNodeId>,
        axis: Option<usize>,
        shape: Shape,
    ) -> HirNodeId {
        self.push(Block::DequantMatMul { axis }, with_optional([x, w, scale], zero_point), vec![shape])
    }
}

fn with_optional<const N: usize>(inputs: [HirNodeId; N], optional: Option<HirNodeId>) -> Vec<HirNodeId> {
    inputs.into_iter().chain(optional).collect()
}

impl fmt::Display for HirModule {
    /// A listing for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |ids: &[HirNodeId]| ids.iter().map(|id| id.to_string()).collect::<Vec<_>>().join(", ");
        writeln!(f, "hir {:?} {{", self.name)?;
        for node in &self.nodes {
            let shapes: Vec<String> = node.results.iter().map(Shape::to_string).collect();
            write!(f, "  {} = ", node.id)?;
            match &node.block {
                Block::Mir(Op::Input { name } | Op::Param { name }) => {
                    write!(f, "{} {name:?}", node.block.name())?
                }
                Block::Mir(_) | Block::SwigluFfn => write!(f, "{}", node.block.name())?,
                block => write!(f, "{} {block:?}", block.name())?,
            }
            writeln!(f, "({}) : {}", list(&node.inputs), shapes.join(", "))?;
        }
        for (input, output) in &self.donations {
            writeln!(f, "  donate {input:?} to {output}")?;
        }
        writeln!(f, "  return {}", list(&self.outputs))?;
        f.write_str("}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    fn f32s(dims: &[usize]) -> Shape {
        Shape::new(dims, DType::F32)
    }

    #[test]
    fn a_block_that_does_not_fit_is_named_with_both_shapes() {
        let mut m = HirModule::new("m");
        let (x, w) = (m.input("x", f32s(&[1, 8, 4])), m.param("w", f32s(&[4, 2])));
        let y = m.linear(x, w, None, None, f32s(&[1, 8, 3]));
        m.set_outputs(vec![y]);
        let e = m.lower_to_mir().unwrap_err().to_string();
        assert!(e.contains("%2 linear") && e.contains("[1, 8, 3] f32") && e.contains("[1, 8, 2] f32"), "{e}");
    }

    #[test]
    fn ids_of_another_module_are_rejected() {
        let (mut a, mut b) = (HirModule::new("a"), HirModule::new("b"));
        let (x, _) = (a.input("x", f32s(&[2])), b.input("x", f32s(&[2])));
        b.set_outputs(vec![x]);
        assert!(b.lower_to_mir().unwrap_err().to_string().contains("another graph"));
        let y = b.mir(Op::Activation(Activation::Relu), vec![x], f32s(&[2]));
        b.set_outputs(vec![y]);
        assert!(b.lower_to_mir().is_err());
    }

    #[test]
    fn the_listing_shows_blocks_and_the_graph_knows_where_it_came_from() {
        let mut m = HirModule::new("m");
        let (x, w) = (m.input("x", f32s(&[2, 4])), m.param("w", f32s(&[4, 4])));
        let y = m.swiglu_ffn(x, w, w, w, f32s(&[2, 4]));
        m.set_outputs(vec![y]);
        assert!(m.to_string().contains("%2 = swiglu_ffn(%0, %1, %1, %1) : [2, 4] f32"), "{m}");
        let graph = m.lower_to_mir().unwrap().into_graph();
        let node = graph.node(graph.outputs[0]);
        assert_eq!(graph.origins().describe(node.origin).as_deref(), Some("hir %2 swiglu_ffn"));
    }
}
