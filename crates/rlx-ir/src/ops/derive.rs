//! What follows from a line of the op table: the macro that the table is written in, and the one that opens an op's
//! attributes in its definition.

/// Matches a tuple variant's single field in a pattern; `$ty` only drives the repetition.
macro_rules! field_pattern {
    ($v:ident, $ty:ty) => {
        $v
    };
}

macro_rules! ops {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident $( ( $tuple:ty ) )? $( { $( $(#[doc = $fdoc:literal])* $field:ident : $fty:ty ),* $(,)? } )?
            => $def:path;
    )*) => {
        /// What a node computes, with its attributes.
        #[derive(Debug, Clone)]
        #[non_exhaustive]
        pub enum Op {
            $(
                $(#[doc = $doc])*
                $name $( ( $tuple ) )? $( { $( $(#[doc = $fdoc])* $field : $fty ),* } )?,
            )*
        }

        impl PartialEq for Op {
            /// Attributes are compared by [`Attr::same`], so that every op is equal to its copy.
            fn eq(&self, other: &Self) -> bool {
                match self {
                    $(Op::$name { $( 0: field_pattern!(value, $tuple) )? $( $( $field ),* )? } => {
                        $(
                            let Op::$name(theirs) = other else { return false };
                            if !<$tuple as Attr>::same(value, theirs) {
                                return false;
                            }
                        )?
                        $($({
                            let own = $field;
                            let Op::$name { $field, .. } = other else { return false };
                            if !<$fty as Attr>::same(own, $field) {
                                return false;
                            }
                        })*)?
                        other.kind() == OpKind::$name
                    })*
                }
            }
        }

        /// Which op, without its attributes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum OpKind {
            $( $(#[doc = $doc])* $name, )*
        }

        impl OpKind {
            /// Every op, in table order.
            pub const ALL: &'static [OpKind] = &[$(OpKind::$name),*];

            /// The name the text form uses.
            pub const fn name(self) -> &'static str {
                match self { $(OpKind::$name => stringify!($name),)* }
            }

            /// The op's paragraph of documentation.
            pub const fn doc(self) -> &'static str {
                match self { $(OpKind::$name => concat!($($doc, "\n"),*),)* }
            }

            /// The op's attributes, in the order of the text form.
            pub const fn attributes(self) -> &'static [AttrInfo] {
                match self {
                    $(OpKind::$name => &[
                        $( AttrInfo { name: "", ty: stringify!($tuple), doc: "" } )?
                        $( $( AttrInfo {
                            name: stringify!($field),
                            ty: stringify!($fty),
                            doc: concat!($($fdoc),*),
                        } ),* )?
                    ],)*
                }
            }
        }

        /// The definitions of all ops, in table order.
        pub static OPS: &[&dyn OpDef] = &[$(&$def),*];

        impl Op {
            /// Which op this is.
            pub const fn kind(&self) -> OpKind {
                match self { $(Op::$name { .. } => OpKind::$name,)* }
            }

            /// Whether the op has a single unnamed attribute, written behind its name: `Binary.Add`.
            pub(crate) fn has_leading_value(&self) -> bool {
                match self { $(Op::$name { .. } => false $( || { let _: Option<$tuple> = None; true } )?,)* }
            }

            /// Writes the attributes: nothing, `.Value` for a tuple variant, ` {a=1, b=2}` else.
            pub(crate) fn write_attrs(&self, w: &mut TextWriter) {
                match self {
                    $(Op::$name { $( 0: field_pattern!(value, $tuple) )? $( $( $field ),* )? } => {
                        let _ = &w;
                        $( w.push("."); <$tuple as Attr>::write(value, w); )?
                        $(
                            let mut first = true;
                            let _ = &mut first;
                            $( w.attr(&mut first, stringify!($field), $field); )*
                            w.end_attrs(first);
                        )?
                    })*
                }
            }

            /// Reads the attributes of op `kind` as [`Op::write_attrs`] writes them.
            pub(crate) fn parse_attrs(kind: OpKind, lexer: &mut Lexer<'_>) -> Result<Op> {
                match kind {
                    $(OpKind::$name => {
                        let _ = &lexer;
                        $( lexer.expect(".")?; let value = <$tuple as Attr>::parse(lexer)?; )?
                        $(
                            let mut first = true;
                            let _ = &mut first;
                            $( let $field: $fty = lexer.attr(&mut first, stringify!($field))?; )*
                            lexer.end_attrs(first)?;
                        )?
                        Ok(Op::$name { $( 0: field_pattern!(value, $tuple) )? $( $( $field ),* )? })
                    })*
                }
            }

            /// The op with the bound symbols' values put into its attributes.
            pub fn bind(&self, binding: &DimBinding) -> Op {
                let _ = binding;
                match self {
                    $(Op::$name { $( 0: field_pattern!(value, $tuple) )? $( $( $field ),* )? } => Op::$name {
                        $( 0: <$tuple as Attr>::bind(value, binding) )?
                        $( $( $field: <$fty as Attr>::bind($field, binding) ),* )?
                    },)*
                }
            }

            /// Calls `found` with each expression that occurs in the attributes.
            pub fn each_extent(&self, found: &mut dyn FnMut(Extent)) {
                let _ = &found;
                match self {
                    $(Op::$name { $( 0: field_pattern!(value, $tuple) )? $( $( $field ),* )? } => {
                        $( <$tuple as Attr>::each_extent(value, found); )?
                        $( $( <$fty as Attr>::each_extent($field, found); )* )?
                    })*
                }
            }

            /// Calls `found` with each symbol that occurs in the attributes, perhaps more than once.
            pub fn each_symbol(&self, found: &mut dyn FnMut(u32)) {
                let _ = &found;
                match self {
                    $(Op::$name { $( 0: field_pattern!(value, $tuple) )? $( $( $field ),* )? } => {
                        $( <$tuple as Attr>::each_symbol(value, found); )?
                        $( $( <$fty as Attr>::each_symbol($field, found); )* )?
                    })*
                }
            }
        }
    };
}

/// Opens an op's attributes in its definition: `attrs!(op => Softmax { axis })`.
///
/// A definition is only ever called with its own op, so another variant is a bug in the table; it is
/// reported as an internal error, not a panic.
macro_rules! attrs {
    ($op:expr => $name:ident { $($field:ident),* $(,)? }) => {
        let $crate::ops::Op::$name { $($field,)* .. } = $op else {
            return Err($crate::ops::def::wrong_definition(stringify!($name), $op));
        };
    };
    ($op:expr => $name:ident ( $field:ident )) => {
        let $crate::ops::Op::$name($field) = $op else {
            return Err($crate::ops::def::wrong_definition(stringify!($name), $op));
        };
    };
}
pub(crate) use attrs;
pub(super) use {field_pattern, ops};
