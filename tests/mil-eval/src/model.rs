//! The messages of a package, as far as ML Programs have them: read from the wire by their numbers in Apple's schema.

use std::collections::BTreeMap;

use crate::tensor::half_to_float;
use crate::wire::{Field, fields, floats, varints};
use crate::{Data, Res, Tensor, Ty};

/// A tensor's type.
#[derive(Debug, Clone, PartialEq)]
pub struct Type {
    pub ty: Ty,
    pub dims: Vec<usize>,
}

/// A declared value.
#[derive(Debug, Clone)]
pub struct Named {
    pub name: String,
    pub of: Type,
}

/// A constant: in the program or in the file of weights.
#[derive(Debug, Clone)]
pub enum Value {
    Immediate(Tensor),
    Blob { of: Type, file: String, offset: u64 },
}

#[derive(Debug, Clone)]
pub enum Binding {
    Name(String),
    Value(Value),
}

#[derive(Debug, Clone)]
pub struct Operation {
    pub op: String,
    pub inputs: BTreeMap<String, Vec<Binding>>,
    pub outputs: Vec<Named>,
    pub blocks: Vec<Block>,
    pub attributes: BTreeMap<String, Value>,
}

#[derive(Debug, Clone, Default)]
pub struct Block {
    pub inputs: Vec<Named>,
    pub outputs: Vec<String>,
    pub operations: Vec<Operation>,
}

/// What a model says of an input or output.
#[derive(Debug, Clone)]
pub struct Feature {
    pub name: String,
    pub dims: Vec<usize>,
    pub array: u64,
}

#[derive(Debug, Clone)]
pub struct Model {
    pub version: u64,
    pub inputs: Vec<Feature>,
    pub outputs: Vec<Feature>,
    pub opset: String,
    pub arguments: Vec<Named>,
    pub block: Block,
}

/// The entries of a map field: key and message.
fn entry(field: Field<'_>) -> Res<(String, &[u8])> {
    let (mut key, mut value) = (String::new(), &[][..]);
    for (number, field) in fields(field.bytes()?)? {
        match number {
            1 => key = field.text()?,
            2 => value = field.bytes()?,
            other => return Err(format!("field {other} of a map")),
        }
    }
    Ok((key, value))
}

/// The model.
pub fn model(bytes: &[u8]) -> Res<Model> {
    let (mut version, mut description, mut program) = (0, None, None);
    for (number, field) in fields(bytes)? {
        match number {
            1 => version = field.number()?,
            2 => description = Some(field.bytes()?),
            10 => {}
            502 => program = Some(field.bytes()?),
            other => return Err(format!("field {other} of a model")),
        }
    }
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for (number, field) in fields(description.ok_or("no description")?)? {
        match number {
            1 => inputs.push(feature(field)?),
            10 => outputs.push(feature(field)?),
            100 => {}
            other => return Err(format!("field {other} of a description")),
        }
    }
    let mut functions = BTreeMap::new();
    for (number, field) in fields(program.ok_or("no ML Program")?)? {
        match number {
            1 if field.number()? == 1 => {}
            2 => drop(entry(field).map(|(name, bytes)| functions.insert(name, bytes))?),
            other => return Err(format!("field {other} of a program")),
        }
    }
    let main = functions.get("main").ok_or("no function main")?;
    let (mut opset, mut arguments, mut blocks) = (String::new(), Vec::new(), BTreeMap::new());
    for (number, field) in fields(main)? {
        match number {
            1 => arguments.push(named(field)?),
            2 => opset = field.text()?,
            3 => drop(entry(field).map(|(name, bytes)| blocks.insert(name, bytes))?),
            other => return Err(format!("field {other} of a function")),
        }
    }
    let block = block(blocks.get(&opset).ok_or_else(|| format!("no block for {opset:?}"))?)?;
    if !block.inputs.is_empty() {
        return Err("a function's block with inputs of its own".to_string());
    }
    Ok(Model { version, inputs, outputs, opset, arguments, block })
}

fn feature(field: Field<'_>) -> Res<Feature> {
    let (mut name, mut dims, mut array) = (String::new(), Vec::new(), 0);
    for (number, field) in fields(field.bytes()?)? {
        match number {
            1 => name = field.text()?,
            2 => {}
            3 => {
                for (number, field) in fields(field.bytes()?)? {
                    if number != 5 {
                        return Err(format!("feature type {number}"));
                    }
                    for (number, field) in fields(field.bytes()?)? {
                        match number {
                            1 => dims.extend(varints(field)?.iter().map(|&d| d as usize)),
                            2 => array = field.number()?,
                            other => return Err(format!("field {other} of an array")),
                        }
                    }
                }
            }
            other => return Err(format!("field {other} of a feature")),
        }
    }
    Ok(Feature { name, dims, array })
}

fn named(field: Field<'_>) -> Res<Named> {
    let (mut name, mut of) = (String::new(), None);
    for (number, field) in fields(field.bytes()?)? {
        match number {
            1 => name = field.text()?,
            2 => of = Some(value_type(field)?),
            other => return Err(format!("field {other} of a declaration")),
        }
    }
    Ok(Named { of: of.ok_or_else(|| format!("{name:?} has no type"))?, name })
}

fn value_type(field: Field<'_>) -> Res<Type> {
    let mut found = None;
    for (number, field) in fields(field.bytes()?)? {
        if number != 1 {
            return Err(format!("value type {number}"));
        }
        let (mut ty, mut rank, mut dims) = (None, 0, Vec::new());
        for (number, field) in fields(field.bytes()?)? {
            match number {
                1 => ty = Some(Ty::of_code(field.number()?)?),
                2 => rank = field.number()? as usize,
                3 => dims.push(dimension(field)?),
                other => return Err(format!("field {other} of a tensor type")),
            }
        }
        if rank != dims.len() {
            return Err(format!("rank {rank} with {} dimensions", dims.len()));
        }
        found = Some(Type { ty: ty.ok_or("no data type")?, dims });
    }
    found.ok_or_else(|| "no tensor type".to_string())
}

fn dimension(field: Field<'_>) -> Res<usize> {
    let mut size = 0;
    for (number, field) in fields(field.bytes()?)? {
        if number != 1 {
            return Err("an unknown dimension".to_string());
        }
        for (_, field) in fields(field.bytes()?)? {
            size = field.number()? as usize;
        }
    }
    Ok(size)
}

fn block(bytes: &[u8]) -> Res<Block> {
    let mut found = Block::default();
    for (number, field) in fields(bytes)? {
        match number {
            1 => found.inputs.push(named(field)?),
            2 => found.outputs.push(field.text()?),
            3 => found.operations.push(operation(field.bytes()?)?),
            other => return Err(format!("field {other} of a block")),
        }
    }
    Ok(found)
}

fn operation(bytes: &[u8]) -> Res<Operation> {
    let mut found = Operation {
        op: String::new(),
        inputs: BTreeMap::new(),
        outputs: Vec::new(),
        blocks: Vec::new(),
        attributes: BTreeMap::new(),
    };
    for (number, field) in fields(bytes)? {
        match number {
            1 => found.op = field.text()?,
            2 => {
                let (name, bytes) = entry(field)?;
                let bound =
                    fields(bytes)?.into_iter().map(|(_, field)| binding(field)).collect::<Res<_>>()?;
                found.inputs.insert(name, bound);
            }
            3 => found.outputs.push(named(field)?),
            4 => found.blocks.push(block(field.bytes()?)?),
            5 => {
                let (name, bytes) = entry(field)?;
                found.attributes.insert(name, value(bytes)?);
            }
            other => return Err(format!("field {other} of an operation")),
        }
    }
    Ok(found)
}

fn binding(field: Field<'_>) -> Res<Binding> {
    match fields(field.bytes()?)?.as_slice() {
        [(1, field)] => Ok(Binding::Name(field.text()?)),
        [(2, field)] => Ok(Binding::Value(value(field.bytes()?)?)),
        other => Err(format!("{} fields of a binding", other.len())),
    }
}

fn value(bytes: &[u8]) -> Res<Value> {
    let (mut of, mut immediate, mut blob) = (None, None, None);
    for (number, field) in fields(bytes)? {
        match number {
            2 => of = Some(value_type(field)?),
            3 => immediate = Some(field.bytes()?),
            5 => blob = Some(field.bytes()?),
            other => return Err(format!("field {other} of a value")),
        }
    }
    let of = of.ok_or("a value without a type")?;
    if let Some(bytes) = blob {
        let (mut file, mut offset) = (String::new(), 0);
        for (number, field) in fields(bytes)? {
            match number {
                1 => file = field.text()?,
                2 => offset = field.number()?,
                other => return Err(format!("field {other} of a place in a file")),
            }
        }
        return Ok(Value::Blob { of, file, offset });
    }
    match fields(immediate.ok_or("a value without a value")?)?.as_slice() {
        [(1, field)] => tensor(of, field.bytes()?).map(Value::Immediate),
        _ => Err("an immediate value that is no tensor".to_string()),
    }
}

fn tensor(of: Type, bytes: &[u8]) -> Res<Tensor> {
    let mut data = None;
    for (number, field) in fields(bytes)? {
        let inner = fields(field.bytes()?)?;
        let many = |read: fn(Field<'_>) -> Res<Vec<u64>>| -> Res<Vec<u64>> {
            inner.iter().map(|(_, field)| read(*field)).collect::<Res<Vec<_>>>().map(|v| v.concat())
        };
        data = Some(match (number, of.ty) {
            (1, Ty::F32) => {
                let values = inner.iter().map(|(_, field)| floats(*field)).collect::<Res<Vec<_>>>()?;
                Data::Floats(values.concat())
            }
            (2, Ty::I32) => Data::Ints(many(varints)?.iter().map(|&v| v as i32).collect()),
            (3, Ty::Bool) => Data::Bools(many(varints)?.iter().map(|&v| v != 0).collect()),
            (4, Ty::Text) => match inner.as_slice() {
                [(1, field)] => Data::Text(field.text()?),
                _ => return Err("not one text".to_string()),
            },
            (7, ty) => {
                let bytes = inner.first().map_or(Ok(&[][..]), |(_, field)| field.bytes())?;
                elements(ty, bytes)?
            }
            (kind, ty) => return Err(format!("elements of kind {kind} for {ty:?}")),
        });
    }
    let made = Tensor { ty: of.ty, dims: of.dims, data: data.ok_or("a tensor without elements")? };
    count(&made).map(|()| made)
}

/// The elements of a type from their bytes.
pub fn elements(ty: Ty, bytes: &[u8]) -> Res<Data> {
    let size = match ty {
        Ty::F32 | Ty::I32 => 4,
        Ty::F16 => 2,
        _ => 1,
    };
    if !bytes.len().is_multiple_of(size) {
        return Err(format!("{} bytes of {ty:?}", bytes.len()));
    }
    Ok(match ty {
        Ty::F32 => Data::Floats(
            bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect(),
        ),
        Ty::F16 => Data::Floats(
            bytes.chunks_exact(2).map(|c| half_to_float(u16::from_le_bytes([c[0], c[1]]))).collect(),
        ),
        Ty::I32 => {
            Data::Ints(bytes.chunks_exact(4).map(|c| i32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect())
        }
        Ty::I8 => Data::Ints(bytes.iter().map(|&b| i32::from(b as i8)).collect()),
        Ty::U8 => Data::Ints(bytes.iter().map(|&b| i32::from(b)).collect()),
        other => return Err(format!("bytes of {other:?}")),
    })
}

/// Whether there are as many elements as the dimensions say.
pub fn count(tensor: &Tensor) -> Res<()> {
    let there = match &tensor.data {
        Data::Floats(v) => v.len(),
        Data::Ints(v) => v.len(),
        Data::Bools(v) => v.len(),
        Data::Text(_) => 1,
    };
    if there == tensor.len() { Ok(()) } else { Err(format!("{there} elements for {:?}", tensor.dims)) }
}
