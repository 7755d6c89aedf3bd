//! Matmuls of bytes against sums in i64, on every instruction set with and without its extensions: equal to the bit.

use super::*;
use crate::gemm::{ConvRows, Strided};

/// Bytes that hit both ends of the range often.
fn bytes(count: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        match state >> 29 {
            0 => 0,
            1 => 0x80,
            2 => 0x7f,
            3 => 0xff,
            _ => (state >> 16) as u8,
        }
    };
    (0..count).map(next).collect()
}

fn number(byte: u8, signed: bool) -> i64 {
    if signed { i64::from(byte as i8) } else { i64::from(byte) }
}

fn every_isa() -> Vec<Isa> {
    Isa::available().into_iter().flat_map(|isa| [isa, isa.without_extensions()]).collect()
}

/// One matmul, in `pieces` ranges of tasks, against the definition.
fn check(isa: Isa, [m, k, n]: [usize; 3], signed: [bool; 2], each: bool, pieces: usize) {
    let (a, b) = (bytes(m * k, 1 + m as u32), bytes(k * n, 7 + n as u32));
    let zeros = bytes(if each { n } else { 1 }, 3);
    let a_zero = number(0x93, signed[0]);
    let mut packed = vec![0.0f32; byte_words(1, k, n).unwrap()];
    let mut c = vec![0i32; m * n];
    // SAFETY: all pointers cover the extents given.
    unsafe {
        pack_bytes(b.as_ptr(), signed[1], [n as isize, 1], k, n, packed.as_mut_ptr(), 0..panels(n));
        let rows = AnyRows::Matrix(Strided { ptr: a.as_ptr(), row_stride: k as isize });
        let b_zero = ZeroPoints { ptr: zeros.as_ptr(), step: usize::from(each), signed: signed[1] };
        let (b, c) = (packed.as_ptr(), c.as_mut_ptr());
        let g = ByteGemm {
            m,
            n,
            k,
            terms: k,
            rows,
            even: None,
            signed: signed[0],
            b,
            a_zero: a_zero as i32,
            b_zero,
            c,
            c_stride: n,
            epilogue: None,
            ahead: Ahead::Panels,
        };
        let tasks = g.tasks(isa);
        for piece in 0..pieces {
            g.run(isa, piece * tasks / pieces..(piece + 1) * tasks / pieces);
        }
    }
    for i in 0..m {
        for j in 0..n {
            let zero = number(zeros[if each { j } else { 0 }], signed[1]);
            let term = |p: usize| {
                (number(a[i * k + p], signed[0]) - a_zero) * (number(b[p * n + j], signed[1]) - zero)
            };
            let want = (0..k).map(term).sum::<i64>() as i32;
            assert_eq!(c[i * n + j], want, "{isa}: {m}×{k}×{n}, signed {signed:?}, at {i}, {j}");
        }
    }
}

#[test]
fn products_of_bytes_are_exact_on_every_instruction_set() {
    let shapes = [
        [1, 1, 1],
        [1, 7, 50],
        [3, 4, 16],
        [8, 64, 48],
        [9, 33, 97],
        [21, 130, 47],
        [2, 1023, 5],
        [17, 70, 64],
        [6, 15, 49],
        [15, 30, 160],
    ];
    for isa in every_isa() {
        for (i, shape) in shapes.into_iter().enumerate() {
            for signed in [[false, false], [false, true], [true, false], [true, true]] {
                check(isa, shape, signed, i % 2 == 0, 1 + i % 3);
            }
        }
    }
}

#[test]
fn rows_and_taps_that_are_equally_far_apart_are_those_that_are_asked_for() {
    // Two images of pixels of four bytes, windows of three lines by three pixels: lines of the result are longer than tiles, shorter, and no multiple.
    let (n, k) = (40, 12);
    for (size, stride) in [([9, 41], 2), ([5, 7], 1), ([4, 26], 1), ([7, 34], 2)] {
        let [lines, pixels] = size;
        let out = [(lines - 3) / stride + 1, (pixels - 3) / stride + 1];
        let m = 2 * out[0] * out[1];
        let (a, b) = (bytes(2 * lines * pixels * 4, 5), bytes(3 * k * n, 9));
        let mut packed = vec![0.0f32; byte_words(1, 3 * k, n).unwrap()];
        let rows = AnyRows::Windows(ConvRows {
            input: a.as_ptr(),
            zeros: a.as_ptr(),
            size: [1, lines, pixels],
            strides: [lines * pixels * 4, pixels * 4, 4],
            volume_stride: lines * pixels * 4,
            out: [1, out[0], out[1]],
            kernel: [1, 3, 1],
            stride: [1, stride, stride],
            dilation: [1; 3],
            pad: [0; 3],
            first: 0,
        });
        let even = Even { tap_step: pixels * 4, line: out[1], row_step: stride * 4 };
        let zero = 0u8;
        let b_zero = ZeroPoints { ptr: &zero, step: 0, signed: true };
        // SAFETY: all pointers cover the extents given.
        unsafe { pack_bytes(b.as_ptr(), true, [n as isize, 1], 3 * k, n, packed.as_mut_ptr(), 0..panels(n)) };
        for isa in every_isa() {
            let [mut with, mut without] = [vec![0i32; m * n], vec![1i32; m * n]];
            for (even, c) in [(Some(even), &mut with), (None, &mut without)] {
                let (b, c) = (packed.as_ptr(), c.as_mut_ptr());
                let terms = 3 * k;
                let ahead = Ahead::Panels;
                let g = ByteGemm {
                    m,
                    n,
                    k,
                    terms,
                    rows,
                    even,
                    signed: false,
                    b,
                    a_zero: 3,
                    b_zero,
                    c,
                    c_stride: n,
                    epilogue: None,
                    ahead,
                };
                let tasks = g.tasks(isa);
                // SAFETY: all pointers cover the extents given.
                unsafe {
                    g.run(isa, 0..tasks / 3);
                    g.run(isa, tasks / 3..tasks);
                }
            }
            assert_eq!(with, without, "{isa}: {size:?} by {stride}");
            let at = (m - 2) * n + 5;
            let (y, x) = ((m - 2) / out[1] % out[0] * stride, (m - 2) % out[1] * stride);
            let term = |p: usize| {
                let byte = (lines + y + p / k) * pixels * 4 + x * 4 + p % k;
                (number(a[byte], false) - 3) * number(b[p * n + 5], true)
            };
            assert_eq!(i64::from(with[at]), (0..3 * k).map(term).sum::<i64>(), "{isa}: {size:?}");
        }
    }
}

#[test]
fn sums_beyond_i32_wrap_alike() {
    // 255 · 127 · 70,000 exceeds 2³¹.
    let (k, a, b) = (70_000, vec![255u8; 70_000], vec![127u8; 70_000]);
    let zero = 0u8;
    let results = every_isa().into_iter().map(|isa| {
        let mut packed = vec![0.0f32; byte_words(1, k, 1).unwrap()];
        let mut c = [0i32; 1];
        // SAFETY: all pointers cover the extents given.
        unsafe {
            pack_bytes(b.as_ptr(), true, [1, 1], k, 1, packed.as_mut_ptr(), 0..1);
            let rows = AnyRows::Matrix(Strided { ptr: a.as_ptr(), row_stride: k as isize });
            let b_zero = ZeroPoints { ptr: &zero, step: 0, signed: true };
            let (b, c) = (packed.as_ptr(), c.as_mut_ptr());
            let g = ByteGemm {
                m: 1,
                n: 1,
                k,
                terms: k,
                rows,
                even: None,
                signed: false,
                b,
                a_zero: 0,
                b_zero,
                c,
                c_stride: 1,
                epilogue: None,
                ahead: Ahead::Panels,
            };
            g.run(isa, 0..g.tasks(isa));
        }
        c[0]
    });
    let want = (255i64 * 127 * 70_000) as i32;
    assert!(results.into_iter().all(|c| c == want));
}

/// Panels of a matrix whose rows are contiguous, of one whose columns are, and of one where nothing is.
#[test]
fn panels_do_not_depend_on_where_bytes_lie() {
    for [k, n] in [[1, 1], [3, 50], [4, 48], [64, 128], [65, 47], [130, 97]] {
        let b = bytes(k * n, 5);
        let turned: Vec<u8> = (0..n * k).map(|i| b[i % k * n + i / k]).collect();
        let apart: Vec<u8> = b.iter().flat_map(|&byte| [byte, 0x55]).collect();
        for signed in [false, true] {
            let pack = |from: &[u8], strides: [usize; 2]| {
                let mut packed = vec![f32::NAN; byte_words(1, k, n).unwrap()];
                let strides = strides.map(|stride| stride as isize);
                // SAFETY: the strides are those of the matrix, and there is room for all panels.
                unsafe {
                    pack_bytes(from.as_ptr(), signed, strides, k, n, packed.as_mut_ptr(), 0..panels(n))
                };
                packed.iter().map(|word| word.to_bits()).collect::<Vec<u32>>()
            };
            let want = pack(&apart, [2 * n, 2]);
            assert!(pack(&b, [n, 1]) == want, "rows of {k}×{n}");
            assert!(pack(&turned, [1, k]) == want, "columns of {k}×{n}");
        }
    }
}
