//! Random shapes of every family of kernels that `long_rows.rs` and `few_rows.rs` do not have, against the oracle: all element
//! types of the family, on devices with and without them, each step by another one of the variants that a device may choose.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{apple, compiled, disagreement, native, shorts, try_module, words};
use rlx_ir::op::{Activation, BinaryOp, DataFormat, PoolKind, ScatterOp};
use rlx_ir::ops::attr::NamedVariant;
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{Case, Gen, random_bindings};
use rlx_ir::{DType, Dim, DimBinding, ErrorKind, Graph, Op, Shape, Value, sym};
use rlx_kernel::KernelTarget;
use rlx_kernel::interp::Executable;

/// Random cases of each family.
const CASES: u64 = 500;
/// How many of these a device may reject: f64 and bytes of floats where there are none.
const REJECTED: u64 = CASES / 5;

fn target(seed: u64) -> KernelTarget {
    [native, words, shorts, apple][(seed % 4) as usize]()
}

/// How often each variant was taken.
type Taken = BTreeMap<String, u32>;

/// Whether the device computes the graph, by variants whose number follows from the seed; what it computes is the oracle's.
fn agrees(seed: u64, graph: &Graph, bindings: &Bindings, taken: &mut Taken) -> bool {
    let target = target(seed);
    let names = std::cell::RefCell::new(Vec::new());
    let choose = |variants: &[String]| {
        let number = (seed / 4) as usize % variants.len();
        names.borrow_mut().push(variants[number].clone());
        number
    };
    let made = try_module(graph, &target).and_then(|module| Executable::choosing(module, &target, choose));
    let executable = match made {
        Ok(executable) => executable,
        Err(e) if e.kind() == ErrorKind::Unsupported => return false,
        Err(e) => panic!("{} seed {seed}: {e}\n{graph}", target.name),
    };
    let names = names.into_inner();
    if let Some(what) = disagreement(graph, bindings, &executable) {
        panic!("{} seed {seed}, by {names:?}: {what}\n{graph}", target.name);
    }
    names.into_iter().for_each(|name| *taken.entry(name).or_default() += 1);
    true
}

/// Random graphs that `make` makes; gives the variants that were taken.
fn check(make: fn(&mut Gen) -> (Graph, Bindings)) -> Taken {
    let mut taken = Taken::new();
    let mut run = |seed: u64| {
        let (graph, bindings) = make(&mut Gen::new(seed));
        agrees(seed, &graph, &bindings, &mut taken)
    };
    let rejected = (0..CASES).filter(|&seed| !run(seed)).count() as u64;
    assert!(rejected <= REJECTED, "{rejected} of {CASES} were rejected");
    taken
}

/// Dimensions of at most `most` elements, at least one of which is an axis.
fn dims(g: &mut Gen, most: usize) -> (Vec<usize>, usize) {
    let mut dims = g.dims(1..=4, 1..=24);
    while dims.iter().product::<usize>() > most {
        dims.iter_mut().for_each(|d| *d = d.div_ceil(2));
    }
    let axis = g.size(0..=dims.len() - 1);
    (dims, axis)
}

/// Rows of indices that address dimensions of these sizes, some of them counted from the end.
fn addresses(g: &mut Gen, rows: &[usize], sizes: &[usize]) -> Value {
    let count = rows.iter().product::<usize>() * sizes.len();
    let index = (0..count).map(|i| {
        let size = sizes[i % sizes.len()] as i64;
        i128::from(g.int(-size..=size - 1))
    });
    let index = index.collect();
    Value::int(g.pick(&[DType::I32, DType::I64]), &[rows, &[sizes.len()]].concat(), index)
}

#[test]
fn gathers_agree() {
    check(|g| {
        let (dims, axis) = dims(g, 600);
        let dtype = g.dtype_where(|_| true);
        let x = g.value(dtype, &dims, -2.0..2.0);
        let case = match g.size(0..=2) {
            0 => {
                let by = g.dims(0..=2, 1..=12);
                Case::new(Op::Gather { axis }, vec![x, g.indices(&by, dims[axis])])
            }
            1 => {
                let mut by: Vec<usize> = dims.iter().map(|&d| g.size(1..=d)).collect();
                by[axis] = g.size(1..=70);
                Case::new(Op::GatherElements { axis }, vec![x, g.indices(&by, dims[axis])])
            }
            _ => {
                let count = g.size(1..=dims.len() - axis);
                let rows = [&dims[..axis], &g.dims(0..=2, 1..=9)].concat();
                let by = addresses(g, &rows, &dims[axis..axis + count]);
                Case::new(Op::GatherNd { batch_dims: axis }, vec![x, by])
            }
        };
        case.graph()
    });
}

/// An update of which many may go to one place.
fn scatter(g: &mut Gen) -> Case {
    let (dims, axis) = dims(g, 150);
    let reduction: ScatterOp = g.variant();
    let bools = matches!(reduction, ScatterOp::Set | ScatterOp::Max | ScatterOp::Min);
    let dtype = g.dtype_where(|d| d != DType::C64 && (bools || d != DType::Bool));
    // Factors whose products do not leave what the types hold.
    let range = if reduction == ScatterOp::Mul && dtype.is_float() { 0.875..1.25 } else { -2.0..2.0 };
    let x = g.value(dtype, &dims, range.clone());
    let inputs = |g: &mut Gen, indices: Value, updates: &[usize]| {
        vec![x.clone(), indices, g.value(dtype, updates, range.clone())]
    };
    match g.size(0..=4) {
        0 | 1 => {
            let mut by: Vec<usize> = dims.iter().map(|&d| g.size(1..=d)).collect();
            by[axis] = if g.chance(0.1) { g.size(100..=200) } else { g.size(1..=40) };
            let indices = g.indices(&by, dims[axis]);
            let inputs = inputs(g, indices, &by);
            Case::new(Op::ScatterElements { axis, reduction }, inputs)
        }
        2 | 3 => {
            let count = g.size(1..=dims.len());
            let rows = if g.chance(0.1) { vec![g.size(100..=200)] } else { g.dims(0..=2, 1..=9) };
            let updates = [&rows[..], &dims[count..]].concat();
            let indices = addresses(g, &rows, &dims[..count]);
            let inputs = inputs(g, indices, &updates);
            Case::new(Op::ScatterNd { reduction }, inputs)
        }
        _ => {
            let mut updates = dims.clone();
            updates[axis] = g.size(1..=dims[axis]);
            let most = (dims[axis] - updates[axis]) as i64;
            let starts: Vec<usize> = if axis > 0 && g.chance(0.5) { vec![dims[0]] } else { Vec::new() };
            let places = (0..starts.iter().product()).map(|_| i128::from(g.int(0..=most))).collect();
            let starts = Value::int(g.pick(&[DType::I32, DType::I64]), &starts, places);
            let mut inputs = inputs(g, starts, &updates);
            inputs.swap(1, 2);
            Case::new(Op::UpdateSlice { axis }, inputs)
        }
    }
}

#[test]
fn scatters_agree() {
    check(|g| scatter(g).graph());
}

/// A window that slides over some dimensions.
struct Sliding {
    sizes: Vec<usize>,
    kernel: Vec<usize>,
    strides: Vec<usize>,
    dilations: Vec<usize>,
    /// In front of each dimension, then behind each: no more than half of the window.
    pads: Vec<usize>,
}

impl Sliding {
    fn some(g: &mut Gen) -> Sliding {
        let spatial = g.size(1..=3);
        let (taps, more) = ([9, 4, 3][spatial - 1], [60, 9, 3][spatial - 1]);
        let kernel = g.dims(spatial..=spatial, 1..=taps);
        let (strides, dilations) = (g.dims(spatial..=spatial, 1..=3), g.dims(spatial..=spatial, 1..=3));
        let pads = (0..2 * spatial).map(|i| g.size(0..=kernel[i % spatial] / 2)).collect();
        let reach = |i: usize| (kernel[i] - 1) * dilations[i] + 1;
        let sizes = (0..spatial).map(|i| reach(i) + g.size(0..=more)).collect();
        Sliding { sizes, kernel, strides, dilations, pads }
    }
}

fn arranged(format: DataFormat, [images, channels]: [usize; 2], sizes: &[usize]) -> Vec<usize> {
    match format == DataFormat::ChannelsLast {
        false => [&[images, channels], sizes].concat(),
        true => [&[images], sizes, &[channels]].concat(),
    }
}

#[test]
fn pools_agree() {
    check(|g| {
        let Sliding { sizes, kernel, strides, dilations, pads } = Sliding::some(g);
        let (kind, format) = (g.variant(), g.variant());
        let number = |d: DType| !matches!(d, DType::Bool | DType::C64);
        let dtype = g.dtype_where(|d| d.is_float() || kind == PoolKind::Max && number(d));
        let x = arranged(format, [g.size(1..=2), g.size(1..=5)], &sizes);
        let (ceil_mode, count_include_pad) = (g.chance(0.5), g.chance(0.5));
        let op = Op::Pool { kind, kernel, strides, pads, dilations, ceil_mode, count_include_pad, format };
        Case::new(op, vec![g.value(dtype, &x, -3.0..3.0)]).graph()
    });
}

/// A convolution, or its transpose, with a bias or without.
fn convolution(g: &mut Gen, is_transposed: bool) -> (Graph, Bindings) {
    let Sliding { mut sizes, mut kernel, strides, dilations, mut pads } = Sliding::some(g);
    let spatial = sizes.len();
    let (most, taps) =
        ([[40, 9, 4], [14, 5, 3]][usize::from(is_transposed)][spatial - 1], [4, 3, 2][spatial - 1]);
    for i in 0..spatial {
        kernel[i] = kernel[i].min(taps);
        let reach = (kernel[i] - 1) * dilations[i] + 1;
        sizes[i] = if is_transposed { sizes[i].min(most) } else { reach + sizes[i] % most };
        if is_transposed && pads[i] + pads[spatial + i] >= (sizes[i] - 1) * strides[i] + reach {
            (pads[i], pads[spatial + i]) = (0, 0);
        }
    }
    let output_padding = strides.iter().map(|&s| g.size(0..=s - 1)).collect();
    let format = if is_transposed { DataFormat::ChannelsFirst } else { g.variant() };
    let (groups, own) = (g.size(1..=3), g.size(1..=4));
    let made = if is_transposed { g.size(1..=18) } else { g.size(4..=24) };
    let dtype = g.dtype_where(|d| !matches!(d, DType::Bool | DType::C64));
    let x = arranged(format, [g.size(1..=2), groups * own], &sizes);
    let channels = if is_transposed { [groups * own, made] } else { [groups * made, own] };
    let w = [&channels[..], &kernel].concat();
    let mut inputs = vec![g.value(dtype, &x, -1.0..1.0), g.value(dtype, &w, -1.0..1.0)];
    if g.chance(0.5) {
        inputs.push(g.value(dtype, &[groups * made], -1.0..1.0));
    }
    let op = match is_transposed {
        true => Op::ConvTranspose { strides, pads, dilations, output_padding, groups },
        false => Op::Conv { strides, pads, dilations, groups, format },
    };
    Case::new(op, inputs).graph()
}

#[test]
fn convolutions_agree() {
    let taken = check(|g| convolution(g, false));
    assert!(taken.len() >= 7, "{taken:?}");
}

#[test]
fn transposed_convolutions_agree() {
    let taken = check(|g| convolution(g, true));
    assert!(taken.len() >= 8, "{taken:?}");
}

const NUMBERS: [DType; 8] =
    [DType::F32, DType::F32, DType::F16, DType::BF16, DType::F64, DType::I32, DType::I64, DType::I8];

/// A product of small matrices, some of which are stored transposed, with something behind it or nothing.
fn product(g: &mut Gen, dtype: DType) -> Graph {
    let size = |g: &mut Gen| if g.chance(0.3) { g.size(40..=80) } else { g.size(3..=33) };
    let (batch, [m, n, k]) = (g.dims(0..=1, 1..=2), [size(g), size(g), g.size(1..=40)]);
    let mut graph = Graph::new("product");
    let mut operand = |g: &mut Gen, name: &str, dims: [usize; 2]| {
        let transposed = g.chance(0.3);
        let stored = if transposed { [dims[1], dims[0]] } else { dims };
        let x = graph.input(name, Shape::new(&[&batch[..], &stored].concat(), dtype));
        let mut perm: Vec<usize> = (0..batch.len() + 2).collect();
        perm.swap(batch.len(), batch.len() + 1);
        if transposed { graph.try_add(Op::Transpose { perm }, &[x]).unwrap() } else { x }
    };
    let (a, b) = (operand(g, "a", [m, k]), operand(g, "b", [k, n]));
    let mut y = graph.try_add(Op::MatMul, &[a, b]).unwrap();
    if g.chance(0.5) {
        let bias = graph.input("bias", Shape::new(&[n], dtype));
        let sum = graph.try_add(Op::Binary(BinaryOp::Add), &[y, bias]).unwrap();
        y = graph.try_add(Op::Activation(Activation::Relu), &[sum]).unwrap();
    }
    graph.set_outputs(vec![y]);
    graph
}

#[test]
fn matmuls_in_tiles_agree() {
    let taken = check(|g| {
        let dtype = g.pick(&NUMBERS);
        let graph = product(g, dtype);
        let bindings = random_bindings(&graph, &DimBinding::new(), g.bits());
        (graph, bindings)
    });
    let tiled = taken.iter().filter(|(name, _)| name.starts_with("tile"));
    let kinds: BTreeSet<&str> = tiled.clone().map(|(name, _)| name.trim_end_matches(".sizes")).collect();
    assert!(kinds.len() == 9 && tiled.map(|(_, n)| n).sum::<u32>() >= 250, "{taken:?}");
}

/// A scatter of so many updates, each of one element, into nine.
fn scattered(
    rows: Dim,
    reduction: ScatterOp,
    executable: &dyn Fn(&Graph) -> Executable,
    values: &Bindings,
) -> Vec<u8> {
    let mut graph = Graph::new("scatter");
    let x = graph.input("x", Shape::new(&[9], DType::F32));
    let indices = graph.input("i", Shape::from_dims(&[rows, Dim::Static(1)], DType::I64));
    let updates = graph.input("u", Shape::from_dims(&[rows], DType::F32));
    let y = graph.try_add(Op::ScatterNd { reduction }, &[x, indices, updates]).unwrap();
    graph.set_outputs(vec![y]);
    executable(&graph).run(values).unwrap()[0].encode()
}

#[test]
fn many_updates_are_applied_in_their_order() {
    let open = Dim::Dynamic(sym::named("updates"));
    for (count, reduction) in ScatterOp::ALL.iter().map(|&r| (300, r)).chain([(2100, ScatterOp::Add)]) {
        let (mut g, mut values) = (Gen::new(count as u64), Bindings::default());
        let numbers = |g: &mut Gen, n: usize| {
            let some = (0..n).map(|_| g.int(900..=1100) as f64 * 1.1e-3).collect();
            Value::float(DType::F32, &[n], some).rounded()
        };
        values.set_input("x", numbers(&mut g, 9));
        values.set_input("i", addresses(&mut g, &[count], &[9]));
        let dtype = DType::I64;
        let i = values.input("i").unwrap().clone();
        values.set_input("i", Value { dtype, ..i });
        values.set_input("u", numbers(&mut g, count));
        // Where nobody knows how many updates there are, one invocation applies one after the other.
        let run = |rows| scattered(rows, reduction, &|graph| compiled(graph, &native()), &values);
        assert_eq!(run(Dim::Static(count)), run(open), "{count} updates, {reduction:?}");
    }
}
