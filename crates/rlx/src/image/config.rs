//! What files beside a model, or its metadata, say of the images it takes.

use std::io::Read;
use std::path::{Path, PathBuf};

use rlx_ir::files::{io_error, open_file};
use rlx_ir::{Error, ErrorKind, Result};
use serde_json::{Map, Value as Json};

use super::{Colors, Crop, Filter, Preprocess, Resize, Rounding};

/// No configuration is longer.
const MOST: u64 = 4 << 20;

/// Switches of Hugging Face's processors that need steps which are not built. Where one is on, nothing is guessed.
const NOT_BUILT: [&str; 12] = [
    "do_align_long_axis",
    "do_color_quantize",
    "do_image_splitting",
    "do_pan_and_scan",
    "do_thumbnail",
    "do_split_image",
    "keep_aspect_ratio",
    "image_grid_pinpoints",
    "max_pixels",
    "min_pixels",
    "merge_size",
    "pad_size",
];

/// How a model's images are prepared, as it or a file beside it declares.
#[derive(Debug, Clone, PartialEq)]
pub struct Declared {
    /// The preparation.
    pub preprocess: Preprocess,
    /// What declares it: a file's name, or the metadata's keys.
    pub source: String,
}

impl Declared {
    /// What belongs to the model at `path`: a `preprocessor_config.json` (or `processor_config.json`) of Hugging Face or a
    /// `config.json` of timm in its folder, or in the one above a folder named `onnx`; else what its metadata says. `None`
    /// where nothing speaks of images.
    ///
    /// # Errors
    /// A file that is no JSON, or asks for something that is not built.
    pub fn of_model(path: &Path, metadata: &[(String, String)]) -> Result<Option<Declared>> {
        for folder in folders(path) {
            for name in ["preprocessor_config.json", "processor_config.json", "config.json"] {
                let file = folder.join(name);
                if !file.is_file() {
                    continue;
                }
                let read = || -> Result<Option<Preprocess>> {
                    let mut text = Vec::new();
                    let opened = open_file(&file)?;
                    opened.take(MOST).read_to_end(&mut text).map_err(|e| io_error(&file, e))?;
                    // What is not about images may be of any form.
                    if name == "config.json" { timm(&text) } else { Preprocess::from_hugging_face(&text) }
                };
                let found = read().map_err(|e| {
                    let e = e.with_origin(file.display().to_string());
                    if e.hint().is_some() { e } else { e.with_hint("--preset none ignores it") }
                })?;
                if let Some(preprocess) = found {
                    return Ok(Some(Declared { preprocess, source: file.display().to_string() }));
                }
            }
        }
        Ok(Declared::from_metadata(metadata))
    }

    /// What a model's own metadata says: the keys of Ultralytics' exports (`imgsz`, `task`), or those of ONNX for images
    /// (`Image.BitmapPixelFormat`, `Image.NominalPixelRange`; see `MetadataProps.md` of ONNX).
    pub fn from_metadata(metadata: &[(String, String)]) -> Option<Declared> {
        let value = |key: &str| metadata.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
        if let (Some(size), Some(_)) = (value("imgsz"), value("stride")) {
            let sides: Vec<usize> = numbers(size);
            let ([height, width] | [height, width, _]) = sides[..] else { return None };
            let none = Preprocess::default();
            let preprocess = match value("task") {
                Some("classify") => Preprocess {
                    resize: Some(Resize::Shortest { edge: width.min(height), longest: None }),
                    crop: Some(Crop::center(width, height)),
                    ..none
                },
                _ => Preprocess { resize: Some(Resize::Letterbox { width, height, fill: 114 }), ..none },
            };
            return Some(Declared { preprocess, source: "the model's metadata (imgsz, task)".to_owned() });
        }
        let (format, range) = (value("Image.BitmapPixelFormat"), value("Image.NominalPixelRange"));
        if format.is_none() && range.is_none() {
            return None;
        }
        let colors = if format.is_some_and(|f| f.starts_with("Bgr")) { Colors::Bgr } else { Colors::Rgb };
        let (scale, offset) = match range {
            Some("NominalRange_0_255") => (Some(1.0), 0.0),
            Some("Normalized_1_1") => (Some(2.0 / 255.0), -1.0),
            Some("NominalRange_16_235") => (Some(219.0 / 255.0), 16.0),
            _ => (None, 0.0),
        };
        let preprocess = Preprocess { colors, scale, offset, ..Preprocess::default() };
        Some(Declared {
            preprocess,
            source: "the model's metadata (Image.BitmapPixelFormat, Image.NominalPixelRange)".to_owned(),
        })
    }
}

/// The folder of a model, and the one above if that is `onnx`.
fn folders(path: &Path) -> Vec<PathBuf> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let above = folder.file_name().is_some_and(|name| name == "onnx").then(|| folder.join(".."));
    std::iter::once(folder).chain(above).collect()
}

/// The numbers in a text such as `[640, 640]`.
fn numbers(text: &str) -> Vec<usize> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

impl Preprocess {
    /// What a `preprocessor_config.json` of Hugging Face's transformers says; `None` for one that is not of images. Its switches
    /// are those of `BaseImageProcessor` and of the processors of CLIP, ViT, DeiT, ConvNeXT, DETR, LeViT, PoolFormer, MobileNet,
    /// EfficientNet and those that share their form.
    ///
    /// ```
    /// use rlx::image::{Preprocess, Resize};
    /// let json = br#"{"image_processor_type": "ViTImageProcessor", "do_resize": true, "size": {"height": 224, "width": 224},
    ///     "resample": 2, "do_rescale": true, "rescale_factor": 0.00392156862745098, "do_normalize": true,
    ///     "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}"#;
    /// let found = Preprocess::from_hugging_face(json)?.unwrap();
    /// assert_eq!(found.resize, Some(Resize::Exact { width: 224, height: 224 }));
    /// # Ok::<(), rlx::prelude::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] for what is not JSON; [`ErrorKind::Unsupported`] naming a switch that asks for something else.
    pub fn from_hugging_face(json: &[u8]) -> Result<Option<Preprocess>> {
        let json: Json = serde_json::from_slice(json).map_err(|e| malformed(format!("not JSON: {e}")))?;
        let whole = json.as_object().ok_or_else(|| malformed("not a JSON object".to_owned()))?;
        let config = whole.get("image_processor").and_then(Json::as_object).unwrap_or(whole);
        let is_of_images = ["image_processor_type", "image_mean", "do_resize", "crop_size", "do_rescale"];
        let is_of_sound = config.contains_key("sampling_rate");
        if is_of_sound || !is_of_images.iter().any(|key| config.contains_key(*key)) {
            return Ok(None);
        }
        HuggingFace { config }.preprocess().map(Some)
    }
}

/// A processor's configuration.
struct HuggingFace<'a> {
    config: &'a Map<String, Json>,
}

impl HuggingFace<'_> {
    fn preprocess(&self) -> Result<Preprocess> {
        for name in NOT_BUILT {
            let is_on = self.config.get(name).is_some_and(|v| !v.is_null() && *v != Json::Bool(false));
            if is_on {
                let message = format!("the preprocessing asks for \"{name}\", which is not built");
                return Err(Error::new(ErrorKind::Unsupported, message).with_hint(
                    "--preset none ignores the file; prepare the inputs with its own program and give them as .npy",
                ));
            }
        }
        let (resize, crop) = self.geometry()?;
        let normalises = self.flag("do_normalize").unwrap_or(self.config.contains_key("image_mean"));
        let list = |name: &str| if normalises { self.list(name) } else { Ok(Vec::new()) };
        let rescales = self.flag("do_rescale").unwrap_or(true);
        let factor = self.number("rescale_factor").unwrap_or(1.0 / 255.0);
        let has_offset = self.flag("rescale_offset").or(self.flag("offset")).unwrap_or(false);
        let mut std = list("image_std")?;
        if self.is("EfficientNet") && self.flag("include_top").unwrap_or(false) {
            // Its processor normalises a second time.
            let second = [0.47853944, 0.4732864, 0.47434163];
            std.iter_mut().zip(second).for_each(|(std, second)| *std *= second);
        }
        Ok(Preprocess {
            resize,
            filter: self.filter()?,
            crop,
            scale: Some(if rescales { factor } else { 1.0 }).filter(|&s| s != 1.0 / 255.0),
            offset: if has_offset && rescales { -1.0 } else { 0.0 },
            mean: list("image_mean")?,
            std,
            colors: if self.flag("do_flip_channel_order") == Some(true) { Colors::Bgr } else { Colors::Rgb },
            layout: None,
        })
    }

    /// Whether the processor is one of those.
    fn is(&self, name: &str) -> bool {
        let types = ["image_processor_type", "feature_extractor_type"];
        types.iter().filter_map(|key| self.config.get(*key)?.as_str()).any(|t| t.contains(name))
    }

    fn flag(&self, name: &str) -> Option<bool> {
        self.config.get(name)?.as_bool()
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.config.get(name)?.as_f64()
    }

    fn list(&self, name: &str) -> Result<Vec<f64>> {
        let bad = || malformed(format!("\"{name}\" is not a list of numbers"));
        match self.config.get(name) {
            None | Some(Json::Null) => Ok(Vec::new()),
            Some(Json::Number(n)) => Ok(vec![n.as_f64().ok_or_else(bad)?]),
            Some(Json::Array(list)) => list.iter().map(|x| x.as_f64().ok_or_else(bad)).collect(),
            Some(_) => Err(bad()),
        }
    }

    fn filter(&self) -> Result<Filter> {
        let known = |filter: Option<Filter>| {
            filter.ok_or_else(|| malformed(format!("\"resample\" is {}", self.config["resample"])))
        };
        match self.config.get("resample").or(self.config.get("interpolation")) {
            Some(Json::Number(n)) => known(n.as_u64().and_then(Filter::from_pillow)),
            Some(Json::String(name)) => known(Filter::named(name)),
            _ if self.is("CLIP") || self.is("DeiT") || self.is("Siglip") => Ok(Filter::Bicubic),
            _ => Ok(Filter::Bilinear),
        }
    }

    /// Resizing and cropping, which the processors do in the same order and understand in different ways.
    fn geometry(&self) -> Result<(Option<Resize>, Option<Crop>)> {
        let size = self.config.get("size").filter(|v| !v.is_null());
        let resizes = self.flag("do_resize").unwrap_or(size.is_some()) && size.is_some();
        let rounding = if self.is("Fast") { Rounding::HalfEven } else { Rounding::Floor };
        let crop = |(width, height): (usize, usize)| Crop { width, height, rounding };
        let square = |n: usize| Some(crop((n, n)));
        let mut center = None;
        if self.flag("do_center_crop") == Some(true) {
            let (width, height) = match self.config.get("crop_size").or(size) {
                Some(size) => match Size::of(size) {
                    Some(Size::Exact(width, height)) => (width, height),
                    Some(Size::Number(n) | Size::Shortest(n, _)) => (n, n),
                    None => return Err(unknown("crop_size", size)),
                },
                None => return Err(malformed("\"do_center_crop\" without \"crop_size\"".to_owned())),
            };
            center = Some(crop((width, height)));
        }
        let Some(size) = size.filter(|_| resizes) else { return Ok((None, center)) };
        let parsed = Size::of(size).ok_or_else(|| unknown("size", size))?;
        let percent = self.number("crop_pct").filter(|&p| p > 0.0);
        let exact = |width, height| Some(Resize::Exact { width, height });
        let shortest = |edge, longest| Some(Resize::Shortest { edge, longest });
        Ok(match parsed {
            // Small inputs are cut out of a larger image, large ones are not.
            Size::Shortest(n, _) | Size::Number(n) if self.is("ConvNext") => match n {
                384.. => (exact(n, n), None),
                _ => (shortest((n as f64 / percent.unwrap_or(224.0 / 256.0)) as usize, None), square(n)),
            },
            Size::Shortest(n, _) | Size::Number(n) if self.is("Levit") => {
                (shortest((256.0 / 224.0 * n as f64) as usize, None), center)
            }
            Size::Shortest(n, _) | Size::Number(n) if self.is("PoolFormer") && percent.is_some() => {
                (shortest((n as f64 / percent.unwrap_or(1.0)) as usize, None), center)
            }
            Size::Shortest(n, longest) => (shortest(n, longest), center),
            // In old files, a number was the shorter side for the processors that crop.
            Size::Number(n) if self.is("CLIP") || self.is("MobileNet") || self.is("MobileViT") => {
                (shortest(n, None), center)
            }
            Size::Number(n) => (exact(n, n), center),
            Size::Exact(width, height) => (exact(width, height), center),
        })
    }
}

/// A size as it is written.
enum Size {
    Number(usize),
    /// Width and height.
    Exact(usize, usize),
    Shortest(usize, Option<usize>),
}

impl Size {
    fn of(json: &Json) -> Option<Size> {
        let number = |json: &Json| json.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0);
        let field = |name: &str| json.get(name).filter(|v| !v.is_null());
        match json {
            Json::Number(_) => number(json).map(Size::Number),
            // Old lists were width and height.
            Json::Array(list) => match list.as_slice() {
                [width, height] => Some(Size::Exact(number(width)?, number(height)?)),
                _ => None,
            },
            _ => match (field("height"), field("width"), field("shortest_edge")) {
                (Some(height), Some(width), None) => Some(Size::Exact(number(width)?, number(height)?)),
                (None, None, Some(edge)) => {
                    let longest = match field("longest_edge") {
                        Some(longest) => Some(number(longest)?),
                        None => None,
                    };
                    Some(Size::Shortest(number(edge)?, longest))
                }
                _ => None,
            },
        }
    }
}

/// What a `config.json` of timm says of its images (`pretrained_cfg`), as `create_transform` prepares them for evaluation;
/// `None` for any other.
fn timm(json: &[u8]) -> Result<Option<Preprocess>> {
    let Ok(json) = serde_json::from_slice::<Json>(json) else { return Ok(None) };
    let Some(config) = json.get("pretrained_cfg").and_then(Json::as_object) else { return Ok(None) };
    let config = HuggingFace { config };
    let [_, height, width] = config.list("input_size")?[..] else { return Ok(None) };
    let (width, height) = (width as usize, height as usize);
    let percent = config.number("crop_pct").filter(|&p| p > 0.0).unwrap_or(0.875);
    let is_centered = config.config.get("crop_mode").and_then(Json::as_str).unwrap_or("center") == "center";
    if !is_centered || width != height || width == 0 {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "the preprocessing asks for another crop than a square in the middle",
        ));
    }
    Ok(Some(Preprocess {
        resize: Some(Resize::Shortest { edge: (width as f64 / percent) as usize, longest: None }),
        filter: config.filter()?,
        crop: Some(Crop::center(width, height)),
        mean: config.list("mean")?,
        std: config.list("std")?,
        ..Preprocess::default()
    }))
}

fn unknown(name: &str, value: &Json) -> Error {
    let message = format!("the preprocessing has \"{name}\": {value}, which is not built");
    Error::new(ErrorKind::Unsupported, message)
        .with_hint("--preset none ignores the file; --resize and --crop give sizes")
}

fn malformed(message: String) -> Error {
    Error::new(ErrorKind::Malformed, message)
}
