//! The contract's device tests in a page, on WebGPU: a module that `crates/rlx-web/tests/contract.js` runs test by test.
//!
//! The calls of the contract wait for the device, which a page can do by giving up its turn ([`rlx_wgpu::set_turn`]): [`run`] is called as a
//! `WebAssembly.promising` export, and `turn.js` has the import that suspends it. A panic ends the module, so each test has a module of its own.
#![cfg(all(target_family = "wasm", target_os = "unknown"))]
// The files' tests that are not of a device need the test harness: they are left out here, and what only they use is unused.
#![allow(dead_code, unused_imports)]

use rlx_contract::{DeviceTest, Need};
use rlx_ir::op::BinaryOp;
use rlx_ir::{DType, Graph, Shape};
use rlx_runtime::backend::Backend;
use rlx_runtime::{Device, Session};
use rlx_wgpu::WgpuBackend;
use wasm_bindgen::prelude::*;

/// Takes the files with device tests in, and collects the tests.
macro_rules! device_tests {
    ($($(#[$at:meta])* $file:ident $(:: $inner:ident)*),* $(,)?) => {
        $( $(#[$at])* mod $file; )*
        const TESTS: &[&[DeviceTest]] = &[$( $file::ON_A_DEVICE, $( $file::$inner::ON_A_DEVICE, )* )*];
    };
}

device_tests!(
    aot,
    compiled,
    custom,
    handles,
    interning,
    moe,
    #[path = "pipelines/main.rs"]
    pipelines::caches,
    precision,
    requests,
    session,
    trace,
);

// Not by `wasm-bindgen`, whose functions of JavaScript around an import a call cannot be suspended through. It takes and gives nothing, so that
// it is safe to call.
#[link(wasm_import_module = "./turn.js")]
unsafe extern "C" {
    /// Suspends the call: other tasks of the page run.
    safe fn turn();
}

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = console, js_name = error)]
    fn console_error(text: &str);
}

/// Has panics say what is wrong: the trap that follows has no text.
#[wasm_bindgen(start)]
pub fn start() {
    std::panic::set_hook(Box::new(|info| console_error(&info.to_string())));
}

fn test(index: usize) -> Option<&'static DeviceTest> {
    TESTS.iter().copied().flatten().nth(index)
}

/// The name of test number `index`, where there is one.
#[wasm_bindgen]
pub fn name(index: usize) -> Option<String> {
    test(index).map(|test| test.name.trim_start_matches("contract_page::").to_owned())
}

/// Why a page cannot run test number `index`, where it cannot.
#[wasm_bindgen]
pub fn lack(index: usize) -> Option<String> {
    let need = test(index)?.needs.first()?;
    let lack = match need {
        Need::Files => "a page has no file system",
        Need::Unwinding => "a panic ends the module and cannot be caught",
        Need::Threads => "a page has one thread",
    };
    Some(lack.to_owned())
}

/// Runs test number `index`, and panics where something is wrong. The page calls it so that it can be suspended.
#[wasm_bindgen]
pub fn run(index: usize) {
    rlx_wgpu::set_turn(|| turn());
    let test = test(index).expect("a test of that number");
    (test.run)(Device::WebGpu);
}

/// What calls that wait report in a page that was not told how to give up its turn: the first use of a device that is not open, a run, and waiting for
/// all runs.
#[wasm_bindgen]
pub async fn without_turns() -> String {
    fn kind<T>(result: rlx_ir::Result<T>) -> String {
        result.map_or_else(|error| format!("{:?}", error.kind()), |_| "no error".to_owned())
    }
    let closed = kind(Session::try_new(Device::WebGpu));
    let backend = WgpuBackend::new(Device::WebGpu);
    let opened = kind(backend.open().await);
    let mut graph = Graph::new("double");
    let shape = Shape::new(&[2], DType::F32);
    let x = graph.input("x", shape.clone());
    let y = graph.binary(BinaryOp::Add, x, x, shape);
    graph.set_outputs(vec![y]);
    let run = Session::try_new(Device::WebGpu)
        .and_then(|session| Ok(session.try_compile(graph)?))
        .and_then(|mut compiled| compiled.try_run(&[("x", &[1.0, 2.0])]));
    [closed, opened, kind(run), kind(backend.drain())].join(", ")
}
