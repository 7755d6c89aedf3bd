//! Four processes write one cache and are killed at random points: every entry read afterwards is correct, or is
//! compiled again.
//!
//! The writers are this test binary itself; `RLX_AOT_WRITER` passes the cache folder.

mod common;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::Folder;
use rlx_ir::testing::Gen;
use rlx_ir::{ConstData, DType, Graph, GraphExt, Shape, Weight, WeightStore};
use rlx_runtime::{AotCache, CompileOptions, CompiledGraph, Device, NewArtefact, Session};

const WRITER: &str = "RLX_AOT_WRITER";

/// How many graphs the writers share.
const GRAPHS: usize = 6;

/// Graph `i`: a table large enough that writing it takes a while, and a matmul.
fn graph(i: usize) -> Graph {
    let mut g = Graph::new(format!("graph{i}"));
    let x = g.input("x", Shape::new(&[4], DType::F32));
    let w = g.param("w", Shape::new(&[4, 64], DType::F32));
    let values: Vec<f32> = (0..64 * 4096).map(|k| (k * (i + 1)) as f32).collect();
    let table = g.constant(ConstData::from_f32(&[4096, 64], &values).unwrap());
    let row = g.narrow_(table, 0, i, 1);
    let y = g.mm(x, w);
    let y = g.add(y, row);
    g.set_outputs(vec![y]);
    g
}

fn weights() -> WeightStore {
    let mut weights = WeightStore::new();
    let bytes: Vec<u8> = (0..256).flat_map(|i| (i as f32 / 8.0).to_le_bytes()).collect();
    weights.insert("w", Weight::owned(DType::F32, &[4, 64], bytes).unwrap());
    weights
}

fn answer(compiled: &mut CompiledGraph) -> Vec<Vec<f32>> {
    compiled.try_run(&[("x", &[1.0, -2.0, 3.0, 0.5])]).unwrap()
}

/// Writes entries until it is killed.
fn write_forever(root: &Path) -> ! {
    let (cache, options) = (AotCache::new(root), CompileOptions::default());
    let session = Session::try_new(Device::Cpu).unwrap();
    let mut g = Gen::new(u64::from(std::process::id()));
    loop {
        let i = g.size(0..=GRAPHS - 1);
        let graph = graph(i);
        let mut compiled = session.try_compile(graph.clone()).unwrap();
        cache.put_lir(&format!("put{i}"), compiled.lir()).unwrap();
        assert!(compiled.try_set_weights(&weights()).unwrap().is_empty());
        let (name, weights) = (format!("model{i}"), weights());
        let new = NewArtefact::new(name.clone(), &weights);
        cache.put_artefact(&name, &["file"], &session, &mut compiled, new).unwrap();
        cache.compile_graph_cached("graph", Device::Cpu, graph, &options).unwrap();
    }
}

fn writer(root: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writers_may_be_killed_at_any_point", "--nocapture"])
        .env(WRITER, root)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Reads every entry by every call; returns how many the cache had.
fn check(cache: &AotCache, session: &Session, right: &[Vec<Vec<f32>>]) -> usize {
    let mut served = 0;
    for (i, right) in right.iter().enumerate() {
        if let Ok(lir) = cache.get_lir(&format!("put{i}")) {
            assert_eq!(lir, *session.try_compile(graph(i)).unwrap().lir());
            served += 1;
        }
        let options = CompileOptions::default();
        if let Some(artefact) = cache.get_artefact(&format!("model{i}"), &["file"], session, &options) {
            artefact.verify().unwrap();
            assert_eq!(answer(&mut session.load(&artefact).unwrap()), *right);
            served += 1;
        }
        let mut compiled = cache.compile_graph_cached("graph", Device::Cpu, graph(i), &options).unwrap();
        served += usize::from(compiled.passes().is_empty());
        assert!(compiled.try_set_weights(&weights()).unwrap().is_empty());
        assert_eq!(answer(&mut compiled), *right);
    }
    for entry in cache.entries().unwrap() {
        assert!(entry.fault.is_none(), "{entry:?}");
        cache.verify_entry(&entry).unwrap();
    }
    served
}

#[test]
fn writers_may_be_killed_at_any_point() {
    if let Some(root) = std::env::var_os(WRITER) {
        write_forever(Path::new(&root));
    }
    let rounds = if std::env::var("RLX_TEST_ALL").is_ok_and(|v| v == "1") { 200 } else { 20 };
    let session = Session::try_new(Device::Cpu).unwrap();
    let answers = |i| {
        let mut compiled = session.try_compile(graph(i)).unwrap();
        assert!(compiled.try_set_weights(&weights()).unwrap().is_empty());
        answer(&mut compiled)
    };
    let right: Vec<_> = (0..GRAPHS).map(answers).collect();
    let mut g = Gen::new(17);
    let (mut served, mut unfinished) = (0, 0);
    for round in 0..rounds {
        // Some rounds start with an empty cache, the others with what the last one left.
        let folder = Folder::new(&format!("killed-{}", round / 4));
        let cache = AotCache::new(folder.path());
        let mut writers: Vec<Child> = (0..4).map(|_| writer(folder.path())).collect();
        for child in &mut writers {
            std::thread::sleep(Duration::from_millis(g.size(5..=80) as u64));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let parts = |e: &std::fs::DirEntry| e.file_name().to_string_lossy().ends_with(".part");
        unfinished += std::fs::read_dir(folder.path()).unwrap().flatten().filter(parts).count();
        served += check(&cache, &session, &right);
        // Anyone who writes next removes what they left.
        cache.put_lir("last", session.try_compile(graph(0)).unwrap().lir()).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().flatten().filter(parts).count(), 0);
        if round % 4 != 3 {
            std::mem::forget(folder);
        }
    }
    println!("{rounds} rounds: {served} reads served by the cache, {unfinished} files left unfinished");
    assert!(served > rounds, "the writers wrote too little to test anything");
}
