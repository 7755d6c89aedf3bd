//! See `rlx_fuzz::contradictions::contradictions`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| rlx_fuzz::contradictions::contradictions(data));
