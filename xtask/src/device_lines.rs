//! What a device costs: the lines of each crate over `rlx-gpu`, besides kernels and what only says how a vendor calls things.
//!
//! A device takes at most [`MOST`] lines. `cargo xtask structure` prints the numbers, and the suite `structure` fails where a crate has more:
//! what another device would need as well belongs into `rlx-gpu`.

use std::fs;
use std::path::Path;

/// The most lines of a device.
const MOST: usize = 600;

/// A crate that implements `rlx_gpu::GpuApi`.
struct Device {
    package: &'static str,
    /// Files that do not count: tables and texts of vendors, and what compiles kernels.
    besides: &'static [&'static str],
}

const DEVICES: &[Device] = &[
    Device {
        package: "rlx-simt",
        // Functions, numbers, their libraries and the values over them (the driver's, its tensor maps, and cuBLASLt's and hipBLASLt's); NVRTC and hiprtc.
        besides: &[
            "table.rs",
            "numbers.rs",
            "load.rs",
            "driver.rs",
            "tensor_map.rs",
            "blas.rs",
            "compile.rs",
        ],
    },
    Device {
        package: "rlx-wgpu",
        // What is missing and how to get it; kernels' languages, texts to SPIR-V, and both to pipelines.
        besides: &["adapter.rs", "language.rs", "spirv.rs", "pipeline.rs", "trusted.rs", "driver_cache.rs"],
    },
];

/// A line for each device.
pub fn report() -> Result<Vec<String>, String> {
    let line = |device: &Device| {
        let count = count(device)?;
        Ok(format!("{}: {count} lines, at most {MOST}", device.package))
    };
    DEVICES.iter().map(line).collect()
}

/// The devices that have more lines than they may.
pub fn growth() -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for device in DEVICES {
        let (count, Device { package, .. }) = (count(device)?, device);
        if count > MOST {
            found.push(format!(
                "{package}: {count} lines besides kernels and vendors' tables, at most {MOST}"
            ));
        }
    }
    Ok(found)
}

fn count(device: &Device) -> Result<usize, String> {
    let folder = crate::root().join("crates").join(device.package).join("src");
    let files = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut sum = 0;
    for file in files {
        let path = file.map_err(|e| format!("{}: {e}", folder.display()))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !device.besides.contains(&name) {
            sum += code_lines(&read(&path)?);
        }
    }
    Ok(sum)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Lines without blank lines, comments, and the tests at the end.
fn code_lines(text: &str) -> usize {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    code.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_comments_and_tests_do_not_count() {
        let text = "//! Docs.\n\nuse a;\n// Why.\nfn f() {\n    1 // one\n}\n\n#[cfg(test)]\nmod tests {\n    use b;\n}\n";
        assert_eq!(code_lines(text), 4);
    }

    #[test]
    fn every_device_is_there_and_has_the_files_that_do_not_count() {
        for device in DEVICES {
            let src = crate::root().join("crates").join(device.package).join("src");
            assert!(device.besides.iter().all(|file| src.join(file).exists()), "{}", device.package);
            assert!(count(device).unwrap() > 100);
        }
    }
}
