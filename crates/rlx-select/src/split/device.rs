//! The two devices as one that compiles whole graphs: a program is the parts of a graph, and tensors are in the host's memory.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use rlx_backend::whole_graph::{Argument, GraphDevice, Shared};
use rlx_backend::{ExecutableGraph, InputSource};
use rlx_ir::{
    DimBinding, Error, ErrorKind, Graph, LirModule, Node, NodeId, Op, Progress, Result, Shape, Weight,
};
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
    /// The symbols that its nodes bind, in their order.
    counted: Vec<u32>,
}

/// One part, compiled.
struct Part {
    exec: Box<dyn ExecutableGraph>,
    /// By input of its module: the node of the whole graph.
    inputs: Vec<NodeId>,
    /// By parameter: the node, and the weight that was set.
    params: Vec<(NodeId, Option<Arc<Weight>>)>,
    /// By output: the node and its shape.
    outputs: Vec<(NodeId, Shape)>,
    /// The symbols that earlier parts found, as a run of its module is given them.
    given: Vec<u32>,
    /// The symbols that it finds, as its executable gives them.
    counted: Vec<u32>,
}

/// What a run of a program knows so far.
#[derive(Default)]
struct Known {
    values: HashMap<NodeId, Arc<Weight>>,
    sizes: DimBinding,
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
        let outputs = wanted.iter().map(|&id| (id, whole.shape(id).clone())).collect();
        let (given, counted) = (lir.symbols.clone(), lir.data_symbols());
        let exec = side.backend.compile(Arc::new(lir), &self.options)?;
        Ok(Part { exec, inputs, params, outputs, given, counted })
    }
}

impl Part {
    /// Runs the part: reads what is known, and adds what it computes and counts.
    fn run(&mut self, known: &mut Known) -> Result<()> {
        let missing = || Error::new(ErrorKind::Internal, "a part reads what was not computed");
        for (index, (id, set)) in self.params.iter_mut().enumerate() {
            let weight = known.values.get(id).ok_or_else(missing)?;
            if !set.as_ref().is_some_and(|set| Arc::ptr_eq(set, weight)) {
                self.exec.set_param(index, Arc::clone(weight))?;
                *set = Some(Arc::clone(weight));
            }
        }
        let bytes = |id: &NodeId| known.values.get(id).ok_or_else(missing)?.bytes();
        let given = Given(self.inputs.iter().map(bytes).collect::<Result<_>>()?);
        let size = |&symbol: &u32| known.sizes.get(symbol).and_then(|size| i64::try_from(size).ok());
        let dims = self.given.iter().map(|symbol| size(symbol).ok_or_else(missing));
        self.exec.run(&given, &dims.collect::<Result<Vec<_>>>()?)?;
        for (&symbol, &size) in self.counted.iter().zip(self.exec.found()) {
            known.sizes.set(symbol, usize::try_from(size).unwrap_or(0));
        }
        for (index, (id, shape)) in self.outputs.iter().enumerate() {
            let shape = shape.bind(&known.sizes);
            let open = || Error::new(ErrorKind::Internal, format!("{shape} is open behind a part"));
            let dims = shape.static_dims().ok_or_else(open)?;
            let value = Weight::owned(shape.dtype(), &dims, self.exec.output(index)?)?;
            known.values.insert(*id, Arc::new(value));
        }
        Ok(())
    }
}

/// What each part computes that later parts or the caller read; of ops that count also where only the number is read.
fn wanted(plan: &SplitPlan, graph: &Graph) -> Vec<Vec<NodeId>> {
    let (mut read, mut mentioned) = (HashSet::new(), HashSet::new());
    read.extend(graph.outputs.iter().copied());
    let outputs = graph.outputs.iter().flat_map(|&id| graph.shape(id).dims());
    outputs.for_each(|dim| dim.extent().each_symbol(&mut |symbol| _ = mentioned.insert(symbol)));
    let mut wanted = Vec::with_capacity(plan.parts.len());
    for part in plan.parts.iter().rev() {
        let leaves = |id: &NodeId| {
            read.contains(id) || graph.node(*id).op.data_symbol().is_some_and(|s| mentioned.contains(&s))
        };
        wanted.push(part.nodes.iter().copied().filter(leaves).collect::<Vec<_>>());
        for node in part.nodes.iter().map(|&id| graph.node(id)) {
            read.extend(node.inputs.iter().copied());
            node.each_symbol(&mut |symbol| _ = mentioned.insert(symbol));
        }
    }
    wanted.reverse();
    wanted
}

impl GraphDevice for Split {
    // Weights are the caller's own, not copies: a part's device has the one copy that all its executables share.
    type Tensor = Arc<Weight>;
    type Program = Mutex<Program>;
    /// What the run found.
    type Pending = DimBinding;

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
        let wanted = wanted(&plan, graph);
        let parts = plan.parts.iter().zip(&wanted);
        let parts = parts.map(|(part, wanted)| self.part(part, graph, wanted, &weights));
        let parts = parts.collect::<Result<_>>()?;
        let mut constants = HashMap::new();
        for &id in &graph.outputs {
            if let Op::Constant { data } = &graph.node(id).op {
                let weight = Weight::owned(data.dtype(), data.dims(), data.bytes().to_vec())?;
                constants.insert(id, Arc::new(weight));
            }
        }
        let counted = graph.data_symbols().iter().map(|data| data.symbol).collect();
        Ok(Mutex::new(Program { inputs, parts, outputs: graph.outputs.clone(), constants, counted }))
    }

    fn upload(&self, bytes: &[u8], shape: &Shape) -> Result<Arc<Weight>> {
        Weight::owned(shape.dtype(), &shape.static_dims().unwrap_or_default(), bytes).map(Arc::new)
    }

    fn load(&self, weight: &Arc<Weight>) -> Result<Arc<Weight>> {
        Ok(Arc::clone(weight))
    }

    fn download(&self, tensor: &Arc<Weight>) -> Result<Vec<u8>> {
        Ok(tensor.bytes()?.into_owned())
    }

    fn start(
        &self,
        program: &Mutex<Program>,
        arguments: Vec<Argument<Arc<Weight>>>,
    ) -> Result<(Vec<Arc<Weight>>, DimBinding)> {
        let mut program = program.lock().unwrap_or_else(PoisonError::into_inner);
        let Program { inputs, parts, outputs, constants, .. } = &mut *program;
        let given = arguments.iter().map(|argument| Arc::clone(argument.tensor()));
        let mut known = Known { values: inputs.iter().copied().zip(given).collect(), ..Known::default() };
        known.values.extend(constants.iter().map(|(&id, value)| (id, Arc::clone(value))));
        parts.iter_mut().try_for_each(|part| part.run(&mut known))?;
        let missing = || Error::new(ErrorKind::Internal, "no part computes an output");
        let outputs = outputs.iter().map(|id| known.values.get(id).map(Arc::clone).ok_or_else(missing));
        Ok((outputs.collect::<Result<_>>()?, known.sizes))
    }

    fn found(&self, program: &Mutex<Program>, sizes: &DimBinding) -> Result<Vec<usize>> {
        let program = program.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = || Error::new(ErrorKind::Internal, "no part counted what another one mentions");
        program.counted.iter().map(|&symbol| sizes.get(symbol).ok_or_else(missing)).collect()
    }

    fn finish(&self, _: &Mutex<Program>, _: DimBinding) -> Result<()> {
        Ok(())
    }
}
