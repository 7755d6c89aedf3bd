//! The C that RLX's renderer writes, read back to a kernel: the fake compilers' front end.
//!
//! It is a compiler for the C that kernels are made of (declarations, assignments, `if`, `for`, barriers, atomics, the intrinsics of
//! CUDA), typed as C is. What it has no rule for is an error with the line it is in, as a real compiler's would be: so every character
//! of a kernel counts, and a renderer that wrote something else than it meant computes something else here.

mod lexer;
mod lower;
mod statements;
mod wide;

use std::collections::HashMap;

use rlx_kernel::Kernel;
use rlx_kernel::ir::{BufferDecl, Stmt, Ty, Value};

use lexer::{Token, tokens};

/// Why a source does not compile.
pub type Compiled<T> = Result<T, String>;

/// A kernel, and what its function is called.
#[derive(Debug)]
pub struct Function {
    pub name: String,
    pub kernel: Kernel,
    /// Whether its uniforms are a parameter by value.
    pub by_value: bool,
}

/// How many uniforms the type has that a source declares for them; `None` where it declares none.
///
/// # Errors
/// A declaration that is not understood.
pub fn uniforms(source: &str) -> Compiled<Option<usize>> {
    const REST: &str = "]; __device__ __forceinline__ int operator[](int i) const { return of[i]; } };";
    let Some(line) = source.lines().find(|line| line.starts_with("struct Uniforms ")) else {
        return Ok(None);
    };
    let count = line.strip_prefix("struct Uniforms { int of[").and_then(|l| l.strip_suffix(REST));
    let count = count.and_then(|count| count.parse().ok());
    count.map(Some).ok_or_else(|| format!("{line:?} declares no uniforms"))
}

/// How many threads exchange values by the function that a source has for it; `None` where it has none.
///
/// # Errors
/// A function that is not understood.
fn subgroup(source: &str) -> Compiled<Option<u32>> {
    const CUDA: &str = "template <class T> __device__ __forceinline__ T shuffle_xor(T x, int bits) { return __shfl_xor_sync(0xffffffffu, x, bits); }";
    const HIP: [&str; 2] = [
        "__device__ __forceinline__ int shuffled(int x, int bits) { return __builtin_amdgcn_ds_bpermute((((int)threadIdx.x ^ bits) & ",
        ") << 2, x); }",
    ];
    let by = |name: &str| source.lines().find(|line| line.contains(name) && line.contains("__forceinline__"));
    match (by(" shuffled(int x"), by(" shuffle_xor(")) {
        (None, None) => Ok(None),
        (None, Some(line)) if line == CUDA => Ok(Some(32)),
        (Some(line), _) => {
            let mask = line.strip_prefix(HIP[0]).and_then(|l| l.strip_suffix(HIP[1]));
            let lanes = mask.and_then(|mask| mask.parse::<u32>().ok()).and_then(|mask| mask.checked_add(1));
            lanes.map(Some).ok_or_else(|| format!("{line:?} exchanges nothing"))
        }
        (None, Some(line)) => Err(format!("{line:?} exchanges nothing")),
    }
}

/// Compiles the kernel of a source.
///
/// # Errors
/// What is wrong, with the line.
pub fn compile(source: &str) -> Compiled<Function> {
    let start = source.find("extern \"C\" __global__").ok_or("there is no kernel")?;
    let first_line = source[..start].matches('\n').count() + 1;
    let tokens = tokens(&source[start..], first_line)?;
    let mut parser = Parser::new(&tokens);
    parser.kernel.subgroup = subgroup(&source[..start])?;
    let function = parser.function().map_err(|what| format!("line {}: {what}", parser.line()))?;
    rlx_kernel::verify::verify(&function.kernel).map_err(|e| e.to_string())?;
    Ok(function)
}

/// Compiles statements over buffers, uniforms and variables that stand before them, to a kernel of one invocation.
///
/// # Errors
/// What is wrong, with the line.
pub fn compile_body(
    source: &str,
    buffers: Vec<BufferDecl>,
    uniforms: Vec<String>,
    vars: Vec<Ty>,
) -> Compiled<Kernel> {
    let source = format!("{source}}}\n");
    let tokens = tokens(&source, 1)?;
    let mut parser = Parser::new(&tokens);
    parser.kernel = Kernel { buffers, uniforms, vars, workgroup: 1, ..parser.kernel };
    parser.block().map_err(|what| format!("line {} of a body: {what}", parser.line()))?;
    if let Some(more) = parser.peek() {
        return Err(format!("{more:?} behind a body"));
    }
    let body = parser.blocks.pop().unwrap_or_default();
    parser.kernel.body = std::mem::take(&mut parser.constants).into_iter().chain(body).collect();
    Ok(parser.kernel)
}

/// An expression.
#[derive(Debug, Clone, PartialEq)]
enum Expr {
    Name(String),
    Int(u64, String),
    Float(f32),
    Index(String, Box<Expr>),
    Call(String, Vec<Expr>),
    Cast(Ty, Box<Expr>),
    Unary(&'static str, Box<Expr>),
    Binary(&'static str, Box<Expr>, Box<Expr>),
    Choice(Box<Expr>, Box<Expr>, Box<Expr>),
}

/// Binary operators by how tightly they bind, the loosest first.
const LEVELS: [&[&str]; 8] = [
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<", "<=", ">", ">="],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

/// The type of values that a name stands for.
fn scalar(name: &str) -> Option<Ty> {
    Some(match name {
        "bool" => Ty::Bool,
        "int" => Ty::I32,
        "u32" => Ty::U32,
        "i64" => Ty::I64,
        "u64" => Ty::U64,
        "float" => Ty::F32,
        "double" => Ty::F64,
        _ => return None,
    })
}

/// A kernel as it is read.
struct Parser<'t> {
    tokens: &'t [(Token, usize)],
    at: usize,
    kernel: Kernel,
    /// Constants come first, each once.
    constants: Vec<Stmt>,
    known: HashMap<(Ty, u64), Value>,
    /// Values by name, and the statements of each open block.
    names: HashMap<String, Value>,
    /// Elements that were read together, by the name of what they are parts of.
    parts: HashMap<String, Vec<Value>>,
    blocks: Vec<Vec<Stmt>>,
}

impl<'t> Parser<'t> {
    fn new(tokens: &'t [(Token, usize)]) -> Self {
        let kernel = Kernel {
            name: String::new(),
            buffers: Vec::new(),
            uniforms: Vec::new(),
            shared: Vec::new(),
            vars: Vec::new(),
            values: Vec::new(),
            workgroup: 0,
            subgroup: None,
            body: Vec::new(),
        };
        let (constants, known, names) = (Vec::new(), HashMap::new(), HashMap::new());
        let parts = HashMap::new();
        Parser { tokens, at: 0, kernel, constants, known, names, parts, blocks: vec![Vec::new()] }
    }

    fn line(&self) -> usize {
        self.tokens.get(self.at.saturating_sub(1)).map_or(0, |(_, line)| *line)
    }

    // ---- Tokens.

    fn peek(&self) -> Option<&'t Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    fn next(&mut self) -> Compiled<&'t Token> {
        let token = self.peek().ok_or("the text ends too early")?;
        self.at += 1;
        Ok(token)
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.peek(), Some(Token::Sign(s)) if *s == sign)
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), Some(Token::Name(n)) if n == name)
    }

    fn take(&mut self, sign: &str) -> bool {
        let is = self.is(sign);
        self.at += usize::from(is);
        is
    }

    fn take_name(&mut self, name: &str) -> bool {
        let is = self.is_name(name);
        self.at += usize::from(is);
        is
    }

    fn expect(&mut self, sign: &str) -> Compiled<()> {
        if self.take(sign) { Ok(()) } else { Err(format!("{sign:?} is expected, not {:?}", self.peek())) }
    }

    fn expect_name(&mut self, name: &str) -> Compiled<()> {
        if self.take_name(name) {
            Ok(())
        } else {
            Err(format!("{name:?} is expected, not {:?}", self.peek()))
        }
    }

    fn name(&mut self) -> Compiled<&'t str> {
        match self.next()? {
            Token::Name(name) => Ok(name),
            other => Err(format!("a name is expected, not {other:?}")),
        }
    }

    fn int(&mut self) -> Compiled<u64> {
        match self.next()? {
            Token::Int(n, _) => Ok(*n),
            other => Err(format!("a number is expected, not {other:?}")),
        }
    }

    // ---- Expressions.

    fn expression(&mut self) -> Compiled<Expr> {
        let cond = self.binary(0)?;
        if !self.take("?") {
            return Ok(cond);
        }
        let then = self.expression()?;
        self.expect(":")?;
        let otherwise = self.expression()?;
        Ok(Expr::Choice(Box::new(cond), Box::new(then), Box::new(otherwise)))
    }

    fn binary(&mut self, level: usize) -> Compiled<Expr> {
        let Some(signs) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some(&sign) = signs.iter().find(|sign| self.is(sign)) {
            self.at += 1;
            let right = self.binary(level + 1)?;
            left = Expr::Binary(sign, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Compiled<Expr> {
        for sign in ["-", "!", "~"] {
            if self.take(sign) {
                return Ok(Expr::Unary(sign, Box::new(self.unary()?)));
            }
        }
        if self.is("(") {
            let cast = match self.tokens.get(self.at + 1..self.at + 3) {
                Some([(Token::Name(name), _), (Token::Sign(")"), _)]) => scalar(name),
                _ => None,
            };
            if let Some(ty) = cast {
                self.at += 3;
                return Ok(Expr::Cast(ty, Box::new(self.unary()?)));
            }
            self.at += 1;
            let inner = self.expression()?;
            self.expect(")")?;
            return Ok(inner);
        }
        match self.next()? {
            Token::Int(n, suffix) => Ok(Expr::Int(*n, suffix.clone())),
            Token::Float(x) => Ok(Expr::Float(*x)),
            Token::Name(name) if self.take("[") => {
                let index = self.expression()?;
                self.expect("]")?;
                Ok(Expr::Index(name.clone(), Box::new(index)))
            }
            Token::Name(name) if self.take("(") => {
                let mut arguments = Vec::new();
                while !self.take(")") {
                    arguments.push(self.expression()?);
                    if !self.is(")") {
                        self.expect(",")?;
                    }
                }
                Ok(Expr::Call(name.clone(), arguments))
            }
            Token::Name(name) => Ok(Expr::Name(name.clone())),
            other => Err(format!("{other:?} begins no expression")),
        }
    }
}
