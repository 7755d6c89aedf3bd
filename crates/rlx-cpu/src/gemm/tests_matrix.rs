//! Tiles of a matrix's rows, in their own loop, give the bits of one row alone, which is computed elsewhere.

use half::bf16;

use super::*;
use crate::math::Unary;
use crate::testing::Rng;

/// What a random matmul is of; `T` from f32.
struct Operands<T> {
    a: Vec<T>,
    bias: Vec<T>,
    residual: Vec<T>,
    packed: Vec<f32>,
}

impl<T: Packed> Operands<T> {
    fn new(rng: &mut Rng, [m, n, k]: [usize; 3], from: fn(f32) -> T) -> Operands<T> {
        let mut random = |len: usize| rng.vec(len).into_iter().map(from).collect::<Vec<T>>();
        let (a, b, bias, residual) = (random(m * k), random(k * n), random(n), random(m * n));
        let mut packed = vec![f32::NAN; packed_words::<T>(k, n).unwrap()];
        // SAFETY: the vectors cover the extents.
        unsafe { pack(b.as_ptr(), n as isize, 1, k, n, packed.as_mut_ptr(), 0..panels(n)) };
        Operands { a, bias, residual, packed }
    }

    /// Every epilogue of few instructions: which bias, whether a residual, which function.
    fn epilogues(&self, n: usize) -> Vec<Epilogue<T>> {
        let bias = self.bias.as_ptr();
        let residual =
            Combine { ptr: self.residual.as_ptr(), row_stride: n, op: BinaryOp::Add, after: false };
        let functions = [None, Some(Unary::Relu), Some(Unary::Clip { lo: -0.5, hi: 0.25 })];
        let mut all = Vec::new();
        for bias in [Bias::None, Bias::PerColumn(bias), Bias::OfSum(bias)] {
            for combine in [None, Some(residual)] {
                all.extend(functions.map(|activation| Epilogue {
                    bias,
                    combine,
                    activation,
                    ..Epilogue::NONE
                }));
            }
        }
        all
    }
}

fn same_as_alone<T: Packed + PartialEq + std::fmt::Debug>(seed: u64, from: fn(f32) -> T) {
    let mut rng = Rng::new(seed);
    for [m, n, k] in [[3, 48, 7], [5, 64, 16], [7, 20, 33], [24, 112, 40], [27, 95, 29], [9, 33, 0]] {
        let of = Operands::new(&mut rng, [m, n, k], from);
        for isa in Isa::available() {
            for (number, epilogue) in of.epilogues(n).into_iter().enumerate() {
                let (mut together, mut alone) = (vec![T::zero(); m * n], vec![T::zero(); m * n]);
                let rows = Strided { ptr: of.a.as_ptr(), row_stride: k as isize };
                let all = Gemm {
                    m,
                    n,
                    k,
                    rows,
                    b: of.packed.as_ptr(),
                    c: together.as_mut_ptr(),
                    c_stride: n,
                    epilogue,
                    tile_sizes: TileSizes::DEFAULT,
                    ahead: Ahead::Panels,
                    wide: None,
                };
                // SAFETY: the vectors cover the extents.
                unsafe { all.run(isa, 0..all.tasks(isa)) };
                for row in 0..m {
                    let one = Gemm { c: alone.as_mut_ptr(), ..all }.block(row..row + 1, rows.skip(row));
                    // SAFETY: as above.
                    unsafe { one.run(isa, 0..one.tasks(isa)) };
                }
                assert_eq!(together, alone, "{m}×{n}×{k} {isa:?}, epilogue {number}");
            }
        }
    }
}

#[test]
fn rows_have_the_same_bits_alone_and_among_others() {
    same_as_alone::<f32>(21, |x| x);
    same_as_alone::<bf16>(22, bf16::from_f32);
}
