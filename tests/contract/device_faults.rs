//! Falling back is an event: a backend from outside that fails on purpose at every stage, by an error or by a panic,
//! and chains that survive it with the right answer, the parameters intact, and a record of what happened.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rlx_contract::OracleBackend;
use rlx_ir::op::BinaryOp;
use rlx_ir::{DType, Graph, LirModule, Result, Shape, Weight};
use rlx_opt::Target;
use rlx_runtime::*;

/// Where a backend fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Probe,
    Compile,
    /// The parameter that is set as the nth on one executable, from 1.
    SetParam(usize),
    /// The nth run of one executable, from 1.
    Run(usize),
    Output,
}

/// How it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    OutOfMemory,
    Lost,
    Panic,
}

const EVERY_VARIANT: [How; 3] = [How::OutOfMemory, How::Lost, How::Panic];

/// What each device is to do; every test has a device of its own.
static PLANS: Mutex<BTreeMap<Device, (At, How)>> = Mutex::new(BTreeMap::new());

fn plan(device: Device, at: At, how: How) {
    PLANS.lock().unwrap().insert(device, (at, how));
    let make: fn() -> Box<dyn Backend> = match device {
        Device::Tpu => || Faulty::of(Device::Tpu),
        Device::Cuda => || Faulty::of(Device::Cuda),
        Device::Rocm => || Faulty::of(Device::Rocm),
        Device::Mlx => || Faulty::of(Device::Mlx),
        Device::Ane => || Faulty::of(Device::Ane),
        Device::Metal => || Faulty::of(Device::Metal),
        Device::DirectX => || Faulty::of(Device::DirectX),
        other => panic!("{other} has no plan"),
    };
    register_backend(device, make);
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    at: At,
    how: How,
}

impl Plan {
    fn here(self, at: At) -> Result<()> {
        match self.how {
            _ if at != self.at => Ok(()),
            How::OutOfMemory => Err(Error::new(ErrorKind::OutOfMemory, "no memory left on purpose")),
            How::Lost => Err(Error::new(ErrorKind::Device, "the device was lost on purpose")),
            How::Panic => panic!("a panic on purpose"),
        }
    }
}

struct Faulty(Plan);

impl Faulty {
    fn of(device: Device) -> Box<dyn Backend> {
        let (at, how) = PLANS.lock().unwrap()[&device];
        Box::new(Faulty(Plan { at, how }))
    }
}

impl Backend for Faulty {
    fn name(&self) -> &str {
        "faulty"
    }

    fn probe(&self) -> Result<()> {
        self.0.here(At::Probe)
    }

    fn target(&self, options: &CompileOptions) -> Result<Arc<dyn Target>> {
        OracleBackend.target(options)
    }

    fn compile(&self, lir: Arc<LirModule>, options: &CompileOptions) -> Result<Box<dyn ExecutableGraph>> {
        self.0.here(At::Compile)?;
        let inner = OracleBackend.compile(lir, options)?;
        Ok(Box::new(FaultyExecutable { inner, plan: self.0, params: 0, runs: 0 }))
    }
}

struct FaultyExecutable {
    inner: Box<dyn ExecutableGraph>,
    plan: Plan,
    params: usize,
    runs: usize,
}

impl ExecutableGraph for FaultyExecutable {
    fn lir(&self) -> &Arc<LirModule> {
        self.inner.lir()
    }

    fn set_param(&mut self, index: usize, weight: Arc<Weight>) -> Result<()> {
        self.params += 1;
        self.plan.here(At::SetParam(self.params))?;
        self.inner.set_param(index, weight)
    }

    fn run(&mut self, inputs: &dyn InputSource, dims: &[i64]) -> Result<()> {
        self.runs += 1;
        self.plan.here(At::Run(self.runs))?;
        self.inner.run(inputs, dims)
    }

    fn output(&self, index: usize) -> Result<&[u8]> {
        self.plan.here(At::Output)?;
        self.inner.output(index)
    }

    fn memory(&self) -> MemoryInfo {
        self.inner.memory()
    }

    fn try_clone(&self) -> Result<Box<dyn ExecutableGraph>> {
        let inner = self.inner.try_clone()?;
        Ok(Box::new(FaultyExecutable { inner, ..*self }))
    }
}

/// x * w + b
fn graph() -> Graph {
    let shape = Shape::new(&[2], DType::F32);
    let mut g = Graph::new("line");
    let x = g.input("x", shape.clone());
    let (w, b) = (g.param("w", shape.clone()), g.param("b", shape.clone()));
    let product = g.binary(BinaryOp::Mul, x, w, shape.clone());
    let y = g.binary(BinaryOp::Add, product, b, shape);
    g.set_outputs(vec![y]);
    g
}

const X: &[(&str, &[f32])] = &[("x", &[3.0, 4.0])];

fn with_params() -> GraphDevices {
    let mut devices = GraphDevices::new(graph());
    devices.set_param("w", &[1.0, 2.0]);
    devices.set_param("b", &[10.0, 20.0]);
    devices
}

/// The last attempts are one, of `device`, and say what was done on purpose.
fn one_attempt(devices: &GraphDevices, device: Device, how: How) {
    let [(failed, why)] = devices.last_attempts() else { panic!("{:?}", devices.last_attempts()) };
    let text = match how {
        How::OutOfMemory => "no memory left on purpose",
        How::Lost => "the device was lost on purpose",
        How::Panic => "a panic on purpose",
    };
    assert_eq!(*failed, device);
    assert!(why.contains(text) && why.contains(device.name()), "{why}");
}

/// A fault that every use of the device meets again.
fn survives(device: Device, at: At) {
    for how in EVERY_VARIANT {
        plan(device, at, how);
        let mut devices = with_params();
        let chain = [device, Device::Cpu];
        assert_eq!(devices.run_try(&chain, X), Ok((Device::Cpu, vec![vec![13.0, 28.0]])), "{at:?} {how:?}");
        one_attempt(&devices, device, how);
        devices.set_param("w", &[2.0, 2.0]);
        assert_eq!(devices.run_try(&chain, X), Ok((Device::Cpu, vec![vec![16.0, 28.0]])), "{at:?} {how:?}");
        one_attempt(&devices, device, how);
        let alone = devices.run_try(&[device], X).unwrap_err();
        assert_eq!(alone.attempts, devices.last_attempts());
        assert!(alone.to_string().contains(device.name()), "{alone}");
        assert!(devices.run(device, X).unwrap_err().contains("on purpose"));
        assert_eq!(devices.run(Device::Cpu, X), Ok(vec![vec![16.0, 28.0]]));
        assert!(devices.last_attempts().is_empty());
    }
}

#[test]
fn a_fault_at_probe() {
    survives(Device::Tpu, At::Probe);
    let e = Session::try_new(Device::Tpu).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::DeviceUnavailable);
    assert!(e.to_string().contains("TPU") && e.to_string().contains("\"tpu\""), "{e}");
}

#[test]
fn a_fault_at_compile() {
    survives(Device::Cuda, At::Compile);
    let chain = [Device::Cuda, Device::Cpu];
    assert_eq!(resolve_device_chain(&graph(), &chain, &DevicePolicy::all()), Ok(Device::Cuda));
    let mut devices = with_params();
    assert!(devices.compile(Device::Cuda).is_err());
    one_attempt(&devices, Device::Cuda, How::Panic);
    assert!(devices.compile_chain(Some(Device::Cuda)).is_err());
}

#[test]
fn a_fault_at_the_first_parameter() {
    survives(Device::Rocm, At::SetParam(1));
    survives(Device::Rocm, At::SetParam(2));
}

#[test]
fn a_fault_at_the_first_run_and_at_an_output() {
    survives(Device::Mlx, At::Run(1));
    survives(Device::Mlx, At::Output);
}

#[test]
fn a_fault_at_a_parameter_that_changes_later() {
    let device = Device::Metal;
    for how in EVERY_VARIANT {
        plan(device, At::SetParam(3), how);
        let mut devices = with_params();
        let chain = [device, Device::Cpu];
        assert_eq!(devices.run_try(&chain, X), Ok((device, vec![vec![13.0, 28.0]])));
        devices.set_param("w", &[2.0, 2.0]);
        one_attempt(&devices, device, how);
        // The executable is gone; the next use makes one that has both parameters.
        assert_eq!(devices.run_try(&chain, X), Ok((device, vec![vec![16.0, 28.0]])));
        assert!(devices.last_attempts().is_empty());
        let e = devices.try_sync_params_to_all().unwrap_err();
        assert_eq!(e.attempts.len(), 1);
        assert_eq!(devices.run_try(&chain, X), Ok((device, vec![vec![16.0, 28.0]])));
    }
}

#[test]
fn a_fault_at_the_tenth_run() {
    let device = Device::Ane;
    for how in EVERY_VARIANT {
        plan(device, At::Run(10), how);
        let mut devices = with_params();
        let chain = [device, Device::Cpu];
        for _ in 1..10 {
            assert_eq!(devices.run_try(&chain, X), Ok((device, vec![vec![13.0, 28.0]])));
            assert!(devices.last_attempts().is_empty());
        }
        assert_eq!(devices.run_try(&chain, X), Ok((Device::Cpu, vec![vec![13.0, 28.0]])));
        one_attempt(&devices, device, how);
        // After the fault the device is opened again, with the parameters it had.
        assert_eq!(devices.run_try(&chain, X), Ok((device, vec![vec![13.0, 28.0]])));
    }
}

#[test]
fn an_executable_that_panicked_is_out_of_use() {
    plan(Device::DirectX, At::Run(2), How::Panic);
    let mut compiled = Session::new(Device::DirectX).compile(graph());
    compiled.set_param("w", &[1.0, 2.0]);
    compiled.set_param("b", &[10.0, 20.0]);
    assert_eq!(compiled.run(X), [[13.0, 28.0]]);
    for _ in 0..3 {
        let e = compiled.try_run(X).unwrap_err();
        assert_eq!((e.kind(), e.device()), (ErrorKind::Device, Some("DirectX")));
        assert!(e.to_string().contains("a panic on purpose"), "{e}");
    }
    assert!(compiled.try_set_param("w", &[0.0, 0.0]).is_err() && compiled.try_clone().is_err());
}

#[test]
fn a_wrong_input_does_not_cost_the_executable() {
    let mut devices = with_params();
    devices.compile(Device::Cpu).unwrap().bind_handle("x", &[0.0, 1.0]);
    assert!(devices.run(Device::Cpu, &[("x", &[1.0])]).unwrap_err().contains("\"x\""));
    // The handle is the executable's: had it been made again, "x" would be missing.
    assert_eq!(devices.run(Device::Cpu, &[]), Ok(vec![vec![10.0, 22.0]]));
}

/// Collects the events of one thread.
struct Events(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl tracing::field::Visit for Line {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
}

impl tracing::Subscriber for Events {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn every_attempt_is_traced() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let mut devices = with_params();
    tracing::subscriber::with_default(Events(Arc::clone(&events)), || {
        // A device without a backend fails like any other.
        devices.run_try(&[Device::OpenGl, Device::Cpu], X).unwrap();
    });
    let events = events.lock().unwrap().join("\n");
    assert!(events.contains("a device failed") && events.contains("device=OpenGL"), "{events}");
    assert!(events.contains("the chain moves on") && events.contains("from=OpenGL to=CPU"), "{events}");
    assert!(events.contains("reason=") && events.contains("graph=line"), "{events}");
}
