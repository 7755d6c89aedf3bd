//! Compiled models in the user's cache.

use rlx_ir::Result;
use rlx_onnx::Imported;
use rlx_runtime::{AotCache, CompiledGraph, NewArtefact};

use super::{Compiled, Runner, Source};

impl Runner {
    /// The model as an earlier process compiled it, if its files did not change since. An entry that cannot be used is
    /// as good as none; the cache says why.
    pub(super) fn load_cached(&self) -> Option<Compiled> {
        let (cache, name, parts) = self.place_in_cache()?;
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let artefact = cache.get_artefact(name, &parts, &self.session, &self.options)?;
        let loaded = self.session.load(&artefact).and_then(|graph| Ok((graph, artefact.outputs()?)));
        match loaded {
            Ok((graph, outputs)) => Some(Compiled { of: None, graph, outputs, decided: Vec::new() }),
            Err(e) => {
                tracing::warn!(model = name, error = %e, "the cached model is not used; compiling anew");
                None
            }
        }
    }

    /// Keeps a compiled model, unless it holds only for some values of its inputs.
    pub(super) fn keep_cached(&self, imported: &Imported, graph: &mut CompiledGraph) -> Result<()> {
        let Some((cache, name, parts)) = self.place_in_cache() else { return Ok(()) };
        if !imported.specialised.is_empty() {
            return Ok(());
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let new = NewArtefact {
            options: self.options.clone(),
            outputs: imported.outputs.clone(),
            ..NewArtefact::new(name, &imported.weights)
        };
        Ok(cache.put_artefact(name, &parts, &self.session, graph, new)?)
    }

    /// The cache, and what the model is called there: its name, its files as they are now, its fixed dimensions.
    fn place_in_cache(&self) -> Option<(&AotCache, &str, Vec<String>)> {
        match (&self.cache, &self.source) {
            (Some(cache), Source::Onnx(model)) => Some((cache, model.name(), model.identity()?)),
            _ => None,
        }
    }
}
