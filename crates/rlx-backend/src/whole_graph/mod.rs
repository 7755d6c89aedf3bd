//! Devices that compile whole graphs: what a vendor's graph compiler needs to be a [`Backend`](crate::Backend).
//!
//! Such a device has a compiler of its own, which fuses, chooses layouts and plans memory. It is given the scheduled graph of a
//! module with a number for every dimension, not steps over views. So it implements [`GraphDevice`], which is little:
//! compile a graph, bring tensors there and back, run. Everything else is the [`Executor`]'s, as on any other device:
//! parameters, dimensions and the last [eight](crate::executor::BINDINGS) programs, shape rules, sizes, handles, donations,
//! runs under way, panics.
//!
//! ```text
//! LirModule ──one_step──▶ init: 1 step   what depends on parameters alone    compiled once
//!                         run:  1 step   the rest of the graph               compiled for each binding
//! ```
//!
//! Each of the two steps is a region whose body is a graph of [`Op::Input`]s; the module that callers see stays the one that was
//! compiled. [`GraphTarget`] is the device for the compiler: it claims what the device says, and fuses and packs nothing.
//!
//! What such a backend is made of, besides its device:
//!
//! ```
//! # use std::sync::Arc;
//! # use rlx_backend::whole_graph::{GraphDevice, GraphTarget, compile};
//! # use rlx_backend::{Claim, ExecutableGraph, Target};
//! # use rlx_ir::{LirModule, Op, Result};
//! fn target() -> GraphTarget {
//!     GraphTarget::new("mine", |node, _| match &node.op {
//!         Op::MatMul | Op::Binary(_) => Claim::Native,
//!         op => Claim::No(format!("it has no {}", op.kind())),
//!     })
//! }
//!
//! fn compile_mine<G: GraphDevice>(device: Arc<G>, lir: Arc<LirModule>) -> Result<Box<dyn ExecutableGraph>> {
//!     compile(device, &target(), lir)
//! }
//! ```

mod device;
mod one_step;
mod slot;
mod target;

use std::sync::Arc;

use rlx_ir::{Graph, LirModule, Op, Result, Shape, Weight};
use rlx_opt::Target;

pub use self::device::Shared;
use self::device::{Kernel, Whole};
pub use self::target::GraphTarget;
use crate::ExecutableGraph;
use crate::executor::{Executor, Program};

/// What a run is given for an input of a program.
#[derive(Debug)]
pub enum Argument<B> {
    /// A tensor that others use, too.
    Shared(Arc<B>),
    /// A tensor that nobody needs any more: the output that takes its memory ([`Graph::donations`]) may be written over it.
    Donated(B),
}

impl<B> Argument<B> {
    /// The tensor.
    pub fn tensor(&self) -> &B {
        match self {
            Argument::Shared(tensor) => tensor,
            Argument::Donated(tensor) => tensor,
        }
    }
}

/// A device with a compiler for whole graphs. A value is an opened device, shared by all that runs on it.
pub trait GraphDevice: Send + Sync + Sized + 'static {
    /// A tensor on the device. It is never changed, only donated.
    type Tensor: Send + Sync;
    /// A compiled graph.
    type Program: Send + Sync;
    /// A run that was started.
    type Pending: Send;

    /// How many runs may be under way at one time. Where it is 1, [`GraphDevice::start`] may as well finish the run.
    const IN_FLIGHT: usize = 1;

    /// The name that reports use.
    fn name(&self) -> &str;

    /// What programs and the bytes of prepared weights depend on: see [`crate::Backend::machine`].
    fn machine(&self) -> &str;

    /// What executables of the device share: its copies of weights.
    fn shared(&self) -> &Shared<Self>;

    /// Whether the device is still there.
    ///
    /// # Errors
    /// Why it is not.
    fn alive(&self) -> Result<()> {
        Ok(())
    }

    /// Compiles a graph that the device claims: every dimension is a number (or hangs on what nodes of the graph count, where the
    /// device [claims such nodes](GraphTarget::with_found_sizes)), what it takes are [`Op::Input`]s, what it gives its
    /// outputs, which may be inputs or constants and may be given twice. [`Graph::donations`] are permissions.
    ///
    /// # Errors
    /// What the device's compiler reports, with the node where it is known ([`Graph::locate`]).
    fn compile(&self, graph: &Graph) -> Result<Self::Program>;

    /// As [`GraphDevice::compile`], where it is known which inputs are weights: `fixed`, by input. A run is given the same tensors
    /// for those as the run before, shared, until a parameter is set. Devices that want weights as constants of a program wait for the
    /// first run, and remember whose they are ([`Arc::ptr_eq`]).
    ///
    /// # Errors
    /// As [`GraphDevice::compile`].
    fn compile_for(&self, graph: &Graph, fixed: &[bool]) -> Result<Self::Program> {
        let _ = fixed;
        self.compile(graph)
    }

    /// Brings row-major bytes to the device. `shape` has numbers only, and as many elements as the bytes are.
    ///
    /// # Errors
    /// Memory that cannot be had ([`rlx_ir::ErrorKind::OutOfMemory`]), or a fault of the device.
    fn upload(&self, bytes: &[u8], shape: &Shape) -> Result<Self::Tensor>;

    /// A weight on the device, of which there is one copy for all executables: by default its bytes, as [`GraphDevice::upload`] brings
    /// them.
    ///
    /// # Errors
    /// Bytes that cannot be read, and as [`GraphDevice::upload`].
    fn load(&self, weight: &Arc<Weight>) -> Result<Self::Tensor> {
        self.upload(&weight.bytes()?, &weight.shape())
    }

    /// The row-major bytes of a tensor, once it is computed.
    ///
    /// # Errors
    /// A fault of the device, or of the run that computes it.
    fn download(&self, tensor: &Self::Tensor) -> Result<Vec<u8>>;

    /// Starts a run. Gives the outputs, which may not be computed yet, and what [`GraphDevice::finish`] waits for.
    ///
    /// # Errors
    /// A fault of the device.
    fn start(
        &self,
        program: &Self::Program,
        arguments: Vec<Argument<Self::Tensor>>,
    ) -> Result<(Vec<Self::Tensor>, Self::Pending)>;

    /// What the symbols are that the program's nodes bind ([`Graph::data_symbols`], in that order), of a run that was started. Asked
    /// for only where there are any, which is where the device's target claims ops that count
    /// ([`GraphTarget::with_found_sizes`]). The run's outputs are then as large as these numbers make them.
    ///
    /// # Errors
    /// As [`GraphDevice::finish`].
    fn found(&self, program: &Self::Program, pending: &Self::Pending) -> Result<Vec<usize>> {
        let _ = (program, pending);
        Ok(Vec::new())
    }

    /// Waits for a run.
    ///
    /// # Errors
    /// What an op reports, such as an index out of range, with its node; a fault of the device.
    fn finish(&self, program: &Self::Program, pending: Self::Pending) -> Result<()>;

    /// Waits until the device has nothing left to do.
    ///
    /// # Errors
    /// A fault of the device.
    fn wait(&self) -> Result<()> {
        Ok(())
    }
}

/// Makes an executable of a module: what [`crate::Backend::compile`] of such a device is. The module is verified; where no dimension
/// is open it is compiled here, else with the first run of each size.
///
/// # Errors
/// As [`crate::Backend::compile`].
pub fn compile<G: GraphDevice>(
    device: Arc<G>,
    target: &GraphTarget,
    lir: Arc<LirModule>,
) -> Result<Box<dyn ExecutableGraph>> {
    device.alive()?;
    rlx_opt::verify_lir::verify_lir(&lir, target)?;
    let one_step = Arc::new(one_step::module(&lir, target.pool_spec(), |node| target.computes_once(node))?);
    let machine = device.machine().to_owned();
    let whole = Whole::new(device);
    let program = Program::new(one_step, whole, &machine, |device: &Whole<G>, lir, _, step, table| {
        let kernel = Kernel::<G>::new(step, lir, table)?;
        kernel.compile_fixed(&device.device)?;
        Ok(Arc::new(kernel))
    })?;
    Ok(Box::new(Executor::new(Arc::new(program.shown_as(lir)))?))
}

/// The inputs of a graph, in the order in which a run is given them.
pub fn inputs(graph: &Graph) -> impl Iterator<Item = (&str, &Shape)> {
    graph.nodes().iter().filter_map(|node| match &node.op {
        Op::Input { name } => Some((name.as_str(), &node.shape)),
        _ => None,
    })
}
