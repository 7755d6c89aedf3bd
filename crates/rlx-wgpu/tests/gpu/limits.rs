//! Limits below the device's own: the right answer, or a typed error.

use rlx_backend::Backend;
use rlx_backend::tuning::Tuning;
use rlx_ir::op::BinaryOp;
use rlx_ir::testing::{random_bindings, random_graph};
use rlx_ir::{DType, DimBinding, ErrorKind, Graph, Op, Shape, text};
use rlx_wgpu::{Lowered, WgpuBackend};

use crate::common::{DEVICES, all, check, compile, device, disagreement, set_params};
use crate::{models, variants};

/// What every device that runs WebGPU has; there are no subgroups among it and no elements of 16 bits, whatever the device has.
const SMALL: Lowered = Lowered {
    max_binding_bytes: Some(16 << 20),
    max_storage_buffers: Some(8),
    max_workgroup: None,
    max_shared_bytes: Some(16 << 10),
    no_subgroups: true,
    only_words: true,
    max_memory_bytes: None,
};

/// The devices under lower limits.
fn lowered(limits: Lowered) -> impl Iterator<Item = WgpuBackend> {
    DEVICES.into_iter().filter_map(device).map(move |backend| backend.with_limits(limits))
}

#[test]
fn graphs_run_within_eight_storage_buffers() {
    let inputs: String = (0..12).map(|i| format!("  %{i} = Input {{name=\"x{i}\"}} : [4] f32\n")).collect();
    let sums: String = (0..11)
        .map(|i| {
            format!(
                "  %{} = Binary.Add(%{}, %{}) : [4] f32\n",
                12 + i,
                if i == 0 { 0 } else { 11 + i },
                i + 1
            )
        })
        .collect();
    let graph = text::parse(&format!("graph \"sum\" {{\n{inputs}{sums}  return %22\n}}")).unwrap();
    let values: Vec<Vec<u8>> =
        (0..12).map(|i| [i as f32; 4].iter().flat_map(|v| v.to_le_bytes()).collect()).collect();
    for backend in lowered(SMALL) {
        let mut exec = compile(&graph, &backend).unwrap();
        exec.run(&&values[..], &[]).unwrap();
        assert_eq!(exec.output(0).unwrap()[..4], 66f32.to_le_bytes());
        for seed in 0..if all() { 60 } else { 6 } {
            let (graph, bindings) = random_graph(seed, 12);
            match compile(&graph, &backend) {
                Ok(mut exec) => {
                    set_params(&mut *exec, &bindings).unwrap();
                    let wrong = disagreement(&graph, &bindings, &mut *exec);
                    assert_eq!(wrong, None, "seed {seed}\n{graph}");
                }
                Err(e) => assert_eq!(e.kind(), ErrorKind::Unsupported, "seed {seed}: {e}"),
            }
        }
    }
}

#[test]
fn small_models_run_within_small_limits() {
    for backend in lowered(SMALL) {
        ["digits", "mlp"].into_iter().for_each(|name| models::first_golden(&backend, name));
    }
}

/// A matmul, a softmax and a sum in a type of 16 bits, and bytes beside them.
fn short(dtype: DType) -> Graph {
    let text = format!(
        "graph \"short\" {{ %0 = Input {{name=\"x\"}} : [9, 70] {dtype} %1 = Input {{name=\"w\"}} : [70, 33] {dtype} \
         %2 = MatMul(%0, %1) : [9, 33] {dtype} %3 = Softmax(%2) {{axis=-1}} : [9, 33] {dtype} \
         %4 = Binary.Add(%2, %3) : [9, 33] {dtype} %5 = Cast(%4) {{to=i16}} : [9, 33] i16 %6 = Cast(%4) {{to=i8}} : [9, 33] i8 \
         return %4, %5, %6 }}"
    );
    text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Elements that are parts of words have the bits that they have as elements: in a kernel of 16 bits the device, opened without them, would not have them.
#[test]
fn elements_in_words_have_the_same_bits() {
    let words = Lowered { only_words: true, ..Lowered::default() };
    for dtype in [DType::F16, DType::BF16] {
        let graph = short(dtype);
        let values = random_bindings(&graph, &DimBinding::new(), 3);
        for backend in DEVICES.into_iter().filter_map(device) {
            let run = |backend: &WgpuBackend| {
                check(&graph, &values, backend).unwrap();
                let lir = variants::module(&graph, backend);
                variants::outputs(backend, &lir, &values, Tuning::default())
            };
            assert!(run(&backend) == run(&backend.clone().with_limits(words)), "{} {dtype}", backend.name());
        }
    }
}

/// `x[i] + y[j]`, of 1,024 columns.
fn outer(rows: usize) -> Graph {
    let mut graph = Graph::new("wide");
    let x = graph.input("x", Shape::new(&[rows, 1], DType::F32));
    let y = graph.input("y", Shape::new(&[1, 1024], DType::F32));
    let z = graph.binary(BinaryOp::Add, x, y, Shape::new(&[rows, 1024], DType::F32));
    graph.set_outputs(vec![z]);
    graph
}

fn counted(n: usize, by: f32) -> Vec<u8> {
    (0..n).flat_map(|i| (i as f32 * by).to_le_bytes()).collect()
}

#[test]
fn a_value_above_the_binding_limit_is_out_of_memory() {
    // 4,096 rows are 16 MiB. The larger limit is what WebGPU promises; it takes a second on each device.
    for (mebibytes, everywhere) in [(16, true), (128, false)] {
        let limits = Lowered { max_binding_bytes: Some(mebibytes << 20), ..SMALL };
        let most = (mebibytes as usize) << 8;
        for backend in lowered(limits).take(if everywhere || all() { 2 } else { 1 }) {
            let error = compile(&outer(most + 1), &backend).err().expect("a row too many");
            assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
            let mut exec = compile(&outer(most), &backend).unwrap();
            exec.run(&&[counted(most, 1024.0), counted(1024, 1.0)][..], &[]).unwrap();
            let (values, rest) = exec.output(0).unwrap().as_chunks::<4>();
            assert_eq!((values.len(), rest.len()), (most * 1024, 0));
            // Those beyond 2^24 are rounded.
            let right = |i: usize| (i / 1024 * 1024) as f32 + (i % 1024) as f32;
            let wrong = (0..values.len()).find(|&i| f32::from_le_bytes(values[i]) != right(i));
            assert_eq!(wrong, None, "{mebibytes} MiB");
        }
    }
}

#[test]
fn values_that_fit_the_binding_limit_one_by_one_run_in_more_memory_than_it() {
    // Five values of 12 MiB where a kernel is bound to at most 16 MiB.
    let rows = 3072;
    let mut graph = outer(rows);
    let mut outputs = graph.outputs.clone();
    for at in 0..4 {
        let value = outputs[at];
        outputs.push(graph.binary(BinaryOp::Add, value, value, Shape::new(&[rows, 1024], DType::F32)));
    }
    graph.set_outputs(outputs);
    for backend in lowered(SMALL) {
        let mut exec = compile(&graph, &backend).unwrap();
        exec.run(&&[counted(rows, 1024.0), counted(1024, 1.0)][..], &[]).unwrap();
        for output in 0..5 {
            let (values, _) = exec.output(output).unwrap().as_chunks::<4>();
            let wrong = (0..rows * 1024).find(|&i| f32::from_le_bytes(values[i]) != (i << output) as f32);
            assert_eq!(wrong, None, "output {output}");
        }
    }
}

#[test]
fn matmuls_keep_to_the_workgroup_memory_in_every_variant() {
    let shapes: [(&[usize], &[usize]); 3] =
        [(&[70, 45], &[45, 100]), (&[5, 33], &[33, 72]), (&[1, 64], &[64, 50])];
    let mut variants = [0; 2];
    for (limit, count) in [16 << 10, 1 << 10].into_iter().zip(&mut variants) {
        for backend in lowered(Lowered { max_shared_bytes: Some(limit), ..SMALL }) {
            for (x, w) in shapes {
                let (graph, values) = variants::step(Op::MatMul, x, w);
                check(&graph, &values, &backend).unwrap();
                let lir = variants::module(&graph, &backend);
                let Some(key) = variants::keys(&backend, &lir).pop() else { continue };
                let first = variants::outputs(&backend, &lir, &values, Tuning::default());
                for variant in 1..key.variants.len() {
                    let mut tuning = Tuning::default();
                    tuning.choose(&key, variant);
                    let other = variants::outputs(&backend, &lir, &values, tuning);
                    assert!(other == first, "{limit}: {} of {key:?}", key.variants[variant]);
                }
                *count += key.variants.len();
            }
        }
    }
    println!("variants within 16 and 1 KiB of workgroup memory: {variants:?}");
    assert!(variants[0] == 0 || variants[1] < variants[0], "1 KiB leaves fewer of them: {variants:?}");
}
