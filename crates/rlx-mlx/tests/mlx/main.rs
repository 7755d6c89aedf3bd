//! MLX, where the shim is: on Linux MLX's build for the CPU. `cargo xtask test --suite mlx` builds the shim and runs these.
//!
//! `RLX_TEST_DEVICES=mlx` says that it must be there: its absence is then a failure. Without it, it is a named skip.

mod faults;
mod graphs;
mod models;

use rlx_backend::Backend;
use rlx_driver::Device;
use rlx_mlx::MlxBackend;

/// MLX, if it is there.
fn mlx() -> Option<MlxBackend> {
    let backend = MlxBackend::new();
    match backend.probe() {
        Ok(()) => Some(backend),
        Err(missing) => {
            let required = std::env::var("RLX_TEST_DEVICES").unwrap_or_default();
            let named = required.split(',').any(|name| name.parse() == Ok(Device::Mlx));
            assert!(!named, "RLX_TEST_DEVICES names MLX: {missing}");
            println!("@skip 1 MLX: {missing}");
            None
        }
    }
}

/// Whether everything runs (`RLX_TEST_ALL=1`, set by `cargo xtask test --all`), or what fits the test command.
fn everything() -> bool {
    std::env::var("RLX_TEST_ALL").is_ok_and(|v| v == "1")
}
