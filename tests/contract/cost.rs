//! Choosing is measured: cost models, their calibration and where it is kept, and the verdicts of benchmarks; by public
//! names only.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rlx_contract::{DEVICE, OracleBackend, OracleCost, with_cache};
use rlx_ir::{DType, Graph, GraphExt, LirModule, Result, Shape, Weight, sym};
use rlx_opt::Target;
use rlx_runtime::*;

fn f32s(dims: &[usize]) -> Shape {
    Shape::new(dims, DType::F32)
}

/// x · w, `m × 64` by `64 × 64`.
fn product(m: Dim) -> Graph {
    let mut g = Graph::new("product");
    let x = g.input("x", Shape::from_dims(&[m, Dim::Static(64)], DType::F32));
    let w = g.param("w", f32s(&[64, 64]));
    let y = g.mm(x, w);
    g.set_outputs(vec![y]);
    g
}

/// Only counts operations.
struct Counting;

impl BackendCostModel for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn step_ns(&self, work: &Work) -> f64 {
        work.flops + work.cheap + work.costly
    }

    fn run_ns(&self, bytes: f64) -> f64 {
        1e6 * bytes
    }
}

#[test]
fn a_graph_costs_what_its_model_says() {
    let flops = 2.0 * 8.0 * 64.0 * 64.0;
    let border = 2.0 * 8.0 * 64.0 * 4.0;
    assert_eq!(estimate_graph_cost(&product(Dim::Static(8)), &Counting), flops + 1e6 * border);
    // Open dimensions are taken for 128, batches for 1.
    let open = product(Dim::Dynamic(sym::SEQ));
    assert_eq!(estimate_graph_cost(&open, &Counting), 16.0 * (flops + 1e6 * border));
    let batch = product(Dim::Dynamic(sym::BATCH));
    assert_eq!(estimate_graph_cost(&batch, &Counting), (flops + 1e6 * border) / 8.0);
    let dims = DimBinding::from_pairs(&[(sym::SEQ, 16)]);
    assert_eq!(try_estimate_at(&open, &dims, &Counting).unwrap(), 2.0 * (flops + 1e6 * border));
    assert!(try_estimate_at(&open, &DimBinding::new(), &*cost_model(DEVICE_OF_COST).unwrap()).is_err());
}

/// The CPU's model compiles the graph as the CPU would.
const DEVICE_OF_COST: Device = Device::Cpu;

#[test]
fn a_backend_may_bring_its_own_prices() {
    rlx_contract::register();
    let model = cost_model(DEVICE).unwrap();
    assert_eq!(model.name(), "oracle");
    let g = product(Dim::Static(8));
    assert_eq!(estimate_graph_cost(&g, &*model), estimate_graph_cost(&g, &OracleCost));
    // A device that takes a microsecond for each operation is not the fastest.
    let policy = DevicePolicy::only([Device::Cpu, DEVICE]);
    assert_eq!(fastest_device_for_with_policy(&g, &policy), Device::Cpu);
    assert_eq!(GraphDevices::with_policy(g.clone(), policy.clone()).fastest(), Device::Cpu);
    let report = device_report(&g, &policy);
    assert!(report.iter().all(|c| c.recommended == (c.device == Device::Cpu)));
    assert!(is_available(fastest_device_for(&g)));
    assert!(cost_model(Device::Tpu).is_err());
}

#[test]
fn the_cpu_is_calibrated_at_first_need_and_the_prices_are_cached() {
    with_cache("the_cpu_is_calibrated_at_first_need_and_the_prices_are_cached", || {
        let path = calibration_path(Device::Cpu).unwrap();
        assert!(!path.exists());
        let start = std::time::Instant::now();
        let small = estimate_graph_cost(&product(Dim::Static(1)), &*cost_model(Device::Cpu).unwrap());
        println!("calibrated in {:?}", start.elapsed());
        let large = estimate_graph_cost(&product(Dim::Static(4096)), &*cost_model(Device::Cpu).unwrap());
        assert!(small > 0.0 && large > 50.0 * small, "{small} {large}");
        let text = std::fs::read_to_string(&path).unwrap();
        for part in ["subject cpu", "rlx ", "threads", "products ", "passes ", "step_ns ", "transfer_ns "] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // Nothing half written is left.
        let names = std::fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), [path.file_name().unwrap()]);
        let again = calibrate(Device::Cpu).unwrap();
        assert!(text.contains(&again.subject) && std::fs::read_to_string(&path).unwrap() != text);
    });
}

#[test]
fn what_was_cached_is_read_and_what_is_damaged_is_measured_again() {
    let name = "what_was_cached_is_read_and_what_is_damaged_is_measured_again";
    with_cache(name, || {
        let path = calibration_path(Device::Cpu).unwrap();
        calibrate(Device::Cpu).unwrap();
        let good = std::fs::read_to_string(&path).unwrap();
        let child = |text: &str, same: bool| {
            std::fs::write(&path, text).unwrap();
            let program = std::env::current_exe().unwrap();
            let mut child = std::process::Command::new(program);
            child.args(["--exact", "a_process_that_needs_the_prices", "--nocapture"]);
            assert!(child.env("RLX_CONTRACT_NEEDS", "1").output().unwrap().status.success());
            assert_eq!(std::fs::read_to_string(&path).unwrap() == text, same, "{text}");
        };
        child(&good, true);
        child(&good[..good.len() / 2], false);
        child(&good.replacen('1', "2", 1), false);
        child("", false);
    });
}

/// Run by the test above in a process of its own; alone it has nothing to do.
#[test]
fn a_process_that_needs_the_prices() {
    if std::env::var_os("RLX_CONTRACT_NEEDS").is_some() {
        cost_model(Device::Cpu).unwrap();
    }
}

/// The oracle's backend, slow at running; it counts runs.
struct Sleepy;

static RUNS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

fn runs() -> usize {
    RUNS.load(std::sync::atomic::Ordering::SeqCst)
}

impl Backend for Sleepy {
    fn name(&self) -> &str {
        "sleepy"
    }

    fn probe(&self) -> Result<()> {
        Ok(())
    }

    fn target(&self, options: &CompileOptions) -> Result<Arc<dyn Target>> {
        OracleBackend.target(options)
    }

    /// It claims to be the fastest.
    fn cost_model(&self) -> Option<Arc<dyn BackendCostModel>> {
        struct Free;
        impl BackendCostModel for Free {
            fn name(&self) -> &str {
                "sleepy"
            }
            fn step_ns(&self, _: &Work) -> f64 {
                0.0
            }
            fn run_ns(&self, _: f64) -> f64 {
                0.0
            }
        }
        Some(Arc::new(Free))
    }

    fn compile(&self, lir: Arc<LirModule>, options: &CompileOptions) -> Result<Box<dyn ExecutableGraph>> {
        Ok(Box::new(SleepyExecutable(OracleBackend.compile(lir, options)?)))
    }
}

struct SleepyExecutable(Box<dyn ExecutableGraph>);

impl ExecutableGraph for SleepyExecutable {
    fn lir(&self) -> &Arc<LirModule> {
        self.0.lir()
    }

    fn set_param(&mut self, index: usize, weight: Arc<Weight>) -> Result<()> {
        self.0.set_param(index, weight)
    }

    fn run(&mut self, inputs: &dyn InputSource, dims: &[i64]) -> Result<()> {
        RUNS.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        self.0.run(inputs, dims)
    }

    fn output(&self, index: usize) -> Result<&[u8]> {
        self.0.output(index)
    }

    fn memory(&self) -> MemoryInfo {
        self.0.memory()
    }

    fn try_clone(&self) -> Result<Box<dyn ExecutableGraph>> {
        Ok(Box::new(SleepyExecutable(self.0.try_clone()?)))
    }
}

fn sleepy(graph: Graph, policy: fn(DevicePolicy) -> DevicePolicy) -> GraphDevices {
    register_backend(Device::Metal, || Box::new(Sleepy));
    let both = DevicePolicy::only([Device::Cpu, Device::Metal]);
    let mut devices = GraphDevices::with_policy(graph, policy(both));
    devices.set_param("w", &[0.5; 64 * 64]);
    devices
}

#[test]
fn a_measurement_overrules_the_estimate_and_its_verdict_is_cached() {
    with_cache("a_measurement_overrules_the_estimate_and_its_verdict_is_cached", || {
        let g = product(Dim::Dynamic(sym::SEQ));
        let (few, many) = ([1.0; 3 * 64], [1.0; 100 * 64]);
        let (few, many): (&[_], &[_]) = (&[("x", &few[..])], &[("x", &many[..])]);
        let mut estimated = sleepy(g.clone(), |p| p);
        assert_eq!(estimated.fastest(), Device::Metal);
        assert_eq!(estimated.resolve_with_inputs(None, few), Ok(Device::Metal));
        assert_eq!(runs(), 0);

        let mut measured = sleepy(g.clone(), |p| p.with_benchmark_pick(2));
        // Without inputs the cost model stands in.
        assert_eq!(measured.fastest(), Device::Metal);
        assert_eq!(measured.resolve_with_inputs(None, few), Ok(Device::Cpu));
        assert_eq!((runs(), measured.fastest()), (3, Device::Cpu));
        assert_eq!(measured.resolve_with_inputs(None, few), Ok(Device::Cpu));
        assert_eq!(measured.run_resolved_with_inputs(None, few).unwrap()[0].len(), 3 * 64);
        assert_eq!(measured.compile_resolved_with_inputs(None, few).unwrap().device(), Device::Cpu);
        assert_eq!(runs(), 3);
        // Another class of sizes is another verdict; hints and preferences need none.
        assert_eq!(measured.resolve_with_inputs(Some(Device::Metal), many), Ok(Device::Metal));
        assert_eq!(runs(), 3);
        assert_eq!(measured.resolve_with_inputs(None, many), Ok(Device::Cpu));
        assert_eq!(runs(), 6);

        // The verdict is on disk: for the same graph, sizes, devices, drivers and version.
        let mut later = sleepy(g.clone(), |p| p.with_benchmark_pick(2));
        assert_eq!(later.resolve_with_inputs(None, few), Ok(Device::Cpu));
        assert_eq!((runs(), later.fastest()), (6, Device::Cpu));
        let verdicts = later.verdicts();
        assert_eq!(verdicts.len(), 1);
        assert_eq!((verdicts[0].device, verdicts[0].times.len()), (Device::Cpu, 2));
        let other =
            sleepy(product(Dim::Static(3)), |p| p.with_benchmark_pick(1)).resolve_with_inputs(None, few);
        assert_eq!((other, runs()), (Ok(Device::Cpu), 8));
        // A longer measurement is worth more than a shorter one.
        let longer = sleepy(g.clone(), |p| p.with_benchmark_pick(4)).resolve_with_inputs(None, few);
        assert_eq!((longer, runs()), (Ok(Device::Cpu), 13));

        // What is invalidated is measured again.
        later.invalidate_cache();
        assert_eq!(later.fastest(), Device::Metal);
        assert_eq!(later.resolve_with_inputs(None, few), Ok(Device::Cpu));
        assert_eq!(runs(), 16);
    });
}

#[test]
fn a_damaged_verdict_is_measured_again() {
    with_cache("a_damaged_verdict_is_measured_again", || {
        let x = [1.0; 64];
        let inputs: &[(&str, &[f32])] = &[("x", &x)];
        let pick = || {
            sleepy(product(Dim::Static(1)), |p| p.with_benchmark_pick(1)).resolve_with_inputs(None, inputs)
        };
        assert_eq!((pick(), runs()), (Ok(Device::Cpu), 2));
        assert_eq!((pick(), runs()), (Ok(Device::Cpu), 2));
        let cache = PathBuf::from(std::env::var("RLX_CACHE_DIR").unwrap());
        let files: Vec<PathBuf> =
            std::fs::read_dir(cache.join("verdicts")).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(files.len(), 1);
        let text = std::fs::read_to_string(&files[0]).unwrap().replace("winner cpu", "winner metal");
        std::fs::write(&files[0], text).unwrap();
        assert_eq!((pick(), runs()), (Ok(Device::Cpu), 4));
    });
}

#[test]
fn no_runs_measure_nothing() {
    let x = [1.0; 64];
    let mut devices = sleepy(product(Dim::Static(1)), |p| p.with_benchmark_pick(0));
    assert!(devices.resolve_with_inputs(None, &[("x", &x)]).unwrap_err().contains("0 runs"));
}
