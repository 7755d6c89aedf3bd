//! Random matmuls, and what they should give: sums in f64, computed here and nowhere else.
#![allow(dead_code)]

pub mod attention;
pub mod attention_parts;
pub mod compiled;
pub mod convs;
pub mod grouped;
pub mod groups;
pub mod prologue;
pub mod prologue_graphs;
pub mod tensors;

use half::{bf16, f16};
use rlx_ir::DType;
use rlx_ir::op::Activation;
use rlx_ir::testing::{Gen, exact};
use rlx_kernel::interp::{Binding, Counters, Pools};
use rlx_kernel::ir::{Access, Buffer, BufferDecl, Inst, Ty};
use rlx_tile::beside::Span;
use rlx_tile::schedule::{Given, Matmul, Operand, Sizes, Strides, Tiling, matmul, tilings};
use rlx_tile::{Arch, Program, Scalar, interp};

/// A number as an element of `dtype`, and back.
pub fn round(dtype: DType, x: f64) -> f64 {
    match dtype {
        DType::F16 => f16::from_f64(x).to_f64(),
        DType::BF16 => bf16::from_f64(x).to_f64(),
        _ => f64::from(x as f32),
    }
}

pub fn encode(dtype: DType, x: f64) -> Vec<u8> {
    match dtype {
        DType::F16 => f16::from_f64(x).to_le_bytes().to_vec(),
        DType::BF16 => bf16::from_f64(x).to_le_bytes().to_vec(),
        _ => (x as f32).to_le_bytes().to_vec(),
    }
}

pub fn decode(dtype: DType, bytes: &[u8]) -> f64 {
    match dtype {
        DType::F16 => f16::from_le_bytes([bytes[0], bytes[1]]).to_f64(),
        DType::BF16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f64(),
        _ => f64::from(f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
    }
}

/// Half a unit in the last place of 1, and the smallest normal number.
fn precision(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F16 => (2f64.powi(-11), 2f64.powi(-14)),
        DType::BF16 => (2f64.powi(-8), 2f64.powi(-126)),
        _ => (2f64.powi(-24), 2f64.powi(-126)),
    }
}

/// What is done to a number, in f64, beside the body that does it in a kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Map {
    None,
    /// `2·x - 1`.
    Affine,
    /// `max(x, 0)`.
    Relu,
    /// `max(x + bias[col], 0)`.
    BiasRelu,
    /// `x·scale[batch] + residual[batch, row, col]`, where the residual is dense.
    ScaleAdd,
    /// `max(x + bias[col] + residual[batch, row, col], 0)`, both given beside the sum.
    GivenAdd,
    /// `y/2·(1 + erf(y/√2))` of `y = x + bias[col]`: a function that Metal has not, whose approximation is written into the text.
    BiasGelu,
}

/// A matmul, its sizes and its operands.
pub struct Case {
    pub arch: Arch,
    pub tiling: Tiling,
    pub what: Matmul,
    pub sizes: Sizes,
    pub prologues: [Map; 2],
    pub epilogue: Map,
    /// Elements of left, right, result, and the bodies' buffers, as numbers.
    pub values: Vec<Vec<f64>>,
}

fn up(size: i32, of: i32) -> i32 {
    (size + of - 1) / of * of
}

/// Guard elements around the result, which nothing may change.
pub const CANARY: f64 = -77.0;

fn stored(operand: &Operand, rows: i32, cols: i32) -> (i32, i32) {
    if operand.transposed { (cols, rows) } else { (rows, cols) }
}

/// Strides of an operand with some space between rows and batches, and how many elements it takes.
fn strides(
    g: &mut Gen,
    operand: &Operand,
    (rows, cols): (i32, i32),
    batch: &[i32],
    repeat: bool,
) -> (Strides, usize) {
    let v = operand.vector as i32;
    let gap = |g: &mut Gen| g.int(0..=1) as i32 * v;
    let base = gap(g);
    // Without vectors, columns may be apart, and rows may be neighbours.
    let (row, col, extent) = match operand.vector == 1 && g.int(0..=3) == 0 {
        true => (1, rows + gap(g), (cols - 1) * (rows + v) + rows),
        false => {
            let row = cols + gap(g);
            (row, 1, rows * row)
        }
    };
    let extent = up(extent.max(1) + v, v);
    let mut strides = Vec::new();
    let mut total = extent;
    for &size in batch.iter().rev() {
        if repeat && g.int(0..=1) == 0 {
            strides.push(0);
        } else {
            strides.push(total);
            total *= size.max(1);
        }
    }
    strides.reverse();
    (Strides { base, row, col, batch: strides }, (base + total) as usize)
}

impl Case {
    /// A random matmul on a random tiling.
    pub fn random(g: &mut Gen, arch: Arch) -> Case {
        let compute = match arch {
            Arch::Sm75 | Arch::Coop16 => DType::F16,
            Arch::Apple7 => [DType::F16, DType::BF16, DType::F32][g.int(0..=2) as usize],
            _ => [DType::F16, DType::BF16][g.int(0..=1) as usize],
        };
        let all = tilings(arch);
        // Small ones more often: a large one takes the interpreter long.
        let pick = g.int(0..=3 * all.len() as i64 - 1) as usize;
        let mut tiling = all[if pick < all.len() { pick } else { 3 + pick % (all.len() - 3) }];
        tiling.bands = g.int(1..=3) as u32;
        tiling.stages = (tiling.stages + g.int(0..=1) as u32).saturating_sub(1).max(1);
        let vector = |g: &mut Gen| [1, 2, 4, 8][g.int(0..=3) as usize];
        let operand = |g: &mut Gen| {
            let other = if compute == DType::F32 { DType::F16 } else { DType::F32 };
            let dtype = if g.int(0..=4) == 0 { other } else { compute };
            let vector: u32 = vector(g);
            Operand {
                dtype,
                transposed: g.int(0..=1) == 1,
                vector: vector.min(16 / dtype.size_bytes() as u32),
            }
        };
        let mut what = Matmul::new(compute);
        (what.left, what.right) = (operand(g), operand(g));
        let result = operand(g);
        let most = 16 / result.dtype.size_bytes() as u32;
        what.result = Operand { transposed: false, vector: vector(g).min(most), ..result };
        what.batch = g.int(0..=2) as usize;
        let size = |g: &mut Gen, tile: u32| {
            let most = if g.int(0..=2) == 0 { 2 * tile + 9 } else { tile };
            g.int(1..=i64::from(most)) as i32
        };
        let (tm, tn, tk) = tiling.tile;
        let (mut m, mut n, mut k) = (size(g, tm), size(g, tn), size(g, 2 * tk));
        let up = |size: i32, o: &Operand| up(size, o.vector as i32);
        (m, k) = if what.left.transposed { (up(m, &what.left), k) } else { (m, up(k, &what.left)) };
        (n, k) = if what.right.transposed { (n, up(k, &what.right)) } else { (up(n, &what.right), k) };
        n = up(n, &what.result);
        let batch: Vec<i32> = (0..what.batch).map(|_| g.int(1..=2) as i32).collect();
        Case::of(g, arch, tiling, what, (m, n, k), batch)
    }

    /// A matmul of given sizes with random operands, bodies and strides.
    pub fn of(
        g: &mut Gen,
        arch: Arch,
        tiling: Tiling,
        what: Matmul,
        (m, n, k): (i32, i32, i32),
        batch: Vec<i32>,
    ) -> Case {
        let mut sizes = Sizes { m, n, k, batch: batch.clone(), ..Sizes::default() };
        let (l, r) = (stored(&what.left, m, k), stored(&what.right, k, n));
        let (left, left_len) = strides(g, &what.left, l, &batch, true);
        let (right, right_len) = strides(g, &what.right, r, &batch, true);
        let (result, result_len) = strides(g, &what.result, (m, n), &batch, false);
        (sizes.left, sizes.right, sizes.result) = (left, right, result);
        let mut values = vec![random(g, what.left.dtype, left_len), random(g, what.right.dtype, right_len)];
        values.push(vec![CANARY; result_len]);
        let prologue = |g: &mut Gen| if g.int(0..=4) == 0 { Map::Affine } else { Map::None };
        let prologues = [prologue(g), prologue(g)];
        let epilogues = [Map::None, Map::Relu, Map::BiasRelu, Map::ScaleAdd, Map::GivenAdd];
        // Apple's lanes do not know which sums they have.
        let count = if arch == Arch::Apple7 { 4 } else { 5 };
        let epilogue = epilogues[g.int(0..=count - 1) as usize];
        let mut case = Case { arch, tiling, what, sizes, prologues, epilogue, values };
        case.bodies(g);
        case
    }

    /// The same with another epilogue.
    #[must_use]
    pub fn with_epilogue(mut self, g: &mut Gen, epilogue: Map) -> Case {
        self.clear_bodies();
        self.epilogue = epilogue;
        self.bodies(g);
        self
    }

    /// Without bodies, and what they read.
    pub fn clear_bodies(&mut self) {
        self.values.truncate(3);
        self.what.buffers.clear();
        self.what.result_with.clear();
        self.sizes.given.clear();
        (self.what.left_map, self.what.right_map, self.what.epilogue) = (None, None, None);
        (self.prologues, self.epilogue) = ([Map::None; 2], Map::None);
    }

    /// The same in parts of the depth, a step of the tiling each, without bodies: what is stored are the sums of each part.
    #[must_use]
    pub fn in_parts(mut self) -> Case {
        let (each, m, n) = (self.tiling.tile.2 as i32, self.sizes.m, self.sizes.n);
        self.clear_bodies();
        let (what, sizes) = (&mut self.what, &mut self.sizes);
        let vector = [4, 2, 1].into_iter().find(|v| n % v == 0).unwrap_or(1) as u32;
        what.result = Operand { dtype: DType::F32, transposed: false, vector };
        (what.parts, what.batch) = (true, what.batch + 1);
        let count = (sizes.k + each - 1) / each;
        let along = |of: &Strides, rows: bool| each * if rows { of.row } else { of.col };
        sizes.left.batch.insert(0, along(&sizes.left, what.left.transposed));
        sizes.right.batch.insert(0, along(&sizes.right, !what.right.transposed));
        let (mut batch, mut all) = (Vec::new(), m * n);
        for size in sizes.batch.iter().rev() {
            batch.insert(0, all);
            all *= size;
        }
        batch.insert(0, all);
        sizes.result = Strides { base: 0, row: n, col: 1, batch };
        sizes.batch.insert(0, count);
        sizes.part = each;
        self.values[2] = vec![CANARY; (count * all) as usize];
        self
    }

    fn bodies(&mut self, g: &mut Gen) {
        if self.epilogue == Map::GivenAdd {
            self.given_add(g);
        }
        let batches: i32 = self.sizes.batch.iter().product();
        let mut buffer = |what: &mut Matmul, name: &str, n: i32, values: &mut Vec<Vec<f64>>| {
            what.buffers.push(BufferDecl { name: name.into(), dtype: DType::F32, access: Access::Read });
            values.push(random(g, DType::F32, n as usize));
            Buffer(what.all_buffers().len() as u32 - 1)
        };
        let (n, m) = (self.sizes.n, self.sizes.m);
        let what = &mut self.what;
        match self.epilogue {
            Map::BiasRelu => {
                let bias = buffer(what, "bias", n, &mut self.values);
                what.epilogue = Some(what.scalar("bias_relu", |b, x, at| {
                    let (bias, zero) = (b.load(bias, at.col), b.number(Ty::F32, 0.0));
                    let sum = b.add(x, bias);
                    b.max(sum, zero)
                }));
            }
            Map::ScaleAdd => {
                let scale = buffer(what, "scale", batches, &mut self.values);
                let residual = buffer(what, "residual", batches * m * n, &mut self.values);
                what.epilogue = Some(what.scalar("scale_add", |b, x, at| {
                    let (m, n) = (b.inst(Inst::Uniform(0)), b.inst(Inst::Uniform(1)));
                    let rows = b.mul(at.batch, m);
                    let row = b.add(rows, at.row);
                    let first = b.mul(row, n);
                    let index = b.add(first, at.col);
                    let (scale, residual) = (b.load(scale, at.batch), b.load(residual, index));
                    let scaled = b.mul(x, scale);
                    b.add(scaled, residual)
                }));
            }
            Map::BiasGelu => {
                let bias = buffer(what, "bias", n, &mut self.values);
                let erf = rlx_kernel::ir::MathFn::named("Erf").unwrap();
                what.epilogue = Some(what.scalar("bias_gelu", |b, x, at| {
                    let bias = b.load(bias, at.col);
                    let y = b.add(x, bias);
                    let scale = b.number(Ty::F32, std::f64::consts::FRAC_1_SQRT_2);
                    let (one, half) = (b.number(Ty::F32, 1.0), b.number(Ty::F32, 0.5));
                    let scaled = b.mul(y, scale);
                    let erf = b.math(erf, scaled);
                    let (sum, half) = (b.add(erf, one), b.mul(y, half));
                    b.mul(half, sum)
                }));
            }
            Map::Relu => {
                what.epilogue = Some(what.scalar("relu", |b, x, _| {
                    let zero = b.number(Ty::F32, 0.0);
                    b.max(x, zero)
                }));
            }
            _ => {}
        }
        let affine = |what: &Matmul| {
            what.scalar("affine", |b, x, _| {
                let (two, one) = (b.number(Ty::F32, 2.0), b.number(Ty::F32, 1.0));
                let twice = b.mul(x, two);
                b.sub(twice, one)
            })
        };
        what.left_map = (self.prologues[0] == Map::Affine).then(|| affine(what));
        what.right_map = (self.prologues[1] == Map::Affine).then(|| affine(what));
    }

    /// A bias, whose rows are all the same, and a dense residual.
    fn given_add(&mut self, g: &mut Gen) {
        let (n, m) = (self.sizes.n, self.sizes.m);
        let (mut batch, mut count) = (Vec::new(), m * n);
        for &size in self.sizes.batch.iter().rev() {
            batch.insert(0, count);
            count *= size;
        }
        let zeros = vec![0; batch.len()];
        let (compute, other) = (self.what.compute, [DType::F32, self.what.compute][g.int(0..=1) as usize]);
        for (dtype, (row, batch), count) in [(other, (0, zeros), n), (compute, (n, batch), count)] {
            let most = 16 / dtype.size_bytes() as i32;
            let fits = |v: &i32| *v <= most && n % v == 0;
            let vector = [8, 4, 2, 1].into_iter().filter(fits).nth(usize::from(g.chance(0.2))).unwrap_or(1);
            self.what.result_with.push(Given { dtype, vector: vector as u32, span: Span::One });
            self.sizes.given.push(Strides { base: 0, row, col: 1, batch });
            self.values.push(random(g, dtype, count as usize));
        }
        let (buffers, uniforms) = (self.what.all_buffers(), self.what.all_uniforms());
        self.what.epilogue =
            Some(Scalar::with_rows("given_add", &buffers, &uniforms, 2, |b, x, given, _| {
                let sum = b.add(x, given[0]);
                let (sum, zero) = (b.add(sum, given[1]), b.number(Ty::F32, 0.0));
                b.max(sum, zero)
            }));
    }

    pub fn program(&self) -> Program {
        matmul(self.arch, &self.what, &self.tiling).unwrap_or_else(|e| panic!("{e}\n{}", self.describe()))
    }

    pub fn describe(&self) -> String {
        let (w, s) = (&self.what, &self.sizes);
        format!(
            "{} {} {:?}·{:?} -> {:?}, {:?} {:?}, sizes {s:?}",
            self.arch.name(),
            self.tiling.name(),
            w.left,
            w.right,
            w.result,
            self.prologues,
            self.epilogue,
        )
    }

    pub fn dtypes(&self) -> Vec<DType> {
        self.what.all_buffers().iter().map(|b| b.dtype).collect()
    }

    /// The operands as memory, a pool for each buffer.
    pub fn memory(&self) -> (Pools, Vec<Binding>) {
        let pools: Vec<Vec<u8>> = (self.values.iter().zip(self.dtypes()))
            .map(|(values, dtype)| values.iter().flat_map(|&x| encode(dtype, x)).collect())
            .collect();
        let bindings =
            pools.iter().enumerate().map(|(pool, p)| Binding { pool, offset: 0, len: p.len() }).collect();
        (Pools(pools), bindings)
    }

    pub fn uniforms(&self) -> Vec<i32> {
        self.what.uniform_values(&self.sizes)
    }

    /// What the interpreter makes of the result's buffer.
    pub fn interpret(&self, program: &Program) -> rlx_ir::Result<(Pools, Counters)> {
        let (mut pools, bindings) = self.memory();
        let counters = interp::run(program, &self.uniforms(), &mut pools, &bindings)?;
        Ok((pools, counters))
    }

    /// The same of a grid of so many workgroups, each of several tiles.
    pub fn interpret_in(&self, program: &Program, grid: u64) -> rlx_ir::Result<(Pools, Counters)> {
        let (mut pools, bindings) = self.memory();
        let counters = interp::run_in(program, grid, &self.uniforms(), &mut pools, &bindings)?;
        Ok((pools, counters))
    }

    /// Panics where a result differs from the reference by more than rounding explains, or anything beside it was written.
    pub fn check(&self, result: &[u8]) {
        let dtype = self.what.result.dtype;
        let bytes = dtype.size_bytes();
        let got = |at: usize| decode(dtype, &result[at * bytes..]);
        let mut seen = vec![false; self.values[2].len()];
        self.each_batch(|flat, b| {
            for row in 0..self.sizes.m {
                for col in 0..self.sizes.n {
                    let at = place(&self.sizes.result, b, row, col);
                    seen[at] = true;
                    let (want, error) = self.reference(flat, b, row, col);
                    let got = got(at);
                    // What the type does not hold is infinite.
                    let infinite = got.is_infinite() && round(dtype, want + error.copysign(want)) == got;
                    assert!(
                        infinite || (got - want).abs() <= error,
                        "batch {b:?} ({row}, {col}): {got}, not {want} ± {error}\n{}",
                        self.describe()
                    );
                }
            }
        });
        for (at, _) in seen.iter().enumerate().filter(|(_, s)| !**s) {
            assert_eq!(got(at), CANARY, "element {at} beside the result was written\n{}", self.describe());
        }
    }

    fn each_batch(&self, mut f: impl FnMut(usize, &[i32])) {
        let total: i32 = self.sizes.batch.iter().product();
        for flat in 0..total {
            let mut rest = flat;
            let mut indices: Vec<i32> = (self.sizes.batch.iter().rev())
                .map(|&size| {
                    let i = rest % size;
                    rest /= size;
                    i
                })
                .collect();
            indices.reverse();
            f(flat as usize, &indices);
        }
    }

    /// A result and how far from it rounding may lead: operands are rounded to the type that is multiplied, products and sums in f32.
    fn reference(&self, flat: usize, b: &[i32], row: i32, col: i32) -> (f64, f64) {
        let operand = |which: usize, o: &Operand, s: &Strides, r: i32, c: i32| {
            let (r, c) = if o.transposed { (c, r) } else { (r, c) };
            let x = self.values[which][place(s, b, r, c)];
            let x = if self.prologues[which] == Map::Affine { f64::from(2.0 * x as f32 - 1.0) } else { x };
            round(self.what.compute, x)
        };
        let (mut sum, mut size) = (0.0, 0.0);
        for k in 0..self.sizes.k {
            let product = operand(0, &self.what.left, &self.sizes.left, row, k)
                * operand(1, &self.what.right, &self.sizes.right, k, col);
            sum += product;
            size += product.abs();
        }
        let mut error = size * f64::from(self.sizes.k) * 2f64.powi(-24);
        let (m, n) = (self.sizes.m as usize, self.sizes.n as usize);
        let value = match self.epilogue {
            Map::None | Map::Affine => sum,
            Map::Relu => sum.max(0.0),
            Map::BiasRelu => (sum + self.values[3][col as usize]).max(0.0),
            Map::GivenAdd => {
                let residual = self.values[4][(flat * m + row as usize) * n + col as usize];
                let (bias, size) = (self.values[3][col as usize], residual.abs());
                error += (sum.abs() + bias.abs() + size) * 2f64.powi(-23);
                (sum + bias + residual).max(0.0)
            }
            Map::ScaleAdd => {
                let scale = self.values[3][flat];
                error *= scale.abs();
                error += (sum * scale).abs() * 2f64.powi(-23);
                sum * scale + self.values[4][(flat * m + row as usize) * n + col as usize]
            }
            Map::BiasGelu => {
                let y = sum + self.values[3][col as usize];
                // The slope is at most 1.13. Rounding `y`, its error function (2 units of 2^-23 with its argument's) and the sum with 1
                // is at most 4 units beside 1, of `y/2`.
                error = error * 1.13 + y.abs() * 2f64.powi(-22) + (sum.abs() + y.abs()) * 2f64.powi(-24);
                0.5 * y * (1.0 + exact(Activation::Erf, y * std::f64::consts::FRAC_1_SQRT_2))
            }
        };
        let (half_ulp, least) = precision(self.what.result.dtype);
        (value, error + (value.abs() + error).max(least) * (half_ulp + 2f64.powi(-23)))
    }
}

fn place(s: &Strides, batch: &[i32], row: i32, col: i32) -> usize {
    let b: i32 = s.batch.iter().zip(batch).map(|(s, i)| s * i).sum();
    (s.base + b + row * s.row + col * s.col) as usize
}

fn random(g: &mut Gen, dtype: DType, n: usize) -> Vec<f64> {
    (0..n).map(|_| round(dtype, g.int(-4096..=4096) as f64 / 1024.0 + g.int(-3..=3) as f64 * 1e-3)).collect()
}
