//! What the tests run on: the fake driver as CUDA and as HIP, and the machine's own GPUs.
//!
//! `RLX_TEST_DEVICES=cuda,rocm` says which GPUs must be there: their absence is then a failure. Without it, one that is absent
//! is a named skip.

use std::ffi::{CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use libloading::Library;
use rlx_backend::Backend;
pub use rlx_backend::testing::{compile, disagreement, set_params};
use rlx_driver::Device;
use rlx_simt::{Lowered, Options, SimtBackend};
use rlx_testdata::fake_driver::{BLAS, BUILT, DRIVERS, link};

/// The devices that this crate serves.
pub const DEVICES: [Device; 2] = [Device::Cuda, Device::Rocm];

/// A folder in which the fake driver has the vendors' names.
pub fn fake_folder() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let program = std::env::current_exe().expect("a test knows its program");
        let built = program.with_file_name(BUILT);
        assert!(built.exists(), "cargo builds {} with these tests", built.display());
        let folder =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("fake-driver-{}", std::process::id()));
        link(&built, &folder, DRIVERS.into_iter().chain(BLAS)).expect("a folder for tests");
        folder
    });
    &FOLDER
}

/// The fake driver's GPU number `ordinal`, whose own kernels do everything.
pub fn options(ordinal: usize) -> Options {
    Options { folders: vec![fake_folder().to_owned()], ordinal, blas: false }
}

/// The fake GPU number `ordinal` with the vendor's library for matmuls.
pub fn fake_with_blas(device: Device, ordinal: usize) -> SimtBackend {
    SimtBackend::new(device).with_options(Options { blas: true, ..options(ordinal) })
}

/// The fake GPU number `ordinal`.
pub fn fake(device: Device, ordinal: usize) -> SimtBackend {
    SimtBackend::new(device).with_options(options(ordinal))
}

/// The same GPU, of whose memory all executables together take so many bytes at most.
pub fn with_memory(backend: &SimtBackend, most: u64) -> SimtBackend {
    backend.clone().with_limits(Lowered { max_memory_bytes: Some(most), ..Lowered::default() })
}

/// The fake GPUs but the first for one test at a time: that is where GPUs are lost, and each is of another architecture. The runtime loses the second, damaged modules the
/// third, and calls without the runtime the last, so that none finds what another one left.
pub fn second_gpu() -> MutexGuard<'static, ()> {
    static TAKEN: Mutex<()> = Mutex::new(());
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The fake GPUs.
pub fn fakes() -> impl Iterator<Item = SimtBackend> {
    DEVICES.into_iter().map(|device| fake(device, 0))
}

/// The fake GPUs, and those of the machine.
pub fn all() -> Vec<SimtBackend> {
    let mut found: Vec<SimtBackend> = fakes().collect();
    for device in DEVICES {
        let own = SimtBackend::new(device);
        match own.probe() {
            Ok(()) => found.push(own),
            Err(missing) => {
                let required = std::env::var("RLX_TEST_DEVICES").unwrap_or_default();
                let named = required.split(',').any(|name| name.parse() == Ok(device));
                assert!(!named, "RLX_TEST_DEVICES names {device}: {missing}");
                println!("@skip 1 a GPU for {device}: {missing}");
            }
        }
    }
    found
}

/// Whether everything runs (`RLX_TEST_ALL=1`, set by `cargo xtask test --all`), or what fits the test command.
pub fn everything() -> bool {
    std::env::var("RLX_TEST_ALL").is_ok_and(|v| v == "1")
}

/// The fake driver's own functions.
pub struct Fake(pub Library);

impl Fake {
    pub fn get() -> &'static Fake {
        static LOADED: LazyLock<Fake> = LazyLock::new(|| {
            // SAFETY: our own library; it runs nothing at loading.
            Fake(unsafe { Library::new(fake_folder().join(DRIVERS[0])) }.expect("the fake driver loads"))
        });
        &LOADED
    }

    /// The call number `after` of this thread from now on gives `code`; 0 takes that back.
    pub fn fail(&self, after: u64, code: c_int) {
        // SAFETY: the library declares it so.
        let fail =
            unsafe { self.0.get::<unsafe extern "C" fn(u64, c_int)>(b"rlx_fake_fail") }.expect("a function");
        // SAFETY: any numbers will do.
        unsafe { fail(after, code) }
    }

    /// How many calls this thread made.
    pub fn calls(&self) -> u64 {
        self.count(b"rlx_fake_calls")
    }

    /// How many of them were of a library for matmuls.
    pub fn blas_calls(&self) -> u64 {
        self.count(b"rlx_fake_blas_calls")
    }

    /// How many tile programs ran while this thread waited.
    pub fn tile_runs(&self) -> u64 {
        self.count(b"rlx_fake_tile_runs")
    }

    /// The rows of a tile of the last one.
    pub fn tile_rows(&self) -> u64 {
        self.count(b"rlx_fake_tile_rows")
    }

    /// From now on the fake GPU number `ordinal` computes wrongly what tile programs whose names begin so compute; of kernels, where this is `shared`, what those with
    /// workgroup memory do. Without names all is right again.
    pub fn spoil(&self, device: Device, ordinal: usize, names: Option<&str>) {
        type Spoil = unsafe extern "C" fn(c_int, c_int, *const c_char) -> c_int;
        let names = names.map(|names| CString::new(names).expect("a name without zeros"));
        // SAFETY: the library declares it so.
        let spoil = unsafe { self.0.get::<Spoil>(b"rlx_fake_spoil") }.expect("a function");
        let names = names.as_ref().map_or(std::ptr::null(), |names| names.as_ptr());
        // SAFETY: null, or a string that lives as long as the call.
        let status = unsafe { spoil(c_int::from(device == Device::Rocm), ordinal as c_int, names) };
        assert_eq!(status, 0, "the fake driver is initialised");
    }

    fn count(&self, name: &[u8]) -> u64 {
        // SAFETY: the library declares all of them so.
        let calls = unsafe { self.0.get::<unsafe extern "C" fn() -> u64>(name) }.expect("a function");
        // SAFETY: it only reads.
        unsafe { calls() }
    }
}
