//! A graph compiler's device as RLX's compiler sees it.

use rlx_ir::lir::View;
use rlx_ir::op::PackFormat;
use rlx_ir::{DType, Graph, Node, Op};
use rlx_opt::{Claim, Target};

/// What a device says of a node.
type Claims = dyn Fn(&Node, &Graph) -> Claim + Send + Sync;

/// The target of a device that compiles whole graphs: it claims what its table says, so that the rest is decomposed, and leaves
/// fusion, layouts and memory to the device's own compiler.
///
/// Ops that find out how large their results are ([`Op::data_symbol`]) are claimed only where the device can find sizes
/// ([`GraphTarget::with_found_sizes`]): a vendor's program has fixed ones.
pub struct GraphTarget {
    name: String,
    claims: Box<Claims>,
    moves: fn(DType) -> bool,
    exceptions: fn(&Node) -> Option<String>,
    max_rank: usize,
    finds_sizes: bool,
    once: fn(&Node) -> bool,
}

impl GraphTarget {
    /// A device of this name. `claims` is asked for each node that computes something, and is exact for element types and
    /// attributes; movement (reshapes, transposes, slices, expansions, concatenations) a graph compiler always has.
    pub fn new(
        name: impl Into<String>,
        claims: impl Fn(&Node, &Graph) -> Claim + Send + Sync + 'static,
    ) -> Self {
        GraphTarget {
            name: name.into(),
            claims: Box::new(claims),
            moves: |dtype| dtype.bits() >= 8,
            exceptions: |_| None,
            max_rank: usize::MAX,
            finds_sizes: false,
            once: |_| true,
        }
    }

    /// The element types that movement has; without this, those of whole bytes.
    #[must_use]
    pub fn with_moves(mut self, moves: fn(DType) -> bool) -> Self {
        self.moves = moves;
        self
    }

    /// Why some node of movement, or some value that is given, cannot be on the device after all; without this, all can.
    #[must_use]
    pub fn with_exceptions(mut self, exceptions: fn(&Node) -> Option<String>) -> Self {
        self.exceptions = exceptions;
        self
    }

    /// Programs may have ops that find out how large their results are: see [`super::GraphDevice::found`].
    #[must_use]
    pub fn with_found_sizes(mut self) -> Self {
        self.finds_sizes = true;
        self
    }

    /// Which nodes are computed once, ahead of the runs, where they depend on weights alone; without this, all.
    #[must_use]
    pub fn with_once(mut self, once: fn(&Node) -> bool) -> Self {
        self.once = once;
        self
    }

    /// Whether a node that depends on weights alone is computed ahead of the runs.
    pub(super) fn computes_once(&self, node: &Node) -> bool {
        (self.once)(node)
    }

    /// The most dimensions of a tensor.
    #[must_use]
    pub fn with_max_rank(mut self, rank: usize) -> Self {
        self.max_rank = rank;
        self
    }
}

impl Target for GraphTarget {
    fn name(&self) -> &str {
        &self.name
    }

    fn claim(&self, node: &Node, graph: &Graph) -> Claim {
        if node.op.data_symbol().is_some() && !self.finds_sizes {
            return Claim::No("how large its result is is known in the run only".into());
        }
        if node.results().iter().any(|shape| shape.rank() > self.max_rank) {
            return Claim::No(format!("tensors have at most {} dimensions", self.max_rank));
        }
        (self.claims)(node, graph)
    }

    fn max_rank(&self) -> usize {
        self.max_rank
    }

    fn moves(&self, dtype: DType) -> bool {
        (self.moves)(dtype)
    }

    fn lacks_movement(&self, node: &Node) -> Option<String> {
        (self.exceptions)(node)
    }

    fn fuses(&self, _: Option<&Node>, _: &Node, _: &Graph) -> bool {
        false
    }

    // No step runs by itself, so views cost nothing.
    fn reads_view(&self, _: &Op, _: usize, _: &View) -> bool {
        true
    }

    fn writes_view(&self, _: &Op, _: &View) -> bool {
        true
    }

    fn writes_in_place(&self, node: &Node, input: usize, _: &Graph) -> bool {
        node.op.def().updates() == Some(input)
    }

    fn columns_are_independent(&self, _: &Node) -> bool {
        false
    }

    fn pack_format(&self, _: &Node, _: usize, _: &Graph) -> Option<PackFormat> {
        None
    }
}
