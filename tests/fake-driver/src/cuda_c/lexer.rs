//! Text to words.

/// A word of the language.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// A name; members too, as in `threadIdx.x`.
    Name(String),
    /// A whole number with its suffix.
    Int(u64, String),
    Float(f32),
    Text,
    Sign(&'static str),
}

const SIGNS: [&str; 32] = [
    "<<", ">>", "<=", ">=", "==", "!=", "+=", "&&", "||", "(", ")", "{", "}", "[", "]", ";", ",", "=", "<",
    ">", "+", "-", "*", "/", "%", "&", "|", "^", "!", "~", "?", ":",
];

/// The words of a text, with their lines.
///
/// # Errors
/// What begins no word.
pub(super) fn tokens(text: &str, first_line: usize) -> Result<Vec<(Token, usize)>, String> {
    let (mut rest, mut line, mut out) = (text, first_line, Vec::new());
    while let Some(c) = rest.chars().next() {
        let word = |ok: fn(char) -> bool| rest.find(|c| !ok(c)).unwrap_or(rest.len());
        let (token, len) = if c.is_whitespace() {
            line += usize::from(c == '\n');
            rest = &rest[c.len_utf8()..];
            continue;
        } else if let Some(after) = rest.strip_prefix("/*") {
            let end = after.find("*/").ok_or("a comment without an end")?;
            line += after[..end].matches('\n').count();
            rest = &after[end + 2..];
            continue;
        } else if rest.starts_with("//") {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
            continue;
        } else if c == '"' {
            (Token::Text, rest[1..].find('"').ok_or("a text without an end")? + 2)
        } else if c.is_ascii_digit() {
            let mut len = word(|c| c.is_ascii_alphanumeric() || c == '.');
            // An exponent's sign.
            if rest[..len].ends_with('e') && !rest.starts_with("0x") {
                len += rest[len + 1..]
                    .find(|c: char| !c.is_ascii_alphanumeric())
                    .ok_or("an unfinished number")?
                    + 1;
            }
            (number(&rest[..len])?, len)
        } else if c.is_ascii_alphabetic() || c == '_' {
            let len = word(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
            (Token::Name(rest[..len].to_owned()), len)
        } else {
            let sign = SIGNS.into_iter().find(|s| rest.starts_with(s));
            let sign = sign.ok_or_else(|| format!("line {line}: {c:?} begins nothing"))?;
            (Token::Sign(sign), sign.len())
        };
        out.push((token, line));
        rest = &rest[len..];
    }
    Ok(out)
}

fn number(text: &str) -> Result<Token, String> {
    let wrong = || format!("{text:?} is no number");
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |hex| (hex, 16));
    if radix == 10 && (text.contains('.') || text.contains('e')) {
        let value = text.strip_suffix('f').ok_or_else(wrong)?.parse().map_err(|_| wrong())?;
        return Ok(Token::Float(value));
    }
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let value = u64::from_str_radix(&digits[..end], radix).map_err(|_| wrong())?;
    Ok(Token::Int(value, digits[end..].to_owned()))
}
