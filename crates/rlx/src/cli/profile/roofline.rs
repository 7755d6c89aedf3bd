//! The roofline: each step's arithmetic in a second over its arithmetic for each byte, below what the machine can do.

use std::fmt::Write;

use rlx::svg::{document, escape, short, shortened, small_width, text};

use super::{Bound, Machine, Profile, Row};
use crate::cli::print;

const STYLE: &str = "\
.grid{stroke:#d8dee4;stroke-width:1}.axis{stroke:#57606a;stroke-width:1.2;fill:none}\
.roof{fill:none;stroke:#cf222e;stroke-width:1.8}.roof2{fill:none;stroke:#cf222e;stroke-width:1.2;stroke-dasharray:5 3}\
.r{fill:#cf222e}.dot{fill-opacity:.55;stroke-width:1.2}\
.compute{fill:#8250df;stroke:#8250df}.memory{fill:#0969da;stroke:#0969da}.launch{fill:#9a6700;stroke:#9a6700}\
.lead{stroke:#8c959f;stroke-width:.8}\
@dark\
.grid{stroke:#21262d}.axis{stroke:#8b949e}.roof,.roof2{stroke:#f85149}.r{fill:#f85149}\
.compute{fill:#a371f7;stroke:#a371f7}.memory{fill:#4493f8;stroke:#4493f8}.launch{fill:#d29922;stroke:#d29922}";

/// The plot's corner and size.
const LEFT: f64 = 70.0;
const TOP: f64 = 78.0;
const WIDTH: f64 = 740.0;
const HEIGHT: f64 = 420.0;
/// Steps that are named: those that take the longest.
const LABELS: usize = 7;

/// A logarithmic axis over whole decades.
#[derive(Debug, Clone, Copy)]
struct Axis {
    first: i32,
    last: i32,
    from: f64,
    to: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (mut least, mut most) = (f64::INFINITY, 0.0f64);
        for v in values.filter(|v| v.is_finite() && *v > 0.0) {
            (least, most) = (least.min(v), most.max(v));
        }
        if most == 0.0 {
            (least, most) = (1.0, 10.0);
        }
        let first = least.log10().floor() as i32;
        let last = (most.log10().ceil() as i32).max(first + 1);
        Axis { first, last, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let part = (value.log10() - f64::from(self.first)) / f64::from(self.last - self.first);
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    fn decades(&self) -> impl Iterator<Item = (i32, f64)> + use<> {
        let axis = *self;
        (axis.first..=axis.last).map(move |d| (d, axis.at(10f64.powi(d))))
    }
}

/// `0.1`, `1`, `1 k`.
fn power(decade: i32) -> String {
    match decade {
        ..0 => format!("{:.*}", decade.unsigned_abs() as usize, 10f64.powi(decade)),
        0..3 => format!("{}", 10f64.powi(decade)),
        _ => format!("{} k", 10f64.powi(decade - 3)),
    }
}

/// The picture.
pub fn roofline(profile: &Profile) -> String {
    let machine = &profile.machine;
    let shown: Vec<&Row> = profile
        .by_time()
        .into_iter()
        .filter(|r| r.flops > 0.0 && r.bytes > 0.0 && r.gflops() > 0.0)
        .collect();
    let ridge = machine.peak_gflops / machine.memory.0;
    let intensity = |r: &Row| r.flops / r.bytes;
    let x = Axis::over(shown.iter().map(|r| intensity(r)).chain([ridge * 3.0, 0.1]), LEFT, LEFT + WIDTH);
    let rates = shown.iter().map(|r| r.gflops()).chain([machine.peak_gflops, machine.peak_gflops / 50.0]);
    let y = Axis::over(rates, TOP + HEIGHT, TOP);
    let mut body = format!("<title>{}</title>\n", escape(&format!("Roofline of {}", profile.model)));
    body += &text(LEFT, 26.0, "t", &format!("{}: where the time of a run goes", profile.model));
    let total = profile.total().as_secs_f64() * 1e6;
    let threads = profile.threads.map_or_else(String::new, |n| format!(", {n} threads"));
    let caption = format!("{} steps, {total:.0} µs{threads}; a dot's area is its time", profile.rows.len());
    body += &text(LEFT, 44.0, "q", &caption);
    body += &axes(x, y);
    body += &roofs(machine, x, y);
    let place = |row: &Row| (x.at(intensity(row)), y.at(row.gflops()));
    for row in &shown {
        body += &dot(profile, row, place(row));
    }
    body += &labels(profile, &shown, y.at(machine.peak_gflops) - 6.0, place);
    body += &legend(profile, &shown);
    document(LEFT + WIDTH + 30.0, TOP + HEIGHT + 100.0, STYLE, &body)
}

fn line(class: &str, [x0, y0, x1, y1]: [f64; 4]) -> String {
    let [x0, y0, x1, y1] = [x0, y0, x1, y1].map(short);
    format!("<path class=\"{class}\" d=\"M{x0} {y0} {x1} {y1}\"/>\n")
}

fn axes(x: Axis, y: Axis) -> String {
    let (bottom, right) = (TOP + HEIGHT, LEFT + WIDTH);
    let mut out = String::new();
    for (decade, at) in x.decades() {
        out += &line("grid", [at, TOP, at, bottom]);
        let label = power(decade);
        out += &text(at - small_width(&label) / 2.0, bottom + 17.0, "q", &label);
    }
    for (decade, at) in y.decades() {
        out += &line("grid", [LEFT, at, right, at]);
        let label = power(decade);
        out += &text(LEFT - 8.0 - small_width(&label), at + 4.0, "q", &label);
    }
    out += &line("axis", [LEFT, bottom, right, bottom]);
    out += &line("axis", [LEFT, TOP, LEFT, bottom]);
    out += &text(LEFT, TOP - 6.0, "q", "GFLOP/s");
    let name = "arithmetic for each byte, FLOP";
    out + &text(right - small_width(name), bottom + 34.0, "q", name)
}

/// The peak, and the bandwidth of memory and of caches.
fn roofs(machine: &Machine, x: Axis, y: Axis) -> String {
    let peak = machine.peak_gflops;
    let (least, most) = (10f64.powi(x.first), 10f64.powi(x.last));
    let mut out = String::new();
    // One name below its roof, the other above, since both may be near.
    let both = [("roof", "memory", machine.memory, 14), ("roof2", "caches", machine.cache, -6)];
    for (class, name, (gbs, _), below) in both {
        if !(gbs.is_finite() && gbs > 0.0 && peak.is_finite()) {
            continue;
        }
        // From where the roof enters the plot to the ridge.
        let floor = 10f64.powi(y.first);
        let start = least.max(floor / gbs);
        let ridge = (peak / gbs).min(most);
        out += &line(class, [x.at(start), y.at(start * gbs), x.at(ridge), y.at(ridge * gbs)]);
        if class == "roof" {
            out += &line(class, [x.at(ridge), y.at(peak), x.at(most), y.at(peak)]);
        } else {
            out += &line(class, [x.at(ridge), y.at(peak), x.at(peak / machine.memory.0), y.at(peak)]);
        }
        let label = format!("{gbs:.1} GB/s {name}");
        let (px, py) = (x.at(start), y.at(start * gbs));
        let turn = (y.at(ridge * gbs) - py).atan2(x.at(ridge) - px).to_degrees();
        let (px, py) = (short(px), short(py));
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "<text class=\"s r\" transform=\"translate({px} {py}) rotate({})\" x=\"26\" y=\"{below}\">{}</text>",
            short(turn),
            escape(&label)
        );
    }
    let label = format!("{peak:.1} GFLOP/s peak");
    out + &text(LEFT + WIDTH - small_width(&label) - 4.0, y.at(peak) - 6.0, "s r", &label)
}

fn radius(profile: &Profile, row: &Row) -> f64 {
    2.5 + 26.0 * profile.share(row.least).sqrt()
}

fn dot(profile: &Profile, row: &Row, (x, y): (f64, f64)) -> String {
    let told = format!(
        "{}\n{}\n{:.2} µs, {:.1} % of the time\n{:.2} GFLOP/s, {:.2} GB/s, bound by {}",
        row.title,
        row.origin.as_deref().unwrap_or(&row.node),
        row.micros(),
        100.0 * profile.share(row.least),
        row.gflops(),
        row.gbs(),
        row.bound.name()
    );
    let [x, y, r] = [x, y, radius(profile, row)].map(short);
    format!(
        "<circle class=\"dot {}\" cx=\"{x}\" cy=\"{y}\" r=\"{r}\"><title>{}</title></circle>\n",
        row.bound.name(),
        escape(&told)
    )
}

/// Names beside the longest steps, moved until none lies over another, nor over that of the peak at height `peak`.
fn labels(profile: &Profile, shown: &[&Row], peak: f64, place: impl Fn(&Row) -> (f64, f64)) -> String {
    const LINE: f64 = 14.0;
    let mut taken = vec![[LEFT + WIDTH - 150.0, LEFT + WIDTH, peak]];
    let mut out = String::new();
    for row in shown.iter().take(LABELS) {
        let name = format!("{} {:.0} %", shortened(&row.place(), 34), 100.0 * profile.share(row.least));
        let width = small_width(&name);
        let (at, level) = place(row);
        let beside = radius(profile, row) + 8.0;
        // To the left of the dot where the right has no room.
        let start = if at + beside + width > LEFT + WIDTH { at - beside - width } else { at + beside };
        let is_free = |y: f64| {
            let over = |[x0, x1, at]: &[f64; 3]| start < *x1 && start + width > *x0 && (at - y).abs() < LINE;
            y < TOP + HEIGHT - 4.0 && !taken.iter().any(over)
        };
        let near = (0..40).flat_map(|i| [f64::from(i), -f64::from(i)]).map(|i| level + 4.0 + i * LINE / 2.0);
        let Some(y) = near.into_iter().find(|&y| is_free(y)) else { continue };
        taken.push([start, start + width, y]);
        let edge = if start > at { start - 2.0 } else { start + width + 2.0 };
        out += &line("lead", [at, level, edge, y - 4.0]);
        out += &text(start, y, "s", &name);
    }
    out
}

/// What the colours mean, and what is not shown.
fn legend(profile: &Profile, shown: &[&Row]) -> String {
    let (mut x, y) = (LEFT, TOP + HEIGHT + 58.0);
    let mut out = text(x, y, "q", "bound by");
    x += small_width("bound by") + 16.0;
    for bound in [Bound::Compute, Bound::Memory, Bound::Launch] {
        let time: std::time::Duration =
            profile.rows.iter().filter(|r| r.bound == bound).map(|r| r.least).sum();
        let name = format!("{} {:.0} %", bound.name(), 100.0 * profile.share(time));
        let class = bound.name();
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "<circle class=\"dot {class}\" cx=\"{}\" cy=\"{}\" r=\"6\"/>",
            short(x),
            short(y - 4.0)
        );
        out += &text(x + 12.0, y, "s", &name);
        x += 12.0 + small_width(&name) + 22.0;
    }
    let machine = &profile.machine;
    let [m, n, k] = machine.peak_dims;
    let size = |bytes: f64| print::bytes(bytes as usize);
    let mut note = format!(
        "measured: f32 product {m} × {n} × {k}; passes over {} and {}",
        size(machine.memory.1),
        size(machine.cache.1)
    );
    let hidden = profile.rows.len() - shown.len();
    if hidden > 0 {
        let steps = if hidden == 1 { "step" } else { "steps" };
        note += &format!("; {hidden} {steps} without arithmetic not shown");
    }
    out + &text(LEFT, y + 20.0, "q", &note)
}
