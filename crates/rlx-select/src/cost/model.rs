//! The measured costs of a device, and the predicted time of a step.

use std::fmt;
use std::sync::Arc;

use rlx_backend::cost::{BackendCostModel, Work, WorkKind};
use rlx_ir::{Error, ErrorKind, Result};
use rlx_opt::Target;
/// No size and no price is larger: what a file says beyond it was not measured.
const MAX_NUMBER: f64 = 1e18;

/// A price that depends on a size: measured at some sizes, in between by the straight line through the logarithms, beyond
/// them as at the nearest.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Curve(pub(super) Vec<(f64, f64)>);

impl Curve {
    /// Adds a measurement.
    pub(super) fn add(&mut self, size: f64, price: f64) {
        let at = self.0.partition_point(|p| p.0 < size);
        self.0.insert(at, (size, price));
    }

    /// Adds a measurement at a larger size than those before it; `None` where it is not larger.
    fn extend(&mut self, size: f64, price: f64) -> Option<()> {
        let larger = self.0.last().is_none_or(|&(last, _)| last < size);
        larger.then(|| self.0.push((size, price)))
    }

    /// What was measured: sizes, ascending, with their prices.
    pub fn points(&self) -> &[(f64, f64)] {
        &self.0
    }

    /// The price at `size`; `None` where nothing was measured.
    pub fn at(&self, size: f64) -> Option<f64> {
        let points = &self.0;
        let after = points.iter().position(|&(at, _)| at >= size);
        match after {
            None => points.last().map(|p| p.1),
            Some(0) => points.first().map(|p| p.1),
            Some(i) => {
                let ((x0, y0), (x1, y1)) = (points[i - 1], points[i]);
                // By differences of logarithms: quotients of numbers far apart overflow.
                let part = (size.ln() - x0.ln()) / (x1.ln() - x0.ln());
                Some((y0.ln() + part * (y1.ln() - y0.ln())).exp())
            }
        }
    }
}

/// The measured time of a matmul: its dimensions, and nanoseconds per operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GemmPoint {
    /// Rows, columns, common dimension.
    pub dims: [f64; 3],
    /// Nanoseconds for each operation.
    pub ns_per_flop: f64,
}

/// The cost of a matmul of any size, interpolated from the measured ones: nearer ones, by the logarithms of the dimensions, weigh more.
fn between(points: &[GemmPoint], dims: [f64; 3]) -> Option<f64> {
    let (mut sum, mut weights) = (0.0, 0.0);
    for point in points {
        let distance: f64 =
            point.dims.iter().zip(dims).map(|(a, b)| (a / b.max(1.0)).log2().powi(2)).sum::<f64>();
        let weight = 1.0 / (distance + 0.05).powi(2);
        sum += weight * point.ns_per_flop.ln();
        weights += weight;
    }
    (weights > 0.0).then(|| (sum / weights).exp())
}

/// A device's prices, as measured on this machine. All in nanoseconds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Calibration {
    /// What was measured: device, machine, threads, version of RLX.
    pub subject: String,
    /// A run without steps.
    pub run_ns: f64,
    /// A step without work.
    pub step_ns: f64,
    /// Each byte of inputs and outputs that goes to the device and back.
    pub transfer_ns: f64,
    /// Each element of a cheap elementwise operation within a step that does more.
    pub cheap_ns: f64,
    /// Each element of an exponential or the like.
    pub costly_ns: f64,
    /// Matmuls.
    pub products: Vec<GemmPoint>,
    /// Convolutions, as matmuls.
    pub windows: Vec<GemmPoint>,
    /// Each operation of a window that slides over channels, by bytes.
    pub slides: Curve,
    /// Each operation of attention, by keys.
    pub attention: Curve,
    /// Each operation of softmax, by bytes.
    pub softmax: Curve,
    /// Each operation of a norm, by bytes.
    pub norms: Curve,
    /// Each byte of one pass over memory, by bytes.
    pub passes: Curve,
    /// Each byte of parameters that a matmul of one row reads, by the bytes read between two uses of it.
    pub streams: Curve,
}

impl Calibration {
    /// Nanoseconds that a step of this work takes.
    pub fn price(&self, work: &Work) -> f64 {
        let pass = |bytes: f64| bytes * self.passes.at(bytes).unwrap_or(0.0);
        let per_flop = match work.kind {
            WorkKind::MatMul { m, n, k, .. } => between(&self.products, [m, n, k]),
            WorkKind::Window { m, n, k } => {
                between(&self.windows, [m, n, k]).or_else(|| between(&self.products, [m, n, k]))
            }
            WorkKind::SlidingWindow => self.slides.at(work.bytes),
            WorkKind::Attention { keys } => self.attention.at(keys),
            WorkKind::Softmax => self.softmax.at(work.bytes),
            WorkKind::Norm => self.norms.at(work.bytes),
            WorkKind::Pass => Some(0.0),
        };
        let anchor = match work.kind {
            WorkKind::Pass => pass(work.bytes),
            // For a kind that was not measured: like a matmul of medium size.
            _ => work.flops * per_flop.or_else(|| between(&self.products, [64.0; 3])).unwrap_or(0.0),
        };
        // Parameters come from wherever a whole run leaves them: a cache, or memory.
        let stream = work.held * self.streams.at(work.resident).unwrap_or(0.0);
        self.step_ns + anchor.max(stream) + work.cheap * self.cheap_ns + work.costly * self.costly_ns
    }

    fn scalars(&self) -> [(&'static str, f64); 5] {
        [
            ("run_ns", self.run_ns),
            ("step_ns", self.step_ns),
            ("transfer_ns", self.transfer_ns),
            ("cheap_ns", self.cheap_ns),
            ("costly_ns", self.costly_ns),
        ]
    }

    /// The curves by name.
    pub(super) fn curves(&self) -> [(&'static str, &Curve); 6] {
        [
            ("slides", &self.slides),
            ("attention", &self.attention),
            ("softmax", &self.softmax),
            ("norms", &self.norms),
            ("passes", &self.passes),
            ("streams", &self.streams),
        ]
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] naming the line that makes no sense.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |line: &str| Error::new(ErrorKind::Malformed, format!("calibration: \"{line}\""));
        let mut lines = text.split_terminator('\n');
        if lines.next() != Some("rlx-calibration") {
            return Err(wrong(text.lines().next().unwrap_or_default()));
        }
        let mut found = Calibration::default();
        for line in lines {
            let (name, rest) = line.split_once(' ').ok_or_else(|| wrong(line))?;
            if name == "subject" {
                found.subject = rest.to_string();
                continue;
            }
            let numbers: Option<Vec<f64>> = rest.split(' ').map(|n| n.parse().ok()).collect();
            let numbers = numbers.filter(|n| n.iter().all(|v| (0.0..=MAX_NUMBER).contains(v)));
            found.take(name, &numbers.ok_or_else(|| wrong(line))?).ok_or_else(|| wrong(line))?;
        }
        if found.products.is_empty() || found.passes.0.is_empty() {
            return Err(wrong("no products or passes"));
        }
        Ok(found)
    }

    /// Takes one line of the file; `None` when there is no such line.
    fn take(&mut self, name: &str, numbers: &[f64]) -> Option<()> {
        match (name, numbers) {
            ("run_ns", &[v]) => self.run_ns = v,
            ("step_ns", &[v]) => self.step_ns = v,
            ("transfer_ns", &[v]) => self.transfer_ns = v,
            ("cheap_ns", &[v]) => self.cheap_ns = v,
            ("costly_ns", &[v]) => self.costly_ns = v,
            // Points are compared by their logarithms.
            (_, numbers) if numbers.contains(&0.0) => return None,
            ("products", &[m, n, k, ns_per_flop]) => {
                self.products.push(GemmPoint { dims: [m, n, k], ns_per_flop });
            }
            ("windows", &[m, n, k, ns_per_flop]) => {
                self.windows.push(GemmPoint { dims: [m, n, k], ns_per_flop });
            }
            ("slides", &[size, price]) => self.slides.extend(size, price)?,
            ("attention", &[size, price]) => self.attention.extend(size, price)?,
            ("softmax", &[size, price]) => self.softmax.extend(size, price)?,
            ("norms", &[size, price]) => self.norms.extend(size, price)?,
            ("passes", &[size, price]) => self.passes.extend(size, price)?,
            ("streams", &[size, price]) => self.streams.extend(size, price)?,
            _ => return None,
        }
        Some(())
    }
}

/// The lines of its file.
impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "rlx-calibration\nsubject {}", self.subject)?;
        for (name, value) in self.scalars() {
            writeln!(f, "{name} {value:e}")?;
        }
        for (name, points) in [("products", &self.products), ("windows", &self.windows)] {
            for GemmPoint { dims: [m, n, k], ns_per_flop } in points {
                writeln!(f, "{name} {m} {n} {k} {ns_per_flop:e}")?;
            }
        }
        for (name, curve) in self.curves() {
            for (size, price) in &curve.0 {
                writeln!(f, "{name} {size} {price:e}")?;
            }
        }
        Ok(())
    }
}

/// A device with the prices that were measured of it.
pub(super) struct Calibrated {
    pub(super) name: String,
    pub(super) prices: Calibration,
    pub(super) target: Arc<dyn Target>,
}

impl BackendCostModel for Calibrated {
    fn name(&self) -> &str {
        &self.name
    }

    fn step_ns(&self, work: &Work) -> f64 {
        self.prices.price(work)
    }

    fn run_ns(&self, bytes: f64) -> f64 {
        self.prices.run_ns + bytes * self.prices.transfer_ns
    }

    fn target(&self) -> Option<Arc<dyn Target>> {
        Some(Arc::clone(&self.target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Calibration {
        let point = |dims, ns_per_flop| GemmPoint { dims, ns_per_flop };
        Calibration {
            subject: "cpu of a test".into(),
            run_ns: 400.0,
            step_ns: 50.0,
            transfer_ns: 0.25,
            cheap_ns: 0.1,
            costly_ns: 2.5,
            products: vec![point([1.0, 64.0, 64.0], 0.1), point([64.0, 64.0, 64.0], 0.01)],
            windows: vec![point([64.0, 8.0, 72.0], 0.02)],
            slides: Curve(vec![(1e3, 0.5)]),
            attention: Curve(vec![(16.0, 0.05), (128.0, 0.02)]),
            softmax: Curve(vec![(1e3, 0.4)]),
            norms: Curve(vec![(1e3, 0.2)]),
            passes: Curve(vec![(1e3, 0.01), (1e6, 0.1)]),
            streams: Curve(vec![(1e3, 0.01), (1e6, 0.1)]),
        }
    }

    #[test]
    fn the_text_form_gives_the_same_prices_back() {
        assert_eq!(Calibration::parse(&sample().to_string()).unwrap(), sample());
    }

    #[test]
    fn lines_that_make_no_sense_are_errors() {
        let text = sample().to_string();
        for wrong in ["run_ns NaN\n", "run_ns -1\n", "run_ns 1 2\n", "speed 3\n", "products 1 2 3\n", "x\n"] {
            assert!(Calibration::parse(&format!("{text}{wrong}")).is_err(), "{wrong}");
        }
        // Points of which no logarithm can be taken, or that are in no order, make prices that are no numbers.
        for wrong in ["passes 1000 1\n", "norms 2000 0\n", "products 0 1 1 1\n", "run_ns 1e300\n"] {
            assert!(Calibration::parse(&format!("{text}{wrong}")).is_err(), "{wrong}");
        }
        assert!(Calibration::parse("").is_err() && Calibration::parse("rlx-calibration\n").is_err());
    }

    #[test]
    fn prices_lie_between_what_was_measured() {
        let prices = sample();
        assert_eq!(prices.passes.at(10.0), Some(0.01));
        assert_eq!(prices.passes.at(1e9), Some(0.1));
        let middle = prices.passes.at(1e3 * 1e3f64.sqrt()).unwrap();
        assert!((middle - 0.01 * 10f64.sqrt()).abs() < 1e-9, "{middle}");
        let near = between(&prices.products, [1.0, 64.0, 64.0]).unwrap();
        assert!((0.099..=0.1).contains(&near), "{near}");
        let m8 = between(&prices.products, [8.0, 64.0, 64.0]).unwrap();
        assert!(m8 > 0.01 && m8 < 0.1, "{m8}");
        assert_eq!(Curve::default().at(1.0), None);
    }

    #[test]
    fn parameters_that_no_cache_holds_are_streamed() {
        let kind = WorkKind::MatMul { batch: 1.0, m: 64.0, n: 64.0, k: 64.0 };
        let small = Work { flops: 1e3, held: 1e6, resident: 1e3, ..Work::of(kind) };
        let large = Work { resident: 1e9, ..small };
        assert!(sample().price(&large) > 5.0 * sample().price(&small));
        let costly = Work { costly: 1e3, ..Work::of(WorkKind::Pass) };
        assert_eq!(sample().price(&costly), 50.0 + 2500.0);
    }
}
