//! `rlx bench --profile`: where the time of a run goes, step by step.
//!
//! Each step's time is compared with its work (FLOP and bytes, by `rlx_backend::cost` from the compiled module) and
//! with the measured peak of this machine (the calibration of the cost model). A step is *bound by* the
//! longest of three lower bounds: its arithmetic at the peak rate, its bytes at the bandwidth for that size,
//! and the fixed cost of launching a step.

mod places;
mod roofline;
mod table;
mod trace;

use std::collections::BTreeMap;
use std::time::Duration;

use rlx::diagram::{op_family, op_name};
use rlx_ir::lir::StepKind;
use rlx_ir::sort::sort_by_key;
use rlx_ir::{ConstData, Dim, DimBinding, LirModule};
use rlx_runtime::backend::works;
use rlx_runtime::{Calibration, CompiledGraph, GemmPoint, StepProfile, TensorInfo, Work};
use serde_json::{Value as Json, json};

pub use roofline::roofline;
pub use trace::trace;

/// The peak is measured by matmuls with at least this many multiplications; the cache bandwidth by passes over at least this many bytes.
const MIN_GEMM: f64 = 500e3;
const MIN_PASS: f64 = 256e3;

/// What this machine was measured to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Device, processor, threads, version.
    pub subject: String,
    /// The fastest measured matmul, and its dimensions.
    pub peak_gflops: f64,
    pub peak_dims: [f64; 3],
    /// Passes over the most bytes that were measured, and how many these were.
    pub memory: (f64, f64),
    /// The fastest passes, and over how many bytes.
    pub cache: (f64, f64),
    /// Starting a step.
    pub step_us: f64,
}

impl Machine {
    /// What the calibration says.
    pub fn of(prices: &Calibration) -> Self {
        // What takes next to no time cannot be measured well.
        let large = |p: &&GemmPoint| p.dims.iter().product::<f64>() >= MIN_GEMM;
        let cheapest = |a: &&GemmPoint, b: &&GemmPoint| a.ns_per_flop.total_cmp(&b.ns_per_flop);
        let by_price = prices.products.iter().filter(large).min_by(cheapest);
        let by_price = by_price.or_else(|| prices.products.iter().min_by(cheapest));
        let (peak_dims, ns) = by_price.map_or(([0.0; 3], f64::NAN), |p| (p.dims, p.ns_per_flop));
        // Gigabytes in a second, and the size: the inverse of nanoseconds for each byte.
        let rate = |point: Option<&(f64, f64)>| point.map_or((f64::NAN, 0.0), |&(size, ns)| (1.0 / ns, size));
        let passes = prices.passes.points();
        Machine {
            subject: prices.subject.clone(),
            peak_gflops: 1.0 / ns,
            peak_dims,
            memory: rate(passes.last()),
            cache: rate(passes.iter().filter(|p| p.0 >= MIN_PASS).min_by(|a, b| a.1.total_cmp(&b.1))),
            step_us: prices.step_ns / 1e3,
        }
    }

    /// In words.
    fn describe(&self) -> String {
        let [m, n, k] = self.peak_dims;
        let size = |bytes: f64| super::print::bytes(bytes as usize);
        format!(
            "{:.1} GFLOP/s (f32 matmul {m} × {n} × {k}), {:.1} GB/s from memory ({}), {:.1} GB/s from caches \
             ({}), {:.2} µs a step",
            self.peak_gflops,
            self.memory.0,
            size(self.memory.1),
            self.cache.0,
            size(self.cache.1),
            self.step_us
        )
    }

    fn json(&self) -> Json {
        json!({
            "subject": self.subject, "peak_gflops": self.peak_gflops, "peak_matmul": self.peak_dims,
            "memory_gbs": self.memory.0, "memory_bytes": self.memory.1,
            "cache_gbs": self.cache.0, "cache_bytes": self.cache.1, "step_us": self.step_us,
        })
    }
}

/// What keeps a step from being faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    Compute,
    Memory,
    Launch,
}

impl Bound {
    pub fn name(self) -> &'static str {
        match self {
            Bound::Compute => "compute",
            Bound::Memory => "memory",
            Bound::Launch => "launch",
        }
    }

    fn of(work: &Work, flops: f64, machine: &Machine, prices: &Calibration) -> Self {
        let compute = flops / machine.peak_gflops;
        let passes = work.bytes * prices.passes.at(work.bytes).unwrap_or(0.0);
        let streams = work.held * prices.streams.at(work.resident).unwrap_or(0.0);
        let memory = passes.max(streams);
        match () {
            () if prices.step_ns >= compute.max(memory) => Bound::Launch,
            () if compute >= memory => Bound::Compute,
            () => Bound::Memory,
        }
    }
}

/// A step and its time.
#[derive(Debug, Clone)]
pub struct Row {
    /// What it computes.
    pub title: String,
    /// What kind of work that is.
    pub family: &'static str,
    /// The node, as named in messages.
    pub node: String,
    /// The nodes of the model it comes from, in short, or else [`Row::node`].
    pub name: String,
    /// All of them, the main one first.
    pub origins: Vec<String>,
    /// The shortest run: what other work on the machine did not disturb.
    pub min: Duration,
    /// The mean of all runs.
    pub mean: Duration,
    /// When it began in the last run, and how long it took there.
    pub last: (Duration, Duration),
    /// Arithmetic operations; an elementwise one counts one for each element.
    pub flops: f64,
    pub bytes: f64,
    pub bound: Bound,
}

impl Row {
    fn micros(&self) -> f64 {
        self.min.as_secs_f64() * 1e6
    }

    /// Gigaflops in a second.
    pub fn gflops(&self) -> f64 {
        rate(self.flops, self.min)
    }

    /// Gigabytes in a second.
    pub fn gbs(&self) -> f64 {
        rate(self.bytes, self.min)
    }

    /// All nodes of the model it comes from in one text.
    fn origin(&self) -> Option<String> {
        (!self.origins.is_empty()).then(|| self.origins.join(" + "))
    }

    fn json(&self, profile: &Profile) -> Json {
        json!({
            "op": self.title, "kind": self.family, "node": self.node, "name": self.name,
            "origin": self.origin(), "origins": self.origins,
            "us": self.micros(), "mean_us": self.mean.as_secs_f64() * 1e6, "share": profile.share(self.min),
            "flops": self.flops, "gflops": self.gflops(), "of_peak": self.gflops() / profile.machine.peak_gflops,
            "bytes": self.bytes, "gbs": self.gbs(), "bound_by": self.bound.name(),
        })
    }
}

fn rate(amount: f64, time: Duration) -> f64 {
    let ns = time.as_secs_f64() * 1e9;
    if ns > 0.0 { amount / ns } else { 0.0 }
}

/// Where the time went.
#[derive(Debug, Clone)]
pub struct Profile {
    pub model: String,
    pub machine: Machine,
    pub threads: Option<usize>,
    /// How many runs were timed step by step.
    pub runs: u64,
    /// The median of whole runs, with the steps timed and without.
    pub profiled: Duration,
    pub plain: Duration,
    /// In the order they run.
    pub rows: Vec<Row>,
}

/// What is known of the runs besides their steps.
pub struct Runs {
    pub model: String,
    pub threads: Option<usize>,
    pub profiled: Duration,
    pub plain: Duration,
}

impl Profile {
    /// Of the steps that `compiled` timed, for these inputs.
    pub fn new(
        compiled: &CompiledGraph,
        steps: &[StepProfile],
        inputs: &[(String, ConstData)],
        prices: &Calibration,
        runs: Runs,
    ) -> Self {
        let machine = Machine::of(prices);
        let lir = compiled.lir();
        let bound = (!lir.symbols.is_empty()).then(|| lir.bind(&dims_of(compiled.inputs(), inputs)));
        let lir = bound.as_ref().unwrap_or(lir);
        let rows = steps.iter().zip(works(lir)).enumerate();
        let rows = rows.map(|(at, (step, work))| row(lir, at, step, &work, &machine, prices)).collect();
        Profile {
            model: runs.model,
            threads: runs.threads,
            runs: steps.iter().map(|s| s.runs).max().unwrap_or(0),
            profiled: runs.profiled,
            plain: runs.plain,
            machine,
            rows,
        }
    }

    /// The steps' shortest times together.
    pub fn total(&self) -> Duration {
        self.rows.iter().map(|r| r.min).sum()
    }

    /// The part of all steps' time that this time is.
    pub fn share(&self, time: Duration) -> f64 {
        let total = self.total().as_secs_f64();
        if total > 0.0 { time.as_secs_f64() / total } else { 0.0 }
    }

    /// The rows, the longest first.
    pub fn by_time(&self) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        sort_by_key(&mut rows, |r| std::cmp::Reverse(r.min));
        rows
    }

    /// By kind of work: how many steps, their time, arithmetic and bytes; the longest first.
    pub fn kinds(&self) -> Vec<(&'static str, Kind)> {
        let mut kinds: BTreeMap<&'static str, Kind> = BTreeMap::new();
        for row in &self.rows {
            let kind = kinds.entry(row.family).or_default();
            kind.steps += 1;
            kind.time += row.min;
            kind.flops += row.flops;
            kind.bytes += row.bytes;
        }
        let mut kinds: Vec<_> = kinds.into_iter().collect();
        sort_by_key(&mut kinds, |(_, kind)| std::cmp::Reverse(kind.time));
        kinds
    }

    /// As JSON.
    pub fn json(&self) -> Json {
        let micros = |d: Duration| d.as_secs_f64() * 1e6;
        let kinds: Json = self
            .kinds()
            .into_iter()
            .map(|(name, kind)| {
                json!({
                    "kind": name, "steps": kind.steps, "us": micros(kind.time), "share": self.share(kind.time),
                    "gflops": rate(kind.flops, kind.time), "gbs": rate(kind.bytes, kind.time),
                })
            })
            .collect();
        json!({
            "machine": self.machine.json(), "runs": self.runs, "steps_us": micros(self.total()),
            "profiled_us": micros(self.profiled), "unprofiled_us": micros(self.plain), "kinds": kinds,
            "steps": self.rows.iter().map(|r| r.json(self)).collect::<Json>(),
        })
    }

    /// As text.
    pub fn text(&self) -> String {
        table::table(self)
    }
}

/// The steps of one kind together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kind {
    pub steps: usize,
    pub time: Duration,
    pub flops: f64,
    pub bytes: f64,
}

fn row(
    lir: &LirModule,
    at: usize,
    step: &StepProfile,
    work: &Work,
    machine: &Machine,
    prices: &Calibration,
) -> Row {
    let (title, family) = match &lir.steps[at].kind {
        StepKind::Copy => ("Copy".to_owned(), "Copy"),
        StepKind::Op(op) => (op_name(op), op_family(op)),
    };
    let node = lir.graph.node(lir.steps[at].node);
    let origins = lir.graph.origins().names(node.origin).into_iter().map(str::to_owned).collect();
    let flops = work.flops + work.cheap + work.costly;
    Row {
        title,
        family,
        node: node.describe(),
        name: step.name.clone(),
        origins,
        mean: step.mean(),
        min: if step.runs > 0 { step.least } else { Duration::ZERO },
        last: (step.began, step.last),
        flops,
        bytes: work.bytes,
        bound: Bound::of(work, flops, machine, prices),
    }
}

/// The values of open dimensions, as these inputs have them.
fn dims_of(infos: &[TensorInfo], inputs: &[(String, ConstData)]) -> DimBinding {
    let mut dims = DimBinding::new();
    for info in infos {
        let given = inputs.iter().find(|(name, _)| *name == info.name);
        for (dim, &n) in info.shape.dims().iter().zip(given.map_or(&[][..], |(_, data)| data.dims())) {
            if let Dim::Dynamic(symbol) = *dim {
                dims.set(symbol, n);
            }
        }
    }
    dims
}

#[cfg(test)]
mod tests;
