//! See `rlx_fuzz::inputs::json`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| rlx_fuzz::inputs::json(data));
