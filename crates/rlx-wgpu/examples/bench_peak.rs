//! How near matmuls come to what the device's arithmetic alone reaches: f32 beside a shader of multiply-adds, f16 beside one of products of cooperative
//! matrices, where the adapter has those that programs use.
//!
//! ```sh
//! cargo run --release -p rlx-wgpu --example bench_peak [ROWSxCOLUMNSxDEPTH…]
//! ```
//!
//! A row for each product: the shortest time of its steps on Vulkan, as the device's clock has it, and which part of the rate of arithmetic alone that is. Shaders of
//! arithmetic alone read and write nothing but a few numbers; they run for at least 20 ms, five times, and the shortest counts.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rlx_backend::{Backend, ExecutableGraph};
use rlx_driver::Device;
use rlx_gpu::block_on;
use rlx_ir::{DType, Error, ErrorKind, Graph, Op, Result, Shape, Weight};
use rlx_opt::{CompileOptions, CompilePipeline};
use rlx_wgpu::WgpuBackend;
use wgpu::util::DeviceExt;

/// Rows, columns and depth of what is multiplied if nothing is asked for.
const PRODUCTS: [[usize; 3]; 5] =
    [[4096, 4096, 4096], [2048, 5120, 5120], [1024, 4096, 4096], [512, 4096, 4096], [4096, 768, 3072]];

/// Runs of each product.
const RUNS: usize = 8;

/// Workgroups of the shaders of arithmetic alone: several for every multiprocessor.
const WORKGROUPS: u32 = 2048;

/// How long such a shader runs at least.
const LEAST: Duration = Duration::from_millis(20);

/// Eight chains of multiply-adds on vectors of four: 64 operations an invocation and round.
const MULTIPLY_ADDS: &str = "\
@group(0) @binding(0) var<storage, read_write> result: array<vec4<f32>>;
@group(0) @binding(1) var<uniform> numbers: vec4<f32>;
@compute @workgroup_size(128)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let first = vec4<f32>(f32(id.x));
  let factor = numbers.xxxx;
  let term = numbers.yyyy;
  var a = first; var b = first + 1.0; var c = first + 2.0; var d = first + 3.0;
  var e = first + 4.0; var f = first + 5.0; var g = first + 6.0; var h = first + 7.0;
  for (var i = 0u; i < u32(numbers.z); i++) {
    a = fma(a, factor, term); b = fma(b, factor, term); c = fma(c, factor, term); d = fma(d, factor, term);
    e = fma(e, factor, term); f = fma(f, factor, term); g = fma(g, factor, term); h = fma(h, factor, term);
  }
  result[id.x & 63u] = a + b + c + d + e + f + g + h;
}
";

/// Eight chains of products of matrices in each of four subgroups of 32: 8 × 4 × 2 · 16³ operations a workgroup and round.
const MATRICES: &str = "\
enable f16;
enable wgpu_cooperative_matrix;
@group(0) @binding(0) var<storage, read_write> result: array<vec4<f32>>;
@group(0) @binding(1) var<uniform> numbers: vec4<f32>;
var<workgroup> operand: array<vec4<f16>, 64>;
var<workgroup> sums: array<vec4<f32>, 256>;
@compute @workgroup_size(128)
fn main(@builtin(local_invocation_index) local: u32, @builtin(subgroup_id) subgroup: u32) {
  operand[local & 63u] = vec4<f16>(f16(numbers.x));
  workgroupBarrier();
  let left = coopLoadT<coop_mat16x16<f16, A>>(&operand[0], 4u);
  let right = coopLoadT<coop_mat16x16<f16, B>>(&operand[0], 4u);
  var a: coop_mat16x16<f32, C>; var b: coop_mat16x16<f32, C>; var c: coop_mat16x16<f32, C>; var d: coop_mat16x16<f32, C>;
  var e: coop_mat16x16<f32, C>; var f: coop_mat16x16<f32, C>; var g: coop_mat16x16<f32, C>; var h: coop_mat16x16<f32, C>;
  for (var i = 0u; i < u32(numbers.z); i++) {
    a = coopMultiplyAdd(left, right, a); b = coopMultiplyAdd(left, right, b);
    c = coopMultiplyAdd(left, right, c); d = coopMultiplyAdd(left, right, d);
    e = coopMultiplyAdd(left, right, e); f = coopMultiplyAdd(left, right, f);
    g = coopMultiplyAdd(left, right, g); h = coopMultiplyAdd(left, right, h);
  }
  let own = subgroup * 64u;
  coopStoreT(a + b + c + d + e + f + g + h, &sums[own], 4u);
  workgroupBarrier();
  result[local & 63u] = sums[own + (local & 63u)];
}
";

/// A shader of arithmetic alone.
struct Arithmetic {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipeline: wgpu::ComputePipeline,
    /// Operations of all workgroups in a round.
    operations: f64,
}

impl Arithmetic {
    /// On the first Vulkan adapter that has the features; `None` where there is none.
    fn new(source: &'static str, features: wgpu::Features, operations: f64) -> Option<Arithmetic> {
        let mut description = wgpu::InstanceDescriptor::new_without_display_handle();
        description.backends = wgpu::Backends::VULKAN;
        let adapters = block_on(wgpu::Instance::new(description).enumerate_adapters(wgpu::Backends::VULKAN));
        let adapter = adapters.into_iter().find(|a| a.features().contains(features))?;
        let experimental = match features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX) {
            // SAFETY: of what this allows, only cooperative matrices are used, by the one text above, whose loads and stores are whole within workgroup memory
            // and whose control flow is the same for all invocations.
            true => unsafe { wgpu::ExperimentalFeatures::enabled() },
            false => wgpu::ExperimentalFeatures::disabled(),
        };
        let description = wgpu::DeviceDescriptor {
            required_features: features,
            required_limits: adapter.limits(),
            experimental_features: experimental,
            ..Default::default()
        };
        let (device, queue) = block_on(adapter.request_device(&description)).ok()?;
        let source = wgpu::ShaderSource::Wgsl(source.into());
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: Default::default(),
            cache: None,
        });
        Some(Arithmetic { device, queue, pipeline, operations })
    }

    /// How long so many rounds take.
    fn time(&self, rounds: u32) -> Duration {
        let buffer = |usage, contents: &[u8]| {
            self.device.create_buffer_init(&wgpu::util::BufferInitDescriptor { label: None, contents, usage })
        };
        let numbers: Vec<u8> =
            [0.5, 1.0, rounds as f32, 0.0].iter().flat_map(|x: &f32| x.to_le_bytes()).collect();
        let buffers =
            [buffer(wgpu::BufferUsages::STORAGE, &[0; 1024]), buffer(wgpu::BufferUsages::UNIFORM, &numbers)];
        let entries: Vec<_> = (buffers.iter().enumerate())
            .map(|(i, b)| wgpu::BindGroupEntry { binding: i as u32, resource: b.as_entire_binding() })
            .collect();
        let layout = &self.pipeline.get_bind_group_layout(0);
        let group = wgpu::BindGroupDescriptor { label: None, layout, entries: &entries };
        let group = self.device.create_bind_group(&group);
        let mut encoder = self.device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&self.pipeline);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups(WORKGROUPS, 1, 1);
        }
        let commands = encoder.finish();
        let started = Instant::now();
        self.queue.submit([commands]);
        self.device.poll(wgpu::PollType::wait_indefinitely()).expect("the device waits");
        started.elapsed()
    }

    /// Operations in a second.
    fn rate(&self) -> f64 {
        let mut rounds = 16;
        while self.time(rounds) < LEAST && rounds < 1 << 22 {
            rounds *= 2;
        }
        let least = (0..5).map(|_| self.time(rounds)).min().unwrap_or(Duration::MAX);
        self.operations * f64::from(rounds) / least.as_secs_f64()
    }
}

/// The shortest time of the steps of a product, by the device's clock.
fn product([m, n, k]: [usize; 3], dtype: DType, backend: &WgpuBackend) -> Result<Duration> {
    let (options, mut graph) = (CompileOptions::default(), Graph::new("product"));
    let x = graph.input("x", Shape::new(&[m, k], dtype));
    let w = graph.param("w", Shape::new(&[k, n], dtype));
    let y = graph.try_add(Op::MatMul, &[x, w])?;
    graph.set_outputs(vec![y]);
    let lir = CompilePipeline::new(backend.target(&options)?, options.clone()).compile(&graph)?.lir;
    let mut executable: Box<dyn ExecutableGraph> = backend.compile(Arc::new(lir), &options)?;
    // Small numbers that are not all the same, of either type.
    let bytes = |count: usize| (0..count * dtype.size_bytes()).map(|i| (i % 53) as u8).collect::<Vec<u8>>();
    executable.set_param(0, Arc::new(Weight::owned(dtype, &[k, n], bytes(k * n))?))?;
    let (x, silent) = (bytes(m * k), || Error::new(ErrorKind::Unsupported, "the device has no clock"));
    executable.run(&&[&x[..]][..], &[])?;
    executable.profiler().ok_or_else(silent)?.start();
    for _ in 0..RUNS {
        executable.run(&&[&x[..]][..], &[])?;
    }
    Ok(executable.profiler().ok_or_else(silent)?.steps().iter().map(|step| step.least).sum())
}

fn measure() -> Result<()> {
    let size = |of: &str| -> Option<[usize; 3]> {
        of.split('x').map(|n| n.parse().ok()).collect::<Option<Vec<usize>>>()?.try_into().ok()
    };
    let mut products = Vec::new();
    for argument in std::env::args().skip(1) {
        let wrong = || Error::new(ErrorKind::Config, format!("\"{argument}\" is not ROWSxCOLUMNSxDEPTH"));
        products.push(size(&argument).ok_or_else(wrong)?);
    }
    if products.is_empty() {
        products.extend(PRODUCTS);
    }
    let backend = WgpuBackend::new(Device::Vulkan);
    println!("{}", backend.machine()?);
    let each = f64::from(WORKGROUPS);
    let matrices = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX
        .union(wgpu::Features::SHADER_F16)
        .union(wgpu::Features::SUBGROUP);
    let peaks = [
        (DType::F32, Arithmetic::new(MULTIPLY_ADDS, wgpu::Features::empty(), each * 128.0 * 64.0)),
        (DType::F16, Arithmetic::new(MATRICES, matrices, each * 32.0 * 8192.0)),
    ];
    println!("| rows × columns × depth | type | µs | TFLOP/s | arithmetic alone, TFLOP/s | reached |");
    println!("|---|---|---|---|---|---|");
    for (dtype, arithmetic) in peaks {
        let Some(arithmetic) = arithmetic else {
            println!("no adapter multiplies {dtype} on cooperative matrices");
            continue;
        };
        let peak = arithmetic.rate() * 1e-12;
        for [m, n, k] in &products {
            let took = product([*m, *n, *k], dtype, &backend)?.as_secs_f64();
            let rate = 2e-12 * (m * n * k) as f64 / took;
            let (us, part) = (took * 1e6, rate / peak * 100.0);
            println!("| {m} × {n} × {k} | {dtype} | {us:.1} | {rate:.3} | {peak:.3} | {part:.0} % |");
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
