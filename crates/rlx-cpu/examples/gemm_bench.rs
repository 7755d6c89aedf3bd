//! Speed of the packed GEMM beside a measured multiply-add peak, in one interleaved run.
//!
//! `cargo run --release -p rlx-cpu --example gemm_bench [-- ROUNDS]`

use std::time::Instant;

use rlx_cpu::alloc::Buffer;
use rlx_cpu::gemm::{self, Ahead, ConvRows, Epilogue, Gemm, Next, Rows, Strided, TileSizes};
use rlx_cpu::isa::{Isa, Kernel};
use rlx_cpu::math::{Function, Unary};
use rlx_cpu::pool::{Pool, Run, Wake};
use rlx_cpu::simd::Simd;

/// Independent chains of multiply-adds: as many as hide their latency.
struct Peak(usize);

impl Kernel for Peak {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let (a, b) = (s.splat(0.999_9), s.splat(1e-9));
        let mut acc = [s.splat(1.0); CHAINS];
        for _ in 0..self.0 {
            for x in &mut acc {
                *x = s.mul_add(*x, a, b);
            }
        }
        acc.iter().map(|&x| s.sum(x)).sum()
    }
}

const CHAINS: usize = 12;

/// Seconds of the fastest of a few repetitions.
fn fastest(times: usize, mut f: impl FnMut()) -> f64 {
    (0..times)
        .map(|_| {
            let t = Instant::now();
            f();
            t.elapsed().as_secs_f64()
        })
        .fold(f64::MAX, f64::min)
}

fn peak_gflops(isa: Isa, run: &mut Run<'_>) -> f64 {
    const STEPS: usize = 20_000;
    let threads = run.threads();
    let t = fastest(5, || {
        run.parallel_for(threads, &|_| {
            std::hint::black_box(isa.run(Peak(std::hint::black_box(STEPS))));
        });
    });
    (threads * STEPS * CHAINS * 16 * 2) as f64 / t / 1e9
}

/// Several layers of one shape with their own weights, run in turn like a model's.
struct Layers {
    m: usize,
    n: usize,
    k: usize,
    count: usize,
    weights: Buffer,
    input: Buffer,
    output: Buffer,
    activation: Option<Unary>,
}

impl Layers {
    fn new(m: usize, n: usize, k: usize, cold: bool, activation: Option<Unary>) -> Layers {
        let packed = gemm::packed_len(k, n).expect("a small matrix");
        // More weights than the second-level cache holds, or one matrix again and again.
        let count = if cold { (24usize << 20).div_ceil(packed * 4) } else { 1 };
        let buffer = |len| Buffer::zeroed_f32(len).expect("memory");
        let (mut weights, mut input) = (buffer(packed * count), buffer(m * k));
        for (i, x) in weights.as_f32_mut().iter_mut().chain(input.as_f32_mut()).enumerate() {
            *x = (i % 17) as f32 * 0.01 - 0.08;
        }
        Layers { m, n, k, count, weights, input, output: buffer(m * n), activation }
    }

    fn run(&mut self, isa: Isa, run: &mut Run<'_>) -> f64 {
        let (m, n, k) = (self.m, self.n, self.k);
        let packed = gemm::packed_len(k, n).expect("a small matrix");
        let c = self.output.as_f32_mut().as_mut_ptr();
        let weights = self.weights.as_f32();
        let mut t = Instant::now();
        // One matrix alone is run once untimed: the shapes before it have emptied the caches.
        let warm_up = usize::from(self.count == 1);
        for layer in 0..self.count + warm_up {
            if layer == warm_up {
                t = Instant::now();
            }
            let layer = layer % self.count;
            let b = weights[layer * packed..].as_ptr();
            let next = weights[(layer + 1) % self.count * packed..].as_ptr();
            let rows = Strided { ptr: self.input.as_f32().as_ptr(), row_stride: k as isize };
            let ahead = Ahead::Next(Next { b: next, depth: k, panels: gemm::panels(n) });
            let epilogue = Epilogue { activation: self.activation, ..Epilogue::NONE };
            let g = Gemm {
                m,
                n,
                k,
                rows,
                b,
                c,
                c_stride: n,
                epilogue,
                tile_sizes: TileSizes::DEFAULT,
                ahead,
                wide: None,
            };
            execute(isa, run, &g);
        }
        (2 * m * n * k * self.count) as f64 / t.elapsed().as_secs_f64() / 1e9
    }
}

fn execute<R: Rows<Element = f32>>(isa: Isa, run: &mut Run<'_>, g: &Gemm<R>) {
    // SAFETY: every buffer covers its extents; tasks are disjoint.
    run.parallel_for(g.tasks(isa), &|range| unsafe { g.run(isa, range) });
}

/// A convolution of a square image with `c` channels in and out.
fn conv(isa: Isa, run: &mut Run<'_>, size: usize, c: usize, kernel: usize) -> f64 {
    let buffer = |len| Buffer::zeroed_f32(len).expect("memory");
    let depth = kernel * kernel * c;
    let (x, w) = (buffer(size * size * c), buffer(gemm::packed_len(depth, c).expect("a small matrix")));
    let (zeros, mut y) = (buffer(c), buffer(size * size * c));
    let rows = ConvRows {
        input: x.as_f32().as_ptr(),
        zeros: zeros.as_f32().as_ptr(),
        size: [1, size, size],
        strides: [0, size * c, c],
        volume_stride: size * size * c,
        out: [1, size, size],
        kernel: [1, kernel, kernel],
        stride: [1; 3],
        dilation: [1; 3],
        pad: [0, kernel / 2, kernel / 2],
        first: 0,
    };
    let b = w.as_f32().as_ptr();
    let out = y.as_f32_mut().as_mut_ptr();
    let m = size * size;
    let g = Gemm {
        m,
        n: c,
        k: c,
        rows,
        b,
        c: out,
        c_stride: c,
        epilogue: Epilogue::NONE,
        tile_sizes: TileSizes::DEFAULT,
        ahead: Ahead::Panels,
        wide: None,
    };
    execute(isa, run, &g);
    let t = Instant::now();
    execute(isa, run, &g);
    (2 * m * depth * c) as f64 / t.elapsed().as_secs_f64() / 1e9
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(15), |a| a.parse())?;
    let isa = Isa::from_env()?;
    let shapes = [
        (128, 384, 384, false, None),
        (128, 384, 384, true, None),
        (128, 1536, 384, true, None),
        (128, 1536, 384, true, Some(Unary::Function(Function::Gelu))),
        (128, 384, 1536, true, None),
        (16, 384, 384, true, None),
        (16, 1536, 384, true, None),
        (16, 384, 1536, true, None),
        (1, 384, 1536, true, None),
        (3, 384, 384, false, None),
        (13, 384, 384, false, None),
        (100, 384, 384, false, None),
        (128, 400, 384, false, None),
        (128, 384, 16, false, None),
        (864, 504, 28, false, None),
        (6561, 14, 94, false, None),
        (1024, 1024, 1024, false, None),
        (512, 512, 8192, false, None),
    ];
    let convs = [(56, 64, 1), (56, 64, 3), (28, 128, 3), (14, 256, 3), (7, 512, 3)];
    for threads in [1, 2] {
        let pool = Pool::new(threads)?;
        let mut run = pool.enter(Wake::Yes);
        let mut layers: Vec<Layers> =
            shapes.iter().map(|&(m, n, k, cold, act)| Layers::new(m, n, k, cold, act)).collect();
        let mut rates = vec![Vec::new(); shapes.len() + convs.len()];
        let mut peak = 0f64;
        for _ in 0..rounds {
            peak = peak.max(peak_gflops(isa, &mut run));
            for (l, r) in layers.iter_mut().zip(&mut rates) {
                r.push(l.run(isa, &mut run));
            }
            for (&(size, c, kernel), r) in convs.iter().zip(&mut rates[shapes.len()..]) {
                r.push(conv(isa, &mut run, size, c, kernel));
            }
        }
        println!("{} threads, {}: peak {peak:.1} GFLOP/s; best and median of {rounds}", threads, isa.kind());
        let names = shapes.iter().map(|(m, n, k, cold, act)| {
            format!("{m}x{n}x{k} {} {act:?}", if *cold { "cold" } else { "warm" })
        });
        let names = names.chain(convs.iter().map(|(s, c, k)| format!("conv {s}x{s} {c} channels {k}x{k}")));
        for (name, r) in names.zip(&mut rates) {
            r.sort_by(f64::total_cmp);
            let (best, median) = (r[r.len() - 1], r[r.len() / 2]);
            println!(
                "  {name:34} {best:7.1} {:5.1}%  {median:7.1} {:5.1}%",
                100.0 * best / peak,
                100.0 * median / peak
            );
        }
    }
    Ok(())
}
