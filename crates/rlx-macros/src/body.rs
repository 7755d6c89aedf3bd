//! Recording a model's body: each expression is traced with the shapes of the signature, and written as code.

use std::collections::HashMap;

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use rlx_ir::op::BinaryOp;
use rlx_ir::trace::{Arg, ArgKind, Method, binary, call, method, methods, negate};
use rlx_ir::{DType, Dim, TracedTensor, Tracer, nearest, oracle};
use syn::spanned::Spanned;
use syn::{Error, Ident, Result};

use crate::expr::Dimension;
use crate::signature::{Signature, TensorType, tensor_type};

/// What an expression is while the body is recorded.
#[derive(Clone)]
enum Value {
    Tensor(TracedTensor),
    Int(i64),
    Float(f64),
    Flag(bool),
    DType(DType),
    Dim(Dimension),
    List(Vec<Checked>),
    Tuple(Vec<Checked>),
}

/// An expression: its value, and code that computes it.
#[derive(Clone)]
struct Checked {
    value: Value,
    code: TokenStream,
    span: Span,
    /// The variable it is, when it is nothing more.
    variable: Option<Ident>,
}

impl Checked {
    fn new(value: Value, code: TokenStream, span: Span) -> Self {
        Checked { value, code, span, variable: None }
    }

    fn describe(&self) -> &'static str {
        match self.value {
            Value::Tensor(_) => "a tensor",
            Value::Int(_) => "an integer",
            Value::Float(_) => "a number",
            Value::Flag(_) => "true or false",
            Value::DType(_) => "an element type",
            Value::Dim(_) => "a dynamic dimension",
            Value::List(_) => "a list",
            Value::Tuple(_) => "a tuple",
        }
    }
}

/// A recorded body.
pub struct Body {
    /// The statements, over variables that are traced tensors.
    pub statements: Vec<TokenStream>,
    /// The results: field name, and code of a traced tensor.
    pub results: Vec<(Ident, TokenStream)>,
}

/// Records `block` and checks it against the signature.
pub fn record(signature: &Signature, block: &syn::Block) -> Result<Body> {
    let tracer = Tracer::new(signature.name.to_string());
    let mut recorder = Recorder { signature, vars: HashMap::new() };
    let mut sources = Vec::new();
    for tensor in &signature.tensors {
        let name = tensor.name.to_string();
        let traced = if tensor.is_param {
            tracer.param(&name, tensor.ty.shape.clone())
        } else {
            tracer.input(&name, tensor.ty.shape.clone())
        };
        if recorder.vars.insert(name.clone(), Value::Tensor(traced.clone())).is_some() {
            return Err(Error::new(tensor.name.span(), format!("`{name}` is declared twice")));
        }
        sources.push((tensor, traced));
    }
    let (statements, tail) = recorder.block(block)?;
    let results = recorder.results(&tail)?;
    let graph = tracer.finish(&results.iter().map(|(_, _, t)| t.clone()).collect::<Vec<_>>());
    let live =
        oracle::live_nodes(&graph, &graph.outputs).map_err(|e| Error::new(tail.span, e.to_string()))?;
    let unused: Option<Error> = sources
        .iter()
        .filter(|(_, traced)| !live[traced.id().index()])
        .map(|(tensor, _)| {
            let what = if tensor.is_param { "parameter" } else { "input" };
            let message = format!("{what} `{}` is not used in the result", tensor.name);
            Error::new(tensor.name.span(), message)
        })
        .reduce(|mut all, next| {
            all.combine(next);
            all
        });
    if let Some(error) = unused {
        return Err(error);
    }
    let results = results.into_iter().map(|(name, code, _)| (name, code)).collect();
    Ok(Body { statements, results })
}

struct Recorder<'s> {
    signature: &'s Signature,
    vars: HashMap<String, Value>,
}

/// An error of the op table at `span`.
fn fault(span: Span, error: &rlx_ir::Error) -> Error {
    match error.hint() {
        Some(hint) => Error::new(span, format!("{}\n({hint})", error.message())),
        None => Error::new(span, error.message()),
    }
}

impl Recorder<'_> {
    fn block(&mut self, block: &syn::Block) -> Result<(Vec<TokenStream>, Checked)> {
        let mut statements = Vec::new();
        for (i, statement) in block.stmts.iter().enumerate() {
            let last = i + 1 == block.stmts.len();
            match statement {
                syn::Stmt::Local(local) => statements.push(self.local(local)?),
                syn::Stmt::Expr(syn::Expr::Return(ret), _) if last => {
                    let Some(e) = &ret.expr else {
                        return Err(Error::new(ret.span(), "return the result"));
                    };
                    return Ok((statements, self.expr(e)?));
                }
                syn::Stmt::Expr(e, None) if last => return Ok((statements, self.expr(e)?)),
                syn::Stmt::Expr(e, Some(semicolon)) if last => {
                    self.expr(e)?;
                    let message = "the model returns nothing: remove this semicolon";
                    return Err(Error::new(semicolon.span, message));
                }
                other => {
                    let message = "a model is made of `let` statements and, at its end, the result";
                    return Err(Error::new(other.span(), message));
                }
            }
        }
        let message = "the model returns nothing: end it with the result";
        Err(Error::new(block.brace_token.span.close(), message))
    }

    fn local(&mut self, local: &syn::Local) -> Result<TokenStream> {
        let Some(init) = &local.init else {
            return Err(Error::new(local.span(), "a variable needs its value"));
        };
        if let Some((token, _)) = &init.diverge {
            return Err(Error::new(token.span, "a model has no branches"));
        }
        let value = self.expr(&init.expr)?;
        let (pat, stated) = match &local.pat {
            syn::Pat::Type(typed) => (&*typed.pat, Some(&*typed.ty)),
            pat => (pat, None),
        };
        if let Some(ty) = stated {
            let (_, ty) = tensor_type(ty, &self.signature.names)?;
            let Value::Tensor(tensor) = &value.value else {
                return Err(Error::new(value.span, format!("this is {}, not a tensor", value.describe())));
            };
            check_shape(tensor, &ty, value.span)?;
        }
        self.bind(pat, value)
    }

    fn bind(&mut self, pat: &syn::Pat, value: Checked) -> Result<TokenStream> {
        let code = owned(&value);
        match (pat, value.value) {
            (syn::Pat::Ident(pat), bound) if pat.subpat.is_none() && pat.by_ref.is_none() => {
                if matches!(bound, Value::Tuple(_)) {
                    return Err(Error::new(pat.span(), "destructure the tuple: `let (a, b) = …`"));
                }
                if matches!(&bound, Value::List(items) if items.iter().any(|i| matches!(i.value, Value::Tensor(_))))
                {
                    return Err(Error::new(pat.span(), "put a list of tensors where it is used"));
                }
                let name = &pat.ident;
                let is_tensor = matches!(bound, Value::Tensor(_));
                self.vars.insert(name.to_string(), bound);
                // Numbers, lists and dimensions are put where they are used.
                Ok(if is_tensor { quote!(let #name = #code;) } else { TokenStream::new() })
            }
            (syn::Pat::Tuple(pats), Value::Tuple(values)) if pats.elems.len() == values.len() => {
                let mut names = Vec::new();
                for (pat, value) in pats.elems.iter().zip(values) {
                    match pat {
                        syn::Pat::Ident(pat) => {
                            self.vars.insert(pat.ident.to_string(), value.value);
                            let name = &pat.ident;
                            names.push(quote!(#name));
                        }
                        syn::Pat::Wild(_) => names.push(quote!(_)),
                        other => return Err(Error::new(other.span(), "expected a name")),
                    }
                }
                Ok(quote!(let (#(#names),*) = #code;))
            }
            (pat, _) => {
                Err(Error::new(pat.span(), "expected a name, or a tuple of as many names as there are"))
            }
        }
    }

    fn expr(&self, e: &syn::Expr) -> Result<Checked> {
        match e {
            syn::Expr::Lit(lit) => literal(lit),
            syn::Expr::Path(path) => self.path(path),
            syn::Expr::Paren(inner) => self.expr(&inner.expr),
            syn::Expr::Group(inner) => self.expr(&inner.expr),
            syn::Expr::Reference(inner) => self.expr(&inner.expr),
            syn::Expr::Unary(unary) => self.unary(unary),
            syn::Expr::Binary(binary) => self.binary(binary),
            syn::Expr::MethodCall(call) => self.method_call(call),
            syn::Expr::Array(array) => {
                let items: Vec<Checked> = array.elems.iter().map(|e| self.expr(e)).collect::<Result<_>>()?;
                Ok(Checked::new(Value::List(items), TokenStream::new(), array.span()))
            }
            syn::Expr::Tuple(tuple) => {
                let items: Vec<Checked> = tuple.elems.iter().map(|e| self.expr(e)).collect::<Result<_>>()?;
                let codes = items.iter().map(owned);
                let code = quote!((#(#codes),*));
                Ok(Checked::new(Value::Tuple(items), code, tuple.span()))
            }
            syn::Expr::Call(call) => {
                let message =
                    "a model calls methods of tensors, no functions: write it as a method, or inline";
                Err(Error::new(call.span(), message))
            }
            other => Err(Error::new(
                other.span(),
                "a model is straight-line code: operators, methods of tensors, numbers, lists, tuples",
            )),
        }
    }

    fn path(&self, path: &syn::ExprPath) -> Result<Checked> {
        let span = path.span();
        let segments = &path.path.segments;
        if segments.len() == 2 && segments[0].ident == "DType" {
            let name = segments[1].ident.to_string();
            let Some(dtype) = DType::ALL.iter().find(|d| format!("{d:?}") == name) else {
                return Err(Error::new(span, format!("there is no element type `{name}`")));
            };
            let variant = &segments[1].ident;
            return Ok(Checked::new(Value::DType(*dtype), quote!(__rlx::DType::#variant), span));
        }
        let Some(ident) = path.path.get_ident() else {
            return Err(Error::new(span, "a model uses its own tensors, variables and dimensions"));
        };
        let names = &self.signature.names;
        let value = match (self.vars.get(&ident.to_string()), names.symbol(ident), names.constant(ident)) {
            (Some(value), ..) => value.clone(),
            (None, Some(symbol), _) => Value::Dim(Dimension::open(symbol)),
            (None, None, Some(n)) => Value::Int(n),
            (None, None, None) => {
                let known = self.vars.keys().map(String::as_str);
                let hint = nearest(&ident.to_string(), known)
                    .map_or_else(String::new, |close| format!("; did you mean `{close}`?"));
                return Err(Error::new(span, format!("there is no `{ident}` in this model{hint}")));
            }
        };
        Ok(Checked { value, code: quote!(#ident), span, variable: Some(ident.clone()) })
    }

    fn unary(&self, unary: &syn::ExprUnary) -> Result<Checked> {
        let inner = self.expr(&unary.expr)?;
        let span = unary.span();
        if !matches!(unary.op, syn::UnOp::Neg(_)) {
            return Err(Error::new(unary.op.span(), "tensors have no such operator"));
        }
        let value = match inner.value {
            Value::Int(n) => Value::Int(n.wrapping_neg()),
            Value::Float(x) => Value::Float(-x),
            Value::Tensor(ref x) => Value::Tensor(negate(x).map_err(|e| fault(unary.op.span(), &e))?),
            _ => {
                let message = format!("{} cannot be negated", inner.describe());
                return Err(Error::new(span, message));
            }
        };
        let code = inner.code;
        Ok(Checked::new(value, quote_spanned!(unary.op.span()=> (-&#code)), span))
    }

    fn binary(&self, e: &syn::ExprBinary) -> Result<Checked> {
        let (a, b) = (self.expr(&e.left)?, self.expr(&e.right)?);
        let span = e.op.span();
        let whole = e.span();
        let value = match (&a.value, &b.value) {
            (Value::Int(_) | Value::Dim(_), Value::Int(_) | Value::Dim(_)) => {
                let dimension = as_dimension(&a).combine(&e.op, &as_dimension(&b));
                match dimension {
                    Some(Dimension { extent: rlx_ir::Extent::Const(n), .. }) => Value::Int(n),
                    Some(dimension) => Value::Dim(dimension),
                    None => return Err(Error::new(span, "integers are combined by + - * /")),
                }
            }
            (Value::Float(_) | Value::Int(_), Value::Float(_) | Value::Int(_)) => Value::Float(
                arithmetic(&e.op, number(&a), number(&b))
                    .ok_or_else(|| Error::new(span, "numbers are combined by + - * /"))?,
            ),
            _ => {
                let op = match e.op {
                    syn::BinOp::Add(_) => BinaryOp::Add,
                    syn::BinOp::Sub(_) => BinaryOp::Sub,
                    syn::BinOp::Mul(_) => BinaryOp::Mul,
                    syn::BinOp::Div(_) => BinaryOp::Div,
                    _ => {
                        let message =
                            "tensors have the operators + - * /; comparisons are methods: less, equal, …";
                        return Err(Error::new(span, message));
                    }
                };
                let (x, y) = (argument(&a, ArgKind::Operand)?, argument(&b, ArgKind::Operand)?);
                Value::Tensor(binary(op, &x.0, &y.0).map_err(|error| fault(span, &error))?)
            }
        };
        if !matches!(value, Value::Tensor(_)) {
            return Ok(Checked::new(value, TokenStream::new(), whole));
        }
        let (x, y) = (argument(&a, ArgKind::Operand)?.1, argument(&b, ArgKind::Operand)?.1);
        let op = &e.op;
        Ok(Checked::new(value, quote_spanned!(span=> (#x #op #y)), whole))
    }

    fn method_call(&self, e: &syn::ExprMethodCall) -> Result<Checked> {
        let receiver = self.expr(&e.receiver)?;
        let name = &e.method;
        let Value::Tensor(x) = &receiver.value else {
            let message = format!("`{name}` is a method of tensors; this is {}", receiver.describe());
            return Err(Error::new(receiver.span, message));
        };
        let args: Vec<Checked> = e.args.iter().map(|arg| self.expr(arg)).collect::<Result<_>>()?;
        let code = &receiver.code;
        match name.to_string().as_str() {
            "clone" if args.is_empty() => return Ok(receiver),
            "top_k" => return top_k(name, x, code, &args, e.span()),
            _ => {}
        }
        let mut name = name.clone();
        if name == "reshape" && args.iter().any(has_open_dimension) {
            name = Ident::new("reshape_to", name.span());
        }
        let Some(found) = method(&name.to_string()) else { return Err(unknown_method(&name)) };
        let (values, codes) = arguments(found, &args, &name)?;
        let result = call(found.name, x, &values).map_err(|error| fault(name.span(), &error))?;
        let code = quote_spanned!(name.span()=> #code.#name(#(#codes),*));
        Ok(Checked::new(Value::Tensor(result), code, e.span()))
    }

    /// The results by name, checked against the declared ones.
    fn results(&self, tail: &Checked) -> Result<Vec<(Ident, TokenStream, TracedTensor)>> {
        let declared = &self.signature.results;
        let single = std::slice::from_ref(tail);
        let given = match &tail.value {
            Value::Tuple(items) => &items[..],
            _ => single,
        };
        if given.len() != declared.len() {
            let message =
                format!("the signature has {} results, the body gives {}", declared.len(), given.len());
            return Err(Error::new(tail.span, message));
        }
        let mut results: Vec<(Ident, TokenStream, TracedTensor)> = Vec::new();
        for (i, (item, ty)) in given.iter().zip(declared).enumerate() {
            let Value::Tensor(tensor) = &item.value else {
                return Err(Error::new(
                    item.span,
                    format!("the result is {}, not a tensor", item.describe()),
                ));
            };
            check_shape(tensor, ty, item.span)?;
            let name = match &item.variable {
                Some(name) => name.clone(),
                None if given.len() == 1 => Ident::new("output", item.span),
                None => Ident::new(&format!("output{i}"), item.span),
            };
            if results.iter().any(|(other, ..)| *other == name) {
                return Err(Error::new(item.span, format!("two results are called `{name}`")));
            }
            results.push((name, owned(item), tensor.clone()));
        }
        Ok(results)
    }
}

/// A declared shape must be the one the body has: the same dimensions, not merely such as may agree.
fn check_shape(tensor: &TracedTensor, ty: &TensorType, at: Span) -> Result<()> {
    let found = tensor.shape();
    if found == ty.shape {
        return Ok(());
    }
    let mut error = Error::new(at, format!("this is {found}, declared is {}", ty.shape));
    error.combine(Error::new(ty.span, format!("declared as {} here", ty.shape)));
    Err(error)
}

/// Code of an owned tensor.
fn owned(e: &Checked) -> TokenStream {
    let code = &e.code;
    if e.variable.is_some() { quote!(#code.clone()) } else { code.clone() }
}

fn literal(e: &syn::ExprLit) -> Result<Checked> {
    let value = match &e.lit {
        syn::Lit::Int(n) if n.suffix() == "f32" || n.suffix() == "f64" => Value::Float(n.base10_parse()?),
        syn::Lit::Int(n) => Value::Int(n.base10_parse()?),
        syn::Lit::Float(x) => Value::Float(x.base10_parse()?),
        syn::Lit::Bool(b) => Value::Flag(b.value),
        other => return Err(Error::new(other.span(), "expected a number, or true or false")),
    };
    Ok(Checked::new(value, TokenStream::new(), e.span()))
}

fn as_dimension(e: &Checked) -> Dimension {
    match &e.value {
        Value::Dim(d) => d.clone(),
        Value::Int(n) => Dimension::fixed(*n),
        _ => Dimension::fixed(0),
    }
}

fn number(e: &Checked) -> f64 {
    match e.value {
        Value::Int(n) => n as f64,
        Value::Float(x) => x,
        _ => f64::NAN,
    }
}

fn arithmetic(op: &syn::BinOp, a: f64, b: f64) -> Option<f64> {
    Some(match op {
        syn::BinOp::Add(_) => a + b,
        syn::BinOp::Sub(_) => a - b,
        syn::BinOp::Mul(_) => a * b,
        syn::BinOp::Div(_) => a / b,
        _ => return None,
    })
}

fn has_open_dimension(e: &Checked) -> bool {
    matches!(&e.value, Value::List(items) if items.iter().any(|i| matches!(i.value, Value::Dim(_))))
}

fn unknown_method(name: &Ident) -> Error {
    let names = methods().map(|m| m.name).chain(["top_k"]);
    let hint = match nearest(&name.to_string(), names) {
        Some(close) => format!("; did you mean `{close}`?"),
        None => String::new(),
    };
    Error::new(name.span(), format!("a tensor has no op `{name}`{hint}"))
}

/// The arguments of a call: for recording, and as code.
fn arguments(method: &Method, args: &[Checked], at: &Ident) -> Result<(Vec<Arg>, Vec<TokenStream>)> {
    if args.len() != method.args.len() {
        let list: Vec<String> =
            method.args.iter().map(|(name, kind)| format!("{name}: {}", kind.describe())).collect();
        let message = format!("`{at}` takes ({}), but {} were given", list.join(", "), args.len());
        return Err(Error::new(at.span(), message));
    }
    let pairs = args.iter().zip(method.args).map(|(arg, &(_, kind))| argument(arg, kind));
    Ok(pairs.collect::<Result<Vec<_>>>()?.into_iter().unzip())
}

/// One argument of the expected kind.
fn argument(e: &Checked, kind: ArgKind) -> Result<(Arg, TokenStream)> {
    let code = &e.code;
    let shape_mismatch =
        || Error::new(e.span, format!("expected {}, this is {}", kind.describe(), e.describe()));
    let list = || match &e.value {
        Value::List(items) => Ok(items),
        _ => Err(shape_mismatch()),
    };
    let ints = || -> Result<Vec<i64>> {
        list()?
            .iter()
            .map(|i| if let Value::Int(n) = i.value { Ok(n) } else { Err(shape_mismatch()) })
            .collect()
    };
    Ok(match (kind, &e.value) {
        (ArgKind::Tensor | ArgKind::Operand, Value::Tensor(t)) => (Arg::Tensor(t.clone()), quote!(&#code)),
        (ArgKind::Operand | ArgKind::Number, Value::Int(_) | Value::Float(_)) => {
            let x = number(e);
            let code = if kind == ArgKind::Number {
                let x = x as f32;
                quote!(#x)
            } else {
                quote!(#x)
            };
            // Negative literals in operator position need their parentheses.
            (Arg::Float(x), quote!((#code)))
        }
        (ArgKind::Tensors, _) => {
            let mut tensors = Vec::new();
            for item in list()? {
                let Value::Tensor(t) = &item.value else { return Err(shape_mismatch()) };
                tensors.push(t.clone());
            }
            let codes = list()?.iter().map(|i| &i.code);
            (Arg::Tensors(tensors), quote!([#(&#codes),*]))
        }
        (ArgKind::Axis, Value::Int(n)) => {
            let axis = i32::try_from(*n).map_err(|_| shape_mismatch())?;
            (Arg::Int(*n), quote!(#axis))
        }
        (ArgKind::Size, Value::Int(n)) => {
            let size = usize::try_from(*n).map_err(|_| shape_mismatch())?;
            (Arg::Int(*n), quote!(#size))
        }
        (ArgKind::Flag, Value::Flag(b)) => (Arg::Flag(*b), quote!(#b)),
        (ArgKind::DType, Value::DType(d)) => (Arg::DType(*d), quote!(#code)),
        (ArgKind::Axes, _) => {
            let axes: Vec<i32> = ints()?
                .iter()
                .map(|&n| i32::try_from(n).map_err(|_| shape_mismatch()))
                .collect::<Result<_>>()?;
            (Arg::Ints(ints()?), quote!(&[#(#axes),*] as &[i32]))
        }
        (ArgKind::Dims, _) => {
            let dims = ints()?;
            (Arg::Ints(dims.clone()), quote!(&[#(#dims),*] as &[i64]))
        }
        (ArgKind::Permutation, _) => {
            let axes: Vec<usize> = ints()?
                .iter()
                .map(|&n| usize::try_from(n).map_err(|_| shape_mismatch()))
                .collect::<Result<_>>()?;
            (Arg::Ints(ints()?), quote!(&[#(#axes),*] as &[usize]))
        }
        (ArgKind::Extents, _) => {
            let mut dims = Vec::new();
            for item in list()? {
                match &item.value {
                    Value::Int(n) if *n >= 0 => dims.push(Dimension::fixed(*n)),
                    Value::Dim(d) => dims.push(d.clone()),
                    _ => {
                        let message = "next to a dynamic dimension, every dimension must be a size or a name";
                        return Err(Error::new(item.span, message));
                    }
                }
            }
            let codes = dims.iter().map(|d| &d.tokens);
            let values = dims.iter().map(|d| Dim::from(d.extent)).collect();
            (Arg::Dims(values), quote!(&[#(#codes),*] as &[__rlx::Dim]))
        }
        _ => return Err(shape_mismatch()),
    })
}

/// `x.top_k(k, axis)`: the one method with two results.
fn top_k(
    name: &Ident,
    x: &TracedTensor,
    code: &TokenStream,
    args: &[Checked],
    span: Span,
) -> Result<Checked> {
    let [k, axis] = args else {
        return Err(Error::new(name.span(), "`top_k` takes (k: a count, axis: an axis)"));
    };
    let ((k, k_code), (axis, axis_code)) = (argument(k, ArgKind::Size)?, argument(axis, ArgKind::Axis)?);
    let (Arg::Int(k), Arg::Int(axis)) = (k, axis) else {
        return Err(Error::new(name.span(), "`top_k` takes two integers"));
    };
    let (values, indices) = x.top_k(k as usize, axis as i32);
    for part in [&values, &indices] {
        part.try_shape().map_err(|error| fault(name.span(), &error))?;
    }
    let part = |t: TracedTensor| Checked::new(Value::Tensor(t), TokenStream::new(), span);
    let parts = vec![part(values), part(indices)];
    let code = quote_spanned!(name.span()=> #code.top_k(#k_code, #axis_code));
    Ok(Checked::new(Value::Tuple(parts), code, span))
}
