//! Names of memory formats.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};
use crate::ops::attr::Attr;
use crate::text::{Lexer, TextWriter};

/// Bytes that a name may have.
const MOST: usize = 23;

/// The name of a memory format for packed operands. The device that asks for it ([`crate::Op::Pack`]) says what the bytes are; to the
/// graph, packing is the identity.
///
/// ```
/// use rlx_ir::op::PackFormat;
/// const PANELS: PackFormat = PackFormat::new("Panels");
/// assert_eq!(PackFormat::from_name("Panels").unwrap(), PANELS);
/// assert!(PackFormat::from_name("two words").is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PackFormat {
    /// ASCII letters, digits and `_`, the first of them a letter; zeros behind.
    name: [u8; MOST],
}

/// Whether a name is one that the text form can hold.
const fn is_name(name: &[u8]) -> bool {
    let mut at = 0;
    while at < name.len() {
        let letter = name[at].is_ascii_alphabetic();
        if !letter && (at == 0 || !(name[at].is_ascii_digit() || name[at] == b'_')) {
            return false;
        }
        at += 1;
    }
    !name.is_empty() && name.len() <= MOST
}

impl PackFormat {
    /// The format of this name, for constants.
    ///
    /// # Panics
    /// When the name is none: 1 to 23 ASCII letters, digits and `_`, the first of them a letter.
    pub const fn new(name: &str) -> PackFormat {
        let bytes = name.as_bytes();
        assert!(is_name(bytes), "a format's name has 1 to 23 ASCII letters, digits and _");
        let mut stored = [0; MOST];
        let mut at = 0;
        while at < bytes.len() {
            stored[at] = bytes[at];
            at += 1;
        }
        PackFormat { name: stored }
    }

    /// The format called `name`.
    ///
    /// # Errors
    /// [`ErrorKind::Parse`] for what is no name: see [`PackFormat::new`].
    pub fn from_name(name: &str) -> Result<PackFormat> {
        if is_name(name.as_bytes()) {
            return Ok(PackFormat::new(name));
        }
        Err(Error::new(ErrorKind::Parse, format!("{name:?} is no name of a pack format")))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        let bytes = self.name.split(|&b| b == 0).next().unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl fmt::Display for PackFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for PackFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Attr for PackFormat {
    fn write(&self, w: &mut TextWriter) {
        w.push(self.name());
    }

    fn parse(lexer: &mut Lexer<'_>) -> Result<Self> {
        let word = lexer.word()?;
        PackFormat::from_name(&word).map_err(|e| lexer.error(e.message()))
    }
}
