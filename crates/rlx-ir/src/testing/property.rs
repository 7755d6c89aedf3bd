//! Properties of random graphs, checked by `proptest`.
//!
//! proptest picks the generator's seed and the graph's size, and shrinks the size of what fails: a smaller size is
//! a prefix of the same graph, so what is reported is the smallest graph that shows the fault. `PROPTEST_CASES` and
//! `PROPTEST_RNG_SEED` widen the search; without them every run looks at the same graphs, so that a
//! green build stays green.
//!
//! ```
//! use rlx_ir::testing::{for_random_graphs, random_graph};
//! for_random_graphs(1, 10, 1..=8, |seed, size| {
//!     let (graph, _) = random_graph(seed, size);
//!     rlx_ir::verify_ok(&graph).map_err(|e| e.to_string())
//! });
//! ```

use std::ops::RangeInclusive;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};

/// Checks `property` of `cases` pairs of a seed and a size, for [`super::random_graph`] or
/// [`super::random_symbolic_graph`]. Tests with different `stream`s look at different graphs.
///
/// # Panics
/// With the smallest size of the first seed that fails, and what the property said.
pub fn for_random_graphs(
    stream: u64,
    cases: u32,
    sizes: RangeInclusive<usize>,
    property: impl Fn(u64, usize) -> Result<(), String>,
) {
    let mut config = Config { failure_persistence: None, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        config.rng_seed = RngSeed::Fixed(stream);
    }
    let graphs = (any::<u64>().no_shrink(), sizes);
    let check = |(seed, size)| property(seed, size).map_err(TestCaseError::fail);
    match TestRunner::new(config).run(&graphs, check) {
        Ok(()) => {}
        Err(TestError::Fail(why, (seed, size))) => panic!("seed {seed}, size {size}: {why}"),
        Err(TestError::Abort(why)) => panic!("proptest gave up: {why}"),
    }
}
