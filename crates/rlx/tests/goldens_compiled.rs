//! Compiled models: memory plans without waste, and the oracle's values at every step
//! that remains after fusion.
//!
//! With `RLX_TEST_ALL=1` every model is compared with the oracle, which takes minutes for the largest; otherwise only those that
//! the oracle runs quickly.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rlx::Model;
use rlx::compare::Tolerance;
use rlx::verify::{Case, Reference, verify};
use rlx_ir::{ConstData, DimBinding, Progress};
use rlx_onnx::Imported;
use rlx_opt::plan::plan_memory;
use rlx_opt::{CompilePipeline, PoolSpec};
use rlx_runtime::{CompileOptions, Device, Session, backend_for};
use rlx_testdata::models::{Golden, Model as TestModel, everything, wanted};

/// The arena, against the most bytes that are alive at once.
const MOST_WASTE: f64 = 1.05;

/// What the oracle is given in the test command; see `Golden::oracle_work`.
const WORK: f64 = 1e9;

fn text<T>(result: rlx_ir::Result<T>) -> Result<T, String> {
    result.map_err(|e| e.to_string())
}

/// The model, with what its first golden says of inputs whose values decide shapes.
fn import(kept: &TestModel, path: &Path) -> Result<Arc<Imported>, String> {
    let (inputs, _) = kept.goldens.first().ok_or("it has no golden")?.read();
    let inputs: Vec<(&str, &ConstData)> = inputs.iter().map(|(n, d)| (n.as_str(), d)).collect();
    text(Model::open(path).and_then(|mut model| model.import(&inputs)))
}

#[test]
fn arenas_are_hardly_larger_than_what_is_alive_at_once() {
    let (mut passed, mut faults) = (0, Vec::new());
    for kept in wanted() {
        let Some(path) = kept.graph_file() else { continue };
        match plans(&kept, &path) {
            Ok(count) => passed += count,
            Err(why) => faults.push(format!("{}: {why}", kept.name)),
        }
    }
    println!("@counts passed={passed} failed={}", faults.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Plans for each golden's sizes, of the module with open dimensions and of one compiled for these sizes.
fn plans(kept: &TestModel, path: &Path) -> Result<usize, String> {
    let imported = import(kept, path)?;
    let backend = backend_for(Device::Cpu).ok_or("there is no CPU")?;
    let compile = |dims: DimBinding| {
        let options = text(CompileOptions::try_new())?.dim_binding(dims);
        let target = text(backend.target(&options))?;
        text(CompilePipeline::new(target, options).compile(&imported.graph))
    };
    let start = Instant::now();
    let open = compile(DimBinding::new())?.lir;
    println!("{:<24} compiled in {:.0} ms", kept.name, start.elapsed().as_secs_f64() * 1e3);
    let mut wasteful = Vec::new();
    for golden in &kept.goldens {
        let dims = golden.binding();
        let fixed = compile(dims.clone())?.lir;
        for (module, how) in [(&open, "open"), (&fixed, "fixed")] {
            let plan = text(plan_memory(module, &dims, PoolSpec::default()))?;
            let (arena, live) = (plan.arena_bytes, plan.largest_live_set);
            let ratio = arena as f64 / live.max(1) as f64;
            println!("{:<24} {how:<5} {:>10} {live:>10} {ratio:.3} {:?}", kept.name, arena, golden.dims);
            if ratio > MOST_WASTE {
                wasteful.push(format!("{how} dimensions, {}: {arena} bytes for {live}", golden.name));
            }
        }
    }
    if wasteful.is_empty() { Ok(2 * kept.goldens.len()) } else { Err(wasteful.join("; ")) }
}

#[test]
fn values_that_survive_fusion_are_the_oracles() {
    let most = if everything() { f64::INFINITY } else { WORK };
    let (mut passed, mut left_out, mut faults) = (0, Vec::new(), Vec::new());
    for kept in wanted() {
        let Some(path) = kept.graph_file() else { continue };
        let start = Instant::now();
        match compared(&kept, &path, most) {
            Ok(Some(values)) => {
                passed += 1;
                println!("{:<24} {values} values, {:.2} s", kept.name, start.elapsed().as_secs_f64());
            }
            Ok(None) => left_out.push(kept.name.clone()),
            Err(why) => faults.push(format!("{}: {why}", kept.name)),
        }
    }
    println!("@counts passed={passed} failed={}", faults.len());
    if !left_out.is_empty() {
        println!(
            "@skip {} models that are much work for the oracle; RLX_TEST_ALL=1 takes them",
            left_out.len()
        );
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(passed >= 10, "{passed} models");
}

/// How many inner values were compared for the smallest golden; none where that takes more than `most` work.
fn compared(kept: &TestModel, path: &Path, most: f64) -> Result<Option<usize>, String> {
    let imported = import(kept, path)?;
    let size = |golden: &&Golden| golden.oracle_work(&imported.graph) as u64;
    let golden = kept.goldens.iter().min_by_key(size).ok_or("it has no golden")?;
    if size(&golden) as f64 > most {
        return Ok(None);
    }
    let (inputs, _) = golden.read();
    let inputs: Vec<(&str, &ConstData)> = inputs.iter().map(|(n, d)| (n.as_str(), d)).collect();
    let session = text(Session::try_new(Device::Cpu))?;
    let options = text(CompileOptions::try_new())?;
    let case = Case { graph: &imported.graph, weights: &imported.weights, inputs: &inputs };
    let found =
        text(verify(&session, Reference::Oracle, &options, case, Tolerance::default(), &Progress::none()))?;
    match found.first_divergence {
        None => Ok(Some(found.values)),
        // A float in the middle between two integers may be rounded to either (`Model::step`). All ops alone give the
        // oracle's integers there; what follows from the other one is not compared.
        Some(at) if kept.step > 0.0 && !at.alone && at.op == "Quantize" && at.difference.max_abs <= 1.0 => {
            Ok(Some(found.values))
        }
        Some(at) => Err(format!("{}: {at:?}", golden.name)),
    }
}
