//! Random attentions, and what the oracle of `Op::Attention` says of them.

use rlx_ir::DType;
use rlx_ir::ops::{MaskKind, Op, Unseen};
use rlx_ir::oracle::evaluate_op;
use rlx_ir::tensor::{Elements, Value};
use rlx_ir::testing::{AttentionShape, Gen, difference, tolerance};
use rlx_kernel::interp::{Binding, Counters, Pools};
use rlx_tile::schedule::{
    Attention, AttentionSizes, AttentionTiling, List, Mask, Pages, Strides, attention,
    attention_group_tilings, attention_tilings,
};
use rlx_tile::{Arch, Program, interp};

use super::{decode, encode};

/// Architectures whose lanes make operands of sums.
pub const ARCHS: [Arch; 5] = [Arch::Sm75, Arch::Sm80, Arch::Gfx90a, Arch::Gfx1100, Arch::Gfx1200];

/// An attention, its inputs as the operation has them and as memory.
pub struct AttentionCase {
    pub arch: Arch,
    pub tiling: AttentionTiling,
    pub what: Attention,
    pub sizes: AttentionSizes,
    shape: AttentionShape,
    op: Op,
    inputs: Vec<Value>,
    /// Keys and values in pages.
    tables: [Option<Paged>; 2],
    /// Dimensions of the result.
    result: Vec<usize>,
}

/// Pages of a table, and the numbers of those that are read.
struct Paged {
    table: Vec<f64>,
    list: Vec<i64>,
    dtype: DType,
}

/// Guard elements around the result, which nothing may change.
const CANARY: f64 = -77.0;

fn dims(rank: usize, batch: usize, heads: usize, seq: usize, size: usize) -> Vec<usize> {
    if rank == 3 { vec![batch, seq, heads * size] } else { vec![batch, heads, seq, size] }
}

/// Where elements are: `shared` heads follow each other as one of the batch's dimensions, of which each is `groups` or, with 0, one for all of these.
fn strides(dims: &[usize], size: usize, groups: usize, base: usize) -> Strides {
    let (item, row, head) = match *dims {
        [_, seq, all] => (seq * all, all, size),
        [_, heads, seq, size] => (heads * seq * size, size, seq * size),
        _ => panic!("{dims:?}"),
    };
    let shared = if groups == 0 { (head, 0) } else { (head * groups, head) };
    let batch = [item, shared.0, shared.1].map(|s| s as i32).to_vec();
    Strides { base: base as i32, row: row as i32, col: 1, batch }
}

impl AttentionCase {
    pub fn random(g: &mut Gen, arch: Arch) -> AttentionCase {
        AttentionCase::of_lengths(g, arch, |g| {
            let queries = if g.chance(0.2) { g.size(1..=80) } else { g.size(1..=20) };
            (queries, if g.chance(0.3) { g.size(1..=140) } else { g.size(1..=40) })
        })
    }

    /// A random attention of so many queries and keys.
    pub fn of_lengths(
        g: &mut Gen,
        arch: Arch,
        lengths: impl Fn(&mut Gen) -> (usize, usize),
    ) -> AttentionCase {
        let dtype = if arch == Arch::Sm75 { DType::F16 } else { g.pick(&[DType::F16, DType::BF16]) };
        let head = |g: &mut Gen| match g.int(0..=9) {
            0 => g.pick(&[64, 80, 96, 128, 144, 256]),
            1..=5 => 8 * g.size(1..=6),
            _ => g.size(1..=40),
        };
        let head_dim = head(g);
        let value_dim = if g.chance(0.6) { head_dim } else { head(g) };
        let (batch, kv_heads, groups) = (g.size(1..=2), g.size(1..=2), g.size(1..=3));
        let (queries, keys) = lengths(g);
        let shape = AttentionShape { batch, kv_heads, groups, queries, keys, head_dim, value_dim };
        let all = attention_tilings(arch, head_dim.max(value_dim) as u32);
        let tiling = if g.chance(0.3) { g.pick(&all) } else { all[all.len() - 1] };
        let mask = g.variant();
        AttentionCase::of(g, arch, (dtype, tiling), shape, mask)
    }

    /// A random attention of the group level, by a random one of its tilings.
    pub fn random_of_groups(g: &mut Gen) -> AttentionCase {
        // A large tile takes the interpreter long.
        let head = |g: &mut Gen| if g.chance(0.7) { 64 } else { g.pick(&[128, 128, 192, 256]) };
        let head_dim = head(g);
        let value_dim = if g.chance(0.6) { head_dim } else { head(g) };
        let all = attention_group_tilings(head_dim.max(value_dim) as u32);
        let mut tiling = if g.chance(0.3) { g.pick(&all) } else { all[all.len() - 1] };
        tiling.stages = g.int(2..=i64::from(tiling.stages)) as u32;
        let (batch, kv_heads) = (g.size(1..=2), g.size(1..=2));
        let groups = if g.chance(0.6) { 1 } else { g.pick(&[2, 4, 8]) };
        let queries = if g.chance(0.3) { g.size(1..=tiling.queries as usize + 9) } else { g.size(1..=40) };
        let queries = queries.div_ceil(groups);
        let keys = if g.chance(0.4) { g.size(1..=300) } else { g.size(1..=70) };
        let shape = AttentionShape { batch, kv_heads, groups, queries, keys, head_dim, value_dim };
        let (dtype, mask) = (g.pick(&[DType::F16, DType::BF16]), g.variant());
        AttentionCase::of(g, Arch::Sm90a, (dtype, tiling), shape, mask).in_chunks(g)
    }

    /// The same with queries, keys and values that are accessed 16 bytes at once.
    pub fn in_chunks(mut self, g: &mut Gen) -> AttentionCase {
        for i in 0..3 {
            (self.what.vectors[i], self.sizes.operands[i].base) = (8, 8 * g.int(0..=2) as i32);
        }
        self
    }

    /// The same by the program of sm_80.
    pub fn of_warps(&self) -> Program {
        let tiling =
            *attention_tilings(Arch::Sm80, self.what.head_dim.max(self.what.value_dim)).last().unwrap();
        attention(Arch::Sm80, &self.what, &tiling).unwrap_or_else(|e| panic!("{e}\n{}", self.describe()))
    }

    /// A random attention of windows.
    pub fn windowed(g: &mut Gen, arch: Arch, lengths: impl Fn(&mut Gen) -> (usize, usize)) -> AttentionCase {
        let mut case = AttentionCase::of_lengths(g, arch, lengths);
        let most = if g.chance(0.5) { case.sizes.keys as usize + 2 } else { 20 };
        let shape = case.shape;
        let (of, window) = ((case.what.dtype, case.tiling), g.size(1..=most));
        case = AttentionCase::of(g, arch, of, shape, MaskKind::Causal);
        case.see(window);
        case
    }

    /// Of causal attention, a query sees the last so many keys.
    pub fn see(&mut self, keys: usize) {
        let Op::Attention { mask: MaskKind::Causal, window, .. } = &mut self.op else {
            panic!("{:?}", self.op);
        };
        *window = Some(keys);
        self.what.mask = Mask::Window(keys as u32);
    }

    /// An attention of a shape with random operands and layouts.
    pub fn of(
        g: &mut Gen,
        arch: Arch,
        (dtype, tiling): (DType, AttentionTiling),
        s: AttentionShape,
        kind: MaskKind,
    ) -> AttentionCase {
        let heads = s.kv_heads * s.groups;
        let rank = |g: &mut Gen| if g.chance(0.5) { 3 } else { 4 };
        let shapes = [
            (heads, s.queries, s.head_dim),
            (s.kv_heads, s.keys, s.head_dim),
            (s.kv_heads, s.keys, s.value_dim),
        ]
        .map(|(h, seq, size)| dims(rank(g), s.batch, h, seq, size));
        let range = if g.chance(0.2) { -6.0..6.0 } else { -1.0..1.0 };
        let mut inputs: Vec<Value> = shapes.iter().map(|d| g.value(dtype, d, range.clone())).collect();
        let result = dims(shapes[0].len(), s.batch, heads, s.queries, s.value_dim);
        let (mut mask, mut of_mask) = (Mask::None, Strides::default());
        match kind {
            MaskKind::Causal => mask = Mask::Causal,
            MaskKind::Custom => {
                let given = random_mask(g, dtype, [s.batch, heads, s.queries, s.keys]);
                mask = Mask::Given(given.dtype);
                of_mask = mask_strides(&given.dims, s.groups);
                inputs.push(given);
            }
            _ => {}
        }
        let vector = |g: &mut Gen, size: usize| {
            let most = [8, 4, 2, 1].into_iter().find(|v| size.is_multiple_of(*v)).unwrap_or(1);
            [8, 4, 2, 1].into_iter().find(|&v| v <= most && (v == 1 || g.chance(0.7))).unwrap_or(1)
        };
        let vectors = [s.head_dim, s.head_dim, s.value_dim, s.value_dim].map(|size| vector(g, size));
        let scale = g.chance(0.3).then_some(0.25);
        let unseen: Unseen = g.variant();
        let what = Attention {
            dtype,
            head_dim: s.head_dim as u32,
            value_dim: s.value_dim as u32,
            groups: s.groups as u32,
            vectors: vectors.map(|v| v as u32),
            scale: scale.unwrap_or(1.0 / (s.head_dim as f32).sqrt()),
            mask,
            unseen,
            pages: [None; 2],
            parts: false,
        };
        let mut base = |i: usize| g.size(0..=2) * vectors[i];
        let operands = [
            strides(&shapes[0], s.head_dim, s.groups, base(0)),
            strides(&shapes[1], s.head_dim, 0, base(1)),
            strides(&shapes[2], s.value_dim, 0, base(2)),
            strides(&result, s.value_dim, s.groups, base(3)),
        ];
        let sizes = AttentionSizes {
            queries: s.queries as i32,
            keys: s.keys as i32,
            batch: [s.batch, s.kv_heads].map(|n| n as i32),
            operands,
            mask: of_mask,
            ..AttentionSizes::default()
        };
        let (num_heads, head_dim) = (heads, s.head_dim);
        let op = Op::Attention { num_heads, head_dim, mask: kind, window: None, scale, unseen };
        AttentionCase { arch, tiling, what, sizes, shape: s, op, inputs, tables: [None, None], result }
    }

    /// The same with its keys, its values or both in pages: those of an item are anywhere in a table, among others whose elements are NaN.
    pub fn in_pages(mut self, g: &mut Gen) -> AttentionCase {
        let first = g.size(0..=1);
        let both = g.chance(0.7);
        for i in [first, 1 - first].into_iter().take(1 + usize::from(both)) {
            let s = self.shape;
            let size = [s.head_dim, s.value_dim][i];
            let width = s.kv_heads * size;
            // Of any number of rows, or all of an item's.
            let rows = g.chance(0.8).then(|| g.pick(&[1, 2, 3, 5, 8, 16, 16, 20, 64]));
            let own = &mut self.sizes.operands[i + 1];
            let (page, pages) = match rows {
                Some(rows) => (rows * width, s.keys.div_ceil(rows)),
                None => (s.keys * width, 1),
            };
            let count = s.batch * pages + g.size(0..=3);
            let mut places: Vec<usize> = (0..count).collect();
            g.shuffle(&mut places);
            let values = self.inputs[i + 1].to_f64();
            let from = own.clone();
            if rows.is_some() {
                (own.row, own.batch) = (width as i32, vec![0, size as i32, 0]);
            } else {
                own.batch[0] = 0;
            }
            let mut table = vec![f64::NAN; count * page];
            let indices = (0..s.batch).flat_map(|item| (0..s.kv_heads).map(move |head| (item, head)));
            for ((item, head), row) in indices.flat_map(|at| (0..s.keys).map(move |row| (at, row))) {
                let start =
                    item * from.batch[0] as usize + head * from.batch[1] as usize + row * from.row as usize;
                let (number, line) = rows.map_or((0, row), |rows| (row / rows, row % rows));
                let to = places[item * pages + number] * page
                    + head * own.batch[1] as usize
                    + line * own.row as usize;
                table[to..to + size].copy_from_slice(&values[start..start + size]);
            }
            let dtype = g.pick(&[DType::I32, DType::I64]);
            let before = g.size(0..=2);
            let mut list: Vec<i64> = vec![1 << 20; before];
            for &place in &places[..s.batch * pages] {
                list.push(if g.chance(0.3) { place as i64 - count as i64 } else { place as i64 });
            }
            let of_list = List {
                base: before as i32,
                first: 0,
                pages: count as i32,
                batch: vec![pages as i32, 0],
                page: page as i32,
            };
            self.sizes.lists.insert(if i == 0 { 0 } else { self.sizes.lists.len() }, of_list);
            self.what.pages[i] = Some(Pages { rows: rows.map(|rows| rows as u32), list: dtype });
            self.tables[i] = Some(Paged { table, list, dtype });
        }
        self
    }

    /// A number of the first list becomes one that the table does not have: what it is of reads as 0.
    pub fn with_a_missing_page(mut self, number: i64) -> AttentionCase {
        let (Some(paged), Some(list)) = (self.tables.iter_mut().flatten().next(), self.sizes.lists.first())
        else {
            panic!("no list")
        };
        paged.list[list.base as usize] = number;
        self
    }

    pub fn program(&self) -> Program {
        attention(self.arch, &self.what, &self.tiling).unwrap_or_else(|e| panic!("{e}\n{}", self.describe()))
    }

    pub fn describe(&self) -> String {
        let (arch, tiling) = (self.arch.name(), self.tiling.name());
        format!("{arch} {tiling} {:?} {:?} {:?}", self.op, self.what, self.sizes)
    }

    pub fn uniforms(&self) -> Vec<i32> {
        self.what.uniform_values(&self.sizes)
    }

    /// The operands as memory, a pool for each buffer.
    pub fn memory(&self) -> (Pools, Vec<Binding>) {
        let padded = |values: Vec<f64>, dtype: DType, base: i32, with: f64| -> Vec<u8> {
            let guard = std::iter::repeat_n(with, base as usize);
            guard.clone().chain(values).chain(guard).flat_map(|x| encode(dtype, x)).collect()
        };
        let floats = |v: &Value| match &v.elements {
            Elements::Float(x) => x.clone(),
            Elements::Int(x) => x.iter().map(|&x| x as f64).collect(),
        };
        let in_place = [None].into_iter().chain(self.tables.iter().map(Option::as_ref));
        let operands = self.inputs.iter().zip(&self.sizes.operands).zip(in_place);
        let mut pools: Vec<Vec<u8>> = operands
            .map(|((v, s), paged)| {
                let values = paged.map_or_else(|| floats(v), |paged| paged.table.clone());
                padded(values, v.dtype, s.base, f64::NAN)
            })
            .collect();
        let result = vec![CANARY; self.result.iter().product()];
        pools.push(padded(result, self.what.dtype, self.sizes.operands[3].base, CANARY));
        pools.extend(self.inputs.get(3).map(|mask| match mask.dtype {
            DType::Bool => floats(mask).iter().map(|&x| u8::from(x != 0.0)).collect(),
            dtype => padded(floats(mask), dtype, 0, 0.0),
        }));
        let number = |n: &i64, dtype: DType| n.to_le_bytes()[..dtype.size_bytes()].to_vec();
        let lists = self.tables.iter().flatten();
        pools.extend(lists.map(|of| of.list.iter().flat_map(|n| number(n, of.dtype)).collect::<Vec<u8>>()));
        let bindings =
            pools.iter().enumerate().map(|(pool, p)| Binding { pool, offset: 0, len: p.len() }).collect();
        (Pools(pools), bindings)
    }

    /// What the interpreter makes of the memory.
    pub fn interpret(&self, program: &Program) -> rlx_ir::Result<(Pools, Counters)> {
        let (mut pools, bindings) = self.memory();
        let counters = interp::run(program, &self.uniforms(), &mut pools, &bindings)?;
        Ok((pools, counters))
    }

    /// Panics where [`AttentionCase::wrong`] finds something.
    pub fn check(&self, result: &[u8]) {
        if let Some(wrong) = self.wrong(result) {
            panic!("{wrong}\n{}", self.describe());
        }
    }

    /// Where the result is further from the oracle's than its type allows, or what was written beside it.
    pub fn wrong(&self, result: &[u8]) -> Option<String> {
        let dtype = self.what.dtype;
        let all: Vec<f64> = result.chunks(dtype.size_bytes()).map(|bytes| decode(dtype, bytes)).collect();
        let base = self.sizes.operands[3].base as usize;
        let n = self.result.iter().product::<usize>();
        let mut guards = all[..base].iter().chain(&all[base + n..]);
        if guards.any(|&x| x != CANARY) {
            return Some("written beside the result".to_owned());
        }
        let got = Value::float(dtype, &self.result, all[base..base + n].to_vec());
        let inputs: Vec<&Value> = self.inputs.iter().collect();
        let want = evaluate_op(&self.op, &inputs, &[]).unwrap().swap_remove(0);
        difference(&want, &got, tolerance(dtype))
    }
}

/// A mask that broadcasts onto the scores; some keys are forbidden, now and then all of a query's.
fn random_mask(g: &mut Gen, dtype: DType, full: [usize; 4]) -> Value {
    let mut dims: Vec<usize> = full.iter().map(|&d| if g.chance(0.3) { 1 } else { d }).collect();
    let drop = g.size(0..=2);
    dims.drain(..drop);
    let of = if g.chance(0.5) { DType::Bool } else { dtype };
    let mut values = g.value(of, &dims, -2.0..2.0);
    let forbidden = g.pick(&[0.0, 0.3, 0.95]);
    // −∞, or the least number of the type, which is no mask where it is everywhere.
    let least = if dtype == DType::F16 { -65504.0 } else { -f64::from(half::bf16::MAX) };
    let never = if g.chance(0.7) { f64::NEG_INFINITY } else { least };
    if let Elements::Float(v) = &mut values.elements {
        v.iter_mut().filter(|_| g.chance(forbidden)).for_each(|x| *x = never);
    }
    values
}

/// Where the mask's elements are for each score; where it has one for all, they are repeated.
fn mask_strides(dims: &[usize], groups: usize) -> Strides {
    let mut strides = [0i32; 4];
    let mut total = 1;
    for (i, &n) in dims.iter().enumerate().rev() {
        if n > 1 {
            strides[i + 4 - dims.len()] = total;
        }
        total *= n as i32;
    }
    let [item, head, row, col] = strides;
    Strides { base: 0, row, col, batch: vec![item, head * groups as i32, head] }
}
