//! Matmuls of few rows whose sums are divided: right for any sizes, types, layouts and epilogues, the same bits of a row whatever the others are, and read as
//! a GPU's memory likes it.

mod common;

use std::collections::HashMap;
use std::sync::Arc;

use common::{apple, native, shorts, try_module, words};
use rlx_ir::op::{Activation, BinaryOp};
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{Gen, difference, tolerance};
use rlx_ir::{DType, Dim, DimBinding, Extent, Graph, LirModule, NodeId, Op, Shape, Value, sym};
use rlx_kernel::interp::{Executable, Sample};
use rlx_kernel::ir::Stmt;
use rlx_kernel::{FewRows, KernelTarget, compile_step, few_rows};

/// A product with what is behind it.
#[derive(Debug, Clone)]
struct Product {
    dtype: DType,
    /// Matrices of their own.
    batch: Option<usize>,
    /// `None`: open.
    rows: Option<usize>,
    sizes: [usize; 2],
    /// Whether the right matrix is stored transposed, and how many elements are in front of its rows.
    transposed: bool,
    skipped: usize,
    /// Whether there are a bias and an activation, whether a residual.
    bias: bool,
    residual: bool,
}

impl Product {
    fn some(gen_: &mut Gen) -> Product {
        let mut size = |most: i64| {
            let times = [1, 2, 4, 8, 8, 16][gen_.size(0..=5)];
            gen_.int(1..=(most / times).max(1)) as usize * times as usize
        };
        let (k, n) = (128 + size(1500), size(200));
        let rows = (gen_.size(0..=4) > 0).then(|| gen_.size(1..=4));
        Product {
            dtype: [DType::F32, DType::F16, DType::BF16][gen_.size(0..=2)],
            batch: (gen_.size(0..=5) == 0).then(|| gen_.size(1..=3)),
            rows,
            sizes: [k, n],
            transposed: gen_.size(0..=1) == 0,
            skipped: [0, 0, 0, 0, 1, 8][gen_.size(0..=5)],
            bias: gen_.size(0..=1) == 0,
            residual: gen_.size(0..=2) == 0,
        }
    }

    /// The right matrix as views of a parameter.
    fn right(&self, g: &mut Graph) -> NodeId {
        let mut stored: Vec<usize> = self.batch.iter().copied().chain(self.sizes).collect();
        let rank = stored.len();
        if self.transposed {
            stored.swap(rank - 2, rank - 1);
        }
        let shape = Shape::new(&stored, self.dtype);
        stored[rank - 1] += self.skipped;
        let mut at = g.param("w", Shape::new(&stored, self.dtype));
        if self.skipped > 0 {
            let mut starts = vec![0.into(); rank];
            starts[rank - 1] = (self.skipped as i64).into();
            let op = Op::Slice { starts, steps: vec![1; rank], to: shape.dims().to_vec() };
            at = g.try_add(op, &[at]).unwrap();
        }
        if self.transposed {
            let mut perm: Vec<usize> = (0..rank).collect();
            perm.swap(rank - 2, rank - 1);
            at = g.try_add(Op::Transpose { perm }, &[at]).unwrap();
        }
        at
    }

    fn graph(&self) -> Graph {
        let mut g = Graph::new("product");
        let [k, n] = self.sizes;
        let rows = self.rows.map_or(Dim::from(Extent::sym(sym::SEQ)), Dim::from);
        let shape = |last: usize| {
            let dims: Vec<Dim> =
                self.batch.map(Dim::from).into_iter().chain([rows, Dim::from(last)]).collect();
            Shape::from_dims(&dims, self.dtype)
        };
        let (x, w) = (g.input("x", shape(k)), self.right(&mut g));
        let mut y = g.try_add(Op::MatMul, &[x, w]).unwrap();
        if self.bias {
            let bias = g.param("b", Shape::new(&[n], self.dtype));
            y = g.binary(BinaryOp::Add, y, bias, shape(n));
            y = g.activation(Activation::Relu, y, shape(n));
        }
        if self.residual {
            let residual = g.input("r", shape(n));
            y = g.binary(BinaryOp::Add, y, residual, shape(n));
        }
        g.set_outputs(vec![y]);
        g
    }

    /// Values for so many rows, small ones: sums of many are rounded to as many bits as their terms.
    fn values(&self, graph: &Graph, rows: usize, gen_: &mut Gen) -> Bindings {
        let mut values = Bindings::default();
        for node in graph.nodes() {
            let dims = || -> Vec<usize> {
                let size = |d: &Dim| d.as_static().unwrap_or(rows);
                node.shape.dims().iter().map(size).collect()
            };
            match &node.op {
                Op::Input { name } => values.set_input(name, gen_.value(self.dtype, &dims(), -0.5..0.5)),
                Op::Param { name } => values.set_param(name, gen_.value(self.dtype, &dims(), -0.5..0.5)),
                _ => continue,
            };
        }
        values
    }
}

/// The kernels for few rows of the only matmul of a module.
fn kernels(module: &LirModule, target: &KernelTarget) -> Vec<FewRows> {
    let mut all: Vec<_> = module.steps.iter().map(|step| few_rows(step, module, target).unwrap()).collect();
    all.retain(|of| !of.is_empty());
    assert!(all.len() <= 1, "several matmuls");
    all.pop().unwrap_or_default()
}

/// The module by the kernel for few rows that is for `rows`.
fn executable(module: &Arc<LirModule>, target: &KernelTarget, rows: usize) -> Executable {
    Executable::by(Arc::clone(module), |step| {
        let all = few_rows(step, module, target)?;
        match all.into_iter().find(|of| rows as i64 <= of.most_rows) {
            Some(of) => Ok(vec![of.launch]),
            None => compile_step(step, module, target, 0),
        }
    })
    .unwrap()
}

fn run(executable: &Executable, values: &Bindings, what: &dyn std::fmt::Debug) -> Value {
    executable.run(values).unwrap_or_else(|e| panic!("{e}\n{what:?}")).remove(0)
}

#[test]
fn random_products_agree_with_the_oracle() {
    let (mut gen_, mut seen) = (Gen::new(31), HashMap::new());
    for round in 0..600 {
        let product = Product::some(&mut gen_);
        let graph = product.graph();
        let rows = product.rows.unwrap_or_else(|| gen_.size(1..=4));
        let values = product.values(&graph, rows, &mut gen_);
        let want = oracle::evaluate(&graph, &values).unwrap();
        let target = &[native(), words(), shorts(), apple()][round % 4];
        let module = try_module(&graph, target).unwrap();
        let all = kernels(&module, target);
        assert_eq!(all.len(), if product.rows.is_some() { 1 } else { 2 }, "{product:?}");
        let got = run(&executable(&module, target, rows), &values, &product);
        let differs = difference(&want[0], &got, tolerance(product.dtype));
        assert_eq!(differs, None, "{}\n{product:?}", all[0].name);
        let along = all[0].name.split('.').next_back().unwrap().to_owned();
        *seen.entry(along).or_insert(0) += 1;
    }
    let mut all: Vec<&str> = seen.keys().map(String::as_str).collect();
    all.sort_unstable();
    assert_eq!(all, ["columns1", "columns4", "columns8", "depth1", "depth4", "depth8"], "{seen:?}");
}
