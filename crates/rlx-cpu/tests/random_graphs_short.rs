//! Random graphs in f16 and bf16: the CPU against the oracle on the graph as the precision pass leaves it, whose
//! every value the oracle rounds to its declared type.

mod common;

use std::cell::Cell;

use common::{against_oracle_within, backends, compile, oracle, run, unfused};
use rlx_backend::Backend;
use rlx_cpu::CpuBackend;
use rlx_cpu::isa::Isa;
use rlx_ir::testing::{Tolerance, for_random_graphs, random_graph, tolerance};
use rlx_ir::{DType, DimBinding, Graph, OpKind};
use rlx_opt::{CompileOptions, CompilePipeline, Precision, PrecisionPolicy, precision};

/// The graph after the pass, with casts around what runs short.
fn after_the_pass(graph: &Graph, backend: &CpuBackend, options: &CompileOptions) -> Graph {
    let mut pipeline = CompilePipeline::new(backend.target(options).expect("a target"), options.clone());
    pipeline.keep_graphs = true;
    let result = pipeline.compile(graph).expect("it compiles");
    let pass = result.passes.into_iter().find(|p| p.name == "apply-precision").expect("the pass");
    pass.after.expect("it was asked for")
}

/// Rounding differences of the short type grow along a chain, whatever the type of the output.
fn of(short: DType) -> impl Fn(Tolerance) -> Tolerance {
    let t = tolerance(short);
    move |own| if own.rtol == 0.0 { own } else { Tolerance { rtol: 2.0 * t.rtol, atol: 2.0 * t.atol } }
}

fn agree(seed: u64, graphs: u32, short: DType, options: &CompileOptions) {
    let mut backends = backends();
    let plain = CpuBackend::new().with_isa(Isa::detect().without_extensions()).with_threads(1);
    backends.insert(0, ("without extensions".to_owned(), plain.expect("a pool of one thread")));
    let (ran, shortened) = (Cell::new(0), Cell::new(0));
    for_random_graphs(seed, graphs, 1..=20, |seed, size| {
        let (graph, bindings) = random_graph(seed, size);
        let reference = after_the_pass(&graph, &backends[0].1, options);
        let want = oracle(&reference, &bindings);
        let mut last = Vec::new();
        for (name, backend) in &backends {
            let unfused = CompileOptions { fusion: unfused().fusion, ..options.clone() };
            for options in [&unfused, options] {
                let mut exec = compile(&graph, backend, options).map_err(|e| e.to_string())?;
                let got = run(&mut *exec, &bindings, &DimBinding::new()).map_err(|e| e.to_string())?;
                // Without composites the pass sees other ops.
                let comparable = options.fusion.composites;
                let lir = exec.lir().clone();
                if let Some(d) = against_oracle_within(&want, &got, of(short)).filter(|_| comparable) {
                    return Err(format!("{name}: {d}\n{reference}\n{lir}"));
                }
                shortened.set(shortened.get() + usize::from(exec.precision().dtype() == short));
                last.push(got);
            }
        }
        ran.set(ran.get() + 1);
        let [.., one, _, two] = &last[..] else { return Err("fewer than two backends".into()) };
        if one == two { Ok(()) } else { Err(format!("one thread and two differ\n{graph}")) }
    });
    assert!(ran.get() >= graphs as usize / 2, "only {} graphs ran", ran.get());
    assert!(shortened.get() > ran.get(), "only {} of {} ran short", shortened.get(), ran.get());
}

#[test]
fn graphs_in_bf16_agree_with_the_oracle() {
    agree(21, 120, DType::BF16, &CompileOptions::default().precision(Precision::BF16));
}

#[test]
fn graphs_in_f16_agree_with_the_oracle() {
    agree(22, 120, DType::F16, &CompileOptions::default().precision(Precision::F16));
}

/// These kinds in a short type and the others in f32, as the mixed policies have them where the device gains by it.
fn custom(short: Precision, kinds: impl Fn(OpKind) -> bool) -> CompileOptions {
    let ops = OpKind::ALL.iter().filter(|&&kind| kinds(kind)).map(|&kind| (kind, short));
    CompileOptions::default().policy(PrecisionPolicy::Custom(ops.collect()))
}

#[test]
fn mixed_graphs_agree_with_the_oracle() {
    use OpKind::{BatchNorm, Cumulative, GroupNorm, LayerNorm, LogSoftmax, Reduce, RmsNorm, Softmax};
    let delicate = [BatchNorm, Cumulative, GroupNorm, LayerNorm, LogSoftmax, Reduce, RmsNorm, Softmax];
    let mixed = |short| custom(short, |kind| !delicate.contains(&kind));
    agree(23, 60, DType::BF16, &mixed(Precision::BF16));
    agree(24, 60, DType::F16, &mixed(Precision::F16));
    agree(25, 60, DType::F16, &custom(Precision::F16, precision::is_product));
}
