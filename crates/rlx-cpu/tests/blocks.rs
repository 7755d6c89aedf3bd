//! Matmuls by weights that stay quantised in blocks: the bits of dequantising first, or a few rows in fixed point where bits may change, and the
//! memory of not dequantising. Rows that are quantised, too, as the oracle has them.

mod common;

use common::{compile, run};
use rlx_cpu::CpuBackend;
use rlx_cpu::isa::Isa;
use rlx_ir::oracle::{Bindings, evaluate, evaluate_op};
use rlx_ir::testing::Gen;
use rlx_ir::{DType, DimBinding, Graph, GraphExt, NodeId, Op, Shape, Value};
use rlx_opt::{CompileOptions, Numerics};

/// Weights of `n` columns in blocks, with values.
struct Weights {
    n: usize,
    k: usize,
    size: usize,
    /// `[n·blocks, size]`, `[n·blocks]`, and zero points, if any.
    operands: Vec<Value>,
}

impl Weights {
    fn new(g: &mut Gen, dtype: DType, [n, k, size]: [usize; 3], zeros: bool) -> Weights {
        let count = n * k.div_ceil(size);
        let scales = (0..count).map(|_| 0.01 + 0.001 * g.size(0..=20) as f64).collect();
        let mut operands = vec![
            g.value(dtype, &[count, size], -128.0..255.0),
            Value::float(DType::F32, &[count], scales).rounded(),
        ];
        if zeros {
            operands.push(g.value(dtype, &[count], 0.0..15.0));
        }
        Weights { n, k, size, operands }
    }

    fn width(&self) -> usize {
        self.k.next_multiple_of(self.size)
    }

    /// As importers write them: `x · Wᵀ`, the weights dequantised.
    fn graph(&self, rows: usize) -> (Graph, Bindings) {
        let (mut g, mut bindings) = (Graph::new("blocks"), Bindings::default());
        let x = g.input("x", Shape::new(&[rows, self.k], DType::F32));
        let mut ids = Vec::new();
        for (i, value) in self.operands.iter().enumerate() {
            ids.push(g.param(format!("w{i}"), value.shape()));
            bindings.set_param(format!("w{i}"), value.clone());
        }
        let w = g.try_add(Op::Dequantize { axis: Some(0), to: DType::F32 }, &ids).unwrap();
        let w = transposed(&mut g, w, self);
        let y = g.try_add(Op::MatMul, &[x, w]).unwrap();
        let b = g.param("b", Shape::new(&[self.n], DType::F32));
        let y = g.try_add_(y, b).unwrap();
        g.set_outputs(vec![y]);
        (g, bindings)
    }

    /// The same matmul by floats.
    fn dequantized(&self, rows: usize) -> (Graph, Bindings) {
        let op = Op::Dequantize { axis: Some(0), to: DType::F32 };
        let operands: Vec<&Value> = self.operands.iter().collect();
        let floats = evaluate_op(&op, &operands, &[]).unwrap().swap_remove(0);
        let (mut g, mut bindings) = (Graph::new("floats"), Bindings::default());
        let x = g.input("x", Shape::new(&[rows, self.k], DType::F32));
        let w = g.param("w", floats.shape());
        bindings.set_param("w", floats);
        let w = transposed(&mut g, w, self);
        let y = g.try_add(Op::MatMul, &[x, w]).unwrap();
        let b = g.param("b", Shape::new(&[self.n], DType::F32));
        let y = g.try_add_(y, b).unwrap();
        g.set_outputs(vec![y]);
        (g, bindings)
    }
}

fn transposed(g: &mut Graph, w: NodeId, of: &Weights) -> NodeId {
    let w = g.try_reshape_to(w, &[of.n, of.width()].map(rlx_ir::Dim::Static)).unwrap();
    let to = [of.n, of.k].map(rlx_ir::Dim::Static).to_vec();
    let slice = Op::Slice { starts: vec![rlx_ir::Extent::Const(0); 2], steps: vec![1; 2], to };
    let w = g.try_add(slice, &[w]).unwrap();
    g.try_transpose(w, &[1, 0]).unwrap()
}

#[test]
fn quantised_weights_give_the_bits_of_dequantised_ones() {
    let mut g = Gen::new(7);
    let types = [DType::U4, DType::I4, DType::U8, DType::I8];
    // Partial panels, several chunks of the depth, cut blocks, blocks larger than a chunk.
    let sizes = [[1, 2, 2], [50, 40, 16], [48, 300, 32], [97, 129, 128], [20, 600, 256], [3, 70, 64]];
    for (i, size) in sizes.into_iter().enumerate() {
        for dtype in types {
            let weights = Weights::new(&mut g, dtype, size, i % 2 == 0);
            // Under `Fast` a few rows are in fixed point.
            for (rows, numerics) in
                [(1, Numerics::Strict), (5, Numerics::Strict), (70, Numerics::Strict), (70, Numerics::Fast)]
            {
                let options = CompileOptions::default().numerics(numerics);
                let x = g.value(DType::F32, &[rows, weights.k], -1.0..1.0);
                let b = g.value(DType::F32, &[weights.n], -1.0..1.0);
                let mut all = Vec::new();
                for threads in [1, 2] {
                    let backend = CpuBackend::new().with_threads(threads).expect("a pool");
                    for (graph, mut bindings) in [weights.graph(rows), weights.dequantized(rows)] {
                        bindings.set_input("x", x.clone());
                        bindings.set_param("b", b.clone());
                        let mut exec = compile(&graph, &backend, &options).unwrap();
                        all.push(run(&mut *exec, &bindings, &DimBinding::new()).unwrap());
                    }
                }
                assert!(all.iter().all(|y| *y == all[0]), "{dtype} {size:?} {rows} rows");
            }
        }
    }
}

/// The bits of the results of some rows with one thread and two, which agree.
fn results(weights: &Weights, x: &Value, b: &Value, numerics: Numerics) -> Vec<u8> {
    let (graph, mut bindings) = weights.graph(x.dims[0]);
    bindings.set_input("x", x.clone());
    bindings.set_param("b", b.clone());
    let run = |threads| {
        let backend = CpuBackend::new().with_threads(threads).expect("a pool");
        let options = CompileOptions::default().numerics(numerics);
        let mut exec = compile(&graph, &backend, &options).unwrap();
        run(&mut *exec, &bindings, &DimBinding::new()).unwrap().swap_remove(0)
    };
    let (one, two) = (run(1), run(2));
    assert_eq!(one, two);
    one
}

#[test]
fn rows_in_fixed_point_have_the_same_bits_beside_any_others() {
    let mut g = Gen::new(8);
    for (dtype, size) in [(DType::U4, [50, 300, 32]), (DType::I8, [97, 128, 64])] {
        let weights = Weights::new(&mut g, dtype, size, true);
        let b = g.value(DType::F32, &[weights.n], -1.0..1.0);
        // Rows 2 to 5 are not for fixed point.
        let mut numbers = g.value(DType::F32, &[7, weights.k], -1.0..1.0).floats().unwrap().to_vec();
        for (row, extreme) in [(2, f64::INFINITY), (3, f64::NAN), (4, 1e30), (5, 1e-30)] {
            let of_row = &mut numbers[row * weights.k..][..weights.k];
            match extreme {
                1e-30 => of_row.iter_mut().for_each(|x| *x *= extreme),
                _ => of_row[weights.k / 2] = extreme,
            }
        }
        let value = |rows: std::ops::Range<usize>| {
            let numbers = numbers[rows.start * weights.k..rows.end * weights.k].to_vec();
            Value::float(DType::F32, &[rows.len(), weights.k], numbers).rounded()
        };
        let fast = results(&weights, &value(0..7), &b, Numerics::Fast);
        let strict = results(&weights, &value(0..7), &b, Numerics::Strict);
        let row = |bits: &[u8], row: usize| bits[row * weights.n * 4..][..weights.n * 4].to_vec();
        let numbers_of = |bits: &[u8]| -> Vec<f32> {
            bits.chunks_exact(4).map(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]])).collect()
        };
        for at in 0..7 {
            // The bias behind the sums is added once, too.
            let (ours, floats) = (numbers_of(&row(&fast, at)), numbers_of(&row(&strict, at)));
            let most = floats.iter().fold(0.0, |most: f32, y| most.max(y.abs()));
            let close = ours.iter().zip(&floats).all(|(y, want)| (y - want).abs() <= 1e-5 * most);
            assert!(close || (2..=5).contains(&at), "{dtype}, row {at}: {ours:?} {floats:?}");
            let alone = results(&weights, &value(at..at + 1), &b, Numerics::Fast);
            assert_eq!(row(&fast, at), row(&alone, 0), "{dtype}, row {at}");
            let fixed = Isa::detect().has_vnni() && !(2..=5).contains(&at);
            assert_eq!(row(&fast, at) != row(&strict, at), fixed, "{dtype}, row {at}");
        }
    }
}

#[test]
fn weights_of_four_bits_are_never_floats_in_memory() {
    let weights = Weights::new(&mut Gen::new(1), DType::U4, [480, 512, 32], true);
    let (graph, _) = weights.graph(1);
    let backend = CpuBackend::new().with_threads(1).expect("a pool of one thread");
    let exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
    let lir = exec.lir();
    let elements = 480 * 512;
    let bytes =
        |b: &rlx_ir::lir::Buffer| b.elements.as_const().map_or(0, |n| n as usize * b.dtype.bits() / 8);
    let largest = lir.buffers.iter().map(bytes).max().unwrap();
    // The weights themselves, as they are stored and as they are packed.
    assert_eq!(largest, elements / 2, "{lir}");
    let all: usize = lir.buffers.iter().map(bytes).sum();
    assert!(all < 2 * elements, "{all} bytes for {elements} weights\n{lir}");
}

/// Rows quantised to 8 bits by weights `[n, blocks, size]` with what is added behind: zero points are whole numbers, or a half more.
fn dynamic(
    g: &mut Gen,
    dtype: DType,
    [n, k, size]: [usize; 3],
    half: f64,
) -> (impl Fn(usize) -> Graph + use<>, Bindings) {
    let blocks = k.div_ceil(size);
    let mut bindings = Bindings::default();
    let zeros = (0..blocks * n).map(|_| g.size(0..=15) as f64 + half).collect();
    let scales = (0..blocks * n).map(|_| 0.01 + 0.001 * g.size(0..=20) as f64).collect();
    bindings.set_param("w", g.value(dtype, &[n, blocks, size], -128.0..255.0));
    bindings.set_param("scale", Value::float(DType::F32, &[blocks, n], scales).rounded());
    bindings.set_param("zero", Value::float(DType::F32, &[blocks, n], zeros));
    bindings.set_param("b", g.value(DType::F32, &[n], -1.0..1.0));
    let graph = move |rows: usize| {
        let mut g = Graph::new("dynamic");
        let x = g.input("x", Shape::new(&[rows, k], DType::F32));
        let params = Shape::new(&[blocks, n], DType::F32);
        let w = g.param("w", Shape::new(&[n, blocks, size], dtype));
        let operands = [x, w, g.param("scale", params.clone()), g.param("zero", params)];
        let y = g.try_add(Op::DynamicMatMulBlocks, &operands).unwrap();
        let b = g.param("b", Shape::new(&[n], DType::F32));
        let y = g.try_add_(y, b).unwrap();
        g.set_outputs(vec![y]);
        g
    };
    (graph, bindings)
}

#[test]
fn quantised_rows_are_the_oracles_and_have_the_same_bits_beside_any_others() {
    let mut g = Gen::new(9);
    let types = [DType::U4, DType::I4, DType::U8, DType::I8];
    // Partial panels and blocks, several parts of the depth; blocks that are too long or too odd for bytes.
    let sizes = [[50, 300, 32], [97, 128, 64], [20, 1100, 256], [9, 600, 512], [33, 70, 10]];
    for (i, size) in sizes.into_iter().enumerate() {
        for (j, dtype) in types.into_iter().enumerate() {
            let (graph, bindings) = dynamic(&mut g, dtype, size, if (i + j) % 3 == 0 { 0.5 } else { 0.0 });
            let [n, k, _] = size;
            let x = g.value(DType::F32, &[70, k], -1.0..1.0);
            let run_rows = |rows: std::ops::Range<usize>, numerics: Numerics, threads: usize| {
                let numbers = x.floats().unwrap()[rows.start * k..rows.end * k].to_vec();
                let mut bindings = bindings.clone();
                bindings.set_input("x", Value::float(DType::F32, &[rows.len(), k], numbers));
                let backend = CpuBackend::new().with_threads(threads).expect("a pool");
                let options = CompileOptions::default().numerics(numerics);
                let graph = graph(rows.len());
                let mut exec = compile(&graph, &backend, &options).unwrap();
                let bits = run(&mut *exec, &bindings, &DimBinding::new()).unwrap().swap_remove(0);
                (bits, evaluate(&graph, &bindings).unwrap().swap_remove(0))
            };
            let (all, oracle) = run_rows(0..70, Numerics::Fast, 1);
            let numbers = all.chunks_exact(4).map(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]]));
            let oracle = oracle.floats().unwrap();
            let most = oracle.iter().fold(0.0, |most: f64, y| most.max(y.abs()));
            for (at, (y, want)) in numbers.zip(oracle).enumerate() {
                let error = (f64::from(y) - want).abs();
                assert!(error <= 4e-6 * most, "{dtype} {size:?} at {at}: {y}, not {want}");
            }
            assert_eq!(all, run_rows(0..70, Numerics::Strict, 2).0, "{dtype} {size:?}");
            for rows in [0..1, 3..5, 64..70] {
                let (some, _) = run_rows(rows.clone(), Numerics::Fast, 2);
                assert_eq!(some, all[rows.start * n * 4..rows.end * n * 4], "{dtype} {size:?} {rows:?}");
            }
        }
    }
}
