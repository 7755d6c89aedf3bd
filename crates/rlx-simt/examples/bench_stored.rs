//! How long the kernels and tile programs of a model take to make for CUDA, and to read where they are stored, on the fake driver: nothing of it is a driver's.
//!
//! ```sh
//! cargo run --release -p rlx-simt --example bench_stored -- minilm resnet18
//! ```
//!
//! *Verified* is the module, in either case before. Models are compiled in f16, for GPUs of sm_80 and sm_90a and both numerics; sizes are open as they are in the file. Minimum of seven.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rlx_backend::{Backend, CompileCache};
use rlx_driver::Device;
use rlx_ir::LirModule;
use rlx_onnx::{ImportOptions, OnnxFile, import};
use rlx_opt::{CompileOptions, CompilePipeline, Numerics, Precision};
use rlx_simt::{Options, SimtBackend};
use rlx_testdata::fake_driver::{BUILT, DRIVERS, link};
use rlx_testdata::models::model;
use tracing::field::{Field, Visit};

const ROUNDS: usize = 7;

/// What was said last of kernels that were made or read: a message, how long it took, how many there were.
#[derive(Default, Clone)]
struct Last(Arc<Mutex<Vec<(String, String)>>>);

#[derive(Default)]
struct Fields(Vec<(String, String)>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push((field.name().to_owned(), format!("{value:?}")));
    }
}

impl Last {
    fn field(&self, name: &str) -> String {
        let fields = self.0.lock().expect("one thread");
        fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone()).unwrap_or_default()
    }

    /// How long it took, and how long the module's verification before, in milliseconds; it must be this that was done.
    fn took(&self, what: &str) -> [f64; 2] {
        assert_eq!(self.field("message"), what);
        ["took", "verified"].map(|name| self.milliseconds(name))
    }

    fn milliseconds(&self, name: &str) -> f64 {
        let took = self.field(name);
        let unit = took.find(|c: char| c.is_alphabetic() || c == 'µ').expect("a unit");
        let number: f64 = took[..unit].parse().expect("a number");
        number
            * [("ms", 1.0), ("µs", 1e-3), ("s", 1e3)].iter().find(|u| u.0 == &took[unit..]).expect("a unit").1
    }
}

impl tracing::Subscriber for Last {
    fn enabled(&self, of: &tracing::Metadata<'_>) -> bool {
        of.target() == "rlx_gpu::backend"
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        *self.0.lock().expect("one thread") = fields.0;
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// The least times that compiling by `kept` says, and what the executable leaves.
fn measure(
    (backend, lir, options): (&SimtBackend, &Arc<LirModule>, &CompileOptions),
    (last, what): (&Last, &str),
    kept: &CompileCache,
) -> ([f64; 2], CompileCache) {
    let (mut least, mut left) = ([f64::MAX; 2], CompileCache::default());
    for _ in 0..ROUNDS {
        let exec = backend.compile_cached(Arc::clone(lir), options, kept).unwrap_or_else(|e| panic!("{e}"));
        let took = last.took(what);
        least = [0, 1].map(|i| least[i].min(took[i]));
        left.code = exec.code().unwrap_or_else(|e| panic!("{e}"));
    }
    (least, left)
}

fn line(name: &str, folder: &Path, last: &Last) {
    let path = model(name).graph_file().unwrap_or_else(|| panic!("{name} is not there"));
    let file = OnnxFile::open(&path).unwrap_or_else(|e| panic!("{e}"));
    let imported = import(&file, &ImportOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    for (ordinal, architecture) in [(1, "sm_80"), (0, "sm_90a")] {
        for numerics in [Numerics::Strict, Numerics::Fast] {
            let options = Options { folders: vec![folder.to_owned()], ordinal, blas: false };
            let backend = SimtBackend::new(Device::Cuda).with_options(options);
            let options =
                CompileOptions { precision: Precision::F16, ..CompileOptions::default() }.numerics(numerics);
            let target = backend.target(&options).unwrap_or_else(|e| panic!("{e}"));
            let pipeline = CompilePipeline::new(target, options.clone());
            let lir = Arc::new(pipeline.compile(&imported.graph).unwrap_or_else(|e| panic!("{e}")).lir);
            let of = (&backend, &lir, &options);
            let ([made, verified], kept) = measure(of, (last, "made kernels"), &CompileCache::default());
            let ([read, _], _) = measure(of, (last, "read kernels"), &kept);
            let bytes: usize = kept.code.iter().map(|part| part.bytes.len()).sum();
            println!(
                "| {name}, {architecture}, {numerics:?} | {} | {} | {} | {:.0} | {verified:.1} | {made:.1} | {read:.2} |",
                lir.init.len() + lir.steps.len(),
                last.field("programs"),
                last.field("kernels"),
                bytes as f64 / 1e3
            );
        }
    }
}

fn main() {
    let program = std::env::current_exe().expect("a program knows itself");
    let built = program.ancestors().nth(2).expect("a folder").join("deps").join(BUILT);
    let folder: PathBuf = std::env::temp_dir().join(format!("rlx-bench-stored-{}", std::process::id()));
    link(&built, &folder, DRIVERS).expect("a folder for the fake driver");
    let last = Last::default();
    tracing::subscriber::set_global_default(last.clone()).expect("the first subscriber");
    println!("| | steps | programs | kernels | kB stored | verified, ms | made, ms | read, ms |");
    println!("|---|---|---|---|---|---|---|---|");
    std::env::args().skip(1).for_each(|name| line(&name, &folder, &last));
    std::fs::remove_dir_all(folder).expect("the folder for the fake driver");
}
