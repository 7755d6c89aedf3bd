//! The CPU backend: compiles modules to programs.

use std::sync::Arc;

use rlx_backend::tuning::TuningKey;
use rlx_backend::{Backend, CompileCache, ExecutableGraph};
use rlx_ir::lir::Step;
use rlx_ir::{Error, ErrorKind, LirModule, Result};
use rlx_opt::{CompileOptions, PoolSpec, Target};

use crate::isa::Isa;
use crate::pool::Pool;
use crate::program::{CpuExecutable, Threads, program, tuned};
use crate::target::CpuTarget;

/// The processor as a device.
///
/// ```
/// use std::sync::Arc;
/// use rlx_backend::Backend;
/// use rlx_cpu::CpuBackend;
/// use rlx_ir::{DType, Graph, Shape, op::BinaryOp};
/// use rlx_opt::{CompileOptions, CompilePipeline};
/// let mut g = Graph::new("double");
/// let x = g.input("x", Shape::new(&[2], DType::F32));
/// let y = g.binary(BinaryOp::Add, x, x, Shape::new(&[2], DType::F32));
/// g.set_outputs(vec![y]);
/// let (backend, options) = (CpuBackend::new(), CompileOptions::default());
/// let pipeline = CompilePipeline::new(backend.target(&options)?, options.clone());
/// let lir = Arc::new(pipeline.compile(&g)?.lir);
/// let mut exec = backend.compile(lir, &options)?;
/// let input: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|v| v.to_le_bytes()).collect();
/// exec.run(&&[input][..], &[])?;
/// assert_eq!(exec.output(0)?[..4], 3.0f32.to_le_bytes());
/// # Ok::<(), rlx_ir::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct CpuBackend {
    isa: Option<Isa>,
    pool: Option<Arc<Pool>>,
}

fn config(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Config, error.to_string())
}

impl CpuBackend {
    /// The backend with what the environment says (`RLX_CPU_ISA`, `RLX_NUM_THREADS`), on the process's pool.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same backend with this instruction set.
    pub fn with_isa(self, isa: Isa) -> Self {
        CpuBackend { isa: Some(isa), ..self }
    }

    /// The same backend with a pool of its own of this many threads.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a number of threads that makes no sense.
    pub fn with_threads(self, threads: usize) -> Result<Self> {
        Ok(self.with_pool(Arc::new(Pool::new(threads).map_err(config)?)))
    }

    /// The same backend with this pool, which others may share.
    pub fn with_pool(self, pool: Arc<Pool>) -> Self {
        CpuBackend { pool: Some(pool), ..self }
    }

    fn isa(&self) -> Result<Isa> {
        self.isa.map_or_else(|| Isa::from_env().map_err(config), Ok)
    }

    fn threads(&self) -> Result<Threads> {
        match &self.pool {
            Some(pool) => Ok(Threads::Own(Arc::clone(pool))),
            None => Ok(Threads::Global(Pool::global().map_err(config)?)),
        }
    }
}

impl Backend for CpuBackend {
    fn name(&self) -> &str {
        "cpu"
    }

    fn machine(&self) -> Result<String> {
        Ok(format!("{} {}", std::env::consts::ARCH, self.isa()?))
    }

    fn probe(&self) -> Result<()> {
        self.isa()?;
        #[cfg(feature = "blas")]
        crate::blas::Blas::chosen().map_err(|e| Error::new(ErrorKind::DeviceUnavailable, e.to_string()))?;
        self.threads().map(|_| ())
    }

    fn target(&self, _: &CompileOptions) -> Result<Arc<dyn Target>> {
        Ok(Arc::new(CpuTarget::new(self.isa()?)))
    }

    fn compile(&self, lir: Arc<LirModule>, options: &CompileOptions) -> Result<Box<dyn ExecutableGraph>> {
        self.compile_cached(lir, options, &CompileCache::default())
    }

    fn compile_cached(
        &self,
        lir: Arc<LirModule>,
        options: &CompileOptions,
        cache: &CompileCache,
    ) -> Result<Box<dyn ExecutableGraph>> {
        let (isa, threads) = (self.isa()?, self.threads()?);
        rlx_opt::verify_lir::verify_program(&lir, &CpuTarget::new(isa))?;
        let pool = PoolSpec::default().for_options(options);
        let program = program(lir, isa, threads, pool, &cache.tuning)?;
        Ok(Box::new(CpuExecutable::new(Arc::new(program))?))
    }

    fn tuning_key(&self, lir: &LirModule, step: &Step, _: &CompileOptions) -> Result<Option<TuningKey>> {
        Ok(tuned::tuning_key(lir, step, self.isa()?, &self.threads()?))
    }
}
