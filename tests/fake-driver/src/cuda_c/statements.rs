//! Declarations and statements.

use rlx_ir::DType;
use rlx_kernel::ir::{Access, Buffer, BufferDecl, Shared, SharedDecl, Stmt, Ty, Var};

use super::lexer::Token;
use super::{Compiled, Expr, Function, Parser, scalar};

impl Parser<'_> {
    // ---- Declarations.

    pub(super) fn function(&mut self) -> Compiled<Function> {
        self.expect_name("extern")?;
        self.next()?;
        self.expect_name("__global__")?;
        self.expect_name("void")?;
        self.expect_name("__launch_bounds__")?;
        self.expect("(")?;
        self.kernel.workgroup = u32::try_from(self.int()?).map_err(|_| "too many threads")?;
        // How many workgroups run at once on a multiprocessor changes no result.
        if self.take(",") {
            self.int()?;
        }
        self.expect(")")?;
        let name = self.name()?.to_owned();
        self.kernel.name.clone_from(&name);
        self.expect("(")?;
        let by_value = self.parameters()?;
        self.expect("{")?;
        self.block()?;
        if let Some(more) = self.peek() {
            return Err(format!("{more:?} behind the kernel"));
        }
        let body = self.blocks.pop().unwrap_or_default();
        self.kernel.body = std::mem::take(&mut self.constants).into_iter().chain(body).collect();
        Ok(Function { name, kernel: self.kernel.clone(), by_value })
    }

    /// The parameters, and whether uniforms are one by value.
    pub(super) fn parameters(&mut self) -> Compiled<bool> {
        self.expect_name("const")?;
        let by_value = self.take_name("Uniforms");
        if !by_value {
            self.expect_name("int")?;
            self.expect("*")?;
            self.expect_name("__restrict__")?;
        }
        self.expect_name("u")?;
        while self.take(",") {
            let read = self.take_name("const");
            let mut element = self.name()?.to_owned();
            if element == "signed" {
                element = format!("signed {}", self.name()?);
            }
            self.expect("*")?;
            self.expect_name("__restrict__")?;
            let name = self.name()?.to_owned();
            if name == "fault" {
                break;
            }
            if name != format!("b{}", self.kernel.buffers.len()) {
                return Err(format!("parameter {name:?}"));
            }
            let dtype = self.element(&element, &name)?;
            let access = if read {
                Access::Read
            } else if self
                .mentions(&[Token::Name("atomicOr".into()), Token::Sign("("), Token::Sign("&")], &name)
            {
                Access::Atomic
            } else {
                Access::Write
            };
            self.kernel.buffers.push(BufferDecl { name, dtype, access });
        }
        self.expect(")")?;
        Ok(by_value)
    }

    /// Whether these tokens stand before a name somewhere.
    pub(super) fn mentions(&self, before: &[Token], name: &str) -> bool {
        self.tokens.windows(before.len() + 1).any(|window| {
            let same = window.iter().zip(before).all(|((token, _), want)| token == want);
            same && window[before.len()].0 == Token::Name(name.to_owned())
        })
    }

    /// The type of a buffer's elements. Which 16-bit floats they are, the conversions around them say.
    pub(super) fn element(&self, element: &str, name: &str) -> Compiled<DType> {
        let by = |conversion: &str, store: &str| {
            let load = [Token::Name(conversion.into()), Token::Sign("(")];
            let stored = (0..self.tokens.len()).any(|at| {
                let mut statement = self.tokens[at..].iter().take_while(|(t, _)| *t != Token::Sign(";"));
                statement.next().is_some_and(|(t, _)| *t == Token::Name(name.to_owned()))
                    && statement.any(|(t, _)| *t == Token::Name(store.to_owned()))
            });
            self.mentions(&load, name) || stored || self.converts_together(name, conversion, store)
        };
        Ok(match element {
            "float" => DType::F32,
            "double" => DType::F64,
            "signed char" => DType::I8,
            "short" => DType::I16,
            "int" => DType::I32,
            "i64" => DType::I64,
            "u8" => DType::U8,
            "u16" if by("from_half", "to_half") => DType::F16,
            "u16" if by("from_brain", "to_brain") => DType::BF16,
            "u16" => DType::U16,
            "u32" => DType::U32,
            "u64" => DType::U64,
            _ => return Err(format!("elements of type {element:?}")),
        })
    }

    // ---- Statements.

    pub(super) fn emit(&mut self, statement: Stmt) {
        if let Some(block) = self.blocks.last_mut() {
            block.push(statement);
        }
    }

    /// Statements up to the brace that ends them.
    pub(super) fn block(&mut self) -> Compiled<()> {
        while !self.take("}") {
            self.statement()?;
        }
        Ok(())
    }

    pub(super) fn nested(&mut self) -> Compiled<Vec<Stmt>> {
        self.blocks.push(Vec::new());
        self.block()?;
        self.blocks.pop().ok_or_else(|| "an open block".to_owned())
    }

    pub(super) fn statement(&mut self) -> Compiled<()> {
        let start = self.at;
        let word = self.name()?;
        match word {
            "__shared__" => {
                let ty = self.ty()?;
                let name = self.name()?;
                if name != format!("s{}", self.kernel.shared.len()) {
                    return Err(format!("workgroup memory {name:?}"));
                }
                self.expect("[")?;
                let len = u32::try_from(self.int()?).map_err(|_| "too much workgroup memory")?;
                self.expect("]")?;
                self.kernel.shared.push(SharedDecl { ty, len });
            }
            "const" if self.is_name("words4") || self.is_name("words2") => self.load_wide()?,
            "write_16" | "write_8" => self.store_wide()?,
            "const" => {
                let ty = self.ty()?;
                let name = self.name()?.to_owned();
                self.expect("=")?;
                let value = self.expression()?;
                let value = self.typed(&value, ty)?;
                self.names.insert(name, value);
            }
            "__syncthreads" => {
                self.expect("(")?;
                self.expect(")")?;
                self.emit(Stmt::Barrier);
            }
            "atomicAnd" => self.merge()?,
            "if" => return self.choice(),
            "for" => return self.repetition(),
            _ if scalar(word).is_some() => {
                self.at = start;
                let ty = self.ty()?;
                let name = self.name()?;
                if name != format!("m{}", self.kernel.vars.len()) {
                    return Err(format!("variable {name:?}"));
                }
                self.kernel.vars.push(ty);
            }
            _ => self.assignment(word)?,
        }
        self.expect(";")
    }

    pub(super) fn ty(&mut self) -> Compiled<Ty> {
        let name = self.name()?;
        scalar(name).ok_or_else(|| format!("type {name:?}"))
    }

    pub(super) fn assignment(&mut self, to: &str) -> Compiled<()> {
        let index = if self.take("[") {
            let index = self.expression()?;
            self.expect("]")?;
            Some(self.typed(&index, Ty::I32)?)
        } else {
            None
        };
        self.expect("=")?;
        let value = self.expression()?;
        let number = |prefix: &str| to.strip_prefix(prefix).and_then(|n| n.parse::<u32>().ok());
        let statement = match (index, number("m"), number("s"), number("b")) {
            (None, Some(var), ..) => {
                let ty = *self.kernel.vars.get(var as usize).ok_or_else(|| format!("variable {to:?}"))?;
                Stmt::Set(Var(var), self.typed(&value, ty)?)
            }
            (Some(index), _, Some(shared), _) => {
                let decl =
                    *self.kernel.shared.get(shared as usize).ok_or_else(|| format!("memory {to:?}"))?;
                Stmt::StoreShared { shared: Shared(shared), index, value: self.typed(&value, decl.ty)? }
            }
            (Some(index), .., Some(buffer)) => {
                let decl =
                    self.kernel.buffers.get(buffer as usize).ok_or_else(|| format!("buffer {to:?}"))?;
                let dtype = decl.dtype;
                let value = match (&value, dtype) {
                    (Expr::Call(f, x), DType::F16) if f == "to_half" && x.len() == 1 => x[0].clone(),
                    (Expr::Call(f, x), DType::BF16) if f == "to_brain" && x.len() == 1 => x[0].clone(),
                    (_, DType::F16 | DType::BF16) => return Err("a store without a conversion".into()),
                    (value, _) => (*value).clone(),
                };
                Stmt::Store { buffer: Buffer(buffer), index, value: self.typed(&value, Ty::of(dtype))? }
            }
            _ => return Err(format!("an assignment to {to:?}")),
        };
        self.emit(statement);
        Ok(())
    }

    /// `atomicAnd(&b[i], ~(mask)); atomicOr(&b[i], bits)`
    pub(super) fn merge(&mut self) -> Compiled<()> {
        let (buffer, index, kept) = self.atomic()?;
        self.expect(";")?;
        self.expect_name("atomicOr")?;
        let (same, again, bits) = self.atomic()?;
        let Expr::Unary("~", mask) = kept else {
            return Err("an atomic and of something else than a mask".into());
        };
        if (same, &again) != (buffer, &index) {
            return Err("two atomics on different words".into());
        }
        let index = self.typed(&index, Ty::I32)?;
        let (mask, bits) = (self.typed(&mask, Ty::U32)?, self.typed(&bits, Ty::U32)?);
        self.emit(Stmt::MergeBits { buffer: Buffer(buffer), index, mask, bits });
        Ok(())
    }

    pub(super) fn atomic(&mut self) -> Compiled<(u32, Expr, Expr)> {
        self.expect("(")?;
        self.expect("&")?;
        let name = self.name()?;
        let buffer = name.strip_prefix('b').and_then(|n| n.parse().ok());
        let buffer = buffer.ok_or_else(|| format!("an atomic on {name:?}"))?;
        self.expect("[")?;
        let index = self.expression()?;
        self.expect("]")?;
        self.expect(",")?;
        let operand = self.expression()?;
        self.expect(")")?;
        Ok((buffer, index, operand))
    }

    pub(super) fn choice(&mut self) -> Compiled<()> {
        self.expect("(")?;
        if self.is_name("atomicAdd") {
            return self.fail();
        }
        let cond = self.expression()?;
        let cond = self.typed(&cond, Ty::Bool)?;
        self.expect(")")?;
        self.expect("{")?;
        let then = self.nested()?;
        let otherwise = if self.take_name("else") {
            self.expect("{")?;
            self.nested()?
        } else {
            Vec::new()
        };
        self.emit(Stmt::If { cond, then, otherwise });
        Ok(())
    }

    /// `if (atomicAdd(&fault[0], 1u) == 0u) { fault[1] = (u32)u[n]; fault[2] = code; fault[3] = (u32)value; }`
    pub(super) fn fail(&mut self) -> Compiled<()> {
        self.at += 1;
        self.expect("(")?;
        self.expect("&")?;
        self.fault_word(0)?;
        for sign in [",", ")", "==", ")"] {
            self.expect(sign)?;
            if matches!(sign, "," | "==") {
                self.int()?;
            }
        }
        self.expect("{")?;
        let mut stored = Vec::new();
        for word in 1..4 {
            self.fault_word(word)?;
            self.expect("=")?;
            stored.push(self.expression()?);
            self.expect(";")?;
        }
        self.expect("}")?;
        let [step, code, value] = &stored[..] else { return Err("an unfinished fault".into()) };
        let Expr::Int(code, _) = code else { return Err("a fault without a code".into()) };
        // The step's number is behind the uniforms of the step.
        match step {
            Expr::Cast(Ty::U32, number) if matches!(&**number, Expr::Index(u, _) if u == "u") => {}
            other => return Err(format!("a fault of step {other:?}")),
        }
        let value = self.lower(value)?;
        let value = self.convert(value, Ty::I32);
        self.emit(Stmt::Fail { code: *code as u32, value });
        Ok(())
    }

    pub(super) fn fault_word(&mut self, word: u64) -> Compiled<()> {
        self.expect_name("fault")?;
        self.expect("[")?;
        let at = self.int()?;
        self.expect("]")?;
        if at == word { Ok(()) } else { Err(format!("word {at} of the fault record, not {word}")) }
    }

    pub(super) fn repetition(&mut self) -> Compiled<()> {
        self.expect("(")?;
        self.expect_name("int")?;
        let name = self.name()?.to_owned();
        self.expect("=")?;
        let from = self.expression()?;
        let from = self.typed(&from, Ty::I32)?;
        self.expect(";")?;
        self.expect_name(&name)?;
        self.expect("<")?;
        let to = self.expression()?;
        let to = self.typed(&to, Ty::I32)?;
        self.expect(";")?;
        self.expect_name(&name)?;
        self.expect("+=")?;
        let step = i32::try_from(self.int()?).map_err(|_| "a step that is too large")?;
        self.expect(")")?;
        self.expect("{")?;
        let counter = self.value(Ty::I32);
        self.names.insert(name, counter);
        let body = self.nested()?;
        self.emit(Stmt::For { counter, from, to, step, body });
        Ok(())
    }
}
