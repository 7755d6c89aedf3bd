//! Core ML as a device of whole graphs: a program is a package with its weights in it, loaded when its first run has given them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rlx_backend::whole_graph::{Argument, GraphDevice, Shared, inputs};
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::{DType, Error, ErrorKind, Graph, Node, Op, Result, Shape, Value, Weight};

use crate::apple::{self, Loaded};
use crate::backend::ComputeUnits;
use crate::program::{Feature, Package};
use crate::ranges::MOST;
use crate::target::NAME;

/// An opened Core ML.
pub struct CoreMl {
    units: ComputeUnits,
    machine: String,
    shared: Shared<CoreMl>,
}

impl CoreMl {
    /// On these processors.
    pub fn new(units: ComputeUnits) -> Self {
        CoreMl { units, machine: apple::machine(units), shared: Shared::default() }
    }
}

/// A tensor, in the host's memory, which is Core ML's.
pub struct Tensor {
    bytes: Vec<u8>,
    shape: Shape,
}

/// A graph, and the model that was loaded of it for the weights of the last run.
pub struct Program {
    graph: Graph,
    /// By input: whether it is a weight.
    fixed: Vec<bool>,
    loaded: Mutex<Option<(Vec<Arc<Tensor>>, Arc<Ready>)>>,
}

/// A loaded model and its border.
struct Ready {
    model: Loaded,
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
        Ok(Program { graph: graph.clone(), fixed: fixed.to_vec(), loaded: Mutex::default() })
    }

    fn upload(&self, bytes: &[u8], shape: &Shape) -> Result<Tensor> {
        Ok(Tensor { bytes: bytes.to_vec(), shape: shape.clone() })
    }

    fn download(&self, tensor: &Tensor) -> Result<Vec<u8>> {
        Ok(tensor.bytes.clone())
    }

    fn start(&self, program: &Program, arguments: Vec<Argument<Tensor>>) -> Result<(Vec<Tensor>, ())> {
        let graph = &program.graph;
        if program.fixed.iter().all(|&fixed| fixed) {
            return on_host(graph, &arguments).map(|outputs| (outputs, ()));
        }
        let ready = self.ready(program, &arguments)?;
        let given = arguments.iter().zip(&program.fixed).filter(|(_, fixed)| !**fixed);
        let mut arrays = Vec::new();
        for ((argument, _), feature) in given.zip(&ready.inputs) {
            arrays.push(at_border(argument.tensor(), feature)?);
        }
        let results = ready.model.predict(&ready.inputs, &arrays, &ready.outputs)?;
        let outputs = results.iter().zip(&ready.outputs).map(|(bytes, feature)| of_border(bytes, feature));
        Ok((outputs.collect::<Result<_>>()?, ()))
    }

    fn finish(&self, _: &Program, (): ()) -> Result<()> {
        Ok(())
    }
}

impl CoreMl {
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
            model: Loaded::open(&package, self.units)?,
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

/// What depends on weights alone, by its exact semantics: once for each weight, and Core ML takes weights as constants only.
fn on_host(graph: &Graph, arguments: &[Argument<Tensor>]) -> Result<Vec<Tensor>> {
    let mut bindings = Bindings::default();
    for ((name, shape), argument) in inputs(graph).zip(arguments) {
        let dims = shape.dims().iter().filter_map(|d| d.as_static()).collect::<Vec<_>>();
        let tensor = argument.tensor();
        bindings.set_input(name, Value::try_decode(shape.dtype(), &dims, &tensor.bytes)?);
    }
    let values = oracle::evaluate(graph, &bindings)?;
    Ok(values.iter().map(|value| Tensor { bytes: value.encode(), shape: value.shape() }).collect())
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
