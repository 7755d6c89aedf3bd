//! Choosing between ways to do a step by measurement.
//!
//! Where a device can do a step in several ways that give the same bits, which one is fastest depends on the machine:
//! its caches, its driver. Such a step is a [`Site`]: a text that says what is computed, and the names of the
//! ways, first the one that is taken unmeasured. A [`Tuning`] is what was found: the way by site. It changes times alone:
//! with any tuning, or none, results have the same bits, and whoever measures checks that.
//!
//! Sites are found again by their text, so one measurement serves every step of every model that computes the same.
//!
//! ```
//! use rlx_backend::tuning::{Site, Tuning};
//! let site = Site { what: "matmul f32 [64, 384] x [384, 384]".into(), ways: vec!["32x32".into(), "64x64".into()] };
//! let mut tuning = Tuning::default();
//! assert_eq!(tuning.way(&site), 0);
//! tuning.choose(&site, 1);
//! assert_eq!(tuning.way(&site), 1);
//! let read = Tuning::parse(&tuning.to_string())?;
//! assert_eq!(read, tuning);
//! # Ok::<(), rlx_ir::Error>(())
//! ```

use std::collections::BTreeMap;
use std::fmt;

use rlx_ir::hash::hash_of;
use rlx_ir::lir::{LirModule, Operand, Step, StepKind};
use rlx_ir::text::attrs_key;
use rlx_ir::{Error, ErrorKind, Op, Result};

/// A step that can be done in several ways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// What is computed: everything that the times depend on, but for the machine. One line.
    pub what: String,
    /// The names of the ways, each a word; the first is taken where nothing was measured. At least two.
    pub ways: Vec<String>,
}

impl Site {
    /// The site of a step with these ways, of which there must be several; `detail` says what else the times depend
    /// on, such as the number of threads.
    ///
    /// The text names the ops, how they are combined (by a hash of attributes and bodies), and each operand's dimensions,
    /// strides, element type and memory format.
    pub fn of(lir: &LirModule, step: &Step, detail: &str, ways: Vec<String>) -> Option<Site> {
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
        (ways.len() > 1).then_some(Site { what, ways })
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

/// The ways that were found fastest, by site.
///
/// Its text form has a line for each: the way, a space, the site.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tuning {
    chosen: BTreeMap<String, String>,
}

impl Tuning {
    /// Which way to take: the position in [`Site::ways`]. The first where none was chosen, or where the one chosen
    /// is no longer among them.
    pub fn way(&self, site: &Site) -> usize {
        self.chosen.get(&site.what).and_then(|way| site.ways.iter().position(|w| w == way)).unwrap_or(0)
    }

    /// Whether a way of this site was chosen that there still is.
    pub fn knows(&self, site: &Site) -> bool {
        self.chosen.get(&site.what).is_some_and(|way| site.ways.contains(way))
    }

    /// Notes that way number `way` of this site is to be taken.
    pub fn choose(&mut self, site: &Site, way: usize) {
        if let Some(way) = site.ways.get(way) {
            self.chosen.insert(site.what.clone(), way.clone());
        }
    }

    /// Takes over what `other` says; where both say something, `other` is newer.
    pub fn extend(&mut self, other: &Tuning) {
        self.chosen.extend(other.chosen.iter().map(|(site, way)| (site.clone(), way.clone())));
    }

    /// What it says of these sites.
    pub fn of<'s>(&self, sites: impl IntoIterator<Item = &'s Site>) -> Tuning {
        let of = |site: &Site| Some((site.what.clone(), self.chosen.get(&site.what)?.clone()));
        Tuning { chosen: sites.into_iter().filter_map(of).collect() }
    }

    /// Sites and ways, by site.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.chosen.iter().map(|(site, way)| (site.as_str(), way.as_str()))
    }

    /// How many sites it speaks of.
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
    /// [`ErrorKind::Malformed`] for a line without a site.
    pub fn parse(text: &str) -> Result<Tuning> {
        let pair = |line: &str| {
            let (way, site) = line.split_once(' ')?;
            (!way.is_empty() && !site.is_empty()).then(|| (site.to_owned(), way.to_owned()))
        };
        let malformed = |line| Error::new(ErrorKind::Malformed, format!("no way and site: {line:?}"));
        // Not `lines`, which takes a carriage return at the end of a site for part of the line's end.
        let pairs = text.split_terminator('\n').map(|line| pair(line).ok_or_else(|| malformed(line)));
        Ok(Tuning { chosen: pairs.collect::<Result<_>>()? })
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|(site, way)| writeln!(f, "{way} {site}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(what: &str, ways: &[&str]) -> Site {
        Site { what: what.into(), ways: ways.iter().map(|w| w.to_string()).collect() }
    }

    #[test]
    fn a_way_that_is_gone_is_not_taken() {
        let (before, now) = (site("a product", &["plain", "tiled"]), site("a product", &["plain", "other"]));
        let mut tuning = Tuning::default();
        tuning.choose(&before, 1);
        assert!(tuning.knows(&before) && tuning.way(&before) == 1);
        assert!(!tuning.knows(&now) && tuning.way(&now) == 0);
    }

    #[test]
    fn the_newer_choice_wins_and_parts_are_taken_out() {
        let (a, b) = (site("a", &["x", "y"]), site("b c", &["x", "y"]));
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
