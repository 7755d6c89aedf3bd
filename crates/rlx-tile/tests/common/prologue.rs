//! Matmuls whose operands are computed as they are copied: from weights in blocks, or from several tensors.
#![allow(dead_code)]

use super::{Case, Map, encode, round};
use half::{bf16, f16};
use rlx_ir::DType;
use rlx_ir::testing::Gen;
use rlx_kernel::interp::{Binding, Counters, Pools};
use rlx_kernel::ir::Access;
use rlx_tile::beside::Span;
use rlx_tile::schedule::{Given, Matmul, Operand, Strides, matmul, tilings};
use rlx_tile::{Arch, Program, Scalar, interp};

/// What the first number beside an element does to it, the second, and so on.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Does {
    Subtracts,
    Multiplies,
}

impl Does {
    fn to(self, x: f32, y: f32) -> f32 {
        if self == Does::Subtracts { x - y } else { x * y }
    }
}

/// A matmul whose operands have bodies that are given numbers.
pub struct PrologueCase {
    /// Its operands' values are those that are multiplied.
    pub case: Case,
    /// What each number does, of the left operand's before the right one's.
    does: Vec<Does>,
    /// Elements of left, right and what bodies are given, as they are stored.
    stored: Vec<Vec<f64>>,
}

fn bytes(dtype: DType, values: &[f64]) -> Vec<u8> {
    let byte = |x: f64| x as i32 as u8;
    match dtype {
        DType::U4 | DType::I4 => {
            let pair = |p: &[f64]| byte(p[0]) & 15 | p.get(1).map_or(0, |&x| byte(x) << 4);
            values.chunks(2).map(pair).collect()
        }
        DType::U8 | DType::I8 => values.iter().map(|&x| byte(x)).collect(),
        _ => values.iter().flat_map(|&x| encode(dtype, x)).collect(),
    }
}

/// A float as an element of `dtype`, rounded once.
fn rounded(dtype: DType, x: f32) -> f64 {
    match dtype {
        DType::F16 => f16::from_f32(x).to_f64(),
        DType::BF16 => bf16::from_f32(x).to_f64(),
        _ => f64::from(x),
    }
}

fn values(g: &mut Gen, dtype: DType, n: usize) -> Vec<f64> {
    let integer = |g: &mut Gen, from: i64, to: i64| (0..n).map(|_| g.int(from..=to) as f64).collect();
    match dtype {
        DType::U4 => integer(g, 0, 15),
        DType::I4 => integer(g, -8, 7),
        DType::U8 => integer(g, 0, 255),
        DType::I8 => integer(g, -128, 127),
        _ => (0..n).map(|_| round(dtype, g.int(-512..=512) as f64 / 256.0 + 1e-3)).collect(),
    }
}

impl PrologueCase {
    /// A random one: weights in blocks as right operand, or any operand with numbers beside its elements.
    pub fn random(g: &mut Gen, arch: Arch) -> Self {
        let mut case = Case::random(g, arch);
        let what = &mut case.what;
        let float = |g: &mut Gen| g.pick(&[what.compute, DType::F32]);
        let integers = [DType::U4, DType::I4, DType::U8, DType::I8];
        let mut does = Vec::new();
        // Integers become elements of 16 bits.
        let unpacks = what.compute != DType::F32;
        let blocks = unpacks && g.chance(0.5);
        if blocks {
            // As a step has them: columns × depth, a scale for each block, and often a zero point.
            let (dtype, scale) = (g.pick(&integers), float(g));
            what.right = Operand { dtype, transposed: true, vector: 8 };
            let given = Given { dtype: scale, vector: 1, span: Span::Columns(8 << g.int(0..=4)) };
            what.right_with = vec![given; if g.chance(0.6) { 2 } else { 1 }];
            does = [Does::Subtracts, Does::Multiplies][2 - what.right_with.len()..].to_vec();
        }
        let mut beside = |g: &mut Gen, operand: &mut Operand| -> Vec<Given> {
            if unpacks && g.chance(0.2) {
                *operand = Operand { dtype: g.pick(&integers), vector: 8, ..*operand };
            }
            let mut one = |g: &mut Gen| {
                does.push(g.pick(&[Does::Subtracts, Does::Multiplies]));
                let (dtype, span) = (float(g), g.pick(&[Span::One, Span::One, Span::Row]));
                let most = 16 / dtype.size_bytes() as u32;
                let vector = if span == Span::One { operand.vector.min(most) } else { 1 };
                Given { dtype, vector, span }
            };
            (0..g.int(1..=2)).map(|_| one(g)).collect()
        };
        if !blocks {
            let side = g.int(0..=2);
            let (mut left, mut right) = (what.left, what.right);
            if side != 1 {
                what.left_with = beside(g, &mut left);
            }
            if side != 0 {
                what.right_with = beside(g, &mut right);
            }
            (what.left, what.right) = (left, right);
        }
        let what = what.clone();
        Self::of(g, &case, what, does)
    }

    /// The matmul of the sizes of another one.
    fn of(g: &mut Gen, like: &Case, mut what: Matmul, does: Vec<Does>) -> Self {
        (what.left_map, what.right_map, what.epilogue) = (None, None, None);
        what.buffers.clear();
        what.result_with.clear();
        let (m, n, k) = (like.sizes.m, like.sizes.n, like.sizes.k);
        // Sizes are multiples of what is accessed at once, of which there may be more now.
        let up = |size: i32, o: &Operand| super::up(size, o.vector as i32);
        let (m, k) = if what.left.transposed { (up(m, &what.left), k) } else { (m, up(k, &what.left)) };
        let (n, k) = if what.right.transposed { (n, up(k, &what.right)) } else { (up(n, &what.right), k) };
        let n = up(n, &what.result);
        // Both at once, where the depth runs along both.
        let k = if what.right.transposed || !what.left.transposed { super::up(k, 8) } else { k };
        let mut case = Case::of(g, like.arch, like.tiling, what, (m, n, k), like.sizes.batch.clone());
        if case.epilogue == Map::GivenAdd {
            case = case.with_epilogue(g, Map::Relu);
        }
        case.prologues = [Map::None; 2];
        let (mut stored, mut strides) = (case.values[..2].to_vec(), Vec::new());
        for (which, operand) in [case.what.left, case.what.right].iter().enumerate() {
            if operand.dtype.is_int() {
                stored[which] = values(g, operand.dtype, case.values[which].len());
            }
        }
        let (of_left, all) = (case.what.left_with.clone(), case.what.right_with.clone());
        for (i, given) in of_left.iter().chain(&all).enumerate() {
            let left = i < of_left.len();
            let (operand, (rows, cols), beside) = match left {
                true => (case.what.left, (m, k), &case.sizes.left),
                false => (case.what.right, (k, n), &case.sizes.right),
            };
            let (rows, cols) = super::stored(&operand, rows, cols);
            // An operand that repeats along the batch has numbers that do.
            let (s, len) = strides_beside(g, given, (rows, cols), beside, &case.sizes.batch);
            strides.push(s);
            stored.push(values(g, given.dtype, len));
        }
        case.sizes.given = strides;
        let mut made = PrologueCase { case, does, stored };
        made.compute();
        made.bodies();
        made
    }

    fn bodies(&mut self) {
        let what = &mut self.case.what;
        let of_left = what.left_with.len();
        let body = |what: &Matmul, does: &[Does]| {
            let (buffers, uniforms) = (what.all_buffers(), what.all_uniforms());
            (!does.is_empty()).then(|| {
                Scalar::with_rows("beside", &buffers, &uniforms, does.len(), |b, mut x, given, _| {
                    for (does, &y) in does.iter().zip(given) {
                        x = if *does == Does::Subtracts { b.sub(x, y) } else { b.mul(x, y) };
                    }
                    x
                })
            })
        };
        what.left_map = body(what, &self.does[..of_left]);
        what.right_map = body(what, &self.does[of_left..]);
    }

    /// Puts what is multiplied in the place of the operands' values.
    fn compute(&mut self) {
        let (case, of_left) = (&self.case, self.case.what.left_with.len());
        let mut all = [self.stored[0].clone(), self.stored[1].clone()];
        let sizes = &case.sizes;
        case.each_batch(|_, b| {
            for (which, operand) in [case.what.left, case.what.right].iter().enumerate() {
                let (rows, cols) = if which == 0 { (sizes.m, sizes.k) } else { (sizes.k, sizes.n) };
                let (rows, cols) = super::stored(operand, rows, cols);
                let strides = if which == 0 { &sizes.left } else { &sizes.right };
                let given: Vec<&Given> = case.what.left_with.iter().chain(&case.what.right_with).collect();
                let own = if which == 0 { 0..of_left } else { of_left..given.len() };
                for (r, c) in (0..rows).flat_map(|r| (0..cols).map(move |c| (r, c))) {
                    let at = super::place(strides, b, r, c);
                    let mut x = self.stored[which][at] as f32;
                    for i in own.clone() {
                        let col = given[i].span.col(i64::from(c)) as i32;
                        let y = self.stored[2 + i][super::place(&sizes.given[i], b, r, col)];
                        x = self.does[i].to(x, y as f32);
                    }
                    all[which][at] = rounded(case.what.compute, x);
                }
            }
        });
        let [left, right] = all;
        (self.case.values[0], self.case.values[1]) = (left, right);
    }

    pub fn program(&self) -> Program {
        matmul(self.case.arch, &self.case.what, &self.case.tiling)
            .unwrap_or_else(|e| panic!("{e}\n{}", self.describe()))
    }

    pub fn describe(&self) -> String {
        let what = &self.case.what;
        format!("{} with {:?} and {:?}", self.case.describe(), what.left_with, what.right_with)
    }

    /// The operands as memory, a pool for each buffer.
    pub fn memory(&self) -> (Pools, Vec<Binding>) {
        let given = self.stored.len() - 2;
        let of = |i: usize| match i {
            0 | 1 => &self.stored[i],
            2 => &self.case.values[2],
            i if i < 3 + given => &self.stored[i - 1],
            i => &self.case.values[i - given],
        };
        let buffers = self.case.what.all_buffers();
        let pools: Vec<Vec<u8>> =
            buffers.iter().enumerate().map(|(i, decl)| bytes(decl.dtype, of(i))).collect();
        assert!(buffers.iter().enumerate().all(|(i, b)| (b.access == Access::Write) == (i == 2)));
        let bindings =
            pools.iter().enumerate().map(|(pool, p)| Binding { pool, offset: 0, len: p.len() }).collect();
        (Pools(pools), bindings)
    }

    pub fn uniforms(&self) -> Vec<i32> {
        self.case.uniforms()
    }

    /// What the interpreter makes of the result's buffer.
    pub fn interpret(&self, program: &Program) -> rlx_ir::Result<(Pools, Counters)> {
        let (mut pools, bindings) = self.memory();
        let counters = interp::run(program, &self.uniforms(), &mut pools, &bindings)?;
        Ok((pools, counters))
    }

    /// The same by another tiling.
    #[must_use]
    pub fn tiled(mut self, number: usize) -> Self {
        let all = tilings(self.case.arch);
        self.case.tiling = all[number % all.len()];
        self
    }
}

/// Strides of numbers beside an operand, and how many elements they take; a whole dimension repeats now and then.
fn strides_beside(
    g: &mut Gen,
    given: &Given,
    (rows, cols): (i32, i32),
    operand: &Strides,
    batch: &[i32],
) -> (Strides, usize) {
    let (v, cols) = (given.vector as i32, given.span.col(i64::from(cols.max(1) - 1)) as i32 + 1);
    let base = g.int(0..=1) as i32 * v;
    let row = if g.chance(0.2) { 0 } else { super::up(cols, v) };
    let mut total = super::up(if row == 0 { cols } else { rows * row }, v) + v;
    let mut strides = Vec::new();
    for (&size, &of_operand) in batch.iter().zip(&operand.batch).rev() {
        let repeats = of_operand == 0 || g.chance(0.3);
        strides.push(if repeats { 0 } else { total });
        total *= if repeats { 1 } else { size.max(1) };
    }
    strides.reverse();
    (Strides { base, row, col: 1, batch: strides }, (base + total) as usize)
}
