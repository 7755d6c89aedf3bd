//! Names and expressions of dimensions are freed with the models that use them: a process that keeps loading models needs
//! memory for those loaded at one time only.

use std::path::Path;

use rlx::Runner;
use rlx_ir::ConstData;
use rlx_ir::dim::{entries, release_unused};
use rlx_runtime::{Device, Session};
use rlx_testdata::models::wanted;

/// Models with open dimensions, caches, sizes that a run finds out, and loops.
const MODELS: &[&str] = &["bert_dynamic", "gpt2_cached", "detector", "settle"];

#[test]
fn dropped_models_leave_no_names_and_expressions() {
    let before = entries();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut count = 0;
    for case in wanted().into_iter().filter(|case| MODELS.contains(&case.name.as_str())) {
        let Some(path) = case.graph_file() else { continue };
        let file = folder.join(format!("interning-{}.rlx", case.name));
        {
            let mut imported = Runner::open(&path).unwrap();
            let mut stored = None;
            for golden in &case.goldens {
                let (inputs, _) = golden.read();
                let given: Vec<(&str, &ConstData)> = inputs.iter().map(|(n, d)| (n.as_str(), d)).collect();
                // Anyone who needs a name or an expression owns it.
                release_unused();
                let results = imported.run(&given).unwrap();
                if stored.is_none() {
                    let artefact = imported.compile_to(&file, &given, false).unwrap();
                    let session = Session::try_new(Device::Cpu).unwrap();
                    stored = Some(Runner::from_artefact(artefact, session).unwrap());
                }
                let again = stored.as_mut().expect("it was made").run(&given).unwrap();
                assert_eq!(results.len(), again.len(), "{}", case.name);
            }
        }
        release_unused();
        assert_eq!(entries(), before, "after {}", case.name);
        count += 1;
    }
    assert_eq!(count, MODELS.len());
}
