//! Instructions that make a value of values: a table by name.

use half::{bf16, f16};

/// Makes a register's bits of up to four operands' bits; `None` where PTX leaves the result open.
pub type Value = fn([u64; 4]) -> Option<u64>;

fn f(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn bits(x: f32) -> Option<u64> {
    Some(u64::from(x.to_bits()))
}

fn u(x: u32) -> Option<u64> {
    Some(u64::from(x))
}

fn s(bits: u64) -> i32 {
    bits as u32 as i32
}

fn flag(b: bool) -> Option<u64> {
    Some(u64::from(b))
}

fn unordered(a: [u64; 4]) -> bool {
    f(a[0]).is_nan() || f(a[1]).is_nan()
}

/// Shifts by more than the width give what shifting bit by bit would.
fn shift(by: u64) -> u32 {
    (by as u32).min(63)
}

/// The name, how many operands, and what they make.
pub const VALUES: &[(&str, usize, Value)] = &[
    ("mov.b16", 1, |a| Some(a[0] & 0xffff)),
    ("mov.u16", 1, |a| Some(a[0] & 0xffff)),
    ("mov.b32", 1, |a| u(a[0] as u32)),
    ("mov.u32", 1, |a| u(a[0] as u32)),
    ("mov.s32", 1, |a| u(a[0] as u32)),
    ("mov.f32", 1, |a| u(a[0] as u32)),
    ("mov.b64", 1, |a| Some(a[0])),
    ("mov.u64", 1, |a| Some(a[0])),
    ("mov.pred", 1, |a| Some(a[0])),
    // One address space: global addresses are generic ones.
    ("cvta.to.global.u64", 1, |a| Some(a[0])),
    ("cvta.param.u64", 1, |a| Some(a[0])),
    ("cvta.to.shared.u64", 1, |a| Some(a[0])),
    ("add.s32", 2, |a| u((a[0] as u32).wrapping_add(a[1] as u32))),
    ("add.s64", 2, |a| Some(a[0].wrapping_add(a[1]))),
    ("sub.s32", 2, |a| u((a[0] as u32).wrapping_sub(a[1] as u32))),
    ("sub.s64", 2, |a| Some(a[0].wrapping_sub(a[1]))),
    ("neg.s32", 1, |a| u((a[0] as u32).wrapping_neg())),
    ("mul.lo.s32", 2, |a| u((a[0] as u32).wrapping_mul(a[1] as u32))),
    ("mul.lo.s64", 2, |a| Some(a[0].wrapping_mul(a[1]))),
    ("mul.hi.u32", 2, |a| Some((u64::from(a[0] as u32) * u64::from(a[1] as u32)) >> 32)),
    ("mul.hi.s32", 2, |a| u(((i64::from(s(a[0])) * i64::from(s(a[1]))) >> 32) as u32)),
    ("mul.wide.s32", 2, |a| Some((i64::from(s(a[0])) * i64::from(s(a[1]))) as u64)),
    ("mul.wide.u32", 2, |a| Some(u64::from(a[0] as u32) * u64::from(a[1] as u32))),
    ("mul.wide.u16", 2, |a| u(u32::from(a[0] as u16) * u32::from(a[1] as u16))),
    ("mad.lo.s64", 3, |a| Some(a[0].wrapping_mul(a[1]).wrapping_add(a[2]))),
    ("mad.lo.s32", 3, |a| u((a[0] as u32).wrapping_mul(a[1] as u32).wrapping_add(a[2] as u32))),
    ("div.s32", 2, |a| s(a[0]).checked_div(s(a[1])).and_then(|x| u(x as u32))),
    ("div.u32", 2, |a| (a[0] as u32).checked_div(a[1] as u32).and_then(u)),
    ("rem.s32", 2, |a| s(a[0]).checked_rem(s(a[1])).and_then(|x| u(x as u32))),
    ("rem.u32", 2, |a| (a[0] as u32).checked_rem(a[1] as u32).and_then(u)),
    ("min.u32", 2, |a| u((a[0] as u32).min(a[1] as u32))),
    ("max.u32", 2, |a| u((a[0] as u32).max(a[1] as u32))),
    ("min.s32", 2, |a| u(s(a[0]).min(s(a[1])) as u32)),
    ("max.s32", 2, |a| u(s(a[0]).max(s(a[1])) as u32)),
    ("mul.lo.s16", 2, |a| Some(u64::from((a[0] as u16).wrapping_mul(a[1] as u16)))),
    ("mad.lo.s16", 3, |a| Some(u64::from((a[0] as u16).wrapping_mul(a[1] as u16).wrapping_add(a[2] as u16)))),
    ("add.s16", 2, |a| Some(u64::from((a[0] as u16).wrapping_add(a[1] as u16)))),
    ("sub.s16", 2, |a| Some(u64::from((a[0] as u16).wrapping_sub(a[1] as u16)))),
    ("and.b16", 2, |a| Some(a[0] & a[1] & 0xffff)),
    ("and.b32", 2, |a| u(a[0] as u32 & a[1] as u32)),
    ("and.b64", 2, |a| Some(a[0] & a[1])),
    ("and.pred", 2, |a| Some(a[0] & a[1])),
    ("or.b16", 2, |a| Some((a[0] | a[1]) & 0xffff)),
    ("or.b32", 2, |a| u(a[0] as u32 | a[1] as u32)),
    ("or.b64", 2, |a| Some(a[0] | a[1])),
    ("or.pred", 2, |a| Some(a[0] | a[1])),
    ("xor.b32", 2, |a| u(a[0] as u32 ^ a[1] as u32)),
    ("xor.b64", 2, |a| Some(a[0] ^ a[1])),
    ("xor.pred", 2, |a| Some(a[0] ^ a[1])),
    ("not.b32", 1, |a| u(!(a[0] as u32))),
    ("not.pred", 1, |a| Some(a[0] ^ 1)),
    ("shl.b16", 2, |a| Some((a[0] << shift(a[1])) & 0xffff)),
    ("shl.b32", 2, |a| u((a[0] << shift(a[1])) as u32)),
    ("shl.b64", 2, |a| Some(if a[1] as u32 > 63 { 0 } else { a[0] << shift(a[1]) })),
    ("shr.u16", 2, |a| Some((a[0] & 0xffff) >> shift(a[1]))),
    ("shr.u32", 2, |a| u(((a[0] & 0xffff_ffff) >> shift(a[1])) as u32)),
    ("shr.s32", 2, |a| u((i64::from(s(a[0])) >> shift(a[1])) as u32)),
    ("shr.u64", 2, |a| Some(if a[1] as u32 > 63 { 0 } else { a[0] >> shift(a[1]) })),
    ("shr.s64", 2, |a| Some(((a[0] as i64) >> shift(a[1])) as u64)),
    // The lowest bits of the first, put into the second from a bit on.
    ("bfi.b32", 4, |a| {
        let (first, n) = (a[2] & 0xff, a[3] & 0xff);
        let mask = (((1u128 << n) - 1) << first) as u64;
        u(((a[1] & !mask) | ((u128::from(a[0]) << first) as u64 & mask)) as u32)
    }),
    ("add.rn.f32", 2, |a| bits(f(a[0]) + f(a[1]))),
    ("sub.rn.f32", 2, |a| bits(f(a[0]) - f(a[1]))),
    ("mul.rn.f32", 2, |a| bits(f(a[0]) * f(a[1]))),
    ("fma.rn.f32", 3, |a| bits(f(a[0]).mul_add(f(a[1]), f(a[2])))),
    ("neg.f32", 1, |a| bits(-f(a[0]))),
    ("abs.f32", 1, |a| bits(f(a[0]).abs())),
    // A NaN is left aside.
    ("min.f32", 2, |a| bits(f(a[0]).min(f(a[1])))),
    ("max.f32", 2, |a| bits(f(a[0]).max(f(a[1])))),
    // Exactly, though the instruction may be 2 units off; what is below the normal numbers is 0.
    ("ex2.approx.ftz.f32", 1, |a| {
        let y = f64::from(f(a[0])).exp2() as f32;
        bits(if y < f32::MIN_POSITIVE { 0.0 } else { y })
    }),
    ("div.rn.f32", 2, |a| bits(f(a[0]) / f(a[1]))),
    ("rcp.rn.f32", 1, |a| bits(1.0 / f(a[0]))),
    ("copysign.f32", 2, |a| bits(f(a[1]).copysign(f(a[0])))),
    ("selp.b16", 3, |a| Some(if a[2] != 0 { a[0] } else { a[1] })),
    ("selp.b32", 3, |a| Some(if a[2] != 0 { a[0] } else { a[1] })),
    ("selp.u32", 3, |a| Some(if a[2] != 0 { a[0] } else { a[1] })),
    ("selp.s32", 3, |a| Some(if a[2] != 0 { a[0] } else { a[1] })),
    ("selp.f32", 3, |a| Some(if a[2] != 0 { a[0] } else { a[1] })),
    ("selp.b64", 3, |a| Some(if a[2] != 0 { a[0] } else { a[1] })),
    ("selp.u64", 3, |a| Some(if a[2] != 0 { a[0] } else { a[1] })),
    ("setp.eq.b32", 2, |a| flag(a[0] as u32 == a[1] as u32)),
    ("setp.ne.b32", 2, |a| flag(a[0] as u32 != a[1] as u32)),
    ("setp.eq.s16", 2, |a| flag(a[0] as u16 == a[1] as u16)),
    ("setp.ne.b16", 2, |a| flag(a[0] as u16 != a[1] as u16)),
    ("setp.ne.s16", 2, |a| flag(a[0] as u16 != a[1] as u16)),
    ("setp.eq.s32", 2, |a| flag(s(a[0]) == s(a[1]))),
    ("setp.ne.s32", 2, |a| flag(s(a[0]) != s(a[1]))),
    ("setp.lt.s32", 2, |a| flag(s(a[0]) < s(a[1]))),
    ("setp.le.s32", 2, |a| flag(s(a[0]) <= s(a[1]))),
    ("setp.gt.s32", 2, |a| flag(s(a[0]) > s(a[1]))),
    ("setp.ge.s32", 2, |a| flag(s(a[0]) >= s(a[1]))),
    ("setp.eq.s64", 2, |a| flag(a[0] == a[1])),
    ("setp.ne.s64", 2, |a| flag(a[0] != a[1])),
    ("setp.lt.s64", 2, |a| flag((a[0] as i64) < a[1] as i64)),
    ("setp.le.s64", 2, |a| flag(a[0] as i64 <= a[1] as i64)),
    ("setp.gt.s64", 2, |a| flag(a[0] as i64 > a[1] as i64)),
    ("setp.ge.s64", 2, |a| flag(a[0] as i64 >= a[1] as i64)),
    ("setp.lt.u32", 2, |a| flag((a[0] as u32) < a[1] as u32)),
    ("setp.le.u32", 2, |a| flag(a[0] as u32 <= a[1] as u32)),
    ("setp.gt.u32", 2, |a| flag(a[0] as u32 > a[1] as u32)),
    ("setp.ge.u32", 2, |a| flag(a[0] as u32 >= a[1] as u32)),
    ("setp.eq.f32", 2, |a| flag(f(a[0]) == f(a[1]))),
    ("setp.lt.f32", 2, |a| flag(f(a[0]) < f(a[1]))),
    ("setp.le.f32", 2, |a| flag(f(a[0]) <= f(a[1]))),
    ("setp.gt.f32", 2, |a| flag(f(a[0]) > f(a[1]))),
    ("setp.ge.f32", 2, |a| flag(f(a[0]) >= f(a[1]))),
    // These hold of NaN, too.
    ("setp.ltu.f32", 2, |a| flag(unordered(a) || f(a[0]) < f(a[1]))),
    ("setp.leu.f32", 2, |a| flag(unordered(a) || f(a[0]) <= f(a[1]))),
    ("setp.gtu.f32", 2, |a| flag(unordered(a) || f(a[0]) > f(a[1]))),
    ("setp.geu.f32", 2, |a| flag(unordered(a) || f(a[0]) >= f(a[1]))),
    ("setp.neu.f32", 2, |a| flag(f(a[0]) != f(a[1]))),
    ("cvt.s64.s32", 1, |a| Some(i64::from(s(a[0])) as u64)),
    ("cvt.u64.u32", 1, |a| u(a[0] as u32)),
    ("cvt.u32.u64", 1, |a| u(a[0] as u32)),
    ("cvt.u16.u8", 1, |a| Some(a[0] & 0xff)),
    ("cvt.u16.u64", 1, |a| Some(a[0] & 0xffff)),
    ("cvt.u16.u32", 1, |a| Some(a[0] & 0xffff)),
    ("cvt.u32.u16", 1, |a| Some(a[0] & 0xffff)),
    ("cvt.f32.f16", 1, |a| bits(f16::from_bits(a[0] as u16).to_f32())),
    ("cvt.rn.f16.f32", 1, |a| Some(u64::from(f16::from_f32(f(a[0])).to_bits()))),
    ("cvt.rn.bf16.f32", 1, |a| Some(u64::from(bf16::from_f32(f(a[0])).to_bits()))),
    // The first operand is the high half.
    ("cvt.rn.f16x2.f32", 2, |a| {
        let half = |x: u64| u32::from(f16::from_f32(f(x)).to_bits());
        u(half(a[0]) << 16 | half(a[1]))
    }),
    ("cvt.rn.bf16x2.f32", 2, |a| {
        let half = |x: u64| u32::from(bf16::from_f32(f(x)).to_bits());
        u(half(a[0]) << 16 | half(a[1]))
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn made(name: &str, a: &[u64]) -> Option<u64> {
        let (_, n, f) = VALUES.iter().find(|v| v.0 == name).unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(*n, a.len(), "{name}");
        f(std::array::from_fn(|i| a.get(i).copied().unwrap_or(0)))
    }

    const MINUS_1: u64 = 0xffff_ffff;

    #[test]
    fn integers_wrap_and_have_signs() {
        for (name, a, want) in [
            ("add.s32", &[MINUS_1, 2][..], 1),
            ("sub.s32", &[0, 1], MINUS_1),
            ("neg.s32", &[1], MINUS_1),
            ("mul.lo.s32", &[MINUS_1, 3], 0xffff_fffd),
            ("mul.hi.u32", &[MINUS_1, MINUS_1], 0xffff_fffe),
            ("mul.hi.s32", &[MINUS_1, 3], 0xffff_ffff),
            ("mul.hi.s32", &[0x4000_0000, 12], 3),
            ("mul.wide.s32", &[MINUS_1, 2], u64::MAX - 1),
            ("mul.wide.u32", &[MINUS_1, 2], 0x1_ffff_fffe),
            ("mad.lo.s32", &[3, 4, MINUS_1], 11),
            ("mad.lo.s64", &[1 << 31, 4, 5], (1 << 33) + 5),
            ("div.s32", &[MINUS_1 - 6, 2], 0xffff_fffd),
            ("div.u32", &[7, 2], 3),
            ("rem.s32", &[MINUS_1 - 6, 2], MINUS_1),
            ("min.u32", &[MINUS_1, 1], 1),
            ("min.s32", &[MINUS_1, 1], MINUS_1),
            ("max.s32", &[MINUS_1, 1], 1),
            ("shl.b32", &[1, 32], 0),
            ("shr.u32", &[MINUS_1, 40], 0),
            ("shr.s32", &[1 << 31, 40], MINUS_1),
            ("shr.s64", &[1 << 63, 70], u64::MAX),
            ("bfi.b32", &[0xab, MINUS_1, 8, 8], 0xffff_abff),
            ("setp.lt.s32", &[MINUS_1, 0], 1),
            ("setp.lt.u32", &[MINUS_1, 0], 0),
            ("cvt.s64.s32", &[MINUS_1], u64::MAX),
            ("cvt.u64.u32", &[MINUS_1], MINUS_1),
        ] {
            assert_eq!(made(name, a), Some(want), "{name} {a:x?}");
        }
        assert_eq!(made("div.s32", &[1 << 31, MINUS_1]), None);
        assert_eq!(made("rem.u32", &[1, 0]), None);
    }

    #[test]
    fn floats_know_nan_and_signs() {
        let bits = |x: f32| u64::from(x.to_bits());
        let (one, nan) = (bits(1.0), bits(f32::NAN));
        assert_eq!(made("fma.rn.f32", &[bits(3.0), bits(2.0), one]), Some(bits(7.0)));
        assert_eq!(made("max.f32", &[nan, one]), Some(one));
        assert_eq!(made("ex2.approx.ftz.f32", &[bits(-3.0)]), Some(bits(0.125)));
        assert_eq!(made("ex2.approx.ftz.f32", &[bits(-127.0)]), Some(0));
        assert_eq!(made("ex2.approx.ftz.f32", &[bits(f32::NEG_INFINITY)]), Some(0));
        assert_eq!(made("rcp.rn.f32", &[bits(-4.0)]), Some(bits(-0.25)));
        // The sign of the first, the size of the second.
        assert_eq!(made("copysign.f32", &[bits(-2.0), one]), Some(bits(-1.0)));
        for (name, with_nan) in
            [("setp.lt.f32", 0), ("setp.ltu.f32", 1), ("setp.geu.f32", 1), ("setp.ge.f32", 0)]
        {
            assert_eq!(made(name, &[nan, one]), Some(with_nan), "{name}");
        }
        assert_eq!(made("setp.ltu.f32", &[one, one]), Some(0));
        assert_eq!(made("cvt.rn.f16x2.f32", &[one, bits(2.0)]), Some(0x3c00_4000));
        assert_eq!(made("cvt.rn.bf16x2.f32", &[one, bits(2.0)]), Some(0x3f80_4000));
    }

    #[test]
    fn each_name_is_there_once() {
        let mut names: Vec<&str> = VALUES.iter().map(|v| v.0).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
