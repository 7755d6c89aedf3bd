//! Whole models on the CPU, against what PyTorch gave: at one and two threads, with dynamic dimensions and with fixed
//! ones.
//!
//! One thread and two must give the same bits. The tolerance is 1e-3 relative and 1e-4 of the golden's largest
//! magnitude.

use std::path::Path;
use std::time::Instant;

use rlx::compare::{Tolerance, compare};
use rlx::{Model, Runner};
use rlx_ir::ConstData;
use rlx_runtime::{CompileOptions, Device, Session};
use rlx_testdata::models::{Golden, Model as Case, Tensors, wanted};

#[test]
fn models_on_the_cpu_equal_their_goldens() {
    let (mut passed, mut faults) = (0, Vec::new());
    for case in wanted() {
        let Some(path) = case.graph_file() else { continue };
        let start = Instant::now();
        for bound in [false, true] {
            match check(&case, &path, bound) {
                Ok(count) => passed += count,
                Err(why) => {
                    faults.push(format!("{}, {}: {why}", case.name, if bound { "static" } else { "dynamic" }))
                }
            }
        }
        println!("{:<20} {:6.2} s", case.name, start.elapsed().as_secs_f64());
    }
    println!("@counts passed={passed} failed={}", faults.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Runs every golden of a model; gives how many comparisons passed.
fn check(case: &Case, path: &Path, bound: bool) -> Result<usize, String> {
    let mut runners = if bound { None } else { Some(runners(path, &[])?) };
    let mut count = 0;
    for golden in &case.goldens {
        let place = |why: String| format!("{}: {why}", golden.name);
        let (inputs, wanted) = golden.read();
        let results = match &mut runners {
            Some(runners) => run(runners, &inputs),
            None => runners_for(path, golden).and_then(|mut r| run(&mut r, &inputs)),
        };
        let [one, two] = results.map_err(place)?;
        if one != two {
            return Err(place("two threads give other bits than one".into()));
        }
        count += judge(&one, &wanted, case.step).map_err(place)?;
    }
    Ok(count)
}

fn runners_for(path: &Path, golden: &Golden) -> Result<[Runner; 2], String> {
    runners(path, &golden.dims)
}

/// The model at one thread and at two.
fn runners(path: &Path, dims: &[(String, usize)]) -> Result<[Runner; 2], String> {
    let runner = |threads: usize| -> rlx_ir::Result<Runner> {
        let model = Model::open(path)?.with_dims(dims.iter().cloned());
        let session = Session::try_new(Device::Cpu)?.try_with_threads(threads)?;
        Ok(Runner::new(model, session, CompileOptions::try_new()?))
    };
    let both = || -> rlx_ir::Result<[Runner; 2]> { Ok([runner(1)?, runner(2)?]) };
    both().map_err(|e| e.to_string())
}

fn run(runners: &mut [Runner; 2], inputs: &Tensors) -> Result<[Tensors; 2], String> {
    let given: Vec<(&str, &ConstData)> = inputs.iter().map(|(n, d)| (n.as_str(), d)).collect();
    let [one, two] = runners;
    let results = one.run(&given).and_then(|a| Ok([a, two.run(&given)?]));
    results.map_err(|e| e.to_string())
}

/// `step` is what quantising on the way may add (`Model::step`).
fn judge(found: &Tensors, wanted: &Tensors, step: f64) -> Result<usize, String> {
    let usual = Tolerance::default();
    let tolerance = Tolerance { atol: usual.atol.max(step), ..usual };
    for (name, want) in wanted {
        let (_, got) = found.iter().find(|(n, _)| n == name).ok_or(format!("there is no output {name}"))?;
        let d = compare(&want.value(), got, tolerance);
        if !d.ok {
            let (want, got) = (want.value().to_f64(), got.value().to_f64());
            let at = |v: &[f64]| v.get(d.worst).copied();
            return Err(format!("{name}: element {}: {:?}, not {:?}", d.worst, at(&got), at(&want)));
        }
    }
    Ok(wanted.len())
}
