//! Importing one node: known integers first, then model-local functions, then the op's importer; and bodies of
//! functions and branches, which are imported in place.

use super::attrs::{Attrs, refers, with_attributes};
use super::context::NodeCx;
use super::fold::{Folding, Operand, fold};
use super::held::Held;
use super::slot::{Importer, SlotId, normal_domain};
use super::{NeedsTensorValue, needed_tensor};
use crate::ops::{self, Emit, legacy};
use crate::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto, OperatorSetIdProto};
use prost::Message;
use rlx_ir::custom::custom_op;
use rlx_ir::{Error, ErrorKind, Op, check_extents};
use std::collections::HashMap;

/// How deep calls of functions may nest.
const MOST_CALLS: usize = 64;

/// The newest version of the default operator set whose ops were read for this importer.
pub(crate) const NEWEST_OPSET: i64 = 28;
/// The oldest.
pub(crate) const OLDEST_OPSET: i64 = 1;

/// Domain → version.
pub(crate) fn opsets(imports: &[OperatorSetIdProto]) -> HashMap<String, i64> {
    imports.iter().map(|o| (normal_domain(o.domain()).to_owned(), o.version())).collect()
}

/// `Relu`, or `com.microsoft.Gelu`: an op as messages name it.
pub(crate) fn op_label(node: &NodeProto) -> String {
    match normal_domain(node.domain()) {
        "" => node.op_type().to_owned(),
        domain => format!("{domain}.{}", node.op_type()),
    }
}

/// The node's name, or one made from its first output.
fn node_label(node: &NodeProto) -> String {
    let output = node.output.first().map(String::as_str).unwrap_or_default();
    if node.name().is_empty() { format!("node of \"{output}\"") } else { node.name().to_owned() }
}

/// The end of the path of a node in functions, which are not all in the file: this much of it is kept for every node.
fn end_of(path: &str) -> String {
    const MOST: usize = 240;
    match path.char_indices().rev().nth(MOST) {
        Some((at, _)) => format!("…{}", &path[at..]),
        None => path.to_owned(),
    }
}

impl Importer<'_> {
    /// Imports one node and defines its outputs.
    pub fn node(&mut self, node: &NodeProto) -> Result<(), Error> {
        self.visit(node.input.len() + node.output.len())?;
        let label = node_label(node);
        let origin =
            if self.calls.is_empty() { label } else { end_of(&format!("{}/{label}", self.calls.join("/"))) };
        let outer = self.origin;
        self.origin = self.graph.origins_mut().source(origin.clone());
        let result = self.node_outputs(node);
        self.origin = outer;
        let outputs = result.map_err(|e| e.with_node(op_label(node)).with_origin(origin))?;
        for (name, slot) in node.output.iter().zip(outputs) {
            if !name.is_empty() {
                self.define(name, slot)?;
            }
        }
        Ok(())
    }

    fn node_outputs(&mut self, node: &NodeProto) -> Result<Vec<SlotId>, Error> {
        let domain = normal_domain(node.domain());
        let lookup = |name: &String| if name.is_empty() { Ok(None) } else { self.lookup(name).map(Some) };
        let inputs = node.input.iter().map(lookup).collect::<Result<Vec<_>, Error>>()?;
        if !self.functions.is_empty() {
            let key = (domain.to_owned(), node.op_type().to_owned(), node.overload().to_owned());
            if let Some(&function) = self.functions.get(&key) {
                return self.call(node, function, &inputs);
            }
        }
        let opset = self.opset(domain)?;
        let tensors = inputs.iter().flatten().all(|&id| self.slot(id).is_tensor());
        let shapes = matches!(node.op_type(), "Shape" | "Size") && self.first_no_strings(&inputs).is_none();
        let any_known = || inputs.iter().flatten().any(|&id| self.slot(id).known.is_some());
        if domain.is_empty()
            && (shapes || (tensors && any_known()))
            && let Some(known) = fold(node.op_type(), &self.folding(node, &inputs))
        {
            check_extents(known.iter().flat_map(|k| k.values.iter().copied()))?;
            self.spend(known.iter().map(|k| k.values.len()).sum())?;
            return Ok(known.into_iter().map(|k| self.known_slot(k)).collect());
        }
        let mut moves_strings = false;
        let emitter = match ops::find(domain, node.op_type(), opset) {
            Some(entry) if tensors || entry.takes_any => entry.emit,
            Some(entry) => {
                moves_strings = true;
                let held =
                    if entry.moves { self.first_no_strings(&inputs) } else { self.first_held(&inputs) };
                if let Some(what) = held {
                    let message = format!("{} of {what} is not supported", op_label(node));
                    return Err(Error::new(ErrorKind::Unsupported, message));
                }
                entry.emit
            }
            None if custom_op(&op_label(node)).is_some() => Emit::Nodes(ops::custom::import),
            None => return Err(self.not_built(node, opset, &inputs)),
        };
        let mut cx = NodeCx::new(self, node, opset, inputs.clone());
        if domain.is_empty() && opset < legacy::NUMPY_BROADCASTS {
            legacy::align(&mut cx)?;
        }
        let outputs = if moves_strings { moved_strings(&mut cx, emitter) } else { emit(&mut cx, emitter) };
        let outputs = outputs.map_err(|e| self.with_dtypes(e, node, opset, &inputs))?;
        let wanted = node.output.iter().rposition(|name| !name.is_empty()).map_or(0, |i| i + 1);
        if outputs.len() < wanted {
            let message = format!("output {wanted} of {} is not supported", op_label(node));
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(outputs)
    }

    /// The first operand that is no tensor, as errors call it.
    fn first_held(&self, inputs: &[Option<SlotId>]) -> Option<&'static str> {
        inputs
            .iter()
            .flatten()
            .map(|&id| self.slot(id))
            .find(|slot| !slot.is_tensor())
            .map(|slot| slot.held.name())
    }

    /// The first operand that is neither a tensor nor strings.
    fn first_no_strings(&self, inputs: &[Option<SlotId>]) -> Option<&'static str> {
        let other = |held: &&Held| !matches!(held, Held::Tensor | Held::Strings(_));
        inputs.iter().flatten().map(|&id| &self.slot(id).held).find(other).map(Held::name)
    }

    fn folding<'n>(&self, node: &'n NodeProto, inputs: &[Option<SlotId>]) -> Folding<'n> {
        let operand = |id: &Option<SlotId>| {
            let slot = self.slot((*id)?);
            Some(Operand { shape: slot.shape.clone(), known: slot.known.clone() })
        };
        let operands = inputs.iter().map(operand).collect();
        Folding { attrs: Attrs(&node.attribute), operands, outputs: node.output.len() }
    }

    /// The version of a domain's operator set, which must be one this importer knows.
    fn opset(&self, domain: &str) -> Result<i64, Error> {
        let in_force = self.opsets.last().and_then(|sets| sets.get(domain)).copied();
        let Some(version) = in_force else {
            // Contributed domains are often used without being imported; they have one version.
            if !domain.is_empty() {
                return Ok(1);
            }
            return Err(Error::new(
                ErrorKind::Malformed,
                "the model imports no version of the default operator set",
            ));
        };
        if !domain.is_empty() || (OLDEST_OPSET..=NEWEST_OPSET).contains(&version) {
            return Ok(version);
        }
        let message = format!(
            "the model is of opset {version}; versions {OLDEST_OPSET} to {NEWEST_OPSET} are supported"
        );
        Err(Error::new(ErrorKind::Unsupported, message).with_hint(format!(
            "export it with an older opset, as by torch.onnx.export(.., opset_version={NEWEST_OPSET}), or convert it by \
             onnx.version_converter.convert_version"
        )))
    }

    fn not_built(&self, node: &NodeProto, opset: i64, inputs: &[Option<SlotId>]) -> Error {
        let label = op_label(node);
        let domain = normal_domain(node.domain());
        let hint = match domain {
            "" => "docs/onnx.md lists the supported ops; export the model with other ops, or with a lower opset that \
                   decomposes it"
                .to_owned(),
            _ => format!("define it with register_custom_op under the name \"{label}\" (see examples/custom_op)"),
        };
        let error =
            Error::new(ErrorKind::Unsupported, format!("op {label} is not supported")).with_hint(hint);
        self.with_dtypes(error, node, opset, inputs)
    }

    /// Adds domain, opset and operands to an error about an unsupported feature.
    fn with_dtypes(&self, error: Error, node: &NodeProto, opset: i64, inputs: &[Option<SlotId>]) -> Error {
        if error.kind() != ErrorKind::Unsupported {
            return error;
        }
        let shown = |id: SlotId| match &self.slot(id).held {
            Held::Tensor => self.slot(id).shape.to_string(),
            held => held.name().to_owned(),
        };
        let shape = |id: &Option<SlotId>| id.map_or("none".to_owned(), shown);
        let operands = inputs.iter().map(shape).collect::<Vec<_>>().join(", ");
        let domain = if normal_domain(node.domain()).is_empty() { "ai.onnx" } else { node.domain() };
        let message = format!("{}; domain {domain}, opset {opset}, operands: {operands}", error.message());
        let hint = error.hint().map(str::to_owned);
        let mut named = Error::new(ErrorKind::Unsupported, message);
        if let Some(tensor) = needed_tensor(&error) {
            named = named.with_source(NeedsTensorValue { tensor: tensor.to_owned() });
        }
        if let Some(hint) = hint { named.with_hint(hint) } else { named }
    }

    /// Inlines a model-local function.
    fn call(
        &mut self,
        node: &NodeProto,
        f: &FunctionProto,
        inputs: &[Option<SlotId>],
    ) -> Result<Vec<SlotId>, Error> {
        let label = op_label(node);
        if self.calls.len() >= MOST_CALLS || self.calls.contains(&label) {
            return Err(Error::new(
                ErrorKind::Malformed,
                format!("function {label} calls itself or nests too deep"),
            ));
        }
        // The cost of every call, independent of the body.
        let attributes: usize =
            node.attribute.iter().chain(&f.attribute_proto).map(Message::encoded_len).sum();
        self.spend(attributes / size_of::<i64>())?;
        self.visit_many(f.input.len() + f.output.len() + f.opset_import.len())?;
        let mut given: HashMap<String, AttributeProto> =
            f.attribute_proto.iter().map(|a| (a.name().to_owned(), a.clone())).collect();
        given.extend(node.attribute.iter().map(|a| (a.name().to_owned(), a.clone())));
        self.calls.push(label);
        self.opsets.push(opsets(&f.opset_import));
        self.enter(false);
        let outputs = self.function_body(f, &given, inputs);
        self.leave();
        self.opsets.pop();
        self.calls.pop();
        outputs
    }

    fn function_body(
        &mut self,
        f: &FunctionProto,
        given: &HashMap<String, AttributeProto>,
        inputs: &[Option<SlotId>],
    ) -> Result<Vec<SlotId>, Error> {
        for (i, name) in f.input.iter().enumerate() {
            // An input left out by the caller stays undefined: the body's nodes see it as left out too.
            match inputs.get(i).copied().flatten() {
                Some(slot) => self.define(name, slot)?,
                None => self.define_absent(name)?,
            }
        }
        for node in &f.node {
            if refers(node) {
                // Every call has its own copy.
                self.spend(node.encoded_len() / size_of::<i64>())?;
                self.node(&with_attributes(node, given))?;
            } else {
                self.node(node)?;
            }
        }
        f.output.iter().map(|name| self.lookup(name)).collect()
    }

    /// Imports a body in place, with the given inputs: it sees the names around it; returns its outputs.
    pub fn inlined(&mut self, graph: &GraphProto, inputs: &[SlotId]) -> Result<Vec<SlotId>, Error> {
        if graph.input.len() != inputs.len() {
            let message = format!("a body of {} inputs is given {}", graph.input.len(), inputs.len());
            return Err(Error::new(ErrorKind::Malformed, message));
        }
        self.enter(true);
        let outputs = graph
            .input
            .iter()
            .zip(inputs)
            .try_for_each(|(input, &slot)| self.define(input.name(), slot))
            .and_then(|()| self.branch_body(graph));
        self.leave();
        outputs
    }

    /// Imports a branch in place: it sees the names around it; returns its outputs.
    pub fn branch(&mut self, graph: &GraphProto) -> Result<Vec<SlotId>, Error> {
        self.enter(true);
        let outputs = self.branch_body(graph);
        self.leave();
        outputs
    }

    pub(super) fn branch_body(&mut self, graph: &GraphProto) -> Result<Vec<SlotId>, Error> {
        self.initializers(graph, false)?;
        for node in &graph.node {
            self.node(node)?;
        }
        graph.output.iter().map(|o| self.lookup(o.name())).collect()
    }
}

/// Moves strings: their codes, among common words.
fn moved_strings(cx: &mut NodeCx<'_, '_>, how: Emit) -> Result<Vec<SlotId>, Error> {
    let (inputs, words) = cx.in_common_words()?;
    cx.inputs = inputs;
    let outputs = emit(cx, how)?;
    Ok(outputs.into_iter().map(|codes| cx.importer.strings_slot(codes, words.clone())).collect())
}

/// Runs the importer of a table entry.
fn emit(cx: &mut NodeCx<'_, '_>, how: Emit) -> Result<Vec<SlotId>, Error> {
    let operands =
        |cx: &mut NodeCx<'_, '_>, count: usize| (0..count).map(|i| cx.x(i)).collect::<Result<Vec<_>, _>>();
    let nodes = match how {
        Emit::Slots(f) => return f(cx),
        Emit::Nodes(f) => f(cx)?,
        Emit::Activation(f) => {
            let x = operands(cx, 1)?;
            vec![cx.add(Op::Activation(f), &x)?]
        }
        Emit::Binary(f) => {
            let ab = operands(cx, 2)?;
            vec![cx.add(Op::Binary(f), &ab)?]
        }
        Emit::Compare(f) => {
            let ab = operands(cx, 2)?;
            vec![cx.add(Op::Compare(f), &ab)?]
        }
    };
    Ok(nodes.into_iter().map(|n| cx.importer.node_slot(n)).collect())
}
