//! MLX as a device of whole graphs.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use rlx_backend::whole_graph::{Argument, GraphDevice, Shared};
use rlx_driver::Device;
use rlx_ir::{Error, ErrorKind, Graph, Result, Shape};

use crate::claims::Abilities;
use crate::emit::{self, Fault, NO_FAULT};
use crate::load::Shim;
use crate::shim::{self, Array, Program};

/// MLX, opened: shared by all executables of the process.
pub(crate) struct Mlx {
    pub(crate) shim: Arc<Shim>,
    pub(crate) machine: String,
    /// What a probe found.
    pub(crate) probed: OnceLock<Result<()>>,
    shared: Shared<Mlx>,
}

type Opened = Vec<(Vec<PathBuf>, Arc<Mlx>)>;

static OPENED: LazyLock<Mutex<Opened>> = LazyLock::new(Mutex::default);

impl Mlx {
    /// MLX by the shim in one of these folders, or where the system's loader looks.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceUnavailable`] with what is missing.
    pub(crate) fn open(folders: &[PathBuf]) -> Result<Arc<Mlx>> {
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = opened.iter().find(|(of, _)| of == folders) {
            return Ok(Arc::clone(known));
        }
        let shim = Shim::load(folders)?;
        let on = if shim.gpu { "GPU" } else { "CPU" };
        let machine = format!("MLX {} on {on} ({})", shim.version, std::env::consts::ARCH);
        let mlx = Arc::new(Mlx { shim, machine, probed: OnceLock::new(), shared: Shared::default() });
        opened.push((folders.to_vec(), Arc::clone(&mlx)));
        Ok(mlx)
    }

    pub(crate) fn abilities(&self) -> Abilities {
        Abilities { gpu: self.shim.gpu }
    }

    pub(crate) fn memory_in_use(&self) -> u64 {
        shim::memory(&self.shim) as u64
    }
}

/// A graph compiled for MLX.
pub(crate) struct Compiled {
    program: Program,
    /// The graph's large constants, which the program takes behind its inputs.
    constants: Vec<Array>,
    outputs: usize,
    faults: Vec<Fault>,
    /// For the names of what fails.
    graph: Graph,
}

impl GraphDevice for Mlx {
    type Tensor = Array;
    type Program = Compiled;
    /// The numbers of what can fail.
    type Pending = Option<Array>;

    fn name(&self) -> &str {
        Device::Mlx.name()
    }

    fn machine(&self) -> &str {
        &self.machine
    }

    fn shared(&self) -> &Shared<Self> {
        &self.shared
    }

    fn compile(&self, graph: &Graph) -> Result<Compiled> {
        let written = emit::write(graph, &self.shim.codes)?;
        if written.largest > self.shim.memory_bytes {
            let (bytes, all) = (written.largest, self.shim.memory_bytes);
            let message = format!("a value takes {bytes} bytes, and the machine has {all}");
            return Err(Error::new(ErrorKind::OutOfMemory, message).with_device(Device::Mlx.name()));
        }
        let constant = |data| shim::shared_constant(&self.shim, data);
        Ok(Compiled {
            program: Program::new(&self.shim, &written.words)?,
            constants: written.constants.iter().map(constant).collect::<Result<_>>()?,
            outputs: graph.outputs.len(),
            faults: written.faults,
            graph: graph.clone(),
        })
    }

    fn upload(&self, bytes: &[u8], shape: &Shape) -> Result<Array> {
        let open = || Error::new(ErrorKind::Internal, format!("{shape} is not fixed"));
        let dims = shape.static_dims().ok_or_else(open)?;
        Array::copied(&self.shim, shape.dtype(), &dims, bytes)
    }

    fn download(&self, tensor: &Array) -> Result<Vec<u8>> {
        rlx_ir::memory::copy(tensor.bytes()?, || "an output".into())
    }

    fn start(
        &self,
        program: &Compiled,
        arguments: Vec<Argument<Array>>,
    ) -> Result<(Vec<Array>, Option<Array>)> {
        let mut donated = Vec::with_capacity(arguments.len());
        let mut inputs: Vec<&Array> = Vec::with_capacity(arguments.len() + program.constants.len());
        for argument in &arguments {
            donated.push(matches!(argument, Argument::Donated(_)));
            inputs.push(argument.tensor());
        }
        inputs.extend(&program.constants);
        donated.resize(inputs.len(), false);
        let extra = usize::from(!program.faults.is_empty());
        let mut found = program.program.run(&inputs, &donated, program.outputs + extra)?;
        let faults = if extra > 0 { found.pop() } else { None };
        Ok((found, faults))
    }

    fn finish(&self, program: &Compiled, pending: Option<Array>) -> Result<()> {
        let Some(found) = pending else { return Ok(()) };
        let numbers = found.bytes()?.as_chunks::<8>().0.iter().map(|&bytes| i64::from_le_bytes(bytes));
        for (fault, index) in program.faults.iter().zip(numbers) {
            if index != NO_FAULT {
                return Err(program.graph.locate(fault.node, fault.error(index)));
            }
        }
        Ok(())
    }
}
