use super::*;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, Graph, GraphExt, Shape};
use rlx_runtime::{Device, GemmPoint, Session, Weight, WeightStore};

/// A machine of round numbers: 100 GFLOP/s, no bandwidth measured.
fn prices() -> Calibration {
    let point = |n: f64, ns_per_flop| GemmPoint { dims: [n; 3], ns_per_flop };
    Calibration {
        subject: "a test's machine".into(),
        step_ns: 200.0,
        // The smallest is too small to be trusted.
        products: vec![point(8.0, 0.001), point(256.0, 0.02), point(512.0, 0.01)],
        ..Calibration::default()
    }
}

fn profiled(rows: usize) -> Profile {
    let mut g = Graph::new("layer");
    let x = g.input("x", Shape::new(&[rows, 64], DType::F32));
    let w = g.param("w", Shape::new(&[64, 64], DType::F32));
    let y = g.mm(x, w);
    let y = g.relu(y);
    let y = g.sm(y, -1);
    g.set_outputs(vec![y]);
    let mut compiled = Session::new(Device::Cpu).compile(g);
    let mut weights = WeightStore::new();
    weights.insert("w", Weight::owned(DType::F32, &[64, 64], vec![0; 64 * 64 * 4]).unwrap());
    compiled.try_set_weights(&weights).unwrap();
    compiled.try_start_profiling().unwrap();
    let data = vec![0.5; rows * 64];
    for _ in 0..4 {
        compiled.run(&[("x", &data)]);
    }
    let steps = compiled.try_profile().unwrap();
    let runs = Runs {
        model: "layer & <more>".into(),
        threads: Some(2),
        profiled: Duration::from_micros(11),
        plain: Duration::from_micros(10),
    };
    Profile::new(&compiled, &steps, &[], &prices(), runs)
}

#[test]
fn steps_are_counted_with_what_they_compute_and_move() {
    let profile = profiled(32);
    assert_eq!((profile.runs, profile.rows.len()), (4, 2));
    let product = &profile.rows[0];
    assert_eq!((product.family, product.title.as_str()), ("MatMul", "MatMul + Relu"));
    // The matmul, and one operation for each element of the relu.
    assert_eq!(product.flops, 2.0 * 32.0 * 64.0 * 64.0 + 32.0 * 64.0);
    assert_eq!(product.bytes, 4.0 * (32.0 * 64.0 * 2.0 + 64.0 * 64.0));
    assert_eq!((product.bound, profile.rows[1].bound), (Bound::Compute, Bound::Launch));
    assert!(product.min <= product.mean && product.min > Duration::ZERO);
    let sum: f64 = profile.rows.iter().map(|r| profile.share(r.min)).sum();
    assert!((sum - 1.0).abs() < 1e-9);
    let rate = product.gflops() * product.min.as_secs_f64() * 1e9;
    assert!((rate - product.flops).abs() < 1e-3 * product.flops);
    assert_eq!(profile.machine.peak_gflops, 100.0);
}

#[test]
fn the_table_names_every_step_and_says_what_it_is_measured_against() {
    let text = profiled(32).text();
    for part in [
        "2 steps",
        "+10.0 %",
        "100.0 GFLOP/s (f32 matmul 512 × 512 × 512)",
        "MatMul + Relu",
        "Softmax",
        "launch",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn the_trace_has_each_step_once_and_in_order() {
    let profile = profiled(64);
    let trace = trace(&profile);
    let events: Vec<&Json> =
        trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "X").collect();
    assert_eq!(events.len(), profile.rows.len());
    let number = |e: &Json, name: &str| e[name].as_f64().unwrap();
    // One behind another. How much of the run lies between them depends on what else the machine does.
    assert!(events.windows(2).all(|w| number(w[0], "ts") + number(w[0], "dur") <= number(w[1], "ts") + 1e-9));
    for (event, row) in events.iter().zip(&profile.rows) {
        let (began, took) = row.last;
        assert!(took > Duration::ZERO, "{event}");
        assert_eq!(number(event, "ts"), began.as_secs_f64() * 1e6);
        assert_eq!(number(event, "dur"), took.as_secs_f64() * 1e6);
        assert_eq!(event["name"].as_str(), Some(row.title.as_str()));
    }
}

#[test]
fn the_roofline_has_a_dot_for_each_step_that_computes() {
    let mut profile = profiled(16);
    // Slower than the test's machine, whatever this one is: a step that is faster raises the peak.
    profile.rows.iter_mut().for_each(|row| row.min = Duration::from_micros(10));
    let svg = roofline(&profile);
    assert_eq!(svg.matches("<circle class=\"dot").count(), profile.rows.len() + 3, "{svg}");
    assert!(svg.contains("100.0 GFLOP/s peak") && svg.contains("layer &amp; &lt;more&gt;"));
    // A machine without measurements makes no diagram of NaNs.
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

/// The boxes of all text in a diagram, by its own positions: text that is turned as parts along it.
fn text_boxes(svg: &str) -> Vec<(String, Vec<places::Box>)> {
    let mut found = Vec::new();
    for part in svg.split("<text ").skip(1) {
        let (attributes, rest) = part.split_once('>').unwrap();
        let content = rest
            .split_once("</text>")
            .unwrap()
            .0
            .replace("&amp;", "&")
            .replace("&lt;", "<")
            .replace("&gt;", ">");
        let attribute = |name: &str| {
            let from = attributes.split_once(&format!(" {name}=\""))?.1;
            from.split_once('"').map(|(value, _)| value.to_owned())
        };
        let number = |name: &str| attribute(name).unwrap().parse::<f64>().unwrap();
        let width = rlx::svg::small_width(&content);
        let boxes = match attribute("transform") {
            None => vec![places::text_box(number("x"), number("y"), width)],
            Some(transform) => {
                let numbers = |from: &str| {
                    let inside = transform.split_once(from).unwrap().1.split_once(')').unwrap().0;
                    inside.split(' ').map(|n| n.parse::<f64>().unwrap()).collect::<Vec<_>>()
                };
                let (at, turn) = (numbers("translate("), numbers("rotate("));
                places::turned_boxes([at[0], at[1]], number("y"), width, turn[0].to_radians())
            }
        };
        if !content.is_empty() {
            found.push((content, boxes));
        }
    }
    found
}

/// Between 0 and 1.
fn unit(random: &mut Gen) -> f64 {
    random.size(0..=1_000_000) as f64 / 1e6
}

/// A step of random work.
fn random_row(random: &mut Gen, at: usize) -> Row {
    let mut power = |from: f64, to: f64| 10f64.powf(from + (to - from) * unit(random));
    let (flops, bytes) = (power(3.0, 9.0), power(3.0, 8.0));
    let min = Duration::from_nanos(power(2.5, 7.0) as u64);
    Row {
        title: "MatMul".into(),
        family: "MatMul",
        node: format!("%{at} matmul of a name of some length"),
        name: format!("/layer.{at}/a name of some length/MatMul"),
        origins: Vec::new(),
        min,
        mean: min,
        last: (Duration::ZERO, min),
        flops,
        bytes,
        bound: Bound::Compute,
    }
}

#[test]
fn no_text_of_a_roofline_covers_another_and_no_dot_is_above_its_limit() {
    let mut random = Gen::new(7);
    for case in 0..300 {
        let mut profile = profiled_template();
        profile.rows = (0..1 + case % 30).map(|at| random_row(&mut random, at)).collect();
        profile.machine.memory = (1.0 + 99.0 * unit(&mut random), 6.4e7);
        profile.machine.cache = (profile.machine.memory.0 * (0.8 + 4.0 * unit(&mut random)), 2.6e5);
        profile.machine.peak_gflops = 10f64.powf(3.0 * unit(&mut random));
        let svg = roofline(&profile);
        let texts = text_boxes(&svg);
        for (i, (name, boxes)) in texts.iter().enumerate() {
            for (other, others) in &texts[..i] {
                let meet = boxes.iter().any(|a| {
                    others.iter().any(|b| {
                        a[0] + 0.5 < b[2] && b[0] + 0.5 < a[2] && a[1] + 0.5 < b[3] && b[1] + 0.5 < a[3]
                    })
                });
                assert!(!meet, "case {case}: \"{name}\" covers \"{other}\"\n{svg}");
            }
        }
        let fastest = profile.rows.iter().map(Row::gflops).fold(0.0, f64::max);
        let peak = profile.machine.peak_gflops.max(fastest);
        assert!(svg.contains(&format!("{peak:.1} GFLOP/s peak")), "case {case}: {peak}");
        assert_eq!(svg.contains("limits are raised"), raised(&profile), "case {case}");
    }
}

/// Whether a step was faster than what was measured.
fn raised(profile: &Profile) -> bool {
    let machine = &profile.machine;
    profile.rows.iter().any(|r| {
        r.gflops() > machine.peak_gflops
            || r.gbs() > machine.cache.0
            || (r.bytes >= machine.memory.1 && r.gbs() > machine.memory.0)
    })
}

fn profiled_template() -> Profile {
    Profile {
        model: "a model".into(),
        machine: Machine::of(&prices()),
        threads: Some(1),
        runs: 1,
        profiled: Duration::from_micros(11),
        plain: Duration::from_micros(10),
        rows: Vec::new(),
    }
}

#[test]
fn a_device_that_cannot_time_its_steps_says_so() {
    let mut g = Graph::new("relu");
    let x = g.input("x", Shape::new(&[3], DType::F32));
    let y = g.relu(x);
    g.set_outputs(vec![y]);
    let session = Session::with_backend(Device::Tpu, std::sync::Arc::new(rlx_contract::OracleBackend));
    let mut compiled = session.compile(g.clone());
    for told in
        [compiled.try_start_profiling(), compiled.try_profile().map(|_| ()), compiled.try_stop_profiling()]
    {
        let error = told.unwrap_err();
        assert_eq!(error.kind(), rlx_ir::ErrorKind::Unsupported);
        assert!(error.to_string().contains("does not time its steps") && error.device().is_some(), "{error}");
    }
    // A device that can is silent until it is asked, and after it was told to stop.
    let mut compiled = Session::new(Device::Cpu).compile(g);
    compiled.run(&[("x", &[1.0; 3])]);
    assert!(compiled.try_profile().unwrap().is_empty());
    compiled.try_start_profiling().unwrap();
    compiled.run(&[("x", &[1.0; 3])]);
    assert_eq!(compiled.try_profile().unwrap()[0].runs, 1);
    compiled.try_stop_profiling().unwrap();
    assert!(compiled.try_profile().unwrap().is_empty());
}
