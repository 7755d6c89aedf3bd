//! See `rlx_fuzz::inputs::png`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| rlx_fuzz::inputs::png(data));
