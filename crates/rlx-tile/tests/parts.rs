//! Steps with small results and long sums as two dispatches: random matmuls, by weights in blocks, too, and random convolutions, with what is behind them, through
//! the compiler and its fusion, on the interpreters, against the oracle.

mod common;

use common::compiled::{ARCHS, Compiled, dtypes};
use common::prologue_graphs::{random_blocks, values};
use rlx_ir::oracle;
use rlx_ir::testing::{Gen, random_bindings, random_conv};
use rlx_ir::{DType, DimBinding, Error, ErrorKind, Graph, Node, Op, Value, text};
use rlx_kernel::interp::{Binding, StepRun, dispatch};
use rlx_opt::CompileOptions;
use rlx_tile::schedule::{Bound, Division, PartLaunch, Tiling, computed_tilings, step_in_parts, tilings};
use rlx_tile::{Arch, interp};

/// Random steps of each kind and architecture that are divided; with `RLX_TEST_ALL` four times as many.
const CASES: usize = 110;

/// Parts of sizes that an interpreter has time for.
const DIVISION: Division = Division { units: 16, least_depth: 32, least_keys: 32 };

impl Compiled {
    /// The results, and the number of parts of each step that was divided.
    fn run(&self, arch: Arch, tiling: Option<&Tiling>) -> (Vec<Value>, Vec<i64>) {
        let mut counts = Vec::new();
        let results = self.executable.run_with(&self.values, &mut |run| {
            let count = in_parts(run, arch, tiling)?;
            counts.extend(count);
            Ok(count.is_some())
        });
        (results.unwrap_or_else(|e| panic!("{}: {e}\n{}", arch.name(), self.graph)), counts)
    }
}

/// What a dispatch is given for this run: uniforms and memory.
fn given<P>(
    run: &StepRun<'_, '_>,
    launch: &PartLaunch<P>,
    scratch: Binding,
) -> rlx_ir::Result<(Vec<i32>, Vec<Binding>)> {
    let of = |bound: &Bound| match *bound {
        Bound::Operand(arg) => run.bindings(&[arg])[0],
        Bound::Scratch => scratch,
    };
    Ok((run.uniforms(&launch.uniforms)?, launch.bindings.iter().map(of).collect()))
}

/// Runs a step in parts, where it is one of a small result and long sums, and says how many there were.
fn in_parts(run: &mut StepRun<'_, '_>, arch: Arch, tiling: Option<&Tiling>) -> rlx_ir::Result<Option<i64>> {
    let desc = run.desc().map_err(|why| Error::new(ErrorKind::Internal, why.to_string()))?;
    let all = step_in_parts(arch, &desc, tiling, &DIVISION).unwrap_or_default();
    let Some(launch) = all.into_iter().find(|launch| launch.most_rows.is_none()) else { return Ok(None) };
    let (count, elements) = (run.number(launch.count)?, run.number(launch.scratch)?);
    // What nobody wrote is NaN.
    let pool = run.pools().0.len();
    run.pools().0.push(vec![0xFF; 4 * elements as usize]);
    let scratch = Binding { pool, offset: 0, len: 4 * elements as usize };

    rlx_tile::render::source(&launch.parts.code, "k")?;
    let (uniforms, bindings) = given(run, &launch.parts, scratch)?;
    let groups = run.number(launch.parts.groups)?;
    assert_eq!(u64::try_from(groups), Ok(interp::workgroups(&launch.parts.code, &uniforms)), "workgroups");
    interp::run(&launch.parts.code, &uniforms, run.pools(), &bindings)?;

    let (uniforms, bindings) = given(run, &launch.join, scratch)?;
    let groups = run.number(launch.join.groups)?;
    assert_eq!(dispatch(&launch.join.code, groups, &uniforms, &bindings, run.pools())?, None);
    Ok(Some(count))
}

/// A matmul of few rows, or not quite as few, and a long depth: batched or not, with transposed operands, and what may be behind it.
fn long_matmul(g: &mut Gen, dtype: DType) -> Graph {
    let m = if g.chance(0.7) { g.size(1..=16) } else { g.size(17..=90) };
    let (n, k) = (g.size(1..=90), g.size(128..=420));
    let (m, n, k) =
        (m, if g.chance(0.5) { n.next_multiple_of(8) } else { n }, if g.chance(0.6) { k / 8 * 8 } else { k });
    let batch = if g.chance(0.4) { g.size(2..=3).to_string() + ", " } else { String::new() };
    let own = if g.chance(0.5) { batch.clone() } else { String::new() };
    let (mut lines, mut names) = (Vec::new(), 0);
    let mut push = |line: String| {
        lines.push(format!("  %{names} = {line}"));
        names += 1;
        names - 1
    };
    let perm = |batch: &str| if batch.is_empty() { "1, 0" } else { "0, 2, 1" };
    let mut operand = |g: &mut Gen, name: &str, batch: &str, rows: usize, cols: usize| {
        if g.chance(0.7) {
            return push(format!("Input {{name=\"{name}\"}} : [{batch}{rows}, {cols}] {dtype}"));
        }
        let of = push(format!("Input {{name=\"{name}\"}} : [{batch}{cols}, {rows}] {dtype}"));
        push(format!("Transpose(%{of}) {{perm=[{}]}} : [{batch}{rows}, {cols}] {dtype}", perm(batch)))
    };
    let (a, b) = (operand(g, "a", &batch, m, k), operand(g, "b", &own, k, n));
    let shape = format!("[{batch}{m}, {n}] {dtype}");
    let mut last = push(format!("MatMul(%{a}, %{b}) : {shape}"));
    if g.chance(0.5) {
        let bias = push(format!("Input {{name=\"bias\"}} : [{n}] {dtype}"));
        last = push(format!("Binary.Add(%{last}, %{bias}) : {shape}"));
    }
    if g.chance(0.4) {
        last = push(format!("Activation.{}(%{last}) : {shape}", g.pick(&["Relu", "Gelu", "Silu"])));
    }
    if g.chance(0.3) {
        let residual = push(format!("Input {{name=\"residual\"}} : {shape}"));
        last = push(format!("Binary.Add(%{last}, %{residual}) : {shape}"));
    }
    let text = format!("graph \"long\" {{\n{}\n  return %{last}\n}}", lines.join("\n"));
    text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Random graphs until so many were divided: sums of less than two parts are whole, and left out.
fn random_steps(of: fn(&mut Gen, DType, u64) -> Compiled, counts: &[i64]) {
    let cases = if std::env::var_os("RLX_TEST_ALL").is_some() { 4 * CASES } else { CASES };
    for arch in ARCHS {
        let mut found = Vec::new();
        for seed in (7000..).take(4 * cases) {
            let mut g = Gen::new(seed);
            let dtype = g.pick(dtypes(arch));
            let compiled = of(&mut g, dtype, seed);
            let (results, counts) = compiled.run(arch, None);
            if !counts.is_empty() {
                compiled.check_to(&results, arch, |_| dtype);
            }
            assert!(counts.len() <= 1, "{} seed {seed}\n{}", arch.name(), compiled.graph);
            found.extend(counts);
            if found.len() == cases {
                break;
            }
        }
        assert_eq!(found.len(), cases, "{}", arch.name());
        let has = |n: &i64| found.contains(n);
        assert!(!has(&1) && counts.iter().all(has), "{}: {found:?}", arch.name());
    }
}

fn of_matmul(g: &mut Gen, dtype: DType, seed: u64) -> Compiled {
    Compiled::new(long_matmul(g, dtype), seed, -0.3..0.3)
}

fn of_blocks(g: &mut Gen, dtype: DType, seed: u64) -> Compiled {
    let graph = random_blocks(g, dtype);
    let values = values(&graph, &mut Gen::new(seed));
    oracle::bind_dims(&graph, &values).unwrap();
    Compiled::of(graph, values, CompileOptions::default())
}

/// A convolution of a depth that has several parts.
fn of_conv(g: &mut Gen, dtype: DType, seed: u64) -> Compiled {
    let depth = |graph: &Graph| {
        let of =
            |node: &Node| graph.shape(node.inputs[1]).static_dims().map(|dims| dims[1..].iter().product());
        graph.nodes().iter().find(|node| matches!(node.op, Op::Conv { .. })).and_then(of).unwrap_or(0usize)
    };
    let graph = loop {
        let graph = random_conv(g, dtype);
        if depth(&graph) > 64 {
            break graph;
        }
    };
    let values = random_bindings(&graph, &DimBinding::new(), seed);
    oracle::bind_dims(&graph, &values).unwrap();
    Compiled::of(graph, values, CompileOptions::default())
}

#[test]
fn random_long_matmuls_agree_with_the_oracle() {
    random_steps(of_matmul, &[2, 4, 6]);
}

#[test]
fn random_long_matmuls_by_blocks_agree_with_the_oracle() {
    random_steps(of_blocks, &[2, 3]);
}

#[test]
fn random_long_convolutions_agree_with_the_oracle() {
    random_steps(of_conv, &[2, 3]);
}

#[test]
fn all_tilings_of_an_architecture_give_the_same_bits() {
    let kinds =
        [(of_matmul as fn(&mut Gen, DType, u64) -> Compiled, false), (of_blocks, true), (of_conv, false)];
    for (arch, (of, computed)) in ARCHS.into_iter().flat_map(|arch| kinds.map(|kind| (arch, kind))) {
        let mut cases = 0;
        for seed in 0..16 {
            let compiled = of(&mut Gen::new(seed), DType::F16, seed);
            let (want, count) = compiled.run(arch, None);
            if count.is_empty() || cases == 3 {
                continue;
            }
            cases += 1;
            for tiling in if computed { computed_tilings(arch) } else { tilings(arch) } {
                let (got, counts) = compiled.run(arch, Some(&tiling));
                assert_eq!(counts, count, "{} {}", arch.name(), tiling.name());
                let bits = |values: &[Value]| values.iter().map(Value::encode).collect::<Vec<_>>();
                assert_eq!(bits(&got), bits(&want), "{} {}", arch.name(), tiling.name());
            }
        }
        assert_eq!(cases, 3, "{}", arch.name());
    }
}
