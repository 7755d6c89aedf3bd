//! The builder of a program: operations, constants, blocks.

use std::collections::HashMap;
use std::sync::Arc;

use rlx_ir::ConstData;

use super::{Blob, Elements, Stored, Tensor, Type};
use crate::proto::mil_spec::{Argument, Block, NamedValueType, Operation, Value, argument, value};

/// Constants of so few elements are in the program, as `coremltools` has it.
const SMALL: usize = 10;

/// An operand of an operation.
#[derive(Debug, Clone, Copy)]
pub enum Arg<'a> {
    /// A value.
    One(&'a Tensor),
    /// A list of values.
    Many(&'a [Tensor]),
}

impl<'a> From<&'a Tensor> for Arg<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Arg::One(tensor)
    }
}

impl<'a> From<&'a [Tensor]> for Arg<'a> {
    fn from(tensors: &'a [Tensor]) -> Self {
        Arg::Many(tensors)
    }
}

/// Writes the operations of one function.
///
/// Blocks of control flow are nested: [`Builder::begin`], operations, [`Builder::end`]. Names of a block are known in those inside of
/// it. Constants are always written in the function's own block, so that each is there once and known everywhere.
#[derive(Debug, Default)]
pub struct Builder {
    operations: Vec<Operation>,
    /// The operations of the blocks that are begun, the innermost one last.
    nested: Vec<Vec<Operation>>,
    /// Small constants that are there.
    constants: HashMap<String, Tensor>,
    /// Those that were written for a nested block.
    shared: Vec<(Arc<ConstData>, Tensor)>,
    blob: Blob,
    /// What values are called after, for people who read the program.
    stem: String,
    count: usize,
}

impl Builder {
    /// A function without operations.
    pub fn new() -> Self {
        Builder::default()
    }

    /// What the next values are called after.
    pub fn name_after(&mut self, label: &str) {
        self.stem = identifier(label);
    }

    fn fresh(&mut self) -> Arc<str> {
        self.count += 1;
        let stem = if self.stem.is_empty() { "v" } else { &self.stem };
        // The number makes it unique: stems end in no digit behind an underscore of their own (`identifier`).
        Arc::from(format!("{stem}__{}", self.count))
    }

    /// An operation with one result.
    pub fn op(&mut self, op: &str, inputs: &[(&str, Arg<'_>)], ty: Type, dims: &[usize]) -> Tensor {
        let name = self.fresh();
        self.named_op(op, inputs, &name, ty, dims)
    }

    /// An operation whose one result has this name.
    pub fn named_op(
        &mut self,
        op: &str,
        inputs: &[(&str, Arg<'_>)],
        name: &str,
        ty: Type,
        dims: &[usize],
    ) -> Tensor {
        let result = Tensor { name: Arc::from(name), ty, dims: dims.to_vec(), fixed: false };
        self.push(op, inputs, std::slice::from_ref(&result));
        result
    }

    /// An operation with several results.
    pub fn op_many(
        &mut self,
        op: &str,
        inputs: &[(&str, Arg<'_>)],
        results: &[(Type, Vec<usize>)],
    ) -> Vec<Tensor> {
        let results = self.declared(results);
        self.push(op, inputs, &results);
        results
    }

    /// An operation with blocks inside.
    pub fn op_of_blocks(
        &mut self,
        op: &str,
        inputs: &[(&str, Arg<'_>)],
        blocks: Vec<Block>,
        results: &[(Type, Vec<usize>)],
    ) -> Vec<Tensor> {
        let results = self.declared(results);
        self.push(op, inputs, &results).blocks = blocks;
        results
    }

    /// Values by new names, which a block is given or an operation gives.
    pub fn declared(&mut self, types: &[(Type, Vec<usize>)]) -> Vec<Tensor> {
        let named = |(ty, dims): &(Type, Vec<usize>)| Tensor {
            name: self.fresh(),
            ty: *ty,
            dims: dims.clone(),
            fixed: false,
        };
        types.iter().map(named).collect()
    }

    /// Begins a block: what follows is written into it.
    pub fn begin(&mut self) {
        self.nested.push(Vec::new());
    }

    /// Ends the block that was begun last. Each output is a value that an operation of the block gives, and no two are the same one.
    pub fn end(&mut self, inputs: &[Tensor], outputs: &[Tensor]) -> Block {
        let mut names: Vec<String> = Vec::new();
        for output in outputs {
            let here = self.nested.last().into_iter().flatten().flat_map(|o| &o.outputs);
            let own = here.map(|o| o.name.as_str()).any(|name| name == &*output.name);
            if own && !names.iter().any(|name| **name == *output.name) {
                names.push(output.name.to_string());
                continue;
            }
            let same = self.op("identity", &[("x", output.into())], output.ty, &output.dims);
            names.push(same.name.to_string());
        }
        let operations = self.nested.pop().unwrap_or_default();
        Block { inputs: inputs.iter().map(named).collect(), outputs: names, operations, ..Block::default() }
    }

    fn push(&mut self, op: &str, inputs: &[(&str, Arg<'_>)], results: &[Tensor]) -> &mut Operation {
        let block = match self.nested.last_mut() {
            Some(block) if op != "const" => block,
            _ => &mut self.operations,
        };
        let binding = |tensor: &Tensor| argument::Binding {
            binding: Some(argument::binding::Binding::Name(tensor.name.to_string())),
        };
        let argument = |arg: &Arg<'_>| Argument {
            arguments: match arg {
                Arg::One(tensor) => vec![binding(tensor)],
                Arg::Many(tensors) => tensors.iter().map(binding).collect(),
            },
        };
        let name = results.first().map_or_else(String::new, |t| t.name.to_string());
        block.push(Operation {
            r#type: op.to_string(),
            inputs: inputs.iter().map(|(key, arg)| (key.to_string(), argument(arg))).collect(),
            outputs: results.iter().map(named).collect(),
            blocks: Vec::new(),
            attributes: [("name".to_string(), Elements::Text(name).value(&[]))].into(),
        });
        let last = block.len() - 1;
        &mut block[last]
    }

    /// The constant that was written of these elements for a nested block.
    pub fn remembered(&self, data: &Arc<ConstData>) -> Option<Tensor> {
        self.shared.iter().find(|(of, _)| Arc::ptr_eq(of, data)).map(|(_, tensor)| tensor.clone())
    }

    /// Keeps a constant for other blocks, if a block is begun.
    pub fn remember(&mut self, data: &Arc<ConstData>, tensor: &Tensor) {
        if !self.nested.is_empty() {
            self.shared.push((Arc::clone(data), tensor.clone()));
        }
    }

    /// A constant: in the program where it is small or the file of weights does not take its type.
    pub fn constant(&mut self, elements: Elements, dims: &[usize]) -> Tensor {
        let (ty, count) = (elements.ty(), dims.iter().product::<usize>());
        if count > SMALL {
            let stored = match &elements {
                Elements::Floats(v) => Some((Stored::F32, v.iter().flat_map(|v| v.to_le_bytes()).collect())),
                Elements::Halves(v) => Some((Stored::F16, v.iter().flat_map(|v| v.to_le_bytes()).collect())),
                Elements::Ints(_) | Elements::Bools(_) | Elements::Text(_) => None,
            };
            if let Some((stored, bytes)) = stored {
                let bytes: Vec<u8> = bytes;
                return self.weight(stored, dims, &bytes);
            }
        }
        let key = format!("{dims:?}{elements:?}");
        if count <= SMALL
            && let Some(known) = self.constants.get(&key)
        {
            return known.clone();
        }
        let made = self.const_op(ty, dims, elements.value(dims));
        if count <= SMALL {
            self.constants.insert(key, made.clone());
        }
        made
    }

    /// A constant in the file of weights, of little-endian elements.
    pub fn weight(&mut self, stored: Stored, dims: &[usize], bytes: &[u8]) -> Tensor {
        let (ty, offset) = (stored.ty(), self.blob.push(stored, bytes));
        let file = value::BlobFileValue { file_name: "@model_path/weights/weight.bin".to_string(), offset };
        let value = Value {
            doc_string: String::new(),
            r#type: Some(ty.tensor(dims)),
            value: Some(value::Value::BlobFileValue(file)),
        };
        self.const_op(ty, dims, value)
    }

    fn const_op(&mut self, ty: Type, dims: &[usize], value: Value) -> Tensor {
        let name = self.fresh();
        let made = Tensor { name, ty, dims: dims.to_vec(), fixed: true };
        self.push("const", &[], std::slice::from_ref(&made)).attributes.insert("val".to_string(), value);
        made
    }

    /// A list of integers: axes, sizes, strides.
    pub fn ints(&mut self, values: &[usize]) -> Tensor {
        let values = values.iter().map(|&v| i32::try_from(v).unwrap_or(i32::MAX)).collect::<Vec<_>>();
        let dims = [values.len()];
        self.constant(Elements::Ints(values), &dims)
    }

    /// An integer.
    pub fn int(&mut self, value: usize) -> Tensor {
        self.constant(Elements::Ints(vec![i32::try_from(value).unwrap_or(i32::MAX)]), &[])
    }

    /// A number of the type `ty`, to compute with.
    pub fn number(&mut self, ty: Type, value: f32) -> Tensor {
        let elements = match ty {
            Type::I32 => Elements::Ints(vec![value as i32]),
            Type::Bool => Elements::Bools(vec![value != 0.0]),
            _ => Elements::float(ty, value),
        };
        self.constant(elements, &[])
    }

    /// A truth value.
    pub fn flag(&mut self, value: bool) -> Tensor {
        self.constant(Elements::Bools(vec![value]), &[])
    }

    /// A text: a mode.
    pub fn text(&mut self, value: &str) -> Tensor {
        self.constant(Elements::Text(value.to_string()), &[])
    }

    /// The operations and the file of weights.
    pub fn finish(self) -> (Vec<Operation>, Blob) {
        (self.operations, self.blob)
    }
}

/// A value's declaration.
pub(crate) fn named(tensor: &Tensor) -> NamedValueType {
    NamedValueType { name: tensor.name.to_string(), r#type: Some(tensor.ty.tensor(&tensor.dims)) }
}

/// A text as MIL's identifiers are: letters, digits and underscores, no digit first. No two underscores follow each other, so that
/// names of the builder's (with two) are never those of inputs and outputs.
pub fn identifier(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars().take(48) {
        match c {
            c if c.is_ascii_alphanumeric() => name.push(c),
            _ if name.ends_with('_') => {}
            _ => name.push('_'),
        }
    }
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
    name.truncate(name.trim_end_matches('_').len());
    name
}
