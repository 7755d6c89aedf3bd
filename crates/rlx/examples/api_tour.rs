//! The program that `docs/api-tour.md` walks through: a small model on one device, on several devices with fallback, for
//! many sizes, with state that stays on the device, with a cache that is updated where it is, and from the compile cache.
//!
//! `cargo run --release --example api_tour`

use rlx::prelude::*;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Runs every part.
pub fn main() -> Outcome {
    session()?;
    devices()?;
    pipeline()?;
    handles()?;
    donation()?;
    cache()
}

/// `y = relu(x · w + b)` for one row.
fn layer() -> Graph {
    let f32s = |dims: &[usize]| Shape::new(dims, DType::F32);
    let mut g = Graph::new("layer");
    let x = g.input("x", f32s(&[1, 2]));
    let w = g.param("w", f32s(&[2, 3]));
    let b = g.param("b", f32s(&[3]));
    let product = g.mm(x, w);
    let sum = g.add(product, b);
    let y = g.relu(sum);
    g.set_outputs(vec![y]);
    g
}

/// One device: compile, set parameters, run.
fn session() -> Outcome {
    let session = Session::try_new(Device::Cpu)?;
    let mut layer = session.try_compile(layer())?;
    layer.try_set_param("w", &[1.0, 0.0, -1.0, 0.0, 1.0, 1.0])?;
    layer.try_set_param("b", &[0.5, 0.0, 0.0])?;

    let outputs = layer.try_run(&[("x", &[2.0, 1.0])])?;
    assert_eq!(outputs, [[2.5, 1.0, 0.0]]);

    // The error suggests the input that was probably meant.
    let error = layer.try_run(&[("y", &[2.0, 1.0])]).unwrap_err();
    println!("{error}");

    // Nothing is copied or allocated here: outputs are read in place.
    let slots = layer.run_slots(&[&[0.0, 4.0]]).to_vec();
    println!("output 0 is {} elements at byte {}", slots[0].1, slots[0].0);
    for view in layer.output_views() {
        println!("{}: {:?}", view.name, view.to_f32()?);
    }

    // One request says everything about a run; all other forms are short for it.
    let outputs = layer.execute(RunRequest::new().input("x", &[2.0, 1.0]).output(0))?;
    assert_eq!(outputs.get(0)?.as_f32()?, [2.5, 1.0, 0.0]);
    Ok(())
}

/// Several devices: chosen by policy and cost, falling back when one fails.
fn devices() -> Outcome {
    let mut devices = GraphDevices::new(layer());
    devices.set_param("w", &[1.0, 0.0, -1.0, 0.0, 1.0, 1.0]);
    devices.set_param("b", &[0.5, 0.0, 0.0]);

    // CUDA is not in this build: the next device is tried, and the reason is recorded.
    let (device, outputs) = devices.run_try(&[Device::Cuda, Device::Cpu], &[("x", &[2.0, 1.0])])?;
    assert_eq!((device, outputs), (Device::Cpu, vec![vec![2.5, 1.0, 0.0]]));
    for (device, why) in devices.last_attempts() {
        println!("tried {device}: {why}");
    }
    for candidate in devices.report() {
        println!("{:<10} {}", candidate.label, candidate.blocker.as_deref().unwrap_or("can run it"));
    }
    Ok(())
}

/// Many sizes: one template, variants that share the packed weights.
fn pipeline() -> Outcome {
    let model = || {
        let rows = |n| {
            Shape::from_dims(&[Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ), Dim::Static(n)], DType::F32)
        };
        let mut m = HirModule::new("tokens");
        let x = m.input("x", rows(2));
        let w = m.param("w", Shape::new(&[2, 1], DType::F32));
        let y = m.linear(x, w, None, Some(op::Activation::Relu), rows(1));
        m.set_outputs(vec![y]);
        m
    };
    let (mut pipeline, options) = (ModelCompilePipeline::new(Device::Cpu), CompileOptions::new());
    let short = pipeline.get_or_compile(1, &DimBinding::batch_seq(1, 1), model, &options)?;
    short.try_set_param("w", &[1.0, 10.0])?;
    assert_eq!(short.try_run(&[("x", &[2.0, 3.0])])?, [[32.0]]);

    // Another size: no pass runs again, no weight is packed again, and parameters carry over.
    let long = pipeline.get_or_compile(2, &DimBinding::batch_seq(1, 2), model, &options)?;
    assert_eq!(long.try_run(&[("x", &[1.0, 0.0, 0.0, 1.0])])?, [[1.0, 10.0]]);
    println!("{}", pipeline.template_binding_manifest().params[0].name);
    Ok(())
}

/// State between runs: an input that reads an output of the previous run, on the device.
fn handles() -> Outcome {
    let shape = Shape::new(&[2], DType::F32);
    let mut g = Graph::new("total");
    let (x, total) = (g.input("x", shape.clone()), g.input("total", shape));
    let sum = g.add(total, x);
    g.set_outputs(vec![sum]);

    let mut running = Session::try_new(Device::Cpu)?.try_compile(g)?;
    assert!(running.bind_gpu_handle("total", &[0.0, 0.0]));
    assert!(running.set_gpu_handle_feed("total", 0));
    for step in 1..=3 {
        running.try_run(&[("x", &[1.0, step as f32])])?;
    }
    assert_eq!(running.read_gpu_handle("total"), Some(vec![3.0, 6.0]));
    Ok(())
}

/// A cache that each run extends by a row: nothing else moves.
fn donation() -> Outcome {
    let mut g = Graph::new("append");
    let cache = g.input("cache", Shape::new(&[1024, 2], DType::F32));
    let row = g.input("row", Shape::new(&[1, 2], DType::F32));
    let at = g.input("at", Shape::new(&[], DType::I64));
    let next = g.try_add(Op::UpdateSlice { axis: 0 }, &[cache, row, at])?;
    g.set_outputs(vec![next]);
    g.donate("cache", 0)?;

    let mut running = Session::try_new(Device::Cpu)?.try_compile(g)?;
    assert!(running.bind_gpu_handle("cache", &[0.0; 2048]));
    for step in 0..3 {
        running.try_run(&[("row", &[1.0, step as f32]), ("at", &[step as f32])])?;
    }
    assert_eq!(running.read_gpu_handle("cache").unwrap()[..6], [1.0, 0.0, 1.0, 1.0, 1.0, 2.0]);
    Ok(())
}

/// The compile cache: a second process loads what the first one compiled.
fn cache() -> Outcome {
    let root = std::env::temp_dir().join(format!("rlx-tour-{}", std::process::id()));
    let (cache, options) = (AotCache::new(&root), CompileOptions::new());
    cache.compile_graph_cached("layer", Device::Cpu, layer(), &options)?;
    assert!(cache.contains("layer"));

    let mut again = cache.compile_graph_cached("layer", Device::Cpu, layer(), &options)?;
    again.try_set_param("w", &[1.0, 0.0, -1.0, 0.0, 1.0, 1.0])?;
    again.try_set_param("b", &[0.0; 3])?;
    assert_eq!(again.try_run(&[("x", &[2.0, 1.0])])?, [[2.0, 1.0, 0.0]]);
    std::fs::remove_dir_all(root)?;
    Ok(())
}
