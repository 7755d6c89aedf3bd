//! A model as a function: shapes checked while this compiles, inputs and outputs typed.
//!
//! `cargo run -p rlx-runtime --example typed_model`

use rlx_runtime::{Device, rlx_model};

/// Scores of three classes for each row: a hidden layer, then a softmax.
#[rlx_model]
fn classifier<Batch, const HIDDEN: usize = 16>(
    x: Tensor<f32, Batch, 4>,
    w1: Param<f32, 4, HIDDEN>,
    b1: Param<f32, HIDDEN>,
    w2: Param<f32, HIDDEN, 3>,
) -> Tensor<f32, Batch, 3> {
    let hidden = (x.matmul(w1) + b1).gelu();
    hidden.matmul(w2).softmax(-1)
}

fn main() {
    // The graph is an ordinary one.
    println!("{}", Classifier::graph());

    let mut model = Classifier::new(Device::Cpu);
    model.set_w1(&std::array::from_fn(|i| std::array::from_fn(|j| ((i * 16 + j) as f32).sin())));
    model.set_b1(&[0.1; Classifier::HIDDEN]);
    model.set_w2(&std::array::from_fn(|i| std::array::from_fn(|j| ((i * 3 + j) as f32).cos())));

    // `x` is a `&[[f32; 4]]`: any number of rows of exactly four.
    let batch = [[5.1, 3.5, 1.4, 0.2], [6.2, 2.9, 4.3, 1.3]];
    let ClassifierOutputs { output } = model.run(ClassifierInputs { x: &batch });
    for (row, scores) in batch.iter().zip(&output) {
        println!("{row:?} -> {scores:.3?}");
        assert!((scores.iter().sum::<f32>() - 1.0).abs() < 1e-5);
    }
}
