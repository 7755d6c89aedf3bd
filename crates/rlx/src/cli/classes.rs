//! Output scores as named classes.

use std::io::Read;
use std::path::Path;

use rlx::units::{bytes, counted};
use rlx_ir::files::{io_error, open_file};
use rlx_ir::sort::sort_by;
use rlx_ir::{ConstData, Error, ErrorKind, Result};
use serde_json::{Value as Json, json};

/// A class and how likely it is.
pub struct Class {
    index: usize,
    label: String,
    probability: f64,
}

/// For each item of the batch, its likeliest classes.
pub struct Classes {
    /// The likeliest first.
    pub items: Vec<Vec<Class>>,
    /// Whether the model gave scores, which softmax made into probabilities.
    pub softmax: bool,
}

impl Class {
    /// As text.
    pub fn text(&self) -> String {
        format!("{} {:5.1} %", self.label, self.probability * 100.0)
    }

    /// As JSON.
    pub fn json(&self) -> Json {
        json!({ "label": self.label, "index": self.index, "probability": self.probability })
    }
}

/// The names of classes, a line each.
pub fn read_labels(path: &Path) -> Result<Vec<String>> {
    const MOST: u64 = 64 << 20;
    let mut text = String::new();
    let file = open_file(path)?;
    file.take(MOST + 1).read_to_string(&mut text).map_err(|e| io_error(path, e))?;
    if text.len() as u64 > MOST {
        let message = format!("{}: labels of more than {}", path.display(), bytes(MOST as usize));
        return Err(Error::new(ErrorKind::Malformed, message));
    }
    Ok(text.lines().map(str::to_owned).collect())
}

/// The `top` likeliest classes of every item: by the first output that ends in as many elements as there are labels.
///
/// # Errors
/// No such output.
pub fn classify(outputs: &[(String, ConstData)], labels: &[String], top: usize) -> Result<Classes> {
    let fits = |d: &ConstData| d.dtype().is_float() && d.dims().last() == Some(&labels.len());
    let found = outputs.iter().find(|(_, data)| fits(data));
    let (_, data) = found.filter(|_| !labels.is_empty()).ok_or_else(|| {
        let shapes: Vec<String> = outputs.iter().map(|(n, d)| format!("\"{n}\" {}", d.shape())).collect();
        let message = format!(
            "{}, but no output ends in that many: {}",
            counted(labels.len(), "label", "labels"),
            shapes.join(", ")
        );
        Error::new(ErrorKind::Shape, message)
    })?;
    let values = data.value().to_f64();
    let rows = || values.chunks_exact(labels.len());
    let is_probability = |row: &[f64]| {
        row.iter().all(|&p| (0.0..=1.0).contains(&p)) && (row.iter().sum::<f64>() - 1.0).abs() < 1e-3
    };
    let softmax = !rows().all(is_probability);
    let item = |row: &[f64]| {
        let row = if softmax { softmaxed(row) } else { row.to_vec() };
        let mut order: Vec<usize> = (0..row.len()).collect();
        sort_by(&mut order, |&a, &b| row[b].total_cmp(&row[a]));
        let class = |i: usize| Class { index: i, label: labels[i].clone(), probability: row[i] };
        order.into_iter().take(top).map(class).collect()
    };
    Ok(Classes { items: rows().map(item).collect(), softmax })
}

fn softmaxed(row: &[f64]) -> Vec<f64> {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = row.iter().map(|v| (v - max).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.iter().map(|e| e / sum).collect()
}
