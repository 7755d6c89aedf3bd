//! What the compiler must know of a device: the [`Target`] trait.
//!
//! A target answers questions about nodes and operands; it never changes a graph. `claim` is the single
//! source of what a device supports: legalising, the dispatch report, `supports` and the backend's own
//! compiler all read it.

use rlx_ir::lir::{LirModule, Step, View};
use rlx_ir::op::PackFormat;
use rlx_ir::{DType, Graph, Node, NodeId, Op};

use crate::facts::Users;
use crate::options::CompileOptions;

/// Whether a device has a kernel for a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// It has one of its own.
    Native,
    /// It has none, but computes the node, slowly, by its reference semantics: ops from outside that came without
    /// a kernel and without a decomposition.
    Reference,
    /// It has none, because of `.0` (an element type, an attribute); decomposition may help.
    No(String),
}

impl Claim {
    /// Whether the device has a kernel.
    pub fn is_native(&self) -> bool {
        matches!(self, Claim::Native)
    }
}

/// What a device gains by computing an op of f32 in a 16-bit type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gain {
    /// Time, even where operands have to be converted first.
    Time,
    /// Memory traffic: it pays where an operand has the type already.
    Bytes,
    /// No time, because of `.0`.
    Nothing(String),
}

/// Limits of the memory a device gives to one executable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSpec {
    /// The most bytes one pool may have; what does not fit goes to another.
    pub max_bytes: usize,
    /// The most bytes of a buffer: what a step can be bound to at once.
    pub max_buffer_bytes: usize,
    /// The most elements of a buffer: what kernels count to.
    pub max_elements: usize,
    /// Alignment of every buffer in a pool, in bytes; a power of two.
    pub align: usize,
    /// Whether one step may not read and write parts of the same pool. wgpu forbids that a dispatch uses
    /// a buffer read-only and read-write.
    pub exclusive_usage: bool,
    /// The most buffers one step may bind.
    pub max_bindings: usize,
    /// Whether outputs have pool 0 to themselves: the other pools then hold nothing between runs, and
    /// executables that run alternately can share them.
    pub outputs_apart: bool,
}

impl Default for PoolSpec {
    /// Host memory: no limit, cache-line alignment.
    fn default() -> Self {
        PoolSpec {
            max_bytes: usize::MAX,
            max_buffer_bytes: usize::MAX,
            max_elements: usize::MAX,
            align: 64,
            exclusive_usage: false,
            max_bindings: usize::MAX,
            outputs_apart: false,
        }
    }
}

impl PoolSpec {
    /// These limits, and what the options ask of memory. Every plan is made by this, those of a run for larger dimensions too.
    pub fn for_options(self, options: &CompileOptions) -> Self {
        // Where a step may not read and write one pool, values are spread over pools already.
        let outputs_apart = options.shared_arena && !self.exclusive_usage;
        PoolSpec {
            align: self.align.max(options.arena_alignment),
            outputs_apart: self.outputs_apart || outputs_apart,
            ..self
        }
    }
}

/// A device as the compiler sees it.
pub trait Target: Send + Sync {
    /// The name reports use: `cpu`, `vulkan`, ….
    fn name(&self) -> &str;

    /// Whether the device has a kernel for `node`, exact for its element types and attributes.
    fn claim(&self, node: &Node, graph: &Graph) -> Claim;

    /// The most dimensions of a tensor that steps and copies may have.
    fn max_rank(&self) -> usize {
        usize::MAX
    }

    /// Whether views and copies of elements of this type can be made. Where they cannot, movement of packed elements is done
    /// in whole bytes, between two casts.
    fn moves(&self, dtype: DType) -> bool {
        let _ = dtype;
        true
    }

    /// Why the device cannot have this node, which gives or moves a value and needs no kernel ([`Target::claim`] is not asked for
    /// those). `None`: it can, which is so on every device that has memory of its own.
    fn lacks_movement(&self, node: &Node) -> Option<String> {
        let _ = node;
        None
    }

    /// The memory it plans for.
    fn pool_spec(&self) -> PoolSpec {
        PoolSpec::default()
    }

    /// Whether an elementwise `op` may be computed in the region anchored by `anchor` (a node of
    /// `graph`), on each element of its result before it is stored. `None` as anchor: a region of
    /// elementwise ops only.
    fn fuses(&self, anchor: Option<&Node>, op: &Node, graph: &Graph) -> bool;

    /// Whether `members`, an anchor and the elementwise ops behind it, may be one region that gives `results`, those of them that are used
    /// elsewhere. As many ops become part of the region, the nearest first, as make a yes. Always, unless the device says otherwise: a vendor's
    /// library computes certain ops together and gives the last value.
    fn takes_epilogue(&self, members: &[NodeId], results: &[NodeId], graph: &Graph) -> bool {
        let _ = (members, results, graph);
        true
    }

    /// Whether `producer`, which makes an operand of `anchor` (or of another producer of one), may be computed in the region of
    /// `anchor`, as its kernel reads the operand; between a gather and the anchor there may be reshapes and transposes. No, unless the
    /// device says so; the region is claimed besides, with all that is in it.
    fn fuses_producer(&self, producer: &Node, anchor: &Node, graph: &Graph) -> bool {
        let _ = (producer, anchor, graph);
        false
    }

    /// Whether bytes that end the region of `anchor` may become floats again in it, for other bytes to be added as floats before
    /// the sums are quantised: the residual of a quantised net. No, unless the device says so; the region is claimed besides.
    fn fuses_residual(&self, anchor: &Node, graph: &Graph) -> bool {
        let _ = (anchor, graph);
        false
    }

    /// Whether the interpolation between two gathers that ends with `sum` may be computed in one region, which keeps nothing that they
    /// pick. No, unless the device says so; the region is claimed besides.
    fn interpolates(&self, sum: &Node) -> bool {
        let _ = sum;
        false
    }

    /// Whether the reductions `a` and `b` of the same value along the same axes may be computed in one region, which reads it once. No, unless
    /// the device says so.
    fn reduces_together(&self, a: &Node, b: &Node) -> bool {
        let _ = (a, b);
        false
    }

    /// Whether the matmuls `anchor` and `other`, of the same rows, may be computed in one region, which multiplies their results
    /// and keeps neither. No, unless the device says so; the region is claimed besides.
    fn fuses_pair(&self, anchor: &Node, other: &Node, graph: &Graph) -> bool {
        let _ = (anchor, other, graph);
        false
    }

    /// Whether a step of `op` can read its input number `input` through `view`; if not, the compiler puts
    /// a copy in front. Dense views at any offset are always accepted.
    fn reads_view(&self, op: &Op, input: usize, view: &View) -> bool;

    /// Whether a step of `op` can write its results through strided views (destination placement).
    fn writes_view(&self, op: &Op, view: &View) -> bool;

    /// Whether a step of `op` transposes its result to `view` for less than a copy behind it does; it can write the view then
    /// ([`writes_view`](Target::writes_view)). No, unless the device says so.
    fn transposes(&self, op: &Op, view: &View) -> bool {
        let _ = (op, view);
        false
    }

    /// Whether a step of `node` may write its result over its input number `input`, when both have one type and one view: its
    /// kernel reads all that it needs of an element before it writes it. No, unless the device says so.
    fn writes_in_place(&self, node: &Node, input: usize, graph: &Graph) -> bool {
        let _ = (node, input, graph);
        false
    }

    /// Whether every column of `matmul` has the same bits whatever the other columns are, so that matmuls may be merged
    /// under strict numerics, too. Kernels promise it; libraries do not.
    fn columns_are_independent(&self, matmul: &Node) -> bool {
        let _ = matmul;
        true
    }

    /// The memory format the device wants input number `input` of `node` in, when that input is known
    /// before the run (a parameter or constant).
    fn pack_format(&self, node: &Node, input: usize, graph: &Graph) -> Option<PackFormat>;

    /// As [`Target::pack_format`], where bits may change ([`crate::Numerics::Fast`]): also formats for algorithms that round otherwise.
    /// `users`: those of all nodes of the graph.
    fn fast_pack_format(
        &self,
        node: &Node,
        input: usize,
        graph: &Graph,
        users: &Users,
    ) -> Option<PackFormat> {
        let _ = users;
        self.pack_format(node, input, graph)
    }

    /// The instructions that sums of products of this element type run on, for reports; `None` where the device
    /// does not tell.
    fn matmul_instructions(&self, dtype: DType) -> Option<String> {
        let _ = dtype;
        None
    }

    /// What the device gains by computing `node`, which is f32 in `graph`, in this 16-bit type instead. The mixed policies ask, so that they
    /// are never slower than f32. Time, unless the device says otherwise.
    fn gain(&self, node: &Node, graph: &Graph, short: DType) -> Gain {
        let _ = (node, graph, short);
        Gain::Time
    }

    /// The schedule by which the device does a step of a module where nothing was tuned, for reports; `None` where the device does not tell.
    fn schedule(&self, step: &Step, lir: &LirModule) -> Option<String> {
        let _ = (step, lir);
        None
    }

    /// Whether convolutions and pooling whose results are of this type should run with the channels last.
    fn prefers_channels_last(&self, dtype: DType) -> bool {
        let _ = dtype;
        false
    }

    /// Whether `conv`, which has its channels last, is multiplied on matrix units, to which neighbouring channels of 16 bits are copied together,
    /// up to 8 of them at once, or otherwise by several channels at a time. An image of few channels is then given more, where that pays. No, unless the device says so.
    fn multiplies_windows(&self, conv: &Node, graph: &Graph) -> bool {
        let _ = (conv, graph);
        false
    }
}
