//! Core ML as a device of whole graphs: a program is a package with its weights in it, loaded when its first run has given them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rlx_backend::whole_graph::{Argument, GraphDevice, Shared, inputs};
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::{DType, Error, ErrorKind, Graph, Node, NodeId, Op, Result, Shape, Value, Weight};

use crate::empty::{Filled, filled};
use crate::program::{Feature, Package};
use crate::ranges::MOST;
use crate::runtime::{LoadedPackage, PackageRuntime};
use crate::target::NAME;

/// An opened Core ML.
pub struct CoreMl {
    runtime: Arc<dyn PackageRuntime>,
    machine: String,
    shared: Shared<CoreMl>,
}

impl CoreMl {
    /// With packages run by this.
    pub fn new(runtime: Arc<dyn PackageRuntime>) -> Self {
        CoreMl { machine: runtime.machine(), runtime, shared: Shared::default() }
    }
}

/// A tensor, in the host's memory, which is Core ML's.
pub struct Tensor {
    bytes: Vec<u8>,
    shape: Shape,
}

/// A graph, and the model that was loaded of it for the weights of the last run.
pub struct Program {
    /// Without tensors that have no elements.
    graph: Graph,
    /// By input of that graph: whether it is a weight.
    fixed: Vec<bool>,
    /// By argument of a run: whether it is an input of that graph.
    taken: Vec<bool>,
    /// By output of a run: its shape where it has no elements.
    empty: Vec<Option<Shape>>,
    loaded: Mutex<Option<LoadedFor>>,
}

/// A model, and the weights that it was loaded for.
type LoadedFor = (Vec<Arc<Tensor>>, Arc<Ready>);

/// A loaded model and its border.
struct Ready {
    model: Box<dyn LoadedPackage>,
    inputs: Vec<Feature>,
    outputs: Vec<Feature>,
}

impl GraphDevice for CoreMl {
    type Tensor = Tensor;
    type Program = Program;
    type Pending = ();

    fn name(&self) -> &str {
        NAME
    }

    fn machine(&self) -> &str {
        &self.machine
    }

    fn shared(&self) -> &Shared<Self> {
        &self.shared
    }

    fn compile(&self, graph: &Graph) -> Result<Program> {
        self.compile_for(graph, &vec![false; inputs(graph).count()])
    }

    fn compile_for(&self, graph: &Graph, fixed: &[bool]) -> Result<Program> {
        let Filled { graph: filled, inputs: taken, outputs } = filled(graph)?;
        let fixed = fixed.iter().zip(&taken).filter(|(_, taken)| **taken).map(|(&fixed, _)| fixed).collect();
        let shapes = graph.outputs.iter().map(|&id| graph.shape(id).clone());
        let empty = shapes.zip(&outputs).map(|(shape, &there)| (!there).then_some(shape)).collect();
        Ok(Program { graph: filled, fixed, taken, empty, loaded: Mutex::default() })
    }

    fn upload(&self, bytes: &[u8], shape: &Shape) -> Result<Tensor> {
        Ok(Tensor { bytes: bytes.to_vec(), shape: shape.clone() })
    }

    fn download(&self, tensor: &Tensor) -> Result<Vec<u8>> {
        Ok(tensor.bytes.clone())
    }

    fn start(&self, program: &Program, arguments: Vec<Argument<Tensor>>) -> Result<(Vec<Tensor>, ())> {
        let taken = arguments.into_iter().zip(&program.taken).filter(|(_, taken)| **taken);
        let arguments: Vec<_> = taken.map(|(argument, _)| argument).collect();
        let computed = match program.graph.outputs.is_empty() {
            true => Vec::new(),
            false if program.fixed.iter().all(|&fixed| fixed) => on_host(&program.graph, &arguments)?,
            false => self.predicted(program, &arguments).map_err(|e| explained(program, &arguments, e))?,
        };
        let mut computed = computed.into_iter();
        let output = |empty: &Option<Shape>| match empty {
            Some(shape) => Some(Tensor { bytes: Vec::new(), shape: shape.clone() }),
            None => computed.next(),
        };
        Ok((program.empty.iter().filter_map(output).collect(), ()))
    }

    fn finish(&self, _: &Program, (): ()) -> Result<()> {
        Ok(())
    }
}

impl CoreMl {
    /// The outputs that the model of a program gives.
    fn predicted(&self, program: &Program, arguments: &[Argument<Tensor>]) -> Result<Vec<Tensor>> {
        let ready = self.ready(program, arguments)?;
        let given = arguments.iter().zip(&program.fixed).filter(|(_, fixed)| !**fixed);
        let mut arrays = Vec::new();
        for ((argument, _), feature) in given.zip(&ready.inputs) {
            arrays.push(at_border(argument.tensor(), feature)?);
        }
        let results = ready.model.predict(&ready.inputs, &arrays, &ready.outputs)?;
        results.iter().zip(&ready.outputs).map(|(bytes, feature)| of_border(bytes, feature)).collect()
    }

    /// The model for the weights that a run is given: that of the last run, where they are the same.
    fn ready(&self, program: &Program, arguments: &[Argument<Tensor>]) -> Result<Arc<Ready>> {
        let mut weights = Vec::new();
        for (argument, _) in arguments.iter().zip(&program.fixed).filter(|(_, fixed)| **fixed) {
            match argument {
                Argument::Shared(tensor) => weights.push(Arc::clone(tensor)),
                Argument::Donated(_) => return Err(Error::new(ErrorKind::Internal, "a weight was donated")),
            }
        }
        let mut loaded = program.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, ready)) = &*loaded
            && of.iter().zip(&weights).all(|(a, b)| Arc::ptr_eq(a, b))
        {
            return Ok(Arc::clone(ready));
        }
        let (graph, names) = with_params(&program.graph, &program.fixed)?;
        let by_name: HashMap<&str, &Arc<Tensor>> = names.iter().map(String::as_str).zip(&weights).collect();
        let weight = |name: &str| {
            let tensor = by_name.get(name)?;
            let dims = tensor.shape.dims().iter().map(|d| d.as_static()).collect::<Option<Vec<_>>>()?;
            Weight::owned(tensor.shape.dtype(), &dims, tensor.bytes.clone()).ok().map(Arc::new)
        };
        let package = Package::of(&graph, &[], &weight)?;
        let ready = Arc::new(Ready {
            model: self.runtime.load(&package)?,
            inputs: package.inputs().to_vec(),
            outputs: package.outputs().to_vec(),
        });
        *loaded = Some((weights, Arc::clone(&ready)));
        Ok(ready)
    }
}

/// The graph with its weights as parameters, and their names in order.
fn with_params(graph: &Graph, fixed: &[bool]) -> Result<(Graph, Vec<String>)> {
    let mut changed = graph.successor();
    let (mut names, mut seen) = (Vec::new(), 0);
    for node in graph.nodes() {
        let mut node: Node = node.clone();
        if let Op::Input { name } = &node.op {
            if fixed.get(seen).copied().unwrap_or(false) {
                names.push(name.clone());
                node.op = Op::Param { name: name.clone() };
            }
            seen += 1;
        }
        node.inputs = node.inputs.iter().map(|id| changed.nodes()[id.index()].id).collect();
        changed.push_node(node);
    }
    let outputs = graph.outputs.iter().map(|id| changed.nodes()[id.index()].id).collect();
    changed.set_outputs(outputs);
    Ok((changed, names))
}

/// Why a run failed. Core ML says only that it did; an index out of range is found by the exact semantics of the nodes that read or write by indices, and of
/// what these need.
fn explained(program: &Program, arguments: &[Argument<Tensor>], error: Error) -> Error {
    let by_index = |node: &&Node| {
        matches!(
            node.op,
            Op::Gather { .. }
                | Op::GatherElements { .. }
                | Op::GatherNd { .. }
                | Op::ScatterElements { .. }
                | Op::ScatterNd { .. }
                | Op::UpdateSlice { .. }
                | Op::If { .. }
                | Op::Loop { .. }
        )
    };
    let wanted: Vec<NodeId> = program.graph.nodes().iter().filter(by_index).map(|node| node.id).collect();
    if error.kind() != ErrorKind::Device || wanted.is_empty() {
        return error;
    }
    let found = bindings(&program.graph, arguments)
        .and_then(|bindings| oracle::evaluate_all(&program.graph, &bindings, &wanted));
    match found {
        Err(why) if why.kind() == ErrorKind::Value => why.with_source(error),
        _ => error,
    }
}

/// What depends on weights alone, by its exact semantics: once for each weight, and Core ML takes weights as constants only.
fn on_host(graph: &Graph, arguments: &[Argument<Tensor>]) -> Result<Vec<Tensor>> {
    let values = oracle::evaluate(graph, &bindings(graph, arguments)?)?;
    Ok(values.iter().map(|value| Tensor { bytes: value.encode(), shape: value.shape() }).collect())
}

/// The arguments of a run as the oracle takes them.
fn bindings(graph: &Graph, arguments: &[Argument<Tensor>]) -> Result<Bindings> {
    let mut bindings = Bindings::default();
    for ((name, shape), argument) in inputs(graph).zip(arguments) {
        let dims = shape.dims().iter().filter_map(|d| d.as_static()).collect::<Vec<_>>();
        bindings.set_input(name, Value::try_decode(shape.dtype(), &dims, &argument.tensor().bytes)?);
    }
    Ok(bindings)
}

/// The bytes of an input as the package takes it: integers as `i32`, which they must fit.
fn at_border(tensor: &Tensor, feature: &Feature) -> Result<Vec<u8>> {
    let dtype = tensor.shape.dtype();
    if dtype == feature.dtype {
        return Ok(tensor.bytes.clone());
    }
    let most = if dtype.size_bytes() == 8 { MOST } else { i128::from(i32::MAX) };
    let dims: Vec<usize> = tensor.shape.dims().iter().filter_map(|d| d.as_static()).collect();
    let value = Value::try_decode(dtype, &dims, &tensor.bytes)?;
    let narrow = |&v: &i128| {
        if v > most || v < -most - 1 {
            let message = format!(
                "input {:?}: Core ML computes with 32-bit integers, and {v} is beyond ±{most}",
                feature.graph_name
            );
            return Err(Error::new(ErrorKind::Value, message));
        }
        Ok((v as i32).to_le_bytes())
    };
    let narrowed = value.ints()?.iter().map(narrow).collect::<Result<Vec<_>>>()?;
    Ok(narrowed.concat())
}

/// An output as the graph has it.
fn of_border(bytes: &[u8], feature: &Feature) -> Result<Tensor> {
    let (dtype, shape) = (feature.shape.dtype(), feature.shape.clone());
    if dtype == feature.dtype {
        return Ok(Tensor { bytes: bytes.to_vec(), shape });
    }
    let dims: Vec<usize> = shape.dims().iter().filter_map(|d| d.as_static()).collect();
    let held = Value::try_decode(DType::I32, &dims, bytes)?;
    let value = Value { dtype, dims, elements: held.elements };
    Ok(Tensor { bytes: value.encode(), shape })
}
