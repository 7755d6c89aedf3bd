//! How to compile: [`CompileOptions`] and the policies in it.

use std::collections::{HashMap, HashSet};

pub use rlx_ir::KernelDispatchPolicy;
use rlx_ir::hash::hash_of;
use rlx_ir::sort::sort;
use rlx_ir::{ConstData, DType, DimBinding, Error, ErrorKind, OpKind, Result, SymRange, sym};

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
    /// Matmuls and convolutions in f16 where the device is faster so ([`Target::gain`](crate::Target::gain)), all else in f32.
    AutoMixedConservative,
    /// Everything in f16 but reductions, norms, softmax and exponentials, where the device is faster so.
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
    /// and device only; which of its vendor's libraries are installed counts as the device's. Where tuning is asked for, measurements on the
    /// device also choose between orders of a sum that are about as near to the exact result.
    #[default]
    Fast,
}

/// Whether steps that have several variants are done in the one that is fastest here. Under [`Numerics::Strict`] all of them
/// give the same bits; under [`Numerics::Fast`] a GPU may have others besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Tune {
    /// Every step by the variant that is the default.
    Off,
    /// As was measured on this machine before, where it was.
    #[default]
    Cached,
    /// What was not measured yet is measured now, and cached.
    Measure,
}

impl Tune {
    const ALL: [Tune; 3] = [Tune::Off, Tune::Cached, Tune::Measure];

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
            Tune::Cached => "cached",
            Tune::Measure => "measure",
        })
    }
}

impl std::str::FromStr for Tune {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Tune::ALL.into_iter().find(|t| t.to_string() == text.to_ascii_lowercase());
        found.ok_or_else(|| {
            Error::new(ErrorKind::Config, format!("\"{text}\" is none of off, cached, measure"))
        })
    }
}

/// Which fusions may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FusionOptions {
    /// Elementwise ops with each other.
    pub elementwise: bool,
    /// Elementwise ops into the matmul, convolution or reduction before them.
    pub epilogue: bool,
    /// What makes the rows of a matmul (a norm, say) into that matmul, and matmuls whose results are multiplied into one step.
    pub producers: bool,
    /// Exporters' patterns into composites (layer norm, attention, …).
    pub composites: bool,
}

impl Default for FusionOptions {
    fn default() -> Self {
        FusionOptions { elementwise: true, epilogue: true, producers: true, composites: true }
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
    /// Parameters whose values are fixed at compile time, by name. They become constants of the compiled graph, which
    /// has no such parameters any more: setting one is an error.
    pub param_bindings: HashMap<String, ConstData>,
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
            tune: Tune::Cached,
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
    param_bindings => param_bindings: HashMap<String, ConstData>;
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
    /// Which options count for compiled code. Every cache's key is made of this and nothing else.
    fn shaping(&self) -> Shaping<'_> {
        // Every field is named, so that a new one must be put on one side or the other.
        let CompileOptions {
            precision,
            policy,
            dce,
            constant_folding,
            // Changes what is logged.
            verbose: _,
            fusion,
            arena_alignment,
            assert_fusion_clean,
            supported_ops,
            dim_binding,
            dim_ranges,
            param_bindings,
            kernel_dispatch,
            numerics,
            shared_arena,
            // Changes times, never a bit; what it chose is kept beside the code.
            tune: _,
        } = self;
        let template = TemplateOptions {
            precision: *precision,
            policy: policy.as_ref(),
            dce: *dce,
            constant_folding: *constant_folding,
            fusion: *fusion,
            arena_alignment: *arena_alignment,
            assert_fusion_clean: *assert_fusion_clean,
            supported_ops: supported_ops.as_ref(),
            dim_ranges,
            param_bindings,
            kernel_dispatch: *kernel_dispatch,
            numerics: *numerics,
        };
        Shaping { template, dim_binding, shared_arena: *shared_arena }
    }

    /// Whether both compile a graph to the same code, but for the values of symbolic dimensions and for where memory
    /// is: what a template with open dimensions depends on.
    ///
    /// ```
    /// use rlx_opt::{CompileOptions, Numerics};
    /// let (fast, strict) = (CompileOptions::default(), CompileOptions::default().numerics(Numerics::Strict));
    /// assert!(!fast.shapes_same_code(&strict));
    /// assert!(fast.shapes_same_code(&fast.clone().with_verbose(true)));
    /// assert!(fast.shapes_same_code(&fast.clone().with_shared_arena(true)));
    /// ```
    pub fn shapes_same_code(&self, other: &Self) -> bool {
        self.shaping().template == other.shaping().template
    }

    /// Whether both compile a graph to the same module.
    ///
    /// ```
    /// use rlx_ir::DimBinding;
    /// use rlx_opt::CompileOptions;
    /// let (open, fixed) = (CompileOptions::default(), CompileOptions::default().dim_binding(DimBinding::batch_seq(1, 2)));
    /// assert!(open.shapes_same_code(&fixed) && !open.compiles_same_module(&fixed));
    /// ```
    pub fn compiles_same_module(&self, other: &Self) -> bool {
        self.shaping() == other.shaping()
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
    /// The options that shape code, as text: equal exactly when [`CompileOptions::compiles_same_module`] is true, and the
    /// same in every process (symbols are written by name, sets in order, values of parameters as their hash). What
    /// changes only logs and times is left out.
    ///
    /// ```
    /// use rlx_opt::{CompileOptions, Numerics};
    /// let (a, b) = (CompileOptions::default(), CompileOptions::default().with_verbose(true));
    /// assert_eq!(a.code_key(), b.code_key());
    /// assert_ne!(a.code_key(), b.numerics(Numerics::Strict).code_key());
    /// ```
    pub fn code_key(&self) -> String {
        self.shaping().to_string()
    }

    /// The [`arena_alignment`](Self::arena_alignment) in a [`code_key`](Self::code_key): compiled models that keep nothing else
    /// of their options still plan memory as they asked.
    pub fn alignment_in(code_key: &str) -> Option<usize> {
        let number = code_key.split_whitespace().find_map(|part| part.strip_prefix("align="))?;
        number.parse().ok().filter(|n: &usize| n.is_power_of_two())
    }
}

/// The options that a compiled module depends on.
#[derive(PartialEq)]
struct Shaping<'o> {
    template: TemplateOptions<'o>,
    dim_binding: &'o DimBinding,
    shared_arena: bool,
}

/// The options that a template depends on, whose dimensions are open and whose memory is not planned for good.
#[derive(PartialEq)]
struct TemplateOptions<'o> {
    precision: Precision,
    policy: Option<&'o PrecisionPolicy>,
    dce: bool,
    constant_folding: bool,
    fusion: FusionOptions,
    arena_alignment: usize,
    assert_fusion_clean: bool,
    supported_ops: Option<&'o HashSet<OpKind>>,
    dim_ranges: &'o [(u32, SymRange)],
    param_bindings: &'o HashMap<String, ConstData>,
    kernel_dispatch: KernelDispatchPolicy,
    numerics: Numerics,
}

impl std::fmt::Display for Shaping<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Shaping { template, dim_binding, shared_arena } = self;
        let mut bound: Vec<String> =
            dim_binding.iter().map(|(s, v)| format!("{:?}={v}", sym::name(s))).collect();
        sort(&mut bound);
        write!(f, "{template} {bound:?} shared={shared_arena}")
    }
}

impl std::fmt::Display for TemplateOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TemplateOptions {
            precision,
            policy,
            dce,
            constant_folding,
            fusion,
            arena_alignment,
            assert_fusion_clean,
            supported_ops,
            dim_ranges,
            param_bindings,
            kernel_dispatch,
            numerics,
        } = self;
        let policy = policy.map(policy_key);
        let supported = supported_ops.map(|ops| {
            let mut names: Vec<&str> = ops.iter().map(|k| k.name()).collect();
            sort(&mut names);
            names.join(" ")
        });
        let ranges: Vec<String> =
            dim_ranges.iter().map(|(s, r)| format!("{:?}={}..={}", sym::name(*s), r.min, r.max)).collect();
        let value = |(name, data): (&String, &ConstData)| {
            format!("{name:?}={} {}", data.shape(), hash_of([&data.bytes()[..]]))
        };
        let mut values: Vec<String> = param_bindings.iter().map(value).collect();
        sort(&mut values);
        write!(
            f,
            "{precision} {policy:?} dce={dce} fold={constant_folding} {fusion:?} align={arena_alignment} \
             clean={assert_fusion_clean} ops={supported:?} {ranges:?} params={values:?} {kernel_dispatch:?} \
             {numerics:?}"
        )
    }
}

fn policy_key(policy: &PrecisionPolicy) -> String {
    let PrecisionPolicy::Custom(by_op) = policy else { return format!("{policy:?}") };
    let mut pairs: Vec<String> = by_op.iter().map(|(op, p)| format!("{op}={p}")).collect();
    sort(&mut pairs);
    pairs.join(" ")
}
