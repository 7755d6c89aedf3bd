//! Inputs and outputs: what the model declares, as tensors of the graph.

use super::held::{Held, Words};
use super::needs_value;
use super::slot::{Importer, SlotId};
use crate::dims::DimNames;
use crate::proto::tensor_proto::DataType;
use crate::proto::type_proto::{Tensor as TensorType, Value as TypeValue};
use crate::proto::{GraphProto, TypeProto};
use crate::structure::{StringTable, StringTensor};
use crate::tensor;
use rlx_ir::{ConstData, DType, Dim, Error, ErrorKind, NodeId, Op, Shape};
use std::collections::HashSet;

/// How deep types of inputs may nest.
const MOST_NESTED: usize = 8;

/// The graph's outputs, and their names.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    pub nodes: Vec<NodeId>,
    pub names: Vec<String>,
}

/// Where an input is declared.
struct Declared<'a> {
    names: &'a DimNames<'a>,
    /// Whether it is an element of a sequence: each may have dimensions of its own.
    element: bool,
    depth: usize,
}

impl Importer<'_> {
    /// Declares the graph's inputs; an input that has an initialiser is a weight (files before version 4).
    pub(super) fn inputs(&mut self, proto: &GraphProto) -> Result<(), Error> {
        let options = self.options;
        let names = DimNames::of_inputs(proto, &options.dims);
        let weights: HashSet<&str> = proto.initializer.iter().map(|t| t.name()).collect();
        for input in proto.input.iter().filter(|input| !weights.contains(input.name())) {
            let (name, declared) = (input.name(), Declared { names: &names, element: false, depth: 0 });
            let slot = self
                .input(name, input.r#type.as_ref(), &declared)
                .map_err(|e| e.with_origin(format!("input \"{name}\"")))?;
            self.define(name, slot)?;
        }
        Ok(())
    }

    /// An input of any type, or a part of one.
    fn input(
        &mut self,
        name: &str,
        ty: Option<&TypeProto>,
        declared: &Declared<'_>,
    ) -> Result<SlotId, Error> {
        self.visit_many(1)?;
        let malformed = |message: &str| Error::new(ErrorKind::Malformed, message);
        if declared.depth > MOST_NESTED {
            return Err(malformed("a type that nests too deep"));
        }
        let inner = Declared { depth: declared.depth + 1, ..*declared };
        match ty.and_then(|t| t.value.as_ref()) {
            Some(TypeValue::TensorType(t)) if t.elem_type() == DataType::String as i32 => {
                self.strings_input(name, t, declared)
            }
            Some(TypeValue::TensorType(t)) => self.tensor_input(name, t, declared),
            Some(TypeValue::OptionalType(_)) if self.options.absent.contains(name) => Ok(self.absent_slot()),
            Some(TypeValue::OptionalType(optional)) => {
                self.input(name, optional.elem_type.as_deref(), &inner)
            }
            Some(TypeValue::SequenceType(sequence)) => {
                let length = self.options.sequence_lengths.get(name).copied();
                let length = length.ok_or_else(|| needs_value(name, "how many elements the sequence has"))?;
                self.visit_many(length)?;
                let inner = Declared { element: true, ..inner };
                let element = |i| self.input(&format!("{name}.{i}"), sequence.elem_type.as_deref(), &inner);
                let elements = (0..length).map(element).collect::<Result<_, _>>()?;
                self.structure.sequences.insert(name.to_owned(), length);
                Ok(self.sequence_slot(elements))
            }
            Some(TypeValue::MapType(map)) => {
                let values = match map.value_type.as_ref().and_then(|t| t.value.as_ref()) {
                    Some(TypeValue::TensorType(t)) => tensor::dtype(t.elem_type())?,
                    _ => {
                        return Err(Error::new(ErrorKind::Unsupported, "maps to values that are no numbers"));
                    }
                };
                Ok(self.held_slot(Held::MapInput { name: name.into(), values }))
            }
            Some(_) => Err(Error::new(ErrorKind::Unsupported, "inputs that are sparse tensors or opaque")),
            None => Err(malformed("no type is declared")),
        }
    }

    fn tensor_input(
        &mut self,
        name: &str,
        ty: &TensorType,
        declared: &Declared<'_>,
    ) -> Result<SlotId, Error> {
        let options = self.options;
        let given = options.input_values.get(name);
        let shape = self.declared_shape(
            name,
            ty,
            tensor::dtype(ty.elem_type())?,
            given.map(ConstData::shape),
            declared,
        )?;
        if let Some(value) = given {
            check_given(name, &shape, &value.shape())?;
        }
        let node = self.graph.input(name, given.map_or(shape, ConstData::shape));
        Ok(match given {
            Some(value) => self.constant_slot(value.clone()),
            None => self.node_slot(node),
        })
    }

    /// Strings: an input of codes, in the model's vocabulary or, of a value that is given, in its own table.
    fn strings_input(
        &mut self,
        name: &str,
        ty: &TensorType,
        declared: &Declared<'_>,
    ) -> Result<SlotId, Error> {
        let options = self.options;
        let given = options.input_strings.get(name);
        let own = given.map(|value| Shape::new(&value.dims, DType::I64));
        let shape = self.declared_shape(name, ty, DType::I64, own.clone(), declared)?;
        let (Some(value), Some(own)) = (given, own) else {
            let node = self.graph.input(name, shape);
            let codes = self.node_slot(node);
            self.structure.strings.insert(name.to_owned(), StringTable::default());
            self.open_strings.push(name.to_owned());
            return Ok(self.strings_slot(codes, Words::Vocabulary));
        };
        check_given(name, &shape, &own)?;
        if own.num_elements() != Some(value.elements.len()) {
            let message = format!("{} strings for {:?}", value.elements.len(), value.dims);
            return Err(Error::new(ErrorKind::Binding, message));
        }
        self.graph.input(name, own);
        let slot = self.known_strings_slot(value)?;
        self.structure.strings.insert(name.to_owned(), table_of(value));
        Ok(slot)
    }

    /// After the last node: the vocabulary, for the inputs that have codes in it.
    pub(super) fn note_vocabulary(&mut self) {
        let table = self.vocabulary.table();
        for name in std::mem::take(&mut self.open_strings) {
            self.structure.strings.insert(name, table.clone());
        }
    }

    /// The shape an input declares, or that of its value where it declares none; a dimension without a size or name gets a
    /// new symbol.
    fn declared_shape(
        &self,
        name: &str,
        ty: &TensorType,
        dtype: DType,
        given: Option<Shape>,
        declared: &Declared<'_>,
    ) -> Result<Shape, Error> {
        let Some(shape) = &ty.shape else {
            return given.ok_or_else(|| needs_value(name, "its rank is not declared"));
        };
        use crate::proto::tensor_shape_proto::dimension::Value;
        self.check_rank(shape.dim.len())?;
        let names = declared.names;
        let dim = |(i, d): (usize, &crate::proto::tensor_shape_proto::Dimension)| match &d.value {
            Some(Value::DimValue(v)) if *v >= 0 => Dim::Static(*v as usize),
            Some(Value::DimParam(param)) if !param.is_empty() && !declared.element => names.dim(param),
            _ => names.dim(&format!("{name}.{i}")),
        };
        let shape = Shape::from_dims(&shape.dim.iter().enumerate().map(dim).collect::<Vec<_>>(), dtype);
        shape.check_size()?;
        Ok(shape)
    }

    /// An output of the graph, or several for a sequence.
    pub(super) fn output(
        &mut self,
        name: &str,
        slot: SlotId,
        ty: Option<&TypeProto>,
        outputs: &mut Outputs,
    ) -> Result<(), Error> {
        let optional = matches!(ty.and_then(|t| t.value.as_ref()), Some(TypeValue::OptionalType(_)));
        if self.slot(slot).absent && optional {
            return Ok(());
        }
        match self.slot(slot).held.clone() {
            Held::Tensor => {
                let node = self.materialize(slot)?;
                self.name_output(node, name);
                outputs.nodes.push(node);
                outputs.names.push(name.to_owned());
                Ok(())
            }
            Held::Strings(strings) => {
                let Words::Table(words) = &strings.words else {
                    let input = self.open_strings.first().cloned().unwrap_or_default();
                    return Err(needs_value(&input, &format!("output \"{name}\" has its strings")));
                };
                let table = StringTable::new(words.iter().map(|w| w.to_string()));
                self.structure.strings.insert(name.to_owned(), table);
                self.output(name, strings.codes, None, outputs)
            }
            Held::Sequence(elements) => {
                self.visit_many(elements.len())?;
                self.structure.sequences.insert(name.to_owned(), elements.len());
                let mut each = elements.iter().enumerate();
                each.try_for_each(|(i, &element)| self.output(&format!("{name}.{i}"), element, None, outputs))
            }
            Held::Map { values, keys } => {
                self.structure.maps.insert(name.to_owned(), (*keys).clone());
                self.output(name, values, None, outputs)
            }
            Held::MapInput { .. } => {
                Err(Error::new(ErrorKind::Unsupported, "an output that is an input's map"))
            }
        }
    }

    /// Names an output's node after it, so that the graph has the model's own names.
    fn name_output(&mut self, node: NodeId, name: &str) {
        let named = self.graph.node(node);
        let outside = matches!(named.op, Op::Input { .. } | Op::Param { .. });
        if !outside && named.name.is_none() {
            self.graph.set_name(node, name);
        }
    }
}

/// The different strings of a value.
fn table_of(value: &StringTensor) -> StringTable {
    let mut seen = HashSet::new();
    StringTable::new(value.elements.iter().filter(|s| seen.insert(s.as_str())).cloned())
}

/// A value the caller gives for an input must have the declared type, rank and fixed sizes.
fn check_given(name: &str, declared: &Shape, given: &Shape) -> Result<(), Error> {
    let fits = declared.dtype() == given.dtype()
        && declared.rank() == given.rank()
        && declared.dims().iter().zip(given.dims()).all(|(d, g)| !d.is_static() || d == g);
    if fits {
        return Ok(());
    }
    let message = format!("input \"{name}\" is {declared}, the value given for it {given}");
    Err(Error::new(ErrorKind::Binding, message))
}
