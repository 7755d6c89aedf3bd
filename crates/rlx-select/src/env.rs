//! The environment variables about devices. An empty variable counts as not set; a value that
//! does not parse is an error wherever it is read.

use std::fmt::Display;
use std::str::FromStr;

use rlx_driver::DeviceId;
use rlx_ir::{Error, ErrorKind, Result};
/// The one device to use.
pub const DEVICE: &str = "RLX_DEVICE";
/// The devices that may be used.
pub const ALLOW: &str = "RLX_DEVICES";
/// The devices that may not.
pub const DENY: &str = "RLX_DENY_DEVICES";
/// The devices to take first.
pub const PREFER: &str = "RLX_PREFER_DEVICES";
/// How many runs to measure each device by.
pub const BENCHMARK: &str = "RLX_BENCHMARK_PICK";
/// The devices to try one after the other.
pub const CHAIN: &str = "RLX_DEVICE_CHAIN";

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
fn parse_list<D: FromStr<Err: Display>>(name: &str, text: &str) -> Result<Vec<D>> {
    text.split(',').map(|item| parse(name, item)).collect()
}

/// A [`Device`] or a [`DeviceId`]. Calls that have no room for a device outside of the list say so.
fn parse<D: FromStr<Err: Display>>(name: &str, text: &str) -> Result<D> {
    text.parse().map_err(|e| match text.parse::<DeviceId>() {
        Ok(own) => {
            reject(name, format_args!("this call cannot give {own}, which is not among RLX's devices"))
                .with_hint("use the calls that end in `_on`, such as GraphDevices::run_chain_on")
        }
        Err(_) => reject(name, e),
    })
}

fn parse_runs(name: &str, text: &str) -> Result<usize> {
    match text.parse() {
        Ok(runs) if runs > 0 => Ok(runs),
        _ => Err(reject(name, format_args!("\"{text}\" is not a number of runs; use 1 or more"))),
    }
}

/// The devices that a variable lists; `None` when it is not set.
pub fn list<D: FromStr<Err: Display>>(name: &str) -> Result<Option<Vec<D>>> {
    setting(name)?.map(|text| parse_list(name, &text)).transpose()
}

/// What `RLX_DEVICE` names.
pub fn device<D: FromStr<Err: Display>>() -> Result<Option<D>> {
    setting(DEVICE)?.map(|text| parse(DEVICE, &text)).transpose()
}

/// How many runs `RLX_BENCHMARK_PICK` asks for.
pub fn benchmark_runs() -> Result<Option<usize>> {
    setting(BENCHMARK)?.map(|text| parse_runs(BENCHMARK, &text)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlx_driver::Device;

    #[test]
    fn lists_are_separated_by_commas_and_every_item_must_parse() {
        assert_eq!(parse_list::<Device>(ALLOW, "vk, CPU").unwrap(), [Device::Vulkan, Device::Cpu]);
        for wrong in ["cpu,", "cpu vulkan", "quantum"] {
            let e = parse_list::<DeviceId>(DENY, wrong).unwrap_err();
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
