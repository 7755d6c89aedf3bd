//! Whatever safe code hands to the backend — modules, inputs, parameters, handles — is an error or runs: kernels never
//! see a view that leaves its buffer, or memory smaller than what it is taken for.

mod common;

use std::sync::Arc;

use common::{compile, run};
use rlx_backend::Backend;
use rlx_backend::testing::{self, consistent};
use rlx_cpu::CpuBackend;
use rlx_ir::lir::{BufferId, BufferKind, LirModule, Operand, Step, StepKind, View};
use rlx_ir::op::{Activation, PackFormat};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, Dim, DimBinding, ErrorKind, Extent, Graph, Op, Shape, sym};
use rlx_opt::CompileOptions;

fn backend() -> CpuBackend {
    CpuBackend::new().with_threads(1).unwrap()
}

fn lir_of(graph: &Graph) -> LirModule {
    testing::lir_of(graph, &backend()).unwrap()
}

#[test]
fn damaged_modules_are_errors_or_run() {
    let found = testing::damaged_modules(&backend(), 0..60, 60);
    println!("{found:?}");
    assert!(
        found.ran > 20 && found.rejected["invalid graph"] > 1000 && found.rejected.len() > 2,
        "{found:?}"
    );
    assert!(!found.rejected.contains_key("internal"), "{found:?}");
}

#[test]
fn inputs_and_handles_of_another_size_are_binding_errors() {
    testing::rejects_inputs_of_another_size(&backend());
}

#[test]
fn parameters_of_another_size_or_type_are_binding_errors() {
    testing::rejects_parameters_of_another_size(&backend());
}

fn f32s(dims: &[usize]) -> Shape {
    Shape::new(dims, DType::F32)
}

/// `relu(x)` of 4×4, and a copy of something else to the output.
fn with_copy(offset: [i64; 2], dims: &[i64], strides: [&[i64]; 2]) -> LirModule {
    let mut graph = Graph::new("g");
    let x = graph.input("x", f32s(&[4, 4]));
    let y = graph.try_add(Op::Activation(Activation::Relu), &[x]).unwrap();
    graph.set_outputs(vec![y]);
    let mut lir = lir_of(&graph);
    let list = |n: &[i64]| n.iter().map(|&n| Extent::Const(n)).collect::<Arc<[_]>>();
    let operand = |buffer: u32, side: usize| Operand {
        buffer: BufferId(buffer),
        view: View { offset: Extent::Const(offset[side]), dims: list(dims), strides: list(strides[side]) }
            .into(),
        dtype: DType::F32,
    };
    let node = lir.steps[0].node;
    let (from, to) = (lir.inputs[0].operand.buffer.0, lir.outputs[0].operand.buffer.0);
    lir.steps.push(Step {
        kind: StepKind::Copy,
        inputs: vec![operand(from, 0)],
        outputs: vec![operand(to, 1)],
        node,
    });
    consistent(lir).expect("buffers that are there")
}

/// Views that were read and written out of bounds: their sizes wrapped around.
#[test]
fn views_whose_places_wrap_around_are_rejected_before_anything_runs() {
    let (max, big) = (i64::MAX, 1i64 << 62);
    let odd = [8719555307571303797, 8136607384251256691, 7525749931694064060, 4];
    type Case<'a> = ([i64; 2], &'a [i64], [&'a [i64]; 2]);
    let cases: [Case<'_>; 7] = [
        ([0, 0], &odd, [&[max, max, big + 1024, 1], &[max, max, big + 4, 1]]),
        ([0, 0], &odd, [&[max, max, big + 4, 1], &[max, max, big + (1 << 24), 1]]),
        ([0, 0], &[max - 1, max - 1, 2], [&[0, 0, 1], &[0, 0, 1]]),
        ([0, 0], &[2, max - 1, max - 1, max - 1, 2], [&[max; 5], &[max; 5]]),
        // Four bytes each: the offset is a small one in bytes.
        ([big + 1, 0], &[1], [&[1], &[1]]),
        ([0, 0], &[1 << 33, 1 << 31], [&[0, 0], &[0, 0]]),
        ([-1, 0], &[4], [&[1], &[1]]),
    ];
    for (offset, dims, strides) in cases {
        let lir = with_copy(offset, dims, strides);
        let e = backend().compile(Arc::new(lir), &CompileOptions::default()).map(drop).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidGraph, "{dims:?}: {e}");
    }
    let fits = with_copy([4, 0], &[2, 4], [&[4, 1], &[1, 2]]);
    assert!(backend().compile(Arc::new(fits), &CompileOptions::default()).is_ok());
}

/// What no value of a symbol makes right is rejected with the module, the rest when it gets its value.
#[test]
fn symbolic_views_are_rejected_as_early_as_can_be_decided() {
    let mut graph = Graph::new("g");
    let seq = Dim::Dynamic(sym::SEQ);
    let x = graph.input("x", Shape::from_dims(&[seq, Dim::Static(4)], DType::F32));
    graph.set_symbol_range(sym::SEQ, rlx_ir::SymRange::new(1, 8));
    let y = graph.try_add(Op::Activation(Activation::Relu), &[x]).unwrap();
    graph.set_outputs(vec![y]);
    let lir = lir_of(&graph);
    let s = Extent::sym(sym::SEQ);
    let with_offset = |offset: Extent| {
        let mut lir = lir.clone();
        Arc::make_mut(&mut lir.steps[0].inputs[0].view).offset = offset;
        backend().compile(Arc::new(lir), &CompileOptions::default())
    };
    for never in [Extent::Const(-1), s * -2, s + 31, s * 4 + i64::MAX, s * i64::MAX] {
        let e = with_offset(never).map(drop).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidGraph, "{never}: {e}");
    }
    // The ranges of `4·seq` and of the buffer's elements do not say that it is always behind the last one.
    for sometimes in [s - 1, s.modulo(2), (s - 4) * 4, Extent::Const(4).floor_div(s - 2), s * 4] {
        let mut exec = with_offset(sometimes).unwrap_or_else(|e| panic!("{sometimes}: {e}"));
        let runs = (1..=8i64).filter(|&n| {
            let input = vec![0u8; n as usize * 16];
            match exec.run(&&[input][..], &[n]) {
                Ok(()) => true,
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Dimension, "{sometimes} at {n}: {e}");
                    false
                }
            }
        });
        let runs: Vec<i64> = runs.collect();
        let fits = |n: &i64| sometimes.eval(&|_| Some(*n)) == Some(0);
        assert!(runs.len() < 8 && runs.iter().all(fits), "{sometimes}: {runs:?}");
    }
}

/// A symbolic size of which memory was planned for too little: quotients by what can be negative.
#[test]
fn memory_is_planned_for_every_value_a_size_can_have() {
    let mut graph = Graph::new("g");
    let seq = Dim::Dynamic(sym::SEQ);
    let x = graph.input("x", Shape::from_dims(&[seq], DType::F32));
    graph.set_symbol_range(sym::SEQ, rlx_ir::SymRange::new(1, 8));
    // At 4: (-4000) div (-5) = 800 rows, where a divisor of at least 1 would leave none.
    let n = Dim::from((Extent::sym(sym::SEQ) * -1000).floor_div(Extent::sym(sym::SEQ) - 9));
    let shape = Shape::from_dims(&[n, seq], DType::F32);
    let y = graph.try_add(Op::Expand { to: shape.dims().to_vec() }, &[x]).unwrap();
    let y = graph.try_add(Op::Activation(Activation::Relu), &[y]).unwrap();
    graph.set_outputs(vec![y]);
    let mut exec = compile(&graph, &backend(), &CompileOptions::default()).unwrap();
    let e = exec.run(&&[vec![0u8; 16]][..], &[4]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Dimension, "{e}");
}

#[test]
fn a_packed_buffer_is_used_in_the_format_its_node_packs() {
    let mut graph = Graph::new("g");
    let x = graph.input("x", f32s(&[3, 40]));
    let w = graph.param("w", f32s(&[40, 24]));
    let y = graph.matmul(x, w, f32s(&[3, 24]));
    graph.set_outputs(vec![y]);
    let lir = lir_of(&graph);
    let at = lir.buffers.iter().position(|b| b.format.is_some()).expect("weights are packed");
    for format in [None, Some(PackFormat::new("GroupedWeights")), Some(PackFormat::new("Unknown"))] {
        let mut lir = lir.clone();
        lir.buffers[at].format = format;
        let e = backend().compile(Arc::new(lir), &CompileOptions::default()).map(drop).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidGraph, "{format:?}: {e}");
    }
}

#[test]
fn plans_with_room_for_less_or_other_pools_are_rejected() {
    let mut graph = Graph::new("g");
    let x = graph.input("x", f32s(&[64, 64]));
    let y = graph.try_add(Op::Activation(Activation::Relu), &[x]).unwrap();
    graph.set_outputs(vec![y]);
    let lir = lir_of(&graph);
    let output = lir.outputs[0].operand.buffer.index();
    let changes: [&dyn Fn(&mut rlx_ir::lir::MemoryPlan); 7] = [
        &|p| (p.pools, p.arena_bytes) = (vec![64], 64),
        &|p| (p.pools, p.arena_bytes) = (vec![p.pools[0], 64, 64], p.pools[0] + 128),
        &|p| (p.pools, p.arena_bytes, p.pool_of[output]) = (vec![64, 1 << 20], 64 + (1 << 20), 1),
        &|p| p.offsets[output] = Some(usize::MAX - 63),
        &|p| (p.pools, p.arena_bytes) = (vec![usize::MAX, usize::MAX], usize::MAX - 1),
        &|p| p.offsets[output] = None,
        &|p| p.alignment = 1 << 63,
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut lir = lir.clone();
        change(lir.plan.as_mut().unwrap());
        let compiled = backend().compile(Arc::new(lir), &CompileOptions::default());
        let mut exec = match compiled {
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::InvalidGraph, "{i}: {e}");
                continue;
            }
            Ok(exec) => exec,
        };
        // Offset 0 has any alignment, but no memory has this one.
        assert_eq!(i, 6);
        let e = exec.run(&&[vec![0u8; 64 * 64 * 4]][..], &[]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::OutOfMemory, "{e}");
    }
}

/// Symbols whose sizes overflow, or contradict each other, at a binding.
#[test]
fn dimensions_that_overflow_are_errors_of_the_run() {
    let mut graph = Graph::new("g");
    let (b, s) = (Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ));
    let x = graph.input("x", Shape::from_dims(&[b, s], DType::F32));
    let y = graph.try_add(Op::Activation(Activation::Relu), &[x]).unwrap();
    graph.set_outputs(vec![y]);
    let mut exec = compile(&graph, &backend(), &CompileOptions::default()).unwrap();
    let mut bindings = Bindings::default();
    bindings.set_input("x", Gen::new(3).value(DType::F32, &[2, 3], -1.0..1.0));
    run(&mut *exec, &bindings, &DimBinding::batch_seq(2, 3)).unwrap();
    let edges = [0, 1, -1, 1 << 31, 1 << 32, 1 << 61, 1 << 62, i64::MAX - 1, i64::MAX, i64::MIN];
    for dims in edges.iter().flat_map(|&b| edges.map(|s| [b, s])) {
        let e = exec.run(&&[Vec::new()][..], &dims).map(|()| dims);
        match e {
            // Nothing needs no bytes.
            Ok(dims) => assert!(dims.contains(&0), "{dims:?}"),
            Err(e) => assert!(
                matches!(e.kind(), ErrorKind::Dimension | ErrorKind::Binding | ErrorKind::OutOfMemory),
                "{dims:?}: {e}"
            ),
        }
    }
    run(&mut *exec, &bindings, &DimBinding::batch_seq(2, 3)).unwrap();
}

/// Ids that are nowhere.
#[test]
fn ids_outside_their_lists_are_errors() {
    let lir = with_copy([0, 0], &[4, 4], [&[4, 1], &[4, 1]]);
    let changes: [&dyn Fn(&mut LirModule); 6] = [
        &|l| l.steps[0].inputs[0].buffer = BufferId(99),
        &|l| l.inputs[0].operand.buffer = BufferId(99),
        &|l| l.outputs[0].operand.buffer = BufferId(u32::MAX),
        &|l| l.buffers[0].kind = BufferKind::Input(7),
        &|l| l.live_ranges[0].first = usize::MAX,
        &|l| l.symbols.push(sym::SEQ),
    ];
    for change in changes {
        let mut lir = lir.clone();
        change(&mut lir);
        let e = backend().compile(Arc::new(lir), &CompileOptions::default()).map(drop).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidGraph, "{e}");
    }
}
