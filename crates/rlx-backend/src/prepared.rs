//! What init programs made of parameters, shared between executables.
//!
//! Two executables that run the same init steps on the same weights need the result once: variants of a model,
//! buckets, clones, or two models that share a [`WeightStore`](rlx_ir::WeightStore). A result is found by what it
//! is (the steps that make it, see [`InitPlan::shareable`](crate::init::InitPlan)) and by which weights went in.
//! Weights are the same when they are one allocation: contents are never compared.
//!
//! ```
//! use std::sync::Arc;
//! use rlx_backend::prepared::{Prepared, PreparedKey};
//! use rlx_ir::{DType, Weight, hash::hash_of};
//! let weight = Arc::new(Weight::owned(DType::F32, &[1], vec![0; 4])?);
//! let (shared, key) = (Prepared::new(), PreparedKey(hash_of(["pack"])));
//! let packed = Arc::new(vec![7u8]);
//! shared.insert(key, vec![Arc::downgrade(&weight)], &packed);
//! assert_eq!(shared.get(key, &[&Arc::downgrade(&weight)]), Some(Arc::clone(&packed)));
//! drop(packed); // The last one who uses it frees it.
//! assert_eq!(shared.get(key, &[&Arc::downgrade(&weight)]), None);
//! # Ok::<(), rlx_ir::Error>(())
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rlx_ir::lir::BufferId;
use rlx_ir::{Error, ErrorKind, GraphHash, Result, Weight};

/// What a prepared buffer is, apart from the weights that went in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PreparedKey(pub GraphHash);

/// The bytes that `given` has for each of the buffers in `wanted`, which come with their sizes; in that order.
///
/// # Errors
/// [`ErrorKind::Malformed`] for a buffer that is missing, of another size, or not wanted.
pub fn bytes_of<'p>(
    wanted: &[(usize, usize)],
    given: &[(BufferId, &'p [u8])],
) -> Result<Vec<(usize, &'p [u8])>> {
    let shape_mismatch = |what: String| Error::new(ErrorKind::Malformed, what);
    if given.len() != wanted.len() {
        return Err(shape_mismatch(format!("{} prepared buffers for {}", given.len(), wanted.len())));
    }
    let one = |&(b, size): &(usize, usize)| {
        let found = given.iter().find(|(id, bytes)| id.index() == b && bytes.len() == size);
        let missing = || shape_mismatch(format!("prepared buffer {b} is missing or not of {size} bytes"));
        found.map(|&(_, bytes)| (b, bytes)).ok_or_else(missing)
    };
    wanted.iter().map(one).collect()
}

/// A result that may still be there. A weak reference keeps a weight's address from being used again, so an
/// equal address is the same weight.
#[derive(Debug)]
struct Made<B> {
    weights: Vec<Weak<Weight>>,
    buffer: Weak<B>,
}

/// Results by what they are; each lives as long as an executable uses it.
#[derive(Debug)]
pub struct Prepared<B> {
    made: Mutex<HashMap<PreparedKey, Vec<Made<B>>>>,
}

impl<B> Default for Prepared<B> {
    fn default() -> Self {
        Prepared { made: Mutex::default() }
    }
}

impl<B> Prepared<B> {
    /// No results yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The result of these weights, if an executable still has it.
    pub fn get(&self, key: PreparedKey, weights: &[&Weak<Weight>]) -> Option<Arc<B>> {
        let made = self.locked();
        let same = |m: &&Made<B>| {
            m.weights.len() == weights.len() && m.weights.iter().zip(weights).all(|(a, b)| a.ptr_eq(b))
        };
        made.get(&key)?.iter().filter(same).find_map(|m| m.buffer.upgrade())
    }

    /// Notes a result for others to find, and forgets those that no one has any more.
    pub fn insert(&self, key: PreparedKey, weights: Vec<Weak<Weight>>, buffer: &Arc<B>) {
        let mut made = self.locked();
        // Growth is when to look for what can go: it costs nothing on average.
        if made.len() == made.capacity() {
            made.retain(|_, list| list.iter().any(|m| m.buffer.strong_count() > 0));
        }
        let list = made.entry(key).or_default();
        list.retain(|m| m.buffer.strong_count() > 0);
        list.push(Made { weights, buffer: Arc::downgrade(buffer) });
    }

    /// Forgets everything: something that was made turned out to be wrong. Those who have it keep it.
    pub fn clear(&self) {
        self.locked().clear();
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<PreparedKey, Vec<Made<B>>>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
