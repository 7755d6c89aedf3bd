use rlx_macros::rlx_model;

#[rlx_model]
fn dimension<Batch>(x: Tensor<f32, Bacth, 64>) -> Tensor<f32, Batch, 64> {
    x.relu()
}

#[rlx_model]
fn constant<const HIDDEN: usize>(x: Tensor<f32, HIDDEN>) -> Tensor<f32, HIDDEN> {
    x.relu()
}

#[rlx_model]
fn variable<Batch>(input: Tensor<f32, Batch, 64>) -> Tensor<f32, Batch, 64> {
    inputs.relu()
}

#[rlx_model]
fn element(x: Tensor<f31, 64>) -> Tensor<f32, 64> {
    x.relu()
}

fn main() {}
