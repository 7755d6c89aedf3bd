//! C to code objects by the vendor's own compiler, in this process.

use std::ffi::{CString, c_char};
use std::ptr::{null, null_mut};

use rlx_tile::Arch;

use crate::driver::{Context, Outcome};
use crate::load::Libraries;
use crate::table::{Compiler, Fault, Handle, Vendor};

/// Why there is no code object: what was called, and what the compiler printed.
#[derive(Debug)]
pub(crate) struct Rejected {
    pub(crate) fault: Fault,
    pub(crate) log: String,
}

impl From<Fault> for Rejected {
    fn from(fault: Fault) -> Self {
        Rejected { fault, log: String::new() }
    }
}

/// A program of the compiler's, which frees itself.
struct Program<'l> {
    compiler: &'l Compiler,
    raw: Handle,
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: this value's program.
        if let Err(fault) = unsafe { self.compiler.destroy(&mut self.raw) } {
            tracing::warn!(%fault, "freeing a program");
        }
    }
}

/// The version of the compiler.
pub(crate) fn version(libraries: &Libraries) -> Result<(i32, i32), Fault> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both are written.
    unsafe { libraries.compiler.version(&mut major, &mut minor) }?;
    Ok((major, minor))
}

/// What the compiler is told. Products and sums are rounded one by one, as kernels say: where they are to be fused, kernels will
/// say that.
pub(crate) fn options(vendor: Vendor, architecture: &str) -> Vec<String> {
    match vendor {
        Vendor::Cuda => vec![format!("--gpu-architecture={architecture}"), "--fmad=false".to_owned()],
        // Without an architecture, hiprtc compiles for the present device, whose name it knows with all its features.
        Vendor::Hip => vec!["-O3".to_owned(), "-ffp-contract=off".to_owned()],
    }
}

/// What the compilers report for a source that is wrong: `NVRTC_ERROR_COMPILATION`, `HIPRTC_ERROR_COMPILATION`.
const WRONG_SOURCE: i32 = 6;

/// What does not compile for CDNA 2 alone, and is nothing else.
const NAMES_CDNA2: &str = "#if defined(__gfx90a__)\n#error these are matrix units of gfx90a\n#endif\n";

/// The first version of NVRTC that compiles for sm_90a, and the first for sm_100a.
const GROUPS: (i32, i32) = (12, 0);
const TENSORS: (i32, i32) = (12, 8);

/// The architecture whose matrix instructions a device of these numbers has, as tile programs are made for it.
///
/// `compiler` is the version of the compiler.
///
/// HIP's number 9.0 is that of several architectures, of which gfx90a has matrix units that programs are made for. Its name is in no attribute, and where it
/// is among the properties depends on the version of HIP; the compiler, which compiles for the present device, knows it.
///
/// # Errors
/// What the driver or the compiler reports.
pub(crate) fn matrix_units(
    context: &Context,
    numbers: (u32, u32),
    compiler: (i32, i32),
) -> Outcome<Option<Arch>> {
    let vendor = context.libraries.vendor;
    Ok(match (vendor, numbers) {
        // Its instructions of warp groups are copied to by tensor maps.
        (Vendor::Cuda, (9, 0)) if context.libraries.tensors.is_some() && compiler >= GROUPS => {
            Some(Arch::Sm90a)
        }
        // `sm_100a` is of this number alone. A driver that knows the device is one of CUDA 12.8 or later.
        (Vendor::Cuda, (10, 0)) if context.libraries.tensors.is_some() && compiler >= TENSORS => {
            Some(Arch::Sm100a)
        }
        (Vendor::Cuda, (8.., _)) => Some(Arch::Sm80),
        (Vendor::Cuda, (7, 5)) => Some(Arch::Sm75),
        (Vendor::Hip, (9, 4)) => Some(Arch::Gfx90a),
        (Vendor::Hip, (11, _)) => Some(Arch::Gfx1100),
        (Vendor::Hip, (12, _)) => Some(Arch::Gfx1200),
        (Vendor::Hip, (9, 0)) => match compile(context, &options(vendor, ""), NAMES_CDNA2) {
            Err(Rejected { fault, log }) if fault.code == WRONG_SOURCE => {
                log.contains("gfx90a").then_some(Arch::Gfx90a)
            }
            Err(Rejected { fault, .. }) => return Err(fault),
            Ok(_) => None,
        },
        _ => None,
    })
}

/// The code object of a source.
///
/// # Errors
/// What the compiler rejects, with what it printed.
pub(crate) fn compile(context: &Context, options: &[String], source: &str) -> Result<Vec<u8>, Rejected> {
    if context.libraries.vendor == Vendor::Hip {
        // It compiles for the thread's device.
        context.with(|_| Ok(()))?;
    }
    let (compiler, text) = (&context.libraries.compiler, |s: &str| CString::new(s).unwrap_or_default());
    let (source, name) = (text(source), text("kernel.cu"));
    let options: Vec<CString> = options.iter().map(|o| text(o)).collect();
    let options: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
    let mut program = Program { compiler, raw: null_mut() };
    // SAFETY: terminated strings that outlive the call, no headers; `raw` is written.
    unsafe { compiler.create(&mut program.raw, source.as_ptr(), name.as_ptr(), 0, null(), null()) }?;
    // SAFETY: as many terminated strings as are said.
    let compiled = unsafe { compiler.compile(program.raw, options.len() as i32, options.as_ptr()) };
    compiled.map_err(|fault| Rejected { fault, log: log(&program) })?;
    let mut bytes = 0;
    // SAFETY: `bytes` is written.
    unsafe { compiler.code_size(program.raw, &mut bytes) }?;
    let mut code = vec![0u8; bytes];
    // SAFETY: as many bytes as the compiler asked for.
    unsafe { compiler.code(program.raw, code.as_mut_ptr().cast()) }?;
    Ok(code)
}

/// What the compiler printed.
fn log(program: &Program<'_>) -> String {
    let mut bytes = 0;
    // SAFETY: `bytes` is written.
    if unsafe { program.compiler.log_size(program.raw, &mut bytes) }.is_err() || bytes == 0 {
        return String::new();
    }
    let mut text = vec![0u8; bytes];
    // SAFETY: as many bytes as the compiler asked for.
    match unsafe { program.compiler.log(program.raw, text.as_mut_ptr().cast()) } {
        Ok(()) => String::from_utf8_lossy(&text).trim_end_matches(['\0', '\n']).to_owned(),
        Err(_) => String::new(),
    }
}
