//! The weights of the models kept in this repository: a formula instead of files of numbers.
//!
//! A graph under `models/` names its large initialisers as ordinary ONNX external data; the data file is not
//! kept. `NAME.weights.json` says how to make it, `models/README.md` writes the formula down, and
//! [`materialise`] makes graph and data file side by side, so that the ordinary importer loads them.
//!
//! ```
//! let first = rlx_weights::formula::values("x", 1572864, 0).next().unwrap();
//! assert_eq!(first.to_bits(), 0xbf6578da);
//! ```

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rlx_ir::{Error, ErrorKind, WeightStore};
use serde::Deserialize;

use crate::malformed;
use rlx_ir::files::{io_error, write_whole};

/// FNV-1a, 64 bits, of the name's UTF-8 bytes.
pub fn seed(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// The elements of the tensor called `name`, in row-major order, without end: SplitMix64 started at the name's
/// hash, within `shift - scale ..= shift + scale` (both in units of 2⁻²⁰), rounded once.
pub fn values(name: &str, scale: i64, shift: i64) -> impl Iterator<Item = f32> {
    let seed = seed(name);
    (1u64..).map(move |i| {
        let mut z = seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let k = ((z ^ (z >> 31)) >> 40) as i64;
        let exact = shift.wrapping_shl(23).wrapping_add(scale.wrapping_mul(k - (1 << 23)));
        (exact as f64 / (1u64 << 43) as f64) as f32
    })
}

/// Where a plan's values come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Values {
    /// From [`values`].
    Formula,
    /// From the tensors of a safetensors file.
    Safetensors,
}

/// `NAME.weights.json`: how to make a model's data file.
#[derive(Debug, Clone, Deserialize)]
pub struct Plan {
    /// The data file's name.
    pub file: String,
    /// How long it is; gaps between tensors are zero.
    pub bytes: u64,
    /// Where values come from.
    pub values: Values,
    /// The tensors.
    pub tensors: Vec<PlannedTensor>,
}

/// One tensor of a [`Plan`].
#[derive(Debug, Clone, Deserialize)]
pub struct PlannedTensor {
    /// The initialiser's name.
    pub name: String,
    /// The initialiser's dimensions.
    pub shape: Vec<usize>,
    /// Where it starts in the file.
    pub offset: u64,
    /// How many bytes it takes.
    pub length: u64,
    /// Whose values it has: a name for the formula, or a key of the safetensors file.
    pub source: String,
    /// Whether it is the source transposed.
    #[serde(default)]
    pub transpose: bool,
    /// The spread, in units of 2⁻²⁰.
    #[serde(default)]
    pub scale: i64,
    /// The middle, in units of 2⁻²⁰.
    #[serde(default)]
    pub shift: i64,
}

/// More than any model kept here has: a plan that asks for more is broken.
const MOST_BYTES: u64 = 1 << 32;

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// Text that is no plan, or one whose sizes do not fit together.
    pub fn parse(text: &str) -> Result<Plan, Error> {
        let plan: Plan = serde_json::from_str(text).map_err(|e| malformed(format!("weights plan: {e}")))?;
        if plan.bytes > MOST_BYTES || plan.file.contains(['/', '\\']) {
            return Err(malformed(format!("weights plan: {} bytes in \"{}\"", plan.bytes, plan.file)));
        }
        for t in &plan.tensors {
            let elements = t.shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d as u64));
            let fits = elements.and_then(|n| n.checked_mul(4)) == Some(t.length)
                && t.offset.checked_add(t.length).is_some_and(|end| end <= plan.bytes)
                && (!t.transpose || t.shape.len() == 2);
            if !fits {
                return Err(malformed(format!("weights plan: tensor \"{}\" does not fit", t.name)));
            }
        }
        Ok(plan)
    }

    /// The little-endian bytes of one tensor; `store` holds the sources of plans from safetensors.
    ///
    /// # Errors
    /// A source that is missing or of another shape.
    pub fn tensor(&self, tensor: &PlannedTensor, store: Option<&WeightStore>) -> Result<Vec<u8>, Error> {
        let elements = tensor.length as usize / 4;
        let source: Vec<u8> = match self.values {
            Values::Formula => {
                let values = values(&tensor.source, tensor.scale, tensor.shift);
                values.take(elements).flat_map(f32::to_le_bytes).collect()
            }
            Values::Safetensors => {
                let missing = || malformed(format!("the weights have no tensor \"{}\"", tensor.source));
                let weight = store.and_then(|s| s.get(&tensor.source)).ok_or_else(missing)?;
                if weight.dtype() != rlx_ir::DType::F32 || weight.dims().iter().product::<usize>() != elements
                {
                    let message = format!("tensor \"{}\" is {}", tensor.source, weight.shape());
                    return Err(malformed(message));
                }
                weight.bytes()?.into_owned()
            }
        };
        match (tensor.transpose, tensor.shape.as_slice()) {
            (true, &[rows, columns]) => {
                let at = |i: usize| (i % columns * rows + i / columns) * 4;
                Ok((0..elements).flat_map(|i| source[at(i)..at(i) + 4].iter().copied()).collect())
            }
            _ => Ok(source),
        }
    }
}

/// Writes a model's graph and its data file side by side into `folder`, and gives the graph's path. What is
/// already there and up to date stays.
///
/// `plan` is the path of `NAME.weights.json`, if the graph has one; `safetensors` the file with real weights that
/// some plans ask for.
///
/// # Errors
/// Files that cannot be read or written, a broken plan, real weights that are asked for and missing.
pub fn materialise(
    graph: &Path,
    plan: Option<&Path>,
    safetensors: Option<&Path>,
    folder: &Path,
) -> Result<PathBuf, Error> {
    fs::create_dir_all(folder).map_err(|e| io_error(folder, e))?;
    let name = graph.file_name().ok_or_else(|| malformed(format!("{} is no file", graph.display())))?;
    let target = folder.join(name);
    if let Some(plan_path) = plan {
        let text = fs::read_to_string(plan_path).map_err(|e| io_error(plan_path, e))?;
        let plan = Plan::parse(&text).map_err(|e| e.with_origin(plan_path.display().to_string()))?;
        let (data, stamp) = (folder.join(&plan.file), folder.join(format!("{}.plan", plan.file)));
        let there = fs::metadata(&data).is_ok_and(|m| m.len() == plan.bytes);
        if !there || fs::read_to_string(&stamp).ok().as_deref() != Some(&text) {
            let store = match plan.values {
                Values::Formula => None,
                Values::Safetensors => Some(real_weights(safetensors)?),
            };
            write_data(&data, &plan, store.as_ref())?;
            write_whole(&stamp, |file| file.write_all(text.as_bytes()).map_err(|e| io_error(&stamp, e)))?;
        }
    }
    let bytes = fs::read(graph).map_err(|e| io_error(graph, e))?;
    if fs::read(&target).ok().as_deref() != Some(&bytes) {
        write_whole(&target, |file| file.write_all(&bytes).map_err(|e| io_error(&target, e)))?;
    }
    Ok(target)
}

fn real_weights(path: Option<&Path>) -> Result<WeightStore, Error> {
    match path {
        Some(path) => crate::safetensors::open(path),
        None => Err(Error::new(
            ErrorKind::Io,
            "this model has real weights, whose safetensors file was not given",
        )),
    }
}

fn write_data(path: &Path, plan: &Plan, store: Option<&WeightStore>) -> Result<(), Error> {
    write_whole(path, |file| {
        file.set_len(plan.bytes).map_err(|e| io_error(path, e))?;
        for tensor in &plan.tensors {
            let bytes = plan.tensor(tensor, store)?;
            file.seek(SeekFrom::Start(tensor.offset)).map_err(|e| io_error(path, e))?;
            file.write_all(&bytes).map_err(|e| io_error(path, e))?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_vectors_hold() {
        type Vector = (&'static str, i64, i64, u64, [u32; 4]);
        let vectors: [Vector; 3] = [
            ("x", 1572864, 0, 0xaf63f54c86021707, [0xbf6578da, 0x3f6cf2d4, 0x3edc2522, 0x3f7bfcee]),
            (
                "bn1.running_var",
                524288,
                1048576,
                0xe3fa2b7461643d5f,
                [0x3f923722, 0x3fa4b456, 0x3fbc427b, 0x3f71a03c],
            ),
            ("größe", 1048576, 0, 0xb7450e1ef58140da, [0x3ea6d504, 0x3eb97af0, 0x3f15d51c, 0xbf5ba166]),
        ];
        for (name, scale, shift, want_seed, bits) in vectors {
            assert_eq!(seed(name), want_seed);
            let got: Vec<u32> = values(name, scale, shift).take(4).map(f32::to_bits).collect();
            assert_eq!(got, bits, "{name}");
        }
    }

    fn plan(transpose: bool) -> String {
        format!(
            r#"{{"file": "m.bin", "bytes": 32, "values": "formula", "tensors": [{{"name": "w", "shape": [2, 3],
            "offset": 8, "length": 24, "source": "x", "transpose": {transpose}, "scale": 1048576, "shift": 0}}]}}"#
        )
    }

    #[test]
    fn transposed_tensors_have_the_sources_values() {
        let floats = |transpose| {
            let plan = Plan::parse(&plan(transpose)).unwrap();
            let bytes = plan.tensor(&plan.tensors[0], None).unwrap();
            bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect::<Vec<_>>()
        };
        let source: Vec<f32> = values("x", 1048576, 0).take(6).collect();
        assert_eq!(floats(false), source);
        // Made as 3×2, then transposed.
        assert_eq!(floats(true), [0, 2, 4, 1, 3, 5].map(|i| source[i]));
    }

    #[test]
    fn a_model_is_made_once_and_again_when_its_plan_changes() {
        let folder = std::env::temp_dir().join(format!("rlx-formula-{}", std::process::id()));
        let (from, to) = (folder.join("from"), folder.join("to"));
        fs::create_dir_all(&from).unwrap();
        fs::write(from.join("m.onnx"), b"graph").unwrap();
        let plan_path = from.join("m.weights.json");
        fs::write(&plan_path, plan(false)).unwrap();
        let make = || materialise(&from.join("m.onnx"), Some(&plan_path), None, &to).unwrap();
        assert_eq!(fs::read(make()).unwrap(), b"graph");
        let first = fs::read(to.join("m.bin")).unwrap();
        assert_eq!((first.len(), &first[..8]), (32, &[0; 8][..]));
        let written = fs::metadata(to.join("m.bin")).unwrap().modified().unwrap();
        make();
        assert_eq!(fs::metadata(to.join("m.bin")).unwrap().modified().unwrap(), written);
        fs::write(&plan_path, plan(true)).unwrap();
        make();
        assert_ne!(fs::read(to.join("m.bin")).unwrap(), first);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn broken_plans_are_errors() {
        assert!(Plan::parse("{}").is_err());
        for (from, to) in
            [("24", "28"), ("\"offset\": 8", "\"offset\": 16"), ("m.bin", "../m.bin"), ("[2, 3]", "[2]")]
        {
            assert!(Plan::parse(&plan(false).replacen(from, to, 1)).is_err(), "{to}");
        }
    }
}
