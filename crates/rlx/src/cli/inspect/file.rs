//! What a file holds, as text and as JSON: of an ONNX file that may be impossible to run, and of files of weights.

use std::fmt::Write;

use rlx_onnx::{OnnxFile, Survey};
use rlx_weights::listing::{ListedTensor, Listing};
use serde_json::{Value as Json, json};

use crate::cli::args::Common;
use crate::cli::print::{bytes, counted};

/// Metadata is cut after so many characters in text; JSON has all of it.
const LONGEST: usize = 100;

/// The survey of a model file that is one, although it cannot be run.
pub fn survey(common: &Common) -> Option<Survey> {
    OnnxFile::open(&common.model).ok().map(|file| Survey::of(&file))
}

/// A model that cannot be run: what its file holds, and why.
pub fn survey_text(model: &str, survey: &Survey, fault: &str) -> String {
    let mut out = format!("{model} (cannot be run)\n");
    // Writing to a string does not fail.
    let _ = write_pairs(&mut out, "inputs", &survey.inputs);
    let _ = write_pairs(&mut out, "outputs", &survey.outputs);
    let _ = write_file(&mut out, survey);
    let _ = write_ops(&mut out, survey);
    let _ = writeln!(out, "\n{fault}");
    out
}

fn write_pairs(out: &mut String, title: &str, pairs: &[(String, String)]) -> std::fmt::Result {
    if pairs.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{title}")?;
    pairs.iter().try_for_each(|(name, value)| writeln!(out, "  {name:<24} {}", shortened(value)))
}

/// On one line, and not too long.
fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

/// The part about the file, which models that run have too.
pub fn write_file(out: &mut String, survey: &Survey) -> std::fmt::Result {
    writeln!(out, "\nfile")?;
    let opsets: Vec<String> = survey.opsets.iter().map(|(domain, v)| format!("{domain} {v}")).collect();
    let size = bytes(survey.file_bytes);
    for (name, value) in [
        ("graph", survey.graph.clone()),
        ("producer", survey.producer.clone()),
        ("opsets", opsets.join(", ")),
        ("format", format!("ONNX IR {}, {size}", survey.ir_version)),
    ] {
        if !value.is_empty() {
            writeln!(out, "  {name:<24} {}", shortened(&value))?;
        }
    }
    if survey.functions > 0 {
        writeln!(out, "  {:<24} {}", "functions", survey.functions)?;
    }
    for tensors in &survey.tensors {
        let count = counted(tensors.count, "tensor", "tensors");
        writeln!(out, "  {:<24} {count}, {}", tensors.dtype, bytes(tensors.bytes as usize))?;
    }
    for external in &survey.external {
        let count = counted(external.tensors, "tensor", "tensors");
        let fault = external.fault.as_ref().map_or(String::new(), |fault| format!(": {fault}"));
        writeln!(out, "  {:<24} {count} in this file{fault}", external.location)?;
    }
    write_pairs(out, "metadata", &survey.metadata)
}

/// Ops of a model that cannot be run, and those that are the reason.
fn write_ops(out: &mut String, survey: &Survey) -> std::fmt::Result {
    if !survey.largest.is_empty() {
        writeln!(out, "\nlargest tensors")?;
        for tensor in &survey.largest {
            writeln!(out, "  {:<40} {:<28} {}", tensor.name, tensor.shape, bytes(tensor.bytes as usize))?;
        }
    }
    writeln!(out, "\nops ({})", counted(survey.nodes(), "node", "nodes"))?;
    survey.ops.iter().try_for_each(|op| writeln!(out, "  {:<24} {}", op.name, op.count))?;
    if let Some(fault) = &survey.opset_fault {
        writeln!(out, "\nnot supported: {fault}")?;
    }
    if survey.unsupported().next().is_some() {
        writeln!(out, "\nops that are not supported")?;
    }
    for op in survey.unsupported() {
        let fault = op.fault.as_deref().unwrap_or_default();
        writeln!(out, "  {:<24} {:<6} {fault}; first: {}", op.name, op.count, op.first)?;
    }
    Ok(())
}

/// The same for programs.
pub fn survey_json(survey: &Survey) -> Json {
    let tensor = |t: &(String, String)| json!({ "name": t.0, "type": t.1 });
    let op = |op: &rlx_onnx::OpCount| json!({ "op": op.name, "nodes": op.count, "first": op.first, "fault": op.fault });
    json!({
        "graph": survey.graph, "producer": survey.producer, "ir_version": survey.ir_version,
        "opsets": pairs_json(survey.opsets.iter().map(|(d, v)| (d.clone(), json!(v)))),
        "opset_fault": survey.opset_fault,
        "inputs": survey.inputs.iter().map(tensor).collect::<Json>(),
        "outputs": survey.outputs.iter().map(tensor).collect::<Json>(),
        "metadata": pairs_json(survey.metadata.iter().map(|(k, v)| (k.clone(), json!(v)))),
        "nodes": survey.nodes(), "ops": survey.ops.iter().map(op).collect::<Json>(),
        "unsupported": survey.unsupported().map(op).collect::<Json>(),
        "functions": survey.functions,
        "tensors": survey.tensors.iter()
            .map(|t| json!({ "dtype": t.dtype, "count": t.count, "bytes": t.bytes })).collect::<Json>(),
        "largest": survey.largest.iter()
            .map(|t| json!({ "name": t.name, "shape": t.shape, "bytes": t.bytes })).collect::<Json>(),
        "external": survey.external.iter()
            .map(|e| json!({ "location": e.location, "tensors": e.tensors, "fault": e.fault })).collect::<Json>(),
        "file_bytes": survey.file_bytes,
    })
}

fn pairs_json(pairs: impl Iterator<Item = (String, Json)>) -> Json {
    Json::Object(pairs.collect())
}

/// A file of weights.
pub fn listing_text(name: &str, listing: &Listing) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_listing(&mut out, name, listing);
    out
}

fn write_listing(out: &mut String, name: &str, listing: &Listing) -> std::fmt::Result {
    writeln!(out, "{name}: {}, {}", listing.format, bytes(listing.file_bytes))?;
    write_pairs(out, "metadata", &listing.metadata)?;
    writeln!(out, "\ntypes")?;
    for (dtype, count, sum) in listing.by_type() {
        let count = counted(count, "tensor", "tensors");
        writeln!(out, "  {dtype:<24} {count}, {}", bytes(sum as usize))?;
    }
    writeln!(out, "\ntensors")?;
    let width = listing.tensors.iter().map(|t| t.name.chars().count()).max().unwrap_or(0).clamp(24, 60);
    for tensor in &listing.tensors {
        let size = tensor.bytes.map_or_else(|| "unknown size".to_owned(), |n| bytes(n as usize));
        writeln!(out, "  {:<width$} {:<8} {:<20} {size}", tensor.name, tensor.dtype, dims(tensor))?;
    }
    writeln!(out, "\nIt holds weights and no graph: `rlx run` takes the model's ONNX file.")
}

fn dims(tensor: &ListedTensor) -> String {
    let dims: Vec<String> = tensor.dims.iter().map(u64::to_string).collect();
    format!("[{}]", dims.join(", "))
}

/// The same for programs.
pub fn listing_json(name: &str, listing: &Listing) -> Json {
    let tensor =
        |t: &ListedTensor| json!({ "name": t.name, "dtype": t.dtype, "shape": t.dims, "bytes": t.bytes });
    json!({
        "file": name, "format": listing.format, "file_bytes": listing.file_bytes,
        "metadata": pairs_json(listing.metadata.iter().map(|(k, v)| (k.clone(), json!(v)))),
        "tensors": listing.tensors.iter().map(tensor).collect::<Json>(),
    })
}
