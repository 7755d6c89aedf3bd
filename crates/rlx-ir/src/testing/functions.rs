//! What tests of elementary functions share: the exact values, arguments to try, and the error in units in the last place.

use crate::dtype::DType;
use crate::graph::{Graph, GraphExt};
use crate::ops::Activation;
use crate::oracle::Bindings;
use crate::shape::Shape;
use crate::tensor::Value;

/// `f(x)` by the oracle's reference.
pub fn exact(f: Activation, x: f64) -> f64 {
    (f.reference())(x)
}

/// Arguments of an elementary function: every sign and exponent, dense where functions bend, and the special values. Of
/// about `count` numbers.
///
/// ```
/// let x = rlx_ir::testing::function_arguments(1000);
/// assert!(x.len() >= 1000 && x.contains(&f32::INFINITY) && x.iter().any(|x| x.is_subnormal()));
/// ```
pub fn function_arguments(count: u32) -> Vec<f32> {
    let part = count / 4;
    // A multiple of the golden ratio's bits visits patterns evenly.
    let patterns = (0..part).map(|i| f32::from_bits(i.wrapping_mul(0x9E37_79B1)));
    let over = |limit: f32| {
        (0..part)
            .map(move |i| i.wrapping_mul(0x9E37_79B1) as f32 / 2f32.powi(31) - 1.0)
            .map(move |x| x * limit)
    };
    let integers = (-50..=50).flat_map(|i| {
        let x = i as f32 / 2.0;
        [x, x.next_up(), x.next_down()]
    });
    let tiny = f32::from_bits(1);
    let specials = [0.0, tiny, 1e-40, f32::MIN_POSITIVE, 1e-20, 8_388_609.0, 1e20, f32::MAX, f32::INFINITY];
    let specials = specials.into_iter().flat_map(|x| [x, -x]).chain([f32::NAN]);
    patterns.chain(over(1.0)).chain(over(10.0)).chain(over(200.0)).chain(integers).chain(specials).collect()
}

/// The error of `got` in units in the last place of the exact value, or of `floor` where that is larger. Numbers beyond the
/// largest one count as if f32 went on; zero is no error only for zero or what is rounded to it.
pub fn ulps(got: f32, want: f64, floor: f32) -> f64 {
    let nearest = want as f32;
    if got == nearest || got.is_nan() && want.is_nan() {
        return 0.0;
    }
    if got.is_nan() || want.is_nan() || want.is_infinite() {
        return f64::INFINITY;
    }
    let got = if got.is_infinite() { 2f64.powi(128).copysign(f64::from(got)) } else { f64::from(got) };
    let size = nearest.abs().clamp(f32::MIN_POSITIVE, f32::MAX).max(floor);
    let exponent = i32::try_from(size.to_bits() >> 23).unwrap_or(0) - 127;
    (got - want).abs() / 2f64.powi(exponent - 23)
}

/// The largest error of `y = f(x)`, by [`ulps`], and where it is. Arguments beyond ±`within` are not looked at; `floor` is
/// for results of negative arguments alone.
pub fn worst_ulps(f: Activation, x: &[f32], y: &[f32], floor: f32, within: f32) -> (f64, f32) {
    let mut worst = (0.0, 0.0);
    for (&x, &y) in x.iter().zip(y).filter(|(x, _)| x.abs() <= within || x.is_nan()) {
        let error = ulps(y, exact(f, f64::from(x)), if x < 0.0 { floor } else { 0.0 });
        if error > worst.0 {
            worst = (error, x);
        }
    }
    worst
}

/// A graph of one function, and its argument `x`.
pub fn function_graph(f: Activation, dtype: DType, x: &[f32]) -> (Graph, Bindings) {
    let mut graph = Graph::new(f.to_string());
    let input = graph.input("x", Shape::new(&[x.len()], dtype));
    let y = graph.act(f, input);
    graph.set_outputs(vec![y]);
    let mut bindings = Bindings::default();
    bindings.set_input("x", Value::float(dtype, &[x.len()], x.iter().map(|&x| f64::from(x)).collect()));
    (graph, bindings)
}
