//! The inputs given by a command's arguments, from files or random.

use std::path::{Path, PathBuf};

use rlx::inputs::{InputLimit, Inputs, Packed, converted, find, read_prepared};
use rlx_ir::{ConstData, DType, Dim, Error, ErrorKind, Result, Shape, memory, sym};
use rlx_runtime::TensorInfo;

use super::args::Common;
use super::failure::Failure;
use super::image::Images;

/// What the arguments give, for the inputs a model declares; with `fill`, the others are made up.
pub fn gather(
    common: &Common,
    images: &Images<'_>,
    declared: &[TensorInfo],
    fill: bool,
) -> Result<Inputs, Failure> {
    let limit = common.input_limit;
    let mut inputs = match &common.inputs {
        Some(path) => archive(path, declared, limit)?,
        None => Inputs::new(),
    };
    let mut random: Vec<&TensorInfo> = Vec::new();
    for (name, file) in &common.input {
        let info = find(declared, name)?;
        if inputs.iter().any(|(n, _)| n == name) || random.iter().any(|i| i.name == *name) {
            return Err(Failure::Usage(format!("input \"{name}\" is given twice")));
        }
        if file == "random" {
            random.push(info);
        } else {
            let data = read_prepared(Path::new(file), info, limit, || images.preprocess(info))?;
            inputs.push((name.clone(), data));
        }
    }
    make_up(declared, random, fill, &mut inputs, limit)?;
    Ok(inputs)
}

/// Makes up the inputs `random`; with `fill`, also all others that are not given.
pub fn make_up<'a>(
    declared: &'a [TensorInfo],
    mut random: Vec<&'a TensorInfo>,
    fill: bool,
    inputs: &mut Inputs,
    limit: InputLimit,
) -> Result<(), Failure> {
    if fill {
        let given = |i: &&TensorInfo| inputs.iter().any(|(n, _)| *n == i.name) || random.contains(i);
        let missing: Vec<&TensorInfo> = declared.iter().filter(|i| !given(i)).collect();
        random.extend(missing);
    }
    let sizes = sizes_of(declared, inputs);
    for info in random {
        let data = made_up(info, &sizes, limit)?;
        inputs.push((info.name.clone(), data));
    }
    Ok(())
}

/// The arrays of an archive.
pub fn archive(path: &Path, declared: &[TensorInfo], limit: InputLimit) -> Result<Inputs, Failure> {
    let mut seen: Vec<String> = Vec::new();
    let arrays = rlx_weights::npz::read_checked(path, |name, header| {
        let info = find(declared, name)?;
        if seen.iter().any(|n| n == name) {
            return Err(Error::new(ErrorKind::Binding, format!("input \"{name}\" is in the archive twice")));
        }
        seen.push(name.to_owned());
        limit.allows(info, &header.dims, &format!("array \"{name}\""))
    })?;
    let fit = |(name, data): (String, ConstData)| {
        let data = converted(find(declared, &name)?, data)?;
        Ok((name, data))
    };
    arrays.into_iter().map(fit).collect()
}

/// The files of the command line as one batch for the first input that is not given yet.
pub fn batch(
    files: &[PathBuf],
    images: &Images<'_>,
    declared: &[TensorInfo],
    inputs: &mut Inputs,
    limit: InputLimit,
) -> Result<(), Failure> {
    let free = declared.iter().find(|info| !inputs.iter().any(|(n, _)| *n == info.name));
    let Some(info) = free else {
        let message = format!("{} is given, but every input already has a value", files[0].display());
        return Err(Failure::Usage(message));
    };
    let read = |file: &PathBuf| read_prepared(file, info, limit, || images.preprocess(info));
    let items = files.iter().map(read).collect::<Result<Vec<_>>>()?;
    let data = match items.as_slice() {
        [one] => one.clone(),
        _ => stacked(info, files, &items, limit)?,
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
        2 => " (nor was 1 other)".to_owned(),
        n => format!(" (nor were {} others)", n - 1),
    };
    let message = format!("input \"{}\" was not given{others}; it is {}", first.name, first.shape);
    let hint = missing.iter().map(|i| format!("--input {}=FILE", i.name)).collect::<Vec<_>>().join(" ");
    let hint = format!("add {hint} (an image, .npy, .json, or the word random), or all by --inputs FILE.npz");
    Err(Error::new(ErrorKind::Binding, message).with_hint(hint))
}

/// Items along the first dimension.
fn stacked(
    info: &TensorInfo,
    files: &[PathBuf],
    items: &[ConstData],
    limit: InputLimit,
) -> Result<ConstData> {
    let shape_mismatch = |message: String| Error::new(ErrorKind::Shape, message);
    let first = &items[0];
    if info.shape.dims().first().is_none_or(|d| d.as_static().is_some_and(|n| n != items.len())) {
        let message =
            format!("{} files do not fit into input \"{}\", {}", items.len(), info.name, info.shape);
        return Err(shape_mismatch(message));
    }
    let mut dims = first.dims().to_vec();
    if let Some(rows) = dims.first_mut() {
        *rows = items.len();
    }
    limit.allows(info, &dims, "the batch")?;
    let size: usize = items.iter().map(|item| item.bytes().len()).sum();
    memory::ensure(size.saturating_mul(2), || {
        format!("the {} items of input \"{}\"", items.len(), info.name)
    })?;
    let mut bytes = Vec::with_capacity(size);
    for (item, file) in items.iter().zip(files) {
        if item.dims() != first.dims() || item.dims().first() != Some(&1) {
            let message = format!(
                "{} makes {}, which does not stack on the {} of {}",
                file.display(),
                item.shape(),
                first.shape(),
                files[0].display()
            );
            return Err(shape_mismatch(message));
        }
        bytes.extend_from_slice(item.bytes());
    }
    ConstData::new(first.dtype(), &dims, bytes)
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
fn made_up(info: &TensorInfo, sizes: &[(u32, usize)], limit: InputLimit) -> Result<ConstData, Failure> {
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
                        "input \"{}\" is {}: give --dim {name}=SIZE for random values",
                        info.name, info.shape
                    );
                    return Err(Failure::Usage(message));
                }
            },
            // A sum of dimensions that have sizes.
            _ => {
                let value = |symbol: u32| known(symbol).and_then(|n| i64::try_from(n).ok());
                let size = dim.eval(&value).and_then(|n| usize::try_from(n).ok());
                size.ok_or_else(|| {
                    let message = format!(
                        "input \"{}\" is {}: give --dim NAME=SIZE for the names in {dim} for random values",
                        info.name, info.shape
                    );
                    Failure::Usage(message)
                })?
            }
        });
    }
    Ok(random(info, &dims, limit)?)
}

fn is_batch(name: &str) -> bool {
    matches!(name.to_lowercase().as_str(), "batch" | "batch_size" | "n" | "bs")
}

fn random(info: &TensorInfo, dims: &[usize], limit: InputLimit) -> Result<ConstData> {
    if info.dtype == DType::C64 {
        return Err(Error::new(ErrorKind::Unsupported, "complex inputs cannot be random"));
    }
    // Nothing bounds what a model fixes but memory, and none is made up that is larger than the limit.
    let open =
        TensorInfo { shape: Shape::from_dims(&[Dim::Dynamic(sym::BATCH)], info.dtype), ..info.clone() };
    limit.allows(&open, dims, "the random input")?;
    let count = dims.iter().product();
    let mut packed = Packed::of(&open, limit);
    for v in rlx_weights::formula::values(&info.name, 1 << 20, 0).take(count) {
        match info.dtype.is_float() {
            true => packed.push_float(f64::from(v))?,
            false => packed.push_int(i128::from(v >= 0.0))?,
        };
    }
    packed.finish(dims)
}
