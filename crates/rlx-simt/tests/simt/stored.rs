//! What an executable leaves in a file, on the fake driver's GPUs: kernels, tile programs and choices are taken instead of made and give the same bits; what this
//! user's RLX did not leave so, for this device and module, is seen, and made again.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use rlx_artifact::{Artefact, ArtefactTarget, Digest, EncodedModule, NewFile};
use rlx_backend::testing::run;
use rlx_backend::tuning::Tuning;
use rlx_backend::{Backend, CodePart, CompileCache, ExecutableGraph};
use rlx_driver::Device;
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{
    AttentionShape, Gen, damaged_bytes, random_attention, random_bindings, random_conv,
    random_paged_attention,
};
use rlx_ir::{DType, DimBinding, ErrorKind, Graph, LirModule, Progress, sym};
use rlx_onnx::{ImportOptions, Imported, OnnxFile, import};
use rlx_opt::{CompileOptions, Numerics, Precision};
use rlx_simt::SimtBackend;
use rlx_testdata::models::model;
use tracing::field::{Field, Visit};

use crate::common::{everything, fake, second_gpu};
use crate::parts::{fast, strict};
use crate::tiles::{MODELS, module, outputs};
use crate::written::layer;

/// What is said while something is done: messages, and numbers of kernels and programs.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<String>>>);

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if matches!(field.name(), "message" | "kernels" | "programs" | "count") {
            self.0.lock().unwrap().push(format!("{} {value:?}", field.name()));
        }
    }
}

impl tracing::Subscriber for Said {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// How an executable was made.
#[derive(Debug, PartialEq)]
enum How {
    Read,
    Made,
    /// After a warning.
    MadeAgain,
}

fn by(
    backend: &SimtBackend,
    lir: &Arc<LirModule>,
    options: &CompileOptions,
    code: Vec<CodePart>,
) -> (Box<dyn ExecutableGraph>, How, String) {
    let (said, cache) = (Said::default(), CompileCache { code, ..CompileCache::default() });
    let exec = tracing::subscriber::with_default(said.clone(), || {
        backend.compile_cached(Arc::clone(lir), options, &cache).unwrap_or_else(|e| panic!("{e}\n{lir}"))
    });
    let said = said.0.lock().unwrap().join("\n");
    let again = said.contains("not as this user left them: they are made again");
    let how = match (said.contains("read kernels"), said.contains("made kernels")) {
        (true, false) => How::Read,
        (false, true) if again => How::MadeAgain,
        (false, true) => How::Made,
        found => panic!("{found:?}\n{said}"),
    };
    (exec, how, said)
}

/// Random convolutions and attentions, whole and on pages, and layers whose rows are open or whose sums are long.
fn graphs(g: &mut Gen) -> Vec<(Graph, Bindings)> {
    let shape = AttentionShape {
        kv_heads: 2,
        groups: g.size(1..=2),
        head_dim: 8 * g.size(1..=6),
        value_dim: 8 * g.size(1..=6),
        batch: g.size(1..=2),
        queries: g.size(1..=10),
        keys: g.size(1..=40),
    };
    let (conv, attention) = (random_conv(g, DType::F16), random_attention(g, DType::F16, &shape));
    let attention = attention.graph();
    let bound = |graph: Graph, rows: usize| {
        let bindings = random_bindings(&graph, &DimBinding::from_pairs(&[(sym::SEQ, rows)]), 5);
        (graph, bindings)
    };
    let few = g.size(1..=3);
    vec![
        bound(conv, 1),
        attention,
        random_paged_attention(g, DType::F16, &shape, 8),
        bound(layer("seq", 64, 40), 33),
        bound(layer("seq", 1300, 24), few),
        bound(layer("1", 1300, 24), 1),
    ]
}

#[test]
fn stored_programs_are_taken_and_give_the_same_bits() {
    let _alone = second_gpu();
    let (mut programs, mut choices) = (0, 0);
    for (device, ordinal, ..) in MODELS {
        let backend = fake(device, ordinal);
        for seed in 0..if everything() { 10 } else { 1 } {
            let mut g = Gen::new(seed + 100 * ordinal as u64);
            for (graph, bindings) in graphs(&mut g) {
                for options in [strict(), fast()] {
                    let lir = module(&graph, &backend, &options);
                    let (mut own, how, made) = by(&backend, &lir, &options, Vec::new());
                    assert_eq!(how, How::Made);
                    let code = own.code().unwrap();
                    assert_eq!(
                        code,
                        by(&backend, &lir, &options, Vec::new()).0.code().unwrap(),
                        "the same bytes"
                    );
                    let names: Vec<&str> = code.iter().map(|part| part.name.as_str()).collect();
                    assert_eq!(names, ["kernels", "choices"]);
                    let (mut read, how, told) = by(&backend, &lir, &options, code.clone());
                    assert_eq!(how, How::Read, "{told}");
                    let counts = |said: &str| -> Vec<String> {
                        let number = |l: &&str| l.starts_with("kernels ") || l.starts_with("programs ");
                        said.lines().filter(number).map(str::to_owned).collect()
                    };
                    assert_eq!(counts(&told), counts(&made));
                    programs += usize::from(!told.contains("programs 0"));
                    assert!(
                        !told.contains("compiled kernels"),
                        "what is read is what the device has already: {told}"
                    );
                    assert_eq!(read.code().unwrap(), code);
                    let want = outputs(&mut *own, &bindings);
                    assert!(outputs(&mut *read, &bindings) == want, "{device} {ordinal}\n{graph}");
                    choices += usize::from(options.numerics == Numerics::Fast);
                }
            }
        }
    }
    assert!(programs > 60 && choices > 60, "{programs} with programs, {choices} with choices");
}

#[test]
fn what_this_user_did_not_leave_so_is_made_again() {
    let _alone = second_gpu();
    let backend = fake(Device::Cuda, 1);
    let (graph, other, options) = (layer("seq", 64, 40), layer("seq", 64, 48), fast());
    let lir = module(&graph, &backend, &options);
    let (mut own, ..) = by(&backend, &lir, &options, Vec::new());
    let bindings = random_bindings(&graph, &DimBinding::from_pairs(&[(sym::SEQ, 33)]), 5);
    let (want, code) = (outputs(&mut *own, &bindings), own.code().unwrap());
    let again = |code: Vec<CodePart>, what: &str| {
        let (mut exec, how, _) = by(&backend, &lir, &options, code);
        assert_eq!(how, How::MadeAgain, "{what}");
        assert!(outputs(&mut *exec, &bindings) == want, "{what}");
    };
    let mut g = Gen::new(3);
    for at in 0..200 {
        let mut changed = code.clone();
        let bytes = &mut changed[at / 4 % 2].bytes;
        *bytes = damaged_bytes(bytes, at, &mut g);
        again(changed, &format!("change {at}"));
    }
    again(vec![code[0].clone()], "choices are missing");
    let exchanged = [1, 0].map(|at| CodePart { bytes: code[at].bytes.clone(), ..code[1 - at].clone() });
    again(exchanged.to_vec(), "one for the other");
    let of_other = by(&backend, &module(&other, &backend, &options), &options, Vec::new()).0.code().unwrap();
    again(of_other, "another module");
    // The same module on a GPU of another architecture.
    let hopper = fake(Device::Cuda, 0);
    let (_, how, _) = by(&hopper, &module(&graph, &hopper, &options), &options, code.clone());
    assert_eq!(how, How::MadeAgain);
    // What has other names is nobody's.
    let unknown = vec![CodePart { name: "something".to_owned(), bytes: vec![1, 2] }];
    assert_eq!(by(&backend, &lir, &options, unknown).1, How::Made);
    assert_eq!(by(&backend, &lir, &options, code).1, How::Read);
}

/// A file with a module and code, as a cache has it.
fn write(lir: &LirModule, backend: &SimtBackend, code: Vec<CodePart>, path: &std::path::Path) {
    let target = ArtefactTarget {
        device: backend.name().to_owned(),
        machine: backend.machine().unwrap(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        precision: "f16".to_owned(),
        options: String::new(),
    };
    let (module, tuning) = (EncodedModule::of(lir).unwrap(), Tuning::default());
    let file = NewFile::of_module(target, "model", Digest::default(), module, &tuning);
    NewFile { code, ..file }.write(path, &Progress::none(), &|| Ok(())).unwrap();
}

/// The outputs of a model's smallest golden.
fn answer(exec: &mut dyn ExecutableGraph, imported: &Imported, inputs: &Bindings) -> Vec<Vec<u8>> {
    let names: Vec<String> = exec.lir().params.iter().map(|slot| slot.name.clone()).collect();
    for (i, name) in names.iter().enumerate() {
        exec.set_param(i, Arc::clone(imported.weights.get(name).unwrap())).unwrap();
    }
    run(exec, inputs).unwrap()
}

#[test]
fn artefacts_of_models_are_loaded_with_their_programs() {
    let _alone = second_gpu();
    let path = std::env::temp_dir().join(format!("rlx-stored-{}.rlx", std::process::id()));
    for (name, least, ordinal) in [("mlp", 1, 1), ("bert_dynamic", 4, 1), ("bert_dynamic", 4, 0)] {
        let backend = fake(Device::Cuda, ordinal);
        let case = model(name);
        let Some(file) = case.graph_file() else {
            println!("@skip 1 {name} is not here");
            continue;
        };
        let imported = import(&OnnxFile::open(&file).unwrap(), &ImportOptions::default()).unwrap();
        let positions = |dims: &[(String, usize)]| dims.iter().map(|(_, n)| n).product::<usize>();
        let golden = case.goldens.iter().min_by_key(|golden| positions(&golden.dims)).unwrap();
        let mut inputs = Bindings::default();
        for (name, value) in golden.read().0 {
            inputs.set_input(name, value.value());
        }
        let options = CompileOptions { precision: Precision::F16, ..fast() };
        let lir = module(&imported.graph, &backend, &options);
        let (mut own, ..) = by(&backend, &lir, &options, Vec::new());
        let code = own.code().unwrap();
        write(&lir, &backend, code.clone(), &path);
        let artefact = Artefact::open(&path).unwrap();
        let (loaded, found) = (Arc::new(artefact.lir().unwrap()), artefact.compile_cache().unwrap().code);
        assert_eq!(found, code);
        let (mut exec, how, said) = by(&backend, &loaded, &options, found);
        assert_eq!(how, How::Read, "{said}");
        let programs = said.lines().find_map(|line| line.strip_prefix("programs ")).unwrap();
        assert!(programs.parse::<usize>().unwrap() >= least, "{name}: {programs} programs");
        let want = answer(&mut *own, &imported, &inputs);
        assert!(answer(&mut *exec, &imported, &inputs) == want, "{name}");
        // Where a file was damaged, its own hash says so.
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.len() - code[1].bytes.len() / 2;
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let damaged = Artefact::open(&path).and_then(|artefact| artefact.compile_cache());
        assert_eq!(damaged.unwrap_err().kind(), ErrorKind::Malformed);
        // Where that was made right, the seal does.
        let mut changed = code;
        let middle = changed[1].bytes.len() / 2;
        changed[1].bytes[middle] ^= 1;
        write(&lir, &backend, changed, &path);
        let found = Artefact::open(&path).unwrap().compile_cache().unwrap().code;
        let (mut exec, how, said) = by(&backend, &loaded, &options, found);
        assert_eq!(how, How::MadeAgain, "{said}");
        assert!(answer(&mut *exec, &imported, &inputs) == want, "{name}");
    }
    let _ = std::fs::remove_file(path);
}
