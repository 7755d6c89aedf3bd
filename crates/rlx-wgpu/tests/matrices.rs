//! f16 on cooperative matrices, by wgpu's back end that does nothing and has every feature: what steps become, and that wgpu takes the programs.
//!
//! ```sh
//! cargo test -p rlx-wgpu --features noop --test matrices
//! ```

use std::process::Command;
use std::sync::Arc;

use rlx_backend::Backend;
use rlx_backend::testing::set_params;
use rlx_driver::Device;
use rlx_ir::testing::random_bindings;
use rlx_ir::{DimBinding, text};
use rlx_opt::{CompileOptions, CompilePipeline};
use rlx_wgpu::WgpuBackend;

/// What makes wgpu list the back end.
const ENABLED: &str = "WGPU_NOOP_BACKEND";

/// Runs a test again in a process where wgpu lists the back end; whether this is that process.
fn is_enabled(test: &str) -> bool {
    if std::env::var(ENABLED).is_ok_and(|value| value == "1") {
        return true;
    }
    let own = std::env::current_exe().unwrap();
    let output = Command::new(own).args(["--exact", test]).env(ENABLED, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    false
}

/// A graph's steps by name, compiled and run once.
fn schedules(graph: &str, input_bytes: &[usize]) -> Vec<String> {
    let (backend, options) = (WgpuBackend::new(Device::Gpu), CompileOptions::default());
    let target = backend.target(&options).unwrap();
    let graph = text::parse(graph).unwrap();
    let lir =
        Arc::new(CompilePipeline::new(Arc::clone(&target), options.clone()).compile(&graph).unwrap().lir);
    let names = lir.steps.iter().filter_map(|step| target.schedule(step, &lir)).collect();
    let mut executable = backend.compile(lir, &options).unwrap();
    set_params(&mut *executable, &random_bindings(&graph, &DimBinding::new(), 1)).unwrap();
    let inputs: Vec<Vec<u8>> = input_bytes.iter().map(|&n| vec![0; n]).collect();
    executable.submit(&&inputs[..], &[]).unwrap();
    executable.collect().unwrap();
    names
}

#[test]
fn products_of_half_precision_are_programs() {
    if !is_enabled("products_of_half_precision_are_programs") {
        return;
    }
    assert!(WgpuBackend::new(Device::Gpu).machine().unwrap().contains("coop16"));
    // With a bias and a ReLU, in one program.
    let layer = "graph \"layer\" {
  %0 = Input {name=\"x\"} : [64, 128] f16
  %1 = Input {name=\"w\"} : [128, 96] f16
  %2 = Input {name=\"b\"} : [96] f16
  %3 = MatMul(%0, %1) : [64, 96] f16
  %4 = Binary.Add(%3, %2) : [64, 96] f16
  %5 = Activation.Relu(%4) : [64, 96] f16
  return %5
}";
    let names = schedules(layer, &[64 * 128 * 2, 128 * 96 * 2, 96 * 2]);
    assert_eq!(names, ["tiles.coop16.64x64x32.2x2.s2"]);
    // A convolution is a product of windows; attention is decomposed, into products of f32.
    let conv = "graph \"conv\" {
  %0 = Input {name=\"x\"} : [1, 16, 12, 12] f16
  %1 = Param {name=\"w\"} : [32, 16, 3, 3] f16
  %2 = Conv(%0, %1) {strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1], groups=1, format=ChannelsFirst} : [1, 32, 12, 12] f16
  return %2
}";
    let attention = "graph \"attention\" {
  %0 = Input {name=\"q\"} : [2, 48, 64] f16
  %1 = Input {name=\"k\"} : [2, 48, 64] f16
  %2 = Input {name=\"v\"} : [2, 48, 64] f16
  %3 = Attention(%0, %1, %2) {num_heads=2, head_dim=32, mask=None, window=none, scale=none, unseen=Zero} : [2, 48, 64] f16
  return %3
}";
    let of_matrices = |names: &[String]| names.iter().filter(|name| name.contains("tiles.coop16")).count();
    let names = schedules(conv, &[16 * 144 * 2]);
    assert_eq!(of_matrices(&names), 1, "{names:?}");
    let names = schedules(attention, &[2 * 48 * 64 * 2; 3]);
    assert!(names.len() > 1 && of_matrices(&names) == 0, "{names:?}");
    // Other types keep their kernels.
    let plain = |ty: &str| {
        format!(
            "graph \"m\" {{\n  %0 = Input {{name=\"x\"}} : [64, 64] {ty}\n  %1 = Input {{name=\"w\"}} : [64, 64] {ty}\n  \
             %2 = MatMul(%0, %1) : [64, 64] {ty}\n  return %2\n}}"
        )
    };
    for (ty, bytes) in [("f32", 64 * 64 * 4), ("bf16", 64 * 64 * 2)] {
        let names = schedules(&plain(ty), &[bytes; 2]);
        assert!(names.iter().all(|name| !name.contains("coop16")), "{ty}: {names:?}");
    }
}
