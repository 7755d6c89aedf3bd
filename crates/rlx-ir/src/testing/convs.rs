//! Random convolutions with what stands behind them in models.

use super::Gen;
use super::matmuls::{Lines, dims};
use crate::dtype::DType;
use crate::graph::Graph;
use crate::ops::DataFormat;
use crate::text;

/// How a window slides along one dimension.
struct Slide {
    size: usize,
    taps: usize,
    stride: usize,
    dilation: usize,
    pads: [usize; 2],
}

impl Slide {
    fn random(g: &mut Gen, most: usize) -> Slide {
        let taps = if g.chance(0.4) { 1 } else { g.size(1..=most) };
        let (stride, dilation) = (if g.chance(0.6) { 1 } else { g.size(1..=3) }, g.size(1..=2));
        let pads = if g.chance(0.4) { [0; 2] } else { [g.size(0..=2), g.size(0..=2)] };
        let reach = (taps - 1) * dilation + 1;
        let least = reach.saturating_sub(pads[0] + pads[1]).max(1);
        Slide { size: least + g.size(0..=2 * most), taps, stride, dilation, pads }
    }

    fn places(&self) -> usize {
        (self.size + self.pads[0] + self.pads[1] - (self.taps - 1) * self.dilation - 1) / self.stride + 1
    }
}

/// A random convolution of `dtype` over one to three dimensions, with its channels first or last, with some of: groups, a bias, an activation, a factor for each
/// image and channel, a residual, a cast.
///
/// # Panics
/// Never: the text is of this function.
#[allow(clippy::expect_used, reason = "a text that does not parse is a mistake here")]
pub fn random_conv(g: &mut Gen, dtype: DType) -> Graph {
    let spatial = g.pick(&[1, 2, 2, 2, 3]);
    let most = [5, 3, 2][spatial - 1];
    let axes: Vec<Slide> = (0..spatial).map(|_| Slide::random(g, most)).collect();
    let groups = g.pick(&[1, 1, 1, 2, 3]);
    let count = |g: &mut Gen| {
        let least = if groups > 1 { 8 } else { 1 };
        if g.chance(0.7) { 8 * g.size(1..=3) } else { g.size(least..=20) }
    };
    let (images, channels, filters, format) = (g.size(1..=2), count(g), count(g), g.variant::<DataFormat>());
    let list = |of: &dyn Fn(&Slide) -> usize| axes.iter().map(of).collect::<Vec<_>>();
    let pads: Vec<usize> = [0, 1].into_iter().flat_map(|end| axes.iter().map(move |a| a.pads[end])).collect();
    let mut lines = Lines::default();
    let x = lines.input(&format.arrange(images, groups * channels, &list(&|a| a.size)), dtype);
    let w = lines.param(&[&[groups * filters, channels][..], &list(&|a| a.taps)].concat(), dtype);
    let shape = format.arrange(images, groups * filters, &list(&|a| a.places()));
    let attributes = format!(
        "{{strides={}, pads={}, dilations={}, groups={groups}, format={format}}}",
        dims(&list(&|a| a.stride)),
        dims(&pads),
        dims(&list(&|a| a.dilation)),
    );
    let bias = g.chance(0.5).then(|| lines.param(&[groups * filters], dtype));
    let bias = bias.map_or_else(String::new, |bias| format!(", %{bias}"));
    let mut at = lines.push(&format!("Conv(%{x}, %{w}{bias}) {attributes}"), &shape, dtype);
    if g.chance(0.5) {
        let f = g.pick(&["Relu", "Tanh", "Sigmoid"]);
        at = lines.push(&format!("Activation.{f}(%{at})"), &shape, dtype);
    }
    if g.chance(0.3) {
        let factor = lines.input(&format.arrange(images, groups * filters, &vec![1; spatial]), dtype);
        at = lines.push(&format!("Binary.Mul(%{at}, %{factor})"), &shape, dtype);
    }
    if g.chance(0.5) {
        let residual = lines.input(&shape, dtype);
        at = lines.push(&format!("Binary.Add(%{residual}, %{at})"), &shape, dtype);
    }
    if g.chance(0.3) {
        at = lines.push(&format!("Cast(%{at}) {{to=f32}}"), &shape, DType::F32);
    }
    let text = format!("graph \"random\" {{\n{}  return %{at}\n}}", lines.text);
    text::parse(&text).expect("a graph of one convolution")
}
