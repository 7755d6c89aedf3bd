//! The order of elements as an order of integers of their size: what selects and sorts compares these, in vectors.
//!
//! NaN is greater than any number and equal to NaN, both zeros are equal.

use half::{bf16, f16};
use rlx_ir::{DType, Graph, Node};
use rlx_opt::Claim;

use super::scalar::{Number, Truth, is_number};

/// Numbers and truth values have an order.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let dtype = node.inputs.first().map_or(DType::C64, |&id| graph.shape(id).dtype());
    if is_number(dtype) {
        Claim::Native
    } else {
        Claim::No(format!("there is no kernel that orders {dtype}"))
    }
}

/// An element with a place in an order.
pub(crate) trait Ordered: Number {
    /// A signed integer of the element's size.
    type Key: Key;
    /// Where the element is in the order.
    fn key(self) -> Self::Key;
    /// The key of NaN, if the type has it.
    const NAN: Option<Self::Key>;
}

/// A signed integer.
pub(crate) trait Key:
    Copy + Ord + Into<i64> + Send + Sync + std::ops::BitXor<Output = Self> + 'static
{
    /// No bits.
    const NONE: Self;
    /// All bits: `key ^ ALL` turns the order round.
    const ALL: Self;
    /// No key is greater.
    const LAST: Self;
    /// An element of a line and where it is, in the order of ascending keys and then of places.
    type Candidate: Copy + Ord + Send;
    fn candidate(self, at: usize) -> Self::Candidate;
    fn place(of: Self::Candidate) -> usize;
    fn key_of(of: Self::Candidate) -> Self;
    /// The longest line whose places fit.
    const LONGEST: usize;
    /// A place among neighbouring elements, of the key's size: both are selected by the same lanes.
    type Near: Copy + Into<u64> + Send + Sync + 'static;
    /// How many places that has …
    const NEAR: usize;
    /// … and one of them.
    fn near(place: usize) -> Self::Near;
}

macro_rules! narrow_keys {
    ($($t:ty: $unsigned:ty;)*) => {$(
        impl Key for $t {
            const NONE: $t = 0;
            const ALL: $t = -1;
            const LAST: $t = <$t>::MAX;
            /// The key above the place: comparing it is one instruction.
            type Candidate = u64;
            #[inline(always)]
            fn candidate(self, at: usize) -> u64 {
                (((self as $unsigned) ^ (<$t>::MIN as $unsigned)) as u64) << 32 | at as u64
            }
            #[inline(always)]
            fn place(of: u64) -> usize {
                of as u32 as usize
            }
            #[inline(always)]
            fn key_of(of: u64) -> $t {
                ((of >> 32) as $unsigned ^ (<$t>::MIN as $unsigned)) as $t
            }
            const LONGEST: usize = u32::MAX as usize;
            type Near = $unsigned;
            const NEAR: usize = <$unsigned>::MAX as usize;
            #[inline(always)]
            fn near(place: usize) -> $unsigned {
                place as $unsigned
            }
        }
    )*};
}
narrow_keys! {
    i8: u8;
    i16: u16;
    i32: u32;
}

impl Key for i64 {
    const NONE: i64 = 0;
    const ALL: i64 = -1;
    const LAST: i64 = i64::MAX;
    type Candidate = (i64, usize);
    #[inline(always)]
    fn candidate(self, at: usize) -> (i64, usize) {
        (self, at)
    }
    #[inline(always)]
    fn place(of: (i64, usize)) -> usize {
        of.1
    }
    #[inline(always)]
    fn key_of(of: (i64, usize)) -> i64 {
        of.0
    }
    const LONGEST: usize = usize::MAX;
    type Near = u64;
    const NEAR: usize = usize::MAX;
    #[inline(always)]
    fn near(place: usize) -> u64 {
        place as u64
    }
}

macro_rules! integers {
    ($($t:ty: $key:ty, $flip:expr;)*) => {$(
        impl Ordered for $t {
            type Key = $key;
            #[inline(always)]
            fn key(self) -> $key {
                (self as $key) ^ $flip
            }
            const NAN: Option<$key> = None;
        }
    )*};
}
integers! {
    i8: i8, 0;
    i16: i16, 0;
    i32: i32, 0;
    i64: i64, 0;
    u8: i8, i8::MIN;
    u16: i16, i16::MIN;
    u32: i32, i32::MIN;
    u64: i64, i64::MIN;
}

macro_rules! floats {
    ($($t:ty: $key:ty, $infinity:expr;)*) => {$(
        impl Ordered for $t {
            type Key = $key;
            #[inline(always)]
            fn key(self) -> $key {
                let bits = self.to_bits() as $key;
                let magnitude = bits & <$key>::MAX;
                // The magnitude, negated below zero: both zeros are 0.
                let key = if bits < 0 { -magnitude } else { magnitude };
                if magnitude > $infinity.to_bits() as $key { <$key>::MAX } else { key }
            }
            const NAN: Option<$key> = Some(<$key>::MAX);
        }
    )*};
}
floats! {
    f16: i16, f16::INFINITY;
    bf16: i16, bf16::INFINITY;
    f32: i32, f32::INFINITY;
    f64: i64, f64::INFINITY;
}

impl Ordered for Truth {
    type Key = i8;
    #[inline(always)]
    fn key(self) -> i8 {
        self.widen().key()
    }
    const NAN: Option<i8> = None;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Ordered>(all: &[T]) {
        for (i, a) in all.iter().enumerate() {
            for (j, b) in all.iter().enumerate() {
                assert_eq!(a.key().cmp(&b.key()), a.order(*b), "{i} {j}");
                let (x, y) = (a.key().candidate(i), b.key().candidate(j));
                assert_eq!(x.cmp(&y), a.order(*b).then(i.cmp(&j)), "{i} {j}");
                assert!(T::Key::place(x) == i && T::Key::key_of(x) == a.key());
            }
            // NaN alone differs from itself.
            assert_eq!(T::NAN == Some(a.key()), !a.eq(a));
        }
    }

    #[test]
    fn keys_are_in_the_order_of_elements() {
        let floats = [
            f32::NEG_INFINITY,
            -2.5,
            -1e-40,
            -0.0,
            0.0,
            1e-40,
            3.0,
            1e30,
            f32::INFINITY,
            f32::NAN,
            -f32::NAN,
        ];
        check(&floats);
        check(&floats.map(f64::from));
        check(&floats.map(f16::from_f32));
        check(&floats.map(bf16::from_f32));
        check(&[i8::MIN, -1, 0, 1, i8::MAX]);
        check(&[0u8, 1, 127, 128, 255]);
        check(&[i16::MIN, -1, 0, 1, i16::MAX]);
        check(&[0u16, 1, 0x7fff, 0x8000, u16::MAX]);
        check(&[i32::MIN, -1, 0, 1, i32::MAX]);
        check(&[0u32, 1, 1 << 31, u32::MAX]);
        check(&[i64::MIN, -1, 0, 1, i64::MAX]);
        check(&[0u64, 1, 1 << 63, u64::MAX]);
    }
}
