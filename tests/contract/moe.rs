//! The contract's calls about mixtures of experts, by public names only, on a small graph of Mixtral's shape.

use rlx_contract::{DEVICE, on_every_device, register};
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::{DType, ErrorKind, Shape, Value, verify};
use rlx_runtime::{
    CompiledGraph, Device, DispatchPath, Graph, MoeResidencyStats, OpKind, Session, TracedTensor, Tracer,
    dispatch_report_for_device, trace,
};

const HIDDEN: usize = 8;
const WIDE: usize = 12;
const EXPERTS: usize = 6;
const CHOSEN: usize = 2;
const LAYERS: usize = 3;

fn f32s(dims: &[usize]) -> Shape {
    Shape::new(dims, DType::F32)
}

/// One layer: softmax of the router, the best two, SwiGLU by each chosen expert, weighted sum.
fn layer(t: &Tracer, i: usize, x: &TracedTensor) -> TracedTensor {
    let param = |name: &str, dims: &[usize]| t.param(format!("{i}.{name}"), f32s(dims));
    let router = param("router", &[HIDDEN, EXPERTS]);
    let (weights, chosen) = x.matmul(router).softmax(-1).top_k(CHOSEN, -1);
    let weights = &weights / weights.sum([-1], true);
    let rows = x.unsqueeze(-2);
    let gate = rows.grouped_matmul(param("gate", &[EXPERTS, HIDDEN, WIDE]), &chosen).silu();
    let up = rows.grouped_matmul(param("up", &[EXPERTS, HIDDEN, WIDE]), &chosen);
    let down = (gate * up).grouped_matmul(param("down", &[EXPERTS, WIDE, HIDDEN]), &chosen);
    x + (down * weights.unsqueeze(-1)).sum([1], false)
}

fn mixture(tokens: usize) -> Graph {
    trace("mixture", |t| {
        let mut x = t.input("x", f32s(&[tokens, HIDDEN]));
        for i in 0..LAYERS {
            x = layer(t, i, &x);
        }
        vec![x]
    })
}

/// Numbers without order, the same for the same name.
fn numbers(name: &str, n: usize) -> Vec<f32> {
    let seed = name.bytes().fold(7u32, |h, b| h.wrapping_mul(31).wrapping_add(b.into()));
    let number = |i: usize| (i as u32 + seed).wrapping_mul(2_654_435_761).rotate_left(9) % 2001;
    (0..n).map(|i| number(i) as f32 / 1000.0 - 1.0).collect()
}

fn compiled(device: Device, tokens: usize) -> CompiledGraph {
    register();
    let graph = mixture(tokens);
    assert_eq!(verify(&graph), []);
    let mut compiled = Session::new(device).compile(graph);
    let params = compiled.params().to_vec();
    for info in params {
        let n = info.shape.num_elements().unwrap();
        compiled.set_param(&info.name, &numbers(&info.name, n));
    }
    compiled
}

/// Every node's values by the oracle: the output, and each router's choices.
fn expected(tokens: usize, x: &[f32]) -> (Vec<f64>, Vec<Vec<u32>>) {
    let graph = mixture(tokens);
    let mut bindings = Bindings::default();
    let value = |shape: &Shape, numbers: &[f32]| {
        let dims = shape.static_dims().unwrap();
        Value::float(DType::F32, &dims, numbers.iter().map(|&v| v.into()).collect())
    };
    bindings.set_input("x", value(&f32s(&[tokens, HIDDEN]), x));
    for node in graph.params() {
        let name = node.op_name();
        let n = node.shape.num_elements().unwrap();
        bindings.set_param(name, value(&node.shape, &numbers(name, n)));
    }
    let values = oracle::evaluate_all(&graph, &bindings, &graph.outputs).unwrap();
    let of = |i: usize| values[i].as_ref().unwrap();
    let routers = graph.nodes().iter().filter(|n| n.op.kind() == OpKind::TopK);
    let choices = routers.map(|n| of(n.id.index())[1].ints().unwrap().iter().map(|&e| e as u32).collect());
    (of(graph.outputs[0].index())[0].to_f64(), choices.collect())
}

trait Named {
    fn op_name(&self) -> &str;
}

impl Named for rlx_ir::Node {
    fn op_name(&self) -> &str {
        match &self.op {
            rlx_ir::Op::Param { name } | rlx_ir::Op::Input { name } => name,
            _ => "",
        }
    }
}

fn a_mixture_is_right(device: Device) {
    for tokens in [1, 5, 40] {
        let x = numbers("x", tokens * HIDDEN);
        let got = compiled(device, tokens).run(&[("x", &x)]);
        let (want, _) = expected(tokens, &x);
        for (got, want) in got[0].iter().zip(&want) {
            assert!((f64::from(*got) - want).abs() < 1e-4 * (1.0 + want.abs()), "{got} {want}");
        }
    }
}

on_every_device!(a_mixture_is_right);

/// What should be counted: each expert of each layer that was chosen runs three matmuls.
fn counted(choices: &[Vec<u32>], masks: &[Vec<bool>]) -> MoeResidencyStats {
    let mut stats = MoeResidencyStats::default();
    for (choices, mask) in choices.iter().zip(masks) {
        for (e, &resident) in mask.iter().enumerate() {
            let rows = choices.iter().filter(|&&c| c as usize == e).count() as u64;
            let calls = 3 * u64::from(rows > 0);
            if resident {
                stats.gpu_expert_calls += calls;
                stats.gpu_tokens += 3 * rows;
            } else {
                stats.cpu_expert_calls += calls;
                stats.cpu_tokens += 3 * rows;
            }
        }
    }
    stats
}

fn bits(values: &[Vec<f32>]) -> Vec<u32> {
    values.concat().iter().map(|v| v.to_bits()).collect()
}

#[test]
fn every_residency_gives_the_same_bits_and_true_counts() {
    let tokens = 9;
    let mut graph = compiled(Device::Cpu, tokens);
    let x = numbers("x", tokens * HIDDEN);
    let (_, choices) = expected(tokens, &x);
    let all = vec![vec![true; EXPERTS]; LAYERS];
    let want = bits(&graph.run(&[("x", &x)]));
    assert_eq!(graph.take_moe_residency_stats(), Some(counted(&choices, &all)));
    assert_eq!(graph.take_moe_residency_stats(), Some(MoeResidencyStats::default()));
    let full = graph.memory().weight_bytes;
    for seed in 0..12u32 {
        let resident =
            |layer: usize, e: usize| (seed * 7 + layer as u32 * 5 + e as u32 * 3).is_multiple_of(4);
        let masks: Vec<Vec<bool>> =
            (0..LAYERS).map(|l| (0..EXPERTS).map(|e| resident(l, e)).collect()).collect();
        let views: Vec<&[bool]> = masks.iter().map(Vec::as_slice).collect();
        graph.set_moe_resident_experts_per_layer(&views);
        assert_eq!(bits(&graph.run(&[("x", &x)])), want, "{masks:?}");
        assert_eq!(graph.take_moe_residency_stats(), Some(counted(&choices, &masks)), "{masks:?}");
        // Experts that are not resident take no memory of the executable's own.
        assert!(graph.memory().weight_bytes < full);
    }
    graph.set_moe_resident_experts(&[false; EXPERTS]);
    graph.set_moe_resident_experts_per_layer(&[]);
    assert_eq!(bits(&graph.run(&[("x", &x)])), want);
    assert_eq!(
        graph.take_moe_residency_stats(),
        Some(counted(&choices, &vec![vec![false; EXPERTS]; LAYERS]))
    );
}

#[test]
fn masks_by_layer_win_over_the_merged_one() {
    let tokens = 4;
    let mut graph = compiled(Device::Cpu, tokens);
    let x = numbers("x", tokens * HIDDEN);
    let (_, choices) = expected(tokens, &x);
    let (none, all) = (vec![false; EXPERTS], vec![true; EXPERTS]);
    graph.set_moe_resident_experts_per_layer(&[&all, &none, &all]);
    graph.set_moe_resident_experts(&none);
    graph.run(&[("x", &x)]);
    let masks = [all.clone(), none.clone(), all.clone()];
    assert_eq!(graph.take_moe_residency_stats(), Some(counted(&choices, &masks)));
    // Without masks by layer, the merged one counts; without that, all are resident.
    graph.set_moe_resident_experts_per_layer(&[]);
    graph.run(&[("x", &x)]);
    assert_eq!(graph.take_moe_residency_stats(), Some(counted(&choices, &vec![none; LAYERS])));
    graph.set_moe_resident_experts(&[]);
    graph.run(&[("x", &x)]);
    assert_eq!(graph.take_moe_residency_stats(), Some(counted(&choices, &vec![all; LAYERS])));
}

#[test]
fn masks_that_do_not_fit_are_errors() {
    let mut graph = compiled(Device::Cpu, 2);
    let error = graph.try_set_moe_resident_experts(&[true; EXPERTS + 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Binding);
    assert!(error.to_string().contains("a mask of 7 experts; layer 0 has 6"), "{error}");
    let mask = [true; EXPERTS];
    let error = graph.try_set_moe_resident_experts_per_layer(&[&mask, &mask]).unwrap_err();
    assert!(error.to_string().contains("2 masks were given; the graph has 3 routers"), "{error}");
    let error = graph.try_set_moe_resident_experts_per_layer(&[&mask, &mask, &mask[..2]]).unwrap_err();
    assert!(error.to_string().contains("a mask of 2 experts; layer 2 has 6"), "{error}");
}

#[test]
fn captures_are_the_last_forwards_choices_in_router_order() {
    let tokens = 7;
    let mut graph = compiled(Device::Cpu, tokens);
    let x = numbers("x", tokens * HIDDEN);
    assert!(!graph.enable_moe_topk_capture(EXPERTS + 1));
    graph.run(&[("x", &x)]);
    assert_eq!(graph.take_moe_topk_capture(), None);
    assert!(graph.enable_moe_topk_capture(EXPERTS));
    assert_eq!(graph.take_moe_topk_capture(), None);
    let other = numbers("other", tokens * HIDDEN);
    graph.run(&[("x", &other)]);
    graph.run(&[("x", &x)]);
    assert_eq!(graph.take_moe_topk_capture(), Some(expected(tokens, &x).1));
    assert_eq!(graph.take_moe_topk_capture(), None);
    graph.run(&[("x", &other)]);
    assert_eq!(graph.take_moe_topk_capture(), Some(expected(tokens, &other).1));
}

#[test]
fn neighbours_clones_and_new_weights_change_no_bits() {
    let tokens = 6;
    let mut graph = compiled(Device::Cpu, tokens);
    let x = numbers("x", tokens * HIDDEN);
    let want = graph.run(&[("x", &x)]);
    // A row alone is what it is among others.
    let mut single = compiled(Device::Cpu, 1);
    for (row, want) in x.chunks(HIDDEN).zip(want[0].chunks(HIDDEN)) {
        assert_eq!(bits(&single.run(&[("x", row)])), bits(&[want.to_vec()]));
    }
    // Clones keep the masks and count for themselves; setting a parameter of one changes that one.
    graph.set_moe_resident_experts(&[true, false, true, false, true, false]);
    let mut clone = graph.clone();
    graph.take_moe_residency_stats();
    assert_eq!(bits(&clone.run(&[("x", &x)])), bits(&want));
    let stats = clone.take_moe_residency_stats().unwrap();
    assert!(stats.gpu_tokens > 0 && stats.cpu_tokens > 0);
    assert_eq!(stats.gpu_tokens + stats.cpu_tokens, (tokens * CHOSEN * LAYERS * 3) as u64);
    assert_eq!(graph.take_moe_residency_stats(), Some(MoeResidencyStats::default()));
    clone.set_param("1.gate", &numbers("another", EXPERTS * HIDDEN * WIDE));
    assert_ne!(bits(&clone.run(&[("x", &x)])), bits(&want));
    assert_eq!(bits(&graph.run(&[("x", &x)])), bits(&want));
    clone.set_param("1.gate", &numbers("1.gate", EXPERTS * HIDDEN * WIDE));
    assert_eq!(bits(&clone.run(&[("x", &x)])), bits(&want));
}

#[test]
fn an_expert_that_is_not_there_is_an_error_that_names_the_op() {
    let graph = trace("chosen", |t| {
        let x = t.input("x", f32s(&[2, 3]));
        let chosen = t.input("chosen", Shape::new(&[2], DType::I64));
        vec![x.grouped_matmul(t.param("w", f32s(&[4, 3, 2])), chosen)]
    });
    let mut graph = Session::new(Device::Cpu).compile(graph);
    graph.set_param("w", &numbers("w", 24));
    let x = numbers("x", 6);
    let error = graph.try_run(&[("x", &x), ("chosen", &[0.0, 4.0])]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Value);
    assert!(error.to_string().contains("GroupedMatMul") && error.to_string().contains("index 4"), "{error}");
    // Negative choices count from the end, and are captured from the front.
    assert!(graph.enable_moe_topk_capture(4));
    let last = graph.run(&[("x", &x), ("chosen", &[3.0, -1.0])]);
    assert_eq!(graph.take_moe_topk_capture(), Some(vec![vec![3, 3]]));
    assert_eq!(graph.run(&[("x", &x), ("chosen", &[-1.0, 3.0])]), last);
}

#[test]
fn graphs_and_devices_without_routers_say_so() {
    register();
    let plain = trace("plain", |t| vec![t.input("x", f32s(&[2])).relu()]);
    for mut graph in [Session::new(Device::Cpu).compile(plain), compiled(DEVICE, 2)] {
        assert!(!graph.enable_moe_topk_capture(EXPERTS));
        assert_eq!(graph.take_moe_topk_capture(), None);
        assert_eq!(graph.take_moe_residency_stats(), None);
        let error = graph.try_set_moe_resident_experts(&[true; EXPERTS]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(graph.try_set_moe_resident_experts_per_layer(&[&[true]]).is_err());
        // Nothing to forget is no fault.
        assert!(graph.try_set_moe_resident_experts(&[]).is_ok());
    }
}

#[test]
fn the_cpu_has_a_kernel_of_its_own() {
    let report = dispatch_report_for_device(&mixture(3), Device::Cpu).unwrap();
    let line = report.summaries.iter().find(|s| s.kind == OpKind::GroupedMatMul).unwrap();
    assert_eq!((line.path, line.node_count), (DispatchPath::Native, 3 * LAYERS));
}
