//! See `rlx_fuzz::files::tuning`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| rlx_fuzz::files::tuning(data));
