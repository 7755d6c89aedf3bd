//! Donations: outputs that may take the memory of an input.
//!
//! A graph is a function and stays one; a donation only says that the caller will not need the input again once the output
//! is there, as with XLA's input–output aliasing. A cache that each run extends by a row then stays where it is, and only
//! the row moves. Where something reads the old value later, the device copies it, and no reader sees a difference.
//!
//! ```
//! use rlx_ir::{DType, Graph, Op, Shape};
//! let mut g = Graph::new("append");
//! let cache = g.input("cache", Shape::new(&[1024, 64], DType::F32));
//! let row = g.input("row", Shape::new(&[1, 64], DType::F32));
//! let at = g.input("at", Shape::new(&[], DType::I64));
//! let next = g.try_add(Op::UpdateSlice { axis: 0 }, &[cache, row, at])?;
//! g.set_outputs(vec![next]);
//! g.donate("cache", 0)?;
//! assert_eq!(g.donated_to("cache"), Some(0));
//! # Ok::<(), rlx_ir::Error>(())
//! ```

use std::collections::{BTreeMap, HashMap};

use super::{Graph, Node};
use crate::error::{Error, ErrorKind, Result};
use crate::ops::Op;
use crate::shape::{Shape, agreed_dim};

impl Graph {
    /// States that output number `output` may take the memory of the input of that name: they are of one element type and
    /// shape, and each is in one donation at most. Bodies of control flow have none.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidGraph`] for a donation that breaks this; nothing has changed then.
    pub fn donate(&mut self, input: &str, output: usize) -> Result<()> {
        let named = |node: &&Node| matches!(&node.op, Op::Input { name } if name == input);
        let given = self.inputs().find(named).map(|node| &node.shape);
        self.check_donation(output, input, given)?;
        if let Some(other) = self.donated_to(input).filter(|&other| other != output) {
            return Err(invalid(input, output, &format!("it is donated to output {other} already")));
        }
        match self.donations.get(&output).filter(|&other| other != input) {
            Some(other) => {
                Err(invalid(input, output, &format!("that takes the memory of {other:?} already")))
            }
            None => {
                self.donations.insert(output, input.to_owned());
                Ok(())
            }
        }
    }

    /// States a donation without a check: the verifier's turn comes later.
    pub(crate) fn set_donation(&mut self, output: usize, input: String) {
        self.donations.insert(output, input);
    }

    /// The inputs whose memory outputs take, by the output's number.
    pub fn donations(&self) -> &BTreeMap<usize, String> {
        &self.donations
    }

    /// The output that takes the memory of an input.
    pub fn donated_to(&self, input: &str) -> Option<usize> {
        self.donations.iter().find(|(_, of)| *of == input).map(|(&output, _)| output)
    }

    /// Whether all donations are right.
    pub(crate) fn check_donations(&self) -> Result<()> {
        if self.donations.is_empty() {
            return Ok(());
        }
        let mut inputs = HashMap::new();
        for node in self.nodes() {
            if let Op::Input { name } = &node.op {
                inputs.insert(name, &node.shape);
            }
        }
        let mut given = HashMap::with_capacity(self.donations.len());
        for (&output, input) in &self.donations {
            self.check_donation(output, input, inputs.get(input).copied())?;
            if let Some(other) = given.insert(input, output) {
                return Err(invalid(input, output, &format!("it is donated to output {other} already")));
            }
        }
        Ok(())
    }

    fn check_donation(&self, output: usize, input: &str, given: Option<&Shape>) -> Result<()> {
        let Some(have) = given else {
            return Err(invalid(input, output, "there is no such input"));
        };
        let Some(&id) = self.outputs.get(output) else {
            return Err(invalid(input, output, &format!("there are {} outputs", self.outputs.len())));
        };
        let want = self.shape(id);
        let same = |(&a, &b)| agreed_dim(a, b).is_some();
        let alike = have.dtype() == want.dtype() && have.rank() == want.rank();
        if alike && have.dims().iter().zip(want.dims()).all(same) {
            return Ok(());
        }
        Err(invalid(input, output, &format!("the input is {have}, the output {want}")))
    }
}

fn invalid(input: &str, output: usize, why: &str) -> Error {
    Error::new(
        ErrorKind::InvalidGraph,
        format!("input {input:?} cannot be donated to output {output}: {why}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Activation;
    use crate::{DType, text, verify_ok};

    fn graph() -> Graph {
        let mut g = Graph::new("g");
        let (x, y) = (g.input("x", Shape::new(&[4], DType::F32)), g.input("y", Shape::new(&[4], DType::F32)));
        let short = g.input("short", Shape::new(&[2], DType::F32));
        let a = g.try_add(Op::Activation(Activation::Exp), &[x]).unwrap();
        let b = g.try_add(Op::Activation(Activation::Neg), &[y]).unwrap();
        g.set_outputs(vec![a, b, short]);
        g
    }

    #[test]
    fn donations_fit_and_are_made_once() {
        let mut g = graph();
        g.donate("x", 1).unwrap();
        g.donate("x", 1).unwrap();
        for (input, output, why) in [
            ("z", 0, "no such input"),
            ("y", 7, "3 outputs"),
            ("short", 0, "[2]"),
            ("x", 0, "output 1 already"),
            ("y", 1, "\"x\" already"),
        ] {
            let e = g.donate(input, output).unwrap_err();
            assert!(e.kind() == ErrorKind::InvalidGraph && e.to_string().contains(why), "{e}");
        }
        verify_ok(&g).unwrap();
    }

    #[test]
    fn the_text_form_and_the_hash_know_donations() {
        let (plain, mut g) = (graph(), graph());
        g.donate("x", 0).unwrap();
        let text = g.to_string();
        assert!(text.contains("donate \"x\" to 0"), "{text}");
        assert_eq!(text::parse(&text).unwrap(), g);
        assert_ne!(crate::hash::graph_hash(&g), crate::hash::graph_hash(&plain));
        assert!(verify_ok(&text::parse(&text.replace("to 0", "to 2")).unwrap()).is_err());
    }
}
