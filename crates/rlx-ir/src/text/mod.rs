//! The text form of graphs: printed by [`TextWriter`], read back by [`parse`].
//!
//! ```
//! let text = r#"graph "ffn" {
//!   %0 = Input {name="x"} : [batch, 4] f32
//!   %1 = Param {name="w"} : [4, 3] f32
//!   %2 = MatMul(%0, %1) : [batch, 3] f32
//!   %3 = Activation.Gelu(%2) : [batch, 3] f32
//!   return %3
//! }
//! "#;
//! let graph = rlx_ir::text::parse(text).unwrap();
//! assert_eq!(graph.to_string(), text);
//! ```
//!
//! Constants of up to 16 elements stand inline; larger ones as `@blob(hash)`, which [`parse_with_blobs`]
//! resolves from a table.

mod lexer;
mod parse;
mod print;

pub use lexer::Lexer;
pub use parse::{parse, parse_with_blobs};
pub use print::{TextWriter, attrs_key, blobs, with_origins, write_attrs_key};
