//! The compiler's stages for a device, for callers that run them one by one.

use rlx_driver::{Device, DeviceId};
use rlx_ir::Result;
use rlx_opt::{CompileOptions, CompilePipeline};
use rlx_select::or_panic;
use rlx_select::registry::require_backend;
/// The pipeline that compiles for `device`.
///
/// ```
/// use rlx_ir::{DType, Dim, DimBinding, Graph, Shape, op::Activation, sym};
/// use rlx_runtime::{CompileOptions, Device, stages};
/// let rows = Shape::from_dims(&[Dim::Dynamic(sym::ROWS), Dim::Static(4)], DType::F32);
/// let mut graph = Graph::new("relu");
/// let x = graph.input("x", rows.clone());
/// let y = graph.activation(Activation::Relu, x, rows);
/// graph.set_outputs(vec![y]);
/// let pipeline = stages::pipeline_for(Device::Cpu, &CompileOptions::new());
/// let template = pipeline.compile(&graph)?;
/// let eight = template.specialize(&pipeline, &DimBinding::from_pairs(&[(sym::ROWS, 8)]));
/// assert_eq!(eight.lir.outputs[0].shape.num_elements(), Some(32));
/// # Ok::<(), rlx_ir::Error>(())
/// ```
///
/// # Panics
/// When the device has no backend; [`try_pipeline_for`] reports it.
pub fn pipeline_for(device: Device, options: &CompileOptions) -> CompilePipeline {
    or_panic(try_pipeline_for(device, options))
}

/// The pipeline that compiles for `device`. The device itself need not be there.
///
/// # Errors
/// A device without a backend, or options that make no sense for it.
pub fn try_pipeline_for(device: impl Into<DeviceId>, options: &CompileOptions) -> Result<CompilePipeline> {
    let device = device.into();
    let backend = require_backend(device)?;
    Ok(CompilePipeline::new(backend.target(options)?, options.clone()))
}
