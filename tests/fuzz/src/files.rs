//! Files of tensors, of measurements and of prices.

use std::sync::Arc;

use rlx_backend::tuning::Tuning;
use rlx_runtime::cost::{Calibration, Work, WorkKind};
use rlx_weights::listing::Listing;
use rlx_weights::npy::Array;
use rlx_weights::{npy as npy_file, npz as npz_file, safetensors as safetensors_file};

use crate::accepted;

/// An array of NumPy comes back equal when it is written and read again.
///
/// # Panics
/// Where it does not, or the error is not the file's.
pub fn npy(data: &[u8]) {
    let Some(array) = accepted(npy_file::any_from_bytes(data)) else { return };
    let Some(written) = accepted(npy_file::any_to_bytes(&array)) else { return };
    assert_eq!(npy_file::any_from_bytes(&written).expect("it was just written"), array);
}

/// An archive of arrays comes back equal when it is written and read again.
///
/// # Panics
/// Where it does not, or the error is not the file's.
pub fn npz(data: &[u8]) {
    let Some(arrays) = accepted(npz_file::any_from_bytes(data)) else { return };
    let named: Vec<(&str, &Array)> = arrays.iter().map(|(name, data)| (name.as_str(), data)).collect();
    let Some(written) = accepted(npz_file::any_to_bytes(&named)) else { return };
    assert_eq!(npz_file::any_from_bytes(&written).expect("it was just written"), arrays);
}

/// Every tensor of a safetensors file can be read, or is an error; and so is the list of what a safetensors or GGUF file holds.
///
/// # Panics
/// Where a promise is broken.
pub fn safetensors(data: &[u8]) {
    if let Some(listing) = accepted(Listing::of(data)).flatten() {
        assert!(listing.tensors.len() <= data.len() && listing.metadata.len() <= data.len());
    }
    let Some(store) = accepted(safetensors_file::from_source(Arc::new(data.to_vec()))) else { return };
    for (name, weight) in store.iter() {
        if let Some(value) = accepted(weight.to_const()) {
            assert_eq!(Some(value.bytes().len()), weight.shape().size_bytes(), "{name}");
        }
    }
}

/// A kept tuning comes back equal when it is printed and read again.
///
/// # Panics
/// Where it does not.
pub fn tuning(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some(tuning) = accepted(Tuning::parse(text)) else { return };
    assert_eq!(Tuning::parse(&tuning.to_string()).expect("it was just printed"), tuning);
}

/// A kept calibration comes back equal when it is printed and read again, and gives prices.
///
/// # Panics
/// Where it does not, or a price is no number.
pub fn calibration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some(prices) = accepted(Calibration::parse(text)) else { return };
    assert_eq!(Calibration::parse(&prices.to_string()).expect("it was just printed"), prices);
    for kind in [
        WorkKind::MatMul { batch: 1.0, m: 8.0, n: 64.0, k: 64.0 },
        WorkKind::Window { m: 64.0, n: 8.0, k: 72.0 },
        WorkKind::SlidingWindow,
        WorkKind::Attention { keys: 32.0 },
        WorkKind::Softmax,
        WorkKind::Norm,
        WorkKind::Pass,
    ] {
        let ns = prices.price(&Work {
            flops: 1e6,
            bytes: 1e5,
            held: 1e4,
            resident: 1e6,
            cheap: 10.0,
            costly: 10.0,
            kind,
        });
        assert!(!ns.is_nan() && ns >= 0.0, "{kind:?} costs {ns} ns\n{text}");
    }
}
