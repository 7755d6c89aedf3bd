//! What steps share is what each of them would have alone.

use std::fmt::Debug;
use std::sync::Arc;

use rlx_ir::lir::Step;
use rlx_ir::testing::{
    Gen, for_random_graphs, random_conv, random_decoder, random_matmul, random_symbolic_graph,
};
use rlx_ir::{DType, Graph};
use rlx_kernel::{KernelHash, compile_step};
use rlx_onnx::{ImportOptions, OnnxFile, import};
use rlx_opt::{CompileOptions, CompilePipeline, Numerics, Precision, Target};
use rlx_testdata::models::wanted;
use rlx_tile::Arch;

use super::*;
use crate::few_rows::Fast;
use crate::target::GpuTarget;
use crate::tiles::{MatrixUnits, StepTiles};

/// A device.
struct Device {
    target: KernelTarget,
    own: Own,
    options: CompileOptions,
}

impl Device {
    fn new(arch: Option<Arch>, precision: Precision, numerics: Numerics) -> Device {
        let options = CompileOptions { precision, ..CompileOptions::default() }.numerics(numerics);
        let units = |arch| MatrixUnits {
            arch,
            dynamic_bytes: 227 << 10,
            compute_units: Some(64),
            aside: Default::default(),
        };
        let matrix_units = arch.map(units);
        let own = Own { matrix_units, fast: Fast::of(matrix_units, &options), library: None, check: None };
        Device { target: KernelTarget::full("cuda"), own, options }
    }

    fn module(&self, graph: &Graph) -> Result<LirModule> {
        let means = GpuTarget::new(self.target.clone(), self.own.matrix_units, self.own.fast.clone(), None);
        Ok(CompilePipeline::new(Arc::new(means), self.options.clone()).compile(graph)?.lir)
    }

    /// Takes for each step the last of its variants.
    fn tuning(&self, lir: &LirModule) -> Tuning {
        let mut tuning = Tuning::default();
        let means = Means { target: &self.target, own: &self.own };
        for step in &lir.steps {
            if let Some(key) = variants::key(step, lir, &means.offers(step, lir).unwrap()) {
                tuning.choose(&key, key.variants.len() - 1);
            }
        }
        tuning
    }

    /// Compares all steps of a module; how many there are, and how many of them had what another one has.
    fn check(&self, lir: &LirModule, tuning: &Tuning) -> Result<(usize, usize)> {
        let (launches, tiles) = scheduled(lir, &self.target, tuning, &self.own)?;
        let claims = GpuTarget::new(self.target.clone(), self.own.matrix_units, Fast::default(), None);
        let kept = claims.clone().keeping_claims();
        for node in lir.graph.nodes() {
            assert_eq!(kept.claim(node, &lir.graph), claims.claim(node, &lir.graph), "{node:?}");
        }
        let mut distinct = rlx_kernel::schedule::EqualSteps::default();
        let mut most = [0; 2];
        for (init, steps) in [(true, &lir.init), (false, &lir.steps)] {
            for (at, step) in steps.iter().enumerate() {
                let shared = if init { &launches.init[at] } else { &launches.run[at] };
                for (place, launch) in shared {
                    assert_eq!(launches.kernels[*place].0, launch.kernel.hash());
                }
                let shared: Vec<&Launch> = shared.iter().map(|(_, launch)| launch).collect();
                let own = tiles.of(init, at).unwrap();
                let (alone, of_alone) = self.alone((lir, step, init), tuning)?;
                assert_eq!(
                    of_kernels(&shared),
                    of_kernels(&alone.iter().collect::<Vec<_>>()),
                    "step {at}\n{lir}"
                );
                assert_eq!(of_tiles(own, &tiles), of_tiles(&of_alone.0, &of_alone.1), "step {at}\n{lir}");
                for parts in &own.parts {
                    let scratch = &tiles.scratch[parts.scratch];
                    assert_eq!((scratch.step, scratch.elements), (at, parts.launch.scratch));
                }
                let (number, _) = distinct.find(StepDesc::of(step, lir).unwrap());
                most = [most[0] + 1, most[1].max(number + 1)];
            }
        }
        Ok((most[0], most[0] - most[1]))
    }

    /// What a step has where no other one is made.
    fn alone(
        &self,
        (lir, step, init): (&LirModule, &Step, bool),
        tuning: &Tuning,
    ) -> Result<(Vec<Launch>, (StepTiles, TileLaunches))> {
        let (tiles, made, offers) = Default::default();
        let mut making = Making { lir, target: &self.target, tuning, own: &self.own, tiles, made, offers };
        let desc = StepDesc::of(step, lir).unwrap();
        let launches = match making.step(Asked { step, init, seen: Some((0, &desc)) })? {
            By::Variant(variant) => compile_step(step, lir, &self.target, variant)?,
            By::Launch(launch) => vec![launch],
            By::Others => Vec::new(),
        };
        let tiles = making.tiles.of(init, 0).unwrap().clone();
        Ok((launches, (tiles, making.tiles)))
    }
}

/// Kernels by the hash of their text, and all that is with them.
fn of_kernels(launches: &[&Launch]) -> Vec<String> {
    let of = |of: &&Launch| said((of.kernel.hash(), &of.bindings, &of.uniforms, of.groups));
    launches.iter().map(of).collect()
}

fn said(what: impl Debug) -> String {
    format!("{what:?}")
}

/// The same of all that a run chooses between, wherever it is among the module's.
fn of_tiles(tiles: &StepTiles, of: &TileLaunches) -> Vec<String> {
    let program = |at: usize, hash: KernelHash| {
        assert_eq!((of.programs[at].0, of.programs[at].1.hash()), (hash, hash));
        hash
    };
    let join = |at: usize, hash: KernelHash| {
        assert_eq!(of.joins[at].0, hash);
        hash
    };
    let mut all = Vec::new();
    for (at, of) in &tiles.whole {
        let which = (of.tiling, of.size, of.checks.len());
        all.push(said((program(*at, of.program.hash()), &of.bindings, &of.uniforms, of.groups, which)));
    }
    let lists = tiles.lists.iter().flat_map(|of| of.kernels.iter().map(move |kernel| (kernel, of.elements)));
    for ((at, of), elements) in lists {
        let which = (&of.bindings, &of.uniforms, of.groups, elements);
        all.push(said((join(*at, of.code.hash()), which)));
    }
    for parts in &tiles.parts {
        let (launch, own, joined) = (&parts.launch, &parts.launch.parts, &parts.launch.join);
        let which = (launch.count, launch.scratch, launch.rows, launch.most_rows, launch.tiling);
        all.push(said((program(parts.program, own.code.hash()), &own.bindings, &own.uniforms, own.groups)));
        all.push(said((
            join(parts.join, joined.code.hash()),
            &joined.bindings,
            &joined.uniforms,
            joined.groups,
            which,
        )));
    }
    for (at, few) in &tiles.few {
        all.push(said((join(*at, few.launch.kernel.hash()), &few.name, few.rows, few.most_rows)));
        all.extend(of_kernels(&[&few.launch]));
    }
    for (at, check) in &tiles.checks {
        all.push(said((join(*at, check.code.hash()), &check.bindings, &check.uniforms, check.groups)));
    }
    all
}

const ARCHS: [Option<Arch>; 4] = [Some(Arch::Sm80), Some(Arch::Sm90a), Some(Arch::Gfx90a), None];

#[test]
fn steps_of_models_have_what_each_would_have_alone() {
    let (mut all, mut shared) = (0, 0);
    for model in wanted() {
        let Some(path) = model.graph_file() else { continue };
        let file = OnnxFile::open(&path).unwrap();
        let graph = import(&file, &ImportOptions::default()).unwrap().graph;
        for (arch, numerics) in ARCHS.into_iter().zip([Numerics::Strict, Numerics::Fast].into_iter().cycle())
        {
            let device = Device::new(arch, Precision::F16, numerics);
            // What the device does not have is no matter of this test.
            let Ok(lir) = device.module(&graph) else { continue };
            let (steps, equal) = device.check(&lir, &Tuning::default()).unwrap();
            (all, shared) = (all + steps, shared + equal);
        }
    }
    assert!(shared * 3 > all, "{shared} of {all} steps share what they have");
}

#[test]
fn steps_of_random_graphs_have_what_each_would_have_alone() {
    for_random_graphs(71, 40, 4..=24, |seed, size| {
        let mut g = Gen::new(seed);
        let graph = match seed % 4 {
            0 => random_symbolic_graph(seed, size).0,
            1 => random_matmul(&mut g, DType::F16),
            2 => random_conv(&mut g, DType::F16),
            _ => random_decoder(seed).0,
        };
        let device = Device::new(g.pick(&ARCHS), Precision::F16, g.pick(&[Numerics::Strict, Numerics::Fast]));
        let lir = device.module(&graph).map_err(|e| e.to_string())?;
        device.check(&lir, &Tuning::default()).map_err(|e| e.to_string())?;
        device.check(&lir, &device.tuning(&lir)).map_err(|e| e.to_string())?;
        Ok(())
    });
}

#[test]
fn what_was_tuned_is_part_of_a_request() {
    let text = "graph \"g\" { %0 = Input {name=\"x\"} : [256, 256] f16 %1 = Param {name=\"v\"} : [256, 256] f16 \
                %2 = Param {name=\"w\"} : [256, 256] f16 %3 = MatMul(%0, %1) : [256, 256] f16 \
                %4 = MatMul(%3, %2) : [256, 256] f16 return %4 }";
    let graph = rlx_ir::text::parse(text).unwrap();
    let device = Device::new(Some(Arch::Sm80), Precision::F16, Numerics::Strict);
    let lir = device.module(&graph).unwrap();
    let programs = |tuning: &Tuning| {
        device.check(&lir, tuning).unwrap();
        let (_, tiles) = scheduled(&lir, &device.target, tuning, &device.own).unwrap();
        tiles.programs.iter().map(|(hash, _)| *hash).collect::<Vec<_>>()
    };
    let (usual, tuned) = (programs(&Tuning::default()), programs(&device.tuning(&lir)));
    assert_eq!((usual.len(), tuned.len()), (1, 1), "both matmuls have one program");
    assert_ne!(usual, tuned);
}
