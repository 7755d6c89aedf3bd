//! Random convolutions with their channels last, and what they should give: sums in f64, computed here and nowhere else.

use rlx_ir::DType;
use rlx_ir::testing::Gen;
use rlx_kernel::interp::{Binding, Counters, Pools};
use rlx_kernel::ir::{Access, Buffer, BufferDecl, Ty};
use rlx_tile::schedule::{
    Matmul, Operand, Sizes, Strides, Tiling, group_tilings, matmul, tensor_tilings, tilings,
};
use rlx_tile::window::Slide;
use rlx_tile::{Arch, Program, interp};

use super::{CANARY, decode, encode, precision, random, up};

/// A convolution over some dimensions, its sizes and its operands.
pub struct ConvCase {
    pub arch: Arch,
    pub tiling: Tiling,
    pub what: Matmul,
    pub sizes: Sizes,
    /// Images, groups, and of a group channels and filters.
    pub counts: [i32; 4],
    /// How large the image is along each dimension.
    pub extents: Vec<i32>,
    /// It ends with `max(x + bias[filter], 0)`.
    pub bias: bool,
    /// Elements of image, weights, result and bias, as numbers.
    pub values: Vec<Vec<f64>>,
}

fn places(slide: &Slide, size: i32, after: i32) -> i32 {
    let reach = (slide.taps as i32 - 1) * slide.dilation as i32 + 1;
    (size + slide.before as i32 + after - reach) / slide.stride as i32 + 1
}

/// How a random window slides along so many dimensions, how large the image is, by up to so many times the largest window, and what is behind it.
fn random_window(g: &mut Gen, spatial: usize, times: i64) -> (Vec<Slide>, Vec<i32>, Vec<i32>) {
    let most = [5, 3, 2][spatial - 1];
    let (mut window, mut extents, mut after) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..spatial {
        let taps = if g.chance(0.3) { 1 } else { g.int(1..=most) as u32 };
        let (stride, dilation) = (g.pick(&[1, 1, 2, 3]), g.int(1..=2) as u32);
        let (before, behind) = (g.int(0..=2) as u32, g.int(0..=2) as i32);
        let least = (((taps - 1) * dilation + 1) as i32 - before as i32 - behind).max(1);
        extents.push(least + g.int(0..=times * most) as i32);
        after.push(behind);
        window.push(Slide { taps, stride, dilation, before });
    }
    (window, extents, after)
}

impl ConvCase {
    /// A random convolution on a random tiling.
    pub fn random(g: &mut Gen, arch: Arch) -> ConvCase {
        let compute = match arch {
            Arch::Sm75 | Arch::Coop16 => DType::F16,
            Arch::Apple7 => g.pick(&[DType::F16, DType::BF16, DType::F32]),
            _ => g.pick(&[DType::F16, DType::BF16]),
        };
        let all = tilings(arch);
        // Small ones more often: a large one takes the interpreter long.
        let mut tiling = if g.chance(0.3) { g.pick(&all) } else { g.pick(&all[3..]) };
        tiling.bands = g.int(1..=3) as u32;
        tiling.stages = (tiling.stages + g.int(0..=1) as u32).saturating_sub(1).max(1);
        let spatial = g.pick(&[1usize, 2, 2, 2, 3]);
        let (window, extents, after) = random_window(g, spatial, 2);
        let most_vector = if compute == DType::F32 { 4 } else { 8 };
        let vector = g.pick(&[1, 2, 4, 8, 8, 8]).min(most_vector);
        let count = |g: &mut Gen, most: i64| up(g.int(1..=most) as i32, vector);
        let counts = [g.int(1..=2) as i32, g.pick(&[1, 1, 2, 3]), count(g, 20), g.int(1..=40) as i32];
        let bias = g.chance(0.5);
        let result = g.pick(&[compute, compute, DType::F32]);
        ConvCase::of(
            g,
            (arch, compute, tiling),
            window,
            (counts, extents, after),
            (vector as u32, result, bias),
        )
    }

    /// A random convolution of the group level: whole channels of a tap at a time.
    pub fn random_of_groups(g: &mut Gen) -> ConvCase {
        let compute = g.pick(&[DType::F16, DType::BF16]);
        let mut tiling = g.pick(&group_tilings()[2..]);
        tiling.bands = g.int(1..=3) as u32;
        tiling.stages = g.int(2..=i64::from(tiling.stages)) as u32;
        let spatial = g.pick(&[1usize, 2, 2, 2, 3]);
        let (window, extents, after) = random_window(g, spatial, 3);
        let counts = [g.int(1..=3) as i32, 1, 64 * g.int(1..=2) as i32, g.int(1..=80) as i32];
        let (bias, result) = (g.chance(0.5), g.pick(&[compute, compute, DType::F32]));
        ConvCase::of(g, (Arch::Sm90a, compute, tiling), window, (counts, extents, after), (8, result, bias))
    }

    /// The same of sm_100a.
    pub fn random_of_tensors(g: &mut Gen) -> ConvCase {
        let compute = g.pick(&[DType::F16, DType::BF16]);
        let mut tiling = g.pick(&tensor_tilings()[1..3]);
        tiling.bands = g.int(1..=3) as u32;
        tiling.stages = g.int(2..=i64::from(tiling.stages)) as u32;
        let spatial = g.pick(&[1usize, 2, 2, 2, 3]);
        let (window, extents, after) = random_window(g, spatial, 3);
        let counts = [g.int(1..=3) as i32, 1, 64 * g.int(1..=2) as i32, g.int(1..=80) as i32];
        let (bias, result) = (g.chance(0.5), g.pick(&[compute, compute, DType::F32]));
        ConvCase::of(g, (Arch::Sm100a, compute, tiling), window, (counts, extents, after), (8, result, bias))
    }

    /// A convolution of given sizes, with random operands and some space between their rows.
    pub fn of(
        g: &mut Gen,
        (arch, compute, tiling): (Arch, DType, Tiling),
        window: Vec<Slide>,
        (counts, extents, after): ([i32; 4], Vec<i32>, Vec<i32>),
        (vector, result, bias): (u32, DType, bool),
    ) -> ConvCase {
        let [images, groups, channels, filters] = counts;
        let all_places: Vec<i32> =
            window.iter().zip(extents.iter().zip(&after)).map(|(s, (&n, &a))| places(s, n, a)).collect();
        let (rows, v) = (images * all_places.iter().product::<i32>(), vector as i32);
        let depth = channels * window.iter().map(|s| s.taps as i32).product::<i32>();
        let gap = |g: &mut Gen| g.int(0..=1) as i32 * v;
        // Channels may be apart where they are accessed one by one.
        let col = if vector == 1 && g.chance(0.3) { 2 } else { 1 };
        let (base, mut step) = (gap(g), groups * channels * col + gap(g));
        let mut of_axes = Vec::new();
        for (&size, &places) in extents.iter().zip(&all_places).rev() {
            of_axes.splice(0..0, [places, size, step]);
            step = step * size + gap(g);
        }
        let grouped = |stride: i32| if groups > 1 { vec![stride] } else { Vec::new() };
        let left = Strides { base, row: step, col, batch: grouped(channels * col) };
        let of_filter = depth + gap(g);
        let right = Strides { base: gap(g), row: of_filter, col: 1, batch: grouped(filters * of_filter) };
        let of_row = groups * filters + g.int(0..=1) as i32;
        let stored = Strides { base: g.int(0..=2) as i32, row: of_row, col: 1, batch: grouped(filters) };
        let lengths =
            [base + images * step, right.base + groups * filters * of_filter, stored.base + rows * of_row];
        let [image, weights] = [lengths[0], lengths[1]].map(|n| random(g, compute, n as usize));
        let mut values = vec![image, weights, vec![CANARY; lengths[2] as usize]];
        let operand = |dtype, transposed, vector| Operand { dtype, transposed, vector };
        let mut what = Matmul { window, batch: usize::from(groups > 1), ..Matmul::new(compute) };
        (what.left, what.right) = (operand(compute, false, vector), operand(compute, true, vector));
        what.result = operand(result, false, 1);
        if bias {
            what.buffers.push(BufferDecl { name: "bias".into(), dtype: DType::F32, access: Access::Read });
            values.push(random(g, DType::F32, (groups * filters) as usize));
            what.epilogue = Some(what.scalar("bias_relu", |b, x, at| {
                let filters = b.int(filters);
                let first = b.mul(at.batch, filters);
                let filter = b.add(first, at.col);
                let (bias, zero) = (b.load(Buffer(3), filter), b.number(Ty::F32, 0.0));
                let sum = b.add(x, bias);
                b.max(sum, zero)
            }));
        }
        let batch = if groups > 1 { vec![groups] } else { Vec::new() };
        let window = [vec![channels], of_axes].concat();
        let sizes = Sizes {
            m: rows,
            n: filters,
            k: depth,
            part: 0,
            batch,
            lists: Vec::new(),
            window,
            given: Vec::new(),
            left,
            right,
            result: stored,
        };
        ConvCase { arch, tiling, what, sizes, counts, extents, bias, values }
    }

    /// The same in parts of the depth, a step of the tiling each, without what is behind it: what is stored are the sums of each part.
    #[must_use]
    pub fn in_parts(mut self) -> ConvCase {
        let (each, m, n) = (self.tiling.tile.2 as i32, self.sizes.m, self.sizes.n);
        let (what, sizes) = (&mut self.what, &mut self.sizes);
        self.values.truncate(3);
        what.buffers.clear();
        (what.epilogue, self.bias) = (None, false);
        let vector = [4, 2, 1].into_iter().find(|v| n % v == 0).unwrap_or(1) as u32;
        what.result = Operand { dtype: DType::F32, transposed: false, vector };
        (what.parts, what.batch) = (true, what.batch + 1);
        let (count, groups) = ((sizes.k + each - 1) / each, self.counts[1]);
        // The columns of windows are numbered through all parts.
        sizes.left.batch.insert(0, 0);
        sizes.right.batch.insert(0, each);
        let batch = if groups > 1 { vec![m * groups * n, n] } else { vec![m * n] };
        sizes.result = Strides { base: 0, row: groups * n, col: 1, batch };
        sizes.batch.insert(0, count);
        sizes.part = each;
        self.values[2] = vec![CANARY; (count * groups * m * n) as usize];
        self
    }

    pub fn program(&self) -> Program {
        matmul(self.arch, &self.what, &self.tiling).unwrap_or_else(|e| panic!("{e}\n{}", self.describe()))
    }

    pub fn describe(&self) -> String {
        let (w, s) = (&self.what, &self.sizes);
        let (tiling, counts) = (self.tiling.name(), self.counts);
        format!("{} {tiling} {:?} of {counts:?}, bias {}, sizes {s:?}", self.arch.name(), w.window, self.bias)
    }

    /// The operands as memory, a pool for each buffer.
    pub fn memory(&self) -> (Pools, Vec<Binding>) {
        let dtypes = self.what.all_buffers().into_iter().map(|b| b.dtype);
        let pools: Vec<Vec<u8>> = (self.values.iter().zip(dtypes))
            .map(|(values, dtype)| values.iter().flat_map(|&x| encode(dtype, x)).collect())
            .collect();
        let bindings =
            pools.iter().enumerate().map(|(pool, p)| Binding { pool, offset: 0, len: p.len() }).collect();
        (Pools(pools), bindings)
    }

    pub fn uniforms(&self) -> Vec<i32> {
        self.what.uniform_values(&self.sizes)
    }

    /// What the interpreter makes of the buffers.
    pub fn interpret(&self, program: &Program) -> rlx_ir::Result<(Pools, Counters)> {
        let (mut pools, bindings) = self.memory();
        let counters = interp::run(program, &self.uniforms(), &mut pools, &bindings)?;
        Ok((pools, counters))
    }

    /// Panics where a result differs from the reference by more than rounding explains, or anything beside it was written.
    pub fn check(&self, result: &[u8]) {
        let dtype = self.what.result.dtype;
        let got = |at: usize| decode(dtype, &result[at * dtype.size_bytes()..]);
        let mut seen = vec![false; self.values[2].len()];
        let ([_, groups, _, filters], s) = (self.counts, &self.sizes.result);
        let (parts, of_part) = match self.what.parts {
            true => (self.sizes.batch[0], s.batch[0]),
            false => (1, 0),
        };
        let all = (0..parts).flat_map(|part| (0..groups).map(move |group| (part, group)));
        for ((part, group), row) in all.flat_map(|of| (0..self.sizes.m).map(move |row| (of, row))) {
            for filter in 0..filters {
                let at = (s.base + part * of_part + row * s.row + group * filters + filter) as usize;
                seen[at] = true;
                let (want, error) = self.reference(part, group, row, filter);
                let got = got(at);
                assert!(
                    (got - want).abs() <= error,
                    "part {part} group {group} row {row} filter {filter}: {got}, not {want} ± {error}\n{}",
                    self.describe()
                );
            }
        }
        for (at, _) in seen.iter().enumerate().filter(|(_, s)| !**s) {
            assert_eq!(got(at), CANARY, "element {at} beside the result was written\n{}", self.describe());
        }
    }

    /// Where the window of a row begins: the image, and the position along each dimension.
    fn window_of(&self, row: i32) -> (i32, Vec<i32>) {
        let (mut rest, mut first) = (row, Vec::new());
        for (i, slide) in self.what.window.iter().enumerate().rev() {
            let places = self.sizes.window[1 + 3 * i];
            first.insert(0, rest % places * slide.stride as i32 - slide.before as i32);
            rest /= places;
        }
        (rest, first)
    }

    /// A result, or the sum of a part, and how far from it rounding may lead.
    fn reference(&self, part: i32, group: i32, row: i32, filter: i32) -> (f64, f64) {
        let ([_, _, channels, filters], window) = (self.counts, &self.what.window);
        let (image, first) = self.window_of(row);
        let (left, right) = (&self.sizes.left, &self.sizes.right);
        let (mut sum, mut size) = (0.0, 0.0);
        let each = if self.what.parts { self.sizes.part } else { self.sizes.k };
        for k in (part * each..self.sizes.k).take(each as usize) {
            let (mut tap, channel) = (k / channels, k % channels);
            let mut at = Some(left.base + image * left.row + (group * channels + channel) * left.col);
            for i in (0..window.len()).rev() {
                let taps = window[i].taps as i32;
                let position = first[i] + tap % taps * window[i].dilation as i32;
                let inside = (0..self.extents[i]).contains(&position);
                at = at.filter(|_| inside).map(|at| at + position * self.sizes.window[3 + 3 * i]);
                tap /= taps;
            }
            let Some(at) = at else { continue };
            let weight = right.base + (group * filters + filter) * right.row + k;
            let product = self.values[0][at as usize] * self.values[1][weight as usize];
            sum += product;
            size += product.abs();
        }
        let error = size * f64::from(self.sizes.k) * 2f64.powi(-24);
        let bias = || self.values[3][(group * filters + filter) as usize];
        let value = if self.bias { (sum + bias()).max(0.0) } else { sum };
        let (half_ulp, least) = precision(self.what.result.dtype);
        (value, error + (value.abs() + error).max(least) * (half_ulp + 2f64.powi(-23)))
    }
}
