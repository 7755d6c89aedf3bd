//! The cost of dynamic dimensions: one module for every sequence length, compared with one compiled for each.
//!
//! `cargo run --release -p rlx --example bench_dynamic_lengths [MODEL.onnx [MOST]]` runs lengths 1 to MOST (128) in
//! turn through one compiled module with a dynamic `seq`, and each length also through a module compiled for it;
//! both in the same loop, minima compared. Without a model it uses the small BERT in `models/`. Prints the median and
//! the worst ratio, and fails if the arena was planned again or weights were packed again.

use std::time::Instant;

use rlx::prelude::*;
use rlx_ir::{ConstData, Dim, Result, SymRange, sym};

const ROUNDS: usize = 15;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let kept = || rlx_testdata::models::model("bert_dynamic").graph_file();
    let Some(file) = args.next().map(Into::into).or_else(kept) else {
        println!("the model's weights are not there; give a model file");
        return Ok(());
    };
    let most: usize = args.next().and_then(|n| n.parse().ok()).unwrap_or(128);
    let open = |ranges: Vec<(u32, SymRange)>, seq: Option<usize>| -> Result<Runner> {
        let dims = [Some(("batch".to_string(), 1)), seq.map(|n| ("seq".to_string(), n))];
        let model = Model::open(&file)?.with_dims(dims.into_iter().flatten());
        let options = CompileOptions::try_new()?.dim_ranges(ranges);
        Ok(Runner::new(model, Session::try_new(Device::Cpu)?, options))
    };
    let mut dynamic = open(vec![(sym::SEQ, SymRange::new(1, most as i64))], None)?;
    let first = inputs(&dynamic, most)?;
    time(&mut dynamic, &first)?;
    let memory = |runner: &mut Runner, given: &[(String, ConstData)]| -> Result<MemoryInfo> {
        Ok(runner.prepare(&named(given))?.compiled.memory())
    };
    let before = memory(&mut dynamic, &first)?;
    let mut ratios = Vec::new();
    for seq in 1..=most {
        let mut fixed = open(vec![], Some(seq))?;
        let given = inputs(&fixed, seq)?;
        let (mut a, mut b) = (f64::MAX, f64::MAX);
        for _ in 0..ROUNDS {
            a = a.min(time(&mut dynamic, &given)?);
            b = b.min(time(&mut fixed, &given)?);
        }
        ratios.push((a / b, seq));
    }
    let after = memory(&mut dynamic, &first)?;
    assert_eq!(before, after, "the arena was planned again, or weights were packed again");
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (median, (worst, at)) = (ratios[ratios.len() / 2].0, ratios[ratios.len() - 1]);
    println!("open seq / fixed seq over lengths 1..={most}: median {median:.3}, worst {worst:.3} at {at}");
    Ok(())
}

/// Inputs of ones for this sequence length (ids, masks and floats alike).
fn inputs(runner: &Runner, seq: usize) -> Result<Vec<(String, ConstData)>> {
    let dims = |shape: &Shape| -> Vec<usize> {
        shape.dims().iter().map(|&d| if let Dim::Static(n) = d { n } else { seq }).collect()
    };
    let ones = |info: TensorInfo| {
        let dims = dims(&info.shape);
        let n = dims.iter().product();
        let value = match info.dtype.is_float() {
            true => rlx_ir::Value::float(info.dtype, &dims, vec![1.0; n]),
            false => rlx_ir::Value::int(info.dtype, &dims, vec![1; n]),
        };
        (info.name, value.to_const())
    };
    Ok(runner.inputs()?.into_iter().map(ones).collect())
}

fn named(inputs: &[(String, ConstData)]) -> Vec<(&str, &ConstData)> {
    inputs.iter().map(|(name, data)| (name.as_str(), data)).collect()
}

/// Milliseconds of one run.
fn time(runner: &mut Runner, inputs: &[(String, ConstData)]) -> Result<f64> {
    let start = Instant::now();
    runner.run(&named(inputs))?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}
