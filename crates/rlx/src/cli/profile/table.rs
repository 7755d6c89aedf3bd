//! The profile as a table.

use std::fmt::Write;
use std::time::Duration;

use rlx::svg::shortened;

use super::{Profile, Row, rate};
use crate::cli::print::{self, counted};

/// Steps that are listed; `--json` has all.
const MOST_ROWS: usize = 24;
/// Characters of the names of a step's nodes; `--json` has all.
const MAX_NAME: usize = 80;

/// The whole report.
pub(super) fn table(profile: &Profile) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut out, profile);
    out
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn write(out: &mut String, profile: &Profile) -> std::fmt::Result {
    let (steps, runs) =
        (counted(profile.rows.len(), "step", "steps"), counted(profile.runs as usize, "run", "runs"));
    let more = 100.0 * (micros(profile.profiled) / micros(profile.plain) - 1.0);
    writeln!(
        out,
        "\nprofile: {steps}, the minimum of {runs} for each; {:.1} µs in total, {:.1} µs a run while profiling \
         ({more:+.1} %)",
        micros(profile.total()),
        micros(profile.profiled)
    )?;
    let threads =
        profile.threads.map_or_else(String::new, |n| format!(" by {}", counted(n, "thread", "threads")));
    writeln!(out, "measured on this machine{threads}: {}\n", profile.machine.describe())?;
    writeln!(
        out,
        "{:>10} {:>7} {:>9} {:>8} {:>11} {:>8}  {:<8} {:<34} from",
        "µs", "share", "GFLOP/s", "of peak", "bytes", "GB/s", "bound by", "step"
    )?;
    let rows = profile.by_time();
    rows.iter().take(MOST_ROWS).try_for_each(|row| write_row(out, profile, row))?;
    if let Some(rest) = rows.get(MOST_ROWS..).filter(|rest| !rest.is_empty()) {
        let time: Duration = rest.iter().map(|r| r.min).sum();
        let share = 100.0 * profile.share(time);
        writeln!(
            out,
            "{:>10.2} {share:>5.1} %  in {} (all with --json)",
            micros(time),
            counted(rest.len(), "more step", "more steps")
        )?;
    }
    writeln!(out, "\n{:>10} {:>7} {:>9} {:>8} {:>6}  kind", "µs", "share", "GFLOP/s", "GB/s", "steps")?;
    for (name, kind) in profile.kinds() {
        let (gflops, gbs) = (rate(kind.flops, kind.time), rate(kind.bytes, kind.time));
        writeln!(
            out,
            "{:>10.2} {:>5.1} % {gflops:>9.2} {gbs:>8.2} {:>6}  {name}",
            micros(kind.time),
            100.0 * profile.share(kind.time),
            kind.steps
        )?;
    }
    Ok(())
}

fn write_row(out: &mut String, profile: &Profile, row: &Row) -> std::fmt::Result {
    let of_peak = 100.0 * row.gflops() / profile.machine.peak_gflops;
    let title = shortened(&row.title, 34);
    writeln!(
        out,
        "{:>10.2} {:>5.1} % {:>9.2} {of_peak:>6.1} % {:>11} {:>8.2}  {:<8} {title:<34} {}",
        row.micros(),
        100.0 * profile.share(row.min),
        row.gflops(),
        print::bytes(row.bytes as usize),
        row.gbs(),
        row.bound.name(),
        shortened(&row.name, MAX_NAME)
    )
}
