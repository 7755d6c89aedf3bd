//! A binding: an executable's steps with the numbers of some dimensions.

use std::sync::Arc;

use super::api::DeviceApi;

/// How many bindings an executable keeps.
pub const BINDINGS: usize = 8;

/// An executable's steps, bound to some dimensions.
pub(super) struct Binding<D: DeviceApi> {
    pub(super) dims: Vec<i64>,
    pub(super) values: Vec<i64>,
    /// What the steps that count found in the last run, and by stage whether its followers are bound to it.
    pub(super) found: Vec<i64>,
    pub(super) staged: Vec<bool>,
    pub(super) sequence: D::Sequence,
    /// What init steps made that depend on symbols.
    pub(super) prepared: Vec<(usize, Arc<D::Memory>)>,
    /// The bytes of each input.
    pub(super) input_bytes: Vec<usize>,
    /// Whether all steps are bound to `values`.
    pub(super) whole: bool,
    pub(super) used: u64,
}
