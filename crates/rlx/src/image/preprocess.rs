//! What happens to an image before a model gets it.

use std::io::{BufRead, Seek};

use rlx_ir::{ConstData, Error, ErrorKind, Result, Shape};
use rlx_runtime::{TensorInfo, nearest};

use super::pixels::Image;
use super::tensor::{Axes, takes_pixels, tensor};
use super::{Filter, Layout, Source};
use crate::inputs::InputLimit;

/// How an image becomes a tensor: resized, cropped, scaled, normalised, and put in order. What is not said is not done,
/// but for floats bytes are divided by 255, and channels are made as many as the input has.
///
/// An element is `(byte × scale + offset − mean) / std`, computed in f32; mean and standard deviation have one number for each
/// channel in the tensor's order, or one for all. Inputs of `u8` take the bytes.
///
/// ```
/// use rlx::image::{Crop, Preprocess, Resize};
/// let by_hand = Preprocess {
///     resize: Some(Resize::Shortest { edge: 256, longest: None }),
///     crop: Some(Crop::center(224, 224)),
///     mean: vec![0.485, 0.456, 0.406],
///     std: vec![0.229, 0.224, 0.225],
///     ..Preprocess::default()
/// };
/// let shape = rlx::prelude::Shape::new(&[1, 3, 224, 224], rlx::prelude::DType::F32);
/// assert_eq!(Preprocess::preset("imagenet", &shape)?, by_hand);
/// # Ok::<(), rlx::prelude::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Preprocess {
    /// The size that the image is brought to first.
    pub resize: Option<Resize>,
    /// How it is resized.
    pub filter: Filter,
    /// The part around the middle that is kept.
    pub crop: Option<Crop>,
    /// What bytes are multiplied with; without it, 1/255 for floats.
    pub scale: Option<f64>,
    /// What is added then.
    pub offset: f64,
    /// What is subtracted then, by channel.
    pub mean: Vec<f64>,
    /// What it is divided by then, by channel.
    pub std: Vec<f64>,
    /// The order of colours.
    pub colors: Colors,
    /// The order of dimensions, where the shape does not tell.
    pub layout: Option<Layout>,
}

/// The size that an image is brought to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resize {
    /// This size, whatever the proportions.
    Exact {
        /// In pixels.
        width: usize,
        /// In pixels.
        height: usize,
    },
    /// The shorter side has this length and the proportions stay (the longer side is rounded down, as by torchvision); if
    /// the other side would be longer than `longest`, that decides.
    Shortest {
        /// Of the shorter side, in pixels.
        edge: usize,
        /// The most of the longer side, in pixels.
        longest: Option<usize>,
    },
    /// The whole image within this size, in the middle, with bars of one grey, as YOLO does.
    Letterbox {
        /// In pixels.
        width: usize,
        /// In pixels.
        height: usize,
        /// The bars' byte.
        fill: u8,
    },
    /// The size that the model's input declares, whatever the proportions.
    Input,
    /// [`Resize::Letterbox`] of the size that the model's input declares, with bars of 114.
    LetterboxInput,
}

/// A part around the middle; where the image is smaller, there are zeros around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crop {
    /// In pixels.
    pub width: usize,
    /// In pixels.
    pub height: usize,
    /// Where the middle is, if it falls between two pixels.
    pub rounding: Rounding,
}

impl Crop {
    /// As torchvision's `CenterCrop`.
    pub fn center(width: usize, height: usize) -> Crop {
        Crop { width, height, rounding: Rounding::HalfEven }
    }
}

/// Where half a pixel goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// To the even number, as in torchvision.
    HalfEven,
    /// Down (and up where the image is smaller than the part), as in Hugging Face's processors that use NumPy.
    Floor,
}

/// The order of colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Colors {
    /// Red first.
    #[default]
    Rgb,
    /// Blue first, as in OpenCV.
    Bgr,
}

/// One step on the way to the input's size.
enum Step {
    Resize { width: usize, height: usize },
    Window { left: isize, top: isize, width: usize, height: usize, fill: u8 },
}

/// What will be done to an image of a known size.
struct Plan {
    axes: Axes,
    channels: usize,
    steps: Vec<Step>,
}

impl Preprocess {
    /// The names that [`Preprocess::preset`] knows.
    pub const PRESETS: [&str; 4] = ["imagenet", "clip", "yolo-letterbox", "none"];

    /// What models of a kind are trained with; sizes follow the input that `shape` declares.
    ///
    /// | name | size | normalisation |
    /// |---|---|---|
    /// | `imagenet` | shorter side 256, bilinear, the 224×224 in the middle (8:7 for other inputs) | ImageNet's mean and standard deviation |
    /// | `clip` | shorter side 224, bicubic, the 224×224 in the middle | CLIP's mean and standard deviation |
    /// | `yolo-letterbox` | the whole image with grey bars in 640×640, bilinear | none: 0 to 1 |
    /// | `none` | as it is | none: 0 to 1 |
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for another name.
    pub fn preset(name: &str, shape: &Shape) -> Result<Preprocess> {
        let declared = Axes::of(shape, None)
            .ok()
            .and_then(|axes| Some((shape.dim(axes.width).as_static()?, shape.dim(axes.height).as_static()?)));
        let (width, height) = declared.unwrap_or(match name {
            "yolo-letterbox" => (640, 640),
            _ => (224, 224),
        });
        let none = Preprocess::default();
        Ok(match name {
            "imagenet" => Preprocess {
                resize: Some(Resize::Shortest { edge: width.min(height) * 256 / 224, longest: None }),
                crop: Some(Crop::center(width, height)),
                mean: vec![0.485, 0.456, 0.406],
                std: vec![0.229, 0.224, 0.225],
                ..none
            },
            "clip" => Preprocess {
                resize: Some(Resize::Shortest { edge: width.max(height), longest: None }),
                filter: Filter::Bicubic,
                crop: Some(Crop::center(width, height)),
                mean: vec![0.48145466, 0.4578275, 0.40821073],
                std: vec![0.26862954, 0.26130258, 0.27577711],
                ..none
            },
            "yolo-letterbox" => {
                Preprocess { resize: Some(Resize::Letterbox { width, height, fill: 114 }), ..none }
            }
            "none" => none,
            _ => {
                let message = format!("no preset \"{name}\"; there are {}", Preprocess::PRESETS.join(", "));
                let e = Error::new(ErrorKind::Unsupported, message);
                return Err(match nearest(name, Preprocess::PRESETS) {
                    Some(close) => e.with_hint(format!("did you mean \"{close}\"?")),
                    None => e,
                });
            }
        })
    }

    /// Whether bytes become other numbers than they would without options.
    pub fn is_normalising(&self) -> bool {
        self.scale.is_some() || self.offset != 0.0 || !self.mean.is_empty() || !self.std.is_empty()
    }

    /// The tensor of one item that an input gets for an image (leading dimensions become 1).
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] for an image that is not of the input's size in the end, or an input that does not take images; a tensor
    /// larger than the limit; [`ErrorKind::OutOfMemory`].
    pub fn apply(&self, image: &Image, info: &TensorInfo, limit: InputLimit) -> Result<ConstData> {
        let plan = self.plan((image.width, image.height), image.channels, info, limit)?;
        self.follow(&plan, image.clone(), info)
    }

    /// As [`Preprocess::apply`], for a file whose header was read: sizes are checked before pixels are decoded.
    ///
    /// # Errors
    /// As [`Preprocess::apply`] and [`Source::pixels`].
    pub fn read<R: BufRead + Seek>(
        &self,
        source: Source<R>,
        info: &TensorInfo,
        limit: InputLimit,
    ) -> Result<ConstData> {
        let plan = self.plan(source.size(), source.channels(), info, limit)?;
        // What the input's shape fixes needs no limit, unless there is more of it before it is resized.
        let most = if plan.steps.is_empty() { InputLimit(limit.0.max(limit.of(info))) } else { limit };
        self.follow(&plan, source.pixels(most)?, info)
    }

    /// Everything that can be wrong is found here.
    fn plan(
        &self,
        size: (usize, usize),
        channels: usize,
        info: &TensorInfo,
        limit: InputLimit,
    ) -> Result<Plan> {
        let shape = &info.shape;
        let axes = Axes::of(shape, self.layout)?;
        if !takes_pixels(info.dtype) {
            let message = format!("an input of {} does not take images", info.dtype);
            return Err(Error::new(ErrorKind::Shape, message));
        }
        let declared = || {
            let size = shape.dim(axes.width).as_static().zip(shape.dim(axes.height).as_static());
            size.ok_or_else(|| {
                let message = format!("the input is {shape}, so there is no size to resize to");
                Error::new(ErrorKind::Dimension, message)
                    .with_hint("give it, as in --resize 640x480, or fix the dimensions by --dim NAME=SIZE")
            })
        };
        let (steps, (width, height)) = self.steps(size, declared)?;
        for (axis, size) in [(axes.height, height), (axes.width, width)] {
            if shape.dim(axis).as_static().is_some_and(|want| want != size) {
                let what = if steps.is_empty() { "is" } else { "becomes" };
                let message = format!("the image {what} {width}×{height}, the input {shape}");
                let hint = "--resize input, --preset imagenet and other options bring images to the input's size \
                    (see `rlx help run`)";
                return Err(Error::new(ErrorKind::Shape, message).with_hint(hint));
            }
        }
        let channels = axes.wanted(shape, channels)?;
        for &Step::Resize { width, height } | &Step::Window { width, height, .. } in &steps {
            // A line of pixels resized by its shorter side would take gigabytes.
            let size = width.checked_mul(height).and_then(|n| n.checked_mul(channels));
            if size.is_none_or(|n| n as u64 > limit.0) {
                return Err(limit.too_large(&format!("the image would be resized to {width}×{height}")));
            }
        }
        limit.allows(info, &axes.dims(shape, [width, height, channels]), "the image")?;
        Ok(Plan { axes, channels, steps })
    }

    fn follow(&self, plan: &Plan, image: Image, info: &TensorInfo) -> Result<ConstData> {
        let mut image = image.with_channels(plan.channels)?;
        for step in &plan.steps {
            image = match *step {
                Step::Resize { width, height } => image.resized(width, height, self.filter)?,
                Step::Window { left, top, width, height, fill } => {
                    image.cropped(left, top, width, height, fill)?
                }
            };
        }
        tensor(&image, self, info, plan.axes)
    }

    /// What is done to an image of this size, and the size it has then.
    fn steps(
        &self,
        mut size: (usize, usize),
        declared: impl Fn() -> Result<(usize, usize)>,
    ) -> Result<(Vec<Step>, (usize, usize))> {
        let mut steps = Vec::new();
        if size.0 == 0 || size.1 == 0 {
            return Err(Error::new(ErrorKind::Shape, "an image without pixels"));
        }
        if let Some(resize) = self.resize {
            let letterbox = match resize {
                Resize::Letterbox { width, height, fill } => Some((width, height, fill)),
                Resize::LetterboxInput => {
                    let (width, height) = declared()?;
                    Some((width, height, 114))
                }
                _ => None,
            };
            let to = match (resize, letterbox) {
                (_, Some((width, height, _))) => within(size, (width, height)),
                (Resize::Exact { width, height }, _) => (width, height),
                (Resize::Shortest { edge, longest }, _) => shortest(size, edge, longest),
                _ => declared()?,
            };
            if to.0 == 0 || to.1 == 0 {
                let message = format!("an image of {}×{} resized to {}×{}", size.0, size.1, to.0, to.1);
                return Err(Error::new(ErrorKind::Shape, message));
            }
            steps.push(Step::Resize { width: to.0, height: to.1 });
            size = to;
            if let Some((width, height, fill)) = letterbox {
                // Half a pixel more goes to the right and to the bottom.
                let before = |space: usize, used: usize| -((space.saturating_sub(used) / 2) as isize);
                let (left, top) = (before(width, size.0), before(height, size.1));
                steps.push(Step::Window { left, top, width, height, fill });
                size = (width, height);
            }
        }
        if let Some(Crop { width, height, rounding }) = self.crop {
            let (left, top) = (rounding.start(size.0, width), rounding.start(size.1, height));
            steps.push(Step::Window { left, top, width, height, fill: 0 });
            size = (width, height);
        }
        Ok((steps, size))
    }

    /// What is done, for people.
    pub fn describe(&self) -> String {
        let mut parts = Vec::new();
        let filter = self.filter.name();
        parts.extend(self.resize.map(|resize| match resize {
            Resize::Exact { width, height } => format!("resized to {width}×{height} ({filter})"),
            Resize::Shortest { edge, longest: None } => format!("shorter side {edge} ({filter})"),
            Resize::Shortest { edge, longest: Some(most) } => {
                format!("shorter side {edge}, longer at most {most} ({filter})")
            }
            Resize::Letterbox { width, height, .. } => format!("letterboxed to {width}×{height} ({filter})"),
            Resize::Input => format!("resized to the input's size ({filter})"),
            Resize::LetterboxInput => format!("letterboxed to the input's size ({filter})"),
        }));
        parts.extend(self.crop.map(|Crop { width, height, .. }| format!("{width}×{height} in the middle")));
        parts.push(self.scale.map_or("÷255 for floats".to_owned(), |scale| format!("×{scale}")));
        if self.offset != 0.0 {
            parts.push(format!("{:+}", self.offset));
        }
        for (name, list) in [("mean", &self.mean), ("std", &self.std)] {
            if !list.is_empty() {
                let list: Vec<String> = list.iter().map(f64::to_string).collect();
                parts.push(format!("{name} {}", list.join(" ")));
            }
        }
        if self.colors == Colors::Bgr {
            parts.push("BGR".to_owned());
        }
        parts.extend(self.layout.map(|layout| layout.name().to_owned()));
        parts.join(", ")
    }
}

impl Rounding {
    /// Where a part of `to` pixels starts in `from` pixels.
    fn start(self, from: usize, to: usize) -> isize {
        if to > from {
            let space = (to - from) as isize;
            return match self {
                Rounding::HalfEven => -(space / 2),
                Rounding::Floor => -((space + 1) / 2),
            };
        }
        let space = from - to;
        let half = space / 2;
        let up = self == Rounding::HalfEven && space % 2 == 1 && half % 2 == 1;
        (half + usize::from(up)) as isize
    }
}

/// The largest size of the proportions that fits, each side rounded (half to even, as Python rounds).
fn within((width, height): (usize, usize), (most_width, most_height): (usize, usize)) -> (usize, usize) {
    let ratio = (most_width as f64 / width as f64).min(most_height as f64 / height as f64);
    let scaled =
        |n: usize, most: usize| ((n as f64 * ratio).round_ties_even() as usize).clamp(1, most.max(1));
    (scaled(width, most_width), scaled(height, most_height))
}

/// A size by its shorter side. `longest` is taken as by DETR's processors, which round the shorter side then.
fn shortest((width, height): (usize, usize), edge: usize, longest: Option<usize>) -> (usize, usize) {
    let (short, long) = (width.min(height) as f64, width.max(height) as f64);
    let raw = longest
        .filter(|&most| long / short * edge as f64 > most as f64)
        .map(|most| most as f64 * short / long);
    let edge = raw.map_or(edge, |raw| raw.round_ties_even() as usize).max(1);
    // Integers as far as they go: torchvision truncates the quotient of exact integers.
    let other = match raw {
        Some(raw) => (raw * long / short) as usize,
        None => (edge as f64 * long / short) as usize,
    };
    if width <= height { (edge, other.max(1)) } else { (other.max(1), edge) }
}
