//! What the machine itself reaches, measured in the same rounds as the peers: multiply-adds in registers, and reading from memory.
//!
//! Called as `machine THREADS`; writes `{}` and answers `go SECONDS` with the best of that time, over all threads together:
//! `{"f32_gflops", "bf16_gflops", "int8_gops", "read_gb_s"}`, null where the processor has no instruction for it. A multiply-add
//! counts as two operations.

mod kernels;

use std::hint::black_box;
use std::io::BufRead;
use std::process::ExitCode;
use std::sync::Barrier;
use std::time::Instant;

use memmap2::{Advice, MmapMut};
use peers::{Result, answer, end};
use serde_json::json;

use self::kernels::Kernel;

/// What each thread reads: more than caches hold.
const READ_BYTES: usize = 128 << 20;
/// Steps of a kernel between two looks at the clock: some 100 µs.
const STEPS: u64 = 20_000;

fn main() -> ExitCode {
    end(work())
}

fn work() -> Result<()> {
    let threads: usize = std::env::args().nth(1).ok_or("arguments: THREADS")?.parse()?;
    let mut memory = (0..threads).map(|_| block()).collect::<Result<Vec<_>>>()?;
    answer(&json!({}))?;
    for request in std::io::stdin().lock().lines() {
        let request = request?;
        let seconds: f64 = request.strip_prefix("go ").ok_or("only `go SECONDS` is answered")?.parse()?;
        let rate = |kernel: Option<Kernel>| {
            let kernel = kernel?;
            let work = kernel.operations * STEPS as f64;
            Some(fastest(vec![(); threads], seconds / 4.0, work, |()| (kernel.run)(STEPS)) / 1e9)
        };
        let read = fastest(memory.iter_mut().collect(), seconds / 4.0, READ_BYTES as f64, |block| sum(block));
        answer(&json!({
            "f32_gflops": rate(kernels::f32()),
            "bf16_gflops": rate(kernels::bf16()),
            "int8_gops": rate(kernels::int8()),
            "read_gb_s": read / 1e9,
        }))?;
    }
    Ok(())
}

/// Memory that is there, in huge pages where the system gives them.
fn block() -> Result<MmapMut> {
    let mut block = MmapMut::map_anon(READ_BYTES)?;
    if cfg!(target_os = "linux") {
        // Small pages are slower; not to be given huge ones is no error.
        let _ = block.advise(Advice::HugePage);
    }
    block.fill(1);
    Ok(block)
}

/// Many sums, so that no load waits for another.
fn sum(block: &[u8]) -> u64 {
    let mut sums = [0u64; 32];
    let (rows, _) = block.as_chunks::<256>();
    for row in rows {
        let (words, _) = row.as_chunks::<8>();
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum = sum.wrapping_add(u64::from_ne_bytes(*word));
        }
    }
    sums.iter().fold(0, |a, b| a.wrapping_add(*b))
}

/// The most work per second of all threads together, where each does `work` at a time, again and again, on something of its own.
fn fastest<S: Send, T>(own: Vec<S>, seconds: f64, work: f64, one: impl Fn(&mut S) -> T + Sync) -> f64 {
    let (barrier, threads, one) = (&Barrier::new(own.len()), own.len() as f64, &one);
    let turns = move |mut own: S| {
        barrier.wait();
        let (mut taken, begin) = (Vec::new(), Instant::now());
        while taken.len() < 2 || begin.elapsed().as_secs_f64() < seconds {
            let start = Instant::now();
            black_box(one(&mut own));
            taken.push(start.elapsed().as_secs_f64());
        }
        // During the last one another thread may have been done already.
        taken.pop();
        taken.into_iter().fold(f64::INFINITY, f64::min)
    };
    let slowest = std::thread::scope(|scope| {
        let started: Vec<_> = own.into_iter().map(|own| scope.spawn(move || turns(own))).collect();
        started.into_iter().map(|thread| thread.join().expect("no kernel panics")).fold(0.0, f64::max)
    });
    threads * work / slowest
}
