//! What a part of a model is compiled for: which phase, which sizes, how.
//!
//! A [`ModelVariant`] is a phase with its sizes; a [`ModelComponent`] adds the choices that change the code.
//! Both give the values of the symbols and a key for caches that is the same in every process.
//!
//! ```
//! use rlx_ir::{CompilationMode, ModelComponent, ModelVariant, sym};
//! let step = ModelComponent::new(ModelVariant::decode(1, 511, 1)).with_compilation_mode(CompilationMode::Lazy);
//! assert_eq!(step.dim_binding().get(sym::PAST_SEQ), Some(511));
//! assert_eq!(step.cache_key(), step.clone().cache_key());
//! assert_ne!(step.cache_key(), ModelComponent::new(ModelVariant::decode(1, 512, 1)).cache_key());
//! ```

use crate::dim::{DimBinding, sym};
use crate::error::{Error, ErrorKind, Result};

/// What a model is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ModelPhase {
    /// Reading a prompt: nothing was seen before.
    Prefill,
    /// Producing tokens one after the other, with a cache of what was seen.
    Decode,
    /// Reading everything at once, without a cache.
    Encoder,
}

impl ModelPhase {
    /// The phase's name in keys and messages.
    pub const fn name(self) -> &'static str {
        match self {
            ModelPhase::Prefill => "prefill",
            ModelPhase::Decode => "decode",
            ModelPhase::Encoder => "encoder",
        }
    }
}

/// When a component is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CompilationMode {
    /// When it is asked for.
    #[default]
    Eager,
    /// At its first run.
    Lazy,
    /// Beforehand, cached on disk.
    Aot,
}

impl CompilationMode {
    /// The mode's name in keys and messages.
    pub const fn name(self) -> &'static str {
        match self {
            CompilationMode::Eager => "eager",
            CompilationMode::Lazy => "lazy",
            CompilationMode::Aot => "aot",
        }
    }
}

/// Whether ops run on the device's own kernels or by decomposition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum KernelDispatchPolicy {
    /// The device's own kernel where there is one, else decomposition.
    #[default]
    PreferNative,
    /// Decomposition wherever there is one.
    ForceCommon,
    /// Own kernels only: an op without one is an error.
    ForceNative,
}

impl KernelDispatchPolicy {
    /// The policy's name, as the environment has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PreferNative => "prefer-native",
            Self::ForceCommon => "force-common",
            Self::ForceNative => "force-native",
        }
    }

    /// The policy `RLX_KERNEL_DISPATCH` names: `native` (prefer), `common`, `force-native`; the default
    /// when it is not set.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for another value.
    pub fn from_env() -> Result<Self> {
        match std::env::var("RLX_KERNEL_DISPATCH") {
            Err(_) => Ok(Self::default()),
            Ok(text) => match text.to_ascii_lowercase().replace('_', "-").as_str() {
                "native" | "prefer-native" => Ok(Self::PreferNative),
                "common" | "force-common" => Ok(Self::ForceCommon),
                "force-native" => Ok(Self::ForceNative),
                _ => Err(Error::new(
                    ErrorKind::Config,
                    format!("RLX_KERNEL_DISPATCH=\"{text}\" is none of native, common, force-native"),
                )),
            },
        }
    }
}

/// A key that is the same for equal text in every process.
fn stable_key(text: &str) -> u64 {
    let hash = blake3::hash(text.as_bytes());
    let mut first = [0u8; 8];
    first.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(first)
}

/// A phase with its sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ModelVariant {
    phase: ModelPhase,
    batch: usize,
    seq: usize,
    past_seq: usize,
}

impl ModelVariant {
    /// Reading prompts of `seq` tokens.
    pub fn prefill(batch: usize, seq: usize) -> Self {
        ModelVariant { phase: ModelPhase::Prefill, batch, seq, past_seq: 0 }
    }

    /// Producing `new_tokens` after `past_seq` that were seen.
    pub fn decode(batch: usize, past_seq: usize, new_tokens: usize) -> Self {
        ModelVariant { phase: ModelPhase::Decode, batch, seq: new_tokens, past_seq }
    }

    /// Reading `seq` tokens without a cache.
    pub fn encoder(batch: usize, seq: usize) -> Self {
        ModelVariant { phase: ModelPhase::Encoder, batch, seq, past_seq: 0 }
    }

    /// The phase.
    pub fn phase(&self) -> ModelPhase {
        self.phase
    }

    /// The values of [`sym::BATCH`], [`sym::SEQ`] and, but for an encoder, [`sym::PAST_SEQ`].
    pub fn dim_binding(&self) -> DimBinding {
        let mut binding = DimBinding::batch_seq(self.batch, self.seq);
        if self.phase != ModelPhase::Encoder {
            binding.set(sym::PAST_SEQ, self.past_seq);
        }
        binding
    }

    /// A key for caches, the same in every process.
    pub fn cache_key(&self) -> u64 {
        stable_key(&self.key_text())
    }

    fn key_text(&self) -> String {
        format!("{} batch={} seq={} past_seq={}", self.phase.name(), self.batch, self.seq, self.past_seq)
    }
}

/// A variant with the choices that change the code.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelComponent {
    variant: ModelVariant,
    name: Option<String>,
    kernel_dispatch: KernelDispatchPolicy,
    compilation_mode: CompilationMode,
    quant: Option<String>,
}

impl ModelComponent {
    /// The component of `variant`, with the defaults.
    pub fn new(variant: ModelVariant) -> Self {
        ModelComponent {
            variant,
            name: None,
            kernel_dispatch: KernelDispatchPolicy::default(),
            compilation_mode: CompilationMode::default(),
            quant: None,
        }
    }

    /// Which part of the model it is, where there are several.
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Whether ops run on the device's own kernels.
    pub fn with_kernel_dispatch(mut self, policy: KernelDispatchPolicy) -> Self {
        self.kernel_dispatch = policy;
        self
    }

    /// When it is compiled.
    pub fn with_compilation_mode(mut self, mode: CompilationMode) -> Self {
        self.compilation_mode = mode;
        self
    }

    /// How the weights are quantised, by the name of the format (`q4_k`, `int8`, …).
    pub fn with_quant(mut self, format: impl Into<String>) -> Self {
        self.quant = Some(format.into());
        self
    }

    /// The variant.
    pub fn variant(&self) -> ModelVariant {
        self.variant
    }

    /// Which part of the model it is.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Whether ops run on the device's own kernels.
    pub fn kernel_dispatch(&self) -> KernelDispatchPolicy {
        self.kernel_dispatch
    }

    /// When it is compiled.
    pub fn compilation_mode(&self) -> CompilationMode {
        self.compilation_mode
    }

    /// How the weights are quantised.
    pub fn quant(&self) -> Option<&str> {
        self.quant.as_deref()
    }

    /// The values of the symbols.
    pub fn dim_binding(&self) -> DimBinding {
        self.variant.dim_binding()
    }

    /// A key for caches, the same in every process: of everything above.
    pub fn cache_key(&self) -> u64 {
        // Names are quoted, so that none can pass for another field.
        stable_key(&format!(
            "{} name={:?} dispatch={} mode={} quant={:?}",
            self.variant.key_text(),
            self.name,
            self.kernel_dispatch.name(),
            self.compilation_mode.name(),
            self.quant
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_stable_across_processes() {
        // Written down once: a change of these numbers makes every cache on disk useless.
        let component = ModelComponent::new(ModelVariant::decode(2, 7, 1)).with_quant("q4_k");
        let keys = [ModelVariant::prefill(1, 128).cache_key(), component.cache_key()];
        assert_eq!(keys, [4_801_681_381_805_643_278, 8_413_383_353_028_537_353]);
    }

    #[test]
    fn every_choice_changes_the_key() {
        let base = ModelComponent::new(ModelVariant::prefill(1, 8));
        let others = [
            ModelComponent::new(ModelVariant::encoder(1, 8)),
            ModelComponent::new(ModelVariant::prefill(2, 8)),
            base.clone().with_name("vision"),
            base.clone().with_kernel_dispatch(KernelDispatchPolicy::ForceCommon),
            base.clone().with_compilation_mode(CompilationMode::Aot),
            base.clone().with_quant("int8"),
        ];
        let mut keys: Vec<u64> = others.iter().map(ModelComponent::cache_key).collect();
        keys.push(base.cache_key());
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 7);
    }

    #[test]
    fn bindings_name_the_sizes() {
        let decode = ModelVariant::decode(2, 7, 3).dim_binding();
        let pairs: Vec<_> = decode.iter().collect();
        assert_eq!(pairs, [(sym::BATCH, 2), (sym::SEQ, 3), (sym::PAST_SEQ, 7)]);
        assert_eq!(ModelVariant::encoder(1, 4).dim_binding(), DimBinding::batch_seq(1, 4));
        assert_eq!(ModelVariant::prefill(1, 4).dim_binding().get(sym::PAST_SEQ), Some(0));
    }
}
