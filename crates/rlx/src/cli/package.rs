//! `rlx compile --device ane -o MODEL.mlpackage`: a model as a package for Core ML, on any system.

use std::process::ExitCode;

use super::args::CompileArgs;
use super::failure::Failure;

/// Whether the command is to write a package.
pub fn wanted(args: &CompileArgs) -> bool {
    args.output.extension().is_some_and(|extension| extension == "mlpackage")
}

/// What this build cannot do.
#[cfg(not(feature = "ane"))]
pub fn compile(_: &CompileArgs, _: bool) -> Result<ExitCode, Failure> {
    let message = "this build of rlx writes no Core ML packages: build it with the Cargo feature \"ane\"";
    Err(Failure::Usage(message.to_owned()))
}

#[cfg(feature = "ane")]
pub use with_coreml::compile;

#[cfg(feature = "ane")]
mod with_coreml {
    use std::time::Instant;

    use rlx::Model;
    use rlx_runtime::Device;
    use serde_json::json;

    use super::{CompileArgs, ExitCode, Failure};
    use crate::cli::image::Images;
    use crate::cli::job::{self, borrowed};
    use crate::cli::output::Output;
    use crate::cli::watch::Watch;
    use crate::cli::written::keep_apart;
    use crate::cli::{inputs, print};

    /// Compiles a model to a package.
    pub fn compile(args: &CompileArgs, json: bool) -> Result<ExitCode, Failure> {
        let common = &args.common;
        if common.device != Device::Ane {
            let message =
                "a .mlpackage is for Core ML: add --device ane, or choose another name for --output";
            return Err(Failure::Usage(message.to_owned()));
        }
        let watch = Watch::start(&args.limits, "reading", json)?;
        let plain = Model::open_with_progress(&common.model, watch.progress())?;
        job::check_dims(&plain.inputs()?, &common.dims)?;
        keep_apart(&[("--output", &args.output)], &[common.reads(), plain.files()].concat())?;
        let metadata = plain.metadata().properties;
        let mut model = plain.with_dims(common.dims.iter().cloned());
        let given = inputs::gather(common, &Images::of(common, &metadata, json), &model.inputs()?, false)?;
        let start = Instant::now();
        let imported = model.import_with_progress(&borrowed(&given), watch.progress())?;
        let weights = |name: &str| imported.weights.get(name).cloned();
        let options = job::options(common)?;
        let package =
            rlx_coreml::compile(&imported.graph, &imported.outputs, &weights, &options, watch.progress())?;
        package.write(&args.output)?;
        let time = print::ms(start.elapsed());
        drop(watch);
        let operations: usize = package.operations().values().sum();
        let weight_bytes = package.weight_bytes().map_or(0, |bytes| bytes.len());
        let path = args.output.display();
        if json {
            let report = json!({
                "path": path.to_string(), "model": model.name(), "device": Device::Ane.feature(),
                "operation_set": rlx_coreml::OPSET, "specification": rlx_coreml::SPECIFICATION,
                "operations": operations, "weight_bytes": weight_bytes, "compile_ms": time,
            });
            writeln!(Output, "{report}")?;
        } else {
            let weights = print::bytes(weight_bytes);
            writeln!(
                Output,
                "{path}: {operations} operations ({}, macOS 14, iOS 17), {weights} of weights, {time:.1} ms",
                rlx_coreml::OPSET
            )?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
