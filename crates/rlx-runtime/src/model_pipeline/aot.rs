//! Variants cached on disk.

use std::sync::Arc;

use rlx_ir::{DimBinding, Graph, HirModule};
use rlx_opt::CompileOptions;

use super::variants::effective;
use super::{ModelCompilePipeline, graph_of};
use crate::aot::{AotCache, AotCacheError};
use crate::compiled::CompiledGraph;

impl ModelCompilePipeline {
    /// As [`ModelCompilePipeline::get_or_compile`], with a cache on disk behind the pipeline: a variant that an earlier
    /// process made, of the same model, sizes, options and machine, is loaded from there under the name `disk_base`.
    /// `build` runs to identify the model; the template is compiled only if the cache does not have the variant.
    ///
    /// ```
    /// use rlx_ir::{DType, Dim, DimBinding, HirModule, Shape, sym};
    /// use rlx_runtime::{AotCache, CompileOptions, Device, ModelCompilePipeline};
    /// let model = || {
    ///     let mut m = HirModule::new("identity");
    ///     let x = m.input("x", Shape::from_dims(&[Dim::Dynamic(sym::SEQ)], DType::F32));
    ///     m.set_outputs(vec![x]);
    ///     m
    /// };
    /// let root = std::env::temp_dir().join(format!("rlx-pipeline-{}", std::process::id()));
    /// let (cache, options) = (AotCache::new(&root), CompileOptions::new());
    /// for templates in [true, false] {
    ///     let mut pipeline = ModelCompilePipeline::new(Device::Cpu);
    ///     let binding = DimBinding::batch_seq(1, 2);
    ///     let variant = pipeline.get_or_specialize_aot(&cache, "identity", 7, &binding, model, &options)?;
    ///     assert_eq!(variant.run(&[("x", &[1.0, 2.0])]), [[1.0, 2.0]]);
    ///     assert_eq!(pipeline.has_template(), templates);
    /// }
    /// # std::fs::remove_dir_all(root).unwrap();
    /// # Ok::<(), rlx_runtime::AotCacheError>(())
    /// ```
    ///
    /// # Errors
    /// As [`ModelCompilePipeline::get_or_compile`], or an entry that cannot be written.
    pub fn get_or_specialize_aot<F>(
        &mut self,
        cache: &AotCache,
        disk_base: &str,
        key: u64,
        binding: &DimBinding,
        build: F,
        options: &CompileOptions,
    ) -> Result<&mut CompiledGraph, AotCacheError>
    where
        F: FnOnce() -> HirModule,
    {
        if let Some(at) = self.variants.find(key, binding, options) {
            return Ok(self.variants.variant(at));
        }
        let compile = |e: rlx_ir::Error| AotCacheError::Compile(e.into());
        let sizes = effective(binding, options).into_owned();
        let known = self.variants.template(options).ok().map(|template| Arc::clone(&template.source));
        let graph: Arc<Graph> = match known {
            Some(graph) => graph,
            None => Arc::new(graph_of(build)?),
        };
        let (device, variants) = (self.variants.device(), &mut self.variants);
        // Like all variants, it shares the memory for intermediate values with the others.
        let shared = options.clone().with_shared_arena(true);
        let mut compiled =
            cache.specialized(disk_base, &[&key.to_le_bytes()], &sizes, device, &graph, &shared, || {
                variants.ensure_template(|| Ok((*graph).clone()), options)?;
                variants.specialize(&sizes, options).map_err(compile)
            })?;
        self.variants.adopt(&mut compiled).map_err(compile)?;
        let at = self.variants.insert(key, binding, options, compiled);
        Ok(self.variants.variant(at))
    }
}
