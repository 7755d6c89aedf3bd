//! What a code-generating device tells the compiler, and how a step becomes launches for it.

use std::fmt;
use std::sync::Arc;

use rlx_ir::lir::{LirModule, Step, View};
use rlx_ir::op::{Activation, BinaryOp, DataFormat, PackFormat};
use rlx_ir::ops::linalg::MatMulDims;
use rlx_ir::{DType, Dim, Error, ErrorKind, Graph, Node, NodeId, Op, Result};
use rlx_opt::{Claim, PoolSpec, Target};

use crate::emulate;
use crate::ir::{Kernel, SUBGROUPS, WideAccess};
use crate::schedule::gemm::Room;
use crate::schedule::{self, FewRows, Launch, Reads, Scheduled, StepDesc, Unscheduled, Variant, reject};
use crate::{specialise, verify};

/// Which types and functions a device's language has. What it lacks is emulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TypeSupport {
    /// 64-bit integers.
    pub int64: bool,
    /// binary64. There is no emulation: without it, kernels that compute in it are rejected.
    pub float64: bool,
    /// Buffers of 8-bit and 16-bit elements, half precision among them.
    pub narrow: bool,
    /// Buffers of unsigned 16-bit integers, as which all elements of 16 bits can be had; [`TypeSupport::narrow`] says more.
    pub int16: bool,
    /// A mathematical library accurate to a few units in the last place.
    pub math: bool,
    /// A fused multiply-add: product and sum are rounded once. Without it both are rounded.
    pub fma: bool,
    /// Which neighbouring elements are accessed together.
    pub wide: WideAccess,
    /// A compiler that keeps what comparisons say of NaN. Microsoft's for HLSL writes `!(x < y)` as `x >= y`, which is another thing when either is
    /// NaN, and offers no way to forbid it.
    pub nan_order: bool,
}

impl TypeSupport {
    /// Everything.
    pub const ALL: TypeSupport = TypeSupport {
        int64: true,
        float64: true,
        narrow: true,
        int16: true,
        math: true,
        fma: true,
        wide: WideAccess::All,
        nan_order: true,
    };
    /// What every WGSL implementation has: 32-bit types. Its `fma` may be a product and a sum, each rounded.
    pub const WGSL: TypeSupport = TypeSupport {
        int64: false,
        float64: false,
        narrow: false,
        int16: false,
        math: false,
        fma: false,
        wide: WideAccess::Words,
        nan_order: true,
    };
    /// What WGSL has with the extension for 16-bit integers.
    pub const WGSL_INT16: TypeSupport = TypeSupport { int16: true, ..TypeSupport::WGSL };
    /// What scalar bodies have in WGSL with the extension for half precision: elements of 16 bits are read and rounded to, and nothing else is narrow.
    pub const WGSL_F16: TypeSupport = TypeSupport { narrow: true, int16: true, ..TypeSupport::WGSL };
    /// What the Metal Shading Language has. Its elementary functions are off by several units in the last place, so they do not count.
    pub const MSL: TypeSupport = TypeSupport {
        int64: true,
        float64: false,
        narrow: true,
        int16: true,
        math: false,
        fma: true,
        wide: WideAccess::All,
        nan_order: true,
    };
}

/// Limits of a device that decide which kernels it can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceLimits {
    /// The most buffers one kernel may be bound to, the one for faults included.
    pub max_bindings: usize,
    /// The most invocations of a workgroup.
    pub max_workgroup: u32,
    /// The most bytes of workgroup memory.
    pub max_shared_bytes: usize,
    /// The most workgroups along one dimension of a dispatch.
    pub max_groups: u32,
    /// Invocations of a subgroup, where all have as many, one of [`SUBGROUPS`]: those of a workgroup exchange values within them. `None` where sizes differ or kernels
    /// are to do without.
    pub subgroup: Option<u32>,
}

impl Default for DeviceLimits {
    /// The smallest that WebGPU promises.
    fn default() -> Self {
        DeviceLimits {
            max_bindings: 8,
            max_workgroup: 256,
            max_shared_bytes: 16 << 10,
            max_groups: 65_535,
            subgroup: None,
        }
    }
}

/// A variant of a step as a device has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceVariant {
    /// The structure of its kernels.
    pub variant: Variant,
    /// Whether sizes and strides are part of its kernels, and not their uniforms.
    pub constant_sizes: bool,
}

impl fmt::Display for DeviceVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = if self.constant_sizes { ".sizes" } else { "" };
        write!(f, "{}{sizes}", self.variant)
    }
}

/// A device whose kernels are generated here: it claims what the schedules can do within its limits.
#[derive(Debug, Clone)]
pub struct KernelTarget {
    /// The name reports use.
    pub name: String,
    /// What its language has.
    pub types: TypeSupport,
    /// What its kernels may be.
    pub limits: DeviceLimits,
    /// What its memory is.
    pub pool: PoolSpec,
    /// Whether it is a processor that runs kernels: workgroup memory is then a detour through its caches, and barriers split what each
    /// invocation does, so matmuls go without unless measured. Each element that an invocation reads is an access by itself there, so that reading several at
    /// once counts for more.
    pub is_processor: bool,
    /// Whether matmuls may go through workgroup memory. All but those have kernels without it.
    pub tiles: bool,
    /// Element types whose convolutions and pooling run with their channels last, on weights that are packed so: those that matrix units multiply, to which
    /// neighbouring channels are copied together.
    pub channels_last: &'static [DType],
}

impl KernelTarget {
    /// A device of these types and limits, with memory of any size.
    pub fn new(name: impl Into<String>, types: TypeSupport, limits: DeviceLimits) -> Self {
        // One binding is kept for the fault buffer.
        let max_bindings = limits.max_bindings.saturating_sub(1);
        let pool = PoolSpec { align: 256, max_bindings, ..PoolSpec::default() };
        KernelTarget {
            name: name.into(),
            types,
            limits,
            pool,
            is_processor: false,
            tiles: true,
            channels_last: &[],
        }
    }

    /// A device with the smallest that WebGPU promises.
    pub fn webgpu(name: impl Into<String>) -> Self {
        Self::new(name, TypeSupport::WGSL, DeviceLimits::default())
    }

    /// A device that has every type, as CUDA does.
    pub fn full(name: impl Into<String>) -> Self {
        let limits = DeviceLimits {
            max_bindings: 64,
            max_workgroup: 1024,
            max_shared_bytes: 48 << 10,
            max_groups: i32::MAX as u32,
            subgroup: Some(32),
        };
        Self::new(name, TypeSupport::ALL, limits)
    }

    /// The variants of a step that this device has; all give the same bits, and the first is taken unmeasured. Those with constant sizes come last.
    ///
    /// # Errors
    /// Why no schedule takes it, where that is known without making a kernel.
    pub fn variants(&self, step: &StepDesc) -> Scheduled<Vec<DeviceVariant>> {
        let variants = self.fitting(step)?;
        let kinds: &[bool] = if schedule::may_have_constant_sizes(step) { &[false, true] } else { &[false] };
        let of = |&constant_sizes: &bool| {
            variants.iter().map(move |&variant| DeviceVariant { variant, constant_sizes })
        };
        Ok(kinds.iter().flat_map(of).collect())
    }

    /// The variants that fit this device, whose sizes are uniforms.
    fn fitting(&self, step: &StepDesc) -> Scheduled<Vec<Variant>> {
        let mut variants = schedule::variants(step, self.is_processor)?;
        let together = self.is_processor || self.types.wide == WideAccess::All;
        variants.retain(|variant| together || !variant.accesses_neighbours());
        variants.retain(|variant| self.tiles || !variant.uses_workgroup_memory());
        if variants.iter().any(|variant| variant.fits(&self.limits)) {
            variants.retain(|variant| variant.fits(&self.limits));
            let own = match self.is_processor {
                true => processors_own(&variants),
                false => variants.iter().position(|v| v.computes_neighbours() || v.has_many_lanes()),
            };
            if let Some(at) = own {
                variants[..=at].rotate_right(1);
            }
        } else {
            // Its kernel is rejected with the reason.
            variants.truncate(1);
        }
        Ok(variants)
    }

    /// The launches of a step, for this device, by one of its [`KernelTarget::variants`].
    ///
    /// # Errors
    /// Why there are none.
    pub fn launches(&self, step: &StepDesc, variant: usize) -> Scheduled<Vec<Launch>> {
        let variants = self.variants(step)?;
        let Some(&DeviceVariant { variant, constant_sizes }) = variants.get(variant) else {
            return reject(format!("there is no variant {variant}, only {}", variants.len()));
        };
        let specialised = |launch| match constant_sizes {
            true => specialise::specialised(launch, self.limits.max_groups),
            false => launch,
        };
        let launches = schedule::schedule(step, variant, self.subgroup())?;
        launches.into_iter().map(|launch| self.fitted(specialised(launch))).collect()
    }

    /// The kernels of a step for few rows, which divide its sums, so that bits are others than those of its variants; none where the device has no use for them.
    pub fn few_rows(&self, step: &StepDesc) -> Vec<FewRows> {
        // A processor that runs kernels has few cores, and to it workgroup memory is a detour.
        let room = Room { lanes: self.limits.max_workgroup, shared_bytes: self.limits.max_shared_bytes };
        let all = if self.is_processor { Ok(Vec::new()) } else { schedule::few_rows(step, room) };
        let own = |of: FewRows| Ok(FewRows { launch: self.fitted(of.launch)?, ..of });
        all.and_then(|all| all.into_iter().map(own).collect()).unwrap_or_default()
    }

    /// The size of the device's subgroups, if kernels use them.
    fn subgroup(&self) -> Option<u32> {
        self.limits.subgroup.filter(|lanes| SUBGROUPS.contains(lanes))
    }

    fn fitted(&self, launch: Launch) -> Scheduled<Launch> {
        Ok(Launch { kernel: Arc::new(self.adapted(&launch.kernel)?), ..launch })
    }

    /// A kernel of a schedule in terms of what this device has.
    ///
    /// # Errors
    /// What it lacks.
    pub fn adapted(&self, kernel: &Kernel) -> Scheduled<Kernel> {
        let kernel = emulate::emulate(kernel, self.types)?;
        self.fits(&kernel)?;
        Ok(kernel)
    }

    /// Whether the kernel keeps within the device's limits.
    ///
    /// # Errors
    /// Which limit it does not keep.
    pub(crate) fn fits(&self, kernel: &Kernel) -> Scheduled<()> {
        let bindings = kernel.buffers.len() + usize::from(kernel.can_fail());
        let limits = &self.limits;
        if bindings > limits.max_bindings {
            return reject(format!("{bindings} buffers, the device binds {}", limits.max_bindings));
        }
        if !(1..=limits.max_workgroup).contains(&kernel.workgroup) {
            return reject(format!(
                "a workgroup of {}, the device has {}",
                kernel.workgroup, limits.max_workgroup
            ));
        }
        if kernel.subgroup.is_some() && kernel.subgroup != limits.subgroup {
            return reject(format!(
                "subgroups of {}, the device has {}",
                kernel.subgroup.unwrap_or(0),
                limits.subgroup.map_or("none of one size".to_owned(), |lanes| lanes.to_string())
            ));
        }
        if kernel.shared_bytes() > limits.max_shared_bytes {
            return reject(format!(
                "{} bytes of workgroup memory, the device has {}",
                kernel.shared_bytes(),
                limits.max_shared_bytes
            ));
        }
        Ok(())
    }
}

/// Why there is no kernel, as an error of a step's node.
pub(crate) fn unsupported(
    step: &Step,
    module: &LirModule,
    target: &KernelTarget,
) -> impl Fn(Unscheduled) -> Error {
    move |why| {
        let error = Error::new(ErrorKind::Unsupported, why.to_string());
        module.graph.locate(step.node, error).with_device(target.name.clone())
    }
}

/// The launches of one step of a module, by number `variant` of its [`step_variants`].
///
/// # Errors
/// [`ErrorKind::Unsupported`] with the reason when no schedule takes the step, [`ErrorKind::Internal`] for
/// a kernel that breaks a rule.
pub fn compile_step(
    step: &Step,
    module: &LirModule,
    target: &KernelTarget,
    variant: usize,
) -> Result<Vec<Launch>> {
    let desc = StepDesc::of(step, module).map_err(unsupported(step, module, target))?;
    compile_desc(&desc, (step, module), target, variant)
}

/// The same of a step as schedules see it, which is one of the module's.
///
/// # Errors
/// As [`compile_step`].
pub(crate) fn compile_desc(
    desc: &StepDesc,
    (step, module): (&Step, &LirModule),
    target: &KernelTarget,
    variant: usize,
) -> Result<Vec<Launch>> {
    let launches = target.launches(desc, variant).map_err(unsupported(step, module, target))?;
    for launch in &launches {
        let fail = |e: Error| module.graph.locate(step.node, e).with_device(target.name.clone());
        verify::verify(&launch.kernel).map_err(fail)?;
    }
    Ok(launches)
}

/// The names of the variants that a device has for a step, at least one, first the one to take unmeasured. All give the same
/// bits, as far as the device's compiler rounds as it is told.
///
/// # Errors
/// [`ErrorKind::Unsupported`] with the reason when no schedule takes the step.
pub fn step_variants(step: &Step, module: &LirModule, target: &KernelTarget) -> Result<Vec<String>> {
    let variants = StepDesc::of(step, module).and_then(|desc| target.variants(&desc));
    let variants = variants.map_err(unsupported(step, module, target))?;
    Ok(variants.iter().map(DeviceVariant::to_string).collect())
}

/// The kernels of a step of a module for few rows: see [`KernelTarget::few_rows`].
///
/// # Errors
/// [`ErrorKind::Internal`] for a kernel that breaks a rule.
pub fn few_rows(step: &Step, module: &LirModule, target: &KernelTarget) -> Result<Vec<FewRows>> {
    let Ok(desc) = StepDesc::of(step, module) else { return Ok(Vec::new()) };
    few_rows_of(&desc, target).map_err(|e| module.graph.locate(step.node, e).with_device(target.name.clone()))
}

/// The same of a step as schedules see it.
///
/// # Errors
/// As [`few_rows`].
pub fn few_rows_of(desc: &StepDesc, target: &KernelTarget) -> Result<Vec<FewRows>> {
    let kernels = target.few_rows(desc);
    kernels.iter().try_for_each(|of| verify::verify(&of.launch.kernel))?;
    Ok(kernels)
}

/// `groups` workgroups as a grid of two dimensions, neither above `max`: kernels take workgroup `(x, y)` to
/// be number `y·columns + x`, and ignore numbers they have no work for. `None` when they do not fit.
pub fn grid(groups: i64, max: u32) -> Option<(u32, u32)> {
    let (groups, max) = (u64::try_from(groups).ok()?, u64::from(max.max(1)));
    if groups <= max {
        return Some((groups as u32, u32::from(groups > 0)));
    }
    let rows = groups.div_ceil(max);
    (rows <= max).then(|| (groups.div_ceil(rows) as u32, rows as u32))
}

/// Which variant a processor takes unmeasured: a matmul without workgroup memory, and for few rows one that reads several elements at once, or else uses those
/// that it loads several times; of steps that go by elements one whose invocations have neighbours.
fn processors_own(variants: &[Variant]) -> Option<usize> {
    let first = |is: fn(Variant) -> bool| variants.iter().position(|&variant| is(variant));
    match variants.first()?.uses_workgroup_memory() {
        true => first(|variant| !variant.uses_workgroup_memory()),
        false => first(|variant| variant.reads_neighbours() || variant.computes_neighbours())
            .or_else(|| first(Variant::loads_for_several)),
    }
}

/// Whether computing an element takes a few instructions, and no more bytes than it has.
fn is_cheap(node: &Node, graph: &Graph) -> bool {
    let few = match &node.op {
        Op::Cast { .. } => true,
        Op::Binary(op) => {
            matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Max | BinaryOp::Min)
        }
        Op::Activation(op) => matches!(op, Activation::Relu | Activation::Neg | Activation::Abs),
        _ => false,
    };
    let whole = node.inputs.iter().map(|&id| graph.shape(id)).filter(|s| s.dims() == node.shape.dims());
    few && whole.map(|s| s.dtype().bits()).sum::<usize>() <= node.shape.dtype().bits()
}

/// How often an element that a gather picks may be loaded by a matmul that picks it itself. Each load has a few instructions more than one of a copy has
/// (what does not change along a row or a page is looked up in front of the loop), so some of them take less time than reading and writing a copy.
const MOST_LOADS: i64 = 8;

/// From so many rows, or columns, on a matmul is done in tiles, of which at least [`SHARED_BY`] share a load; those of fewer each load for themselves.
const SHARED_FROM: i64 = 8;

/// See [`SHARED_FROM`].
const SHARED_BY: i64 = 16;

/// Whether the matmul `anchor` loads the elements that `gather` picks, through reshapes and transposes at most, few times: keys and values that a few
/// queries attend to. A matmul of many rows loads them again for each tile; there a step of its own picks them once.
fn is_read_few_times(gather: &Node, anchor: &Node, graph: &Graph) -> bool {
    let (Op::MatMul, &[lhs, rhs]) = (&anchor.op, &anchor.inputs[..]) else { return false };
    let Ok(dims) = MatMulDims::of(graph.shape(lhs), graph.shape(rhs)) else { return false };
    // Each column reads the left operand again, each row the right one, and each matrix of a batch an operand that the batch shares.
    let loads = |operand: NodeId, readers: Dim| {
        let of = graph.shape(operand).dims();
        let (own, skip) = (&of[..of.len().saturating_sub(2)], dims.batch.len() + 2 - of.len().max(2));
        let readers = i64::try_from(readers.as_static()?).ok()?;
        let alone = if readers < SHARED_FROM { readers } else { readers.div_euclid(SHARED_BY) + 1 };
        dims.batch.iter().enumerate().try_fold(alone, |n, (i, along)| match i.checked_sub(skip) {
            Some(i) if own.get(i) == Some(along) => Some(n),
            _ => Some(n.saturating_mul(i64::try_from(along.as_static()?).ok()?)),
        })
    };
    let few = |operand, readers| loads(operand, readers).is_some_and(|n| n <= MOST_LOADS);
    [(lhs, dims.n), (rhs, dims.m)]
        .into_iter()
        .all(|(id, readers)| !is_moved(gather, id, graph) || few(id, readers))
}

/// Whether `id` is `node`, or reshapes, transposes and casts of it.
fn is_moved(node: &Node, mut id: NodeId, graph: &Graph) -> bool {
    while let Node { op: Op::Reshape { .. } | Op::Transpose { .. } | Op::Cast { .. }, inputs, .. } =
        graph.node(id)
    {
        id = inputs[0];
    }
    id == node.id
}

impl Target for KernelTarget {
    fn name(&self) -> &str {
        &self.name
    }

    fn claim(&self, node: &Node, graph: &Graph) -> Claim {
        if let Some(why) = schedule::too_long(node, graph) {
            return Claim::No(why);
        }
        match StepDesc::of_node(node, graph).and_then(|desc| self.launches(&desc, 0)) {
            Ok(_) => Claim::Native,
            Err(why) => Claim::No(why.to_string()),
        }
    }

    fn pool_spec(&self) -> PoolSpec {
        self.pool
    }

    fn fuses(&self, anchor: Option<&Node>, op: &Node, graph: &Graph) -> bool {
        let anchor_fits = anchor.is_none_or(|a| schedule::takes_epilogue(&a.op));
        anchor_fits && op.op.is_elementwise() && self.claim(op, graph).is_native()
    }

    /// What is computed element by element, where an operand is loaded. For rows, which are read once, that spares writing and reading
    /// it. Matmuls and convolutions read an operand for each tile: what they compute is only what takes few instructions, and reads no
    /// more than it makes. Without workgroup memory every invocation would compute it again.
    ///
    /// Norms are not among it. The statistics of a tile's rows take as many loads as the matmul itself, if each tile computes them.
    /// Gathers are, where a matmul loads what they pick a few times.
    fn fuses_producer(&self, producer: &Node, anchor: &Node, graph: &Graph) -> bool {
        if let Op::Gather { .. } = producer.op {
            return is_read_few_times(producer, anchor, graph);
        }
        let first_alone = !anchor.inputs[1..].contains(&producer.id);
        producer.op.is_elementwise()
            && match schedule::reads(&anchor.op) {
                Reads::Rows => first_alone,
                Reads::Tiles => !self.is_processor && is_cheap(producer, graph),
                Reads::Memory => false,
            }
    }

    fn reads_view(&self, _: &Op, _: usize, _: &View) -> bool {
        true
    }

    fn writes_view(&self, _: &Op, _: &View) -> bool {
        true
    }

    /// Updates, whose kernels write the result and never look at the operand; and what is combined element by element, in a step of its own or
    /// behind an anchor. Operand and result then are one binding.
    fn writes_in_place(&self, node: &Node, input: usize, _: &Graph) -> bool {
        match &node.op {
            Op::Region { body } => schedule::may_be_written_over(&body.graph, input),
            op => op.def().updates() == Some(input) || op.is_elementwise(),
        }
    }

    /// Weights of several taps and channels; others are stored with their channels last as they are.
    fn pack_format(&self, node: &Node, input: usize, graph: &Graph) -> Option<PackFormat> {
        let Op::Conv { format: DataFormat::ChannelsLast, .. } = node.op else { return None };
        let packs = input == 1 && self.prefers_channels_last(node.shape.dtype());
        let dims = graph.shape(*node.inputs.get(input).filter(|_| packs)?).dims();
        let several = |dims: &[Dim]| dims.iter().any(|&d| d != Dim::Static(1));
        (several(&dims[1..2]) && several(&dims[2..])).then_some(schedule::packed::CHANNELS_LAST)
    }

    fn prefers_channels_last(&self, dtype: DType) -> bool {
        self.channels_last.contains(&dtype)
    }

    fn schedule(&self, step: &Step, lir: &LirModule) -> Option<String> {
        step_variants(step, lir, self).ok()?.into_iter().next()
    }
}
