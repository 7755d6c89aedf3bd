//! The meaning of a model's dimension names.
//!
//! A name that an input declares for a dimension is a symbol. Exporters also write sums of such names where one input is
//! longer than another, such as `past_sequence_length + sequence_length` for the mask of a decoder with a cache. Parsing these sums
//! lets the importer prove that shapes match, and a run does not have to pass them.
//!
//! ```
//! use rlx_onnx::DimNames;
//! use std::collections::BTreeMap;
//! let sizes = BTreeMap::from([("batch".to_owned(), 2)]);
//! let names = DimNames::new(["batch", "past", "seq", "past + seq"], &sizes);
//! assert_eq!(names.dim("batch").as_static(), Some(2));
//! assert_eq!(names.dim("past + seq").extent(), names.dim("past").extent() + names.dim("seq").extent());
//! // `width` is not declared anywhere, so the whole text is one name.
//! assert_eq!(names.dim("past + width").to_string(), "\"past + width\"");
//! ```

use crate::proto::GraphProto;
use crate::proto::tensor_shape_proto::dimension::Value;
use crate::proto::type_proto::Value as TypeValue;
use rlx_ir::text::Lexer;
use rlx_ir::{Dim, Extent, sym};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The dimension names of a model's inputs, and the sizes that some were given.
#[derive(Debug, Clone)]
pub struct DimNames<'a> {
    /// Symbols that an input declares as they are.
    declared: BTreeSet<u32>,
    sizes: &'a BTreeMap<String, usize>,
}

impl<'a> DimNames<'a> {
    /// The names that occur, and the sizes of some.
    pub fn new<'n>(names: impl IntoIterator<Item = &'n str>, sizes: &'a BTreeMap<String, usize>) -> Self {
        DimNames { declared: names.into_iter().map(sym::named).collect(), sizes }
    }

    /// The names of a graph's inputs.
    pub fn of_inputs(graph: &GraphProto, sizes: &'a BTreeMap<String, usize>) -> Self {
        let types = graph.input.iter().filter_map(|i| i.r#type.as_ref()?.value.as_ref());
        let shapes = types.filter_map(|t| match t {
            TypeValue::TensorType(tensor) => tensor.shape.as_ref(),
            _ => None,
        });
        let names = shapes.flat_map(|shape| &shape.dim).filter_map(|d| match &d.value {
            Some(Value::DimParam(name)) => Some(name.as_str()),
            _ => None,
        });
        Self::new(names, sizes)
    }

    /// The meaning of a name: the size it was given, an expression over other names, or a symbol.
    pub fn dim(&self, name: &str) -> Dim {
        if let Some(&size) = self.sizes.get(name) {
            return Dim::Static(size);
        }
        match self.expression(name) {
            Some(e) => Dim::from(e.substitute(&|symbol| {
                let size = *self.sizes.get(&sym::name(symbol))?;
                i64::try_from(size).ok().map(Extent::Const)
            })),
            None => Dim::Dynamic(sym::named(name)),
        }
    }

    /// The name read as sums and products of several names that occur by themselves.
    fn expression(&self, name: &str) -> Option<Extent> {
        // The text form has quoted names and comments, names of dimensions have not.
        if !name.contains(['+', '-', '*']) || name.contains(['"', '/']) {
            return None;
        }
        let blobs = HashMap::new();
        let mut lexer = Lexer::new(name, &blobs);
        let e = lexer.extent().ok().filter(|_| lexer.at_end())?;
        let known = |s: &u32| *s != sym::named(name) && self.declared.contains(s);
        (e.as_const().is_none() && e.symbols().iter().all(known)).then_some(e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_where_all_their_names_are_declared() {
        let sizes = BTreeMap::from([("past".to_owned(), 0)]);
        let names = DimNames::new(["past", "seq", "2*seq + past"], &sizes);
        let seq = Extent::sym(sym::SEQ);
        assert_eq!(names.dim("2*seq + past"), Dim::from(seq * 2));
        assert_eq!(names.dim("seq - 1"), Dim::from(seq - 1));
        for opaque in ["seq + other", "seq // 2 + 1", "seq +", "seq + 1)", "5 + 1", "-", "\"seq\" + 1", ""] {
            assert_eq!(names.dim(opaque), Dim::Dynamic(sym::named(opaque)), "{opaque}");
        }
    }

    #[test]
    fn a_size_for_the_whole_name_wins() {
        let sizes = BTreeMap::from([("past + seq".to_owned(), 9)]);
        let names = DimNames::new(["past", "seq"], &sizes);
        assert_eq!(names.dim("past + seq"), Dim::Static(9));
    }
}
