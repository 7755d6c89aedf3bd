//! Images as models get them, against Pillow, torchvision and Hugging Face's processors.
//!
//! The references are made by `tests/image/make.py`; this test needs none of those packages.

use std::collections::HashMap;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use rlx::image::{Crop, Declared, Filter, Image, Preprocess, Resize, Rounding};
use rlx::inputs::InputLimit;
use rlx_ir::{ConstData, DType, Dim, ErrorKind, Shape, sym};
use rlx_runtime::TensorInfo;
use serde_json::Value as Json;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/image")
}

fn references() -> HashMap<String, ConstData> {
    rlx_weights::npz::read(folder().join("references.npz")).expect("it is committed").into_iter().collect()
}

/// An array of height, width and channels as an image.
fn image(array: &ConstData) -> Image {
    let dims = array.dims();
    let channels = dims.get(2).copied().unwrap_or(1);
    Image::new(dims[1], dims[0], channels, array.bytes().to_vec()).expect("height, width, channels")
}

/// The largest difference of two images of one size, in levels.
fn levels(a: &Image, b: &Image) -> u8 {
    assert_eq!((a.width(), a.height(), a.channels()), (b.width(), b.height(), b.channels()));
    a.pixels().iter().zip(b.pixels()).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0)
}

fn info(dims: &[Dim], dtype: DType) -> TensorInfo {
    TensorInfo { name: "pixels".into(), dtype, shape: Shape::from_dims(dims, dtype) }
}

fn open(name: &str) -> Dim {
    Dim::Dynamic(sym::named(name))
}

/// An input that takes any size: `[1, 3, h, w]`.
fn any_size() -> TensorInfo {
    info(&[Dim::Static(1), Dim::Static(3), open("image.h"), open("image.w")], DType::F32)
}

#[test]
fn files_decode_as_pillow_decodes_them() {
    let references = references();
    let mut count = 0;
    for (name, array) in references.iter().filter_map(|(n, a)| Some((n.strip_prefix("decoded/")?, a))) {
        let found = Image::open(folder().join("pictures").join(name), InputLimit::default());
        let found = found.unwrap_or_else(|e| panic!("{name}: {e}")).with_channels(3).unwrap();
        // Lossy formats leave the rounding of their transforms open; the others do not.
        let most = match name {
            "cmyk.jpg" => 3,
            _ if name.ends_with(".jpg") => 2,
            "lossy.webp" => 1,
            _ => 0,
        };
        let off = levels(&found, &image(array));
        assert!(off <= most, "{name}: {off} levels");
        count += 1;
    }
    assert_eq!(count, 33);
}

#[test]
fn resizing_is_pillow_s_to_the_byte() {
    let references = references();
    let mut count = 0;
    for (name, from) in references.iter().filter(|(n, _)| n.starts_with("resize/") && n.ends_with("/from")) {
        let case = name.trim_end_matches("/from");
        for filter in Filter::ALL {
            let want = image(&references[&format!("{case}/{}", filter.name())]);
            let found = image(from).resized(want.width(), want.height(), filter).unwrap();
            assert_eq!(levels(&found, &want), 0, "{case} {}", filter.name());
            count += 1;
        }
    }
    assert_eq!(count, 144);
    let grey = image(&references["grey/from"]).with_channels(1).unwrap();
    assert_eq!(levels(&grey, &image(&references["grey/to"])), 0);
}

/// What is true of resizing whatever the picture.
#[test]
fn resizing_random_images_keeps_what_it_must() {
    let mut random = rlx_ir::testing::Gen::new(11);
    for _ in 0..200 {
        let [width, height, to_width, to_height] = [0; 4].map(|_| random.size(1..=40));
        let channels = [1, 2, 3, 4][random.size(0..=3)];
        let pixels: Vec<u8> = (0..width * height * channels).map(|_| random.bits() as u8).collect();
        let flat = Image::new(width, height, channels, vec![pixels[0]; pixels.len()]).unwrap();
        let image = Image::new(width, height, channels, pixels).unwrap();
        for filter in Filter::ALL {
            let at = |image: &Image| image.resized(to_width, to_height, filter).unwrap();
            let found = at(&image);
            assert_eq!((found.width(), found.height()), (to_width, to_height));
            // One colour stays, the same size changes nothing, and both axes are alike.
            assert!(at(&flat).pixels().iter().all(|&p| p == flat.pixels()[0]), "{filter:?}");
            assert_eq!(image.resized(width, height, filter).unwrap(), image);
            // Filters between their pixels stay between them.
            if matches!(filter, Filter::Nearest | Filter::Box | Filter::Bilinear) {
                let range =
                    |i: &Image| (*i.pixels().iter().min().unwrap(), *i.pixels().iter().max().unwrap());
                let ((low, high), (from, to)) = (range(&found), range(&image));
                assert!(from <= low && high <= to, "{filter:?}");
            }
        }
    }
    let one = Image::new(1, 1, 1, vec![5]).unwrap();
    assert_eq!(one.resized(0, 3, Filter::Box).unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(Image::new(2, 2, 1, vec![5]).unwrap_err().kind(), ErrorKind::Shape);
}

/// Compares a tensor of one item with a reference, within half a level of the normalised numbers (one for bytes that were
/// resized with another rounding).
fn assert_close(found: &ConstData, want: &ConstData, tolerance: f64, what: &str) {
    assert_eq!(found.dims()[1..], *want.dims(), "{what}");
    let (found, want) = (found.value().to_f64(), want.value().to_f64());
    let off = found.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(off <= tolerance, "{what}: {off}");
}

#[test]
fn presets_are_torchvision_s_transforms() {
    let references = references();
    let input = info(&[1, 3, 28, 28].map(Dim::Static), DType::F32);
    for name in ["imagenet", "clip"] {
        let preprocess = Preprocess::preset(name, &input.shape).unwrap();
        for i in 0..4 {
            let picture = image(&references[&format!("pictures/{i}")]);
            let found = preprocess.apply(&picture, &input, InputLimit::default()).unwrap();
            assert_close(&found, &references[&format!("preset/{name}/{i}")], 1e-5, &format!("{name} {i}"));
        }
    }
    let padded = Preprocess { crop: Some(Crop::center(71, 50)), ..Preprocess::default() };
    let found = padded.apply(&image(&references["pictures/0"]), &any_size(), InputLimit::default()).unwrap();
    assert_close(&found, &references["pad/torchvision"], 0.0, "padded");
}

#[test]
fn configurations_are_hugging_face_s_processors() {
    let references = references();
    let text = std::fs::read_to_string(folder().join("processors.json")).expect("it is committed");
    let configs: HashMap<String, Json> = serde_json::from_str(&text).expect("JSON");
    for (name, config) in &configs {
        let preprocess =
            Preprocess::from_hugging_face(config.to_string().as_bytes()).unwrap().expect("of images");
        for i in 0..4 {
            let Some(want) = references.get(&format!("processor/{name}/{i}")) else { continue };
            let picture = image(&references[&format!("pictures/{i}")]);
            let found = preprocess.apply(&picture, &any_size(), InputLimit::default()).unwrap();
            let found = if name == "convnext-large" { strided(&found, 29, 31) } else { found };
            assert_close(&found, want, 1e-5, &format!("{name} {i}"));
        }
    }
    assert_eq!(configs.len(), 8);
}

/// Every so many rows and columns of `[1, c, h, w]`.
fn strided(data: &ConstData, rows: usize, columns: usize) -> ConstData {
    let [_, channels, height, width] = data.dims()[..] else { panic!("four dimensions") };
    let values = data.value().to_f64();
    let mut kept = Vec::new();
    for c in 0..channels {
        for y in (0..height).step_by(rows) {
            kept.extend((0..width).step_by(columns).map(|x| values[(c * height + y) * width + x] as f32));
        }
    }
    let dims = [1, channels, height.div_ceil(rows), width.div_ceil(columns)];
    ConstData::from_f32(&dims, &kept).unwrap()
}

#[test]
fn configurations_that_ask_for_more_are_errors_and_others_are_none() {
    for none in [
        r#"{"feature_extractor_type": "WhisperFeatureExtractor", "sampling_rate": 16000, "do_normalize": false}"#,
        r#"{"tokenizer_class": "BertTokenizer"}"#,
    ] {
        assert_eq!(Preprocess::from_hugging_face(none.as_bytes()), Ok(None), "{none}");
    }
    for (text, part) in [
        (r#"{"do_resize": true, "do_image_splitting": true}"#, "do_image_splitting"),
        (r#"{"do_resize": true, "size": {"max_height": 3, "max_width": 4}}"#, "max_height"),
        (r#"{"do_resize": true, "size": {"height": 0, "width": 4}}"#, "size"),
        (r#"{"do_resize": true, "size": 4, "resample": 9}"#, "resample"),
        (r#"{"do_resize": true, "size": 4, "image_mean": "grey"}"#, "image_mean"),
        ("[1]", "object"),
        ("{", "JSON"),
    ] {
        let error = Preprocess::from_hugging_face(text.as_bytes()).unwrap_err();
        assert!(error.message().contains(part), "{text}: {error}");
    }
    let old = br#"{"feature_extractor_type": "ViTFeatureExtractor", "do_resize": true, "size": 384, "do_normalize": true,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "resample": 2}"#;
    let old = Preprocess::from_hugging_face(old).unwrap().unwrap();
    assert_eq!(old.resize, Some(Resize::Exact { width: 384, height: 384 }));
    let fast = br#"{"image_processor_type": "CLIPImageProcessorFast", "do_center_crop": true, "crop_size": {"height": 5, "width": 6}}"#;
    let fast = Preprocess::from_hugging_face(fast).unwrap().unwrap();
    assert_eq!(fast.crop, Some(Crop { width: 6, height: 5, rounding: Rounding::HalfEven }));
}

#[test]
fn metadata_of_exporters_is_understood() {
    let pairs = |list: &[(&str, &str)]| -> Vec<(String, String)> {
        list.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect()
    };
    let yolo =
        pairs(&[("author", "Ultralytics"), ("stride", "32"), ("task", "detect"), ("imgsz", "[480, 640]")]);
    let found = Declared::from_metadata(&yolo).unwrap().preprocess;
    assert_eq!(found.resize, Some(Resize::Letterbox { width: 640, height: 480, fill: 114 }));
    let bgr =
        pairs(&[("Image.BitmapPixelFormat", "Bgr8"), ("Image.NominalPixelRange", "NominalRange_0_255")]);
    let found = Declared::from_metadata(&bgr).unwrap().preprocess;
    assert_eq!((found.colors, found.scale), (rlx::image::Colors::Bgr, Some(1.0)));
    assert_eq!(Declared::from_metadata(&pairs(&[("license", "MIT")])), None);
}

#[test]
fn letterboxes_are_centred_and_keep_proportions() {
    let white = Image::new(8, 4, 3, vec![255; 96]).unwrap();
    let by = Preprocess { resize: Some(Resize::LetterboxInput), scale: Some(1.0), ..Preprocess::default() };
    let input = info(&[1, 3, 6, 6].map(Dim::Static), DType::F32);
    let found = by.apply(&white, &input, InputLimit::default()).unwrap().value().to_f64();
    let row = |y: usize| found[y * 6..][..6].to_vec();
    assert_eq!(
        (row(0), row(1), row(3), row(4)),
        (vec![114.0; 6], vec![255.0; 6], vec![255.0; 6], vec![114.0; 6])
    );
}

#[test]
fn tensors_have_the_order_and_the_type_of_the_input() {
    // Two pixels: 1 2 3 and 4 5 6.
    let two = Image::new(2, 1, 3, (1..=6).collect()).unwrap();
    let apply = |by: &Preprocess, info: &TensorInfo| by.apply(&two, info, InputLimit::default());
    let values = |by: &Preprocess, info: &TensorInfo| apply(by, info).unwrap().value().to_f64();
    let plain = Preprocess::default();
    let last = Preprocess { layout: Some(rlx::image::Layout::Nhwc), ..plain.clone() };
    let bytes = Preprocess { scale: Some(1.0), ..last.clone() };
    let nchw = info(&[1, 3, 1, 2].map(Dim::Static), DType::U8);
    let nhwc = info(&[1, 1, 2, 3].map(Dim::Static), DType::F16);
    assert_eq!(values(&plain, &nchw), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    assert_eq!(values(&bytes, &nhwc), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let bgr = Preprocess { colors: rlx::image::Colors::Bgr, ..bytes.clone() };
    assert_eq!(values(&bgr, &nhwc), [3.0, 2.0, 1.0, 6.0, 5.0, 4.0]);
    let norm = Preprocess { mean: vec![1.0, 2.0, 3.0], std: vec![2.0], ..bytes.clone() };
    assert_eq!(values(&norm, &nhwc), [0.0, 0.0, 0.0, 1.5, 1.5, 1.5]);
    // Grey of colours, and a layout that the shape leaves open.
    let flat = info(&[open("n"), open("h"), open("w")], DType::U8);
    assert_eq!(apply(&plain, &flat).unwrap().dims(), [1, 1, 2]);
    let any = info(&[open("n"), open("a"), open("b"), open("c")], DType::U8);
    assert_eq!(apply(&plain, &any).unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(apply(&last, &any).unwrap().dims(), [1, 1, 2, 3]);
    // What does not apply is said.
    let first = Preprocess { layout: None, ..norm.clone() };
    assert_eq!(apply(&first, &nchw).unwrap_err().kind(), ErrorKind::DType);
    let three = Preprocess { mean: vec![1.0, 2.0], ..last.clone() };
    assert_eq!(apply(&three, &nhwc).unwrap_err().kind(), ErrorKind::Shape);
    let ids = info(&[1, 3, 1, 2].map(Dim::Static), DType::I64);
    assert_eq!(apply(&plain, &ids).unwrap_err().kind(), ErrorKind::Shape);
    let large = info(&[1, 3, 224, 224].map(Dim::Static), DType::F32);
    let error = apply(&plain, &large).unwrap_err();
    assert!(
        error.message().contains("2×1") && error.hint().unwrap().contains("--preset imagenet"),
        "{error}"
    );
}

/// Damaged files are errors or images, never a panic, and headers that claim much are rejected before pixels are decoded.
#[test]
fn damaged_files_are_errors_or_images() {
    let mut random = rlx_ir::testing::Gen::new(5);
    let limit = InputLimit(1 << 16);
    for name in [
        "420.jpg",
        "progressive.jpg",
        "cmyk.jpg",
        "lossy.webp",
        "rgba.webp",
        "interlaced.png",
        "palette4.png",
        "turned6.jpg",
    ] {
        let whole = std::fs::read(folder().join("pictures").join(name)).unwrap();
        let mut read_ones = 0;
        for case in 0..300 {
            let mut bytes = whole.clone();
            for _ in 0..case % 4 {
                let at = random.size(0..=bytes.len() - 1);
                bytes[at] = random.bits() as u8;
            }
            if case % 5 == 4 {
                bytes.truncate(random.size(0..=whole.len()));
            }
            match Image::decode(Cursor::new(bytes), limit) {
                Ok(image) => {
                    assert!(image.pixels().len() as u64 <= limit.0, "{name} {case}");
                    read_ones += 1;
                }
                Err(e) => {
                    assert!(!e.message().is_empty() && e.kind() != ErrorKind::Internal, "{name} {case}: {e}")
                }
            }
        }
        assert!(read_ones >= 60, "{name}: {read_ones}");
        for end in [0, 3, 20, whole.len() / 2] {
            assert!(Image::decode(Cursor::new(&whole[..end]), limit).is_err(), "{name} of {end} bytes");
        }
    }
}

#[test]
fn what_claims_to_be_huge_is_not_decoded() {
    let mut jpeg = std::fs::read(folder().join("pictures/444.jpg")).unwrap();
    let frame = jpeg.windows(2).position(|w| w == [0xff, 0xc0]).expect("a frame header");
    jpeg[frame + 5..frame + 9].copy_from_slice(&[0xff, 0xff, 0xff, 0xff]);
    let mut webp = std::fs::read(folder().join("pictures/lossy.webp")).unwrap();
    let start = webp.windows(3).position(|w| w == [0x9d, 0x01, 0x2a]).expect("a frame header");
    webp[start + 3..start + 7].copy_from_slice(&[0xff, 0x3f, 0xff, 0x3f]);
    for (bytes, size) in [(jpeg, "65535×65535"), (webp, "16383×16383")] {
        let error = Image::decode(Cursor::new(&bytes), InputLimit(1 << 29)).unwrap_err();
        assert!(error.message().contains(size) && error.hint().is_some(), "{error}");
        let small = info(&[1, 3, 8, 8].map(Dim::Static), DType::F32);
        let by = Preprocess { resize: Some(Resize::Input), ..Preprocess::default() };
        let source = rlx::image::Source::open(Cursor::new(&bytes)).unwrap();
        assert_eq!(by.read(source, &small, InputLimit(1 << 29)).unwrap_err().kind(), ErrorKind::Malformed);
    }
    // Resized by its shorter side, a line of pixels would be huge.
    let line = Image::new(60_000, 1, 1, vec![0; 60_000]).unwrap();
    let by =
        Preprocess { resize: Some(Resize::Shortest { edge: 256, longest: None }), ..Preprocess::default() };
    let error = by.apply(&line, &any_size(), InputLimit::default()).unwrap_err();
    assert!(error.message().contains("resized to"), "{error}");
}
