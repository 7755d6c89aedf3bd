//! A graph's nodes as operations, in the function's own block or in one of control flow.
//!
//! Bodies of control flow are graphs of their own, whose inputs are given by the op around them. What is known of a value goes along:
//! the elements of a weight, the tensor that it was written as (names of an outer block are known in inner ones), and the range of
//! integers.

use std::sync::Arc;

use rlx_ir::{
    ConstData, DType, Error, ErrorKind, Graph, Node, NodeId, Op, Result, Shape, Value, Weight, oracle,
};

use crate::mil::{Builder, Elements, Mil, Stored, Tensor, Type};
use crate::ops::{self, Declared, held};
use crate::ranges::{Range, Ranges};

/// What depends on weights alone is computed while writing if it has no more elements than this, or than what it is made of.
const FOLDED: usize = 4096;

/// Gives the weight of a parameter.
pub type Weights<'a> = dyn Fn(&str) -> Option<Arc<Weight>> + 'a;

/// A value of the graph: an operation's result, or a tensor that is known and not written yet.
#[derive(Clone)]
pub enum Known {
    /// It is there.
    Written(Tensor),
    /// Its elements are known.
    Fixed(Arc<ConstData>),
}

/// An operand of a node.
#[derive(Clone)]
pub struct Operand {
    /// What is known of it.
    pub known: Known,
    /// Its type and dimensions in the graph.
    pub declared: Declared,
    /// The values that it may have, of integers.
    pub range: Range,
}

impl Operand {
    /// The operand as a tensor; written where the builder is if it was not yet.
    ///
    /// # Errors
    /// What a package cannot hold.
    pub fn tensor(&self, b: &mut Builder) -> Mil<Tensor> {
        match &self.known {
            Known::Written(tensor) => Ok(tensor.clone()),
            Known::Fixed(data) => fixed(b, data).map_err(|e| e.message().to_string()),
        }
    }
}

/// A graph that is being translated.
pub struct Scope<'g> {
    graph: &'g Graph,
    weights: &'g Weights<'g>,
    /// By node: its results.
    values: Vec<Vec<Known>>,
    /// The values that a body's inputs may have; `None` for a graph that is no body.
    given: Option<Vec<Range>>,
}

impl<'g> Scope<'g> {
    /// Nothing of the graph is written yet.
    pub fn of(graph: &'g Graph, weights: &'g Weights<'g>) -> Self {
        Scope { graph, weights, values: vec![Vec::new(); graph.len()], given: None }
    }

    /// A body whose inputs are these, in order.
    ///
    /// # Errors
    /// An input that is held with other dimensions than what it is given.
    pub fn of_body(graph: &'g Graph, given: Vec<Operand>) -> Mil<Self> {
        let mut scope = Scope::of(graph, &no_weights);
        scope.given = Some(given.iter().map(|operand| operand.range).collect());
        if graph.inputs().count() != given.len() {
            return Err(format!("it takes {} values, not {}", graph.inputs().count(), given.len()));
        }
        for (node, operand) in graph.inputs().zip(given) {
            let dims = numbers(&node.shape).map_err(|e| e.message().to_string())?;
            if held(&dims) != held(&operand.declared.dims) || node.shape.dtype() != operand.declared.dtype {
                return Err(format!("it takes {}, and is given {:?}", node.shape, operand.declared));
            }
            scope.give(node.id, operand.known);
        }
        Ok(scope)
    }

    /// The value of an input.
    pub fn give(&mut self, id: NodeId, known: Known) {
        self.values[id.index()] = vec![known];
    }

    /// Writes every node that an output depends on.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for what a package cannot have, naming the node; [`ErrorKind::Binding`] for a parameter without a weight.
    pub fn write(&mut self, b: &mut Builder) -> Result<()> {
        let live = oracle::live_nodes(self.graph, &self.graph.outputs)?;
        for node in self.graph.nodes().iter().filter(|node| live[node.id.index()]) {
            b.name_after(&self.graph.label(node.id));
            let results = self.node(b, node).map_err(|e| self.graph.locate(node.id, e))?;
            self.values[node.id.index()] = results;
        }
        Ok(())
    }

    fn node(&mut self, b: &mut Builder, node: &Node) -> Result<Vec<Known>> {
        match &node.op {
            Op::Input { .. } => Ok(std::mem::take(&mut self.values[node.id.index()])),
            Op::Constant { data } => Ok(vec![Known::Fixed(Arc::clone(data))]),
            Op::Param { name } => {
                let weight = (self.weights)(name).ok_or_else(|| {
                    Error::new(ErrorKind::Binding, format!("parameter {name:?} has no weight"))
                        .with_hint("a package has its weights in it: give all of them")
                })?;
                Ok(vec![Known::Fixed(Arc::new(weight.to_const()?))])
            }
            Op::Result { index } => {
                let all = &self.values[node.inputs[0].index()];
                let value = all.get(*index).cloned();
                value.map(|v| vec![v]).ok_or_else(|| Error::new(ErrorKind::InvalidGraph, "no such result"))
            }
            _ => match self.folded(node)? {
                Some(known) => Ok(known),
                None => self.written(b, node),
            },
        }
    }

    /// What a node gives that depends on weights alone: computed here, by its exact semantics, because operations like convolutions take
    /// weights that are constants of the program. What is larger than what it is made of stays an operation.
    fn folded(&self, node: &Node) -> Result<Option<Vec<Known>>> {
        let fixed = |id: &NodeId| match self.values[id.index()].first() {
            Some(Known::Fixed(data)) => Some(Arc::clone(data)),
            _ => None,
        };
        let Some(given) = node.inputs.iter().map(fixed).collect::<Option<Vec<_>>>() else { return Ok(None) };
        if !self.may_fold(node) {
            return Ok(None);
        }
        let values = given.iter().map(|data| data.try_value()).collect::<Result<Vec<Value>>>()?;
        let values: Vec<&Value> = values.iter().collect();
        let results = oracle::evaluate_op(&node.op, &values, node.results())?;
        let known = |value: &Value| Ok(Known::Fixed(Arc::new(value.try_to_const()?)));
        results.iter().map(known).collect::<Result<Vec<_>>>().map(Some)
    }

    /// Whether a node of fixed operands is computed while writing.
    fn may_fold(&self, node: &Node) -> bool {
        let elements = |shape: &Shape| shape.num_elements().unwrap_or(usize::MAX);
        let size =
            node.inputs.iter().map(|&id| elements(self.graph.shape(id))).fold(0, usize::saturating_add);
        let grows = node.results().iter().map(elements).any(|n| n > size.max(FOLDED));
        !node.inputs.is_empty() && !grows && node.op.bodies().is_empty()
    }

    fn written(&mut self, b: &mut Builder, node: &Node) -> Result<Vec<Known>> {
        let unsupported = |why: String| {
            let message = format!("Core ML has no kernel for {} : {}: {why}", node.op.kind(), node.shape);
            Error::new(ErrorKind::Unsupported, message)
        };
        if node.op.data_symbol().is_some() {
            return Err(unsupported("how large its result is is known in the run only".to_string()));
        }
        let mut ranges = self.ranges();
        let mut operands = Vec::with_capacity(node.inputs.len());
        for &id in &node.inputs {
            // A body may compute with the elements of a weight.
            let known = match self.values[id.index()].first().cloned() {
                Some(known) if !node.op.bodies().is_empty() => known,
                _ => Known::Written(self.tensor(b, id, 0)?),
            };
            let declared = declared(self.graph.shape(id))?;
            operands.push(Operand { known, declared, range: ranges.of(id) });
        }
        let results = node.results().iter().map(declared).collect::<Result<Vec<_>>>()?;
        let result_ranges = (0..results.len()).map(|i| ranges.result(node, i)).collect();
        let fixed = |operand: &Operand| match &operand.known {
            Known::Written(tensor) => tensor.fixed,
            Known::Fixed(_) => true,
        };
        // A claim knows of weights that they are fixed, and not their elements.
        let fixed = operands.iter().all(fixed) && self.may_fold(node);
        let mut written = ops::write(b, &node.op, operands, results, result_ranges).map_err(unsupported)?;
        written.iter_mut().for_each(|tensor| tensor.fixed |= fixed);
        Ok(written.into_iter().map(Known::Written).collect())
    }

    fn ranges(&self) -> Ranges<'g> {
        match &self.given {
            None => Ranges::new(self.graph),
            Some(given) => Ranges::of_body(self.graph, given),
        }
    }

    /// A result of a node as an operand; what is known and was not written yet is written.
    ///
    /// # Errors
    /// What a package cannot hold.
    pub fn tensor(&mut self, b: &mut Builder, id: NodeId, index: usize) -> Result<Tensor> {
        let known = self.values[id.index()].get(index).cloned();
        match known {
            Some(Known::Written(tensor)) => Ok(tensor),
            Some(Known::Fixed(data)) => {
                b.name_after(&self.graph.label(id));
                let tensor = fixed(b, &data)?;
                self.values[id.index()][index] = Known::Written(tensor.clone());
                Ok(tensor)
            }
            None => Err(Error::new(ErrorKind::Internal, format!("{id} was not translated"))),
        }
    }
}

/// A tensor that is known, as a constant: once, whichever blocks use it.
fn fixed(b: &mut Builder, data: &Arc<ConstData>) -> Result<Tensor> {
    if let Some(known) = b.remembered(data) {
        return Ok(known);
    }
    let tensor = constant(b, data)?;
    if tensor.fixed {
        b.remember(data, &tensor);
    }
    Ok(tensor)
}

/// Bodies have no parameters of their own.
fn no_weights(_: &str) -> Option<Arc<rlx_ir::Weight>> {
    None
}

fn declared(shape: &Shape) -> Result<Declared> {
    Ok(Declared { dtype: shape.dtype(), dims: numbers(shape)? })
}

/// The dimensions of a shape that has numbers for all of them.
///
/// # Errors
/// Names the shape.
pub fn numbers(shape: &Shape) -> Result<Vec<usize>> {
    let dims = shape.dims().iter().map(|d| d.as_static()).collect::<Option<Vec<_>>>();
    dims.ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, format!("{shape} has a dimension that is no number"))
    })
}

/// A tensor that is known, as a constant; small integers are stored as they are and widened by the program.
fn constant(b: &mut Builder, data: &ConstData) -> Result<Tensor> {
    let unsupported = |why: String| Error::new(ErrorKind::Unsupported, why);
    ops::holding(data.dtype()).map_err(unsupported)?;
    if data.num_elements() == 0 {
        return Err(unsupported("Core ML has no tensors without elements".to_string()));
    }
    let dims = held(data.dims());
    let bytes = data.bytes();
    Ok(match data.dtype() {
        DType::F32 if data.num_elements() > 10 => b.weight(Stored::F32, &dims, bytes),
        DType::F16 if data.num_elements() > 10 => b.weight(Stored::F16, &dims, bytes),
        DType::I8 | DType::U8 if data.num_elements() > 10 => {
            let stored = if data.dtype() == DType::I8 { Stored::I8 } else { Stored::U8 };
            let stored = b.weight(stored, &dims, bytes);
            ops::cast(b, &stored, Type::I32)
        }
        DType::F32 => {
            let values =
                bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
            b.constant(Elements::Floats(values), &dims)
        }
        DType::F16 => {
            let values = bytes.chunks_exact(2).map(|c| u16::from_le_bytes([c[0], c[1]])).collect();
            b.constant(Elements::Halves(values), &dims)
        }
        DType::Bool => b.constant(Elements::Bools(bytes.iter().map(|&v| v != 0).collect()), &dims),
        dtype => {
            let value = data.try_value()?;
            let narrow = |&v: &i128| {
                i32::try_from(v).map_err(|_| {
                    unsupported(format!(
                        "Core ML computes with 32-bit integers, and {v} of a constant of {dtype} is none"
                    ))
                })
            };
            let values = value.ints()?.iter().map(narrow).collect::<Result<Vec<i32>>>()?;
            b.constant(Elements::Ints(values), &dims)
        }
    })
}
