//! Steps with few rows and long sums as two dispatches: random matmuls with what is behind them, through the compiler and its fusion, on the interpreters,
//! against the oracle.

mod common;

use common::compiled::Compiled;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, Error, ErrorKind, Graph, Value, text};
use rlx_kernel::interp::{Binding, StepRun, dispatch};
use rlx_tile::schedule::{Bound, Division, PartLaunch, Tiling, step_in_parts, tilings};
use rlx_tile::{Arch, interp};

/// Random matmuls of each architecture; with `RLX_TEST_ALL` four times as many.
const CASES: u64 = 110;
const ARCHS: [Arch; 5] = [Arch::Sm75, Arch::Sm80, Arch::Gfx90a, Arch::Gfx1100, Arch::Gfx1200];

/// Parts of sizes that an interpreter has time for.
const DIVISION: Division = Division { units: 3, least_depth: 64, least_keys: 32 };

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

/// Runs a step in parts, where it is one of few rows and long sums, and says how many there were.
fn in_parts(run: &mut StepRun<'_, '_>, arch: Arch, tiling: Option<&Tiling>) -> rlx_ir::Result<Option<i64>> {
    let desc = run.desc().map_err(|why| Error::new(ErrorKind::Internal, why.to_string()))?;
    let Ok(Some(launch)) = step_in_parts(arch, &desc, tiling, &DIVISION) else { return Ok(None) };
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

fn dtypes(arch: Arch) -> &'static [DType] {
    if arch == Arch::Sm75 { &[DType::F16] } else { &[DType::F16, DType::BF16] }
}

/// A matmul of few rows and a long depth: batched or not, with transposed operands, and what may be behind it.
fn long_matmul(g: &mut Gen, dtype: DType) -> Graph {
    let (m, n, k) = (g.size(1..=16), g.size(1..=90), g.size(128..=420));
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

#[test]
fn random_long_matmuls_of_few_rows_agree_with_the_oracle() {
    let cases = if std::env::var_os("RLX_TEST_ALL").is_some() { 4 * CASES } else { CASES };
    for arch in ARCHS {
        let mut counts = Vec::new();
        for seed in 0..cases {
            let mut g = Gen::new(7000 + seed);
            let dtype = g.pick(dtypes(arch));
            let compiled = Compiled::new(long_matmul(&mut g, dtype), seed, -0.3..0.3);
            let (results, found) = compiled.run(arch, None);
            compiled.check(&results, arch);
            assert_eq!(found.len(), 1, "{} seed {seed}\n{}", arch.name(), compiled.graph);
            counts.extend(found);
        }
        let of = |n: i64| counts.iter().filter(|&&count| count == n).count();
        assert!(of(1) == 0 && of(2) > 0 && of(4) > 0, "{}: {counts:?}", arch.name());
    }
}

#[test]
fn all_tilings_of_an_architecture_give_the_same_bits() {
    for arch in ARCHS {
        for seed in 0..4 {
            let compiled = Compiled::new(long_matmul(&mut Gen::new(seed), DType::F16), seed, -0.3..0.3);
            let (want, count) = compiled.run(arch, None);
            for tiling in tilings(arch) {
                let (got, counts) = compiled.run(arch, Some(&tiling));
                assert_eq!(counts, count, "{} {}", arch.name(), tiling.name());
                let bits = |values: &[Value]| values.iter().map(Value::encode).collect::<Vec<_>>();
                assert_eq!(bits(&got), bits(&want), "{} {}", arch.name(), tiling.name());
            }
        }
    }
}
