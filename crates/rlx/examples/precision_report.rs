//! The accuracy and speed of each precision policy: the tables of `docs/precision.md`.
//!
//! `cargo run --release -p rlx --example precision_report [-- speed]` compares every policy with f32 on the CPU for
//! three models: MiniLM with its real weights over the sentences in `models/minilm` (if the package was fetched), ResNet-18 over
//! seeded images, and a Llama-style decoder, built from HIR blocks with seeded weights. With `speed` it
//! times MiniLM at a sequence of 128, all policies interleaved, minima over the rounds.

use std::time::Instant;

use rlx::prelude::*;
use rlx_ir::op::{Activation, MaskKind};
use rlx_ir::{ConstData, HirNodeId, Op, OpKind, Result};
use rlx_testdata::models::{folder, model};
use rlx_weights::formula;

fn main() -> Result<()> {
    let isa = Session::try_new(Device::Cpu)?;
    println!("RLX on {}", isa.device());
    if std::env::args().nth(1).as_deref() == Some("speed") {
        return speed();
    }
    for (name, outputs) in [
        ("MiniLM-L6 (sentence embeddings)", minilm as fn(&CompileOptions) -> Result<Option<Outputs>>),
        ("ResNet-18 (logits of 32 images)", resnet),
        ("Llama-style decoder (logits of 64 positions)", llama),
    ] {
        let Some(exact) = outputs(&CompileOptions::default())? else {
            println!("\n{name}: its weights were not fetched");
            continue;
        };
        println!("\n{name}\n");
        println!(
            "| policy | used | max abs | mean abs | smallest cosine | top-1 |\n|---|---|---|---|---|---|"
        );
        for options in policies() {
            if let Some(found) = outputs(&options)? {
                println!("{}", row(&options, &exact, &found));
            }
        }
    }
    Ok(())
}

/// Rows of numbers, and the precision that was used.
struct Outputs {
    rows: Vec<Vec<f64>>,
    used: Precision,
    /// Whether a row's largest element is its answer.
    classes: bool,
}

/// Everything but f32.
fn policies() -> Vec<CompileOptions> {
    use PrecisionPolicy as P;
    let products = [OpKind::MatMul, OpKind::Conv, OpKind::Attention].map(|k| (k, Precision::BF16));
    let named =
        [P::AutoMixedConservative, P::AutoMixed, P::AlwaysF16, P::Custom(products.into()), P::AutoMixedBf16];
    let mut all: Vec<_> = named.into_iter().map(|p| CompileOptions::default().policy(p)).collect();
    all.push(CompileOptions::default().precision(Precision::BF16));
    all
}

fn row(options: &CompileOptions, exact: &Outputs, found: &Outputs) -> String {
    let pairs = || exact.rows.iter().zip(&found.rows);
    let errors: Vec<f64> = pairs().flat_map(|(a, b)| a.iter().zip(b).map(|(x, y)| (x - y).abs())).collect();
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    let most = errors.iter().copied().fold(0.0, f64::max);
    let cosine = pairs().map(|(a, b)| cosine(a, b)).fold(f64::MAX, f64::min);
    let best = |row: &[f64]| (0..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
    let same = pairs().filter(|(a, b)| best(a) == best(b)).count();
    let top = if found.classes { format!("{same} of {}", exact.rows.len()) } else { "–".to_owned() };
    let name = rlx_opt::precision::requested(options);
    format!("| {name} | {} | {most:.2e} | {mean:.2e} | {cosine:.6} | {top} |", found.used)
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(p, q)| p * q).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

fn runner(path: &std::path::Path, dims: &[(&str, usize)], options: &CompileOptions) -> Result<Runner> {
    let dims = dims.iter().map(|&(n, v)| (n.to_owned(), v));
    Ok(Runner::new(Model::open(path)?.with_dims(dims), Session::try_new(Device::Cpu)?, options.clone()))
}

/// The mean of the last hidden state over the tokens of each sentence.
fn minilm(options: &CompileOptions) -> Result<Option<Outputs>> {
    let Some(path) = model("minilm").graph_file() else { return Ok(None) };
    let arrays = rlx_weights::npz::read(folder().join("minilm/embeddings.npz"))?;
    let ids = &arrays.iter().find(|(n, _)| n == "input_ids").expect("kept").1;
    let (&[sentences, longest], tokens) = (ids.dims(), ids.value().to_f64()) else { return Ok(None) };
    let mut runner = runner(&path, &[], options)?;
    let mut rows = Vec::new();
    let mut used = Precision::F32;
    for sentence in 0..sentences {
        let all = tokens[sentence * longest..(sentence + 1) * longest].iter().map(|&t| t as i64);
        let row: Vec<i64> = all.take_while(|&t| t != 0).collect();
        let given = minilm_inputs(&row)?;
        let given: Vec<(&str, &ConstData)> = given.iter().map(|(n, d)| (*n, d)).collect();
        used = runner.prepare(&given)?.compiled.precision();
        let hidden = runner.run(&given)?.remove(0).1;
        let (values, width) = (hidden.value().to_f64(), hidden.dims()[2]);
        let mean = |i| (0..row.len()).map(|t| values[t * width + i]).sum::<f64>() / row.len() as f64;
        rows.push((0..width).map(mean).collect());
    }
    Ok(Some(Outputs { rows, used, classes: false }))
}

fn minilm_inputs(tokens: &[i64]) -> Result<[(&'static str, ConstData); 3]> {
    let tensor = |values: &[i64]| ConstData::from_i64(&[1, values.len()], values);
    let (ones, zeros) = (vec![1; tokens.len()], vec![0; tokens.len()]);
    Ok([
        ("input_ids", tensor(tokens)?),
        ("attention_mask", tensor(&ones)?),
        ("token_type_ids", tensor(&zeros)?),
    ])
}

fn resnet(options: &CompileOptions) -> Result<Option<Outputs>> {
    let Some(path) = model("resnet18").graph_file() else { return Ok(None) };
    let mut runner = runner(&path, &[], options)?;
    let pixels: Vec<f32> = formula::values("pictures", 1 << 20, 0).take(32 * 3 * 64 * 64).collect();
    let images = ConstData::from_f32(&[32, 3, 64, 64], &pixels)?;
    let name = runner.inputs()?[0].name.clone();
    let given = [(name.as_str(), &images)];
    let used = runner.prepare(&given)?.compiled.precision();
    let logits = runner.run(&given)?.remove(0).1;
    let rows = logits.value().to_f64().chunks(logits.dims()[1]).map(<[f64]>::to_vec).collect();
    Ok(Some(Outputs { rows, used, classes: true }))
}

const LAYERS: usize = 4;
const SEQ: usize = 64;
const VOCABULARY: usize = 2000;
const WIDTH: usize = 256;
const HEADS: usize = 8;
const KEY_HEADS: usize = 4;
const HEAD: usize = WIDTH / HEADS;
const INNER: usize = 704;

/// The decoder as blocks: embedding, layers of attention with rotary positions and SwiGLU, norm, head.
fn decoder() -> HirModule {
    let f = |d: &[usize]| Shape::new(d, DType::F32);
    let mut m = HirModule::new("decoder");
    let ids = m.input("ids", Shape::new(&[1, SEQ], DType::I64));
    let table = m.param("table", f(&[VOCABULARY, WIDTH]));
    let turns = [SEQ, HEAD / 2];
    let (cos, sin) = (m.param("cos", f(&turns)), m.param("sin", f(&turns)));
    let wide = || f(&[1, SEQ, WIDTH]);
    let mut x = m.mir(Op::Gather { axis: 0 }, vec![table, ids], wide());
    for layer in 0..LAYERS {
        let w = |m: &mut HirModule, name: &str, d: &[usize]| m.param(format!("{layer}.{name}"), f(d));
        let gain = w(&mut m, "norm1", &[WIDTH]);
        let h = m.rms_norm(x, gain, None, 1e-5, wide());
        let keys = KEY_HEADS * HEAD;
        let project = |m: &mut HirModule, name: &str, x: HirNodeId, n: usize| {
            let w = w(m, name, &[WIDTH, n]);
            m.linear(x, w, None, None, f(&[1, SEQ, n]))
        };
        let q = project(&mut m, "q", h, WIDTH);
        let k = project(&mut m, "k", h, keys);
        let v = project(&mut m, "v", h, keys);
        let q = m.rope(q, cos, sin, HEAD, HEAD, wide());
        let k = m.rope(k, cos, sin, HEAD, HEAD, f(&[1, SEQ, keys]));
        let a = m.attention(q, k, v, None, HEADS, HEAD, MaskKind::Causal, wide());
        let a = project(&mut m, "o", a, WIDTH);
        x = m.mir(Op::Binary(rlx_ir::op::BinaryOp::Add), vec![x, a], wide());
        let w = |m: &mut HirModule, name: &str, d: &[usize]| m.param(format!("{layer}.{name}"), f(d));
        let gain = w(&mut m, "norm2", &[WIDTH]);
        let h = m.rms_norm(x, gain, None, 1e-5, wide());
        let (up, gate) = (w(&mut m, "up", &[WIDTH, INNER]), w(&mut m, "gate", &[WIDTH, INNER]));
        let down = w(&mut m, "down", &[INNER, WIDTH]);
        let y = m.swiglu_ffn(h, up, gate, down, wide());
        x = m.mir(Op::Binary(rlx_ir::op::BinaryOp::Add), vec![x, y], wide());
    }
    let gain = m.param("norm", f(&[WIDTH]));
    let x = m.rms_norm(x, gain, None, 1e-5, wide());
    let head = m.param("head", f(&[WIDTH, VOCABULARY]));
    let logits = m.linear(x, head, None, None::<Activation>, f(&[1, SEQ, VOCABULARY]));
    m.set_outputs(vec![logits]);
    m
}

fn llama(options: &CompileOptions) -> Result<Option<Outputs>> {
    let session = Session::try_new(Device::Cpu)?;
    let mut compiled = session.compile_hir_with(decoder(), options).map_err(|e| e.error().clone())?;
    let params: Vec<(String, Vec<usize>)> = compiled
        .params()
        .iter()
        .map(|p| (p.name.clone(), p.shape.static_dims().unwrap_or_default()))
        .collect();
    for (name, dims) in params {
        compiled.try_set_param(&name, &weights(&name, &dims))?;
    }
    let ids: Vec<i64> = (0..SEQ as i64).map(|i| i * 7919 % VOCABULARY as i64).collect();
    let ids = ConstData::from_i64(&[1, SEQ], &ids)?;
    let view = TensorView { name: "ids", dtype: ids.dtype(), dims: ids.dims(), bytes: ids.bytes() };
    let logits = compiled.try_run_tensors(&[view])?.remove(0);
    let rows = logits.value().to_f64().chunks(VOCABULARY).map(<[f64]>::to_vec).collect();
    Ok(Some(Outputs { rows, used: compiled.precision(), classes: true }))
}

/// Seeded weights that keep the sizes of what passes through them; tables of the rotation for their names.
fn weights(name: &str, dims: &[usize]) -> Vec<f32> {
    let count = dims.iter().product();
    if name == "cos" || name == "sin" {
        let angle = |i: usize| (i / dims[1]) as f64 * 10000f64.powf(-((i % dims[1]) as f64) / dims[1] as f64);
        let f: fn(f64) -> f64 = if name == "cos" { f64::cos } else { f64::sin };
        return (0..count).map(|i| f(angle(i)) as f32).collect();
    }
    let one = 1 << 20;
    let (spread, centre) = match dims {
        [_] => (one / 10, one),
        [_, _] if name == "table" => (one, 0),
        [fan, ..] => ((f64::from(one) * (3.0 / *fan as f64).sqrt()) as i32, 0),
        [] => (0, one),
    };
    formula::values(name, spread.into(), centre.into()).take(count).collect()
}

/// Milliseconds of MiniLM at a sequence of 128 under every policy, at one thread and at two.
fn speed() -> Result<()> {
    let Some(path) = model("minilm").graph_file() else {
        println!("the weights of MiniLM were not fetched");
        return Ok(());
    };
    let tokens: Vec<i64> = (0..128).map(|i| 1000 + i * 37 % 20000).collect();
    let given = minilm_inputs(&tokens)?;
    let named: Vec<(&str, &ConstData)> = given.iter().map(|(n, d)| (*n, d)).collect();
    let views: Vec<TensorView<'_>> = given
        .iter()
        .map(|(name, d)| TensorView { name, dtype: d.dtype(), dims: d.dims(), bytes: d.bytes() })
        .collect();
    for threads in [1, 2] {
        println!("\n{threads} thread(s)\n\n| policy | products | ms | f32 / this |\n|---|---|---|---|");
        let mut all = vec![CompileOptions::default()];
        all.extend(policies());
        let mut runners = Vec::new();
        for options in &all {
            let model = Model::open(&path)?.with_dims([("batch".to_owned(), 1), ("seq".to_owned(), 128)]);
            let session = Session::try_new(Device::Cpu)?.try_with_threads(threads)?;
            runners.push(Runner::new(model, session, options.clone()));
        }
        let mut best = vec![f64::MAX; all.len()];
        for round in 0..40 {
            for (runner, best) in runners.iter_mut().zip(&mut best) {
                let compiled = runner.prepare(&named)?.compiled;
                for _ in 0..if round == 0 { 5 } else { 3 } {
                    let start = Instant::now();
                    compiled.try_run_views(&views)?;
                    *best = best.min(start.elapsed().as_secs_f64() * 1e3);
                }
            }
        }
        for ((options, runner), ms) in all.iter().zip(&mut runners).zip(&best) {
            let compiled = runner.prepare(&named)?.compiled;
            let report = compiled.dispatch_report().precision.clone();
            let products = report.and_then(|r| r.products).unwrap_or_default();
            let name = rlx_opt::precision::requested(options);
            println!("| {name} | {products} | {ms:.2} | {:.2} |", best[0] / ms);
        }
    }
    Ok(())
}
