//! Reading the text form: characters to words, numbers, dimensions, shapes.

use std::collections::HashMap;

use crate::dim::{Dim, Extent, sym};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::Graph;
use crate::ops::Attr;
use crate::shape::Shape;
use crate::tensor::ConstData;

/// How deep brackets and nested graphs may go.
const MAX_DEPTH: usize = 64;

/// A cursor over the text.
#[derive(Debug)]
pub struct Lexer<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    blobs: &'a HashMap<String, ConstData>,
}

impl<'a> Lexer<'a> {
    /// A cursor at the start of `text`; `blobs` holds the constants that do not stand inline.
    pub fn new(text: &'a str, blobs: &'a HashMap<String, ConstData>) -> Self {
        Lexer { text, at: 0, depth: 0, blobs }
    }

    /// A parse error at the present position.
    pub fn error(&self, message: &str) -> Error {
        let before = &self.text[..self.at];
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
        Error::new(ErrorKind::Parse, format!("line {line}, column {column}: {message}"))
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Skips white space and comments (`//` to the end of the line).
    fn skip(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if !trimmed.starts_with("//") {
                return;
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    /// Whether only white space is left.
    pub fn at_end(&mut self) -> bool {
        self.skip();
        self.rest().is_empty()
    }

    /// Whether `token` comes next.
    pub fn at(&mut self, token: &str) -> bool {
        self.skip();
        self.rest().starts_with(token)
    }

    /// Consumes `token` if it comes next.
    pub fn eat(&mut self, token: &str) -> bool {
        let there = self.at(token);
        if there {
            self.at += token.len();
        }
        there
    }

    /// Consumes `token`.
    ///
    /// # Errors
    /// [`ErrorKind::Parse`] when something else comes next.
    pub fn expect(&mut self, token: &str) -> Result<()> {
        if self.eat(token) {
            return Ok(());
        }
        let found: String = self.rest().chars().take(12).collect();
        Err(self.error(&format!("expected \"{token}\", found \"{found}\"")))
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &'a str {
        self.skip();
        let rest = self.rest();
        let end = rest.find(|c| !accept(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// An identifier.
    ///
    /// # Errors
    /// [`ErrorKind::Parse`] when none comes next.
    pub fn word(&mut self) -> Result<String> {
        let word = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        if word.is_empty() { Err(self.error("expected a name")) } else { Ok(word.to_string()) }
    }

    /// An identifier without dots.
    ///
    /// # Errors
    /// [`ErrorKind::Parse`] when none comes next.
    pub fn plain_word(&mut self) -> Result<String> {
        let word = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
        if word.is_empty() { Err(self.error("expected a name")) } else { Ok(word.to_string()) }
    }

    /// Consumes the identifier `word` if it comes next.
    pub fn eat_word(&mut self, word: &str) -> bool {
        let start = self.at;
        if self.word().is_ok_and(|w| w == word) {
            return true;
        }
        self.at = start;
        false
    }

    /// Consumes the identifier `word`.
    ///
    /// # Errors
    /// [`ErrorKind::Parse`] when something else comes next.
    pub fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.eat_word(word) { Ok(()) } else { Err(self.error(&format!("expected \"{word}\""))) }
    }

    /// The characters of a number, `inf` and `NaN` included.
    ///
    /// # Errors
    /// [`ErrorKind::Parse`] when none comes next.
    pub fn number_word(&mut self) -> Result<&'a str> {
        let word = self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+'));
        if word.is_empty() { Err(self.error("expected a number")) } else { Ok(word) }
    }

    /// A whole number.
    ///
    /// # Errors
    /// [`ErrorKind::Parse`] when none comes next.
    pub fn integer(&mut self) -> Result<i128> {
        self.skip();
        let start = self.at;
        let negative = self.eat("-");
        let digits = self.take_while(|c| c.is_ascii_digit());
        let text = if negative { format!("-{digits}") } else { digits.to_string() };
        text.parse().map_err(|_| {
            self.at = start;
            self.error("expected a whole number")
        })
    }

    /// A string in double quotes, with Rust's escapes.
    ///
    /// # Errors
    /// [`ErrorKind::Parse`] when it is not closed or an escape is unknown.
    pub fn string(&mut self) -> Result<String> {
        self.expect("\"")?;
        let mut out = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += i + 1;
                    return Ok(out);
                }
                '\\' => {
                    let escaped = chars.next().map(|(_, c)| c);
                    match escaped {
                        Some('n') => out.push('\n'),
                        Some('t') => out.push('\t'),
                        Some('r') => out.push('\r'),
                        Some('0') => out.push('\0'),
                        Some(c @ ('"' | '\\' | '\'')) => out.push(c),
                        Some('u') => {
                            let code: String =
                                chars.by_ref().map(|(_, c)| c).skip(1).take_while(|&c| c != '}').collect();
                            let c = u32::from_str_radix(&code, 16).ok().and_then(char::from_u32);
                            out.push(c.ok_or_else(|| self.error("a bad \\u escape"))?);
                        }
                        _ => return Err(self.error("an unknown escape in a string")),
                    }
                }
                c => out.push(c),
            }
        }
        Err(self.error("a string that is not closed"))
    }

    /// Items between `open` and `close`, separated by commas.
    ///
    /// # Errors
    /// What `item` reports, or a missing bracket.
    pub fn list<T>(
        &mut self,
        open: &str,
        close: &str,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.expect(open)?;
        let mut items = Vec::new();
        while !self.eat(close) {
            if !items.is_empty() {
                self.expect(",")?;
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Runs `f` one level deeper; text nested too deeply is an error, not a stack overflow.
    fn deeper<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= MAX_DEPTH {
            return Err(self.error("nested too deeply"));
        }
        self.depth += 1;
        let result = f(self);
        self.depth -= 1;
        result
    }

    /// An integer expression: a sum of products of numbers, symbols and functions.
    ///
    /// # Errors
    /// [`ErrorKind::Parse`].
    pub fn extent(&mut self) -> Result<Extent> {
        self.deeper(|lexer| {
            let negative = lexer.eat("-");
            let mut sum = lexer.product(negative)?;
            loop {
                if lexer.eat("+") {
                    sum = sum + lexer.product(false)?;
                } else if lexer.eat("-") {
                    sum = sum + lexer.product(true)?;
                } else {
                    return Ok(sum);
                }
            }
        })
    }

    /// The expression that all of `text` is.
    ///
    /// ```
    /// use rlx_ir::text::Lexer;
    /// assert_eq!(Lexer::whole_extent("2*3 + 1")?.as_const(), Some(7));
    /// assert!(Lexer::whole_extent("2*").is_err());
    /// # Ok::<(), rlx_ir::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Parse`].
    pub fn whole_extent(text: &str) -> Result<Extent> {
        let none = HashMap::new();
        let mut lexer = Lexer::new(text, &none);
        let extent = lexer.extent()?;
        if lexer.at_end() { Ok(extent) } else { Err(lexer.error("text after an expression")) }
    }

    /// A product, or the negative of one.
    fn product(&mut self, negative: bool) -> Result<Extent> {
        self.skip();
        let mut product = match self.number() {
            // The smallest number has no positive counterpart.
            Some(n) => self.within_64_bits(if negative { -n? } else { n? })?,
            None if negative => -self.factor()?,
            None => self.factor()?,
        };
        while self.eat("*") {
            product = product * self.factor()?;
        }
        Ok(product)
    }

    /// A number without a sign, if there is one.
    fn number(&mut self) -> Option<Result<i128>> {
        self.rest().starts_with(|c: char| c.is_ascii_digit()).then(|| self.integer())
    }

    fn within_64_bits(&self, n: i128) -> Result<Extent> {
        i64::try_from(n).map(Extent::Const).map_err(|_| self.error("a number beyond 64 bits"))
    }

    fn factor(&mut self) -> Result<Extent> {
        self.skip();
        if let Some(n) = self.number() {
            return self.within_64_bits(n?);
        }
        match self.rest().chars().next() {
            Some('"') => Ok(Extent::sym(sym::named(&self.string()?))),
            _ => {
                let word = self.word()?;
                if !self.at("(") {
                    return Ok(Extent::sym(sym::named(&word)));
                }
                let args = self.list("(", ")", Self::extent)?;
                let &[a, b] = args.as_slice() else { return Err(self.error("expected two operands")) };
                match word.as_str() {
                    "floordiv" => Ok(a.floor_div(b)),
                    "mod" => Ok(a.modulo(b)),
                    "min" => Ok(a.min(b)),
                    "max" => Ok(a.max(b)),
                    other => Err(self.error(&format!("unknown function \"{other}\""))),
                }
            }
        }
    }

    /// A dimension.
    ///
    /// # Errors
    /// [`ErrorKind::Parse`]; also for a negative number.
    pub fn dim(&mut self) -> Result<Dim> {
        match self.extent()? {
            Extent::Const(c) => {
                usize::try_from(c).map(Dim::Static).map_err(|_| self.error("a dimension is not negative"))
            }
            e => Ok(Dim::from(e)),
        }
    }

    /// A shape: `[2, batch] f32`.
    ///
    /// # Errors
    /// [`ErrorKind::Parse`].
    pub fn shape(&mut self) -> Result<Shape> {
        let dims = self.list("[", "]", Self::dim)?;
        let dtype = self.word()?.parse().map_err(|e: Error| self.error(e.message()))?;
        Ok(Shape::from_dims(&dims, dtype))
    }

    /// `blob(hash)`, looked up.
    pub(crate) fn blob(&mut self) -> Result<ConstData> {
        self.expect_word("blob")?;
        self.expect("(")?;
        let hash = self.word()?;
        self.expect(")")?;
        self.blobs
            .get(&hash)
            .cloned()
            .ok_or_else(|| self.error(&format!("the constant @blob({hash}) is not in the table of blobs")))
    }

    /// Reads ` {name=` or `, name=` and the value.
    pub(crate) fn attr<T: Attr>(&mut self, first: &mut bool, name: &str) -> Result<T> {
        self.expect(if *first { "{" } else { "," })?;
        *first = false;
        self.expect_word(name)?;
        self.expect("=")?;
        T::parse(self)
    }

    /// Reads the `}` after the attributes.
    pub(crate) fn end_attrs(&mut self, first: bool) -> Result<()> {
        if first { Ok(()) } else { self.expect("}") }
    }

    /// A graph inside an attribute.
    pub(crate) fn nested_graph(&mut self) -> Result<Graph> {
        self.deeper(super::parse::graph)
    }
}
