//! Bytes made of sums, against every step that they stand for, one by one.

use super::*;
use crate::gemm::{Ahead, AnyRows, ByteGemm, Epilogue, Strided, ZeroPoints, byte_words, pack_bytes, panels};
use crate::isa::Isa;
use crate::testing::Rng;

/// A product of bytes whose sums become bytes, and other bytes that may be added to those.
struct Case {
    sizes: [usize; 3],
    a: Vec<u8>,
    b: Vec<i8>,
    a_zero: u8,
    b_zeros: Vec<i8>,
    offset: Option<Vec<i32>>,
    scale: Vec<f32>,
    bias: Vec<f32>,
    quantiser: Quantiser,
    residual: Option<(Vec<u8>, [Dequantiser; 2], Quantiser)>,
}

impl Case {
    fn random(rng: &mut Rng, round: usize) -> Case {
        let n = if round.is_multiple_of(2) { 16 * (1 + rng.below(7)) } else { 1 + rng.below(100) };
        let [m, k] = [1 + rng.below(20), 1 + rng.below(40)];
        let mut bytes = |count: usize| -> Vec<u8> { (0..count).map(|_| rng.below(256) as u8).collect() };
        let (a, b, others) = (bytes(m * k), bytes(k * n), bytes(m * n));
        let even = !round.is_multiple_of(5);
        let b_zeros = (0..n).map(|_| if even { 0 } else { rng.below(9) as i8 - 4 }).collect();
        let largest = 3000.0 * (k as f32).sqrt();
        let scale = (0..n).map(|_| rng.uniform(0.5, 2.0) / largest).collect();
        let bias = (0..n).map(|_| rng.uniform(-0.5, 0.5)).collect();
        let offset = round.is_multiple_of(3).then(|| (0..n).map(|_| rng.below(2000) as i32 - 1000).collect());
        let steps = |rng: &mut Rng| (rng.uniform(0.004, 0.02), rng.below(256) as i32);
        // Signed or not, and sometimes within narrower bounds.
        let signed = round % 7 < 2;
        let least = if signed { -128 } else { 0 };
        let quantiser = |(scale, zero): (f32, i32)| {
            let least = least as f32;
            let q = Quantiser::new(scale, zero as f32 + least, least, least + 255.0);
            if round % 9 == 4 { q.clipped(0.0, 40.0 * scale).unwrap_or(q) } else { q }
        };
        let dequantiser = |(scale, zero): (f32, i32)| Dequantiser { scale, zero: zero + least, signed };
        let own = steps(rng);
        let residual = round.is_multiple_of(4).then(|| {
            let (last, mut other) = (steps(rng), steps(rng));
            // Equal scales make ties.
            if round.is_multiple_of(8) {
                other.0 = last.0;
            }
            (others, [dequantiser(own), dequantiser(other)], quantiser(last))
        });
        let b = b.into_iter().map(|byte| byte as i8).collect();
        let a_zero = rng.below(256) as u8;
        Case {
            sizes: [m, n, k],
            a,
            b,
            a_zero,
            b_zeros,
            offset,
            scale,
            bias,
            quantiser: quantiser(own),
            residual,
        }
    }

    fn want(&self) -> Vec<u8> {
        let [m, n, k] = self.sizes;
        let place = |at: usize| {
            let (i, j) = (at / n, at % n);
            let term = |p: usize| {
                let a = i32::from(self.a[i * k + p]) - i32::from(self.a_zero);
                a * (i32::from(self.b[p * n + j]) - i32::from(self.b_zeros[j]))
            };
            let sum = (0..k).map(term).sum::<i32>() + self.offset.as_ref().map_or(0, |offset| offset[j]);
            let byte = self.quantiser.one(sum as f32 * self.scale[j] + self.bias[j]);
            let Some((others, [own, other], last)) = &self.residual else { return byte as u8 };
            let float = |d: &Dequantiser, byte: i32| (byte - d.zero) as f32 * d.scale;
            let added = if other.signed { i32::from(others[at] as i8) } else { i32::from(others[at]) };
            last.one(float(own, byte) + float(other, added)) as u8
        };
        (0..m * n).map(place).collect()
    }

    fn run(&self, isa: Isa) -> Vec<u8> {
        let [m, n, k] = self.sizes;
        let mut packed = vec![0.0f32; byte_words(1, k, n).unwrap()];
        let mut c = vec![0xa5u8; m * n];
        let residual = self.residual.as_ref().map(|(others, [own, other], quantiser)| Residual {
            own: *own,
            other: *other,
            ptr: others.as_ptr(),
            row_stride: n,
            quantiser: *quantiser,
        });
        let epilogue = ByteEpilogue {
            offset: self.offset.as_ref().map(|offset| PerColumn { ptr: offset.as_ptr(), step: 1 }),
            scale: PerColumn { ptr: self.scale.as_ptr(), step: 1 },
            floats: Epilogue::bias(self.bias.as_ptr()),
            quantiser: Some(self.quantiser),
            residual,
        };
        // SAFETY: all pointers cover the extents given.
        unsafe {
            pack_bytes(
                self.b.as_ptr().cast(),
                true,
                [n as isize, 1],
                k,
                n,
                packed.as_mut_ptr(),
                0..panels(n),
            );
            let rows = AnyRows::Matrix(Strided { ptr: self.a.as_ptr(), row_stride: k as isize });
            let b_zero = ZeroPoints { ptr: self.b_zeros.as_ptr().cast(), step: 1, signed: true };
            let g = ByteGemm {
                m,
                n,
                k,
                terms: k,
                rows,
                even: None,
                signed: false,
                b: packed.as_ptr(),
                a_zero: i32::from(self.a_zero),
                b_zero,
                c: c.as_mut_ptr().cast(),
                c_stride: n,
                epilogue: Some(epilogue),
                ahead: Ahead::Panels,
            };
            g.run(isa, 0..g.tasks(isa));
        }
        c
    }
}

#[test]
fn bytes_are_those_of_every_step_on_every_instruction_set() {
    let mut rng = Rng::new(84);
    let rounds = if cfg!(miri) { 4 } else { 400 };
    for round in 0..rounds {
        let case = Case::random(&mut rng, round);
        let want = case.want();
        for isa in Isa::available().into_iter().flat_map(|isa| [isa, isa.without_extensions()]) {
            let got = case.run(isa);
            let wrong = got.iter().zip(&want).position(|(got, want)| got != want);
            assert_eq!(wrong, None, "{isa}: {:?}, round {round}: {got:?}, not {want:?}", case.sizes);
        }
    }
}
