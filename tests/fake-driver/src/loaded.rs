//! Code objects: what the compilers leave in them, and what each has, as launches see it.

use std::ffi::c_void;

use rlx_kernel::Kernel;
use rlx_kernel::ir::{BufferDecl, Stmt};
use rlx_tile::Program;
use rlx_tile::tensor_map::MapDecl;

use crate::models::CUDA_MODELS;
use crate::world::{Outcome, Rejected, code};
use crate::{cuda_c, tiles};

/// What a code object does: a kernel, or a tile program.
#[derive(Debug)]
pub enum Does {
    Kernel(Kernel),
    Tiles(Program),
}

/// What a code object has.
#[derive(Debug)]
pub struct Code {
    pub does: Does,
    /// How many uniforms its first parameter has room for; `None` where that is an address.
    pub by_value: Option<usize>,
}

impl Code {
    pub fn workgroup(&self) -> u32 {
        match &self.does {
            Does::Kernel(kernel) => kernel.workgroup,
            Does::Tiles(program) => program.workgroup(),
        }
    }

    pub fn buffers(&self) -> &[BufferDecl] {
        match &self.does {
            Does::Kernel(kernel) => &kernel.buffers,
            Does::Tiles(program) => &program.buffers,
        }
    }

    /// The tensor maps that a launch gives.
    pub fn maps(&self) -> &[MapDecl] {
        match &self.does {
            Does::Kernel(_) => &[],
            Does::Tiles(program) => program.maps(),
        }
    }

    /// Bytes of workgroup memory that a launch gives.
    pub fn dynamic_bytes(&self) -> u64 {
        match &self.does {
            Does::Kernel(_) => 0,
            Does::Tiles(program) => program.dynamic_bytes(),
        }
    }

    pub fn can_fail(&self) -> bool {
        matches!(&self.does, Does::Kernel(kernel) if kernel.can_fail())
    }

    pub fn uniforms(&self) -> usize {
        match &self.does {
            Does::Kernel(kernel) => kernel.uniforms.len(),
            Does::Tiles(program) => program.uniforms.len(),
        }
    }

    /// What the address of a buffer must be a multiple of: an element, or what lanes access at once.
    pub fn align(&self, decl: &BufferDecl) -> u64 {
        match &self.does {
            Does::Kernel(kernel) if accesses_together(kernel) => 16,
            Does::Kernel(_) => (decl.dtype.bits() / 8).max(1) as u64,
            Does::Tiles(_) => 16,
        }
    }
}

/// Whether a kernel accesses neighbouring elements together.
fn accesses_together(kernel: &Kernel) -> bool {
    let mut together = false;
    kernel.for_each_stmt(&mut |s| together |= matches!(s, Stmt::LoadWide { .. } | Stmt::StoreWide { .. }));
    together
}

/// What a code object begins with.
pub const MAGIC: &[u8; 8] = b"RLXFAKE1";

/// What stands before the architecture that NVRTC's machine code is for, in a line before the source.
pub const TARGET: &str = "@target ";

/// Loads a code object of this library's compilers on a device.
pub fn image(of: *const c_void, device: Option<usize>) -> Outcome<(String, Code)> {
    let invalid = |why: &str| Rejected { code: code::INVALID_IMAGE, why: why.into() };
    // SAFETY: an image begins with eight bytes and its length.
    let (magic, len) = unsafe { (of.cast::<[u8; 8]>().read(), of.cast::<[u8; 16]>().read()) };
    if magic != *MAGIC {
        return Err(invalid("no code object of this compiler"));
    }
    let len = u64::from_le_bytes(len[8..].try_into().unwrap_or_default()) as usize;
    // SAFETY: as many bytes as it says.
    let source = unsafe { std::slice::from_raw_parts(of.cast::<u8>().add(16), len) };
    let source = String::from_utf8_lossy(source);
    let (target, source) =
        source.strip_prefix(TARGET).and_then(|s| s.split_once('\n')).unwrap_or(("", &source));
    // Machine code runs on GPUs of its generation that are no older.
    let runs = generation(target).zip(device).is_none_or(|((number, _), device)| {
        let (major, minor) = CUDA_MODELS[device].numbers;
        number / 10 == major.unsigned_abs() && number % 10 <= minor.unsigned_abs()
    });
    if !runs {
        return Err(invalid(&format!("machine code of {target}, which the device does not run")));
    }
    code_of(source).map_err(|why| invalid(&why))
}

/// A function by its name and what it does.
pub fn code_of(source: &str) -> cuda_c::Compiled<(String, Code)> {
    let by_value = cuda_c::uniforms(source)?;
    let (name, does, takes) = match tiles::compile(source).transpose()? {
        Some(function) => (function.name, Does::Tiles(function.program), false),
        None => {
            let function = cuda_c::compile(source)?;
            (function.name, Does::Kernel(function.kernel), function.by_value)
        }
    };
    let code = Code { does, by_value };
    let wants = code.uniforms() + usize::from(code.can_fail());
    match by_value {
        _ if takes != by_value.is_some() => {
            Err("a type of uniforms that is not declared, or not used".to_owned())
        }
        Some(room) if room < wants => Err(format!("room for {room} uniforms, of which {wants} are used")),
        _ => Ok((name, code)),
    }
}

/// The number of NVIDIA's architecture `sm_90`, and whether it has what no later one has: `sm_90a`.
pub fn generation(name: &str) -> Option<(u32, bool)> {
    let number = name.strip_prefix("sm_")?;
    let own = number.strip_suffix('a');
    Some((own.unwrap_or(number).parse().ok()?, own.is_some()))
}
