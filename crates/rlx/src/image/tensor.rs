//! Pixels as the elements of a tensor.

use rlx_ir::{ConstData, DType, Dim, Error, ErrorKind, Result, Shape, Value, memory};
use rlx_runtime::TensorInfo;

use super::{Colors, Image, Preprocess};
use crate::units::counted;

/// The order of an input's dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Channels before height and width, as PyTorch has them.
    Nchw,
    /// Channels last, as TensorFlow has them.
    Nhwc,
}

impl Layout {
    /// The usual name.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Nchw => "NCHW",
            Layout::Nhwc => "NHWC",
        }
    }
}

/// The positions of height, width and channels among an input's dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Axes {
    channels: Option<usize>,
    pub height: usize,
    pub width: usize,
}

impl Axes {
    /// As `layout` says; without one, `[.., C, H, W]` when that dimension is 1 or 3, else `[.., H, W, C]`, else `[.., H, W]`.
    pub fn of(shape: &Shape, layout: Option<Layout>) -> Result<Axes> {
        let rank = shape.rank();
        let is_channels = |i: usize| matches!(shape.dim(i), Dim::Static(1 | 3));
        let first = || Axes { channels: Some(rank - 3), height: rank - 2, width: rank - 1 };
        let last = || Axes { channels: Some(rank - 1), height: rank - 3, width: rank - 2 };
        let found = match (rank, layout) {
            (3.., Some(Layout::Nchw)) => Some(first()),
            (3.., Some(Layout::Nhwc)) => Some(last()),
            (3.., None) if is_channels(rank - 3) => Some(first()),
            (3.., None) if is_channels(rank - 1) => Some(last()),
            (2 | 3, None) => Some(Axes { channels: None, height: rank - 2, width: rank - 1 }),
            _ => None,
        };
        found.ok_or_else(|| {
            let error = not_for_images(shape);
            if rank >= 3 {
                error.with_hint("if it does, --layout nchw or nhwc says which dimension has the colours")
            } else {
                error
            }
        })
    }

    /// The layout, where there are channels.
    pub fn layout(self) -> Option<Layout> {
        Some(if self.channels? < self.height { Layout::Nchw } else { Layout::Nhwc })
    }

    /// How many channels the input takes of an image that has `own`.
    pub fn wanted(self, shape: &Shape, own: usize) -> Result<usize> {
        // Alpha is kept only where a model asks for it.
        let without_alpha = if own <= 2 { 1 } else { 3 };
        let wanted = self.channels.map_or(1, |c| shape.dim(c).as_static().unwrap_or(without_alpha));
        if matches!(wanted, 1 | 3 | 4) { Ok(wanted) } else { Err(not_for_images(shape)) }
    }

    /// The tensor's dimensions: one item.
    pub fn dims(self, shape: &Shape, [width, height, channels]: [usize; 3]) -> Vec<usize> {
        let mut dims = vec![1; shape.rank()];
        (dims[self.height], dims[self.width]) = (height, width);
        if let Some(c) = self.channels {
            dims[c] = channels;
        }
        dims
    }
}

fn not_for_images(shape: &Shape) -> Error {
    Error::new(ErrorKind::Shape, format!("an input of {shape} does not take images"))
}

/// Whether elements of the type can be made of bytes.
pub(super) fn takes_pixels(dtype: DType) -> bool {
    dtype == DType::U8 || (dtype.is_float() && dtype.bits() >= 8)
}

/// The image, whose size and channels are right already, as the input's elements.
pub(super) fn tensor(image: &Image, by: &Preprocess, info: &TensorInfo, axes: Axes) -> Result<ConstData> {
    let (dtype, channels) = (info.dtype, image.channels);
    if !takes_pixels(dtype) {
        let message = format!("an input of {dtype} does not take images");
        return Err(Error::new(ErrorKind::Shape, message));
    }
    let tables = (0..channels).map(|c| table(by, dtype, c, channels)).collect::<Result<Vec<_>>>()?;
    // Which channel of the image is the tensor's.
    let source = |c: usize| if by.colors == Colors::Bgr && c < 3 && channels >= 3 { 2 - c } else { c };
    let width = dtype.bits() / 8;
    let size = image.pixels.len().saturating_mul(width);
    memory::ensure(size, || format!("input \"{}\"", info.name))?;
    let mut bytes = Vec::with_capacity(size);
    let pixels = image.pixels.chunks_exact(channels);
    let mut push = |c: usize, pixel: &[u8]| {
        let at = usize::from(pixel[source(c)]) * width;
        bytes.extend_from_slice(&tables[c][at..at + width]);
    };
    if axes.layout() == Some(Layout::Nchw) {
        (0..channels).for_each(|c| pixels.clone().for_each(|pixel| push(c, pixel)));
    } else {
        pixels.for_each(|pixel| (0..channels).for_each(|c| push(c, pixel)));
    }
    let dims = axes.dims(&info.shape, [image.width, image.height, channels]);
    ConstData::new(dtype, &dims, bytes)
}

/// What each byte is in channel `c` of the tensor, encoded.
fn table(by: &Preprocess, dtype: DType, c: usize, channels: usize) -> Result<Vec<u8>> {
    let shape_error = |message: String| Error::new(ErrorKind::Shape, message);
    if !dtype.is_float() {
        if by.is_normalising() {
            let message =
                format!("an input of {dtype} takes the bytes of the image: scale, mean and std do not apply");
            return Err(Error::new(ErrorKind::DType, message)
                .with_hint("leave them out, or export the model with a float input"));
        }
        return Ok((0..=u8::MAX).collect());
    }
    // One number is for all channels.
    let of = |name: &str, list: &[f64], default: f64| match list {
        [] => Ok(default),
        [all] => Ok(*all),
        list if list.len() == channels => Ok(list[c]),
        list => {
            let message = format!(
                "{name} has {} numbers for an image with {}",
                list.len(),
                counted(channels, "channel", "channels")
            );
            Err(shape_error(message))
        }
    };
    let (mean, std) = (of("mean", &by.mean, 0.0)? as f32, of("std", &by.std, 1.0)? as f32);
    // In f32, as programs that prepare images do.
    let element = |byte: u8| {
        let scaled = match by.scale {
            None => f32::from(byte) / 255.0,
            Some(scale) => (f64::from(byte) * scale) as f32,
        };
        f64::from((scaled + by.offset as f32 - mean) / std)
    };
    let elements = (0..=u8::MAX).map(element).collect();
    Ok(Value::float(dtype, &[256], elements).rounded().encode())
}
