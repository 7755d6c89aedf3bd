//! Handles: a fed output is written straight into memory that then becomes the handle's, so that feeding copies nothing.
//!
//! ```text
//! before the run   handle: A   room: B   the output's place is B
//! after it         handle: B   room: A
//! ```
//!
//! Where the output takes the memory of the handle's input ([`rlx_ir::LirModule::donated`]), the run updates the value where it
//! is; a value that clones share is copied first.

use std::sync::Arc;

/// A handle.
pub(super) struct Handle<M> {
    /// Shared by clones, so it is only read.
    pub(super) value: Arc<M>,
    pub(super) bytes: usize,
    /// The output that becomes its value.
    pub(super) feed: Option<usize>,
    /// Whether a run that failed was updating it.
    pub(super) lost: bool,
}

impl<M> Clone for Handle<M> {
    fn clone(&self) -> Self {
        Handle { value: Arc::clone(&self.value), ..*self }
    }
}

/// The handles of an executable, and where outputs that feed them go.
pub(super) struct Handles<M> {
    /// By input.
    pub(super) of: Vec<Option<Handle<M>>>,
    /// By output: what it is written into when it feeds a handle.
    pub(super) room: Vec<Option<Arc<M>>>,
    /// By output: whether its place is `room`.
    pub(super) redirected: Vec<bool>,
    /// By output: its value of the last run, where it fed a handle.
    pub(super) fed: Vec<Option<(Arc<M>, usize)>>,
    /// By output: the input whose memory it takes.
    pub(super) donated: Vec<Option<usize>>,
    /// By input: whether a run updates it in place, and whether the run takes it from its handle.
    pub(super) updated: Vec<bool>,
    pub(super) supplied: Vec<bool>,
}

impl<M> Handles<M> {
    pub(super) fn new(inputs: usize, donated: &[Option<usize>]) -> Self {
        let outputs = donated.len();
        let mut updated = vec![false; inputs];
        donated.iter().flatten().for_each(|&input| updated[input] = true);
        Handles {
            of: (0..inputs).map(|_| None).collect(),
            room: (0..outputs).map(|_| None).collect(),
            redirected: vec![false; outputs],
            fed: (0..outputs).map(|_| None).collect(),
            donated: donated.to_vec(),
            updated,
            supplied: vec![false; inputs],
        }
    }

    /// The same values, for a clone of the executable.
    pub(super) fn values(&self) -> Self {
        Handles { of: self.of.clone(), ..Handles::new(self.of.len(), &self.donated) }
    }

    /// Whether a run updates input `index` in place.
    pub(super) fn is_updated(&self, index: usize) -> bool {
        self.updated[index]
    }

    /// Notes whether the run takes input `index` from its handle.
    pub(super) fn supply(&mut self, index: usize, handle: bool) {
        self.supplied[index] = handle;
    }

    /// The memory of output `index` of the last run, where it fed a handle or took the memory of one.
    pub(super) fn output(&self, index: usize) -> Option<&M> {
        let input = self.donated[index].filter(|&input| self.supplied[input]);
        if let Some(handle) = input.and_then(|input| self.of[input].as_ref()) {
            return Some(&handle.value);
        }
        self.fed[index].as_ref().map(|(value, _)| &**value)
    }

    /// A run failed whose changes of memory could not be undone: the values it was updating are lost, and with `fed` those that
    /// outputs were written to, too.
    pub(super) fn lose(&mut self, fed: bool) {
        for (index, handle) in self.of.iter_mut().enumerate() {
            let Some(handle) = handle else { continue };
            let updated = self.supplied[index] && self.updated[index];
            handle.lost |= updated || fed && handle.feed.is_some();
        }
    }
}
