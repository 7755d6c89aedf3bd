//! The text of kernels runs: CUDA C, HIP C and Metal's language, compiled unchanged by the machine's C++ compiler through headers of ours (`simt.h`,
//! `metal_stdlib.h`), make of the same memory what the interpreter makes of it, to the bit.
//!
//! A kernel gets random memory, and three of its workgroups are run. NaNs count as equal whatever their bits. Functions of f64 are those of two
//! mathematical libraries, so kernels that call them may differ in the last digits; functions of f32 are rounded from those and may not.
//! Without a C++ compiler (`CXX`, else `c++`) the tests are skipped by name; where `CI=true` that is a failure.

#[path = "../common/mod.rs"]
mod common;
mod compiler;

use std::collections::HashSet;
use std::sync::Arc;

use common::{apple, index_graphs, native, try_compiled, try_module};
use compiler::Program;
use rlx_ir::op::{Activation, ArgOp, BinaryOp, PadMode, ReduceOp};
use rlx_ir::testing::{AttentionShape, Case, Gen, random_attention, random_paged_attention};
use rlx_ir::{DType, DimBinding, ErrorKind, Graph, Op, OpKind, Shape};
use rlx_kernel::interp::{Executable, Recorded, Sample};
use rlx_kernel::ir::{BinOp, Inst, Stmt, Ty, UnOp};
use rlx_kernel::render::{cuda, hip, msl};
use rlx_kernel::{Kernel, KernelHash, KernelTarget};
use rlx_onnx::{ImportOptions, OnnxFile, import};
use rlx_opt::pipeline::CompilePipeline;
use rlx_opt::{CompileOptions, Precision};
use rlx_testdata::models;

/// Workgroups of a dispatch that are run.
const SAMPLE: Sample = Sample(3);
/// Kernels of one C++ file.
const TOGETHER: usize = 60;

/// A dialect: its renderer, and what the header is told.
type Dialect = (&'static str, fn(&Kernel, &str) -> rlx_ir::Result<String>, &'static str);
const CUDA: Dialect = ("CUDA C", cuda, "-DRLX_CUDA");
const HIP: Dialect = ("HIP C", hip, "-DRLX_HIP");
const MSL: Dialect = ("Metal's language", msl, "-DRLX_METAL");

/// Devices, and the dialects of their kernels.
fn devices() -> [(KernelTarget, &'static [Dialect]); 2] {
    [(native(), &[CUDA, HIP]), (apple(), &[MSL])]
}

/// Elements that make sense in most places: small integers (positions, mostly), floats of both signs.
fn fill(random: &mut Gen, dtype: DType, bytes: &mut [u8]) {
    match dtype {
        DType::Bool => bytes.iter_mut().for_each(|b| *b = random.int(0..=1) as u8),
        _ if dtype.is_float() && dtype.bits() >= 16 => {
            let value = random.value(dtype, &[bytes.len() * 8 / dtype.bits()], -3.0..3.0);
            bytes.copy_from_slice(&value.encode());
        }
        _ if dtype.bits() >= 8 => {
            let size = dtype.size_bytes();
            for element in bytes.chunks_mut(size) {
                element.fill(0);
                element[0] = random.int(0..=3) as u8;
            }
        }
        _ => bytes.iter_mut().for_each(|b| *b = random.int(0..=255) as u8),
    }
}

/// What a device's kernels made of random memory, each kernel once.
struct Records {
    target: KernelTarget,
    seen: HashSet<KernelHash>,
    all: Vec<Recorded>,
}

impl Records {
    fn of(target: KernelTarget) -> Records {
        Records { target, seen: HashSet::new(), all: Vec::new() }
    }

    fn add(&mut self, executable: &Executable, dims: &DimBinding, what: &str) {
        let mut random = Gen::new(7);
        let (seen, all) = (&mut self.seen, &mut self.all);
        let mut fill = |dtype: DType, bytes: &mut [u8]| fill(&mut random, dtype, bytes);
        let done = executable.record(dims, SAMPLE, &mut fill, &mut |record| {
            if seen.insert(record.kernel.hash()) {
                all.push(record);
            }
        });
        done.unwrap_or_else(|e| panic!("{what}: {e}"));
    }

    fn add_model(&mut self, name: &str, precision: Precision) {
        let model = models::model(name);
        let Some(path) = model.graph_file() else { return };
        let graph = import(&OnnxFile::open(&path).unwrap(), &ImportOptions::default()).unwrap().graph;
        let dims = model.goldens[0].binding();
        let options = CompileOptions::default().dim_binding(dims.clone()).precision(precision);
        let compiled = CompilePipeline::new(Arc::new(self.target.clone()), options).compile(&graph);
        match compiled.and_then(|c| Executable::new(Arc::new(c.lir), &self.target)) {
            Ok(executable) => self.add(&executable, &dims, name),
            Err(e) if e.kind() == ErrorKind::Unsupported => println!("{name}: {e}"),
            Err(e) => panic!("{name}: {e}"),
        }
    }

    /// Compiles and runs the text of every kernel; panics where one makes something else than the interpreter.
    fn check(&self, (language, render, define): Dialect) {
        let Some(compiler) = compiler::found() else { return };
        let (mut wrong, mut ran) = (Vec::new(), 0);
        for records in self.all.chunks(TOGETHER) {
            let texts: Vec<String> = (records.iter().enumerate())
                .map(|(i, r)| render(&r.kernel, &format!("k{i}")).unwrap_or_else(|e| panic!("{e}")))
                .collect();
            let program = Program::new(&compiler, &texts, define);
            for (record, made) in records.iter().zip(program.run(records)) {
                ran += 1;
                if let Some(what) = differs(record, &made) {
                    wrong.push(format!("{}: {what}", record.kernel.name));
                }
            }
        }
        println!("{ran} kernels in {language}, {} wrong", wrong.len());
        assert!(wrong.is_empty(), "{} of {ran} wrong:\n{}", wrong.len(), wrong.join("\n"));
        assert_eq!(ran, self.all.len());
    }
}

/// Whether a kernel calls a function of f64 that libraries do not round alike.
fn calls_f64(kernel: &Kernel) -> bool {
    let mut calls = false;
    kernel.for_each_stmt(&mut |s| {
        let Stmt::Let(_, inst) = s else { return };
        let function = match inst {
            Inst::Unary(UnOp::Math(_), x) | Inst::Binary(BinOp::Pow | BinOp::Atan2, x, _) => x,
            _ => return,
        };
        calls |= kernel.values[function.index()] == Ty::F64;
    });
    calls
}

fn reads_together(kernel: &Kernel) -> bool {
    let mut reads = false;
    kernel.for_each_stmt(&mut |s| reads |= matches!(s, Stmt::LoadWide { .. }));
    reads
}

/// What is wrong with what the text made.
fn differs(record: &Recorded, made: &compiler::Made) -> Option<String> {
    if !made.together {
        return Some("a barrier that not all invocations reach".into());
    }
    if record.fault.is_some() != (made.fault[0] > 0) {
        return Some(format!("the interpreter's fault is {:?}, the text's {:?}", record.fault, made.fault));
    }
    let close = calls_f64(&record.kernel);
    record.bindings.iter().zip(&record.kernel.buffers).find_map(|(&at, buffer)| {
        let (want, got) = (&record.after[at], &made.memory[at]);
        let bytes = (buffer.dtype.bits() / 8).max(1);
        let mut pairs = want.chunks(bytes).zip(got.chunks(bytes)).enumerate();
        let (i, (want, got)) = pairs.find(|(_, (want, got))| !same(buffer.dtype, want, got, close))?;
        Some(format!("{}[{i}] is {got:02x?}, the interpreter's {want:02x?}", buffer.name))
    })
}

fn same(dtype: DType, want: &[u8], got: &[u8], close: bool) -> bool {
    if want == got {
        return true;
    }
    if !dtype.is_float() || dtype.bits() < 16 || want.len() * 8 != dtype.bits() {
        return false;
    }
    let float = |bytes: &[u8]| rlx_ir::Value::decode(dtype, &[1], bytes).to_f64()[0];
    let (want, got) = (float(want), float(got));
    want.is_nan() && got.is_nan() || close && (want - got).abs() <= 1e-13 * want.abs()
}

/// A few steps with everything that a kernel's text can have: loops, barriers, workgroup memory, faults, half precision, 64-bit integers.
#[test]
fn a_few_kernels_run_as_text() {
    for (target, dialects) in devices() {
        let mut records = Records::of(target);
        add_steps(&mut records);
        assert!(records.all.len() >= 15);
        let wide = |r: &&Recorded| r.kernel.name.starts_with("map.") && reads_together(&r.kernel);
        assert!(records.all.iter().filter(wide).count() >= 4);
        dialects.iter().for_each(|&dialect| records.check(dialect));
    }
}

fn add_steps(records: &mut Records) {
    let mut add = |op: Op, shapes: &[(&[usize], DType)], then: Option<Activation>| {
        let mut g = Graph::new("step");
        let inputs: Vec<_> = (shapes.iter().enumerate())
            .map(|(i, (dims, dtype))| g.input(format!("x{i}"), Shape::new(dims, *dtype)))
            .collect();
        let mut y = g.try_add(op, &inputs).unwrap();
        if let Some(f) = then {
            y = g.try_add(Op::Activation(f), &[y]).unwrap();
        }
        g.set_outputs(vec![y]);
        let executable = try_compiled(&g, &records.target).unwrap();
        records.add(&executable, &DimBinding::new(), "a step");
        // The same with constant sizes, where there is such a kernel.
        let of_sizes = |names: &[String]| names.iter().position(|name| name.ends_with(".sizes")).unwrap_or(0);
        let module = try_module(&g, &records.target).unwrap();
        let executable = Executable::choosing(module, &records.target, of_sizes).unwrap();
        records.add(&executable, &DimBinding::new(), "a step with constant sizes");
    };
    use DType::{BF16, F16, F32, I64};
    add(Op::MatMul, &[(&[40, 50], F32), (&[50, 60], F32)], Some(Activation::Gelu));
    add(Op::MatMul, &[(&[33, 20], F16), (&[20, 40], F16)], Some(Activation::Relu));
    add(Op::Softmax { axis: -1 }, &[(&[4, 100], F32)], None);
    add(Op::Reduce { op: ReduceOp::Sum, axes: vec![1], keep_dim: false }, &[(&[4, 100], BF16)], None);
    add(Op::Reduce { op: ReduceOp::Max, axes: vec![1], keep_dim: false }, &[(&[3, 100], I64)], None);
    add(Op::Reduce { op: ReduceOp::Min, axes: vec![1], keep_dim: false }, &[(&[3, 70], DType::Bool)], None);
    add(Op::ArgReduce { op: ArgOp::Max, axis: 1, keep_dim: false, last: true }, &[(&[3, 90], F32)], None);
    add(Op::Gather { axis: 0 }, &[(&[3, 6], F32), (&[5], I64)], None);
    // Neighbours of which all is read together: rows that are picked, and those with a border of whole accesses.
    add(Op::Gather { axis: 0 }, &[(&[4, 64], F32), (&[300], I64)], Some(Activation::Relu));
    add(Op::Gather { axis: 1 }, &[(&[5, 4, 64], BF16), (&[60], I64)], None);
    // Halves that are only moved are read and written as what they are stored in.
    add(Op::Concat { axis: 0 }, &[(&[200, 96], BF16), (&[180, 96], BF16)], None);
    let border = |n: i64| vec![0.into(), n.into()];
    let pad = Op::Pad { before: border(8), after: border(16), mode: PadMode::Constant };
    add(pad, &[(&[70, 232], F16)], Some(Activation::Relu));
    add(Op::Binary(BinaryOp::Mul), &[(&[40], I64), (&[40], I64)], None);
    // Keys and values that are looked up in pages, for one query and for several.
    for (queries, dtype) in [(1, F32), (5, F16)] {
        let shape =
            AttentionShape { batch: 2, kv_heads: 2, groups: 2, queries, keys: 12, head_dim: 8, value_dim: 8 };
        let (graph, _) = random_paged_attention(&mut Gen::new(3), dtype, &shape, 4);
        let executable = try_compiled(&graph, &records.target).unwrap();
        records.add(&executable, &DimBinding::new(), "attention to pages");
    }
    for graph in index_graphs() {
        let executable = try_compiled(&graph, &records.target).unwrap();
        records.add(&executable, &DimBinding::new(), "an index");
    }
    add_few_rows(records);
    add_attentions(records);
}

/// Attention of many queries, each variant: with every mask, of several types and sizes of heads.
fn add_attentions(records: &mut Records) {
    let before = records.all.len();
    for (seed, (dtype, head_dim)) in (0..).zip([
        (DType::F32, 64),
        (DType::F16, 24),
        (DType::BF16, 40),
        (DType::F32, 80),
        (DType::F32, 136),
    ]) {
        let mut g = Gen::new(seed);
        let shape = AttentionShape {
            batch: 2,
            kv_heads: 2,
            groups: 2,
            queries: 37,
            keys: 45,
            head_dim,
            value_dim: head_dim - 3,
        };
        add_variants(records, &random_attention(&mut g, dtype, &shape).graph().0);
    }
    let whole = records.all[before..].iter().filter(|r| r.kernel.name.starts_with("attention."));
    assert!(whole.count() >= 8);
}

/// Matmuls of few rows that divide their sums: by a matrix of rows that are read together, of columns that are, and of neither.
fn add_few_rows(records: &mut Records) {
    use DType::{BF16, F16, F32};
    for (dtype, rows, [k, n], transposed) in [
        (F32, 1, [300, 40], false),
        (BF16, 3, [304, 40], false),
        (F16, 1, [304, 33], true),
        (F32, 4, [260, 70], true),
        (BF16, 2, [301, 35], false),
    ] {
        let mut g = Graph::new("few");
        let x = g.input("x", Shape::new(&[rows, k], dtype));
        let stored = if transposed { [n, k] } else { [k, n] };
        let mut w = g.input("w", Shape::new(&stored, dtype));
        if transposed {
            w = g.try_add(Op::Transpose { perm: vec![1, 0] }, &[w]).unwrap();
        }
        let y = g.try_add(Op::MatMul, &[x, w]).unwrap();
        let y = g.try_add(Op::Activation(Activation::Relu), &[y]).unwrap();
        g.set_outputs(vec![y]);
        let (target, module) = (&records.target, try_module(&g, &records.target).unwrap());
        let executable = Executable::by(Arc::clone(&module), |step| {
            let few = rlx_kernel::few_rows(step, &module, target)?;
            Ok(few.into_iter().map(|of| of.launch).collect())
        });
        records.add(&executable.unwrap(), &DimBinding::new(), "few rows");
    }
}

/// Whether this is the suite `kernel-text`; a skip is said otherwise.
fn asked() -> bool {
    let asked = models::everything();
    if !asked {
        println!(
            "@skip 1 the text of every kernel: `cargo xtask test --suite kernel-text`, or RLX_TEST_ALL=1, runs it"
        );
    }
    asked
}

/// Every kernel of the test models that are not of full size, in f32, and of two in short floats.
#[test]
fn every_kernel_of_the_models_runs_as_text() {
    if !asked() {
        return;
    }
    for (target, dialects) in devices() {
        let mut records = Records::of(target);
        for model in models::all().into_iter().filter(|m| !m.full && !m.needs_package()) {
            records.add_model(&model.name, Precision::F32);
        }
        for precision in [Precision::F16, Precision::BF16] {
            ["bert_dynamic", "resnet18"].iter().for_each(|name| records.add_model(name, precision));
        }
        assert!(records.all.len() > 300, "only {} kernels", records.all.len());
        dialects.iter().for_each(|&dialect| records.check(dialect));
    }
}

/// Every variant of the kernels of random cases of every op.
#[test]
fn every_kernel_of_every_op_runs_as_text() {
    if !asked() {
        return;
    }
    for (target, dialects) in devices() {
        let mut records = Records::of(target);
        for &kind in OpKind::ALL {
            for seed in 0..12 {
                add_variants(&mut records, &Case::random(kind, seed).graph().0);
            }
        }
        assert!(records.all.len() > 300, "only {} kernels", records.all.len());
        dialects.iter().for_each(|&dialect| records.check(dialect));
    }
}

fn add_variants(records: &mut Records, graph: &Graph) {
    let target = records.target.clone();
    let Ok(module) = try_module(graph, &target) else { return };
    let (mut variant, most) = (0, std::cell::Cell::new(1));
    while variant < most.get() {
        let choose = |variants: &[String]| {
            most.set(most.get().max(variants.len()));
            variant.min(variants.len() - 1)
        };
        let Ok(executable) = Executable::choosing(Arc::clone(&module), &target, choose) else { return };
        records.add(&executable, &DimBinding::new(), &graph.to_string());
        variant += 1;
    }
}
