//! Attribute values: how each type that may be in the op table is written, read, and bound.

use std::sync::Arc;

use crate::dim::{Dim, DimBinding, Extent};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::text::{Lexer, TextWriter};

/// A type that may be in the op table.
pub trait Attr: Sized + Clone + PartialEq {
    /// Whether two values are the same attribute. Unlike `==`, a float that is no number is the same as another one, and 0
    /// is another one than -0: an op is equal to its copy, and equal ops compute the same.
    fn same(&self, other: &Self) -> bool {
        self == other
    }

    /// Writes the value as the text form has it.
    fn write(&self, w: &mut TextWriter);

    /// Reads what [`Attr::write`] wrote.
    ///
    /// # Errors
    /// [`ErrorKind::Parse`] with the position.
    fn parse(lexer: &mut Lexer<'_>) -> Result<Self>;

    /// The value with the bound symbols put in; the value itself for types without symbols.
    fn bind(&self, binding: &DimBinding) -> Self {
        let _ = binding;
        self.clone()
    }

    /// Calls `found` with each expression that occurs in the value.
    fn each_extent(&self, found: &mut dyn FnMut(Extent)) {
        let _ = found;
    }

    /// Calls `found` with each symbol that occurs in the value, perhaps more than once.
    fn each_symbol(&self, found: &mut dyn FnMut(u32)) {
        self.each_extent(&mut |e| e.each_symbol(found));
    }
}

macro_rules! integer_attrs {
    ($($ty:ty),*) => {$(
        impl Attr for $ty {
            fn write(&self, w: &mut TextWriter) {
                w.display(self);
            }

            fn parse(lexer: &mut Lexer<'_>) -> Result<Self> {
                let value = lexer.integer()?;
                <$ty>::try_from(value).map_err(|_| lexer.error(&format!("{value} does not fit {}", stringify!($ty))))
            }
        }
    )*};
}
integer_attrs!(i32, i64, u32, u64, usize);

macro_rules! float_attrs {
    ($($ty:ty),*) => {$(
        impl Attr for $ty {
            fn same(&self, other: &Self) -> bool {
                self.to_bits() == other.to_bits() || (self.is_nan() && other.is_nan())
            }

            /// Shortest text that reads back to the same bits.
            fn write(&self, w: &mut TextWriter) {
                w.display(format_args!("{self:?}"));
            }

            fn parse(lexer: &mut Lexer<'_>) -> Result<Self> {
                let word = lexer.number_word()?;
                word.parse().map_err(|_| lexer.error(&format!("\"{word}\" is not a number")))
            }
        }
    )*};
}
float_attrs!(f32, f64);

impl Attr for bool {
    fn write(&self, w: &mut TextWriter) {
        w.push(if *self { "true" } else { "false" });
    }

    fn parse(lexer: &mut Lexer<'_>) -> Result<Self> {
        match lexer.word()?.as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            other => Err(lexer.error(&format!("\"{other}\" is neither true nor false"))),
        }
    }
}

impl Attr for String {
    fn write(&self, w: &mut TextWriter) {
        w.display(format_args!("{self:?}"));
    }

    fn parse(lexer: &mut Lexer<'_>) -> Result<Self> {
        lexer.string()
    }
}

impl Attr for DType {
    fn write(&self, w: &mut TextWriter) {
        w.push(self.name());
    }

    fn parse(lexer: &mut Lexer<'_>) -> Result<Self> {
        lexer.word()?.parse()
    }
}

impl Attr for Dim {
    fn write(&self, w: &mut TextWriter) {
        w.display(self);
    }

    fn parse(lexer: &mut Lexer<'_>) -> Result<Self> {
        lexer.dim()
    }

    fn bind(&self, binding: &DimBinding) -> Self {
        Dim::bind(*self, binding)
    }

    fn each_extent(&self, found: &mut dyn FnMut(Extent)) {
        found(self.extent());
    }

    fn each_symbol(&self, found: &mut dyn FnMut(u32)) {
        Dim::each_symbol(*self, found);
    }
}

impl Attr for Extent {
    fn write(&self, w: &mut TextWriter) {
        w.display(self);
    }

    fn parse(lexer: &mut Lexer<'_>) -> Result<Self> {
        lexer.extent()
    }

    fn bind(&self, binding: &DimBinding) -> Self {
        Extent::bind(*self, binding)
    }

    fn each_extent(&self, found: &mut dyn FnMut(Extent)) {
        found(*self);
    }
}

impl<T: Attr> Attr for Vec<T> {
    fn same(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().zip(other).all(|(a, b)| a.same(b))
    }

    fn write(&self, w: &mut TextWriter) {
        w.push("[");
        for (i, item) in self.iter().enumerate() {
            if i > 0 {
                w.push(", ");
            }
            item.write(w);
        }
        w.push("]");
    }

    fn parse(lexer: &mut Lexer<'_>) -> Result<Self> {
        lexer.list("[", "]", T::parse)
    }

    fn bind(&self, binding: &DimBinding) -> Self {
        self.iter().map(|item| item.bind(binding)).collect()
    }

    fn each_extent(&self, found: &mut dyn FnMut(Extent)) {
        self.iter().for_each(|item| item.each_extent(found));
    }

    fn each_symbol(&self, found: &mut dyn FnMut(u32)) {
        self.iter().for_each(|item| item.each_symbol(found));
    }
}

impl<T: Attr> Attr for Option<T> {
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Some(a), Some(b)) => a.same(b),
            (None, None) => true,
            _ => false,
        }
    }

    fn write(&self, w: &mut TextWriter) {
        match self {
            Some(value) => value.write(w),
            None => w.push("none"),
        }
    }

    fn parse(lexer: &mut Lexer<'_>) -> Result<Self> {
        if lexer.eat_word("none") { Ok(None) } else { T::parse(lexer).map(Some) }
    }

    fn bind(&self, binding: &DimBinding) -> Self {
        self.as_ref().map(|value| value.bind(binding))
    }

    fn each_extent(&self, found: &mut dyn FnMut(Extent)) {
        self.iter().for_each(|value| value.each_extent(found));
    }

    fn each_symbol(&self, found: &mut dyn FnMut(u32)) {
        self.iter().for_each(|value| value.each_symbol(found));
    }
}

impl<T: Attr> Attr for Arc<T> {
    fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(self, other) || T::same(self, other)
    }

    fn write(&self, w: &mut TextWriter) {
        T::write(self, w);
    }

    fn parse(lexer: &mut Lexer<'_>) -> Result<Self> {
        T::parse(lexer).map(Arc::new)
    }

    fn bind(&self, binding: &DimBinding) -> Self {
        // What has no symbols stays shared.
        let mut fixed = true;
        T::each_extent(self, &mut |e| fixed &= e.as_const().is_some());
        if fixed { Arc::clone(self) } else { Arc::new(T::bind(self, binding)) }
    }

    fn each_extent(&self, found: &mut dyn FnMut(Extent)) {
        T::each_extent(self, found);
    }

    fn each_symbol(&self, found: &mut dyn FnMut(u32)) {
        T::each_symbol(self, found);
    }
}

/// What the op table says of one attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttrInfo {
    /// Its name; empty for the one that is behind the op's name, as in `Binary.Add`.
    pub name: &'static str,
    /// Its Rust type.
    pub ty: &'static str,
    /// What it means.
    pub doc: &'static str,
}

/// An attribute type that is one of a few names.
pub trait NamedVariant: Copy + Sized + 'static {
    /// What the type is called in messages.
    const WHAT: &'static str;
    /// Every value.
    const ALL: &'static [Self];

    /// The value's name in the text form.
    fn name(self) -> &'static str;

    /// The value called `name`.
    ///
    /// # Errors
    /// [`ErrorKind::Parse`] listing the names there are.
    fn from_name(name: &str) -> Result<Self> {
        Self::ALL.iter().copied().find(|v| v.name() == name).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|v| v.name()).collect();
            let message = format!("\"{name}\" is no {}; known: {}", Self::WHAT, known.join(", "));
            Error::new(ErrorKind::Parse, message)
        })
    }
}

/// Declares an enum of names once: the type, its documentation, [`NamedVariant`].
macro_rules! named_variants {
    ($(#[$meta:meta])* $name:ident, $what:literal { $($(#[doc = $doc:literal])* $variant:ident,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[doc = $doc])* $variant,)*
        }

        impl $crate::ops::attr::NamedVariant for $name {
            const WHAT: &'static str = $what;
            const ALL: &'static [Self] = &[$($name::$variant),*];

            fn name(self) -> &'static str {
                match self { $($name::$variant => stringify!($variant),)* }
            }
        }

        impl $crate::ops::attr::Attr for $name {
            fn write(&self, w: &mut $crate::text::TextWriter) {
                w.push($crate::ops::attr::NamedVariant::name(*self));
            }

            fn parse(lexer: &mut $crate::text::Lexer<'_>) -> $crate::error::Result<Self> {
                let word = lexer.word()?;
                $crate::ops::attr::NamedVariant::from_name(&word).map_err(|e| lexer.error(e.message()))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad($crate::ops::attr::NamedVariant::name(*self))
            }
        }
    };
}
pub(crate) use named_variants;
