//! Sampling of images in one step, against the oracle: windows at the borders and beyond them, positions that are no numbers, blocks of points, and the
//! same bits on one, two and three threads.

mod common;

use common::{against_oracle, backends, compile, f32s, oracle, run};
use rlx_cpu::CpuBackend;
use rlx_ir::op::{Outside, SampleMode};
use rlx_ir::ops::attr::NamedVariant;
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, Dim, DimBinding, ErrorKind, Graph, Op, Shape, Value, sym};
use rlx_opt::CompileOptions;

/// Positions along a dimension of `size`, inside of the image, near its borders and further out; not half-way between two elements.
fn positions(g: &mut Gen, outside: Outside, dims: &[usize], size: usize) -> Value {
    let far = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e30, -1e30, -2147483648.0, 16777216.0];
    // What is reflected often hinges on the last bit.
    let exact = matches!(outside, Outside::Zeros | Outside::Border);
    let reach = 16 * size.max(1) as i64;
    let one = |g: &mut Gen| match g.size(0..=9) {
        0 if exact => g.pick(&far),
        0 | 1 => g.pick(&[-1.0, 0.0, size as f64 - 1.0, size as f64]),
        2 => g.int(-reach..=2 * reach) as f64 / 16.0 + 0.03125,
        _ => g.int(0..=reach - 1) as f64 / 16.0 + 0.03125,
    };
    Value::float(DType::F32, dims, (0..dims.iter().product()).map(|_| one(g)).collect())
}

/// An image `[N, C, …]` sampled at `[N, P…]`.
fn sampled(g: &mut Gen, op: (SampleMode, Outside), x: &[usize], at: &[usize]) -> (Graph, Bindings) {
    let (mut graph, mut bindings) = (Graph::new("sampled"), Bindings::default());
    let mut inputs = vec![graph.input("x", f32s(x))];
    bindings.set_input("x", g.value(DType::F32, x, -2.0..2.0));
    for (i, &size) in x[2..].iter().enumerate() {
        inputs.push(graph.input(format!("p{i}"), f32s(at)));
        bindings.set_input(format!("p{i}"), positions(g, op.1, at, size));
    }
    let y = graph.try_add(Op::GridSample { mode: op.0, outside: op.1 }, &inputs).unwrap();
    graph.set_outputs(vec![y]);
    (graph, bindings)
}

/// On every instruction set against the oracle, and on three threads with the bits of one.
fn check(graph: &Graph, bindings: &Bindings) {
    let want = oracle(graph, bindings);
    let mut all = backends();
    let name = all.last().expect("one at least").0.replace("2 threads", "3 threads");
    all.push((name, CpuBackend::new().with_threads(3).expect("a pool")));
    let mut best: Option<Vec<Vec<u8>>> = None;
    for (name, backend) in all {
        let mut exec = compile(graph, &backend, &CompileOptions::default()).unwrap();
        assert_eq!(exec.lir().steps.len(), 1, "{}", exec.lir());
        let got = run(&mut *exec, bindings, &DimBinding::new()).unwrap();
        if let Some(difference) = against_oracle(&want, &got) {
            panic!("{name}: {difference}\n{graph}");
        }
        if !name.contains("1 thread") {
            assert!(best.as_ref() == Some(&got), "{name}: threads change bits\n{graph}");
        }
        best = Some(got);
    }
}

#[test]
fn every_mode_and_outside_in_one_to_three_dimensions() {
    let g = &mut Gen::new(91);
    for &mode in SampleMode::ALL {
        for &outside in Outside::ALL {
            for spatial in 1..=3 {
                for _ in 0..3 {
                    let mut x = vec![g.size(1..=2), g.size(1..=10)];
                    x.extend((0..spatial).map(|_| g.size(1..=9)));
                    let at = [vec![x[0]], g.dims(0..=3, 1..=7)].concat();
                    let (graph, bindings) = sampled(g, (mode, outside), &x, &at);
                    check(&graph, &bindings);
                }
            }
        }
    }
}

#[test]
fn points_of_several_blocks_and_channels_of_several_threads() {
    let g = &mut Gen::new(92);
    for (x, at) in [
        (&[1, 1, 5, 7][..], &[1, 5000][..]),
        (&[2, 3, 31, 2], &[2, 70, 71]),
        (&[1, 50, 6, 40], &[1, 33]),
        (&[3, 17, 4, 4], &[3, 20, 5]),
        (&[1, 9, 2, 3], &[1, 66000]),
    ] {
        let outside = g.variant();
        let (graph, bindings) = sampled(g, (SampleMode::Linear, outside), x, at);
        check(&graph, &bindings);
    }
}

#[test]
fn nothing_is_sampled_from_and_at_nothing() {
    let g = &mut Gen::new(93);
    for (x, at) in [
        (&[0, 3, 4, 5][..], &[0, 6][..]),
        (&[2, 0, 4, 5], &[2, 6]),
        (&[2, 3, 4, 5], &[2, 0, 6]),
        (&[2, 3, 0, 5], &[2, 0]),
        (&[2, 0, 0, 5], &[2, 4]),
        (&[0, 1, 1 << 16, 1 << 16], &[0, 1 << 16, 1 << 16]),
    ] {
        let (graph, bindings) = sampled(g, (SampleMode::Cubic, Outside::Border), x, at);
        let want = oracle(&graph, &bindings);
        for (name, backend) in backends() {
            let mut exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
            let got = run(&mut *exec, &bindings, &DimBinding::new()).unwrap();
            assert_eq!(against_oracle(&want, &got), None, "{name}");
        }
    }
}

#[test]
fn an_infinity_that_has_no_weight_stays_out_of_results() {
    let mut x = vec![f64::INFINITY; 16];
    (x[5], x[6], x[9], x[10]) = (1.0, 2.0, 3.0, 4.0);
    let x = Value::float(DType::F32, &[1, 1, 4, 4], x);
    let (mut graph, mut bindings) = (Graph::new("infinities"), Bindings::default());
    let inputs =
        [("x", x), ("p0", list(&[1.0, 1.5, 2.0])), ("p1", list(&[1.0, 1.5, 2.0]))].map(|(name, value)| {
            let id = graph.input(name, value.shape());
            bindings.set_input(name, value);
            id
        });
    let op = Op::GridSample { mode: SampleMode::Linear, outside: Outside::Zeros };
    let y = graph.try_add(op, &inputs).unwrap();
    graph.set_outputs(vec![y]);
    assert_eq!(oracle(&graph, &bindings)[0].to_f64(), [1.0, 2.5, 4.0]);
    check(&graph, &bindings);
}

fn list(values: &[f64]) -> Value {
    Value::float(DType::F32, &[1, values.len()], values.to_vec())
}

#[test]
fn sizes_that_are_open_are_bound_and_held_to_each_other() {
    let symbols = [sym::BATCH, sym::named("height"), sym::named("width"), sym::named("points")];
    let [n, h, w, p] = symbols.map(Dim::Dynamic);
    let mut graph = Graph::new("open");
    let x = graph.input("x", Shape::from_dims(&[n, Dim::Static(3), h, w], DType::F32));
    let [y0, x0] = ["p0", "p1"].map(|name| graph.input(name, Shape::from_dims(&[n, p], DType::F32)));
    let op = Op::GridSample { mode: SampleMode::Cubic, outside: Outside::ReflectEdges };
    let y = graph.try_add(op, &[x, y0, x0]).unwrap();
    graph.set_outputs(vec![y]);
    let g = &mut Gen::new(94);
    let (_, backend) = backends().pop().unwrap();
    let mut exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
    for sizes in [[1, 3, 8, 20], [2, 1, 2, 5], [2, 9, 4, 64], [1, 0, 4, 2]] {
        let [n, h, w, p] = sizes;
        let mut bindings = Bindings::default();
        bindings.set_input("x", g.value(DType::F32, &[n, 3, h, w], -1.0..1.0));
        bindings.set_input("p0", positions(g, Outside::ReflectEdges, &[n, p], h));
        bindings.set_input("p1", positions(g, Outside::ReflectEdges, &[n, p], w));
        let pairs: Vec<(u32, usize)> = symbols.into_iter().zip(sizes).collect();
        let dims = DimBinding::from_pairs(&pairs);
        let got = run(&mut *exec, &bindings, &dims);
        if h == 0 {
            assert_eq!(got.unwrap_err().kind(), ErrorKind::Value);
            continue;
        }
        let want = oracle(&graph.bind(&dims), &bindings);
        assert_eq!(against_oracle(&want, &got.unwrap()), None, "{sizes:?}");
    }
}
