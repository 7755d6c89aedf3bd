//! Photographs and other pictures as inputs of models.
//!
//! [`Image::open`] decodes JPEG, PNG (every colour type), WebP, BMP, PNM, TIFF and JPEG 2000 files and turns them as their EXIF orientation says. A
//! [`Preprocess`] says how an image becomes a tensor: resizing (as Pillow does, to the byte), cropping, scaling, mean and
//! standard deviation, the order of colours and dimensions. It is made by hand, by the name of a [preset](Preprocess::preset), from a
//! Hugging Face `preprocessor_config.json` or from a model's metadata ([`Declared`]).
//!
//! ```no_run
//! use rlx::image::{Image, Preprocess};
//! use rlx::inputs::InputLimit;
//! let mut resnet = rlx::Runner::open("resnet18.onnx")?;
//! let input = resnet.inputs()?[0].clone();
//! let preprocess = Preprocess::preset("imagenet", &input.shape)?;
//! let photo = Image::open("photo.jpg", InputLimit::default())?;
//! let tensor = preprocess.apply(&photo, &input, InputLimit::default())?; // [1, 3, 224, 224] f32
//! let scores = resnet.run(&[(&input.name, &tensor)])?;
//! # Ok::<(), rlx::prelude::Error>(())
//! ```
//!
//! Files are not trusted: the size in a file's header is held against an [`InputLimit`] before its pixels are decoded.

mod config;
mod decode;
mod exif;
mod formats;
mod pixels;
mod preprocess;
mod resize;
mod tensor;

use std::io::Cursor;

use rlx_ir::{Result, Shape};
use rlx_onnx::DecodedImage;

use crate::inputs::InputLimit;

pub use config::Declared;
pub use decode::Source;
pub use pixels::Image;
pub use preprocess::{Colors, Crop, Preprocess, Resize, Rounding};
pub use resize::Filter;
pub use tensor::Layout;

/// Whether an input of this shape has colours or grey in a dimension of its own.
pub(crate) fn looks_like_images(shape: &Shape) -> bool {
    shape.rank() == 4 && tensor::Axes::of(shape, None).is_ok()
}

/// The pixels of an image file for ONNX's `ImageDecoder`, in 1 (grey) or 3 channels, as they are stored.
///
/// # Errors
/// As [`Image::open`].
pub fn decode_for_onnx(bytes: &[u8], channels: usize) -> Result<DecodedImage> {
    let image = Source::open(Cursor::new(bytes))?.not_turned().pixels(InputLimit::default())?;
    let image = image.with_channels(channels)?;
    Ok(DecodedImage { height: image.height, width: image.width, pixels: image.pixels })
}
