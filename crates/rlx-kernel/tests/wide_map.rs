//! Elementwise steps that compute several neighbours at once: the same bits as one by one, read and written together where, and only where, neighbours
//! begin at multiples of how many they are.

mod common;

use std::collections::HashMap;
use std::sync::Arc;

use common::{apple, native, processor, try_module, words};
use rlx_ir::op::{Activation, BinaryOp, CmpOp, DataFormat, PadMode, PoolKind};
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{Gen, difference, tolerance};
use rlx_ir::{DType, Graph, LirModule, NodeId, Op, Shape, Value};
use rlx_kernel::build::Builder;
use rlx_kernel::emulate::emulate;
use rlx_kernel::interp::{Binding, Executable, Pools, dispatch};
use rlx_kernel::ir::{Access, Stmt};
use rlx_kernel::render::{WgslOptions, cuda, hip, msl, wgsl};
use rlx_kernel::{Kernel, KernelTarget, Launches, TypeSupport, compile_step, step_variants, verify::verify};

const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// A tensor that broadcasts to `dims`: all of it, or a row, a column or one element; now and then part of another one, or stored transposed.
fn operand(
    g: &mut Graph,
    gen_: &mut Gen,
    name: &str,
    dims: [usize; 2],
    dtype: DType,
    values: &mut Bindings,
) -> NodeId {
    let own = match gen_.size(0..=6) {
        0 => vec![dims[1]],
        1 => vec![dims[0], 1],
        2 => vec![1],
        _ => dims.to_vec(),
    };
    if own.len() < 2 || own != dims || gen_.size(0..=2) > 0 {
        values.set_input(name, gen_.value(dtype, &own, -2.0..2.0));
        return g.input(name, Shape::new(&own, dtype));
    }
    if gen_.size(0..=1) == 0 {
        let stored = [dims[1], dims[0]];
        values.set_input(name, gen_.value(dtype, &stored, -2.0..2.0));
        let x = g.input(name, Shape::new(&stored, dtype));
        return g.try_add(Op::Transpose { perm: vec![1, 0] }, &[x]).unwrap();
    }
    let skipped = gen_.pick(&[1usize, 4, 8]);
    let stored = [dims[0], dims[1] + skipped];
    values.set_input(name, gen_.value(dtype, &stored, -2.0..2.0));
    let x = g.input(name, Shape::new(&stored, dtype));
    let op = Op::Slice {
        starts: vec![0.into(), (skipped as i64).into()],
        steps: vec![1, 1],
        to: Shape::new(&dims, dtype).dims().to_vec(),
    };
    g.try_add(op, &[x]).unwrap()
}

/// Sums, products, activations and choices of some operands, the result in another type now and then.
fn case(gen_: &mut Gen) -> (Graph, Bindings) {
    let cols = gen_.pick(&[96usize, 128, 128, 200, 132, 100, 127, 256]);
    let dims = [16_400usize.div_ceil(cols) + gen_.size(0..=3), cols];
    let dtype = gen_.pick(&TYPES);
    let (mut g, mut values) = (Graph::new("elements"), Bindings::default());
    let whole = Shape::new(&dims, dtype);
    values.set_input("x", gen_.value(dtype, &dims, -2.0..2.0));
    let x = g.input("x", whole.clone());
    let mut y = x;
    for i in 0..gen_.size(1..=3) {
        let other = operand(&mut g, gen_, &format!("o{i}"), dims, dtype, &mut values);
        y = match gen_.size(0..=4) {
            0 => g.binary(BinaryOp::Mul, y, other, whole.clone()),
            1 => {
                let less = g.try_add(Op::Compare(CmpOp::Lt), &[y, other]).unwrap();
                g.try_add(Op::Where, &[less, x, y]).unwrap()
            }
            2 => {
                let y = g.binary(BinaryOp::Sub, y, other, whole.clone());
                g.activation(Activation::Relu, y, whole.clone())
            }
            _ => g.binary(BinaryOp::Add, y, other, whole.clone()),
        };
    }
    if gen_.size(0..=2) == 0 {
        y = g.try_add(Op::Cast { to: gen_.pick(&TYPES) }, &[y]).unwrap();
    }
    g.set_outputs(vec![y]);
    (g, values)
}

/// Which elements the invocations of a step's kernel have.
#[derive(Clone, Copy, PartialEq)]
enum Elements {
    Single,
    Together,
    InTurn,
}

impl Elements {
    fn of(variant: &str) -> Self {
        let variant = variant.trim_end_matches(".sizes");
        match (variant.matches('x').count(), variant.contains('s')) {
            (2, _) => Elements::Together,
            (_, true) => Elements::InTurn,
            _ => Elements::Single,
        }
    }
}

fn result(module: &Arc<LirModule>, target: &KernelTarget, elements: Elements, values: &Bindings) -> Value {
    let choose = |variants: &[String]| {
        variants.iter().position(|name| Elements::of(name) == elements).unwrap_or_default()
    };
    let executable = Executable::choosing(Arc::clone(module), target, choose).unwrap();
    executable.run(values).unwrap_or_else(|e| panic!("{e}")).remove(0)
}

/// Whether a kernel reads, and writes, elements together.
fn together(kernel: &Kernel) -> [bool; 2] {
    let mut found = [false; 2];
    kernel.for_each_stmt(&mut |s| {
        found[0] |= matches!(s, Stmt::LoadWide { .. });
        found[1] |= matches!(s, Stmt::StoreWide { .. });
    });
    found
}

/// WGSL that a compiler takes, with numbers of 64 bits or without.
fn parses(kernel: &Kernel) {
    for long_words in [false, true] {
        let text = wgsl(kernel, WgslOptions { long_words, ..Default::default() }).unwrap();
        naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{}", e.emit_to_string(&text)));
    }
}

#[test]
fn neighbours_computed_together_change_no_bit() {
    let (mut gen_, mut seen) = (Gen::new(31), HashMap::new());
    for _ in 0..500 {
        let (graph, values) = case(&mut gen_);
        let oracle = oracle::evaluate(&graph, &values).unwrap();
        let target = [native, apple, processor][gen_.size(0..=2)]();
        let module = try_module(&graph, &target).unwrap();
        for step in &module.steps {
            for (variant, name) in step_variants(step, &module, &target).unwrap().iter().enumerate() {
                for launch in compile_step(step, &module, &target, variant).unwrap() {
                    let [_, written] = together(&launch.kernel);
                    assert_eq!(written, Elements::of(name) == Elements::Together, "{name}\n{graph}");
                    if written && target.is_processor {
                        parses(&launch.kernel);
                    }
                    *seen.entry((target.name.clone(), name.clone())).or_insert(0) += 1;
                }
            }
        }
        let single = result(&module, &target, Elements::Single, &values);
        let dtype = graph.shape(graph.outputs[0]).dtype();
        assert_eq!(difference(&oracle[0], &single, tolerance(dtype)), None, "{}\n{graph}", target.name);
        // Others than processors do not compute neighbours in turn.
        let others = if target.is_processor {
            &[Elements::Together, Elements::InTurn][..]
        } else {
            &[Elements::Together]
        };
        for &elements in others {
            let value = result(&module, &target, elements, &values);
            assert!(single.encode() == value.encode(), "{} has other bits\n{graph}", target.name);
        }
    }
    let of_processors = ["map64x1x4", "map64x1x8", "map64s8"].map(|name| ("processor", name));
    let of_others = [("native", "map256x1x4"), ("native", "map256x1x8"), ("apple", "map256x1x8")];
    for (target, name) in of_others.into_iter().chain(of_processors) {
        let count = seen.get(&(target.to_owned(), name.to_owned()));
        assert!(count.is_some_and(|&n| n >= 5), "{target} {name}: {seen:?}");
    }
}

/// Whether a device with wide accesses takes them unmeasured for a step of these dimensions.
#[test]
fn they_are_taken_where_rows_are_whole_accesses() {
    let first = |dims: [usize; 2], dtype: DType, transposed: bool, target: &KernelTarget| {
        let mut g = Graph::new("sum");
        let stored = if transposed { [dims[1], dims[0]] } else { dims };
        let mut x = g.input("x", Shape::new(&stored, dtype));
        if transposed {
            x = g.try_add(Op::Transpose { perm: vec![1, 0] }, &[x]).unwrap();
        }
        let bias = g.input("b", Shape::new(&[dims[1]], dtype));
        let y = g.try_add(Op::Binary(BinaryOp::Add), &[x, bias]).unwrap();
        g.set_outputs(vec![y]);
        let module = try_module(&g, target).unwrap();
        let step = module.steps.last().unwrap();
        step_variants(step, &module, target).unwrap().remove(0)
    };
    let own = native();
    assert_eq!(first([197, 768], DType::BF16, false, &own), "map256x1x8");
    assert_eq!(first([197, 768], DType::F32, false, &own), "map256x1x4");
    assert_eq!(first([197, 764], DType::BF16, false, &own), "map256x1x4");
    assert_eq!(first([197, 767], DType::BF16, false, &own), "map64x1", "rows begin anywhere");
    assert_eq!(first([4, 768], DType::BF16, false, &own), "map64x1", "few elements");
    assert_eq!(first([197, 768], DType::BF16, true, &own), "map64x1", "neighbours are apart");
    assert_eq!(
        first([197, 768], DType::F32, false, &words()),
        "map64x1",
        "a GPU's language that has no floats of 16 bits"
    );
    let of_processor = |dims, dtype, transposed| first(dims, dtype, transposed, &processor());
    assert_eq!(of_processor([197, 768], DType::F32, false), "map64x1x8");
    assert_eq!(of_processor([4, 764], DType::F32, false), "map64x1x4", "few elements, too");
    assert_eq!(of_processor([197, 767], DType::F32, false), "map64s8", "rows begin anywhere");
    assert_eq!(of_processor([197, 768], DType::F32, true), "map64s8", "neighbours are apart");
    assert_eq!(of_processor([197, 768], DType::BF16, false), "map64s8", "elements share words");
    assert_eq!(of_processor([768, 3], DType::F32, false), "map64x1", "short rows");
}

/// Checks that elements taken together change no bit of a graph of one step. Gives the variants that take them so, and whether each reads, and writes, together.
fn together_of(graph: &Graph, values: &Bindings) -> Vec<(String, [bool; 2])> {
    let target = native();
    let module = try_module(graph, &target).unwrap();
    let single = result(&module, &target, Elements::Single, values);
    let oracle = oracle::evaluate(graph, values).unwrap();
    let dtype = graph.shape(graph.outputs[0]).dtype();
    assert_eq!(difference(&oracle[0], &single, tolerance(dtype)), None, "{graph}");
    let wide = result(&module, &target, Elements::Together, values);
    assert!(single.encode() == wide.encode(), "other bits\n{graph}");
    let step = module.steps.last().unwrap();
    let variants = step_variants(step, &module, &target).unwrap();
    let wide = variants.iter().enumerate().filter(|(_, name)| Elements::of(name) == Elements::Together);
    // With constant sizes it is the same.
    let wide = wide.filter(|(_, name)| !name.ends_with(".sizes"));
    wide.map(|(variant, name)| {
        let launch = compile_step(step, &module, &target, variant).unwrap().remove(0);
        (name.clone(), together(&launch.kernel))
    })
    .collect()
}

/// With channels last, those that share a window are read and written together.
#[test]
fn pooling_takes_channels_together_where_they_are_last() {
    let mut gen_ = Gen::new(33);
    let wide = |gen_: &mut Gen, kind, format, channels: usize, dtype: DType| {
        let last = format == DataFormat::ChannelsLast;
        let dims = if last { [2, 9, 8, channels] } else { [2, channels, 9, 8] };
        let (mut g, mut values) = (Graph::new("pool"), Bindings::default());
        values.set_input("x", gen_.value(dtype, &dims, -2.0..2.0));
        let x = g.input("x", Shape::new(&dims, dtype));
        let (kernel, strides, pads, dilations) = (vec![3, 3], vec![2, 2], vec![1; 4], vec![1, 1]);
        let (ceil_mode, count_include_pad) = (false, false);
        let op = Op::Pool { kind, kernel, strides, pads, dilations, ceil_mode, count_include_pad, format };
        let y = g.try_add(op, &[x]).unwrap();
        g.set_outputs(vec![y]);
        together_of(&g, &values)
    };
    for kind in [PoolKind::Max, PoolKind::Average] {
        for (dtype, channels, width) in
            [(DType::BF16, 16, 8), (DType::F16, 8, 8), (DType::F32, 8, 4), (DType::BF16, 12, 4)]
        {
            let found = wide(&mut gen_, kind, DataFormat::ChannelsLast, channels, dtype);
            assert_eq!(found, [(format!("map256x1x{width}"), [true; 2])], "{channels} of {dtype}");
        }
        assert_eq!(
            wide(&mut gen_, kind, DataFormat::ChannelsLast, 7, DType::BF16),
            [],
            "places begin anywhere"
        );
        assert_eq!(
            wide(&mut gen_, kind, DataFormat::ChannelsFirst, 8, DType::BF16),
            [],
            "channels are apart"
        );
    }
}

/// An image whose channels are last, given some of zeros, has short rows: each is gathered element by element, and written together.
/// (A step of nothing but the padding moves bits of any type one by one.)
#[test]
fn short_rows_are_written_together() {
    for (dtype, channels) in [(DType::BF16, 4), (DType::F16, 8), (DType::F32, 4)] {
        let (mut g, mut values) = (Graph::new("rows"), Bindings::default());
        let dims = [2, 64, 64, 3];
        values.set_input("x", Gen::new(34).value(dtype, &dims, -2.0..2.0));
        let x = g.input("x", Shape::new(&dims, dtype));
        let (before, after) = (vec![0.into(); 4], [0, 0, 0, channels as i64 - 3].map(Into::into).to_vec());
        let pad = Op::Pad { before, after, mode: PadMode::Constant };
        let padded = g.try_add(pad, &[x]).unwrap();
        let y = g.activation(Activation::Relu, padded, Shape::new(&[2, 64, 64, channels], dtype));
        g.set_outputs(vec![y]);
        let found = together_of(&g, &values);
        assert_eq!(found, [(format!("map256x1x{channels}"), [false, true])], "{dtype}");
    }
}

#[test]
fn kernels_that_write_together_come_back_from_bytes_and_have_text() {
    let (mut gen_, mut stored) = (Gen::new(32), 0);
    while stored < 10 {
        let (graph, _) = case(&mut gen_);
        let target = native();
        let module = try_module(&graph, &target).unwrap();
        let launches = Launches::of(&module, &target, &|_| Ok(0)).unwrap();
        let back = Launches::from_bytes(&launches.to_bytes().unwrap(), &module, &target).unwrap();
        for ((hash, kernel), (other, _)) in launches.kernels.iter().zip(&back.kernels) {
            assert_eq!(hash, other);
            if !together(kernel)[1] {
                continue;
            }
            stored += 1;
            assert!(kernel.to_string().contains("..] = "), "{kernel}");
            for text in [cuda(kernel, "k").unwrap(), hip(kernel, "k").unwrap(), msl(kernel, "k").unwrap()] {
                assert!(text.contains("= read_") && text.contains("  write_"), "{text}");
            }
        }
    }
}

#[test]
fn where_they_begin_and_how_many_they_are_is_checked() {
    let kernel_of = |dtype: DType, access: Access, first: i32, count: usize| {
        let mut b = Builder::new("writer", 1);
        let y = b.buffer("y", dtype, access);
        let (at, one) = (b.int(first), b.number(rlx_kernel::ir::Ty::F32, 1.0));
        b.store_wide(y, at, vec![one; count]);
        b.finish()
    };
    let kernel = |access: Access, first: i32, count: usize| kernel_of(DType::F32, access, first, count);
    let run_as = |kernel: Kernel| {
        verify(&kernel).unwrap();
        let mut pools = Pools(vec![vec![0; 64]]);
        dispatch(&kernel, 1, &[], &[Binding { pool: 0, offset: 0, len: 64 }], &mut pools)
            .map(|_| pools.0[0].chunks(4).map(|b| b != [0; 4]).collect::<Vec<bool>>())
    };
    let run = |first: i32, count: usize| run_as(kernel(Access::Write, first, count));
    let are = |first: usize, count: usize| {
        (0..16).map(|i| (first..first + count).contains(&i)).collect::<Vec<bool>>()
    };
    assert_eq!((run(4, 4).unwrap(), run(8, 8).unwrap()), (are(4, 4), are(8, 8)));
    // Words are written together in every language, and halves one by one where they share words.
    let words = emulate(&kernel(Access::Write, 4, 4), TypeSupport::WGSL).unwrap();
    assert_eq!((together(&words), run_as(words).unwrap()), ([false, true], are(4, 4)));
    let halves = emulate(&kernel_of(DType::F16, Access::Write, 4, 4), TypeSupport::WGSL).unwrap();
    assert_eq!((together(&halves), run_as(halves).unwrap()), ([false; 2], are(2, 2)));
    assert!(run(4, 8).unwrap_err().to_string().contains("together from number 4"));
    assert!(run(16, 4).unwrap_err().to_string().contains("of 16 f32 elements"));
    assert!(verify(&kernel(Access::Write, 0, 3)).unwrap_err().to_string().contains("3 elements"));
    assert!(verify(&kernel(Access::Read, 0, 4)).unwrap_err().to_string().contains("not declared so"));
}
