//! Random graphs: the CPU against the oracle through the whole pipeline, with fixed and with open dimensions.

mod common;

use std::cell::{Cell, RefCell};
use std::ops::RangeInclusive;
use std::sync::Arc;

use common::{against_oracle_within, backends, compile, oracle, run, run_again, unfused};
use rlx_backend::Backend;
use rlx_cpu::CpuBackend;
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{
    Tolerance, for_random_graphs, lengthened, random_decoder, random_donating_graph, random_graph,
    random_projection_graph, random_symbolic_graph,
};
use rlx_ir::{DType, DimBinding, Error, ErrorKind, Graph, LirModule, Node, Op, OpKind, Value};
use rlx_opt::{CompileOptions, CompilePipeline, caches};

/// Errors of 32-bit floats grow along a chain of ops, and with optimisations that change bits.
fn looser(t: Tolerance) -> Tolerance {
    let exact = t.rtol == 0.0;
    if exact { t } else { Tolerance { rtol: t.rtol.max(1e-3), atol: t.atol.max(1e-3) } }
}

/// Steps that write over an operand, matmuls that compute the norm before them, matmuls that quantise their rows, pairs of
/// matmuls, and attentions that read what would be gathered.
#[derive(Default)]
struct Seen {
    in_place: Cell<usize>,
    producers: Cell<usize>,
    quantised: Cell<usize>,
    pairs: Cell<usize>,
    gathered: Cell<usize>,
}

impl Seen {
    fn count(&self, lir: &LirModule) {
        let add = |to: &Cell<usize>, more: usize| to.set(to.get() + more);
        add(&self.in_place, lir.steps.iter().filter(|step| step.in_place().next().is_some()).count());
        for step in &lir.steps {
            let Op::Region { body } = &lir.graph.node(step.node).op else { continue };
            let of =
                |kinds: &[OpKind]| body.graph.nodes().iter().filter(|n| kinds.contains(&n.op.kind())).count();
            add(&self.producers, of(&[OpKind::LayerNorm, OpKind::RmsNorm]));
            add(&self.pairs, usize::from(of(&[OpKind::MatMul]) > 1));
            add(&self.gathered, of(&[OpKind::Attention]));
            let of_floats = |n: &Node| {
                n.op == Op::MatMulInteger && matches!(body.graph.node(n.inputs[0]).op, Op::Quantize { .. })
            };
            add(&self.quantised, body.graph.nodes().iter().filter(|n| of_floats(n)).count());
        }
    }
}

/// What a graph computes on one backend: fused, unfused and run again, all within tolerance of `want`.
fn outputs(
    graph: &Graph,
    bindings: &Bindings,
    want: &[Value],
    backend: &CpuBackend,
    seen: &Seen,
) -> Result<Vec<Vec<Vec<u8>>>, Error> {
    let mut all = Vec::new();
    for options in [CompileOptions::default(), unfused()] {
        let mut exec = compile(graph, backend, &options)?;
        let got = run(&mut *exec, bindings, &DimBinding::new())?;
        let lir = exec.lir().clone();
        seen.count(&lir);
        let wrong = |what: String| Error::new(ErrorKind::Value, format!("{what}\n{graph}\n{lir}"));
        if let Some(difference) = against_oracle_within(want, &got, looser) {
            return Err(wrong(difference));
        }
        if run_again(&mut *exec, bindings, &DimBinding::new())? != got {
            return Err(wrong("a second run differs".into()));
        }
        all.push(got);
    }
    Ok(all)
}

/// A random graph of a size, and values for it.
type Generator = fn(u64, usize) -> (Graph, Bindings);

/// Runs `cases` random graphs on every instruction set, on one thread and on two, and says how many ran and what was seen
/// among their steps.
fn agree(stream: u64, cases: u32, sizes: RangeInclusive<usize>, make: Generator) -> (usize, Seen) {
    let backends = backends();
    let (ran, rejected) = (Cell::new(0), RefCell::new(Vec::new()));
    let seen = Seen::default();
    for_random_graphs(stream, cases, sizes, |seed, size| {
        let (graph, bindings) = make(seed, size);
        let want = oracle(&graph, &bindings);
        let mut all = Vec::new();
        for (name, backend) in &backends {
            match outputs(&graph, &bindings, &want, backend, &seen) {
                Ok(got) => all.push(got),
                Err(e) if e.kind() == ErrorKind::Unsupported => {
                    rejected.borrow_mut().push(format!("seed {seed}, {name}: {e}"));
                    return Ok(());
                }
                Err(e) => return Err(format!("{name}: {e}\n{graph}")),
            }
        }
        // The last two are the best instruction set on one thread and on two.
        let [.., one, two] = &all[..] else { return Err("fewer than two backends".into()) };
        ran.set(ran.get() + 1);
        if one == two { Ok(()) } else { Err(format!("one thread and two differ\n{graph}")) }
    });
    let least = cases as usize * 5 / 6;
    assert!(ran.get() >= least, "only {} graphs ran; rejected:\n{}", ran.get(), rejected.borrow().join("\n"));
    (ran.get(), seen)
}

#[test]
fn fixed_graphs_agree_with_the_oracle_on_every_instruction_set_and_number_of_threads() {
    let (ran, seen) = agree(5, 600, 1..=36, random_graph);
    let in_place = seen.in_place.get();
    assert!(in_place > 10 * ran, "only {in_place} steps wrote in place");
}

#[test]
fn projections_norms_and_gates_agree_with_the_oracle() {
    let (_, seen) = agree(13, 1000, 1..=12, random_projection_graph);
    let (producers, quantised, pairs) = (seen.producers.get(), seen.quantised.get(), seen.pairs.get());
    let gathered = seen.gathered.get();
    println!(
        "{producers} norms and {quantised} quantisations in matmuls, {pairs} pairs, {gathered} attentions with gathers"
    );
    assert!(
        producers >= 200 && quantised >= 200 && pairs >= 50 && gathered >= 50,
        "only {producers} norms and {quantised} quantisations were part of matmuls, {pairs} pairs, {gathered} attentions with gathers"
    );
}

#[test]
fn open_graphs_agree_with_the_oracle_for_every_binding() {
    let backend = CpuBackend::new().with_threads(1).expect("a pool of one thread");
    let ran = Cell::new(0);
    for_random_graphs(6, 150, 1..=26, |seed, size| {
        let (graph, all) = random_symbolic_graph(seed, size);
        let mut exec = match compile(&graph, &backend, &CompileOptions::default()) {
            Ok(exec) => exec,
            Err(e) if e.kind() == ErrorKind::Unsupported => return Ok(()),
            Err(e) => return Err(format!("{e}\n{graph}")),
        };
        for bindings in &all {
            let dims = oracle::bind_dims(&graph, bindings).expect("the generator's bindings fit");
            let want = oracle(&graph, bindings);
            let got = run(&mut *exec, bindings, &dims).map_err(|e| format!("{e}\n{graph}"))?;
            if let Some(difference) = against_oracle_within(&want, &got, looser) {
                return Err(format!("{dims:?}: {difference}\n{graph}\n{}", exec.lir()));
            }
            let fixed = CompileOptions::default().dim_binding(dims.clone());
            let mut fixed = compile(&graph, &backend, &fixed).expect("it compiles open");
            let fixed = run(&mut *fixed, bindings, &dims).expect("it ran open");
            if let Some(difference) = against_oracle_within(&want, &fixed, looser) {
                return Err(format!("fixed to {dims:?}: {difference}\n{graph}"));
            }
            ran.set(ran.get() + 1);
        }
        Ok(())
    });
    assert!(ran.get() >= 150, "only {} bindings ran", ran.get());
}

/// All variants of a template live at once and share scratch; each runs after all others ran.
#[test]
fn variants_of_a_template_agree_with_the_oracle_and_with_the_open_module() {
    let backend = CpuBackend::new().with_threads(1).expect("a pool of one thread");
    let options = CompileOptions::default().with_shared_arena(true);
    let ran = Cell::new(0);
    for_random_graphs(7, 100, 1..=26, |seed, size| {
        let (graph, all) = random_symbolic_graph(seed, size);
        let pipeline = CompilePipeline::new(backend.target(&options).expect("a target"), options.clone());
        let template = match pipeline.compile(&graph) {
            Ok(template) => template,
            Err(e) if e.kind() == ErrorKind::Unsupported => return Ok(()),
            Err(e) => return Err(format!("{e}\n{graph}")),
        };
        let compiled = |lir: LirModule| backend.compile(Arc::new(lir), &options);
        let mut open = compiled(template.lir.clone()).map_err(|e| format!("{e}\n{graph}"))?;
        let mut variants = Vec::new();
        for bindings in &all {
            let dims = oracle::bind_dims(&graph, bindings).expect("the generator's bindings fit");
            let lir =
                pipeline.try_specialize(&template, &dims).map_err(|e| format!("{dims:?}: {e}\n{graph}"))?.lir;
            if !lir.symbols.is_empty() || lir.plan.is_none() || lir.steps.len() != template.lir.steps.len() {
                return Err(format!("{dims:?} left something open\n{lir}"));
            }
            let mut variant = compiled(lir).map_err(|e| format!("{e}\n{graph}"))?;
            run(&mut *variant, bindings, &dims).map_err(|e| format!("{dims:?}: {e}\n{graph}"))?;
            variants.push((variant, bindings, dims));
        }
        for (variant, bindings, dims) in &mut variants {
            let got = run_again(&mut **variant, bindings, dims).map_err(|e| format!("{e}\n{graph}"))?;
            let kept: Vec<&[u8]> = (0..got.len()).map(|i| variant.output(i).expect("it ran")).collect();
            let same = run(&mut *open, bindings, dims).map_err(|e| format!("{e}\n{graph}"))?;
            if kept != got {
                return Err(format!("{dims:?}: another run changed the outputs\n{graph}"));
            }
            let want = oracle(&graph, bindings);
            for (what, got) in [("variant", &got), ("open module", &same)] {
                if let Some(difference) = against_oracle_within(&want, got, looser) {
                    return Err(format!("{what} at {dims:?}: {difference}\n{graph}\n{}", variant.lir()));
                }
            }
            ran.set(ran.get() + 1);
        }
        Ok(())
    });
    assert!(ran.get() >= 100, "only {} variants ran", ran.get());
}

#[test]
fn donating_graphs_agree_with_the_oracle_and_update_where_they_can() {
    let backends = backends();
    let (ran, taken, copied) = (Cell::new(0), Cell::new(0), Cell::new(0));
    for_random_graphs(11, 1000, 1..=24, |seed, size| {
        let (graph, bindings) = random_donating_graph(seed, size);
        let want = oracle(&graph, &bindings);
        let mut all = Vec::new();
        // The best instruction set on one thread and on two.
        for (name, backend) in &backends[backends.len() - 2..] {
            let mut exec = match compile(&graph, backend, &CompileOptions::default()) {
                Ok(exec) => exec,
                Err(e) if e.kind() == ErrorKind::Unsupported => return Ok(()),
                Err(e) => return Err(format!("{name}: {e}\n{graph}")),
            };
            let lir = exec.lir().clone();
            for &output in graph.donations().keys() {
                let count = if lir.donated(output).is_some() { &taken } else { &copied };
                count.set(count.get() + 1);
            }
            let got = run(&mut *exec, &bindings, &DimBinding::new())
                .map_err(|e| format!("{name}: {e}\n{graph}"))?;
            if let Some(difference) = against_oracle_within(&want, &got, looser) {
                return Err(format!("{name}: {difference}\n{graph}\n{lir}"));
            }
            // What the caller gave is as it was.
            match run_again(&mut *exec, &bindings, &DimBinding::new()) {
                Ok(again) if again == got => all.push(got),
                _ => return Err(format!("{name}: a second run differs\n{graph}\n{lir}")),
            }
        }
        ran.set(ran.get() + 1);
        if all[0] == all[1] { Ok(()) } else { Err(format!("one thread and two differ\n{graph}")) }
    });
    let counts = (ran.get(), taken.get(), copied.get());
    assert!(counts.0 >= 800 && counts.1 >= 400 && counts.2 >= 200, "{counts:?} ran, updated, copied");
}

#[test]
fn decoders_with_caches_of_a_capacity_agree_with_the_oracle_at_every_length() {
    const CAPACITY: usize = 12;
    let backends = backends();
    let (ran, taken, all) = (Cell::new(0), Cell::new(0), Cell::new(0));
    for_random_graphs(23, 300, 1..=1, |seed, _| {
        let (graph, sizes) = random_decoder(seed);
        let bounded = caches::with_capacity(&graph, CAPACITY).map_err(|e| format!("{e}\n{graph}"))?;
        let graph = &bounded.graph;
        let mut results = Vec::new();
        // The best instruction set on one thread and on two, and the oldest one.
        for (name, backend) in [&backends[0], &backends[backends.len() - 2], &backends[backends.len() - 1]] {
            let wrong = |e: String| format!("{name}: {e}\n{graph}");
            let mut exec =
                compile(graph, backend, &CompileOptions::default()).map_err(|e| wrong(e.to_string()))?;
            let lir = exec.lir().clone();
            all.set(all.get() + bounded.caches.len());
            taken
                .set(taken.get() + bounded.caches.iter().filter(|c| lir.donated(c.output).is_some()).count());
            for (past, bindings) in &sizes {
                let mut given = lengthened(graph, bindings, seed);
                given.set_input(bounded.length.clone(), Value::int(DType::I64, &[], vec![*past as i128]));
                let dims = oracle::bind_dims(graph, &given).expect("the generator's bindings fit");
                let want = oracle(graph, &given);
                let got = run(&mut *exec, &given, &dims).map_err(|e| wrong(e.to_string()))?;
                if let Some(difference) = against_oracle_within(&want, &got, looser) {
                    return Err(wrong(format!("{past} past rows: {difference}\n{lir}")));
                }
                results.push(got);
            }
            // A new length is data: only the number of new rows was ever bound.
            if exec.binding_stats().bound > 1 {
                return Err(wrong(format!("{:?}", exec.binding_stats())));
            }
        }
        ran.set(ran.get() + 1);
        let (one, two) = (&results[sizes.len()..2 * sizes.len()], &results[2 * sizes.len()..]);
        if one == two { Ok(()) } else { Err(format!("one thread and two differ\n{graph}")) }
    });
    assert_eq!((ran.get(), taken.get()), (300, all.get()), "ran, updated in place");
}
