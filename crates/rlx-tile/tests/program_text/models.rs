//! The programs that the test models' steps become. Nothing of a model runs: each program gets random memory of its own, and a few of its workgroups are run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rlx_ir::testing::{Gen, random_bindings};
use rlx_ir::{DType, Error, ErrorKind, Result};
use rlx_kernel::interp::{Binding, Executable, Pools, Recorded, StepRun};
use rlx_onnx::{ImportOptions, OnnxFile, import};
use rlx_opt::{CompileOptions, CompilePipeline, Precision};
use rlx_testdata::models::{self, Model};
use rlx_tile::schedule::{StepLaunch, step};
use rlx_tile::{Arch, Program, interp};

use crate::common::compiled::{operands, target};
use crate::recorded;

/// Workgroups of a program that are run: the first, the last, and one between them.
const SAMPLE: u64 = 3;

/// The models of one exporter, but for those of full size or with weights from a package.
fn kept() -> impl Iterator<Item = Model> {
    models::all().into_iter().filter(|model| !model.full && !model.needs_package())
}

/// What an architecture's programs for the models make of random memory, each program once.
pub fn records(arch: Arch, precision: Precision) -> Vec<(Recorded, Program)> {
    let (mut seen, mut all) = (BTreeSet::new(), Vec::new());
    for model in kept() {
        add(&model, arch, precision, &mut |program| seen.insert(program.to_string()), &mut all);
    }
    all
}

fn add(
    model: &Model,
    arch: Arch,
    precision: Precision,
    is_new: &mut dyn FnMut(&Program) -> bool,
    all: &mut Vec<(Recorded, Program)>,
) {
    let Some(path) = model.graph_file() else { return };
    let graph = import(&OnnxFile::open(&path).unwrap(), &ImportOptions::default()).unwrap().graph;
    let size = |dims: &[(String, usize)]| dims.iter().map(|(_, n)| n).product::<usize>();
    let golden = model.goldens.iter().min_by_key(|golden| size(&golden.dims)).expect("a model has goldens");
    let dims = golden.binding();
    let values = random_bindings(&graph, &dims, 7);
    let options = CompileOptions::default().dim_binding(dims).precision(precision);
    let module = match CompilePipeline::new(Arc::new(target()), options).compile(&graph) {
        Ok(compiled) => Arc::new(compiled.lir),
        Err(e) if e.kind() == ErrorKind::Unsupported => return println!("{}: {e}", model.name),
        Err(e) => panic!("{}: {e}", model.name),
    };
    let (count, mut steps) = (module.init.len() + module.steps.len(), 0);
    let executable = Executable::by(module, |_| Ok(Vec::new())).unwrap();
    let done = executable.run_with(&values, &mut |run| {
        steps += 1;
        let Ok(launch) = run.desc().map_err(|_| ()).and_then(|desc| step(arch, &desc, None).map_err(|_| ()))
        else {
            return Ok(true);
        };
        if is_new(&launch.program) {
            all.push((record(&model.name, &launch, run)?, (*launch.program).clone()));
        }
        Ok(true)
    });
    // What it ends with are outputs, which nothing has written.
    assert_eq!(steps, count, "{}: {:?}", model.name, done.err());
}

/// Runs some workgroups of a step's program in memory of random elements.
fn record(model: &str, launch: &StepLaunch, run: &StepRun<'_, '_>) -> Result<Recorded> {
    let program = &*launch.program;
    let uniforms = run.uniforms(&launch.uniforms)?;
    let mut g = Gen::new(7);
    // An operand may be bound twice.
    let (mut places, mut pools, mut bindings) = (BTreeMap::new(), Vec::new(), Vec::new());
    for (bound, buffer) in run.bindings(&operands(&launch.bindings)).iter().zip(&program.buffers) {
        let pool = *places.entry(bound.pool).or_insert_with(|| {
            pools.push(filled(&mut g, buffer.dtype, bound.len));
            pools.len() - 1
        });
        bindings.push(Binding { pool, offset: 0, len: bound.len });
    }
    let groups = interp::workgroups(program, &uniforms);
    if groups == 0 {
        return Err(Error::new(ErrorKind::Internal, format!("{model}: a program without workgroups")));
    }
    let sample: BTreeSet<u64> = (0..SAMPLE).map(|i| (groups - 1) * i / (SAMPLE - 1)).collect();
    let sample: Vec<u64> = sample.into_iter().collect();
    let mut after = Pools(pools.clone());
    interp::run_some(program, &sample, &uniforms, &mut after, &bindings)?;
    let name = format!("{} of {model}", program.name);
    assert!(after.0 != pools, "{name} stores nothing");
    let record = recorded(program, name, uniforms, (Pools(pools), bindings), after);
    Ok(Recorded { groups: sample.into_iter().map(|group| group as i64).collect(), ..record })
}

/// Bytes of random elements; integers of more than 8 bits are small, since they may be numbers of rows.
fn filled(g: &mut Gen, dtype: DType, len: usize) -> Vec<u8> {
    let mut bytes = match dtype {
        _ if dtype.is_float() => g.value(dtype, &[len * 8 / dtype.bits()], -1.0..1.0).encode(),
        DType::Bool => (0..len).map(|_| g.int(0..=1) as u8).collect(),
        _ if dtype.bits() <= 8 => (0..len).map(|_| g.int(0..=255) as u8).collect(),
        _ => (0..len).map(|i| if i % dtype.size_bytes() == 0 { g.int(0..=3) as u8 } else { 0 }).collect(),
    };
    bytes.resize(len, 0);
    bytes
}
