//! The two devices as one that compiles whole graphs: a program is the parts of a graph, and tensors are in the host's memory.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use rlx_backend::whole_graph::{Argument, GraphDevice, Shared};
use rlx_backend::{ExecutableGraph, InputSource};
use rlx_ir::{DType, Error, ErrorKind, Graph, LirModule, Node, NodeId, Op, Progress, Result, Shape, Weight};
use rlx_opt::{CompileOptions, CompilePipeline};

use super::plan::{Place, Side, SplitPart, SplitPlan, plan};

/// The two, as one compilation uses them.
pub(super) struct Split {
    pub(super) name: String,
    pub(super) machine: String,
    pub(super) device: Side,
    pub(super) cpu: Side,
    /// What parts are compiled with.
    pub(super) options: CompileOptions,
    pub(super) shared: Arc<Shared<Split>>,
}

/// A graph's parts.
pub(super) struct Program {
    /// The nodes of its inputs, in their order.
    inputs: Vec<NodeId>,
    parts: Vec<Part>,
    /// Where its outputs come from.
    outputs: Vec<NodeId>,
    /// Outputs that are constants.
    constants: HashMap<NodeId, Arc<Weight>>,
}

/// One part, compiled.
struct Part {
    exec: Box<dyn ExecutableGraph>,
    /// By input of its module: the node of the whole graph.
    inputs: Vec<NodeId>,
    /// By parameter: the node, and the weight that was set.
    params: Vec<(NodeId, Option<Arc<Weight>>)>,
    /// By output: the node, its type and dimensions.
    outputs: Vec<(NodeId, DType, Vec<usize>)>,
}

/// The bytes of a part's inputs.
struct Given<'v>(Vec<Cow<'v, [u8]>>);

impl InputSource for Given<'_> {
    fn bytes(&self, index: usize) -> &[u8] {
        &self.0[index]
    }
}

/// What a part calls a value of the whole graph.
fn name_of(id: NodeId) -> String {
    format!("value {}", id.index())
}

fn node_named(name: &str, graph: &Graph) -> Result<NodeId> {
    let at = name.strip_prefix("value ").and_then(|at| at.parse::<usize>().ok());
    let node = at.and_then(|at| graph.nodes().get(at)).map(|node| node.id);
    node.ok_or_else(|| Error::new(ErrorKind::Internal, format!("a part has an input \"{name}\"")))
}

/// The graph of a part: what it reads is given, what others read it gives.
fn graph_of(part: &SplitPart, whole: &Graph, wanted: &[NodeId], fixed: &BTreeSet<NodeId>) -> Result<Graph> {
    let mut graph = Graph::new(format!("{} on {}", whole.name, part.device));
    graph.origins_mut().clone_from(whole.origins());
    let mut map: HashMap<NodeId, NodeId> = HashMap::new();
    for &id in &part.nodes {
        let node = whole.node(id);
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for &input in &node.inputs {
            let read = match map.get(&input) {
                Some(&known) => known,
                None => {
                    let read = graph.push_node(read_from_elsewhere(whole.node(input), fixed));
                    map.insert(input, read);
                    read
                }
            };
            inputs.push(read);
        }
        let copy = Node::new(node.op.clone(), inputs, node.results().to_vec());
        map.insert(id, graph.push_node(copy.with_name(node.name.clone()).with_origin(node.origin)));
    }
    let outputs = wanted.iter().map(|id| map.get(id).copied()).collect::<Option<Vec<_>>>();
    graph.set_outputs(outputs.ok_or_else(|| Error::new(ErrorKind::Internal, "a part lacks its output"))?);
    Ok(graph)
}

/// A value that the part does not compute: a constant is copied, the rest is given.
fn read_from_elsewhere(node: &Node, fixed: &BTreeSet<NodeId>) -> Node {
    let name = name_of(node.id);
    let op = match &node.op {
        Op::Constant { .. } => node.op.clone(),
        _ if fixed.contains(&node.id) => Op::Param { name },
        _ => Op::Input { name },
    };
    Node::new(op, Vec::new(), vec![node.shape.clone()])
}

impl Split {
    /// The plan of a graph.
    pub(super) fn plan(&self, graph: &Graph) -> Result<SplitPlan> {
        plan(graph, &self.device, &self.cpu, &self.options)
    }

    fn part(
        &self,
        part: &SplitPart,
        whole: &Graph,
        wanted: &[NodeId],
        fixed: &BTreeSet<NodeId>,
    ) -> Result<Part> {
        let graph = graph_of(part, whole, wanted, fixed)?;
        let side = if part.place == Place::Device { &self.device } else { &self.cpu };
        let pipeline = CompilePipeline::new(Arc::clone(&side.target), self.options.clone());
        let lir: LirModule = pipeline.compile_module(graph, &Progress::none())?.lir;
        let inputs = lir.inputs.iter().map(|slot| node_named(&slot.name, whole)).collect::<Result<_>>()?;
        let params = lir.params.iter().map(|slot| Ok((node_named(&slot.name, whole)?, None)));
        let params = params.collect::<Result<_>>()?;
        let outputs = wanted.iter().map(|&id| {
            let shape = whole.shape(id);
            let open = || Error::new(ErrorKind::Internal, format!("{shape} is open in a part"));
            Ok((id, shape.dtype(), shape.static_dims().ok_or_else(open)?))
        });
        let outputs = outputs.collect::<Result<_>>()?;
        let exec = side.backend.compile(Arc::new(lir), &self.options)?;
        Ok(Part { exec, inputs, params, outputs })
    }
}

impl Part {
    /// Runs the part: reads `values`, and adds what it computes.
    fn run(&mut self, values: &mut HashMap<NodeId, Arc<Weight>>) -> Result<()> {
        let missing = || Error::new(ErrorKind::Internal, "a part reads what was not computed");
        for (index, (id, set)) in self.params.iter_mut().enumerate() {
            let weight = values.get(id).ok_or_else(missing)?;
            if !set.as_ref().is_some_and(|set| Arc::ptr_eq(set, weight)) {
                self.exec.set_param(index, Arc::clone(weight))?;
                *set = Some(Arc::clone(weight));
            }
        }
        let bytes = |id: &NodeId| values.get(id).ok_or_else(missing)?.bytes();
        let given = Given(self.inputs.iter().map(bytes).collect::<Result<_>>()?);
        self.exec.run(&given, &[])?;
        for (index, (id, dtype, dims)) in self.outputs.iter().enumerate() {
            let value = Weight::owned(*dtype, dims, self.exec.output(index)?)?;
            values.insert(*id, Arc::new(value));
        }
        Ok(())
    }
}

impl GraphDevice for Split {
    type Tensor = Weight;
    type Program = Mutex<Program>;
    type Pending = ();

    fn name(&self) -> &str {
        &self.name
    }

    fn machine(&self) -> &str {
        &self.machine
    }

    fn shared(&self) -> &Shared<Self> {
        &self.shared
    }

    fn compile(&self, graph: &Graph) -> Result<Mutex<Program>> {
        self.compile_for(graph, &[])
    }

    fn compile_for(&self, graph: &Graph, fixed: &[bool]) -> Result<Mutex<Program>> {
        let is_input = |node: &&Node| matches!(node.op, Op::Input { .. });
        let inputs: Vec<NodeId> = graph.nodes().iter().filter(is_input).map(|node| node.id).collect();
        let weights = inputs.iter().zip(fixed).filter(|(_, fixed)| **fixed).map(|(&id, _)| id).collect();
        let plan = self.plan(graph)?;
        tracing::info!(
            graph = %graph.name,
            parts = plan.parts.len(),
            crossings = plan.crossings.len(),
            bytes = plan.crossing_bytes(),
            unsupported = ?plan.unsupported,
            "{} are used together",
            self.name
        );
        let mut parts = Vec::with_capacity(plan.parts.len());
        for (i, part) in plan.parts.iter().enumerate() {
            let own: BTreeSet<NodeId> = part.nodes.iter().copied().collect();
            let later = plan.parts[i + 1..].iter().flat_map(|part| &part.nodes);
            let read = later.flat_map(|&id| &graph.node(id).inputs).chain(&graph.outputs);
            let wanted: BTreeSet<NodeId> = read.copied().filter(|id| own.contains(id)).collect();
            let wanted: Vec<NodeId> = wanted.into_iter().collect();
            parts.push(self.part(part, graph, &wanted, &weights)?);
        }
        let mut constants = HashMap::new();
        for &id in &graph.outputs {
            if let Op::Constant { data } = &graph.node(id).op {
                let weight = Weight::owned(data.dtype(), data.dims(), data.bytes().to_vec())?;
                constants.insert(id, Arc::new(weight));
            }
        }
        Ok(Mutex::new(Program { inputs, parts, outputs: graph.outputs.clone(), constants }))
    }

    fn upload(&self, bytes: &[u8], shape: &Shape) -> Result<Weight> {
        Weight::owned(shape.dtype(), &shape.static_dims().unwrap_or_default(), bytes)
    }

    fn download(&self, tensor: &Weight) -> Result<Vec<u8>> {
        Ok(tensor.bytes()?.into_owned())
    }

    fn start(&self, program: &Mutex<Program>, arguments: Vec<Argument<Weight>>) -> Result<(Vec<Weight>, ())> {
        let mut program = program.lock().unwrap_or_else(PoisonError::into_inner);
        let Program { inputs, parts, outputs, constants } = &mut *program;
        let given = arguments.into_iter().map(|argument| match argument {
            Argument::Shared(tensor) => tensor,
            Argument::Donated(tensor) => Arc::new(tensor),
        });
        let mut values: HashMap<NodeId, Arc<Weight>> = inputs.iter().copied().zip(given).collect();
        values.extend(constants.iter().map(|(&id, value)| (id, Arc::clone(value))));
        parts.iter_mut().try_for_each(|part| part.run(&mut values))?;
        let missing = || Error::new(ErrorKind::Internal, "no part computes an output");
        let outputs =
            outputs.iter().map(|id| values.get(id).map(|value| (**value).clone()).ok_or_else(missing));
        Ok((outputs.collect::<Result<_>>()?, ()))
    }

    fn finish(&self, _: &Mutex<Program>, (): ()) -> Result<()> {
        Ok(())
    }
}
