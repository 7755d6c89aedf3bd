//! Which part of a graph runs where.
//!
//! A node goes to the device if the device can compute it, by a kernel or by decomposition, and to the CPU otherwise. Nodes are
//! then grouped, in an order that respects their inputs, into as few parts as possible that alternate between the two. Where the
//! prices of both are known, a part of the device whose transfers cost more than the device saves goes to the CPU, too.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use rlx_backend::Backend;
use rlx_backend::cost::{BackendCostModel, works_of_graph};
use rlx_driver::DeviceId;
use rlx_ir::{Error, ErrorKind, Graph, Node, NodeId, Op, OpKind, Result, Shape};
use rlx_opt::pipeline::PassContext;
use rlx_opt::{CompileOptions, Target};

use crate::device_ext::computes;
use crate::machine::typical_dims;
use crate::panic_guard;

/// Graphs with more parts than this keep the first assignment: each part that might move costs a pass over the graph.
const MOST_PRICED: usize = 64;

/// One of the two devices.
pub(super) struct Side {
    pub(super) device: DeviceId,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) target: Arc<dyn Target>,
    /// Where prices come from that the backend does not bring.
    pub(super) prices: PricesOf,
}

/// Gives the prices of a device, measured if necessary.
pub type PricesOf = fn(DeviceId) -> Result<Arc<dyn BackendCostModel>>;

impl Side {
    /// Whether it can compute the node, as part of this graph.
    fn computes(&self, node: &Node, graph: &Graph, options: &CompileOptions) -> bool {
        let most = self.target.max_rank();
        let ranks = node.results().iter().chain(node.inputs.iter().map(|&id| graph.shape(id)));
        let context = PassContext { target: &*self.target, options, is_body: false };
        ranks.into_iter().all(|shape| shape.rank() <= most) && computes(node, graph, &context)
    }

    /// Its prices: the backend's own, or those that were measured, now if necessary. Asked for where a graph is divided only.
    fn prices(&self) -> Option<Arc<dyn BackendCostModel>> {
        let own = panic_guard::call(self.device, "describing its prices", || Ok(self.backend.cost_model()));
        let prices = own.and_then(|own| own.map_or_else(|| (self.prices)(self.device), Ok));
        prices
            .inspect_err(|e| tracing::debug!(device = %self.device, error = %e, "its prices are not known"))
            .ok()
    }
}

/// Where a node runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Device,
    Cpu,
}

impl Place {
    fn other(self) -> Self {
        match self {
            Place::Device => Place::Cpu,
            Place::Cpu => Place::Device,
        }
    }
}

/// Nodes that run on one device, one part after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct SplitPart {
    /// The device.
    pub device: DeviceId,
    /// Its nodes, in an order that respects their inputs. Inputs, parameters and constants belong to no part.
    pub nodes: Vec<NodeId>,
    pub(super) place: Place,
}

/// A value that goes from one device to the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Crossing {
    /// The node that computes it.
    pub value: NodeId,
    /// The part that computes it, by index in [`SplitPlan::parts`].
    pub from: usize,
    /// The part that reads it.
    pub to: usize,
    /// Element type and dimensions.
    pub shape: Shape,
}

/// How a graph is divided between a device and the CPU.
#[derive(Debug, Clone, PartialEq)]
pub struct SplitPlan {
    /// In the order in which they run.
    pub parts: Vec<SplitPart>,
    /// What goes from one to another.
    pub crossings: Vec<Crossing>,
    /// The ops that only the CPU can compute, with their numbers.
    pub unsupported: BTreeMap<OpKind, usize>,
}

impl SplitPlan {
    /// Bytes that go from one device to the other in a run; `None` where a dimension is open.
    pub fn crossing_bytes(&self) -> Option<usize> {
        self.crossings.iter().map(|crossing| crossing.shape.size_bytes()).sum()
    }
}

/// A line for each part and for each value that crosses.
impl fmt::Display for SplitPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in self.parts.iter().enumerate() {
            let (nodes, s) = (part.nodes.len(), if part.nodes.len() == 1 { "" } else { "s" });
            writeln!(f, "part {i} on {}: {nodes} node{s}", part.device)?;
            for crossing in self.crossings.iter().filter(|crossing| crossing.to == i) {
                let Crossing { value, from, shape, .. } = crossing;
                write!(f, "  reads {value} of part {from}: {shape}")?;
                match shape.size_bytes() {
                    Some(bytes) => writeln!(f, ", {bytes} bytes")?,
                    None => writeln!(f)?,
                }
            }
        }
        Ok(())
    }
}

/// Divides a graph.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for a node that neither can compute.
pub(super) fn plan(graph: &Graph, device: &Side, cpu: &Side, options: &CompileOptions) -> Result<SplitPlan> {
    let mut unsupported = BTreeMap::new();
    let mut places: Vec<Option<Place>> = Vec::with_capacity(graph.len());
    let mut movable = Vec::with_capacity(graph.len());
    for node in graph.nodes() {
        let (place, may_move) = match &node.op {
            op if is_given(op) => (None, true),
            // The other results of a node are where it is.
            Op::Result { .. } => {
                let of = node.inputs[0].index();
                (places[of], movable[of])
            }
            op => {
                let on_cpu = cpu.computes(node, graph, options);
                if device.computes(node, graph, options) {
                    (Some(Place::Device), on_cpu)
                } else if on_cpu {
                    *unsupported.entry(op.kind()).or_default() += 1;
                    (Some(Place::Cpu), true)
                } else {
                    let message =
                        format!("neither {} nor {} computes {}", device.device, cpu.device, op.kind());
                    return Err(graph.locate(node.id, Error::new(ErrorKind::Unsupported, message)));
                }
            }
        };
        places.push(place);
        movable.push(may_move);
    }
    let mut groups = grouped(graph, &places);
    let on_device = groups.iter().filter(|(place, _)| *place == Place::Device).count();
    if on_device > 1
        && groups.len() <= MOST_PRICED
        && let (Some(device), Some(cpu)) = (device.prices(), cpu.prices())
        && let Some(prices) = Prices::of(graph, &*device, &*cpu)
    {
        groups = prices.moved(graph, &mut places, &movable, groups);
    }
    let parts = groups.into_iter().map(|(place, nodes)| {
        let device = if place == Place::Device { device.device } else { cpu.device };
        SplitPart { device, nodes, place }
    });
    let parts: Vec<SplitPart> = parts.collect();
    Ok(SplitPlan { crossings: crossings(graph, &parts), parts, unsupported })
}

/// Whether a node is given to a run, wherever it is read.
pub(super) fn is_given(op: &Op) -> bool {
    matches!(op, Op::Input { .. } | Op::Param { .. } | Op::Constant { .. })
}

type Groups = Vec<(Place, Vec<NodeId>)>;

/// The nodes in alternating groups: the fewer of the two orders that begin on either side.
fn grouped(graph: &Graph, places: &[Option<Place>]) -> Groups {
    let (a, b) = (grouped_from(graph, places, Place::Device), grouped_from(graph, places, Place::Cpu));
    if b.len() < a.len() { b } else { a }
}

/// Takes all that can run on one side, then all that can run on the other, until nothing is left. A node waits for what it reads,
/// and for what counts a dimension that it mentions.
fn grouped_from(graph: &Graph, places: &[Option<Place>], first: Place) -> Groups {
    let mut done: Vec<bool> = places.iter().map(Option::is_none).collect();
    let counts: HashMap<u32, NodeId> =
        graph.nodes().iter().filter_map(|node| Some((node.op.data_symbol()?, node.id))).collect();
    let is_counted = |node: &Node, done: &[bool]| {
        let mut counted = true;
        let by = |symbol| counts.get(&symbol).filter(|&&by| by != node.id);
        node.each_symbol(&mut |symbol| counted &= by(symbol).is_none_or(|by| done[by.index()]));
        counted
    };
    let mut left = done.iter().filter(|done| !**done).count();
    let (mut place, mut groups) = (first, Groups::new());
    while left > 0 {
        let mut nodes = Vec::new();
        for node in graph.nodes() {
            let at = node.id.index();
            let ready = !done[at] && places[at] == Some(place);
            let ready = ready && node.inputs.iter().all(|id| done[id.index()]);
            if ready && (counts.is_empty() || is_counted(node, &done)) {
                done[at] = true;
                nodes.push(node.id);
            }
        }
        left -= nodes.len();
        if !nodes.is_empty() {
            groups.push((place, nodes));
        }
        place = place.other();
    }
    groups
}

fn crossings(graph: &Graph, parts: &[SplitPart]) -> Vec<Crossing> {
    let mut part_of = vec![None; graph.len()];
    for (i, part) in parts.iter().enumerate() {
        part.nodes.iter().for_each(|id| part_of[id.index()] = Some(i));
    }
    let mut found = BTreeSet::new();
    for (to, part) in parts.iter().enumerate() {
        for &value in part.nodes.iter().flat_map(|&id| &graph.node(id).inputs) {
            if let Some(from) = part_of[value.index()].filter(|&from| parts[from].place != part.place) {
                found.insert((to, value.index(), from, value));
            }
        }
    }
    let crossing = |(to, _, from, value)| Crossing { value, from, to, shape: graph.shape(value).clone() };
    found.into_iter().map(crossing).collect()
}

/// What nodes and transfers cost, in nanoseconds.
struct Prices<'p> {
    device: &'p dyn BackendCostModel,
    cpu: &'p dyn BackendCostModel,
    /// By node: on the device, on the CPU.
    nodes: Vec<(f64, f64)>,
    /// By node: the size of its result.
    bytes: Vec<f64>,
}

impl<'p> Prices<'p> {
    /// The prices at the graph's sizes; open dimensions have [typical](typical_dims) ones. `None` where those do not fit.
    fn of(graph: &Graph, device: &'p dyn BackendCostModel, cpu: &'p dyn BackendCostModel) -> Option<Self> {
        let bound = graph.try_bind(&typical_dims(graph)).ok()?;
        let mut works = works_of_graph(&bound).into_iter();
        let price = |node: &Node| match &node.op {
            op if is_given(op) || matches!(op, Op::Result { .. }) => (0.0, 0.0),
            _ => works.next().map_or((0.0, 0.0), |work| (device.step_ns(&work), cpu.step_ns(&work))),
        };
        let nodes = bound.nodes().iter().map(price).collect();
        let bytes = bound.nodes().iter().map(|node| node.shape.size_bytes().unwrap_or(0) as f64).collect();
        Some(Prices { device, cpu, nodes, bytes })
    }

    /// A run of these groups.
    fn total(&self, graph: &Graph, groups: &Groups) -> f64 {
        let mut group_of = vec![usize::MAX; graph.len()];
        for (i, (_, nodes)) in groups.iter().enumerate() {
            nodes.iter().for_each(|id| group_of[id.index()] = i);
        }
        let is_weight = |id: NodeId| matches!(graph.node(id).op, Op::Param { .. } | Op::Constant { .. });
        // What each group reads from elsewhere, and what others read of it, each value once.
        let (mut read, mut written) = (BTreeSet::new(), BTreeSet::new());
        for node in graph.nodes().iter().filter(|node| !is_given(&node.op)) {
            let to = group_of[node.id.index()];
            for &id in node.inputs.iter().filter(|&&id| group_of[id.index()] != to && !is_weight(id)) {
                read.insert((to, id.index()));
                written.insert((group_of[id.index()], id.index()));
            }
        }
        written.extend(graph.outputs.iter().map(|id| (group_of[id.index()], id.index())));
        let run = |(i, (place, nodes)): (usize, &(Place, Vec<NodeId>))| {
            let of_group = |set: &BTreeSet<(usize, usize)>| -> f64 {
                set.range((i, 0)..(i + 1, 0)).map(|&(_, value)| self.bytes[value]).sum()
            };
            let costs = nodes.iter().map(|id| self.nodes[id.index()]);
            match place {
                Place::Device => {
                    self.device.run_ns(of_group(&read) + of_group(&written)) + costs.map(|c| c.0).sum::<f64>()
                }
                Place::Cpu => self.cpu.run_ns(0.0) + costs.map(|c| c.1).sum::<f64>(),
            }
        };
        groups.iter().enumerate().map(run).sum()
    }

    /// Moves groups to the CPU, from the first to the last, as long as that makes the run cheaper. One of the device's stays: who
    /// asked for the device has it used.
    fn moved(
        &self,
        graph: &Graph,
        places: &mut Vec<Option<Place>>,
        movable: &[bool],
        mut groups: Groups,
    ) -> Groups {
        let (mut total, mut at) = (self.total(graph, &groups), 0);
        while at < groups.len() {
            let (place, nodes) = &groups[at];
            let others = groups.iter().filter(|(place, _)| *place == Place::Device).count() > 1;
            if *place == Place::Device && others && nodes.iter().all(|id| movable[id.index()]) {
                let mut tried = places.clone();
                nodes.iter().for_each(|id| tried[id.index()] = Some(Place::Cpu));
                let regrouped = grouped(graph, &tried);
                let cost = self.total(graph, &regrouped);
                if cost < total {
                    // What comes before is as it was, but for a group that this one is merged into.
                    (total, groups, *places) = (cost, regrouped, tried);
                    at = at.saturating_sub(1);
                    continue;
                }
            }
            at += 1;
        }
        groups
    }
}
