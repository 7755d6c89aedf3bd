//! What a warp does together, by the formulas of the PTX ISA.

use half::{bf16, f16};

use crate::parse::Half;

/// Lanes of a warp.
pub const WARP: usize = 32;

fn number(half: Half, bits: u16) -> f64 {
    match half {
        Half::F16 => f16::from_bits(bits).to_f64(),
        Half::BF16 => bf16::from_bits(bits).to_f64(),
    }
}

/// The element of 16 bits number `i` of a lane's registers.
fn element(registers: &[u32], i: usize) -> u16 {
    (registers[i / 2] >> (16 * (i % 2))) as u16
}

/// `mma.m16n8k16` and `mma.m16n8k8`: the sums of a lane, of the registers that all lanes have of A and B and its own of C.
///
/// "Matrix Fragments for mma.m16n8k16 with floating point type" and "… mma.m16n8k8": with `groupID = lane / 4` and
/// `threadID_in_group = lane mod 4`, element i of a lane is
/// - of A: row `groupID`, + 8 for i mod 4 ≥ 2; column `2·threadID_in_group + i mod 2`, + 8 for i ≥ 4;
/// - of B: row `2·threadID_in_group + i mod 2`, + 8 for i ≥ 2; column `groupID`;
/// - of C: row `groupID`, + 8 for i ≥ 2; column `2·threadID_in_group + i mod 2`.
pub fn mma(half: Half, k: usize, lane: usize, a: &[Vec<u32>], b: &[Vec<u32>], c: [f32; 4]) -> [f32; 4] {
    let left = |row: usize, k: usize| {
        let i = k % 2 + 2 * usize::from(row >= 8) + 4 * usize::from(k >= 8);
        number(half, element(&a[row % 8 * 4 + k % 8 / 2], i))
    };
    let right = |k: usize, col: usize| {
        let i = k % 2 + 2 * usize::from(k >= 8);
        number(half, element(&b[col * 4 + k % 8 / 2], i))
    };
    std::array::from_fn(|i| {
        let (row, col) = (lane / 4 + 8 * usize::from(i >= 2), lane % 4 * 2 + i % 2);
        let products = (0..k).map(|k| left(row, k) * right(k, col));
        (f64::from(c[i]) + products.sum::<f64>()) as f32
    })
}

/// `wgmma.mma_async`: sum number `i` of a lane, of the 16 rows of its warp and the columns of the right matrix, each over the depth.
///
/// "Register Fragments for wgmma.mma_async.m64nNk16", matrix D: row `16·warp + lane / 4`, + 8 for i mod 4 ≥ 2; column
/// `8·(i / 4) + 2·(lane mod 4) + i mod 2`.
pub fn group_sum(half: Half, lane: usize, i: usize, rows: &[[u16; 16]], cols: &[[u16; 16]], c: f32) -> f32 {
    let (row, col) = (lane / 4 + 8 * (i / 2 % 2), i / 4 * 8 + lane % 4 * 2 + i % 2);
    dot(half, &rows[row], &cols[col], c)
}

/// A sum and the products of a row and a column over a depth of 16, which `tcgen05.mma` adds as the others do.
pub fn dot(half: Half, row: &[u16; 16], col: &[u16; 16], c: f32) -> f32 {
    let products = row.iter().zip(col).map(|(&a, &b)| number(half, a) * number(half, b));
    (f64::from(c) + products.sum::<f64>()) as f32
}

/// `wgmma.mma_async` with matrix A in registers: a row of a warp's 16, of the registers that all lanes have of it.
///
/// "Register Fragments for wgmma.mma_async.m64nNk16", matrix A: element i of a lane is in row `16·warp + lane / 4`, + 8 for i mod 4 ≥ 2; column
/// `2·(lane mod 4) + i mod 2`, + 8 for i ≥ 4.
pub fn left_row(a: &[Vec<u32>], row: usize) -> [u16; 16] {
    std::array::from_fn(|k| {
        let i = k % 2 + 2 * usize::from(row >= 8) + 4 * usize::from(k >= 8);
        element(&a[row % 8 * 4 + k % 8 / 2], i)
    })
}

/// `ldmatrix`: the register that a lane gets of a matrix whose rows are given: elements `2·(lane mod 4)` and the next of row `lane / 4`, or
/// of its transpose.
pub fn matrix_register(rows: &[[u16; 8]], lane: usize, trans: bool) -> u32 {
    let (r, c) = (lane / 4, lane % 4 * 2);
    let (low, high) = if trans { (rows[c][r], rows[c + 1][r]) } else { (rows[r][c], rows[r][c + 1]) };
    u32::from(low) | u32::from(high) << 16
}
