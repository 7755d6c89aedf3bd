//! What an executable was made of, as bytes: kernels ([`Launches::to_bytes`]), and beside them tile programs with all that a run chooses between.
//!
//! A device says what it does with such bytes ([`Stores`]), which may be anyone's. Whatever it is, what is read is held to the rules of every kernel
//! and program (their verifiers, the device's limits and architecture, the hash of each), and must fit the module: inputs are only read, uniforms are made of
//! its symbols, scratch memory is written by parts and read by what joins them.
//!
//! ```text
//! executable ──code──▶ "kernels" and "choices", sealed ──▶ artefact, cache ──▶ found ──▶ read: verified ──▶ executable
//! ```

mod records;

use std::sync::Arc;
use std::time::Duration;

use rlx_backend::CodePart;
use rlx_backend::seal::Seal;
use rlx_ir::clock::Instant;
use rlx_ir::hash::hash_of;
use rlx_ir::lir::StepKind;
use rlx_ir::text::write_attrs_key;
use rlx_ir::{LirModule, Result};
use rlx_kernel::Launches;

use crate::api::{GpuApi, Stores};
use crate::tiles::TileLaunches;

pub(crate) use records::read;

/// What the kernels of an executable are called in a file.
const KERNELS: &str = "kernels";
/// The same of tile programs, and of what runs choose between.
const CHOICES: &str = "choices";
/// The same of a seal of both, on devices that take anyone's.
const SEAL: &str = "seal";

/// What an executable was made of.
pub(crate) struct Stored {
    pub module: Arc<LirModule>,
    pub launches: Arc<Launches>,
    pub tiles: Arc<TileLaunches>,
}

impl Stored {
    /// It as bytes, where the device stores anything.
    ///
    /// # Errors
    /// Kernels beyond what is read back.
    pub fn parts<G: GpuApi>(&self, gpu: &G) -> Result<Vec<CodePart>> {
        if gpu.stores() == Stores::Nothing {
            return Ok(Vec::new());
        }
        let part = |name: &str, bytes| CodePart { name: name.to_owned(), bytes };
        let mut parts = vec![part(KERNELS, self.launches.to_bytes()?)];
        // Where choices are sealed, their absence is not: then there are always some.
        if gpu.stores() == Stores::Sealed || !self.tiles.is_plain() {
            parts.push(part(CHOICES, records::write(&self.tiles)?));
        }
        let sealed = gpu.stores() == Stores::Sealed;
        let seal = match Seal::own() {
            Ok(seal) => seal,
            // They are everyone's.
            Err(_) if !sealed => return Ok(parts),
            Err(e) => {
                tracing::warn!(error = %e, "kernels are not stored");
                return Ok(Vec::new());
            }
        };
        let context = Context::of(gpu, &self.module);
        if sealed {
            for part in &mut parts {
                part.bytes = seal.seal(&context.of_part(&part.name), &part.bytes);
            }
        } else {
            let hash = hash_of(parts.iter().map(|part| &part.bytes));
            parts.push(part(SEAL, seal.seal(&context.of_part(SEAL), &hash.0)));
        }
        Ok(parts)
    }
}

/// What a file has of a module.
pub(crate) struct Found<'b> {
    pub kernels: &'b [u8],
    pub choices: Option<&'b [u8]>,
    /// Whether it may be anyone's, and not what this user's RLX left.
    pub guarded: bool,
    /// How long it took to open.
    pub took: Duration,
}

/// What there is for the device to read; nothing where kernels are to be made.
pub(crate) fn found<'b, G: GpuApi>(gpu: &G, lir: &LirModule, code: &'b [CodePart]) -> Option<Found<'b>> {
    let bytes = |name: &str| code.iter().find(|part| part.name == name).map(|part| &part.bytes[..]);
    let (kernels, since) = (bytes(KERNELS)?, Instant::now());
    match gpu.stores() {
        Stores::Nothing => None,
        Stores::Guarded => {
            let choices = bytes(CHOICES);
            let is_own = |sealed: &[u8]| {
                let hash = hash_of([kernels].into_iter().chain(choices));
                let (seal, context) = (Seal::own().ok()?, Context::of(gpu, lir));
                seal.opened(&context.of_part(SEAL), sealed).filter(|opened| *opened == hash.0).map(drop)
            };
            let guarded = bytes(SEAL).and_then(is_own).is_none();
            Some(Found { kernels, choices, guarded, took: since.elapsed() })
        }
        Stores::Sealed => {
            let seal =
                Seal::own().map_err(|e| tracing::warn!(error = %e, "stored kernels are not used")).ok()?;
            let context = Context::of(gpu, lir);
            let opened = |name: &str, bytes| seal.opened(&context.of_part(name), bytes);
            let found = opened(KERNELS, kernels).zip(bytes(CHOICES).and_then(|bytes| opened(CHOICES, bytes)));
            if found.is_none() {
                tracing::warn!(module = %lir.name, device = %gpu.name(), "stored kernels are not as this user left them: they are made again");
            }
            found.map(|(kernels, choices)| Found {
                kernels,
                choices: Some(choices),
                guarded: false,
                took: since.elapsed(),
            })
        }
    }
}

/// What seals are made of besides bytes: a device, its compiler, and what is computed.
struct Context {
    machine: String,
    module: String,
}

impl Context {
    fn of<G: GpuApi>(gpu: &G, module: &LirModule) -> Self {
        let mut of = Context { machine: gpu.machine(), module: module.to_string() };
        // What a step's line does not say: its op's attributes.
        let mut attrs = String::new();
        for step in module.init.iter().chain(&module.steps) {
            if let StepKind::Op(op) = &step.kind {
                write_attrs_key(op, &mut attrs);
                of.module.push('\n');
                of.module.push_str(&attrs);
            }
        }
        of
    }

    fn of_part<'c>(&'c self, part: &'c str) -> [&'c str; 4] {
        [part, &self.machine, env!("CARGO_PKG_VERSION"), &self.module]
    }
}
