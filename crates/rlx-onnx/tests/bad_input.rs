//! Damaged model files: a typed error, or a graph that runs as the file now reads; no panic, memory bounded.
//!
//! The committed models are cut short, have bits flipped and bytes overwritten, and have numbers in their decoded
//! structure replaced by absurd ones. Each result is opened, imported, verified, and where that works and the
//! sizes allow it, evaluated. All choices follow from a fixed seed; a failure names the model, kind and number.

use prost::Message;
use rlx_ir::oracle::{Bindings, bind_dims, evaluate};
use rlx_ir::{ConstData, Graph};
use rlx_onnx::proto::{GraphProto, ModelProto};
use rlx_onnx::{ImportOptions, Imported, OnnxFile, import, needed_input};
use rlx_testdata::models::{Model, Tensors, model};
use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Models whose structure differs: convolutions, plain layers, and three exporters' transformers.
const MODELS: [&str; 6] =
    ["digits", "mlp", "bert_dynamic", "bert_opset23", "gpt2_dynamic", "llama_dynamo_sdpa"];
/// Damaged files for each model and kind of damage.
const EACH: usize = 120;
/// What opening and importing a file may take beyond a multiple of the file's size.
const MOST_BYTES: usize = 64 << 20;
/// Graphs with more elements in all are not evaluated.
const MOST_ELEMENTS: usize = 2_000_000;

/// Counts what is allocated, for the bound on memory.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator as it is; counting has no effect on it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// What is done to a file.
#[derive(Debug, Clone, Copy)]
enum Damage {
    Cut,
    FlipBit,
    Overwrite,
    AbsurdNumber,
}

#[test]
fn damaged_files_are_errors_or_run() {
    let (mut count, mut imported, mut ran, mut faults) = (0, 0, 0, Vec::new());
    for name in MODELS {
        let model = model(name);
        let path = model.graph_file().expect("these models need no package");
        let whole = std::fs::read(&path).expect("the graph was just made");
        let inputs = smallest_inputs(&model);
        for damage in [Damage::Cut, Damage::FlipBit, Damage::Overwrite, Damage::AbsurdNumber] {
            for i in 0..EACH {
                let mut random = Random(0x5eed + (i as u64) * 7919);
                let bytes = damaged(&whole, damage, &mut random);
                let folder = path.parent().expect("a file lies in a folder");
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
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = OnnxFile::from_bytes_in(bytes.to_vec(), folder).and_then(|file| import_with(&file, inputs));
    let used = PEAK.load(Ordering::Relaxed) - before;
    let most = MOST_BYTES + 200 * bytes.len();
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

fn damaged(whole: &[u8], damage: Damage, random: &mut Random) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    match damage {
        Damage::Cut => bytes.truncate(random.below(whole.len())),
        Damage::FlipBit => bytes[random.below(whole.len())] ^= 1 << random.below(8),
        Damage::Overwrite => {
            let (at, length) = (random.below(whole.len()), 1 + random.below(9));
            let value = random.pick(&[0xFF, 0x80, 0x00, 0x7F]);
            bytes.iter_mut().skip(at).take(length).for_each(|b| *b = value);
        }
        Damage::AbsurdNumber => {
            let mut model = ModelProto::decode(whole).expect("the committed model decodes");
            for _ in 0..1 + random.below(3) {
                make_absurd(&mut model, random);
            }
            bytes = model.encode_to_vec();
        }
    }
    bytes
}

const ABSURD: [i64; 14] =
    [0, -1, 1, 2, 7, -2, 255, 65_536, 1 << 31, (1 << 31) - 1, 1 << 40, i64::MAX, i64::MIN, -(1 << 33)];

/// Replaces one number, name or type somewhere in the structure.
fn make_absurd(model: &mut ModelProto, random: &mut Random) {
    let number = random.pick(&ABSURD);
    if random.below(20) == 0 {
        model.opset_import[0].version = Some(number);
        return;
    }
    let graph = model.graph.as_mut().expect("the committed model has a graph");
    match random.below(5) {
        0 => absurd_tensor(graph, number, random),
        1 => absurd_input(graph, number, random),
        _ => absurd_node(graph, number, random),
    }
}

fn absurd_tensor(graph: &mut GraphProto, number: i64, random: &mut Random) {
    let at = random.below(graph.initializer.len());
    let Some(tensor) = graph.initializer.get_mut(at) else { return };
    match random.below(4) {
        0 => tensor.data_type = Some(number as i32 & 31),
        1 => tensor.dims.push(number),
        2 if !tensor.dims.is_empty() => {
            let i = random.below(tensor.dims.len());
            tensor.dims[i] = number;
        }
        _ => {
            let entry = tensor.external_data.iter_mut().find(|e| e.key() != "location");
            if let Some(entry) = entry {
                entry.value = Some(number.to_string());
            }
        }
    }
}

fn absurd_input(graph: &mut GraphProto, number: i64, random: &mut Random) {
    use rlx_onnx::proto::tensor_shape_proto::dimension::Value;
    let at = random.below(graph.input.len());
    let tensor = graph.input[at].r#type.as_mut().and_then(|t| t.value.as_mut());
    let Some(rlx_onnx::proto::type_proto::Value::TensorType(tensor)) = tensor else { return };
    let Some(shape) = tensor.shape.as_mut() else { return };
    let i = random.below(shape.dim.len());
    match (random.below(3), shape.dim.get_mut(i)) {
        (0, _) => tensor.elem_type = Some(number as i32 & 31),
        (1, Some(dim)) => dim.value = Some(Value::DimValue(number)),
        (_, Some(dim)) => dim.value = Some(Value::DimParam("seq".to_owned())),
        _ => {}
    }
}

fn absurd_node(graph: &mut GraphProto, number: i64, random: &mut Random) {
    let (at, other) = (random.below(graph.node.len()), random.below(graph.node.len()));
    let borrowed = graph.node[other].clone();
    let node = &mut graph.node[at];
    match random.below(6) {
        0 => node.op_type = borrowed.op_type,
        1 => node.attribute = borrowed.attribute,
        2 => node.input = borrowed.input,
        _ => {
            let i = random.below(node.attribute.len());
            let Some(attr) = node.attribute.get_mut(i) else { return };
            attr.i = attr.i.map(|_| number);
            attr.ints.iter_mut().for_each(|v| *v = if random.below(2) == 0 { number } else { *v });
            if let Some(tensor) = attr.t.as_mut() {
                absurd_constant(tensor, number);
            }
        }
    }
}

/// A constant's first element, where it is an integer.
fn absurd_constant(tensor: &mut rlx_onnx::proto::TensorProto, number: i64) {
    if let (Some(7), Some(raw)) = (tensor.data_type, tensor.raw_data.as_ref()) {
        let mut bytes = raw.to_vec();
        if let Some(first) = bytes.first_chunk_mut::<8>() {
            *first = number.to_le_bytes();
        }
        tensor.raw_data = Some(bytes.into());
    }
}
