//! See `rlx_fuzz::inputs::lines`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| rlx_fuzz::inputs::lines(data));
