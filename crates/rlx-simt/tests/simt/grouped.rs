//! Rows that each choose a matrix (the experts of a mixture) on the fake driver's GPUs: a kernel makes lists of the rows of each group, a tile program looks rows up in them,
//! and where there is no program the op is decomposed.

use std::sync::Arc;

use rlx_backend::testing::{disagreement, run};
use rlx_backend::{Backend, CompileCache, ExecutableGraph};
use rlx_driver::Device;
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, ErrorKind, Graph, LirModule, Op, Value, text};
use rlx_opt::CompileOptions;
use rlx_simt::SimtBackend;

use crate::common::{Fake, everything, fake, second_gpu, set_params};
use crate::parts::{fast, strict};
use crate::tiles::{MODELS, module, schedules, tiled};

/// Experts of a mixture: each of two projections with an activation between, of tokens that choose two each.
pub fn mixture(tokens: &str, dtype: DType, [experts, k, hidden]: [usize; 3]) -> Graph {
    let body = format!(
        "%0 = Input {{name=\"x\"}} : [{tokens}, 1, {k}] {dtype} %1 = Input {{name=\"chosen\"}} : [{tokens}, 2] i64 \
         %2 = Param {{name=\"up\"}} : [{experts}, {k}, {hidden}] {dtype} %3 = Param {{name=\"down\"}} : [{experts}, {hidden}, {k}] {dtype} \
         %4 = GroupedMatMul(%0, %2, %1) : [{tokens}, 2, {hidden}] {dtype} %5 = Activation.Silu(%4) : [{tokens}, 2, {hidden}] {dtype} \
         %6 = GroupedMatMul(%5, %3, %1) : [{tokens}, 2, {k}] {dtype} return %6"
    );
    text::parse(&format!("graph \"mixture\" {{ {body} }}")).unwrap_or_else(|e| panic!("{e}\n{body}"))
}

/// Values for so many tokens, whose choices are among so many of the last experts.
pub fn values(
    g: &mut Gen,
    dtype: DType,
    tokens: usize,
    [experts, k, hidden]: [usize; 3],
    few: usize,
) -> Bindings {
    let mut values = Bindings::default();
    values.set_input("x", g.value(dtype, &[tokens, 1, k], -1.0..1.0));
    let chosen = (0..2 * tokens).map(|_| experts as i128 - 1 - i128::from(g.int(0..=few as i64 - 1)));
    values.set_input("chosen", Value::int(DType::I64, &[tokens, 2], chosen.collect()));
    values.set_param("up", g.value(dtype, &[experts, k, hidden], -0.3..0.3));
    values.set_param("down", g.value(dtype, &[experts, hidden, k], -0.3..0.3));
    values
}

fn grouped(lir: &LirModule) -> usize {
    lir.steps.iter().filter(|step| lir.graph.node(step.node).op == Op::GroupedMatMul).count()
}

fn compiled(
    graph: &Graph,
    backend: &SimtBackend,
    values: &Bindings,
) -> (Arc<LirModule>, Box<dyn ExecutableGraph>) {
    let lir = module(graph, backend, &strict());
    let mut exec = backend.compile(Arc::clone(&lir), &strict()).unwrap_or_else(|e| panic!("{e}\n{graph}"));
    set_params(&mut *exec, values).unwrap();
    (lir, exec)
}

#[test]
fn experts_of_a_mixture_are_tile_programs_where_there_are_units() {
    let _alone = second_gpu();
    for (device, ordinal, arch, brain) in MODELS {
        let backend = fake(device, ordinal);
        for seed in 0..if everything() { 20 } else { 2 } {
            let mut g = Gen::new(seed + 50 * ordinal as u64);
            let dtype = g.pick(&[DType::F16, DType::BF16]);
            let sizes = [g.size(1..=6), g.size(1..=40), 8 * g.size(1..=6)];
            let (tokens, few) = (g.size(1..=20), g.size(1..=sizes[0]));
            let graph = mixture(&tokens.to_string(), dtype, sizes);
            let values = values(&mut g, dtype, tokens, sizes, few);
            let (lir, mut exec) = compiled(&graph, &backend, &values);
            let by_programs = arch.is_some() && (brain || dtype == DType::F16);
            let of_lir = (grouped(&lir), tiled(&schedules(&lir, &backend, &strict())));
            assert!(
                of_lir == (2, 2) || !by_programs && of_lir.0 == 0,
                "{device} {ordinal}: {of_lir:?}\n{lir}"
            );
            let before = Fake::get().tile_runs();
            for round in 0..3 {
                if let Some(why) = disagreement(&graph, &values, &mut *exec) {
                    panic!("{device} {ordinal} seed {seed} run {round}: {why}\n{graph}");
                }
            }
            assert_eq!(Fake::get().tile_runs() - before, 3 * of_lir.1, "{device} {ordinal}");
        }
    }
}

/// Where tokens are open, those of a run choose the tile, and each row has the same bits in all runs, under fast numerics as well.
#[test]
fn rows_of_a_run_choose_the_tile_and_no_bits() {
    let _alone = second_gpu();
    let sizes = [3, 32, 40];
    for (device, ordinal) in [(Device::Cuda, 1), (Device::Rocm, 1)] {
        let backend = fake(device, ordinal);
        let graph = mixture("seq", DType::F16, sizes);
        let all = values(&mut Gen::new(8), DType::F16, 100, sizes, 3);
        for options in [strict(), fast()] {
            let lir = module(&graph, &backend, &options);
            let mut exec = backend.compile(lir, &options).unwrap();
            set_params(&mut *exec, &all).unwrap();
            let mut rows = |from: usize, to: usize| {
                let part = |value: &Value, each: usize| match value.dtype {
                    DType::F16 => {
                        let elements = value.to_f64()[from * each..to * each].to_vec();
                        Value::float(DType::F16, &[to - from, 1, each], elements)
                    }
                    _ => {
                        let numbers = value.ints().unwrap()[from * each..to * each].to_vec();
                        Value::int(DType::I64, &[to - from, each], numbers)
                    }
                };
                let mut some = Bindings::default();
                some.set_input("x", part(all.input("x").unwrap(), sizes[1]));
                some.set_input("chosen", part(all.input("chosen").unwrap(), 2));
                let result = run(&mut *exec, &some).unwrap().remove(0);
                result.chunks(2 * 2 * sizes[1]).map(<[u8]>::to_vec).collect::<Vec<_>>()
            };
            let want = rows(0, 100);
            for (from, to) in [(0, 1), (3, 5), (20, 60), (98, 100)] {
                assert_eq!(rows(from, to), want[from..to], "{device} {ordinal} {from}..{to}");
            }
        }
    }
}

#[test]
fn an_expert_that_is_not_there_is_an_error() {
    let _alone = second_gpu();
    let sizes = [4, 16, 24];
    let graph = mixture("3", DType::F16, sizes);
    for (device, ordinal) in [(Device::Cuda, 0), (Device::Cuda, 1), (Device::Rocm, 0)] {
        let backend = fake(device, ordinal);
        let mut values = values(&mut Gen::new(1), DType::F16, 3, sizes, 4);
        let (_, mut exec) = compiled(&graph, &backend, &values);
        for bad in [4, -5, 9_999] {
            values.set_input("chosen", Value::int(DType::I64, &[3, 2], vec![0, 1, 2, 3, bad, 0]));
            let error = run(&mut *exec, &values).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Value, "{error}");
            assert!(error.to_string().contains(&bad.to_string()), "{error}");
        }
        values.set_input("chosen", Value::int(DType::I64, &[3, 2], vec![0, 1, 2, 3, -4, -1]));
        assert_eq!(disagreement(&graph, &values, &mut *exec), None, "the next run");
    }
}

/// What is known before all runs has no scratch memory, so it is decomposed.
#[test]
fn experts_of_weights_alone_are_decomposed() {
    let _alone = second_gpu();
    let body = "%0 = Param {name=\"x\"} : [5, 16] f16 %1 = Param {name=\"w\"} : [3, 16, 8] f16 %2 = Param {name=\"chosen\"} : [5] i64 \
                %3 = GroupedMatMul(%0, %1, %2) : [5, 8] f16 %4 = Input {name=\"y\"} : [5, 8] f16 %5 = Binary.Add(%3, %4) : [5, 8] f16 return %5";
    let graph = text::parse(&format!("graph \"g\" {{ {body} }}")).unwrap();
    let (backend, mut g, mut values) = (fake(Device::Cuda, 1), Gen::new(2), Bindings::default());
    values.set_param("x", g.value(DType::F16, &[5, 16], -1.0..1.0));
    values.set_param("w", g.value(DType::F16, &[3, 16, 8], -1.0..1.0));
    values.set_param("chosen", Value::int(DType::I64, &[5], vec![0, 2, 1, -1, 0]));
    values.set_input("y", g.value(DType::F16, &[5, 8], -1.0..1.0));
    let (lir, mut exec) = compiled(&graph, &backend, &values);
    assert_eq!(grouped(&lir), 0, "{lir}");
    assert_eq!(disagreement(&graph, &values, &mut *exec), None);
}

/// Programs with lists come back from bytes, and do the same.
#[test]
fn stored_programs_with_lists_give_the_same_bits() {
    let _alone = second_gpu();
    let sizes = [4, 24, 40];
    for (tokens, rows) in [("7", 7), ("seq", 33)] {
        let graph = mixture(tokens, DType::F16, sizes);
        let values = values(&mut Gen::new(5), DType::F16, rows, sizes, 2);
        let backend = fake(Device::Cuda, 1);
        let (lir, mut own) = compiled(&graph, &backend, &values);
        let want = run(&mut *own, &values).unwrap();
        let cache = CompileCache { code: own.code().unwrap(), ..CompileCache::default() };
        let mut again = backend.compile_cached(lir, &CompileOptions::default(), &cache).unwrap();
        set_params(&mut *again, &values).unwrap();
        assert!(run(&mut *again, &values).unwrap() == want);
        assert_eq!(again.code().unwrap(), cache.code);
    }
}
