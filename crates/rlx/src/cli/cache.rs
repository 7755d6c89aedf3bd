//! `rlx cache`: the compiled models cached by `--cache`, those of other programs that use the user's cache, and pipeline caches of
//! drivers.

use std::process::ExitCode;
use std::time::Duration;

use rlx_ir::{Error, ErrorKind};
use rlx_runtime::backend::pipelines;
use rlx_runtime::{AotCache, CacheEntry};
use serde_json::{Value as Json, json};

use super::args::{CacheArgs, CacheCommand};
use super::failure::Failure;
use super::output::Output;
use super::print;

/// Looks at the user's cache, or changes it.
pub fn cache(args: &CacheArgs, json: bool) -> Result<ExitCode, Failure> {
    let cache = AotCache::from_env()?;
    match &args.command {
        CacheCommand::Ls => list(&cache, json),
        CacheCommand::Rm { names, all } => remove(&cache, names, *all, json),
        CacheCommand::Verify { names } => verify(&cache, names, json),
    }
}

fn list(cache: &AotCache, json: bool) -> Result<ExitCode, Failure> {
    let entries = cache.entries().map_err(Error::from)?;
    let total: u64 = entries.iter().map(|e| e.bytes).sum();
    let pipeline_folder = pipelines::folder()?;
    let cached = pipelines::list(&pipeline_folder);
    let cached_bytes: u64 = cached.iter().map(|pipeline| pipeline.bytes).sum();
    if json {
        let entries: Json = entries.iter().map(entry_json).collect();
        let (folder, limit) = (cache.root().display().to_string(), cache.limit());
        let pipelines = json!({
            "folder": pipeline_folder.display().to_string(), "files": cached.len(), "bytes": cached_bytes,
            "limit": pipelines::LIMIT,
        });
        let report = json!({
            "folder": folder, "bytes": total, "limit": limit, "entries": entries, "pipelines": pipelines,
        });
        writeln!(Output, "{report}")?;
        return Ok(ExitCode::SUCCESS);
    }
    for e in &entries {
        let fault = e.fault.as_ref().map_or_else(String::new, |fault| format!("  {}", fault.message()));
        let (bytes, age) = (print::bytes(e.bytes as usize), age(e));
        writeln!(Output, "{:<24} {:.8} {bytes:>10}  used {age} ago{fault}", e.name, e.key)?;
    }
    let (total, limit) = (print::bytes(total as usize), print::bytes(cache.limit() as usize));
    let count = entries_text(entries.len());
    writeln!(Output, "{count}, {total} of at most {limit}, in {}", cache.root().display())?;
    if !cached.is_empty() {
        let (bytes, limit) = (print::bytes(cached_bytes as usize), print::bytes(pipelines::LIMIT as usize));
        let count = pipelines_text(cached.len());
        writeln!(Output, "{count}, {bytes} of at most {limit}, in {}", pipeline_folder.display())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn remove(cache: &AotCache, names: &[String], all: bool, json: bool) -> Result<ExitCode, Failure> {
    let mut cached = 0;
    let removed = if all {
        cached = pipelines::clear(&pipelines::folder()?)?;
        cache.clear().map_err(Error::from)?
    } else {
        let chosen = chosen(cache, names)?;
        chosen.iter().try_for_each(|entry| cache.remove_entry(entry)).map_err(Error::from)?;
        chosen.len()
    };
    if json {
        writeln!(Output, "{}", json!({ "removed": removed, "pipelines_removed": cached }))?;
    } else {
        writeln!(Output, "{} removed", entries_text(removed))?;
        if cached > 0 {
            writeln!(Output, "{} removed", pipelines_text(cached))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn verify(cache: &AotCache, names: &[String], json: bool) -> Result<ExitCode, Failure> {
    let entries =
        if names.is_empty() { cache.entries().map_err(Error::from)? } else { chosen(cache, names)? };
    let judged: Vec<(&CacheEntry, Option<String>)> =
        entries.iter().map(|e| (e, cache.verify_entry(e).err().map(|fault| fault.to_string()))).collect();
    let damaged = judged.iter().filter(|(_, fault)| fault.is_some()).count();
    if json {
        let entry = |(e, fault): &(&CacheEntry, Option<String>)| {
            let mut entry = entry_json(e);
            entry["fault"] = json!(fault);
            entry
        };
        let entries: Json = judged.iter().map(entry).collect();
        writeln!(Output, "{}", json!({ "ok": damaged == 0, "damaged": damaged, "entries": entries }))?;
    } else {
        for (e, fault) in &judged {
            writeln!(Output, "{:<24} {:.8} {}", e.name, e.key, fault.as_deref().unwrap_or("ok"))?;
        }
        writeln!(Output, "{}, {damaged} damaged", entries_text(judged.len()))?;
    }
    Ok(if damaged == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The entries that are called so, or whose key starts so.
fn chosen(cache: &AotCache, names: &[String]) -> Result<Vec<CacheEntry>, Failure> {
    let entries = cache.entries().map_err(Error::from)?;
    let is_one =
        |e: &CacheEntry, name: &String| e.name == *name || (name.len() >= 4 && e.key.starts_with(name));
    for name in names {
        if !entries.iter().any(|e| is_one(e, name)) {
            let message = format!("the cache in {} has no entry \"{name}\"", cache.root().display());
            return Err(Error::new(ErrorKind::Io, message).with_hint("rlx cache ls lists them").into());
        }
    }
    Ok(entries.into_iter().filter(|e| names.iter().any(|name| is_one(e, name))).collect())
}

fn entries_text(n: usize) -> String {
    print::counted(n, "entry", "entries")
}

fn pipelines_text(n: usize) -> String {
    print::counted(n, "pipeline of a driver", "pipelines of drivers")
}

fn entry_json(e: &CacheEntry) -> Json {
    let used = e.used.duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    json!({
        "name": e.name, "key": e.key, "path": e.path.display().to_string(), "bytes": e.bytes,
        "used_unix": used, "fault": e.fault.as_ref().map(ToString::to_string),
    })
}

fn age(e: &CacheEntry) -> String {
    match e.used.elapsed().unwrap_or(Duration::ZERO).as_secs() {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s @ 7200..172_800 => format!("{} h", s / 3600),
        s => format!("{} days", s / 86_400),
    }
}
