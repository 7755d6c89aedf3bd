//! What every call goes through: the count of the thread's calls, a fault that was asked for, the vendor's world, and the reason
//! of a rejection.

use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::world::{Outcome, Rejected, World, code};

/// Whose functions are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vendor {
    Cuda,
    Hip,
}

static WORLDS: LazyLock<[Mutex<World>; 2]> = LazyLock::new(Default::default);

thread_local! {
    /// How many calls this thread made.
    static CALLS: Cell<u64> = const { Cell::new(0) };
    /// How many of them were of a library for matmuls.
    static BLAS_CALLS: Cell<u64> = const { Cell::new(0) };
    /// How many tile programs this thread launched.
    static TILE_RUNS: Cell<u64> = const { Cell::new(0) };
    /// The rows of a tile of the last one.
    static TILE_ROWS: Cell<u64> = const { Cell::new(0) };
    /// The call that fails, and how.
    static FAULT: Cell<Option<(u64, i32)>> = const { Cell::new(None) };
    /// The context of this thread, by vendor. HIP's is that of the present device.
    static CURRENT: [Cell<u64>; 2] = const { [Cell::new(0), Cell::new(0)] };
    static DEVICE: Cell<usize> = const { Cell::new(0) };
    /// Why the last call was rejected.
    static WHY: RefCell<CString> = RefCell::default();
}

/// The call number `after` from now on, on this thread, gives `code`; 0 takes that back.
pub fn fail(after: u64, code: i32) {
    FAULT.set((after > 0).then(|| (CALLS.get() + after, code)));
}

/// How many calls this thread made.
pub fn count() -> u64 {
    CALLS.get()
}

/// Notes a call of a library for matmuls.
pub fn count_blas() {
    BLAS_CALLS.set(BLAS_CALLS.get() + 1);
}

/// How many calls of a library for matmuls this thread made.
pub fn blas_count() -> u64 {
    BLAS_CALLS.get()
}

/// Notes that a tile program was launched, whose tiles have so many rows.
pub fn count_tiles(rows: u32) {
    TILE_RUNS.set(TILE_RUNS.get() + 1);
    TILE_ROWS.set(u64::from(rows));
}

/// The rows of a tile of the last tile program that this thread launched.
pub fn tile_rows() -> u64 {
    TILE_ROWS.get()
}

/// How many tile programs this thread launched.
pub fn tile_count() -> u64 {
    TILE_RUNS.get()
}

/// Why the last call of this thread was rejected.
pub fn why() -> *const std::ffi::c_char {
    WHY.with_borrow(|why| why.as_ptr())
}

/// Notes a rejection; gives its code.
pub fn rejected(rejected: &Rejected) -> i32 {
    WHY.set(CString::new(rejected.why.replace('\0', " ")).unwrap_or_default());
    rejected.code
}

/// Counts a call, and fails it where that was asked for.
pub fn counted(call: impl FnOnce() -> Outcome<()>) -> i32 {
    CALLS.set(CALLS.get() + 1);
    let fault = FAULT.get().filter(|(at, _)| *at == CALLS.get());
    let outcome = match fault {
        Some((_, code)) => {
            FAULT.set(None);
            Err(Rejected { code, why: "a fault that a test asked for".into() })
        }
        None => call(),
    };
    outcome.map_or_else(|r| rejected(&r), |()| 0)
}

/// A call of a driver that is initialised.
pub fn driver(vendor: Vendor, call: impl FnOnce(&mut World) -> Outcome<()>) -> i32 {
    counted(|| {
        let mut world = WORLDS[vendor as usize].lock().unwrap_or_else(PoisonError::into_inner);
        if !world.initialised {
            return crate::world::reject(code::NOT_INITIALIZED, "the driver is not initialised");
        }
        call(&mut world)
    })
}

/// Readies a driver.
pub fn initialise(vendor: Vendor) -> i32 {
    counted(|| {
        WORLDS[vendor as usize].lock().unwrap_or_else(PoisonError::into_inner).initialised = true;
        Ok(())
    })
}

/// The context that is current in this thread.
pub fn current(vendor: Vendor, world: &mut World) -> Outcome<u64> {
    match vendor {
        Vendor::Cuda => Ok(CURRENT.with(|current| current[0].get())),
        Vendor::Hip => world.primary(DEVICE.get()),
    }
}

/// Makes a context current in this thread.
pub fn enter(context: u64) {
    CURRENT.with(|current| current[0].set(context));
}

/// Makes a device current in this thread.
pub fn enter_device(device: usize) {
    DEVICE.set(device);
}

/// The device that is current in this thread.
pub fn device() -> usize {
    DEVICE.get()
}

/// The device of the context that is current in this thread.
pub fn device_in_use(vendor: Vendor) -> Option<usize> {
    let mut world = WORLDS[vendor as usize].lock().unwrap_or_else(PoisonError::into_inner);
    let current = current(vendor, &mut world).ok()?;
    world.device_of(current)
}
