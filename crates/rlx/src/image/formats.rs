//! The formats that ONNX's `ImageDecoder` has besides JPEG, PNG and WebP: BMP, PNM, TIFF and JPEG 2000.
//!
//! Files are not trusted: the size in the header is known before pixels are decoded, and a panic of a decoder is an error of its file.

use std::fmt::Debug;
use std::io::{BufRead, Read, Seek};

use rlx_ir::{Error, ErrorKind, Result, panics};
use tiff::ColorType;
use tiff::decoder::{Decoder as TiffDecoder, DecodingResult as TiffPixels};
use zune_bmp::BmpDecoder;
use zune_core::result::DecodingResult as PnmPixels;
use zune_ppm::PPMDecoder;

/// The most bytes of a JPEG 2000 file: it is read whole.
const MOST_BYTES: u64 = 256 << 20;

/// An image of one of these formats whose header was read.
pub(super) enum Other<R: BufRead + Seek> {
    Bmp(Box<BmpDecoder<R>>),
    Pnm(Box<PPMDecoder<R>>),
    Tiff(Box<TiffDecoder<R>>),
    /// The whole file.
    Jpeg2000(Vec<u8>),
}

/// Width, height and channels.
pub(super) type Size = (usize, usize, usize);

impl<R: BufRead + Seek> Other<R> {
    /// The format that a file begins with, by its name.
    pub fn of(start: &[u8]) -> Option<&'static str> {
        match start {
            [b'B', b'M', ..] => Some("BMP"),
            [b'P', b'1'..=b'7', b' ' | b'\t' | b'\r' | b'\n', ..] => Some("PNM"),
            [b'I', b'I', 42, 0, ..] | [b'M', b'M', 0, 42, ..] => Some("TIFF"),
            [0, 0, 0, 12, b'j', b'P', b' ', b' ', ..] | [0xff, 0x4f, 0xff, 0x51, ..] => Some("JPEG 2000"),
            _ => None,
        }
    }

    /// Reads the header of a file of this format.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] for a damaged file, [`ErrorKind::Unsupported`] for another kind of pixels.
    pub fn open(format: &'static str, file: R) -> Result<(Self, Size)> {
        guarded(format, || match format {
            "BMP" => {
                let mut reader = BmpDecoder::new(file);
                reader.decode_headers().map_err(|e| bad(format, &e))?;
                let (width, height) = reader.dimensions().ok_or_else(|| bad(format, &"it has no header"))?;
                let channels = reader.colorspace().map_or(3, |c| c.num_components());
                Ok((Other::Bmp(Box::new(reader)), (width, height, channels)))
            }
            "PNM" => {
                let mut reader = PPMDecoder::new(file);
                reader.decode_headers().map_err(|e| bad(format, &e))?;
                let (width, height) = reader.dimensions().ok_or_else(|| bad(format, &"it has no header"))?;
                let channels = reader.colorspace().map_or(3, |c| c.num_components());
                Ok((Other::Pnm(Box::new(reader)), (width, height, channels)))
            }
            "TIFF" => {
                let mut reader = TiffDecoder::new(file).map_err(|e| bad(format, &e))?;
                let (width, height) = reader.dimensions().map_err(|e| bad(format, &e))?;
                let channels = match reader.colortype().map_err(|e| bad(format, &e))? {
                    ColorType::Gray(8 | 16) => 1,
                    ColorType::GrayA(8 | 16) => 2,
                    ColorType::RGB(8 | 16) => 3,
                    ColorType::RGBA(8 | 16) => 4,
                    other => return Err(unsupported(format, &format!("pixels of {other:?}"))),
                };
                Ok((Other::Tiff(Box::new(reader)), (width as usize, height as usize, channels)))
            }
            _ => {
                let mut bytes = Vec::new();
                let read = file.take(MOST_BYTES + 1).read_to_end(&mut bytes);
                read.map_err(|e| Error::new(ErrorKind::Io, e.to_string()).with_source(e))?;
                if bytes.len() as u64 > MOST_BYTES {
                    return Err(bad(format, &"it is larger than 256 MB"));
                }
                let image = jpeg2000(&bytes)?;
                let channels =
                    usize::from(image.color_space().num_channels()) + usize::from(image.has_alpha());
                let size = (image.width() as usize, image.height() as usize, channels);
                drop(image);
                if !(1..=4).contains(&channels) {
                    return Err(unsupported(format, &format!("{channels} channels")));
                }
                Ok((Other::Jpeg2000(bytes), size))
            }
        })
    }

    /// What the file is.
    pub fn format(&self) -> &'static str {
        match self {
            Other::Bmp(_) => "BMP",
            Other::Pnm(_) => "PNM",
            Other::Tiff(_) => "TIFF",
            Other::Jpeg2000(_) => "JPEG 2000",
        }
    }

    /// How many bytes a decoder needs for each pixel.
    pub fn memory(&self) -> usize {
        match self {
            Other::Jpeg2000(_) => 64,
            _ => 8,
        }
    }

    /// Decodes into memory for the header's size; of 16 bits the high ones are kept.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] for a damaged file, [`ErrorKind::Unsupported`] for another kind of pixels.
    pub fn read(self, pixels: &mut [u8]) -> Result<()> {
        let format = self.format();
        let found = guarded(format, || match self {
            Other::Bmp(mut reader) => reader.decode().map_err(|e| bad(format, &e)),
            Other::Pnm(mut reader) => match reader.decode().map_err(|e| bad(format, &e))? {
                PnmPixels::U8(pixels) => Ok(pixels),
                PnmPixels::U16(pixels) => Ok(high(&pixels)),
                _ => Err(unsupported(format, "pixels of floats")),
            },
            Other::Tiff(mut reader) => match reader.read_image().map_err(|e| bad(format, &e))? {
                TiffPixels::U8(pixels) => Ok(pixels),
                TiffPixels::U16(pixels) => Ok(high(&pixels)),
                _ => Err(unsupported(format, "pixels that are not of 8 or 16 bits")),
            },
            Other::Jpeg2000(bytes) => {
                let (image, mut context) = (jpeg2000(&bytes)?, hayro_jpeg2000::DecoderContext::default());
                let decoded = image.decode(&mut context).map_err(|e| bad(format, &e))?;
                Ok(decoded.data_u8())
            }
        })?;
        if found.len() != pixels.len() {
            return Err(unsupported(format, "planes or channels that its header does not say"));
        }
        pixels.copy_from_slice(&found);
        Ok(())
    }
}

fn jpeg2000(bytes: &[u8]) -> Result<hayro_jpeg2000::Image<'_>> {
    hayro_jpeg2000::Image::new(bytes, &Default::default()).map_err(|e| bad("JPEG 2000", &e))
}

fn high(pixels: &[u16]) -> Vec<u8> {
    pixels.iter().map(|&p| (p >> 8) as u8).collect()
}

fn guarded<T>(format: &str, f: impl FnOnce() -> Result<T>) -> Result<T> {
    panics::catch(f).unwrap_or_else(|why| Err(bad(format, &why)))
}

fn bad(format: &str, e: &impl Debug) -> Error {
    Error::new(ErrorKind::Malformed, format!("not a {format} image: {e:?}"))
}

fn unsupported(format: &str, what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("a {format} image with {what}"))
        .with_hint("save the image as PNG or JPEG")
}
