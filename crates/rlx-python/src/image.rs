//! Photographs as inputs of models: `Model.image`.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use rlx::image::{Colors, Crop, Declared, Filter, Image, Layout, Preprocess, Resize};
use rlx::inputs::InputLimit;
use rlx_ir::DType;
use rlx_runtime::TensorInfo;

use crate::array;
use crate::errors::OrRaise;

/// The bars of a letterbox.
const GREY: u8 = 114;

/// A picture: the path or the bytes of a JPEG, PNG or WebP file, or bytes as an array `[height, width]` or
/// `[height, width, channels]`.
pub fn open(source: &Bound<'_, PyAny>) -> PyResult<Image> {
    let (py, limit) = (source.py(), InputLimit::default());
    if let Ok(bytes) = source.cast::<PyBytes>() {
        let bytes = bytes.as_bytes();
        return py.detach(|| Image::decode(Cursor::new(bytes), limit)).or_raise(py);
    }
    if let Ok(path) = source.extract::<PathBuf>() {
        return py.detach(|| Image::open(&path, limit)).or_raise(py);
    }
    let pixels = array::input(source, Some(DType::U8))?;
    let (height, width, channels) = match *pixels.dims.as_slice() {
        [height, width] => (height, width, 1),
        [height, width, channels] => (height, width, channels),
        _ => {
            return Err(PyValueError::new_err(
                "an image has shape [height, width] or [height, width, channels]",
            ));
        }
    };
    if pixels.dtype != DType::U8 {
        return Err(PyTypeError::new_err(format!("the pixels of an image are u8, not {}", pixels.dtype)));
    }
    Image::new(width, height, channels, pixels.view("image").bytes.to_vec()).or_raise(py)
}

/// How images are prepared: by the preset that is named, else by what the model declares, with what the options say instead.
pub fn preprocess(
    py: Python<'_>,
    model: Option<&Path>,
    properties: &[(String, String)],
    info: &TensorInfo,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Preprocess> {
    let Some(options) = options else { return declared(py, model, properties) };
    let preset =
        options.get_item("preset")?.filter(|p| !p.is_none()).map(|p| p.extract::<String>()).transpose()?;
    let mut chosen = match preset {
        Some(name) => Preprocess::preset(&name, &info.shape).or_raise(py)?,
        None => declared(py, model, properties)?,
    };
    for (name, value) in options.iter().filter(|(_, value)| !value.is_none()) {
        let name: String = name.extract()?;
        match name.as_str() {
            "preset" => {}
            "resize" => chosen.resize = Some(resize(&value)?),
            "filter" => chosen.filter = filter(&value.extract::<String>()?)?,
            "crop" => {
                let (width, height) = size(&value)?;
                chosen.crop = Some(Crop::center(width, height));
            }
            "scale" => chosen.scale = Some(value.extract()?),
            "mean" => chosen.mean = numbers(&value)?,
            "std" => chosen.std = numbers(&value)?,
            "colors" => {
                chosen.colors = match value.extract::<String>()?.as_str() {
                    "rgb" => Colors::Rgb,
                    "bgr" => Colors::Bgr,
                    other => {
                        return Err(PyValueError::new_err(format!(
                            "colors are \"rgb\" or \"bgr\", not {other:?}"
                        )));
                    }
                };
            }
            "layout" => {
                let name = value.extract::<String>()?.to_lowercase();
                let found =
                    [Layout::Nchw, Layout::Nhwc].into_iter().find(|l| l.name().to_lowercase() == name);
                chosen.layout =
                    Some(found.ok_or_else(|| PyValueError::new_err("layout is \"nchw\" or \"nhwc\""))?);
            }
            _ => {
                let message = format!(
                    "there is no option {name:?} of images; options: preset, resize, filter, crop, scale, mean, std, colors, layout"
                );
                return Err(PyTypeError::new_err(message));
            }
        }
    }
    Ok(chosen)
}

/// What the model or a file beside it declares; nothing is done where neither speaks of images.
fn declared(py: Python<'_>, model: Option<&Path>, properties: &[(String, String)]) -> PyResult<Preprocess> {
    let found = match model {
        Some(path) => Declared::of_model(path, properties),
        None => Ok(Declared::from_metadata(properties)),
    };
    Ok(found.or_raise(py)?.map(|d| d.preprocess).unwrap_or_default())
}

/// A number for the shorter side, a pair of width and height, `"input"`, or `"letterbox"`.
fn resize(value: &Bound<'_, PyAny>) -> PyResult<Resize> {
    if let Ok(word) = value.cast::<PyString>() {
        return match word.to_cow()?.as_ref() {
            "input" => Ok(Resize::Input),
            "letterbox" => Ok(Resize::LetterboxInput),
            other => Err(PyValueError::new_err(format!(
                "resize takes a size, \"input\" or \"letterbox\", not {other:?}"
            ))),
        };
    }
    if let Ok(edge) = value.extract::<usize>() {
        return Ok(Resize::Shortest { edge: pixels(edge)?, longest: None });
    }
    // `("letterbox", 640, 480)`: the whole image within this size.
    if let Ok((word, width, height)) = value.extract::<(String, usize, usize)>()
        && word == "letterbox"
    {
        return Ok(Resize::Letterbox { width: pixels(width)?, height: pixels(height)?, fill: GREY });
    }
    let (width, height) = size(value)?;
    Ok(Resize::Exact { width, height })
}

fn size(value: &Bound<'_, PyAny>) -> PyResult<(usize, usize)> {
    if let Ok(one) = value.extract::<usize>() {
        return Ok((pixels(one)?, pixels(one)?));
    }
    let pair = value.extract::<(usize, usize)>();
    let (width, height) =
        pair.map_err(|_| PyTypeError::new_err("a size is a number, or a pair of width and height"))?;
    Ok((pixels(width)?, pixels(height)?))
}

fn pixels(side: usize) -> PyResult<usize> {
    match side {
        1..=65535 => Ok(side),
        _ => Err(PyValueError::new_err(format!("{side} is not a length in pixels, 1 to 65535"))),
    }
}

fn filter(name: &str) -> PyResult<Filter> {
    Filter::named(name).ok_or_else(|| {
        let names: Vec<&str> = Filter::ALL.iter().map(|f| f.name()).collect();
        PyValueError::new_err(format!("no filter {name:?}; there are {}", names.join(", ")))
    })
}

fn numbers(value: &Bound<'_, PyAny>) -> PyResult<Vec<f64>> {
    value.extract::<f64>().map(|one| vec![one]).or_else(|_| value.extract())
}
