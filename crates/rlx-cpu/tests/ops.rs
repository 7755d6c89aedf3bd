//! Every op with a CPU kernel, on random cases, against the oracle: on each instruction set, on one and two
//! threads, with and without fusion.

mod common;

use common::{against_oracle, backends, compile, oracle, run, unfused};
use rlx_ir::testing::Case;
use rlx_ir::{DimBinding, ErrorKind, OpKind};
use rlx_opt::CompileOptions;

/// How many cases of `kind` ran; the others are of types that nothing computes on the CPU.
fn check(kind: OpKind, seeds: std::ops::Range<u64>) -> usize {
    let backends = backends();
    let mut ran = 0;
    for seed in seeds {
        let case = Case::random(kind, seed);
        let (graph, bindings) = case.graph();
        let want = oracle(&graph, &bindings);
        let mut first: Option<Vec<Vec<u8>>> = None;
        for (name, backend) in &backends {
            for options in [CompileOptions::default(), unfused()] {
                let mut exec = match compile(&graph, backend, &options) {
                    Ok(exec) => exec,
                    Err(e) if e.kind() == ErrorKind::Unsupported => continue,
                    Err(e) => panic!("seed {seed} on {name}: {e}\n{graph}"),
                };
                let got = run(&mut *exec, &bindings, &DimBinding::new())
                    .unwrap_or_else(|e| panic!("seed {seed} on {name}: {e}\n{graph}"));
                if let Some(difference) = against_oracle(&want, &got) {
                    panic!("seed {seed} on {name}: {difference}\n{graph}\n{}", exec.lir());
                }
                // The best instruction set ran on one thread just before it runs on two.
                if name.contains("2 threads") {
                    assert_eq!(first.as_ref(), Some(&got), "seed {seed}: threads change bits\n{graph}");
                }
                if options.fusion.elementwise {
                    first = Some(got);
                    ran += 1;
                }
            }
        }
    }
    ran
}

macro_rules! ops {
    ($($test:ident: $kind:ident, $seeds:expr, $least:expr;)*) => {$(
        #[test]
        fn $test() {
            let ran = check(OpKind::$kind, 0..$seeds);
            assert!(ran >= $least, "only {ran} runs of {}", stringify!($kind));
        }
    )*};
}

ops! {
    activation: Activation, 400, 800;
    binary: Binary, 400, 800;
    compare: Compare, 150, 300;
    predicate: Predicate, 60, 100;
    select: Where, 150, 300;
    cast: Cast, 300, 600;
    region: Region, 40, 100;
    matmul: MatMul, 300, 600;
    reduce: Reduce, 400, 800;
    softmax: Softmax, 100, 200;
    log_softmax: LogSoftmax, 100, 200;
    layer_norm: LayerNorm, 100, 200;
    rms_norm: RmsNorm, 100, 200;
    group_norm: GroupNorm, 60, 100;
    batch_norm: BatchNorm, 60, 100;
    attention: Attention, 200, 400;
    dot_general: DotGeneral, 100, 200;
    reshape: Reshape, 60, 100;
    transpose: Transpose, 200, 400;
    expand: Expand, 100, 200;
    slice: Slice, 100, 200;
    concat: Concat, 100, 200;
    gather: Gather, 150, 300;
    gather_elements: GatherElements, 150, 300;
    gather_nd: GatherNd, 150, 300;
    scatter_elements: ScatterElements, 200, 400;
    scatter_nd: ScatterNd, 200, 400;
    update_slice: UpdateSlice, 200, 400;
    iota: Iota, 60, 100;
    pad: Pad, 200, 400;
    arg_reduce: ArgReduce, 150, 300;
    top_k: TopK, 150, 300;
    non_zero: NonZero, 150, 300;
    non_max_suppression: NonMaxSuppression, 150, 300;
    choice: If, 40, 100;
    repetition: Loop, 80, 200;
    recurrent: Recurrent, 150, 400;
    cumulative: Cumulative, 200, 400;
    rope: Rope, 150, 300;
    quantize: Quantize, 150, 200;
    dequantize: Dequantize, 150, 200;
    conv: Conv, 200, 400;
    conv_transpose: ConvTranspose, 200, 400;
    pool: Pool, 200, 400;
    tile: Tile, 60, 100;
    trilu: Trilu, 60, 100;
    one_hot: OneHot, 60, 100;
    grid_sample: GridSample, 200, 400;
}
