//! Graphs as programs of MLX's operations, one file for each family of ops.
//!
//! What is written here is what ops *mean*, in operations of MLX whose meaning is the same on all of its devices: MLX's integer
//! division traps at zero, its maxima of NaN and its scatters to one place differ between the CPU and Metal, its conversions of
//! floats to integers are C's. Where an operation is not exact, a few others around it are.
//!
//! An index out of range is an error of the run, and a program has no errors: it gives a vector with one number for each place where
//! that can happen, [`NO_FAULT`] or the index, beside the outputs ([`Written::faults`] says whose it is).

mod control;
mod elementwise;
mod index;
mod linalg;
mod movement;
mod nn;
mod order;
mod reduce;
mod window;

use std::sync::Arc;

use rlx_ir::{ConstData, DType, Error, ErrorKind, Graph, Node, NodeId, Op, Result};

pub(crate) use self::elementwise::has_activation;
pub(crate) use self::nn::group_of;
pub(crate) use self::window::integer_terms_fit;

use crate::program::{Builder, Code, Codes, Type, Val, stored_dims, unsupported};

/// Bytes of a constant that are too many for a program's words.
const LARGE: usize = 256;

#[cfg(test)]
mod tests;

/// What stands for no fault among the faults of a program.
pub(crate) const NO_FAULT: i64 = i64::MIN;

/// A place where a run can fail.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    /// The node, of the graph that the program was made of.
    pub(crate) node: NodeId,
    /// The size of the dimension that indices are into.
    pub(crate) size: usize,
    /// Of an update: how long it is.
    pub(crate) update: Option<usize>,
}

impl Fault {
    /// What index `index` is.
    pub(crate) fn error(&self, index: i64) -> Error {
        let size = self.size;
        Error::new(
            ErrorKind::Value,
            match self.update {
                Some(len) => format!("an update of {len} at {index} is outside a dimension of {size}"),
                None => format!("index {index} is out of range for a dimension of {size}"),
            },
        )
    }
}

/// A graph as a program.
#[derive(Debug)]
pub(crate) struct Written {
    /// The program's words. Its inputs are the graph's, then `constants`; its outputs the graph's, then, if anything can
    /// fail, the vector of faults.
    pub(crate) words: Vec<i64>,
    /// Constants that are too large to be among the words.
    pub(crate) constants: Vec<Arc<ConstData>>,
    /// What the numbers of that vector are about.
    pub(crate) faults: Vec<Fault>,
    /// The bytes of the largest value that the program computes.
    pub(crate) largest: u64,
}

/// A graph that is being written as a program.
pub(crate) struct Emitter<'a> {
    graph: &'a Graph,
    b: Builder<'a>,
    /// Each node's results.
    values: Vec<Vec<Val>>,
    faults: Vec<(Fault, Val)>,
    /// In a body, the node of the outermost graph that it belongs to.
    within: Option<NodeId>,
}

/// Element type and dimensions of a node's result.
fn type_of(node: &Node) -> Result<Type> {
    match node.shape.static_dims() {
        Some(dims) => Ok(Type { dtype: node.shape.dtype(), dims: stored_dims(node.shape.dtype(), &dims) }),
        None => Err(Error::new(ErrorKind::Dimension, format!("{} is not fixed", node.shape))),
    }
}

/// Writes a graph whose dimensions are numbers.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for a node that no claim allows, [`ErrorKind::Dimension`] for a dimension that is open.
pub(crate) fn write(graph: &Graph, codes: &Codes) -> Result<Written> {
    let constants: Vec<(NodeId, &Arc<ConstData>)> = graph.nodes().iter().filter_map(large).collect();
    let mut types = graph.inputs().map(type_of).collect::<Result<Vec<_>>>()?;
    for (id, _) in &constants {
        types.push(type_of(graph.node(*id))?);
    }
    let given: Vec<NodeId> = graph.inputs().map(|n| n.id).chain(constants.iter().map(|c| c.0)).collect();
    let mut emitter = Emitter::new(graph, Builder::new(codes, types), None, &given)?;
    let mut outputs = emitter.outputs()?;
    outputs.extend(emitter.fault_vector());
    Ok(Written {
        faults: emitter.faults.into_iter().map(|(fault, _)| fault).collect(),
        constants: constants.into_iter().map(|(_, data)| Arc::clone(data)).collect(),
        largest: emitter.b.largest(),
        words: emitter.b.finish(&outputs),
    })
}

/// A constant that is given to the program instead of being written into it.
fn large(node: &Node) -> Option<(NodeId, &Arc<ConstData>)> {
    match &node.op {
        Op::Constant { data } if data.bytes().len() > LARGE => Some((node.id, data)),
        _ => None,
    }
}

impl<'a> Emitter<'a> {
    /// Writes all nodes of `graph` but those that are `given`, which are the builder's inputs in order; an input of the builder may stand
    /// between them, at `extra`, that is none of the graph's.
    fn with_extra(
        graph: &'a Graph,
        b: Builder<'a>,
        within: Option<NodeId>,
        given: &[NodeId],
        extra: Option<usize>,
    ) -> Result<Self> {
        let mut emitter =
            Emitter { graph, b, values: vec![Vec::new(); graph.len()], faults: Vec::new(), within };
        for (value, id) in given.iter().enumerate() {
            let behind = extra.is_some_and(|extra| value >= extra);
            emitter.values[id.index()] = vec![value + usize::from(behind)];
        }
        for node in graph.nodes() {
            if emitter.values[node.id.index()].is_empty() {
                let written = emitter.node(node);
                emitter.values[node.id.index()] = written.map_err(|e| graph.locate(node.id, e))?;
                emitter.check(node)?;
            }
        }
        Ok(emitter)
    }

    fn new(graph: &'a Graph, b: Builder<'a>, within: Option<NodeId>, given: &[NodeId]) -> Result<Self> {
        Emitter::with_extra(graph, b, within, given, None)
    }

    /// What was written for a node has the shapes that it declares: later operations are made for them.
    fn check(&self, node: &Node) -> Result<()> {
        let results = node.results().iter().zip(&self.values[node.id.index()]);
        for (shape, &value) in results.filter(|_| !matches!(node.op, Op::Result { .. })) {
            let dims = shape.static_dims().map(|dims| stored_dims(shape.dtype(), &dims));
            if dims.as_deref() != Some(self.b.dims(value)) || shape.dtype() != self.b.dtype(value) {
                let (dtype, dims) = (self.b.dtype(value), self.b.dims(value));
                let message = format!("{} : {shape} was written as {dims:?} {dtype}", node.op.kind());
                return Err(self.graph.locate(node.id, Error::new(ErrorKind::Internal, message)));
            }
        }
        Ok(())
    }

    fn outputs(&self) -> Result<Vec<Val>> {
        self.graph.outputs.iter().map(|&id| self.value(id)).collect()
    }

    fn value(&self, id: NodeId) -> Result<Val> {
        let found = self.values.get(id.index()).and_then(|values| values.first());
        found.copied().ok_or_else(|| Error::new(ErrorKind::Internal, format!("{id} has no value yet")))
    }

    /// The values of a node's inputs.
    fn operands(&self, node: &Node) -> Result<Vec<Val>> {
        node.inputs.iter().map(|&id| self.value(id)).collect()
    }

    /// The dimensions of a node's result.
    fn dims(&self, node: &Node) -> Result<Vec<usize>> {
        let open = || Error::new(ErrorKind::Dimension, format!("{} is not fixed", node.shape));
        node.shape.static_dims().ok_or_else(open)
    }

    fn node(&mut self, node: &'a Node) -> Result<Vec<Val>> {
        let x = self.operands(node)?;
        Ok(vec![match &node.op {
            Op::Input { .. } | Op::Param { .. } => return unsupported("an input that nothing is given for"),
            Op::Constant { data } => self.b.constant(data.dtype(), data.dims(), data.bytes()),
            Op::Result { index } => {
                let of = node.inputs.first().and_then(|id| self.values[id.index()].get(*index));
                *of.ok_or_else(|| Error::new(ErrorKind::Internal, format!("there is no result {index}")))?
            }
            Op::Activation(f) => elementwise::activation(&mut self.b, *f, x[0]),
            Op::Binary(f) => elementwise::binary(&mut self.b, *f, x[0], x[1])?,
            Op::Compare(f) => elementwise::compare(&mut self.b, *f, x[0], x[1])?,
            Op::Where => self.b.select(x[0], x[1], x[2]),
            Op::Predicate(f) => elementwise::predicate(&mut self.b, *f, x[0])?,
            Op::Cast { to } => {
                let dims = self.dims(node)?;
                elementwise::cast(&mut self.b, x[0], *to, &dims)
            }
            Op::BitCast { to } => self.b.view(x[0], *to),
            Op::Reshape { .. } if node.shape.dtype().is_packed() => x[0],
            Op::Reshape { .. } => {
                let dims = self.dims(node)?;
                self.b.reshape(x[0], &dims)
            }
            Op::Transpose { perm } => self.b.transpose(x[0], perm),
            Op::Expand { .. } => {
                let dims = self.dims(node)?;
                self.b.broadcast_to(x[0], &dims)
            }
            Op::Slice { starts, steps, .. } => {
                let (starts, dims) = (movement::numbers(starts)?, self.dims(node)?);
                self.b.slice(x[0], &starts, steps, &dims)
            }
            Op::Concat { axis } => self.b.concatenate(&x, *axis),
            Op::Pad { before, after, mode } => {
                let (before, after) = (movement::numbers(before)?, movement::numbers(after)?);
                movement::pad(&mut self.b, &x, &before, &after, *mode)?
            }
            Op::Iota { axis, dtype, .. } => {
                let dims = self.dims(node)?;
                movement::iota(&mut self.b, &dims, *axis, *dtype)
            }
            Op::MatMul => linalg::matmul(&mut self.b, x[0], x[1])?,
            Op::MatMulInteger => linalg::matmul_integer(&mut self.b, &x)?,
            Op::Reduce { op, axes, keep_dim } => reduce::reduce(&mut self.b, *op, x[0], axes, *keep_dim)?,
            Op::Cumulative { op, axis, exclusive, reverse } => {
                reduce::cumulative(&mut self.b, *op, x[0], *axis, *exclusive, *reverse)?
            }
            Op::ArgReduce { op, axis, keep_dim, last } => {
                order::place(&mut self.b, *op, x[0], *axis, *keep_dim, *last)
            }
            Op::TopK { axis, largest, .. } => {
                let k = self.dims(node)?[*axis];
                return Ok(order::top_k(&mut self.b, x[0], k, *axis, *largest));
            }
            Op::Softmax { axis } => nn::softmax(&mut self.b, x[0], *axis),
            Op::LayerNorm { axis, eps } => nn::norm(&mut self.b, Code::LayerNorm, &x, *axis, *eps),
            Op::RmsNorm { axis, eps } => nn::norm(&mut self.b, Code::RmsNorm, &x, *axis, *eps),
            Op::Attention { .. } => nn::attention(&mut self.b, &node.op, &x)?,
            Op::MatMulBlocks => nn::matmul_blocks(&mut self.b, &x, node, self.graph)?,
            Op::Conv { .. } => window::conv(&mut self.b, &node.op, &x)?,
            Op::ConvInteger { .. } => window::conv_integer(&mut self.b, &node.op, &x)?,
            Op::ConvTranspose { .. } => {
                let dims = self.dims(node)?;
                window::conv_transpose(&mut self.b, &node.op, &x, &dims)?
            }
            Op::Pool { .. } => {
                let dims = self.dims(node)?;
                window::pool(&mut self.b, &node.op, x[0], &dims)?
            }
            Op::Gather { axis } => self.gather(node, x[0], x[1], *axis),
            Op::GatherElements { axis } => self.gather_elements(node, x[0], x[1], *axis),
            Op::GatherNd { batch_dims } => {
                let dims = self.dims(node)?;
                self.gather_nd(node, x[0], x[1], *batch_dims, &dims)
            }
            Op::ScatterElements { axis, reduction } => self.scatter_elements(node, &x, *axis, *reduction)?,
            Op::ScatterNd { reduction } => self.scatter_nd(node, &x, *reduction)?,
            Op::UpdateSlice { axis } => self.update_slice(node, &x, *axis),
            Op::If { then, otherwise, .. } => return self.choice(node, then, otherwise, &x),
            Op::Loop { body, trips, carried, scanned, .. } => {
                return self.repeat(node, body, *trips, *carried, *scanned, &x);
            }
            other => return unsupported(format!("MLX has no program for {}", other.kind())),
        }])
    }

    /// The indices as i64, counted from the start and within `size`, which is not 0; what is outside is a fault of `node`'s.
    fn indices(&mut self, node: &Node, indices: Val, size: usize) -> Val {
        let wide = self.b.astype(indices, DType::I64);
        let (zero, count) = (self.b.int(DType::I64, 0), self.b.int(DType::I64, size as i128));
        let negative = self.b.compare(Code::Less, wide, zero);
        let shifted = self.b.binary(Code::Add, wide, count);
        let place = self.b.select(negative, shifted, wide);
        let (low, high) =
            (self.b.compare(Code::Less, place, zero), self.b.compare(Code::GreaterEqual, place, count));
        let outside = self.b.binary(Code::LogicalOr, low, high);
        self.fault(Fault { node: node.id, size, update: None }, outside, wide);
        self.b.select(outside, zero, place)
    }

    /// Reports one of the numbers for which `holds`.
    fn fault(&mut self, fault: Fault, holds: Val, numbers: Val) {
        if self.b.dims(numbers).contains(&0) {
            return;
        }
        let none = self.b.int(DType::I64, NO_FAULT.into());
        let worst = self.b.select(holds, numbers, none);
        let axes: Vec<usize> = (0..self.b.dims(worst).len()).collect();
        let worst = if axes.is_empty() { worst } else { self.b.reduce(Code::Max, worst, &axes, false) };
        let worst = self.b.reshape(worst, &[1]);
        let node = self.within.unwrap_or(fault.node);
        self.faults.push((Fault { node, ..fault }, worst));
    }

    /// All that can fail in one vector, if anything can.
    fn fault_vector(&mut self) -> Option<Val> {
        let all: Vec<Val> = self.faults.iter().map(|(_, value)| *value).collect();
        (!all.is_empty()).then(|| self.b.concatenate(&all, 0))
    }
}
