//! Names and expressions of dimensions go with the graphs and executables that mention them, on every device.

use std::sync::Mutex;

use rlx_contract::on_every_device;
use rlx_ir::dim::{entries, release_unused};
use rlx_ir::text;
use rlx_runtime::{CompileOptions, DType, Device, DimBinding, Session, TensorView};

on_every_device!(dropped_graphs_leave_no_names_and_expressions);

/// The tables are the process's, so one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

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

fn dropped_graphs_leave_no_names_and_expressions(device: Device) {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    rlx_contract::register();
    let session = Session::try_new(device).unwrap();
    let before = entries();
    for i in 0..20 {
        let graph = graph(i);
        let symbol = graph.symbol_ranges().keys().copied().next();
        let fixed = symbol.map(|s| DimBinding::from_pairs(&[(s, 5)])).unwrap_or_default();
        let (open, fixed) = (CompileOptions::default(), CompileOptions::default().dim_binding(fixed));
        for (options, sizes) in [(open, &[4, 7, 4][..]), (fixed, &[5])] {
            let mut compiled = session.try_compile_with(graph.clone(), &options).unwrap();
            for &rows in sizes {
                release_unused();
                let bytes = vec![0; rows * (3 + i) * 4];
                let x = TensorView { name: "x", dtype: DType::F32, dims: &[rows, 3 + i], bytes: &bytes };
                let outputs = compiled.try_run_tensors(&[x]).unwrap();
                assert_eq!(outputs[0].dims(), [3 + i, rows / 3]);
            }
        }
        drop(graph);
        release_unused();
        assert_eq!(entries(), before, "after graph {i}");
    }
}
