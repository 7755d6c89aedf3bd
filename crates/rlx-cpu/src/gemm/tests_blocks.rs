//! Rows in fixed point by weights in blocks, on every instruction set, against exact sums.

use rlx_ir::testing::Gen;

use super::{
    BlockElement, BlockGemm, Epilogue, FixedRows, QuantizedRows, Strided, Width, block_bytes, pack_blocks,
};
use crate::isa::Isa;

/// A random matmul with its exact results, and how far from them fixed point may be. Zero points are whole numbers up to one, and some more.
struct Case {
    shape: [usize; 4],
    element: BlockElement,
    x: Vec<f32>,
    packed: Vec<u8>,
    scale: Vec<f32>,
    zero: Option<Vec<f32>>,
    exact: Vec<f64>,
    bound: Vec<f64>,
}

impl Case {
    fn new(
        g: &mut Gen,
        [m, n, k, size]: [usize; 4],
        (element, width): (BlockElement, Width),
        zeros: Option<(usize, f32)>,
    ) -> Case {
        let blocks = k.div_ceil(size);
        let depth = blocks * size;
        let bytes = element.bytes(depth).unwrap();
        let stored: Vec<u8> = (0..n * bytes).map(|_| g.size(0..=255) as u8).collect();
        let x: Vec<f32> = (0..m * k)
            .map(|_| (g.size(0..=2000) as f32 - 1000.0) * 0.37f32.powi(g.size(0..=9) as i32))
            .collect();
        let scale: Vec<f32> = (0..n * blocks).map(|_| 0.01 + 0.001 * g.size(0..=20) as f32).collect();
        let zero = zeros
            .map(|(most, more)| (0..n * blocks).map(|_| g.size(0..=most) as f32 + more).collect::<Vec<_>>());
        let weight = |column: usize, step: usize| match (element.bits, element.signed) {
            (8, true) => f64::from(stored[column * bytes + step] as i8),
            (8, false) => f64::from(stored[column * bytes + step]),
            (_, signed) => {
                let half = stored[column * bytes + step / 2] >> (4 * (step % 2)) & 15;
                f64::from(if signed { half as i8 - 16 * i8::from(half > 7) } else { half as i8 })
            }
        };
        let (mut exact, mut bound) = (vec![0.0; m * n], vec![0.0; m * n]);
        for row in 0..m {
            for column in 0..n {
                let (mut sum, mut most) = (0.0, 0.0);
                for block in 0..blocks {
                    let steps = block * size..k.min((block + 1) * size);
                    let of_row = &x[row * k..][steps.clone()];
                    let largest = of_row.iter().fold(0.0, |most: f64, x| most.max(f64::from(x.abs())));
                    let at = block * n + column;
                    let byte = largest as f32 / 127.0;
                    for step in steps {
                        let x = match width {
                            Width::Digits => f64::from(x[row * k + step]),
                            Width::Byte => {
                                let factor = 127.0 / largest as f32;
                                f64::from((x[row * k + step] * factor).round_ties_even()) * f64::from(byte)
                            }
                        };
                        let stored = weight(column, step);
                        let zero = f64::from(zero.as_ref().map_or(0.0, |zero| zero[at]));
                        let scale = f64::from(scale[at]);
                        sum += x * (stored - zero) * scale;
                        // The number's own rounding, and of the block's sums, which are of numbers as they are stored.
                        most += largest * (stored.abs() + zero + 8.0) * scale;
                    }
                }
                exact[row * n + column] = sum;
                bound[row * n + column] = most * (4.0 + blocks as f64) * 2f64.powi(-24);
            }
        }
        let mut packed = vec![0; block_bytes(element, depth, n).unwrap()];
        let panels = 0..super::panels(n);
        // SAFETY: the weights are there, and the packed ones have room.
        unsafe { pack_blocks(stored.as_ptr(), element, depth, n, packed.as_mut_ptr(), panels) };
        Case { shape: [m, n, k, size], element, x, packed, scale, zero, exact, bound }
    }

    fn run(&self, isa: Isa, width: Width) -> Vec<f32> {
        let [m, n, k, size] = self.shape;
        let blocks = k.div_ceil(size);
        let mut c = vec![f32::NAN; m * n];
        let mut scratch = vec![0u64; FixedRows::bytes(width, m, blocks, size).unwrap() / 8];
        let of = self.floats(self.x.as_ptr(), &mut c);
        let fixed = FixedRows { of, width, scratch: scratch.as_mut_ptr().cast() };
        // SAFETY: all pointers cover the extents given.
        unsafe {
            fixed.fix(isa, 0..m);
            fixed.run(isa, 0..fixed.tasks());
        }
        c
    }

    /// As [`run`](Case::run) of bytes, by floats.
    fn run_floats(&self, isa: Isa) -> Vec<f32> {
        let [m, n, k, size] = self.shape;
        let (mut c, mut rows) = (vec![f32::NAN; m * n], vec![f32::NAN; m * k]);
        let of_rows = Strided { ptr: self.x.as_ptr(), row_stride: k as isize };
        let quantized = QuantizedRows { rows: of_rows, k, size, to: rows.as_mut_ptr() };
        let of = self.floats(rows.as_ptr(), &mut c);
        // SAFETY: all pointers cover the extents given.
        unsafe {
            quantized.run(isa, 0..m);
            of.run(isa, 0..of.tasks(isa));
        }
        c
    }

    /// The product of rows that are at `x`.
    fn floats(&self, x: *const f32, c: &mut [f32]) -> BlockGemm {
        let [m, n, k, size] = self.shape;
        BlockGemm {
            m,
            n,
            k,
            rows: Strided { ptr: x, row_stride: k as isize },
            weights: self.packed.as_ptr(),
            element: self.element,
            depth: k.div_ceil(size) * size,
            size,
            scale: self.scale.as_ptr(),
            zero: self.zero.as_ref().map(|zero| zero.as_ptr()),
            c: c.as_mut_ptr(),
            c_stride: n,
            epilogue: Epilogue::NONE,
        }
    }
}

/// How weights are stored.
fn elements() -> [BlockElement; 4] {
    [(4, false), (4, true), (8, false), (8, true)].map(|(bits, signed)| BlockElement { bits, signed })
}

fn assert_within(case: &Case, results: Vec<f32>, of: &str) {
    for (at, y) in results.into_iter().enumerate() {
        let (exact, bound) = (case.exact[at], case.bound[at]);
        let error = (f64::from(y) - exact).abs();
        assert!(error <= bound, "{of} {:?} {:?} at {at}: {y}, {exact}", case.shape, case.element);
    }
}

#[test]
fn fixed_point_is_as_near_to_exact_sums_as_floats_on_every_instruction_set() {
    let mut g = Gen::new(31);
    // Partial panels, cut blocks, the longest blocks, one row and odd numbers of them.
    let shapes = [[1, 5, 8, 8], [2, 48, 64, 32], [3, 97, 300, 32], [1, 50, 512, 256], [7, 20, 90, 16]];
    for shape in shapes {
        for (i, element) in elements().into_iter().enumerate() {
            let case = Case::new(&mut g, shape, (element, Width::Digits), (i % 2 == 0).then_some((15, 0.0)));
            for isa in Isa::available().into_iter().flat_map(|isa| [isa, isa.without_extensions()]) {
                assert_within(&case, case.run(isa, Width::Digits), &isa.to_string());
            }
        }
    }
}

#[test]
fn quantised_rows_are_multiplied_as_their_bytes_on_every_instruction_set() {
    let mut g = Gen::new(32);
    // As above; rows of several tasks, of whole tiles and others.
    let shapes = [[1, 5, 8, 8], [4, 48, 64, 32], [37, 97, 300, 32], [6, 50, 512, 256], [18, 20, 90, 16]];
    for shape in shapes {
        for element in elements() {
            // Zero points that leave signed bytes, and others.
            for zeros in [None, Some((15, 0.0)), Some((15, 0.25)), Some((0, 128.0))] {
                let case = Case::new(&mut g, shape, (element, Width::Byte), zeros);
                for isa in Isa::available().into_iter().flat_map(|isa| [isa, isa.without_extensions()]) {
                    assert_within(&case, case.run(isa, Width::Byte), &format!("{isa}, bytes"));
                    assert_within(&case, case.run_floats(isa), &format!("{isa}, floats"));
                }
            }
        }
    }
}

#[test]
fn a_block_with_an_odd_number_makes_nan_of_its_row_alone() {
    let mut g = Gen::new(33);
    let element = BlockElement { bits: 4, signed: false };
    for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut case = Case::new(&mut g, [6, 50, 96, 32], (element, Width::Byte), Some((15, 0.0)));
        case.x[2 * 96 + 40] = odd;
        for isa in Isa::available() {
            for results in [case.run(isa, Width::Byte), case.run_floats(isa)] {
                for (row, y) in results.chunks(50).enumerate() {
                    assert!(y.iter().all(|y| y.is_nan() == (row == 2)), "{isa}: row {row}");
                }
            }
        }
    }
}
