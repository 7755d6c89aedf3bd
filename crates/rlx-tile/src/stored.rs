//! Programs as bytes: kept in a file, and read from one.
//!
//! There is one declaration of the language, and bytes are derived from it (by `serde`): a new statement is stored as soon as it is declared, and one whose
//! parts have no form in bytes does not compile. What has another form is in `forms.rs`: buffers are types and accesses, uniforms a number (names are for people, and
//! no part of a program's hash), scalar bodies are stored as
//! kernels are ([`KernelRecord`](rlx_kernel::stored::KernelRecord)).
//!
//! Bytes are not trusted: nesting is limited, so that no file's nesting is a recursion here, as are counts; what is read goes through the
//! [verifier](mod@crate::verify) and must have the hash that it is stored with, which is made of its text and so notices when numbers mean something else than
//! when they were written.
//!
//! ```
//! use rlx_ir::DType;
//! use rlx_tile::{Arch, schedule::{Matmul, matmul, tilings}, stored::ProgramRecord};
//! let program = matmul(Arch::Sm80, &Matmul::new(DType::BF16), &tilings(Arch::Sm80)[0])?;
//! let record = ProgramRecord::of(&program);
//! assert_eq!(record.program()?.hash(), program.hash());
//! # Ok::<(), rlx_ir::Error>(())
//! ```

use rlx_ir::{Error, ErrorKind, Result};
use rlx_kernel::KernelHash;
use serde::{Deserialize, Serialize};

use crate::ir::Program;
use crate::verify::verify;

/// Raised whenever the bytes of programs, or what they mean, change: what is stored of programs begins with it.
pub const FORMAT: u32 = 6;

/// A program with its hash, as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProgramRecord {
    hash: [u8; 32],
    program: Program,
}

impl ProgramRecord {
    /// Of a program.
    pub fn of(program: &Program) -> Self {
        ProgramRecord { hash: program.hash().0, program: program.clone() }
    }

    /// The hash that it is stored with.
    pub fn hash(&self) -> KernelHash {
        KernelHash(self.hash)
    }

    /// The program, verified.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] for one that breaks a rule, or is not what its hash says.
    pub fn program(self) -> Result<Program> {
        let malformed = |what: String| Error::new(ErrorKind::Malformed, format!("stored programs: {what}"));
        verify(&self.program).map_err(|broken| malformed(broken.to_string()))?;
        if self.program.hash().0 != self.hash {
            return Err(malformed(format!("{:?} is not what its hash says", self.program.name)));
        }
        Ok(self.program)
    }
}
