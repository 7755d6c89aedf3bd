//! Results of 35 MB, more than most last-level caches hold, past which elementwise ops and running sums store them then: against the oracle, with the same bits on any number of
//! threads.

mod common;

use common::{against_oracle, compile, oracle, run};
use rlx_cpu::CpuBackend;
use rlx_ir::op::{Activation, BinaryOp, ReduceOp};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, DimBinding, Graph, NodeId, Op};
use rlx_opt::CompileOptions;

/// A graph and its inputs.
struct Case {
    graph: Graph,
    bindings: Bindings,
}

impl Case {
    fn new() -> Case {
        Case { graph: Graph::new("large"), bindings: Bindings::default() }
    }

    fn input(&mut self, g: &mut Gen, dtype: DType, dims: &[usize]) -> NodeId {
        let name = format!("x{}", self.graph.len());
        let value = g.value(dtype, dims, -2.0..2.0);
        let id = self.graph.input(&name, value.shape());
        self.bindings.set_input(name, value);
        id
    }

    fn add(&mut self, op: Op, inputs: &[NodeId]) -> NodeId {
        self.graph.try_add(op, inputs).unwrap()
    }

    fn check(mut self, results: &[NodeId]) {
        self.graph.set_outputs(results.to_vec());
        let want = oracle(&self.graph, &self.bindings);
        let mut bits = None;
        for threads in 1..=3 {
            let backend = CpuBackend::new().with_threads(threads).expect("a pool");
            let mut exec = compile(&self.graph, &backend, &CompileOptions::default()).unwrap();
            let got = run(&mut *exec, &self.bindings, &DimBinding::new()).unwrap();
            if let Some(difference) = against_oracle(&want, &got) {
                panic!("{threads} threads: {difference}\n{}", self.graph);
            }
            let same = bits.get_or_insert_with(|| got.clone()) == &got;
            assert!(same, "other bits on {threads} threads\n{}", self.graph);
        }
    }
}

/// One instruction, of rows that begin anywhere in a line of memory.
#[test]
fn rows_store_all_elements() {
    let g = &mut Gen::new(96);
    let mut case = Case::new();
    let (x, column) = (case.input(g, DType::F32, &[8300, 1057]), case.input(g, DType::F32, &[8300, 1]));
    let y = case.add(Op::Binary(BinaryOp::Add), &[x, column]);
    case.check(&[y]);
}

/// Two results, one of which is a function of what the other one is not.
#[test]
fn regions_store_all_elements() {
    let g = &mut Gen::new(97);
    let mut case = Case::new();
    let (x, row) = (case.input(g, DType::F32, &[1999, 2203]), case.input(g, DType::F32, &[2203]));
    let product = case.add(Op::Binary(BinaryOp::Mul), &[x, row]);
    let difference = case.add(Op::Binary(BinaryOp::Sub), &[x, row]);
    let gate = case.add(Op::Activation(Activation::Sigmoid), &[difference]);
    case.check(&[product, gate]);
}

/// A result that a later instruction reads stays in the caches.
#[test]
fn results_that_are_read_are_there() {
    let g = &mut Gen::new(98);
    let mut case = Case::new();
    let (x, row) = (case.input(g, DType::BF16, &[1999, 2203]), case.input(g, DType::F32, &[2203]));
    let x = case.add(Op::Cast { to: DType::F32 }, &[x]);
    let sum = case.add(Op::Binary(BinaryOp::Add), &[x, row]);
    let root = case.add(Op::Activation(Activation::Exp), &[sum]);
    case.check(&[sum, root]);
}

/// Along the first axis, of rows that are whole lines of memory and of others.
#[test]
fn running_sums_store_all_elements() {
    let g = &mut Gen::new(99);
    for (columns, reverse, exclusive) in [(2208, false, false), (2208, true, true), (2205, false, true)] {
        let mut case = Case::new();
        let x = case.input(g, DType::F32, &[3990, columns]);
        let y = case.add(Op::Cumulative { op: ReduceOp::Sum, axis: 0, exclusive, reverse }, &[x]);
        case.check(&[y]);
    }
}

/// One thread has enough rows to fetch those behind meanwhile, and three do not.
#[test]
fn norms_fetch_no_other_bits() {
    let g = &mut Gen::new(100);
    for op in [Op::LayerNorm { axis: -1, eps: 1e-5 }, Op::RmsNorm { axis: -1, eps: 1e-5 }] {
        let mut case = Case::new();
        let (x, scale) = (case.input(g, DType::F32, &[7001, 301]), case.input(g, DType::F32, &[301]));
        let y = case.add(op, &[x, scale]);
        case.check(&[y]);
    }
}
