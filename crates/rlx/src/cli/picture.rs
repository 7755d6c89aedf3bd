//! Pictures as tensors.
//!
//! The rule: bytes are read as they are, and a float input gets byte / 255. Nothing is resized, and colours are
//! neither made nor thrown away: what does not fit is an error that says what would.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use rlx_ir::{ConstData, DType, Dim, Error, ErrorKind, Result, Shape, Value};

/// Where an input's dimensions have height, width and channels.
struct Layout {
    channels: Option<usize>,
    height: usize,
    width: usize,
}

impl Layout {
    /// `[.., C, H, W]` when that dimension is 1 or 3, else `[.., H, W, C]`, else `[.., H, W]`.
    fn of(shape: &Shape) -> Option<Layout> {
        let rank = shape.rank();
        let is_channels = |i: usize| matches!(shape.dim(i), Dim::Static(1 | 3));
        match rank {
            3.. if is_channels(rank - 3) => {
                Some(Layout { channels: Some(rank - 3), height: rank - 2, width: rank - 1 })
            }
            3.. if is_channels(rank - 1) => {
                Some(Layout { channels: Some(rank - 1), height: rank - 3, width: rank - 2 })
            }
            2 | 3 => Some(Layout { channels: None, height: rank - 2, width: rank - 1 }),
            _ => None,
        }
    }
}

/// Reads a PNG as one item for an input of this shape (leading dimensions become 1).
///
/// # Errors
/// A file that is no PNG, or a picture whose size or colours the input does not take.
pub fn read(path: &Path, shape: &Shape) -> Result<ConstData> {
    let place = |e: Error| e.with_origin(path.display().to_string());
    let misfit = |message: String| place(Error::new(ErrorKind::Shape, message));
    let layout = Layout::of(shape).ok_or_else(|| misfit(format!("{shape} is no input for a picture")))?;
    let (pixels, [height, width, channels]) = decode(path).map_err(place)?;
    let mut dims = vec![1; shape.rank()];
    for (axis, size) in [(layout.height, height), (layout.width, width)] {
        if shape.dim(axis).as_static().is_some_and(|want| want != size) {
            return Err(misfit(format!("the picture is {width}×{height}, the input {shape}")));
        }
        dims[axis] = size;
    }
    let wanted = layout.channels.map_or(1, |c| shape.dim(c).as_static().unwrap_or(channels));
    if channels != wanted {
        let what = |n: usize| if n == 1 { "grey".to_owned() } else { format!("{n}-channel") };
        return Err(misfit(format!(
            "the picture is {}, the input takes {} ones",
            what(channels),
            what(wanted)
        )));
    }
    let planar = match layout.channels {
        Some(c) if c < layout.height => {
            dims[c] = channels;
            true
        }
        Some(c) => {
            dims[c] = channels;
            false
        }
        None => false,
    };
    let ordered: Vec<u8> = if planar {
        (0..channels).flat_map(|c| pixels.iter().skip(c).step_by(channels).copied()).collect()
    } else {
        pixels
    };
    match shape.dtype() {
        DType::U8 => ConstData::new(DType::U8, &dims, ordered),
        dtype if dtype.is_float() => {
            // Divided in f32, as programs that prepare pictures do.
            let values = ordered.iter().map(|&b| f64::from(f32::from(b) / 255.0)).collect();
            Ok(Value::float(dtype, &dims, values).rounded().to_const())
        }
        other => Err(misfit(format!("an input of {other} takes no picture"))),
    }
}

/// Bytes of a picture, and its height, width and channels.
fn decode(path: &Path) -> Result<(Vec<u8>, [usize; 3])> {
    let io = |e: std::io::Error| Error::new(ErrorKind::Io, e.to_string());
    let bad = |e: png::DecodingError| Error::new(ErrorKind::Malformed, format!("not a PNG picture: {e}"));
    let mut decoder = png::Decoder::new(BufReader::new(File::open(path).map_err(io)?));
    decoder.set_transformations(png::Transformations::EXPAND | png::Transformations::STRIP_16);
    let mut reader = decoder.read_info().map_err(bad)?;
    let size = reader.output_buffer_size().filter(|&n| n <= 1 << 30);
    let size = size.ok_or_else(|| Error::new(ErrorKind::Malformed, "the picture is too large"))?;
    let mut pixels = vec![0; size];
    let info = reader.next_frame(&mut pixels).map_err(bad)?;
    pixels.truncate(info.buffer_size());
    let channels = match info.color_type {
        png::ColorType::Grayscale => 1,
        png::ColorType::Rgb => 3,
        other => {
            let message = format!("pictures of kind {other:?} are not read: save it without transparency");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
    };
    Ok((pixels, [info.height as usize, info.width as usize, channels]))
}
