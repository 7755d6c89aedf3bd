//! Damaged model files: a typed error, or a graph that runs; no panic, bounded memory.
//!
//! The committed models are truncated, get flipped bits and overwritten bytes, and their structure is mutated
//! ([`rlx_onnx::testing::mutate`]). Each file is opened, imported, verified, and evaluated if it is valid and small
//! enough. All choices derive from a fixed seed; a failure names the model, kind and number.

mod common;

use common::{measured, most_bytes};
use prost::Message;
use rlx_ir::oracle::{Bindings, bind_dims, evaluate};
use rlx_ir::{ConstData, Graph};
use rlx_onnx::proto::ModelProto;
use rlx_onnx::testing::{Choices, mutate};
use rlx_onnx::{ImportOptions, Imported, OnnxFile, import, needed_input};
use rlx_testdata::models::{Model, Tensors, model};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Models whose structure differs: convolutions, plain layers, and three exporters' transformers.
const MODELS: [&str; 6] =
    ["digits", "mlp", "bert_dynamic", "bert_opset23", "gpt2_dynamic", "llama_dynamo_sdpa"];
/// Damaged files for each model and kind of damage.
const EACH: usize = 120;
/// Graphs with more elements in all are not evaluated.
const MOST_ELEMENTS: usize = 2_000_000;

/// What is done to a file.
#[derive(Debug, Clone, Copy)]
enum Damage {
    Cut,
    FlipBit,
    Overwrite,
    Structure,
}

#[test]
fn damaged_files_are_errors_or_run() {
    let (mut count, mut imported, mut ran, mut faults) = (0, 0, 0, Vec::new());
    for name in MODELS {
        let model = model(name);
        let path = model.graph_file().expect("these models need no package");
        let whole = std::fs::read(&path).expect("the graph was just made");
        let inputs = smallest_inputs(&model);
        for damage in [Damage::Cut, Damage::FlipBit, Damage::Overwrite, Damage::Structure] {
            for i in 0..EACH {
                let mut random = Choices::seeded(0x5eed + (i as u64) * 7919);
                let bytes = damaged(&whole, damage, &mut random);
                let folder = path.parent().expect("a file is in a folder");
                count += 1;
                match catch_unwind(AssertUnwindSafe(|| attempt(&bytes, folder, &inputs))) {
                    Ok(Ok(reached)) => {
                        imported += usize::from(reached >= 1);
                        ran += usize::from(reached >= 2);
                    }
                    Ok(Err(why)) => faults.push(format!("{name} {damage:?} {i}: {why}")),
                    Err(_) => faults.push(format!("{name} {damage:?} {i}: panicked")),
                }
            }
        }
    }
    println!("{count} damaged files: {imported} could be imported, {ran} of them ran");
    println!("@counts passed={} failed={}", count - faults.len(), faults.len());
    assert!(count >= 2000 && ran > 100, "the damage must be mixed: {count} files, {ran} ran");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// How far the file came: 0 not imported, 1 imported, 2 evaluated. An `Err` is a broken promise.
fn attempt(bytes: &[u8], folder: &Path, inputs: &Tensors) -> Result<usize, String> {
    let open = || OnnxFile::from_bytes_in(bytes.to_vec(), folder).and_then(|file| import_with(&file, inputs));
    let (result, used) = measured(open);
    let most = most_bytes(bytes.len());
    if used > most {
        return Err(format!("{used} bytes of memory, more than {most}"));
    }
    let imported = match result {
        Ok(imported) => imported,
        Err(e) if e.message().is_empty() => return Err("an error without a message".to_owned()),
        Err(_) => return Ok(0),
    };
    if let Some(fault) = rlx_ir::verify(&imported.graph).first() {
        return Err(format!("an import that is not valid: {fault}"));
    }
    let mut bindings = Bindings::default();
    inputs.iter().for_each(|(name, value)| {
        bindings.set_input(name, value.value());
    });
    for (name, weight) in imported.weights.iter() {
        bindings.set_param(name, weight.to_const().map_err(|e| e.to_string())?.value());
    }
    if !affordable(&imported.graph, &bindings) {
        return Ok(1);
    }
    // An error at run time (an index out of range, a size that does not fit) is a typed one: just no panic.
    Ok(if evaluate(&imported.graph, &bindings).is_ok() { 2 } else { 1 })
}

fn import_with(file: &OnnxFile, inputs: &Tensors) -> Result<Imported, rlx_ir::Error> {
    let mut options = ImportOptions::default();
    for _ in 0..=inputs.len() {
        let error = match import(file, &options) {
            Ok(imported) => return Ok(imported),
            Err(error) => error,
        };
        let needed = needed_input(&error).and_then(|name| inputs.iter().find(|(n, _)| n == name));
        let Some((name, value)) = needed else { return Err(error) };
        options.input_values.insert(name.clone(), value.clone());
    }
    import(file, &options)
}

/// Whether all results together are small once the dimensions have their values.
fn affordable(graph: &Graph, bindings: &Bindings) -> bool {
    let Ok(dims) = bind_dims(graph, bindings) else { return false };
    let sizes = graph.nodes().iter().flat_map(|n| n.results()).map(|s| s.bind(&dims).num_elements());
    let total = sizes.into_iter().try_fold(0usize, |n, size| n.checked_add(size?));
    total.is_some_and(|n| n <= MOST_ELEMENTS)
}

/// The first row of the smallest golden's inputs: batches of one.
fn smallest_inputs(model: &Model) -> Tensors {
    let size =
        |inputs: &Tensors| inputs.iter().map(|(_, x): &(String, ConstData)| x.num_elements()).sum::<usize>();
    let inputs = model.goldens.iter().map(|g| g.read().0).min_by_key(size).expect("every model has a golden");
    let first_row = |(name, x): (String, ConstData)| {
        let dims: Vec<usize> = [1].into_iter().chain(x.dims()[1..].iter().copied()).collect();
        let row = &x.bytes()[..x.bytes().len() / x.dims()[0]];
        (name, ConstData::new(x.dtype(), &dims, row).expect("a row of a whole tensor"))
    };
    inputs.into_iter().map(first_row).collect()
}

fn damaged(whole: &[u8], damage: Damage, random: &mut Choices<'_>) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    match damage {
        Damage::Cut => bytes.truncate(random.below(whole.len())),
        Damage::FlipBit => bytes[random.below(whole.len())] ^= 1 << random.below(8),
        Damage::Overwrite => {
            let (at, length) = (random.below(whole.len()), 1 + random.below(9));
            let value = random.pick(&[0xFF, 0x80, 0x00, 0x7F]);
            bytes.iter_mut().skip(at).take(length).for_each(|b| *b = value);
        }
        Damage::Structure => {
            let mut model = ModelProto::decode(whole).expect("the committed model decodes");
            mutate(&mut model, random);
            bytes = model.encode_to_vec();
        }
    }
    bytes
}
