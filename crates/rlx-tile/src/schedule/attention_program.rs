//! The program of an attention, by warps or by warp groups, as its tiling says.

use rlx_ir::{Error, ErrorKind, Result};

use super::attention::{Attention, atom_of, attention_warps};
use super::attention_groups::attention_groups;
use super::attention_tilings::AttentionTiling;
use crate::atom::Arch;
use crate::ir::Program;

/// The program of an attention.
///
/// # Errors
/// [`ErrorKind::Unsupported`] where the architecture has no instruction for the type, its lanes cannot make an operand of sums, or the
/// tiling does not fit the architecture or itself.
pub fn attention(arch: Arch, what: &Attention, tiling: &AttentionTiling) -> Result<Program> {
    let atom = atom_of(arch, what, tiling)?;
    match (tiling.groups, arch) {
        (false, _) => attention_warps(arch, atom, what, tiling),
        (true, Arch::Sm90a) => attention_groups(what, tiling),
        (true, _) => {
            let why = format!("attention {} on {}: warp groups are of sm_90a", tiling.name(), arch.name());
            Err(Error::new(ErrorKind::Unsupported, why))
        }
    }
}
