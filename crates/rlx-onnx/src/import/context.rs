//! The context of an op's importer: one node, its operands and attributes, and the graph being built.

use super::attrs::Attrs;
use super::known::Known;
use super::slot::{Data, Importer, SlotId};
use super::{NeedsTensorValue, needs_value_through};
use crate::proto::NodeProto;
use rlx_ir::op::{Activation, BinaryOp, CmpOp};
use rlx_ir::{ConstData, DType, DTypeClass, Dim, Error, ErrorKind, Extent, NodeId, Op, Shape, Value, oracle};

/// Results of ops over constants are computed while importing up to this many elements.
const MOST_FOLDED: usize = 4096;

/// One node being imported.
pub(crate) struct NodeCx<'a, 'f> {
    pub importer: &'a mut Importer<'f>,
    pub proto: &'a NodeProto,
    pub attrs: Attrs<'a>,
    pub opset: i64,
    pub inputs: Vec<Option<SlotId>>,
    /// The operands as they are given: an optional that holds nothing is one of them.
    pub given: Vec<Option<SlotId>>,
}

impl<'a, 'f> NodeCx<'a, 'f> {
    pub fn new(
        importer: &'a mut Importer<'f>,
        proto: &'a NodeProto,
        opset: i64,
        inputs: Vec<Option<SlotId>>,
    ) -> Self {
        let there = |id: &Option<SlotId>| id.filter(|&id| !importer.slot(id).absent);
        let (given, inputs) = (inputs.clone(), inputs.iter().map(there).collect());
        NodeCx { importer, proto, attrs: Attrs(&proto.attribute), opset, inputs, given }
    }

    // Operands

    /// How many operands are named, trailing ones that are left out not counted.
    pub fn operands(&self) -> usize {
        self.inputs.iter().rposition(Option::is_some).map_or(0, |i| i + 1)
    }

    pub fn has(&self, i: usize) -> bool {
        self.inputs.get(i).is_some_and(Option::is_some)
    }

    /// Whether output `i` is used by name.
    pub fn wants(&self, i: usize) -> bool {
        self.proto.output.get(i).is_some_and(|name| !name.is_empty())
    }

    pub fn slot(&self, i: usize) -> Result<SlotId, Error> {
        let missing = || Error::new(ErrorKind::Malformed, format!("operand {i} is missing"));
        self.inputs.get(i).copied().flatten().ok_or_else(missing)
    }

    /// Operand `i` as a node.
    pub fn x(&mut self, i: usize) -> Result<NodeId, Error> {
        let slot = self.slot(i)?;
        self.importer.materialize(slot)
    }

    pub fn x_opt(&mut self, i: usize) -> Result<Option<NodeId>, Error> {
        if self.has(i) { self.x(i).map(Some) } else { Ok(None) }
    }

    /// All operands as nodes.
    pub fn all(&mut self) -> Result<Vec<NodeId>, Error> {
        (0..self.operands()).map(|i| self.x(i)).collect()
    }

    /// The shape of operand `i`.
    pub fn shape(&self, i: usize) -> Result<Shape, Error> {
        Ok(self.importer.slot(self.slot(i)?).shape.clone())
    }

    pub fn rank(&self, i: usize) -> Result<usize, Error> {
        Ok(self.importer.slot(self.slot(i)?).shape.rank())
    }

    pub fn dtype(&self, i: usize) -> Result<DType, Error> {
        Ok(self.importer.slot(self.slot(i)?).shape.dtype())
    }

    /// An attribute that is an axis of operand `i`, counted from either end.
    pub fn axis(&self, name: &str, default: i64, i: usize) -> Result<usize, Error> {
        self.shape(i)?.axis(self.attrs.int(name, default)?)
    }

    // Values that must be known while importing

    /// The constant data of operand `i`, if it has any.
    fn constant_value(&self, i: usize) -> Result<Option<Value>, Error> {
        self.importer.constant_value(self.slot(i)?)
    }

    /// The elements of operand `i`, an integer tensor that decides a shape.
    pub fn known(&self, i: usize) -> Result<Known, Error> {
        let slot = self.importer.slot(self.slot(i)?);
        if let Some(known) = &slot.known {
            return Ok((**known).clone());
        }
        let constant = self.constant_value(i)?.and_then(|v| Known::from_const(&v.to_const()));
        constant.ok_or_else(|| self.not_known(i))
    }

    /// The elements as expressions.
    pub fn extents(&self, i: usize) -> Result<Vec<Extent>, Error> {
        Ok(self.known(i)?.values)
    }

    /// The elements as numbers.
    pub fn numbers(&self, i: usize) -> Result<Vec<i64>, Error> {
        let known = self.known(i)?;
        known.numbers().ok_or_else(|| {
            let shown = known.values.iter().map(|v| v.to_string()).collect::<Vec<_>>().join(", ");
            Error::new(ErrorKind::Dimension, format!("operand {i} is [{shown}], where numbers are needed"))
                .with_hint("give these dimensions sizes (--dim NAME=VALUE)")
        })
    }

    /// The single element of operand `i`.
    pub fn number(&self, i: usize) -> Result<i64, Error> {
        match self.numbers(i)?[..] {
            [n] => Ok(n),
            _ => Err(self.malformed(format!("operand {i} must have one element, not {}", self.shape(i)?))),
        }
    }

    /// The elements of operand `i` as floats, of whatever number type.
    pub fn floats(&self, i: usize) -> Result<Vec<f64>, Error> {
        match self.constant_value(i)? {
            Some(value) => Ok(value.to_f64()),
            None => Err(self.not_known(i)),
        }
    }

    /// Numbers that an attribute gave in older operator sets and an operand gives in newer ones.
    pub fn numbers_or_attr(&self, i: usize, name: &str) -> Result<Option<Vec<i64>>, Error> {
        match self.has(i) {
            true => self.numbers(i).map(Some),
            false => Ok(self.attrs.ints(name)?.map(<[i64]>::to_vec)),
        }
    }

    /// Says which graph input's value would make operand `i` known, or which tensor's.
    pub fn not_known(&self, i: usize) -> Error {
        let why = format!("operand {i} of {}", self.proto.op_type());
        match self.slot(i).ok().and_then(|slot| self.first_input_behind(slot)) {
            Some(name) => {
                let tensor = self.tensor_of_the_model(i).filter(|_| !self.decided_by_a_caller(i));
                needs_value_through(tensor, &name, &why)
            }
            None => {
                let message =
                    format!("{why} decides a shape or an axis and depends on the model's weights or on data");
                let error = Error::new(ErrorKind::Unsupported, message);
                match self.tensor_of_the_model(i) {
                    Some(tensor) => error.with_source(NeedsTensorValue { tensor }),
                    None => error,
                }
            }
        }
    }

    /// The name of operand `i`, where the model's own nodes compute it: not of a body or a function.
    fn tensor_of_the_model(&self, i: usize) -> Option<String> {
        let own = self.importer.bodies.is_empty() && self.importer.calls.is_empty();
        let name = self.proto.input.get(i).filter(|name| own && !name.is_empty())?;
        let node = self.importer.node_of(self.importer.slot(self.slot(i).ok()?).node?)?;
        (!matches!(node.op, Op::Input { .. } | Op::Param { .. })).then(|| name.clone())
    }

    /// Whether operand `i` is computed from numbers that a caller can be asked for: an input of a few integers.
    pub fn decided_by_a_caller(&self, i: usize) -> bool {
        let few = |name: &str| {
            let mut inputs = self.importer.graph.inputs();
            inputs.any(|n| {
                let small = n.shape.dtype().int_range().is_some() && n.shape.rank() <= 1;
                small && matches!(&n.op, Op::Input { name: own } if own == name)
            })
        };
        self.slot(i).ok().and_then(|slot| self.first_input_behind(slot)).is_some_and(|name| few(&name))
    }

    /// The first graph input the slot's value depends on that has no value given.
    pub(super) fn first_input_behind(&self, slot: SlotId) -> Option<String> {
        // The inputs of a body are not the model's.
        if !self.importer.bodies.is_empty() {
            return None;
        }
        let node = self.importer.slot(slot).node?;
        let graph = &self.importer.graph;
        let live = oracle::live_nodes(graph, &[node]).ok()?;
        graph.inputs().filter(|n| live[n.id.index()]).find_map(|n| match &n.op {
            Op::Input { name } if !self.importer.options.gives(name) => Some(name.clone()),
            _ => None,
        })
    }

    // Building

    /// Adds a node; from small constants alone it is computed now, as the oracle computes it.
    pub fn add(&mut self, op: Op, inputs: &[NodeId]) -> Result<NodeId, Error> {
        if let Some(value) = self.fold_constants(&op, inputs)? {
            return Ok(self.importer.constant(value));
        }
        self.importer.push(op, inputs)
    }

    fn fold_constants(&self, op: &Op, inputs: &[NodeId]) -> Result<Option<ConstData>, Error> {
        // Quantised weights stay integers; the compiler decides whether a matmul uses them directly.
        if matches!(op, Op::Dequantize { .. }) {
            return Ok(None);
        }
        let graph = &self.importer.graph;
        let mut constants = Vec::with_capacity(inputs.len());
        for &id in inputs {
            match &graph.try_node(id)?.op {
                Op::Constant { data } if data.num_elements() <= MOST_FOLDED => constants.push(data.value()),
                _ => return Ok(None),
            }
        }
        let results = graph.infer(op, inputs, &[])?;
        let small = |s: &Shape| s.num_elements().is_some_and(|n| n <= MOST_FOLDED);
        if inputs.is_empty() || results.len() != 1 || !small(&results[0]) {
            return Ok(None);
        }
        let shapes: Vec<&Shape> = inputs.iter().map(|&id| graph.shape(id)).collect();
        let mut allowance = self.importer.allowance.get();
        if !allowance.admits(op, &shapes, &results) {
            return Ok(None);
        }
        self.importer.allowance.set(allowance);
        let operands: Vec<&Value> = constants.iter().collect();
        Ok(oracle::evaluate_op(op, &operands, &[])?.first().map(Value::to_const))
    }

    /// All results of a node with several.
    pub fn add_many(&mut self, op: Op, inputs: &[NodeId], count: usize) -> Result<Vec<NodeId>, Error> {
        let node = self.add(op, inputs)?;
        (0..count).map(|i| self.importer.graph.result(node, i)).collect()
    }

    pub fn shape_of(&self, node: NodeId) -> Shape {
        self.importer.graph.shape(node).clone()
    }

    pub fn constant(&mut self, value: Value) -> NodeId {
        self.importer.constant(value.rounded().to_const())
    }

    /// A tensor of floats, rounded to the type that an operand has.
    ///
    /// # Errors
    /// [`ErrorKind::DType`] for a type that is no float.
    pub fn float_constant(
        &mut self,
        dtype: DType,
        dims: &[usize],
        values: Vec<f64>,
    ) -> Result<NodeId, Error> {
        match dtype.is_float() {
            true => Ok(self.constant(Value::float(dtype, dims, values))),
            false => {
                Err(Error::new(ErrorKind::DType, format!("operands of {dtype}, where floats are needed")))
            }
        }
    }

    /// A scalar of a type, rounded to it.
    pub fn scalar(&mut self, dtype: DType, value: f64) -> NodeId {
        let value = match dtype.class() {
            DTypeClass::Float => Value::float(dtype, &[], vec![value]),
            DTypeClass::Complex => Value::float(dtype, &[], vec![value, 0.0]),
            _ => Value::int(dtype, &[], vec![value as i128]),
        };
        self.constant(value)
    }

    pub fn activation(&mut self, f: Activation, x: NodeId) -> Result<NodeId, Error> {
        self.add(Op::Activation(f), &[x])
    }

    pub fn binary(&mut self, f: BinaryOp, a: NodeId, b: NodeId) -> Result<NodeId, Error> {
        self.add(Op::Binary(f), &[a, b])
    }

    /// A binary op with a scalar of the same type on the right.
    pub fn with_scalar(&mut self, f: BinaryOp, a: NodeId, scalar: f64) -> Result<NodeId, Error> {
        let scalar = self.scalar(self.shape_of(a).dtype(), scalar);
        self.binary(f, a, scalar)
    }

    pub fn compare(&mut self, f: CmpOp, a: NodeId, b: NodeId) -> Result<NodeId, Error> {
        self.add(Op::Compare(f), &[a, b])
    }

    pub fn select(&mut self, condition: NodeId, a: NodeId, b: NodeId) -> Result<NodeId, Error> {
        self.add(Op::Where, &[condition, a, b])
    }

    pub fn cast(&mut self, x: NodeId, to: DType) -> Result<NodeId, Error> {
        if self.shape_of(x).dtype() == to { Ok(x) } else { self.add(Op::Cast { to }, &[x]) }
    }

    pub fn reshape(&mut self, x: NodeId, to: Vec<Dim>) -> Result<NodeId, Error> {
        if self.shape_of(x).dims() == to { Ok(x) } else { self.add(Op::Reshape { to }, &[x]) }
    }

    pub fn transpose(&mut self, x: NodeId, perm: &[usize]) -> Result<NodeId, Error> {
        if perm.iter().enumerate().all(|(i, &p)| i == p) {
            return Ok(x);
        }
        self.add(Op::Transpose { perm: perm.to_vec() }, &[x])
    }

    pub fn expand(&mut self, x: NodeId, to: Vec<Dim>) -> Result<NodeId, Error> {
        if self.shape_of(x).dims() == to { Ok(x) } else { self.add(Op::Expand { to }, &[x]) }
    }

    /// The tensor with dimensions of 1 put in at `axes` of the result.
    pub fn unsqueeze(&mut self, x: NodeId, axes: &[usize]) -> Result<NodeId, Error> {
        let dims = self.shape_of(x).dims().to_vec();
        let rank = dims.len() + axes.len();
        let mut rest = dims.into_iter();
        let dim = |i: usize| if axes.contains(&i) { Some(Dim::Static(1)) } else { rest.next() };
        let to: Vec<Dim> = (0..rank).filter_map(dim).collect();
        self.reshape(x, to)
    }

    /// An expression over dimensions as data: a tensor of one element.
    pub fn extent(&mut self, e: Extent) -> Result<NodeId, Error> {
        self.importer.extent_node(e)
    }

    // Errors

    pub fn malformed(&self, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Malformed, message)
    }

    pub fn unsupported(&self, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Unsupported, message)
    }

    /// Something that is built for dimensions with sizes only.
    pub fn open_dimension(&self, message: impl Into<String>) -> Error {
        self.unsupported(message).with_hint("give the dimension a size (--dim NAME=VALUE)")
    }

    /// An attribute string or number with an unsupported meaning.
    pub fn bad_attr(&self, name: &str, value: impl std::fmt::Display) -> Error {
        self.unsupported(format!("{name} = {value}"))
    }
}

impl Importer<'_> {
    /// The constant data of a slot, if it has any.
    pub fn constant_value(&self, slot: SlotId) -> Result<Option<Value>, Error> {
        let slot = self.slot(slot);
        Ok(match (&slot.data, &slot.known, slot.node) {
            (Some(Data::Value(v)), ..) => Some(v.value()),
            (Some(Data::File { tensor, .. }), ..) => Some(tensor.to_const()?.try_value()?),
            (_, Some(known), _) => known.to_const().map(|c| c.value()),
            (_, _, Some(node)) => match self.node_of(node).map(|node| &node.op) {
                Some(Op::Constant { data }) => Some(data.try_value()?),
                _ => None,
            },
            _ => None,
        })
    }

    /// Known integers as a node: a constant, or numbers that the run's dimensions give.
    pub fn known_node(&mut self, known: &Known) -> Result<NodeId, Error> {
        if let Some(value) = known.to_const() {
            return Ok(self.constant(value));
        }
        let mut parts = Vec::with_capacity(known.values.len());
        for &e in &known.values {
            parts.push(self.extent_node(e)?);
        }
        let whole = if parts.len() == 1 { parts[0] } else { self.push(Op::Concat { axis: 0 }, &parts)? };
        let dims = known.dims.iter().map(|&d| Dim::Static(d)).collect();
        let shaped = self.push(Op::Reshape { to: dims }, &[whole])?;
        if known.dtype == DType::I64 {
            Ok(shaped)
        } else {
            self.push(Op::Cast { to: known.dtype }, &[shaped])
        }
    }

    /// An expression over dimensions as a tensor of one element: the last of a count from 0 up to it.
    fn extent_node(&mut self, e: Extent) -> Result<NodeId, Error> {
        if let Some(number) = e.as_const() {
            return Ok(self.constant(Value::int(DType::I64, &[1], vec![i128::from(number)]).to_const()));
        }
        let min = e.range(&|s| self.graph.symbol_range(s)).min;
        if min < -i64::from(i32::MAX) {
            // Any negative number: the difference of two that are none.
            let above = self.last_counted(e.max(0), 0)?;
            let below = self.last_counted((Extent::Const(0) - e).max(0), 0)?;
            return self.push(Op::Binary(BinaryOp::Sub), &[above, below]);
        }
        self.last_counted(e, min.min(0).saturating_neg())
    }

    /// An expression that is no less than `-offset`, as the last of a count.
    fn last_counted(&mut self, e: Extent, offset: i64) -> Result<NodeId, Error> {
        let last = e + offset;
        let count = self.push(Op::Iota { to: vec![Dim::from(last + 1)], axis: 0, dtype: DType::I64 }, &[])?;
        let op = Op::Slice { starts: vec![last], steps: vec![1], to: vec![Dim::Static(1)] };
        let value = self.push(op, &[count])?;
        if offset == 0 {
            return Ok(value);
        }
        let offset = self.constant(Value::int(DType::I64, &[1], vec![i128::from(offset)]).to_const());
        self.push(Op::Binary(BinaryOp::Sub), &[value, offset])
    }

    /// Adds a node with the origin in force.
    pub fn push(&mut self, op: Op, inputs: &[NodeId]) -> Result<NodeId, Error> {
        let node = self.graph.try_add(op, inputs)?;
        self.graph.set_origin(node, self.origin);
        let rank = self.graph.node(node).results().iter().map(Shape::rank).max();
        self.check_rank(rank.unwrap_or(0))?;
        Ok(node)
    }
}
