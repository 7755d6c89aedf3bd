//! The device as the compiler sees it: what its kernels can do, and who does matmuls and convolutions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use rlx_ir::lir::{LirModule, Step, View};
use rlx_ir::op::{DataFormat, PackFormat};
use rlx_ir::{DType, Graph, Node, NodeId, Op};
use rlx_kernel::KernelTarget;
use rlx_kernel::schedule::{EqualSteps, StepDesc};
use rlx_opt::{Claim, PoolSpec, Target, facts};

use crate::blas::Taken;
use crate::blas::epilogue::Epilogue;
use crate::classes::{self, Class, Classes, Family, SelfCheck};
use crate::few_rows::{self, Fast};
use crate::signal::locked;
use crate::tiles::MatrixUnits;
use crate::{blas, producers, tiles};

/// A device with kernels, and with other means for matmuls and convolutions.
#[derive(Debug, Clone)]
pub(crate) struct GpuTarget {
    pub(crate) kernels: KernelTarget,
    /// Its matrix units.
    pub(crate) matrix_units: Option<MatrixUnits>,
    /// How it divides sums.
    pub(crate) fast: Fast,
    /// The name of the vendor's library, or why there is none; under [`Numerics::Fast`](rlx_opt::Numerics::Fast) alone.
    pub(crate) library: Option<std::result::Result<&'static str, String>>,
    /// Who tries it, where it is tried at all.
    check: Option<Arc<dyn SelfCheck>>,
    /// What it claimed, where that is kept.
    claims: Option<Arc<Mutex<Claims>>>,
}

/// What was claimed of nodes. A claim follows from how schedules see a node, and whether it is a region.
#[derive(Debug, Default)]
struct Claims {
    nodes: EqualSteps,
    made: HashMap<(usize, bool), Claim>,
}

/// Who does a matmul, or a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Library,
    Tiles,
    Kernels,
}

impl GpuTarget {
    /// The device with these means. What its matrix units multiply goes with channels last: neighbours are copied together.
    pub(crate) fn new(
        kernels: KernelTarget,
        matrix_units: Option<MatrixUnits>,
        fast: Fast,
        library: Option<std::result::Result<&'static str, String>>,
    ) -> Self {
        let channels_last = matrix_units.map_or(&[][..], |of| rlx_tile::schedule::multiplied(of.arch));
        let kernels = KernelTarget { channels_last, ..kernels };
        GpuTarget { kernels, matrix_units, fast, library, check: None, claims: None }
    }

    /// The same of a device that is tried for each class of kernels before it is used.
    pub(crate) fn tried_by(self, check: Option<Arc<dyn SelfCheck>>) -> Self {
        GpuTarget { check, ..self }
    }

    /// The same for one module: to say whether there is a kernel for a node takes as long as making it, and a model has few distinct nodes.
    pub(crate) fn keeping_claims(self) -> Self {
        GpuTarget { claims: Some(Arc::default()), ..self }
    }

    fn claimed(&self, node: &Node, graph: &Graph) -> Claim {
        let whole = |of: MatrixUnits| {
            let limits = &self.kernels.limits;
            self.has_lists(node, graph) && tiles::takes_whole(node, graph, of, limits)
        };
        let left_out = |of: MatrixUnits| self.is_left_out(node, graph, of);
        match self.units_for(node) {
            Some(of) if whole(of) => Claim::Native,
            Some(of) if left_out(of) => Claim::No(format!("tiles of {} do not compute it", of.arch.name())),
            _ => self.claimed_by_kernels(node, graph),
        }
    }

    /// The claim of kernels, after the device was tried for those of the class.
    fn claimed_by_kernels(&self, node: &Node, graph: &Graph) -> Claim {
        let claim = self.kernels.claim(node, graph);
        let Some((check, class)) = self.check.as_ref().zip(classes::of_kernels(node, &self.kernels)) else {
            return claim;
        };
        let by_tiles = |of: MatrixUnits| tiles::takes(node, graph, of, &self.kernels.limits);
        let has_kernels = || class != Class::Tiled || !self.units().is_some_and(by_tiles);
        let is_of = || classes::share(node, graph, &self.kernels) && has_kernels();
        if !claim.is_native() || !check.is_known(class) && !is_of() {
            return claim;
        }
        // Matmuls have other kernels.
        let is_wrong = check.tried(&[class]).has(class) && class != Class::Tiled && is_of();
        if is_wrong { Claim::No(format!("the device computes {class} wrongly")) } else { claim }
    }

    /// The matrix units for a node, after the device was tried for the classes of its programs, with what is put aside.
    fn units_for(&self, node: &Node) -> Option<MatrixUnits> {
        if let Some(check) = &self.check {
            check.tried(&of_programs(node, self.matrix_units, &self.fast, &self.kernels));
        }
        self.units()
    }

    /// The matrix units with what is put aside by now.
    fn units(&self) -> Option<MatrixUnits> {
        let aside = self.aside();
        self.matrix_units.map(|units| MatrixUnits { aside, ..units })
    }

    /// What the device was found to compute wrongly by now.
    fn aside(&self) -> Classes {
        self.check.as_ref().map_or(Classes::default(), |check| check.tried(&[]))
    }

    /// How sums are divided, without what is put aside by now.
    fn fast(&self) -> Fast {
        self.fast.without(self.aside())
    }

    /// Whether there may be the lists that a node's program looks rows up in: in the run, where a plan has scratch memory that a step within a step writes and reads.
    fn has_lists(&self, node: &Node, graph: &Graph) -> bool {
        let is_run = || facts::fixed_nodes(graph).get(node.id.index()).is_some_and(|fixed| !fixed);
        node.op != Op::GroupedMatMul || !self.kernels.pool.exclusive_usage && is_run()
    }

    fn uses_library(&self) -> bool {
        matches!(self.library, Some(Ok(_)))
    }

    fn matmul(&self, node: &Node, graph: &Graph) -> By {
        let on_units = |of: MatrixUnits| of.multiplies(node) && !self.is_left_out(node, graph, of);
        match node.op {
            Op::MatMulBlocks if self.units_for(node).is_some_and(on_units) => By::Tiles,
            Op::MatMul if self.uses_library() && blas::takes(node, graph) => By::Library,
            Op::MatMul if self.units_for(node).is_some_and(on_units) => By::Tiles,
            Op::Conv { .. } if self.units_for(node).is_some_and(|of| tiles::takes_conv(node, graph, of)) => {
                By::Tiles
            }
            _ => By::Kernels,
        }
    }

    /// Whether units multiply the type of a node, but no program does what is special about it: weights in blocks that tiles do not unpack, or an operand that
    /// a region computes. Its kernels would do what the units do faster with what is made apart.
    fn is_left_out(&self, node: &Node, graph: &Graph, of: MatrixUnits) -> bool {
        let special = match &node.op {
            Op::MatMulBlocks => of.multiplies(node),
            Op::Region { body } => body.graph.nodes().iter().any(|anchor| {
                let on_units = || of.multiplies(anchor);
                let computed = || anchor.inputs.iter().any(|&id| body.graph.node(id).op.is_elementwise());
                match anchor.op {
                    Op::MatMulBlocks => on_units(),
                    Op::MatMul => on_units() && computed(),
                    _ => false,
                }
            }),
            _ => false,
        };
        special && !tiles::takes(node, graph, of, &self.kernels.limits)
    }
}

/// The classes of which a node's programs and divided sums may be.
fn of_programs(node: &Node, units: Option<MatrixUnits>, fast: &Fast, kernels: &KernelTarget) -> Vec<Class> {
    let Some((family, dtype)) = Family::of_node(node) else { return Vec::new() };
    let mut found = Vec::new();
    if let Some(units) = units.filter(|units| rlx_tile::schedule::multiplies(units.arch, dtype)) {
        found.extend(Class::levels(family, dtype, units.arch));
        if let Some(family) = family.in_parts().filter(|_| fast.division.is_some()) {
            found.extend(Class::levels(family, dtype, units.arch));
        }
    }
    if fast.takes_few_rows(kernels) && !matches!(family, Family::Attention | Family::Pages | Family::Grouped)
    {
        found.push(Class::FewRows);
    }
    found
}

/// Whether an element of this type is rounded from the `f32` that a tile program has.
fn is_stored_by_tiles(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

impl Target for GpuTarget {
    fn name(&self) -> &str {
        self.kernels.name()
    }

    fn claim(&self, node: &Node, graph: &Graph) -> Claim {
        // Whether there may be lists, equal nodes do not say.
        let kept = self.claims.as_ref().filter(|_| node.op != Op::GroupedMatMul);
        let (Some(claims), Ok(desc)) = (kept, StepDesc::of_node(node, graph)) else {
            return self.claimed(node, graph);
        };
        let mut claims = locked(claims);
        let of = (claims.nodes.find(desc).0, matches!(node.op, Op::Region { .. }));
        claims.made.entry(of).or_insert_with(|| self.claimed(node, graph)).clone()
    }

    fn pool_spec(&self) -> PoolSpec {
        self.kernels.pool_spec()
    }

    fn fuses(&self, anchor: Option<&Node>, op: &Node, graph: &Graph) -> bool {
        let takes = anchor.is_none_or(|anchor| match self.matmul(anchor, graph) {
            By::Library => Epilogue::may_have(&op.op),
            By::Tiles => is_stored_by_tiles(op.shape.dtype()),
            By::Kernels => true,
        });
        takes && self.kernels.fuses(anchor, op, graph)
    }

    /// A library computes certain epilogues alone, and stores the last value of one.
    fn takes_epilogue(&self, members: &[NodeId], results: &[NodeId], graph: &Graph) -> bool {
        let by_library = |&anchor: &NodeId| self.matmul(graph.node(anchor), graph) == By::Library;
        let is_whole = |of: Epilogue| results == [of.last];
        !members.first().is_some_and(by_library)
            || Epilogue::of(members.iter().map(|&id| graph.node(id)), graph).is_some_and(is_whole)
    }

    /// A library reads memory. Tiles of attention find keys and values in pages; those of a matmul compute what makes an operand where that pays.
    fn fuses_producer(&self, producer: &Node, anchor: &Node, graph: &Graph) -> bool {
        if let Op::Attention { .. } = anchor.op {
            // Which it finds, the claim of the region says.
            return self.matrix_units.is_some() && matches!(producer.op, Op::Gather { axis: 0 });
        }
        let pays = |of: MatrixUnits| producers::pays(producer, anchor, graph, of.arch);
        match self.matmul(anchor, graph) {
            By::Library => false,
            By::Tiles => self.units_for(anchor).is_some_and(pays),
            By::Kernels => self.kernels.fuses_producer(producer, anchor, graph),
        }
    }

    /// Where rows are looked up, tables and lists are dense.
    fn reads_view(&self, op: &Op, input: usize, view: &View) -> bool {
        let looked_up = |op: &Op| match op {
            Op::Region { body } if tiles::is_attention(op) => {
                let id = body.graph.inputs().nth(input).map(|n| n.id);
                let gathers = body.graph.nodes().iter().filter(|n| matches!(n.op, Op::Gather { .. }));
                id.is_some_and(|id| gathers.into_iter().any(|n| n.inputs.contains(&id)))
            }
            // Matrices may be anywhere.
            Op::GroupedMatMul => input != 1,
            _ => false,
        };
        (!looked_up(op) || view.is_dense()) && self.kernels.reads_view(op, input, view)
    }

    fn writes_view(&self, op: &Op, view: &View) -> bool {
        (*op != Op::GroupedMatMul || view.is_dense()) && self.kernels.writes_view(op, view)
    }

    fn writes_in_place(&self, node: &Node, input: usize, graph: &Graph) -> bool {
        self.kernels.writes_in_place(node, input, graph)
    }

    /// How a library sums, and how a sum is divided, may depend on how many columns there are.
    fn columns_are_independent(&self, matmul: &Node) -> bool {
        !self.uses_library()
            && !self.fast.divides(&self.kernels)
            && self.kernels.columns_are_independent(matmul)
    }

    fn pack_format(&self, node: &Node, input: usize, graph: &Graph) -> Option<PackFormat> {
        self.kernels.pack_format(node, input, graph)
    }

    fn prefers_channels_last(&self, dtype: DType) -> bool {
        self.kernels.prefers_channels_last(dtype)
    }

    /// By a tile program: kernels copy element by element.
    fn multiplies_windows(&self, conv: &Node, graph: &Graph) -> bool {
        let is_last = matches!(conv.op, Op::Conv { format: DataFormat::ChannelsLast, .. });
        is_last && self.prefers_channels_last(conv.shape.dtype()) && self.matmul(conv, graph) == By::Tiles
    }

    fn schedule(&self, step: &Step, lir: &LirModule) -> Option<String> {
        let fast = self.fast();
        let few = fast.few_rows(step, lir, &self.kernels).unwrap_or_default();
        let division = fast.division.as_ref();
        let tiles = || self.units().and_then(|of| tiles::name(step, lir, of, &self.kernels, division));
        let kernels = || classes::without(&self.kernels, self.aside());
        let usual = || tiles().or_else(|| kernels().schedule(step, lir));
        let own = match few.first() {
            Some(few) if few_rows::is_always_taken(few) => few.name.clone(),
            Some(few) => format!("{}, few rows by {}", usual()?, few.name),
            None => usual()?,
        };
        match &self.library {
            Some(Ok(library)) => match Taken::of(step, &lir.graph) {
                Some(taken) => Some(format!("{library}{taken}, else {own}")),
                None => Some(own),
            },
            _ => Some(own),
        }
    }

    fn matmul_instructions(&self, dtype: DType) -> Option<String> {
        let fast = self.fast();
        let divides = fast.takes_few_rows(&self.kernels) && rlx_kernel::schedule::divides_sums_of(dtype);
        let few = if divides { ", those of few rows by sums that workgroups divide" } else { "" };
        let tiles = || {
            let arch = self.units()?.for_family(Family::MatMul, dtype)?.arch;
            let divided = if fast.division.is_some() { ", long sums of small results in parts" } else { "" };
            let instruction = rlx_tile::schedule::instruction(arch, dtype)?;
            Some(format!("own kernels, {instruction} of {}{divided}{few}", arch.name()))
        };
        match &self.library {
            Some(Ok(name)) if blas::multiplies(dtype) => Some((*name).to_owned()),
            Some(Err(why)) if blas::multiplies(dtype) => {
                Some(format!("{}: {why}", tiles().unwrap_or_else(|| format!("own kernels{few}"))))
            }
            _ => tiles().or_else(|| match self.kernels.matmul_instructions(dtype) {
                None if divides => Some(format!("own kernels{few}")),
                of => of,
            }),
        }
    }
}
