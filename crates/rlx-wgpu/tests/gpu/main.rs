//! The wgpu devices: on software drivers where no GPU is there, and on a GPU where one is.

mod common;
mod device;
mod donation;
mod faults;
mod flights;
mod graphs;
mod handles;
mod hostile;
mod limits;
mod models;
mod pages;
mod prepared;
mod stored;
mod timing;
mod variants;
