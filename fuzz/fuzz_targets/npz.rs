//! See `rlx_fuzz::files::npz`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| rlx_fuzz::files::npz(data));
