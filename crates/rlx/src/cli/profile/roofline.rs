//! The roofline plot: each step's FLOP per second over its FLOP per byte, and the limits of the machine.

use std::fmt::Write;

use rlx::svg::{document, escape, short, shortened, small_width, text};

use super::places::{Places, text_box, turned_boxes};
use super::{Bound, Machine, Profile, Row};
use crate::cli::print::{self, counted};

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
        let (mut low, mut most) = (f64::INFINITY, 0.0f64);
        for v in values.filter(|v| v.is_finite() && *v > 0.0) {
            (low, most) = (low.min(v), most.max(v));
        }
        if most == 0.0 {
            (low, most) = (1.0, 10.0);
        }
        let first = low.log10().floor() as i32;
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

/// The diagram.
pub fn roofline(profile: &Profile) -> String {
    let shown: Vec<&Row> = profile
        .by_time()
        .into_iter()
        .filter(|r| r.flops > 0.0 && r.bytes > 0.0 && r.gflops() > 0.0)
        .collect();
    let machine = &Limits::of(&profile.machine, &shown);
    let ridge = machine.peak / machine.memory;
    let intensity = |r: &Row| r.flops / r.bytes;
    let x = Axis::over(shown.iter().map(|r| intensity(r)).chain([ridge * 3.0, 0.1]), LEFT, LEFT + WIDTH);
    let rates = shown.iter().map(|r| r.gflops()).chain([machine.peak, machine.peak / 50.0]);
    let y = Axis::over(rates, TOP + HEIGHT, TOP);
    let mut body = format!("<title>{}</title>\n", escape(&format!("Roofline of {}", profile.model)));
    let title = format!("{}: where the time of a run goes", shortened(&profile.model, 56));
    body += &text(LEFT, 26.0, "t", &title);
    let total = profile.total().as_secs_f64() * 1e6;
    let threads =
        profile.threads.map_or_else(String::new, |n| format!(", {}", counted(n, "thread", "threads")));
    let steps = counted(profile.rows.len(), "step", "steps");
    body += &text(LEFT, 44.0, "q", &format!("{steps}, {total:.0} µs{threads}; a dot's area is its time"));
    body += &axes(x, y);
    let mut places = Places::default();
    body += &roofs(machine, x, y, &mut places);
    let place = |row: &Row| (x.at(intensity(row)), y.at(row.gflops()));
    for row in &shown {
        body += &dot(profile, row, place(row));
    }
    body += &labels(profile, &shown, &mut places, place);
    body += &legend(profile, &shown, machine.raised);
    document(LEFT + WIDTH + 30.0, TOP + HEIGHT + 112.0, STYLE, &body)
}

/// The limits of the machine, in GFLOP/s and GB/s. A step that was faster than what was measured shows
/// that the measurement was disturbed: the limit is then what the step reached.
struct Limits {
    peak: f64,
    memory: f64,
    cache: f64,
    raised: bool,
}

impl Limits {
    fn of(machine: &Machine, rows: &[&Row]) -> Self {
        let reached = |of: &dyn Fn(&Row) -> f64, from: f64| {
            rows.iter().filter(|r| r.bytes >= from).map(|r| of(r)).fold(f64::NEG_INFINITY, f64::max)
        };
        let peak = machine.peak_gflops.max(reached(&Row::gflops, 0.0));
        let cache = machine.cache.0.max(reached(&Row::gbs, 0.0));
        // What fits caches may be faster than memory.
        let memory = machine.memory.0.max(reached(&Row::gbs, machine.memory.1.max(1.0)));
        let measured = [machine.peak_gflops, machine.cache.0, machine.memory.0];
        let raised = [peak, cache, memory].iter().zip(measured).any(|(limit, measured)| *limit > measured);
        // Without a measurement there is no limit to draw.
        let known = |limit: f64, measured: f64| if measured.is_finite() { limit } else { f64::NAN };
        Limits {
            peak: known(peak, measured[0]),
            cache: known(cache, measured[1]),
            memory: known(memory, measured[2]),
            raised,
        }
    }
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
        out += &text(at - small_width(&label) / 2.0, bottom + 18.0, "q", &label);
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
fn roofs(machine: &Limits, x: Axis, y: Axis, places: &mut Places) -> String {
    let peak = machine.peak;
    let mut out = String::new();
    let label = format!("{peak:.1} GFLOP/s peak");
    let width = small_width(&label);
    let at = [LEFT + WIDTH - width - 4.0, y.at(peak) - 6.0];
    places.take(&[text_box(at[0], at[1], width)]);
    out += &text(at[0], at[1], "s r", &label);
    // The numbers of the axes.
    let (right, bottom) = (LEFT + WIDTH, TOP + HEIGHT);
    places.hold([0.0, 0.0, LEFT - 4.0, bottom + 60.0]);
    places.hold([0.0, bottom + 4.0, right + 30.0, bottom + 60.0]);
    places.hold([0.0, 0.0, LEFT + WIDTH / 2.0, TOP - 1.0]);
    let most = 10f64.powi(x.last);
    for (class, name, gbs, below) in
        [("roof", "memory", machine.memory, 14.0), ("roof2", "caches", machine.cache, -6.0)]
    {
        if !(gbs.is_finite() && gbs > 0.0 && peak.is_finite()) {
            continue;
        }
        // From where the roof enters the plot to the ridge, and along the peak.
        let start = 10f64.powi(x.first).max(10f64.powi(y.first) / gbs);
        let ridge = (peak / gbs).min(most);
        let end = if class == "roof" { most } else { peak / machine.memory };
        let (from, to) = ([x.at(start), y.at(start * gbs)], [x.at(ridge), y.at(ridge * gbs)]);
        out += &line(class, [from[0], from[1], to[0], to[1]]);
        out += &line(class, [to[0], y.at(peak), x.at(end), y.at(peak)]);
        out += &roof_label(&format!("{gbs:.1} GB/s {name}"), from, to, below, places);
    }
    out
}

/// The name of a roof along it, if there is space; `below` is the side that is tried first.
fn roof_label(label: &str, from: [f64; 2], to: [f64; 2], below: f64, places: &mut Places) -> String {
    let (dx, dy) = (to[0] - from[0], to[1] - from[1]);
    let (angle, length, width) = (dy.atan2(dx), dx.hypot(dy), small_width(label));
    let starts = (0..).map(|i| 26.0 + 16.0 * f64::from(i)).take_while(|s| s + width < length - 8.0);
    for (start, below) in starts.flat_map(|s| [(s, below), (s, 8.0 - below)]) {
        let at = [from[0] + start * angle.cos(), from[1] + start * angle.sin()];
        if places.take(&turned_boxes(at, below, width, angle)) {
            let [x, y] = at.map(short);
            let turn = short(angle.to_degrees());
            return format!(
                "<text class=\"s r\" transform=\"translate({x} {y}) rotate({turn})\" x=\"0\" y=\"{below}\">{}</text>\n",
                escape(label)
            );
        }
    }
    String::new()
}

fn radius(profile: &Profile, row: &Row) -> f64 {
    2.5 + 26.0 * profile.share(row.min).sqrt()
}

fn dot(profile: &Profile, row: &Row, (x, y): (f64, f64)) -> String {
    let told = format!(
        "{}\n{}\n{:.2} µs, {:.1} % of the time\n{:.2} GFLOP/s, {:.2} GB/s, bound by {}",
        row.title,
        row.origin().as_deref().unwrap_or(&row.node),
        row.micros(),
        100.0 * profile.share(row.min),
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

/// Names beside the longest steps, moved until none covers another, nor that of a roof.
fn labels(
    profile: &Profile,
    shown: &[&Row],
    places: &mut Places,
    place: impl Fn(&Row) -> (f64, f64),
) -> String {
    const MOVE: f64 = 7.0;
    let mut out = String::new();
    for row in shown.iter().take(LABELS) {
        let name = format!("{} {:.0} %", shortened(&row.name, 34), 100.0 * profile.share(row.min));
        let width = small_width(&name);
        let (at, level) = place(row);
        let beside = radius(profile, row) + 8.0;
        // To the left of the dot if there is no space on the right.
        let start = if at + beside + width > LEFT + WIDTH { at - beside - width } else { at + beside };
        let inside = |y: &f64| (TOP + 12.0..TOP + HEIGHT - 4.0).contains(y);
        let near = (0..60).flat_map(|i| [f64::from(i), -f64::from(i)]).map(|i| level + 4.0 + i * MOVE);
        let Some(y) = near.filter(inside).find(|&y| places.take(&[text_box(start, y, width)])) else {
            continue;
        };
        let edge = if start > at { start - 2.0 } else { start + width + 2.0 };
        out += &line("lead", [at, level, edge, y - 4.0]);
        out += &text(start, y, "s", &name);
    }
    out
}

/// What the colours mean, and what is not shown.
fn legend(profile: &Profile, shown: &[&Row], raised: bool) -> String {
    let (mut x, y) = (LEFT, TOP + HEIGHT + 58.0);
    let mut out = text(x, y, "q", "bound by");
    x += small_width("bound by") + 16.0;
    for bound in [Bound::Compute, Bound::Memory, Bound::Launch] {
        let time: std::time::Duration = profile.rows.iter().filter(|r| r.bound == bound).map(|r| r.min).sum();
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
        "measured: {:.1} GFLOP/s, f32 matmul {m} × {n} × {k}; {:.1} GB/s over {}, {:.1} GB/s over {}",
        machine.peak_gflops,
        machine.memory.0,
        size(machine.memory.1),
        machine.cache.0,
        size(machine.cache.1)
    );
    if !(machine.memory.0.is_finite() && machine.cache.0.is_finite()) {
        note = format!("measured: {:.1} GFLOP/s, f32 matmul {m} × {n} × {k}", machine.peak_gflops);
    }
    let mut out = out + &text(LEFT, y + 20.0, "q", &note);
    let mut more = Vec::new();
    let hidden = profile.rows.len() - shown.len();
    if hidden > 0 {
        more.push(format!("{} without arithmetic not shown", counted(hidden, "step", "steps")));
    }
    if raised {
        more.push(
            "limits are raised to what steps reached; rlx devices --calibrate measures again".to_owned(),
        );
    }
    if !more.is_empty() {
        out += &text(LEFT, y + 36.0, "q", &more.join("; "));
    }
    out
}
