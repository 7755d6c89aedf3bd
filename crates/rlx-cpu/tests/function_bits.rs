//! The bits of the vector functions, as they were before their statement was shared with the kernels.
//!
//! A change of a bit is a change of every model's results: a deliberate change updates the sums here.

use rlx_cpu::isa::{Isa, IsaKind};
use rlx_cpu::math::{Function, Unary, apply_in_place};

/// Arguments of every size and sign, dense where functions bend.
fn arguments() -> Vec<f32> {
    let patterns = (0..1u32 << 17).map(|i| f32::from_bits(i.wrapping_mul(0x9E37_79B1)));
    let near = (-40_000..=40_000).map(|i| i as f32 * 2.5e-4);
    let specials = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE, f32::MAX];
    patterns.chain(near).chain(specials).collect()
}

/// FNV-1a over the results; all NaN are one.
fn sum(isa: Isa, op: Unary, limit: f32) -> u64 {
    let mut x: Vec<f32> =
        arguments().into_iter().filter(|x| x.abs() <= limit || limit.is_infinite()).collect();
    apply_in_place(isa, op, &mut x);
    x.iter().fold(0xcbf2_9ce4_8422_2325, |sum, y| {
        let bits = if y.is_nan() { 0x7fc0_0000 } else { y.to_bits() };
        (sum ^ u64::from(bits)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A function, and its sums with separate and with fused multiply-add.
type Known = (&'static str, Unary, u64, u64);

const KNOWN: &[Known] = &[
    ("exp", Unary::Function(Function::Exp), 0x0b77_c9cc_2d1e_b137, 0x0c1a_fbae_1bd6_2fdb),
    ("log", Unary::Function(Function::Log), 0xb712_8902_5874_66ef, 0x126b_652b_a669_aa3f),
    ("erf", Unary::Function(Function::Erf), 0xc149_405a_e486_8572, 0x327d_6aa9_aa32_4b58),
    ("tanh", Unary::Function(Function::Tanh), 0x61ee_6412_2e65_dc98, 0x307c_8b2f_13c9_c736),
    ("sigmoid", Unary::Function(Function::Sigmoid), 0xa452_f254_82d9_8f3c, 0x8983_536a_cbd1_f3a4),
    ("gelu", Unary::Function(Function::Gelu), 0x4f4b_3b19_ec19_ca0b, 0xa9e4_b2a9_0bab_4280),
    ("gelu_tanh", Unary::Function(Function::GeluApprox), 0x4583_4386_5ba7_1b45, 0x200e_792a_72ad_d16e),
    ("silu", Unary::Function(Function::Silu), 0xe86d_e9d8_8982_15b6, 0x13d7_4fe4_70cb_619a),
    ("softplus", Unary::Function(Function::Softplus), 0xa7a6_049c_09c4_41a2, 0x79e9_5695_1025_913f),
    ("sin", Unary::Function(Function::Sin), 0, 0x5c4a_3043_388a_b304),
    ("cos", Unary::Function(Function::Cos), 0, 0x1b39_ac19_fc5d_ab5c),
    ("sqrt", Unary::Sqrt, 0xd19e_4aff_3746_785c, 0xd19e_4aff_3746_785c),
    ("rsqrt", Unary::Rsqrt, 0xfbfe_a3fc_0959_e094, 0xfbfe_a3fc_0959_e094),
    ("recip", Unary::Recip, 0xb16e_d43f_4f97_89b9, 0xb16e_d43f_4f97_89b9),
    ("relu", Unary::Relu, 0xa787_6a1e_8d2e_69c8, 0xa787_6a1e_8d2e_69c8),
    ("hard_swish", Unary::Function(Function::HardSwish), 0x54fd_69d0_2738_372c, 0xe8c9_faab_a2a8_68f8),
    ("leaky_relu", Unary::LeakyRelu { alpha: 0.01 }, 0x700f_dfd1_e5ee_e686, 0x700f_dfd1_e5ee_e686),
    ("clip", Unary::Clip { lo: -1.5, hi: 2.0 }, 0x31a2_a082_f615_6883, 0x31a2_a082_f615_6883),
    (
        "hard_sigmoid",
        Unary::HardSigmoid { alpha: 0.2, beta: 0.5 },
        0x433e_7f26_86ff_b754,
        0x37bc_1b69_1ea9_d083,
    ),
    ("abs", Unary::Abs, 0x333a_5d4e_343e_6b74, 0x333a_5d4e_343e_6b74),
    ("neg", Unary::Neg, 0xbe43_c356_b43e_6b74, 0xbe43_c356_b43e_6b74),
    ("round", Unary::Round, 0xea64_c8e1_1dce_97f1, 0xea64_c8e1_1dce_97f1),
    ("floor", Unary::Floor, 0x4a8a_42f8_ad7b_151d, 0x4a8a_42f8_ad7b_151d),
    ("ceil", Unary::Ceil, 0x1a38_ef90_5bd7_7c23, 0x1a38_ef90_5bd7_7c23),
];

/// Functions that look coefficients up where an instruction does that, and their sums then.
const LOOKED_UP: &[(&str, u64)] = &[("tanh", 0x26d0_b231_e8cb_4c01)];

#[test]
fn functions_keep_their_bits() {
    let mut wrong = Vec::new();
    for isa in Isa::available() {
        for &(name, op, separate, fused) in KNOWN {
            let is_separate = isa.kind() == IsaKind::Portable;
            let turns = matches!(op, Unary::Function(Function::Sin) | Unary::Function(Function::Cos));
            if is_separate && turns {
                // Lane by lane by the platform's library.
                continue;
            }
            let got = sum(isa, op, if turns { 6e4 } else { f32::INFINITY });
            let looked_up = LOOKED_UP.iter().find(|known| known.0 == name);
            let want = match (isa.kind(), looked_up) {
                (IsaKind::Portable, _) => separate,
                (IsaKind::Avx512, Some(&(_, sum))) => sum,
                _ => fused,
            };
            if got != want {
                wrong.push(format!("{name} on {isa}: {got:#018x}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
