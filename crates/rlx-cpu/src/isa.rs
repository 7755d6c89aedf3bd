//! Which instruction set the kernels use: found once at run time, passed explicitly.
//!
//! An [`Isa`] can only be made for an instruction set this processor has, so holding one is the
//! proof that its kernels may run. Kernels take it as an argument rather than reading a global,
//! so one process can run (and a test can compare) all of them.
//!
//! ```
//! use rlx_cpu::isa::{Isa, IsaKind};
//! let best = Isa::detect();
//! assert!(Isa::available().contains(&best));
//! assert_eq!(Isa::try_new(IsaKind::Portable).unwrap().kind(), IsaKind::Portable);
//! ```

use std::fmt;
use std::str::FromStr;
#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;

use rlx_ir::DType;

pub use crate::simd::Kernel;

/// The environment variable that forces an instruction set.
pub const ISA_VAR: &str = "RLX_CPU_ISA";

/// A family of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IsaKind {
    /// Plain Rust; runs everywhere, multiply and add are rounded separately.
    Portable,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL.
    Avx512,
    /// AArch64 with Advanced SIMD.
    Neon,
    /// WebAssembly with its fixed-width SIMD, where the build is for that; multiply and add are rounded separately.
    Simd128,
}

impl IsaKind {
    const ALL: [IsaKind; 5] =
        [IsaKind::Portable, IsaKind::Simd128, IsaKind::Neon, IsaKind::Avx2, IsaKind::Avx512];

    /// The name `RLX_CPU_ISA` accepts.
    pub const fn name(self) -> &'static str {
        match self {
            IsaKind::Portable => "portable",
            IsaKind::Avx2 => "avx2",
            IsaKind::Avx512 => "avx512",
            IsaKind::Neon => "neon",
            IsaKind::Simd128 => "simd128",
        }
    }

    fn is_available(self) -> bool {
        match self {
            IsaKind::Portable => true,
            #[cfg(target_arch = "x86_64")]
            IsaKind::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            IsaKind::Avx512 => {
                IsaKind::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(target_arch = "aarch64")]
            IsaKind::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            IsaKind::Simd128 => cfg!(all(target_arch = "wasm32", target_feature = "simd128")),
            // Those of other architectures.
            #[allow(unreachable_patterns)]
            _ => false,
        }
    }
}

impl fmt::Display for IsaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for IsaKind {
    type Err = IsaError;
    fn from_str(s: &str) -> Result<Self, IsaError> {
        let wanted = s.trim().to_ascii_lowercase();
        Self::ALL.into_iter().find(|k| k.name() == wanted).ok_or_else(|| IsaError::Unknown(s.to_owned()))
    }
}

/// See [`Isa::multiplies_bf16`].
#[cfg(target_arch = "x86_64")]
static MULTIPLIES_BF16: OnceLock<bool> = OnceLock::new();

/// Why an instruction set could not be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IsaError {
    /// The name is none of `portable`, `avx2`, `avx512`, `neon`, `simd128`.
    Unknown(String),
    /// The name is known, but this processor (or this build) does not have it.
    Unavailable(IsaKind),
}

impl fmt::Display for IsaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IsaError::Unknown(s) => {
                write!(f, "{ISA_VAR}={s:?} names no instruction set; use portable, avx2, avx512 or neon")
            }
            IsaError::Unavailable(k) => {
                write!(f, "the instruction set {k} is not available on this processor")
            }
        }
    }
}

impl std::error::Error for IsaError {}

/// An instruction set that this processor has, with the optional extensions found on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Isa {
    kind: IsaKind,
    vnni: bool,
    vbmi: bool,
    bf16: bool,
    /// Whether products of bf16 are faster than those of the same numbers in f32.
    multiplies_bf16: bool,
}

impl Isa {
    /// The best instruction set of this processor.
    pub fn detect() -> Isa {
        let kind = IsaKind::ALL.into_iter().filter(|k| k.is_available()).max_by_key(|k| match k {
            IsaKind::Portable => 0,
            IsaKind::Simd128 | IsaKind::Neon | IsaKind::Avx2 => 1,
            IsaKind::Avx512 => 2,
        });
        Self::with_extensions(kind.unwrap_or(IsaKind::Portable))
    }

    /// This instruction set, if the processor has it.
    ///
    /// # Errors
    /// [`IsaError::Unavailable`] if it does not.
    pub fn try_new(kind: IsaKind) -> Result<Isa, IsaError> {
        if kind.is_available() { Ok(Self::with_extensions(kind)) } else { Err(IsaError::Unavailable(kind)) }
    }

    /// What `RLX_CPU_ISA` asks for, or the best one where it is unset or empty.
    ///
    /// # Errors
    /// An [`IsaError`] if the variable names nothing known or nothing this processor has.
    pub fn from_env() -> Result<Isa, IsaError> {
        match std::env::var_os(ISA_VAR) {
            Some(v) if !v.is_empty() => Self::from_setting(&v.to_string_lossy()),
            _ => Ok(Self::detect()),
        }
    }

    /// The instruction set with this name, if the processor has it.
    ///
    /// # Errors
    /// An [`IsaError`] if the name is not known or the processor lacks it.
    pub fn from_setting(name: &str) -> Result<Isa, IsaError> {
        Self::try_new(name.parse()?)
    }

    /// Every instruction set this processor has, the portable one first.
    pub fn available() -> Vec<Isa> {
        IsaKind::ALL.into_iter().filter_map(|k| Self::try_new(k).ok()).collect()
    }

    /// The family.
    pub const fn kind(self) -> IsaKind {
        self.kind
    }

    /// Whether u8×i8 dot products (AVX-512 VNNI) are there.
    pub const fn has_vnni(self) -> bool {
        self.vnni
    }

    /// Whether bytes are looked up in tables of 64 and 128 (AVX-512 VBMI).
    pub const fn has_vbmi(self) -> bool {
        self.vbmi
    }

    /// Whether conversions to bf16 and its dot products (AVX-512 BF16) are there.
    pub const fn has_bf16(self) -> bool {
        self.bf16
    }

    /// Whether bf16 dot products are there and faster than widening to f32 (on Intel's Xeons without AMX they are not): measured, once in a process.
    pub const fn multiplies_bf16(self) -> bool {
        self.multiplies_bf16
    }

    fn with_extensions(kind: IsaKind) -> Isa {
        let plain = Isa { kind, vnni: false, vbmi: false, bf16: false, multiplies_bf16: false };
        #[cfg(target_arch = "x86_64")]
        if kind == IsaKind::Avx512 {
            let bf16 = is_x86_feature_detected!("avx512bf16");
            let vnni = is_x86_feature_detected!("avx512vnni");
            let vbmi = is_x86_feature_detected!("avx512vbmi");
            // SAFETY: the instructions are there.
            let measured = || *MULTIPLIES_BF16.get_or_init(|| unsafe { crate::simd::avx512::bf16_pays() });
            return Isa { vnni, vbmi, bf16, multiplies_bf16: bf16 && measured(), ..plain };
        }
        plain
    }

    /// How products of these 16-bit floats are computed, for reports.
    pub fn matmul_instructions(self, dtype: DType) -> &'static str {
        let fused = !matches!(self.kind, IsaKind::Portable | IsaKind::Simd128);
        match dtype {
            DType::BF16 if self.multiplies_bf16 => "VDPBF16PS (AVX512-BF16), sums in f32",
            DType::BF16 | DType::F16 if !fused => "widened to f32, multiply and add",
            DType::BF16 | DType::F16 => "widened to f32, FMA",
            _ if !fused => "multiply and add",
            _ => "FMA",
        }
    }

    /// As [`Isa::run`], with bf16 products where the processor has them.
    #[inline]
    pub fn run_bf16<K: Kernel>(self, kernel: K) -> K::Output {
        #[cfg(target_arch = "x86_64")]
        if self.bf16 {
            // SAFETY: `bf16` is set only where the processor has it, besides what AVX-512 takes.
            return unsafe { crate::simd::avx512::run_bf16(kernel) };
        }
        self.run(kernel)
    }

    /// As [`Isa::run`], with products of bytes where the processor has them.
    #[inline]
    pub fn run_vnni<K: Kernel>(self, kernel: K) -> K::Output {
        #[cfg(target_arch = "x86_64")]
        if self.vnni {
            // SAFETY: `vnni` is set only where the processor has it, besides what AVX-512 takes.
            return unsafe { crate::simd::avx512::run_vnni(kernel) };
        }
        self.run(kernel)
    }

    /// The same instruction set without the extensions that go beyond its family.
    pub const fn without_extensions(self) -> Isa {
        Isa { kind: self.kind, vnni: false, vbmi: false, bf16: false, multiplies_bf16: false }
    }

    /// The same instruction set multiplying bf16 by its dot products wherever there are any, even if that is slower.
    pub const fn with_bf16_products(self) -> Isa {
        Isa { multiplies_bf16: self.bf16, ..self }
    }

    /// Runs `kernel` compiled for this instruction set.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.kind {
            IsaKind::Portable => crate::simd::portable::run(kernel),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Isa` of this kind exists only where the processor has these features.
            IsaKind::Avx2 => unsafe { crate::simd::avx2::run(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            IsaKind::Avx512 => unsafe { crate::simd::avx512::run(kernel) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            IsaKind::Neon => unsafe { crate::simd::neon::run(kernel) },
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            IsaKind::Simd128 => crate::simd::simd128::run(kernel),
            #[allow(unreachable_patterns)]
            other => unreachable!("an Isa of kind {other} cannot be made on this architecture"),
        }
    }
}

impl fmt::Display for Isa {
    /// The family with its extensions: `avx512 vnni bf16`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        f.write_str(if self.vnni { " vnni" } else { "" })?;
        f.write_str(if self.bf16 { " bf16" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_and_unavailable_names_are_errors() {
        assert_eq!(Isa::from_setting("sse9"), Err(IsaError::Unknown("sse9".into())));
        assert_eq!(Isa::from_setting(" Portable ").unwrap().kind(), IsaKind::Portable);
        let foreign = if cfg!(target_arch = "x86_64") { IsaKind::Neon } else { IsaKind::Avx512 };
        assert_eq!(Isa::from_setting(foreign.name()), Err(IsaError::Unavailable(foreign)));
    }

    #[test]
    fn portable_is_always_there_and_has_no_extensions() {
        let isa = Isa::try_new(IsaKind::Portable).unwrap();
        assert!(!isa.has_vnni() && !isa.has_bf16());
        assert_eq!(Isa::available()[0], isa);
    }

    #[test]
    fn how_bf16_is_multiplied_is_found_once_and_only_where_there_are_products() {
        for isa in Isa::available() {
            assert!(isa.has_bf16() || !isa.multiplies_bf16(), "{isa}");
            assert_eq!(Isa::try_new(isa.kind()).unwrap(), isa);
            assert!(!isa.without_extensions().multiplies_bf16());
            assert_eq!(isa.with_bf16_products().multiplies_bf16(), isa.has_bf16());
        }
    }
}
