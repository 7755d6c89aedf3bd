//! What it is worth that attention finds keys and values in pages of a table: decoders of four sequences, one token each, whose caches are
//! lists of pages of sixteen rows.
//!
//! `cargo run --release -p rlx --example bench_pages` prints microseconds of a run by the rows of each sequence, with
//! `FusionOptions::producers` and without, where two gathers are steps that write all keys and values first. Both run by turns; times
//! are minima of 200 runs. `RLX_NUM_THREADS` sets the threads. An argument names another device than the CPU, whose feature the build
//! then has (`--features vulkan … -- vulkan`), a second one says how many runs.

use std::time::Instant;

use rlx::prelude::*;
use rlx_ir::op::{MaskKind, Unseen};

/// Sequences, heads of queries and of keys, elements of a row, rows of a page.
const SEQUENCES: usize = 4;
const HEADS: [usize; 2] = [32, 8];
const SIZE: usize = 64;
const PAGE: usize = 16;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let device = args.next().map_or(Ok(Device::Cpu), |name| name.parse())?;
    let rounds: usize = args.next().map_or(Ok(200), |n| n.parse())?;
    println!("| rows | apart, µs | together, µs | arena KB | arena KB | time |");
    println!("|---|---|---|---|---|---|");
    for rows in [128, 512, 2048, 8192] {
        let mut both = [Decoder::new(device, rows, false)?, Decoder::new(device, rows, true)?];
        let mut least = [f64::MAX; 2];
        for round in 0..rounds {
            for which in [round % 2, 1 - round % 2] {
                least[which] = least[which].min(both[which].micros()?);
            }
        }
        let [apart, together] = least;
        let [arena, smaller] = both.map(|decoder| decoder.compiled.memory().arena_bytes as f64 / 1e3);
        println!(
            "| {rows} | {apart:.1} | {together:.1} | {arena:.1} | {smaller:.1} | {:.2} |",
            together / apart
        );
    }
    Ok(())
}

struct Decoder {
    compiled: CompiledGraph,
    queries: Vec<f32>,
    pages: Vec<f32>,
}

impl Decoder {
    /// Attention over `rows` rows of each sequence, in a table that has as many pages as that takes.
    fn new(device: Device, rows: usize, producers: bool) -> Result<Decoder, Box<dyn std::error::Error>> {
        let (pages, [heads, key_heads]) = (rows / PAGE, HEADS);
        let table = [SEQUENCES * pages, PAGE, key_heads, SIZE];
        let mut g = Graph::new("pages");
        let queries = [SEQUENCES, heads, 1, SIZE];
        let q = g.input("queries", Shape::new(&queries, DType::F32));
        let list = g.input("pages", Shape::new(&[SEQUENCES, pages], DType::I32));
        let gathered = ["keys", "values"].map(|name| -> Result<NodeId, rlx_ir::Error> {
            let table = g.param(name, Shape::new(&table, DType::F32));
            let picked = g.try_add(Op::Gather { axis: 0 }, &[table, list])?;
            let to = [SEQUENCES, rows, key_heads, SIZE].map(Dim::Static).to_vec();
            let picked = g.try_add(Op::Reshape { to }, &[picked])?;
            g.try_add(Op::Transpose { perm: vec![0, 2, 1, 3] }, &[picked])
        });
        let [keys, values] = gathered;
        let op = Op::Attention {
            num_heads: heads,
            head_dim: SIZE,
            mask: MaskKind::None,
            window: None,
            scale: None,
            unseen: Unseen::Zero,
        };
        let y = g.try_add(op, &[q, keys?, values?])?;
        g.set_outputs(vec![y]);
        let fusion = FusionOptions { producers, ..FusionOptions::default() };
        let options = CompileOptions::try_new()?.fusion_opts(fusion);
        let mut compiled = Session::try_new(device)?.try_compile_with(g, &options)?;
        let numbers = |count: usize| (0..count).map(|i| (i % 251) as f32 / 251.0 - 0.5).collect::<Vec<f32>>();
        for name in ["keys", "values"] {
            compiled.set_param(name, &numbers(table.iter().product()));
        }
        // The pages of a sequence lie anywhere in the table.
        let pages = (0..SEQUENCES * pages).map(|i| (i * 37 % (SEQUENCES * pages)) as f32).collect();
        Ok(Decoder { compiled, queries: numbers(queries.iter().product()), pages })
    }

    /// The time of one run.
    fn micros(&mut self) -> Result<f64, rlx_ir::Error> {
        let start = Instant::now();
        self.compiled.try_commit_no_wait(&[("queries", &self.queries), ("pages", &self.pages)])?;
        self.compiled.sync_pending();
        Ok(start.elapsed().as_secs_f64() * 1e6)
    }
}
