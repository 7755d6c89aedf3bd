//! See `rlx_fuzz::model::importer`.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use rlx_fuzz::model::{importer, mutate::mutate};

fuzz_target!(|data: &[u8]| importer(data));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    // One in four is changed byte by byte, for the decoder.
    if seed % 4 != 0
        && let Some(changed) = mutate(&data[..size], seed)
        && changed.len() <= max_size
    {
        data[..changed.len()].copy_from_slice(&changed);
        return changed.len();
    }
    fuzzer_mutate(data, size, max_size)
});
