//! The environment variables about devices. An empty variable counts as not set; a value that
//! does not parse is an error wherever it is read.

use rlx_driver::Device;
use rlx_ir::KernelDispatchPolicy;
use rlx_ir::{Error, ErrorKind, Result};
use rlx_opt::Tune;

use crate::aot::AotCache;
use crate::device_ext::unavailable_reason;

/// The one device to use.
pub(crate) const DEVICE: &str = "RLX_DEVICE";
/// The devices that may be used.
pub(crate) const ALLOW: &str = "RLX_DEVICES";
/// The devices that may not.
pub(crate) const DENY: &str = "RLX_DENY_DEVICES";
/// The devices to take first.
pub(crate) const PREFER: &str = "RLX_PREFER_DEVICES";
/// How many runs to measure each device by.
pub(crate) const BENCHMARK: &str = "RLX_BENCHMARK_PICK";
/// The devices to try one after the other.
pub(crate) const CHAIN: &str = "RLX_DEVICE_CHAIN";

fn reject(name: &str, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Config, format!("{name}: {why}"))
}

/// The value of a variable, trimmed; `None` when it is not set or empty.
fn setting(name: &str) -> Result<Option<String>> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value.trim().to_string()).filter(|v| !v.is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(e) => Err(reject(name, e)),
    }
}

/// The devices that `text` names, separated by commas.
fn parse_list(name: &str, text: &str) -> Result<Vec<Device>> {
    text.split(',').map(|item| item.parse().map_err(|e| reject(name, e))).collect()
}

fn parse_runs(name: &str, text: &str) -> Result<usize> {
    match text.parse() {
        Ok(runs) if runs > 0 => Ok(runs),
        _ => Err(reject(name, format_args!("\"{text}\" is not a number of runs; use 1 or more"))),
    }
}

/// The devices that a variable lists; `None` when it is not set.
pub(crate) fn list(name: &str) -> Result<Option<Vec<Device>>> {
    setting(name)?.map(|text| parse_list(name, &text)).transpose()
}

/// What `RLX_DEVICE` names.
pub(crate) fn device() -> Result<Option<Device>> {
    setting(DEVICE)?.map(|text| text.parse().map_err(|e| reject(DEVICE, e))).transpose()
}

/// How many runs `RLX_BENCHMARK_PICK` asks for.
pub(crate) fn benchmark_runs() -> Result<Option<usize>> {
    setting(BENCHMARK)?.map(|text| parse_runs(BENCHMARK, &text)).transpose()
}

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
    let table: [Row; 14] = [
        (DEVICE, "the device, where none is given", usable_device),
        (ALLOW, "devices that may be chosen", || list(ALLOW).map(drop)),
        (DENY, "devices that may not be chosen", || list(DENY).map(drop)),
        (PREFER, "devices to take first", || list(PREFER).map(drop)),
        (BENCHMARK, "choose by this many measured runs", || benchmark_runs().map(drop)),
        (CHAIN, "devices to try one after the other", || list(CHAIN).map(drop)),
        ("RLX_NUM_THREADS", "threads of the CPU", usable_threads),
        ("RLX_CPU_ISA", "the CPU's instruction set", usable_isa),
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
    match device()? {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_separated_by_commas_and_every_item_must_parse() {
        assert_eq!(parse_list(ALLOW, "vk, CPU").unwrap(), [Device::Vulkan, Device::Cpu]);
        for wrong in ["cpu,", "cpu vulkan", "quantum"] {
            let e = parse_list(DENY, wrong).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Config);
            assert!(e.to_string().contains(DENY), "{e}");
        }
    }

    #[test]
    fn a_number_of_runs_is_at_least_one() {
        assert_eq!(parse_runs(BENCHMARK, "3").unwrap(), 3);
        for wrong in ["0", "-1", "many", "1.5"] {
            assert!(parse_runs(BENCHMARK, wrong).unwrap_err().to_string().contains(wrong));
        }
    }
}
