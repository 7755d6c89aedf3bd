//! Limits below the device's own: the right answer, or a typed error.

use rlx_ir::testing::random_graph;
use rlx_ir::{DType, ErrorKind, Graph, Shape, text};
use rlx_wgpu::Lowered;

use crate::common::{all, compile, disagreement, lowered, set_params};

// No kernel uses subgroups, whatever the device has: nothing asks wgpu for them.
const SMALL: Lowered = Lowered {
    max_binding_bytes: Some(16 << 20),
    max_storage_buffers: Some(8),
    max_workgroup: None,
    max_memory_bytes: None,
};

#[test]
fn graphs_run_within_eight_storage_buffers() {
    let Some(backend) = lowered(SMALL) else { return };
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
    let mut exec = compile(&graph, &backend).unwrap();
    let values: Vec<Vec<u8>> =
        (0..12).map(|i| [i as f32; 4].iter().flat_map(|v| v.to_le_bytes()).collect()).collect();
    exec.run(&&values[..], &[]).unwrap();
    assert_eq!(exec.output(0).unwrap()[..4], 66f32.to_le_bytes());
    for seed in 0..if all() { 60 } else { 8 } {
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

#[test]
fn a_value_above_the_binding_limit_is_out_of_memory() {
    let Some(backend) = lowered(SMALL) else { return };
    let graph = |rows: usize| {
        let mut graph = Graph::new("wide");
        let x = graph.input("x", Shape::new(&[rows, 1], DType::F32));
        let y = graph.input("y", Shape::new(&[1, 1024], DType::F32));
        let shape = Shape::new(&[rows, 1024], DType::F32);
        let z = graph.binary(rlx_ir::op::BinaryOp::Add, x, y, shape);
        graph.set_outputs(vec![z]);
        graph
    };
    // 4,096 rows are 16 MiB: the most that fits.
    for (rows, fits) in [(4096, true), (4097, false)] {
        match compile(&graph(rows), &backend) {
            Ok(mut exec) => {
                assert!(fits);
                let inputs = [vec![0u8; rows * 4], vec![0u8; 4096]];
                exec.run(&&inputs[..], &[]).unwrap();
                assert_eq!(exec.output(0).unwrap().len(), rows * 4096);
            }
            Err(e) => {
                assert!(!fits, "{e}");
                assert_eq!(e.kind(), ErrorKind::OutOfMemory, "{e}");
            }
        }
    }
}
