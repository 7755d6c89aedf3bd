//! Where a plugin is not there, or is none: one line that says what is missing and how to get it.

use rlx_backend::Backend;
use rlx_ir::ErrorKind;
use rlx_pjrt::PjrtBackend;

#[test]
fn what_is_missing_is_named_with_how_to_get_it() {
    let missing = PjrtBackend::new().with_plugin("/nowhere/libtpu.so").probe().unwrap_err();
    assert_eq!((missing.kind(), missing.device()), (ErrorKind::DeviceUnavailable, Some("TPU")));
    assert!(missing.message().contains("/nowhere/libtpu.so"), "{missing}");
    assert!(missing.hint().is_some_and(|hint| hint.contains("RLX_PJRT_PLUGIN")), "{missing}");
    assert!(!missing.message().contains('\n'), "{missing}");
}

#[test]
fn a_file_that_is_no_library_is_named() {
    let file = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no-library.so");
    std::fs::write(&file, "no library").unwrap();
    let wrong = PjrtBackend::new().with_plugin(&file).probe().unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::DeviceUnavailable);
    assert!(wrong.message().contains("does not load"), "{wrong}");
}

#[test]
fn a_graph_can_be_checked_against_the_device_without_it() {
    let backend = PjrtBackend::new().with_plugin("/nowhere/libtpu.so");
    assert_eq!(backend.target(&Default::default()).unwrap().name(), "tpu");
}
