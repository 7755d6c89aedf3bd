//! Graphs that are compiled for a device with every type, and values for them: their steps run on the interpreters, or by what a test puts in their place.

use std::ops::Range;
use std::sync::Arc;

use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{Gen, difference, random_bindings, tolerance};
use rlx_ir::{DType, DimBinding, Error, ErrorKind, Graph, Op, Value, text};
use rlx_kernel::KernelTarget;
use rlx_kernel::interp::{Executable, StepRun};
use rlx_kernel::schedule::Arg;
use rlx_opt::{CompileOptions, CompilePipeline};
use rlx_tile::schedule::{Bound, Tiling, step};
use rlx_tile::{Arch, interp};

/// Compute units of a device, which have several tiles where a program says so.
pub const UNITS: u32 = 3;

/// What steps are tested on.
pub const ARCHS: [Arch; 5] = [Arch::Sm75, Arch::Sm80, Arch::Gfx90a, Arch::Gfx1100, Arch::Gfx1200];

/// A device with every type, whose convolutions of f16 and bf16 go with channels last.
pub fn target() -> KernelTarget {
    KernelTarget { channels_last: &[DType::F16, DType::BF16], ..KernelTarget::full("tiles") }
}

/// A graph that compiles for a device with every type, and values for it.
pub struct Compiled {
    pub graph: Graph,
    pub values: Bindings,
    pub executable: Executable,
}

impl Compiled {
    /// With random inputs of this range.
    pub fn new(graph: Graph, seed: u64, range: Range<f64>) -> Compiled {
        let (mut values, mut g) = (Bindings::default(), Gen::new(seed));
        for node in graph.inputs() {
            let dims = node.shape.static_dims().unwrap();
            let Op::Input { name } = &node.op else { unreachable!("inputs are inputs") };
            values.set_input(name.clone(), g.value(node.shape.dtype(), &dims, range.clone()));
        }
        oracle::bind_dims(&graph, &values).unwrap();
        Compiled::of(graph, values, CompileOptions::default())
    }

    pub fn of(graph: Graph, values: Bindings, options: CompileOptions) -> Compiled {
        let target = target();
        let pipeline = CompilePipeline::new(Arc::new(target.clone()), options);
        let module = Arc::new(pipeline.compile(&graph).unwrap_or_else(|e| panic!("{e}\n{graph}")).lir);
        Compiled { graph, values, executable: Executable::new(module, &target).unwrap() }
    }

    /// A convolution of whole channels of a tap at a time, with what models have behind it.
    pub fn random_convolution(g: &mut Gen) -> Compiled {
        let (dtype, stride, taps) = (g.pick(&["f16", "bf16"]), g.size(1..=2), g.pick(&[1, 3, 3]));
        let (images, channels, filters) = (g.size(1..=2), 64 * g.size(1..=2), 8 * g.size(1..=18));
        let size = g.size(3..=9);
        let (pad, places) = (taps / 2, (size - 1) / stride + 1);
        let (x, y) = (
            format!("[{images}, {size}, {size}, {channels}] {dtype}"),
            format!("[{images}, {places}, {places}, {filters}] {dtype}"),
        );
        let end = match g.int(0..=2) {
            0 => "return %4".to_owned(),
            1 => format!("%5 = Activation.Relu(%4) : {y} return %5"),
            _ => format!("%5 = Binary.Add(%4, %3) : {y} %6 = Activation.Relu(%5) : {y} return %6"),
        };
        let text = format!(
            "graph \"c\" {{ %0 = Input {{name=\"x\"}} : {x} %1 = Param {{name=\"w\"}} : [{filters}, {channels}, {taps}, {taps}] {dtype} \
             %2 = Param {{name=\"b\"}} : [{filters}] {dtype} %3 = Input {{name=\"r\"}} : {y} \
             %4 = Conv(%0, %1, %2) {{strides=[{stride}, {stride}], pads=[{pad}, {pad}, {pad}, {pad}], dilations=[1, 1], groups=1, \
             format=ChannelsLast}} : {y} {end} }}"
        );
        let graph = text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let values = random_bindings(&graph, &DimBinding::new(), 7);
        Compiled::of(graph, values, CompileOptions::default())
    }

    /// Holds results to the oracle's.
    pub fn check(&self, results: &[Value], arch: Arch) {
        self.check_to(results, arch, |dtype| dtype);
    }

    /// The same where a result may have been rounded to another type before, that of a matmul whose result is cast.
    pub fn check_to(&self, results: &[Value], arch: Arch, rounded: impl Fn(DType) -> DType) {
        let want = oracle::evaluate(&self.graph, &self.values).unwrap();
        for (want, got) in want.iter().zip(results) {
            if let Some(what) = difference(want, got, tolerance(rounded(want.dtype))) {
                panic!("{}: {what}\n{}", arch.name(), self.graph);
            }
        }
    }
}

impl Compiled {
    /// The results, every step done by tiles that can be, how many these were, and why others were not.
    pub fn run_by_tiles(&self, arch: Arch, tiling: Option<&Tiling>) -> (Vec<Value>, usize, Vec<String>) {
        let (mut tiled, mut refused) = (0, Vec::new());
        let results = self.executable.run_with(&self.values, &mut |run| match by_tiles(run, arch, tiling)? {
            Ok(()) => {
                tiled += 1;
                Ok(true)
            }
            Err(why) => {
                refused.push(why);
                Ok(false)
            }
        });
        (results.unwrap_or_else(|e| panic!("{}: {e}\n{}", arch.name(), self.graph)), tiled, refused)
    }
}

/// Runs a step by a tile program, or says why there is none.
pub fn by_tiles(
    run: &mut StepRun<'_, '_>,
    arch: Arch,
    tiling: Option<&Tiling>,
) -> rlx_ir::Result<Result<(), String>> {
    let desc = run.desc().map_err(|why| Error::new(ErrorKind::Internal, why.to_string()))?;
    let launch = match step(arch, &desc, tiling) {
        Ok(launch) => launch.on_units(Some(UNITS)),
        Err(why) => return Ok(Err(why.to_string())),
    };
    let (uniforms, bindings) = (run.uniforms(&launch.uniforms)?, run.bindings(&operands(&launch.bindings)));
    // What no compiler of the machine's sees here is at least written.
    rlx_tile::render::source(&launch.program, "k")?;
    let groups = run.number(launch.groups)?;
    let (groups, tiles) = (groups as u64, interp::workgroups(&launch.program, &uniforms));
    let several = launch.program.has_several_tiles();
    assert_eq!(groups, if several { tiles.min(UNITS.into()) } else { tiles }, "workgroups");
    interp::run_in(&launch.program, groups, &uniforms, run.pools(), &bindings)?;
    Ok(Ok(()))
}

/// What is bound to operands alone, as that of all steps of these graphs is.
pub fn operands(bindings: &[Bound]) -> Vec<Arg> {
    let operand = |bound: &Bound| match *bound {
        Bound::Operand(arg) => arg,
        Bound::Scratch => unreachable!("no step of these has lists"),
    };
    bindings.iter().map(operand).collect()
}

/// The types that steps on an architecture are tested in.
pub fn dtypes(arch: Arch) -> &'static [DType] {
    if arch == Arch::Sm75 { &[DType::F16] } else { &[DType::F16, DType::BF16] }
}
