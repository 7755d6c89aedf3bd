//! Writes seeds for the fuzzers whose inputs the project's own code can make: graphs of every op in the text form, and
//! artefacts of small graphs. `cargo run -p rlx-fuzz --example seeds FOLDER`

use std::path::{Path, PathBuf};

use rlx_ir::testing::{Case, random_graph, random_symbolic_graph};
use rlx_ir::{DType, OpKind, Result, Weight, WeightStore};
use rlx_runtime::{CompileOptions, Device, NewArtefact, Session};

fn main() -> Result<()> {
    let root = PathBuf::from(std::env::args().nth(1).expect("usage: seeds FOLDER"));
    texts(&root.join("text")).expect("the folder can be written");
    artefacts(&root.join("artefact"))
}

fn texts(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for &kind in OpKind::ALL.iter().filter(|kind| **kind != OpKind::Custom) {
        for seed in 0..6 {
            let (graph, _) = Case::random(kind, seed).graph();
            let text = graph.to_string();
            // What is named by its hash is not in the file.
            if !text.contains("@blob") && text.len() < 2000 {
                std::fs::write(folder.join(format!("{}-{seed}", kind.name())), text)?;
            }
        }
    }
    Ok(())
}

fn artefacts(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).expect("the folder can be written");
    let session = Session::try_new(Device::Cpu)?;
    for seed in 0..12 {
        let graph = if seed % 2 == 0 { random_graph(seed, 3).0 } else { random_symbolic_graph(seed, 3).0 };
        let mut compiled = session.try_compile_with(graph.clone(), &CompileOptions::default())?;
        let mut weights = WeightStore::new();
        for info in compiled.params() {
            let dims = info.shape.static_dims().unwrap_or_default();
            let bytes = vec![0x3C; info.shape.size_bytes().unwrap_or(0)];
            weights.insert(info.name.clone(), Weight::owned(DType::F32, &dims, bytes)?);
        }
        compiled.try_set_weights(&weights)?;
        let mut new = NewArtefact::new(format!("seed{seed}"), &weights);
        new.source = (seed % 3 == 0).then_some(&graph);
        session.save(folder.join(format!("seed{seed}.rlx")), &mut compiled, new)?;
    }
    Ok(())
}
