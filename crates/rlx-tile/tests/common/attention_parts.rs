//! Attentions whose keys are divided: a program for parts, and the kernel that joins them.

use rlx_ir::Result;
use rlx_kernel::interp::{Binding, Counters, Pools, dispatch};
use rlx_tile::schedule::{
    Attention, AttentionSizes, JOIN_WORKGROUP, List, Strides, attention, attention_join,
};
use rlx_tile::{Program, interp};

use super::attention::AttentionCase;

/// An attention in parts of so many keys.
pub struct Divided<'c> {
    case: &'c AttentionCase,
    what: Attention,
    pub sizes: AttentionSizes,
    /// Elements of the sums, and of their states behind them.
    scratch: [usize; 2],
}

impl Divided<'_> {
    pub fn new(case: &AttentionCase, each: i32) -> Divided<'_> {
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
        // Of rows that are looked up, numbers say which.
        let step = |i: usize, row: i32| if case.what.pages[i].is_some() { 0 } else { each * row };
        let lists = case.sizes.lists.iter().map(|list| {
            let batch = std::iter::once(0).chain(list.batch.iter().copied()).collect();
            List { batch, ..list.clone() }
        });
        let mut what = Attention { parts: true, ..case.what.clone() };
        what.vectors[3] = [4, 2].into_iter().find(|v| values % v == 0).unwrap_or(1) as u32;
        let sizes = AttentionSizes {
            operands: [
                along(queries, 0),
                along(keys, step(0, keys.row)),
                along(of_values, step(1, of_values.row)),
                dense(0, values),
            ],
            mask: along(&case.sizes.mask, 0),
            lists: lists.collect(),
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

    pub fn program(&self) -> Program {
        attention(self.case.arch, &self.what, &self.case.tiling)
            .unwrap_or_else(|e| panic!("{e}\n{}", self.case.describe()))
    }

    pub fn describe(&self) -> String {
        format!("parts of {:?}: {}", self.sizes.parts, self.case.describe())
    }

    pub fn uniforms(&self) -> Vec<i32> {
        self.what.uniform_values(&self.sizes)
    }

    /// The operands as memory, a pool for each buffer, the sums in place of the result.
    pub fn memory(&self) -> (Pools, Vec<Binding>) {
        let (mut pools, mut bindings) = self.case.memory();
        // What nobody wrote is NaN.
        let len = 4 * self.scratch.iter().sum::<usize>();
        pools.0[3] = vec![0xFF; len];
        bindings[3].len = len;
        (pools, bindings)
    }

    /// What the interpreter makes of the memory.
    pub fn sums(&self, program: &Program) -> Result<(Pools, Counters)> {
        let (mut pools, bindings) = self.memory();
        let counters = interp::run(program, &self.uniforms(), &mut pools, &bindings)?;
        Ok((pools, counters))
    }

    /// The memory of the result, and bank conflicts of the program.
    pub fn interpret(&self) -> Result<(Vec<u8>, u64)> {
        let program = self.program();
        rlx_tile::render::source(&program, "k")?;
        let (mut sums, counters) = self.sums(&program)?;
        let mut result = self.case.memory().0;
        let mut pools = Pools(vec![sums.0.swap_remove(3), result.0.swap_remove(3)]);
        let [scratch, result] = [0, 1].map(|pool| Binding { pool, offset: 0, len: pools.0[pool].len() });

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
        Ok((pools.0.swap_remove(1), counters.conflicts))
    }
}
