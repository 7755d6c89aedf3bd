//! The values of parameters, and how they carry over from one variant to the next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rlx_ir::{Weight, WeightStore};

/// The value that each parameter was last given in any of the graphs that keep the same book, by name.
///
/// Values are shared, never copied: a device recognises a [`Weight`] it has packed before and shares what it
/// packed, so a variant that takes over parameters costs neither time nor memory for them.
#[derive(Debug, Clone, Default)]
pub(crate) struct ParamBook {
    values: Arc<Mutex<BTreeMap<String, Arc<Weight>>>>,
}

impl ParamBook {
    /// Notes that `name` was given `weight`.
    pub(crate) fn note(&self, name: &str, weight: &Arc<Weight>) {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        match values.get_mut(name) {
            Some(value) => *value = Arc::clone(weight),
            None => {
                values.insert(name.to_string(), Arc::clone(weight));
            }
        }
    }

    /// Notes that every parameter was given what `weights` has for its name.
    pub(crate) fn note_all(&self, weights: &WeightStore) {
        weights.iter().for_each(|(name, weight)| self.note(name, weight));
    }

    /// All values, by name.
    pub(crate) fn values(&self) -> BTreeMap<String, Arc<Weight>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
