//! Models through artefacts: the bits are those of the model imported and compiled in this process.
//!
//! Digits, MLP, BERT, the detector and the loop always, all models with `RLX_TEST_ALL=1`; dynamic dimensions, fixed ones, and slim artefacts.

use std::path::Path;

use rlx::{Model, Runner};
use rlx_ir::ConstData;
use rlx_runtime::{Artefact, CompileOptions, Device, Session};
use rlx_testdata::models::{Golden, Model as Case, everything, wanted};

const ALWAYS: [&str; 5] = ["digits", "mlp", "bert", "detector", "settle"];

#[test]
fn artefacts_give_the_bits_of_the_model() {
    let folder = std::env::temp_dir().join(format!("rlx-goldens-aot-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let chosen = |name: &str| everything() || ALWAYS.iter().any(|a| name.starts_with(a));
    let (mut passed, mut faults, mut skipped) = (0, Vec::new(), 0);
    for case in wanted() {
        let path = case.graph_file().filter(|_| chosen(&case.name));
        let Some(path) = path else {
            skipped += 1;
            continue;
        };
        for bound in [false, true] {
            match check(&case, &path, bound, &folder) {
                Ok(count) => passed += count,
                Err(why) => faults.push(format!("{}, bound {bound}: {why}", case.name)),
            }
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
    println!("@counts passed={passed} failed={}", faults.len());
    if skipped > 0 {
        println!("@skip {skipped} models through artefacts: RLX_TEST_ALL=1 runs them");
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(passed >= 10, "{passed} comparisons");
}

fn check(case: &Case, path: &Path, bound: bool, folder: &Path) -> Result<usize, String> {
    let mut open = if bound { None } else { Some(runners(case, path, &[], folder, true)?) };
    let mut count = 0;
    for golden in &case.goldens {
        let place = |why: String| format!("{}: {why}", golden.name);
        match &mut open {
            Some(pair) => compare(pair, golden).map_err(place)?,
            None => {
                let mut pair = runners(case, path, &golden.dims, folder, false).map_err(place)?;
                compare(&mut pair, golden).map_err(place)?;
            }
        }
        count += 1;
    }
    Ok(count)
}

/// The model by import, and by an artefact.
fn runners(
    case: &Case,
    path: &Path,
    dims: &[(String, usize)],
    folder: &Path,
    slim: bool,
) -> Result<[Runner; 2], String> {
    let make = || -> rlx_ir::Result<[Runner; 2]> {
        let model = Model::open(path)?.with_dims(dims.iter().cloned());
        let session = Session::try_new(Device::Cpu)?;
        let mut plain = Runner::new(model, session.clone(), CompileOptions::try_new()?);
        let artefact = plain.compile_to(folder.join(format!("{}.rlx", case.name)), &[], slim)?;
        artefact.verify()?;
        // Opened again, as another process would.
        let again = Runner::from_artefact(Artefact::open(artefact.path())?, session)?;
        Ok([plain, again])
    };
    make().map_err(|e| e.to_string())
}

fn compare([plain, artefact]: &mut [Runner; 2], golden: &Golden) -> Result<(), String> {
    let (inputs, _) = golden.read();
    let given: Vec<(&str, &ConstData)> = inputs.iter().map(|(n, d)| (n.as_str(), d)).collect();
    let want = plain.run(&given).map_err(|e| e.to_string())?;
    let got = artefact.run(&given).map_err(|e| e.to_string())?;
    if got == want { Ok(()) } else { Err("the artefact gives other bits".to_owned()) }
}
