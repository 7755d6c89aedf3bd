//! What is chosen by measurement, and kept: the AOT cache "keeps what costs time: plan, packed weights, generated kernels,
//! tuning", and "the same bits, whichever thread count, clone or tuning", but for orders of sums that fast numerics let a device choose. By public names only.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rlx_contract::{empty_folder, with_cache, with_env};
use rlx_ir::lir::{Step, StepKind};
use rlx_ir::op::Activation;
use rlx_ir::progress::Stage;
use rlx_ir::{
    DType, DimBinding, Error, ErrorKind, Graph, GraphExt, LirModule, Op, Progress, Result, Shape, Weight,
    WeightStore, sym,
};
use rlx_opt::Target;
use rlx_runtime::backend::{Backend, CompileCache, ExecutableGraph, InputSource, MemoryInfo, TuningKey};

use rlx_runtime::tuning::{BitClass, Found};
use rlx_runtime::{
    AotCache, Artefact, CompileOptions, CompiledGraph, Device, Dim, NewArtefact, Numerics, Session, Tune,
    TunedStep, backend_for,
};

/// The CPU with several variants to multiply matrices, of which some are no good, and some for open dimensions only.
struct Variants(&'static [&'static str]);

/// A graph of the CPU that dawdles, or gets a bit wrong.
struct Dawdling {
    exec: Box<dyn ExecutableGraph>,
    wait: Duration,
    flips: Option<(usize, u8)>,
    outputs: Vec<Vec<u8>>,
}

fn cpu() -> Box<dyn Backend> {
    backend_for(Device::Cpu).unwrap()
}

impl Backend for Variants {
    fn name(&self) -> &str {
        "variants"
    }

    fn probe(&self) -> Result<()> {
        Ok(())
    }

    fn target(&self, options: &CompileOptions) -> Result<Arc<dyn Target>> {
        cpu().target(options)
    }

    fn compile(&self, lir: Arc<LirModule>, options: &CompileOptions) -> Result<Box<dyn ExecutableGraph>> {
        self.compile_cached(lir, options, &CompileCache::default())
    }

    fn tuning_key(
        &self,
        lir: &LirModule,
        step: &Step,
        options: &CompileOptions,
    ) -> Result<Option<TuningKey>> {
        let is_product = matches!(&step.kind, StepKind::Op(op) if *op == Op::MatMul);
        let (fixed, fast) = (step.symbols().is_empty(), options.numerics == Numerics::Fast);
        // `name/class` has other bits than those without a class.
        let offered = |w: &&&str| !(fixed && w.starts_with("open")) && (fast || !w.contains('/'));
        let (variants, classes): (Vec<&str>, Vec<&str>) =
            { self.0.iter().filter(offered) }.map(|w| w.split_once('/').unwrap_or((w, "usual"))).unzip();
        let variants = variants.into_iter().map(str::to_owned).collect();
        // `name~time` predicts a time.
        let time = |w: &&str| -> Option<u64> { w.split_once('~')?.1.parse().ok() };
        let predicted: Option<Vec<u64>> = self.0.iter().map(time).collect();
        let Some(key) = is_product.then(|| TuningKey::of(lir, step, "", variants)).flatten() else {
            return Ok(None);
        };
        let key = predicted.map_or(key.clone(), |times| key.with_predicted(times));
        Ok(Some(key.with_classes(classes.into_iter().map(BitClass::new).collect())))
    }

    fn compile_cached(
        &self,
        lir: Arc<LirModule>,
        options: &CompileOptions,
        kept: &CompileCache,
    ) -> Result<Box<dyn ExecutableGraph>> {
        let mut variant = "none".to_string();
        for step in &lir.steps {
            if let Some(key) = self.tuning_key(&lir, step, options)? {
                variant.clone_from(&key.variants[kept.tuning.variant(&key)]);
            }
        }
        let wait = match variant.as_str() {
            "broken" => return Err(Error::new(ErrorKind::Unsupported, "a variant that does not compile")),
            "late" => {
                std::thread::sleep(Duration::from_millis(100));
                Duration::ZERO
            }
            "slow" | "slower" => Duration::from_millis(6),
            "fast" => Duration::from_millis(2),
            _ => Duration::ZERO,
        };
        let exec = cpu().compile(lir, options)?;
        // A bit of the first number: its last one, or one that is worth more than rounding.
        let flips = match variant.split('@').next() {
            Some("wrong" | "near") => Some((0, 1)),
            Some("far") => Some((2, 1)),
            _ => None,
        };
        Ok(Box::new(Dawdling { exec, wait, flips, outputs: Vec::new() }))
    }
}

impl ExecutableGraph for Dawdling {
    fn lir(&self) -> &Arc<LirModule> {
        self.exec.lir()
    }

    fn set_param(&mut self, index: usize, weight: Arc<Weight>) -> Result<()> {
        self.exec.set_param(index, weight)
    }

    fn run(&mut self, inputs: &dyn InputSource, dims: &[i64]) -> Result<()> {
        std::thread::sleep(self.wait);
        self.exec.run(inputs, dims)?;
        let outputs = 0..self.exec.lir().outputs.len();
        self.outputs = outputs.map(|i| self.exec.output(i).map(<[u8]>::to_vec)).collect::<Result<_>>()?;
        if let Some((byte, bit)) = self.flips {
            self.outputs[0][byte] ^= bit;
        }
        Ok(())
    }

    fn output(&self, index: usize) -> Result<&[u8]> {
        Ok(&self.outputs[index])
    }

    fn memory(&self) -> MemoryInfo {
        self.exec.memory()
    }

    fn try_clone(&self) -> Result<Box<dyn ExecutableGraph>> {
        let outputs = self.outputs.clone();
        Ok(Box::new(Dawdling { exec: self.exec.try_clone()?, outputs, ..*self }))
    }
}

fn session(variants: &'static [&'static str]) -> Session {
    Session::with_backend(Device::Tpu, Arc::new(Variants(variants)))
}

/// x · w of open rows.
fn product() -> Graph {
    let mut g = Graph::new("product");
    let x = g.input("x", Shape::from_dims(&[Dim::Dynamic(sym::SEQ), Dim::Static(4)], DType::F32));
    let w = g.param("w", Shape::new(&[4, 3], DType::F32));
    let y = g.mm(x, w);
    g.set_outputs(vec![y]);
    g
}

fn options(tune: Tune) -> CompileOptions {
    CompileOptions::default().tune(tune)
}

fn compile(session: &Session, tune: Tune) -> CompiledGraph {
    session.try_compile_with(product(), &options(tune)).unwrap()
}

fn variants_of(keys: &[TunedStep]) -> Vec<&str> {
    keys.iter().map(|s| s.variant.as_str()).collect()
}

fn run(compiled: &mut CompiledGraph) -> Vec<Vec<f32>> {
    compiled.set_param("w", &std::array::from_fn::<f32, 12, _>(|i| i as f32));
    compiled.run(&[("x", &[1.0, 10.0, 100.0, 1000.0])])
}

#[test]
fn the_fastest_variant_of_the_same_bits_is_taken_and_kept() {
    with_cache("the_fastest_variant_of_the_same_bits_is_taken_and_kept", || {
        let session = session(&["slow", "wrong", "broken", "fast"]);
        let mut first = compile(&session, Tune::Cached);
        assert!(first.tuned_steps().is_empty(), "nothing was measured yet");
        let mut measured = compile(&session, Tune::Measure);
        let [key] = measured.tuned_steps() else { panic!("{:?}", measured.tuned_steps()) };
        assert_eq!((key.variant.as_str(), key.steps), ("fast", 1));
        let times: Vec<_> =
            key.times.iter().map(|(variant, time)| (variant.as_str(), time.is_some())).collect();
        assert_eq!(times, [("slow", true), ("wrong", false), ("broken", false), ("fast", true)]);
        assert!(key.to_string().contains("MatMul"), "{key}");
        let expected = run(&mut first);
        assert_eq!(expected, [[9630.0, 10741.0, 11852.0]]);
        assert_eq!(run(&mut measured), expected);
        // Other sessions know it, and measure nothing.
        for tune in [Tune::Cached, Tune::Measure] {
            let kept = compile(&session, tune);
            assert_eq!(variants_of(kept.tuned_steps()), ["fast"]);
            assert!(kept.tuned_steps()[0].times.is_empty());
        }
        assert!(compile(&session, Tune::Off).tuned_steps().is_empty());
    });
}

/// x · y, neither of which is packed.
fn product_of_inputs() -> Graph {
    let mut g = Graph::new("product");
    let x = g.input("x", Shape::new(&[5, 40], DType::F32));
    let y = g.input("y", Shape::new(&[40, 3], DType::F32));
    let z = g.mm(x, y);
    g.set_outputs(vec![z]);
    g
}

#[test]
fn another_class_is_taken_if_it_is_as_near_to_the_oracle_and_under_fast_numerics_alone() {
    with_cache("another_class_is_taken_if_it_is_as_near_to_the_oracle_and_under_fast_numerics_alone", || {
        let compile = |session: &Session, numerics, tune| {
            let options = options(tune).numerics(numerics);
            session.try_compile_with(product_of_inputs(), &options).unwrap()
        };
        let near = session(&["slower", "near/sums", "slow"]);
        let strict = compile(&near, Numerics::Strict, Tune::Measure);
        assert!(strict.tuned_steps().iter().all(|step| step.other_class().is_none()));

        // What was compiled before is not found by its key any more.
        let cache = AotCache::new(empty_folder("classes-aot"));
        let weights = WeightStore::new();
        let found = |numerics| {
            cache
                .get_artefact("product", &["file"], &near, &options(Tune::Cached).numerics(numerics))
                .is_some()
        };
        let put = |numerics| {
            let mut compiled = compile(&near, numerics, Tune::Cached);
            let options = options(Tune::Cached).numerics(numerics);
            let new = NewArtefact { options, ..NewArtefact::new("product", &weights) };
            cache.put_artefact("product", &["file"], &near, &mut compiled, new).unwrap();
        };
        [Numerics::Fast, Numerics::Strict].into_iter().for_each(put);
        assert!(found(Numerics::Fast) && found(Numerics::Strict));
        let fast = compile(&near, Numerics::Fast, Tune::Measure);
        let [step] = fast.tuned_steps() else { panic!("{:?}", fast.tuned_steps()) };
        assert_eq!((step.variant.as_str(), step.found), ("near@sums", Found::Now));
        assert_eq!(step.other_class().map(|class| class.name().to_owned()).as_deref(), Some("sums"));
        assert!(step.what.ends_with(", usually by usual"), "{step}");
        assert!(!found(Numerics::Fast) && found(Numerics::Strict));
        put(Numerics::Fast);
        assert!(found(Numerics::Fast));
        let far = session(&["slow", "far/sums"]);
        assert_eq!(variants_of(compile(&far, Numerics::Fast, Tune::Measure).tuned_steps()), ["slow"]);
    });
}

#[test]
fn of_many_variants_the_default_and_those_of_least_predicted_time_are_measured() {
    const MANY: &[&str] = &[
        "a~90", "b~20", "c~19", "d~18", "e~17", "f~16", "g~15", "h~14", "i~13", "j~12", "k~11", "l~10",
        "m~9", "n~8", "o~7", "p~6", "q~5", "r~4", "s~3", "t~2",
    ];
    with_cache("of_many_variants_the_default_and_those_of_least_predicted_time_are_measured", || {
        let measured = compile(&session(MANY), Tune::Measure);
        let [key] = measured.tuned_steps() else { panic!("{:?}", measured.tuned_steps()) };
        let tried: Vec<&str> = key.times.iter().map(|(variant, _)| variant.as_str()).collect();
        let least: Vec<&str> = MANY[5..].iter().rev().copied().collect();
        assert_eq!(tried, [&["a~90"][..], &least].concat());
        assert_eq!((tried.len(), key.offered, key.default.as_str()), (16, 20, "a~90"));
    });
}

#[test]
fn what_there_is_no_time_to_measure_is_left_and_measured_by_a_later_call() {
    with_cache("what_there_is_no_time_to_measure_is_left_and_measured_by_a_later_call", || {
        let found = |variants: &'static [&'static str], limit: Duration| {
            let progress = Progress::none().with_tuning_limit(limit);
            let options = options(Tune::Measure);
            let compiled =
                session(variants).try_compile_with_progress(product(), &options, &progress).unwrap();
            let [key] = compiled.tuned_steps() else { panic!("{:?}", compiled.tuned_steps()) };
            (key.found, key.variant.clone(), key.times.len())
        };
        let late = &["late", "fast"];
        assert_eq!(found(late, Duration::ZERO), (Found::OutOfTime, "late".to_owned(), 0));
        // Compiling a variant counts: the second one is not compiled any more.
        assert_eq!(found(late, Duration::from_millis(50)), (Found::OutOfTime, "late".to_owned(), 0));
        let fast = &["slow", "fast"];
        assert_eq!(found(fast, Duration::from_secs(600)), (Found::Now, "fast".to_owned(), 2));
        assert_eq!(found(fast, Duration::ZERO), (Found::Earlier, "fast".to_owned(), 0));
    });
}

#[test]
fn progress_names_the_variant_and_how_many_there_are() {
    with_cache("progress_names_the_variant_and_how_many_there_are", || {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&heard);
        let progress = Progress::none().reporting(move |event| {
            if event.stage == Stage::Tune {
                to.lock().unwrap().push(event.to_string());
            }
        });
        let mut graph = product();
        let v = graph.param("v", Shape::new(&[3, 4], DType::F32));
        let y = graph.outputs[0];
        let y = graph.mm(y, v);
        graph.set_outputs(vec![y]);
        let options = options(Tune::Measure);
        session(&["slow", "fast"]).try_compile_with_progress(graph, &options, &progress).unwrap();
        let heard = heard.lock().unwrap();
        let starts = [
            "tuning 0/2 slow (1 of 2) of MatMul",
            "tuning 0/2 fast (2 of 2) of MatMul",
            "tuning 1/2 1 faster, ",
        ];
        for start in starts {
            assert!(heard.iter().any(|event| event.starts_with(start)), "{start}: {heard:#?}");
        }
    });
}

#[test]
fn variants_are_told_apart_by_name_where_fixed_sizes_have_fewer() {
    with_cache("variants_are_told_apart_by_name_where_fixed_sizes_have_fewer", || {
        let measured = compile(&session(&["open", "slow", "open-too", "fast"]), Tune::Measure);
        let [key] = measured.tuned_steps() else { panic!("{:?}", measured.tuned_steps()) };
        let timed: Vec<_> = key.times.iter().map(|(variant, _)| variant.as_str()).collect();
        assert_eq!((key.variant.as_str(), timed), ("fast", vec!["slow", "fast"]));
    });
}

#[test]
fn a_variant_that_is_gone_is_measured_again() {
    with_cache("a_variant_that_is_gone_is_measured_again", || {
        compile(&session(&["slow", "fast"]), Tune::Measure);
        let fewer = session(&["slow", "other"]);
        assert_eq!(variants_of(compile(&fewer, Tune::Cached).tuned_steps()), ["slow"]);
        assert_eq!(variants_of(compile(&fewer, Tune::Measure).tuned_steps()), ["other"]);
    });
}

#[test]
fn a_first_variant_that_fails_is_a_warning_and_stays() {
    with_cache("a_first_variant_that_fails_is_a_warning_and_stays", || {
        let broken = session(&["broken", "fast"]);
        assert!(broken.try_compile_with(product(), &options(Tune::Off)).is_err());
        let wrong = session(&["wrong", "fast"]);
        assert_eq!(variants_of(compile(&wrong, Tune::Measure).tuned_steps()), ["wrong"]);
    });
}

#[test]
fn damaged_tunings_are_none() {
    with_cache("damaged_tunings_are_none", || {
        let session = session(&["slow", "fast"]);
        compile(&session, Tune::Measure);
        let folder = std::path::PathBuf::from(std::env::var("RLX_CACHE_DIR").unwrap()).join("tuning");
        let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
        let [file] = files.as_slice() else { panic!("{files:?}") };
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.contains("\nfast MatMul"), "{text}");
        std::fs::write(file, text.replace("fast", "slow")).unwrap();
        assert!(compile(&session, Tune::Cached).tuned_steps().is_empty());
        assert_eq!(variants_of(compile(&session, Tune::Measure).tuned_steps()), ["fast"]);
        assert_eq!(std::fs::read_to_string(file).unwrap(), text);
    });
}

/// A store with the parameter.
fn weights() -> WeightStore {
    let bytes: Vec<u8> = (0..12).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let mut weights = WeightStore::new();
    weights.insert("w", Weight::owned(DType::F32, &[4, 3], bytes).unwrap());
    weights
}

#[test]
fn artefacts_keep_the_tuning_and_differ_in_nothing_else() {
    with_cache("artefacts_keep_the_tuning_and_differ_in_nothing_else", || {
        let (session, weights) = (session(&["slow", "fast"]), weights());
        let folder = empty_folder("tuned-artefacts");
        std::fs::create_dir_all(&folder).unwrap();
        let save = |tune: Tune, name: &str| {
            let mut compiled = compile(&session, tune);
            run(&mut compiled);
            let path = folder.join(name);
            session.save(&path, &mut compiled, NewArtefact::new("product", &weights)).unwrap();
            path
        };
        let (plain, tuned) = (save(Tune::Off, "plain.rlx"), save(Tune::Measure, "tuned.rlx"));
        let (a, b) = (std::fs::read(&plain).unwrap(), std::fs::read(&tuned).unwrap());
        // The section's hash alone follows what it says.
        let same = a.len() - 32;
        assert_eq!(a[..same], b[..same]);
        assert!(b.len() > a.len());
        // It is good without what this machine keeps besides.
        std::fs::remove_dir_all(std::env::var("RLX_CACHE_DIR").unwrap()).unwrap();
        let artefact = Artefact::open(&tuned).unwrap();
        assert_eq!(
            artefact.tuning().unwrap().iter().map(|(_, variant)| variant).collect::<Vec<_>>(),
            ["fast"]
        );
        let mut loaded = session.load(&artefact).unwrap();
        assert_eq!(variants_of(loaded.tuned_steps()), ["fast"]);
        assert_eq!(run(&mut loaded), [[9630.0, 10741.0, 11852.0]]);
        assert!(session.load(&Artefact::open(&plain).unwrap()).unwrap().tuned_steps().is_empty());
        std::fs::remove_dir_all(folder).unwrap();
    });
}

#[test]
fn entries_of_the_aot_cache_keep_the_tuning() {
    with_cache("entries_of_the_aot_cache_keep_the_tuning", || {
        let kept = std::path::PathBuf::from(std::env::var("RLX_CACHE_DIR").unwrap());
        let cache = AotCache::new(kept.join("aot"));
        let compile =
            |tune: Tune| cache.compile_graph_cached("product", Device::Cpu, wide(), &options(tune)).unwrap();
        let measured = compile(Tune::Measure);
        let keys = measured.tuned_steps();
        assert!(!keys.is_empty() && keys.iter().all(|s| !s.times.is_empty()), "{keys:?}");
        std::fs::remove_dir_all(kept.join("tuning")).unwrap();
        let again = compile(Tune::Cached);
        assert_eq!(variants_of(again.tuned_steps()), variants_of(keys));
        assert!(again.tuned_steps().iter().all(|s| s.times.is_empty()));
    });
}

/// A matmul large enough to be worth measuring, with what follows it, and a convolution.
fn wide() -> Graph {
    let mut g = Graph::new("wide");
    let x = g.input("x", Shape::from_dims(&[Dim::Dynamic(sym::SEQ), Dim::Static(96)], DType::F32));
    let [w, v] = ["w", "v"].map(|name| g.param(name, Shape::new(&[96, 96], DType::F32)));
    let b = g.param("b", Shape::new(&[96], DType::F32));
    let y = g.mm(x, w);
    let y = g.add(y, b);
    let y = g.activation(
        Activation::Gelu,
        y,
        Shape::from_dims(&[Dim::Dynamic(sym::SEQ), Dim::Static(96)], DType::F32),
    );
    let y = g.mm(y, v);
    let image = g.input("image", Shape::new(&[1, 8, 14, 14], DType::F32));
    let k = g.param("k", Shape::new(&[16, 8, 3, 3], DType::F32));
    let z = g.conv2d(image, k, [3, 3], [1, 1], [1, 1], [1, 1], 1);
    g.set_outputs(vec![y, z]);
    g
}

fn values(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 37 + seed * 11) % 101) as f32 / 50.0 - 1.0).collect()
}

/// What the device gives at two lengths, and how its steps were done.
fn outputs(device: Device, options: &CompileOptions) -> (Vec<Vec<Vec<f32>>>, Vec<TunedStep>) {
    let mut compiled = Session::new(device).try_compile_with(wide(), options).unwrap();
    for (i, (name, n)) in
        [("w", 96 * 96), ("v", 96 * 96), ("b", 96), ("k", 16 * 8 * 9)].into_iter().enumerate()
    {
        compiled.set_param(name, &values(n, i));
    }
    let image = values(8 * 14 * 14, 9);
    let runs = [1, 33].map(|rows| compiled.run(&[("x", &values(rows * 96, 5)), ("image", &image)]));
    (runs.to_vec(), compiled.tuned_steps().to_vec())
}

/// Measured on a device, nothing changes but times, also where a binding fixes the dimensions.
fn no_bit_changes(device: Device) {
    let (expected, _) = outputs(device, &options(Tune::Off));
    let (found, keys) = outputs(device, &options(Tune::Measure));
    assert_eq!(found, expected);
    let ops: Vec<_> = keys.iter().map(|s| s.what.as_str()).collect();
    for op in ["MatMul", "Conv"] {
        assert!(ops.iter().any(|what| what.starts_with(op)), "{op} is not among {ops:#?}");
    }
    for key in &keys {
        println!("{key}");
        assert!(key.times.len() > 1 && key.times.iter().all(|(_, time)| time.is_some()), "{key}");
    }
    let (found, keys) = outputs(device, &options(Tune::Cached));
    assert_eq!(found, expected);
    assert!(!keys.is_empty());
    let fixed = options(Tune::Measure).dim_binding(DimBinding::from_pairs(&[(sym::SEQ, 33)]));
    let compiled = Session::new(device).try_compile_with(wide(), &fixed).unwrap();
    assert!(compiled.tuned_steps().iter().any(|s| !s.times.is_empty()), "other dimensions are other keys");
}

#[test]
fn no_bit_changes_on_the_cpu() {
    with_cache("no_bit_changes_on_the_cpu", || no_bit_changes(Device::Cpu));
}

#[cfg(feature = "vulkan")]
#[test]
fn no_bit_changes_on_vulkan() {
    rlx_contract::on(Device::Vulkan, |_| {
        with_cache("no_bit_changes_on_vulkan", || no_bit_changes(Device::Vulkan))
    });
}

#[cfg(feature = "opengl")]
#[test]
fn no_bit_changes_on_opengl() {
    rlx_contract::on(Device::OpenGl, |_| {
        with_cache("no_bit_changes_on_opengl", || no_bit_changes(Device::OpenGl))
    });
}

#[test]
fn the_environment_decides_where_the_options_do_not() {
    let test = "the_environment_decides_where_the_options_do_not";
    with_env(test, &[("RLX_TUNE", "measure")], || assert_eq!(CompileOptions::new().tune, Tune::Measure));
    with_env(test, &[("RLX_TUNE", "off")], || assert_eq!(CompileOptions::new().tune, Tune::Off));
    with_env(test, &[("RLX_TUNE", "perhaps")], || {
        let error = CompileOptions::try_new().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("RLX_TUNE") && error.to_string().contains("measure"), "{error}");
    });
    assert_eq!(CompileOptions::default().tune, Tune::Cached);
    assert_eq!("Measure".parse::<Tune>().unwrap(), Tune::Measure);
}
