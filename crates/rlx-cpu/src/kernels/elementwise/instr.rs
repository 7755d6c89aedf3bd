//! The functions of the tile program: each computes one op on up to a tile of elements.
//!
//! f32 and 16-bit floats run over the SIMD layer (`vectors`). All other types run loops over their elements, in vectors (`loops`) where an
//! instruction or two do the work, and plain ones elsewhere. A source steps by 1 from element to element, or by 0 when it is one
//! value for the whole tile.

use rlx_ir::op::{Activation, BinaryOp, CmpOp};
use rlx_ir::ops::attr::NamedVariant;
use rlx_ir::{DType, Op};
use rlx_math::OnCpu;

use super::chain::Chain;
use super::halves::{self, Conversion};
use super::loops::{self, F1, F2, block_at, block_of, map1, map2};
use super::number::*;
use super::quantised::{Dequantise, Quantise};
use super::tables;
use super::vectors::{self, Binary};
use crate::isa::{Isa, Kernel};
use crate::math::small_floats::{SmallFloat, nearest_power_of_two, power_of_two, to_odd};
use crate::math::{Function, Unary};
use crate::simd::Simd;
use crate::stores::{LINE, Stores};

/// Where a source is, and by how many elements it steps (0 or 1).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    pub(crate) ptr: *const u8,
    pub(crate) step: usize,
}

/// Operands of an instruction at most.
pub(crate) const ARGS: usize = 5;

/// Whether a loop is in vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    Vector,
    Scalar,
}

/// What an instruction does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Code {
    /// A vector function of f32, or of this 16-bit float.
    Unary(Unary, DType),
    /// A vector function of two f32, or of two of this 16-bit float.
    Binary(Binary, DType),
    /// Several of these one after the other.
    Chain(Chain),
    /// Between f32 and a 16-bit float.
    Half(Conversion, DType),
    /// f32 to bytes of this type by a scale and, if so, a zero point.
    Quantise(DType, bool),
    /// Bytes of this type to f32 by a scale and, if so, a zero point.
    Dequantise(DType, bool),
    /// A byte's entry of a table.
    LookUp,
    /// A choice between two values of this type.
    Select(DType),
    /// A function of f64.
    Double(fn(f64) -> f64),
    /// Anything of one operand.
    Map1(F1, Pace),
    /// Anything of two operands.
    Map2(F2, Pace),
}

/// Where results are written, and how many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Results {
    pub(crate) out: *mut u8,
    pub(crate) n: usize,
    /// How they may be stored. Only results of f32 that begin at a line of memory are stored past the caches, by loops that have code for it.
    pub(crate) stores: Stores,
}

impl Results {
    /// Stored by way of the caches.
    pub(crate) fn cached(out: *mut u8, n: usize) -> Results {
        Results { out, n, stores: Stores::Cached }
    }

    /// Whether results of f32 are stored past the caches.
    pub(crate) fn go_past(&self) -> bool {
        self.stores == Stores::NonTemporal && self.out.align_offset(LINE) == 0
    }
}

impl Code {
    /// Computes `n` elements.
    ///
    /// # Safety
    /// Sources must be readable for `n` elements (1 when they step by 0) and `out` writable for `n`; `out` may
    /// be a source of the same element size, but must not overlap one otherwise. Unless they are stored by way of the caches, nothing may read results
    /// before [`fence`](crate::stores::fence).
    #[inline]
    pub(crate) unsafe fn run(&self, isa: Isa, sources: &[Source; ARGS], results: Results) {
        let ([a, b, c, ..], Results { out, n, .. }) = (*sources, results);
        // SAFETY: the caller's promises are the functions'.
        unsafe {
            match *self {
                Code::Unary(f, dtype) => vectors::unary(isa, f, dtype, a.ptr, results),
                Code::Binary(op, dtype) => vectors::binary(isa, op, dtype, [a, b], results),
                Code::Chain(ref chain) => chain.run(isa, sources, results),
                Code::Half(how, half) => halves::convert(isa, how, half, a.ptr, out, n),
                Code::Quantise(to, zero) => isa.run(Quantise { to, sources: [a, b, c], zero, out, n }),
                Code::Dequantise(from, zero) => {
                    isa.run(Dequantise { from, sources: [a, b, c], zero, out: out.cast(), n });
                }
                Code::LookUp => tables::look_up(isa, a, b.ptr, out, n),
                Code::Select(dtype) => loops::select(isa, dtype.size_bytes(), [a, b, c], out, n),
                Code::Double(f) => {
                    let (x, out) = (a.ptr.cast::<f64>(), out.cast::<f64>());
                    for i in 0..n {
                        *out.add(i) = f(*x.add(i * a.step));
                    }
                }
                Code::Map1(f, _) => f(isa, a, out, n),
                Code::Map2(f, _) => f(isa, a, b, out, n),
            }
        }
    }

    /// The code that does the same to 16-bit floats as they are in memory, and rounds, if there is one.
    pub(crate) fn of_halves(self, half: DType) -> Option<Code> {
        let is_half = matches!(half, DType::F16 | DType::BF16);
        match self {
            Code::Unary(f, DType::F32) if is_half => Some(Code::Unary(f, half)),
            Code::Binary(op, DType::F32) if is_half => Some(Code::Binary(op, half)),
            Code::Select(DType::F32) if is_half => Some(Code::Select(half)),
            _ => None,
        }
    }

    /// Nanoseconds for one element, roughly.
    pub(crate) fn nanos(&self) -> f64 {
        match self {
            Code::Unary(Unary::Function(f), _) if f.on_cpu() == OnCpu::Double => 1.0,
            Code::Unary(..) => 0.3,
            Code::Binary(Binary::Pow, _) => 5.0,
            Code::Binary(..) | Code::Half(..) | Code::Dequantise(..) | Code::Select(_) => 0.06,
            Code::Map1(_, Pace::Vector) | Code::Map2(_, Pace::Vector) => 0.06,
            Code::Chain(chain) => chain.nanos(),
            Code::Quantise(..) => 0.15,
            Code::LookUp => 0.02,
            _ => 1.0,
        }
    }
}

/// A plain loop over one operand: `each1!(T => O, |x| expression)`.
macro_rules! each1 {
    ($t:ty => $o:ty, |$x:ident| $e:expr) => {{
        // SAFETY: the promise is that of `Code::run`.
        unsafe fn f(_: Isa, x: Source, out: *mut u8, n: usize) {
            let (px, out) = (x.ptr.cast::<$t>(), out.cast::<$o>());
            for i in 0..n {
                // SAFETY: the callers of `Code::run` promise the memory.
                unsafe {
                    let $x = *px.add(i * x.step);
                    *out.add(i) = $e;
                }
            }
        }
        Code::Map1(f, Pace::Scalar)
    }};
}

/// A plain loop over two operands.
macro_rules! each2 {
    ($t:ty => $o:ty, |$x:ident, $y:ident| $e:expr) => {{
        // SAFETY: the promise is that of `Code::run`.
        unsafe fn f(_: Isa, x: Source, y: Source, out: *mut u8, n: usize) {
            let (px, py, out) = (x.ptr.cast::<$t>(), y.ptr.cast::<$t>(), out.cast::<$o>());
            // SAFETY: the callers of `Code::run` promise the memory.
            unsafe {
                if x.step == 1 && y.step == 1 {
                    for i in 0..n {
                        let ($x, $y) = (*px.add(i), *py.add(i));
                        *out.add(i) = $e;
                    }
                } else {
                    for i in 0..n {
                        let ($x, $y) = (*px.add(i * x.step), *py.add(i * y.step));
                        *out.add(i) = $e;
                    }
                }
            }
        }
        Code::Map2(f, Pace::Scalar)
    }};
}

/// Loops for every integer type: `for_ints!(dtype, T => map2!(T => T, |x, y| x.add(y)))`.
macro_rules! for_ints {
    ($dtype:expr, $t:ident => $code:expr) => {
        for_ints!(@ $dtype, $t => $code; I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64)
    };
    (@ $dtype:expr, $t:ident => $code:expr; $($d:ident $r:ty),*) => {
        match $dtype {
            $(DType::$d => { type $t = $r; Some($code) })*
            _ => None,
        }
    };
}

/// As [`for_ints!`] where integers of one size are one code, signed or not: in what wraps around or looks at bits alone.
macro_rules! for_bits {
    ($dtype:expr, $t:ident => $code:expr) => {
        for_bits!(@ $dtype, $t => $code; I8 U8 u8, I16 U16 u16, I32 U32 u32, I64 U64 u64)
    };
    (@ $dtype:expr, $t:ident => $code:expr; $($s:ident $u:ident $r:ty),*) => {
        match $dtype {
            $(DType::$s | DType::$u => { type $t = $r; Some($code) })*
            _ => None,
        }
    };
}

/// Whether it is a float that is computed in f32.
fn is_short(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16) || is_small(dtype)
}

/// Whether it is a float of a byte.
fn is_small(dtype: DType) -> bool {
    dtype.is_float() && dtype.bits() == 8
}

/// The element type that values of `dtype` are computed in: shorter floats in f32.
pub(crate) fn register(dtype: DType) -> DType {
    if is_short(dtype) { DType::F32 } else { dtype }
}

/// Whether there are registers for this type.
pub(crate) fn has_register(dtype: DType) -> bool {
    let float = matches!(dtype, DType::F32 | DType::F64) || is_short(dtype);
    float || dtype == DType::Bool || (dtype.is_int() && dtype.bits() >= 8)
}

/// The elementary function that an activation is.
fn elementary(f: Activation) -> Option<Function> {
    Function::named(f.name())
}

/// What computes an activation of f32 in vectors.
fn vector_unary(f: Activation) -> Option<Unary> {
    use Activation as A;
    Some(match f {
        A::Relu => Unary::Relu,
        A::Sqrt => Unary::Sqrt,
        A::Rsqrt => Unary::Rsqrt,
        A::Neg => Unary::Neg,
        A::Abs => Unary::Abs,
        A::Round => Unary::Round,
        A::Floor => Unary::Floor,
        A::Ceil => Unary::Ceil,
        A::Recip => Unary::Recip,
        _ => Unary::Function(elementary(f).filter(|f| f.on_cpu() == OnCpu::Vector)?),
    })
}

/// The vector function for an activation of f32, for epilogues.
pub(crate) fn as_unary(op: &Op) -> Option<Unary> {
    match op {
        Op::Activation(f) => vector_unary(*f),
        _ => None,
    }
}

/// A function of floats that is written once in `f64`.
macro_rules! floats {
    ($dtype:expr, |$x:ident| $e:expr) => {
        match $dtype {
            DType::F32 => each1!(f32 => f32, |v| { let $x = f64::from(v); ($e) as f32 }),
            _ => each1!(f64 => f64, |$x| $e),
        }
    };
}

fn float_activation(f: Activation, dtype: DType) -> Option<Code> {
    use Activation as A;
    if dtype == DType::F32
        && let Some(unary) = vector_unary(f)
    {
        return Some(Code::Unary(unary, dtype));
    }
    if let Some(function) = elementary(f) {
        return Some(match dtype {
            DType::F32 => Code::Unary(Unary::Function(function), dtype),
            _ => Code::Double(function.wide()),
        });
    }
    Some(match f {
        A::Relu => floats!(dtype, |x| if x > 0.0 || x.is_nan() { x } else { 0.0 }),
        A::Sqrt => floats!(dtype, |x| x.sqrt()),
        A::Rsqrt => floats!(dtype, |x| 1.0 / x.sqrt()),
        A::Neg => floats!(dtype, |x| -x),
        A::Abs => floats!(dtype, |x| x.abs()),
        A::Round => floats!(dtype, |x| x.round_ties_even()),
        A::Floor => floats!(dtype, |x| x.floor()),
        A::Ceil => floats!(dtype, |x| x.ceil()),
        A::Trunc => floats!(dtype, |x| x.trunc()),
        A::Sign => floats!(dtype, |x| sign_f64(x)),
        A::Recip => floats!(dtype, |x| 1.0 / x),
        _ => return None,
    })
}

/// The code of an activation on this register type.
pub(crate) fn activation(f: Activation, dtype: DType) -> Option<Code> {
    use Activation as A;
    match dtype {
        DType::F32 | DType::F64 => float_activation(f, dtype),
        DType::Bool if f == A::Not => Some(map1!(u8 => u8, |x| u8::from(x == 0))),
        DType::Bool => None,
        _ => match f {
            A::Neg => for_bits!(dtype, T => each1!(T => T, |x| Int::neg(x))),
            A::Abs => for_ints!(dtype, T => each1!(T => T, |x| Int::abs(x))),
            A::Sign => for_ints!(dtype, T => each1!(T => T, |x| Int::signum(x))),
            A::Relu => for_ints!(dtype, T => each1!(T => T, |x| Int::relu(x))),
            A::BitNot => for_bits!(dtype, T => each1!(T => T, |x| Int::not(x))),
            A::Floor | A::Ceil | A::Trunc | A::Round => for_bits!(dtype, T => each1!(T => T, |x| x)),
            _ => None,
        },
    }
}

fn float_binary(f: BinaryOp, dtype: DType) -> Option<Code> {
    use BinaryOp as B;
    if dtype == DType::F32 {
        let vector = match f {
            B::Add => Some(Binary::Add),
            B::Sub => Some(Binary::Sub),
            B::Mul => Some(Binary::Mul),
            B::Div => Some(Binary::Div),
            B::Max => Some(Binary::Max),
            B::Min => Some(Binary::Min),
            B::Pow => Some(Binary::Pow),
            _ => None,
        };
        if let Some(op) = vector {
            return Some(Code::Binary(op, dtype));
        }
    }
    macro_rules! both {
        (|$x:ident, $y:ident| $e:expr) => {
            match dtype {
                DType::F32 => {
                    each2!(f32 => f32, |v, w| { let ($x, $y) = (f64::from(v), f64::from(w)); ($e) as f32 })
                }
                _ => each2!(f64 => f64, |$x, $y| $e),
            }
        };
    }
    Some(match f {
        B::Add => both!(|x, y| x + y),
        B::Sub => both!(|x, y| x - y),
        B::Mul => both!(|x, y| x * y),
        B::Div => both!(|x, y| x / y),
        B::Max => both!(|x, y| max_f64(x, y)),
        B::Min => both!(|x, y| min_f64(x, y)),
        B::Pow => both!(|x, y| x.powf(y)),
        B::Mod => both!(|x, y| modulo_f64(x, y)),
        B::Rem => both!(|x, y| x % y),
        B::Atan2 => both!(|x, y| x.atan2(y)),
        _ => return None,
    })
}

/// The code of a function of two elements on this register type.
pub(crate) fn binary(f: BinaryOp, dtype: DType) -> Option<Code> {
    use BinaryOp as B;
    match dtype {
        DType::F32 | DType::F64 => float_binary(f, dtype),
        DType::Bool => Some(match f {
            B::And | B::Min => map2!(u8 => u8, |x, y| u8::from(x != 0) & u8::from(y != 0)),
            B::Or | B::Max => map2!(u8 => u8, |x, y| u8::from(x != 0) | u8::from(y != 0)),
            B::Xor => map2!(u8 => u8, |x, y| u8::from((x != 0) != (y != 0))),
            _ => return None,
        }),
        _ => match f {
            B::Add => for_bits!(dtype, T => each2!(T => T, |x, y| Int::add(x, y))),
            B::Sub => for_bits!(dtype, T => each2!(T => T, |x, y| Int::sub(x, y))),
            B::Mul => for_bits!(dtype, T => each2!(T => T, |x, y| Int::mul(x, y))),
            B::Div => for_ints!(dtype, T => each2!(T => T, |x, y| Int::div(x, y))),
            B::Rem => for_ints!(dtype, T => each2!(T => T, |x, y| Int::rem(x, y))),
            B::Mod => for_ints!(dtype, T => each2!(T => T, |x, y| Int::modulo(x, y))),
            B::Pow => for_ints!(dtype, T => each2!(T => T, |x, y| Int::pow(x, y))),
            B::Max => for_ints!(dtype, T => each2!(T => T, |x, y| if x > y { x } else { y })),
            B::Min => for_ints!(dtype, T => each2!(T => T, |x, y| if x < y { x } else { y })),
            B::BitAnd => for_bits!(dtype, T => each2!(T => T, |x, y| Int::and(x, y))),
            B::BitOr => for_bits!(dtype, T => each2!(T => T, |x, y| Int::or(x, y))),
            B::BitXor => for_bits!(dtype, T => each2!(T => T, |x, y| Int::xor(x, y))),
            B::Shl => for_ints!(dtype, T => each2!(T => T, |x, y| Int::shl(x, y))),
            B::Shr => for_ints!(dtype, T => each2!(T => T, |x, y| Int::shr(x, y))),
            _ => None,
        },
    }
}

/// The code of a comparison on this register type.
pub(crate) fn compare(f: CmpOp, dtype: DType) -> Option<Code> {
    macro_rules! all {
        ($map:ident: $t:ty) => {
            match f {
                CmpOp::Eq => $map!($t => u8, |x, y| u8::from(x == y)),
                CmpOp::Ne => $map!($t => u8, |x, y| u8::from(x != y)),
                CmpOp::Lt => $map!($t => u8, |x, y| u8::from(x < y)),
                CmpOp::Le => $map!($t => u8, |x, y| u8::from(x <= y)),
                CmpOp::Gt => $map!($t => u8, |x, y| u8::from(x > y)),
                CmpOp::Ge => $map!($t => u8, |x, y| u8::from(x >= y)),
                _ => return None,
            }
        };
    }
    match dtype {
        DType::F32 => Some(all!(map2: f32)),
        DType::F64 => Some(all!(each2: f64)),
        DType::I32 => Some(all!(map2: i32)),
        DType::I64 => Some(all!(map2: i64)),
        DType::Bool | DType::U8 => Some(all!(map2: u8)),
        _ => for_ints!(dtype, T => all!(each2: T)),
    }
}

/// The code of a question about a float.
pub(crate) fn predicate(f: rlx_ir::ops::Predicate, dtype: DType) -> Option<Code> {
    use rlx_ir::ops::Predicate as P;
    macro_rules! all {
        ($t:ty) => {
            match f {
                P::IsNan => map1!($t => u8, |x| u8::from(x.is_nan())),
                P::IsInf => map1!($t => u8, |x| u8::from(x.is_infinite())),
                P::IsPosInf => map1!($t => u8, |x| u8::from(x == <$t>::INFINITY)),
                P::IsNegInf => map1!($t => u8, |x| u8::from(x == <$t>::NEG_INFINITY)),
                _ => return None,
            }
        };
    }
    match dtype {
        DType::F32 => Some(all!(f32)),
        DType::F64 => Some(all!(f64)),
        _ => None,
    }
}

/// The code that converts between registers; `None` where there is nothing to do.
pub(crate) fn convert(from: DType, to: DType) -> Option<Code> {
    if from == to {
        return None;
    }
    macro_rules! to_all {
        ($map:ident: $s:ty) => {
            match to {
                DType::F32 => map1!($s => f32, |x| x as f32),
                DType::F64 => $map!($s => f64, |x| x as f64),
                DType::I8 => $map!($s => i8, |x| x as i8),
                DType::I16 => $map!($s => i16, |x| x as i16),
                DType::I32 => $map!($s => i32, |x| x as i32),
                DType::I64 => $map!($s => i64, |x| x as i64),
                DType::U8 => $map!($s => u8, |x| x as u8),
                DType::U16 => $map!($s => u16, |x| x as u16),
                DType::U32 => $map!($s => u32, |x| x as u32),
                DType::U64 => $map!($s => u64, |x| x as u64),
                _ => $map!($s => u8, |x| u8::from(x != (0 as $s))),
            }
        };
    }
    // To and from f32, and between the integers of positions, in vectors: a loop for each pair and instruction set takes room.
    Some(match from {
        DType::F32 if to == DType::I64 => Code::Map1(loops::to_i64, Pace::Vector),
        DType::F32 => to_all!(map1: f32),
        DType::F64 => to_all!(each1: f64),
        DType::I8 => to_all!(each1: i8),
        DType::I16 => to_all!(each1: i16),
        DType::I32 => to_all!(map1: i32),
        DType::I64 => to_all!(map1: i64),
        DType::U16 => to_all!(each1: u16),
        DType::U32 => to_all!(each1: u32),
        DType::U64 => to_all!(each1: u64),
        // Bools are stored as 0 and 1.
        _ => to_all!(map1: u8),
    })
}

fn half(conversion: Conversion, dtype: DType) -> Option<Code> {
    match dtype {
        DType::F16 | DType::BF16 => Some(Code::Half(conversion, dtype)),
        DType::F8E8M0 => Some(match conversion {
            Conversion::Widen => each1!(u8 => f32, |x| power_of_two(x)),
            Conversion::Narrow => each1!(f32 => u8, |x| nearest_power_of_two(x)),
            Conversion::Round => each1!(f32 => f32, |x| power_of_two(nearest_power_of_two(x))),
        }),
        _ => small(conversion, dtype),
    }
}

fn small(conversion: Conversion, dtype: DType) -> Option<Code> {
    macro_rules! of {
        ($format:ident) => {
            match conversion {
                Conversion::Widen => each1!(u8 => f32, |x| SmallFloat::$format.decode(x)),
                Conversion::Narrow => each1!(f32 => u8, |x| SmallFloat::$format.encode(x)),
                Conversion::Round => {
                    each1!(f32 => f32, |x| SmallFloat::$format.decode(SmallFloat::$format.encode(x)))
                }
            }
        };
    }
    Some(match dtype {
        DType::F8E4M3FN => of!(E4M3FN),
        DType::F8E4M3FNUZ => of!(E4M3FNUZ),
        DType::F8E5M2 => of!(E5M2),
        DType::F8E5M2FNUZ => of!(E5M2FNUZ),
        _ => return None,
    })
}

/// The code that brings f64 into the f32 register of a shorter float, which is rounded once more.
pub(crate) fn double_to_short(from: DType, to: DType) -> Option<Code> {
    (from == DType::F64 && is_short(to)).then(|| each1!(f64 => f32, |x| to_odd(x)))
}

/// The code that reads a shorter float into its f32 register.
pub(crate) fn widen(dtype: DType) -> Option<Code> {
    half(Conversion::Widen, dtype)
}

/// The code that stores an f32 register as a shorter float.
pub(crate) fn narrow(dtype: DType) -> Option<Code> {
    half(Conversion::Narrow, dtype)
}

/// The code that rounds an f32 register to what a shorter float can hold.
pub(crate) fn round_to(dtype: DType) -> Option<Code> {
    half(Conversion::Round, dtype)
}
