//! Outputs of models that give more than tensors, for a comparison: their numbers as tensors, their strings and keys apart.

use rlx::values::{MapKeys, ModelValue};
use rlx_ir::ConstData;
use serde_json::{Value as Json, json};

/// What two runs gave, taken apart under the names that the outputs are printed with.
#[derive(Default)]
pub struct Apart {
    /// All that is numbers.
    pub numbers: Vec<(String, ConstData)>,
    /// All that is strings: dimensions and elements.
    pub words: Vec<(String, Words)>,
}

type Words = (Vec<usize>, Vec<String>);

impl Apart {
    /// Takes outputs apart.
    pub fn of(outputs: Vec<(String, ModelValue)>) -> Apart {
        let mut apart = Apart::default();
        outputs.into_iter().for_each(|(name, value)| apart.add(name, value));
        apart
    }

    fn add(&mut self, name: String, value: ModelValue) {
        match value {
            ModelValue::Tensor(tensor) => self.numbers.push((name, tensor)),
            ModelValue::Strings(strings) => self.words.push((name, (strings.dims, strings.elements))),
            ModelValue::Sequence(elements) => {
                // How many there are counts as well.
                self.words.push((format!("{name} (a sequence)"), (vec![elements.len()], Vec::new())));
                let each = elements.into_iter().enumerate();
                each.for_each(|(i, element)| self.add(format!("{name}.{i}"), element));
            }
            ModelValue::Maps { keys, values } => {
                let keys: Vec<String> = match keys {
                    MapKeys::Ints(keys) => keys.iter().map(i64::to_string).collect(),
                    MapKeys::Strings(keys) => keys,
                };
                self.words.push((format!("{name} (keys)"), (vec![keys.len()], keys)));
                self.numbers.push((name, values));
            }
            _ => self.words.push((format!("{name} (nothing)"), (Vec::new(), Vec::new()))),
        }
    }
}

/// Strings in both runs.
pub struct WordDifference {
    name: String,
    other_name: String,
    /// Both dimensions, if they are not the same.
    shapes: Option<[Vec<usize>; 2]>,
    elements: usize,
    /// How many elements are not the same.
    different: usize,
    /// The first of them: where it is, and what both have.
    first: Option<(usize, String, String)>,
}

impl WordDifference {
    /// Whether all are the same.
    pub fn ok(&self) -> bool {
        self.shapes.is_none() && self.different == 0
    }

    /// An entry of the report.
    pub fn to_json(&self) -> Json {
        let worst = self.first.as_ref().map(|(at, a, b)| json!({ "element": at, "first": a, "second": b }));
        json!({
            "name": self.name, "other_name": self.other_name, "ok": self.ok(), "dtype": "string",
            "elements": self.elements, "different": self.different, "worst": worst, "shapes": self.shapes,
        })
    }

    /// A line of the report.
    pub fn line(&self) -> String {
        let mark = if self.ok() { "" } else { "  differs" };
        let found = match (&self.shapes, &self.first) {
            (Some([a, b]), _) => format!("{a:?} and {b:?} strings"),
            (None, Some((at, a, b))) => {
                format!("{} of {} strings, element {at}: {a:?} and {b:?}", self.different, self.elements)
            }
            (None, None) => format!("{} equal strings", self.elements),
        };
        format!("{:<24} {found}{mark}", self.name)
    }
}

/// Compares strings: by name where all names are the same, else by order. `None` where they cannot be matched.
pub fn compared(want: &[(String, Words)], got: &[(String, Words)]) -> Option<Vec<WordDifference>> {
    if want.len() != got.len() {
        return None;
    }
    let by_name = want.iter().all(|(name, _)| got.iter().any(|(other, _)| other == name));
    let pair = |(i, (name, (dims, elements))): (usize, &(String, Words))| {
        let same = got.iter().find(|(other, _)| by_name && other == name);
        let (other_name, (other_dims, other_elements)) = same.unwrap_or(&got[i]);
        let shapes = (dims != other_dims).then(|| [dims.clone(), other_dims.clone()]);
        let pairs = elements.iter().zip(other_elements).enumerate();
        let differing: Vec<_> = pairs.filter(|(_, (a, b))| a != b).collect();
        let first = differing.first().map(|(at, (a, b))| (*at, (*a).clone(), (*b).clone()));
        WordDifference {
            name: name.clone(),
            other_name: other_name.clone(),
            shapes,
            elements: elements.len(),
            different: differing.len(),
            first,
        }
    };
    Some(want.iter().enumerate().map(pair).collect())
}
