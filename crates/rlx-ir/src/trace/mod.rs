//! Tracing: a graph from ordinary tensor code.
//!
//! [`trace`] hands a [`Tracer`] to a function, which declares inputs and parameters and computes with
//! [`TracedTensor`]s as with tensors of any library: operators, scalars, methods. Nothing is computed; each
//! operation becomes a node of the graph, and remembers the line of Rust it was written in.
//!
//! ```
//! use rlx_ir::{DType, Shape, trace};
//! let graph = trace("mlp", |t| {
//!     let x = t.input("x", Shape::new(&[2, 4], DType::F32));
//!     let w = t.param("w", Shape::new(&[4, 3], DType::F32));
//!     let b = t.param("b", Shape::new(&[3], DType::F32));
//!     vec![(x.matmul(&w) + &b).relu() * 0.5]
//! });
//! assert_eq!(graph.shape(graph.outputs[0]).to_string(), "[2, 3] f32");
//! ```
//!
//! What does not fit is kept in the graph and reported by [`crate::verify()`] and by compiling, with the line
//! where it was written; [`try_trace`] reports it at once:
//!
//! ```
//! # use rlx_ir::{DType, Shape, try_trace};
//! let error = try_trace("wrong", |t| {
//!     let x = t.input("x", Shape::new(&[2, 4], DType::F32));
//!     vec![x.matmul(&x).relu()]
//! })
//! .unwrap_err();
//! assert!(error.to_string().contains("cannot multiply [2, 4] f32 by [2, 4] f32"));
//! assert!(error.origin().unwrap().contains(".rs:"));
//! ```

mod dynamic;
mod methods;
mod operators;

pub use dynamic::{Arg, ArgKind, Method, binary, binary_at, call, call_at, method, negate};
pub use methods::methods;
pub use operators::Operand;

use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, GraphExt, NodeId, fault};
use crate::ops::Op;
use crate::shape::Shape;
use crate::tensor::ConstData;
use crate::verify::verify_ok;

/// The graph that a tracer and its tensors share. They may be used by several threads, one after the other.
type Recording = Arc<Mutex<Graph>>;

/// The graph, also after a call that panicked: each call adds whole nodes.
fn lock(graph: &Mutex<Graph>) -> MutexGuard<'_, Graph> {
    graph.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records a graph; see the [module](self).
#[derive(Debug)]
pub struct Tracer {
    graph: Recording,
}

/// A tensor of a graph that is being recorded. Cloning it copies nothing.
#[derive(Clone)]
pub struct TracedTensor {
    graph: Recording,
    id: NodeId,
}

/// The graph that `f` records; what `f` returns are its outputs. Faults are kept in the graph, as by the short
/// forms of [`GraphExt`].
///
/// ```
/// # use rlx_ir::{DType, Shape, trace};
/// let graph = trace("twice", |t| {
///     let x = t.input("x", Shape::new(&[3], DType::F32));
///     vec![&x + &x]
/// });
/// assert_eq!(graph.len(), 2);
/// ```
pub fn trace<F>(name: &str, f: F) -> Graph
where
    F: FnOnce(&Tracer) -> Vec<TracedTensor>,
{
    let tracer = Tracer::new(name);
    let outputs = f(&tracer);
    tracer.finish(&outputs)
}

/// The graph that `f` records, verified.
///
/// # Errors
/// The first fault, naming the line where it was written.
pub fn try_trace<F>(name: &str, f: F) -> Result<Graph>
where
    F: FnOnce(&Tracer) -> Vec<TracedTensor>,
{
    let graph = trace(name, f);
    verify_ok(&graph)?;
    Ok(graph)
}

impl Tracer {
    /// Records a new graph called `name`. [`trace`] is the usual way.
    pub fn new(name: impl Into<String>) -> Self {
        Tracer { graph: Arc::new(Mutex::new(Graph::new(name))) }
    }

    /// The graph recorded so far, with these outputs.
    pub fn finish(self, outputs: &[TracedTensor]) -> Graph {
        // Tensors that outlive the recording keep it alive; they must not keep the caller from its graph.
        let mut graph = match Arc::try_unwrap(self.graph) {
            Ok(graph) => graph.into_inner().unwrap_or_else(PoisonError::into_inner),
            Err(shared) => lock(&shared).clone(),
        };
        graph.set_outputs(outputs.iter().map(|t| t.id).collect());
        graph
    }

    /// The graph recorded so far, with these outputs; recording may go on.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidGraph`] for a tensor of another recording.
    pub fn snapshot(&self, outputs: &[TracedTensor]) -> Result<Graph> {
        if outputs.iter().any(|t| !Arc::ptr_eq(&t.graph, &self.graph)) {
            return Err(Error::new(ErrorKind::InvalidGraph, "an output is a tensor of another graph"));
        }
        let mut graph = lock(&self.graph).clone();
        graph.set_outputs(outputs.iter().map(|t| t.id).collect());
        Ok(graph)
    }

    /// A tensor the caller gives at every run.
    #[track_caller]
    pub fn input(&self, name: impl Into<String>, shape: Shape) -> TracedTensor {
        let name = name.into();
        self.add(Location::caller(), |g| Ok(g.input(name, shape)))
    }

    /// A tensor the caller sets once.
    #[track_caller]
    pub fn param(&self, name: impl Into<String>, shape: Shape) -> TracedTensor {
        let name = name.into();
        self.add(Location::caller(), |g| Ok(g.param(name, shape)))
    }

    /// A tensor fixed in the graph.
    #[track_caller]
    pub fn constant(&self, data: ConstData) -> TracedTensor {
        self.add(Location::caller(), |g| g.try_constant(data))
    }

    /// A fixed tensor of one element and no dimensions.
    #[track_caller]
    pub fn scalar(&self, value: f64, dtype: DType) -> TracedTensor {
        self.add(Location::caller(), |g| g.try_scalar(value, dtype))
    }

    /// `0, 1, 2, …` along one axis of a tensor of these dimensions.
    #[track_caller]
    pub fn iota(&self, to: &[Dim], axis: usize, dtype: DType) -> TracedTensor {
        let op = Op::Iota { to: to.to_vec(), axis, dtype };
        self.add(Location::caller(), |g| g.try_emit(op, &[]))
    }

    /// Any op of the language, its shape inferred: for those that have no method here.
    ///
    /// ```
    /// use rlx_ir::{DType, Op, Shape, trace};
    /// let graph = trace("lower", |t| {
    ///     let x = t.input("x", Shape::new(&[3, 3], DType::F32));
    ///     vec![t.op(Op::Trilu { upper: false, k: 0.into() }, &[&x])]
    /// });
    /// assert!(rlx_ir::verify(&graph).is_empty());
    /// ```
    #[track_caller]
    pub fn op(&self, op: Op, inputs: &[&TracedTensor]) -> TracedTensor {
        let ids: Vec<NodeId> = inputs.iter().map(|t| t.id).collect();
        self.add(Location::caller(), |g| g.try_emit(op, &ids))
    }

    /// States that output number `output` (of what the traced function returns) may take the memory of the input of that name,
    /// as [`Graph::donate`] does: a cache that each run extends stays where it is. Checked with the graph.
    ///
    /// ```
    /// use rlx_ir::{DType, Op, Shape, trace};
    /// let graph = trace("append", |t| {
    ///     let cache = t.input("cache", Shape::new(&[1024, 64], DType::F32));
    ///     let row = t.input("row", Shape::new(&[1, 64], DType::F32));
    ///     let at = t.input("at", Shape::new(&[], DType::I64));
    ///     t.donate("cache", 0);
    ///     vec![t.op(Op::UpdateSlice { axis: 0 }, &[&cache, &row, &at])]
    /// });
    /// assert_eq!(graph.donated_to("cache"), Some(0));
    /// assert!(rlx_ir::verify(&graph).is_empty());
    /// ```
    pub fn donate(&self, input: impl Into<String>, output: usize) {
        lock(&self.graph).set_donation(output, input.into());
    }

    /// Adds what `f` builds. It comes from `at`, a line of a program, of whatever language: for bindings.
    pub fn record(
        &self,
        at: &dyn fmt::Display,
        f: impl FnOnce(&mut Graph) -> Result<NodeId>,
    ) -> TracedTensor {
        add(&self.graph, at, f)
    }

    fn add(&self, at: &Location<'_>, f: impl FnOnce(&mut Graph) -> Result<NodeId>) -> TracedTensor {
        add(&self.graph, at, f)
    }
}

/// Adds what `f` builds, at the line `at`.
fn add(
    graph: &Recording,
    at: &dyn fmt::Display,
    f: impl FnOnce(&mut Graph) -> Result<NodeId>,
) -> TracedTensor {
    let mut g = lock(graph);
    let first = g.len();
    let line = at.to_string();
    let id = match f(&mut g) {
        Ok(id) => id,
        Err(error) => g.keep_fault(error.with_origin(line.clone())),
    };
    if g.len() > first {
        let origin = g.origins_mut().source(line);
        let added: Vec<NodeId> = g.nodes()[first..].iter().map(|n| n.id).collect();
        added.into_iter().for_each(|id| g.set_origin(id, origin));
    }
    TracedTensor { graph: Arc::clone(graph), id }
}

impl TracedTensor {
    /// The node it stands for.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Its shape. Of a kept fault it means nothing; [`TracedTensor::try_shape`] reports that.
    pub fn shape(&self) -> Shape {
        lock(&self.graph).shape(self.id).clone()
    }

    /// Its shape.
    ///
    /// # Errors
    /// The fault that it stands for.
    pub fn try_shape(&self) -> Result<Shape> {
        lock(&self.graph).try_shape(self.id).cloned()
    }

    /// Its element type.
    pub fn dtype(&self) -> DType {
        self.shape().dtype()
    }

    /// How many dimensions it has.
    pub fn rank(&self) -> usize {
        self.shape().rank()
    }

    /// The same tensor, named for reports and messages.
    pub fn named(self, name: impl Into<String>) -> TracedTensor {
        lock(&self.graph).set_name(self.id, name);
        self
    }

    /// The `k` largest elements along `axis`, and where they are (i64). Of equal elements the first comes first.
    #[track_caller]
    pub fn top_k(&self, k: usize, axis: i32) -> (TracedTensor, TracedTensor) {
        let at = Location::caller();
        let values = add(&self.graph, at, |g| {
            let axis = g.try_shape(self.id)?.axis(axis.into())?;
            g.try_emit(Op::TopK { k: Dim::Static(k), axis, largest: true, sorted: true }, &[self.id])
        });
        let indices = add(&self.graph, at, |g| {
            g.try_shape(values.id)?;
            g.result(values.id, 1)
        });
        (values, indices)
    }

    /// The fault that it stands for, if it is one.
    pub(crate) fn fault(&self) -> Option<Error> {
        let graph = lock(&self.graph);
        fault::error(&graph.node(self.id).op)
    }

    /// Whether both belong to the same recording.
    pub fn is_beside(&self, other: &TracedTensor) -> bool {
        Arc::ptr_eq(&self.graph, &other.graph)
    }

    /// Adds what `f` builds to the same graph; see [`Tracer::record`].
    pub fn beside(
        &self,
        at: &dyn fmt::Display,
        f: impl FnOnce(&mut Graph) -> Result<NodeId>,
    ) -> TracedTensor {
        add(&self.graph, at, f)
    }

    /// Itself.
    ///
    /// # Errors
    /// The fault that it stands for.
    pub fn checked(self) -> Result<Self> {
        match self.fault() {
            Some(error) => Err(error),
            None => Ok(self),
        }
    }

    fn then(&self, at: &Location<'_>, f: impl FnOnce(&mut Graph, NodeId) -> Result<NodeId>) -> TracedTensor {
        add(&self.graph, at, |g| f(g, self.id))
    }
}

impl fmt::Debug for TracedTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let graph = lock(&self.graph);
        match fault::error(&graph.node(self.id).op) {
            Some(error) => write!(f, "TracedTensor({error})"),
            None => write!(f, "TracedTensor({}: {})", self.id, graph.shape(self.id)),
        }
    }
}
