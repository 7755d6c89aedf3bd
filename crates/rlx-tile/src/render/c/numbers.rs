//! Elements of all types as floats, and how many words they take.

use rlx_ir::DType;

use super::language::Language;
use crate::beside::Span;

/// What a comment before the body of a copy begins with; the number of the tile follows. Such bodies are written where a tile is first copied, and where it is
/// copied ahead.
pub const PROLOGUE: &str = "the body of t";

/// 2^23 as a float: its low bits are an integer that is added to it.
const FLOAT_OF_INTEGERS: u32 = 0x4B00_0000;

/// Words that a chunk's numbers take.
pub(super) fn words(span: Span, chunk: u32, dtype: DType) -> u32 {
    if span == Span::One { (chunk * dtype.bits() as u32).div_ceil(32) } else { 1 }
}

/// The element number `e`, an expression, of those that fill `words`, as a float.
///
/// An integer is put below 2^23 in a float's bits and 2^23 is subtracted, which is exact and takes fewer instructions than a conversion; one with a sign is
/// moved up by half of its range before.
pub(super) fn number(language: Language, dtype: DType, words: &str, e: &str) -> String {
    let half = || format!("(u16)({words}[{e} / 2] >> 16 * ({e} % 2))");
    match dtype {
        DType::F16 => format!("from_half({})", half()),
        DType::BF16 => format!("from_brain({})", half()),
        DType::U4 | DType::I4 | DType::U8 | DType::I8 => {
            let (bits, signed) = (dtype.bits() as u32, dtype.is_signed_int());
            let (in_word, mask) = (32 / bits, (1 << bits) - 1);
            let field = format!("({words}[{e} / {in_word}] >> {bits} * ({e} % {in_word}) & {mask}u)");
            let (field, up) = match 1 << (bits - 1) {
                up if signed => (format!("({field} ^ {up}u)"), up),
                _ => (field, 0),
            };
            let float = language.float_of_bits(&format!("({FLOAT_OF_INTEGERS}u | {field})"));
            format!("{float} - {}.0f", (1 << 23) + up)
        }
        _ => language.float_of_bits(&format!("{words}[{e}]")),
    }
}
