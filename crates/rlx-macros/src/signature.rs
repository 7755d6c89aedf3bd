//! The signature of a model: its dimensions, its tensors, its results.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use rlx_ir::{DType, Dim, Extent, Shape, nearest, sym};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Error, Ident, Result};

use crate::expr;

/// The attribute's own arguments.
pub struct Options {
    /// The crate whose items generated code uses.
    pub root: Option<TokenStream>,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.is_empty() {
            return Ok(Options { root: None });
        }
        input.parse::<syn::Token![crate]>()?;
        input.parse::<syn::Token![=]>()?;
        let path: syn::Path = input.parse()?;
        Ok(Options { root: Some(path.into_token_stream()) })
    }
}

/// The meaning of names in dimensions.
#[derive(Default)]
pub struct Names {
    /// Open dimensions, with their symbol's name.
    pub open: Vec<(Ident, String)>,
    /// Named constants.
    pub consts: Vec<(Ident, i64)>,
}

impl Names {
    /// The symbol that `ident` is.
    pub fn symbol(&self, ident: &Ident) -> Option<&str> {
        self.open.iter().find(|(i, _)| i == ident).map(|(_, name)| name.as_str())
    }

    /// The value of the constant that `ident` is.
    pub fn constant(&self, ident: &Ident) -> Option<i64> {
        self.consts.iter().find(|(i, _)| i == ident).map(|&(_, value)| value)
    }
}

/// A tensor's type as the signature states it.
pub struct TensorType {
    /// The Rust type of its elements.
    pub element: Ident,
    /// Dimensions and element type, as the graph has them.
    pub shape: Shape,
    /// Each dimension as code.
    pub dims: Vec<TokenStream>,
    /// Where it is written.
    pub span: Span,
}

impl TensorType {
    /// How many leading dimensions a run decides: up to the last open one.
    pub fn leading(&self) -> usize {
        self.shape.dims().iter().rposition(|d| !d.is_static()).map_or(0, |i| i + 1)
    }

    /// The fixed dimensions behind the leading ones.
    pub fn fixed(&self) -> Vec<usize> {
        self.shape.dims()[self.leading()..].iter().filter_map(|d| d.as_static()).collect()
    }
}

/// An input or a parameter.
pub struct Tensor {
    pub name: Ident,
    pub is_param: bool,
    pub ty: TensorType,
}

/// A model's signature.
pub struct Signature {
    pub docs: Vec<syn::Attribute>,
    pub vis: syn::Visibility,
    pub name: Ident,
    pub names: Names,
    pub tensors: Vec<Tensor>,
    pub results: Vec<TensorType>,
}

impl Signature {
    pub fn of(function: &syn::ItemFn) -> Result<Self> {
        let sig = &function.sig;
        check_form(function)?;
        let names = names(&sig.generics)?;
        let tensors: Vec<Tensor> = sig.inputs.iter().map(|arg| tensor(arg, &names)).collect::<Result<_>>()?;
        let results = match &sig.output {
            syn::ReturnType::Default => {
                let at = sig.paren_token.span.close();
                return Err(Error::new(at, "a model says what it computes: add `-> Tensor<…>`"));
            }
            syn::ReturnType::Type(_, ty) => match &**ty {
                syn::Type::Tuple(tuple) if tuple.elems.is_empty() => {
                    return Err(Error::new(ty.span(), "a model computes a tensor, not `()`"));
                }
                syn::Type::Tuple(tuple) => {
                    tuple.elems.iter().map(|ty| result(ty, &names)).collect::<Result<_>>()?
                }
                ty => vec![result(ty, &names)?],
            },
        };
        Ok(Signature {
            docs: function.attrs.iter().filter(|a| a.path().is_ident("doc")).cloned().collect(),
            vis: function.vis.clone(),
            name: sig.ident.clone(),
            names,
            tensors,
            results,
        })
    }

    pub fn inputs(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.iter().filter(|t| !t.is_param)
    }

    pub fn params(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.iter().filter(|t| t.is_param)
    }
}

/// What a function may have that a model cannot.
fn check_form(function: &syn::ItemFn) -> Result<()> {
    let sig = &function.sig;
    let reject = |span: Span, what: &str| Err(Error::new(span, format!("a model {what}")));
    if let Some(token) = &sig.asyncness {
        return reject(token.span, "is not async");
    }
    if let Some(token) = &sig.unsafety {
        return reject(token.span, "is not unsafe");
    }
    if let Some(token) = &sig.constness {
        return reject(token.span, "is not const");
    }
    if let Some(clause) = &sig.generics.where_clause {
        return reject(clause.span(), "has no where clause");
    }
    match function.attrs.iter().find(|a| !a.path().is_ident("doc")) {
        Some(attr) => reject(attr.span(), "takes no attributes besides its documentation"),
        None => Ok(()),
    }
}

/// `Batch` is the symbol `batch`, `PastSeq` is `past_seq`.
fn snake_case(name: &str) -> String {
    let mut out = String::new();
    for (i, c) in name.chars().enumerate() {
        if c.is_uppercase() && i > 0 {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

fn names(generics: &syn::Generics) -> Result<Names> {
    let mut names = Names::default();
    for param in &generics.params {
        match param {
            syn::GenericParam::Type(ty) => {
                if let Some(bound) = ty.bounds.first() {
                    return Err(Error::new(bound.span(), "a dynamic dimension has no bounds"));
                }
                names.open.push((ty.ident.clone(), snake_case(&ty.ident.to_string())));
            }
            syn::GenericParam::Const(constant) => {
                let name = &constant.ident;
                let Some(default) = &constant.default else {
                    let message = format!(
                        "the constant `{name}` has no value: write `const {name}: usize = …`, or make it a \
                         dynamic dimension (`{name}` without `const`)"
                    );
                    return Err(Error::new(constant.span(), message));
                };
                let value = expr::integer(default, &names)?;
                names.consts.push((name.clone(), value));
            }
            syn::GenericParam::Lifetime(lifetime) => {
                return Err(Error::new(lifetime.span(), "a model has no lifetimes"));
            }
        }
    }
    Ok(names)
}

fn tensor(arg: &syn::FnArg, names: &Names) -> Result<Tensor> {
    let typed = match arg {
        syn::FnArg::Typed(typed) => typed,
        syn::FnArg::Receiver(receiver) => {
            return Err(Error::new(receiver.span(), "a model is a free function, without `self`"));
        }
    };
    let syn::Pat::Ident(pat) = &*typed.pat else {
        return Err(Error::new(typed.pat.span(), "a tensor needs a plain name"));
    };
    let (is_param, ty) = tensor_type(&typed.ty, names)?;
    if is_param && !ty.shape.is_static() {
        let message =
            format!("parameter `{}` has a dynamic dimension, but it is set once, for all runs", pat.ident);
        return Err(Error::new(typed.ty.span(), message));
    }
    Ok(Tensor { name: pat.ident.clone(), is_param, ty })
}

fn result(ty: &syn::Type, names: &Names) -> Result<TensorType> {
    let (is_param, tensor) = tensor_type(ty, names)?;
    if is_param {
        return Err(Error::new(ty.span(), "a result is a `Tensor<…>`"));
    }
    Ok(tensor)
}

/// Reads `Tensor<f32, Batch, 64>` or `Param<…>`; gives whether it is a parameter.
pub fn tensor_type(ty: &syn::Type, names: &Names) -> Result<(bool, TensorType)> {
    let expected = "expected `Tensor<f32, …dimensions>` or `Param<f32, …dimensions>`";
    let shape_mismatch = || Error::new(ty.span(), expected);
    let syn::Type::Path(path) = ty else { return Err(shape_mismatch()) };
    let segment = path.path.segments.last().ok_or_else(shape_mismatch)?;
    let is_param = match segment.ident.to_string().as_str() {
        "Tensor" => false,
        "Param" => true,
        _ => return Err(shape_mismatch()),
    };
    let syn::PathArguments::AngleBracketed(args) = &segment.arguments else { return Err(shape_mismatch()) };
    let mut args = args.args.iter();
    let (element, dtype) = element(args.next().ok_or_else(shape_mismatch)?)?;
    let (mut dims, mut tokens) = (Vec::new(), Vec::new());
    for arg in args {
        let (dim, code) = dimension(arg, names)?;
        dims.push(dim);
        tokens.push(code);
    }
    let shape = Shape::from_dims(&dims, dtype);
    Ok((is_param, TensorType { element, shape, dims: tokens, span: ty.span() }))
}

/// The element types that Rust values have.
const ELEMENTS: &[DType] = &[
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F64,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::Bool,
];

fn element(arg: &syn::GenericArgument) -> Result<(Ident, DType)> {
    let syn::GenericArgument::Type(syn::Type::Path(path)) = arg else {
        return Err(Error::new(arg.span(), "expected an element type, such as f32"));
    };
    let found = path.path.get_ident().and_then(|ident| {
        let dtype = ELEMENTS.iter().find(|d| ident == d.name())?;
        Some((ident.clone(), *dtype))
    });
    found.ok_or_else(|| {
        let names: Vec<&str> = ELEMENTS.iter().map(|d| d.name()).collect();
        let given = path.to_token_stream().to_string();
        let message = format!("`{given}` is not an element type; use one of {}", names.join(", "));
        Error::new(arg.span(), message)
    })
}

fn dimension(arg: &syn::GenericArgument, names: &Names) -> Result<(Dim, TokenStream)> {
    let parsed: syn::Expr = match arg {
        syn::GenericArgument::Type(ty) => syn::parse2(ty.to_token_stream())?,
        syn::GenericArgument::Const(syn::Expr::Block(block)) => match &block.block.stmts[..] {
            [syn::Stmt::Expr(e, None)] => e.clone(),
            _ => return Err(Error::new(block.span(), "expected one expression")),
        },
        syn::GenericArgument::Const(e) => e.clone(),
        other => return Err(Error::new(other.span(), "expected a dimension: a number, or a name")),
    };
    let value = expr::dimension(&parsed, names)?;
    if matches!(value.extent, Extent::Const(n) if n < 0) {
        return Err(Error::new(arg.span(), format!("a dimension of {}", value.extent)));
    }
    Ok((Dim::from(value.extent), value.tokens))
}

/// The message for a name that is neither a dynamic dimension nor a constant.
pub fn unknown_dimension(ident: &Ident, names: &Names) -> Error {
    let name = ident.to_string();
    let known: Vec<String> = names.open.iter().map(|(i, _)| i.to_string()).collect();
    let known: Vec<String> =
        known.into_iter().chain(names.consts.iter().map(|(i, _)| i.to_string())).collect();
    let hint = match nearest(&name, known.iter().map(String::as_str)) {
        Some(close) => format!("did you mean `{close}`?"),
        None => format!(
            "declare it in the signature: `fn model<{name}>(…)` for a dynamic dimension, \
             `fn model<const {name}: usize = …>(…)` for a constant"
        ),
    };
    Error::new(ident.span(), format!("there is no dimension `{name}`; {hint}"))
}

/// The symbol called `name`, as a dimension.
pub fn symbol(name: &str) -> Extent {
    Extent::sym(sym::named(name))
}
