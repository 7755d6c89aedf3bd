//! The devices: each of another architecture, so that what depends on it is seen; but for the last, which is for calls without the runtime: they reset it.

use rlx_tile::Arch;

/// How many there are of each vendor.
pub const DEVICES: usize = 7;

/// A device of a vendor's: major and minor number of what it can do, and the architecture of its matrix units.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    pub numbers: (i32, i32),
    pub units: Option<Arch>,
    /// The most bytes of workgroup memory that a launch may give.
    pub dynamic_bytes: i32,
    /// Multiprocessors or compute units: so few that what fills them is soon interpreted.
    pub compute_units: i32,
}

const fn model(major: i32, minor: i32, units: Option<Arch>, dynamic: i32) -> Model {
    Model { numbers: (major, minor), units, dynamic_bytes: dynamic << 10, compute_units: 4 }
}

/// What a launch may give without having been allowed more.
pub const DECLARED_BYTES: u64 = 48 << 10;

/// Hopper, Ampere, Turing, Pascal, both kinds of Blackwell (of workstations and of data centres), and Pascal again.
pub const CUDA_MODELS: [Model; DEVICES] = [
    model(9, 0, Some(Arch::Sm90a), 227),
    model(8, 0, Some(Arch::Sm80), 163),
    model(7, 5, Some(Arch::Sm75), 64),
    model(6, 1, None, 48),
    model(12, 0, Some(Arch::Sm80), 99),
    model(10, 0, Some(Arch::Sm100a), 227),
    model(6, 1, None, 48),
];
/// gfx90a, gfx1100, gfx1200, gfx906, gfx942, gfx1151, and gfx906 again.
pub const HIP_MODELS: [Model; DEVICES] = [
    model(9, 0, Some(Arch::Gfx90a), 64),
    model(11, 0, Some(Arch::Gfx1100), 64),
    model(12, 0, Some(Arch::Gfx1200), 64),
    model(9, 0, None, 64),
    model(9, 4, Some(Arch::Gfx90a), 64),
    model(11, 5, Some(Arch::Gfx1100), 64),
    model(9, 0, None, 64),
];
