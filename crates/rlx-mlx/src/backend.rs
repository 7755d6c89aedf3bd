//! The backend: the device as the compiler sees it, and its probe.

use std::path::PathBuf;
use std::sync::Arc;

use rlx_backend::whole_graph::{self, GraphTarget};
use rlx_backend::{Backend, ExecutableGraph, libraries};
use rlx_driver::Device;
use rlx_ir::{Error, ErrorKind, LirModule, Result};
use rlx_opt::{CompileOptions, Target};

use crate::claims::{Abilities, claim};
use crate::device::Mlx;

/// Apple silicon through MLX ([`Device::Mlx`]), by the shim in `crates/rlx-mlx/shim`, which is loaded at run time: first from the
/// folders that [`libraries::LIBRARY_PATH`] names, then from that of the program.
///
/// Where MLX computes (Metal, CUDA, or the CPU) its own build decides.
///
/// ```
/// use rlx_backend::Backend;
/// let backend = rlx_mlx::MlxBackend::new();
/// match backend.probe() {
///     Ok(()) => println!("{}", backend.machine()?),
///     Err(missing) => println!("{missing}"),
/// }
/// # Ok::<(), rlx_ir::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct MlxBackend {
    folders: Vec<PathBuf>,
}

impl Default for MlxBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl MlxBackend {
    /// MLX, if it is there; [`Backend::probe`] says whether.
    pub fn new() -> Self {
        MlxBackend { folders: libraries::folders() }
    }

    /// The shim from these folders, where it is there.
    #[must_use]
    pub fn with_library_folders(mut self, folders: Vec<PathBuf>) -> Self {
        self.folders = folders;
        self
    }

    /// Bytes that MLX holds for this process's arrays.
    ///
    /// # Errors
    /// As [`Backend::probe`].
    pub fn memory_in_use(&self) -> Result<u64> {
        Ok(Mlx::open(&self.folders)?.memory_in_use())
    }

    fn abilities(&self) -> Abilities {
        // Without MLX, what it has on Apple's GPUs: graphs can be checked against it all the same.
        Mlx::open(&self.folders).map_or(Abilities { gpu: true }, |mlx| mlx.abilities())
    }
}

/// MLX as the compiler sees it.
pub(crate) fn graph_target(can: Abilities) -> GraphTarget {
    let moves: fn(rlx_ir::DType) -> bool = if can.gpu {
        |dtype| Abilities { gpu: true }.has(dtype)
    } else {
        |dtype| Abilities { gpu: false }.has(dtype)
    };
    GraphTarget::new(Device::Mlx.feature(), move |node, graph| claim(node, graph, can)).with_moves(moves)
}

impl Backend for MlxBackend {
    fn name(&self) -> &str {
        Device::Mlx.feature()
    }

    fn machine(&self) -> Result<String> {
        Ok(Mlx::open(&self.folders)?.machine.clone())
    }

    fn probe(&self) -> Result<()> {
        let mlx = Mlx::open(&self.folders)?;
        mlx.probed
            .get_or_init(|| {
                if rlx_backend::probe::doubles(self)? {
                    return Ok(());
                }
                let message = format!("{} computes wrongly", mlx.machine);
                let error = Error::new(ErrorKind::DeviceUnavailable, message).with_device(Device::Mlx.name());
                Err(error.with_hint("use another version of MLX"))
            })
            .clone()
    }

    fn target(&self, _: &CompileOptions) -> Result<Arc<dyn Target>> {
        Ok(Arc::new(graph_target(self.abilities())))
    }

    fn compile(&self, lir: Arc<LirModule>, _: &CompileOptions) -> Result<Box<dyn ExecutableGraph>> {
        let mlx = Mlx::open(&self.folders)?;
        let target = graph_target(mlx.abilities());
        whole_graph::compile(mlx, &target, lir)
    }
}
