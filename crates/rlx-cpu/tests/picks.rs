//! A gather of what another gather picks along the axis beside its own, and interpolation between what two gathers pick: both are one step. Against the
//! oracle, with the same bits on one, two and three threads.

mod common;

use common::{against_oracle, backends, compile, oracle, run, unfused};
use rlx_cpu::CpuBackend;
use rlx_ir::op::BinaryOp;
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, DimBinding, Graph, NodeId, Op, Shape, Value};
use rlx_opt::CompileOptions;

/// Positions into an axis of `size`: each as often, as a resize picks them, or any, some of them counted from the end.
fn positions(g: &mut Gen, size: usize) -> Vec<i128> {
    let times = g.size(1..=3);
    match g.size(0..=2) {
        0 | 1 => (0..size * times - g.size(0..=times - 1)).map(|i| (i / times) as i128).collect(),
        _ => {
            let count = g.size(1..=2 * size);
            let mut any = || g.size(0..=2 * size - 1) as i128 - size as i128;
            (0..count).map(|_| any()).collect()
        }
    }
}

/// A table picked from along these axes, one after the other.
fn picks(g: &mut Gen, dims: &[usize], axes: &[usize], dtype: DType) -> (Graph, Bindings) {
    picks_at(g, dims, axes, dtype, positions)
}

fn picks_at(
    g: &mut Gen,
    dims: &[usize],
    axes: &[usize],
    dtype: DType,
    positions: fn(&mut Gen, usize) -> Vec<i128>,
) -> (Graph, Bindings) {
    let (mut graph, mut bindings) = (Graph::new("picks"), Bindings::default());
    let mut at = graph.input("x", Shape::new(dims, dtype));
    bindings.set_input("x", g.distinct_value(dtype, dims));
    for (i, &axis) in axes.iter().enumerate() {
        let (list, name) = (positions(g, dims[axis]), format!("i{i}"));
        let list = Value::int(DType::I64, &[list.len()], list);
        let index = graph.input(&name, list.shape());
        bindings.set_input(&name, list);
        at = graph.try_add(Op::Gather { axis }, &[at, index]).unwrap();
    }
    graph.set_outputs(vec![at]);
    (graph, bindings)
}

#[test]
fn two_axes_are_picked_from_in_one_step() {
    let g = &mut Gen::new(81);
    for at in 0..160 {
        let dtype = [DType::F32, DType::U8, DType::BF16, DType::F64][at % 4];
        let rank = g.size(2..=4);
        let mut dims: Vec<usize> = (0..rank).map(|_| g.size(1..=12)).collect();
        // Lines of several vectors, and of many slices.
        let outer = g.size(0..=rank - 2);
        (dims[outer], dims[outer + 1]) = (g.size(1..=9), g.size(1..=70));
        if dtype.size_bytes() == 1 {
            (dims[outer], dims[outer + 1]) = (3, g.size(1..=20));
            dims.iter_mut()
                .enumerate()
                .filter(|(i, _)| *i != outer && *i != outer + 1)
                .for_each(|(_, d)| *d = 2);
        }
        let axes = if g.chance(0.5) { [outer, outer + 1] } else { [outer + 1, outer] };
        let (graph, bindings) = picks(g, &dims, &axes, dtype);
        check(&graph, &bindings);
    }
}

/// What is moved has the oracle's bits, in one step, on any number of threads.
fn check(graph: &Graph, bindings: &Bindings) {
    let bits: Vec<Vec<u8>> = oracle(graph, bindings).iter().map(Value::encode).collect();
    let mut all = backends();
    all.push(("3 threads".into(), CpuBackend::new().with_threads(3).expect("a pool")));
    for (name, backend) in all {
        let mut exec = compile(graph, &backend, &CompileOptions::default()).unwrap();
        assert_eq!(exec.lir().steps.len(), 1, "{}", exec.lir());
        let got = run(&mut *exec, bindings, &DimBinding::new()).unwrap();
        assert!(got == bits, "{name}\n{graph}");
    }
}

#[test]
fn images_are_doubled_by_the_nearest_element() {
    let g = &mut Gen::new(83);
    let twice = |g: &mut Gen, size: usize| {
        // Sometimes one element less, which is no doubling of the axis.
        let n = 2 * size - usize::from(g.chance(0.1));
        (0..n).map(|i| (i / 2) as i128).collect()
    };
    for dtype in [DType::F32, DType::U8, DType::BF16, DType::F64] {
        for dims in [[1, 2, 3, 1], [2, 3, 5, 16], [1, 4, 40, 33], [3, 2, 7, 70], [2, 100, 30, 24]] {
            // Distinct bytes are few.
            let dims = if dtype == DType::U8 { [1, 1, dims[2].min(6), dims[3].min(40)] } else { dims };
            let (graph, bindings) = picks_at(g, &dims, &[2, 3], dtype, twice);
            check(&graph, &bindings);
        }
    }
}

#[test]
fn axes_apart_and_a_third_axis_are_steps_of_their_own() {
    let g = &mut Gen::new(82);
    let (_, backend) = backends().pop().unwrap();
    for (axes, steps) in [(&[0, 2][..], 2), (&[2, 0], 2), (&[1, 1], 2), (&[3, 2, 1], 2), (&[0, 1, 2, 3], 2)] {
        let (graph, bindings) = picks(g, &[3, 4, 5, 6], axes, DType::F32);
        let mut exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
        assert_eq!(exec.lir().steps.len(), steps, "{axes:?} {}", exec.lir());
        let got = run(&mut *exec, &bindings, &DimBinding::new()).unwrap();
        assert_eq!(against_oracle(&oracle(&graph, &bindings), &got), None, "{axes:?}");
    }
}

#[test]
fn an_index_of_either_gather_that_is_out_of_range_is_named() {
    let (_, backend) = backends().pop().unwrap();
    let list = |v: Vec<i128>| Value::int(DType::I64, &[v.len()], v);
    for (first, second, part) in [
        (vec![0, 3], vec![0], "index 3 (number 1 of the indices)"),
        (vec![0], vec![1, -5], "index -5 (number 1 of the indices)"),
    ] {
        for axes in [[0, 1], [1, 0]] {
            let mut graph = Graph::new("misses");
            let x = graph.input("x", Shape::new(&[3, 3], DType::F32));
            let [a, b] = [("i0", &first), ("i1", &second)]
                .map(|(name, v)| graph.input(name, Shape::new(&[v.len()], DType::I64)));
            let y = graph.try_add(Op::Gather { axis: axes[0] }, &[x, a]).unwrap();
            let y = graph.try_add(Op::Gather { axis: axes[1] }, &[y, b]).unwrap();
            graph.set_outputs(vec![y]);
            let mut bindings = Bindings::default();
            bindings.set_input("x", Gen::new(1).value(DType::F32, &[3, 3], 0.0..1.0));
            bindings.set_input("i0", list(first.clone())).set_input("i1", list(second.clone()));
            let mut exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
            let error = run(&mut *exec, &bindings, &DimBinding::new()).unwrap_err();
            let axis = axes[usize::from(part.contains("-5"))];
            assert!(error.message().contains(part), "{error}");
            assert!(error.message().contains(&format!("axis {axis} has 3")), "{error}");
        }
    }
}

/// `first + (second − first)·step` of slices of `x` along an axis, any or those of a resize, whose operands may be the other way around; and the difference.
fn between(
    g: &mut Gen,
    (graph, bindings): (&mut Graph, &mut Bindings),
    x: NodeId,
    axis: usize,
) -> [NodeId; 2] {
    let dims = graph.shape(x).static_dims().unwrap();
    let count = g.size(1..=3 * dims[axis]);
    let resized = g.chance(0.5);
    let mut slices = Vec::new();
    for next in [0, 1] {
        let list = match resized {
            true => {
                let place = |i: usize| (i * dims[axis] / count + next).min(dims[axis] - 1) as i128;
                Value::int(DType::I64, &[count], (0..count).map(place).collect())
            }
            false => g.indices(&[count], dims[axis]),
        };
        let list = graph_input(graph, bindings, &format!("places {next} along {axis}"), list);
        slices.push(graph.try_add(Op::Gather { axis }, &[x, list]).unwrap());
    }
    let mut along = vec![1; dims.len()];
    along[axis] = count;
    let step = g.value(DType::F32, &along, 0.0..1.0);
    let step = graph_input(graph, bindings, &format!("steps along {axis}"), step);
    let mut either = |graph: &mut Graph, op, a, b| {
        let operands = if g.chance(0.5) { [a, b] } else { [b, a] };
        graph.try_add(Op::Binary(op), &operands).unwrap()
    };
    let difference = graph.try_add(Op::Binary(BinaryOp::Sub), &[slices[1], slices[0]]).unwrap();
    let part = either(graph, BinaryOp::Mul, difference, step);
    [either(graph, BinaryOp::Add, slices[0], part), difference]
}

/// Interpolation along each of the axes, one after the other; unless it is `alone`, the last difference is a result, too.
fn interpolation(g: &mut Gen, dims: &[usize], axes: &[usize], alone: bool) -> (Graph, Bindings) {
    let (mut graph, mut bindings) = (Graph::new("between"), Bindings::default());
    let x = graph_input(&mut graph, &mut bindings, "x", g.value(DType::F32, dims, -2.0..2.0));
    let mut results = vec![x];
    for &axis in axes {
        let [sum, difference] = between(g, (&mut graph, &mut bindings), results[0], axis);
        results = if alone { vec![sum] } else { vec![sum, difference] };
    }
    graph.set_outputs(results);
    (graph, bindings)
}

fn graph_input(graph: &mut Graph, bindings: &mut Bindings, name: &str, value: Value) -> rlx_ir::NodeId {
    let id = graph.input(name, value.shape());
    bindings.set_input(name, value);
    id
}

#[test]
fn interpolation_is_one_step_with_the_bits_of_its_parts() {
    let g = &mut Gen::new(83);
    for at in 0..120 {
        let rank = g.size(1..=4);
        let mut dims: Vec<usize> = (0..rank).map(|_| g.size(1..=7)).collect();
        let axis = g.size(0..=rank - 1);
        dims[rank - 1] = g.size(2..=90);
        dims[axis] = dims[axis].max(2);
        let alone = at % 5 > 0;
        // Along the next axis, too: still one step.
        let both = at % 2 == 0 && axis + 1 < rank;
        if both {
            dims[axis + 1] = dims[axis + 1].max(2);
        }
        let axes = if both { vec![axis, axis + 1] } else { vec![axis] };
        let (graph, bindings) = interpolation(g, &dims, &axes, alone);
        let want = oracle(&graph, &bindings);
        let picked = graph.shape(graph.outputs[0]).static_dims().unwrap();
        let mut all = backends();
        all.push(("3 threads".into(), CpuBackend::new().with_threads(3).expect("a pool")));
        for (name, backend) in all {
            let mut exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
            let steps = exec.lir().steps.len();
            assert!(
                if alone && axes.iter().all(|&axis| picked[axis] > 1) { steps == 1 } else { steps >= 1 },
                "{}",
                exec.lir()
            );
            let got = run(&mut *exec, &bindings, &DimBinding::new()).unwrap();
            if let Some(difference) = against_oracle(&want, &got) {
                panic!("{name}: {difference}\n{graph}");
            }
            let mut apart = compile(&graph, &backend, &unfused()).unwrap();
            assert!(apart.lir().steps.len() > steps, "{}", apart.lir());
            let apart = run(&mut *apart, &bindings, &DimBinding::new()).unwrap();
            assert!(got == apart, "{name}: other bits than those of its parts\n{graph}");
        }
    }
}

/// 35 MB, more than most last-level caches hold, past which each element is then stored four times: in lines that begin at one of the cache, and in others.
#[test]
fn large_images_are_doubled() {
    let g = &mut Gen::new(84);
    for [height, width] in [[1400, 1568], [1401, 1571]] {
        let (mut graph, mut bindings) = (Graph::new("doubled"), Bindings::default());
        let value = g.value(DType::F32, &[1, height, width], -2.0..2.0);
        let mut at = graph_input(&mut graph, &mut bindings, "x", value);
        for (axis, size) in [(1, height), (2, width)] {
            let places = (0..2 * size).map(|i| (i / 2) as i128).collect();
            let list = Value::int(DType::I64, &[2 * size], places);
            let list = graph_input(&mut graph, &mut bindings, &format!("places along {axis}"), list);
            at = graph.try_add(Op::Gather { axis }, &[at, list]).unwrap();
        }
        graph.set_outputs(vec![at]);
        let bits: Vec<Vec<u8>> = oracle(&graph, &bindings).iter().map(Value::encode).collect();
        for (name, backend) in backends() {
            let mut exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
            assert_eq!(exec.lir().steps.len(), 1, "{}", exec.lir());
            let got = run(&mut *exec, &bindings, &DimBinding::new()).unwrap();
            assert!(got == bits, "{name}: {height} × {width}");
        }
    }
}
