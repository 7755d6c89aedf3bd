//! Templates and their variants, shared by [`super::ModelCompilePipeline`] and the caches.

use std::borrow::Cow;
use std::collections::VecDeque;

use rlx_driver::Device;
use rlx_ir::{DimBinding, Error, ErrorKind, Graph, LowerError, Result, WeightStore};
use rlx_opt::{CompileOptions, CompilePipeline, CompileResult};
use rlx_select::panic_guard::on_device;

use crate::compiled::{CompiledGraph, ParamBook};
use crate::session::Session;
use crate::stages::try_pipeline_for;
/// A graph compiled with dynamic dimensions, for some options.
#[derive(Debug)]
struct Template {
    options: CompileOptions,
    result: CompileResult,
}

/// One compiled variant.
#[derive(Debug)]
struct Variant {
    key: u64,
    binding: DimBinding,
    options: CompileOptions,
    graph: CompiledGraph,
}

/// Templates by options, and variants by key, sizes and options: first in, first out.
#[derive(Debug)]
pub(crate) struct Variants {
    device: Device,
    capacity: usize,
    templates: Vec<Template>,
    /// The template built last.
    latest: usize,
    variants: VecDeque<Variant>,
    book: ParamBook,
}

/// The effective sizes: the argument's, and the options' for symbols that it does not name.
pub(crate) fn effective<'b>(binding: &'b DimBinding, options: &CompileOptions) -> Cow<'b, DimBinding> {
    if options.dim_binding.iter().all(|(symbol, _)| binding.get(symbol).is_some()) {
        return Cow::Borrowed(binding);
    }
    let mut merged = options.dim_binding.clone();
    binding.iter().for_each(|(symbol, value)| {
        merged.set(symbol, value);
    });
    Cow::Owned(merged)
}

impl Variants {
    /// # Errors
    /// [`ErrorKind::Config`] for a capacity of 0.
    pub(crate) fn new(device: Device, capacity: usize) -> Result<Self> {
        if capacity == 0 {
            let message = "a cache of compiled variants needs a capacity of at least 1";
            return Err(Error::new(ErrorKind::Config, message));
        }
        Ok(Variants {
            device,
            capacity,
            templates: Vec::new(),
            latest: 0,
            variants: VecDeque::new(),
            book: ParamBook::default(),
        })
    }

    pub(crate) fn device(&self) -> Device {
        self.device
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn len(&self) -> usize {
        self.variants.len()
    }

    /// Whether there is a variant with `key`, for any options and sizes.
    pub(crate) fn contains(&self, key: u64) -> bool {
        self.variants.iter().any(|v| v.key == key)
    }

    /// The index of the variant, if it exists.
    pub(crate) fn find(&self, key: u64, binding: &DimBinding, options: &CompileOptions) -> Option<usize> {
        let binding = effective(binding, options);
        let is_one =
            |v: &Variant| v.key == key && v.binding == *binding && v.options.shapes_same_code(options);
        self.variants.iter().position(is_one)
    }

    pub(crate) fn variant(&mut self, at: usize) -> &mut CompiledGraph {
        &mut self.variants[at].graph
    }

    /// The template built last.
    pub(crate) fn latest(&self) -> Option<&CompileResult> {
        self.templates.get(self.latest).map(|t| &t.result)
    }

    /// The template for these options.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when there is none.
    pub(crate) fn template(&self, options: &CompileOptions) -> Result<&CompileResult> {
        let found = self.templates.iter().find(|t| t.options.shapes_same_code(options));
        found.map(|t| &t.result).ok_or_else(|| match self.templates.len() {
            0 => no_template(),
            _ => Error::new(ErrorKind::Config, "there is no template under these options")
                .with_hint("call build_template with them first"),
        })
    }

    /// The template for these options; `build` runs if there is none yet.
    ///
    /// # Errors
    /// Errors of `build` and of the compiler.
    pub(crate) fn ensure_template(
        &mut self,
        build: impl FnOnce() -> Result<Graph, LowerError>,
        options: &CompileOptions,
    ) -> Result<&CompileResult, LowerError> {
        self.latest = match self.templates.iter().position(|t| t.options.shapes_same_code(options)) {
            Some(at) => at,
            None => {
                let graph = build()?;
                let options = CompileOptions { dim_binding: DimBinding::new(), ..options.clone() };
                let result = self.compile_template(&graph, &options);
                let result = result.map_err(|e| LowerError::Compile(on_device(e, self.device)))?;
                self.templates.push(Template { options, result });
                self.templates.len() - 1
            }
        };
        Ok(&self.templates[self.latest].result)
    }

    /// Sets the parameters that `weights` has by name, in all existing and later variants.
    ///
    /// # Errors
    /// As [`CompiledGraph::try_set_weight`].
    pub(crate) fn set_weights(&mut self, weights: &WeightStore) -> Result<()> {
        self.book.note_all(weights);
        self.variants.iter_mut().try_for_each(|v| v.graph.try_set_weights(weights).map(|_| ()))
    }

    /// All variants share the memory for intermediate values.
    fn pipeline(&self, options: &CompileOptions) -> Result<CompilePipeline> {
        try_pipeline_for(self.device, &options.clone().with_shared_arena(true))
    }

    fn compile_template(&self, graph: &Graph, options: &CompileOptions) -> Result<CompileResult> {
        self.pipeline(options)?.compile(graph)
    }

    /// The template for these options and sizes.
    ///
    /// # Errors
    /// No template, or sizes outside its ranges.
    pub(crate) fn specialize(&self, binding: &DimBinding, options: &CompileOptions) -> Result<CompileResult> {
        let template = self.template(options)?;
        let specialized = self.pipeline(options)?.try_specialize(template, &effective(binding, options));
        specialized.map_err(|e| on_device(e, self.device))
    }

    /// A graph that runs `result`, with the parameters that other variants have.
    ///
    /// # Errors
    /// A device that is not available or rejects the module.
    pub(crate) fn compile(&self, result: CompileResult, options: &CompileOptions) -> Result<CompiledGraph> {
        let shared = options.clone().with_shared_arena(true);
        let mut graph = Session::try_new(self.device)?.compile_result(result, &shared)?;
        self.adopt(&mut graph)?;
        Ok(graph)
    }

    /// Sets the parameters of the variants on another graph.
    ///
    /// # Errors
    /// Memory that cannot be had.
    pub(crate) fn adopt(&self, graph: &mut CompiledGraph) -> Result<()> {
        graph.share_params(&self.book)
    }

    /// Stores a variant, which must not exist yet, and drops the oldest if the capacity is reached.
    pub(crate) fn insert(
        &mut self,
        key: u64,
        binding: &DimBinding,
        options: &CompileOptions,
        graph: CompiledGraph,
    ) -> usize {
        if self.variants.len() >= self.capacity {
            self.variants.pop_front();
        }
        let binding = effective(binding, options).into_owned();
        self.variants.push_back(Variant { key, binding, options: options.clone(), graph });
        self.variants.len() - 1
    }

    /// The index of the variant, which is created if it does not exist.
    ///
    /// # Errors
    /// Errors of `build` and of the compiler, or sizes outside the template's ranges.
    pub(crate) fn get_or_compile(
        &mut self,
        key: u64,
        binding: &DimBinding,
        build: impl FnOnce() -> Result<Graph, LowerError>,
        options: &CompileOptions,
    ) -> Result<usize, LowerError> {
        if let Some(at) = self.find(key, binding, options) {
            return Ok(at);
        }
        self.ensure_template(build, options)?;
        let made = self.specialize(binding, options).and_then(|result| self.compile(result, options));
        let graph = made.map_err(|e| LowerError::Compile(on_device(e, self.device)))?;
        Ok(self.insert(key, binding, options, graph))
    }
}

/// The error of calls that need a template.
pub(crate) fn no_template() -> Error {
    Error::new(ErrorKind::Config, "the pipeline has no template yet")
        .with_hint("call build_template, ensure_template or get_or_compile first")
}
