//! Images as tensors.
//!
//! Integer inputs get the bytes unchanged, float inputs get byte / 255. Nothing is resized, and colour channels are
//! neither added nor dropped: an image that does not match is an error that states what would.

use std::io::{BufRead, BufReader, Seek};
use std::path::Path;

use rlx_ir::files::open_file;
use rlx_ir::{ConstData, DType, Dim, Error, ErrorKind, Result, Shape, memory};
use rlx_runtime::TensorInfo;

use super::elements::{InputLimit, Packed};

/// The positions of height, width and channels among an input's dimensions.
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

/// Reads a PNG as one item for an input (leading dimensions become 1).
///
/// # Errors
/// A file that is not a PNG image, an image whose size or colours do not match the input, or one that is larger than the limit.
pub fn read(path: &Path, info: &TensorInfo, limit: InputLimit) -> Result<ConstData> {
    let read = || decode(BufReader::new(open_file(path)?), info, limit);
    read().map_err(|e| e.with_origin(path.display().to_string()))
}

/// As [`read`], of a file that is open, or bytes in a [`std::io::Cursor`].
///
/// # Errors
/// As [`read`].
pub fn decode(file: impl BufRead + Seek, info: &TensorInfo, limit: InputLimit) -> Result<ConstData> {
    let shape = &info.shape;
    let shape_mismatch = |message: String| Error::new(ErrorKind::Shape, message);
    let layout = Layout::of(shape)
        .ok_or_else(|| shape_mismatch(format!("an input of {shape} does not take images")))?;
    let is_taken = shape.dtype() == DType::U8 || shape.dtype().is_float();
    if !is_taken {
        return Err(shape_mismatch(format!("an input of {} does not take images", shape.dtype())));
    }
    let image = Image::open(file)?;
    let (dims, channels) = fitted(&image, &layout, shape)?;
    // The header of an image is checked before its pixels are decoded.
    limit.allows(info, &dims, "the image")?;
    let pixels = image.pixels()?;
    let planar = layout.channels.is_some_and(|c| c < layout.height);
    let each = if planar { channels } else { 1 };
    let ordered = (0..each).flat_map(|c| pixels.iter().skip(c).step_by(each).copied());
    if shape.dtype() == DType::U8 {
        return ConstData::new(DType::U8, &dims, ordered.collect::<Vec<u8>>());
    }
    let mut packed = Packed::of(info, limit);
    // Divided in f32, as programs that prepare images do.
    for b in ordered {
        packed.push_float(f64::from(f32::from(b) / 255.0))?;
    }
    packed.finish(&dims)
}

/// The dimensions of the image as an input of this shape, and its channels.
fn fitted<R: BufRead + Seek>(
    image: &Image<R>,
    layout: &Layout,
    shape: &Shape,
) -> Result<(Vec<usize>, usize)> {
    let shape_mismatch = |message: String| Error::new(ErrorKind::Shape, message);
    let [height, width, channels] = image.dims;
    let mut dims = vec![1; shape.rank()];
    for (axis, size) in [(layout.height, height), (layout.width, width)] {
        if shape.dim(axis).as_static().is_some_and(|want| want != size) {
            return Err(shape_mismatch(format!("the image is {width}×{height}, the input {shape}")));
        }
        dims[axis] = size;
    }
    let wanted = layout.channels.map_or(1, |c| shape.dim(c).as_static().unwrap_or(channels));
    if channels != wanted {
        let what = |n: usize| if n == 1 { "grey".to_owned() } else { format!("{n}-channel") };
        return Err(shape_mismatch(format!(
            "the image is {}, the input takes {} ones",
            what(channels),
            what(wanted)
        )));
    }
    if let Some(c) = layout.channels {
        dims[c] = channels;
    }
    Ok((dims, channels))
}

/// A PNG file whose header was read.
struct Image<R: BufRead + Seek> {
    reader: png::Reader<R>,
    /// Height, width, channels.
    dims: [usize; 3],
}

impl<R: BufRead + Seek> Image<R> {
    fn open(file: R) -> Result<Image<R>> {
        let mut decoder = png::Decoder::new(file);
        decoder.set_transformations(png::Transformations::EXPAND | png::Transformations::STRIP_16);
        let reader = decoder.read_info().map_err(|e| bad(&e))?;
        let channels = match reader.output_color_type().0 {
            png::ColorType::Grayscale => 1,
            png::ColorType::Rgb => 3,
            other => {
                let message =
                    format!("images of kind {other:?} are not supported: save it without transparency");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
        };
        let info = reader.info();
        let dims = [info.height as usize, info.width as usize, channels];
        Ok(Image { reader, dims })
    }

    fn pixels(mut self) -> Result<Vec<u8>> {
        let size = self.reader.output_buffer_size();
        let size = size.ok_or_else(|| Error::new(ErrorKind::Malformed, "the image is too large"))?;
        let mut pixels: Vec<u8> = memory::zeroed(size, || "the image's pixels".to_owned())?;
        let info = self.reader.next_frame(&mut pixels).map_err(|e| bad(&e))?;
        pixels.truncate(info.buffer_size());
        Ok(pixels)
    }
}

fn bad(e: &png::DecodingError) -> Error {
    Error::new(ErrorKind::Malformed, format!("not a PNG image: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlx_ir::testing::Gen;

    /// Damaged images are errors or images of the expected size, never a panic, and never larger than the limit.
    #[test]
    fn damaged_images_are_errors_or_images() {
        let whole = std::fs::read(rlx_testdata::models::folder().join("digits/samples/0_a.png")).unwrap();
        let path = std::env::temp_dir().join(format!("rlx-image-{}.png", std::process::id()));
        let open = ["image.n", "image.h", "image.w"].map(|name| Dim::Dynamic(rlx_ir::sym::named(name)));
        let shape = Shape::from_dims(&[open[0], Dim::Static(1), open[1], open[2]], DType::F32);
        let info = TensorInfo { name: "image".to_owned(), dtype: DType::F32, shape };
        let (mut random, mut read_ones) = (Gen::new(5), 0);
        for case in 0..600 {
            let mut bytes = whole.clone();
            for _ in 0..case % 4 {
                let at = random.size(8..=bytes.len() - 1);
                bytes[at] = random.bits() as u8;
            }
            if case % 5 == 4 {
                bytes.truncate(random.size(0..=whole.len()));
            }
            std::fs::write(&path, bytes).unwrap();
            if let Ok(data) = read(&path, &info, InputLimit(1 << 12)) {
                assert!(data.bytes().len() <= 1 << 12, "case {case}");
                read_ones += 1;
            }
        }
        assert!(read_ones >= 100, "{read_ones}");
        std::fs::remove_file(path).unwrap();
    }
}
