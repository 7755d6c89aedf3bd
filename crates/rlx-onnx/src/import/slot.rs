//! Names and the values they refer to.

use super::ImportOptions;
use super::body::OpenBody;
use super::held::{Held, Strings, Vocabulary, Words};
use super::known::{Known, MOST_ELEMENTS};
use crate::file::OnnxFile;
use crate::proto::{FunctionProto, GraphProto, NodeProto};
use crate::structure::{Structure, is_strings, strings_of};
use crate::tensor::RawTensor;
use rlx_ir::oracle::Allowance;
use rlx_ir::progress::Stage;
use rlx_ir::{
    ConstData, DType, Error, ErrorKind, Graph, NodeId, OriginId, Progress, Shape, Weight, WeightStore,
};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

/// How many nodes one import may visit in any case, bodies of functions counted at every call: a small file can describe
/// exponentially many. Every [`BYTES_OF_NODE`] bytes of the file add one: no node of a file takes fewer.
const MOST_NODES: usize = 1 << 15;
const BYTES_OF_NODE: usize = 16;

/// What bodies and long lists of operands and results count as: each body becomes a program of its own, each operand of a
/// concatenation a step, each result of a split a node.
pub(super) const NODES_OF_BODY: usize = 16;
const FREE_OPERANDS: usize = 8;
const NODES_OF_OPERAND: usize = 1;

/// No tensor has more dimensions: every node keeps its shape, and no device has kernels for as many.
pub(super) const MOST_DIMS: usize = 64;

/// A constant that no initialiser of the main graph names becomes a parameter from this many elements on.
const LARGE_CONSTANT: usize = 1024;

/// Index of a [`Slot`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SlotId(usize);

/// What a name refers to.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub shape: Shape,
    /// The node, once something needed it.
    pub node: Option<NodeId>,
    /// Its elements, when they are small integers that are known.
    pub known: Option<Rc<Known>>,
    /// Its constant data.
    pub data: Option<Data>,
    /// An optional operand of a function that the caller left out, or an optional that holds nothing.
    pub absent: bool,
    /// What it holds if that is no plain tensor. The shape of strings is their codes'; of the rest it says nothing.
    pub held: Held,
}

impl Slot {
    fn tensor(shape: Shape) -> Slot {
        Slot { shape, node: None, known: None, data: None, absent: false, held: Held::Tensor }
    }

    pub fn is_tensor(&self) -> bool {
        matches!(self.held, Held::Tensor)
    }
}

/// Constant data that is not in the graph yet.
#[derive(Debug, Clone)]
pub(crate) enum Data {
    /// A tensor of the file; `weight` when it is one of the model's initialisers.
    File { tensor: Rc<RawTensor>, weight: bool },
    /// A value the caller gave, or one computed here.
    Value(Rc<ConstData>),
}

/// The symbols that some first nodes of a graph mention.
#[derive(Default)]
pub(super) struct Mentioned {
    pub(super) nodes: usize,
    pub(super) symbols: HashSet<u32>,
}

/// Names defined by one graph or function body.
#[derive(Debug, Default)]
struct Scope {
    names: HashMap<Box<str>, SlotId>,
    /// A subgraph sees the names around it, a function body does not.
    sees_outer: bool,
}

/// The state of one import.
pub(crate) struct Importer<'f> {
    pub file: &'f OnnxFile,
    pub options: &'f ImportOptions,
    /// Asked before every node, also of bodies and functions.
    progress: &'f Progress,
    pub graph: Graph,
    pub weights: WeightStore,
    /// Where the nodes being built come from.
    pub origin: OriginId,
    /// Operator sets in force, those of the innermost function last.
    pub opsets: Vec<HashMap<String, i64>>,
    /// Functions being inlined, outermost first.
    pub calls: Vec<String>,
    pub functions: HashMap<(String, String, String), &'f FunctionProto>,
    slots: Vec<Slot>,
    scopes: Vec<Scope>,
    /// The bodies being imported, outermost first; `graph` is the innermost one's.
    pub bodies: Vec<OpenBody>,
    /// Constants of the file taken for another element type.
    views: HashMap<(SlotId, DType), SlotId>,
    param_names: HashSet<String>,
    /// The strings that the model asks its inputs for.
    pub vocabulary: Vocabulary,
    /// The inputs whose codes are in it.
    pub open_strings: Vec<String>,
    pub structure: Structure,
    visited: usize,
    /// What the outermost graph mentions, the body in it, and so on, as far as that was asked for.
    pub(super) mentioned: RefCell<Vec<Mentioned>>,
    /// What may still be computed while importing.
    pub(super) allowance: Cell<Allowance>,
}

/// `ai.onnx` is the long name of the default domain.
pub(crate) fn normal_domain(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

impl<'f> Importer<'f> {
    pub fn new(
        file: &'f OnnxFile,
        options: &'f ImportOptions,
        progress: &'f Progress,
    ) -> Result<Self, Error> {
        let model = file.model();
        let opsets = crate::import::function::opsets(&model.opset_import);
        let mut functions = HashMap::new();
        for f in &model.functions {
            let key = (normal_domain(f.domain()).to_owned(), f.name().to_owned(), f.overload().to_owned());
            if functions.insert(key, f).is_some() {
                return Err(Error::new(
                    ErrorKind::Malformed,
                    format!("function \"{}\" is defined twice", f.name()),
                ));
            }
        }
        // The caller's values are as good as the file's.
        let given: usize = options.input_values.values().map(|value| value.bytes().len()).sum();
        Ok(Importer {
            file,
            options,
            progress,
            graph: Graph::new(file.graph().name()),
            weights: WeightStore::default(),
            origin: OriginId::NONE,
            opsets: vec![opsets],
            calls: Vec::new(),
            functions,
            slots: Vec::new(),
            scopes: vec![Scope::default()],
            bodies: Vec::new(),
            views: HashMap::new(),
            param_names: HashSet::new(),
            vocabulary: Vocabulary::default(),
            open_strings: Vec::new(),
            structure: Structure::default(),
            visited: 0,
            mentioned: RefCell::default(),
            allowance: Cell::new(Allowance::for_bytes(file.size().saturating_add(given))),
        })
    }

    /// Counts a node with so many operands and results against the limit of one import, which may be stopped here.
    pub fn visit(&mut self, operands: usize) -> Result<(), Error> {
        self.progress.check(Stage::Import)?;
        self.visit_many(1 + operands.saturating_sub(FREE_OPERANDS).saturating_mul(NODES_OF_OPERAND))
    }

    /// As [`Importer::visit`], for as many.
    pub fn visit_many(&mut self, count: usize) -> Result<(), Error> {
        self.visited = self.visited.saturating_add(count);
        let most = MOST_NODES + self.file.size() / BYTES_OF_NODE;
        if self.visited <= most {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Malformed,
            format!("more than {most} nodes with functions inlined (a body counts as several)"),
        ))
    }

    /// Takes so many elements of what may be computed while importing; whether there were as many.
    pub fn take(&self, elements: usize) -> bool {
        let mut allowance = self.allowance.get();
        let taken = allowance.take(elements);
        self.allowance.set(allowance);
        taken
    }

    /// As [`Importer::take`].
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where there are not as many left.
    pub fn spend(&self, elements: usize) -> Result<(), Error> {
        if self.take(elements) {
            return Ok(());
        }
        let message = format!(
            "{elements} more elements would be computed while importing than a file of {} bytes may ask for",
            self.file.size()
        );
        Err(Error::new(ErrorKind::Unsupported, message)
            .with_hint("store large constants in the file as initialisers"))
    }

    /// A table of zeros to be filled.
    ///
    /// # Errors
    /// As [`Importer::spend`].
    pub fn zeros(&self, rows: usize, columns: usize) -> Result<Vec<f64>, Error> {
        let elements = rows.saturating_mul(columns);
        self.spend(elements)?;
        Ok(vec![0.0; elements])
    }

    /// Whether a tensor may have these dimensions.
    pub(super) fn check_rank(&self, rank: usize) -> Result<(), Error> {
        if rank <= MOST_DIMS {
            return Ok(());
        }
        let message = format!("a tensor of {rank} dimensions; there may be {MOST_DIMS}");
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    pub fn slot(&self, id: SlotId) -> &Slot {
        &self.slots[id.0]
    }

    fn add_slot(&mut self, slot: Slot) -> SlotId {
        self.slots.push(slot);
        SlotId(self.slots.len() - 1)
    }

    pub fn node_slot(&mut self, node: NodeId) -> SlotId {
        let shape = self.graph.shape(node).clone();
        self.add_slot(Slot { node: Some(node), ..Slot::tensor(shape) })
    }

    pub fn known_slot(&mut self, known: Known) -> SlotId {
        let shape = Shape::new(&known.dims, known.dtype);
        self.add_slot(Slot { known: Some(Rc::new(known)), ..Slot::tensor(shape) })
    }

    pub fn constant_slot(&mut self, value: ConstData) -> SlotId {
        let known = Known::from_const(&value).map(Rc::new);
        let shape = value.shape();
        let data = Some(Data::Value(Rc::new(value)));
        self.add_slot(Slot { known, data, ..Slot::tensor(shape) })
    }

    /// A tensor of the file: known at once when it is a small integer tensor.
    pub fn tensor_slot(&mut self, tensor: RawTensor, weight: bool) -> SlotId {
        let small = tensor.num_elements() <= MOST_ELEMENTS && tensor.dtype.int_range().is_some();
        let known = if small {
            tensor.to_const().ok().and_then(|c| Known::from_const(&c)).map(Rc::new)
        } else {
            None
        };
        let shape = Shape::new(&tensor.dims, tensor.dtype);
        let data = Some(Data::File { tensor: Rc::new(tensor), weight });
        self.add_slot(Slot { known, data, ..Slot::tensor(shape) })
    }

    /// What is left out.
    pub fn absent_slot(&mut self) -> SlotId {
        self.add_slot(Slot { absent: true, ..Slot::tensor(Shape::scalar(DType::F32)) })
    }

    /// Defines a function's optional operand that the caller left out.
    pub fn define_absent(&mut self, name: &str) -> Result<(), Error> {
        let slot = self.absent_slot();
        self.define(name, slot)
    }

    /// A constant of the file with the bytes of its last dimension taken for elements of another type: bytes for packed
    /// 4-bit integers, or the reverse. Nothing is copied. `None` for what is no constant of the file, or whose rows are no
    /// whole elements of that type.
    pub fn reinterpreted(&mut self, id: SlotId, dtype: DType) -> Result<Option<SlotId>, Error> {
        if let Some(&view) = self.views.get(&(id, dtype)) {
            return Ok(Some(view));
        }
        let Some(Data::File { tensor, weight }) = &self.slot(id).data else { return Ok(None) };
        let (tensor, weight) = (tensor.clone(), *weight);
        let Some((&last, lead)) = tensor.dims.split_last() else { return Ok(None) };
        let bits = last.checked_mul(tensor.dtype.bits());
        let bits = bits.filter(|bits| bits % 8 == 0 && bits % dtype.bits() == 0);
        let Some(bits) = bits else { return Ok(None) };
        let mut dims = lead.to_vec();
        dims.push(bits / dtype.bits());
        Shape::new(&dims, dtype).check_size()?;
        let view = RawTensor { name: tensor.name.clone(), dtype, dims, bytes: tensor.bytes.clone() };
        let view = self.tensor_slot(view, weight);
        self.views.insert((id, dtype), view);
        Ok(Some(view))
    }

    /// Strings by the tensor of their codes.
    pub fn strings_slot(&mut self, codes: SlotId, words: Words) -> SlotId {
        let shape = self.slot(codes).shape.clone();
        self.add_slot(Slot { held: Held::Strings(Strings { codes, words }), ..Slot::tensor(shape) })
    }

    pub fn sequence_slot(&mut self, elements: Vec<SlotId>) -> SlotId {
        self.held_slot(Held::Sequence(elements.into()))
    }

    /// A value that has no shape.
    pub fn held_slot(&mut self, held: Held) -> SlotId {
        self.add_slot(Slot { held, ..Slot::tensor(Shape::scalar(DType::F32)) })
    }

    /// Opens the scope of a subgraph or function body.
    pub fn enter(&mut self, sees_outer: bool) {
        self.scopes.push(Scope { names: HashMap::new(), sees_outer });
    }

    pub fn leave(&mut self) {
        self.scopes.pop();
    }

    pub fn define(&mut self, name: &str, slot: SlotId) -> Result<(), Error> {
        let scope = self.scopes.last_mut().expect("the main graph's scope stays open");
        if scope.names.insert(name.into(), slot).is_none() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Malformed, format!("the name \"{name}\" is defined twice")))
    }

    /// Takes the values that the caller knows of a node's results for what the node computes.
    pub fn take_values(&mut self, node: &NodeProto) -> Result<(), Error> {
        for name in &node.output {
            let Some(value) = self.options.tensor_values.get(name) else { continue };
            let shape = self.slot(self.lookup(name)?).shape.clone();
            if value.dtype() != shape.dtype() || value.dims().len() != shape.rank() {
                let message =
                    format!("the value of tensor \"{name}\" is {}, the tensor {shape}", value.shape());
                return Err(Error::new(ErrorKind::Binding, message));
            }
            let slot = self.constant_slot(value.clone());
            if let Some(scope) = self.scopes.last_mut() {
                scope.names.insert(name.as_str().into(), slot);
            }
        }
        Ok(())
    }

    pub fn lookup(&self, name: &str) -> Result<SlotId, Error> {
        for scope in self.scopes.iter().rev() {
            if let Some(&slot) = scope.names.get(name) {
                return Ok(slot);
            }
            if !scope.sees_outer {
                break;
            }
        }
        Err(Error::new(ErrorKind::Malformed, format!("the name \"{name}\" is used before it is defined")))
    }

    /// Defines a graph's initialisers.
    pub fn initializers(&mut self, proto: &GraphProto, main: bool) -> Result<(), Error> {
        if let Some(sparse) = proto.sparse_initializer.first() {
            let name = sparse.values.as_ref().map(|v| v.name()).unwrap_or_default();
            return Err(Error::new(ErrorKind::Unsupported, format!("sparse initialiser \"{name}\"")));
        }
        for tensor in &proto.initializer {
            if is_strings(tensor) {
                let slot = self.known_strings_slot(&strings_of(tensor)?)?;
                self.define(tensor.name(), slot)?;
                continue;
            }
            let raw = self.file.tensor(tensor)?;
            self.check_rank(raw.dims.len())?;
            // A body's initialisers are read every time that it is imported.
            self.spend(if main { 0 } else { raw.num_elements() })?;
            let slot = self.tensor_slot(raw, main);
            self.define(tensor.name(), slot)?;
        }
        Ok(())
    }

    /// The slot's node, made now if there is none.
    pub fn materialize(&mut self, id: SlotId) -> Result<NodeId, Error> {
        if let Some(&node) = self.bodies.last().and_then(|body| body.here.get(&id)) {
            return Ok(node);
        }
        let slot = self.slot(id).clone();
        if !slot.is_tensor() {
            let message = format!("{} where a tensor of numbers is needed", slot.held.name());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let inside = !self.bodies.is_empty();
        let is_weight =
            matches!(&slot.data, Some(Data::File { tensor, weight }) if tensor.is_weight(*weight));
        match slot.node {
            Some(node) if !inside || self.graph.check_id(node).is_ok() => return Ok(node),
            Some(_) => return Ok(self.capture(id)),
            // Parameters are the whole model's.
            None if inside && is_weight => return Ok(self.capture(id)),
            None => {}
        }
        let node = match (&slot.data, &slot.known) {
            (Some(Data::Value(value)), _) => {
                self.spend(value.num_elements())?;
                self.constant((**value).clone())
            }
            (Some(Data::File { tensor, weight }), _) if tensor.is_weight(*weight) => self.param(tensor)?,
            (Some(Data::File { tensor, .. }), _) => {
                // Every body has its own copy.
                self.spend(if inside { tensor.num_elements() } else { 0 })?;
                self.constant(tensor.to_const()?)
            }
            (None, Some(known)) => {
                self.spend(known.values.len())?;
                self.known_node(known)?
            }
            (None, None) => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "an optional operand that is left out, or an optional that holds nothing, where a tensor is needed",
                ));
            }
        };
        match self.bodies.last_mut() {
            Some(body) => _ = body.here.insert(id, node),
            None => self.slots[id.0].node = Some(node),
        }
        Ok(node)
    }

    pub fn constant(&mut self, value: ConstData) -> NodeId {
        let node = self.graph.constant(value);
        self.graph.set_origin(node, self.origin);
        node
    }

    /// Makes a tensor of the file a parameter under its own name, or a distinct one where bodies of functions or
    /// branches use the same name again.
    fn param(&mut self, tensor: &RawTensor) -> Result<NodeId, Error> {
        let base = if tensor.name.is_empty() { "constant" } else { &tensor.name };
        let mut name = base.to_owned();
        let mut copies = 1;
        while !self.param_names.insert(name.clone()) {
            copies += 1;
            name = format!("{base}.{copies}");
        }
        let node = self.graph.param(name.clone(), Shape::new(&tensor.dims, tensor.dtype));
        let (dtype, dims, bytes) = (tensor.dtype, &tensor.dims, &tensor.bytes);
        let held = self.file.holding(bytes).and_then(|file| Some((file.position(bytes)?, file)));
        let weight = match held {
            // Much may happen to the file before the weight is first used.
            Some((range, file)) => {
                let whole = Arc::clone(&file);
                Weight::mapped_checked(dtype, dims, file, range, move |_| whole.check_whole())
            }
            None => Weight::mapped(dtype, dims, Arc::new(bytes.clone()), 0..bytes.len()),
        };
        self.weights.insert(name, weight?);
        Ok(node)
    }
}

impl RawTensor {
    /// Whether it becomes a parameter: the model's float initialisers do, and anything large. One number is a constant of a formula, such as an
    /// epsilon, whose size the compiler has to know.
    fn is_weight(&self, initializer: bool) -> bool {
        self.num_elements() > LARGE_CONSTANT
            || (initializer && self.dtype.is_float() && self.num_elements() > 1)
    }
}
