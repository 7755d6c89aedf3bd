//! Parameters as kernels read them, and what the init program made of them for the whole process.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use rlx_backend::prepared::{Prepared, PreparedKey};
use rlx_ir::hash::hash_of;
use rlx_ir::{Result, Weight};

use super::{copy_of, is_aligned};
use crate::alloc::Buffer;

/// What init steps made in this process, and aligned copies of weights: each is there once.
pub(crate) static PREPARED: LazyLock<Prepared<Buffer>> = LazyLock::new(Prepared::new);

/// A parameter's bytes where kernels can read them.
#[derive(Clone)]
pub(crate) enum Param {
    /// Not read yet: what was made of the weight may be there already.
    Set(Arc<Weight>),
    /// In place.
    Weight(Arc<Weight>, *const u8),
    /// An aligned copy.
    Copy(Arc<Buffer>),
    /// Used up by the init program.
    Forgotten,
}

/// A weight's bytes: in place where they are aligned, else in the one copy that there is of them.
pub(crate) fn load(weight: &Arc<Weight>) -> Result<Param> {
    let (id, key) = (Arc::downgrade(weight), PreparedKey(hash_of(["an aligned copy"])));
    if let Some(copy) = PREPARED.get(key, &[&id]) {
        return Ok(Param::Copy(copy));
    }
    match weight.bytes()? {
        Cow::Borrowed(bytes) if is_aligned(bytes, weight.dtype().size_bytes()) => {
            Ok(Param::Weight(Arc::clone(weight), bytes.as_ptr()))
        }
        bytes => {
            let copy = Arc::new(copy_of(&bytes)?);
            PREPARED.insert(key, vec![id], &copy);
            Ok(Param::Copy(copy))
        }
    }
}
