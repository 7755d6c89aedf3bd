//! Mutations of a model's structure, which a byte-level fuzzer finds late or never.

use super::Choices;
use super::mutate_graph::{reshape_nodes, rewire};
use super::mutate_tensor::{declare_other, other_tensor};
use crate::ops::built;
use crate::proto::attribute_proto::AttributeType;
use crate::proto::{AttributeProto, GraphProto, ModelProto, NodeProto};

/// Numbers at the borders of what code expects.
pub(super) const INTEGERS: [i64; 24] = [
    0,
    -1,
    1,
    2,
    3,
    4,
    5,
    7,
    -2,
    -3,
    16,
    63,
    64,
    255,
    -128,
    65_536,
    1 << 31,
    (1 << 31) - 1,
    -(1 << 33),
    1 << 40,
    1 << 62,
    i64::MAX,
    i64::MIN,
    i64::MIN + 1,
];

/// Floats that do not compare, compute or convert as others do.
pub(super) const FLOATS: [f32; 12] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.0,
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::MAX,
    f32::MIN_POSITIVE,
    1e10,
];

/// Attributes of the ops that there are, and the words that they may be.
const ATTRIBUTES: &[&str] = &[
    "axis",
    "axes",
    "alpha",
    "beta",
    "gamma",
    "auto_pad",
    "axis_w",
    "batch_axis",
    "batch_dims",
    "bias",
    "block_size",
    "blocksize",
    "body",
    "ceil_mode",
    "center_point_box",
    "clip",
    "coordinate_transformation_mode",
    "count_include_pad",
    "cubic_coeff_a",
    "detect_negative",
    "detect_positive",
    "dilations",
    "direction",
    "dtype",
    "else_branch",
    "end",
    "epsilon",
    "equation",
    "exclude_outside",
    "exclusive",
    "extrapolation_value",
    "fmod",
    "group",
    "hidden_size",
    "interleaved",
    "inverse",
    "is_causal",
    "k",
    "keepdims",
    "kernel_shape",
    "kv_num_heads",
    "lambd",
    "largest",
    "layout",
    "linear_before_reset",
    "max",
    "min",
    "mode",
    "nearest_mode",
    "noop_with_empty_axes",
    "num_groups",
    "num_heads",
    "num_outputs",
    "num_scan_inputs",
    "onesided",
    "output_dtype",
    "output_padding",
    "output_shape",
    "p",
    "padding_mode",
    "pads",
    "perm",
    "pixel_shift",
    "pooled_shape",
    "q_num_heads",
    "qk_matmul_output_mode",
    "reduction",
    "reverse",
    "rotary_embedding_dim",
    "sampling_ratio",
    "saturate",
    "scale",
    "select_last_index",
    "size",
    "softcap",
    "softmax_precision",
    "sorted",
    "spatial_scale",
    "split",
    "start",
    "starts",
    "ends",
    "stash_type",
    "steps",
    "storage_order",
    "strides",
    "then_branch",
    "to",
    "transA",
    "transB",
    "upper",
    "value",
    "value_float",
    "value_int",
    "value_ints",
    "value_floats",
    "activations",
    "align_corners",
    "periodic",
    "scan_input_axes",
    "scan_input_directions",
    "scan_output_axes",
];

const WORDS: &[&str] = &[
    "",
    "NOTSET",
    "VALID",
    "SAME_UPPER",
    "SAME_LOWER",
    "constant",
    "reflect",
    "edge",
    "wrap",
    "nearest",
    "linear",
    "cubic",
    "none",
    "add",
    "mul",
    "min",
    "max",
    "mean",
    "sum",
    "forward",
    "reverse",
    "bidirectional",
    "DCR",
    "CRD",
    "LEFT",
    "RIGHT",
    "ij,jk->ik",
    "...i,ij",
    "i",
    "ii->i",
    "->",
    "tanh",
    "half_pixel",
    "asymmetric",
    "align_corners",
    "tf_crop_and_resize",
    "floor",
    "ceil",
    "round_prefer_floor",
    "bilinear",
    "bicubic",
    "zeros",
    "border",
    "Relu",
    "Tanh",
    "Sigmoid",
    "avg",
    "\u{0}",
    "a very long word that no op knows about",
];

/// Changes models, with the ops of other models as a stock.
#[derive(Debug, Clone, Default)]
pub struct Mutator {
    /// Nodes of other models.
    stock: Vec<NodeProto>,
}

/// Makes between one and four changes with no stock of other models; see [`Mutator::mutate`].
pub fn mutate(model: &mut ModelProto, choices: &mut Choices<'_>) {
    Mutator::default().mutate(model, choices);
}

impl Mutator {
    /// One that also puts in nodes of these models.
    pub fn with_stock<'m>(models: impl IntoIterator<Item = &'m ModelProto>) -> Self {
        let graphs = models.into_iter().filter_map(|m| m.graph.as_ref());
        Mutator { stock: graphs.flat_map(|g| g.node.iter().cloned()).collect() }
    }

    /// Makes between one and four changes: to operators and their attributes, operands, declared types, constants, the
    /// order of nodes, bodies, and versions. The model that comes out may be legal.
    pub fn mutate(&self, model: &mut ModelProto, choices: &mut Choices<'_>) {
        for _ in 0..1 + choices.below(4) {
            if choices.one_in(24) {
                let version =
                    choices.pick(&[7, 8, 9, 10, 11, 12, 13, 15, 17, 18, 19, 20, 21, 22, 23, 24, 25, 0, -1]);
                let set = choices.pick_mut(&mut model.opset_import);
                set.into_iter().for_each(|set| set.version = Some(version));
                continue;
            }
            let function = (!model.functions.is_empty() && choices.one_in(4))
                .then(|| choices.below(model.functions.len()));
            if let Some(function) = function {
                let mut inside = GraphProto {
                    node: std::mem::take(&mut model.functions[function].node),
                    ..Default::default()
                };
                self.graph(&mut inside, choices, 3);
                model.functions[function].node = inside.node;
                continue;
            }
            if let Some(graph) = model.graph.as_mut() {
                self.graph(graph, choices, 0);
            }
        }
    }

    /// One change to a graph, or to a body in it; `depth` bounds how deep bodies are put around nodes.
    fn graph(&self, graph: &mut GraphProto, choices: &mut Choices<'_>, depth: usize) {
        if choices.one_in(3)
            && let Some(body) = body_in(graph, choices)
        {
            return self.graph(body, choices, depth + 1);
        }
        match choices.below(10) {
            0 | 1 => rewire(graph, choices),
            2 => reshape_nodes(graph, &self.stock, choices, depth),
            3 => declare_other(graph, choices),
            4 | 5 => other_tensor(graph, choices),
            _ => self.node(graph, choices),
        }
    }

    /// Another op, or other attributes.
    fn node(&self, graph: &mut GraphProto, choices: &mut Choices<'_>) {
        let donor = graph.node.get(choices.below(graph.node.len())).cloned();
        let Some(node) = choices.pick_mut(&mut graph.node) else { return };
        match choices.below(12) {
            0 => {
                let ops: Vec<_> = built().collect();
                let (domain, op) = choices.pick(&ops);
                (node.domain, node.op_type) = (Some(domain.to_owned()), Some(op.to_owned()));
            }
            1 if !self.stock.is_empty() => {
                let other = &self.stock[choices.below(self.stock.len())];
                node.op_type.clone_from(&other.op_type);
                node.domain.clone_from(&other.domain);
                node.attribute.clone_from(&other.attribute);
            }
            2 => node.attribute = donor.map(|d| d.attribute).unwrap_or_default(),
            3 if !node.attribute.is_empty() => _ = node.attribute.remove(choices.below(node.attribute.len())),
            4 | 5 => {
                let mut attribute =
                    AttributeProto { name: Some(choices.pick(ATTRIBUTES).to_owned()), ..Default::default() };
                give_value(&mut attribute, choices);
                node.attribute.retain(|a| a.name != attribute.name);
                node.attribute.push(attribute);
            }
            _ => match choices.pick_mut(&mut node.attribute) {
                Some(attribute) => other_value(attribute, choices),
                None => node.op_type = donor.and_then(|d| d.op_type),
            },
        }
    }
}

/// A body of one of the graph's nodes.
fn body_in<'g>(graph: &'g mut GraphProto, choices: &mut Choices<'_>) -> Option<&'g mut GraphProto> {
    let attributes = graph.node.iter_mut().flat_map(|n| n.attribute.iter_mut());
    let mut bodies: Vec<&mut GraphProto> = attributes.filter_map(|a| a.g.as_deref_mut()).collect();
    let at = choices.below(bodies.len());
    (at < bodies.len()).then(|| bodies.swap_remove(at))
}

/// An attribute's value changed within its type, or its type.
fn other_value(attribute: &mut AttributeProto, choices: &mut Choices<'_>) {
    if choices.one_in(6) {
        return give_value(attribute, choices);
    }
    let number = choices.pick(&INTEGERS);
    match attribute.r#type() {
        AttributeType::Int => attribute.i = Some(number),
        AttributeType::Float => attribute.f = Some(choices.pick(&FLOATS)),
        AttributeType::String => attribute.s = Some(choices.pick(WORDS).as_bytes().to_vec().into()),
        AttributeType::Ints => match choices.below(4) {
            0 => attribute.ints.push(number),
            1 => _ = attribute.ints.pop(),
            _ => match choices.pick_mut(&mut attribute.ints) {
                Some(i) => *i = number,
                None => attribute.ints.push(number),
            },
        },
        AttributeType::Floats => match choices.pick_mut(&mut attribute.floats) {
            Some(f) => *f = choices.pick(&FLOATS),
            None => attribute.floats.push(choices.pick(&FLOATS)),
        },
        AttributeType::Strings => {
            let word = choices.pick(WORDS).as_bytes().to_vec().into();
            match choices.pick_mut(&mut attribute.strings) {
                Some(s) => *s = word,
                None => attribute.strings.push(word),
            }
        }
        AttributeType::Tensor => {
            if let Some(tensor) = attribute.t.as_deref_mut() {
                super::mutate_tensor::change(tensor, choices);
            }
        }
        _ => give_value(attribute, choices),
    }
}

/// A value of any type.
fn give_value(attribute: &mut AttributeProto, choices: &mut Choices<'_>) {
    let ty = choices.pick(&[
        AttributeType::Int,
        AttributeType::Ints,
        AttributeType::Float,
        AttributeType::Floats,
        AttributeType::String,
        AttributeType::Strings,
        AttributeType::Tensor,
        AttributeType::Undefined,
    ]);
    attribute.r#type = Some(ty as i32);
    match ty {
        AttributeType::Int => attribute.i = Some(choices.pick(&INTEGERS)),
        AttributeType::Ints => {
            attribute.ints = (0..choices.below(6)).map(|_| choices.pick(&INTEGERS)).collect();
        }
        AttributeType::Float => attribute.f = Some(choices.pick(&FLOATS)),
        AttributeType::Floats => {
            attribute.floats = (0..choices.below(6)).map(|_| choices.pick(&FLOATS)).collect();
        }
        AttributeType::String => attribute.s = Some(choices.pick(WORDS).as_bytes().to_vec().into()),
        AttributeType::Strings => {
            attribute.strings =
                (0..choices.below(3)).map(|_| choices.pick(WORDS).as_bytes().to_vec().into()).collect();
        }
        AttributeType::Tensor => {
            attribute.t = Some(Box::new(super::mutate_tensor::arbitrary("", choices)));
        }
        _ => {}
    }
}
