//! Accesses of neighbouring elements: `const words4 q7 = read_16(b1 + v6);`, of which `half_of(q7, 3)` is one, and `write_16(b2 + v9, …);`.

use rlx_kernel::ir::{BinOp, Buffer, Inst, Stmt, Ty, Value};

use super::lexer::Token;
use super::{Compiled, Expr, Parser};

impl Parser<'_> {
    /// Whether elements of a buffer are converted by this function as they are read together, or by that one as they are written.
    pub(super) fn converts_together(&self, name: &str, conversion: &str, store: &str) -> bool {
        let named =
            |at: usize, want: &str| matches!(self.tokens.get(at), Some((Token::Name(n), _)) if n == want);
        let name_at = |at: usize| match self.tokens.get(at) {
            Some((Token::Name(n), _)) => Some(n.as_str()),
            _ => None,
        };
        (0..self.tokens.len()).any(|at| {
            // const words4 q7 = read_16 ( b1
            let read = matches!(name_at(at), Some("read_16" | "read_8")) && named(at + 2, name);
            let parts = if read { at.checked_sub(2).and_then(name_at) } else { None };
            let half = [
                Token::Name(conversion.into()),
                Token::Sign("("),
                Token::Name("half_of".into()),
                Token::Sign("("),
            ];
            let written = matches!(name_at(at), Some("write_16" | "write_8")) && named(at + 2, name) && {
                let mut rest = self.tokens[at..].iter().take_while(|(t, _)| *t != Token::Sign(";"));
                rest.any(|(t, _)| *t == Token::Name(store.to_owned()))
            };
            written || parts.is_some_and(|parts| self.mentions(&half, parts))
        })
    }

    /// A buffer and the element that `b1 + v6 + 4` points to.
    fn place(&mut self, expr: &Expr) -> Compiled<(Buffer, Value)> {
        let Expr::Binary("+", first, away) = expr else { return Err("a pointer without an index".into()) };
        let away = self.typed(away, Ty::I32)?;
        if let Expr::Name(name) = &**first
            && let Some(buffer) = name.strip_prefix('b').and_then(|n| n.parse().ok())
        {
            return Ok((Buffer(buffer), away));
        }
        let (buffer, index) = self.place(first)?;
        Ok((buffer, self.inst(Inst::Binary(BinOp::Add, index, away))?))
    }

    /// How many elements of a buffer are so many bytes, and their type.
    fn elements(&self, buffer: Buffer, bytes: usize) -> Compiled<(usize, Ty)> {
        let decl = self.kernel.buffers.get(buffer.index()).ok_or("a buffer that is not there")?;
        Ok((bytes * 8 / decl.dtype.bits(), Ty::of(decl.dtype)))
    }

    pub(super) fn load_wide(&mut self) -> Compiled<()> {
        let words = self.name()?;
        let name = self.name()?.to_owned();
        self.expect("=")?;
        let bytes = if words == "words4" { 16 } else { 8 };
        self.expect_name(&format!("read_{bytes}"))?;
        self.expect("(")?;
        let place = self.expression()?;
        self.expect(")")?;
        let (buffer, index) = self.place(&place)?;
        let (count, ty) = self.elements(buffer, bytes)?;
        let values: Vec<Value> = (0..count).map(|_| self.value(ty)).collect();
        self.emit(Stmt::LoadWide { values: values.clone(), buffer, index });
        self.parts.insert(name, values);
        Ok(())
    }

    /// The element that `half_of(q7, 3)` or `word_of(q7, 1)` is; what converts it finds it converted.
    pub(super) fn part(&self, expr: &Expr) -> Option<Value> {
        match expr {
            Expr::Cast(Ty::U32, word) => match &**word {
                Expr::Call(of, _) if of == "word_of" => self.part(word),
                _ => None,
            },
            Expr::Call(of, arguments) if matches!(of.as_str(), "half_of" | "word_of") => match &arguments[..]
            {
                [Expr::Name(name), Expr::Int(at, _)] => self.parts.get(name)?.get(*at as usize).copied(),
                _ => None,
            },
            _ => None,
        }
    }

    pub(super) fn store_wide(&mut self) -> Compiled<()> {
        self.expect("(")?;
        let place = self.expression()?;
        let mut words = Vec::new();
        while self.take(",") {
            words.push(self.expression()?);
        }
        self.expect(")")?;
        let (buffer, index) = self.place(&place)?;
        let (count, ty) = self.elements(buffer, 4 * words.len())?;
        let mut elements = Vec::new();
        for word in &words {
            match word {
                Expr::Call(name, pair) if name == "halves" => elements.extend(pair),
                word => elements.push(word),
            }
        }
        if elements.len() != count {
            return Err(format!("{} elements are written as {count}", elements.len()));
        }
        let float = ty.is_float();
        let mut values = Vec::new();
        for element in elements {
            let bits = match element {
                Expr::Call(name, x) if float && x.len() == 1 => {
                    let known = ["to_half", "to_brain", "__float_as_uint"].contains(&name.as_str());
                    if known { Some(&x[0]) } else { None }
                }
                element if !float => Some(element),
                _ => None,
            };
            let bits = bits.ok_or("an element that is written without a conversion")?;
            values.push(match bits {
                // The cast to what is stored wraps, as storing does.
                Expr::Cast(_, inner) if !float => self.typed(inner, ty)?,
                bits => self.typed(bits, ty)?,
            });
        }
        self.emit(Stmt::StoreWide { buffer, index, values });
        Ok(())
    }
}
