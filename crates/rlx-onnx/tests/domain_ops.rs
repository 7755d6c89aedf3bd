//! Every op of `com.microsoft` and `ai.onnx.ml` compared with ONNX Runtime, the reference for these domains.
//!
//! `tests/domain_ops/` has a single-node model and ONNX Runtime's outputs for each (made by `models/domain_ops.py`,
//! `models/microsoft_ops.py` and `models/generation_ops.py`). The oracle and the CPU run it. Floats must be close; an integer that was rounded may be one step apart, as `quantized.rs` explains.

mod reference;

use reference::{Tolerance, check_all, compare, folder, inputs, on_cpu, on_oracle, read};
use rlx_ir::op::MaskKind;
use rlx_ir::{ConstData, Error, ErrorKind, Op, Value};
use rlx_onnx::proto::{AttributeProto, GraphProto, ModelProto};
use rlx_onnx::testing::{file, ints, untyped};
use rlx_onnx::{ImportOptions, import, needed_input};
use std::collections::BTreeSet;

#[test]
fn ops_give_what_onnx_runtime_gives() {
    let mut seen = BTreeSet::new();
    check_all(&folder("domain_ops"), |name| check(name, &mut seen));
    // The node cases of the onnx package cover the first three, `classical.rs` the others.
    let elsewhere = [
        ["TreeEnsemble", "QuantizeLinear", "DequantizeLinear"],
        ["CastMap", "CategoryMapper", "DictVectorizer"],
        ["SVMClassifier", "ZipMap", "TfIdfVectorizer"],
    ]
    .concat();
    let compared = ["com.microsoft", "ai.onnx.ml"];
    let untested: Vec<&str> = rlx_onnx::built()
        .filter(|(domain, op)| compared.contains(domain) && !seen.contains(*op) && !elsewhere.contains(op))
        .map(|(_, op)| op)
        .collect();
    assert!(untested.is_empty(), "no case for {untested:?}");
}

/// The case on the oracle and on the CPU.
fn check(name: &str, seen: &mut BTreeSet<String>) -> Result<(), String> {
    let text = |e: rlx_ir::Error| e.to_string();
    let (file, arrays) = read(&folder("domain_ops"), name).map_err(text)?;
    seen.extend(file.graph().node.iter().map(|n| n.op_type().to_owned()));
    let imported = import(&file, &ImportOptions::default()).map_err(text)?;
    let inputs = inputs(&arrays);
    compare(&imported, &on_oracle(&imported, &inputs).map_err(text)?, &arrays, &OF_ORACLE)?;
    let found = on_cpu(&imported, &inputs).map_err(|e| format!("on the CPU: {e}"))?;
    compare(&imported, &found, &arrays, &OF_CPU).map_err(|why| format!("on the CPU: {why}"))
}

/// A sliding window over places that follow from shapes is one of the attention; where each item has its own length, it is part of a mask.
#[test]
fn windows_are_attributes_where_places_are_known() {
    let windows = |name: &str| {
        let (model, _) = read(&folder("domain_ops"), name).expect("the case is committed");
        let imported = import(&model, &ImportOptions::default()).expect("it imports");
        let attentions = imported.graph.nodes().iter().filter_map(|node| match node.op {
            Op::Attention { mask, window, .. } => Some((mask, window.is_some())),
            _ => None,
        });
        attentions.collect::<Vec<_>>()
    };
    assert_eq!(windows("gqa_window_prefill"), [(MaskKind::Causal, true)]);
    assert_eq!(windows("gqa_prefill"), [(MaskKind::Causal, false)]);
    assert_eq!(windows("gqa_window_decode"), [(MaskKind::Custom, false)]);
}

/// How far a float may be from ONNX Runtime's. The CPU's own are f32 as well.
const OF_ORACLE: Tolerance = Tolerance { relative: 1e-5, absolute: 0.0, of_largest: 2e-6, steps: 1.0 };
const OF_CPU: Tolerance = Tolerance { relative: 5e-5, absolute: 0.0, of_largest: 5e-6, steps: 1.0 };

/// `Sampling` draws other tokens than ONNX Runtime, but as often: 4,096 texts with one prompt get a token each.
#[test]
fn tokens_are_drawn_as_often_as_their_probabilities_say() {
    const TEXTS: usize = 4096;
    let (model, arrays) = read(&folder("drawn"), "sampling").expect("the case is committed");
    let imported = import(&model, &ImportOptions::default()).expect("it imports");
    let prompt = arrays["in_input_ids"].bytes().repeat(TEXTS);
    let prompt =
        ConstData::new(arrays["in_input_ids"].dtype(), &[TEXTS, 4], prompt).expect("as many as bytes");
    let inputs = [("input_ids".to_owned(), prompt)].into();
    let drawn = on_cpu(&imported, &inputs).expect("it runs").remove(0);
    let oracle = on_oracle(&imported, &inputs).expect("it runs").remove(0);
    assert_eq!(drawn.to_f64(), oracle.to_f64(), "tokens depend on the seed and the place alone");
    let probabilities = arrays["out_probabilities"].value().to_f64();
    let mut counts = vec![0.0; probabilities.len()];
    drawn.to_f64().chunks(5).for_each(|text| counts[text[4] as usize] += 1.0);
    for (token, (&count, &p)) in counts.iter().zip(&probabilities).enumerate() {
        let (wanted, spread) = (TEXTS as f64 * p, (TEXTS as f64 * p * (1.0 - p)).sqrt());
        assert!((count - wanted).abs() <= 5.0 * spread, "token {token}: {count} times, not {wanted:.1}");
    }
}

/// The model of a committed case, changed.
fn changed(name: &str, change: impl FnOnce(&mut ModelProto)) -> Error {
    let (case, _) = read(&folder("domain_ops"), name).expect("the case is committed");
    let mut model = case.model().clone();
    change(&mut model);
    import(&file(&model), &ImportOptions::default()).expect_err("it must not import")
}

fn whole(model: &mut ModelProto) -> &mut GraphProto {
    model.graph.as_mut().expect("a model has a graph")
}

fn attribute<'m>(model: &'m mut ModelProto, name: &str) -> &'m mut AttributeProto {
    let attributes = &mut whole(model).node[0].attribute;
    attributes.iter_mut().find(|a| a.name() == name).expect("it has the attribute")
}

fn decoder(model: &mut ModelProto) -> &mut GraphProto {
    attribute(model, "decoder").g.as_mut().expect("a graph")
}

fn set(model: &mut ModelProto, name: &str, value: i64) {
    let constant =
        whole(model).initializer.iter_mut().find(|t| t.name() == name).expect("it has the operand");
    *constant = rlx_onnx::proto::TensorProto { dims: constant.dims.clone(), ..ints(name, &[value]) };
}

#[test]
fn searches_that_are_not_built_are_errors() {
    let rejected = |error: Error, kind: ErrorKind, why: &str| {
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(why) && error.to_string().contains("search"), "{error}");
    };
    // As ONNX Runtime, which has a decoder behind an encoder for BeamSearch alone.
    for name in ["greedy", "sampling_best"] {
        let encoder = changed(name, |m| attribute(m, "model_type").i = Some(1));
        let hint = encoder.hint().expect("it says what to use").to_owned();
        rejected(encoder, ErrorKind::Unsupported, "model_type = 1, a decoder behind an encoder");
        assert!(hint.contains("BeamSearch") && hint.contains("num_beams = 1"), "{hint}");
    }
    let without = changed("greedy", |m| decoder(m).output.truncate(1));
    rejected(without, ErrorKind::Malformed, "without caches");
    let other = changed("greedy", |m| decoder(m).input.push(untyped("token_type_ids")));
    rejected(other, ErrorKind::Unsupported, "takes \"token_type_ids\"");
    let alone = changed("greedy", |m| decoder(m).input.push(untyped("cache_indirection")));
    rejected(alone, ErrorKind::Malformed, "cache_indirection without past_sequence_length");
    // A decoder that is given whole buffers and puts rows behind them.
    let grows = changed("greedy", |m| decoder(m).input.push(untyped("past_sequence_length")));
    assert_eq!(grows.kind(), ErrorKind::Shape, "{grows}");
    let open = changed("greedy", |m| decoder(m).input[3].r#type = None);
    rejected(open, ErrorKind::Malformed, "past_0");
    rejected(changed("greedy", |m| set(m, "max_length", 3)), ErrorKind::Malformed, "prompt of 3 tokens");
    rejected(changed("greedy", |m| set(m, "max_length", -1)), ErrorKind::Malformed, "no size");
    rejected(changed("greedy", |m| attribute(m, "eos_token_id").i = Some(-7)), ErrorKind::Unsupported, "-7");
    rejected(changed("beam", |m| set(m, "i3", 300)), ErrorKind::Malformed, "beams");
    rejected(changed("beam", |m| set(m, "i4", 4)), ErrorKind::Malformed, "4 of 3 beams");
    // The longest text decides shapes: where it is an input, its value is asked for.
    let asked = changed("greedy", |m| {
        let graph = whole(m);
        graph.initializer.retain(|t| t.name() != "max_length");
        graph.input.push(rlx_onnx::testing::value("max_length", rlx_onnx::testing::INT64, &[]));
    });
    assert_eq!(needed_input(&asked), Some("max_length"), "{asked}");
}

/// Past and present are one buffer: a caller's handle is updated where it is.
#[test]
fn caches_that_are_one_buffer_are_donated() {
    let cases = [
        ("attention_buffer", 1),
        ("self_attention_decoder_beams", 1),
        ("mha_decoder", 2),
        ("mha_decoder_beams", 2),
        ("gqa_decode_buffer", 2),
    ];
    for (name, caches) in cases {
        let (model, _) = read(&folder("domain_ops"), name).expect("the case is committed");
        let imported = import(&model, &ImportOptions::default()).expect("it imports");
        assert_eq!(imported.graph.donations().len(), caches, "{name}");
    }
}

/// A token that is not in the vocabulary is an error of the run, on the oracle and on the CPU.
#[test]
fn tokens_outside_of_the_vocabulary_are_errors() {
    let (model, mut arrays) =
        read(&folder("domain_ops"), "greedy_repetition").expect("the case is committed");
    let imported = import(&model, &ImportOptions::default()).expect("it imports");
    let prompt = Value::int(rlx_ir::DType::I32, &[2, 4], vec![5, 7, 1_000_000, 3, 1, 2, 3, -90_000]);
    arrays.insert("in_input_ids".to_owned(), prompt.to_const());
    let inputs = inputs(&arrays);
    on_oracle(&imported, &inputs).expect_err("no such token");
    on_cpu(&imported, &inputs).expect_err("no such token");
}
