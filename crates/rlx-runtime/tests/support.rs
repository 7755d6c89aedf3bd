//! `supports` agrees with the compiler: for random cases of every op, on every device of this build.

#[cfg(feature = "vulkan")]
use rlx_contract::on;
use rlx_ir::testing::Case;
use rlx_ir::{ErrorKind, Graph, OpKind, Progress};
use rlx_runtime::{
    CompileOptions, Device, KernelDispatchPolicy, Session, dispatch_report_for_device_with_options,
    supports_graph_with_options, supports_node,
};

/// Cases of each op.
const CASES: u64 = 25;

/// Whether the graph compiles; only an op that nothing computes may be the reason why not.
fn compiles(session: &Session, graph: &Graph, options: &CompileOptions) -> Result<bool, String> {
    match session.try_compile_with_progress(graph.clone(), options, &Progress::none()) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == ErrorKind::Unsupported => Ok(false),
        Err(e) => Err(e.to_string()),
    }
}

/// What the queries say of a case that compiling contradicts.
fn contradiction(device: Device, session: &Session, case: &Case) -> Option<String> {
    let (graph, _) = case.graph();
    let native = CompileOptions::new().kernel_dispatch(KernelDispatchPolicy::ForceNative);
    let node = graph.nodes().iter().rev().find(|n| n.op.kind() == case.op.kind())?;
    let said = supports_node(device, node, &graph);
    let done = match compiles(session, &graph, &CompileOptions::new()) {
        Ok(done) => done,
        Err(e) => return Some(format!("it fails: {e}\n{graph}")),
    };
    if said != done {
        return Some(format!("supports_node is {said}, but compiling {done}\n{graph}"));
    }
    let said = supports_graph_with_options(device, &graph, &native);
    let report = dispatch_report_for_device_with_options(&graph, device, &native).expect("a backend");
    let done = match compiles(session, &graph, &native) {
        Ok(done) => done,
        Err(e) => return Some(format!("it fails natively: {e}\n{graph}")),
    };
    let agree = said == done && report.compile_ready == done;
    (!agree).then(|| {
        let ready = report.compile_ready;
        format!("natively: supports is {said}, the report {ready}, compiling {done}\n{graph}")
    })
}

fn check(device: Device) {
    let session = Session::new(device);
    let (mut faults, mut seen) = (Vec::new(), 0);
    for &kind in OpKind::ALL {
        let found = (0..CASES).find_map(|seed| {
            seen += 1;
            let case = Case::random(kind, seed);
            contradiction(device, &session, &case).map(|why| format!("{kind}, seed {seed}: {why}"))
        });
        faults.extend(found);
    }
    assert!(faults.is_empty(), "{} ops on {device:?}:\n{}", faults.len(), faults.join("\n"));
    assert!(seen >= OpKind::ALL.len());
}

#[test]
fn the_cpu_compiles_what_it_says_it_supports() {
    check(Device::Cpu);
}

#[test]
#[cfg(feature = "vulkan")]
fn vulkan_compiles_what_it_says_it_supports() {
    on(Device::Vulkan, check);
}
