//! Matmuls of the group level: a [`Case`] whose operands are packed.
#![allow(dead_code)]

use super::{Case, encode};
use rlx_ir::DType;
use rlx_ir::testing::Gen;
use rlx_kernel::interp::{Binding, Counters, Pools};
use rlx_tile::schedule::{Matmul, Operand, Sizes, Strides, Tiling, group_tilings, matmul_groups, packings};
use rlx_tile::{Arch, Program, interp};

/// A matmul, and how the group level divides it.
pub struct GroupCase {
    /// The same for sm_80, with operands in rows.
    pub case: Case,
    pub tiling: Tiling,
}

impl GroupCase {
    pub fn of(g: &mut Gen, what: Matmul, tiling: Tiling, sizes: (i32, i32, i32), batch: Vec<i32>) -> Self {
        let rows = *rlx_tile::schedule::tilings(Arch::Sm80).last().unwrap();
        let mut case = Case::of(g, Arch::Sm80, rows, what, sizes, batch);
        (case.what.left_map, case.what.right_map) = (None, None);
        case.prologues = [super::Map::None; 2];
        GroupCase { case, tiling }
    }

    /// A plain matmul by a small tiling: two tiles and an edge in each direction, five steps through three stages.
    pub fn small(dtype: DType) -> Self {
        let mut what = Matmul::new(dtype);
        what.result.vector = 1;
        let tiling = Tiling { tile: (64, 16, 32), warps: (4, 1), stages: 3, bands: 2 };
        let mut group = GroupCase::of(&mut Gen::new(7), what, tiling, (70, 24, 150), Vec::new());
        let case = &mut group.case;
        (case.what.epilogue, case.epilogue) = (None, super::Map::None);
        // The bodies' buffers are gone, too.
        case.what.buffers.clear();
        case.values.truncate(3);
        group
    }

    /// A random matmul on a random tiling.
    pub fn random(g: &mut Gen) -> Self {
        let all = group_tilings();
        // Small ones more often: a large one takes the interpreter long.
        let mut tiling = all[all.len() - 1 - (g.int(0..=5) * g.int(0..=5) / 5) as usize];
        tiling.bands = g.int(1..=3) as u32;
        tiling.stages = g.int(1..=i64::from(tiling.stages)) as u32;
        let compute = g.pick(&[DType::F16, DType::BF16]);
        let mut what = Matmul::new(compute);
        let vector = |g: &mut Gen| g.pick(&[1, 2, 4]);
        (what.left.vector, what.right.vector) = (1, 1);
        what.result = Operand { dtype: g.pick(&[compute, DType::F32]), transposed: false, vector: vector(g) };
        what.batch = g.int(0..=2) as usize;
        let size = |g: &mut Gen, most: u32| g.int(1..=i64::from(most)) as i32;
        let (tm, tn, tk) = tiling.tile;
        let m = size(g, tm + 9);
        let n = super::up(size(g, tn + 9), what.result.vector as i32);
        let k = size(g, 5 * tk);
        let batch = (0..what.batch).map(|_| g.int(1..=2) as i32).collect();
        GroupCase::of(g, what, tiling, (m, n, k), batch)
    }

    pub fn program(&self) -> Program {
        let mut what = self.case.what.clone();
        (what.left.vector, what.right.vector) = (8, 8);
        matmul_groups(&what, &self.tiling).unwrap_or_else(|e| panic!("{e}\n{}", self.describe()))
    }

    pub fn describe(&self) -> String {
        format!("{} of {}", self.tiling.name(), self.case.describe())
    }

    /// Batches of an operand that are stored, and the strides from one to the next in elements of `each`.
    fn packed_strides(&self, s: &Strides, each: usize) -> (Strides, usize) {
        let (mut stored, mut batch) = (each, Vec::new());
        for (&size, &stride) in self.case.sizes.batch.iter().zip(&s.batch).rev() {
            batch.push(if stride == 0 { 0 } else { stored as i32 });
            stored *= if stride == 0 { 1 } else { size as usize };
        }
        batch.reverse();
        // Some space before, as a buffer of several operands has.
        (Strides { base: 8, batch, ..Strides::default() }, stored + 8)
    }

    /// An operand as it is packed, and its strides. What fills it up is 0; what is before it is not a number.
    fn packed(&self, which: usize) -> (Vec<u8>, Strides) {
        let (case, packing) = (&self.case, packings(&self.tiling)[which]);
        let sizes = &case.sizes;
        let (rows, depth) = (if which == 0 { sizes.m } else { sizes.n } as usize, sizes.k as usize);
        let from = if which == 0 { &sizes.left } else { &sizes.right };
        let (to, elements) = self.packed_strides(from, packing.elements(rows, depth));
        let mut values = vec![0.0; elements];
        values[..8].fill(f64::NAN);
        case.each_batch(|_, b| {
            for r in 0..rows {
                for k in 0..depth {
                    let (row, col) = if which == 0 { (r, k) } else { (k, r) };
                    let at = super::place(&to, b, 0, 0) + packing.element(r, k, depth);
                    values[at] = case.values[which][super::place(from, b, row as i32, col as i32)];
                }
            }
        });
        (values.iter().flat_map(|&x| encode(case.what.compute, x)).collect(), to)
    }

    /// The operands as memory, a pool for each buffer.
    pub fn memory(&self) -> (Pools, Vec<Binding>) {
        let (mut pools, mut bindings) = self.case.memory();
        for (which, binding) in bindings.iter_mut().enumerate().take(2) {
            pools.0[which] = self.packed(which).0;
            binding.len = pools.0[which].len();
        }
        (pools, bindings)
    }

    pub fn uniforms(&self) -> Vec<i32> {
        let sizes = &self.case.sizes;
        let k = packings(&self.tiling)[0].depth(sizes.k as usize) as i32;
        let (left, right) = (self.packed(0).1, self.packed(1).1);
        self.case.what.uniform_values(&Sizes { k, left, right, ..sizes.clone() })
    }

    /// What the interpreter makes of the result's buffer.
    pub fn interpret(&self, program: &Program) -> rlx_ir::Result<(Pools, Counters)> {
        let (mut pools, bindings) = self.memory();
        let counters = interp::run(program, &self.uniforms(), &mut pools, &bindings)?;
        Ok((pools, counters))
    }
}
