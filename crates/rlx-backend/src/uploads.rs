//! Weights in a device's memory: one copy of each for all executables of the device, found by the weight's address, for as long
//! as an executable uses it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rlx_ir::{Result, Weight};

/// The copies that a device has of weights.
#[derive(Debug)]
pub struct Uploads<M> {
    /// By address. A weak reference keeps it from being used again.
    copies: Mutex<HashMap<usize, Upload<M>>>,
}

/// A weight, and the device's copy of it.
type Upload<M> = (Weak<Weight>, Weak<M>);

impl<M> Default for Uploads<M> {
    fn default() -> Self {
        Uploads { copies: Mutex::default() }
    }
}

impl<M> Uploads<M> {
    /// The copy of a weight; where there is none, what `copy` makes of it.
    ///
    /// # Errors
    /// What `copy` reports.
    pub fn get(&self, weight: &Arc<Weight>, copy: impl FnOnce(&Arc<Weight>) -> Result<M>) -> Result<Arc<M>> {
        let key = Arc::as_ptr(weight).addr();
        let known =
            self.copies.lock().unwrap_or_else(PoisonError::into_inner).get(&key).and_then(|(of, copy)| {
                let same = of.upgrade().is_some_and(|w| Arc::ptr_eq(&w, weight));
                if same { copy.upgrade() } else { None }
            });
        if let Some(known) = known {
            return Ok(known);
        }
        let made = Arc::new(copy(weight)?);
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        copies.retain(|_, (weight, copy)| weight.strong_count() > 0 && copy.strong_count() > 0);
        copies.insert(key, (Arc::downgrade(weight), Arc::downgrade(&made)));
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlx_ir::DType;

    #[test]
    fn a_weight_has_one_copy_while_someone_uses_it() {
        let weight = Arc::new(Weight::owned(DType::F32, &[1], vec![1, 2, 3, 4]).unwrap());
        let (uploads, made) = (Uploads::default(), std::cell::Cell::new(0));
        let copy = |weight: &Arc<Weight>| {
            made.set(made.get() + 1);
            Ok(weight.bytes()?.into_owned())
        };
        let first = uploads.get(&weight, copy).unwrap();
        let second = uploads.get(&weight, copy).unwrap();
        assert!(Arc::ptr_eq(&first, &second) && *first == [1, 2, 3, 4] && made.get() == 1);
        drop((first, second));
        uploads.get(&weight, copy).unwrap();
        assert_eq!(made.get(), 2, "no one used it any more");
    }
}
