//! How to compile: [`CompileOptions`] and the policies in it.

use std::collections::{HashMap, HashSet};

pub use rlx_ir::KernelDispatchPolicy;
use rlx_ir::sort::sort;
use rlx_ir::{DType, DimBinding, Error, ErrorKind, OpKind, Result, SymRange, sym};

/// The arithmetic of floating-point ops whose graph says f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precision {
    /// f32 arithmetic.
    #[default]
    F32,
    /// f16 storage, f32 accumulation.
    F16,
    /// bf16 storage, f32 accumulation.
    BF16,
}

impl Precision {
    /// The element type values are stored in.
    pub fn dtype(self) -> DType {
        match self {
            Precision::F32 => DType::F32,
            Precision::F16 => DType::F16,
            Precision::BF16 => DType::BF16,
        }
    }
}

impl std::fmt::Display for Precision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.dtype().name())
    }
}

impl std::str::FromStr for Precision {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.to_ascii_lowercase().as_str() {
            "f32" | "fp32" => Ok(Precision::F32),
            "f16" | "fp16" => Ok(Precision::F16),
            "bf16" => Ok(Precision::BF16),
            _ => Err(Error::new(
                ErrorKind::Config,
                format!("unknown precision \"{text}\"; known: f32, f16, bf16"),
            )),
        }
    }
}

/// Which ops keep f32 when a graph runs in lower precision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PrecisionPolicy {
    /// Everything in f32.
    #[default]
    AlwaysF32,
    /// Everything in f16.
    AlwaysF16,
    /// Matrix products and convolutions in f16, all else in f32.
    AutoMixedConservative,
    /// Everything in f16 but reductions, norms, softmax and exponentials.
    AutoMixed,
    /// As `AutoMixed`, in bf16.
    AutoMixedBf16,
    /// By op; what is not named stays f32.
    Custom(HashMap<OpKind, Precision>),
}

impl std::fmt::Display for PrecisionPolicy {
    /// The name of the policy; what a custom one says of each kind.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PrecisionPolicy::AlwaysF32 => f.pad("always-f32"),
            PrecisionPolicy::AlwaysF16 => f.pad("always-f16"),
            PrecisionPolicy::AutoMixedConservative => f.pad("auto-mixed-conservative"),
            PrecisionPolicy::AutoMixed => f.pad("auto-mixed"),
            PrecisionPolicy::AutoMixedBf16 => f.pad("auto-mixed-bf16"),
            PrecisionPolicy::Custom(ops) => {
                let mut ops: Vec<String> = ops.iter().map(|(k, p)| format!("{}={p}", k.name())).collect();
                sort(&mut ops);
                f.pad(&format!("custom({})", ops.join(", ")))
            }
        }
    }
}

impl std::str::FromStr for PrecisionPolicy {
    type Err = Error;

    /// Reads the names that `Display` writes; custom policies have none.
    fn from_str(text: &str) -> Result<Self> {
        use PrecisionPolicy as P;
        let named = [P::AlwaysF32, P::AlwaysF16, P::AutoMixedConservative, P::AutoMixed, P::AutoMixedBf16];
        let known: Vec<String> = named.iter().map(P::to_string).collect();
        let found = named.into_iter().find(|p| p.to_string() == text.to_ascii_lowercase());
        found.ok_or_else(|| {
            let message = format!("unknown precision policy \"{text}\"; known: {}", known.join(", "));
            Error::new(ErrorKind::Config, message)
        })
    }
}

/// Whether optimisations may change bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Numerics {
    /// No optimisation changes a bit of the result of the graph as written.
    Strict,
    /// Reassociation and other changes within rounding error are allowed, by rules that depend on shape
    /// and device only.
    #[default]
    Fast,
}

/// Whether steps that can be done in several ways, all of the same bits, are done in the one that is fastest here. It
/// changes times alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Tune {
    /// Every step in the way that is taken where nothing was measured.
    Off,
    /// As was measured on this machine, where anything was.
    #[default]
    Kept,
    /// What was not measured yet is measured now, and kept.
    Measure,
}

impl Tune {
    const ALL: [Tune; 3] = [Tune::Off, Tune::Kept, Tune::Measure];

    /// What `RLX_TUNE` says; the default where it is not set.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a word that is none of them.
    pub fn from_env() -> Result<Self> {
        match std::env::var("RLX_TUNE") {
            Ok(text) if !text.is_empty() => text
                .parse()
                .map_err(|e: Error| Error::new(ErrorKind::Config, format!("RLX_TUNE: {}", e.message()))),
            _ => Ok(Tune::default()),
        }
    }
}

impl std::fmt::Display for Tune {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Tune::Off => "off",
            Tune::Kept => "kept",
            Tune::Measure => "measure",
        })
    }
}

impl std::str::FromStr for Tune {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Tune::ALL.into_iter().find(|t| t.to_string() == text.to_ascii_lowercase());
        found
            .ok_or_else(|| Error::new(ErrorKind::Config, format!("\"{text}\" is none of off, kept, measure")))
    }
}

/// Which fusions may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FusionOptions {
    /// Elementwise ops with each other.
    pub elementwise: bool,
    /// Elementwise ops into the matrix product, convolution or reduction before them.
    pub epilogue: bool,
    /// Exporters' patterns into composites (layer norm, attention, …).
    pub composites: bool,
}

impl Default for FusionOptions {
    fn default() -> Self {
        FusionOptions { elementwise: true, epilogue: true, composites: true }
    }
}

/// How to compile a graph. Fields may be set directly or by the builder methods of the same name.
#[derive(Debug, Clone)]
pub struct CompileOptions {
    /// The arithmetic; see [`Precision`].
    pub precision: Precision,
    /// Which ops keep f32; `None`: what `precision` implies.
    pub policy: Option<PrecisionPolicy>,
    /// Remove nodes no output needs.
    pub dce: bool,
    /// Compute what is constant at compile time.
    pub constant_folding: bool,
    /// Log what each pass did.
    pub verbose: bool,
    /// Which fusions may happen.
    pub fusion: FusionOptions,
    /// Alignment of arena buffers, in bytes; a power of two.
    pub arena_alignment: usize,
    /// Fail when an elementwise op is left outside a region that could have taken it.
    pub assert_fusion_clean: bool,
    /// Only these ops may reach the device (others are decomposed, or an error); `None`: what it claims.
    pub supported_ops: Option<HashSet<OpKind>>,
    /// Values of symbolic dimensions, fixed at compile time.
    pub dim_binding: DimBinding,
    /// Bounds of symbolic dimensions that stay open.
    pub dim_ranges: Vec<(u32, SymRange)>,
    /// Parameters whose values are fixed at compile time, by name.
    pub param_bindings: HashMap<String, rlx_ir::ConstData>,
    /// Own kernels or decomposition.
    pub kernel_dispatch: KernelDispatchPolicy,
    /// Whether optimisations may change bits.
    pub numerics: Numerics,
    /// Plan the outputs apart from the rest of the arena, which graphs compiled so then share and use by
    /// turns. It costs the room that outputs could have shared, and pays where many variants of a model are kept.
    pub shared_arena: bool,
    /// Whether steps are done in the way that was measured to be fastest.
    pub tune: Tune,
}

impl Default for CompileOptions {
    fn default() -> Self {
        CompileOptions {
            precision: Precision::F32,
            policy: None,
            dce: true,
            constant_folding: true,
            verbose: false,
            fusion: FusionOptions::default(),
            arena_alignment: 64,
            assert_fusion_clean: false,
            supported_ops: None,
            dim_binding: DimBinding::new(),
            dim_ranges: Vec::new(),
            param_bindings: HashMap::new(),
            kernel_dispatch: KernelDispatchPolicy::default(),
            numerics: Numerics::Fast,
            shared_arena: false,
            tune: Tune::Kept,
        }
    }
}

/// Declares a builder method for each field: name, field, type, what it sets.
macro_rules! builders {
    ($($(#[doc = $doc:literal])* $method:ident => $field:ident : $ty:ty;)*) => {
        impl CompileOptions {
            $($(#[doc = $doc])*
            pub fn $method(mut self, value: $ty) -> Self {
                self.$field = value.into();
                self
            })*
        }
    };
}

builders! {
    /// Sets the arithmetic.
    precision => precision: Precision;
    /// Sets which ops keep f32.
    policy => policy: PrecisionPolicy;
    /// Sets whether nodes that no output needs are removed.
    with_dce => dce: bool;
    /// Sets whether what is constant is computed at compile time.
    with_constant_folding => constant_folding: bool;
    /// Sets whether each pass logs what it did.
    with_verbose => verbose: bool;
    /// Sets which fusions may happen.
    fusion_opts => fusion: FusionOptions;
    /// Sets the alignment of arena buffers, in bytes.
    arena_alignment => arena_alignment: usize;
    /// Sets whether an elementwise op left outside a region is an error.
    assert_fusion_clean => assert_fusion_clean: bool;
    /// Sets the only ops that may reach the device.
    supported_ops => supported_ops: HashSet<OpKind>;
    /// Sets values of symbolic dimensions.
    dim_binding => dim_binding: DimBinding;
    /// Sets bounds of symbolic dimensions that stay open.
    dim_ranges => dim_ranges: Vec<(u32, SymRange)>;
    /// Sets parameters whose values are fixed.
    param_bindings => param_bindings: HashMap<String, rlx_ir::ConstData>;
    /// Sets own kernels or decomposition.
    kernel_dispatch => kernel_dispatch: KernelDispatchPolicy;
    /// Sets whether optimisations may change bits.
    numerics => numerics: Numerics;
    /// Sets whether the arena but for the outputs is shared by turns.
    with_shared_arena => shared_arena: bool;
    /// Sets whether steps are done in the way that was measured to be fastest.
    tune => tune: Tune;
}

impl CompileOptions {
    /// Whether both compile a graph to the same code. Values of symbolic dimensions, values of parameters,
    /// logging and where memory lies do not count.
    ///
    /// ```
    /// use rlx_opt::{CompileOptions, Numerics};
    /// let (fast, strict) = (CompileOptions::default(), CompileOptions::default().numerics(Numerics::Strict));
    /// assert!(!fast.shapes_same_code(&strict));
    /// assert!(fast.shapes_same_code(&fast.clone().with_verbose(true)));
    /// ```
    pub fn shapes_same_code(&self, other: &Self) -> bool {
        // Every field is named, so that a new one must be put on one side or the other.
        let CompileOptions {
            precision,
            policy,
            dce,
            constant_folding,
            verbose: _,
            fusion,
            arena_alignment,
            assert_fusion_clean,
            supported_ops,
            dim_binding: _,
            dim_ranges,
            param_bindings: _,
            kernel_dispatch,
            numerics,
            shared_arena: _,
            tune: _,
        } = self;
        (*precision, *dce, *constant_folding) == (other.precision, other.dce, other.constant_folding)
            && (*fusion, *arena_alignment) == (other.fusion, other.arena_alignment)
            && *assert_fusion_clean == other.assert_fusion_clean
            && (*kernel_dispatch, *numerics) == (other.kernel_dispatch, other.numerics)
            && (policy, supported_ops) == (&other.policy, &other.supported_ops)
            && *dim_ranges == other.dim_ranges
    }

    /// The defaults, with [`KernelDispatchPolicy`] and [`Tune`] from the environment.
    ///
    /// # Panics
    /// When `RLX_KERNEL_DISPATCH` or `RLX_TUNE` makes no sense; [`CompileOptions::try_new`] reports it.
    pub fn new() -> Self {
        match Self::try_new() {
            Ok(options) => options,
            Err(e) => panic!("{e}"),
        }
    }

    /// The defaults, with [`KernelDispatchPolicy`] and [`Tune`] from the environment.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when `RLX_KERNEL_DISPATCH` or `RLX_TUNE` makes no sense.
    pub fn try_new() -> Result<Self> {
        let kernel_dispatch = KernelDispatchPolicy::from_env()?;
        Ok(CompileOptions { kernel_dispatch, tune: Tune::from_env()?, ..Self::default() })
    }
}

impl CompileOptions {
    /// The options that shape code, as text: equal exactly when two options compile a graph to the same module,
    /// in every process (symbols stand by name, sets in order). What only logs, checks or sets a parameter
    /// afterwards is left out.
    ///
    /// ```
    /// use rlx_opt::{CompileOptions, Numerics};
    /// let (a, b) = (CompileOptions::default(), CompileOptions::default().with_verbose(true));
    /// assert_eq!(a.code_key(), b.code_key());
    /// assert_ne!(a.code_key(), b.numerics(Numerics::Strict).code_key());
    /// ```
    pub fn code_key(&self) -> String {
        // Every field is named, so that a new one cannot be forgotten.
        let CompileOptions {
            precision,
            policy,
            dce,
            constant_folding,
            verbose: _,
            fusion,
            arena_alignment,
            assert_fusion_clean: _,
            supported_ops,
            dim_binding,
            dim_ranges,
            param_bindings: _,
            kernel_dispatch,
            numerics,
            shared_arena,
            tune: _,
        } = self;
        let policy = policy.as_ref().map(policy_key);
        let supported = supported_ops.as_ref().map(|ops| {
            let mut names: Vec<&str> = ops.iter().map(|k| k.name()).collect();
            sort(&mut names);
            names.join(" ")
        });
        let mut bound: Vec<String> =
            dim_binding.iter().map(|(s, v)| format!("{:?}={v}", sym::name(s))).collect();
        sort(&mut bound);
        let ranges: Vec<String> =
            dim_ranges.iter().map(|(s, r)| format!("{:?}={}..={}", sym::name(*s), r.min, r.max)).collect();
        format!(
            "{precision} {policy:?} dce={dce} fold={constant_folding} {fusion:?} align={arena_alignment} \
             ops={supported:?} {bound:?} {ranges:?} {kernel_dispatch:?} {numerics:?} shared={shared_arena}"
        )
    }
}

fn policy_key(policy: &PrecisionPolicy) -> String {
    let PrecisionPolicy::Custom(by_op) = policy else { return format!("{policy:?}") };
    let mut pairs: Vec<String> = by_op.iter().map(|(op, p)| format!("{op}={p}")).collect();
    sort(&mut pairs);
    pairs.join(" ")
}
