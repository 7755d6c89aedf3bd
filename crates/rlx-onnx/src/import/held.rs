//! Slots that hold no plain tensor: strings, sequences, maps.
//!
//! A *tensor of strings* is a tensor of integers, the codes of its strings in a table that is known while importing. So it is
//! moved by the same ops as any other tensor, on every device; what looks into strings is computed for the table. The strings
//! of an input have codes in the model's *vocabulary*: all strings that the model asks for. A string that is not among them
//! is −1. Where that is not enough (two inputs are compared, or an input is split), the import asks for the input's value.
//!
//! A *sequence* is a list of slots. How long it is, and which of its elements an op takes, must be known.

use super::NodeCx;
use super::slot::{Importer, SlotId};
use rlx_ir::{ConstData, DType, Error, ErrorKind, NodeId, Op, Value};
use std::collections::HashMap;
use std::rc::Rc;

use crate::structure::{MapKeys, StringTable, StringTensor};

/// What a slot holds.
#[derive(Debug, Clone, Default)]
pub(crate) enum Held {
    #[default]
    Tensor,
    Strings(Strings),
    Sequence(Rc<[SlotId]>),
    /// Rows of values for these keys.
    Map {
        values: SlotId,
        keys: Rc<MapKeys>,
    },
    /// An input that is a map; whose keys matter is said by the op that takes it.
    MapInput {
        name: Rc<str>,
        values: DType,
    },
}

/// A tensor of strings.
#[derive(Debug, Clone)]
pub(crate) struct Strings {
    /// The tensor of their codes.
    pub codes: SlotId,
    pub words: Words,
}

/// What the codes stand for.
#[derive(Debug, Clone)]
pub(crate) enum Words {
    /// These strings, no two of which are equal.
    Table(Rc<[Rc<str>]>),
    /// The model's vocabulary, of which an input may be −1.
    Vocabulary,
}

/// Different strings in the order of their codes.
#[derive(Debug, Default)]
pub(crate) struct Vocabulary {
    words: Vec<Rc<str>>,
    codes: HashMap<Rc<str>, i64>,
}

impl Vocabulary {
    /// The code of a string, a new one if need be.
    pub fn code(&mut self, word: &Rc<str>) -> i64 {
        if let Some(&code) = self.codes.get(word) {
            return code;
        }
        let code = self.words.len() as i64;
        self.words.push(Rc::clone(word));
        self.codes.insert(Rc::clone(word), code);
        code
    }

    pub fn table(&self) -> StringTable {
        StringTable::new(self.words.iter().map(|w| w.to_string()))
    }

    pub fn into_words(self) -> Words {
        Words::Table(self.words.into())
    }
}

impl Held {
    /// What an error calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Held::Tensor => "a tensor",
            Held::Strings(_) => "strings",
            Held::Sequence(_) => "a sequence",
            Held::Map { .. } | Held::MapInput { .. } => "a map",
        }
    }
}

impl Importer<'_> {
    /// Strings that are known.
    pub fn known_strings_slot(&mut self, x: &StringTensor) -> Result<SlotId, Error> {
        self.spend(x.elements.len())?;
        let words: Vec<Rc<str>> = x.elements.iter().map(|s| Rc::from(s.as_str())).collect();
        self.words_slot(&x.dims, &words)
    }

    /// As [`Importer::known_strings_slot`].
    pub fn words_slot(&mut self, dims: &[usize], words: &[Rc<str>]) -> Result<SlotId, Error> {
        let mut own = Vocabulary::default();
        let codes: Vec<i64> = words.iter().map(|w| own.code(w)).collect();
        let codes = self.constant_slot(ConstData::from_i64(dims, &codes)?);
        Ok(self.strings_slot(codes, own.into_words()))
    }

    /// The elements of strings, where their codes are known, too.
    fn known_words(&self, strings: &Strings) -> Result<Option<Vec<Rc<str>>>, Error> {
        let Words::Table(words) = &strings.words else { return Ok(None) };
        let Some(codes) = self.constant_value(strings.codes)? else { return Ok(None) };
        let word = |&code: &i128| usize::try_from(code).ok().and_then(|i| words.get(i)).cloned();
        let found = codes.ints()?.iter().map(word).collect::<Option<Vec<_>>>();
        found.map(Some).ok_or_else(|| Error::new(ErrorKind::Internal, "a code that stands for no string"))
    }
}

impl NodeCx<'_, '_> {
    /// What operand `i` holds.
    pub fn held(&self, i: usize) -> Result<Held, Error> {
        Ok(self.importer.slot(self.slot(i)?).held.clone())
    }

    pub fn is_strings(&self, i: usize) -> bool {
        matches!(self.held(i), Ok(Held::Strings(_)))
    }

    /// Operand `i`, which must be strings.
    pub fn strings(&self, i: usize) -> Result<Strings, Error> {
        match self.held(i)? {
            Held::Strings(strings) => Ok(strings),
            other => Err(self.malformed(format!("operand {i} is {}, not strings", other.name()))),
        }
    }

    /// The elements of operand `i`, a sequence.
    pub fn sequence(&self, i: usize) -> Result<Rc<[SlotId]>, Error> {
        match self.held(i)? {
            Held::Sequence(elements) => Ok(elements),
            other => Err(self.malformed(format!("operand {i} is {}, not a sequence", other.name()))),
        }
    }

    /// Dimensions and elements of operand `i`, strings that must be known.
    pub fn known_strings(&self, i: usize) -> Result<(Vec<usize>, Vec<Rc<str>>), Error> {
        let strings = self.strings(i)?;
        match (self.importer.known_words(&strings)?, self.importer.slot(strings.codes).shape.static_dims()) {
            (Some(words), Some(dims)) => Ok((dims, words)),
            _ => Err(self.strings_not_known(i)),
        }
    }

    /// An error that asks for the value of the input behind operand `i`.
    pub fn strings_not_known(&self, i: usize) -> Error {
        let behind = self.strings(i).ok().and_then(|s| self.first_input_behind(s.codes));
        let op = self.proto.op_type();
        match behind {
            Some(name) => super::needs_value(&name, &format!("{op} looks into its strings")),
            None => self.unsupported(format!("{op} of strings that are computed")),
        }
    }

    /// The codes of strings among these words; −2, which no string has, where one is not among them.
    pub fn codes(&mut self, words: &Words, list: &[Rc<str>]) -> Vec<i64> {
        match words {
            Words::Table(table) => {
                let places: HashMap<&Rc<str>, i64> = table.iter().zip(0..).collect();
                list.iter().map(|w| places.get(w).copied().unwrap_or(-2)).collect()
            }
            Words::Vocabulary => list.iter().map(|w| self.importer.vocabulary.code(w)).collect(),
        }
    }

    /// The codes of strings as a node.
    pub fn codes_node(&mut self, strings: &Strings) -> Result<NodeId, Error> {
        self.importer.materialize(strings.codes)
    }

    /// A table of integers looked up by code.
    pub fn by_code(&mut self, codes: NodeId, table: Vec<i64>) -> Result<NodeId, Error> {
        if table.is_empty() {
            return Ok(codes);
        }
        let values = table.iter().map(|&v| i128::from(v)).collect();
        let table = self.constant(Value::int(DType::I64, &[table.len()], values));
        self.add(Op::Gather { axis: 0 }, &[table, codes])
    }

    /// A result that is strings.
    pub fn strings_result(&mut self, codes: NodeId, words: Words) -> SlotId {
        let codes = self.importer.node_slot(codes);
        self.importer.strings_slot(codes, words)
    }

    /// Strings by a table that may have equal ones, looked up by `place`.
    pub fn labelled(&mut self, place: NodeId, labels: &[Rc<str>]) -> Result<SlotId, Error> {
        let mut own = Vocabulary::default();
        let codes: Vec<i64> = labels.iter().map(|w| own.code(w)).collect();
        let different = codes.iter().zip(0..).all(|(&a, b)| a == b);
        let place = if different { place } else { self.by_code(place, codes)? };
        let place = self.cast(place, DType::I64)?;
        Ok(self.strings_result(place, own.into_words()))
    }

    /// The operands with strings as their codes among common words.
    pub fn in_common_words(&mut self) -> Result<(Vec<Option<SlotId>>, Words), Error> {
        let slots: Vec<Option<SlotId>> = self.inputs.clone();
        let all: Vec<Strings> = (0..slots.len()).filter_map(|i| self.strings(i).ok()).collect();
        let words = common(&all);
        let mut found = Vec::with_capacity(slots.len());
        for (i, slot) in slots.into_iter().enumerate() {
            found.push(match self.strings(i) {
                Ok(strings) => Some(self.recoded(&strings, &words)?),
                Err(_) => slot,
            });
        }
        Ok((found, words))
    }

    /// The codes of strings among other words, which have them all.
    fn recoded(&mut self, strings: &Strings, words: &Words) -> Result<SlotId, Error> {
        let Words::Table(table) = &strings.words else { return Ok(strings.codes) };
        let places = self.codes(words, table);
        if places.iter().zip(0..).all(|(&a, b)| a == b) {
            return Ok(strings.codes);
        }
        let codes = self.codes_node(strings)?;
        let codes = self.by_code(codes, places)?;
        Ok(self.importer.node_slot(codes))
    }
}

/// Words that have all of these; an input's strings may be any.
fn common(all: &[Strings]) -> Words {
    if all.iter().any(|s| matches!(s.words, Words::Vocabulary)) {
        return Words::Vocabulary;
    }
    if let [one] = all {
        return one.words.clone();
    }
    let mut own = Vocabulary::default();
    for strings in all {
        if let Words::Table(table) = &strings.words {
            table.iter().for_each(|w| _ = own.code(w));
        }
    }
    own.into_words()
}
