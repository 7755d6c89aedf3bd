//! What the vendor's library computes behind a matmul, on the fake one: bias, residual and GELU in one call with the product, right in every layout and type, and
//! nothing else.

use rlx_backend::Backend;
use rlx_backend::testing::run;
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{Gen, random_bindings};
use rlx_ir::{DType, DimBinding, Graph, sym};
use rlx_opt::{CompileOptions, Numerics};
use rlx_simt::SimtBackend;

use crate::blas::{agrees, compiled, fakes, parsed};
use crate::common::{Fake, set_params};
use crate::written::{BIAS, GELU, chain, random_epilogue};

/// Ops behind a matmul, each of the one before it (`@`), by a bias `%2` and a residual `%3`; how many steps they are, and what the library's has.
type Form = (&'static [&'static str], usize, &'static str);

const RESIDUAL: &str = "Binary.Add(%3, @)";
const RELU: &str = "Activation.Relu(@)";
const EXACT_GELU: &str = "Activation.Gelu(@)";

const FORMS: [Form; 17] = [
    (&[BIAS], 1, "+bias"),
    (&["Binary.Add(%2, @)"], 1, "+bias"),
    (&[BIAS, GELU], 1, "+bias+gelu_approx"),
    (&[GELU], 1, "+gelu_approx"),
    (&["Binary.Add(@, %3)"], 1, "+residual"),
    (&[RESIDUAL, GELU], 1, "+residual+gelu_approx"),
    (&[BIAS, RESIDUAL], 1, "+bias+residual"),
    (&[RESIDUAL, BIAS, GELU], 1, "+bias+residual+gelu_approx"),
    // The library is not given the exact GELU, which it has not, nor other functions. Its ReLU is not said to keep NaN.
    (&[EXACT_GELU], 2, ""),
    (&[BIAS, EXACT_GELU], 2, "+bias"),
    (&[BIAS, "Activation.Silu(@)"], 2, "+bias"),
    (&[RELU], 2, ""),
    (&[RESIDUAL, BIAS, RELU], 2, "+bias+residual"),
    // A GELU is the last of all, what is behind it is another step.
    (&[BIAS, GELU, RESIDUAL], 2, "+bias+gelu_approx"),
    (&[GELU, BIAS], 2, "+gelu_approx"),
    // Two of a kind, and a product with itself.
    (&[RESIDUAL, "Binary.Add(@, %0)"], 2, "+residual"),
    (&["Binary.Add(@, @)"], 2, ""),
];

fn form(of: &Form, dtype: &str) -> Graph {
    let nodes = [
        format!(r#"%0 = Input {{name="x"}} : [24, 40] {dtype}"#),
        format!(r#"%1 = Param {{name="w"}} : [40, 40] {dtype}"#),
        format!(r#"%2 = Param {{name="b"}} : [40] {dtype}"#),
        format!(r#"%3 = Input {{name="r"}} : [24, 40] {dtype}"#),
        format!("%4 = MatMul(%0, %1) : [24, 40] {dtype}"),
    ];
    let (lines, last) = chain(&nodes, of.0, &format!("[24, 40] {dtype}"));
    parsed(&format!("{} return %{last}", lines.join("\n")))
}

/// How the steps of a module are done, by the device's reports.
fn schedules(graph: &Graph, backend: &SimtBackend) -> Vec<String> {
    let options = CompileOptions::default();
    let exec = compiled(graph, backend, Numerics::Fast).unwrap();
    let (lir, target) = (exec.lir(), backend.target(&options).unwrap());
    lir.steps.iter().map(|step| target.schedule(step, lir).unwrap_or_default()).collect()
}

/// Calls of the library that a run makes which is being recorded: the matmuls.
fn multiplied(graph: &Graph, bindings: &Bindings, backend: &SimtBackend) -> u64 {
    let mut exec = compiled(graph, backend, Numerics::Fast).unwrap();
    set_params(&mut *exec, bindings).unwrap();
    run(&mut *exec, bindings).unwrap();
    let before = Fake::get().blas_calls();
    run(&mut *exec, bindings).unwrap();
    Fake::get().blas_calls() - before
}

#[test]
fn the_librarys_own_epilogues_are_one_call_and_no_others() {
    for backend in fakes() {
        let library = backend.target(&CompileOptions::default()).unwrap();
        let library = library.matmul_instructions(DType::F32).unwrap();
        for dtype in ["f32", "f16", "bf16"] {
            for of in FORMS {
                let graph = form(&of, dtype);
                let bindings = random_bindings(&graph, &DimBinding::new(), 7);
                agrees(&graph, &bindings, &backend, Numerics::Fast);
                assert_eq!(multiplied(&graph, &bindings, &backend), 1, "{of:?} {dtype}");
                let steps = schedules(&graph, &backend);
                let says = steps[0].starts_with(&format!("{library}{}, else ", of.2));
                assert!(steps.len() == of.1 && says, "{of:?} {dtype}: {steps:?}");
            }
        }
    }
}

#[test]
fn a_value_that_something_else_reads_is_stored() {
    let graph = parsed(
        r#"%0 = Input {name="x"} : [24, 40] f32
           %1 = Param {name="w"} : [40, 40] f32
           %2 = Param {name="b"} : [40] f32
           %3 = MatMul(%0, %1) : [24, 40] f32
           %4 = Binary.Add(%3, %2) : [24, 40] f32
           %5 = Activation.GeluApprox(%4) : [24, 40] f32
           %6 = Binary.Mul(%5, %4) : [24, 40] f32
           return %6"#,
    );
    let bindings = random_bindings(&graph, &DimBinding::new(), 7);
    for backend in fakes() {
        agrees(&graph, &bindings, &backend, Numerics::Fast);
        let steps = schedules(&graph, &backend);
        assert!(steps.len() == 2 && steps[0].contains("+bias, else"), "{steps:?}");
    }
}

#[test]
fn random_epilogues_are_right() {
    let count = if crate::common::everything() { 400 } else { 60 };
    for backend in fakes() {
        let mut asked = 0;
        for seed in 0..count {
            let graph = random_epilogue(&mut Gen::new(seed));
            let bindings = random_bindings(&graph, &DimBinding::new(), seed);
            asked += u64::from(agrees(&graph, &bindings, &backend, Numerics::Fast) > 0);
        }
        assert_eq!(asked, count);
    }
}

#[test]
fn open_rows_have_epilogues() {
    let graph = parsed(
        r#"%0 = Input {name="x"} : [seq, 48] bf16
           %1 = Param {name="w"} : [48, 40] bf16
           %2 = Param {name="b"} : [40] bf16
           %3 = Input {name="r"} : [seq, 40] bf16
           %4 = MatMul(%0, %1) : [seq, 40] bf16
           %5 = Binary.Add(%4, %2) : [seq, 40] bf16
           %6 = Binary.Add(%3, %5) : [seq, 40] bf16
           return %6"#,
    );
    for backend in fakes() {
        for rows in [1, 17, 64] {
            let bindings = random_bindings(&graph, &DimBinding::from_pairs(&[(sym::SEQ, rows)]), 5);
            agrees(&graph, &bindings, &backend, Numerics::Fast);
            assert_eq!(multiplied(&graph, &bindings, &backend), 1);
        }
    }
}

/// Residual blocks, whose sums may be written over what is added.
#[test]
fn a_residual_may_be_where_the_sum_is_stored() {
    let graph = parsed(
        r#"%0 = Input {name="x"} : [32, 40] f32
           %1 = Param {name="w0"} : [40, 40] f32
           %2 = Param {name="w1"} : [40, 48] f32
           %3 = Param {name="w2"} : [48, 40] f32
           %4 = Param {name="b"} : [48] f32
           %5 = MatMul(%0, %1) : [32, 40] f32
           %6 = MatMul(%5, %2) : [32, 48] f32
           %7 = Binary.Add(%6, %4) : [32, 48] f32
           %8 = Activation.GeluApprox(%7) : [32, 48] f32
           %9 = MatMul(%8, %3) : [32, 40] f32
           %10 = Binary.Add(%9, %5) : [32, 40] f32
           return %10"#,
    );
    let bindings = random_bindings(&graph, &DimBinding::new(), 7);
    for backend in fakes() {
        agrees(&graph, &bindings, &backend, Numerics::Fast);
        assert_eq!(multiplied(&graph, &bindings, &backend), 3);
        assert_eq!(schedules(&graph, &backend).len(), 3);
    }
}

/// The fake library has no algorithm where a bias does not begin at a multiple of 16 bytes: its epilogue is rejected, and own kernels do the step.
#[test]
fn an_epilogue_without_an_algorithm_is_the_own_kernels() {
    let graph = |start: usize| {
        parsed(&format!(
            r#"%0 = Input {{name="x"}} : [24, 48] f32
               %1 = Param {{name="w"}} : [48, 40] f32
               %2 = Input {{name="b"}} : [56] f32
               %3 = Slice(%2) {{starts=[{start}], steps=[1], to=[40]}} : [40] f32
               %4 = MatMul(%0, %1) : [24, 40] f32
               %5 = Binary.Add(%4, %3) : [24, 40] f32
               %6 = Activation.GeluApprox(%5) : [24, 40] f32
               return %6"#
        ))
    };
    for backend in fakes() {
        for (start, calls) in [(8, 1), (5, 0)] {
            let graph = graph(start);
            let bindings = random_bindings(&graph, &DimBinding::new(), 9);
            assert!(agrees(&graph, &bindings, &backend, Numerics::Fast) > 0, "it is asked");
            assert_eq!(multiplied(&graph, &bindings, &backend), calls, "{start}");
            let bits = [Numerics::Strict, Numerics::Fast].map(|numerics| {
                let mut exec = compiled(&graph, &backend, numerics).unwrap();
                set_params(&mut *exec, &bindings).unwrap();
                run(&mut *exec, &bindings).unwrap()
            });
            assert!(calls == 1 || bits[0] == bits[1], "own kernels have the bits of Strict");
        }
    }
}
