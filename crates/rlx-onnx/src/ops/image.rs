//! `ImageDecoder`: bytes of an image file to pixels.
//!
//! The size of the result is in the bytes, so they must be known: a constant's, or an input's whose value the import asks for, as for strings that are
//! split. What decodes is the caller's ([`crate::ImageDecoder`]): this crate has no image formats. A file that cannot be
//! decoded is an error.

use super::{Entry, any};
use crate::import::{NodeCx, SlotId};
use rlx_ir::{ConstData, DType, Error};

/// An image may have as many bytes for each element that may be computed while importing: it is a table, and not computed from others.
const BYTES_OF_ELEMENT: usize = 16;

pub(super) const OPS: &[Entry] = &[any("ImageDecoder", image_decoder)];

fn image_decoder(cx: &mut NodeCx<'_, '_>) -> Result<Vec<SlotId>, Error> {
    let (channels, reversed) = match cx.attrs.text("pixel_format", "RGB")? {
        "RGB" => (3, false),
        "BGR" => (3, true),
        "Grayscale" => (1, false),
        other => return Err(cx.bad_attr("pixel_format", other)),
    };
    let shape = cx.shape(0)?;
    if shape.rank() != 1 || shape.dtype() != DType::U8 {
        return Err(cx.malformed(format!("an image file is a vector of u8, not {shape}")));
    }
    let decode = cx.importer.options.image_decoder.ok_or_else(|| {
        cx.unsupported("no decoder for images was given")
            .with_hint("the crate rlx decodes them, with its feature \"inputs\"")
    })?;
    let slot = cx.slot(0)?;
    let Some(file) = cx.importer.constant_value(slot)? else { return Err(cx.not_known(0)) };
    let file = file.to_const();
    let image = decode(file.bytes(), channels)?;
    cx.importer.spend(image.pixels.len() / BYTES_OF_ELEMENT)?;
    let mut pixels = image.pixels;
    if reversed {
        pixels.chunks_exact_mut(channels).for_each(<[u8]>::reverse);
    }
    let pixels = ConstData::new(DType::U8, &[image.height, image.width, channels], pixels)?;
    Ok(vec![cx.importer.constant_slot(pixels)])
}
