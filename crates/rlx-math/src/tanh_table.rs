//! The hyperbolic tangent where lanes look numbers up in a table: a polynomial for each of 32 pieces of the arguments.
//!
//! Pieces are quarters of the octaves from 3/64 to 10; the first one begins at 0. Which piece an argument is in are five bits of it, and each
//! coefficient is one look-up, so that neither an exponential nor a division is needed.

use crate::lanes::Lanes;

/// From here on the result is 1.
const FAR: f32 = 9.125;

/// Smaller arguments are in the first piece, which is odd, as the tangent is.
const NEAR: f32 = 0.039_062_5;

/// The exponent and the two highest bits of the fraction are the number of a piece, of which [`TABLE`] takes the lowest five bits.
const BELOW_PIECE: i32 = 21;

/// For each piece its centre, the tangent there, and the coefficients of the first to the fifth power of the distance from there.
///
/// Each polynomial is (tanh(c + t) − tanh c) / t at the Chebyshev nodes of the piece, computed with forty digits. Of the numbers in the
/// middle of a piece, the centre is the one whose tangent is closest to an f32.
const TABLE: [[f32; 32]; 7] = [
    [
        2.250_282,
        2.750_335_2,
        3.249_913_7,
        3.750_247_5,
        4.500_294,
        5.500_363,
        6.499_284_7,
        7.500_715_3,
        8.563_930_5,
        0.0,
        0.050_783_77,
        0.058_593_407,
        0.070_301_45,
        0.085_936_45,
        0.101_560_496,
        0.117_191_51,
        0.140_610_62,
        0.171_887_64,
        0.203_143_54,
        0.234_391_17,
        0.281_213_07,
        0.343_751_55,
        0.406_266_4,
        0.468_707_17,
        0.562_476_5,
        0.687_473_2,
        0.812_537_67,
        0.937_449_3,
        1.125_135_3,
        1.375_095_4,
        1.624_985_7,
        1.875_007,
    ],
    [
        0.978_038_4,
        0.991_865_16,
        0.996_997_1,
        0.998_895,
        0.999_753_36,
        0.999_966_6,
        0.999_995_47,
        0.999_999_4,
        0.999_999_94,
        0.0,
        0.050_740_156,
        0.058_526_445,
        0.070_185_86,
        0.085_725_52,
        0.101_212_75,
        0.116_657_94,
        0.139_691_2,
        0.170_214_58,
        0.200_394_51,
        0.230_191_02,
        0.274_027_44,
        0.330_822_5,
        0.385_297_92,
        0.437_154_14,
        0.509_812_6,
        0.596_356_3,
        0.670_987_8,
        0.734_048_1,
        0.809_347_75,
        0.879_848_24,
        0.925_344_17,
        0.954_045_9,
    ],
    [
        0.043_440_945,
        0.016_203_508,
        0.005_996_747,
        0.002_208_8,
        4.932_273e-4,
        6.675_613e-5,
        9.054_213_5e-6,
        1.221_860_2e-6,
        1.457_220_7e-7,
        1.0,
        0.997_425_44,
        0.996_574_64,
        0.995_074,
        0.992_651_1,
        0.989_756,
        0.986_390_95,
        0.980_486_4,
        0.971_027,
        0.959_842,
        0.947_012_07,
        0.924_908_94,
        0.890_556_45,
        0.851_545_5,
        0.808_896_24,
        0.740_091_15,
        0.644_359_2,
        0.549_775_4,
        0.461_173_36,
        0.344_956_22,
        0.225_867_08,
        0.143_738_17,
        0.089_796_44,
    ],
    [
        -0.042_486_027,
        -0.016_071_029,
        -0.005_978_442_7,
        -0.002_206_242_9,
        -4.926_711_6e-4,
        -6.669_466_5e-5,
        -9.046_15e-6,
        -1.220_773_2e-6,
        -1.455_13e-7,
        0.0,
        -0.050_609_52,
        -0.058_325_972,
        -0.069_840_126,
        -0.085_095_54,
        -0.100_175_925,
        -0.115_070_336,
        -0.136_965_32,
        -0.165_282_95,
        -0.192_347_08,
        -0.217_993_68,
        -0.253_450_42,
        -0.294_616_1,
        -0.328_098_68,
        -0.353_612_33,
        -0.377_307_6,
        -0.384_267_6,
        -0.368_892_6,
        -0.338_523_5,
        -0.279_190_96,
        -0.198_729_59,
        -0.133_007_59,
        -0.085_669_97,
    ],
    [
        0.027_073_594,
        0.010_539_614,
        0.003_961_799,
        0.001_467_617,
        3.284_462_4e-4,
        4.448_176_7e-5,
        6.034_057_6e-6,
        8.142_256_4e-7,
        9.707_723e-8,
        -0.333_333_3,
        -0.329_907_2,
        -0.328_777_94,
        -0.326_789_53,
        -0.323_588_85,
        -0.319_779_57,
        -0.315_373_1,
        -0.307_695_93,
        -0.295_542_1,
        -0.281_402_05,
        -0.265_490_5,
        -0.238_850_61,
        -0.199_386_52,
        -0.157_432_76,
        -0.115_048_98,
        -0.054_340_918,
        0.014_373_902,
        0.064_263_87,
        0.094_768,
        0.110_976_36,
        0.099_562_54,
        0.075_165,
        0.051_800_98,
    ],
    [
        -0.012_373_509,
        -0.005_139_403,
        -0.001_976_027,
        -7.380_181_3e-4,
        -1.710_441_1e-4,
        -2.318_989_6e-5,
        -3.145_925_8e-6,
        -4.245_677_3e-7,
        -5.119_61e-8,
        0.0,
        0.033_609_02,
        0.038_683_78,
        0.046_214_066,
        0.056_102_615,
        0.065_754_96,
        0.075_144_395,
        0.088_622_81,
        0.105_382_74,
        0.120_487_995,
        0.133_757_47,
        0.149_847_5,
        0.164_079_26,
        0.169_943_91,
        0.168_096_1,
        0.153_290_91,
        0.119_460_605,
        0.079_879_36,
        0.043_359_86,
        0.003_606_753_4,
        -0.021_142_535,
        -0.025_137_413,
        -0.020_851_282,
    ],
    [
        0.003_979_991_7,
        0.001_911_345_8,
        7.685_692_4e-4,
        2.918_022_5e-4,
        6.750_601_5e-5,
        9.169_934e-6,
        1.242_085_5e-6,
        1.680_299_4e-7,
        2.022_265_9e-8,
        0.133_214_85,
        0.130_427_99,
        0.129_473_69,
        0.127_793_62,
        0.125_108_39,
        0.121_928_364,
        0.118_275_106,
        0.111_956_5,
        0.102_145_26,
        0.090_979_4,
        0.078_746_82,
        0.059_061_93,
        0.031_951_055,
        0.005_918_328_7,
        -0.017_169_068,
        -0.043_536_596,
        -0.061_619_673,
        -0.062_700_18,
        -0.053_073_075,
        -0.032_015_994,
        -0.009_475_797,
        0.001_417_656_1,
        0.004_610_3,
    ],
];

/// The tangent, where `l` looks numbers up.
#[inline(always)]
pub(crate) fn tanh<L: Lanes>(l: L, x: L::F) -> Option<L::F> {
    // The raw operations keep a NaN.
    let a = l.min_raw(l.splat(FAR), l.abs(x));
    let piece = l.shr_i::<BELOW_PIECE>(l.bits(l.max_raw(l.splat(NEAR), a)));
    let [centres, tangents, coefficients @ ..] = &TABLE;
    let t = l.sub(a, l.look_up(centres, piece)?);
    let [first, second, third, fourth, fifth] = coefficients;
    let y = l.mul_add(l.look_up(fifth, piece)?, t, l.look_up(fourth, piece)?);
    let y = l.mul_add(y, t, l.look_up(third, piece)?);
    let y = l.mul_add(y, t, l.look_up(second, piece)?);
    let y = l.mul_add(y, t, l.look_up(first, piece)?);
    Some(l.copysign(l.mul_add(y, t, l.look_up(tangents, piece)?), x))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The function of one number, with multiply-adds that round once.
    fn one(x: f32) -> f32 {
        let a = x.abs().min(FAR);
        let piece = (a.max(NEAR).to_bits() >> BELOW_PIECE) as usize % 32;
        let t = a - TABLE[0][piece];
        let y = TABLE[2..].iter().rev().fold(0.0f32, |y, c| y.mul_add(t, c[piece]));
        y.mul_add(t, TABLE[1][piece]).copysign(x)
    }

    #[test]
    fn pieces_join_and_stay_within_a_unit_in_the_last_place() {
        let mut before = 0.0;
        // All numbers up to 10 by steps of a prime, and those at both ends of each piece.
        let ends = (489u32..=521).flat_map(|i| (i << BELOW_PIECE) - 3..(i << BELOW_PIECE) + 3);
        let mut all: Vec<u32> = (0..10.0f32.to_bits()).step_by(1009).chain(ends).collect();
        all.sort_unstable();
        for bits in all {
            let x = f32::from_bits(bits);
            let (y, exact) = (one(x), f64::from(x).tanh());
            let rounded = exact as f32;
            let unit = f64::from(rounded) - f64::from(rounded.next_down());
            let off = (f64::from(y) - exact).abs() / unit;
            assert!(
                off <= 1.0 && before <= y && y <= 1.0,
                "tanh {x:e} = {y:e}, {off:.2} units from {exact:e}"
            );
            before = y;
        }
    }
}
