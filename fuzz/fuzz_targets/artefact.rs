//! See `rlx_fuzz::artefact::artefact`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| rlx_fuzz::artefact::artefact(data));
