//! Speed of the packed GEMM in f32, bf16 and f16, interleaved, beside the measured peaks of multiply-adds of f32
//! and of dot products of bf16.
//!
//! `cargo run --release -p rlx-cpu --example gemm_short_bench [-- ROUNDS]`

use std::time::Instant;

use half::{bf16, f16};
use rlx_cpu::alloc::Buffer;
use rlx_cpu::gemm::{self, Ahead, Epilogue, Gemm, Next, Packed, Strided, TileSizes};
use rlx_cpu::isa::{Isa, Kernel};
use rlx_cpu::math::{Function, Unary};
use rlx_cpu::pool::{Pool, Run, Wake};
use rlx_cpu::simd::Simd;

/// Independent chains, as many as hide the latency: of multiply-adds, or of dot products of bf16 pairs.
struct Peak {
    steps: usize,
    dots: bool,
}

const CHAINS: usize = 12;

impl Kernel for Peak {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let (a, b) = (s.splat(0.999_9), s.splat(1e-9));
        let mut acc = [s.splat(1.0); CHAINS];
        for _ in 0..self.steps {
            for x in &mut acc {
                *x = if self.dots { s.dot_bf16(*x, s.bits(a), s.bits(b)) } else { s.mul_add(*x, a, b) };
            }
        }
        acc.iter().map(|&x| s.sum(x)).sum()
    }
}

fn peak(isa: Isa, run: &mut Run<'_>, dots: bool) -> f64 {
    const STEPS: usize = 20_000;
    let threads = run.threads();
    let mut best = f64::MAX;
    for _ in 0..5 {
        let t = Instant::now();
        run.parallel_for(threads, &|_| {
            let kernel = Peak { steps: std::hint::black_box(STEPS), dots };
            std::hint::black_box(if dots { isa.run_bf16(kernel) } else { isa.run(kernel) });
        });
        best = best.min(t.elapsed().as_secs_f64());
    }
    (threads * STEPS * CHAINS * 16 * if dots { 4 } else { 2 }) as f64 / best / 1e9
}

#[derive(Clone, Copy)]
struct Shape {
    m: usize,
    n: usize,
    k: usize,
    /// More weights than the second-level cache holds, run in turn like a model's.
    cold: bool,
    fused: bool,
}

struct Layers<T: Packed> {
    shape: Shape,
    count: usize,
    weights: Buffer,
    input: Vec<T>,
    bias: Vec<T>,
    output: Vec<T>,
}

impl<T: Packed> Layers<T> {
    fn new(shape: Shape, make: fn(f32) -> T) -> Layers<T> {
        let Shape { m, n, k, cold, .. } = shape;
        let words = gemm::packed_words::<T>(k, n).expect("a small matrix");
        let count = if cold { (24usize << 20).div_ceil(words * 4) } else { 1 };
        let value = |i: usize| make((i % 17) as f32 * 0.01 - 0.08);
        let rhs: Vec<T> = (0..k * n).map(value).collect();
        let mut weights = Buffer::zeroed_f32(words * count).expect("memory");
        for layer in 0..count {
            let to = weights.as_f32_mut()[layer * words..].as_mut_ptr();
            // SAFETY: the matrix has k·n elements, the layer `words` words.
            unsafe { gemm::pack(rhs.as_ptr(), n as isize, 1, k, n, to, 0..gemm::panels(n)) };
        }
        let input = (0..m * k).map(value).collect();
        let bias = (0..n).map(value).collect();
        Layers { shape, count, weights, input, bias, output: vec![make(0.0); m * n] }
    }

    fn run(&mut self, isa: Isa, run: &mut Run<'_>) -> f64 {
        let Shape { m, n, k, fused, .. } = self.shape;
        let words = gemm::packed_words::<T>(k, n).expect("a small matrix");
        let weights = self.weights.as_f32();
        let warm_up = usize::from(self.count == 1);
        let mut t = Instant::now();
        for layer in 0..self.count + warm_up {
            if layer == warm_up {
                t = Instant::now();
            }
            let layer = layer % self.count;
            let at = |layer: usize| weights[layer % self.count * words..].as_ptr();
            let next = Next { b: at(layer + 1), depth: gemm::groups::<T>(k), panels: gemm::panels(n) };
            let epilogue = match fused {
                true => Epilogue::bias(self.bias.as_ptr()).with(Unary::Function(Function::Gelu)),
                false => Epilogue::NONE,
            };
            let g = Gemm {
                m,
                n,
                k,
                rows: Strided { ptr: self.input.as_ptr(), row_stride: k as isize },
                b: at(layer),
                c: self.output.as_mut_ptr(),
                c_stride: n,
                epilogue,
                tile_sizes: TileSizes::DEFAULT,
                ahead: Ahead::Next(next),
                wide: None,
            };
            // SAFETY: every buffer covers its extents; tasks are disjoint.
            run.parallel_for(g.tasks(isa), &|range| unsafe { g.run(isa, range) });
        }
        (2 * m * n * k * self.count) as f64 / t.elapsed().as_secs_f64() / 1e9
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(15), |a| a.parse())?;
    let isa = Isa::from_env()?;
    let shape = |m, n, k, cold, fused| Shape { m, n, k, cold, fused };
    let shapes = [
        shape(1024, 1024, 1024, false, false),
        shape(128, 384, 384, false, false),
        shape(128, 384, 384, true, false),
        shape(128, 1536, 384, true, false),
        shape(128, 1536, 384, true, true),
        shape(128, 384, 1536, false, false),
        shape(128, 384, 1536, true, false),
        shape(16, 384, 1536, true, false),
        shape(1, 4096, 4096, true, false),
        shape(2, 4096, 4096, true, false),
        shape(4, 4096, 4096, true, false),
        shape(8, 4096, 4096, true, false),
        shape(1, 768, 3072, true, false),
        shape(4, 768, 3072, true, false),
        shape(1, 768, 768, false, false),
        shape(4, 768, 768, false, false),
        shape(1, 128, 128, false, false),
    ];
    for threads in [1, 2] {
        let pool = Pool::new(threads)?;
        let mut run = pool.enter(Wake::Yes);
        let mut full: Vec<_> = shapes.iter().map(|&s| Layers::<f32>::new(s, |x| x)).collect();
        let mut brain: Vec<_> = shapes.iter().map(|&s| Layers::new(s, bf16::from_f32)).collect();
        let mut short: Vec<_> = shapes.iter().map(|&s| Layers::new(s, f16::from_f32)).collect();
        let (mut peaks, mut best) = ([0f64; 2], vec![[0f64; 3]; shapes.len()]);
        for _ in 0..rounds {
            peaks = [peaks[0].max(peak(isa, &mut run, false)), peaks[1].max(peak(isa, &mut run, true))];
            for (i, best) in best.iter_mut().enumerate() {
                let rates =
                    [full[i].run(isa, &mut run), brain[i].run(isa, &mut run), short[i].run(isa, &mut run)];
                (0..3).for_each(|t| best[t] = best[t].max(rates[t]));
            }
        }
        let how = isa.matmul_instructions(rlx_ir::DType::BF16);
        println!("{threads} threads, {}, bf16 by {how}; GFLOP/s, best of {rounds}", isa.kind());
        println!("  {:34} {:7.1} {:17.1}", "peak", peaks[0], peaks[1]);
        println!("  {:34} {:>7} {:>17} {:>8}", "M×N×K", "f32", "bf16", "f16");
        for (s, [f, b, h]) in shapes.iter().zip(&best) {
            let temperature = if s.cold { "cold" } else { "warm" };
            let fused = if s.fused { " +bias+gelu" } else { "" };
            let name = format!("{}x{}x{} {temperature}{fused}", s.m, s.n, s.k);
            println!("  {name:34} {f:7.1} {b:7.1} ({:5.1} %) {h:8.1}", 100.0 * b / peaks[1]);
        }
    }
    Ok(())
}
