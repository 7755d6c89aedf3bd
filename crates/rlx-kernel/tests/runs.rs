//! Bodies that move elements, of known and open sizes, on GPUs whose invocations have several neighbours together: the oracle's elements, and the bits and the
//! faults of invocations that have one.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{apple, native, processor, try_module};
use rlx_ir::op::{Activation, BinaryOp, PadMode};
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{Gen, difference, tolerance};
use rlx_ir::{DType, Dim, Extent, Graph, LirModule, NodeId, Op, Shape, Value, sym};
use rlx_kernel::interp::Executable;
use rlx_kernel::ir::Stmt;
use rlx_kernel::{KernelTarget, compile_step, step_variants};

/// Sizes that the open dimensions have in turn.
const SIZES: [[usize; 2]; 3] = [[1, 1], [3, 5], [0, 2]];

/// Random bodies; with `RLX_TEST_ALL` all of them.
fn cases() -> usize {
    if std::env::var("RLX_TEST_ALL").is_ok_and(|v| v == "1") { 2000 } else { 60 }
}

/// A graph under way, and how its inputs are made: those that are indices are into so many.
struct Made {
    graph: Graph,
    inputs: Vec<(String, Vec<Extent>, DType, Option<usize>)>,
}

impl Made {
    fn input(&mut self, dims: &[Extent], dtype: DType, indices: Option<usize>) -> NodeId {
        let name = format!("x{}", self.inputs.len());
        let shape: Vec<Dim> = dims.iter().map(|&d| Dim::from(d)).collect();
        self.inputs.push((name.clone(), dims.to_vec(), dtype, indices));
        self.graph.input(name, Shape::from_dims(&shape, dtype))
    }

    fn dims(&self, id: NodeId) -> Vec<Extent> {
        self.graph.shape(id).dims().iter().map(|d| d.extent()).collect()
    }

    fn add(&mut self, op: Op, inputs: &[NodeId]) -> NodeId {
        self.graph.try_add(op, inputs).unwrap()
    }

    fn bindings(&self, gen_: &mut Gen, sizes: [usize; 2]) -> Bindings {
        let named = ["a", "b"].map(sym::named);
        let size = |at: u32| named.iter().position(|&s| s == at).map(|i| sizes[i] as i64);
        let mut values = Bindings::default();
        for (name, dims, dtype, indices) in &self.inputs {
            let dims: Vec<usize> = dims.iter().map(|d| d.eval(&size).unwrap() as usize).collect();
            let value = match indices {
                None => gen_.value(*dtype, &dims, -4.0..4.0),
                Some(size) => {
                    let (n, count) = (*size as i64, dims.iter().product());
                    let values = (0..count).map(|_| i128::from(gen_.int(-n..=n - 1)));
                    Value::int(*dtype, &dims, values.collect())
                }
            };
            values.set_input(name.clone(), value);
        }
        values
    }
}

fn open(name: &str) -> Extent {
    Dim::Dynamic(sym::named(name)).extent()
}

/// Rows that are picked of a table, by one index each or by two.
fn picked(g: &mut Made, gen_: &mut Gen, dtype: DType) -> NodeId {
    let row = match gen_.size(0..=8) {
        0 => open("b") * 4,
        1 => open("b") * 8,
        2 => open("b"),
        _ => Extent::Const(gen_.pick(&[8, 16, 24, 12, 20, 7])),
    };
    let index = gen_.pick(&[DType::I32, DType::I64]);
    let list = [open("a"), Extent::Const(3)];
    match gen_.size(0..=4) {
        0 => g.input(&[open("a"), 3.into(), row], dtype, None),
        1 => {
            let table = g.input(&[5.into(), 4.into(), row], dtype, None);
            let rows = g.input(&[list[0], list[1], 2.into()], index, Some(4));
            g.add(Op::GatherNd { batch_dims: 0 }, &[table, rows])
        }
        2 => {
            let table = g.input(&[open("a"), 6.into(), row], dtype, None);
            let columns = g.input(&[3.into()], index, Some(6));
            g.add(Op::Gather { axis: 1 }, &[table, columns])
        }
        3 => {
            let table = g.input(&[open("a"), 3.into(), 9.into()], dtype, None);
            let elements = g.input(&[row], index, Some(9));
            g.add(Op::Gather { axis: 2 }, &[table, elements])
        }
        _ => {
            let table = g.input(&[5.into(), row], dtype, None);
            let rows = g.input(&list, index, Some(5));
            g.add(Op::Gather { axis: 0 }, &[table, rows])
        }
    }
}

/// `x` moved in one of many ways.
fn moved(g: &mut Made, gen_: &mut Gen, x: NodeId, dtype: DType) -> NodeId {
    let dims = g.dims(x);
    let (rank, last) = (dims.len(), dims.len() - 1);
    let small = gen_.pick(&[4i64, 8, 8, 3]);
    match gen_.size(0..=9) {
        0 => {
            let mut other = dims.clone();
            let axis = gen_.size(0..=last);
            other[axis] = if axis == last { small.into() } else { open("b") };
            let other = g.input(&other, dtype, None);
            let parts = if gen_.chance(0.5) { [x, other] } else { [other, x] };
            g.add(Op::Concat { axis }, &parts)
        }
        1 => {
            let mut perm: Vec<usize> = (0..rank).collect();
            let all = gen_.chance(0.2);
            gen_.shuffle(if all { &mut perm } else { &mut perm[..last] });
            g.add(Op::Transpose { perm }, &[x])
        }
        2 if dims[last].as_const().is_some_and(|d| d > small) => {
            let (mut starts, mut to) = (vec![Extent::Const(0); rank], dims.clone());
            (starts[last], to[last]) = (small.into(), dims[last] - small);
            let to = to.into_iter().map(Dim::from).collect();
            g.add(Op::Slice { starts, steps: vec![1; rank], to }, &[x])
        }
        3 => {
            let (before, after) = (gen_.pick(&[0, small]), gen_.pick(&[0, small, 1]));
            let at_last = gen_.chance(0.7);
            let around = |n: i64| -> Vec<Extent> {
                (0..rank).map(|i| if (i == last) == at_last { n.into() } else { 0.into() }).collect()
            };
            g.add(Op::Pad { before: around(before), after: around(after), mode: PadMode::Constant }, &[x])
        }
        4 => {
            let mut repeats = vec![Dim::Static(1); rank];
            repeats[gen_.size(0..=last)] = Dim::Static(2);
            g.add(Op::Tile { repeats }, &[x])
        }
        5 => {
            let row = dims[..last].iter().fold(Extent::Const(1), |n, &d| n * d);
            let to = match dims[last].as_const() {
                Some(d) if d % 8 == 0 && gen_.chance(0.5) => vec![row, (d / 8).into(), 8.into()],
                _ if rank > 2 && gen_.chance(0.5) => {
                    [&dims[..rank - 2], &[dims[rank - 2] * dims[last]][..]].concat()
                }
                _ => vec![row, dims[last]],
            };
            g.add(Op::Reshape { to: to.into_iter().map(Dim::from).collect() }, &[x])
        }
        6 => {
            let to = std::iter::once(Dim::Static(2)).chain(dims.iter().map(|&d| Dim::from(d))).collect();
            g.add(Op::Expand { to }, &[x])
        }
        7 if rank > 1 => g.add(Op::Trilu { upper: gen_.chance(0.5), k: 1.into() }, &[x]),
        8 => {
            let mut own = if gen_.chance(0.5) { vec![dims[last]] } else { dims.clone() };
            if own.len() == rank && rank > 1 {
                own[last] = 1.into();
            }
            let other = g.input(&own, dtype, None);
            g.add(Op::Binary(BinaryOp::Add), &[x, other])
        }
        _ => {
            let counted =
                Op::Iota { to: dims.into_iter().map(Dim::from).collect(), axis: gen_.size(0..=last), dtype };
            let counted = g.add(counted, &[]);
            g.add(Op::Binary(BinaryOp::Sub), &[x, counted])
        }
    }
}

fn case(gen_: &mut Gen) -> Made {
    let dtype = gen_.pick(&[DType::F32, DType::F32, DType::F16, DType::BF16, DType::I32]);
    let mut g = Made { graph: Graph::new("moved"), inputs: Vec::new() };
    // Says what the sizes are.
    g.input(&[open("a"), open("b")], DType::F32, None);
    let mut x = picked(&mut g, gen_, dtype);
    for _ in 0..gen_.size(0..=2) {
        x = moved(&mut g, gen_, x, dtype);
    }
    let relu = g.add(Op::Activation(Activation::Relu), &[x]);
    let outputs = if gen_.chance(0.3) { vec![relu, x] } else { vec![relu] };
    g.graph.set_outputs(outputs);
    g
}

/// How many neighbours a variant accesses together, 1 where it is none that does.
fn width(variant: &str) -> usize {
    let mut parts = variant.trim_end_matches(".sizes").split('x').skip(2);
    parts.next().map_or(1, |n| n.parse().unwrap())
}

fn by(module: &Arc<LirModule>, target: &KernelTarget, together: bool) -> Executable {
    let choose = |names: &[String]| names.iter().position(|name| (width(name) > 1) == together).unwrap_or(0);
    Executable::choosing(Arc::clone(module), target, choose).unwrap()
}

/// The kernels of a module's steps that are taken unmeasured: the variant's name, and how many elements it reads together.
fn kernels(module: &Arc<LirModule>, target: &KernelTarget) -> Vec<(String, usize)> {
    let kernel = |step| {
        let name = step_variants(step, module, target).unwrap().remove(0);
        let mut most = 1;
        for launch in compile_step(step, module, target, 0).unwrap() {
            launch.kernel.for_each_stmt(&mut |s| {
                if let Stmt::LoadWide { values, .. } = s {
                    most = most.max(values.len());
                }
            });
        }
        (name, most)
    };
    module.steps.iter().map(kernel).collect()
}

#[test]
fn what_moves_elements_moves_neighbours_together() {
    let (mut gen_, mut seen) = (Gen::new(51), BTreeMap::new());
    for _ in 0..cases() {
        let made = case(&mut gen_);
        let target = [native, apple, processor][gen_.size(0..=2)]();
        let module = try_module(&made.graph, &target).unwrap_or_else(|e| panic!("{e}\n{}", made.graph));
        for kernel in kernels(&module, &target) {
            *seen.entry(kernel).or_insert(0) += 1;
        }
        let (wide, single) = (by(&module, &target, true), by(&module, &target, false));
        for sizes in SIZES {
            let values = made.bindings(&mut gen_, sizes);
            let wanted = oracle::evaluate(&made.graph, &values).unwrap();
            let run = |by: &Executable| by.run(&values).unwrap_or_else(|e| panic!("{e}\n{}", made.graph));
            let (wide, single) = (run(&wide), run(&single));
            for ((wide, single), wanted) in wide.iter().zip(&single).zip(&wanted) {
                assert!(wide.encode() == single.encode(), "other bits\n{}", made.graph);
                let tolerance = tolerance(wanted.dtype);
                assert_eq!(difference(wanted, wide, tolerance), None, "{}", made.graph);
            }
        }
    }
    for (variant, reads) in [("map256x1x4", 4), ("map256x1x8", 8), ("map64x1x4", 4), ("map64x1x8", 8)] {
        let count = seen.get(&(variant.to_owned(), reads)).copied();
        assert!(count.is_some_and(|n| n >= cases() / 30), "{variant}: {seen:?}");
    }
    assert!(seen.keys().any(|(variant, _)| variant == "map64x1"), "{seen:?}");
}

/// The variant taken unmeasured for one op with another behind it, of the first step, and how many elements it reads together.
fn first(op: Op, inputs: &[(&[usize], DType)], target: &KernelTarget) -> (String, usize) {
    let mut g = Graph::new("one");
    let ids: Vec<NodeId> = (inputs.iter().enumerate())
        .map(|(i, (dims, dtype))| g.input(format!("x{i}"), Shape::new(dims, *dtype)))
        .collect();
    let y = g.try_add(op, &ids).unwrap();
    let y = g.try_add(Op::Activation(Activation::Relu), &[y]).unwrap();
    g.set_outputs(vec![y]);
    let module = try_module(&g, target).unwrap();
    kernels(&module, target).remove(0)
}

#[test]
fn they_are_taken_where_what_is_read_is_side_by_side() {
    use DType::{BF16, F32, I64};
    let own = native();
    let (four, eight, one) =
        (("map256x1x4".to_owned(), 4), ("map256x1x8".to_owned(), 8), ("map64x1".to_owned(), 1));
    let gather = |axis, table: &[usize], list: &[usize], dtype, target: &KernelTarget| {
        first(Op::Gather { axis }, &[(table, dtype), (list, I64)], target)
    };
    assert_eq!(gather(0, &[1000, 384], &[128], F32, &own), four);
    assert_eq!(gather(0, &[1000, 384], &[1, 128], BF16, &own), eight);
    assert_eq!(
        gather(0, &[1000, 388], &[128], BF16, &own),
        ("map256x1x4".to_owned(), 4),
        "rows of whole fours"
    );
    assert_eq!(gather(0, &[1000, 387], &[128], F32, &own), one, "rows begin anywhere");
    assert_eq!(gather(0, &[1000, 384], &[16], F32, &own), one, "few elements");
    assert_eq!(gather(1, &[40, 1000], &[500], F32, &own), one, "each element has an index of its own");
    assert_eq!(gather(1, &[40, 300, 8], &[60], F32, &own), four);
    assert_eq!(
        gather(0, &[1000, 384], &[128], F32, &common::words()),
        one,
        "a GPU without floats of 16 bits"
    );
    let of_processor = |list: &[usize], dtype| gather(0, &[1000, 384], list, dtype, &processor());
    assert_eq!(of_processor(&[16], F32), ("map64x1x8".to_owned(), 8), "few elements, too");
    assert_eq!(of_processor(&[128], BF16), ("map64s8".to_owned(), 1), "elements share words");
    let concat =
        |axis, parts: [&[usize]; 2]| first(Op::Concat { axis }, &[(parts[0], F32), (parts[1], F32)], &own);
    assert_eq!(concat(0, [&[200, 128], &[160, 128]]), four);
    assert_eq!(concat(1, [&[400, 64], &[400, 96]]), four);
    assert_eq!(concat(1, [&[400, 63], &[400, 97]]), one, "parts begin anywhere");
    let halves = first(Op::Concat { axis: 0 }, &[(&[200, 128], BF16), (&[160, 128], BF16)], &own);
    assert_eq!(halves, eight, "moved as what they are stored in");
    let pad = |before: i64, after: i64| {
        let border = |n: i64| vec![0.into(), n.into()];
        let op = Op::Pad { before: border(before), after: border(after), mode: PadMode::Constant };
        first(op, &[(&[200, 124], F32)], &own)
    };
    assert_eq!((pad(4, 0), pad(3, 1)), (four.clone(), one.clone()), "a border may end anywhere");
    let slice = |start: i64| {
        let (starts, to) = (vec![0.into(), start.into()], vec![Dim::Static(200), Dim::Static(96)]);
        first(Op::Slice { starts, steps: vec![1, 1], to }, &[(&[200, 128], F32)], &own)
    };
    assert_eq!((slice(32), slice(31)), (four.clone(), one.clone()));
    let tile = |d: usize| {
        first(Op::Tile { repeats: vec![Dim::Static(1), Dim::Static(2)] }, &[(&[200, d], F32)], &own)
    };
    assert_eq!((tile(64), tile(50)), (four, one));
}

/// Indices out of range, of rows that an invocation reads together: the same fault as where it reads one element.
#[test]
fn faults_are_the_same() {
    let mut gen_ = Gen::new(52);
    for (dtype, target) in [(DType::F32, native()), (DType::BF16, apple()), (DType::F32, processor())] {
        for bad in [7i64, -8, i64::from(i32::MAX) + 5] {
            let (mut g, mut values) = (Graph::new("rows"), Bindings::default());
            let table = g.input("table", Shape::new(&[7, 64], dtype));
            let list = g.input("list", Shape::new(&[260], DType::I64));
            let y = g.try_add(Op::Gather { axis: 0 }, &[table, list]).unwrap();
            g.set_outputs(vec![y]);
            let mut numbers: Vec<i128> = (0..260).map(|i| i % 7).collect();
            numbers[133] = bad.into();
            values.set_input("table", gen_.value(dtype, &[7, 64], -1.0..1.0));
            values.set_input("list", Value::int(DType::I64, &[260], numbers));
            let module = try_module(&g, &target).unwrap();
            let names = step_variants(&module.steps[0], &module, &target).unwrap();
            assert!([true, false].iter().all(|&wide| names.iter().any(|name| (width(name) > 1) == wide)));
            let fault = |together: bool| by(&module, &target, together).run(&values).unwrap_err();
            let (wide, single) = (fault(true), fault(false));
            assert_eq!((wide.kind(), wide.to_string()), (single.kind(), single.to_string()));
        }
    }
}
