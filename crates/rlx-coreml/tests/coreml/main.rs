//! Packages for Core ML, read back from their bytes and evaluated by code that knows nothing of what wrote them (`rlx-mil-eval`).

mod common;
mod control;
mod device;
mod graphs;
mod models;
mod mutated;
