//! The text runs on Vulkan without cooperative matrices: functions in WGSL stand for the few that no driver here has, and all else is as it is.
//!
//! A matrix of an operand is where it begins in its tile, and a matrix of sums is 8 of them for each invocation, other ones than the text stores. Which
//! invocations are a subgroup is other than their order, too, so that a text that depends on either is wrong here.

use rlx_ir::DType;
use rlx_ir::testing::Gen;
use rlx_kernel::interp::Pools;
use rlx_kernel::render::uniform_bytes;
use rlx_tile::ir::Program;
use rlx_tile::render::source;
use rlx_tile::schedule::{Matmul, tilings};
use rlx_tile::{Arch, interp};
use wgpu::util::DeviceExt;

use crate::common::Case;
use crate::common::convs::ConvCase;
use crate::common::prologue::PrologueCase;
use crate::{conv_case, matmul_case, prologue_case};

/// Random programs of each kind on the device; with `RLX_TEST_ALL` five times as many.
const CASES: u64 = 16;

/// What stands for cooperative matrices. `one` is a 1 that no compiler knows: it would write out all loops, which takes it minutes.
const FUNCTIONS: &str = "
struct Operand { at: u32, stride: u32, by_rows: bool }
struct Sums { low: vec4<f32>, high: vec4<f32> }
fn left(m: Operand, row: u32, k: u32) -> f32 {
  let at = 4u * m.at + select(k * 4u * m.stride + row, row * 4u * m.stride + k, m.by_rows);
  return f32(t0[at / 4u][at % 4u]);
}
fn right(m: Operand, k: u32, col: u32) -> f32 {
  let at = 4u * m.at + select(col * 4u * m.stride + k, k * 4u * m.stride + col, m.by_rows);
  return f32(t1[at / 4u][at % 4u]);
}
fn multiply(a: Operand, b: Operand, c: Sums, lane: u32, one: u32) -> Sums {
  var sums = c;
  let row = lane % 16u;
  for (var e = 0u; e < 8u * one; e++) {
    var sum = 0.0f;
    for (var k = 0u; k < 16u * one; k++) { sum += left(a, row, k) * right(b, k, lane / 16u * 8u + e); }
    if (e < 4u) { sums.low[e] += sum; } else { sums.high[e - 4u] += sum; }
  }
  return sums;
}
fn put(sums: Sums, at: u32, lane: u32) {
  let own = at + lane % 16u * 4u + lane / 16u * 2u;
  exchanged[own] = sums.low;
  exchanged[own + 1u] = sums.high;
}
";

/// The text with [`FUNCTIONS`]; it has nothing else that this device does not.
fn without_matrices(program: &Program, text: &str) -> String {
    let warps = program.warps.0 * program.warps.1;
    let mut out = String::new();
    for line in text.lines() {
        let line = match line.trim_start() {
            "enable wgpu_cooperative_matrix;" => continue,
            of if of.contains("coopLoad") => {
                let by_rows = of.contains("coopLoadT");
                let (name, rest) = of.split_once(" = ").unwrap();
                let (_, place) = rest.split_once('[').unwrap();
                let (at, stride) = place.rsplit_once("], ").unwrap();
                format!("{name} = Operand(u32({at}), {}, {by_rows});", stride.trim_end_matches(");"))
            }
            of if of.contains("coopMultiplyAdd(") => {
                of.replace("coopMultiplyAdd(", "multiply(").replace(");", ", lane, blocks.z);")
            }
            of => of
                .replace("coop_mat16x16<f32, C>", "Sums")
                .replace("coopStoreT(", "put(")
                .replace("&exchanged[subgroup * 64u], 4u", "subgroup * 64u, lane")
                .replace(" @builtin(subgroup_id) subgroup: u32,", "")
                .replace(
                    "let thread =",
                    &format!("let subgroup = local % {warps}u; let lane = local / {warps}u; let thread ="),
                ),
        };
        out.push_str(&line);
        out.push('\n');
    }
    assert!(!out.contains("coop") || out.matches("coop").count() == out.matches("coop16").count(), "{out}");
    out.replace("@compute", &format!("{FUNCTIONS}@compute"))
}

struct Device {
    device: wgpu::Device,
    queue: wgpu::Queue,
    shared: u64,
}

/// A Vulkan device with half precision, or whether there is any without.
fn device() -> Result<Device, bool> {
    let mut description = wgpu::InstanceDescriptor::new_without_display_handle();
    description.backends = wgpu::Backends::VULKAN;
    let instance = wgpu::Instance::new(description);
    let adapters = futures(instance.enumerate_adapters(wgpu::Backends::VULKAN));
    let has_others = !adapters.is_empty();
    let with_half = adapters.into_iter().find(|a| a.features().contains(wgpu::Features::SHADER_F16));
    let adapter = with_half.ok_or(has_others)?;
    let limits = adapter.limits();
    let description = wgpu::DeviceDescriptor {
        required_features: wgpu::Features::SHADER_F16,
        required_limits: limits.clone(),
        ..Default::default()
    };
    let (device, queue) = futures(adapter.request_device(&description)).unwrap();
    Ok(Device { device, queue, shared: u64::from(limits.max_compute_workgroup_storage_size) })
}

/// The value of a future that needs no one to wake it.
fn futures<T>(of: impl Future<Output = T>) -> T {
    let mut of = std::pin::pin!(of);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(value) = of.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::yield_now();
    }
}

impl Device {
    /// What a dispatch of the text leaves in the buffer of the result.
    fn run(&self, program: &Program, (pools, uniforms): (&[Vec<u8>], &[i32]), text: &str) -> Vec<u8> {
        let (device, queue) = (&self.device, &self.queue);
        let buffer = |bytes: &[u8], usage| {
            let mut contents = bytes.to_vec();
            contents.resize(contents.len().next_multiple_of(16).max(16), 0);
            device.create_buffer_init(&wgpu::util::BufferInitDescriptor {
                label: None,
                contents: &contents,
                usage,
            })
        };
        let storage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
        let mut buffers = vec![buffer(&uniform_bytes(uniforms, 0), wgpu::BufferUsages::UNIFORM)];
        buffers.extend(pools.iter().map(|pool| buffer(pool, storage)));
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Wgsl(text.into()),
        });
        let ty = |i: usize| match i.checked_sub(1) {
            None => wgpu::BufferBindingType::Uniform,
            Some(i) => wgpu::BufferBindingType::Storage { read_only: i != 2 },
        };
        let entry = |i: usize| wgpu::BindGroupLayoutEntry {
            binding: i as u32,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty: ty(i), has_dynamic_offset: false, min_binding_size: None },
            count: None,
        };
        let entries: Vec<_> = (0..buffers.len()).map(entry).collect();
        let layout = device
            .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
        let whole = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 0,
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: Some(&whole),
            module: &module,
            entry_point: Some("main"),
            compilation_options: Default::default(),
            cache: None,
        });
        let entries: Vec<_> = (buffers.iter().enumerate())
            .map(|(i, b)| wgpu::BindGroupEntry { binding: i as u32, resource: b.as_entire_binding() })
            .collect();
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &layout,
            entries: &entries,
        });
        let (usage, size) = (wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST, buffers[3].size());
        let back = device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size,
            usage,
            mapped_at_creation: false,
        });
        let mut encoder = device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&pipeline);
            pass.set_bind_group(0, &group, &[]);
            // More workgroups than tiles, as of a grid that is rounded up.
            pass.dispatch_workgroups(interp::workgroups(program, uniforms).div_ceil(2) as u32, 2, 1);
        }
        encoder.copy_buffer_to_buffer(&buffers[3], 0, &back, 0, size);
        queue.submit([encoder.finish()]);
        back.map_async(wgpu::MapMode::Read, .., |mapped| mapped.unwrap());
        device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
        back.get_mapped_range(..).unwrap()[..pools[2].len()].to_vec()
    }
}

/// The first of a seed's that the device has workgroup memory for.
fn first<T>(shared: u64, seed: u64, of: impl Fn(u64) -> T, program: impl Fn(&T) -> Program) -> T {
    let all = (0..).map(|salt| of(1000 * (seed + 1) + 16 * salt + seed % 16));
    all.into_iter().find(|case| program(case).shared_bytes() <= shared).expect("some tilings are small")
}

/// The device, or a named skip.
///
/// # Panics
/// Where there is no Vulkan device and `RLX_TEST_DEVICES` names it.
fn opened() -> Option<Device> {
    let found = device();
    if let Err(has_others) = found {
        let required = std::env::var("RLX_TEST_DEVICES").unwrap_or_default();
        let named = required.split(',').any(|name| name == "vulkan");
        assert!(has_others || !named, "RLX_TEST_DEVICES names vulkan: there is no device");
        let others = if has_others { " with half precision" } else { "" };
        println!("@skip 1 texts for cooperative matrices: no Vulkan device{others}");
    }
    found.ok()
}

#[test]
fn texts_compute_on_a_device_without_matrices() {
    let Some(device) = opened() else { return };
    let all = std::env::var_os("RLX_TEST_ALL").is_some();
    for seed in 0..if all { 5 * CASES } else { CASES } {
        let run = |program: &Program, memory: Pools, uniforms: &[i32]| {
            let text = without_matrices(program, &source(program, "main").unwrap());
            device.run(program, (&memory.0, uniforms), &text)
        };
        let case = first(device.shared, seed, matmul_case, Case::program);
        let result = run(&case.program(), case.memory().0, &case.uniforms());
        if !case.what.parts {
            case.check(&result);
        }
        let case = first(device.shared, seed, conv_case, ConvCase::program);
        case.check(&run(&case.program(), case.memory().0, &case.uniforms()));
        let case = first(device.shared, seed, prologue_case, PrologueCase::program);
        case.case.check(&run(&case.program(), case.memory().0, &case.uniforms()));
    }
}

/// Texts that are wrong in one place, which the parser takes: they give something else.
#[test]
fn damaged_texts_compute_something_else() {
    let Some(device) = opened() else { return };
    let tiling = tilings(Arch::Coop16)[5];
    let (what, sizes) = (Matmul::new(DType::F16), (40, 80, 136));
    let case = Case::of(&mut Gen::new(5), Arch::Coop16, tiling, what, sizes, Vec::new());
    let mut case = case;
    case.clear_bodies();
    let program = case.program();
    let text = source(&program, "main").unwrap();
    let (memory, uniforms) = (case.memory().0, case.uniforms());
    let run = |text: &str| device.run(&program, (&memory.0, &uniforms), &without_matrices(&program, text));
    let right = run(&text);
    case.check(&right);
    for (from, to) in [
        // Another stride, another order, another matrix, a stage that is not the one copied to, a store of the neighbour's sums, no rounding up.
        ("], 18u)", "], 16u)"),
        ("coopLoadT<coop_mat16x16<f16, A>>", "coopLoad<coop_mat16x16<f16, A>>"),
        ("coopMultiplyAdd(f1_0_0, f2_0_1", "coopMultiplyAdd(f1_0_0, f2_0_0"),
        ("(u32(c0) + 0u) % 2u", "(u32(c0) + 1u) % 2u"),
        ("let xh = exchanged[own + 1i];", "let xh = exchanged[own];"),
        (" + i32(d2 % 64i > 0i)", ""),
    ] {
        assert!(text.contains(from), "{from}\n{text}");
        assert!(run(&text.replace(from, to)) != right, "{from} as {to}");
    }
}
