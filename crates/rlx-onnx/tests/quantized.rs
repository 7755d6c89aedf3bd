//! Quantised models against ONNX Runtime at every place where they round to integers, on the oracle and on the CPU.
//!
//! The format defines: a float is divided by a scale, rounded to the nearest integer and shifted; integers are
//! multiplied exactly; accumulators are scaled back in floats. The float before rounding may differ in its last bit
//! between two correct implementations (a sum in another order, `x·(a·b)` for `x·a·b`), and if it is halfway between two
//! integers, the results differ by one. So each tensor that the graph rounds (`NAME_steps.npz` has ONNX Runtime's values, without
//! fusion) may differ by **at most one step**, in few elements only. Between the CPU and the oracle, which
//! share every definition, integers computed from integers must be equal.

use prost::Message;
use rlx_ir::oracle::{Bindings, evaluate};
use rlx_ir::{ConstData, Value};
use rlx_onnx::proto::{ModelProto, ValueInfoProto};
use rlx_onnx::{ImportOptions, Imported, OnnxFile, import};
use rlx_runtime::{CompileOptions, Device, Precision, PrecisionPolicy, Session, TensorView};
use rlx_testdata::models::{Golden, Model, Tensors, wanted};

/// Of the elements that are rounded, at most this share may be one step apart from ONNX Runtime.
const MOST_APART: f64 = 0.01;

#[test]
fn every_rounding_is_within_one_step() {
    let (mut passed, mut faults) = (0, Vec::new());
    for model in wanted() {
        for golden in &model.goldens {
            let Some(steps) = golden.steps() else { continue };
            match check(&model, golden, &steps) {
                Ok(line) => {
                    passed += 1;
                    println!("{}: {line}", golden.name);
                }
                Err(why) => faults.push(format!("{}: {why}", golden.name)),
            }
        }
    }
    println!("@counts passed={passed} failed={}", faults.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(passed >= 10, "{passed} goldens of quantised models");
}

fn check(model: &Model, golden: &Golden, steps: &Tensors) -> Result<String, String> {
    let names: Vec<&str> = steps.iter().map(|(name, _)| name.as_str()).collect();
    let imported = with_outputs(model, &names)?;
    let (inputs, _) = golden.read();
    let oracle = on_oracle(&imported, &inputs)?;
    let cpu = [1, 2].map(|threads| on_cpu(&imported, &inputs, threads));
    let [one, two] = cpu;
    let (one, two) = (one?, two?);
    if one != two {
        return Err("two threads give other bits than one".into());
    }
    let place =
        |name: &str| imported.outputs.iter().position(|n| n == name).ok_or(format!("no output {name}"));
    let (mut apart, mut from_oracle, mut count) = (0, 0, 0);
    for (name, want) in steps {
        let at = place(name)?;
        apart +=
            differing(&one[at].value(), &want.value()).map_err(|why| format!("{name} on the CPU: {why}"))?;
        from_oracle += differing(&one[at].value(), &oracle[at])
            .map_err(|why| format!("{name}, CPU and oracle: {why}"))?;
        differing(&oracle[at], &want.value()).map_err(|why| format!("{name} on the oracle: {why}"))?;
        count += want.num_elements();
    }
    if apart as f64 > MOST_APART * count as f64 {
        return Err(format!("{apart} of {count} roundings are a step apart"));
    }
    // There are no floats between the integers except scales and one multiplication.
    let whole = model.name.contains("_qop");
    if whole && from_oracle > 0 {
        return Err(format!("{from_oracle} of {count} integers differ from the oracle's"));
    }
    Ok(format!("{apart} of {count} roundings a step from ONNX Runtime's, {from_oracle} from the oracle's"))
}

/// How many elements differ, all of them by one.
fn differing(found: &Value, want: &Value) -> Result<usize, String> {
    if found.shape() != want.shape() {
        return Err(format!("{}, not {}", found.shape(), want.shape()));
    }
    let pairs = || found.to_f64().into_iter().zip(want.to_f64());
    match pairs().find(|(a, b)| (a - b).abs() > 1.0) {
        Some((a, b)) => Err(format!("{a}, not {b}")),
        None => Ok(pairs().filter(|(a, b)| a != b).count()),
    }
}

/// The model with these tensors among its outputs.
fn with_outputs(model: &Model, names: &[&str]) -> Result<Imported, String> {
    let bytes = std::fs::read(model.bare_graph_file()).map_err(|e| e.to_string())?;
    let mut proto = ModelProto::decode(bytes.as_slice()).map_err(|e| e.to_string())?;
    let graph = proto.graph.as_mut().ok_or("no graph")?;
    let output = |&name: &&str| ValueInfoProto { name: Some(name.to_owned()), ..Default::default() };
    graph.output.extend(names.iter().map(output));
    let file = OnnxFile::from_bytes(proto.encode_to_vec()).map_err(|e| e.to_string())?;
    import(&file, &ImportOptions::default()).map_err(|e| e.to_string())
}

fn on_oracle(imported: &Imported, inputs: &Tensors) -> Result<Vec<Value>, String> {
    let mut bindings = Bindings::default();
    for (name, value) in inputs {
        bindings.set_input(name, value.value());
    }
    for (name, weight) in imported.weights.iter() {
        bindings.set_param(name, weight.to_const().map_err(|e| e.to_string())?.value());
    }
    evaluate(&imported.graph, &bindings).map_err(|e| e.to_string())
}

fn on_cpu(imported: &Imported, inputs: &Tensors, threads: usize) -> Result<Vec<ConstData>, String> {
    on_cpu_with(imported, inputs, threads, &CompileOptions::default())
}

fn on_cpu_with(
    imported: &Imported,
    inputs: &Tensors,
    threads: usize,
    options: &CompileOptions,
) -> Result<Vec<ConstData>, String> {
    let run = || -> rlx_ir::Result<Vec<ConstData>> {
        let session = Session::try_new(Device::Cpu)?.try_with_threads(threads)?;
        let mut compiled = session.try_compile_with(imported.graph.clone(), options)?;
        compiled.try_set_weights(&imported.weights)?;
        let views: Vec<TensorView<'_>> = inputs
            .iter()
            .map(|(name, x)| TensorView { name, dtype: x.dtype(), dims: x.dims(), bytes: x.bytes() })
            .collect();
        compiled.try_run_tensors(&views)
    };
    run().map_err(|e| e.to_string())
}

/// How far an output may be from ONNX Runtime's in f32, relative to its largest element: what activations in f16 or bf16
/// lose, and the steps that their roundings to integers are apart then.
const FAR_IN_F16: f64 = 0.03;
const FAR_IN_BF16: f64 = 0.05;

#[test]
fn precisions_and_policies_keep_what_quantisation_needs() {
    use PrecisionPolicy as P;
    let policies = [P::AlwaysF16, P::AutoMixed, P::AutoMixedConservative, P::AutoMixedBf16];
    let mut asked: Vec<(CompileOptions, f64)> = Vec::new();
    for (precision, far) in [(Precision::F16, FAR_IN_F16), (Precision::BF16, FAR_IN_BF16)] {
        asked.push((CompileOptions::default().precision(precision), far));
    }
    for policy in policies {
        let far = if policy == P::AutoMixedBf16 { FAR_IN_BF16 } else { FAR_IN_F16 };
        asked.push((CompileOptions::default().policy(policy), far));
    }
    let (mut passed, mut faults) = (0, Vec::new());
    for model in wanted() {
        for golden in model.goldens.iter().filter(|g| g.steps().is_some()) {
            for (options, far) in &asked {
                let wish = format!("{} {:?}", options.precision, options.policy);
                match apart(&model, golden, options) {
                    Ok(found) if found <= *far => {
                        passed += 1;
                        println!("{} {wish}: {found:.1e}", golden.name);
                    }
                    Ok(found) => faults.push(format!("{} {wish}: {found:.1e}", golden.name)),
                    Err(why) => faults.push(format!("{} {wish}: {why}", golden.name)),
                }
            }
        }
    }
    println!("@counts passed={passed} failed={}", faults.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(passed >= 60, "{passed} runs of quantised models");
}

/// The largest error of the outputs, relative to their largest elements.
fn apart(model: &Model, golden: &Golden, options: &CompileOptions) -> Result<f64, String> {
    let imported = with_outputs(model, &[])?;
    let (inputs, want) = golden.read();
    let got = on_cpu_with(&imported, &inputs, 1, options)?;
    let mut worst = 0.0f64;
    for (name, want) in &want {
        let at = imported.outputs.iter().position(|n| n == name).ok_or(format!("no output {name}"))?;
        let (want, got) = (want.value().to_f64(), got[at].value().to_f64());
        let largest = want.iter().fold(0.0f64, |m, x| m.max(x.abs()));
        for (w, g) in want.iter().zip(&got) {
            let error = (w - g).abs() / largest;
            worst = if error.is_nan() { f64::INFINITY } else { worst.max(error) };
        }
    }
    Ok(worst)
}
