//! What measurements are made for: this machine's processor, and the usual sizes of dimensions.

use std::sync::LazyLock;

use rlx_ir::{Dim, DimBinding, Graph, sym};

/// The sizes assumed for dynamic dimensions: 1 for a batch, 128 for all others, within the
/// dimension's range.
pub fn typical_dims(graph: &Graph) -> DimBinding {
    let mut dims = DimBinding::new();
    for node in graph.inputs() {
        for dim in node.shape.dims() {
            if let Dim::Dynamic(symbol) = *dim {
                let range = graph.symbol_range(symbol);
                let usual = if sym::name(symbol).contains("batch") { 1 } else { 128 };
                let size = usual.max(range.min).min(range.max.max(range.min));
                dims.set(symbol, usize::try_from(size).unwrap_or(1));
            }
        }
    }
    dims
}

/// The processor's name, where the system tells it. Devices in software depend on it as much as the CPU.
pub(crate) fn processor() -> &'static str {
    // Where there are many cores, the system takes milliseconds to tell.
    static NAME: LazyLock<String> = LazyLock::new(|| {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let line = info.lines().find(|line| line.starts_with("model name"));
        let name = line.and_then(|line| line.split_once(':'));
        name.map_or_else(|| std::env::consts::ARCH.to_string(), |(_, name)| name.trim().to_string())
    });
    &NAME
}
