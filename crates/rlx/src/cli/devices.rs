//! `rlx devices`: what can be used here, and why the rest cannot.

use std::process::ExitCode;

use rlx_runtime::{Device, full_name, unavailable_reason};
use serde_json::json;

use super::failure::Failure;

/// Lists every device.
pub fn devices(json: bool) -> Result<ExitCode, Failure> {
    let reason = |d: Device| unavailable_reason(d).map(|e| e.message().to_owned());
    let all: Vec<(Device, Option<String>)> = Device::all().iter().map(|&d| (d, reason(d))).collect();
    if json {
        let entry = |(d, reason): &(Device, Option<String>)| {
            json!({
                "device": d.feature(), "name": full_name(*d), "available": reason.is_none(), "reason": reason,
            })
        };
        println!("{}", all.iter().map(entry).collect::<serde_json::Value>());
        return Ok(ExitCode::SUCCESS);
    }
    for (device, reason) in &all {
        match reason {
            None => println!("{:<10} {:<8} available", device.feature(), full_name(*device)),
            Some(why) => println!("{:<10} {:<8} {why}", device.feature(), full_name(*device)),
        }
    }
    Ok(ExitCode::SUCCESS)
}
