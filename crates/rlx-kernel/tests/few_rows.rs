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
use rlx_kernel::interp::{Counters, Executable, Sample};
use rlx_kernel::render::{WgslOptions, wgsl};
use rlx_kernel::stored::By;
use rlx_kernel::{FewRows, KernelTarget, Launches, compile_step, few_rows};

/// A product with what is behind it.
#[derive(Debug, Clone)]
struct Product {
    dtype: DType,
    /// Matrices of their own.
    batch: Option<usize>,
    /// `None`: open.
    rows: Option<usize>,
    sizes: [usize; 2],
    /// Whether the depth is open, and both matrices are inputs.
    is_deep: bool,
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
            is_deep: gen_.size(0..=5) == 0,
            transposed: gen_.size(0..=1) == 0,
            skipped: [0, 0, 0, 0, 1, 8][gen_.size(0..=5)],
            bias: gen_.size(0..=1) == 0,
            residual: gen_.size(0..=2) == 0,
        }
    }

    fn depth(&self) -> Dim {
        if self.is_deep { Dim::from(Extent::sym(sym::PAST_SEQ)) } else { Dim::from(self.sizes[0]) }
    }

    /// The right matrix as views of a parameter, or of an input.
    fn right(&self, g: &mut Graph) -> NodeId {
        let own = [self.depth(), Dim::from(self.sizes[1])];
        let mut stored: Vec<Dim> = self.batch.map(Dim::from).into_iter().chain(own).collect();
        let rank = stored.len();
        if self.transposed {
            stored.swap(rank - 2, rank - 1);
        }
        if self.is_deep {
            let at = g.input("w", Shape::from_dims(&stored, self.dtype));
            return self.turned(g, at, rank);
        }
        let shape = Shape::from_dims(&stored, self.dtype);
        let mut outer = shape.dims().to_vec();
        outer[rank - 1] = Dim::from(outer[rank - 1].as_static().unwrap() + self.skipped);
        let mut at = g.param("w", Shape::from_dims(&outer, self.dtype));
        if self.skipped > 0 {
            let mut starts = vec![0.into(); rank];
            starts[rank - 1] = (self.skipped as i64).into();
            let op = Op::Slice { starts, steps: vec![1; rank], to: shape.dims().to_vec() };
            at = g.try_add(op, &[at]).unwrap();
        }
        self.turned(g, at, rank)
    }

    fn turned(&self, g: &mut Graph, mut at: NodeId, rank: usize) -> NodeId {
        if self.transposed {
            let mut perm: Vec<usize> = (0..rank).collect();
            perm.swap(rank - 2, rank - 1);
            at = g.try_add(Op::Transpose { perm }, &[at]).unwrap();
        }
        at
    }

    fn graph(&self) -> Graph {
        let mut g = Graph::new("product");
        let [_, n] = self.sizes;
        let rows = self.rows.map_or(Dim::from(Extent::sym(sym::SEQ)), Dim::from);
        let shape = |last: Dim| {
            let dims: Vec<Dim> = self.batch.map(Dim::from).into_iter().chain([rows, last]).collect();
            Shape::from_dims(&dims, self.dtype)
        };
        let (x, w) = (g.input("x", shape(self.depth())), self.right(&mut g));
        let mut y = g.try_add(Op::MatMul, &[x, w]).unwrap();
        if self.bias {
            let bias = g.param("b", Shape::new(&[n], self.dtype));
            y = g.binary(BinaryOp::Add, y, bias, shape(n.into()));
            y = g.activation(Activation::Relu, y, shape(n.into()));
        }
        if self.residual {
            let residual = g.input("r", shape(n.into()));
            y = g.binary(BinaryOp::Add, y, residual, shape(n.into()));
        }
        g.set_outputs(vec![y]);
        g
    }

    /// Values for so many rows.
    fn values(&self, graph: &Graph, rows: usize, gen_: &mut Gen) -> Bindings {
        let mut values = Bindings::default();
        for node in graph.nodes() {
            let dims = || -> Vec<usize> {
                let size = |d: &Dim| match d.as_static() {
                    Some(size) => size,
                    None if *d == Dim::from(Extent::sym(sym::SEQ)) => rows,
                    None => self.sizes[0],
                };
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
    for round in 0..500 {
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

/// Values of all bits that a type has, whose sums are rounded: between 1/8 and 1/2, of both signs.
fn rounded(dtype: DType, dims: &[usize], gen_: &mut Gen) -> Value {
    let count = dims.iter().product();
    let mut some = |least: u32, most: u32, sign: u32| {
        gen_.int(i64::from(least)..=i64::from(most - 1)) as u32 | (gen_.int(0..=1) as u32) << sign
    };
    let bytes: Vec<u8> = match dtype {
        DType::F32 => (0..count).flat_map(|_| some(0x3E00_0000, 0x3F00_0000, 31).to_le_bytes()).collect(),
        DType::F16 => (0..count).flat_map(|_| (some(0x3000, 0x3800, 15) as u16).to_le_bytes()).collect(),
        _ => (0..count).flat_map(|_| (some(0x3E00, 0x3F00, 15) as u16).to_le_bytes()).collect(),
    };
    Value::decode(dtype, dims, &bytes)
}

/// The first rows of a result.
fn first_rows(value: &Value, count: usize, of: usize) -> Vec<u8> {
    let bytes = value.encode();
    bytes[..bytes.len() / of * count].to_vec()
}

#[test]
fn a_row_has_the_same_bits_whatever_the_others_are() {
    let mut gen_ = Gen::new(32);
    let mut differ = 0;
    for round in 0..30 {
        let mut product = Product { batch: None, rows: Some(4), is_deep: false, ..Product::some(&mut gen_) };
        let graph = product.graph();
        let mut values = product.values(&graph, 4, &mut gen_);
        let rounded_like =
            |of: Option<&Value>, gen_: &mut Gen| of.map(|of| rounded(of.dtype, &of.dims, gen_));
        for name in ["x", "r"] {
            rounded_like(values.input(name), &mut gen_)
                .into_iter()
                .for_each(|v| _ = values.set_input(name, v));
        }
        rounded_like(values.param("w"), &mut gen_).into_iter().for_each(|v| _ = values.set_param("w", v));
        let target = &[native(), words(), apple()][round % 3];
        let module = try_module(&graph, target).unwrap();
        let of_four = run(&executable(&module, target, 4), &values, &product);
        let of_chain = run(&Executable::new(module, target).unwrap(), &values, &product);
        differ += usize::from(of_four.encode() != of_chain.encode());
        for (rows, is_open) in [(1, false), (1, true), (2, false), (3, false), (3, true)] {
            product.rows = (!is_open).then_some(rows);
            let graph = product.graph();
            let mut fewer = values.clone();
            for name in ["x", "r"] {
                let Some(value) = values.input(name) else { continue };
                let dims = [rows, value.dims[1]];
                fewer.set_input(name, Value::decode(value.dtype, &dims, &first_rows(value, rows, 4)));
            }
            let module = try_module(&graph, target).unwrap();
            let got = run(&executable(&module, target, rows), &fewer, &product);
            assert!(got.encode() == first_rows(&of_four, rows, 4), "{rows} rows\n{product:?}");
        }
    }
    assert!(differ > 7, "{differ} of 30 sums are others than those of one chain");
}

/// A product of these sizes on a device, its kernel for few rows and what that asks of memory.
fn counted(target: &KernelTarget, product: &Product) -> (FewRows, Counters) {
    let module = try_module(&product.graph(), target).unwrap();
    let rows = product.rows.unwrap();
    let mut counted = executable(&module, target, rows).count(&DimBinding::new(), Sample(3)).unwrap();
    assert_eq!(counted.len(), 1, "one dispatch");
    (kernels(&module, target).remove(0), counted.remove(0).counters)
}

/// The layers of a decoder: no bank conflicts, no sector read in vain, few steps one after the other, and enough workgroups.
#[test]
fn the_layers_of_a_decoder_are_read_as_memory_likes_it() {
    let layers = [([768, 2304], false), ([768, 768], false), ([3072, 768], false), ([768, 8001], true)];
    for ((sizes, transposed), dtype) in
        layers.into_iter().flat_map(|layer| [DType::F32, DType::F16, DType::BF16].map(|dtype| (layer, dtype)))
    {
        for rows in [1, 4] {
            let product = Product {
                dtype,
                batch: None,
                rows: Some(rows),
                sizes,
                is_deep: false,
                transposed,
                skipped: 0,
                bias: false,
                residual: false,
            };
            let (of, counters) = counted(&native(), &product);
            let what = format!("{} of {dtype} {sizes:?}: {counters}", of.name);
            assert_eq!(counters.conflicts, 0, "{what}");
            let bytes = sizes[0] * sizes[1] * dtype.size_bytes();
            // The left matrix is read again by each workgroup, from caches.
            let left = counters.groups as usize * rows * sizes[0] * dtype.size_bytes();
            let least = (bytes + left) / 32;
            assert!((counters.sectors as usize) < least * 9 / 4, "{what}, at least {least} sectors");
            assert!(counters.groups >= 48 && counters.serial <= 12, "{what}");
            assert_eq!(counters.divisions, 0, "{what}");
        }
    }
}

/// Texts and bytes of such kernels: what takes WGSL takes them, and they come back.
#[test]
fn they_are_text_and_come_back_from_bytes() {
    let mut gen_ = Gen::new(33);
    for round in 0..30 {
        let product = Product { rows: Some(1 + round % 4), ..Product::some(&mut gen_) };
        let target = if round % 2 == 0 { words() } else { shorts() };
        let module = try_module(&product.graph(), &target).unwrap();
        let launches = Launches::of_some(&module, &target, &mut |asked| {
            let few = few_rows(asked.step, &module, &target)?.pop();
            Ok(few.map_or(By::Variant(0), |of| By::Launch(of.launch)))
        })
        .unwrap();
        let back = Launches::from_bytes(&launches.to_bytes().unwrap(), &module, &target).unwrap();
        for ((hash, kernel), (other, _)) in launches.kernels.iter().zip(&back.kernels) {
            assert_eq!(hash, other);
            let text = wgsl(kernel, WgslOptions::default()).unwrap();
            if round % 2 == 0 {
                naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{}", e.emit_to_string(&text)));
            }
        }
    }
}

#[test]
fn what_is_no_product_of_few_rows_by_a_deep_matrix_is_left() {
    let base = Product {
        dtype: DType::F32,
        batch: None,
        rows: Some(1),
        sizes: [512, 64],
        is_deep: false,
        transposed: false,
        skipped: 0,
        bias: true,
        residual: true,
    };
    let count = |product: &Product, target: &KernelTarget| {
        kernels(&try_module(&product.graph(), target).unwrap(), target).len()
    };
    assert_eq!(count(&base, &native()), 1);
    assert_eq!(count(&Product { rows: None, ..base.clone() }, &native()), 2, "one row, and some");
    assert_eq!(count(&Product { is_deep: true, ..base.clone() }, &native()), 1, "an open depth");
    assert_eq!(count(&Product { rows: Some(5), ..base.clone() }, &native()), 0, "many rows");
    assert_eq!(count(&Product { sizes: [100, 64], ..base.clone() }, &native()), 0, "a short sum");
    assert_eq!(count(&Product { dtype: DType::I32, ..base.clone() }, &native()), 0, "integers");
    assert_eq!(count(&Product { dtype: DType::F64, ..base.clone() }, &native()), 0, "no vectors of f64");
    let processor = KernelTarget { is_processor: true, ..words() };
    assert_eq!(count(&base, &processor), 0, "a processor has variants of its own");
}
