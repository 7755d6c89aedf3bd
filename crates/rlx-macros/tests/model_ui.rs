//! Compile errors of invalid models: each case of `ui/` must fail to compile with the message in its `.stderr` file.
//!
//! `TRYBUILD=overwrite cargo test -p rlx-macros` updates those files.

#[test]
fn models_that_do_not_fit_say_why() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
