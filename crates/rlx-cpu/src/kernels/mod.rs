//! The kernels of steps: what the CPU claims and how it computes it.
//!
//! [`TABLE`] has one line for each op kind; `claim` and `compile` of a kind stand side by side in its
//! kernel's module, so nothing is claimed that has no kernel. A compiled [`StepKernel`] is bound to numbers
//! when the dimensions change, and then run any number of times without looking anything up.

mod arg_reduce;
pub(crate) mod attention;
pub(crate) mod bands;
mod bit_cast;
#[cfg(feature = "blas")]
mod blas_matmul;
mod cast;
mod control;
pub(crate) mod conv;
pub(crate) mod conv_pool_generic;
mod conv_transpose;
mod conv_transpose_rows;
pub(crate) mod copy;
mod count_up;
mod cumulative;
pub(crate) mod custom;
mod det;
mod distances;
pub(crate) mod elementwise;
pub(crate) mod epilogue;
pub(crate) mod experts;
pub(crate) mod extremes;
mod gather;
mod gather_elements;
pub(crate) mod gather_pair;
mod grid_sample;
mod group_norm;
pub(crate) mod grouped;
mod indices;
pub(crate) mod integer;
pub(crate) mod interpolation;
mod iota;
mod lines;
pub(crate) mod matmul;
pub(crate) mod matmul_blocks;
pub(crate) mod matmul_pair;
mod moves;
mod non_max_suppression;
mod non_zero;
pub(crate) mod norm;
mod one_hot;
mod order;
pub(crate) mod pack;
mod pad;
pub(crate) mod pool;
mod pool_lines;
mod pool_planes;
pub(crate) mod producer;
pub(crate) mod quant;
pub(crate) mod recurrent;
pub(crate) mod reduce;
pub(crate) mod region;
pub(crate) mod requantise;
mod roi;
mod rope;
mod scalar;
mod scatter;
pub(crate) mod squares;
mod top_k;
mod transpose;
mod trees;
mod triangle;
mod unique;
mod update;
mod window;

use std::ops::Range;
use std::sync::Arc;

pub(crate) use elementwise::Programs;

use rlx_backend::ExecutableGraph;
use rlx_backend::extents::{Ex, ExtentTable, Values};
use rlx_ir::lir::{Step, StepKind};
use rlx_ir::op::PackFormat;
use rlx_ir::progress::Progress;
use rlx_ir::{Dim, Error, ErrorKind, Graph, LirModule, Node, Op, OpKind, Result};
use rlx_opt::Claim;

use crate::gemm::{Ahead, Next, TileSizes};
use crate::isa::Isa;
use crate::journal::Journal;
use crate::layout::{At, Bound};
use crate::memory::Place;
use crate::pool::Run;
use crate::stores::{self, Stores};
use bands::{LineForm, Part};

/// What compiling a step may look at.
pub(crate) struct CompileCx<'a> {
    pub(crate) step: &'a Step,
    pub(crate) module: &'a LirModule,
    pub(crate) table: &'a mut ExtentTable,
    pub(crate) isa: Isa,
    /// Makes a program of a body's module.
    pub(crate) body: &'a dyn Fn(LirModule) -> Result<Arc<dyn BodyProgram>>,
    /// The tile programs of the steps before.
    pub(crate) programs: &'a mut Programs,
}

impl CompileCx<'_> {
    /// The node of the step.
    pub(crate) fn node(&self) -> &Node {
        self.module.graph.node(self.step.node)
    }

    /// The place of an attribute's extent.
    pub(crate) fn extent(&mut self, e: rlx_ir::Extent) -> Ex {
        self.table.add(e)
    }
}

/// A body of a choice or a loop as a program, which kernels run and know nothing else of.
pub(crate) trait BodyProgram: Send + Sync {
    /// How many inputs it has.
    fn inputs(&self) -> usize;

    /// An executable of it that has run nothing yet.
    ///
    /// # Errors
    /// Memory that cannot be had.
    fn executable(self: Arc<Self>) -> Result<Box<dyn BodyExecutable>>;
}

/// What runs a body.
pub(crate) trait BodyExecutable: ExecutableGraph {
    /// A dimension of an output, as the last run had it.
    ///
    /// # Errors
    /// No such output or axis, or nothing ran.
    fn output_dim(&self, output: usize, axis: usize) -> Result<usize>;
}

/// What binding a step may look at.
pub(crate) struct BindCx<'a> {
    pub(crate) inputs: &'a [Bound],
    pub(crate) outputs: &'a [Bound],
    /// The packed formats that inputs are in.
    pub(crate) formats: &'a [Option<PackFormat>],
    pub(crate) values: Values<'a>,
    /// The number of the shared scratch's base.
    pub(crate) scratch: u32,
}

impl BindCx<'_> {
    /// Whether an input is packed in this format rather than as its graph has it; an error where it is in another one.
    pub(crate) fn is_packed(&self, input: usize, format: PackFormat) -> Result<bool> {
        match self.formats[input] {
            Some(other) if other != format => Err(wrong_format(other)),
            packed => Ok(packed.is_some()),
        }
    }
}

/// The error of a kernel that is given weights in a format it does not read.
pub(crate) fn wrong_format(format: PackFormat) -> Error {
    Error::new(
        ErrorKind::InvalidGraph,
        format!("weights in the format {format}, which this step does not read"),
    )
}

/// What a bound step needs while it runs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Needs {
    /// Scratch bytes for each thread.
    pub(crate) thread_scratch: usize,
    /// Scratch bytes for the step.
    pub(crate) shared_scratch: usize,
    /// Roughly how many nanoseconds it takes on one core.
    pub(crate) nanos: f64,
}

impl Needs {
    /// No scratch.
    pub(crate) fn time(nanos: f64) -> Needs {
        Needs { nanos, ..Needs::default() }
    }
}

/// The packed weights a step reads first, for the step before it to prefetch.
pub(crate) type Upcoming = Option<(At, usize, usize)>;

/// A step's kernel.
pub(crate) trait StepKernel: Send + Sync + CloneKernel {
    /// Puts concrete extents in. Allocates nothing when it was bound before.
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs>;

    /// Computes the step.
    ///
    /// # Safety
    /// The bases must cover every bound operand of the step, and nothing else may use them meanwhile.
    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()>;

    /// Saves what the step is about to replace in an operand that it updates in place; an error where it would report one.
    ///
    /// # Safety
    /// As [`StepKernel::run`].
    unsafe fn journal(&self, cx: &RunCx<'_, '_>, journal: &mut Journal) -> Result<()> {
        let _ = (cx, journal);
        Err(Error::new(ErrorKind::Internal, "a step that replaces no part of an operand"))
    }

    /// How it computes lines of an image alone, if it can as it is bound.
    fn lines(&self) -> Option<LineForm> {
        None
    }

    /// Makes the copies that its lines are computed from, where it has [`StepKernel::lines`] and takes none.
    ///
    /// # Safety
    /// As [`StepKernel::run`].
    unsafe fn prepare(&self, cx: &mut RunCx<'_, '_>) {
        let _ = cx;
    }

    /// What it does to lines, if it has [`StepKernel::lines`].
    fn part(&self, cx: &RunCx<'_, '_>) -> Option<Part> {
        let _ = cx;
        None
    }

    /// The packed weights it reads: place, depth and panels.
    fn weights(&self) -> Upcoming {
        None
    }

    /// Learns which weights the next step reads.
    fn set_next(&mut self, _next: Upcoming) {}

    /// Takes other tile sizes, if it is a matmul or convolution on the packed kernel.
    fn set_tile_sizes(&mut self, _cut: TileSizes) {}

    /// The state of its experts, if it has any.
    fn experts(&self) -> Option<&experts::Shared> {
        None
    }

    /// Uses the state `of` from now on, if it has experts.
    fn share_experts(&mut self, _of: &experts::Shared) {}
}

/// Cloning behind a box: each executable has its own bound state.
pub(crate) trait CloneKernel {
    /// A copy.
    fn boxed(&self) -> Box<dyn StepKernel>;
}

impl<T: StepKernel + Clone + 'static> CloneKernel for T {
    fn boxed(&self) -> Box<dyn StepKernel> {
        Box::new(self.clone())
    }
}

/// What a running step uses.
pub(crate) struct RunCx<'a, 'p> {
    pub(crate) bases: &'a [Place],
    pub(crate) shared_scratch: *mut u8,
    pub(crate) thread_scratch: *mut u8,
    pub(crate) thread_stride: usize,
    pub(crate) isa: Isa,
    pub(crate) pool: &'a mut Run<'p>,
    /// Whether all that a run reads stays in the second-level cache, so that nothing need be prefetched.
    pub(crate) cached: bool,
    /// What the last step that counts found.
    pub(crate) found: Option<usize>,
    /// Whether to go on, for steps that may run for ever.
    pub(crate) progress: &'a Progress,
}

/// A pointer that threads share; anyone who uses it says why that is right.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shared<T>(*mut T);

// SAFETY: an address alone; every use is unsafe and has its reason.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn new(p: *mut T) -> Self {
        Shared(p)
    }

    pub(crate) fn get(self) -> *mut T {
        self.0
    }
}

impl RunCx<'_, '_> {
    /// The address of a place.
    #[inline]
    pub(crate) fn ptr<T>(&self, at: At) -> *mut T {
        self.bases[at.buffer as usize].address().wrapping_add(at.offset).cast()
    }

    /// As [`RunCx::ptr`], to hand to threads.
    #[inline]
    pub(crate) fn shared<T>(&self, at: At) -> Shared<T> {
        Shared(self.ptr(at))
    }

    /// What a matmul prefetches whose successor reads these weights.
    pub(crate) fn ahead(&self, next: Upcoming) -> Ahead {
        match next {
            _ if self.cached => Ahead::Nothing,
            Some((at, depth, panels)) => Ahead::Next(Next { b: self.ptr(at), depth, panels }),
            None => Ahead::Panels,
        }
    }

    /// Into how long pieces `n` neighbours, of which there are `rows` rows, are cut for [`parallel`](RunCx::parallel): `most` is best for one
    /// thread; where that makes so few tasks that some threads would have noticeably more to do than others, pieces are shorter, a
    /// multiple of `grain`, of which `most` is one. Results must not depend on where pieces begin.
    pub(crate) fn share(&self, worth: bool, rows: usize, n: usize, most: usize, grain: usize) -> usize {
        share_of(self.threads(worth), rows, n, most, grain)
    }

    /// How many threads work on a step.
    pub(crate) fn threads(&self, worth: bool) -> usize {
        if worth { self.pool.threads() } else { 1 }
    }

    /// Runs `f` over `0..tasks`, in contiguous ranges on all threads when the step is worth it. `f` also
    /// gets its thread's scratch.
    #[inline]
    pub(crate) fn parallel<F: Fn(Range<usize>, *mut u8) + Sync>(&mut self, worth: bool, tasks: usize, f: &F) {
        if tasks == 0 {
            return;
        }
        if !worth || tasks == 1 {
            return f(0..tasks, self.thread_scratch);
        }
        let (threads, base, stride) = (self.pool.threads(), Shared(self.thread_scratch), self.thread_stride);
        self.pool.parallel_for(tasks, &|range: Range<usize>| {
            // Thread t's range starts at ⌊t·tasks/threads⌋: the last t for which that is this start.
            let t = ((range.start + 1) * threads - 1) / tasks;
            f(range, base.get().wrapping_add(t * stride));
        });
    }

    /// As [`parallel`](RunCx::parallel), of tasks that store like that.
    #[inline]
    pub(crate) fn parallel_stores<F: Fn(Range<usize>, *mut u8) + Sync>(
        &mut self,
        worth: bool,
        stores: Stores,
        tasks: usize,
        f: &F,
    ) {
        if stores == Stores::Cached {
            return self.parallel(worth, tasks, f);
        }
        self.parallel(worth, tasks, &|range, scratch| {
            f(range, scratch);
            stores::fence();
        });
    }
}

/// Tasks of a thread from which on one more or less does not matter.
const MANY_TASKS: usize = 8;

/// [`RunCx::share`] on this many threads.
fn share_of(threads: usize, rows: usize, n: usize, most: usize, grain: usize) -> usize {
    let pieces = n.div_ceil(most.max(1)).max(1);
    let tasks = rows.saturating_mul(pieces);
    if threads == 1 || tasks >= MANY_TASKS * threads || tasks.is_multiple_of(threads) {
        return most.max(1);
    }
    n.div_ceil(pieces.next_multiple_of(threads)).max(1).next_multiple_of(grain.max(1)).min(most.max(1))
}

/// Steps shorter than this are not worth a fork (a fork to a spinning helper takes a third of a microsecond).
pub(crate) const WORTH_NANOS: f64 = 2500.0;

/// Runs an expression with `$t` as the packed element type of a dtype, another for those that have none.
macro_rules! packed_type {
    ($dtype:expr, $t:ident => $e:expr, _ => $other:expr) => {
        match $dtype {
            rlx_ir::DType::F32 => {
                type $t = f32;
                $e
            }
            rlx_ir::DType::F16 => {
                type $t = half::f16;
                $e
            }
            rlx_ir::DType::BF16 => {
                type $t = half::bf16;
                $e
            }
            _ => $other,
        }
    };
}
pub(crate) use packed_type;

type ClaimFn = fn(&Node, &Graph) -> Claim;
type CompileFn = fn(&mut CompileCx<'_>) -> Result<Box<dyn StepKernel>>;

/// A kind of op, when its kernel takes a node, and how a step of it is compiled.
struct Entry {
    kind: OpKind,
    claim: ClaimFn,
    compile: CompileFn,
}

macro_rules! table {
    ($($kind:ident => $($module:ident)::+;)*) => {
        &[$(Entry { kind: OpKind::$kind, claim: $($module)::+::claim, compile: $($module)::+::compile },)*]
    };
}

/// What the CPU has kernels for.
static TABLE: &[Entry] = table! {
    Activation => elementwise;
    Binary => elementwise;
    Compare => elementwise;
    Predicate => elementwise;
    Where => elementwise;
    Cast => cast;
    BitCast => bit_cast;
    Region => region;
    Pack => pack;
    MatMul => matmul;
    GroupedMatMul => experts;
    SquaredDistances => distances;
    TreeEnsemble => trees;
    Recurrent => recurrent;
    Reduce => reduce;
    NonZero => non_zero;
    NonMaxSuppression => non_max_suppression;
    Unique => unique;
    CountUp => count_up;
    Det => det;
    RoiAlign => roi;
    RoiMaxPool => roi;
    GridSample => grid_sample;
    Softmax => norm;
    LogSoftmax => norm;
    LayerNorm => norm;
    RmsNorm => norm;
    GroupNorm => group_norm;
    Attention => attention;
    MatMulInteger => integer;
    MatMulBlocks => matmul_blocks;
    DynamicMatMulBlocks => matmul_blocks;
    Conv => conv;
    ConvInteger => conv::integer;
    Pool => pool;
    ConvTranspose => conv_transpose;
    Rope => rope;
    Gather => gather;
    GatherElements => gather_elements;
    GatherNd => gather;
    ScatterElements => scatter;
    ScatterNd => scatter;
    UpdateSlice => update;
    Iota => iota;
    Pad => pad;
    ArgReduce => arg_reduce;
    OneHot => one_hot;
    Trilu => triangle;
    TopK => top_k;
    Cumulative => cumulative;
    Quantize => quant;
    Dequantize => quant;
    Custom => custom;
    If => control;
    Loop => control;
};

fn entry(kind: OpKind) -> Option<&'static Entry> {
    TABLE.iter().find(|e| e.kind == kind)
}

/// Whether there is a kernel for `node`, and if not, why.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let Some(entry) = entry(node.op.kind()) else {
        return Claim::No(format!("there is no CPU kernel for {}", node.op.kind()));
    };
    let shapes = node.inputs.iter().map(|&id| graph.shape(id)).chain(node.results());
    for shape in shapes {
        if shape.rank() > crate::layout::MAX_RANK {
            return Claim::No(format!("{shape} has more than {} dimensions", crate::layout::MAX_RANK));
        }
        if shape.dtype().is_packed() && !takes_packed(node.op.kind()) {
            return Claim::No(format!("kernels take whole bytes, not {}", shape.dtype()));
        }
    }
    (entry.claim)(node, graph)
}

/// Whether some kernels of a kind read or write packed elements; each claims which.
fn takes_packed(kind: OpKind) -> bool {
    matches!(kind, OpKind::Cast | OpKind::Pack | OpKind::Region) || matmul_blocks::KINDS.contains(&kind)
}

/// The kernel of a step.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    match &cx.step.kind {
        StepKind::Copy => copy::compile(cx),
        StepKind::Op(op) => match entry(op.kind()) {
            Some(entry) => (entry.compile)(cx),
            None => Err(no_kernel(op, "it was never claimed")),
        },
    }
}

/// A step that was claimed but cannot be compiled: a bug of the claim.
pub(crate) fn no_kernel(op: &Op, why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("there is no CPU kernel for this {}: {why}", op.kind()))
}

/// A relation between dimensions that the run's dimensions break.
pub(crate) fn mismatch(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Dimension, what).with_hint("dimensions that the model declares equal differ")
}

/// Whether what an op found is as many as its graph declares. Where that is a symbol, the result has room for as many as
/// there can be.
pub(crate) fn check_count(found: usize, declared: Dim) -> Result<()> {
    match declared {
        Dim::Static(n) if n != found => {
            Err(Error::new(ErrorKind::Value, format!("there are {found}, where {n} were declared")))
        }
        _ => Ok(()),
    }
}

/// A kernel that runs before it is bound: a bug of the executable.
pub(crate) fn unbound() -> Error {
    Error::new(ErrorKind::Internal, "a step ran before it was bound")
}

#[cfg(test)]
mod tests {
    use super::share_of;

    #[test]
    fn pieces_are_cut_where_threads_would_have_unequal_shares() {
        // One thread, tasks for all, or so many that one more does not matter.
        assert_eq!(share_of(1, 1, 500, 1024, 16), 1024);
        assert_eq!(share_of(2, 4, 500, 1024, 16), 1024);
        assert_eq!(share_of(3, 1, 3000, 1024, 16), 1024);
        assert_eq!(share_of(2, 17, 500, 1024, 16), 1024);
        // Too few, or one too many.
        assert_eq!(share_of(2, 1, 500, 1024, 16), 256);
        assert_eq!(share_of(3, 1, 500, 1024, 16), 176);
        assert_eq!(share_of(2, 3, 500, 1024, 16), 256);
        assert_eq!(share_of(2, 1, 3000, 1024, 16), 752);
        // Never longer than `most`, never nothing.
        assert_eq!(share_of(8, 1, 3, 1024, 16), 16);
        for (rows, n) in [(0, 0), (1, 0), (0, 7)] {
            assert!(share_of(2, rows, n, 64, 16) > 0);
        }
    }
}
