//! Norms and quantisations computed by the matmuls behind them, and matmuls in pairs: the bits of the steps apart, for more rows than
//! a strip has.

mod common;

use common::{against_oracle_within, compile, oracle, run};
use rlx_cpu::CpuBackend;
use rlx_cpu::isa::Isa;
use rlx_ir::op::{Activation, BinaryOp};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{Gen, Tolerance};
use rlx_ir::{
    DType, Dim, DimBinding, Graph, GraphExt, LirModule, Node, NodeId, Op, OpKind, Shape, Value, sym,
};
use rlx_opt::{CompileOptions, FusionOptions};

/// A graph under construction, with values for what it is given.
struct Net {
    graph: Graph,
    bindings: Bindings,
    g: Gen,
    dtype: DType,
}

impl Net {
    fn new(dtype: DType) -> Net {
        Net { graph: Graph::new("net"), bindings: Bindings::default(), g: Gen::new(7), dtype }
    }

    fn param(&mut self, dims: &[usize]) -> NodeId {
        let name = format!("p{}", self.graph.len());
        let value = self.g.value(self.dtype, dims, -0.5..0.5);
        self.bindings.set_param(name.clone(), value);
        self.graph.param(name, Shape::new(dims, self.dtype))
    }

    /// An input of these dimensions, the first of which is open if it is 0: `rows` then.
    fn rows(&mut self, dims: &[usize], rows: usize) -> NodeId {
        let fixed: Vec<usize> = dims.iter().map(|&d| if d == 0 { rows } else { d }).collect();
        let open = |&d: &usize| if d == 0 { Dim::Dynamic(sym::BATCH) } else { Dim::Static(d) };
        let shape = Shape::from_dims(&dims.iter().map(open).collect::<Vec<_>>(), self.dtype);
        let value = self.g.value(self.dtype, &fixed, -2.0..2.0);
        self.bindings.set_input("x", value);
        self.graph.input("x", shape)
    }

    fn norm(&mut self, x: NodeId, centred: bool) -> NodeId {
        let width = self.graph.shape(x).dims().last().unwrap().as_static().unwrap();
        let (gamma, beta) = (self.param(&[width]), self.param(&[width]));
        let op =
            if centred { Op::LayerNorm { axis: -1, eps: 1e-3 } } else { Op::RmsNorm { axis: -1, eps: 1e-3 } };
        let inputs = if centred { vec![x, gamma, beta] } else { vec![x, gamma] };
        self.graph.try_emit(op, &inputs).unwrap()
    }

    fn linear(&mut self, x: NodeId, columns: usize, bias: bool) -> NodeId {
        let width = self.graph.shape(x).dims().last().unwrap().as_static().unwrap();
        let w = self.param(&[width, columns]);
        let y = self.graph.try_mm(x, w).unwrap();
        if !bias {
            return y;
        }
        let b = self.param(&[columns]);
        self.graph.try_add_(y, b).unwrap()
    }

    fn act(&mut self, f: Activation, x: NodeId) -> NodeId {
        self.graph.try_act(f, x).unwrap()
    }

    fn mul(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.graph.try_emit(Op::Binary(BinaryOp::Mul), &[a, b]).unwrap()
    }
}

/// Regions with a norm or with a quantisation before the matmul, and regions with two matmuls.
fn fused(lir: &LirModule) -> [usize; 2] {
    let mut found = [0; 2];
    for step in &lir.steps {
        if let Op::Region { body } = &lir.graph.node(step.node).op {
            let of =
                |kinds: &[OpKind]| body.graph.nodes().iter().filter(|n| kinds.contains(&n.op.kind())).count();
            let of_floats = |n: &Node| {
                n.op == Op::MatMulInteger && matches!(body.graph.node(n.inputs[0]).op, Op::Quantize { .. })
            };
            let quantised = body.graph.nodes().iter().any(of_floats);
            found[0] += usize::from(quantised || of(&[OpKind::LayerNorm, OpKind::RmsNorm]) > 0);
            found[1] += usize::from(of(&[OpKind::MatMul]) > 1);
        }
    }
    found
}

/// Compiles `net` with producers and without, on every instruction set, on one thread and two: all have the same bits on each
/// instruction set, near the oracle's, and the first has `want` regions.
fn check(net: &Net, rows: usize, want: [usize; 2]) {
    let expected = oracle(&net.graph, &net.bindings);
    let dims = DimBinding::from_pairs(&[(sym::BATCH, rows)]);
    let loose = |t: Tolerance| Tolerance { rtol: t.rtol.max(1e-3), atol: t.atol.max(1e-3) };
    for isa in Isa::available() {
        let mut bits = Vec::new();
        for (producers, threads) in [(true, 1), (true, 2), (false, 1)] {
            let fusion = FusionOptions { producers, ..FusionOptions::default() };
            let backend = CpuBackend::new().with_isa(isa).with_threads(threads).unwrap();
            let options = CompileOptions::default().fusion_opts(fusion);
            let mut exec = compile(&net.graph, &backend, &options).unwrap();
            let regions = fused(exec.lir());
            assert_eq!(regions, if producers { want } else { [0, 0] }, "{}", exec.lir());
            let got = run(&mut *exec, &net.bindings, &dims).unwrap();
            if let Some(difference) = against_oracle_within(&expected, &got, loose) {
                panic!("{} on {threads} threads, producers: {producers}: {difference}", isa.kind());
            }
            bits.push(got);
        }
        assert!(bits.iter().all(|b| *b == bits[0]), "{}: other bits", isa.kind());
    }
}

const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

#[test]
fn a_norm_in_strips_has_the_bits_of_a_norm_alone() {
    for (dtype, centred, rows, width) in
        TYPES.into_iter().flat_map(|t| [(t, true, 1, 40), (t, false, 70, 33), (t, true, 150, 1100)])
    {
        let mut net = Net::new(dtype);
        let x = net.rows(&[0, width], rows);
        let y = net.norm(x, centred);
        let y = net.linear(y, 100, true);
        let y = net.act(Activation::Gelu, y);
        net.graph.set_outputs(vec![y]);
        check(&net, rows, [1, 0]);
    }
}

#[test]
fn leading_dimensions_residuals_and_two_readers() {
    let mut net = Net::new(DType::F32);
    let x = net.rows(&[0, 50, 64], 3);
    let n = net.norm(x, true);
    let (a, b) = (net.linear(n, 64, true), net.linear(n, 64, false));
    let a = net.act(Activation::Gelu, a);
    // Over the residual, which is what the norm reads.
    let y = net.graph.try_add_(b, x).unwrap();
    net.graph.set_outputs(vec![a, y]);
    check(&net, 3, [2, 0]);
}

#[test]
fn a_gate_and_its_other_half_are_one_step_with_the_same_bits() {
    for (dtype, rows) in TYPES.into_iter().flat_map(|t| [(t, 1), (t, 150)]) {
        for (normed, biased, gate_first) in [(true, false, true), (false, true, false), (true, true, false)] {
            let mut net = Net::new(dtype);
            let x = net.rows(&[0, 1100], rows);
            let x = if normed { net.norm(x, false) } else { x };
            let (mut gate, mut up) = (x, x);
            if gate_first {
                (gate, up) = (net.linear(gate, 70, biased), net.linear(up, 70, biased));
            } else {
                (up, gate) = (net.linear(up, 70, biased), net.linear(gate, 70, biased));
            }
            gate = net.act(Activation::Silu, gate);
            let y = if gate_first { net.mul(gate, up) } else { net.mul(up, gate) };
            let y = net.linear(y, 20, false);
            net.graph.set_outputs(vec![y]);
            check(&net, rows, [usize::from(normed), 1]);
        }
    }
}

#[test]
fn two_functions_are_two_steps() {
    let mut net = Net::new(DType::F32);
    let x = net.rows(&[0, 40], 5);
    let (a, b) = (net.linear(x, 30, false), net.linear(x, 30, false));
    let (a, b) = (net.act(Activation::Silu, a), net.act(Activation::Tanh, b));
    let y = net.mul(a, b);
    net.graph.set_outputs(vec![y]);
    check(&net, 5, [0, 0]);
}

/// `x` quantised to `to` by a scale, and a matmul of it: in f32 again if `floats`, in bytes again if not.
fn quantised(net: &mut Net, x: NodeId, to: DType, columns: usize, floats: bool, zero: bool) -> NodeId {
    let width = net.graph.shape(x).dims().last().unwrap().as_static().unwrap();
    let number = |net: &mut Net, dtype: DType, value: Value| {
        let name = format!("n{}", net.graph.len());
        net.bindings.set_param(name.clone(), value);
        net.graph.param(name, Shape::new(&[], dtype))
    };
    let scale = number(net, DType::F32, Value::float(DType::F32, &[], vec![1.0 / 64.0]));
    let a_zero = number(net, to, Value::int(to, &[], vec![if to == DType::U8 { 120 } else { -3 }]));
    let b_zero = number(net, DType::I8, Value::int(DType::I8, &[], vec![i128::from(zero)]));
    let q = net.graph.try_emit(Op::Quantize { axis: None, to }, &[x, scale, a_zero]).unwrap();
    let w = net.g.value(DType::I8, &[width, columns], -128.0..127.0);
    let name = format!("w{}", net.graph.len());
    net.bindings.set_param(name.clone(), w);
    let w = net.graph.param(name, Shape::new(&[width, columns], DType::I8));
    let y = net.graph.try_emit(Op::MatMulInteger, &[q, w, a_zero, b_zero]).unwrap();
    let y = net.graph.try_emit(Op::Cast { to: DType::F32 }, &[y]).unwrap();
    let small = net.graph.try_scalar(1.0 / 4096.0, DType::F32).unwrap();
    let y = net.mul(y, small);
    if floats {
        return y;
    }
    net.graph.try_emit(Op::Quantize { axis: None, to: DType::U8 }, &[y, scale, a_zero]).unwrap()
}

#[test]
fn rows_quantised_in_strips_have_the_bits_of_the_step_alone() {
    for (to, rows, width, floats) in [
        (DType::U8, 1, 40, true),
        (DType::I8, 70, 33, true),
        (DType::U8, 150, 9000, true),
        (DType::I8, 400, 3001, true),
        (DType::U8, 150, 9000, false),
    ] {
        let mut net = Net::new(DType::F32);
        let x = net.rows(&[0, width], rows);
        let y = quantised(&mut net, x, to, 50, floats, width == 3001);
        net.graph.set_outputs(vec![y]);
        check(&net, rows, [1, 0]);
    }
}

#[test]
fn quantised_rows_with_residuals_and_functions_behind_them() {
    let mut net = Net::new(DType::F32);
    let x = net.rows(&[0, 2700, 70], 3);
    let y = quantised(&mut net, x, DType::U8, 70, true, false);
    let y = net.act(Activation::Gelu, y);
    // Over the residual, which is what is quantised.
    let y = net.graph.try_add_(y, x).unwrap();
    let sums = net.graph.try_sum(y, &[-1], true).unwrap();
    net.graph.set_outputs(vec![y, sums]);
    check(&net, 3, [1, 0]);
}

#[test]
fn bytes_that_two_matmuls_read_are_made_once() {
    let mut net = Net::new(DType::F32);
    let x = net.rows(&[0, 40], 5);
    let y = quantised(&mut net, x, DType::U8, 30, true, false);
    let q = net.graph.nodes().iter().find(|n| matches!(n.op, Op::Quantize { .. })).map(|n| n.id).unwrap();
    let matmul = net.graph.nodes().iter().find(|n| n.op == Op::MatMulInteger).unwrap().inputs.clone();
    let value = net.g.value(DType::I8, &[40, 30], -128.0..127.0);
    net.bindings.set_param("other", value);
    let other = net.graph.param("other", Shape::new(&[40, 30], DType::I8));
    let again = net.graph.try_emit(Op::MatMulInteger, &[q, other, matmul[2], matmul[3]]).unwrap();
    let again = net.graph.try_emit(Op::Cast { to: DType::F32 }, &[again]).unwrap();
    net.graph.set_outputs(vec![y, again]);
    check(&net, 5, [0, 0]);
}

#[test]
fn the_peak_is_without_the_norm() {
    let mut net = Net::new(DType::F32);
    let x = net.rows(&[128, 64], 0);
    // The residual is an arena value.
    let x = net.linear(x, 64, false);
    let n = net.norm(x, true);
    let h = net.linear(n, 256, true);
    let h = net.act(Activation::Gelu, h);
    let y = net.linear(h, 64, true);
    let y = net.graph.try_add_(x, y).unwrap();
    net.graph.set_outputs(vec![y]);
    let arena = |producers: bool| {
        let fusion = FusionOptions { producers, ..FusionOptions::default() };
        let backend = CpuBackend::new().with_threads(1).unwrap();
        let exec = compile(&net.graph, &backend, &CompileOptions::default().fusion_opts(fusion)).unwrap();
        exec.lir().plan.as_ref().expect("fixed dimensions").arena_bytes
    };
    // Residual, norm and hidden layer; then without the norm.
    assert_eq!([arena(false), arena(true)], [6, 5].map(|widths| widths * 128 * 64 * 4));
}
