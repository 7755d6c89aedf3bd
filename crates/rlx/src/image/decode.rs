//! Image files: first their header, whose size is checked, then their pixels.

use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;

use image_webp::WebPDecoder;
use rlx_ir::files::open_file;
use rlx_ir::{Error, ErrorKind, Result, memory};
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::exif::Orientation;
use super::formats::Other;
use super::pixels::Image;
use crate::inputs::InputLimit;

/// The most bytes of a WebP file's metadata that are read.
const METADATA: usize = 16 << 20;

impl Image {
    /// Decodes a file.
    ///
    /// # Errors
    /// A file that cannot be read, is not an image of a supported format, is damaged, or has more pixels than the limit.
    pub fn open(path: impl AsRef<Path>, limit: InputLimit) -> Result<Image> {
        let path = path.as_ref();
        let read = || Image::decode(BufReader::new(open_file(path)?), limit);
        read().map_err(|e| e.with_origin(path.display().to_string()))
    }

    /// As [`Image::open`], of a file that is open, or bytes in a [`std::io::Cursor`].
    ///
    /// # Errors
    /// As [`Image::open`].
    pub fn decode(file: impl BufRead + Seek, limit: InputLimit) -> Result<Image> {
        Source::open(file)?.pixels(limit)
    }
}

/// An image file whose header was read.
pub struct Source<R: BufRead + Seek> {
    kind: Kind<R>,
    /// As stored, before it is turned.
    width: usize,
    height: usize,
    channels: usize,
    orientation: Orientation,
}

enum Kind<R: BufRead + Seek> {
    Jpeg(Box<JpegDecoder<R>>),
    Png(Box<png::Reader<R>>),
    WebP(Box<WebPDecoder<R>>),
    Other(Other<R>),
}

impl<R: BufRead + Seek> std::fmt::Debug for Source<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (width, height) = self.size();
        write!(f, "Source({}, {width}×{height}, {} channels)", self.format(), self.channels)
    }
}

impl<R: BufRead + Seek> Source<R> {
    /// Reads the header of a file; its first bytes say of which format it is.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] for a file that is none of the formats, or is damaged.
    pub fn open(mut file: R) -> Result<Source<R>> {
        let mut start = [0; 12];
        let read = read_up_to(&mut file, &mut start).and_then(|n| file.seek(SeekFrom::Start(0)).map(|_| n));
        let read = read.map_err(|e| Error::new(ErrorKind::Io, e.to_string()).with_source(e))?;
        match &start[..read] {
            [0xff, 0xd8, 0xff, ..] => Source::jpeg(file),
            [0x89, b'P', b'N', b'G', ..] => Source::png(file),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P'] => Source::webp(file),
            start => match Other::<R>::of(start) {
                Some(format) => Source::other(format, file),
                None => Err(Error::new(ErrorKind::Malformed, "not a PNG, JPEG or WebP image")
                    .with_hint("the first bytes decide, not the name: save the image as PNG or JPEG")),
            },
        }
    }

    /// What the file is.
    pub fn format(&self) -> &'static str {
        match &self.kind {
            Kind::Jpeg(_) => "JPEG",
            Kind::Png(_) => "PNG",
            Kind::WebP(_) => "WebP",
            Kind::Other(other) => other.format(),
        }
    }

    /// Width and height of the image, turned as its orientation says.
    pub fn size(&self) -> (usize, usize) {
        match self.orientation.transpose {
            true => (self.height, self.width),
            false => (self.width, self.height),
        }
    }

    /// 1 for grey, 2 with alpha, 3 for colours, 4 with alpha.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Decodes the pixels, at most as many bytes as the limit; the first frame of an animation.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] for a damaged or truncated file, and for one that is larger than the limit;
    /// [`ErrorKind::OutOfMemory`].
    pub fn pixels(self, limit: InputLimit) -> Result<Image> {
        let Source { kind, width, height, channels, orientation } = self;
        let count = width.checked_mul(height);
        let size = count.and_then(|n| n.checked_mul(channels)).filter(|&n| n as u64 <= limit.0);
        let Some(size) = size else {
            return Err(limit.too_large(&format!("the image is {width}×{height}")));
        };
        // Decoders have memory of their own: planes of 16 bits, or a copy of 4 channels.
        let each = if let Kind::Other(other) = &kind { other.memory() } else { 8 };
        let own = count.unwrap_or(0).saturating_mul(each);
        memory::ensure(size.saturating_add(own), || format!("decoding an image of {width}×{height}"))?;
        let mut pixels: Vec<u8> = memory::zeroed(size, || "the image's pixels".to_owned())?;
        match kind {
            Kind::Jpeg(mut reader) => reader.decode_into(&mut pixels).map_err(|e| bad("JPEG", &e))?,
            Kind::Png(mut reader) => {
                let info = reader.next_frame(&mut pixels).map_err(|e| bad("PNG", &e))?;
                if info.buffer_size() != size {
                    return Err(bad("PNG", &"its first frame is not of the image's size"));
                }
            }
            Kind::WebP(mut reader) => reader.read_image(&mut pixels).map_err(|e| bad("WebP", &e))?,
            Kind::Other(other) => other.read(&mut pixels)?,
        }
        Ok(orientation.applied(Image { width, height, channels, pixels }))
    }

    fn jpeg(file: R) -> Result<Source<R>> {
        let most = usize::from(u16::MAX);
        let options = DecoderOptions::default().set_max_width(most).set_max_height(most);
        let mut reader = JpegDecoder::new_with_options(file, options);
        reader.decode_headers().map_err(|e| bad("JPEG", &e))?;
        let info = reader.info().ok_or_else(|| bad("JPEG", &"it has no header"))?;
        let grey = reader.input_colorspace() == Some(ColorSpace::Luma);
        let (colours, channels) = if grey { (ColorSpace::Luma, 1) } else { (ColorSpace::RGB, 3) };
        // Strict from here on: what is missing is an error and not grey.
        reader.set_options(options.set_strict_mode(true).jpeg_set_out_colorspace(colours));
        let orientation = reader.exif().map_or_else(Orientation::default, |exif| Orientation::of(exif));
        let (width, height) = (usize::from(info.width), usize::from(info.height));
        Ok(Source { kind: Kind::Jpeg(Box::new(reader)), width, height, channels, orientation })
    }

    fn png(file: R) -> Result<Source<R>> {
        let mut decoder = png::Decoder::new(file);
        // Palettes and fewer bits become 8 bits; of 16 bits the high ones are kept.
        decoder.set_transformations(png::Transformations::EXPAND | png::Transformations::STRIP_16);
        let reader = decoder.read_info().map_err(|e| bad("PNG", &e))?;
        let channels = reader.output_color_type().0.samples();
        let info = reader.info();
        let (width, height) = (info.width as usize, info.height as usize);
        let orientation = info.exif_metadata.as_deref().map_or_else(Orientation::default, Orientation::of);
        Ok(Source { kind: Kind::Png(Box::new(reader)), width, height, channels, orientation })
    }

    /// The image as it is stored: the orientation that a camera noted is ignored.
    pub(super) fn not_turned(self) -> Self {
        Source { orientation: Orientation::default(), ..self }
    }

    fn other(format: &'static str, file: R) -> Result<Source<R>> {
        let (other, (width, height, channels)) = Other::open(format, file)?;
        let orientation = Orientation::default();
        Ok(Source { kind: Kind::Other(other), width, height, channels, orientation })
    }

    fn webp(file: R) -> Result<Source<R>> {
        let mut reader = WebPDecoder::new(file).map_err(|e| bad("WebP", &e))?;
        reader.set_memory_limit(METADATA);
        let (width, height) = reader.dimensions();
        let channels = if reader.has_alpha() { 4 } else { 3 };
        let exif = reader.exif_metadata().ok().flatten();
        let orientation = exif.as_deref().map_or_else(Orientation::default, Orientation::of);
        let (width, height) = (width as usize, height as usize);
        Ok(Source { kind: Kind::WebP(Box::new(reader)), width, height, channels, orientation })
    }
}

fn read_up_to(file: &mut impl BufRead, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut have = 0;
    while have < buffer.len() {
        match file.read(&mut buffer[have..])? {
            0 => break,
            n => have += n,
        }
    }
    Ok(have)
}

fn bad(format: &str, e: &impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Malformed, format!("not a {format} image: {e}"))
}
