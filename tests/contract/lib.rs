//! What the contract's tests share: on which devices they run, and a backend from outside.
//!
//! The tests are beside this file, one for each section of the public contract, and use public names only. The
//! outside backend computes by the oracle and claims every op but `Custom` and those that count: registered for a device that has no
//! backend of its own, it shows that the contract's calls work with any backend, and lets the runtime be tested
//! apart from the CPU's kernels.
#![forbid(unsafe_code)]

#[cfg(feature = "ane")]
mod packages;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rlx_ir::lir::View;
use rlx_ir::op::PackFormat;
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::{DimBinding, Error, ErrorKind, Graph, LirModule, Node, Op, Result, Shape, Value, Weight};
use rlx_opt::{Claim, CompileOptions, Target};
use rlx_runtime::backend::{Backend, ExecutableGraph, InputSource, MemoryInfo};
use rlx_runtime::cost::{BackendCostModel, Work};
use rlx_runtime::{Device, register_backend};

/// The device the oracle's backend is registered for: one without a backend of its own, which in a page is not WebGPU.
pub const DEVICE: Device = if cfg!(target_family = "wasm") { Device::Cuda } else { Device::WebGpu };

/// A device that no build of these tests has a backend for, but with `all-devices` and `ane`.
pub const ABSENT: Device = Device::Ane;

/// Registers the backend.
pub fn register() {
    register_backend(DEVICE, || Box::new(OracleBackend));
}

/// Runs a test on `device`, or says that it is skipped where the device is absent and `RLX_TEST_DEVICES` does not
/// name it.
pub fn on(device: Device, test: fn(Device)) {
    #[cfg(feature = "ane")]
    packages::register();
    let Some(missing) = rlx_runtime::unavailable_reason(device) else { return test(device) };
    let required = std::env::var("RLX_TEST_DEVICES").unwrap_or_default();
    let named = required.split(',').any(|name| name.parse() == Ok(device));
    assert!(!named, "RLX_TEST_DEVICES names {device}: {missing}");
    println!("@skip 1 {device}: {missing}");
}

/// What a test needs besides the library and its device. A page has none of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A file system.
    Files,
    /// A panic that is caught: there it ends the module.
    Unwinding,
    /// More than one thread.
    Threads,
}

/// A test of a device, for who runs it without the test harness: `page.rs`.
#[derive(Debug, Clone, Copy)]
pub struct DeviceTest {
    /// Its path.
    pub name: &'static str,
    /// The test. It panics where something is wrong.
    pub run: fn(Device),
    /// What it needs.
    pub needs: &'static [Need],
}

/// Runs each test, a function of a device, on the CPU, on the outside backend, and on the devices whose features are on. In a page there
/// is no test harness: the tests become `ON_A_DEVICE` of their module.
///
/// ```text
/// on_every_device!(a_mixture_is_right, many_threads_may_share_a_cache needs Threads);
/// ```
#[macro_export]
macro_rules! on_every_device {
    ($($name:ident $(needs $need:ident)?),* $(,)?) => {
        #[cfg(target_family = "wasm")]
        pub const ON_A_DEVICE: &[$crate::DeviceTest] = &[$( $crate::DeviceTest {
            name: concat!(module_path!(), "::", stringify!($name)),
            run: $name,
            needs: &[$($crate::Need::$need)?],
        } ),*];
        mod cpu { $( #[test] fn $name() { super::$name(rlx_runtime::Device::Cpu); } )* }
        mod outside { $( #[test] fn $name() { super::$name($crate::DEVICE); } )* }
        #[cfg(feature = "cuda")]
        mod cuda { $( #[test] fn $name() { $crate::on(rlx_runtime::Device::Cuda, super::$name); } )* }
        #[cfg(feature = "rocm")]
        mod rocm { $( #[test] fn $name() { $crate::on(rlx_runtime::Device::Rocm, super::$name); } )* }
        #[cfg(feature = "mlx")]
        mod mlx { $( #[test] fn $name() { $crate::on(rlx_runtime::Device::Mlx, super::$name); } )* }
        #[cfg(feature = "tpu")]
        mod tpu { $( #[test] fn $name() { $crate::on(rlx_runtime::Device::Tpu, super::$name); } )* }
        #[cfg(feature = "vulkan")]
        mod vulkan { $( #[test] fn $name() { $crate::on(rlx_runtime::Device::Vulkan, super::$name); } )* }
        #[cfg(feature = "opengl")]
        mod opengl { $( #[test] fn $name() { $crate::on(rlx_runtime::Device::OpenGl, super::$name); } )* }
        #[cfg(feature = "metal")]
        mod metal { $( #[test] fn $name() { $crate::on(rlx_runtime::Device::Metal, super::$name); } )* }
        #[cfg(feature = "ane")]
        mod ane { $( #[test] fn $name() { $crate::on(rlx_runtime::Device::Ane, super::$name); } )* }
        #[cfg(feature = "directx")]
        mod directx { $( #[test] fn $name() { $crate::on(rlx_runtime::Device::DirectX, super::$name); } )* }
    };
}

/// Whether the device computes with 32-bit integers only: larger ones are an error of the run that names the input.
pub fn is_short_of_integers(device: Device) -> bool {
    device == Device::Ane
}

/// Whether the device has no `bf16`: what asks for it is computed in `f32`, as the report says.
pub fn lacks_bf16(device: Device) -> bool {
    device == Device::Ane
}

/// The variables that devices are chosen by.
pub const DEVICE_VARIABLES: [&str; 6] = [
    "RLX_DEVICE",
    "RLX_DEVICES",
    "RLX_DENY_DEVICES",
    "RLX_PREFER_DEVICES",
    "RLX_BENCHMARK_PICK",
    "RLX_DEVICE_CHAIN",
];

/// Runs `check`, which is part of the test called `test`, in a process of its own whose environment has these
/// variables, and none of [`DEVICE_VARIABLES`] besides. A process's own environment is shared by its tests, so no test
/// may change it.
///
/// # Panics
/// When the check fails there, with what it printed.
pub fn with_env(test: &str, variables: &[(&str, &str)], check: impl FnOnce()) {
    const KEY: &str = "RLX_CONTRACT_CHECK";
    let key = format!("{test} {variables:?}");
    match std::env::var(KEY) {
        Ok(wanted) if wanted == key => return check(),
        // The child walks the same test, and runs the one check it is there for.
        Ok(_) => return,
        Err(_) => {}
    }
    let program = std::env::current_exe().expect("a test knows its program");
    let mut child = std::process::Command::new(program);
    for name in DEVICE_VARIABLES {
        child.env_remove(name);
    }
    child.args(["--exact", test, "--nocapture"]).env(KEY, &key).envs(variables.iter().copied());
    let output = child.output().expect("a test can start itself");
    let text = String::from_utf8_lossy(&output.stdout);
    let passed = output.status.success() && text.contains("1 passed");
    assert!(passed, "under {variables:?}:\n{text}{}", String::from_utf8_lossy(&output.stderr));
}

/// A folder of this process that is empty at first.
pub fn empty_folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("rlx-contract-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

/// Runs the check in a process of its own whose cache folder is new; see [`with_env`].
pub fn with_cache(test: &str, check: impl FnOnce()) {
    let path = empty_folder(test);
    // The child is started by its parent's name for the folder.
    let kept = std::env::var("RLX_CACHE_DIR").unwrap_or_default();
    let path = if kept.contains(test) { PathBuf::from(kept) } else { path };
    with_env(test, &[("RLX_CACHE_DIR", &path.to_string_lossy())], check);
    if std::env::var_os("RLX_CACHE_DIR").is_none_or(|dir| Path::new(&dir) != path) {
        let _ = std::fs::remove_dir_all(path);
    }
}

/// The outside backend.
pub struct OracleBackend;

struct OracleTarget;

impl Target for OracleTarget {
    fn name(&self) -> &str {
        "oracle"
    }

    fn claim(&self, node: &Node, _: &Graph) -> Claim {
        match &node.op {
            Op::Custom { .. } => Claim::No("custom ops have no meaning here".into()),
            // The oracle tells no one what it found.
            op if op.data_symbol().is_some() => {
                Claim::No("how large its result is is known in the run only".into())
            }
            _ => Claim::Native,
        }
    }

    fn fuses(&self, _: Option<&Node>, _: &Node, _: &Graph) -> bool {
        false
    }

    fn reads_view(&self, _: &Op, _: usize, _: &View) -> bool {
        true
    }

    fn writes_view(&self, _: &Op, _: &View) -> bool {
        true
    }

    fn pack_format(&self, _: &Node, _: usize, _: &Graph) -> Option<PackFormat> {
        None
    }
}

/// The oracle's own prices: a microsecond for each operation and byte, node by node.
pub struct OracleCost;

impl BackendCostModel for OracleCost {
    fn name(&self) -> &str {
        "oracle"
    }

    fn step_ns(&self, work: &Work) -> f64 {
        1e3 * (work.flops + work.cheap + work.costly + work.bytes)
    }

    fn run_ns(&self, bytes: f64) -> f64 {
        1e3 * bytes
    }
}

impl Backend for OracleBackend {
    fn name(&self) -> &str {
        "oracle"
    }

    fn probe(&self) -> Result<()> {
        Ok(())
    }

    fn target(&self, _: &CompileOptions) -> Result<Arc<dyn Target>> {
        Ok(Arc::new(OracleTarget))
    }

    fn cost_model(&self) -> Option<Arc<dyn BackendCostModel>> {
        Some(Arc::new(OracleCost))
    }

    fn compile(&self, lir: Arc<LirModule>, _: &CompileOptions) -> Result<Box<dyn ExecutableGraph>> {
        Ok(Box::new(OracleExecutable { params: vec![None; lir.params.len()], lir, outputs: Vec::new() }))
    }
}

#[derive(Clone)]
struct OracleExecutable {
    lir: Arc<LirModule>,
    params: Vec<Option<Arc<Weight>>>,
    outputs: Vec<Vec<u8>>,
}

impl OracleExecutable {
    fn value(&self, shape: &Shape, bytes: &[u8], dims: &DimBinding) -> Result<Value> {
        let open = || Error::new(ErrorKind::Dimension, format!("{shape} at {dims:?}"));
        let dims = shape.bind(dims).static_dims().ok_or_else(open)?;
        Ok(Value::decode(shape.dtype(), &dims, bytes))
    }
}

impl ExecutableGraph for OracleExecutable {
    fn lir(&self) -> &Arc<LirModule> {
        &self.lir
    }

    fn set_param(&mut self, index: usize, weight: Arc<Weight>) -> Result<()> {
        self.params[index] = Some(weight);
        Ok(())
    }

    fn run(&mut self, inputs: &dyn InputSource, dims: &[i64]) -> Result<()> {
        let pairs = self.lir.symbols.iter().zip(dims).map(|(&s, &d)| (s, d as usize));
        let dims = DimBinding::from_pairs(&pairs.collect::<Vec<_>>());
        let mut bindings = Bindings::default();
        for (i, slot) in self.lir.inputs.iter().enumerate() {
            bindings.set_input(slot.name.clone(), self.value(&slot.shape, inputs.bytes(i), &dims)?);
        }
        for (slot, weight) in self.lir.params.iter().zip(&self.params) {
            let weight =
                weight.as_ref().ok_or_else(|| Error::new(ErrorKind::Binding, "a parameter is not set"))?;
            bindings.set_param(slot.name.clone(), weight.to_const()?.value());
        }
        let values = oracle::evaluate(&self.lir.graph.try_bind(&dims)?, &bindings)?;
        self.outputs = values.iter().map(Value::encode).collect();
        Ok(())
    }

    fn output(&self, index: usize) -> Result<&[u8]> {
        self.outputs.get(index).map(Vec::as_slice).ok_or_else(|| Error::new(ErrorKind::Value, "nothing ran"))
    }

    fn memory(&self) -> MemoryInfo {
        MemoryInfo::default()
    }

    fn try_clone(&self) -> Result<Box<dyn ExecutableGraph>> {
        Ok(Box::new(self.clone()))
    }
}
