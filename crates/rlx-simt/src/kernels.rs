//! Kernels and tile programs to code objects: rendered, compiled by the vendor's compiler or found among those of earlier processes, and loaded.

use rlx_gpu::{GpuApi, Source};
use rlx_ir::hash::hash_of;
use rlx_ir::{Error, ErrorKind, Result};
use rlx_kernel::render;

use crate::compile::{self, Rejected};
use crate::driver::Code;
use crate::gpu::Gpu;
use crate::table::Vendor;

/// What every kernel's function is called.
const ENTRY: &str = "rlx_kernel";

/// A kernel on its way to the device.
pub struct Image {
    /// What it is kept by.
    name: String,
    source: String,
    options: Vec<String>,
    bytes: Vec<u8>,
    is_kept: bool,
}

/// A text without what stands between `/*` and `*/`.
fn without_comments(text: &str) -> String {
    let mut parts = text.split("/*");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once("*/").map_or("", |(_, rest)| rest))
}

impl Gpu {
    /// The code object of a kernel: what is kept of it, or what the compiler makes.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] for a kernel that the compiler rejects.
    pub(crate) fn image(&self, of: &Source) -> Result<Image> {
        let libraries = &self.context.libraries;
        let source = match (of, libraries.vendor) {
            (Source::Kernel(kernel), Vendor::Cuda) => render::cuda(kernel, ENTRY)?,
            (Source::Kernel(kernel), Vendor::Hip) => render::hip(kernel, ENTRY)?,
            (Source::Tiles(program), _) => rlx_tile::render::source(program, ENTRY)?,
        };
        let options = compile::options(libraries.vendor, &self.architecture);
        // By all that the compiler is given but the names of buffers, which stored kernels do not have; what it is itself, the folder says.
        let unnamed = without_comments(&source);
        let name =
            hash_of([unnamed.as_str()].into_iter().chain(options.iter().map(String::as_str))).to_string();
        let kept = self.kept.as_ref().and_then(|kept| kept.load(&name));
        let is_kept = kept.is_some();
        let mut image = Image { name, source, options, is_kept, bytes: kept.unwrap_or_default() };
        if !is_kept {
            image.bytes = self.compile_image(of, &image)?;
        }
        Ok(image)
    }

    fn compile_image(&self, of: &Source, image: &Image) -> Result<Vec<u8>> {
        let compiled = compile::compile(&self.context, &image.options, &image.source);
        compiled.map_err(|e| self.rejected(of, e))
    }

    /// Loads a code object, and keeps it where that is new. One that was kept and that the driver does not take any more is
    /// made again.
    ///
    /// # Errors
    /// What the driver reports.
    pub(crate) fn load_image(&self, of: &Source, image: Image) -> Result<Code> {
        let dynamic = match of {
            Source::Kernel(_) => 0,
            Source::Tiles(program) => u32::try_from(program.dynamic_bytes()).unwrap_or(u32::MAX),
        };
        if image.is_kept {
            match self.context.load(&image.bytes, ENTRY, dynamic) {
                Ok(code) => return Ok(code),
                Err(fault) => tracing::warn!(kernel = of.name(), %fault, "a cached kernel is not used"),
            }
        }
        let again = if image.is_kept { Some(self.compile_image(of, &image)?) } else { None };
        let bytes = again.unwrap_or(image.bytes);
        let code =
            self.checked(format_args!("kernel {:?}", of.name()), self.context.load(&bytes, ENTRY, dynamic))?;
        if let Some(kept) = &self.kept {
            kept.keep(&image.name, &bytes);
        }
        Ok(code)
    }

    fn rejected(&self, of: &Source, Rejected { fault, log }: Rejected) -> Error {
        let message = format!("kernel {:?} does not compile for {}: {fault}", of.name(), self.architecture);
        let message = if log.is_empty() { message } else { format!("{message}: {log}") };
        // `NVRTC_ERROR_OUT_OF_MEMORY`, and `INVALID_OPTION`: it does not know the architecture.
        match fault.code {
            1 => self.out_of_memory(&message),
            5 => self
                .error(ErrorKind::Device, message)
                .with_hint("install a newer NVRTC: this one may not know the GPU"),
            _ => self.error(ErrorKind::Device, message),
        }
    }
}

#[cfg(test)]
mod tests {
    use rlx_ir::DType;
    use rlx_kernel::build::Builder;
    use rlx_kernel::ir::{Access, Inst};
    use rlx_kernel::stored::KernelRecord;

    use super::*;

    /// So what the compiler made of a kernel is found for the stored one, too.
    #[test]
    fn a_stored_kernel_has_the_text_of_its_own_but_for_names() {
        let mut b = Builder::new("copy", 64);
        let (x, y) = (b.buffer("x", DType::F16, Access::Read), b.buffer("y", DType::F16, Access::Write));
        let at = b.inst(Inst::LocalId);
        let value = b.load(x, at);
        b.store(y, at, value);
        let own = b.finish();
        let stored = KernelRecord::of(&own).kernel().unwrap();
        for text in [render::cuda, render::hip] {
            let [own, stored] = [&own, &stored].map(|kernel| text(kernel, ENTRY).unwrap());
            assert_ne!(own, stored);
            assert_eq!(without_comments(&own), without_comments(&stored));
        }
        assert_eq!(without_comments("a /* b */ c /* d */ e /"), "a  c  e /");
    }
}
