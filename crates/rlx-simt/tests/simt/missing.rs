//! Where a library is not there: one line that says which, and how to get it.

use std::path::PathBuf;

use rlx_backend::Backend;
use rlx_driver::Device;
use rlx_ir::ErrorKind;
use rlx_simt::{Options, SimtBackend, gpu_count};
use rlx_testdata::fake_driver::{DRIVERS, link};

use crate::common::{DEVICES, fake, fake_folder, options, second_gpu};

#[test]
fn what_is_missing_is_named_with_how_to_get_it() {
    for (device, file, package) in
        [(Device::Cuda, "libcuda.so.1", "nvidia-driver"), (Device::Rocm, "libamdhip64.so", "ROCm")]
    {
        let Err(missing) = SimtBackend::new(device).probe() else { continue };
        assert_eq!((missing.kind(), missing.device()), (ErrorKind::DeviceUnavailable, Some(device.name())));
        if missing.message().contains("is missing") && missing.message().contains("driver") {
            assert!(missing.message().contains(file), "{missing}");
            assert!(missing.hint().is_some_and(|hint| hint.contains(package)), "{missing}");
        }
        assert!(!missing.message().contains('\n'), "{missing}");
    }
}

/// A folder with the fake driver of CUDA, and no compiler.
fn driver_alone(name: &str) -> PathBuf {
    let folder = fake_folder().with_file_name(format!("{name}-{}", std::process::id()));
    let built = fake_folder().join(DRIVERS[0]).canonicalize().unwrap();
    link(&built, &folder, [DRIVERS[0]]).unwrap();
    folder
}

fn stops(folders: Vec<PathBuf>) -> rlx_ir::Error {
    let options = Options { folders, ordinal: 0, blas: false };
    SimtBackend::new(Device::Cuda).with_options(options).probe().unwrap_err()
}

#[test]
fn a_driver_without_its_compiler_says_so() {
    if SimtBackend::new(Device::Cuda).probe().is_ok() {
        println!("@skip 1 the machine has NVRTC");
        return;
    }
    let folder = driver_alone("driver-alone");
    let error = stops(vec![folder.clone()]);
    assert!(error.message().contains("NVRTC"), "{error}");
    assert!(error.hint().is_some_and(|h| h.contains("pip install")), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// What NVRTC loads by its name alone is loaded from beside it, so that it need not be where the system's loader looks.
#[test]
fn what_a_library_needs_is_loaded_from_beside_it() {
    let folder = fake_folder().with_file_name(format!("beside-{}", std::process::id()));
    let built = fake_folder().join(DRIVERS[0]).canonicalize().unwrap();
    link(&built, &folder, DRIVERS).unwrap();
    // A copy: the system names what is loaded by its own file.
    let beside = folder.join("libnvrtc-builtins.so.99.0");
    std::fs::copy(&built, &beside).unwrap();
    let is_loaded =
        || std::fs::read_to_string("/proc/self/maps").unwrap().contains("libnvrtc-builtins.so.99.0");
    assert!(!is_loaded());
    let options = Options { folders: vec![folder.clone()], ordinal: 0, blas: false };
    SimtBackend::new(Device::Cuda).with_options(options).probe().unwrap();
    assert!(is_loaded());
    std::fs::remove_dir_all(folder).unwrap();
}

/// The fake driver with NVRTC itself, from the folder of its Python package that `RLX_NVRTC` names: what it makes of a kernel comes as
/// far as the driver, which takes code objects of the fake compiler alone.
#[test]
fn nvrtc_compiles_what_it_is_given() {
    let Some(package) = std::env::var_os("RLX_NVRTC").map(PathBuf::from) else {
        println!("@skip 1 RLX_NVRTC names no folder with NVRTC's package");
        return;
    };
    // Apart: NVRTC asks a driver beside it for more than the fake one has.
    let driver = driver_alone("beside-nvrtc");
    let versions = std::fs::read_dir(package.join("nvidia")).unwrap().flatten();
    let libraries = versions.map(|version| version.path().join("lib"));
    // What the driver did not take is not kept, so it is compiled every time.
    let error = stops(std::iter::once(driver.clone()).chain(libraries).collect());
    assert!(error.message().contains("cuModuleLoadData"), "{error}");
    assert!(error.message().contains("no code object of this compiler"), "{error}");
    std::fs::remove_dir_all(driver).unwrap();
}

#[test]
fn gpus_are_counted_and_chosen_by_number() {
    let _alone = second_gpu();
    for device in DEVICES {
        assert_eq!(gpu_count(device, &options(0)).unwrap(), 7);
        fake(device, 1).probe().unwrap();
        let beyond = fake(device, 7).probe().unwrap_err();
        assert_eq!(beyond.kind(), ErrorKind::DeviceUnavailable);
        assert!(beyond.message().contains("no GPU 7, the driver has 7"), "{beyond}");
    }
    let other = SimtBackend::new(Device::Vulkan).probe().unwrap_err();
    assert_eq!(other.kind(), ErrorKind::DeviceUnavailable);
}
