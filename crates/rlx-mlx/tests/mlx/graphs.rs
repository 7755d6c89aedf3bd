//! Every op's own random cases and random graphs, against the oracle.

use rlx_backend::testing::{OpCases, random_graphs};

use crate::{everything, mlx};

/// How many ops have cases that run. More emission makes it larger; nothing may make it smaller.
const COVERED: usize = 53;

#[test]
fn every_op_agrees_with_the_oracle() {
    let Some(backend) = mlx() else { return };
    let cases = OpCases::on(&backend, if everything() { 60 } else { 12 });
    println!("{}", cases.assert(COVERED));
}

#[test]
fn random_graphs_agree_with_the_oracle() {
    let Some(backend) = mlx() else { return };
    // The second run is of the program as MLX compiled it.
    let rejected = random_graphs(&backend, if everything() { 600 } else { 90 }, 2);
    assert_eq!(rejected, 0);
}
