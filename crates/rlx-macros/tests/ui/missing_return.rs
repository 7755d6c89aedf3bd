use rlx_macros::rlx_model;

#[rlx_model]
fn no_type<Batch>(x: Tensor<f32, Batch, 64>) {
    x.relu()
}

#[rlx_model]
fn semicolon<Batch>(x: Tensor<f32, Batch, 64>) -> Tensor<f32, Batch, 64> {
    x.relu();
}

#[rlx_model]
fn nothing<Batch>(x: Tensor<f32, Batch, 64>) -> Tensor<f32, Batch, 64> {
    let y = x.relu();
}

fn main() {}
