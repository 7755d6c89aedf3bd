//! [`DynamicDimCompileCache`]: one graph, with a variant for each choice of dimension sizes.

use rlx_driver::Device;
use rlx_ir::{DimBinding, Graph, LowerError, Result, WeightStore};
use rlx_opt::CompileOptions;
use rlx_select::or_panic;

use crate::compiled::CompiledGraph;
use crate::error::CompileError;
use crate::model_pipeline::variants::Variants;
/// How many variants [`DynamicDimCompileCache::new`] keeps.
const CAPACITY: usize = 8;

/// One graph with dynamic dimensions, compiled once, and a variant for each choice of sizes: first in, first out.
/// Parameters carry over from variant to variant.
///
/// ```
/// use rlx_ir::{DType, Dim, DimBinding, Graph, Shape, op::Activation, sym};
/// use rlx_runtime::{Device, DynamicDimCompileCache};
/// let rows = Shape::from_dims(&[Dim::Dynamic(sym::ROWS)], DType::F32);
/// let mut graph = Graph::new("negate");
/// let x = graph.input("x", rows.clone());
/// let y = graph.activation(Activation::Neg, x, rows);
/// graph.set_outputs(vec![y]);
/// let mut cache = DynamicDimCompileCache::new(Device::Cpu, graph);
/// let two = cache.get_or_compile(&DimBinding::from_pairs(&[(sym::ROWS, 2)]));
/// assert_eq!(two.run(&[("x", &[1.0, 2.0])]), [[-1.0, -2.0]]);
/// assert_eq!(cache.len(), 1);
/// ```
#[derive(Debug)]
pub struct DynamicDimCompileCache {
    graph: Graph,
    variants: Variants,
}

impl DynamicDimCompileCache {
    /// A cache of 8 variants of `graph`.
    pub fn new(device: Device, graph: Graph) -> Self {
        Self::with_capacity(device, graph, CAPACITY)
    }

    /// A cache of `capacity` variants of `graph`.
    ///
    /// # Panics
    /// For a capacity of 0; [`DynamicDimCompileCache::try_with_capacity`] reports it.
    #[track_caller]
    pub fn with_capacity(device: Device, graph: Graph, capacity: usize) -> Self {
        or_panic(Self::try_with_capacity(device, graph, capacity))
    }

    /// As [`DynamicDimCompileCache::with_capacity`].
    ///
    /// # Errors
    /// [`rlx_ir::ErrorKind::Config`] for a capacity of 0.
    pub fn try_with_capacity(device: Device, graph: Graph, capacity: usize) -> Result<Self> {
        Ok(DynamicDimCompileCache { graph, variants: Variants::new(device, capacity)? })
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.variants.device()
    }

    /// The graph with dynamic dimensions.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// How many variants there are.
    pub fn len(&self) -> usize {
        self.variants.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The variant for these sizes, compiled if it does not exist. Symbols that the binding does not name stay dynamic.
    ///
    /// # Panics
    /// If [`DynamicDimCompileCache::try_get_or_compile`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// let mut g = Graph::new("rows");
    /// let x = g.input("x", Shape::from_dims(&[Dim::Dynamic(sym::ROWS), Dim::Static(1)], DType::F32));
    /// let y = g.relu(x);
    /// g.set_outputs(vec![y]);
    /// let mut cache = DynamicDimCompileCache::new(Device::Cpu, g);
    /// let two = cache.get_or_compile(&DimBinding::from_pairs(&[(sym::ROWS, 2)]));
    /// assert_eq!(two.run(&[("x", &[3.0, -1.0])]), [[3.0, 0.0]]);
    /// ```
    #[track_caller]
    pub fn get_or_compile(&mut self, binding: &DimBinding) -> &mut CompiledGraph {
        or_panic(self.try_get_or_compile(binding))
    }

    /// As [`DynamicDimCompileCache::get_or_compile`].
    ///
    /// # Errors
    /// An error of the compiler, sizes outside the graph's ranges, a device that is not available.
    pub fn try_get_or_compile(&mut self, binding: &DimBinding) -> Result<&mut CompiledGraph, CompileError> {
        let options = CompileOptions::try_new()?;
        self.try_get_or_compile_with(binding, &options)
    }

    /// The variant for these sizes under `options`; `binding` takes precedence over `options.dim_binding`.
    ///
    /// # Errors
    /// As [`DynamicDimCompileCache::try_get_or_compile`].
    pub fn try_get_or_compile_with(
        &mut self,
        binding: &DimBinding,
        options: &CompileOptions,
    ) -> Result<&mut CompiledGraph, CompileError> {
        let graph = &self.graph;
        let made = self.variants.get_or_compile(0, binding, || Ok(graph.clone()), options);
        let at = made.map_err(|e: LowerError| CompileError::from(e.error().clone()))?;
        Ok(self.variants.variant(at))
    }

    /// Sets the parameters that `weights` has by name, in all existing and later variants.
    ///
    /// # Errors
    /// As [`CompiledGraph::try_set_weight`].
    pub fn try_set_weights(&mut self, weights: &WeightStore) -> Result<()> {
        self.variants.set_weights(weights)
    }
}
