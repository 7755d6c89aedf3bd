//! The contract's section "pipelines, caches, registry", as far as it speaks of the AOT cache.

use std::path::{Path, PathBuf};

use rlx_contract::{DEVICE, register};
use rlx_ir::op::{Activation, BinaryOp};
use rlx_ir::{DType, Dim, DimBinding, ErrorKind, Graph, HirModule, Shape, sym};
use rlx_opt::CompileResult;
use rlx_runtime::{
    AotCache, AotCacheError, CompileOptions, CompiledGraph, Device, ModelCompilePipeline, Numerics, Session,
    stages,
};

/// A cache of the test's own, gone when the test is done.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        Temporary(std::env::temp_dir().join(format!("rlx-contract-aot-{name}-{}", std::process::id())))
    }

    fn cache(&self) -> AotCache {
        AotCache::new(&self.0)
    }

    fn files(&self) -> Vec<PathBuf> {
        let listing = std::fs::read_dir(&self.0).map(|d| d.map(|e| e.unwrap().path()).collect());
        listing.unwrap_or_default()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What is left in the temporary folder harms no one.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn f32s(dims: &[usize]) -> Shape {
    Shape::new(dims, DType::F32)
}

/// `y = gelu(x · w + b)`.
fn dense(width: usize) -> Graph {
    let mut g = Graph::new("dense");
    let x = g.input("x", f32s(&[2, 4]));
    let w = g.param("w", f32s(&[4, width]));
    let b = g.param("b", f32s(&[width]));
    let y = g.matmul(x, w, f32s(&[2, width]));
    let y = g.binary(BinaryOp::Add, y, b, f32s(&[2, width]));
    let y = g.activation(Activation::Gelu, y, f32s(&[2, width]));
    g.set_outputs(vec![y]);
    g
}

fn run_dense(compiled: &mut CompiledGraph, width: usize) -> Vec<Vec<f32>> {
    let values = |n: usize| (0..n).map(|i| (i as f32 - 3.0) / 4.0).collect::<Vec<f32>>();
    compiled.set_param("w", &values(4 * width));
    compiled.set_param("b", &values(width));
    compiled.run(&[("x", &values(8))])
}

/// A model of blocks with open batch and sequence.
fn blocks() -> HirModule {
    let rows =
        |n| Shape::from_dims(&[Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ), Dim::Static(n)], DType::F32);
    let mut m = HirModule::new("blocks");
    let (x, w) = (m.input("x", rows(4)), m.param("w", f32s(&[4, 2])));
    let y = m.linear(x, w, None, Some(Activation::Relu), rows(2));
    m.set_outputs(vec![y]);
    m
}

fn template(options: &CompileOptions) -> CompileResult {
    let graph = blocks().lower_to_mir().unwrap().into_graph();
    stages::pipeline_for(Device::Cpu, options).compile(&graph).unwrap()
}

fn run_blocks(compiled: &mut CompiledGraph, rows: usize) -> Vec<Vec<f32>> {
    compiled.set_param("w", &[1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 4.0, -4.0]);
    let x: Vec<f32> = (0..rows * 4).map(|i| i as f32).collect();
    compiled.run(&[("x", &x)])
}

/// Whether the compiler made this graph, and not the cache.
fn was_compiled(compiled: &CompiledGraph) -> bool {
    !compiled.passes().is_empty()
}

#[test]
fn a_cache_takes_anything_that_is_a_path_and_writes_nothing_before_it_must() {
    let temporary = Temporary::new("paths");
    let text = temporary.0.to_str().unwrap();
    let caches = [AotCache::new(text), AotCache::new(text.to_owned()), AotCache::new(temporary.0.clone())];
    assert!(caches.iter().all(|c| c.root() == Path::new(text) && !c.contains("anything")));
    assert!(!temporary.0.exists());
}

#[test]
fn a_module_that_was_put_comes_back() {
    let temporary = Temporary::new("lir");
    let cache = temporary.cache();
    let lir = template(&CompileOptions::new()).lir;
    assert!(!cache.contains("blocks"));
    let missing = cache.get_lir("blocks").unwrap_err();
    assert!(matches!(missing, AotCacheError::Missing(_)) && missing.to_string().contains("blocks"));
    cache.put_lir("blocks", &lir).unwrap();
    assert!(cache.contains("blocks") && !cache.contains("block"));
    let back = cache.get_lir("blocks").unwrap();
    assert_eq!(back, lir);
    // Symbols and expressions mean the same: it runs.
    let module = rlx_ir::GraphModule::from_lir(back);
    let mut compiled = Session::new(Device::Cpu).compile_module(module).unwrap();
    compiled.set_dims(&DimBinding::batch_seq(1, 3));
    assert_eq!(run_blocks(&mut compiled, 3)[0][..2], [20.0, 0.0]);
    // Names that are no file names are fine.
    cache.put_lir("../a name/with: everything", &lir).unwrap();
    assert!(cache.contains("../a name/with: everything"));
    assert!(temporary.files().len() == 2);
}

fn a_graph_is_compiled_once(device: Device) {
    register();
    let temporary = Temporary::new(&format!("graph-{device}"));
    let (cache, options) = (temporary.cache(), CompileOptions::new());
    let mut fresh = cache.compile_graph_cached("dense", device, dense(3), &options).unwrap();
    assert!(cache.contains("dense"));
    assert_eq!(temporary.files().len(), 1);
    let mut stored = cache.compile_graph_cached("dense", device, dense(3), &options).unwrap();
    assert!(!was_compiled(&stored), "the second time the cache should have served");
    assert_eq!(stored.device(), device);
    let plain = run_dense(&mut Session::new(device).compile_with(dense(3), &options), 3);
    assert_eq!(run_dense(&mut fresh, 3), plain);
    assert_eq!(run_dense(&mut stored, 3), plain);
    assert_eq!(stored.params(), fresh.params());
    assert!(stored.dispatch_report().compile_ready);
    assert_eq!(cache.get_lir("dense").unwrap(), *stored.lir());
}

rlx_contract::on_every_device!(a_graph_is_compiled_once needs Files, damaged_and_foreign_entries_are_compiled_again needs Files);

#[test]
fn blocks_are_compiled_once() {
    let temporary = Temporary::new("hir");
    let (cache, options) =
        (temporary.cache(), CompileOptions::new().dim_binding(DimBinding::batch_seq(1, 2)));
    for _ in 0..2 {
        let mut c = cache.compile_hir_cached("blocks", Device::Cpu, blocks(), &options).unwrap();
        assert_eq!(run_blocks(&mut c, 2), [[20.0, 0.0, 60.0, 0.0]]);
    }
    assert_eq!(temporary.files().len(), 1);
    let mut wrong = HirModule::new("wrong");
    let x = wrong.input("x", f32s(&[2, 3]));
    let w = wrong.param("w", f32s(&[4, 2]));
    let y = wrong.linear(x, w, None, None, f32s(&[2, 2]));
    wrong.set_outputs(vec![y]);
    let e = cache.compile_hir_cached("wrong", Device::Cpu, wrong, &options).unwrap_err();
    assert!(matches!(e, AotCacheError::Lower(_) | AotCacheError::Compile(_)), "{e:?}");
}

#[test]
fn variants_of_a_template_are_specialised_once_each() {
    let temporary = Temporary::new("variants");
    let (cache, options) = (temporary.cache(), CompileOptions::new());
    let template = template(&options);
    for round in 0..2 {
        for seq in [1, 2, 3] {
            let binding = DimBinding::batch_seq(1, seq);
            let mut c =
                cache.specialize_cached("blocks", &binding, Device::Cpu, &template, &options).unwrap();
            assert_eq!(run_blocks(&mut c, seq)[0].len(), 2 * seq);
            assert!(round == 0 || !was_compiled(&c));
        }
    }
    assert_eq!(temporary.files().len(), 3);
    // The binding wins over the options'.
    let other = CompileOptions::new().dim_binding(DimBinding::batch_seq(9, 9));
    let binding = DimBinding::batch_seq(1, 2);
    let mut c = cache.specialize_cached("blocks", &binding, Device::Cpu, &template, &other).unwrap();
    assert_eq!(run_blocks(&mut c, 2)[0].len(), 4);
    assert_eq!(temporary.files().len(), 3);
}

#[test]
fn keys_hold_all_that_the_code_depends_on() {
    register();
    let temporary = Temporary::new("keys");
    let cache = temporary.cache();
    let options = CompileOptions::new();
    let mut count = 0;
    let mut is_new = |device, graph: Graph, options: &CompileOptions| {
        cache.compile_graph_cached("model", device, graph, options).unwrap();
        let grown = temporary.files().len() > count;
        count = temporary.files().len();
        grown
    };
    assert!(is_new(Device::Cpu, dense(3), &options));
    assert!(!is_new(Device::Cpu, dense(3), &options));
    assert!(is_new(Device::Cpu, dense(5), &options), "another graph, other weights");
    assert!(is_new(DEVICE, dense(3), &options), "another device");
    assert!(is_new(Device::Cpu, dense(3), &CompileOptions::new().numerics(Numerics::Strict)));
    assert!(is_new(Device::Cpu, dense(3), &CompileOptions::new().arena_alignment(128)));
    assert!(!is_new(Device::Cpu, dense(3), &CompileOptions::new().with_verbose(true)));
    let open = || blocks().lower_to_mir().unwrap().into_graph();
    let bound = |seq| CompileOptions::new().dim_binding(DimBinding::batch_seq(1, seq));
    assert!(is_new(Device::Cpu, open(), &options));
    assert!(is_new(Device::Cpu, open(), &bound(2)));
    assert!(is_new(Device::Cpu, open(), &bound(3)));
    let mut renamed = dense(3);
    renamed.set_name(renamed.outputs[0], "y");
    assert!(is_new(Device::Cpu, renamed, &options), "another name of an output");
    // The right one is found among them.
    let mut c = cache.compile_graph_cached("model", Device::Cpu, dense(5), &options).unwrap();
    assert_eq!(run_dense(&mut c, 5)[0].len(), 10);
    assert!(matches!(cache.get_lir("model"), Err(AotCacheError::Missing(_))), "which one?");
}

fn damaged_and_foreign_entries_are_compiled_again(device: Device) {
    register();
    let temporary = Temporary::new(&format!("damaged-{device}"));
    let (cache, options) = (temporary.cache(), CompileOptions::new());
    let compile = |width| cache.compile_graph_cached("m", device, dense(width), &options).unwrap();
    let want = run_dense(&mut compile(3), 3);
    let path = temporary.files()[0].clone();
    let whole = std::fs::read(&path).unwrap();
    for at in [0, 9, 20, whole.len() / 3, whole.len() / 2] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&path, &bytes).unwrap();
        let mut again = compile(3);
        assert_eq!(run_dense(&mut again, 3), want);
        assert!(was_compiled(&again), "byte {at} of {}", whole.len());
        assert_eq!(std::fs::read(&path).unwrap(), whole, "the entry was not mended");
    }
    for len in [0, 5, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..len]).unwrap();
        assert!(!cache.contains("m"));
        let e = cache.get_lir("m").unwrap_err();
        assert!(matches!(&e, AotCacheError::Damaged(e) if e.kind() == ErrorKind::Malformed), "{e}");
        assert_eq!(run_dense(&mut compile(3), 3), want);
    }
    // Another entry in its place: whole, but not what its name says.
    compile(5);
    let other = temporary.files().into_iter().find(|f| *f != path).unwrap();
    std::fs::copy(&other, &path).unwrap();
    let mut again = compile(3);
    assert!(was_compiled(&again));
    assert_eq!(run_dense(&mut again, 3), want);
}

#[test]
fn an_unwritable_cache_is_an_error() {
    let temporary = Temporary::new("unwritable");
    std::fs::write(&temporary.0, b"a file where the folder should be").unwrap();
    let e = temporary.cache().compile_graph_cached("m", Device::Cpu, dense(3), &CompileOptions::new());
    let e = e.unwrap_err();
    assert!(matches!(e, AotCacheError::Io(_)), "{e:?}");
    let boxed: Box<dyn std::error::Error> = Box::new(e.clone());
    assert!(boxed.source().is_some() && String::from(e) == boxed.to_string());
    std::fs::remove_file(&temporary.0).unwrap();
}

#[test]
fn many_threads_may_share_a_cache() {
    let temporary = Temporary::new("threads");
    let (cache, options) = (temporary.cache(), CompileOptions::new());
    let want: Vec<_> =
        (1..5).map(|w| run_dense(&mut Session::new(Device::Cpu).compile(dense(w)), w)).collect();
    std::thread::scope(|scope| {
        for t in 0..4 {
            let (cache, options, want) = (&cache, &options, &want);
            scope.spawn(move || {
                for i in 0..12 {
                    let width = (t + i) % 4 + 1;
                    let mut c = cache.compile_graph_cached("m", Device::Cpu, dense(width), options).unwrap();
                    assert_eq!(run_dense(&mut c, width), want[width - 1]);
                }
            });
        }
    });
    assert_eq!(temporary.files().len(), 4, "one file for each entry, and nothing half written");
}

#[test]
fn a_pipeline_takes_variants_from_the_cache() {
    let temporary = Temporary::new("pipeline");
    let (cache, options) = (temporary.cache(), CompileOptions::new());
    let want = |seq| {
        let options = CompileOptions::new().dim_binding(DimBinding::batch_seq(1, seq));
        run_blocks(&mut Session::new(Device::Cpu).compile_hir_with(blocks(), &options).unwrap(), seq)
    };
    for round in 0..2 {
        let mut pipeline = ModelCompilePipeline::new(Device::Cpu);
        for seq in [2usize, 3, 2] {
            let binding = DimBinding::batch_seq(1, seq);
            let variant = pipeline
                .get_or_specialize_aot(&cache, "blocks", seq as u64, &binding, blocks, &options)
                .unwrap();
            assert_eq!(run_blocks(variant, seq), want(seq));
        }
        assert_eq!(pipeline.len(), 2);
        assert!(pipeline.contains(2) && pipeline.contains(3));
        assert_eq!(pipeline.has_template(), round == 0, "what the disk has needs no template");
    }
    assert_eq!(temporary.files().len(), 2);
    // Parameters carry over to variants from the cache, too.
    let mut pipeline = ModelCompilePipeline::new(Device::Cpu);
    let get = |pipeline: &mut ModelCompilePipeline, seq: usize| {
        let binding = DimBinding::batch_seq(1, seq);
        let variant =
            pipeline.get_or_specialize_aot(&cache, "blocks", seq as u64, &binding, blocks, &options);
        run_blocks_unset(variant.unwrap(), seq)
    };
    assert!(get(&mut pipeline, 2).is_err());
    let binding = DimBinding::batch_seq(1, 2);
    let variant = pipeline.get_or_specialize_aot(&cache, "blocks", 2, &binding, blocks, &options).unwrap();
    let ones = run_with_ones(variant, 2);
    assert_eq!(get(&mut pipeline, 3).unwrap()[0][..4], ones[0][..]);
}

fn run_blocks_unset(c: &mut CompiledGraph, rows: usize) -> rlx_ir::Result<Vec<Vec<f32>>> {
    let x: Vec<f32> = (0..rows * 4).map(|i| i as f32).collect();
    c.try_run(&[("x", &x)])
}

fn run_with_ones(c: &mut CompiledGraph, rows: usize) -> Vec<Vec<f32>> {
    c.set_param("w", &[1.0; 8]);
    run_blocks_unset(c, rows).unwrap()
}
