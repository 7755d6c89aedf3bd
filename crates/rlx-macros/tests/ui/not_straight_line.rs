use rlx_macros::rlx_model;

#[rlx_model]
fn branch<Batch>(x: Tensor<f32, Batch, 64>) -> Tensor<f32, Batch, 64> {
    if true { x.relu() } else { x.gelu() }
}

#[rlx_model]
fn function<Batch>(x: Tensor<f32, Batch, 64>) -> Tensor<f32, Batch, 64> {
    relu(x)
}

#[rlx_model]
fn open_parameter<Batch>(x: Tensor<f32, Batch>, w: Param<f32, Batch>) -> Tensor<f32, Batch> {
    x * w
}

fn main() {}
