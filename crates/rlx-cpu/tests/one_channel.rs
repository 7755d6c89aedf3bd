//! Convolutions of images with one channel, in bf16: neighbours become channels where pairs of them are multiplied.

mod common;

use common::{check, compile, with_weights};
use rlx_cpu::CpuBackend;
use rlx_cpu::isa::Isa;
use rlx_ir::op::DataFormat;
use rlx_ir::testing::Case;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, DimBinding, Op};
use rlx_opt::CompileOptions;

fn case(g: &mut Gen, spatial: usize) -> Case {
    let mut several = |most: usize| -> Vec<usize> { (0..spatial).map(|_| g.size(1..=most)).collect() };
    let (kernel, mut strides, size) = (several(9), several(4), several(40));
    strides[spatial - 1] = strides[spatial - 1].max(2);
    let pads: Vec<usize> = (0..2 * spatial).map(|i| g.size(0..=kernel[i % spatial] - 1)).collect();
    let image: Vec<usize> = size.iter().zip(&kernel).map(|(size, kernel)| size + kernel).collect();
    let filters = g.size(1..=40);
    let (batch, mut value) = (g.size(1..=2), |dims: &[usize]| g.value(DType::BF16, dims, -1.0..1.0));
    let x = value(&[&[batch, 1], &image[..]].concat());
    let weights = value(&[&[filters, 1], &kernel[..]].concat());
    let op =
        Op::Conv { strides, pads, dilations: vec![1; spatial], groups: 1, format: DataFormat::ChannelsFirst };
    Case::new(op, vec![x, weights])
}

#[test]
fn random_convolutions_agree_with_the_oracle() {
    let g = &mut Gen::new(31);
    for i in 0..60 {
        let (graph, bindings) = with_weights(&case(g, 1 + i % 2));
        check(&graph, &bindings, &DimBinding::new());
    }
}

#[test]
fn neighbours_become_channels_where_pairs_are_multiplied() {
    let isa = Isa::detect().with_bf16_products();
    if !isa.multiplies_bf16() {
        println!("@skip 1 bf16: this processor has no bf16 products");
        return;
    }
    let backend = CpuBackend::new().with_isa(isa).with_threads(1).unwrap();
    let g = &mut Gen::new(32);
    let op = Op::Conv {
        strides: vec![4],
        pads: vec![0; 2],
        dilations: vec![1],
        groups: 1,
        format: DataFormat::ChannelsFirst,
    };
    let inputs =
        vec![g.value(DType::BF16, &[1, 1, 800], -1.0..1.0), g.value(DType::BF16, &[16, 1, 80], -1.0..1.0)];
    let (graph, _) = with_weights(&Case::new(op, inputs));
    let exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
    assert!(exec.lir().to_string().contains("[1, 200, 4] bf16"), "{}", exec.lir());
}
