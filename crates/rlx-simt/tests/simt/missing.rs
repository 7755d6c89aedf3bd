//! Where a library is not there: one line that says which, and how to get it.

use rlx_backend::Backend;
use rlx_driver::Device;
use rlx_ir::ErrorKind;
use rlx_simt::SimtBackend;

use crate::common::{DEVICES, fake, fake_folder};

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

#[test]
fn a_driver_without_its_compiler_says_so() {
    if SimtBackend::new(Device::Cuda).probe().is_ok() {
        println!("@skip 1 the machine has NVRTC");
        return;
    }
    let folder = fake_folder().with_file_name(format!("driver-alone-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let link = folder.join("libcuda.so.1");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(std::fs::canonicalize(fake_folder().join("libcuda.so.1")).unwrap(), &link)
        .unwrap();
    let alone =
        SimtBackend::new(Device::Cuda).with_library_folders(vec![folder.clone()]).probe().unwrap_err();
    assert!(
        alone.message().contains("NVRTC") && alone.hint().is_some_and(|h| h.contains("pip install")),
        "{alone}"
    );
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn gpus_are_counted_and_chosen_by_number() {
    for device in DEVICES {
        assert_eq!(fake(device, 0).gpu_count().unwrap(), 2);
        fake(device, 1).probe().unwrap();
        let beyond = fake(device, 2).probe().unwrap_err();
        assert_eq!(beyond.kind(), ErrorKind::DeviceUnavailable);
        assert!(beyond.message().contains("no GPU 2, the driver has 2"), "{beyond}");
    }
    let other = SimtBackend::new(Device::Vulkan).probe().unwrap_err();
    assert_eq!(other.kind(), ErrorKind::DeviceUnavailable);
}
