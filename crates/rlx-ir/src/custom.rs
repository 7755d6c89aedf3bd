//! Ops from outside: registered by name, used as [`Op::Custom`].
//!
//! A [`CustomOp`] states what the op table's definitions state: a shape rule, reference semantics, and, if it has
//! one, a decomposition into the language's own ops, by which every device can run it. The verifier, the oracle
//! and the compiler then treat it like any other op. Without a registration a custom op still prints, parses and
//! verifies with its declared shape; nothing can compute it, and that is an error where it is asked for.
//!
//! ```
//! use rlx_ir::custom::{CustomOp, register_custom_op};
//! use rlx_ir::op::{Arity, CustomAttr, CustomAttrs};
//! use rlx_ir::{Op, Result, Shape, Value, trace, verify};
//!
//! /// `x · factor`.
//! struct Scale;
//!
//! impl CustomOp for Scale {
//!     fn name(&self) -> &str {
//!         "doc.Scale"
//!     }
//!
//!     fn arity(&self) -> Arity {
//!         Arity::Exact(1)
//!     }
//!
//!     fn infer(&self, _: &CustomAttrs, inputs: &[&Shape]) -> Result<Vec<Shape>> {
//!         Ok(vec![inputs[0].clone()])
//!     }
//!
//!     fn reference(&self, attrs: &CustomAttrs, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
//!         let factor = attrs.float("factor")?;
//!         let scaled = inputs[0].floats()?.iter().map(|x| x * factor).collect();
//!         Ok(vec![Value::float(inputs[0].dtype, &inputs[0].dims, scaled)])
//!     }
//! }
//!
//! register_custom_op(Scale)?;
//! let graph = trace("scaled", |t| {
//!     let x = t.input("x", Shape::new(&[2, 3], rlx_ir::DType::F32));
//!     vec![t.op(Op::custom("doc.Scale", 1, [("factor", CustomAttr::Float(2.0))]), &[&x])]
//! });
//! assert!(verify(&graph).is_empty());
//! # Ok::<(), rlx_ir::Error>(())
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, RwLock};

use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, NodeId};
use crate::ops::{Arity, CustomAttr, CustomAttrs, Op};
use crate::panics::catch;
use crate::shape::Shape;
use crate::tensor::Value;

/// Names that begin so are the language's own.
const RESERVED: &str = "rlx.";

/// Everything the system knows about one op from outside.
pub trait CustomOp: Send + Sync {
    /// The name graphs use; best with a domain in front (`com.example.Scale`), as ONNX files name it.
    fn name(&self) -> &str;

    /// How many inputs it takes; the other methods are only called with as many.
    fn arity(&self) -> Arity;

    /// The shapes of the results from those of the inputs.
    ///
    /// # Errors
    /// What does not fit, naming the shapes.
    fn infer(&self, attrs: &CustomAttrs, inputs: &[&Shape]) -> Result<Vec<Shape>>;

    /// The results, computed the obvious way in `f64` or exact integers; the caller rounds them to the types of
    /// `results`, the fixed shapes that `infer` gave.
    ///
    /// # Errors
    /// Values the op forbids.
    fn reference(&self, attrs: &CustomAttrs, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>>;

    /// The same results from the language's own ops, one id for each; `None` when that is not possible.
    ///
    /// # Errors
    /// Whatever the builders report.
    fn decompose(
        &self,
        attrs: &CustomAttrs,
        inputs: &[NodeId],
        graph: &mut Graph,
    ) -> Option<Result<Vec<NodeId>>> {
        let _ = (attrs, inputs, graph);
        None
    }

    /// Arithmetic operations for fixed shapes; the default counts one for each result element.
    fn flops(&self, attrs: &CustomAttrs, inputs: &[&Shape], results: &[Shape]) -> f64 {
        let _ = (attrs, inputs);
        results.iter().map(|s| s.num_elements().unwrap_or(0) as f64).sum()
    }
}

static OPS: LazyLock<RwLock<BTreeMap<String, Arc<dyn CustomOp>>>> = LazyLock::new(RwLock::default);

/// Makes `op` known to this process by its name.
///
/// # Errors
/// [`ErrorKind::InvalidGraph`] for a name that is empty, taken, or reserved (`rlx.…`).
pub fn register_custom_op(op: impl CustomOp + 'static) -> Result<()> {
    let name = op.name().to_string();
    let reject = |why: &str| {
        Err(Error::new(ErrorKind::InvalidGraph, format!("custom op {name:?} cannot be registered: {why}")))
    };
    if name.is_empty() || name.starts_with(RESERVED) {
        return reject("the name is empty, or one of the language's own");
    }
    let mut ops = OPS.write().unwrap_or_else(|e| e.into_inner());
    if ops.contains_key(&name) {
        return reject("the name is taken");
    }
    ops.insert(name, Arc::new(op));
    Ok(())
}

/// The op registered as `name`.
pub fn custom_op(name: &str) -> Option<Arc<dyn CustomOp>> {
    OPS.read().unwrap_or_else(|e| e.into_inner()).get(name).cloned()
}

/// The registered op that `op` names, and its attributes.
pub(crate) fn of(op: &Op) -> Option<(Arc<dyn CustomOp>, &CustomAttrs)> {
    match op {
        Op::Custom { name, attrs, .. } => custom_op(name).map(|found| (found, attrs)),
        _ => None,
    }
}

/// Calls into the code of a custom op; `doing` completes "panicked while".
///
/// # Errors
/// The call's own, or [`ErrorKind::Panic`] naming the op.
pub(crate) fn guarded<T>(op: &Op, doing: &str, call: impl FnOnce() -> Result<T>) -> Result<T> {
    let Op::Custom { name, .. } = op else { return call() };
    catch(call).unwrap_or_else(|text| {
        Err(Error::new(ErrorKind::Panic, format!("custom op {name:?} panicked while {doing}: {text}")))
    })
}

impl Op {
    /// The custom op called `name`.
    pub fn custom<K: Into<String>>(
        name: impl Into<String>,
        num_inputs: usize,
        attrs: impl IntoIterator<Item = (K, CustomAttr)>,
    ) -> Op {
        let attrs = attrs.into_iter().map(|(key, value)| (key.into(), value)).collect();
        Op::Custom { name: name.into(), num_inputs, attrs: CustomAttrs(attrs) }
    }
}

macro_rules! readers {
    ($($(#[doc = $doc:literal])* $name:ident -> $ty:ty, $what:literal: $($pattern:pat => $value:expr),+;)*) => {
        impl CustomAttrs {
            $(
                $(#[doc = $doc])*
                ///
                /// # Errors
                /// [`ErrorKind::InvalidGraph`] when there is no such attribute, or it is of another type.
                pub fn $name(&self, name: &str) -> Result<$ty> {
                    match self.0.get(name) {
                        $(Some($pattern) => Ok($value),)+
                        Some(_) => Err(attribute(name, concat!("is not ", $what))),
                        None => Err(attribute(name, "is missing")),
                    }
                }
            )*
        }
    };
}

fn attribute(name: &str, what: &str) -> Error {
    Error::new(ErrorKind::InvalidGraph, format!("attribute {name:?} {what}"))
}

readers! {
    /// The integer called `name`.
    int -> i64, "an integer": CustomAttr::Int(v) => *v;
    /// The number called `name`; an integer is one, too.
    float -> f64, "a number": CustomAttr::Float(v) => *v, CustomAttr::Int(v) => *v as f64;
    /// The text called `name`.
    text -> &str, "a text": CustomAttr::Text(v) => v;
    /// The integers called `name`.
    ints -> &[i64], "a list of integers": CustomAttr::Ints(v) => v;
    /// The numbers called `name`.
    floats -> &[f64], "a list of numbers": CustomAttr::Floats(v) => v;
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Named(&'static str);

    impl CustomOp for Named {
        fn name(&self) -> &str {
            self.0
        }

        fn arity(&self) -> Arity {
            Arity::AtLeast(0)
        }

        fn infer(&self, _: &CustomAttrs, inputs: &[&Shape]) -> Result<Vec<Shape>> {
            Ok(inputs.iter().map(|s| (*s).clone()).collect())
        }

        fn reference(&self, _: &CustomAttrs, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
            Ok(inputs.iter().map(|v| (*v).clone()).collect())
        }
    }

    #[test]
    fn names_are_registered_once_and_the_languages_own_are_not() {
        assert!(register_custom_op(Named("test.once")).is_ok());
        assert!(register_custom_op(Named("test.once")).unwrap_err().to_string().contains("taken"));
        for name in ["", "rlx.fault"] {
            assert!(register_custom_op(Named(name)).is_err());
        }
        assert!(custom_op("test.once").is_some() && custom_op("test.twice").is_none());
    }

    #[test]
    fn attributes_are_read_by_type() {
        let Op::Custom { attrs, .. } =
            Op::custom("x", 0, [("a", CustomAttr::Int(3)), ("t", CustomAttr::Text("s".into()))])
        else {
            unreachable!()
        };
        assert_eq!(
            (attrs.int("a").unwrap(), attrs.float("a").unwrap(), attrs.text("t").unwrap()),
            (3, 3.0, "s")
        );
        assert!(attrs.int("t").unwrap_err().to_string().contains("\"t\" is not an integer"));
        assert!(attrs.ints("b").unwrap_err().to_string().contains("\"b\" is missing"));
    }
}
