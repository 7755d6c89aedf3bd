//! Choosing between variants of a step by measurement.
//!
//! Where a device can do a step by several variants, which one is fastest depends on the machine: its caches, its driver. Such a step is
//! a [`TuningKey`]: a text that says what is computed, and the names of the variants, first the one that is taken unmeasured. A [`Tuning`] is
//! what was found: the variant by key.
//!
//! Variants of one [`BitClass`] give the same bits, and anyone who measures checks that. Under strict numerics all variants of a key are of one class,
//! so tuning changes times alone. Under fast numerics a device may offer others as well, such as another number of parts of a sum, or its vendor's library; the name of such a
//! variant ends with its class, so that a tuning says by itself where bits are not the usual ones ([`Tuning::other_classes`]).
//!
//! Keys are found again by their text, so one measurement serves every step of every model that computes the same.
//!
//! ```
//! use rlx_backend::tuning::{BitClass, TuningKey, Tuning};
//! let key = TuningKey { what: "matmul f32 [64, 384] x [384, 384]".into(), variants: vec!["32x32".into(), "64x64".into()], predicted: vec![] };
//! let mut tuning = Tuning::default();
//! assert_eq!(tuning.variant(&key), 0);
//! tuning.choose(&key, 1);
//! assert_eq!(tuning.variant(&key), 1);
//! let read = Tuning::parse(&tuning.to_string())?;
//! assert_eq!(read, tuning);
//!
//! let classes = ["sm_80", "sm_80.parts4"].map(BitClass::new).to_vec();
//! let of_classes = key.with_classes(classes);
//! assert_eq!(of_classes.variants, ["32x32", "64x64@sm_80.parts4"]);
//! assert!(of_classes.has_usual_bits(0) && !of_classes.has_usual_bits(1));
//! # Ok::<(), rlx_ir::Error>(())
//! ```

use std::collections::BTreeMap;
use std::fmt;

use rlx_ir::hash::hash_of;
use rlx_ir::lir::{LirModule, Operand, Step, StepKind};
use rlx_ir::text::attrs_key;
use rlx_ir::{Error, ErrorKind, Op, Result};

/// Between the name of a variant and its class, where that is not the class of the first one.
const CLASS: char = '@';

/// What the bits of a step follow from, besides its op, shapes and types: the instruction that multiplies, the order in which it sums, the number of parts of
/// a sum, or a library and its algorithm. It is one word, such as `sm_80.parts4`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitClass(String);

impl BitClass {
    /// The class of this name, in which what would end a word is replaced.
    pub fn new(name: &str) -> BitClass {
        BitClass(name.replace(|c: char| c.is_whitespace() || c == CLASS, "_"))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BitClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The class of a variant by its name, where that is not the class of the step's first variant.
pub fn other_class(variant: &str) -> Option<BitClass> {
    variant.rsplit_once(CLASS).map(|(_, class)| BitClass::new(class))
}

/// A step that can be done by several variants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TuningKey {
    /// What is computed: everything that the times depend on, but for the machine. One line.
    pub what: String,
    /// The names of the variants, each a word; the first is taken where nothing was measured. At least two.
    pub variants: Vec<String>,
    /// The time that the device predicts of each variant, in any unit; empty where it predicts none.
    pub predicted: Vec<u64>,
}

impl TuningKey {
    /// The key of a step with these variants, of which there must be several; `detail` says what else the times depend
    /// on, such as the number of threads.
    ///
    /// The text names the ops, how they are combined (by a hash of attributes and bodies), and each operand's dimensions,
    /// strides, element type and memory format.
    pub fn of(lir: &LirModule, step: &Step, detail: &str, variants: Vec<String>) -> Option<TuningKey> {
        let (mut what, attrs) = match &step.kind {
            StepKind::Copy => ("Copy".to_owned(), String::new()),
            StepKind::Op(op) => (ops_of(op), attrs_key(op)),
        };
        if !attrs.is_empty() {
            what.push_str(&format!(" #{:.8}", hash_of([attrs]).to_string()));
        }
        let operand = |o: &Operand| match lir.buffers[o.buffer.index()].format {
            Some(format) => format!(" {}{}:{format}", o.dtype, o.view),
            None => format!(" {}{}", o.dtype, o.view),
        };
        step.inputs.iter().for_each(|o| what.push_str(&operand(o)));
        what.push_str(" ->");
        step.outputs.iter().for_each(|o| what.push_str(&operand(o)));
        if !detail.is_empty() {
            what.push_str(&format!(" ({detail})"));
        }
        (variants.len() > 1).then_some(TuningKey { what, variants, predicted: Vec::new() })
    }

    /// The same, with a predicted time of each variant: which ones are worth measuring, and in which order.
    #[must_use]
    pub fn with_predicted(self, predicted: Vec<u64>) -> TuningKey {
        debug_assert_eq!(predicted.len(), self.variants.len(), "a time of each variant");
        TuningKey { predicted, ..self }
    }

    /// The same, with the class of each variant. Where they differ, the text says so: what was chosen among variants of one class
    /// is another choice.
    #[must_use]
    pub fn with_classes(mut self, classes: Vec<BitClass>) -> TuningKey {
        debug_assert_eq!(classes.len(), self.variants.len(), "a class of each variant");
        let Some(usual) = classes.first() else { return self };
        for (variant, class) in self.variants.iter_mut().zip(&classes).filter(|(_, class)| *class != usual) {
            *variant = format!("{variant}{CLASS}{class}");
        }
        if classes.iter().any(|class| class != usual) {
            self.what.push_str(&format!(", usually by {usual}"));
        }
        self
    }

    /// Whether a variant gives the bits of the first one.
    pub fn has_usual_bits(&self, variant: usize) -> bool {
        self.variants.get(variant).is_none_or(|name| other_class(name).is_none())
    }

    /// The numbers of the variants to measure, at most `most` of them: the default, which all others are compared with, then those
    /// of the least predicted time, the least one first. Those of equal times, or of no prediction, are in the device's order.
    pub fn candidates(&self, most: usize) -> Vec<usize> {
        let mut others: Vec<usize> = (1..self.variants.len()).collect();
        others.sort_by_key(|&variant| self.predicted.get(variant));
        let default = (!self.variants.is_empty()).then_some(0);
        default.into_iter().chain(others).take(most.max(1)).collect()
    }
}

/// The ops of a step for people: of a region those that are not elementwise, and how many others.
fn ops_of(op: &Op) -> String {
    let Op::Region { body } = op else { return op.kind().to_string() };
    let ops =
        || body.graph.nodes().iter().filter(|n| !matches!(n.op, Op::Input { .. } | Op::Constant { .. }));
    let anchors = ops().filter(|n| !n.op.is_elementwise()).map(|n| n.op.kind().to_string());
    let others = ops().filter(|n| n.op.is_elementwise()).count();
    anchors.chain((others > 0).then(|| others.to_string())).collect::<Vec<_>>().join("+")
}

/// The variants that were found fastest, by key.
///
/// Its text form has a line for each: the variant, a space, the key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tuning {
    chosen: BTreeMap<String, String>,
}

impl Tuning {
    /// Which variant to take: the position in [`TuningKey::variants`]. The first where none was chosen, or where the one chosen
    /// is no longer among them.
    pub fn variant(&self, key: &TuningKey) -> usize {
        self.chosen
            .get(&key.what)
            .and_then(|variant| key.variants.iter().position(|w| w == variant))
            .unwrap_or(0)
    }

    /// Whether a variant of this key was chosen that there still is.
    pub fn knows(&self, key: &TuningKey) -> bool {
        self.chosen.get(&key.what).is_some_and(|variant| key.variants.contains(variant))
    }

    /// Notes that variant number `variant` of this key is to be taken.
    pub fn choose(&mut self, key: &TuningKey, variant: usize) {
        if let Some(variant) = key.variants.get(variant) {
            self.chosen.insert(key.what.clone(), variant.clone());
        }
    }

    /// Takes over what `other` says; where both say something, `other` is newer.
    pub fn extend(&mut self, other: &Tuning) {
        self.chosen.extend(other.chosen.iter().map(|(key, variant)| (key.clone(), variant.clone())));
    }

    /// What it says of these keys.
    pub fn of<'s>(&self, keys: impl IntoIterator<Item = &'s TuningKey>) -> Tuning {
        let of = |key: &TuningKey| Some((key.what.clone(), self.chosen.get(&key.what)?.clone()));
        Tuning { chosen: keys.into_iter().filter_map(of).collect() }
    }

    /// Keys and variants, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.chosen.iter().map(|(key, variant)| (key.as_str(), variant.as_str()))
    }

    /// The keys whose variant gives other bits than the one that is taken unmeasured, with its class. What is compiled by a tuning
    /// has bits that follow from these, besides all that they follow from without it.
    pub fn other_classes(&self) -> impl Iterator<Item = (&str, BitClass)> {
        self.iter().filter_map(|(key, variant)| Some((key, other_class(variant)?)))
    }

    /// How many keys it speaks of.
    pub fn len(&self) -> usize {
        self.chosen.len()
    }

    /// Whether it speaks of none.
    pub fn is_empty(&self) -> bool {
        self.chosen.is_empty()
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] for a line without a key.
    pub fn parse(text: &str) -> Result<Tuning> {
        let pair = |line: &str| {
            let (variant, key) = line.split_once(' ')?;
            (!variant.is_empty() && !key.is_empty()).then(|| (key.to_owned(), variant.to_owned()))
        };
        let malformed = |line| Error::new(ErrorKind::Malformed, format!("no variant and key: {line:?}"));
        // Not `lines`, which takes a carriage return at the end of a key for part of the line's end.
        let pairs = text.split_terminator('\n').map(|line| pair(line).ok_or_else(|| malformed(line)));
        Ok(Tuning { chosen: pairs.collect::<Result<_>>()? })
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|(key, variant)| writeln!(f, "{variant} {key}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(what: &str, variants: &[&str]) -> TuningKey {
        TuningKey {
            what: what.into(),
            variants: variants.iter().map(|w| w.to_string()).collect(),
            predicted: Vec::new(),
        }
    }

    #[test]
    fn the_default_and_those_of_least_predicted_time_are_measured() {
        let names: Vec<String> = (0..20).map(|i| format!("v{i}")).collect();
        let plain = TuningKey { what: "a product".into(), variants: names, predicted: Vec::new() };
        assert_eq!(plain.candidates(16), (0..16).collect::<Vec<_>>());
        // The default is predicted to be the slowest, and every later variant faster than the one before it.
        let falling = plain.clone().with_predicted((0..20).map(|i| 100 - i).collect());
        let expected: Vec<usize> = [0].into_iter().chain((5..20).rev()).collect();
        assert_eq!(falling.candidates(16), expected);
        let two = plain.with_predicted((0..20).map(|i| u64::from(i % 2 == 0)).collect());
        assert_eq!(two.candidates(4), [0, 1, 3, 5]);
        assert_eq!(two.candidates(0), [0]);
    }

    #[test]
    fn variants_of_other_classes_say_so() {
        let plain = key("a product", &["a", "b", "c"]);
        let classes = |names: [&str; 3]| names.map(BitClass::new).to_vec();
        assert_eq!(plain.clone().with_classes(classes(["x", "x", "x"])), plain);
        let mixed = plain.clone().with_classes(classes(["x", "x", "y z"]));
        assert_eq!(
            (&mixed.what[..], &mixed.variants[..]),
            ("a product, usually by x", &["a", "b", "c@y_z"].map(String::from)[..])
        );
        assert_eq!([0, 1, 2, 3].map(|variant| mixed.has_usual_bits(variant)), [true, true, false, true]);

        let mut tuning = Tuning::default();
        tuning.choose(&plain, 2);
        assert_eq!(tuning.other_classes().count(), 0);
        tuning.choose(&mixed, 2);
        let read = Tuning::parse(&tuning.to_string()).unwrap();
        assert_eq!(read.other_classes().collect::<Vec<_>>(), [(&mixed.what[..], BitClass::new("y_z"))]);
    }

    #[test]
    fn a_variant_that_is_gone_is_not_taken() {
        let (before, now) = (key("a product", &["plain", "tiled"]), key("a product", &["plain", "other"]));
        let mut tuning = Tuning::default();
        tuning.choose(&before, 1);
        assert!(tuning.knows(&before) && tuning.variant(&before) == 1);
        assert!(!tuning.knows(&now) && tuning.variant(&now) == 0);
    }

    #[test]
    fn the_newer_choice_wins_and_parts_are_taken_out() {
        let (a, b) = (key("a", &["x", "y"]), key("b c", &["x", "y"]));
        let (mut old, mut new) = (Tuning::default(), Tuning::default());
        old.choose(&a, 0);
        old.choose(&b, 1);
        new.choose(&a, 1);
        old.extend(&new);
        assert_eq!(old.to_string(), "y a\ny b c\n");
        assert_eq!(old.of([&b]).to_string(), "y b c\n");
        assert_eq!((old.len(), Tuning::default().is_empty()), (2, true));
    }

    #[test]
    fn a_damaged_text_is_an_error() {
        assert_eq!(Tuning::parse("").unwrap(), Tuning::default());
        let odd = Tuning::parse("y a\r").unwrap();
        assert_eq!(Tuning::parse(&odd.to_string()).unwrap(), odd);
        for text in ["x", "x ", " a", "y a\n\n"] {
            assert_eq!(Tuning::parse(text).unwrap_err().kind(), ErrorKind::Malformed, "{text:?}");
        }
    }
}
