//! Calibrating a device's cost model.
//!
//! Every cost is the time of a small graph, compiled and run like any other, so the same code measures every device.
//! A graph repeats one op, each reading the previous result. The minimum of several runs is used, since
//! disturbances only make a run longer. Each series of measurements goes from small to large sizes and stops when a run would
//! take too long or when the time budget is spent, so a slow device is measured at small sizes only.

use std::sync::Arc;
use std::time::Duration;

use rlx_backend::cost::{WorkKind, border_bytes, works};
use rlx_backend::{CompileCache, ExecutableGraph};
use rlx_driver::{Device, DeviceId};
use rlx_ir::clock::Instant;
use rlx_ir::lir::IoSlot;
use rlx_ir::progress::Stage;
use rlx_ir::{DType, Graph, GraphExt, LirModule, NodeId, Op, Progress, Result, Shape, Weight};
use rlx_opt::{CompileOptions, CompilePipeline};

use super::model::{Calibration, Curve, GemmPoint};
use crate::device::DeviceBackend;
use crate::panic_guard;
/// How long a measurement repeats runs.
const REPEAT: Duration = Duration::from_millis(3);
/// A run that takes longer is not repeated often, and nothing larger of its kind is measured.
const LONG: Duration = Duration::from_millis(60);
/// The time for everything on the CPU, and on a device whose kernels take longer to make.
const BUDGET: Duration = Duration::from_millis(1500);
const BUDGET_ELSEWHERE: Duration = Duration::from_secs(30);

/// Matmuls that are measured: rows, then the two dimensions of a square or of a pair of matrices there and back.
const GEMMS: [[usize; 3]; 26] = [
    [1, 32, 32],
    [1, 64, 64],
    [1, 128, 128],
    [1, 384, 384],
    [8, 32, 32],
    [8, 128, 128],
    [16, 384, 384],
    [64, 16, 64],
    [64, 64, 64],
    [128, 128, 128],
    [1, 128, 512],
    [1, 384, 1536],
    [64, 32, 32],
    [8, 64, 64],
    [128, 64, 256],
    [16, 128, 512],
    [512, 64, 64],
    [128, 32, 128],
    [128, 384, 384],
    [8, 384, 1536],
    [32, 768, 768],
    [1, 1536, 1536],
    [256, 256, 256],
    [128, 128, 512],
    [128, 384, 1536],
    [512, 512, 512],
];
/// Of these, how many are measured before anything else, since every model needs them.
const FIRST_GEMMS: usize = 12;
/// Convolutions: height and width, channels, window.
const WINDOWS: [[usize; 3]; 9] = [
    [8, 8, 3],
    [8, 16, 3],
    [16, 32, 3],
    [14, 64, 1],
    [28, 64, 3],
    [28, 128, 1],
    [14, 256, 3],
    [7, 512, 3],
    [56, 64, 3],
];
/// The number of these that are measured before the larger matmuls.
const FIRST_WINDOWS: usize = 5;

/// Measures the device of `on`; `progress` may stop it before any run.
///
/// # Errors
/// What compiling or running the smallest graphs reports, or being stopped.
pub(super) fn measure(on: &DeviceBackend, subject: String, progress: &Progress) -> Result<Calibration> {
    let budget = if on.device() == Device::Cpu { BUDGET } else { BUDGET_ELSEWHERE };
    let mut bench = Bench { on, progress, until: Instant::now() + budget, prices: Calibration::default() };
    bench.prices.subject = subject;
    bench.fixed_costs()?;
    // What all models need comes first, in case the time does not suffice for everything.
    bench.passes()?;
    bench.elementwise()?;
    bench.gemms(&GEMMS[..FIRST_GEMMS])?;
    bench.rows()?;
    bench.windows(&WINDOWS[..FIRST_WINDOWS])?;
    bench.attention()?;
    bench.slides()?;
    bench.gemms(&GEMMS[FIRST_GEMMS..])?;
    bench.windows(&WINDOWS[FIRST_WINDOWS..])?;
    Ok(bench.prices)
}

/// A measurement in progress.
struct Bench<'a> {
    on: &'a DeviceBackend,
    progress: &'a Progress,
    until: Instant,
    prices: Calibration,
}

/// A graph that is `repeats` of `op` in a row, on an input of these dimensions.
fn chain(dims: &[usize], repeats: usize, mut op: impl FnMut(&mut Graph, NodeId) -> NodeId) -> Graph {
    let mut graph = Graph::new("calibration");
    let mut x = graph.input("x", Shape::new(dims, DType::F32));
    for _ in 0..repeats {
        x = op(&mut graph, x);
    }
    graph.set_outputs(vec![x]);
    graph
}

/// A new parameter for each call.
fn param(graph: &mut Graph, dims: &[usize]) -> NodeId {
    let name = format!("p{}", graph.len());
    graph.param(name, Shape::new(dims, DType::F32))
}

/// Small numbers of both signs that keep chains of matmuls away from infinity and from denormals.
fn filling(n: usize, scale: f32) -> Vec<f32> {
    (0..n).map(|i| ((i * 7 % 17) as f32 - 8.0) / 8.0 * scale).collect()
}

/// The values as bytes of f32.
fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// A compiled graph of fixed dimensions, its parameters set.
struct Small {
    device: DeviceId,
    exec: Box<dyn ExecutableGraph>,
}

impl Small {
    fn lir(&self) -> &LirModule {
        self.exec.lir()
    }

    /// The smallest time of some runs, outputs included, in nanoseconds.
    fn min_time(&mut self, progress: &Progress) -> Result<f64> {
        let count = |slot: &IoSlot| slot.shape.num_elements().unwrap_or(0);
        let inputs: Vec<Vec<u8>> =
            self.lir().inputs.iter().map(|slot| bytes_of(&filling(count(slot), 1.0))).collect();
        let (device, outputs, exec) = (self.device, self.lir().outputs.len(), &mut self.exec);
        let mut timed = || {
            progress.check(Stage::Run)?;
            panic_guard::call(device, "running", || {
                let start = Instant::now();
                exec.run(&inputs.as_slice(), &[])?;
                (0..outputs).try_for_each(|i| exec.output(i).map(drop))?;
                Ok(start.elapsed())
            })
        };
        timed()?;
        let start = Instant::now();
        let mut best = timed()?;
        for run in 1..200 {
            if run >= 3 && start.elapsed() > REPEAT || best > LONG {
                break;
            }
            best = best.min(timed()?);
        }
        Ok(best.as_nanos() as f64)
    }
}

impl Bench<'_> {
    fn compile(&self, graph: Graph) -> Result<Small> {
        let options = CompileOptions::try_new()?;
        let device = self.on.device();
        let pipeline = CompilePipeline::new(self.on.target(&options)?, options.clone());
        let lir = panic_guard::call(device, "answering the compiler", || pipeline.compile(&graph))?.lir;
        let mut exec = self.on.executable(lir, &options, &CompileCache::default(), &Progress::none())?.exec;
        let weights = exec.lir().params.iter().map(|slot| {
            let n = slot.shape.num_elements().unwrap_or(0);
            Weight::owned(
                DType::F32,
                &slot.shape.static_dims().unwrap_or_default(),
                bytes_of(&filling(n, 0.1)),
            )
        });
        let weights: Vec<Weight> = weights.collect::<Result<_>>()?;
        panic_guard::call(device, "taking a parameter", || {
            weights.into_iter().enumerate().try_for_each(|(i, weight)| exec.set_param(i, Arc::new(weight)))
        })?;
        Ok(Small { device, exec })
    }

    /// The smallest time of a graph.
    fn time(&self, graph: Graph) -> Result<f64> {
        self.compile(graph)?.min_time(self.progress)
    }

    /// The smallest time of a graph's steps alone, without work.
    fn time_of_work(&self, graph: Graph) -> Result<f64> {
        let mut compiled = self.compile(graph)?;
        let lir = compiled.lir();
        let fixed = self.prices.run_ns
            + border_bytes(lir) * self.prices.transfer_ns
            + lir.steps.len() as f64 * self.prices.step_ns;
        let time = compiled.min_time(self.progress)?;
        // Noise in what is taken off must not make work cheaper than it can be.
        Ok((time - fixed).max(0.05 * time))
    }

    /// Whether there is time for another measurement of a kind whose last one took `last` nanoseconds.
    fn goes_on(&self, last: f64) -> bool {
        last < LONG.as_nanos() as f64 && Instant::now() < self.until
    }

    /// A run and a step without work, and bytes to the device and back.
    fn fixed_costs(&mut self) -> Result<()> {
        let steps = |n| chain(&[4, 4], n, |g, x| g.sm(x, -1));
        let (one, many) = (self.time(steps(1))?, self.time(steps(25))?);
        self.prices.step_ns = ((many - one) / 24.0).max(1.0);
        self.prices.run_ns = (one - self.prices.step_ns).max(1.0);
        if self.on.device() != Device::Cpu {
            // The CPU reads inputs and gives outputs in place.
            let relu = |n| chain(&[n], 1, |g, x| g.relu(x));
            let (few, many) = (4096, 1 << 20);
            let slope = (self.time(relu(many))? - self.time(relu(few))?) / (8 * (many - few)) as f64;
            self.prices.transfer_ns = slope.max(0.0);
        }
        Ok(())
    }

    /// Passes over memory: the rows' maximum, and its difference to each element, which is three of them.
    fn passes(&mut self) -> Result<()> {
        let mut last = 0.0;
        for rows in [4, 256, 2048, 16384] {
            if rows > 4 && !self.goes_on(last) {
                break;
            }
            let pair = |g: &mut Graph, x| {
                let top = g.reduce_(x, rlx_ir::op::ReduceOp::Max, &[-1], true);
                g.sub(x, top)
            };
            let bytes = (rows * 256 * 4) as f64;
            let repeats = if rows < 4096 { 4 } else { 1 };
            last = self.time_of_work(chain(&[rows, 256], repeats, pair))?;
            self.prices.passes.add(2.0 * bytes, last / (repeats as f64 * 3.0 * bytes));
        }
        Ok(())
    }

    /// Elementwise operations within a step: what more of them cost.
    fn elementwise(&mut self) -> Result<()> {
        const N: usize = 1 << 14;
        let cheap = |pairs| {
            let mut graph = Graph::new("calibration");
            let shape = Shape::new(&[N], DType::F32);
            let (mut x, z) = (graph.input("x", shape.clone()), graph.input("z", shape));
            for _ in 0..pairs {
                x = graph.mul(x, z);
                x = graph.add(x, z);
            }
            graph.set_outputs(vec![x]);
            graph
        };
        let costly = |n| chain(&[N], n, |g, x| g.gelu(x));
        let slope = |long: f64, short: f64, ops: usize| ((long - short) / (ops * N) as f64).max(0.0);
        self.prices.cheap_ns = slope(self.time(cheap(9))?, self.time(cheap(1))?, 16);
        self.prices.costly_ns = slope(self.time(costly(4))?, self.time(costly(1))?, 3);
        Ok(())
    }

    fn gemms(&mut self, shapes: &[[usize; 3]]) -> Result<()> {
        let mut longest = 0.0;
        for &[m, a, b] in shapes {
            if !self.prices.products.is_empty() && !self.goes_on(longest) {
                break;
            }
            let graph = chain(&[m, a], 2, |g, x| {
                let there = param(g, &[a, b]);
                let back = param(g, &[b, a]);
                let y = g.mm(x, there);
                g.mm(y, back)
            });
            let time = self.time_of_work(graph)?;
            longest = f64::max(longest, time);
            let ns_per_flop = time / (4.0 * 2.0 * (m * a * b) as f64);
            if m == 1 {
                // Two operations for each element of a matrix; all four are between two uses of one.
                let element = std::mem::size_of::<f32>() as f64;
                self.prices.streams.add(4.0 * (a * b) as f64 * element, 2.0 * ns_per_flop / element);
            }
            for (k, n) in [(a, b), (b, a)] {
                let dims = [m as f64, n as f64, k as f64];
                self.prices.products.push(GemmPoint { dims, ns_per_flop });
                if a == b {
                    break;
                }
            }
        }
        Ok(())
    }

    fn windows(&mut self, shapes: &[[usize; 3]]) -> Result<()> {
        let mut longest = 0.0;
        for &[side, channels, window] in shapes {
            if !self.goes_on(longest) {
                break;
            }
            let graph = |n| {
                chain(&[1, channels, side, side], n, |g, x| {
                    let w = param(g, &[channels, channels, window, window]);
                    g.conv2d(x, w, [window; 2], [1; 2], [window / 2; 2], [1; 2], 1)
                })
            };
            // A device may want another layout: what changing it at both ends takes is in both times.
            let (one, three) = (self.time(graph(1))?, self.time(graph(3))?);
            longest = f64::max(longest, three);
            let time = ((three - one) / 2.0 - self.prices.step_ns).max(0.05 * one);
            let (m, k) = ((side * side) as f64, (channels * window * window) as f64);
            let ns_per_flop = time / (2.0 * m * k * channels as f64);
            self.prices.windows.push(GemmPoint { dims: [m, channels as f64, k], ns_per_flop });
        }
        Ok(())
    }

    fn rows(&mut self) -> Result<()> {
        let (mut softmax, mut norms) = (Curve::default(), Curve::default());
        let mut last = 0.0;
        for dims in [[4, 64], [128, 128], [512, 512]] {
            if dims[0] > 4 && !self.goes_on(last) {
                break;
            }
            let (elements, repeats) = ((dims[0] * dims[1]) as f64, 3);
            let bytes = 8.0 * elements;
            last = self.time_of_work(chain(&dims, repeats, |g, x| g.sm(x, -1)))?;
            softmax.add(bytes, last / (repeats as f64 * 5.0 * elements));
            let norm = |g: &mut Graph, x| {
                let (gamma, beta) = (param(g, &dims[1..]), param(g, &dims[1..]));
                g.layer_norm_(x, gamma, beta, -1, 1e-5)
            };
            let time = self.time_of_work(chain(&dims, repeats, norm))?;
            norms.add(bytes, time / (repeats as f64 * 8.0 * elements));
        }
        (self.prices.softmax, self.prices.norms) = (softmax, norms);
        Ok(())
    }

    /// Attention, if the device has a kernel for it; otherwise it is matmuls and softmax.
    fn attention(&mut self) -> Result<()> {
        let (heads, head_dim, repeats) = (4, 32, 2);
        let mut last = 0.0;
        for keys in [8usize, 32, 128] {
            if !self.goes_on(last) {
                break;
            }
            let op = Op::Attention {
                num_heads: heads,
                head_dim,
                mask: rlx_ir::op::MaskKind::None,
                window: None,
                scale: None,
                unseen: rlx_ir::op::Unseen::Zero,
            };
            let graph = chain(&[1, heads, keys, head_dim], repeats, |g, x| {
                let shape = g.shape(x).clone();
                g.add_node(op.clone(), vec![x, x, x], shape)
            });
            let native =
                |c: &Small| works(c.lir()).iter().any(|w| matches!(w.kind, WorkKind::Attention { .. }));
            if !native(&self.compile(graph.clone())?) {
                break;
            }
            last = self.time_of_work(graph)?;
            let flops = (heads * keys * keys * (4 * head_dim + 5) * repeats) as f64;
            self.prices.attention.add(keys as f64, last / flops);
        }
        Ok(())
    }

    /// Windows that slide over each channel alone.
    fn slides(&mut self) -> Result<()> {
        let mut last = 0.0;
        for (side, channels) in [(8usize, 16usize), (28, 128), (56, 64)] {
            if !self.goes_on(last) {
                break;
            }
            let graph = |n| {
                chain(&[1, channels, side, side], n, |g, x| {
                    let w = param(g, &[channels, 1, 3, 3]);
                    g.conv2d(x, w, [3; 2], [1; 2], [1; 2], [1; 2], channels)
                })
            };
            let (one, three) = (self.time(graph(1))?, self.time(graph(3))?);
            last = three;
            let time = ((three - one) / 2.0 - self.prices.step_ns).max(0.05 * one);
            let elements = (side * side * channels) as f64;
            self.prices.slides.add(8.0 * elements, time / (18.0 * elements));
        }
        Ok(())
    }
}
