//! Attentions whose keys are divided among workgroups, of random shapes, masks and layouts on the interpreters, against the oracle of the operation.

mod common;

use common::attention::AttentionCase;
use rlx_ir::Result;
use rlx_ir::testing::Gen;
use rlx_kernel::interp::{Binding, dispatch};
use rlx_tile::schedule::{Attention, AttentionSizes, JOIN_WORKGROUP, Strides, attention, attention_join};
use rlx_tile::{Arch, interp};

/// Random attentions of each architecture; with `RLX_TEST_ALL` four times as many.
const CASES: u64 = 105;

/// An attention in parts of so many keys.
struct Divided<'c> {
    case: &'c AttentionCase,
    what: Attention,
    sizes: AttentionSizes,
    /// Elements of the sums, and of their states behind them.
    scratch: [usize; 2],
}

impl Divided<'_> {
    fn new(case: &AttentionCase, each: i32) -> Divided<'_> {
        let ([items, heads], groups) = (case.sizes.batch, case.what.groups as i32);
        let (rows, values) = (case.sizes.queries * groups, case.what.value_dim as i32);
        let (lines, count) = (items * heads * rows, (case.sizes.keys + each - 1) / each);
        let dense = |base: i32, size: i32| {
            let batch = vec![lines * size, heads * rows * size, rows * size, 0];
            Strides { base, row: size, col: 1, batch }
        };
        let along = |of: &Strides, stride: i32| {
            let batch = std::iter::once(stride).chain(of.batch.iter().copied()).collect();
            Strides { batch, ..of.clone() }
        };
        let [queries, keys, of_values, _] = &case.sizes.operands;
        let mut what = Attention { parts: true, ..case.what.clone() };
        what.vectors[3] = [4, 2].into_iter().find(|v| values % v == 0).unwrap_or(1) as u32;
        let sizes = AttentionSizes {
            operands: [
                along(queries, 0),
                along(keys, each * keys.row),
                along(of_values, each * of_values.row),
                dense(0, values),
            ],
            mask: along(&case.sizes.mask, 0),
            parts: [count, each],
            state: dense(count * lines * values, 2),
            ..case.sizes.clone()
        };
        Divided {
            case,
            what,
            sizes,
            scratch: [count * lines * values, count * lines * 2].map(|n| n as usize),
        }
    }

    /// The memory of the result, and bank conflicts of the program.
    fn interpret(&self) -> Result<(Vec<u8>, u64)> {
        let program = attention(self.case.arch, &self.what, &self.case.tiling)?;
        rlx_tile::render::source(&program, "k")?;
        let (mut pools, mut bindings) = self.case.memory();
        // What nobody wrote is NaN.
        let bytes = 4 * self.scratch.iter().sum::<usize>();
        let scratch = Binding { pool: pools.0.len(), offset: 0, len: bytes };
        pools.0.push(vec![0xFF; bytes]);
        let result = std::mem::replace(&mut bindings[3], scratch);
        let uniforms = self.what.uniform_values(&self.sizes);
        let counters = interp::run(&program, &uniforms, &mut pools, &bindings)?;

        let (sizes, strides) = (&self.sizes, &self.case.sizes.operands[3]);
        let ([items, heads], rows) = (sizes.batch, sizes.queries * self.what.groups as i32);
        let values = self.what.value_dim as i32;
        let mut uniforms = vec![
            sizes.parts[0],
            items,
            heads,
            rows,
            values,
            sizes.keys,
            self.scratch[0] as i32,
            strides.base,
        ];
        uniforms.extend([strides.batch[0], strides.batch[1], strides.row, strides.batch[2], strides.col]);
        let groups = i64::from((items * heads * rows * values) as u32 / JOIN_WORKGROUP + 1);
        let join = attention_join(&self.what)?;
        assert_eq!(dispatch(&join, groups, &uniforms, &[scratch, result], &mut pools)?, None);
        Ok((pools.0.swap_remove(3), counters.conflicts))
    }
}

fn random_attentions(arch: Arch) {
    let all = std::env::var_os("RLX_TEST_ALL").is_some();
    let mut several = 0;
    for seed in 0..if all { 4 * CASES } else { CASES } {
        let mut g = Gen::new(9000 + seed);
        let case = AttentionCase::of_lengths(&mut g, arch, |g| (g.size(1..=5), g.size(1..=170)));
        let divided = Divided::new(&case, case.tiling.keys as i32 * g.int(1..=2) as i32);
        several += u64::from(divided.sizes.parts[0] > 1);
        let (result, conflicts) =
            divided.interpret().unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", case.describe()));
        assert_eq!(conflicts, 0, "seed {seed}: bank conflicts\n{}", case.describe());
        case.check(&result);
    }
    assert!(several > CASES / 3, "{several} had several parts");
}

#[test]
fn random_divided_attentions_of_sm_75_are_right() {
    random_attentions(Arch::Sm75);
}

#[test]
fn random_divided_attentions_of_sm_80_are_right() {
    random_attentions(Arch::Sm80);
}

#[test]
fn random_divided_attentions_of_gfx90a_are_right() {
    random_attentions(Arch::Gfx90a);
}

#[test]
fn random_divided_attentions_of_gfx1100_are_right() {
    random_attentions(Arch::Gfx1100);
}

#[test]
fn random_divided_attentions_of_gfx1200_are_right() {
    random_attentions(Arch::Gfx1200);
}
