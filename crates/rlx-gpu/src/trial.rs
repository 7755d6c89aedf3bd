//! Products by which a device's matrix units are tried before they are used: where what writes a program's machine code is new, or experimental.

use std::sync::Arc;

use rlx_ir::{DType, Result};
use rlx_kernel::render::uniform_bytes;
use rlx_tile::schedule::{Matmul, Operand, Sizes, Strides, Tiling, matmul, tilings};
use rlx_tile::{Arch, Program, interp};

/// A product whose result every order of sums gives exactly.
#[derive(Debug, Clone)]
pub struct Trial {
    arch: Arch,
    tiling: Tiling,
    /// Both operands are stored the other way, and the result is f16 instead of f32.
    transposed: bool,
}

/// Rows, columns and depth of a trial: several workgroups, and edges.
const SIZE: (i32, i32, i32) = (72, 136, 88);

impl Trial {
    /// One for each tiling of an architecture that multiplies f16.
    pub fn all(arch: Arch) -> Vec<Trial> {
        let of = |(i, tiling): (usize, Tiling)| Trial { arch, tiling, transposed: i % 2 == 1 };
        tilings(arch).into_iter().enumerate().map(of).collect()
    }

    /// Its program, whose buffers are those of [`Trial::operands`] and the result.
    ///
    /// # Errors
    /// An architecture without f16.
    pub fn program(&self) -> Result<Arc<Program>> {
        matmul(self.arch, &self.matmul(), &self.tiling).map(Arc::new)
    }

    /// The bytes of the uniforms.
    pub fn uniforms(&self) -> Vec<u8> {
        uniform_bytes(&self.numbers(), 0)
    }

    /// How many workgroups do it.
    pub fn workgroups(&self, program: &Program) -> u64 {
        interp::workgroups(program, &self.numbers())
    }

    /// The bytes of the left and the right operand.
    pub fn operands(&self) -> [Vec<u8>; 2] {
        let (m, n, k) = SIZE;
        [
            Trial::operand((m, k), self.transposed, Trial::left),
            Trial::operand((k, n), self.transposed, Trial::right),
        ]
    }

    fn matmul(&self) -> Matmul {
        let mut what = Matmul::new(DType::F16);
        let (dtype, vector) = if self.transposed { (DType::F16, 8) } else { (DType::F32, 4) };
        what.result = Operand { dtype, transposed: false, vector };
        (what.left.transposed, what.right.transposed) = (self.transposed, self.transposed);
        what
    }

    fn numbers(&self) -> Vec<i32> {
        let (what, (m, n, k)) = (self.matmul(), SIZE);
        let rows = |row: i32| Strides { base: 0, row, col: 1, batch: Vec::new() };
        let (left, right) = if self.transposed { (m, k) } else { (k, n) };
        let (left, right, result) = (rows(left), rows(right), rows(n));
        what.uniform_values(&Sizes { m, n, k, left, right, result, ..Sizes::default() })
    }

    /// Elements of the operands: small integers.
    fn left(row: i32, k: i32) -> i32 {
        (row * 7 + k * 3) % 9 - 4
    }

    fn right(k: i32, col: i32) -> i32 {
        (k * 5 + col * 11) % 7 - 3
    }

    /// The bytes of a matrix as it is stored.
    fn operand((rows, cols): (i32, i32), transposed: bool, of: fn(i32, i32) -> i32) -> Vec<u8> {
        let (down, right) = if transposed { (cols, rows) } else { (rows, cols) };
        let at = |r: i32, c: i32| if transposed { of(c, r) } else { of(r, c) };
        let all = (0..down).flat_map(|r| (0..right).map(move |c| (r, c)));
        all.flat_map(|(r, c)| half_of_small(at(r, c)).to_le_bytes()).collect()
    }

    /// The bytes of the result, whatever the order of its sums.
    pub fn result(&self) -> Vec<u8> {
        let (m, n, k) = SIZE;
        let sum =
            |row: i32, col: i32| -> i32 { (0..k).map(|i| Trial::left(row, i) * Trial::right(i, col)).sum() };
        let all = (0..m).flat_map(|row| (0..n).map(move |col| (row, col)));
        let bytes = |x: i32| match self.transposed {
            true => half_of_small(x).to_le_bytes().to_vec(),
            false => (x as f32).to_le_bytes().to_vec(),
        };
        all.flat_map(|(row, col)| bytes(sum(row, col))).collect()
    }
}

/// The bits of half precision of an integer below 2048, which it has exactly.
fn half_of_small(x: i32) -> u16 {
    let sign = if x < 0 { 0x8000 } else { 0 };
    match x.unsigned_abs() {
        0 => 0,
        size => {
            let exponent = size.ilog2();
            sign | (exponent as u16 + 15) << 10 | ((size << (10 - exponent)) as u16 & 0x3ff)
        }
    }
}

#[cfg(test)]
mod tests {
    use rlx_kernel::interp::{Binding, Pools};

    use super::*;

    #[test]
    fn trials_are_exact_and_the_interpreter_computes_them() {
        for (x, bits) in [(0, 0), (1, 0x3c00), (-1, 0xbc00), (3, 0x4200), (-4, 0xc400), (1055, 0x641f)] {
            assert_eq!(half_of_small(x), bits, "{x}");
        }
        for arch in [Arch::Sm80, Arch::Apple7, Arch::Coop16] {
            for trial in Trial::all(arch) {
                let (program, want) = (trial.program().unwrap(), trial.result());
                let [left, right] = trial.operands();
                let mut pools = Pools(vec![left, right, vec![0xff; want.len()]]);
                let bindings: Vec<Binding> = (pools.0.iter().enumerate())
                    .map(|(pool, bytes)| Binding { pool, offset: 0, len: bytes.len() })
                    .collect();
                interp::run(&program, &trial.numbers(), &mut pools, &bindings).unwrap();
                assert!(pools.0[2] == want, "{}", program.name);
            }
        }
    }
}
