use rlx_macros::rlx_model;

#[rlx_model]
fn count<Batch>(x: Tensor<f32, Batch, 64>) -> Tensor<f32, Batch, 64> {
    x.softmax()
}

#[rlx_model]
fn kind<Batch>(x: Tensor<f32, Batch, 64>) -> Tensor<f32, Batch, 64> {
    x.matmul(2.0)
}

#[rlx_model]
fn number<Batch>(x: Tensor<i64, Batch>) -> Tensor<i64, Batch> {
    x * 0.5
}

#[rlx_model]
fn dtypes<Batch>(x: Tensor<f32, Batch>, y: Tensor<i32, Batch>) -> Tensor<f32, Batch> {
    x + y
}

fn main() {}
