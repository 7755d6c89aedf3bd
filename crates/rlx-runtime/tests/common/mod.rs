//! What the tests of artefacts and caches share.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::{Path, PathBuf};

use rlx_ir::oracle::Bindings;
use rlx_ir::testing::random_bindings;
use rlx_ir::{DimBinding, Graph, Op, Weight, WeightStore, text};
use rlx_runtime::{CompiledGraph, Session, TensorView};

/// A folder of the test's own, gone when the test is done.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rlx-test-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left in the temporary folder harms no one.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The values that `bindings` give the graph's parameters.
pub fn weights_of(graph: &Graph, bindings: &Bindings) -> WeightStore {
    let mut weights = WeightStore::new();
    for node in graph.params() {
        let Op::Param { name } = &node.op else { continue };
        let data = bindings.param(name).unwrap().to_const();
        let weight = Weight::owned(data.dtype(), data.dims(), data.bytes().clone()).unwrap();
        weights.insert(name.clone(), weight);
    }
    weights
}

pub fn compile(session: &Session, graph: &Graph, weights: &WeightStore) -> CompiledGraph {
    let mut compiled = session.try_compile(graph.clone()).unwrap_or_else(|e| panic!("{e}\n{graph}"));
    assert!(compiled.try_set_weights(weights).unwrap().is_empty());
    compiled
}

/// The bytes of every output.
pub fn bits(compiled: &mut CompiledGraph, bindings: &Bindings) -> Vec<Vec<u8>> {
    let names: Vec<String> = compiled.inputs().iter().map(|i| i.name.clone()).collect();
    let inputs: Vec<_> = names.iter().map(|name| bindings.input(name).unwrap().to_const()).collect();
    let view = |(name, data)| {
        let data: &rlx_ir::ConstData = data;
        TensorView { name, dtype: data.dtype(), dims: data.dims(), bytes: data.bytes() }
    };
    let views: Vec<TensorView<'_>> = names.iter().map(String::as_str).zip(&inputs).map(view).collect();
    let outputs = compiled.try_run_tensors(&views).unwrap();
    outputs.iter().map(|o| o.bytes().to_vec()).collect()
}

/// A small network with convolutions, batch norms and matmuls: weights that are folded, packed and read in place.
pub fn convolutional() -> (Graph, Bindings) {
    let graph = text::parse(
        r#"graph "net" {
  %0 = Input {name="x"} : [1, 4, 8, 8] f32
  %1 = Param {name="w1"} : [8, 4, 3, 3] f32
  %2 = Param {name="pos_gamma"} : [8] f32
  %3 = Param {name="beta"} : [8] f32
  %4 = Param {name="mean"} : [8] f32
  %5 = Param {name="pos_var"} : [8] f32
  %6 = Conv(%0, %1) {strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1], groups=1, format=ChannelsFirst} : [1, 8, 8, 8] f32
  %7 = BatchNorm(%6, %2, %3, %4, %5) {eps=0.00001} : [1, 8, 8, 8] f32
  %8 = Activation.Relu(%7) : [1, 8, 8, 8] f32
  %9 = Reduce(%8) {op=Mean, axes=[2, 3], keep_dim=false} : [1, 8] f32
  %10 = Param {name="w2"} : [8, 24] f32
  %11 = Param {name="b2"} : [24] f32
  %12 = MatMul(%9, %10) : [1, 24] f32
  %13 = Binary.Add(%12, %11) : [1, 24] f32
  %14 = Param {name="table"} : [10, 24] f32
  %15 = Constant {data=dense([2] i64, 3, 7)} : [2] i64
  %16 = Gather(%14, %15) {axis=0} : [2, 24] f32
  %17 = Binary.Add(%13, %16) : [2, 24] f32
  %18 = Softmax(%17) {axis=-1} : [2, 24] f32
  return %18, %13
}
"#,
    )
    .unwrap();
    let bindings = random_bindings(&graph, &DimBinding::new(), 11);
    (graph, bindings)
}
