//! See `rlx_fuzz::files::npy`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| rlx_fuzz::files::npy(data));
