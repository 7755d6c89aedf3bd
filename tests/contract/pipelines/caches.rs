//! Compile caches: by key, by sizes, by buckets of sizes.

use rlx_ir::op::BinaryOp;
use rlx_runtime::*;

use super::{WIDTH, block, close, exact, f32s, input, linear, options, panic_text, set_params, sizes};

rlx_contract::on_every_device!(
    a_cache_by_key_keeps_graphs_apart,
    a_graph_with_open_dimensions_has_variants,
    buckets_take_sizes_up_to_their_upper,
    padded_runs_equal_exact_compiles,
    padded_runs_of_fixed_graphs_cut_rows,
    padded_runs_reject_what_does_not_fit,
    padding_panics_with_the_errors_text needs Unwinding,
);

/// `y = x·factor` over two elements.
fn scaled(factor: f32) -> Graph {
    let mut g = Graph::new("scaled");
    let x = g.input("x", f32s(&[2]));
    let f = g.constant(ConstData::new(DType::F32, &[], factor.to_le_bytes().to_vec()).unwrap());
    let y = g.binary(BinaryOp::Mul, x, f, f32s(&[2]));
    g.set_outputs(vec![y]);
    g
}

fn a_cache_by_key_keeps_graphs_apart(d: Device) {
    let options = options();
    let mut cache = CompileCache::with_capacity(d, 2);
    assert_eq!((cache.device(), cache.is_empty()), (d, true));
    let x = [("x", &[1.0f32, 2.0][..])];
    assert_eq!(cache.get_or_compile(1, || scaled(2.0)).run(&x), [[2.0, 4.0]]);
    assert_eq!(cache.get_or_compile(2, || scaled(3.0)).run(&x), [[3.0, 6.0]]);
    assert_eq!(cache.get_or_compile(1, || unreachable!("a hit")).run(&x), [[2.0, 4.0]]);
    let strict = options.numerics(Numerics::Strict);
    cache.try_get_or_compile_with(2, || scaled(5.0), &strict).unwrap();
    assert!(!cache.contains(1) && cache.contains(2) && cache.len() == 2);
    assert!(CompileCache::try_with_capacity(d, 0).is_err());
    let unknown = || {
        let mut g = Graph::new("unknown");
        let x = g.input("x", f32s(&[1]));
        let op = Op::Custom { name: "unheard-of".into(), num_inputs: 1, attrs: Default::default() };
        let y = g.add_node(op, vec![x], f32s(&[1]));
        g.set_outputs(vec![y]);
        g
    };
    assert!(cache.try_get_or_compile(3, unknown).unwrap_err().to_string().contains("Custom"));
    assert_eq!(cache.len(), 2);
}

fn a_graph_with_open_dimensions_has_variants(d: Device) {
    rlx_contract::register();
    let graph = linear().lower_to_mir().unwrap().into_graph();
    let mut cache = DynamicDimCompileCache::new(d, graph);
    assert_eq!((cache.device(), cache.len(), cache.graph().name.as_str()), (d, 0, "linear"));
    cache.get_or_compile(&sizes(1, 1)).set_param("w", &[1.0, 2.0]);
    assert_eq!(cache.get_or_compile(&sizes(1, 2)).run(&[("x", &[1.0, 0.0, 0.0, 1.0])]), [[1.0, 2.0]]);
    cache.get_or_compile(&sizes(1, 1));
    assert_eq!((cache.len(), cache.is_empty()), (2, false));
    // What is not bound stays open.
    let any = cache.get_or_compile(&DimBinding::from_pairs(&[(sym::BATCH, 1)]));
    assert_eq!(any.run(&[("x", &[1.0; 6])]), [[3.0; 3]]);
}

fn buckets_take_sizes_up_to_their_upper(d: Device) {
    rlx_contract::register();
    let rows = |upper: u64| {
        let mut g = Graph::new("rows");
        let shape = f32s(&[upper as usize, 2]);
        let (x, w) = (g.input("x", shape.clone()), g.param("w", f32s(&[2])));
        let y = g.binary(BinaryOp::Mul, x, w, shape);
        g.set_outputs(vec![y]);
        g
    };
    let mut cache = BucketedCompileCache::new(d, vec![1..5, 5..17]);
    let (upper, graph) = cache.get_or_compile(2, rows).unwrap();
    assert_eq!((upper, graph.inputs()[0].shape.clone()), (4, f32s(&[4, 2])));
    graph.set_param("w", &[1.0, -1.0]);
    assert_eq!(cache.get_or_compile(4, |_| unreachable!("the same bucket")).unwrap().0, 4);
    // Parameters carry over from bucket to bucket.
    let (upper, graph) = cache.get_or_compile(5, rows).unwrap();
    assert_eq!((upper, graph.run(&[("x", &[2.0; 32])])[0][..2].to_vec()), (16, vec![2.0, -2.0]));
    assert!(cache.get_or_compile(0, rows).is_none() && cache.get_or_compile(17, rows).is_none());
    assert_eq!((cache.len(), cache.buckets().count()), (2, 2));
    let ladder = BucketedCompileCache::power_of_two_ladder(d, 16, 100);
    let uppers: Vec<u64> = ladder.buckets().map(|r| r.end - 1).collect();
    assert_eq!(uppers, [16, 32, 64, 100]);
    assert_eq!([15, 16, 17, 100, 101].map(|n| ladder.upper(n)), [None, Some(16), Some(32), Some(100), None]);
    assert_eq!(BucketedCompileCache::power_of_two_ladder(d, 2, 1).buckets().count(), 0);
    assert!(BucketedCompileCache::power_of_two_ladder(d, 1, u64::MAX).upper(u64::MAX - 1).is_some());
}

fn padded_runs_equal_exact_compiles(d: Device) {
    rlx_contract::register();
    let build = |_upper: u64| {
        let batch = DimBinding::from_pairs(&[(sym::BATCH, 1)]);
        block().lower_to_mir().unwrap().into_graph().bind(&batch)
    };
    let mut cache = BucketedCompileCache::power_of_two_ladder(d, 1, 32);
    set_params(cache.get_or_compile(8, build).unwrap().1);
    for seq in [1, 3, 8, 9, 20, 32] {
        let x = input(1, seq);
        let (upper, outputs) =
            cache.run_padded(seq as u64, seq, build, &[("x", &x, WIDTH)], &[WIDTH]).unwrap();
        assert_eq!(upper, (seq as u64).next_power_of_two());
        close(&outputs[0], &exact(d, 1, seq));
    }
    // A bucket larger than need be gives the same, and its graph is whole for others again.
    let x = input(1, 3);
    let (upper, outputs) = cache.run_padded(32, 3, build, &[("x", &x, WIDTH)], &[WIDTH]).unwrap();
    assert_eq!(upper, 32);
    close(&outputs[0], &exact(d, 1, 3));
    let (_, graph) = cache.get_or_compile(32, build).unwrap();
    close(&graph.run(&[("x", &input(1, 32))])[0], &exact(d, 1, 32));
}

/// `y = x + t` over `upper` rows of two elements, and the table `t` of a row.
fn added(upper: u64) -> Graph {
    let (shape, mut g) = (f32s(&[upper as usize, 2]), Graph::new("added"));
    let (x, t) = (g.input("x", shape.clone()), g.input("t", f32s(&[2])));
    let y = g.binary(BinaryOp::Add, x, t, shape);
    g.set_outputs(vec![y, t]);
    g
}

fn padded_runs_of_fixed_graphs_cut_rows(d: Device) {
    rlx_contract::register();
    let mut cache = BucketedCompileCache::power_of_two_ladder(d, 1, 8);
    let x = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    let inputs = [("x", &x[..], 2), ("t", &[10.0, 20.0][..], 0)];
    let (upper, outputs) = cache.run_padded(3, 3, added, &inputs, &[2, 0]).unwrap();
    assert_eq!((upper, outputs.len()), (4, 2));
    assert_eq!(outputs[0], [11.0, 22.0, 13.0, 24.0, 15.0, 26.0]);
    assert_eq!(outputs[1], [10.0, 20.0]);
    assert!(cache.run_padded(9, 3, added, &inputs, &[2, 0]).is_none());
    assert_eq!(pad_rows(&[1.0, 2.0], 1, 2, 2), [1.0, 2.0, 0.0, 0.0]);
    assert_eq!(slice_rows(&[1.0, 2.0, 0.0, 0.0], 1, 2), [1.0, 2.0]);
}

fn padded_runs_reject_what_does_not_fit(d: Device) {
    rlx_contract::register();
    let mut cache = BucketedCompileCache::power_of_two_ladder(d, 1, 8);
    let (x, t) = ([0.0f32; 6], [0.0f32; 2]);
    let mut fails = |rows: usize, x_inner: usize, inners: &[usize]| {
        let inputs = [("x", &x[..], x_inner), ("t", &t[..], 0)];
        cache.try_run_padded(3, rows, added, &inputs, inners).unwrap_err().to_string()
    };
    assert!(fails(2, 2, &[2, 0]).contains("6 elements are not 2 rows of 2"));
    assert!(fails(6, 1, &[2, 0]).contains("6 rows are more than the 4"));
    assert!(fails(3, 2, &[2]).contains("the graph has 2"));
    assert!(fails(3, 2, &[5, 0]).contains("less than 3 rows of 5"));
    assert!(try_pad_rows(&[1.0], 1, usize::MAX, 1).is_err() && try_slice_rows(&[1.0], 2, 1).is_err());
    let error = try_pad_rows(&[1.0], 2, 2, 1).unwrap_err();
    assert!(error.to_string().contains("1 elements are not 2 rows of 1"), "{error}");
    assert!(try_slice_rows(&[1.0], 2, 1).unwrap_err().to_string().contains("less than 2 rows"));
}

fn padding_panics_with_the_errors_text(d: Device) {
    rlx_contract::register();
    let mut cache = BucketedCompileCache::power_of_two_ladder(d, 1, 8);
    let (x, t) = ([0.0f32; 6], [0.0f32; 2]);
    for (rows, x_inner, inners) in [(2, 2, &[2, 0][..]), (6, 1, &[2, 0]), (3, 2, &[2]), (3, 2, &[5, 0])] {
        let inputs = [("x", &x[..], x_inner), ("t", &t[..], 0)];
        let error = cache.try_run_padded(3, rows, added, &inputs, inners).unwrap_err();
        let text = panic_text(|| drop(cache.run_padded(3, rows, added, &inputs, inners)));
        assert_eq!(text, error.to_string());
    }
    let error = try_pad_rows(&[1.0], 2, 2, 1).unwrap_err();
    assert_eq!(panic_text(|| drop(pad_rows(&[1.0], 2, 2, 1))), error.to_string());
    let error = try_slice_rows(&[1.0], 2, 1).unwrap_err();
    assert_eq!(panic_text(|| drop(slice_rows(&[1.0], 2, 1))), error.to_string());
}
