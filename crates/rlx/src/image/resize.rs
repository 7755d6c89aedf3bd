//! Resizing that equals Pillow's, byte for byte.
//!
//! The algorithm is that of Pillow's `Resample.c` (python-pillow, `src/libImaging`, since 2.7): convolution with a filter whose support grows
//! with the factor by which the image shrinks ("antialias"), in two passes, along rows and along columns, rounded to bytes after
//! each. Weights are computed in `f64`, normalised and rounded to 22 fractional bits; sums are integers.
//! `nearest` samples the centre of each pixel, as `Image.resize` does. `reducing_gap` is none.

use std::f64::consts::PI;

use rlx_ir::{Error, ErrorKind, Result, memory};

use super::pixels::Image;

/// Fractional bits of the weights: what 8-bit samples leave of 32 bits, and 2 for filters that overshoot.
const PRECISION: u32 = 32 - 8 - 2;

impl Image {
    /// The image at another size, byte for byte as by `Image.resize` of Pillow 13.
    ///
    /// # Errors
    /// An image or a size without pixels; [`ErrorKind::OutOfMemory`].
    pub fn resized(&self, width: usize, height: usize, filter: Filter) -> Result<Image> {
        resize(self, width, height, filter)
    }
}

/// How pixels between pixels are computed; the names are Pillow's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Filter {
    /// The nearest pixel.
    Nearest,
    /// The mean of the pixels covered.
    Box,
    /// A triangle, two pixels wide.
    #[default]
    Bilinear,
    /// A cosine window, two pixels wide.
    Hamming,
    /// Cubic convolution (a = −0.5), four pixels wide.
    Bicubic,
    /// A windowed sinc, six pixels wide.
    Lanczos,
}

impl Filter {
    /// Every filter.
    pub const ALL: [Filter; 6] =
        [Filter::Nearest, Filter::Box, Filter::Bilinear, Filter::Hamming, Filter::Bicubic, Filter::Lanczos];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Filter::Nearest => "nearest",
            Filter::Box => "box",
            Filter::Bilinear => "bilinear",
            Filter::Hamming => "hamming",
            Filter::Bicubic => "bicubic",
            Filter::Lanczos => "lanczos",
        }
    }

    /// The filter of this name.
    pub fn named(name: &str) -> Option<Filter> {
        Filter::ALL.into_iter().find(|f| f.name() == name)
    }

    /// Pillow's number of it (`PIL.Image.Resampling`), which configurations store.
    pub fn from_pillow(number: u64) -> Option<Filter> {
        Some(match number {
            0 => Filter::Nearest,
            1 => Filter::Lanczos,
            2 => Filter::Bilinear,
            3 => Filter::Bicubic,
            4 => Filter::Box,
            5 => Filter::Hamming,
            _ => return None,
        })
    }

    /// How far from its centre it is not 0.
    fn support(self) -> f64 {
        match self {
            Filter::Nearest => 0.0,
            Filter::Box => 0.5,
            Filter::Bilinear | Filter::Hamming => 1.0,
            Filter::Bicubic => 2.0,
            Filter::Lanczos => 3.0,
        }
    }

    fn at(self, x: f64) -> f64 {
        const A: f64 = -0.5;
        let distance = x.abs();
        match self {
            Filter::Nearest => 0.0,
            Filter::Box => f64::from(u8::from(x > -0.5 && x <= 0.5)),
            Filter::Bilinear => (1.0 - distance).max(0.0),
            Filter::Hamming if distance == 0.0 => 1.0,
            Filter::Hamming if distance >= 1.0 => 0.0,
            Filter::Hamming => {
                let x = distance * PI;
                x.sin() / x * (0.54 + 0.46 * x.cos())
            }
            Filter::Bicubic if distance < 1.0 => {
                ((A + 2.0) * distance - (A + 3.0)) * distance * distance + 1.0
            }
            Filter::Bicubic if distance < 2.0 => (((distance - 5.0) * distance + 8.0) * distance - 4.0) * A,
            Filter::Bicubic => 0.0,
            Filter::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            Filter::Lanczos => 0.0,
        }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (x * PI).sin() / (x * PI) }
}

/// The samples that make one sample of the result: where they start, and the weight of each.
struct Window {
    start: usize,
    weights: Vec<i32>,
}

/// The windows of `to` samples made of `from`.
fn windows(filter: Filter, from: usize, to: usize) -> Vec<Window> {
    let scale = from as f64 / to as f64;
    let stretch = scale.max(1.0);
    let support = filter.support() * stretch;
    let window = |i: usize| {
        let center = (i as f64 + 0.5) * scale;
        // Conversions to integers truncate, and what is below 0 counts as 0.
        let start = (center - support + 0.5).max(0.0) as usize;
        let end = ((center + support + 0.5) as usize).min(from);
        let weight = |x: usize| filter.at((x as f64 - center + 0.5) * (1.0 / stretch));
        let weights: Vec<f64> = (start..end).map(weight).collect();
        let sum: f64 = weights.iter().sum();
        let fixed = |w: f64| {
            let w = if sum == 0.0 { w } else { w / sum };
            let w = w * f64::from(1 << PRECISION);
            (if w < 0.0 { w - 0.5 } else { w + 0.5 }) as i32
        };
        Window { start, weights: weights.into_iter().map(fixed).collect() }
    };
    (0..to).map(window).collect()
}

fn to_byte(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}

/// The image at another size, neither of which is 0.
///
/// # Errors
/// An image or a size without pixels; [`ErrorKind::OutOfMemory`].
pub(super) fn resize(image: &Image, width: usize, height: usize, filter: Filter) -> Result<Image> {
    if [image.width, image.height, width, height].contains(&0) {
        let message = format!("an image of {}×{} resized to {width}×{height}", image.width, image.height);
        return Err(Error::new(ErrorKind::Shape, message));
    }
    if filter == Filter::Nearest {
        return nearest(image, width, height);
    }
    // Pillow's rule (since 13.0; older versions always begin with the rows, which differs by one level here and there).
    let (lost_rows, lost_columns) = (image.height as i64 - height as i64, image.width as i64 - width as i64);
    let is_columns_first = lost_rows > 0 && lost_rows > 2 * lost_columns;
    let pass = |image: &Image, is_along_columns: bool| match is_along_columns {
        true if height != image.height => columns(image, height, filter).map(Some),
        false if width != image.width => rows(image, width, filter).map(Some),
        _ => Ok(None),
    };
    let first = pass(image, is_columns_first)?;
    let second = pass(first.as_ref().unwrap_or(image), !is_columns_first)?;
    Ok(second.or(first).unwrap_or_else(|| image.clone()))
}

fn empty(like: &Image, width: usize, height: usize) -> Result<Image> {
    let size = width.checked_mul(height).and_then(|n| n.checked_mul(like.channels));
    let size = size.unwrap_or(usize::MAX);
    let pixels = memory::zeroed(size, || format!("an image of {width}×{height}"))?;
    Ok(Image { width, height, channels: like.channels, pixels })
}

/// The pass along the rows.
fn rows(image: &Image, width: usize, filter: Filter) -> Result<Image> {
    let windows = windows(filter, image.width, width);
    let mut wide = empty(image, width, image.height)?;
    let channels = image.channels;
    let old = image.pixels.chunks_exact(image.width * channels);
    for (old, new) in old.zip(wide.pixels.chunks_exact_mut(width * channels)) {
        for (window, new) in windows.iter().zip(new.chunks_exact_mut(channels)) {
            let mut sums = [1 << (PRECISION - 1); 4];
            for (pixel, &weight) in old[window.start * channels..].chunks_exact(channels).zip(&window.weights)
            {
                for (sum, &sample) in sums.iter_mut().zip(pixel) {
                    *sum += i32::from(sample) * weight;
                }
            }
            for (new, sum) in new.iter_mut().zip(sums) {
                *new = to_byte(sum);
            }
        }
    }
    Ok(wide)
}

/// The pass along the columns.
fn columns(image: &Image, height: usize, filter: Filter) -> Result<Image> {
    let windows = windows(filter, image.height, height);
    let row = image.width * image.channels;
    let mut high = empty(image, image.width, height)?;
    let mut sums = vec![0i32; row];
    for (window, new) in windows.iter().zip(high.pixels.chunks_exact_mut(row)) {
        sums.fill(1 << (PRECISION - 1));
        for (old, &weight) in image.pixels[window.start * row..].chunks_exact(row).zip(&window.weights) {
            for (sum, &sample) in sums.iter_mut().zip(old) {
                *sum += i32::from(sample) * weight;
            }
        }
        for (new, &sum) in new.iter_mut().zip(&sums) {
            *new = to_byte(sum);
        }
    }
    Ok(high)
}

/// The nearest pixels. Positions are sums of the step, as Pillow computes them (`ImagingScaleAffine` in `Geometry.c`).
fn nearest(image: &Image, width: usize, height: usize) -> Result<Image> {
    let places = |from: usize, to: usize| {
        let step = from as f64 / to as f64;
        let next = |at: &f64| Some(at + step);
        let positions = std::iter::successors(Some(step * 0.5), next).take(to);
        positions.map(|at| (at as usize).min(from - 1)).collect::<Vec<usize>>()
    };
    let (columns, channels) = (places(image.width, width), image.channels);
    let mut found = empty(image, width, height)?;
    let new_rows = found.pixels.chunks_exact_mut(width * channels);
    for (y, new) in places(image.height, height).into_iter().zip(new_rows) {
        let old = &image.pixels[y * image.width * channels..][..image.width * channels];
        for (&x, new) in columns.iter().zip(new.chunks_exact_mut(channels)) {
            new.copy_from_slice(&old[x * channels..][..channels]);
        }
    }
    Ok(found)
}
