//! Writing artefacts, and loading them: what a [`Session`] adds to an [`Artefact`].

use std::path::Path;
use std::sync::Arc;

use rlx_artifact::{Artefact, ArtefactTarget, Digest, EncodedModule, NewFile};
use rlx_ir::dim::scoped;
use rlx_ir::progress::Stage;
use rlx_ir::{ConstData, Error, ErrorKind, Graph, Progress, Result, Weight, WeightStore};
use rlx_opt::CompileOptions;
use rlx_opt::pipeline::PassContext;
use rlx_select::panic_guard::on_device;

use crate::compiled::CompiledGraph;
use crate::graph_devices::graph_param_names;
use crate::session::Session;
/// What is stored with the compiled graph.
#[derive(Debug, Clone)]
pub struct NewArtefact<'a> {
    /// The model's name.
    pub name: String,
    /// The values its parameters were set to.
    pub weights: &'a WeightStore,
    /// The options it was compiled with.
    pub options: CompileOptions,
    /// The model's names of its outputs; where empty, the graph's.
    pub outputs: Vec<String>,
    /// Inputs whose values decided a shape.
    pub decided: Vec<(String, ConstData)>,
    /// The graph it was compiled from. With it, all parameters are stored as they were set, so that the artefact can be
    /// compared with the oracle; without it, only those that packed weights do not replace: the artefact is *slim*.
    pub source: Option<&'a Graph>,
}

impl<'a> NewArtefact<'a> {
    /// A slim artefact of a graph that was compiled with default options.
    pub fn new(name: impl Into<String>, weights: &'a WeightStore) -> Self {
        NewArtefact {
            name: name.into(),
            weights,
            options: CompileOptions::default(),
            outputs: Vec::new(),
            decided: Vec::new(),
            source: None,
        }
    }
}

impl NewArtefact<'_> {
    /// The value of a parameter: the one that the options fix, or the one it was set to.
    fn weight(&self, name: &str) -> Result<Arc<Weight>> {
        match self.options.param_bindings.get(name) {
            Some(fixed) => {
                Weight::owned(fixed.dtype(), fixed.dims(), Arc::clone(fixed.bytes())).map(Arc::new)
            }
            None => weight(self.weights, name).cloned(),
        }
    }
}

impl Session {
    /// Writes `compiled`, whose parameters are set, to an artefact, completely or not at all. The same graph, weights and
    /// options make the same bytes.
    ///
    /// # Errors
    /// A parameter that `new` has no weight for, a module that cannot be stored, a file that cannot be written.
    pub fn save(
        &self,
        path: impl AsRef<Path>,
        compiled: &mut CompiledGraph,
        new: NewArtefact<'_>,
    ) -> Result<()> {
        self.save_with_progress(path, compiled, new, &Progress::none())
    }

    /// As [`Session::save`], watched: stopped before the file is there, it leaves none.
    ///
    /// # Errors
    /// As [`Session::save`]; [`ErrorKind::Cancelled`].
    pub fn save_with_progress(
        &self,
        path: impl AsRef<Path>,
        compiled: &mut CompiledGraph,
        new: NewArtefact<'_>,
        progress: &Progress,
    ) -> Result<()> {
        self.save_keyed(path.as_ref(), compiled, &new, Digest::default(), progress, &|| Ok(()))
    }

    /// As [`Session::save`], under a cache's key; `confirm` is asked when all is written, before the file has its name.
    pub(super) fn save_keyed(
        &self,
        path: &Path,
        compiled: &mut CompiledGraph,
        new: &NewArtefact<'_>,
        key: Digest,
        progress: &Progress,
        confirm: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let module = EncodedModule::of(compiled.lir())?;
        let outputs = match new.outputs.is_empty() {
            true => compiled.outputs().iter().map(|o| o.name.clone()).collect(),
            false => new.outputs.clone(),
        };
        let names: Vec<String> = compiled.params().iter().map(|p| p.name.clone()).collect();
        let (tuning, code) = (compiled.tuning().clone(), compiled.code()?);
        let (spent, prepared) = compiled.prepared(progress)?;
        let kept = names.iter().zip(&spent).filter(|&(_, &s)| new.source.is_some() || !s);
        let mut kept: Vec<String> = kept.map(|(name, _)| name.clone()).collect();
        // The compiled graph does not have parameters that the options fixed; the original graph does.
        let fixed = new.source.map(graph_param_names).unwrap_or_default();
        kept.extend(fixed.into_iter().filter(|name| !names.contains(name)));
        let kept = kept.into_iter().map(|name| new.weight(&name).map(|weight| (name, weight)));
        let params: Vec<(String, Arc<Weight>)> = kept.collect::<Result<_>>()?;
        let file = NewFile {
            target: self.artefact_target(&new.options)?,
            name: new.name.clone(),
            key,
            module,
            outputs,
            source: new.source,
            decided: &new.decided,
            prepared: &prepared,
            params: &params,
            tuning: &tuning,
            code,
        };
        file.write(path, progress, confirm)
    }

    /// What an artefact of this session is compiled for.
    pub(super) fn artefact_target(&self, options: &CompileOptions) -> Result<ArtefactTarget> {
        Ok(ArtefactTarget {
            device: self.device_id().feature().to_owned(),
            machine: self.on().machine()?,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            precision: options.precision.to_string(),
            options: options.code_key(),
        })
    }

    /// The compiled graph of an artefact, its parameters set. Packed weights are copied from the file, the others stay
    /// in its map; [`CompiledGraph::try_set_param`] changes parameters as usual.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for an artefact of another device, machine or version of RLX;
    /// [`ErrorKind::Malformed`] or [`ErrorKind::InvalidGraph`] for a damaged one.
    pub fn load(&self, artefact: &Artefact) -> Result<CompiledGraph> {
        self.load_with_progress(artefact, &Progress::none())
    }

    /// As [`Session::load`], watched: it can be stopped between two weights.
    ///
    /// # Errors
    /// As [`Session::load`]; [`ErrorKind::Cancelled`].
    pub fn load_with_progress(&self, artefact: &Artefact, progress: &Progress) -> Result<CompiledGraph> {
        self.check_target(artefact.target()).map_err(|e| artefact.named(e))?;
        scoped(|| self.load_checked(artefact, progress))
            .map_err(|e| artefact.named(on_device(e, self.device_id())))
    }

    fn load_checked(&self, artefact: &Artefact, progress: &Progress) -> Result<CompiledGraph> {
        let (target, usual) = (artefact.target(), CompileOptions::try_new()?);
        let arena_alignment = CompileOptions::alignment_in(&target.options).unwrap_or(usual.arena_alignment);
        let options = CompileOptions { precision: target.precision.parse()?, arena_alignment, ..usual };
        let mut compiled = self.compile_stored(artefact, &options, progress)?;
        let weights = artefact.weights()?;
        let prepared = artefact.has_prepared();
        let names: Vec<String> = compiled.params().iter().map(|p| p.name.clone()).collect();
        let spent = if prepared { compiled.spent_params()? } else { vec![false; names.len()] };
        for (i, (name, _)) in names.iter().zip(spent).enumerate().filter(|(_, (_, spent))| !spent) {
            progress.step(Stage::Prepare, i, names.len(), || name)?;
            compiled.try_set_weight(name, weight(&weights, name)?)?;
        }
        if prepared {
            compiled.restore(&artefact.prepared(progress)?)?;
        }
        Ok(compiled)
    }

    /// The module of an artefact as an executable, with the stored code. The module is verified before it is
    /// used; the device checks the code.
    pub(super) fn compile_stored(
        &self,
        artefact: &Artefact,
        options: &CompileOptions,
        progress: &Progress,
    ) -> Result<CompiledGraph> {
        let (lir, cache) = (artefact.lir()?, artefact.compile_cache()?);
        let target = self.on().target(options)?;
        rlx_opt::verify_lir(&lir, &*target)?;
        let report =
            rlx_opt::report::analyze(&lir.graph, &PassContext { target: &*target, options, is_body: false });
        let built = self.on().executable(lir, options, &cache, progress)?;
        Ok(CompiledGraph::new(self.device_id(), built, report, Vec::new(), options))
    }

    /// Whether an artefact is for this session's device, on this machine.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] naming what differs.
    fn check_target(&self, target: &ArtefactTarget) -> Result<()> {
        let machine = self.on().machine()?;
        let differs = [
            ("device", target.device.as_str(), self.device_id().feature()),
            ("machine", target.machine.as_str(), machine.as_str()),
            ("version of RLX", target.version.as_str(), env!("CARGO_PKG_VERSION")),
        ];
        match differs.iter().find(|(_, made, here)| made != here) {
            None => Ok(()),
            Some((what, made, here)) => {
                let message = format!("compiled for another {what}: {made:?}, here it is {here:?}");
                Err(Error::new(ErrorKind::Unsupported, message).with_hint("compile the model again"))
            }
        }
    }
}

fn weight<'w>(weights: &'w WeightStore, name: &str) -> Result<&'w Arc<Weight>> {
    weights.get(name).ok_or_else(|| {
        Error::new(ErrorKind::Binding, format!("parameter {name:?} has no weight in the artefact"))
    })
}
