//! Compiled models in the user's cache.

use rlx_ir::{Error, ErrorKind, Progress, Result};
use rlx_onnx::Imported;
use rlx_runtime::{AotCache, CompiledGraph, NewArtefact};

use super::{Compiled, Runner, Source};

impl Runner {
    /// The model as an earlier process compiled it, if its files did not change since. An entry that cannot be used is
    /// ignored; the cache logs why.
    pub(super) fn load_cached(&self, progress: &Progress) -> Result<Option<Compiled>> {
        let Some((cache, name, parts)) = self.cache_key() else { return Ok(None) };
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let Some(artefact) = cache.get_artefact(name, &parts, &self.session, &self.options) else {
            return Ok(None);
        };
        let loaded = self.session.load_with_progress(&artefact, progress);
        match loaded.and_then(|graph| Ok((graph, artefact.outputs()?))) {
            Ok((graph, outputs)) => {
                Ok(Some(Compiled { of: None, graph, outputs, id: 0, warm: false, decided: Vec::new() }))
            }
            Err(e) if e.kind() == ErrorKind::Cancelled => Err(e),
            Err(e) => {
                tracing::warn!(model = name, error = %e, "the cached model is not used; compiling again");
                Ok(None)
            }
        }
    }

    /// Caches a compiled model, unless it is valid only for some values of its inputs. If it cannot be stored (a full disk, a
    /// folder that cannot be written, files that changed meanwhile) that is a warning: the model is there.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`].
    pub(super) fn keep_cached(
        &self,
        imported: &Imported,
        graph: &mut CompiledGraph,
        progress: &Progress,
    ) -> Result<()> {
        if !imported.specialised.is_empty() {
            return Ok(());
        }
        let (Some((cache, name, parts)), Source::Onnx(model)) = (self.cache_key(), &self.source) else {
            return Ok(());
        };
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let new = NewArtefact {
            options: self.options.clone(),
            outputs: imported.outputs.clone(),
            ..NewArtefact::new(name, &imported.weights)
        };
        let confirm = || model.confirm();
        let stored = cache.put_artefact_confirmed(&parts, &self.session, graph, new, progress, &confirm);
        match stored.map_err(Error::from) {
            Err(e) if e.kind() == ErrorKind::Cancelled => Err(e),
            Err(e) => {
                tracing::warn!(model = name, error = %e, "the compiled model is not cached");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// The cache, and what the model is called there: its name, the contents of its files, its fixed dimensions.
    fn cache_key(&self) -> Option<(&AotCache, &str, Vec<String>)> {
        match (&self.cache, &self.source) {
            (Some(cache), Source::Onnx(model)) => Some((cache, model.name(), model.identity()?)),
            _ => None,
        }
    }
}
