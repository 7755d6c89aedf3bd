//! The `deny` suite: licences, sources and doubled crates of everything we depend on, and known advisories.
//!
//! The first three need the lock file alone. Advisories come from a database on the network; where that cannot be
//! reached they are a named skip.

use crate::exec::{Run, cargo_command, has_cargo_tool};
use crate::outcome::Outcome;

/// What cargo-deny says when it cannot get the database.
const NO_DATABASE: &str = "failed to fetch advisory database";

/// Runs both checks.
pub fn run(run: &Run) -> Outcome {
    if !has_cargo_tool("deny") {
        return Outcome::skip("cargo-deny is not installed (`cargo install cargo-deny --locked`)");
    }
    let mut outcome = run.check(&mut cargo_command(&["deny", "check", "licenses", "bans", "sources"]));
    let advisories = run.check(&mut cargo_command(&["deny", "check", "advisories"]));
    outcome.add(if advisories.notes.iter().any(|note| note.contains(NO_DATABASE)) {
        Outcome::skip("advisories: the database cannot be fetched from here")
    } else {
        advisories
    });
    outcome
}
