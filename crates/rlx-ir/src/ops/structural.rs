//! Ops that hold a graph together: inputs, parameters, constants, results, regions, custom ops.

use smallvec::smallvec;

use crate::custom;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, NodeId};
use crate::ops::def::{Arity, OpDef, Ranges};
use crate::ops::{Op, attrs};
use crate::oracle;
use crate::shape::{Shape, Shapes};
use crate::tensor::Value;

#[cfg(feature = "testing")]
use crate::{
    ops::{Activation, BinaryOp, Body, OpKind, PackFormat},
    testing::{Case, Gen},
};

/// What the node declares is taken as its shape.
fn as_declared(declared: &[Shape]) -> Result<Shapes> {
    if declared.is_empty() {
        return Err(Error::new(ErrorKind::Shape, "the shape must be declared"));
    }
    Ok(declared.into())
}

fn given_from_outside(op: &Op) -> Error {
    Error::new(ErrorKind::Internal, format!("{} has no value of its own", op.kind()))
}

/// [`Op::Input`].
pub struct InputDef;

impl OpDef for InputDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(0)
    }

    fn infer(&self, _: &Op, _: &[&Shape], declared: &[Shape]) -> Result<Shapes> {
        as_declared(declared)
    }

    fn holds_for_all(&self, _: &Op, _: &[&Shape], _: Ranges<'_>) -> bool {
        true
    }

    fn reference(&self, op: &Op, _: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        Err(given_from_outside(op))
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        Case::source(|name| Op::Input { name }, g)
    }
}

/// [`Op::Param`].
pub struct ParamDef;

impl OpDef for ParamDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(0)
    }

    fn infer(&self, _: &Op, _: &[&Shape], declared: &[Shape]) -> Result<Shapes> {
        as_declared(declared)
    }

    fn holds_for_all(&self, _: &Op, _: &[&Shape], _: Ranges<'_>) -> bool {
        true
    }

    fn reference(&self, op: &Op, _: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        Err(given_from_outside(op))
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        Case::source(|name| Op::Param { name }, g)
    }
}

/// [`Op::Constant`].
pub struct ConstantDef;

impl OpDef for ConstantDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(0)
    }

    fn infer(&self, op: &Op, _: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Constant { data });
        Ok(smallvec![data.shape()])
    }

    fn holds_for_all(&self, _: &Op, _: &[&Shape], _: Ranges<'_>) -> bool {
        true
    }

    fn reference(&self, op: &Op, _: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Constant { data });
        Ok(vec![data.try_value()?])
    }

    fn flops(&self, _: &Op, _: &[&Shape], _: &[Shape]) -> f64 {
        0.0
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = g.dims(0..=3, 1..=5);
        let data = std::sync::Arc::new(g.value(crate::DType::F32, &dims, -2.0..2.0).to_const());
        Case::new(Op::Constant { data }, vec![])
    }
}

/// [`Op::Result`]; its shape rule is in [`crate::Graph::infer`], which sees all results of the input.
pub struct ResultDef;

impl OpDef for ResultDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, _: &Op, _: &[&Shape], declared: &[Shape]) -> Result<Shapes> {
        as_declared(declared)
    }

    fn holds_for_all(&self, _: &Op, _: &[&Shape], _: Ranges<'_>) -> bool {
        true
    }

    fn reference(&self, op: &Op, _: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        Err(given_from_outside(op))
    }

    fn flops(&self, _: &Op, _: &[&Shape], _: &[Shape]) -> f64 {
        0.0
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        // Result 0 of a single-result input is the simplest valid use.
        let dims = g.dims(0..=3, 1..=5);
        let x = g.value(crate::DType::F32, &dims, -2.0..2.0);
        Case::new(Op::Result { index: 0 }, vec![x])
    }
}

/// [`Op::Custom`].
pub struct CustomDef;

impl OpDef for CustomDef {
    fn arity(&self, op: &Op) -> Arity {
        match op {
            Op::Custom { num_inputs, .. } => Arity::Exact(*num_inputs),
            _ => Arity::AtLeast(0),
        }
    }

    /// The registered op's rule; of an unknown op the declared shape is all there is.
    fn infer(&self, op: &Op, inputs: &[&Shape], declared: &[Shape]) -> Result<Shapes> {
        match custom::of(op) {
            Some((custom, attrs)) => custom::guarded(op, "stating its results' shapes", || {
                let arity = custom.arity();
                if !arity.accepts(inputs.len()) {
                    let message = format!("{} takes {arity} inputs, not {}", custom.name(), inputs.len());
                    return Err(Error::new(ErrorKind::InvalidGraph, message));
                }
                custom.infer(attrs, inputs).map(Shapes::from)
            }),
            None => as_declared(declared),
        }
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Custom { name });
        match custom::of(op) {
            Some((custom, attrs)) => {
                custom::guarded(op, "computing its reference", || custom.reference(attrs, inputs, results))
            }
            None => Err(Error::new(ErrorKind::Unsupported, format!("custom op {name:?} is not registered"))
                .with_hint("give it to register_custom_op")),
        }
    }

    fn decompose(&self, op: &Op, inputs: &[NodeId], graph: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        let (custom, attrs) = custom::of(op)?;
        let decompose = || custom.decompose(attrs, inputs, graph).transpose();
        custom::guarded(op, "decomposing itself", decompose).transpose()
    }

    fn flops(&self, op: &Op, inputs: &[&Shape], results: &[Shape]) -> f64 {
        let stated = custom::of(op).and_then(|(custom, attrs)| {
            let flops = || Ok(custom.flops(attrs, inputs, results));
            custom::guarded(op, "counting its operations", flops).ok()
        });
        match stated {
            Some(flops) => flops,
            None => results.iter().map(|s| s.num_elements().unwrap_or(0) as f64).sum(),
        }
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = g.dims(1..=2, 1..=4);
        let x = g.value(crate::DType::F32, &dims, -1.0..1.0);
        let attrs = [
            ("alpha", crate::ops::CustomAttr::Float(0.5)),
            ("axes", crate::ops::CustomAttr::Ints(vec![0, -1])),
        ];
        let attrs = crate::ops::CustomAttrs(attrs.map(|(k, v)| (k.to_string(), v)).into());
        let inputs = vec![x.clone(); g.size(1..=3)];
        let op = Op::Custom { name: "example".into(), num_inputs: inputs.len(), attrs };
        let results = vec![x.shape(); g.size(1..=2)];
        Case::new(op, inputs).declared(results)
    }
}

/// [`Op::Region`].
pub struct RegionDef;

impl OpDef for RegionDef {
    fn arity(&self, op: &Op) -> Arity {
        match op {
            Op::Region { body } => Arity::Exact(body.graph.inputs().count()),
            _ => Arity::AtLeast(0),
        }
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Region { body });
        for (declared, given) in body.graph.inputs().zip(inputs) {
            if declared.shape != **given {
                let message = format!("{} of the region's body was given {given}", declared.describe());
                return Err(Error::new(ErrorKind::Shape, message));
            }
        }
        body.graph.outputs.iter().map(|&id| body.graph.try_node(id).map(|n| n.shape.clone())).collect()
    }

    fn holds_for_all(&self, _: &Op, _: &[&Shape], _: Ranges<'_>) -> bool {
        true
    }

    fn reference(&self, op: &Op, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => Region { body });
        let mut bindings = oracle::Bindings::default();
        for (node, value) in body.graph.inputs().zip(inputs) {
            if let Op::Input { name } = &node.op {
                bindings.set_input(name.clone(), (*value).clone());
            }
        }
        oracle::evaluate(&body.graph, &bindings)
    }

    fn flops(&self, op: &Op, _: &[&Shape], _: &[Shape]) -> f64 {
        let Op::Region { body } = op else { return 0.0 };
        crate::cost::graph_cost(&body.graph).flops
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = g.dims(1..=3, 1..=5);
        let count = g.size(1..=2);
        let inputs: Vec<Value> = (0..count).map(|_| g.value(crate::DType::F32, &dims, -2.0..2.0)).collect();
        let mut graph = crate::Graph::new("body");
        let ids: Vec<_> =
            inputs.iter().enumerate().map(|(i, v)| graph.input(format!("x{i}"), v.shape())).collect();
        let sum = graph.binary(BinaryOp::Add, ids[0], ids[count - 1], inputs[0].shape());
        let out = graph.activation(Activation::Tanh, sum, inputs[0].shape());
        graph.set_outputs(if g.chance(0.3) { vec![out, sum] } else { vec![out] });
        Case::new(Op::Region { body: std::sync::Arc::new(Body { graph }) }, inputs)
    }
}

/// [`Op::Pack`].
pub struct PackDef;

impl OpDef for PackDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, _: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        Ok(smallvec![inputs[0].clone()])
    }

    fn holds_for_all(&self, _: &Op, _: &[&Shape], _: Ranges<'_>) -> bool {
        true
    }

    fn reference(&self, _: &Op, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        Ok(vec![inputs[0].clone()])
    }

    fn flops(&self, _: &Op, _: &[&Shape], _: &[Shape]) -> f64 {
        0.0
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = g.dims(2..=2, 1..=9);
        Case::new(
            Op::Pack { format: PackFormat::new("Panels") },
            vec![g.value(crate::DType::F32, &dims, -1.0..1.0)],
        )
    }
}
