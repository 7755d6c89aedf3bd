//! Every environment variable that RLX heeds.

use rlx_backend::libraries::LIBRARY_PATH;
use rlx_driver::DeviceId;
use rlx_ir::{Error, ErrorKind, KernelDispatchPolicy, Result};
use rlx_opt::Tune;
use rlx_select::device_ext::unavailable_reason;
use rlx_select::env::{ALLOW, BENCHMARK, CHAIN, DENY, DEVICE, PREFER, benchmark_runs, device, list};

use crate::aot::AotCache;
/// An environment variable that RLX heeds.
#[derive(Debug, Clone)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it decides.
    pub about: &'static str,
    /// Its value, where it is set.
    pub value: Option<String>,
    /// Why its value makes no sense, or cannot be honoured on this machine.
    pub fault: Option<Error>,
}

/// A variable, what it decides, and what looks at its value.
type Row = (&'static str, &'static str, fn() -> Result<()>);

/// Every environment variable that RLX heeds, with what is set and whether it can be honoured.
///
/// ```
/// let variables = rlx_runtime::variables();
/// let isa = variables.iter().find(|v| v.name == "RLX_CPU_ISA").unwrap();
/// assert!(isa.fault.is_none() || isa.value.is_some());
/// ```
pub fn variables() -> Vec<Variable> {
    let table: [Row; 17] = [
        (DEVICE, "the device, where none is given", usable_device),
        (ALLOW, "devices that may be chosen", || list::<DeviceId>(ALLOW).map(drop)),
        (DENY, "devices that may not be chosen", || list::<DeviceId>(DENY).map(drop)),
        (PREFER, "devices to take first", || list::<DeviceId>(PREFER).map(drop)),
        (BENCHMARK, "choose by this many measured runs", || benchmark_runs().map(drop)),
        (CHAIN, "devices to try one after the other", || list::<DeviceId>(CHAIN).map(drop)),
        ("RLX_NUM_THREADS", "threads of the CPU", usable_threads),
        ("RLX_CPU_ISA", "the CPU's instruction set", usable_isa),
        (LIBRARY_PATH, "folders with the libraries of CUDA, ROCm and MLX, looked into first", || Ok(())),
        ("RLX_PJRT_PLUGIN", "the file of the PJRT plugin that serves TPUs", || Ok(())),
        ("RLX_COREML_UNITS", "which processors Core ML may use", || Ok(())),
        ("RLX_KERNEL_DISPATCH", "how ops are computed", || KernelDispatchPolicy::from_env().map(drop)),
        ("RLX_TUNE", "whether steps are tuned", || Tune::from_env().map(drop)),
        ("RLX_DISPATCH_REPORT", "1 prints how each op is computed, at every compilation", || Ok(())),
        ("RLX_PROFILE", "1 prints each step's time at the end", || Ok(())),
        ("RLX_CACHE_DIR", "where caches and test data are stored", || Ok(())),
        ("RLX_CACHE_LIMIT", "maximum size of the cache of compiled models", || {
            AotCache::from_env().map(drop)
        }),
    ];
    let variable = |(name, about, check): Row| {
        let value =
            std::env::var_os(name).map(|v| v.to_string_lossy().into_owned()).filter(|v| !v.is_empty());
        let fault = value.as_ref().and_then(|_| check().err());
        Variable { name, about, value, fault }
    };
    table.into_iter().map(variable).collect()
}

/// Whether what `RLX_DEVICE` names can be used.
fn usable_device() -> Result<()> {
    match device::<DeviceId>()? {
        Some(device) => unavailable_reason(device).map_or(Ok(()), Err),
        None => Ok(()),
    }
}

#[cfg(feature = "cpu")]
fn usable_threads() -> Result<()> {
    rlx_cpu::pool::threads_from_env().map(drop).map_err(|e| Error::new(ErrorKind::Config, e.to_string()))
}

#[cfg(feature = "cpu")]
fn usable_isa() -> Result<()> {
    rlx_cpu::isa::Isa::from_env().map(drop).map_err(|e| Error::new(ErrorKind::Config, e.to_string()))
}

/// Without the CPU nothing reads it.
#[cfg(not(feature = "cpu"))]
fn usable_threads() -> Result<()> {
    Ok(())
}

/// As for threads.
#[cfg(not(feature = "cpu"))]
fn usable_isa() -> Result<()> {
    Ok(())
}

/// The instruction sets of this processor that the CPU has kernels for, the best last.
pub fn cpu_instruction_sets() -> Vec<String> {
    #[cfg(feature = "cpu")]
    return rlx_cpu::isa::Isa::available().iter().map(ToString::to_string).collect();
    #[cfg(not(feature = "cpu"))]
    Vec::new()
}
