//! The executor: a module that was prepared for a device, bound to dimensions, with its parameters, handles and memory.
//!
//! One for all devices. It keeps account of everything that is not the device's own: which parameters are set and what the init
//! program made of them, which plan memory follows, the last bindings, where each buffer is, handles and donations, what steps
//! find out during a run, and which runs are under way. A device implements [`DeviceApi`]: memory, steps bound to numbers, and
//! runs of them. Everything is monomorphised, so on the CPU a run stays a walk over bound steps that allocates nothing.
//!
//! ```text
//! run(inputs, dims)
//!   initialise   parameters that changed: load, run init steps, share what they made
//!   select       dims → one of the last eight bindings, or: rules, plan, symbolic init steps, steps that read what differs
//!   load         inputs and handles → places
//!   redirect     outputs that feed handles → memory of their own
//!   submit       the steps, in parts behind each step that counts
//!   complete     faults; handles take what was fed
//! ```

mod api;
mod binding;
mod data_dependent;
mod executable;
mod feeding;
mod handles;
mod init;
mod params;
mod pools;
mod program;
mod run;
mod select;
mod stage;

pub use api::{DeviceApi, Output, Run};
pub use binding::BINDINGS;
pub use pools::use_pools;
pub use program::{Program, Step, StepAt};
pub use run::Executor;
