//! A model compiled once with dynamic sizes, and its variants for concrete sizes.
//!
//! The *template* is compiled once for each set of options, from a module that a closure builds. A *variant* is
//! the template with numbers for its symbols: no pass runs again, no weight is packed again, and all variants share the
//! memory for intermediate values. Parameters that were set on one variant carry over to each
//! new one; setting a parameter never changes an existing variant.
//!
//! ```
//! use rlx_ir::{DType, Dim, DimBinding, HirModule, Shape, sym};
//! use rlx_runtime::{CompileOptions, Device, ModelCompilePipeline};
//! let model = || {
//!     let rows = |n| Shape::from_dims(&[Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ), Dim::Static(n)], DType::F32);
//!     let mut m = HirModule::new("model");
//!     let (x, w) = (m.input("x", rows(2)), m.param("w", Shape::new(&[2, 1], DType::F32)));
//!     let y = m.linear(x, w, None, None, rows(1));
//!     m.set_outputs(vec![y]);
//!     m
//! };
//! let (mut pipeline, options) = (ModelCompilePipeline::new(Device::Cpu), CompileOptions::new());
//! let short = pipeline.get_or_compile(1, &DimBinding::batch_seq(1, 1), model, &options)?;
//! short.set_param("w", &[1.0, 10.0]);
//! assert_eq!(short.run(&[("x", &[2.0, 3.0])]), [[32.0]]);
//! let long = pipeline.get_or_compile(2, &DimBinding::batch_seq(1, 2), model, &options)?;
//! assert_eq!(long.run(&[("x", &[1.0, 0.0, 0.0, 1.0])]), [[1.0, 10.0]]);
//! # Ok::<(), rlx_ir::LowerError>(())
//! ```

mod aot;
pub(crate) mod variants;

use rlx_driver::Device;
use rlx_ir::{
    BindingManifest, DimBinding, HirModule, KernelDispatchPolicy, LowerError, MirModule, ModelComponent,
    Result, WeightStore,
};
use rlx_opt::{CompileOptions, CompileResult};
use rlx_select::or_panic;
use variants::{Variants, no_template};

use crate::compiled::CompiledGraph;
use crate::error::CompileError;
/// How many variants [`ModelCompilePipeline::new`] keeps.
const CAPACITY: usize = 8;

/// One model on one device: its templates and a bounded number of variants.
///
/// The key of a variant is the caller's key, its sizes, and the options that affect the code; the closure that
/// builds the model runs once for each template, however many variants there are. The oldest variant is dropped
/// first, even if it was used recently.
///
/// The pipeline keeps every parameter as it was set, because other options may pack it differently. For weights
/// that are mapped from a file this takes no memory.
#[derive(Debug)]
pub struct ModelCompilePipeline {
    pub(crate) variants: Variants,
}

impl ModelCompilePipeline {
    /// A pipeline that keeps 8 variants.
    ///
    /// ```
    /// use rlx_runtime::{Device, ModelCompilePipeline};
    /// let pipeline = ModelCompilePipeline::new(Device::Cpu);
    /// assert!(pipeline.is_empty() && !pipeline.has_template());
    /// assert_eq!(pipeline.device(), Device::Cpu);
    /// ```
    pub fn new(device: Device) -> Self {
        Self::with_capacity(device, CAPACITY)
    }

    /// A pipeline that keeps `capacity` variants.
    ///
    /// # Panics
    /// For a capacity of 0; [`ModelCompilePipeline::try_with_capacity`] reports it.
    ///
    /// ```
    /// use rlx_runtime::{Device, ModelCompilePipeline};
    /// assert_eq!(ModelCompilePipeline::with_capacity(Device::Cpu, 2).capacity(), 2);
    /// ```
    #[track_caller]
    pub fn with_capacity(device: Device, capacity: usize) -> Self {
        or_panic(Self::try_with_capacity(device, capacity))
    }

    /// As [`ModelCompilePipeline::with_capacity`].
    ///
    /// # Errors
    /// [`rlx_ir::ErrorKind::Config`] for a capacity of 0.
    pub fn try_with_capacity(device: Device, capacity: usize) -> Result<Self> {
        Ok(ModelCompilePipeline { variants: Variants::new(device, capacity)? })
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.variants.device()
    }

    /// The maximum number of variants.
    pub fn capacity(&self) -> usize {
        self.variants.capacity()
    }

    /// Whether a template was built, for any options.
    pub fn has_template(&self) -> bool {
        self.template_result().is_some()
    }

    /// How many variants there are.
    pub fn len(&self) -> usize {
        self.variants.len()
    }

    /// Whether there are no variants.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is a variant with `key`, for any options and sizes.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let model = || {
    /// #     let rows = |n| Shape::from_dims(&[Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ), Dim::Static(n)], DType::F32);
    /// #     let mut m = HirModule::new("model");
    /// #     let (x, w) = (m.input("x", rows(2)), m.param("w", Shape::new(&[2, 1], DType::F32)));
    /// #     let y = m.linear(x, w, None, None, rows(1));
    /// #     m.set_outputs(vec![y]);
    /// #     m
    /// # };
    /// # let (mut pipeline, options) = (ModelCompilePipeline::new(Device::Cpu), CompileOptions::new());
    /// pipeline.get_or_compile(1, &DimBinding::batch_seq(1, 4), model, &options)?;
    /// assert!(pipeline.contains(1) && !pipeline.contains(2));
    /// # Ok::<(), LowerError>(())
    /// ```
    pub fn contains(&self, key: u64) -> bool {
        self.variants.contains(key)
    }

    /// The template that was built or used last.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let model = || {
    /// #     let rows = |n| Shape::from_dims(&[Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ), Dim::Static(n)], DType::F32);
    /// #     let mut m = HirModule::new("model");
    /// #     let (x, w) = (m.input("x", rows(2)), m.param("w", Shape::new(&[2, 1], DType::F32)));
    /// #     let y = m.linear(x, w, None, None, rows(1));
    /// #     m.set_outputs(vec![y]);
    /// #     m
    /// # };
    /// # let (mut pipeline, options) = (ModelCompilePipeline::new(Device::Cpu), CompileOptions::new());
    /// # pipeline.build_template(model, &options)?;
    /// assert!(pipeline.template_result().is_some());
    /// # Ok::<(), LowerError>(())
    /// ```
    pub fn template_result(&self) -> Option<&CompileResult> {
        self.variants.latest()
    }

    /// Compiles the template for these options, with dynamic sizes; if there is one already, `build`
    /// does not run.
    ///
    /// ```
    /// use rlx_ir::{DType, HirModule, Shape};
    /// use rlx_runtime::{CompileOptions, Device, ModelCompilePipeline};
    /// let mut pipeline = ModelCompilePipeline::new(Device::Cpu);
    /// let identity = || {
    ///     let mut m = HirModule::new("identity");
    ///     let x = m.input("x", Shape::new(&[2], DType::F32));
    ///     m.set_outputs(vec![x]);
    ///     m
    /// };
    /// let template = pipeline.build_template(identity, &CompileOptions::new())?;
    /// assert_eq!(template.lir.name, "identity");
    /// # Ok::<(), rlx_ir::LowerError>(())
    /// ```
    ///
    /// # Errors
    /// A block whose shapes do not match, or an error of the compiler.
    pub fn build_template<F>(
        &mut self,
        build: F,
        options: &CompileOptions,
    ) -> Result<&CompileResult, LowerError>
    where
        F: FnOnce() -> HirModule,
    {
        self.variants.ensure_template(|| graph_of(build), options)
    }

    /// The same as [`ModelCompilePipeline::build_template`].
    ///
    /// # Errors
    /// As [`ModelCompilePipeline::build_template`].
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let model = || {
    /// #     let rows = |n| Shape::from_dims(&[Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ), Dim::Static(n)], DType::F32);
    /// #     let mut m = HirModule::new("model");
    /// #     let (x, w) = (m.input("x", rows(2)), m.param("w", Shape::new(&[2, 1], DType::F32)));
    /// #     let y = m.linear(x, w, None, None, rows(1));
    /// #     m.set_outputs(vec![y]);
    /// #     m
    /// # };
    /// # let (mut pipeline, options) = (ModelCompilePipeline::new(Device::Cpu), CompileOptions::new());
    /// pipeline.ensure_template(model, &options)?;
    /// pipeline.ensure_template(|| unreachable!("there is one"), &options)?;
    /// # Ok::<(), LowerError>(())
    /// ```
    pub fn ensure_template<F>(
        &mut self,
        build: F,
        options: &CompileOptions,
    ) -> Result<&CompileResult, LowerError>
    where
        F: FnOnce() -> HirModule,
    {
        self.build_template(build, options)
    }

    /// The template for these sizes. `binding` takes precedence over `options.dim_binding`.
    ///
    /// # Panics
    /// Without a template for these options, or for sizes outside its ranges;
    /// [`ModelCompilePipeline::try_specialize_template`] reports it.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let model = || {
    /// #     let rows = |n| Shape::from_dims(&[Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ), Dim::Static(n)], DType::F32);
    /// #     let mut m = HirModule::new("model");
    /// #     let (x, w) = (m.input("x", rows(2)), m.param("w", Shape::new(&[2, 1], DType::F32)));
    /// #     let y = m.linear(x, w, None, None, rows(1));
    /// #     m.set_outputs(vec![y]);
    /// #     m
    /// # };
    /// # let (mut pipeline, options) = (ModelCompilePipeline::new(Device::Cpu), CompileOptions::new());
    /// # pipeline.build_template(model, &options)?;
    /// let result = pipeline.specialize_template(&DimBinding::batch_seq(1, 1), &options);
    /// let mut compiled = pipeline.compile_lir(result, &options);
    /// compiled.set_param("w", &[1.0, 10.0]);
    /// assert_eq!(compiled.run(&[("x", &[2.0, 3.0])]), [[32.0]]);
    /// # Ok::<(), LowerError>(())
    /// ```
    #[track_caller]
    pub fn specialize_template(&self, binding: &DimBinding, options: &CompileOptions) -> CompileResult {
        or_panic(self.try_specialize_template(binding, options))
    }

    /// As [`ModelCompilePipeline::specialize_template`].
    ///
    /// # Errors
    /// [`rlx_ir::ErrorKind::Config`] without a template for these options; sizes outside its ranges.
    pub fn try_specialize_template(
        &self,
        binding: &DimBinding,
        options: &CompileOptions,
    ) -> Result<CompileResult> {
        self.variants.specialize(binding, options)
    }

    /// A graph that runs `result`, with the parameters set on earlier variants. The pipeline does not
    /// store it.
    ///
    /// # Panics
    /// If [`ModelCompilePipeline::try_compile_lir`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let model = || {
    /// #     let rows = |n| Shape::from_dims(&[Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ), Dim::Static(n)], DType::F32);
    /// #     let mut m = HirModule::new("model");
    /// #     let (x, w) = (m.input("x", rows(2)), m.param("w", Shape::new(&[2, 1], DType::F32)));
    /// #     let y = m.linear(x, w, None, None, rows(1));
    /// #     m.set_outputs(vec![y]);
    /// #     m
    /// # };
    /// # let (mut pipeline, options) = (ModelCompilePipeline::new(Device::Cpu), CompileOptions::new());
    /// # pipeline.build_template(model, &options)?;
    /// let result = pipeline.specialize_template(&DimBinding::batch_seq(1, 4), &options);
    /// assert_eq!(pipeline.compile_lir(result, &options).device(), Device::Cpu);
    /// # Ok::<(), LowerError>(())
    /// ```
    #[track_caller]
    pub fn compile_lir(&self, result: CompileResult, options: &CompileOptions) -> CompiledGraph {
        or_panic(self.try_compile_lir(result, options))
    }

    /// As [`ModelCompilePipeline::compile_lir`].
    ///
    /// # Errors
    /// A device that is not available, or rejects the module.
    pub fn try_compile_lir(
        &self,
        result: CompileResult,
        options: &CompileOptions,
    ) -> Result<CompiledGraph, CompileError> {
        Ok(self.variants.compile(result, options)?)
    }

    /// The inputs, parameters and outputs of the template built last; what depends on dynamic sizes is `None`.
    ///
    /// # Panics
    /// Without a template; [`ModelCompilePipeline::try_template_binding_manifest`] reports it.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let model = || {
    /// #     let rows = |n| Shape::from_dims(&[Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ), Dim::Static(n)], DType::F32);
    /// #     let mut m = HirModule::new("model");
    /// #     let (x, w) = (m.input("x", rows(2)), m.param("w", Shape::new(&[2, 1], DType::F32)));
    /// #     let y = m.linear(x, w, None, None, rows(1));
    /// #     m.set_outputs(vec![y]);
    /// #     m
    /// # };
    /// # let (mut pipeline, options) = (ModelCompilePipeline::new(Device::Cpu), CompileOptions::new());
    /// # pipeline.build_template(model, &options)?;
    /// let manifest = pipeline.template_binding_manifest();
    /// assert_eq!((manifest.params[0].name.as_str(), manifest.inputs[0].arena_offset), ("w", None));
    /// # Ok::<(), LowerError>(())
    /// ```
    #[track_caller]
    pub fn template_binding_manifest(&self) -> BindingManifest {
        or_panic(self.try_template_binding_manifest())
    }

    /// As [`ModelCompilePipeline::template_binding_manifest`].
    ///
    /// # Errors
    /// [`rlx_ir::ErrorKind::Config`] without a template.
    pub fn try_template_binding_manifest(&self) -> Result<BindingManifest> {
        let template = self.template_result().ok_or_else(no_template)?;
        Ok(BindingManifest::from_lir(&template.lir))
    }

    /// The inputs, parameters and outputs of the template at these sizes, with their offsets. `binding` takes precedence over
    /// `options.dim_binding`.
    ///
    /// # Panics
    /// As [`ModelCompilePipeline::specialize_template`].
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let model = || {
    /// #     let rows = |n| Shape::from_dims(&[Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ), Dim::Static(n)], DType::F32);
    /// #     let mut m = HirModule::new("model");
    /// #     let (x, w) = (m.input("x", rows(2)), m.param("w", Shape::new(&[2, 1], DType::F32)));
    /// #     let y = m.linear(x, w, None, None, rows(1));
    /// #     m.set_outputs(vec![y]);
    /// #     m
    /// # };
    /// # let (mut pipeline, options) = (ModelCompilePipeline::new(Device::Cpu), CompileOptions::new());
    /// # pipeline.build_template(model, &options)?;
    /// let manifest = pipeline.binding_manifest_for_binding(&DimBinding::batch_seq(1, 4), &options);
    /// assert_eq!(manifest.inputs[0].elem_count, Some(8));
    /// # Ok::<(), LowerError>(())
    /// ```
    #[track_caller]
    pub fn binding_manifest_for_binding(
        &self,
        binding: &DimBinding,
        options: &CompileOptions,
    ) -> BindingManifest {
        or_panic(self.try_binding_manifest_for_binding(binding, options))
    }

    /// As [`ModelCompilePipeline::binding_manifest_for_binding`].
    ///
    /// # Errors
    /// As [`ModelCompilePipeline::try_specialize_template`].
    pub fn try_binding_manifest_for_binding(
        &self,
        binding: &DimBinding,
        options: &CompileOptions,
    ) -> Result<BindingManifest> {
        Ok(BindingManifest::from_lir(&self.try_specialize_template(binding, options)?.lir))
    }

    /// The inputs, parameters and outputs of the template for a component.
    ///
    /// # Panics
    /// As [`ModelCompilePipeline::specialize_template`].
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let model = || {
    /// #     let rows = |n| Shape::from_dims(&[Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ), Dim::Static(n)], DType::F32);
    /// #     let mut m = HirModule::new("model");
    /// #     let (x, w) = (m.input("x", rows(2)), m.param("w", Shape::new(&[2, 1], DType::F32)));
    /// #     let y = m.linear(x, w, None, None, rows(1));
    /// #     m.set_outputs(vec![y]);
    /// #     m
    /// # };
    /// # let (mut pipeline, options) = (ModelCompilePipeline::new(Device::Cpu), CompileOptions::new());
    /// # pipeline.build_template(model, &options)?;
    /// let component = ModelComponent::new(ModelVariant::encoder(1, 4));
    /// assert_eq!(pipeline.binding_manifest_for_component(&component, &options).inputs[0].elem_count, Some(8));
    /// # Ok::<(), LowerError>(())
    /// ```
    #[track_caller]
    pub fn binding_manifest_for_component(
        &self,
        component: &ModelComponent,
        options: &CompileOptions,
    ) -> BindingManifest {
        or_panic(self.try_binding_manifest_for_component(component, options))
    }

    /// As [`ModelCompilePipeline::binding_manifest_for_component`].
    ///
    /// # Errors
    /// As [`ModelCompilePipeline::try_specialize_template`].
    pub fn try_binding_manifest_for_component(
        &self,
        component: &ModelComponent,
        options: &CompileOptions,
    ) -> Result<BindingManifest> {
        self.try_binding_manifest_for_binding(
            &component.dim_binding(),
            &component_options(component, options),
        )
    }

    /// The variant of `key` at these sizes, compiled if it does not exist. `binding` takes precedence over
    /// `options.dim_binding`; `build` runs only if there is no template for these options yet.
    ///
    /// # Errors
    /// A block whose shapes do not match, an error of the compiler, sizes outside the template's ranges, a device that is not available.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let model = || {
    /// #     let rows = |n| Shape::from_dims(&[Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ), Dim::Static(n)], DType::F32);
    /// #     let mut m = HirModule::new("model");
    /// #     let (x, w) = (m.input("x", rows(2)), m.param("w", Shape::new(&[2, 1], DType::F32)));
    /// #     let y = m.linear(x, w, None, None, rows(1));
    /// #     m.set_outputs(vec![y]);
    /// #     m
    /// # };
    /// # let (mut pipeline, options) = (ModelCompilePipeline::new(Device::Cpu), CompileOptions::new());
    /// let compiled = pipeline.get_or_compile(1, &DimBinding::batch_seq(1, 1), model, &options)?;
    /// compiled.set_param("w", &[1.0, 10.0]);
    /// assert_eq!(compiled.run(&[("x", &[2.0, 3.0])]), [[32.0]]);
    /// # Ok::<(), LowerError>(())
    /// ```
    pub fn get_or_compile<F>(
        &mut self,
        key: u64,
        binding: &DimBinding,
        build: F,
        options: &CompileOptions,
    ) -> Result<&mut CompiledGraph, LowerError>
    where
        F: FnOnce() -> HirModule,
    {
        let at = self.variants.get_or_compile(key, binding, || graph_of(build), options)?;
        Ok(self.variants.variant(at))
    }

    /// Sets the parameters that `weights` has by name, in all existing and later variants.
    ///
    /// # Errors
    /// As [`CompiledGraph::try_set_weight`].
    pub fn try_set_weights(&mut self, weights: &WeightStore) -> Result<()> {
        self.variants.set_weights(weights)
    }

    /// The variant of a component, under [`ModelComponent::cache_key`], and its manifest. If the
    /// component sets a kernel dispatch other than the default, it takes precedence over the options'. A pipeline
    /// compiles on this call in every compilation mode; the mode is only part of the key.
    ///
    /// # Errors
    /// As [`ModelCompilePipeline::get_or_compile`].
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let model = || {
    /// #     let rows = |n| Shape::from_dims(&[Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ), Dim::Static(n)], DType::F32);
    /// #     let mut m = HirModule::new("model");
    /// #     let (x, w) = (m.input("x", rows(2)), m.param("w", Shape::new(&[2, 1], DType::F32)));
    /// #     let y = m.linear(x, w, None, None, rows(1));
    /// #     m.set_outputs(vec![y]);
    /// #     m
    /// # };
    /// # let (mut pipeline, options) = (ModelCompilePipeline::new(Device::Cpu), CompileOptions::new());
    /// let component = ModelComponent::new(ModelVariant::prefill(1, 4));
    /// let (compiled, manifest) = pipeline.get_or_compile_component(&component, model, &options)?;
    /// assert_eq!((compiled.inputs().len(), manifest.inputs[0].elem_count), (1, Some(8)));
    /// # Ok::<(), LowerError>(())
    /// ```
    pub fn get_or_compile_component<F>(
        &mut self,
        component: &ModelComponent,
        build: F,
        options: &CompileOptions,
    ) -> Result<(&mut CompiledGraph, BindingManifest), LowerError>
    where
        F: FnOnce() -> HirModule,
    {
        let options = component_options(component, options);
        let graph = self.get_or_compile(component.cache_key(), &component.dim_binding(), build, &options)?;
        let manifest = BindingManifest::from_lir(graph.lir());
        Ok((graph, manifest))
    }
}

/// The graph of the module that `build` returns.
pub(crate) fn graph_of(build: impl FnOnce() -> HirModule) -> Result<rlx_ir::Graph, LowerError> {
    build().lower_to_mir().map(MirModule::into_graph)
}

/// The options with the component's settings.
fn component_options(component: &ModelComponent, options: &CompileOptions) -> CompileOptions {
    match component.kernel_dispatch() {
        KernelDispatchPolicy::PreferNative => options.clone(),
        policy => options.clone().kernel_dispatch(policy),
    }
}
