//! See `rlx_fuzz::inputs::image`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| rlx_fuzz::inputs::image(data));
