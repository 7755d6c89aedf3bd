//! What a model that does not fit says: each case of `ui/` must fail to compile with the text beside it.
//!
//! `TRYBUILD=overwrite cargo test -p rlx-macros` writes the texts again.

#[test]
fn models_that_do_not_fit_say_why() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
