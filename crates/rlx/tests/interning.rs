//! Names and expressions of dimensions go with the models that mention them: a process that loads models for ever needs no
//! more memory for them than for those that it has at one time.

use std::path::Path;

use rlx::Runner;
use rlx_ir::dim::{entries, release_unused};
use rlx_ir::{ConstData, text};
use rlx_runtime::{CompileOptions, DType, Device, DimBinding, Session, TensorView};
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
                // Whoever needs a name or an expression owns it.
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

/// A graph whose sizes have names and values that no other one has.
fn graph(i: usize) -> rlx_ir::Graph {
    let (rows, size) = (format!("\"rows {i}\""), 3 + i);
    let source = format!(
        "graph \"model {i}\" {{
  range {rows} 0..=100
  %0 = Input {{name=\"x\"}} : [{rows}, {size}] f32
  %1 = Concat(%0, %0) {{axis=0}} : [{rows} * 2, {size}] f32
  %2 = Reshape(%1) {{to=[{size}, {rows} * 2]}} : [{size}, {rows} * 2] f32
  %3 = Slice(%2) {{starts=[0, 0], steps=[1, 1], to=[{size}, floordiv({rows}, 3)]}} : [{size}, floordiv({rows}, 3)] f32
  %4 = Activation.Relu(%3) : [{size}, floordiv({rows}, 3)] f32
  return %4
}}"
    );
    text::parse(&source).unwrap_or_else(|e| panic!("{e}\n{source}"))
}

#[test]
fn dropped_graphs_leave_no_names_and_expressions() {
    let session = Session::try_new(Device::Cpu).unwrap();
    let before = entries();
    for i in 0..20 {
        let symbol = graph(i).symbol_ranges().keys().copied().next();
        let fixed = symbol.map(|s| DimBinding::from_pairs(&[(s, 5)])).unwrap_or_default();
        let (open, fixed) = (CompileOptions::default(), CompileOptions::default().dim_binding(fixed));
        for (options, sizes) in [(open, &[4, 7, 4][..]), (fixed, &[5])] {
            let mut compiled = session.try_compile_with(graph(i), &options).unwrap();
            for &rows in sizes {
                release_unused();
                let bytes = vec![0; rows * (3 + i) * 4];
                let x = TensorView { name: "x", dtype: DType::F32, dims: &[rows, 3 + i], bytes: &bytes };
                let outputs = compiled.try_run_tensors(&[x]).unwrap();
                assert_eq!(outputs[0].dims(), [3 + i, rows / 3]);
            }
        }
        release_unused();
        assert_eq!(entries(), before, "after graph {i}");
    }
}
