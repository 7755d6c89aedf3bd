//! Dimensions and integers as expressions over a model's names.
//!
//! Generated code calls the crate it uses `__rlx`.

use proc_macro2::TokenStream;
use quote::quote;
use rlx_ir::Extent;
use syn::spanned::Spanned;
use syn::{Error, Result};

use crate::signature::{Names, symbol, unknown_dimension};

/// A dimension: its value, and code that makes it.
#[derive(Clone)]
pub struct Dimension {
    /// The value, as an expression over symbols.
    pub extent: Extent,
    /// Code of type `Dim`.
    pub tokens: TokenStream,
}

impl Dimension {
    pub fn fixed(n: i64) -> Self {
        let size = usize::try_from(n).unwrap_or(0);
        Dimension { extent: Extent::Const(n), tokens: quote!(__rlx::Dim::Static(#size)) }
    }

    pub fn open(name: &str) -> Self {
        let tokens = quote!(__rlx::Dim::Dynamic(__rlx::sym::named(#name)));
        Dimension { extent: symbol(name), tokens }
    }

    /// `self op other`; `None` for an operator that dimensions do not have, or a division by a zero.
    pub fn combine(&self, op: &syn::BinOp, other: &Dimension) -> Option<Dimension> {
        let (a, b) = (self.extent, other.extent);
        let (x, y) = (&self.tokens, &other.tokens);
        let (extent, code) = match op {
            syn::BinOp::Add(_) => (a + b, quote!(#x.extent() + #y.extent())),
            syn::BinOp::Sub(_) => (a + b * -1, quote!(#x.extent() + #y.extent() * -1)),
            syn::BinOp::Mul(_) => (a * b, quote!(#x.extent() * #y.extent())),
            syn::BinOp::Div(_) if b != Extent::Const(0) => {
                (a.floor_div(b), quote!(#x.extent().floor_div(#y.extent())))
            }
            _ => return None,
        };
        Some(match extent {
            Extent::Const(n) => Dimension::fixed(n),
            _ => Dimension { extent, tokens: quote!(__rlx::Dim::from(#code)) },
        })
    }
}

/// The dimension that `e` is: a number, a name, or arithmetic over them.
pub fn dimension(e: &syn::Expr, names: &Names) -> Result<Dimension> {
    match e {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(n), .. }) => {
            Ok(Dimension::fixed(n.base10_parse::<i64>()?))
        }
        syn::Expr::Path(path) => match path.path.get_ident() {
            Some(ident) => match (names.symbol(ident), names.constant(ident)) {
                (Some(name), _) => Ok(Dimension::open(name)),
                (None, Some(value)) => Ok(Dimension::fixed(value)),
                (None, None) => Err(unknown_dimension(ident, names)),
            },
            None => Err(Error::new(e.span(), "expected a dimension: a number, or a name")),
        },
        syn::Expr::Paren(inner) => dimension(&inner.expr, names),
        syn::Expr::Group(inner) => dimension(&inner.expr, names),
        syn::Expr::Binary(binary) => {
            let (a, b) = (dimension(&binary.left, names)?, dimension(&binary.right, names)?);
            a.combine(&binary.op, &b)
                .ok_or_else(|| Error::new(binary.op.span(), "dimensions are combined by + - * /"))
        }
        _ => Err(Error::new(e.span(), "expected a dimension: a number, a name, or + - * / of them")),
    }
}

/// The integer that `e` is, over named constants.
pub fn integer(e: &syn::Expr, names: &Names) -> Result<i64> {
    match dimension(e, names)?.extent {
        Extent::Const(n) => Ok(n),
        other => Err(Error::new(e.span(), format!("`{other}` is known at run time only"))),
    }
}
