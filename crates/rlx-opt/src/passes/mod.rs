//! The passes, one file each. Every pass is a function from a graph to a graph.

pub mod eliminate_dead_nodes;
pub mod legalize;
