//! Files with correct hashes and invalid contents, as an attacker or a bug would write them.

use std::collections::HashMap;
use std::sync::Arc;

use rlx_artifact::{Artefact, Digest, EncodedModule, NewFile};
use rlx_backend::testing::{consistent, some_graph};
use rlx_backend::tuning::Tuning;
use rlx_driver::Device;
use rlx_ir::lir::StepKind;
use rlx_ir::op::Activation;
use rlx_ir::testing::{Gen, damaged_module, random_graph};
use rlx_ir::{
    ConstData, DType, ErrorKind, Extent, Graph, GraphModule, LowerError, Op, Progress, Result, Shape,
};
use rlx_opt::CompileOptions;

use crate::compiled::{CompiledGraph, TensorView};
use crate::session::Session;

/// Loads an artefact of this module, whose hashes are right, and runs it with `inputs`.
fn load_and_run(session: &Session, module: EncodedModule, inputs: &[(String, ConstData)]) -> Result<()> {
    // Tests of one process run at the same time.
    let thread = format!("{:?}", std::thread::current().id());
    let path = std::env::temp_dir().join(format!("rlx-hostile-{}-{thread}.rlx", std::process::id()));
    let target = session.artefact_target(&CompileOptions::default())?;
    let tuning = Tuning::default();
    let file = NewFile::of_module(target, "hostile", Digest::default(), module, &tuning);
    file.write(&path, &Progress::none(), &|| Ok(()))?;
    let artefact = Artefact::open(&path)?;
    std::fs::remove_file(&path).unwrap();
    let mut compiled = session.compile_stored(&artefact, &CompileOptions::default(), &Progress::none())?;
    set_params(&mut compiled)?;
    let view = |(name, data): &'static (String, ConstData)| TensorView {
        name,
        dtype: data.dtype(),
        dims: data.dims(),
        bytes: data.bytes(),
    };
    // Inputs live as long as the test.
    let inputs: &'static [(String, ConstData)] = Box::leak(inputs.to_vec().into_boxed_slice());
    compiled.try_run_views(&inputs.iter().map(view).collect::<Vec<_>>())
}

/// Gives every parameter some value.
fn set_params(compiled: &mut CompiledGraph) -> Result<()> {
    for info in compiled.params().to_vec() {
        let dims = info.shape.static_dims().unwrap_or_default();
        // A changed shape may ask for more than there is.
        let bytes = info.shape.size_bytes().filter(|&n| n < 1 << 24).unwrap_or(0);
        let value = if info.dtype == DType::F32 && bytes > 0 {
            Gen::new(1).value(DType::F32, &dims, 0.5..1.0).to_const().bytes().to_vec()
        } else {
            vec![0; bytes]
        };
        compiled.try_set_param_typed(&info.name, &value, info.dtype)?;
    }
    Ok(())
}

fn inputs_of(graph: &Graph, bindings: &rlx_ir::oracle::Bindings) -> Vec<(String, ConstData)> {
    let name = |op: &Op| if let Op::Input { name } = op { Some(name.clone()) } else { None };
    let names = graph.inputs().filter_map(|n| name(&n.op));
    names.map(|name| (name.clone(), bindings.input(&name).unwrap().to_const())).collect()
}

#[test]
fn modules_changed_behind_right_hashes_are_errors_or_run() {
    let session = Session::try_new(Device::Cpu).unwrap();
    let mut g = Gen::new(5);
    let mut found: HashMap<&str, usize> = HashMap::new();
    for seed in 0..30 {
        let (graph, bindings) = some_graph(seed);
        let compiled = session.try_compile(graph.clone()).unwrap();
        let inputs = inputs_of(&graph, &bindings);
        let module = EncodedModule::of(compiled.lir()).unwrap();
        load_and_run(&session, module.clone(), &inputs).unwrap_or_else(|e| panic!("{e}\n{graph}"));
        for _ in 0..20 {
            let mut module = module.clone();
            let changed = module.bytes_mut();
            // Digits of the text and numbers of the records: most changes leave something that can be read.
            let at = g.size(0..=changed.len() - 1);
            changed[at] = match changed[at] {
                digit @ b'0'..=b'9' => b'0' + (digit - b'0' + g.size(1..=9) as u8) % 10,
                other if g.chance(0.5) => other.wrapping_add(1),
                other => other ^ (1 << g.size(0..=7)),
            };
            let kind = match load_and_run(&session, module, &inputs) {
                Ok(()) => "ran",
                Err(e) => e.kind().name(),
            };
            *found.entry(kind).or_default() += 1;
        }
    }
    println!("{found:?}");
    assert!(found["ran"] > 10 && found.len() > 4, "{found:?}");
    // A panic at the backend's edge would be a device error.
    assert!(!found.contains_key("internal") && !found.contains_key("device"), "{found:?}");
}

/// Extents, strides, element counts, ids and plans that bytes changed at random would hardly make.
#[test]
fn modules_with_forged_numbers_behind_right_hashes_are_errors_or_run() {
    let session = Session::try_new(Device::Cpu).unwrap();
    let mut g = Gen::new(23);
    let mut found: HashMap<&str, usize> = HashMap::new();
    for seed in 0..30 {
        let (graph, bindings) = some_graph(seed);
        let compiled = session.try_compile(graph.clone()).unwrap();
        let inputs = inputs_of(&graph, &bindings);
        for _ in 0..40 {
            let damaged = consistent(damaged_module(compiled.lir(), &mut g));
            // None if the file format cannot express it.
            let Some(module) = damaged.and_then(|lir| EncodedModule::of(&lir).ok()) else { continue };
            let kind = match load_and_run(&session, module, &inputs) {
                Ok(()) => "ran",
                Err(e) => e.kind().name(),
            };
            *found.entry(kind).or_default() += 1;
        }
    }
    println!("{found:?}");
    assert!(found["invalid graph"] > 200 && found["ran"] > 5, "{found:?}");
    assert!(!found.contains_key("internal") && !found.contains_key("device"), "{found:?}");
}

/// Copies whose element counts and offsets overflow to small numbers: they read and wrote arbitrary memory.
#[test]
fn a_forged_copy_behind_right_hashes_is_rejected() {
    let session = Session::try_new(Device::Cpu).unwrap();
    let mut graph = Graph::new("g");
    let shape = Shape::new(&[4, 4], DType::F32);
    let x = graph.input("x", shape.clone());
    let y = graph.activation(Activation::Relu, x, shape);
    graph.set_outputs(vec![y]);
    let compiled = session.try_compile(graph).unwrap();
    let inputs = [("x".to_owned(), ConstData::new(DType::F32, &[4, 4], vec![0; 64]).unwrap())];
    let max = i64::MAX;
    let odd = [8719555307571303797, 8136607384251256691, 7525749931694064060, 4];
    let forged: [([i64; 4], [i64; 4], [i64; 4]); 3] = [
        // Reads, writes, and does both far away.
        (odd, [max, max, (1 << 62) + 1024, 1], [max, max, (1 << 62) + 4, 1]),
        (odd, [max, max, (1 << 62) + 4, 1], [max, max, (1 << 62) + (1 << 24), 1]),
        ([2, max - 1, max - 1, 2], [max; 4], [max; 4]),
    ];
    for (dims, read, written) in forged {
        let mut lir = compiled.lir().clone();
        let mut copy = lir.steps[0].clone();
        copy.kind = StepKind::Copy;
        for (operand, strides) in [(&mut copy.inputs[0], read), (&mut copy.outputs[0], written)] {
            let view = Arc::make_mut(&mut operand.view);
            view.dims = dims.map(Extent::Const).into();
            view.strides = strides.map(Extent::Const).into();
        }
        lir.steps.push(copy);
        let lir = consistent(lir).expect("buffers that are there");
        let module = EncodedModule::of(&lir).expect("the file's form can express it");
        let e = load_and_run(&session, module, &inputs).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidGraph, "{e}");
    }
}

/// The same without a file: a session believes no module either, whether it was compiled here or not.
#[test]
fn damaged_modules_given_to_a_session_are_errors_or_compile() {
    let session = Session::try_new(Device::Cpu).unwrap();
    let mut g = Gen::new(29);
    let mut found: HashMap<&str, usize> = HashMap::new();
    for seed in 0..10 {
        let compiled = session.try_compile(random_graph(2 * seed, 8).0).unwrap();
        for _ in 0..30 {
            let module = GraphModule::from_lir(damaged_module(compiled.lir(), &mut g));
            let kind = match session.compile_module(module) {
                Ok(_) => "compiled",
                Err(LowerError::Compile(e)) => e.kind().name(),
                Err(e) => panic!("{e}"),
            };
            *found.entry(kind).or_default() += 1;
        }
    }
    assert!(found["invalid graph"] > 200 && found.len() <= 3, "{found:?}");
    assert!(!found.contains_key("internal") && !found.contains_key("device"), "{found:?}");
}
