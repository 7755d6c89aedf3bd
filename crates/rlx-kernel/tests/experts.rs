//! The experts of a mixture: rows that each choose a matrix. They are one kernel, which reads the matrices where they are: none is copied.

mod common;

use std::sync::Arc;

use common::{agree, apple, bits_of_variants, compiled, native, processor, shorts, try_module, words};
use rlx_ir::op::{Activation, BinaryOp};
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{Gen, difference, tolerance};
use rlx_ir::{DType, Dim, ErrorKind, Graph, NodeId, Op, OpKind, Shape, Value, sym};
use rlx_kernel::interp::Executable;
use rlx_kernel::{KernelTarget, few_rows, step_variants};

fn targets() -> [KernelTarget; 5] {
    [native(), words(), shorts(), apple(), processor()]
}

/// Random shapes; with `RLX_TEST_ALL` all of them.
fn cases() -> u64 {
    if std::env::var_os("RLX_TEST_ALL").is_some() { 600 } else { 40 }
}

/// Rows, the choices of each, and their matrices.
struct Mixture {
    dtype: DType,
    rows: usize,
    /// Whether the number of rows is open.
    is_open: bool,
    /// Choices of each row, if it may have several.
    choices: Option<usize>,
    /// Whether each of them has a row of its own.
    own: bool,
    /// Matrices, depth and columns.
    sizes: [usize; 3],
    /// Whether matrices are stored transposed.
    transposed: bool,
    /// Whether there are a bias of all matrices and an activation.
    epilogue: bool,
}

impl Mixture {
    fn some(g: &mut Gen) -> Mixture {
        let mut size = |most: usize| g.size(1..=most) * g.pick(&[1, 1, 2, 4, 8]);
        let (k, n) = (size(12), size(12));
        Mixture {
            dtype: g.pick(&[DType::F32, DType::F32, DType::F16, DType::BF16, DType::I32]),
            rows: g.size(1..=9),
            is_open: g.chance(0.4),
            choices: g.chance(0.7).then(|| g.size(1..=3)),
            own: g.chance(0.5),
            sizes: [g.size(1..=6), k, n],
            transposed: g.chance(0.4),
            epilogue: g.chance(0.5),
        }
    }

    fn graph(&self, g: &mut Gen) -> (Graph, Bindings) {
        let (mut graph, mut bindings) = (Graph::new("mixture"), Bindings::default());
        let [experts, k, n] = self.sizes;
        let rows = if self.is_open { Dim::Dynamic(sym::named("rows")) } else { Dim::Static(self.rows) };
        let mut input = |graph: &mut Graph, name: &str, value: Value, first: Dim| -> NodeId {
            let mut dims = value.shape().dims().to_vec();
            dims[0] = first;
            let id = graph.input(name, Shape::from_dims(&dims, value.dtype));
            bindings.set_input(name, value);
            id
        };
        let lead: Vec<usize> = [self.rows].into_iter().chain(self.choices).collect();
        let own: Vec<usize> =
            [self.rows].into_iter().chain(self.choices.map(|c| if self.own { c } else { 1 })).collect();
        let x = g.value(self.dtype, &[&own[..], &[k]].concat(), -1.0..1.0);
        let x = input(&mut graph, "x", x, rows);
        let stored = if self.transposed { [experts, n, k] } else { [experts, k, n] };
        let w = g.value(self.dtype, &stored, -1.0..1.0);
        let mut w = input(&mut graph, "w", w, Dim::Static(experts));
        if self.transposed {
            w = graph.try_add(Op::Transpose { perm: vec![0, 2, 1] }, &[w]).unwrap();
        }
        let chosen = input(&mut graph, "chosen", g.indices(&lead, experts), rows);
        let mut y = graph.try_add(Op::GroupedMatMul, &[x, w, chosen]).unwrap();
        if self.epilogue {
            let bias = input(&mut graph, "bias", g.value(self.dtype, &[n], -1.0..1.0), Dim::Static(n));
            y = graph.try_add(Op::Binary(BinaryOp::Add), &[y, bias]).unwrap();
            y = graph.try_add(Op::Activation(Activation::Relu), &[y]).unwrap();
        }
        graph.set_outputs(vec![y]);
        (graph, bindings)
    }
}

/// A mixture of f32 whose matrices may be read by neighbours: so many rows of one choice each.
fn even(rows: usize, [experts, k, n]: [usize; 3], transposed: bool) -> Mixture {
    let (choices, own, sizes) = (None, true, [experts, k, n]);
    Mixture { dtype: DType::F32, rows, is_open: false, choices, own, sizes, transposed, epilogue: true }
}

/// The kinds of ops within each step.
fn steps(graph: &Graph, target: &KernelTarget) -> Vec<Vec<OpKind>> {
    let module = try_module(graph, target).unwrap();
    let kinds = |step: &rlx_ir::lir::Step| match &module.graph.node(step.node).op {
        Op::Region { body } => body.graph.nodes().iter().map(|n| n.op.kind()).collect(),
        op => vec![op.kind()],
    };
    module.steps.iter().map(kinds).collect()
}

#[test]
fn random_mixtures_are_one_kernel_that_copies_no_matrix() {
    let mut several = 0;
    for seed in 0..cases() {
        let mut g = Gen::new(seed);
        let mixture = Mixture::some(&mut g);
        let (graph, bindings) = mixture.graph(&mut g);
        let target = &targets()[seed as usize % 5];
        let steps = steps(&graph, target);
        assert_eq!(steps.len(), 1, "{}: {steps:?}\n{graph}", target.name);
        assert!(steps[0].contains(&OpKind::Gather) && steps[0].contains(&OpKind::MatMul), "{steps:?}");
        agree(&graph, &bindings, target);
        let results = bits_of_variants(&graph, &bindings, target);
        several += usize::from(results.len() > 3);
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "seed {seed} on {}\n{graph}", target.name);
    }
    assert!(several * 4 > cases() as usize, "{several}");
}

/// The names of the variants of the only step.
fn variants(graph: &Graph, target: &KernelTarget) -> Vec<String> {
    let module = try_module(graph, target).unwrap();
    step_variants(&module.steps[0], &module, target).unwrap()
}

/// Neighbours of a chosen matrix are read by one access, as those of any other matrix are.
#[test]
fn chosen_matrices_are_read_by_neighbours() {
    eprintln!(
        "{}",
        try_module(&even(5, [4, 256, 128], true).graph(&mut Gen::new(3)).0, &processor()).unwrap()
    );
    for (transposed, wide, divided) in [(false, "wide", "columns4"), (true, "deep", "depth4")] {
        let mut g = Gen::new(3);
        let (graph, bindings) = even(5, [4, 256, 128], transposed).graph(&mut g);
        assert!(variants(&graph, &processor())[0].starts_with(wide), "{:?}", variants(&graph, &processor()));
        agree(&graph, &bindings, &processor());
        let want = oracle::evaluate(&graph, &bindings).unwrap();
        for target in [native(), words(), apple()] {
            let module = try_module(&graph, &target).unwrap();
            let few = few_rows(&module.steps[0], &module, &target).unwrap();
            assert!(few.len() == 1 && few[0].name.ends_with(divided), "{few:?}");
            let by_few = Executable::by(Arc::clone(&module), |_| Ok(vec![few[0].launch.clone()])).unwrap();
            let got = by_few.run(&bindings).unwrap();
            assert_eq!(difference(&want[0], &got[0], tolerance(DType::F32)), None, "{}", target.name);
        }
        // What is not whole numbers of neighbours is read one by one.
        let (odd, _) = even(5, [4, 255, 127], transposed).graph(&mut g);
        let names = variants(&odd, &processor());
        assert!(!names.iter().any(|name| name.starts_with("wide") || name.starts_with("deep")), "{names:?}");
    }
}

#[test]
fn an_expert_that_is_not_there_is_an_error() {
    for (target, sizes) in targets().into_iter().flat_map(|t| [(t.clone(), [4, 32, 64]), (t, [4, 3, 5])]) {
        let (graph, mut bindings) = even(3, sizes, false).graph(&mut Gen::new(7));
        let executable = compiled(&graph, &target);
        let dtype = bindings.input("chosen").unwrap().dtype;
        for bad in [4, -5, 1 << 20] {
            bindings.set_input("chosen", Value::int(dtype, &[3], vec![0, bad, 3]));
            assert_eq!(oracle::evaluate(&graph, &bindings).unwrap_err().kind(), ErrorKind::Value);
            let error = executable.run(&bindings).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Value, "{}: {error}", target.name);
            assert!(error.to_string().contains(&bad.to_string()), "{}: {error}", target.name);
        }
        bindings.set_input("chosen", Value::int(dtype, &[3], vec![-4, -1, 3]));
        agree(&graph, &bindings, &target);
    }
}
