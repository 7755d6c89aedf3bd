//! The device as executables of whole graphs use it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use rlx_backend::pipelines::Kept;
use rlx_backend::whole_graph::{Argument, GraphDevice, Shared};
use rlx_driver::Device;
use rlx_ir::hash::hash_of;
use rlx_ir::{DType, Error, ErrorKind, Graph, Result, Shape};

use crate::client::{self, Buffer, Client, Event, Executable};
use crate::load::Plugin;
use crate::stablehlo::{self, Module, packed, unpacked};

/// An opened device of a plugin.
pub(crate) struct Tpu {
    client: Arc<Client>,
    shared: Shared<Tpu>,
    /// What the plugin made of programs, in the user's own cache folder.
    kept: Option<Kept>,
    /// Whether a fault said that the device is gone.
    lost: AtomicBool,
    path: std::path::PathBuf,
}

/// The devices that are open, by their plugin's file.
static OPEN: LazyLock<Mutex<Vec<Arc<Tpu>>>> = LazyLock::new(Mutex::default);

impl Tpu {
    /// The device of a plugin, opened at first use, and again after it was lost.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceUnavailable`] naming what is missing and how to get it.
    pub(crate) fn open(files: &[std::path::PathBuf]) -> Result<Arc<Tpu>> {
        let plugin = Plugin::load(files)?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|tpu| !tpu.lost.load(Ordering::Relaxed));
        if let Some(known) = open.iter().find(|tpu| tpu.path == plugin.path) {
            return Ok(Arc::clone(known));
        }
        let client = Client::new(&plugin).map_err(|e| match e.kind() {
            ErrorKind::DeviceUnavailable => e,
            _ => crate::load::unavailable(e.message().to_owned()),
        })?;
        let (major, minor) = plugin.table.version();
        let kept =
            Kept::of("pjrt", &[&client.machine, &format!("{major}.{minor}"), env!("CARGO_PKG_VERSION")]);
        let tpu = Arc::new(Tpu {
            client: Arc::new(client),
            shared: Shared::default(),
            kept,
            lost: AtomicBool::new(false),
            path: plugin.path.clone(),
        });
        open.push(Arc::clone(&tpu));
        Ok(tpu)
    }

    /// The program of a text: one that was kept, or compiled now.
    fn executable(&self, text: &str) -> Result<Executable> {
        let key = hash_of([client::OPTIONS, text.as_bytes()]).to_string();
        let known = self.kept.as_ref().and_then(|kept| kept.load(&key));
        if let Some(executable) = known.and_then(|bytes| self.client.deserialize(&bytes).ok()) {
            return Ok(executable);
        }
        let executable = self.client.compile(text)?;
        if let Some(kept) = &self.kept {
            // Not every plugin can, and nothing is lost without.
            match executable.serialize() {
                Ok(bytes) => kept.keep(&key, &bytes),
                Err(e) => tracing::debug!(error = %e, "a program is not kept"),
            }
        }
        Ok(executable)
    }

    /// Notes a device that is gone.
    fn watched<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(e) = &result {
            // absl's codes for aborted, unavailable and lost data.
            let gone = [10, 14, 15].iter().any(|code| e.message().contains(&format!("gave error {code}:")));
            if e.kind() == ErrorKind::Device && gone {
                self.lost.store(true, Ordering::Relaxed);
            }
        }
        result
    }
}

/// A compiled graph.
pub(crate) struct Compiled {
    module: Module,
    executable: Executable,
    /// The arguments that outputs may be written over.
    aliased: Vec<bool>,
    results: Vec<(DType, Vec<usize>)>,
}

/// A run under way: what says when it is over, and its fault record.
pub(crate) struct Pending {
    done: Event,
    record: Option<Buffer>,
}

impl GraphDevice for Tpu {
    type Tensor = Buffer;
    type Program = Compiled;
    type Pending = Pending;

    const IN_FLIGHT: usize = 3;

    fn name(&self) -> &str {
        Device::Tpu.name()
    }

    fn machine(&self) -> &str {
        &self.client.machine
    }

    fn shared(&self) -> &Shared<Self> {
        &self.shared
    }

    fn alive(&self) -> Result<()> {
        if self.lost.load(Ordering::Relaxed) {
            let error = Error::new(ErrorKind::Device, "the device is lost");
            return Err(error.with_device(self.name()).with_hint("compile again, which opens it again"));
        }
        Ok(())
    }

    fn compile(&self, graph: &Graph) -> Result<Compiled> {
        let mut module = stablehlo::module(graph)?;
        let executable = self.watched(self.executable(&module.text))?;
        let shape = |&id: &rlx_ir::NodeId| {
            let shape = graph.shape(id);
            (shape.dtype(), shape.static_dims().unwrap_or_default())
        };
        let mut results: Vec<(DType, Vec<usize>)> = graph.outputs.iter().map(shape).collect();
        if module.reports_faults() {
            results.push((DType::I64, vec![2]));
        }
        let inputs = rlx_backend::whole_graph::inputs(graph);
        let aliased = inputs.map(|(name, _)| graph.donated_to(name).is_some()).collect();
        // It may be as large as the constants, and is not needed any more.
        module.text = String::new();
        Ok(Compiled { module, executable, aliased, results })
    }

    fn upload(&self, bytes: &[u8], shape: &Shape) -> Result<Buffer> {
        let dims = shape.static_dims().unwrap_or_default();
        let elements = dims.iter().product();
        let dtype = shape.dtype();
        let uploaded = if dtype.is_packed() {
            self.client.upload(&unpacked(dtype, elements, bytes), dtype, &dims)
        } else {
            self.client.upload(bytes, dtype, &dims)
        };
        self.watched(uploaded)
    }

    fn download(&self, tensor: &Buffer) -> Result<Vec<u8>> {
        let bytes = self.watched(tensor.download())?;
        Ok(if tensor.dtype().is_packed() { packed(tensor.dtype(), &bytes) } else { bytes })
    }

    fn start(&self, program: &Compiled, arguments: Vec<Argument<Buffer>>) -> Result<(Vec<Buffer>, Pending)> {
        let kept = arguments.iter().zip(&program.aliased).enumerate();
        let kept =
            kept.filter(|(_, (argument, aliased))| **aliased && matches!(argument, Argument::Shared(_)));
        let kept: Vec<i64> = kept.map(|(i, _)| i as i64).collect();
        let list: Vec<&Buffer> = arguments.iter().map(Argument::tensor).collect();
        let started = self.watched(program.executable.execute(&list, &kept, &program.results));
        let (mut outputs, done) = started?;
        let record = if program.module.reports_faults() { outputs.pop() } else { None };
        Ok((outputs, Pending { done, record }))
    }

    fn finish(&self, program: &Compiled, pending: Pending) -> Result<()> {
        self.watched(pending.done.wait())?;
        let Some(record) = pending.record else { return Ok(()) };
        let record = self.watched(record.download())?;
        program.module.fault(&record).map_or(Ok(()), Err)
    }
}
