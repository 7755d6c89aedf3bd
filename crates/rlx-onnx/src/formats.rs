//! Files that are not ONNX models: recognised by their first bytes, the contents of an archive, or their name, with advice on how to
//! get an ONNX model.

use std::path::Path;

use rlx_ir::{Error, ErrorKind};

/// A format that people take for a model of ONNX.
struct Format {
    /// What a file of it is.
    what: &'static str,
    /// How it begins: bytes at an offset.
    starts: &'static [(usize, &'static [u8])],
    /// What its name ends in, behind the last dot.
    endings: &'static [&'static str],
    /// What to do.
    hint: &'static str,
}

const TORCH: &str = "torch.onnx.export(model, inputs, \"model.onnx\") in the program that builds the model writes ONNX; \
    for models of Hugging Face, `optimum-cli export onnx --model NAME FOLDER` does";
const WEIGHTS: &str = "it holds weights and no graph (`rlx inspect` lists them): export the model to ONNX where it is built, by torch.onnx.export or \
    `optimum-cli export onnx --model NAME FOLDER`";
const KERAS: &str = "model.export(\"model.onnx\", format=\"onnx\") in Keras 3 writes ONNX; for a .h5 file, \
    `python -m tf2onnx.convert --keras FILE.h5 --output model.onnx`";
const TENSORFLOW: &str = "`python -m tf2onnx.convert --saved-model FOLDER --output model.onnx` converts it (--graphdef FILE for \
    a frozen graph)";
const PADDLE: &str = "`paddle2onnx --model_dir FOLDER --model_filename FILE.pdmodel --params_filename FILE.pdiparams \
    --save_file model.onnx` converts it";
const SOURCE: &str = "give the ONNX file that it was made from, or export the original model to ONNX";
const UNPACK: &str = "unpack it, and give the .onnx file in it";
const PICKLE: &str = "skl2onnx.to_onnx(model, X) writes ONNX for scikit-learn, torch.onnx.export for PyTorch";
const INPUT: &str = "the model comes first, inputs follow it: rlx run MODEL.onnx FILE";

/// In the order in which they are tried: those with a distinctive beginning first.
const FORMATS: &[Format] = &[
    format(
        "a Git LFS pointer",
        &[(0, b"version https://git-lfs")],
        &[],
        "run `git lfs pull` where it comes from",
    ),
    format(
        "a web page",
        &[(0, b"<!DOCTYPE html")],
        &["html", "htm"],
        "the download gave a page instead of the file: download the file itself",
    ),
    format(
        "a web page",
        &[(0, b"<!doctype html")],
        &[],
        "the download gave a page instead of the file: download the file itself",
    ),
    format(
        "a web page",
        &[(0, b"<html")],
        &[],
        "the download gave a page instead of the file: download the file itself",
    ),
    format(
        "a TensorFlow Lite model",
        &[(4, b"TFL3")],
        &["tflite", "lite"],
        "`python -m tf2onnx.convert --tflite FILE --output model.onnx` converts it",
    ),
    format("a GGUF file of llama.cpp", &[(0, b"GGUF")], &["gguf", "ggml"], WEIGHTS),
    format("a model in ONNX Runtime's own format (ORT)", &[(4, b"ORTM")], &["ort"], SOURCE),
    format("an ExecuTorch program", &[(4, b"ET12")], &["pte"], TORCH),
    format("a Keras model in HDF5", &[(0, b"\x89HDF\r\n\x1a\n")], &["h5", "hdf5"], KERAS),
    format(
        "a CatBoost model",
        &[(0, b"CBM1")],
        &["cbm"],
        "model.save_model(\"model.onnx\", format=\"onnx\") of CatBoost writes ONNX",
    ),
    format("an MLIR module", &[(0, b"ML\xefR")], &["mlir", "mlirbc"], SOURCE),
    format("an ncnn model", &[(0, b"7767517")], &["ncnn"], SOURCE),
    format("an image", &[(0, b"\x89PNG\r\n\x1a\n")], &["png"], INPUT),
    format("an image", &[(0, b"\xff\xd8\xff")], &["jpg", "jpeg"], INPUT),
    format("an image", &[(8, b"WEBPVP8")], &["webp"], INPUT),
    format("a TensorRT engine", &[(0, b"ftrt")], &["engine", "plan", "trt"], SOURCE),
    format("a NumPy array", &[(0, b"\x93NUMPY")], &["npy"], INPUT),
    format("a compressed archive", &[(0, b"\x1f\x8b")], &["gz", "tgz"], UNPACK),
    format("a compressed archive", &[(0, b"\xfd7zXZ\0")], &["xz"], UNPACK),
    format("a compressed archive", &[(0, b"BZh")], &["bz2"], UNPACK),
    format("a compressed archive", &[(0, b"\x28\xb5\x2f\xfd")], &["zst"], UNPACK),
    format("a compressed archive", &[(0, b"7z\xbc\xaf\x27\x1c")], &["7z"], UNPACK),
    format("an archive", &[(257, b"ustar")], &["tar"], UNPACK),
    // A pickle of protocol 2 and of its magic number, as torch.save wrote before it wrote archives.
    format(
        "a PyTorch checkpoint",
        &[(0, b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46")],
        &["pt", "pth", "ckpt"],
        TORCH,
    ),
    format("a Python pickle", &[(0, b"\x80\x04\x95")], &["pkl", "pickle", "joblib"], PICKLE),
    format("a Python pickle", &[(0, b"\x80\x05\x95")], &[], PICKLE),
    // By name alone.
    format("safetensors weights", &[], &["safetensors"], WEIGHTS),
    format("a Keras model", &[], &["keras"], KERAS),
    format("an exported program of PyTorch", &[], &["pt2", "ptl", "torchscript"], TORCH),
    format("a PaddlePaddle model", &[], &["pdmodel", "pdiparams"], PADDLE),
    format(
        "a Core ML model",
        &[],
        &["mlmodel", "mlpackage", "mlmodelc"],
        "export the original model to ONNX; onnxmltools.convert_coreml converts old ones",
    ),
    format("an OpenVINO model", &[], &["xml"], SOURCE),
    format("an MNN model", &[], &["mnn"], SOURCE),
    format("a Caffe model", &[], &["caffemodel", "prototxt"], SOURCE),
    format("a TensorFlow graph", &[], &["pb", "pbtxt", "meta"], TENSORFLOW),
    format(
        "a model of XGBoost or LightGBM",
        &[],
        &["ubj", "bst", "lgb"],
        "onnxmltools.convert_xgboost and convert_lightgbm write ONNX",
    ),
    format(
        "ONNX in text",
        &[],
        &["onnxtxt", "onnxtext"],
        "onnx.parser.parse_model and onnx.save write the binary form",
    ),
    format("a compiled model of RLX, and damaged", &[], &["rlx"], "compile the model again by `rlx compile`"),
];

/// What archives of zip hold, by the end of a name in them.
const ARCHIVES: &[(&[u8], Format)] = &[
    (b"constants.pkl", format("a TorchScript model", &[], &[], TORCH)),
    (b"serialized_exported_program.json", format("an exported program of PyTorch", &[], &[], TORCH)),
    (b"archive_format", format("an exported program of PyTorch", &[], &[], TORCH)),
    (b"data.pkl", format("a PyTorch checkpoint", &[], &[], TORCH)),
    (b"model.weights.h5", format("a Keras model", &[], &[], KERAS)),
    (
        b".npy",
        format(
            "a NumPy archive",
            &[],
            &["npz"],
            "the model comes first, inputs follow it: rlx run MODEL.onnx --inputs FILE.npz",
        ),
    ),
    (b"", format("a zip archive", &[], &["zip"], UNPACK)),
];

const fn format(
    what: &'static str,
    starts: &'static [(usize, &'static [u8])],
    endings: &'static [&'static str],
    hint: &'static str,
) -> Format {
    Format { what, starts, endings, hint }
}

/// The error of a file that is not a model, with its format if recognised; otherwise `error`.
pub(crate) fn explain(error: Error, path: Option<&Path>, bytes: &[u8]) -> Error {
    let broken = error.kind() == ErrorKind::Malformed;
    let Some(format) = broken.then(|| by_contents(bytes).or_else(|| by_name(path?))).flatten() else {
        return error;
    };
    // A model that is only truncated has its own error, whatever its name.
    if format.starts.is_empty() && format.endings.contains(&"pb") && error.message().contains("truncated") {
        return error;
    }
    not_onnx(format.what, format.hint).with_source(error)
}

/// The error of a folder that is given as a model.
pub(crate) fn folder(path: &Path) -> Error {
    let holds = |name: &str| path.join(name).exists();
    if holds("saved_model.pb") {
        return not_onnx("a SavedModel folder of TensorFlow", TENSORFLOW);
    }
    if let Some(format) = by_name(path) {
        return not_onnx(format.what, format.hint);
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
    let mut models: Vec<String> = names.filter(|n| n.ends_with(".onnx") || n.ends_with(".rlx")).collect();
    rlx_ir::sort::sort(&mut models);
    let error = Error::new(ErrorKind::Io, "it is a folder, and a model is a file");
    match models.first() {
        Some(name) => error.with_hint(format!("give a file in it, such as {name}")),
        None if holds("config.json") => error.with_hint(TORCH),
        None => error.with_hint("it holds no .onnx file"),
    }
}

fn not_onnx(what: &str, hint: &str) -> Error {
    Error::new(ErrorKind::Malformed, format!("not an ONNX model, but {what}")).with_hint(hint)
}

fn by_contents(bytes: &[u8]) -> Option<&'static Format> {
    if bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06") {
        // The names are stored together at the end.
        let names = &bytes[bytes.len().saturating_sub(1 << 16)..];
        let holds = |name: &[u8]| name.is_empty() || names.windows(name.len()).any(|part| part == name);
        return ARCHIVES.iter().find(|(name, _)| holds(name)).map(|(_, format)| format);
    }
    let starts = |f: &&Format| {
        f.starts.iter().any(|&(at, magic)| bytes.get(at..).is_some_and(|rest| rest.starts_with(magic)))
    };
    let otherwise = match bytes {
        _ if is_safetensors(bytes) => "safetensors",
        _ if is_openvino(bytes) => "xml",
        _ => return FORMATS.iter().find(starts),
    };
    FORMATS.iter().find(starts).or_else(|| by_ending(otherwise))
}

/// Whether a length and a JSON header of that length come first.
fn is_safetensors(bytes: &[u8]) -> bool {
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else { return false };
    let length = u64::from_le_bytes(*length);
    (2..=100 << 20).contains(&length) && length <= rest.len() as u64 && rest.starts_with(b"{\"")
}

/// Whether it is XML that describes a net.
fn is_openvino(bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(512)];
    start.starts_with(b"<?xml") && start.windows(5).any(|part| part == b"<net ")
}

fn by_name(path: &Path) -> Option<&'static Format> {
    by_ending(&path.extension()?.to_str()?.to_ascii_lowercase())
}

fn by_ending(ending: &str) -> Option<&'static Format> {
    let archives = ARCHIVES.iter().map(|(_, format)| format);
    FORMATS.iter().chain(archives).find(|f| f.endings.contains(&ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, bytes: &[u8]) -> Error {
        let error = Error::new(ErrorKind::Malformed, "not an ONNX model: what the decoder says");
        explain(error, Some(Path::new(name)), bytes)
    }

    #[test]
    fn contents_tell_more_than_names() {
        for format in FORMATS {
            for &(at, magic) in format.starts {
                let bytes = [vec![1; at], magic.to_vec(), vec![1; 300]].concat();
                let error = named("model.onnx", &bytes);
                assert!(error.message().ends_with(format.what), "{}: {error}", format.what);
                assert_eq!(error.hint(), Some(format.hint));
            }
        }
        let zip = |name: &str| [b"PK\x03\x04....".as_slice(), name.as_bytes(), b"PK\x05\x06"].concat();
        for (entry, what) in [
            ("archive/data.pkl", "PyTorch checkpoint"),
            ("m/code/__torch__.py m/constants.pkl m/data.pkl", "TorchScript"),
            ("metadata.json model.weights.h5", "Keras"),
            ("x.npy", "NumPy archive"),
            ("readme.txt", "zip archive"),
        ] {
            assert!(named("m", &zip(entry)).message().contains(what), "{entry}");
        }
        let header = b"{\"__metadata__\":{}}";
        let safetensors = [&(header.len() as u64).to_le_bytes()[..], header].concat();
        assert!(named("m.bin", &safetensors).message().contains("safetensors"));
        let xml = b"<?xml version=\"1.0\"?>\n<net name=\"n\" version=\"11\">";
        assert!(named("m.bin", xml).message().contains("OpenVINO"));
    }

    #[test]
    fn names_tell_where_contents_do_not() {
        for format in FORMATS.iter().chain(ARCHIVES.iter().map(|(_, format)| format)) {
            for ending in format.endings {
                let error = named(&format!("model.{}", ending.to_uppercase()), b"\0\0\0\0");
                assert!(error.message().starts_with("not an ONNX model, but "), "{ending}: {error}");
                assert!(error.hint().is_some(), "{ending}");
            }
        }
        // Neither tells: the decoder's own words stay.
        assert!(named("model.onnx", b"\0\0\0\0").message().contains("what the decoder says"));
    }
}
