//! The compiler's stages for a device, for callers that walk them one by one.

use rlx_driver::Device;
use rlx_ir::Result;
use rlx_opt::{CompileOptions, CompilePipeline};

use crate::error::or_panic;
use crate::registry::require_backend;

/// The pipeline that compiles for `device`.
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
pub fn try_pipeline_for(device: Device, options: &CompileOptions) -> Result<CompilePipeline> {
    let backend = require_backend(device)?;
    Ok(CompilePipeline::new(backend.target(options)?, options.clone()))
}
