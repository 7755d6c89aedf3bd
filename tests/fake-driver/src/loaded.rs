//! What a code object has, as launches see it.

use rlx_kernel::Kernel;
use rlx_kernel::ir::{BufferDecl, Stmt};
use rlx_tile::Program;
use rlx_tile::tensor_map::MapDecl;

/// What a code object has: a kernel, or a tile program.
#[derive(Debug)]
pub enum Code {
    Kernel(Kernel),
    Tiles(Program),
}

impl Code {
    pub fn workgroup(&self) -> u32 {
        match self {
            Code::Kernel(kernel) => kernel.workgroup,
            Code::Tiles(program) => program.workgroup(),
        }
    }

    pub fn buffers(&self) -> &[BufferDecl] {
        match self {
            Code::Kernel(kernel) => &kernel.buffers,
            Code::Tiles(program) => &program.buffers,
        }
    }

    /// The tensor maps that a launch gives.
    pub fn maps(&self) -> &[MapDecl] {
        match self {
            Code::Kernel(_) => &[],
            Code::Tiles(program) => program.maps(),
        }
    }

    /// Bytes of workgroup memory that a launch gives.
    pub fn dynamic_bytes(&self) -> u64 {
        match self {
            Code::Kernel(_) => 0,
            Code::Tiles(program) => program.dynamic_bytes(),
        }
    }

    pub fn can_fail(&self) -> bool {
        matches!(self, Code::Kernel(kernel) if kernel.can_fail())
    }

    pub fn uniforms(&self) -> usize {
        match self {
            Code::Kernel(kernel) => kernel.uniforms.len(),
            Code::Tiles(program) => program.uniforms.len(),
        }
    }

    /// What the address of a buffer must be a multiple of: an element, or what lanes access at once.
    pub fn align(&self, decl: &BufferDecl) -> u64 {
        match self {
            Code::Kernel(kernel) if accesses_together(kernel) => 16,
            Code::Kernel(_) => (decl.dtype.bits() / 8).max(1) as u64,
            Code::Tiles(_) => 16,
        }
    }
}

/// Whether a kernel accesses neighbouring elements together.
fn accesses_together(kernel: &Kernel) -> bool {
    let mut together = false;
    kernel.for_each_stmt(&mut |s| together |= matches!(s, Stmt::LoadWide { .. } | Stmt::StoreWide { .. }));
    together
}
