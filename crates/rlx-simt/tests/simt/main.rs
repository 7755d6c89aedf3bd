//! CUDA and ROCm: on the fake driver in any case, and on a GPU where one is.
#![cfg(target_os = "linux")]

#[path = "../written/mod.rs"]
mod written;

mod attention;
mod blas;
mod blas_epilogues;
mod blas_rejections;
mod classes;
mod common;
mod convs;
mod faults;
mod few_rows;
mod graphs;
mod grouped;
mod handles;
mod headers;
mod hostile;
mod large;
mod missing;
mod models;
mod pages;
mod parts;
mod prologues;
mod rejections;
mod self_check;
mod sizes;
mod stored;
mod threads;
mod tiles;
mod timing;
mod waves;
