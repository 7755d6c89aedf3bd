//! Relations that a graph declares between symbolic dimensions, checked whenever they get values.
//!
//! Views are made on the strength of declared shapes: a reshape of `[a, b]` to `[c]` holds only where
//! `c = a·b`. Relations that are equal expressions hold always; the others are listed here.

use rlx_ir::{Dim, Error, ErrorKind, Extent, Graph, LirModule, Node, NodeId, Op, Result, sym};

use crate::extents::{Ex, ExtentTable, Values};

/// Two extents that must be equal.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    left: Ex,
    right: Ex,
    /// The node that says so.
    pub node: NodeId,
}

impl Check {
    /// Both.
    pub fn sides(&self) -> [Ex; 2] {
        [self.left, self.right]
    }

    /// Whether it holds for these values.
    ///
    /// # Errors
    /// [`ErrorKind::Dimension`] when it does not.
    pub fn holds(&self, values: &Values<'_>) -> Result<()> {
        let (left, right) = (values.get(self.left), values.get(self.right));
        if left == right {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Dimension, format!("{left} where its declared shape needs {right}"))
            .with_hint("dimensions that the model declares equal differ"))
    }
}

/// Whether `dims` are values of the module's symbols, each within its range.
///
/// # Errors
/// [`ErrorKind::Dimension`] naming the symbol.
pub fn symbols(lir: &LirModule, dims: &[i64]) -> Result<()> {
    if dims.len() != lir.symbols.len() {
        let message = format!("{} dimensions given for {} symbols", dims.len(), lir.symbols.len());
        return Err(Error::new(ErrorKind::Dimension, message));
    }
    for (&symbol, &value) in lir.symbols.iter().zip(dims) {
        let range = lir.graph.symbol_range(symbol);
        if value < range.min.max(0) || value > range.max {
            let message = format!("{} = {value} is outside {}..={}", sym::name(symbol), range.min, range.max);
            return Err(Error::new(ErrorKind::Dimension, message));
        }
    }
    Ok(())
}

/// The relations of a graph that do not hold by themselves.
pub fn collect(graph: &Graph, table: &mut ExtentTable) -> Vec<Check> {
    let mut checks = Vec::new();
    for node in graph.nodes() {
        let mut need = |left: Extent, right: Extent| {
            if left != right {
                checks.push(Check { left: table.add(left), right: table.add(right), node: node.id });
            }
        };
        match &node.op {
            Op::Reshape { .. } => need(graph.shape(node.inputs[0]).elements(), node.shape.elements()),
            Op::Expand { .. } => expand(graph, node, &mut need),
            Op::Concat { axis } => concat(graph, node, *axis, &mut need),
            _ => {}
        }
    }
    checks
}

/// Lowering repeats every dimension that is not the same expression, which is right for those of 1 only.
fn expand(graph: &Graph, node: &Node, need: &mut impl FnMut(Extent, Extent)) {
    let (from, to) = (graph.shape(node.inputs[0]), &node.shape);
    let skip = to.rank() - from.rank();
    for (i, d) in from.dims().iter().enumerate() {
        if *d != to.dim(skip + i) && *d != Dim::Static(1) {
            need(d.extent(), Extent::Const(1));
        }
    }
}

fn concat(graph: &Graph, node: &Node, axis: usize, need: &mut impl FnMut(Extent, Extent)) {
    let mut sum = Extent::Const(0);
    for &input in &node.inputs {
        let shape = graph.shape(input);
        sum = sum + shape.dim(axis).extent();
        for i in (0..shape.rank()).filter(|&i| i != axis) {
            need(shape.dim(i).extent(), node.shape.dim(i).extent());
        }
    }
    need(sum, node.shape.dim(axis).extent());
}
