//! How long each variant of a step takes, on Vulkan and OpenGL: matmuls and convolutions of common models, the experts of a mixture, and what moves elements.
//!
//! ```sh
//! cargo run --release -p rlx-wgpu --example bench_variants [vulkan|opengl] [ROUNDS] [PART_OF_A_NAME]
//! ```
//!
//! A row for each step: the smallest time of a run by the variant that is taken unmeasured, then how many times that each other
//! variant takes. A run uploads the input, computes, and downloads the result. The variants take turns, and their results
//! are compared bit by bit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rlx_backend::tuning::Tuning;
use rlx_backend::{Backend, CompileCache, ExecutableGraph};
use rlx_driver::Device;
use rlx_ir::op::{BinaryOp, DataFormat};
use rlx_ir::{DType, Error, ErrorKind, Graph, LirModule, Op, Result, Shape, Weight};
use rlx_opt::{CompileOptions, CompilePipeline};
use rlx_wgpu::WgpuBackend;

/// A step: its name, what it computes, the dimensions of its input and of its weights, if it has any; those of a gather are places. Then what is added to that.
struct Case {
    name: &'static str,
    op: Op,
    x: Vec<usize>,
    w: Vec<usize>,
    added: Vec<Vec<usize>>,
}

impl Case {
    fn new(name: &'static str, op: Op, x: &[usize], w: &[usize]) -> Case {
        Case { name, op, x: x.to_vec(), w: w.to_vec(), added: Vec::new() }
    }
}

fn product(name: &'static str, x: &[usize], w: &[usize]) -> Case {
    Case::new(name, Op::MatMul, x, w)
}

fn add(name: &'static str, x: &[usize], w: &[usize]) -> Case {
    Case::new(name, Op::Binary(BinaryOp::Add), x, w)
}

fn transpose(name: &'static str, x: &[usize], perm: &[usize]) -> Case {
    Case::new(name, Op::Transpose { perm: perm.to_vec() }, x, &[])
}

fn gather(name: &'static str, x: &[usize], axis: usize, places: usize) -> Case {
    Case::new(name, Op::Gather { axis }, x, &[places])
}

/// Rows of a table, each with a position and a type added to it.
fn embedding(name: &'static str, [table, width]: [usize; 2], rows: usize) -> Case {
    Case { added: vec![vec![rows, width], vec![width]], ..gather(name, &[table, width], 0, rows) }
}

/// Rows of which each chooses two of some experts.
fn experts(name: &'static str, rows: usize, w: &[usize; 3]) -> Case {
    Case::new(name, Op::GroupedMatMul, &[rows, 1, w[1]], w)
}

/// A square convolution of one image: channels in and out, groups, size of the image, of the kernel, and stride.
fn conv(name: &'static str, [c, out, groups]: [usize; 3], [image, kernel, stride]: [usize; 3]) -> Case {
    let (strides, pads, dilations) = (vec![stride; 2], vec![kernel / 2; 4], vec![1; 2]);
    let op = Op::Conv { strides, pads, dilations, groups, format: DataFormat::ChannelsFirst };
    Case::new(name, op, &[1, c, image, image], &[out, c / groups, kernel, kernel])
}

fn cases() -> Vec<Case> {
    vec![
        product("128×384 · 384×384", &[128, 384], &[384, 384]),
        product("128×384 · 384×1536", &[128, 384], &[384, 1536]),
        product("128×1536 · 1536×384", &[128, 1536], &[1536, 384]),
        product("16×384 · 384×384", &[16, 384], &[384, 384]),
        product("1×384 · 384×384", &[1, 384], &[384, 384]),
        product("1×768 · 768×3072", &[1, 768], &[768, 3072]),
        product("12 × 128×32 · 32×128", &[12, 128, 32], &[12, 32, 128]),
        product("12 × 128×128 · 128×32", &[12, 128, 128], &[12, 128, 32]),
        experts("64 rows, 2 of 8 × 512×512", 64, &[8, 512, 512]),
        experts("1 row, 2 of 8 × 512×512", 1, &[8, 512, 512]),
        conv("conv 3×3, 64→64, 56²", [64, 64, 1], [56, 3, 1]),
        conv("conv 3×3, 128→128, 28²", [128, 128, 1], [28, 3, 1]),
        conv("conv 3×3, 256→256, 14²", [256, 256, 1], [14, 3, 1]),
        conv("conv 3×3, 512→512, 7²", [512, 512, 1], [7, 3, 1]),
        conv("conv 1×1, 64→256, 56²", [64, 256, 1], [56, 1, 1]),
        conv("conv 7×7 by 2, 3→64, 112²", [3, 64, 1], [112, 7, 2]),
        conv("conv 3×3, 96 alone, 56²", [96, 96, 96], [56, 3, 1]),
        add("128×1536 + 1536", &[128, 1536], &[1536]),
        add("64×112×112 + 64×1×1", &[64, 112, 112], &[64, 1, 1]),
        transpose("128×12×64 transposed", &[128, 12, 64], &[1, 2, 0]),
        transpose("96×56×56 transposed", &[96, 56, 56], &[1, 2, 0]),
        gather("512 of 1000×384", &[1000, 384], 0, 512),
        gather("200 of 60×300×50", &[60, 300, 50], 1, 200),
        gather("4096 of 1000×384", &[1000, 384], 0, 4096),
        embedding("4096 of 1000×384, and two sums", [1000, 384], 4096),
    ]
}

/// Numbers between -1 and 1 that differ.
fn values(dims: &[usize]) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (f64::from(state) / f64::from(u32::MAX) * 2.0 - 1.0) as f32
    };
    (0..dims.iter().product()).flat_map(|_| next().to_le_bytes()).collect()
}

impl Case {
    /// What the step reads beside its input: weights, or places.
    fn weights(&self) -> Result<Vec<Weight>> {
        let places = |dims: &[usize], most: usize| {
            let number = |i: usize| ((i * 37 % most) as i32).to_le_bytes();
            let bytes: Vec<u8> = (0..dims.iter().product::<usize>()).flat_map(number).collect();
            Weight::owned(DType::I32, dims, bytes)
        };
        let numbers = || Weight::owned(DType::F32, &self.w, values(&self.w));
        let mut weights = match self.op {
            Op::Gather { axis } => vec![places(&self.w, self.x[axis])?],
            Op::GroupedMatMul => vec![numbers()?, places(&[self.x[0], 2], self.w[0])?],
            _ if self.w.is_empty() => Vec::new(),
            _ => vec![numbers()?],
        };
        for dims in &self.added {
            weights.push(Weight::owned(DType::F32, dims, values(dims))?);
        }
        Ok(weights)
    }
}

fn module(case: &Case, backend: &WgpuBackend, options: &CompileOptions) -> Result<Arc<LirModule>> {
    let mut graph = Graph::new(case.name);
    let x = graph.input("x", Shape::new(&case.x, DType::F32));
    let mut operands = vec![x];
    for (i, w) in case.weights()?.iter().enumerate() {
        operands.push(graph.param(format!("w{i}"), Shape::new(w.dims(), w.dtype())));
    }
    let added = operands.split_off(operands.len() - case.added.len());
    let mut y = graph.try_add(case.op.clone(), &operands)?;
    for other in added {
        y = graph.try_add(Op::Binary(BinaryOp::Add), &[y, other])?;
    }
    graph.set_outputs(vec![y]);
    Ok(Arc::new(CompilePipeline::new(backend.target(options)?, options.clone()).compile(&graph)?.lir))
}

/// The smallest time of each variant of a case, first the one taken unmeasured.
fn measure(case: &Case, backend: &WgpuBackend, rounds: usize) -> Result<Vec<(String, Duration)>> {
    let options = CompileOptions::default();
    let lir = module(case, backend, &options)?;
    let no_variants = || Error::new(ErrorKind::Internal, format!("{} has one variant only", case.name));
    let step = lir.steps.first().ok_or_else(no_variants)?;
    let key = backend.tuning_key(&lir, step, &options)?.ok_or_else(no_variants)?;
    let (x, weights) = (values(&case.x), case.weights()?.into_iter().map(Arc::new).collect::<Vec<_>>());
    let mut executables: Vec<Box<dyn ExecutableGraph>> = Vec::new();
    for variant in 0..key.variants.len() {
        let mut tuning = Tuning::default();
        tuning.choose(&key, variant);
        let kept = CompileCache { tuning, ..CompileCache::default() };
        let mut executable = backend.compile_cached(Arc::clone(&lir), &options, &kept)?;
        for (i, w) in weights.iter().enumerate() {
            executable.set_param(i, Arc::clone(w))?;
        }
        executables.push(executable);
    }
    let mut least = vec![Duration::MAX; executables.len()];
    // The first round makes buffers and packs weights.
    for round in 0..=rounds {
        for (executable, least) in executables.iter_mut().zip(&mut least) {
            let started = Instant::now();
            executable.run(&&[&x[..]][..], &[])?;
            if round > 0 {
                *least = started.elapsed().min(*least);
            }
        }
    }
    let first = executables[0].output(0)?;
    for (executable, variant) in executables.iter().zip(&key.variants) {
        if executable.output(0)? != first {
            return Err(Error::new(
                ErrorKind::Internal,
                format!("{}: {variant} gives other bits", case.name),
            ));
        }
    }
    Ok(key.variants.into_iter().zip(least).collect())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds = arguments.iter().find_map(|a| a.parse().ok()).unwrap_or(5);
    let is_part = |a: &&String| a.parse::<usize>().is_err() && a.parse::<Device>().is_err();
    let part = arguments.iter().find(is_part).map_or("", String::as_str);
    let named: Vec<Device> = arguments.iter().filter_map(|a| a.parse().ok()).collect();
    let devices = if named.is_empty() { vec![Device::Vulkan, Device::OpenGl] } else { named };
    for device in devices {
        let backend = WgpuBackend::new(device);
        if let Err(missing) = backend.probe() {
            println!("{device}: {missing}");
            continue;
        }
        println!("\n{device}: {}, smallest of {rounds}\n", backend.machine()?);
        println!("| step | unmeasured | ms | fastest | × | others, × |\n|---|---|---|---|---|---|");
        for case in cases().into_iter().filter(|case| case.name.contains(part)) {
            let times = measure(&case, &backend, rounds)?;
            let (first, base) = (&times[0].0, times[0].1.as_secs_f64());
            let mut ranked: Vec<(&str, f64)> =
                times.iter().map(|(variant, t)| (variant.as_str(), t.as_secs_f64() / base)).collect();
            ranked.sort_by(|a, b| a.1.total_cmp(&b.1));
            let others: Vec<String> = ranked[1..]
                .iter()
                .filter(|(variant, _)| variant != first)
                .map(|(variant, x)| format!("{variant} {x:.2}"))
                .collect();
            let (fastest, x) = ranked[0];
            let others = others.join(", ");
            println!("| {} | {first} | {:.2} | {fastest} | {x:.2} | {others} |", case.name, base * 1e3);
        }
    }
    Ok(())
}
