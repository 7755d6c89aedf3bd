//! Compiled models from files.

use std::path::PathBuf;
use std::sync::LazyLock;

use rlx_ir::testing::random_graph;
use rlx_ir::{ConstData, DimBinding, Result, Shape, Value, Weight, WeightStore};
use rlx_runtime::{Artefact, ArtefactTarget, CompiledGraph, NewArtefact, Session, TensorView};

use crate::accepted;
use crate::records::sealed;
use crate::run::{deadline, plain, sessions};

/// Inputs and parameters with more elements are not made.
const MAX_ELEMENTS: usize = 1 << 14;

/// A file of this process that is removed when the value is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let name = format!("rlx-fuzz-{}-{:?}.rlx", std::process::id(), std::thread::current().id());
        Scratch(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It may never have been written.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A file is opened, checked, loaded and run as it is, and again with all its hashes made right.
///
/// # Panics
/// Where a promise is broken.
pub fn artefact(data: &[u8]) {
    let scratch = Scratch::new();
    let (session, target) = &PLACES[data.len() % PLACES.len()];
    let again = sealed(data, target);
    for bytes in [Some(data), again.as_deref()].into_iter().flatten() {
        std::fs::write(&scratch.0, bytes).expect("the temporary folder can be written");
        let Some(artefact) = accepted(Artefact::open(&scratch.0)) else { continue };
        accepted(artefact.verify());
        accepted(artefact.source());
        accepted(artefact.outputs());
        accepted(artefact.decided());
        accepted(artefact.weights());
        if let Some(mut compiled) = accepted(session.load(&artefact)) {
            run_at_some_sizes(&mut compiled);
        }
    }
}

/// The sessions, and what artefacts of each are made for.
static PLACES: LazyLock<Vec<(&Session, ArtefactTarget)>> =
    LazyLock::new(|| sessions().iter().map(|session| (session, target_of(session))).collect());

/// What artefacts of a session are made for.
fn target_of(session: &Session) -> ArtefactTarget {
    let scratch = Scratch::new();
    let (graph, _) = random_graph(1, 1);
    let saved = || -> Result<ArtefactTarget> {
        let mut compiled = session.try_compile_with(graph, &plain())?;
        let weights = weights_for(&compiled).unwrap_or_default();
        compiled.try_set_weights(&weights)?;
        session.save(&scratch.0, &mut compiled, NewArtefact::new("target", &weights))?;
        Ok(Artefact::open(&scratch.0)?.target().clone())
    };
    saved().expect("a small graph can be saved")
}

/// Values for the parameters, where they are small.
fn weights_for(compiled: &CompiledGraph) -> Option<WeightStore> {
    let mut weights = WeightStore::new();
    for info in compiled.params() {
        let value = ones(&info.shape)?;
        let weight = Weight::owned(value.dtype(), value.dims(), value.bytes().to_vec()).ok()?;
        weights.insert(info.name.clone(), weight);
    }
    Some(weights)
}

/// A tensor of ones, where it is small.
fn ones(shape: &Shape) -> Option<ConstData> {
    let dims = shape.static_dims()?;
    let n = shape.num_elements().filter(|&n| n <= MAX_ELEMENTS)?;
    let dtype = shape.dtype();
    if dtype == rlx_ir::DType::C64 {
        return None;
    }
    let value = if dtype.is_float() {
        Value::float(dtype, &dims, vec![1.0; n])
    } else {
        Value::int(dtype, &dims, vec![1; n])
    };
    Some(value.to_const())
}

fn run_at_some_sizes(compiled: &mut CompiledGraph) {
    if let Some(weights) = weights_for(compiled) {
        accepted(compiled.try_set_weights(&weights));
    }
    let infos = compiled.inputs().to_vec();
    for n in [2, 1, 5] {
        let bound = |shape: &Shape| {
            let symbols = shape.dims().iter().flat_map(|d| d.extent().symbols());
            let mut dims = DimBinding::new();
            symbols.for_each(|s| _ = dims.set(s, n));
            shape.bind(&dims)
        };
        let given: Option<Vec<ConstData>> = infos.iter().map(|info| ones(&bound(&info.shape))).collect();
        let Some(given) = given else { continue };
        let views: Vec<TensorView<'_>> = infos
            .iter()
            .zip(&given)
            .map(|(info, data)| TensorView {
                name: &info.name,
                dtype: data.dtype(),
                dims: data.dims(),
                bytes: data.bytes(),
            })
            .collect();
        accepted(compiled.try_run_tensors_with_progress(&views, &deadline()));
    }
}
