//! Matmuls that read neighbouring elements by one access: they are there where, and only where, neighbours begin at multiples of how many they are, and
//! give the bits of those that read one element at a time.

mod common;

use std::collections::HashMap;
use std::sync::Arc;

use common::{native, try_module, words};
use rlx_ir::op::{Activation, BinaryOp};
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{Gen, difference, tolerance};
use rlx_ir::{DType, Graph, LirModule, NodeId, Op, Shape};
use rlx_kernel::build::Builder;
use rlx_kernel::interp::{Binding, Executable, Pools, dispatch};
use rlx_kernel::ir::{Access, Stmt};
use rlx_kernel::render::{WgslOptions, wgsl};
use rlx_kernel::{Kernel, KernelTarget, Launches, WideAccess, compile_step, step_variants, verify::verify};

fn processor() -> KernelTarget {
    KernelTarget { is_processor: true, ..words() }
}

/// A matrix that is multiplied: its dimensions, whether it is stored transposed, and how many elements are in front of it, and behind it in each row.
#[derive(Debug, Clone)]
struct Matrix {
    dims: Vec<usize>,
    transposed: bool,
    skipped: usize,
}

impl Matrix {
    /// Some matrix, seldom one that is stored transposed or part of another one.
    fn some(dims: Vec<usize>, gen_: &mut Gen) -> Matrix {
        let skipped = [0, 0, 0, 0, 1, 8][gen_.size(0..=5)];
        Matrix { dims, transposed: gen_.size(0..=2) == 0, skipped }
    }

    /// The matrix as views of an input.
    fn node(&self, g: &mut Graph, name: &str, gen_: &mut Gen, values: &mut Bindings) -> NodeId {
        let rank = self.dims.len();
        let mut stored = self.dims.clone();
        if self.transposed {
            stored.swap(rank - 2, rank - 1);
        }
        let shape = Shape::new(&stored, DType::F32);
        stored[rank - 1] += self.skipped;
        let mut at = g.input(name, Shape::new(&stored, DType::F32));
        values.set_input(name, gen_.value(DType::F32, &stored, -1.0..1.0));
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
}

/// A product of few rows, and what it is computed of.
struct Case {
    graph: Graph,
    values: Bindings,
    what: String,
}

fn case(gen_: &mut Gen) -> Case {
    // Multiples of what is read together are as frequent as other sizes.
    let mut size = |most: i64| {
        let times = [1, 4, 8, 8, 16, 16][gen_.size(0..=5)];
        gen_.int(1..=(most / times).max(1)) as usize * times as usize
    };
    let (k, n) = (size(70), size(180));
    // Now and then so many columns that an invocation has several accesses' worth of them.
    let n = if gen_.size(0..=7) == 0 { 512 + n * 16 % 256 } else { n };
    let rows = [1, 1, 1, 2, 3, 5, 7, 8][gen_.size(0..=7)];
    let batch: Vec<usize> = (0..gen_.size(0..=1)).map(|_| gen_.size(1..=3)).collect();
    let shared = gen_.size(0..=1) == 0;
    let right = [if shared { vec![] } else { batch.clone() }, vec![k, n]].concat();
    let left = [batch, vec![rows, k]].concat();
    let (mut g, mut values) = (Graph::new("product"), Bindings::default());
    let matrices = [Matrix::some(left, gen_), Matrix::some(right, gen_)];
    let [x, w] = [0, 1].map(|i| matrices[i].node(&mut g, ["x", "w"][i], gen_, &mut values));
    let y = g.try_add(Op::MatMul, &[x, w]).unwrap();
    let shape = g.shape(y).clone();
    let bias = Shape::new(&[n], DType::F32);
    values.set_input("b", gen_.value(DType::F32, &[n], -1.0..1.0));
    let bias = g.input("b", bias);
    let y = g.binary(BinaryOp::Add, y, bias, shape.clone());
    let y = g.activation(Activation::Relu, y, shape);
    g.set_outputs(vec![y]);
    Case { graph: g, values, what: format!("{matrices:?}") }
}

/// The bytes of the only result, every step computed by its variant of this number or the last there is.
fn bits(module: &Arc<LirModule>, target: &KernelTarget, variant: usize, values: &Bindings) -> Vec<u8> {
    let choose = |variants: &[String]| variant.min(variants.len() - 1);
    let executable = Executable::choosing(Arc::clone(module), target, choose).unwrap();
    executable.run(values).unwrap_or_else(|e| panic!("{e}"))[0].encode()
}

fn kernels(module: &LirModule, target: &KernelTarget, variant: usize) -> Vec<Arc<Kernel>> {
    let step = |step| {
        let most = step_variants(step, module, target).unwrap().len();
        compile_step(step, module, target, variant.min(most - 1)).unwrap()
    };
    module.steps.iter().flat_map(step).map(|launch| launch.kernel).collect()
}

fn reads_together(kernel: &Kernel) -> bool {
    let mut wide = false;
    kernel.for_each_stmt(&mut |s| wide |= matches!(s, Stmt::LoadWide { .. }));
    wide
}

/// Text that a WGSL compiler takes, with numbers of 64 bits or without.
fn parses(kernel: &Kernel) {
    for long_words in [false, true] {
        for checked in [false, true] {
            let text = wgsl(kernel, WgslOptions { long_words, checked, ..Default::default() }).unwrap();
            naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{}", e.emit_to_string(&text)));
        }
    }
}

#[test]
fn neighbours_read_together_change_no_bit() {
    let (mut gen_, mut seen, mut wide) = (Gen::new(21), HashMap::new(), 0);
    for _ in 0..1000 {
        let Case { graph, values, what } = case(&mut gen_);
        let oracle = oracle::evaluate(&graph, &values).unwrap();
        for target in [processor(), native()] {
            let module = try_module(&graph, &target).unwrap();
            let names = module.steps.iter().map(|s| step_variants(s, &module, &target).unwrap());
            // Those with constant sizes are compared in `sizes.rs`.
            let names = names.max_by_key(Vec::len).unwrap();
            let names: Vec<String> = names.into_iter().filter(|name| !name.ends_with(".sizes")).collect();
            let first = Executable::new(Arc::clone(&module), &target).unwrap().run(&values);
            let first = first.unwrap_or_else(|e| panic!("{}: {e}\n{what}", names[0]));
            assert_eq!(
                difference(&oracle[0], &first[0], tolerance(DType::F32)),
                None,
                "{}\n{what}",
                names[0]
            );
            let mut any = false;
            for (variant, name) in
                names.iter().enumerate().filter(|(_, n)| n.starts_with("wide") || n.starts_with("deep"))
            {
                assert!(bits(&module, &target, variant, &values) == first[0].encode(), "{name}\n{what}");
                *seen.entry(name.clone()).or_insert(0) += 1;
                any = true;
                for kernel in kernels(&module, &target, variant) {
                    assert!(reads_together(&kernel), "{name}\n{what}");
                    if target.types.wide == WideAccess::Words && seen[name] < 20 {
                        parses(&kernel);
                    }
                }
            }
            wide += usize::from(any && target.is_processor);
        }
    }
    assert!(wide >= 500, "{wide} of 1000 products have such variants: {seen:?}");
    assert_eq!(seen.len(), 6, "{seen:?}");
}

#[test]
fn a_processor_reads_together_what_it_can() {
    let first = |target: &KernelTarget, rows: usize, [k, n]: [usize; 2], transposed: bool| {
        let (mut g, mut values, mut gen_) = (Graph::new("product"), Bindings::default(), Gen::new(1));
        let x = g.input("x", Shape::new(&[rows, k], DType::F32));
        let w = Matrix { dims: vec![k, n], transposed, skipped: 0 };
        let w = w.node(&mut g, "w", &mut gen_, &mut values);
        let y = g.try_add(Op::MatMul, &[x, w]).unwrap();
        g.set_outputs(vec![y]);
        let module = try_module(&g, target).unwrap();
        step_variants(&module.steps[0], &module, target).unwrap().remove(0)
    };
    let own = |rows, sizes, transposed| first(&processor(), rows, sizes, transposed);
    assert_eq!(own(1, [768, 3072], false), "wide1x128.1x16");
    assert_eq!(own(1, [128, 384], false), "wide1x64.1x8", "wider tiles are too few");
    assert_eq!(own(1, [128, 100], false), "wide1x256.1x4");
    assert_eq!(own(1, [128, 101], false), "serial", "rows begin anywhere");
    assert_eq!(own(5, [768, 3072], false), "wide4x64.4x8");
    assert_eq!(own(1, [768, 8001], true), "deep1x32.1x1");
    assert_eq!(own(3, [768, 8001], true), "deep4x32.4x1");
    assert_eq!(own(1, [767, 8000], true), "serial");
    assert_eq!(own(64, [768, 768], false), "direct16x64.4x4");
    assert_eq!(first(&words(), 1, [768, 3072], false), "serial", "others take what they took");
}

#[test]
fn kernels_that_read_together_come_back_from_bytes() {
    let mut gen_ = Gen::new(22);
    let mut stored = 0;
    while stored < 10 {
        let Case { graph, .. } = case(&mut gen_);
        let target = processor();
        let module = try_module(&graph, &target).unwrap();
        let launches = Launches::of(&module, &target, &|_| Ok(0)).unwrap();
        let back = Launches::from_bytes(&launches.to_bytes().unwrap(), &module, &target).unwrap();
        for ((hash, kernel), (other, _)) in launches.kernels.iter().zip(&back.kernels) {
            assert_eq!(hash, other);
            stored += usize::from(reads_together(kernel));
        }
    }
}

/// A kernel that reads elements together from one on, and its buffer of 16 elements.
fn reader(access: Access, first: i32, count: usize) -> Kernel {
    let mut b = Builder::new("reader", 1);
    let x = b.buffer("x", DType::F32, access);
    let y = b.buffer("y", DType::F32, Access::Write);
    let (at, zero) = (b.int(first), b.int(0));
    let values = b.load_wide(x, at, count);
    b.store(y, zero, values[count - 1]);
    b.finish()
}

#[test]
fn where_they_begin_and_how_many_they_are_is_checked() {
    let run = |first: i32, count: usize| {
        let kernel = reader(Access::Read, first, count);
        verify(&kernel).unwrap();
        let elements: Vec<u8> = (0..16).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let mut pools = Pools(vec![elements, vec![0; 4]]);
        let bindings = [64, 4].iter().enumerate().map(|(pool, &len)| Binding { pool, offset: 0, len });
        let bindings: Vec<Binding> = bindings.collect();
        dispatch(&kernel, 1, &[], &bindings, &mut pools)
            .map(|_| f32::from_le_bytes(pools.0[1][..].try_into().unwrap()))
    };
    assert_eq!((run(4, 4).unwrap(), run(8, 8).unwrap()), (7.0, 15.0));
    assert!(run(4, 8).unwrap_err().to_string().contains("together from number 4"));
    assert!(run(16, 4).unwrap_err().to_string().contains("of 16 f32 elements"));
    assert!(verify(&reader(Access::Read, 0, 3)).unwrap_err().to_string().contains("3 elements"));
    assert!(verify(&reader(Access::Write, 0, 4)).is_ok(), "what is written over an operand reads it so");
}
