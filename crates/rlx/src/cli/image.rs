//! How images are prepared: the options, what the model declares, and what both are together.

use std::cell::RefCell;

use clap::{Args, ValueEnum, ValueHint};
use rlx::image::{Colors, Crop, Declared, Filter, Layout, Preprocess, Resize, Rounding};
use rlx_ir::Result;
use rlx_runtime::TensorInfo;
use serde_json::{Value as Json, json};

use super::args::{Common, Spelled};
use super::output::Messages;

/// The bars of a letterbox.
const GREY: u8 = 114;

/// How images are prepared, besides what a preprocessor_config.json beside the model says. Options win over the preset, that over
/// the file.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Images")]
pub struct ImageArgs {
    /// Prepare images as for a kind of model: imagenet, clip, yolo-letterbox; `none` ignores what the model declares [default: a
    /// preprocessor_config.json beside the model, or the model's metadata, if they say so]
    #[arg(long, value_name = "NAME", value_parser = PRESET, hide_possible_values = true)]
    pub preset: Option<&'static str>,
    /// Resize images, as Pillow does: `256` (the shorter side), `640x480` (width x height), `input` (the model's input size),
    /// `letterbox` or `letterbox:640x640` (the whole image, with grey bars), `none`
    #[arg(long, value_name = "SIZE", value_parser = resize, value_hint = ValueHint::Other)]
    pub resize: Option<ResizeArg>,
    /// How to resize: nearest, box, bilinear, hamming, bicubic, lanczos [default: bilinear]
    #[arg(long, value_name = "NAME", value_parser = FILTER, hide_possible_values = true)]
    pub filter: Option<Filter>,
    /// Then keep the middle: `224` or `640x480` (width x height), `none`
    #[arg(long, value_name = "SIZE", value_parser = crop, value_hint = ValueHint::Other)]
    pub crop: Option<CropArg>,
    /// Multiply bytes with this, as in `1` or `1/127.5` [default: 1/255 for float inputs]
    #[arg(long, value_name = "FACTOR", value_parser = factor, value_hint = ValueHint::Other)]
    pub scale: Option<f64>,
    /// Then subtract this: one number, or one for each channel, as in `0.485,0.456,0.406`
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', allow_hyphen_values = true, value_hint = ValueHint::Other)]
    pub mean: Option<Vec<f64>>,
    /// Then divide by this: one number, or one for each channel
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_hint = ValueHint::Other)]
    pub std: Option<Vec<f64>>,
    /// The order of colours in the tensor
    #[arg(long, value_name = "ORDER")]
    pub colors: Option<ColorsArg>,
    /// The order of dimensions of the input [default: by where it has 1 or 3 channels]
    #[arg(long, value_name = "ORDER")]
    pub layout: Option<LayoutArg>,
}

const PRESET: Spelled<&'static str> = Spelled {
    names: || Preprocess::PRESETS.to_vec(),
    parse: |text| {
        let found = Preprocess::PRESETS.into_iter().find(|name| *name == text);
        found.ok_or_else(|| format!("no preset \"{text}\"; there are {}", Preprocess::PRESETS.join(", ")))
    },
};
const FILTER: Spelled<Filter> = Spelled {
    names: || Filter::ALL.iter().map(|f| f.name()).collect(),
    parse: |text| {
        let names: Vec<&str> = Filter::ALL.iter().map(|f| f.name()).collect();
        Filter::named(text).ok_or_else(|| format!("no filter \"{text}\"; there are {}", names.join(", ")))
    },
};

/// `--resize`; `None` for the word `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResizeArg(pub Option<Resize>);

/// `--crop`: width and height; `None` for the word `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CropArg(pub Option<(usize, usize)>);

/// `--colors`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorsArg {
    /// Red, green, blue.
    Rgb,
    /// Blue, green, red, as in OpenCV.
    Bgr,
}

/// `--layout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LayoutArg {
    /// Channels before height and width.
    Nchw,
    /// Channels last.
    Nhwc,
}

/// A size such as `224` or `640x480`.
enum Size {
    One(usize),
    Both(usize, usize),
}

fn size(text: &str) -> Result<Size, String> {
    const MOST: usize = u16::MAX as usize;
    let side = |side: &str| match side.parse() {
        Ok(n @ 1..=MOST) => Ok(n),
        _ => Err(format!("\"{text}\" is not a size in pixels, such as 224 or 640x480 (1 to {MOST})")),
    };
    match text.split_once(['x', '×']) {
        Some((width, height)) => Ok(Size::Both(side(width)?, side(height)?)),
        None => Ok(Size::One(side(text)?)),
    }
}

/// Reads `--resize`.
fn resize(text: &str) -> Result<ResizeArg, String> {
    let letterbox = |width, height| Resize::Letterbox { width, height, fill: GREY };
    Ok(ResizeArg(match text.split_once(':') {
        Some(("letterbox", within)) => Some(match size(within)? {
            Size::One(n) => letterbox(n, n),
            Size::Both(width, height) => letterbox(width, height),
        }),
        Some(_) => return Err(format!("\"{text}\" is not a size; letterbox:640x640 is")),
        None => match text {
            "none" => None,
            "input" => Some(Resize::Input),
            "letterbox" => Some(Resize::LetterboxInput),
            _ => Some(match size(text)? {
                Size::One(edge) => Resize::Shortest { edge, longest: None },
                Size::Both(width, height) => Resize::Exact { width, height },
            }),
        },
    }))
}

/// Reads `--crop`.
fn crop(text: &str) -> Result<CropArg, String> {
    if text == "none" {
        return Ok(CropArg(None));
    }
    Ok(CropArg(Some(match size(text)? {
        Size::One(n) => (n, n),
        Size::Both(width, height) => (width, height),
    })))
}

/// Reads `--scale`: a number or a fraction.
fn factor(text: &str) -> Result<f64, String> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|x| x.is_finite());
    let found = match text.split_once('/') {
        Some((a, b)) => number(a).zip(number(b)).map(|(a, b)| a / b),
        None => number(text),
    };
    found
        .filter(|x| x.is_finite())
        .ok_or_else(|| format!("\"{text}\" is not a number or a fraction such as 1/255"))
}

impl ImageArgs {
    /// The options over what the model or a preset says.
    fn over(&self, base: Preprocess) -> Preprocess {
        let rounding = base.crop.map_or(Rounding::HalfEven, |crop| crop.rounding);
        let cropped = |(width, height): (usize, usize)| Crop { width, height, rounding };
        Preprocess {
            resize: self.resize.map_or(base.resize, |resize| resize.0),
            filter: self.filter.unwrap_or(base.filter),
            crop: self.crop.map_or(base.crop, |crop| crop.0.map(cropped)),
            scale: self.scale.or(base.scale),
            // It belongs to the factor.
            offset: if self.scale.is_some() { 0.0 } else { base.offset },
            mean: self.mean.clone().unwrap_or(base.mean),
            std: self.std.clone().unwrap_or(base.std),
            colors: match self.colors {
                Some(ColorsArg::Rgb) => Colors::Rgb,
                Some(ColorsArg::Bgr) => Colors::Bgr,
                None => base.colors,
            },
            layout: match self.layout {
                Some(LayoutArg::Nchw) => Some(Layout::Nchw),
                Some(LayoutArg::Nhwc) => Some(Layout::Nhwc),
                None => base.layout,
            },
        }
    }
}

/// How the images of a command are prepared: decided when the first one is read for an input, and said once.
pub struct Images<'a> {
    common: &'a Common,
    metadata: &'a [(String, String)],
    json: bool,
    decided: RefCell<Vec<Decided>>,
}

struct Decided {
    input: String,
    preprocess: Preprocess,
    /// Where it comes from.
    sources: Vec<String>,
}

impl<'a> Images<'a> {
    /// For a command's model with this metadata; with `json`, nothing is printed.
    pub fn of(common: &'a Common, metadata: &'a [(String, String)], json: bool) -> Images<'a> {
        Images { common, metadata, json, decided: RefCell::default() }
    }

    /// For a command that reads none.
    pub fn none(common: &'a Common) -> Images<'a> {
        Images { common, metadata: &[], json: true, decided: RefCell::default() }
    }

    /// How images for this input are prepared.
    pub fn preprocess(&self, info: &TensorInfo) -> Result<Preprocess> {
        if let Some(found) = self.decided.borrow().iter().find(|d| d.input == info.name) {
            return Ok(found.preprocess.clone());
        }
        let found = self.decide(info)?;
        let preprocess = found.preprocess.clone();
        if !self.json && !found.sources.is_empty() {
            let sources = found.sources.join(", ");
            writeln!(Messages, "images: {} (from {sources})", preprocess.describe());
        }
        self.decided.borrow_mut().push(found);
        Ok(preprocess)
    }

    fn decide(&self, info: &TensorInfo) -> Result<Decided> {
        let args = &self.common.images;
        let mut sources = Vec::new();
        let mut base = Preprocess::default();
        if let Some(name) = args.preset {
            base = Preprocess::preset(name, &info.shape)?;
            // It does nothing to be said.
            sources.extend((name != "none").then(|| format!("--preset {name}")));
        } else if let Some(found) = Declared::of_model(&self.common.model, self.metadata)? {
            base = found.preprocess;
            sources.push(found.source);
        }
        if !info.dtype.is_float() && base.is_normalising() {
            // What was quantised with its normalisation takes bytes.
            base = Preprocess { scale: None, offset: 0.0, mean: Vec::new(), std: Vec::new(), ..base };
            sources.push(format!("without the normalisation, since the input is {}", info.dtype));
        }
        let preprocess = args.over(base.clone());
        if preprocess != base {
            sources.push("the options".to_owned());
        }
        Ok(Decided { input: info.name.clone(), preprocess, sources })
    }

    /// What was decided, for programs.
    pub fn to_json(&self) -> Json {
        let decided = self.decided.borrow();
        let entry = |d: &Decided| json!({ "input": d.input, "preprocess": d.preprocess.describe(), "from": d.sources });
        decided.iter().map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        assert_eq!(resize("256"), Ok(ResizeArg(Some(Resize::Shortest { edge: 256, longest: None }))));
        assert_eq!(resize("640x480"), Ok(ResizeArg(Some(Resize::Exact { width: 640, height: 480 }))));
        assert_eq!(resize("letterbox"), Ok(ResizeArg(Some(Resize::LetterboxInput))));
        let boxed = Resize::Letterbox { width: 64, height: 32, fill: GREY };
        assert_eq!(resize("letterbox:64x32"), Ok(ResizeArg(Some(boxed))));
        assert_eq!((resize("none"), crop("none")), (Ok(ResizeArg(None)), Ok(CropArg(None))));
        assert_eq!(crop("224"), Ok(CropArg(Some((224, 224)))));
        for bad in ["", "0", "x", "224x", "70000", "-1", "2x3x4", "pillarbox:3", "letterbox:"] {
            assert!(resize(bad).is_err() && crop(bad).is_err(), "{bad}");
        }
        assert_eq!((factor("1/255"), factor("2")), (Ok(1.0 / 255.0), Ok(2.0)));
        assert!(factor("1/0").is_err() && factor("often").is_err() && factor("nan").is_err());
    }
}
