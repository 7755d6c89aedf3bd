use rlx_macros::rlx_model;

#[rlx_model]
fn mlp<Batch>(x: Tensor<f32, Batch, 64>, w: Param<f32, 64, 128>) -> Tensor<f32, Batch, 10> {
    x.matmul(w)
}

fn main() {}
