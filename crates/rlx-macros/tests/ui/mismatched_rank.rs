use rlx_macros::rlx_model;

#[rlx_model]
fn head<Batch, Seq>(x: Tensor<f32, Batch, Seq, 64>) -> Tensor<f32, Batch, 64> {
    let mean: Tensor<f32, Batch, 64> = x.mean([1], true);
    mean
}

fn main() {}
