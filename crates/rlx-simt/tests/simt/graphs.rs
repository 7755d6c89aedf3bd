//! Every op's own random cases and random graphs, against the oracle.

use rlx_backend::Backend;
use rlx_backend::testing::{OpCases, random_graphs};

use crate::common::{all, everything};

/// How many ops have cases that run. More kernels make it larger; nothing may make it smaller.
const COVERED: usize = 45;

#[test]
fn every_op_agrees_with_the_oracle() {
    for backend in all() {
        let cases = OpCases::on(&backend, if everything() { 20 } else { 2 });
        println!("{}: {}", backend.name(), cases.assert(COVERED));
    }
}

#[test]
fn random_graphs_agree_with_the_oracle() {
    for backend in all() {
        // The second run is a graph's, where dimensions stay.
        let rejected = random_graphs(&backend, if everything() { 200 } else { 30 }, 2);
        assert_eq!(rejected, 0);
    }
}
