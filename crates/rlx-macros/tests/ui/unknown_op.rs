use rlx_macros::rlx_model;

#[rlx_model]
fn act<Batch>(x: Tensor<f32, Batch, 64>) -> Tensor<f32, Batch, 64> {
    x.rellu()
}

fn main() {}
