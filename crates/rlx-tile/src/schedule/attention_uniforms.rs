//! What a program of an attention is given: buffers, uniforms with the sizes of a dispatch, and how its views read both.

use rlx_ir::DType;
use rlx_kernel::ir::{Access, Buffer, BufferDecl};

use super::attention::{Attention, AttentionSizes, BATCH, KEYS, Mask, ROWS, SIZES};
use super::matmul::Strides;
use crate::ir::{Heads, Size, ViewDecl};

impl Attention {
    /// Dimensions of the grid's batch.
    pub(super) fn dims(&self) -> u32 {
        BATCH as u32 + u32::from(self.parts)
    }

    /// The program's buffers: queries, keys, values, result, and the mask if it is given.
    pub fn all_buffers(&self) -> Vec<BufferDecl> {
        let of = |name: &str, dtype, access| BufferDecl { name: name.to_owned(), dtype, access };
        let mut all: Vec<BufferDecl> =
            ["queries", "keys", "values"].map(|name| of(name, self.dtype, Access::Read)).to_vec();
        all.push(match self.parts {
            true => of("sums", DType::F32, Access::Write),
            false => of("result", self.dtype, Access::Write),
        });
        if let Mask::Given(dtype) = self.mask {
            all.push(of("mask", dtype, Access::Read));
        }
        all.extend(
            self.lists().map(|(i, pages, _)| of(["key_list", "value_list"][i], pages.list, Access::Read)),
        );
        all
    }

    /// The names of the program's uniforms. `rows` are the queries of all heads that share keys, `shift` is `keys - queries`.
    pub fn all_uniforms(&self) -> Vec<String> {
        let mut all = ["rows", "keys", "shift"].map(String::from).to_vec();
        let part = self.parts.then(|| "part".to_owned());
        let batch: Vec<String> = part
            .iter()
            .map(|part| format!("{part}s"))
            .chain((0..BATCH).map(|i| format!("batch{i}")))
            .collect();
        all.extend(batch.iter().cloned());
        all.extend(part);
        let state = self.parts.then(|| "state".to_owned());
        let first_list = self.all_buffers().len() - self.lists().count();
        for (i, name) in self.all_buffers().into_iter().map(|buffer| buffer.name).chain(state).enumerate() {
            // A list has as many numbers as an operand.
            let list = (first_list..first_list + self.lists().count()).contains(&i);
            let (first, last) = match list {
                true => (["base", "first", "pages"], "page"),
                false => (["base", "row", "col"], "head"),
            };
            all.extend(first.map(|what| format!("{name}.{what}")));
            all.extend(batch.iter().map(|dim| format!("{name}.{dim}")));
            all.push(format!("{name}.{last}"));
        }
        all
    }

    /// The values of the uniforms.
    pub fn uniform_values(&self, sizes: &AttentionSizes) -> Vec<i32> {
        let rows = sizes.queries.wrapping_mul(self.groups as i32);
        let mut all = vec![rows, sizes.keys, sizes.keys.wrapping_sub(sizes.queries)];
        let [count, each] = sizes.parts;
        all.extend(self.parts.then_some(count));
        all.extend(sizes.batch);
        all.extend(self.parts.then_some(each));
        let mask = matches!(self.mask, Mask::Given(_)).then_some(&sizes.mask);
        let state = self.parts.then_some(&sizes.state);
        let strided = |all: &mut Vec<i32>, strides: &Strides| {
            all.extend([strides.base, strides.row, strides.col]);
            all.extend(&strides.batch);
        };
        sizes.operands.iter().chain(mask).for_each(|strides| strided(&mut all, strides));
        for list in &sizes.lists {
            all.extend([list.base, list.first, list.pages]);
            all.extend(&list.batch);
            all.push(list.page);
        }
        state.into_iter().for_each(|strides| strided(&mut all, strides));
        all
    }

    /// The uniform that says how many keys are a part, if they are divided.
    pub(super) fn part_uniform(&self) -> u32 {
        SIZES + self.dims()
    }

    /// The uniform that says how many heads of keys there are.
    pub(super) fn heads_uniform(&self) -> u32 {
        SIZES + self.dims() - 1
    }

    /// The first uniform of a buffer, or of the state.
    pub(super) fn first_uniform(&self, buffer: u32) -> u32 {
        self.part_uniform() + u32::from(self.parts) + buffer * (4 + self.dims())
    }

    /// How many keys a workgroup goes through.
    pub(super) fn keys(&self) -> Size {
        match self.parts {
            true => Size::Part { whole: KEYS, each: self.part_uniform() },
            false => Size::Uniform(KEYS),
        }
    }

    /// The greatest score and the sum of weights of each row of a part: behind the sums, or other numbers, of the same buffer.
    pub(super) fn state(&self) -> ViewDecl {
        let first = self.first_uniform(self.all_buffers().len() as u32);
        let row = ViewDecl { base: Size::Uniform(first), cols: Size::Const(2), ..self.view(3, ROWS, 2) };
        let strides = |i: u32| Size::Uniform(first + i);
        let batch = (3..).take(self.dims() as usize).map(strides).collect();
        ViewDecl { row_stride: strides(1), col_stride: strides(2), batch, vector: 1, ..row }
    }

    pub(super) fn view(&self, number: u32, rows: u32, cols: u32) -> ViewDecl {
        let first = self.first_uniform(number);
        let (vector, dims) = (self.vectors[number as usize], self.dims());
        // Scratch memory has no heads beside or above each other.
        let heads = rows == ROWS && self.groups > 1 && !(self.parts && number == 3);
        ViewDecl {
            buffer: Buffer(number),
            base: Size::Uniform(first),
            rows: if rows == KEYS { self.keys() } else { Size::Uniform(rows) },
            cols: Size::Const(cols),
            row_stride: Size::Uniform(first + 1),
            col_stride: if vector > 1 { Size::Const(1) } else { Size::Uniform(first + 2) },
            heads: heads.then_some(Heads { count: self.groups, stride: Size::Uniform(first + 3 + dims) }),
            window: None,
            lookup: self.lookup(number),
            batch: (first + 3..).take(dims as usize).map(Size::Uniform).collect(),
            vector,
        }
    }
}
