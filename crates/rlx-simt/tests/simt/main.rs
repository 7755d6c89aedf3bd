//! CUDA and ROCm: on the fake driver in any case, and on a GPU where one is.

mod common;
mod faults;
mod graphs;
mod handles;
mod headers;
mod missing;
mod models;
mod rejections;
