//! The graph language of RLX.
//!
//! A model is a [`Graph`] (the MIR): a list of [`Node`]s in topological order over symbolic [`Shape`]s.
//! All about an op is in one place, the `ops!` table of [`ops`] and the [`ops::OpDef`] behind each line:
//! arity, shape rule, reference semantics, decomposition, cost and a generator of random cases. From it come
//! the text form ([`text`]), the verifier ([`verify()`]), the oracle ([`oracle`]) and the support tables.
//!
//! | module | what it is |
//! |---|---|
//! | [`dtype`], [`dim`], [`shape`] | element types, symbolic dimensions, shapes |
//! | [`tensor`] | stored bytes and exact values |
//! | [`graph`], [`ops`] | the graph and its ops |
//! | [`custom`] | ops from outside |
//! | [`mod@trace`] | graphs from ordinary tensor code |
//! | [`hir`], [`stages`] | models as blocks, and the way from blocks to steps |
//! | [`component`] | what a part of a model is compiled for |
//! | [`text`], [`hash`] | printing, parsing, hashing |
//! | [`mod@verify`], [`oracle`] | structural rules, and what the right answer is |
//! | [`lir`] | what a device executes |
//! | [`weights`], [`files`] | a model's tensors by name; files mapped, and written whole |
//! | [`maps`] | hash maps of compilation |
//! | [`progress`], [`clock`] | long calls watched and stopped; time that passes |
#![deny(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod clock;
pub mod component;
pub mod cost;
pub mod custom;
pub mod decompose;
pub mod dim;
pub mod dtype;
pub mod error;
#[allow(unsafe_code)]
pub mod files;
pub mod graph;
pub mod hash;
pub mod hir;
pub mod lir;
pub mod maps;
pub mod memory;
mod minifloat;
mod nearest;
pub mod ops;
pub mod oracle;
pub mod origin;
pub mod panics;
pub mod progress;
pub mod shape;
pub mod sort;
pub mod stages;
pub mod tensor;
#[cfg(feature = "testing")]
pub mod testing;
pub mod text;
pub mod threads;
pub mod trace;
pub mod verify;
pub mod weights;

pub use component::{CompilationMode, KernelDispatchPolicy, ModelComponent, ModelPhase, ModelVariant};
pub use dim::{Dim, DimBinding, ExprBudget, Extent, SymRange, check_extents, sym};
pub use dtype::{DType, DTypeClass};
pub use error::{Error, ErrorKind, Result};
pub use graph::{DataSymbol, DataSymbols, Graph, GraphExt, Node, NodeId, bound_of};
pub use hash::{GraphHash, graph_hash};
pub use hir::{HirModule, HirMut, HirNodeId, LowerError};
pub use lir::{BindingManifest, IoBindingEntry, LirModule};
pub use nearest::nearest;
pub use ops::{Op, OpKind};
pub use origin::{OriginId, Origins};
pub use progress::{Cancel, Progress};
pub use shape::{Shape, Shapes};
pub use stages::{GraphModule, GraphStage, MirModule};
pub use tensor::{ConstData, Value};
pub use trace::{TracedTensor, Tracer, trace, try_trace};
pub use verify::{VerifyError, verify, verify_exact, verify_ok};
pub use weights::{Weight, WeightStore};

/// The types of ops' attributes.
pub mod op {
    pub use crate::ops::Activation;
    pub use crate::ops::PackFormat;
    pub use crate::ops::def::Arity;
    pub use crate::ops::types::*;
}
