//! The executable form of a module: for each step its launches, with pipelines, and what stays the same
//! between runs.
//!
//! A [`Program`] is immutable and shared by clones. Sizes are entries of a table that every binding evaluates, so
//! one program serves all dimensions.

use std::sync::Arc;

use rlx_backend::extents::{Ex, ExtentTable, Values, ViewCheck};
use rlx_backend::tuning::{Tuning, TuningKey};
use rlx_ir::lir::{BufferKind, LirModule, Step};
use rlx_ir::{Error, ErrorKind, Result};
use rlx_kernel::stored::StepLaunches;
use rlx_kernel::{Arg, KernelTarget, Launch, Launches, UniformArg, render, step_variants};

use crate::gpu::Gpu;
use crate::memory::{DeviceBuffer, whole_words};
use crate::pipeline::{Origin, Pipeline};

/// One dispatch.
pub(crate) struct Dispatch {
    pub(crate) pipeline: Arc<Pipeline>,
    /// The module's buffer behind each of the kernel's.
    pub(crate) buffers: Vec<usize>,
    pub(crate) uniforms: Vec<Ex>,
    pub(crate) groups: Ex,
    pub(crate) can_fail: bool,
    /// What a fault of it is reported as: its place among the dispatches of its list.
    pub(crate) number: u32,
}

impl Dispatch {
    /// Bytes of its uniforms.
    pub(crate) fn uniform_bytes(&self) -> u64 {
        render::uniform_bytes(&vec![0; self.uniforms.len()], 0).len() as u64
    }

    /// Its uniforms for these values.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] for a size above 32 bits.
    pub(crate) fn uniform_values(&self, values: &Values<'_>) -> Result<Vec<u8>> {
        let number = |&e: &Ex| {
            let n = values.get(e);
            i32::try_from(n).map_err(|_| {
                Error::new(ErrorKind::OutOfMemory, format!("a size of {n}: kernels count with 32 bits"))
            })
        };
        let numbers = self.uniforms.iter().map(number).collect::<Result<Vec<i32>>>()?;
        Ok(render::uniform_bytes(&numbers, self.number))
    }
}

/// A step's dispatches.
pub(crate) struct Kernel {
    pub(crate) dispatches: Vec<Dispatch>,
    pub(crate) views: Vec<ViewCheck>,
    /// The elements of the buffers it writes.
    outputs: Vec<Ex>,
}

impl Kernel {
    /// Whether there is nothing to compute for these values, whatever the dimensions of an empty result multiply to.
    pub(crate) fn is_idle(&self, values: &Values<'_>) -> bool {
        self.outputs.iter().all(|&elements| values.get(elements) == 0)
    }
}

/// A constant on the device: which buffer, where in it, how many bytes.
pub(crate) type ConstantPlace = (usize, u64, u64);

/// The device, with what it keeps of a module.
pub(crate) struct Wgpu {
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) target: KernelTarget,
    /// What the dispatches were made of, to be saved.
    pub(crate) launches: Launches,
    pub(crate) constant_pools: Vec<DeviceBuffer>,
    pub(crate) constants: Vec<Option<ConstantPlace>>,
}

/// A module with pipelines for every step.
pub(crate) type Program = rlx_backend::executor::Program<Wgpu>;

/// A module on a device.
pub(crate) type WgpuExecutable = rlx_backend::Executor<Wgpu>;

/// Compiles a pipeline for every kernel and copies the constants to the device.
///
/// # Errors
/// A kernel that the driver rejects, memory that cannot be had.
pub(crate) fn program(
    gpu: Arc<Gpu>,
    target: KernelTarget,
    lir: Arc<LirModule>,
    launches: Launches,
    origin: Origin,
) -> Result<Program> {
    let pipelines = gpu.pipelines(&launches.kernels, origin).map_err(|(rejected, e)| {
        let steps = lir.init.iter().zip(&launches.init).chain(lir.steps.iter().zip(&launches.run));
        let has = |(_, launches): &(&Step, &StepLaunches)| launches.iter().any(|&(at, _)| at == rejected);
        match { steps }.find(has) {
            Some((step, _)) => lir.graph.locate(step.node, e).with_device(gpu.name.name()),
            None => e,
        }
    })?;
    let (constant_pools, constants) = upload_constants(&gpu, &target, &lir)?;
    let machine = gpu.name.name();
    let device = Wgpu { gpu, target, launches, constant_pools, constants };
    // What a fault of a dispatch is reported as: its place among those of the init program, or of the run.
    let mut numbers = [0, 0];
    Program::new(lir, device, machine, |device, lir, at, step, table| {
        let launches = if at.init { &device.launches.init } else { &device.launches.run };
        let mut dispatches = Vec::with_capacity(launches[at.index].len());
        for (kernel, launch) in &launches[at.index] {
            let number = &mut numbers[usize::from(at.init)];
            dispatches.push(dispatch(step, launch, Arc::clone(&pipelines[*kernel]), *number, table));
            *number += 1;
        }
        let operands = step.inputs.iter().chain(&step.outputs);
        let views = operands.map(|o| ViewCheck::new(o, &lir.buffers[o.buffer.index()], table)).collect();
        let elements = step.outputs.iter().map(|o| table.add(lir.buffers[o.buffer.index()].elements));
        Ok(Arc::new(Kernel { dispatches, views, outputs: elements.collect() }))
    })
}

/// The variants that the device has for a step, where there are several.
///
/// # Errors
/// A step without kernels.
pub(crate) fn tuning_key(step: &Step, lir: &LirModule, target: &KernelTarget) -> Result<Option<TuningKey>> {
    Ok(TuningKey::of(lir, step, "", step_variants(step, lir, target)?))
}

/// The variant by which a step of the run is to be done.
pub(crate) fn variant(step: &Step, lir: &LirModule, target: &KernelTarget, tuning: &Tuning) -> Result<usize> {
    if tuning.is_empty() {
        return Ok(0);
    }
    Ok(tuning_key(step, lir, target)?.map_or(0, |key| tuning.variant(&key)))
}

fn dispatch(
    step: &Step,
    launch: &Launch,
    pipeline: Arc<Pipeline>,
    number: u32,
    table: &mut ExtentTable,
) -> Dispatch {
    let operand = |arg: Arg| match arg {
        Arg::Input(i) => &step.inputs[i],
        Arg::Output(i) => &step.outputs[i],
    };
    // What is bound starts where the module's buffer does, so a base is the view's own offset.
    let uniform = |u: &UniformArg| match *u {
        UniformArg::Extent(e) | UniformArg::Base { offset: e, .. } => e,
    };
    Dispatch {
        pipeline,
        buffers: launch.bindings.iter().map(|&arg| operand(arg).buffer.index()).collect(),
        uniforms: launch.uniforms.iter().map(|u| table.add(uniform(u))).collect(),
        groups: table.add(launch.groups),
        can_fail: launch.kernel.can_fail(),
        number,
    }
}

/// Constants lie one after the other in as few buffers as the device allows.
fn upload_constants(
    gpu: &Gpu,
    target: &KernelTarget,
    lir: &LirModule,
) -> Result<(Vec<DeviceBuffer>, Vec<Option<ConstantPlace>>)> {
    let align = target.pool.align as u64;
    let (mut sizes, mut places): (Vec<u64>, Vec<Option<ConstantPlace>>) = (Vec::new(), Vec::new());
    for buffer in &lir.buffers {
        let BufferKind::Constant(data) = &buffer.kind else {
            places.push(None);
            continue;
        };
        let bytes = whole_words(data.bytes().len() as u64);
        if bytes > gpu.limits.max_storage_buffer_binding_size {
            let most = gpu.limits.max_storage_buffer_binding_size;
            let message = format!("a constant of {bytes} bytes, the device binds at most {most}");
            return Err(gpu.error(ErrorKind::OutOfMemory, message));
        }
        let fits = sizes.last().is_some_and(|&end| end + bytes <= target.pool.max_bytes as u64);
        if !fits {
            sizes.push(0);
        }
        let pool = sizes.len() - 1;
        places.push(Some((pool, sizes[pool], bytes)));
        sizes[pool] = (sizes[pool] + bytes).next_multiple_of(align);
    }
    let pools = sizes.iter().map(|&bytes| DeviceBuffer::pool(gpu, bytes, "constants"));
    let pools = pools.collect::<Result<Vec<_>>>()?;
    for (buffer, place) in lir.buffers.iter().zip(&places) {
        if let (BufferKind::Constant(data), Some((pool, offset, _))) = (&buffer.kind, place) {
            pools[*pool].write_at(gpu, *offset, data.bytes())?;
        }
    }
    Ok((pools, places))
}
