//! Programs: names, and operations one after another.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use crate::call::{Bound, Call};
use crate::model::{Binding, Block, Operation, Type, Value, elements};
use crate::package::Package;
use crate::{Res, Tensor, Ty, elementwise, index, linear, movement, norm, reduce, windows};

/// The names that are known at a place of a program.
pub struct Scope<'p> {
    package: &'p Package,
    values: HashMap<String, Bound>,
    /// Whether blocks of control flow that are not taken are computed, too, and others once.
    pub(crate) every_block: bool,
}

impl<'p> Scope<'p> {
    pub fn new(package: &'p Package) -> Self {
        Scope { package, values: HashMap::new(), every_block: false }
    }

    pub fn define(&mut self, name: &str, tensor: Tensor, constant: bool) -> Res<()> {
        let bound = Bound { tensor: Rc::new(tensor), constant };
        match self.values.insert(name.to_string(), bound) {
            None => Ok(()),
            Some(_) => Err(format!("the name {name:?} is used twice")),
        }
    }

    fn bound(&self, name: &str) -> Res<Bound> {
        self.values.get(name).cloned().ok_or_else(|| format!("there is no value {name:?}"))
    }

    /// Computes a block's operations; what it gives. The block's own names are not known behind it.
    pub fn block(&mut self, block: &Block, inputs: &[Tensor]) -> Res<Vec<Tensor>> {
        if inputs.len() != block.inputs.len() {
            return Err(format!("a block of {} inputs is given {}", block.inputs.len(), inputs.len()));
        }
        for (declared, given) in block.inputs.iter().zip(inputs) {
            fits(given, &declared.of).map_err(|e| format!("a block's input {}: {e}", declared.name))?;
            self.define(&declared.name, given.clone(), false)?;
        }
        let mut last = HashMap::new();
        for (at, operation) in block.operations.iter().enumerate() {
            mentioned(operation, &mut |name| {
                last.insert(name.to_string(), at);
            });
        }
        let own: HashSet<&str> =
            block.operations.iter().flat_map(|o| &o.outputs).map(|o| o.name.as_str()).collect();
        for (at, operation) in block.operations.iter().enumerate() {
            let name = operation.outputs.first().map_or("", |o| o.name.as_str());
            self.operation(operation).map_err(|e| format!("{} ({name}): {e}", operation.op))?;
            // What nobody reads any more is dropped: whole models are evaluated.
            mentioned(operation, &mut |name| {
                if last.get(name) == Some(&at)
                    && own.contains(name)
                    && !block.outputs.iter().any(|o| o == name)
                {
                    self.values.remove(name);
                }
            });
        }
        let outputs = block.outputs.iter().map(|name| self.bound(name).map(|b| (*b.tensor).clone()));
        let outputs = outputs.collect::<Res<Vec<_>>>()?;
        block.inputs.iter().for_each(|input| drop(self.values.remove(&input.name)));
        own.iter().for_each(|name| drop(self.values.remove(*name)));
        Ok(outputs)
    }

    fn operation(&mut self, operation: &Operation) -> Res<()> {
        if operation.op == "const" {
            return self.constant(operation);
        }
        if operation.attributes.keys().any(|key| key != "name") {
            return Err("it has other attributes than a name".to_string());
        }
        let mut inputs = BTreeMap::new();
        for (name, bindings) in &operation.inputs {
            let bound = bindings.iter().map(|binding| match binding {
                Binding::Name(name) => self.bound(name),
                Binding::Value(value) => Ok(Bound { tensor: Rc::new(self.value(value)?), constant: true }),
            });
            inputs.insert(name.clone(), bound.collect::<Res<Vec<_>>>()?);
        }
        let call = Call::new(inputs);
        let results = match (operation.op.as_str(), operation.blocks.as_slice()) {
            ("cond", [then, otherwise]) => self.choice(&call, then, otherwise)?,
            ("while_loop", [test, step]) => self.repeat(&call, test, step)?,
            ("cond" | "while_loop", blocks) => return Err(format!("{} blocks", blocks.len())),
            (op, []) => compute(op, &call)?,
            _ => return Err("it has blocks".to_string()),
        };
        call.all_taken()?;
        if results.len() != operation.outputs.len() {
            return Err(format!("{} results for {} names", results.len(), operation.outputs.len()));
        }
        for (result, declared) in results.into_iter().zip(&operation.outputs) {
            fits(&result, &declared.of)?;
            self.define(&declared.name, result, false)?;
        }
        Ok(())
    }

    fn constant(&mut self, operation: &Operation) -> Res<()> {
        let [output] = operation.outputs.as_slice() else { return Err("not one result".to_string()) };
        if !operation.inputs.is_empty() {
            return Err("a constant with operands".to_string());
        }
        let value = operation.attributes.get("val").ok_or("a constant without a value")?;
        let tensor = self.value(value)?;
        fits(&tensor, &output.of)?;
        self.define(&output.name, tensor, true)
    }

    /// A constant's elements: from the program, or the file of weights by its metadata.
    fn value(&self, value: &Value) -> Res<Tensor> {
        let (of, file, offset) = match value {
            Value::Immediate(tensor) => return Ok(tensor.clone()),
            Value::Blob { of, file, offset } => (of, file, *offset),
        };
        if file != "@model_path/weights/weight.bin" {
            return Err(format!("weights in {file:?}"));
        }
        let bytes = &self.package.weights;
        let word = |at: u64, size: usize| -> Res<u64> {
            let at = usize::try_from(at).map_err(|e| e.to_string())?;
            let found = at.checked_add(size).and_then(|end| bytes.get(at..end));
            let found = found.ok_or("a place beyond the file of weights")?;
            Ok(found.iter().rev().fold(0, |value, &byte| (value << 8) | u64::from(byte)))
        };
        if word(4, 4)? != 2 || offset % 64 != 0 || word(offset, 4)? != 0xDEAD_BEEF {
            return Err(format!("no blob at {offset}"));
        }
        let code = match of.ty {
            Ty::F16 => 1,
            Ty::F32 => 2,
            Ty::U8 => 3,
            Ty::I8 => 4,
            other => return Err(format!("{other:?} in the file of weights")),
        };
        let (size, at) = (word(offset + 8, 8)?, word(offset + 16, 8)?);
        if word(offset + 4, 4)? != code || at % 64 != 0 {
            return Err(format!("a blob of another type, or not aligned, at {offset}"));
        }
        let range = at as usize..(at as usize).saturating_add(size as usize);
        let data = elements(of.ty, bytes.get(range).ok_or("a blob beyond the file of weights")?)?;
        let tensor = Tensor { ty: of.ty, dims: of.dims.clone(), data };
        crate::model::count(&tensor).map(|()| tensor)
    }
}

/// All names that an operation reads, those of its blocks included.
fn mentioned(operation: &Operation, with: &mut dyn FnMut(&str)) {
    for binding in operation.inputs.values().flatten() {
        if let Binding::Name(name) = binding {
            with(name);
        }
    }
    for block in &operation.blocks {
        block.operations.iter().for_each(|operation| mentioned(operation, with));
        block.outputs.iter().for_each(|name| with(name));
    }
}

/// Whether a value is what is declared, and something that Core ML has.
fn fits(value: &Tensor, declared: &Type) -> Res<()> {
    if value.ty != declared.ty || value.dims != declared.dims {
        return Err(format!(
            "it gives {:?} {:?}, and {:?} {:?} is declared",
            value.ty, value.dims, declared.ty, declared.dims
        ));
    }
    if value.dims.len() > 5 || value.dims.contains(&0) {
        return Err(format!("Core ML has no tensors of {:?}", value.dims));
    }
    crate::model::count(value)
}

/// An operation without blocks.
fn compute(op: &str, call: &Call) -> Res<Vec<Tensor>> {
    let families = [
        elementwise::compute,
        linear::compute,
        movement::compute,
        index::compute,
        reduce::compute,
        norm::compute,
        windows::compute,
    ];
    for family in families {
        if let Some(results) = family(op, call)? {
            return Ok(results);
        }
    }
    Err("there is no such operation".to_string())
}
