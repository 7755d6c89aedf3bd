//! A PJRT plugin for tests on machines without a TPU.
//!
//! It has the functions that `rlx-pjrt` calls, and is stricter than real plugins: every call's size of arguments is compared with the
//! header's, and things that were freed, buffers that were donated, and calls out of order are rejected. Programs are compiled and run by
//! XLA on the CPU: `tools/pjrt_worker.py` in a process of its own, by the interpreter that `RLX_TEST_PJRT_PYTHON` names.
//!
//! Arguments are looked at as words of eight bytes, by the numbers of their fields in `pjrt_c_api.h`, so that nothing is shared with the
//! declarations that are tested.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg(unix)]

mod table;
mod worker;
mod world;
