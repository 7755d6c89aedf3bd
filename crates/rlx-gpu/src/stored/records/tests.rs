use rlx_backend::tuning::Tuning;
use rlx_ir::testing::{
    AttentionShape, Gen, damaged_bytes, random_attention, random_conv, random_matmul, random_paged_attention,
};
use rlx_ir::{Graph, text};
use rlx_opt::{CompileOptions, CompilePipeline, Numerics};
use rlx_tile::Arch;

use super::*;
use crate::few_rows::Fast;
use crate::making::scheduled;
use crate::own::Own;
use crate::target::GpuTarget;

fn units(arch: Arch) -> MatrixUnits {
    MatrixUnits { arch, dynamic_bytes: 227 << 10, compute_units: Some(64), aside: Default::default() }
}

fn parsed(body: &str) -> Graph {
    text::parse(&format!("graph \"g\" {{ {body} }}")).unwrap_or_else(|e| panic!("{e}\n{body}"))
}

/// A layer of `rows`; with many inputs, its sums are long.
fn layer(rows: &str, k: usize) -> Graph {
    parsed(&format!(
        "%0 = Input {{name=\"x\"}} : [{rows}, {k}] f16 %1 = Param {{name=\"w\"}} : [{k}, 96] f16 \
         %2 = Param {{name=\"b\"}} : [96] f16 %3 = MatMul(%0, %1) : [{rows}, 96] f16 \
         %4 = Binary.Add(%3, %2) : [{rows}, 96] f16 %5 = Activation.Silu(%4) : [{rows}, 96] f16 return %5"
    ))
}

/// Rows that each choose one of four matrices.
fn groups(rows: &str) -> Graph {
    parsed(&format!(
        "%0 = Input {{name=\"x\"}} : [{rows}, 1, 48] f16 %1 = Param {{name=\"w\"}} : [4, 48, 96] f16 \
         %2 = Input {{name=\"chosen\"}} : [{rows}, 2] i64 %3 = GroupedMatMul(%0, %1, %2) : [{rows}, 2, 96] f16 return %3"
    ))
}

/// The tile programs and choices of a graph.
fn choices(graph: &Graph, arch: Arch, numerics: Numerics) -> (LirModule, TileLaunches) {
    let (options, target) = (CompileOptions::default().numerics(numerics), KernelTarget::full("cuda"));
    let fast = Fast::of(Some(units(arch)), &options);
    let own = Own { matrix_units: Some(units(arch)), fast: fast.clone(), library: None, check: None };
    let means = GpuTarget::new(target.clone(), own.matrix_units, fast, None);
    let lir = CompilePipeline::new(Arc::new(means), options).compile(graph).unwrap().lir;
    let (_, tiles) = scheduled(&lir, &target, &Tuning::default(), &own).unwrap();
    (lir, tiles)
}

fn back(bytes: &[u8], lir: &LirModule, arch: Arch) -> Result<TileLaunches> {
    read(bytes, lir, Some(units(arch)), &KernelTarget::full("cuda"))
}

fn graphs(g: &mut Gen) -> Vec<Graph> {
    let shape = AttentionShape {
        kv_heads: 2,
        groups: g.size(1..=2),
        head_dim: 8 * g.size(1..=8),
        value_dim: 8 * g.size(1..=8),
        batch: g.size(1..=2),
        queries: g.size(1..=20),
        keys: g.size(1..=40),
    };
    let page = g.pick(&[3, 8, 16]);
    vec![
        random_matmul(g, DType::F16),
        random_conv(g, DType::F16),
        random_attention(g, DType::F16, &shape).graph().0,
        random_paged_attention(g, DType::F16, &shape, page).0,
        layer("seq", 256),
        layer("seq", 4096),
        layer("1", 4096),
        groups("seq"),
    ]
}

const ARCHS: [Arch; 5] = [Arch::Sm75, Arch::Sm80, Arch::Sm90a, Arch::Sm100a, Arch::Gfx1100];

#[test]
fn choices_come_back_as_they_were() {
    let (mut whole, mut parts, mut few, mut checks, mut maps, mut lists) = (0, 0, 0, 0, 0, 0);
    for seed in 0..24 {
        let (mut g, arch) = (Gen::new(500 + seed), ARCHS[seed as usize % ARCHS.len()]);
        for numerics in [Numerics::Strict, Numerics::Fast] {
            for graph in graphs(&mut g) {
                let (lir, tiles) = choices(&graph, arch, numerics);
                let bytes = write(&tiles).unwrap();
                let read = back(&bytes, &lir, arch).unwrap_or_else(|e| panic!("{e}\n{graph}"));
                assert_eq!(write(&read).unwrap(), bytes, "the same choices, the same bytes");
                assert_eq!(read.scratch, tiles.scratch);
                let hashes = |tiles: &TileLaunches| -> Vec<KernelHash> {
                    tiles
                        .programs
                        .iter()
                        .map(|(_, p)| p.hash())
                        .chain(tiles.joins.iter().map(|(_, k)| k.hash()))
                        .collect()
                };
                assert_eq!(hashes(&read), hashes(&tiles));
                maps += read.programs.iter().filter(|(_, p)| !p.maps().is_empty()).count();
                for step in read.init.iter().chain(&read.run) {
                    (whole, parts) = (whole + step.whole.len(), parts + step.parts.len());
                    (few, checks) = (few + step.few.len(), checks + step.checks.len());
                    lists += step.lists.as_ref().map_or(0, |of| of.kernels.len());
                }
            }
        }
    }
    println!(
        "{whole} whole, {parts} in parts, {few} of few rows, {checks} checks, {maps} with maps, {lists} with lists"
    );
    assert!([whole, parts, few, checks, maps, lists].into_iter().all(|n| n > 5));
}

#[test]
fn damaged_choices_are_errors_or_keep_every_rule() {
    let (mut kept, mut rejected, mut g) = (0, 0, Gen::new(9));
    for round in 0..10 {
        let arch = ARCHS[round % ARCHS.len()];
        for graph in graphs(&mut g) {
            let (lir, tiles) = choices(&graph, arch, Numerics::Fast);
            let bytes = write(&tiles).unwrap();
            for at in 0..30 {
                let changed = damaged_bytes(&bytes, at, &mut g);
                match back(&changed, &lir, arch) {
                    Ok(read) => {
                        kept += 1;
                        assert_eq!((read.init.len(), read.run.len()), (lir.init.len(), lir.steps.len()));
                        read.programs.iter().for_each(|(_, p)| rlx_tile::verify::verify(p).unwrap());
                    }
                    Err(e) => {
                        rejected += 1;
                        assert_eq!(e.kind(), ErrorKind::Malformed, "{e}");
                    }
                }
            }
        }
    }
    println!("{rejected} rejected, {kept} kept");
    assert!(rejected + kept == 2400 && rejected > 1700, "{rejected} rejected, {kept} kept");
}

#[test]
fn what_breaks_a_rule_is_rejected_by_name() {
    let (lir, tiles) = choices(&layer("seq", 4096), Arch::Sm80, Numerics::Fast);
    let bytes = write(&tiles).unwrap();
    let at = tiles.run.iter().position(|step| !step.parts.is_empty()).unwrap();
    let rejected = |change: &dyn Fn(&mut ChoicesRecord), why: &str| {
        let mut record: ChoicesRecord = postcard::from_bytes(&bytes).unwrap();
        change(&mut record);
        let e = back(&postcard::to_allocvec(&record).unwrap(), &lir, Arch::Sm80).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Malformed);
        assert!(e.to_string().contains(why), "{e}, not {why}");
    };
    rejected(&|r| r.format.0 += 1, "format");
    rejected(&|r| r.format.1 += 1, "format");
    rejected(&|r| drop(r.run.pop()), "steps");
    rejected(&|r| drop(r.programs.pop()), "code");
    rejected(&|r| r.run[at].whole[0].dispatch.code = 99, "code 99");
    rejected(&|r| r.run[at].whole[0].dispatch.uniforms.clear(), "as many bindings and uniforms");
    rejected(&|r| r.run[at].whole[0].dispatch.bindings.clear(), "as many bindings and uniforms");
    rejected(&|r| r.run[at].whole[0].dispatch.groups = 1 << 20, "extent");
    rejected(&|r| r.run[at].whole[0].dispatch.bindings[0] = Some(ArgRecord::Input(40)), "operand 40");
    rejected(&|r| r.run[at].whole[0].dispatch.bindings[0] = Some(ArgRecord::Output(0)), "inputs are read");
    rejected(&|r| r.run[at].whole[0].dispatch.bindings[0] = None, "scratch memory is");
    rejected(&|r| r.run[at].parts[0].join.bindings.swap(0, 1), "elements");
    rejected(&|r| r.run[at].parts[0].parts.bindings[0] = None, "scratch memory is");
    rejected(&|r| r.run[at].parts[1].scratch = r.run[at].parts[1].rows, "other scratch memory");
    rejected(&|r| r.run[at].whole[0].tiling.tile.0 = 0, "a tiling of nothing");
    rejected(&|r| r.extents[0] = "strange + 1".to_owned(), "symbol");
    // Another architecture, or a device with less.
    for other in [Arch::Sm75, Arch::Gfx90a] {
        let e = back(&bytes, &lir, other).unwrap_err();
        assert!(e.kind() == ErrorKind::Malformed && e.to_string().contains("is not for this device"), "{e}");
    }
    let small = MatrixUnits { dynamic_bytes: 16 << 10, ..units(Arch::Sm80) };
    let mut target = KernelTarget::full("cuda");
    assert!(read(&bytes, &lir, Some(small), &target).is_ok(), "none of it is dynamic");
    target.limits.max_shared_bytes = 1 << 10;
    assert!(read(&bytes, &lir, Some(small), &target).is_err());
    assert!(read(&bytes, &lir, None, &target).is_err());
    // A divided step of the init program would have no scratch memory.
    let mut init = lir.clone();
    std::mem::swap(&mut init.init, &mut init.steps);
    let mut record: ChoicesRecord = postcard::from_bytes(&bytes).unwrap();
    std::mem::swap(&mut record.init, &mut record.run);
    let e = back(&postcard::to_allocvec(&record).unwrap(), &init, Arch::Sm80).unwrap_err();
    assert!(e.to_string().contains("init program"), "{e}");
}

#[test]
fn lists_of_other_programs_or_other_memory_are_rejected_by_name() {
    let (lir, tiles) = choices(&groups("seq"), Arch::Sm80, Numerics::Strict);
    let bytes = write(&tiles).unwrap();
    let at = tiles.run.iter().position(|step| step.lists.is_some()).unwrap();
    let rejected = |change: &dyn Fn(&mut StepRecord), why: &str| {
        let mut record: ChoicesRecord = postcard::from_bytes(&bytes).unwrap();
        change(&mut record.run[at]);
        let e = back(&postcard::to_allocvec(&record).unwrap(), &lir, Arch::Sm80).unwrap_err();
        assert!(e.kind() == ErrorKind::Malformed && e.to_string().contains(why), "{e}, not {why}");
    };
    rejected(&|step| step.lists = None, "scratch memory is");
    rejected(&|step| drop(step.lists.as_mut().unwrap().kernels.pop()), "lists of other programs");
    rejected(&|step| drop(step.whole.pop()), "lists of other programs");
    let first = |step: &mut StepRecord| std::mem::take(&mut step.lists.as_mut().unwrap().kernels[0].bindings);
    rejected(&|step| drop(first(step)), "as many bindings and uniforms");
    // Scratch memory is written by what makes lists and read by programs.
    rejected(&|step| step.lists.as_mut().unwrap().kernels[0].bindings.swap(0, 1), "scratch memory is");
    let list = |step: &mut StepRecord| step.whole[0].dispatch.bindings.swap(2, 3);
    rejected(&|step| list(step), "scratch memory is");
    let mut init = lir.clone();
    std::mem::swap(&mut init.init, &mut init.steps);
    let mut record: ChoicesRecord = postcard::from_bytes(&bytes).unwrap();
    std::mem::swap(&mut record.init, &mut record.run);
    let e = back(&postcard::to_allocvec(&record).unwrap(), &init, Arch::Sm80).unwrap_err();
    assert!(e.to_string().contains("init program"), "{e}");
}
