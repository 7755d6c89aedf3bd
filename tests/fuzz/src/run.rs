//! Running graphs on the CPU, and comparing with the oracle.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rlx_cpu::CpuBackend;
use rlx_cpu::isa::Isa;
use rlx_ir::op::{Activation, BinaryOp};
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{Gen, Tolerance, difference, tolerance};
use rlx_ir::{
    Cancel, ConstData, DType, DimBinding, Error, ErrorKind, Graph, Op, OpKind, Progress, Result, Shape,
    Value, Weight, WeightStore,
};
use rlx_opt::{CompileOptions, FusionOptions, Tune};
use rlx_runtime::{CompiledGraph, Device, Session, TensorView};

use crate::accepted;

/// How long a graph may run before it is stopped: a loop may be long and right.
const DEADLINE: Duration = Duration::from_millis(500);

/// A session for each instruction set of this processor, on one thread.
static SESSIONS: LazyLock<Vec<Session>> = LazyLock::new(|| {
    let session = |isa: Isa| {
        let backend = CpuBackend::new().with_isa(isa).with_threads(1).expect("a pool of one thread");
        Session::with_backend(Device::Cpu, Arc::new(backend))
    };
    Isa::available().into_iter().map(session).collect()
});

/// The sessions of all instruction sets.
pub fn sessions() -> &'static [Session] {
    &SESSIONS
}

/// One of the instruction sets.
pub fn session(g: &mut Gen) -> &'static Session {
    &SESSIONS[g.size(0..=SESSIONS.len() - 1)]
}

/// One of the option sets that change how a graph is compiled and not what it means. `dims` are the graph's symbols, which
/// may be fixed while it compiles.
pub fn options(g: &mut Gen, dims: Option<&DimBinding>) -> CompileOptions {
    let options = plain();
    match (g.size(0..=7), dims) {
        (0 | 1, _) => {
            let (elementwise, epilogue, producers, composites) = (false, false, false, false);
            options.fusion_opts(FusionOptions { elementwise, epilogue, producers, composites })
        }
        (2, _) => options.with_shared_arena(true),
        (3, Some(dims)) => options.dim_binding(dims.clone()),
        _ => options,
    }
}

/// The default options, which read nothing from the cache folder.
pub fn plain() -> CompileOptions {
    CompileOptions::default().tune(Tune::Off)
}

/// A progress that ends after [`DEADLINE`].
pub fn deadline() -> Progress {
    Progress::from(&Cancel::new().with_deadline(DEADLINE))
}

/// Values for a graph's inputs and parameters.
pub struct Sample {
    pub bindings: Bindings,
    /// The symbols' values, where the lengths of inputs may not tell them.
    pub dims: Option<DimBinding>,
}

/// Sets the parameters and runs.
///
/// # Errors
/// What the compiled graph reports.
fn run(compiled: &mut CompiledGraph, sample: &Sample) -> Result<Vec<ConstData>> {
    let bindings = &sample.bindings;
    if let Some(dims) = &sample.dims {
        compiled.set_dims(dims);
    }
    let mut weights = WeightStore::new();
    for info in compiled.params() {
        if let Some(value) = bindings.param(&info.name) {
            let weight = Weight::owned(value.dtype, &value.dims, value.encode())?;
            weights.insert(info.name.clone(), weight);
        }
    }
    compiled.try_set_weights(&weights)?;
    let inputs: Vec<(String, ConstData)> = compiled
        .inputs()
        .iter()
        .filter_map(|info| Some((info.name.clone(), bindings.input(&info.name)?.to_const())))
        .collect();
    let views: Vec<TensorView<'_>> = inputs
        .iter()
        .map(|(name, data)| TensorView { name, dtype: data.dtype(), dims: data.dims(), bytes: data.bytes() })
        .collect();
    compiled.try_run_tensors_with_progress(&views, &deadline())
}

/// How closely results of the CPU are compared with the oracle's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    /// Shapes alone, where rounding or the range of f32 may decide what is right.
    Shapes,
    /// By the tolerance for chains of ops.
    Values,
}

/// Compiles and runs `graph`, and holds what comes of it against the oracle: both accept the values with the same results,
/// or both reject them.
///
/// # Panics
/// When they disagree.
pub fn agree(graph: &Graph, sample: &Sample, session: &Session, options: &CompileOptions, compare: Compare) {
    let bindings = &sample.bindings;
    // Parameters have no open dimensions when a graph is compiled: then all is, and every node must fit, dead ones too.
    let open = graph.params().any(|param| param.shape.static_dims().is_none());
    let (options, every_node) = match &sample.dims {
        Some(dims) if open => (options.clone().dim_binding(dims.clone()), true),
        _ => (options.clone(), false),
    };
    let reference = match &sample.dims {
        Some(dims) => Ok(graph.bind(dims)),
        // What is fixed while a graph compiles may take a symbol without a value with it: with n = 0, n*m is 0.
        None => graph.try_bind(&options.dim_binding),
    };
    let want: Result<Vec<Value>> = reference.and_then(|graph| {
        if every_node {
            rlx_ir::verify_ok(&graph)?;
        }
        let all = oracle::evaluate_all_with_progress(&graph, bindings, &graph.outputs, &deadline())?;
        let first = |id: &rlx_ir::NodeId| all[id.index()].as_ref().map(|results| results[0].clone());
        Ok(graph.outputs.iter().filter_map(first).collect())
    });
    let got = session
        .try_compile_with(graph.clone(), &options)
        .map_err(Error::from)
        .and_then(|mut c| run(&mut c, sample));
    for e in [want.as_ref().err(), got.as_ref().err()].into_iter().flatten() {
        accepted::<()>(Err(e.clone()));
        // What is not built, too large or too slow says nothing of the graph.
        if matches!(e.kind(), ErrorKind::Unsupported | ErrorKind::OutOfMemory | ErrorKind::Cancelled) {
            return;
        }
    }
    match (want, got) {
        (Err(_), Err(_)) => {}
        (Ok(_), Err(e)) => panic!("rejected, but the oracle accepts: {e}\n{}", shown(graph, bindings)),
        (Err(e), Ok(_)) => panic!("accepted, but the oracle says: {e}\n{}", shown(graph, bindings)),
        (Ok(want), Ok(got)) => {
            let counted: Vec<u32> = graph.data_symbols().iter().map(|data| data.symbol).collect();
            for (i, (want, got)) in want.iter().zip(&got).enumerate() {
                let what = match compare {
                    Compare::Values => difference(want, &got.value(), looser(tolerance(want.dtype))),
                    Compare::Shapes => {
                        let alike = is_alike(graph.shape(graph.outputs[i]), &want.dims, got.dims(), &counted);
                        (!alike).then(|| format!("shape {} where {} is right", got.shape(), want.shape()))
                    }
                };
                if let Some(what) = what {
                    panic!("output {i}: {what}\n{}", shown(graph, bindings));
                }
            }
        }
    }
}

/// Whether an output has the dimensions that are right, but for those that depend on what a run counts: how many elements are
/// unique or not zero is decided by their last bits.
fn is_alike(declared: &Shape, want: &[usize], got: &[usize], counted: &[u32]) -> bool {
    let is_free = |i: usize| declared.dims().get(i).is_some_and(|d| counted.iter().any(|&s| d.mentions(s)));
    want.len() == got.len() && (0..want.len()).all(|i| want[i] == got[i] || is_free(i))
}

/// Errors of floats grow along a chain of ops, and with optimisations that change bits.
fn looser(t: Tolerance) -> Tolerance {
    let exact = t.rtol == 0.0;
    if exact { t } else { Tolerance { rtol: t.rtol.max(1e-3), atol: t.atol.max(1e-3) } }
}

/// The graph with the dimensions that were given.
fn shown(graph: &Graph, bindings: &Bindings) -> String {
    let given: Vec<String> = graph
        .nodes()
        .iter()
        .filter_map(|node| match &node.op {
            Op::Input { name } => Some((name, bindings.input(name)?)),
            Op::Param { name } => Some((name, bindings.param(name)?)),
            _ => None,
        })
        .map(|(name, value)| format!("{name}: {}", value.shape()))
        .collect();
    format!("{}\n{graph}", given.join(", "))
}

/// The longest axis of what is run.
const MOST_OF_AXIS: i64 = 1 << 24;

/// Small values for the inputs and parameters of `graph`, where all of it stays below `max_elements`; open dimensions are
/// the first of some small numbers that fit.
pub fn small_sample(graph: &Graph, g: &mut Gen, max_elements: usize) -> Option<Sample> {
    let found: Vec<u32> = graph.data_symbols().iter().map(|data| data.symbol).collect();
    // What only results are declared by is given a value, too, unless a run finds sizes out: it would contradict them.
    let mut symbols: BTreeSet<u32> = match found.as_slice() {
        [] => graph.nodes().iter().flat_map(|node| node.symbols()).collect(),
        _ => graph.inputs().chain(graph.params()).flat_map(|node| node.symbols()).collect(),
    };
    symbols.retain(|s| !found.contains(s));
    for n in [2, 1, 3, 0] {
        let mut dims = DimBinding::new();
        symbols.iter().for_each(|&s| _ = dims.set(s, n));
        let mut declared = graph.nodes().iter().flat_map(|node| node.results()).flat_map(|s| s.dims());
        // What is made along one axis, such as a mask's positions, is as long as the axis even where others are 0.
        if declared
            .any(|d| d.extent().bind(&dims).as_const().is_some_and(|n| !(0..=MOST_OF_AXIS).contains(&n)))
        {
            continue;
        }
        let sizes =
            graph.nodes().iter().flat_map(|node| node.results()).map(|s| s.bind(&dims).num_elements());
        // A dimension that a run finds out counts as one.
        let total = sizes.into_iter().try_fold(0usize, |sum, n| sum.checked_add(n.unwrap_or(1)));
        if total.is_none_or(|n| n > max_elements) {
            continue;
        }
        let mut bindings = Bindings::default();
        for node in graph.inputs().chain(graph.params()) {
            let shape = node.shape.bind(&dims);
            let Some(fixed) = shape.static_dims() else { break };
            let range = if shape.dtype().is_float() { -1.0..1.0 } else { 0.0..3.0 };
            let value = g.value(shape.dtype(), &fixed, range);
            match &node.op {
                Op::Input { name } => _ = bindings.set_input(name.clone(), value),
                Op::Param { name } => _ = bindings.set_param(name.clone(), value),
                _ => {}
            }
        }
        if oracle::bind_dims(graph, &bindings).is_ok() {
            return Some(Sample { bindings, dims: Some(dims) });
        }
    }
    None
}

/// Whether rounding decides nothing in `graph` but the last digits: it has only ops that are smooth, in types of 32 bits
/// or more, and every value is small.
pub fn is_tame(graph: &Graph, bindings: &Bindings) -> bool {
    let wide = |dtype: DType| !dtype.is_float() || dtype.bits() >= 32;
    if !graph.nodes().iter().all(|n| is_smooth(&n.op) && n.results().iter().all(|s| wide(s.dtype()))) {
        return false;
    }
    let wanted: Vec<_> = graph.nodes().iter().map(|n| n.id).collect();
    let Ok(values) = oracle::evaluate_all_with_progress(graph, bindings, &wanted, &deadline()) else {
        return false;
    };
    let small = |value: &Value| value.to_f64().iter().all(|x| x.abs() < 1e3);
    values.iter().flatten().flatten().all(small)
}

/// Whether small changes of its operands make small changes of what the op computes, also where they are small.
fn is_smooth(op: &Op) -> bool {
    use Activation as A;
    use BinaryOp as B;
    match op {
        Op::Activation(f) => matches!(
            f,
            A::Gelu
                | A::GeluApprox
                | A::Silu
                | A::Relu
                | A::Sigmoid
                | A::Tanh
                | A::Neg
                | A::Abs
                | A::Sin
                | A::Cos
                | A::Atan
                | A::Erf
                | A::Softplus
                | A::Softsign
                | A::Mish
                | A::HardSwish
        ),
        Op::Binary(f) => matches!(f, B::Add | B::Sub | B::Mul | B::Max | B::Min),
        _ => matches!(
            op.kind(),
            OpKind::Input
                | OpKind::Param
                | OpKind::Constant
                | OpKind::Result
                | OpKind::Reshape
                | OpKind::Transpose
                | OpKind::Expand
                | OpKind::Slice
                | OpKind::Concat
                | OpKind::Gather
                | OpKind::Pad
                | OpKind::Tile
                | OpKind::Iota
                | OpKind::Where
                | OpKind::MatMul
                | OpKind::DotGeneral
                | OpKind::Conv
                | OpKind::ConvTranspose
                | OpKind::Pool
                | OpKind::Reduce
                | OpKind::Softmax
        ),
    }
}

#[cfg(test)]
mod tests {
    use rlx_ir::Dim;

    use super::*;

    #[test]
    fn only_what_a_run_counts_may_differ_where_last_bits_decide() {
        let found = rlx_ir::sym::named("found");
        let declared = Shape::from_dims(&[Dim::Static(2), Dim::Dynamic(found)], DType::F32);
        assert!(is_alike(&declared, &[2, 140], &[2, 142], &[found]));
        assert!(!is_alike(&declared, &[2, 140], &[2, 142], &[]));
        assert!(!is_alike(&declared, &[2, 140], &[3, 140], &[found]));
        assert!(!is_alike(&declared, &[2, 140], &[2], &[found]));
    }
}
