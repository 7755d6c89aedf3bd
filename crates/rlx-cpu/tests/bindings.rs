//! What new dimensions cost: an executable keeps its last bindings, and binds only what differs.

mod common;

use common::compile;
use rlx_backend::ExecutableGraph;
use rlx_backend::executor::BINDINGS;
use rlx_cpu::CpuBackend;
use rlx_ir::op::{Activation, BinaryOp};
use rlx_ir::{DType, Dim, Graph, Op, Shape, sym};
use rlx_opt::CompileOptions;

/// Two values that depend on one symbol each, two steps for each: of `batch`, and of `seq`.
fn apart() -> Graph {
    let mut g = Graph::new("apart");
    let (batch, seq) = (Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ));
    let x = g.input("x", Shape::from_dims(&[batch, Dim::Static(16)], DType::F32));
    let y = g.input("y", Shape::from_dims(&[seq, Dim::Static(16)], DType::F32));
    let mut outputs = Vec::new();
    for value in [x, y] {
        let add = |g: &mut Graph, op: Op, inputs: &[_]| g.try_add(op, inputs).expect("a valid op");
        let soft = add(&mut g, Op::Softmax { axis: -1 }, &[value]);
        let normed = add(&mut g, Op::Softmax { axis: 0 }, &[soft]);
        outputs.push(normed);
    }
    g.set_outputs(outputs);
    g
}

/// One value that depends on both.
fn together() -> Graph {
    let mut g = Graph::new("together");
    let dims = [Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ), Dim::Static(16)];
    let x = g.input("x", Shape::from_dims(&dims, DType::F32));
    let add = |g: &mut Graph, op: Op, inputs: &[_]| g.try_add(op, inputs).expect("a valid op");
    let t = add(&mut g, Op::Transpose { perm: vec![0, 2, 1] }, &[x]);
    let s = add(&mut g, Op::MatMul, &[x, t]);
    let s = add(&mut g, Op::Softmax { axis: -1 }, &[s]);
    let y = add(&mut g, Op::MatMul, &[s, x]);
    let y = add(&mut g, Op::Activation(Activation::Gelu), &[y]);
    let y = add(&mut g, Op::Binary(BinaryOp::Add), &[y, x]);
    g.set_outputs(vec![y]);
    g
}

fn executable(graph: &Graph) -> Box<dyn ExecutableGraph> {
    let backend = CpuBackend::new().with_threads(1).expect("a pool");
    compile(graph, &backend, &CompileOptions::default()).expect("it compiles")
}

/// Some numbers, the same for the same length.
fn values(count: i64) -> Vec<u8> {
    (0..count).flat_map(|i| ((i * 7 % 31) as f32 * 0.1 - 1.5).to_le_bytes()).collect()
}

fn run(exec: &mut dyn ExecutableGraph, dims: [i64; 2]) -> Vec<u8> {
    exec.run(&&[values(dims[0] * dims[1] * 16)][..], &dims).expect("it runs");
    exec.output(0).expect("it ran").to_vec()
}

#[test]
fn dimensions_that_change_back_and_forth_are_planned_and_bound_once() {
    let mut exec = executable(&together());
    let sizes = [[4, 30], [2, 7], [3, 30], [1, 1]];
    let want = sizes.map(|dims| run(&mut *exec, dims));
    let before = exec.binding_stats();
    assert_eq!((before.kept, before.bound), (4, 4));
    for round in 0..20 {
        for at in [0, 1, 0, 2, 3, 1] {
            assert!(run(&mut *exec, sizes[at]) == want[at], "round {round}, {:?}", sizes[at]);
        }
    }
    assert_eq!(exec.binding_stats(), before, "nothing was planned or bound again");
}

#[test]
fn a_new_dimension_binds_the_steps_that_mention_it() {
    let mut exec = executable(&apart());
    let mut run = |batch: i64, seq: i64| {
        let inputs = [values(batch * 16), values(seq * 16)];
        exec.run(&&inputs[..], &[batch, seq]).expect("it runs");
        let outputs = [0, 1].map(|i| exec.output(i).expect("it ran").to_vec());
        (exec.binding_stats().steps, outputs)
    };
    let (all, _) = run(5, 9);
    assert_eq!(all, exec_steps(&apart()), "every step is bound at first");
    let (after_seq, seq) = run(5, 8);
    assert_eq!(after_seq - all, all / 2, "half of the steps mention seq");
    let (after_batch, both) = run(4, 8);
    assert_eq!(after_batch - after_seq, all / 2, "half of them mention batch");
    assert_eq!(seq[1], both[1], "what did not change gives the same bits");
    assert_eq!(run(5, 9).0, after_batch, "the first binding is still there");
}

fn exec_steps(graph: &Graph) -> u64 {
    executable(graph).lir().steps.len() as u64
}

#[test]
fn the_oldest_binding_goes_and_every_size_gives_the_bits_of_a_fresh_executable() {
    let mut exec = executable(&together());
    let sizes: Vec<[i64; 2]> = (1..=BINDINGS as i64 + 3).map(|n| [n % 3 + 1, n]).collect();
    for round in 0..3 {
        for &dims in &sizes {
            let fresh = run(&mut *executable(&together()), dims);
            assert!(run(&mut *exec, dims) == fresh, "round {round}, {dims:?}");
            assert!(exec.binding_stats().kept <= BINDINGS);
        }
    }
    let before = exec.binding_stats();
    assert_eq!(before.kept, BINDINGS);
    let last = sizes[sizes.len() - BINDINGS..].to_vec();
    last.iter().for_each(|&dims| _ = run(&mut *exec, dims));
    assert_eq!(exec.binding_stats().bound, before.bound, "the last {BINDINGS} are kept");
    run(&mut *exec, sizes[0]);
    assert_eq!(exec.binding_stats().bound, before.bound + 1, "the oldest is not");
}

#[test]
fn larger_dimensions_are_planned_once_and_smaller_bindings_stay_right() {
    let mut exec = executable(&together());
    let small = run(&mut *exec, [1, 3]);
    let planned = exec.binding_stats().planned;
    let large = run(&mut *exec, [9, 70]);
    assert_eq!(exec.binding_stats().planned, planned + 1);
    for _ in 0..3 {
        assert!(run(&mut *exec, [1, 3]) == small);
        assert!(run(&mut *exec, [9, 70]) == large);
    }
    let after = exec.binding_stats();
    assert_eq!((after.planned, after.bound), (planned + 1, 2));
}

#[test]
fn dimensions_that_are_rejected_leave_the_bindings_as_they_were() {
    let mut exec = executable(&together());
    let want = run(&mut *exec, [2, 5]);
    let before = exec.binding_stats();
    assert!(exec.run(&&[values(16)][..], &[0, i64::MAX]).is_err());
    assert!(run(&mut *exec, [2, 5]) == want);
    assert_eq!(exec.binding_stats().bound, before.bound);
}
