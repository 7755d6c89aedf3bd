//! Keys and values in pages of a table, which matmuls of few rows find by themselves: no copy of them is made.

mod common;

use common::{agree, apple, bits_of_variants, compiled, native, shorts, try_module, words};
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{AttentionShape, Gen, random_paged_attention};
use rlx_ir::{DType, Dim, ErrorKind, Graph, Op, OpKind, Value};
use rlx_kernel::{KernelTarget, step_variants};

fn targets() -> [KernelTarget; 5] {
    [native(), words(), shorts(), apple(), KernelTarget { is_processor: true, ..words() }]
}

fn shape(g: &mut Gen) -> AttentionShape {
    AttentionShape {
        batch: g.size(1..=3),
        kv_heads: g.size(1..=3),
        groups: g.size(1..=3),
        queries: g.pick(&[1, 1, 2, 5, 19]),
        keys: g.size(1..=14),
        head_dim: g.size(1..=9),
        value_dim: g.size(1..=9),
    }
}

/// How many gathers are within regions, and how many write what they pick.
fn gathers(graph: &Graph, target: &KernelTarget) -> [usize; 2] {
    let module = try_module(graph, target).unwrap();
    let mut found = [0; 2];
    for step in &module.steps {
        let Op::Region { body } = &module.graph.node(step.node).op else {
            found[1] += usize::from(module.graph.node(step.node).op.kind() == OpKind::Gather);
            continue;
        };
        let nodes = body.graph.nodes();
        let count = nodes.iter().filter(|n| n.op.kind() == OpKind::Gather).count();
        found[usize::from(!nodes.iter().any(|n| n.op == Op::MatMul))] += count;
    }
    found
}

fn is_whole(graph: &Graph, target: &KernelTarget) -> bool {
    try_module(graph, target).unwrap().graph.nodes().iter().any(|n| n.op.kind() == OpKind::Attention)
}

#[test]
fn random_attention_reads_pages_where_they_are() {
    let (mut together, mut apart) = (0, 0);
    for seed in 0..520 {
        let mut g = Gen::new(seed);
        let dtype = g.pick(&[DType::F32, DType::F32, DType::F16, DType::BF16]);
        let (shape, page) = (shape(&mut g), g.size(1..=5));
        let (graph, bindings) = random_paged_attention(&mut g, dtype, &shape, page);
        let target = &targets()[seed as usize % 5];
        // Attention of many queries is one kernel, of keys and values that are copied.
        if !is_whole(&graph, target) {
            let [within, steps] = gathers(&graph, target);
            (together, apart) = (together + within, apart + steps);
        }
        agree(&graph, &bindings, target);
    }
    // All of them: none has so many queries that a copy pays.
    assert!(together > 600, "{together} {apart}");
    assert_eq!(apart, 0);
}

#[test]
fn all_variants_give_the_same_bits() {
    let mut several = 0;
    for seed in 0..24 {
        let mut g = Gen::new(1000 + seed);
        let shape = AttentionShape { queries: g.pick(&[1, 4, 9, 33]), keys: 40, ..shape(&mut g) };
        let (graph, bindings) = random_paged_attention(&mut g, DType::F32, &shape, 8);
        let target = &targets()[seed as usize % 5];
        let results = bits_of_variants(&graph, &bindings, target);
        several += usize::from(results.len() > 2);
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "seed {seed} on {}", target.name);
    }
    assert!(several > 12, "{several}");
}

/// A left matrix in pages along the depth, by a right one of which neighbours are read together: along its columns, or along the depth.
#[test]
fn rows_in_pages_are_multiplied_by_neighbours() {
    for (seed, transposed) in (0..12).zip([false, true].into_iter().cycle()) {
        let mut g = Gen::new(seed);
        let (rows, page, pages, columns) = (g.size(1..=5), 4 * g.size(1..=3), g.size(2..=4), 16);
        let depth = page * pages;
        let (mut graph, mut bindings) = (Graph::new("rows"), Bindings::default());
        let mut input = |graph: &mut Graph, name: &str, value: Value| {
            let id = graph.input(name, value.shape());
            bindings.set_input(name, value);
            id
        };
        let table = input(&mut graph, "table", g.value(DType::F32, &[6, page], -1.0..1.0));
        let list = input(&mut graph, "list", g.indices(&[rows, pages], 6));
        let stored = if transposed { [columns, depth] } else { [depth, columns] };
        let mut w = input(&mut graph, "w", g.value(DType::F32, &stored, -1.0..1.0));
        if transposed {
            w = graph.try_add(Op::Transpose { perm: vec![1, 0] }, &[w]).unwrap();
        }
        let x = graph.try_add(Op::Gather { axis: 0 }, &[table, list]).unwrap();
        let to = vec![Dim::Static(rows), Dim::Static(depth)];
        let x = graph.try_add(Op::Reshape { to }, &[x]).unwrap();
        let y = graph.try_add(Op::MatMul, &[x, w]).unwrap();
        graph.set_outputs(vec![y]);
        for target in targets() {
            assert_eq!(gathers(&graph, &target), [1, 0]);
            let module = try_module(&graph, &target).unwrap();
            let names: Vec<String> =
                module.steps.iter().flat_map(|step| step_variants(step, &module, &target).unwrap()).collect();
            let wide = if transposed { "deep" } else { "wide" };
            assert!(names.iter().any(|name| name.starts_with(wide)), "{names:?}");
            agree(&graph, &bindings, &target);
            let results = bits_of_variants(&graph, &bindings, &target);
            assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "seed {seed} on {}", target.name);
        }
    }
}

#[test]
fn a_page_that_is_not_there_is_an_error() {
    for dtype in [DType::F32, DType::F16] {
        for target in targets() {
            let mut g = Gen::new(7);
            let shape = AttentionShape {
                batch: 1,
                kv_heads: 1,
                groups: 2,
                queries: 1,
                keys: 8,
                head_dim: 4,
                value_dim: 4,
            };
            let (graph, mut bindings): (Graph, Bindings) = random_paged_attention(&mut g, dtype, &shape, 4);
            assert!(gathers(&graph, &target)[0] > 0);
            let list =
                graph.inputs().find(|n| matches!(&n.op, Op::Input { name } if name == "pages")).unwrap();
            let executable = compiled(&graph, &target);
            for bad in [1 << 20, -(1 << 20)] {
                bindings.set_input("pages", Value::int(list.shape.dtype(), &[1, 2], vec![0, bad]));
                assert_eq!(oracle::evaluate(&graph, &bindings).unwrap_err().kind(), ErrorKind::Value);
                let error = executable.run(&bindings).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Value, "{}: {error}", target.name);
                assert!(error.to_string().contains(&bad.to_string()), "{}: {error}", target.name);
            }
        }
    }
}
