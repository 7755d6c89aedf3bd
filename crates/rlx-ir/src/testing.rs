//! Random valid cases for every op (feature `testing`).
//!
//! Each op's definition makes cases through [`Gen`]: a small, seeded generator, so that a failing case is
//! named by its seed. Values are multiples of 1/8 within a range: exact in every float type of 8 bits or
//! more that can hold them, and away from the ties where correct implementations may differ.

use std::ops::{Range, RangeInclusive};

use crate::dtype::{DType, DTypeClass};
use crate::graph::Graph;
use crate::op::{GateFunction, RecurrentCell};
use crate::ops::attr::NamedVariant;
use crate::ops::{Op, OpKind};
use crate::oracle::Bindings;
use crate::shape::Shape;
use crate::tensor::Value;

mod contradictions;
mod convs;
mod functions;
mod graphs;
mod matmuls;
mod mismatch;
mod modules;
mod numerics;
mod pages;
mod property;

pub use crate::ops::nn::attention::{AttentionShape, random_attention};
pub use contradictions::contradicting_graph;
pub use convs::random_conv;
pub use functions::{exact, function_arguments, function_graph, ulps, worst_ulps};
pub use graphs::{
    lengthened, random_bindings, random_decoder, random_donating_graph, random_graph,
    random_projection_graph, random_symbolic_graph, symbolic_graph,
};
pub use matmuls::random_matmul;
pub use mismatch::{hollow_case, mismatched, mismatched_case};
pub use modules::{damaged_bytes, damaged_module};
pub use numerics::{
    random_masked_attention, random_masked_rows, random_rounding_graph, random_scale_from_body,
};
pub use pages::random_paged_attention;
pub use property::for_random_graphs;

/// A source of choices: seeded (SplitMix64), or the bytes of a fuzzer.
#[derive(Debug, Clone)]
pub struct Gen {
    /// Choices that come first, one byte each.
    script: std::vec::IntoIter<u8>,
    state: u64,
}

impl Gen {
    /// The generator for `seed`.
    pub fn new(seed: u64) -> Self {
        Gen { script: Vec::new().into_iter(), state: seed }
    }

    /// The generator whose first choices are `bytes`, one for each choice, so that a fuzzer that changes a byte changes
    /// one choice; those that follow are always the same. The elements of a tensor are one choice.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let script: Vec<u8> = bytes.into();
        Gen { script: script.into_iter(), state: 0 }
    }

    /// The generator for what is one choice of a script but many numbers.
    fn elements(&mut self) -> Option<Gen> {
        self.script.next().map(|byte| Gen::new(u64::from(byte)))
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        if let Some(byte) = self.script.next() {
            // High and low bits alike, since some choices are made by a remainder and others by a magnitude.
            return u64::from_ne_bytes([byte; 8]);
        }
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `range`.
    pub fn size(&mut self, range: RangeInclusive<usize>) -> usize {
        let span = (range.end() - range.start() + 1) as u64;
        range.start() + (self.bits() % span) as usize
    }

    /// A number in `range`.
    pub fn int(&mut self, range: RangeInclusive<i64>) -> i64 {
        let span = (range.end() - range.start() + 1) as u64;
        range.start() + (self.bits() % span) as i64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        ((self.bits() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// One of `items`.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.size(0..=items.len() - 1)]
    }

    /// One value of an attribute enum.
    pub fn variant<T: NamedVariant>(&mut self) -> T {
        self.pick(T::ALL)
    }

    /// Reorders `items`.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = self.size(0..=i);
            items.swap(i, j);
        }
    }

    /// Dimensions: how many, and how large.
    pub fn dims(&mut self, rank: RangeInclusive<usize>, size: RangeInclusive<usize>) -> Vec<usize> {
        (0..self.size(rank)).map(|_| self.size(size.clone())).collect()
    }

    /// Two lists of dimensions that broadcast together.
    pub fn broadcast_dims(&mut self) -> (Vec<usize>, Vec<usize>) {
        let full = self.dims(0..=4, 1..=6);
        let mut pair = [full.clone(), full];
        for dims in &mut pair {
            if self.chance(0.4) {
                dims.iter_mut().for_each(|d| *d = if self.chance(0.4) { 1 } else { *d });
                let drop = self.size(0..=dims.len());
                dims.drain(..drop);
            }
        }
        let [a, b] = pair;
        (a, b)
    }

    /// An element type that `accept` takes: f32 half of the time if it is among them.
    pub fn dtype_where(&mut self, accept: impl Fn(DType) -> bool) -> DType {
        // The small floats are left to the ops that are about them.
        let usual =
            |d: &DType| accept(*d) && (d.bits() >= 16 || !d.is_float()) && d.bits() >= 8 && *d != DType::C64;
        let all: Vec<DType> = DType::ALL.iter().copied().filter(usual).collect();
        if all.contains(&DType::F32) && self.chance(0.5) { DType::F32 } else { self.pick(&all) }
    }

    /// A tensor of multiples of 1/8 (integers: of 1) in `range`, clipped to what the type holds.
    pub fn value(&mut self, dtype: DType, dims: &[usize], range: Range<f64>) -> Value {
        if let Some(mut elements) = self.elements() {
            return elements.value(dtype, dims, range);
        }
        let parts = if dtype == DType::C64 { 2 } else { 1 };
        let n = dims.iter().product::<usize>() * parts;
        let (low, high) = ((range.start * 8.0).ceil() as i64, (range.end * 8.0).floor() as i64);
        match dtype.class() {
            DTypeClass::Float | DTypeClass::Complex => {
                Value::float(dtype, dims, (0..n).map(|_| self.int(low..=high) as f64 / 8.0).collect())
                    .rounded()
            }
            DTypeClass::Bool => Value::bools(dims, (0..n).map(|_| self.chance(0.5))),
            _ => {
                let (min, max) = dtype.int_range().unwrap_or((0, 1));
                let pick = |g: &mut Self| i128::from(g.int(low..=high)).div_euclid(8).clamp(min, max);
                Value::int(dtype, dims, (0..n).map(|_| pick(self)).collect())
            }
        }
    }

    /// A tensor of up to 200 elements of which no two are equal; not for bool.
    pub fn distinct_value(&mut self, dtype: DType, dims: &[usize]) -> Value {
        if let Some(mut elements) = self.elements() {
            return elements.distinct_value(dtype, dims);
        }
        let n = dims.iter().product::<usize>();
        let mut order: Vec<usize> = (0..n).collect();
        self.shuffle(&mut order);
        let least = if dtype.class() == DTypeClass::Unsigned { 0 } else { n as i128 / 2 };
        let numbers = order.into_iter().map(|i| i as i128 - least);
        if dtype.is_float() {
            Value::float(dtype, dims, numbers.map(|i| i as f64 / 4.0).collect())
        } else {
            Value::int(dtype, dims, numbers.collect())
        }
    }

    /// Valid indices into a dimension of `size`, some of them counted from its end.
    pub fn indices(&mut self, dims: &[usize], size: usize) -> Value {
        if let Some(mut elements) = self.elements() {
            return elements.indices(dims, size);
        }
        let dtype = self.pick(&[DType::I32, DType::I64]);
        let n = size as i64;
        let values = (0..dims.iter().product()).map(|_| i128::from(self.int(-n..=n - 1))).collect();
        Value::int(dtype, dims, values)
    }

    /// As [`Gen::value`] in −3..3, but never half-way between two integers.
    pub fn untied_value(&mut self, dtype: DType, dims: &[usize]) -> Value {
        let mut value = self.value(dtype, dims, -3.0..3.0);
        if let crate::tensor::Elements::Float(v) = &mut value.elements {
            v.iter_mut().filter(|x| x.fract().abs() == 0.5).for_each(|x| *x += 0.125);
        }
        value
    }
}

/// One op with the values of its inputs.
#[derive(Debug, Clone)]
pub struct Case {
    /// The op.
    pub op: Op,
    /// The values of its inputs.
    pub inputs: Vec<Value>,
    /// The result's shapes, for ops that cannot infer them.
    pub declared: Vec<Shape>,
    /// Where the op has none of its own (inputs, parameters): its value.
    pub source: Option<Value>,
}

impl Case {
    /// A case of `op` on `inputs`.
    pub fn new(op: Op, inputs: Vec<Value>) -> Self {
        Case { op, inputs, declared: Vec::new(), source: None }
    }

    /// The same case with the result's shapes declared.
    pub fn declared(mut self, shapes: Vec<Shape>) -> Self {
        self.declared = shapes;
        self
    }

    /// A case of an op that only names a value from outside.
    pub fn source(op: impl FnOnce(String) -> Op, g: &mut Gen) -> Self {
        let dtype = g.dtype_where(|_| true);
        let dims = g.dims(0..=3, 1..=5);
        let value = g.value(dtype, &dims, -2.0..2.0);
        let op = op("source".to_string());
        Case { op, inputs: vec![], declared: vec![value.shape()], source: Some(value) }
    }

    /// A random case of `kind`.
    pub fn random(kind: OpKind, seed: u64) -> Case {
        kind.def().generate(kind, &mut Gen::new(seed))
    }

    /// The case as a graph whose inputs are `x0`, `x1`, …, with their values; all results are outputs.
    ///
    /// # Panics
    /// When the case is not valid: a fault of the generator, which tests must show.
    pub fn graph(&self) -> (Graph, Bindings) {
        let mut graph = Graph::new(self.op.kind().name());
        let mut bindings = Bindings::default();
        let mut ids = Vec::new();
        for (i, value) in self.inputs.iter().enumerate() {
            ids.push(graph.input(format!("x{i}"), value.shape()));
            bindings.set_input(format!("x{i}"), value.clone());
        }
        match (&self.op, &self.source) {
            (Op::Input { name }, Some(value)) => _ = bindings.set_input(name.clone(), value.clone()),
            (Op::Param { name }, Some(value)) => _ = bindings.set_param(name.clone(), value.clone()),
            _ => {}
        }
        let results = graph.infer(&self.op, &ids, &self.declared);
        let results = results.unwrap_or_else(|e| panic!("the generator of {} made {e}", self.op.kind()));
        let count = results.len();
        let node = graph.push_node(crate::graph::Node::new(self.op.clone(), ids, results));
        let outputs: Vec<_> =
            (0..count).map(|i| graph.result(node, i)).collect::<Result<_, _>>().unwrap_or_default();
        graph.set_outputs(outputs);
        (graph, bindings)
    }
}

/// How far a correct implementation may be from the oracle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Relative to the oracle's element.
    pub rtol: f64,
    /// Absolute, times the oracle's largest magnitude (at least 1).
    pub atol: f64,
}

/// The op of an LSTM without options.
pub fn plain_lstm() -> Op {
    Op::Recurrent {
        cell: RecurrentCell::Lstm,
        functions: vec![GateFunction::Sigmoid, GateFunction::Tanh, GateFunction::Tanh],
        clip: None,
        coupled: false,
        reverse: false,
        peepholes: false,
        lengths: false,
    }
}

/// The tolerance for results of this element type; integers and bools are exact.
pub fn tolerance(dtype: DType) -> Tolerance {
    let unit = match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 2e-5,
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        _ if dtype.is_float() => 0.3,
        _ => 0.0,
    };
    Tolerance { rtol: unit, atol: unit }
}

/// The first element that differs by more than `tolerance`, described; NaN equals NaN.
pub fn difference(want: &Value, got: &Value, tolerance: Tolerance) -> Option<String> {
    if want.shape() != got.shape() {
        return Some(format!("shape {} where {} is right", got.shape(), want.shape()));
    }
    let (w, g) = (want.to_f64(), got.to_f64());
    let largest = w.iter().filter(|x| x.is_finite()).fold(1.0f64, |m, x| m.max(x.abs()));
    let exact = want.elements == got.elements;
    w.iter().zip(&g).enumerate().find_map(|(i, (&w, &g))| {
        let same = exact || w == g || (w.is_nan() && g.is_nan());
        let close = (w - g).abs() <= tolerance.atol * largest + tolerance.rtol * w.abs();
        (!same && !close).then(|| format!("element {i} of {}: {g} where {w} is right", want.shape()))
    })
}

/// Panics with `context` when the two differ.
///
/// # Panics
/// When they differ by more than `tolerance`.
pub fn assert_close(want: &Value, got: &Value, tolerance: Tolerance, context: &str) {
    if let Some(difference) = difference(want, got, tolerance) {
        panic!("{difference}\n{context}");
    }
}
