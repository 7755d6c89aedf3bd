//! Parts of programs that have another form in bytes than their declaration says: see [`crate::stored`].

use std::cell::Cell;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How deep statements may nest; the verifier takes loops that are at most 8 deep.
const MOST_DEPTH: u32 = 16;
/// The most uniforms of a program.
const MOST_UNIFORMS: u32 = 1 << 10;
/// The longest name.
const MOST_NAME: usize = 256;

/// A name, of which characters are left out that a comment of a text must not have.
pub(crate) mod name {
    use super::*;

    fn is_plain(c: char) -> bool {
        c.is_ascii_graphic() || c == ' '
    }

    pub fn serialize<S: Serializer>(name: &str, s: S) -> Result<S::Ok, S::Error> {
        name.chars().filter(|c| is_plain(*c)).take(MOST_NAME).collect::<String>().serialize(s)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(d: D) -> Result<String, D::Error> {
        let name = String::deserialize(d)?;
        match name.chars().count() <= MOST_NAME && name.chars().all(is_plain) {
            true => Ok(name),
            false => Err(D::Error::custom("a name is none")),
        }
    }
}

/// An element type, by its name.
pub(crate) mod dtype {
    use rlx_ir::DType;

    use super::*;

    pub fn serialize<S: Serializer>(dtype: &DType, s: S) -> Result<S::Ok, S::Error> {
        dtype.name().serialize(s)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(d: D) -> Result<DType, D::Error> {
        String::deserialize(d)?.parse().map_err(|_| D::Error::custom("an unknown type of elements"))
    }
}

/// Buffers by their types and accesses: they are called `b0`, `b1`, … as those of stored kernels are.
pub(crate) mod buffers {
    use rlx_kernel::ir::{Access, BufferDecl};

    use super::*;

    pub fn serialize<S: Serializer>(buffers: &[BufferDecl], s: S) -> Result<S::Ok, S::Error> {
        let records: Vec<(&str, Access)> = buffers.iter().map(|b| (b.dtype.name(), b.access)).collect();
        records.serialize(s)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(d: D) -> Result<Vec<BufferDecl>, D::Error> {
        let records = Vec::<(String, Access)>::deserialize(d)?;
        let decl = |(i, (dtype, access)): (usize, (String, Access))| {
            let dtype = dtype.parse().map_err(|_| D::Error::custom("a buffer of an unknown type"))?;
            Ok(BufferDecl { name: format!("b{i}"), dtype, access })
        };
        records.into_iter().enumerate().map(decl).collect()
    }
}

/// Uniforms by their number: they are called `u0`, `u1`, …
pub(crate) mod uniforms {
    use super::*;

    pub fn serialize<S: Serializer>(uniforms: &[String], s: S) -> Result<S::Ok, S::Error> {
        (uniforms.len() as u32).serialize(s)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(d: D) -> Result<Vec<String>, D::Error> {
        match u32::deserialize(d)? {
            count if count > MOST_UNIFORMS => Err(D::Error::custom("too many uniforms")),
            count => Ok((0..count).map(|i| format!("u{i}")).collect()),
        }
    }
}

/// Statements, which are within others, but not too deep.
pub(crate) mod block {
    use super::*;

    thread_local! {
        /// How many lists are being read, one within the other.
        static DEPTH: Cell<u32> = const { Cell::new(0) };
    }

    /// One more of them, until it is dropped.
    struct Deeper;

    impl Drop for Deeper {
        fn drop(&mut self) {
            DEPTH.set(DEPTH.get() - 1);
        }
    }

    pub fn serialize<T: Serialize, S: Serializer>(stmts: &[T], s: S) -> Result<S::Ok, S::Error> {
        stmts.serialize(s)
    }

    pub fn deserialize<'d, T: Deserialize<'d>, D: Deserializer<'d>>(d: D) -> Result<Vec<T>, D::Error> {
        DEPTH.set(DEPTH.get() + 1);
        let _deeper = Deeper;
        match DEPTH.get() > MOST_DEPTH {
            true => Err(D::Error::custom("statements that nest too deep")),
            false => Vec::deserialize(d),
        }
    }
}
