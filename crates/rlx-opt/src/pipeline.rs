//! The pipeline: the list of passes in order, and the function that walks it.

use std::sync::Arc;
use std::time::Duration;

use rlx_ir::clock::Instant;
use rlx_ir::dim::scoped;
use rlx_ir::graph::rule_may_hold;
use rlx_ir::progress::Stage;
use rlx_ir::{
    DimBinding, Error, ErrorKind, ExprBudget, Graph, LirModule, Progress, Result, verify_exact, verify_ok,
};

use crate::lower;
use crate::options::CompileOptions;
use crate::passes;
use crate::report::{self, KernelDispatchReport};
use crate::rewrite::all_distinct;
use crate::target::Target;

/// What a pass may look at besides the graph.
#[derive(Clone, Copy)]
pub struct PassContext<'a> {
    /// The device.
    pub target: &'a dyn Target,
    /// How to compile.
    pub options: &'a CompileOptions,
    /// Whether the graph is the body of a control-flow op: more is done to what it gives, unseen from here.
    pub is_body: bool,
}

/// A named pass.
#[derive(Clone, Copy)]
pub struct Pass {
    /// The name `--passes` and reports use.
    pub name: &'static str,
    /// What it does.
    pub run: fn(&Graph, &PassContext<'_>) -> Result<Graph>,
}

/// The passes from the graph as given to the graph that is lowered, in order.
///
/// Common subexpressions vanish in every pass, since all build through the [`crate::rewrite::Rewriter`]. Rows are put in order before
/// composites are recognised, because attention is told its heads' place by the transposes around it. The precision policy comes after composites are recognised, because it speaks of composites. Lowering splits
/// off the init program.
pub const PASSES: &[Pass] = &[
    Pass { name: "eliminate-dead-nodes", run: passes::eliminate_dead_nodes::run },
    Pass { name: "fold-constants", run: passes::fold_constants::run },
    Pass { name: "simplify", run: passes::simplify::run },
    Pass { name: "order-rows", run: passes::order_rows::run },
    Pass { name: "recognize-composites", run: passes::recognize_composites::run },
    Pass { name: "fold-batch-norm", run: passes::fold_batch_norm::run },
    Pass { name: "apply-precision", run: passes::apply_precision::run },
    Pass { name: "choose-layout", run: passes::choose_layout::run },
    Pass { name: "multiply-integers", run: passes::multiply_integers::run },
    Pass { name: "multiply-blocks", run: passes::multiply_blocks::run },
    Pass { name: "legalize", run: passes::legalize::run },
    Pass { name: "simplify-legal", run: passes::simplify::run },
    Pass { name: "merge-matmuls", run: passes::merge_matmuls::run },
    Pass { name: "widen-channels", run: passes::widen_channels::run },
    Pass { name: "pack-weights", run: passes::pack_weights::run },
    Pass { name: "fuse-regions", run: passes::fuse_regions::run },
];

/// What is counted as compiling goes on: the passes, and lowering.
const PARTS: usize = PASSES.len() + 1;

/// What one pass did.
#[derive(Debug, Clone)]
pub struct PassRecord {
    /// The pass.
    pub name: &'static str,
    /// Nodes before and after.
    pub nodes: (usize, usize),
    /// How long it took.
    pub time: Duration,
    /// The graph after it, when the caller asked to see it.
    pub after: Option<Graph>,
}

/// A compiled module and what is to be said about it, without the graph that it was compiled from.
#[derive(Debug, Clone)]
pub struct CompiledModule {
    /// The module.
    pub lir: LirModule,
    /// How each op kind gets computed.
    pub report: KernelDispatchReport,
    /// What each pass did.
    pub passes: Vec<PassRecord>,
}

/// What compiling gives: the module and what is to be said about it.
#[derive(Debug, Clone)]
pub struct CompileResult {
    /// The module.
    pub lir: LirModule,
    /// The graph it was compiled from.
    pub source: Arc<Graph>,
    /// The options it was compiled with.
    pub options: CompileOptions,
    /// How each op kind gets computed.
    pub report: KernelDispatchReport,
    /// What each pass did.
    pub passes: Vec<PassRecord>,
}

impl CompileResult {
    /// The values of dimensions once it is specialised by `binding`: those that it was compiled for stay.
    pub fn sizes(&self, binding: &DimBinding) -> DimBinding {
        let mut sizes = binding.clone();
        for (symbol, value) in self.options.dim_binding.iter() {
            sizes.set(symbol, value);
        }
        sizes
    }

    /// Whether `options` are those it was compiled with, as far as they shape code. The values of dimensions are the
    /// module's own.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for other options.
    pub fn check_options(&self, options: &CompileOptions) -> Result<()> {
        if self.options.shapes_same_code(options) {
            return Ok(());
        }
        let message = format!("{:?} was compiled under other options than these", self.lir.name);
        Err(Error::new(ErrorKind::Config, message).with_hint("compile the graph with these options"))
    }

    /// The same module for fixed dimensions: extents become numbers, and memory is planned for them. No pass runs
    /// again, so buffers, steps and packing stay what they are, and a device shares what it made of the weights.
    ///
    /// # Panics
    /// When the binding does not fit; [`CompilePipeline::try_specialize`] reports it.
    pub fn specialize(&self, pipeline: &CompilePipeline, binding: &DimBinding) -> CompileResult {
        match pipeline.try_specialize(self, binding) {
            Ok(result) => result,
            Err(e) => panic!("{e}"),
        }
    }
}

/// Compiles graphs for one device with one set of options.
#[derive(Clone)]
pub struct CompilePipeline {
    target: Arc<dyn Target>,
    options: CompileOptions,
    /// Keep the graph after each pass.
    pub keep_graphs: bool,
    /// The graphs are bodies of control-flow ops; see [`PassContext::is_body`].
    pub of_bodies: bool,
}

impl std::fmt::Debug for CompilePipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompilePipeline")
            .field("target", &self.target.name())
            .field("options", &self.options)
            .finish()
    }
}

impl CompilePipeline {
    /// A pipeline for `target`.
    pub fn new(target: Arc<dyn Target>, options: CompileOptions) -> Self {
        CompilePipeline { target, options, keep_graphs: false, of_bodies: false }
    }

    /// The options it compiles with.
    pub fn options(&self) -> &CompileOptions {
        &self.options
    }

    /// The device it compiles for.
    pub fn target(&self) -> &Arc<dyn Target> {
        &self.target
    }

    fn context(&self) -> PassContext<'_> {
        PassContext { target: &*self.target, options: &self.options, is_body: self.of_bodies }
    }

    /// Compiles a graph.
    ///
    /// # Errors
    /// What the verifier finds, an op nothing can compute, or a fault of a pass (named).
    pub fn compile(&self, graph: &Graph) -> Result<CompileResult> {
        self.compile_with_progress(graph, &Progress::none())
    }

    /// As [`CompilePipeline::compile`]; it can be stopped between two passes.
    ///
    /// # Errors
    /// As [`CompilePipeline::compile`]; [`ErrorKind::Cancelled`].
    pub fn compile_with_progress(&self, graph: &Graph, progress: &Progress) -> Result<CompileResult> {
        let compiled = self.compile_module(graph.clone(), progress)?;
        let CompiledModule { lir, report, passes } = compiled;
        Ok(CompileResult {
            lir,
            source: Arc::new(graph.clone()),
            options: self.options.clone(),
            report,
            passes,
        })
    }

    /// As [`CompilePipeline::compile_with_progress`], for a graph that is not needed any more: it is freed as soon as it was
    /// rewritten, which halves what a large one takes.
    ///
    /// # Errors
    /// As [`CompilePipeline::compile_with_progress`].
    pub fn compile_module(&self, graph: Graph, progress: &Progress) -> Result<CompiledModule> {
        scoped(|| {
            let exact = verify_exact(&graph)?;
            self.compile_bound(graph, exact, progress)
        })
    }

    /// As [`CompileResult::specialize`]. Symbols that the binding does not name stay open.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a template that was compiled under other options; [`ErrorKind::Dimension`] for a value
    /// outside its symbol's range, what the verifier says of sizes that do not fit each other, a plan that exceeds the
    /// device's memory.
    pub fn try_specialize(&self, template: &CompileResult, binding: &DimBinding) -> Result<CompileResult> {
        scoped(|| self.specialize_scoped(template, binding))
    }

    fn specialize_scoped(&self, template: &CompileResult, binding: &DimBinding) -> Result<CompileResult> {
        template.check_options(&self.options)?;
        check_ranges(&template.lir, binding)?;
        template.lir.graph.check_binding(binding)?;
        template.lir.rules.check_binding(binding)?;
        let mut lir = template.lir.bind(binding);
        verify_ok(&lir.graph)?;
        lir.rules
            .outputs
            .iter()
            .try_for_each(|&id| rule_may_hold(&lir.rules, lir.rules.node(id)).map(drop))?;
        let context = self.context();
        lir.plan = lower::plan_within_bounds(&lir, &context)?;
        Ok(CompileResult {
            lir,
            source: Arc::clone(&template.source),
            options: CompileOptions { dim_binding: template.sizes(binding), ..self.options.clone() },
            report: template.report.clone(),
            passes: template.passes.clone(),
        })
    }

    /// Compiles a verified graph; `exact` where each of its nodes declares just what its op's rule gives.
    fn compile_bound(&self, graph: Graph, exact: bool, progress: &Progress) -> Result<CompiledModule> {
        /// What the sizes of a node may take, as if a file had so many bytes for it.
        const BYTES_OF_NODE: usize = 256;
        let _budget = ExprBudget::for_bytes(graph.len().saturating_mul(BYTES_OF_NODE));
        let context = self.context();
        let mut bound = graph.try_bind(&self.options.dim_binding)?;
        drop(graph);
        bound.names_to_origins();
        self.options.dim_ranges.iter().for_each(|&(symbol, range)| bound.set_symbol_range(symbol, range));
        let same = self.options.dim_binding.is_empty() && self.options.dim_ranges.is_empty();
        let exact = if same { exact } else { verify_exact(&bound)? };
        if exact && all_distinct(&bound) {
            // The first pass that changes nothing need not copy it.
            bound.set_canonical();
            bound.shrink_to_fit();
        }
        let mut report = report::analyze(&bound, &context);
        let mut passes = Vec::with_capacity(PASSES.len());
        let source = lower::SourceRules::new(&bound);
        let mut optimised = self.run_passes(bound, &context, &mut passes, progress)?;
        optimised.align_results();
        report.precision = Some(report::precision_of(&optimised, &context));
        progress.step(Stage::Compile, PASSES.len(), PARTS, || "lower")?;
        let lir = lower::to_lir(&optimised, &source, &context)?;
        progress.step(Stage::Compile, PARTS, PARTS, || "")?;
        Ok(CompiledModule { lir, report, passes })
    }

    fn run_passes(
        &self,
        graph: Graph,
        context: &PassContext<'_>,
        done: &mut Vec<PassRecord>,
        progress: &Progress,
    ) -> Result<Graph> {
        let mut graph = graph;
        for (i, pass) in PASSES.iter().enumerate() {
            progress.step(Stage::Compile, i, PARTS, || pass.name)?;
            let (start, before) = (Instant::now(), graph.len());
            graph = (pass.run)(&graph, context)?;
            if cfg!(debug_assertions) {
                verify_ok(&graph).map_err(|e| {
                    Error::new(ErrorKind::Internal, format!("after pass \"{}\": {e}\n{graph}", pass.name))
                })?;
            }
            done.push(PassRecord {
                name: pass.name,
                nodes: (before, graph.len()),
                time: start.elapsed(),
                after: self.keep_graphs.then(|| graph.clone()),
            });
            let (after, time) = (graph.len(), start.elapsed());
            if self.options.verbose {
                tracing::info!(pass = pass.name, before, after, ?time, "pass done");
            } else {
                tracing::debug!(pass = pass.name, before, after, ?time, "pass done");
            }
        }
        Ok(graph)
    }
}

/// Whether every value of `binding` is within its symbol's range.
fn check_ranges(lir: &LirModule, binding: &DimBinding) -> Result<()> {
    for &symbol in &lir.symbols {
        let (range, value) = (lir.graph.symbol_range(symbol), binding.get(symbol));
        let outside = |&v: &usize| i64::try_from(v).map_or(true, |v| v < range.min || v > range.max);
        if let Some(value) = value.filter(outside) {
            let name = rlx_ir::sym::name(symbol);
            let message = format!("{name} = {value} is outside {}..={}", range.min, range.max);
            return Err(Error::new(ErrorKind::Dimension, message));
        }
    }
    Ok(())
}
