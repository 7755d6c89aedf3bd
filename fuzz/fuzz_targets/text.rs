//! See `rlx_fuzz::text::text`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| rlx_fuzz::text::text(data));
