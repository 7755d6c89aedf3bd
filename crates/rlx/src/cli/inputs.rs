//! Inputs from files, pictures, JSON, or made up.

use std::borrow::Borrow;
use std::path::{Path, PathBuf};

use rlx_ir::tensor::Elements;
use rlx_ir::{ConstData, DType, DTypeClass, Dim, Error, ErrorKind, Result, Shape, Value, sym};
use rlx_runtime::{TensorInfo, nearest};
use serde_json::Value as Json;

use super::args::Common;
use super::failure::Failure;
use super::picture;

/// Named inputs.
pub type Inputs = Vec<(String, ConstData)>;

/// What the arguments give, for the inputs a model declares; with `fill`, the others are made up.
pub fn gather(common: &Common, declared: &[TensorInfo], fill: bool) -> Result<Inputs, Failure> {
    let mut inputs = Inputs::new();
    let mut random: Vec<&TensorInfo> = Vec::new();
    if let Some(path) = &common.inputs {
        for (name, data) in rlx_weights::npz::read(path)? {
            let info = find(declared, &name)?;
            inputs.push((name, fitted(info, data)?));
        }
    }
    for (name, file) in &common.input {
        let info = find(declared, name)?;
        inputs.retain(|(n, _)| n != name);
        if file == "random" {
            random.push(info);
        } else {
            inputs.push((name.clone(), read(Path::new(file), info)?));
        }
    }
    if fill {
        let given = |i: &&TensorInfo| inputs.iter().any(|(n, _)| *n == i.name) || random.contains(i);
        let missing: Vec<&TensorInfo> = declared.iter().filter(|i| !given(i)).collect();
        random.extend(missing);
    }
    let sizes = sizes_of(declared, &inputs);
    for info in random {
        let data = made_up(info, &sizes)?;
        inputs.push((info.name.clone(), data));
    }
    Ok(inputs)
}

/// The files of the command line as one batch for the first input that is not given yet.
pub fn batch(files: &[PathBuf], declared: &[TensorInfo], inputs: &mut Inputs) -> Result<(), Failure> {
    let free = declared.iter().find(|info| !inputs.iter().any(|(n, _)| *n == info.name));
    let Some(info) = free else {
        let message = format!("{} is given, but every input has its value already", files[0].display());
        return Err(Failure::Usage(message));
    };
    let items = files.iter().map(|file| read(file, info)).collect::<Result<Vec<_>>>()?;
    let data = match items.as_slice() {
        [one] => one.clone(),
        _ => stacked(info, files, &items)?,
    };
    inputs.push((info.name.clone(), data));
    Ok(())
}

/// Whether every input has a value; the error says how to give those that have none.
pub fn check_complete(declared: &[TensorInfo], inputs: &Inputs) -> Result<()> {
    let missing: Vec<&TensorInfo> =
        declared.iter().filter(|info| !inputs.iter().any(|(n, _)| *n == info.name)).collect();
    let Some(first) = missing.first() else { return Ok(()) };
    let others = match missing.len() {
        1 => String::new(),
        n => format!(" (nor were {} others)", n - 1),
    };
    let message = format!("input \"{}\" was not given{others}; it is {}", first.name, first.shape);
    let hint = missing.iter().map(|i| format!("--input {}=FILE", i.name)).collect::<Vec<_>>().join(" ");
    let hint = format!("add {hint} (.npy, .png, .json, or the word random), or all by --inputs FILE.npz");
    Err(Error::new(ErrorKind::Binding, message).with_hint(hint))
}

/// The input of this name.
pub fn find<'a, I: Borrow<TensorInfo>>(declared: &'a [I], name: &str) -> Result<&'a TensorInfo> {
    declared.iter().map(Borrow::borrow).find(|info: &&TensorInfo| info.name == name).ok_or_else(|| {
        let names: Vec<&str> = declared.iter().map(|i| i.borrow().name.as_str()).collect();
        let message = format!("the model has no input \"{name}\"; its inputs: {}", names.join(", "));
        let e = Error::new(ErrorKind::Binding, message);
        match nearest(name, names) {
            Some(close) => e.with_hint(format!("did you mean \"{close}\"?")),
            None => e,
        }
    })
}

/// Items along the first dimension.
fn stacked(info: &TensorInfo, files: &[PathBuf], items: &[ConstData]) -> Result<ConstData> {
    let misfit = |message: String| Error::new(ErrorKind::Shape, message);
    let first = &items[0];
    if info.shape.dims().first().is_none_or(|d| d.as_static().is_some_and(|n| n != items.len())) {
        let message =
            format!("{} files do not fit into input \"{}\", {}", items.len(), info.name, info.shape);
        return Err(misfit(message));
    }
    let mut bytes = Vec::new();
    for (item, file) in items.iter().zip(files) {
        if item.dims() != first.dims() || item.dims().first() != Some(&1) {
            let message = format!(
                "{} makes {}, which does not stack on the {} of {}",
                file.display(),
                item.shape(),
                first.shape(),
                files[0].display()
            );
            return Err(misfit(message));
        }
        bytes.extend_from_slice(item.bytes());
    }
    let mut dims = first.dims().to_vec();
    dims[0] = items.len();
    ConstData::new(first.dtype(), &dims, bytes)
}

/// One input from a file, by its ending.
pub fn read(path: &Path, info: &TensorInfo) -> Result<ConstData> {
    let ending = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    match ending.as_str() {
        "npy" => fitted(info, rlx_weights::npy::read(path)?),
        "png" => picture::read(path, &info.shape),
        "json" => {
            let named = |e: String| Error::new(ErrorKind::Parse, format!("{}: {e}", path.display()));
            let text = std::fs::read_to_string(path)
                .map_err(|e| Error::new(ErrorKind::Io, format!("{}: {e}", path.display())))?;
            let json: Json = serde_json::from_str(&text).map_err(|e| named(e.to_string()))?;
            from_json(&json, info).map_err(|e| e.with_origin(path.display().to_string()))
        }
        _ if !path.exists() => {
            let message = format!("{}: there is no such file or folder", path.display());
            Err(Error::new(ErrorKind::Io, message))
        }
        _ => {
            let message = format!("{}: inputs are .npy, .png or .json files", path.display());
            Err(Error::new(ErrorKind::Unsupported, message).with_hint(match ending.as_str() {
                "jpg" | "jpeg" | "webp" | "gif" | "bmp" | "tif" | "tiff" => "save the picture as PNG",
                "npz" => "give an archive of several inputs by --inputs",
                _ => "NumPy writes .npy files by numpy.save",
            }))
        }
    }
}

/// `data` in the declared type, where every element survives.
fn fitted(info: &TensorInfo, data: ConstData) -> Result<ConstData> {
    if data.dtype() == info.dtype {
        return Ok(data);
    }
    let value = data.value();
    let converted = match (&value.elements, info.dtype.class()) {
        (Elements::Float(v), DTypeClass::Float) => Some(Value::float(info.dtype, &value.dims, v.clone())),
        (Elements::Int(v), DTypeClass::Float) => {
            Some(Value::float(info.dtype, &value.dims, v.iter().map(|&i| i as f64).collect()))
        }
        (Elements::Int(v), DTypeClass::Signed | DTypeClass::Unsigned | DTypeClass::Bool) => {
            Some(Value::int(info.dtype, &value.dims, v.clone()))
        }
        _ => None,
    };
    let same = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan());
    if let Some(converted) = converted {
        let rounded = converted.rounded();
        if rounded.to_f64().iter().zip(value.to_f64()).all(|(&a, b)| same(a, b)) {
            return Ok(rounded.to_const());
        }
    }
    let message = format!(
        "input \"{}\" is {}, and {} does not convert to it exactly",
        info.name,
        info.shape,
        data.dtype()
    );
    Err(Error::new(ErrorKind::DType, message).with_hint(format!("store it as {}", info.dtype)))
}

/// Nested lists of numbers or truth values.
pub fn from_json(json: &Json, info: &TensorInfo) -> Result<ConstData> {
    let bad = |what: String| Error::new(ErrorKind::Parse, format!("input \"{}\": {what}", info.name));
    let mut dims = Vec::new();
    let mut level = json;
    while let Json::Array(items) = level {
        dims.push(items.len());
        match items.first() {
            Some(first) => level = first,
            None => break,
        }
    }
    let mut leaves = Vec::new();
    flatten(json, &dims, &mut leaves).map_err(bad)?;
    let value = if info.dtype.is_float() {
        let number = |leaf: &&Json| leaf.as_f64().ok_or_else(|| bad(format!("{leaf} is no number")));
        Value::float(info.dtype, &dims, leaves.iter().map(number).collect::<Result<_>>()?)
    } else {
        let (min, max) = info.dtype.int_range().ok_or_else(|| bad(format!("no JSON for {}", info.dtype)))?;
        let whole = |leaf: &&Json| {
            let n = match leaf {
                Json::Bool(b) => Some(i128::from(*b)),
                _ => leaf.as_i64().map(i128::from).or_else(|| leaf.as_u64().map(i128::from)),
            };
            n.filter(|n| (min..=max).contains(n)).ok_or_else(|| {
                let (name, dtype) = (&info.name, info.dtype);
                Error::new(
                    ErrorKind::DType,
                    format!("input \"{name}\" takes {dtype}, and {leaf} is no {dtype}"),
                )
                .with_hint(match info.dtype.bits() {
                    64 => "give whole numbers".to_owned(),
                    _ => format!("give whole numbers from {min} to {max}"),
                })
            })
        };
        Value::int(info.dtype, &dims, leaves.iter().map(whole).collect::<Result<_>>()?)
    };
    Ok(value.rounded().to_const())
}

fn flatten<'a>(json: &'a Json, dims: &[usize], leaves: &mut Vec<&'a Json>) -> Result<(), String> {
    match (json, dims) {
        (Json::Array(items), [n, rest @ ..]) if items.len() == *n => {
            items.iter().try_for_each(|item| flatten(item, rest, leaves))
        }
        (Json::Array(_), _) | (_, [_, ..]) => Err("the lists are not all of one length".to_owned()),
        (leaf, []) => {
            leaves.push(leaf);
            Ok(())
        }
    }
}

/// Sizes of symbols, read off inputs that are there.
fn sizes_of(declared: &[TensorInfo], inputs: &Inputs) -> Vec<(u32, usize)> {
    let mut sizes = Vec::new();
    for (name, data) in inputs {
        let Some(info) = declared.iter().find(|i| i.name == *name) else { continue };
        for (dim, &n) in info.shape.dims().iter().zip(data.dims()) {
            if let Dim::Dynamic(symbol) = *dim {
                sizes.push((symbol, n));
            }
        }
    }
    sizes
}

/// A made-up input, the same every time: floats in −1..1, integers 0 or 1. A batch is 1 unless something says
/// otherwise; other open dimensions must be given.
fn made_up(info: &TensorInfo, sizes: &[(u32, usize)]) -> Result<ConstData, Failure> {
    let mut dims = Vec::with_capacity(info.shape.rank());
    for dim in info.shape.dims() {
        let known = |symbol: u32| sizes.iter().find(|(s, _)| *s == symbol).map(|&(_, n)| n);
        dims.push(match *dim {
            Dim::Static(n) => n,
            Dim::Dynamic(symbol) => match known(symbol) {
                Some(n) => n,
                None if is_batch(&sym::name(symbol)) => 1,
                None => {
                    let name = sym::name(symbol);
                    let message = format!(
                        "input \"{}\" is {}: give --dim {name}=SIZE to make one up",
                        info.name, info.shape
                    );
                    return Err(Failure::Usage(message));
                }
            },
            // A sum of dimensions that have sizes.
            _ => {
                let value = |symbol: u32| known(symbol).and_then(|n| i64::try_from(n).ok());
                let size = dim.extent().eval(&value).and_then(|n| usize::try_from(n).ok());
                size.ok_or_else(|| {
                    let message = format!(
                        "input \"{}\" is {}: give --dim NAME=SIZE for the names in {dim} to make one up",
                        info.name, info.shape
                    );
                    Failure::Usage(message)
                })?
            }
        });
    }
    Ok(random(&info.name, &Shape::new(&dims, info.dtype))?)
}

fn is_batch(name: &str) -> bool {
    matches!(name.to_lowercase().as_str(), "batch" | "batch_size" | "n" | "bs")
}

fn random(name: &str, shape: &Shape) -> Result<ConstData> {
    const MOST_ELEMENTS: usize = 1 << 30;
    let dims = shape.static_dims().unwrap_or_default();
    let Some(n) = shape.num_elements().filter(|&n| n <= MOST_ELEMENTS) else {
        return Err(Error::new(ErrorKind::OutOfMemory, format!("{shape} is too large to make up")));
    };
    let values = rlx_weights::formula::values(name, 1 << 20, 0).take(n);
    let value = match shape.dtype() {
        DType::C64 => return Err(Error::new(ErrorKind::Unsupported, "complex inputs are not made up")),
        dtype if dtype.is_float() => Value::float(dtype, &dims, values.map(f64::from).collect()),
        dtype => Value::int(dtype, &dims, values.map(|v| i128::from(v >= 0.0)).collect()),
    };
    Ok(value.rounded().to_const())
}
