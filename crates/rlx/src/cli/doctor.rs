//! `rlx doctor`: what this machine and this build support, what is missing and how to get it, and whether all environment
//! variables that are set can be honoured.
//!
//! Everything is collected in one JSON value, from which the text is printed. The exit code is 1 if the CPU does not work
//! or if a variable that was set cannot be honoured; an absent device is not a fault.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::UNIX_EPOCH;

use rlx_ir::Error;
use rlx_ir::files::{cache_dir, check_own};
use rlx_runtime::{
    AotCache, Artefact, Device, DeviceId, Graph, GraphExt, Session, backend_for, backend_of,
    cpu_instruction_sets, device_ids, nearest, unavailable_reason, variables,
};
use rlx_runtime::{DType, Shape};
use serde_json::{Value as Json, json};

use super::failure::Failure;
use super::output::Output;
use super::print;

/// The features of this build that bring devices and libraries.
const FEATURES: [(&str, bool); 9] = [
    ("cuda", cfg!(feature = "cuda")),
    ("rocm", cfg!(feature = "rocm")),
    ("mlx", cfg!(feature = "mlx")),
    ("vulkan", cfg!(feature = "vulkan")),
    ("opengl", cfg!(feature = "opengl")),
    ("gpu", cfg!(feature = "gpu")),
    ("blas-accelerate", cfg!(feature = "blas-accelerate")),
    ("blas-mkl", cfg!(feature = "blas-mkl")),
    ("blas-openblas", cfg!(feature = "blas-openblas")),
];

/// Looks at everything.
pub fn doctor(json: bool) -> Result<ExitCode, Failure> {
    let mut found = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "machine": machine(),
        "features": FEATURES.iter().map(|&(name, on)| (name.to_owned(), Json::from(on))).collect::<serde_json::Map<_, _>>(),
        "devices": device_ids().into_iter().map(device).collect::<Json>(),
        "caches": caches(),
        "environment": environment(),
        "test_data": test_data(),
    });
    let faults = faults(&found);
    found["ok"] = faults.is_empty().into();
    found["faults"] = faults.into_iter().map(Json::from).collect();
    if json {
        writeln!(Output, "{found}")?;
    } else {
        print_text(&found)?;
    }
    Ok(if found["ok"] == true { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The processor and its memory, as far as the system tells.
fn machine() -> Json {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|l| l.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let memory = read("/proc/meminfo");
    let bytes = |name: &str| {
        let kilobytes: u64 = field(&memory, name)?.split_whitespace().next()?.parse().ok()?;
        Some(kilobytes * 1024)
    };
    let pages = read("/sys/kernel/mm/transparent_hugepage/enabled");
    let pages = pages.split('[').nth(1).and_then(|rest| rest.split(']').next());
    let isas = cpu_instruction_sets();
    let cpu = Session::try_new(Device::Cpu);
    json!({
        "system": format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        "processor": field(&read("/proc/cpuinfo"), "model name"),
        "cores": std::thread::available_parallelism().map(|n| n.get()).ok(),
        "threads": cpu.as_ref().ok().and_then(Session::threads),
        "instruction_sets": isas,
        "instruction_set_forced": std::env::var("RLX_CPU_ISA").ok().filter(|v| !v.is_empty()),
        "memory_bytes": bytes("MemTotal"),
        "memory_available_bytes": bytes("MemAvailable"),
        "huge_pages": pages,
        "huge_pages_hint": (pages == Some("never")).then_some(
            "packed weights are read faster with huge pages: echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
        ),
        "cpu_fault": cpu_works().err().map(|e| e.to_string()),
    })
}

/// Runs a graph of one op.
fn cpu_works() -> rlx_ir::Result<()> {
    let mut graph = Graph::new("doctor");
    let x = graph.input("x", Shape::new(&[2], DType::F32));
    let y = graph.exp(x);
    graph.set_outputs(vec![y]);
    let mut compiled = Session::try_new(Device::Cpu)?.try_compile(graph)?;
    let outputs = compiled.try_run(&[("x", &[0.0, 1.0])])?;
    if outputs[0][0] == 1.0 && (outputs[0][1] - std::f32::consts::E).abs() < 1e-5 {
        return Ok(());
    }
    Err(Error::new(rlx_ir::ErrorKind::Internal, format!("exp of 0 and 1 is {:?}", outputs[0])))
}

fn device(device: DeviceId) -> Json {
    let reason = unavailable_reason(device);
    let about = match reason {
        None => backend_of(device).and_then(|b| b.machine().ok()),
        Some(_) => None,
    };
    json!({
        "device": device.feature(), "name": super::devices::name(device), "available": reason.is_none(), "about": about,
        "reason": reason.as_ref().map(|e| e.message().to_owned()),
        "hint": reason.as_ref().and_then(|e| e.hint()),
    })
}

/// The folders of the cache, and compiled models that cannot be used any more.
fn caches() -> Json {
    let folder = match cache_dir() {
        Ok(folder) => folder,
        Err(e) => {
            return json!({ "folder": null, "exists": false, "not_writable": e.message(), "hint": e.hint(), "parts": [] });
        }
    };
    let part = |name: &&str| {
        let path = folder.join(name);
        // Files in a folder that others can write to are not used.
        let fault = check_own(&path).err();
        let hint = fault.as_ref().and_then(Error::hint);
        json!({
            "folder": name, "bytes": size_of(&path, 0), "hint": hint,
            "not_used": fault.as_ref().map(Error::message),
        })
    };
    let parts: Json = ["aot", "pipelines", "calibration", "tuning", "verdicts", "models", "test-data"]
        .iter()
        .filter(|name| folder.join(name).is_dir())
        .map(part)
        .collect();
    let models = AotCache::from_env().map_err(|e| e.message().to_owned()).and_then(|cache| {
        let entries = cache.entries().map_err(|e| e.error().message().to_owned())?;
        let here = backend_for(Device::Cpu).and_then(|b| b.machine().ok()).unwrap_or_default();
        let stale = entries.iter().filter(|e| e.fault.is_some() || is_stale(&e.path, &here)).count();
        let bytes: u64 = entries.iter().map(|e| e.bytes).sum();
        Ok(json!({ "entries": entries.len(), "stale": stale, "bytes": bytes, "limit": cache.limit() }))
    });
    json!({
        "folder": folder.display().to_string(),
        "exists": folder.is_dir(),
        "not_writable": writable(&folder).err().map(|e| e.to_string()),
        "parts": parts,
        "compiled_models": models.as_ref().ok(),
        "compiled_models_fault": models.as_ref().err(),
    })
}

/// Whether an entry is of another version of RLX, or of another processor than this one.
fn is_stale(path: &Path, here: &str) -> bool {
    Artefact::open(path).is_ok_and(|a| {
        let target = a.target();
        target.version != env!("CARGO_PKG_VERSION")
            || (target.device == Device::Cpu.feature() && !here.is_empty() && target.machine != here)
    })
}

/// Bytes of all files in a folder, links not followed.
fn size_of(folder: &Path, depth: usize) -> u64 {
    const DEEPEST: usize = 16;
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let bytes = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() && depth < DEEPEST => size_of(&entry.path(), depth + 1),
        Ok(kind) if kind.is_file() => entry.metadata().map_or(0, |m| m.len()),
        _ => 0,
    };
    entries.flatten().map(bytes).sum()
}

/// Whether files can be made in the folder, or in the one it would be made in.
fn writable(folder: &Path) -> std::io::Result<()> {
    let there = folder.ancestors().find(|f| f.exists()).map_or_else(|| PathBuf::from("."), Path::to_path_buf);
    if !there.is_dir() {
        return Err(std::io::Error::other(format!("{} is no folder", there.display())));
    }
    let stamp = UNIX_EPOCH.elapsed().map_or(0, |d| d.subsec_nanos());
    let probe = there.join(format!(".rlx-doctor-{}-{stamp}.part", std::process::id()));
    std::fs::File::create_new(&probe)?;
    std::fs::remove_file(&probe)
}

/// The variables that RLX reads, and others that are set and start with `RLX_`.
fn environment() -> Json {
    let known = variables();
    let mut all: Vec<Json> = known
        .iter()
        .map(|v| {
            let fault = v.fault.as_ref().map(|e| e.message().to_owned());
            let hint = v.fault.as_ref().and_then(|e| e.hint());
            json!({ "name": v.name, "about": v.about, "value": v.value, "fault": fault, "hint": hint })
        })
        .collect();
    let set = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let strangers = set.filter(|name| {
        // Variables of the tests are ignored.
        name.starts_with("RLX_") && !name.starts_with("RLX_TEST_") && known.iter().all(|v| v.name != name)
    });
    for name in strangers {
        let close = nearest(&name, known.iter().map(|v| v.name));
        let hint = close.map(|c| format!("did you mean {c}?"));
        let value = std::env::var(&name).ok();
        all.push(json!({ "name": name, "value": value, "fault": "RLX has no variable of this name", "hint": hint }));
    }
    all.into_iter().collect()
}

/// The test data, needed only by the tests.
fn test_data() -> Json {
    let set = |set: &&rlx_testdata::DataSet| json!({ "name": set.name, "folder": set.folder().map(|folder| folder.display().to_string()), "present": set.path().is_some() });
    rlx_testdata::ALL.iter().map(set).collect()
}

/// Variables that cannot be honoured, and a CPU that does not work.
fn faults(found: &Json) -> Vec<String> {
    let mut faults = Vec::new();
    if let Some(why) = found["machine"]["cpu_fault"].as_str() {
        faults.push(format!("the CPU does not work: {why}"));
    }
    let list = |v: &Json| v.as_array().cloned().unwrap_or_default();
    for v in list(&found["environment"]).iter().filter(|v| v["fault"].is_string()) {
        let text = |field: &str| v[field].as_str().unwrap_or_default().to_owned();
        faults.push(format!("{}={}: {}", text("name"), text("value"), text("fault")));
    }
    let chosen = std::env::var_os("RLX_CACHE_DIR").is_some_and(|v| !v.is_empty());
    if let (true, Some(why)) = (chosen, found["caches"]["not_writable"].as_str()) {
        faults.push(format!("RLX_CACHE_DIR: nothing can be written there: {why}"));
    }
    faults
}

fn print_text(found: &Json) -> Result<(), Failure> {
    let line = |name: &str, text: String| writeln!(Output, "  {name:<16} {text}");
    let text = |v: &Json| v.as_str().map_or_else(|| "unknown".to_owned(), str::to_owned);
    let bytes = |v: &Json| v.as_u64().map_or_else(|| "unknown".to_owned(), |n| print::bytes(n as usize));
    let list = |v: &Json| v.as_array().cloned().unwrap_or_default();
    let names = |v: &Json| list(v).iter().map(text).collect::<Vec<_>>().join(", ");
    // Left out if unknown.
    let count = |v: &Json, one: &str, many: &str| {
        v.as_u64().map_or_else(String::new, |n| format!(", {}", print::counted(n as usize, one, many)))
    };
    let machine = &found["machine"];
    writeln!(Output, "machine")?;
    line("system", text(&machine["system"]))?;
    line(
        "processor",
        format!(
            "{}{}{}",
            text(&machine["processor"]),
            count(&machine["cores"], "core", "cores"),
            count(&machine["threads"], "thread used", "threads used"),
        ),
    )?;
    let forced = machine["instruction_set_forced"].as_str();
    let forced = forced.map_or_else(String::new, |isa| format!(" (RLX_CPU_ISA forces {isa})"));
    line("instructions", format!("{}{forced}", names(&machine["instruction_sets"])))?;
    line(
        "memory",
        format!("{}, {} free", bytes(&machine["memory_bytes"]), bytes(&machine["memory_available_bytes"])),
    )?;
    line("huge pages", text(&machine["huge_pages"]))?;
    help(&machine["huge_pages_hint"])?;
    writeln!(Output, "build")?;
    line("version", text(&found["version"]))?;
    let features = found["features"].as_object().cloned().unwrap_or_default();
    for (title, wanted) in [("features on", true), ("features off", false)] {
        let names: Vec<&str> =
            features.iter().filter(|(_, on)| **on == wanted).map(|(n, _)| n.as_str()).collect();
        line(title, if names.is_empty() { "none".to_owned() } else { names.join(", ") })?;
    }
    writeln!(Output, "devices")?;
    for d in list(&found["devices"]) {
        let name = d["device"].as_str().unwrap_or_default();
        match d["available"].as_bool() {
            Some(true) => line(name, format!("works: {}", text(&d["about"])))?,
            _ => line(name, text(&d["reason"]))?,
        }
        help(&d["hint"])?;
    }
    print_caches(&found["caches"], bytes)?;
    writeln!(Output, "environment")?;
    for v in list(&found["environment"]).iter().filter(|v| v["value"].is_string()) {
        let verdict =
            v["fault"].as_str().map_or_else(|| "ok".to_owned(), |why| format!("NOT HONOURED: {why}"));
        line(v["name"].as_str().unwrap_or_default(), format!("{}  {verdict}", text(&v["value"])))?;
        help(&v["hint"])?;
    }
    writeln!(Output, "test data (only the tests of RLX need it)")?;
    let data = list(&found["test_data"]);
    for set in &data {
        line(
            set["name"].as_str().unwrap_or_default(),
            if set["present"] == true { "there" } else { "absent" }.to_owned(),
        )?;
    }
    if data.iter().any(|set| set["present"] != true) {
        help(&json!("`cargo xtask data` fetches it with pip"))?;
    }
    let faults = list(&found["faults"]);
    if faults.is_empty() {
        writeln!(Output, "all is well")?;
    }
    faults.iter().try_for_each(|fault| writeln!(Output, "fault: {}", text(fault)))
}

fn print_caches(caches: &Json, bytes: impl Fn(&Json) -> String) -> Result<(), Failure> {
    writeln!(Output, "caches")?;
    let state = match (caches["exists"].as_bool(), caches["not_writable"].as_str()) {
        (_, Some(why)) => format!("not writable: {why}"),
        (Some(true), None) => "writable".to_owned(),
        _ => "does not exist yet, can be created".to_owned(),
    };
    writeln!(Output, "  {:<16} {}, {state}", "folder", caches["folder"].as_str().unwrap_or("none"))?;
    help(&caches["hint"])?;
    for part in caches["parts"].as_array().into_iter().flatten() {
        let not_used = part["not_used"].as_str().map_or_else(String::new, |why| format!(", not used: {why}"));
        let name = part["folder"].as_str().unwrap_or_default();
        writeln!(Output, "  {name:<16} {}{not_used}", bytes(&part["bytes"]))?;
        help(&part["hint"])?;
    }
    let models = &caches["compiled_models"];
    if models.is_object() {
        let limit = bytes(&models["limit"]);
        writeln!(
            Output,
            "  {:<16} {}, {} of at most {limit}; {} stale",
            "compiled models",
            print::counted(models["entries"].as_u64().unwrap_or(0) as usize, "entry", "entries"),
            bytes(&models["bytes"]),
            models["stale"]
        )?;
        if models["stale"].as_u64().unwrap_or(0) > 0 {
            help(&json!(
                "stale ones are compiled again when they are used; `rlx cache rm --all` removes them"
            ))?;
        }
    }
    if let Some(why) = caches["compiled_models_fault"].as_str() {
        writeln!(Output, "  {:<16} {why}", "compiled models")?;
    }
    Ok(())
}

/// Prints a hint, if there is one.
fn help(hint: &Json) -> Result<(), Failure> {
    if let Some(hint) = hint.as_str() {
        writeln!(Output, "  {:<16} help: {hint}", "")?;
    }
    Ok(())
}
