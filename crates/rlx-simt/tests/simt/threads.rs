//! Several threads on one GPU: its stream, its staging memory and its kernels are shared, and graphs are recorded while others run.

use rlx_ir::testing::random_graph;

use crate::common::{all, compile, disagreement, set_params};

#[test]
fn threads_that_share_a_gpu_do_not_disturb_each_other() {
    for backend in all() {
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let backend = &backend;
                scope.spawn(move || {
                    for seed in [3 * thread + 1, 3 * thread + 2] {
                        let (graph, bindings) = random_graph(seed, 8);
                        let mut exec = compile(&graph, backend).unwrap();
                        set_params(&mut *exec, &bindings).unwrap();
                        for _ in 0..3 {
                            if let Some(what) = disagreement(&graph, &bindings, &mut *exec) {
                                panic!("seed {seed}: {what}\n{graph}");
                            }
                        }
                    }
                });
            }
        });
    }
}
