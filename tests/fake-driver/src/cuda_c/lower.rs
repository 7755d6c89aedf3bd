//! Expressions as instructions, typed as C types them.

use rlx_kernel::ir::{BinOp, Buffer, Cmp, Const, Inst, MathFn, Shared, Stmt, Ty, UnOp, Value, Var, type_of};
use rlx_math::Form;

use super::{Compiled, Expr, Parser};

impl Parser<'_> {
    // ---- Expressions as instructions.

    pub(super) fn value(&mut self, ty: Ty) -> Value {
        self.kernel.values.push(ty);
        Value(self.kernel.values.len() as u32 - 1)
    }

    pub(super) fn type_of(&self, v: Value) -> Ty {
        self.kernel.values[v.index()]
    }

    pub(super) fn inst(&mut self, inst: Inst) -> Compiled<Value> {
        let ty =
            type_of(&inst, &self.kernel).ok_or_else(|| format!("{inst:?} of operands of other types"))?;
        let v = self.value(ty);
        self.emit(Stmt::Let(v, inst));
        Ok(v)
    }

    pub(super) fn constant(&mut self, c: Const) -> Value {
        if let Some(&known) = self.known.get(&(c.ty, c.bits)) {
            return known;
        }
        let v = self.value(c.ty);
        self.constants.push(Stmt::Let(v, Inst::Const(c)));
        self.known.insert((c.ty, c.bits), v);
        v
    }

    pub(super) fn convert(&mut self, v: Value, to: Ty) -> Value {
        if self.type_of(v) == to {
            return v;
        }
        let converted = self.value(to);
        self.emit(Stmt::Let(converted, Inst::Convert(to, v)));
        converted
    }

    /// An expression where C converts to `ty`.
    pub(super) fn typed(&mut self, expr: &Expr, ty: Ty) -> Compiled<Value> {
        if let Expr::Int(n, suffix) = expr
            && suffix.is_empty()
        {
            let c = if ty.is_float() { Const::float(ty, *n as f64) } else { Const::int(ty, *n as i64) };
            return Ok(self.constant(c));
        }
        let v = self.lower(expr)?;
        Ok(self.convert(v, ty))
    }

    pub(super) fn lower(&mut self, expr: &Expr) -> Compiled<Value> {
        if let Some(part) = self.part(expr) {
            return Ok(part);
        }
        match expr {
            Expr::Int(n, suffix) => {
                let ty = match suffix.as_str() {
                    "" => Ty::I32,
                    "u" => Ty::U32,
                    "ll" => Ty::I64,
                    "ull" => Ty::U64,
                    _ => return Err(format!("a number that ends in {suffix:?}")),
                };
                Ok(self.constant(Const::int(ty, *n as i64)))
            }
            Expr::Float(x) => Ok(self.constant(Const { ty: Ty::F32, bits: u64::from(x.to_bits()) })),
            Expr::Name(name) => self.named(name),
            Expr::Index(of, index) => self.element_of(of, index),
            Expr::Call(name, arguments) => self.call(name, arguments),
            Expr::Cast(ty, inner) => self.cast(*ty, inner),
            Expr::Unary(sign, inner) => {
                let v = self.lower(inner)?;
                let op = if *sign == "-" { UnOp::Neg } else { UnOp::Not };
                let v = if *sign == "!" { self.convert(v, Ty::Bool) } else { v };
                self.inst(Inst::Unary(op, v))
            }
            Expr::Binary(sign, a, b) => self.operation(sign, a, b),
            Expr::Choice(cond, a, b) => {
                let cond = self.typed(cond, Ty::Bool)?;
                let (a, b) = self.alike(a, b)?;
                self.inst(Inst::Select(cond, a, b))
            }
        }
    }

    pub(super) fn named(&mut self, name: &str) -> Compiled<Value> {
        if let Some(&v) = self.names.get(name) {
            return Ok(v);
        }
        match name {
            "true" | "false" => Ok(self.constant(Const::bool(name == "true"))),
            "threadIdx.x" => self.inst(Inst::LocalId),
            _ => match name.strip_prefix('m').and_then(|n| n.parse().ok()) {
                Some(var) => self.inst(Inst::Get(Var(var))),
                None => Err(format!("{name:?} is not declared")),
            },
        }
    }

    pub(super) fn element_of(&mut self, of: &str, index: &Expr) -> Compiled<Value> {
        let number = |prefix: &str| of.strip_prefix(prefix).and_then(|n| n.parse::<u32>().ok());
        if of == "u" {
            let Expr::Int(n, _) = index else { return Err("a uniform by a computed number".into()) };
            let n = *n as usize;
            while self.kernel.uniforms.len() <= n {
                self.kernel.uniforms.push(format!("u{}", self.kernel.uniforms.len()));
            }
            return self.inst(Inst::Uniform(n as u32));
        }
        let index = self.typed(index, Ty::I32)?;
        match (number("s"), number("b")) {
            (Some(shared), _) => self.inst(Inst::LoadShared(Shared(shared), index)),
            (_, Some(buffer)) => self.inst(Inst::Load(Buffer(buffer), index)),
            _ => Err(format!("{of:?} is no memory")),
        }
    }

    /// Two operands of one type: a plain number takes the other's.
    pub(super) fn alike(&mut self, a: &Expr, b: &Expr) -> Compiled<(Value, Value)> {
        let plain = |e: &Expr| matches!(e, Expr::Int(_, suffix) if suffix.is_empty());
        let (x, y) = if plain(a) {
            let y = self.lower(b)?;
            (self.typed(a, self.type_of(y))?, y)
        } else {
            let x = self.lower(a)?;
            (x, self.typed_alike(b, x)?)
        };
        if self.type_of(x) == self.type_of(y) { Ok((x, y)) } else { Err("operands of two types".into()) }
    }

    pub(super) fn typed_alike(&mut self, expr: &Expr, like: Value) -> Compiled<Value> {
        match expr {
            Expr::Int(_, suffix) if suffix.is_empty() => self.typed(expr, self.type_of(like)),
            _ => self.lower(expr),
        }
    }

    pub(super) fn operation(&mut self, sign: &str, a: &Expr, b: &Expr) -> Compiled<Value> {
        let number_of_group = Expr::Binary(
            "*",
            Box::new(Expr::Name("blockIdx.y".into())),
            Box::new(Expr::Name("gridDim.x".into())),
        );
        if sign == "+" && *a == number_of_group && *b == Expr::Name("blockIdx.x".into()) {
            return self.inst(Inst::GroupId);
        }
        let op = match sign {
            "<<" | ">>" => {
                let (x, by) = (self.lower(a)?, self.typed(b, Ty::U32)?);
                let op = if sign == "<<" { BinOp::Shl } else { BinOp::Shr };
                return self.inst(Inst::Binary(op, x, by));
            }
            "+" => BinOp::Add,
            "-" => BinOp::Sub,
            "*" => BinOp::Mul,
            "/" => BinOp::Div,
            "%" => BinOp::Rem,
            "&" => BinOp::And,
            "|" => BinOp::Or,
            "^" => BinOp::Xor,
            _ => {
                let compare = match sign {
                    "==" => Cmp::Eq,
                    "!=" => Cmp::Ne,
                    "<" => Cmp::Lt,
                    "<=" => Cmp::Le,
                    ">" => Cmp::Gt,
                    _ => Cmp::Ge,
                };
                let (x, y) = self.alike(a, b)?;
                return self.inst(Inst::Compare(compare, x, y));
            }
        };
        let (x, y) = self.alike(a, b)?;
        // Signed arithmetic that overflows is undefined in C.
        let arithmetic = matches!(op, BinOp::Add | BinOp::Sub | BinOp::Mul);
        if arithmetic && self.type_of(x).is_signed() {
            return Err(format!("{sign:?} of signed integers may overflow"));
        }
        self.inst(Inst::Binary(op, x, y))
    }

    pub(super) fn cast(&mut self, ty: Ty, inner: &Expr) -> Compiled<Value> {
        // Arithmetic of signed integers is written without a sign: the same bits by one instruction.
        let unsigned = if ty == Ty::I64 { Ty::U64 } else { Ty::U32 };
        if let (Ty::I32 | Ty::I64, Expr::Binary(sign @ ("+" | "-" | "*"), a, b)) = (ty, inner)
            && let (Expr::Cast(left, x), Expr::Cast(right, y)) = (&**a, &**b)
            && (*left, *right) == (unsigned, unsigned)
        {
            let (x, y) = (self.typed(x, ty)?, self.typed(y, ty)?);
            let op = match *sign {
                "+" => BinOp::Add,
                "-" => BinOp::Sub,
                _ => BinOp::Mul,
            };
            return self.inst(Inst::Binary(op, x, y));
        }
        if let Expr::Int(n, _) = inner
            && !ty.is_float()
        {
            return Ok(self.constant(Const::int(ty, *n as i64)));
        }
        let v = self.lower(inner)?;
        if self.type_of(v).is_float() && !ty.is_float() && ty != Ty::Bool {
            return Err("a plain cast of a float to an integer may be out of range".into());
        }
        Ok(self.convert(v, ty))
    }

    pub(super) fn call(&mut self, name: &str, arguments: &[Expr]) -> Compiled<Value> {
        match arguments {
            [x] => self.call_one(name, x),
            [x, Expr::Int(bits, _)] if name == "shuffle_xor" => {
                let x = self.lower(x)?;
                let bits = u32::try_from(*bits).map_err(|_| "a number of lanes")?;
                self.inst(Inst::ShuffleXor(x, bits))
            }
            [x, y] => {
                let (x, y) = self.alike(x, y)?;
                let op = match self.library(name, x)? {
                    "fmin" => BinOp::Min,
                    "fmax" => BinOp::Max,
                    "pow" => BinOp::Pow,
                    "fmod" => BinOp::Fmod,
                    "atan2" => BinOp::Atan2,
                    _ => return Err(format!("{name:?} is no function of two values")),
                };
                self.inst(Inst::Binary(op, x, y))
            }
            [x, y, z] => {
                let (x, y) = self.alike(x, y)?;
                let z = self.typed_alike(z, x)?;
                match self.library(name, x)? {
                    "fma" if self.type_of(z) == self.type_of(x) => self.inst(Inst::Fma(x, y, z)),
                    _ => Err(format!("{name:?} is no function of these three values")),
                }
            }
            _ => Err(format!("{name:?} with {} arguments", arguments.len())),
        }
    }

    /// The name of a function of C's library for doubles; that for floats ends in `f`.
    pub(super) fn library<'n>(&self, name: &'n str, x: Value) -> Compiled<&'n str> {
        match self.type_of(x) {
            Ty::F64 => Ok(name),
            Ty::F32 => name.strip_suffix('f').ok_or_else(|| format!("{name:?} of a float")),
            other => Err(format!("{name:?} of {}", other.name())),
        }
    }

    pub(super) fn call_one(&mut self, name: &str, argument: &Expr) -> Compiled<Value> {
        // The word is cast to what it is.
        let word = match argument {
            Expr::Cast(_, word) => word,
            other => other,
        };
        if let Some(part) = self.part(word)
            && matches!(name, "from_half" | "from_brain" | "__uint_as_float")
        {
            return Ok(part);
        }
        // What is loaded as 16 bits is a float already.
        if matches!(name, "from_half" | "from_brain") {
            return match argument {
                Expr::Index(..) => self.lower(argument),
                Expr::Call(to, x) if x.len() == 1 => {
                    let op = match (name, to.as_str()) {
                        ("from_half", "to_half") => UnOp::RoundF16,
                        ("from_brain", "to_brain") => UnOp::RoundBF16,
                        _ => return Err(format!("{name:?} of {to:?}")),
                    };
                    let x = self.typed(&x[0], Ty::F32)?;
                    self.inst(Inst::Unary(op, x))
                }
                _ => Err(format!("{name:?} of something else than an element")),
            };
        }
        let x = self.lower(argument)?;
        let (from, to) = match name {
            "__float2int_rz" => (Ty::F32, Ty::I32),
            "__float2uint_rz" => (Ty::F32, Ty::U32),
            "__float2ll_rz" => (Ty::F32, Ty::I64),
            "__float2ull_rz" => (Ty::F32, Ty::U64),
            "__double2int_rz" => (Ty::F64, Ty::I32),
            "__double2uint_rz" => (Ty::F64, Ty::U32),
            "__double2ll_rz" => (Ty::F64, Ty::I64),
            "__double2ull_rz" => (Ty::F64, Ty::U64),
            "__uint_as_float" => return self.bits(x, Ty::U32, Ty::F32),
            "__float_as_int" => return self.bits(x, Ty::F32, Ty::I32),
            "__float_as_uint" => return self.bits(x, Ty::F32, Ty::U32),
            "__longlong_as_double" => return self.bits(x, Ty::I64, Ty::F64),
            "__double_as_longlong" => return self.bits(x, Ty::F64, Ty::I64),
            "__clz" => {
                let x = self.convert(x, Ty::U32);
                return self.inst(Inst::Unary(UnOp::LeadingZeros, x));
            }
            _ => return self.function_of(name, x),
        };
        if self.type_of(x) != from {
            return Err(format!("{name:?} of {}", self.type_of(x).name()));
        }
        Ok(self.convert(x, to))
    }

    pub(super) fn bits(&mut self, x: Value, from: Ty, to: Ty) -> Compiled<Value> {
        if self.type_of(x) == from {
            return self.inst(Inst::Bitcast(to, x));
        }
        Err(format!("the bits of {} as {}", self.type_of(x).name(), to.name()))
    }

    pub(super) fn function_of(&mut self, name: &str, x: Value) -> Compiled<Value> {
        let op = match self.library(name, x)? {
            "fabs" => UnOp::Abs,
            "floor" => UnOp::Floor,
            "ceil" => UnOp::Ceil,
            "trunc" => UnOp::Trunc,
            "rint" => UnOp::Round,
            "sqrt" => UnOp::Sqrt,
            c_name => {
                UnOp::Math(library_function(c_name).ok_or_else(|| format!("{name:?} is not declared"))?)
            }
        };
        self.inst(Inst::Unary(op, x))
    }
}

/// A function of one value by its name in C.
fn library_function(name: &str) -> Option<MathFn> {
    MathFn::ALL.iter().copied().find(|f| matches!(f.form(), Form::Library(known) if known == name))
}
