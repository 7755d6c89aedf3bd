//! Values of every type that a model may declare: tensors, strings, sequences, optionals, and the maps of classifiers.
//!
//! A graph has tensors of numbers only; [`rlx_onnx::Structure`] says what they stand for. [`Runner::run_values`](crate::Runner::run_values) takes
//! and gives the values that the file declares.

use std::collections::{BTreeMap, BTreeSet};

use rlx_ir::{ConstData, Error, ErrorKind, Result};
use rlx_onnx::Imported;

pub use rlx_onnx::{MapKeys, StringTensor};

/// Tensors by the names of the inputs that take them.
pub type Inputs = Vec<(String, ConstData)>;

/// A value of a type that a model declares.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ModelValue {
    /// A tensor of numbers.
    Tensor(ConstData),
    /// A tensor of strings.
    Strings(StringTensor),
    /// A sequence.
    Sequence(Vec<ModelValue>),
    /// An optional that holds nothing.
    Nothing,
    /// A sequence of maps with the same keys, which `ZipMap` makes: a row of `values` for each map.
    Maps {
        /// The columns.
        keys: MapKeys,
        /// `[maps, keys]`.
        values: ConstData,
    },
}

impl From<ConstData> for ModelValue {
    fn from(tensor: ConstData) -> Self {
        ModelValue::Tensor(tensor)
    }
}

impl From<StringTensor> for ModelValue {
    fn from(strings: StringTensor) -> Self {
        ModelValue::Strings(strings)
    }
}

/// What inputs that are no plain tensors are given.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Structured {
    pub strings: BTreeMap<String, StringTensor>,
    pub lengths: BTreeMap<String, usize>,
    pub absent: BTreeSet<String>,
}

impl Structured {
    /// Takes a value apart, as the importer takes the input apart; its tensors of numbers are added to `tensors`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for maps.
    pub fn add(
        &mut self,
        name: String,
        value: &ModelValue,
        tensors: &mut Vec<(String, ConstData)>,
    ) -> Result<()> {
        match value {
            ModelValue::Tensor(tensor) => tensors.push((name, tensor.clone())),
            ModelValue::Strings(strings) => _ = self.strings.insert(name, strings.clone()),
            ModelValue::Sequence(elements) => {
                self.lengths.insert(name.clone(), elements.len());
                let mut each = elements.iter().enumerate();
                each.try_for_each(|(i, element)| self.add(format!("{name}.{i}"), element, tensors))?;
            }
            ModelValue::Nothing => _ = self.absent.insert(name),
            ModelValue::Maps { .. } => {
                let message = format!("input \"{name}\" is given maps");
                return Err(Error::new(ErrorKind::Unsupported, message)
                    .with_hint("give a tensor [1, keys] with 0 for what is not in the map"));
            }
        }
        Ok(())
    }

    /// The codes of the strings, in the tables of an import made for them.
    ///
    /// # Errors
    /// [`ErrorKind::DType`] where an input is no strings.
    pub fn codes(&self, imported: &Imported) -> Result<Vec<(String, ConstData)>> {
        let codes = |(name, strings): (&String, &StringTensor)| {
            let table = imported.structure.strings.get(name).ok_or_else(|| {
                Error::new(ErrorKind::DType, format!("input \"{name}\" is given strings, but takes numbers"))
            })?;
            Ok((name.clone(), table.encode(strings)?))
        };
        self.strings.iter().map(codes).collect()
    }
}

/// The model's outputs by their names in the file, put together again from the graph's.
///
/// # Errors
/// [`ErrorKind::Value`] for codes that stand for no string.
pub(crate) fn assembled<'n>(
    declared: impl Iterator<Item = &'n str>,
    imported: &Imported,
    results: Vec<ConstData>,
) -> Result<Vec<(String, ModelValue)>> {
    let mut results: Vec<Option<ConstData>> = results.into_iter().map(Some).collect();
    let mut take = |name: &str| {
        let at = imported.outputs.iter().position(|output| output == name)?;
        results.get_mut(at)?.take()
    };
    declared.map(|name| Ok((name.to_owned(), whole(name, imported, &mut take)?))).collect()
}

fn whole(
    name: &str,
    imported: &Imported,
    take: &mut impl FnMut(&str) -> Option<ConstData>,
) -> Result<ModelValue> {
    let structure = &imported.structure;
    if let Some(tensor) = take(name) {
        return Ok(match (structure.strings.get(name), structure.maps.get(name)) {
            (Some(table), _) => ModelValue::Strings(table.decode(&tensor)?),
            (_, Some(keys)) => ModelValue::Maps { keys: keys.clone(), values: tensor },
            _ => ModelValue::Tensor(tensor),
        });
    }
    match structure.sequences.get(name) {
        Some(&length) => {
            let elements = (0..length).map(|i| whole(&format!("{name}.{i}"), imported, take));
            elements.collect::<Result<_>>().map(ModelValue::Sequence)
        }
        None => Ok(ModelValue::Nothing),
    }
}
